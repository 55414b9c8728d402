//! What a text says is done with the model.

use headroom::scenario::{
    Checkpointing, Divergence, Evaluates, Evaluation, LossKernel, Mask, Method, ModelChoice, Precision,
    Reference, Rollouts, Scenario, Stack, Task, TeacherWeights,
};

use crate::{left, read, read_over};

#[test]
fn preference_training_is_a_task() {
    let text = "from trl import DPOConfig, DPOTrainer\nargs = DPOConfig(per_device_train_batch_size=2, precompute_ref_log_probs=True, max_length=2048, bf16=True, beta=0.1)\ntrainer = DPOTrainer(model=\"Qwen/Qwen3-0.6B\", args=args)";
    let understood = read(text);
    assert_eq!(understood.left, []);
    let scenario = understood.scenario;
    assert_eq!((scenario.task, scenario.answers.reference), (Task::Dpo, Reference::Precomputed));
    assert_eq!((scenario.batch, scenario.sequence), (2, 2048));
    let other = read("args = NashMDConfig(bf16=True)");
    assert_eq!(other.left[0].said, "NashMDConfig");
    assert_eq!(
        read("NashMDTrainer(model=\"Qwen/Qwen3-0.6B\")").scenario.model.name(),
        "meta-llama/Llama-3.1-8B"
    );
}

/// Unsloth makes trl's trainers anew: its notebooks name both.
#[test]
fn preferences_under_unsloth_are_read_as_its_own() {
    let text = "from unsloth import FastLanguageModel, PatchDPOTrainer\nPatchDPOTrainer()\nfrom trl import DPOTrainer, DPOConfig\n\
                model, tokenizer = FastLanguageModel.from_pretrained(model_name='unsloth/Llama-3.2-1B-Instruct', max_seq_length=2048, dtype=None, load_in_4bit=True)\n\
                model = FastLanguageModel.get_peft_model(model, r=16, use_gradient_checkpointing='unsloth')\n\
                trainer = DPOTrainer(model=model, ref_model=None, args=DPOConfig(per_device_train_batch_size=2, bf16=True, optim='adamw_8bit', max_length=1024), train_dataset=data, processing_class=tokenizer)\n";
    let understood = read(text);
    assert_eq!(understood.left, []);
    let Scenario { task, stack, method, checkpointing, batch, sequence, .. } = understood.scenario;
    assert_eq!((task, stack, method), (Task::Dpo, Stack::Unsloth, Method::Qlora));
    assert_eq!((checkpointing, batch, sequence), (Checkpointing::Offloaded, 2, 1024));
}

/// Which logits are made is a matter of trl's version, where a text names it.
#[test]
fn an_earlier_trl_makes_all_logits() {
    let loss = |install: &str, class: &str| {
        let text = format!(
            "{install}\nargs = {class}Config(bf16=True)\ntrainer = {class}Trainer(model=\"Qwen/Qwen3-0.6B\", args=args)"
        );
        read(&text).scenario.savings.loss
    };
    for (install, class, expected) in [
        ("!pip install -q trl==1.5.0 peft", "SFT", LossKernel::Full),
        ("# pip install 'trl==0.24'", "SFT", LossKernel::Full),
        ("!pip install trl==1.7.1", "SFT", LossKernel::Standard),
        ("!pip install trl==1.7.1", "DPO", LossKernel::Full),
        ("!pip install trl==1.16.0", "DPO", LossKernel::Standard),
        ("!pip install trl==1.5.0", "Reward", LossKernel::Standard),
        ("!pip install trl==", "SFT", LossKernel::Standard),
        ("!pip install trl==99999999999.1", "SFT", LossKernel::Standard),
        ("# with trl==1.5 it took more", "SFT", LossKernel::Standard),
    ] {
        assert_eq!(loss(install, class), expected, "{install} {class}");
    }
    for (version, kind, expected) in [
        ("1.5", "chunked_nll", LossKernel::Standard),
        ("1.9", "nll", LossKernel::Full),
        ("1.9", "chunked_nll", LossKernel::Standard),
        ("1.16", "nll", LossKernel::Standard),
    ] {
        let text = format!(
            "!pip install trl=={version}\nSFTTrainer(model=\"Qwen/Qwen3-0.6B\", args=SFTConfig(loss_type=\"{kind}\"))"
        );
        assert_eq!(read(&text).scenario.savings.loss, expected, "{version} {kind}");
    }
}

#[test]
fn trls_other_trainers_are_tasks() {
    for (text, task, reference) in [
        ("trl kto --model_name_or_path Qwen/Qwen2.5-7B --bf16", Task::Kto, Reference::Scored),
        ("model_name_or_path: Qwen/Qwen2.5-7B\ndesirable_weight: 1.0\n", Task::Kto, Reference::Scored),
        (
            "args = KTOConfig(beta=0.1, precompute_ref_log_probs=True, undesirable_weight=1.2)\nKTOTrainer(args=args)",
            Task::Kto,
            Reference::Precomputed,
        ),
        ("ORPOTrainer(args=ORPOConfig(beta=0.1, max_completion_length=256))", Task::Orpo, Reference::Scored),
        ("CPOTrainer(args=CPOConfig(loss_type=\"simpo\", simpo_gamma=0.5))", Task::Cpo, Reference::Scored),
        (
            "CPOTrainer(args=CPOConfig(loss_type=\"simpo\", simpo_gamma=0.5, cpo_alpha=0.0))",
            Task::Simpo,
            Reference::Scored,
        ),
        (
            "RewardTrainer(args=RewardConfig(center_rewards_coefficient=0.01))",
            Task::Reward,
            Reference::Scored,
        ),
        (
            "RLOOConfig(use_vllm=True, vllm_mode=\"server\", normalize_advantages=True)",
            Task::Rloo,
            Reference::Scored,
        ),
        (
            "RLOOConfig(use_vllm=True, vllm_mode=\"server\", num_generations=4, beta=0.0)",
            Task::Rloo,
            Reference::None,
        ),
    ] {
        let understood = read(text);
        assert_eq!(understood.left, [], "{text}");
        let Scenario { task: found, answers, sequence, mask, checkpointing, .. } = understood.scenario;
        assert_eq!((found, answers.reference), (task, reference), "{text}");
        assert_eq!((mask, checkpointing), (Mask::Padded, Checkpointing::NonReentrant), "{text}");
        assert_eq!(sequence, 1024, "{text}");
    }
}

/// transformers' own trainer of a model that is loaded for sequence classification.
#[test]
fn classification_is_a_task() {
    let text = "model = AutoModelForSequenceClassification.from_pretrained(\"FacebookAI/roberta-base\", num_labels=28, id2label=names)\nargs = TrainingArguments(per_device_train_batch_size=32, bf16=True)\ntrainer = Trainer(model=model, args=args, data_collator=DataCollatorWithPadding(tokenizer))";
    let understood = read(text);
    assert_eq!(understood.left, []);
    let Scenario { task, answers, batch, mask, stack, method, .. } = understood.scenario;
    assert_eq!((task, answers.labels, batch, mask), (Task::Classify, 28, 32, Mask::Padded));
    assert_eq!((stack, method), (Stack::Transformers, Method::Full));
    // its weights were published in float32, and its positions begin behind the padding's: 512 of 514
    assert_eq!((understood.scenario.precision, understood.scenario.sequence), (Precision::AmpBf16, 512));
    let adapted =
        read(&format!("{}\nLoraConfig(task_type=\"SEQ_CLS\", r=8)", text.replace("num_labels=28, ", "")));
    assert_eq!((adapted.scenario.answers.labels, adapted.scenario.method), (2, Method::Lora));
    // trl's own trainer says what the model is for
    let reward = read(&format!("{text}\ntrainer = RewardTrainer(model=model, args=RewardConfig())"));
    assert_eq!(reward.scenario.task, Task::Reward);
}

/// sentence-transformers' own trainer, whose loss says whether gradients are cached.
#[test]
fn embeddings_are_a_task() {
    let text = "model = SentenceTransformer(\"microsoft/deberta-v3-base\", device=\"cuda\")\n\
                loss = CachedMultipleNegativesRankingLoss(model, mini_batch_size=16)\n\
                args = SentenceTransformerTrainingArguments(per_device_train_batch_size=512, bf16=True)\n\
                trainer = SentenceTransformerTrainer(model=model, args=args, train_dataset=rows, loss=loss)";
    let understood = read(text);
    assert_eq!(understood.left, []);
    let Scenario { task, embedding, batch, mask, stack, method, precision, sequence, .. } =
        understood.scenario;
    assert_eq!((task, embedding.cached, batch, mask), (Task::Embed, 16, 512, Mask::Padded));
    assert_eq!((stack, method, sequence), (Stack::Transformers, Method::Full, 512));
    assert_eq!(precision, Precision::AmpBf16);
    let plain = read(&text.replace("CachedMultiple", "Multiple").replace(", mini_batch_size=16", ""));
    assert_eq!((plain.scenario.embedding.cached, plain.left), (0, vec![]));
    let other = read(&text.replace("CachedMultipleNegativesRankingLoss", "losses.CoSENTLoss"));
    assert_eq!(other.left.len(), 1, "{:?}", other.left);
    // such names are others' too
    let loop_of_ones_own = read(
        "model = nn.Transformer(d_model=512)\nloss = nn.MarginRankingLoss()\nTrainingArguments(bf16=True)",
    );
    assert_eq!((loop_of_ones_own.scenario.task, loop_of_ones_own.left), (Task::Sft, vec![]));
}

/// What arguments say of an evaluation counts where it is asked for, and is passed over where it is not.
#[test]
fn evaluations_are_read_where_they_are_followed() {
    let text = |strategy: &str, more: &str| {
        format!(
            "args = SFTConfig(eval_strategy=\"{strategy}\", per_device_eval_batch_size=4, eval_accumulation_steps=2, bf16=True{more})\n\
             trainer = SFTTrainer(model=\"Qwen/Qwen3-0.6B\", args=args, eval_dataset=rows)"
        )
    };
    let of = |text: &str| {
        let understood = read(text);
        let Evaluation { keeps, batch, accumulation, .. } = understood.scenario.evaluation;
        ((keeps, batch, accumulation), understood.left.len())
    };
    assert_eq!(of(&text("no", "")), ((Evaluates::Off, 8, 0), 0));
    // without a strategy nothing is evaluated while it trains
    assert_eq!(of(&text("no", ", do_eval=True")), ((Evaluates::Off, 8, 0), 0));
    assert_eq!(of(&text("epoch", "")), ((Evaluates::Loss, 4, 2), 0));
    let metrics = text("steps", "").replace("eval_dataset", "compute_metrics=accuracy, eval_dataset");
    assert_eq!(of(&metrics), ((Evaluates::Metrics, 4, 2), 0));
    assert_eq!(of(&metrics.replace("bf16=True", "prediction_loss_only=True")).0.0, Evaluates::Loss);
    // on several GPUs too
    let several = "torchrun --nproc_per_node 8 train.py --model_name_or_path Qwen/Qwen2.5-0.5B --eval_strategy steps --per_device_train_batch_size 2 --bf16";
    assert_eq!(of(several), ((Evaluates::Loss, 8, 0), 0));
    assert_eq!(read(several).scenario.cluster.gpus, 8);
    // what is not followed is said
    let offloaded = text("steps", ", activation_offloading=True");
    assert_eq!(of(&offloaded), ((Evaluates::Off, 8, 0), 1));
}

#[test]
fn commands_and_files_of_preference_training() {
    let dpo = [
        "trl dpo --model_name_or_path Qwen/Qwen2.5-7B --max_length 1024 --bf16",
        "accelerate launch --num_processes 4 examples/scripts/dpo.py --model_name_or_path Qwen/Qwen2.5-7B",
        "model_name_or_path: Qwen/Qwen2.5-7B\nbf16: true\nbeta: 0.01\nloss_type: sigmoid\nmax_length: 1024\nmax_prompt_length: 512\n",
    ];
    for text in dpo {
        let understood = read(text);
        assert_eq!((understood.scenario.task, &understood.left[..]), (Task::Dpo, &[][..]), "{text}");
        assert_eq!(understood.scenario.answers.reference, Reference::Scored, "{text}");
        assert!(understood.assumed.iter().any(|assumed| assumed.key == "task"), "{text}");
    }
    for (text, said) in [
        ("trl gold --model_name_or_path Qwen/Qwen2.5-7B --bf16", "gold"),
        ("accelerate launch dpo_online.py --model_name_or_path Qwen/Qwen2.5-7B", "dpo_online.py"),
    ] {
        let understood = read(text);
        assert_eq!(understood.left[0].said, said, "{:?}", understood.left);
        assert!(
            understood.left[0].why.contains("GRPO, RLOO, PPO, distillation and GKD are read"),
            "{:?}",
            understood.left
        );
    }
    for text in [
        "trl grpo --model_name_or_path Qwen/Qwen2.5-7B --bf16 --use_vllm",
        "model_name_or_path: Qwen/Qwen2.5-7B\nnum_generations: 8\nuse_vllm: true\n",
    ] {
        let understood = read(text);
        assert_eq!((understood.scenario.task, &understood.left[..]), (Task::Grpo, &[][..]), "{text}");
    }
    let sft = read_over("trl sft --model_name_or_path gpt2 --bf16", |base| base.task = Task::Dpo);
    assert_eq!(sft.scenario.task, Task::Sft);
    assert!(sft.assumed.iter().any(|assumed| assumed.key == "task"));
}

/// axolotl's and LLaMA-Factory's preferences are trl's tasks, with the loss that the version under them, or they themselves, make.
#[test]
fn preferences_of_other_projects_are_tasks() {
    let axolotl = "base_model: Qwen/Qwen2.5-0.5B\nmicro_batch_size: 2\nsequence_len: 2048\ngradient_checkpointing: true\nbf16: auto\n";
    let lora = "adapter: lora\nlora_r: 16\nlora_target_linear: true\n";
    for (rl, task) in [
        ("rl: dpo\n", Task::Dpo),
        ("rl: ipo\nrl_beta: 0.1\n", Task::Dpo),
        ("rl: kto\nkto_desirable_weight: 0.2\n", Task::Kto),
        ("rl: orpo\norpo_alpha: 0.1\n", Task::Orpo),
        ("rl: simpo\nsimpo_gamma: 0.5\n", Task::Cpo),
        ("rl: simpo\ncpo_alpha: 0\n", Task::Simpo),
    ] {
        let understood = read(&format!("{axolotl}{lora}{rl}"));
        assert_eq!(understood.left, [], "{rl}");
        let scenario = understood.scenario;
        assert_eq!((scenario.task, scenario.stack), (task, Stack::Trl), "{rl}");
        assert_eq!(scenario.savings.loss, LossKernel::Axolotl, "{rl}");
        // with rl, and so alone
        assert_eq!(scenario.checkpointing, Checkpointing::NonReentrant, "{rl}");
        assert!(!scenario.lora.fused, "{rl}");
    }
    let tuned = read(&format!("{axolotl}{lora}"));
    assert_eq!((tuned.scenario.task, tuned.scenario.checkpointing), (Task::Sft, Checkpointing::Reentrant));

    let factory = "model_name_or_path: Qwen/Qwen2.5-0.5B\nstage: dpo\nfinetuning_type: lora\nlora_target: all\ncutoff_len: 2048\nbf16: true\npref_beta: 0.1\n";
    for (loss, task) in [
        ("", Task::Dpo),
        ("pref_loss: ipo\n", Task::Dpo),
        ("pref_loss: orpo\n", Task::Orpo),
        ("pref_loss: simpo\n", Task::Simpo),
    ] {
        let understood = read(&format!("{factory}{loss}"));
        assert_eq!(understood.left, [], "{loss}");
        let scenario = understood.scenario;
        assert_eq!((scenario.task, scenario.stack), (task, Stack::Trl), "{loss}");
        assert_eq!(scenario.savings.loss, LossKernel::LogSoftmax, "{loss}");
    }
}

/// What of them is not predicted is said.
#[test]
fn what_of_others_preferences_is_not_followed_is_said() {
    for (text, said) in [
        ("base_model: Qwen/Qwen2.5-0.5B\nmicro_batch_size: 1\nrl: grpo\n", "rl: grpo"),
        (
            "base_model: Qwen/Qwen2.5-0.5B\nmicro_batch_size: 1\nrl: dpo\ndpo_use_liger_kernel: true\n",
            "dpo_use_liger_kernel: true",
        ),
        (
            "base_model: Qwen/Qwen2.5-0.5B\nmicro_batch_size: 1\nrl: orpo\nsample_packing: true\n",
            "sample_packing: true",
        ),
        (
            "model_name_or_path: Qwen/Qwen2.5-0.5B\nstage: dpo\nfinetuning_type: lora\ncutoff_len: 512\neval_strategy: steps\n",
            "eval_strategy: steps",
        ),
        (
            "model_name_or_path: Qwen/Qwen2.5-0.5B\nstage: dpo\nfinetuning_type: lora\ncutoff_len: 512\npacking: true\n",
            "packing: true",
        ),
        // a second model is loaded that nobody asks
        ("base_model: Qwen/Qwen2.5-0.5B\nmicro_batch_size: 1\nrl: kto\n", "rl with all weights trained"),
        (
            "base_model: Qwen/Qwen2.5-0.5B\nmicro_batch_size: 1\nrl: dpo\nprecompute_ref_log_probs: true\n",
            "precompute_ref_log_probs: true",
        ),
        (
            "model_name_or_path: Qwen/Qwen2.5-0.5B\nstage: rm\nfinetuning_type: full\ncutoff_len: 512\n",
            "stage: rm",
        ),
        (
            "model_name_or_path: Qwen/Qwen2.5-0.5B\nstage: dpo\nref_model: Qwen/Qwen2.5-1.5B\nfinetuning_type: lora\ncutoff_len: 512\n",
            "ref_model: Qwen/Qwen2.5-1.5B",
        ),
    ] {
        let left = read(text).left;
        assert!(left.iter().any(|left| left.said == said), "{text}: {left:?}");
    }
}

/// A student beside a teacher, by name and as the script loads it.
#[test]
fn distillation_is_a_task() {
    let text = "args = DistillationConfig(per_device_train_batch_size=2, bf16=True, teacher_model_name_or_path=\"Qwen/Qwen2.5-3B\", beta=0.5,\n\
        max_completion_length=256, use_vllm=True, vllm_mode=\"server\")\n\
        trainer = DistillationTrainer(model=\"Qwen/Qwen2.5-0.5B\", teacher_model=\"Qwen/Qwen2.5-3B\", args=args)";
    let understood = read(text);
    assert_eq!(understood.left, []);
    let scenario = &understood.scenario;
    let teacher = scenario.teacher.model.as_ref().map(ModelChoice::name);
    assert_eq!((scenario.task, scenario.batch, scenario.method), (Task::Distil, 2, Method::Full));
    assert_eq!(scenario.model.name(), "Qwen/Qwen2.5-0.5B");
    assert_eq!(teacher.as_deref(), Some("Qwen/Qwen2.5-3B"));
    assert_eq!(scenario.teacher.weights, TeacherWeights::Fp32);
    assert_eq!(scenario.sequence, scenario.answers.prompt + 256);
    let told =
        |scenario: &Scenario| scenario.validate().iter().any(|issue| issue.message.contains("on other GPUs"));
    assert!(told(scenario) && !told(&Scenario::default()));

    // what is not followed is said
    let is_left = |text: &str, word: &str| {
        let understood = read(text);
        assert!(understood.left.iter().any(|left| left.said.contains(word)), "{word}: {:?}", understood.left);
    };
    for said in ["beta=1.0", "use_vllm=False", "use_vllm=False, top_k=0, temperature=1.0"] {
        let itself = read(&text.replace("use_vllm=True, vllm_mode=\"server\"", said));
        assert_eq!((itself.left, itself.scenario.answers.rollouts), (vec![], Rollouts::Transformers));
    }
    is_left(&text.replace("use_vllm=True", "top_p=0.9"), "top_p");
    let beside = read(&text.replace("vllm_mode=\"server\"", "vllm_mode=\"colocate\""));
    assert_eq!((beside.left, beside.scenario.reserve.vllm), (vec![], 30));
    is_left(&text.replace("beta=0.5", "loss_top_k=16"), "loss_top_k");

    // the teacher is loaded first, in 4 bits, the student is not
    let text = "teacher_id = \"Qwen/Qwen2.5-3B\"\n\
        teacher = AutoModelForCausalLM.from_pretrained(teacher_id, quantization_config=BitsAndBytesConfig(load_in_4bit=True))\n\
        student = AutoModelForCausalLM.from_pretrained(\"Qwen/Qwen2.5-0.5B\", dtype=torch.bfloat16)\n\
        trainer = DistillationTrainer(model=student, teacher_model=teacher, args=DistillationConfig(bf16=True, use_vllm=True, vllm_mode='server'))";
    let understood = read(text);
    assert_eq!(understood.left, []);
    let scenario = &understood.scenario;
    assert_eq!((scenario.model.name().as_ref(), scenario.method), ("Qwen/Qwen2.5-0.5B", Method::Full));
    assert_eq!(scenario.precision, Precision::AmpBf16Weights);
    let teacher = scenario.teacher.model.as_ref().map(ModelChoice::name);
    assert_eq!(
        (teacher.as_deref(), scenario.teacher.weights),
        (Some("Qwen/Qwen2.5-3B"), TeacherWeights::Nf4)
    );
    let plain =
        text.replace("quantization_config=BitsAndBytesConfig(load_in_4bit=True)", "dtype=torch.float32");
    assert_eq!(read(&plain).scenario.teacher.weights, TeacherWeights::Fp32);
}

#[test]
fn commands_and_files_of_distillation() {
    let yaml = "model_name_or_path: Qwen/Qwen2.5-0.5B\nteacher_model_name_or_path: Qwen/Qwen2.5-1.5B\nper_device_train_batch_size: 2\ndtype: bfloat16\nmax_completion_length: 64\nuse_vllm: true\nvllm_mode: server\n";
    let command = "trl distillation --model_name_or_path Qwen/Qwen2.5-0.5B --teacher_model_name_or_path Qwen/Qwen2.5-1.5B --dtype bfloat16 --max_completion_length 64 --use_vllm --vllm_mode server";
    for text in [yaml, command] {
        let understood = read(text);
        assert_eq!(understood.left, [], "{text}");
        let scenario = &understood.scenario;
        let teacher = scenario.teacher.model.as_ref().map(ModelChoice::name);
        assert_eq!((scenario.task, teacher.as_deref()), (Task::Distil, Some("Qwen/Qwen2.5-1.5B")), "{text}");
        assert_eq!((scenario.teacher.weights, scenario.sequence), (TeacherWeights::Bf16, 576), "{text}");
    }
    // its own loss makes all logits, by a divergence between both, and it generates itself
    let gkd = read(
        "trainer = GKDTrainer(model=\"Qwen/Qwen2.5-0.5B\", teacher_model=\"Qwen/Qwen2.5-1.5B\", args=GKDConfig(max_length=2048, lmbda=0.5, bf16=True))",
    );
    assert_eq!((gkd.scenario.task, gkd.scenario.sequence), (Task::Distil, 2048));
    assert_eq!(gkd.scenario.teacher.weights, TeacherWeights::Bf16);
    let said: Vec<_> = gkd.left.iter().map(|left| left.said.as_str()).collect();
    assert_eq!(said, ["GKDConfig(lmbda=0.5)"]);
    assert_eq!(gkd.scenario.teacher.divergence, Divergence::Gkd);
    for (beta, divergence) in [
        ("0", Divergence::GkdForward),
        ("0.0", Divergence::GkdForward),
        ("0.9", Divergence::Gkd),
        ("1.0", Divergence::GkdReverse),
    ] {
        let text = format!(
            "trainer = GKDTrainer(model=\"Qwen/Qwen2.5-0.5B\", teacher_model=\"Qwen/Qwen2.5-1.5B\", args=GKDConfig(beta={beta}, lmbda=0.0))"
        );
        let understood = read(&text);
        assert_eq!(
            (understood.left.as_slice(), understood.scenario.teacher.divergence),
            (&[][..], divergence),
            "{beta}"
        );
    }
    // DistillationTrainer's tiles are as large whatever its beta is
    let tiled = read(
        "trainer = DistillationTrainer(model=\"Qwen/Qwen2.5-0.5B\", teacher_model=\"Qwen/Qwen2.5-1.5B\", args=DistillationConfig(beta=0.0))",
    );
    assert_eq!(tiled.scenario.teacher.divergence, Divergence::Tiles);
    assert_eq!(gkd.scenario.answers.rollouts, Rollouts::Transformers);
    // what the teacher writes is none of the student's answers
    for (given, rollouts, wanted) in [
        ("lmbda=0.0, seq_kd=True", Rollouts::Server, &["lmbda=0.0", "seq_kd=true"][..]),
        ("seq_kd=True", Rollouts::Transformers, &["seq_kd=true"]),
        ("lmbda=0.5, seq_kd=True", Rollouts::Transformers, &["seq_kd=true"]),
        ("lmbda=1.0, seq_kd=True", Rollouts::Transformers, &[]),
        ("lmbda=0.0, seq_kd=False", Rollouts::Server, &[]),
    ] {
        let understood = read(&format!(
            "trainer = GKDTrainer(model=\"Qwen/Qwen2.5-0.5B\", teacher_model=\"Qwen/Qwen2.5-1.5B\", args=GKDConfig({given}, bf16=True))"
        ));
        let of_teacher = understood.left.iter().filter(|left| left.why.contains("teacher's generation"));
        let said: Vec<_> = of_teacher.map(|left| left.said.as_str()).collect();
        let wanted: Vec<_> = wanted.iter().map(|given| format!("GKDConfig({given})")).collect();
        assert_eq!(
            (said, understood.scenario.answers.rollouts),
            (wanted.iter().map(String::as_str).collect(), rollouts),
            "{given}"
        );
        assert_eq!(
            understood.idle.iter().any(|said| said.contains("seq_kd=true")),
            given == "lmbda=1.0, seq_kd=True",
            "{given}"
        );
    }
    let command = read(
        "python gkd.py --model_name_or_path Qwen/Qwen2.5-0.5B --teacher_model_name_or_path Qwen/Qwen2.5-1.5B --bf16",
    );
    assert_eq!(command.scenario.task, Task::Distil);
}

/// What is not followed of Liger's layers under trl is no reason to have no answer.
#[test]
fn ligers_layers_that_were_not_compared_are_left() {
    for (text, is_left) in [
        (
            "from trl import SFTConfig, SFTTrainer\nargs = SFTConfig('o', use_liger_kernel=True, bf16=True)\nSFTTrainer('Qwen/Qwen2.5-0.5B', args=args)",
            false,
        ),
        (
            "from trl import SFTConfig, SFTTrainer\nargs = SFTConfig('o', use_liger_kernel=True, bf16=True, eval_strategy='steps')\nSFTTrainer('Qwen/Qwen2.5-0.5B', args=args)",
            true,
        ),
        (
            "from trl import RewardConfig, RewardTrainer\nargs = RewardConfig('o', use_liger_kernel=True, bf16=True)\nRewardTrainer('Qwen/Qwen2.5-0.5B', args=args)",
            true,
        ),
    ] {
        let understood = read(text);
        assert_eq!(understood.scenario.savings.liger_layers, !is_left, "{text}");
        assert_eq!(
            understood.left.iter().any(|left| left.said.contains("use_liger_kernel")),
            is_left,
            "{text}: {:?}",
            understood.left
        );
        assert!(headroom::estimate(&understood.scenario).memory.is_some(), "{text}");
    }
}

/// Of sentence-transformers' own documentation: a number for each pair of texts.
#[test]
fn rerankers_are_read() {
    let text = "from sentence_transformers import SentenceTransformer\n\
                from sentence_transformers.cross_encoder import CrossEncoder, CrossEncoderTrainer, CrossEncoderTrainingArguments, losses\n\
                model = CrossEncoder(\"answerdotai/ModernBERT-base\", num_labels=1, max_length=512)\n\
                embedding_model = SentenceTransformer(\"BAAI/bge-m3\")\n\
                loss = losses.BinaryCrossEntropyLoss(model=model, pos_weight=torch.tensor(5))\n\
                args = CrossEncoderTrainingArguments(output_dir=\"m\", per_device_train_batch_size=64, bf16=True, learning_rate=2e-5)\n\
                trainer = CrossEncoderTrainer(model=model, args=args, train_dataset=rows, loss=loss)\n\
                trainer.train()\n";
    let understood = read(text);
    let scenario = &understood.scenario;
    assert_eq!((scenario.task, scenario.answers.labels), (Task::Classify, 1));
    assert_eq!(
        (scenario.model_name().as_str(), scenario.method),
        ("answerdotai/ModernBERT-base", Method::Full)
    );
    assert_eq!((scenario.batch, scenario.sequence, scenario.precision), (64, 512, Precision::AmpBf16));
    assert_eq!(left(&understood), ["SentenceTransformer"]);
    assert!(headroom::estimate(scenario).memory.is_some(), "{:?}", headroom::estimate(scenario).issues);
    // a loss over all documents of a query, and adapters
    let other =
        text.replace("losses.BinaryCrossEntropyLoss", "losses.LambdaLoss").replace("num_labels=1, ", "");
    let other = read(&format!("{other}model.add_adapter(LoraConfig(r=8))\n"));
    assert_eq!(other.scenario.answers.labels, 1);
    assert!(
        left(&other).contains(&"losses.LambdaLoss") && left(&other).contains(&"model.add_adapter"),
        "{:?}",
        left(&other)
    );
    // one that only scores trains nothing
    let scores = "model = CrossEncoder(\"cross-encoder/ms-marco-MiniLM-L6-v2\")\nscores = model.predict([(\"a\", \"b\")])\n";
    let found = headroom::import::read(scores, &headroom::scenario::Scenario::default());
    assert!(found.as_ref().map_or(true, |found| found.scenario.task != Task::Classify), "{found:?}");
}
