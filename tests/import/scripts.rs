//! Scripts as people write them: what loads, what trains, what generates.

use headroom::scenario::{CacheKind, Mask, Method, Optimizer, Precision, Sampling, Stack, Task, VisionTower};

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
    // which says that there are pictures, and not how many
    let loads: Vec<_> =
        left(&understood).into_iter().filter(|said| said.contains("from_pretrained")).collect();
    assert_eq!(loads, ["AutoProcessor.from_pretrained(Qwen/Qwen2.5-VL-7B-Instruct)"]);
    for class in
        ["T5ForConditionalGeneration", "MllamaForConditionalGeneration", "GPT2LMHeadModel", "BertForMaskedLM"]
    {
        let text = format!("model = {class}.from_pretrained('Qwen/Qwen2.5-1.5B', dtype=torch.float16)");
        let scenario = read(&text).scenario;
        let found = (scenario.model.name(), scenario.precision);
        assert_eq!(found, ("Qwen/Qwen2.5-1.5B".into(), Precision::Fp16), "{class}");
    }
}

/// As trl's own examples do; an object in its place is the model that was loaded.
#[test]
fn trainers_are_given_a_model_by_name_in_the_first_place() {
    let named =
        read("trainer = SFTTrainer('Qwen/Qwen2.5-0.5B', args=SFTConfig(max_length=512), train_dataset=rows)");
    assert_eq!((named.scenario.model.name(), named.scenario.sequence), ("Qwen/Qwen2.5-0.5B".into(), 512));
    let object = read(
        "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-1.5B')\nother = make('a/b')\n\
         trainer = SFTTrainer(model, SFTConfig(max_length=512))\ntrainer = SFTTrainer(other, SFTConfig(max_length=512))",
    );
    assert_eq!(object.scenario.model.name(), "Qwen/Qwen2.5-1.5B");
    assert_eq!(read("SFTTrainer('gpt2', args=SFTConfig())").scenario.model.name(), "gpt2");
    for first in ["models['a/b']", "wrap[n // 2]", "load('a/b')", "base / 2"] {
        let loaded = format!(
            "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-1.5B')\ntrainer = SFTTrainer({first}, SFTConfig())"
        );
        assert_eq!(read(&loaded).scenario.model.name(), "Qwen/Qwen2.5-1.5B", "{first}");
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

#[test]
fn optimizers_of_loops_are_read_or_told() {
    let loop_of = |imports: &str, made: &str| {
        read(&format!(
            "{imports}\nmodel = AutoModelForCausalLM.from_pretrained('Qwen/Qwen2.5-1.5B', dtype=torch.bfloat16)\n{made}\n\
             for batch in loader:\n    loss = model(**batch).loss\n    loss.backward()\n    optimizer.step()\n"
        ))
    };
    for (imports, made, wanted) in [
        (
            "from torchao.optim import AdamW8bit",
            "optimizer = AdamW8bit(model.parameters())",
            Optimizer::AdamW8bitTorchao,
        ),
        (
            "import torchao",
            "optimizer = torchao.prototype.low_bit_optim.AdamW8bit(model.parameters())",
            Optimizer::AdamW8bitTorchao,
        ),
        (
            "from torchao.optim import AdamW4bit",
            "optimizer = AdamW4bit(model.parameters())",
            Optimizer::AdamW4bitTorchao,
        ),
        (
            "from torchao.optim import CPUOffloadOptimizer",
            "optimizer = CPUOffloadOptimizer(model.parameters(), torch.optim.AdamW, fused=True)",
            Optimizer::AdamWCpuOffload,
        ),
        (
            "from torchao.prototype.low_bit_optim import CPUOffloadOptimizer",
            "optimizer = CPUOffloadOptimizer(model.parameters(), optimizer_class=torch.optim.AdamW, offload_gradients=True)",
            Optimizer::AdamWCpuOffloadGradients,
        ),
        (
            "from bitsandbytes.optim import AdamW8bit",
            "optimizer = AdamW8bit(model.parameters())",
            Optimizer::AdamW8bit,
        ),
        (
            "from galore_torch import GaLoreAdamW8bit",
            "optimizer = GaLoreAdamW8bit(groups, lr=1e-3)",
            Optimizer::GaLoreAdamW8bit,
        ),
        (
            "from adam_mini import Adam_mini",
            "optimizer = Adam_mini(model.named_parameters(), lr=1e-5, dim=1536, n_heads=12, n_kv_heads=2)",
            Optimizer::AdamMini,
        ),
        (
            "from adam_mini import Adam_mini",
            "optimizer = Adam_mini(model.named_parameters(), dim=model.config.hidden_size, n_heads=model.config.num_attention_heads)",
            Optimizer::AdamMini,
        ),
        (
            "from torchao.optim import AdamW4bit",
            "optimizer = AdamW4bit(model.parameters(), 1e-4, block_size=128)",
            Optimizer::AdamW4bitTorchao,
        ),
        ("from apollo_torch import APOLLOAdamW", "optimizer = APOLLOAdamW(groups)", Optimizer::ApolloAdamW),
        // no rank is in a parameter
        (
            "from galore_torch import GaLoreAdamW",
            "optimizer = GaLoreAdamW(model.parameters())",
            Optimizer::AdamWForLoop,
        ),
        (
            "from schedulefree import AdamWScheduleFree",
            "optimizer = AdamWScheduleFree(model.parameters())",
            Optimizer::ScheduleFreeAdamW,
        ),
        (
            "from transformers import Adafactor",
            "optimizer = Adafactor(model.parameters())",
            Optimizer::Adafactor,
        ),
        ("", "m = torch.optim.Muon(matrices, lr=1)\noptimizer = torch.optim.AdamW(others)", Optimizer::Muon),
        (
            "from muon import MuonWithAuxAdam",
            "optimizer = MuonWithAuxAdam(groups_of(model.parameters()))",
            Optimizer::Muon,
        ),
    ] {
        let understood = loop_of(imports, made);
        assert_eq!(understood.scenario.optimizer, wanted, "{made}: {:?}", understood.left);
        let is_told = left(&understood).iter().any(|said| said.contains("galore") || said.contains("apollo"));
        assert_eq!(is_told, wanted.projects(), "{made}: {:?}", understood.left);
    }
    let groups =
        "groups = [{'params': others}, {'params': matrices, 'rank': 64}]\noptimizer = GaLoreAdamW(groups)";
    assert_eq!(loop_of("from galore_torch import GaLoreAdamW", groups).scenario.lora.rank, 64);
    let on_cpu = "from torchao.optim import CPUOffloadOptimizer";
    let with_4_bits = "from torchao.optim import AdamW4bit";
    let mini = "from adam_mini import Adam_mini";
    let not_the_models = "dim and n_heads are not the model's";
    for (imports, made, said, why) in [
        (
            on_cpu,
            "optimizer = CPUOffloadOptimizer(model.parameters(), torch.optim.SGD)",
            "torch.optim.SGD",
            "AdamW is predicted",
        ),
        (
            "from torchao.optim import CPUOffloadOptimizer\nfrom bitsandbytes.optim import AdamW",
            "optimizer = CPUOffloadOptimizer(model.parameters(), AdamW)",
            "bitsandbytes.optim.AdamW",
            "AdamW is predicted",
        ),
        (
            on_cpu,
            "optimizer = CPUOffloadOptimizer(model.parameters(), torch.optim.AdamW, minimal_size=100000000)",
            "minimal_size",
            "other than 4096",
        ),
        (
            with_4_bits,
            "optimizer = AdamW4bit(model.parameters(), block_size=64)",
            "block_size",
            "other than 128",
        ),
        (mini, "optimizer = Adam_mini(model.named_parameters(), 1e-4)", "Adam_mini", not_the_models),
        (mini, "optimizer = Adam_mini(model.named_parameters(), dim=896, n_heads=14)", "dim", not_the_models),
        (
            mini,
            "optimizer = Adam_mini(model.named_parameters(), dim=1536, n_heads=12, n_kv_heads=5)",
            "n_kv_heads",
            "does not divide",
        ),
        (
            "",
            "optimizer = Prodigy([p for p in model.parameters() if p.requires_grad], lr=1.0)",
            "Prodigy",
            "not predicted",
        ),
    ] {
        let understood = loop_of(imports, made);
        let is_told = understood.left.iter().any(|left| left.said.contains(said) && left.why.contains(why));
        assert!(is_told, "{made}: {:?}", understood.left);
        assert!(!understood.idle.iter().any(|idle| idle.contains(said)), "{made}: {:?}", understood.idle);
    }
    // a mean of the weights is none
    let mean =
        loop_of("", "ema = EMA(model.parameters())\noptimizer = torch.optim.SGD(model.parameters(), lr=1)");
    assert_eq!(mean.scenario.optimizer, Optimizer::Sgd);
}

#[test]
fn scripts_that_write_are_no_training() {
    let load = "model = AutoModelForCausalLM.from_pretrained('Qwen/Qwen3-8B', dtype=torch.bfloat16, device_map='cuda')\n";
    let text = format!(
        "{load}inputs = tokenizer(['a', 'b', 'c'], return_tensors='pt')\nout = model.generate(**inputs, max_new_tokens=500, num_beams=4, do_sample=True)"
    );
    let understood = read(&text);
    let scenario = &understood.scenario;
    assert_eq!((scenario.task, scenario.batch, scenario.method), (Task::Generate, 3, Method::Full));
    let generation = scenario.generation;
    assert_eq!((generation.new_tokens, generation.sampling), (500, Sampling::Sampled));
    assert_eq!(generation.cache, CacheKind::Dynamic);
    assert_eq!(left(&understood), ["generate(num_beams=4)"]);
    let quantised = read(&format!(
        "{}model.generate(x, max_new_tokens=8, cache_implementation='static')",
        load.replace(
            "device_map='cuda'",
            "quantization_config=BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=torch.bfloat16)"
        )
    ));
    assert_eq!(
        (quantised.scenario.method, quantised.scenario.generation.cache),
        (Method::Qlora, CacheKind::Static)
    );
    assert_eq!(left(&quantised), Vec::<&str>::new());
    let other = read(&format!("{load}model.generate(x, cache_implementation='quantized')"));
    assert_eq!(left(&other), ["generate(cache_implementation=quantized)"]);
    // what trains may write in between
    for training in [
        "trainer = Trainer(model=model, args=TrainingArguments(bf16=True))",
        "optimizer = torch.optim.AdamW(model.parameters())",
        "loss.backward()",
    ] {
        let understood = read(&format!("{load}{training}\nmodel.generate(x, max_new_tokens=8)"));
        assert_eq!(understood.scenario.task, Task::Sft, "{training}");
    }
}

#[test]
fn what_files_say_of_pictures_is_told() {
    let factory = |model: &str| {
        read(&format!(
            "model_name_or_path: {model}\nimage_max_pixels: 262144\nstage: sft\nfinetuning_type: lora\nfreeze_vision_tower: false\ncutoff_len: 2048\nbf16: true\n"
        ))
    };
    let sees = factory("Qwen/Qwen2.5-VL-7B-Instruct");
    assert_eq!(sees.scenario.pictures.tower, VisionTower::Trained);
    assert_eq!(left(&sees), ["image_max_pixels: 262144"]);
    assert!(sees.left[0].why.contains("--images"));
    assert_eq!(left(&factory("Qwen/Qwen2.5-7B-Instruct")), Vec::<&str>::new());
    let axolotl = |model: &str, optimizer: &str| {
        read(&format!(
            "base_model: {model}\nprocessor_type: AutoProcessor\nsequence_len: 2048\nmicro_batch_size: 1\noptimizer: {optimizer}\nbf16: true\n"
        ))
    };
    let sees = axolotl("Qwen/Qwen2.5-VL-7B-Instruct", "muon");
    assert_eq!(
        (left(&sees), sees.scenario.optimizer),
        (vec!["processor_type: AutoProcessor"], Optimizer::Muon)
    );
    for (name, optimizer) in
        [("ao_adamw_8bit", Optimizer::AdamW8bitTorchao), ("ao_adamw_4bit", Optimizer::AdamW4bitTorchao)]
    {
        let text = axolotl("Qwen/Qwen2.5-7B-Instruct", name);
        assert_eq!((left(&text), text.scenario.optimizer), (vec![], optimizer));
    }
    let mini = "model_name_or_path: Qwen/Qwen2.5-1.5B\nstage: sft\nfinetuning_type: full\ntemplate: qwen\ncutoff_len: 1024\nuse_adam_mini: true\nbf16: true\n";
    let mini = read(mini);
    assert_eq!((left(&mini), mini.scenario.optimizer), (vec![], Optimizer::AdamMini));
    // trl over a processor, which makes numbers of pictures where the model sees
    let trl = |model: &str, adapters: &str| {
        read(&format!(
            "model = AutoModelForImageTextToText.from_pretrained(\"{model}\")\nprocessor = AutoProcessor.from_pretrained(\"{model}\")\n\
             peft_config = LoraConfig(r=16, target_modules=\"all-linear\"{adapters})\n\
             trainer = SFTTrainer(model=model, args=SFTConfig(bf16=True), peft_config=peft_config, processing_class=processor)\n"
        ))
    };
    let frozen = trl("Qwen/Qwen2.5-VL-7B-Instruct", ", exclude_modules=r\".*visual.*\"");
    assert_eq!(left(&frozen), ["AutoProcessor.from_pretrained(Qwen/Qwen2.5-VL-7B-Instruct)"]);
    assert_eq!(
        (frozen.scenario.stack, frozen.scenario.pictures.tower, frozen.scenario.mask),
        (Stack::Trl, VisionTower::Frozen, Mask::Padded)
    );
    assert_eq!(trl("Qwen/Qwen2.5-VL-7B-Instruct", "").scenario.pictures.tower, VisionTower::Trained);
    // a list names ends of names, which no layer of a tower has, and the third pattern is the reverse
    for other in ["[\"vision_tower\"]", "[\"visual.merger\"]", "[\".*visual.*\"]", "r\"^(?!.*visual).*\""] {
        let others = trl("Qwen/Qwen2.5-VL-7B-Instruct", &format!(", exclude_modules={other}"));
        assert_eq!(others.scenario.pictures.tower, VisionTower::Trained, "{other}");
        assert!(left(&others).iter().any(|said| said.contains("exclude_modules")), "{:?}", others.left);
    }
    let others = trl("Qwen/Qwen2.5-VL-7B-Instruct", ", exclude_modules=[\"up_proj\"]");
    assert_eq!(left(&others).len(), 2, "{:?}", others.left);
    assert_eq!(left(&trl("Qwen/Qwen2.5-7B-Instruct", "")), Vec::<&str>::new());
    let text = axolotl("Qwen/Qwen2.5-7B-Instruct", "ao_adamw_8bit");
    assert_eq!((left(&text), text.scenario.optimizer), (vec![], Optimizer::AdamW8bitTorchao));
}

/// What changes a model in a way that nothing here follows is listed, and what changes nothing is not.
#[test]
fn calls_that_are_not_followed_are_listed() {
    let script = |more: &str| {
        format!(
            "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n\
             model = AutoModelForCausalLM.from_pretrained(\"Qwen/Qwen3-0.6B\")\n{more}\n\
             args = TrainingArguments(\"out\", bf16=True)\nTrainer(model=model, args=args).train()\n"
        )
    };
    for more in [
        "model.half()",
        "model = model.to(torch.bfloat16)",
        "model.to(dtype=torch.float16)",
        "model.resize_token_embeddings(len(tokenizer))",
        "model = torch.nn.DataParallel(model)",
        "model.set_attn_implementation(\"eager\")",
        "apply_liger_kernel_to_qwen3()",
        "for p in model.model.layers[:10].parameters():\n    p.requires_grad = False",
    ] {
        let name = more.split('(').next().unwrap_or_default().rsplit(['.', ' ']).next().unwrap_or_default();
        let name = if more.contains("requires_grad") { "requires_grad" } else { name };
        let left = read(&script(more)).left;
        assert!(left.iter().any(|left| left.said.contains(name)), "{more}: {left:?}");
    }
    for more in ["model.to(\"cuda\")", "loss = loss.float()", "x = x.to(torch.bfloat16)", "# model.half()"] {
        assert_eq!(read(&script(more)).left, read(&script("")).left, "{more}");
    }
    // beside adapters all weights are frozen anyway
    let adapted = "from peft import LoraConfig, get_peft_model\nfor p in model.parameters():\n    p.requires_grad = False\n\
                   model = get_peft_model(model, LoraConfig(r=8))";
    let left = read(&script(adapted)).left;
    assert!(!left.iter().any(|left| left.said.contains("requires_grad")), "{left:?}");
}
