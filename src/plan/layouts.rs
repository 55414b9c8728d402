//! Every way to use so many GPUs: which of them hold a run, which is fastest, and what stands in the way of the others.
//!
//! A way is a scenario: the engine of many GPUs, how the model is divided, recomputation. All of them train on as many sequences
//! in a step, in the micro-batch with which they are fastest of those that fit. Each is run like any other scenario.

use serde::{Deserialize, Serialize};

use super::answer::Answer;
use super::gpus::{GPU_COUNTS, between};
use super::time::{Pace, Span};
use super::verdict::Verdict;
use crate::issue::Issue;
use crate::scenario::keys::{Group, Key, keys};
use crate::scenario::software::{Software, Trainer};
use crate::scenario::{Checkpointing, Cluster, CpuOffload, Layout, Method, Scenario, Sharding, Split, Stack};
use crate::units::{Bytes, grouped};

/// GPUs that a layer is divided among at most: those of a machine.
const MOST_TENSOR: u64 = 8;

/// A way to use GPUs, and what comes of it.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Way {
    /// The scenario, in the micro-batch that was chosen.
    pub scenario: Box<Scenario>,
    /// What comes of it.
    pub outcome: WayOutcome,
}

/// What comes of a way to use GPUs.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub enum WayOutcome {
    /// It has an answer.
    Answered {
        /// What each GPU needs.
        needed: Bytes,
        /// Whether that gets through.
        verdict: Verdict,
        /// Tokens per second on all GPUs, where runs near it were measured.
        speed: Option<Span>,
        /// What each takes of the CPU's memory for weights, gradients and optimizer.
        on_host: Bytes,
    },
    /// It cannot be combined, or is not modelled, and why.
    Refused(Issue),
}

impl Way {
    /// Whether it gets through beyond doubt, or by its tensors on a card that is not followed.
    pub fn fits(&self) -> bool {
        self.verdict().is_some_and(Verdict::holds)
    }

    /// The verdict, where it has an answer.
    pub fn verdict(&self) -> Option<Verdict> {
        match self.outcome {
            WayOutcome::Answered { verdict, .. } => Some(verdict),
            WayOutcome::Refused(_) => None,
        }
    }

    /// What each GPU needs, where it has an answer.
    pub fn needed(&self) -> Option<Bytes> {
        match self.outcome {
            WayOutcome::Answered { needed, .. } => Some(needed),
            WayOutcome::Refused(_) => None,
        }
    }

    /// Tokens per second on all GPUs, where it is known.
    pub fn speed(&self) -> Option<Span> {
        match self.outcome {
            WayOutcome::Answered { speed, .. } => speed,
            WayOutcome::Refused(_) => None,
        }
    }

    /// What each takes of the CPU's memory for weights, gradients and optimizer.
    pub fn on_host(&self) -> Bytes {
        match self.outcome {
            WayOutcome::Answered { on_host, .. } => on_host,
            WayOutcome::Refused(_) => Bytes::ZERO,
        }
    }

    /// The element types and the optimizer that it brings where they are others than were asked for, those that its engine is usually run
    /// with: `mixed bfloat16`.
    pub fn brings(&self, asked: &Scenario) -> Option<String> {
        let differs = |key: &&Key| {
            key.group == Group::Precision
                && key.matters(&self.scenario)
                && !key.is_same(asked, &self.scenario)
        };
        let brought: Vec<String> = keys().filter(differs).map(|key| key.words(&self.scenario)).collect();
        (!brought.is_empty()).then(|| brought.join(", "))
    }

    /// The engine and how the model is divided: `FSDP2, 2 replicas`, `Megatron-core, tensor 8 × pipeline 4 × data 2`.
    pub fn name(&self) -> String {
        name(&self.scenario)
    }
}

fn name(scenario: &Scenario) -> String {
    let Cluster { gpus, sharding, layout, reshards, replicas, cpu, .. } = scenario.cluster;
    if is_megatron(scenario) {
        let data = gpus / layout.gpus().max(1);
        let (context, experts) = (("context", layout.context), ("experts", layout.experts));
        let sizes =
            [("tensor", layout.tensor), ("pipeline", layout.pipeline), context, experts, ("data", data)];
        let sizes = sizes.iter().filter(|(_, size)| *size > 1).map(|(name, size)| format!("{name} {size}"));
        let sizes: Vec<String> = sizes.collect();
        let parts = match layout.interleaved {
            0 => String::new(),
            layers => format!(", {} at a time", counted(layers, "layer")),
        };
        let sizes = sizes.join(" × ");
        return format!("Megatron-core, {sizes}{}{parts}", of_stages(scenario).unwrap_or_default());
    }
    if gpus <= 1 {
        return "one GPU".to_owned();
    }
    let is_fsdp2 = sharding == Sharding::Fsdp2;
    let parts = scenario.divided().tensor;
    if parts == gpus {
        return format!("tensor {parts}");
    }
    let further = [
        (parts > 1).then(|| format!("tensor {parts}")),
        (is_fsdp2 && !reshards).then(|| "kept after forward".to_owned()),
        (is_fsdp2 && replicas > 1).then(|| counted(replicas, "replica")),
        match cpu {
            CpuOffload::Off => None,
            CpuOffload::Optimizer => Some("optimizer in the CPU's memory".to_owned()),
            CpuOffload::All => Some("in the CPU's memory".to_owned()),
        },
    ];
    [Some(sharding.label().to_owned())].into_iter().chain(further).flatten().collect::<Vec<_>>().join(", ")
}

/// The layers of Megatron's stages where these have not as many each: `, stages of 7, 8 and 7 layers`.
fn of_stages(scenario: &Scenario) -> Option<String> {
    let layout = scenario.cluster.layout;
    if layout.split == Split::EVEN || layout.pipeline <= 1 {
        return None;
    }
    let division = layout.division(scenario.architecture().ok()?.order.len() as u64).ok()?;
    let of = |stage| division.of_stage(stage);
    let (first, last) = (of(0), of(layout.pipeline - 1));
    Some(match layout.pipeline {
        2 => format!(", stages of {} and {} layers", grouped(first), grouped(last)),
        _ => format!(", stages of {}, {} and {} layers", grouped(first), grouped(of(1)), grouped(last)),
    })
}

fn counted(number: u64, what: &str) -> String {
    format!("{} {what}{}", grouped(number), if number == 1 { "" } else { "s" })
}

fn is_megatron(scenario: &Scenario) -> bool {
    Software::of(scenario.stack).trainer == Trainer::Megatron
}

/// Every way to use so many GPUs, not yet tried: under the engines of PyTorch and DeepSpeed and under Megatron-core where the scenario's
/// library is one of these; under its own where it is another. A step sees as many sequences as with whole copies of the scenario on each
/// GPU, in micro-batches that are as large as can be.
pub fn ways(scenario: &Scenario, gpus: u64) -> Vec<Scenario> {
    let gpus = gpus.max(1);
    let mut base = scenario.clone();
    // what follows from the GPUs that it has follows from others then
    base.change(|base| {
        let Cluster { deepspeed, reduce, layout, .. } = scenario.cluster;
        let layout = Layout { layers: layout.layers, ..Layout::WHOLE };
        base.cluster = Cluster { deepspeed, reduce, layout, ..Cluster::ONE };
    });
    // what a GPU's part of a step is: GPUs that share a model share its micro-batches
    let together = scenario.divided().gpus().max(1);
    base.batch = scenario.batch.saturating_mul(scenario.accumulation).div_ceil(together).max(1);
    base.accumulation = 1;
    let on = |stack| {
        let mut other = base.clone();
        other.change(|other| other.stack = stack);
        other
    };
    if gpus == 1 {
        let own = |checkpointing| Scenario { checkpointing, ..base.clone() };
        return recomputed(&base).into_iter().map(own).collect();
    }
    match scenario.stack {
        Stack::Transformers | Stack::Megatron => {
            let own = on(Stack::Transformers);
            [with_engines(&own, gpus), planned(&own, gpus), divided(&on(Stack::Megatron), gpus)].concat()
        }
        Stack::Trl | Stack::Liger | Stack::Torchtune | Stack::Unsloth | Stack::Litgpt => {
            with_engines(&base, gpus)
        }
    }
}

/// Ways to recompute that keep the rest as it is.
fn recomputed(scenario: &Scenario) -> Vec<Checkpointing> {
    match (scenario.task.trains(), is_megatron(scenario)) {
        (false, _) => vec![scenario.checkpointing],
        (true, true) => vec![Checkpointing::Off, Checkpointing::Selective, Checkpointing::NonReentrant],
        (true, false) => vec![Checkpointing::Off, Checkpointing::NonReentrant],
    }
}

/// Under each engine that has all layers on every GPU.
fn with_engines(base: &Scenario, gpus: u64) -> Vec<Scenario> {
    let of = |sharding| Cluster { gpus, sharding, ..base.cluster };
    let fsdp2 = of(Sharding::Fsdp2);
    let groups =
        std::iter::successors(Some(2), |groups| Some(groups * 2)).take_while(|groups| *groups <= gpus / 2);
    let replicated = groups.map(|replicas| Cluster { replicas, ..fsdp2 });
    let clusters = [of(Sharding::Ddp), of(Sharding::Zero1), of(Sharding::Zero2), of(Sharding::Zero3)]
        .into_iter()
        .chain([fsdp2, Cluster { reshards: false, ..fsdp2 }])
        .chain([
            Cluster { cpu: CpuOffload::All, ..fsdp2 },
            Cluster { cpu: CpuOffload::Optimizer, ..of(Sharding::Zero2) },
            Cluster { cpu: CpuOffload::All, ..of(Sharding::Zero3) },
        ])
        .chain(replicated.filter(Cluster::has_whole_replicas));
    clusters.flat_map(|cluster| under(base, cluster)).collect()
}

/// Divided by transformers' own plan: all GPUs share the layers, or those that do share shards with others.
fn planned(base: &Scenario, gpus: u64) -> Vec<Scenario> {
    if base.method != Method::Full {
        return Vec::new();
    }
    let sizes = divisors(gpus).filter(|tensor| (2..=MOST_TENSOR).contains(tensor));
    let of = |tensor| {
        let sharding = if tensor == gpus { Sharding::Ddp } else { Sharding::Fsdp2 };
        let layout = Layout::of_tensors(tensor);
        let sequences = Scenario { accumulation: tensor, ..base.clone() };
        under(&sequences, Cluster { gpus, sharding, layout, ..base.cluster })
    };
    sizes.flat_map(of).collect()
}

/// Divided by Megatron-core: tensor × pipeline × data, each stage whole, in two parts or layer by layer, the first and the last with fewer
/// layers where they do not divide evenly. Its distributed optimizer is taken
/// where there are copies: with it they keep less and send less.
fn divided(base: &Scenario, gpus: u64) -> Vec<Scenario> {
    let layers = base.architecture().map_or(0, |architecture| architecture.order.len() as u64);
    // each layer's tokens are divided too where that is followed: it keeps less and sends as much
    let divides = base.cluster.layout.has_transformer_engine();
    let mut found = Vec::new();
    for tensor in divisors(gpus).filter(|tensor| *tensor <= MOST_TENSOR) {
        for pipeline in divisors(gpus / tensor) {
            let together = tensor.saturating_mul(pipeline);
            let split = Split::usual(layers, pipeline);
            // what counts as a layer is divided with the others; stages that are given a number of layers run them at once
            let own = match split.names_stages() {
                true => 0,
                false => layers.div_ceil(pipeline),
            };
            let mut parts = vec![0];
            if pipeline > 1 {
                parts.extend(
                    [own / 2, 1]
                        .into_iter()
                        .filter(|layers| *layers > 0 && *layers < own && own.is_multiple_of(*layers)),
                );
                parts.dedup();
            }
            for interleaved in parts {
                let sharding = if gpus > together { Sharding::Distributed } else { Sharding::Ddp };
                let sequence = divides && tensor > 1;
                let layout = Layout { tensor, pipeline, interleaved, split, sequence, ..base.cluster.layout };
                let sequences = Scenario { accumulation: together, ..base.clone() };
                found.extend(under(&sequences, Cluster { gpus, sharding, layout, ..base.cluster }));
            }
        }
    }
    found
}

fn divisors(number: u64) -> impl Iterator<Item = u64> {
    (1..=number.min(GPU_COUNTS[GPU_COUNTS.len() - 1])).filter(move |size| number.is_multiple_of(*size))
}

/// On such a cluster, with every kind of recomputation.
fn under(base: &Scenario, cluster: Cluster) -> Vec<Scenario> {
    let with = |checkpointing| {
        let mut other = base.clone();
        // several GPUs bring an engine, which is chosen then
        other.change(|other| other.cluster.gpus = cluster.gpus);
        other.change(|other| other.cluster = cluster);
        Scenario { checkpointing, ..other }
    };
    recomputed(base).into_iter().map(with).collect()
}

/// Tries a way: in the micro-batch with which it is fastest of those that fit, or in the smallest.
///
/// ```
/// use headroom::plan::{tried, ways};
/// use headroom::scenario::{GpuChoice, Method, Scenario};
/// let mut scenario = Scenario { gpu: GpuChoice::Catalogue("a100-sxm-40gb".into()), ..Scenario::default() };
/// scenario.change(|scenario| scenario.method = Method::Full);
/// let ways: Vec<_> = ways(&scenario, 4).iter().map(tried).collect();
/// assert!(ways.iter().any(|way| way.fits()) && ways.iter().any(|way| !way.fits()));
/// ```
pub fn tried(way: &Scenario) -> Way {
    let speed = |answer: &Answer| answer.pace().map_or(0.0, |pace| pace.tokens_per_second().typical);
    let answer = |scenario| {
        let answer = Answer::of_tensors(scenario);
        (speed(&answer), answer)
    };
    let mut answers: Vec<(f64, Answer)> = micro_batches(way).map(answer).collect();
    let mut best: Option<Way> = None;
    // where no speed is known the largest comes first
    while let Some(fastest) = fastest(&answers) {
        let way = of(answers.remove(fastest).1);
        if way.fits() {
            return way;
        }
        if best.as_ref().is_none_or(|best| place(&way) <= place(best)) {
            best = Some(way);
        }
    }
    best.unwrap_or_else(|| of(Answer::of_tensors(way.clone())))
}

/// The place of the first that is as fast as any.
fn fastest(answers: &[(f64, Answer)]) -> Option<usize> {
    let places = 0..answers.len();
    places.rev().max_by(|one, other| answers[*one].0.total_cmp(&answers[*other].0))
}

/// The scenario with its micro-batch halved again and again, and as many more of them.
fn micro_batches(way: &Scenario) -> impl Iterator<Item = Scenario> {
    let sequences = way.batch.saturating_mul(way.accumulation);
    let halved = |batch: &u64| match *batch {
        0 | 1 => None,
        batch if batch.is_multiple_of(2) => Some(batch / 2),
        _ => Some(1),
    };
    std::iter::successors(Some(way.batch), halved).map(move |batch| Scenario {
        batch,
        accumulation: sequences / batch.max(1),
        ..way.clone()
    })
}

/// An answer by tensors, replayed where these fit.
fn of(mut answer: Answer) -> Way {
    if answer.fit().is_some_and(|fit| fit.fits()) {
        answer = answer.without_holes();
    }
    let outcome = match (answer.fit(), answer.verdict()) {
        (Some(fit), Some(verdict)) => {
            let speed = answer.pace().as_ref().map(Pace::tokens_per_second);
            let on_host = answer.estimate.memory.as_ref().map_or(Bytes::ZERO, |memory| memory.on_host);
            WayOutcome::Answered { needed: fit.needed, verdict, speed, on_host }
        }
        _ => WayOutcome::Refused(answer.refusal()),
    };
    Way { scenario: Box::new(answer.scenario), outcome }
}

/// What comes first: what fits, what might, what does not, what has no answer.
fn place(way: &Way) -> u8 {
    match way.verdict() {
        Some(Verdict::Fits | Verdict::NotFollowed) => 0,
        Some(Verdict::Close | Verdict::Tight) => 1,
        Some(Verdict::Over | Verdict::WouldNotRun) => 2,
        None => 3,
    }
}

/// What ways are put in order by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WayOrder {
    /// The fastest first; of unknown speed the one that needs least.
    Speed,
    /// The one that needs least first.
    Memory,
}

/// Puts ways in order: those that fit, then those that might, those that do not, which need least first, and those without an
/// answer.
pub fn rank_ways(ways: &mut [Way], order: WayOrder) {
    let speed = |way: &Way| match order {
        WayOrder::Speed if place(way) <= 1 => way.speed().map_or(0.0, |speed| speed.typical),
        WayOrder::Speed | WayOrder::Memory => 0.0,
    };
    ways.sort_by(|one, other| {
        let by_speed = speed(other).total_cmp(&speed(one));
        place(one).cmp(&place(other)).then(by_speed).then(one.needed().cmp(&other.needed()))
    });
}

/// Reasons why ways have no answer, each with how many have it.
pub fn refusals<'w>(ways: impl Iterator<Item = &'w Way>) -> Vec<(Issue, Vec<String>)> {
    let mut reasons: Vec<(Issue, Vec<String>)> = Vec::new();
    for way in ways {
        let WayOutcome::Refused(issue) = &way.outcome else { continue };
        let name = way.name();
        match reasons.iter_mut().find(|(own, _)| own == issue) {
            Some((_, names)) if names.contains(&name) => {}
            Some((_, names)) => names.push(name),
            None => reasons.push((issue.clone(), vec![name])),
        }
    }
    reasons
}

/// Every way to use so many GPUs, tried and in order ([`rank_ways`]).
pub fn layouts(scenario: &Scenario, gpus: u64) -> Vec<Way> {
    let mut ways: Vec<Way> = ways(scenario, gpus).iter().map(tried).collect();
    rank_ways(&mut ways, WayOrder::Speed);
    ways
}

/// The same of the fewest GPUs that hold the scenario in any way without the CPU's memory, of which it is not known how much there is; of
/// the most of [`GPU_COUNTS`] where none do.
pub fn fewest_layouts(scenario: &Scenario) -> (u64, Vec<Way>) {
    let holds = |way: &Way| way.fits() && way.on_host() == Bytes::ZERO;
    let mut last = (1, Vec::new());
    let mut fewer = 0;
    for gpus in GPU_COUNTS {
        last = (gpus, layouts(scenario, gpus));
        if last.1.iter().any(holds) {
            let mut fewer = between(fewer, gpus).map(|gpus| (gpus, layouts(scenario, gpus)));
            return fewer.find(|(_, ways)| ways.iter().any(holds)).unwrap_or(last);
        }
        if gpus > 1 && !last.1.iter().any(|way| way.verdict().is_some()) {
            break;
        }
        fewer = gpus;
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Allocator, GpuChoice, Method, ModelChoice};

    fn full(model: &str, card: &str) -> Scenario {
        let mut scenario = Scenario {
            model: ModelChoice::Catalogue(model.into()),
            gpu: GpuChoice::Catalogue(card.into()),
            ..Scenario::default()
        };
        scenario.change(|scenario| scenario.method = Method::Full);
        scenario
    }

    const SMALL: &str = "HuggingFaceTB/SmolLM-360M";

    #[test]
    fn every_engine_and_every_division_is_there_once() {
        let ways = ways(&full("meta-llama/Llama-3.1-8B", "h100-sxm-80gb"), 16);
        let names: Vec<(String, Checkpointing)> =
            ways.iter().map(|way| (name(way), way.checkpointing)).collect();
        let has = |name: &str| names.iter().filter(|(own, _)| own == name).count();
        for engine in
            ["DDP", "FSDP2", "FSDP2, kept after forward", "FSDP2, 8 replicas", "FSDP2, in the CPU's memory"]
        {
            assert_eq!(has(engine), 2, "{engine}: {names:?}");
        }
        for divided in [
            "tensor 8 × pipeline 2",
            "tensor 2 × pipeline 4 × data 2, 1 layer at a time",
            "pipeline 16",
            "data 16",
        ] {
            assert_eq!(has(&format!("Megatron-core, {divided}")), 3, "{divided}: {names:?}");
        }
        let mut once = ways.clone();
        once.dedup();
        assert_eq!(once.len(), ways.len());
        assert!(ways.iter().all(|way| way.cluster.gpus == 16));
    }

    #[test]
    fn trl_has_fsdp2_among_its_ways() {
        let base = Scenario { stack: Stack::Trl, ..full("meta-llama/Llama-3.1-8B", "a100-sxm-80gb") };
        let ways = layouts(&base, 4);
        let found = |name: &str| ways.iter().find(|way| way.name() == name && way.fits());
        let allocator = |name: &str| found(name).map(|way| way.scenario.allocator);
        // whole copies only without holes between their tensors
        assert_eq!(allocator("FSDP2"), Some(Allocator::Native));
        assert_eq!(allocator("DDP"), Some(Allocator::Expandable));
    }

    #[test]
    fn a_step_sees_as_many_sequences_in_every_way() {
        let base = Scenario { batch: 3, accumulation: 4, ..full(SMALL, "h100-sxm-80gb") };
        for way in ways(&base, 8).iter().map(tried) {
            let Scenario { cluster, batch, accumulation, .. } = *way.scenario;
            let together = way.scenario.divided().gpus();
            assert_eq!(cluster.gpus / together * batch * accumulation, 8 * 12, "{}", way.name());
        }
    }

    #[test]
    fn what_is_ranked_is_what_its_scenario_answers() {
        let ways = layouts(&full(SMALL, "a100-sxm-40gb"), 2);
        assert!(ways.iter().filter(|way| way.fits()).count() > 10);
        for way in &ways {
            let answer = Answer::of((*way.scenario).clone());
            assert_eq!(way.needed(), answer.fit().map(|fit| fit.needed), "{}", way.name());
            assert_eq!(way.verdict(), answer.verdict(), "{}", way.name());
            let pace = answer.pace().map(|pace| pace.tokens_per_second());
            assert_eq!(way.speed(), pace, "{}", way.name());
        }
        let speeds: Vec<f64> =
            ways.iter().filter(|way| way.fits()).filter_map(Way::speed).map(|speed| speed.typical).collect();
        assert!(speeds.is_sorted_by(|one, next| one >= next), "{speeds:?}");
        assert!(ways.iter().map(place).is_sorted());
    }

    #[test]
    fn the_fastest_micro_batch_that_fits_is_taken() {
        let mut base = full(SMALL, "rtx-4090");
        (base.batch, base.accumulation) = (1, 64);
        let fsdp2 = ways(&base, 2).into_iter().find(|way| name(way) == "FSDP2").expect("it is a way");
        let way = tried(&fsdp2);
        assert!(way.fits() && way.scenario.batch > 1, "{way:?}");
        let more = Scenario {
            batch: way.scenario.batch * 2,
            accumulation: way.scenario.accumulation / 2,
            ..*way.scenario.clone()
        };
        assert!(!of(Answer::of_tensors(more)).fits());
    }

    #[test]
    fn the_fewest_gpus_are_those_of_which_fewer_hold_it_in_no_way() {
        let base = full("meta-llama/Llama-3.1-8B", "a100-sxm-40gb");
        let (gpus, ways) = fewest_layouts(&base);
        assert!(ways[0].fits(), "{gpus}: {:?}", ways[0]);
        let without_host = |way: &Way| way.fits() && way.on_host() == Bytes::ZERO;
        assert!((2..=8).contains(&gpus) && !layouts(&base, gpus - 1).iter().any(without_host));
    }

    #[test]
    fn what_cannot_be_combined_says_why_once_for_all() {
        let lora = Scenario { method: Method::Lora, ..full(SMALL, "a100-sxm-40gb") };
        let ways = layouts(&lora, 4);
        let reasons = refusals(ways.iter());
        let megatron = reasons.iter().find(|(issue, _)| issue.message.contains("no adapters of its own"));
        assert!(megatron.is_some_and(|(_, names)| names.len() > 3), "{reasons:?}");
        let unsloth = Scenario { stack: Stack::Unsloth, ..lora };
        assert!(layouts(&unsloth, 4).iter().all(|way| way.verdict().is_none()));
    }
}
