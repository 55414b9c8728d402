//! Everything that the user chose.

pub mod choices;
mod cluster;
pub(crate) mod colocated;
mod communicators;
mod compact;
pub mod count;
mod custom;
mod defaults;
mod engines;
mod host;
mod implied;
pub(crate) mod kernels;
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
pub mod tuners;
mod unsloth;
mod validate;

use std::sync::Arc;

use crate::hardware::UnknownGpu;
use crate::model::{Architecture, ModelError, catalogue};
use crate::units::Bytes;

pub use crate::issue::{Field, Issue, Severity};
pub use choices::{
    Allocator, AttentionKernel, CacheKind, Checkpointing, Choice, Compile, ContextComm, CpuOffload,
    Divergence, Evaluates, Experts, Float8, Float8Layers, GroupSize, LoraTargets, LossKernel, Mask, Merges,
    Method, Offloading, Optimizer, Overlap, Pooling, Precision, Qat, QatGroup, QatLayers, ReduceDtype,
    Reference, Rollouts, Sampling, Saves, ServedCache, ShardedLayers, Sharding, Stack, StepTime, Task,
    TeacherWeights, TransformerImpl, Tuner, VisionTower, WeightFormat, WrappedBy,
};
pub use cluster::{Cluster, DeepSpeed, Layout};
pub use colocated::VllmShare;
pub use communicators::Communicator;
pub use count::LARGEST;
pub use host::HostNeed;
pub use lengths::{Lengths, ParseLengthsError};
pub use low_bits::{Float8Training, QatTraining};
pub use modules::{Modules, UnknownModule};
pub use stages::{Division, Split};
pub use tasks::{Answers, Embedding, Evaluation, Generation, Pictures, PolicyBatches, Serving, Spikes};
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
    /// Whether Liger's kernels stand in for norms, rotary embeddings and gated products under trl's trainers, which keep their own
    /// head and loss (`use_liger_kernel=True`; trl 1.16 trainer/sft_trainer.py).
    pub liger_layers: bool,
}

/// Who is learned from; read for [`Task::Distil`].
#[derive(Clone, Debug, PartialEq)]
pub struct Teacher {
    /// Which model; `None` for the one that is trained.
    pub model: Option<ModelChoice>,
    /// How its weights lie on the card.
    pub weights: TeacherWeights,
    /// How its probabilities are held against the student's.
    pub divergence: Divergence,
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
    /// How vLLM serves it.
    pub serving: Serving,
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
            teacher: Teacher { model: None, weights: TeacherWeights::Fp32, divergence: Divergence::Tiles },
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
                liger_layers: false,
            },
            generation: Generation { new_tokens: 512, cache: CacheKind::Dynamic, sampling: Sampling::Greedy },
            serving: Serving::DEFAULT,
            pictures: Pictures::NONE,
            allocator: Allocator::Native,
            gpu: GpuChoice::Catalogue("rtx-4090".into()),
            cluster: Cluster::ONE,
            reserve: Reserve::NONE,
            data: Data { tokens: 10_000_000, epochs: 1, cents: 0 },
        }
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
