//! Weights of experts that a checkpoint has in parts.
//!
//! Source: transformers 5.17 core_model_loading.py `revert_weight_conversion`, `Chunk.convert`; compared with the allocator's trace.

use crate::memory::Category;
use crate::step::heap::StorageId;
use crate::step::machine::State;
use crate::step::params::ParamId;
use crate::step::what::{Dims, Source, What, roles};

static HALF: What = What::own(
    "gate_proj or up_proj",
    "one of the two matrices of every expert that lie in one tensor, cut out of it for the file: those of all layers are there before the first is written",
    Source::At("transformers, core_model_loading.py, revert_weight_conversion"),
);

impl State {
    /// Both halves of a weight, each a tensor of its own.
    pub fn cut_in_two(&mut self, weight: &ParamId) -> [StorageId; 2] {
        let param = *self.params.get(*weight);
        let outer = (self.module, self.layer, self.role);
        (self.module, self.layer, self.role) = (param.module, param.layer, &roles::SAVING);
        let bytes = (param.numel / 2).saturating_mul(param.dtype.bytes());
        let halves = [(); 2].map(|()| {
            let half = self.persistent(bytes, param.dtype, param.times, Category::Temporaries, &HALF);
            self.note_dims(half, Dims::matrix(param.rows / 2, param.numel / param.rows.max(1)));
            half
        });
        (self.module, self.layer, self.role) = outer;
        halves
    }
}
