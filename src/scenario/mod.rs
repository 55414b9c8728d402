//! Everything that the user chose.

pub mod choices;
mod cluster;
pub(crate) mod colocated;
mod compact;
pub mod count;
mod custom;
mod defaults;
pub mod keys;
pub mod lengths;
mod low_bits;
pub mod modules;
pub(crate) mod pictures;
mod quantised;
mod recurrent;
mod savings;
mod serde;
pub(crate) mod software;
mod stages;
mod tasks;
mod texts;
pub(crate) mod triton;
pub mod tuners;
mod validate;

use std::sync::Arc;

use crate::hardware::{Gpu, NCCL, UnknownGpu};
use crate::model::{Architecture, ModelError, catalogue};
use crate::units::Bytes;
use software::{Software, Trainer};

pub use crate::issue::{Field, Issue, Severity};
pub use choices::{
    Allocator, AttentionKernel, CacheKind, Checkpointing, Choice, Compile, ContextComm, CpuOffload,
    Evaluates, Experts, Float8, Float8Layers, GroupSize, LoraTargets, LossKernel, Mask, Merges, Method,
    Offloading, Optimizer, Overlap, Pooling, Precision, Qat, QatGroup, QatLayers, ReduceDtype, Reference,
    Rollouts, Sampling, Saves, ShardedLayers, Sharding, Stack, StepTime, Task, TeacherWeights,
    TransformerImpl, Tuner, VisionTower, WeightFormat, WrappedBy,
};
pub use cluster::{Cluster, DeepSpeed, Layout};
pub use count::LARGEST;
pub use lengths::{Lengths, ParseLengthsError};
pub use low_bits::{Float8Training, QatTraining};
pub use modules::{Modules, UnknownModule};
pub use stages::{Division, Split};
pub use tasks::{Answers, Embedding, Evaluation, Generation, Pictures, PolicyBatches, Spikes};
pub use texts::{ParseTextsError, Texts};

/// A model that the user brought, already parsed.
#[derive(Clone, Debug, PartialEq)]
pub struct CustomModel {
    /// What to call it.
    pub name: String,
    /// The part of its `config.json` that decides sizes, minified; what a share link carries.
    pub config: String,
    /// What was read.
    pub architecture: Arc<Architecture>,
}

/// Which model is trained.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelChoice {
    /// A model of the catalogue by its Hub id: `meta-llama/Llama-3.1-8B`.
    Catalogue(String),
    /// A llama-shaped model of about so many billion parameters, its shape interpolated from real models.
    Size(f64),
    /// A model of the user's own.
    Custom(Arc<CustomModel>),
}

impl ModelChoice {
    /// Its architecture.
    ///
    /// # Errors
    /// An [`Issue`] on [`Field::Model`] where the catalogue has no such model or its config cannot be understood.
    pub fn architecture(&self) -> Result<Arc<Architecture>, Issue> {
        match self {
            ModelChoice::Catalogue(id) => Ok(catalogue::architecture(id)?),
            ModelChoice::Size(billions) => Ok(catalogue::architecture_of_size(*billions)?),
            ModelChoice::Custom(model) => Ok(Arc::clone(&model.architecture)),
        }
    }

    /// What to call it.
    pub fn name(&self) -> String {
        match self {
            ModelChoice::Catalogue(id) => id.clone(),
            ModelChoice::Size(billions) => format!("a model of {billions} billion parameters"),
            ModelChoice::Custom(model) => model.name.clone(),
        }
    }
}

/// LoRA's settings, as peft names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lora {
    /// Which adapters of peft.
    pub tuner: Tuner,
    /// Rank of the adapters.
    pub rank: u64,
    /// Which linear layers are adapted.
    pub targets: LoraTargets,
    /// The layers by name: for [`LoraTargets::Named`], otherwise none.
    pub modules: Modules,
    /// Whether `lora_dropout` is above 0: then a mask per adapted layer is kept.
    pub dropout: bool,
    /// Whether adapters are float32 although the model is 16-bit (peft's default, `autocast_adapter_dtype=True`).
    pub fp32_adapters: bool,
    /// Whether copies of the embedding and of the output head are trained whole (`modules_to_save`).
    pub trains_embeddings: bool,
    /// Whether axolotl's autograd functions run a layer's projections with their adapters (`lora_qkv_kernel`, `lora_o_kernel` and
    /// `lora_mlp_kernel`, which are on in its files unless they say otherwise).
    pub fused: bool,
}

/// 4-bit loading, as bitsandbytes and peft name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantization {
    /// How the weights are stored and multiplied.
    pub format: WeightFormat,
    /// How many weights share a scale: of GPTQ's and AWQ's alone.
    pub group: GroupSize,
    /// `bnb_4bit_use_double_quant`.
    pub double_quant: bool,
    /// Whether `prepare_model_for_kbit_training` ran: everything that is not 4-bit becomes float32.
    pub prepare: bool,
}

impl Quantization {
    /// Whether what is not quantised becomes float32.
    pub const fn makes_rest_float32(self) -> bool {
        self.prepare && self.format.makes_rest_float32()
    }
}

/// The training loop's habits that memory depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loop {
    /// The script keeps the model's output alive (`out = model(...)`) through backward and step.
    pub keeps_outputs: bool,
    /// `zero_grad(set_to_none=True)`, PyTorch's default: gradients are freed after the step.
    pub grads_to_none: bool,
    /// Gradients are clipped by their norm.
    pub clips: bool,
    /// The forward pass fills a cache of keys and values (`config.use_cache`, which `Trainer` switches off).
    pub fills_cache: bool,
}

/// Ways to run the same step in less memory. Which of them a stack offers is its own affair; a scenario may ask for any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Savings {
    /// How the head and the loss are computed.
    pub loss: LossKernel,
    /// When the optimizer steps.
    pub step: StepTime,
    /// Where saved activations wait.
    pub offloading: Offloading,
}

/// Who is learned from; read for [`Task::Distil`].
#[derive(Clone, Debug, PartialEq)]
pub struct Teacher {
    /// Which model; `None` for the one that is trained.
    pub model: Option<ModelChoice>,
    /// How its weights lie on the card.
    pub weights: TeacherWeights,
}

/// Which card.
#[derive(Clone, Debug, PartialEq)]
pub enum GpuChoice {
    /// A card of the catalogue by its slug: `rtx-4090`.
    Catalogue(String),
    /// Any card with that much memory.
    Custom(Bytes),
}

/// What of a card is not for the tensors of the run, in MiB where nothing else is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserve {
    /// What others have of it: a desktop, a notebook that was left open.
    pub used: u64,
    /// What shall stay free.
    pub margin: u64,
    /// What the process takes before its first tensor; 0 for what was measured for the card's generation.
    pub context: u64,
    /// KiB of each cuBLAS workspace (`CUBLAS_WORKSPACE_CONFIG`); 0 for what PyTorch asks for.
    pub workspace: u64,
    /// Hundredths of the card that vLLM has beside the training (`vllm_gpu_memory_utilization`), where answers are generated in the
    /// same process (`vllm_mode="colocate"`); 0 where a server elsewhere generates them.
    pub vllm: u64,
    /// Whether that vLLM sleeps while the model is trained (`vllm_enable_sleep_mode`): its share is taken while it generates alone.
    pub sleeps: bool,
}

impl Reserve {
    /// The whole card for the run.
    pub const NONE: Reserve =
        Reserve { used: 0, margin: 0, context: 0, workspace: 0, vllm: 0, sleeps: false };

    /// What others have and what shall stay free.
    pub const fn apart(&self) -> Bytes {
        Bytes::mib(self.used.saturating_add(self.margin))
    }
}

/// The data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    /// Its tokens, padding left out.
    pub tokens: u64,
    /// How often it is gone through.
    pub epochs: u64,
    /// US cents that an hour of one GPU costs; 0 for what renting it costs at least.
    pub cents: u64,
}

impl Data {
    /// Tokens of the whole run.
    pub const fn trained(&self) -> u64 {
        self.tokens.saturating_mul(self.epochs)
    }

    /// US dollars that an hour of one GPU costs, where that was said.
    pub fn price(&self) -> Option<f64> {
        (self.cents > 0).then(|| self.cents as f64 / 100.0)
    }
}

/// A training run of a language model: everything that its memory depends on.
///
/// ```
/// use headroom::scenario::{Method, Scenario};
/// let scenario = Scenario { method: Method::Lora, batch: 4, ..Scenario::default() };
/// assert_eq!(scenario.sequence, 2048);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// What is done with the model.
    pub task: Task,
    /// What a task beyond fine-tuning works with.
    pub answers: Answers,
    /// What of which texts is embedded.
    pub embedding: Embedding,
    /// How answers are gone through by what learns from a value model.
    pub policy: PolicyBatches,
    /// Who is learned from.
    pub teacher: Teacher,
    /// What is evaluated after steps.
    pub evaluation: Evaluation,
    /// What happens outside the steps.
    pub spikes: Spikes,
    /// Which model.
    pub model: ModelChoice,
    /// Which weights are trained.
    pub method: Method,
    /// Adapters; read for [`Method::Lora`] and [`Method::Qlora`].
    pub lora: Lora,
    /// 4-bit loading; read for [`Method::Qlora`].
    pub quantization: Quantization,
    /// How a mixture has its experts.
    pub experts: Experts,
    /// Element types.
    pub precision: Precision,
    /// Products in 8 bits.
    pub float8: Float8Training,
    /// Rounding as if the model were quantised already.
    pub qat: QatTraining,
    /// What torch.compile compiles.
    pub compile: Compile,
    /// Optimizer.
    pub optimizer: Optimizer,
    /// Sequences per forward pass.
    pub batch: u64,
    /// Tokens per sequence; the most of them where lengths vary.
    pub sequence: u64,
    /// How long the sequences are.
    pub lengths: Lengths,
    /// Forward and backward passes per optimizer step.
    pub accumulation: u64,
    /// Recomputation.
    pub checkpointing: Checkpointing,
    /// Attention implementation.
    pub attention: AttentionKernel,
    /// The batch's mask.
    pub mask: Mask,
    /// Overrides every dropout of the config; `None` keeps the config's own.
    pub dropout: Option<u16>,
    /// The loop.
    pub training_loop: Loop,
    /// Whose code runs the model.
    pub stack: Stack,
    /// Ways to need less.
    pub savings: Savings,
    /// How it generates.
    pub generation: Generation,
    /// Pictures among the text.
    pub pictures: Pictures,
    /// How memory is got from the driver.
    pub allocator: Allocator,
    /// The card.
    pub gpu: GpuChoice,
    /// How many of them, and how they are used.
    pub cluster: Cluster,
    /// What of the card is not for the run's tensors.
    pub reserve: Reserve,
    /// How much is trained on: time and price follow from it.
    pub data: Data,
}

impl Default for Scenario {
    /// The page's first answer: Llama-3.1-8B with QLoRA on a 24 GB card, as transformers, peft and bitsandbytes run it.
    fn default() -> Scenario {
        Scenario {
            task: Task::Sft,
            answers: Answers {
                prompt: 512,
                reference: Reference::Scored,
                rollouts: Rollouts::Server,
                labels: 2,
            },
            embedding: Embedding { texts: 2, cached: 0, pooling: Pooling::Mean },
            // trl 1.12 experimental/ppo/ppo_config.py
            policy: PolicyBatches { rollout: 64, parts: 1, epochs: 4 },
            teacher: Teacher { model: None, weights: TeacherWeights::Fp32 },
            evaluation: Evaluation::OFF,
            spikes: Spikes::OFF,
            model: ModelChoice::Catalogue("meta-llama/Llama-3.1-8B".into()),
            method: Method::Qlora,
            lora: Lora {
                tuner: Tuner::Lora,
                rank: 16,
                targets: LoraTargets::AllLinear,
                modules: Modules::NONE,
                dropout: false,
                fp32_adapters: true,
                trains_embeddings: false,
                fused: false,
            },
            quantization: Quantization {
                format: WeightFormat::Nf4,
                group: GroupSize::Of128,
                double_quant: true,
                prepare: true,
            },
            experts: Experts::Tensors,
            precision: Precision::AmpBf16Weights,
            float8: Float8Training::OFF,
            qat: QatTraining::OFF,
            compile: Compile::Off,
            optimizer: Optimizer::AdamWFused,
            batch: 1,
            sequence: 2048,
            lengths: Lengths::Equal,
            accumulation: 1,
            checkpointing: Checkpointing::NonReentrant,
            attention: AttentionKernel::Sdpa,
            mask: Mask::None,
            dropout: None,
            training_loop: Loop {
                keeps_outputs: false,
                grads_to_none: true,
                clips: true,
                fills_cache: false,
            },
            stack: Stack::Transformers,
            savings: Savings {
                loss: LossKernel::Standard,
                step: StepTime::AfterBackward,
                offloading: Offloading::Off,
            },
            generation: Generation { new_tokens: 512, cache: CacheKind::Dynamic, sampling: Sampling::Greedy },
            pictures: Pictures::NONE,
            allocator: Allocator::Native,
            gpu: GpuChoice::Catalogue("rtx-4090".into()),
            cluster: Cluster::ONE,
            reserve: Reserve::NONE,
            data: Data { tokens: 10_000_000, epochs: 1, cents: 0 },
        }
    }
}

impl Scenario {
    /// Whether its optimizer projects the gradients of the target modules, onto as many directions as the rank says.
    pub fn projects(&self) -> bool {
        self.optimizer.projects() && self.method == Method::Full && self.task.trains()
    }

    /// Whether the model has experts of which it was compared how they run as layers of their own.
    fn has_expert_layers(&self) -> bool {
        let architecture = self.model.architecture();
        let family = architecture.ok().and_then(|architecture| architecture.family);
        family.is_some_and(|family| family.modeling.expert_layers.is_some())
    }

    /// Whether its experts can be layers of their own, as transformers fine-tunes them on one GPU.
    pub(crate) fn can_have_expert_layers(&self) -> bool {
        self.stack == Stack::Transformers
            && self.task == Task::Sft
            && !self.cluster.has_engine()
            && self.has_expert_layers()
    }

    /// Whether its experts are layers of their own, as transformers had them before 5.
    pub(crate) fn runs_expert_layers(&self) -> bool {
        self.experts == Experts::Layers && self.has_expert_layers()
    }

    /// Whether linear layers multiply in 8-bit floats while it trains.
    pub fn trains_in_float8(&self) -> bool {
        self.float8.is_on() && self.task.trains()
    }

    /// Whether linear layers round as if they were quantised already while it trains.
    pub fn trains_quantization_aware(&self) -> bool {
        self.qat.is_on() && self.task.trains()
    }

    /// Whether weights are wrapped for gathers in 8 bits where FSDP2 does not wrap them once more.
    pub(crate) fn wraps_float8_weights(&self) -> bool {
        self.trains_in_float8() && self.float8.gathers && !self.cluster.is_fsdp2()
    }

    /// Whether the trainer evaluates after some of its steps.
    pub fn evaluates(&self) -> bool {
        self.evaluation.keeps != Evaluates::Off && self.task.trains()
    }

    /// Whether a checkpoint is made after some of its steps.
    pub fn saves(&self) -> bool {
        self.spikes.saving != Saves::Off && self.task.trains()
    }

    /// Whether the first GPU gathers whole weights for its checkpoint.
    pub fn gathers_saved(&self) -> bool {
        self.saves() && self.spikes.saving == Saves::Full && self.cluster.shards()
    }

    /// Whether whole weights are saved, of the model at the end at least: unless its checkpoints are of each GPU's own part.
    pub fn saves_whole(&self) -> bool {
        !self.saves() || self.spikes.saving == Saves::Full
    }

    /// Where adapters are merged into the weights in the end: nowhere where there are none.
    pub fn merges(&self) -> Merges {
        if self.method.has_adapters() && self.task.trains() { self.spikes.merging } else { Merges::Off }
    }

    /// Whether it is a training on a single GPU of which DeepSpeed may lay something into the CPU's memory.
    pub(crate) fn offloads_alone(&self) -> bool {
        !self.cluster.is_many()
            && self.task.trains()
            && !matches!(self.task, Task::Classify | Task::Embed | Task::Distil | Task::Ppo)
            && matches!(self.stack, Stack::Transformers | Stack::Trl)
    }

    /// How its GPUs divide the model among them: as Megatron-core does, or each layer by transformers' own plan.
    pub(crate) fn divided(&self) -> Layout {
        match self.stack {
            Stack::Megatron => self.cluster.layout,
            Stack::Transformers if self.cluster.is_many() => Layout::of_tensors(self.cluster.layout.tensor),
            Stack::Transformers
            | Stack::Trl
            | Stack::Liger
            | Stack::Torchtune
            | Stack::Unsloth
            | Stack::Litgpt => Layout::WHOLE,
        }
    }

    /// The training library with the version that is followed: of trl the last one that has the task's trainer.
    pub fn library(&self) -> &'static str {
        match (self.stack, self.task) {
            (Stack::Trl, Task::Ppo) => "trl 1.12",
            // the version that was measured of those that make all logits
            (Stack::Trl, _) if self.savings.loss == LossKernel::Full => "trl 1.9",
            (Stack::Trl, _) if self.savings.loss == LossKernel::Axolotl => "axolotl 0.19",
            (Stack::Trl, _) if self.savings.loss == LossKernel::LogSoftmax => "LLaMA-Factory 0.9.5",
            (Stack::Transformers, _) if self.runs_expert_layers() => "transformers 4.57 + PEFT 0.21",
            (stack, _) => stack.label(),
        }
    }

    /// Whether trl makes checkpoints reentrant, whatever it is asked for: beside adapters under ZeRO-3 (trl 1.16
    /// trainer/sft_trainer.py), but for its trainers of odds (experimental/orpo/orpo_trainer.py).
    pub(crate) fn is_made_reentrant(&self) -> bool {
        Software::of(self.stack).trainer == Trainer::Trl
            && self.cluster.has_engine()
            && self.cluster.sharding == Sharding::Zero3
            && self.method.has_adapters()
            && self.task.trains()
            && !self.task.is_of_odds()
    }

    /// Whether axolotl's function wraps the model for FSDP2.
    pub(crate) fn is_wrapped_by_axolotl(&self) -> bool {
        let is_said = self.cluster.wrapped_by == WrappedBy::Axolotl;
        is_said && self.cluster.is_fsdp2() && Software::of(self.stack).runs_loop()
    }

    /// Which checkpoints its trainer makes.
    pub(crate) fn checkpoints(&self) -> Checkpointing {
        match self.checkpointing {
            Checkpointing::NonReentrant if self.is_made_reentrant() => Checkpointing::Reentrant,
            chosen => chosen,
        }
    }

    /// What each process needs of the CPU's memory where it keeps something there: that, or the whole model that it read before it had
    /// shards of it, where that is more.
    pub(crate) fn on_host_of_each(&self, memory: &crate::memory::Memory) -> Bytes {
        if memory.on_host == Bytes::ZERO {
            return Bytes::ZERO;
        }
        memory.on_host.max(self.loaded_by_each(memory.parameters.total).unwrap_or_default())
    }

    /// What each process reads into the CPU's memory where FSDP2 makes shards of a model that `from_pretrained` left there whole; none
    /// elsewhere.
    pub(crate) fn loaded_by_each(&self, parameters: u64) -> Option<Bytes> {
        let by_hand = matches!(self.stack, Stack::Transformers | Stack::Liger | Stack::Trl);
        let width = match self.precision {
            Precision::Fp32 | Precision::AmpBf16 | Precision::AmpFp16 => 4,
            Precision::Bf16 | Precision::Fp16 | Precision::AmpBf16Weights | Precision::AmpFp16Weights => 2,
        };
        let reads = by_hand && self.cluster.is_fsdp2() && self.method != Method::Qlora;
        reads.then(|| Bytes(parameters.saturating_mul(width)))
    }

    /// The architecture of the chosen model.
    ///
    /// # Errors
    /// An [`Issue`] on [`Field::Model`] where the catalogue has no such model or its config cannot be understood.
    pub fn architecture(&self) -> Result<Arc<Architecture>, Issue> {
        self.model.architecture()
    }

    /// What to call the model.
    pub fn model_name(&self) -> String {
        self.model.name()
    }

    /// The chosen card, all of it.
    pub(crate) fn card(&self) -> Result<Gpu, Issue> {
        Ok(match &self.gpu {
            GpuChoice::Catalogue(slug) => crate::hardware::gpu(slug)?,
            GpuChoice::Custom(memory) => Gpu::custom(*memory),
        })
    }

    /// The chosen card, its memory what others leave of it and what need not stay free ([`Reserve`]); a custom amount of memory
    /// is a card of that size with nothing else known. Beside others NCCL's buffers
    /// are part of what may lie outside of PyTorch's allocator at most ([`Gpu::context_most`]).
    ///
    /// # Errors
    /// An [`Issue`] on [`Field::Gpu`] where no card has that slug.
    pub fn gpu(&self) -> Result<Gpu, Issue> {
        let mut gpu = self.card()?;
        if self.reserve.context > 0 {
            gpu.context = Bytes::mib(self.reserve.context);
            gpu.context_most = gpu.context;
        }
        gpu.workspace = Some(Bytes::kib(self.reserve.workspace)).filter(|bytes| *bytes > Bytes::ZERO);
        if self.cluster.is_many() {
            gpu.context_most += NCCL;
        }
        let apart = self.reserve.apart() + self.colocated(gpu.memory);
        gpu.memory = gpu.memory.saturating_sub(apart);
        Ok(gpu)
    }
}

/// What is wrong with a model is wrong with the scenario's choice of one.
impl From<ModelError> for Issue {
    fn from(error: ModelError) -> Issue {
        let issue = Issue::error(Field::Model, error.message());
        Issue { fix: error.fix().map(str::to_owned), ..issue }
    }
}

/// A card that is not known is the scenario's choice of one.
impl From<UnknownGpu> for Issue {
    fn from(error: UnknownGpu) -> Issue {
        Issue::error(Field::Gpu, error.message()).with_fix(error.fix())
    }
}
