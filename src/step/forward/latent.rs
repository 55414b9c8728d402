//! Multi-head latent attention: models/deepseek_v2 and models/deepseek_v3, and those that took it over.

use super::inputs::{Seen, Shared};
use super::layer::Mixed;
use super::self_attention::Heads;
use super::{BoundLayer, Pass};
use crate::model::blocks::{Latent, LatentQuery, Rotary};
use crate::step::ops::attention::{Kernel, Scores};
use crate::step::tensor::Tensor;
use crate::step::what::roles;

impl<'a> Pass<'_, 'a> {
    /// `DeepseekV3Attention`.
    pub(super) fn latent_attention(
        &self,
        layer: &BoundLayer<'a>,
        latent: &Latent,
        x: &Tensor<'a>,
        shared: &Shared<Tensor<'a>>,
    ) -> Mixed<'a> {
        let tokens = self.batch.tokens();
        let per_head = |width: u64| tokens.saturating_mul(latent.heads).saturating_mul(width);
        let projected = match &latent.query {
            LatentQuery::Full(q) => x.through(&layer.linear(q)),
            LatentQuery::LowRank { a, norm, b } => {
                let low = {
                    let low = x.through(&layer.linear(a));
                    low.normed(&layer.norm(norm))
                };
                low.through(&layer.linear(b))
            }
        };
        let q = projected.to_heads();
        drop(projected);
        let [q_pass, mut q_rotated] = q.split([per_head(latent.nope_dim), per_head(latent.rope_dim)]);
        let compressed = x.through(&layer.linear(&latent.kv_a));
        let [mut low, mut k_rotated] =
            compressed.split([tokens.saturating_mul(latent.kv_rank), tokens.saturating_mul(latent.rope_dim)]);
        low = low.normed(&layer.norm(&latent.kv_norm));
        if let Some((cos, sin)) = shared.rotary(Seen::All) {
            [q_rotated, k_rotated] = rotated(latent.rotary, [&q_rotated, &k_rotated], cos, sin);
        }
        // the cache holds what is still compressed
        let mut heads = Heads { q: q_rotated, k: low, v: k_rotated };
        self.remember(&mut heads, None);
        let Heads { q: q_rotated, k: low, v: k_rotated } = heads;
        let query = q_pass.cat(&q_rotated);
        let (key, value) = {
            let tokens = self.batch.sequences.saturating_mul(self.keys(None));
            let per_head = |width: u64| tokens.saturating_mul(latent.heads).saturating_mul(width);
            let both = low.through(&layer.linear(&latent.kv_b)).to_heads();
            let [k_pass, value] = both.split([per_head(latent.nope_dim), per_head(latent.value_dim)]);
            let width = latent.nope_dim.saturating_add(latent.rope_dim);
            let k_all = k_rotated.expanded_heads(latent.heads);
            let key = both.empty_like(per_head(width));
            (key.slice_filled(&k_pass).slice_filled(&k_all), value)
        };
        let heads = Heads { q: query, k: key, v: value };
        let scores = Scores {
            kernel: Kernel::Eager,
            batch: self.batch.sequences,
            heads: latent.heads,
            kv_heads: latent.heads,
            sequence: self.batch.length,
            keys: self.keys(None),
            head_dim: latent.nope_dim.saturating_add(latent.rope_dim),
            value_dim: latent.value_dim,
            enable_gqa: true,
            texts: 0,
            dropout: false,
            calls: 1,
            // refused beside it
            ranks: 1,
            bias: None,
        };
        let Mixed { mut output, weights } =
            self.attend_latent(scores, &heads, shared.full.as_ref(), self.attention_dropout(latent.dropout));
        output = output.through(&layer.linear(&latent.output));
        drop((q, q_pass, q_rotated));
        drop((compressed, low, k_rotated));
        Mixed { output, weights }
    }
}

/// Queries and the shared part of the keys, rotated.
pub(super) fn rotated<'m>(
    rotary: Rotary,
    [q, k]: [&Tensor<'m>; 2],
    cos: &Tensor<'m>,
    sin: &Tensor<'m>,
) -> [Tensor<'m>; 2] {
    q.machine.serving(&roles::ROTATION, || match rotary {
        Rotary::Complex => Tensor::rotated_complex([q, k], cos),
        Rotary::Interleaved { .. } => {
            let ([q_even, q_odd], [k_even, k_odd]) = (q.neighbours(), k.neighbours());
            let q = Tensor::rotated_neighbours([&q_even, &q_odd], cos, sin);
            [q, Tensor::rotated_neighbours([&k_even, &k_odd], cos, sin)]
        }
        Rotary::None
        | Rotary::Alibi
        | Rotary::Full
        | Rotary::Partial { .. }
        | Rotary::Float32
        | Rotary::Halves => [q.rotated(cos, sin), k.rotated(cos, sin)],
    })
}
