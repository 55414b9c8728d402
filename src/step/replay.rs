//! The step layer by layer, with every event.

use super::iteration::Training;
use super::machine::{Event, Machine, rounded};
use super::kernels::Device;
use super::forward::Model;
use crate::hardware::Gpu;
use crate::model::Architecture;
use crate::scenario::Scenario;

/// debug
pub fn dump(architecture: &Architecture, scenario: &Scenario, gpu: &Gpu) {
    let device = Device::of(gpu);
    let machine = Machine::new(device, true);
    let model = Model::load(&machine, architecture, scenario, device, true);
    let mut training = Training::new(model);
    training.prepare();
    training.iteration();
    let at = machine.state.borrow().events.as_ref().unwrap().len();
    let base = machine.state.borrow().ledger.current;
    training.iteration();
    let state = machine.state.borrow();
    println!("BASE {base}");
    let mut ids = std::collections::HashMap::new();
    let (mut n, mut cur, mut peak) = (0, base, base);
    for event in &state.events.as_ref().unwrap()[at..] {
        match event {
            Event::Alloc(id) => {
                n += 1;
                ids.insert(*id, n);
                let s = state.storages[*id as usize];
                cur += rounded(s.requested);
                peak = peak.max(cur);
                println!("A {n} {} {cur} {} {}", s.requested, s.module, s.operation);
            }
            Event::Free(id) => {
                let s = state.storages[*id as usize];
                cur -= rounded(s.requested);
                match ids.get(id) { Some(n) => println!("F {n} {} {cur} {}", rounded(s.requested), s.operation), None => println!("F base {} {cur}", rounded(s.requested)) }
            }
            Event::Mark(name) => println!("MARK {name} {cur}"),
        }
    }
    println!("PEAK {peak}");
}
