//! Where a rank stands in a pipeline of Megatron-core, and what that means for a step's micro-batches.
//!
//! Source: megatron/core/pipeline_parallel/schedules.py of Megatron-core 0.16.1.

use std::cell::RefCell;
use std::rc::Rc;

use super::forward::stacks::megatron::Share;
use super::tensor::Tensor;
use crate::memory::Rank;
use crate::scenario::Cluster;

/// Where a rank stands in the pipeline, and how many micro-batches a step has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    /// How many stages there are.
    pub stages: usize,
    pub part: Share,
    /// Whether stages are interleaved (`forward_backward_pipelining_with_interleaving`).
    pub interleaved: bool,
}

impl Line {
    /// That of a rank that holds such a part.
    pub fn of(cluster: Cluster, part: Share) -> Line {
        let stages = usize::try_from(cluster.layout.pipeline).unwrap_or(usize::MAX).max(1);
        Line { stages, part, interleaved: stages > 1 && cluster.layout.interleaved > 0 }
    }

    /// How many of a step's micro-batches are run: once as many are in flight as ever, the next ones repeat what is done.
    pub fn micro_batches(&self, times: u64) -> usize {
        let times = usize::try_from(times).unwrap_or(usize::MAX).max(1);
        let different = if self.interleaved {
            self.stages.saturating_mul(3).saturating_add(times % self.stages)
        } else {
            self.stages.saturating_sub(self.stage()).saturating_add(2)
        };
        times.min(different)
    }

    /// Which rank stands there, of a pipeline through which so many micro-batches go; none where there is one stage.
    pub fn rank(&self, times: u64) -> Option<Rank> {
        let times = usize::try_from(times).unwrap_or(usize::MAX).max(1);
        let total = if self.interleaved { times.saturating_mul(self.part.times) } else { times };
        let in_flight = self.warm_up(total).saturating_add(1).min(total) as u64;
        let (stage, stages) = (self.part.stage + 1, self.stages as u64);
        (stages > 1).then_some(Rank { stage, stages, in_flight, interleaved: self.interleaved })
    }

    fn stage(&self) -> usize {
        usize::try_from(self.part.stage).unwrap_or(usize::MAX)
    }

    /// Forward passes before the first backward of so many micro-batches.
    pub fn warm_up(&self, total: usize) -> usize {
        let after = self.stages.saturating_sub(self.stage()).saturating_sub(1);
        let passes = if self.interleaved {
            after
                .saturating_mul(2)
                .saturating_add(self.part.times.saturating_sub(1).saturating_mul(self.stages))
        } else {
            after
        };
        passes.min(total)
    }
}

/// What came from the stage before, and its gradient once that is there.
pub(super) struct Received<'a> {
    pub tensor: Tensor<'a>,
    pub gradient: RefCell<Option<Tensor<'a>>>,
}

pub(super) type Input<'a> = Option<Rc<Received<'a>>>;

/// `get_schedule_table`: micro-batch and part of each pass; groups of as many micro-batches as there are stages go through one
/// part after the other.
pub(super) fn table(count: usize, parts: usize, stages: usize) -> Vec<(usize, usize)> {
    let starts = (0..count).step_by(stages.max(1));
    starts
        .flat_map(|start| {
            let end = start.saturating_add(stages).min(count);
            (0..parts).flat_map(move |part| (start..end).map(move |micro_batch| (micro_batch, part)))
        })
        .collect()
}

/// Which end of the pipeline a rank is at.
pub(super) struct Ends {
    pub is_first: bool,
    pub is_last: bool,
    pub stages: usize,
    pub parts: usize,
}

impl Ends {
    /// `recv_tensor_from_previous_stage`: whether something comes after a pass, and for which part it is.
    pub fn receives(
        &self,
        number: usize,
        forward: bool,
        part_of: &dyn Fn(usize, bool) -> usize,
    ) -> (bool, usize) {
        let leads = if forward { self.is_first } else { self.is_last };
        if !leads {
            return (true, part_of(number + 1, forward));
        }
        let behind = self.stages - 1;
        let next =
            if number < behind { part_of(number + 1, forward) } else { part_of(number - behind, forward) };
        let last = if forward { self.parts - 1 } else { 0 };
        let receives = number >= behind && next != last;
        // not read where nothing comes
        let next = if forward { (next + 1).min(self.parts - 1) } else { next.saturating_sub(1) };
        (receives, next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn micro_batches_go_through_the_parts_in_groups() {
        // the example of get_schedule_table's own comment: PP2 N3M5 with VP2
        let expected = [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1), (3, 0), (4, 0), (3, 1), (4, 1)];
        assert_eq!(table(5, 2, 3), expected);
    }
}
