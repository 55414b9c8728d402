//! What a config says of a tower: its dimensions, and what a step with pictures needs to know of it.

use super::parts::head_dim;
use crate::model::blocks::Activation;
use crate::model::config::Config;
use crate::model::error::ModelError;
use crate::model::vision::{Crossed, Resizing, Video, Vision, VisionCode};

/// The dimensions that the towers share.
pub(super) struct Look {
    pub hidden: u64,
    pub width: u64,
    pub depth: u64,
    pub channels: u64,
    pub patch: u64,
}

impl Look {
    pub fn read(
        vision: &Config<'_>,
        depth: &'static str,
        channels: &'static str,
    ) -> Result<Look, ModelError> {
        Ok(Look {
            hidden: vision.size("hidden_size")?,
            width: vision.size("intermediate_size")?,
            depth: vision.depth(depth)?,
            channels: vision.size_or(channels, 3)?,
            patch: vision.side("patch_size")?,
        })
    }
}

/// What a tower has where nothing else is said: layers that all see whole pictures and of which the last one's output is looked at, a token for
/// each patch, no videos.
pub(super) const PLAIN: Vision = Vision {
    code: VisionCode::Llava,
    depth: 0,
    hidden: 0,
    inner: 0,
    heads: 0,
    act: Activation::Gelu,
    patch_numbers: 0,
    patch: 0,
    merge: 1,
    text: 0,
    window: 0,
    whole: Vec::new(),
    deep: Vec::new(),
    unseen: 0,
    crossed: None,
    resizing: Resizing::Square(0),
    video: None,
    standardizes: false,
};

/// Patches along both sides of a picture.
pub(super) fn patches(vision: &Config<'_>, patch: u64) -> Result<u64, ModelError> {
    let along = vision.side("image_size")? / patch;
    Ok(along * along)
}

/// What a step of gemma3 with pictures needs to know; none where the config says less, where the tower has a head of its own,
/// or where the tokens of a picture do not come out whole.
pub(super) fn siglip_vision(outer: &Config<'_>, vision: &Config<'_>, text: u64) -> Option<Vision> {
    let look = Look::read(vision, "num_hidden_layers", "num_channels").ok()?;
    let heads = vision.size("num_attention_heads").ok()?;
    let side = vision.side("image_size").ok()?;
    let along = outer.size_or("mm_tokens_per_image", 256).ok()?.isqrt();
    let merge = (side / look.patch.max(1)).checked_div(along)?;
    let whole = merge.checked_mul(along)?.checked_mul(look.patch)? == side;
    let headless = vision.optional_flag("vision_use_head").ok()? == Some(false);
    (whole && headless && look.hidden.is_multiple_of(heads)).then_some(Vision {
        code: VisionCode::Gemma3,
        depth: look.depth,
        hidden: look.hidden,
        inner: look.width,
        heads,
        act: Activation::named(vision.text("hidden_act").ok()?.unwrap_or("gelu_pytorch_tanh"))?,
        patch_numbers: product([look.channels, look.patch, look.patch]),
        patch: look.patch,
        merge,
        text,
        resizing: Resizing::Square(side),
        ..PLAIN
    })
}

/// What a step of llava with pictures needs to know; none where the config says less, or where the projector is given what several
/// layers make, or the class token too.
pub(super) fn clip_vision(
    code: VisionCode,
    (outer, vision): (&Config<'_>, &Config<'_>),
    text: u64,
) -> Option<Vision> {
    let look = Look::read(vision, "num_hidden_layers", "num_channels").ok()?;
    let heads = vision.size("num_attention_heads").ok()?;
    let side = vision.side("image_size").ok()?;
    let unseen = unseen(outer.number("vision_feature_layer").ok()??, look.depth)?;
    let patches_alone = outer.text("vision_feature_select_strategy").ok()? == Some("default");
    let gelu = outer.text("projector_hidden_act").ok()? == Some("gelu");
    let resizing = match code {
        VisionCode::LlavaNext => Resizing::Points { side, points: points(outer, side)? },
        _ => Resizing::Square(side),
    };
    (patches_alone && gelu && look.hidden.is_multiple_of(heads)).then_some(Vision {
        code,
        depth: look.depth,
        hidden: look.hidden,
        inner: look.width,
        heads,
        act: Activation::named(vision.text("hidden_act").ok()?.unwrap_or("quick_gelu"))?,
        patch_numbers: product([look.channels, look.patch, look.patch]),
        patch: look.patch,
        text,
        unseen,
        resizing,
        ..PLAIN
    })
}

/// The sizes to one of which a picture is brought (configuration_llava_next.py); none where tiles of that side do not fill them.
fn points(outer: &Config<'_>, side: u64) -> Option<Vec<[u64; 2]>> {
    const USUAL: [[u64; 2]; 5] = [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]];
    let points = outer.pairs("image_grid_pinpoints").ok()?.unwrap_or_else(|| USUAL.to_vec());
    let whole = |along: &u64| *along > 0 && along.is_multiple_of(side);
    (!points.is_empty() && points.iter().flatten().all(whole)).then_some(points)
}

/// How many layers come after the one whose output is looked at; what the first layer is given is number 0, and negative numbers count
/// from the end, as Python's indices do.
fn unseen(layer: f64, depth: u64) -> Option<u64> {
    let from_end = if layer < 0.0 { -layer - 1.0 } else { depth as f64 - layer };
    (from_end.fract() == 0.0 && (0.0..=depth as f64).contains(&from_end)).then_some(from_end as u64)
}

/// What a step of mistral3, or of llava with the same tower, needs to know of pictures; none where the config says less, where the projector is
/// given another layer's output than the last one's, or in llava where the first patch is taken for a class token.
pub(super) fn pixtral_vision(
    code: VisionCode,
    (outer, vision): (&Config<'_>, &Config<'_>),
    text: u64,
) -> Option<Vision> {
    let look = Look::read(vision, "num_hidden_layers", "num_channels").ok()?;
    let heads = vision.size("num_attention_heads").ok()?;
    let last = outer.number("vision_feature_layer").ok()?.is_none_or(|layer| layer == -1.0);
    let (every, merge) = match code {
        VisionCode::Pixtral => (outer.text("vision_feature_select_strategy").ok()? == Some("full"), 1),
        _ => (true, outer.size("spatial_merge_size").ok()?),
    };
    let gelu = outer.text("projector_hidden_act").ok()?.is_none_or(|act| act == "gelu");
    (last && every && gelu && look.hidden.is_multiple_of(heads)).then_some(Vision {
        code,
        depth: look.depth,
        hidden: look.hidden,
        inner: look.width,
        heads,
        act: Activation::named(vision.text("hidden_act").ok()?.unwrap_or("gelu"))?,
        patch_numbers: product([look.channels, look.patch, look.patch]),
        patch: look.patch,
        merge,
        text,
        resizing: Resizing::Longest(vision.side("image_size").ok()?),
        ..PLAIN
    })
}

/// What a step of mllama with pictures needs to know; none where the config says less, or where what is joined is of another width than the
/// projector takes.
pub(super) fn mllama_vision(vision: &Config<'_>, text: u64) -> Option<Vision> {
    let look = Look::read(vision, "num_hidden_layers", "num_channels").ok()?;
    let heads = vision.size("attention_heads").ok()?;
    let side = vision.side("image_size").ok()?;
    let gated = vision.depth("num_global_layers").ok()?;
    let beside = vision.sizes("intermediate_layers_indices").ok()?.unwrap_or_else(|| vec![3, 7, 15, 23, 30]);
    let joined = look.hidden.checked_mul(beside.len() as u64 + 1)?;
    let whole = side.is_multiple_of(look.patch.max(1)) && beside.iter().all(|layer| *layer < look.depth);
    let fits = vision.size("vision_output_dim").ok()? == joined;
    (whole && fits && look.hidden.is_multiple_of(heads)).then_some(Vision {
        code: VisionCode::Mllama,
        depth: look.depth.checked_add(gated)?,
        hidden: look.hidden,
        inner: look.width,
        heads,
        act: Activation::named(vision.text("hidden_act").ok()?.unwrap_or("gelu"))?,
        patch_numbers: product([look.channels, look.patch, look.patch]),
        patch: look.patch,
        text,
        crossed: Some(Crossed { tiles: vision.size("max_num_tiles").ok()?, gated, beside }),
        resizing: Resizing::Square(side),
        ..PLAIN
    })
}

/// The most tiles of a picture of llama4 (image_processing_llama4.py `max_patches`).
const LLAMA4_TILES: u64 = 16;

/// What a step of llama4 with pictures needs to know; none where the config says less, or where the patches that become a token do not come
/// out whole.
pub(super) fn llama4_vision(vision: &Config<'_>, text: u64) -> Option<Vision> {
    let look = Look::read(vision, "num_hidden_layers", "num_channels").ok()?;
    let heads = vision.size("num_attention_heads").ok()?;
    let side = vision.side("image_size").ok()?;
    let ratio = vision.number("pixel_shuffle_ratio").ok()?.unwrap_or(0.5);
    let merge = (1.0 / ratio) as u64;
    let whole = merge > 0
        && ratio * merge as f64 == 1.0
        && side.is_multiple_of(look.patch.checked_mul(merge)?)
        && look.hidden.checked_mul(merge.checked_mul(merge)?)? == look.width;
    (whole && look.hidden.is_multiple_of(heads)).then_some(Vision {
        code: VisionCode::Llama4,
        depth: look.depth,
        hidden: look.hidden,
        inner: look.width,
        heads,
        // `nn.GELU`, whatever the config names
        act: Activation::Gelu,
        patch_numbers: product([look.channels, look.patch, look.patch]),
        patch: look.patch,
        merge,
        text,
        resizing: Resizing::Canvas { side, most: LLAMA4_TILES },
        ..PLAIN
    })
}

/// The most tokens of a picture of gemma4 (image_processing_gemma4.py `max_soft_tokens`).
const SOFT_TOKENS: u64 = 280;

/// What a step of gemma4 with pictures needs to know; none where the config says less, where the numbers between layers are
/// clipped, where heads are grouped or of another width, or where the tokens of a picture see no more than others.
pub(super) fn gemma4_vision(text: &Config<'_>, vision: &Config<'_>, width: u64) -> Option<Vision> {
    let look = Look::read(vision, "num_hidden_layers", "num_channels").ok()?;
    let heads = vision.size("num_attention_heads").ok()?;
    let kv_heads = vision.size_or("num_key_value_heads", heads).ok()?;
    let head_dim = head_dim(vision, "head_dim", look.hidden, heads).ok()?;
    let merge = vision.size_or("pooling_kernel_size", 3).ok()?;
    let plain =
        kv_heads == heads && head_dim.checked_mul(heads)? == look.hidden && head_dim.is_multiple_of(4);
    let clipped = vision.optional_flag("use_clipped_linears").ok()? == Some(true);
    let whole = text.text("use_bidirectional_attention").ok()? == Some("vision");
    let beside = text.size_or("hidden_size_per_layer_input", 0).ok().unwrap_or(0) > 0;
    (plain && whole && !clipped && !beside).then_some(Vision {
        code: VisionCode::Gemma4,
        depth: look.depth,
        hidden: look.hidden,
        inner: look.width,
        heads,
        act: Activation::named(vision.text("hidden_activation").ok()?.unwrap_or("gelu_pytorch_tanh"))?,
        patch_numbers: product([3, look.patch, look.patch]),
        patch: look.patch,
        merge,
        text: width,
        resizing: Resizing::Most(SOFT_TOKENS.checked_mul(merge.checked_mul(merge)?)?),
        standardizes: vision.optional_flag("standardize").ok()? == Some(true),
        ..PLAIN
    })
}

/// The fewest and the most pixels of all frames of a video of qwen3_vl and qwen3_5 (docs/pictures.md says how they are known).
const VIDEO_PIXELS: (u64, u64) = (4_096, 25_165_824);

/// What the towers of the Qwen family share; none where the config says less than a step needs.
pub(super) fn qwen_vision(
    vision: &Config<'_>,
    code: VisionCode,
    (hidden, inner): (u64, u64),
    text: u64,
) -> Option<Vision> {
    let (patch, channels) = (vision.side("patch_size").ok()?, vision.size_or("in_channels", 3).ok()?);
    let usual = match code {
        VisionCode::Qwen2 => "quick_gelu",
        VisionCode::Qwen2_5 => "silu",
        VisionCode::Qwen3
        | VisionCode::Gemma3
        | VisionCode::Gemma4
        | VisionCode::InternVl
        | VisionCode::Llama4
        | VisionCode::Llava
        | VisionCode::LlavaNext
        | VisionCode::Mistral3
        | VisionCode::Pixtral
        | VisionCode::Mllama => "gelu_pytorch_tanh",
    };
    let resizing = match code {
        VisionCode::Qwen2 | VisionCode::Qwen2_5 => Resizing::Between(56 * 56, 28 * 28 * 16384),
        VisionCode::Qwen3
        | VisionCode::Gemma3
        | VisionCode::Gemma4
        | VisionCode::InternVl
        | VisionCode::Llama4
        | VisionCode::Llava
        | VisionCode::LlavaNext
        | VisionCode::Mistral3
        | VisionCode::Pixtral
        | VisionCode::Mllama => Resizing::Between(256 * 256, 4096 * 4096),
    };
    let frames = vision.size("temporal_patch_size").ok()?;
    let video = match code {
        // what a model's folder says of pictures stands for its videos too where it has no video_preprocessor_config.json
        // (video_processing_utils.py `get_video_processor_dict`): each frame is resized as a picture is
        VisionCode::Qwen2 | VisionCode::Qwen2_5 => Video { merge: frames, pixels: None, timed: false },
        _ => Video { merge: frames, pixels: Some(VIDEO_PIXELS), timed: true },
    };
    let heads = vision.size("num_heads").ok()?;
    Some(Vision {
        code,
        depth: vision.depth("depth").ok()?,
        hidden,
        inner,
        heads,
        act: Activation::named(vision.text("hidden_act").ok()?.unwrap_or(usual))?,
        patch_numbers: product([channels, frames, patch.saturating_mul(patch)]),
        patch,
        merge: vision.size("spatial_merge_size").ok()?,
        text,
        resizing,
        video: Some(video),
        ..PLAIN
    })
    .filter(|own| own.hidden.is_multiple_of(own.heads))
}

/// A product that saturates.
pub(super) fn product(factors: [u64; 3]) -> u64 {
    factors.into_iter().fold(1, u64::saturating_mul)
}
