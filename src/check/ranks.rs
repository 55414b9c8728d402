//! Rows measured of one rank of many: their cases name the engine and its own settings, which are put here into the words of
//! all other cases.

use serde_json::{Map, Value, json};

use super::error::CheckError;

/// The case of a row in the words of [`super::truth`], where it is one of many ranks.
///
/// # Errors
/// What no other case has a word for.
pub(super) fn translated(case: &Value) -> Result<Option<Value>, CheckError> {
    let Some(engine) = case.get("engine") else { return Ok(None) };
    let engine = engine.as_str().unwrap_or_default();
    let mut out = Map::new();
    for (key, value) in case.as_object().into_iter().flatten() {
        let (key, value) = match (key.as_str(), value) {
            ("engine", _) => ("shard", json!(engine)),
            ("world", world) => ("gpus", world.clone()),
            // float32 weights are computed with in bfloat16: by autocast, or by FSDP2's MixedPrecisionPolicy
            ("dtype", Value::String(dtype)) if dtype == "fp32" => ("dtype", json!("amp_bf16")),
            // of DeepSpeed alone
            ("ds", _) => continue,
            (key, value) => (key, value.clone()),
        };
        out.insert(key.to_owned(), value);
    }
    if engine.starts_with("zero") {
        return Err(format!("DeepSpeed's ZeRO ({engine}) is not modelled").into());
    }
    Ok(Some(Value::Object(out)))
}
