//! Rows measured of one rank of many: their cases name the engine and its own settings, which are put here into the words of
//! all other cases.

use serde_json::{Map, Value, json};

use crate::scenario::{Stack, WrappedBy};

/// Settings of DeepSpeed that nothing reads where `all_gather_into_tensor` is there (deepspeed/runtime/utils.py
/// `all_gather_dp_groups`).
const WITHOUT_EFFECT: [&str; 1] = ["allgather_bucket_size"];

/// What DeepSpeed may keep in another memory than the GPU's.
const OFFLOADED: [&str; 2] = ["offload_optimizer", "offload_param"];

fn is_on_cpu(place: &Value) -> bool {
    place.get("device").and_then(Value::as_str) == Some("cpu")
}

/// What of it is in the CPU's memory, as [`super::truth`] says it.
fn offload(own: &Map<String, Value>) -> Option<&'static str> {
    match OFFLOADED.map(|name| own.get(name).is_some_and(is_on_cpu)) {
        [false, false] => None,
        [true, false] => Some("optimizer"),
        [true, true] => Some("all"),
        // its optimizer is on the GPU: the key stays, which nobody knows
        [false, true] => None,
    }
}

/// The case of a row in the words of [`super::truth`], where it is one of many ranks.
pub(super) fn translated(case: &Value) -> Option<Value> {
    let engine = case.get("engine")?;
    let engine = engine.as_str().unwrap_or_default();
    let is_torchtune = case.get("stack").and_then(Value::as_str) == Some(Stack::Torchtune.slug());
    let is_by_accelerate =
        case.get("wrapped_by").and_then(Value::as_str) == Some(WrappedBy::Accelerate.slug());
    let mut out = Map::new();
    for (key, value) in case.as_object().into_iter().flatten() {
        let (key, value) = match (key.as_str(), value) {
            // all GPUs share the layers: there is nothing left to shard or to copy
            ("engine", _) if engine == "tp" => ("shard", json!("ddp")),
            ("engine", _) => ("shard", json!(engine)),
            ("world", world) => ("gpus", world.clone()),
            // float32 weights are computed with in bfloat16: by autocast, or by FSDP2's MixedPrecisionPolicy
            // but for torchtune's, which has no policy
            ("dtype", Value::String(dtype)) if dtype == "fp32" && !is_torchtune => {
                ("dtype", json!("amp_bf16"))
            }
            // what is followed of axolotl's loading; of accelerate's two ways a step allocates the same
            ("efficient_loading", Value::Bool(on)) if *on || is_by_accelerate => continue,
            // what is merged into DeepSpeed's configuration
            ("ds", Value::Object(own)) => {
                let offload = offload(own);
                out.extend(offload.map(|offload| ("cpu_offload".to_owned(), json!(offload))));
                let is_read = |(key, value): &(&String, &Value)| {
                    WITHOUT_EFFECT.contains(&key.as_str())
                        || OFFLOADED.contains(&key.as_str()) && offload.is_some() && is_on_cpu(value)
                };
                let others = own.iter().filter(|setting| !is_read(setting));
                out.extend(others.map(|(key, value)| (key.clone(), value.clone())));
                continue;
            }
            (key, value) => (key, value.clone()),
        };
        out.insert(key.to_owned(), value);
    }
    if engine == "fsdp2" && case.get("world") == Some(&json!(1)) {
        out.insert("shard_alone".to_owned(), json!(true));
    }
    Some(Value::Object(out))
}
