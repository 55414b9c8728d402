//! What other projects call what a scenario chooses, for reading and for writing.

use crate::model::modeling::lacks_sdpa;
use crate::scenario::{AttentionKernel, GroupSize, Optimizer, Scenario, WeightFormat};

/// What `TrainingArguments.optim` calls an optimizer (transformers 5.17, training_args.py `OptimizerNames`); none where it
/// has no name for it.
pub(crate) fn optim(optimizer: Optimizer) -> Option<&'static str> {
    match optimizer {
        Optimizer::AdamW => Some("adamw_torch"),
        Optimizer::AdamWFused => Some("adamw_torch_fused"),
        Optimizer::AdamW8bit => Some("adamw_bnb_8bit"),
        Optimizer::AdamW8bitTorchao => Some("adamw_torch_8bit"),
        Optimizer::AdamW4bitTorchao => Some("adamw_torch_4bit"),
        Optimizer::PagedAdamW8bit => Some("paged_adamw_8bit"),
        Optimizer::PagedAdamW => Some("paged_adamw_32bit"),
        Optimizer::Sgd => Some("sgd"),
        Optimizer::Adagrad => Some("adagrad"),
        Optimizer::Adafactor => Some("adafactor"),
        Optimizer::AdEmaMix => Some("ademamix"),
        Optimizer::AdEmaMix8bit => Some("ademamix_8bit"),
        Optimizer::PagedAdEmaMix => Some("paged_ademamix_32bit"),
        Optimizer::PagedAdEmaMix8bit => Some("paged_ademamix_8bit"),
        Optimizer::Lion => Some("lion_32bit"),
        Optimizer::Lion8bit => Some("lion_8bit"),
        Optimizer::ScheduleFreeAdamW => Some("schedule_free_adamw"),
        Optimizer::StableAdamW => Some("stable_adamw"),
        Optimizer::GaLoreAdamW => Some("galore_adamw"),
        Optimizer::GaLoreAdamW8bit => Some("galore_adamw_8bit"),
        Optimizer::GaLoreAdafactor => Some("galore_adafactor"),
        Optimizer::ApolloAdamW => Some("apollo_adamw"),
        Optimizer::Lomo => Some("lomo"),
        Optimizer::AdaLomo => Some("adalomo"),
        Optimizer::AdamWForLoop
        | Optimizer::AdamWEarly
        | Optimizer::AdamWCpuOffload
        | Optimizer::AdamWCpuOffloadGradients
        | Optimizer::AmsGrad
        | Optimizer::Adam
        | Optimizer::NAdam
        | Optimizer::SgdMomentum
        | Optimizer::Nesterov
        | Optimizer::RmsProp
        | Optimizer::AdafactorTorch
        | Optimizer::Lamb
        | Optimizer::SparseAdam
        | Optimizer::Shampoo
        | Optimizer::Muon
        | Optimizer::AdamMini
        | Optimizer::AdaBelief => None,
    }
}

/// The optimizer of that name, an older name of it among them.
pub(super) fn optimizer(name: &str) -> Option<Optimizer> {
    match name {
        "adamw_hf" => Some(Optimizer::AdamW),
        "adamw_8bit" => Some(Optimizer::AdamW8bit),
        "rmsprop" => Some(Optimizer::RmsProp),
        name => Optimizer::ALL.iter().copied().find(|optimizer| optim(*optimizer) == Some(name)),
    }
}

/// torchao's optimizer in the CPU's memory, which steps AdamW unless it is told of another.
pub(super) const CPU_OFFLOAD: &str = "torchao.optim.CPUOffloadOptimizer";

/// The class of an optimizer with the arguments that make it this one, switches as 1 and 0, as torchtune's `_component_` and loops of
/// one's own name it; none where it takes another.
pub(crate) fn component(optimizer: Optimizer) -> Option<(&'static str, &'static [(&'static str, f64)])> {
    match optimizer {
        Optimizer::AdamW => Some(("torch.optim.AdamW", &[])),
        Optimizer::AdamWFused => Some(("torch.optim.AdamW", &[("fused", 1.0)])),
        Optimizer::AdamWForLoop => Some(("torch.optim.AdamW", &[("foreach", 0.0)])),
        Optimizer::AmsGrad => Some(("torch.optim.AdamW", &[("amsgrad", 1.0)])),
        Optimizer::Adam => Some(("torch.optim.Adam", &[])),
        Optimizer::Sgd => Some(("torch.optim.SGD", &[])),
        Optimizer::SgdMomentum => Some(("torch.optim.SGD", &[("momentum", 0.9)])),
        Optimizer::Nesterov => Some(("torch.optim.SGD", &[("momentum", 0.9), ("nesterov", 1.0)])),
        Optimizer::Adagrad => Some(("torch.optim.Adagrad", &[])),
        Optimizer::RmsProp => Some(("torch.optim.RMSprop", &[])),
        Optimizer::NAdam => Some(("torch.optim.NAdam", &[])),
        Optimizer::AdafactorTorch => Some(("torch.optim.Adafactor", &[])),
        Optimizer::Adafactor => Some(("transformers.optimization.Adafactor", &[])),
        Optimizer::AdamW8bit => Some(("bitsandbytes.optim.AdamW8bit", &[])),
        Optimizer::AdamW8bitTorchao => Some(("torchao.optim.AdamW8bit", &[])),
        Optimizer::AdamW4bitTorchao => Some(("torchao.optim.AdamW4bit", &[])),
        Optimizer::AdamWCpuOffload => Some((CPU_OFFLOAD, &[])),
        Optimizer::AdamWCpuOffloadGradients => Some((CPU_OFFLOAD, &[("offload_gradients", 1.0)])),
        Optimizer::PagedAdamW8bit => Some(("bitsandbytes.optim.PagedAdamW8bit", &[])),
        Optimizer::PagedAdamW => Some(("bitsandbytes.optim.PagedAdamW", &[])),
        Optimizer::Lion => Some(("bitsandbytes.optim.Lion", &[])),
        Optimizer::Lion8bit => Some(("bitsandbytes.optim.Lion8bit", &[])),
        Optimizer::Lamb => Some(("bitsandbytes.optim.LAMB", &[])),
        Optimizer::StableAdamW => Some(("optimi.StableAdamW", &[])),
        Optimizer::GaLoreAdamW => Some(("galore_torch.GaLoreAdamW", &[])),
        Optimizer::GaLoreAdamW8bit => Some(("galore_torch.GaLoreAdamW8bit", &[])),
        Optimizer::GaLoreAdafactor => Some(("galore_torch.GaLoreAdafactor", &[])),
        Optimizer::ApolloAdamW => Some(("apollo_torch.APOLLOAdamW", &[])),
        Optimizer::AdamMini => Some(("adam_mini.Adam_mini", &[])),
        Optimizer::Lomo => Some(("lomo_optim.Lomo", &[])),
        Optimizer::AdaLomo => Some(("lomo_optim.AdaLomo", &[])),
        Optimizer::AdEmaMix => Some(("bitsandbytes.optim.AdEMAMix", &[])),
        Optimizer::AdEmaMix8bit => Some(("bitsandbytes.optim.AdEMAMix8bit", &[])),
        Optimizer::PagedAdEmaMix => Some(("bitsandbytes.optim.PagedAdEMAMix", &[])),
        Optimizer::PagedAdEmaMix8bit => Some(("bitsandbytes.optim.PagedAdEMAMix8bit", &[])),
        Optimizer::AdamWEarly
        | Optimizer::SparseAdam
        | Optimizer::Shampoo
        | Optimizer::Muon
        | Optimizer::ScheduleFreeAdamW
        | Optimizer::AdaBelief => None,
    }
}

/// The whole path of an optimizer's class, which Python names by what was imported: `optim.AdamW`, `bnb.optim.AdamW8bit`.
pub(super) fn whole_path(path: &str) -> String {
    let class = path.rsplit('.').next().unwrap_or_default();
    match path.strip_prefix("bnb.").or_else(|| path.strip_prefix("bitsandbytes.")) {
        Some(rest) => format!("bitsandbytes.{rest}"),
        None if path == "transformers.Adafactor" => "transformers.optimization.Adafactor".to_owned(),
        // where torchao had them before
        None if path.starts_with("torchao.") => format!("torchao.optim.{class}"),
        None if path.starts_with("optim.") => format!("torch.{path}"),
        // it stands for torch's where the optimizer is in the CPU's memory
        None if path.ends_with("DeepSpeedCPUAdam") => "torch.optim.AdamW".to_owned(),
        // `from torch.optim import AdamW`, or the name alone that one other project gave its class
        None if !path.contains('.') => {
            let torchs = format!("torch.optim.{path}");
            let ends = |class: &str| class.rsplit('.').next() == Some(path);
            let known = || Optimizer::ALL.iter().filter_map(|optimizer| Some(component(*optimizer)?.0));
            if known().any(|class| class == torchs) {
                return torchs;
            }
            known().find(|class| ends(class)).map_or(torchs, str::to_owned)
        }
        None => path.to_owned(),
    }
}

/// What is said where any Muon is named.
pub(super) const MUON: &str = ", taken for torch.optim.Muon with torch.optim.AdamW beside it";

/// What is said where `TrainingArguments` leave a setting at its default.
pub(super) const TRAINING_ARGUMENTS: &str = "TrainingArguments' default in transformers 5.17";

/// Whether a class is an optimizer: one that is known, another one of a module of optimizers, or whatever is made of a model's parameters.
pub(super) fn is_optimizer(path: &str, first: &str) -> bool {
    let whole = whole_path(path);
    let known = |optimizer: &Optimizer| component(*optimizer).is_some_and(|(class, _)| class == whole);
    let of_module = path.split_once("optim.").map(|(_, class)| class);
    let class = path.rsplit('.').next().unwrap_or_default();
    // a mean of the weights is made of them too
    let is_mean = ["EMA", "Average", "Averaged"].iter().any(|word| class.contains(word));
    let is_of_parameters =
        first.contains("parameters()") && class.starts_with(char::is_uppercase) && !is_mean;
    Optimizer::ALL.iter().any(known)
        || of_module.is_some_and(|class| class.starts_with(char::is_uppercase))
        || is_of_parameters
}

/// What else is made of a class that has no line above: Muon steps matrices and is given AdamW beside it for all else, in one class or
/// in two.
pub(super) fn other_class(class: &str) -> Option<Optimizer> {
    let name = class.rsplit('.').next().unwrap_or_default();
    match class {
        "schedulefree.AdamWScheduleFree" => Some(Optimizer::ScheduleFreeAdamW),
        _ if ["Muon", "MuonWithAuxAdam", "SingleDeviceMuonWithAuxAdam"].contains(&name) => {
            Some(Optimizer::Muon)
        }
        _ => None,
    }
}

/// Kernels of `scaled_dot_product_attention`, which `torch.backends.cuda.enable_…_sdp` switches, by their names there.
pub(crate) const SDP_KERNELS: [(&str, AttentionKernel); 4] = [
    ("flash", AttentionKernel::Flash),
    ("mem_efficient", AttentionKernel::Efficient),
    ("math", AttentionKernel::Math),
    ("cudnn", AttentionKernel::Cudnn),
];

/// What transformers calls a scenario's attention (`attn_implementation`): kernels of PyTorch have no name of their own, and a family without
/// any of them is written out.
pub(crate) fn attention(scenario: &Scenario) -> &'static str {
    match scenario.attention {
        AttentionKernel::Eager => "eager",
        AttentionKernel::Sdpa if has_no_sdpa(scenario) => "eager",
        AttentionKernel::FlashAttn => "flash_attention_2",
        AttentionKernel::Sdpa
        | AttentionKernel::Flash
        | AttentionKernel::Efficient
        | AttentionKernel::Math
        | AttentionKernel::Cudnn => "sdpa",
    }
}

/// Whether the classes of the model's family have no attention but the one that is written out.
pub(crate) fn has_no_sdpa(scenario: &Scenario) -> bool {
    scenario.architecture().is_ok_and(|architecture| lacks_sdpa(&architecture.model_type))
}

/// Whether a class of transformers 5.17 says who else than bitsandbytes quantises weights (utils/quantization_config.py).
pub(super) fn is_quantiser(class: &str) -> bool {
    [
        "TorchAoConfig",
        "GPTQConfig",
        "AwqConfig",
        "HqqConfig",
        "AqlmConfig",
        "EetqConfig",
        "QuantoConfig",
        "FineGrainedFP8Config",
        "FbgemmFp8Config",
        "HiggsConfig",
        "Mxfp4Config",
        "SpQRConfig",
        "VptqConfig",
        "BitNetQuantConfig",
        "CompressedTensorsConfig",
        "AutoRoundConfig",
    ]
    .contains(&class)
}

/// Whether it is torchao's int8 weight-only quantisation as it is by default, with a scale per row; older transformers take a string.
pub(super) fn is_torchao_int8(said: &str) -> bool {
    // what decides which layers are quantised, or in which groups, is another matter
    const OTHER: [&str; 4] = ["granularity", "group_size", "modules_to_not_convert", "include_input_output"];
    let Some(given) = said.strip_prefix("TorchAoConfig(") else { return false };
    let (class, _) = given.split_once(['(', ',']).unwrap_or((given.trim_end_matches(')'), ""));
    let name = class.trim().rsplit('.').next().unwrap_or_default();
    ["Int8WeightOnlyConfig", "int8_weight_only"].contains(&name)
        && !OTHER.iter().any(|own| given.contains(own))
}

/// What a `GPTQConfig` or `AwqConfig` says of a checkpoint.
pub(super) struct Checkpoint {
    pub format: WeightFormat,
    /// Of how many weights a scale is; none where nothing is said.
    pub group: Option<GroupSize>,
    /// Whether a kernel is asked for that trains.
    pub trains: bool,
}

/// What a `GPTQConfig(bits=4, …)` or an `AwqConfig(…)` says; nothing of what is not predicted. Where a checkpoint is quantised already
/// transformers takes its own settings, and the kernel alone of these.
pub(super) fn of_checkpoint(said: &str) -> Option<Checkpoint> {
    let (class, given) = said.trim_end_matches(')').split_once('(')?;
    let of = |name: &str| {
        given.split(',').find_map(|part| {
            let (own, value) = part.split_once('=')?;
            (own.trim() == name).then(|| value.trim().trim_matches(['"', '\'']))
        })
    };
    // a name, or a member of gptqmodel's BACKEND or transformers' AwqBackend
    let backend = of("backend").unwrap_or_default().to_lowercase();
    let backend = backend.rsplit('.').next().unwrap_or_default();
    let first = given.split(',').next().map(str::trim).filter(|first| !first.contains('='));
    let (format, trained) = match (class, of("bits").or(first).unwrap_or_default()) {
        ("GPTQConfig", "4") => (WeightFormat::Gptq4, ["gptq_triton"].as_slice()),
        ("GPTQConfig", "8") => (WeightFormat::Gptq8, ["gptq_triton"].as_slice()),
        ("AwqConfig", "4" | "") if backend == "gemm" => (WeightFormat::Awq4Cuda, ["gemm"].as_slice()),
        ("AwqConfig", "4" | "") => (WeightFormat::Awq4, ["gemm_triton"].as_slice()),
        _ => return None,
    };
    let is_gemm = |name| of(name).is_none_or(|value| value.to_lowercase().ends_with("gemm"));
    let without_zeros = of("zero_point").is_some_and(|value| value.eq_ignore_ascii_case("false"));
    if class == "AwqConfig" && (without_zeros || !is_gemm("version") || !is_gemm("format")) {
        return None;
    }
    let group = match of("group_size") {
        None => None,
        Some("128") => Some(GroupSize::Of128),
        Some("64") => Some(GroupSize::Of64),
        Some("32") => Some(GroupSize::Of32),
        // the reader of Python makes a float of a negative number
        Some("-1" | "-1.0") => Some(GroupSize::Column),
        Some(_) => return None,
    };
    Some(Checkpoint { format, group, trains: backend == "auto_trainable" || trained.contains(&backend) })
}

/// The sizes of torchtitan's Llama 3 (0.2.2, models/llama3/__init__.py) and who has them.
pub(crate) const TORCHTITAN: [(&str, &str); 3] = [
    ("8B", "meta-llama/Llama-3.1-8B"),
    ("70B", "meta-llama/Llama-3.1-70B"),
    ("405B", "meta-llama/Llama-3.1-405B"),
];

/// torchtune's models (0.6.1, recipes/configs) with the Hub ids that their recipes download; `lora_` and `qlora_` stand before
/// a builder with adapters.
pub(crate) const TORCHTUNE: &[(&str, &str)] = &[
    ("torchtune.models.llama3_1.llama3_1_8b", "meta-llama/Llama-3.1-8B"),
    ("torchtune.models.llama3_1.llama3_1_70b", "meta-llama/Llama-3.1-70B"),
    ("torchtune.models.llama3_1.llama3_1_405b", "meta-llama/Llama-3.1-405B"),
    ("torchtune.models.llama3_2.llama3_2_1b", "meta-llama/Llama-3.2-1B"),
    ("torchtune.models.llama3_2.llama3_2_3b", "meta-llama/Llama-3.2-3B"),
    ("torchtune.models.llama3_3.llama3_3_70b", "meta-llama/Llama-3.3-70B-Instruct"),
    ("torchtune.models.llama3.llama3_8b", "meta-llama/Meta-Llama-3-8B"),
    ("torchtune.models.llama3.llama3_70b", "meta-llama/Meta-Llama-3-70B"),
    ("torchtune.models.llama2.llama2_7b", "meta-llama/Llama-2-7b-hf"),
    ("torchtune.models.llama2.llama2_13b", "meta-llama/Llama-2-13b-hf"),
    ("torchtune.models.llama2.llama2_70b", "meta-llama/Llama-2-70b-hf"),
    ("torchtune.models.code_llama2.code_llama2_7b", "codellama/CodeLlama-7b-hf"),
    ("torchtune.models.code_llama2.code_llama2_13b", "codellama/CodeLlama-13b-hf"),
    ("torchtune.models.code_llama2.code_llama2_70b", "codellama/CodeLlama-70b-hf"),
    ("torchtune.models.mistral.mistral_7b", "mistralai/Mistral-7B-v0.1"),
    ("torchtune.models.gemma.gemma_2b", "google/gemma-2b"),
    ("torchtune.models.gemma.gemma_7b", "google/gemma-7b"),
    ("torchtune.models.gemma2.gemma2_2b", "google/gemma-2-2b"),
    ("torchtune.models.gemma2.gemma2_9b", "google/gemma-2-9b"),
    ("torchtune.models.gemma2.gemma2_27b", "google/gemma-2-27b"),
    ("torchtune.models.phi3.phi3_mini", "microsoft/Phi-3-mini-4k-instruct"),
    ("torchtune.models.phi4.phi4_14b", "microsoft/phi-4"),
    ("torchtune.models.qwen2.qwen2_0_5b", "Qwen/Qwen2-0.5B"),
    ("torchtune.models.qwen2.qwen2_1_5b", "Qwen/Qwen2-1.5B"),
    ("torchtune.models.qwen2.qwen2_7b", "Qwen/Qwen2-7B"),
    ("torchtune.models.qwen2_5.qwen2_5_0_5b", "Qwen/Qwen2.5-0.5B"),
    ("torchtune.models.qwen2_5.qwen2_5_1_5b_base", "Qwen/Qwen2.5-1.5B"),
    ("torchtune.models.qwen2_5.qwen2_5_1_5b_instruct", "Qwen/Qwen2.5-1.5B-Instruct"),
    ("torchtune.models.qwen2_5.qwen2_5_3b", "Qwen/Qwen2.5-3B"),
    ("torchtune.models.qwen2_5.qwen2_5_7b_base", "Qwen/Qwen2.5-7B"),
    ("torchtune.models.qwen2_5.qwen2_5_7b_instruct", "Qwen/Qwen2.5-7B-Instruct"),
    ("torchtune.models.qwen2_5.qwen2_5_14b_base", "Qwen/Qwen2.5-14B"),
    ("torchtune.models.qwen2_5.qwen2_5_14b_instruct", "Qwen/Qwen2.5-14B-Instruct"),
    ("torchtune.models.qwen2_5.qwen2_5_32b_base", "Qwen/Qwen2.5-32B"),
    ("torchtune.models.qwen2_5.qwen2_5_32b_instruct", "Qwen/Qwen2.5-32B-Instruct"),
    ("torchtune.models.qwen2_5.qwen2_5_72b_base", "Qwen/Qwen2.5-72B"),
    ("torchtune.models.qwen2_5.qwen2_5_72b_instruct", "Qwen/Qwen2.5-72B-Instruct"),
];

/// axolotl's fused adapters, which it switches on by itself (0.19, utils/schemas/config.py).
pub(crate) const AXOLOTL_KERNELS: [&str; 4] =
    ["lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel", "lora_embedding_kernel"];

/// Of a condition in Python that asks for what the card computes in: whether it holds where that is bfloat16, and not where it is
/// float16 alone. None of any other condition.
pub(super) fn holds_with_bfloat16(condition: &str) -> Option<bool> {
    let condition = condition.trim();
    let asks = ["is_bf16_supported", "is_bfloat16_supported"].iter().any(|name| condition.contains(name));
    if asks {
        return Some(!condition.starts_with("not "));
    }
    // Ampere, the first with bfloat16, has compute capability 8.0
    let words: String = condition.chars().filter(|c| !c.is_whitespace()).collect();
    if !words.contains("capability") && !words.contains("major") {
        None
    } else if words.ends_with(">=8") || words.ends_with(">=(8,0)") || words.ends_with(">7") {
        Some(true)
    } else if words.ends_with("<8") || words.ends_with("<(8,0)") {
        Some(false)
    } else {
        None
    }
}
