//! What trainers over transformers' `Trainer` evaluate between steps.

use super::names::TRAINING_ARGUMENTS;
use super::reader::{Reader, Said};
use crate::scenario::Task;

/// Why an evaluation of another task than those that are followed is left.
pub(super) const OF_OTHER_TASKS: &str =
    "an evaluation of this task, by which a run may peak, is not predicted";

/// Reads what `TrainingArguments` says of it, where it is followed: else what they say is passed over. Comes after all else, as what
/// the run is decides that.
pub(super) fn evaluation(reader: &mut Reader) {
    // `do_eval` alone evaluates nothing while it trains
    let named = reader.named(&["eval_strategy", "evaluation_strategy"]);
    let Some(on) = named.into_iter().find(|said| !is_off(said)) else { return };
    let loss_only = reader.named(&["prediction_loss_only"]).iter().any(|said| said.switch() == Some(true));
    let metrics = reader.named(&["compute_metrics"]).into_iter().next().filter(|_| !loss_only);
    let keeps = if metrics.is_some() { "metrics" } else { "loss" };
    for name in ["eval_strategy", "evaluation_strategy", "do_eval", "compute_metrics"] {
        let _ = reader.take(&[name]);
    }
    if !matches!(reader.scenario.task, Task::Sft | Task::Classify) {
        return reader.leave(&on.said, OF_OTHER_TASKS);
    }
    if let Some(issue) = reader.objection("evaluation", keeps) {
        return reader.leave(&on.said, &issue);
    }
    let said = metrics.map(|metrics| format!("{}, {}", on.said, metrics.said)).unwrap_or(on.said);
    reader.set("evaluation", keeps, &said);
    let named = ["per_device_eval_batch_size", "per_gpu_eval_batch_size"];
    reader.or_assume("eval-batch-size", &named, "8", TRAINING_ARGUMENTS);
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

/// Whether a strategy says that nothing is evaluated: `no`, which YAML and a command without quotes have as a switch that is off.
pub(super) fn is_off(strategy: &Said) -> bool {
    let word = strategy.text().to_ascii_lowercase();
    strategy.switch() == Some(false) || word.trim_end_matches(['"', '\'']).ends_with("no")
}

#[cfg(test)]
mod tests {
    use crate::import::read;
    use crate::scenario::Scenario;

    #[test]
    fn an_evaluation_of_another_task_is_listed() {
        let arguments = "output_dir=\"o\", per_device_train_batch_size=2, bf16=True, eval_strategy=\"steps\", per_device_eval_batch_size=16";
        let others = [
            format!("from trl import DPOConfig, DPOTrainer\nargs = DPOConfig({arguments})\nDPOTrainer(model=\"Qwen/Qwen2.5-0.5B\", args=args)"),
            format!("from trl import RewardConfig, RewardTrainer\nargs = RewardConfig({arguments})\nRewardTrainer(model=\"Qwen/Qwen2.5-0.5B\", args=args)"),
            format!("from trl import GRPOConfig, GRPOTrainer\nargs = GRPOConfig({arguments})\nGRPOTrainer(model=\"Qwen/Qwen2.5-0.5B\", args=args)"),
            format!(
                "from sentence_transformers import *\nmodel = SentenceTransformer(\"BAAI/bge-m3\")\nargs = SentenceTransformerTrainingArguments({arguments})\n\
                 SentenceTransformerTrainer(model=model, args=args, loss=losses.MultipleNegativesRankingLoss(model))"
            ),
            "base_model: Qwen/Qwen2.5-0.5B\nrl: dpo\nadapter: lora\nlora_r: 8\nlora_target_linear: true\nmicro_batch_size: 1\nval_set_size: 0.1\neval_batch_size: 8\n".to_owned(),
        ];
        for text in others {
            let understood = read(&text, &Scenario::default()).unwrap_or_else(|why| panic!("{text}: {why}"));
            let is_listed =
                |left: &crate::import::Left| left.said.contains("eval") && left.why.contains("may peak");
            assert!(understood.left.iter().any(is_listed), "{text}: {:?}", understood.left);
        }
    }

    #[test]
    fn no_is_off_with_quotes_and_without() {
        for said in ["no", "\"no\"", "'no'"] {
            for launcher in ["python train.py", "torchrun --nproc_per_node 4 train.py"] {
                let text = format!(
                    "{launcher} --model_name_or_path Qwen/Qwen2.5-0.5B --evaluation_strategy {said} --per_device_train_batch_size 2 --bf16"
                );
                let understood =
                    read(&text, &Scenario::default()).unwrap_or_else(|why| panic!("{text}: {why}"));
                assert_eq!(understood.scenario.evaluation, Scenario::default().evaluation, "{text}");
                assert!(
                    understood.left.iter().all(|left| !left.said.contains("evaluation")),
                    "{:?}",
                    understood.left
                );
            }
        }
        let on = read(
            "python train.py --model_name_or_path gpt2 --eval_strategy steps --learning_rate 1",
            &Scenario::default(),
        );
        assert_ne!(on.expect("arguments").scenario.evaluation, Scenario::default().evaluation);
    }
}
