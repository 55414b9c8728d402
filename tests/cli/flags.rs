//! What flags leave open, and how they are read: as the page does, and as the tables do.

use serde_json::Value;

use super::{file, headroom, says};

#[track_caller]
fn estimate(arguments: &[&str]) -> Value {
    let out = says(&[&["estimate", "--json"], arguments].concat());
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"))
}

#[test]
fn what_no_flag_says_is_as_it_usually_is() {
    let said = |arguments: &[&str], key: &str| estimate(arguments)["scenario"][key].clone();
    // a card without bfloat16, a model with 1,024 positions, libraries with habits of their own
    for (arguments, key, value) in [
        (&["--gpu", "t4"][..], "precision", "amp-fp16"),
        (&["--gpu", "t4", "--precision", "bf16"], "precision", "bf16"),
        (&["--stack", "trl"], "precision", "amp-bf16-weights"),
        (&["--stack", "trl", "--method", "lora"], "precision", "amp-bf16"),
        (&["--stack", "unsloth"], "optimizer", "adamw-8bit"),
    ] {
        assert_eq!(said(arguments, key), value, "{arguments:?}");
    }
    assert_eq!(said(&["--model", "gpt2"], "seq-length"), 1024);
    assert_eq!(said(&["--model", "gpt2", "--seq-length", "512"], "seq-length"), 512);
    // a link and a file say all of a scenario
    let toml = file("flags_t4.toml", "gpu = \"t4\"\n");
    for whole in ["gpu=t4", &toml] {
        assert_eq!(said(&[whole], "precision"), "amp-bf16-weights", "{whole}");
        assert_eq!(said(&[whole, "--batch-size", "2"], "precision"), "amp-bf16-weights", "{whole}");
    }
    // the tables begin with the same run
    let levers: Value = serde_json::from_str(&says(&["levers", "--gpu", "t4", "--json"])).unwrap();
    assert_eq!(levers["needed"], estimate(&["--gpu", "t4"])["needed"]);
}

#[test]
fn a_card_is_named_by_the_size_that_it_is_sold_with() {
    let memory = |arguments: &[&str]| estimate(arguments)["gpu"]["memory"].as_u64();
    for size in ["12GB", "12 gb", "12GiB"] {
        assert_eq!(memory(&["--gpu", size]), Some(12 << 30), "{size}");
    }
    // what a link says is exact, and what was given out stays what it is
    assert_eq!(memory(&["gpu=12GB"]), Some(12_000_000_000));
    let none = headroom(&["estimate", "--gpu", "0GB"]);
    assert!(none.status == Some(2) && none.err.contains("more memory than none"), "{}", none.err);
}

#[test]
fn numbers_are_read_as_the_page_reads_them() {
    let tokens = |text: &str| {
        let run = ["--gpu", "h100-sxm-80gb", "--dataset-tokens", text];
        estimate(&run)["scenario"]["dataset-tokens"].as_u64()
    };
    assert_eq!(tokens("10k x 512"), Some(5_120_000));
    assert_eq!(tokens("5M"), Some(5_000_000));
    assert_eq!(tokens("2,000"), Some(2_000));
    let sequence = |text: &str| estimate(&["--seq-length", text])["scenario"]["seq-length"].as_u64();
    assert_eq!(sequence("4k"), Some(4096));
    for text in ["4m", "4k x 2", "1.5"] {
        let wrong = headroom(&["estimate", "--seq-length", text]);
        assert!(wrong.status == Some(2) && wrong.err.contains("seq-length"), "{text}: {}", wrong.err);
    }
}

#[test]
fn a_pages_link_keeps_what_it_asks_its_table() {
    let link = "v=1&gpu=rtx-3060-12gb&table-models=llama <2b&table-cells=length&view=plan&sorted=cards.2";
    let out = says(&["fit", link]);
    assert!(out.starts_with("Longest sequence in "), "{out}");
    assert!(out.contains("meta-llama/Llama-3.2-1B") && !out.contains("Qwen"), "{out}");
    // a flag goes over it
    let out = says(&["fit", link, "--models", "qwen3 <1b"]);
    assert!(out.contains("Qwen/Qwen3-0.6B") && !out.contains("meta-llama"), "{out}");
    let out = says(&["fit", "v=1&m=openai-community/gpt2&budget=16&table-stack=unsloth"]);
    assert!(out.starts_with("Largest micro-batch in 16.0 GiB") && out.contains("Unsloth"), "{out}");
    let vain = headroom(&["fit", "v=1&m=openai-community/gpt2&table-cells=all"]);
    assert_eq!(vain.err, "note: table-cells=all in the link is not understood and left out\n");
}

#[test]
fn what_a_link_says_in_vain_is_told() {
    let run = headroom(&["estimate", "v=1&foo=1&2.bar=2&utm_source=chat&view=plan"]);
    assert_eq!(
        (run.status, run.err.as_str()),
        (
            Some(0),
            "note: foo=1 in the link is not known and left out\nnote: 2.bar=2 in the link is not known and left out\n"
        )
    );
}

/// What several GPUs have by default has an answer, whatever library trains.
#[test]
fn the_defaults_of_several_gpus_are_answered() {
    for library in [
        "--stack transformers --method full",
        "--stack trl --method full",
        "--stack trl --method full --optimizer adamw-8bit",
        "--stack liger --method full",
        "--stack torchtune --method full",
        "--stack torchtune --method lora",
        "--stack torchtune",
        "--stack megatron",
        "--wrapped-by axolotl --shard fsdp2 --method full",
    ] {
        let model =
            ["estimate", "--model", "meta-llama/Llama-3.1-8B", "--gpus", "8", "--gpu", "h100-sxm-80gb"];
        let asked: Vec<&str> = model.into_iter().chain(library.split(' ')).collect();
        let run = headroom(&asked);
        assert_eq!(run.status, Some(0), "{library}: {}", run.err);
    }
}

/// So has text alone of models that see, whose tower has adapters among all linear layers: DDP would wait for their gradients.
#[test]
fn the_defaults_of_several_gpus_are_answered_of_models_that_see() {
    for model in ["google/gemma-3-12b-it", "Qwen/Qwen2.5-VL-7B-Instruct", "Qwen/Qwen3.5-9B"] {
        for method in ["lora", "qlora"] {
            let base =
                ["estimate", "--model", model, "--method", method, "--gpus", "8", "--gpu", "h100-sxm-80gb"];
            let run = headroom(&base);
            assert_eq!(run.status, Some(0), "{model} {method}: {}", run.err);
            assert!(run.out.contains("FSDP2"), "{model} {method}: {}", run.out);
        }
    }
}

/// How many GPUs there are is known where a file is read, and a file that names no engine is launched without one.
#[test]
fn the_number_of_gpus_beside_a_file_is_known_to_its_reader() {
    let base = "base_model: NousResearch/Meta-Llama-3.1-8B\nadapter: lora\nlora_r: 16\nlora_target_linear: true\nmicro_batch_size: 1\n\
                sequence_len: 2048\nbf16: auto\ngradient_checkpointing: true\noptimizer: adamw_torch_fused\n";
    let fsdp2 = format!("{base}fsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n");
    for (name, text, engine) in [("alone.yaml", base, "DDP"), ("fsdp2.yaml", fsdp2.as_str(), "FSDP2")] {
        let path = file(name, text);
        let run = headroom(&["estimate", &path, "--gpus", "8", "--gpu", "h100-sxm-80gb"]);
        assert!(run.out.contains(engine), "{name}: {}{}", run.out, run.err);
    }
}

/// A recipe's builder names the model that is there already, too.
#[test]
fn a_recipe_of_the_usual_model_names_it() {
    let text =
        "model:\n  _component_: torchtune.models.llama3_1.lora_llama3_1_8b\n  lora_rank: 8\nbatch_size: 2\n";
    let run = headroom(&["estimate", &file("recipe.yaml", text)]);
    assert!(run.out.contains("meta-llama/Llama-3.1-8B"), "{}", run.err);
}

/// Two flags that contradict each other are told: what only another method reads is not what was asked for.
#[test]
fn a_flag_of_another_method_is_told() {
    for (flags, told) in [
        (
            ["--method", "lora", "--weight-format", "int8"],
            "note: --weight-format makes no difference to this run, whose method is LoRA; it does with --method qlora\n",
        ),
        (
            ["--method", "full", "--adapter", "dora"],
            "note: --adapter makes no difference to this run, whose method is Full fine-tuning; it does with --method lora or --method qlora\n",
        ),
        (["--method", "qlora", "--weight-format", "int8"], ""),
        (["--method", "lora", "--adapter", "dora"], ""),
    ] {
        let run = headroom(&[&["estimate", "--model", "Qwen/Qwen2.5-0.5B"], &flags[..]].concat());
        assert_eq!((run.err.as_str(), run.status), (told, Some(0)), "{flags:?}");
    }
}

/// What would make a difference to generation alone is told, but where a table has the model generate.
#[test]
fn a_flag_of_generation_is_told_where_a_model_is_trained() {
    let told = |arguments: &[&str]| headroom(arguments).err;
    let note = "note: --vllm-percent makes no difference to this run\n";
    for task in [&["--task", "grpo", "--rollouts", "transformers"][..], &["--task", "sft"]] {
        let err = told(&[&["estimate", "--vllm-percent", "30"], task].concat());
        assert!(err.contains(note), "{task:?}: {err}");
    }
    let err = told(&["estimate", "--task", "grpo", "--vllm-percent", "30", "--gpu", "h100-sxm-80gb"]);
    assert!(!err.contains(note), "{err}");
    let err = told(&["serving", "--model", "Qwen/Qwen3-8B", "--vllm-percent", "30"]);
    assert!(!err.contains(note), "{err}");
}
