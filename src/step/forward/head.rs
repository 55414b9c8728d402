//! The head and the loss.

use super::families::single;
use super::stacks::liger;
use super::{Pass, find, stacks};
use crate::dtype::Dtype;
use crate::model::modeling::Code;
use crate::model::{HeadTransform, Objective};
use crate::scenario::LossKernel;
use crate::step::heap::NOTHING;
use crate::step::ops::linear::{Layer, Weight};
use crate::step::ops::loss;
use crate::step::tensor::{Tensor, Value};
use crate::step::what::{roles, torch};

/// Chunks that torchtune cuts a sequence into (`num_output_chunks`).
const CHUNKS: u64 = 8;

impl<'a> Pass<'_, 'a> {
    /// The head and the loss; returns the loss and what the model's output holds.
    pub(super) fn head(&self, hidden: Tensor<'a>) -> (Tensor<'a>, Vec<Tensor<'a>>) {
        let head = self.bound_head();
        let kernel = stacks::loss_kernel(self.member);
        let output = match (kernel, head.weight) {
            // those of Megatron-core, whose head is its own, and of LLaMA-Factory are refused elsewhere
            (
                LossKernel::Standard
                | LossKernel::Full
                | LossKernel::Axolotl
                | LossKernel::LogSoftmax
                | LossKernel::TransformerEngine
                | LossKernel::MegatronFused
                // made float32 where the model has returned (`Pass::float_logits_loss`)
                | LossKernel::FloatLogits,
                _,
            )
            | (LossKernel::Liger | LossKernel::Cut | LossKernel::VocabularyChunks, Weight::Quantised(_)) => {
                let logits = self.machine.head_unit(&hidden, |hidden| self.logits(hidden));
                (self.labels_loss(&logits), vec![logits])
            }
            (LossKernel::VocabularyChunks, Weight::Plain(weight)) => {
                self.log_probs_in_chunks(&self.transformed(&hidden), head.shape, weight)
            }
            (LossKernel::Chunked, _) => self.logits_in_chunks(self.transformed(&hidden), &head),
            (LossKernel::Liger, Weight::Plain(_)) if self.liger_has_all_logits() => {
                let logits = self.machine.head_unit(&hidden, |hidden| self.logits(hidden));
                (self.liger_labels_loss(&logits), vec![logits])
            }
            (LossKernel::Liger, Weight::Plain(weight)) => {
                let input = self.scaled(self.transformed(&hidden));
                self.machine.with(|state| state.read_outside(weight));
                // those of sequences that GPUs share come with the batch
                let _shifted = (!self.in_contexts()).then(|| {
                    loss::shifted_labels(self.machine, self.batch.sequences, self.batch.length)
                });
                (input.liger_loss(head.shape, weight, liger::logits_at_once(self.architecture)), Vec::new())
            }
            (LossKernel::Cut, Weight::Plain(weight)) => {
                (self.scaled(self.transformed(&hidden)).cut_loss(head.shape, weight), Vec::new())
            }
        };
        drop(hidden);
        output
    }

    /// The output head's product.
    pub(super) fn bound_head(&self) -> Layer {
        find(&self.outside.linears, |layer| layer.name == self.architecture.head.linear.name)
    }

    /// What the head does to the last hidden states before its product.
    fn transformed(&self, hidden: &Tensor<'a>) -> Tensor<'a> {
        let bound = |name: &'static str| find(&self.outside.linears, |layer| layer.name == name);
        match &self.architecture.head.transform {
            // the model's own forward ends with that projection
            None | Some(HeadTransform::Project(_) | HeadTransform::Classifier(_) | HeadTransform::Pooler) => {
                let hidden = self.narrowed(hidden);
                if self.modeling.scales_hidden { hidden.scale() } else { hidden }
            }
            Some(HeadTransform::Dense { dense, act, norm }) => {
                let projected = hidden.through(&bound(dense.name));
                let active = projected.activated(*act, &[]);
                drop(projected);
                active.normed(&find(&self.outside.norms, |bound| bound.name == norm.name))
            }
        }
    }

    /// Where the logits of a family are multiplied by a number: a loss without logits multiplies the hidden states.
    fn scaled(&self, hidden: Tensor<'a>) -> Tensor<'a> {
        if self.architecture.head.scaled { hidden.scale() } else { hidden }
    }

    /// The hidden states in the head's element type, where the residual is float32 (mamba).
    fn narrowed(&self, hidden: &Tensor<'a>) -> Tensor<'a> {
        if !single::has_wide_residual(self.architecture) {
            return hidden.clone();
        }
        let name = self.architecture.head.linear.name;
        match find(&self.outside.linears, |layer| layer.name == name).weight {
            Weight::Plain(weight) => {
                let dtype = self.machine.with(|state| state.params.get(weight).dtype);
                hidden.to(dtype)
            }
            Weight::Quantised(_) => hidden.clone(),
        }
    }

    /// What a family does to its logits.
    fn finished(&self, mut logits: Tensor<'a>) -> Tensor<'a> {
        let head = &self.architecture.head;
        if self.modeling.code == Code::Bart {
            logits = self.bart_logits(&logits);
        }
        if single::returns_float_logits(self.architecture) {
            logits = logits.to(Dtype::F32);
        }
        if head.scaled {
            logits = logits.scale();
        }
        if head.softcap {
            logits = logits.scale();
            logits = logits.keeping_output(&torch::TANH);
            logits = logits.scale();
        }
        logits
    }

    /// All logits: the output head of the last hidden states. What it saves is never moved to the CPU where it is found by
    /// its name (trl looks for `lm_head`).
    pub(super) fn logits(&self, hidden: &Tensor<'a>) -> Tensor<'a> {
        let logits = {
            let transformed = self.transformed(hidden);
            let head = self.bound_head();
            self.keep_on_device(head.name == "lm_head");
            let logits = transformed.through(&head).named_logits();
            self.keep_on_device(false);
            logits
        };
        self.machine.serving(&roles::LOGITS, || self.finished(logits))
    }

    /// Whether what is saved from now on stays on the GPU where activations are offloaded.
    pub(super) fn keep_on_device(&self, keep: bool) {
        self.machine.with(|state| {
            if let Some(offload) = &mut state.graph.offload {
                offload.exempt = keep;
            }
        });
    }

    /// `ForCausalLMLoss` or `ForMaskedLMLoss` of all logits.
    pub(super) fn labels_loss(&self, logits: &Tensor<'a>) -> Tensor<'a> {
        let (batch, sequence) = (self.batch.sequences, self.batch.length);
        match self.architecture.head.objective {
            Objective::CausalLm => {
                let float = self.machine.serving(&roles::LOGITS, || logits.to(Dtype::F32));
                if self.in_contexts() {
                    // `shift_labels` come with the batch
                    return float.cross_entropy(&self.labels());
                }
                let (padded, labels) = loss::shifted_labels(self.machine, batch, sequence);
                let loss = float.cross_entropy(&labels);
                drop(float);
                drop(padded);
                loss
            }
            Objective::MaskedLm | Objective::Seq2Seq => {
                let labels = self.labels();
                // `ForMaskedLMLoss` casts; what calls `CrossEntropyLoss` itself does not
                let casts = self.modeling.casts_masked_loss;
                let float = self
                    .machine
                    .serving(&roles::LOGITS, || if casts { logits.to(Dtype::F32) } else { logits.clone() });
                float.cross_entropy(&labels)
            }
        }
    }

    /// Whether Liger has no fused loss for the family and its cross entropy is given all logits.
    fn liger_has_all_logits(&self) -> bool {
        liger::patched(self.member, self.architecture).is_some_and(|patched| !patched.fused_loss)
    }

    /// `ForCausalLMLoss` whose `nn.functional.cross_entropy` is Liger's.
    fn liger_labels_loss(&self, logits: &Tensor<'a>) -> Tensor<'a> {
        let float = self.machine.serving(&roles::LOGITS, || logits.to(Dtype::F32));
        let (_padded, _labels) = loss::shifted_labels(self.machine, self.batch.sequences, self.batch.length);
        float.liger_cross_entropy(self.batch.tokens())
    }

    /// torchtune's `CEWithChunkedOutputLoss`: chunks of the sequence, each made float32 by itself.
    fn logits_in_chunks(&self, hidden: Tensor<'a>, head: &Layer) -> (Tensor<'a>, Vec<Tensor<'a>>) {
        let (batch, sequence) = (self.batch.sequences, self.batch.length);
        let lengths = loss::chunks(sequence, sequence.div_ceil(CHUNKS));
        let rows: Vec<u64> = lengths.iter().map(|length| length.saturating_mul(batch)).collect();
        let numels: Vec<u64> = rows.iter().map(|rows| rows.saturating_mul(head.shape.input)).collect();
        let logits: Vec<Tensor<'a>> = {
            let chunks = hidden.chunks(&numels);
            // of several sequences a chunk is not contiguous: a product with a trained matrix copies it, one with a
            // frozen matrix does not (aten/src/ATen/native/LinearAlgebra.cpp `should_fold`)
            let copies = batch > 1 && self.machine.with(|state| state.trains(head));
            let whole = |chunk: &Tensor<'a>| if copies { chunk.copied() } else { chunk.clone() };
            chunks.iter().map(|chunk| self.finished(whole(chunk).through(head).named_logits())).collect()
        };
        let labels = self.of_tokens(self.batch.tokens(), Dtype::I64, &torch::SHIFTED_LABELS);
        let losses = logits.iter().zip(&rows).map(|(chunk, rows)| {
            let labels =
                if batch > 1 { self.constant(*rows, Dtype::I64, &torch::LABELS) } else { labels.clone() };
            self.machine.serving(&roles::LOGITS, || chunk.to(Dtype::F32)).cross_entropy(&labels)
        });
        let losses = losses.collect();
        let loss = Tensor::total(losses).unwrap_or_else(|| labels.clone());
        drop(hidden);
        (loss, logits)
    }

    /// The batch's labels: on the machine already.
    fn labels(&self) -> Tensor<'a> {
        let value = Value::plain(NOTHING, self.batch.tokens(), Dtype::I64);
        Tensor { machine: self.machine, value }
    }
}

impl Tensor<'_> {
    /// The same, known as the logits.
    pub(super) fn named_logits(self) -> Self {
        self.machine.with(|state| state.note_role(self.value.storage, &roles::LOGITS));
        self
    }
}
