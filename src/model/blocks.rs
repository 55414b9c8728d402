//! The blocks that every family is described with. A block is data: which projections, norms and shapes a layer has.
//! What running it does is written once per kind of block in [`crate::step`]; what it weighs is read off its parameters
//! here, so that the count and the execution can never disagree.

mod attention;
mod feed_forward;
mod mixer;

pub use attention::{Attention, AttentionCode, Indexer, Latent, LatentQuery, Projection, QkNorm, Rotary};
pub use feed_forward::{Activation, ExpertLayout, ExpertNames, Mlp, Moe, XIELU_PARAMETERS};
pub use mixer::{Conv, DeltaNet, Loose, Module, Piece, Scan, ShortConv, StateSpace};

/// What a parameter belongs to; decides quantisation, adapters and the name of its part of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ParamRole {
    /// The weight of an `nn.Linear` (or gpt2's `Conv1D`): what 4-bit loading quantises and LoRA adapts.
    LinearWeight,
    /// A linear layer that bitsandbytes does not convert because its class is not exactly `nn.Linear` (falcon).
    LinearSubclassWeight,
    /// The bias of a linear layer.
    Bias,
    /// An embedding table.
    Embedding,
    /// The output head when it is not tied to the embedding.
    Head,
    /// Norm weights and biases.
    Norm,
    /// Three-dimensional expert weights (`[experts, out, in]` in one tensor), which are no `nn.Linear`.
    Experts,
    /// Anything else: attention sinks, convolution kernels, state-space parameters, gates.
    Other,
}

/// One parameter tensor of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// Name inside its block, as transformers spells it: `self_attn.q_proj.weight`.
    pub name: String,
    /// Shape; its product is the element count.
    pub shape: Vec<u64>,
    /// What it belongs to.
    pub role: ParamRole,
}

impl Param {
    /// Elements of the tensor; saturates.
    pub fn numel(&self) -> u64 {
        self.shape.iter().fold(1, |product: u64, n| product.saturating_mul(*n))
    }
}

/// Receives the parameters of a block in transformers' order.
pub type Visit<'a> = &'a mut dyn FnMut(Param);

/// A linear layer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Linear {
    /// Path inside the block: `self_attn.q_proj`. Its last segment is what LoRA targets name.
    pub name: &'static str,
    /// Input features.
    pub input: u64,
    /// Output features.
    pub output: u64,
    /// Whether it has a bias.
    pub bias: bool,
    /// Which class it is.
    pub class: LinearClass,
}

/// The class of a linear layer, where it matters to quantisation and to what autograd keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LinearClass {
    /// `torch.nn.Linear`.
    #[default]
    Linear,
    /// gpt2's `Conv1D`: `[in, out]`, computed with `addmm`.
    Conv1d,
    /// A subclass such as `FalconLinear`: never quantised by bitsandbytes.
    Subclass,
}

impl Linear {
    /// An `nn.Linear` without a bias.
    pub fn new(name: &'static str, input: u64, output: u64) -> Linear {
        Linear { name, input, output, bias: false, class: LinearClass::Linear }
    }

    /// The same with or without a bias.
    pub fn with_bias(self, bias: bool) -> Linear {
        Linear { bias, ..self }
    }

    /// The same as another class.
    pub fn with_class(self, class: LinearClass) -> Linear {
        Linear { class, ..self }
    }

    /// The last segment of the path: what a LoRA target names.
    pub fn leaf(&self) -> &'static str {
        self.name.rsplit('.').next().unwrap_or(self.name)
    }

    /// Elements of the weight.
    pub fn weight_numel(&self) -> u64 {
        self.input.saturating_mul(self.output)
    }

    /// Hands its parameters over.
    pub fn visit(&self, visit: Visit<'_>) {
        let (shape, role) = match self.class {
            LinearClass::Linear => (vec![self.output, self.input], ParamRole::LinearWeight),
            LinearClass::Conv1d => (vec![self.input, self.output], ParamRole::LinearWeight),
            LinearClass::Subclass => (vec![self.output, self.input], ParamRole::LinearSubclassWeight),
        };
        visit(Param { name: format!("{}.weight", self.name), shape, role });
        if self.bias {
            visit(Param {
                name: format!("{}.bias", self.name),
                shape: vec![self.output],
                role: ParamRole::Bias,
            });
        }
    }
}

/// How a norm computes: decides what autograd keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NormKind {
    /// `nn.LayerNorm` (one fused kernel) with a weight and, by the flag, a bias.
    LayerNorm {
        /// Whether it has a bias.
        bias: bool,
    },
    /// LayerNorm without parameters, in float32 (OLMo 1).
    LayerNormPlain,
    /// `nn.LayerNorm` without parameters (opt).
    LayerNormBare,
    /// Llama's RMSNorm: float32 inside, cast back, then multiplied by the weight.
    Rms,
    /// Gemma's RMSNorm: multiplied by `1 + weight` in float32, then cast back.
    RmsPlusOne,
    /// RMSNorm whose weight multiplies in float32 before the cast back (OLMo 2).
    RmsCastLast,
    /// The same with `pow(-0.5)` in place of `rsqrt` and the weight in float32 (gemma4).
    RmsPower,
    /// Cohere's LayerNorm written in Python: float32 inside, weight only.
    LayerNormPython,
    /// RMSNorm or L2 norm without a weight.
    RmsPlain,
    /// LayerNorm with a weight and a bias whose weight is `1 + weight`, computed first (nemotron).
    LayerNormPlusOne,
    /// T5's RMSNorm: only the variance is in float32.
    RmsLate,
    /// No norm at all (the first layer of modernbert).
    Identity,
}

/// A norm over the last dimension.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Norm {
    /// Path inside the block: `input_layernorm`.
    pub name: &'static str,
    /// Width of its weight.
    pub width: u64,
    /// Rows of its weight: 1 for a vector, one per head where each head has its own (cohere, stablelm).
    pub rows: u64,
    /// How it computes.
    pub kind: NormKind,
}

impl Norm {
    /// A norm of that kind.
    pub fn new(name: &'static str, width: u64, kind: NormKind) -> Norm {
        Norm { name, width, rows: 1, kind }
    }

    /// Hands its parameters over.
    pub fn visit(&self, visit: Visit<'_>) {
        let (weight, bias) = match self.kind {
            NormKind::LayerNorm { bias } => (true, bias),
            NormKind::LayerNormPlusOne => (true, true),
            NormKind::LayerNormPlain | NormKind::LayerNormBare | NormKind::RmsPlain | NormKind::Identity => {
                (false, false)
            }
            NormKind::Rms
            | NormKind::RmsPlusOne
            | NormKind::RmsCastLast
            | NormKind::RmsPower
            | NormKind::RmsLate
            | NormKind::LayerNormPython => (true, false),
        };
        if self.rows > 1 && weight && self.kind != NormKind::LayerNormPython {
            // A list of norms (stablelm); cohere's is one with a row for each head.
            for row in 0..self.rows.min(1 << 16) {
                let name = format!("{}.{row}.weight", self.name);
                visit(Param { name, shape: vec![self.width], role: ParamRole::Norm });
            }
            return;
        }
        let shape = if self.rows > 1 { vec![self.rows, self.width] } else { vec![self.width] };
        for (present, what) in [(weight, "weight"), (bias, "bias")] {
            if present {
                visit(Param {
                    name: format!("{}.{what}", self.name),
                    shape: shape.clone(),
                    role: ParamRole::Norm,
                });
            }
        }
    }
}

/// A dropout: its probability in units of 1/10,000, so that blocks stay comparable and hashable; none where the family's
/// code has no dropout in that place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Dropout(Option<u16>);

impl Dropout {
    /// From a probability; anything outside 0…1 is cut to it.
    pub fn new(p: f64) -> Dropout {
        Dropout(Some((p.clamp(0.0, 1.0) * 10_000.0).round() as u16))
    }

    /// Whether a mask is drawn where every dropout of the config is set to a probability, if to any: at 0 PyTorch returns
    /// the input itself.
    pub fn is_active(self, all: Option<u16>) -> bool {
        self.0.is_some_and(|own| all.unwrap_or(own) > 0)
    }
}

/// What mixes tokens in a layer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Mixer {
    /// Softmax attention.
    Attention(Attention),
    /// Latent attention.
    Latent(Latent),
    /// Attention to another network's output (mllama's pictures). A step without that output skips the whole layer.
    Cross(Attention),
    /// A selective state space.
    StateSpace(StateSpace),
    /// Gated linear attention.
    DeltaNet(DeltaNet),
    /// A short convolution.
    ShortConv(ShortConv),
    /// Something known by its parameters only.
    Module(Module),
    /// The layer has none (nemotron_h).
    None,
}

impl Mixer {
    /// The softmax attention that the layer runs, if it is one.
    pub fn attention(&self) -> Option<&Attention> {
        match self {
            Mixer::Attention(attention) => Some(attention),
            Mixer::Latent(_)
            | Mixer::Cross(_)
            | Mixer::StateSpace(_)
            | Mixer::DeltaNet(_)
            | Mixer::ShortConv(_)
            | Mixer::Module(_)
            | Mixer::None => None,
        }
    }

    /// Whether it hands a state on from token to token: a state space or linear attention.
    pub fn is_recurrent(&self) -> bool {
        matches!(self, Mixer::StateSpace(_) | Mixer::DeltaNet(_))
    }

    fn visit(&self, visit: Visit<'_>) {
        match self {
            Mixer::Attention(attention) | Mixer::Cross(attention) => attention.visit(visit),
            Mixer::Latent(latent) => latent.visit(visit),
            Mixer::StateSpace(space) => space.visit(visit),
            Mixer::DeltaNet(net) => net.visit(visit),
            Mixer::ShortConv(conv) => conv.visit(visit),
            Mixer::Module(module) => module.visit(visit),
            Mixer::None => {}
        }
    }
}

/// What follows the mixer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FeedForward {
    /// A dense network.
    Dense(Mlp),
    /// A mixture of experts.
    Moe(Box<Moe>),
    /// The layer has none (mamba).
    None,
}

/// Attention of a decoder to its encoder, with the norm that goes with it (t5: before it; bart: after it).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CrossAttention {
    /// The norm.
    pub norm: Norm,
    /// The attention.
    pub attention: Attention,
}

/// How norms, mixer and feed-forward are wired.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Wiring {
    /// `x + mixer(norm(x))`, then `x + ffn(norm(x))` (llama, gpt2, opt, bloom).
    PreNorm {
        /// Before the mixer.
        attention: Norm,
        /// Before the feed-forward.
        mlp: Norm,
    },
    /// gemma2: a norm before and after each half.
    Sandwich {
        /// Before the mixer.
        attention: Norm,
        /// After the mixer.
        attention_post: Norm,
        /// Before the feed-forward.
        mlp: Norm,
        /// After the feed-forward.
        mlp_post: Norm,
    },
    /// `norm(x + mixer(x))`, then `norm(x + ffn(x))` (bert, opt-350m).
    PostNorm {
        /// After the mixer's residual sum.
        attention: Norm,
        /// After the feed-forward's residual sum.
        mlp: Norm,
    },
    /// `x + norm(mixer(x))`, then `x + norm(ffn(x))` (OLMo 2).
    OutputNorm {
        /// After the mixer.
        attention: Norm,
        /// After the feed-forward.
        mlp: Norm,
    },
    /// `x + mixer(norm(x)) + ffn(norm(x))` with one norm (phi, falcon-7b, cohere) or two (gpt_neox).
    Parallel {
        /// Before the mixer.
        attention: Norm,
        /// Before the feed-forward where it has one of its own.
        mlp: Option<Norm>,
    },
    /// `x + f(norm(x))` where `f` is the one half that the layer has (mamba, nemotron_h).
    Single {
        /// Before that half.
        norm: Norm,
        /// Whether x is cast to float32 before it is added (`residual_in_fp32`).
        wide: bool,
    },
}

/// One transformer layer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Block {
    /// Norms and residuals.
    pub wiring: Wiring,
    /// The token mixer.
    pub mixer: Mixer,
    /// Attention to an encoder, after the mixer.
    pub cross: Option<CrossAttention>,
    /// The feed-forward part.
    pub ffn: FeedForward,
    /// Dropout on the residual branches.
    pub residual_dropout: Dropout,
    /// Parameters beside those of the parts: gates, scales, hyper-connections, further norms.
    pub loose: Vec<Piece>,
    /// In which order transformers registers the modules: prefixes of their paths. Empty: mixer, feed-forward, norms.
    pub layout: Layout,
}

/// Prefixes of parameter names in the order of registration; what none of them begins comes last.
pub type Layout = &'static [&'static str];

/// Hands parameters over in the order of a layout; those of one prefix keep their own order.
pub fn in_layout(layout: Layout, visit: Visit<'_>, source: impl FnOnce(Visit<'_>)) {
    if layout.is_empty() {
        return source(visit);
    }
    let mut places = vec![Vec::new(); layout.len() + 1];
    source(&mut |param: Param| {
        let place = layout.iter().position(|prefix| param.name.starts_with(prefix));
        places[place.unwrap_or(layout.len())].push(param);
    });
    places.into_iter().flatten().for_each(visit);
}

impl Block {
    /// Hands all parameters of the layer over, in transformers' order.
    pub fn visit(&self, visit: Visit<'_>) {
        in_layout(self.layout, visit, |visit| self.visit_by_part(visit));
    }

    fn visit_by_part(&self, visit: Visit<'_>) {
        self.mixer.visit(visit);
        if let Some(cross) = &self.cross {
            cross.attention.visit(visit);
            cross.norm.visit(visit);
        }
        match &self.ffn {
            FeedForward::Dense(mlp) => mlp.visit(visit),
            FeedForward::Moe(moe) => moe.visit(visit),
            FeedForward::None => {}
        }
        self.loose.iter().for_each(|piece| piece.visit(visit));
        match &self.wiring {
            Wiring::PreNorm { attention, mlp }
            | Wiring::PostNorm { attention, mlp }
            | Wiring::OutputNorm { attention, mlp } => {
                attention.visit(visit);
                mlp.visit(visit);
            }
            Wiring::Sandwich { attention, attention_post, mlp, mlp_post } => {
                [attention, attention_post, mlp, mlp_post].into_iter().for_each(|norm| norm.visit(visit));
            }
            Wiring::Parallel { attention, mlp } => {
                attention.visit(visit);
                if let Some(mlp) = mlp {
                    mlp.visit(visit);
                }
            }
            Wiring::Single { norm, .. } => norm.visit(visit),
        }
    }
}
