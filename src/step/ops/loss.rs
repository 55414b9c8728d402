//! The loss: cross entropy over the vocabulary.

use crate::dtype::Dtype;
use crate::memory::Category;
use crate::step::autograd::{Grad, like, only};
use crate::step::machine::Machine;
use crate::step::tensor::{Layout, Tensor, Value};
use crate::step::what::{Source, What, torch};

static LOGITS_GRADIENT: What = What::own(
    "log_softmax",
    "the gradient of the logits, one number per token and vocabulary entry",
    Source::Loss,
);
static NLL_GRADIENT: What = What::own(
    "nll_loss",
    "the gradient of the log-probabilities: as large as they are, nearly all zeros",
    Source::Loss,
);
static LOG_SOFTMAX: What = What::step("log_softmax", "log-probabilities, saved for backward");
static NLL_LOSS: What =
    What::own("nll_loss", "the loss itself: one number, kept by the script", Source::Loss);
static NLL_WEIGHT: What =
    What::own("nll_loss (total weight)", "how many labels count, by which the loss is divided", Source::Loss);
static PADDED_LABELS: What =
    What::own("padded labels", "the labels, filled up by one per sequence", Source::Loss);

/// The most chunks that a sequence is cut into: longer ones are cut into longer chunks.
const MOST_CHUNKS: u64 = 200;

/// Lengths of the chunks of `whole`, each of `length` but the last.
pub(in crate::step) fn chunks(whole: u64, length: u64) -> Vec<u64> {
    let length = length.max(whole.div_ceil(MOST_CHUNKS)).max(1);
    let full = whole / length;
    let rest = whole.saturating_sub(full.saturating_mul(length));
    let mut chunks = vec![length; full as usize];
    chunks.extend((rest > 0).then_some(rest));
    chunks
}

impl<'m> Tensor<'m> {
    /// `nn.functional.cross_entropy(logits, labels)`: log_softmax, then the negative log likelihood, which autocast runs
    /// in float32.
    pub fn cross_entropy(&self, labels: &Tensor<'m>) -> Tensor<'m> {
        self.losses(labels, 1)
    }

    /// The same with `reduction="none"`: a loss for each of the rows.
    pub fn cross_entropies(&self, labels: &Tensor<'m>, rows: u64) -> Tensor<'m> {
        self.losses(labels, rows)
    }

    fn losses(&self, labels: &Tensor<'m>, losses: u64) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], |state, _, grad| only(like(state, grad, &LOGITS_GRADIENT)));
            let raw = state.new_like(x, x.dtype, &LOG_SOFTMAX, node.output(0));
            state.save(node, raw.storage);
            let dtype = if state.autocast.is_some() { Dtype::F32 } else { raw.dtype };
            let log = state.cast(&raw, dtype);
            state.release(raw.storage);
            let node = state.node([&log], |state, node, _| {
                let log = node.inputs[0];
                let storage = state.alloc_for(log.storage, log.numel, log.dtype, &NLL_GRADIENT);
                only(Grad::new(storage, log.numel, log.dtype, Layout::Tokens))
            });
            let loss = state.alloc(losses, log.dtype, &NLL_LOSS);
            let weight = state.alloc(1, log.dtype, &NLL_WEIGHT);
            state.save(node, log.storage);
            state.save_view(node, &labels.value);
            state.save(node, weight);
            state.release(weight);
            state.release(log.storage);
            Value { storage: loss, numel: losses, dtype: log.dtype, edge: node.output(0), ..*x }
        })
    }

    /// The sum of losses of chunks (`torch.cat(losses).sum()`), as far as memory sees it.
    pub fn total(losses: Vec<Tensor<'m>>) -> Option<Tensor<'m>> {
        losses.into_iter().reduce(|sum, loss| sum.add(&loss))
    }
}

/// The labels as `ForCausalLMLoss` shifts them: padded by one, then sliced; the slice is copied unless the batch is one
/// sequence. Returns both: the padded ones are a local variable of that function.
pub(in crate::step) fn shifted_labels(
    machine: &Machine,
    batch: u64,
    sequence: u64,
) -> (Tensor<'_>, Tensor<'_>) {
    let make = |numel: u64, what: &'static What| {
        machine.tensor(|state| {
            let bytes = numel.saturating_mul(Dtype::I64.bytes());
            let storage = state.alloc_as(Category::Logits, bytes, Dtype::I64, what);
            Value::plain(storage, numel, Dtype::I64)
        })
    };
    let tokens = batch.saturating_mul(sequence);
    let padded = make(tokens.saturating_add(batch), &PADDED_LABELS);
    let shifted = if batch > 1 {
        make(tokens, &torch::SHIFTED_LABELS)
    } else {
        padded.with(|value| value.numel = tokens)
    };
    (padded, shifted)
}
