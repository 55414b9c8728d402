//! Which linear layers of a model round while they are trained (torchao's `quantize_` with a `QATConfig`).

use super::Model;
use super::linears::{Found, Place};
use crate::issue::{Field, Issue};
use crate::scenario::QatLayers;
use crate::step::fake_quant::FakeQuantizer;

impl Model<'_> {
    /// Puts fake quantizers into the layers that are asked for.
    ///
    /// # Errors
    /// An [`Issue`] where a group of weights does not divide a row.
    pub fn fake_quantization(&self) -> Result<(), Issue> {
        let qat = self.member.qat;
        let Some(quantizer) = FakeQuantizer::of(qat).filter(|_| self.member.training.is_some()) else {
            return Ok(());
        };
        let found = self.found_linears().into_iter();
        let taken: Vec<_> =
            found.filter(|layer| qat.layers == QatLayers::All || layer.place != Place::Head).collect();
        let undivided = |layer: &&Found| !layer.shape.input.is_multiple_of(quantizer.group);
        if let Some(layer) = taken.iter().find(undivided).filter(|_| qat.scheme.has_groups()) {
            let message = format!(
                "torchao stops at {}: {} weights of a row are no multiple of the {} that share a scale",
                layer.name, layer.shape.input, quantizer.group
            );
            return Err(Issue::error(Field::QatGroup, message).with_fix("choose a smaller group"));
        }
        self.machine.with(|state| {
            for layer in taken {
                state.params.list[layer.weight as usize].fake = Some(quantizer);
            }
        });
        Ok(())
    }

    /// Whether a layer keeps the scales of its last pass.
    pub fn keeps_scales(&self) -> bool {
        FakeQuantizer::of(self.member.qat).is_some_and(FakeQuantizer::keeps_scales)
    }
}
