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

/// Compiled for another card a kernel has other registers: the number of sm_80, sm_89, sm_90, sm_100 and sm_120, of which the library has code.
fn compiled(device: &Device, of: [u64; 5]) -> u64 {
    match device.capability {
        0..89 => of[0],
        89 => of[1],
        90..100 => of[2],
        100..120 => of[3],
        _ => of[4],
    }
}

fn layer_norm_blocks(device: &Device, rows: u64, width: u64) -> u64 {
    let own = match width {
        768 | 3072 => Some((3, 1)),
        1024 | 4096 | 5120 => Some((2, 1)),
        1536 => Some((compiled(device, [6, 6, 5, 6, 6]), 1)),
        2048 => Some((compiled(device, [5, 5, 4, 4, 4]), 1)),
        2304 => Some((compiled(device, [3, 3, 3, 4, 4]), 1)),
        3840 => Some((compiled(device, [2, 2, 2, 3, 3]), 1)),
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
        0..=128 => compiled(device, [10, 12, 10, 9, 9]),
        129..=512 => compiled(device, [4, 4, 4, 3, 3]),
        513..=1024 => compiled(device, [2, 2, 2, 3, 3]),
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
        2048 => Some(compiled(device, [6, 6, 5, 6, 6])),
        8192 => Some(2),
        _ => None,
    };
    let other = match width {
        0..=128 => compiled(device, [10, 12, 12, 12, 10]),
        129..=512 => compiled(device, [5, 5, 4, 4, 4]),
        1025..=2048 => 5,
        _ => 3,
    };
    blocks(device, rows, width, own.map(|on_each| (on_each, 1)), other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::Gpu;
    use crate::units::Bytes;

    const CARDS: [u32; 5] = [80, 89, 90, 100, 120];

    fn card(capability: u32) -> Device {
        Device { capability, multiprocessors: 100, ..Device::of(&Gpu::custom(Bytes::gib(80.0))) }
    }

    /// Blocks of so many warps that fit a multiprocessor, by the registers of a thread: a warp is given 256 at a time, out of 16,384 that each
    /// quarter of it has (CUDA's occupancy calculator). Threads bind none of these: 12 blocks of 128 are as many as 8.9 and 12.0 run.
    fn fitting(registers: u64, warps: u64) -> u64 {
        let of_warp = (registers * 32).next_multiple_of(256);
        4 * (16_384 / of_warp) / warps
    }

    /// Registers as `cuobjdump -res-usage` prints them of libtransformer_engine.so (transformer_engine_cu13 2.11), in bfloat16, for sm_80, sm_89,
    /// sm_90, sm_100 and sm_120; blocks of a row and warps of a block of `REGISTER_NORM_LAUNCHER`.
    #[test]
    fn as_many_blocks_run_as_their_registers_allow() {
        // widths that have a kernel of their own
        for (width, of_row, warps, registers) in [
            (768, 1, 4, [168, 163, 147, 142, 142]),
            (1024, 1, 4, [204, 204, 195, 181, 181]),
            (1536, 1, 4, [80, 80, 87, 80, 80]),
            (2048, 1, 4, [96, 96, 110, 128, 128]),
            (2304, 1, 4, [147, 148, 152, 128, 128]),
            (3072, 1, 4, [155, 168, 151, 168, 168]),
            (3840, 1, 4, [235, 248, 254, 168, 168]),
            (4096, 1, 4, [202, 201, 194, 242, 242]),
            (5120, 1, 4, [255, 255, 252, 255, 255]),
            (6144, 1, 8, [158, 161, 152, 178, 178]),
            (8192, 2, 4, [225, 234, 205, 208, 209]),
            (10_240, 2, 4, [255, 254, 254, 255, 255]),
            (12_288, 4, 4, [168, 162, 153, 166, 166]),
            (12_800, 5, 4, [125, 128, 127, 128, 128]),
            (15_360, 4, 4, [224, 235, 241, 217, 219]),
            (16_384, 4, 4, [225, 234, 205, 208, 211]),
            (18_432, 4, 4, [255, 255, 255, 245, 255]),
            (20_480, 4, 4, [255, 254, 254, 255, 255]),
            (24_576, 4, 8, [155, 160, 158, 167, 167]),
            (25_600, 5, 4, [254, 255, 249, 255, 255]),
            (30_720, 4, 8, [227, 235, 241, 224, 224]),
            (32_768, 4, 8, [227, 240, 201, 222, 226]),
            (40_960, 4, 8, [254, 250, 251, 255, 255]),
            (49_152, 8, 8, [155, 160, 158, 167, 167]),
            (65_536, 8, 8, [227, 240, 201, 222, 226]),
        ] {
            for (capability, registers) in CARDS.into_iter().zip(registers) {
                let blocks = 100 * fitting(registers, warps) / of_row;
                // however few rows there are
                assert_eq!(layer_norm_blocks(&card(capability), 4, width), blocks, "{width} on {capability}");
            }
        }
        for (width, registers) in [
            (512, [80, 80, 80, 80, 80]),
            (768, [128, 118, 121, 116, 116]),
            (1024, [163, 158, 161, 146, 146]),
            (2048, [80, 80, 89, 80, 80]),
            (4096, [167, 168, 161, 168, 168]),
            (8192, [255, 255, 255, 255, 255]),
        ] {
            for (capability, registers) in CARDS.into_iter().zip(registers) {
                let blocks = 100 * fitting(registers, 4);
                assert_eq!(rms_norm_blocks(&card(capability), 4, width), blocks, "{width} on {capability}");
            }
        }
        // all others: the narrowest general kernel that is as wide
        for (widths, layer, root) in [
            ([1, 64, 128], [46, 39, 47, 56, 56], [47, 40, 40, 40, 47]),
            ([129, 256, 511], [116, 116, 126, 165, 165], [94, 91, 100, 127, 127]),
            ([513, 640, 1023], [196, 197, 199, 168, 168], [162, 163, 168, 168, 166]),
            ([1025, 1600, 2047], [118, 118, 124, 126, 126], [94, 92, 96, 96, 96]),
            ([2049, 2560, 4095], [200, 200, 201, 213, 215], [166, 165, 168, 167, 167]),
        ] {
            for width in widths {
                for (at, capability) in CARDS.into_iter().enumerate() {
                    let device = card(capability);
                    let blocks = [layer_norm_blocks, rms_norm_blocks].map(|of| of(&device, 1 << 20, width));
                    let fit = [layer[at], root[at]].map(|registers| 100 * fitting(registers, 4));
                    assert_eq!(blocks, fit, "{width} on {capability}");
                }
            }
        }
    }

    /// `launch_rmsnorm_bwd_general_`: a block has four rows up to a width of 1,024 and one beyond, a wide row has several blocks; it is run
    /// too where rows are no multiple of four (`getKernel` of normalization/common.cpp).
    #[test]
    fn there_are_no_more_blocks_than_rows_for_them() {
        let device = card(80);
        for (rows, width, layer, root) in [
            (1, 128, 1, 1),
            (5, 128, 2, 2),
            (4000, 128, 1000, 1000),
            (4001, 128, 1000, 1000),
            (6, 1024, 2, 2),
            (6, 1536, 6, 6),
            (402, 2048, 400, 402),
            (6, 4096, 6, 6),
            // more than 4,096 elements: 200 or 300 blocks, of which a row takes two, three or four
            (402, 5120, 100, 150),
            (400, 8064, 100, 150),
            (400, 12_000, 66, 100),
            (402, 16_384, 50, 75),
            (6, 5120, 6, 6),
        ] {
            let blocks = [layer_norm_blocks, rms_norm_blocks].map(|of| of(&device, rows, width));
            assert_eq!(blocks, [layer, root], "{rows} × {width}");
        }
    }

    /// On 8.6 sm_80's code runs, on 10.3 sm_100's, on 12.1 sm_120's.
    #[test]
    fn a_card_runs_the_code_of_the_last_one_of_its_kind() {
        for (capability, other) in [(86, 80), (103, 100), (121, 120)] {
            for width in [128, 512, 1024, 1536, 2048, 2304, 3840] {
                let of = |capability| {
                    let device = card(capability);
                    [layer_norm_blocks(&device, 4000, width), rms_norm_blocks(&device, 4000, width)]
                };
                assert_eq!(of(capability), of(other), "{width} on {capability}");
            }
        }
    }
}
