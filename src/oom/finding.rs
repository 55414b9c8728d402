//! What the figures of a message say, in sentences.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::amount::Amount;
use super::host::Host;
use super::joining::Joining;
use super::message::Message;
use super::place::Place;
use super::processes::Processes;
use super::suspect::Suspect;
use super::vllm::Share;
use crate::allocator::segment_for;
use crate::issue::Issue;
use crate::units::Bytes;

/// Less of what is reserved than so many percent is not worth a word where it lies free.
const LEAST_UNUSED: f64 = 5.0;

/// Something that follows from a message's figures.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Finding {
    /// The memory was there, in pieces.
    Fragmented {
        /// Reserved and not allocated.
        unallocated: Bytes,
        /// Whether the allocator can join its pieces.
        joining: Joining,
    },
    /// Without any fragmentation there would not have been enough either.
    Short {
        /// What was missing.
        by: Bytes,
    },
    /// More was asked for than was free, and the text does not say how much of the rest PyTorch only kept.
    MoreThanFree {
        /// How much more.
        by: Bytes,
    },
    /// One request is more than the card has.
    LargerThanCard,
    /// There was room enough that nobody had.
    Limited {
        /// What was free.
        free: Bytes,
        /// What the process may have, where the message says it.
        allowed: Option<Bytes>,
    },
    /// There was no memory for what lies beside PyTorch's allocator.
    BesideAllocator,
    /// Metal's limit on the process was reached.
    MetalLimit {
        /// What the process may have.
        allowed: Bytes,
    },
    /// The Mac on which the scenario is looked at.
    OnMac {
        /// What it is called.
        name: String,
        /// What Metal recommends there.
        recommended: Bytes,
    },
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
        /// What the scenario's card has.
        own: Bytes,
        /// What the message's has, on which the scenario is looked at.
        capacity: Bytes,
    },
    /// The scenario has no answer.
    NoAnswer {
        /// Why.
        reason: String,
    },
    /// Nothing in the scenario's run is of that size.
    NoSuchTensor,
    /// The scenario's run never has as much as the message says was allocated.
    MoreThanRun {
        /// What the message says was allocated.
        said: Bytes,
        /// The most that the scenario's run has.
        most: Bytes,
    },
    /// It may be the logits of another run.
    LikelyLogits,
    /// There is such a tensor, and something else was allocated when it was asked for.
    OtherMoment {
        /// What the message says was allocated.
        said: Bytes,
        /// What is in the scenario's run.
        found: Bytes,
    },
    /// There is such a tensor, and another amount of the card was in use when it was asked for.
    OtherUse {
        /// What the message says was in use.
        said: Bytes,
        /// What is allocated in the scenario's run.
        found: Bytes,
        /// Whether other processes may have had a part of what was in use.
        shared: bool,
    },
    /// There is such a tensor, and the scenario's card had room for it whenever it was asked for.
    HadRoom,
    /// The card had no room, and the allocator gave back what it had free: so often, and so often in vain.
    Retried {
        /// In all.
        retries: u64,
        /// In vain.
        failures: u64,
    },
    /// What was reserved and not allocated, where nothing was asked for.
    Unused {
        /// All of it.
        unallocated: Bytes,
        /// Free parts of segments in which tensors have others.
        inactive: Option<Bytes>,
        /// Whether the allocator can join such pieces.
        joining: Joining,
    },
    /// Several rows of nvidia-smi, cards or moments.
    SeveralRows {
        /// How many.
        rows: u64,
    },
    /// Of the scenario's tensors of that size none is made where the traceback stands.
    NotThere {
        /// The innermost place that it names.
        place: Place,
    },
    /// A figure of a run that did not fail, beside the scenario's.
    Beside {
        /// Which.
        figure: Figure,
        /// What the text says.
        said: Bytes,
        /// What the scenario's run has.
        found: Bytes,
        /// Whether they are one, as nearly as runs like this one were measured to be predicted.
        agrees: bool,
    },
    /// The processes that nvidia-smi lists.
    Listed(Processes),
    /// The computer's own memory ran out.
    OutOfHost(Host),
    /// The computer's own memory ran out, which is the card's too.
    OutOfShared,
    /// What the scenario's run has of the computer's memory.
    OnHost {
        /// A sentence for each cause; none where nothing of it is known to lie there.
        notes: Vec<String>,
    },
    /// vLLM found its share of the card taken.
    ShareTaken(Share),
}

/// A figure that both a text and a prediction have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// Peak of `memory_allocated()`.
    Allocated,
    /// Peak of `memory_reserved()`.
    Reserved,
    /// What nvidia-smi shows of the card.
    Shown,
    /// What it lists of the process.
    Process,
}

impl Figure {
    const fn label(self) -> &'static str {
        match self {
            Figure::Allocated => "allocated at the peak",
            Figure::Reserved => "reserved at the peak",
            Figure::Shown => "in use by all processes (nvidia-smi)",
            Figure::Process => "in use by the process (nvidia-smi)",
        }
    }
}

impl Finding {
    /// Whether it says that the message is of another run than the scenario's.
    pub(super) fn is_other_run(&self) -> bool {
        matches!(
            self,
            Finding::NoSuchTensor
                | Finding::OtherMoment { .. }
                | Finding::OtherUse { .. }
                | Finding::HadRoom
                | Finding::MoreThanRun { .. }
                | Finding::Beside { figure: Figure::Allocated, agrees: false, .. }
        )
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::Fragmented { unallocated, joining } => write!(
                f,
                "Fragmentation: {unallocated} were reserved by PyTorch and not allocated, enough together with what was free, but \
                 not in one piece. {}",
                match joining {
                    Joining::Off => "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True lets the allocator join them.",
                    Joining::On =>
                        "The scenario already has expandable segments; if the run had them too, smaller requests are what is left to \
                         change.",
                    Joining::Doubtful =>
                        "PYTORCH_HIP_ALLOC_CONF=expandable_segments:True lets the allocator join them where PyTorch was built for it; where it \
                         warns \"expandable_segments not supported on this platform\" nothing changes, and smaller requests are what is left.",
                    Joining::Unknown =>
                        "Smaller requests are what is left to change: a smaller micro-batch, shorter sequences, checkpointing.",
                }
            ),
            Finding::Short { by } => {
                write!(f, "No fragmentation: even in one piece {by} would have been missing.")
            }
            Finding::BesideAllocator => f.write_str(
                "This is the driver's error, not PyTorch's: the card had no room for something beside PyTorch's allocator, a CUDA context, a \
                 cuBLAS or NCCL buffer, a kernel. Other processes have the card (nvidia-smi lists them), or PyTorch had reserved all of it: then \
                 what makes the run smaller helps, and torch.cuda.set_per_process_memory_fraction(0.95) leaves the driver its part. Where pinned \
                 memory was asked for (pin_memory), it is the machine's own that ran out.",
            ),
            Finding::MetalLimit { allowed } => write!(
                f,
                "PyTorch lets the process have {allowed}, which is 1.7 times what Metal recommends for a GPU unless PYTORCH_MPS_HIGH_WATERMARK_RATIO \
                 says otherwise: 0.0 lifts that limit, and the system may fail then. A smaller micro-batch, shorter sequences and checkpointing ask for \
                 less."
            ),
            Finding::OnMac { name, recommended } => write!(
                f,
                "The scenario is looked at on an {name}, for which Metal recommends {recommended}; of which chip the message is it does not say."
            ),
            Finding::MoreThanFree { by } => write!(
                f,
                "{by} more than was free. The rest of the message says how much of what was in use PyTorch only kept for later."
            ),
            Finding::LargerThanCard => {
                f.write_str("This one tensor is larger than the whole card: it has to go or to shrink.")
            }
            Finding::AnySmallTensor { segment } => write!(
                f,
                "The card was full: {segment} is what the allocator asks for whenever a tensor of {} finds no free block. What \
                 was there already is the question, not this tensor.",
                if segment.0 <= segment_for(1) { "up to 1 MiB" } else { "1 to 10 MiB, or of 18 to 20," }
            ),
            Finding::OtherProcesses { bytes } => {
                write!(
                    f,
                    "Other processes had {bytes} of the card: the maker's tool lists them (nvidia-smi, rocm-smi, xpu-smi)."
                )
            }
            Finding::OtherCard { own, capacity } => write!(
                f,
                "The message's card has {capacity}, the scenario's {own}: the scenario is looked at on one with {capacity}."
            ),
            Finding::NoAnswer { reason } => {
                write!(f, "The scenario has no answer, so the message is not looked for in its run: {reason}.")
            }
            Finding::Limited { free, allowed } => {
                write!(f, "{free} of the card were free and could not be had: ")?;
                match allowed {
                    Some(allowed) => write!(f, "the process is limited to {allowed} (set_per_process_memory_fraction)."),
                    None => f.write_str(
                        "the process has a limit of its own, or another process had them at that moment.",
                    ),
                }
            }
            Finding::NoSuchTensor => f.write_str(
                "This scenario is not that run: none of its tensors asks for that much. Another model, micro-batch size or sequence \
                 length does.",
            ),
            Finding::MoreThanRun { said, most } => write!(
                f,
                "This scenario is not that run: {said} were allocated, and it never has more than {most}."
            ),
            Finding::HadRoom => f.write_str(
                "This scenario is not that run, unless the card was a smaller one or other processes had the rest: its own has room whenever that \
                 much is asked for.",
            ),
            Finding::LikelyLogits => f.write_str(
                "A request of that size is most often the logits: a loss that never makes them removes it (use_liger_kernel=True, cut cross \
                 entropy, trl's own head), and half as many tokens at a time halve it (per_device_train_batch_size, with \
                 gradient_accumulation_steps doubled).",
            ),
            Finding::Retried { retries: 0, .. } => {
                f.write_str("The allocator always found room on the card (no cudaMalloc retries).")
            }
            Finding::Retried { retries, failures } => write!(
                f,
                "The card was full: {retries} times the allocator had to give back its free segments and ask again (cudaMalloc retries), \
                 which costs time, and {failures} of these were in vain (CUDA OOMs)."
            ),
            Finding::Unused { unallocated, inactive: None, .. } => write!(
                f,
                "{unallocated} were reserved and not allocated: blocks that the allocator keeps for the next tensors of their sizes. \
                 nvidia-smi and its like count them as used."
            ),
            Finding::Unused { unallocated, inactive: Some(inactive), joining } => write!(
                f,
                "{unallocated} were reserved and not allocated, {inactive} of them in segments in which tensors have other parts: these are \
                 the holes of fragmentation, which emptying the cache (empty_cache()) cannot give back{}.",
                match joining {
                    Joining::Off | Joining::On => " and PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True avoids",
                    Joining::Doubtful =>
                        " and PYTORCH_HIP_ALLOC_CONF=expandable_segments:True avoids where PyTorch was built for it",
                    Joining::Unknown => "",
                }
            ),
            Finding::SeveralRows { rows } => write!(
                f,
                "{rows} rows of nvidia-smi, cards or moments: the fullest is looked at, and no sum of them."
            ),
            Finding::NotThere { place } => write!(
                f,
                "The traceback stands {place}, and none of the scenario's tensors of that size is made there: another setting there may be \
                 what differs."
            ),
            Finding::Beside { figure, said, found, agrees: true } => {
                write!(f, "{said} {}: the scenario has {found}, so it may be that run.", figure.label())
            }
            Finding::Beside { figure: Figure::Shown, said, found, agrees: false } => write!(
                f,
                "{said} {}: the scenario comes to {found}. Its peak may be still to come, other processes may have a part, or it is another \
                 run.",
                Figure::Shown.label()
            ),
            Finding::Beside { figure: Figure::Process, said, found, agrees: false } => write!(
                f,
                "{said} {}: the scenario comes to {found}. Its peak may be still to come, or it is another run.",
                Figure::Process.label()
            ),
            Finding::Beside { figure: Figure::Reserved, said, found, agrees: false } => write!(
                f,
                "{said} {}, where the scenario has {found}: another setting of the allocator, lengths that vary, or another run.",
                Figure::Reserved.label()
            ),
            Finding::Beside { figure, said, found, agrees: false } => write!(
                f,
                "{said} {}: this scenario is not that run, it has {found}.",
                figure.label()
            ),
            Finding::OtherUse { said, found, shared } => {
                let unless = if *shared && said > found { ", unless other processes had the rest" } else { "" };
                let who = if *shared { "of the card were in use" } else { "are what the process had" };
                write!(
                    f,
                    "This scenario is not that run{unless}: when it asks for that much {found} are allocated, and {said} {who}."
                )
            }
            Finding::OtherMoment { said, found } => write!(
                f,
                "This scenario is not that run: when it asks for that much {found} are allocated, and the message says {said}."
            ),
            Finding::Listed(processes) => processes.fmt(f),
            Finding::OutOfHost(host) => host.fmt(f),
            Finding::OutOfShared => f.write_str(
                "The computer's own memory (RAM) ran out, or most likely did, and on this card that is the GPU's too: what makes the run smaller helps.",
            ),
            Finding::OnHost { notes } if notes.is_empty() => f.write_str(
                "No tensor of this scenario's step waits there. What else a process has of it: the data set, the batches that the workers of a loader \
                 have ready, a model while it is loaded, merged or written.",
            ),
            Finding::OnHost { notes } => write!(f, "In this scenario: {}.", notes.join("; ")),
            Finding::ShareTaken(share) => share.fmt(f),
        }
    }
}

/// What follows from a message: beside the suspects that were found, or why they could not be looked for; `cards` is what the
/// scenario's card and the message's have, where they differ; `listed` are the processes that nvidia-smi lists.
pub fn findings(
    message: &Message,
    listed: Option<Processes>,
    cards: Option<[Bytes; 2]>,
    suspects: &[Suspect],
    unanswered: Option<Issue>,
    joining: Joining,
) -> Vec<Finding> {
    let of_memory = message.requested.and_then(|asked| of_memory(message, asked.bytes, joining));
    let in_run = match (unanswered, suspects.first()) {
        (Some(issue), _) => Some(Finding::NoAnswer { reason: issue.to_string() }),
        (None, Some(Suspect { allocated: found, .. })) if suspects.iter().all(Suspect::contradicts) => {
            let bytes = |amount: Amount| amount.bytes;
            match (message.allocated.map(bytes), message.held().map(bytes)) {
                (Some(said), _) => Some(Finding::OtherMoment { said, found: *found }),
                (None, Some(said)) => {
                    Some(Finding::OtherUse { said, found: *found, shared: message.process.is_none() })
                }
                (None, None) => Some(Finding::HadRoom),
            }
        }
        (None, None) if message.requested.is_some() && message.segment().is_none() => {
            Some(Finding::NoSuchTensor)
        }
        (None, Some(_) | None) => None,
    };
    let others = message.others.map(|amount| amount.bytes).filter(|bytes| *bytes > Bytes::ZERO);
    let others = others.filter(|_| listed.is_none()).map(|bytes| Finding::OtherProcesses { bytes });
    let metal = message.capacity.filter(|_| message.is_of_metal);
    let metal = metal.map(|allowed| Finding::MetalLimit { allowed: allowed.bytes });
    let driver = message.is_of_driver.then_some(Finding::BesideAllocator);
    let card = cards.map(|[own, capacity]| Finding::OtherCard { own, capacity });
    let retried = message.retries.map(|retries| {
        let failures = message.failures.unwrap_or(0);
        Finding::Retried { retries, failures }
    });
    let rows = message.rows.filter(|rows| *rows > 1).map(|rows| Finding::SeveralRows { rows });
    let host = message.host.map(Finding::OutOfHost);
    let share = message.vllm.map(Finding::ShareTaken);
    let listed = listed.map(Finding::Listed);
    [
        host,
        share,
        of_memory,
        driver,
        listed,
        unused(message, joining),
        retried,
        metal,
        in_run,
        others,
        rows,
        card,
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// What was reserved for nothing, where nothing was asked for; none where it is little.
fn unused(message: &Message, joining: Joining) -> Option<Finding> {
    let (None, Some(reserved), Some(unallocated)) =
        (message.requested, message.reserved, message.unallocated)
    else {
        return None;
    };
    let inactive = message.inactive.map(|amount| amount.bytes);
    (unallocated.bytes.percent_of(reserved.bytes) >= LEAST_UNUSED).then_some(Finding::Unused {
        unallocated: unallocated.bytes,
        inactive,
        joining,
    })
}

/// Why the card had no room for what was asked.
fn of_memory(message: &Message, asked: Bytes, joining: Joining) -> Option<Finding> {
    let bytes = |amount: Option<Amount>| amount.map(|amount| amount.bytes);
    if bytes(message.capacity).is_some_and(|capacity| asked > capacity) {
        return Some(Finding::LargerThanCard);
    }
    let segment = message.segment().map(|segment| Finding::AnySmallTensor { segment });
    let unallocated = bytes(message.unallocated);
    // Intel's message does not say what was free: there are pieces enough where they are so without it
    let enough = unallocated.filter(|unallocated| *unallocated >= asked);
    let free = bytes(message.free).or(enough.map(|_| Bytes::ZERO));
    let (Some(free), Some(unallocated)) = (free, unallocated) else {
        let missing = bytes(message.free).filter(|free| *free < asked).map(|free| asked.saturating_sub(free));
        return segment.or_else(|| missing.map(|by| Finding::MoreThanFree { by }));
    };
    Some(if free >= asked {
        Finding::Limited { free, allowed: bytes(message.allowed) }
    } else if free + unallocated >= asked {
        Finding::Fragmented { unallocated, joining }
    } else {
        segment.unwrap_or(Finding::Short { by: asked.saturating_sub(free + unallocated) })
    })
}
