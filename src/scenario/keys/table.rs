//! The rows of the table, in the order in which they are written.

use super::key::{Count, Group, Key, Place, Value, ValueKind};
use super::nearest::nearest;
use super::values::{
    choice, count, exact_amount, set_count, set_dropout, set_gpu, set_lengths, set_model, set_switch,
    set_targets, switch, write_model,
};
use super::words;
use crate::scenario::{
    Allocator, AttentionKernel, Checkpointing, Field, GpuChoice, LoraTargets, LossKernel, Mask, Method,
    Offloading, Optimizer, Precision, ReduceDtype, Scenario, Sharding, Stack, StepTime, WeightFormat,
};

/// The input makes a difference to every scenario.
fn always(_: &Scenario) -> bool {
    true
}

fn with_adapters(scenario: &Scenario) -> bool {
    scenario.method.has_adapters()
}

fn on_many(scenario: &Scenario) -> bool {
    scenario.cluster.is_many()
}

fn with_shards(scenario: &Scenario) -> bool {
    on_many(scenario)
        && match scenario.cluster.sharding {
            Sharding::Ddp => false,
            Sharding::Fsdp2 => true,
        }
}

fn with_4_bit(scenario: &Scenario) -> bool {
    scenario.method == Method::Qlora
}

/// Whether torchao, which always quantises the scales of the 4-bit weights, has no say in it.
fn with_bitsandbytes(scenario: &Scenario) -> bool {
    with_4_bit(scenario) && scenario.stack != Stack::Torchtune
}

/// torchtune and trl prepare nothing, Unsloth in a way of its own.
fn with_preparation(scenario: &Scenario) -> bool {
    with_4_bit(scenario)
        && match scenario.stack {
            Stack::Transformers | Stack::Liger | Stack::Litgpt => true,
            Stack::Torchtune | Stack::Unsloth | Stack::Trl => false,
        }
}

/// The adapters of torchtune and litgpt have the model's element type, those of trl beside 4-bit weights bfloat16.
fn with_pefts_adapters(scenario: &Scenario) -> bool {
    with_adapters(scenario)
        && match scenario.stack {
            Stack::Transformers | Stack::Liger | Stack::Unsloth => true,
            Stack::Trl => scenario.method != Method::Qlora,
            Stack::Torchtune | Stack::Litgpt => false,
        }
}

/// The input tells no kinds of runs apart: it adds nothing to their key.
fn any(_: &Scenario) -> &'static str {
    ""
}

fn checkpointing_band(scenario: &Scenario) -> &'static str {
    match scenario.checkpointing {
        Checkpointing::Off => "kept",
        Checkpointing::NonReentrant | Checkpointing::Reentrant => "recomputed",
        Checkpointing::Offloaded => "recomputed-offloaded",
    }
}

fn attention_band(scenario: &Scenario) -> &'static str {
    match scenario.attention {
        AttentionKernel::Eager => "eager",
        AttentionKernel::FlashAttn => "flash-attn",
        AttentionKernel::Sdpa
        | AttentionKernel::Flash
        | AttentionKernel::Efficient
        | AttentionKernel::Math
        | AttentionKernel::Cudnn => "sdpa",
    }
}

/// Every key, in the order in which they are written.
pub static KEYS: &[Key] = &[
    Key {
        link: "m",
        name: "model",
        label: "Model",
        help: "The model: a Hub id, or a size such as 7b for a Llama-shaped model of so many billion parameters",
        field: Field::Model,
        group: Group::Model,
        place: Place::Surface,
        value: Value {
            kind: ValueKind::Model,
            get: |scenario| write_model(&scenario.model),
            set: set_model,
            words: |scenario| words::model(&scenario.model),
        },
        matters: always,
        band: any,
    },
    Key {
        link: "method",
        name: "method",
        label: "Method",
        help: "Which weights are trained",
        field: Field::Method,
        group: Group::Training,
        place: Place::Surface,
        value: choice!(Method, method),
        matters: always,
        band: |scenario| scenario.method.slug(),
    },
    Key {
        link: "r",
        name: "lora-rank",
        label: "LoRA rank",
        help: "The inner size of the adapters: r in peft's LoraConfig",
        field: Field::LoraRank,
        group: Group::Training,
        place: Place::Surface,
        value: count!(Rank, lora.rank),
        matters: with_adapters,
        band: any,
    },
    Key {
        link: "t",
        name: "lora-targets",
        label: "Target modules",
        help: "Which linear layers get adapters: a group, or layer names separated by commas",
        field: Field::LoraTargets,
        group: Group::Training,
        place: Place::Front,
        value: Value {
            kind: ValueKind::Targets,
            get: |scenario| match scenario.lora.targets {
                LoraTargets::Named => scenario.lora.modules.to_string(),
                group => group.slug().to_owned(),
            },
            set: set_targets,
            words: words::targets,
        },
        matters: with_adapters,
        band: any,
    },
    Key {
        link: "ld",
        name: "lora-dropout",
        label: "LoRA dropout",
        help: "Whether lora_dropout is above 0: then every adapted layer keeps a mask",
        field: Field::LoraDropout,
        group: Group::Training,
        place: Place::Folded,
        value: switch!(lora.dropout),
        matters: with_adapters,
        band: any,
    },
    Key {
        link: "a32",
        name: "fp32-adapters",
        label: "Adapters in fp32",
        help: "Whether adapters are float32 on a 16-bit model (peft's default, autocast_adapter_dtype)",
        field: Field::Fp32Adapters,
        group: Group::Training,
        place: Place::Folded,
        value: switch!(lora.fp32_adapters),
        matters: with_pefts_adapters,
        band: any,
    },
    Key {
        link: "emb",
        name: "train-embeddings",
        label: "Train embeddings too",
        help: "Whether copies of the embedding and the output head are trained whole (peft's modules_to_save)",
        field: Field::TrainEmbeddings,
        group: Group::Training,
        place: Place::Folded,
        value: switch!(lora.trains_embeddings),
        matters: with_adapters,
        band: any,
    },
    Key {
        link: "q",
        name: "weight-format",
        label: "4-bit weights",
        help: "How the frozen weights of QLoRA are stored",
        field: Field::WeightFormat,
        group: Group::Training,
        place: Place::Folded,
        value: choice!(WeightFormat, quantization.format),
        matters: with_4_bit,
        band: any,
    },
    Key {
        link: "dq",
        name: "double-quant",
        label: "Double quantisation",
        help: "Whether the scales of 4-bit weights are quantised too (bnb_4bit_use_double_quant)",
        field: Field::DoubleQuant,
        group: Group::Training,
        place: Place::Folded,
        value: switch!(quantization.double_quant),
        matters: with_bitsandbytes,
        band: any,
    },
    Key {
        link: "prep",
        name: "kbit-prepare",
        label: "k-bit preparation",
        help: "Whether prepare_model_for_kbit_training ran, which makes float32 of all that is not 4-bit",
        field: Field::KbitPrepare,
        group: Group::Training,
        place: Place::Folded,
        value: switch!(quantization.prepare),
        matters: with_preparation,
        band: any,
    },
    Key {
        link: "p",
        name: "precision",
        label: "Precision",
        help: "Element types of weights, activations and gradients",
        field: Field::Precision,
        group: Group::Precision,
        place: Place::Front,
        value: choice!(Precision, precision),
        matters: always,
        band: |scenario| scenario.precision.slug(),
    },
    Key {
        link: "o",
        name: "optimizer",
        label: "Optimizer",
        help: "The optimizer, where its implementation changes the memory also the implementation",
        field: Field::Optimizer,
        group: Group::Precision,
        place: Place::Front,
        value: choice!(Optimizer, optimizer),
        matters: always,
        band: any,
    },
    Key {
        link: "b",
        name: "batch-size",
        label: "Micro-batch size",
        help: "Sequences in one forward pass: activations and logits grow with it",
        field: Field::Batch,
        group: Group::Batch,
        place: Place::Surface,
        value: count!(Sequences, batch),
        matters: always,
        band: any,
    },
    Key {
        link: "s",
        name: "seq-length",
        label: "Sequence length",
        help: "Tokens per sequence, padding included",
        field: Field::Sequence,
        group: Group::Batch,
        place: Place::Surface,
        value: count!(Tokens, sequence),
        matters: always,
        band: any,
    },
    Key {
        link: "len",
        name: "lengths",
        label: "Lengths",
        help: "How long the sequences are; where they vary, batches are padded to their longest",
        field: Field::Lengths,
        group: Group::Batch,
        place: Place::Folded,
        value: Value {
            kind: ValueKind::Lengths,
            get: |scenario| scenario.lengths.to_string(),
            set: set_lengths,
            words: |scenario| words::lengths(scenario.lengths),
        },
        matters: always,
        band: any,
    },
    Key {
        link: "ga",
        name: "gradient-accumulation",
        label: "Gradient accumulation",
        help: "Forward and backward passes per optimizer step; gradients stay in memory between passes",
        field: Field::Accumulation,
        group: Group::Batch,
        place: Place::Front,
        value: count!(Passes, accumulation),
        matters: always,
        band: any,
    },
    Key {
        link: "gc",
        name: "gradient-checkpointing",
        label: "Gradient checkpointing",
        help: "Whether activations are recomputed in backward",
        field: Field::Checkpointing,
        group: Group::Savings,
        place: Place::Front,
        value: choice!(Checkpointing, checkpointing),
        matters: always,
        band: checkpointing_band,
    },
    Key {
        link: "attn",
        name: "attention",
        label: "Attention",
        help: "The attention implementation",
        field: Field::Attention,
        group: Group::Savings,
        place: Place::Front,
        value: choice!(AttentionKernel, attention),
        matters: always,
        band: attention_band,
    },
    Key {
        link: "mask",
        name: "mask",
        label: "Padding",
        help: "How texts fill the batch, and which attention mask it carries",
        field: Field::Mask,
        group: Group::Batch,
        place: Place::Folded,
        value: choice!(Mask, mask),
        matters: always,
        band: |scenario| if scenario.mask.is_packed() { "packed" } else { "" },
    },
    Key {
        link: "drop",
        name: "dropout",
        label: "Dropout",
        help: "A probability to set every dropout of the config to, or config to keep them",
        field: Field::Dropout,
        group: Group::Model,
        place: Place::Folded,
        value: Value {
            kind: ValueKind::Dropout,
            get: |scenario| match scenario.dropout {
                None => "config".to_owned(),
                Some(p) => (f64::from(p) / 10_000.0).to_string(),
            },
            set: set_dropout,
            words: |scenario| words::dropout(scenario.dropout),
        },
        matters: always,
        band: any,
    },
    Key {
        link: "out",
        name: "keep-outputs",
        label: "Outputs kept",
        help: "Whether the script keeps the model's output alive through backward (out = model(...))",
        field: Field::KeepOutputs,
        group: Group::Loop,
        place: Place::Folded,
        value: switch!(training_loop.keeps_outputs),
        matters: always,
        band: any,
    },
    Key {
        link: "stn",
        name: "set-to-none",
        label: "Gradients freed",
        help: "Whether zero_grad frees the gradients after the step (set_to_none, PyTorch's default)",
        field: Field::SetToNone,
        group: Group::Loop,
        place: Place::Folded,
        value: switch!(training_loop.grads_to_none),
        matters: always,
        band: any,
    },
    Key {
        link: "clip",
        name: "clip-gradients",
        label: "Gradient clipping",
        help: "Whether gradients are clipped by their norm",
        field: Field::ClipGradients,
        group: Group::Loop,
        place: Place::Folded,
        value: switch!(training_loop.clips),
        matters: |scenario| match scenario.savings.step {
            StepTime::AfterBackward => true,
            // the norm would need all gradients at once
            StepTime::InBackward => false,
        },
        band: any,
    },
    Key {
        link: "st",
        name: "stack",
        label: "Training library",
        help: "Whose code runs the model",
        field: Field::Stack,
        group: Group::Training,
        place: Place::Front,
        value: choice!(Stack, stack),
        matters: always,
        // stack and loss are the software that a kind is of
        band: any,
    },
    Key {
        link: "loss",
        name: "loss",
        label: "Loss kernel",
        help: "How the output head and the loss are computed",
        field: Field::Loss,
        group: Group::Savings,
        place: Place::Front,
        value: choice!(LossKernel, savings.loss),
        matters: always,
        band: any,
    },
    Key {
        link: "offload",
        name: "activation-offloading",
        label: "Activation offloading",
        help: "Where saved activations wait for backward",
        field: Field::Offloading,
        group: Group::Savings,
        place: Place::Front,
        value: choice!(Offloading, savings.offloading),
        matters: always,
        band: |scenario| match scenario.savings.offloading {
            Offloading::Off => "",
            Offloading::On => "offloaded",
        },
    },
    Key {
        link: "step",
        name: "optimizer-step",
        label: "Optimizer step",
        help: "When the optimizer steps",
        field: Field::Step,
        group: Group::Savings,
        place: Place::Folded,
        value: choice!(StepTime, savings.step),
        matters: always,
        band: |scenario| match scenario.savings.step {
            StepTime::AfterBackward => "",
            StepTime::InBackward => "in-backward",
        },
    },
    Key {
        link: "cache",
        name: "use-cache",
        label: "KV cache",
        help: "Whether the forward pass fills a cache of keys and values (config.use_cache)",
        field: Field::UseCache,
        group: Group::Loop,
        place: Place::Folded,
        value: switch!(training_loop.fills_cache),
        matters: |scenario| match scenario.checkpointing {
            Checkpointing::Off => true,
            // transformers then fills none
            Checkpointing::NonReentrant | Checkpointing::Reentrant | Checkpointing::Offloaded => false,
        },
        band: any,
    },
    Key {
        link: "alloc",
        name: "allocator",
        label: "Allocator",
        help: "How PyTorch's caching allocator gets memory from the driver",
        field: Field::Allocator,
        group: Group::Savings,
        place: Place::Front,
        value: choice!(Allocator, allocator),
        matters: always,
        band: any,
    },
    Key {
        link: "gpu",
        name: "gpu",
        label: "GPU",
        help: "The card: its name, or an amount of memory",
        field: Field::Gpu,
        group: Group::Model,
        place: Place::Surface,
        value: Value {
            kind: ValueKind::Gpu,
            get: |scenario| match &scenario.gpu {
                GpuChoice::Catalogue(slug) => slug.clone(),
                GpuChoice::Custom(memory) => exact_amount(*memory),
            },
            set: set_gpu,
            words: |scenario| words::card(&scenario.gpu),
        },
        matters: always,
        band: any,
    },
    Key {
        link: "gpus",
        name: "gpus",
        label: "GPUs",
        help: "How many such cards train the model together, each with a micro-batch of its own",
        field: Field::Gpus,
        group: Group::Model,
        place: Place::Folded,
        value: count!(Gpus, cluster.gpus),
        matters: always,
        band: any,
    },
    Key {
        link: "shard",
        name: "shard",
        label: "Sharding",
        help: "What each of several GPUs keeps of the model",
        field: Field::Sharding,
        group: Group::Model,
        place: Place::Front,
        value: choice!(Sharding, cluster.sharding),
        matters: on_many,
        band: any,
    },
    Key {
        link: "reshard",
        name: "reshard-after-forward",
        label: "Reshard after forward",
        help: "Whether FSDP2 lets a layer's gathered weights go after its forward pass (reshard_after_forward)",
        field: Field::Reshards,
        group: Group::Model,
        place: Place::Folded,
        value: switch!(cluster.reshards),
        matters: with_shards,
        band: any,
    },
    Key {
        link: "reduce",
        name: "reduce-dtype",
        label: "Gradient reduction",
        help: "The element type in which FSDP2 sums gradients (MixedPrecisionPolicy(reduce_dtype))",
        field: Field::ReduceDtype,
        group: Group::Model,
        place: Place::Folded,
        value: choice!(ReduceDtype, cluster.reduce),
        matters: with_shards,
        band: any,
    },
];
