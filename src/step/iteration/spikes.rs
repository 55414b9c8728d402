//! What stands outside the steps: a checkpoint that is saved after one, adapters that are merged after the last.

use super::Rounds;
use crate::memory::{Category, Phase, Stage};

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
