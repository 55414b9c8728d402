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
    Allocator, Answers, AttentionKernel, CacheKind, Checkpointing, Cluster, ContextComm, CpuOffload,
    CustomModel, DeepSpeed, Embedding, Evaluates, Evaluation, Experts, Generation, GpuChoice, Layout,
    Lengths, Loop, Lora, LoraTargets, LossKernel, Mask, Merges, Method, ModelChoice, Modules, Offloading,
    Optimizer, Overlap, Pictures, PolicyBatches, Pooling, Precision, ReduceDtype, Reference, Reserve,
    Rollouts, Sampling, Saves, Savings, Scenario, ShardedLayers, Sharding, Spikes, Split, Stack, StepTime,
    Task, Teacher, TeacherWeights, TransformerImpl, Tuner, VisionTower, WrappedBy,
};
use crate::step::Milestone;

/// Keys that only name the case or the run.
const NAMES: [&str; 6] = ["id", "model", "note", "preset", "tags", "total_gib"];

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
            loss: loss(fields.text_or("loss", "standard")?)?,
            step: match fields.switch("in_backward", false)? {
                false => StepTime::AfterBackward,
                true => StepTime::InBackward,
            },
            offloading: match fields.text("offload")? {
                None => Offloading::Off,
                Some("trl" | "torchtune") => Offloading::On,
                Some(other) => return Err(unknown("offload", other)),
            },
        },
        allocator: {
            let slug = fields.text_or("allocator", Allocator::Native.slug())?;
            Allocator::from_slug(slug).ok_or_else(|| unknown("allocator", slug))?
        },
        gpu: card(fields, row)?,
        cluster: cluster(fields)?,
        reserve: Reserve::NONE,
        data: Scenario::default().data,
    })
}

/// Arguments of trl's trainers with which tensors are as large as without: measured of IPO, of GSPO and of distillation's divergences.
const AS_LARGE: [&str; 3] = ["loss_type", "importance_sampling_level", "beta"];

fn task(fields: &mut Fields<'_>) -> Result<Task, CheckError> {
    let arguments = fields.get("args").and_then(Value::as_object);
    if let Some((name, value)) =
        arguments.into_iter().flatten().find(|(name, _)| !AS_LARGE.contains(&name.as_str()))
    {
        return Err(format!("the argument {name}={value} is not modelled").into());
    }
    let slug = fields.text_or("task", Task::Sft.slug())?;
    Task::from_slug(slug).ok_or_else(|| unknown("task", slug))
}

/// What a task beyond fine-tuning worked with.
fn answers(fields: &mut Fields<'_>) -> Result<Answers, CheckError> {
    let usual = Scenario::default().answers;
    let reference = fields.text_or("reference", usual.reference.slug())?;
    let rollouts = fields.text_or("rollouts", usual.rollouts.slug())?;
    Ok(Answers {
        prompt: fields.count("prompt", usual.prompt)?,
        reference: Reference::from_slug(reference).ok_or_else(|| unknown("reference", reference))?,
        rollouts: Rollouts::from_slug(rollouts).ok_or_else(|| unknown("rollouts", rollouts))?,
        labels: fields.count("classes", usual.labels)?,
    })
}

/// Who is learned from: the keys of a case that are the teacher's own.
fn teacher(fields: &mut Fields<'_>) -> Result<Teacher, CheckError> {
    let usual = Scenario::default().teacher;
    let Some(own) = fields.get("teacher") else { return Ok(usual) };
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
    Ok(Teacher { model: Some(ModelChoice::Custom(model.into())), weights })
}

/// The pictures of each sequence.
fn pictures(fields: &mut Fields<'_>) -> Result<Pictures, CheckError> {
    let usual = Pictures::NONE;
    let tower = fields.text_or("tower", usual.tower.slug())?;
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
        tower: VisionTower::from_slug(tower).ok_or_else(|| unknown("tower", tower))?,
    })
}

/// How a model generated.
fn generation(fields: &mut Fields<'_>) -> Result<Generation, CheckError> {
    let usual = Scenario::default().generation;
    let cache = fields.text_or("cache", usual.cache.slug())?;
    let sampling = fields.text_or("sampling", usual.sampling.slug())?;
    Ok(Generation {
        new_tokens: fields.count("new_tokens", usual.new_tokens)?,
        cache: CacheKind::from_slug(cache).ok_or_else(|| unknown("cache", cache))?,
        sampling: Sampling::from_slug(sampling).ok_or_else(|| unknown("sampling", sampling))?,
    })
}

/// How many ranks there were, and how they worked together.
fn cluster(fields: &mut Fields<'_>) -> Result<Cluster, CheckError> {
    let one = Cluster::ONE;
    let sharding = fields.text_or("shard", one.sharding.slug())?;
    let sharded = fields.text_or("sharded_layers", one.sharded.slug())?;
    let wrapped_by = fields.text_or("wrapped_by", one.wrapped_by.slug())?;
    let reduce = fields.text_or("reduce_dtype", one.reduce.slug())?;
    let cpu = fields.text_or("cpu_offload", one.cpu.slug())?;
    let layers = fields.text_or("impl", one.layout.layers.slug())?;
    let comm = fields.text_or("cp_comm", one.layout.context_comm.slug())?;
    Ok(Cluster {
        gpus: fields.count("gpus", one.gpus)?,
        sharding: Sharding::from_slug(sharding).ok_or_else(|| unknown("shard", sharding))?,
        shards_alone: fields.switch("shard_alone", one.shards_alone)?,
        bucket_views: fields.switch("gradient_as_bucket_view", one.bucket_views)?,
        reshards: fields.switch("reshard_after_forward", one.reshards)?,
        reshards_root: fields.switch("reshard_root", one.reshards_root)?,
        sharded: ShardedLayers::from_slug(sharded).ok_or_else(|| unknown("sharded_layers", sharded))?,
        wrapped_by: WrappedBy::from_slug(wrapped_by).ok_or_else(|| unknown("wrapped_by", wrapped_by))?,
        replicas: fields.count("replicas", one.replicas)?,
        reduce: ReduceDtype::from_slug(reduce).ok_or_else(|| unknown("reduce_dtype", reduce))?,
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
            layers: TransformerImpl::from_slug(layers).ok_or_else(|| unknown("impl", layers))?,
            sequence: fields.switch("sp", one.layout.sequence)?,
            context: fields.count("cp", one.layout.context)?,
            context_comm: ContextComm::from_slug(comm).ok_or_else(|| unknown("cp_comm", comm))?,
            experts: fields.count("ep", one.layout.experts)?,
            fuses_gradients: fields.switch("wgrad_fusion", one.layout.fuses_gradients)?,
        },
        cpu: CpuOffload::from_slug(cpu).ok_or_else(|| unknown("cpu_offload", cpu))?,
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
    let slug = fields.text_or("stack", default.slug())?;
    Stack::from_slug(slug).ok_or_else(|| unknown("stack", slug))
}

fn loss(slug: &str) -> Result<LossKernel, CheckError> {
    LossKernel::from_slug(slug).ok_or_else(|| unknown("loss", slug))
}

fn embedding(fields: &mut Fields<'_>) -> Result<Embedding, CheckError> {
    let usual = Scenario::default().embedding;
    let pooling = fields.text_or("pooling", usual.pooling.slug())?;
    Ok(Embedding {
        texts: fields.count("texts", usual.texts)?,
        cached: fields.count("cached", usual.cached)?,
        pooling: Pooling::from_slug(pooling).ok_or_else(|| unknown("pooling", pooling))?,
    })
}

/// What was evaluated after each step.
fn evaluation(fields: &mut Fields<'_>) -> Result<Evaluation, CheckError> {
    let usual = Evaluation::OFF;
    let keeps = fields.text_or("evaluation", usual.keeps.slug())?;
    Ok(Evaluation {
        keeps: Evaluates::from_slug(keeps).ok_or_else(|| unknown("evaluation", keeps))?,
        batch: fields.count("eval_batch", usual.batch)?,
        accumulation: fields.count("eval_accumulation", usual.accumulation)?,
        batches: fields.count("eval_batches", usual.batches)?,
    })
}

/// What came before, between and after the steps.
fn spikes(fields: &mut Fields<'_>) -> Result<Spikes, CheckError> {
    let usual = Spikes::OFF;
    let saving = fields.text_or("saving", usual.saving.slug())?;
    let merging = fields.text_or("merging", usual.merging.slug())?;
    Ok(Spikes {
        saving: Saves::from_slug(saving).ok_or_else(|| unknown("saving", saving))?,
        merging: Merges::from_slug(merging).ok_or_else(|| unknown("merging", merging))?,
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

/// A card of the device's compute capability: it decides kernels and workspaces, and nothing else of the card matters.
fn card(fields: &mut Fields<'_>, row: &Value) -> Result<GpuChoice, CheckError> {
    let asked = fields.text("cc")?;
    let mut device = Fields::of(row.get("device").unwrap_or(&Value::Null), &[]);
    let text = device.text("cc")?.or(asked).unwrap_or("9.0");
    let capability: ComputeCapability = text.parse().map_err(|error: NotACapability| error.to_string())?;
    let gpu = Gpu::with_capability(capability).ok_or_else(|| unknown("compute capability", text))?;
    Ok(GpuChoice::Catalogue(gpu.slug.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::share;
    use crate::units::Bytes;
    use serde_json::json;

    /// A row of a small llama with one key of its case set.
    #[track_caller]
    fn with(key: &str, value: Value) -> Result<Scenario, CheckError> {
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
            ("lora", json!({ "moon": 1 }), "the key \"moon\" is unknown"),
        ] {
            assert_eq!(with(key, value), Err(reason.into()));
        }
    }

    /// A value of the wrong type is none of the harness's defaults.
    #[test]
    fn wrong_types_are_refused() {
        for (key, value, reason) in [
            ("method", json!(3), "method is 3 where a text belongs"),
            ("clip", json!("no"), "clip is \"no\" where true or false belongs"),
            ("attention", json!(7), "attention is 7 where a text belongs"),
            ("batch", json!(1.5), "batch is 1.5 where a whole number belongs"),
            ("batch", json!("4"), "batch is \"4\" where a whole number belongs"),
            ("cc", json!(8.0), "cc is 8.0 where a text belongs"),
            ("dropout", json!(2), "dropout is 2 where a probability belongs"),
            ("offload", json!(true), "offload is true where a text belongs"),
            ("weights", json!(16), "weights is 16 where a text belongs"),
            ("overrides", json!([1]), "overrides is [1] where a table belongs"),
            ("lora", json!([1]), "lora is [1] where a table belongs"),
            ("lora", json!({ "targets": [1, 2] }), "lora target 1 is not modelled"),
            ("lora", json!({ "targets": 1 }), "lora target 1 is not modelled"),
            ("lora", json!({ "r": "8" }), "r is \"8\" where a whole number belongs"),
            ("lora", json!({ "dropout": "0.1" }), "dropout is \"0.1\" where a probability belongs"),
        ] {
            assert_eq!(with(key, value), Err(reason.into()), "{key}");
        }
        let row = json!({ "case": { "config": { "model_type": "llama", "hidden_size": 64,
            "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100 } },
            "measured": { "peak": { "overall": 1000 }, "reserved": { "peak_stat": 2000 } } });
        assert!(read(&row).is_ok());
        for (pointer, value, reason) in [
            (
                "/measured/peak/overall",
                json!(0),
                "measured.peak.overall is 0 where a number of bytes belongs",
            ),
            (
                "/measured/peak/overall",
                json!(-1),
                "measured.peak.overall is -1 where a number of bytes belongs",
            ),
            (
                "/measured/reserved/peak_stat",
                json!("2 GB"),
                "measured.reserved.peak_stat is \"2 GB\" where a number of bytes belongs",
            ),
        ] {
            let mut row = row.clone();
            *row.pointer_mut(pointer).unwrap() = value;
            assert_eq!(read(&row).map(|_| ()), Err(reason.into()));
        }
    }
}
