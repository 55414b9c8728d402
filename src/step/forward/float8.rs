//! Which linear layers of a model multiply in 8-bit floats (torchao's `convert_to_float8_training`, with the filters that its callers
//! give it).
//!
//! Source: torchao 0.18 float8/float8_linear_utils.py, accelerate 1.15 utils/ao.py.

use super::Model;
use crate::issue::{Field, Issue};
use crate::model::blocks::{FeedForward, LinearClass};
use crate::scenario::{Float8, Float8Layers};
use crate::step::float8::{MULTIPLE, Recipe};
use crate::step::ops::linear::{Layer, Shape};
use crate::step::params::ParamId;

/// A module that is an `nn.Linear`.
#[derive(Clone, Copy)]
struct Found {
    name: &'static str,
    weight: ParamId,
    shape: Shape,
    /// Whether it is the output head, or an adapter of it.
    is_of_head: bool,
}

impl Found {
    /// A layer and its adapter, as peft puts them: the layer itself, A, B.
    fn of(layer: &Layer, is_of_head: bool) -> Vec<Found> {
        let found = |weight, shape| Found { name: layer.name, weight, shape, is_of_head };
        let own = (layer.class == LinearClass::Linear).then(|| found(layer.weight.id(), layer.shape));
        let beside = layer.adapter.iter().flat_map(|adapter| {
            let [down, up] = adapter.shapes(layer);
            [found(adapter.a, down), found(adapter.b, up)]
        });
        own.into_iter().chain(beside).collect()
    }

    fn is_divisible(self) -> bool {
        [self.shape.input, self.shape.output].into_iter().all(|size| size.is_multiple_of(MULTIPLE))
    }

    /// `_auto_filter_for_recipe`: what pays on an H100.
    fn is_large(self, recipe: Recipe) -> bool {
        let Shape { input, output } = self.shape;
        if recipe.is_by_row() {
            output > 2048 && input > 1024 && (output > 4096 || input > 2048)
        } else {
            input > 4096 || output > 1024
        }
    }
}

impl Model<'_> {
    /// Converts the layers that the filter takes: their weights are what they were.
    ///
    /// # Errors
    /// An [`Issue`] where a product would stop, or the filter does.
    pub fn convert_to_float8(&self) -> Result<(), Issue> {
        let float8 = self.member.float8;
        let is_sharded = self.machine.with(|state| state.parallel.has_units());
        let Some(recipe) = Recipe::of(float8, is_sharded) else { return Ok(()) };
        let found = self.found_linears();
        let last = found.len().saturating_sub(1);
        let mut converted = Vec::with_capacity(found.len());
        for (index, layer) in found.into_iter().enumerate() {
            let takes = match float8.layers {
                Float8Layers::Inner => index != 0 && index != last && layer.is_divisible(),
                Float8Layers::Body => !layer.is_of_head,
                Float8Layers::Large if float8.recipe == Float8::RowwiseWithGwHp => {
                    let message = "torchao has no choice of layers by shape for this recipe: _auto_filter_for_recipe raises NotImplementedError";
                    let fix = "choose tensorwise or rowwise, or other layers";
                    return Err(Issue::error(Field::Float8Layers, message).with_fix(fix));
                }
                Float8Layers::Large => !layer.is_of_head && layer.is_divisible() && layer.is_large(recipe),
                Float8Layers::All => true,
            };
            if !takes {
                continue;
            }
            if !layer.is_divisible() {
                let message = format!(
                    "PyTorch stops at {} with {} × {} weights: 16 has to divide both dimensions of a product in 8 bits",
                    layer.name, layer.shape.output, layer.shape.input
                );
                let fix = "choose all but the first and the last, which leaves such layers out, or adapters whose rank 16 divides";
                return Err(Issue::error(Field::Float8Layers, message).with_fix(fix));
            }
            converted.push(layer.weight);
        }
        self.machine.with(|state| {
            for id in converted {
                state.params.list[id as usize].float8 = Some(recipe);
            }
        });
        Ok(())
    }

    /// Its linear layers and those of its adapters, in the order of the modules.
    fn found_linears(&self) -> Vec<Found> {
        let mut found = Vec::with_capacity(64);
        for layer in &self.layers {
            // a router of experts in one tensor is a parameter of a module of its own
            let router = match &layer.block.ffn {
                FeedForward::Moe(moe) if !moe.router_is_linear => Some(moe.router.name),
                FeedForward::Moe(_) | FeedForward::Dense(_) | FeedForward::None => None,
            };
            let own = layer.linears.iter().chain(&layer.expert_layers);
            let own = own.filter(|linear| router != Some(linear.name));
            found.extend(own.flat_map(|linear| Found::of(linear, false)));
        }
        let (head, others) = match self.outside.linears.split_last() {
            Some((head, others)) => (Some(head), others),
            None => (None, &[][..]),
        };
        found.extend(others.iter().flat_map(|linear| Found::of(linear, false)));
        found.extend(head.into_iter().flat_map(|head| Found::of(head, true)));
        found
    }

    /// Whether any layer of it multiplies in 8-bit floats.
    pub fn has_float8(&self) -> bool {
        self.machine.with(|state| state.params.of(&self.params).iter().any(|param| param.float8.is_some()))
    }
}
