//! What Unsloth keeps on the device from the first step to the last.
//!
//! Source: unsloth 2026.10.9 models/llama.py `LlamaRotaryEmbedding`, kernels/utils.py `_scratch`; unsloth_zoo 2026.10.9
//! gradient_checkpointing.py `GPU_BUFFERS`.

use super::{compiles, offloads};
use crate::dtype::Dtype;
use crate::job::{Batch, Member};
use crate::memory::Category;
use crate::model::Architecture;
use crate::model::blocks::{FeedForward, Linear, Mlp, Projection};
use crate::scenario::Method;
use crate::step::forward::adapters::{Part, adapts};
use crate::step::forward::loader::{Loader, weights_dtype};
use crate::step::forward::{BoundLayer, Pass};
use crate::step::ops::linear::Weight;
use crate::step::what::{Dims, Rows, Source, What, torch};

static SCRATCH: What = What::own(
    "dequantised weight",
    "where every 4-bit weight is dequantised: made for the largest, there until the end",
    Source::Modeling,
);
static RETURNED: What =
    What::own("layer input", "where layers' inputs come back from the CPU, in turns", Source::Modeling);

/// Positions that the rotary tables have at first at most, and by how many they grow.
const FIRST_POSITIONS: u64 = 4 * 8192;
/// See [`FIRST_POSITIONS`].
const MORE_POSITIONS: u64 = 8192;

impl Loader<'_> {
    /// The rotary tables, the buffer that 4-bit weights are dequantised into, and the two that layers' inputs come back to.
    pub(in crate::step::forward) fn unsloth_buffers(&mut self, architecture: &Architecture) {
        let dtype = weights_dtype(self.member);
        // within a graph each weight is dequantised into a buffer of the graph's
        let is_compiled = compiles(self.member, self.batch);
        let scratch =
            if self.member.method == Method::Qlora && !is_compiled { largest(self, architecture) } else { 0 };
        let mut store = |numel: u64, dtype: Dtype, what: &'static What| {
            let bytes = numel.saturating_mul(dtype.bytes());
            self.state.persistent(bytes, dtype, 1, Category::Buffers, what)
        };
        let (elements, rotated) = rotary_table(architecture, self.member, self.batch);
        for name in [&torch::COS, &torch::SIN] {
            store(elements, rotated, name);
        }
        if scratch > 0 {
            store(scratch, dtype, &SCRATCH);
        }
        let input = self.batch.tokens().saturating_mul(architecture.hidden);
        if offloads(self.member, input.saturating_mul(dtype.bytes())) {
            let both = [store(input, dtype, &RETURNED), store(input, dtype, &RETURNED)];
            let dims = Dims::Rows(Rows::Tokens, self.batch.tokens());
            both.into_iter().for_each(|buffer| self.state.note_dims(buffer, dims));
        }
    }
}

/// The elements of the table of cosines, and of that of sines, and their type.
pub(super) fn rotary_table(architecture: &Architecture, member: &Member, batch: Batch) -> (u64, Dtype) {
    let family = architecture.family.and_then(|family| family.stacks.unsloth);
    let in_float32 = family.is_some_and(|family| family.rotary_in_float32);
    let rotated = if in_float32 { Dtype::F32 } else { weights_dtype(member) };
    let known = architecture.max_positions.unwrap_or(0).max(batch.length);
    let first = known.min(FIRST_POSITIONS);
    let grown = |rows: u64| rows.div_ceil(MORE_POSITIONS).saturating_mul(MORE_POSITIONS);
    // position ids may be any that the model knows
    let asked = if batch.mask.is_packed() { known } else { batch.length };
    let most = if known > FIRST_POSITIONS { grown(known) } else { known };
    let width = architecture
        .blocks
        .iter()
        .filter_map(|block| block.mixer.attention())
        .find_map(|attention| attention.rotary.width(attention.head_dim));
    let rows = first.max(grown(asked)).min(most);
    (rows.saturating_mul(width.unwrap_or(0)), rotated)
}

/// Weights of the largest layer that one of Unsloth's functions runs: only these dequantise into the buffer that stays.
fn largest(loader: &Loader<'_>, architecture: &Architecture) -> u64 {
    let of = |layers: &[(&Linear, Part)]| {
        let fused = layers.iter().all(|(layer, part)| !layer.bias && adapts(loader, layer, *part));
        let weights = layers.iter().map(|(layer, _)| layer.weight_numel()).max();
        weights.filter(|_| fused).unwrap_or(0)
    };
    let blocks = architecture.blocks.iter().map(|block| {
        let attention = block.mixer.attention().map_or(0, |attention| match &attention.projection {
            Projection::Separate { q, k, v } => {
                let inputs = [(q, Part::QueryOrValue), (k, Part::Key), (v, Part::QueryOrValue)];
                of(&inputs).max(of(&[(&attention.output, Part::Output)]))
            }
            // refused by `architecture`
            Projection::Fused(_) | Projection::KeysAreValues { .. } | Projection::QueriesOnly(_) => 0,
        });
        match &block.ffn {
            FeedForward::Dense(Mlp::Gated { gate, up, down, .. }) => {
                attention.max(of(&[gate, up, down].map(|layer| (layer, Part::Mlp))))
            }
            FeedForward::Dense(_) | FeedForward::Moe(_) | FeedForward::None => attention,
        }
    });
    blocks.max().unwrap_or(0)
}

impl<'a> Pass<'_, 'a> {
    /// A layer's weight of queries, and the tables of sines and cosines: their elements, and the type of these.
    pub(in crate::step::forward) fn unsloth_rotary(
        &self,
        layer: &BoundLayer<'a>,
    ) -> Option<(Weight, (u64, Dtype))> {
        let Projection::Separate { q, .. } = &layer.block.mixer.attention()?.projection else { return None };
        Some((layer.linear(q).weight, rotary_table(self.architecture, self.member, self.batch)))
    }
}
