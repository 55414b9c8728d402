//! What one of several GPUs has of a model that vLLM divides among them (`--tensor-parallel-size`): heads, columns of feed-forward
//! networks and of every expert, rows of the vocabulary. Norms and routers it has whole, and so what latent attention makes its keys
//! and values from.
//!
//! Source: vLLM 0.21 model_executor/layers/linear.py (`QKVParallelLinear`, `ColumnParallelLinear`, `RowParallelLinear`),
//! vocab_parallel_embedding.py, fused_moe/layer.py, models/deepseek_v2.py, config/model.py `verify_with_parallel_config`.

use crate::model::Architecture;
use crate::model::blocks::{Attention, FeedForward, Latent, LatentQuery, Mixer, Mlp, Moe, Projection};
use crate::units::grouped;

/// The vocabulary is padded to so many rows (`DEFAULT_VOCAB_PADDING_SIZE`).
const PADDING: u64 = 64;

/// The model as one of so many GPUs has it.
///
/// # Errors
/// Why vLLM does not divide it so.
pub(super) fn rank(architecture: &Architecture, ranks: u64) -> Result<Architecture, String> {
    let among = Among(ranks.max(1));
    let mut own = architecture.clone();
    for block in &mut own.blocks {
        match &mut block.mixer {
            Mixer::Attention(attention) => among.attention(attention)?,
            Mixer::Latent(latent) => among.latent(latent)?,
            Mixer::None => {}
            Mixer::Cross(_)
            | Mixer::StateSpace(_)
            | Mixer::DeltaNet(_)
            | Mixer::ShortConv(_)
            | Mixer::Module(_)
                if among.0 == 1 => {}
            Mixer::Cross(_)
            | Mixer::StateSpace(_)
            | Mixer::DeltaNet(_)
            | Mixer::ShortConv(_)
            | Mixer::Module(_) => {
                return Err("how it divides such layers among GPUs is not followed".to_owned());
            }
        }
        match &mut block.ffn {
            FeedForward::Dense(mlp) => among.mlp(mlp)?,
            FeedForward::Moe(moe) => among.moe(moe)?,
            FeedForward::None => {}
        }
    }
    let padded = architecture.vocab.div_ceil(PADDING).saturating_mul(PADDING);
    let rows = among.share(padded, "rows of the padded vocabulary")?;
    own.embeddings.tokens.rows = rows;
    own.head.linear.output = rows;
    Ok(own)
}

/// That what a GPU has of every matrix is whole blocks of so many weights that share a scale, which vLLM checks on one GPU too.
/// Latent attention's own matrices are not looked at.
///
/// Source: vLLM 0.21 model_executor/layers/quantization/utils/fp8_utils.py `validate_fp8_block_shape` and fp8.py, whose blocks are
/// square; gptq.py, awq.py and utils/marlin_utils.py, whose groups lie along what a matrix reads.
///
/// # Errors
/// Which part is not.
pub(super) fn in_blocks(rank: &Architecture, block: u64, is_square: bool) -> Result<(), String> {
    let whole = |columns: u64| {
        if block == 0 || columns.is_multiple_of(block) {
            return Ok(());
        }
        Err(format!(
            "a GPU would have {} columns of a matrix whose scales are of {} each, which vLLM refuses",
            grouped(columns),
            grouped(block)
        ))
    };
    for parts in &rank.blocks {
        if let Mixer::Attention(attention) = &parts.mixer {
            whole(attention.output.input)?;
            if is_square {
                whole(attention.kv_heads.saturating_mul(attention.head_dim))?;
            }
        }
        match &parts.ffn {
            FeedForward::Dense(
                Mlp::Gated { down, .. } | Mlp::GatedFused { down, .. } | Mlp::Plain { down, .. },
            ) => whole(down.input)?,
            FeedForward::Moe(moe) => whole(moe.expert_width)?,
            FeedForward::None => {}
        }
    }
    // what all other matrices read, of which blocks that are squares may be cut
    if is_square { Ok(()) } else { whole(rank.hidden) }
}

/// So many GPUs.
#[derive(Clone, Copy)]
struct Among(u64);

impl Among {
    fn share(self, number: u64, what: &str) -> Result<u64, String> {
        if number.is_multiple_of(self.0) {
            return Ok(number / self.0);
        }
        Err(format!("it does not divide {} {what} among {} GPUs", grouped(number), grouped(self.0)))
    }

    fn attention(self, attention: &mut Attention) -> Result<(), String> {
        let whole = [attention.heads, attention.kv_heads];
        attention.heads = self.share(whole[0], "heads")?;
        // a head of keys and values is on several GPUs where there are more of them (`num_kv_head_replicas`)
        attention.kv_heads = match whole[1] {
            few if self.0 >= few.max(1) && self.0.is_multiple_of(few.max(1)) => few.min(1),
            many => self.share(many, "heads of keys and values")?,
        };
        let part = |width: u64, of: usize| {
            let own = [attention.heads, attention.kv_heads][of];
            (width / whole[of].max(1)).saturating_mul(own)
        };
        attention.output.input = part(attention.output.input, 0);
        match &mut attention.projection {
            Projection::Separate { q, k, v } => {
                q.output = part(q.output, 0);
                k.output = part(k.output, 1);
                v.output = part(v.output, 1);
            }
            Projection::KeysAreValues { q, k } => {
                q.output = part(q.output, 0);
                k.output = part(k.output, 1);
            }
            Projection::QueriesOnly(q) => q.output = part(q.output, 0),
            Projection::Fused(linear) => {
                let heads = attention.heads.saturating_add(attention.kv_heads.saturating_mul(2));
                linear.output = heads.saturating_mul(attention.head_dim);
            }
        }
        Ok(())
    }

    /// What is made for every head is divided; down to the low-rank vectors every GPU projects by itself.
    fn latent(self, latent: &mut Latent) -> Result<(), String> {
        latent.heads = self.share(latent.heads, "heads")?;
        let query = match &mut latent.query {
            LatentQuery::Full(linear) => linear,
            LatentQuery::LowRank { b, .. } => b,
        };
        query.output /= self.0;
        latent.kv_b.output /= self.0;
        latent.output.input /= self.0;
        Ok(())
    }

    fn mlp(self, mlp: &mut Mlp) -> Result<(), String> {
        let what = "columns of a feed-forward network";
        let width = match mlp {
            Mlp::Gated { gate, up, down, .. } => {
                let width = self.share(down.input, what)?;
                (gate.output, up.output) = (width, width);
                &mut down.input
            }
            Mlp::GatedFused { gate_up, down, .. } => {
                gate_up.output = self.share(down.input, what)?.saturating_mul(2);
                &mut down.input
            }
            Mlp::Plain { up, down, .. } => {
                up.output = self.share(down.input, what)?;
                &mut down.input
            }
        };
        *width /= self.0;
        Ok(())
    }

    fn moe(self, moe: &mut Moe) -> Result<(), String> {
        moe.expert_width = self.share(moe.expert_width, "columns of an expert")?;
        if let Some(expert) = &mut moe.layers {
            self.mlp(expert)?;
        }
        moe.shared.as_mut().map_or(Ok(()), |shared| self.mlp(shared))
    }
}
