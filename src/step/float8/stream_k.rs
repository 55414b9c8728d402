//! The workspace of CUTLASS's product with a scale for each row on compute capability 8.9: blocks that share a tile of the output leave
//! their partial sums there.
//!
//! Source: aten/src/ATen/native/cuda/RowwiseScaledMM.cu (`dispatch_fp8_rowwise_kernel_sm89`), and CUTLASS's
//! gemm/threadblock/threadblock_swizzle_streamk.h (`get_blocks`, `get_sk_blocks`), gemm/kernel/gemm_universal_with_visitor_streamk.h and
//! epilogue/threadblock/epilogue_base_streamk.h (`kWorkspaceBytesPerBlock`). One block fits a multiprocessor: its stages take more than half
//! of the shared memory.

/// Iterations that a block has at least (`kMinItersPerSkBlock`).
const FEWEST_ITERATIONS: u64 = 2;

/// Rows, columns and depth of a tile of the output.
struct Tile(u64, u64, u64);

impl Tile {
    /// What a product of so many rows is divided into.
    fn of(rows: u64) -> Tile {
        match rows {
            0..=16 => Tile(16, 64, 128),
            17..=32 => Tile(32, 64, 128),
            33..=64 => Tile(64, 64, 128),
            65..=256 => Tile(64, 128, 128),
            _ => Tile(128, 128, 64),
        }
    }
}

/// Bytes of the workspace of `[rows, inner] × [inner, columns]` on so many multiprocessors.
pub(in crate::step) fn workspace((rows, inner, columns): (u64, u64, u64), multiprocessors: u64) -> u64 {
    const CACHE_LINE: u64 = 128;
    let Tile(height, width, depth) = Tile::of(rows);
    let tiles = rows.div_ceil(height).saturating_mul(columns.div_ceil(width));
    let blocks = sharing_blocks(tiles, inner.div_ceil(depth), multiprocessors.max(1)).max(1);
    // float32 sums of up to two tiles that a block shares, and a flag of four bytes
    let sums = blocks.saturating_mul(2 * 4 * height * width);
    sums.saturating_add((4 * blocks).next_multiple_of(CACHE_LINE))
}

/// How many blocks share tiles: those that an even number of blocks per multiprocessor leaves over, and the last full wave with them.
fn sharing_blocks(tiles: u64, iterations: u64, multiprocessors: u64) -> u64 {
    let over = tiles % multiprocessors;
    match (over, tiles / multiprocessors) {
        (0, _) => 0,
        (_, 0) => best(over, iterations, multiprocessors, multiprocessors.min(over + 1)),
        (_, _) => best(over + multiprocessors, iterations, multiprocessors, multiprocessors),
    }
}

/// The number of blocks, from that many up, that saves most iterations of one block for each tile; none where none is saved.
fn best(tiles: u64, iterations: u64, multiprocessors: u64, fewest: u64) -> u64 {
    let all = tiles.saturating_mul(iterations);
    let apart = i128::from(iterations) * i128::from(tiles.div_ceil(multiprocessors));
    let most = multiprocessors.min(all / FEWEST_ITERATIONS);
    let saved = |blocks: u64| {
        let each = i128::from(all.div_ceil(blocks));
        let peers = i128::from(blocks.div_ceil(tiles));
        let joins = match blocks % tiles {
            0 => 2 * peers,
            // a tile may begin within a block
            _ => 2 * (peers + 1) + (peers + 1) * each / 50,
        };
        apart - each - 2 - joins
    };
    let trials = (fewest.max(1)..=most).map(|blocks| (saved(blocks), blocks));
    trials.max().filter(|(saved, _)| *saved >= 0).map_or(0, |(_, blocks)| blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As PyTorch 2.11 asked for it on the null device of compute capability 8.9, which has 128 multiprocessors and lets two blocks run on
    /// each: there a block for each part of a tile adds them up, and the second product has 64 flags in place of 32. What is allocated are
    /// 512 bytes at a time, in which they are the same.
    #[test]
    fn workspaces_are_as_they_were_seen() {
        for (dims, bytes) in [
            ((1024, 1024, 1024), 16_777_728),
            ((1024, 1024, 16), 4_194_560),
            ((1024, 16, 1024), 131_200),
            ((1024, 1024, 4096), 131_200),
            ((1024, 4096, 1024), 16_777_728),
        ] {
            let allocated = |bytes: u64| bytes.next_multiple_of(512);
            assert_eq!(allocated(workspace(dims, 128)), allocated(bytes), "{dims:?}");
        }
    }

    /// How many blocks share tiles, by `get_blocks` and `get_sk_blocks` of CUTLASS compiled by themselves, of the tiles that
    /// `dispatch_fp8_rowwise_kernel_sm89` chooses.
    #[test]
    fn as_many_blocks_share_tiles_as_cutlass_says() {
        for ((rows, inner, columns), multiprocessors, (height, width), blocks) in [
            // fewer tiles than multiprocessors: two, three or four blocks to a tile, however many rows
            ((1, 8192, 1024), 76, (16, 64), 64),
            ((16, 4096, 4096), 128, (16, 64), 128),
            ((17, 2048, 1024), 58, (32, 64), 48),
            ((32, 4096, 4096), 128, (32, 64), 128),
            ((48, 4096, 4096), 128, (64, 64), 128),
            ((100, 4096, 4096), 128, (64, 128), 128),
            ((256, 4096, 2048), 142, (64, 128), 128),
            ((257, 1024, 640), 76, (128, 128), 60),
            // what is left over together with a full wave
            ((1024, 4096, 1024), 58, (128, 128), 58),
            ((1024, 4096, 4096), 142, (128, 128), 142),
            ((2048, 2048, 2304), 128, (128, 128), 128),
            ((4096, 512, 4096), 142, (128, 128), 142),
            // nothing is left over, or too little to save by it, or tiles are too short to divide: the flag of one block
            ((2048, 2048, 2048), 128, (128, 128), 1),
            ((512, 4096, 4096), 142, (128, 128), 1),
            ((65, 1024, 1024), 76, (64, 128), 1),
            ((300, 64, 5000), 58, (128, 128), 1),
        ] {
            let sums: u64 = blocks * 2 * 4 * height * width;
            let flags = (4 * blocks).div_ceil(128) * 128;
            let dims = (rows, inner, columns);
            assert_eq!(workspace(dims, multiprocessors), sums + flags, "{dims:?} on {multiprocessors}");
        }
    }

    #[test]
    fn a_product_of_any_shape_has_one() {
        for size in [0, 1, 17, 1 << 20, 1 << 40, u64::MAX] {
            for multiprocessors in [0, 1, 128] {
                let bytes = workspace((size, size, size), multiprocessors);
                let block = 2 * 4 * 128 * 128 + 4;
                assert!(bytes >= 2 * 4 * 16 * 64, "{size}: {bytes}");
                assert!(bytes <= multiprocessors.max(1) * block + 128, "{size}: {bytes}");
            }
        }
    }
}
