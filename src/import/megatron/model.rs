//! The model that arguments of Megatron-LM say, as a configuration: GPT-3's layers are gpt2's, those with RMSNorm and SwiGLU llama's and its like.

use serde_json::{Map, Value, json};

use crate::import::reader::Reader;
use crate::model::catalogue;
use crate::scenario::keys::Key;
use crate::scenario::{CustomModel, ModelChoice, Scenario};

/// Tokens of vocab.json of GPT-2, the vocabulary that goes with merges.txt.
const GPT2_TOKENS: u64 = 50_257;

/// The largest size that an argument may say.
const LARGEST: f64 = 1e9;

/// Whether its layers are GPT-3's, which are followed as Megatron runs them otherwise than llama's.
pub(super) fn has_layers_of_gpt3(scenario: &Scenario) -> bool {
    scenario.architecture().is_ok_and(|model| model.model_type == "gpt2")
}

/// Arguments of the model on their way into a configuration.
struct Arguments<'r> {
    reader: &'r mut Reader,
    said: Vec<String>,
}

impl Arguments<'_> {
    /// A size of the model; one that is none is left.
    fn size(&mut self, names: &[&str]) -> Option<u64> {
        let said = self.reader.take(names)?;
        let number = said.number().filter(|number| (1.0..=LARGEST).contains(number) && number.fract() == 0.0);
        match number {
            Some(number) => {
                self.said.push(said.said);
                Some(number as u64)
            }
            None => {
                self.reader.leave(&said.said, "this is no size of a model");
                None
            }
        }
    }

    fn flag(&mut self, names: &[&str]) -> bool {
        match self.reader.switch(names) {
            Some((on, said)) => {
                self.said.push(said);
                on
            }
            None => false,
        }
    }

    fn word(&mut self, name: &str, default: &str) -> String {
        match self.reader.take(&[name]) {
            Some(said) => {
                self.said.push(said.said.clone());
                said.text()
            }
            None => default.to_owned(),
        }
    }
}

/// What the layers are made of.
struct Layers {
    rms: bool,
    gated: bool,
    squared: bool,
    rotary: bool,
    biases: bool,
    qkv_biases: bool,
    qk_norms: bool,
}

impl Layers {
    fn read(own: &mut Arguments<'_>) -> Layers {
        let rms = own.word("normalization", "LayerNorm") == "RMSNorm";
        let positions = own.word("position_embedding_type", "learned_absolute");
        let older = own.flag(&["use_rotary_position_embeddings"]);
        Layers {
            rms,
            gated: own.flag(&["swiglu"]),
            squared: own.flag(&["squared_relu"]),
            rotary: older || positions == "rope" || positions == "yarn",
            biases: !own.flag(&["disable_bias_linear"]),
            qkv_biases: own.flag(&["add_qkv_bias"]),
            qk_norms: own.flag(&["qk_layernorm"]),
        }
    }

    /// What of them is otherwise than in the layers that they are taken for.
    fn others(&self) -> Vec<(&'static str, &'static str)> {
        let found: [(bool, &str, &str); 8] = match self.gated {
            true => [
                (
                    !self.rms,
                    "LayerNorm (without --normalization RMSNorm)",
                    "norms of layers with SwiGLU are taken to be RMSNorm",
                ),
                (
                    !self.rotary,
                    "learned positions (without --position-embedding-type rope)",
                    "positions of layers with SwiGLU are taken to be rotary",
                ),
                (
                    self.biases,
                    "biases (without --disable-bias-linear)",
                    "products of layers with SwiGLU are taken to have none",
                ),
                (self.squared, "--squared-relu", "the activation is taken to be SwiGLU"),
                (false, "", ""),
                (false, "", ""),
                (false, "", ""),
                (false, "", ""),
            ],
            false => [
                (
                    self.rms,
                    "--normalization RMSNorm",
                    "norms of layers without --swiglu are taken to be LayerNorm, as GPT-3's",
                ),
                (
                    self.rotary,
                    "rotary positions",
                    "positions of layers without --swiglu are taken to be learned, as GPT-3's",
                ),
                (
                    !self.biases,
                    "--disable-bias-linear",
                    "products of layers without --swiglu are taken to have biases, as GPT-3's",
                ),
                (self.squared, "--squared-relu", "the activation is taken to be GELU"),
                (
                    self.qk_norms,
                    "--qk-layernorm",
                    "norms of queries and keys are not followed in GPT-3's layers",
                ),
                (self.qkv_biases && !self.biases, "--add-qkv-bias", "all products are taken to have biases"),
                (false, "", ""),
                (false, "", ""),
            ],
        };
        found.into_iter().filter(|(is_so, ..)| *is_so).map(|(_, said, why)| (said, why)).collect()
    }
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
        let said = match own.said.is_empty() {
            true => "the model".to_owned(),
            false => own.said.join(", "),
        };
        let why = "not all of --num-layers, --hidden-size and --num-attention-heads are given";
        return own.reader.keep("model", &said, why);
    };
    let made_of = Layers::read(&mut own);
    let vocabulary = vocabulary(&mut own);
    let multiple = own.size(&["make_vocab_size_divisible_by"]).unwrap_or(128);
    let multiple = multiple.saturating_mul(tensor.map_or(1, |tensor| tensor.max(1.0) as u64));
    let feed_forward = own.size(&["ffn_hidden_size"]);
    let grouped = own.flag(&["group_query_attention"]);
    let groups = own.size(&["num_query_groups"]);
    // as megatron/training/arguments.py has it: the groups say nothing without the switch
    let groups = if grouped { groups.unwrap_or(1) } else { heads };
    let width = own.size(&["kv_channels"]);
    let positions = own.size(&["max_position_embeddings"]);
    let tied = !own.flag(&["untie_embeddings_and_output_weights"]);
    let common = Common { layers, hidden, heads, groups, feed_forward, width, positions };
    let vocabulary = vocabulary.div_ceil(multiple.max(1)).saturating_mul(multiple);
    let (name, mut config) = match made_of.gated {
        true => gated(&mut own, &common, &made_of),
        false => ("GPT-3", plain(&mut own, &common)),
    };
    config.insert("vocab_size".to_owned(), json!(vocabulary));
    config.insert("tie_word_embeddings".to_owned(), json!(tied));
    dropouts(&mut own, &mut config, made_of.gated);
    for (said, why) in made_of.others() {
        own.reader.leave(said, why);
    }
    let said = own.said.join(", ");
    take(reader, name, &Value::Object(config), &said);
}

struct Common {
    layers: u64,
    hidden: u64,
    heads: u64,
    groups: u64,
    feed_forward: Option<u64>,
    width: Option<u64>,
    positions: Option<u64>,
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

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

/// GPT-3's layers.
fn plain(own: &mut Arguments<'_>, common: &Common) -> Map<String, Value> {
    let Common { layers, hidden, heads, .. } = *common;
    if common.width.is_some_and(|width| width.saturating_mul(heads) != hidden) {
        own.reader.leave(
            "--kv-channels",
            "heads of GPT-3's layers are taken to be as wide as the hidden state together",
        );
    }
    object(json!({
        "model_type": "gpt2",
        "n_embd": hidden,
        "n_inner": common.feed_forward.unwrap_or(hidden.saturating_mul(4)),
        "n_layer": layers,
        "n_head": heads,
        "num_query_groups": common.groups,
        "n_positions": common.positions.unwrap_or(1024),
        "activation_function": "gelu_new",
    }))
}

/// Llama's layers and what is built on them.
fn gated(own: &mut Arguments<'_>, common: &Common, made_of: &Layers) -> (&'static str, Map<String, Value>) {
    let Common { layers, hidden, heads, groups, .. } = *common;
    // two thirds of four times the width, a multiple of 64
    let usual = hidden.saturating_mul(8) / 3 / 64 * 64;
    let mut config = object(json!({
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": common.feed_forward.unwrap_or(usual.max(1)),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": groups,
        "max_position_embeddings": common.positions.unwrap_or(2048),
    }));
    if !own.flag(&["multi_latent_attention"]) {
        config.insert("head_dim".to_owned(), json!(common.width.unwrap_or((hidden / heads).max(1))));
    } else {
        return ("DeepSeek", latent(own, config, common));
    }
    let (name, kind) = match (made_of.qk_norms, made_of.qkv_biases) {
        (true, _) => ("Qwen3", "qwen3"),
        (false, true) => ("Qwen2", "qwen2"),
        (false, false) => ("Llama", "llama"),
    };
    match own.size(&["num_experts"]) {
        Some(experts) => {
            config.insert("model_type".to_owned(), json!("mixtral"));
            config.insert("num_local_experts".to_owned(), json!(experts));
            config
                .insert("num_experts_per_tok".to_owned(), json!(own.size(&["moe_router_topk"]).unwrap_or(2)));
            if let Some(size) = own.size(&["moe_ffn_hidden_size"]) {
                config.insert("intermediate_size".to_owned(), json!(size));
            }
            ("Mixtral", config)
        }
        None => {
            config.insert("model_type".to_owned(), json!(kind));
            (name, config)
        }
    }
}

/// Latent attention with experts, as deepseek_v2 has them; a router of sigmoid is deepseek_v3's.
fn latent(own: &mut Arguments<'_>, mut config: Map<String, Value>, common: &Common) -> Map<String, Value> {
    let by_softmax = own.word("moe_router_score_function", "softmax") == "softmax";
    let has_bias = own.flag(&["moe_router_enable_expert_bias"]);
    let before = own.flag(&["moe_router_pre_softmax"]);
    let experts = own.size(&["num_experts"]);
    // each is asked, so that each is said
    let as_followed = ["moe_grouped_gemm", "moe_permute_fusion", "moe_pad_expert_input_to_capacity"]
        .map(|name| own.flag(&[name]));
    if experts.is_some() && as_followed.contains(&false) {
        own.reader.leave(
            "experts without all of --moe-grouped-gemm, --moe-permute-fusion and --moe-pad-expert-input-to-capacity",
            "they are taken to be grouped products over as many tokens for each expert, with fused permutation",
        );
    }
    if experts.is_some() {
        for (name, usual, followed) in [
            (
                "moe_token_dispatcher_type",
                "allgather",
                "tokens are taken to go to their experts by all-to-all",
            ),
            (
                "moe_router_load_balancing_type",
                "aux_loss",
                "the loss that balances experts is taken to be each sequence's (seq_aux_loss)",
            ),
            (
                "moe_expert_capacity_factor",
                "none",
                "each expert is taken to get as many tokens, none more (a factor of 1)",
            ),
        ] {
            if own.reader.named(&[name]).is_empty() {
                own.reader.leave(&format!("--{} is {usual} by default", name.replace('_', "-")), followed);
            }
        }
    }
    if experts.is_some() && by_softmax && !before {
        own.reader.leave(
            "softmax after the choice of experts (without --moe-router-pre-softmax)",
            "the router is taken to be softmax over all experts before the choice",
        );
    }
    let of_one = own.size(&["moe_ffn_hidden_size"]);
    let intermediate = common.feed_forward.unwrap_or(common.hidden.saturating_mul(4));
    let of_one = of_one.unwrap_or(intermediate);
    let shared = own.size(&["moe_shared_expert_intermediate_size"]).unwrap_or(0);
    let frequency = own.reader.take(&["moe_layer_freq"]);
    let dense = match (experts, &frequency) {
        (None, _) => common.layers,
        (Some(_), None) => 0,
        (Some(_), Some(said)) => match dense_layers(&said.text()) {
            Some(dense) => dense,
            None => {
                own.reader.leave(
                    &said.said,
                    "of patterns dense layers before all with experts are followed: ([0]*1+[1]*26)",
                );
                0
            }
        },
    };
    own.said.extend(frequency.map(|said| said.said));
    let model = if by_softmax && !has_bias { "deepseek_v2" } else { "deepseek_v3" };
    let more = json!({
        "model_type": model,
        "num_key_value_heads": common.heads,
        "moe_intermediate_size": of_one,
        "first_k_dense_replace": dense,
        "q_lora_rank": own.size(&["q_lora_rank"]),
        "kv_lora_rank": own.size(&["kv_lora_rank"]).unwrap_or(32),
        "qk_nope_head_dim": own.size(&["qk_head_dim"]).unwrap_or(128),
        "qk_rope_head_dim": own.size(&["qk_pos_emb_head_dim"]).unwrap_or(64),
        "v_head_dim": own.size(&["v_head_dim"]).unwrap_or(128),
        "n_routed_experts": experts.unwrap_or(1),
        "num_experts_per_tok": own.size(&["moe_router_topk"]).unwrap_or(2),
        "n_shared_experts": shared / of_one.max(1),
        "n_group": own.size(&["moe_router_num_groups"]).unwrap_or(1),
        "topk_group": own.size(&["moe_router_group_topk"]).unwrap_or(1),
    });
    config.extend(object(more));
    config
}

/// How many layers without experts a pattern begins with: `([0]*1+[1]*26)`, or 1, by which every layer has them.
fn dense_layers(pattern: &str) -> Option<u64> {
    let pattern: String = pattern.chars().filter(|c| !c.is_whitespace() && !matches!(c, '(' | ')')).collect();
    if pattern == "1" {
        return Some(0);
    }
    let (dense, sparse) = pattern.split_once('+').unwrap_or(("[0]*0", &pattern));
    sparse.strip_prefix("[1]*")?.parse::<u64>().ok()?;
    dense.strip_prefix("[0]*")?.parse().ok()
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
        own.said.push(said.said.clone());
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
            (Some(said), None, _) => own.reader.leave(&said.said, "this is no probability"),
            (None, _, true) => {
                let text = format!("--{} is 0.1 by default", name.replace('_', "-"));
                own.reader.leave(&text, "dropout is followed in GPT-3's layers alone: none is taken");
            }
            (None, _, false) => {}
        }
    }
    own.reader.quietly("dropout", "config");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_layers_are_read() {
        assert_eq!(dense_layers("([0]*1+[1]*26)"), Some(1));
        assert_eq!(dense_layers("[1]*27"), Some(0));
        assert_eq!(dense_layers("1"), Some(0));
        for other in ["2", "([1]*3+[0]*2)", "([0,1]*13)", "", "+", "[0]*x+[1]*2"] {
            assert_eq!(dense_layers(other), None, "{other}");
        }
    }
}
