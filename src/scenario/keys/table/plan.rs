//! What of a card is not for the run, and what time and price depend on.

use super::super::key::{Group, Key, Place, Value, ValueKind};
use super::super::matters::{always, any, with_colocated_vllm, with_serving, with_vllm};
use super::super::nearest::nearest;
use super::super::values::{choice, count, set_count, set_switch, switch};
use crate::scenario::count::Count;
use crate::scenario::{Field, ServedCache};

/// What of a card is not for the run's tensors: its names, label and help.
const fn of_card([link, name, label, help]: [&'static str; 4], field: Field, value: Value) -> Key {
    Key {
        link,
        name,
        label,
        help,
        field,
        group: Group::Model,
        place: Place::Folded,
        value,
        matters: always,
        band: any,
    }
}

/// What time and price depend on, and memory does not.
const fn of_data([link, name, label, help]: [&'static str; 4], field: Field, value: Value) -> Key {
    Key {
        link,
        name,
        label,
        help,
        field,
        group: Group::Batch,
        place: Place::Planned,
        value,
        matters: always,
        band: any,
    }
}

pub(super) const KEYS: &[Key] = &[
    of_card(
        [
            "used",
            "used-mib",
            "Memory in use",
            "MiB of the card that others have already: a desktop, a browser, another process (nvidia-smi names them)",
        ],
        Field::Used,
        count!(Mebibytes, "memory in use", reserve.used),
    ),
    of_card(
        [
            "margin",
            "margin-mib",
            "Safety margin",
            "MiB of the card that shall stay free, for what an estimate cannot know",
        ],
        Field::Margin,
        count!(Mebibytes, "safety margin", reserve.margin),
    ),
    of_card(
        [
            "ctx",
            "context-mib",
            "CUDA context",
            "MiB that the process takes before its first tensor; 0 for what was measured for the card's generation (data/SOURCES.md lists where)",
        ],
        Field::Context,
        count!(Mebibytes, "CUDA context", reserve.context),
    ),
    of_card(
        [
            "cublas",
            "cublas-workspace-kib",
            "cuBLAS workspace",
            "KiB of each workspace that cuBLAS is given, as CUBLAS_WORKSPACE_CONFIG says (:4096:8 is 32768); 0 for what PyTorch asks for (aten/src/ATen/cuda/CUDABlas.cpp): 32 MiB on Hopper, 8.125 MiB elsewhere",
        ],
        Field::Workspace,
        count!(Kibibytes, "cuBLAS workspace", reserve.workspace),
    ),
    Key {
        link: "vllm",
        name: "vllm-percent",
        label: "vLLM's share of the card",
        help: "Percent of the card that vLLM has beside the training (vllm_mode=\"colocate\", vllm_gpu_memory_utilization, 30 in trl); 0 where a server elsewhere generates the answers. Where it only generates, what the table of formats gives vLLM (gpu_memory_utilization); 0 for its default, 92",
        field: Field::VllmPercent,
        // beside who generates the answers
        group: Group::Training,
        place: Place::Front,
        value: count!(Percent, "share of vLLM", reserve.vllm),
        matters: with_vllm,
        band: any,
    },
    Key {
        link: "vsleep",
        name: "vllm-sleep",
        label: "vLLM sleeps while it trains",
        help: "Whether vLLM gives its weights and its keys and values back to the card between its answers (vllm_enable_sleep_mode), so that its share is taken while it generates alone; off in trl",
        field: Field::VllmSleep,
        group: Group::Training,
        place: Place::Front,
        value: switch!(reserve.sleeps),
        matters: with_colocated_vllm,
        band: any,
    },
    Key {
        link: "vtokens",
        name: "vllm-max-num-batched-tokens",
        label: "vLLM's tokens at a time",
        help: "The most tokens that vLLM computes at a time where it serves the model (max_num_batched_tokens): its profiling run has so many; 0 for its default, 2,048, or 8,192 on cards of 70 GiB and more that are no A100",
        field: Field::VllmBatchedTokens,
        group: Group::Training,
        place: Place::Front,
        value: count!(TokensOrNone, "number of tokens at a time", serving.batched_tokens),
        matters: with_serving,
        band: any,
    },
    Key {
        link: "vseqs",
        name: "vllm-max-num-seqs",
        label: "vLLM's sequences at once",
        help: "The most sequences that vLLM runs at once where it serves the model (max_num_seqs): its profiling run draws a next token for so many; 0 for its default, 256, or 1,024 on cards of 70 GiB and more that are no A100",
        field: Field::VllmSequences,
        group: Group::Training,
        place: Place::Front,
        value: count!(SequencesOrNone, "number of sequences at once", serving.sequences),
        matters: with_serving,
        band: any,
    },
    Key {
        link: "vkv",
        name: "vllm-kv-cache-dtype",
        label: "vLLM's keys and values",
        help: "What vLLM keeps keys and values in where it serves the model (kv_cache_dtype)",
        field: Field::VllmCache,
        group: Group::Training,
        place: Place::Front,
        value: choice!(ServedCache, serving.cache),
        matters: with_serving,
        band: any,
    },
    of_data(
        [
            "data",
            "dataset-tokens",
            "Tokens of the data set",
            "How long the run takes follows from them: examples times their tokens, as in 10k x 512",
        ],
        Field::DatasetTokens,
        count!(DatasetTokens, "data set", data.tokens),
    ),
    of_data(
        ["ep", "epochs", "Epochs", "How often the data set is gone through"],
        Field::Epochs,
        count!(Epochs, "number of epochs", data.epochs),
    ),
    of_data(
        [
            "price",
            "gpu-hour-cents",
            "US cents per GPU-hour",
            "What an hour of one GPU costs you, as in 250 for $2.50; 0 for the cheapest machine with the card that is on record",
        ],
        Field::Price,
        count!(Cents, "price of a GPU-hour", data.cents),
    ),
];
