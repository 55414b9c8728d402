//! A layer of llama's code in one 16-bit type, whose weights are frozen and have LoRA's adapters in float32 beside them, without dropout.
//!
//! Two things depend on more than on what is adapted: the first layer's input wants no gradient unless it is made to, and a kernel that
//! writes a gradient in both types writes the 16-bit one first where there are several sequences.

mod backward;
mod forward;

use super::super::draft::{
    ARGUMENTS, Arguments, COS, DOWN, FIRST_NORM, GATE, HIDDEN, KEY, OUTPUT, QUERY, SECOND_NORM, SIN, Sizes,
    Targets, UP, VALUE, lora_a, lora_b,
};
use crate::dtype::Dtype;

pub(super) use backward::backward;
pub(super) use forward::forward;

/// What the layer is given.
fn given(targets: Targets) -> Arguments {
    let mut given = [false; ARGUMENTS];
    for argument in [HIDDEN, FIRST_NORM, COS, SIN, SECOND_NORM] {
        given[argument] = true;
    }
    for linear in [QUERY, KEY, VALUE, OUTPUT, GATE, UP, DOWN] {
        given[linear] = true;
        given[lora_a(linear)] = targets.adapt(linear);
        given[lora_b(linear)] = targets.adapt(linear);
    }
    given
}

/// A layer and what is beside its weights.
#[derive(Clone, Copy)]
struct Adapted<'s> {
    sizes: &'s Sizes,
    rank: u64,
    targets: Targets,
    input: bool,
}

impl Adapted<'_> {
    fn rows(&self, of: u64, dtype: Dtype) -> (u64, Dtype) {
        (self.sizes.tokens.saturating_mul(of), dtype)
    }

    /// Features that a linear layer takes and gives.
    fn features(&self, linear: usize) -> (u64, u64) {
        let Sizes { hidden, queries, keys, width, .. } = *self.sizes;
        match linear {
            QUERY => (hidden, queries.features),
            KEY | VALUE => (hidden, keys.features),
            OUTPUT => (queries.features, hidden),
            DOWN => (width, hidden),
            _ => (hidden, width),
        }
    }
}

/// Whether forward keeps the output projection's product and not its sum with the layer's input: the input is there anyway where it wants
/// a gradient, so that the partitioner may choose, and the product is one tensor where no adapter's is added.
fn keeps_product(targets: Targets, input: bool) -> bool {
    input && !targets.adapt(OUTPUT)
}
