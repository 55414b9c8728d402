//! The trainer's evaluation: batch after batch without gradients, and what it keeps of them.
//!
//! Source: transformers 5.17 trainer.py `evaluation_loop`, trainer_pt_utils.py `EvalLoopContainer`, `nested_concat`; accelerate data_loader.py
//! `DataLoaderShard`; compared with the allocator's trace.

use super::{DIFFERENT, Rounds};
use crate::dtype::Dtype;
use crate::job::{Batch, HeadKind};
use crate::memory::{Category, Phase, Stage};
use crate::scenario::{Evaluates, Evaluation};
use crate::step::tensor::{Tensor, Value};
use crate::step::what::{Source, What};
use crate::units::Bytes;

static INPUTS: What = What::own(
    "evaluation batch",
    "token ids, labels and mask of a batch of the evaluation",
    Source::At(LOOP),
);
static KEPT: What = What::own(
    "logits of the evaluation",
    "those of all batches up to now, joined anew with every batch: they wait on the GPU for the metrics",
    Source::At("transformers, trainer_pt_utils.py, EvalLoopContainer"),
);
static KEPT_LABELS: What = What::own(
    "labels of the evaluation",
    "those of all batches up to now, beside their logits",
    Source::At("transformers, trainer_pt_utils.py, EvalLoopContainer"),
);
static GATHERED: What = What::own(
    "gathered logits",
    "those of a batch of every GPU, which each GPU is given for the metrics",
    Source::At(GATHER),
);
static GATHERED_LABELS: What =
    What::own("gathered labels", "those of a batch of every GPU, beside their logits", Source::At(GATHER));

const GATHER: &str = "accelerate, utils/operations.py, gather";
const LOOP: &str = "transformers, trainer.py, evaluation_loop";

/// Logits or labels of the batches that are joined.
#[derive(Default)]
struct Joined<'a> {
    /// Of all batches up to now: of one alone the batch's own.
    all: Option<Tensor<'a>>,
    /// The last batch's, which a variable holds.
    last: Option<Tensor<'a>>,
}

impl<'a> Joined<'a> {
    /// `EvalLoopContainer.add`: those of the batch of that number, counted from 1, joined to those before it.
    fn add(&mut self, rounds: &Rounds<'a>, new: Tensor<'a>, number: u64, (category, what): Kind) {
        let of_one = new.value.numel;
        let join = |batches: u64| {
            let numel = of_one.saturating_mul(batches);
            let bytes = numel.saturating_mul(new.value.dtype.bytes());
            let dtype = new.value.dtype;
            rounds
                .machine
                .tensor(|state| Value::plain(state.alloc_as(category, bytes, dtype, what), numel, dtype))
        };
        if number > 1 && self.all.as_ref().is_none_or(|all| all.value.numel / of_one.max(1) != number - 1) {
            // batches that are not run leave as much
            self.all = Some(join(number - 1));
        }
        self.last = Some(new.clone());
        self.all = Some(if number == 1 { new } else { join(number) });
    }
}

type Kind = (Category, &'static What);

/// What is kept of one batch.
#[derive(Clone, Copy)]
struct Kept {
    /// Logits.
    elements: u64,
    dtype: Dtype,
    /// Labels.
    labels: u64,
}

impl Kept {
    const NOTHING: Kept = Kept { elements: 0, dtype: Dtype::F32, labels: 0 };

    /// The most that so many batches take of the CPU's memory, of which some at a time go there: `np.concatenate` makes all of them once
    /// more beside those that are there and the new ones. NumPy has no bfloat16, of which `nested_numpify` makes float32.
    fn on_host(self, batches: u64, at_a_time: u64) -> u64 {
        let times = |count: u64, bytes: u64| count.saturating_mul(bytes).saturating_mul(batches);
        let of = |logits: u64, labels: u64| {
            times(self.elements, logits)
                .saturating_add(times(self.labels, labels.saturating_mul(Dtype::I64.bytes())))
        };
        let [moved, kept] = match self.dtype {
            Dtype::Bf16 => [Dtype::Bf16.bytes(), Dtype::F32.bytes()],
            dtype => [0, dtype.bytes()],
        };
        if at_a_time < batches { of(kept * 2, 2) } else { of(moved + kept, 1) }
    }
}

impl<'a> Rounds<'a> {
    /// An evaluation. Of the batches whose logits are joined no more are run than where it matters what each leaves in the allocator's
    /// cache, the last two always; of those that leave nothing the first two, which every other is like.
    pub(super) fn evaluate(&mut self, act: u16, member: usize, batch: Batch, how: Evaluation) {
        let phase = Phase { act, stage: Stage::Evaluate };
        self.notes.begin(phase);
        let keeps = how.keeps == Evaluates::Metrics;
        // batches of which nothing but the loss is kept are alike, however many there are
        let how =
            if keeps { how } else { Evaluation { batches: DIFFERENT * how.accumulation.max(1), ..how } };
        let joined = how.joined();
        let parts = (how.batches / joined, how.batches % joined);
        let runs = (0..parts.0.min(DIFFERENT)).map(|_| joined).chain((parts.1 > 0).then_some(parts.1));
        for batches in runs {
            let goes = how.accumulation > 0 && batches == joined;
            let of_one = self.evaluate_part(member, batch, keeps, &numbers(batches, keeps, self.most_passes));
            self.evaluated_on_host = Bytes(of_one.on_host(how.batches, joined));
            if goes {
                self.machine.with(|state| state.empty_cache());
            }
        }
        self.notes.end(phase);
    }

    /// So many batches, after which what was kept of them goes to the CPU's memory: what that is of one.
    fn evaluate_part(&self, member: usize, batch: Batch, keeps: bool, numbers: &[u64]) -> Kept {
        let model = &self.members[member].model;
        let (mut inputs, mut logits, mut labels) = (Vec::new(), Joined::default(), Joined::default());
        let mut kept = Kept::NOTHING;
        for number in numbers {
            let next = self.inputs(member, batch);
            inputs = next;
            let Some(own) = model.predicted(batch, keeps) else { continue };
            // the variables have this batch's own now
            (logits.last, labels.last) = (None, None);
            let new = self.gathered(own, (Category::Logits, &GATHERED));
            kept = Kept { elements: new.value.numel, dtype: new.value.dtype, ..kept };
            logits.add(self, new, *number, (Category::Logits, &KEPT));
            if let Some(own) = inputs.last() {
                let new = self.gathered(own.clone(), (Category::Batch, &GATHERED_LABELS));
                kept.labels = new.value.numel;
                labels.add(self, new, *number, (Category::Batch, &KEPT_LABELS));
            }
        }
        drop((inputs, logits, labels));
        kept
    }

    /// `gather_for_metrics`: that of all GPUs, on every one of them.
    fn gathered(&self, own: Tensor<'a>, (category, what): Kind) -> Tensor<'a> {
        let ranks = self.cluster.gpus;
        if ranks == 1 {
            return own;
        }
        let Value { numel, dtype, .. } = own.value;
        let numel = numel.saturating_mul(ranks);
        self.machine.tensor(|state| {
            let bytes = numel.saturating_mul(dtype.bytes());
            Value::plain(state.alloc_as(category, bytes, dtype, what), numel, dtype)
        })
    }

    /// A batch on the GPU: ids, a mask where it has one, and labels.
    fn inputs(&self, member: usize, batch: Batch) -> Vec<Tensor<'a>> {
        let own = |numel: u64| {
            self.machine.tensor(|state| {
                let bytes = numel.saturating_mul(Dtype::I64.bytes());
                Value::plain(state.alloc_as(Category::Batch, bytes, Dtype::I64, &INPUTS), numel, Dtype::I64)
            })
        };
        let mut inputs = vec![own(batch.tokens())];
        inputs.extend(batch.mask.is_given().then(|| own(batch.tokens())));
        let labels = match self.members[member].model.member.head {
            HeadKind::Numbers(_) => batch.sequences,
            HeadKind::Language | HeadKind::Embedding(_) => batch.tokens(),
        };
        inputs.push(own(labels));
        inputs
    }
}

/// Which of so many batches are run: all, or at most so many, evenly spread, and the last two.
fn numbers(batches: u64, keeps: bool, most: u64) -> Vec<u64> {
    if !keeps {
        return (1..=batches.min(DIFFERENT)).collect();
    }
    let run = batches.min(most.max(DIFFERENT));
    let early = run.saturating_sub(DIFFERENT);
    let before = batches.saturating_sub(DIFFERENT);
    let spread =
        (0..early).map(|index| 1 + (u128::from(index) * u128::from(before) / u128::from(early)) as u64);
    spread.chain(batches - run.min(DIFFERENT) + 1..=batches).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Joined in parts, all of them are there twice; at once they are there once, and in bfloat16 beside their float32 copy.
    #[test]
    fn what_is_kept_goes_to_the_cpu() {
        let kept = |dtype| Kept { elements: 1000, dtype, labels: 10 };
        assert_eq!(kept(Dtype::F32).on_host(100, 4), 100 * 2 * (4 * 1000 + 8 * 10));
        assert_eq!(kept(Dtype::F32).on_host(100, 100), 100 * (4 * 1000 + 8 * 10));
        assert_eq!(kept(Dtype::Bf16).on_host(100, 100), 100 * (6 * 1000 + 8 * 10));
        assert_eq!(kept(Dtype::Bf16).on_host(100, 1), 100 * 2 * (4 * 1000 + 8 * 10));
        assert_eq!(Kept { elements: u64::MAX, ..kept(Dtype::F32) }.on_host(u64::MAX, 1), u64::MAX);
        assert_eq!(Kept::NOTHING.on_host(100, 1), 0);
    }

    #[test]
    fn the_last_two_batches_are_run_always() {
        assert_eq!(numbers(1, true, 2), [1]);
        assert_eq!(numbers(4, true, 16), [1, 2, 3, 4]);
        assert_eq!(numbers(100, true, 2), [99, 100]);
        assert_eq!(numbers(100, true, 6), [1, 25, 50, 74, 99, 100]);
        assert_eq!(numbers(100, false, 6), [1, 2]);
    }
}
