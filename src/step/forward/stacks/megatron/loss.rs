//! The head and the cross entropy over a vocabulary that GPUs share.
//!
//! Source: megatron/core/tensor_parallel/cross_entropy.py, megatron/core/fusions/fused_cross_entropy.py and
//! megatron/core/models/common/language_module/language_module.py of Megatron-core 0.16.1; of the fused one what TorchInductor makes of its
//! four functions (PyTorch 2.11).

use crate::dtype::Dtype;
use crate::memory::Category;
use crate::scenario::LossKernel;
use crate::step::autograd::{Grad, Node, Results, fresh, only};
use crate::step::forward::{Pass, find};
use crate::step::heap::StorageId;
use crate::step::machine::State;
use crate::step::parallel::TunedKernel;
use crate::step::tensor::{Layout, Tensor, Value};
use crate::step::what::{Source, What, roles, torch};

const CROSS_ENTROPY: Source = Source::At("Megatron-core, megatron/core/tensor_parallel/cross_entropy.py");

static PROBABILITIES: What = What::own(
    "probabilities",
    "the logits in float32, over which their exponentials, the probabilities and at last their gradient are written",
    CROSS_ENTROPY,
);
static TARGETS: What =
    What::own("masked targets", "the labels, 0 for those of other GPUs' vocabulary", CROSS_ENTROPY);
static TARGET_MASK: What =
    What::own("target mask", "which labels are in other GPUs' vocabulary", CROSS_ENTROPY);
static PREDICTED: What = What::own("predicted logits", "the logit of each token's label", CROSS_ENTROPY);
const FUSED: Source = Source::At("Megatron-core, megatron/core/fusions/fused_cross_entropy.py");

static EXPONENTIALS: What = What::own(
    "exponentials",
    "where the kernel that sums exponentials up writes them once more, beside the float32 logits that they replace: nothing reads it",
    FUSED,
);
static SUMS: What = What::own(
    "logits of labels and sums",
    "each token's own logit and the sum of its exponentials, sent as one",
    FUSED,
);
static COPY: What = What::own(
    "probabilities less one",
    "a copy of the probabilities, from which one is taken where a token's label is",
    FUSED,
);

static LOGITS_GRADIENT: What =
    What::own("gradient", "the gradient of the logits, in their own element type", FUSED);

static UPDATE: What =
    What::own("softmax update", "what is taken from the probability of each token's label", CROSS_ENTROPY);

impl<'a> Pass<'_, 'a> {
    /// `GPTModel._postprocess`: a loss for each token.
    pub(super) fn megatron_head(&self, hidden: Tensor<'a>, ids: &Tensor<'a>) -> Tensor<'a> {
        let (sharing, fused) = (self.sharing(), self.has_transformer_engine());
        let normed = match &self.architecture.final_norm {
            Some(norm) => {
                let norm = find(&self.outside.norms, |bound| bound.name == norm.name);
                self.machine.within(norm.name, &roles::NORM, || match fused {
                    true => hidden.te_normed(&norm),
                    false => hidden.fused_root_mean_square(&norm, false),
                })
            }
            None => hidden.clone(),
        };
        drop(hidden);
        self.machine.as_category(Category::Logits, &roles::HEAD, || {
            let head = find(&self.outside.linears, |layer| layer.name == self.architecture.head.linear.name);
            let many = self.batch.sequences > 1 && self.batch.length > 1;
            let losses = {
                let logits = match fused {
                    true => normed.head_through(&head, sharing),
                    false => normed.megatron_through(&head),
                };
                let logits = logits.named_logits();
                let labels = if many {
                    self.of_tokens(self.batch.tokens(), Dtype::I64, &torch::LABELS)
                } else {
                    ids.clone()
                };
                let losses = {
                    let rows = self.batch.tokens();
                    let losses = match self.member.loss {
                        LossKernel::TransformerEngine => logits.te_cross_entropy(rows, many, sharing),
                        LossKernel::MegatronFused => logits.fused_vocabulary_cross_entropy(rows),
                        LossKernel::Standard
                        | LossKernel::Full
                        | LossKernel::Axolotl
                        | LossKernel::LogSoftmax
                        | LossKernel::FloatLogits
                        | LossKernel::VocabularyChunks
                        | LossKernel::Liger
                        | LossKernel::Cut
                        | LossKernel::Chunked => logits.vocabulary_cross_entropy(rows),
                    };
                    if many { losses.dense_copy() } else { losses.viewed() }
                };
                drop(labels);
                drop(logits);
                losses
            };
            drop(normed);
            losses
        })
    }
}

impl<'m> Tensor<'m> {
    /// `_VocabParallelCrossEntropy`.
    fn vocabulary_cross_entropy(&self, rows: u64) -> Tensor<'m> {
        self.apply(|state, logits| {
            let make = |state: &mut State, dtype: Dtype, what: &'static What| {
                state.alloc_for(logits.storage, rows, dtype, what)
            };
            let float = state.alloc_for(logits.storage, logits.numel, Dtype::F32, &PROBABILITIES);
            let highest = make(state, Dtype::F32, &torch::MAX);
            let indices = make(state, Dtype::I64, &torch::MAX_INDICES);
            state.release(indices);
            let below = make(state, Dtype::Bool, &TARGET_MASK);
            let above = make(state, Dtype::Bool, &TARGET_MASK);
            let mask = make(state, Dtype::Bool, &TARGET_MASK);
            state.release(below);
            state.release(above);
            let copy = make(state, Dtype::I64, &torch::CLONE);
            let targets = make(state, Dtype::I64, &TARGETS);
            state.release(copy);
            let range = make(state, Dtype::I64, &torch::RANGE);
            let picked = make(state, Dtype::F32, &PREDICTED);
            let predicted = make(state, Dtype::F32, &PREDICTED);
            state.release(picked);
            let sums = make(state, Dtype::F32, &torch::SUM);
            state.release(range);
            let logarithm = make(state, Dtype::F32, &torch::SUM);
            let losses = make(state, Dtype::F32, &torch::LOSS);
            state.release(logarithm);
            let node = state.node([logits], move |state, node, grad| {
                let probabilities = state.saved(node, 0);
                cross_entropy_backward(state, grad, (probabilities, node.inputs[0].numel), rows)
            });
            for saved in [float, mask, targets] {
                state.save(node, saved);
                state.release(saved);
            }
            [highest, predicted, sums].into_iter().for_each(|storage| state.release(storage));
            Value::plain(losses, rows, Dtype::F32).at(node.output(0))
        })
    }

    /// `_VocabParallelCrossEntropy` of `fused_cross_entropy.py`: each of its four functions is compiled by itself, so that what one hands
    /// to the next is written out, and what one changes in place it makes anew and copies back. TorchInductor tries each kernel's settings
    /// when it runs first.
    fn fused_vocabulary_cross_entropy(&self, rows: u64) -> Tensor<'m> {
        self.apply(|state, logits| {
            let make = |state: &mut State, count: u64, dtype: Dtype, what: &'static What| {
                state.alloc_for(logits.storage, count, dtype, what)
            };
            // calculate_logits_max
            let float = make(state, logits.numel, Dtype::F32, &PROBABILITIES);
            let highest = make(state, rows, Dtype::F32, &torch::MAX);
            // calculate_predicted_logits
            let mask = make(state, rows, Dtype::Bool, &TARGET_MASK);
            let targets = make(state, rows, Dtype::I64, &TARGETS);
            let picked = make(state, rows, Dtype::F32, &PREDICTED);
            let predicted = make(state, rows, Dtype::F32, &PREDICTED);
            state.tune(TunedKernel::LossMask, 0);
            let sums = make(state, rows.saturating_mul(2), Dtype::F32, &SUMS);
            state.release(picked);
            state.release(predicted);
            let exponentials = make(state, logits.numel, Dtype::F32, &EXPONENTIALS);
            state.tune(TunedKernel::LossSums, 0);
            state.release(exponentials);
            // calculate_cross_entropy_loss
            let losses = make(state, rows, Dtype::F32, &torch::LOSS);
            let written = logits.numel.saturating_mul(Dtype::F32.bytes());
            state.tune(TunedKernel::LossQuotients, written);
            let node =
                state.node([logits], move |state, node, grad| fused_backward(state, node, grad, written));
            for saved in [float, mask, targets] {
                state.save(node, saved);
                state.release(saved);
            }
            [highest, sums].into_iter().for_each(|storage| state.release(storage));
            Value::plain(losses, rows, Dtype::F32).at(node.output(0))
        })
    }

    /// `x.mean()`.
    pub(super) fn mean_of_all(&self) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], |state, node, grad| {
                let all = node.inputs[0];
                only(fresh(state, grad, (all.numel, all.layout), &torch::MEAN))
            });
            let storage = state.alloc(1, x.dtype, &torch::LOSS);
            Value::plain(storage, 1, x.dtype).at(node.output(0))
        })
    }
}

/// The gradient is written over the probabilities; autograd casts it to the logits' element type.
fn cross_entropy_backward(
    state: &mut State,
    grad: &Grad,
    (probabilities, numel): (StorageId, u64),
    rows: u64,
) -> Results {
    let range = state.alloc(rows, Dtype::I64, &torch::RANGE);
    let float = state.alloc(rows, Dtype::F32, &UPDATE);
    let update = state.alloc(rows, Dtype::F32, &UPDATE);
    state.release(float);
    let picked = state.alloc(rows, Dtype::F32, &torch::INDEX);
    state.release(picked);
    state.release(range);
    state.release(update);
    state.retain(probabilities);
    only(Grad::new(probabilities, numel, grad.dtype, Layout::Tokens))
}

/// `calculate_gradients`: from a copy of the probabilities one is taken for each label, and their gradient is made in bfloat16. While
/// settings are tried, what they are `written` over, so many bytes, is copied where that is no new peak beside what forward had, 10 bytes for
/// each logit and the buffer (`copy_args_to_cpu_if_needed` of torch/_inductor/runtime/triton_heuristics.py).
fn fused_backward(state: &mut State, node: &Node, grad: &Grad, written: u64) -> Results {
    let (probabilities, logits) = (state.saved(node, 0), node.inputs[0]);
    let copy = state.alloc_for(probabilities, logits.numel, Dtype::F32, &COPY);
    let restores = if written / 2 <= state.device.cache { written } else { 0 };
    state.tune(TunedKernel::LossLabels, restores);
    let gradient = state.alloc_for(grad.storage, logits.numel, Dtype::Bf16, &LOGITS_GRADIENT);
    state.tune(TunedKernel::LossGradient, restores);
    state.release(copy);
    only(Grad::new(gradient, logits.numel, Dtype::Bf16, Layout::Tokens))
}
