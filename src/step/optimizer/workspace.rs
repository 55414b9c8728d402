//! The workspace of cuSOLVER's `gesvdj`, by which PyTorch decomposes a matrix into singular values (`torch.linalg.svd`).

/// Its float32 numbers for an economic decomposition with vectors, as `cusolverDnSgesvdj_bufferSize` of cuSOLVER 12 (CUDA 13.0) gives
/// them for matrices of 128 to 8,192 by up to 4 times as many: exact where both sides are multiples of 64, elsewhere within 10 KB.
pub(super) fn of_decomposition(longer: u64, shorter: u64) -> u64 {
    let square = aligned(shorter.saturating_mul(shorter));
    let columns = shorter.div_ceil(64);
    // of blocks of 64 columns, pairs of which are rotated at a time
    let rotated = 1024_u64
        .saturating_add(shorter.saturating_mul(65))
        .saturating_add(aligned(shorter / 32))
        .saturating_add(columns.saturating_mul(columns) / 4 * 64);
    let whole = |squares: u64| square.saturating_mul(squares).saturating_add(rotated);
    if longer == shorter {
        return whole(2);
    }
    // a matrix that is no square is made one first
    let reduced = aligned(longer.saturating_mul(shorter)).saturating_add(square);
    whole(3).max(reduced)
}

/// So many numbers in lines of 128 bytes.
fn aligned(numbers: u64) -> u64 {
    numbers.div_ceil(32).saturating_mul(32)
}

#[cfg(test)]
mod tests {
    use super::of_decomposition;

    /// What the library answers.
    #[test]
    fn it_is_cusolvers() {
        for (longer, shorter, numbers) in [
            (512, 512, 559_648),
            (1024, 512, 821_792),
            (2048, 512, 1_310_720),
            (1024, 1024, 2_168_864),
            (2048, 1024, 3_217_440),
            (4096, 4096, 33_887_360),
            (14_336, 4096, 75_497_472),
            (192, 192, 87_392),
        ] {
            assert_eq!(of_decomposition(longer, shorter), numbers, "{longer} by {shorter}");
        }
    }

    /// The same of sides that are no multiples of 64.
    #[test]
    fn elsewhere_it_is_nearly_so() {
        for (longer, shorter, numbers) in
            [(1000, 500, 785_376_u64), (777, 333, 369_664), (250, 100, 39_424), (11_008, 4090, 61_750_848)]
        {
            let off = of_decomposition(longer, shorter).abs_diff(numbers) * 4;
            assert!(off <= 10 * 1024, "{longer} by {shorter}: {off} bytes");
        }
    }
}
