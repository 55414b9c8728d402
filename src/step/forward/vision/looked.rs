//! The pictures of a batch, as the processor hands them over.

use crate::dtype::Dtype;
use crate::job::Batch;
use crate::model::vision::{Grid, Vision};
use crate::step::forward::Model;

/// The pictures of a batch.
#[derive(Clone, Copy)]
pub(super) struct Looked<'v> {
    pub vision: &'v Vision,
    pub grid: Grid,
    /// How many.
    pub count: u64,
}

impl Looked<'_> {
    pub fn patches(self) -> u64 {
        self.grid.patches().saturating_mul(self.count)
    }
}

impl Model<'_> {
    /// What the processor adds to a batch: the pictures' patches in float32, rows and columns of each picture, and of each token
    /// whether it is a picture's.
    pub(in crate::step) fn picture_bytes(&self, batch: Batch) -> [u64; 3] {
        let Some(looked) = self.looked(batch) else { return [0; 3] };
        let numbers = looked.patches().saturating_mul(looked.vision.patch_numbers);
        [
            numbers.saturating_mul(Dtype::F32.bytes()),
            if looked.vision.places() { looked.count.saturating_mul(3 * Dtype::I64.bytes()) } else { 0 },
            batch.tokens().saturating_mul(Dtype::I64.bytes()),
        ]
    }

    pub(super) fn looked(&self, batch: Batch) -> Option<Looked<'_>> {
        let vision = self.tower.as_ref()?.vision;
        let pictures = batch.pictures;
        (pictures.count > 0).then(|| Looked {
            vision,
            grid: vision.grid(pictures.height, pictures.width),
            count: pictures.count.saturating_mul(batch.sequences),
        })
    }
}
