//! Llama and everything that is llama with a difference: each family is a [`Variant`].

use super::parts::{activation, decoder, dropout, head_dim, kv_heads, rotated, stack};
use crate::model::Architecture;
use crate::model::blocks::{
    Activation, Attention, AttentionCode, Block, ExpertNames, FeedForward, Layout, Linear, Mixer, Mlp, Moe,
    Norm, NormKind, Projection, QkNorm, Rotary, Wiring,
};
use crate::model::config::Config;
use crate::scenario::Issue;

/// A switch of a family: fixed, or read from the config.
#[derive(Clone, Copy, Debug)]
pub enum When {
    /// Off in every model of the family.
    Never,
    /// On in every model of the family.
    Always,
    /// As the key says.
    Key(&'static str),
}

impl When {
    fn read(self, config: &Config<'_>) -> Result<bool, Issue> {
        match self {
            When::Never => Ok(false),
            When::Always => Ok(true),
            When::Key(key) => config.flag(key),
        }
    }
}

/// How norms and residuals are wired.
#[derive(Clone, Copy, Debug)]
pub enum Wired {
    /// Norms before the halves.
    Pre,
    /// gemma2: before and after.
    Sandwich,
    /// One norm, both halves beside each other.
    Parallel,
}

/// The shape of the dense feed-forward network.
#[derive(Clone, Copy, Debug)]
pub enum MlpShape {
    /// gate, up, down.
    Gated,
    /// gate and up in one layer.
    Fused,
    /// Two layers of these names.
    Plain(&'static str, &'static str),
}

/// Which part of a head is rotated, and how.
#[derive(Clone, Copy, Debug)]
pub enum Turn {
    /// All of it.
    Full,
    /// The share that `partial_rotary_factor` gives, joined with `cat`; the class default comes with it.
    Partial(f64),
}

/// Which layers see a window only.
#[derive(Clone, Copy, Debug)]
pub enum Windows {
    /// None.
    Never,
    /// All, where `sliding_window` is given.
    All,
    /// All, where `use_sliding_window` is on as well.
    Switched,
    /// From `max_window_layers` on, where `use_sliding_window` is on (qwen).
    Late,
    /// Every n-th layer sees all, unless `layer_types` says otherwise.
    AllBut(u64),
}

/// Norms on queries and keys.
#[derive(Clone, Copy, Debug)]
pub struct Heads {
    /// When they are there.
    pub when: When,
    /// Names of the two.
    pub names: (&'static str, &'static str),
    /// How they compute.
    pub kind: NormKind,
}

/// Which layers have experts.
#[derive(Clone, Copy, Debug)]
pub enum Sparse {
    /// All.
    All,
    /// Every `decoder_sparse_step`-th but those of `mlp_only_layers` (qwen).
    Stepped,
}

/// A mixture of experts.
#[derive(Clone, Copy, Debug)]
pub struct Experts {
    /// The key of an expert's width.
    pub width: &'static str,
    /// Which layers.
    pub layers: Sparse,
    /// Names of the expert tensors.
    pub names: ExpertNames,
    /// Name of the router.
    pub router: &'static str,
}

/// What a family is, as its difference from llama.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    /// Biases of the query, key and value projections.
    pub qkv_bias: When,
    /// Bias of the output projection.
    pub output_bias: When,
    /// Biases of the feed-forward layers.
    pub mlp_bias: When,
    /// Bias of the head.
    pub head_bias: When,
    /// Name of the output projection.
    pub output: &'static str,
    /// Whether q, k and v are one layer, `self_attn.qkv_proj`.
    pub fused: bool,
    /// Name of the norm after the last layer.
    pub final_norm: &'static str,
    /// Every norm.
    pub norm: NormKind,
    /// Norms on queries and keys.
    pub heads: Option<Heads>,
    /// Norms and residuals.
    pub wired: Wired,
    /// The dense feed-forward network.
    pub mlp: MlpShape,
    /// The key of its activation.
    pub activation: &'static str,
    /// Rotary embedding.
    pub turn: Turn,
    /// Sliding windows.
    pub windows: Windows,
    /// Experts.
    pub experts: Option<Experts>,
    /// The embedding is multiplied by a constant.
    pub scaled: bool,
    /// The key of the dropout on the embedding.
    pub embedding_dropout: &'static str,
    /// The key of the dropout on the residual branches.
    pub residual_dropout: &'static str,
    /// Order of the modules in a layer.
    pub layout: Layout,
}

/// Llama itself.
pub const LLAMA: Variant = Variant {
    qkv_bias: When::Key("attention_bias"),
    output_bias: When::Key("attention_bias"),
    mlp_bias: When::Key("mlp_bias"),
    head_bias: When::Never,
    output: "self_attn.o_proj",
    fused: false,
    final_norm: "norm",
    norm: NormKind::Rms,
    heads: None,
    wired: Wired::Pre,
    mlp: MlpShape::Gated,
    activation: "hidden_act",
    turn: Turn::Full,
    windows: Windows::Never,
    experts: None,
    scaled: false,
    embedding_dropout: "embd_pdrop",
    residual_dropout: "resid_pdrop",
    layout: &[],
};

/// Llama without any bias.
const BARE: Variant =
    Variant { qkv_bias: When::Never, output_bias: When::Never, mlp_bias: When::Never, ..LLAMA };

const HEAD_NORMS: Heads =
    Heads { when: When::Always, names: ("self_attn.q_norm", "self_attn.k_norm"), kind: NormKind::Rms };

const EXPERTS: Experts = Experts {
    width: "moe_intermediate_size",
    layers: Sparse::All,
    names: ExpertNames { first: "mlp.experts.gate_up_proj", last: "mlp.experts.down_proj" },
    router: "mlp.gate",
};

/// The experts are registered before the router.
const EXPERTS_FIRST: Layout = &["self_attn.", "mlp.experts", "mlp.gate."];

/// The description of a family that is llama with a difference.
pub fn variant(model_type: &str) -> Option<Variant> {
    Some(match model_type {
        "llama" => LLAMA,
        "mistral" => Variant { windows: Windows::All, ..BARE },
        "qwen2" => Variant { qkv_bias: When::Always, windows: Windows::Late, ..BARE },
        "qwen3" => {
            Variant { heads: Some(HEAD_NORMS), windows: Windows::Late, mlp_bias: When::Never, ..LLAMA }
        }
        "qwen3_moe" => Variant {
            heads: Some(HEAD_NORMS),
            windows: Windows::Switched,
            mlp_bias: When::Never,
            experts: Some(Experts { layers: Sparse::Stepped, ..EXPERTS }),
            layout: EXPERTS_FIRST,
            ..LLAMA
        },
        "mixtral" => Variant {
            windows: Windows::All,
            experts: Some(Experts { width: "intermediate_size", ..EXPERTS }),
            ..BARE
        },
        "gemma" => Variant { norm: NormKind::RmsPlusOne, scaled: true, mlp_bias: When::Never, ..LLAMA },
        "gemma2" => Variant {
            norm: NormKind::RmsPlusOne,
            scaled: true,
            wired: Wired::Sandwich,
            activation: "hidden_activation",
            windows: Windows::AllBut(2),
            mlp_bias: When::Never,
            ..LLAMA
        },
        "phi3" => Variant {
            fused: true,
            mlp: MlpShape::Fused,
            turn: Turn::Partial(1.0),
            windows: Windows::All,
            layout: &["self_attn.o_proj", "self_attn.qkv_proj"],
            ..BARE
        },
        "phi" => Variant {
            qkv_bias: When::Always,
            output_bias: When::Always,
            mlp_bias: When::Always,
            head_bias: When::Always,
            output: "self_attn.dense",
            final_norm: "final_layernorm",
            norm: NormKind::LayerNorm { bias: true },
            heads: Some(Heads {
                when: When::Key("qk_layernorm"),
                names: ("self_attn.q_layernorm", "self_attn.k_layernorm"),
                kind: NormKind::LayerNorm { bias: true },
            }),
            wired: Wired::Parallel,
            mlp: MlpShape::Plain("mlp.fc1", "mlp.fc2"),
            turn: Turn::Partial(0.5),
            ..LLAMA
        },
        _ => return None,
    })
}

/// Reads a config as that variant.
pub fn read(config: &Config<'_>, variant: &Variant) -> Result<Architecture, Issue> {
    let depth = config.depth("num_hidden_layers")?;
    let shape = Shape::read(config, variant)?;
    let windows = windows(config, variant.windows, depth)?;
    let sparse = match variant.experts {
        None => Vec::new(),
        Some(experts) => sparse_layers(config, experts.layers, depth)?,
    };
    let at = |list: &[bool], layer: u64| list.get(layer as usize).copied().unwrap_or(false);
    let layers = stack(depth, |layer| {
        let window = if at(&windows, layer) { shape.window } else { None };
        shape.block(config, variant, window, at(&sparse, layer))
    })?;
    let mut model =
        decoder(config, "embed_tokens", layers, Norm::new(variant.final_norm, shape.hidden, variant.norm))?;
    model.embeddings.scaled = variant.scaled;
    model.embeddings.dropout = dropout(config, variant.embedding_dropout)?;
    model.head.linear.bias = variant.head_bias.read(config)?;
    model.head.softcap = config.number("final_logit_softcapping")?.is_some();
    Ok(model)
}

/// Whether each layer sees a window only.
fn windows(config: &Config<'_>, windows: Windows, depth: u64) -> Result<Vec<bool>, Issue> {
    let by_types = |otherwise: &dyn Fn(u64) -> bool| -> Result<Vec<bool>, Issue> {
        Ok(match config.texts("layer_types")? {
            Some(types) => types.iter().map(|kind| *kind == "sliding_attention").collect(),
            None => (0..depth).map(otherwise).collect(),
        })
    };
    match windows {
        Windows::Never => Ok(Vec::new()),
        Windows::All => by_types(&|_| true),
        Windows::Switched => {
            let on = config.flag("use_sliding_window")?;
            Ok(vec![on; depth as usize])
        }
        Windows::Late => {
            let on = config.flag("use_sliding_window")?;
            let first = config.count("max_window_layers")?;
            by_types(&|layer| on && layer >= first)
        }
        Windows::AllBut(n) => by_types(&|layer| !(layer + 1).is_multiple_of(n)),
    }
}

fn sparse_layers(config: &Config<'_>, sparse: Sparse, depth: u64) -> Result<Vec<bool>, Issue> {
    Ok(match sparse {
        Sparse::All => vec![true; depth as usize],
        Sparse::Stepped => {
            let step = config.size("decoder_sparse_step")?;
            let dense = config.sizes("mlp_only_layers")?.unwrap_or_default();
            let experts = config.count("num_experts")? > 0;
            (0..depth)
                .map(|layer| experts && !dense.contains(&layer) && (layer + 1).is_multiple_of(step))
                .collect()
        }
    })
}

/// The dimensions that all layers of a model share.
struct Shape {
    hidden: u64,
    heads: u64,
    kv_heads: u64,
    head_dim: u64,
    window: Option<u64>,
    act: Activation,
    rotary: Rotary,
}

impl Shape {
    fn read(config: &Config<'_>, variant: &Variant) -> Result<Shape, Issue> {
        let hidden = config.size("hidden_size")?;
        let heads = config.size("num_attention_heads")?;
        let head_dim = head_dim(config, hidden, heads)?;
        Ok(Shape {
            hidden,
            heads,
            kv_heads: kv_heads(config, heads)?,
            head_dim,
            window: match variant.windows {
                Windows::Never => None,
                Windows::All | Windows::Switched | Windows::Late | Windows::AllBut(_) => {
                    config.optional("sliding_window")?
                }
            },
            act: activation(config, variant.activation)?,
            rotary: match variant.turn {
                Turn::Full => Rotary::Full,
                Turn::Partial(otherwise) => {
                    Rotary::Partial { dim: rotated(config, head_dim, "partial_rotary_factor", otherwise)? }
                }
            },
        })
    }

    fn block(
        &self,
        config: &Config<'_>,
        variant: &Variant,
        window: Option<u64>,
        sparse: bool,
    ) -> Result<Block, Issue> {
        let norm = |name| Norm::new(name, self.hidden, variant.norm);
        let wiring = match variant.wired {
            Wired::Pre => {
                Wiring::PreNorm { attention: norm("input_layernorm"), mlp: norm("post_attention_layernorm") }
            }
            Wired::Sandwich => Wiring::Sandwich {
                attention: norm("input_layernorm"),
                attention_post: norm("post_attention_layernorm"),
                mlp: norm("pre_feedforward_layernorm"),
                mlp_post: norm("post_feedforward_layernorm"),
            },
            Wired::Parallel => Wiring::Parallel { attention: norm("input_layernorm"), mlp: None },
        };
        Ok(Block {
            wiring,
            mixer: Mixer::Attention(self.attention(config, variant, window)?),
            ffn: match variant.experts.filter(|_| sparse) {
                None => FeedForward::Dense(self.mlp(config, variant)?),
                Some(experts) => FeedForward::Moe(self.experts(config, experts)?),
            },
            residual_dropout: dropout(config, variant.residual_dropout)?,
            layout: variant.layout,
        })
    }

    fn attention(
        &self,
        config: &Config<'_>,
        variant: &Variant,
        window: Option<u64>,
    ) -> Result<Attention, Issue> {
        let bias = variant.qkv_bias.read(config)?;
        let (q, kv) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        let projection = if variant.fused {
            Projection::Fused(Linear::new("self_attn.qkv_proj", self.hidden, q + 2 * kv).with_bias(bias))
        } else {
            Projection::Separate {
                q: Linear::new("self_attn.q_proj", self.hidden, q).with_bias(bias),
                k: Linear::new("self_attn.k_proj", self.hidden, kv).with_bias(bias),
                v: Linear::new("self_attn.v_proj", self.hidden, kv).with_bias(bias),
            }
        };
        let qk_norm = match variant.heads {
            Some(heads) if heads.when.read(config)? => {
                let [q, k] =
                    [heads.names.0, heads.names.1].map(|name| Norm::new(name, self.head_dim, heads.kind));
                Some(QkNorm { q, k })
            }
            _ => None,
        };
        Ok(Attention {
            heads: self.heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            projection,
            output: Linear::new(variant.output, q, self.hidden).with_bias(variant.output_bias.read(config)?),
            qk_norm,
            rotary: self.rotary,
            window,
            softcap: config.number("attn_logit_softcapping")?.is_some(),
            causal: true,
            sinks: false,
            dropout: dropout(config, "attention_dropout")?,
            code: AttentionCode::Standard,
        })
    }

    fn mlp(&self, config: &Config<'_>, variant: &Variant) -> Result<Mlp, Issue> {
        let width = config.size("intermediate_size")?;
        let bias = variant.mlp_bias.read(config)?;
        let linear = |name, input, output| Linear::new(name, input, output).with_bias(bias);
        Ok(match variant.mlp {
            MlpShape::Gated => Mlp::Gated {
                gate: linear("mlp.gate_proj", self.hidden, width),
                up: linear("mlp.up_proj", self.hidden, width),
                down: linear("mlp.down_proj", width, self.hidden),
                act: self.act,
            },
            MlpShape::Fused => Mlp::GatedFused {
                gate_up: linear("mlp.gate_up_proj", self.hidden, 2 * width),
                down: linear("mlp.down_proj", width, self.hidden),
                act: self.act,
            },
            MlpShape::Plain(up, down) => Mlp::Plain {
                up: linear(up, self.hidden, width),
                down: linear(down, width, self.hidden),
                act: self.act,
            },
        })
    }

    fn experts(&self, config: &Config<'_>, experts: Experts) -> Result<Moe, Issue> {
        let count = config.size("num_local_experts")?;
        Ok(Moe {
            names: experts.names,
            router: Linear::new(experts.router, self.hidden, count),
            experts: count,
            top_k: config.size("num_experts_per_tok")?,
            expert_width: config.size(experts.width)?,
            hidden: self.hidden,
            gated: true,
            expert_bias: false,
            act: self.act,
            shared: None,
            shared_gate: None,
        })
    }
}
