//! What of learning from answers under Unsloth stands in a job's way.

use super::acts::engine;
use super::answers::rows_of_answers;
use crate::issue::{Field, Issue};
use crate::job::{Batch, Job};
use crate::scenario::{Lengths, Precision};

/// What of preferences under Unsloth is not modelled: what its `DPOTrainer` does with the copy of the adapters that it makes.
pub(super) fn unsloths_preference(job: &Job, policy: usize, batch: Batch) -> Result<(), Issue> {
    let refuse = |field, message, fix| Err(Issue::error(field, message).with_fix(fix));
    let policy = &job.members[policy];
    if job.cluster.has_engine() {
        return engine(job, "preferences under Unsloth", "are");
    }
    if policy.precision != Precision::AmpBf16Weights {
        let message = "preferences under Unsloth were measured in bf16 autocast alone";
        return refuse(Field::Precision, message, "choose bf16 autocast over bf16 weights");
    }
    rows_of_answers(batch)
}

/// What of reinforcement under Unsloth is not modelled: what its `GRPOTrainer` does with a micro-batch of answers that it packs.
pub(super) fn unsloths_rewards(job: &Job, policy: usize, batch: Batch) -> Result<(), Issue> {
    let refuse = |field, message, fix| Err(Issue::error(field, message).with_fix(fix));
    if job.cluster.has_engine() {
        return engine(job, "reinforcement under Unsloth", "is");
    }
    if job.members[policy].precision != Precision::AmpBf16Weights {
        let message = "reinforcement under Unsloth was measured in bf16 autocast alone";
        return refuse(Field::Precision, message, "choose bf16 autocast over bf16 weights");
    }
    if batch.lengths != Lengths::Equal {
        let message =
            "lengths that vary are not modelled of answers: nothing says whether prompt or answer is shorter";
        return refuse(Field::Lengths, message, "choose equal lengths");
    }
    if batch.sequences < 2 {
        let message = "one answer at a time is not packed by Unsloth, whose other code is not modelled";
        return refuse(Field::Batch, message, "choose two at least, as many as a prompt has answers");
    }
    Ok(())
}

/// That its own generation is not modelled, whose answers share their prompt.
pub(super) fn unsloths_answers() -> Result<(), Issue> {
    let message =
        "answers that Unsloth generates itself are not modelled: it then shares the prompt among them";
    Err(Issue::error(Field::Rollouts, message).with_fix("have vLLM generate the answers"))
}
