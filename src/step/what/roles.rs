//! What the parts of a model run their operations for.

use super::{EXPERTS as MOE, Role, Source};

pub(in crate::step) static MERGING: Role =
    Role::new("an adapter that is merged into its layer's weight", Source::Adapters);
pub(in crate::step) static SAVING: Role =
    Role::new("a checkpoint that is saved", Source::At("transformers, modeling_utils.py, save_pretrained"));
/// Whatever no part says anything else of: what the layers pass on to each other.
pub(in crate::step) static RESIDUAL: Role =
    Role::new("the residual path, on to the next norm or layer", Source::Modeling);
pub(in crate::step) static EMBEDDING: Role =
    Role::new("the hidden state that enters the first layer", Source::Modeling);
pub(in crate::step) static PROJECTION: Role = Role::new("a projection", Source::Modeling);
pub(in crate::step) static NORM: Role =
    Role::new("the hidden state on its way through the norm", Source::Modeling);
pub(in crate::step) static ATTENTION: Role =
    Role::new("queries, keys, values or the heads that are joined of them", Source::Modeling);
pub(in crate::step) static SCORES: Role =
    Role::new("attention scores, one per query, key and head", Source::Modeling);
pub(in crate::step) static PROBABILITIES: Role =
    Role::new("attention probabilities, one per query, key and head", Source::Modeling);
pub(in crate::step) static ROTATION: Role =
    Role::new("queries or keys rotated by their positions, factors of the scores", Source::Modeling);
pub(in crate::step) static ROTARY: Role = Role::new(
    "cosines or sines of all positions, a factor of every layer's queries and keys",
    Source::Modeling,
);
pub(in crate::step) static INDEXER: Role =
    Role::new("the indexer's choice of keys for each query", Source::Modeling);
pub(in crate::step) static FEED_FORWARD: Role = Role::new("the feed-forward network", Source::Modeling);
pub(in crate::step) static ACTIVATION: Role = Role::new("the activation function", Source::Modeling);
pub(in crate::step) static ROUTER: Role =
    Role::new("the router's scores of the experts, one row per token", MOE);
pub(in crate::step) static EXPERTS: Role = Role::new("the experts, a row for each token and expert", MOE);
pub(in crate::step) static CONVOLUTION: Role = Role::new("a step of the short convolution", Source::Modeling);
pub(in crate::step) static SCAN: Role = Role::new(
    "a step of the scan as PyTorch's own operations write it out, of which the kernels of flash-linear-attention or mamba-ssm keep less",
    Source::Modeling,
);
pub(in crate::step) static LOGITS: Role =
    Role::new("the logits, one number per token and vocabulary entry", Source::Loss);
pub(in crate::step) static HEAD: Role = Role::new("the head and the loss", Source::Loss);
