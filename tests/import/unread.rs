//! What a script hands over and is not read: it never ends as if it were not there.

use headroom::scenario::{Mask, Method, Reference, Scenario, Stack, Task, Tuner};

use crate::{left, read, read_over};

/// A script of trl's with that as its adapters, whatever stands before it.
fn script(before: &str, adapters: &str) -> String {
    format!(
        "{before}\nargs = SFTConfig(per_device_train_batch_size=1, bf16=True)\n\
         trainer = SFTTrainer(model=\"meta-llama/Llama-3.1-8B\", args=args, peft_config={adapters})"
    )
}

/// peft's tuners that are not followed, a function, a name from elsewhere: none is training of all weights.
#[test]
fn adapters_that_are_not_read_are_no_full_fine_tuning() {
    for (before, adapters, said) in [
        ("", "AdaLoraConfig(target_r=8, init_r=12)", "AdaLoraConfig(target_r=8, init_r=12)"),
        ("config = peft.BOFTConfig(boft_block_size=4)", "config", "BOFTConfig(boft_block_size=4)"),
        ("", "MissConfig(r=64)", "MissConfig(r=64)"),
        ("", "LNTuningConfig()", "LNTuningConfig()"),
        ("", "RandLoraConfig(r=32)", "RandLoraConfig(r=32)"),
        ("", "VBLoRAConfig(r=4)", "VBLoRAConfig(r=4)"),
        ("", "XLoraConfig()", "XLoraConfig()"),
        ("", "FourierFTConfig(n_frequency=1000)", "FourierFTConfig(n_frequency=1000)"),
        ("", "TrainableTokensConfig()", "TrainableTokensConfig()"),
        ("", "SomeNewConfig(r=8)", "SFTTrainer(peft_config=SomeNewConfig(r=8))"),
        ("", "get_peft_config(model_args)", "SFTTrainer(peft_config=get_peft_config(model_args))"),
        ("from myconf import lora", "lora", "SFTTrainer(peft_config=lora)"),
        ("", "{\"r\": 8}", "SFTTrainer(peft_config={\"r\":8})"),
    ] {
        let text = script(before, adapters);
        let understood = read_over(&text, |base| base.change(|base| base.method = Method::Full));
        assert_eq!(understood.scenario.method, Method::Lora, "{adapters}");
        let of_adapters: Vec<_> = understood.left.iter().filter(|left| left.key == Some("method")).collect();
        let [one] = of_adapters.as_slice() else { panic!("{adapters}: {:?}", understood.left) };
        assert!(one.is_misread && one.said == said, "{adapters}: {one:?}");
        assert_eq!(understood.left.len(), 1, "{adapters}: {:?}", understood.left);
        assert!(understood.idle.is_empty(), "{adapters}: {:?}", understood.idle);
    }
    // quantised weights stay so
    let quantised = read(&script("BitsAndBytesConfig(load_in_4bit=True)", "BOFTConfig()"));
    assert_eq!(quantised.scenario.method, Method::Qlora);
    for wrapped in ["get_peft_model(model, AdaLoraConfig(init_r=12))", "get_peft_model(model, adapters)"] {
        let text = format!(
            "model = AutoModelForCausalLM.from_pretrained('meta-llama/Llama-3.1-8B')\nmodel = {wrapped}"
        );
        let understood = read(&text);
        assert_eq!(understood.scenario.method, Method::Lora, "{wrapped}");
        assert!(understood.left.iter().any(|left| left.key == Some("method")), "{:?}", understood.left);
    }
}

/// What the command of such a script said before it holds.
#[test]
fn adapters_of_a_command_are_read_of_it() {
    let command = "python trl/scripts/sft.py --model_name_or_path Qwen/Qwen2.5-7B --use_peft --lora_r 32 --load_in_4bit --dtype bfloat16";
    let before = read(command);
    assert_eq!(
        (before.scenario.method, before.scenario.lora.rank, before.left.len()),
        (Method::Qlora, 32, 0)
    );
    let script = "trainer = SFTTrainer(model=model_args.model_name_or_path, args=training_args, peft_config=get_peft_config(model_args))";
    let after = read_over(script, |base| *base = before.scenario.clone());
    assert_eq!((after.scenario.method, after.scenario.lora.rank), (Method::Qlora, 32));
    let said = left(&after);
    assert!(said.contains(&"SFTTrainer(args=training_args)"), "{said:?}");
    assert!(said.contains(&"SFTTrainer(peft_config=get_peft_config(model_args))"), "{said:?}");
}

/// Adapters and arguments that were applied are not without effect, and no adapters are none.
#[test]
fn what_was_applied_is_not_without_effect() {
    for adapters in ["LoraConfig(r=8)", "VeraConfig(r=8)", "lora()"] {
        let before = if adapters == "lora()" { "def lora():\n    return LoraConfig(r=8)" } else { "" };
        let understood = read(&script(before, adapters));
        assert_eq!((left(&understood), &understood.idle), (vec![], &vec![]), "{adapters}");
        let Scenario { method, lora, .. } = understood.scenario;
        assert_eq!((method, lora.rank), (Method::Lora, 8), "{adapters}");
        assert_eq!(lora.tuner == Tuner::Vera, adapters.starts_with("Vera"), "{adapters}");
    }
    let inside = read(
        "GRPOTrainer(model='Qwen/Qwen2.5-0.5B', args=GRPOConfig(bf16=True, use_vllm=True, vllm_mode='server'), reward_funcs=reward)",
    );
    assert_eq!(inside.scenario.task, Task::Grpo);
    assert!(!inside.idle.iter().any(|said| said.contains("args")), "{:?}", inside.idle);
    let none = read(&script("", "None"));
    assert_eq!((none.scenario.method, left(&none)), (Method::Full, vec![]));
    let open = read(&script("lora = None\nif use_peft:\n    lora = LoraConfig(r=8)", "lora"));
    assert_eq!((open.scenario.method, open.left.len()), (Method::Lora, 1), "{:?}", open.left);
}

/// trl 1.16 keeps its own fused head beside Liger's kernels of layers: the run is trl's, and has an answer.
#[test]
fn ligers_kernels_do_not_take_trls_head_away() {
    let model = "model=\"Qwen/Qwen2.5-0.5B\"";
    for (text, task) in [
        (format!("SFTTrainer({model}, args=SFTConfig(use_liger_kernel=True))"), Task::Sft),
        (format!("DPOTrainer({model}, args=DPOConfig(use_liger_kernel=True))"), Task::Dpo),
        (format!("KTOTrainer({model}, args=KTOConfig(use_liger_kernel=True))"), Task::Kto),
        (
            format!(
                "GRPOTrainer({model}, reward_funcs=reward, args=GRPOConfig(use_vllm=True, vllm_mode='server', use_liger_kernel=True))"
            ),
            Task::Grpo,
        ),
        (
            "model_name_or_path: Qwen/Qwen2.5-0.5B\nmax_length: 512\nuse_liger_kernel: true\n".to_owned(),
            Task::Sft,
        ),
        ("trl dpo --model_name_or_path Qwen/Qwen2.5-0.5B --use_liger_kernel".to_owned(), Task::Dpo),
    ] {
        let understood = read(&text);
        let scenario = &understood.scenario;
        assert_eq!((scenario.task, scenario.stack), (task, Stack::Trl), "{text}");
        assert!(
            scenario.savings.liger_layers && left(&understood).is_empty(),
            "{text}: {:?}",
            understood.left
        );
        let answer = headroom::estimate(scenario);
        assert!(answer.memory.is_some(), "{text}: {:?}", answer.issues);
    }
    let off = read("trl sft --model_name_or_path Qwen/Qwen2.5-0.5B --use_liger_kernel False");
    assert_eq!((off.scenario.stack, left(&off)), (Stack::Trl, vec![]));
    // Liger's own loss, which transformers' trainer runs, and trl's did
    for text in [
        "model = AutoModelForCausalLM.from_pretrained(\"Qwen/Qwen2.5-0.5B\")\nTrainer(model=model, args=TrainingArguments(use_liger_kernel=True))"
            .to_owned(),
        format!("!pip install trl==1.5.0\nSFTTrainer({model}, args=SFTConfig(use_liger_kernel=True))"),
    ] {
        assert_eq!(read(&text).scenario.stack, Stack::Liger, "{text}");
    }
    let earlier =
        read(&format!("!pip install trl==1.9.0\nDPOTrainer({model}, args=DPOConfig(use_liger_kernel=True))"));
    assert!(earlier.left[0].why.contains("before 1.15"), "{:?}", earlier.left);
}

/// A model that rewards takes memory of the card; a function takes none.
#[test]
fn models_that_reward_are_told() {
    let script = |before: &str, rewards: &str, more: &str| {
        read(&format!(
            "{before}trainer = GRPOTrainer(model=\"Qwen/Qwen2.5-0.5B\", reward_funcs={rewards}, args=GRPOConfig(bf16=True{more}))"
        ))
    };
    let reward = "Skywork/Skywork-Reward-V2-Qwen3-0.6B";
    for rewards in [format!("\"{reward}\""), format!("[\"{reward}\", length]")] {
        let understood = script("", &rewards, "");
        assert_eq!(left(&understood), [format!("reward_funcs: {reward}")]);
        assert!(understood.left[0].why.contains("memory is not counted"), "{:?}", understood.left);
        assert_eq!(understood.scenario.model.name(), "Qwen/Qwen2.5-0.5B");
    }
    let object = script(
        &format!("rm = AutoModelForSequenceClassification.from_pretrained(\"{reward}\", num_labels=1)\n"),
        "rm",
        "",
    );
    assert_eq!(object.scenario.model.name(), "Qwen/Qwen2.5-0.5B");
    assert_eq!((object.scenario.task, object.left.is_empty()), (Task::Grpo, false));
    assert!(object.left.iter().all(|left| left.why.contains("memory is not counted")), "{:?}", object.left);
    for rewards in
        ["length", "[length, accuracy]", "lambda completions, **kwargs: [len(c) / 2 for c in completions]"]
    {
        assert_eq!(left(&script("", rewards, "")), [""; 0], "{rewards}");
    }
    let command = read(&format!(
        "trl grpo --model_name_or_path Qwen/Qwen2.5-0.5B --reward_model_name_or_path {reward}"
    ));
    assert_eq!(left(&command), [format!("reward_model_name_or_path: {reward}")]);
    // answers that vLLM wrote are scored before they are learned from, however often they are
    for (more, told) in [
        (", num_iterations=4", &["GRPOConfig(num_iterations=4)"][..]),
        (", num_iterations=1", &[]),
        (", num_iterations=4, use_vllm=True, vllm_mode='server'", &[]),
    ] {
        assert_eq!(left(&script("", "length", more)), told, "{more}");
    }
    let rloo =
        "RLOOTrainer(model=\"Qwen/Qwen2.5-0.5B\", reward_funcs=length, args=RLOOConfig(num_iterations=4))";
    assert_eq!(left(&read(rloo)), [""; 0]);
}

/// Answers that axolotl learns from are no fine-tuning on texts: there is no answer with trl 1.9's logits, and one without them.
#[test]
fn axolotls_answers_are_not_answered_as_texts() {
    let file = "base_model: Qwen/Qwen2.5-0.5B\nmicro_batch_size: 2\nsequence_len: 4096\nadapter: lora\nlora_r: 16\nbf16: auto\n";
    let grpo = read(&format!(
        "{file}rl: grpo\ntrl:\n  beta: 0.01\n  num_generations: 4\n  max_completion_length: 300\n"
    ));
    assert_eq!(left(&grpo), ["rl: grpo"]);
    let scenario = &grpo.scenario;
    assert_eq!((scenario.task, scenario.stack, scenario.mask), (Task::Grpo, Stack::Trl, Mask::Padded));
    assert_eq!(
        (scenario.sequence, scenario.answers.reference),
        (scenario.answers.prompt + 300, Reference::Scored)
    );
    let answer = headroom::estimate(scenario);
    assert!(answer.memory.is_none() && answer.errors().any(|issue| issue.message.contains("axolotl")));
    let later = Scenario { savings: Scenario::default().savings, ..scenario.clone() };
    assert!(headroom::estimate(&later).memory.is_some(), "{:?}", headroom::estimate(&later).issues);
    // a gate fails on what is not read at all
    let other = read(&format!("{file}rl: ebft\n"));
    let of_task: Vec<_> =
        other.left.iter().filter(|left| left.key == Some("task") && left.is_misread).collect();
    assert_eq!(of_task.len(), 1, "{:?}", other.left);
}
