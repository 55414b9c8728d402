//! The blocks that every family is described with. A block is data: which projections, norms and shapes a layer has.
//! What running it does is written once per kind of block in [`crate::step`]; what it weighs is read off its parameters
//! here, so that the count and the execution can never disagree.

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
    /// LayerNorm without parameters (OLMo 1).
    LayerNormPlain,
    /// Llama's RMSNorm: float32 inside, cast back, then multiplied by the weight.
    Rms,
    /// Gemma's RMSNorm: multiplied by `1 + weight` in float32, then cast back.
    RmsPlusOne,
    /// RMSNorm whose weight multiplies in float32 before the cast back (OLMo 2).
    RmsCastLast,
    /// Cohere's LayerNorm written in Python: float32 inside, weight only.
    LayerNormPython,
    /// RMSNorm or L2 norm without a weight.
    RmsPlain,
}

/// A norm over the last dimension.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Norm {
    /// Path inside the block: `input_layernorm`.
    pub name: &'static str,
    /// Width of its weight.
    pub width: u64,
    /// How it computes.
    pub kind: NormKind,
}

impl Norm {
    /// A norm of that kind.
    pub fn new(name: &'static str, width: u64, kind: NormKind) -> Norm {
        Norm { name, width, kind }
    }

    /// Hands its parameters over.
    pub fn visit(&self, visit: Visit<'_>) {
        let (weight, bias) = match self.kind {
            NormKind::LayerNorm { bias } => (true, bias),
            NormKind::LayerNormPlain | NormKind::RmsPlain => (false, false),
            NormKind::Rms | NormKind::RmsPlusOne | NormKind::RmsCastLast | NormKind::LayerNormPython => {
                (true, false)
            }
        };
        for (present, what) in [(weight, "weight"), (bias, "bias")] {
            if present {
                visit(Param {
                    name: format!("{}.{what}", self.name),
                    shape: vec![self.width],
                    role: ParamRole::Norm,
                });
            }
        }
    }
}

/// How queries, keys and values are projected.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Projection {
    /// Three linear layers.
    Separate {
        /// Queries.
        q: Linear,
        /// Keys.
        k: Linear,
        /// Values.
        v: Linear,
    },
    /// One linear layer whose output is split (gpt2, gpt_neox, phi3, falcon, bloom).
    Fused(Linear),
}

/// How positions enter attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rotary {
    /// No rotary embedding.
    None,
    /// Rotary over the whole head: `q * cos + rotate_half(q) * sin`.
    Full,
    /// Rotary over the first `dim` elements of a head, the rest passed through and joined with `cat`. phi3 and gpt_neox
    /// take this path even where `dim` is the whole head.
    Partial {
        /// Rotated elements of a head.
        dim: u64,
    },
    /// Rotary over the whole head computed in float32 and cast back (cohere, olmo, ernie4_5, modernbert).
    Float32,
    /// Rotary of neighbouring elements (`stack` and `flatten`) over the first `dim` elements, the rest joined with `cat`
    /// (glm, gptj).
    Interleaved {
        /// Rotated elements of a head.
        dim: u64,
    },
    /// Multiplication of complex numbers in float32 (llama4, deepseek_v2).
    Complex,
    /// The two halves of a head computed apart and joined with `cat` (gpt_oss).
    Halves,
    /// Not rotary: a bias on the scores that grows with distance (bloom, mpt, falcon-rw).
    Alibi,
}

impl Rotary {
    /// Elements of a head that are rotated: the width of cos and sin. `None` without a rotary embedding.
    pub fn width(self, head_dim: u64) -> Option<u64> {
        match self {
            Rotary::None | Rotary::Alibi => None,
            Rotary::Full | Rotary::Float32 | Rotary::Complex | Rotary::Halves => Some(head_dim),
            Rotary::Partial { dim } | Rotary::Interleaved { dim } => Some(dim),
        }
    }
}

/// The family whose attention code runs, where transformers' own code differs in what it keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AttentionCode {
    /// llama, mistral, qwen2, qwen3, gemma, gemma2, phi3, phi, gpt_neox and all that share their shape.
    Standard,
    /// gpt2 and its like: no rotary, `Conv1D`, residual dropout in the block.
    Gpt2,
    /// opt: scaled queries.
    Opt,
    /// bloom: alibi, always eager, `baddbmm`.
    Bloom,
    /// falcon: always builds a mask.
    Falcon,
    /// bert and the encoders like it.
    Bert,
}

/// Norms on queries and keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct QkNorm {
    /// Norm of the queries.
    pub q: Norm,
    /// Norm of the keys.
    pub k: Norm,
}

/// Softmax attention over all or a window of the earlier tokens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Attention {
    /// Query heads.
    pub heads: u64,
    /// Key and value heads.
    pub kv_heads: u64,
    /// Elements of one head's query and key.
    pub head_dim: u64,
    /// How q, k and v are made.
    pub projection: Projection,
    /// The output projection.
    pub output: Linear,
    /// Norms on q and k, if any.
    pub qk_norm: Option<QkNorm>,
    /// Positions.
    pub rotary: Rotary,
    /// Sliding window in tokens; a mask is built when the sequence is at least that long.
    pub window: Option<u64>,
    /// Whether scores are soft-capped with tanh (gemma2, eager only).
    pub softcap: bool,
    /// Whether it looks back only.
    pub causal: bool,
    /// Learned attention sinks: one extra logit per head (gpt-oss).
    pub sinks: bool,
    /// Dropout on the attention probabilities (0 where the config gives none).
    pub dropout: Dropout,
    /// Whose code runs.
    pub code: AttentionCode,
}

impl Attention {
    /// Hands its parameters over.
    pub fn visit(&self, visit: Visit<'_>) {
        match &self.projection {
            Projection::Separate { q, k, v } => [q, k, v].into_iter().for_each(|linear| linear.visit(visit)),
            Projection::Fused(linear) => linear.visit(visit),
        }
        self.output.visit(visit);
        if let Some(norms) = &self.qk_norm {
            norms.q.visit(visit);
            norms.k.visit(visit);
        }
        if self.sinks {
            visit(Param { name: "self_attn.sinks".into(), shape: vec![self.heads], role: ParamRole::Other });
        }
    }
}

/// A dropout probability in units of 1/10,000, so that blocks stay comparable and hashable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Dropout(pub u16);

impl Dropout {
    /// From a probability; anything outside 0…1 is cut to it.
    pub fn new(p: f64) -> Dropout {
        Dropout((p.clamp(0.0, 1.0) * 10_000.0).round() as u16)
    }

    /// Whether a mask is drawn at all: at 0 PyTorch returns the input itself.
    pub fn is_active(self) -> bool {
        self.0 > 0
    }
}

/// The activation function, by what its implementation keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    /// One kernel that keeps its input: silu, gelu (exact or tanh in C++), relu².
    Silu,
    /// `nn.functional.gelu`.
    Gelu,
    /// gelu_new: eight Python operations.
    GeluNew,
    /// `gelu_pytorch_tanh`: one kernel.
    GeluTanh,
    /// relu: keeps its output.
    Relu,
    /// relu(x)².
    Relu2,
    /// bloom's own autograd function: keeps its input.
    BloomGelu,
}

/// A feed-forward network.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Mlp {
    /// `down(act(gate(x)) * up(x))`.
    Gated {
        /// Gate.
        gate: Linear,
        /// Up.
        up: Linear,
        /// Down.
        down: Linear,
        /// Activation of the gate.
        act: Activation,
    },
    /// phi3, glm: gate and up in one layer, split with `chunk`.
    GatedFused {
        /// Gate and up together.
        gate_up: Linear,
        /// Down.
        down: Linear,
        /// Activation of the gate.
        act: Activation,
    },
    /// `down(act(up(x)))`.
    Plain {
        /// Up.
        up: Linear,
        /// Down.
        down: Linear,
        /// Activation.
        act: Activation,
    },
}

impl Mlp {
    /// Hands its parameters over.
    pub fn visit(&self, visit: Visit<'_>) {
        match self {
            Mlp::Gated { gate, up, down, .. } => {
                [gate, up, down].into_iter().for_each(|linear| linear.visit(visit))
            }
            Mlp::GatedFused { gate_up, down, .. } => {
                [gate_up, down].into_iter().for_each(|linear| linear.visit(visit))
            }
            Mlp::Plain { up, down, .. } => [up, down].into_iter().for_each(|linear| linear.visit(visit)),
        }
    }
}

/// Names of the expert tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExpertNames {
    /// The first matrices, `[experts, (2 x) width, hidden]`: `mlp.experts.gate_up_proj`.
    pub first: &'static str,
    /// The last matrices, `[experts, hidden, width]`: `mlp.experts.down_proj`.
    pub last: &'static str,
}

/// A mixture of experts whose expert weights are two three-dimensional tensors (transformers 5).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Moe {
    /// Path of the two expert tensors.
    pub names: ExpertNames,
    /// The router; in transformers 5 a parameter of its own, not an `nn.Linear`.
    pub router: Linear,
    /// Experts in all.
    pub experts: u64,
    /// Experts that each token visits.
    pub top_k: u64,
    /// Width of an expert.
    pub expert_width: u64,
    /// Hidden size.
    pub hidden: u64,
    /// Whether an expert has a gate (three matrices) or not (two).
    pub gated: bool,
    /// Whether the expert matrices have biases (gpt-oss).
    pub expert_bias: bool,
    /// Activation of an expert.
    pub act: Activation,
    /// Experts that every token visits.
    pub shared: Option<Mlp>,
    /// The gate of the shared expert (Qwen2-MoE).
    pub shared_gate: Option<Linear>,
}

impl Moe {
    /// Hands its parameters over.
    pub fn visit(&self, visit: Visit<'_>) {
        self.router.visit(&mut |param: Param| {
            visit(Param { role: ParamRole::Other, ..param });
        });
        let first = if self.gated { self.expert_width.saturating_mul(2) } else { self.expert_width };
        let tensors = [
            (self.names.first, "", vec![self.experts, first, self.hidden], true),
            (self.names.first, "_bias", vec![self.experts, first], self.expert_bias),
            (self.names.last, "", vec![self.experts, self.hidden, self.expert_width], true),
            (self.names.last, "_bias", vec![self.experts, self.hidden], self.expert_bias),
        ];
        for (name, suffix, shape, present) in tensors {
            if present {
                visit(Param { name: format!("{name}{suffix}"), shape, role: ParamRole::Experts });
            }
        }
        if let Some(shared) = &self.shared {
            shared.visit(visit);
        }
        if let Some(gate) = &self.shared_gate {
            gate.visit(visit);
        }
    }
}

/// What mixes tokens in a layer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Mixer {
    /// Softmax attention.
    Attention(Attention),
}

/// What follows the mixer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FeedForward {
    /// A dense network.
    Dense(Mlp),
    /// A mixture of experts.
    Moe(Moe),
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
}

/// One transformer layer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Block {
    /// Norms and residuals.
    pub wiring: Wiring,
    /// The token mixer.
    pub mixer: Mixer,
    /// The feed-forward part.
    pub ffn: FeedForward,
    /// Dropout on the residual branches.
    pub residual_dropout: Dropout,
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
    let mut params = Vec::new();
    source(&mut |param: Param| params.push(param));
    let rank = |param: &Param| layout.iter().position(|prefix| param.name.starts_with(prefix));
    params.sort_by_key(|param| rank(param).unwrap_or(layout.len()));
    params.into_iter().for_each(visit);
}

impl Block {
    /// Hands all parameters of the layer over, in transformers' order.
    pub fn visit(&self, visit: Visit<'_>) {
        in_layout(self.layout, visit, |visit| self.visit_by_part(visit));
    }

    fn visit_by_part(&self, visit: Visit<'_>) {
        match &self.mixer {
            Mixer::Attention(attention) => attention.visit(visit),
        }
        match &self.ffn {
            FeedForward::Dense(mlp) => mlp.visit(visit),
            FeedForward::Moe(moe) => moe.visit(visit),
        }
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
        }
    }
}
