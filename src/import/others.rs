//! Texts of projects whose settings are not read: each is named, so that none of its words is taken for another project's.

use serde_json::{Map, Value};

use super::understood::NotRead;

/// What starts a training of theirs: the program or the module of Python's, what is behind a program, and the project.
const PROGRAMS: [(&str, &[&str], &str); 3] = [
    ("swift", &["sft", "pt", "rlhf", "sample", "infer"], "ms-swift"),
    ("megatron", &["sft", "pt", "rlhf"], "ms-swift"),
    ("openrlhf", &["train", "sft"], "OpenRLHF"),
];
const MODULES: [(&str, &str); 5] = [
    ("verl.", "verl"),
    ("openrlhf.", "OpenRLHF"),
    ("torchtitan.", "torchtitan"),
    ("swift.cli", "ms-swift"),
    ("nemo_rl.", "NeMo RL"),
];

/// What is read in their place.
const READ: &str = "TRL, transformers, Unsloth, axolotl, LLaMA-Factory, torchtune, torchtitan's TOML, Megatron-LM, accelerate, DeepSpeed and vLLM are";

/// What is said where accelerate has Megatron-LM train.
const MEGATRON: &str = "accelerate has Megatron-LM train the model (MEGATRON_LM, --use_megatron_lm), which is not read of its settings: choose \
                        Megatron-core (--stack megatron) with its parallel sizes, or give Megatron-LM's own arguments";

fn not_read(project: &str, what: &str) -> NotRead {
    NotRead(format!("{project}'s {what} are not read: {READ}"))
}

/// Whose command a text has that is not read.
pub(super) fn command(text: &str) -> Option<NotRead> {
    let lines = text.lines().map(str::trim_start).filter(|line| !line.starts_with('#'));
    let words: Vec<&str> = lines.flat_map(str::split_whitespace).collect();
    let found = words.windows(2).find_map(|pair| {
        let [first, second] = pair else { return None };
        let program = first.rsplit('/').next().unwrap_or(first);
        let by_program = PROGRAMS.iter().find(|(name, verbs, _)| program == *name && verbs.contains(second));
        let is_module = ["-m", "--module"].contains(first);
        let by_module = MODULES.iter().find(|(start, _)| is_module && second.starts_with(start));
        by_program.map(|(.., project)| *project).or(by_module.map(|(_, project)| *project))
    });
    let by_accelerate = words.contains(&"--use_megatron_lm").then(|| NotRead(MEGATRON.to_owned()));
    found.map(|project| not_read(project, "commands")).or(by_accelerate)
}

/// Whose file these settings are that is not read; and what of a file that is read divides the model in a way that nothing here can say.
pub(super) fn file(members: &Map<String, Value>) -> Option<NotRead> {
    let has = |table: &str, names: &[&str]| {
        names.iter().any(|name| members.get(table).is_some_and(|table| table.get(name).is_some()))
    };
    if has("actor_rollout_ref", &["model", "actor", "rollout"]) {
        return Some(not_read("verl", "files"));
    }
    let is_many = |name: &str| members.get(name).and_then(Value::as_u64).is_some_and(|size| size > 1);
    if members.contains_key("base_model") && is_many("expert_parallel_size") {
        let why = "expert_parallel_size: axolotl's GPUs then have other experts each, which is not followed: there is no figure for this file";
        return Some(NotRead(why.to_owned()));
    }
    let kind = members.get("distributed_type").and_then(Value::as_str);
    (kind == Some("MEGATRON_LM")).then(|| NotRead(MEGATRON.to_owned()))
}
