//! The step on behalf of all layers of a kind at once: what it needs, in microseconds.

use std::borrow::Cow;
use std::cmp::Reverse;

use super::forward::{Apart, Model};
use super::host;
use super::iteration::Rounds;
use super::machine::Machine;
use super::ready::Ready;
use super::schedule::Schedule;
use super::support::too_large;
use crate::hardware::Gpu;
use crate::issue::Issue;
use crate::job::Job;
use crate::memory::{Counted, HostSpikes, Memory};
use crate::model::Architecture;
use crate::scenario::Scenario;
use crate::scenario::software::Trainer;
use crate::units::Bytes;

/// Executes the step on behalf of all layers of a kind at once and says what it needs.
///
/// # Errors
/// An [`Issue`] where the architecture has a part that is not modelled.
pub fn run(architecture: &Architecture, scenario: &Scenario, gpu: &Gpu) -> Result<Memory, Issue> {
    run_within(architecture, scenario, gpu, Bytes(u64::MAX))?.map_err(|_| too_large())
}

/// The same, where what stays from step to step has room on a card that has so much; how much that is at least where it has none, which is
/// known long before the rest.
///
/// # Errors
/// As [`run`].
pub(crate) fn run_within(
    architecture: &Architecture,
    scenario: &Scenario,
    gpu: &Gpu,
    room: Bytes,
) -> Result<Result<Memory, Bytes>, Issue> {
    let run =
        |scenario: &Scenario| Ready::with(scenario, architecture, gpu, |ready| summarised(ready, gpu, room));
    let stages = stages(scenario);
    if stages.is_empty() {
        return run(scenario);
    }
    // those between the first and the last often have most layers
    let (among, first) = (stages.iter().skip(1), stages.iter().take(1));
    let mut highest: Option<(u64, Memory)> = None;
    for stage in among.chain(first) {
        let memory = match run(&of_stage(scenario, *stage))? {
            Ok(memory) => memory,
            Err(rests) => return Ok(Err(rests)),
        };
        // of those that need as much the first is named
        let place = |memory: &Memory, stage: u64| (memory.needed(), Reverse(stage));
        if highest.as_ref().is_none_or(|(own, highest)| place(&memory, *stage) > place(highest, *own)) {
            highest = Some((*stage, memory));
        }
    }
    Ok(highest.map(|(_, memory)| memory).ok_or(Bytes::ZERO))
}

/// The stages of a pipeline that may need most, where it is not said which is asked for: the first has the embedding and the most
/// micro-batches in flight, the last the head, and between them the second more in flight than any after it.
fn stages(scenario: &Scenario) -> Vec<u64> {
    let layout = scenario.cluster.layout;
    if scenario.software().trainer != Trainer::Megatron || layout.pipeline <= 1 || layout.stage > 0 {
        return Vec::new();
    }
    let mut stages = vec![1, 2, layout.pipeline];
    stages.dedup();
    stages
}

/// The scenario, asked of one stage.
fn of_stage(scenario: &Scenario, stage: u64) -> Scenario {
    let mut own = scenario.clone();
    own.cluster.layout.stage = stage;
    own
}

/// The scenarios of the stages that may do worst on a card, where ranks differ and it is not said which is asked for; the scenario itself
/// where they do not.
pub(super) fn each_stage(scenario: &Scenario) -> Vec<Cow<'_, Scenario>> {
    let stages = stages(scenario);
    match stages.is_empty() {
        true => vec![Cow::Borrowed(scenario)],
        false => stages.into_iter().map(|stage| Cow::Owned(of_stage(scenario, stage))).collect(),
    }
}

/// The estimate of one stage of a pipeline.
///
/// # Errors
/// As [`run`].
pub(crate) fn run_stage(
    architecture: &Architecture,
    scenario: &Scenario,
    gpu: &Gpu,
    stage: u64,
) -> Result<Memory, Issue> {
    run(architecture, &of_stage(scenario, stage), gpu)
}

/// The same of any job.
///
/// # Errors
/// An [`Issue`] where a model is not known, or it or what is done with it is not modelled.
pub fn run_job(job: &Job, gpu: &Gpu) -> Result<Memory, Issue> {
    let architectures = job.architectures()?;
    let architectures: Vec<&Architecture> =
        architectures.iter().map(|architecture| &**architecture).collect();
    summarised(&Ready::of(job, &architectures, gpu)?, gpu, Bytes(u64::MAX))?.map_err(|_| too_large())
}

/// Above which rank no adapter of the scenario gains anything: 0 where none has a rank.
///
/// # Errors
/// As [`run`].
pub fn largest_rank(architecture: &Architecture, scenario: &Scenario, gpu: &Gpu) -> Result<u64, Issue> {
    Ready::with(scenario, architecture, gpu, |ready| {
        let machine = Machine::new(ready.device, None);
        let models = ready.load(&machine, Apart::Few)?;
        let ranks = models.iter().filter(|model| model.member.lora.tuner.has_rank());
        Ok(ranks.map(|model| model.largest_rank).max().unwrap_or(0))
    })
}

/// Whether the run is modelled, as far as that is known before it is executed.
pub(crate) fn is_supported(architecture: &Architecture, scenario: &Scenario, gpu: &Gpu) -> bool {
    Ready::with(scenario, architecture, gpu, |_| Ok(())).is_ok()
}

fn summarised(ready: &Ready<'_>, gpu: &Gpu, room: Bytes) -> Result<Result<Memory, Bytes>, Issue> {
    // what waits in the CPU's memory leaves its layer while the next ones run, a bucket is full where it happens to be, and some
    // optimizers free a parameter's gradient when it stepped: no layer stands for others
    let unlike = ready.offloads() || ready.fills_buckets() || ready.steps_in_turn();
    let mut apart = if unlike { Apart::All } else { Apart::Few };
    loop {
        if apart == Apart::All {
            Schedule::of(ready, None)?;
        }
        let machine = Machine::new(ready.device, None);
        let models = ready.load(&machine, apart)?;
        let parameters = ready.parameters(&machine, &models);
        let merging = host::merging(&machine, &models);
        let own = models.first().map(|model| model.params.clone()).unwrap_or_default();
        let optimizer_of = |model: &Model<'_>| Some((model.member.training?.optimizer, model.params.clone()));
        let trained: Vec<_> = models.iter().filter_map(optimizer_of).collect();
        let mut rounds = Rounds::new(&machine, ready, models);
        rounds.prepare();
        let rests = machine.with(|state| state.ledger.parts.total() + Bytes(state.moments_to_come()));
        if rests + gpu.context > room {
            return Ok(Err(rests + gpu.context));
        }
        let [first, steady] = rounds.first_and_later();
        let work = rounds.work();
        let (rank, evaluation) = (rounds.rank(), rounds.evaluated_on_host);
        let memory = machine.with(|state| {
            let optimizers = trained.iter().map(|(optimizer, own)| state.optimizer_on_host(*optimizer, own));
            let optimizers = optimizers.fold(0, u64::saturating_add);
            let paged = trained.iter().map(|(optimizer, own)| state.optimizer_paged(*optimizer, own));
            let paged = paged.fold(0, u64::saturating_add);
            let [saving, saving_each] = host::saving(ready, state.params.of(&own), &state.ledger.parts);
            let offloaded = state.graph.offload.as_ref().map_or(0, |offload| offload.bytes.1);
            Memory {
                counted: Counted::Tensors,
                parameters,
                first,
                steady,
                resting: state.ledger.parts,
                context: gpu.context,
                offloaded: Bytes(offloaded),
                paged: Bytes(paged),
                rank,
                on_host: Bytes(state.parallel.on_host(&state.params).saturating_add(optimizers)),
                host: HostSpikes { saving, saving_each, merging, evaluation },
                experts: state.experts,
                work,
            }
        });
        drop(rounds);
        ready.followed(&machine, memory.peak().1.bytes)?;
        if apart == Apart::All || machine.with(|state| state.alike) {
            return Ok(Ok(memory));
        }
        apart = apart.further();
    }
}

#[cfg(test)]
mod tests {
    use crate::memory::Category::{
        Adapters, Gradients, Optimizer, QuantState, Temporaries, WeightCopies, Weights, Workspace,
    };
    use crate::memory::{Memory, Parts, Stage};
    use crate::{estimate, share};

    /// Elements of Llama 3.2 1B; of its embedding, which is its head; of the matrices of all layers, and of adapters of 16 directions beside these.
    const ALL: u64 = 1_235_814_400;
    const EMBEDDING: u64 = 128_256 * 2048;
    const MATRICES: u64 = 16 * (2 * 2048 * 2048 + 2 * 512 * 2048 + 3 * 8192 * 2048);
    const ADAPTERS: u64 = 16 * 16 * (2 * 4096 + 2 * 2560 + 3 * 10_240);

    fn memory(link: &str) -> Memory {
        let link = format!("v=1&m=meta-llama/Llama-3.2-1B&gpu=a100-sxm-80gb&o=adamw&s=256&gc=off&{link}");
        let shared = share::decode(&link);
        assert!(shared.notices.is_empty(), "{:?}", shared.notices);
        let answer = estimate(&shared.scenarios[0]);
        answer.memory.unwrap_or_else(|| panic!("{link}: {:?}", answer.issues))
    }

    /// The highest point of a phase of later iterations.
    fn highest(memory: &Memory, stage: Stage) -> Parts {
        let found = memory.steady.phases.iter().find(|(phase, _)| phase.stage == stage);
        found.unwrap_or_else(|| panic!("{:?}", memory.steady.phases)).1.parts
    }

    /// Norms are smaller than what is paged.
    #[test]
    fn a_paged_optimizer_keeps_its_states_in_unified_memory() {
        for (optimizer, bytes) in
            [("paged-adamw", 8 * (EMBEDDING + MATRICES)), ("adamw", 0), ("adamw-8bit", 0)]
        {
            assert_eq!(memory(&format!("method=full&p=bf16&o={optimizer}")).paged.0, bytes, "{optimizer}");
        }
        let eight = memory("method=full&p=bf16&o=paged-adamw-8bit").paged.0;
        assert_eq!(eight, 2 * (MATRICES + EMBEDDING));
        // of adapters those on the 8,192 wide sides alone are large enough
        assert_eq!(memory("method=lora&r=16&o=paged-adamw").paged.0, 8 * 16 * 3 * 16 * 8192);
    }

    /// What a user reads beside each part of the answer between two steps.
    #[test]
    fn what_rests_is_said_by_what_it_is() {
        for (link, category, bytes) in [
            ("method=full&p=bf16", Weights, 2 * ALL),
            ("method=full&p=bf16", Optimizer, 2 * 2 * ALL),
            ("method=full&p=bf16", Gradients, 0),
            ("method=full&p=bf16", Temporaries, 0),
            // 4,096 KiB twice and 16 KiB eight times for cuBLAS, whose handle of the thread that runs backward is another
            ("method=full&p=bf16", Workspace, 2 * (2 * (4096 << 10) + 8 * (16 << 10))),
            // kept between steps
            ("method=full&p=bf16&stn=off", Gradients, 2 * ALL),
            ("method=full&p=amp-bf16", Weights, 4 * ALL),
            ("method=full&p=amp-bf16", WeightCopies, 0),
            ("method=lora&p=bf16&t=all-linear&r=16", Weights, 2 * ALL),
            ("method=lora&p=bf16&t=all-linear&r=16", Adapters, 4 * ADAPTERS),
            ("method=lora&p=bf16&t=all-linear&r=16", Optimizer, 2 * 4 * ADAPTERS),
            // peft makes float32 of what is not quantised (`prepare_model_for_kbit_training`)
            ("method=qlora&p=bf16&t=all-linear&r=16", Weights, MATRICES / 2 + 4 * (ALL - MATRICES)),
            ("method=qlora&p=bf16&t=all-linear&r=16", Adapters, 4 * ADAPTERS),
        ] {
            assert_eq!(memory(link).resting.get(category).0, bytes, "{link} {category:?}");
        }
        // a byte for 64 weights and a float32 number for 256 of these; what few numbers take is rounded up to 512 bytes, five times for each matrix
        let scales = memory("method=qlora&p=bf16&t=all-linear&r=16").resting.get(QuantState).0;
        let least = MATRICES / 64 + MATRICES / 64 / 256 * 4;
        assert!((least..=least + 16 * 7 * 5 * 512).contains(&scales), "{scales}");
        assert_eq!(memory("method=lora&p=bf16").resting.get(QuantState).0, 0);
    }

    /// A gradient is one once its parameter has it, whatever made it: a product, a norm, a table or the loss.
    #[test]
    fn gradients_are_told_from_what_passes_between_layers() {
        for (link, stage, bytes) in [
            ("method=full&p=bf16", Stage::Step, 2 * ALL),
            ("method=full&p=bf16&st=liger", Stage::Step, 2 * ALL),
            ("method=full&p=amp-bf16", Stage::Step, 4 * ALL),
            ("method=lora&p=bf16&t=all-linear&r=16", Stage::Step, 4 * ADAPTERS),
            // those of the micro-batches before
            ("method=full&p=bf16&ga=2", Stage::Forward, 2 * ALL),
            ("method=full&p=bf16", Stage::Forward, 0),
        ] {
            let memory = memory(link);
            assert_eq!(highest(&memory, stage).get(Gradients).0, bytes, "{link}");
            if stage == Stage::Step {
                // the roots of AdamW's second moments
                assert_eq!(highest(&memory, stage).get(Temporaries).0, bytes, "{link}");
            }
        }
    }

    /// Autocast keeps a copy of every matrix that a product reads until the forward pass is through (`cached_cast`); of the head's too.
    #[test]
    fn autocasts_copies_of_weights_are_a_part_of_their_own() {
        let full = memory("method=full&p=amp-bf16");
        assert_eq!(highest(&full, Stage::Forward).get(WeightCopies).0, 2 * (MATRICES + EMBEDDING));
        let plain = memory("method=full&p=bf16");
        assert_eq!(highest(&plain, Stage::Forward).get(WeightCopies).0, 0);
    }
}
