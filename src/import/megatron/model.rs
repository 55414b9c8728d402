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
                self.reader.keep("model", &said.said, "this is no size of a model");
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

    /// Passes over what says nothing here.
    fn pass(&mut self, name: &str) {
        let said = self.reader.take(&[name]);
        self.reader.idle.extend(said.map(|said| said.said));
    }

    /// Leaves the model as it was, with all that is said of it.
    fn keep(mut self, why: &str) {
        let rest = self.reader.take_each(OF_A_MODEL);
        self.said.extend(rest.into_iter().map(|said| said.said));
        let said = if self.said.is_empty() { "the model".to_owned() } else { self.said.join(", ") };
        self.reader.keep("model", &said, why);
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
    positions: String,
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
            positions: if older { "rope".to_owned() } else { positions },
            biases: !own.flag(&["disable_bias_linear"]),
            qkv_biases: own.flag(&["add_qkv_bias"]),
            qk_norms: own.flag(&["qk_layernorm"]),
        }
    }

    /// What of them is otherwise than in the layers that they are taken for: what is said, and what is taken.
    fn others(&self) -> Vec<(String, &'static str)> {
        let is_rotary = self.positions == "rope" || self.positions == "yarn";
        let positions = || format!("--position-embedding-type {}", self.positions);
        let found = match self.gated {
            true => vec![
                (
                    !self.rms,
                    "LayerNorm (without --normalization RMSNorm)".to_owned(),
                    "norms of layers with SwiGLU are taken to be RMSNorm",
                ),
                (!is_rotary, positions(), "positions of layers with SwiGLU are taken to be rotary"),
                (
                    self.biases,
                    "biases (without --disable-bias-linear)".to_owned(),
                    "products of layers with SwiGLU are taken to have none",
                ),
                (self.squared, "--squared-relu".to_owned(), "the activation is taken to be SwiGLU"),
                (
                    self.qk_norms && self.qkv_biases,
                    "--add-qkv-bias".to_owned(),
                    "beside norms of queries and keys none are taken to be there",
                ),
            ],
            false => vec![
                (
                    self.rms,
                    "--normalization RMSNorm".to_owned(),
                    "norms of layers without --swiglu are taken to be LayerNorm, as GPT-3's",
                ),
                (
                    self.positions != "learned_absolute",
                    positions(),
                    "positions of layers without --swiglu are taken to be learned, as GPT-3's",
                ),
                (
                    !self.biases,
                    "--disable-bias-linear".to_owned(),
                    "products of layers without --swiglu are taken to have biases, as GPT-3's",
                ),
                (self.squared, "--squared-relu".to_owned(), "the activation is taken to be GELU"),
                (
                    self.qk_norms,
                    "--qk-layernorm".to_owned(),
                    "norms of queries and keys are not followed in GPT-3's layers",
                ),
                (
                    self.qkv_biases && !self.biases,
                    "--add-qkv-bias".to_owned(),
                    "all products are taken to have biases",
                ),
            ],
        };
        found.into_iter().filter(|(is_so, ..)| *is_so).map(|(_, said, why)| (said, why)).collect()
    }
}

/// Arguments that say what a model is like, beside its layers, width and heads.
const OF_A_MODEL: &[&str] = &[
    "vocab_size",
    "make_vocab_size_divisible_by",
    "tokenizer_type",
    "tokenizer_model",
    "ffn_hidden_size",
    "group_query_attention",
    "num_query_groups",
    "kv_channels",
    "max_position_embeddings",
    "untie_embeddings_and_output_weights",
    "hidden_dropout",
    "attention_dropout",
    "normalization",
    "position_embedding_type",
    "use_rotary_position_embeddings",
    "no_position_embedding",
    "swiglu",
    "squared_relu",
    "disable_bias_linear",
    "add_qkv_bias",
    "qk_layernorm",
    "multi_latent_attention",
    "q_lora_rank",
    "kv_lora_rank",
    "qk_head_dim",
    "qk_pos_emb_head_dim",
    "v_head_dim",
    "num_experts",
    "moe_*",
];

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

/// What all layers with SwiGLU say alike.
fn swiglu(common: &Common) -> Map<String, Value> {
    let Common { layers, hidden, heads, groups, .. } = *common;
    // two thirds of four times the width, a multiple of 64
    let usual = hidden.saturating_mul(8) / 3 / 64 * 64;
    object(json!({
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": common.feed_forward.unwrap_or(usual.max(1)),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": groups,
        "max_position_embeddings": common.positions.unwrap_or(2048),
    }))
}

/// Llama's layers and what is built on them.
fn gated(own: &mut Arguments<'_>, common: &Common, made_of: &Layers) -> (&'static str, Map<String, Value>) {
    let mut config = swiglu(common);
    let head = common.width.unwrap_or((common.hidden / common.heads).max(1));
    config.insert("head_dim".to_owned(), json!(head));
    let Some(experts) = own.size(&["num_experts"]) else {
        let (name, kind) = match (made_of.qk_norms, made_of.qkv_biases) {
            (true, _) => ("Qwen3", "qwen3"),
            (false, true) => ("Qwen2", "qwen2"),
            (false, false) => ("Llama", "llama"),
        };
        config.insert("model_type".to_owned(), json!(kind));
        return (name, config);
    };
    let chosen = own.size(&["moe_router_topk"]).unwrap_or(2);
    let width = own.size(&["moe_ffn_hidden_size"]);
    // each is asked, so that each is said
    let as_followed = ["moe_grouped_gemm", "moe_permute_fusion"].map(|name| own.flag(&[name]));
    if as_followed.contains(&false) {
        own.reader.leave(
            "experts without both of --moe-grouped-gemm and --moe-permute-fusion",
            "they are taken to be grouped products, with fused permutation",
        );
    }
    config.insert("num_experts_per_tok".to_owned(), json!(chosen));
    if made_of.qk_norms {
        let width = width.map_or_else(|| config["intermediate_size"].clone(), |width| json!(width));
        config.insert("model_type".to_owned(), json!("qwen3_moe"));
        config.insert("num_experts".to_owned(), json!(experts));
        config.insert("moe_intermediate_size".to_owned(), width);
        return ("Qwen3-MoE", config);
    }
    if made_of.qkv_biases {
        own.reader.leave("--add-qkv-bias", "beside experts none are taken to be there");
    }
    config.insert("model_type".to_owned(), json!("mixtral"));
    config.insert("num_local_experts".to_owned(), json!(experts));
    if let Some(width) = width {
        config.insert("intermediate_size".to_owned(), json!(width));
    }
    ("Mixtral", config)
}

/// Latent attention with experts, as deepseek_v2 has them; a router of sigmoid is deepseek_v3's.
fn latent(own: &mut Arguments<'_>, common: &Common, made_of: &Layers) -> Map<String, Value> {
    if !made_of.qk_norms {
        let why = "norms of the compressed states are taken to be there";
        own.reader.leave("latent attention without --qk-layernorm", why);
    }
    if made_of.qkv_biases && !made_of.qk_norms {
        own.reader.leave("--add-qkv-bias", "projections of latent attention are taken to have none");
    }
    let mut config = swiglu(common);
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
    if !shared.is_multiple_of(of_one.max(1)) {
        own.reader.leave(
            &format!("--moe-shared-expert-intermediate-size {shared}"),
            "shared experts are taken to be as wide as the others: so many of them, rounded down",
        );
    }
    let frequency = own.reader.take(&["moe_layer_freq"]);
    let dense = match (experts, &frequency) {
        (None, _) => common.layers,
        (Some(_), None) => 0,
        (Some(_), Some(said)) => dense_layers(&said.text(), common.layers).unwrap_or_else(|| {
            own.reader.leave(
                &said.said,
                "of patterns dense layers before all with experts are followed, as many as there are: ([0]*1+[1]*26)",
            );
            0
        }),
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

/// How many layers without experts a pattern of so many layers begins with: `([0]*1+[1]*26)`, or 1, by which every layer has them.
fn dense_layers(pattern: &str, layers: u64) -> Option<u64> {
    let pattern: String = pattern.chars().filter(|c| !c.is_whitespace() && !matches!(c, '(' | ')')).collect();
    if pattern == "1" {
        return Some(0);
    }
    let (dense, sparse) = pattern.split_once('+').unwrap_or(("[0]*0", &pattern));
    let sparse: u64 = sparse.strip_prefix("[1]*")?.parse().ok()?;
    let dense: u64 = dense.strip_prefix("[0]*")?.parse().ok()?;
    Some(dense).filter(|dense| dense.checked_add(sparse) == Some(layers))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_layers_are_read() {
        assert_eq!(dense_layers("([0]*1+[1]*26)", 27), Some(1));
        assert_eq!(dense_layers("[1]*27", 27), Some(0));
        assert_eq!(dense_layers("1", 27), Some(0));
        for other in ["2", "([1]*3+[0]*2)", "([0,1]*13)", "", "+", "[0]*x+[1]*2", "([0]*1+[1]*20)"] {
            assert_eq!(dense_layers(other, 27), None, "{other}");
        }
    }
}
