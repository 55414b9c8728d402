//! Which linear layers of a model multiply in 8-bit floats (torchao's `convert_to_float8_training`, with the filters that its callers
//! give it).
//!
//! Source: torchao 0.18 float8/float8_linear_utils.py, accelerate 1.15 utils/ao.py.

use super::Model;
use crate::issue::{Field, Issue};
use crate::model::blocks::{FeedForward, LinearClass};
use crate::scenario::{Float8Layers, Float8Training};
use crate::step::float8::{MULTIPLE, Recipe};
use crate::step::ops::linear::{Layer, Shape};
use crate::step::params::ParamId;

/// A module that is an `nn.Linear`.
#[derive(Clone, Copy)]
struct Found {
    name: &'static str,
    weight: ParamId,
    shape: Shape,
    place: Place,
    is_adapter: bool,
}

/// Where a layer lies, or what its adapter adapts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Inside,
    /// Of an expert, which is given as many tokens as the router sends it.
    Expert,
    Head,
}

impl Found {
    /// A layer and its adapter, as peft puts them: the layer itself, A, B.
    fn of(layer: &Layer, place: Place) -> Vec<Found> {
        let found = |weight, shape, is_adapter| Found { name: layer.name, weight, shape, place, is_adapter };
        let own = (layer.class == LinearClass::Linear).then(|| found(layer.weight.id(), layer.shape, false));
        let beside = layer.adapter.iter().flat_map(|adapter| {
            let [down, up] = adapter.shapes(layer);
            [found(adapter.a, down, true), found(adapter.b, up, true)]
        });
        own.into_iter().chain(beside).collect()
    }

    fn is_divisible(self) -> bool {
        [self.shape.input, self.shape.output].into_iter().all(|size| size.is_multiple_of(MULTIPLE))
    }

    /// An issue where one of its products stops.
    fn check(self, float8: Float8Training) -> Result<(), Issue> {
        if !self.is_divisible() {
            let Found { name, shape, is_adapter, .. } = self;
            let message = format!(
                "PyTorch stops at {}{name} with {} × {} weights: 16 has to divide both dimensions of a product in 8 bits",
                if is_adapter { "an adapter of " } else { "" },
                shape.output,
                shape.input
            );
            let fix = match is_adapter {
                true => {
                    "choose a rank that 16 divides, or all but the first and the last, which leaves such layers out"
                }
                false => "choose all but the first and the last, which leaves such layers out",
            };
            return Err(Issue::error(Field::Float8Layers, message).with_fix(fix));
        }
        if self.place == Place::Expert && !float8.takes_any_rows() {
            let message = "each expert is given as many tokens as the router sends it, and 16 has to divide the number of what a weight's gradient is summed over in 8 bits";
            let fix =
                "pad the operands (pad_inner_dim), or multiply weights' gradients in 16 bits (rowwise-gw-hp)";
            return Err(Issue::error(Field::Float8Padding, message).with_fix(fix));
        }
        Ok(())
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
                Float8Layers::Body => layer.place != Place::Head,
                Float8Layers::Large => {
                    layer.place != Place::Head && layer.is_divisible() && layer.is_large(recipe)
                }
                Float8Layers::All => true,
            };
            if !takes {
                continue;
            }
            layer.check(float8)?;
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
        let all = |layers: &[Layer], place| {
            layers.iter().flat_map(|layer| Found::of(layer, place)).collect::<Vec<_>>()
        };
        let (head, others) = match self.outside.linears.split_last() {
            Some((head, others)) => (all(&[*head], Place::Head), others),
            None => (Vec::new(), &[][..]),
        };
        let mut found = Vec::with_capacity(64);
        for layer in &self.layers {
            // a router of experts in one tensor is a parameter of a module of its own
            let router = match &layer.block.ffn {
                FeedForward::Moe(moe) if !moe.router_is_linear => Some(moe.router.name),
                FeedForward::Moe(_) | FeedForward::Dense(_) | FeedForward::None => None,
            };
            let own = layer.linears.iter().filter(|linear| router != Some(linear.name));
            found.extend(own.flat_map(|linear| Found::of(linear, Place::Inside)));
            found.extend(all(&layer.expert_layers, Place::Expert));
        }
        found.extend(all(others, Place::Inside));
        found.extend(head);
        found
    }

    /// Whether any layer of it multiplies in 8-bit floats.
    pub fn has_float8(&self) -> bool {
        self.machine.with(|state| state.params.of(&self.params).iter().any(|param| param.float8.is_some()))
    }
}
