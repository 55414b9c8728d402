//! Configurations of other projects: what is understood of them, and that nothing of them is lost.

#![cfg(not(target_arch = "wasm32"))]

use headroom::import::{self, Format, Understood};
use headroom::scenario::keys::Key;
use headroom::scenario::{
    Allocator, AttentionKernel, Checkpointing, CpuOffload, Evaluates, Evaluation, Float8, Float8Training,
    GroupSize, LoraTargets, LossKernel, Mask, Method, Optimizer, Precision, ReduceDtype, Reference, Rollouts,
    Scenario, ShardedLayers, Sharding, Stack, StepTime, Task, Tuner, WeightFormat, WrappedBy,
};
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
    // what is not followed is said
    let offloaded = text("steps", ", activation_offloading=True");
    assert_eq!(of(&offloaded), ((Evaluates::Off, 8, 0), 1));
}

#[test]
fn decomposed_adapters_are_read_where_peft_runs_them() {
    let peft = "LoraConfig(r=16, use_dora=True)";
    assert_eq!(read(peft).scenario.lora.tuner, Tuner::Dora);
    assert_eq!(read(&peft.replace("use_dora=True", "use_rslora=True")).scenario.lora.tuner, Tuner::Lora);
    let unsloth = read("model = FastLanguageModel.get_peft_model(model, r=16, use_dora=True)");
    assert_eq!((unsloth.scenario.lora.tuner, unsloth.left.len()), (Tuner::Lora, 1), "{:?}", unsloth.left);
    let axolotl = read("base_model: Qwen/Qwen3-8B\nadapter: lora\nlora_r: 8\npeft_use_dora: true\n");
    assert_eq!(axolotl.scenario.lora.tuner, Tuner::Dora);
}

/// Prompt tuning, P-tuning and prefix tuning by the class of their settings, in Python and as `adapter_config.json`.
#[test]
fn virtual_tokens_are_read() {
    for (given, tuner, left_over) in [
        ("PromptTuningConfig(task_type='CAUSAL_LM', num_virtual_tokens=20)", Tuner::Prompt, vec![]),
        (
            "PromptEncoderConfig(num_virtual_tokens=20, encoder_reparameterization_type='MLP')",
            Tuner::PTuning,
            vec![],
        ),
        (
            "PromptEncoderConfig(num_virtual_tokens=20, encoder_reparameterization_type='LSTM')",
            Tuner::PTuning,
            vec!["PromptEncoderConfig(encoder_reparameterization_type=LSTM)"],
        ),
        ("PrefixTuningConfig(num_virtual_tokens=20)", Tuner::Prefix, vec![]),
        ("PrefixTuningConfig(num_virtual_tokens=20, prefix_projection=True)", Tuner::PrefixProjected, vec![]),
        (
            "PrefixTuningConfig(num_virtual_tokens=20, encoder_hidden_size=77)",
            Tuner::Prefix,
            vec!["PrefixTuningConfig(encoder_hidden_size=77)"],
        ),
    ] {
        let script = format!(
            "model = AutoModelForCausalLM.from_pretrained('meta-llama/Llama-3.1-8B')\nmodel = get_peft_model(model, {given})"
        );
        let read = read(&script);
        assert_eq!((read.scenario.lora.tuner, read.scenario.lora.rank), (tuner, 20), "{given}");
        assert_eq!(left(&read), left_over, "{given}");
        let size = read.taken.iter().find(|taken| taken.key == "lora-rank");
        assert_eq!(size.map(|size| size.label), Some("Virtual tokens"), "{given}");
    }
    let saved = read(
        "{\"peft_type\": \"PREFIX_TUNING\", \"base_model_name_or_path\": \"meta-llama/Llama-3.1-8B\", \"num_virtual_tokens\": 30, \"token_dim\": 1024, \"num_attention_heads\": 8, \"num_layers\": 32, \"encoder_hidden_size\": 1024, \"prefix_projection\": false, \"num_transformer_submodules\": 1, \"init_weights\": null, \"task_type\": \"CAUSAL_LM\"}",
    );
    assert_eq!(
        (saved.scenario.lora.tuner, saved.scenario.lora.rank, saved.left),
        (Tuner::Prefix, 30, vec![])
    );
}

/// peft's other tuners by the class of their settings, in Python and as `adapter_config.json`.
#[test]
fn other_tuners_are_read() {
    let vera = read(
        "model = get_peft_model(model, VeraConfig(target_modules=\"all-linear\", vera_dropout=0.1, projection_prng_key=7))",
    );
    let lora = vera.scenario.lora;
    assert_eq!(
        (lora.tuner, lora.rank, lora.dropout, lora.targets),
        (Tuner::Vera, 256, true, LoraTargets::AllLinear)
    );
    assert_eq!(vera.left, []);
    let saved = read(
        "{\"peft_type\": \"IA3\", \"base_model_name_or_path\": \"meta-llama/Llama-3.1-8B\", \"target_modules\": [\"k_proj\", \"v_proj\", \"down_proj\"], \"feedforward_modules\": [\"down_proj\"], \"init_ia3_weights\": true}",
    );
    assert_eq!((saved.scenario.lora.tuner, saved.left), (Tuner::Ia3, vec![]));
    let own = read(
        "model = AutoModelForCausalLM.from_pretrained('meta-llama/Llama-3.1-8B')\nmodel = get_peft_model(model, IA3Config(feedforward_modules=['up_proj']))",
    );
    assert_eq!(own.scenario.lora.targets, LoraTargets::Qv);
    assert_eq!(left(&own), ["IA3Config(feedforward_modules=up_proj)"]);
    let loha = read(
        "get_peft_model(model, LoHaConfig(r=4, alpha=8, module_dropout=0.5, target_modules=['q_proj', 'v_proj']))",
    );
    assert_eq!(
        (loha.scenario.lora.tuner, loha.scenario.lora.rank, left(&loha)),
        (Tuner::Loha, 4, vec!["LoHaConfig(module_dropout=0.5)"])
    );
    let oft = read("get_peft_model(model, OFTConfig(oft_block_size=64, target_modules='all-linear'))");
    assert_eq!((oft.scenario.lora.tuner, oft.scenario.lora.rank, left(&oft)), (Tuner::Oft, 64, vec![]));
    let size = oft.taken.iter().find(|taken| taken.key == "lora-rank");
    assert_eq!(size.map(|size| size.label), Some("OFT block size"));
    let unknown = read("{\"peft_type\": \"BOFT\", \"base_model_name_or_path\": \"meta-llama/Llama-3.1-8B\"}");
    assert_eq!(unknown.left.len(), 1, "{:?}", unknown.left);
}

#[test]
fn optimizers_that_project_are_read_with_their_layers() {
    let own = |scenario: &Scenario| {
        let answer = headroom::estimate(scenario);
        assert!(answer.memory.is_some(), "{:?}", answer.issues);
        (scenario.optimizer, scenario.lora.rank, scenario.lora.targets, scenario.savings.step)
    };
    // the example of transformers' documentation
    let arguments = read(
        "trainer = SFTTrainer(model=\"meta-llama/Llama-3.2-1B\", train_dataset=rows, args=SFTConfig(optim=\"galore_adamw\", \
         optim_target_modules=[r\".*.attn.*\", r\".*.mlp.*\"], optim_args=\"rank=64, update_proj_gap=100, scale=0.10\"))",
    );
    let wanted = (Optimizer::GaLoreAdamW, 64, LoraTargets::AllLinear, StepTime::AfterBackward);
    assert_eq!(own(&arguments.scenario), wanted);
    assert!(arguments.left.is_empty(), "{:?}", arguments.left);
    let all = "training_args = TrainingArguments(optim=\"apollo_adamw_layerwise\", optim_target_modules=\"all-linear\")\n\
               model = AutoModelForCausalLM.from_pretrained(\"meta-llama/Llama-3.1-8B\")";
    let wanted = (Optimizer::ApolloAdamW, 128, LoraTargets::AllLinearAndHead, StepTime::InBackward);
    assert_eq!(own(&read(all).scenario), wanted);
    let axolotl = read(include_str!("fixtures/configurations/axolotl-galore.yml"));
    let wanted = (Optimizer::GaLoreAdamW8bit, 256, LoraTargets::Attention, StepTime::AfterBackward);
    assert_eq!(own(&axolotl.scenario), wanted);
    assert!(axolotl.left.is_empty(), "{:?}", axolotl.left);
    let lomo = read("SFTTrainer(model=\"Qwen/Qwen2.5-0.5B\", args=SFTConfig(optim=\"adalomo\"))");
    assert_eq!(own(&lomo.scenario).0, Optimizer::AdaLomo);
    let layerwise =
        read(&projecting("optim_target_modules=\"all-linear\"").replace("adamw", "adamw_layerwise"));
    let wanted = (Optimizer::ApolloAdamW, 128, LoraTargets::AllLinear, StepTime::InBackward);
    assert_eq!(own(&layerwise.scenario), wanted);
}

/// A file of trl's that projects gradients, with these arguments.
fn projecting(arguments: &str) -> String {
    format!("SFTTrainer(model=\"Qwen/Qwen2.5-0.5B\", args=SFTConfig(optim=\"apollo_adamw\", {arguments}))")
}

#[test]
fn layers_that_are_projected_are_those_that_transformers_finds() {
    for (named, wanted) in [
        ("\".*attn.*\"", "attention"),
        ("[\"attn\"]", "attention"),
        ("[\"self_attn\", r\".*\\.mlp.*\"]", "all-linear"),
        ("[\"q_proj\"]", "q_proj"),
    ] {
        let read = read(&projecting(&format!("optim_target_modules={named}")));
        let targets = Key::find("lora-targets").unwrap().write(&read.scenario);
        assert_eq!((targets.as_str(), left(&read)), (wanted, vec![]), "{named}");
    }
    for other in [
        "\"attn\"",
        "\".*mlp\"",
        "[\".*attn\"]",
        "[\"mlp.*\"]",
        "[\"(q|k)_proj\"]",
        "[\"layers\"]",
        "[\"model\"]",
        "[\"layers.0.mlp\"]",
        "[\"0.mlp\"]",
        "[\"no_such\"]",
    ] {
        let read = read(&projecting(&format!("optim_target_modules={other}")));
        assert_eq!(read.left.len(), 1, "{other}: {:?}", read.left);
    }
    let starcoder = projecting("optim_target_modules=[\"attn\"]")
        .replace("Qwen/Qwen2.5-0.5B", "bigcode/starcoderbase-1b");
    assert_eq!(read(&starcoder).scenario.lora.modules.to_string(), "c_attn,attn.c_proj");
}

#[test]
fn settings_of_projections_that_are_not_followed_are_told() {
    for other in ["proj=svd", "proj_type=left", "scale_type=tensor"] {
        let read = read(&projecting(&format!("optim_args=\"{other}\", optim_target_modules=\"all-linear\"")));
        assert_eq!(left(&read), [other]);
    }
    // no rank is that of LoRA before it
    let negative = read(&projecting("optim_args=\"rank=-5\", optim_target_modules=\"all-linear\""));
    assert_eq!((negative.scenario.lora.rank, negative.left.len()), (128, 1), "{:?}", negative.left);
}

#[test]
fn names_that_transformers_does_not_run_are_told() {
    for name in ["galore_adafactor_layerwise", "adamw_torch_layerwise", "lomo_layerwise"] {
        let axolotl =
            format!("base_model: meta-llama/Llama-3.2-1B\noptimizer: {name}\nmicro_batch_size: 1\n");
        let read = read(&axolotl);
        assert_eq!(left(&read), [format!("optimizer: {name}")], "{name}");
        assert_eq!(read.scenario.savings.step, StepTime::AfterBackward, "{name}");
    }
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

#[test]
fn of_deepspeeds_offload_what_is_predicted_is_read() {
    let mut four = Scenario::default();
    four.change(|scenario| scenario.cluster.set_gpus(4));
    let read = |offload: &str| {
        import::read(
            &format!(
                "{{\"bf16\": {{\"enabled\": true}}, \"zero_optimization\": {{\"stage\": 3, {offload}}}}}"
            ),
            &four,
        )
        .unwrap()
    };
    let cpu = |place: &str| format!("\"{place}\": {{\"device\": \"cpu\", \"pin_memory\": true}}");
    let (optimizer, weights) = (cpu("offload_optimizer"), cpu("offload_param"));
    for (offload, expected) in
        [(optimizer.clone(), CpuOffload::Optimizer), (format!("{optimizer}, {weights}"), CpuOffload::All)]
    {
        let read = read(&offload);
        assert_eq!((read.scenario.cluster.cpu, left(&read)), (expected, vec![]), "{offload}");
    }
    // masters and states are on the GPU then
    let alone = read(&weights);
    assert_eq!((alone.scenario.cluster.cpu, alone.left.len()), (CpuOffload::Off, 1), "{:?}", alone.left);
    for further in ["\"ratio\": 0.3", "\"super_offload\": true", "\"pin_memory\": false"] {
        let read = read(&format!("\"offload_optimizer\": {{\"device\": \"cpu\", {further}}}"));
        assert_eq!(read.left.len(), 1, "{further}: {:?}", read.left);
    }
}

#[test]
fn what_deepspeed_computes_in_is_that_of_its_engine() {
    for (weights, engine, precision) in [
        ("float16", "fp16", Precision::Fp16),
        ("bfloat16", "fp16", Precision::Fp16),
        ("float32", "fp16", Precision::AmpFp16),
        ("float16", "bf16", Precision::AmpBf16Weights),
    ] {
        let script = format!(
            "model = AutoModelForCausalLM.from_pretrained(\"meta-llama/Llama-3.2-1B\", dtype=torch.{weights})\n\
             deepspeed.initialize(model=model, config={{\"{engine}\": {{\"enabled\": True}}, \"zero_optimization\": {{\"stage\": 2}}}})\n"
        );
        let understood = read(&script);
        assert_eq!(understood.scenario.precision, precision, "{script}: {understood:?}");
        assert!(
            !left(&understood).iter().any(|said| said.contains("fp16") || said.is_empty()),
            "{understood:?}"
        );
    }
    // PyTorch's own scaler does not divide float16 gradients
    let alone = read(
        "SFTTrainer(model=AutoModelForCausalLM.from_pretrained(\"gpt2\", dtype=torch.float16), args=SFTConfig(fp16=True))",
    );
    assert!(left(&alone).iter().all(|said| !said.is_empty()), "{alone:?}");
}

#[test]
fn layers_are_shared_as_the_config_in_the_call_says() {
    let understood = read(
        "AutoModelForCausalLM.from_pretrained(\"meta-llama/Llama-3.1-8B\", distributed_config=DistributedConfig(tp_size=4))",
    );
    assert_eq!(understood.scenario.cluster.layout.tensor, 4);
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
    assert_eq!(beside.scenario.answers.rollouts, Rollouts::Server);
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
        "if big:\n    attn = \"eager\"\nelse:\n    attn = \"sdpa\"\nAutoModelForCausalLM.from_pretrained(\"gpt2\", attn_implementation=attn)",
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
    let unsloth = include_str!("fixtures/configurations/unsloth-cell.py").to_owned()
        + "\ntrainer.train()\nif False:\n    model, tokenizer = FastLanguageModel.from_pretrained(\n        model_name = \"lora_model\",\n        load_in_4bit = False,\n        dtype = torch.float16,\n    )\n";
    let understood = read(&unsloth);
    assert_eq!(understood.scenario, read(include_str!("fixtures/configurations/unsloth-cell.py")).scenario);
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
fn weights_in_8_bits_are_read() {
    let load = "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-7B', quantization_config=BitsAndBytesConfig(load_in_8bit=True))\n";
    let adapted = format!("{load}model = get_peft_model(model, LoraConfig(r=8))\n");
    let over =
        |text: &str| read_over(text, |base| base.quantization.format = WeightFormat::Nf4Early).scenario;
    for text in [load, &adapted] {
        let read = over(text);
        assert_eq!((read.method, read.quantization.format), (Method::Qlora, WeightFormat::Int8), "{text}");
        assert!(!read.quantization.prepare, "{text}");
    }
    let four =
        read_over(&adapted.replace("8bit", "4bit"), |base| base.quantization.format = WeightFormat::Int8);
    assert_eq!(four.scenario.quantization.format, WeightFormat::Nf4);
    let axolotl = "base_model: Qwen/Qwen2.5-7B\nmicro_batch_size: 2\nsequence_len: 2048\nadapter: lora\nload_in_8bit: true\n";
    let factory = "model_name_or_path: Qwen/Qwen2.5-7B\nstage: sft\nfinetuning_type: lora\nquantization_bit: 8\ncutoff_len: 2048\n";
    for text in [axolotl, factory] {
        let read = over(text);
        assert_eq!((read.method, read.quantization.format), (Method::Qlora, WeightFormat::Int8), "{text}");
        let text = text.replace("8bit", "4bit").replace("bit: 8", "bit: 4");
        let four = read_over(&text, |base| base.quantization.format = WeightFormat::Int8).scenario;
        assert_eq!((four.method, four.quantization.format), (Method::Qlora, WeightFormat::Nf4), "{text}");
    }
}

#[test]
fn weights_of_gptqs_checkpoints_are_read() {
    let script = |quantiser: &str| {
        read(&format!(
            "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-7B', quantization_config={quantiser})\n\
             model = get_peft_model(model, LoraConfig(r=8, target_modules=['q_proj', 'v_proj']))\n"
        ))
    };
    for (quantiser, format, group) in [
        ("GPTQConfig(bits=4, backend='auto_trainable')", WeightFormat::Gptq4, GroupSize::Of128),
        ("GPTQConfig(4, group_size=-1, backend='auto_trainable')", WeightFormat::Gptq4, GroupSize::Column),
        ("GPTQConfig(bits=8, group_size=32, backend='auto_trainable')", WeightFormat::Gptq8, GroupSize::Of32),
        ("GPTQConfig(bits=4, backend='gptq_triton')", WeightFormat::Gptq4, GroupSize::Of128),
        ("GPTQConfig(bits=4, backend=BACKEND.AUTO_TRAINABLE)", WeightFormat::Gptq4, GroupSize::Of128),
    ] {
        let read = script(quantiser);
        let found =
            (read.scenario.method, read.scenario.quantization.format, read.scenario.quantization.group);
        assert_eq!(found, (Method::Qlora, format, group), "{quantiser}");
        assert!(read.left.iter().all(|left| !left.why.contains("Marlin")), "{quantiser}");
    }
    assert!(script("GPTQConfig(bits=4)").left.iter().any(|left| left.why.contains("Marlin")));
}

#[test]
fn weights_of_awqs_checkpoints_are_read() {
    let script = |quantiser: &str, further: &str| {
        read(&format!(
            "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-7B', quantization_config={quantiser})\n\
             {further}model = get_peft_model(model, LoraConfig(r=8, target_modules=['q_proj', 'v_proj']))\n"
        ))
    };
    for (quantiser, format, group) in [
        ("AwqConfig(backend='auto_trainable')", WeightFormat::Awq4, GroupSize::Of128),
        ("AwqConfig(bits=4, group_size=-1, backend='gemm_triton')", WeightFormat::Awq4, GroupSize::Column),
        (
            "AwqConfig(4, group_size=64, version='GEMM', backend='gemm')",
            WeightFormat::Awq4Cuda,
            GroupSize::Of64,
        ),
        ("AwqConfig(backend=AwqBackend.AUTO_TRAINABLE)", WeightFormat::Awq4, GroupSize::Of128),
    ] {
        let read = script(quantiser, "");
        let found =
            (read.scenario.method, read.scenario.quantization.format, read.scenario.quantization.group);
        assert_eq!(found, (Method::Qlora, format, group), "{quantiser}");
        assert!(read.left.iter().all(|left| !left.why.contains("Marlin")), "{quantiser}");
    }
    let trainable = "AwqConfig(backend='auto_trainable')";
    assert!(script("AwqConfig(bits=4)", "").left.iter().any(|left| left.why.contains("Marlin")));
    // peft's preparation does not turn checkpointing on there, whatever it is told
    let prepared = "model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=True)\n";
    let enabled =
        "model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={'use_reentrant': False})\n";
    for (further, checkpointing) in [
        (prepared.to_owned(), Checkpointing::Off),
        (format!("{enabled}{prepared}"), Checkpointing::NonReentrant),
    ] {
        let read = script(trainable, &further).scenario;
        assert_eq!((read.quantization.prepare, read.checkpointing), (true, checkpointing), "{further}");
    }
}

#[test]
fn weights_of_torchao_are_read_and_those_of_other_quantisers_left() {
    let script = |quantiser: &str| {
        read(&format!(
            "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-7B', quantization_config={quantiser})\n\
             model = get_peft_model(model, LoraConfig(r=8))\n"
        ))
    };
    for quantiser in [
        "TorchAoConfig(Int8WeightOnlyConfig())",
        "TorchAoConfig(quant_type=torchao.quantization.Int8WeightOnlyConfig(version=2))",
        "TorchAoConfig('int8_weight_only')",
    ] {
        let read = script(quantiser).scenario;
        let found = (read.method, read.quantization.format);
        assert_eq!(found, (Method::Qlora, WeightFormat::TorchaoInt8), "{quantiser}");
    }
    for (quantiser, word) in [
        ("TorchAoConfig(Int8WeightOnlyConfig(granularity=PerGroup(64)))", "are predicted"),
        ("TorchAoConfig(Int4WeightOnlyConfig(group_size=128))", "the run stops"),
        ("HqqConfig(nbits=4, group_size=64)", "the run stops"),
        ("GPTQConfig(bits=3, backend='auto_trainable')", "4 and 8 bits"),
        ("AwqConfig(bits=4, version='gemv')", "gemm"),
        ("AwqConfig(bits=4, group_size=16)", "gemm"),
        ("AwqConfig(bits=4, zero_point=False)", "gemm"),
    ] {
        let read = script(quantiser);
        assert_eq!(read.scenario.method, Method::Lora, "{quantiser}");
        assert!(read.left.iter().any(|left| left.why.contains(word)), "{quantiser}: {:?}", left(&read));
    }
}

#[test]
fn unsloth_loads_in_4_bits_where_nothing_is_said() {
    let script = |argument: &str| {
        let text = format!(
            "model, tokenizer = FastLanguageModel.from_pretrained('unsloth/Meta-Llama-3.1-8B'{argument})\nmodel = FastLanguageModel.get_peft_model(model, r=16)\n"
        );
        [Method::Qlora, Method::Lora, Method::Full]
            .map(|method| read_over(&text, |base| base.change(|base| base.method = method)).scenario.method)
    };
    assert_eq!(script(""), [Method::Qlora; 3]);
    let length = "model, tokenizer = FastLanguageModel.from_pretrained('unsloth/Meta-Llama-3.1-8B', max_seq_length=4096)\n";
    assert_eq!(read(length).scenario.sequence, 4096);
    let elsewhere = length.replace("FastLanguageModel", "AutoModelForCausalLM");
    assert!(read(&elsewhere).left.iter().any(|left| left.said.contains("max_seq_length")));
    assert_eq!(script(", load_in_4bit=True"), [Method::Qlora; 3]);
    for wider in ["load_in_4bit=False", "load_in_16bit=True", "load_in_8bit=True", "load_in_fp8=True"] {
        assert_eq!(script(&format!(", {wider}")), [Method::Lora; 3], "{wider}");
    }
    assert_eq!(script(", full_finetuning=True, load_in_4bit=True"), [Method::Full; 3]);
}

/// What a file says does not depend on what it is read over: the method of a file that names a model is the file's.
#[test]
fn a_model_without_adapters_is_trained_whole() {
    for text in [
        "torchrun --nproc_per_node 8 train.py --model_name_or_path Qwen/Qwen2.5-7B --per_device_train_batch_size 2 --bf16 True --model_max_length 2048",
        "model_name_or_path: Qwen/Qwen2.5-7B\nper_device_train_batch_size: 2\nlearning_rate: 1e-5\n",
    ] {
        let understood = read(text);
        assert_eq!(understood.scenario.method, Method::Full, "{text}");
        assert!(understood.assumed.iter().any(|assumed| assumed.key == "method"), "{text}");
    }
    let lora = read("python train.py --model_name_or_path Qwen/Qwen2.5-7B --lora_enable True");
    assert_eq!(lora.scenario.method, Method::Lora);
    for (name, text, format, ..) in FILES {
        let is_a_launchers = [Format::Accelerate, Format::DeepSpeed].contains(&format);
        for method in [Method::Lora, Method::Full].into_iter().filter(|_| !is_a_launchers) {
            let over = read_over(text, |base| base.change(|base| base.method = method));
            assert_eq!(over.scenario.method, read(text).scenario.method, "{name} over {method:?}");
        }
    }
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
        ("trl gkd --model_name_or_path Qwen/Qwen2.5-7B --bf16", "gkd"),
        ("accelerate launch dpo_online.py --model_name_or_path Qwen/Qwen2.5-7B", "dpo_online.py"),
    ] {
        let understood = read(text);
        assert_eq!(understood.left[0].said, said, "{:?}", understood.left);
        assert!(understood.left[0].why.contains("GRPO and RLOO are read"), "{:?}", understood.left);
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
    let torchtune = include_str!("fixtures/configurations/torchtune-lora.yaml");
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

/// DeepSpeed divides the batch of all GPUs (`_set_batch_related_parameters`).
#[test]
fn deepspeeds_whole_batch_is_divided() {
    let over = |json: &str| {
        let understood = read_over(json, |base| {
            base.change(|base| base.cluster.gpus = 16);
            (base.batch, base.accumulation) = (7, 5);
        });
        let Scenario { batch, accumulation, .. } = understood.scenario;
        ((batch, accumulation), understood.left)
    };
    let zero = "\"zero_optimization\": {\"stage\": 3}";
    let table = |rest: &str| format!("{{{rest}, {zero}}}");
    let whole = "\"train_batch_size\": 64";
    let micro = "\"train_micro_batch_size_per_gpu\": 2";
    let steps = "\"gradient_accumulation_steps\": 2";
    assert_eq!(over(&table(whole)), ((4, 1), vec![]));
    assert_eq!(over(&table(&format!("{whole}, {steps}"))), ((2, 2), vec![]));
    assert_eq!(over(&table(&format!("{whole}, {micro}"))), ((2, 2), vec![]));
    assert_eq!(over(&table("\"train_batch_size\": \"auto\"")), ((7, 5), vec![]));
    let (sizes, left) = over(&table("\"train_batch_size\": 63"));
    assert_eq!((sizes, left.len()), ((7, 5), 1));

    let auto = read(&table("\"bf16\": {\"enabled\": \"auto\"}, \"fp16\": {\"enabled\": false}"));
    for said in ["bf16.enabled: auto", "fp16.enabled: false"] {
        assert!(auto.idle.iter().any(|idle| idle == said), "{:?}", auto.idle);
    }
}

/// A loop of one's own says its engine in calls, and seldom among how many GPUs.
#[test]
fn a_loop_says_what_shares_it() {
    let load = "m = AutoModelForCausalLM.from_pretrained('Qwen/Qwen3-8B', dtype=torch.float32)\n";
    let of = |text: &str, gpus: u64| {
        let understood =
            read_over(&format!("{load}{text}"), |base| base.change(|base| base.cluster.gpus = gpus));
        let unsaid = left(&understood).contains(&"the number of GPUs");
        (understood.scenario, unsaid)
    };
    let (scenario, unsaid) = of("m = DDP(m, device_ids=[rank])", 1);
    assert_eq!((scenario.cluster.sharding, unsaid), (Sharding::Ddp, true));
    let (scenario, unsaid) = of(
        "for l in m.model.layers: fully_shard(l, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16), reshard_after_forward=False)\nfully_shard(m)",
        4,
    );
    let cluster = scenario.cluster;
    assert_eq!(
        (cluster.sharding, cluster.reshards, cluster.reduce),
        (Sharding::Fsdp2, false, ReduceDtype::Bf16)
    );
    assert_eq!((cluster.gpus, scenario.precision, unsaid), (4, Precision::AmpBf16, false));
    let config = "'train_batch_size': 64, 'train_micro_batch_size_per_gpu': 4, 'gradient_accumulation_steps': 2, 'bf16': {'enabled': True}, 'zero_optimization': {'stage': 3}";
    let (scenario, unsaid) = of(&format!("e, *_ = deepspeed.initialize(model=m, config={{{config}}})"), 1);
    assert_eq!((scenario.batch, scenario.accumulation, scenario.precision), (4, 2, Precision::AmpBf16));
    assert_eq!((scenario.cluster.sharding, scenario.cluster.gpus, unsaid), (Sharding::Zero3, 8, false));
}

/// transformers 5 has its own word for what lies in the CPU's memory, and its FSDP is the second; axolotl's mesh says how many.
#[test]
fn shards_are_read_as_their_project_says_them() {
    let arguments = "args = SFTConfig(fsdp='full_shard', fsdp_config={'cpu_offload': True}, bf16=True)";
    let read_args = read_over(arguments, |base| base.change(|base| base.cluster.gpus = 2));
    assert_eq!(left(&read_args), [""; 0]);
    let cluster = read_args.scenario.cluster;
    assert_eq!((cluster.sharding, cluster.cpu), (Sharding::Fsdp2, CpuOffload::All));
    let yaml = "base_model: Qwen/Qwen3-8B\nfsdp_version: 2\nfsdp_config:\n  offload_params: false\ndp_shard_size: 4\ndp_replicate_size: 2\n";
    let axolotl = read(yaml);
    let cluster = axolotl.scenario.cluster;
    assert_eq!((cluster.gpus, cluster.replicas, cluster.sharding), (8, 2, Sharding::Fsdp2));
}

/// torchao's products in 8 bits: axolotl's switch, and accelerate's where its file says whose they are.
#[test]
fn products_in_8_bits_are_read() {
    let axolotl =
        |rest: &str| read(&format!("base_model: Qwen/Qwen3-8B\nbf16: true\n{rest}")).scenario.float8;
    let own = Float8Training { recipe: Float8::Tensorwise, ..Float8Training::OFF };
    assert_eq!(axolotl("fp8: true\n"), own);
    assert_eq!(
        axolotl("fp8: true\nfp8_enable_fsdp_float8_all_gather: true\n"),
        Float8Training { gathers: true, ..own }
    );
    assert_eq!(axolotl("fp8: false\n"), Float8Training::OFF);
    let launcher = "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nmixed_precision: fp8\nnum_processes: 2\n";
    let accelerate = |rest: &str| read(&format!("{launcher}{rest}"));
    let torchaos = accelerate("fp8_config:\n  backend: AO\n  pad_inner_dim: false\n");
    assert_eq!(torchaos.scenario.float8, Float8Training { gathers: true, ..own });
    assert!(torchaos.scenario.precision.is_bfloat16());
    for others in ["", "fp8_config:\n  backend: TE\n"] {
        let understood = accelerate(others);
        assert_eq!(understood.scenario.float8, Float8Training::OFF, "{others}");
        assert!(
            left(&understood).iter().any(|what| what.contains("mixed_precision: fp8")),
            "{others}: {:?}",
            left(&understood)
        );
    }
}

/// axolotl's own function stands in the place of accelerate's under the second FSDP: weights and adapters stay as they were loaded.
#[test]
fn axolotl_wraps_the_model_itself() {
    let yaml = |rest: &str| {
        format!(
            "base_model: Qwen/Qwen3-8B\nbf16: true\ndp_shard_size: 4\nfsdp_config:\n  cpu_ram_efficient_loading: true\n{rest}"
        )
    };
    let wrapped = |rest: &str| {
        let understood = read(&yaml(rest));
        (understood.scenario.cluster.wrapped_by, understood.scenario.precision)
    };
    let own = (WrappedBy::Axolotl, Precision::AmpBf16Weights);
    assert_eq!(wrapped("fsdp_version: 2\n"), own);
    assert_eq!(wrapped("  fsdp_version: 2\n"), own);
    assert_eq!(wrapped("fsdp_version: 2\nadapter: lora\nlora_r: 8\n"), own);
    // the first FSDP is accelerate's; 4-bit weights were not compared
    assert_eq!(wrapped("  reshard_after_forward: true\n"), (WrappedBy::Loop, Precision::AmpBf16));
    let four_bit = read(&yaml("fsdp_version: 2\nadapter: qlora\nlora_r: 8\n"));
    assert_eq!(four_bit.scenario.cluster.wrapped_by, WrappedBy::Loop);
    assert!(four_bit.assumed.iter().any(|assumed| assumed.why.contains("a function of its own")));
    // each GPU has the whole model otherwise
    let whole = read("base_model: Qwen/Qwen3-8B\ndp_shard_size: 4\nfsdp_version: 2\n");
    assert_eq!(left(&whole), ["fsdp_config.cpu_ram_efficient_loading (off by default)"]);
    let pure = read("base_model: Qwen/Qwen3-8B\nbf16: full\n");
    assert_eq!(pure.scenario.precision, Precision::Bf16);
}

/// torchtune's command puts what it is given over the recipe that it names, which is another file.
#[test]
fn what_tune_run_overrides_is_read() {
    let understood = read(
        "tune run lora_finetune_single_device --config llama3_1/8B_lora_single_device batch_size=4 gradient_accumulation_steps=2 \
         tokenizer.max_seq_len=1536 dataset.packed=True enable_activation_checkpointing=True \
         optimizer=bitsandbytes.optim.PagedAdamW8bit model.lora_rank=32 compile=True epochs=3 metric_logger.log_dir=/tmp/x",
    );
    assert_eq!(left(&understood).len(), 2, "{:?}", understood.left);
    assert!(understood.left[1].said == "compile: true" || understood.left[0].said == "compile: true");
    let base = Scenario::default();
    let Scenario { stack, batch, accumulation, sequence, optimizer, ref lora, .. } = understood.scenario;
    assert_eq!((stack, batch, accumulation, sequence), (Stack::Torchtune, 4, 2, 1536));
    assert_eq!((optimizer, lora.rank), (Optimizer::PagedAdamW8bit, 32));
    assert_eq!(understood.scenario.mask, Mask::Packed);
    // nothing is assumed of a recipe that was not read
    assert_eq!(understood.assumed, []);
    assert_eq!((understood.scenario.precision, lora.targets), (base.precision, base.lora.targets));
    // a list in brackets, and half of what says the layers
    let layers = "tune run x --config y model.lora_attn_modules=['q_proj','v_proj']";
    assert_eq!(read(layers).left[0].said, "model.lora_attn_modules: q_proj, v_proj");
    let both = read(&format!("{layers} model.apply_lora_to_mlp=False"));
    assert_eq!((both.scenario.lora.targets, both.left.len()), (LoraTargets::Qv, 1));
}

/// What torchtune's distributed recipes say of shards, and their command of GPUs.
#[test]
fn torchtunes_distributed_recipes_are_read() {
    let command = "tune run --nnodes 2 --nproc_per_node 8 full_finetune_distributed --config recipe.yaml";
    let recipe = "model:\n  _component_: torchtune.models.llama3_1.llama3_1_70b\noptimizer:\n  _component_: torch.optim.AdamW\n  fused: True\ndtype: bf16\ntensor_parallel_dim: 1\nfsdp_cpu_offload: True\n\
                  custom_sharded_layers: ['tok_embeddings', 'output']\nfsdp_reshard_after_forward: False\n";
    let of = |recipe: &str| read(&format!("# {command}\n{recipe}"));
    let understood = of(recipe);
    assert_eq!(left(&understood), [""; 0]);
    let Scenario { stack, cluster, .. } = understood.scenario;
    assert_eq!((stack, cluster.gpus, cluster.sharding), (Stack::Torchtune, 16, Sharding::Fsdp2));
    assert_eq!((cluster.cpu, cluster.reshards), (CpuOffload::All, false));
    assert_eq!(cluster.sharded, ShardedLayers::EmbeddingAndHead);
    let embedding = of(&recipe.replace(", 'output'", ""));
    assert_eq!(embedding.scenario.cluster.sharded, ShardedLayers::Embedding);
    let others = recipe.replace("parallel_dim: 1", "parallel_dim: 2").replace("'tok_embeddings', ", "");
    let others = of(&others);
    assert_eq!(left(&others), ["custom_sharded_layers: output", "tensor_parallel_dim: 2"]);
    assert_eq!(others.scenario.cluster.sharded, ShardedLayers::Layers);
}

#[test]
fn what_changes_memory_is_not_without_effect() {
    let file = "model_name_or_path: mistralai/Mistral-7B-v0.1\nbf16: true\nlabel_smoothing_factor: 0.1\nfull_determinism: true\n";
    assert_eq!(left(&read(file)), ["label_smoothing_factor: 0.1", "full_determinism: true"]);
    assert!(left(&read(&file.replace("0.1\n", "0\n").replace("full_determinism: true", ""))).is_empty());
    let unsloth = |on: &str| {
        read(&format!(
            "m = FastLanguageModel.from_pretrained('unsloth/Meta-Llama-3.1-8B', fast_inference={on}, gpu_memory_utilization=0.6)"
        ))
    };
    assert_eq!(left(&unsloth("False")), [""; 0]);
    assert_eq!(
        left(&unsloth("True")),
        ["from_pretrained(fast_inference=true)", "from_pretrained(gpu_memory_utilization=0.6)"]
    );
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

#[test]
fn every_refused_setting_is_listed() {
    let adapter = |patterns: &str| {
        read(&format!(
            "{{\"base_model_name_or_path\": \"meta-llama/Llama-3.1-8B\", \"fan_in_fan_out\": false, \"peft_type\": \"LORA\", \"r\": 64, {patterns}, \"target_modules\": [\"q_proj\", \"v_proj\"], \"use_dora\": false}}"
        ))
    };
    assert_eq!(left(&adapter("\"rank_pattern\": {}, \"alpha_pattern\": {}")), [""; 0]);
    let patterns = adapter("\"rank_pattern\": [1], \"alpha_pattern\": [2]");
    assert_eq!(left(&patterns), ["LoraConfig(alpha_pattern=2)", "LoraConfig(rank_pattern=1)"]);
    // the one that is followed, and the one that is not
    let twice = read(
        "args = SFTConfig(max_seq_length=512)\ntrainer = SFTTrainer(model='gpt2', args=args, max_seq_length=1024)",
    );
    assert_eq!(twice.scenario.sequence, 1024);
    assert_eq!(left(&twice), ["SFTConfig(max_seq_length=512)"]);
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

#[test]
fn what_is_no_text_is_told() {
    for (text, why) in [
        (" \n", "there is no text"),
        ("\u{fffd}PNG\r\n\u{1a}\n\0\0\0\rIHDR", "this is no text, but a picture, an archive or weights"),
    ] {
        let refused = import::read(text, &Scenario::default()).expect_err("nothing is read");
        assert_eq!(refused.to_string(), why);
    }
}

#[test]
fn a_web_page_is_no_configuration_and_is_called_a_page() {
    let error =
        import::read("<!doctype html>\n<p>learning_rate = 1</p>", &Scenario::default()).expect_err("a page");
    assert!(error.to_string().contains("angle brackets"), "{error}");
}
