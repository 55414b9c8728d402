//! The same part by part: what was alive at the peak of each phase.

use serde::Serialize;
use serde_json::Value;

use super::measurement::error_pct;
use crate::memory::{Category, Memory, Stage};
use crate::units::Bytes;

/// One part of one phase's peak, measured and predicted.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PartRow {
    /// The measurement's name.
    pub id: String,
    /// The phase: its slug, or `model` for parameter counts.
    pub phase: &'static str,
    /// The part.
    pub part: &'static str,
    /// Measured bytes; for parameter counts their number.
    pub measured: Bytes,
    /// The predicted figure.
    pub predicted: Bytes,
    /// Predicted over measured less one, in percent.
    pub error_pct: f64,
}

/// What a measurement calls the parts, and ours of the same meaning.
const PARTS: [(&str, &[&str], &[Category]); 11] = [
    ("weights", &["weights"], &[Category::Weights, Category::Adapters]),
    ("quant_state", &["quant_state"], &[Category::QuantState]),
    ("buffers", &["buffers"], &[Category::Buffers]),
    ("gradients", &["grads"], &[Category::Gradients]),
    ("optimizer", &["optimizer"], &[Category::Optimizer]),
    ("activations", &["activations"], &[Category::Activations]),
    ("weight_copies", &["weight_copies"], &[Category::WeightCopies]),
    ("kv_cache", &["kv_cache"], &[Category::KvCache]),
    ("logits", &["logits_loss", "logits_grad"], &[Category::Logits]),
    ("temporaries", &["recomputed", "backward_temp", "step_temp"], &[Category::Temporaries]),
    ("workspace_and_batch", &["workspace", "batch"], &[Category::Workspace, Category::Batch]),
];

/// Every part that was measured or predicted, at the peaks of the steady state; nothing where a row has totals only.
pub(super) fn compare(id: &str, row: &Value, memory: &Memory) -> Vec<PartRow> {
    let mut rows = Vec::new();
    let mut push = |phase, part, measured: u64, predicted: u64| {
        if measured > 0 || predicted > 0 {
            let (measured, predicted) = (Bytes(measured), Bytes(predicted));
            let error_pct = error_pct(measured, predicted);
            rows.push(PartRow { id: id.to_owned(), phase, part, measured, predicted, error_pct });
        }
    };
    for (part, pointer, predicted) in [
        ("parameters", "/measured/params/total", memory.parameters.total),
        ("trainable", "/measured/params/trainable", memory.parameters.trainable),
    ] {
        if let Some(measured) = row.pointer(pointer).and_then(Value::as_u64) {
            push("model", part, measured, predicted);
        }
    }
    for (phase, peak) in &memory.steady.phases {
        let name = match phase.stage {
            Stage::Forward => "fwd",
            Stage::Backward => "bwd",
            Stage::Step => "step",
            Stage::Score | Stage::Policy => "score",
            Stage::Reference => "reference",
            Stage::Value => "value",
            Stage::Reward => "reward",
            Stage::Prefill => "prefill",
            Stage::Decode => "decode",
            Stage::Evaluate => "evaluate",
            Stage::Save => "save",
            Stage::Merge => "merge",
            Stage::Wake => "vllm",
        };
        if let Some(total) = row.pointer(&format!("/measured/peak/steady/{name}")).and_then(Value::as_u64) {
            push(phase.slug(), "total", total, peak.bytes.0);
        }
        let Some(by) = row.pointer(&format!("/measured/phase_breakdown/{name}/by")) else { continue };
        for (part, theirs, ours) in PARTS {
            let measured = theirs.iter().filter_map(|key| by.get(key).and_then(Value::as_u64)).sum();
            let predicted: Bytes = ours.iter().map(|category| peak.parts.get(*category)).sum();
            push(phase.slug(), part, measured, predicted.0);
        }
    }
    rows
}
