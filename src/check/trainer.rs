//! Rows measured through trl's own trainers: their cases name the trainer's arguments, which are put here into the words of
//! all other cases.

use serde_json::{Map, Value, json};

use super::error::CheckError;
use crate::scenario::{Reference, Task};

/// Tokens of the prompt of a row that says nothing of it.
const SHORTEST_PROMPT: u64 = 2;

/// The case of a row in the words of [`super::truth`], where it is one of a trainer.
///
/// # Errors
/// What no other case has a word for.
pub(super) fn translated(case: &Value) -> Result<Option<Value>, CheckError> {
    let Some(trainer) = case.get("trainer") else { return Ok(None) };
    // PPO's is none of transformers' Trainer, which calls what records a run
    let task = trainer.as_str().and_then(Task::from_slug).filter(|task| *task != Task::Ppo);
    let task = task.ok_or_else(|| CheckError::from(format!("the trainer {trainer} is not modelled")))?;
    let get = |key: &str| case.get(key).cloned().unwrap_or_default();
    let lora = get("lora");
    let arguments = get("args");
    let mut out = Map::new();
    for (key, value) in case.as_object().into_iter().flatten() {
        match key.as_str() {
            "config" | "batch" | "seq" | "preset" | "prompt" => out.insert(key.clone(), value.clone()),
            // the rest is said below, or follows from it
            "trainer"
            | "weights"
            | "bf16"
            | "lora"
            | "gradient_checkpointing"
            | "optimizer"
            | "accumulation"
            | "steps"
            | "args"
            | "batch_shapes" => None,
            other => return Err(format!("the key {other:?} is unknown").into()),
        };
    }
    let mut set = |key: &str, value: Value| out.insert(key.to_owned(), value);
    set("task", json!(task.slug()));
    if task.has_pairs() && case.get("prompt").is_none() {
        set("prompt", json!(SHORTEST_PROMPT));
    }
    set("stack", json!("trl"));
    // nothing answers whether the collator's mask is all ones: what the device reads is zeros, which is padding
    set("attention_mask", json!("padded"));
    let own = get("weights").as_str().unwrap_or("bf16").to_owned();
    if get("bf16").as_bool().unwrap_or(true) {
        set("dtype", json!("amp_bf16"));
        set("weights", json!(own));
    } else {
        set("dtype", json!(own));
    }
    set("method", json!(if lora.is_null() { "full" } else { "lora" }));
    set("lora", lora);
    set("grad_accumulation", case.get("accumulation").cloned().unwrap_or(json!(1)));
    set("iters", case.get("steps").cloned().unwrap_or(json!(3)));
    set("optimizer", json!(optimizer(get("optimizer").as_str().unwrap_or("adamw_torch_fused"))));
    let checkpoints = get("gradient_checkpointing").as_bool().unwrap_or(true);
    set("gradient_checkpointing", json!(if checkpoints { "full" } else { "none" }));
    for (name, value) in arguments.as_object().into_iter().flatten() {
        match (name.as_str(), value) {
            ("activation_offloading", Value::Bool(on)) => {
                set("offload", if *on { json!("trl") } else { Value::Null });
            }
            ("gradient_checkpointing_kwargs", kwargs)
                if kwargs.get("use_reentrant") == Some(&json!(true)) =>
            {
                set("gradient_checkpointing", json!(if checkpoints { "reentrant" } else { "none" }));
            }
            ("precompute_ref_log_probs", Value::Bool(on)) if task == Task::Dpo => {
                let reference = if *on { Reference::Precomputed } else { Reference::Scored };
                set("reference", json!(reference.slug()));
            }
            ("max_grad_norm", Value::Number(norm)) => {
                set("clip", json!(norm.as_f64() != Some(0.0)));
            }
            _ => return Err(format!("the argument {name}={value} is not modelled").into()),
        }
    }
    Ok(Some(Value::Object(out)))
}

/// transformers' name of an optimizer in the harness's words; one that it has none for keeps its own.
fn optimizer(name: &str) -> &str {
    match name {
        "adamw_torch" => "adamw",
        "adamw_torch_fused" => "adamw_fused",
        "adamw_bnb_8bit" | "adamw_8bit" => "adamw8bit",
        "paged_adamw_8bit" => "paged_adamw8bit",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn translation(key: &str, value: Value) -> Result<Value, CheckError> {
        let mut case =
            json!({ "trainer": "sft", "batch": 2, "seq": 8, "weights": "fp32", "optimizer": "adamw_torch" });
        case[key] = value;
        translated(&case).map(Option::unwrap)
    }

    #[test]
    fn a_trainers_arguments_are_put_into_the_harness_words() {
        for (key, value, there, says) in [
            ("batch", json!(3), "batch", json!(3)),
            ("bf16", json!(false), "dtype", json!("fp32")),
            ("bf16", json!(true), "dtype", json!("amp_bf16")),
            ("lora", json!({ "r": 8 }), "method", json!("lora")),
            ("accumulation", json!(2), "grad_accumulation", json!(2)),
            ("gradient_checkpointing", json!(false), "gradient_checkpointing", json!("none")),
            ("optimizer", json!("adamw_torch_fused"), "optimizer", json!("adamw_fused")),
            ("args", json!({ "activation_offloading": true }), "offload", json!("trl")),
            ("args", json!({ "max_grad_norm": 0.0 }), "clip", json!(false)),
        ] {
            assert_eq!(translation(key, value).unwrap()[there], says, "{key}");
        }
        assert_eq!(translated(&json!({ "batch": 1 })), Ok(None));
    }

    #[test]
    fn what_has_no_word_says_so() {
        for (key, value, reason) in [
            ("trainer", json!("ppo"), "the trainer \"ppo\" is not modelled"),
            ("moon", json!(1), "the key \"moon\" is unknown"),
            ("args", json!({ "packing": true }), "the argument packing=true is not modelled"),
        ] {
            assert_eq!(translation(key, value), Err(reason.into()));
        }
    }
}
