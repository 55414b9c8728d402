//! How a step runs: checkpointing, kernels, dropout, what the training loop keeps, the software, the allocator.

use super::super::key::{Group, Key, Place, Value, ValueKind};
use super::super::matters::{
    always, any, attention_band, checkpointing_band, when_trained, with_compile, with_liger_layers,
    with_step_time,
};
use super::super::nearest::nearest;
use super::super::values::{choice, set_dropout, set_switch, switch};
use super::super::words;
use crate::scenario::{
    Allocator, AttentionKernel, Checkpointing, Compile, Field, LossKernel, Mask, Offloading, Stack, StepTime,
    Task,
};

pub(super) const KEYS: &[Key] = &[
    Key {
        link: "gc",
        name: "gradient-checkpointing",
        label: "Gradient checkpointing",
        help: "Whether activations are recomputed in backward",
        field: Field::Checkpointing,
        group: Group::Savings,
        place: Place::Front,
        value: choice!(Checkpointing, checkpointing),
        matters: when_trained,
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
            number: None,
        },
        matters: when_trained,
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
        matters: when_trained,
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
        matters: when_trained,
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
        matters: |scenario| {
            // nobody clips a policy's gradients
            when_trained(scenario)
                && scenario.task != Task::Ppo
                && match scenario.savings.step {
                    StepTime::AfterBackward => true,
                    // the norm would need all gradients at once
                    StepTime::InBackward => false,
                }
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
        value: Value { words: |scenario| scenario.library().to_owned(), ..choice!(Stack, stack) },
        matters: always,
        // stack and loss are the software that a kind is of
        band: any,
    },
    Key {
        link: "compile",
        name: "compile",
        label: "torch.compile",
        help: "What torch.compile compiles: nothing, each decoder layer by itself (layer.compile()) with all else as it is written, or the whole model (model.compile())",
        field: Field::Compile,
        group: Group::Training,
        place: Place::Folded,
        value: choice!(Compile, compile),
        matters: with_compile,
        band: |scenario| match scenario.compile {
            Compile::Off => "",
            Compile::Layers => "compiled layers",
            Compile::Model => "compiled whole",
        },
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
        matters: when_trained,
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
        matters: when_trained,
        band: |scenario| match scenario.savings.offloading {
            Offloading::Off => "",
            Offloading::On => "offloaded",
        },
    },
    Key {
        link: "liger",
        name: "liger-layers",
        label: "Liger's layers",
        help: "Whether Liger's kernels stand in for norms, rotary positions and gated products under trl (use_liger_kernel=True); head and loss stay trl's own",
        field: Field::LigerLayers,
        group: Group::Savings,
        place: Place::Front,
        value: switch!(savings.liger_layers),
        matters: with_liger_layers,
        band: |scenario| if scenario.runs_liger_layers() { "liger layers" } else { "" },
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
        matters: with_step_time,
        band: |scenario| match scenario.savings.step {
            StepTime::AfterBackward => "",
            StepTime::InBackward => "in-backward",
        },
    },
    Key {
        link: "cache",
        name: "use-cache",
        label: "KV cache in training",
        help: "Whether the forward pass fills a cache of keys and values (config.use_cache)",
        field: Field::UseCache,
        group: Group::Loop,
        place: Place::Folded,
        value: switch!(training_loop.fills_cache),
        matters: |scenario| {
            when_trained(scenario)
                && match scenario.checkpointing {
                    Checkpointing::Off => true,
                    // transformers then fills none
                    Checkpointing::NonReentrant
                    | Checkpointing::Reentrant
                    | Checkpointing::Offloaded
                    | Checkpointing::Alternate
                    | Checkpointing::Operations
                    | Checkpointing::Selective => false,
                }
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
];
