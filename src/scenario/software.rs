//! What is asked of the stack that runs a model: a row for each stack, which answers every question.

use super::choices::{LossKernel, Sharding, Stack};

/// Whose modules run the layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ModelCode {
    /// transformers'.
    Transformers,
    /// litgpt's.
    Litgpt,
    /// torchtune's.
    Torchtune,
    /// torchtitan's.
    Torchtitan,
    /// Unsloth's.
    Unsloth,
    /// Megatron-core's.
    Megatron,
}

/// Whose head and loss follow the last hidden state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeadCode {
    /// transformers', or the fused loss that was asked for.
    Transformers,
    /// trl's, which never makes all logits.
    Trl,
    /// litgpt's.
    Litgpt,
    /// torchtune's.
    Torchtune,
    /// torchtitan's.
    Torchtitan,
    /// Unsloth's.
    Unsloth,
    /// Megatron-core's.
    Megatron,
}

/// Who makes 4-bit weights, and of what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quantiser {
    /// transformers puts bitsandbytes' layers into the model that it built, and leaves the last module as it is.
    Transformers,
    /// Unsloth has bitsandbytes quantise weights of the element type that products are computed in.
    Unsloth,
    /// Fabric has bitsandbytes quantise from float16, whatever the computation is in, and opens them so (lightning 2.6,
    /// fabric/plugins/precision).
    Fabric,
    /// torchao.
    Torchao,
}

/// Whose script trains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trainer {
    /// A loop of forward, backward and step, as one writes it.
    Loop,
    /// trl's trainers, on transformers' `Trainer`.
    Trl,
    /// torchtune's recipes.
    Torchtune,
    /// torchtitan's `Trainer`.
    Torchtitan,
    /// A loop around Megatron-core's schedules.
    Megatron,
}

/// Where the embedding's output is made to need a gradient, so that a checkpointed layer over frozen weights has one
/// (`enable_input_require_grads`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InputGrads {
    /// Nowhere.
    None,
    /// Under gradient checkpointing.
    Checkpointed,
    /// Always.
    Always,
}

/// A stack's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Software {
    /// Whose modules run the layers.
    pub model: ModelCode,
    /// Whose head and loss follow.
    pub head: HeadCode,
    /// The loss that runs where no other is asked for.
    pub standard_loss: LossKernel,
    /// Who makes 4-bit weights.
    pub quantiser: Quantiser,
    /// Whose script trains.
    pub trainer: Trainer,
    /// Whether peft makes the adapters.
    pub peft: bool,
    /// Whether the script prepares a model for training over 4-bit weights where that is asked for
    /// (`prepare_model_for_kbit_training`); Unsloth does it in a way of its own, which leaves element types as they are.
    pub prepares_for_4_bit: bool,
    /// Where the embedding's output is made to need a gradient beside adapters.
    pub input_grads: InputGrads,
    /// Whether Liger's kernels stand in for norms, rotary embeddings and gated products.
    pub liger_kernels: bool,
    /// Why it does not train the embedding beside adapters, where it does not.
    pub no_trained_embeddings: Option<&'static str>,
    /// Where its modules can be read.
    pub modeling_source: &'static str,
    /// Where its loss can be read.
    pub loss_source: &'static str,
    /// Where the fused loss that it runs can be read.
    pub fused_loss_source: &'static str,
    /// Where its 4-bit weights can be read.
    pub four_bit_source: &'static str,
    /// Where its adapters can be read.
    pub adapters_source: &'static str,
}

static TRANSFORMERS: Software = Software {
    model: ModelCode::Transformers,
    head: HeadCode::Transformers,
    standard_loss: LossKernel::Standard,
    quantiser: Quantiser::Transformers,
    trainer: Trainer::Loop,
    peft: true,
    prepares_for_4_bit: true,
    input_grads: InputGrads::Checkpointed,
    liger_kernels: false,
    no_trained_embeddings: None,
    modeling_source: "transformers, models, the model's modeling file; compared with the allocator's trace",
    loss_source: "transformers, loss/loss_utils.py; PyTorch, tools/autograd/derivatives.yaml",
    fused_loss_source: "liger-kernel, ops",
    four_bit_source: "bitsandbytes, functional.py",
    adapters_source: "peft, tuners/lora/layer.py",
};

static TRL: Software = Software {
    head: HeadCode::Trl,
    trainer: Trainer::Trl,
    prepares_for_4_bit: false,
    loss_source: "trl, trainer/utils.py and kernels/chunked_logprob.py",
    fused_loss_source: "trl, trainer/utils.py and kernels/chunked_logprob.py",
    ..TRANSFORMERS
};

/// Liger's kernels of the layers alone: what fuses them with a loss would replace the `forward` that trl patches.
static TRL_LIGER: Software = Software { liger_kernels: true, ..TRL };

static LIGER: Software = Software { standard_loss: LossKernel::Liger, liger_kernels: true, ..TRANSFORMERS };

static LITGPT: Software = Software {
    model: ModelCode::Litgpt,
    head: HeadCode::Litgpt,
    standard_loss: LossKernel::Standard,
    quantiser: Quantiser::Fabric,
    trainer: Trainer::Loop,
    peft: false,
    prepares_for_4_bit: true,
    input_grads: InputGrads::None,
    liger_kernels: false,
    no_trained_embeddings: Some("litgpt trains adapters alone"),
    modeling_source: "litgpt, litgpt/model.py; compared with the allocator's trace",
    loss_source: "litgpt, litgpt/utils.py; PyTorch, tools/autograd/derivatives.yaml",
    fused_loss_source: "liger-kernel, ops",
    four_bit_source: "bitsandbytes, functional.py",
    adapters_source: "litgpt, litgpt/lora.py",
};

static TORCHTUNE: Software = Software {
    model: ModelCode::Torchtune,
    head: HeadCode::Torchtune,
    standard_loss: LossKernel::Chunked,
    quantiser: Quantiser::Torchao,
    trainer: Trainer::Torchtune,
    peft: false,
    prepares_for_4_bit: false,
    input_grads: InputGrads::None,
    liger_kernels: false,
    no_trained_embeddings: Some("torchtune trains adapters alone"),
    modeling_source: "torchtune, torchtune/modules; compared with the allocator's trace",
    loss_source: "torchtune, torchtune/modules/loss; PyTorch, tools/autograd/derivatives.yaml",
    fused_loss_source: "liger-kernel, ops",
    four_bit_source: "torchao, torchao/dtypes/nf4tensor.py",
    adapters_source: "torchtune, torchtune/modules/peft",
};

static TORCHTITAN: Software = Software {
    model: ModelCode::Torchtitan,
    head: HeadCode::Torchtitan,
    standard_loss: LossKernel::Standard,
    quantiser: Quantiser::Torchao,
    trainer: Trainer::Torchtitan,
    peft: false,
    prepares_for_4_bit: false,
    input_grads: InputGrads::None,
    liger_kernels: false,
    no_trained_embeddings: Some("torchtitan 0.2.2 has no adapters"),
    modeling_source: "torchtitan, torchtitan/models/llama3/model/model.py; compared with the allocator's trace",
    loss_source: "torchtitan, torchtitan/components/loss.py; PyTorch, tools/autograd/derivatives.yaml",
    fused_loss_source: "liger-kernel, ops",
    four_bit_source: "torchao, torchao/dtypes/nf4tensor.py",
    adapters_source: "peft, tuners/lora/layer.py",
};

static UNSLOTH: Software = Software {
    model: ModelCode::Unsloth,
    head: HeadCode::Unsloth,
    standard_loss: LossKernel::Standard,
    quantiser: Quantiser::Unsloth,
    trainer: Trainer::Loop,
    peft: true,
    prepares_for_4_bit: false,
    input_grads: InputGrads::Always,
    liger_kernels: false,
    no_trained_embeddings: Some("Unsloth with modules_to_save is not modelled"),
    modeling_source: "unsloth, unsloth/models and unsloth/kernels; compared with the allocator's trace",
    loss_source: "unsloth, unsloth/kernels; unsloth_zoo, fused_losses",
    fused_loss_source: "unsloth, unsloth/kernels; unsloth_zoo, fused_losses",
    four_bit_source: "bitsandbytes, functional.py",
    adapters_source: "peft, tuners/lora/layer.py",
};

static MEGATRON: Software = Software {
    model: ModelCode::Megatron,
    head: HeadCode::Megatron,
    standard_loss: LossKernel::Standard,
    quantiser: Quantiser::Transformers,
    trainer: Trainer::Megatron,
    peft: false,
    prepares_for_4_bit: false,
    input_grads: InputGrads::None,
    liger_kernels: false,
    no_trained_embeddings: Some("Megatron-core has no adapters of its own"),
    modeling_source: "Megatron-core, megatron/core/transformer; compared with the allocator's trace",
    loss_source: "Megatron-core, megatron/core/tensor_parallel/cross_entropy.py",
    fused_loss_source: "Megatron-core, megatron/core/fusions",
    four_bit_source: "bitsandbytes, functional.py",
    adapters_source: "peft, tuners/lora/layer.py",
};

impl Software {
    /// Whether trl trains a model whose layers have Liger's kernels.
    pub(crate) const fn is_trl_with_liger(&self) -> bool {
        matches!(self.trainer, Trainer::Trl) && self.liger_kernels
    }

    /// The row of a stack.
    pub fn of(stack: Stack) -> &'static Software {
        match stack {
            Stack::Transformers => &TRANSFORMERS,
            Stack::Trl => &TRL,
            Stack::Liger => &LIGER,
            Stack::Litgpt => &LITGPT,
            Stack::Torchtune => &TORCHTUNE,
            Stack::Torchtitan => &TORCHTITAN,
            Stack::Unsloth => &UNSLOTH,
            Stack::Megatron => &MEGATRON,
        }
    }

    /// The row of a stack, where trl's trainers may be asked for Liger's kernels of the layers.
    pub fn with(stack: Stack, liger_layers: bool) -> &'static Software {
        if liger_layers && stack == Stack::Trl { &TRL_LIGER } else { Software::of(stack) }
    }

    /// The engines that several GPUs divide the training among them with, of those that are followed with that library: the one
    /// that leaves each the least first, and last one that takes every run of its.
    pub fn divides_by(&self) -> &'static [Sharding] {
        match self.head {
            HeadCode::Trl => &[Sharding::Fsdp2, Sharding::Zero2],
            HeadCode::Megatron => &[Sharding::Distributed],
            HeadCode::Transformers
            | HeadCode::Litgpt
            | HeadCode::Torchtune
            | HeadCode::Torchtitan
            | HeadCode::Unsloth => &[Sharding::Fsdp2],
        }
    }

    /// The loss that runs where that one is asked for: the stack's own in place of the standard one.
    pub fn loss(&self, asked: LossKernel) -> LossKernel {
        if asked == LossKernel::Standard { self.standard_loss } else { asked }
    }

    /// Whether a loop of one's own, or whatever stands for it, trains transformers' modules.
    pub fn runs_loop(&self) -> bool {
        self.trainer == Trainer::Loop && self.runs_transformers()
    }

    /// Whether transformers' modules run the layers.
    pub fn runs_transformers(&self) -> bool {
        self.model == ModelCode::Transformers
    }
}
