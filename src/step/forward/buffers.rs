//! What a model registers as buffers: tensors that are no parameters and stay on the device.

use super::families::qwen::LOG_POSITIONS;
use super::loader::{Loader, weights_dtype};
use super::rotary::rotates_by_kind;
use crate::dtype::Dtype;
use crate::memory::Category;
use crate::model::Architecture;
use crate::model::blocks::{FeedForward, Mixer, Rotary};
use crate::model::modeling::{Code, PositionIds, Router};
use crate::model::vision::{Picture, Vision, VisionCode};
use crate::scenario::WeightFormat;
use crate::scenario::software::ModelCode;
use crate::step::ops::four_bit::CODE_BOOK;
use crate::step::what::{Source, What, torch};

static POSITION_SINES: What = What::own(
    "positions",
    "sines of the longest sequence: a tensor of the model that is not trained",
    Source::Modeling,
);
static BUFFERED_MASK: What = What::own(
    "causal mask",
    "a causal mask of the longest sequence: a tensor of the model that is not trained",
    Source::Modeling,
);
static INV_FREQ: What = What::own(
    "inv_freq",
    "frequencies of the rotary embedding: a tensor of the model that is not trained",
    Source::Modeling,
);
static ORIGINAL_INV_FREQ: What = What::own(
    "original_inv_freq",
    "frequencies of the rotary embedding as they were: a tensor of the model that is not trained",
    Source::Modeling,
);
static FREQS_CI: What = What::own(
    "freqs_ci",
    "the angles of a tile's patches as complex numbers: a tensor of the model that is not trained",
    Source::Modeling,
);
static LOGN: What = What::own(
    "logn_tensor",
    "a factor of long sequences' queries: a tensor of the model that is not trained",
    Source::Modeling,
);
static TOKEN_TYPE_IDS: What = What::own(
    "token_type_ids",
    "token types of the longest sequence: a tensor of the model that is not trained",
    Source::Modeling,
);
static POSITION_IDS: What = What::own(
    "position_ids",
    "positions of the longest sequence: a tensor of the model that is not trained",
    Source::Modeling,
);
static CORRECTION: What = What::own(
    "e_score_correction_bias",
    "the correction of the router's scores: a tensor of the model that is not trained",
    Source::Modeling,
);
static EMBED_POSITIONS: What = What::own(
    "embed_positions",
    "sines and cosines of the longest sequence: a tensor of the model that is not trained",
    Source::Modeling,
);
static LOGITS_BIAS: What = What::own(
    "final_logits_bias",
    "a bias of the logits: a tensor of the model that is not trained",
    Source::Modeling,
);
static LAYER_SCALAR: What = What::own(
    "layer_scalar",
    "a layer's factor: a tensor of the model that is not trained",
    Source::Modeling,
);
static STANDARDS: What = What::own(
    "std_bias, std_scale",
    "what brings a picture's tokens to one scale: a tensor of the model that is not trained",
    Source::Modeling,
);
static EMBED_SCALE: What = What::own(
    "embed_scale",
    "the embedding's factor: a tensor of the model that is not trained",
    Source::Modeling,
);

/// What a tower keeps of its patches' angles: bytes for each two numbers of a head. Those that look their positions up keep nothing.
fn angles(vision: &Vision) -> Vec<(u64, &'static What)> {
    match vision.code {
        VisionCode::Gemma3
        | VisionCode::Llava
        | VisionCode::LlavaNext
        | VisionCode::InternVl
        | VisionCode::Mllama => Vec::new(),
        // a complex number for each row of a tile
        VisionCode::Llama4 => {
            vec![(vision.rows(vision.grid(Picture::still(0, 0))).saturating_mul(8), &FREQS_CI)]
        }
        VisionCode::Qwen2
        | VisionCode::Qwen2_5
        | VisionCode::Qwen3
        | VisionCode::Gemma4
        | VisionCode::Mistral3
        | VisionCode::Pixtral => vec![(4, &INV_FREQ), (4, &ORIGINAL_INV_FREQ)],
    }
}

/// The rotary frequencies (twice: transformers keeps the original) and gemma's scale.
pub(super) fn buffers(loader: &mut Loader<'_>, architecture: &Architecture) {
    let attention = architecture.blocks.iter().find_map(|block| block.mixer.attention());
    let latent = architecture.blocks.iter().find_map(|block| match &block.mixer {
        Mixer::Latent(latent) => Some(latent.rope_dim),
        _ => None,
    });
    let rotary = attention.and_then(|attention| match (loader.modeling.code, attention.rotary) {
        // falcon makes a rotary embedding even where it uses alibi
        (Code::Falcon, Rotary::Alibi) => Some(attention.head_dim),
        (Code::GptJ, _) => None,
        (_, rotary) => rotary.width(attention.head_dim),
    });
    let member = loader.member;
    let four_bit = matches!(member.quantization.format, WeightFormat::Nf4 | WeightFormat::Nf4Early);
    if loader.has_quantised && four_bit && member.quantization.double_quant {
        // bitsandbytes keeps the code book of 8-bit quantisation (functional.py `name2qmap`)
        loader.state.persistent(256 * 4, Dtype::F32, 1, Category::QuantState, &CODE_BOOK);
    }
    if let Some(table) = loader.positions {
        if !table.each_layer {
            loader.position_table(table);
        }
        return;
    }
    let code = member.software().model;
    if code == ModelCode::Unsloth {
        return loader.unsloth_buffers(architecture);
    }
    if let (Some(dim), ModelCode::Torchtitan) = (rotary, code) {
        return loader.torchtitan_buffer(dim);
    }
    let mut store = |bytes: u64, what: &'static What| {
        loader.state.persistent(bytes, Dtype::F32, 1, Category::Buffers, what);
    };
    if let (Some(dim), ModelCode::Litgpt) = (rotary, code) {
        let bytes = loader.batch.length.saturating_mul(dim).saturating_mul(4);
        store(bytes, &torch::COS);
        store(bytes, &torch::SIN);
        return;
    }
    if let (Some(dim), ModelCode::Megatron) = (rotary, code) {
        for _ in 0..loader.parts {
            store(dim / 2 * 4, &INV_FREQ);
        }
        return;
    }
    if let (Some(dim), Code::Qwen) = (rotary, loader.modeling.code) {
        store(dim / 2 * 4, &INV_FREQ);
        // the cache is made for twice the positions that are asked for
        let cached = loader.batch.length.saturating_mul(2).saturating_mul(dim).saturating_mul(4);
        store(cached, &torch::COS);
        store(cached, &torch::SIN);
        let bytes = LOG_POSITIONS.saturating_mul(loader.dtype.bytes());
        for _ in &architecture.order {
            loader.state.persistent(bytes, loader.dtype, 1, Category::Buffers, &LOGN);
        }
        return;
    }
    if loader.modeling.code == Code::Gemma4 {
        // the kinds of layers have heads of their own size
        for window in [true, false] {
            let attentions = || architecture.blocks.iter().filter_map(|block| block.mixer.attention());
            let Some(own) = attentions().find(|own| own.window.is_some() == window) else { continue };
            store(own.head_dim / 2 * 4, &INV_FREQ);
            store(own.head_dim / 2 * 4, &ORIGINAL_INV_FREQ);
        }
    } else if let Some(dim) = rotary.or(latent) {
        for _ in 0..if rotates_by_kind(loader.modeling, architecture) { 2 } else { 1 } {
            store(dim / 2 * 4, &INV_FREQ);
            store(dim / 2 * 4, &ORIGINAL_INV_FREQ);
        }
    }
    if let Some((_, vision)) = architecture.vision() {
        let half = vision.hidden / vision.heads.max(1) / 2;
        for (bytes, what) in angles(vision) {
            store(half.saturating_mul(bytes), what);
        }
        if vision.standardizes {
            let dtype = loader.dtype;
            let bytes = vision.hidden.saturating_mul(dtype.bytes());
            for _ in 0..2 {
                loader.state.persistent(bytes, dtype, 1, Category::Buffers, &STANDARDS);
            }
        }
    }
    let is_clip = |vision: &Vision| matches!(vision.code, VisionCode::Llava | VisionCode::LlavaNext);
    if let Some((_, vision)) = architecture.vision().filter(|(_, vision)| is_clip(vision)) {
        let rows = vision.rows(vision.grid(Picture::still(0, 0)));
        loader.state.persistent(rows.saturating_mul(8), Dtype::I64, 1, Category::Buffers, &POSITION_IDS);
    }
    if loader.modeling.code == Code::Bert {
        // position ids and token types of the longest sequence
        let types = architecture.embeddings.token_types.is_some().then_some(&TOKEN_TYPE_IDS);
        for name in [&POSITION_IDS].into_iter().chain(types) {
            let rows = architecture.embeddings.positions.as_ref().map_or(0, |table| table.rows);
            loader.state.persistent(rows.saturating_mul(8), Dtype::I64, 1, Category::Buffers, name);
        }
    }
    let positions = architecture.embeddings.positions.as_ref().map_or(0, |table| table.rows);
    let masks = match loader.modeling.code {
        Code::GptBigCode => 1,
        Code::GptNeo => architecture.order.len(),
        _ => 0,
    };
    let corrections =
        architecture.order.iter().filter_map(|kind| architecture.blocks.get(usize::from(*kind)));
    for block in corrections {
        // the correction of the scores that deepseek's router keeps beside its weight
        let FeedForward::Moe(moe) = &block.ffn else { continue };
        let dtype = match loader.modeling.router {
            Router::Groups => Dtype::F32,
            Router::Sigmoid => weights_dtype(member),
            _ => continue,
        };
        let bytes = moe.experts.saturating_mul(dtype.bytes());
        loader.state.persistent(bytes, dtype, 1, Category::Buffers, &CORRECTION);
    }
    if loader.modeling.code == Code::GptJ {
        // sines and cosines of the longest sequence, in each layer
        let width = attention.and_then(|attention| attention.rotary.width(attention.head_dim));
        let rows = architecture.max_positions.unwrap_or(0);
        let bytes = rows.saturating_mul(width.unwrap_or(0)).saturating_mul(4);
        for _ in &architecture.order {
            loader.state.persistent(bytes, Dtype::F32, 1, Category::Buffers, &EMBED_POSITIONS);
        }
    }
    for _ in 0..masks {
        // a causal mask of the longest sequence: one for the model, or one for each layer
        let bytes = positions.saturating_mul(positions);
        loader.state.persistent(bytes, Dtype::Bool, 1, Category::Buffers, &BUFFERED_MASK);
    }
    if loader.modeling.positions == PositionIds::CountedSines {
        // sines of the longest sequence and two more, of the encoder and the decoder
        let dtype = weights_dtype(member);
        let rows = architecture.max_positions.unwrap_or(0).saturating_add(2);
        let bytes = rows.saturating_mul(architecture.hidden).saturating_mul(dtype.bytes());
        for _ in 0..2 {
            loader.state.persistent(bytes, dtype, 1, Category::Buffers, &POSITION_SINES);
        }
    }
    if loader.modeling.logits_bias {
        let dtype = weights_dtype(member);
        let bytes = architecture.vocab.saturating_mul(dtype.bytes());
        loader.state.persistent(bytes, dtype, 1, Category::Buffers, &LOGITS_BIAS);
    }
    if matches!(loader.modeling.code, Code::Deberta | Code::OpenAiGpt) {
        let longest = architecture.max_positions.unwrap_or(positions);
        loader.state.persistent(longest.saturating_mul(8), Dtype::I64, 1, Category::Buffers, &POSITION_IDS);
    }
    if loader.modeling.code == Code::OpenAiGpt {
        // a causal mask of the longest sequence in each layer, of numbers
        let dtype = weights_dtype(member);
        let bytes = positions.saturating_mul(positions).saturating_mul(dtype.bytes());
        for _ in &architecture.order {
            loader.state.persistent(bytes, dtype, 1, Category::Buffers, &BUFFERED_MASK);
        }
    }
    if loader.modeling.code == Code::Gemma4 {
        for _ in &architecture.order {
            let bytes = loader.dtype.bytes();
            loader.state.persistent(bytes, loader.dtype, 1, Category::Buffers, &LAYER_SCALAR);
        }
    }
    let mut store = |bytes: u64, what: &'static What| {
        loader.state.persistent(bytes, Dtype::F32, 1, Category::Buffers, what);
    };
    if architecture.embeddings.scaled && loader.modeling.scale_buffer {
        store(4, &EMBED_SCALE);
    }
}
