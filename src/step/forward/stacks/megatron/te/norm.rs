//! Norms by themselves, and the backward that they share with those in front of a projection.
//!
//! Source: transformer_engine/pytorch/ops/basic/rmsnorm.py and transformer_engine/common/normalization of Transformer Engine 2.11.

use super::{MODULES, NORMED, ROOTS};
use crate::dtype::Dtype;
use crate::hardware::Device;
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
    let rows = input.numel / gain.numel.max(1);
    if let Some(bias) = bias {
        let storage = state.alloc(bias, gain.dtype, &GAIN_GRADIENT);
        let sums = layer_norm_blocks(&state.device, rows, bias)
            .saturating_mul(bias)
            .saturating_mul(2 * Dtype::F32.bytes());
        state.scratch(sums, &NORM_SUMS);
        state.release(storage);
        return results;
    }
    let blocks = rms_norm_blocks(&state.device, rows, gain.numel);
    state.scratch(blocks.saturating_mul(gain.numel).saturating_mul(Dtype::F32.bytes()), &NORM_SUMS);
    results
}

/// Blocks of a norm's backward kernel. A width that has a kernel of its own (`launch_ln_bwd_tuned_`, `launch_rmsnorm_bwd_tuned_`) has as
/// many as run at a time, however few rows there are; that kernel is taken where rows are a multiple of four. Otherwise
/// (`launch_ln_bwd_general_`, `launch_rmsnorm_bwd_general_`) there is one for each row, or for four up to a width of 1,024, and no more than
/// run at a time, of which a wide row takes several.
///
/// `own` is how many blocks of its own kernel run on a multiprocessor and how many a row takes, `other` how many of the general one run
/// there: what the registers of 65,536 allow (`cuobjdump -res-usage` of libtransformer_engine.so 2.11, in bfloat16).
fn blocks(device: &Device, rows: u64, width: u64, own: Option<(u64, u64)>, other: u64) -> u64 {
    if let Some((on_each, to_a_row)) = own.filter(|_| rows.is_multiple_of(4)) {
        return device.multiprocessors.saturating_mul(on_each) / to_a_row;
    }
    let rows_of_each = if width <= 1024 { 4 } else { 1 };
    rows.div_ceil(rows_of_each)
        .min(device.multiprocessors.saturating_mul(other) / width.div_ceil(4096).max(1))
}

/// Compiled for another card a kernel has other registers: the number of sm_80, sm_90 and sm_100.
fn compiled(device: &Device, of: [u64; 3]) -> u64 {
    match device.capability {
        0..90 => of[0],
        90..100 => of[1],
        _ => of[2],
    }
}

fn layer_norm_blocks(device: &Device, rows: u64, width: u64) -> u64 {
    let own = match width {
        768 | 3072 => Some((3, 1)),
        1024 | 4096 | 5120 => Some((2, 1)),
        1536 => Some((compiled(device, [6, 5, 6]), 1)),
        2048 => Some((compiled(device, [5, 4, 4]), 1)),
        2304 => Some((compiled(device, [3, 3, 4]), 1)),
        3840 => Some((compiled(device, [2, 2, 3]), 1)),
        6144 => Some((1, 1)),
        8192 | 10240 => Some((2, 2)),
        12288 => Some((3, 4)),
        12800 => Some((4, 5)),
        15360 | 16384 | 18432 | 20480 => Some((2, 4)),
        24576 | 30720 | 32768 | 40960 => Some((1, 4)),
        25600 => Some((2, 5)),
        49152 | 65536 => Some((1, 8)),
        _ => None,
    };
    let other = match width {
        0..=128 => compiled(device, [10, 10, 9]),
        129..=512 => compiled(device, [4, 4, 3]),
        513..=1024 => compiled(device, [2, 2, 3]),
        1025..=2048 => 4,
        _ => 2,
    };
    blocks(device, rows, width, own, other)
}

fn rms_norm_blocks(device: &Device, rows: u64, width: u64) -> u64 {
    let own = match width {
        512 => Some(6),
        768 => Some(4),
        1024 | 4096 => Some(3),
        2048 => Some(compiled(device, [6, 5, 6])),
        8192 => Some(2),
        _ => None,
    };
    let other = match width {
        0..=128 => compiled(device, [10, 12, 12]),
        129..=512 => compiled(device, [5, 4, 4]),
        1025..=2048 => 5,
        _ => 3,
    };
    blocks(device, rows, width, own.map(|on_each| (on_each, 1)), other)
}
