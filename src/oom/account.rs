//! Who had the card's memory.

use serde::{Deserialize, Serialize};

use super::amount::Amount;
use super::message::Message;
use crate::units::Bytes;

/// Who had a part of the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Holder {
    /// PyTorch's tensors: `memory_allocated()`.
    Tensors,
    /// The free blocks of PyTorch's allocator.
    FreeBlocks,
    /// What the process has beside PyTorch's allocator.
    Outside,
    /// Other processes.
    Others,
    /// What the process has of Metal beside PyTorch's allocator.
    BesideMetal,
    /// One of these, which the message does not tell apart.
    OutsideAndOthers,
    /// One of these or nobody, where the message does not say what was free.
    OutsideOthersAndNobody,
    /// All but tensors, where the message does not say what the allocator keeps.
    AllButTensors,
    /// The process that trains, all of it.
    Process,
    /// This process and all others, as nvidia-smi alone shows them.
    Everybody,
    /// Nobody.
    Nobody,
}

impl Holder {
    /// The name shown to people.
    pub const fn label(self) -> &'static str {
        match self {
            Holder::Tensors => "Tensors (allocated)",
            Holder::FreeBlocks => "PyTorch's free blocks (reserved, not allocated)",
            Holder::Outside => "This process beside PyTorch: the driver's context, kernels, NCCL",
            Holder::Others => "Other processes",
            Holder::BesideMetal => "This process beside PyTorch's allocator (other allocations)",
            Holder::OutsideAndOthers => "The driver's context, and other processes if there are any",
            Holder::OutsideOthersAndNobody => {
                "The driver's context, other processes and what was free: the message does not say how much"
            }
            Holder::AllButTensors => "The allocator's free blocks, the driver's context, other processes",
            Holder::Process => "The process that trains",
            Holder::Everybody => "All processes",
            Holder::Nobody => "Free",
        }
    }
}

/// Where the card's memory was, as far as the message says.
pub(super) fn account(message: &Message) -> Vec<(Holder, Bytes)> {
    let bytes = |amount: Option<Amount>| amount.map(|amount| amount.bytes);
    let Message { capacity, free, process, others, allocated, unallocated, reserved, shown, .. } = *message;
    let beside = |all: Option<Amount>, parts: [Option<Amount>; 3]| {
        let parts: Bytes = parts.into_iter().flatten().map(|amount| amount.bytes).sum();
        bytes(all).map(|all| all.saturating_sub(parts))
    };
    let outside = match (process, reserved) {
        (Some(process), None) if allocated.is_none() => (Holder::Process, Some(process.bytes)),
        (Some(_), _) => (Holder::Outside, beside(process, [reserved, None, None])),
        (None, Some(_)) if free.is_none() => {
            (Holder::OutsideOthersAndNobody, beside(capacity, [reserved, others, None]))
        }
        (None, Some(_)) => (Holder::OutsideAndOthers, beside(capacity, [reserved, free, others])),
        (None, None) if message.is_of_metal => (Holder::BesideMetal, bytes(message.beside)),
        (None, None) if allocated.is_some() && free.is_some() => {
            (Holder::AllButTensors, beside(capacity, [allocated, free, others]))
        }
        (None, None) => (Holder::Everybody, bytes(shown).or_else(|| message.in_use())),
    };
    // what is left of a Mac's limit
    let left = message.beside.and_then(|other| beside(capacity, [allocated, Some(other), None]));
    let holders = [
        (Holder::Tensors, bytes(allocated)),
        (Holder::FreeBlocks, bytes(unallocated)),
        outside,
        (Holder::Others, bytes(others)),
        (Holder::Nobody, bytes(free).or(left)),
    ];
    holders.into_iter().filter_map(|(holder, bytes)| Some((holder, bytes?))).collect()
}
