//! What inductor chooses by the size of a layer and by the card.

use super::draft::Sums;
use crate::dtype::Dtype;
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
    padded_rows(sequences, length, Dtype::F32)
}

/// The same of rows of another type.
pub(super) fn padded_rows(sequences: u64, length: u64, dtype: Dtype) -> u64 {
    let aligned = 128 / dtype.bytes();
    let row = if length > 1024 { length.div_ceil(aligned).saturating_mul(aligned) } else { length };
    row.saturating_mul(sequences.saturating_sub(1)).saturating_add(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::Gpu;
    use crate::units::Bytes;

    fn card(multiprocessors: u64, threads: u64) -> Device {
        Device { multiprocessors, threads, ..Device::of(&Gpu::custom(Bytes::gib(24.0))) }
    }

    /// What `Reduction.num_splits` and `InductorChoices.reduction_split_factor` of an outer reduction return, rewritten in a few lines of Python
    /// that look through all divisors.
    #[test]
    fn sums_are_split_as_inductor_splits_them() {
        let (a100, t4, rtx_3090) = (card(108, 2048), card(40, 1024), card(82, 1536));
        for (device, tokens, features, rows) in [
            // no more than 32 rows, as many outputs as 64 for each multiprocessor, one block of 128 rows
            (a100, 32, 2048, None),
            (a100, 33, 2048, None),
            (a100, 4096, 6912, None),
            (a100, 128, 128, None),
            (a100, 129, 128, Some(2)),
            // fewer elements than 32 for each thread of the card
            (a100, 2048, 2048, Some(16)),
            (a100, 4096, 896, Some(32)),
            // up to 512: what the blocks come to, or a divisor that is nearly that
            (a100, 4096, 6911, Some(16)),
            (a100, 8192, 4096, Some(32)),
            (a100, 8191, 2048, Some(54)),
            (a100, 10_007, 896, Some(120)),
            (a100, 3456, 3584, Some(27)),
            (a100, 4600, 2048, Some(36)),
            (a100, 57_344, 128, Some(448)),
            (rtx_3090, 4096, 4096, Some(16)),
            (rtx_3090, 5000, 3072, Some(25)),
            (t4, 4096, 2048, Some(10)),
            // more: 512, or a divisor that is nearly that
            (t4, 16_384, 2048, Some(8)),
            (a100, 62_000, 2048, Some(31)),
            (a100, 65_536, 2048, Some(32)),
            (a100, 100_003, 2048, Some(49)),
            (a100, 138_300, 1024, Some(68)),
        ] {
            assert_eq!(split(device, tokens, features), rows, "{tokens} × {features}");
        }
    }

    #[test]
    fn the_nearest_divisor_is_the_smaller_of_two() {
        for (number, wanted, nearest) in [
            (12, 5, 4),
            (30, 4, 3),
            (100, 15, 10),
            (100, 16, 20),
            (7, 5, 7),
            (7, 3, 1),
            (13, 512, 13),
            (1024, 700, 512),
            (1024, 800, 1024),
        ] {
            assert_eq!(closest_divisor(number, wanted), nearest, "{number}, {wanted}");
        }
    }

    /// `_pick_split_size`: a power of two of rows, 16 to 128, as eight blocks of each multiprocessor have.
    #[test]
    fn one_kernel_of_both_orders_leaves_a_row_for_each_block() {
        for (multiprocessors, tokens, rows) in [
            (40, 4096, 256),
            (40, 32_768, 512),
            (40, 131_072, 1024),
            (40, 200_000, 1563),
            (108, 8192, 512),
            (108, 27_647, 1728),
            (108, 27_648, 864),
            (108, 110_591, 1728),
            (108, 110_592, 864),
            (132, 65_536, 2048),
        ] {
            assert_eq!(mix_order_rows(card(multiprocessors, 2048), tokens), rows, "{tokens}");
        }
    }

    /// `MixOrderReduction.can_fuse`: 5 MiB of elements, 4,096 rows, twice as many as columns, of which there are no more than 16,384.
    #[test]
    fn tall_matrices_are_reduced_both_ways_at_once() {
        for (tokens, hidden, fuses) in [
            (4096, 1280, true),
            (4096, 1279, false),
            (4095, 2000, false),
            (4096, 2048, true),
            (4096, 2049, false),
            (32_768, 16_384, true),
            (32_770, 16_385, false),
            (1 << 20, 4, false),
            (1 << 20, 5, true),
        ] {
            assert_eq!(can_mix_orders(tokens, hidden), fuses, "{tokens} × {hidden}");
        }
    }

    /// `_pad_strides`: a stride of more than 1,024 float32 numbers is a multiple of 128 bytes; the last row is not padded.
    #[test]
    fn long_rows_begin_at_multiples_of_128_bytes() {
        for (sequences, length, numbers) in
            [(1, 1025, 1025), (2, 1025, 1056 + 1025), (4, 1024, 4096), (3, 1010, 3030), (3, 2048, 6144)]
        {
            assert_eq!(padded(sequences, length), numbers, "{sequences} × {length}");
        }
    }
}
