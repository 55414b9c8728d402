//! Whose code wraps a model in units, which decides what the units are.

use crate::model::Architecture;
use crate::scenario::software::Trainer;
use crate::scenario::{Cluster, WrappedBy};

/// Whose code wraps the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::step) enum Wrapper {
    /// `fully_shard` on every layer and the model.
    Loop,
    /// accelerate (`fsdp2_prepare_model`): embedding and tail are units of their own.
    Accelerate,
    /// torchtune's recipes (`shard_model`), which have no policy of mixed precision.
    Torchtune,
    /// torchtitan (`apply_fsdp`): embedding and tail are units of their own, and nothing is left to the root.
    Torchtitan,
    /// axolotl, in the place of accelerate's (axolotl 0.19 monkeypatch/accelerate/fsdp2.py): units as in a loop, the rest as accelerate.
    Axolotl,
}

impl Wrapper {
    /// Who wraps the model that this trainer trains; without FSDP2 nobody is asked.
    pub fn of(cluster: Cluster, trainer: Trainer) -> Wrapper {
        match (trainer, cluster.wrapped_by) {
            (Trainer::Trl, _) => Wrapper::Accelerate,
            (Trainer::Torchtune, _) => Wrapper::Torchtune,
            (Trainer::Torchtitan, _) => Wrapper::Torchtitan,
            (Trainer::Loop, WrappedBy::Axolotl) if cluster.is_fsdp2() => Wrapper::Axolotl,
            (Trainer::Loop, WrappedBy::Accelerate) if cluster.is_fsdp2() => Wrapper::Accelerate,
            (Trainer::Loop | Trainer::Megatron, _) => Wrapper::Loop,
        }
    }

    /// Whether it makes units of the layers of a model's towers. accelerate and axolotl look for all classes that a model and what it is made of
    /// name (`_no_split_modules`), and stop where one is not there; told which to look for (`transformer_layer_cls_to_wrap`), the text's
    /// layers, they leave the towers to the root.
    pub fn finds_towers(self, architecture: &Architecture) -> bool {
        match self {
            Wrapper::Accelerate | Wrapper::Axolotl => architecture.told_layers().is_none(),
            Wrapper::Loop | Wrapper::Torchtune | Wrapper::Torchtitan => true,
        }
    }

    /// Whether transformers' Trainer runs over it: under accelerate's autocast, nothing is reduced before the last micro-batch (`no_sync`).
    pub fn is_under_trainer(self) -> bool {
        matches!(self, Wrapper::Accelerate | Wrapper::Axolotl)
    }
}
