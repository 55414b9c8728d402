//! What inductor chooses by the size of a layer and by the card.

use super::draft::Sums;
use crate::hardware::Device;

/// Outputs of a reduction for each multiprocessor from which on it is not split (torch/_inductor/ir.py `Reduction.num_splits`).
const OUTPUTS_OF_A_MULTIPROCESSOR: u64 = 64;

/// Elements that a thread sums at least and at most (torch/_inductor/choices.py `reduction_split_factor`).
const LEAST_OF_A_THREAD: u64 = 32;
const MOST_OF_A_THREAD: u64 = 512;

/// How the gradient of a norm's weight is summed over so many rows that it has normed: tokens, or tokens' heads.
pub(super) fn norm_sums(device: Device, rows: u64, features: u64) -> Sums {
    if can_mix_orders(rows, features) {
        return Sums::MixOrder { rows: mix_order_rows(device, rows), split: split(device, rows, features) };
    }
    bias_sums(device, rows, features)
}

/// The same of a bias, beside whose sum no rows are reduced.
pub(super) fn bias_sums(device: Device, tokens: u64, features: u64) -> Sums {
    split(device, tokens, features).map_or(Sums::Whole, Sums::Split)
}

/// Into how many rows a sum over so many tokens is split, if it is (torch/_inductor/ir.py `Reduction.num_splits`; choices.py
/// `reduction_split_factor` of an outer reduction).
fn split(device: Device, tokens: u64, hidden: u64) -> Option<u64> {
    let multiprocessors = device.multiprocessors;
    if tokens <= LEAST_OF_A_THREAD || hidden >= multiprocessors.saturating_mul(OUTPUTS_OF_A_MULTIPROCESSOR) {
        return None;
    }
    let (values, outputs, threads) = (4, 128, 256);
    let all = tokens.saturating_mul(hidden);
    let on_device = |each: u64| each.saturating_mul(multiprocessors).saturating_mul(device.threads);
    let size = if all < on_device(LEAST_OF_A_THREAD) {
        LEAST_OF_A_THREAD
    } else if all < on_device(MOST_OF_A_THREAD) {
        let blocks = multiprocessors.saturating_mul(device.threads) / threads;
        let blocks = blocks.div_ceil(hidden.div_ceil(outputs).max(1)).max(1);
        let wanted = tokens.div_ceil(blocks.saturating_mul(values));
        let closest = closest_divisor(tokens, wanted);
        if closest.abs_diff(wanted) < 20 { closest.max(LEAST_OF_A_THREAD) } else { wanted }
    } else {
        let closest = closest_divisor(tokens, MOST_OF_A_THREAD);
        if closest.abs_diff(MOST_OF_A_THREAD) < 50 { closest } else { MOST_OF_A_THREAD }
    };
    Some(tokens.div_ceil(size.max(1).saturating_mul(values))).filter(|rows| *rows > 1)
}

/// The divisor that is nearest, the smaller one of two.
fn closest_divisor(number: u64, wanted: u64) -> u64 {
    // one further away than what is wanted is from 1 is none of the nearest
    let below = (1..=wanted.min(number)).rev().find(|divisor| number.is_multiple_of(*divisor)).unwrap_or(1);
    let distance = wanted.abs_diff(below);
    let above = (wanted.saturating_add(1)..wanted.saturating_add(distance))
        .find(|divisor| *divisor <= number && number.is_multiple_of(*divisor));
    above.unwrap_or(below)
}

/// Whether one kernel reduces rows and columns (torch/_inductor/scheduler.py `MixOrderReduction.can_fuse`).
fn can_mix_orders(tokens: u64, hidden: u64) -> bool {
    tokens.saturating_mul(hidden) >= 5 << 20
        && tokens >= hidden.saturating_mul(2)
        && tokens >= 4096
        && hidden <= 16_384
}

/// How many partial sums it leaves (torch/_inductor/codegen/simd.py `_pick_split_size`).
fn mix_order_rows(device: Device, tokens: u64) -> u64 {
    let each = tokens / device.multiprocessors.saturating_mul(8).max(1);
    let power = each.checked_ilog2().map_or(0, |bits| 1 << bits);
    tokens.div_ceil(u64::clamp(power, 16, 128))
}

/// Room for a float32 number of each token: rows of more than 1,024 numbers begin at multiples of 32 (`padding_stride_threshold`,
/// `padding_alignment_bytes`; torch/_inductor/ir.py `Layout._pad_strides`).
pub(super) fn padded(sequences: u64, length: u64) -> u64 {
    let row = if length > 1024 { length.div_ceil(32).saturating_mul(32) } else { length };
    row.saturating_mul(sequences.saturating_sub(1)).saturating_add(length)
}
