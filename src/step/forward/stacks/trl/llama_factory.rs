//! LLaMA-Factory's trainer of pairs: logits in float32, and of them the log-probabilities of the whole vocabulary.
//!
//! Source: LLaMA-Factory 0.9.5 train/dpo/trainer.py `concatenated_forward` and train/trainer_utils.py `get_batch_logps`; compared with the
//! allocator's trace.

use super::{LABEL_MASK, Scored};
use crate::dtype::Dtype;
use crate::memory::Category;
use crate::scenario::LossKernel;
use crate::step::autograd::{Grad, Node, Results, only};
use crate::step::forward::inputs::Shared;
use crate::step::forward::{Given, Hidden, Output, Pass};
use crate::step::machine::State;
use crate::step::tensor::{Layout, Tensor, Value};
use crate::step::what::{Source, What, roles, torch};

static CLONED: What = What::own("clone", "the batch's ids, mask or labels once more", TRAINER);
static CONTIGUOUS: What =
    What::own("contiguous logits", "a copy of the logits but those of each last token", LOG_PROBS);
static ALL_LOG_PROBS: What = What::own(
    "log-probabilities of the vocabulary",
    "one number per token and vocabulary entry, of which the labels' are taken",
    LOG_PROBS,
);
static LOGITS_GRADIENT: What = What::own(
    "logits gradient",
    "the gradient of the log-probabilities, then of the logits but those of each last token, then of all",
    LOG_PROBS,
);
const TRAINER: Source = Source::At("LLaMA-Factory, train/dpo/trainer.py, concatenated_forward");
const LOG_PROBS: Source = Source::At("LLaMA-Factory, train/trainer_utils.py, get_batch_logps");

impl<'a> Pass<'_, 'a> {
    /// The log-probability of every token but each first one.
    pub(super) fn all_log_probs(&self, hidden: Hidden<'a>) -> (Scored<'a>, Given<Shared<Value>>) {
        let scored = self.machine.as_category(Category::Logits, &roles::HEAD, || {
            let logits = self.all_logits(hidden.states, &|| {});
            let labels = self.scored_tokens();
            let vocabulary = logits.value.numel / self.batch.tokens().max(1);
            let index = self.of_tokens(labels, Dtype::I64, &torch::SHIFTED_LABELS);
            let mask = self.constant(labels, Dtype::Bool, &LABEL_MASK);
            let log_probs = logits.taken_log_softmax(labels.saturating_mul(vocabulary), &index, labels);
            let log_probs = log_probs.masked_fill(&mask);
            // its halves are in the output that waits for the loss
            Scored { log_probs, others: vec![logits], logits: None, mask, balance: None }
        });
        (scored, hidden.given)
    }

    /// The batch's tensors once more, which its trainer makes where there is a reference.
    pub fn cloned_batch(&self) -> Option<[Tensor<'a>; 3]> {
        (self.member.loss == LossKernel::LogSoftmax).then(|| {
            self.machine.as_category(Category::Batch, &roles::HEAD, || {
                [(); 3].map(|()| self.of_tokens(self.batch.tokens(), Dtype::I64, &CLONED))
            })
        })
    }

    /// `odds_ratio_loss` and `simpo_loss`: pairs without a reference.
    pub(super) fn pairs_by_themselves(&self) -> Output<'a> {
        let (scored, shared) = self.all_log_probs(self.hidden());
        let half = self.batch.sequences / 2;
        let loss = self.machine.as_category(Category::Logits, &roles::HEAD, || {
            let row = scored.log_probs.value.numel / self.batch.sequences.max(1);
            let [chosen, rejected] = scored.log_probs.sum_rows(row).scale().split([half, half]);
            let compared = chosen.minus(&rejected).scale().keeping_input(&torch::LOG_SIGMOID);
            compared.negate().sum_rows(half)
        });
        drop(scored);
        Output { loss, outputs: Vec::new(), shared }
    }
}

impl<'m> Tensor<'m> {
    /// `torch.gather(logits[:, :-1].log_softmax(-1), 2, labels)`: of so many logits the log-probabilities of so many labels.
    fn taken_log_softmax(&self, taken: u64, index: &Tensor<'m>, labels: u64) -> Tensor<'m> {
        self.apply(|state, x| {
            let asked = Value { numel: taken, ..Value::plain(x.storage, 0, x.dtype) };
            let node = state.node([x, &asked], taken_backward);
            let log_probs = state.alloc(taken, x.dtype, &ALL_LOG_PROBS);
            state.scratch(taken.saturating_mul(x.dtype.bytes()), &CONTIGUOUS);
            state.save(node, log_probs);
            state.save(node, index.value.storage);
            let scores = state.alloc(labels, x.dtype, &torch::LOG_PROBABILITIES);
            state.release(log_probs);
            Value::plain(scores, labels, x.dtype).at(node.output(0))
        })
    }
}

/// torch.gather's gradient is as large as what was gathered of; a slice's gradient is that of all tokens.
fn taken_backward(state: &mut State, node: &Node, _: &mut Grad) -> Results {
    let [logits, asked, _] = node.inputs;
    let gathered = state.alloc(asked.numel, logits.dtype, &torch::ZEROS);
    let sliced = state.alloc(asked.numel, logits.dtype, &LOGITS_GRADIENT);
    state.release(gathered);
    state.clear_saved(node, 0);
    let whole = state.alloc_for(logits.storage, logits.numel, logits.dtype, &LOGITS_GRADIENT);
    state.release(sliced);
    only(Grad::new(whole, logits.numel, logits.dtype, Layout::Tokens))
}
