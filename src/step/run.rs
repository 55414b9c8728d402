//! The step on behalf of all layers of a kind at once: what it needs, in microseconds.

use super::device::Device;
use super::forward::{Apart, Model};
use super::iteration::Training;
use super::machine::Machine;
use super::plan::Plan;
use super::support;
use crate::hardware::Gpu;
use crate::issue::Issue;
use crate::job::{Batch, Member};
use crate::memory::{Counted, Memory, Parameters};
use crate::model::Architecture;
use crate::scenario::{Method, Offloading, Scenario};
use crate::units::Bytes;

/// Executes the step on behalf of all layers of a kind at once and says what it needs.
///
/// # Errors
/// An [`Issue`] where the architecture has a part that is not modelled.
pub fn run(architecture: &Architecture, scenario: &Scenario, gpu: &Gpu) -> Result<Memory, Issue> {
    let device = Device::of(gpu);
    let (member, given) = (&Member::from(scenario), Batch::from(scenario));
    let batch = given.laid_out(member.stack);
    let modeling = support::modeling(architecture, (member, batch), device)?;
    let named = architecture;
    let architecture = &*super::forward::stacks::architecture(architecture, member, batch)?;
    // what waits in the CPU's memory leaves its layer while the next ones run: no layer stands for others
    let mut apart = if member.offloading == Offloading::On { Apart::All } else { Apart::Few };
    loop {
        if apart == Apart::All {
            Plan::of(architecture, modeling, (member, given), scenario.accumulation, device)?;
        }
        let machine = Machine::new(device, false);
        let model = Model::load(&machine, architecture, modeling, (member, batch), device, apart);
        support::adapted(&model, named)?;
        let memory = summarised(model, batch, scenario.accumulation, gpu);
        support::followed(&machine, member, memory.peak().1.bytes)?;
        if apart == Apart::All || machine.with(|state| state.alike) {
            return Ok(memory);
        }
        apart = apart.further();
    }
}

/// What a model's training needs, as far as the layers that run on behalf of others are like them.
fn summarised(model: Model<'_>, batch: Batch, accumulation: u64, gpu: &Gpu) -> Memory {
    let (machine, architecture, member) = (model.machine, model.architecture, model.member);
    let mut training = Training::new(model, batch, accumulation);
    training.prepare();
    let [first, steady] = training.first_and_later();
    let resting = machine.with(|state| state.ledger.parts);
    let offloaded = machine.with(|state| state.graph.offload.as_ref().map_or(0, |offload| offload.bytes.1));
    let memory = Memory {
        counted: Counted::Tensors,
        parameters: parameters(architecture, member, machine),
        first,
        steady,
        resting,
        context: gpu.context,
        offloaded: Bytes(offloaded),
    };
    drop(training);
    memory
}

fn parameters(architecture: &Architecture, member: &Member, machine: &Machine) -> Parameters {
    let trained: u64 = machine.with(|state| {
        let trained = state.params.list.iter().filter(|param| param.trainable);
        trained.map(|param| param.numel.saturating_mul(u64::from(param.times))).fold(0, u64::saturating_add)
    });
    let adapters = if member.method == Method::Full { 0 } else { trained };
    Parameters { total: architecture.parameters().saturating_add(adapters), trainable: trained }
}
