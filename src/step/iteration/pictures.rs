//! The pictures of a round whose answers are scored before they are learned from, as trl's `GRPOTrainer` and `RLOOTrainer` have them.
//!
//! Source: trl 1.16 trainer/grpo_trainer.py and trainer/rloo_trainer.py `_generate_and_score_completions`, `_prepare_inputs`;
//! trainer/utils.py `unsplit_pixel_values_by_grid`. Compared with the allocator's trace.

use super::Rounds;
use crate::dtype::Dtype;
use crate::job::{Act, Batch, Loss};
use crate::memory::Category;
use crate::step::machine::State;
use crate::step::tensor::{Tensor, Value};
use crate::step::what::{Source, What};

static PICTURES: What = What::own(
    "pictures",
    "patches of the pictures, their grids, and which tokens are theirs",
    Source::Modeling,
);

/// Those that are on the machine.
#[derive(Default)]
pub(super) struct Buffered<'m> {
    /// Those of all micro-batches at once, as the processor made them, up to the training.
    whole: Vec<Tensor<'m>>,
    /// Those of each micro-batch, copied out of the whole (`_buffered_inputs`): they stay until the next round's are there.
    apart: Vec<Tensor<'m>>,
    /// Whether those of this round are divided.
    pub are_divided: bool,
}

impl<'a> Rounds<'a> {
    /// Puts the pictures of a batch on the machine, which stay.
    pub(super) fn bring_pictures(&self, batch: Batch, times: u32) {
        if self.micro_batches().is_none() {
            std::mem::forget(self.pictures_of(batch, times));
        }
    }

    /// The pictures of so many batches.
    pub(super) fn pictures_of(&self, batch: Batch, times: u32) -> Vec<Tensor<'a>> {
        let [pixels, grids, kinds] =
            self.members.first().map_or([0; 3], |first| first.model.picture_bytes(batch));
        let made = [(pixels, Dtype::F32), (grids, Dtype::I64), (kinds, Dtype::I64)];
        let made = made.into_iter().filter(|(bytes, _)| *bytes > 0);
        made.map(|(bytes, dtype)| {
            let bring = |state: &mut State| state.persistent(bytes, dtype, times, Category::Batch, &PICTURES);
            let storage = self.machine.with(bring);
            let numel = bytes / dtype.bytes();
            Tensor { machine: self.machine, value: Value::plain(storage, numel, dtype) }
        })
        .collect()
    }

    /// What is learned from in a round whose pictures are made anew: a micro-batch, and how many there are.
    fn micro_batches(&self) -> Option<(Batch, u64)> {
        self.round.iter().find_map(|act| match *act {
            Act::Train { batch, loss: Loss::Reward { .. }, times, .. } if batch.pictures.count > 0 => {
                Some((batch, times))
            }
            _ => None,
        })
    }

    /// The pictures are there as soon as the answers are, of all micro-batches at once; before the training each micro-batch is given
    /// its own.
    pub(super) fn turn_pictures(&mut self, trains: bool) {
        let Some((batch, times)) = self.micro_batches().filter(|_| !self.buffered.are_divided) else {
            return;
        };
        if self.buffered.whole.is_empty() {
            let all = Batch { sequences: batch.sequences.saturating_mul(times), ..batch };
            self.buffered.whole = self.pictures_of(all, 1);
        }
        if trains {
            let apart = self.pictures_of(batch, u32::try_from(times).unwrap_or(u32::MAX));
            self.buffered.apart = apart;
            self.buffered.whole.clear();
            self.buffered.are_divided = true;
        }
    }
}
