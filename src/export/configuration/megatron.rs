//! A shell script that gives Megatron-LM's pretrain_gpt.py its arguments (megatron/training/arguments.py of Megatron-core 0.16.1).

use std::fmt::Display;

use super::Run;
use crate::issue::{Field, Issue};
use crate::model::blocks::{Attention, Block, Dropout, FeedForward, Mlp};
use crate::scenario::{
    AttentionKernel, Checkpointing, ContextComm, Layout, LossKernel, ReduceDtype, Scenario, Sharding, Stack,
};

/// What the vocabulary is padded to a multiple of, for each GPU that shares it (`make_vocab_size_divisible_by`).
const DIVISIBLE_BY: u64 = 128;

/// Options, a line each.
#[derive(Default)]
struct Options(Vec<String>);

impl Options {
    fn on(&mut self, name: &str) {
        self.0.push(format!("--{name}"));
    }

    fn on_if(&mut self, is_on: bool, name: &str) {
        if is_on {
            self.on(name);
        }
    }

    fn set(&mut self, name: &str, value: impl Display) {
        self.0.push(format!("--{name} {value}"));
    }

    /// Where it is not what Megatron-LM takes anyway.
    fn set_unless(&mut self, name: &str, value: u64, usual: u64) {
        if value != usual {
            self.set(name, value);
        }
    }
}

pub(super) fn write(run: &Run<'_>) -> Result<(String, String), Issue> {
    let scenario = run.scenario;
    if scenario.stack != Stack::Megatron {
        let issue = Issue::error(Field::Stack, "Megatron-LM runs its own modules");
        return Err(issue.with_fix("choose Megatron-core as the training library"));
    }
    let Layout { pipeline, interleaved, .. } = scenario.cluster.layout;
    if interleaved > 0 && pipeline == 2 {
        // megatron/training/arguments.py `validate_args`
        let message = "Megatron-LM interleaves two stages only where what they send overlaps what they compute, which is not predicted";
        let issue = Issue::error(Field::Interleaved, message);
        return Err(issue.with_fix("choose more stages, or run a stage's layers at once"));
    }
    let mut options = Options::default();
    model(run, &mut options)?;
    layout(scenario, &mut options);
    training(scenario, &mut options);
    let (machines, on_each) = run.launched();
    let variable = run.variable(false).trim_end();
    let variable = if variable.is_empty() { String::new() } else { format!("export {variable}\n") };
    let text = format!(
        "# It begins with random weights and reads made-up texts: --load and --data-path name others. Constants of norms and positions\n\
         # (--norm-epsilon, --rotary-base) are Megatron-LM's own: memory does not depend on them.\n\
         {variable}export CUDA_DEVICE_MAX_CONNECTIONS=1\ntorchrun {machines}pretrain_gpt.py \\\n    {}\n",
        options.0.join(" \\\n    ")
    );
    Ok((format!("bash megatron.sh{on_each}, where pretrain_gpt.py lies"), text))
}

/// What the model is like. It begins with random weights, and reads made-up texts until a data set is named.
fn model(run: &Run<'_>, options: &mut Options) -> Result<(), Issue> {
    let architecture = &*run.architecture;
    let tensor = run.scenario.cluster.layout.tensor.max(1);
    let unknown = || {
        let message = format!("of {} no arguments of Megatron-LM are written", architecture.model_type);
        Issue::error(Field::Model, message)
            .with_fix("choose a model with the layers of Llama, Qwen, Mixtral or GPT-2")
    };
    let kind = architecture.model_type.as_str();
    let block = architecture.blocks.first().ok_or_else(unknown)?;
    let attention = block.mixer.attention().ok_or_else(unknown)?;
    options.set("num-layers", architecture.depth());
    options.set("hidden-size", architecture.hidden);
    options.set("num-attention-heads", attention.heads);
    if attention.kv_heads != attention.heads {
        options.on("group-query-attention");
        options.set("num-query-groups", attention.kv_heads);
    }
    match kind {
        "llama" | "mistral" | "qwen2" | "qwen3" | "mixtral" | "qwen3_moe" => {
            gated(run, block, attention, options)
        }
        "gpt2" => plain(run, block, attention, options),
        _ => None,
    }
    .ok_or_else(unknown)?;
    options.on_if(!architecture.head.tied, "untie-embeddings-and-output-weights");
    let of_each = DIVISIBLE_BY.min(architecture.vocab.max(1));
    let divides = |multiple: &u64| architecture.vocab.is_multiple_of(multiple.saturating_mul(tensor));
    options.set("tokenizer-type", "NullTokenizer");
    // its token of an end is one more
    options.set("vocab-size", architecture.vocab.saturating_sub(1));
    options.set("make-vocab-size-divisible-by", (1..=of_each).rev().find(divides).unwrap_or(1));
    options.on("mock-data");
    Ok(())
}

/// Llama's layers and what is built on them; nothing of layers that are others.
fn gated(run: &Run<'_>, block: &Block, attention: &Attention, options: &mut Options) -> Option<()> {
    let architecture = &run.architecture;
    let kind = architecture.model_type.as_str();
    let known = architecture.max_positions.unwrap_or_default();
    options.set("max-position-embeddings", known.max(run.scenario.sequence));
    options.set("kv-channels", attention.head_dim);
    options.set("normalization", "RMSNorm");
    options.set("position-embedding-type", "rope");
    options.on("swiglu");
    options.on("disable-bias-linear");
    options.on_if(kind == "qwen2", "add-qkv-bias");
    options.on_if(kind.starts_with("qwen3"), "qk-layernorm");
    match &block.ffn {
        FeedForward::Dense(Mlp::Gated { up, .. }) => options.set("ffn-hidden-size", up.output),
        FeedForward::Moe(moe) => {
            options.set("ffn-hidden-size", moe.expert_width);
            options.set("num-experts", moe.experts);
            options.set("moe-router-topk", moe.top_k);
            options.set("moe-ffn-hidden-size", moe.expert_width);
            for name in ["moe-grouped-gemm", "moe-permute-fusion"] {
                options.on(name);
            }
            options.set("moe-token-dispatcher-type", "alltoall");
            options.set("moe-router-load-balancing-type", "aux_loss");
            options.set("moe-aux-loss-coeff", "1e-3");
        }
        FeedForward::Dense(_) | FeedForward::None => return None,
    }
    options.set("hidden-dropout", "0.0");
    options.set("attention-dropout", "0.0");
    options.on("no-create-attention-mask-in-dataloader");
    Some(())
}

/// GPT-3's layers; nothing of layers that are others.
fn plain(run: &Run<'_>, block: &Block, attention: &Attention, options: &mut Options) -> Option<()> {
    let embeddings = &run.architecture.embeddings;
    let FeedForward::Dense(Mlp::Plain { up, .. }) = &block.ffn else { return None };
    options.set("ffn-hidden-size", up.output);
    options.set("max-position-embeddings", embeddings.positions.as_ref()?.rows);
    let probability = |dropout: Dropout| dropout.probability(run.scenario.dropout);
    options.set("hidden-dropout", probability(embeddings.dropout));
    options.set("attention-dropout", probability(attention.dropout));
    Some(())
}

/// How the GPUs divide it.
fn layout(scenario: &Scenario, options: &mut Options) {
    let Layout {
        tensor, pipeline, interleaved, split, layers, sequence, context, context_comm, experts, ..
    } = scenario.cluster.layout;
    options.set("tensor-model-parallel-size", tensor);
    options.set("pipeline-model-parallel-size", pipeline);
    options.set_unless("num-layers-per-virtual-pipeline-stage", interleaved, 0);
    options.on_if(interleaved > 0, "no-overlap-p2p-communication");
    options.set_unless("decoder-first-pipeline-num-layers", split.first, 0);
    options.set_unless("decoder-last-pipeline-num-layers", split.last, 0);
    options.on_if(split.counts_embedding, "account-for-embedding-in-pipeline-split");
    options.on_if(split.counts_loss, "account-for-loss-in-pipeline-split");
    options.on_if(sequence, "sequence-parallel");
    options.set("context-parallel-size", context);
    if context > 1 {
        options.set(
            "cp-comm-type",
            match context_comm {
                ContextComm::AllToAll => "a2a",
                ContextComm::P2p => "p2p",
            },
        );
    }
    options.set_unless("expert-model-parallel-size", experts, 1);
    options.set("transformer-impl", layers.slug().replace('-', "_"));
    options.on_if(scenario.cluster.sharding == Sharding::Distributed, "use-distributed-optimizer");
    options.on_if(scenario.cluster.reduce == ReduceDtype::Bf16, "grad-reduce-in-bf16");
    options.on_if(!scenario.cluster.layout.fuses_gradients, "no-gradient-accumulation-fusion");
}

/// What a step is.
fn training(scenario: &Scenario, options: &mut Options) {
    let together = scenario.cluster.layout.gpus().max(1);
    let copies = (scenario.cluster.gpus / together).max(1);
    options.set("micro-batch-size", scenario.batch);
    options.set(
        "global-batch-size",
        scenario.batch.saturating_mul(scenario.accumulation).saturating_mul(copies),
    );
    options.set("seq-length", scenario.sequence);
    options.on("bf16");
    let backend = match scenario.attention {
        AttentionKernel::Cudnn => Some("fused"),
        AttentionKernel::FlashAttn => Some("flash"),
        AttentionKernel::Eager => Some("unfused"),
        AttentionKernel::Sdpa
        | AttentionKernel::Efficient
        | AttentionKernel::Flash
        | AttentionKernel::Math => None,
    };
    if let Some(backend) = backend {
        options.set("attention-backend", backend);
    }
    let fused = match scenario.savings.loss {
        LossKernel::MegatronFused => Some("native"),
        LossKernel::TransformerEngine => Some("te"),
        LossKernel::Standard
        | LossKernel::Full
        | LossKernel::Liger
        | LossKernel::Cut
        | LossKernel::Axolotl
        | LossKernel::LogSoftmax
        | LossKernel::Chunked
        | LossKernel::FloatLogits
        | LossKernel::VocabularyChunks => None,
    };
    if let Some(fused) = fused {
        options.on("cross-entropy-loss-fusion");
        options.set("cross-entropy-fusion-impl", fused);
    }
    match scenario.checkpointing {
        Checkpointing::Off => {}
        Checkpointing::Selective => options.set("recompute-granularity", "selective"),
        Checkpointing::NonReentrant
        | Checkpointing::Reentrant
        | Checkpointing::Offloaded
        | Checkpointing::Alternate
        | Checkpointing::Operations => {
            options.set("recompute-granularity", "full");
            options.set("recompute-method", "uniform");
            options.set("recompute-num-layers", 1);
        }
    }
    options.set("optimizer", "adam");
    options.set("clip-grad", if scenario.training_loop.clips { "1.0" } else { "0.0" });
    options.set("lr", "1e-5");
    options.set("train-iters", 100);
    options.set("eval-iters", 0);
}
