//! Configurations of other projects: what is understood of them, and that nothing of them is lost.
#![cfg(not(target_arch = "wasm32"))]

mod adapters;
mod foreign;
mod mistaken;
mod policies;
mod real_files;
mod scripts;
mod served;
mod sharing;
mod tasks;
mod unread;
mod weights;
mod whatever;
mod written;

use headroom::import::{self, Format, Understood};
use headroom::scenario::keys::Key;
use headroom::scenario::{
    Allocator, AttentionKernel, Checkpointing, LoraTargets, LossKernel, Optimizer, Precision, Scenario,
    StepTime,
};
use headroom::share;
use proptest::prelude::*;

/// A file, whose it is, the scenario that it is over the default one, and what is not followed in it.
type Row = (&'static str, &'static str, Format, &'static str, &'static [&'static str]);

const FILES: [Row; 14] = [
    (
        "axolotl-qlora.yml",
        include_str!("../fixtures/configurations/axolotl-qlora.yml"),
        Format::Axolotl,
        "m=meta-llama/Llama-3.2-1B&r=32&ld=on&fa=on&prep=off&o=adamw-8bit&b=2&ga=4&gc=reentrant&attn=flash-attention-2&mask=padding-free&alloc=expandable",
        &[],
    ),
    (
        "llama-factory-lora.yaml",
        include_str!("../fixtures/configurations/llama-factory-lora.yaml"),
        Format::LlamaFactory,
        "m=meta-llama/Meta-Llama-3-8B-Instruct&method=lora&s=4096&ga=8&gc=reentrant&mask=padded&gpus=2&shard=zero2&zoverlap=off",
        &["the number of GPUs"],
    ),
    (
        "torchtune-lora.yaml",
        include_str!("../fixtures/configurations/torchtune-lora.yaml"),
        Format::Torchtune,
        "m=Qwen/Qwen2.5-7B-Instruct&method=lora&r=32&ld=on&p=bf16&b=4&s=4096&ga=2&mask=packed&st=torchtune",
        &["compile: true"],
    ),
    (
        "torchtitan.toml",
        include_str!("../fixtures/configurations/torchtitan.toml"),
        Format::Torchtitan,
        "method=full&p=amp-bf16&s=8192&ga=2&gc=operations&st=torchtitan&gpus=8&shard=fsdp2&replicas=2",
        &["compile.enable: true"],
    ),
    (
        "accelerate-fsdp2.yaml",
        include_str!("../fixtures/configurations/accelerate-fsdp2.yaml"),
        Format::Accelerate,
        "gpus=8&shard=fsdp2&wrap=accelerate",
        &[],
    ),
    (
        "accelerate-zero3.yaml",
        include_str!("../fixtures/configurations/accelerate-zero3.yaml"),
        Format::Accelerate,
        "gpus=8&shard=zero3",
        &[],
    ),
    (
        // 4,096 elements of hidden size: "auto" is 4,096², 0.9 of it
        "deepspeed-zero3.json",
        include_str!("../fixtures/configurations/deepspeed-zero3.json"),
        Format::DeepSpeed,
        "shard=zero3&cpu=optimizer&zbucket=16777216&zprefetch=15099494&zpersist=1000000&zoverlap=off",
        &[],
    ),
    (
        "trl-command.sh",
        include_str!("../fixtures/configurations/trl-command.sh"),
        Format::Trl,
        "m=Qwen/Qwen2-0.5B&method=lora&r=32&t=q_proj,v_proj&ld=on&p=amp-bf16&b=2&s=1024&ga=8&mask=padding-free&st=trl&alloc=expandable&gpus=8&shard=zero3",
        &[],
    ),
    (
        "trl-sft.yaml",
        include_str!("../fixtures/configurations/trl-sft.yaml"),
        Format::Trl,
        "m=Qwen/Qwen3-0.6B&method=full&b=8&s=4096&st=trl&alloc=expandable",
        &[],
    ),
    (
        "unsloth-cell.py",
        include_str!("../fixtures/configurations/unsloth-cell.py"),
        Format::Unsloth,
        "m=unsloth/Meta-Llama-3.1-8B&o=adamw-8bit&b=2&ga=4&gc=offloaded&mask=padded&st=unsloth&compile=layers&alloc=expandable",
        &[],
    ),
    (
        "unsloth.ipynb",
        include_str!("../fixtures/configurations/unsloth.ipynb"),
        Format::Unsloth,
        "m=unsloth/Meta-Llama-3.1-8B&o=adamw-8bit&b=2&ga=4&gc=offloaded&mask=padded&st=unsloth&compile=layers&alloc=expandable",
        &[],
    ),
    (
        // of one answer at a time Unsloth makes as many as a prompt has
        "unsloth-grpo.ipynb",
        include_str!("../fixtures/configurations/unsloth-grpo.ipynb"),
        Format::Unsloth,
        "task=grpo&m=meta-llama/Llama-3.1-8B-Instruct&r=32&o=paged-adamw-8bit&b=6&s=1024&prompt=256&ref=none&gc=offloaded&mask=padded&st=unsloth&alloc=expandable&vllm=60&vsleep=on",
        &[],
    ),
    (
        "unsloth-grpo-accumulated.ipynb",
        include_str!("../fixtures/configurations/unsloth-grpo-accumulated.ipynb"),
        Format::Unsloth,
        "task=grpo&m=meta-llama/Llama-3.2-3B-Instruct&method=lora&r=64&o=adamw-8bit&b=8&prompt=288&ref=none&ga=4&gc=offloaded&mask=padded&st=unsloth&alloc=expandable&vllm=50",
        &[],
    ),
    (
        "peft-qlora.py",
        include_str!("../fixtures/configurations/peft-qlora.py"),
        Format::Python,
        "m=mistralai/Mistral-7B-v0.1&ad=dora&r=64&t=attention&ld=on&o=paged-adamw-8bit&ga=4&alloc=expandable",
        &["TrainingArguments(torch_compile=args.compile)"],
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
    let understood = read(include_str!("../fixtures/configurations/trainer.toml"));
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
        "https://a.b/#v=1&m=gpt2&b=4",
        "#v=1&m=gpt2&b=4&took=allocated:5",
        "batch-size: 4\nmodel: gpt2",
    ] {
        let understood = read(text);
        assert_eq!((understood.format, understood.scenario.batch), (Format::Headroom, 4), "{text}");
    }
    let config = r#"{"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257, "n_positions": 1024}"#;
    assert_eq!(read(config).format, Format::Model);
}

#[test]
fn llama_factorys_own_switches_are_read_as_it_has_them() {
    let factory = |more: &str| {
        let before =
            "model_name_or_path: meta-llama/Llama-3.2-1B\nfinetuning_type: full\nstage: sft\nbf16: true\n";
        read(&format!("{before}{more}"))
    };
    let layerwise = factory(
        "use_galore: true\ngalore_layerwise: true\ngalore_target: mlp\ngalore_scale: 2.0\noptim: adafactor\n",
    );
    let read = &layerwise.scenario;
    let own = (read.optimizer, read.lora.rank, read.lora.targets, read.savings.step);
    assert_eq!(own, (Optimizer::GaLoreAdafactor, 16, LoraTargets::Mlp, StepTime::InBackward));
    assert!(headroom::estimate(read).memory.is_some() && layerwise.left.is_empty(), "{:?}", layerwise.left);
    for (more, told) in [
        ("use_apollo: true\noptim: adamw_torch\napollo_proj: svd\n", vec!["apollo_proj: svd"]),
        ("use_galore: true\noptim: adamw_8bit\ngalore_proj_type: left\n", vec!["galore_proj_type: left"]),
        ("use_galore: true\n", vec!["use_galore: true"]),
        ("use_galore: true\noptim: lion_8bit\n", vec!["use_galore: true"]),
        ("use_apollo: true\noptim: adafactor\n", vec!["use_apollo: true"]),
        (
            "use_galore: true\nuse_apollo: true\noptim: adamw_torch\n",
            vec!["use_galore: true", "use_apollo: true"],
        ),
        ("use_galore: false\ngalore_proj_type: left\n", vec![]),
    ] {
        assert_eq!(left(&factory(more)), told, "{more}");
    }
}

/// What a notebook asks the card is answered by the card that is chosen.
#[test]
fn what_depends_on_the_card_is_decided_by_it() {
    let text = "if torch.cuda.get_device_capability()[0] >= 8:\n    attn = \"flash_attention_2\"\n    bf16 = True\nelse:\n    attn = \"eager\"\n    bf16 = False\nmodel = AutoModelForCausalLM.from_pretrained(\"Qwen/Qwen3-0.6B\", attn_implementation=attn, dtype=torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16)\nTrainingArguments(bf16=bf16)";
    let over = |gpu: &str| {
        let mut base = Scenario::default();
        Key::find("gpu").expect("a key").read(&mut base, gpu).expect("a card");
        import::read(text, &base).expect("it is read")
    };
    let (ampere, turing) = (over("a100-sxm-80gb"), over("t4"));
    assert_eq!((&ampere.left, &turing.left), (&Vec::new(), &Vec::new()));
    assert_eq!(ampere.scenario.attention, AttentionKernel::FlashAttn);
    assert_eq!(turing.scenario.attention, AttentionKernel::Eager);
    assert_eq!(ampere.scenario.precision, Precision::AmpBf16Weights);
    assert_eq!(turing.scenario.precision, Precision::Fp16);
    // whatever else a program decides is left
    let open = read(
        "if big:\n    attn = \"eager\"\nelse:\n    attn = \"sdpa\"\nAutoModelForCausalLM.from_pretrained(\"Qwen/Qwen3-0.6B\", attn_implementation=attn)",
    );
    assert_eq!(open.left.len(), 1, "{:?}", open.left);
    assert!(open.assumed.iter().any(|assumed| assumed.key == "attention"), "{:?}", open.assumed);
}

#[test]
fn arguments_that_are_changed_afterwards_count() {
    let text = "kwargs = {\"per_device_train_batch_size\": 4}\nkwargs[\"gradient_checkpointing\"] = True\nargs = TrainingArguments(\"out\", **kwargs)\nargs.gradient_accumulation_steps = 16\nconfig = AutoConfig.from_pretrained(\"gpt2\")\nconfig.n_layer = 4\nmodel = AutoModelForCausalLM.from_config(config)\noptimizer = torch.optim.SGD(model.parameters())";
    let understood = read(text);
    let scenario = &understood.scenario;
    assert_eq!((scenario.batch, scenario.accumulation), (4, 16));
    assert_eq!(scenario.checkpointing, Checkpointing::NonReentrant);
    let left: Vec<_> = understood.left.iter().map(|left| left.said.as_str()).collect();
    assert_eq!(left, ["AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(\"gpt2\"))"]);
    assert_eq!(scenario.optimizer, Optimizer::Sgd);
}

/// Where a setting is not followed, the answer says what stands in its place.
#[test]
fn what_stands_instead_is_said() {
    let understood = read("base_model: meta-llama/Llama-3.1-8B\nadapter: ia3\noptimizer: magic\n");
    let instead = |key: &str| understood.assumed.iter().find(|assumed| assumed.key == key);
    assert!(
        instead("method")
            .is_some_and(|assumed| assumed.value == "QLoRA" && assumed.why.contains("adapter: ia3"))
    );
    assert!(instead("optimizer").is_some_and(|assumed| assumed.why.contains("optimizer: magic")));
    // the model is applied, also where it was on the page before
    assert!(understood.taken.iter().any(|taken| taken.key == "model"));
}

#[test]
fn files_add_up() {
    let arguments = read(include_str!("../fixtures/configurations/trl-sft.yaml")).scenario;
    let launcher = include_str!("../fixtures/configurations/accelerate-fsdp2.yaml");
    let both = import::read(launcher, &arguments).expect("it is accelerate's").scenario;
    let link = share::encode(std::slice::from_ref(&both));
    // accelerate makes the weights float32 before it shards them
    assert_eq!(
        link,
        "v=1&m=Qwen/Qwen3-0.6B&method=full&p=amp-bf16&b=8&s=4096&st=trl&alloc=expandable&gpus=8&shard=fsdp2"
    );
}

/// Reads a text over a scenario that differs from the default one in what is looked at.
fn read_over(text: &str, change: impl FnOnce(&mut Scenario)) -> Understood {
    let mut base = Scenario::default();
    change(&mut base);
    import::read(text, &base).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn left(understood: &Understood) -> Vec<&str> {
    understood.left.iter().map(|left| left.said.as_str()).collect()
}

/// The cells behind a training load what it wrote: its model is that of the beginning.
#[test]
fn the_model_that_is_trained_is_the_first_one() {
    let unsloth = include_str!("../fixtures/configurations/unsloth-cell.py").to_owned()
        + "\ntrainer.train()\nif False:\n    model, tokenizer = FastLanguageModel.from_pretrained(\n        model_name = \"lora_model\",\n        load_in_4bit = False,\n        dtype = torch.float16,\n    )\n";
    let understood = read(&unsloth);
    assert_eq!(
        understood.scenario,
        read(include_str!("../fixtures/configurations/unsloth-cell.py")).scenario
    );
    assert_eq!(left(&understood), ["FastLanguageModel.from_pretrained(lora_model)"]);

    let peft = "model = AutoModelForCausalLM.from_pretrained('meta-llama/Llama-3.2-1B', dtype=torch.bfloat16)\ntrainer = SFTTrainer(model=model, args=SFTConfig(bf16=True), peft_config=LoraConfig(r=4))\ntrainer.train()\nmodel = AutoPeftModelForCausalLM.from_pretrained(args.output_dir, dtype=torch.float16)\n";
    let understood = read(peft);
    assert_eq!(understood.scenario.model.name(), "meta-llama/Llama-3.2-1B");
    assert_eq!(understood.scenario.precision, Precision::AmpBf16Weights);
    assert_eq!(left(&understood), ["AutoPeftModelForCausalLM.from_pretrained(args.output_dir)"]);

    // neither is a name on the Hub
    for name in ["args.model", "'lora_model'", "f'{org}/Qwen2.5-{size}'", "'a/b/c'"] {
        let understood =
            read(&format!("model = AutoModelForCausalLM.from_pretrained({name}, use_cache=False)"));
        assert_eq!(understood.scenario.model, Scenario::default().model, "{name}");
        assert!(understood.left.iter().any(|left| left.why.contains("no name of a model")), "{name}");
    }
}

#[test]
fn axolotls_plugin_alone_cuts_the_loss() {
    let yaml = |rest: &str| {
        format!(
            "base_model: Qwen/Qwen3-0.6B\nmicro_batch_size: 2\nplugins:\n  - axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin\n{rest}"
        )
    };
    assert_eq!(read(&yaml("")).scenario.savings.loss, LossKernel::Cut);
    assert_eq!(read(&yaml("cut_cross_entropy: true\n")).scenario.savings.loss, LossKernel::Cut);
    assert_ne!(read(&yaml("cut_cross_entropy: false\n")).scenario.savings.loss, LossKernel::Cut);
    let other = read(&yaml("  - axolotl.integrations.kernels.KernelsPlugin\n"));
    assert_eq!(left(&other), ["plugins: axolotl.integrations.kernels.KernelsPlugin"]);
}

/// Few lines that stand for much more are refused, or stay names.
#[test]
fn the_allocator_of_a_command_in_the_first_lines_counts() {
    let body = "base_model: Qwen/Qwen3-8B\nadapter: lora\nlora_r: 8\n";
    let allocator = |head: &str| read(&format!("{head}\n{body}")).scenario.allocator;
    let command =
        "# LoRA of Qwen/Qwen3-8B\n# PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False axolotl train a.yaml";
    assert_eq!(allocator(command), Allocator::Native);
    // axolotl's own, also where a comment only speaks of the variable
    for head in ["", "# try PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False"] {
        assert_eq!(allocator(head), Allocator::Expandable, "{head}");
    }
    let torchtune = include_str!("../fixtures/configurations/torchtune-lora.yaml");
    let set = format!("# PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True tune run x\n{torchtune}");
    assert_eq!(read(&set).scenario.allocator, Allocator::Expandable);
}

#[test]
fn short_texts_do_not_fill_the_memory() {
    let yaml =
        format!("model_name_or_path: x/y\na: &a {}\nb: [{}]\n", "z".repeat(100_000), "*a, ".repeat(20_000));
    let error = import::read(&yaml, &Scenario::default()).expect_err("it is two gigabytes").to_string();
    assert!(error.contains("repeats more"), "{error}");
    let python =
        format!("a='{}'\nargs = SFTConfig(output_dir=[{}])", "x".repeat(1_900), "a,".repeat(100_000));
    drop(read(&python));
}

/// A file of one's own says what it says; the rest stays.
#[test]
fn ones_own_file_adds_up_too() {
    for text in ["{\"batch-size\": 4}", "batch-size = 4", "batch-size: 4"] {
        let base = share::decode("m=gpt2&method=full&gpu=h100-sxm-80gb").scenarios.remove(0);
        let understood = import::read(text, &base).expect("it is Headroom's");
        assert_eq!(understood.scenario, Scenario { batch: 4, ..base });
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

/// axolotl's fused adapters are on by default where its own rules have them so and they are followed; elsewhere the file keeps its answer.
#[test]
fn axolotls_fused_adapters_are_on_where_it_switches_them_on() {
    const FILE: &str = "base_model: NousResearch/Llama-3.2-1B\nadapter: ADAPTER\nlora_r: 16\nlora_target_linear: true\nsequence_len: 1024\n";
    const SECOND: &str = "bf16: auto\nfsdp_version: 2\nnum_processes: 2\nfsdp_config:\n";
    const FIRST: &str = "bf16: auto\nnum_processes: 2\nfsdp_config:\n  fsdp_sharding_strategy: FULL_SHARD\n";
    let read = |adapter: &str, rest: &str| {
        let text = FILE.replace("ADAPTER", adapter) + rest;
        let read = import::read(&text, &Scenario::default()).expect("it is axolotl's");
        assert!(headroom::estimate(&read.scenario).memory.is_some(), "{text}");
        let told = read.left.iter().any(|left| left.said.contains("lora_mlp_kernel"));
        (read.scenario.lora.fused, told)
    };
    for (adapter, rest, fused, told) in [
        ("lora", "bf16: auto\n", true, false),
        ("qlora", "load_in_4bit: true\nbf16: true\nlora_dropout: 0.05\n", true, false),
        ("lora", "load_in_8bit: true\nbf16: auto\n", false, false),
        ("lora", "bf16: auto\nrl: dpo\n", false, false),
        ("lora", "bf16: auto\ntrust_remote_code: true\n", false, false),
        (
            "lora",
            "bf16: auto\nlora_mlp_kernel: false\nlora_qkv_kernel: false\nlora_o_kernel: false\n",
            false,
            false,
        ),
        ("lora", "bf16: auto\nlora_mlp_kernel: true\n", false, true),
        // followed in bfloat16, and of ways over several GPUs under DDP and FSDP2
        ("lora", "fp16: true\nbf16: false\n", false, true),
        ("lora", "bf16: auto\nnum_processes: 2\n", true, false),
        ("qlora", "load_in_4bit: true\nbf16: true\nnum_processes: 2\n", true, false),
        ("lora", &format!("{SECOND}  reshard_after_forward: true\n"), true, false),
        // 4-bit weights in shards were not compared as axolotl wraps them
        ("qlora", &format!("load_in_4bit: true\n{SECOND}  reshard_after_forward: true\n"), false, true),
        // the first version of FSDP has none, and refuses them
        ("lora", FIRST, false, false),
        (
            "lora",
            &format!("lora_mlp_kernel: true\nlora_qkv_kernel: true\nlora_o_kernel: true\n{FIRST}"),
            false,
            true,
        ),
        ("lora", &FIRST.replace("num_processes: 2\n", ""), false, false),
    ] {
        assert_eq!(read(adapter, rest), (fused, told), "{adapter}: {rest}");
    }
}
