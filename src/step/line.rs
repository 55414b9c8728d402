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
        let total = times.saturating_mul(self.part.times);
        let in_flight = self.warm_up(total).saturating_add(1).min(total) as u64;
        let (stage, stages) = (self.part.stage + 1, self.stages as u64);
        let [layers, of_first] = [self.part.stage, 0].map(|stage| self.part.layers_of(stage));
        let rank = Rank { stage, stages, layers, of_first, in_flight, interleaved: self.interleaved };
        (stages > 1).then_some(rank)
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
    /// `recv_tensor_from_previous_stage`: for which part what comes after a pass is, where something comes.
    pub fn receives(
        &self,
        number: usize,
        forward: bool,
        part_of: &dyn Fn(usize, bool) -> usize,
    ) -> Option<usize> {
        let leads = if forward { self.is_first } else { self.is_last };
        if !leads {
            return Some(part_of(number + 1, forward));
        }
        // the other end is so many passes behind
        let part = part_of(number.checked_sub(self.stages - 1)?, forward);
        // what the last part makes there is handed on to none
        if forward { Some(part + 1).filter(|next| *next < self.parts) } else { part.checked_sub(1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line([stages, stage, parts]: [u64; 3]) -> Line {
        let mut part = Share::WHOLE;
        (part.stage, part.times) = (stage, parts as usize);
        (part.is_first, part.is_last) = (stage == 0, stage + 1 == stages);
        Line { stages: stages as usize, part, interleaved: parts > 1 }
    }

    /// What `get_pp_rank_microbatches` of Megatron-core's schedules.py returns: passes in all, and those before the first backward.
    #[test]
    fn passes_before_the_first_backward_are_megatrons() {
        for (at, micro_batches, total, warm_up) in [
            ([4, 0, 1], 8, 8, 3),
            ([4, 1, 1], 8, 8, 2),
            ([4, 3, 1], 8, 8, 0),
            // all of them
            ([4, 0, 1], 2, 2, 2),
            ([1, 0, 1], 8, 8, 0),
            ([4, 0, 2], 8, 16, 10),
            ([4, 1, 2], 8, 16, 8),
            ([4, 3, 2], 8, 16, 4),
            ([4, 0, 2], 4, 8, 8),
            ([2, 0, 3], 2, 6, 6),
            ([2, 1, 3], 6, 18, 4),
            ([8, 2, 4], 16, 64, 34),
        ] {
            let line = line(at);
            assert_eq!(line.warm_up(total), warm_up, "{at:?}");
            let [stages, stage, _] = at;
            // one more runs before the first backward, unless none is left
            let in_flight = warm_up as u64 + u64::from(warm_up < total);
            let rank = (stages > 1).then_some(Rank {
                stage: stage + 1,
                stages,
                layers: line.part.layers_of(stage),
                of_first: line.part.layers_of(0),
                in_flight,
                interleaved: line.interleaved,
            });
            assert_eq!(line.rank(micro_batches), rank, "{at:?}");
        }
    }

    /// Beyond those in flight the micro-batches of a step are like those before: two more show what one leaves for the next. Interleaved ones
    /// come in groups of as many as there are stages.
    #[test]
    fn no_more_micro_batches_run_than_differ() {
        for (at, micro_batches, run) in [
            ([4, 0, 1], 100, 6),
            ([4, 0, 1], 5, 5),
            ([4, 3, 1], 100, 3),
            ([1, 0, 1], 100, 3),
            ([1, 0, 1], 1, 1),
            ([4, 0, 2], 100, 12),
            ([4, 3, 2], 8, 8),
        ] {
            assert_eq!(line(at).micro_batches(micro_batches), run, "{at:?}");
        }
    }

    /// What is repeated changes nothing: a step of 64 micro-batches needs what one of 16 does, of which as many are in flight.
    #[test]
    fn a_step_of_more_micro_batches_needs_no_more() {
        for layout in ["pp=4&stage=1", "pp=4&stage=4", "pp=4&stage=2&vpp=2", "pp=4&stage=4&vpp=2", "pp=1"] {
            let [few, many] = [16, 64].map(|times| {
                let link = format!(
                    "v=1&m=meta-llama/Llama-3.2-1B&method=full&o=adamw&attn=eager&st=megatron&gpu=80GB&gpus=4&s=512&{layout}&ga={times}"
                );
                let shared = crate::share::decode(&link);
                assert!(shared.notices.is_empty(), "{:?}", shared.notices);
                let answer = crate::estimate(&shared.scenarios[0]);
                let memory = answer.memory.unwrap_or_else(|| panic!("{link}: {:?}", answer.issues));
                (memory.peak(), memory.resting, memory.rank)
            });
            assert_eq!(few, many, "{layout}");
        }
    }

    /// What `recv_tensor_from_previous_stage` returns for three stages that run three micro-batches in two parts.
    #[test]
    fn what_a_stage_receives_is_for_the_part_that_runs_next() {
        let table = table(3, 2, 3);
        let part_of = |number: usize, forward: bool| {
            let part = table[number].1;
            if forward { part } else { 1 - part }
        };
        let later = |parts: [usize; 5]| parts.map(Some);
        for (stage, forward, parts) in [
            (0, true, [None, None, Some(1), Some(1), Some(1)]),
            (1, true, later([0, 0, 1, 1, 1])),
            (2, true, later([0, 0, 1, 1, 1])),
            (0, false, later([1, 1, 0, 0, 0])),
            (1, false, later([1, 1, 0, 0, 0])),
            (2, false, [None, None, Some(0), Some(0), Some(0)]),
        ] {
            let ends = Ends { is_first: stage == 0, is_last: stage == 2, stages: 3, parts: 2 };
            for (number, part) in parts.into_iter().enumerate() {
                assert_eq!(ends.receives(number, forward, &part_of), part, "{stage}: {number} {forward}");
            }
        }
        // what the last part makes at the other end goes nowhere
        let first = Ends { is_first: true, is_last: false, stages: 3, parts: 2 };
        assert_eq!(first.receives(5, true, &part_of), None);
        let last = Ends { is_first: false, is_last: true, ..first };
        assert_eq!(last.receives(5, false, &part_of), None);
    }

    #[test]
    fn micro_batches_go_through_the_parts_in_groups() {
        // the example of get_schedule_table's own comment: PP2 N3M5 with VP2
        let expected = [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1), (3, 0), (4, 0), (3, 1), (4, 1)];
        assert_eq!(table(5, 2, 3), expected);
    }
}
