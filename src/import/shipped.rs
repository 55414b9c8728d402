//! Launchers' and DeepSpeed's files that projects ship: a command or another file names them, and what they say is known.

use serde_json::{Map, Value};

use super::reader::Reader;
use super::syntax::setting::of_table;

/// The engine that a file's name speaks of: `ds_zero3.json`, `ds3.json`, `z3.json`, `stage_3.json`, `fsdp2.yaml`.
pub(super) fn engine_by_name(path: &str) -> Option<&'static str> {
    let name = path.rsplit(['/', '\\']).next()?.to_lowercase();
    let words: Vec<&str> = name.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    let says_stage = |word: &str| ["zero", "zerostage", "stage", "ds", "deepspeed", "z"].contains(&word);
    let stage = words.iter().enumerate().find_map(|(at, word)| {
        // zero3, and zero_3
        let (number, before) = match word.strip_suffix(['1', '2', '3']) {
            Some("") => (*word, words.get(at.checked_sub(1)?).copied()?),
            Some(before) => (word.get(before.len()..)?, before),
            None => return None,
        };
        says_stage(before).then_some(number)
    });
    match stage {
        Some("3") => Some("zero3"),
        Some("2") => Some("zero2"),
        Some(_) => Some("zero1"),
        None => words.iter().any(|word| word.starts_with("fsdp")).then_some("fsdp2"),
    }
}

/// Where trl has them.
const TRLS_FOLDER: &str = "accelerate_configs";

/// Files that are known by their names in a folder, whose path may have more before it.
struct Folder {
    path: &'static str,
    /// Each with what of it a reader of such files looks at, as JSON.
    files: &'static [(&'static str, &'static str)],
}

/// trl's (1.16, accelerate_configs), LLaMA-Factory's (examples/accelerate and examples/deepspeed, August 2026) and axolotl's (0.18,
/// deepspeed_configs).
const SHIPPED: [Folder; 4] = [
    Folder {
        path: TRLS_FOLDER,
        files: &[
            ("single_gpu.yaml", r#"{"num_processes": 1, "mixed_precision": "bf16"}"#),
            ("multi_gpu.yaml", r#"{"num_processes": 8, "mixed_precision": "bf16"}"#),
            (
                "zero1.yaml",
                r#"{"deepspeed_config": {"zero_stage": 1}, "num_processes": 8, "mixed_precision": "bf16"}"#,
            ),
            (
                "zero2.yaml",
                r#"{"deepspeed_config": {"zero_stage": 2}, "num_processes": 8, "mixed_precision": "bf16"}"#,
            ),
            (
                "zero3.yaml",
                r#"{"deepspeed_config": {"zero_stage": 3, "zero3_save_16bit_model": true}, "num_processes": 8, "mixed_precision": "bf16"}"#,
            ),
            (
                "fsdp2.yaml",
                r#"{"fsdp_config": {"fsdp_state_dict_type": "FULL_STATE_DICT", "fsdp_version": 2, "fsdp_reshard_after_forward": true}, "num_processes": 8, "mixed_precision": "bf16"}"#,
            ),
        ],
    },
    Folder {
        path: "examples/accelerate",
        files: &[
            (
                "fsdp2_config.yaml",
                r#"{"fsdp_config": {"fsdp_state_dict_type": "FULL_STATE_DICT", "fsdp_version": 2, "fsdp_reshard_after_forward": true}, "num_processes": 2, "mixed_precision": "bf16"}"#,
            ),
            (
                "fsdp_config.yaml",
                r#"{"fsdp_config": {"fsdp_state_dict_type": "FULL_STATE_DICT", "fsdp_sharding_strategy": "FULL_SHARD"}, "num_processes": 2, "mixed_precision": "bf16"}"#,
            ),
            (
                "fsdp_config_offload.yaml",
                r#"{"fsdp_config": {"fsdp_state_dict_type": "FULL_STATE_DICT", "fsdp_sharding_strategy": "FULL_SHARD", "fsdp_offload_params": true}, "num_processes": 2, "mixed_precision": "bf16"}"#,
            ),
            (
                "fsdp_config_multiple_nodes.yaml",
                r#"{"fsdp_config": {"fsdp_state_dict_type": "FULL_STATE_DICT", "fsdp_sharding_strategy": "FULL_SHARD"}, "num_processes": 16, "mixed_precision": "bf16"}"#,
            ),
        ],
    },
    Folder {
        path: "examples/deepspeed",
        files: &[
            ("ds_z0_config.json", r#"{"zero_optimization": {"stage": 0}}"#),
            (
                "ds_z2_config.json",
                r#"{"zero_optimization": {"stage": 2, "overlap_comm": false, "reduce_bucket_size": 5e8, "contiguous_gradients": true}}"#,
            ),
            (
                "ds_z2_autotp_config.json",
                r#"{"zero_optimization": {"stage": 2, "overlap_comm": false, "reduce_bucket_size": 5e8, "contiguous_gradients": true},
            "tensor_parallel": {"autotp_size": 2}}"#,
            ),
            (
                "ds_z2_offload_config.json",
                r#"{"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": true}, "overlap_comm": false,
            "reduce_bucket_size": 5e8, "contiguous_gradients": true}}"#,
            ),
            (
                "ds_z3_config.json",
                r#"{"zero_optimization": {"stage": 3, "overlap_comm": false, "contiguous_gradients": true, "reduce_bucket_size": "auto",
            "stage3_prefetch_bucket_size": "auto", "stage3_param_persistence_threshold": "auto", "stage3_max_live_parameters": 1e9,
            "stage3_gather_16bit_weights_on_model_save": true}}"#,
            ),
            (
                "ds_z3_offload_config.json",
                r#"{"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "pin_memory": true},
            "offload_param": {"device": "cpu", "pin_memory": true}, "overlap_comm": false, "contiguous_gradients": true,
            "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto", "stage3_param_persistence_threshold": "auto",
            "stage3_max_live_parameters": 1e9,
            "stage3_gather_16bit_weights_on_model_save": true}}"#,
            ),
        ],
    },
    Folder {
        path: "deepspeed_configs",
        files: &[
            ("zero1.json", r#"{"zero_optimization": {"stage": 1, "overlap_comm": true}}"#),
            (
                "zero1_torch_compile.json",
                r#"{"zero_optimization": {"stage": 1, "overlap_comm": true}, "compile": {"disable": false}}"#,
            ),
            (
                "zero2.json",
                r#"{"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}, "contiguous_gradients": true, "overlap_comm": true}}"#,
            ),
            (
                "zero2_torch_compile.json",
                r#"{"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}, "contiguous_gradients": true, "overlap_comm": true},
            "compile": {"disable": false}}"#,
            ),
            (
                "zero3.json",
                r#"{"zero_optimization": {"stage": 3, "overlap_comm": true, "contiguous_gradients": true, "reduce_bucket_size": "auto",
            "stage3_prefetch_bucket_size": "auto", "stage3_param_persistence_threshold": "auto", "max_live_parameters": 0,
            "gather_16bit_weights_on_model_save": true}}"#,
            ),
            (
                "zero3_bf16.json",
                r#"{"zero_optimization": {"stage": 3, "overlap_comm": true, "contiguous_gradients": true, "reduce_bucket_size": "auto",
            "stage3_prefetch_bucket_size": "auto", "stage3_param_persistence_threshold": "auto", "max_live_parameters": 0,
            "gather_16bit_weights_on_model_save": true},
            "bf16": {"enabled": true}}"#,
            ),
            (
                "zero3_bf16_cpuoffload_all.json",
                r#"{"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "pin_memory": true},
            "offload_param": {"device": "cpu", "pin_memory": true}, "overlap_comm": true, "contiguous_gradients": true,
            "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto", "stage3_param_persistence_threshold": "auto",
            "max_live_parameters": 0,
            "gather_16bit_weights_on_model_save": true}, "bf16": {"enabled": true}}"#,
            ),
            (
                "zero3_bf16_cpuoffload_params.json",
                r#"{"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu", "pin_memory": true}, "overlap_comm": true,
            "contiguous_gradients": true, "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto",
            "stage3_param_persistence_threshold": "auto", "max_live_parameters": 0,
            "gather_16bit_weights_on_model_save": true}, "bf16": {"enabled": true}}"#,
            ),
        ],
    },
];

/// Where such a file is named.
pub(super) const FILES: [&str; 5] = [
    "deepspeed",
    "deepspeed_config_file",
    "deepspeed_config.deepspeed_config_file",
    "config_file",
    "accelerate_config",
];

/// Options that say which engine shares the model: they come before a launcher's file.
const ENGINES: [&str; 6] = [
    "deepspeed_config.zero_stage",
    "zero_stage",
    "use_deepspeed",
    "use_fsdp",
    "fsdp_version",
    "fsdp_config.fsdp_version",
];

/// How an option is called that a launcher's file says in other words: it comes before the file.
const SAME: [&[&str]; 3] = [
    &["num_processes", "nproc_per_node", "num_gpus", "nproc-per-node"],
    &["mixed_precision", "bf16", "fp16"],
    &["fsdp_config.fsdp_reshard_after_forward", "fsdp_reshard_after_forward"],
];

/// Adds what the files say that are named, of those that a project ships; others are left for who asks for them.
pub(super) fn add(reader: &mut Reader) {
    for named in FILES {
        let Some(said) = reader.named(&[named]).pop() else { continue };
        let path = said.text().replace('\\', "/");
        let Some(settings) = SHIPPED.iter().find_map(|folder| folder.settings_at(&path, named)) else {
            continue;
        };
        let taken = reader.take_each(&[named]);
        reader.idle.extend(taken.into_iter().map(|said| said.said));
        let file = path.rsplit('/').next().unwrap_or(&path);
        let settings: Map<String, Value> = serde_json::from_str(settings).unwrap_or_default();
        let is_another_engine = !reader.given(&ENGINES).is_empty();
        let is_of_an_engine =
            |name: &str| ["deepspeed_config.", "fsdp_config."].iter().any(|of| name.starts_with(of));
        for setting in of_table(settings) {
            if is_another_engine && is_of_an_engine(&setting.name) {
                continue;
            }
            let name = [setting.name.as_str()];
            let names = SAME.into_iter().find(|names| names.contains(&name[0])).unwrap_or(&name);
            reader.add(file, names, setting.value);
        }
    }
}

impl Folder {
    /// What the file at a path says, where it is one of these. trl's command knows its own by their names alone (`--accelerate_config zero3`),
    /// and in trl's repository some begin with `deepspeed_`.
    fn settings_at(&self, path: &str, option: &str) -> Option<&'static str> {
        let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
        let is_here = folder == self.path || folder.ends_with(&format!("/{}", self.path));
        let is_trls = self.path == TRLS_FOLDER;
        let is_of_its_command = is_trls && folder.is_empty() && option == "accelerate_config";
        let plain = file.strip_prefix("deepspeed_").filter(|_| is_trls).unwrap_or(file);
        let is_it = |known: &str| plain == known || is_trls && Some(plain) == known.strip_suffix(".yaml");
        let mut files = self.files.iter().filter(|_| is_here || is_of_its_command);
        files.find(|(known, _)| is_it(known)).map(|(_, settings)| *settings)
    }
}

#[cfg(test)]
mod tests {
    use super::super::read;
    use super::*;
    use crate::scenario::{CpuOffload, Scenario, Sharding};

    #[test]
    fn what_is_known_of_each_is_json() {
        for (file, settings) in SHIPPED.iter().flat_map(|folder| folder.files) {
            let settings: Result<Map<String, Value>, _> = serde_json::from_str(settings);
            assert!(settings.is_ok_and(|settings| !settings.is_empty()), "{file}");
        }
    }

    /// Each is known where its project has it, and nowhere else, beside a file of the user's own too.
    #[test]
    fn each_is_known_by_its_place() {
        let all = SHIPPED.iter().flat_map(|folder| folder.files.iter().map(|(file, _)| (folder.path, *file)));
        for (path, file) in all {
            let read = |folder: &str| {
                let text = format!(
                    "accelerate launch --config_file mine.yaml train.py --model_name_or_path Qwen/Qwen2.5-7B --deepspeed {folder}/{}",
                    file
                );
                let left = read(&text, &Scenario::default()).expect(file).left;
                let says = |word: &str| left.iter().any(|left| left.said.contains(word));
                (says("mine.yaml"), says(&format!("{folder}/{}", file)))
            };
            assert_eq!(read(path), (true, false), "{}", file);
            assert_eq!(read("mine"), (true, true), "{}", file);
        }
        for text in [
            "trl sft --config sft.yaml --accelerate_config zero3",
            "axolotl train c.yml --deepspeed deepspeed_configs/zero3_bf16.json",
        ] {
            let understood = read(text, &Scenario::default()).expect(text);
            assert_eq!(
                understood.scenario.cluster.sharding,
                Sharding::Zero3,
                "{text}: {:?}",
                understood.left
            );
        }
    }

    #[test]
    fn the_files_of_llama_factory_and_axolotl_are_known_by_name() {
        let factory = |file: &str| {
            let text = format!(
                "model_name_or_path: Qwen/Qwen2.5-7B\nstage: sft\nfinetuning_type: full\ncutoff_len: 2048\nbf16: true\n\
                 deepspeed: examples/deepspeed/{file}\n"
            );
            read(&text, &Scenario::default()).expect(file)
        };
        for (file, sharding, cpu, bucket) in [
            ("ds_z2_config.json", Sharding::Zero2, CpuOffload::Off, 500_000_000),
            ("ds_z2_offload_config.json", Sharding::Zero2, CpuOffload::Optimizer, 500_000_000),
            ("ds_z3_config.json", Sharding::Zero3, CpuOffload::Off, 3584 * 3584),
            ("ds_z3_offload_config.json", Sharding::Zero3, CpuOffload::All, 3584 * 3584),
        ] {
            let understood = factory(file);
            let cluster = &understood.scenario.cluster;
            assert_eq!(
                (cluster.sharding, cluster.cpu, cluster.deepspeed.reduce_bucket),
                (sharding, cpu, bucket),
                "{file}"
            );
            let left: Vec<_> = understood.left.iter().map(|left| left.said.as_str()).collect();
            assert!(left.iter().all(|said| *said == "the number of GPUs"), "{file}: {left:?}");
        }
        let autotp = factory("ds_z2_autotp_config.json");
        assert!(autotp.left.iter().any(|left| left.said.contains("autotp_size")), "{:?}", autotp.left);
        let axolotl = |file: &str| {
            let text = format!(
                "base_model: Qwen/Qwen2.5-7B\nmicro_batch_size: 1\nsequence_len: 2048\nbf16: true\ndeepspeed: {file}\n"
            );
            read(&text, &Scenario::default()).expect(file)
        };
        let whole = axolotl("deepspeed_configs/zero3_bf16.json").scenario.cluster;
        assert_eq!((whole.sharding, whole.deepspeed.live), (Sharding::Zero3, 0));
        assert_eq!(axolotl("deepspeed_configs/zero2.json").scenario.cluster.cpu, CpuOffload::Optimizer);
        for (file, why) in
            [("deepspeed_configs/zero1_torch_compile.json", "compile"), ("mine/zero1.json", "mine")]
        {
            let left = axolotl(file).left;
            assert!(left.iter().any(|left| left.said.contains(why)), "{file}: {left:?}");
        }
    }
}
