//! What stands outside the steps: a checkpoint that is saved after one, adapters that are merged after the last, a vLLM that wakes before one.

use super::Rounds;
use crate::dtype::Dtype;
use crate::memory::{Category, Phase, Stage};
use crate::scenario::VllmShare;
use crate::step::heap::StorageId;
use crate::step::what::{Source, What};
use crate::units::Bytes;

const VLLM: Source = Source::At("vLLM, v1/worker/gpu_worker.py and device_allocator/cumem.py");
static WEIGHTS: What =
    What::own("vLLM's weights", "vLLM's own copy of the weights, there while it is awake", VLLM);
static CACHE: What = What::own(
    "vLLM's keys and values",
    "what vLLM's share of the card leaves beside its weights: keys and values, and as much as its profiling run took, which a step of its own \
     needs; there while it is awake",
    VLLM,
);

impl Rounds<'_> {
    /// The trainer's checkpoint: `save_pretrained`, then `torch.save` of the optimizer's state, of which one tensor at a time is in the
    /// CPU's memory. Of the GPU that takes nothing, but for weights that the file has in parts, which are cut out all at once where they
    /// are whole, and for those that are divided and become whole for it.
    pub(super) fn save(&mut self, act: u16, member: usize, gathers: bool) {
        let phase = Phase { act, stage: Stage::Save };
        self.notes.begin(phase);
        let model = &self.members[member].model;
        self.machine.with(|state| {
            if gathers {
                state.gather_for_checkpoint(model.params.clone());
            } else if state.parallel.saves_from_gpu() {
                let cut: Vec<_> = model.cut_when_saved.iter().flat_map(|own| state.cut_in_two(own)).collect();
                cut.into_iter().for_each(|part| state.release(part));
            }
        });
        self.notes.end(phase);
    }

    /// What a vLLM has of the card that is awake: its weights, keys and values.
    pub(super) fn hold(&self, share: VllmShare) -> Vec<StorageId> {
        let VllmShare { weights, stored, cache } = share;
        let parts =
            [(weights, stored, Category::Weights, &WEIGHTS), (cache, Dtype::Bf16, Category::KvCache, &CACHE)];
        let parts = parts.into_iter().filter(|(bytes, ..)| *bytes > Bytes::ZERO);
        self.machine.with(|state| {
            parts
                .map(|(bytes, dtype, category, what)| state.persistent(bytes.0, dtype, 1, category, what))
                .collect()
        })
    }

    /// `empty_cache()`, `wake_up`, `generate`, `sleep(level=2)`, which empties the cache too.
    pub(super) fn wake(&mut self, act: u16, share: VllmShare) {
        let phase = Phase { act, stage: Stage::Wake };
        self.notes.begin(phase);
        self.machine.with(|state| state.empty_cache());
        let taken = self.hold(share);
        self.machine.with(|state| {
            taken.into_iter().for_each(|part| state.release(part));
            state.empty_cache();
        });
        self.notes.end(phase);
    }

    /// `merge_and_unload`, once the last round has run: layer after layer. The adapters stay, as the trainer's optimizer has them still.
    pub(super) fn merge(&mut self, act: u16, member: usize) {
        if !self.is_last {
            return;
        }
        let phase = Phase { act, stage: Stage::Merge };
        self.notes.begin(phase);
        self.machine.with(|state| {
            state.category = Category::Temporaries;
            self.members[member].model.mergeable.iter().for_each(|own| state.merge(own));
        });
        self.notes.end(phase);
    }
}
