//! Rows measured with real PyTorch: `{"id", "device": {"cc"}, "case": {…}, "measured": {…}}`.
//!
//! Every key of a case is read; one that is unknown, or has a value that a [`Scenario`] has no word for, makes the row
//! unsupported rather than wrong.

use serde_json::Value;

use super::error::CheckError;
use super::fields::{Fields, bytes, unknown};
use super::measurement::{Case, Measured, Metric};
use super::weights::{compile, float8, qat, quantization};
use crate::hardware::{ComputeCapability, Gpu, NotACapability};
use crate::model::Objective;
use crate::scenario::{
    Allocator, Answers, AttentionKernel, Checkpointing, Cluster, CustomModel, DeepSpeed, Embedding,
    Evaluation, Experts, Generation, GpuChoice, Layout, Lengths, Loop, Lora, LoraTargets, LossKernel, Mask,
    Method, ModelChoice, Modules, Offloading, Optimizer, Overlap, Pictures, PolicyBatches, Precision,
    Reserve, Rollouts, Savings, Scenario, Serving, Spikes, Split, Stack, StepTime, Task, Teacher,
    TeacherWeights, Tuner,
};
use crate::step::Milestone;
use crate::units::Bytes;

/// Keys that only name the case or the run.
const NAMES: [&str; 5] = ["id", "model", "note", "preset", "tags"];

pub(super) fn read(row: &Value) -> Result<Case, CheckError> {
    let case = row.get("case").ok_or("there is no case")?;
    let translated = match super::trainer::translated(case)? {
        Some(translated) => Some(translated),
        None => super::ranks::translated(case).or_else(|| super::megatron::translated(case)),
    };
    let mut fields = Fields::of(translated.as_ref().unwrap_or(case), &NAMES);
    let scenario = scenario(&mut fields, row)?;
    fields.nothing_is_left()?;
    let figure = |metric, bytes| Measured { metric, milestone: Milestone::End, bytes };
    let peak = bytes(row, "/measured/peak/overall")?.ok_or("there is no measured peak")?;
    let mut measured = vec![figure(Metric::Allocated, peak)];
    let reserved = bytes(row, "/measured/reserved/peak_stat")?;
    measured.extend(reserved.map(|reserved| figure(Metric::Reserved, reserved)));
    Ok(Case { scenario, bounded: false, measured })
}

fn scenario(fields: &mut Fields<'_>, row: &Value) -> Result<Scenario, CheckError> {
    let method = match fields.text_or("method", "full")? {
        "full" => Method::Full,
        "lora" => Method::Lora,
        "qlora" => Method::Qlora,
        other => return Err(unknown("method", other)),
    };
    let dropout = fields.probability("dropout")?.map(|p| (p * 10_000.0).round() as u16);
    let experts = match fields.text_or("experts", "grouped_mm")? {
        "grouped_mm" => Experts::Tensors,
        "layers" => Experts::Layers,
        other => return Err(unknown("experts", other)),
    };
    if fields.count("iters", 3)? < 2 {
        return Err("a single iteration has no steady state".into());
    }
    let (sequence, texts) = (fields.count("seq", 512)?, fields.count("packed", 0)?);
    let quantization = quantization(fields)?;
    Ok(Scenario {
        answers: answers(fields)?,
        embedding: embedding(fields)?,
        policy: PolicyBatches {
            rollout: fields.count("rollout", Scenario::default().policy.rollout)?,
            parts: fields.count("mini_batches", Scenario::default().policy.parts)?,
            epochs: Scenario::default().policy.epochs,
        },
        teacher: teacher(fields)?,
        evaluation: evaluation(fields)?,
        spikes: spikes(fields)?,
        model: model(fields, row)?,
        method,
        lora: lora(fields)?,
        quantization,
        experts,
        precision: precision(fields)?,
        float8: float8(fields)?,
        qat: qat(fields)?,
        compile: compile(fields)?,
        optimizer: optimizer(fields.text_or("optimizer", "adamw")?)?,
        task: task(fields)?,
        generation: generation(fields)?,
        pictures: pictures(fields)?,
        batch: fields.count("batch", 1)?,
        sequence,
        lengths: match texts {
            0 => Lengths::Equal,
            texts => Lengths::Spread { mean: sequence / texts, deviation: 0 },
        },
        accumulation: fields.count("grad_accumulation", 1)?,
        checkpointing: match fields.text_or("gradient_checkpointing", "none")? {
            "none" => Checkpointing::Off,
            // FSDP's own (activation_checkpointing) is of the same kind
            "full" | "fsdp" => Checkpointing::NonReentrant,
            "reentrant" => Checkpointing::Reentrant,
            "offloaded" => Checkpointing::Offloaded,
            "selective" => Checkpointing::Selective,
            "every-second" => Checkpointing::Alternate,
            "operations" => Checkpointing::Operations,
            other => return Err(unknown("gradient_checkpointing", other)),
        },
        attention: match fields.text_or("attention", "sdpa")? {
            "eager" => AttentionKernel::Eager,
            "sdpa" => AttentionKernel::Sdpa,
            "sdpa_flash" => AttentionKernel::Flash,
            "sdpa_efficient" => AttentionKernel::Efficient,
            "sdpa_math" => AttentionKernel::Math,
            "sdpa_cudnn" => AttentionKernel::Cudnn,
            "flash_attention_2" => AttentionKernel::FlashAttn,
            other => return Err(unknown("attention", other)),
        },
        mask: match fields.text_or("attention_mask", "none")? {
            "none" if texts > 0 => Mask::Packed,
            "none" => Mask::None,
            "ones" => Mask::Ones,
            "padded" => Mask::Padded,
            "padding-free" => Mask::PaddingFree,
            other => return Err(unknown("attention_mask", other)),
        },
        dropout,
        training_loop: Loop {
            keeps_outputs: match fields.text_or("loop", "trainer")? {
                "trainer" | "hf_trainer" => false,
                "naive" => true,
                other => return Err(unknown("loop", other)),
            },
            grads_to_none: match fields.text_or("zero_grad", "none")? {
                "none" => true,
                "zero" => false,
                other => return Err(unknown("zero_grad", other)),
            },
            clips: fields.switch("clip", true)?,
            fills_cache: fields.switch("use_cache", false)?,
        },
        stack: stack(fields)?,
        savings: Savings {
            loss: fields.choice("loss", LossKernel::Standard)?,
            step: match fields.switch("in_backward", false)? {
                false => StepTime::AfterBackward,
                true => StepTime::InBackward,
            },
            offloading: match fields.text("offload")? {
                None => Offloading::Off,
                Some("trl" | "torchtune") => Offloading::On,
                Some(other) => return Err(unknown("offload", other)),
            },
            liger_layers: argument(fields, LIGER).is_some_and(|value| value == true),
        },
        allocator: fields.choice("allocator", Allocator::Native)?,
        gpu: card(fields, row)?,
        cluster: cluster(fields)?,
        serving: Serving::DEFAULT,
        reserve: Reserve::NONE,
        data: Scenario::default().data,
    })
}

/// Arguments of trl's trainers with which tensors are as large as without: measured of IPO, of GSPO and of distillation's divergences.
const AS_LARGE: [&str; 3] = ["loss_type", "importance_sampling_level", "beta"];

/// The argument of trl's trainers that asks for Liger's kernels.
const LIGER: &str = "use_liger_kernel";

/// An argument that one of trl's trainers was given.
fn argument<'a>(fields: &mut Fields<'a>, name: &str) -> Option<&'a Value> {
    fields.get("args").and_then(|arguments| arguments.get(name))
}

fn task(fields: &mut Fields<'_>) -> Result<Task, CheckError> {
    // where transformers generates the answers, those that are learned from more than once are scored first
    let generates = fields.get("rollouts").and_then(Value::as_str) == Some(Rollouts::Transformers.slug());
    let arguments = fields.get("args").and_then(Value::as_object);
    let is_followed =
        |name: &str| name == LIGER || AS_LARGE.contains(&name) || name == "num_iterations" && !generates;
    if let Some((name, value)) = arguments.into_iter().flatten().find(|(name, _)| !is_followed(name)) {
        return Err(format!("the argument {name}={value} is not modelled").into());
    }
    fields.choice("task", Task::Sft)
}

/// What a task beyond fine-tuning worked with.
fn answers(fields: &mut Fields<'_>) -> Result<Answers, CheckError> {
    let usual = Scenario::default().answers;
    Ok(Answers {
        prompt: fields.count("prompt", usual.prompt)?,
        reference: fields.choice("reference", usual.reference)?,
        rollouts: fields.choice("rollouts", usual.rollouts)?,
        labels: fields.count("classes", usual.labels)?,
    })
}

/// Who is learned from: the keys of a case that are the teacher's own.
fn teacher(fields: &mut Fields<'_>) -> Result<Teacher, CheckError> {
    let usual = Scenario::default().teacher;
    let divergence = fields.choice("divergence", usual.divergence)?;
    let Some(own) = fields.get("teacher") else { return Ok(Teacher { divergence, ..usual }) };
    let mut own = Fields::of(own, &NAMES);
    let config = own.get("config").ok_or("there is no config of the teacher")?;
    let model = CustomModel::read("teacher", &config.to_string())?;
    let weights = match (own.text_or("method", "full")?, own.text_or("weights", "fp32")?) {
        ("full", "fp32") => TeacherWeights::Fp32,
        ("full", "bf16") => TeacherWeights::Bf16,
        ("qlora", "bf16") => TeacherWeights::Nf4,
        (method, weights) => return Err(unknown("teacher", format!("{method} over {weights} weights"))),
    };
    own.nothing_is_left()?;
    Ok(Teacher { model: Some(ModelChoice::Custom(model.into())), weights, divergence })
}

/// The pictures of each sequence.
fn pictures(fields: &mut Fields<'_>) -> Result<Pictures, CheckError> {
    let usual = Pictures::NONE;
    let [height, width] =
        match fields.typed("image_size", "two numbers", Value::as_array)?.map(|sides| &sides[..]) {
            None => [usual.height, usual.width],
            Some([height, width]) => [height, width].map(|side| side.as_u64().unwrap_or(0)),
            Some(_) => return Err("image_size is not height and width".into()),
        };
    Ok(Pictures {
        count: fields.count("images", 0)?,
        height,
        width,
        frames: fields.count("frames", 1)?,
        tower: fields.choice("tower", usual.tower)?,
    })
}

/// How a model generated.
fn generation(fields: &mut Fields<'_>) -> Result<Generation, CheckError> {
    let usual = Scenario::default().generation;
    Ok(Generation {
        new_tokens: fields.count("new_tokens", usual.new_tokens)?,
        cache: fields.choice("cache", usual.cache)?,
        sampling: fields.choice("sampling", usual.sampling)?,
    })
}

/// How many ranks there were, and how they worked together.
fn cluster(fields: &mut Fields<'_>) -> Result<Cluster, CheckError> {
    let one = Cluster::ONE;
    Ok(Cluster {
        gpus: fields.count("gpus", one.gpus)?,
        per_node: fields.count("gpus_per_node", one.per_node)?,
        sharding: fields.choice("shard", one.sharding)?,
        shards_alone: fields.switch("shard_alone", one.shards_alone)?,
        bucket_views: fields.switch("gradient_as_bucket_view", one.bucket_views)?,
        reshards: fields.switch("reshard_after_forward", one.reshards)?,
        reshards_root: fields.switch("reshard_root", one.reshards_root)?,
        sharded: fields.choice("sharded_layers", one.sharded)?,
        wrapped_by: fields.choice("wrapped_by", one.wrapped_by)?,
        replicas: fields.count("replicas", one.replicas)?,
        reduce: fields.choice("reduce_dtype", one.reduce)?,
        layout: Layout {
            tensor: fields.count("tp", one.layout.tensor)?,
            pipeline: fields.count("pp", one.layout.pipeline)?,
            interleaved: fields.count("vpp", one.layout.interleaved)?,
            split: Split {
                first: fields.count("first_stage", one.layout.split.first)?,
                last: fields.count("last_stage", one.layout.split.last)?,
                counts_embedding: fields.switch("embedding_split", one.layout.split.counts_embedding)?,
                counts_loss: fields.switch("loss_split", one.layout.split.counts_loss)?,
            },
            stage: fields.count("stage", one.layout.stage)?,
            layers: fields.choice("impl", one.layout.layers)?,
            sequence: fields.switch("sp", one.layout.sequence)?,
            context: fields.count("cp", one.layout.context)?,
            context_comm: fields.choice("cp_comm", one.layout.context_comm)?,
            experts: fields.count("ep", one.layout.experts)?,
            fuses_gradients: fields.switch("wgrad_fusion", one.layout.fuses_gradients)?,
        },
        cpu: fields.choice("cpu_offload", one.cpu)?,
        deepspeed: DeepSpeed {
            reduce_bucket: fields.count("reduce_bucket_size", one.deepspeed.reduce_bucket)?,
            prefetch_bucket: fields.count("stage3_prefetch_bucket_size", one.deepspeed.prefetch_bucket)?,
            persistence: fields.count("stage3_param_persistence_threshold", one.deepspeed.persistence)?,
            live: fields.count("stage3_max_live_parameters", one.deepspeed.live)?,
            contiguous: fields.switch("contiguous_gradients", one.deepspeed.contiguous)?,
            overlap: if fields.get("overlap_comm").is_none() {
                Overlap::Auto
            } else if fields.switch("overlap_comm", false)? {
                Overlap::On
            } else {
                Overlap::Off
            },
        },
    })
}

/// Whose code ran; rows with Liger's kernels say so by a switch.
fn stack(fields: &mut Fields<'_>) -> Result<Stack, CheckError> {
    let default = if fields.switch("liger", false)? { Stack::Liger } else { Stack::Transformers };
    fields.choice("stack", default)
}

fn embedding(fields: &mut Fields<'_>) -> Result<Embedding, CheckError> {
    let usual = Scenario::default().embedding;
    Ok(Embedding {
        texts: fields.count("texts", usual.texts)?,
        cached: fields.count("cached", usual.cached)?,
        pooling: fields.choice("pooling", usual.pooling)?,
    })
}

/// What was evaluated after each step.
fn evaluation(fields: &mut Fields<'_>) -> Result<Evaluation, CheckError> {
    let usual = Evaluation::OFF;
    Ok(Evaluation {
        keeps: fields.choice("evaluation", usual.keeps)?,
        batch: fields.count("eval_batch", usual.batch)?,
        accumulation: fields.count("eval_accumulation", usual.accumulation)?,
        batches: fields.count("eval_batches", usual.batches)?,
    })
}

/// What came before, between and after the steps.
fn spikes(fields: &mut Fields<'_>) -> Result<Spikes, CheckError> {
    let usual = Spikes::OFF;
    Ok(Spikes {
        saving: fields.choice("saving", usual.saving)?,
        merging: fields.choice("merging", usual.merging)?,
    })
}

fn model(fields: &mut Fields<'_>, row: &Value) -> Result<ModelChoice, CheckError> {
    let name = row.pointer("/case/model").and_then(Value::as_str).unwrap_or("model");
    let mut config = fields.get("config").cloned().ok_or("there is no config")?;
    let overrides = fields.typed("overrides", "a table", Value::as_object)?;
    if let (Some(map), Some(over)) = (config.as_object_mut(), overrides) {
        map.extend(over.clone());
    }
    let model = CustomModel::read(name, &config.to_string())?;
    let task = row.pointer("/case/task").and_then(Value::as_str).and_then(Task::from_slug);
    let headless = matches!(task, Some(Task::Classify | Task::Embed));
    let head = fields.text_or("head", "causal")?;
    match (head, model.architecture.head.objective) {
        ("causal" | "image", Objective::CausalLm)
        | ("mlm", Objective::MaskedLm)
        | ("seq2seq", Objective::Seq2Seq) => Ok(ModelChoice::Custom(model.into())),
        // another head stands in its place
        _ if headless => Ok(ModelChoice::Custom(model.into())),
        _ => Err(unknown("head", format!("{head} on {}", model.architecture.model_type))),
    }
}

fn precision(fields: &mut Fields<'_>) -> Result<Precision, CheckError> {
    let dtype = fields.text_or("dtype", "bf16")?;
    let (autocast, own) = match dtype {
        "amp_bf16" => (Some("bf16"), "fp32"),
        "amp_fp16" => (Some("fp16"), "fp32"),
        other => (None, other),
    };
    let weights = fields.text("weights")?.unwrap_or(own);
    match (autocast, weights) {
        (None, "fp32") => Ok(Precision::Fp32),
        (None, "bf16") => Ok(Precision::Bf16),
        (None, "fp16") => Ok(Precision::Fp16),
        (Some("bf16"), "fp32") => Ok(Precision::AmpBf16),
        (Some("bf16"), "bf16") => Ok(Precision::AmpBf16Weights),
        (Some("fp16"), "fp32") => Ok(Precision::AmpFp16),
        (Some("fp16"), "fp16") => Ok(Precision::AmpFp16Weights),
        _ => Err(unknown("dtype", format!("{dtype} over {weights} weights"))),
    }
}

/// The harness writes a slug with underscores, but for those that were named before there were slugs.
fn optimizer(name: &str) -> Result<Optimizer, CheckError> {
    let slug = match name {
        "adamw_forloop" => "adamw-for-loop",
        "adamw8bit" => "adamw-8bit",
        "paged_adamw8bit" => "paged-adamw-8bit",
        "lion8bit" => "lion-8bit",
        other => &other.replace('_', "-"),
    };
    Optimizer::from_slug(slug).ok_or_else(|| unknown("optimizer", name))
}

fn lora(fields: &mut Fields<'_>) -> Result<Lora, CheckError> {
    let fp32_adapters = fields.switch("lora_autocast_adapter", true)?;
    let trains_embeddings = fields.switch("train_embeddings", false)?;
    let fused = fields.switch("fused_adapters", false)?;
    let slug = fields.text_or("adapter", Tuner::Lora.slug())?;
    let tuner = Tuner::from_slug(&slug.replace('_', "-")).ok_or_else(|| unknown("adapter", slug))?;
    let Some(lora) = fields.typed("lora", "a table", |value| value.is_object().then_some(value))? else {
        let usual = Scenario::default().lora;
        return Ok(Lora { tuner, rank: 16, fp32_adapters, trains_embeddings, fused, ..usual });
    };
    // the adapters' scale changes no size
    let mut lora = Fields::of(lora, &["alpha"]);
    let (targets, modules) = match lora.get("targets") {
        None => (LoraTargets::AllLinear, Modules::NONE),
        Some(Value::String(group)) => match group.as_str() {
            "all-linear" => (LoraTargets::AllLinear, Modules::NONE),
            "qv" => (LoraTargets::Qv, Modules::NONE),
            other => return Err(unknown("lora target", other)),
        },
        Some(Value::Array(names)) => (LoraTargets::Named, modules(names)?),
        Some(other) => return Err(unknown("lora target", other)),
    };
    let own = Lora {
        tuner,
        rank: lora.count("r", 16)?,
        targets,
        modules,
        dropout: lora.probability("dropout")?.unwrap_or_default() > 0.0,
        fp32_adapters,
        trains_embeddings,
        fused,
    };
    lora.nothing_is_left()?;
    Ok(own)
}

fn modules(names: &[Value]) -> Result<Modules, CheckError> {
    names.iter().try_fold(Modules::NONE, |set, name| {
        let known = name.as_str().and_then(|name| set.with(name));
        known.ok_or_else(|| {
            unknown("lora target", name.as_str().map_or_else(|| name.to_string(), str::to_owned))
        })
    })
}

/// A card of the device's compute capability, which decides kernels and workspaces. How much memory it has matters where the row says it:
/// of a device of 8.0, whose kernels a card known by its memory alone has.
fn card(fields: &mut Fields<'_>, row: &Value) -> Result<GpuChoice, CheckError> {
    let asked = fields.text("cc")?;
    let mut device = Fields::of(row.get("device").unwrap_or(&Value::Null), &[]);
    let text = device.text("cc")?.or(asked).unwrap_or("9.0");
    let capability: ComputeCapability = text.parse().map_err(|error: NotACapability| error.to_string())?;
    let gpu = Gpu::with_capability(capability).ok_or_else(|| unknown("compute capability", text))?;
    let gib = |value: &Value| value.as_f64().filter(|gib| gib.is_finite() && *gib > 0.);
    if let Some(gib) = fields.typed("total_gib", "an amount of GiB", gib)? {
        return match text {
            "8.0" => Ok(GpuChoice::Custom(Bytes::gib(gib))),
            _ => Err(unknown("compute capability of a device with so much memory", text)),
        };
    }
    Ok(GpuChoice::Catalogue(gpu.slug.to_string()))
}

#[cfg(test)]
mod tests;
