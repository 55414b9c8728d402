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
        "  LoRA rank              32                   lora_r: 32",
        "  Sequence length         1,024                      SFTConfig's default in trl 1.16",
        "  config_file: examples/accelerate_configs/deepspeed_zero3.yaml  this is another file: read it too",
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
            "note: {path}: deepspeed: examples/deepspeed/ds_z2_config.json: this is another file: read it too\n"
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
        piped.out.starts_with("standard input: a GPT-2-like trainer's TOML\n"),
        "{}{}",
        piped.out,
        piped.err
    );
    fails(
        &["estimate", "--from", "README.md"],
        "error: README.md: this is no configuration that is known here: it is no table of settings\n",
    );
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
