//! Towers that are given pictures in tiles: their parameters, and what a step with pictures needs to know of them.

use super::look::{Look, PLAIN, product};
use super::tower::Parts;
use crate::model::architecture::Tower;
use crate::model::blocks::Activation;
use crate::model::config::Config;
use crate::model::error::ModelError;
use crate::model::vision::{Resizing, Vision, VisionCode};

/// The most tiles of a picture of internvl, the whole aside (image_processing_got_ocr2.py `max_patches`).
const MOST_TILES: u64 = 12;

/// The most rows and columns of patches that become one token.
const MOST_MERGED: f64 = 1024.0;

/// A norm of internvl's tower: the class that `norm_type` names.
fn has_biased_norms(vision: &Config<'_>) -> Result<bool, ModelError> {
    match vision.text("norm_type")? {
        None | Some("layer_norm") => Ok(true),
        Some("rms_norm") => Ok(false),
        Some(other) => Err(ModelError::new(format!("vision_config.norm_type {other:?} is not known"))
            .with_fix("internvl has layer_norm and rms_norm")),
    }
}

/// Rows and columns of patches that become one token: `int(1 / downsample_ratio)`.
fn merged(outer: &Config<'_>) -> Result<u64, ModelError> {
    let ratio = outer.number("downsample_ratio")?.unwrap_or(0.5);
    let along = (1.0 / ratio).floor();
    if (1.0..=MOST_MERGED).contains(&along) && along == 1.0 / ratio {
        return Ok(along as u64);
    }
    Err(ModelError::new(format!("downsample_ratio is {ratio}"))
        .with_fix("0.5 makes a token of 2 × 2 patches, as in every published internvl"))
}

/// The tower of internvl and its projector.
pub fn internvl(outer: &Config<'_>, vision: &Config<'_>, text_hidden: u64) -> Result<Tower, ModelError> {
    let look = Look::read(vision, "num_hidden_layers", "num_channels")?;
    let hidden = look.hidden;
    let [patch, image] = [vision.sides("patch_size")?, vision.sides("image_size")?];
    let biased = vision.flag("attention_bias")?;
    let biased_norms = has_biased_norms(vision)?;
    let norm = |parts: &mut Parts, name: &str| {
        if biased_norms {
            parts.norm(name, hidden)
        } else {
            parts.rms(name, hidden)
        };
    };
    let mut parts = Parts::default();
    parts.below("vision_tower.embeddings.").other("cls_token", &[1, 1, hidden]);
    if vision.flag("use_mask_token")? {
        parts.other("mask_token", &[1, 1, hidden]);
    }
    if vision.optional_flag("use_absolute_position_embeddings")?.unwrap_or(true) {
        let places = (image[0] / patch[0]).saturating_mul(image[1] / patch[1]).saturating_add(1);
        parts.other("position_embeddings", &[1, places, hidden]);
    }
    parts.conv("patch_embeddings.projection", &[hidden, look.channels, patch[0], patch[1]], true);
    for layer in 0..look.depth {
        parts.below(format!("vision_tower.encoder.layer.{layer}."));
        parts.other("lambda_1", &[hidden]).other("lambda_2", &[hidden]);
        for name in ["q_proj", "k_proj", "v_proj"] {
            parts.linear(&format!("attention.{name}"), hidden, hidden, biased);
        }
        parts.linear("attention.projection_layer", hidden, hidden, true);
        if vision.flag("use_qk_norm")? {
            parts.rms("attention.q_norm", hidden).rms("attention.k_norm", hidden);
        }
        parts.linear("mlp.fc1", hidden, look.width, true).linear("mlp.fc2", look.width, hidden, true);
        norm(&mut parts, "layernorm_before");
        norm(&mut parts, "layernorm_after");
    }
    if !vision.optional_flag("use_mean_pooling")?.unwrap_or(true) {
        parts.below("vision_tower.").norm("layernorm", hidden);
    }
    let merge = merged(outer)?;
    let wide = product([hidden, merge, merge]);
    parts
        .below("multi_modal_projector.")
        .norm("layer_norm", wide)
        .linear("linear_1", wide, text_hidden, true)
        .linear("linear_2", text_hidden, text_hidden, true);
    Ok(parts.seeing("vision_tower", internvl_vision(outer, vision, (merge, text_hidden))))
}

/// What a step of internvl with pictures needs to know; none where the config says less, where the projector is given another layer's
/// output than the last one's or the class token too, or where patches and tokens do not come out whole.
fn internvl_vision(outer: &Config<'_>, vision: &Config<'_>, (merge, text): (u64, u64)) -> Option<Vision> {
    let look = Look::read(vision, "num_hidden_layers", "num_channels").ok()?;
    let heads = vision.size("num_attention_heads").ok()?;
    let [side, across] = vision.sides("image_size").ok()?;
    let [patch, wide] = vision.sides("patch_size").ok()?;
    let whole = side == across && patch == wide && side.is_multiple_of(patch.checked_mul(merge)?);
    let last = outer.number("vision_feature_layer").ok()?.is_none_or(|layer| layer == -1.0);
    let patches_alone =
        outer.text("vision_feature_select_strategy").ok()?.is_none_or(|chosen| chosen == "default");
    let gelu = outer.text("projector_hidden_act").ok()?.is_none_or(|act| act == "gelu");
    let placed = vision.optional_flag("use_absolute_position_embeddings").ok()? != Some(false);
    let masked = vision.flag("use_mask_token").ok()?;
    let dropped = ["hidden_dropout_prob", "attention_dropout", "projection_dropout"]
        .into_iter()
        .any(|key| vision.number(key).map_or(true, |rate| rate.is_some_and(|rate| rate != 0.0)));
    let plain = placed && !masked && !dropped && look.hidden.is_multiple_of(heads);
    (whole && last && patches_alone && gelu && plain).then_some(Vision {
        code: VisionCode::InternVl,
        depth: look.depth,
        hidden: look.hidden,
        inner: look.width,
        heads,
        act: Activation::named(vision.text("hidden_act").ok()?.unwrap_or("gelu"))?,
        patch_numbers: product([look.channels, patch, patch]),
        patch,
        merge,
        text,
        resizing: Resizing::Tiles { side, most: MOST_TILES },
        ..PLAIN
    })
}
