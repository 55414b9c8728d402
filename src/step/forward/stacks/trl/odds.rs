//! trl's trainers of preferences without a reference (ORPO, CPO, SimPO): all logits of both answers, of which a kernel makes the
//! labels' log-probabilities (up to 1.14 PyTorch's own functions do), and the cross entropy of the better ones.
//!
//! Source: trl 1.16 experimental/orpo/orpo_trainer.py and experimental/cpo/cpo_trainer.py `concatenated_forward`,
//! kernels/logprob_entropy.py; compared with the allocator's trace.

use super::selected::Rows;
use crate::dtype::Dtype;
use crate::job::Likelihood;
use crate::memory::Category;
use crate::scenario::{LossKernel, Method, Precision};
use crate::step::autograd::{Grad, Node, Results, only};
use crate::step::forward::{Hidden, Output, Pass};
use crate::step::machine::State;
use crate::step::tensor::{Layout, Tensor, Value};
use crate::step::what::{Source, What, roles, torch};

static BOTH: What =
    What::own("both answers", "the chosen and the rejected ones' ids, labels or mask, joined", Source::Loss);
static SCORED: What = What::own("scored", "which tokens have a label, one byte each", Source::Loss);
static LOGIT_STATISTICS: What =
    What::own("statistics of the logits", "one number for each label, of all its logits", LOG_PROBS);
static LOGITS_GRADIENT: What =
    What::own("logits gradient", "the gradient of the logits by the labels' log-probabilities", LOG_PROBS);
const LOG_PROBS: Source = Source::At("trl, kernels/logprob_entropy.py");

impl<'a> Pass<'_, 'a> {
    /// `concatenated_forward` and `odds_ratio_loss` or `cpo_loss`. The metrics that are logged on the way are gone before backward
    /// and are not followed.
    pub fn odds_loss(&self, likelihood: Likelihood, replace: &dyn Fn()) -> Output<'a> {
        if self.member.loss == LossKernel::LogSoftmax {
            return self.pairs_by_themselves();
        }
        let (tokens, half) = (self.batch.tokens(), self.batch.sequences / 2);
        let both = self.machine.as_category(Category::Batch, &roles::HEAD, || {
            [(); 3].map(|()| self.of_tokens(tokens, Dtype::I64, &BOTH))
        });
        let Hidden { states, given, ids: _, encoded: _ } = self.hidden();
        let loss = self.machine.as_category(Category::Logits, &roles::HEAD, || {
            let logits = self.all_logits(states, replace);
            let labels = match likelihood {
                Likelihood::Answer | Likelihood::Nothing => {
                    self.of_tokens(tokens, Dtype::I64, &torch::LABELS)
                }
                Likelihood::Text => {
                    let ids = self.of_tokens(tokens, Dtype::I64, &torch::IDS);
                    let real = self.of_tokens(tokens, Dtype::Bool, &SCORED);
                    let labels = self.of_tokens(tokens, Dtype::I64, &torch::LABELS);
                    drop((real, ids));
                    labels
                }
            };
            let own = (likelihood != Likelihood::Nothing).then(|| self.chosen_likelihood(&logits));
            let sums = self.label_scores(&logits, likelihood);
            drop((labels, both, logits));
            let [chosen, rejected] = sums.split([half, half]);
            let compared = chosen.minus(&rejected).keeping_input(&torch::LOG_SIGMOID).scale().sum_rows(half);
            match own {
                Some(own) => own.minus(&compared),
                None => compared,
            }
        });
        Output { loss, outputs: Vec::new(), shared: given }
    }

    /// `cross_entropy_loss(all_logits[:len_chosen], labels[:len_chosen])`.
    fn chosen_likelihood(&self, logits: &Tensor<'a>) -> Tensor<'a> {
        let half = self.batch.sequences / 2;
        let rows = half.saturating_mul(self.batch.length.saturating_sub(1));
        let vocabulary = logits.value.numel / self.batch.tokens().max(1);
        let shifted = logits.slice(logits.value.numel / 2).slice(rows.saturating_mul(vocabulary));
        // of one sequence the slice is contiguous
        let (shifted, labels) = match half {
            1 => (shifted, self.machine.unassigned()),
            _ => (shifted.copied(), self.of_tokens(rows, Dtype::I64, &torch::SHIFTED_LABELS)),
        };
        let autocast = self.own_autocast();
        self.machine.with(|state| state.autocast = autocast);
        let loss = shifted.cross_entropy(&labels);
        self.machine.with(|state| state.autocast = None);
        loss
    }

    /// The autocast that the trainer puts around the loss where it prepared 4-bit weights for bfloat16 itself
    /// (`_peft_has_been_casted_to_bf16`). DeepSpeed's engine leaves it while the model runs (runtime/engine.py
    /// `autocast_if_enabled`).
    fn own_autocast(&self) -> Option<Dtype> {
        let bf16 = matches!(self.member.precision, Precision::AmpBf16 | Precision::AmpBf16Weights);
        let prepared = self.member.trainer_prepares && self.member.method == Method::Qlora;
        (prepared && bf16).then_some(Dtype::Bf16)
    }

    /// `get_batch_logps`: the log-probability of each sequence's labels, or their mean.
    fn label_scores(&self, logits: &Tensor<'a>, likelihood: Likelihood) -> Tensor<'a> {
        let (tokens, sequences) = (self.batch.tokens(), self.batch.sequences);
        let scored = tokens.saturating_sub(sequences);
        let vocabulary = logits.value.numel / tokens.max(1);
        let copied = self.of_tokens(scored, Dtype::I64, &torch::SHIFTED_LABELS);
        let mask = self.of_tokens(scored, Dtype::Bool, &SCORED);
        let ignored = self.of_tokens(scored, Dtype::Bool, &SCORED);
        let labels = match likelihood {
            // `labels[labels == -100] = 0`
            Likelihood::Answer | Likelihood::Nothing => copied,
            Likelihood::Text => {
                let labels = self.of_tokens(scored, Dtype::I64, &torch::WHERE);
                drop(copied);
                labels
            }
        };
        drop(ignored);
        let each = (scored / sequences.max(1)).saturating_mul(vocabulary);
        let scores = if self.member.loss.replaces_fused_head() {
            self.labels_of(logits, Rows { sequences, each, divided: false }, scored)
        } else {
            logits.slice(scored.saturating_mul(vocabulary)).selected_log_softmax(&labels, scored)
        };
        let sums = scores.masked_fill(&mask).sum_rows(scored / sequences.max(1));
        match likelihood {
            Likelihood::Answer => sums,
            // the mean over the labels
            Likelihood::Text | Likelihood::Nothing => {
                self.count_true(scored);
                sums.scale()
            }
        }
    }
}

impl<'m> Tensor<'m> {
    /// `_LogProbEntropyFunction.apply(logits, labels)`: logits and labels are kept, and two numbers for each label.
    fn selected_log_softmax(&self, labels: &Tensor<'m>, rows: u64) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], log_softmax_backward);
            let log_probs = state.alloc(rows, Dtype::F32, &torch::LOG_PROBABILITIES);
            let [entropy, sum, expected] = [(); 3].map(|()| state.alloc(rows, Dtype::F32, &LOGIT_STATISTICS));
            for storage in [x.storage, labels.value.storage, sum, expected] {
                state.save(node, storage);
            }
            [entropy, sum, expected].into_iter().for_each(|storage| state.release(storage));
            Value::plain(log_probs, rows, Dtype::F32).at(node.output(0))
        })
    }
}

/// `_LogProbEntropyFunction.backward`: the gradient of all logits that were given.
fn log_softmax_backward(state: &mut State, node: &Node, _: &mut Grad) -> Results {
    let logits = node.inputs[0];
    let storage = state.alloc_for(logits.storage, logits.numel, logits.dtype, &LOGITS_GRADIENT);
    only(Grad::new(storage, logits.numel, logits.dtype, Layout::Tokens))
}
