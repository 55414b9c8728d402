//! One run on behalf of many: layers that are alike, and loops of the forward code over chunks or tokens.
//!
//! What a run leaves behind counts as often as there are runs. Every run changes the live bytes by the same amounts, so
//! the highest point of all runs lies in the first or in the last one. That is exact as long as the run is fed what it
//! returns; where it is not, [`super::heap::Heap::alike`] says so, and the layers in question have to run one by one.
//!
//! What a run of a loop does differs in the first run (the state has no gradient yet), in the second (the first that
//! saves what is multiplied by the state), in the last (whose state nobody reads) and in the one before it (in backward the
//! first that has a gradient of its state). All others are equal. A recording runs some hundred of them by themselves
//! ([`runs_apart`]); longer loops are recorded in bundles, of which each runs once, and what it leaves behind counts as
//! often as the bundle has runs. The bytes of tensors are then exact all the same; the allocator is given one block for
//! each bundle where there would be one for each run.

use super::heap::{NOTHING, StorageId, rounded};
use super::machine::Machine;
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

    /// Runs `body` once on behalf of `times` identical runs, one after the other. Each is given the variables as the one
    /// before left them; what they hold in the end counts once.
    ///
    /// `held` is a further handle of what the first variable holds at first. No other run's has one, so the body runs
    /// without it; if the tensor is gone afterwards, one of its size takes its place.
    pub fn repeat<'m, const N: usize>(
        &'m self,
        times: u32,
        held: &mut Option<Tensor<'m>>,
        variables: &mut [Tensor<'m>; N],
        body: &mut dyn FnMut(&mut [Tensor<'m>; N]),
    ) {
        if times == 1 {
            return body(variables);
        }
        // the handle goes before the body runs; what it held is remembered
        let beside = held.take().map(|held| held.value);
        let given = variables.each_ref().map(|variable| variable.value);
        let (repeat, first_node, held_before) =
            self.with(|state| (state.begin_repeat(times), state.graph.len(), state.graph.held()));
        body(variables);
        let stand_in = self.with(|state| {
            let gone = beside.filter(|held| state.references(held.storage) == 0);
            let category = state.category;
            state.end_repeat(repeat, (category, gone.map_or(0, |held| rounded(held.bytes()))));
            for (given, variable) in given.iter().zip(variables.iter()) {
                state.alike &= given.is_like(&variable.value);
                state.counts_once(variable.value.storage);
                state.hold_again(held_before, given.storage, times - 1);
            }
            state.graph.note_repeat(first_node, times);
            gone.map(|held| state.new_like(&held, held.dtype, "layer input", held.edge))
        });
        *held = stand_in.map(|value| Tensor { machine: self, value });
    }

    /// `for index in range(times): …` over Python's `variables`, which outlive it; `body` is told which run is the last.
    /// A recording keeps so many of them `apart`.
    pub fn looped<'m, const N: usize>(
        &'m self,
        times: u64,
        apart: Option<u32>,
        variables: &mut [Tensor<'m>; N],
        body: &mut dyn FnMut(&mut [Tensor<'m>; N], bool),
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
        } else if between > 0 {
            self.repeat(between, &mut None, variables, &mut |variables| body(variables, false));
        }
        for _ in 0..before_last {
            body(variables, false);
        }
        for _ in 0..last {
            body(variables, true);
        }
    }

    /// One run on behalf of `times`, recorded.
    fn bundle<'m, const N: usize>(
        &'m self,
        times: u32,
        variables: &mut [Tensor<'m>; N],
        body: &mut dyn FnMut(&mut [Tensor<'m>; N], bool),
    ) {
        if times <= 1 {
            return body(variables, false);
        }
        let holds = |variables: &[Tensor<'m>], id: StorageId| {
            variables.iter().filter(|variable| variable.value.storage == id).count()
        };
        let (first, given): (usize, Vec<_>) = self.with(|state| {
            let given = variables.iter().map(|variable| {
                let id = variable.value.storage;
                (id, state.references(id) as usize - holds(variables, id))
            });
            let given = given.collect();
            (state.storages.len(), given)
        });
        body(variables, false);
        self.with(|state| {
            // what a run was given and keeps, unless it keeps what it hands on too, and what it made and leaves; what only a
            // variable holds goes with the next run
            let keeps =
                |id: StorageId, others: usize| id != NOTHING && state.references(id) as usize > others;
            let own = |id: StorageId| keeps(id, holds(variables, id));
            let kept = given.into_iter().zip(variables.iter()).filter(|((id, others), variable)| {
                keeps(*id, *others) && own(*id) && !own(variable.value.storage)
            });
            let left = (first..state.storages.len()).map(|id| id as StorageId).filter(|id| own(*id));
            let ids: Vec<StorageId> = kept.map(|((id, _), _)| id).chain(left).collect();
            for id in ids {
                if let Some(storage) = state.storages.get_mut(id as usize) {
                    storage.times = times;
                }
            }
        });
    }
}
