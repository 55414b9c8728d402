//! Which 4-bit products of bitsandbytes run in one kernel and which dequantise the weight first.
//!
//! Source: bitsandbytes 0.50 backends/cuda/ops.py `_gemm_4bit_use_custom_cuda`.

use crate::dtype::Dtype;
use crate::hardware::Device;
use crate::step::ops::shape::Shape;

/// Rows above which the weight is always dequantised.
const MOST_ROWS: u64 = 1536;
/// Rows up to which it never is.
const FEWEST_ROWS: u64 = 4;
/// Weights of fewer elements are small ones.
const SMALL: u64 = 4 << 20;

/// Whether a product of `rows` rows runs in the fused kernel.
pub(super) fn is_fused(device: Device, dtype: Dtype, rows: u64, shape: Shape) -> bool {
    let (inner, outer) = (shape.input, shape.output);
    if rows > MOST_ROWS || !inner.is_multiple_of(64) {
        return false;
    }
    if rows <= FEWEST_ROWS {
        return true;
    }
    let capability = device.capability;
    let without_mma = capability < 75 || dtype == Dtype::F32 || (capability == 75 && dtype != Dtype::F16);
    if without_mma {
        return rows < 8;
    }
    let (blocks, sms) = (outer.div_ceil(64), device.multiprocessors);
    let most = match capability {
        87 | 110..=119 => return false,
        100..=109 => hopper_successor(blocks, sms, inner < outer),
        _ if outer.saturating_mul(inner) < SMALL => small(device, rows, blocks, (inner, outer)),
        _ if rows < 8 => return are_few_fused(device, rows, blocks, (inner, outer)),
        75 => turing(blocks, sms, inner < outer),
        76..=80 => ampere(blocks, sms, inner, outer),
        81..=86 => consumer_ampere(blocks, sms),
        90..=99 => hopper(blocks, sms, inner >= outer),
        120 => blackwell(blocks, sms, inner, outer),
        121 if blocks >= sms => 256,
        _ => ada(blocks, sms, inner, outer),
    };
    rows <= most
}

/// Of five to seven rows: fused, but for six or seven on cards with HBM whose weight is deep or square and fills part of the card.
fn are_few_fused(device: Device, rows: u64, blocks: u64, (inner, outer): (u64, u64)) -> bool {
    let sms = device.multiprocessors;
    let (below_60, below_75) = (blocks * 5 < sms * 3, blocks * 4 < sms * 3);
    let (least, square_loses) = match device.capability {
        80 => (48, below_60),
        90..=99 => (36, below_75 && !below_60),
        _ => return true,
    };
    let loses = inner > outer && below_75 || inner == outer && square_loses;
    rows < 6 || blocks < least || !loses
}

fn hopper_successor(blocks: u64, sms: u64, wide: bool) -> u64 {
    if blocks >= sms * 3 {
        32
    } else if blocks >= sms && wide {
        8
    } else {
        0
    }
}

/// Weights so small that dequantising them is what costs.
fn small(device: Device, rows: u64, blocks: u64, (inner, outer): (u64, u64)) -> u64 {
    let sms = device.multiprocessors;
    let (is_turing, is_ampere) = (device.capability == 75, device.capability == 80);
    let has_hbm = is_ampere || (90..=99).contains(&device.capability);
    if inner * 2 < outer {
        let low = blocks * 3 < sms;
        return match (is_ampere, has_hbm, is_turing) {
            (true, _, _) if low => 1536,
            (true, _, _) => 512,
            (_, true, _) if low => 512,
            (_, true, _) => 320,
            (_, _, true) if blocks >= sms * 3 => 320,
            (_, _, true) if inner >= 1024 => 64,
            (_, _, true) if inner >= 704 => 96,
            (_, _, true) => 320,
            _ if blocks < sms && blocks * inner > sms * 320 => 192,
            _ => 320,
        };
    }
    let quarter = blocks * 4 <= sms;
    if is_ampere && quarter {
        return match (inner >= outer, blocks * 8 <= sms) {
            (true, true) => 32,
            (true, false) => 128,
            (false, _) => 384,
        };
    }
    if is_turing && blocks < sms && rows > 8 {
        return 64;
    }
    if quarter {
        return if inner < outer || has_hbm { 32 } else { 23 };
    }
    if blocks * 2 <= sms { 16 } else { 0 }
}

fn turing(blocks: u64, sms: u64, wide: bool) -> u64 {
    if blocks >= sms * 3 {
        if wide { 128 } else { 64 }
    } else if blocks >= sms / 2 {
        64
    } else {
        32
    }
}

fn ampere(blocks: u64, sms: u64, inner: u64, outer: u64) -> u64 {
    if blocks >= sms * 3 {
        return 128;
    }
    if blocks >= sms {
        return if inner < outer { 64 } else { 32 };
    }
    let deep = inner >= outer * 3 && blocks * 4 > sms;
    let square = inner == outer && blocks >= 48 && blocks * 5 < sms * 3;
    if deep || square {
        return 0;
    }
    if blocks * 2 < sms {
        if inner <= outer {
            return 128;
        }
        if blocks * 3 >= sms {
            return 0;
        }
    }
    if blocks >= sms / 2 && inner < outer { 128 } else { 16 }
}

fn consumer_ampere(blocks: u64, sms: u64) -> u64 {
    if blocks >= sms {
        128
    } else if blocks >= sms / 2 {
        64
    } else {
        16
    }
}

fn hopper(blocks: u64, sms: u64, deep: bool) -> u64 {
    if blocks >= sms * 3 {
        64
    } else if blocks >= sms * 2 {
        48
    } else if blocks >= sms {
        32
    } else if blocks >= sms / 2 && !(deep && blocks * 4 < sms * 3) {
        16
    } else {
        0
    }
}

fn blackwell(blocks: u64, sms: u64, inner: u64, outer: u64) -> u64 {
    if blocks >= sms * 3 {
        256
    } else if blocks >= sms * 2 {
        128
    } else if blocks * 5 >= sms * 4 {
        if inner >= outer { 96 } else { 64 }
    } else if blocks >= sms / 2 {
        if inner * 2 >= outer && blocks >= 128 { 64 } else { 8 }
    } else if inner > outer * 2 && blocks > 64 {
        16
    } else {
        8
    }
}

fn ada(blocks: u64, sms: u64, inner: u64, outer: u64) -> u64 {
    let deep = inner > outer * 2;
    if blocks >= sms * 3 {
        256
    } else if blocks >= sms * 2 {
        128
    } else if blocks * 5 >= sms * 4 {
        if deep || blocks >= 200 || (inner >= outer && sms >= 60) {
            128
        } else if inner >= outer {
            32
        } else {
            64
        }
    } else if blocks >= sms / 2 {
        if deep {
            64
        } else if blocks >= 64 {
            8
        } else {
            32
        }
    } else if inner > outer && blocks <= 48 {
        if inner >= outer * 3 { 12 } else { 10 }
    } else if deep || blocks < 48 {
        16
    } else {
        8
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::Gpu;
    use crate::units::Bytes;

    /// What bitsandbytes' own function answers, as `tools/four_bit_kernels.py` writes it.
    #[test]
    fn the_choice_is_bitsandbytes_own() {
        let mut lines = include_str!("../../../../tests/fixtures/four-bit-kernels.tsv").lines();
        let rows: Vec<u64> = lines
            .next()
            .and_then(|first| first.split('\t').nth(1))
            .map(|rows| rows.split(' ').map(|number| number.parse().expect("rows")).collect())
            .expect("the first line");
        let lines: Vec<&str> = lines.collect();
        assert!(lines.len() > 3_000, "{} shapes", lines.len());
        let mut wrong = Vec::new();
        for line in lines {
            let [capability, sms, dtype, inner, outer, mask] = line.split('\t').collect::<Vec<_>>()[..]
            else {
                panic!("{line}")
            };
            let number = |text: &str| text.parse::<u64>().expect("a number");
            let device = Device {
                capability: number(capability) as u32,
                multiprocessors: number(sms),
                ..Device::of(&Gpu::custom(Bytes::gib(24.0)))
            };
            let dtype = match dtype {
                "bf16" => Dtype::Bf16,
                "fp16" => Dtype::F16,
                _ => Dtype::F32,
            };
            let shape = Shape { input: number(inner), output: number(outer) };
            let mask = u64::from_str_radix(mask, 16).expect("a mask");
            for (index, rows) in rows.iter().enumerate() {
                if is_fused(device, dtype, *rows, shape) != (mask >> index & 1 == 1) {
                    wrong.push(format!("{rows} rows: {line}"));
                }
            }
        }
        assert!(wrong.is_empty(), "{} of them: {:#?}", wrong.len(), &wrong[..wrong.len().min(12)]);
    }
}
