//! What a config says of a tower: its dimensions, and what a step with pictures needs to know of it.

use crate::model::blocks::Activation;
use crate::model::config::Config;
use crate::model::error::ModelError;
use crate::model::vision::{Resizing, Vision, VisionCode};

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
        window: 0,
        whole: Vec::new(),
        deep: Vec::new(),
        resizing: Resizing::Square(side),
    })
}

/// What a step of mistral3 with pictures needs to know; none where the config says less, or where the projector is given another
/// layer's output than the last one's.
pub(super) fn pixtral_vision(outer: &Config<'_>, vision: &Config<'_>, text: u64) -> Option<Vision> {
    let look = Look::read(vision, "num_hidden_layers", "num_channels").ok()?;
    let heads = vision.size("num_attention_heads").ok()?;
    let last = outer.number("vision_feature_layer").ok()?.is_none_or(|layer| layer == -1.0);
    let gelu = outer.text("projector_hidden_act").ok()?.is_none_or(|act| act == "gelu");
    (last && gelu && look.hidden.is_multiple_of(heads)).then_some(Vision {
        code: VisionCode::Mistral3,
        depth: look.depth,
        hidden: look.hidden,
        inner: look.width,
        heads,
        act: Activation::named(vision.text("hidden_act").ok()?.unwrap_or("gelu"))?,
        patch_numbers: product([look.channels, look.patch, look.patch]),
        patch: look.patch,
        merge: outer.size("spatial_merge_size").ok()?,
        text,
        window: 0,
        whole: Vec::new(),
        deep: Vec::new(),
        resizing: Resizing::Longest(vision.side("image_size").ok()?),
    })
}

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
        VisionCode::Qwen3 | VisionCode::Gemma3 | VisionCode::Mistral3 => "gelu_pytorch_tanh",
    };
    let resizing = match code {
        VisionCode::Qwen2 | VisionCode::Qwen2_5 => Resizing::Between(56 * 56, 28 * 28 * 16384),
        VisionCode::Qwen3 | VisionCode::Gemma3 | VisionCode::Mistral3 => {
            Resizing::Between(256 * 256, 4096 * 4096)
        }
    };
    let frames = vision.size("temporal_patch_size").ok()?;
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
        window: 0,
        whole: Vec::new(),
        deep: Vec::new(),
        resizing,
    })
    .filter(|own| own.hidden.is_multiple_of(own.heads))
}

/// A product that saturates.
pub(super) fn product(factors: [u64; 3]) -> u64 {
    factors.into_iter().fold(1, u64::saturating_mul)
}
