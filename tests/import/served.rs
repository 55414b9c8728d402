//! vLLM: the command that serves a model, its file, and its class in Python.

use headroom::import::{self, Format};
use headroom::plan::{Room, Share, serving};
use headroom::scenario::{GpuChoice, Method, Precision, Scenario, ServedCache, Stack, Task, WeightFormat};
use headroom::share;

use crate::{left, read};

/// Of vLLM's README and documentation, with the scenario that each is over the default one.
#[test]
fn commands_of_its_documentation_are_read() {
    for (text, link) in [
        (
            "vllm serve Qwen/Qwen2.5-1.5B-Instruct",
            "m=Qwen/Qwen2.5-1.5B-Instruct&method=full&p=bf16&s=32256&vllm=92",
        ),
        (
            "vllm serve Qwen/Qwen3-8B --max-model-len 8192 --gpu-memory-utilization 0.9 --max-num-seqs 64 --max-num-batched-tokens 4k --kv-cache-dtype fp8",
            "m=Qwen/Qwen3-8B&method=full&p=bf16&b=64&s=7680&vllm=90&vtokens=4000&vseqs=64&vkv=fp8",
        ),
        (
            "docker run --runtime nvidia --gpus all \\\n    -v ~/.cache/huggingface:/root/.cache/huggingface \\\n    --env \"HF_TOKEN=$HF_TOKEN\" \\\n    \
             -p 8000:8000 \\\n    --ipc=host \\\n    vllm/vllm-openai:latest \\\n    --model Qwen/Qwen3-0.6B --max_model_len 8K",
            "m=Qwen/Qwen3-0.6B&method=full&p=bf16&s=7680&vllm=92",
        ),
        (
            "python -m vllm.entrypoints.openai.api_server --model=Qwen/Qwen3-8B --dtype half -tp=2 --max-model-len 4096",
            "m=Qwen/Qwen3-8B&method=full&p=fp16&s=3584&gpus=2&vllm=92",
        ),
        (
            "model: Qwen/Qwen3-8B\nhost: 127.0.0.1\nport: 6379\nuvicorn-log-level: info\nmax-model-len: 4096\ngpu-memory-utilization: 0.8",
            "m=Qwen/Qwen3-8B&method=full&p=bf16&s=3584&vllm=80",
        ),
    ] {
        let understood = read(text);
        assert_eq!(understood.format, Format::Vllm, "{text}");
        let found = share::encode(std::slice::from_ref(&understood.scenario));
        assert_eq!(found.trim_start_matches("v=1&task=generate&"), link, "{text}");
        assert_eq!(left(&understood), Vec::<&str>::new(), "{text}");
    }
}

#[test]
fn each_setting_stands_once() {
    let text = "CUDA_VISIBLE_DEVICES=0 vllm serve --enforce-eager Qwen/Qwen3-8B --max-model-len 4096 --no-enable-prefix-caching --served-model-name a b \
                --speculative-config '{\"method\": \"ngram\"}' --cpu-offload-gb 4 --enable-lora --block-size 32 --pipeline-parallel-size 2 --foo 3 \
                --limit-mm-per-prompt '{\"image\": 1}' --quantization fp8 --host 0.0.0.0 --kv-cache-dtype nvfp4";
    let understood = read(text);
    let of = |name: &str| {
        let said = understood.taken.iter().map(|one| &one.said).chain(&understood.idle);
        said.chain(understood.left.iter().map(|one| &one.said)).filter(|said| said.starts_with(name)).count()
    };
    for name in [
        "CUDA_VISIBLE_DEVICES",
        "enforce_eager",
        "model",
        "max_model_len",
        "enable_prefix_caching",
        "served_model_name",
        "speculative_config",
        "cpu_offload_gb",
        "enable_lora",
        "block_size",
        "pipeline_parallel_size",
        "foo",
        "limit_mm_per_prompt",
        "quantization",
        "host",
        "kv_cache_dtype",
    ] {
        assert_eq!(of(name), 1, "{name}: {understood:#?}");
    }
    assert_eq!(understood.scenario.model_name(), "Qwen/Qwen3-8B");
    let misread: Vec<_> =
        understood.left.iter().filter(|left| left.is_misread).map(|left| left.said.as_str()).collect();
    assert_eq!(misread, ["quantization: fp8", "pipeline_parallel_size: 2", "kv_cache_dtype: nvfp4"]);
    let why = |name: &str| {
        let found = understood.left.iter().find(|left| left.said.starts_with(name)).expect(name);
        found.why.clone()
    };
    assert!(why("enforce_eager").contains("CUDA graphs"), "{}", why("enforce_eager"));
    assert_eq!(why("foo"), "this setting is not known here");
}

#[test]
fn weights_are_in_the_format_that_is_asked_for_or_that_the_name_says() {
    for (text, format) in [
        ("vllm serve Qwen/Qwen2.5-7B-Instruct-AWQ", Some(WeightFormat::Awq4)),
        (
            "vllm serve Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4 --quantization gptq_marlin",
            Some(WeightFormat::Gptq4),
        ),
        (
            "vllm serve Qwen/Qwen2.5-7B-Instruct -q bitsandbytes --load-format bitsandbytes",
            Some(WeightFormat::Nf4),
        ),
        ("vllm serve Qwen/Qwen2.5-7B-Instruct --quantization None", None),
    ] {
        let understood = read(text);
        let scenario = &understood.scenario;
        assert_eq!(scenario.model_name(), "Qwen/Qwen2.5-7B-Instruct", "{text}");
        let found = (scenario.method == Method::Qlora).then_some(scenario.quantization.format);
        assert_eq!((found, left(&understood)), (format, vec![]), "{text}");
    }
    // of which a scenario has no weights: the table of formats has
    let eight = read("vllm serve RedHatAI/Qwen2.5-7B-Instruct-FP8");
    assert_eq!((eight.scenario.method, eight.left.len()), (Method::Full, 1), "{:?}", eight.left);
}

/// vLLM's quickstart; the class is told larger numbers than the server where it is told none.
#[test]
fn its_class_in_python_is_read() {
    let text = "from vllm import LLM, SamplingParams\n\nprompts = [\n    \"Hello, my name is\",\n    \"The president of the United States is\",\n    \
                \"The capital of France is\",\n    \"The future of AI is\",\n]\n\
                sampling_params = SamplingParams(temperature=0.8, top_p=0.95, max_tokens=256)\n\
                llm = LLM(model=\"facebook/opt-125m\", max_model_len=2048, gpu_memory_utilization=0.9)\n\
                outputs = llm.generate(prompts, sampling_params)\n";
    let understood = read(text);
    let scenario = &understood.scenario;
    assert_eq!((understood.format, scenario.task), (Format::Vllm, Task::Generate));
    assert_eq!((scenario.batch, scenario.sequence, scenario.generation.new_tokens), (4, 1792, 256));
    assert_eq!((scenario.serving.batched_tokens, scenario.reserve.vllm), (8192, 90));
    assert_eq!(left(&understood), Vec::<&str>::new());
    let large = Scenario { gpu: GpuChoice::Catalogue("h100-sxm-80gb".into()), ..Scenario::default() };
    let found = import::read(text, &large).expect(text).scenario;
    assert_eq!(Share::of(&found).map(|share| (share.tokens, share.sequences)), Ok((16_384, 1024)));
    // all of two sequences together are fewer
    let few =
        import::read(&text.replace("max_model_len", "max_num_seqs=2, max_model_len"), &large).expect(text);
    assert_eq!(few.scenario.serving.batched_tokens, 2 * 2048);
    // what trains with vLLM beside it is no server
    let trains =
        format!("{text}\ntrainer = GRPOTrainer(model='Qwen/Qwen3-0.6B', args=GRPOConfig(bf16=True))");
    assert_eq!(read(&trains).scenario.task, Task::Grpo);
}

/// A whole prompt at a time where chunks are off (`get_batch_defaults` and what follows it).
#[test]
fn prompts_that_are_not_cut_are_computed_at_once() {
    let text = "vllm serve Qwen/Qwen3-8B --max-model-len 16384 --kv-cache-dtype fp8_e5m2 --dtype bfloat16";
    let scenario = read(&format!("{text} --no-enable-chunked-prefill")).scenario;
    assert_eq!(scenario.serving.batched_tokens, 16_384);
    assert_eq!((scenario.serving.cache, scenario.precision), (ServedCache::Fp8, Precision::Bf16));
    assert_eq!(read(text).scenario.serving.batched_tokens, 0);
}

/// What it is told changes what is left for keys and values.
#[test]
fn the_answer_follows() {
    let tokens = |more: &str| {
        let text = format!("vllm serve Qwen/Qwen3-8B --max-model-len 4096 {more}");
        let rows = serving(&read(&text).scenario).expect(&text);
        let Room::Tokens { tokens: [least, _], .. } = rows[1].room else {
            panic!("{more}: {:?}", rows[1].room)
        };
        (least, rows[1].start.expect(more).longest)
    };
    let (usual, longest) = tokens("");
    assert!(tokens("--gpu-memory-utilization 0.95").0 > usual);
    assert!(tokens("--max-num-batched-tokens 8192").0 < usual);
    assert!(tokens("--max-num-seqs 1024").0 < usual);
    // its own context
    assert!(longest < 40_960 && tokens("--kv-cache-dtype fp8").1 == 40_960);
}

#[test]
fn what_serves_nothing_is_not_read() {
    for text in [
        "You can use vllm serve to deploy it",
        "pip install vllm",
        "vllm bench latency --model Qwen/Qwen3-8B",
        "import vllm\nprint('x')",
    ] {
        let found = import::read(text, &Scenario::default());
        assert!(found.as_ref().map_or(true, |found| found.format != Format::Vllm), "{text}: {found:?}");
    }
    let file = "model_name_or_path: Qwen/Qwen3-0.6B\nuse_vllm: true\nvllm_mode: colocate\nmax_model_len: 2048\nnum_generations: 8";
    assert_eq!(read(file).format, Format::Trl);
    let two = read("vllm serve Qwen/Qwen3-8B --port 1 &\nvllm serve Qwen/Qwen3-4B --port 2 > log 2>&1 &\n");
    assert_eq!(
        (two.scenario.model_name().as_str(), left(&two)),
        ("Qwen/Qwen3-8B", vec!["vllm serve Qwen/Qwen3-4B"])
    );
    let named = read("vllm serve Qwen/Qwen3-8B --config config.yaml");
    assert_eq!(left(&named), ["config: config.yaml"]);
}

/// A server beside a training answers or judges: what trains is read, and the server is not.
#[test]
fn what_trains_is_read_before_what_serves() {
    let server = "CUDA_VISIBLE_DEVICES=0 vllm serve Qwen/Qwen3-32B-AWQ --port 8000 &\nsleep 60\n";
    let training = "torchrun --nproc_per_node 2 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 \
                    --max-position-embeddings 4096 --micro-batch-size 1 --tensor-model-parallel-size 2\n";
    let both = read(&format!("{server}{training}"));
    assert_eq!(
        (both.scenario.task, both.scenario.stack, both.scenario.cluster.gpus),
        (Task::Sft, Stack::Megatron, 2)
    );
    let judged = read(
        "from vllm import LLM\njudge = LLM(\"Qwen/Qwen3-8B\")\nmodel = AutoModelForCausalLM.from_pretrained(\"Qwen/Qwen3-0.6B\")\n\
         optimizer = torch.optim.AdamW(model.parameters())\nfor batch in loader:\n    loss = model(**batch).loss\n    loss.backward()\n    optimizer.step()\n",
    );
    assert_eq!(
        (judged.scenario.task, judged.scenario.model.name()),
        (Task::Sft, "Qwen/Qwen3-0.6B".to_owned())
    );
}

/// A share of less than a hundredth is none that is followed, and not the default that 0 stands for.
#[test]
fn a_share_of_less_than_a_hundredth_is_told() {
    let text = "vllm serve Qwen/Qwen3-8B --gpu-memory-utilization 0.009";
    let understood = read(text);
    assert!(
        understood.left.iter().any(|left| left.why.contains("less than a hundredth")),
        "{:?}",
        understood.left
    );
}
