//! Norms by themselves, and the backward that they share with those in front of a projection.
//!
//! Source: transformer_engine/pytorch/ops/basic/rmsnorm.py and transformer_engine/common/normalization of Transformer Engine 2.11.

use super::{MODULES, NORMED, ROOTS};
use crate::dtype::Dtype;
use crate::step::autograd::{Grad, INPUTS, Node, Results};
use crate::step::heap::NOTHING;
use crate::step::machine::State;
use crate::step::ops::norm::NormLayer;
use crate::step::tensor::{Layout, Tensor};
use crate::step::what::{Source, What};

static NORM_GRADIENT: What = What::own("norm (input gradient)", "the gradient of a norm's input", MODULES);
static GAIN_GRADIENT: What = What::own("norm (weight gradient)", "the gradient of a norm's weight", MODULES);
static NORM_SUMS: What = What::own(
    "norm (partial sums)",
    "scratch space of a norm's backward: a row of partial sums of its weight's gradient for each block of threads",
    Source::At("Transformer Engine, transformer_engine/common/normalization"),
);

impl<'m> Tensor<'m> {
    /// `te.pytorch.RMSNorm`: the last norm, and those that no projection follows at once.
    pub(in super::super) fn te_normed(&self, norm: &NormLayer) -> Tensor<'m> {
        self.apply(|state, x| {
            let gain = state.weight_if(norm.weight);
            let rows = x.numel / norm.width.max(1);
            let bias = norm.bias.map(|_| norm.width);
            let node = state.node([x, &gain], move |state, node, grad| {
                let mut results = norm_gradients(state, node, grad, bias);
                state.clear_saved(node, 1);
                if bias.is_some() {
                    state.clear_saved(node, 2);
                }
                // the list of what the fused operations return holds it too
                if let Some(gradient) = &mut results[0] {
                    gradient.view = true;
                }
                results
            });
            let means = state.means(norm, x);
            let roots = state.alloc_for(x.storage, rows, Dtype::F32, &ROOTS);
            let output = state.new_like(x, x.dtype, &NORMED, node.output(0));
            state.save_view(node, x);
            for kept in [roots, means] {
                if kept != NOTHING {
                    state.save(node, kept);
                    state.release(kept);
                }
            }
            state.release(gain.storage);
            output
        })
    }
}

/// `rmsnorm_bwd`, or `layernorm_bwd` of a norm with a bias of so many elements.
pub(super) fn norm_gradients(state: &mut State, node: &Node, grad: &Grad, bias: Option<u64>) -> Results {
    let [input, gain, _] = node.inputs;
    let mut results: Results = [None; INPUTS];
    let gradient = state.alloc(input.numel, grad.dtype, &NORM_GRADIENT);
    results[0] = Some(Grad::new(gradient, input.numel, grad.dtype, Layout::Tokens));
    let own = state.alloc(gain.numel, gain.dtype, &GAIN_GRADIENT);
    results[1] = Some(Grad::new(own, gain.numel, gain.dtype, Layout::Tokens));
    if let Some(bias) = bias {
        let storage = state.alloc(bias, gain.dtype, &GAIN_GRADIENT);
        let rows = input.numel / gain.numel.max(1);
        let sums = layer_norm_blocks(state, rows).saturating_mul(bias).saturating_mul(2 * Dtype::F32.bytes());
        state.scratch(sums, &NORM_SUMS);
        state.release(storage);
        return results;
    }
    let blocks = state.device.multiprocessors.saturating_mul(norm_blocks(gain.numel));
    state.scratch(blocks.saturating_mul(gain.numel).saturating_mul(Dtype::F32.bytes()), &NORM_SUMS);
    results
}

/// Blocks of LayerNorm's backward: one for four rows, as many as run at a time. 16 of them on a multiprocessor are its 2,048 threads by
/// 128, which is what the null device answers and the traces have; how many the kernel's registers allow on a card was not read.
fn layer_norm_blocks(state: &State, rows: u64) -> u64 {
    rows.div_ceil(4).min(state.device.multiprocessors.saturating_mul(16))
}

/// Blocks of 128 threads of the norm's backward kernel that run on a multiprocessor at a time: as many as its registers allow of the
/// 65,536 there are (`cuobjdump -res-usage` of libtransformer_engine.so 2.11, sm_90).
fn norm_blocks(width: u64) -> u64 {
    match width {
        512 => 6,
        768 => 4,
        2048 => 5,
        8192 => 2,
        _ => 3,
    }
}
