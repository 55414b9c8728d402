//! Quantised weights, and products in 8 bits.

use headroom::import;
use headroom::scenario::{
    Checkpointing, Compile, Float8, Float8Layers, Float8Training, GpuChoice, GroupSize, LoraTargets, Method,
    Precision, Qat, QatGroup, QatLayers, QatTraining, VisionTower, WeightFormat,
};

use crate::{left, read, read_over};

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

/// A line about something else says nothing of how weights are loaded: they stay as they were.
#[test]
fn a_line_of_another_thing_leaves_the_weights_as_they_were() {
    for text in [
        "model.gradient_checkpointing_enable()\n",
        "args = TrainingArguments(output_dir='x', gradient_checkpointing=True)\n",
    ] {
        let read = read_over(text, |base| {
            base.method = Method::Qlora;
            base.quantization.format = WeightFormat::Nf4Early;
            base.quantization.double_quant = true;
        });
        assert!(read.scenario.quantization.double_quant, "{text}: {:?}", read.scenario.quantization);
        assert_eq!(read.scenario.quantization.format, WeightFormat::Nf4Early, "{text}");
    }
    let said = "quantization_config=BitsAndBytesConfig(load_in_4bit=True)\n";
    let read = read_over(said, |base| base.quantization.double_quant = true);
    assert!(!read.scenario.quantization.double_quant, "BitsAndBytesConfig's default");
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

#[test]
fn unsloths_switches_of_layers_are_read() {
    let script = |switches: &str| {
        let text = format!(
            "model, tokenizer = FastModel.from_pretrained('unsloth/gemma-3-4b-it', load_in_4bit=True)\n\
             model = FastModel.get_peft_model(model, r=8, {switches})\n"
        );
        read(&text)
    };
    let notebook = "finetune_vision_layers=False, finetune_language_layers=True, finetune_attention_modules=True, finetune_mlp_modules=True";
    let whole = script(notebook);
    assert_eq!(left(&whole), [""; 0]);
    assert_eq!(whole.scenario.lora.targets, LoraTargets::AllLinear);
    assert_eq!(whole.scenario.pictures.tower, VisionTower::Frozen);
    let attention = script("finetune_mlp_modules=False");
    assert_eq!(attention.scenario.lora.targets, LoraTargets::Attention);
    assert_eq!(attention.scenario.pictures.tower, VisionTower::Trained);
    let both = script("finetune_attention_modules=False, finetune_mlp_modules=True");
    assert!(both.idle.iter().any(|said| said.contains("finetune_mlp_modules")), "{:?}", both.idle);
    assert_eq!(script("finetune_attention_modules=False").scenario.lora.targets, LoraTargets::Mlp);
    assert_eq!(
        left(&script("finetune_language_layers=False")),
        ["get_peft_model(finetune_language_layers=false)"]
    );
}

/// torchao's products in 8 bits: axolotl's switch, and accelerate's where its file says whose they are.
#[test]
fn products_in_8_bits_are_read() {
    let axolotl =
        |rest: &str| read(&format!("base_model: Qwen/Qwen3-8B\nbf16: true\n{rest}")).scenario.float8;
    let own = Float8Training { recipe: Float8::Tensorwise, ..Float8Training::OFF };
    assert_eq!(axolotl("fp8: true\n"), own);
    let gathers = "fp8: true\nfp8_enable_fsdp_float8_all_gather: true\n";
    // which axolotl refuses on one GPU
    assert_eq!(axolotl(gathers), own);
    assert_eq!(axolotl(&format!("fsdp_version: 2\n{gathers}")), Float8Training { gathers: true, ..own });
    let full = read("base_model: Qwen/Qwen3-8B\nbf16: full\nfp8: true\n");
    assert_eq!(full.scenario.precision, Precision::AmpBf16Weights);
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

/// axolotl's quantisation-aware training, with what it makes of each pair of types.
#[test]
fn quantisation_aware_training_is_read() {
    let axolotl = |rest: &str| read(&format!("base_model: Qwen/Qwen3-8B\nbf16: true\nqat:\n{rest}"));
    let of = |scheme, group| QatTraining { scheme, group, layers: QatLayers::All };
    for (lines, scheme, group) in [
        ("  weight_dtype: int4\n", Qat::Int4Axolotl, QatGroup::Of32),
        (
            "  activation_dtype: int8\n  weight_dtype: int4\n  group_size: 128\n",
            Qat::Int8Int4Axolotl,
            QatGroup::Of128,
        ),
        (
            "  activation_dtype: float8_e4m3fn\n  weight_dtype: int4\n  group_size: 64\n",
            Qat::Float8Int4,
            QatGroup::Of64,
        ),
        ("  activation_dtype: fp8\n  weight_dtype: float8\n", Qat::Float8Axolotl, QatGroup::Of32),
    ] {
        let understood = axolotl(lines);
        assert_eq!(understood.scenario.qat, of(scheme, group), "{lines}");
        assert!(left(&understood).is_empty(), "{lines}: {:?}", left(&understood));
    }
    let lacking = axolotl("  activation_dtype: int8\n");
    assert!(!lacking.scenario.qat.is_on() && !left(&lacking).is_empty());
    let waits = axolotl("  weight_dtype: int4\n  fake_quant_after_n_steps: 100\n");
    assert_eq!(waits.scenario.qat.scheme, Qat::Int4Axolotl);
    for others in ["  weight_dtype: nvfp4\n", "  weight_dtype: int4\n  quantize_embedding: true\n"] {
        assert!(!left(&axolotl(others)).is_empty(), "{others}");
    }
    let none = read("base_model: Qwen/Qwen3-8B\nbf16: true\n");
    assert!(!none.scenario.qat.is_on());
}

/// What a script compiles: layers one by one, or a whole model.
#[test]
fn compiled_layers_are_read() {
    let script = |lines: &str| {
        read(&format!(
            "model = AutoModelForCausalLM.from_pretrained(\"Qwen/Qwen3-8B\", dtype=torch.bfloat16)\n{lines}\n"
        ))
    };
    let layers = script("for layer in model.model.layers:\n    layer.compile()");
    assert_eq!(layers.scenario.compile, Compile::Layers);
    for whole in
        ["model = torch.compile(model)", "model.compile()", "trainer.model.compile(mode=\"default\")"]
    {
        let understood = script(whole);
        assert_eq!(understood.scenario.compile, Compile::Model, "{whole}");
        assert!(left(&understood).is_empty(), "{whole}");
    }
    assert!(left(&script("digits = re.compile(\"[0-9]\")")).is_empty());
}

/// Its preparations in a script, whatever comes after the training.
#[test]
fn preparations_for_quantisation_are_read() {
    let script = |lines: &str| {
        read(&format!(
            "model = AutoModelForCausalLM.from_pretrained(\"Qwen/Qwen3-8B\", dtype=torch.bfloat16)\n{lines}\n"
        ))
    };
    let based = "base = Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=PerGroup(64))\nquantize_(model, QATConfig(base, step=\"prepare\"))\nquantize_(model, QATConfig(base, step=\"convert\"))";
    let found = script(based).scenario.qat;
    assert_eq!(found, QatTraining { scheme: Qat::Int8Int4, group: QatGroup::Of64, layers: QatLayers::All });
    let filtered = script(
        "quantize_(model, QATConfig(Int4WeightOnlyConfig(group_size=32), step=\"prepare\"), filter_fn=keep)",
    );
    let found = filtered.scenario.qat;
    assert_eq!(found, QatTraining { scheme: Qat::Int4, group: QatGroup::Of32, layers: QatLayers::Body });
    assert!(filtered.assumed.iter().any(|assumed| assumed.key == "qat-layers"));
    let rows = script(
        "quantize_(model, QATConfig(Float8DynamicActivationFloat8WeightConfig(granularity=PerRow()), step=\"prepare\"))\nquantize_(model, QATConfig(step=\"convert\"), filter_fn=keep)",
    );
    assert_eq!(rows.scenario.qat, QatTraining { scheme: Qat::Float8Axolotl, ..QatTraining::OFF });
    for other in [
        // integers by both, though what quantises the model afterwards is another configuration
        "inputs = IntxFakeQuantizeConfig(torch.int8, \"per_token\")\nweights = IntxFakeQuantizeConfig(torch.int4, group_size=32)\nquantize_(model, QATConfig(activation_config=inputs, weight_config=weights, step=\"prepare\"))\nquantize_(model, Int4WeightOnlyConfig(32))",
        "quantize_(model, QATConfig(weight_config=Float8FakeQuantizeConfig(), step=\"prepare\"))",
        "model = Int8DynActInt4WeightQATQuantizer(groupsize=32).prepare(model)",
    ] {
        let understood = script(other);
        assert!(!understood.scenario.qat.is_on() && !left(&understood).is_empty(), "{other}");
    }
    let converted = script("quantize_(model, QATConfig(step=\"convert\"))");
    assert!(!converted.scenario.qat.is_on());
    let unknown = script("quantize_(model, QATConfig(NVFP4WeightOnlyConfig(), step=\"prepare\"))");
    assert!(!unknown.scenario.qat.is_on() && !left(&unknown).is_empty());
}

/// The same of torchao's and accelerate's conversions in a script, with their filters.
#[test]
fn conversions_to_8_bits_are_read() {
    let script = |lines: &str| {
        read(&format!(
            "model = AutoModelForCausalLM.from_pretrained(\"Qwen/Qwen3-8B\", dtype=torch.bfloat16)\n{lines}\n"
        ))
    };
    let float8 = |lines: &str| script(lines).scenario.float8;
    let all = Float8Training { recipe: Float8::Tensorwise, layers: Float8Layers::All, ..Float8Training::OFF };
    assert_eq!(float8(""), Float8Training::OFF);
    assert_eq!(float8("convert_to_float8_training(model)"), all);
    let rowwise = "config = Float8LinearConfig.from_recipe_name(\"rowwise\")\n";
    let padded = "config = replace(config, pad_inner_dim=True)\n";
    let inner = format!("{rowwise}{padded}convert_model_to_fp8_ao(model, config=config)");
    let own = Float8Training { recipe: Float8::Rowwise, layers: Float8Layers::Inner, pads: true, ..all };
    assert_eq!(float8(&inner), own);
    let filter = "module_filter_fn=_auto_filter_for_recipe(\"rowwise\", [\"lm_head\"])";
    let large = format!("{rowwise}convert_to_float8_training(model, config=config, {filter})");
    assert_eq!(float8(&large), Float8Training { layers: Float8Layers::Large, pads: false, ..own });
    let chosen = script(
        "convert_to_float8_training(model, module_filter_fn=lambda module, name: \"out\" not in name)",
    );
    assert_eq!(chosen.scenario.float8.layers, Float8Layers::Body);
    assert!(chosen.assumed.iter().any(|assumed| assumed.key == "float8-layers"));
    let unknown = script(
        "convert_to_float8_training(model, config=Float8LinearConfig.from_recipe_name(\"blockwise\"))",
    );
    assert_eq!(unknown.scenario.float8, Float8Training::OFF);
    assert!(left(&unknown).iter().any(|what| what.contains("blockwise")), "{:?}", left(&unknown));
}

/// What the catalogue's config says of a model's files is what `from_pretrained` loads; where it says nothing, that is told.
#[test]
fn weights_are_in_the_type_that_they_were_published_in() {
    let of = |model: &str, more: &str| {
        let text = format!(
            "model = AutoModelForCausalLM.from_pretrained('{model}'{more})\nargs = TrainingArguments(bf16=True)\ntrainer = Trainer(model=model, args=args)"
        );
        let understood = read(&text);
        let told = understood.left.iter().any(|left| left.said == "dtype" && left.why.contains("published"));
        (understood.scenario.precision, told)
    };
    for (model, precision, told) in [
        ("allenai/OLMo-2-1124-7B", Precision::AmpBf16, false),
        ("Qwen/Qwen3-8B", Precision::AmpBf16Weights, false),
        ("facebook/opt-1.3b", Precision::AmpBf16Weights, false),
        ("FacebookAI/roberta-base", Precision::AmpBf16, false),
        ("openai-community/gpt2", Precision::AmpBf16Weights, true),
    ] {
        assert_eq!(of(model, ""), (precision, told), "{model}");
    }
    assert_eq!(of("allenai/OLMo-2-1124-7B", ", dtype='auto'"), (Precision::AmpBf16, false));
    assert_eq!(of("openai-community/gpt2", ", dtype=torch.float32"), (Precision::AmpBf16, false));
}

/// `SFTConfig` trains in bfloat16 where nothing is said: what is not followed is the weights' type.
#[test]
fn what_is_not_followed_of_the_precision_is_named() {
    let understood = read(
        "args = SFTConfig(model_init_kwargs={\"dtype\": \"float16\"})\ntrainer = SFTTrainer(model=\"Qwen/Qwen3-0.6B\", args=args)",
    );
    let left =
        understood.left.iter().find(|left| left.why.contains("another 16-bit type")).expect("it is told");
    assert!(left.said.contains("dtype"), "{left:?}");
}

#[test]
fn copies_in_4_bits_are_of_the_model_that_their_name_says() {
    for (copy, model) in [
        ("unsloth/Qwen3-14B-unsloth-bnb-4bit", "Qwen/Qwen3-14B"),
        ("hugging-quants/Meta-Llama-3.1-405B-BNB-NF4-BF16", "meta-llama/Meta-Llama-3.1-405B"),
        ("casperhansen/llama-3-70b-fp16", "meta-llama/Meta-Llama-3-70B-Instruct"),
        ("stabilityai/stablelm-2-1_6b", "stabilityai/stablelm-2-1_6b"),
    ] {
        let read = read(&format!("base_model: {copy}\nadapter: qlora\nsequence_len: 1024\n"));
        assert_eq!(read.scenario.model_name(), model, "{copy}");
        assert!(read.scenario.architecture().is_ok(), "{copy}");
    }
}

/// Unsloth compiles the layers under checkpoints unless it is told not to; another library does not.
#[test]
fn layers_that_unsloth_compiles_are_read() {
    let cell = include_str!("../fixtures/configurations/unsloth-cell.py");
    let compiled = read_over(cell, |base| base.gpu = GpuChoice::Catalogue("rtx-4090".into()));
    assert_eq!(compiled.scenario.compile, Compile::Layers);
    assert!(compiled.assumed.iter().any(|assumed| assumed.key == "compile"));

    let off = format!("import os\nos.environ[\"UNSLOTH_COMPILE_DISABLE\"] = \"1\"\n{cell}");
    let off = read_over(&off, |base| base.gpu = GpuChoice::Catalogue("rtx-4090".into()));
    assert_eq!(off.scenario.compile, Compile::Off);
    assert!(off.taken.iter().any(|taken| taken.key == "compile"));

    let hopper = read_over(cell, |base| base.gpu = GpuChoice::Catalogue("h100-sxm-80gb".into()));
    assert_eq!(hopper.scenario.compile, Compile::Layers);
    // graphs of V100's were not compared, whatever stood there before
    let elsewhere = read_over(cell, |base| {
        base.gpu = GpuChoice::Catalogue("v100-sxm2-32gb".into());
        base.compile = Compile::Layers;
    });
    assert_eq!(elsewhere.scenario.compile, Compile::Off);
    assert!(elsewhere.assumed.iter().any(|assumed| assumed.key == "compile"));

    let trl =
        import::read("model_name_or_path: Qwen/Qwen3-4B\nuse_peft: true\nbf16: true\n", &compiled.scenario);
    assert_eq!(trl.expect("trl's").scenario.compile, Compile::Off);
}
