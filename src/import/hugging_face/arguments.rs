//! How is trained: the trainers' arguments, attention, checkpointing.

use super::super::names::{SDP_KERNELS, TRAINING_ARGUMENTS};
use super::super::reader::Reader;
use super::super::trainer;
use super::answers::{answers, better, pairs, policy, without_reference};
use super::distillation::distillation;
use super::{EXAMPLE, FUSED, IN_EXAMPLES, Parts, TRL, Trainer};
use crate::scenario::{AttentionKernel, LossKernel, Method};

pub(super) fn attention(reader: &mut Reader, parts: Parts) {
    let is_example = !reader.given(&[IN_EXAMPLES]).is_empty();
    let flash = reader.switch(&["use_flash_attention_2", "use_flash_attn"]);
    match reader.take(&["attn_implementation", "model_init_kwargs.attn_implementation"]) {
        Some(said) => trainer::attention(reader, &said),
        None => match flash {
            Some((true, said)) => reader.set("attention", "flash-attention-2", &said),
            Some((false, said)) if is_example => reader.set("attention", "eager", &said),
            None if is_example => reader.assume("attention", "eager", EXAMPLE),
            Some((false, _)) | None if parts.loads || parts.command => {
                reader.assume("attention", "sdpa", "transformers' default where the model has it");
            }
            Some((false, _)) | None => {}
        },
    }
    // PyTorch chooses among the kernels that are not switched off
    let mut left = Vec::new();
    for (name, kernel) in SDP_KERNELS {
        match reader.switch(&[&format!("enable_{name}_sdp")]) {
            Some((false, _)) => {}
            Some((true, said)) => left.push((kernel, said)),
            None => left.push((kernel, String::new())),
        }
    }
    if let [(kernel, said)] = left.as_slice()
        && reader.scenario.attention == AttentionKernel::Sdpa
    {
        reader.set("attention", kernel.slug(), said);
    }
}

pub(super) fn arguments(reader: &mut Reader, parts: Parts) {
    let why = if parts.trl { parts.trainer.default() } else { TRAINING_ARGUMENTS };
    reader.or_assume(
        "batch-size",
        &["per_device_train_batch_size", "per_gpu_train_batch_size"],
        "8",
        TRAINING_ARGUMENTS,
    );
    reader.or_assume("gradient-accumulation", &["gradient_accumulation_steps"], "1", TRAINING_ARGUMENTS);
    trainer::optimization(reader, &["optim"], "adamw-fused", TRAINING_ARGUMENTS);
    reader.switches("activation-offloading", &["activation_offloading"]);
    match parts.trainer {
        Trainer::Grpo => answers(reader, (why, "none", "beta is 0 by default")),
        Trainer::Rloo => answers(reader, (why, "scored", "beta is 0.05 by default")),
        Trainer::Ppo => policy(reader, why),
        Trainer::Distil | Trainer::Gkd => distillation(reader, parts, why),
        Trainer::Dpo | Trainer::Kto => {
            length_of_sequences(reader, parts, why);
            pairs(reader, why);
        }
        Trainer::Orpo | Trainer::Cpo => {
            length_of_sequences(reader, parts, why);
            without_reference(reader, why);
        }
        Trainer::Reward => {
            length_of_sequences(reader, parts, why);
            better(reader, why);
        }
        Trainer::Classify | Trainer::Rerank => {
            length_of_sequences(reader, parts, why);
            match reader.take(&["num_labels"]) {
                Some(said) => reader.set("labels", &said.text(), &said.said),
                None if parts.trainer == Trainer::Rerank => reader.assume(
                    "labels",
                    "1",
                    "CrossEncoder's num_labels is 1 where the model was no classifier before",
                ),
                None => reader.assume("labels", "2", "num_labels is 2 by default"),
            }
            reader.assume("mask", "padded", "texts are of different lengths");
        }
        Trainer::Embed => {
            length_of_sequences(reader, parts, why);
            let texts = reader.scenario.embedding.texts.to_string();
            reader.assume("texts-per-example", &texts, "the text does not say its data's columns: as it was");
            reader.or_assume(
                "grad-cache",
                &["mini_batch_size"],
                "0",
                "no loss that caches gradients is named",
            );
            reader.or_assume(
                "pooling",
                &["pooling_mode"],
                "mean",
                "Pooling's default in sentence-transformers 6.2",
            );
            reader.assume("mask", "padded", "texts are of different lengths");
        }
        Trainer::Sft | Trainer::Other => {
            length_of_sequences(reader, parts, why);
            if parts.trl {
                filling(reader, parts, why);
            }
        }
    }
}

/// The longest sequence, which these arguments give a name each.
pub(super) fn length_of_sequences(reader: &mut Reader, parts: Parts, why: &str) {
    let short = reader.take(&["max_seq_length", "max_seq_len", "block_size", "model_max_length"]);
    if let Some(said) = reader.take_nothing("max_length") {
        let length = reader.scenario.sequence.to_string();
        reader.leave(&said, "texts are not cut then: say how long the longest is (--seq-length)");
        return reader.assume("seq-length", &length, "nothing cuts the texts: as it was");
    }
    match reader.take(&["max_length"]).or(short) {
        Some(said) => reader.set("seq-length", &said.text(), &said.said),
        None if parts.trl => reader.assume("seq-length", "1024", why),
        None => {
            let (length, known) = (reader.scenario.sequence, reader.scenario.positions());
            let is_encoder = reader.scenario.architecture().is_ok_and(|model| model.classifier.is_some());
            let cuts =
                is_encoder || matches!(parts.trainer, Trainer::Classify | Trainer::Rerank | Trainer::Embed);
            match known.filter(|known| *known < length && cuts) {
                Some(known) => {
                    let why = "the arguments say nothing of it: a tokenizer cuts texts at the positions that the model has";
                    reader.assume("seq-length", &known.to_string(), why);
                }
                None => {
                    let why = "the arguments say nothing of it: as it was";
                    reader.assume("seq-length", &length.to_string(), why);
                }
            }
        }
    }
}

/// What is said of texts with pictures of one length, by the link of a file's first lines alone.
pub(in crate::import) const OF_ONE_LENGTH: &str = "texts_of_one_length";

/// How trl fills the batch.
fn filling(reader: &mut Reader, parts: Parts, why: &str) {
    let strategy = reader.take(&["packing_strategy"]);
    let packing = reader.switch(&["packing"]);
    let padding_free = reader.switch(&["padding_free"]);
    if let Some((true, said)) = packing {
        match strategy {
            Some(strategy) if strategy.text() == "wrapped" => {
                reader.set("mask", "none", &format!("{said}, {}", strategy.said));
            }
            Some(strategy) => reader.set("mask", "padding-free", &format!("{said}, {}", strategy.said)),
            None => reader.set("mask", "padding-free", &said),
        }
    } else if let Some((true, said)) = padding_free {
        reader.set("mask", "padding-free", &said);
    } else if let Some((false, said)) = packing {
        reader.set("mask", "padded", &said);
    } else if reader.take(&[OF_ONE_LENGTH]).is_some() {
        // trl cuts no texts with pictures to one length: that they have one is the data's
    } else {
        reader.assume("mask", "padded", why);
    }
    if let Some(said) = reader.take(&["pad_to_multiple_of"]) {
        reader.idle.push(said.said);
    }
    if let Some(said) = reader.take(&["loss_type"]) {
        let is_early = parts.trl_version.is_some_and(|version| version < FUSED);
        match said.text().as_str() {
            "nll" if is_early => reader.set("loss", LossKernel::Full.slug(), &said.said),
            "chunked_nll" if is_early => reader.set("loss", LossKernel::Standard.slug(), &said.said),
            "nll" | "chunked_nll" => reader.idle.push(said.said),
            _ => reader.keep("loss", &said.said, "of losses the negative log-likelihood is predicted"),
        }
    }
}

pub(super) fn checkpointing(reader: &mut Reader, parts: Parts) {
    let reentrant = match parts.unsloth {
        true => None,
        false => reader.switch(&["gradient_checkpointing_kwargs.use_reentrant", "use_reentrant"]),
    };
    let value = match &reentrant {
        Some((true, _)) => "reentrant",
        Some((false, _)) | None => "on",
    };
    // peft's preparation turns it on for no model of AWQ's (utils/other.py `prepare_model_for_kbit_training`)
    let quantization = reader.scenario.quantization;
    let over_awq = reader.scenario.method == Method::Qlora && quantization.format.is_of_awq();
    let said = reader.take(&["use_gradient_checkpointing"]);
    if over_awq {
        reader.idle.extend(said.map(|said| said.said));
    } else if let Some(said) = said {
        let value = match (said.text().as_str(), said.switch()) {
            ("unsloth", _) => Some("offloaded"),
            (_, Some(true)) => Some(value),
            (_, Some(false)) => Some("off"),
            (_, None) => None,
        };
        match value {
            Some(value) => reader.set("gradient-checkpointing", value, &said.said),
            None => reader.keep("gradient-checkpointing", &said.said, "this is neither on nor off"),
        }
        if parts.unsloth {
            reader.pass(|name| {
                name == "gradient_checkpointing" || name.starts_with("gradient_checkpointing_kwargs")
            });
            return;
        }
    } else if parts.unsloth {
        reader.pass(|name| {
            name == "gradient_checkpointing" || name.starts_with("gradient_checkpointing_kwargs")
        });
        return reader.assume(
            "gradient-checkpointing",
            "offloaded",
            "get_peft_model's default in Unsloth 2026.10",
        );
    }
    if parts.trainer == Trainer::Ppo {
        // its own arguments of it are read by nobody
        if let Some(said) = reader.take(&["PPOConfig.gradient_checkpointing"]) {
            reader.idle.push(said.said);
        }
        if parts.command {
            reader.pass(|name| name == "gradient_checkpointing");
        }
    }
    match reader.switch(&["gradient_checkpointing"]) {
        Some((true, said)) => {
            let kwargs = reentrant.map(|(_, said)| format!(", {said}")).unwrap_or_default();
            reader.set("gradient-checkpointing", value, &format!("{said}{kwargs}"));
        }
        Some((false, said)) => reader.set("gradient-checkpointing", "off", &said),
        None if parts.trainer == Trainer::Ppo => {
            let why = "PPOTrainer asks no model for checkpoints, whatever gradient_checkpointing says";
            reader.assume("gradient-checkpointing", "off", why);
        }
        None if parts.has_trls_defaults() => reader.assume("gradient-checkpointing", value, TRL),
        None if parts.prepares && over_awq => {
            let why = "prepare_model_for_kbit_training does not switch it on over AWQ's weights";
            reader.assume("gradient-checkpointing", "off", why);
        }
        None if parts.prepares => {
            reader.assume("gradient-checkpointing", value, "prepare_model_for_kbit_training switches it on")
        }
        None if parts.arguments => reader.assume("gradient-checkpointing", "off", TRAINING_ARGUMENTS),
        None => {}
    }
}
