//! What other projects' own files and commands were taken for, without a word: each is read as what it is, or said not to be followed.

use headroom::estimate;
use headroom::import;
use headroom::scenario::{
    Checkpointing, CpuOffload, LoraTargets, Method, Optimizer, Precision, Reference, Scenario, Sharding,
    Stack, Task, WeightFormat,
};

use crate::{left, read};

#[track_caller]
fn refused(text: &str) -> String {
    match import::read(text, &Scenario::default()) {
        Ok(understood) => panic!("{text}: {:?}", understood.taken),
        Err(why) => why.to_string(),
    }
}

/// The first examples of trl's README: each trainer makes its own configuration, and trains all weights in float32 under bfloat16.
#[test]
fn trainers_without_arguments_have_their_own() {
    let whole = |trainer: &str, rest: &str| {
        format!(
            "from trl import {trainer}\nfrom datasets import load_dataset\ndataset = load_dataset(\"trl-lib/x\", split=\"train\")\n\
             trainer = {trainer}(\n    model=\"Qwen/Qwen2.5-0.5B\",\n    train_dataset=dataset,{rest}\n)\ntrainer.train()\n"
        )
    };
    for (trainer, rest, task, length) in [
        ("SFTTrainer", "", Task::Sft, 1024),
        ("DPOTrainer", "", Task::Dpo, 1024),
        ("KTOTrainer", "", Task::Kto, 1024),
        ("RewardTrainer", "", Task::Reward, 1024),
        ("GRPOTrainer", "\n    reward_funcs=accuracy_reward,", Task::Grpo, 1024),
        ("RLOOTrainer", "\n    reward_funcs=accuracy_reward,", Task::Rloo, 1024),
    ] {
        let understood = read(&whole(trainer, rest));
        let scenario = &understood.scenario;
        assert_eq!((scenario.task, scenario.stack), (task, Stack::Trl), "{trainer}");
        assert_eq!((scenario.method, scenario.precision), (Method::Full, Precision::AmpBf16), "{trainer}");
        assert_eq!((scenario.batch, scenario.sequence), (8, length), "{trainer}");
        assert_eq!(scenario.checkpointing, Checkpointing::NonReentrant, "{trainer}");
        assert!(understood.left.is_empty(), "{trainer}: {:?}", understood.left);
        let same = estimate(scenario).memory.expect(trainer).needed();
        let command = trainer.trim_end_matches("Trainer").to_lowercase();
        let command = format!("trl {command} --model_name_or_path Qwen/Qwen2.5-0.5B");
        let other = estimate(&read(&command).scenario).memory.expect(&command).needed();
        assert_eq!(same, other, "{command}");
    }
    let adapted = read(&whole("SFTTrainer", "\n    peft_config=LoraConfig(),"));
    assert_eq!((adapted.scenario.method, adapted.scenario.batch), (Method::Lora, 8));
    assert_eq!(adapted.scenario.precision, Precision::AmpBf16);
    // arguments that stand elsewhere are as they were, and said to be
    for given in ["\n    args=training_args,", "\n    **kwargs,"] {
        let elsewhere = read(&whole("SFTTrainer", given));
        assert_eq!(elsewhere.scenario.batch, 1, "{given}");
    }
    let elsewhere = read(&whole("DPOTrainer", "\n    args=training_args,"));
    assert_eq!(
        (elsewhere.scenario.task, left(&elsewhere)),
        (Task::Dpo, vec!["DPOTrainer(args=training_args)"])
    );
}

/// transformers' and sentence-transformers' trainers do the same, with their own defaults.
#[test]
fn transformers_trainers_without_arguments_have_their_own() {
    let text = "from transformers import AutoModelForCausalLM, Trainer\nmodel = AutoModelForCausalLM.from_pretrained(\"Qwen/Qwen2.5-0.5B\")\n\
                trainer = Trainer(model=model, train_dataset=d)\ntrainer.train()\n";
    let scenario = read(text).scenario;
    assert_eq!((scenario.task, scenario.stack), (Task::Sft, Stack::Transformers));
    assert_eq!(
        (scenario.method, scenario.batch, scenario.checkpointing),
        (Method::Full, 8, Checkpointing::Off)
    );
    let text = "from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer\nmodel = SentenceTransformer(\"BAAI/bge-m3\")\n\
                loss = MultipleNegativesRankingLoss(model)\ntrainer = SentenceTransformerTrainer(model=model, train_dataset=d, loss=loss)\n";
    let understood = read(text);
    assert_eq!((understood.scenario.task, understood.scenario.batch), (Task::Embed, 8));
    assert!(understood.left.is_empty(), "{:?}", understood.left);
    let text = "from transformers import AutoModelForSequenceClassification, Trainer\n\
                model = AutoModelForSequenceClassification.from_pretrained(\"bert-base-uncased\", num_labels=3)\n\
                trainer = Trainer(model=model, train_dataset=d)\n";
    let understood = read(text);
    assert_eq!((understood.scenario.task, understood.scenario.answers.labels), (Task::Classify, 3));
    assert!(understood.left.is_empty(), "{:?}", understood.left);
    // others have a class of that name, too
    let lightning = "import lightning as L\ntrainer = L.Trainer(max_epochs=3, model=1)\noptimizer = torch.optim.AdamW(m.parameters())\n";
    assert_eq!(read(lightning).scenario.batch, 1);
}

/// The headers of trl's examples/scripts.
#[test]
fn trainers_of_trl_that_are_not_read_are_said_to_be() {
    let rest =
        "--model_name_or_path Qwen/Qwen2.5-0.5B-Instruct --per_device_train_batch_size 16 --max_length 2048";
    for (script, own) in [
        ("bco", "--max_completion_length 1024"),
        ("tpo", "--beta 0.01 --tpo_alpha 1.0"),
        ("tpo", "--use_peft"),
        ("ssd", "--max_completion_length 65536"),
        ("sdpo", "--num_generations 8 --distillation_alpha 1.0"),
    ] {
        let understood = read(&format!("python examples/scripts/{script}.py {rest} {own}"));
        assert_eq!(understood.scenario.task, Task::Sft, "{script} {own}");
        let why = understood.left.iter().find(|left| left.said.contains(script)).expect(script);
        assert!(why.why.contains("of trl's trainers those of SFT, DPO"), "{}", why.why);
    }
    let command = "python examples/scripts/mpo_vlm.py --model_name_or_path Qwen/Qwen2.5-VL-3B-Instruct --per_device_train_batch_size 4 \
                   --dtype bfloat16 --use_peft --loss_type sigmoid bco_pair sft --loss_weights 0.8 0.2 1.0";
    assert_eq!(read(command).scenario.task, Task::Dpo);
    let class = "trainer = SSDTrainer(model=\"Qwen/Qwen2.5-0.5B\", train_dataset=d)";
    assert_eq!(left(&read(class)), ["SSDTrainer"]);
}

/// alignment-handbook's recipes/zephyr-141b-A35b/orpo/config_full.yaml.
#[test]
fn orpos_recipe_has_no_second_model() {
    let recipe = |comment: &str| {
        format!(
            "# Model arguments\nmodel_name_or_path: mistral-community/Mixtral-8x22B-v0.1\ntorch_dtype: bfloat16\nattn_implementation: flash_attention_2\n\
             {comment}\nbf16: true\nbeta: 0.05\ngradient_accumulation_steps: 1\ngradient_checkpointing: true\nmax_length: 2048\n\
             max_prompt_length: 1792\noptim: adamw_bnb_8bit\nper_device_train_batch_size: 1\n"
        )
    };
    let orpo = read(&recipe("# ORPOTrainer arguments"));
    assert_eq!(orpo.scenario.task, Task::Orpo);
    let dpo = read(&recipe("# DPOTrainer arguments"));
    assert_eq!((dpo.scenario.task, dpo.scenario.answers.reference), (Task::Dpo, Reference::Scored));
    let told = |understood: &import::Understood| {
        understood.assumed.iter().find(|assumed| assumed.key == "task").expect("it is assumed").why.clone()
    };
    assert!(told(&dpo).contains("these are DPOTrainer's arguments"), "{}", told(&dpo));
    // without a word of it
    let unsaid = read(&recipe(""));
    assert_eq!(unsaid.scenario.task, Task::Dpo);
    assert!(told(&unsaid).contains("ORPO, CPO, KTO and BCO too"), "{}", told(&unsaid));
}

/// torchtune's recipes/configs: what trains nothing has no verdict, nor has what trains with models that are not counted.
#[test]
fn torchtunes_other_recipes_are_not_fine_tuning() {
    let model = "model:\n  _component_: torchtune.models.llama2.llama2_7b\ndevice: cuda\ndtype: bf16\n";
    let trained = "batch_size: 4\noptimizer:\n  _component_: torch.optim.AdamW\n  fused: True\n";
    for (own, what) in [
        (
            "prompt:\n  user: Tell me a joke.\nmax_new_tokens: 300\nenable_kv_cache: True\nquantizer: null\n",
            "generation",
        ),
        ("tasks: [\"truthfulqa_mc2\"]\nmax_seq_length: 4096\nbatch_size: 8\nquantizer: null\n", "evaluation"),
        (
            "quantizer:\n  _component_: torchtune.training.quantization.Int8DynActInt4WeightQuantizer\n",
            "quantisation",
        ),
        (
            &format!("{trained}loss:\n  _component_: torchtune.rlhf.loss.DPOLoss\n  beta: 0.05\n"),
            "preferences",
        ),
        (
            &format!(
                "{trained}teacher_model:\n  _component_: torchtune.models.llama3_1.llama3_1_8b\nkd_ratio: 0.5\n"
            ),
            "distillation",
        ),
        (
            &format!(
                "{trained}grpo_samples: 16\nloss:\n  _component_: torchtune.dev.grpo.loss.GRPOSimpleLoss\n"
            ),
            "GRPO",
        ),
        ("orchestration:\n  num_steps: 200\ntraining:\n  batch_size: 1\n", "GRPO"),
    ] {
        let why = refused(&format!("{model}{own}"));
        assert!(why.contains("torchtune") && why.contains(what), "{why}");
    }
    for (recipe, what) in [
        ("generate --config generation", "generation"),
        ("eleuther_eval --config phi4/evaluation", "evaluation"),
        ("--nproc_per_node 4 full_dpo_distributed --config llama3_1/8B_full_dpo", "preferences"),
        (
            "knowledge_distillation_single_device --config llama3_2/8B_to_1B_KD_lora_single_device",
            "distillation",
        ),
        ("--nproc_per_node 4 dev/grpo_full_finetune_distributed --config dev/3B_full_grpo", "GRPO"),
    ] {
        let why = refused(&format!("tune run {recipe} batch_size=2"));
        assert!(why.contains(what), "{recipe}: {why}");
    }
    // recipes/configs/llama3_3/70B_full_multinode.yaml
    let mesh = format!("{model}{trained}tensor_parallel_dim: 8\ndata_parallel_shard_dim: -1\n");
    let understood = read(&mesh);
    assert_eq!(
        (understood.scenario.cluster.gpus, understood.scenario.cluster.sharding),
        (2, Sharding::Fsdp2)
    );
    assert!(left(&understood).contains(&"the number of GPUs"), "{:?}", understood.left);
}

/// transformers' examples/pytorch, and heads that count nothing of a vocabulary.
#[test]
fn models_with_other_heads_are_no_language_models() {
    let glue = "python run_glue.py --model_name_or_path bert-base-cased --task_name mrpc --per_device_train_batch_size 32";
    let scenario = read(glue).scenario;
    assert_eq!((scenario.task, scenario.sequence, scenario.batch), (Task::Classify, 128, 32));
    assert_eq!(read(&format!("{glue} --max_seq_length 256")).scenario.sequence, 256);
    let qa = read("python run_qa.py --model_name_or_path bert-base-uncased --per_device_train_batch_size 12");
    assert_eq!((qa.scenario.task, qa.scenario.sequence), (Task::Classify, 384));
    assert!(left(&qa).contains(&"run_qa.py"), "{:?}", qa.left);
    for class in ["AutoModelForQuestionAnswering", "AutoModelForTokenClassification"] {
        let text = format!(
            "from transformers import {class}, Trainer, TrainingArguments\nmodel = {class}.from_pretrained(\"bert-base-uncased\")\n\
             args = TrainingArguments(per_device_train_batch_size=8)\ntrainer = Trainer(model=model, args=args)\n"
        );
        let understood = read(&text);
        assert_eq!(understood.scenario.task, Task::Classify, "{class}");
        let said = left(&understood);
        assert!(said.iter().any(|said| said.contains(class)), "{class}: {said:?}");
    }
    let mlm = read("python run_mlm.py --model_name_or_path roberta-base --per_device_train_batch_size 8");
    assert!(estimate(&mlm.scenario).memory.is_some(), "{}", mlm.scenario.sequence);
}

/// A launcher that is told no number starts on all GPUs that it sees.
#[test]
fn visible_gpus_are_counted() {
    let rest = "train.py --model_name_or_path Qwen/Qwen2.5-0.5B --per_device_train_batch_size 2 --bf16";
    for (command, gpus) in [
        (format!("CUDA_VISIBLE_DEVICES=0,1,2,3 accelerate launch {rest}"), 4),
        (format!("export CUDA_VISIBLE_DEVICES=0,1\naccelerate launch {rest}"), 2),
        ("CUDA_VISIBLE_DEVICES=0,1 trl sft --model_name_or_path Qwen/Qwen2.5-0.5B".to_owned(), 2),
        (format!("CUDA_VISIBLE_DEVICES=3 accelerate launch {rest}"), 1),
        (format!("deepspeed --include localhost:0,1,2,3 {rest}"), 4),
        (format!("CUDA_VISIBLE_DEVICES=0,1 deepspeed {rest}"), 2),
        // a number that is given counts
        (format!("CUDA_VISIBLE_DEVICES=0,1,2,3 accelerate launch --num_processes 2 {rest}"), 2),
    ] {
        let understood = read(&command);
        assert_eq!(understood.scenario.cluster.gpus, gpus, "{command}");
        assert!(understood.left.is_empty(), "{command}: {:?}", understood.left);
    }
    let python = read(&format!("CUDA_VISIBLE_DEVICES=0,1 python {rest}"));
    assert_eq!(python.scenario.cluster.gpus, 1);
    assert_eq!(left(&python), ["CUDA_VISIBLE_DEVICES: 0,1"]);
}

/// The command of artidoro/qlora's README.
#[test]
fn the_papers_own_script_quantises() {
    let command = "python qlora.py --model_name_or_path huggyllama/llama-7b --bits 4 --double_quant --quant_type nf4 --bf16 --lora_r 64 --lora_modules \
                   all --source_max_len 16 --target_max_len 512 --per_device_train_batch_size 1 --gradient_accumulation_steps 16";
    let understood = read(command);
    let scenario = &understood.scenario;
    assert_eq!((scenario.method, scenario.quantization.format), (Method::Qlora, WeightFormat::Nf4));
    assert!(scenario.quantization.double_quant);
    assert_eq!((scenario.lora.rank, scenario.lora.targets), (64, LoraTargets::AllLinear));
    assert_eq!((scenario.sequence, scenario.batch, scenario.accumulation), (528, 1, 16));
    assert_eq!((scenario.optimizer, scenario.precision), (Optimizer::PagedAdamW, Precision::AmpBf16Weights));
    assert!(scenario.checkpointing != Checkpointing::Off);
    assert!(understood.left.is_empty(), "{:?}", understood.left);
    let full = read(&command.replace("--bits 4", "--bits 16 --full_finetune"));
    assert_eq!(full.scenario.method, Method::Full);
}

/// AnswerDotAI/fsdp_qlora's README and train.sh.
#[test]
fn fsdp_qloras_own_script_is_sharded() {
    let command = "python train.py --world_size 2 --model_name meta-llama/Llama-2-70b-hf --gradient_accumulation_steps 2 --batch_size 1 \
                   --context_length 512 --num_epochs 1 --sharding_strategy full_shard --precision bf16 --train_type qlora \
                   --use_gradient_checkpointing true --use_cpu_offload true --dataset dummy --dataset_samples 48";
    let understood = read(command);
    let scenario = &understood.scenario;
    assert_eq!((scenario.method, scenario.precision), (Method::Qlora, Precision::Bf16));
    assert_eq!((scenario.cluster.gpus, scenario.cluster.sharding), (2, Sharding::Fsdp2));
    assert_eq!((scenario.cluster.cpu, scenario.lora.rank), (CpuOffload::All, 64));
    assert_eq!((scenario.sequence, scenario.lora.targets), (512, LoraTargets::AllLinear));
    assert!(understood.left.iter().all(|left| !left.why.contains("not known")), "{:?}", understood.left);
    assert_eq!(read(&command.replace("train_type qlora", "train_type lora")).scenario.method, Method::Lora);
    assert_eq!(read(&command.replace("full_shard", "ddp")).scenario.cluster.sharding, Sharding::Ddp);
    // alpaca-lora's README writes a list in brackets
    let listed = read(
        "python finetune.py --base_model huggyllama/llama-7b --batch_size 4 --lora_r 16 --lora_target_modules '[q_proj,v_proj]'",
    );
    let words = read(
        "python finetune.py --base_model huggyllama/llama-7b --batch_size 4 --lora_r 16 --lora_target_modules q_proj v_proj",
    );
    assert_eq!(listed.scenario.lora.modules, words.scenario.lora.modules);
    assert!(listed.left.is_empty(), "{:?}", listed.left);
}

/// transformers' parser has a negative of every switch that is on by default.
#[test]
fn negatives_of_switches_are_read() {
    for negative in ["--no_gradient_checkpointing", "--no-gradient-checkpointing"] {
        let understood = read(&format!(
            "trl sft --model_name_or_path Qwen/Qwen2.5-7B {negative} --no_remove_unused_columns"
        ));
        assert_eq!(understood.scenario.checkpointing, Checkpointing::Off, "{negative}");
        assert!(understood.left.is_empty(), "{negative}: {:?}", understood.left);
    }
    let understood = read("trl sft --model_name_or_path Qwen/Qwen2.5-7B --no_bf16");
    assert_eq!(understood.scenario.precision, Precision::Fp32);
}

/// What transformers and bitsandbytes stop at.
#[test]
fn settings_that_contradict_each_other_are_told() {
    let file = "model_name_or_path: Qwen/Qwen2.5-7B\nper_device_train_batch_size: 1\n";
    for (own, said, precision) in [
        ("bf16: true\nfp16: true\n", "bf16: true, fp16: true", Precision::AmpBf16Weights),
        ("bf16: true\nfp16: false\n", "", Precision::AmpBf16Weights),
    ] {
        let understood = read(&format!("{file}{own}"));
        let told: Vec<_> = understood.left.iter().filter(|left| left.is_misread).collect();
        assert_eq!(told.first().map_or("", |left| &left.said), said, "{own}");
        assert_eq!(understood.scenario.precision, precision, "{own}");
    }
    let both = read(&format!("{file}bf16: true\nuse_peft: true\nload_in_4bit: true\nload_in_8bit: true\n"));
    assert!(left(&both).contains(&"load_in_4bit: true, load_in_8bit: true"), "{:?}", both.left);
    let shared = read(&format!(
        "{file}bf16: true\nfsdp: full_shard\ndeepspeed: examples/deepspeed/ds_z2_config.json\n"
    ));
    assert!(left(&shared).iter().any(|said| said.starts_with("fsdp: full_shard, ")), "{:?}", shared.left);
}

/// A copy is of a repository that is there.
#[test]
fn copies_are_of_published_models() {
    for (copy, own) in [
        ("decapoda-research/llama-7b-hf", "huggyllama/llama-7b"),
        ("unsloth/DeepSeek-R1-0528-Qwen3-8B", "deepseek-ai/DeepSeek-R1-0528-Qwen3-8B"),
        ("somebody/Qwen2.5-7B", "Qwen/Qwen2.5-7B"),
    ] {
        let understood = read(&format!("model_name_or_path: {copy}\nper_device_train_batch_size: 1\n"));
        assert_eq!(understood.scenario.model_name(), own, "{copy}");
        assert!(understood.scenario.architecture().is_ok(), "{copy}");
    }
}

/// Unsloth's notebooks for continued pretraining (nb/Mistral_v0.3_(7B)-CPT.ipynb): what `get_peft_model` moves to `modules_to_save`.
#[test]
fn unsloths_embedding_and_head_are_trained_whole() {
    let text = "model, tokenizer = FastLanguageModel.from_pretrained(model_name=\"unsloth/mistral-7b-v0.3\", max_seq_length=2048, load_in_4bit=True)\n\
                model = FastLanguageModel.get_peft_model(model, r=128, target_modules=[\"q_proj\", \"k_proj\", \"v_proj\", \"o_proj\", \"gate_proj\", \
                \"up_proj\", \"down_proj\", \"embed_tokens\", \"lm_head\"], lora_alpha=32, use_rslora=True)\n\
                trainer = UnslothTrainer(model=model, args=UnslothTrainingArguments(per_device_train_batch_size=2))\n";
    let scenario = read(text).scenario;
    assert_eq!((scenario.lora.targets, scenario.lora.trains_embeddings), (LoraTargets::AllLinear, true));
    // of whose run nothing is known, which is said so
    let why = estimate(&scenario).errors().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    assert!(why.contains("Unsloth with modules_to_save is not modelled"), "{why}");
}
