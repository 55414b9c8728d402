//! What trainers over transformers' `Trainer` evaluate between steps.

use super::reader::Reader;

/// Reads what `TrainingArguments` says of it, where it is followed: else what they say is passed over. Comes after all else, as what
/// the run is decides that.
pub(super) fn evaluation(reader: &mut Reader) {
    // `do_eval` alone evaluates nothing while it trains
    let named = reader.named(&["eval_strategy", "evaluation_strategy"]);
    let on = named
        .into_iter()
        .find(|said| !said.text().to_ascii_lowercase().trim_end_matches(['"', '\'']).ends_with("no"));
    let Some(on) = on else { return };
    let loss_only = reader.named(&["prediction_loss_only"]).iter().any(|said| said.switch() == Some(true));
    let metrics = reader.named(&["compute_metrics"]).into_iter().next().filter(|_| !loss_only);
    let keeps = if metrics.is_some() { "metrics" } else { "loss" };
    if let Some(issue) = reader.objection("evaluation", keeps) {
        return reader.leave(&on.said, &issue);
    }
    for name in ["eval_strategy", "evaluation_strategy", "do_eval", "compute_metrics"] {
        let _ = reader.take(&[name]);
    }
    let said = metrics.map(|metrics| format!("{}, {}", on.said, metrics.said)).unwrap_or(on.said);
    reader.set("evaluation", keeps, &said);
    let why = "TrainingArguments' default in transformers 5.17";
    reader.or_assume("eval-batch-size", &["per_device_eval_batch_size", "per_gpu_eval_batch_size"], "8", why);
    reader.or_assume(
        "eval-accumulation-steps",
        &["eval_accumulation_steps"],
        "0",
        "by default all that is kept stays on the GPU to the end of the evaluation",
    );
    if keeps == "metrics" {
        let batches = reader.scenario.evaluation.batches.to_string();
        reader.assume("eval-batches", &batches, "the text does not say how many: as it was");
    }
}
