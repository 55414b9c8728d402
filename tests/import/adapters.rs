//! Adapters, and optimizers that project gradients.

use headroom::import::Format;
use headroom::scenario::keys::Key;
use headroom::scenario::{LoraTargets, Method, Optimizer, Scenario, StepTime, Tuner};

use crate::{FILES, left, read, read_over};

#[test]
fn decomposed_adapters_are_read_where_peft_runs_them() {
    let peft = "LoraConfig(r=16, use_dora=True)";
    assert_eq!(read(peft).scenario.lora.tuner, Tuner::Dora);
    assert_eq!(read(&peft.replace("use_dora=True", "use_rslora=True")).scenario.lora.tuner, Tuner::Lora);
    let unsloth = read("model = FastLanguageModel.get_peft_model(model, r=16, use_dora=True)");
    assert_eq!((unsloth.scenario.lora.tuner, unsloth.left.len()), (Tuner::Lora, 1), "{:?}", unsloth.left);
    let axolotl = read("base_model: Qwen/Qwen3-8B\nadapter: lora\nlora_r: 8\npeft_use_dora: true\n");
    assert_eq!(axolotl.scenario.lora.tuner, Tuner::Dora);
}

/// Prompt tuning, P-tuning and prefix tuning by the class of their settings, in Python and as `adapter_config.json`.
#[test]
fn virtual_tokens_are_read() {
    for (given, tuner, left_over) in [
        ("PromptTuningConfig(task_type='CAUSAL_LM', num_virtual_tokens=20)", Tuner::Prompt, vec![]),
        (
            "PromptEncoderConfig(num_virtual_tokens=20, encoder_reparameterization_type='MLP')",
            Tuner::PTuning,
            vec![],
        ),
        (
            "PromptEncoderConfig(num_virtual_tokens=20, encoder_reparameterization_type='LSTM')",
            Tuner::PTuning,
            vec!["PromptEncoderConfig(encoder_reparameterization_type=LSTM)"],
        ),
        ("PrefixTuningConfig(num_virtual_tokens=20)", Tuner::Prefix, vec![]),
        ("PrefixTuningConfig(num_virtual_tokens=20, prefix_projection=True)", Tuner::PrefixProjected, vec![]),
        (
            "PrefixTuningConfig(num_virtual_tokens=20, encoder_hidden_size=77)",
            Tuner::Prefix,
            vec!["PrefixTuningConfig(encoder_hidden_size=77)"],
        ),
    ] {
        let script = format!(
            "model = AutoModelForCausalLM.from_pretrained('meta-llama/Llama-3.1-8B')\nmodel = get_peft_model(model, {given})"
        );
        let read = read(&script);
        assert_eq!((read.scenario.lora.tuner, read.scenario.lora.rank), (tuner, 20), "{given}");
        assert_eq!(left(&read), left_over, "{given}");
        let size = read.taken.iter().find(|taken| taken.key == "lora-rank");
        assert_eq!(size.map(|size| size.label), Some("Virtual tokens"), "{given}");
    }
    let saved = read(
        "{\"peft_type\": \"PREFIX_TUNING\", \"base_model_name_or_path\": \"meta-llama/Llama-3.1-8B\", \"num_virtual_tokens\": 30, \"token_dim\": 1024, \"num_attention_heads\": 8, \"num_layers\": 32, \"encoder_hidden_size\": 1024, \"prefix_projection\": false, \"num_transformer_submodules\": 1, \"init_weights\": null, \"task_type\": \"CAUSAL_LM\"}",
    );
    assert_eq!(
        (saved.scenario.lora.tuner, saved.scenario.lora.rank, saved.left),
        (Tuner::Prefix, 30, vec![])
    );
}

/// peft's other tuners by the class of their settings, in Python and as `adapter_config.json`.
#[test]
fn other_tuners_are_read() {
    let vera = read(
        "model = get_peft_model(model, VeraConfig(target_modules=\"all-linear\", vera_dropout=0.1, projection_prng_key=7))",
    );
    let lora = vera.scenario.lora;
    assert_eq!(
        (lora.tuner, lora.rank, lora.dropout, lora.targets),
        (Tuner::Vera, 256, true, LoraTargets::AllLinear)
    );
    assert_eq!(vera.left, []);
    let saved = read(
        "{\"peft_type\": \"IA3\", \"base_model_name_or_path\": \"meta-llama/Llama-3.1-8B\", \"target_modules\": [\"k_proj\", \"v_proj\", \"down_proj\"], \"feedforward_modules\": [\"down_proj\"], \"init_ia3_weights\": true}",
    );
    assert_eq!((saved.scenario.lora.tuner, saved.left), (Tuner::Ia3, vec![]));
    let own = read(
        "model = AutoModelForCausalLM.from_pretrained('meta-llama/Llama-3.1-8B')\nmodel = get_peft_model(model, IA3Config(feedforward_modules=['up_proj']))",
    );
    assert_eq!(own.scenario.lora.targets, LoraTargets::Qv);
    assert_eq!(left(&own), ["IA3Config(feedforward_modules=up_proj)"]);
    let loha = read(
        "get_peft_model(model, LoHaConfig(r=4, alpha=8, module_dropout=0.5, target_modules=['q_proj', 'v_proj']))",
    );
    assert_eq!(
        (loha.scenario.lora.tuner, loha.scenario.lora.rank, left(&loha)),
        (Tuner::Loha, 4, vec!["LoHaConfig(module_dropout=0.5)"])
    );
    let oft = read("get_peft_model(model, OFTConfig(oft_block_size=64, target_modules='all-linear'))");
    assert_eq!((oft.scenario.lora.tuner, oft.scenario.lora.rank, left(&oft)), (Tuner::Oft, 64, vec![]));
    let size = oft.taken.iter().find(|taken| taken.key == "lora-rank");
    assert_eq!(size.map(|size| size.label), Some("OFT block size"));
    let unknown = read("{\"peft_type\": \"BOFT\", \"base_model_name_or_path\": \"meta-llama/Llama-3.1-8B\"}");
    assert_eq!(unknown.left.len(), 1, "{:?}", unknown.left);
}

#[test]
fn optimizers_that_project_are_read_with_their_layers() {
    let own = |scenario: &Scenario| {
        let answer = headroom::estimate(scenario);
        assert!(answer.memory.is_some(), "{:?}", answer.issues);
        (scenario.optimizer, scenario.lora.rank, scenario.lora.targets, scenario.savings.step)
    };
    // the example of transformers' documentation
    let arguments = read(
        "trainer = SFTTrainer(model=\"meta-llama/Llama-3.2-1B\", train_dataset=rows, args=SFTConfig(optim=\"galore_adamw\", \
         optim_target_modules=[r\".*.attn.*\", r\".*.mlp.*\"], optim_args=\"rank=64, update_proj_gap=100, scale=0.10\"))",
    );
    let wanted = (Optimizer::GaLoreAdamW, 64, LoraTargets::AllLinear, StepTime::AfterBackward);
    assert_eq!(own(&arguments.scenario), wanted);
    assert!(arguments.left.is_empty(), "{:?}", arguments.left);
    let all = "training_args = TrainingArguments(optim=\"apollo_adamw_layerwise\", optim_target_modules=\"all-linear\")\n\
               model = AutoModelForCausalLM.from_pretrained(\"meta-llama/Llama-3.1-8B\")";
    let wanted = (Optimizer::ApolloAdamW, 128, LoraTargets::AllLinearAndHead, StepTime::InBackward);
    assert_eq!(own(&read(all).scenario), wanted);
    let axolotl = read(include_str!("../fixtures/configurations/axolotl-galore.yml"));
    let wanted = (Optimizer::GaLoreAdamW8bit, 256, LoraTargets::Attention, StepTime::AfterBackward);
    assert_eq!(own(&axolotl.scenario), wanted);
    assert!(axolotl.left.is_empty(), "{:?}", axolotl.left);
    let lomo = read("SFTTrainer(model=\"Qwen/Qwen2.5-0.5B\", args=SFTConfig(optim=\"adalomo\"))");
    assert_eq!(own(&lomo.scenario).0, Optimizer::AdaLomo);
    let layerwise =
        read(&projecting("optim_target_modules=\"all-linear\"").replace("adamw", "adamw_layerwise"));
    let wanted = (Optimizer::ApolloAdamW, 128, LoraTargets::AllLinear, StepTime::InBackward);
    assert_eq!(own(&layerwise.scenario), wanted);
}

/// A file of trl's that projects gradients, with these arguments.
fn projecting(arguments: &str) -> String {
    format!("SFTTrainer(model=\"Qwen/Qwen2.5-0.5B\", args=SFTConfig(optim=\"apollo_adamw\", {arguments}))")
}

#[test]
fn layers_that_are_projected_are_those_that_transformers_finds() {
    for (named, wanted) in [
        ("\".*attn.*\"", "attention"),
        ("[\"attn\"]", "attention"),
        ("[\"self_attn\", r\".*\\.mlp.*\"]", "all-linear"),
        ("[\"q_proj\"]", "q_proj"),
    ] {
        let read = read(&projecting(&format!("optim_target_modules={named}")));
        let targets = Key::find("lora-targets").unwrap().write(&read.scenario);
        assert_eq!((targets.as_str(), left(&read)), (wanted, vec![]), "{named}");
    }
    for other in [
        "\"attn\"",
        "\".*mlp\"",
        "[\".*attn\"]",
        "[\"mlp.*\"]",
        "[\"(q|k)_proj\"]",
        "[\"layers\"]",
        "[\"model\"]",
        "[\"layers.0.mlp\"]",
        "[\"0.mlp\"]",
        "[\"no_such\"]",
    ] {
        let read = read(&projecting(&format!("optim_target_modules={other}")));
        assert_eq!(read.left.len(), 1, "{other}: {:?}", read.left);
    }
    let starcoder = projecting("optim_target_modules=[\"attn\"]")
        .replace("Qwen/Qwen2.5-0.5B", "bigcode/starcoderbase-1b");
    assert_eq!(read(&starcoder).scenario.lora.modules.to_string(), "c_attn,attn.c_proj");
}

#[test]
fn settings_of_projections_that_are_not_followed_are_told() {
    for other in ["proj=svd", "proj_type=left", "scale_type=tensor"] {
        let read = read(&projecting(&format!("optim_args=\"{other}\", optim_target_modules=\"all-linear\"")));
        assert_eq!(left(&read), [other]);
    }
    // no rank is that of LoRA before it
    let negative = read(&projecting("optim_args=\"rank=-5\", optim_target_modules=\"all-linear\""));
    assert_eq!((negative.scenario.lora.rank, negative.left.len()), (128, 1), "{:?}", negative.left);
}

#[test]
fn names_that_transformers_does_not_run_are_told() {
    for name in ["galore_adafactor_layerwise", "adamw_torch_layerwise", "lomo_layerwise"] {
        let axolotl =
            format!("base_model: meta-llama/Llama-3.2-1B\noptimizer: {name}\nmicro_batch_size: 1\n");
        let read = read(&axolotl);
        assert_eq!(left(&read), [format!("optimizer: {name}")], "{name}");
        assert_eq!(read.scenario.savings.step, StepTime::AfterBackward, "{name}");
    }
}

/// What a file says does not depend on what it is read over: the method of a file that names a model is the file's.
#[test]
fn a_model_without_adapters_is_trained_whole() {
    for text in [
        "torchrun --nproc_per_node 8 train.py --model_name_or_path Qwen/Qwen2.5-7B --per_device_train_batch_size 2 --bf16 True --model_max_length 2048",
        "model_name_or_path: Qwen/Qwen2.5-7B\nper_device_train_batch_size: 2\nlearning_rate: 1e-5\n",
    ] {
        let understood = read(text);
        assert_eq!(understood.scenario.method, Method::Full, "{text}");
        assert!(understood.assumed.iter().any(|assumed| assumed.key == "method"), "{text}");
    }
    let lora = read("python train.py --model_name_or_path Qwen/Qwen2.5-7B --lora_enable True");
    assert_eq!(lora.scenario.method, Method::Lora);
    for (name, text, format, ..) in FILES {
        let is_a_launchers = [Format::Accelerate, Format::DeepSpeed].contains(&format);
        for method in [Method::Lora, Method::Full].into_iter().filter(|_| !is_a_launchers) {
            let over = read_over(text, |base| base.change(|base| base.method = method));
            assert_eq!(over.scenario.method, read(text).scenario.method, "{name} over {method:?}");
        }
    }
}
