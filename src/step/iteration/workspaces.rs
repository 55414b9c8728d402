//! cuBLASLt's workspaces.

use super::{CUBLASLT_WORKSPACE, Running};
use crate::job::{Act, Loss};
use crate::scenario::Checkpointing;
use crate::step::float8::Recipe;

impl Running<'_> {
    /// Those of the script's and of autograd's thread.
    pub(super) fn light_workspaces(&self, round: &[Act]) -> [u64; 2] {
        let [forward, backward] = self.workspaces_of_biases(round);
        if !self.model.has_float8() {
            return [forward, backward];
        }
        // of products in 8-bit floats, those with a scale for each row may be CUTLASS's in forward
        let by_row = Recipe::of(self.model.member.float8, false).is_some_and(Recipe::is_by_row);
        let none = by_row && self.model.device.has_cutlass_by_row();
        [if none { forward } else { CUBLASLT_WORKSPACE }, CUBLASLT_WORKSPACE]
    }

    /// `addmm` with a bias goes through it; only recomputation runs that in autograd's thread.
    fn workspaces_of_biases(&self, round: &[Act]) -> [u64; 2] {
        // and so does an 8-bit layer's `addmm` to a single row
        let single = |act: &Act| matches!(act, Act::Generate { batch, .. } if batch.sequences == 1);
        if self.model.has_8bit() && round.iter().any(single) {
            return [CUBLASLT_WORKSPACE, 0];
        }
        // cached gradients have the model run once more in backward
        let again = |act: &Act| matches!(act, Act::Train { loss: Loss::Contrast { cached: 1.., .. }, .. });
        // Megatron's biases are added by kernels of its own and Transformer Engine's
        if self.model.part.is_some() {
            return [0, 0];
        }
        match (self.model.has_bias(), self.model.member.checkpointing) {
            ((false, _), _) => [0, 0],
            _ if round.iter().any(again) => [CUBLASLT_WORKSPACE; 2],
            ((true, false), _) | (_, Checkpointing::Off) => [CUBLASLT_WORKSPACE, 0],
            ((true, true), _) => [CUBLASLT_WORKSPACE; 2],
        }
    }
}
