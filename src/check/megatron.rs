//! Rows measured of one rank of a Megatron-core job: their cases give a model's dimensions and how it is divided, which are put
//! here into the words of all other cases.

use serde_json::{Map, Value, json};

use crate::scenario::{Division, Split};

/// The case of a row in the words of [`super::truth`], where it is one of Megatron-core.
pub(super) fn translated(case: &Value) -> Option<Value> {
    let own = case.as_object().filter(|case| case.contains_key("distopt"))?;
    let number = |key: &str, default: u64| own.get(key).and_then(Value::as_u64).unwrap_or(default);
    let (world, stages) = (number("world", 8), number("pp", 1).max(1));
    let mut out = Map::new();
    let mut put = |key: &str, value: Value| out.insert(key.to_owned(), value);
    put("config", config(own));
    put("stack", json!("megatron"));
    put("dtype", json!("amp_bf16"));
    put("weights", json!("bf16"));
    let is_local = own.get("impl").and_then(Value::as_str).unwrap_or("local") == "local";
    let attention = match own.get("attn").and_then(Value::as_str) {
        Some("flash") => "flash_attention_2",
        Some("unfused") => "eager",
        _ if is_local => "eager",
        _ => "sdpa_cudnn",
    };
    put("attention", json!(attention));
    // ranks are counted through a stage's GPUs first
    let each = (world / stages).max(1);
    put("stage", json!(number("rank", 0) / each + 1));
    if let Some(parts) = own.get("virtual").and_then(Value::as_u64) {
        let counts = |key: &str| own.get(key).and_then(Value::as_bool).unwrap_or(false);
        let split = Split {
            first: number("first_stage", 0),
            last: number("last_stage", 0),
            counts_embedding: counts("embedding_split"),
            counts_loss: counts("loss_split"),
        };
        let usual = Division::of(number("layers", 0), stages, 0, split).ok()?.of_usual_stage();
        let at_a_time = usual.checked_div(parts).filter(|_| usual.is_multiple_of(parts))?;
        put("vpp", json!(at_a_time));
    }
    for (key, value) in own {
        let value = value.clone();
        let (key, value) = match (key.as_str(), &value) {
            (
                "hidden" | "ffn" | "layers" | "heads" | "kv" | "vocab" | "tied" | "rank" | "topk"
                | "head_dim" | "experts" | "mla" | "moe_ffn" | "shared" | "dense" | "groups" | "gpt" | "attn"
                | "qkv_bias" | "qk_norm" | "dropless"
                // which of PyTorch's kernels are allowed
                | "deterministic",
                _,
            ) => {
                continue;
            }
            // what is not said of stages, and what was said above
            ("virtual", _) | ("vp" | "first_stage" | "last_stage", Value::Null) => continue,
            // one of each expert, or none of any
            ("ep", Value::Number(number)) if number.as_u64() == Some(1) => continue,
            ("impl", Value::String(name)) => ("impl", json!(name.replace('_', "-"))),
            ("ce", Value::Null) => continue,
            ("ce", _) => ("loss", value),
            ("world", _) => ("gpus", value),
            ("vp", _) => ("vpp", value),
            ("micro", _) => ("grad_accumulation", value),
            ("recompute", Value::Null) => ("gradient_checkpointing", json!("none")),
            ("recompute", _) => ("gradient_checkpointing", value),
            ("distopt", Value::Bool(on)) => ("shard", json!(if *on { "dist-opt" } else { "ddp" })),
            ("fp32_reduce", Value::Bool(on)) => ("reduce_dtype", json!(if *on { "fp32" } else { "bf16" })),
            (key, _) => (key, value),
        };
        put(key, value);
    }
    Some(Value::Object(out))
}

/// The configuration of a llama, with biases of queries, keys and values that of a qwen2, with norms of queries and keys that of a
/// qwen3, with experts that of a mixtral or a qwen3_moe, or with latent attention too that of a deepseek_v2.
fn config(own: &Map<String, Value>) -> Value {
    if own.get("gpt").and_then(Value::as_bool) == Some(true) {
        return json!({
            "model_type": "gpt2", "n_embd": own.get("hidden"), "n_inner": own.get("ffn"), "n_layer": own.get("layers"),
            "n_head": own.get("heads"), "num_query_groups": own.get("kv"), "n_positions": own.get("seq"), "vocab_size": own.get("vocab"),
            "tie_word_embeddings": own.get("tied"), "activation_function": "gelu_new",
        });
    }
    let has = |key: &str| own.get(key).and_then(Value::as_bool) == Some(true);
    let family = if has("qk_norm") {
        "qwen3"
    } else if has("qkv_bias") {
        "qwen2"
    } else {
        "llama"
    };
    let mut config = json!({
        "model_type": family, "hidden_size": own.get("hidden"), "intermediate_size": own.get("ffn"),
        "num_hidden_layers": own.get("layers"), "num_attention_heads": own.get("heads"),
        "num_key_value_heads": own.get("kv"), "vocab_size": own.get("vocab"),
        "tie_word_embeddings": own.get("tied"), "head_dim": own.get("head_dim"),
    });
    if has("dropless") {
        // the widths of experts are by other names in either
        let kind = if has("qk_norm") { "qwen3_moe" } else { "mixtral" };
        let experts = json!({
            "model_type": kind, "num_experts": own.get("experts"), "num_local_experts": own.get("experts"),
            "num_experts_per_tok": own.get("topk"), "moe_intermediate_size": own.get("moe_ffn"),
            "intermediate_size": own.get("moe_ffn"),
        });
        if let (Some(config), Some(experts)) = (config.as_object_mut(), experts.as_object()) {
            config.extend(experts.clone());
        }
        return config;
    }
    let Some(latent) = own.get("mla").and_then(Value::as_array) else { return config };
    let number = |key: &str| own.get(key).and_then(Value::as_u64).unwrap_or(0);
    let group =
        |index: usize| own.get("groups").and_then(|groups| groups.get(index)).cloned().unwrap_or(json!(1));
    let experts = json!({
        "model_type": "deepseek_v2", "n_routed_experts": own.get("experts"), "num_experts_per_tok": own.get("topk"),
        "moe_intermediate_size": own.get("moe_ffn"), "first_k_dense_replace": number("dense"),
        "n_shared_experts": number("shared") / number("moe_ffn").max(1), "n_group": group(0), "topk_group": group(1),
    });
    let names = ["q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"];
    let latent = names.iter().map(|name| (*name).to_owned()).zip(latent.iter().cloned());
    if let (Some(config), Some(experts)) = (config.as_object_mut(), experts.as_object()) {
        config.extend(experts.clone());
        config.extend(latent);
    }
    config
}
