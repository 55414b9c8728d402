//! Models whose config nests a text model and something that looks at pictures.

use super::parts::{dropout, stack};
use super::variant::{PLAIN, QK_NORMS, QkNorms, Variant};
use super::{gemma4, llama, tiled, tower, variants};
use crate::model::architecture::{Architecture, Counted, LAYERS, Tower};
use crate::model::blocks::{Mixer, Registration, Submodule};
use crate::model::config::Config;
use crate::model::error::ModelError;
use crate::model::modeling;

/// The tower comes before the text model.
const PICTURES_FIRST: Registration = &[
    "image_newline",
    "visual.",
    "vision_tower.",
    "vision_model.",
    "multi_modal_projector.",
    "embed_tokens.",
    LAYERS,
    "norm.",
];

/// Reads a multimodal config; none where the model type is not one.
pub fn read(outer: &Config<'_>) -> Option<Result<Architecture, ModelError>> {
    Some(match outer.model_type {
        "gemma3" => gemma3(outer),
        "gemma4" => gemma4(outer),
        "gemma4_text" => gemma4::read(outer),
        "internvl" => internvl(outer),
        "llama4" => llama4(outer),
        "llava" => llava(outer, tower::llava),
        "llava_next" => llava(outer, tower::llava_next),
        "mistral3" => mistral3(outer),
        "mllama" => mllama(outer),
        "qwen2_vl" => qwen_vl(outer, "qwen2_vl_text", "qwen2_vl_vision", tower::qwen2),
        "qwen2_5_vl" => qwen_vl(outer, "qwen2_5_vl_text", "qwen2_5_vl_vision", tower::qwen2_5),
        "qwen3_vl" => qwen(outer, "qwen3_vl_text", "qwen3_vl_vision", tower::qwen3),
        "qwen3_vl_moe" => qwen(outer, "qwen3_vl_moe_text", "qwen3_vl_moe_vision", tower::qwen3),
        "qwen3_5" => qwen(outer, "qwen3_5_text", "qwen3_5_vision", tower::qwen3),
        "qwen3_5_moe" => qwen(outer, "qwen3_5_moe_text", "qwen3_5_moe_vision", tower::qwen3),
        _ => return None,
    })
}

/// The text model with towers; tied where the outer config says so, or the inner one where the outer is silent.
fn with_towers(
    outer: &Config<'_>,
    text: &Config<'_>,
    model: Architecture,
    towers: Vec<Tower>,
) -> Result<Architecture, ModelError> {
    let mut model = Architecture {
        model_type: outer.model_type.to_owned(),
        family: modeling::of(outer.model_type),
        towers,
        layout: PICTURES_FIRST,
        counted: Counted::default(),
        ..model
    };
    model.head.tied = if !outer.has("tie_word_embeddings") && text.has("tie_word_embeddings") {
        text.flag("tie_word_embeddings")?
    } else {
        outer.flag("tie_word_embeddings")?
    };
    Ok(model)
}

/// A text model that is llama with a difference.
fn variant(text: &Config<'_>) -> Result<Architecture, ModelError> {
    match variants::of(text.model_type) {
        Some(variant) => llama::read(text, &variant),
        None => Err(ModelError::new(format!("the text model {:?} is not known", text.model_type))),
    }
}

fn gemma3(outer: &Config<'_>) -> Result<Architecture, ModelError> {
    let text = outer.nested("text_config", "gemma3_text")?;
    let model = variant(&text)?;
    let vision = outer.nested("vision_config", "siglip_vision_model")?;
    let tower = tower::gemma3(outer, &vision, model.hidden)?;
    with_towers(outer, &text, model, vec![tower])
}

fn gemma4(outer: &Config<'_>) -> Result<Architecture, ModelError> {
    let text = outer.nested("text_config", "gemma4_text")?;
    let model = gemma4::read(&text)?;
    if outer.has("audio_config") {
        return Err(ModelError::new(
            "audio_config is not known: the audio tower of this gemma4 cannot be counted",
        )
        .with_fix("give its text_config alone to count the language model"));
    }
    let mut towers = Vec::new();
    if outer.has("vision_config") {
        let vision = outer.nested("vision_config", "gemma4_vision")?;
        towers.push(tower::gemma4(&text, &vision, model.hidden)?);
    }
    with_towers(outer, &text, model, towers)
}

fn llama4(outer: &Config<'_>) -> Result<Architecture, ModelError> {
    let text = outer.nested("text_config", "llama4_text")?;
    let model = variant(&text)?;
    let vision = outer.nested("vision_config", "llama4_vision_model")?;
    let tower = tower::llama4(&vision, model.hidden)?;
    with_towers(outer, &text, model, vec![tower])
}

/// A text model of any kind, which its config names.
fn of_its_own_kind<'a>(outer: &Config<'a>, usual: &'static str) -> Result<Config<'a>, ModelError> {
    let text = outer.nested("text_config", usual)?;
    Ok(match text.text("model_type")? {
        Some(name) => text.like(name),
        None => text,
    })
}

/// The head is tied where the config says so. Where it says nothing transformers 5.17 means to tie it, but finds a head of its own in the
/// files that were published (modeling_utils.py `tie_weights`: both are there) and lets it be.
fn internvl(outer: &Config<'_>) -> Result<Architecture, ModelError> {
    let text = of_its_own_kind(outer, "qwen2")?;
    let model = variant(&text)?;
    let vision = outer.nested("vision_config", "internvl_vision")?;
    let tower = tiled::internvl(outer, &vision, model.hidden)?;
    let says = outer.has("tie_word_embeddings");
    let tied = if says { outer } else { &text }.flag("tie_word_embeddings")?;
    let mut model = with_towers(outer, &text, model, vec![tower])?;
    model.head.tied = tied;
    Ok(model)
}

/// Reads a tower and its projector for a text model of so many numbers a token.
type TowerReader = fn(&Config<'_>, &Config<'_>, u64) -> Result<Tower, ModelError>;

/// llava and llava_next.
fn llava(outer: &Config<'_>, tower: TowerReader) -> Result<Architecture, ModelError> {
    let text = of_its_own_kind(outer, "llama")?;
    let model = variant(&text)?;
    if !outer.has("vision_config") {
        return Err(ModelError::new("vision_config is missing: the tower of this llava cannot be counted"));
    }
    let vision = outer.nested("vision_config", "clip_vision_model")?;
    let tower = match vision.text("model_type")? {
        None | Some("clip_vision_model") => tower(outer, &vision, model.hidden)?,
        Some(name @ "pixtral") if outer.model_type == "llava" => {
            tower::pixtral(outer, &vision.like(name), model.hidden)?
        }
        Some(other) => {
            let message = format!(
                "the tower {other:?} is not known: llava is counted with clip_vision_model or pixtral"
            );
            return Err(ModelError::new(message));
        }
    };
    let tied = outer.flag("tie_word_embeddings")? || text.flag("tie_word_embeddings")?;
    let mut model = with_towers(outer, &text, model, vec![tower])?;
    model.head.tied = tied;
    Ok(model)
}

fn mistral3(outer: &Config<'_>) -> Result<Architecture, ModelError> {
    let text = of_its_own_kind(outer, "mistral")?;
    let model = variant(&text)?;
    let vision = outer.nested("vision_config", "pixtral")?;
    let tower = tower::mistral3(outer, &vision, model.hidden)?;
    with_towers(outer, &text, model, vec![tower])
}

/// mllama: some layers attend to the picture instead of the text, behind gates.
fn mllama(outer: &Config<'_>) -> Result<Architecture, ModelError> {
    const CROSS: Variant = Variant {
        attention: ["cross_attn.q_proj", "cross_attn.k_proj", "cross_attn.v_proj", "cross_attn.o_proj"],
        qk_norms: Some(QkNorms { names: ["cross_attn.q_norm", "cross_attn.k_norm"], ..QK_NORMS }),
        ..PLAIN
    };
    let text = outer.nested("text_config", "mllama_text_model")?;
    let crossing =
        text.sizes("cross_attention_layers")?.unwrap_or_else(|| vec![3, 8, 13, 18, 23, 28, 33, 38]);
    let mut model = llama::read(&text, &PLAIN)?;
    let cross = llama::read(&text, &CROSS)?;
    let (Some(own), Some(cross)) = (model.blocks.first().cloned(), cross.blocks.into_iter().next()) else {
        return Err(ModelError::new("num_hidden_layers is 0"));
    };
    let drop = dropout(&text, "dropout")?;
    let (blocks, order) = stack((0..model.depth()).map(|layer| crossing.contains(&layer)), |crosses| {
        let mut block = if crosses { cross.clone() } else { own.clone() };
        if let (true, Mixer::Attention(attention)) = (crosses, block.mixer.clone()) {
            block.mixer = Mixer::Cross(attention);
            block.extra = ["cross_attn_attn_gate", "cross_attn_mlp_gate"]
                .map(|name| Submodule::param(name, &[1]))
                .to_vec();
            block.layout = &["cross_attn_attn_gate", "cross_attn_mlp_gate", "cross_attn.", "input_layernorm"];
        }
        match &mut block.mixer {
            Mixer::Attention(attention) | Mixer::Cross(attention) => attention.dropout = drop,
            _ => {}
        }
        Ok(block)
    })?;
    (model.blocks, model.order) = (blocks, order);
    // Eight more rows for the picture's tokens; the head has none and is never tied.
    model.embeddings.tokens.rows += 8;
    let vision = outer.nested("vision_config", "mllama_vision_model")?;
    let towers = tower::mllama(&vision, model.hidden)?;
    let mut model = with_towers(outer, &text, model, towers.into())?;
    model.head.tied = false;
    model.layout = &["vision_model.", "embed_tokens", LAYERS, "norm", "multi_modal_projector"];
    Ok(model)
}

/// qwen2_vl and qwen2_5_vl: the text keys may lie beside vision_config.
fn qwen_vl(
    outer: &Config<'_>,
    text_type: &'static str,
    vision_type: &'static str,
    tower: fn(&Config<'_>) -> Result<Tower, ModelError>,
) -> Result<Architecture, ModelError> {
    let text = if outer.has("text_config") {
        outer.nested("text_config", text_type)?
    } else {
        outer.like(text_type)
    };
    let model = variant(&text)?;
    let vision = outer.nested("vision_config", vision_type)?;
    let tower = tower(&vision)?;
    with_towers(outer, &text, model, vec![tower])
}

fn qwen(
    outer: &Config<'_>,
    text_type: &'static str,
    vision_type: &'static str,
    tower: fn(&Config<'_>) -> Result<Tower, ModelError>,
) -> Result<Architecture, ModelError> {
    let text = outer.nested("text_config", text_type)?;
    let model = variant(&text)?;
    let vision = outer.nested("vision_config", vision_type)?;
    let tower = tower(&vision)?;
    with_towers(outer, &text, model, vec![tower])
}
