//! Reads the words of a row, one function per setting.

use serde_json::Value;

use super::Row;
use super::sources::Habits;
use headroom::check::CheckError;
use headroom::scenario::{
    Allocator, AttentionKernel, Checkpointing, Cluster, CustomModel, GpuChoice, Lengths, Loop, Lora,
    LoraTargets, LossKernel, Mask, Method, ModelChoice, Modules, Offloading, Optimizer, Precision,
    Quantization, Reserve, Savings, Scenario, Serving, Stack, StepTime, Task, Tuner,
};

impl Row {
    pub(super) fn scenario(&self) -> Result<Scenario, CheckError> {
        let (method, quantised) = match self.method.as_str() {
            "full" | "pretrain/full" => (Method::Full, false),
            // Rank-stabilised LoRA scales its output otherwise and is the same tensors.
            "lora" | "rslora" => (Method::Lora, false),
            "qlora" => (Method::Qlora, true),
            other => return Err(format!("the method {other:?} is not modelled").into()),
        };
        let habits = Habits::of(self);
        let unstated = |what: &str| format!("{what} is not stated");
        Ok(Scenario {
            embedding: Scenario::default().embedding,
            policy: Scenario::default().policy,
            evaluation: Scenario::default().evaluation,
            spikes: Scenario::default().spikes,
            teacher: Scenario::default().teacher,
            task: Task::Sft,
            answers: Scenario::default().answers,
            model: self.model()?,
            method,
            generation: Scenario::default().generation,
            pictures: Scenario::default().pictures,
            experts: Scenario::default().experts,
            float8: Scenario::default().float8,
            qat: Scenario::default().qat,
            compile: Scenario::default().compile,
            lora: if method == Method::Full { Scenario::default().lora } else { self.lora(habits)? },
            quantization: Quantization {
                format: habits.format,
                group: Scenario::default().quantization.group,
                double_quant: self.has(&self.weights_dtype, "double quant")
                    && !self.has(&self.weights_dtype, "no double quant")
                    || self.has(&self.weights_dtype, "-dq"),
                prepare: self.has(&self.weights_dtype, "prepare_model_for_kbit_training"),
            },
            precision: self.precision(quantised, habits)?,
            optimizer: self.optimizer()?,
            batch: self.batch.filter(|n| *n > 0).ok_or_else(|| unstated("the batch size"))?,
            sequence: self
                .seq_len
                .filter(|n| *n > 0)
                .or(habits.sequence)
                .ok_or_else(|| unstated("the sequence length"))?,
            lengths: self.lengths(),
            accumulation: self.accumulation().unwrap_or(habits.accumulation),
            checkpointing: self.checkpointing()?,
            attention: self.attention()?,
            mask: self.mask(),
            dropout: None,
            training_loop: Loop {
                keeps_outputs: habits.keeps_outputs || self.has(&self.compute_policy, "output alive"),
                ..Scenario::default().training_loop
            },
            stack: habits.stack,
            savings: self.savings(habits),
            allocator: Allocator::Native,
            gpu: self.card()?,
            cluster: Cluster::ONE,
            serving: Serving::DEFAULT,
            reserve: Reserve::NONE,
            data: Scenario::default().data,
        })
    }

    /// A model of the Hub, or one that the row describes with the keys of a `config.json`.
    fn model(&self) -> Result<ModelChoice, CheckError> {
        if let Some(id) = &self.hf_id {
            return Ok(ModelChoice::Catalogue(id.clone()));
        }
        let mut config = self.arch.clone();
        let Some(keys) = config.as_object_mut() else {
            return Err("a model of the Hub is not stated".into());
        };
        let name = self.model.as_deref().unwrap_or("a model of its own");
        if name.contains("LlamaConfig") {
            keys.entry("model_type").or_insert_with(|| "llama".into());
        }
        if !keys.contains_key("model_type") {
            return Err(format!("{name} is code of its own, of no family of the Hub").into());
        }
        let custom = CustomModel::read(name, &config.to_string()).map_err(|issue| issue.to_string())?;
        Ok(ModelChoice::Custom(custom.into()))
    }

    fn lora(&self, habits: Habits) -> Result<Lora, CheckError> {
        let rank = self.lora_rank.ok_or("the LoRA rank is not stated")?;
        let id = self.hf_id.as_deref().unwrap_or_default();
        let default = habits.targets.iter().find(|(family, _)| id.contains(family));
        let default: Option<Vec<String>> =
            default.map(|(_, names)| names.iter().map(|name| (*name).to_owned()).collect());
        let stated = self.lora_targets.as_ref().or(default.as_ref());
        let names = stated.map(Vec::as_slice).ok_or("the LoRA targets are not stated")?;
        // what is trained whole is listed among the targets
        let whole = |name: &String| name == "wte" || name.contains("modules_to_save");
        let trains_embeddings = names.iter().any(whole);
        let adapted: Vec<String> = names.iter().filter(|name| !whole(name)).cloned().collect();
        let names = adapted.as_slice();
        let (targets, modules) = match names {
            [all] if all.replace(' ', "-") == "all-linear" => (LoraTargets::AllLinear, Modules::NONE),
            names => match names.iter().map(String::as_str).collect::<Vec<_>>()[..] {
                ["query", "value"] => (LoraTargets::Qv, Modules::NONE),
                ["query", "key", "value", "attn output proj", "mlp (all)", "lm_head"]
                | ["q_proj", "k_proj", "v_proj", "output_proj", "mlp (w1,w2,w3)", "output (lm_head)"] => {
                    (LoraTargets::AllLinearAndHead, Modules::NONE)
                }
                _ => (LoraTargets::Named, modules(names)?),
            },
        };
        // Whole models in bf16 without autocast hold their adapters in bf16 too, unless peft made them float32.
        let fp32_adapters = !self.has(&self.compute_policy, "lora params bf16")
            && !self.has(&self.compute_policy, "-true")
            && !self.source.starts_with("modelscope/ms-swift");
        let dropout = habits.lora_dropout;
        Ok(Lora {
            tuner: Tuner::Lora,
            rank,
            targets,
            modules,
            dropout,
            fp32_adapters,
            trains_embeddings,
            fused: false,
        })
    }

    /// Where the notes give the spread of the samples' lengths, batches were as long as their samples.
    fn lengths(&self) -> Lengths {
        let notes = self.notes.as_deref().unwrap_or_default();
        let spread = notes.split_whitespace().find_map(|word| word.trim_matches(',').parse().ok());
        let words = notes.split_whitespace().filter_map(|word| word.split_once('±'));
        let numbers = words.filter_map(|(mean, deviation)| {
            let deviation: String = deviation.chars().take_while(char::is_ascii_digit).collect();
            Some(Lengths::Spread { mean: mean.parse().ok()?, deviation: deviation.parse().ok()? })
        });
        spread.or(numbers.into_iter().next()).unwrap_or_default()
    }

    fn savings(&self, habits: Habits) -> Savings {
        let words = self.words();
        // the words of other stacks are about their own losses
        let named = [
            ("cut_cross_entropy", LossKernel::Cut),
            ("liger", LossKernel::Liger),
            ("chunked", LossKernel::Chunked),
        ];
        let named =
            named.iter().find(|(word, _)| habits.stack == Stack::Transformers && words.contains(word));
        let loss = named.map_or(habits.loss, |(_, loss)| *loss);
        let in_backward = ["in_bwd", "in-backward"].iter().any(|word| words.contains(word));
        let step = if in_backward { StepTime::InBackward } else { StepTime::AfterBackward };
        Savings { loss, step, offloading: Offloading::Off, liger_layers: false }
    }

    fn precision(&self, quantised: bool, habits: Habits) -> Result<Precision, CheckError> {
        let policy = self.compute_policy.as_deref().unwrap_or_default().to_lowercase();
        let said = |word: &str| policy.contains(word) && !policy.contains(&format!("no {word}"));
        let autocast = habits.autocast || said("amp") || said("autocast");
        let half = |text: &str| {
            let (bf16, fp16) = (text.contains("bf16") || text.contains("bfloat16"), text.contains("fp16"));
            match (bf16, fp16) {
                (true, false) => Some(Precision::Bf16),
                (false, true) => Some(Precision::Fp16),
                _ => None,
            }
        };
        let stored = self.weights_dtype.as_deref().unwrap_or_default().to_lowercase();
        // 4-bit weights compute in what the policy names.
        let stored = if quantised {
            half(&policy)
        } else {
            half(&stored).or(stored.contains("fp32").then_some(Precision::Fp32))
        };
        match (autocast, stored, half(&policy)) {
            (false, Some(stored), _) => Ok(stored),
            (true, Some(Precision::Fp32), Some(Precision::Bf16)) => Ok(Precision::AmpBf16),
            (true, Some(Precision::Bf16), Some(Precision::Bf16)) => Ok(Precision::AmpBf16Weights),
            (true, Some(Precision::Fp32), Some(Precision::Fp16)) => Ok(Precision::AmpFp16),
            (true, Some(Precision::Fp16), _) if quantised => Ok(Precision::AmpFp16),
            _ => Err(format!(
                "weights {:?} under {:?} are not modelled",
                self.weights_dtype.as_deref().unwrap_or_default(),
                self.compute_policy.as_deref().unwrap_or_default()
            )
            .into()),
        }
    }

    fn optimizer(&self) -> Result<Optimizer, CheckError> {
        let name = self.optimizer.as_deref().ok_or("the optimizer is not stated")?;
        let lower = name.to_lowercase();
        let (paged, small) = (lower.contains("paged"), lower.contains("8bit") || lower.contains("8-bit"));
        Ok(match (paged, small) {
            _ if lower.contains("torchao")
                || !lower.contains("adam")
                || lower.contains("muon")
                || lower.contains("badam") =>
            {
                return Err(format!("the optimizer {name:?} is not modelled").into());
            }
            (true, true) => Optimizer::PagedAdamW8bit,
            (true, false) => Optimizer::PagedAdamW,
            (false, true) => Optimizer::AdamW8bit,
            (false, false) if lower.contains("fused") => Optimizer::AdamWFused,
            (false, false) if self.has(&self.notes, "pytorch 2.0") => Optimizer::AdamWEarly,
            (false, false) => Optimizer::AdamW,
        })
    }

    pub(super) fn accumulation(&self) -> Option<u64> {
        let words = self.words();
        let number = words.split("gradient accumulation ").nth(1).unwrap_or_default();
        number.split(|c: char| !c.is_ascii_digit()).next().and_then(|digits| digits.parse().ok())
    }

    fn checkpointing(&self) -> Result<Checkpointing, CheckError> {
        let words = self.words();
        match &self.grad_checkpointing {
            Value::Bool(false) => Ok(Checkpointing::Off),
            Value::Bool(true) if words.contains("reentrant") && !words.contains("non-reentrant") => {
                Ok(Checkpointing::Reentrant)
            }
            Value::Bool(true) => Ok(Checkpointing::NonReentrant),
            Value::String(text) if text == "full" => Ok(Checkpointing::NonReentrant),
            Value::Null => Err("gradient checkpointing is not stated".into()),
            other => Err(format!("gradient checkpointing {other} is not modelled").into()),
        }
    }

    fn attention(&self) -> Result<AttentionKernel, CheckError> {
        match self.attention.as_deref().map(str::to_lowercase) {
            None => Err("the attention implementation is not stated".into()),
            Some(text) if text.starts_with("eager") => Ok(AttentionKernel::Eager),
            Some(text) if text.contains("sdpa") => Ok(AttentionKernel::Sdpa),
            Some(text) if text.contains("flash") => Ok(AttentionKernel::Flash),
            Some(text) => Err(format!("the attention {text:?} is not modelled").into()),
        }
    }

    /// Padding is said of the batch, or of what it makes of attention: keys and values are repeated.
    fn mask(&self) -> Mask {
        let padded = self.has(&self.other, "padded") || self.has(&self.attention, "gqa expand");
        if padded { Mask::Padded } else { Mask::None }
    }

    fn card(&self) -> Result<GpuChoice, CheckError> {
        // Only kernels and workspaces hang on the card: of the same generation any will do.
        const CARDS: [(&str, &str); 10] = [
            ("T4", "t4"),
            ("A10G", "a10g"),
            ("A100", "a100-sxm-80gb"),
            ("L40S", "l40s"),
            ("3090", "rtx-3090"),
            ("4090", "rtx-4090"),
            ("A6000", "rtx-a6000"),
            ("H100", "h100-sxm-80gb"),
            ("V100", "v100-sxm2-16gb"),
            ("B200", "b200"),
        ];
        let Some(name) =
            self.gpu_model.as_deref().filter(|_| !self.missing.iter().any(|key| key == "gpu_model"))
        else {
            return Ok(GpuChoice::Catalogue("a100-sxm-80gb".to_owned()));
        };
        match CARDS.iter().find(|(word, _)| name.contains(word)) {
            Some((_, slug)) => Ok(GpuChoice::Catalogue((*slug).to_owned())),
            None => Err(format!("the card {name:?} is not known").into()),
        }
    }
}

fn modules(names: &[String]) -> Result<Modules, CheckError> {
    names.iter().try_fold(Modules::NONE, |set, name| {
        set.with(name).ok_or_else(|| format!("the LoRA target {name:?} is not known").into())
    })
}
