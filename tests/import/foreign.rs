//! Texts that were read as something else once, and answered so: each is read as its project has it, or it is named and not answered.

use headroom::estimate;
use headroom::import;
use headroom::scenario::{
    AttentionKernel, Checkpointing, CpuOffload, LoraTargets, LossKernel, Method, Scenario, Sharding, Stack,
    Task, VisionTower,
};

use crate::{left, read, read_over};

#[track_caller]
fn needed(scenario: &Scenario) -> u64 {
    let answer = estimate(scenario);
    answer.memory.unwrap_or_else(|| panic!("{:?}", answer.issues)).needed().0
}

fn refused(scenario: &Scenario) -> String {
    estimate(scenario).errors().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// axolotl's examples/llama-3/fft-8b-liger-fsdp.yaml, and the same with other losses: under FSDP2 all of them are answered. Liger's modules fuse
/// its loss themselves.
#[test]
fn ligers_loss_beside_its_modules_is_the_standard_one() {
    let text = "base_model: NousResearch/Meta-Llama-3.1-8B\nplugins:\n  - axolotl.integrations.liger.LigerPlugin\nliger_rope: true\n\
                liger_rms_norm: true\nliger_glu_activation: true\nliger_fused_linear_cross_entropy: true\nsequence_len: 4096\n\
                sample_packing: true\nmicro_batch_size: 2\noptimizer: adamw_torch_fused\nbf16: auto\ngradient_checkpointing: true\n\
                gradient_checkpointing_kwargs:\n  use_reentrant: false\nflash_attention: true\nfsdp_version: 2\nfsdp_config:\n  \
                cpu_ram_efficient_loading: true\n  reshard_after_forward: true\n";
    let modules = "liger_rope: true\nliger_rms_norm: true\nliger_glu_activation: true\n";
    let fused = "liger_fused_linear_cross_entropy: true\n";
    for (text, stack, loss) in [
        (text.to_owned(), Stack::Liger, LossKernel::Standard),
        (text.replace(modules, ""), Stack::Transformers, LossKernel::Liger),
        (text.replace(fused, "cut_cross_entropy: true\n"), Stack::Liger, LossKernel::Cut),
        (text.replace(fused, ""), Stack::Liger, LossKernel::Full),
    ] {
        let understood = read_over(&text, |base| base.change(|base| base.cluster.gpus = 8));
        let scenario = &understood.scenario;
        assert_eq!((scenario.stack, scenario.savings.loss), (stack, loss));
        assert!(needed(scenario) > 0);
    }
}

/// The command of PEFT's docs/source/accelerate/deepspeed.md, whose script is examples/sft/train.py.
#[test]
fn pefts_own_example_has_adapters() {
    let command = "accelerate launch --config_file \"configs/deepspeed_config.yaml\" train.py --model_name_or_path \"meta-llama/Llama-2-70b-hf\" \
                   --chat_template_format \"chatml\" --add_special_tokens False --append_concat_token False --splits \"train,test\" \
                   --max_seq_len 2048 --packing True --bf16 True --per_device_train_batch_size 8 --gradient_accumulation_steps 4 \
                   --gradient_checkpointing True --use_reentrant False --use_flash_attn True --use_peft_lora True --lora_r 8 --lora_alpha 16 \
                   --lora_dropout 0.1 --lora_target_modules \"all-linear\" --use_4bit_quantization False";
    let understood = read(command);
    let scenario = &understood.scenario;
    assert_eq!((scenario.method, scenario.lora.rank, scenario.stack), (Method::Lora, 8, Stack::Trl));
    assert_eq!((scenario.sequence, scenario.lora.targets), (2048, LoraTargets::AllLinear));
    assert_eq!(scenario.checkpointing, Checkpointing::NonReentrant);
    assert_eq!(scenario.attention, AttentionKernel::FlashAttn);
    assert_eq!(left(&understood), ["config_file: configs/deepspeed_config.yaml"]);
    let quantised = read(&command.replace("quantization False", "quantization True"));
    assert_eq!(quantised.scenario.method, Method::Qlora);
    // what the script has where nothing is said
    let bare = read(
        "python train.py --model_name_or_path meta-llama/Llama-2-7b-hf --per_device_train_batch_size 1 --use_peft_lora True",
    );
    let own = &bare.scenario;
    assert_eq!((own.lora.rank, own.lora.targets, own.lora.dropout), (64, LoraTargets::AllLinear, true));
    assert_eq!(own.attention, AttentionKernel::Eager);
}

/// Nobody gives the rank of adapters that there are none of.
#[test]
fn adapters_whose_rank_is_given_are_there() {
    let method = |text: &str| {
        let understood = read_over(text, |base| base.change(|base| base.method = Method::Full));
        (understood.scenario.method, understood)
    };
    let script =
        "python train.py --model_name_or_path Qwen/Qwen2.5-7B --per_device_train_batch_size 2 --bf16 True";
    for rank in ["--lora_r 16", "--lora_rank 16"] {
        let (found, understood) = method(&format!("{script} {rank} --lora_alpha 32"));
        assert_eq!((found, understood.scenario.lora.rank), (Method::Lora, 16), "{rank}");
        assert!(understood.left.is_empty(), "{rank}: {:?}", understood.left);
    }
    assert_eq!(method(script).0, Method::Full);
    let (found, usual) = method("model_name: Qwen/Qwen2.5-7B\nbatch_size: 4\nlora_r: 8\n");
    assert_eq!((found, usual.scenario.lora.rank), (Method::Lora, 8));
    // where a project makes none all the same, it says so
    let (found, axolotl) =
        method("base_model: Qwen/Qwen2.5-7B\nlora_r: 8\nlora_target_linear: true\nsequence_len: 512\n");
    assert_eq!((found, left(&axolotl)), (Method::Full, vec!["lora_r: 8", "lora_target_linear: true"]));
    let (found, trl) = method("trl sft --model_name_or_path Qwen/Qwen2.5-7B --lora_r 8");
    assert_eq!((found, left(&trl)), (Method::Full, vec!["lora_r: 8"]));
    for understood in [&axolotl, &trl] {
        assert!(
            !understood.assumed.iter().any(|one| one.why.starts_with("no adapter")),
            "{:?}",
            understood.assumed
        );
    }
}

const REGEX: &str = "base_model: google/gemma-3-12b-it\nadapter: lora\nlora_r: 16\nlora_alpha: 32\n\
                     lora_target_modules: 'model.language_model.layers.[\\d]+.(mlp|cross_attn|self_attn).(up|down|gate|q|k|v|o)_proj'\n\
                     sequence_len: 2048\nmicro_batch_size: 1\nbf16: true\ngradient_checkpointing: true\n";
const FACTORY: &str = "model_name_or_path: google/gemma-3-12b-it\nstage: sft\nfinetuning_type: lora\nlora_rank: 8\nlora_target: all\n\
                       template: gemma3\ncutoff_len: 2048\nper_device_train_batch_size: 1\nbf16: true\n";

/// r · Σ(in + out) of the text's 48 layers, and no adapter in SigLIP's 27: axolotl's expression names the text's layers, and LLaMA-Factory leaves
/// a frozen tower out (model_utils/visual.py `patch_target_modules`). DDP has a gradient for each of them.
#[test]
fn adapters_of_the_text_alone_are_in_no_tower() {
    for (text, trained) in [(REGEX, 65_470_464), (FACTORY, 32_735_232)] {
        let understood = read(text);
        let mut scenario = understood.scenario;
        assert_eq!(scenario.pictures.tower, VisionTower::Frozen);
        let answer = estimate(&scenario);
        let own = answer.memory.map(|memory| memory.parameters.trainable);
        assert_eq!(own, Some(trained), "{text}: {:?}", answer.issues);
        scenario.change(|scenario| scenario.cluster.gpus = 8);
        scenario.cluster.sharding = Sharding::Ddp;
        assert!(needed(&scenario) > 0);
        // in a loop of one's own adapters of the tower get no gradient
        scenario.lora.targets = LoraTargets::AllLinear;
        scenario.pictures.tower = VisionTower::Trained;
        assert!(refused(&scenario).contains("find_unused_parameters"), "{}", refused(&scenario));
    }
    let thawed = read(&format!("{FACTORY}freeze_vision_tower: false\n"));
    assert_eq!(thawed.scenario.pictures.tower, VisionTower::Trained);
    // whose switch has DDP copy what the model returns
    let unused = format!("{REGEX}ddp_find_unused_parameters: ");
    assert!(left(&read(&format!("{unused}true\n"))).contains(&"ddp_find_unused_parameters: true"));
    assert!(
        read(&format!("{unused}false\n")).idle.iter().any(|idle| idle == "ddp_find_unused_parameters: false")
    );
    // the next project's file says of its own
    let plain = REGEX.replace(
        "model.language_model.layers.[\\d]+.(mlp|cross_attn|self_attn).(up|down|gate|q|k|v|o)_proj",
        "q_proj",
    );
    let before = read(FACTORY).scenario;
    let after = import::read(&plain, &before).expect("it is axolotl's").scenario;
    assert_eq!(after.pictures.tower, VisionTower::Trained);
}

/// trl's trainer looks for unused parameters beside adapters, whichever part they are in.
#[test]
fn trl_trains_models_that_see_on_text_by_several_gpus() {
    let link = "m=google/gemma-3-4b-it&method=lora&p=amp-bf16-weights&st=trl&mask=padded&gpus=8&shard=ddp";
    let scenario = headroom::share::decode(link).scenarios.remove(0);
    assert!(needed(&scenario) > 0);
    let mut preferring = scenario.clone();
    preferring.change(|preferring| preferring.task = Task::Dpo);
    assert!(!refused(&preferring).is_empty());
    for sharding in [Sharding::Fsdp2, Sharding::Zero2, Sharding::Zero3] {
        let mut sharded = scenario.clone();
        sharded.cluster.sharding = sharding;
        assert!(needed(&sharded) > 0);
    }
}

/// Projects that are not read are named, and none of their words is taken for somebody else's.
#[test]
fn what_is_not_read_is_named() {
    let torchtitan = "torchrun --nproc_per_node=8 -m torchtitan.train --job.config_file llama3_8b.toml";
    let swift = "CUDA_VISIBLE_DEVICES=0,1,2,3 NPROC_PER_NODE=4 swift sft --model Qwen/Qwen2.5-7B-Instruct --train_type lora \
                 --per_device_train_batch_size 1 --lora_rank 8 --deepspeed zero2";
    let verl = "python3 -m verl.trainer.main_ppo \\\n    data.train_batch_size=1024 \\\n    trainer.n_gpus_per_node=8";
    let openrlhf = "deepspeed --module openrlhf.cli.train_sft --max_len 2048 --train_batch_size 256";
    let megatron =
        "distributed_type: MEGATRON_LM\nmegatron_lm_config:\n  megatron_lm_tp_degree: 4\nnum_processes: 8\n";
    let experts =
        "base_model: Qwen/Qwen3-30B-A3B\ndp_shard_size: 2\nexpert_parallel_size: 2\nsequence_len: 512\n";
    for (text, named) in [
        (torchtitan, "torchtitan"),
        (swift, "ms-swift"),
        (verl, "verl"),
        (openrlhf, "OpenRLHF"),
        (megatron, "MEGATRON_LM"),
        (
            "accelerate launch --use_megatron_lm --megatron_lm_tp_degree 4 --num_processes 8 train.py --model_name_or_path gpt2",
            "Megatron-LM",
        ),
        (experts, "expert_parallel_size"),
    ] {
        let error = import::read(text, &Scenario::default()).expect_err(text).to_string();
        assert!(error.contains(named), "{error}");
    }
    let one = read(&experts.replace("expert_parallel_size: 2", "expert_parallel_size: 1"));
    assert_eq!(one.scenario.cluster.gpus, 2);
    // a mode of something is no task
    let mode = read("model_name: Qwen/Qwen2.5-7B\nbatch_size: 4\nmode: selective\n");
    assert_eq!((mode.scenario.task, left(&mode)), (Scenario::default().task, vec!["mode: selective"]));
}

/// transformers' arguments take DeepSpeed's file as its path or as what is in it.
#[test]
fn deepspeeds_file_among_the_arguments_is_read() {
    let text = "{\"model_name_or_path\": \"Qwen/Qwen2.5-14B\", \"per_device_train_batch_size\": 2, \"gradient_accumulation_steps\": 16, \"bf16\": true, \
                \"deepspeed\": {\"zero_optimization\": {\"stage\": 2, \"offload_optimizer\": {\"device\": \"cpu\"}}, \"bf16\": {\"enabled\": true}, \
                \"gradient_accumulation_steps\": \"auto\"}}";
    let understood = read_over(text, |base| base.change(|base| base.cluster.gpus = 8));
    let cluster = understood.scenario.cluster;
    assert_eq!((cluster.sharding, cluster.cpu, cluster.gpus), (Sharding::Zero2, CpuOffload::Optimizer, 8));
    assert_eq!((understood.scenario.accumulation, left(&understood)), (16, vec![]));
    let script =
        read("args = TrainingArguments(bf16=True, deepspeed={\"zero_optimization\": {\"stage\": 3}})");
    assert_eq!(script.scenario.cluster.sharding, Sharding::Zero3);
}

/// axolotl's GPUs are those of every dimension of its mesh; what is not followed has no answer.
#[test]
fn every_dimension_of_axolotls_mesh_counts() {
    let text = "base_model: Qwen/Qwen3-32B\nfsdp_version: 2\nfsdp_config:\n  cpu_ram_efficient_loading: true\ndp_shard_size: 2\nsequence_len: 2048\n";
    let of = |more: &str| read(&format!("{text}{more}"));
    assert_eq!(of("").scenario.cluster.gpus, 2);
    for more in [
        "context_parallel_size: 2\ntensor_parallel_size: 2\n",
        "context_parallel_size: 4\n",
        "tensor_parallel_size: 4\n",
    ] {
        let understood = of(more);
        assert_eq!(understood.scenario.cluster.gpus, 8, "{more}");
        assert!(!refused(&understood.scenario).is_empty(), "{more}");
    }
    let ones = of("context_parallel_size: 1\ntensor_parallel_size: 1\n");
    assert_eq!((ones.scenario.cluster.gpus, left(&ones)), (2, vec![]));
}

/// LLaMA-Factory's examples/megatron/qwen3_moe_full.yaml, whose first comment is what it was seen to take: 8 × 78 GB.
#[test]
fn llama_factorys_megatron_keeps_its_model_and_batch() {
    let text = "model_name_or_path: Qwen/Qwen3-30B-A3B-Instruct-2507\n\n# GPU memory: 8 * 78GB\ndo_train: true\nstage: sft\nfinetuning_type: full\n\
                template: qwen3_nothink\ncutoff_len: 4096\nper_device_train_batch_size: 1\ngradient_accumulation_steps: 8\nbf16: true\n\
                tensor_model_parallel_size: 1\nsequence_parallel: false\npipeline_model_parallel_size: 4\nuse_distributed_optimizer: true\n\
                expert_model_parallel_size: 2\nrecompute_granularity: full\n";
    let understood = read(text);
    let scenario = &understood.scenario;
    assert_eq!(scenario.model_name(), "Qwen/Qwen3-30B-A3B-Instruct-2507");
    assert_eq!((scenario.sequence, scenario.batch, scenario.accumulation), (4096, 1, 8));
    assert_eq!((scenario.stack, scenario.cluster.gpus, scenario.method), (Stack::Megatron, 8, Method::Full));
    let gib = needed(scenario) as f64 / f64::from(1 << 30);
    assert!((65.0..78.0).contains(&gib), "{gib}");
    // adapters are none of Megatron-core's: no answer
    let lora = read(&text.replace("finetuning_type: full", "finetuning_type: lora"));
    assert!(refused(&lora.scenario).contains("adapters"), "{}", refused(&lora.scenario));
}

/// What divides a model has two GPUs at least; what only copies it may run on one.
#[test]
fn shards_without_a_number_are_on_two_gpus() {
    let axolotl = "base_model: Qwen/Qwen3-8B\nbf16: true\nsequence_len: 512\nfsdp_version: 2\nfsdp_config:\n  cpu_ram_efficient_loading: true\n";
    let understood = read(axolotl);
    assert_eq!((understood.scenario.cluster.gpus, left(&understood)), (2, vec!["the number of GPUs"]));
    assert!(understood.kept().is_empty(), "{:?}", understood.kept());
    let zero = read("{\"zero_optimization\": {\"stage\": 3}}");
    assert_eq!(zero.scenario.cluster.gpus, 2);
    // as its launch says in the first comments, or as it was
    let launched =
        read(&format!("# accelerate launch --num_processes 8 -m axolotl.cli.train a.yaml\n{axolotl}"));
    assert_eq!((launched.scenario.cluster.gpus, left(&launched)), (8, vec![]));
    let before = read_over(axolotl, |base| base.change(|base| base.cluster.gpus = 4));
    assert_eq!((before.scenario.cluster.gpus, left(&before)), (4, vec![]));
    let copies = read("distributed_type: MULTI_GPU\ncompute_environment: LOCAL_MACHINE\n");
    assert_eq!(copies.scenario.cluster.gpus, 1);
}

/// run_train.sh starts 8 processes, of which the replicas and what shares layers are parts.
#[test]
fn degrees_of_torchtitans_mesh_are_understood() {
    let file = |rest: &str| {
        format!(
            "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nlocal_batch_size = 1\nseq_len = 4096\n{rest}"
        )
    };
    let mesh = "[parallelism]\ndata_parallel_replicate_degree = 2\ndata_parallel_shard_degree = -1\ntensor_parallel_degree = 2\n";
    let one = read(&file(mesh));
    let cluster = one.scenario.cluster;
    assert_eq!((cluster.gpus, cluster.replicas, cluster.layout.tensor), (8, 2, 2));
    assert!(!one.idle.iter().any(|idle| idle.contains("degree")), "{:?}", one.idle);
    for (rest, said) in [
        ("[optimizer]\nname = \"Adam\"\n", "optimizer.name"),
        ("[activation_checkpoint]\nmode = \"full\"\nearly_stop = true\n", "early_stop"),
    ] {
        let one = read(&file(rest));
        assert!(left(&one).iter().any(|left| left.contains(said)), "{rest}: {:?}", left(&one));
    }
}
