//! torchtune's YAML.

use super::Run;
use super::lines::Lines;
use crate::import::names::{TORCHTUNE, component};
use crate::issue::{Field, Issue};
use crate::model::catalogue;
use crate::scenario::{
    Checkpointing, CpuOffload, LoraTargets, LossKernel, Method, ModelChoice, Offloading, Optimizer,
    Precision, ShardedLayers, Stack, StepTime,
};

const SAFETENSORS: &str = "model-{}-of-{}.safetensors";
const PYTORCH: &str = "pytorch_model-{}-of-{}.bin";

/// Into how many files the weights are cut that the recipes of these models download (torchtune 0.6.1, recipes/configs); of others there
/// is one file, or no recipe says.
const FILES: [(&str, &str, usize); 24] = [
    ("code_llama2_7b", PYTORCH, 3),
    ("gemma_2b", SAFETENSORS, 2),
    ("gemma_7b", SAFETENSORS, 4),
    ("gemma2_27b", SAFETENSORS, 24),
    ("gemma2_2b", SAFETENSORS, 3),
    ("gemma2_9b", SAFETENSORS, 8),
    ("llama2_13b", PYTORCH, 3),
    ("llama2_70b", PYTORCH, 15),
    ("llama2_7b", PYTORCH, 2),
    ("llama3_70b", SAFETENSORS, 30),
    ("llama3_1_405b", SAFETENSORS, 191),
    ("llama3_1_70b", SAFETENSORS, 30),
    ("llama3_1_8b", SAFETENSORS, 4),
    ("llama3_2_3b", SAFETENSORS, 2),
    ("llama3_3_70b", SAFETENSORS, 30),
    ("mistral_7b", PYTORCH, 2),
    ("phi3_mini", SAFETENSORS, 2),
    ("phi4_14b", SAFETENSORS, 6),
    ("qwen2_7b", SAFETENSORS, 4),
    ("qwen2_5_14b_instruct", SAFETENSORS, 8),
    ("qwen2_5_32b_instruct", SAFETENSORS, 17),
    ("qwen2_5_3b", SAFETENSORS, 2),
    ("qwen2_5_72b_instruct", SAFETENSORS, 37),
    ("qwen2_5_7b_instruct", SAFETENSORS, 4),
];

pub(super) fn write(run: &Run<'_>) -> Result<(String, String), Issue> {
    let scenario = run.scenario;
    if scenario.stack != Stack::Torchtune {
        let issue = Issue::error(Field::Stack, "torchtune's recipes run torchtune's own modules");
        return Err(issue.with_fix("choose torchtune as the training library"));
    }
    let (builder, id) = builder(run)?;
    let (folder, name) = builder.rsplit_once('.').unwrap_or_default();
    let family = folder.rsplit('.').next().unwrap_or_default();
    let directory = format!("/tmp/{}", id.rsplit('/').next().unwrap_or(id));
    let mut lines = Lines::default();
    lines.set("output_dir", "/tmp/torchtune");
    lines.table("model", |lines| {
        let prefix = match scenario.method {
            Method::Full => "",
            Method::Lora => "lora_",
            Method::Qlora => "qlora_",
        };
        lines.set("_component_", format_args!("{folder}.{prefix}{name}"));
        if scenario.method.has_adapters() {
            adapters(run, lines);
        }
    });
    lines.table("tokenizer", |lines| {
        let (component, files): (&str, &[(&str, &str)]) = match family {
            "llama3" | "llama3_1" | "llama3_2" | "llama3_3" => {
                ("llama3.llama3_tokenizer", &[("path", "original/tokenizer.model")])
            }
            "gemma" | "gemma2" => ("gemma.gemma_tokenizer", &[("path", "tokenizer.model")]),
            "mistral" => ("mistral.mistral_tokenizer", &[("path", "tokenizer.model")]),
            "phi3" => ("phi3.phi3_mini_tokenizer", &[("path", "tokenizer.model")]),
            "phi4" => ("phi4.phi4_tokenizer", &[("vocab_path", "vocab.json"), ("merges_path", "merges.txt")]),
            "qwen2" => ("qwen2.qwen2_tokenizer", &[("path", "vocab.json"), ("merges_file", "merges.txt")]),
            "qwen2_5" => {
                ("qwen2_5.qwen2_5_tokenizer", &[("path", "vocab.json"), ("merges_file", "merges.txt")])
            }
            _ => ("llama2.llama2_tokenizer", &[("path", "tokenizer.model")]),
        };
        lines.set("_component_", format_args!("torchtune.models.{component}"));
        for (argument, file) in files {
            lines.text(argument, &format!("{directory}/{file}"));
        }
        lines.set("max_seq_len", scenario.sequence);
    });
    let known = FILES.iter().find(|(of, ..)| *of == name);
    lines.about(match known {
        Some(_) => "the files of the weights, as torchtune's recipe of this model has them",
        None => "name all files of the weights that were downloaded",
    });
    lines.table("checkpointer", |lines| {
        lines.set("_component_", "torchtune.training.FullModelHFCheckpointer");
        lines.text("checkpoint_dir", &directory);
        match known {
            Some((_, format, files)) => lines.table("checkpoint_files", |lines| {
                lines.set("filename_format", format);
                lines.set("max_filename", format_args!("\"{files:05}\""));
            }),
            None => lines.list("checkpoint_files", &["model.safetensors"]),
        }
        lines.set("recipe_checkpoint", "null");
        lines.set("output_dir", "${output_dir}");
        lines.set("model_type", model_type(family));
    });
    lines.set("resume_from_checkpoint", false);
    lines.set("save_adapter_weights_only", false);
    lines.about("data");
    lines.table("dataset", |lines| {
        lines.set("_component_", "torchtune.datasets.alpaca_cleaned_dataset");
        lines.set("packed", scenario.mask.is_packed());
    });
    lines.set("seed", "null");
    lines.set("shuffle", true);
    lines.set("batch_size", scenario.batch);
    lines.about("training");
    // its recipes give an optimizer parameters without names
    let named = component(scenario.optimizer).filter(|_| scenario.optimizer != Optimizer::AdamMini);
    let Some((class, settings)) = named else {
        let issue = Issue::error(Field::Optimizer, "torchtune's recipes have no line for this optimizer");
        return Err(issue.with_fix("choose AdamW or paged 8-bit AdamW"));
    };
    lines.table("optimizer", |lines| {
        lines.set("_component_", class);
        lines.set("lr", if scenario.method == Method::Full { "2e-5" } else { "3e-4" });
        for (name, value) in settings {
            match *value {
                0.0 => lines.set(name, false),
                1.0 => lines.set(name, true),
                value => lines.set(name, value),
            }
        }
    });
    if scenario.method != Method::Full {
        lines.table("lr_scheduler", |lines| {
            lines.set("_component_", "torchtune.training.lr_schedulers.get_cosine_schedule_with_warmup");
            lines.set("num_warmup_steps", 100);
        });
    }
    let loss = match scenario.savings.loss {
        LossKernel::Full => "torch.nn.CrossEntropyLoss",
        LossKernel::Standard
        | LossKernel::Axolotl
        | LossKernel::LogSoftmax
        | LossKernel::FloatLogits
        | LossKernel::VocabularyChunks
        | LossKernel::Chunked
        | LossKernel::Liger
        | LossKernel::Cut
        | LossKernel::TransformerEngine
        | LossKernel::MegatronFused => "torchtune.modules.loss.CEWithChunkedOutputLoss",
    };
    lines.table("loss", |lines| lines.set("_component_", loss));
    lines.set("epochs", 1);
    lines.set("max_steps_per_epoch", "null");
    lines.set("gradient_accumulation_steps", scenario.accumulation);
    lines.set("clip_grad_norm", if scenario.training_loop.clips { "1.0" } else { "null" });
    if scenario.method == Method::Full {
        lines.set("optimizer_in_bwd", scenario.savings.step == StepTime::InBackward);
    }
    lines.set("compile", false);
    lines.set("device", "cuda");
    lines.set(
        "dtype",
        match scenario.precision {
            Precision::Fp32 => "fp32",
            Precision::Bf16
            | Precision::Fp16
            | Precision::AmpBf16
            | Precision::AmpBf16Weights
            | Precision::AmpFp16
            | Precision::AmpFp16Weights => "bf16",
        },
    );
    lines.set("enable_activation_checkpointing", scenario.checkpointing != Checkpointing::Off);
    lines.set("enable_activation_offloading", scenario.savings.offloading == Offloading::On);
    if scenario.cluster.is_fsdp2() {
        lines.set("fsdp_reshard_after_forward", scenario.cluster.reshards);
        lines.set("fsdp_cpu_offload", scenario.cluster.cpu == CpuOffload::All);
        let apart: &[&str] = match scenario.cluster.sharded {
            ShardedLayers::Layers => &[],
            ShardedLayers::Embedding => &["tok_embeddings"],
            ShardedLayers::EmbeddingAndHead => &["tok_embeddings", "output"],
        };
        lines.list("custom_sharded_layers", apart);
    }
    lines.table("metric_logger", |lines| {
        lines.set("_component_", "torchtune.training.metric_logging.DiskLogger");
        lines.set("log_dir", "${output_dir}/logs");
    });
    lines.set("log_every_n_steps", 1);
    lines.set("log_peak_memory_stats", true);
    let method = if scenario.method == Method::Full { "full" } else { "lora" };
    let (machines, on_each) = run.launched();
    let recipe = match scenario.cluster.gpus {
        0 | 1 => format!("tune run {method}_finetune_single_device"),
        _ => format!("tune run {machines}{method}_finetune_distributed"),
    };
    Ok((format!("{}{recipe} --config torchtune.yaml{on_each}", run.variable(false)), lines.finish()))
}

/// What a model's checkpoints are converted by (torchtune/training/checkpointing/_utils.py `ModelType`).
fn model_type(family: &str) -> &'static str {
    match family {
        "gemma" => "GEMMA",
        "gemma2" => "GEMMA2",
        "mistral" => "MISTRAL",
        "phi3" => "PHI3_MINI",
        "phi4" => "PHI4",
        "qwen2" | "qwen2_5" => "QWEN2",
        "llama3_2" => "LLAMA3_2",
        "llama2" | "code_llama2" => "LLAMA2",
        _ => "LLAMA3",
    }
}

/// The builder of the model, and the Hub id that its recipes download.
fn builder(run: &Run<'_>) -> Result<(&'static str, &'static str), Issue> {
    let same = |id: &str| catalogue::find(id).map(|entry| entry.id);
    let ModelChoice::Catalogue(name) = &run.scenario.model else { return Err(no_builder()) };
    let own = same(name);
    let by_name = TORCHTUNE.iter().find(|(_, id)| id.eq_ignore_ascii_case(name));
    // models of the same shape have one entry
    let found = by_name.or_else(|| TORCHTUNE.iter().find(|(_, id)| own.is_some() && same(id) == own));
    found.copied().ok_or_else(no_builder)
}

fn no_builder() -> Issue {
    Issue::error(Field::Model, "torchtune has no builder for this model")
        .with_fix("choose a model of the families Llama, Mistral, Gemma, Phi or Qwen 2")
}

fn adapters(run: &Run<'_>, lines: &mut Lines) {
    let lora = run.scenario.lora;
    let modules = lora.modules;
    let has = |name: &str| modules.iter().any(|own| own == name);
    let (attention, mlp, head): (Vec<&str>, bool, bool) = match lora.targets {
        LoraTargets::AllLinear => (vec!["q_proj", "k_proj", "v_proj", "output_proj"], true, false),
        LoraTargets::AllLinearAndHead => (vec!["q_proj", "k_proj", "v_proj", "output_proj"], true, true),
        LoraTargets::Attention => (vec!["q_proj", "k_proj", "v_proj", "output_proj"], false, false),
        LoraTargets::Qv => (vec!["q_proj", "v_proj"], false, false),
        LoraTargets::Mlp => (Vec::new(), true, false),
        LoraTargets::Named => {
            let names =
                [("q_proj", "q_proj"), ("k_proj", "k_proj"), ("v_proj", "v_proj"), ("o_proj", "output_proj")];
            let own = names.into_iter().filter(|(name, _)| has(name)).map(|(_, torchtune)| torchtune);
            (own.collect(), has("gate_proj"), has("lm_head"))
        }
    };
    lines.list("lora_attn_modules", &attention);
    lines.set("apply_lora_to_mlp", mlp);
    lines.set("apply_lora_to_output", head);
    lines.set("lora_rank", lora.rank);
    lines.set("lora_alpha", lora.rank.saturating_mul(2));
    lines.set("lora_dropout", if lora.dropout { "0.05" } else { "0.0" });
}
