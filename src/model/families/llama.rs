//! Builds every family of decoders that is described as a [`Variant`].

use super::common::Common;
use super::latent;
use super::layers::{LayerFacts, layers};
use super::parts::{activation, decoder, dropout, head_dim, kv_heads, rotated, stack};
use super::variant::{Experts, HeadWidth, MlpShape, QkNorms, Rotation, SharedExperts, Variant, Wired};
use crate::model::architecture::Architecture;
use crate::model::blocks::{
    Activation, Attention, Block, FeedForward, Linear, Mixer, Mlp, Moe, Norm, Projection, QkNorm, QueryScale,
    Rotary, Wiring,
};
use crate::model::config::Config;
use crate::model::error::ModelError;

/// Reads a config as that variant.
pub fn read(config: &Config<'_>, variant: &Variant) -> Result<Architecture, ModelError> {
    let facts = layers(config, variant)?;
    let common = Common::read(config, variant)?;
    let layers = stack(facts, |facts| common.block(config, variant, facts))?;
    let final_norm = Norm::new(variant.final_norm, common.hidden, variant.norm);
    let mut model = decoder(config, variant.embedding, layers, final_norm)?;
    model.embeddings.scaled = variant.scaled;
    model.embeddings.dropout = dropout(config, variant.embedding_dropout)?;
    model.head.linear.bias = variant.head_bias.read(config)?;
    model.head.scaled = variant.head_scaled;
    model.head.softcap = config.number("final_logit_softcapping")?.is_some();
    Ok(model)
}

impl Common {
    /// Reads the dimensions of a config.
    pub fn read(config: &Config<'_>, variant: &Variant) -> Result<Common, ModelError> {
        let hidden = config.size("hidden_size")?;
        let heads = config.size("num_attention_heads")?;
        let head_dim = head_dim(config, "head_dim", hidden, heads)?;
        let share = |otherwise| rotated(config, head_dim, "partial_rotary_factor", otherwise);
        Ok(Common {
            hidden,
            heads,
            kv_heads: kv_heads(config, heads)?,
            head_dim,
            // where there is no key the code says silu
            act: match variant.activation {
                "" => Activation::Silu,
                key => activation(config, key)?,
            },
            rotary: match variant.rotation {
                Rotation::Full => Rotary::Full,
                Rotation::Partial(otherwise) => Rotary::Partial { dim: share(otherwise)? },
                Rotation::PartialOf(key) => {
                    Rotary::Partial { dim: config.size_or(key, head_dim)?.min(head_dim) }
                }
                Rotation::Interleaved(otherwise) => Rotary::Interleaved { dim: share(otherwise)? },
                Rotation::Float32 => Rotary::Float32,
                Rotation::Complex => Rotary::Complex,
                Rotation::Halves => Rotary::Halves,
                Rotation::Never => Rotary::None,
            },
            attention_dropout: dropout(config, variant.attention_dropout)?,
            residual_dropout: dropout(config, variant.residual_dropout)?,
        })
    }

    fn block(&self, config: &Config<'_>, variant: &Variant, facts: LayerFacts) -> Result<Block, ModelError> {
        let mixer = match variant.other {
            Some(other) if facts.other => (other.mixer)(config, self)?,
            _ if variant.latent => Mixer::Latent(latent::read(config, self, facts.indexed)?),
            _ => Mixer::Attention(self.attention(config, variant, facts)?),
        };
        let ffn = match variant.experts {
            Some(experts) if facts.sparse => FeedForward::Moe(Box::new(self.experts(config, &experts)?)),
            _ => FeedForward::Dense(self.mlp(config, variant)?),
        };
        Ok(Block {
            wiring: match variant.rewired {
                Some((key, wired)) if config.flag(key)? => self.wiring(&Variant { wired, ..*variant }),
                _ => self.wiring(variant),
            },
            mixer,
            cross: None,
            ffn,
            residual_dropout: self.residual_dropout,
            extra: (variant.extra)(config, self)?,
            layout: variant.layout,
        })
    }

    /// Norms and residuals of a layer.
    pub fn wiring(&self, variant: &Variant) -> Wiring {
        let norm = |name| Norm::new(name, self.hidden, variant.norm);
        match variant.wired {
            Wired::Pre([attention, mlp]) => Wiring::PreNorm { attention: norm(attention), mlp: norm(mlp) },
            Wired::Output([attention, mlp]) => {
                Wiring::OutputNorm { attention: norm(attention), mlp: norm(mlp) }
            }
            Wired::Sandwich([attention, attention_post, mlp, mlp_post]) => Wiring::Sandwich {
                attention: norm(attention),
                attention_post: norm(attention_post),
                mlp: norm(mlp),
                mlp_post: norm(mlp_post),
            },
            Wired::Parallel(attention) => Wiring::Parallel { attention: norm(attention), mlp: None },
        }
    }

    /// The attention of a layer.
    pub fn attention(
        &self,
        config: &Config<'_>,
        variant: &Variant,
        facts: LayerFacts,
    ) -> Result<Attention, ModelError> {
        let bias = variant.qkv_bias.read(config)?;
        let may_clip = matches!(config.model_type, "olmo" | "olmoe" | "flex_olmo");
        let clipped = may_clip && config.number("clip_qkv")?.is_some();
        if clipped && config.model_type != "olmo" {
            return Err(ModelError::new(format!("clip_qkv of {} is not modelled", config.model_type))
                .with_fix("null leaves queries, keys and values as they are"));
        }
        let (q, kv) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        let linear = |name, output| Linear::new(name, self.hidden, output).with_bias(bias);
        let [q_name, k_name, v_name, output] = variant.attention;
        let queries = if variant.gated { 2 * q } else { q };
        let projection = match variant.fused {
            Some(name) => Projection::Fused(linear(name, q + 2 * kv)),
            None => Projection::Separate {
                q: linear(q_name, queries),
                k: linear(k_name, kv),
                v: linear(v_name, kv),
            },
        };
        let qk_norm = match variant.qk_norms {
            Some(norms) if norms.when.read(config)? && (facts.positioned || !norms.rotated) => {
                Some(self.qk_norm(&norms))
            }
            _ => None,
        };
        let query_scale = match variant.query_scale {
            // configs of the first releases have a number there
            QueryScale::Float
                if facts.positioned
                    || matches!(config.optional_flag("attn_temperature_tuning"), Ok(Some(false))) =>
            {
                QueryScale::None
            }
            other => other,
        };
        Ok(Attention {
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            projection,
            output: Linear::new(output, q, self.hidden).with_bias(variant.output_bias.read(config)?),
            qk_norm,
            rotary: if facts.positioned { self.rotary } else { Rotary::None },
            window: facts.window,
            softcap: config.number("attn_logit_softcapping")?.is_some(),
            causal: true,
            sinks: variant.sinks,
            gated: variant.gated,
            query_scale,
            clipped,
            upcast: false,
            position_bias: None,
            dropout: self.attention_dropout,
            code: variant.code,
        })
    }

    fn qk_norm(&self, norms: &QkNorms) -> QkNorm {
        let [q, k] =
            [(norms.names[0], self.heads), (norms.names[1], self.kv_heads)].map(|(name, count)| match norms
                .width
            {
                HeadWidth::Head => Norm::new(name, self.head_dim, norms.kind),
                HeadWidth::EachHead => Norm { rows: count, ..Norm::new(name, self.head_dim, norms.kind) },
                HeadWidth::All => Norm::new(name, count * self.head_dim, norms.kind),
            });
        QkNorm { q, k }
    }

    fn mlp(&self, config: &Config<'_>, variant: &Variant) -> Result<Mlp, ModelError> {
        let width = (variant.width)(config)?;
        Ok(self.network(variant.mlp, width, variant.mlp_bias.read(config)?))
    }

    /// A feed-forward network of that width.
    pub fn network(&self, shape: MlpShape, width: u64, bias: bool) -> Mlp {
        let linear = |name, input, output| Linear::new(name, input, output).with_bias(bias);
        let (hidden, act) = (self.hidden, self.act);
        match shape {
            MlpShape::Gated([gate, up, down]) => Mlp::Gated {
                gate: linear(gate, hidden, width),
                up: linear(up, hidden, width),
                down: linear(down, width, hidden),
                act,
            },
            MlpShape::Fused([gate_up, down]) => Mlp::GatedFused {
                gate_up: linear(gate_up, hidden, 2 * width),
                down: linear(down, width, hidden),
                act,
            },
            MlpShape::Plain([up, down]) => {
                Mlp::Plain { up: linear(up, hidden, width), down: linear(down, width, hidden), act }
            }
        }
    }

    /// The mixture of experts of a layer.
    pub fn experts(&self, config: &Config<'_>, experts: &Experts) -> Result<Moe, ModelError> {
        let count = config.size("num_local_experts")?;
        let width = config.size(experts.width)?;
        let shared = match experts.shared {
            SharedExperts::Never => 0,
            SharedExperts::Width(key) => config.optional(key)?.unwrap_or(0),
            SharedExperts::Times(key) => width * config.optional(key)?.unwrap_or(0),
            SharedExperts::One => width,
        };
        let network = || self.network(experts.shared_mlp, shared, false);
        Ok(Moe {
            names: experts.names,
            router: Linear::new(experts.router, self.hidden, count).with_bias(experts.bias),
            router_is_linear: experts.router_is_linear,
            correction: experts.correction,
            experts: count,
            top_k: config.size("num_experts_per_tok")?,
            groups: [config.optional("n_group")?, config.optional("topk_group")?].map(|n| n.unwrap_or(1)),
            expert_width: width,
            hidden: self.hidden,
            gated: true,
            expert_bias: experts.bias,
            act: self.act,
            shared: (shared > 0).then(network),
            shared_gate: experts.shared_gate.map(|name| Linear::new(name, self.hidden, 1)),
            balanced: config.number("router_aux_loss_coef")?.is_some_and(|weight| weight != 0.0),
            returns_routers: config.flag("output_router_logits")?,
            latent: None,
            layers: None,
        })
    }
}
