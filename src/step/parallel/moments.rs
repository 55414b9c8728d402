//! The moments at which an engine is asked: a model is wrapped, a gradient is there, a pass or a step begins or ends.

use std::ops::Range;

use super::megatron::Megatron;
use super::{Loading, Parallel, TunedKernel, Wrapped};
use crate::step::heap::StorageId;
use crate::step::machine::State;
use crate::step::params::ParamId;
use crate::work::Group;

/// What DDP stops at.
pub(in crate::step) const NO_GRADIENT: &str = "DDP over a trained parameter that gets no gradient, at which PyTorch stops unless it looks for unused parameters \
     (find_unused_parameters, which a loop of one's own leaves off)";

impl State {
    /// `DistributedDataParallel(model)` or `fully_shard(model)` of a model on the machine.
    pub fn wrap(&mut self, model: &Wrapped) {
        match &mut self.parallel {
            Parallel::Alone | Parallel::Tensor(_) => {}
            Parallel::Ddp(ddp) => ddp.wrap(&mut self.heap, &self.params, &model.params),
            Parallel::Fsdp2(fsdp) => {
                self.heap.alike &= fsdp.wrap(&self.params, model);
                match model.loading {
                    Loading::InPlace => {}
                    Loading::FromCpu => fsdp.move_in(&mut self.heap, &self.params),
                    Loading::FromCheckpoint => fsdp.load_shards(&mut self.heap, &self.params),
                    Loading::FromFirst => fsdp.distribute(&mut self.heap, &self.params),
                }
            }
            Parallel::Zero(zero) => zero.wrap(&mut self.heap, &mut self.params, model),
            Parallel::Zero3(zero) => zero.wrap(&mut self.heap, &mut self.params, model),
            Parallel::Megatron(engine) => engine.wrap(&mut self.heap, &mut self.params, model),
        }
    }

    /// What is done with a model beside the one that is trained, which only scores: FSDP2 has shards of it and ZeRO-3 partitions, others
    /// leave it whole on every GPU.
    pub fn wrap_reference(&mut self, params: Range<usize>) {
        match &mut self.parallel {
            Parallel::Alone
            | Parallel::Tensor(_)
            | Parallel::Ddp(_)
            | Parallel::Zero(_)
            | Parallel::Megatron(_) => {}
            Parallel::Fsdp2(fsdp) => fsdp.wrap_reference(&mut self.heap, &self.params, params),
            Parallel::Zero3(zero) => zero.wrap_reference(&mut self.heap, &mut self.params, params),
        }
    }

    /// The model whose first parameter that is runs from now on: forward, or backward again after another one.
    pub fn run_model(&mut self, first: usize) {
        if let Parallel::Zero3(zero) = &mut self.parallel {
            zero.run_model(first as ParamId);
        }
    }

    /// A parameter has a gradient that it had not.
    pub fn note_arrival(&mut self, param: ParamId) {
        match &mut self.parallel {
            Parallel::Alone | Parallel::Tensor(_) | Parallel::Fsdp2(_) => {}
            Parallel::Ddp(ddp) => ddp.arrived(&mut self.heap, &mut self.params, param, self.is_last),
            Parallel::Zero(zero) => zero.arrived(&mut self.heap, &mut self.params, param, self.is_last),
            Parallel::Zero3(zero) => zero.arrived(&mut self.heap, &mut self.params, param, self.is_last),
            Parallel::Megatron(_) => Megatron::arrived(&mut self.heap, &mut self.params, param),
        }
    }

    /// A model's forward pass begins; whether its layers are units.
    pub fn enter_forward(&mut self, has_units: bool) {
        match &mut self.parallel {
            Parallel::Alone | Parallel::Tensor(_) | Parallel::Zero(_) | Parallel::Megatron(_) => {}
            Parallel::Ddp(ddp) => {
                if ddp.enter_forward(&mut self.heap, &self.params) {
                    self.meet_unmodelled(NO_GRADIENT);
                }
            }
            Parallel::Fsdp2(fsdp) => {
                if let Some(unit) = fsdp.begin_pass(has_units) {
                    fsdp.enter(&mut self.heap, &self.params, unit);
                }
            }
            Parallel::Zero3(zero) => zero.enter_forward(&mut self.heap),
        }
    }

    /// The backward pass is through.
    pub fn leave_backward(&mut self) {
        match &mut self.parallel {
            Parallel::Alone | Parallel::Tensor(_) | Parallel::Ddp(_) | Parallel::Megatron(_) => {}
            Parallel::Fsdp2(fsdp) => {
                fsdp.leave_backward(&mut self.heap, &mut self.params, self.is_last);
            }
            Parallel::Zero(zero) => zero.leave_backward(&mut self.heap, &mut self.params, self.is_last),
            Parallel::Zero3(zero) => zero.leave_backward(&mut self.heap, &mut self.params, self.is_last),
        }
    }

    /// The optimizer is about to read the gradients.
    pub fn enter_step(&mut self) {
        match &mut self.parallel {
            Parallel::Alone | Parallel::Tensor(_) | Parallel::Megatron(_) => {}
            Parallel::Ddp(ddp) => ddp.enter_step(&mut self.heap),
            Parallel::Fsdp2(fsdp) => fsdp.enter_step(&mut self.heap, &mut self.params),
            Parallel::Zero(zero) => zero.enter_step(&mut self.heap),
            Parallel::Zero3(zero) => zero.enter_step(&mut self.heap, &self.params),
        }
    }

    /// It is about to step for that time.
    pub fn enter_partition(&mut self, number: usize) {
        match &mut self.parallel {
            Parallel::Alone
            | Parallel::Tensor(_)
            | Parallel::Ddp(_)
            | Parallel::Fsdp2(_)
            | Parallel::Zero(_)
            | Parallel::Megatron(_) => {}
            Parallel::Zero3(zero) => zero.enter_group(&mut self.heap, number),
        }
    }

    /// It has stepped so.
    pub fn leave_partition(&mut self) {
        match &mut self.parallel {
            Parallel::Alone
            | Parallel::Tensor(_)
            | Parallel::Ddp(_)
            | Parallel::Fsdp2(_)
            | Parallel::Megatron(_) => {}
            Parallel::Zero(zero) => zero.leave_step(&mut self.heap),
            Parallel::Zero3(zero) => zero.leave_group(&mut self.heap),
        }
    }

    /// The optimizer has stepped.
    pub fn leave_step(&mut self) {
        match &mut self.parallel {
            Parallel::Alone
            | Parallel::Tensor(_)
            | Parallel::Ddp(_)
            | Parallel::Fsdp2(_)
            | Parallel::Zero(_)
            | Parallel::Megatron(_) => {}
            Parallel::Zero3(zero) => zero.leave_step(&mut self.heap),
        }
    }

    /// `optimizer.zero_grad()` of an engine that keeps gradients of its own.
    pub fn zero_grad(&mut self) {
        if let Parallel::Megatron(engine) = &mut self.parallel {
            engine.zero_grad(&mut self.heap);
        }
    }

    /// Adds up what the GPUs that share a layer have of it.
    pub fn all_reduce(&mut self, bytes: u64) {
        self.gather_tokens(bytes.saturating_mul(2));
    }

    /// Gathers so many bytes of the GPUs that share a layer, or scatters their sum among them.
    pub fn gather_tokens(&mut self, bytes: u64) {
        self.heap.send_around(Group::Tensor, bytes, self.parallel.parts());
    }

    /// Makes what Transformer Engine hands autograd in the place of weights' gradients, where it is not there yet.
    pub fn keep_stand_ins(&mut self) {
        if let Parallel::Megatron(engine) = &mut self.parallel {
            engine.keep_stand_ins(&mut self.heap);
        }
    }

    /// A kernel of Megatron-core's runs whose settings are tried at first, restoring so many bytes in between.
    pub fn tune(&mut self, kernel: TunedKernel, restores: u64) {
        if let Parallel::Megatron(engine) = &mut self.parallel {
            engine.tune(&mut self.heap, kernel, restores);
        }
    }

    /// The backward of a layer that ran again is through: its input and the gradient of that stay with what its modules hold.
    pub fn hold_leaf(&mut self, layer: usize, leaf: [StorageId; 2]) {
        let Parallel::Megatron(engine) = &mut self.parallel else { return };
        if engine.held.get(layer).is_none_or(|held| !held.is_recomputed) {
            return;
        }
        let old = std::mem::replace(&mut engine.held(layer).leaf, leaf);
        leaf.into_iter().for_each(|storage| self.retain(storage));
        old.into_iter().for_each(|storage| self.release(storage));
    }

    /// Bytes that the first step of the engine's own optimizer makes, and that stay.
    pub fn moments_to_come(&self) -> u64 {
        let Parallel::Megatron(engine) = &self.parallel else { return 0 };
        engine.moments()
    }

    /// Steps, where the engine's optimizer has tensors of its own; whether it has.
    pub fn step_own(&mut self, clips: bool, is_first: bool) -> bool {
        let Parallel::Megatron(engine) = &mut self.parallel else { return false };
        engine.step(&mut self.heap, clips, is_first);
        true
    }
}
