//! The pictures of a batch, as the processor hands them over.

use crate::dtype::Dtype;
use crate::job::Batch;
use crate::model::vision::{Grid, Laid, Pieces, Vision, VisionCode};
use crate::step::forward::Model;

/// The most pictures, or calls of a layer's kernel, that are gone through one by one; more are gone through as one, so that no batch is too
/// many events.
pub(super) const MOST_APART: u64 = 64;

/// The pictures of a batch.
#[derive(Clone, Copy)]
pub(super) struct Looked<'v> {
    pub vision: &'v Vision,
    /// The patches of each, of each tile, or of each temporal patch of a video.
    pub grid: Grid,
    /// How many the tower looks at: the tiles of all, where they are cut, and each temporal patch of a video.
    pub count: u64,
    /// How many there are.
    pub pictures: u64,
    /// How the tiles of each are laid side by side again, where they are.
    pub laid: Option<Laid>,
}

impl Looked<'_> {
    pub fn patches(self) -> u64 {
        self.grid.patches().saturating_mul(self.count)
    }

    /// Numbers of all their patches.
    pub fn numbers(self) -> u64 {
        self.patches().saturating_mul(self.vision.patch_numbers)
    }

    /// The rows of each picture's tiles, which see each other.
    pub fn of_all_tiles(self) -> Pieces {
        let tiles = self.count / self.pictures.max(1);
        Pieces { length: self.vision.rows(self.grid).saturating_mul(tiles), count: self.pictures }
    }

    /// Patches of all pictures as the batch has them, padding among them.
    pub fn lies(self) -> u64 {
        self.vision.lies(self.grid).saturating_mul(self.count)
    }
}

impl Model<'_> {
    /// What the processor adds to a batch: the pictures' patches in float32, rows and columns of each picture, and of each token
    /// whether it is a picture's (processing_pixtral.py, processing_llava.py, processing_llava_next.py, processing_internvl.py and processing_llama4.py `return_mm_token_type_ids`:
    /// theirs do not say).
    pub(in crate::step) fn picture_bytes(&self, batch: Batch) -> [u64; 3] {
        let Some(looked) = self.looked(batch) else { return [0; 3] };
        let numbers = looked.lies().saturating_mul(looked.vision.patch_numbers);
        let sides = match looked.vision.code {
            VisionCode::Qwen2 | VisionCode::Qwen2_5 | VisionCode::Qwen3 => 3,
            VisionCode::Mistral3 | VisionCode::Pixtral | VisionCode::LlavaNext => 2,
            // where each patch is
            VisionCode::Gemma4 => looked.vision.lies(looked.grid).saturating_mul(2),
            VisionCode::Gemma3 | VisionCode::InternVl | VisionCode::Llama4 | VisionCode::Llava => 0,
            // which arrangement of tiles it has, and which of them are there
            VisionCode::Mllama => looked.count / looked.pictures.max(1) + 1,
        };
        let mut kinds = batch.tokens().saturating_mul(Dtype::I64.bytes());
        if let Some(crossed) = &looked.vision.crossed {
            // which tile each token sees
            kinds = kinds.saturating_mul(batch.pictures.count).saturating_mul(crossed.tiles);
        }
        let says_kinds = !matches!(
            looked.vision.code,
            VisionCode::Mistral3
                | VisionCode::Pixtral
                | VisionCode::Llama4
                | VisionCode::Llava
                | VisionCode::LlavaNext
                | VisionCode::InternVl
        );
        [
            numbers.saturating_mul(looked.vision.pixels().bytes()),
            looked.pictures.saturating_mul(sides).saturating_mul(Dtype::I64.bytes()),
            if says_kinds { kinds } else { 0 },
        ]
    }

    pub(super) fn looked(&self, batch: Batch) -> Option<Looked<'_>> {
        let vision = self.tower.as_ref()?.vision;
        let pictures = batch.pictures;
        let picture = pictures.each();
        let all = pictures.count.saturating_mul(batch.sequences);
        (pictures.count > 0).then(|| Looked {
            vision,
            grid: vision.grid(picture),
            count: all.saturating_mul(vision.tiles(picture)).saturating_mul(vision.temporal_patches(picture)),
            pictures: all,
            laid: vision.laid(picture),
        })
    }
}
