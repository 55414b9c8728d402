//! The ledger of a body that runs once on behalf of many.
//!
//! What a run leaves behind counts as often as there are runs. Every run changes the live bytes by the same amounts, so
//! the highest point of all runs lies in the first or in the last one, or in the second: all but the first may have
//! something beside them, while each leaves less than it found.

use super::ledger::{Ledger, higher};
use super::{Heap, StorageId, rounded};
use crate::memory::{Category, Parts, Peak};

/// The ledger at the start of a repeated body.
pub(in crate::step) struct Repeat {
    before: Ledger,
    times: u32,
    /// What the bodies around it stand for.
    around: u32,
}

/// What only one run of the outermost repeated body does.
#[derive(Debug, Default)]
pub(super) struct OneRun {
    /// Storages that all runs share and that lost their last reference, which the last run frees; each with the highest
    /// point up to then.
    freed_last: Vec<(StorageId, Peak)>,
    /// The workspaces that the first run got, and the highest point up to then.
    workspace: Option<(u64, Peak)>,
}

/// The value after so many `more` runs, each of which changes it as one did; nothing where they would take more than there is.
fn repeated(value: u64, from: u64, to: u64, more: u64) -> Option<u64> {
    if to >= from {
        Some(value.saturating_add((to - from).saturating_mul(more)))
    } else {
        value.checked_sub((from - to).saturating_mul(more))
    }
}

impl Heap {
    /// Notes the ledger at the start of a body that stands for several identical ones; bodies may be nested.
    pub fn begin_repeat(&mut self, times: u32) -> Repeat {
        if self.repeating > 1 {
            // a workspace is asked for once, whatever the body stands for
            self.get_workspace();
        }
        let before = self.ledger.restart();
        let around = self.repeating;
        self.repeating = around.saturating_mul(times);
        Repeat { before, times, around }
    }

    /// Puts off freeing a storage that all runs of the running bodies share.
    pub(super) fn free_in_last_run(&mut self, id: StorageId) {
        let until_then = self.ledger.restart().peak();
        self.one_run.freed_last.push((id, until_then));
    }

    /// Notes that so many bytes of workspaces came, before they do.
    pub(super) fn note_workspace(&mut self, bytes: u64) {
        let until_then = self.ledger.restart().peak();
        if self.repeating > 1 {
            self.one_run.workspace = Some((bytes, until_then));
        } else {
            self.early = Some(until_then);
        }
    }

    /// Ends such a body: the ledger moves as if it had run `times` times. All runs but the first have what is `beside` by
    /// category beside them.
    pub fn end_repeat(&mut self, repeat: Repeat, (category, beside): (Category, u64)) {
        let Repeat { mut before, times, around } = repeat;
        self.repeating = around;
        let more = u64::from(times).saturating_sub(1);
        let OneRun { freed_last, workspace } =
            if around == 1 { std::mem::take(&mut self.one_run) } else { OneRun::default() };
        let end = self.ledger.peak();
        let first = freed_last.iter().map(|(_, peak)| *peak).fold(end, higher);
        let mut earlier = before.peak();
        if let Some((bytes, until_then)) = workspace {
            self.early = Some(higher(earlier, until_then));
            before.parts.add(Category::Workspace, bytes);
            earlier = until_then.with(Category::Workspace, bytes);
        }
        let after = self.ledger.parts;
        let mut alike = true;
        let mut after_runs = |runs: u64, mut parts: Parts| {
            for ((part, before), after) in parts.0.iter_mut().zip(before.parts.0).zip(after.0) {
                if before != after {
                    *part = repeated(*part, before, after, runs).unwrap_or_else(|| {
                        alike = false;
                        0
                    });
                }
            }
            parts
        };
        let mut in_run =
            |runs: u64, peak: Peak| Peak::of(after_runs(runs, peak.parts)).with(category, beside);
        let mut highest = higher(earlier, first);
        if workspace.is_some() {
            highest = higher(first, higher(in_run(1, earlier), in_run(more, earlier)));
        }
        if more > 1 {
            highest = higher(highest, in_run(1, first));
        }
        // the last run frees what all of them shared where the others only stopped to use it
        let mut freed = Parts::default();
        for (id, peak) in &freed_last {
            highest = higher(highest, in_run(more, *peak).without(&freed));
            let storage = &self.storages[*id as usize];
            freed.add(storage.category, rounded(storage.requested));
        }
        highest = higher(highest, in_run(more, end).without(&freed));
        let parts = after_runs(more, after);
        self.ledger.set(parts, highest);
        self.alike &= alike;
        for (id, _) in freed_last {
            self.free(id);
        }
    }
}
