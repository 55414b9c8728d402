//! How answers that are rewarded come about, as trl's arguments say it: in a script and in a file.

use crate::scenario::{Reference, Rollouts, Scenario};

/// What an argument is given.
pub(super) enum Value {
    /// A number, as it is written.
    Number(String),
    /// A switch.
    Switch(bool),
    /// A word.
    Word(&'static str),
}

/// How long answers are, how many there are to a prompt, whether there is a reference, and who generates them (trl 1.16,
/// `GRPOConfig` and `RLOOConfig`).
pub(super) fn generation(scenario: &Scenario) -> Vec<(&'static str, Value)> {
    let number = |number: u64| Value::Number(number.to_string());
    let referred = scenario.answers.reference == Reference::Scored;
    let mut arguments = completions(scenario);
    arguments.insert(1, ("num_generations", number(scenario.answers_to_a_prompt())));
    arguments.insert(2, ("beta", Value::Number(if referred { "0.04" } else { "0.0" }.to_owned())));
    arguments
}

/// How long answers are, and who generates them: what `DistillationConfig` is told as well.
pub(super) fn completions(scenario: &Scenario) -> Vec<(&'static str, Value)> {
    let number = |number: u64| Value::Number(number.to_string());
    let length = scenario.sequence.saturating_sub(scenario.answers.prompt);
    let mut arguments = vec![("max_completion_length", number(length))];
    match (scenario.answers.rollouts, scenario.reserve.vllm) {
        (Rollouts::Transformers, _) => arguments.push(("use_vllm", Value::Switch(false))),
        (Rollouts::Server, 0) => {
            arguments.extend([("use_vllm", Value::Switch(true)), ("vllm_mode", Value::Word("server"))]);
        }
        (Rollouts::Server, percent) => {
            let share = Value::Number((percent as f64 / 100.0).to_string());
            arguments.extend([
                ("use_vllm", Value::Switch(true)),
                ("vllm_mode", Value::Word("colocate")),
                ("vllm_gpu_memory_utilization", share),
                // of the model's own context one sequence may have no room, where vLLM does not start
                ("vllm_max_model_length", number(scenario.sequence)),
            ]);
            if scenario.reserve.sleeps {
                arguments.push(("vllm_enable_sleep_mode", Value::Switch(true)));
            }
        }
    }
    arguments
}
