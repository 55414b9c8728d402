//! What files of other projects say as these projects have them, where that was read otherwise once.

use super::{left, read};
use headroom::import;
use headroom::scenario::{
    Evaluates, GpuChoice, Method, ModelChoice, Precision, Scenario, Stack, Tuner, WeightFormat,
};

/// LLaMA-Factory loads weights as they were published, and what is trained becomes float32.
#[test]
fn llama_factory_without_a_type_loads_what_was_published() {
    let factory = |more: &str| {
        read(&format!("model_name_or_path: meta-llama/Llama-3.1-8B\nstage: sft\ncutoff_len: 2048\n{more}"))
    };
    for (more, precision) in [
        ("finetuning_type: lora\n", Precision::Bf16),
        ("finetuning_type: lora\nquantization_bit: 4\n", Precision::Bf16),
        ("finetuning_type: full\n", Precision::Fp32),
        ("finetuning_type: lora\nbf16: true\n", Precision::AmpBf16Weights),
    ] {
        let understood = factory(more);
        assert_eq!(understood.scenario.precision, precision, "{more}");
        assert!(headroom::estimate(&understood.scenario).memory.is_some(), "{more}");
    }
}

/// The beginning of LLaMA-Factory's examples/extras/oft/llama3_oft_sft.yaml.
#[test]
fn llama_factorys_oft_is_read() {
    let text = "model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct\nstage: sft\ndo_train: true\nfinetuning_type: oft\noft_block_size: 64\n\
                oft_target: all\ncutoff_len: 2048\nbf16: true\n";
    let understood = read(text);
    let scenario = &understood.scenario;
    assert_eq!((scenario.method, scenario.lora.tuner, scenario.lora.rank), (Method::Lora, Tuner::Oft, 64));
    assert_eq!(left(&understood), [""; 0]);
    let quantised = read(&text.replace("oft_block_size: 64", "quantization_bit: 4"));
    assert_eq!((quantised.scenario.method, quantised.scenario.lora.rank), (Method::Qlora, 32));
}

/// The file of another form is answered for the model that was there: that is said.
#[test]
fn a_text_that_names_no_model_says_which_it_is_answered_for() {
    let v1 = "model: Qwen/Qwen3-4B\nfinetuning_type: lora\ncutoff_len: 2048\ntemplate: qwen3_nothink\nbf16: true\n";
    let understood = read(v1);
    let own = ModelChoice::Catalogue("meta-llama/Llama-3.1-8B".into());
    assert_eq!(understood.scenario.model, own);
    assert!(understood.assumed.iter().any(|assumed| assumed.key == "model"));
    let named = read("base_model: Qwen/Qwen3-8B\nadapter: lora\nsequence_len: 2048\n");
    assert!(named.assumed.iter().all(|assumed| assumed.key != "model"));
}

/// axolotl evaluates as many sequences as a micro-batch has, where its file does not say more.
#[test]
fn axolotls_larger_evaluation_is_followed() {
    let file = |more: &str| {
        read(&format!(
            "base_model: meta-llama/Llama-3.1-8B\nadapter: lora\nlora_r: 16\nlora_target_linear: true\nmicro_batch_size: 1\nsequence_len: 4096\nbf16: true\n{more}"
        ))
    };
    for (more, keeps) in [
        ("val_set_size: 0.05\nevals_per_epoch: 4\n", Evaluates::Off),
        ("val_set_size: 0.05\neval_batch_size: 1\n", Evaluates::Off),
        ("val_set_size: 0\neval_batch_size: 8\n", Evaluates::Off),
        ("val_set_size: 0.05\neval_batch_size: 8\n", Evaluates::Loss),
    ] {
        let understood = file(more);
        assert_eq!(left(&understood), [""; 0], "{more}");
        let evaluation = understood.scenario.evaluation;
        assert_eq!(evaluation.keeps, keeps, "{more}");
        assert!(keeps == Evaluates::Off || evaluation.batch == 8, "{more}");
    }
}

/// What axolotl's command is given is put over the file, which is read before.
#[test]
fn axolotls_command_is_read_over_its_file() {
    let file = "base_model: meta-llama/Llama-3.1-8B\nadapter: qlora\nlora_r: 16\nload_in_4bit: true\nmicro_batch_size: 1\nsequence_len: 4096\nbf16: true\n";
    let base = read(file).scenario;
    let command = "axolotl train config.yml --micro-batch-size 4 --lora-r 64";
    let understood = import::read(command, &base).expect("a command");
    let mut wanted = Scenario { batch: 4, ..base };
    wanted.lora.rank = 64;
    assert_eq!(understood.scenario, wanted);
    assert_eq!(left(&understood), ["config.yml"]);
}

/// Unsloth computes in what the card does, where a notebook says nothing: a T4 has no bfloat16.
#[test]
fn unsloth_on_a_card_without_bfloat16_trains_in_float16() {
    let text = "from unsloth import FastLanguageModel\nfrom trl import SFTTrainer, SFTConfig\n\
                model, tokenizer = FastLanguageModel.from_pretrained(model_name=\"unsloth/Llama-3.2-1B-Instruct\", max_seq_length=2048, load_in_4bit=True)\n\
                model = FastLanguageModel.get_peft_model(model, r=16)\n\
                trainer = SFTTrainer(model=model, args=SFTConfig(per_device_train_batch_size=2, optim=\"adamw_8bit\"))\n";
    for (card, precision) in [("t4", Precision::Fp16), ("l4", Precision::AmpBf16Weights)] {
        let mut base = Scenario::default();
        base.change(|base| base.gpu = GpuChoice::Catalogue(card.into()));
        let understood = import::read(text, &base).expect("a notebook's cells");
        let scenario = &understood.scenario;
        assert_eq!((scenario.stack, scenario.precision), (Stack::Unsloth, precision), "{card}");
        assert_eq!(left(&understood), [""; 0], "{card}");
        assert!(!scenario.stops(), "{card}");
    }
    let mut asks =
        Scenario { stack: Stack::Unsloth, precision: Precision::AmpBf16Weights, ..Scenario::default() };
    asks.change(|asks| asks.gpu = GpuChoice::Catalogue("t4".into()));
    asks.precision = Precision::AmpBf16Weights;
    assert!(asks.stops() && asks.quantization.format == WeightFormat::Nf4);
}

/// axolotl's examples of models that see name the decoder's layers by an expression.
#[test]
fn axolotls_expressions_of_layers_are_read() {
    let file = |targets: &str| {
        read(&format!(
            "base_model: meta-llama/Llama-3.1-8B\nadapter: lora\nlora_r: 16\nlora_target_modules: '{targets}'\nsequence_len: 2048\nbf16: true\n"
        ))
    };
    for (targets, group) in [
        (
            r"model.language_model.layers.[\d]+.(mlp|cross_attn|self_attn).(up|down|gate|q|k|v|o)_proj",
            "all-linear",
        ),
        (r"model.layers.[\d]+.self_attn.(q|k|v|o)_proj", "attention"),
    ] {
        let understood = file(targets);
        assert_eq!(left(&understood), [""; 0], "{targets}");
        assert_eq!(understood.scenario.lora.targets.slug(), group, "{targets}");
    }
    assert_eq!(left(&file(r"model.layers.[\d]+.(mlp|self_attn).*")).len(), 1);
}
