//! What files of single scenarios say.

use super::*;

/// The defaults of every library and method have their files.
#[test]
fn the_usual_scenarios_are_written() {
    let mut count = [0; Configuration::ALL.len()];
    for stack in Stack::ALL {
        for method in Method::ALL {
            for gpus in [1, 8] {
                let mut scenario = Scenario::default();
                scenario.change(|scenario| scenario.stack = *stack);
                scenario.change(|scenario| scenario.method = *method);
                scenario.change(|scenario| scenario.cluster.gpus = gpus);
                check(&scenario, &Scenario { batch: 3, ..Scenario::default() }).unwrap();
                for (which, count) in Configuration::ALL.into_iter().zip(&mut count) {
                    *count += usize::from(configuration(&scenario, which).is_ok());
                }
            }
        }
    }
    // trl's files are for one GPU: its trainer is not predicted on several
    let least = [11, 12, 9, 6, 3, 20, 0, 1, 1, 0];
    assert!(count.iter().zip(least).all(|(count, least)| *count >= least), "{count:?}");
}

/// LLaMA-Factory beside an accelerate file shards as accelerate does: its file says so of a loop, and keeps what is accelerate's.
#[test]
fn llama_factory_shards_as_accelerate_does() {
    for (wrapper, told) in [("accelerate", false), ("loop", true)] {
        let link = format!("v=1&m=Qwen/Qwen3-0.6B&method=lora&p=bf16&gpus=4&shard=fsdp2&wrap={wrapper}");
        let link = if wrapper == "loop" { link } else { link.replace("p=bf16", "p=amp-bf16-weights") };
        let scenario = share::decode(&link).scenarios.remove(0);
        match configuration(&scenario, Configuration::LlamaFactory) {
            Ok(written) => {
                let differs = written.differs.iter().any(|differs| differs.contains("accelerate, not"));
                assert_eq!(differs, told, "{link}: {:?}", written.differs);
                assert!(written.text.contains("wrap=accelerate"), "{}", written.text);
            }
            // pure bf16 beside adapters is not followed of accelerate
            Err(issue) => assert!(told, "{link}: {issue}"),
        }
    }
}

#[test]
fn what_has_no_line_is_refused_with_what_would_be_right() {
    let refused = |change: &dyn Fn(&mut Scenario), which, wanted: &str| {
        let mut scenario = Scenario::default();
        change(&mut scenario);
        let issue = configuration(&scenario, which).expect_err(wanted);
        assert!(issue.to_string().contains(wanted), "{issue}");
        assert!(issue.fix.is_some(), "{issue}");
    };
    refused(
        &|scenario| scenario.optimizer = Optimizer::NAdam,
        Configuration::Trl,
        "no name for this optimizer",
    );
    refused(&|_| {}, Configuration::Torchtune, "choose torchtune as the training library");
    refused(&|_| {}, Configuration::DeepSpeed, "nothing is sharded");
    refused(&|scenario| scenario.training_loop.keeps_outputs = true, Configuration::Axolotl, "Outputs kept");
    refused(
        &|scenario| {
            scenario.change(|scenario| scenario.stack = Stack::Trl);
            scenario.precision = Precision::Fp32;
        },
        Configuration::Trl,
        "4-bit products in the type of the weights",
    );
}

/// Liger's loss alone has no line in LLaMA-Factory's file, whose switch patches the layers too: the run has the loss, and the file says
/// what else is in it.
#[test]
fn ligers_loss_comes_with_its_layers_where_they_have_one_switch() {
    let mut scenario = Scenario::default();
    scenario.savings.loss = LossKernel::Liger;
    let file = configuration(&scenario, Configuration::LlamaFactory).unwrap();
    assert!(file.text.contains("enable_liger_kernel: true"), "{}", file.text);
    assert!(file.differs.iter().any(|clause| clause.starts_with("Training library")), "{:?}", file.differs);
    let read = import::read(&file.text, &Scenario::default()).unwrap().scenario;
    assert_eq!(read.stack, Stack::Liger);
}

/// Who chooses trl on the page gets what the file for trl runs.
#[test]
fn trl_with_4_bits_is_one_run_however_it_is_chosen() {
    let mut chosen = Scenario::default();
    chosen.change(|scenario| scenario.stack = Stack::Trl);
    let file = configuration(&chosen, Configuration::Trl).unwrap();
    assert!(file.differs.is_empty(), "{:?}", file.differs);
    let needed = estimate(&chosen).memory.map(|memory| memory.needed());
    assert_eq!(Some(file.needed), needed);
    let of_transformers = configuration(&Scenario::default(), Configuration::Trl).unwrap();
    let read = import::read(&of_transformers.text, &Scenario::default()).unwrap().scenario;
    assert_eq!((read.precision, read.method), (chosen.precision, Method::Qlora));
}

/// torchtitan's mesh and Megatron-LM's are said in their files, and a model that Megatron-LM is told by its sizes keeps its name.
#[test]
fn files_of_many_gpus_say_how_these_divide_the_model() {
    let megatron = "v=1&st=megatron&method=full&p=amp-bf16-weights&o=adamw&attn=cudnn&timpl=transformer-engine&shard=dist-opt&gpu=h100-sxm-80gb";
    let titan = "v=1&st=torchtitan&method=full&shard=fsdp2&gpus=64";
    for (which, link, lines) in [
        (
            Configuration::Torchtitan,
            format!("{titan}&p=bf16&tp=8&gc=operations&m=meta-llama/Llama-3.1-70B&reshard=off"),
            vec![
                "flavor = \"70B\"",
                "data_parallel_shard_degree = 8",
                "tensor_parallel_degree = 8",
                "selective_ac_option = \"op\"",
                "fsdp_reshard_after_forward = \"never\"",
                "dtype = \"bfloat16\"",
            ],
        ),
        (
            Configuration::Torchtitan,
            format!("{titan}&p=amp-bf16&replicas=8&ga=2&alloc=expandable"),
            vec![
                "data_parallel_replicate_degree = 8",
                "global_batch_size = 128",
                "expandable_segments:True torchrun --nnodes 8",
            ],
        ),
        (
            Configuration::Megatron,
            format!("{megatron}&gpus=64&tp=4&pp=4&vpp=5&sp=on&cp=2&gc=off&m=meta-llama/Llama-3.1-70B&ga=16"),
            vec![
                "--tensor-model-parallel-size 4",
                "--num-layers-per-virtual-pipeline-stage 5",
                "--no-overlap-p2p-communication",
                "--sequence-parallel",
                "--global-batch-size 32",
                "m=meta-llama/Llama-3.1-70B",
                "--nnodes 8",
            ],
        ),
        (
            Configuration::Megatron,
            format!("{megatron}&gpus=8&xp=8&m=Qwen/Qwen3-30B-A3B"),
            vec![
                "--num-experts 128",
                "--expert-model-parallel-size 8",
                "--moe-ffn-hidden-size 768",
                "--qk-layernorm",
            ],
        ),
        (
            Configuration::Megatron,
            format!("{megatron}&gpus=4&pp=2&s=1024&m=openai-community/gpt2&reduce=bf16&alloc=expandable"),
            vec!["--hidden-dropout 0.1", "--grad-reduce-in-bf16", "export PYTORCH_CUDA_ALLOC_CONF"],
        ),
    ] {
        let shared = share::decode(&link);
        assert_eq!((shared.notices, share::unknown(&link)), (Vec::new(), Vec::new()), "{link}");
        let scenario = &shared.scenarios[0];
        let file = configuration(scenario, which).unwrap_or_else(|issue| panic!("{link}: {issue}"));
        for line in lines {
            assert!(file.text.contains(line), "{line}: {}", file.text);
        }
        assert_eq!(file.differs, [] as [&str; 0], "{link}");
        check(scenario, &Scenario { batch: 3, ..Scenario::default() }).unwrap();
    }
    let of = |link: &str| share::decode(link).scenarios.remove(0);
    for (which, link, wanted) in [
        (Configuration::Torchtitan, "v=1", "choose torchtitan"),
        (Configuration::Megatron, "v=1", "choose Megatron-core"),
        (
            Configuration::Megatron,
            &format!("{megatron}&gpus=8&xp=8&m=deepseek-ai/DeepSeek-V2-Lite"),
            "deepseek_v2",
        ),
        (
            Configuration::Megatron,
            &format!("{megatron}&gpus=8&pp=2&vpp=8&m=meta-llama/Llama-3.1-8B&ga=4"),
            "choose more stages",
        ),
    ] {
        let issue = configuration(&of(link), which).expect_err(wanted);
        assert!(issue.to_string().contains(wanted) && issue.fix.is_some(), "{issue}");
    }
}

/// torchtune's distributed recipes say in the file how they shard, and in the command among how many GPUs.
#[test]
fn torchtunes_distributed_recipes_are_written() {
    let link = "m=meta-llama/Llama-3.1-8B&p=bf16&clip=off&o=adamw-fused&gpus=4&shard=fsdp2&st=torchtune";
    for (settings, lines) in [
        (
            "&method=full&apart=embedding-and-head&reshard=off",
            ["[tok_embeddings, output]", "full", "reshard_after_forward: false"],
        ),
        ("&method=lora&apart=embedding&cpu=all", ["[tok_embeddings]", "lora", "cpu_offload: true"]),
    ] {
        let scenario = share::decode(&format!("{link}{settings}")).scenarios.remove(0);
        let file = configuration(&scenario, Configuration::Torchtune).unwrap();
        for line in lines {
            assert!(file.text.contains(line), "{line}: {}", file.text);
        }
        let command = format!("tune run --nproc_per_node 4 {}_finetune_distributed", lines[1]);
        assert!(file.text.contains(&command), "{}", file.text);
        // as recipes/configs/llama3_1/8B_full.yaml has them
        assert!(file.text.contains("max_filename: \"00004\""), "{}", file.text);
        let read = import::read(&file.text, &Scenario::default()).unwrap().scenario;
        let memory = estimate(&scenario).memory;
        assert!(memory.is_some() && memory == estimate(&read).memory);
    }
}

/// A file whose run has no answer cannot be compared with the scenario: it is refused, whatever else is in the scenario.
#[test]
fn what_a_file_runs_is_predicted() {
    let of = |link: &str| share::decode(link).scenarios.remove(0);
    let link = "m=meta-llama/Llama-3.1-8B&method=full&p=amp-bf16&gpus=8&shard=fsdp2&mask=padded";
    for settings in ["", "&attn=math", "&cache=on"] {
        let scenario = of(&format!("{link}{settings}"));
        assert!(estimate(&scenario).memory.is_some(), "{settings}");
        for which in Configuration::ALL.into_iter().filter(|which| !launcher_of(*which)) {
            let Ok(file) = configuration(&scenario, which) else { continue };
            let Some((_, rest)) = file.text.split_once("headroom estimate '") else { continue };
            let named = of(rest.split('\'').next().unwrap_or_default());
            assert!(estimate(&named).memory.is_some(), "{which:?}{settings}");
        }
    }
    let issue = configuration(&of(&format!("{link}&attn=math")), Configuration::Trl).expect_err("no line");
    assert!(!issue.message.is_empty() && issue.fix.is_some(), "{issue}");
}

/// accelerate stops at the classes that Gemma 3's tower names and has not, unless it is told others.
#[test]
fn layers_that_accelerate_would_not_find_are_named() {
    let of = |model: &str, rest: &str| {
        linked(&format!(
            "#v=1&m={model}&method=lora&p=amp-bf16-weights&mask=padded&gpus=8&shard=fsdp2&st={rest}"
        ))
    };
    let launcher =
        |scenario| configuration(&scenario, Configuration::Accelerate).expect("it is written").text;
    let script = |scenario| headroom::export::script(&scenario).expect("it is written");
    let gemma = || of("google/gemma-3-4b-it", "trl");
    assert!(launcher(gemma()).contains("fsdp_transformer_layer_cls_to_wrap: Gemma3DecoderLayer\n"));
    assert!(script(gemma()).contains("\"transformer_layer_cls_to_wrap\": [\"Gemma3DecoderLayer\"]"));
    let qwen = || of("Qwen/Qwen2.5-VL-3B-Instruct", "trl");
    assert!(!launcher(qwen()).contains("cls_to_wrap") && !script(qwen()).contains("cls_to_wrap"));
    // a loop goes by the same names, what embeds patches among them
    let looped = script(linked(
        "#v=1&m=google/gemma-3-4b-it&method=lora&p=amp-bf16&mask=none&gpus=8&shard=fsdp2&st=transformers",
    ));
    assert!(looped.contains("_no_split_modules and \"Embed\" not in"), "{looped}");
}

#[test]
fn checkpoints_are_said_by_the_trainer_and_what_they_gather_by_the_launcher() {
    let of = |saving: &str| {
        let link =
            format!("#v=1&m=meta-llama/Llama-3.1-8B&method=lora&st=trl&gpus=4&shard=fsdp2&save={saving}");
        linked(&link)
    };
    for (saving, states) in [("on", "SHARDED_STATE_DICT"), ("full", "FULL_STATE_DICT")] {
        let scenario = of(saving);
        let file = configuration(&scenario, Configuration::Trl).expect("it has lines for it");
        assert!(file.text.contains("save_strategy: steps\n"), "{}", file.text);
        let launcher = configuration(&scenario, Configuration::Accelerate).expect("it has a line for it");
        assert!(launcher.text.contains(&format!("fsdp_state_dict_type: {states}\n")), "{}", launcher.text);
        // one file after the other, over what neither says
        let first = import::read(&without_comments(&file.text), &of("off")).expect("it is read").scenario;
        let second = import::read(&without_comments(&launcher.text), &first).expect("it is read").scenario;
        assert_eq!(second.spikes.saving.slug(), saving);
    }
    for saving in ["off", "on", "full"] {
        let scenario = of(saving);
        let text = headroom::export::script(&scenario).expect("it has lines for it");
        let read = import::read(&without_comments(&text), &of("off")).expect("it is read");
        assert_eq!((read.scenario.spikes.saving.slug(), read.left), (saving, Vec::new()), "{text}");
        // of shards the trainer writes no model at the end
        assert_eq!(text.contains("set_state_dict_type"), saving == "on", "{text}");
    }
    let file = configuration(&of("off"), Configuration::Trl).expect("it is written");
    assert!(!file.text.contains("save_strategy"), "{}", file.text);
}

/// Copies of shards are a mesh of accelerate's, in its own file and in the call of trl's trainers; read back they are what was written.
#[test]
fn replicas_of_shards_are_written_and_read_back() {
    let link = "m=meta-llama/Llama-3.1-8B&method=full&p=amp-bf16&st=trl&mask=ones&gpus=16&shard=fsdp2&s=512&replicas=4";
    let scenario = share::decode(link).scenarios.remove(0);
    let plain = share::decode(&link.replace("&replicas=4", "")).scenarios.remove(0);
    let launcher = configuration(&scenario, Configuration::Accelerate).expect("it is written");
    let script = headroom::export::script(&scenario).expect("it is written");
    let call = "parallelism_config=ParallelismConfig(dp_replicate_size=4, dp_shard_size=4)";
    assert!(launcher.text.contains("  parallelism_config_dp_shard_size: 4\n"), "{}", launcher.text);
    assert!(
        script.contains("from accelerate import ParallelismConfig\n") && script.contains(call),
        "{script}"
    );
    for text in [launcher.text, script] {
        let read = import::read(&without_comments(&text), &plain).expect("it is read");
        assert_eq!((read.scenario.cluster, read.left), (scenario.cluster, Vec::new()), "{text}");
    }
    let without = headroom::export::script(&plain).expect("it is written");
    assert!(!without.contains("ParallelismConfig"), "{without}");
}

/// accelerate's file launches train.py: where none is written of a task, or nothing is trained, neither is it.
#[test]
fn accelerate_launches_a_file_that_is_written() {
    let generates = share::decode("task=generate&m=Qwen/Qwen3-0.6B").scenarios.remove(0);
    let issue = configuration(&generates, Configuration::Accelerate).expect_err("nothing is trained");
    assert!(issue.message.contains("generates") && issue.fix.is_some(), "{issue}");
    for task in ["ppo", "distil", "sft", "dpo", "grpo", "reward", "embed", "classify"] {
        let scenario = share::decode(&format!("task={task}&m=Qwen/Qwen3-0.6B")).scenarios.remove(0);
        assert!(configuration(&scenario, Configuration::Accelerate).is_ok(), "{task}");
    }
}

#[test]
fn scripts_of_trl_and_unsloth_are_read_back() {
    for (stack, method) in
        [(Stack::Trl, Method::Lora), (Stack::Trl, Method::Full), (Stack::Unsloth, Method::Qlora)]
    {
        let mut scenario = Scenario::default();
        scenario.change(|scenario| scenario.stack = stack);
        scenario.change(|scenario| scenario.method = method);
        let file = configuration(&scenario, Configuration::Python).expect("it has a script");
        let other = Scenario { batch: 3, optimizer: Optimizer::Sgd, ..Scenario::default() };
        let understood = import::read(&without_comments(&file.text), &other).expect("it is read");
        assert_eq!(understood.left, [], "{}", file.text);
        let link = |scenario: &Scenario| share::encode(std::slice::from_ref(scenario));
        assert_eq!(link(&understood.scenario), link(&scenario), "{}", file.text);
    }
}

/// A scenario that projects gradients, or steps in backward.
fn linked(link: &str) -> Scenario {
    share::decode(&format!("v=1&method=full&gpu=h200-sxm&{link}")).scenarios.remove(0)
}

#[test]
fn layers_that_are_projected_are_those_of_the_scenario() {
    let pythia = linked("m=EleutherAI/pythia-1.4b&t=attention&o=galore-adamw");
    let axolotl = configuration(&pythia, Configuration::Axolotl).expect("axolotl has lines for it");
    assert!(
        axolotl.text.contains("optim_target_modules: [query_key_value, attention.dense]"),
        "{}",
        axolotl.text
    );
    assert!(!axolotl.differs.iter().any(|clause| clause.contains("Target modules")), "{:?}", axolotl.differs);
    let trl = Scenario { stack: Stack::Trl, ..pythia };
    let script = headroom::export::script(&trl).expect("trl has arguments for it");
    assert!(script.contains("optim_target_modules=[\"query_key_value\", \"attention.dense\"]"), "{script}");
}

#[test]
fn names_at_which_transformers_stops_are_not_written() {
    let layerwise = linked("m=meta-llama/Llama-3.2-1B&o=galore-adafactor&step=in-backward");
    assert!(estimate(&layerwise).memory.is_some());
    for which in [Configuration::Axolotl, Configuration::LlamaFactory] {
        let refused = configuration(&layerwise, which).expect_err("transformers stops");
        assert!(refused.message.contains("galore_adafactor_layerwise"), "{refused}");
    }
    let apollo = linked("m=meta-llama/Llama-3.2-1B&o=apollo-adamw&step=in-backward");
    let axolotl = configuration(&apollo, Configuration::Axolotl).expect("axolotl has lines for it");
    assert!(axolotl.text.contains("optimizer: apollo_adamw_layerwise"), "{}", axolotl.text);
    for (link, name) in [("o=apollo-adamw&step=in-backward", "apollo_adamw_layerwise"), ("o=lomo", "lomo")] {
        let trl = linked(&format!("m=meta-llama/Llama-3.2-1B&st=trl&{link}"));
        let script = headroom::export::script(&trl).expect("trl's trainers run it");
        assert!(script.contains(&format!("optim=\"{name}\"")), "{script}");
    }
}

/// axolotl's file has lines for the schemes that it makes, and the others refuse what they would leave out.
#[test]
fn quantisation_aware_training_is_written_for_axolotl() {
    let of = |more: &str| {
        share::decode(&format!("v=1&m=Qwen/Qwen3-4B&method=full&p=bf16&gpu=h200-sxm&{more}"))
            .scenarios
            .remove(0)
    };
    let own = of("qat=int8-int4-axolotl&qatg=32");
    let axolotl = configuration(&own, Configuration::Axolotl).expect("it has lines");
    assert!(
        axolotl.text.contains("qat:\n  activation_dtype: int8\n  weight_dtype: int4\n  group_size: 32\n"),
        "{}",
        axolotl.text
    );
    for other in ["qat=int4", "qat=int8-int4-axolotl&qatl=body"] {
        assert!(configuration(&of(other), Configuration::Axolotl).is_err(), "{other}");
    }
    for which in [Configuration::Trl, Configuration::LlamaFactory] {
        assert!(configuration(&own, which).is_err(), "{which:?}");
    }
}

/// axolotl's file has a line for FP8 under autocast, as it runs it; the others refuse what they would leave out.
#[test]
fn products_in_8_bits_are_written_or_refused() {
    let of = |rest: &str| {
        let link = format!("v=1&m=Qwen/Qwen2.5-7B&method=full&gpu=h100-sxm-80gb&f8=tensorwise{rest}");
        share::decode(&link).scenarios.remove(0)
    };
    let axolotl = configuration(&of(""), Configuration::Axolotl).expect("it has a line");
    assert!(axolotl.text.contains("\nfp8: true\n"), "{}", axolotl.text);
    for (rest, which) in [
        ("&p=fp32", Configuration::Axolotl),
        ("&f8=rowwise", Configuration::Axolotl),
        ("&f8g=on", Configuration::Axolotl),
        ("", Configuration::Trl),
        ("", Configuration::LlamaFactory),
        ("&gpus=8&shard=fsdp2&p=amp-bf16", Configuration::Accelerate),
    ] {
        let issue = configuration(&of(rest), which).expect_err(rest);
        let fields = [Field::Float8, Field::Float8Gather, Field::Precision, Field::Link];
        assert!(fields.contains(&issue.field), "{rest} {which:?}: {issue}");
    }
}

/// trl's commands for rewards and for answers that are rewarded, with who generates the answers, read back as what they are.
#[test]
fn what_is_rewarded_is_written_and_read_back() {
    let of = |rest: &str| {
        let link = format!("v=1&m=Qwen/Qwen2.5-0.5B&st=trl&mask=padded&gpu=h100-sxm-80gb&p=amp-bf16&{rest}");
        share::decode(&link).scenarios.remove(0)
    };
    for (rest, command, line) in [
        ("task=reward&method=lora", "trl reward", "\nlora_task_type: SEQ_CLS\n"),
        ("task=reward&method=full", "trl reward", "\ncenter_rewards_coefficient: null\n"),
        ("task=grpo&method=lora&b=8", "trl grpo", "\nvllm_mode: server\n"),
        ("task=grpo&method=lora&b=8&s=1024", "trl grpo", "# trl vllm-serve --model Qwen/Qwen2.5-0.5B"),
        ("task=grpo&method=full&b=4&ref=scored", "trl grpo", "\nnum_generations: 4\nbeta: 0.04\n"),
        (
            "task=grpo&b=8&vllm=30&vsleep=on&p=amp-bf16-weights",
            "trl grpo",
            "\nvllm_enable_sleep_mode: true\n",
        ),
        ("task=rloo&method=lora&b=8&roll=transformers", "trl rloo", "\nuse_vllm: false\n"),
        ("task=grpo&method=lora&b=8&gpus=8&shard=zero2", "trl grpo", "\nreward_funcs: ["),
    ] {
        let scenario = of(rest);
        let written =
            configuration(&scenario, Configuration::Trl).unwrap_or_else(|issue| panic!("{rest}: {issue}"));
        assert!(written.text.contains(&format!("\n# {command} --config trl.yaml")), "{}", written.text);
        assert!(written.text.contains(line), "{rest}: {}", written.text);
        assert_eq!(written.differs, Vec::<String>::new(), "{rest}");
        let mut over = of("task=sft&st=transformers");
        (over.cluster, over.answers.prompt) = (scenario.cluster, scenario.answers.prompt);
        let read = import::read(&written.text, &over).expect("it is a file");
        assert_eq!(read.left.len(), 0, "{rest}: {:?}", read.left);
        assert_eq!(read.scenario.task, scenario.task, "{rest}");
        assert_eq!(estimate(&read.scenario).memory, estimate(&scenario).memory, "{rest}");
    }
    // one answer of a step is compared with none
    let issue = configuration(&of("task=grpo&method=lora&b=1"), Configuration::Trl).expect_err("one answer");
    assert_eq!(issue.field, Field::Batch);
    // prompts as long as the data has them
    let short =
        configuration(&of("task=grpo&method=lora&b=8&prompt=256"), Configuration::Trl).expect("a file");
    assert!(short.absent.iter().any(|absent| absent == "Prompt length: 256"), "{:?}", short.absent);
}

/// Preferences are written for the projects that train them, with rates that are no fine-tuning's, and read back as what they are.
#[test]
fn preferences_are_written_and_read_back() {
    let of = |rest: &str| {
        let link = format!("v=1&m=Qwen/Qwen2.5-0.5B&st=trl&mask=padded&gpu=h100-sxm-80gb&{rest}");
        share::decode(&link).scenarios.remove(0)
    };
    for (rest, which, line) in [
        ("task=dpo&method=lora&loss=axolotl", Configuration::Axolotl, "\nrl: dpo\n"),
        ("task=kto&method=lora&loss=axolotl", Configuration::Axolotl, "\nrl: kto\n"),
        ("task=orpo&method=lora&loss=axolotl", Configuration::Axolotl, "\nrl: orpo\n"),
        ("task=cpo&method=lora&loss=axolotl", Configuration::Axolotl, "\nrl: simpo\ncpo_alpha: 1\n"),
        ("task=simpo&method=lora&loss=axolotl", Configuration::Axolotl, "\nrl: simpo\ncpo_alpha: 0\n"),
        (
            "task=dpo&method=lora&loss=log-softmax",
            Configuration::LlamaFactory,
            "\nstage: dpo\npref_loss: sigmoid\n",
        ),
        (
            "task=simpo&method=full&p=amp-bf16&loss=log-softmax",
            Configuration::LlamaFactory,
            "\npref_loss: simpo\n",
        ),
        ("task=dpo&method=lora&ref=precomputed", Configuration::Trl, "\nprecompute_ref_log_probs: true\n"),
        ("task=kto&prep=off", Configuration::Trl, "\n# trl kto --config trl.yaml\n"),
    ] {
        let scenario = of(rest);
        let written =
            configuration(&scenario, which).unwrap_or_else(|issue| panic!("{rest} {which:?}: {issue}"));
        assert!(written.text.contains(line), "{}", written.text);
        let rate = if scenario.method == Method::Full { "0.0000005" } else { "0.000005" };
        assert!(written.text.contains(&format!("\nlearning_rate: {rate}\n")), "{}", written.text);
        assert_eq!(written.differs, Vec::<String>::new(), "{rest} {which:?}");
        let read =
            import::read(&written.text, &of("task=sft&st=transformers")).expect("it is a file").scenario;
        assert_eq!(estimate(&read).memory, estimate(&scenario).memory, "{rest} {which:?}");
    }
    // the file runs another version's loss than the scenario's, which it says
    let newer = configuration(&of("task=dpo&method=lora"), Configuration::Axolotl).expect("it has lines");
    assert_eq!(newer.differs, ["Loss kernel: Full logits, axolotl's kernels, not Default"]);
    for (rest, which) in [
        ("task=kto&method=lora&loss=full", Configuration::LlamaFactory),
        ("task=grpo&method=lora", Configuration::Axolotl),
        ("task=orpo&method=lora", Configuration::Trl),
        // axolotl hands trl a model that is prepared otherwise
        ("task=orpo&loss=axolotl", Configuration::Axolotl),
        ("task=dpo&method=lora", Configuration::Torchtune),
    ] {
        assert!(configuration(&of(rest), which).is_err(), "{rest} {which:?}");
    }
    let script =
        headroom::export::script(&of("task=dpo&method=lora&loss=full")).expect("trl's trainers run it");
    for part in [
        "'trl==1.9.*'",
        "LEARNING_RATE = 5e-6",
        "if tokenizer.chat_template is None:",
        "processing_class=tokenizer",
    ] {
        assert!(script.contains(part), "{part}: {script}");
    }
}
