//! Configurations of other projects: what is understood of them, and that nothing of them is lost.

#![cfg(not(target_arch = "wasm32"))]

use headroom::import::{self, Format, Understood};
use headroom::scenario::keys::Key;
use headroom::scenario::{Reference, Scenario, Task};
use headroom::share;
use proptest::prelude::*;

/// A file, whose it is, the scenario that it is over the default one, and what is not followed in it.
type Row = (&'static str, &'static str, Format, &'static str, &'static [&'static str]);

const FILES: [Row; 11] = [
    (
        "axolotl-qlora.yml",
        include_str!("fixtures/configurations/axolotl-qlora.yml"),
        Format::Axolotl,
        "m=meta-llama/Llama-3.2-1B&r=32&ld=on&prep=off&o=adamw-8bit&b=2&ga=4&gc=reentrant&attn=flash-attention-2&mask=padding-free&alloc=expandable",
        &["lora_mlp_kernel, lora_qkv_kernel, lora_o_kernel, lora_embedding_kernel (on by default)"],
    ),
    (
        "llama-factory-lora.yaml",
        include_str!("fixtures/configurations/llama-factory-lora.yaml"),
        Format::LlamaFactory,
        "m=meta-llama/Meta-Llama-3-8B-Instruct&method=lora&s=4096&ga=8&gc=reentrant&mask=padded",
        &["deepspeed: examples/deepspeed/ds_z2_config.json"],
    ),
    (
        "torchtune-lora.yaml",
        include_str!("fixtures/configurations/torchtune-lora.yaml"),
        Format::Torchtune,
        "m=Qwen/Qwen2.5-7B-Instruct&method=lora&r=32&ld=on&p=bf16&b=4&s=4096&ga=2&mask=packed&st=torchtune",
        &["compile: true"],
    ),
    (
        "accelerate-fsdp2.yaml",
        include_str!("fixtures/configurations/accelerate-fsdp2.yaml"),
        Format::Accelerate,
        "gpus=8&shard=fsdp2",
        &[],
    ),
    (
        "accelerate-zero3.yaml",
        include_str!("fixtures/configurations/accelerate-zero3.yaml"),
        Format::Accelerate,
        "gpus=8&shard=zero3",
        &[],
    ),
    (
        // 4,096 elements of hidden size: "auto" is 4,096², 0.9 of it
        "deepspeed-zero3.json",
        include_str!("fixtures/configurations/deepspeed-zero3.json"),
        Format::DeepSpeed,
        "shard=zero3&cpu=optimizer&zbucket=16777216&zprefetch=15099494&zpersist=1000000&zoverlap=off",
        &[],
    ),
    (
        "trl-command.sh",
        include_str!("fixtures/configurations/trl-command.sh"),
        Format::Trl,
        "m=Qwen/Qwen2-0.5B&method=lora&r=32&t=q_proj,v_proj&ld=on&p=amp-bf16&b=2&s=1024&ga=8&mask=padding-free&st=trl&alloc=expandable&gpus=8",
        &["config_file: examples/accelerate_configs/deepspeed_zero3.yaml"],
    ),
    (
        "trl-sft.yaml",
        include_str!("fixtures/configurations/trl-sft.yaml"),
        Format::Trl,
        "m=Qwen/Qwen3-0.6B&method=full&b=8&s=4096&st=trl&alloc=expandable",
        &[],
    ),
    (
        "unsloth-cell.py",
        include_str!("fixtures/configurations/unsloth-cell.py"),
        Format::Unsloth,
        "m=unsloth/Meta-Llama-3.1-8B&o=adamw-8bit&b=2&ga=4&gc=offloaded&mask=padded&st=unsloth",
        &[],
    ),
    (
        "unsloth.ipynb",
        include_str!("fixtures/configurations/unsloth.ipynb"),
        Format::Unsloth,
        "m=unsloth/Meta-Llama-3.1-8B&o=adamw-8bit&b=2&ga=4&gc=offloaded&mask=padded&st=unsloth",
        &[],
    ),
    (
        "peft-qlora.py",
        include_str!("fixtures/configurations/peft-qlora.py"),
        Format::Python,
        "m=mistralai/Mistral-7B-v0.1&r=64&t=attention&ld=on&o=paged-adamw-8bit&ga=4&alloc=expandable",
        &["TrainingArguments(torch_compile=args.compile)", "LoraConfig(use_dora=true)"],
    ),
];

fn read(text: &str) -> Understood {
    import::read(text, &Scenario::default()).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

#[test]
fn every_project_is_recognised_and_understood() {
    for (name, text, format, link, left) in FILES {
        let understood = read(text);
        assert_eq!(understood.format, format, "{name}");
        let found = share::encode(std::slice::from_ref(&understood.scenario));
        assert_eq!(found.trim_start_matches("v=1&"), link, "{name}: {:#?}", understood.taken);
        let said: Vec<_> = understood.left.iter().map(|left| left.said.as_str()).collect();
        assert_eq!(said, left, "{name}");
    }
}

/// Each applied or assumed key has the value that the scenario has.
#[test]
fn what_is_told_is_what_was_done() {
    for (name, text, ..) in FILES {
        let Understood { scenario, taken, assumed, .. } = read(text);
        let told = taken.iter().map(|one| (one.key, &one.value));
        for (key, value) in told.chain(assumed.iter().map(|one| (one.key, &one.value))) {
            let key = Key::find(key).expect("a key is in the table");
            assert_eq!(&key.words(&scenario), value, "{name}: {}", key.name);
        }
    }
}

#[test]
fn a_gpt2_like_trainer_is_a_model_of_its_dimensions() {
    let understood = read(include_str!("fixtures/configurations/trainer.toml"));
    assert_eq!(understood.format, Format::TrainerToml);
    let scenario = understood.scenario;
    assert_eq!((scenario.batch, scenario.sequence), (24, 512));
    // the guide's 30.12M: embeddings of 50,257 and 512 rows of 384, and 6 layers
    assert_eq!(scenario.architecture().expect("it is a gpt2").parameters(), 30_142_848);
    assert_eq!(understood.left, []);
}

#[test]
fn ones_own_files_and_links_are_read_too() {
    for text in [
        "batch-size = 4\nmodel = \"gpt2\"\n",
        "{\"batch-size\": 4, \"model\": \"gpt2\"}",
        "https://a.b/#m=gpt2&b=4",
        "batch-size: 4\nmodel: gpt2",
    ] {
        let understood = read(text);
        assert_eq!((understood.format, understood.scenario.batch), (Format::Headroom, 4), "{text}");
    }
    let config = r#"{"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257, "n_positions": 1024}"#;
    assert_eq!(read(config).format, Format::Model);
}

#[test]
fn preference_training_is_a_task() {
    let text = "from trl import DPOConfig, DPOTrainer\nargs = DPOConfig(per_device_train_batch_size=2, precompute_ref_log_probs=True, max_length=2048, bf16=True, beta=0.1)\ntrainer = DPOTrainer(model=\"Qwen/Qwen3-0.6B\", args=args)";
    let understood = read(text);
    assert_eq!(understood.left, []);
    let scenario = understood.scenario;
    assert_eq!((scenario.task, scenario.answers.reference), (Task::Dpo, Reference::Precomputed));
    assert_eq!((scenario.batch, scenario.sequence), (2, 2048));
    let other = read("args = GRPOConfig(bf16=True)");
    assert_eq!(other.left[0].said, "GRPOConfig");
}

#[test]
fn files_add_up() {
    let arguments = read(include_str!("fixtures/configurations/trl-sft.yaml")).scenario;
    let launcher = include_str!("fixtures/configurations/accelerate-fsdp2.yaml");
    let both = import::read(launcher, &arguments).expect("it is accelerate's").scenario;
    let link = share::encode(std::slice::from_ref(&both));
    // accelerate makes the weights float32 before it shards them
    assert_eq!(
        link,
        "v=1&m=Qwen/Qwen3-0.6B&method=full&p=amp-bf16&b=8&s=4096&st=trl&alloc=expandable&gpus=8&shard=fsdp2"
    );
}

#[test]
fn what_is_no_configuration_says_so() {
    for text in ["", "hello", "[1, 2]", "a: 1", "{", "print(1)", "<html></html>", "python", "x = 1"] {
        let error = import::read(text, &Scenario::default()).expect_err(text).to_string();
        assert!(error.len() > 10 && !error.ends_with('.'), "{text}: {error}");
    }
}

/// No setting is lost: each is applied, without effect, or left.
#[test]
fn nothing_is_lost() {
    let yaml = "base_model: gpt2\nmicro_batch_size: 0\nsequence_len: long\noptimizer: magic\nadapter: ia3\nmystery: [1, 2]\nbf16: perhaps\nnested:\n  deep: 1\n";
    let understood = read(yaml);
    let said: Vec<_> = understood.left.iter().map(|left| left.said.as_str()).collect();
    let wanted = [
        "adapter: ia3",
        "micro_batch_size: 0",
        "sequence_len: long",
        "optimizer: magic",
        "mystery: 1, 2",
        "nested.deep: 1",
    ];
    for one in wanted {
        assert!(said.contains(&one), "{one}: {said:?}");
    }
}

#[test]
fn a_part_of_a_file_is_no_harm() {
    for (_, text, ..) in FILES {
        for (end, _) in text.char_indices().step_by(7) {
            drop(import::read(&text[..end], &Scenario::default()));
            drop(import::read(&text[end..], &Scenario::default()));
        }
    }
}

proptest! {
    #[test]
    fn no_text_is_any_harm(text in "(?s).{0,200}") {
        drop(import::read(&text, &Scenario::default()));
    }

    #[test]
    fn no_settings_are_any_harm(
        lines in prop::collection::vec(("(base_model|bf16|adapter|lora_r|optim|fsdp|model_embd|deepspeed|_component_|model|SFTConfig\\(r|--a)", "[:=( ]{1,2}", "[-a-z0-9\\[{(\"'*&:.,]{0,12}"), 0..12)
    ) {
        let text: String = lines.iter().map(|(name, sign, value)| format!("{name}{sign}{value}\n")).collect();
        drop(import::read(&text, &Scenario::default()));
    }
}
