//! Rows that other projects measured on real GPUs: `{"id", "hf_id", "method", "compute_policy", …, "measured_bytes"}`.
//!
//! Their settings are words. What is read from them is said here, in one place per setting; words that name something
//! which is not modelled make the row unsupported.

use serde::Deserialize;
use serde_json::Value;

use super::{Case, Metric};
use crate::scenario::{AttentionKernel, Checkpointing, GpuChoice, Loop, Lora, LoraTargets, Mask, Method, ModelChoice, Modules, Optimizer, Precision, Quantization, Scenario, Stack, WeightFormat};
use crate::units::{BYTES_PER_GIB, Bytes};

/// A row as it stands in the file; everything may be missing.
#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Row {
    source: String,
    hf_id: Option<String>,
    method: String,
    lora_rank: Option<u64>,
    lora_targets: Option<Vec<String>>,
    weights_dtype: Option<String>,
    compute_policy: Option<String>,
    optimizer: Option<String>,
    batch: Option<u64>,
    seq_len: Option<u64>,
    grad_checkpointing: Value,
    attention: Option<String>,
    other: Option<String>,
    gpus: Option<u64>,
    gpu_model: Option<String>,
    measured_gb: Option<f64>,
    measured_bytes: Option<u64>,
    metric: Option<String>,
    kind: String,
    quality: String,
    notes: Option<String>,
    missing: Vec<String>,
}

/// Words, wherever they stand in a row's settings, of things that a scenario has no word for.
const NOT_MODELLED: [(&str, &str); 14] = [
    ("chunked", "a loss in chunks"),
    ("fused ce", "a fused loss"),
    ("cut_cross_entropy", "a fused loss"),
    ("compile", "torch.compile"),
    ("in_bwd", "an optimizer that steps inside backward"),
    ("in-backward", "an optimizer that steps inside backward"),
    ("offload", "offloading"),
    ("float8", "8-bit floats"),
    ("fp8", "8-bit floats"),
    ("nvfp4", "4-bit floats"),
    ("gptq", "GPTQ weights"),
    ("unsloth", "Unsloth's kernels"),
    ("generate()", "a peak that includes generation"),
    ("modules_to_save", "training whole modules beside adapters"),
];

pub(super) fn read(row: &Value) -> Result<Case, String> {
    let row = Row::deserialize(row).map_err(|error| format!("this is no measurement: {error}"))?;
    row.can_be_scored()?;
    let measured = vec![row.measured()?];
    Ok(Case { scenario: row.scenario()?, measured })
}

impl Row {
    fn can_be_scored(&self) -> Result<(), String> {
        if self.quality == "C" {
            return Err("quality C: its own notes say that it cannot be scored".to_owned());
        }
        if self.kind != "peak" {
            return Err(format!("a {}, not the peak of a training step", self.kind));
        }
        match self.gpus {
            Some(0 | 1) | None => {}
            Some(gpus) => return Err(format!("{gpus} GPUs are not modelled")),
        }
        let words = self.words();
        match NOT_MODELLED.iter().find(|(word, _)| words.contains(word)) {
            Some((_, what)) => Err(format!("{what} is not modelled")),
            None => Ok(()),
        }
    }

    /// All settings that are prose, in lower case.
    fn words(&self) -> String {
        let texts =
            [&self.weights_dtype, &self.compute_policy, &self.optimizer, &self.other, &self.attention];
        let mut words = texts.map(|text| text.as_deref().unwrap_or_default()).join("; ");
        words.push_str(&self.lora_targets.as_deref().unwrap_or_default().join("; "));
        words.to_lowercase()
    }

    fn has(&self, text: &Option<String>, word: &str) -> bool {
        text.as_deref().is_some_and(|text| text.to_lowercase().contains(word))
    }

    fn measured(&self) -> Result<(Metric, Bytes), String> {
        let metric = match self.metric.as_deref() {
            Some(metric) if metric.contains("99th") => {
                return Err("a percentile over steps of different lengths, not a peak".to_owned());
            }
            Some(metric) if metric.contains("reserved") => Metric::Reserved,
            Some(metric) if metric.contains("allocated") || metric.contains("active") => Metric::Allocated,
            Some(metric) if metric.contains("nvidia-smi") || metric.contains("nvml") => Metric::Driver,
            Some(other) => return Err(format!("the metric {other:?} is not predicted")),
            None if self.has(&self.notes, "nvidia-smi") => Metric::Driver,
            None => return Err("what was measured is not stated".to_owned()),
        };
        match (self.measured_bytes, self.measured_gb) {
            (Some(bytes), _) => Ok((metric, Bytes(bytes))),
            // nvidia-smi prints MiB.
            (None, Some(amount)) if metric == Metric::Driver => {
                Ok((metric, Bytes((amount * BYTES_PER_GIB as f64) as u64)))
            }
            _ => Err("the unit of the figure is not stated".to_owned()),
        }
    }

    fn scenario(&self) -> Result<Scenario, String> {
        let (method, quantised) = match self.method.as_str() {
            "full" | "pretrain/full" => (Method::Full, false),
            // Rank-stabilised LoRA scales its output otherwise and is the same tensors.
            "lora" | "rslora" => (Method::Lora, false),
            "qlora" => (Method::Qlora, true),
            other => return Err(format!("the method {other:?} is not modelled")),
        };
        let unstated = |what: &str| format!("{what} is not stated");
        Ok(Scenario {
            model: ModelChoice::Catalogue(self.hf_id.clone().ok_or_else(|| unstated("a model of the Hub"))?),
            method,
            lora: if method == Method::Full { Scenario::default().lora } else { self.lora()? },
            quantization: Quantization {
                format: WeightFormat::Nf4,
                double_quant: self.has(&self.weights_dtype, "double quant")
                    && !self.has(&self.weights_dtype, "no double quant")
                    || self.has(&self.weights_dtype, "-dq"),
                prepare: self.has(&self.weights_dtype, "prepare_model_for_kbit_training"),
            },
            precision: self.precision(quantised)?,
            optimizer: self.optimizer()?,
            batch: self.batch.filter(|n| *n > 0).ok_or_else(|| unstated("the batch size"))?,
            sequence: self.seq_len.filter(|n| *n > 0).ok_or_else(|| unstated("the sequence length"))?,
            accumulation: self.accumulation(),
            checkpointing: self.checkpointing()?,
            attention: self.attention()?,
            mask: self.mask(),
            dropout: None,
            training_loop: Loop {
                keeps_outputs: self.has(&self.compute_policy, "output alive"),
                ..Scenario::default().training_loop
            },
            stack: Stack::Transformers,
            savings: Scenario::default().savings,
            gpu: self.card()?,
        })
    }

    fn lora(&self) -> Result<Lora, String> {
        let rank = self.lora_rank.ok_or("the LoRA rank is not stated")?;
        let names = self.lora_targets.as_deref().ok_or("the LoRA targets are not stated")?;
        let (targets, modules) = match names {
            [all] if all.replace(' ', "-") == "all-linear" => (LoraTargets::AllLinear, Modules::NONE),
            names => {
                let modules = names.iter().try_fold(Modules::NONE, |set, name| {
                    set.with(name).ok_or_else(|| format!("the LoRA target {name:?} is not known"))
                });
                (LoraTargets::Named, modules?)
            }
        };
        // Whole models in bf16 without autocast hold their adapters in bf16 too, unless peft made them float32.
        let fp32_adapters =
            !self.has(&self.compute_policy, "lora params bf16") && !self.has(&self.compute_policy, "-true");
        // litgpt's fine-tuning scripts set lora_dropout to 0.05.
        let dropout = self.source.starts_with("Lightning-AI/litgpt");
        Ok(Lora { rank, targets, modules, dropout, fp32_adapters })
    }

    fn precision(&self, quantised: bool) -> Result<Precision, String> {
        let policy = self.compute_policy.as_deref().unwrap_or_default().to_lowercase();
        let said = |word: &str| policy.contains(word) && !policy.contains(&format!("no {word}"));
        let autocast = said("amp") || said("autocast");
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
            )),
        }
    }

    fn optimizer(&self) -> Result<Optimizer, String> {
        let name = self.optimizer.as_deref().ok_or("the optimizer is not stated")?;
        let lower = name.to_lowercase();
        let (paged, small) = (lower.contains("paged"), lower.contains("8bit") || lower.contains("8-bit"));
        Ok(match (paged, small) {
            _ if lower.contains("torchao")
                || !lower.contains("adam")
                || lower.contains("muon")
                || lower.contains("badam") =>
            {
                return Err(format!("the optimizer {name:?} is not modelled"));
            }
            (true, true) => Optimizer::PagedAdamW8bit,
            (true, false) => Optimizer::PagedAdamW,
            (false, true) => Optimizer::AdamW8bit,
            (false, false) if lower.contains("fused") => Optimizer::AdamWFused,
            (false, false) => Optimizer::AdamW,
        })
    }

    fn accumulation(&self) -> u64 {
        let words = self.words();
        let number = words.split("gradient accumulation ").nth(1).unwrap_or_default();
        number.split(|c: char| !c.is_ascii_digit()).next().and_then(|digits| digits.parse().ok()).unwrap_or(1)
    }

    fn checkpointing(&self) -> Result<Checkpointing, String> {
        let words = self.words();
        match &self.grad_checkpointing {
            Value::Bool(false) => Ok(Checkpointing::Off),
            Value::Bool(true) if words.contains("reentrant") && !words.contains("non-reentrant") => {
                Ok(Checkpointing::Reentrant)
            }
            Value::Bool(true) => Ok(Checkpointing::NonReentrant),
            Value::String(text) if text == "full" => Ok(Checkpointing::NonReentrant),
            Value::Null => Err("gradient checkpointing is not stated".to_owned()),
            other => Err(format!("gradient checkpointing {other} is not modelled")),
        }
    }

    fn attention(&self) -> Result<AttentionKernel, String> {
        match self.attention.as_deref().map(str::to_lowercase) {
            None => Err("the attention implementation is not stated".to_owned()),
            Some(text) if text.starts_with("eager") => Ok(AttentionKernel::Eager),
            Some(text) if text.contains("sdpa") => Ok(AttentionKernel::Sdpa),
            Some(text) if text.contains("flash") => Ok(AttentionKernel::Flash),
            Some(text) => Err(format!("the attention {text:?} is not modelled")),
        }
    }

    /// Padding is said of the batch, or of what it makes of attention: keys and values are repeated.
    fn mask(&self) -> Mask {
        let padded = self.has(&self.other, "padded") || self.has(&self.attention, "gqa expand");
        if padded { Mask::Padded } else { Mask::None }
    }

    fn card(&self) -> Result<GpuChoice, String> {
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
            None => Err(format!("the card {name:?} is not known")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn row() -> Value {
        json!({
            "id": "a", "source": "some/project:file", "hf_id": "meta-llama/Llama-3.2-1B", "method": "lora",
            "lora_rank": 8, "lora_targets": ["q_proj", "v_proj"], "weights_dtype": "bf16",
            "compute_policy": "bf16 AMP (Trainer --bf16)", "optimizer": "adamw_torch", "batch": 2, "seq_len": 512,
            "grad_checkpointing": true, "attention": "flash-attn 2", "other": "gradient accumulation 8; plain HF Trainer",
            "gpus": 1, "gpu_model": "A100-SXM4-80G", "measured_bytes": 1000, "metric": "max_allocated",
            "kind": "peak", "quality": "A", "missing": []
        })
    }

    #[track_caller]
    fn with(key: &str, value: Value) -> Result<Scenario, String> {
        let mut row = row();
        row[key] = value;
        read(&row).map(|case| case.scenario)
    }

    #[test]
    fn words_become_a_scenario() {
        let case = read(&row()).unwrap();
        assert_eq!(case.measured, [(Metric::Allocated, Bytes(1000))]);
        assert_eq!(
            crate::share::encode(&[case.scenario]),
            "v=1&m=meta-llama/Llama-3.2-1B&method=lora&r=8&t=q_proj,v_proj&dq=off&prep=off&o=adamw&b=2&s=512&ga=8&attn=flash&gpu=a100-sxm-80gb"
        );
        assert_eq!(
            with("compute_policy", json!("bf16-true (no autocast)")).map(|s| s.precision),
            Ok(Precision::Bf16)
        );
        assert_eq!(
            with("optimizer", json!("paged_adamw_8bit")).map(|s| s.optimizer),
            Ok(Optimizer::PagedAdamW8bit)
        );
        assert_eq!(
            with("grad_checkpointing", json!("full")).map(|s| s.checkpointing),
            Ok(Checkpointing::NonReentrant)
        );
    }

    #[test]
    fn what_is_not_modelled_says_so() {
        for (key, value, reason) in [
            ("gpus", json!(8), "8 GPUs are not modelled"),
            ("other", json!("packed + torch.compile"), "torch.compile is not modelled"),
            ("quality", json!("C"), "quality C: its own notes say that it cannot be scored"),
            ("kind", json!("component"), "a component, not the peak of a training step"),
            ("method", json!("dora"), "the method \"dora\" is not modelled"),
            ("batch", json!(null), "the batch size is not stated"),
            ("metric", json!(null), "what was measured is not stated"),
            ("optimizer", json!("Muon"), "the optimizer \"Muon\" is not modelled"),
        ] {
            assert_eq!(with(key, value).unwrap_err(), reason);
        }
    }
}
