//! A layer: what mixes tokens, what follows it, and how norms and residuals wire both.

use super::attention::{Attention, Latent};
use super::basic::{Dropout, Norm};
use super::feed_forward::{Mlp, Moe};
use super::mixer::{DeltaNet, Module, ShortConv, StateSpace, Submodule};
use super::param::{Registration, Visit, in_layout};

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

    /// Hands its parameters over, in transformers' order.
    pub fn visit(&self, visit: Visit<'_>) {
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
    pub extra: Vec<Submodule>,
    /// In which order transformers registers the modules: prefixes of their paths. Empty: mixer, feed-forward, norms.
    pub layout: Registration,
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
        self.extra.iter().for_each(|submodule| submodule.visit(visit));
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
