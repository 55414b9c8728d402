//! How the attention kernels split their work, which decides their scratch space.

use super::arguments::Scores;

impl Scores {
    /// `num_splits_heuristic` of the flash kernel.
    pub fn splits(&self, multiprocessors: u64) -> u64 {
        const LONGEST: u64 = 128;
        let columns = match self.head_dim {
            0..=64 => 256,
            65..=128 => 128,
            _ => 64,
        };
        let keys = self.keys.div_ceil(columns);
        // `seqlenq_ngroups_swapped`: the heads of a group are the rows of a single query
        let groups = self.heads / self.kv_heads.max(1);
        let (heads, queries) = if self.sequence == 1 && groups > 1 {
            (self.kv_heads, groups)
        } else {
            (self.heads, self.sequence)
        };
        let blocks = self.batch.saturating_mul(heads).saturating_mul(queries.div_ceil(64));
        if blocks.saturating_mul(10) >= multiprocessors.saturating_mul(8) {
            return 1;
        }
        let most = LONGEST.min(multiprocessors).min(keys);
        let eligible = |splits: &u64| *splits == 1 || keys.div_ceil(*splits) != keys.div_ceil(splits - 1);
        let efficiency = |splits: u64| {
            let waves = (blocks * splits) as f32 / multiprocessors as f32;
            waves / waves.ceil()
        };
        let best = (1..=most).filter(eligible).map(efficiency).fold(0.0_f32, f32::max);
        // the share is a double there, the efficiencies are floats
        let enough = 0.85 * f64::from(best);
        (1..=most).filter(eligible).find(|splits| f64::from(efficiency(*splits)) >= enough).unwrap_or(1)
    }

    /// The memory-efficient kernel's sums in float32, block by block (kernel_backward.h `workspace_elements_gq`, `_gk`,
    /// `_gv`): of dq, each block with a lock and a counter; where a block's registers do not hold dk and dv also of these, for
    /// each split of the keys, of which there are as many as the heuristic of attention_backward.cu says.
    pub fn staged(&self, half: bool, capability: u32) -> u64 {
        let Blocks { rows, columns, sums_keys } = self.blocks(half, capability);
        let tiles = self.sequence.div_ceil(rows).saturating_mul(self.head_dim.div_ceil(columns));
        let queries = tiles.saturating_mul(rows.saturating_mul(columns).saturating_mul(4).saturating_add(16));
        let matrices = self.batch.saturating_mul(self.heads);
        if !sums_keys {
            return queries.saturating_mul(matrices);
        }
        const KEYS: u64 = 64;
        let splits = self.keys.div_ceil(KEYS).min(200 / matrices.max(1)).max(1);
        let aligned = |width: u64| width.div_ceil(rows).saturating_mul(rows);
        let width = aligned(self.head_dim).saturating_add(aligned(self.value_dim));
        let keys = splits.saturating_mul(KEYS).saturating_mul(width).saturating_mul(4);
        queries.saturating_add(keys).saturating_mul(matrices)
    }

    /// The blocks of the memory-efficient kernel that runs: the first whose heads are wide enough and whose shared memory the
    /// card has (mem_eff_attention/kernels/cutlassB.h; measured on 7.5 to 12.0 with heads of 32 to 256).
    fn blocks(&self, half: bool, capability: u32) -> Blocks {
        // 163 KiB of shared memory and more
        let large = matches!(capability, 80 | 87 | 90..=119);
        let blocks = |rows, columns, sums_keys| Blocks { rows, columns, sums_keys };
        match (self.head_dim.max(self.value_dim), half) {
            (0..=64, _) => blocks(64, 64, false),
            (65..=128, true) if large => blocks(128, 128, false),
            (65..=128, true) if capability < 80 => blocks(128, 64, false),
            (65..=96, true) if matches!(capability, 86 | 89) && !self.dropout => blocks(128, 64, false),
            (65..=128, true) => blocks(64, 64, true),
            (_, true) => blocks(128, 64, true),
            (_, false) if large => blocks(128, 64, false),
            (_, false) => blocks(64, 64, false),
        }
    }
}

/// A block of the memory-efficient kernel's backward.
struct Blocks {
    rows: u64,
    columns: u64,
    /// Whether dk and dv are summed in memory too.
    sums_keys: bool,
}

#[cfg(test)]
mod tests {
    use super::super::arguments::Kernel;
    use super::*;

    const ONE: Scores = Scores {
        kernel: Kernel::Flash,
        batch: 1,
        heads: 1,
        kv_heads: 1,
        sequence: 1,
        keys: 1,
        head_dim: 64,
        value_dim: 64,
        enable_gqa: true,
        texts: 0,
        dropout: false,
        calls: 1,
        ranks: 1,
        bias: None,
    };

    /// What `num_splits_heuristic` and `set_params_splitkv` of PyTorch's flash_api.cpp say when they are compiled by themselves.
    #[test]
    fn keys_are_split_as_the_flash_kernel_splits_them() {
        for (batch, [heads, kv_heads], [sequence, keys], head_dim, multiprocessors, splits) in [
            // a token of Llama-3-8B after 4,096 on H100: eight blocks of four rows; without shared heads there are 32
            (1, [32, 8], [1, 4096], 128, 132, 32),
            (1, [32, 32], [1, 4096], 128, 132, 7),
            (4, [32, 8], [1, 1000], 128, 132, 8),
            (1, [71, 1], [1, 8192], 64, 108, 32),
            (1, [14, 2], [64, 1024], 64, 128, 4),
            // two blocks of queries
            (1, [12, 12], [65, 640], 64, 170, 3),
            (1, [16, 8], [256, 2000], 96, 84, 2),
            (1, [4, 1], [512, 2048], 256, 142, 7),
            (1, [1, 1], [2048, 2048], 128, 84, 4),
            // there are blocks for most of the card, or there is nothing to split
            (2, [16, 16], [512, 512], 64, 108, 1),
            (1, [8, 8], [128, 128], 64, 108, 1),
            // 0.85 of the best efficiency, which is a double, is a hair more than the float that 17 and 5 splits have
            (1, [9, 9], [64, 24_832], 64, 108, 20),
            (1, [86, 86], [64, 12_800], 64, 128, 8),
        ] {
            let scores = Scores { batch, heads, kv_heads, sequence, keys, head_dim, ..ONE };
            assert_eq!(scores.splits(2 * multiprocessors), splits, "{scores:?} on {multiprocessors}");
        }
    }

    /// kernels/cutlassB.h, in its order, and `workspace_elements_gq`, `_gk` and `_gv` of kernel_backward.h: of one head and 100 queries and keys
    /// unless it is said otherwise. A block of dq is its rows × its columns in float32 and 16 bytes.
    #[test]
    fn the_memory_efficient_kernel_sums_what_its_registers_do_not_hold() {
        let tile = |rows: u64, columns: u64| 4 * rows * columns + 16;
        let (small, tall, large) = (tile(64, 64), tile(128, 64), tile(128, 128));
        // dk and dv of two splits of 64 keys
        let both = |width: u64| 4 * 2 * 64 * 2 * width;
        for (head_dim, half, capability, dropout, bytes) in [
            // two tiles of 64 queries, kernels of up to 64 elements on any card
            (64, true, 90, false, 2 * small),
            (64, false, 75, true, 2 * small),
            (40, true, 86, false, 2 * small),
            // 128x128_k128, where its shared memory fits
            (65, true, 80, false, large),
            (128, true, 87, true, large),
            (128, true, 90, false, large),
            (96, true, 100, true, large),
            // 128x64_k128 of Turing
            (96, true, 75, false, 2 * tall),
            (128, true, 75, true, 2 * tall),
            // 128x64_k96 is compiled without dropout, and for these two
            (96, true, 86, false, 2 * tall),
            (80, true, 89, false, 2 * tall),
            // 64x64_k128: dk and dv in memory
            (96, true, 89, true, 2 * 2 * small + both(128)),
            (72, true, 120, false, 2 * 2 * small + both(128)),
            (128, true, 86, false, 2 * 2 * small + both(128)),
            (97, true, 89, false, 2 * 2 * small + both(128)),
            // 128x64_k65536
            (256, true, 90, false, 4 * tall + both(256)),
            (160, true, 75, false, 3 * tall + both(256)),
            // in float32 they are summed where they stay: 128x64_k128 and 128x64_k65536, or 64x64 where these do not fit
            (128, false, 80, false, 2 * tall),
            (160, false, 90, true, 3 * tall),
            (128, false, 86, false, 2 * 2 * small),
            (256, false, 120, false, 2 * 4 * small),
        ] {
            let scores = Scores { sequence: 100, keys: 100, head_dim, value_dim: head_dim, dropout, ..ONE };
            let staged = scores.staged(half, capability);
            assert_eq!(staged, bytes, "{head_dim} half: {half} on {capability} dropout: {dropout}");
        }
    }

    /// The heuristic of attention_backward.cu: as many splits as there are blocks of 64 keys, no more than 200 for all heads together.
    #[test]
    fn few_heads_split_their_keys_more() {
        let of_dq = 4 * (4 * 128 * 64 + 16);
        let of_splits = |splits: u64| 4 * splits * 64 * 2 * 256;
        for (batch, heads, keys, splits) in [
            (1, 1, 64, 1),
            (1, 1, 65, 2),
            (1, 4, 4096, 50),
            (1, 4, 3136, 49),
            (2, 16, 4096, 6),
            (8, 32, 4096, 1),
            (1, 201, 4096, 1),
            (1, 100, 4096, 2),
        ] {
            let scores = Scores { batch, heads, sequence: 128, keys, head_dim: 256, value_dim: 256, ..ONE };
            let all = batch * heads * (of_dq + of_splits(splits));
            assert_eq!(scores.staged(true, 90), all, "{batch} × {heads}, {keys} keys");
        }
    }

    /// Of which kernel the wider of both decides; of dq the keys' width is summed, of dk and dv each its own.
    #[test]
    fn values_may_have_another_width_than_keys() {
        let scores = Scores { sequence: 64, keys: 64, head_dim: 192, value_dim: 128, ..ONE };
        assert_eq!(scores.staged(true, 80), 3 * (4 * 128 * 64 + 16) + 4 * 64 * (256 + 128));
        assert_eq!(Scores { head_dim: 64, ..scores }.staged(true, 80), 4 * 128 * 128 + 16);
    }
}
