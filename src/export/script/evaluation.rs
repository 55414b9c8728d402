//! What a file says of the evaluation between steps.

use super::python::Call;
use super::run::Run;
use crate::scenario::Evaluates;

/// The inputs that it says.
pub(super) const SAID: &[&str] =
    &["evaluation", "eval-batch-size", "eval-accumulation-steps", "eval-batches"];

/// What is made of all logits: how many of the numbers that were looked for are the likeliest.
const OF_TOKENS: &str = "\ndef accuracy(prediction):\n    \"\"\"Of all tokens those that the model would have chosen: the place for metrics of your own.\"\"\"\n    \
     chosen, labels = prediction.predictions[:, :-1].argmax(-1), prediction.label_ids[:, 1:]\n    \
     return {\"accuracy\": float((chosen == labels)[labels != -100].mean())}\n\n\n";
const OF_TEXTS: &str = "\n\ndef accuracy(prediction):\n    \"\"\"Of all texts those whose class was found: the place for metrics of your own.\"\"\"\n    \
     return {\"accuracy\": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}\n\n\n";

const OF_NUMBERS: &str = "\n\ndef accuracy(prediction):\n    \"\"\"How far the numbers are off: the place for metrics of your own.\"\"\"\n    \
     return {\"error\": float(abs(prediction.predictions.reshape(-1) - prediction.label_ids).mean())}\n\n\n";

/// So many texts, where there are as many.
const FIRST: &str = "def first(rows, count):\n    return rows.select(range(min(count, len(rows))))\n\n\n";

impl Run<'_> {
    /// The trainer's arguments with what they say of it.
    pub fn evaluation_arguments(&self, call: Call) -> Call {
        let evaluation = self.scenario.evaluation;
        if !self.scenario.evaluates() {
            return call;
        }
        let joined = (evaluation.accumulation > 0).then_some(evaluation.accumulation);
        call.keyword("eval_strategy", "\"steps\"")
            .keyword("eval_steps", "100")
            .keyword("per_device_eval_batch_size", evaluation.batch)
            .keyword_if("eval_accumulation_steps", joined)
    }

    /// The function that is given all logits, where they are kept, and one for the texts; whether of tokens or of texts.
    pub fn metrics(&self, of_tokens: bool) -> String {
        let own = match (self.keeps_logits(), of_tokens) {
            (false, _) => return String::new(),
            (true, true) => OF_TOKENS,
            (true, false) if self.scenario.answers.labels == 1 => OF_NUMBERS,
            (true, false) => OF_TEXTS,
        };
        format!("{own}{FIRST}")
    }

    /// The trainer's own arguments of it, with an expression for the texts.
    pub fn evaluated(&self, texts: &str) -> String {
        if !self.scenario.evaluates() {
            return String::new();
        }
        let evaluation = self.scenario.evaluation;
        // each GPU evaluates so many batches
        let gpus = self.scenario.cluster.gpus;
        let count = evaluation.batch.saturating_mul(evaluation.batches).saturating_mul(gpus);
        match self.keeps_logits() {
            true => {
                format!("    eval_dataset=first({texts}, {count}),\n    compute_metrics=accuracy,\n")
            }
            false => format!("    eval_dataset={texts},\n"),
        }
    }

    fn keeps_logits(&self) -> bool {
        self.scenario.evaluates() && self.scenario.evaluation.keeps == Evaluates::Metrics
    }
}
