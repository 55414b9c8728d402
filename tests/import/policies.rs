//! Policies that learn from the answers that they write.

use headroom::scenario::{Checkpointing, Method, Precision, Reference, Rollouts, Scenario, Stack, Task};

use crate::{read, read_over};

/// Four models of one script: the policy is the one that writes.
#[test]
fn a_policy_beside_a_value_model_is_a_task() {
    let text = "name = \"Qwen/Qwen2.5-1.5B\"\n\
        value = AutoModelForSequenceClassification.from_pretrained(name, num_labels=1, dtype=torch.bfloat16)\n\
        reward = AutoModelForSequenceClassification.from_pretrained(name, num_labels=1, dtype=torch.bfloat16)\n\
        policy = AutoModelForCausalLM.from_pretrained(name, dtype=torch.bfloat16)\n\
        reference = AutoModelForCausalLM.from_pretrained(name, dtype=torch.bfloat16)\n\
        args = PPOConfig(per_device_train_batch_size=2, gradient_accumulation_steps=8, num_mini_batches=2, num_ppo_epochs=2,\n\
            local_rollout_forward_batch_size=8, response_length=128, kl_coef=0.03, stop_token=\"eos\", bf16=False)\n\
        trainer = PPOTrainer(args=args, model=policy, ref_model=reference, reward_model=reward, value_model=value)";
    let understood = read(text);
    assert_eq!(understood.left, []);
    let Scenario { task, policy, answers, batch, accumulation, sequence, precision, .. } =
        understood.scenario.clone();
    assert_eq!((task, batch, accumulation), (Task::Ppo, 2, 8));
    assert_eq!((policy.rollout, policy.parts, policy.epochs), (8, 2, 2));
    assert_eq!((sequence, precision), (answers.prompt + 128, Precision::Bf16));
    assert_eq!(understood.scenario.model.name(), "Qwen/Qwen2.5-1.5B");
    assert_eq!(understood.scenario.checkpointing, Checkpointing::Off);
    let asked = format!("{text}\npolicy.gradient_checkpointing_enable()");
    assert_eq!(read(&asked).scenario.checkpointing, Checkpointing::NonReentrant);
    let other = text.replacen(
        "from_pretrained(name, num_labels",
        "from_pretrained(\"Qwen/Qwen2.5-7B\", num_labels",
        1,
    );
    assert_eq!(read(&other).left.len(), 1, "{:?}", read(&other).left);
    let command = read(
        "python examples/scripts/ppo/ppo.py --sft_model_path Qwen/Qwen2.5-0.5B --learning_rate 3e-6 --response_length 53 --num_ppo_epochs 1",
    );
    assert_eq!((command.scenario.task, command.scenario.policy.rollout), (Task::Ppo, 64));
}

/// `fast_inference=True` is vLLM on the same card, with Unsloth's defaults; what is not followed of it is told.
#[test]
fn reinforcement_under_unsloth_is_a_task() {
    let text = |loaded: &str, trained: &str| {
        read(&format!(
            "model, tokenizer = FastLanguageModel.from_pretrained(\"unsloth/Qwen3-4B\", load_in_4bit=False{loaded})\n\
             model = FastLanguageModel.get_peft_model(model, r=32)\n\
             args = GRPOConfig(per_device_train_batch_size=4, gradient_accumulation_steps=2, max_completion_length=512{trained})\n\
             trainer = GRPOTrainer(model=model, args=args, train_dataset=dataset)"
        ))
    };
    let usual = text(", fast_inference=True", "");
    let Scenario { task, stack, batch, answers, reserve, .. } = usual.scenario.clone();
    assert_eq!(usual.left, []);
    assert_eq!((task, stack, batch), (Task::Grpo, Stack::Unsloth, 4));
    assert_eq!((answers.rollouts, answers.reference), (Rollouts::Server, Reference::None));
    assert_eq!((reserve.vllm, reserve.sleeps), (50, false));
    // eight answers are one group of eight, and no whole number of groups of six
    assert_eq!(text("", ", num_generations=6").scenario.batch, 6);
    assert_eq!(text("", ", num_generations=2").scenario.batch, 4);
    let sleeps = text(", fast_inference=True, unsloth_vllm_standby=True, gpu_memory_utilization=0.8", "");
    assert_eq!((sleeps.scenario.reserve.vllm, sleeps.scenario.reserve.sleeps), (80, true));
    // beta is 0.001 beside a loss that is neither DAPO's nor Dr. GRPO's
    let reference = |said: &str| text("", said).scenario.answers.reference;
    assert_eq!(reference(", loss_type=\"bnpo\""), Reference::Scored);
    assert_eq!(reference(", loss_type=\"dr_grpo\""), Reference::None);
    assert_eq!(reference(", loss_type=\"bnpo\", beta=0.0"), Reference::None);
    let corrected = text(", fast_inference=True", ", vllm_importance_sampling_correction=True");
    assert_eq!(corrected.left.len(), 1, "{:?}", corrected.left);
    // without vLLM Unsloth generates itself
    assert_eq!(text("", "").scenario.answers.rollouts, Rollouts::Transformers);
}

#[test]
fn reinforcement_is_a_task() {
    let text = "args = GRPOConfig(use_vllm=True, vllm_mode=\"server\", num_generations=4, max_completion_length=1024, beta=0.04)\ntrainer = GRPOTrainer(model=\"Qwen/Qwen2-0.5B-Instruct\", reward_funcs=reward, args=args, train_dataset=dataset)";
    let understood = read(text);
    assert_eq!(understood.left, []);
    let scenario = understood.scenario;
    assert_eq!((scenario.task, scenario.answers.reference), (Task::Grpo, Reference::Scored));
    assert_eq!((scenario.model.name(), scenario.method), ("Qwen/Qwen2-0.5B-Instruct".into(), Method::Full));
    assert_eq!((scenario.batch, scenario.sequence), (8, scenario.answers.prompt + 1024));
    // vLLM on the same card has its share of it
    let beside = read("GRPOConfig(use_vllm=True, vllm_mode=\"colocate\", vllm_gpu_memory_utilization=0.45)");
    assert_eq!((beside.left, beside.scenario.reserve.vllm), (Vec::new(), 45));
    assert_eq!(read("GRPOConfig(use_vllm=True)").scenario.reserve.vllm, 30);
    // what is not followed of it is told, and what is as it is taken is not
    let divided = read(
        "GRPOConfig(use_vllm=True, vllm_tensor_parallel_size=8, vllm_max_model_length=32768, max_completion_length=512)",
    );
    let said = crate::left(&divided).join(", ");
    assert!(said.contains("vllm_tensor_parallel_size") && said.contains("vllm_max_model_length"), "{said}");
    assert_eq!(
        crate::left(&read("GRPOConfig(use_vllm=True, vllm_tensor_parallel_size=1)")),
        Vec::<&str>::new()
    );
    // texts that nothing cuts
    let whole = read("SFTConfig(max_length=None)");
    assert!(crate::left(&whole).join(", ").contains("max_length"), "{:?}", whole.left);
    assert_eq!(whole.scenario.sequence, Scenario::default().sequence);
    assert_eq!(beside.scenario.answers.rollouts, Rollouts::Server);
    // and gives it back while the model is trained, where it is asked to
    assert!(!beside.scenario.reserve.sleeps);
    let asleep = read("GRPOConfig(use_vllm=True, vllm_enable_sleep_mode=True)");
    assert!(asleep.scenario.reserve.sleeps && asleep.taken.iter().any(|taken| taken.key == "vllm-sleep"));
    let again = read_over("GRPOConfig(use_vllm=True)", |base| base.reserve.sleeps = true);
    assert!(!again.scenario.reserve.sleeps);
    assert_eq!(read("GRPOConfig()").scenario.answers.reference, Reference::None);
}

/// trl's default: the model that is trained generates its answers by transformers.
#[test]
fn answers_are_generated_in_the_process_where_vllm_is_off() {
    let plain = read("GRPOConfig()");
    assert_eq!((plain.left, plain.scenario.answers.rollouts), (Vec::new(), Rollouts::Transformers));
    assert!(plain.assumed.iter().any(|assumed| assumed.key == "rollouts"), "{:?}", plain.assumed);
    let usual = read("RLOOConfig(use_vllm=False, temperature=1.0, top_p=1.0, top_k=0, min_p=None)");
    assert_eq!((usual.left, usual.scenario.answers.rollouts), (Vec::new(), Rollouts::Transformers));
    // what makes more of the vocabulary than a draw, and pages, are not followed, and said
    let cut = read("GRPOConfig(temperature=0.7, top_k=50)");
    assert_eq!(
        (cut.left.len(), cut.scenario.answers.rollouts),
        (2, Rollouts::Transformers),
        "{:?}",
        cut.left
    );
    let pages = read("GRPOConfig(use_transformers_paged=True)");
    assert_eq!(
        (pages.left.len(), pages.scenario.answers.rollouts),
        (1, Rollouts::Server),
        "{:?}",
        pages.left
    );
    // a server draws as it likes
    assert_eq!(read("GRPOConfig(use_vllm=True, temperature=0.7, top_k=50)").left, []);
}
