//! The head beside Transformer Engine's layers, and its cross entropy.
//!
//! Source: megatron/core/tensor_parallel/layers.py of Megatron-core 0.16.1, transformer_engine/pytorch/cross_entropy.py of
//! Transformer Engine 2.11. Compared with the allocator's trace of that code.

use super::super::functions::Sharing;
use crate::dtype::Dtype;
use crate::memory::Category;
use crate::step::autograd::{Grad, only};
use crate::step::heap::NOTHING;
use crate::step::machine::State;
use crate::step::ops::linear::Layer;
use crate::step::parallel::Parallel;
use crate::step::tensor::{Layout, Tensor, Value};
use crate::step::what::{Source, What, roles, torch};

const CROSS_ENTROPY: Source = Source::At("Transformer Engine, transformer_engine/pytorch/cross_entropy.py");

static GATHERED_INPUT: What = What::own(
    "gathered input of the head",
    "all tokens, which the head's products read: a buffer that is made once",
    Source::At("Megatron-core, megatron/core/utils.py, GlobalMemoryBuffer"),
);
static LOSSES: What = What::own("losses", "the loss of each token", CROSS_ENTROPY);
static MAXIMA: What = What::own(
    "softmax statistics",
    "highest logit, sum of exponentials and the label's logit for each token, of each GPU's part of the vocabulary",
    CROSS_ENTROPY,
);

impl<'m> Tensor<'m> {
    /// Megatron's own `LinearWithGradAccumulationAndAsyncCommunication` of the head: its input is gathered in a buffer that stays, its
    /// weight's gradient is added to the gradient buffer by the product (`gradient_accumulation_fusion`).
    pub(in super::super) fn head_through(&self, layer: &Layer, sharing: Sharing) -> Tensor<'m> {
        self.machine.within(layer.name, &roles::PROJECTION, || {
            self.apply(|state, x| {
                let shape = layer.shape;
                let rows = (x.numel / shape.input.max(1)).saturating_mul(sharing.parts());
                let all = x.numel.saturating_mul(sharing.parts());
                let weight = state.weight_that_is_summed_up(layer);
                let node = state.node([x, &weight], move |state, node, grad| {
                    let product = state.alloc_product_for(
                        grad.storage,
                        (all, shape.output),
                        grad.dtype,
                        &torch::INPUT_GRADIENT,
                    );
                    state.retain(product);
                    let (gradient, numel) = state.summed(product, (all, grad.dtype), sharing);
                    let weight = state.weight_gradient(&node.inputs[1], (shape.weights(), rows));
                    state.release(product);
                    [Some(Grad::new(gradient, numel, grad.dtype, Layout::Tokens)), weight, None]
                });
                state.save_view(node, x);
                state.release(weight.storage);
                if sharing.sequence {
                    state.keep_gathered(all);
                }
                let numel = rows.saturating_mul(shape.output);
                let storage = state.alloc_product(numel, shape.input, x.dtype, &torch::LINEAR);
                state.take_rows(storage, x.storage, rows);
                Value::plain(storage, numel, x.dtype).at(node.output(0))
            })
        })
    }

    /// `parallel_cross_entropy`: a loss for each token; the logits stay and become their gradient.
    /// Where losses are laid out anew, sequence after sequence, their gradient is copied back.
    pub(in super::super) fn te_cross_entropy(
        &self,
        rows: u64,
        laid_out_anew: bool,
        sharing: Sharing,
    ) -> Tensor<'m> {
        self.apply(|state, logits| {
            let node = state.node([logits], move |state, node, grad| {
                if laid_out_anew {
                    state.scratch(rows.saturating_mul(Dtype::F32.bytes()), &torch::CONTIGUOUS);
                }
                let (storage, logits) = (state.saved(node, 0), node.inputs[0]);
                state.retain(storage);
                only(Grad::new(storage, logits.numel, logits.dtype, grad.layout))
            });
            let losses = state.alloc_for(logits.storage, rows, Dtype::F32, &LOSSES);
            let own = state.alloc(rows.saturating_mul(3), Dtype::F32, &MAXIMA);
            if sharing.tensor > 1 {
                let all = rows.saturating_mul(3).saturating_mul(sharing.tensor);
                let gathered = state.alloc(all, Dtype::F32, &MAXIMA);
                state.gather_tokens(all.saturating_mul(Dtype::F32.bytes()));
                state.release(own);
                state.release(gathered);
            } else {
                state.release(own);
            }
            state.save_view(node, logits);
            Value::plain(losses, rows, Dtype::F32).at(node.output(0))
        })
    }
}

impl State {
    /// `GlobalMemoryBuffer.get_tensor` of the head's input.
    fn keep_gathered(&mut self, numel: u64) {
        let bytes = numel.saturating_mul(Dtype::Bf16.bytes());
        self.gather_tokens(bytes);
        let known = match &self.parallel {
            Parallel::Megatron(engine) => engine.gathered != NOTHING,
            _ => true,
        };
        if !known {
            let buffer = self.persistent(bytes, Dtype::Bf16, 1, Category::Activations, &GATHERED_INPUT);
            if let Parallel::Megatron(engine) = &mut self.parallel {
                engine.gathered = buffer;
            }
        }
    }
}
