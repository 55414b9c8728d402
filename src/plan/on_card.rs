//! What a run does on a card: the allocator under the card's capacity, and what `nvidia-smi` then shows.

use std::borrow::Cow;
use std::cell::RefCell;

use serde::{Deserialize, Serialize};

use crate::accuracy::{self, Doubt};
use crate::allocator::Settings;
use crate::hardware::Gpu;
use crate::memory::{Counted, Memory};
use crate::model::Architecture;
use crate::scenario::{Allocator, Issue, Scenario};
use crate::step::{Failure, Recording, Replay, run_stage};
use crate::units::{Between, Bytes};

/// Whether the run gets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum Outcome {
    /// It does.
    Runs,
    /// It would with [`Allocator::Expandable`] only: the tensors fit and the holes between them do not.
    RunsExpandable,
    /// It runs out of memory.
    Fails(Failure),
}

/// A run on a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[non_exhaustive]
pub struct OnCard {
    /// Whether it gets through.
    pub outcome: Outcome,
    /// Whether it would end otherwise if as much more were needed, or as much less, as the estimate may be off by, or if the
    /// CUDA context, and NCCL beside other GPUs, took all that they may. Of what runs with [`Allocator::Expandable`] only, whether
    /// it might fail with that too.
    pub close: bool,
    /// Peak of `memory_reserved()` under the card's capacity; up to the failure where it fails.
    pub reserved: Bytes,
    /// What `nvidia-smi` shows at most: that and what lies outside the allocator; without NCCL's buffers ([`with`](Self::with)).
    pub shown: Bytes,
    /// How the allocator was set up for the run whose figures [`Memory::replayed`] gives: without a limit where it fails.
    pub settings: Settings,
}

impl OnCard {
    /// Runs a recording through the allocator of a card; `doubt` is how far the estimate may be off.
    pub fn of(recording: &Recording, allocator: Allocator, gpu: &Gpu, doubt: Doubt) -> OnCard {
        OnCard::with_replay((recording, &Replays::default()), allocator, gpu, doubt).0
    }

    /// The same with the run whose figures are shown: one without a limit where it fails.
    fn with_replay(
        (recording, replays): (&Recording, &Replays),
        allocator: Allocator,
        gpu: &Gpu,
        doubt: Doubt,
    ) -> (OnCard, Replay) {
        let run = Run { recording, allocator };
        let Shown { outcome, settings, reserved, replay } = run.shown(replays, room(gpu, gpu.context, 0.0));
        let close = match outcome {
            // what was never asked for cannot be missed: more room than that changes nothing
            Outcome::Runs | Outcome::RunsExpandable => {
                let least = room(gpu, gpu.context_most, doubt.more);
                let chosen = match outcome {
                    Outcome::RunsExpandable => Run { allocator: Allocator::Expandable, ..run },
                    Outcome::Runs | Outcome::Fails(_) => run,
                };
                (replay.allocation.retries > 0 || reserved > least) && !chosen.holds(least)
            }
            Outcome::Fails(_) => run.holds(room(gpu, gpu.context, -doubt.less)),
        };
        (OnCard { outcome, close, reserved, shown: reserved + gpu.context, settings }, replay)
    }
}

impl OnCard {
    /// What `nvidia-smi` shows of a card with what else lies outside the allocator: NCCL's buffers, which are known as a range. No run
    /// that gets through shows more than the card has.
    pub fn with(&self, others: Between, gpu: &Gpu) -> Between {
        // one that fails for want of room is shown without a limit
        let most = gpu.memory.max(self.shown);
        Between { least: (self.shown + others.least).min(most), most: (self.shown + others.most).min(most) }
    }
}

/// What a card leaves to the allocator beside a context of that size, if all that is asked for were so many percent more.
fn room(gpu: &Gpu, context: Bytes, percent: f64) -> Bytes {
    let left = gpu.memory.saturating_sub(context);
    Bytes((left.0 as f64 / (1.0 + percent.max(-99.0) / 100.0)) as u64)
}

/// A card that is smaller by what the estimate may be off: what fits it fits the card beyond doubt.
pub(super) fn less_doubt(architecture: &Architecture, scenario: &Scenario, mut gpu: Gpu) -> Gpu {
    let doubt = accuracy::band(architecture, scenario).doubt();
    gpu.told = Some(gpu.tells());
    gpu.memory = room(&gpu, gpu.context_most, doubt.more.max(0.0)) + gpu.context;
    gpu
}

/// A recording and how its allocator was chosen to be.
#[derive(Clone, Copy)]
pub(super) struct Run<'a> {
    /// All events.
    pub recording: &'a Recording,
    /// The scenario's allocator.
    pub allocator: Allocator,
}

/// What the allocator made of one recording under settings that were asked for.
#[derive(Default)]
pub(super) struct Replays(RefCell<Vec<(Settings, Replay)>>);

impl Replays {
    /// The replay of that recording, made where it is not there yet.
    fn of(&self, recording: &Recording, settings: Settings) -> Replay {
        let known =
            self.0.borrow().iter().find(|(known, _)| *known == settings).map(|(_, replay)| replay.clone());
        known.unwrap_or_else(|| {
            let replay = recording.replay(settings);
            self.0.borrow_mut().push((settings, replay.clone()));
            replay
        })
    }
}

/// The run whose figures are shown: with the outcome, how its allocator was set up, and what it reserves, up to the failure where the
/// card has no room for it.
struct Shown {
    outcome: Outcome,
    settings: Settings,
    reserved: Bytes,
    replay: Replay,
}

fn settings(expandable_segments: bool, room: Option<Bytes>) -> Settings {
    Settings { expandable_segments, capacity: room.map(|room| room.0) }
}

impl Run<'_> {
    fn is_expandable(self) -> bool {
        self.allocator == Allocator::Expandable
    }

    /// What ends it where the allocator can have so much, if anything does: the allocator alone, without figures of phases, as a
    /// recording of a recurrence has millions of events.
    fn failure(self, expandable_segments: bool, room: Bytes) -> Option<Failure> {
        self.recording.allocate(settings(expandable_segments, Some(room))).failure
    }

    /// Whether it gets through with the allocator that was chosen.
    fn holds(self, room: Bytes) -> bool {
        self.recording.tensors() <= room && self.failure(self.is_expandable(), room).is_none()
    }

    /// Whether it gets through where it failed, if segments can be expanded: what its tensors have no room for does not.
    fn holds_expandable(self, room: Bytes) -> bool {
        !self.is_expandable() && self.recording.tensors() <= room && self.failure(true, room).is_none()
    }

    /// Whether it gets through where the allocator can have so much.
    pub fn outcome(self, room: Bytes) -> Outcome {
        match self.failure(self.is_expandable(), room) {
            None => Outcome::Runs,
            Some(_) if self.holds_expandable(room) => Outcome::RunsExpandable,
            Some(failure) => Outcome::Fails(failure),
        }
    }

    /// The same with the run whose figures are shown. It is run without a limit first: one above all that it reserves changes nothing.
    fn shown(self, replays: &Replays, room: Bytes) -> Shown {
        let of = |outcome, settings, replay: Replay| {
            let reserved = replay.allocation.reserved_peak;
            Shown { outcome, settings, reserved, replay }
        };
        let chosen = self.is_expandable();
        let (unlimited, limited) = (settings(chosen, None), settings(chosen, Some(room)));
        let whole = replays.of(self.recording, unlimited);
        if whole.allocation.failure.is_none() && whole.allocation.most_reserved <= room {
            return of(Outcome::Runs, limited, whole);
        }
        let replay = replays.of(self.recording, limited);
        let Some(failure) = replay.allocation.failure else { return of(Outcome::Runs, limited, replay) };
        if !chosen && self.recording.tensors() <= room {
            let expandable = settings(true, Some(room));
            let joined = replays.of(self.recording, expandable);
            if joined.allocation.failure.is_none() {
                return of(Outcome::RunsExpandable, expandable, joined);
            }
        }
        Shown { replay: whole, ..of(Outcome::Fails(failure), unlimited, replay) }
    }
}

/// The estimate of what was recorded: of another stage of a pipeline than the one whose tensors take most, where that does worse on the card.
///
/// # Errors
/// As [`step::run`](crate::step::run).
pub(super) fn of_recorded<'m>(
    architecture: &Architecture,
    scenario: &Scenario,
    gpu: &Gpu,
    (memory, recording): (&'m Memory, &Recording),
) -> Result<Cow<'m, Memory>, Issue> {
    match (memory.rank, recording.stage) {
        (Some(rank), Some(stage)) if rank.stage != stage => {
            Ok(Cow::Owned(run_stage(architecture, scenario, gpu, stage)?))
        }
        _ => Ok(Cow::Borrowed(memory)),
    }
}

impl Memory {
    /// The estimate with the peaks that the allocator counts, by blocks, in place of those of tensors.
    pub fn replayed(&self, replay: Replay) -> Memory {
        let Replay { first, steady, resting, .. } = replay;
        Memory { counted: Counted::Blocks, first, steady, resting, ..self.clone() }
    }
}

/// A scenario's run on its card, and what it needs as the allocator counts it.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// All events.
    pub recording: Recording,
    /// What the allocator made of them.
    pub on_card: OnCard,
    /// Its figures: those that are shown, and that `headroom check` holds against measurements.
    pub memory: Memory,
    /// The number of the event after which it needs most.
    pub peak: usize,
}

impl Replayed {
    /// Runs a scenario on a card, whose estimate is `memory`.
    ///
    /// # Errors
    /// As [`Recording::of`].
    pub fn of(
        architecture: &Architecture,
        scenario: &Scenario,
        gpu: &Gpu,
        memory: &Memory,
    ) -> Result<Replayed, Issue> {
        let recording = Recording::of(architecture, scenario, gpu)?;
        let (on_card, replay) = replayed(architecture, scenario, gpu, (&recording, &Replays::default()));
        let peak = replay.highest;
        let memory = of_recorded(architecture, scenario, gpu, (memory, &recording))?.replayed(replay);
        Ok(Replayed { recording, on_card, memory, peak })
    }
}

/// What a scenario's recording does on a card, of which replays may be there, and the run whose figures are shown.
pub(super) fn replayed(
    architecture: &Architecture,
    scenario: &Scenario,
    gpu: &Gpu,
    recorded: (&Recording, &Replays),
) -> (OnCard, Replay) {
    let doubt = accuracy::band(architecture, scenario).doubt();
    OnCard::with_replay(recorded, scenario.allocator, gpu, doubt)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate;
    use crate::scenario::GpuChoice;

    #[track_caller]
    fn replayed(memory: Bytes, allocator: Allocator) -> Replayed {
        let scenario = Scenario { gpu: GpuChoice::Custom(memory), allocator, ..Scenario::default() };
        let tensors = estimate(&scenario).memory.expect("an answer");
        let run = || Replayed::of(&*scenario.architecture()?, &scenario, &scenario.gpu()?, &tensors);
        run().unwrap_or_else(|issue: Issue| panic!("{issue}"))
    }

    /// The first answer's step, and what a card makes of it.
    fn of(recording: &Recording, memory: Bytes, allocator: Allocator) -> OnCard {
        OnCard::of(recording, allocator, &Gpu::custom(memory), Doubt::either_way(1.0))
    }

    fn recording() -> Recording {
        replayed(Bytes::gib(80.0), Allocator::Native).recording
    }

    #[test]
    fn the_figures_are_those_of_the_allocator() {
        for memory in [80.0, 8.0].map(Bytes::gib) {
            let Replayed { recording, on_card, memory, .. } = replayed(memory, Allocator::Native);
            let allocation = recording.allocate(on_card.settings);
            assert_eq!(memory.peak().1.bytes, allocation.allocated_peak);
            for (_, peak) in memory.first.phases.iter().chain(&memory.steady.phases) {
                assert_eq!(peak.parts.total(), peak.bytes);
            }
            assert_eq!(memory.resting.total(), allocation.allocated);
        }
    }

    #[test]
    fn a_limit_that_is_not_met_changes_nothing_and_tensors_are_the_least() {
        for link in [
            "v=1",
            "m=Qwen/Qwen2.5-0.5B&method=full&p=amp-fp16&gpu=t4&acc=3",
            "m=google-t5/t5-small&method=full&o=adafactor",
            "m=meta-llama/Llama-3.2-1B&gpus=4&shard=zero3&method=full&p=bf16",
            "m=meta-llama/Llama-3.2-1B&gpus=2&shard=fsdp2&method=lora&p=amp-bf16",
        ] {
            let scenario = crate::share::decode(link).scenarios.remove(0);
            let (architecture, gpu) = (scenario.architecture().unwrap(), scenario.gpu().unwrap());
            let recording = Recording::of(&architecture, &scenario, &gpu).expect("it is recorded");
            for expandable in [false, true] {
                let unlimited = recording.replay(settings(expandable, None));
                assert!(recording.tensors() <= unlimited.allocation.allocated_peak, "{link}");
                let enough = settings(expandable, Some(unlimited.allocation.most_reserved));
                assert_eq!(recording.replay(enough), unlimited, "{link}");
            }
        }
    }

    #[test]
    fn the_edge_of_a_card_is_close_on_both_sides() {
        let recording = recording();
        let with = |memory| of(&recording, memory, Allocator::Expandable);
        let runs = |memory: &Bytes| with(*memory).outcome == Outcome::Runs;
        let least = (12_000..15_000).step_by(10).map(Bytes::mib).find(runs).expect("it runs in 15 GB");
        for (memory, close) in [
            (least, true),
            (least + Bytes::mib(100), true),
            (least.saturating_sub(Bytes::mib(100)), true),
            (least + Bytes::mib(1_000), false),
            (least.saturating_sub(Bytes::mib(1_000)), false),
        ] {
            assert_eq!(with(memory).close, close, "{memory} where {least} is the least");
        }
    }

    /// 1.45 GiB of one communicator, twice that of two, 5.59 GiB of three and more.
    #[test]
    fn what_fits_without_nccl_only_is_close() {
        let run = |memory: f64, way: &str| {
            let link = format!("m=Qwen/Qwen2.5-0.5B&method=full&b=10&s=1024&alloc=expandable{way}");
            let mut scenario = crate::share::decode(&link).scenarios.remove(0);
            scenario.gpu = GpuChoice::Custom(Bytes::gib(memory));
            let tensors = estimate(&scenario).memory.expect("an answer");
            let (architecture, gpu) = (scenario.architecture().unwrap(), scenario.gpu().unwrap());
            Replayed::of(&architecture, &scenario, &gpu, &tensors).expect("it is recorded")
        };
        for (way, close) in [
            ("&p=bf16", [false; 4]),
            ("&gpus=8&shard=ddp&p=bf16", [true, false, false, false]),
            ("&gpus=8&shard=zero3", [true, true, false, false]),
            (
                "&gpus=8&st=megatron&p=amp-bf16-weights&shard=dist-opt&o=adamw&attn=eager&ckpt=off",
                [true, true, true, false],
            ),
        ] {
            let needed = run(80., way).memory.needed().as_gib();
            let left = |gib: f64| {
                let on_card = run((needed + gib) * 1.01, way).on_card;
                (on_card.outcome, on_card.close)
            };
            assert_eq!([1., 2.5, 4.5, 7.].map(left), close.map(|close| (Outcome::Runs, close)), "{way}");
        }
    }

    /// Of SimuMax's Llama-3.1-405B in four layers on two stages the second's tensors take more, and the first reserves more, as it did on its
    /// B200s (91.1 to 92.3 GiB against 87.7 to 88.6).
    #[test]
    fn the_stage_that_is_shown_reserves_most() {
        let l4 = "m=l4(head_dim:128,hidden_act:silu,hidden_size:16384,intermediate_size:53248,max_position_embeddings:131072,model_type:llama,\
                  num_attention_heads:128,num_hidden_layers:4,num_key_value_heads:8,tie_word_embeddings:!f,vocab_size:128256)\
                  &s=4096&loss=te&gpu=b200&pp=2";
        for link in [
            l4,
            "m=meta-llama/Llama-3.1-8B&gpu=h100-sxm-80gb&pp=4&tp=2&sp=on",
            "m=Qwen/Qwen2.5-14B&gpu=b200&pp=8",
        ] {
            let of = |stage: u64| {
                let link = format!(
                    "v=1&{link}&method=full&p=amp-bf16-weights&o=adamw&ga=8&gc=off&attn=cudnn&st=megatron&gpus=8&shard=dist-opt&timpl=transformer-engine"
                );
                let mut scenario = crate::share::decode(&link).scenarios.remove(0);
                scenario.cluster.layout.stage = stage;
                let answer = crate::plan::Answer::of(scenario);
                let rank = answer.estimate.memory.as_ref().and_then(|memory| memory.rank).expect("a stage");
                (
                    answer.on_card.expect("it is replayed").reserved,
                    rank.stage,
                    answer.fit().expect("a figure").needed,
                )
            };
            let shown = of(0);
            let stages = [1, 2, shown.1].map(of);
            assert_eq!(stages.iter().map(|stage| stage.0).max(), Some(shown.0), "{link}");
            // and its figures are shown
            assert_eq!(of(shown.1), shown, "{link}");
            assert_eq!(link == l4, shown.1 == 1 && stages[1].2 > shown.2, "{link}: {stages:?}");
        }
    }

    /// What is shown of a pipeline is as bad as any of its stages, under both allocators, on cards on which they end differently.
    #[test]
    fn no_stage_does_worse_than_what_is_shown() {
        let l4 = "v=1&m=l4(head_dim:128,hidden_act:silu,hidden_size:16384,intermediate_size:53248,max_position_embeddings:131072,model_type:llama,\
                  num_attention_heads:128,num_hidden_layers:4,num_key_value_heads:8,tie_word_embeddings:!f,vocab_size:128256)&s=4096&loss=te&pp=2\
                  &method=full&p=amp-bf16-weights&o=adamw&ga=4&gc=off&attn=cudnn&st=megatron&gpus=8&shard=dist-opt&timpl=transformer-engine";
        let mut endings = Vec::new();
        for gib in [85.5, 86.6, 87.0, 88.5, 89.5, 92.] {
            for allocator in [Allocator::Native, Allocator::Expandable] {
                let of = |stage: u64| {
                    let mut scenario = crate::share::decode(l4).scenarios.remove(0);
                    (scenario.gpu, scenario.allocator) = (GpuChoice::Custom(Bytes::gib(gib)), allocator);
                    scenario.cluster.layout.stage = stage;
                    crate::plan::Answer::of(scenario).on_card.expect("it is replayed")
                };
                let [shown, first, last] = [0, 1, 2].map(of);
                let ending = |on_card: &OnCard| match on_card.outcome {
                    Outcome::Runs => 0,
                    Outcome::RunsExpandable => 1,
                    Outcome::Fails(_) => 2,
                };
                assert_eq!(ending(&shown), ending(&first).max(ending(&last)), "{gib} {allocator:?}");
                endings.push(ending(&shown));
            }
        }
        assert!(endings.contains(&0) && endings.contains(&2), "{endings:?}");
    }

    #[test]
    fn no_card_shows_more_than_it_has() {
        let gpu = Gpu::custom(Bytes::gib(24.));
        let of = |shown: f64| OnCard {
            outcome: Outcome::Runs,
            close: false,
            reserved: Bytes::ZERO,
            shown: Bytes::gib(shown),
            settings: settings(false, None),
        };
        let others = Between { least: Bytes::gib(1.), most: Bytes::gib(4.) };
        let shows = |shown: f64| {
            let Between { least, most } = of(shown).with(others, &gpu);
            (least.as_gib(), most.as_gib())
        };
        // a card that is full of what is cached has less of that; one that fails is shown without a limit
        assert_eq!([10., 22., 23.5, 30.].map(shows), [(11., 14.), (23., 24.), (24., 24.), (30., 30.)]);
    }

    #[test]
    fn zero_3_need_not_load_a_model_whole() {
        let link = "m=meta-llama/Llama-3.1-8B&method=full&p=bf16&gpus=64&shard=zero3&s=512&gpu=rtx-3060-12gb";
        let scenario = crate::share::decode(link).scenarios.remove(0);
        let architecture = scenario.architecture().expect("a model");
        // more than the card has, if the model were whole
        let gpu = scenario.gpu().expect("a card");
        assert!(architecture.parameters() * 2 > gpu.memory.0);
        let tensors = estimate(&scenario).memory.expect("an answer");
        let on_card = Replayed::of(&architecture, &scenario, &gpu, &tensors).expect("it is recorded").on_card;
        assert_eq!(on_card.outcome, Outcome::Runs);
    }

    #[test]
    fn a_large_card_runs_and_a_small_one_fails() {
        let recording = recording();
        for allocator in [Allocator::Native, Allocator::Expandable] {
            let of = |memory| of(&recording, memory, allocator);
            let large = of(Bytes::gib(80.0));
            assert_eq!(large.outcome, Outcome::Runs);
            assert!(large.shown > large.reserved);
            assert!(matches!(of(Bytes::gib(8.0)).outcome, Outcome::Fails(_)));
            assert!(matches!(of(Bytes::ZERO).outcome, Outcome::Fails(_)));
        }
    }

    #[test]
    fn what_runs_without_holes_only_runs_where_that_is_chosen() {
        let recording = recording();
        let tight = (900..1500)
            .map(|step| Bytes::gib(f64::from(step) / 100.))
            .find(|memory| of(&recording, *memory, Allocator::Native).outcome == Outcome::RunsExpandable);
        let tight = tight.expect("between what fails and what runs there is what runs without holes");
        assert_eq!(of(&recording, tight, Allocator::Expandable).outcome, Outcome::Runs);
    }

    #[test]
    fn less_memory_never_reserves_more() {
        let recording = recording();
        let reserved =
            [80.0, 24.0, 15.0, 14.0].map(|gib| of(&recording, Bytes::gib(gib), Allocator::Native).reserved);
        assert!(reserved.is_sorted_by(|a, b| a >= b), "{reserved:?}");
    }
}
