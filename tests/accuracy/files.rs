//! The files of measurements, and what is predicted of them.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use headroom::check::{self, Errors, Report, Run};
use headroom::cli::summary;

use crate::read;

/// A file of `data/measurements/`.
pub struct File {
    name: &'static str,
    found: OnceLock<(Report, Vec<Run>)>,
}

/// Limits of errors in percent: median, 95th percentile, worst. They are what was found, rounded up: what worsens is seen.
pub type Limits = [f64; 3];

impl File {
    const fn of(name: &'static str) -> File {
        File { name, found: OnceLock::new() }
    }

    /// Whether it is the one of that name.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name
    }

    /// The rows as the file has them.
    pub fn rows(&self) -> Vec<serde_json::Value> {
        serde_json::from_str(&self.text()).expect("the file is an array of rows")
    }

    fn text(&self) -> String {
        read(&format!("data/measurements/{}.json", self.name))
    }

    fn found(&self) -> &(Report, Vec<Run>) {
        self.found.get_or_init(|| {
            let found = check::check_runs(self.name, &self.text()).expect("the file is an array of rows");
            self.note(&found.0);
            found
        })
    }

    /// Writes down what `headroom check` says of the file: `scripts/check accuracy` prints it.
    fn note(&self, report: &Report) {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("accuracy");
        let note = folder.join(format!("{}.txt", self.name));
        fs::create_dir_all(folder)
            .and_then(|()| fs::write(note, summary(report)))
            .expect("the note is written");
    }

    /// What is predicted of the file, found once for all tests.
    pub fn report(&self) -> &Report {
        &self.found().0
    }

    /// Its rows that are predicted.
    pub fn runs(&self) -> &[Run] {
        &self.found().1
    }

    /// Every row is predicted, so many of each figure, within these limits of allocated and of reserved peaks.
    #[track_caller]
    pub fn is_predicted(&self, rows: usize, allocated: Limits, reserved: Limits) {
        self.is_predicted_but(&[], rows, allocated, reserved);
    }

    /// The same of a file that has allocated peaks alone.
    #[track_caller]
    pub fn is_predicted_allocated(&self, rows: usize, allocated: Limits) {
        let Report { unsupported, summary, .. } = self.report();
        assert!(unsupported.is_empty(), "{}: {unsupported:?}", self.name);
        self.holds("allocated", &summary.allocated, rows, allocated);
    }

    /// [`File::is_predicted`], but for rows whose reason says one of these words.
    #[track_caller]
    pub fn is_predicted_but(&self, refused: &[&str], rows: usize, allocated: Limits, reserved: Limits) {
        let Report { unsupported, summary, .. } = self.report();
        let others: Vec<_> =
            unsupported.iter().filter(|row| !refused.iter().any(|word| row.reason.contains(word))).collect();
        assert!(others.is_empty(), "{}: {others:?}", self.name);
        self.holds("allocated", &summary.allocated, rows, allocated);
        self.holds("reserved", &summary.reserved, rows, reserved);
    }

    /// Every row is predicted: so many allocated figures and so many reserved ones.
    #[track_caller]
    pub fn is_predicted_apart(&self, (allocated, low): (usize, Limits), (reserved, high): (usize, Limits)) {
        let Report { unsupported, summary, .. } = self.report();
        assert!(unsupported.is_empty(), "{}: {unsupported:?}", self.name);
        self.holds("allocated", &summary.allocated, allocated, low);
        self.holds("reserved", &summary.reserved, reserved, high);
    }

    #[track_caller]
    fn holds(&self, metric: &str, errors: &Errors, rows: usize, limits: Limits) {
        assert_eq!(errors.count, rows, "{}: {metric} figures that are predicted", self.name);
        let found = [errors.median_pct, errors.p95_pct, errors.worst_pct];
        for ((which, error), limit) in
            ["median", "95th percentile", "worst"].into_iter().zip(found).zip(limits)
        {
            assert!(error <= limit, "{}: {metric}, {which}: {error:.4} % is above {limit} %", self.name);
        }
    }
}

/// The matrix of `truth/`: methods, precisions, kernels, optimizers, checkpointing, over transformers' own code.
pub static NULL_DEVICE: File = File::of("null-device");

/// Families of models, a small and a larger case of each.
pub static FAMILIES: File = File::of("families");

/// Other kernels and losses that do not write out all logits, as their own code runs them.
pub static STACKS: File = File::of("null-device-stacks");

/// Runs of which the larger one took less: pairs and a triple, one beside the other.
pub static GROWTH: File = File::of("growth");

/// trl's own trainer, with its collator, head and loop.
pub static TRL: File = File::of("trl");

/// trl's trainers on preferences and on rewards.
pub static PREFERENCE: File = File::of("preference");

/// trl's trainers of reinforcement where the model that is trained generates the answers: rows that the code was written beside, then
/// `-drawn-`, of other models and settings.
pub static ROLLOUTS: File = File::of("rollouts");

/// trl's trainers of distillation: a student beside teachers in float32, bfloat16 and 4 bits, of `-gkd-` with all logits.
pub static DISTILLATION: File = File::of("distillation");

/// trl's trainer of a policy beside a value model: rows that the code was written beside, then `-drawn-`.
pub static PPO: File = File::of("ppo");

/// transformers' Trainer over heads for classification, decoders and encoders: rows that the code was written beside, then
/// `-drawn-`, and of one of several GPUs `-held`.
pub static CLASSIFICATION: File = File::of("classification");

/// trl's SFTTrainer and transformers' Trainer with an evaluation after every step, on one GPU and several: rows that the code was written beside,
/// then `-held-`.
pub static EVALUATION: File = File::of("evaluation");

/// Trainers that save a checkpoint after every step, or whose adapters are merged after the last: rows that the code was written beside, then `-held-`.
pub static SPIKES: File = File::of("spikes");

/// sentence-transformers' trainer, its contrastive loss at once and with cached gradients; of one of several GPUs `-held`.
pub static EMBEDDING: File = File::of("embedding");

/// Adapters beside LoRA, and optimizers that came later. The worst of reserved memory is one of LoKr, whose blocks are as large as
/// weights.
pub static ADAPTERS: File = File::of("adapters");

/// Steps in less memory by switches of the loop, whoever's code runs the model.
pub static SWITCHES: File = File::of("switches");

/// Texts that share a sequence, and the package flash-attn.
pub static PACKED: File = File::of("packed");

/// Settings that a random generator chose: combinations that nobody had in mind.
pub static RANDOM: File = File::of("random");

/// Architectures and settings that `tools/draw_steps.py` drew, far from any published model: widths, heads of any size, activations and
/// switches that nobody had in mind. One switch of gpt2 is refused.
pub static DRAWN: File = File::of("drawn");

/// One rank of many GPUs over such architectures, drawn by `tools/draw_ranks.py`; rows of a family that an engine is not followed for are
/// refused. Nothing was mended by the rows of the second seed.
pub static DRAWN_RANKS: File = File::of("drawn-ranks");

/// trl's trainers over such architectures, drawn by the same.
pub static DRAWN_TRL: File = File::of("drawn-trl");

/// Families that had few rows, of sizes drawn at random: in a loop, by trl's trainers and on one rank of many. Seven rows showed what was mended.
pub static DRAWN_FAMILIES: File = File::of("drawn-families");

/// Preferences from all logits: trl's trainers up to 1.14, the same with axolotl's kernels, and LLaMA-Factory's. Rows that the code was written beside,
/// then `-held-`.
pub static PREFERENCE_LOGITS: File = File::of("preference-logits");

/// trl's SFTTrainer up to 1.6, which made all logits, on one GPU and under every engine. All but a few shapes of Llama-3.2-1B were not seen
/// before they were predicted.
pub static TRL_LOGITS: File = File::of("trl-logits");

/// Unsloth's DPOTrainer: rows that the code was written beside, and four that were held back.
pub static UNSLOTH_PREFERENCES: File = File::of("unsloth-preferences");

/// Unsloth's GRPOTrainer: rows that the code was written beside, and those whose names have `held`, measured before they were predicted.
pub static UNSLOTH_GRPO: File = File::of("unsloth-grpo");

/// Fine-tuning with layers that Unsloth compiles: rows that the code was written beside, and those whose names have `held`.
pub static UNSLOTH_LAYERS: File = File::of("unsloth-layers");

/// One rank of many, as the engines' own code runs it.
pub static MULTI: File = File::of("multi");

/// The same with other optimizers, and with trl's trainers.
pub static RANKS: File = File::of("ranks");

/// One rank where GPUs share layers by transformers' own plan, alone and with FSDP2: rows that the code was written beside, then `-after-`
/// and `-last-`.
pub static TENSORS: File = File::of("tensor-parallel");

/// One rank of torchtune's distributed recipes: rows that the code was written beside, then `-held-`.
pub static TORCHTUNE: File = File::of("torchtune-ranks");

/// One rank of torchtitan's trainer: rows that the code was written beside, then `-held-`.
pub static TORCHTITAN: File = File::of("torchtitan");

/// One rank of axolotl under FSDP2: rows that the code was written beside, then `-held-`.
pub static AXOLOTL: File = File::of("axolotl-ranks");

/// One rank of transformers' Trainer over what accelerate wraps for FSDP2: rows that the code was written beside, then `-held-`.
pub static TRAINER: File = File::of("trainer-ranks");

/// One rank of transformers' Trainer under FSDP2 whose GPUs share each sequence: measured before any was predicted.
pub static CONTEXTS: File = File::of("context-parallel");

/// One rank with a loss that fuses the head, or Liger's kernels without theirs, in a loop of one's own, by axolotl and by accelerate: measured
/// when the code was done.
pub static FUSED_LOSSES: File = File::of("fused-loss-ranks");

/// Liger's kernels in other families than llama's, and beside quantisation-aware training: rows that the code was written beside, then
/// `-held-`, of published shapes but for two mixtures.
pub static LIGER_FAMILIES: File = File::of("liger-families");

/// One rank under FSDP2 and ZeRO-3 of families with latent attention, short convolutions, linear attention, shared experts, or code of their own:
/// rows of small models that the code was written beside, then `-held-`, of published shapes.
pub static FAMILY_RANKS: File = File::of("family-ranks");

/// What `generate` of transformers took, with a growing cache, a static one or none: rows that the code was written beside, then `-after-`.
pub static GENERATE: File = File::of("generate");

/// Experts as transformers 4.57.1 had them, layers of their own: rows that the code was written beside, then `-held-`.
pub static EXPERT_LAYERS: File = File::of("expert-layers");

/// Pictures among the text: tower trained and frozen, with every method.
pub static VISION: File = File::of("vision");

/// The same under trl's own trainer, padded or not: the code was done before any was predicted.
pub static VISION_TRL: File = File::of("vision-trl");

/// trl's `DPOTrainer` on texts with pictures: each was measured before it was predicted.
pub static PICTURE_PREFERENCES: File = File::of("picture-preferences");

/// trl's `KTOTrainer`, `GRPOTrainer` and `RLOOTrainer` on texts with pictures: each was measured before it was predicted.
pub static PICTURE_ANSWERS: File = File::of("picture-answers");

/// Pictures in fine-tuning under DDP, FSDP2, ZeRO-1 and ZeRO-2: `held` were written down before any was predicted.
pub static VISION_RANKS: File = File::of("vision-ranks");

/// One rank with a model that sees on text alone, under every engine, in a loop of one's own, under transformers' Trainer and under trl: `-held-` were
/// written down before any was predicted.
pub static IDLE_TOWERS: File = File::of("idle-tower-ranks");

/// axolotl's fused adapters: `-held-` of families, losses and cards that were measured before they were predicted.
pub static FUSED_ADAPTERS: File = File::of("fused-adapters");

/// Frozen weights in LLM.int8, with outliers in their inputs: beside LoRA, and under `generate`.
pub static INT8: File = File::of("int8");

/// Frozen weights in torchao's int8, beside LoRA and under `generate`: all but two of two layers were measured before any was predicted.
pub static TORCHAO: File = File::of("torchao");

/// Frozen weights of GPTQ's checkpoints, beside LoRA and under `generate`: all were measured before any was predicted.
pub static GPTQ: File = File::of("gptq");

/// Steps whose products are in 8-bit floats: all were measured before any was predicted, then `-held-` of other families.
pub static FLOAT8: File = File::of("float8");

/// One rank of other adapters than LoRA, of 8-bit weights and of Muon under DDP: all were measured before any was predicted.
pub static ADAPTER_RANKS: File = File::of("adapter-ranks");

/// One rank of trl's trainers on preferences and answers of mixtures of experts: all were measured before any was predicted.
pub static EXPERT_TRAINERS: File = File::of("expert-trainers");

/// One rank of mixtures of experts, most under ZeRO-3 with adapters on the experts: all were measured before any of them was predicted.
pub static EXPERT_RANKS: File = File::of("expert-ranks");

/// Liger's kernels of layers under trl's trainers: all were measured before any was predicted.
pub static TRL_LIGER: File = File::of("trl-liger");

/// Other adapters than LoRA and weights in 8 bits under trl's trainers: all were measured before any was predicted.
pub static TRL_ADAPTERS: File = File::of("trl-adapters");

/// Steps whose layers are compiled one by one: `-held-` were measured when all else was done.
pub static COMPILED: File = File::of("compiled");

/// Steps of whole models that are compiled: `-held-` were drawn and measured after they were predicted.
pub static COMPILED_MODEL: File = File::of("compiled-model");

/// One rank of steps whose products are in 8-bit floats, under FSDP2: all were measured before any was predicted.
pub static FLOAT8_RANKS: File = File::of("float8-ranks");

/// Steps of quantisation-aware training: six rows measured before anything was predicted, the others by one held back after another.
pub static QAT: File = File::of("qat");

/// The same of AWQ's, by either of the kernels that train: all were measured before any was predicted.
pub static AWQ: File = File::of("awq");

/// One rank of jobs of Megatron-core: tensor and pipeline parallelism, any stage.
pub static MEGATRON: File = File::of("megatron");

/// The same of Transformer Engine's layers, with sequence and context parallelism.
pub static TRANSFORMER_ENGINE: File = File::of("transformer-engine");

/// The same of GPT-3's layers: rows that the code was written beside, `-drawn-` of which two showed what was mended, and `-after-`.
pub static MEGATRON_GPT: File = File::of("megatron-gpt");

/// The same of stages of different numbers of layers, of all three kinds of layers: all drawn and measured before any was predicted.
pub static MEGATRON_STAGES: File = File::of("megatron-stages");

/// The same with Megatron's own fused cross entropy, of all three kinds of layers: all drawn and measured before any was predicted.
pub static MEGATRON_FUSED: File = File::of("megatron-fused");

/// The same with biases or norms of queries and keys, and with keys and values that go round among GPUs: rows that the code was written
/// beside, then `held-`.
pub static MEGATRON_ATTENTION: File = File::of("megatron-attention");

/// The same of Mixtral and Qwen3-MoE, whose experts are given what the router chose: rows that the code was written beside, then
/// `held-`.
pub static MEGATRON_EXPERTS: File = File::of("megatron-experts");

/// SimuMax's runs of Megatron-LM on 8 B200, every rank. What was reserved differs among the ranks of one run by up to 7 %.
pub static CLUSTERS: File = File::of("clusters");

/// Runs of FSDP on real cards: prime-rl's of Qwen3-4B on 8 B200, H100 and H200, and fsdp_qlora's of adapters on two RTX 3090 and 4090, which ran
/// FSDP1 where FSDP2 is predicted. All but two are reserved peaks.
pub static SHARDED: File = File::of("sharded");

/// Megatron-LM's own tests of GPT-3's models on A100, H100 and GB200: what its last rank allocated.
pub static MEGATRON_LM: File = File::of("megatron-lm");

/// What others published of real GPUs: many rows of it cannot be expressed.
pub static PUBLISHED: File = File::of("published");

/// All of them, in the order of `data/measured.tsv`.
pub static FILES: [&File; 71] = [
    &NULL_DEVICE,
    &FAMILIES,
    &STACKS,
    &GROWTH,
    &TRL,
    &PREFERENCE,
    &PREFERENCE_LOGITS,
    &TRL_LOGITS,
    &UNSLOTH_PREFERENCES,
    &UNSLOTH_GRPO,
    &UNSLOTH_LAYERS,
    &ROLLOUTS,
    &DISTILLATION,
    &PPO,
    &CLASSIFICATION,
    &EMBEDDING,
    &EVALUATION,
    &SPIKES,
    &ADAPTERS,
    &FUSED_ADAPTERS,
    &SWITCHES,
    &PACKED,
    &RANDOM,
    &DRAWN,
    &DRAWN_RANKS,
    &DRAWN_TRL,
    &DRAWN_FAMILIES,
    &MULTI,
    &RANKS,
    &TENSORS,
    &TORCHTUNE,
    &TORCHTITAN,
    &AXOLOTL,
    &TRAINER,
    &CONTEXTS,
    &FUSED_LOSSES,
    &LIGER_FAMILIES,
    &FAMILY_RANKS,
    &GENERATE,
    &EXPERT_LAYERS,
    &VISION,
    &VISION_TRL,
    &PICTURE_PREFERENCES,
    &PICTURE_ANSWERS,
    &VISION_RANKS,
    &IDLE_TOWERS,
    &INT8,
    &TORCHAO,
    &GPTQ,
    &AWQ,
    &FLOAT8,
    &QAT,
    &FLOAT8_RANKS,
    &ADAPTER_RANKS,
    &EXPERT_TRAINERS,
    &EXPERT_RANKS,
    &TRL_LIGER,
    &TRL_ADAPTERS,
    &COMPILED,
    &COMPILED_MODEL,
    &MEGATRON,
    &TRANSFORMER_ENGINE,
    &MEGATRON_GPT,
    &MEGATRON_STAGES,
    &MEGATRON_FUSED,
    &MEGATRON_ATTENTION,
    &MEGATRON_EXPERTS,
    &CLUSTERS,
    &SHARDED,
    &MEGATRON_LM,
    &PUBLISHED,
];
