//! What the trainer evaluates between steps.

use super::super::key::{Group, Key, Place, Value, ValueKind};
use super::super::matters::{any, when_evaluated, with_evaluation, with_metrics};
use super::super::nearest::nearest;
use super::super::values::{choice, count, set_count};
use crate::scenario::count::Count;
use crate::scenario::{Evaluates, Field};

pub(super) const KEYS: &[Key] = &[
    Key {
        link: "eval",
        name: "evaluation",
        label: "Evaluation",
        help: "Whether the trainer evaluates after some of its steps (eval_strategy), and whether it keeps the logits of all batches for a compute_metrics",
        field: Field::Evaluation,
        group: Group::Evaluation,
        place: Place::Folded,
        value: choice!(Evaluates, evaluation.keeps),
        matters: with_evaluation,
        band: |scenario| match scenario.evaluation.keeps {
            _ if !scenario.evaluates() => "",
            Evaluates::Off => "",
            Evaluates::Loss => "evaluated",
            Evaluates::Metrics => "evaluated-logits",
        },
    },
    Key {
        link: "evb",
        name: "eval-batch-size",
        label: "Evaluation batch size",
        help: "Sequences of a batch of the evaluation (per_device_eval_batch_size): 8 in the libraries, whatever the micro-batch size of the training is",
        field: Field::EvalBatch,
        group: Group::Evaluation,
        place: Place::Folded,
        value: count!(Sequences, "evaluation batch size", evaluation.batch),
        matters: when_evaluated,
        band: any,
    },
    Key {
        link: "evacc",
        name: "eval-accumulation-steps",
        label: "Evaluation accumulation",
        help: "Batches after which what is kept of them, logits for metrics above all, goes to the CPU's memory and the allocator's cache is emptied (eval_accumulation_steps); 0, the libraries' default, keeps all of it on the GPU to the end",
        field: Field::EvalAccumulation,
        group: Group::Evaluation,
        place: Place::Folded,
        value: count!(PassesOrNone, "evaluation accumulation", evaluation.accumulation),
        matters: when_evaluated,
        band: any,
    },
    Key {
        link: "evn",
        name: "eval-batches",
        label: "Evaluation batches",
        help: "Batches of an evaluation: its texts by the evaluation batch size",
        field: Field::EvalBatches,
        group: Group::Evaluation,
        place: Place::Folded,
        value: count!(Passes, "number of evaluation batches", evaluation.batches),
        matters: with_metrics,
        band: any,
    },
];
