//! torchtune's recipes, which `tune run … --config` names: what they say is known.

use serde_json::{Map, Value};

use super::syntax::setting::{Setting, of_table};

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
