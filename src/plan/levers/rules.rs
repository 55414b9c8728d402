//! The changes that save memory, each with what it costs.

use super::Cost;
use crate::scenario::software::Trainer;
use crate::scenario::{
    Allocator, AttentionKernel, CacheKind, Checkpointing, Compile, CpuOffload, Evaluates, Experts, Float8,
    LoraTargets, LossKernel, Mask, Merges, Method, Offloading, Optimizer, Pictures, Precision, Qat,
    QatLayers, ReduceDtype, Reference, Scenario, Sharding, Stack, StepTime, Task, TeacherWeights,
    VisionTower, WeightFormat,
};

/// A change of a scenario. Where the scenario has no such thing to change it stays as it is; whether what comes out runs is
/// for the estimate to say.
pub(super) struct Rule {
    /// The input that it is about, by its [`Key::name`](crate::scenario::keys::Key::name).
    pub key: &'static str,
    /// What it costs.
    pub cost: Cost,
    /// Whether it is a step that can be taken again, and is until the run fits.
    pub again: bool,
    /// Makes the change.
    pub pull: fn(&mut Scenario),
}

const fn once(key: &'static str, cost: Cost, pull: fn(&mut Scenario)) -> Rule {
    Rule { key, cost, again: false, pull }
}

const fn stepwise(key: &'static str, cost: Cost, pull: fn(&mut Scenario)) -> Rule {
    Rule { key, cost, again: true, pull }
}

fn offload_by_an_older_trl(scenario: &mut Scenario) {
    if scenario.offloads_by_an_older_trl() {
        (scenario.cluster.cpu, scenario.savings.loss) = (CpuOffload::All, LossKernel::Full);
    }
}

/// Sequences shorter than that are not suggested.
const SHORTEST: u64 = 128;
/// Texts that are first suggested to run at a time, where gradients by their embeddings are cached
/// (`CachedMultipleNegativesRankingLoss`' default).
const MOST_CACHED: u64 = 32;
/// Ranks lower than that are not suggested.
const LOWEST_RANK: u64 = 4;

/// Pictures with fewer rows or columns of pixels are not suggested: the smallest that a tower is made for (`image_size` of CLIPVisionConfig and
/// SiglipVisionConfig, transformers 5.17).
const SMALLEST: u64 = 224;

/// Whether that is AdamW with 32-bit states on the GPU, in one implementation or another.
fn is_adamw(optimizer: Optimizer) -> bool {
    matches!(
        optimizer,
        Optimizer::AdamW | Optimizer::AdamWFused | Optimizer::AdamWForLoop | Optimizer::AdamWEarly
    )
}

/// The weights in 4 bits.
fn in_4_bits(scenario: &mut Scenario) {
    match scenario.method {
        Method::Full | Method::Lora => scenario.change(|scenario| scenario.method = Method::Qlora),
        Method::Qlora => {}
    }
}

/// The first of these engines, where there is one, over the same weights.
fn divide_by(scenario: &mut Scenario, engines: &[Sharding]) {
    if let Some(sharding) = engines.first() {
        scenario.change(|scenario| scenario.cluster.sharding = *sharding);
        scenario.compute_in_its_weights();
    }
}

/// Every change, cheapest first.
pub(super) static RULES: &[Rule] = &[
    once("allocator", Cost::Nothing, |s| s.allocator = Allocator::Expandable),
    once("keep-outputs", Cost::Nothing, |s| s.training_loop.keeps_outputs = false),
    once("use-cache", Cost::Nothing, |s| s.training_loop.fills_cache = false),
    // what DDP reduces is the gradient; trainers have no argument for it
    once("gradient-as-bucket-view", Cost::Nothing, |s| {
        s.cluster.bucket_views |= s.cluster.is_many() && s.software().runs_loop();
    }),
    // a single GPU has nobody to share with
    once("shard-alone", Cost::Nothing, |s| s.cluster.shards_alone &= s.cluster.is_many()),
    once("set-to-none", Cost::Nothing, |s| s.training_loop.grads_to_none = true),
    // what holds its weights: with less it stops
    once("vllm-percent", Cost::Nothing, |s| {
        if let Some(least) = s.least_vllm_share() {
            s.reserve.vllm = s.reserve.vllm.max(least);
        }
    }),
    once("loss", Cost::Nothing, |s| s.savings.loss = LossKernel::Liger),
    once("loss", Cost::Nothing, |s| s.savings.loss = LossKernel::Cut),
    once("loss", Cost::Nothing, |s| s.savings.loss = LossKernel::Chunked),
    // trl 1.16's head is fused with the log-probabilities, of which earlier versions and others make all logits
    once("loss", Cost::Nothing, |s| {
        if s.stack == Stack::Trl && s.savings.loss.replaces_fused_head() {
            s.savings.loss = LossKernel::Standard;
        }
    }),
    // Megatron-core's plain cross entropy has one float32 copy of the logits where its fused one has two
    once("loss", Cost::Nothing, |s| {
        if s.savings.loss == LossKernel::MegatronFused {
            s.savings.loss = LossKernel::Standard;
        }
    }),
    // its layers' kernels, which change no result but by rounding
    once("liger-layers", Cost::Nothing, |s| {
        s.savings.liger_layers |= s.software().trainer == Trainer::Trl;
    }),
    once("attention", Cost::Nothing, |s| match s.attention {
        AttentionKernel::Eager | AttentionKernel::Math => s.attention = AttentionKernel::Sdpa,
        AttentionKernel::Sdpa
        | AttentionKernel::Flash
        | AttentionKernel::Efficient
        | AttentionKernel::Cudnn
        | AttentionKernel::FlashAttn => {}
    }),
    // trl's padding_free and packing, which want flash-attn: other kernels hide the texts of a row from each other by a mask
    once("mask", Cost::Nothing, |s| {
        if s.mask == Mask::Padded {
            (s.mask, s.attention) = (Mask::PaddingFree, AttentionKernel::FlashAttn);
        }
    }),
    once("optimizer", Cost::Nothing, |s| {
        if is_adamw(s.optimizer) {
            s.optimizer = Optimizer::AdamWFused;
        }
    }),
    once("float8-gather", Cost::Nothing, |s| {
        if s.trains_in_float8() && s.cluster.is_fsdp2() && s.float8.recipe == Float8::Tensorwise {
            s.float8.gathers = true;
        }
    }),
    once("compile", Cost::Time, |s| {
        if s.stack == Stack::Transformers && s.task.trains() {
            s.compile = Compile::Layers;
        } else if s.stack == Stack::Unsloth {
            // UNSLOTH_COMPILE_DISABLE=1: its own functions write over what a compiled layer makes anew
            s.compile = Compile::Off;
        }
    }),
    once("qat-layers", Cost::Training, |s| {
        if s.trains_quantization_aware() {
            s.qat.layers = QatLayers::Body;
        }
    }),
    once("qat", Cost::Training, |s| {
        if s.trains_quantization_aware() {
            s.qat.scheme = Qat::Off;
        }
    }),
    once("float8", Cost::Time, |s| {
        if s.trains_in_float8() {
            s.float8.recipe = Float8::Off;
        }
    }),
    once("weight-format", Cost::Nothing, |s| {
        if s.method == Method::Qlora {
            s.quantization.format = WeightFormat::Nf4;
        }
    }),
    // without clipping every parameter may step by itself, and the result is the same
    once("optimizer-step", Cost::Nothing, |s| {
        if !s.training_loop.clips {
            s.savings.step = StepTime::InBackward;
        }
    }),
    // the data set is scored once either way
    once("reference", Cost::Nothing, |s| match s.task {
        Task::Dpo | Task::Kto => s.answers.reference = Reference::Precomputed,
        Task::Sft
        | Task::Classify
        | Task::Embed
        | Task::Orpo
        | Task::Cpo
        | Task::Simpo
        | Task::Reward
        | Task::Grpo
        | Task::Rloo
        | Task::Ppo
        | Task::Distil
        | Task::Generate => {}
    }),
    once("kv-cache", Cost::Nothing, |s| match s.generation.cache {
        CacheKind::Static if s.task == Task::Generate => s.generation.cache = CacheKind::Dynamic,
        CacheKind::Static | CacheKind::Dynamic | CacheKind::Off => {}
    }),
    once("stack", Cost::Software, |s| s.change(|s| s.stack = Stack::Trl)),
    once("stack", Cost::Software, |s| s.change(|s| s.stack = Stack::Liger)),
    once("stack", Cost::Software, |s| s.change(|s| s.stack = Stack::Unsloth)),
    // logits go to the CPU's memory after every batch
    once("eval-accumulation-steps", Cost::Time, |s| {
        if s.evaluates() && s.evaluation.keeps == Evaluates::Metrics {
            s.evaluation.accumulation = 1;
        }
    }),
    // the same texts in more batches
    stepwise("eval-batch-size", Cost::Time, |s| {
        if s.evaluates() && s.evaluation.batch > 1 {
            let texts = s.evaluation.batch.saturating_mul(s.evaluation.batches);
            s.evaluation.batch = s.evaluation.batch.div_ceil(2);
            s.evaluation.batches = texts.div_ceil(s.evaluation.batch);
        }
    }),
    // in another process, when the training is over
    once("merging", Cost::Time, |s| {
        if s.merges() == Merges::Gpu {
            s.spikes.merging = Merges::Cpu;
        }
    }),
    once("gradient-checkpointing", Cost::Time, |s| {
        if s.checkpointing == Checkpointing::Off {
            s.checkpointing = Checkpointing::NonReentrant;
        }
    }),
    once("activation-offloading", Cost::Time, |s| s.savings.offloading = Offloading::On),
    once("optimizer", Cost::Time, |s| {
        if is_adamw(s.optimizer) {
            s.optimizer = Optimizer::PagedAdamW;
        }
    }),
    // every token runs the whole sequence again
    once("kv-cache", Cost::Time, |s| {
        if s.task == Task::Generate {
            s.generation.cache = CacheKind::Off;
        }
    }),
    // fewer answers at once
    once("vllm-percent", Cost::Time, |s| {
        if let Some(least) = s.least_vllm_share() {
            s.reserve.vllm = s.reserve.vllm.min(least);
        }
    }),
    // it is given its weights anew in every step
    once("vllm-sleep", Cost::Time, |s| s.reserve.sleeps |= s.reserve.vllm > 0),
    once("cpu-offload", Cost::Time, |s| {
        if s.cluster.is_many() {
            s.cluster.cpu = s.cluster.most_on_cpu();
        } else if s.offloads_alone() && s.method != Method::Qlora {
            (s.cluster.sharding, s.cluster.cpu) = (Sharding::Zero3, CpuOffload::All);
        }
    }),
    once("cpu-offload", Cost::Software, offload_by_an_older_trl),
    // weights stay on the GPUs, which are gathered for every pass
    once("cpu-offload", Cost::Time, |s| {
        if s.cluster.cpu != CpuOffload::Off {
            return;
        }
        if s.cluster.is_zero() {
            s.cluster.cpu = CpuOffload::Optimizer;
        } else if s.offloads_alone() && s.method == Method::Full {
            (s.cluster.sharding, s.cluster.cpu) = (Sharding::Zero2, CpuOffload::Optimizer);
        }
    }),
    once("reshard-after-forward", Cost::Time, |s| {
        if s.cluster.is_fsdp2() {
            s.cluster.reshards = true;
        }
    }),
    once("shard", Cost::Time, |s| {
        if s.cluster.is_many() && !s.cluster.shards() {
            // DeepSpeed's users stay with it
            let stays = s.cluster.is_zero();
            divide_by(s, if stays { &[Sharding::Zero3] } else { s.software().divides_by() });
        }
    }),
    // another engine's shards, where DeepSpeed's keep more or are not enough
    once("shard", Cost::Time, |s| {
        if s.cluster.is_many() && s.cluster.is_zero() && s.cluster.cpu == CpuOffload::Off {
            divide_by(s, s.software().divides_by());
        }
    }),
    // whole weights, and shards of the rest: what does not run over FSDP2's shards runs so
    once("shard", Cost::Time, |s| {
        if s.cluster.is_many() && s.cluster.sharding == Sharding::Ddp {
            divide_by(s, s.software().divides_by().get(1..).unwrap_or_default());
        }
    }),
    // the same gradients, of texts that run twice
    stepwise("grad-cache", Cost::Time, |s| {
        if s.task == Task::Embed {
            s.embedding.cached = match s.embedding.cached {
                0 => s.batch.min(2 * MOST_CACHED) / 2,
                1 => 1,
                cached => cached.min(s.batch) / 2,
            };
        }
    }),
    // as many sequences per step in more passes; embeddings are held against those of their own pass alone
    stepwise("batch-size", Cost::Time, |s| {
        if s.batch > 1 && s.task != Task::Embed {
            let parts = if s.batch.is_multiple_of(2) { 2 } else { s.batch };
            if s.batch.checked_div(parts).unwrap_or(1) < s.least_batch() {
                return;
            }
            s.batch /= parts;
            // what generates goes on to the next sequences, and steps after none
            if s.task.trains() {
                s.accumulation = s.accumulation.saturating_mul(parts);
            }
        }
    }),
    once("optimizer", Cost::Precision, |s| {
        if is_adamw(s.optimizer) {
            // bitsandbytes takes no shards of FSDP2's
            let sharded = s.cluster.is_fsdp2();
            s.optimizer = if sharded { Optimizer::AdamW8bitTorchao } else { Optimizer::AdamW8bit };
        }
    }),
    once("optimizer", Cost::Precision, |s| {
        if is_adamw(s.optimizer) || s.optimizer == Optimizer::AdamW8bit {
            s.optimizer = Optimizer::PagedAdamW8bit;
        }
    }),
    once("optimizer", Cost::Precision, |s| {
        if s.optimizer == Optimizer::Lion {
            s.optimizer = Optimizer::Lion8bit;
        }
    }),
    once("double-quant", Cost::Precision, |s| {
        if s.method == Method::Qlora {
            s.quantization.double_quant = true;
        }
    }),
    once("experts", Cost::Precision, |s| {
        if s.method == Method::Qlora && s.can_have_expert_layers() {
            s.experts = Experts::Layers;
        }
    }),
    once("kbit-prepare", Cost::Precision, |s| {
        if s.method == Method::Qlora {
            s.quantization.prepare = false;
        }
    }),
    once("fp32-adapters", Cost::Precision, |s| {
        if s.method.has_adapters() {
            s.lora.fp32_adapters = false;
        }
    }),
    // autocast multiplies frozen weights as bfloat16 either way, and adapters stay in float32; what is trained whole would not
    once("precision", Cost::Rounding, |s| {
        let is_frozen = s.method.has_adapters() && s.lora.fp32_adapters && !s.lora.trains_embeddings;
        let makes_head = matches!(s.task, Task::Classify | Task::Reward | Task::Ppo);
        if is_frozen && !makes_head && s.has_bfloat16() && s.precision == Precision::AmpBf16 {
            s.precision = Precision::AmpBf16Weights;
        }
    }),
    once("precision", Cost::Precision, |s| match s.precision {
        _ if !s.has_bfloat16() => {}
        Precision::AmpBf16 => s.precision = Precision::AmpBf16Weights,
        Precision::Fp32 => s.precision = Precision::AmpBf16,
        Precision::Bf16
        | Precision::Fp16
        | Precision::AmpBf16Weights
        | Precision::AmpFp16
        | Precision::AmpFp16Weights => {}
    }),
    once("precision", Cost::Precision, |s| match s.precision {
        _ if !s.has_bfloat16() => {}
        Precision::AmpBf16 | Precision::AmpBf16Weights | Precision::Fp32 => s.precision = Precision::Bf16,
        Precision::Bf16 | Precision::Fp16 | Precision::AmpFp16 | Precision::AmpFp16Weights => {}
    }),
    // nothing is trained, so that nothing but the weights' bits changes
    once("method", Cost::Precision, |s| {
        if !s.task.trains() {
            in_4_bits(s);
        }
    }),
    // a teacher is frozen whatever it is kept in
    once("teacher-weights", Cost::Precision, |s| {
        if s.task == Task::Distil && s.teacher.weights == TeacherWeights::Fp32 {
            s.teacher.weights = TeacherWeights::Bf16;
        }
    }),
    once("teacher-weights", Cost::Precision, |s| {
        if s.task == Task::Distil {
            s.teacher.weights = TeacherWeights::Nf4;
        }
    }),
    once("reduce-dtype", Cost::Precision, |s| {
        if s.cluster.is_fsdp2() {
            s.cluster.reduce = ReduceDtype::Bf16;
        }
    }),
    // fewer texts to be told from
    stepwise("batch-size", Cost::Training, |s| {
        if s.task == Task::Embed && s.batch > 2 {
            s.batch /= 2;
        }
    }),
    once("optimizer-step", Cost::Training, |s| {
        if s.training_loop.clips {
            s.savings.step = StepTime::InBackward;
        }
    }),
    once("optimizer", Cost::Training, |s| {
        if is_adamw(s.optimizer) {
            s.optimizer = Optimizer::Adafactor;
        }
    }),
    once("optimizer", Cost::Training, |s| {
        if is_adamw(s.optimizer) && s.method == Method::Full {
            s.change(|s| s.optimizer = Optimizer::ApolloAdamW);
        }
    }),
    once("optimizer", Cost::Training, |s| {
        if is_adamw(s.optimizer) && s.method == Method::Full {
            s.optimizer = Optimizer::Lomo;
        }
    }),
    once("vision-tower", Cost::Training, |s| {
        if s.pictures.count > 0 {
            s.pictures.tower = VisionTower::Frozen;
        }
    }),
    stepwise("image-height", Cost::Training, |s| {
        let Pictures { count, height, width, .. } = s.pictures;
        if count > 0 && height.min(width) >= 2 * SMALLEST {
            (s.pictures.height, s.pictures.width) = (height / 2, width / 2);
        }
    }),
    once("train-embeddings", Cost::Training, |s| {
        if s.method.has_adapters() {
            s.lora.trains_embeddings = false;
        }
    }),
    once("lora-targets", Cost::Training, |s| {
        let adapts_layers = s.method.has_adapters() && s.lora.tuner.adapts_layers();
        if adapts_layers && s.lora.targets == LoraTargets::AllLinear {
            s.lora.targets = LoraTargets::Attention;
        }
    }),
    stepwise("lora-rank", Cost::Training, |s| {
        if s.method.has_adapters() && s.lora.tuner.has_rank() && s.lora.rank >= 2 * LOWEST_RANK {
            s.lora.rank /= 2;
        }
    }),
    once("reference", Cost::Training, |s| {
        if s.task.is_online() {
            s.answers.reference = Reference::None;
        }
    }),
    // a prompt is as long as what is asked
    stepwise("seq-length", Cost::Training, |s| {
        let prompt = if s.task.has_answers() { s.answers.prompt } else { 0 };
        if s.task.trains() && s.sequence >= 2 * SHORTEST && s.sequence / 2 > prompt {
            s.sequence /= 2;
        }
    }),
    once("method", Cost::Training, |s| match s.method {
        Method::Full if s.task.trains() => s.change(|s| s.method = Method::Lora),
        Method::Full | Method::Lora | Method::Qlora => {}
    }),
    once("method", Cost::Training, |s| {
        if s.task.trains() {
            in_4_bits(s);
        }
    }),
];
