//! What the room is good for that a run leaves on its card.

use serde::{Deserialize, Serialize};

use super::looks::Outlook;
use super::{Change, Looks};
use crate::hardware::Gpu;
use crate::issue::Issue;
use crate::model::Architecture;
use crate::plan::each;
use crate::plan::on_card::less_doubt;
use crate::plan::solve::{Largest, largest_batch, longest_of, rank_of};
use crate::plan::verdict::Verdict;
use crate::scenario::{AttentionKernel, Checkpointing, Method, Optimizer, Precision, Scenario};
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
    /// Weights that are trained themselves.
    Method,
    /// Weights that are not rounded to 4 bits.
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

/// A change that may be worth the room: what it wins, the key that it is about, and the scenario with it.
type Idea = (Gain, &'static str, Scenario);

/// No higher rank is offered: of higher ones no comparison is known (Schulman et al., LoRA Without Regret, 2025: ranks of 1 to 512).
const HIGHEST_RANK: u64 = 512;

/// What room is put to, in the order in which it is offered.
const IDEAS: [fn(&Scenario) -> Option<Idea>; USES] = [
    native_precision,
    faster_attention,
    fused_optimizer,
    more_at_once,
    longer_texts,
    without_checkpointing,
    higher_rank,
    more_trained,
];

/// How many uses of the room there are.
pub const USES: usize = 8;

/// The most of each kind that fits beyond doubt.
pub(super) fn uses(scenario: &Scenario) -> Vec<Use> {
    let numbers: Vec<usize> = (0..USES).collect();
    each(&numbers, |number| use_of(scenario, *number)).into_iter().flatten().collect()
}

/// The use of that number, of [`USES`], for the room of a scenario that gets through; nothing where it is none.
pub fn use_of(scenario: &Scenario, number: usize) -> Option<Use> {
    used(IDEAS.get(number)?(scenario)?, scenario, &Looks::default())
}

/// float16 where the card only emulates bfloat16: as it is otherwise, or as its library is usually run there.
fn native_precision(scenario: &Scenario) -> Option<Idea> {
    let same = match scenario.precision {
        Precision::Bf16 => Precision::Fp16,
        Precision::AmpBf16 => Precision::AmpFp16,
        Precision::AmpBf16Weights => Precision::AmpFp16Weights,
        Precision::Fp32 | Precision::Fp16 | Precision::AmpFp16 | Precision::AmpFp16Weights => return None,
    };
    if scenario.has_bfloat16() {
        return None;
    }
    let with = |precision| Scenario { precision, ..scenario.clone() };
    let runs = |other: &Scenario| Outlook::of_tensors(other).is_some_and(Outlook::fits);
    let faster = [same, scenario.defaults().precision].map(with).into_iter().find(runs)?;
    Some((Gain::Speed, "precision", faster))
}

fn faster_attention(scenario: &Scenario) -> Option<Idea> {
    let is_slow = matches!(scenario.attention, AttentionKernel::Eager | AttentionKernel::Math);
    let faster = Scenario { attention: AttentionKernel::Sdpa, ..scenario.clone() };
    is_slow.then_some((Gain::Speed, "attention", faster))
}

fn fused_optimizer(scenario: &Scenario) -> Option<Idea> {
    let is_slow = matches!(scenario.optimizer, Optimizer::AdamW | Optimizer::AdamWForLoop);
    let faster = Scenario { optimizer: Optimizer::AdamWFused, ..scenario.clone() };
    is_slow.then_some((Gain::Speed, "optimizer", faster))
}

fn more_at_once(scenario: &Scenario) -> Option<Idea> {
    let mut more = largest(scenario, |scenario, batch| scenario.batch = batch, largest_batch)?;
    if scenario.task.is_online() {
        more.batch = more.batch_of_whole_groups();
    }
    (more.batch > scenario.batch).then_some((Gain::Batch, "batch-size", more))
}

fn longer_texts(scenario: &Scenario) -> Option<Idea> {
    let set = |scenario: &mut Scenario, sequence| scenario.sequence = sequence;
    let longer = largest(scenario, set, |model, scenario, gpu| longest_of(model, scenario, gpu, TOKENS))?;
    (longer.sequence > scenario.sequence).then_some((Gain::Sequence, "seq-length", longer))
}

fn without_checkpointing(scenario: &Scenario) -> Option<Idea> {
    let kept = Scenario { checkpointing: Checkpointing::Off, ..scenario.clone() };
    Some((Gain::Speed, "gradient-checkpointing", kept))
}

fn higher_rank(scenario: &Scenario) -> Option<Idea> {
    let set = |scenario: &mut Scenario, rank| scenario.lora.rank = rank;
    let mut larger = largest(scenario, set, |model, scenario, gpu| rank_of(model, scenario, gpu, RANKS))?;
    larger.lora.rank = larger.lora.rank.min(HIGHEST_RANK);
    // nobody wants as many virtual tokens as fit
    let is_rank = larger.lora.tuner.adapts_layers() && larger.lora.rank > scenario.lora.rank;
    is_rank.then_some((Gain::Rank, "lora-rank", larger))
}

fn more_trained(scenario: &Scenario) -> Option<Idea> {
    let (gain, method) = match (scenario.task.trains(), scenario.method) {
        (true, Method::Qlora) => (Gain::Precision, Method::Lora),
        (true, Method::Lora) => (Gain::Method, Method::Full),
        // what generates has no adapters
        (false, Method::Qlora) => (Gain::Precision, Method::Full),
        (false, Method::Lora) | (_, Method::Full) => return None,
    };
    let mut more = scenario.clone();
    more.change(|scenario| scenario.method = method);
    Some((gain, "method", more))
}

/// Why no higher rank is of use, where that is what ends it.
fn limit(scenario: &Scenario) -> Option<String> {
    let (architecture, gpu) = (scenario.architecture().ok()?, scenario.gpu().ok()?);
    let most = step::largest_rank(&architecture, scenario, &gpu).ok()?;
    (scenario.lora.rank == most).then(|| scenario.lora.tuner.why_no_more().to_owned())
}

fn used((gain, key, after): Idea, before: &Scenario, looks: &Looks) -> Option<Use> {
    let changes = Change::between(before, &after, key);
    // what makes no difference to the task is no use
    if changes.is_empty() {
        return None;
    }
    let Outlook { needed, verdict, .. } = looks.at(&after)?;
    let limit = if gain == Gain::Rank { limit(&after) } else { None };
    verdict.holds().then(|| Use { gain, changes, needed, verdict, limit, scenario: Box::new(after) })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::share;

    #[test]
    fn more_answers_are_whole_groups() {
        for rest in ["", "&ga=3", "&gpus=2&shard=ddp"] {
            let link =
                format!("v=1&task=grpo&st=trl&m=Qwen/Qwen2.5-0.5B&method=lora&gpu=a100-sxm-40gb&b=1{rest}");
            let scenario = share::decode(&link).scenarios.remove(0);
            let (_, _, more) = more_at_once(&scenario).expect("there is room");
            assert!(more.batch > 8 && more.answers_to_a_prompt() == 8, "{link}: {}", more.batch);
        }
    }
}
