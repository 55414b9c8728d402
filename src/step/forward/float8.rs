//! Which linear layers of a model multiply in 8-bit floats (torchao's `convert_to_float8_training`, with the filters that its callers
//! give it).
//!
//! Source: torchao 0.18 float8/float8_linear_utils.py, accelerate 1.15 utils/ao.py.

use super::Model;
use super::linears::{Found, Place};
use crate::issue::{Field, Issue};
use crate::scenario::{Float8Layers, Float8Training};
use crate::step::float8::{MULTIPLE, Recipe};
use crate::step::ops::linear::Shape;

impl Found {
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

    /// Whether any layer of it multiplies in 8-bit floats.
    pub fn has_float8(&self) -> bool {
        self.machine.with(|state| state.params.of(&self.params).iter().any(|param| param.float8.is_some()))
    }
}
