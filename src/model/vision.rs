//! How a tower looks at pictures: its dimensions, and how many patches and tokens the model's processor makes of a picture.
//!
//! How a picture is resized: `resizing.rs`; those that are cut: `tiles.rs`. The fewest and the most pixels are those of the models' own
//! preprocessor_config.json (docs/pictures.md says how they are known).

use super::blocks::Activation;
pub use super::resizing::{Picture, Resizing, Video};
use super::resizing::{all_between, as_many, between, no_longer};
use super::tiles;
pub use super::tiles::{Grid, Laid};
use crate::dtype::Dtype;

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
    /// `Llama4VisionModel` and `Llama4MultiModalProjector`: pictures in tiles of one size, patches of a product, and behind those of each a class
    /// token; heads are turned by complex numbers, and neighbouring patches lie side by side before a network of the tower's.
    Llama4,
    /// `CLIPVisionModel` and `LlavaMultiModalProjector`: a class token before the patches of a picture, all pictures of one size, and
    /// tokens of what a layer before the last one makes.
    Llava,
    /// The same, and `LlavaNextModel`: pictures in tiles, whose tokens are laid side by side again, without what was padded and with a
    /// token that is trained behind each row.
    LlavaNext,
    /// `PixtralVisionModel` and `Mistral3MultiModalProjector`: all pictures in one sequence under a mask, whose patches are merged.
    Mistral3,
    /// `PixtralVisionModel` and `LlavaMultiModalProjector`: all pictures in one sequence under a mask, each patch of which is a token.
    Pixtral,
    /// `MllamaVisionModel`: as many tiles for every picture, a class token before each; layers behind gates come last, and the text attends to
    /// what is made in layers of its own.
    Mllama,
    /// `Qwen3VLVisionModel`: learned positions, interpolated; what some layers make is added to the text's first layers.
    Qwen3,
}

impl VisionCode {
    /// All of them.
    pub const ALL: [VisionCode; 12] = [
        VisionCode::Qwen2,
        VisionCode::Qwen2_5,
        VisionCode::Qwen3,
        VisionCode::Gemma3,
        VisionCode::Gemma4,
        VisionCode::InternVl,
        VisionCode::Llama4,
        VisionCode::Llava,
        VisionCode::LlavaNext,
        VisionCode::Mistral3,
        VisionCode::Pixtral,
        VisionCode::Mllama,
    ];

    /// The modules of a model that are its tower and what makes tokens of it, by name.
    pub fn modules(self) -> &'static [&'static str] {
        match self {
            VisionCode::Qwen2 | VisionCode::Qwen2_5 | VisionCode::Qwen3 => &["visual"],
            VisionCode::Gemma3
            | VisionCode::InternVl
            | VisionCode::Llava
            | VisionCode::LlavaNext
            | VisionCode::Mistral3
            | VisionCode::Pixtral => &["vision_tower", "multi_modal_projector"],
            VisionCode::Gemma4 => &["vision_tower", "embed_vision"],
            VisionCode::Llama4 | VisionCode::Mllama => &["vision_model", "multi_modal_projector"],
        }
    }

    /// The pattern with which peft keeps adapters off these (`exclude_modules`).
    pub fn pattern(self) -> String {
        match self.modules() {
            [one] => format!(".*{one}.*"),
            several => format!(".*({}).*", several.join("|")),
        }
    }

    /// The class of layers that the code of a model or its tower names (`_no_split_modules`) and the model has not. accelerate and axolotl look
    /// for all that are named, and stop there. Source: transformers 5.17 models/siglip/modeling_siglip.py, clip/modeling_clip.py,
    /// gemma4/modeling_gemma4.py.
    pub fn missing_layers(self) -> Option<&'static str> {
        match self {
            VisionCode::Gemma3 => Some("SiglipMultiheadAttentionPoolingHead"),
            VisionCode::Llava | VisionCode::LlavaNext => Some("CLIPTextEmbeddings"),
            VisionCode::Gemma4 => Some("Gemma4AudioLayer"),
            VisionCode::Qwen2
            | VisionCode::Qwen2_5
            | VisionCode::Qwen3
            | VisionCode::InternVl
            | VisionCode::Llama4
            | VisionCode::Mistral3
            | VisionCode::Pixtral
            | VisionCode::Mllama => None,
        }
    }

    /// The class of the text's layers of such a model, which they are told to look for (`transformer_layer_cls_to_wrap`); none where the text is
    /// another family's.
    pub fn told_layers(self) -> Option<&'static str> {
        match self {
            VisionCode::Gemma3 => Some("Gemma3DecoderLayer"),
            VisionCode::Gemma4 => Some("Gemma4TextDecoderLayer"),
            VisionCode::Llava
            | VisionCode::LlavaNext
            | VisionCode::Qwen2
            | VisionCode::Qwen2_5
            | VisionCode::Qwen3
            | VisionCode::InternVl
            | VisionCode::Llama4
            | VisionCode::Mistral3
            | VisionCode::Pixtral
            | VisionCode::Mllama => None,
        }
    }
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
            Resizing::Canvas { .. } => {
                let tiles = self.canvas(picture);
                if tiles > 1 { tiles.saturating_add(1) } else { 1 }
            }
            Resizing::Square(_) | Resizing::Between(..) | Resizing::Longest(_) | Resizing::Most(_) => 1,
        }
    }

    /// Tiles of the canvas that a picture is brought to, without the whole; none where it is not brought to one.
    fn canvas(&self, picture: Picture) -> u64 {
        let Resizing::Canvas { side, most } = &self.resizing else { return 0 };
        let [rows, columns] = tiles::canvas(*most, *side, picture.sides());
        rows.saturating_mul(columns)
    }

    /// The element type of a batch's pictures; llama4's processor computes in bfloat16 (image_processing_llama4.py `rescale_and_normalize`).
    pub fn pixels(&self) -> Dtype {
        match self.code {
            VisionCode::Llama4 => Dtype::Bf16,
            _ => Dtype::F32,
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
            Resizing::Square(side)
            | Resizing::Tiles { side, .. }
            | Resizing::Points { side, .. }
            | Resizing::Canvas { side, .. } => [*side, *side],
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
            | Resizing::Points { .. }
            | Resizing::Canvas { .. } => grid.patches(),
        }
    }

    /// Rows of such a picture, or tile, in the tower's layers: its patches, a class token where there is one, and mllama's padding.
    pub fn rows(&self, grid: Grid) -> u64 {
        match self.code {
            VisionCode::Llama4 | VisionCode::Llava | VisionCode::LlavaNext | VisionCode::InternVl => {
                grid.patches().saturating_add(1)
            }
            VisionCode::Mllama => grid.patches().saturating_add(1).next_multiple_of(PADDED_ROWS),
            VisionCode::Qwen2
            | VisionCode::Qwen2_5
            | VisionCode::Qwen3
            | VisionCode::Gemma3
            | VisionCode::Gemma4
            | VisionCode::Mistral3
            | VisionCode::Pixtral => grid.patches(),
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
    /// them too (processing_gemma3.py `full_image_sequence`), in Mistral 3's and Pixtral's a break after each row, the last of which is the end
    /// (processing_pixtral.py `replace_image_token`), in Llama 4 a mark before the whole picture and one behind each tile too
    /// (processing_llama4.py `_prompt_split_image`). LLaVA's, LLaVA-NeXT's and mllama's put none there (processing_llava.py, processing_mllama.py). Qwen3-VL's puts a
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
            VisionCode::Llama4 => match self.canvas(picture) {
                1 => 3,
                tiles => tiles.saturating_add(3),
            },
            VisionCode::Llava | VisionCode::LlavaNext | VisionCode::Mllama => 0,
            VisionCode::Mistral3 | VisionCode::Pixtral => grid.rows / self.merge.max(1),
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
            | VisionCode::Llama4
            | VisionCode::Llava
            | VisionCode::LlavaNext
            | VisionCode::Mistral3
            | VisionCode::Pixtral
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
            | VisionCode::Llama4
            | VisionCode::Llava
            | VisionCode::LlavaNext
            | VisionCode::Mistral3
            | VisionCode::Pixtral
            | VisionCode::Mllama => true,
            VisionCode::Qwen3 | VisionCode::Gemma4 => false,
        }
    }

    /// Whether the patches of all pictures are one sequence, in which a mask keeps the pictures apart.
    pub fn in_one_sequence(&self) -> bool {
        matches!(self.code, VisionCode::Mistral3 | VisionCode::Pixtral)
    }

    /// Layers of the text that run by themselves: what the first ones return is changed, and the one after them is given that.
    pub fn layers_apart(&self) -> usize {
        if self.deep.is_empty() { 0 } else { self.deep.len() + 1 }
    }

    /// What the patches of so many pictures see of each other in a layer.
    pub fn pieces(&self, grid: Grid, pictures: u64, layer: u64) -> Vec<Pieces> {
        if self.in_one_sequence() {
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
mod tests;
