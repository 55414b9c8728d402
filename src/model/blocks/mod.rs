//! The blocks that every family is described with. A block is data: which projections, norms and shapes a layer has.
//! What running it does is written once per kind of block in [`crate::step`]; what it weighs is read off its parameters
//! here, so that the count and the execution can never disagree.

mod attention;
mod basic;
mod block;
mod feed_forward;
mod mixer;
mod param;

pub use attention::{
    Attention, AttentionCode, Indexer, Latent, LatentQuery, Projection, QkNorm, QueryScale, Rotary,
};
pub use basic::{Divided, Dropout, Linear, LinearClass, Norm, NormKind, Table};
pub use block::{Block, CrossAttention, FeedForward, Mixer, Wiring};
pub use feed_forward::{Activation, ExpertLayout, ExpertNames, Mlp, Moe, XIELU_PARAMETERS};
pub use mixer::{BareParam, Conv, DeltaNet, Module, Scan, ShortConv, StateSpace, Submodule};
pub use param::{Param, ParamRole, Registration, Visit, in_layout};
