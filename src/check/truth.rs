//! Rows measured with real PyTorch: `{"id", "device": {"cc"}, "case": {…}, "measured": {…}}`.
//!
//! Every key of a case is read; one that is unknown, or has a value that a [`Scenario`] has no word for, makes the row
//! unsupported rather than wrong.

use serde_json::Value;

use super::{Case, Measured, Metric};
use crate::hardware::{ComputeCapability, Gpu};
use crate::model::Objective;
use crate::scenario::{
    Allocator, AttentionKernel, Checkpointing, CustomModel, GpuChoice, Lengths, Loop, Lora, LoraTargets,
    LossKernel, Mask, Method, ModelChoice, Modules, Offloading, Optimizer, Precision, Quantization, Savings,
    Scenario, Stack, StepTime, WeightFormat,
};
use crate::step::Instant;
use crate::units::Bytes;

/// Keys that only name the case or the run.
const NAMES: [&str; 6] = ["id", "model", "note", "preset", "tags", "total_gib"];

pub(super) fn read(row: &Value) -> Result<Case, String> {
    let case = row.get("case").ok_or("there is no case")?;
    let of_trainer = super::trainer::translated(case)?;
    let mut fields = Fields { case: of_trainer.as_ref().unwrap_or(case), seen: NAMES.to_vec() };
    let scenario = scenario(&mut fields, row)?;
    fields.nothing_is_left()?;
    let peak = bytes(row, "/measured/peak/overall").ok_or("there is no measured peak")?;
    let figure = |metric, bytes| Measured { metric, instant: Instant::End, bytes };
    let mut measured = vec![figure(Metric::Allocated, peak)];
    let reserved = bytes(row, "/measured/reserved/peak_stat");
    measured.extend(reserved.map(|reserved| figure(Metric::Reserved, reserved)));
    Ok(Case { scenario, bounded: false, measured })
}

fn bytes(row: &Value, pointer: &str) -> Option<Bytes> {
    row.pointer(pointer).and_then(Value::as_u64).map(Bytes)
}

/// The keys of a case, and which of them were read.
struct Fields<'a> {
    case: &'a Value,
    seen: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    /// The value of a key; `None` where it is null or left out.
    fn get(&mut self, key: &'static str) -> Option<&'a Value> {
        self.seen.push(key);
        self.case.get(key).filter(|value| !value.is_null())
    }

    fn text(&mut self, key: &'static str, default: &'static str) -> &'a str {
        self.get(key).and_then(Value::as_str).unwrap_or(default)
    }

    fn switch(&mut self, key: &'static str, default: bool) -> bool {
        self.get(key).and_then(Value::as_bool).unwrap_or(default)
    }

    fn count(&mut self, key: &'static str, default: u64) -> Result<u64, String> {
        match self.get(key) {
            None => Ok(default),
            Some(value) => value.as_u64().ok_or_else(|| unknown(key, value)),
        }
    }

    fn nothing_is_left(&self) -> Result<(), String> {
        let keys = self.case.as_object().into_iter().flat_map(|map| map.iter());
        match keys.filter(|(_, value)| !value.is_null()).find(|(key, _)| !self.seen.contains(&key.as_str())) {
            Some((key, _)) => Err(format!("the key {key:?} is unknown")),
            None => Ok(()),
        }
    }
}

fn unknown(key: &str, value: impl std::fmt::Display) -> String {
    format!("{key} {value} is not modelled")
}

fn scenario(fields: &mut Fields<'_>, row: &Value) -> Result<Scenario, String> {
    let method = match fields.text("method", "full") {
        "full" => Method::Full,
        "lora" => Method::Lora,
        "qlora" => Method::Qlora,
        other => return Err(unknown("method", other)),
    };
    let dropout = match fields.get("dropout") {
        None => None,
        Some(value) => {
            let p = value
                .as_f64()
                .filter(|p| (0.0..=1.0).contains(p))
                .ok_or_else(|| unknown("dropout", value))?;
            Some((p * 10_000.0).round() as u16)
        }
    };
    match fields.text("experts", "grouped_mm") {
        "grouped_mm" => {}
        other => return Err(unknown("experts", other)),
    }
    if fields.count("iters", 3)? < 2 {
        return Err("a single iteration has no steady state".to_owned());
    }
    let (sequence, texts) = (fields.count("seq", 512)?, fields.count("packed", 0)?);
    Ok(Scenario {
        model: model(fields, row)?,
        method,
        lora: lora(fields)?,
        quantization: Quantization {
            format: WeightFormat::Nf4,
            double_quant: fields.switch("qlora_double_quant", true),
            prepare: fields.switch("qlora_prepare", true),
        },
        precision: precision(fields)?,
        optimizer: optimizer(fields.text("optimizer", "adamw"))?,
        batch: fields.count("batch", 1)?,
        sequence,
        lengths: match texts {
            0 => Lengths::Equal,
            texts => Lengths::Spread { mean: sequence / texts, deviation: 0 },
        },
        accumulation: fields.count("grad_accumulation", 1)?,
        checkpointing: match fields.text("gradient_checkpointing", "none") {
            "none" => Checkpointing::Off,
            "full" => Checkpointing::NonReentrant,
            "reentrant" => Checkpointing::Reentrant,
            "offloaded" => Checkpointing::Offloaded,
            other => return Err(unknown("gradient_checkpointing", other)),
        },
        attention: match fields.text("attention", "sdpa") {
            "eager" => AttentionKernel::Eager,
            "sdpa" => AttentionKernel::Sdpa,
            "sdpa_flash" => AttentionKernel::Flash,
            "sdpa_efficient" => AttentionKernel::Efficient,
            "sdpa_math" => AttentionKernel::Math,
            "sdpa_cudnn" => AttentionKernel::Cudnn,
            "flash_attention_2" => AttentionKernel::FlashAttn,
            other => return Err(unknown("attention", other)),
        },
        mask: match fields.text("attention_mask", "none") {
            "none" if texts > 0 => Mask::Packed,
            "none" => Mask::None,
            "ones" => Mask::Ones,
            "padded" => Mask::Padded,
            "padding-free" => Mask::PaddingFree,
            other => return Err(unknown("attention_mask", other)),
        },
        dropout,
        training_loop: Loop {
            keeps_outputs: match fields.text("loop", "trainer") {
                "trainer" | "hf_trainer" => false,
                "naive" => true,
                other => return Err(unknown("loop", other)),
            },
            grads_to_none: match fields.text("zero_grad", "none") {
                "none" => true,
                "zero" => false,
                other => return Err(unknown("zero_grad", other)),
            },
            clips: fields.switch("clip", true),
            fills_cache: fields.switch("use_cache", false),
        },
        stack: stack(fields)?,
        savings: Savings {
            loss: loss(fields.text("loss", "standard"))?,
            step: match fields.switch("in_backward", false) {
                false => StepTime::AfterBackward,
                true => StepTime::InBackward,
            },
            offloading: match fields.get("offload").and_then(Value::as_str) {
                None => Offloading::Off,
                Some("trl" | "torchtune") => Offloading::On,
                Some(other) => return Err(unknown("offload", other)),
            },
        },
        allocator: {
            let slug = fields.text("allocator", Allocator::Native.slug());
            Allocator::from_slug(slug).ok_or_else(|| unknown("allocator", slug))?
        },
        gpu: card(fields, row)?,
    })
}

/// Whose code ran; rows with Liger's kernels say so by a switch.
fn stack(fields: &mut Fields<'_>) -> Result<Stack, String> {
    let default = if fields.switch("liger", false) { Stack::Liger } else { Stack::Transformers };
    let slug = fields.text("stack", default.slug());
    Stack::from_slug(slug).ok_or_else(|| unknown("stack", slug))
}

fn loss(slug: &str) -> Result<LossKernel, String> {
    LossKernel::from_slug(slug).ok_or_else(|| unknown("loss", slug))
}

fn model(fields: &mut Fields<'_>, row: &Value) -> Result<ModelChoice, String> {
    let name = row.pointer("/case/model").and_then(Value::as_str).unwrap_or("model");
    let mut config = fields.get("config").cloned().ok_or("there is no config")?;
    if let (Some(map), Some(Value::Object(over))) = (config.as_object_mut(), fields.get("overrides")) {
        map.extend(over.clone());
    }
    let model = CustomModel::read(name, &config.to_string()).map_err(|issue| issue.to_string())?;
    let head = fields.text("head", "causal");
    match (head, model.architecture.head.objective) {
        ("causal" | "image", Objective::CausalLm)
        | ("mlm", Objective::MaskedLm)
        | ("seq2seq", Objective::Seq2Seq) => Ok(ModelChoice::Custom(model.into())),
        _ => Err(unknown("head", format!("{head} on {}", model.architecture.model_type))),
    }
}

fn precision(fields: &mut Fields<'_>) -> Result<Precision, String> {
    let dtype = fields.text("dtype", "bf16");
    let (autocast, own) = match dtype {
        "amp_bf16" => (Some("bf16"), "fp32"),
        "amp_fp16" => (Some("fp16"), "fp32"),
        other => (None, other),
    };
    let weights = fields.get("weights").and_then(Value::as_str).unwrap_or(own);
    match (autocast, weights) {
        (None, "fp32") => Ok(Precision::Fp32),
        (None, "bf16") => Ok(Precision::Bf16),
        (None, "fp16") => Ok(Precision::Fp16),
        (Some("bf16"), "fp32") => Ok(Precision::AmpBf16),
        (Some("bf16"), "bf16") => Ok(Precision::AmpBf16Weights),
        (Some("fp16"), "fp32") => Ok(Precision::AmpFp16),
        _ => Err(unknown("dtype", format!("{dtype} over {weights} weights"))),
    }
}

fn optimizer(name: &str) -> Result<Optimizer, String> {
    Ok(match name {
        "sgd" => Optimizer::Sgd,
        "sgd_momentum" => Optimizer::SgdMomentum,
        "adam" => Optimizer::Adam,
        "adamw" => Optimizer::AdamW,
        "adamw_fused" => Optimizer::AdamWFused,
        "adamw_forloop" => Optimizer::AdamWForLoop,
        "rmsprop" => Optimizer::RmsProp,
        "adagrad" => Optimizer::Adagrad,
        "adafactor" => Optimizer::Adafactor,
        "adafactor_torch" => Optimizer::AdafactorTorch,
        "adamw8bit" => Optimizer::AdamW8bit,
        "paged_adamw8bit" => Optimizer::PagedAdamW8bit,
        "lion" => Optimizer::Lion,
        "lion8bit" => Optimizer::Lion8bit,
        other => return Err(unknown("optimizer", other)),
    })
}

fn lora(fields: &mut Fields<'_>) -> Result<Lora, String> {
    let fp32_adapters = fields.switch("lora_autocast_adapter", true);
    let trains_embeddings = fields.switch("train_embeddings", false);
    let Some(lora) = fields.get("lora") else {
        return Ok(Lora { rank: 16, fp32_adapters, trains_embeddings, ..Scenario::default().lora });
    };
    let (targets, modules) = match lora.get("targets") {
        None => (LoraTargets::AllLinear, Modules::NONE),
        Some(Value::String(group)) => match group.as_str() {
            "all-linear" => (LoraTargets::AllLinear, Modules::NONE),
            "qv" => (LoraTargets::Qv, Modules::NONE),
            other => return Err(unknown("lora target", other)),
        },
        Some(list) => {
            let names = list.as_array().into_iter().flatten().filter_map(Value::as_str);
            let modules = names.into_iter().try_fold(Modules::NONE, |set, name| {
                set.with(name).ok_or_else(|| unknown("lora target", name))
            });
            (LoraTargets::Named, modules?)
        }
    };
    Ok(Lora {
        rank: lora.get("r").and_then(Value::as_u64).unwrap_or(16),
        targets,
        modules,
        dropout: lora.get("dropout").and_then(Value::as_f64).unwrap_or_default() > 0.0,
        fp32_adapters,
        trains_embeddings,
    })
}

/// A card of the device's compute capability: it decides kernels and workspaces, and nothing else of the card matters.
fn card(fields: &mut Fields<'_>, row: &Value) -> Result<GpuChoice, String> {
    let asked = fields.get("cc").and_then(Value::as_str);
    let text = row.pointer("/device/cc").and_then(Value::as_str).or(asked).unwrap_or("9.0");
    let capability: ComputeCapability =
        text.parse().map_err(|text: String| unknown("compute capability", text))?;
    let gpu = Gpu::with_capability(capability).ok_or_else(|| unknown("compute capability", text))?;
    Ok(GpuChoice::Catalogue(gpu.slug.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::share;
    use serde_json::json;

    /// A row of a small llama with one key of its case set.
    #[track_caller]
    fn with(key: &str, value: Value) -> Result<Scenario, String> {
        let mut row = json!({
            "id": "a", "device": { "cc": "9.0" },
            "case": {
                "config": {
                    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
                    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100
                },
                "model": "tiny", "head": "causal", "iters": 3
            },
            "measured": { "peak": { "overall": 1000 }, "reserved": { "peak_stat": 2000 } }
        });
        row["case"][key] = value;
        read(&row).map(|case| {
            let found: Vec<_> = case.measured.iter().map(|figure| (figure.metric, figure.bytes)).collect();
            assert_eq!(found, [(Metric::Allocated, Bytes(1000)), (Metric::Reserved, Bytes(2000))]);
            case.scenario
        })
    }

    /// How the scenario differs from what the harness takes where a case says nothing.
    #[track_caller]
    fn differs(key: &str, value: Value, link: &str) {
        let pairs = |scenario: Scenario| {
            let link = share::encode(&[Scenario { model: Scenario::default().model, ..scenario }]);
            link.split('&').map(str::to_owned).collect::<Vec<_>>()
        };
        let usual = pairs(with("batch", json!(1)).unwrap());
        let own = pairs(with(key, value).unwrap());
        let new: Vec<_> = own.into_iter().filter(|pair| !usual.contains(pair)).collect();
        assert_eq!(new.join("&"), link, "{key}");
    }

    #[test]
    fn every_key_is_read() {
        for (key, value, link) in [
            ("dtype", json!("amp_fp16"), "p=amp-fp16"),
            ("dtype", json!("fp32"), "p=fp32"),
            ("method", json!("lora"), "method=lora"),
            (
                "lora",
                json!({ "r": 8, "dropout": 0.1, "targets": ["v_proj", "q_proj"] }),
                "r=8&t=q_proj,v_proj&ld=on",
            ),
            ("lora", json!({ "targets": "qv" }), "t=qv"),
            ("lora_autocast_adapter", json!(false), "a32=off"),
            ("qlora_prepare", json!(false), "prep=off"),
            ("qlora_double_quant", json!(false), "dq=off"),
            ("optimizer", json!("paged_adamw8bit"), "o=paged-adamw-8bit"),
            ("gradient_checkpointing", json!("reentrant"), "gc=reentrant"),
            ("attention", json!("sdpa_math"), "attn=math"),
            ("batch", json!(4), "b=4"),
            ("seq", json!(128), "s=128"),
            ("grad_accumulation", json!(2), "ga=2"),
            ("attention_mask", json!("padded"), "mask=padded"),
            ("packed", json!(4), "len=128~0&mask=packed"),
            ("dropout", json!(0.2), "drop=0.2"),
            ("loop", json!("naive"), "out=on"),
            ("zero_grad", json!("zero"), "stn=off"),
            ("clip", json!(false), "clip=off"),
            ("use_cache", json!(true), "cache=on"),
        ] {
            differs(key, value, link);
        }
        assert_eq!(with("seq", json!(8)).unwrap().gpu().unwrap().capability.unwrap().major, 9);
    }

    #[test]
    fn what_is_not_modelled_says_so() {
        for (key, value, reason) in [
            ("experts", json!("eager"), "experts eager is not modelled"),
            ("optimizer", json!("none"), "optimizer none is not modelled"),
            ("head", json!("mlm"), "head mlm on llama is not modelled"),
            ("iters", json!(1), "a single iteration has no steady state"),
            ("lora", json!({ "targets": ["x_y"] }), "lora target x_y is not modelled"),
            ("moon", json!("full"), "the key \"moon\" is unknown"),
        ] {
            assert_eq!(with(key, value), Err(reason.to_owned()));
        }
    }
}
