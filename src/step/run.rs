//! The step on behalf of all layers of a kind at once: what it needs, in microseconds.

use std::borrow::Cow;

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
use crate::scenario::software::{Software, Trainer};
use crate::units::Bytes;

/// Executes the step on behalf of all layers of a kind at once and says what it needs.
///
/// # Errors
/// An [`Issue`] where the architecture has a part that is not modelled.
pub fn run(architecture: &Architecture, scenario: &Scenario, gpu: &Gpu) -> Result<Memory, Issue> {
    let memory = run_within(architecture, scenario, gpu, Bytes(u64::MAX))?;
    memory.ok_or_else(too_large)
}

/// The same, where what is there before the first step has room on a card that has so much: nothing where it has none, which is known
/// long before the rest.
///
/// # Errors
/// As [`run`].
pub(crate) fn run_within(
    architecture: &Architecture,
    scenario: &Scenario,
    gpu: &Gpu,
    room: Bytes,
) -> Result<Option<Memory>, Issue> {
    let run =
        |scenario: &Scenario| Ready::with(scenario, architecture, gpu, |ready| summarised(ready, gpu, room));
    let stages = stages(scenario);
    if stages.is_empty() {
        return run(scenario);
    }
    let mut highest: Option<Memory> = None;
    for stage in stages {
        let Some(memory) = run(&of_stage(scenario, stage))? else { return Ok(None) };
        if highest.as_ref().is_none_or(|highest| memory.needed() > highest.needed()) {
            highest = Some(memory);
        }
    }
    Ok(highest)
}

/// The stages of a pipeline that may need most, where it is not said which is asked for: the first has the embedding and the most
/// micro-batches in flight, the last the head, and between them the second more in flight than any after it.
fn stages(scenario: &Scenario) -> Vec<u64> {
    let layout = scenario.cluster.layout;
    if Software::of(scenario.stack).trainer != Trainer::Megatron || layout.pipeline <= 1 || layout.stage > 0 {
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

/// The scenario of the rank that needs most, where ranks differ and it is not said which is asked for.
pub(super) fn placed<'a>(
    architecture: &Architecture,
    scenario: &'a Scenario,
    gpu: &Gpu,
) -> Result<Cow<'a, Scenario>, Issue> {
    if stages(scenario).is_empty() {
        return Ok(Cow::Borrowed(scenario));
    }
    let rank = run(architecture, scenario, gpu)?.rank;
    Ok(rank.map_or(Cow::Borrowed(scenario), |rank| Cow::Owned(of_stage(scenario, rank.stage))))
}

/// The same of any job.
///
/// # Errors
/// An [`Issue`] where a model is not known, or it or what is done with it is not modelled.
pub fn run_job(job: &Job, gpu: &Gpu) -> Result<Memory, Issue> {
    let architectures = job.architectures()?;
    let architectures: Vec<&Architecture> =
        architectures.iter().map(|architecture| &**architecture).collect();
    let memory = summarised(&Ready::of(job, &architectures, gpu)?, gpu, Bytes(u64::MAX))?;
    memory.ok_or_else(too_large)
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

fn summarised(ready: &Ready<'_>, gpu: &Gpu, room: Bytes) -> Result<Option<Memory>, Issue> {
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
        if machine.with(|state| state.ledger.parts.total()) + gpu.context > room {
            return Ok(None);
        }
        let [first, steady] = rounds.first_and_later();
        let work = rounds.work();
        let (rank, evaluation) = (rounds.rank(), rounds.evaluated_on_host);
        let memory = machine.with(|state| {
            let optimizers = trained.iter().map(|(optimizer, own)| state.optimizer_on_host(*optimizer, own));
            let optimizers = optimizers.fold(0, u64::saturating_add);
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
            return Ok(Some(memory));
        }
        apart = apart.further();
    }
}
