//! What is done with which model, and which of its weights are trained.

use super::super::key::{Group, Key, Place, Value, ValueKind};
use super::super::matters::{
    always, any, with_4_bit, with_adapters, with_bitsandbytes, with_expert_layers, with_lora_dropout,
    with_pefts_adapters, with_preparation, with_rank, with_targets,
};
use super::super::nearest::nearest;
use super::super::values::{
    choice, count, set_count, set_model, set_switch, set_targets, switch, write_model,
};
use super::super::words;
use crate::scenario::count::Count;
use crate::scenario::{Experts, Field, LoraTargets, Method, Task, Tuner, WeightFormat};

pub(super) const KEYS: &[Key] = &[
    Key {
        link: "task",
        name: "task",
        label: "Task",
        help: "What is done with the model: fine-tuning on texts, on answers that are preferred to others or rewarded, or generating text (inference)",
        field: Field::Task,
        group: Group::Model,
        place: Place::Surface,
        value: choice!(Task, task),
        matters: always,
        band: |scenario| if scenario.task == Task::Sft { "" } else { scenario.task.slug() },
    },
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
        link: "ad",
        name: "adapter",
        label: "Adapter",
        help: "Which adapters of peft are trained beside the frozen weights",
        field: Field::Adapter,
        group: Group::Training,
        place: Place::Folded,
        value: choice!(Tuner, lora.tuner),
        matters: with_adapters,
        band: |scenario| match scenario.lora.tuner {
            Tuner::Lora => "",
            other => other.slug(),
        },
    },
    Key {
        link: "r",
        name: "lora-rank",
        label: "LoRA rank",
        help: "The inner size of the adapters: r in the settings of peft's tuners, of OFT the size of a block, of prompt and prefix tuning and P-tuning the number of virtual tokens; of GaLore and APOLLO how many directions gradients are projected onto",
        field: Field::LoraRank,
        group: Group::Training,
        place: Place::Surface,
        value: count!(Rank, lora.rank),
        matters: with_rank,
        band: any,
    },
    Key {
        link: "t",
        name: "lora-targets",
        label: "Target modules",
        help: "Which linear layers get adapters, or have their gradients projected by GaLore and APOLLO: a group, or layer names separated by commas",
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
        matters: with_targets,
        band: any,
    },
    Key {
        link: "ld",
        name: "lora-dropout",
        label: "LoRA dropout",
        help: "Whether the adapters' dropout (lora_dropout, vera_dropout) is above 0: then every adapted layer keeps a mask",
        field: Field::LoraDropout,
        group: Group::Training,
        place: Place::Folded,
        value: switch!(lora.dropout),
        matters: with_lora_dropout,
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
        label: "Quantised weights",
        help: "How frozen weights that are quantised are stored: in 4 bits as QLoRA has them, or in 8 (LLM.int8)",
        field: Field::WeightFormat,
        group: Group::Training,
        place: Place::Folded,
        value: choice!(WeightFormat, quantization.format),
        matters: with_4_bit,
        band: |scenario| {
            if with_4_bit(scenario) && scenario.quantization.format == WeightFormat::Int8 {
                "int8"
            } else {
                ""
            }
        },
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
        link: "exl",
        name: "experts",
        label: "Experts",
        help: "How a mixture has its experts: transformers 5 in one tensor, which 4-bit loading leaves in 16 bits, transformers 4 as linear layers",
        field: Field::Experts,
        group: Group::Model,
        place: Place::Folded,
        value: choice!(Experts, experts),
        matters: with_expert_layers,
        band: |scenario| {
            if with_expert_layers(scenario) && scenario.experts == Experts::Layers {
                "expert layers"
            } else {
                ""
            }
        },
    },
];
