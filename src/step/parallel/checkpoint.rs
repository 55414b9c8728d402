//! What an engine does for a checkpoint of whole weights: one parameter after the other is gathered and copied to the CPU's memory.
//!
//! Source: transformers 5.17 trainer.py `save_model`; accelerate 1.15 accelerator.py `get_state_dict` and utils/fsdp_utils.py; PyTorch 2.11
//! torch/distributed/_state_dict_utils.py `_gather_state_dict`; DeepSpeed 0.19.8 runtime/engine.py
//! `_zero3_consolidated_16bit_state_dict`. The order of events was compared with the allocator's trace.

use std::ops::Range;

use super::Parallel;
use crate::step::machine::State;

impl State {
    /// Has a model's divided weights become whole for the first rank's checkpoint. The optimizer's states, which FSDP2 gathers after
    /// them, are none larger than the weight that each belongs to.
    pub fn gather_for_checkpoint(&mut self, own: Range<usize>) {
        if self.heap.stopped {
            return;
        }
        match &mut self.parallel {
            Parallel::Fsdp2(fsdp) => fsdp.gather_for_checkpoint(&mut self.heap, self.params.of(&own)),
            Parallel::Zero3(zero) => zero.gather_for_checkpoint(&mut self.heap),
            Parallel::Alone
            | Parallel::Tensor(_)
            | Parallel::Ddp(_)
            | Parallel::Zero(_)
            | Parallel::Megatron(_) => {}
        }
    }
}

impl Parallel {
    /// Whether weights are on the GPU when a checkpoint's files are made of them: DeepSpeed and FSDP2 hand over copies in the CPU's memory,
    /// or shards as they are.
    pub fn saves_from_gpu(&self) -> bool {
        match self {
            Parallel::Alone | Parallel::Ddp(_) => true,
            Parallel::Tensor(_)
            | Parallel::Fsdp2(_)
            | Parallel::Zero(_)
            | Parallel::Zero3(_)
            | Parallel::Megatron(_) => false,
        }
    }
}
