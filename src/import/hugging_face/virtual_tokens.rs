//! Settings of peft's prompt tuning, P-tuning and prefix tuning.

use crate::import::reader::Reader;
use crate::scenario::Tuner;

/// What of them changes no memory.
const IDLE: &[&str] = &[
    "prompt_tuning_init",
    "prompt_tuning_init_text",
    "tokenizer_name_or_path",
    "tokenizer_kwargs",
    "init_weights",
    "num_transformer_submodules",
    // an MLP has neither
    "encoder_num_layers",
    "encoder_dropout",
];

/// The settings of one of them; whether keys and values are projected is one.
pub(super) fn read(reader: &mut Reader, tuner: Tuner) {
    let class = tuner.class();
    let of = |name: &str| format!("{class}.{name}");
    let projects = reader.switch(&[&of("prefix_projection")]);
    match projects {
        Some((true, said)) => reader.set("adapter", Tuner::PrefixProjected.slug(), &said),
        Some((false, said)) => reader.set("adapter", tuner.slug(), &said),
        None => reader.set("adapter", tuner.slug(), class),
    }
    let tuner = reader.scenario.lora.tuner;
    match reader.take(&[&of(tuner.rank_name())]) {
        Some(said) => reader.set("lora-rank", &said.text(), &said.said),
        None => reader.leave(&of(tuner.rank_name()), "how many virtual tokens there are has to be said"),
    }
    reader.quietly("train-embeddings", "off");
    if let Some(said) = reader.take(&[&of("encoder_reparameterization_type")]) {
        match said.text().contains("LSTM") {
            true => reader.leave(&said.said, "P-tuning is predicted with an MLP, not with cuDNN's LSTM"),
            false => reader.idle.push(said.said),
        }
    }
    // as peft takes them from the model, and as a saved configuration has them
    let model = reader.scenario.architecture().ok();
    let attention =
        model.as_ref().and_then(|model| model.blocks.iter().find_map(|block| block.mixer.attention()));
    let hidden = model.as_ref().map(|model| model.hidden);
    let layers = model.as_ref().map(|model| model.order.len() as u64);
    let (width, heads) = match tuner.is_prefix() {
        true => (
            attention.map(|own| own.kv_heads.saturating_mul(own.head_dim)),
            attention.map(|own| own.kv_heads),
        ),
        false => (hidden, attention.map(|own| own.heads)),
    };
    for (name, own) in [
        ("token_dim", width),
        ("encoder_hidden_size", width),
        ("num_attention_heads", heads),
        ("num_layers", layers),
    ] {
        if let Some(said) = reader.take(&[&of(name)]) {
            match own.is_some_and(|own| said.number() == Some(own as f64)) {
                true => reader.idle.push(said.said),
                false => reader.leave(&said.said, "this is predicted as peft finds it in the model's config"),
            }
        }
    }
    reader.refuse(&[&of("modules_to_save")], "modules that are trained whole beside it are not predicted");
    if let Some(said) = reader.take(&["autocast_adapter_dtype"]) {
        reader.idle.push(said.said);
    }
    reader.pass(|name| IDLE.contains(&name));
}
