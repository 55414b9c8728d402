//! The step on behalf of all layers of a kind at once: what it needs, in microseconds.

use super::forward::Apart;
use super::iteration::Rounds;
use super::machine::Machine;
use super::ready::Ready;
use super::schedule::Schedule;
use crate::hardware::Gpu;
use crate::issue::Issue;
use crate::job::Job;
use crate::memory::{Counted, Memory};
use crate::model::Architecture;
use crate::scenario::Scenario;
use crate::units::Bytes;

/// Executes the step on behalf of all layers of a kind at once and says what it needs.
///
/// # Errors
/// An [`Issue`] where the architecture has a part that is not modelled.
pub fn run(architecture: &Architecture, scenario: &Scenario, gpu: &Gpu) -> Result<Memory, Issue> {
    let job = Job::from(scenario);
    summarised(&Ready::of_one(&job, architecture, gpu)?, gpu)
}

/// The same of any job.
///
/// # Errors
/// An [`Issue`] where a model is not known, or it or what is done with it is not modelled.
pub fn run_job(job: &Job, gpu: &Gpu) -> Result<Memory, Issue> {
    let architectures = job.architectures()?;
    let architectures: Vec<&Architecture> =
        architectures.iter().map(|architecture| &**architecture).collect();
    summarised(&Ready::of(job, &architectures, gpu)?, gpu)
}

fn summarised(ready: &Ready<'_>, gpu: &Gpu) -> Result<Memory, Issue> {
    // what waits in the CPU's memory leaves its layer while the next ones run, and a bucket is full where it happens to be:
    // no layer stands for others
    let mut apart = if ready.offloads() || ready.fills_buckets() { Apart::All } else { Apart::Few };
    loop {
        if apart == Apart::All {
            Schedule::of(ready)?;
        }
        let machine = Machine::new(ready.device, None);
        let models = ready.load(&machine, apart)?;
        let parameters = ready.parameters(&machine, &models);
        let mut rounds = Rounds::new(&machine, ready, models);
        rounds.prepare();
        let [first, steady] = rounds.first_and_later();
        let memory = machine.with(|state| {
            let offloaded = state.graph.offload.as_ref().map_or(0, |offload| offload.bytes.1);
            Memory {
                counted: Counted::Tensors,
                parameters,
                first,
                steady,
                resting: state.ledger.parts,
                context: gpu.context,
                offloaded: Bytes(offloaded),
                on_host: Bytes(state.parallel.on_host(&state.params)),
            }
        });
        drop(rounds);
        ready.followed(&machine, memory.peak().1.bytes)?;
        if apart == Apart::All || machine.with(|state| state.alike) {
            return Ok(memory);
        }
        apart = apart.further();
    }
}
