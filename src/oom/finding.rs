//! What the figures of a message say, in sentences.

use serde::{Deserialize, Serialize};

use super::amount::Amount;
use super::bare::Bitsandbytes;
use super::engine::Serving;
use super::host::Host;
use super::joining::Joining;
use super::message::Message;
use super::place::Place;
use super::processes::Processes;
use super::suspect::Suspect;
use super::vllm::{Cache, Share};
use crate::issue::Issue;
use crate::units::Bytes;

/// Less of what is reserved, or of the card, than so many percent is not worth a word where it lies free: blocks are rounded.
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
    /// The card was full, and what lay free in pieces is little of it, or less than what was asked for.
    Pieces {
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
    /// A PyTorch says it that had no figures to say.
    OfOldPyTorch,
    /// bitsandbytes says it.
    OfBitsandbytes(Bitsandbytes),
    /// PyTorch's allocator was CUDA's own.
    OfPool {
        /// What was in use and was no tensor, where the text says that.
        kept: Option<Bytes>,
    },
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
    /// It may be attention's scores of another run.
    LikelyScores,
    /// Nothing that was looked at has that size where the traceback stands with that much allocated.
    NotKnown,
    /// It has the size of logits, in a run that was not found.
    SizeOfLogits {
        /// The sum: `16,384 tokens × 128,256 × 4 bytes (float32)`.
        formula: String,
        /// Models with such a vocabulary; none where the scenario's own has it.
        models: Vec<String>,
    },
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
    /// vLLM's share left too little for keys and values.
    CacheShort(Cache),
    /// It has the size of a rank's part of all parameters, in a run that was not found.
    SizeOfPartition {
        /// The sum: `8,030,261,248 parameters / 8 GPUs × 4 bytes (float32)`.
        formula: String,
        /// Models with as many parameters.
        models: Vec<String>,
    },
    /// transformers asked for room for all weights at once.
    WarmUp {
        /// The sum and models that have it, where one of the catalogue's or the scenario's has.
        of: Option<(String, Vec<String>)>,
    },
    /// More was allocated than the card has, which Windows' driver lent of the computer's memory.
    LentByWindows,
    /// An evaluation asked for it, which the scenario has none of.
    InEvaluation,
    /// So did the merging of adapters.
    InMerging,
    /// An engine that serves models asked for it.
    InServing(Serving),
    /// Tensors of such an engine have that size, the likeliest first.
    SizeOfServing(Vec<OfServing>),
}

/// A tensor of an engine that serves models.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct OfServing {
    /// What it is and its sum: `logits: 1,024 sequences × 201,088 × 4 bytes (float32)`.
    pub formula: String,
    /// Models that have such a tensor, a few of them.
    pub models: Vec<String>,
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
    pub(super) const fn label(self) -> &'static str {
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
    let pieces = of_memory.as_ref().and_then(|found| match found {
        Finding::AnySmallTensor { .. } => few_pieces(message, joining),
        _ => None,
    });
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
        (None, None) if message.sought().is_some() => Some(Finding::NoSuchTensor),
        (None, Some(_) | None) => None,
    };
    let others = message.others.map(|amount| amount.bytes).filter(|bytes| *bytes > Bytes::ZERO);
    let others = others.filter(|_| listed.is_none()).map(|bytes| Finding::OtherProcesses { bytes });
    let metal = message.capacity.filter(|_| message.is_of_metal);
    let metal = metal.map(|allowed| Finding::MetalLimit { allowed: allowed.bytes });
    let driver = message.is_of_driver.then_some(Finding::BesideAllocator);
    let old = message.is_old.then_some(Finding::OfOldPyTorch);
    let bitsandbytes = message.bitsandbytes.map(Finding::OfBitsandbytes);
    let pool = message.is_of_pool.then(|| {
        let tensors = message.allocated.map(|amount| amount.bytes);
        Finding::OfPool {
            kept: message.in_use().zip(tensors).map(|(all, tensors)| all.saturating_sub(tensors)),
        }
    });
    let cache = message.cache.map(Finding::CacheShort);
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
        cache,
        of_memory,
        pieces,
        pool,
        driver,
        old,
        bitsandbytes,
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

/// What lay free in pieces beside a small tensor that found no room, where some did.
fn few_pieces(message: &Message, joining: Joining) -> Option<Finding> {
    let unallocated = message.unallocated?.bytes;
    let asked = message.requested?.bytes;
    (unallocated >= asked).then_some(Finding::Pieces { unallocated, joining })
}

/// Why the card had no room for what was asked.
fn of_memory(message: &Message, asked: Bytes, joining: Joining) -> Option<Finding> {
    let bytes = |amount: Option<Amount>| amount.map(|amount| amount.bytes);
    if bytes(message.capacity).is_some_and(|capacity| asked > capacity) {
        return Some(Finding::LargerThanCard);
    }
    if let Some(free) = bytes(message.free).filter(|free| message.is_of_pool && *free >= asked) {
        return Some(Finding::Limited { free, allowed: bytes(message.allowed) });
    }
    let segment = message.segment().map(|segment| Finding::AnySmallTensor { segment });
    let unallocated = bytes(message.unallocated);
    // Intel's message does not say what was free: there are pieces enough where they are so without it
    let enough = unallocated.filter(|unallocated| *unallocated >= asked);
    let free = bytes(message.free).or(enough.map(|_| Bytes::ZERO));
    let (Some(free), Some(unallocated)) = (free, unallocated) else {
        // what CUDA's own allocator keeps is no part of its message
        let free = bytes(message.free).filter(|_| !message.is_of_pool);
        let missing = free.filter(|free| *free < asked).map(|free| asked.saturating_sub(free));
        return segment.or_else(|| missing.map(|by| Finding::MoreThanFree { by }));
    };
    Some(if free >= asked {
        Finding::Limited { free, allowed: bytes(message.allowed) }
    } else if free + unallocated >= asked {
        // PyTorch's own words: "if reserved memory is >> allocated"
        let whole = bytes(message.capacity).or(bytes(message.reserved)).unwrap_or(asked);
        let is_notable = unallocated.percent_of(whole) >= LEAST_UNUSED && unallocated > asked;
        match is_notable {
            true => Finding::Fragmented { unallocated, joining },
            false => segment.unwrap_or(Finding::Pieces { unallocated, joining }),
        }
    } else {
        segment.unwrap_or(Finding::Short { by: asked.saturating_sub(free + unallocated) })
    })
}
