//! The smallest blocks: linear layers, norms, tables, dropouts.

use super::param::{Param, ParamRole, Visit};

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
    /// What of it one of several GPUs has that share it; its features are those that it has.
    pub divided: Divided,
}

/// What of a linear layer one of several GPUs has that share it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Divided {
    /// All of it.
    #[default]
    Whole,
    /// Some of its outputs, which stay where they are.
    Columns,
    /// Some of its inputs: what each makes is added up.
    Rows,
    /// Some of its outputs, which all are given.
    Gathered,
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
        let (class, divided) = (LinearClass::Linear, Divided::Whole);
        Linear { name, input, output, bias: false, class, divided }
    }

    /// The layer with or without a bias.
    pub fn with_bias(self, bias: bool) -> Linear {
        Linear { bias, ..self }
    }

    /// The layer as another class.
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
    /// Llama 4's: the same, of which nothing but what was cast back is left when the weight multiplies it.
    RmsTyped,
    /// Gemma's RMSNorm: multiplied by `1 + weight` in float32, then cast back.
    RmsPlusOne,
    /// RMSNorm whose weight multiplies in float32 before the cast back (OLMo 2).
    RmsCastLast,
    /// The same with the weight in float32 (helium).
    RmsFloat,
    /// The same with `pow(-0.5)` in place of `rsqrt` (gemma4).
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

impl NormKind {
    /// Whether it has a weight, and whether a bias.
    pub const fn parameters(self) -> (bool, bool) {
        match self {
            NormKind::LayerNorm { bias } => (true, bias),
            NormKind::LayerNormPlusOne => (true, true),
            NormKind::LayerNormPlain | NormKind::LayerNormBare | NormKind::RmsPlain | NormKind::Identity => {
                (false, false)
            }
            NormKind::Rms
            | NormKind::RmsTyped
            | NormKind::RmsPlusOne
            | NormKind::RmsCastLast
            | NormKind::RmsFloat
            | NormKind::RmsPower
            | NormKind::RmsLate
            | NormKind::LayerNormPython => (true, false),
        }
    }
}

impl Norm {
    /// A norm of that kind.
    pub fn new(name: &'static str, width: u64, kind: NormKind) -> Norm {
        Norm { name, width, rows: 1, kind }
    }

    /// Hands its parameters over.
    pub fn visit(&self, visit: Visit<'_>) {
        let (weight, bias) = self.kind.parameters();
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
        self.probability(all) > 0.0
    }

    /// How likely an element is dropped, likewise; 0 where the code has no dropout in that place.
    pub fn probability(self, all: Option<u16>) -> f64 {
        self.0.map_or(0.0, |own| f64::from(all.unwrap_or(own)) / 10_000.0)
    }
}

/// A table of learned vectors.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Table {
    /// Path in the model: `embed_tokens`.
    pub name: &'static str,
    /// Rows.
    pub rows: u64,
    /// Elements of a row.
    pub width: u64,
}

impl Table {
    /// Hands over its weight.
    pub fn visit(&self, visit: Visit<'_>) {
        visit(Param {
            name: format!("{}.weight", self.name),
            shape: vec![self.rows, self.width],
            role: ParamRole::Embedding,
        });
    }
}
