//! Layers that Unsloth compiles one by one, its default under checkpoints: of which scenarios the compiled graphs were compared.

use super::{
    AttentionKernel, Checkpointing, Compile, Evaluates, Field, Issue, Lengths, LoraTargets, Precision,
    Scenario, Stack, Task, Tuner,
};
use crate::hardware::ComputeCapability;
use crate::model::Architecture;
use crate::model::blocks::{Activation, Block, FeedForward, Mlp, Projection, Wiring};
use crate::units::Bytes;

/// Elements that rows of a matrix are a multiple of, so that inductor pads none of them (torch/_inductor/config.py
/// `padding_alignment_bytes`, of 16-bit elements).
const ROW: u64 = 64;
/// Compute capabilities of cards on which the graphs were compared: on 7.5 attention is the memory-efficient kernel, on 9 cuDNN's, else flash.
/// A V100 (7.0) took 2.8 % less than is predicted.
const fn is_compared(capability: ComputeCapability) -> bool {
    matches!((capability.major, capability.minor), (7, 5) | (8 | 9 | 10 | 12, _))
}

impl Scenario {
    /// Whether Unsloth compiles layers at all (unsloth 2026.10.9 models/_block_compile.py, models/llama.py): under checkpoints, where no
    /// texts share a row.
    fn is_compiled_by_unsloth(&self) -> bool {
        self.stack == Stack::Unsloth && self.checkpointing != Checkpointing::Off && !self.mask.is_packed()
    }

    /// Whether Unsloth compiles its layers, and the graphs were compared.
    pub(crate) fn compiles_as_unsloth(&self) -> bool {
        self.is_compiled_by_unsloth() && self.unsloths_layers().is_ok()
    }

    /// What layers that Unsloth compiles need more than followed ones at most, where it compiles them and they are not followed so: three
    /// tensors of the feed-forward network's width for each token, which their backward makes anew and Unsloth's own writes over others
    /// (docs/stacks.md).
    pub(crate) fn compiled_takes_more(&self, architecture: &Architecture) -> Option<Bytes> {
        const TENSORS: u64 = 3;
        if !self.is_compiled_by_unsloth() || self.compile != Compile::Off {
            return None;
        }
        let width = |block: &Block| match &block.ffn {
            FeedForward::Dense(Mlp::Gated { gate, .. }) => gate.output,
            FeedForward::Dense(_) | FeedForward::Moe(_) | FeedForward::None => 0,
        };
        let width = architecture.blocks.iter().map(width).max().unwrap_or(0);
        let numbers = [TENSORS, self.batch, self.sequence, width].into_iter().fold(1, u64::saturating_mul);
        Some(Bytes(numbers.saturating_mul(2)))
    }

    /// What of its choice of torch.compile's Unsloth does not have, or was not compared under it.
    pub(crate) fn compiled_otherwise(&self) -> Option<Issue> {
        if self.stack != Stack::Unsloth {
            return None;
        }
        match self.compile {
            Compile::Model => {
                let message = "Unsloth compiles each layer by itself, not the whole model";
                Some(Issue::error(Field::Compile, message).with_fix("compile the layers one by one"))
            }
            Compile::Layers if self.is_compiled_by_unsloth() => self.unsloths_layers().err(),
            Compile::Layers | Compile::Off => None,
        }
    }

    /// An error that says what of layers that Unsloth compiles was not compared.
    fn unsloths_layers(&self) -> Result<(), Issue> {
        let what = "layers that Unsloth compiles";
        let refuse = |field, because: &str| {
            let off = "switch torch.compile off, which is UNSLOTH_COMPILE_DISABLE=1: its default needs more";
            Err(Issue::error(field, format!("{what} {because}")).with_fix(off))
        };
        if self.task != Task::Sft || self.evaluation.keeps != Evaluates::Off {
            return refuse(Field::Compile, "are followed in fine-tuning on texts alone, without evaluation");
        }
        if self.cluster.is_many() {
            return refuse(Field::Gpus, "were compared on one GPU alone");
        }
        if !matches!(self.precision, Precision::AmpBf16Weights | Precision::Fp16) {
            return refuse(Field::Precision, "were compared in autocast over 16-bit weights alone");
        }
        let is_compared = self.gpu().is_ok_and(|gpu| gpu.capability.is_some_and(is_compared));
        if self.attention != AttentionKernel::Sdpa || !is_compared {
            return refuse(
                Field::Attention,
                "were compared with SDPA alone, on compute capability 7.5, 8.x, 9.x, 10.x and 12.x",
            );
        }
        if self.lengths != Lengths::Equal {
            return refuse(Field::Lengths, "were compared with texts of one length alone");
        }
        if !self.method.has_adapters() || self.lora.tuner != Tuner::Lora {
            return refuse(Field::Adapter, "were compared with LoRA's adapters alone");
        }
        let Ok(architecture) = self.architecture() else { return Ok(()) };
        let is_everywhere = match self.lora.targets {
            LoraTargets::Named => self.lora.modules.group(&architecture) == Some(LoraTargets::AllLinear),
            group => group == LoraTargets::AllLinear,
        };
        if !is_everywhere {
            return refuse(Field::LoraTargets, "were compared with adapters on all linear layers alone");
        }
        match unfollowed(&architecture, self.sequence) {
            None => Ok(()),
            Some(because) => {
                let family = &architecture.model_type;
                refuse(Field::Compile, &format!("of {family} are not modelled: {because}"))
            }
        }
    }
}

/// What of a model's layers is other than in those that were compared.
fn unfollowed(architecture: &Architecture, length: u64) -> Option<&'static str> {
    let family = architecture.family?;
    if !family.modeling.compiles || family.stacks.unsloth.is_none() {
        return Some("the graphs of llama's, mistral's and qwen3's layers alone are known");
    }
    if !architecture.hidden.is_multiple_of(ROW) {
        return Some("64 does not divide its hidden size, and inductor pads rows then");
    }
    architecture.blocks.iter().find_map(|block| {
        let (Wiring::PreNorm { .. }, FeedForward::Dense(Mlp::Gated { gate, act: Activation::Silu, .. })) =
            (&block.wiring, &block.ffn)
        else {
            return Some("its layers are not wired as llama's");
        };
        if !gate.output.is_multiple_of(ROW) {
            return Some(
                "64 does not divide the width of its feed-forward network, and inductor pads rows then",
            );
        }
        let Some(attention) = block.mixer.attention() else {
            return Some("its layers have no attention like llama's");
        };
        let Projection::Separate { q, .. } = &attention.projection else {
            return Some("its projections are fused");
        };
        if q.bias && attention.heads == attention.kv_heads {
            return Some(
                "projections with biases were compared with fewer heads of keys than of queries alone",
            );
        }
        if attention.window.is_some_and(|window| window <= length) {
            return Some("the sequence is longer than its window, and has a mask then");
        }
        (attention.head_dim > 256 || !attention.head_dim.is_multiple_of(ROW))
            .then_some("heads of 64, 128, 192 and 256 features alone were compared")
    })
}
