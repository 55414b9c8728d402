//! torchtune's recipes, which `tune run … --config` names: what they say is known.

use serde_json::{Map, Value};

use super::syntax::setting::{Setting, of_table};
use super::understood::NotRead;

/// Those of torchtune 0.6.1 that fine-tune: each line a recipe's name and, as JSON, its settings that a run's memory depends on
/// (tools/torchtune_recipes.py).
const RECIPES: &str = include_str!("../../data/torchtune.tsv");

/// What the recipe of a name says: `llama3_1/8B_full_single_device`, with or without `.yaml`, or where it lies in torchtune's repository.
pub(super) fn settings(named: &str) -> Option<Vec<Setting>> {
    let name = named.strip_prefix("recipes/configs/").unwrap_or(named);
    let name = name.strip_suffix(".yaml").unwrap_or(name);
    let mut recipes = RECIPES.lines().filter_map(|line| line.split_once('\t'));
    let (_, settings) = recipes.find(|(recipe, _)| *recipe == name)?;
    serde_json::from_str::<Map<String, Value>>(settings).ok().map(of_table)
}

/// Recipes of torchtune's that do not fine-tune on texts: how their names begin, behind `dev/`, and what they do (0.6.1, recipes/).
const OTHERS: [(&str, &str); 10] = [
    ("full_dpo", DPO),
    ("lora_dpo", DPO),
    ("knowledge_distillation", DISTILLATION),
    ("ppo_", PPO),
    ("grpo_", GRPO),
    ("async_grpo", GRPO),
    ("early_exit", "training of early exits"),
    ("generate", GENERATION),
    ("eleuther_eval", EVALUATION),
    ("quantize", QUANTISATION),
];

const DPO: &str = "training on preferences (DPO)";
const DISTILLATION: &str = "distillation";
const PPO: &str = "training by rewards (PPO)";
const GRPO: &str = "training by rewards (GRPO)";
const GENERATION: &str = "generation, which trains nothing";
const EVALUATION: &str = "evaluation, which trains nothing";
const QUANTISATION: &str = "quantisation, which trains nothing";

fn not_followed(what: &str) -> NotRead {
    NotRead(format!(
        "this is torchtune's {what}: of its recipes those that fine-tune on texts are followed (full_finetune, lora_finetune), so there is \
         no figure for this one"
    ))
}

/// The recipe that a command starts and that does not fine-tune: `tune run lora_dpo_distributed --config …`.
pub(super) fn command(text: &str) -> Option<NotRead> {
    let lines = text.lines().map(str::trim_start).filter(|line| !line.starts_with('#'));
    let words: Vec<&str> = lines.flat_map(str::split_whitespace).collect();
    let start = words.windows(2).position(|pair| matches!(pair, ["tune" | "!tune", "run"]))?;
    let given = words[start + 2..].iter().take_while(|word| **word != "--config");
    given.into_iter().find_map(|word| {
        let name = word.strip_prefix("recipes/").unwrap_or(word);
        let name = name.strip_prefix("dev/").unwrap_or(name);
        let (_, what) = OTHERS.iter().find(|(start, _)| name.starts_with(start))?;
        Some(not_followed(what))
    })
}

/// What a file of torchtune's is for, where it does not fine-tune: models beside the one that is trained, or no optimizer.
pub(super) fn file(members: &Map<String, Value>) -> Option<NotRead> {
    let any = |names: &[&str]| names.iter().any(|name| members.contains_key(*name));
    let loss = members.get("loss").and_then(|loss| loss.get("_component_")).and_then(Value::as_str);
    let loss = loss.unwrap_or_default();
    let what = if any(&["teacher_model", "kd_loss"]) {
        DISTILLATION
    } else if any(&["policy_model", "reward_and_value_model"]) || loss.contains("PPO") {
        PPO
    } else if any(&["grpo_samples", "orchestration"]) || loss.contains("GRPO") {
        GRPO
    } else if loss.contains("torchtune.rlhf.loss") || any(&["ref_checkpointer"]) {
        DPO
    } else if any(&["optimizer"]) {
        return None;
    } else if any(&["tasks"]) {
        EVALUATION
    } else if any(&["max_new_tokens"]) {
        GENERATION
    } else if any(&["quantizer"]) {
        QUANTISATION
    } else {
        return None;
    };
    Some(not_followed(what))
}

#[cfg(test)]
mod tests {
    use super::super::read;
    use super::*;

    use crate::scenario::{Method, Optimizer, Scenario, Sharding, Stack, StepTime};

    #[test]
    fn a_command_is_read_with_the_recipe_that_it_names() {
        let command = "tune run full_finetune_single_device --config llama3_1/8B_full_single_device batch_size=4 optimizer_in_bwd=False";
        let understood = read(command, &Scenario::default()).expect(command);
        let scenario = &understood.scenario;
        assert_eq!(scenario.model_name(), "meta-llama/Llama-3.1-8B");
        assert_eq!((scenario.method, scenario.stack), (Method::Full, Stack::Torchtune));
        assert_eq!((scenario.batch, scenario.optimizer), (4, Optimizer::PagedAdamW8bit));
        assert_eq!(scenario.savings.step, StepTime::AfterBackward);
        assert!(understood.left.is_empty(), "{:?}", understood.left);
        let shared = "tune run --nproc_per_node 8 lora_finetune_distributed --config recipes/configs/llama3_3/70B_lora.yaml";
        let scenario = read(shared, &Scenario::default()).expect(shared).scenario;
        let cluster = &scenario.cluster;
        assert_eq!((cluster.gpus, cluster.sharding, scenario.lora.rank), (8, Sharding::Fsdp2, 16));
    }

    #[test]
    fn each_recipe_is_understood_in_whole() {
        for line in RECIPES.lines() {
            let name = line.split('\t').next().unwrap_or_default();
            let understood = read(&format!("tune run x --config {name}"), &Scenario::default()).expect(name);
            // dev/8B_full_experimental, llama3_3/70B_full_multinode
            let unknown = ["ac_", "memory_efficient_fsdp", "compile"];
            let is_known = |said: &str| !unknown.iter().any(|start| said.starts_with(start));
            let left: Vec<_> = understood.left.iter().filter(|left| is_known(&left.said)).collect();
            assert!(left.is_empty(), "{name}: {left:?}");
            let stop = understood.scenario.stop();
            assert!(stop.is_none(), "{name}: {stop:?}");
        }
    }

    #[test]
    fn a_file_of_ones_own_is_none_of_them() {
        for name in ["mine.yaml", "8B_full", "mine/llama3_1/8B_full"] {
            assert!(settings(name).is_none(), "{name}");
        }
    }
}
