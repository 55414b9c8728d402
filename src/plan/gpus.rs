//! How many GPUs hold a run without the CPU's memory.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use super::answer::Answer;
use super::counts::{GPU_COUNTS, ascending};
use super::fit::within;
use super::layouts::{Divisions, name};
use super::on_card::less_doubt;
use super::recorded::{Recorded, Tensors};
use super::verdict::Verdict;
use crate::hardware::{Gpu, Vendor};
use crate::issue::{Field, Issue};
use crate::scenario::software::Trainer;
use crate::scenario::{Scenario, Sharding};
use crate::units::Bytes;

/// A number of GPUs and what comes of it.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Layout {
    /// How many.
    pub gpus: u64,
    /// What each of them needs.
    pub needed: Bytes,
    /// Whether that gets through.
    pub verdict: Verdict,
    /// The scenario on so many.
    pub scenario: Box<Scenario>,
}

impl Layout {
    /// The engine and how the model is divided: `FSDP2`, `ZeRO-3 (DeepSpeed)`, `FSDP2, tensor 2`.
    pub fn name(&self) -> String {
        name(&self.scenario)
    }
}

/// The scenario on so many GPUs. Several keep shards, as FSDP2 has it, or under trl ZeRO-2 what is not followed under FSDP2, unless the
/// scenario names another engine than DDP: whole copies would need as much as one GPU does. What was at its default is so afterwards:
/// under FSDP2 weights are float32 shards.
pub fn on_gpus(scenario: &Scenario, gpus: u64) -> Scenario {
    let software = scenario.software();
    let engines = software.divides_by();
    let on = |sharding: Option<&Sharding>| {
        let mut other = scenario.clone();
        other.change(|scenario| {
            scenario.cluster.set_gpus(gpus);
            let replicates = software.trainer != Trainer::Megatron
                && scenario.cluster.is_many()
                && scenario.cluster.sharding == Sharding::Ddp
                && scenario.divided().parts() != gpus;
            if let Some(sharding) = sharding.filter(|_| replicates) {
                scenario.cluster.sharding = *sharding;
            }
            // where all share the layers none are left that share shards
            if software.trainer != Trainer::Megatron
                && scenario.cluster.is_many()
                && scenario.divided().parts() == gpus
            {
                scenario.cluster.sharding = Sharding::Ddp;
            }
        });
        other
    };
    let first = on(engines.first());
    // where the first stops whatever memory there is, ZeRO-3 leaves each as little
    if gpus > 1 && first.stops() && !scenario.stops() {
        let other = on(Some(&Sharding::Zero3));
        return if other.stops() { first } else { other };
    }
    let others = engines.get(1..).unwrap_or_default();
    if others.is_empty() || gpus <= 1 || Answer::of_tensors(first.clone()).fit().is_some() {
        return first;
    }
    let other = others.iter().map(|sharding| on(Some(sharding)));
    other.into_iter().find(|other| Answer::of_tensors(other.clone()).fit().is_some()).unwrap_or(first)
}

/// A way over several GPUs with the scenario's own 16-bit weights, where FSDP2's shards are float32 and hold twice as much.
fn over_its_weights(scenario: &Scenario, usual: &Scenario) -> Option<Scenario> {
    let mut other = Scenario { precision: scenario.precision, ..usual.clone() };
    other.compute_in_its_weights();
    (other.precision != usual.precision && other.precision != scenario.precision).then_some(other)
}

/// The fewest GPUs on which the scenario fits under any engine of its training library, as [`on_gpus`] has it where that takes no more
/// than another, or over the scenario's own 16-bit weights, with expandable segments where it does not without, each with a micro-batch of its own, or those that share layers with
/// one of theirs and as many sequences in a step: any number of a machine ([`Cluster::per_node`](crate::scenario::Cluster::per_node)), or several
/// whole machines; none where not even the largest of [`GPU_COUNTS`] does.
///
/// # Errors
/// Why there is no answer on several GPUs, where it is known before the step is run or some number has room for what rests.
///
/// ```
/// use headroom::plan::fewest_gpus;
/// use headroom::scenario::{GpuChoice, Method, Scenario};
/// let mut scenario = Scenario { gpu: GpuChoice::Catalogue("a100-sxm-40gb".into()), ..Scenario::default() };
/// scenario.change(|scenario| scenario.method = Method::Full);
/// let layout = fewest_gpus(&scenario)?.expect("an 8B model is held by some");
/// assert_eq!(layout.gpus, 3);
/// # Ok::<(), headroom::scenario::Issue>(())
/// ```
pub fn fewest_gpus(scenario: &Scenario) -> Result<Option<Layout>, Issue> {
    fewest_between(scenario, 1..=GPU_COUNTS[GPU_COUNTS.len() - 1], &Recorded::default())
}

/// The same of at least and at most so many; `recorded` are runs that cards like its own share.
///
/// # Errors
/// Where no number holds it: the first refusal on the way, if there is one.
pub(super) fn fewest_between(
    scenario: &Scenario,
    counts: RangeInclusive<u64>,
    recorded: &Recorded,
) -> Result<Option<Layout>, Issue> {
    let divided = scenario.divided().gpus().max(1);
    let divisions = Divisions::of(scenario);
    let counts: Vec<u64> =
        ascending(scenario.cluster.per_node).filter(|gpus| counts.contains(gpus)).collect();
    let most = counts.last().copied().unwrap_or(1);
    let mut none = Ok(None);
    // more need not hold whatever fewer do: shards of eight experts are no smaller on sixteen GPUs, and what is gathered of them is larger
    for gpus in counts {
        let mut over_its_own = None;
        if gpus.is_multiple_of(divided) {
            let usual = on_gpus(scenario, gpus);
            over_its_own = over_its_weights(scenario, &usual);
            let usual = held(usual, recorded);
            if let Ok(Some(_)) = usual {
                return usual;
            }
            none = none.and(usual);
        }
        let over_its_own = || over_its_own.and_then(|way| held(way, recorded).ok().flatten());
        let Some(divisions) = divisions.as_ref().filter(|_| gpus > 1) else {
            match over_its_own() {
                Some(layout) => return Ok(Some(layout)),
                None => continue,
            }
        };
        let engines = divisions.engines().iter().filter(|sharding| {
            // ZeRO divides parameters by their elements, evenly: what a power of two has no room for fewer do not, and an estimate with
            // hundreds of gathers takes long. FSDP2 divides rows, of which there may be fewer than GPUs. A refusal says nothing of fewer
            let is_enough = |gpus| has_room(&divisions.by(**sharding, gpus), recorded) != Some(false);
            **sharding == Sharding::Fsdp2 || is_enough(most) && is_enough(gpus.next_power_of_two())
        });
        let mut ways = engines.map(|sharding| divisions.by(*sharding, gpus)).chain(divisions.of_layers(gpus));
        let found = ways.find_map(|way| held(way, recorded).ok().flatten());
        if let Some(layout) = found.or_else(over_its_own) {
            return Ok(Some(layout));
        }
    }
    none
}

/// Whether its tensors leave room enough for the run to get through beyond doubt, which is known of NVIDIA's cards alone; nothing where
/// there is no estimate.
fn has_room(scenario: &Scenario, recorded: &Recorded) -> Option<bool> {
    let (architecture, gpu) = (scenario.architecture().ok()?, scenario.gpu().ok()?);
    let tensors = match recorded.tensors(scenario, &gpu) {
        Tensors::Take(bytes) => bytes,
        Tensors::Exceed(_) => return Some(false),
        Tensors::Unknown => return None,
    };
    let fits = |gpu: &Gpu| within(tensors + gpu.context, gpu.memory).fits();
    Some(fits(&gpu) && (gpu.vendor != Vendor::Nvidia || fits(&less_doubt(&architecture, scenario, gpu))))
}

/// A scenario, where it fits.
pub(super) fn held(scenario: Scenario, recorded: &Recorded) -> Result<Option<Layout>, Issue> {
    if scenario.stops() {
        return Err(Issue::error(Field::Gpus, "the run would stop on any number of them"));
    }
    // what has no room needs no replay
    match has_room(&scenario, recorded) {
        Some(true) => {}
        Some(false) => return Ok(None),
        None => return Err(Answer::of_tensors(scenario).refusal()),
    }
    let answer = Answer::of_tensors(scenario).without_holes_from(recorded);
    Ok(match (answer.fit(), answer.verdict()) {
        (Some(fit), Some(verdict)) if verdict.holds() => Some(Layout {
            gpus: answer.scenario.cluster.gpus,
            needed: fit.needed,
            verdict,
            scenario: Box::new(answer.scenario),
        }),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{
        Allocator, Answers, Cluster, GpuChoice, Method, ModelChoice, Optimizer, Precision, Reference, Stack,
        Task,
    };

    fn full(model: &str, card: &str) -> Scenario {
        let mut scenario = Scenario {
            model: ModelChoice::Catalogue(model.into()),
            gpu: GpuChoice::Catalogue(card.into()),
            ..Scenario::default()
        };
        scenario.change(|scenario| scenario.method = Method::Full);
        scenario
    }

    /// The fewest with the engine that several GPUs usually have.
    fn usual(scenario: &Scenario) -> Option<Layout> {
        let recorded = Recorded::default();
        ascending(Cluster::ONE.per_node)
            .find_map(|gpus| held(on_gpus(scenario, gpus), &recorded).ok().flatten())
    }

    #[test]
    fn a_power_of_two_under_zero_needs_no_more_than_fewer() {
        for (model, stack) in [
            ("meta-llama/Llama-3.1-8B", Stack::Transformers),
            ("meta-llama/Llama-3.1-8B", Stack::Trl),
            ("mistralai/Mixtral-8x7B-v0.1", Stack::Transformers),
            ("google/gemma-2-9b", Stack::Transformers),
        ] {
            let mut answered = 0;
            for method in Method::ALL {
                let mut scenario = full(model, "h100-sxm-80gb");
                scenario.change(|scenario| scenario.stack = stack);
                scenario.change(|scenario| scenario.method = *method);
                let divisions = Divisions::of(&scenario).expect("it is divided");
                for sharding in [Sharding::Zero2, Sharding::Zero3] {
                    let needed = |gpus: &u64| {
                        Answer::of_tensors(divisions.by(sharding, *gpus)).fit().map(|fit| fit.needed)
                    };
                    let counts: Vec<u64> =
                        ascending(Cluster::ONE.per_node).filter(|gpus| (2..=128).contains(gpus)).collect();
                    let all: Vec<Option<Bytes>> = counts.iter().map(needed).collect();
                    for (at, gpus) in counts.iter().enumerate().filter(|(_, gpus)| gpus.is_power_of_two()) {
                        let Some(own) = all[at] else { continue };
                        let least = all[..at].iter().flatten().min();
                        assert!(
                            least.is_none_or(|least| own <= *least),
                            "{model} {method:?} {sharding:?} {gpus}"
                        );
                        answered += 1;
                    }
                }
            }
            assert!(answered > 0, "{model} {stack:?}");
        }
    }

    #[test]
    fn it_fits_on_as_many_and_not_on_the_next_fewer() {
        for (model, card) in [("meta-llama/Llama-3.1-8B", "rtx-4090"), ("Qwen/Qwen2.5-0.5B", "rtx-3060-12gb")]
        {
            let scenario = full(model, card);
            let layout = fewest_gpus(&scenario).unwrap().expect("some number holds it");
            let answer = Answer::of((*layout.scenario).clone());
            assert_eq!((answer.verdict(), layout.scenario.cluster.gpus), (Some(Verdict::Fits), layout.gpus));
            assert_eq!(answer.fit().map(|fit| fit.needed), Some(layout.needed));
            if layout.gpus > 1 {
                let fewer = ascending(Cluster::ONE.per_node)
                    .take_while(|gpus| *gpus < layout.gpus)
                    .last()
                    .unwrap_or(1);
                let fewer = Answer::of(on_gpus(&scenario, fewer));
                assert_ne!(fewer.verdict(), Some(Verdict::Fits), "{model} on {card}");
            }
        }
    }

    /// FSDP2's shards are float32 where nothing is said: twice what the run's own weights take.
    #[test]
    fn fewer_hold_the_weights_that_the_run_has() {
        let scenario = full("meta-llama/Llama-3.1-8B", "a100-sxm-40gb");
        let layout = fewest_gpus(&scenario).expect("it is followed").expect("some hold it");
        assert_eq!((layout.gpus, layout.scenario.precision), (3, Precision::Bf16));
        let wide = on_gpus(&scenario, 3);
        assert_eq!(wide.precision, Precision::AmpBf16);
        assert!(held(wide, &Recorded::default()).expect("it is followed").is_none());
    }

    #[test]
    fn where_only_holes_are_in_the_way_segments_are_joined() {
        for (model, card) in
            [("meta-llama/Llama-3.1-8B", "rtx-3060-12gb"), ("Qwen/Qwen2.5-7B-Instruct", "rtx-3060-12gb")]
        {
            let layout = fewest_gpus(&full(model, card)).unwrap().expect("some number holds it");
            assert_eq!(
                (layout.gpus <= 64, layout.scenario.allocator),
                (true, Allocator::Expandable),
                "{model}"
            );
        }
    }

    #[test]
    fn the_engine_of_the_library_that_takes_the_fewest_is_taken() {
        let h100 = full("meta-llama/Llama-3.1-70B", "h100-sxm-80gb");
        // on 16 H100 ZeRO-3 leaves too little for the most of its two communicators
        let usual = usual(&h100).expect("some number holds it");
        assert_eq!((usual.gpus, usual.name()), (24, "FSDP2".to_owned()));
        // FSDP2's shards of the run's own weights do
        let fewest = fewest_gpus(&h100).unwrap().expect("some number holds it");
        assert_eq!((fewest.gpus, fewest.scenario.precision), (16, Precision::Bf16));
        let scenario = Scenario { gpu: GpuChoice::Custom(Bytes::gib(81.0)), ..h100 };
        let fewest = fewest_gpus(&scenario).unwrap().expect("some number holds it");
        assert_eq!((fewest.gpus, fewest.name()), (16, "ZeRO-3 (DeepSpeed)".to_owned()));
        let answer = Answer::of((*fewest.scenario).clone());
        assert_eq!(
            (answer.verdict(), answer.fit().map(|fit| fit.needed)),
            (Some(Verdict::Fits), Some(fewest.needed))
        );
        // as it was, but for what comes with the engine
        assert_eq!(
            (fewest.scenario.batch, fewest.scenario.checkpointing),
            (scenario.batch, scenario.checkpointing)
        );
        // whichever engine it has
        let copies = Cluster { gpus: 8, sharding: Sharding::Zero2, ..Cluster::ONE };
        let named = fewest_gpus(&Scenario { cluster: copies, ..scenario }).unwrap();
        assert_eq!(named.map(|layout| layout.gpus), Some(16));
    }

    #[test]
    fn what_the_usual_engine_does_not_run_another_of_the_library_may() {
        let scenario =
            Scenario { optimizer: Optimizer::AdamW8bit, ..full("meta-llama/Llama-3.1-8B", "rtx-4090") };
        assert!(held(on_gpus(&scenario, 8), &Recorded::default()).is_err());
        let layout = fewest_gpus(&scenario).unwrap().expect("some number holds it");
        assert_eq!(layout.name(), "ZeRO-3 (DeepSpeed)");
    }

    #[test]
    fn megatron_divides_the_model_where_copies_do_not_fit() {
        let mut scenario = full("meta-llama/Llama-3.1-70B", "h100-sxm-80gb");
        scenario.change(|scenario| scenario.stack = Stack::Megatron);
        let layout = fewest_gpus(&scenario).unwrap().expect("some number holds it");
        assert!(layout.gpus <= 32 && layout.scenario.divided().tensor > 1, "{}", layout.name());
    }

    #[test]
    fn what_fits_on_one_takes_one_and_stays_as_it_is() {
        let scenario = Scenario::default();
        let layout = fewest_gpus(&scenario).unwrap().expect("it fits");
        assert_eq!((layout.gpus, *layout.scenario), (1, scenario));
    }

    #[test]
    fn several_get_what_they_usually_have_and_what_was_chosen_stays() {
        let one = full("meta-llama/Llama-3.1-8B", "a100-sxm-80gb");
        let several = on_gpus(&one, 4);
        assert_eq!((several.cluster.sharding, several.precision), (Sharding::Fsdp2, Precision::AmpBf16));
        let chosen = Scenario { precision: Precision::Bf16, ..one };
        assert_eq!(on_gpus(&chosen, 4).precision, Precision::Bf16);
        let copies = Cluster { gpus: 8, sharding: Sharding::Ddp, ..Cluster::ONE };
        let fewer = on_gpus(&Scenario { cluster: copies, ..chosen.clone() }, 2);
        assert_eq!(
            fewer,
            Scenario { cluster: Cluster { gpus: 2, sharding: Sharding::Fsdp2, ..copies }, ..chosen }
        );
    }

    #[test]
    fn several_under_trl_have_fsdp2_where_that_runs_and_zero_2_elsewhere() {
        let one = full("meta-llama/Llama-3.1-8B", "a100-sxm-80gb");
        let trl = Scenario { stack: Stack::Trl, precision: Precision::AmpBf16, ..one };
        let engine = |scenario: &Scenario| on_gpus(scenario, 8).cluster.sharding;
        assert_eq!(engine(&trl), Sharding::Fsdp2);
        assert_eq!(engine(&Scenario { task: Task::Dpo, ..trl.clone() }), Sharding::Fsdp2);
        assert_eq!(engine(&Scenario { task: Task::Orpo, ..trl.clone() }), Sharding::Fsdp2);
        let precomputed = Answers { reference: Reference::Precomputed, ..trl.answers };
        let scored = Scenario { task: Task::Dpo, answers: precomputed, ..trl.clone() };
        assert_eq!(engine(&scored), Sharding::Zero2);
        assert_eq!(engine(&Scenario { optimizer: Optimizer::AdamW8bit, ..trl.clone() }), Sharding::Zero2);
        let layout = fewest_gpus(&trl).unwrap().expect("some number holds it");
        assert_eq!((layout.gpus, layout.scenario.cluster.sharding), (2, Sharding::Fsdp2));
    }

    #[test]
    fn what_stops_under_fsdp2_is_divided_by_zero_3() {
        let scenario = full("allenai/OLMo-2-0425-1B", "rtx-3060-12gb");
        let usual = usual(&scenario).expect("some number holds it");
        assert_eq!(usual.scenario.cluster.sharding, Sharding::Zero3);
        // another engine that takes fewer does not stop either
        let layout = fewest_gpus(&scenario).unwrap().expect("some number holds it");
        assert!(layout.gpus <= usual.gpus && !layout.scenario.stops(), "{}", layout.name());
    }

    #[test]
    fn what_several_cannot_run_says_why_and_what_none_holds_is_none() {
        let recipe = Scenario { stack: Stack::Litgpt, ..full("meta-llama/Llama-3.1-8B", "rtx-3060-12gb") };
        assert!(fewest_gpus(&recipe).is_err());
        let mac = Scenario { gpu: GpuChoice::Catalogue("apple-m3-max-36gb".into()), ..Scenario::default() };
        assert_eq!(fewest_gpus(&mac).unwrap().map(|layout| layout.gpus), Some(1));
        let two = Scenario { batch: 64, ..mac };
        assert!(fewest_gpus(&two).is_err_and(|issue| issue.message.contains("no collectives")));
        let long = Scenario { sequence: 2048, ..full("openai-community/gpt2", "rtx-4090") };
        assert!(fewest_gpus(&long).is_err_and(|issue| issue.message.contains("would stop")));
        let huge = full("meta-llama/Llama-3.1-405B", "rtx-3060-12gb");
        assert_eq!(fewest_gpus(&huge), Ok(None));
    }
}
