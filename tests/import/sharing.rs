//! How a text says that GPUs share a model.

use headroom::estimate;
use headroom::import::{self};
use headroom::scenario::{
    Compile, CpuOffload, LoraTargets, Mask, Optimizer, Precision, ReduceDtype, Scenario, ShardedLayers,
    Sharding, Stack, WrappedBy,
};

use crate::{left, read, read_over};

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
    // of another device every line is listed
    let nvme = read(&format!("\"offload_optimizer\": {{\"device\": \"nvme\"}}, {weights}"));
    assert_eq!((nvme.scenario.cluster.cpu, nvme.left.len()), (CpuOffload::Off, 2), "{:?}", nvme.left);
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
    assert!(!scenario.cluster.bucket_views);
    let (scenario, _) = of("m = DDP(m, device_ids=[rank], gradient_as_bucket_view=True)", 4);
    assert_eq!((scenario.cluster.sharding, scenario.cluster.bucket_views), (Sharding::Ddp, true));
    let (scenario, _) = of("how = DistributedDataParallelKwargs(gradient_as_bucket_view=True)", 4);
    assert!(scenario.cluster.bucket_views);
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
    assert_eq!(
        wrapped("  reshard_after_forward: true\n"),
        (WrappedBy::Accelerate, Precision::AmpBf16Weights)
    );
    let four_bit = read(&yaml("fsdp_version: 2\nadapter: qlora\nlora_r: 8\n"));
    assert_eq!(four_bit.scenario.cluster.wrapped_by, WrappedBy::Accelerate);
    assert!(estimate(&four_bit.scenario).memory.is_some());
    assert!(four_bit.assumed.iter().any(|assumed| assumed.why.contains("a function of its own")));
    // each GPU has the whole model otherwise
    let whole = read("base_model: Qwen/Qwen3-8B\ndp_shard_size: 4\nfsdp_version: 2\n");
    assert_eq!(left(&whole), ["fsdp_config.cpu_ram_efficient_loading (off by default)"]);
    let pure = read("base_model: Qwen/Qwen3-8B\nbf16: full\n");
    assert_eq!(pure.scenario.precision, Precision::Bf16);
}

/// transformers' own plan divides axolotl's models, where nothing else does; a mesh of accelerate's has copies beside its shards.
#[test]
fn layers_and_copies_are_read_from_a_mesh() {
    let axolotl = "base_model: Qwen/Qwen3-8B\nbf16: true\nsequence_len: 512\n";
    let alone = read(&format!("{axolotl}tensor_parallel_size: 4\n"));
    let cluster = alone.scenario.cluster;
    assert_eq!((cluster.gpus, cluster.layout.tensor, left(&alone)), (4, 4, vec![]));
    let sharded = read(&format!(
        "{axolotl}dp_shard_size: 4\nfsdp_version: 2\nfsdp_config:\n  cpu_ram_efficient_loading: true\ntensor_parallel_size: 2\n"
    ));
    assert_eq!(
        (sharded.scenario.cluster.layout.tensor, sharded.scenario.cluster.gpus, left(&sharded)),
        (2, 8, vec![])
    );
    assert!(
        estimate(&sharded.scenario).memory.is_none(),
        "axolotl's shards of shared layers are not followed"
    );
    let accelerate = "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nnum_processes: 8\nfsdp_config:\n  fsdp_version: 2\n\
                      parallelism_config:\n  parallelism_config_dp_replicate_size: 2\n  parallelism_config_dp_shard_size: 4\n  parallelism_config_cp_size: 1\n";
    let copies = read(accelerate);
    let cluster = copies.scenario.cluster;
    assert_eq!((cluster.gpus, cluster.replicas, left(&copies)), (8, 2, vec![]));
    assert!(estimate(&copies.scenario).memory.is_some());
}

/// A call says how many GPUs there are where no launcher does. The first FSDP has copies as a strategy, one for each machine, and the second
/// reads no strategy.
#[test]
fn copies_of_shards_are_read_where_they_are_said() {
    let call = "args = SFTConfig(fsdp=True, bf16=True, parallelism_config=ParallelismConfig(dp_replicate_size=2, dp_shard_size=4))";
    let script = read(call);
    let cluster = script.scenario.cluster;
    assert_eq!((cluster.gpus, cluster.replicas, cluster.sharding), (8, 2, Sharding::Fsdp2));
    assert_eq!(left(&script), [""; 0]);
    let whole =
        read("args = SFTConfig(bf16=True, parallelism_config=ParallelismConfig(dp_replicate_size=8))");
    assert_eq!(whole.scenario.cluster.replicas, 1, "copies of a whole model are DDP's");
    let first = |rest: &str| {
        read(&format!(
            "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nnum_processes: 16\n\
             fsdp_config:\n  fsdp_version: 1\n  fsdp_sharding_strategy: HYBRID_SHARD\n{rest}"
        ))
    };
    let told = |rest: &str| {
        let read = first(rest);
        (read.scenario.cluster.replicas, left(&read).iter().any(|left| left.contains("HYBRID")))
    };
    assert_eq!(told("num_machines: 2\n"), (2, false));
    assert_eq!(told("num_machines: 1\n"), (1, false));
    assert_eq!(told(""), (1, true));
    let second = read(
        "distributed_type: FSDP\nnum_processes: 16\nnum_machines: 2\nfsdp_config:\n  fsdp_version: 2\n  fsdp_sharding_strategy: HYBRID_SHARD\n",
    );
    assert_eq!(second.scenario.cluster.replicas, 1);
    assert!(second.left.iter().any(|left| left.why.contains("dp_replicate_size")), "{:?}", left(&second));
}

/// accelerate launches one process as it launches several: FSDP2 wraps the model there, too. Where nothing says how many there are, there are two.
#[test]
fn one_process_is_wrapped_as_several_are() {
    let alone = |rest: &str| {
        let text = format!("compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\n{rest}");
        let cluster = read(&text).scenario.cluster;
        (cluster.gpus, cluster.shards_alone)
    };
    assert_eq!(alone("num_processes: 1\nfsdp_config:\n  fsdp_version: 2\n"), (1, true));
    assert_eq!(alone("num_processes: 2\nfsdp_config:\n  fsdp_version: 2\n"), (2, false));
    assert_eq!(alone("num_processes: 1\nfsdp_config:\n  fsdp_version: 1\n"), (1, false));
    assert_eq!(alone("fsdp_config:\n  fsdp_version: 2\n"), (2, false));
}

/// torchtune's command puts what it is given over the recipe that it names, which is another file.
#[test]
fn what_tune_run_overrides_is_read() {
    let understood = read(
        "tune run lora_finetune_single_device --config my_recipe.yaml batch_size=4 gradient_accumulation_steps=2 \
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

/// What accelerate compiles is no `layer.compile()` of the decoder's layers alone: it is named, and nothing is assumed.
#[test]
fn what_accelerate_compiles_is_named() {
    let file = "compute_environment: LOCAL_MACHINE\ndistributed_type: 'NO'\nmixed_precision: bf16\nnum_processes: 1\n";
    let with = |rest: &str| read(&format!("{file}{rest}"));
    for (lines, said) in [
        ("dynamo_backend: 'no'\n", None),
        ("dynamo_backend: INDUCTOR\n", Some("dynamo_backend")),
        ("dynamo_config:\n  dynamo_backend: INDUCTOR\n  dynamo_mode: default\n", Some("dynamo_backend")),
        (
            "dynamo_config:\n  dynamo_backend: INDUCTOR\n  dynamo_use_regional_compilation: true\n",
            Some("use_regional_compilation"),
        ),
    ] {
        let understood = with(lines);
        assert_eq!(understood.scenario.compile, Compile::Off, "{lines}");
        let left = left(&understood);
        assert_eq!(
            left.iter().any(|what| said.is_some_and(|said| what.contains(said))),
            said.is_some(),
            "{left:?}"
        );
        assert!(left.iter().all(|what| !what.contains("dynamo_mode")), "{left:?}");
    }
}

/// The launcher's files that trl ships are known by their names.
#[test]
fn files_that_trl_ships_are_known() {
    let command = |file: &str, more: &str| {
        read(&format!(
            "accelerate launch --config_file examples/accelerate_configs/{file} {more}trl/scripts/sft.py --model_name_or_path Qwen/Qwen3-8B"
        ))
    };
    for (file, more, sharding, gpus) in [
        ("deepspeed_zero3.yaml", "", Sharding::Zero3, 8),
        ("zero2.yaml", "--num_processes 4 ", Sharding::Zero2, 4),
        ("fsdp2.yaml", "", Sharding::Fsdp2, 8),
        ("multi_gpu.yaml", "--num_processes 2 ", Sharding::Ddp, 2),
    ] {
        let understood = command(file, more);
        assert_eq!(understood.left, [], "{file}");
        let cluster = understood.scenario.cluster;
        assert_eq!((cluster.sharding, cluster.gpus), (sharding, gpus), "{file}");
    }
    // an option comes before what the file says
    let stage = command("deepspeed_zero2.yaml", "--zero_stage 3 ");
    assert_eq!(stage.scenario.cluster.sharding, Sharding::Zero3);
    // a file of such a name that lies elsewhere is the user's own
    let elsewhere = read(
        "accelerate launch --config_file mine/zero3.yaml trl/scripts/sft.py --model_name_or_path Qwen/Qwen3-8B",
    );
    assert!(elsewhere.left.iter().any(|left| left.said.contains("mine/zero3.yaml")), "{:?}", elsewhere.left);
    // what a name says of an engine is assumed until the file is read
    for (file, sharding) in [
        ("ds3.json", Sharding::Zero3),
        ("cfg/my_zero_2.json", Sharding::Zero2),
        ("ds_config_stage3.json", Sharding::Zero3),
        ("mine.json", Sharding::Ddp),
        ("words2.json", Sharding::Ddp),
        ("fields3.json", Sharding::Ddp),
    ] {
        let launched = read(&format!(
            "deepspeed --num_gpus 8 train.py --deepspeed {file} --model_name_or_path Qwen/Qwen3-8B --bf16 True"
        ));
        assert_eq!(launched.scenario.cluster.sharding, sharding, "{file}");
        assert!(launched.left.iter().any(|left| left.said.contains(file)), "{file}: {:?}", launched.left);
    }
    let own = command("mine.yaml", "");
    assert!(own.left.iter().any(|left| left.said.contains("mine.yaml")), "{:?}", own.left);
    let named = read("trl dpo --accelerate_config zero3 --model_name_or_path Qwen/Qwen3-8B");
    assert_eq!((named.scenario.cluster.sharding, named.left), (Sharding::Zero3, Vec::new()));
}

/// Who wraps a model is what this text says of it, whatever was read before.
#[test]
fn who_wraps_a_model_is_not_kept_from_before() {
    let base = |settings: &str| headroom::share::decode(settings).scenarios.remove(0);
    let axolotl = base(
        "v=1&m=Qwen/Qwen3-0.6B&method=lora&p=amp-bf16-weights&gpus=2&shard=fsdp2&wrap=axolotl&tp=2&replicas=2",
    );
    let plain = base("v=1&m=Qwen/Qwen3-0.6B");
    let file = "base_model: Qwen/Qwen3-0.6B\nbf16: auto\nnum_processes: 4\nfsdp_version: 2\nfsdp_config:\n  cpu_ram_efficient_loading: true\n";
    let script = "from transformers import Trainer, TrainingArguments\n\
                  args = TrainingArguments(\"out\", bf16=True, fsdp=\"full_shard\", fsdp_config={\"version\": 2})\n\
                  trainer = Trainer(model=model, args=args)\ntrainer.train()\n";
    for (text, wrapper) in [
        (format!("{file}adapter: lora\nlora_r: 8\n"), WrappedBy::Axolotl),
        (format!("{file}adapter: qlora\nload_in_4bit: true\nlora_r: 8\n"), WrappedBy::Accelerate),
        (script.to_owned(), WrappedBy::Accelerate),
    ] {
        for base in [&plain, &axolotl] {
            let read = import::read(&text, base).expect("it is understood");
            assert_eq!(read.scenario.cluster.wrapped_by, wrapper, "{text}");
            if wrapper == WrappedBy::Axolotl {
                assert_eq!(
                    (read.scenario.cluster.layout.tensor, read.scenario.cluster.replicas),
                    (1, 1),
                    "{text}"
                );
            }
        }
    }
}

/// Sequences that GPUs share are PyTorch's ring where accelerate has it, and no other's.
#[test]
fn sequences_that_gpus_share_are_read_where_they_are_followed() {
    let mesh = |sizes: &str| {
        format!(
            "distributed_type: FSDP\nnum_processes: 8\nfsdp_config:\n  fsdp_version: 2\nparallelism_config:\n{sizes}"
        )
    };
    let ring = read(&mesh(
        "  parallelism_config_dp_shard_size: 2\n  parallelism_config_cp_size: 4\n  parallelism_config_cp_comm_strategy: allgather\n",
    ));
    let cluster = ring.scenario.cluster;
    assert_eq!((cluster.gpus, cluster.layout.context, left(&ring)), (8, 4, vec![]));
    assert_eq!((ring.scenario.mask, cluster.wrapped_by), (Mask::Ones, WrappedBy::Accelerate));
    assert!(estimate(&ring.scenario).memory.is_some());
    let passed_on =
        read(&mesh("  parallelism_config_cp_size: 8\n  parallelism_config_cp_comm_strategy: alltoall\n"));
    assert!(left(&passed_on).iter().any(|left| left.contains("alltoall")));
    let ulysses = read(&mesh("  parallelism_config_sp_size: 8\n"));
    assert!(left(&ulysses).iter().any(|left| left.contains("sp_size")));
    assert!(estimate(&ulysses.scenario).memory.is_none());
    let call = read(
        "args = TrainingArguments(fsdp=True, bf16=True, parallelism_config=ParallelismConfig(cp_size=4))",
    );
    assert_eq!((call.scenario.cluster.gpus, call.scenario.cluster.layout.context), (4, 4));
}
