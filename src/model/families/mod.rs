//! One reader per shape of family: from config keys to blocks.

use serde_json::Value;

use super::blocks::*;
use super::*;
use crate::scenario::{Field, Issue};

/// Builds the architecture that a config describes.
///
/// # Errors
/// An [`Issue`] where the family is unknown or a key is missing.
pub fn read(c: &Value) -> Result<Architecture, Issue> {
    let n = |k: &str| c.get(k).and_then(Value::as_u64);
    let t = c["model_type"].as_str().unwrap_or("").to_string();
    if t == "gpt2" {
        let (h, l, a) = (n("n_embd").unwrap(), n("n_layer").unwrap(), n("n_head").unwrap());
        let ln = |name| Norm::new(name, h, NormKind::LayerNorm { bias: true });
        let lin = |name, i, o| Linear::new(name, i, o).with_bias(true).with_class(LinearClass::Conv1d);
        let block = Block {
            wiring: Wiring::PreNorm { attention: ln("ln_1"), mlp: ln("ln_2") },
            mixer: Mixer::Attention(Attention {
                heads: a, kv_heads: a, head_dim: h / a,
                projection: Projection::Fused(lin("attn.c_attn", h, 3 * h)),
                output: lin("attn.c_proj", h, h),
                qk_norm: None, rotary: Rotary::None, window: None, softcap: false, causal: true, sinks: false,
                dropout: Dropout::new(0.1), code: AttentionCode::Gpt2,
            }),
            ffn: FeedForward::Dense(Mlp::Plain { up: lin("mlp.c_fc", h, 4 * h), down: lin("mlp.c_proj", 4 * h, h), act: Activation::GeluNew }),
            residual_dropout: Dropout::new(0.1),
        };
        let v = n("vocab_size").unwrap();
        return Ok(Architecture {
            model_type: t, hidden: h, vocab: v, max_positions: n("n_positions"),
            embeddings: Embeddings { tokens: Table { name: "wte", rows: v, width: h }, positions: Some(Table { name: "wpe", rows: n("n_positions").unwrap(), width: h }), token_types: None, norm: None, project_in: None, scaled: false, dropout: Dropout::new(0.1) },
            blocks: vec![block], order: vec![0; l as usize],
            final_norm: Some(ln("ln_f")),
            head: Head { linear: Linear::new("lm_head", h, v), tied: true, transform: None, softcap: false, scaled: false, objective: Objective::CausalLm },
            towers: vec![], notes: vec![],
        });
    }
    if !["llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "phi3"].contains(&t.as_str()) {
        return Err(Issue::error(Field::Model, format!("family {t}")));
    }
    let (h, l, a, i, v) = (n("hidden_size").unwrap(), n("num_hidden_layers").unwrap(), n("num_attention_heads").unwrap(), n("intermediate_size").unwrap(), n("vocab_size").unwrap());
    let kv = n("num_key_value_heads").unwrap_or(a);
    let d = n("head_dim").unwrap_or(if t == "gemma" || t == "gemma2" { 256 } else { h / a });
    let gem = t.starts_with("gemma");
    let kind = if gem { NormKind::RmsPlusOne } else { NormKind::Rms };
    let norm = |name| Norm::new(name, h, kind);
    let act = if gem { Activation::GeluTanh } else { Activation::Silu };
    let b = t == "qwen2";
    let fused = t == "phi3";
    let make = |window| Block {
        wiring: if t == "gemma2" { Wiring::Sandwich { attention: norm("input_layernorm"), attention_post: norm("post_attention_layernorm"), mlp: norm("pre_feedforward_layernorm"), mlp_post: norm("post_feedforward_layernorm") } } else { Wiring::PreNorm { attention: norm("input_layernorm"), mlp: norm("post_attention_layernorm") } },
        mixer: Mixer::Attention(Attention {
            heads: a, kv_heads: kv, head_dim: d,
            projection: if fused { Projection::Fused(Linear::new("self_attn.qkv_proj", h, (a + 2 * kv) * d)) } else { Projection::Separate { q: Linear::new("self_attn.q_proj", h, a * d).with_bias(b), k: Linear::new("self_attn.k_proj", h, kv * d).with_bias(b), v: Linear::new("self_attn.v_proj", h, kv * d).with_bias(b) } },
            output: Linear::new("self_attn.o_proj", a * d, h),
            qk_norm: (t == "qwen3").then(|| QkNorm { q: Norm::new("self_attn.q_norm", d, kind), k: Norm::new("self_attn.k_norm", d, kind) }),
            rotary: if fused { Rotary::Partial { dim: d } } else { Rotary::Full },
            window, softcap: t == "gemma2", causal: true, sinks: false, dropout: Dropout::new(0.0), code: AttentionCode::Standard,
        }),
        ffn: FeedForward::Dense(if fused { Mlp::GatedFused { gate_up: Linear::new("mlp.gate_up_proj", h, 2 * i), down: Linear::new("mlp.down_proj", i, h), act } } else { Mlp::Gated { gate: Linear::new("mlp.gate_proj", h, i), up: Linear::new("mlp.up_proj", h, i), down: Linear::new("mlp.down_proj", i, h), act } }),
        residual_dropout: Dropout::new(0.0),
    };
    let w = n("sliding_window").filter(|_| t == "mistral" || t == "phi3");
    let (blocks, order) = if t == "gemma2" { (vec![make(Some(n("sliding_window").unwrap_or(4096))), make(None)], (0..l).map(|x| (x % 2) as u16).collect()) } else { (vec![make(w)], vec![0; l as usize]) };
    let tied = c.get("tie_word_embeddings").and_then(Value::as_bool).unwrap_or(gem);
    Ok(Architecture {
        model_type: t, hidden: h, vocab: v, max_positions: n("max_position_embeddings"),
        embeddings: Embeddings { tokens: Table { name: "embed_tokens", rows: v, width: h }, positions: None, token_types: None, norm: None, project_in: None, scaled: gem, dropout: Dropout::new(0.0) },
        blocks, order, final_norm: Some(norm("norm")),
        head: Head { linear: Linear::new("lm_head", h, v), tied, transform: None, softcap: kind == NormKind::RmsPlusOne && c["model_type"] == "gemma2", scaled: false, objective: Objective::CausalLm },
        towers: vec![], notes: vec![],
    })
}
