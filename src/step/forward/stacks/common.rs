//! What several stacks ask.

use crate::issue::{Field, Issue};
use crate::job::{Batch, Member};
use crate::model::modeling::{Stacks, families};
use crate::scenario::software::Software;
use crate::scenario::{Lengths, LossKernel};

/// Says that a stack's code for a family was not compared, and for which it was.
pub(super) fn not_compared(message: String, compared: impl Fn(&Stacks) -> bool) -> Issue {
    let known = families().filter(|family| compared(&family.stacks));
    let names: Vec<&str> = known.flat_map(|family| family.model_types).copied().collect();
    Issue::error(Field::Stack, message).with_fix(format!("choose transformers, or {}", names.join(", ")))
}

/// How many texts a batch has, and of what length.
pub(super) fn texts(batch: Batch) -> (u64, u64) {
    match batch.lengths {
        Lengths::Spread { mean, .. } if batch.mask.is_packed() => {
            ((batch.tokens() / mean.max(1)).max(1), mean)
        }
        Lengths::Equal | Lengths::Uniform | Lengths::Spread { .. } => (batch.sequences, batch.length),
    }
}

/// The loss that runs: the stack's own, where no other is asked for.
pub(in crate::step::forward) fn loss_kernel(member: &Member) -> LossKernel {
    Software::of(member.stack).loss(member.loss)
}
