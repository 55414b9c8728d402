//! The log-probabilities of labels from logits that are all there, by PyTorch's own functions, one sequence after the other.
//!
//! Source: trl 1.9 and 1.12, trainer/utils.py `selective_log_softmax`; axolotl 0.19 monkeypatch/trainer/utils.py; compared with the
//! allocator's trace.

use crate::dtype::Dtype;
use crate::step::autograd::{Grad, Node, Results, only};
use crate::step::machine::State;
use crate::step::tensor::{Layout, Tensor, Value};
use crate::step::what::{Source, What, torch};

static LOGITS_GRADIENT: What = What::own(
    "logits gradient",
    "the gradient of the logits: of those that are asked for, sequence by sequence, then together, then filled up to all tokens",
    SELECTED,
);
static ROW_LOG_PROBS: What = What::own(
    "log-probabilities of a sequence",
    "one number per token and vocabulary entry of one sequence",
    SELECTED,
);
static FLAT_LOGITS: What = What::own(
    "flat logits",
    "a contiguous copy of the logits but those of each last token, kept for backward",
    FUSED,
);
static LOG_SUM_EXP: What =
    What::own("logsumexp", "the logarithm of the sum of each token's exponentials", FUSED);
const FUSED: Source = Source::At("axolotl, monkeypatch/trainer/utils.py, selective_log_softmax");
const SELECTED: Source = Source::At("trl, trainer/utils.py, selective_log_softmax");

/// Which logits are asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows {
    pub sequences: u64,
    /// Logits of each sequence.
    pub each: u64,
    /// They were divided in place, as PPO does by its temperature.
    pub divided: bool,
}

/// The most sequences that are run one by one: more are run as so many longer ones.
const MOST: u64 = 1024;

impl Rows {
    /// How many are run one by one, and the logits of each.
    fn one_by_one(self) -> (u64, u64) {
        let count = self.sequences.clamp(1, MOST);
        (count, self.all().div_ceil(count))
    }

    /// Logits of all sequences.
    fn all(self) -> u64 {
        self.each.saturating_mul(self.sequences)
    }
}

impl<'m> Tensor<'m> {
    /// `selective_log_softmax(logits[…], labels)` of so many labels: a slice of all logits. float32 logits are kept and a logarithm of a
    /// sum is taken of them, of others each sequence's log-probabilities are kept.
    pub(super) fn selective_log_softmax(&self, rows: Rows, labels: u64) -> Tensor<'m> {
        self.apply(|state, x| {
            let asked = Value { numel: rows.all(), ..Value::plain(x.storage, 0, x.dtype) };
            let node = state.node([x, &asked], move |state, node, _| selected_backward(state, node, rows));
            if x.dtype == Dtype::F32 {
                // torch.gather, and torch.logsumexp of each sequence
                state.save(node, x.storage);
            }
            let mut last = None;
            let (count, each) = rows.one_by_one();
            for _ in 0..count {
                if x.dtype == Dtype::F32 {
                    state.scratch(each.saturating_mul(x.dtype.bytes()), &torch::EXP);
                    continue;
                }
                let log_probs = state.alloc(each, x.dtype, &ROW_LOG_PROBS);
                state.save(node, log_probs);
                if let Some(before) = last.replace(log_probs) {
                    state.release(before);
                }
            }
            let scores = state.alloc(labels, x.dtype, &torch::LOG_PROBABILITIES);
            if let Some(last) = last {
                state.release(last);
            }
            Value::plain(scores, labels, x.dtype).at(node.output(0))
        })
    }
}

impl<'m> Tensor<'m> {
    /// axolotl's `selective_log_softmax`: one kernel over a contiguous copy of the slice; of one sequence it is contiguous.
    pub(super) fn fused_log_softmax(&self, rows: Rows, labels: u64) -> Tensor<'m> {
        self.apply(|state, x| {
            let asked = Value { numel: rows.all(), ..Value::plain(x.storage, 0, x.dtype) };
            let node = state.node([x, &asked], |state, node, _| {
                let [logits, asked, _] = node.inputs;
                let flat = state.alloc(asked.numel, logits.dtype, &LOGITS_GRADIENT);
                state.clear_saved(node, 0);
                let whole = state.alloc_for(logits.storage, logits.numel, logits.dtype, &LOGITS_GRADIENT);
                state.release(flat);
                only(Grad::new(whole, logits.numel, logits.dtype, Layout::Tokens))
            });
            let flat = (rows.sequences > 1).then(|| state.alloc(rows.all(), x.dtype, &FLAT_LOGITS));
            state.save(node, flat.unwrap_or(x.storage));
            let scores = state.alloc(labels, Dtype::F32, &torch::LOG_PROBABILITIES);
            let sums = state.alloc(labels, Dtype::F32, &LOG_SUM_EXP);
            state.save(node, sums);
            state.release(sums);
            if let Some(flat) = flat {
                state.release(flat);
            }
            let scores = if x.dtype == Dtype::F32 {
                scores
            } else {
                let narrow = state.alloc(labels, x.dtype, &torch::CAST);
                state.release(scores);
                narrow
            };
            Value::plain(scores, labels, x.dtype).at(node.output(0))
        })
    }
}

/// The gradients of the sequences are stacked; a slice's gradient is that of all tokens, and division in place copies it
/// (`CopySlices`).
fn selected_backward(state: &mut State, node: &Node, rows: Rows) -> Results {
    let [logits, asked, _] = node.inputs;
    let (count, row) = rows.one_by_one();
    let mut each = Vec::new();
    for index in 0..count {
        if logits.dtype == Dtype::F32 {
            let [minus, exp] = [&torch::SUB, &torch::EXP].map(|what| state.alloc(row, logits.dtype, what));
            each.push(state.alloc(row, logits.dtype, &LOGITS_GRADIENT));
            state.release(exp);
            state.release(minus);
        } else {
            let gathered = state.alloc(row, logits.dtype, &torch::ZEROS);
            each.push(state.alloc(row, logits.dtype, &LOGITS_GRADIENT));
            state.release(gathered);
            let last_first = u32::try_from(count - 1 - index).unwrap_or(u32::MAX);
            state.clear_saved(node, last_first);
        }
    }
    let stacked = state.alloc(asked.numel, logits.dtype, &LOGITS_GRADIENT);
    each.into_iter().for_each(|own| state.release(own));
    if logits.dtype == Dtype::F32 {
        // torch.gather
        state.scratch(asked.numel.saturating_mul(logits.dtype.bytes()), &torch::ZEROS);
        state.clear_saved(node, 0);
    }
    let whole = state.alloc_for(logits.storage, logits.numel, logits.dtype, &LOGITS_GRADIENT);
    state.release(stacked);
    let mut result = whole;
    if rows.divided {
        result = state.alloc_for(logits.storage, logits.numel, logits.dtype, &LOGITS_GRADIENT);
        let [slice, divided] = [(); 2].map(|()| state.alloc(asked.numel, logits.dtype, &LOGITS_GRADIENT));
        state.release(slice);
        state.release(divided);
        state.release(whole);
    }
    only(Grad::new(result, logits.numel, logits.dtype, Layout::Tokens))
}
