//! What the room is good for that a run leaves on its card.

use serde::{Deserialize, Serialize};

use super::{Change, Looked, Outlook};
use crate::hardware::Gpu;
use crate::issue::Issue;
use crate::model::Architecture;
use crate::plan::solve::{Largest, largest_batch, less_doubt, longest_of, rank_of};
use crate::plan::verdict::Verdict;
use crate::scenario::{AttentionKernel, Checkpointing, Method, Optimizer, Scenario};
use crate::step;
use crate::units::Bytes;

/// What is won.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Gain {
    /// More sequences at once.
    Batch,
    /// Longer sequences.
    Sequence,
    /// Adapters of a higher rank.
    Rank,
    /// A faster kernel for the same, or a step that recomputes nothing.
    Speed,
    /// Weights that are not rounded to 4 bits, or that are trained themselves.
    Method,
    /// Weights that are not rounded to 4 bits, where nothing is trained.
    Precision,
}

impl Gain {
    /// The words shown to people.
    pub const fn label(self) -> &'static str {
        match self {
            Gain::Batch => "more at once",
            Gain::Sequence => "longer texts",
            Gain::Rank => "larger adapters",
            Gain::Speed => "faster",
            Gain::Method => "trains more",
            Gain::Precision => "finer weights",
        }
    }
}

/// A change that the room allows.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Use {
    /// What is won.
    pub gain: Gain,
    /// The inputs that change: first the one that it is about.
    pub changes: Vec<Change>,
    /// What the changed run needs of the card.
    pub needed: Bytes,
    /// Whether it gets through.
    pub verdict: Verdict,
    /// Where it is not memory that ends it: what does.
    pub limit: Option<String>,
    /// The changed scenario.
    pub scenario: Box<Scenario>,
}

/// Texts are as long as a multiple of so many tokens, and ranks are multiples of so much: nobody chooses others, and looking for the last
/// token takes three times as long.
const TOKENS: u64 = 64;
const RANKS: u64 = 8;

/// The most of each kind that fits beyond doubt.
pub(super) fn uses(scenario: &Scenario, looked: &Looked) -> Vec<Use> {
    let mut uses = Vec::new();
    let mut add = |gain, key, changed: Option<Scenario>| {
        uses.extend(changed.and_then(|changed| used(gain, key, (scenario, changed), looked)));
    };
    let mut faster = scenario.clone();
    faster.attention = match faster.attention {
        AttentionKernel::Eager | AttentionKernel::Math => AttentionKernel::Sdpa,
        other => other,
    };
    add(Gain::Speed, "attention", Some(faster));
    let mut faster = scenario.clone();
    faster.optimizer = match faster.optimizer {
        Optimizer::AdamW | Optimizer::AdamWForLoop => Optimizer::AdamWFused,
        other => other,
    };
    add(Gain::Speed, "optimizer", Some(faster));
    let set = |scenario: &mut Scenario, batch| scenario.batch = batch;
    let more = largest(scenario, set, largest_batch);
    add(Gain::Batch, "batch-size", more.filter(|more| more.batch > scenario.batch));
    let set = |scenario: &mut Scenario, sequence| scenario.sequence = sequence;
    let longer = largest(scenario, set, |model, scenario, gpu| longest_of(model, scenario, gpu, TOKENS));
    add(Gain::Sequence, "seq-length", longer.filter(|longer| longer.sequence > scenario.sequence));
    let kept = Scenario { checkpointing: Checkpointing::Off, ..scenario.clone() };
    add(Gain::Speed, "gradient-checkpointing", Some(kept));
    let set = |scenario: &mut Scenario, rank| scenario.lora.rank = rank;
    let larger = largest(scenario, set, |model, scenario, gpu| rank_of(model, scenario, gpu, RANKS));
    // nobody wants as many virtual tokens as fit
    let is_rank =
        |larger: &Scenario| larger.lora.tuner.adapts_layers() && larger.lora.rank > scenario.lora.rank;
    add(Gain::Rank, "lora-rank", larger.filter(is_rank));
    let more = match (scenario.task.trains(), scenario.method) {
        (true, Method::Qlora) => Some((Gain::Method, Method::Lora)),
        (true, Method::Lora) => Some((Gain::Method, Method::Full)),
        // what generates has no adapters
        (false, Method::Qlora) => Some((Gain::Precision, Method::Full)),
        (false, Method::Lora) | (_, Method::Full) => None,
    };
    if let Some((gain, method)) = more {
        let mut more = scenario.clone();
        more.change(|scenario| scenario.method = method);
        add(gain, "method", Some(more));
    }
    for usage in uses.iter_mut().filter(|usage| usage.gain == Gain::Rank) {
        usage.limit = limit(&usage.scenario);
    }
    uses
}

/// Why no higher rank is of use, where that is what ends it.
fn limit(scenario: &Scenario) -> Option<String> {
    let (architecture, gpu) = (scenario.architecture().ok()?, scenario.gpu().ok()?);
    let most = step::largest_rank(&architecture, scenario, &gpu).ok()?;
    (scenario.lora.rank == most).then(|| scenario.lora.tuner.why_no_more().to_owned())
}

fn used(gain: Gain, key: &str, (before, after): (&Scenario, Scenario), looked: &Looked) -> Option<Use> {
    let changes = Change::between(before, &after, key);
    // what makes no difference to the task is no use
    if changes.is_empty() {
        return None;
    }
    let Outlook { needed, verdict, .. } = looked.at(&after)?;
    verdict.holds().then(|| Use { gain, changes, needed, verdict, limit: None, scenario: Box::new(after) })
}

type Solver = fn(&Architecture, &Scenario, &Gpu) -> Result<Option<Largest>, Issue>;

/// The scenario with the largest number that fits beyond doubt: a card that is a little smaller would do as well.
fn largest(scenario: &Scenario, set: fn(&mut Scenario, u64), solve: Solver) -> Option<Scenario> {
    let architecture = scenario.architecture().ok()?;
    let gpu = less_doubt(&architecture, scenario, scenario.gpu().ok()?);
    let Largest { number, allocator } = solve(&architecture, scenario, &gpu).ok()??;
    let mut changed = scenario.clone();
    set(&mut changed, number);
    changed.allocator = allocator;
    Some(changed)
}
