//! Configurations of other projects: `headroom import`, `--from`, `headroom export`.

use serde_json::Value;

use super::{fails, headroom, headroom_with, says};

const FIXTURES: &str = "tests/fixtures/configurations";

#[test]
fn what_was_understood_is_a_table_with_a_link() {
    let told = says(&[
        "import",
        &format!("{FIXTURES}/trl-command.sh"),
        &format!("{FIXTURES}/accelerate-zero3.yaml"),
    ]);
    for line in [
        "  LoRA rank              32                          lora_r: 32",
        "  Sequence length         1,024                   SFTConfig's default in trl 1.16",
        "  Sharding               ZeRO-3 (DeepSpeed)          deepspeed_zero3.yaml(deepspeed_config.zero_stage=3)",
        "accelerate-zero3.yaml: accelerate",
    ] {
        assert!(told.lines().any(|own| own.ends_with(line)), "{line}\n{told}");
    }
    // the second file over the first
    assert!(told.trim_end().ends_with("gpus=8&shard=zero3'"), "{told}");
    let json: Value =
        serde_json::from_str(&says(&["import", "--json", &format!("{FIXTURES}/trl-sft.yaml")])).unwrap();
    assert_eq!(json["read"][0]["format"], "arguments of trl or transformers");
    assert_eq!(json["scenario"]["batch-size"], 8);
}

#[test]
fn every_subcommand_goes_on_with_a_file() {
    let path = format!("{FIXTURES}/llama-factory-lora.yaml");
    let run = headroom(&["estimate", "--from", &path, "--batch-size", "2", "--json"]);
    assert_eq!(run.status, Some(0), "{}", run.err);
    assert_eq!(
        run.err,
        format!(
            "note: {path}: the number of GPUs: the command that starts the run says it (torchrun --nproc-per-node, accelerate's num_processes): answered for two\n"
        )
    );
    let answer: Value = serde_json::from_str(&run.out).unwrap();
    // the flag over the file
    assert_eq!(
        (&answer["scenario"]["batch-size"], &answer["scenario"]["lora-rank"]),
        (&2.into(), &16.into())
    );
    let piped = headroom_with(&["import", "-"], "model_embd = 384\nmodel_layer = 6\nmodel_head = 6\n");
    assert!(
        piped.out.starts_with("standard input: a GPT-2-like trainer's settings\n"),
        "{}{}",
        piped.out,
        piped.err
    );
    fails(
        &["estimate", "--from", "tests/fixtures/configurations/README.md"],
        "error: tests/fixtures/configurations/README.md: this is no configuration that is known here: it is no table of settings\n",
    );
}

/// A file that is none of Headroom's own forms is what `--from` reads, and what was not understood is said; its card is the flag's.
#[test]
fn a_configuration_is_a_scenario_of_its_own() {
    for name in [
        "axolotl-qlora.yml",
        "llama-factory-lora.yaml",
        "peft-qlora.py",
        "torchtune-lora.yaml",
        "trainer.toml",
        "trl-command.sh",
        "trl-sft.yaml",
        "unsloth-cell.py",
        "unsloth.ipynb",
    ] {
        let path = format!("{FIXTURES}/{name}");
        let own = headroom(&["estimate", &path, "--gpu", "t4", "--json"]);
        let from = headroom(&["estimate", "--from", &path, "--gpu", "t4", "--json"]);
        assert_eq!((own.out, own.err, own.status), (from.out, from.err, from.status), "{name}");
    }
    // what a cell asks of the card is answered by the one that is named
    let cell = format!("{FIXTURES}/unsloth-cell.py");
    for (gpu, precision) in [("t4", "| Precision | fp16"), ("rtx-4090", "| Precision | bf16")] {
        assert!(says(&["estimate", &cell, "--gpu", gpu, "--markdown"]).contains(precision), "{gpu}");
    }
    let piped = headroom_with(&["estimate", "-", "--json"], "base_model: gpt2\nmicro_batch_size: 3\n");
    let answer: Value = serde_json::from_str(&piped.out).unwrap();
    assert_eq!(answer["scenario"]["batch-size"], 3, "{}", piped.err);
}

#[test]
fn a_configuration_without_a_model_is_given_one() {
    let engine = format!("{FIXTURES}/accelerate-fsdp2.yaml");
    fails(
        &["estimate", &engine],
        &format!(
            "error: {engine}: this names no model that is known here (accelerate; say --model, or --config with its config.json)\n"
        ),
    );
    let small = ["--model", "Qwen/Qwen3-0.6B", "--method", "full", "--precision", "bf16"];
    let given = says(&[&["estimate", &engine, "--json"], &small[..]].concat());
    let answer: Value = serde_json::from_str(&given).unwrap();
    let scenario = &answer["scenario"];
    assert_eq!((&scenario["gpus"], &scenario["model"]), (&8.into(), &"Qwen/Qwen3-0.6B".into()));
    let joined = says(&["estimate", &engine, "--from", &format!("{FIXTURES}/trl-sft.yaml"), "--json"]);
    let answer: Value = serde_json::from_str(&joined).unwrap();
    let scenario = &answer["scenario"];
    assert_eq!((&scenario["gpus"], &scenario["model"]), (&8.into(), &"Qwen/Qwen3-0.6B".into()));
    // a model's own config is one that names it
    let config =
        says(&["estimate", "data/models/meta-llama__Llama-3.1-8B.json", "--method", "full", "--json"]);
    let answer: Value = serde_json::from_str(&config).unwrap();
    assert_eq!(answer["parameters"]["total"], 8_030_261_248_u64);
}

/// A mistake in a scenario of one's own is told as one, whatever else it looks like.
#[test]
fn a_scenario_with_a_mistake_is_no_configuration_of_others() {
    let mixed = super::file("mixed.toml", "model = \"gpt2\"\nmethod = \"full\"\nlearning_rate = 1\n");
    let run = headroom(&["estimate", &mixed]);
    assert!(run.err.contains("there is no key \"learning_rate\" (use task"), "{}", run.err);
    let broken = super::file("broken.toml", "model = gpt2\n");
    assert!(headroom(&["estimate", &broken]).err.contains("TOML parse error at line 1"));
    let unknown = super::file("unknown.yml", "one: 1\ntwo: 2\n");
    assert!(headroom(&["estimate", &unknown]).err.contains("of no project that is known here"));
}

#[test]
fn a_configuration_is_written_with_what_is_otherwise() {
    let run = headroom(&["export", "axolotl", "m=Qwen/Qwen3-0.6B&mask=padded&b=4"]);
    assert_eq!(
        run.err,
        "note: otherwise than in the scenario: k-bit preparation: Off, not On\nnote: what the file runs needs 15.5 GiB\n"
    );
    assert!(run.out.contains("\nmicro_batch_size: 4\n"), "{}", run.out);
    let read = headroom_with(&["import", "-"], &run.out);
    assert!(!read.out.contains("not understood"), "{}", read.out);
    fails(
        &["export", "torchtune"],
        "error: torchtune's recipes run torchtune's own modules (choose torchtune as the training library)\n",
    );
    assert_eq!(headroom(&["export", "word"]).status, Some(2));
}

/// Adapters that are not read are no full fine-tuning, and a limit over such a file is not checked until somebody says the method.
#[test]
fn a_limit_is_not_checked_over_adapters_that_are_not_read() {
    let script = "trainer = SFTTrainer(model=\"meta-llama/Llama-3.1-8B\", args=SFTConfig(bf16=True), peft_config=AdaLoraConfig(init_r=12))\n";
    let gate = ["estimate", "-", "--gpu", "h100-sxm-80gb", "--fail-unless-fits"];
    let run = headroom_with(&gate, script);
    assert_eq!(run.status, Some(2), "{}{}", run.out, run.err);
    assert!(run.err.contains("AdaLoraConfig(init_r=12)"), "{}", run.err);
    let said = headroom_with(&[&gate[..], &["--method", "lora"]].concat(), script);
    assert_eq!(said.status, Some(0), "{}", said.err);
}

/// Guide 003's command of inference, as it prints it.
#[test]
fn a_calculators_inference_is_answered_in_its_precision() {
    let command = "python gpu_memory_calculator.py \\\n    --model microsoft/phi-2 \\\n    --mode inference \\\n    --precision bf16 \\\n    --no-kv-cache\n";
    let run = headroom_with(&["estimate", "-", "--gpu", "rtx-4090", "--json"], command);
    assert_eq!((run.status, run.err.as_str()), (Some(0), ""), "{}", run.out);
    let answer: Value = serde_json::from_str(&run.out).unwrap();
    let scenario = &answer["scenario"];
    assert_eq!((&scenario["task"], &scenario["method"]), (&"generate".into(), &"full".into()), "{scenario}");
    assert_eq!(
        (&scenario["precision"], &scenario["kv-cache"]),
        (&"bf16".into(), &"off".into()),
        "{scenario}"
    );
}
