//! A job that can be run: its models as their code builds them.

use std::borrow::Cow;

use super::forward::stacks::megatron::{Share, micro_batches};
use super::forward::{Apart, Model, stacks};
use super::line::Line;
use super::machine::Machine;
use super::parallel::{Parallel, is_loaded_on_cpu, supported};
use super::support;
use crate::hardware::Device;
use crate::hardware::Gpu;
use crate::issue::Issue;
use crate::job::{Act, Batch, Job, Loss, Member, Training};
use crate::memory::Parameters;
use crate::model::Architecture;
use crate::model::modeling::Modeling;
use crate::scenario::software::{Software, Trainer};
use crate::scenario::{Cluster, Evaluates, Lengths, Mask, Offloading, Optimizer, Scenario, VllmShare};
use crate::units::Bytes;

/// A job whose models and acts were found to be modelled.
pub(super) struct Ready<'a> {
    pub device: Device,
    /// The card's memory.
    card: Bytes,
    pub cluster: Cluster,
    /// What is done in every round, with each batch where its texts lie.
    pub round: Vec<Act>,
    /// What a vLLM has of the card all the while.
    pub vllm: Option<VllmShare>,
    /// The batch as it is asked for, before its texts are laid out, where lengths vary.
    varying: Option<Batch>,
    pub models: Vec<Built<'a>>,
}

/// A member's model, before it is on a machine.
pub(super) struct Built<'a> {
    member: &'a Member,
    /// As its config has it.
    named: &'a Architecture,
    /// As its stack builds it.
    pub architecture: Cow<'a, Architecture>,
    modeling: Modeling,
    /// The largest batch that it is given.
    batch: Batch,
    /// Which part of a model of Megatron-core it is.
    part: Option<Share>,
}

/// Refuses a number of micro-batches that a member's schedule does not take.
fn own_micro_batches(job: &Job, member: usize) -> Result<(), Issue> {
    let mut acts = job.round.iter().filter(|act| act.member() == member && act.batch().is_some());
    acts.try_for_each(|act| micro_batches(job.cluster, act.times()))
}

impl<'a> Ready<'a> {
    /// A job, with the architectures of its members in their order.
    ///
    /// # Errors
    /// An [`Issue`] where a member or an act has a part that is not modelled.
    pub fn of(job: &'a Job, architectures: &[&'a Architecture], gpu: &Gpu) -> Result<Ready<'a>, Issue> {
        support::acts(job)?;
        support::vocabularies(job, architectures)?;
        let device = Device::of(gpu);
        let mut models = Vec::with_capacity(job.members.len());
        for (index, (member, named)) in job.members.iter().zip(architectures).enumerate() {
            let own = job.round.iter().filter(|act| act.members().any(|other| other == index));
            let batches = own.filter_map(Act::batch).map(|batch| batch.laid_out(member.stack));
            let Some(batch) = batches.max_by_key(Batch::tokens) else {
                return Err(support::idle(index));
            };
            support::balance(job, named, (index, member))?;
            support::liger_layers(job, member, named)?;
            support::under_trl(job, member, named)?;
            support::seeing(job, named, (index, member))?;
            support::float8(job, member, named, device)?;
            support::fake_quant(job, member, named)?;
            support::fused_adapters(job, member, named)?;
            support::compiled(job, member, named, device)?;
            let modeling = support::modeling(named, (member, batch), device)?;
            for act in &job.round {
                if let Act::Generate { member: own, how, .. } | Act::Rollout { member: own, how, .. } = act
                    && *own == index
                {
                    support::generation(named, modeling, (member, *how))?;
                }
                if let Act::Evaluate { member: own, batch, .. } = act
                    && *own == index
                {
                    support::evaluation(named, (member, *batch))?;
                }
                if let Act::Save { member: own, .. } = act
                    && *own == index
                {
                    support::saving(named, modeling, member)?;
                }
                if let Act::Merge { member: own } = act
                    && *own == index
                {
                    support::merging(named, member)?;
                }
            }
            let architecture = stacks::architecture(named, member, batch, job.cluster)?;
            supported(job, member, &architecture, modeling)?;
            let trainer = member.software().trainer;
            if trainer == Trainer::Megatron {
                own_micro_batches(job, index)?;
            }
            let part = (trainer == Trainer::Megatron).then(|| Share::of(job.cluster, named)).transpose()?;
            let batch = batch.in_contexts(job.cluster, trainer);
            models.push(Built { member, named, architecture, modeling, batch, part });
        }
        let laid_out = |act: &Act| {
            let stack = job.members[act.member()].stack;
            act.map_batch(|batch| batch.laid_out(stack).in_contexts(job.cluster, Software::of(stack).trainer))
        };
        // packed sequences are as good as full
        let varies = |batch: &Batch| batch.lengths != Lengths::Equal && batch.mask != Mask::Packed;
        let varying = job.round.iter().filter_map(Act::batch).find(varies);
        let Job { cluster, vllm, .. } = *job;
        let round = job.round.iter().map(laid_out).collect();
        Ok(Ready { device, card: gpu.tells(), cluster, round, vllm, varying, models })
    }

    /// Does something with the job of a scenario, of whose model the architecture is.
    ///
    /// # Errors
    /// See [`Ready::of`], and what is done may have its own.
    pub fn with<R>(
        scenario: &Scenario,
        architecture: &Architecture,
        gpu: &Gpu,
        run: impl FnOnce(&Ready<'_>) -> Result<R, Issue>,
    ) -> Result<R, Issue> {
        let job = Job::from(scenario);
        let others = job.others()?;
        let all: Vec<&Architecture> =
            others.iter().map(|other| other.as_deref().unwrap_or(architecture)).collect();
        let ready = Ready::of(&job, &all, gpu)?;
        // what is refused however layers run comes first
        match scenario.compiled_otherwise() {
            Some(otherwise) => Err(otherwise),
            None => run(&ready),
        }
    }

    /// Puts the models on a machine, with those layers by themselves that are `apart`.
    ///
    /// # Errors
    /// An [`Issue`] where adapters are trained and no layer has one.
    pub fn load<'m>(&'m self, machine: &'m Machine, apart: Apart) -> Result<Vec<Model<'m>>, Issue> {
        let load = |built: &'m Built<'a>| {
            let Built { member, named, architecture, modeling, batch, part } = built;
            machine.with(|state| state.parallel = self.engine());
            let given = (*member, *batch, *part);
            let model = Model::load(machine, architecture, *modeling, given, self.device, apart);
            let converted = support::adapted(&model, named)
                .and_then(|()| model.convert_to_float8())
                .and_then(|()| model.fake_quantization());
            converted.map(|()| model)
        };
        let models = self.models.iter().map(load).collect::<Result<Vec<_>, _>>()?;
        machine.with(|state| {
            state.parallel = self.engine();
            let (trained, others): (Vec<_>, Vec<_>) =
                models.iter().partition(|model| model.member.training.is_some());
            // trl gives a reference its engine as soon as there is a trainer, and the other model one when training begins
            let first = state.parallel.partitions_loaded();
            if first {
                others.iter().for_each(|model| state.wrap_reference(model.params.clone()));
            }
            trained.iter().for_each(|model| state.wrap(&model.wrapped(self.cluster)));
            if !first {
                others.iter().for_each(|model| state.wrap_reference(model.params.clone()));
            }
        });
        Ok(models)
    }

    /// The batch whose lengths vary, as it is asked for and where its texts lie.
    pub fn varying(&self) -> Option<(Batch, Batch)> {
        self.varying.zip(self.round.iter().find_map(Act::batch))
    }

    /// How the process works together with those on other GPUs.
    fn engine(&self) -> Parallel {
        let trained = self.models.iter().find(|built| built.member.training.is_some());
        let learns_labels = self.round.iter().any(|act| matches!(act, Act::Train { loss: Loss::Labels, .. }));
        let own = trained.or(self.models.first()).map(|built| (built.member, &*built.architecture));
        Parallel::of(self.cluster, own, learns_labels, self.card)
    }

    /// Whether a model generates.
    pub fn generates(&self) -> bool {
        self.round.iter().any(|act| matches!(act, Act::Generate { .. } | Act::Rollout { .. }))
    }

    /// Whether a trainer evaluates, and keeps what its batches leave.
    pub fn keeps_logits(&self) -> bool {
        let keeps = |act: &Act| matches!(act, Act::Evaluate { how, .. } if how.keeps == Evaluates::Metrics);
        self.round.iter().any(keeps)
    }

    /// Whether activations wait in the CPU's memory.
    pub fn offloads(&self) -> bool {
        self.models.iter().any(|built| built.member.offloading == Offloading::On)
    }

    /// Whether an optimizer leaves each parameter otherwise than it found it, one after the other, or some gradients go before others.
    pub fn steps_in_turn(&self) -> bool {
        let in_turn = |training: Training| {
            training.optimizer.is_of_whole_model()
                || training.optimizer == Optimizer::AdamWCpuOffloadGradients
        };
        self.models.iter().any(|built| built.member.training.is_some_and(in_turn))
    }

    /// Whether an engine lays out the loaded model anew, or moves it to the GPU, when the training has begun: nobody empties the
    /// allocator's cache then.
    pub fn lays_out_anew(&self) -> bool {
        let moves_in =
            |built: &Built<'_>| self.cluster.is_fsdp2() && is_loaded_on_cpu(self.cluster, built.member);
        self.cluster.is_zero() || self.models.iter().any(|built| built.part.is_some() || moves_in(built))
    }

    /// Whether the card has to hold the model while it is loaded. It is loaded whole here, as the measured runs did, and with
    /// ZeRO-3 it need not be: transformers makes every module under `deepspeed.zero.Init`, which partitions it at once.
    pub fn holds_the_loading(&self) -> bool {
        !self.engine().partitions_loaded()
    }

    /// Whether gradients go into a bucket that is reduced whenever it is full.
    pub fn fills_buckets(&self) -> bool {
        self.cluster.is_zero()
    }

    /// Whether every iteration after the first does the same.
    pub fn repeats_itself(&self) -> bool {
        let ends = |act: &Act| matches!(act, Act::Merge { .. });
        self.engine().repeats_itself() && !self.round.iter().any(ends)
    }

    /// Micro-batches of the longest training of a round.
    pub fn accumulation(&self) -> u64 {
        self.round.iter().map(Act::times).max().unwrap_or(1)
    }

    /// Micro-batches of such a training that are run by a schedule of Megatron-core; none where there is no such.
    pub fn scheduled(&self) -> Option<usize> {
        let share = self.models.iter().find_map(|built| built.part)?;
        Some(Line::of(self.cluster, share).micro_batches(self.accumulation()))
    }

    /// How many parameters the models on the machine have.
    pub fn parameters(&self, machine: &Machine, models: &[Model<'_>]) -> Parameters {
        let mut sum = Parameters::default();
        for (built, model) in self.models.iter().zip(models) {
            let trainable = machine.with(|state| state.trainable(&model.params));
            let trained = if built.member.training.is_some() { trainable } else { 0 };
            let adapters = if !built.member.adapts { 0 } else { trainable };
            sum.total = sum.total.saturating_add(built.architecture.parameters()).saturating_add(adapters);
            sum.trainable = sum.trainable.saturating_add(trained);
        }
        sum
    }

    /// An issue where a run of the job has no figure.
    ///
    /// # Errors
    /// See [`support::followed`].
    pub fn followed(&self, machine: &Machine, highest: Bytes) -> Result<(), Issue> {
        self.models.iter().try_for_each(|built| support::followed(machine, built.member, highest))
    }
}
