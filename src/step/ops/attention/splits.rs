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
        (1..=most).filter(eligible).find(|splits| efficiency(*splits) >= 0.85 * best).unwrap_or(1)
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
        let mut splits = self.keys.div_ceil(KEYS);
        if matrices >= 256 && self.keys <= 2 * KEYS {
            splits = 1;
        }
        let splits = splits.min(200 / matrices.max(1)).max(1);
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
