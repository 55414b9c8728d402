//! What is noted of each phase of a round: its highest points, and what it computed.

use std::cell::{Cell, RefCell};

use crate::memory::{Iteration, Peak, Phase};
use crate::step::heap::ledger::higher;
use crate::step::machine::Machine;
use crate::work::Work;

/// The highest points of the running round by phase, those before a thread got its workspaces apart.
pub(super) struct Notes<'a> {
    pub machine: &'a Machine,
    pub peaks: RefCell<Vec<(Phase, Peak)>>,
    /// What the phases of the running round computed.
    pub work: RefCell<Vec<(Phase, Work)>>,
    /// What had been computed when the running phase began.
    pub before: Cell<Work>,
}

impl Notes<'_> {
    pub fn begin(&self, phase: Phase) {
        self.machine.with(|state| {
            state.early = None;
            self.before.set(state.work);
            state.ledger.restart();
            state.mark(phase);
        });
    }

    /// Notes the highest point of a phase that ends, and the one before its thread got its workspaces.
    pub fn end(&self, phase: Phase) {
        let (peaks, work) = self.machine.with(|state| {
            let peaks = state.early.take().into_iter().chain([state.ledger.peak()]);
            (peaks, state.work.since(self.before.get()))
        });
        self.peaks.borrow_mut().extend(peaks.map(|peak| (phase, peak)));
        let mut all = self.work.borrow_mut();
        match all.iter_mut().find(|(own, _)| *own == phase) {
            Some((_, own)) => *own = own.and(work),
            None => all.push((phase, work)),
        }
    }

    /// Forgets what an act computed, as it runs again.
    pub fn forget_work(&self, act: u16) {
        self.work.borrow_mut().retain(|(phase, _)| phase.act != act);
    }

    /// Counts what so many of an act's runs computed as often as it runs.
    pub fn extend_work(&self, act: u16, run: u64, times: u64) {
        for (_, work) in self.work.borrow_mut().iter_mut().filter(|(phase, _)| phase.act == act) {
            *work = work.of_more(run, times);
        }
    }

    /// Counts what the last run of an act computed as often as it runs.
    pub fn repeat_work(&self, act: u16, times: u64) {
        for (_, work) in self.work.borrow_mut().iter_mut().filter(|(phase, _)| phase.act == act) {
            *work = work.times(times);
        }
    }
}

/// The highest of the peaks of each phase.
pub(super) fn highest(peaks: &[(Phase, Peak)]) -> Iteration {
    let mut iteration = Iteration { phases: Vec::with_capacity(3) };
    for (phase, peak) in peaks {
        let highest = iteration.phase_mut(*phase);
        *highest = higher(*highest, *peak);
    }
    iteration
}
