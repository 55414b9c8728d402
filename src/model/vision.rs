//! How a tower looks at pictures: its dimensions, and how many patches and tokens the model's processor makes of a picture.
//!
//! How a picture is resized: `resizing.rs`; those that are cut: `tiles.rs`. The fewest and the most pixels are those of the models' own
//! preprocessor_config.json (docs/pictures.md says how they are known).

use super::blocks::Activation;
pub use super::resizing::{Picture, Resizing, Video};
use super::resizing::{all_between, as_many, between, no_longer};
use super::tiles;
pub use super::tiles::{Grid, Laid};

/// The fewest tokens of a time: `<0.2 seconds>`, whose digits are tokens of their own (the Qwen family's tokenizers); one more from the
/// tenth second on.
const TIME_TOKENS: u64 = 6;

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
    /// `Gemma4VisionModel` and `Gemma4MultimodalEmbedder`: every picture is as many patches, those that it lacks are padding; norms
    /// behind the halves of a layer too, and of heads.
    Gemma4,
    /// `InternVLVisionModel` and `InternVLMultiModalProjector`: pictures in tiles of one size, each with a class token; what the halves
    /// of a layer make is scaled by numbers that are trained, and neighbouring patches lie side by side before the projector.
    InternVl,
    /// `CLIPVisionModel` and `LlavaMultiModalProjector`: a class token before the patches of a picture, all pictures of one size, and
    /// tokens of what a layer before the last one makes.
    Llava,
    /// The same, and `LlavaNextModel`: pictures in tiles, whose tokens are laid side by side again, without what was padded and with a
    /// token that is trained behind each row.
    LlavaNext,
    /// `PixtralVisionModel` and `Mistral3MultiModalProjector`: all pictures in one sequence under a mask, whose patches are merged.
    Mistral3,
    /// `MllamaVisionModel`: as many tiles for every picture, a class token before each; layers behind gates come last, and the text attends to
    /// what is made in layers of its own.
    Mllama,
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
    /// Last layers that run although nobody looks at what they make.
    pub unseen: u64,
    /// Where the text attends to what it makes, and has no tokens of it among its own.
    pub crossed: Option<Crossed>,
    /// To what size the processor brings a picture.
    pub resizing: Resizing,
    /// What it makes of a video, where a step with some is followed.
    pub video: Option<Video>,
    /// Whether tokens are brought to one scale with numbers that are not trained.
    pub standardizes: bool,
}

/// A tower whose pictures the text attends to in layers of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crossed {
    /// Tiles of every picture, padding among them.
    pub tiles: u64,
    /// Last layers, whose halves are scaled behind gates.
    pub gated: u64,
    /// Layers whose outputs lie beside the last one's.
    pub beside: Vec<u64>,
}

/// To a multiple of how many rows a tile of mllama is padded (modeling_mllama.py `MllamaVisionModel.forward`).
const PADDED_ROWS: u64 = 8;

/// Patches that see each other: so many groups of the same length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pieces {
    /// Patches of each.
    pub length: u64,
    /// How many there are of them.
    pub count: u64,
}

impl Vision {
    /// Into how many tiles the processor cuts a picture: 1 where it cuts none.
    pub fn tiles(&self, picture: Picture) -> u64 {
        if let Some(crossed) = &self.crossed {
            return crossed.tiles;
        }
        match &self.resizing {
            Resizing::Tiles { side, most } => {
                let [rows, columns] = tiles::nearest_ratio(*most, *side, picture.sides());
                let tiles = rows.saturating_mul(columns);
                if tiles > 1 { tiles.saturating_add(1) } else { 1 }
            }
            Resizing::Points { side, points } => {
                let cut = tiles::cut(points, *side, picture.sides());
                cut.rows.saturating_mul(cut.columns).saturating_add(1)
            }
            Resizing::Square(_) | Resizing::Between(..) | Resizing::Longest(_) | Resizing::Most(_) => 1,
        }
    }

    /// Temporal patches: how many layers of patches follow each other in time, 1 of a picture.
    pub fn temporal_patches(&self, picture: Picture) -> u64 {
        self.video.map_or(1, |video| picture.frames.max(1).div_ceil(video.merge.max(1)))
    }

    /// The patches of a picture as the processor resizes it; where it is cut, of each tile, and of a video, of each of its
    /// [temporal patches](Vision::temporal_patches).
    pub fn grid(&self, picture: Picture) -> Grid {
        let factor = self.patch.saturating_mul(self.merge).max(1);
        let (height, width) = picture.sides();
        let of_video = self.video.filter(|_| picture.frames > 1);
        let all_frames = of_video.and_then(|video| Some((video.merge, video.pixels?)));
        let [rows, columns] = match &self.resizing {
            Resizing::Square(side) | Resizing::Tiles { side, .. } | Resizing::Points { side, .. } => {
                [*side, *side]
            }
            Resizing::Between(least, most) => match all_frames {
                Some(whole) => all_between(whole, factor, picture),
                None => between((*least, *most), factor, (height, width), [1.0; 2]),
            },
            Resizing::Longest(longest) => no_longer(*longest, factor, (height, width)),
            Resizing::Most(patches) => {
                as_many(*patches, (self.patch.max(1), self.merge.max(1)), (height, width))
            }
        };
        let patch = self.patch.max(1);
        Grid { rows: rows / patch, columns: columns / patch }
    }

    /// Patches of such a picture, or tile, as the batch has it, padding among them.
    pub fn lies(&self, grid: Grid) -> u64 {
        match self.resizing {
            Resizing::Most(patches) => patches,
            Resizing::Square(_)
            | Resizing::Between(..)
            | Resizing::Longest(_)
            | Resizing::Tiles { .. }
            | Resizing::Points { .. } => grid.patches(),
        }
    }

    /// Rows of such a picture, or tile, in the tower's layers: its patches, a class token where there is one, and mllama's padding.
    pub fn rows(&self, grid: Grid) -> u64 {
        match self.code {
            VisionCode::Llava | VisionCode::LlavaNext | VisionCode::InternVl => {
                grid.patches().saturating_add(1)
            }
            VisionCode::Mllama => grid.patches().saturating_add(1).next_multiple_of(PADDED_ROWS),
            VisionCode::Qwen2
            | VisionCode::Qwen2_5
            | VisionCode::Qwen3
            | VisionCode::Gemma3
            | VisionCode::Gemma4
            | VisionCode::Mistral3 => grid.patches(),
        }
    }

    /// Tokens of such a picture, or tile.
    pub fn tokens_of(&self, grid: Grid) -> u64 {
        grid.patches() / self.merge.saturating_mul(self.merge).max(1)
    }

    /// How the tiles of a picture are laid side by side again, where they are.
    pub fn laid(&self, picture: Picture) -> Option<Laid> {
        let Resizing::Points { side, points } = &self.resizing else { return None };
        let tiles = tiles::cut(points, *side, picture.sides());
        let along = side / self.patch.max(1);
        let whole =
            Grid { rows: tiles.rows.saturating_mul(along), columns: tiles.columns.saturating_mul(along) };
        Some(Laid { tiles, whole, seen: tiles::unpadded(whole, picture.sides()) })
    }

    /// Tokens of a picture, those of all its tiles together; a placeholder where the text attends to it.
    pub fn tokens(&self, picture: Picture) -> u64 {
        if self.crossed.is_some() {
            return 1;
        }
        let each = self.tokens_of(self.grid(picture));
        if let Some(laid) = self.laid(picture) {
            return each.saturating_add(laid.tokens());
        }
        each.saturating_mul(self.tiles(picture)).saturating_mul(self.temporal_patches(picture))
    }

    /// Tokens of text that the processor puts around a picture: a start and an end, in Gemma 3's a line break before and after
    /// them too (processing_gemma3.py `full_image_sequence`), in Mistral 3's a break after each row, the last of which is the end
    /// (processing_pixtral.py `replace_image_token`). LLaVA's, LLaVA-NeXT's and mllama's put none there (processing_llava.py, processing_mllama.py). Qwen3-VL's puts a
    /// start, an end and a time around each temporal patch of a video (processing_qwen3_vl.py `replace_video_token`).
    pub fn around(&self, picture: Picture) -> u64 {
        if picture.frames > 1 && self.video.is_some_and(|video| video.timed) {
            return self.temporal_patches(picture).saturating_mul(2 + TIME_TOKENS);
        }
        let grid = self.grid(picture);
        match self.code {
            VisionCode::Qwen2
            | VisionCode::Qwen2_5
            | VisionCode::Qwen3
            | VisionCode::Gemma4
            | VisionCode::InternVl => 2,
            VisionCode::Gemma3 => 4,
            VisionCode::Llava | VisionCode::LlavaNext | VisionCode::Mllama => 0,
            VisionCode::Mistral3 => grid.rows / self.merge.max(1),
        }
    }

    /// Whether a token has three positions, in time, rows and columns (the Qwen family), and the batch says how many rows and
    /// columns a picture has.
    pub fn places(&self) -> bool {
        match self.code {
            VisionCode::Qwen2 | VisionCode::Qwen2_5 | VisionCode::Qwen3 => true,
            VisionCode::Gemma3
            | VisionCode::Gemma4
            | VisionCode::InternVl
            | VisionCode::Llava
            | VisionCode::LlavaNext
            | VisionCode::Mistral3
            | VisionCode::Mllama => false,
        }
    }

    /// Whether the tower says which module embeds its patches (`get_input_embeddings`).
    pub fn names_patches(&self) -> bool {
        match self.code {
            VisionCode::Qwen2
            | VisionCode::Qwen2_5
            | VisionCode::Gemma3
            | VisionCode::InternVl
            | VisionCode::Llava
            | VisionCode::LlavaNext
            | VisionCode::Mistral3
            | VisionCode::Mllama => true,
            VisionCode::Qwen3 | VisionCode::Gemma4 => false,
        }
    }

    /// Layers of the text that run by themselves: what the first ones return is changed, and the one after them is given that.
    pub fn layers_apart(&self) -> usize {
        if self.deep.is_empty() { 0 } else { self.deep.len() + 1 }
    }

    /// What the patches of so many pictures see of each other in a layer.
    pub fn pieces(&self, grid: Grid, pictures: u64, layer: u64) -> Vec<Pieces> {
        if self.code == VisionCode::Mistral3 {
            // one sequence, in which a mask keeps the pictures apart
            return vec![Pieces { length: grid.patches().saturating_mul(pictures), count: 1 }];
        }
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
    use crate::model::read::parse;

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
            assert_eq!(qwen.tokens(Picture::still(height, width)), tokens, "{height} × {width}");
        }
        let qwen = tower("Qwen/Qwen3-VL-8B-Instruct");
        for (height, width, tokens) in [(448, 448, 196), (1080, 1920, 34 * 60), (8000, 8000, 128 * 128)] {
            assert_eq!(qwen.tokens(Picture::still(height, width)), tokens, "{height} × {width}");
        }
    }

    /// Computed with transformers' `smart_resize` of videos.
    #[test]
    fn a_video_becomes_as_many_tokens_as_the_processor_makes_of_its_frames() {
        let tokens = |model: &str, (frames, height, width)| {
            let (vision, picture) = (tower(model), Picture { height, width, frames });
            (vision.temporal_patches(picture), vision.tokens(picture), vision.around(picture))
        };
        // each frame is resized as a picture is: 480 × 640 pixels to 476 × 644
        assert_eq!(tokens("Qwen/Qwen2.5-VL-7B-Instruct", (16, 480, 640)), (8, 8 * 17 * 23, 2));
        assert_eq!(tokens("Qwen/Qwen2.5-VL-7B-Instruct", (5, 480, 640)), (3, 3 * 17 * 23, 2));
        // all frames together have no more pixels than that, and a time stands before each of their layers
        for (video, (layers, tokens_of_all)) in [
            ((16, 480, 640), (8, 2_400)),
            ((5, 720, 1280), (3, 2_640)),
            ((768, 1080, 1920), (384, 10_752)),
            ((2, 20, 90), (1, 4)),
            ((64, 360, 640), (32, 7_040)),
            ((6, 16, 16), (3, 3)),
        ] {
            let expected = (layers, tokens_of_all, layers * 8);
            assert_eq!(tokens("Qwen/Qwen3-VL-8B-Instruct", video), expected, "{video:?}");
        }
    }

    /// transformers' own defaults of llava, with 7,062,902,784 parameters on its meta device.
    const LLAVA: &str = include_str!("../../tests/fixtures/llava.json");

    /// transformers' own count of rows: 1,025 of a tile of 448 × 448 pixels, padded to a multiple of 8.
    #[test]
    fn every_picture_of_mllama_is_as_many_tiles_and_one_token() {
        let mllama = tower("meta-llama/Llama-3.2-11B-Vision");
        for (height, width) in [(1, 1), (448, 448), (1080, 1920)] {
            let picture = Picture::still(height, width);
            let rows = mllama.rows(mllama.grid(picture));
            assert_eq!((mllama.tiles(picture), mllama.tokens(picture), rows), (4, 1, 1_032), "{height}");
        }
        let gated = mllama.crossed.map(|crossed| (crossed.gated, crossed.beside.len()));
        assert_eq!((mllama.depth, gated), (40, Some((8, 5))));
    }

    #[test]
    fn every_picture_of_llava_is_as_many_tokens() {
        let architecture = parse(LLAVA).expect("it is read");
        assert_eq!(architecture.parameters(), 7_062_902_784);
        let llava = architecture.towers[0].vision.clone().expect("it is followed");
        for (height, width) in [(1, 1), (336, 336), (1080, 1920)] {
            let grid = llava.grid(Picture::still(height, width));
            assert_eq!(
                (llava.tokens(Picture::still(height, width)), llava.rows(grid)),
                (576, 577),
                "{height} × {width}"
            );
        }
    }

    #[test]
    fn a_layer_of_llava_is_looked_at_by_its_place() {
        for (layer, unseen) in
            [("-2", Some(1)), ("-1", Some(0)), ("0", Some(24)), ("23", Some(1)), ("-25", Some(24))]
        {
            let config = LLAVA.replace("_layer\": -2", &format!("_layer\": {layer}"));
            let towers = parse(&config).expect("it is read").towers;
            assert_eq!(towers[0].vision.as_ref().map(|own| own.unseen), unseen, "{layer}");
        }
        for layer in ["25", "-26", "1.5", "[-2, -1]"] {
            let config = LLAVA.replace("_layer\": -2", &format!("_layer\": {layer}"));
            assert!(parse(&config).is_ok_and(|own| own.towers[0].vision.is_none()), "{layer}");
        }
    }

    #[test]
    fn a_llava_with_another_tower_is_not_counted() {
        let other = LLAVA.replace("clip_vision_model", "pixtral");
        let error = parse(&other).expect_err("its tower is not known").to_string();
        assert!(error.contains("pixtral"), "{error}");
    }

    /// InternVL3's tower of 300 million parameters as OpenGVLab's own converter writes it, beside a text of Qwen2.5 0.5B's dimensions.
    const INTERNVL: &str = include_str!("../../tests/fixtures/internvl.json");

    #[test]
    fn a_picture_of_internvl_is_cut_into_tiles() {
        let architecture = parse(INTERNVL).expect("it is read");
        assert!(!architecture.head.tied, "published files have a head of their own");
        let internvl = architecture.towers[0].vision.clone().expect("it is followed");
        for (height, width, tiles) in
            [(448, 448, 1), (640, 480, 13), (1080, 1920, 9), (1, 1, 1), (1, 5000, 13)]
        {
            assert_eq!(
                (
                    internvl.tiles(Picture::still(height, width)),
                    internvl.tokens(Picture::still(height, width))
                ),
                (tiles, tiles * 256),
                "{height} × {width}"
            );
        }
        assert_eq!(internvl.rows(internvl.grid(Picture::still(640, 480))), 1025);
    }

    #[test]
    fn a_config_of_internvl_that_says_something_else_is_counted_or_refused() {
        for (own, other) in [("_layer\": -1", "_layer\": -4"), ("\"default\"", "\"full\""), ("448", "450")] {
            let towers = parse(&INTERNVL.replace(own, other)).expect("it is read").towers;
            assert!(towers[0].vision.is_none(), "{other}");
        }
        for ratio in ["0", "-0.5", "1e-9", "4", "1e400"] {
            assert!(
                parse(&INTERNVL.replace("_ratio\": 0.5", &format!("_ratio\": {ratio}"))).is_err(),
                "{ratio}"
            );
        }
        for size in ["[448]", "[0, 448]", "[]", "[448, 448, 448]", "\"448\""] {
            let config =
                INTERNVL.replace("\"patch_size\"", &format!("\"image_size\": {size}, \"patch_size\""));
            assert!(parse(&config).is_err(), "{size}");
        }
    }

    #[test]
    fn the_tiles_of_llava_next_are_laid_side_by_side() {
        let llava = tower("llava-hf/llava-v1.6-mistral-7b-hf");
        for (height, width, tiles, tokens) in
            [(448, 448, 5, 2928), (640, 480, 5, 2352), (1080, 1920, 5, 1948), (300, 1200, 4, 1890)]
        {
            assert_eq!(
                (llava.tiles(Picture::still(height, width)), llava.tokens(Picture::still(height, width))),
                (tiles, tokens),
                "{height} × {width}"
            );
        }
    }

    #[test]
    fn every_picture_of_gemma_3_is_as_many_tokens() {
        let gemma = tower("google/gemma-3-4b-it");
        for (height, width) in [(1, 1), (896, 896), (1080, 1920)] {
            let grid = gemma.grid(Picture::still(height, width));
            assert_eq!(
                (grid.patches(), gemma.tokens(Picture::still(height, width))),
                (64 * 64, 256),
                "{height} × {width}"
            );
        }
    }

    /// Computed with transformers' `get_resize_output_image_size`.
    #[test]
    fn a_picture_of_mistral_3_is_no_longer_than_it_may_be() {
        let mistral = tower("mistralai/Mistral-Small-3.1-24B-Instruct-2503");
        for (height, width, rows, columns) in [
            (448, 448, 16, 16),
            (1080, 1920, 31, 55),
            (14, 14, 1, 1),
            (100, 3000, 2, 55),
            (8000, 8000, 55, 55),
            (300, 500, 11, 18),
        ] {
            let picture = Picture::still(height, width);
            let grid = mistral.grid(picture);
            assert_eq!((grid.rows, grid.columns), (2 * rows, 2 * columns), "{height} × {width}");
            assert_eq!(
                mistral.tokens(picture) + mistral.around(picture),
                rows * (columns + 1),
                "{height} × {width}"
            );
        }
    }

    /// Computed with transformers' `get_aspect_ratio_preserving_size`.
    #[test]
    fn a_picture_of_gemma_4_is_as_many_patches_as_there_may_be() {
        let gemma = tower("google/gemma-4-31B-it");
        for (height, width, rows, columns) in [
            (448, 448, 16, 16),
            (1080, 1920, 12, 22),
            (14, 14, 16, 16),
            (672, 960, 14, 20),
            (8000, 8000, 16, 16),
            (10, 9000, 1, 280),
        ] {
            let grid = gemma.grid(Picture::still(height, width));
            assert_eq!((grid.rows, grid.columns), (3 * rows, 3 * columns), "{height} × {width}");
            assert_eq!(
                (gemma.tokens(Picture::still(height, width)), gemma.lies(grid)),
                (rows * columns, 2520),
                "{height} × {width}"
            );
        }
    }

    #[test]
    fn windows_cover_every_patch_once() {
        let qwen = tower("Qwen/Qwen2.5-VL-7B-Instruct");
        for (height, width) in [(448, 448), (532, 700), (28, 28), (1080, 1920)] {
            let grid = qwen.grid(Picture::still(height, width));
            for layer in [0, 7] {
                let pieces = qwen.pieces(grid, 3, layer);
                let patches: u64 = pieces.iter().map(|piece| piece.length * piece.count).sum();
                assert_eq!(patches, 3 * grid.patches(), "{height} × {width}");
            }
        }
    }
}
