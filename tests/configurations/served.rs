//! vLLM's command: what it says, what it rests on, and that it is read back.

use super::*;
use headroom::scenario::{ServedCache, Task};

fn of(link: &str) -> Scenario {
    let shared = share::decode(&format!("v=1&task=generate&{link}"));
    assert_eq!(shared.notices, [], "{link}");
    shared.scenarios.into_iter().next().expect(link)
}

/// Over another scenario, of which only the card and what is no server's are its own.
#[test]
fn it_is_read_back_as_the_same_scenario() {
    for link in [
        "m=Qwen/Qwen3-8B&method=full&p=bf16&b=8&s=3584&vllm=90&vseqs=8",
        "m=Qwen/Qwen3-8B&method=qlora&p=fp16&b=64&s=3584&vllm=85&vseqs=64&vtokens=4096&vkv=fp8",
        "m=Qwen/Qwen3-30B-A3B&method=full&p=bf16&b=32&gpus=2&gpu=h100-sxm-80gb&vllm=95&vseqs=32",
        "m=Qwen/Qwen2.5-VL-7B-Instruct&method=full&p=bf16&b=2&s=16000&gpu=h100-sxm-80gb&vllm=92&vseqs=2",
    ] {
        let scenario = of(link);
        let written =
            configuration(&scenario, Configuration::Vllm).unwrap_or_else(|issue| panic!("{link}: {issue}"));
        assert_eq!(written.differs, Vec::<String>::new(), "{link}");
        has_known_names(Configuration::Vllm, &written.text).unwrap();
        let mut other =
            Scenario { batch: 3, sequence: 77, precision: Precision::Fp32, ..Scenario::default() };
        other.serving.cache = ServedCache::Fp8;
        for key in keys().filter(|key| ["gpu", "new-tokens", "shard"].contains(&key.name)) {
            key.copy(&mut other, &scenario);
        }
        let understood = import::read(&written.text, &other).expect(link);
        assert_eq!((understood.left.len(), understood.scenario.task), (0, Task::Generate), "{link}");
        for key in keys().filter(|key| key.matters(&scenario) && key.field != Field::Checkpointing) {
            let same = key.is_same(&scenario, &understood.scenario);
            assert!(same, "{link}: {} is {}", key.name, key.words(&understood.scenario));
        }
    }
}

#[test]
fn it_says_what_its_verdict_rests_on() {
    let written =
        configuration(&of("m=Qwen/Qwen3-8B&method=full&p=bf16&b=8&s=3584"), Configuration::Vllm).unwrap();
    for line in [
        "vllm serve Qwen/Qwen3-8B \\\n    --max-model-len 4096 \\\n    --gpu-memory-utilization 0.92 \\\n    --dtype bfloat16\n",
        "# Its share is 92 % of the card, 21.6 GiB. Weights (bf16 or fp16): 15.3 GiB.",
        "sequences of 4,096 tokens at once",
        "# Not counted: CUDA graphs",
        "# headroom serving 'v=1&task=generate&m=Qwen/Qwen3-8B",
    ] {
        assert!(written.text.contains(line), "{line}\n{}", written.text);
    }
    // how many run at once is its own choice, of which a server has many
    assert_eq!(written.differs, Vec::<String>::new());
    let long = of("m=Qwen/Qwen3-0.6B&method=full&p=bf16&s=50000");
    let long = configuration(&long, Configuration::Vllm).expect("it is written");
    assert!(long.text.contains("\nVLLM_ALLOW_LONG_MAX_MODEL_LEN=1 vllm serve"), "{}", long.text);
}

/// One's own model is served by its name, whatever the catalogue has.
#[test]
fn a_model_of_ones_own_is_served() {
    let own = "mine(hidden_size:2048,intermediate_size:5632,max_position_embeddings:8192,model_type:llama,num_attention_heads:32,num_hidden_layers:4,num_key_value_heads:4,vocab_size:32000)";
    let written = configuration(&of(&format!("m={own}&method=full&p=bf16")), Configuration::Vllm);
    let written = written.unwrap_or_else(|issue| panic!("{issue}"));
    assert!(
        written.text.contains("\nvllm serve mine \\\n") && written.differs.is_empty(),
        "{}",
        written.text
    );
}

#[test]
fn what_it_would_not_serve_is_refused() {
    for (link, why) in [
        ("task=sft", "this scenario trains one"),
        ("m=meta-llama/Llama-3.1-8B&method=full&p=bf16&s=130560", "use a sequence length of"),
        ("m=Qwen/Qwen3-32B&method=full&p=bf16", "vLLM would stop"),
        ("m=Qwen/Qwen3-8B&method=full&p=fp32", "float32"),
        ("m=7B&method=full&p=bf16", "no model that could be loaded"),
        ("m=Qwen/Qwen3-8B&method=qlora&q=awq-4&p=fp16", "of a repository that holds them"),
        ("m=google-bert/bert-base-uncased&method=full&p=bf16", "models that generate text"),
        ("m=Qwen/Qwen3-8B&method=full&p=bf16&gpu=m4-max-64gb", "NVIDIA"),
        ("m=Qwen/Qwen3-8B&method=full&p=bf16&gpu=mi300x", "NVIDIA"),
        ("m=Qwen/Qwen3-1.7B&method=full&p=bf16&gpu=t4", "compute capability 8.0"),
        ("m=facebook/opt-125m&method=full&p=bf16&s=4096", "learned 2,048 positions"),
    ] {
        let scenario = share::decode(&format!("v=1&task=generate&{link}")).scenarios.remove(0);
        let scenario = if link == "task=sft" { Scenario::default() } else { scenario };
        match configuration(&scenario, Configuration::Vllm) {
            Ok(written) => panic!("{link}\n{}", written.text),
            Err(issue) => assert!(issue.to_string().contains(why), "{link}: {issue}"),
        }
    }
}
