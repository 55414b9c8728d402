//! Arguments of Megatron-LM: what is understood of them, and that it is what ran where Megatron-LM's own tests say what it took.

#![cfg(not(target_arch = "wasm32"))]

use std::collections::HashMap;

use headroom::estimate;
use headroom::import::{self, Format, Understood};
use headroom::scenario::{
    AttentionKernel, Checkpointing, ContextComm, LossKernel, ModelChoice, Optimizer, Precision, ReduceDtype,
    Scenario, Sharding, Split, Stack, TransformerImpl,
};
use headroom::share;
use serde_json::{Map, Value};

fn read(text: &str) -> Understood {
    over(text, &Scenario::default())
}

fn over(text: &str, base: &Scenario) -> Understood {
    let understood = import::read(text, base).unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!(understood.format, Format::Megatron, "{text}");
    understood
}

fn left(understood: &Understood) -> Vec<&str> {
    understood.left.iter().map(|left| left.said.as_str()).collect()
}

/// Llama-3-8B's dimensions.
const LLAMA: &str = "--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 --group-query-attention \
    --num-query-groups 8 --swiglu --normalization RMSNorm --disable-bias-linear --position-embedding-type rope --vocab-size 128256 \
    --untie-embeddings-and-output-weights --attention-dropout 0 --hidden-dropout 0 --max-position-embeddings 8192 --bf16 \
    --no-create-attention-mask-in-dataloader";

#[test]
fn a_command_is_read() {
    let text = format!(
        "torchrun --nproc_per_node 8 --nnodes 4 pretrain_gpt.py --tensor-model-parallel-size 2 --pipeline-model-parallel-size 4 \
         --num-layers-per-virtual-pipeline-stage 2 --sequence-parallel --micro-batch-size 1 --global-batch-size 128 --seq-length 4096 {LLAMA} \
         --use-distributed-optimizer --recompute-granularity full --recompute-method uniform --recompute-num-layers 1 --lr 1e-4 \
         --cross-entropy-loss-fusion --cross-entropy-fusion-impl te --grad-reduce-in-bf16 --data-path 0.5 a 0.5 b"
    );
    let understood = read(&text);
    let scenario = &understood.scenario;
    assert_eq!(left(&understood), [""; 0]);
    assert_eq!((scenario.stack, scenario.optimizer), (Stack::Megatron, Optimizer::AdamW));
    assert_eq!(scenario.precision, Precision::AmpBf16Weights);
    assert_eq!((scenario.batch, scenario.accumulation, scenario.sequence), (1, 32, 4096));
    assert_eq!(
        (scenario.checkpointing, scenario.savings.loss),
        (Checkpointing::NonReentrant, LossKernel::TransformerEngine)
    );
    assert_eq!(scenario.attention, AttentionKernel::Cudnn);
    let cluster = scenario.cluster;
    assert_eq!(
        (cluster.gpus, cluster.sharding, cluster.reduce),
        (32, Sharding::Distributed, ReduceDtype::Bf16)
    );
    let layout = cluster.layout;
    assert_eq!((layout.tensor, layout.pipeline, layout.interleaved), (2, 4, 2));
    assert!(layout.sequence && layout.fuses_gradients);
    assert_eq!(layout.layers, TransformerImpl::TransformerEngine);
    // Llama-3-8B's own parameters; the vocabulary is a multiple of 256 as it is
    let parameters = scenario.architecture().expect("a model").parameters();
    assert_eq!(parameters, 8_030_261_248);
    estimate(scenario).memory.expect("it is followed");
}

/// Every argument that changes memory is applied, or listed with the reason.
#[test]
fn what_is_not_followed_is_listed() {
    for argument in [
        "--fp8-format hybrid",
        "--pipeline-model-parallel-layout Et*3|(tt|)*29,m|L",
        "--cross-entropy-loss-fusion --cross-entropy-fusion-impl linear",
        "--use-megatron-fsdp",
        "--num-distributed-optimizer-instances 2",
        "--microbatch-group-size-per-virtual-pipeline-stage 8",
        "--optimizer-cpu-offload",
        "--exp-avg-dtype bf16",
        "--mtp-num-layers 1",
        "--tp-comm-overlap",
        "--optimizer muon",
        "--recompute-granularity selective --recompute-modules core_attn mlp",
        "--recompute-granularity full --recompute-method block --recompute-num-layers 4",
        "--empty-unused-memory-level 1",
        "--cuda-graph-impl local",
        "--something-new 3",
    ] {
        let understood = read(&format!("pretrain_gpt.py --tensor-model-parallel-size 1 {LLAMA} {argument}"));
        assert!(!left(&understood).is_empty(), "{argument}");
    }
    // what says that nothing is otherwise is no concern
    let usual = "--num-distributed-optimizer-instances 1 --empty-unused-memory-level 0 --exp-avg-dtype fp32 --recompute-activations \
                 --recompute-modules core_attn --overlap-grad-reduce --overlap-param-gather --rampup-batch-size 16 16 100 \
                 --cross-entropy-fusion-impl te";
    let understood = read(&format!("--tensor-model-parallel-size 1 {LLAMA} {usual}"));
    assert_eq!(left(&understood), [""; 0]);
    assert_eq!(understood.scenario.checkpointing, Checkpointing::Selective);
    assert_eq!(understood.scenario.savings.loss, LossKernel::Standard);
}

/// `--cross-entropy-loss-fusion` alone is Megatron's own fused one.
#[test]
fn the_fused_loss_is_megatrons_own_unless_it_is_said() {
    for (said, loss) in [
        ("--cross-entropy-loss-fusion", LossKernel::MegatronFused),
        ("--cross-entropy-loss-fusion --cross-entropy-fusion-impl native", LossKernel::MegatronFused),
        ("--cross-entropy-loss-fusion --cross-entropy-fusion-impl te", LossKernel::TransformerEngine),
    ] {
        let understood = read(&format!("pretrain_gpt.py --tensor-model-parallel-size 1 {LLAMA} {said}"));
        assert_eq!(left(&understood), [""; 0], "{said}");
        assert_eq!(understood.scenario.savings.loss, loss, "{said}");
        estimate(&understood.scenario).memory.expect("it is followed");
    }
}

/// What Megatron-LM does where arguments say nothing, or two say different things (megatron/training/arguments.py).
#[test]
fn what_is_not_said_is_as_megatron_has_it() {
    let offload = "--optimizer-cpu-offload --optimizer-offload-fraction 0.5";
    let command =
        |more: &str| read(&format!("pretrain_gpt.py --tensor-model-parallel-size 1 {LLAMA} {more}"));
    assert_eq!(left(&command(offload)), ["optimizer_cpu_offload: true", "optimizer_offload_fraction: 0.5"]);
    // a share of nothing
    assert_eq!(left(&command("--optimizer-offload-fraction 0.5")), [""; 0]);
    // each expert on one GPU, or on all that share a layer
    let whole = "--expert-tensor-parallel-size 1";
    assert_eq!(left(&command(whole)), [""; 0]);
    let shared = read(&format!("pretrain_gpt.py --tensor-model-parallel-size 2 {LLAMA} {whole}"));
    assert_eq!(left(&shared), ["expert_tensor_parallel_size: 1"]);
    // the switch is stronger than the word
    let both = command("--recompute-granularity full --recompute-activations");
    assert_eq!(both.scenario.checkpointing, Checkpointing::Selective);
    let experts = "--multi-latent-attention --qk-layernorm --num-experts 8 --moe-grouped-gemm --moe-permute-fusion --moe-pad-expert-input-to-capacity \
                   --moe-router-pre-softmax";
    let experts = command(experts);
    assert_eq!(
        left(&experts),
        [
            "--moe-token-dispatcher-type is allgather by default",
            "--moe-router-load-balancing-type is aux_loss by default",
            "--moe-expert-capacity-factor is none by default"
        ]
    );
    let ModelChoice::Custom(model) = &experts.scenario.model else { panic!("of one's own") };
    assert!(model.config.contains("\"kv_lora_rank\":32"), "{}", model.config);
}

/// Experts beside ordinary attention are taken to be grouped products, which is not named as unknown where a command says so.
#[test]
fn grouped_products_of_experts_are_known() {
    let of = |more: &str| {
        let understood =
            read(&format!("pretrain_gpt.py --tensor-model-parallel-size 1 {LLAMA} --num-experts 8 {more}"));
        let said: Vec<String> = left(&understood).iter().map(|said| (*said).to_owned()).collect();
        said.into_iter()
            .filter(|said| said.contains("grouped") || said.contains("permute"))
            .collect::<Vec<_>>()
    };
    assert_eq!(of("--moe-grouped-gemm --moe-permute-fusion"), [""; 0]);
    let without = ["experts without both of --moe-grouped-gemm and --moe-permute-fusion"];
    assert_eq!(of("--moe-grouped-gemm"), without);
    assert_eq!(of(""), without);
}

/// Scripts as people run them: another way to name the program, what is printed into a file, a comment within a command.
#[test]
fn the_shell_around_the_arguments_is_not_taken_for_them() {
    let text = format!(
        "TP=2; PP=2\nARGS=(\n {LLAMA} \\\n # as always \\\n --use-distributed-optimizer \\\n)\ntorchrun --nproc_per_node=8 --nnodes=2 -m pretrain_gpt \
         --tensor-model-parallel-size $TP --pipeline-model-parallel-size $PP ${{ARGS[@]}} --recompute-activations 2>&1 | tee log.txt"
    );
    let understood = read(&text);
    assert_eq!(left(&understood), [""; 0]);
    let cluster = understood.scenario.cluster;
    assert_eq!((cluster.gpus, cluster.sharding), (16, Sharding::Distributed));
    assert_eq!((cluster.layout.tensor, cluster.layout.pipeline), (2, 2));
    assert_eq!(understood.scenario.checkpointing, Checkpointing::Selective);
}

/// What would be answered as if it were something else is said.
#[test]
fn what_is_read_as_something_else_is_listed() {
    let of = |program: &str, more: &str| {
        let understood = read(&format!(
            "torchrun --nproc_per_node 8 {program} --tensor-model-parallel-size 2 {LLAMA} {more}"
        ));
        left(&understood).iter().map(|said| (*said).to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(of("pretrain_gpt.py", ""), [""; 0]);
    assert_eq!(of("pretrain_bert.py", ""), ["program: pretrain_bert.py"]);
    assert_eq!(of("pretrain_gpt.py", "--use-legacy-models"), ["use_legacy_models: true"]);
    let reduces = "--ddp-reduce-scatter-with-fp32-accumulation";
    assert_eq!(of("pretrain_gpt.py", reduces), ["ddp_reduce_scatter_with_fp32_accumulation: true"]);
    assert_eq!(of("pretrain_gpt.py", "--qk-layernorm --add-qkv-bias"), ["--add-qkv-bias"]);
    let experts = "--multi-latent-attention --num-experts 8 --moe-ffn-hidden-size 1408 --moe-shared-expert-intermediate-size 2000 \
                   --moe-layer-freq ([0]*1+[1]*20)";
    let said = of("pretrain_gpt.py", experts);
    for wanted in [
        "latent attention without --qk-layernorm",
        "--moe-shared-expert-intermediate-size 2000",
        "moe_layer_freq: ([0]*1+[1]*20)",
    ] {
        assert!(said.iter().any(|said| said == wanted), "{wanted}: {said:?}");
    }
    // more GPUs share the model than there are
    let many = of("pretrain_gpt.py", "--pipeline-model-parallel-size 16 --global-batch-size 1536");
    assert!(many.contains(&"global_batch_size: 1536".to_owned()), "{many:?}");
    // experts of GPT-3's layers are no dense model
    let gpt = read(
        "pretrain_gpt.py --tensor-model-parallel-size 1 --bf16 --num-layers 12 --hidden-size 512 --num-attention-heads 8 --num-experts 4",
    );
    assert_eq!(gpt.scenario.model, Scenario::default().model);
    assert!(!left(&gpt).contains(&"num_experts: 4"), "{:?}", left(&gpt));
}

/// Layers that are neither GPT-3's nor Llama's are taken for the nearer ones, and each difference is said.
#[test]
fn layers_are_those_of_gpt3_or_of_llama() {
    let plain =
        "--tensor-model-parallel-size 1 --bf16 --num-layers 12 --hidden-size 512 --num-attention-heads 8";
    let bpe =
        "--vocab-file gpt2-vocab.json --merge-file gpt2-merges.txt --no-create-attention-mask-in-dataloader";
    let gpt = read(&format!("{plain} {bpe} --attention-dropout 0 --hidden-dropout 0.2"));
    let model = gpt.scenario.architecture().expect("a model");
    assert_eq!((model.model_type.as_str(), model.vocab), ("gpt2", 50_304));
    assert_eq!(left(&gpt), ["no_create_attention_mask_in_dataloader: true"]);
    let mixed = read(&format!(
        "{plain} --vocab-size 32000 --swiglu --disable-bias-linear --position-embedding-type rope"
    ));
    assert_eq!(mixed.scenario.architecture().expect("a model").model_type, "llama");
    assert!(left(&mixed).contains(&"LayerNorm (without --normalization RMSNorm)"), "{:?}", left(&mixed));
    assert!(left(&mixed).contains(&"--hidden-dropout is 0.1 by default"));
    // norms of queries and keys are Qwen3's, biases of them Qwen2.5's, and both are answered
    for (argument, model_type) in [("--qk-layernorm", "qwen3"), ("--add-qkv-bias", "qwen2")] {
        let found = read(&format!("--tensor-model-parallel-size 2 {LLAMA} {argument}"));
        assert_eq!(found.scenario.architecture().expect("a model").model_type, model_type);
        assert_eq!(left(&found), [""; 0], "{argument}");
        estimate(&found.scenario).memory.expect("it is followed");
    }
    // a sequence goes round among GPUs unless it is said otherwise
    let ring =
        read(&format!("--tensor-model-parallel-size 2 --context-parallel-size 2 {LLAMA} --seq-length 4096"));
    assert_eq!(ring.scenario.cluster.layout.context_comm, ContextComm::P2p);
    estimate(&ring.scenario).memory.expect("it is followed");
    // without dimensions the model stays
    let none = read("--tensor-model-parallel-size 2 --bf16");
    assert_eq!(none.scenario.model, Scenario::default().model);
    assert_eq!(none.scenario.cluster.gpus, 2);
}

#[test]
fn latent_attention_and_experts_are_deepseeks() {
    let text = "torchrun --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size 1 --pipeline-model-parallel-size 1 \
        --expert-model-parallel-size 8 --num-layers 4 --hidden-size 2048 --ffn-hidden-size 10944 --num-attention-heads 16 --swiglu \
        --normalization RMSNorm --disable-bias-linear --position-embedding-type rope --multi-latent-attention --qk-layernorm --kv-lora-rank 512 \
        --qk-head-dim 128 --qk-pos-emb-head-dim 64 --v-head-dim 128 --num-experts 64 --moe-ffn-hidden-size 1408 --moe-router-topk 6 \
        --moe-shared-expert-intermediate-size 2816 --moe-layer-freq ([0]*1+[1]*3) --moe-router-num-groups 8 --moe-router-group-topk 3 \
        --moe-router-pre-softmax --moe-token-dispatcher-type alltoall --moe-router-load-balancing-type seq_aux_loss --moe-grouped-gemm \
        --moe-permute-fusion --moe-expert-capacity-factor 1 --moe-pad-expert-input-to-capacity --vocab-size 102400 \
        --untie-embeddings-and-output-weights --use-distributed-optimizer --bf16 --attention-dropout 0 --hidden-dropout 0 \
        --no-create-attention-mask-in-dataloader --micro-batch-size 1 --global-batch-size 8 --seq-length 4096";
    let hopper = share::decode("v=1&gpu=h100-sxm-80gb").scenarios.remove(0);
    let understood = over(text, &hopper);
    assert_eq!(left(&understood), [""; 0]);
    let model = understood.scenario.architecture().expect("a model");
    assert_eq!(model.model_type, "deepseek_v2");
    let answer = estimate(&understood.scenario);
    assert!(answer.memory.is_some(), "{:?}", answer.errors().collect::<Vec<_>>());
}

#[test]
fn scripts_with_arrays_are_read() {
    let text = format!(
        "#!/bin/bash\nexport CUDA_DEVICE_MAX_CONNECTIONS=1\nexport PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\nGPUS_PER_NODE=8\n\
         NUM_NODES=${{NUM_NODES:-2}}\nTP=2\nDISTRIBUTED_ARGS=(\n  --nproc_per_node $GPUS_PER_NODE\n  --nnodes $NUM_NODES\n)\nMODEL_ARGS=(\n  {}\n)\n\
         MODEL_PARALLEL_ARGS=(\n  --tensor-model-parallel-size $TP # two\n  # --pipeline-model-parallel-size 4\n  --sequence-parallel\n)\n\
         TRAINING_ARGS=\"--micro-batch-size 2 \\\n  --global-batch-size 64\"\nif [[ a == a ]]; then\n  MODEL_PARALLEL_ARGS+=(\"--seq-length 2048\")\nfi\n\
         torchrun ${{DISTRIBUTED_ARGS[@]}} pretrain_gpt.py ${{MODEL_ARGS[@]}} ${{MODEL_PARALLEL_ARGS[@]}} $TRAINING_ARGS\n",
        LLAMA.replace(" --", "\n  --")
    );
    let understood = read(&text);
    let scenario = &understood.scenario;
    assert_eq!(left(&understood), ["if …"]);
    let layout = scenario.cluster.layout;
    assert_eq!((scenario.cluster.gpus, layout.tensor, layout.pipeline), (16, 2, 1));
    assert_eq!((scenario.batch, scenario.accumulation, scenario.sequence), (2, 4, 2048));
    assert!(layout.sequence);
    let found = share::encode(std::slice::from_ref(scenario));
    assert!(found.contains("alloc=expandable"), "{found}");
}

#[test]
fn stages_are_divided_as_they_are_said() {
    let text = |more: &str| {
        read(&format!("--tensor-model-parallel-size 1 --pipeline-model-parallel-size 4 {LLAMA} {more}"))
            .scenario
            .cluster
            .layout
    };
    assert_eq!((text("").split, text("").interleaved), (Split::EVEN, 0));
    let parts = text("--num-virtual-stages-per-pipeline-rank 4");
    assert_eq!(parts.interleaved, 2);
    let ends = text("--decoder-first-pipeline-num-layers 6 --decoder-last-pipeline-num-layers 6");
    assert_eq!((ends.split.first, ends.split.last), (6, 6));
}

/// A row of Megatron-LM's tests: what it was started with, and the scenario that tools/golden.py makes of it.
fn goldens() -> Vec<(Value, Value)> {
    let started = include_str!("fixtures/megatron-arguments.json");
    let started: Vec<Value> = serde_json::from_str(started).expect("JSON");
    let measured = include_str!("../data/measurements/megatron-lm.json");
    let measured: Vec<Value> = serde_json::from_str(measured).expect("JSON");
    let mut by_id: HashMap<String, Value> =
        measured.into_iter().map(|row| (row["id"].as_str().expect("an id").to_owned(), row)).collect();
    let pair = |row: Value| {
        let known = by_id.remove(row["id"].as_str().expect("an id")).expect("it is measured");
        (row, known["reading"]["scenario"].clone())
    };
    started.into_iter().map(pair).collect()
}

fn as_yaml(row: &Value) -> String {
    let table = |name: &str, members: &Map<String, Value>| {
        let line = |(key, value): (&String, &Value)| match value {
            Value::String(text) => format!("  {key}: {text}\n"),
            other => format!("  {key}: {other}\n"),
        };
        format!("{name}:\n{}", members.iter().map(line).collect::<String>())
    };
    let variables = table("ENV_VARS", row["variables"].as_object().expect("a table"));
    let arguments = table("MODEL_ARGS", row["arguments"].as_object().expect("a table"));
    format!("{variables}{arguments}TEST_TYPE: regular\nMETRICS:\n  - \"lm loss\"\n")
}

fn as_command(row: &Value, gpus: u64) -> String {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let variables = row["variables"].as_object().expect("a table").iter();
    let variables: String = variables.map(|(name, value)| format!("{name}={} ", text(value))).collect();
    let arguments = row["arguments"].as_object().expect("a table").iter();
    let arguments = arguments.map(|(name, value)| match value {
        Value::Bool(true) => format!(" \\\n  {name}"),
        other => format!(" \\\n  {name} '{}'", text(other)),
    });
    format!("{variables}torchrun --nproc_per_node {gpus} pretrain_gpt.py{}", arguments.collect::<String>())
}

/// tools/golden.py says what ran for figures that are predicted; both readers have to say the same.
#[test]
fn megatrons_own_tests_are_read_as_they_were_predicted() {
    let goldens = goldens();
    assert!(goldens.len() >= 20, "{}", goldens.len());
    for (row, said) in goldens {
        let id = &row["id"];
        let mut expected: Scenario = serde_json::from_value(said).expect("a scenario");
        let mut base = Scenario { gpu: expected.gpu.clone(), ..Scenario::default() };
        base.cluster.gpus = expected.cluster.gpus;
        base.cluster.layout.stage = expected.cluster.layout.stage;
        // what the arguments say where nothing hangs on it
        expected.cluster.layout.context_comm = ContextComm::P2p;
        // what a run reserved no golden value says
        expected.allocator = Scenario::default().allocator;
        let link = |scenario: &Scenario| share::encode(std::slice::from_ref(scenario));
        for text in [as_yaml(&row), as_command(&row, expected.cluster.gpus)] {
            let understood = over(&text, &base);
            let mut found = understood.scenario.clone();
            found.cluster.layout.context_comm = ContextComm::P2p;
            found.allocator = expected.allocator;
            // the mask is counted in all of these, which one of them is without
            let mut open = left(&understood);
            open.retain(|said| !said.starts_with("no_create_attention_mask_in_dataloader"));
            assert_eq!(open, [""; 0], "{id}");
            assert_eq!(link(&found), link(&expected), "{id}");
            let (ModelChoice::Custom(found), ModelChoice::Custom(expected)) = (&found.model, &expected.model)
            else {
                panic!("{id}: the model is of one's own");
            };
            assert_eq!(found.architecture, expected.architecture, "{id}");
        }
    }
}

#[test]
fn a_part_of_a_text_is_no_harm() {
    let text = format!(
        "A=(\n{LLAMA} )\nTP=${{TP:-2}}\nrun --tensor-model-parallel-size $TP \"${{A[@]}}\" --moe-layer-freq '([0]*1+[1]*3)'"
    );
    for (end, _) in text.char_indices().step_by(3) {
        drop(import::read(&text[..end], &Scenario::default()));
        drop(import::read(&text[end..], &Scenario::default()));
    }
    for odd in ["0", "-1", "1e300", "x", "''", "18446744073709551615", "$A", "1 2 3"] {
        for name in [
            "num-layers",
            "hidden-size",
            "num-attention-heads",
            "tensor-model-parallel-size",
            "pipeline-model-parallel-size",
            "global-batch-size",
            "micro-batch-size",
            "seq-length",
            "num-virtual-stages-per-pipeline-rank",
            "nproc_per_node",
            "vocab-size",
            "make-vocab-size-divisible-by",
            "kv-channels",
            "num-query-groups",
            "hidden-dropout",
            "cp-comm-type",
        ] {
            let text = format!("--tensor-model-parallel-size 2 {LLAMA} --{name} {odd}");
            let understood = import::read(&text, &Scenario::default()).expect("it is Megatron's");
            drop(estimate(&understood.scenario));
        }
    }
}
