//! What a training step needs: bytes by category, the peak of each phase and iteration.

mod rank;

use serde::{Deserialize, Serialize};

use crate::dtype::Dtype;
use crate::units::Bytes;
use crate::work::Work;

pub use rank::Rank;

/// What a live tensor is for. The order is the order of charts, legends and tables everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, Serialize)]
#[non_exhaustive]
pub enum Category {
    /// The model's weights, frozen or trained.
    Weights,
    /// LoRA adapters.
    Adapters,
    /// Scales and code books of 4-bit weights.
    QuantState,
    /// Buffers of the model (rotary frequencies, masks).
    Buffers,
    /// Gradients of the trained parameters.
    Gradients,
    /// Optimizer state.
    Optimizer,
    /// What forward keeps for backward.
    Activations,
    /// Keys and values of earlier tokens, which generation keeps.
    KvCache,
    /// Half-precision copies of float32 weights that autocast makes.
    WeightCopies,
    /// The logits, their float32 copies, and the gradients of these.
    Logits,
    /// Everything short-lived: recomputed activations, gradients of activations, temporaries of a kernel or of the
    /// optimizer's step.
    Temporaries,
    /// cuBLAS workspaces.
    Workspace,
    /// Token ids, labels and mask.
    Batch,
    /// What the allocator's blocks have beyond their tensors.
    Rounding,
}

impl Category {
    /// Every category, in the order in which they are shown.
    pub const ALL: [Category; Category::COUNT] = [
        Category::Weights,
        Category::Adapters,
        Category::QuantState,
        Category::Buffers,
        Category::Gradients,
        Category::Optimizer,
        Category::Activations,
        Category::KvCache,
        Category::WeightCopies,
        Category::Logits,
        Category::Temporaries,
        Category::Workspace,
        Category::Batch,
        Category::Rounding,
    ];

    /// How many there are.
    pub const COUNT: usize = 14;

    /// The name in exports and `--json`.
    pub const fn slug(self) -> &'static str {
        match self {
            Category::Weights => "weights",
            Category::Adapters => "adapters",
            Category::QuantState => "quant_state",
            Category::Buffers => "buffers",
            Category::Gradients => "gradients",
            Category::Optimizer => "optimizer",
            Category::Activations => "activations",
            Category::KvCache => "kv_cache",
            Category::WeightCopies => "weight_copies",
            Category::Logits => "logits",
            Category::Temporaries => "temporaries",
            Category::Workspace => "workspace",
            Category::Batch => "batch",
            Category::Rounding => "block_rounding",
        }
    }

    /// The name shown to people.
    pub const fn label(self) -> &'static str {
        match self {
            Category::Weights => "Weights",
            Category::Adapters => "LoRA adapters",
            Category::QuantState => "Quantisation scales",
            Category::Buffers => "Buffers",
            Category::Gradients => "Gradients",
            Category::Optimizer => "Optimizer state",
            Category::Activations => "Saved activations",
            Category::KvCache => "KV cache",
            Category::WeightCopies => "Weight copies",
            Category::Logits => "Logits and loss",
            Category::Temporaries => "Temporaries",
            Category::Workspace => "cuBLAS workspace",
            Category::Batch => "Input tokens",
            Category::Rounding => "Block rounding",
        }
    }

    /// One sentence on why it is there.
    pub const fn help(self) -> &'static str {
        match self {
            Category::Weights => {
                "The parameters of the model, in the element type they are stored in. A vLLM that generates on the same card has a copy of its own, which is among them."
            }
            Category::Adapters => "The low-rank matrices A and B of every adapted layer.",
            Category::QuantState => {
                "The scales of every block of 64 4-bit weights, themselves quantised under double quantisation."
            }
            Category::Buffers => "Tensors of the model that are not trained, such as rotary frequencies.",
            Category::Gradients => "One gradient per trained parameter, in the parameter's element type.",
            Category::Optimizer => {
                "What the optimizer remembers from step to step, such as Adam's two moments."
            }
            Category::Activations => "What the forward pass keeps because the backward pass needs it.",
            Category::KvCache => {
                "Keys and values of all earlier tokens in every layer, so that the next token is computed without running them again."
            }
            Category::WeightCopies => {
                "16-bit copies that autocast makes of float32 weights and keeps until backward has used them; of several GPUs the layers that each gathers from all shards."
            }
            Category::Logits => {
                "One number per token and vocabulary entry, several times over: the logits, their float32 copy, log-probabilities and gradients."
            }
            Category::Temporaries => {
                "Tensors that live for a moment: gradients of activations, recomputed activations, an optimizer's scratch space."
            }
            Category::Workspace => "Scratch space that cuBLAS keeps per thread and stream.",
            Category::Batch => "The token ids, labels and attention mask of the batch.",
            Category::Rounding => {
                "PyTorch's allocator does not split off the rest of a block below 1 MiB: the tensor has all of it, and \
                 memory_allocated() counts all of it."
            }
        }
    }

    /// Position in [`Self::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// Bytes by [`Category`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Parts(pub [u64; Category::COUNT]);

impl Parts {
    /// The bytes of one category.
    pub fn get(&self, category: Category) -> Bytes {
        Bytes(self.0[category.index()])
    }

    /// The sum of all; saturates.
    pub fn total(&self) -> Bytes {
        self.0.iter().map(|bytes| Bytes(*bytes)).sum()
    }

    /// The categories that have bytes, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Category, Bytes)> + '_ {
        Category::ALL
            .into_iter()
            .map(|category| (category, self.get(category)))
            .filter(|(_, bytes)| bytes.0 > 0)
    }
}

/// What is done in a phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, Serialize)]
#[non_exhaustive]
pub enum Stage {
    /// Forward pass and loss.
    #[default]
    Forward,
    /// Backward pass.
    Backward,
    /// Clipping and the optimizer's step.
    Step,
    /// A forward pass without gradients, where who scores does so alone: a reference.
    Score,
    /// The same by the model that is trained, of answers that it or a vLLM has generated.
    Policy,
    /// The same by the model as it was, where the one that is trained scores too.
    Reference,
    /// The forward pass over a prompt, up to its first new token.
    Prefill,
    /// One forward pass for each further token.
    Decode,
    /// The trainer's evaluation after a step: forward passes without gradients, and the logits that they leave.
    Evaluate,
    /// A checkpoint is saved after a step.
    Save,
    /// Adapters are merged into the weights when the training is over.
    Merge,
    /// The same as scoring, by a value model that is trained beside a policy.
    Value,
    /// The same by a reward model.
    Reward,
    /// vLLM, which slept, generates the answers.
    Wake,
}

impl Stage {
    /// Its name on charts.
    pub const fn title(self) -> &'static str {
        match self {
            Stage::Forward => "Forward",
            Stage::Backward => "Backward",
            Stage::Step => "Optimizer step",
            Stage::Score => "Scoring",
            Stage::Policy => "Scoring (policy)",
            Stage::Reference => "Scoring (reference)",
            Stage::Prefill => "Prompt (prefill)",
            Stage::Decode => "Generation (decode)",
            Stage::Evaluate => "Evaluation",
            Stage::Save => "Saving",
            Stage::Merge => "Merging",
            Stage::Value => "Value model",
            Stage::Reward => "Reward model",
            Stage::Wake => "Answers by vLLM",
        }
    }

    /// Its name where there is little room.
    pub const fn short(self) -> &'static str {
        match self {
            Stage::Forward => "Forward",
            Stage::Backward => "Backward",
            Stage::Step => "Optimizer",
            Stage::Score => "Scoring",
            Stage::Policy => "Policy",
            Stage::Reference => "Reference",
            Stage::Prefill => "Prefill",
            Stage::Decode => "Decode",
            Stage::Evaluate => "Evaluation",
            Stage::Save => "Saving",
            Stage::Merge => "Merging",
            Stage::Value => "Value",
            Stage::Reward => "Reward",
            Stage::Wake => "vLLM",
        }
    }
}

/// A phase of an iteration: a stage of one of the acts that make it up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, Serialize)]
pub struct Phase {
    /// Which act, counted from 0.
    pub act: u16,
    /// What is done.
    pub stage: Stage,
}

impl Phase {
    /// The name in exports and `--json`.
    pub const fn slug(self) -> &'static str {
        match self.stage {
            Stage::Forward => "forward",
            Stage::Backward => "backward",
            Stage::Step => "step",
            // who scores is told apart where two do
            Stage::Score | Stage::Policy => "score",
            Stage::Reference => "reference",
            Stage::Prefill => "prefill",
            Stage::Decode => "decode",
            Stage::Evaluate => "evaluate",
            Stage::Save => "save",
            Stage::Merge => "merge",
            Stage::Value => "value",
            Stage::Reward => "reward",
            Stage::Wake => "vllm",
        }
    }

    /// The name shown to people.
    pub const fn label(self) -> &'static str {
        match self.stage {
            Stage::Forward => "forward pass",
            Stage::Backward => "backward pass",
            Stage::Step => "optimizer step",
            Stage::Score => "scoring pass",
            Stage::Policy => "policy's scoring pass",
            Stage::Reference => "reference's scoring pass",
            Stage::Prefill => "pass over the prompt",
            Stage::Decode => "generation of tokens",
            Stage::Evaluate => "evaluation",
            Stage::Save => "saving of a checkpoint",
            Stage::Merge => "merging of adapters",
            Stage::Value => "value model's pass",
            Stage::Reward => "reward model's pass",
            Stage::Wake => "generation by vLLM",
        }
    }
}

/// The highest point of a phase and what was alive at it. The parts sum to the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Peak {
    /// Allocated bytes, as [`Counted`] says.
    pub bytes: Bytes,
    /// The same by category.
    pub parts: Parts,
}

/// The phases of some moments or peaks, each once, in the order in which they come.
pub(crate) fn in_order(phases: impl Iterator<Item = Phase>) -> Vec<Phase> {
    let mut found = Vec::new();
    for phase in phases {
        if !found.contains(&phase) {
            found.push(phase);
        }
    }
    found
}

/// The peaks of one iteration by phase.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Iteration {
    /// Each phase once, in the order in which they run.
    pub phases: Vec<(Phase, Peak)>,
}

impl Iteration {
    /// The phase with the highest peak, and that peak; the earlier phase where two are equal.
    pub fn highest(&self) -> (Phase, Peak) {
        let mut phases = self.phases.iter().copied();
        let first = phases.next().unwrap_or_default();
        phases.fold(first, |best, next| if next.1.bytes > best.1.bytes { next } else { best })
    }

    /// The peak of one phase: nothing where it did not run.
    pub fn phase(&self, phase: Phase) -> Peak {
        self.phases.iter().find(|(own, _)| *own == phase).map_or_else(Peak::default, |(_, peak)| *peak)
    }

    /// The peak of one phase, to be raised; the phase comes last where it has not run yet.
    pub(crate) fn phase_mut(&mut self, phase: Phase) -> &mut Peak {
        // the running one is the last more often than not
        let index = self.phases.iter().rposition(|(own, _)| *own == phase).unwrap_or_else(|| {
            self.phases.push((phase, Peak::default()));
            self.phases.len() - 1
        });
        &mut self.phases[index].1
    }
}

/// Counts of parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Parameters {
    /// All parameters of the model, adapters included.
    pub total: u64,
    /// Those that are trained.
    pub trainable: u64,
}

/// What the figures of a [`Memory`] count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum Counted {
    /// Tensors, each rounded up to 512 bytes: known in microseconds, and up to a few percent below [`Counted::Blocks`].
    Tensors,
    /// Blocks of PyTorch's allocator, as `torch.cuda.max_memory_allocated()` counts them.
    Blocks,
}

/// The weights of experts beside quantised ones: they are three-dimensional parameters and no linear layers, and stay whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[non_exhaustive]
pub struct WholeExperts {
    /// Of all layers, whoever has them among several GPUs.
    pub elements: u64,
    /// What they take.
    pub bytes: Bytes,
}

impl WholeExperts {
    /// More of them.
    pub(crate) fn add(&mut self, elements: u64, dtype: Dtype) {
        self.elements = self.elements.saturating_add(elements);
        self.bytes += Bytes(elements.saturating_mul(dtype.bytes()));
    }
}

/// What a process has of the CPU's memory for itself outside the steps. Pages of files that it reads are not counted: the system takes them
/// back when it needs room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[non_exhaustive]
pub struct HostSpikes {
    /// The most that saving takes of the first process: the copies of what a checkpoint's file of weights holds, all of which are there
    /// before it is written, or weights and optimizer states that an engine gathers or copies there.
    pub saving: Bytes,
    /// The same of every other process of a job of several.
    pub saving_each: Bytes,
    /// Where adapters are merged in the CPU's memory: the layers that were written to, the adapters, and what the largest layer takes
    /// meanwhile; nothing without adapters.
    pub merging: Bytes,
    /// The most that logits and labels of an evaluation take which waits for metrics.
    pub evaluation: Bytes,
}

/// What a training step of a scenario needs.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Memory {
    /// What the peaks count.
    pub counted: Counted,
    /// Parameter counts.
    pub parameters: Parameters,
    /// The first iteration: no optimizer state until its step.
    pub first: Iteration,
    /// Every later iteration.
    pub steady: Iteration,
    /// What is alive between two iterations.
    pub resting: Parts,
    /// What the driver takes outside PyTorch's allocator (context, kernels).
    pub context: Bytes,
    /// The most that offloaded activations take of the CPU's memory.
    pub offloaded: Bytes,
    /// What a paged optimizer keeps in CUDA's unified memory: on the card as far as that has room, and in the CPU's memory otherwise.
    pub paged: Bytes,
    /// Whose figures these are, where ranks differ.
    pub rank: Option<Rank>,
    /// What offloaded weights, gradients and optimizer state take of the CPU's memory, on behalf of this GPU.
    pub on_host: Bytes,
    /// What saving, merging and an evaluation take of the CPU's memory: of saving and merging, what they would take where they are not done.
    pub host: HostSpikes,
    /// What of a mixture is not quantised where all else is.
    pub experts: WholeExperts,
    /// What a later iteration computes, by phase; of a generation the passes that were run.
    pub work: Vec<(Phase, Work)>,
}

impl Memory {
    /// The highest point of the run: its phase, bytes and parts.
    pub fn peak(&self) -> (Phase, Peak) {
        let (first, steady) = (self.first.highest(), self.steady.highest());
        if first.1.bytes > steady.1.bytes { first } else { steady }
    }

    /// What a later iteration computes; what comes after some of them, or after the last, is left out.
    pub fn work(&self) -> Work {
        let own = self
            .work
            .iter()
            .filter(|(phase, _)| !matches!(phase.stage, Stage::Evaluate | Stage::Save | Stage::Merge));
        own.fold(Work::default(), |sum, (_, work)| sum.and(*work))
    }

    /// Allocated peak plus what lies outside the allocator: the least that the card must have.
    pub fn needed(&self) -> Bytes {
        self.peak().1.bytes + self.context
    }
}
