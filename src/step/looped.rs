//! Loops of the forward code over chunks or tokens.
//!
//! What a run of such a loop does differs in the first run (the state has no gradient yet), in the second (the first that
//! saves what is multiplied by the state), in the last (whose state nobody reads) and in the one before it (in backward the
//! first that has a gradient of its state). All others are equal: one runs on behalf of all. A recording runs some hundred
//! of them by themselves ([`runs_apart`]); longer loops are recorded in bundles, of which each runs once, and what it
//! leaves behind counts as often as the bundle has runs. The bytes of tensors are then exact all the same; the allocator is
//! given one block for each bundle where there would be one for each run.

use super::machine::{Machine, NOTHING, StorageId};
use super::tensor::{Tensor, Value};
use crate::dtype::Dtype;

/// The most runs between the first two and the last two that a recording keeps apart, and the fewest.
const RUNS: (u64, u64) = (512, 8);
/// Runs of all layers in all micro-batches that a recording keeps apart, roughly.
const ALL_RUNS: u64 = 1 << 15;

/// How many runs of each of so many loops a recording keeps apart.
pub(super) fn runs_apart(loops: u64) -> u32 {
    let (most, fewest) = RUNS;
    (ALL_RUNS / loops.max(1)).clamp(fewest, most) as u32
}

impl Machine {
    /// A variable that nothing was assigned to yet.
    pub fn unassigned(&self) -> Tensor<'_> {
        Tensor { machine: self, value: Value::plain(NOTHING, 0, Dtype::F32) }
    }

    /// `for index in range(times): …` over Python's `variables`, which outlive it; `body` is told which run is the last.
    /// A recording keeps so many of them `apart`.
    pub fn looped<'m>(
        &'m self,
        times: u64,
        apart: Option<u32>,
        variables: &mut [Tensor<'m>],
        body: &mut dyn FnMut(&mut [Tensor<'m>], bool),
    ) {
        let times = u32::try_from(times).unwrap_or(u32::MAX);
        let last = times.min(1);
        let before_last = times.saturating_sub(3).min(1);
        for _ in 0..times.saturating_sub(last + before_last).min(2) {
            body(variables, false);
        }
        let between = times.saturating_sub(4);
        if let Some(apart) = apart {
            let bundle = between.div_ceil(apart.max(1)).max(1);
            for _ in 0..between / bundle {
                self.bundle(bundle, variables, body);
            }
            if !between.is_multiple_of(bundle) {
                self.bundle(between % bundle, variables, body);
            }
        } else if between > 1 {
            let (repeat, first_node) = {
                let mut state = self.state.borrow_mut();
                (state.begin_repeat(between), state.graph.len())
            };
            body(variables, false);
            let mut state = self.state.borrow_mut();
            state.end_repeat(repeat, 0);
            for variable in variables.iter() {
                state.counts_once(variable.value.storage);
            }
            state.graph.note_repeat(first_node, between);
        } else if between == 1 {
            body(variables, false);
        }
        for _ in 0..before_last {
            body(variables, false);
        }
        for _ in 0..last {
            body(variables, true);
        }
    }

    /// One run on behalf of `times`, recorded.
    fn bundle<'m>(
        &'m self,
        times: u32,
        variables: &mut [Tensor<'m>],
        body: &mut dyn FnMut(&mut [Tensor<'m>], bool),
    ) {
        if times <= 1 {
            return body(variables, false);
        }
        let holds = |variables: &[Tensor<'m>], id: StorageId| {
            variables.iter().filter(|variable| variable.value.storage == id).count()
        };
        let (first, given): (usize, Vec<_>) = {
            let state = self.state.borrow();
            let given = variables.iter().map(|variable| {
                let id = variable.value.storage;
                (id, state.references(id) as usize - holds(variables, id))
            });
            (state.storages.len(), given.collect())
        };
        body(variables, false);
        let mut state = self.state.borrow_mut();
        // what a run was given and keeps, and what it made and leaves; what only a variable holds goes with the next run
        let kept = given.into_iter().filter(|(id, others)| state.references(*id) as usize > *others);
        let left = (first..state.storages.len()).map(|id| (id as StorageId, 0));
        let ids: Vec<StorageId> = kept
            .chain(left)
            .filter(|(id, _)| *id != NOTHING && state.references(*id) as usize > holds(variables, *id))
            .map(|(id, _)| id)
            .collect();
        for id in ids {
            if let Some(storage) = state.storages.get_mut(id as usize) {
                storage.times = times;
            }
        }
    }
}
