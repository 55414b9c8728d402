//! Towers: the parts of a multimodal model that look at pictures. All are counted; those with a [`Vision`] can be run.

use super::look::{
    Look, clip_vision, gemma4_vision, llama4_vision, mllama_vision, patches, pixtral_vision, product,
    qwen_vision, siglip_vision,
};
use super::parts::head_dim;
use crate::model::architecture::Tower;
use crate::model::blocks::{Param, ParamRole};
use crate::model::config::Config;
use crate::model::error::ModelError;
use crate::model::vision::{Vision, VisionCode};

/// The parameters of a tower, as they are listed.
#[derive(Debug, Default)]
pub struct Parts {
    prefix: String,
    params: Vec<Param>,
}

impl Parts {
    /// Lists what follows below that path: `visual.`.
    pub fn below(&mut self, prefix: impl Into<String>) -> &mut Parts {
        self.prefix = prefix.into();
        self
    }

    /// A parameter of any shape.
    pub fn other(&mut self, name: &str, shape: &[u64]) -> &mut Parts {
        self.push(name, shape, ParamRole::Other)
    }

    /// An embedding table.
    pub fn table(&mut self, name: &str, rows: u64, width: u64) -> &mut Parts {
        self.push(&format!("{name}.weight"), &[rows, width], ParamRole::Embedding)
    }

    /// A linear layer.
    pub fn linear(&mut self, name: &str, input: u64, output: u64, bias: bool) -> &mut Parts {
        self.push(&format!("{name}.weight"), &[output, input], ParamRole::LinearWeight);
        if bias {
            self.push(&format!("{name}.bias"), &[output], ParamRole::Bias);
        }
        self
    }

    /// A convolution.
    pub fn conv(&mut self, name: &str, shape: &[u64], bias: bool) -> &mut Parts {
        self.other(&format!("{name}.weight"), shape);
        if bias {
            self.other(&format!("{name}.bias"), shape.get(..1).unwrap_or_default());
        }
        self
    }

    /// A norm with a weight only.
    pub fn rms(&mut self, name: &str, width: u64) -> &mut Parts {
        self.push(&format!("{name}.weight"), &[width], ParamRole::Norm)
    }

    /// A norm with weight and bias.
    pub fn norm(&mut self, name: &str, width: u64) -> &mut Parts {
        self.rms(name, width).push(&format!("{name}.bias"), &[width], ParamRole::Norm)
    }

    fn push(&mut self, name: &str, shape: &[u64], role: ParamRole) -> &mut Parts {
        self.params.push(Param { name: format!("{}{name}", self.prefix), shape: shape.to_vec(), role });
        self
    }

    /// The same as a tower that can be run, where it is known how.
    pub fn seeing(self, name: &'static str, vision: Option<Vision>) -> Tower {
        Tower { vision, ..self.tower(name) }
    }

    /// All of it as a tower.
    pub fn tower(self, name: &'static str) -> Tower {
        Tower { name, params: self.params, vision: None }
    }
}

/// siglip and the projector of gemma3.
pub fn gemma3(outer: &Config<'_>, vision: &Config<'_>, text_hidden: u64) -> Result<Tower, ModelError> {
    let mut parts = Parts::default();
    let hidden = siglip(vision, &mut parts, "vision_tower.")?;
    parts.below("multi_modal_projector.");
    parts.other("mm_input_projection_weight", &[hidden, text_hidden]).rms("mm_soft_emb_norm", hidden);
    Ok(parts.seeing("vision_tower", siglip_vision(outer, vision, text_hidden)))
}

/// siglip itself; gives back its width.
fn siglip(vision: &Config<'_>, parts: &mut Parts, prefix: &str) -> Result<u64, ModelError> {
    let look = Look::read(vision, "num_hidden_layers", "num_channels")?;
    let hidden = look.hidden;
    parts.below(prefix);
    parts.conv("embeddings.patch_embedding", &[hidden, look.channels, look.patch, look.patch], true).table(
        "embeddings.position_embedding",
        patches(vision, look.patch)?,
        hidden,
    );
    for layer in 0..look.depth {
        parts.below(format!("{prefix}encoder.layers.{layer}."));
        parts
            .norm("layer_norm1", hidden)
            .linear("self_attn.k_proj", hidden, hidden, true)
            .linear("self_attn.v_proj", hidden, hidden, true)
            .linear("self_attn.q_proj", hidden, hidden, true)
            .linear("self_attn.out_proj", hidden, hidden, true)
            .norm("layer_norm2", hidden)
            .linear("mlp.fc1", hidden, look.width, true)
            .linear("mlp.fc2", look.width, hidden, true);
    }
    parts.below(prefix).norm("post_layernorm", hidden);
    if vision.optional_flag("vision_use_head")?.unwrap_or(true) {
        parts
            .other("head.probe", &[1, 1, hidden])
            .other("head.attention.in_proj_weight", &[3 * hidden, hidden])
            .other("head.attention.in_proj_bias", &[3 * hidden])
            .linear("head.attention.out_proj", hidden, hidden, true)
            .norm("head.layernorm", hidden)
            .linear("head.mlp.fc1", hidden, look.width, true)
            .linear("head.mlp.fc2", look.width, hidden, true);
    }
    Ok(hidden)
}

/// clip and the projector of llava.
pub fn llava(outer: &Config<'_>, vision: &Config<'_>, text_hidden: u64) -> Result<Tower, ModelError> {
    let parts = clip(Parts::default(), (outer, vision), text_hidden)?;
    Ok(parts.seeing("vision_tower", clip_vision(VisionCode::Llava, (outer, vision), text_hidden)))
}

/// The same of llava_next, and what stands behind each row of a picture's tokens.
pub fn llava_next(outer: &Config<'_>, vision: &Config<'_>, text_hidden: u64) -> Result<Tower, ModelError> {
    let mut parts = Parts::default();
    parts.below("").other("image_newline", &[text_hidden]);
    let parts = clip(parts, (outer, vision), text_hidden)?;
    Ok(parts.seeing("vision_tower", clip_vision(VisionCode::LlavaNext, (outer, vision), text_hidden)))
}

/// clip and a projector of two products behind what `parts` has.
fn clip(
    mut parts: Parts,
    (outer, vision): (&Config<'_>, &Config<'_>),
    text_hidden: u64,
) -> Result<Parts, ModelError> {
    let look = Look::read(vision, "num_hidden_layers", "num_channels")?;
    let hidden = look.hidden;
    parts
        .below("vision_tower.")
        .other("embeddings.class_embedding", &[hidden])
        .conv("embeddings.patch_embedding", &[hidden, look.channels, look.patch, look.patch], false)
        .table("embeddings.position_embedding", patches(vision, look.patch)? + 1, hidden)
        .norm("pre_layrnorm", hidden);
    for layer in 0..look.depth {
        parts.below(format!("vision_tower.encoder.layers.{layer}."));
        for name in ["k_proj", "v_proj", "q_proj", "out_proj"] {
            parts.linear(&format!("self_attn.{name}"), hidden, hidden, true);
        }
        parts
            .norm("layer_norm1", hidden)
            .linear("mlp.fc1", hidden, look.width, true)
            .linear("mlp.fc2", look.width, hidden, true)
            .norm("layer_norm2", hidden);
    }
    parts.below("vision_tower.").norm("post_layernorm", hidden);
    projected(&mut parts, (outer, hidden), text_hidden)?;
    Ok(parts)
}

/// Of how many layers a projector is given what they make: of one, or of a list of them.
fn looked_at(outer: &Config<'_>) -> u64 {
    outer.length("vision_feature_layer").map_or(1, |layers| layers.max(1))
}

/// gemma4's tower and its projection.
pub fn gemma4(text: &Config<'_>, vision: &Config<'_>, text_hidden: u64) -> Result<Tower, ModelError> {
    let look = Look::read(vision, "num_hidden_layers", "num_channels")?;
    let hidden = look.hidden;
    let heads = vision.size("num_attention_heads")?;
    let kv_heads = vision.size_or("num_key_value_heads", heads)?;
    let head_dim = head_dim(vision, "head_dim", hidden, heads)?;
    let mut parts = Parts::default();
    parts
        .below("vision_tower.patch_embedder.")
        .other("position_embedding_table", &[2, vision.size("position_embedding_size")?, hidden])
        .linear("input_proj", product([3, look.patch, look.patch]), hidden, false);
    for layer in 0..look.depth {
        parts.below(format!("vision_tower.encoder.layers.{layer}."));
        parts
            .linear("self_attn.q_proj.linear", hidden, heads * head_dim, false)
            .linear("self_attn.k_proj.linear", hidden, kv_heads * head_dim, false)
            .linear("self_attn.v_proj.linear", hidden, kv_heads * head_dim, false)
            .linear("self_attn.o_proj.linear", heads * head_dim, hidden, false)
            .rms("self_attn.q_norm", head_dim)
            .rms("self_attn.k_norm", head_dim)
            .linear("mlp.gate_proj.linear", hidden, look.width, false)
            .linear("mlp.up_proj.linear", hidden, look.width, false)
            .linear("mlp.down_proj.linear", look.width, hidden, false)
            .rms("input_layernorm", hidden)
            .rms("post_attention_layernorm", hidden)
            .rms("pre_feedforward_layernorm", hidden)
            .rms("post_feedforward_layernorm", hidden);
    }
    parts.below("embed_vision.").linear("embedding_projection", hidden, text_hidden, false);
    Ok(parts.seeing("vision_tower", gemma4_vision(text, vision, text_hidden)))
}

/// The most layers of a tower whose output may become tokens too.
const DEEPEST: usize = 1000;

/// The tower of qwen3_vl, qwen3_vl_moe and qwen3_5.
pub fn qwen3(vision: &Config<'_>) -> Result<Tower, ModelError> {
    let (hidden, inner) = (vision.size("hidden_size")?, vision.size("intermediate_size")?);
    let own = qwen_vision(vision, VisionCode::Qwen3, (hidden, inner), vision.size("out_hidden_size")?);
    let deep = vision.sizes("deepstack_visual_indexes")?.unwrap_or_default();
    let own = own.filter(|_| deep.len() <= DEEPEST);
    Ok(Tower { vision: own.map(|own| Vision { deep, ..own }), ..qwen3_parts(vision)? })
}

/// Its parameters.
fn qwen3_parts(vision: &Config<'_>) -> Result<Tower, ModelError> {
    let look = Look::read(vision, "depth", "in_channels")?;
    let hidden = look.hidden;
    let time = vision.size("temporal_patch_size")?;
    let merge = vision.size("spatial_merge_size")?;
    let merged = product([hidden, merge, merge]);
    let out = vision.size("out_hidden_size")?;
    let mut parts = Parts::default();
    parts
        .below("visual.")
        .conv("patch_embed.proj", &[hidden, look.channels, time, look.patch, look.patch], true)
        .table("pos_embed", vision.size("num_position_embeddings")?, hidden);
    for layer in 0..look.depth {
        parts.below(format!("visual.blocks.{layer}."));
        parts
            .norm("norm1", hidden)
            .norm("norm2", hidden)
            .linear("attn.qkv", hidden, 3 * hidden, true)
            .linear("attn.proj", hidden, hidden, true)
            .linear("mlp.linear_fc1", hidden, look.width, true)
            .linear("mlp.linear_fc2", look.width, hidden, true);
    }
    let mut merger = |name: String, normed: u64| {
        parts.below(format!("visual.{name}."));
        parts.norm("norm", normed).linear("linear_fc1", merged, merged, true).linear(
            "linear_fc2",
            merged,
            out,
            true,
        );
    };
    merger("merger".into(), hidden);
    let deep = vision.sizes("deepstack_visual_indexes")?.map_or(0, |list| list.len());
    for index in 0..deep.min(DEEPEST) {
        merger(format!("deepstack_merger_list.{index}"), merged);
    }
    Ok(parts.tower("visual"))
}

/// The tower of qwen2_5_vl.
pub fn qwen2_5(vision: &Config<'_>) -> Result<Tower, ModelError> {
    let look = Look::read(vision, "depth", "in_channels")?;
    let hidden = look.hidden;
    let time = vision.size("temporal_patch_size")?;
    let merge = vision.size("spatial_merge_size")?;
    let merged = product([hidden, merge, merge]);
    let mut parts = Parts::default();
    parts.below("visual.").conv(
        "patch_embed.proj",
        &[hidden, look.channels, time, look.patch, look.patch],
        false,
    );
    for layer in 0..look.depth {
        parts.below(format!("visual.blocks.{layer}."));
        parts
            .rms("norm1", hidden)
            .rms("norm2", hidden)
            .linear("attn.qkv", hidden, 3 * hidden, true)
            .linear("attn.proj", hidden, hidden, true)
            .linear("mlp.gate_proj", hidden, look.width, true)
            .linear("mlp.up_proj", hidden, look.width, true)
            .linear("mlp.down_proj", look.width, hidden, true);
    }
    parts.below("visual.merger.").rms("ln_q", hidden).linear("mlp.0", merged, merged, true).linear(
        "mlp.2",
        merged,
        vision.size("out_hidden_size")?,
        true,
    );
    let side = merge.saturating_mul(look.patch).max(1);
    let window = vision.size_or("window_size", 112)? / side;
    let whole = vision.sizes("fullatt_block_indexes")?.unwrap_or_else(|| vec![7, 15, 23, 31]);
    let own = qwen_vision(vision, VisionCode::Qwen2_5, (hidden, look.width), vision.size("out_hidden_size")?);
    Ok(parts.seeing("visual", own.filter(|_| window > 0).map(|own| Vision { window, whole, ..own })))
}

/// The tower of qwen2_vl: its own width is `embed_dim`, the text's is `hidden_size`.
pub fn qwen2(vision: &Config<'_>) -> Result<Tower, ModelError> {
    let width = vision.size("embed_dim")?;
    let ratio = vision.number("mlp_ratio")?.unwrap_or(4.0);
    let inner = (width as f64 * ratio).clamp(1.0, 2f64.powi(31)) as u64;
    let time = vision.size("temporal_patch_size")?;
    let patch = vision.side("patch_size")?;
    let merge = vision.size("spatial_merge_size")?;
    let merged = product([width, merge, merge]);
    let mut parts = Parts::default();
    parts.below("visual.").conv(
        "patch_embed.proj",
        &[width, vision.size_or("in_channels", 3)?, time, patch, patch],
        false,
    );
    for layer in 0..vision.depth("depth")? {
        parts.below(format!("visual.blocks.{layer}."));
        parts
            .norm("norm1", width)
            .norm("norm2", width)
            .linear("attn.qkv", width, 3 * width, true)
            .linear("attn.proj", width, width, true)
            .linear("mlp.fc1", width, inner, true)
            .linear("mlp.fc2", inner, width, true);
    }
    parts.below("visual.merger.").norm("ln_q", width).linear("mlp.0", merged, merged, true).linear(
        "mlp.2",
        merged,
        vision.size("hidden_size")?,
        true,
    );
    let own = qwen_vision(vision, VisionCode::Qwen2, (width, inner), vision.size("hidden_size")?);
    Ok(parts.seeing("visual", own))
}

/// pixtral and the projector of mistral3.
pub fn mistral3(outer: &Config<'_>, vision: &Config<'_>, text_hidden: u64) -> Result<Tower, ModelError> {
    let hidden = vision.size("hidden_size")?;
    let merge = outer.size("spatial_merge_size")?;
    let mut parts = pixtral_parts(vision)?;
    parts.below("multi_modal_projector.").rms("norm", hidden).linear(
        "patch_merger.merging_layer",
        product([hidden, merge, merge]),
        hidden,
        false,
    );
    projected(&mut parts, (outer, hidden), text_hidden)?;
    let own = pixtral_vision(VisionCode::Mistral3, (outer, vision), text_hidden);
    Ok(parts.seeing("vision_tower", own))
}

/// pixtral and the projector of llava.
pub fn pixtral(outer: &Config<'_>, vision: &Config<'_>, text_hidden: u64) -> Result<Tower, ModelError> {
    let mut parts = pixtral_parts(vision)?;
    projected(&mut parts, (outer, vision.size("hidden_size")?), text_hidden)?;
    let own = pixtral_vision(VisionCode::Pixtral, (outer, vision), text_hidden);
    Ok(parts.seeing("vision_tower", own))
}

/// pixtral itself.
fn pixtral_parts(vision: &Config<'_>) -> Result<Parts, ModelError> {
    let look = Look::read(vision, "num_hidden_layers", "num_channels")?;
    let hidden = look.hidden;
    let mut parts = Parts::default();
    parts
        .below("vision_tower.")
        .conv("patch_conv", &[hidden, look.channels, look.patch, look.patch], false)
        .rms("ln_pre", hidden);
    for layer in 0..look.depth {
        parts.below(format!("vision_tower.transformer.layers.{layer}."));
        parts
            .rms("attention_norm", hidden)
            .linear("feed_forward.gate_proj", hidden, look.width, false)
            .linear("feed_forward.up_proj", hidden, look.width, false)
            .linear("feed_forward.down_proj", look.width, hidden, false)
            .linear("attention.k_proj", hidden, hidden, false)
            .linear("attention.v_proj", hidden, hidden, false)
            .linear("attention.q_proj", hidden, hidden, false)
            .linear("attention.o_proj", hidden, hidden, false)
            .rms("ffn_norm", hidden);
    }
    Ok(parts)
}

/// The two products of a projector behind what one layer or several make.
fn projected(
    parts: &mut Parts,
    (outer, hidden): (&Config<'_>, u64),
    text_hidden: u64,
) -> Result<(), ModelError> {
    let bias = outer.flag("multimodal_projector_bias")?;
    parts
        .below("multi_modal_projector.")
        .linear("linear_1", hidden.saturating_mul(looked_at(outer)), text_hidden, bias)
        .linear("linear_2", text_hidden, text_hidden, bias);
    Ok(())
}

/// llama4's tower and projector.
pub fn llama4(vision: &Config<'_>, text_hidden: u64) -> Result<Tower, ModelError> {
    let look = Look::read(vision, "num_hidden_layers", "num_channels")?;
    let hidden = look.hidden;
    let mut parts = Parts::default();
    parts
        .below("vision_model.")
        .other("class_embedding", &[hidden])
        .other("positional_embedding_vlm", &[patches(vision, look.patch)? + 1, hidden])
        .linear("patch_embedding.linear", product([look.channels, look.patch, look.patch]), hidden, false)
        .norm("layernorm_pre", hidden)
        .norm("layernorm_post", hidden);
    for layer in 0..look.depth {
        parts.below(format!("vision_model.model.layers.{layer}."));
        for name in ["q_proj", "k_proj", "v_proj", "o_proj"] {
            parts.linear(&format!("self_attn.{name}"), hidden, hidden, true);
        }
        parts
            .linear("mlp.fc1", hidden, look.width, true)
            .linear("mlp.fc2", look.width, hidden, true)
            .norm("input_layernorm", hidden)
            .norm("post_attention_layernorm", hidden);
    }
    let input = vision.size("projector_input_dim")?;
    let output = vision.size("projector_output_dim")?;
    parts
        .below("vision_model.vision_adapter.")
        .linear("mlp.fc1", look.width, input, false)
        .linear("mlp.fc2", output, output, false)
        .below("multi_modal_projector.")
        .linear("linear_1", vision.size("vision_output_dim")?, text_hidden, false);
    Ok(parts.seeing("vision_model", llama4_vision(vision, text_hidden)))
}

/// mllama's tower; its projector is a tower of its own because it is registered after the text model.
pub fn mllama(vision: &Config<'_>, text_hidden: u64) -> Result<[Tower; 2], ModelError> {
    let look = Look::read(vision, "num_hidden_layers", "num_channels")?;
    let hidden = look.hidden;
    let tiles = vision.size("max_num_tiles")?;
    let ratios = vision.length("supported_aspect_ratios").unwrap_or(8) + 1;
    let positions = patches(vision, look.patch)? + 1;
    let mut parts = Parts::default();
    parts
        .below("vision_model.")
        .other("class_embedding", &[hidden])
        .conv("patch_embedding", &[hidden, look.channels, look.patch, look.patch], false)
        .other("gated_positional_embedding.gate", &[1])
        .other("gated_positional_embedding.embedding", &[positions, hidden])
        .table(
            "gated_positional_embedding.tile_embedding",
            ratios,
            tiles.saturating_mul(positions).saturating_mul(hidden),
        );
    for when in ["pre", "post"] {
        parts.other(&format!("{when}_tile_positional_embedding.gate"), &[1]).table(
            &format!("{when}_tile_positional_embedding.embedding"),
            ratios,
            tiles * hidden,
        );
    }
    parts.norm("layernorm_pre", hidden).norm("layernorm_post", hidden);
    for (name, depth) in
        [("transformer", look.depth), ("global_transformer", vision.depth("num_global_layers")?)]
    {
        for layer in 0..depth {
            parts.below(format!("vision_model.{name}.layers.{layer}."));
            if name == "global_transformer" {
                parts.other("gate_attn", &[1]).other("gate_ffn", &[1]);
            }
            for projection in ["q_proj", "k_proj", "v_proj", "o_proj"] {
                parts.linear(&format!("self_attn.{projection}"), hidden, hidden, false);
            }
            parts
                .linear("mlp.fc1", hidden, look.width, true)
                .linear("mlp.fc2", look.width, hidden, true)
                .norm("input_layernorm", hidden)
                .norm("post_attention_layernorm", hidden);
        }
    }
    let mut projector = Parts::default();
    projector.below("").linear("multi_modal_projector", vision.size("vision_output_dim")?, text_hidden, true);
    Ok([
        parts.seeing("vision_model", mllama_vision(vision, text_hidden)),
        projector.tower("multi_modal_projector"),
    ])
}
