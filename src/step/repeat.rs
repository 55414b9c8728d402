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

use std::cell::RefCell;

use super::heap::{NOTHING, StorageId, rounded};
use super::machine::{Machine, State};
use super::tensor::{Tensor, Value};
use crate::dtype::Dtype;
use crate::step::what::torch;

/// The most runs between the first two and the last two that a recording keeps apart, and the fewest.
const RUNS: (u64, u64) = (512, 8);
/// Runs of all layers in all micro-batches that a recording keeps apart, roughly.
const ALL_RUNS: u64 = 1 << 15;

/// How many runs of each of so many loops a recording keeps apart.
pub(super) fn runs_apart(loops: u64) -> u32 {
    let (most, fewest) = RUNS;
    (ALL_RUNS / loops.max(1)).clamp(fewest, most) as u32
}

/// Which runs of a loop are like each other: one of them runs on behalf of all.
pub(super) enum Alike<'h, 'm> {
    /// All: layers of a kind.
    All {
        /// A variable outside of the loop that holds what is carried first, too.
        held: &'h mut Option<Tensor<'m>>,
        /// Where the body keeps what every run was given, the list of what stands for the runs that it runs on behalf of.
        given: Option<&'h RefCell<Vec<Kept>>>,
    },
    /// All between the first two and the last two: chunks, tokens.
    Inner {
        /// How many of them run by themselves all the same, where the loop is recorded.
        apart: Option<u32>,
    },
}

/// What all runs of a body but the one that ran were given, where the body keeps that.
pub(super) struct Kept {
    /// What the one that ran was given.
    own: StorageId,
    /// What stands for that of the others.
    others: StorageId,
    /// Whether the graph has a hold on it too.
    shared: bool,
}

impl Kept {
    /// Lets go of it after what the body kept was let go of. What the graph alone holds from now on goes backward with it.
    pub fn release(self, state: &mut State) {
        if self.shared || state.references(self.own) == 0 {
            state.release(self.others);
        }
    }
}

impl Machine {
    /// A variable that nothing was assigned to yet.
    pub fn unassigned(&self) -> Tensor<'_> {
        Tensor { machine: self, value: Value::plain(NOTHING, 0, Dtype::F32) }
    }

    /// `for … in range(times): …`: a loop that hands tensors on from one run to the next. Each run is given what is `carried`
    /// as the one before left it, and is told whether it is the last; what is carried in the end counts once.
    pub fn repeat<'m, const N: usize>(
        &'m self,
        times: u64,
        alike: Alike<'_, 'm>,
        carried: &mut [Tensor<'m>; N],
        body: &mut dyn FnMut(&mut [Tensor<'m>; N], bool),
    ) {
        let times = u32::try_from(times).unwrap_or(u32::MAX);
        let apart = match alike {
            Alike::All { held, given } => {
                return self.on_behalf(times, (held, given), carried, &mut |carried| body(carried, false));
            }
            Alike::Inner { apart } => apart,
        };
        let last = times.min(1);
        let before_last = times.saturating_sub(3).min(1);
        for _ in 0..times.saturating_sub(last + before_last).min(2) {
            body(carried, false);
        }
        let between = times.saturating_sub(4);
        if let Some(apart) = apart {
            let bundle = between.div_ceil(apart.max(1)).max(1);
            for _ in 0..between / bundle {
                self.bundle(bundle, carried, body);
            }
            if !between.is_multiple_of(bundle) {
                self.bundle(between % bundle, carried, body);
            }
        } else if between > 0 {
            self.on_behalf(between, (&mut None, None), carried, &mut |carried| body(carried, false));
        }
        for _ in 0..before_last {
            body(carried, false);
        }
        for _ in 0..last {
            body(carried, true);
        }
    }

    /// One run on behalf of `times`, one after the other.
    ///
    /// `held` is a further handle of what is carried first in the first of all runs, which has nothing beside it therefore: the
    /// body runs without the handle, and if the tensor is gone afterwards, one of its size takes its place. In a later loop
    /// it is a tensor beside all runs, the first too, and stays.
    fn on_behalf<'m, const N: usize>(
        &'m self,
        times: u32,
        (held, kept): (&mut Option<Tensor<'m>>, Option<&RefCell<Vec<Kept>>>),
        carried: &mut [Tensor<'m>; N],
        body: &mut dyn FnMut(&mut [Tensor<'m>; N]),
    ) {
        if times == 1 {
            return body(carried);
        }
        // the handle goes before the body runs; what it held is remembered
        let is_carried = held.as_ref().is_some_and(|held| held.value.storage == carried[0].value.storage);
        let beside = if is_carried { held.take().map(|held| held.value) } else { None };
        let given = carried.each_ref().map(|tensor| tensor.value);
        let (repeat, first_node, held_before) =
            self.with(|state| (state.begin_repeat(times), state.graph.len(), state.graph.held()));
        body(carried);
        let stand_in = self.with(|state| {
            let gone = beside.filter(|held| state.references(held.storage) == 0);
            let category = state.category;
            state.end_repeat(repeat, (category, gone.map_or(0, |held| rounded(held.bytes()))));
            for (given, tensor) in given.iter().zip(carried.iter()) {
                state.alike &= given.is_like(&tensor.value);
                state.counts_once(tensor.value.storage);
                let theirs = state.hold_again(held_before, given.storage, times - 1);
                if let Some(kept) = kept {
                    let others = theirs.unwrap_or_else(|| state.stand_in_of_runs(given.storage, times - 1));
                    if theirs.is_some() {
                        state.retain(others);
                    }
                    let own = given.storage;
                    kept.borrow_mut().push(Kept { own, others, shared: theirs.is_some() });
                }
            }
            state.graph.note_repeat(first_node, times);
            gone.map(|held| state.new_like(&held, held.dtype, &torch::LAYER_INPUT, held.edge))
        });
        if is_carried {
            *held = stand_in.map(|value| Tensor { machine: self, value });
        }
    }

    /// One run on behalf of `times`, recorded.
    fn bundle<'m, const N: usize>(
        &'m self,
        times: u32,
        carried: &mut [Tensor<'m>; N],
        body: &mut dyn FnMut(&mut [Tensor<'m>; N], bool),
    ) {
        if times <= 1 {
            return body(carried, false);
        }
        let holds = |carried: &[Tensor<'m>], id: StorageId| {
            carried.iter().filter(|tensor| tensor.value.storage == id).count()
        };
        let (first, given): (usize, Vec<_>) = self.with(|state| {
            let given = carried.iter().map(|tensor| {
                let id = tensor.value.storage;
                (id, state.references(id) as usize - holds(carried, id))
            });
            let given = given.collect();
            (state.storages.len(), given)
        });
        body(carried, false);
        self.with(|state| {
            // what a run was given and keeps, unless it keeps what it hands on too, and what it made and leaves; what is only
            // carried goes with the next run
            let keeps =
                |id: StorageId, others: usize| id != NOTHING && state.references(id) as usize > others;
            let own = |id: StorageId| keeps(id, holds(carried, id));
            let kept = given.into_iter().zip(carried.iter()).filter(|((id, others), tensor)| {
                keeps(*id, *others) && own(*id) && !own(tensor.value.storage)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::Device;
    use crate::hardware::Gpu;
    use crate::memory::{Parts, Peak};
    use crate::units::Bytes;

    /// Live bytes and their highest point after a loop that asks for what the next run needs before it lets go of its own.
    fn prefetched(
        run: impl for<'m> Fn(&'m Machine, &mut dyn FnMut(&mut [Tensor<'m>; 2]), &mut [Tensor<'m>; 2]),
    ) -> (Parts, Peak) {
        let machine = Machine::new(Device::of(&Gpu::custom(Bytes::gib(8.0))), None);
        let make = |numel: u64| {
            machine.tensor(|state| {
                Value::plain(state.alloc(numel, Dtype::F32, &torch::ZEROS), numel, Dtype::F32)
            })
        };
        let (mut kept, mut carried) = (Vec::new(), [make(1 << 10), make(1 << 20)]);
        run(
            &machine,
            &mut |[hidden, weight]| {
                let next = make(1 << 20);
                let output = make(1 << 10);
                kept.push(std::mem::replace(hidden, output));
                *weight = next;
            },
            &mut carried,
        );
        machine.with(|state| (state.ledger.parts, state.ledger.peak()))
    }

    #[test]
    fn a_loop_carries_what_the_next_run_needs() {
        const TIMES: u64 = 7;
        let each = prefetched(|_, body, carried| (0..TIMES).for_each(|_| body(carried)));
        let one = prefetched(|machine, body, carried| {
            machine.repeat(TIMES, Alike::All { held: &mut None, given: None }, carried, &mut |carried, _| {
                body(carried)
            });
        });
        assert_eq!(one, each);
        assert_eq!(
            each.1.bytes,
            Bytes((2 << 22) + (TIMES << 12) + (1 << 12)),
            "two of the large, all of the small"
        );
    }

    /// Live bytes and their highest point after loops of so many runs over what was there before, of which each run makes a smaller
    /// one and lets go of the larger: each run by itself, or one on behalf of the others.
    fn shrunk(loops: &[u64], by_itself: bool) -> (Parts, Peak) {
        const RUNS: u64 = 12;
        let machine = Machine::new(Device::of(&Gpu::custom(Bytes::gib(8.0))), None);
        let make = |numel: u64| {
            machine.tensor(|state| {
                Value::plain(state.alloc(numel, Dtype::F32, &torch::ZEROS), numel, Dtype::F32)
            })
        };
        let mut caches: std::collections::VecDeque<Tensor<'_>> = (0..RUNS).map(|_| make(1 << 20)).collect();
        let hidden = make(3 << 10);
        let mut held = Some(hidden.clone());
        let mut carried = [hidden];
        let mut body = |[hidden]: &mut [_; 1]| {
            let smaller = make((1 << 20) - (1 << 10));
            drop(caches.pop_front());
            caches.push_back(smaller);
            *hidden = make(3 << 10);
        };
        for times in loops {
            if by_itself {
                (0..*times).for_each(|_| body(&mut carried));
            } else {
                let alike = Alike::All { held: &mut held, given: None };
                machine.repeat(*times, alike, &mut carried, &mut |carried, _| body(carried));
            }
        }
        machine.with(|state| (state.ledger.parts, state.ledger.peak()))
    }

    #[test]
    fn what_is_held_is_beside_all_runs_but_the_first() {
        for loops in [&[1, 4][..], &[4], &[2, 3], &[1, 1, 6], &[12]] {
            assert_eq!(shrunk(loops, false), shrunk(loops, true), "{loops:?}");
        }
    }
}
