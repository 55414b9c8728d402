//! Liger's kernels in the place of each family's own modules.

use headroom::memory::Stage;
use headroom::scenario::Field;
use headroom::{estimate, share};

use crate::{answer_alike, refuses};

#[test]
fn ligers_kernels_have_the_same_figures_on_both_paths() {
    let each = [
        "m=google/gemma-3-1b-it&method=full&p=bf16&gc=on",
        "m=google/gemma-3-12b-it&method=lora&p=bf16&gc=on",
        "m=HuggingFaceTB/SmolLM3-3B&method=full&p=amp-bf16&gc=off",
        "m=allenai/OLMo-2-1124-7B&method=full&p=bf16&gc=off",
        "m=allenai/Olmo-3-1025-7B&method=qlora&p=amp-bf16&gc=on",
        "m=ibm-granite/granite-3.3-8b-instruct&method=full&p=bf16&gc=on",
        "m=zai-org/GLM-4-9B-0414&method=lora&p=bf16&gc=off",
        "m=LGAI-EXAONE/EXAONE-4.0-1.2B&method=full&p=bf16&gc=off&ga=2",
        "m=mistralai/Ministral-8B-Instruct-2410&method=full&p=bf16&gc=on",
        "m=tencent/Hunyuan-7B-Instruct&method=lora&p=bf16&gc=on",
        "m=openai/gpt-oss-20b&method=full&p=bf16&gc=on",
        "m=Qwen/Qwen3-30B-A3B&method=full&p=bf16&gc=on",
        "m=mistralai/Mixtral-8x7B-v0.1&method=lora&t=attention&p=bf16&gc=off",
        "m=Qwen/Qwen3-VL-8B-Instruct&method=lora&t=attention&p=bf16&gc=on",
        "m=Qwen/Qwen2.5-VL-7B-Instruct&method=qlora&t=attention&p=bf16&gc=on",
        "m=google/gemma-3-1b-it&method=full&p=bf16&gc=on&qat=int4",
    ];
    answer_alike(each.map(|settings| format!("st=liger&gpu=h200-sxm&s=256&{settings}")));
}

#[test]
fn what_liger_patches_otherwise_is_refused() {
    refuses(
        "m=Qwen/Qwen3-30B-A3B&st=liger&method=full&p=bf16&gpu=h200-sxm&s=64",
        &[
            ("", None),
            ("method=lora&t=attention", None),
            ("method=lora&t=all-linear", Some(Field::LoraTargets)),
            ("m=meta-llama/Llama-3.1-8B&method=lora&t=all-linear", None),
            // left as they are
            ("m=openai/gpt-oss-20b&method=lora&t=all-linear", None),
            ("m=google/gemma-3-12b-it", None),
            ("m=google/gemma-3-12b-it&img=1", Some(Field::Pictures)),
            ("m=Qwen/Qwen3-Next-80B-A3B-Instruct", Some(Field::Stack)),
            ("m=zai-org/glm-4-9b-hf", Some(Field::Stack)),
            ("m=deepseek-ai/DeepSeek-V2-Lite", Some(Field::Stack)),
        ],
    );
}

/// Triton tries the settings of Liger's experts when they run first: the first backward can be higher than any after it.
#[test]
fn the_first_step_of_ligers_experts_tries_their_settings() {
    let link = "m=Qwen/Qwen3-30B-A3B&st=liger&method=lora&t=attention&p=bf16&gpu=h200-sxm&s=64&gc=on";
    let memory = estimate(&share::decode(link).scenarios[0]).memory.expect("it is followed");
    let highest = |iteration: &headroom::memory::Iteration| {
        let found = iteration.phases.iter().find(|(phase, _)| phase.stage == Stage::Backward);
        found.expect("it goes backward").1.bytes.0
    };
    let (first, later) = (highest(&memory.first), highest(&memory.steady));
    assert!(first > later && first - later <= 256 << 20, "{first} {later}");
}

/// granite has no fused loss: its logits are all there, and their gradient stands in the place of their float32 copy.
#[test]
fn granite_has_all_logits_once_in_float32() {
    let peak = |stack: &str| {
        let link = format!(
            "m=ibm-granite/granite-3.3-2b-base&method=lora&p=bf16&gpu=h200-sxm&s=4096&gc=on&st={stack}"
        );
        let answer = estimate(&share::decode(&link).scenarios[0]);
        answer.memory.expect("it is followed").peak().1.bytes.0
    };
    let logits = 4096 * 49_152 * 4;
    let saved = peak("transformers") - peak("liger");
    assert!(saved >= logits, "{saved} of {logits}");
}
