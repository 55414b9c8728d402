//! What the choices of a scenario imply together.

use std::sync::Arc;

use super::software::{Software, Trainer};
use super::{
    Checkpointing, Evaluates, Experts, GpuChoice, Issue, Layout, LossKernel, Merges, Method, Saves, Scenario,
    Sharding, Stack, Task, WrappedBy,
};
use crate::hardware::{self, Gpu};
use crate::model::Architecture;
use crate::units::Bytes;

/// Answers to a prompt that trl's trainers ask for where nothing is said (trl 1.16, `num_generations`).
pub(crate) const USUAL_ANSWERS: u64 = 8;

impl Scenario {
    /// What its stack answers.
    pub(crate) fn software(&self) -> &'static Software {
        Software::with(self.stack, self.savings.liger_layers)
    }

    /// Whether trl's trainer was asked for Liger's kernels of the layers.
    pub(crate) fn runs_liger_layers(&self) -> bool {
        self.task.trains() && self.software().is_trl_with_liger()
    }

    /// Whether its model is one whose steps with pictures are followed.
    pub(crate) fn sees(&self) -> bool {
        self.architecture().is_ok_and(|architecture| architecture.vision().is_some())
    }

    /// Whether its model is given pictures to learn from.
    pub(crate) fn looks(&self) -> bool {
        self.pictures.count > 0 && self.task.trains() && self.sees()
    }

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

    /// Answers of a step on all GPUs, where answers are generated and rewarded.
    pub fn answers_in_a_step(&self) -> u64 {
        let each = self.batch.saturating_mul(self.accumulation);
        each.saturating_mul(self.cluster.gpus.max(1))
    }

    /// Answers to a prompt: trl's eight where a step's answers can be divided so, else the most below it that they can be, or all.
    pub fn answers_to_a_prompt(&self) -> u64 {
        let all = self.answers_in_a_step();
        (2..=USUAL_ANSWERS).rev().find(|count| all.is_multiple_of(*count)).unwrap_or(all)
    }

    /// The largest micro-batch up to its own of which a step's answers are whole groups of trl's eight; its own where none is.
    pub(crate) fn batch_of_whole_groups(&self) -> u64 {
        let of = |batch: &u64| Scenario { batch: *batch, ..self.clone() }.answers_to_a_prompt();
        let fewer = (1..=self.batch).rev().take(USUAL_ANSWERS as usize);
        fewer.into_iter().find(|batch| of(batch) == USUAL_ANSWERS).unwrap_or(self.batch)
    }

    /// The fewest sequences that its trainer takes at a time: KTO scores an answer against another one's prompt of the same batch, which a
    /// single one has not (trl 1.16, trainer/kto_trainer.py); LLaMA-Factory's trainer does not ask. Unsloth packs the answers of GRPO where
    /// there are several (unsloth/models/rl_replacements.py), and is followed there.
    pub(crate) fn least_batch(&self) -> u64 {
        let compares =
            self.task == Task::Kto && self.stack == Stack::Trl && self.savings.loss != LossKernel::LogSoftmax;
        let packs = self.task == Task::Grpo && self.stack == Stack::Unsloth;
        if compares || packs { 2 } else { 1 }
    }

    /// Whether it is a training on a single GPU of which DeepSpeed may lay something into the CPU's memory.
    pub(crate) fn offloads_alone(&self) -> bool {
        !self.cluster.is_many()
            && self.task.trains()
            && !matches!(self.task, Task::Classify | Task::Embed | Task::Distil | Task::Ppo)
            && matches!(self.stack, Stack::Transformers | Stack::Trl)
    }

    /// Whether its GPUs can share sequences by PyTorch's context parallelism, as accelerate has it (`ParallelismConfig(cp_size)`).
    pub(crate) fn can_share_sequences(&self) -> bool {
        self.cluster.is_many()
            && self.wrapper() == WrappedBy::Accelerate
            && self.task == Task::Sft
            && self.stack == Stack::Transformers
    }

    /// Among how many GPUs each sequence is divided so; 1 where it is not.
    pub(crate) fn contexts(&self) -> u64 {
        if self.can_share_sequences() { self.cluster.layout.context.max(1) } else { 1 }
    }

    /// How its GPUs divide the model among them: as Megatron-core does, or each layer by transformers' own plan.
    pub(crate) fn divided(&self) -> Layout {
        match self.stack {
            Stack::Megatron => self.cluster.layout,
            Stack::Transformers | Stack::Torchtitan if self.cluster.is_many() => {
                Layout { context: self.contexts(), ..Layout::of_tensors(self.cluster.layout.tensor) }
            }
            Stack::Transformers
            | Stack::Trl
            | Stack::Liger
            | Stack::Torchtune
            | Stack::Torchtitan
            | Stack::Unsloth
            | Stack::Litgpt => Layout::WHOLE,
        }
    }

    /// The training library with the version that is followed: of trl the last one that has the task's trainer.
    pub fn library(&self) -> &'static str {
        match (self.stack, self.task) {
            (Stack::Trl, Task::Ppo) => "trl 1.12",
            // the versions that were measured of those that make all logits
            (Stack::Trl, Task::Sft) if self.savings.loss == LossKernel::Full => "trl 1.6",
            (Stack::Trl, _) if self.savings.loss == LossKernel::Full => "trl 1.9",
            (Stack::Trl, _) if self.savings.loss == LossKernel::Axolotl => "axolotl 0.19",
            (Stack::Trl, _) if self.savings.loss == LossKernel::LogSoftmax => "LLaMA-Factory 0.9.5",
            (Stack::Transformers, _) if self.runs_expert_layers() => "transformers 4.57 + PEFT 0.21",
            (stack, _) => stack.label(),
        }
    }

    /// Whose code makes the loss, and of what else a stack has for itself: trl's fine-tuning up to 1.6 left it to transformers.
    pub(crate) fn loss_stack(&self) -> Stack {
        match (self.stack, self.task, self.savings.loss) {
            (Stack::Trl, Task::Sft, LossKernel::Full) => Stack::Transformers,
            (stack, _, _) => stack,
        }
    }

    /// Whether trl makes checkpoints reentrant, whatever it is asked for: beside adapters under ZeRO-3 (trl 1.16
    /// trainer/sft_trainer.py), but for its trainers of odds (experimental/orpo/orpo_trainer.py).
    pub(crate) fn is_made_reentrant(&self) -> bool {
        self.software().trainer == Trainer::Trl
            && self.cluster.has_engine()
            && self.cluster.sharding == Sharding::Zero3
            && self.method.has_adapters()
            && self.task.trains()
            && !self.task.is_of_odds()
    }

    /// Who wraps the model for FSDP2 where no trainer of its own does; a loop of one's own everywhere else.
    pub(crate) fn wrapper(&self) -> WrappedBy {
        match self.cluster.is_fsdp2() && self.software().runs_loop() {
            true => self.cluster.wrapped_by,
            false => WrappedBy::Loop,
        }
    }

    /// Whether transformers' Trainer, of which trl's are made, runs over what accelerate or axolotl wraps.
    pub(crate) fn is_under_trainer(&self) -> bool {
        self.software().trainer == Trainer::Trl || self.wrapper() != WrappedBy::Loop
    }

    /// Which checkpoints its trainer makes.
    pub(crate) fn checkpoints(&self) -> Checkpointing {
        match self.checkpointing {
            Checkpointing::NonReentrant if self.is_made_reentrant() => Checkpointing::Reentrant,
            chosen => chosen,
        }
    }

    /// The architecture of the chosen model.
    ///
    /// # Errors
    /// An [`Issue`] on [`Field::Model`](super::Field::Model) where the catalogue has no such model or its config cannot be understood.
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
            GpuChoice::Catalogue(slug) => hardware::gpu(slug)?,
            GpuChoice::Custom(memory) => Gpu::custom(*memory),
        })
    }

    /// The chosen card, its memory what others leave of it and what need not stay free ([`Reserve`](super::Reserve)); a custom amount of memory
    /// is a card of that size with nothing else known. Beside others NCCL's buffers
    /// are part of what may lie outside of PyTorch's allocator at most ([`Gpu::context_most`]).
    ///
    /// # Errors
    /// An [`Issue`] on [`Field::Gpu`](super::Field::Gpu) where no card has that slug.
    pub fn gpu(&self) -> Result<Gpu, Issue> {
        let mut gpu = self.card()?;
        if self.reserve.context > 0 {
            gpu.context = Bytes::mib(self.reserve.context);
            gpu.context_most = gpu.context;
        }
        gpu.workspace = Some(Bytes::kib(self.reserve.workspace)).filter(|bytes| *bytes > Bytes::ZERO);
        gpu.context_most += self.nccl().most;
        gpu.memory = gpu.memory.saturating_sub(self.reserve.apart());
        Ok(gpu)
    }
}
