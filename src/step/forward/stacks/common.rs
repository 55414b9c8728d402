//! What several stacks ask.

use crate::issue::{Field, Issue};
use crate::job::{Batch, Member};
use crate::model::modeling::{Stacks, USUAL, families};
use crate::scenario::{Lengths, LossKernel};

/// An issue of a model that a stack was not compared on: the library that runs it, if one does, and families that were.
pub(super) fn not_compared(
    message: String,
    library: Option<&str>,
    compared: impl Fn(&Stacks) -> bool,
) -> Issue {
    let known = families().filter(|family| compared(&family.stacks));
    let names: Vec<&str> = known.flat_map(|family| family.model_types).copied().collect();
    let (usual, others): (Vec<&str>, Vec<&str>) = names.iter().partition(|name| USUAL.contains(name));
    let usual = if usual.is_empty() { &others } else { &usual };
    let more = match names.len() - usual.len() {
        0 => String::new(),
        1 => " or one other".to_owned(),
        more => format!(" or one of {more} others"),
    };
    let families = format!("a model of another family: {}{more}", usual.join(", "));
    Issue::error(Field::Stack, message).with_fix(match library {
        Some(library) => format!("choose {library}, or {families}"),
        None => format!("choose {families}"),
    })
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
    member.software().loss(member.loss)
}
