//! How a tower looks at pictures: its dimensions, and how many patches and tokens the model's processor makes of a picture.
//!
//! Sources: transformers 5.17 models/qwen2_vl/image_processing_qwen2_vl.py `smart_resize`; the fewest and the most pixels are
//! those of the models' own preprocessor_config.json (docs/pictures.md says how they are known).

use super::blocks::Activation;

/// Whose code runs a tower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum VisionCode {
    /// `Qwen2VisionTransformerPretrainedModel`.
    Qwen2,
    /// `Qwen2_5_VisionTransformerPretrainedModel`: most layers see windows of a picture.
    Qwen2_5,
    /// `SiglipVisionModel` and `Gemma3MultiModalProjector`: pictures of one size, whose patches are averaged.
    Gemma3,
    /// `Qwen3VLVisionModel`: learned positions, interpolated; what some layers make is added to the text's first layers.
    Qwen3,
}

/// A tower that can be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vision {
    /// Whose code.
    pub code: VisionCode,
    /// Layers.
    pub depth: u64,
    /// Width of a layer.
    pub hidden: u64,
    /// Width inside its feed-forward network.
    pub inner: u64,
    /// Attention heads.
    pub heads: u64,
    /// Activation of the feed-forward network.
    pub act: Activation,
    /// Numbers in a patch: channels × frames × rows × columns.
    pub patch_numbers: u64,
    /// Rows and columns of a patch.
    pub patch: u64,
    /// Rows and columns of patches that become one token.
    pub merge: u64,
    /// Width of the text.
    pub text: u64,
    /// Tokens along a window's side; 0 where every layer sees whole pictures.
    pub window: u64,
    /// Layers that see whole pictures although there are windows.
    pub whole: Vec<u64>,
    /// Layers whose output becomes tokens too, which are added to what the text's first layers make (deepstack).
    pub deep: Vec<u64>,
    /// Rows and columns of pixels to which every picture is resized, where they are all of one size.
    pub side: Option<u64>,
    /// The fewest and the most pixels to which a picture is resized.
    pub pixels: (u64, u64),
}

/// Rows and columns of patches of one picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Rows.
    pub rows: u64,
    /// Columns.
    pub columns: u64,
}

impl Grid {
    /// Patches.
    pub fn patches(self) -> u64 {
        self.rows.saturating_mul(self.columns)
    }
}

/// Patches that see each other: so many groups of the same length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pieces {
    /// Patches of each.
    pub length: u64,
    /// How many there are of them.
    pub count: u64,
}

impl Vision {
    /// The patches of a picture of so many rows and columns of pixels, as the processor resizes it: both sides become multiples
    /// of a token's, and the whole lies between the fewest and the most pixels.
    pub fn grid(&self, height: u64, width: u64) -> Grid {
        if let Some(side) = self.side {
            let along = side / self.patch.max(1);
            return Grid { rows: along, columns: along };
        }
        let factor = self.patch.saturating_mul(self.merge).max(1);
        let (least, most) = self.pixels;
        let (tall, wide) = (height.max(1) as f64, width.max(1) as f64);
        // Python rounds halves to the even number
        let nearest = |side: f64| (side / factor as f64).round_ties_even() * factor as f64;
        let (mut rows, mut columns) = (nearest(tall), nearest(wide));
        if rows * columns > most as f64 {
            let beta = (tall * wide / most as f64).sqrt();
            let shrunk =
                |side: f64| ((side / beta / factor as f64).floor() * factor as f64).max(factor as f64);
            (rows, columns) = (shrunk(tall), shrunk(wide));
        } else if rows * columns < least as f64 {
            let beta = (least as f64 / (tall * wide)).sqrt();
            let grown = |side: f64| (side * beta / factor as f64).ceil() * factor as f64;
            (rows, columns) = (grown(tall), grown(wide));
        }
        let patch = self.patch.max(1);
        Grid { rows: rows as u64 / patch, columns: columns as u64 / patch }
    }

    /// Tokens of such a picture.
    pub fn tokens(&self, grid: Grid) -> u64 {
        grid.patches() / self.merge.saturating_mul(self.merge).max(1)
    }

    /// Tokens of text that the processor puts around a picture: a start and an end, in Gemma 3's a line break before and after
    /// them too (processing_gemma3.py `full_image_sequence`).
    pub fn around(&self) -> u64 {
        match self.code {
            VisionCode::Qwen2 | VisionCode::Qwen2_5 | VisionCode::Qwen3 => 2,
            VisionCode::Gemma3 => 4,
        }
    }

    /// Whether a token has three positions, in time, rows and columns (the Qwen family), and the batch says how many rows and
    /// columns a picture has.
    pub fn places(&self) -> bool {
        match self.code {
            VisionCode::Qwen2 | VisionCode::Qwen2_5 | VisionCode::Qwen3 => true,
            VisionCode::Gemma3 => false,
        }
    }

    /// Layers of the text that run by themselves: what the first ones return is changed, and the one after them is given that.
    pub fn layers_apart(&self) -> usize {
        if self.deep.is_empty() { 0 } else { self.deep.len() + 1 }
    }

    /// What the patches of so many pictures see of each other in a layer.
    pub fn pieces(&self, grid: Grid, pictures: u64, layer: u64) -> Vec<Pieces> {
        if self.window == 0 || self.whole.contains(&layer) {
            return vec![Pieces { length: grid.patches(), count: pictures }];
        }
        // windows of tokens; those at the far sides hold what is left (vision_utils.py `get_vision_window_index`)
        let sides = [grid.rows, grid.columns].map(|side| {
            let tokens = side / self.merge.max(1);
            [(self.window, tokens / self.window), (tokens % self.window, 1)]
        });
        let unit = self.merge.saturating_mul(self.merge);
        let mut pieces: Vec<Pieces> = Vec::with_capacity(4);
        for (rows, down) in sides[0] {
            for (columns, across) in sides[1] {
                let length = rows.saturating_mul(columns).saturating_mul(unit);
                let count = down.saturating_mul(across).saturating_mul(pictures);
                if length > 0 && count > 0 {
                    pieces.push(Pieces { length, count });
                }
            }
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::catalogue;

    fn tower(model: &str) -> Vision {
        let architecture = catalogue::architecture(model).expect("it is in the catalogue");
        architecture.towers[0].vision.clone().expect("it is followed")
    }

    /// Computed with transformers' `smart_resize`.
    #[test]
    fn a_picture_becomes_as_many_tokens_as_the_processor_makes_of_it() {
        let qwen = tower("Qwen/Qwen2.5-VL-7B-Instruct");
        for (height, width, tokens) in [
            (448, 448, 256),
            (1080, 1920, 39 * 69),
            (14, 14, 4),
            (100, 3000, 4 * 107),
            (8000, 8000, 128 * 128),
        ] {
            assert_eq!(qwen.tokens(qwen.grid(height, width)), tokens, "{height} × {width}");
        }
        let qwen = tower("Qwen/Qwen3-VL-8B-Instruct");
        for (height, width, tokens) in [(448, 448, 196), (1080, 1920, 34 * 60), (8000, 8000, 128 * 128)] {
            assert_eq!(qwen.tokens(qwen.grid(height, width)), tokens, "{height} × {width}");
        }
    }

    #[test]
    fn every_picture_of_gemma_3_is_as_many_tokens() {
        let gemma = tower("google/gemma-3-4b-it");
        for (height, width) in [(1, 1), (896, 896), (1080, 1920)] {
            let grid = gemma.grid(height, width);
            assert_eq!((grid.patches(), gemma.tokens(grid)), (64 * 64, 256), "{height} × {width}");
        }
    }

    #[test]
    fn windows_cover_every_patch_once() {
        let qwen = tower("Qwen/Qwen2.5-VL-7B-Instruct");
        for (height, width) in [(448, 448), (532, 700), (28, 28), (1080, 1920)] {
            let grid = qwen.grid(height, width);
            for layer in [0, 7] {
                let pieces = qwen.pieces(grid, 3, layer);
                let patches: u64 = pieces.iter().map(|piece| piece.length * piece.count).sum();
                assert_eq!(patches, 3 * grid.patches(), "{height} × {width}");
            }
        }
    }
}
