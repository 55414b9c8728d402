//! Token mixers that are not attention: state spaces, linear attention, convolutions.

use super::basic::{Linear, Norm, Table};
use super::param::{Param, ParamRole, Visit};
use crate::dtype::Dtype;

/// A depthwise convolution over the last few tokens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Conv {
    /// Path inside the block: `mixer.conv1d`.
    pub name: &'static str,
    /// Channels.
    pub channels: u64,
    /// Tokens that it sees.
    pub kernel: u64,
    /// Whether it has a bias.
    pub bias: bool,
}

impl Conv {
    fn visit(&self, visit: Visit<'_>) {
        visit(Param {
            name: format!("{}.weight", self.name),
            shape: vec![self.channels, 1, self.kernel],
            role: ParamRole::Other,
        });
        if self.bias {
            visit(Param {
                name: format!("{}.bias", self.name),
                shape: vec![self.channels],
                role: ParamRole::Other,
            });
        }
    }
}

/// A vector or matrix that belongs to no layer of its own: `A_log`, `dt_bias`, a gate.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BareParam {
    /// Path inside the block: `mixer.A_log`.
    pub name: &'static str,
    /// Shape.
    pub shape: Vec<u64>,
}

impl BareParam {
    /// A parameter of that shape.
    pub fn new(name: &'static str, shape: &[u64]) -> BareParam {
        BareParam { name, shape: shape.to_vec() }
    }

    /// Hands it over.
    pub fn visit(&self, visit: Visit<'_>) {
        visit(Param { name: self.name.into(), shape: self.shape.clone(), role: ParamRole::Other });
    }
}

/// Which state-space layer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Scan {
    /// Mamba 1: step, B and C from a projection of their own (mamba, falcon_mamba, jamba).
    Mamba {
        /// To step, B and C.
        x: Linear,
        /// Step, from its rank to all channels.
        dt: Linear,
        /// Norms on step, B and C (jamba).
        norms: Vec<Norm>,
    },
    /// Mamba 2: everything from one projection, heads, a gated norm (nemotron_h, bamba).
    Mamba2 {
        /// Heads.
        heads: u64,
        /// Groups of B and C.
        groups: u64,
        /// Groups that the gated norm is computed over, each by itself.
        norm_groups: u64,
        /// Tokens that are computed at once.
        chunk: u64,
        /// The gated norm.
        norm: Norm,
    },
}

/// A selective state space.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StateSpace {
    /// Channels.
    pub inner: u64,
    /// Size of the state of a channel.
    pub state: u64,
    /// The input projection.
    pub input: Linear,
    /// The convolution.
    pub conv: Conv,
    /// Which one.
    pub scan: Scan,
    /// `A_log`, `D`, `dt_bias`.
    pub extra: Vec<BareParam>,
    /// The output projection.
    pub output: Linear,
    /// In what a server keeps the state (`mamba_ssm_cache_dtype`); as the model computes where none is said.
    pub kept_in: Option<Dtype>,
}

impl StateSpace {
    /// Hands its parameters over.
    pub fn visit(&self, visit: Visit<'_>) {
        self.extra.iter().for_each(|extra| extra.visit(visit));
        self.conv.visit(visit);
        self.input.visit(visit);
        match &self.scan {
            Scan::Mamba { x, dt, norms } => {
                x.visit(visit);
                dt.visit(visit);
                self.output.visit(visit);
                norms.iter().for_each(|norm| norm.visit(visit));
            }
            Scan::Mamba2 { norm, .. } => {
                norm.visit(visit);
                self.output.visit(visit);
            }
        }
    }
}

/// Gated delta net: linear attention with a state that is corrected (qwen3_next, qwen3_5).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DeltaNet {
    /// Heads of queries and keys.
    pub key_heads: u64,
    /// Heads of values.
    pub value_heads: u64,
    /// Elements of a key.
    pub key_dim: u64,
    /// Elements of a value.
    pub value_dim: u64,
    /// The input projections: two (qwen3_next) or four (qwen3_5).
    pub inputs: Vec<Linear>,
    /// The convolution over queries, keys and values.
    pub conv: Conv,
    /// `dt_bias` and `A_log`.
    pub extra: Vec<BareParam>,
    /// The gated norm of the output.
    pub norm: Norm,
    /// The output projection.
    pub output: Linear,
    /// In what a server keeps the state (`mamba_ssm_dtype`); as the model computes where none is said.
    pub kept_in: Option<Dtype>,
}

impl DeltaNet {
    /// Hands its parameters over.
    pub fn visit(&self, visit: Visit<'_>) {
        self.extra.iter().for_each(|extra| extra.visit(visit));
        self.conv.visit(visit);
        self.inputs.iter().for_each(|linear| linear.visit(visit));
        self.norm.visit(visit);
        self.output.visit(visit);
    }
}

/// A gated short convolution (lfm2).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ShortConv {
    /// The convolution.
    pub conv: Conv,
    /// The input projection, to three times the width.
    pub input: Linear,
    /// The output projection.
    pub output: Linear,
}

impl ShortConv {
    /// Hands its parameters over.
    pub fn visit(&self, visit: Visit<'_>) {
        self.conv.visit(visit);
        self.input.visit(visit);
        self.output.visit(visit);
    }
}

/// A part of a [`Module`], or one beside the parts of a layer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Submodule {
    /// A linear layer.
    Linear(Linear),
    /// A norm.
    Norm(Norm),
    /// An embedding.
    Table(Table),
    /// Any other parameter.
    Bare(BareParam),
}

impl Submodule {
    /// A parameter of that shape.
    pub fn param(name: &'static str, shape: &[u64]) -> Submodule {
        Submodule::Bare(BareParam::new(name, shape))
    }

    /// Hands its parameters over.
    pub fn visit(&self, visit: Visit<'_>) {
        match self {
            Submodule::Linear(linear) => linear.visit(visit),
            Submodule::Norm(norm) => norm.visit(visit),
            Submodule::Table(table) => table.visit(visit),
            Submodule::Bare(extra) => extra.visit(visit),
        }
    }
}

/// A mixer that is known by its parameters only.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Module {
    /// What it is, for people: `compressed sparse attention`.
    pub what: &'static str,
    /// Its parameters.
    pub submodules: Vec<Submodule>,
}

impl Module {
    /// Hands its parameters over.
    pub fn visit(&self, visit: Visit<'_>) {
        self.submodules.iter().for_each(|submodule| submodule.visit(visit));
    }
}
