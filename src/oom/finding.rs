//! What the figures of a message say, in sentences.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::message::Message;
use super::suspect::Suspect;
use crate::allocator::segment_for;
use crate::units::Bytes;

/// Something that follows from a message's figures.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Finding {
    /// The memory was there, in pieces.
    Fragmented {
        /// Reserved and not allocated.
        unallocated: Bytes,
        /// Whether the allocator already joins its pieces.
        expandable: bool,
    },
    /// Without any fragmentation there would not have been enough either.
    Short {
        /// What was missing.
        by: Bytes,
    },
    /// One request is more than the card has.
    LargerThanCard,
    /// The figure is a segment's, of whatever small tensor came next.
    AnySmallTensor {
        /// The segment.
        segment: Bytes,
    },
    /// Somebody else has a part of the card.
    OtherProcesses {
        /// How much.
        bytes: Bytes,
    },
    /// The message is of another card than the scenario's.
    OtherCard {
        /// The card on which the scenario is looked at instead.
        name: String,
    },
    /// Nothing in the scenario's run is of that size.
    NoSuchTensor,
    /// There is such a tensor, and something else was allocated when it was asked for.
    OtherMoment {
        /// What the message says was allocated.
        said: Bytes,
        /// What is in the scenario's run.
        found: Bytes,
    },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::Fragmented { unallocated, expandable: false } => write!(
                f,
                "Fragmentation: {unallocated} were reserved by PyTorch and not allocated, enough together with what was free, but \
                 not in one piece. PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True lets the allocator join them."
            ),
            Finding::Fragmented { unallocated, expandable: true } => write!(
                f,
                "Fragmentation: {unallocated} were reserved by PyTorch and not allocated. The scenario already has \
                 expandable segments; if the run had them too, smaller requests are what is left to change."
            ),
            Finding::Short { by } => {
                write!(f, "No fragmentation: even in one piece {by} would have been missing.")
            }
            Finding::LargerThanCard => {
                f.write_str("This one tensor is larger than the whole card: it has to go or to shrink.")
            }
            Finding::AnySmallTensor { segment } => write!(
                f,
                "The card was simply full: {segment} is what the allocator asks for whenever a {} tensor finds no free block. \
                 What was there already is the question, not this tensor.",
                if segment.0 <= segment_for(1) { "small (up to 1 MiB)" } else { "middling (1 to 10 MiB)" }
            ),
            Finding::OtherProcesses { bytes } => {
                write!(f, "Other processes had {bytes} of the card: nvidia-smi lists them.")
            }
            Finding::OtherCard { name } => {
                write!(f, "The message's card is not the scenario's: by its capacity it is {name}, on which the scenario is looked at.")
            }
            Finding::NoSuchTensor => f.write_str(
                "No tensor of this scenario asks for that much: its model, batch size, sequence length or another setting is not \
                 that of the run.",
            ),
            Finding::OtherMoment { said, found } => write!(
                f,
                "The size is there, the moment is not: when this scenario asks for it {found} are allocated, and the message says \
                 {said}. Some setting is not that of the run."
            ),
        }
    }
}

/// What follows from a message, beside the suspects that were found; `card` is the one that it is of, where the scenario had
/// another.
pub fn findings(
    message: &Message,
    card: Option<String>,
    suspects: &[Suspect],
    expandable: bool,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let Message { requested, capacity, free, others, allocated, unallocated, .. } = *message;
    if let Some(asked) = requested {
        let segment = message.segment();
        let is_larger = capacity.is_some_and(|capacity| asked.bytes > capacity.bytes);
        if is_larger {
            findings.push(Finding::LargerThanCard);
        } else if let Some(segment) = segment {
            findings.push(Finding::AnySmallTensor { segment });
        }
        if let (Some(free), Some(unallocated), false) = (free, unallocated, is_larger) {
            let there = free.bytes + unallocated.bytes;
            findings.push(match asked.bytes.saturating_sub(there) {
                Bytes::ZERO => Finding::Fragmented { unallocated: unallocated.bytes, expandable },
                by => Finding::Short { by },
            });
        }
        match (suspects.first(), segment) {
            (None, None) => findings.push(Finding::NoSuchTensor),
            (Some(Suspect { agrees: Some(false), allocated: found, .. }), _) => {
                let said = allocated.map_or(Bytes::ZERO, |amount| amount.bytes);
                findings.push(Finding::OtherMoment { said, found: *found });
            }
            (None, Some(_)) | (Some(_), _) => {}
        }
    }
    let other = others.map(|amount| amount.bytes).filter(|bytes| *bytes > Bytes::ZERO);
    findings.extend(other.map(|bytes| Finding::OtherProcesses { bytes }));
    findings.extend(card.map(|name| Finding::OtherCard { name }));
    findings
}
