//! The model that arguments of Megatron-LM say, as a configuration: GPT-3's layers are gpt2's, those with RMSNorm and SwiGLU llama's and its like.

mod arguments;
mod configs;

use serde_json::{Map, Value, json};

use crate::import::reader::Reader;
use crate::model::catalogue;
use crate::scenario::keys::Key;
use crate::scenario::{CustomModel, ModelChoice, Scenario};
use arguments::{Arguments, Layers};
use configs::{Common, gated, latent, plain};

/// Tokens of vocab.json of GPT-2, the vocabulary that goes with merges.txt.
const GPT2_TOKENS: u64 = 50_257;

/// Whether its layers are GPT-3's, which are followed as Megatron runs them otherwise than llama's.
pub(super) fn has_layers_of_gpt3(scenario: &Scenario) -> bool {
    scenario.architecture().is_ok_and(|model| model.model_type == "gpt2")
}

/// Reads the model; where no layers, width and heads are said it stays as it was.
pub(super) fn read(reader: &mut Reader) {
    let tensor = reader.named(&["tensor_model_parallel_size"]).last().and_then(|said| said.number());
    let mut own = Arguments { reader, said: Vec::new() };
    let sizes = (
        own.size(&["num_layers", "decoder_num_layers"]),
        own.size(&["hidden_size"]),
        own.size(&["num_attention_heads"]),
    );
    let (Some(layers), Some(hidden), Some(heads)) = sizes else {
        let why = "not all of --num-layers, --hidden-size and --num-attention-heads are given as numbers";
        return own.keep(why);
    };
    let made_of = Layers::read(&mut own);
    if !made_of.gated && !own.reader.named(&["num_experts"]).is_empty() {
        return own.keep("experts are followed in layers with SwiGLU alone");
    }
    let vocabulary = vocabulary(&mut own);
    let multiple = own.size(&["make_vocab_size_divisible_by"]).unwrap_or(128);
    let multiple = multiple.saturating_mul(tensor.map_or(1, |tensor| tensor.max(1.0) as u64));
    let feed_forward = own.size(&["ffn_hidden_size"]);
    // as megatron/training/arguments.py has it: the groups say nothing without the switch
    let groups = match own.flag(&["group_query_attention"]) {
        true => own.size(&["num_query_groups"]).unwrap_or(1),
        false => {
            own.pass("num_query_groups");
            heads
        }
    };
    let is_latent = own.flag(&["multi_latent_attention"]);
    // latent attention has sizes of heads of its own
    let width = if is_latent { None } else { own.size(&["kv_channels"]) };
    own.pass("kv_channels");
    let positions = own.size(&["max_position_embeddings"]);
    let tied = !own.flag(&["untie_embeddings_and_output_weights"]);
    let common = Common { layers, hidden, heads, groups, feed_forward, width, positions };
    let vocabulary = vocabulary.div_ceil(multiple.max(1)).saturating_mul(multiple);
    let (name, mut config) = match (made_of.gated, is_latent) {
        (true, true) => ("DeepSeek", latent(&mut own, &common, &made_of)),
        (true, false) => gated(&mut own, &common, &made_of),
        (false, _) => ("GPT-3", plain(&mut own, &common)),
    };
    config.insert("vocab_size".to_owned(), json!(vocabulary));
    config.insert("tie_word_embeddings".to_owned(), json!(tied));
    dropouts(&mut own, &mut config, made_of.gated);
    for (said, why) in made_of.others() {
        own.reader.leave(&said, why);
    }
    let said = own.said.join(", ");
    take(reader, name, &Value::Object(config), &said);
}

/// Makes a configuration the scenario's model.
fn take(reader: &mut Reader, name: &str, config: &Value, said: &str) {
    match CustomModel::read(name, &config.to_string()) {
        Ok(model) => {
            reader.scenario.model = ModelChoice::Custom(model.into());
            let written = Key::find("model").map(|key| key.write(&reader.scenario)).unwrap_or_default();
            reader.set("model", &written, said);
        }
        Err(issue) => reader.keep("model", said, &issue.message),
    }
}

/// How many tokens there are, before they are padded.
fn vocabulary(own: &mut Arguments<'_>) -> u64 {
    let kind = own.word("tokenizer_type", "");
    let named = own.reader.take(&["tokenizer_model"]);
    let files = own.reader.named(&["vocab_file", "merge_file"]);
    if let Some(tokens) = own.size(&["vocab_size"]) {
        own.reader.idle.extend(named.map(|said| said.said));
        // its token of an end is one more (megatron/core/tokenizers/text/libraries/null_tokenizer.py)
        return tokens.saturating_add(u64::from(kind.starts_with("Null")));
    }
    let known = named.as_ref().and_then(|said| {
        let name = said.text();
        let entry =
            catalogue::find(&name).or_else(|| catalogue::find(name.rsplit('/').next().unwrap_or_default()));
        entry.and_then(|entry| entry.architecture().ok())
    });
    if let (Some(model), Some(said)) = (known, &named) {
        let why = format!("its tokens are taken to be those of the model's config: {}", model.vocab);
        own.reader.leave(&said.said, &why);
        return model.vocab;
    }
    if kind.starts_with("GPT2") || (kind.is_empty() && !files.is_empty()) {
        return GPT2_TOKENS;
    }
    let before = own.reader.scenario.architecture().map_or(GPT2_TOKENS, |model| model.vocab);
    let said = named.map_or_else(|| "the vocabulary".to_owned(), |said| said.said);
    let why = format!(
        "how many tokens there are is in no argument (--vocab-size): {before}, as many as the model before, are taken"
    );
    own.reader.leave(&said, &why);
    before
}

/// Dropout, which is followed in GPT-3's layers alone.
fn dropouts(own: &mut Arguments<'_>, config: &mut Map<String, Value>, gated: bool) {
    for (name, keys) in
        [("hidden_dropout", &["resid_pdrop", "embd_pdrop"][..]), ("attention_dropout", &["attn_pdrop"])]
    {
        let said = own.reader.take(&[name]);
        let number = said.as_ref().and_then(|said| said.number());
        match (said, number, gated) {
            (Some(said), Some(number), false) => {
                keys.iter().for_each(|key| drop(config.insert((*key).to_owned(), json!(number))));
                own.said.push(said.said);
            }
            (Some(said), Some(0.0), true) => own.reader.idle.push(said.said),
            (Some(said), Some(_), true) => {
                own.reader.leave(&said.said, "dropout is followed in GPT-3's layers alone: none is taken");
            }
            (Some(said), None, _) => own.reader.keep("model", &said.said, "this is no probability"),
            (None, _, true) => {
                let text = format!("--{} is 0.1 by default", name.replace('_', "-"));
                own.reader.leave(&text, "dropout is followed in GPT-3's layers alone: none is taken");
            }
            (None, _, false) => {}
        }
    }
    own.reader.quietly("dropout", "config");
}
