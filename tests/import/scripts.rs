//! Scripts as people write them: what loads, what trains, what generates.

use headroom::scenario::{Method, Precision, Task};

use crate::{left, read};

/// Classes of one family's own, as transformers' documentation has them.
#[test]
fn models_are_loaded_by_their_own_classes_too() {
    let text = "model = Qwen2_5_VLForConditionalGeneration.from_pretrained('Qwen/Qwen2.5-VL-7B-Instruct', torch_dtype=torch.bfloat16,\n\
        quantization_config=BitsAndBytesConfig(load_in_4bit=True))\n\
        processor = AutoProcessor.from_pretrained('Qwen/Qwen2.5-VL-7B-Instruct')\n\
        tokenizer = LlamaTokenizerFast.from_pretrained('x/y')\n\
        args = SFTConfig(per_device_train_batch_size=4, bf16=True)\n\
        trainer = SFTTrainer(model=model, args=args, peft_config=LoraConfig(r=8))";
    let understood = read(text);
    let scenario = &understood.scenario;
    assert_eq!(
        (scenario.model.name(), scenario.method),
        ("Qwen/Qwen2.5-VL-7B-Instruct".into(), Method::Qlora)
    );
    assert_eq!(scenario.precision, Precision::AmpBf16Weights);
    assert!(left(&understood).iter().all(|said| !said.contains("from_pretrained")), "{:?}", understood.left);
    for class in
        ["T5ForConditionalGeneration", "MllamaForConditionalGeneration", "GPT2LMHeadModel", "BertForMaskedLM"]
    {
        let text = format!("model = {class}.from_pretrained('Qwen/Qwen2.5-1.5B', dtype=torch.float16)");
        let scenario = read(&text).scenario;
        let found = (scenario.model.name(), scenario.precision);
        assert_eq!(found, ("Qwen/Qwen2.5-1.5B".into(), Precision::Fp16), "{class}");
    }
}

#[test]
fn what_loads_something_else_is_told() {
    let training = "\nmodel = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-1.5B')\n";
    for call in [
        "PeftModel.from_pretrained(model, 'some/adapters')",
        "StableDiffusionPipeline.from_pretrained('some/pictures')",
        "cls.from_pretrained('some/model')",
    ] {
        let understood = read(&format!("{training}x = {call}"));
        let name = call.split('(').next().unwrap_or_default();
        assert!(left(&understood).iter().any(|said| said.starts_with(name)), "{call}: {:?}", understood.left);
        assert_eq!(understood.scenario.task, Task::Sft);
    }
    let beside = read(&format!(
        "{training}GenerationConfig.from_pretrained('x/y')\nself.tokenizer.from_pretrained('x/y')"
    ));
    assert_eq!(left(&beside), Vec::<&str>::new());
}
