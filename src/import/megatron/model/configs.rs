//! The configurations that arguments of a model come to.

use serde_json::{Map, Value, json};

use super::super::known::DEFAULTS;
use super::arguments::{Arguments, Layers};

/// What every configuration says.
pub(super) struct Common {
    pub layers: u64,
    pub hidden: u64,
    pub heads: u64,
    pub groups: u64,
    pub feed_forward: Option<u64>,
    pub width: Option<u64>,
    pub positions: Option<u64>,
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

/// GPT-3's layers.
pub(super) fn plain(own: &mut Arguments<'_>, common: &Common) -> Map<String, Value> {
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
pub(super) fn gated(
    own: &mut Arguments<'_>,
    common: &Common,
    made_of: &Layers,
) -> (&'static str, Map<String, Value>) {
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
    if !own.all(&["moe_grouped_gemm", "moe_permute_fusion"]) {
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
pub(super) fn latent(own: &mut Arguments<'_>, common: &Common, made_of: &Layers) -> Map<String, Value> {
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
    let as_followed =
        own.all(&["moe_grouped_gemm", "moe_permute_fusion", "moe_pad_expert_input_to_capacity"]);
    if experts.is_some() && !as_followed {
        own.reader.leave(
            "experts without all of --moe-grouped-gemm, --moe-permute-fusion and --moe-pad-expert-input-to-capacity",
            "they are taken to be grouped products over as many tokens for each expert, with fused permutation",
        );
    }
    if experts.is_some() {
        for (name, usual, followed) in DEFAULTS {
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
