//! Which weights are loaded and trained: the method, adapters, 4-bit weights, element types.

use serde_json::Value;

use super::super::named_adapters::{OF_COMMAND, UNREAD};
use super::super::names::{Checkpoint, is_torchao_int8, of_checkpoint};
use super::super::reader::{Reader, Said};
use super::super::tower;
use super::super::trainer;
use super::precision::{Element, element_type};
use super::virtual_tokens;
use super::{EXAMPLE, LORA, MODEL, Parts, Trainer};
use crate::scenario::tuners::scaled;
use crate::scenario::{LoraTargets, Method, Precision, Tuner, VisionTower, WeightFormat};

/// What a text says of the bits in which frozen weights are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frozen {
    In4Bits,
    In8Bits,
    /// Nothing: they stay as they were.
    Unsaid,
}

/// The method, and in how many bits its frozen weights are.
pub(super) fn method(reader: &mut Reader, parts: Parts, names_a_model: bool) -> Frozen {
    let other = other_quantiser(reader);
    let unread = unread_adapters(reader);
    if parts.unsloth {
        for said in &unread {
            reader.misread(said, NOT_READ);
        }
        if let Some((_, said)) = other {
            reader.leave(&said, "Unsloth loads its weights itself");
        }
        unsloths_method(reader);
        return Frozen::In4Bits;
    }
    let eight_bit = reader.switch(&["load_in_8bit", "use_8bit_quantization"]).filter(|(on, _)| *on);
    let eight_bit = eight_bit.or_else(|| other.clone().map(|(_, said)| (true, said)));
    let quantised = reader.switch(&["load_in_4bit", "use_4bit_quantization"]);
    let quantised = quantised.filter(|(on, _)| *on || eight_bit.is_none()).or(eight_bit.clone());
    // the last three are other scripts' names for it
    let adapters = match reader.switch(&["use_peft", "use_lora", "lora_enable", IN_EXAMPLES]) {
        Some((on, said)) => Some((on, said)),
        None if parts.adapters => Some((true, "LoraConfig".to_owned())),
        None if !unread.is_empty() => None,
        None if parts.by_trl && !reader.named(&OF_ADAPTERS).is_empty() => {
            let given: Vec<String> =
                reader.take_each(&OF_ADAPTERS).into_iter().map(|said| said.said).collect();
            let why = "trl makes no adapters without use_peft, which is off by default";
            reader.assume("method", Method::Full.slug(), why);
            reader.leave(&given.join(", "), why);
            None
        }
        None if !reader.named(&OF_ADAPTERS).is_empty() => {
            reader.named(&OF_ADAPTERS).into_iter().next().map(|said| (true, said.said))
        }
        None if parts.command || parts.loads || (parts.arguments && names_a_model) => {
            Some((false, String::new()))
        }
        None => None,
    };
    let is_said = adapters.is_some();
    for said in &unread {
        let of_command = said.contains(OF_COMMAND);
        let why = if of_command { OF_ITS_COMMAND } else { NOT_READ };
        let method = match &quantised {
            Some((true, _)) => Method::Qlora,
            // of which the command says whether weights are quantised too
            Some((false, _)) | None if of_command && reader.scenario.method.has_adapters() => {
                reader.scenario.method
            }
            Some((false, _)) | None => Method::Lora,
        };
        match is_said {
            true => reader.misread(said, why),
            false => reader.replace("method", method.slug(), said, why),
        }
    }
    match (adapters, &quantised) {
        (None, _) if !unread.is_empty() || parts.by_trl && !reader.given(&OF_ADAPTERS).is_empty() => {}
        (Some((true, _)), Some((true, said))) => reader.set("method", Method::Qlora.slug(), said),
        (Some((true, said)), Some((false, _)) | None) => reader.set("method", Method::Lora.slug(), &said),
        (Some((false, _)), Some((true, said))) if parts.generates => {
            reader.set("method", Method::Qlora.slug(), said);
        }
        (Some((false, _)), Some((true, said))) => {
            reader.leave(said, "quantised weights are not trained themselves: no adapters are named");
            reader.assume("method", Method::Qlora.slug(), "quantised weights need adapters");
        }
        (Some((false, said)), _) if !said.is_empty() => reader.set("method", Method::Full.slug(), &said),
        (Some((false, _)), _) => reader.assume("method", Method::Full.slug(), "no adapters are named"),
        (None, Some((true, said))) => reader.set("method", Method::Qlora.slug(), said),
        (None, _) if parts.arguments => {
            let method = reader.scenario.method.slug();
            reader.assume("method", method, "neither a model nor adapters are named: as it was");
        }
        (None, _) => {}
    }
    match eight_bit.filter(|_| reader.scenario.method == Method::Qlora) {
        Some((_, said)) => {
            let format = other.map_or(WeightFormat::Int8, |(format, _)| format);
            reader.set("weight-format", format.slug(), &said);
            if let Some(checkpoint) = of_checkpoint(&said).filter(|_| format.checkpoint().is_some()) {
                groups(reader, &checkpoint, &said);
            }
            Frozen::In8Bits
        }
        None if matches!(quantised, Some((true, _))) => Frozen::In4Bits,
        None => Frozen::Unsaid,
    }
}

/// Arguments that only adapters have: where one of them is given, there are some.
pub(in crate::import) const OF_ADAPTERS: [&str; 4] =
    ["lora_r", "lora_rank", "lora_alpha", "lora_target_modules"];

/// What switches adapters on in PEFT's examples.
pub(super) const IN_EXAMPLES: &str = "use_peft_lora";

/// What is said of adapters that are named and not read.
const NOT_READ: &str = "adapters are named, but not read: answered with LoRA in their place";

/// What is said of those that trl makes of its command's arguments.
const OF_ITS_COMMAND: &str =
    "the command says whether there are adapters, and which (use_peft, lora_r): read that, or say the method";

/// What is named as adapters and not read.
fn unread_adapters(reader: &mut Reader) -> Vec<String> {
    let mut unread: Vec<String> = reader.take_each(&[UNREAD]).iter().map(Said::text).collect();
    unread.extend(reader.take_each(&["peft_config"]).into_iter().map(|said| said.said));
    if unread.is_empty() && reader.gives_any("peft_config.") {
        unread.push("peft_config".to_owned());
    }
    unread
}

/// Of how many weights a scale is, and which kernel runs: a checkpoint's own `group_size` counts where the script says none.
fn groups(reader: &mut Reader, checkpoint: &Checkpoint, said: &str) {
    match checkpoint.group {
        Some(group) => reader.set("group-size", group.slug(), said),
        None => {
            reader.assume("group-size", "128", "the checkpoint's own group_size counts, which is 128 in most")
        }
    }
    if !checkpoint.trains {
        let why = "gptqmodel chooses Marlin's kernel, which stops at model.train(): predicted with backend=\"auto_trainable\"";
        reader.leave(said, why);
    }
}

/// The format of weights that torchao makes, or that a checkpoint of GPTQ's or AWQ's has; what another quantiser makes is left.
fn other_quantiser(reader: &mut Reader) -> Option<(WeightFormat, String)> {
    let said = reader.take(&["quantised_by"])?.text();
    if is_torchao_int8(&said) {
        return Some((WeightFormat::TorchaoInt8, said));
    }
    if let Some(checkpoint) = of_checkpoint(&said) {
        return Some((checkpoint.format, said));
    }
    let class = said.split('(').next().unwrap_or_default();
    let why = match class {
        "TorchAoConfig" if said.to_lowercase().contains("int4") => {
            "peft has no adapters over torchao's int4 weights: the run stops; predicted over 16-bit weights"
        }
        "TorchAoConfig" => {
            "of torchao's weights those of Int8WeightOnlyConfig() are predicted; predicted over 16-bit weights"
        }
        "HqqConfig" => {
            "transformers 5 does not quantise by HQQ (\"hqq is not available yet\"): the run stops; predicted over 16-bit weights"
        }
        "GPTQConfig" => {
            "of GPTQ's weights those of 4 and 8 bits in groups of 32, 64, 128 or a whole column are predicted; predicted over 16-bit weights"
        }
        "AwqConfig" => {
            "of AWQ's weights those of 4 bits with zeros (version \"gemm\") in groups of 32, 64, 128 or a whole column are predicted; predicted over 16-bit weights"
        }
        _ => {
            "weights that are quantised by this are not predicted: predicted over 16-bit weights, which take more"
        }
    };
    reader.leave(&said, why);
    None
}

/// `FastLanguageModel.from_pretrained` loads in 4 bits where nothing is said (unsloth/models/loader.py), and trains all weights
/// only with `full_finetuning`.
fn unsloths_method(reader: &mut Reader) {
    if let Some((true, said)) = reader.switch(&["full_finetuning"]) {
        reader.pass(|name| ["load_in_4bit", "load_in_8bit", "load_in_16bit", "load_in_fp8"].contains(&name));
        return reader.set("method", Method::Full.slug(), &said);
    }
    let four_bit = reader.switch(&["load_in_4bit"]);
    let wider = reader.given(&["load_in_8bit", "load_in_fp8"]);
    match (reader.switch(&["load_in_16bit"]), four_bit) {
        (Some((true, said)), _) | (_, Some((false, said))) => {
            reader.set("method", Method::Lora.slug(), &said)
        }
        (_, Some((true, said))) => reader.set("method", Method::Qlora.slug(), &said),
        (_, None) if !wider.is_empty() => {
            reader.assume("method", Method::Lora.slug(), "the weights are not loaded in 4 bits");
        }
        (_, None) => {
            reader.assume(
                "method",
                Method::Qlora.slug(),
                "load_in_4bit is from_pretrained's default in Unsloth",
            );
        }
    }
}

pub(super) fn adapters(reader: &mut Reader, parts: Parts, frozen: Frozen) {
    let is_example = !reader.given(&[IN_EXAMPLES]).is_empty();
    let is_named = parts.adapters || parts.command || !reader.given(&OF_ADAPTERS).is_empty();
    let (rank, dropout, why) = match (parts.command, parts.unsloth) {
        _ if is_example => ("64", "0.1", EXAMPLE),
        (true, _) => ("16", "0.05", MODEL),
        (false, true) => ("16", "0", "get_peft_model's default in Unsloth 2026.10"),
        (false, false) => ("8", "0", LORA),
    };
    let other = parts.tuner.filter(|tuner| !matches!(tuner, Tuner::Lora | Tuner::Dora));
    if let Some(tuner) = other.filter(|_| reader.scenario.method.has_adapters()) {
        match tuner.adapts_layers() {
            true => tuners(reader, tuner),
            false => virtual_tokens::read(reader, tuner),
        }
    } else if reader.scenario.method.has_adapters() && is_named {
        reader.or_assume(
            "lora-rank",
            &["lora_r", "lora_rank", "LoraConfig.r", "get_peft_model.r"],
            rank,
            why,
        );
        reader.or_assume("lora-dropout", &["lora_dropout"], dropout, why);
        if parts.unsloth {
            reader.refuse(&["use_dora"], "DoRA is predicted as peft runs it, not as Unsloth does");
            reader.quietly("adapter", "lora");
        } else {
            trainer::decomposes(reader, &["use_dora"]);
        }
        match reader.take(&[
            "lora_target_modules",
            "LoraConfig.target_modules",
            "get_peft_model.target_modules",
        ]) {
            Some(said) if parts.unsloth => unsloths_targets(reader, &said),
            Some(said) => reader.targets(&said),
            None if parts.unsloth => unsloths_layers(reader, why),
            None if is_example => reader.assume("lora-targets", LoraTargets::AllLinear.slug(), why),
            None => reader.assume("lora-targets", "qv", "peft's default for the family"),
        }
        match reader.take(&[
            "lora_modules_to_save",
            "LoraConfig.modules_to_save",
            "get_peft_model.modules_to_save",
        ]) {
            Some(said) => trainer::saved(reader, &said),
            None => reader.assume("train-embeddings", "off", why),
        }
        if let Some(said) = reader.take(&["LoraConfig.exclude_modules", "get_peft_model.exclude_modules"]) {
            tower::excluded(reader, &said);
        }
        if !reader.switches("fp32-adapters", &["autocast_adapter_dtype"]) {
            // transformers' own `add_adapter` leaves them in the model's type
            reader.quietly("fp32-adapters", if parts.trainer == Trainer::Embed { "off" } else { "on" });
        }
        if let Some(said) = reader.take(&["LoraConfig.bias", "get_peft_model.bias"]) {
            if said.text() == "none" {
                reader.idle.push(said.said)
            } else {
                reader.leave(&said.said, "trained biases are not predicted")
            }
        }
    }
    left_whole(reader);
    if reader.scenario.method == Method::Qlora {
        // a text may set one of them alone, and what says nothing of weights has no defaults for them
        let is_said = frozen == Frozen::In4Bits || !reader.given(&OF_4_BITS).is_empty();
        if frozen != Frozen::In8Bits && is_said {
            four_bit(reader, parts);
        }
        if !parts.trl && !parts.unsloth && (parts.loads || parts.prepares) {
            match parts.prepares {
                true => reader.set("kbit-prepare", "on", "prepare_model_for_kbit_training"),
                false => {
                    reader.assume("kbit-prepare", "off", "prepare_model_for_kbit_training is not called");
                }
            }
        }
    }
}

/// Layers that are kept out of bitsandbytes' formats: the head is by default (transformers 5.17 `get_keys_to_not_convert`).
fn left_whole(reader: &mut Reader) {
    for said in reader.take_each(&["llm_int8_skip_modules"]) {
        match said.words().iter().all(|word| word.trim() == "lm_head") {
            true => reader.idle.push(said.said),
            false => reader.leave(
                &said.said,
                "layers that are not quantised with the others are not followed: they are taken as they are",
            ),
        }
    }
}

/// The layers that Unsloth is asked to adapt: an embedding and a head among them are trained whole (unsloth/models/llama.py
/// `_redirect_embedding_targets`).
fn unsloths_targets(reader: &mut Reader, said: &Said) {
    let (whole, others): (Vec<_>, Vec<_>) =
        said.words().into_iter().partition(|word| ["embed_tokens", "lm_head"].contains(&word.as_str()));
    if whole.is_empty() {
        return reader.targets(said);
    }
    let of = |words: Vec<String>| Said { value: Value::from(words), said: said.said.clone() };
    trainer::saved(reader, &of(whole));
    reader.targets(&of(others));
}

/// Which layers get adapters where none are named: `get_peft_model` of Unsloth's `FastModel` and `FastVisionModel` has four switches for
/// it, all of them on by default (unsloth/models/vision.py).
fn unsloths_layers(reader: &mut Reader, why: &str) {
    match reader.switch(&["finetune_vision_layers"]) {
        Some((on, said)) if reader.scenario.sees() => {
            let tower = if on { VisionTower::Trained } else { VisionTower::Frozen };
            reader.set("vision-tower", tower.slug(), &said);
        }
        Some((_, said)) => reader.idle.push(said),
        None if reader.scenario.sees() => reader.assume("vision-tower", VisionTower::Trained.slug(), why),
        None => {}
    }
    if let Some((on, said)) = reader.switch(&["finetune_language_layers"]) {
        match on {
            true => reader.idle.push(said),
            false => reader.leave(&said, "adapters of the tower alone are not predicted"),
        }
    }
    let attention = reader.switch(&["finetune_attention_modules"]);
    let feed_forward = reader.switch(&["finetune_mlp_modules"]);
    match (attention, feed_forward) {
        (Some((false, said)), Some((false, other))) => {
            reader.leave(&format!("{said}, {other}"), "no layer is left that would get adapters");
        }
        (Some((false, said)), other) => {
            reader.set("lora-targets", LoraTargets::Mlp.slug(), &said);
            reader.idle.extend(other.map(|(_, said)| said));
        }
        (other, Some((false, said))) => {
            reader.set("lora-targets", LoraTargets::Attention.slug(), &said);
            reader.idle.extend(other.map(|(_, said)| said));
        }
        (attention, feed_forward) => {
            reader.idle.extend([attention, feed_forward].into_iter().flatten().map(|(_, said)| said));
            reader.assume("lora-targets", LoraTargets::AllLinear.slug(), why);
        }
    }
}

/// The settings of a tuner that is no LoRA.
fn tuners(reader: &mut Reader, tuner: Tuner) {
    let class = tuner.class();
    let why = format!("{class}'s default in peft 0.21");
    let of = |name: &str| format!("{class}.{name}");
    reader.set("adapter", tuner.slug(), class);
    if tuner.has_rank() {
        let default = tuner.usual_rank().to_string();
        reader.or_assume("lora-rank", &[&of(tuner.rank_name())], &default, &why);
    }
    if tuner.has_dropout() {
        reader.or_assume("lora-dropout", &["vera_dropout"], "0", &why);
    }
    match reader.take(&[&of("target_modules")]) {
        Some(said) => reader.targets(&said),
        None => reader.assume("lora-targets", "qv", "peft's default for the family"),
    }
    match reader.take(&[&of("modules_to_save")]) {
        Some(said) => trainer::saved(reader, &said),
        None => reader.quietly("train-embeddings", "off"),
    }
    if !reader.switches("fp32-adapters", &["autocast_adapter_dtype"]) {
        reader.quietly("fp32-adapters", "on");
    }
    if let Some(said) = reader.take(&[&of("feedforward_modules")]) {
        let own = reader.scenario.architecture().ok().and_then(|model| scaled(&model));
        let mut given = said.words();
        given.sort();
        if own.is_some_and(|own| given == own.feed_forward) {
            reader.idle.push(said.said);
        } else {
            reader.leave(&said.said, "the feed-forward layers are predicted that peft knows of the family");
        }
    }
    reader.refuse(&[&of("bias")], "trained biases are not predicted");
    if tuner == Tuner::Oft {
        // its defaults, as a saved configuration has them
        for (name, default) in [
            ("r", "0"),
            ("coft", "false"),
            ("block_share", "false"),
            ("use_cayley_neumann", "true"),
            ("num_cayley_neumann_terms", "5"),
        ] {
            if let Some(said) = reader.take(&[&of(name)]) {
                match said.text().eq_ignore_ascii_case(default) {
                    true => reader.idle.push(said.said),
                    false => reader.leave(&said.said, "of OFT this is predicted at its default alone"),
                }
            }
        }
    }
    let dropouts = ["rank_dropout", "module_dropout"];
    for name in dropouts.into_iter().filter(|_| matches!(tuner, Tuner::Loha | Tuner::Lokr | Tuner::Oft)) {
        if let Some(said) = reader.take(&[name]) {
            match said.number() {
                Some(0.0) => reader.idle.push(said.said),
                _ => reader.leave(&said.said, "this dropout is not predicted"),
            }
        }
    }
    if let Some(said) = reader.take(&["decompose_factor"]) {
        match said.number() {
            Some(-1.0) => reader.idle.push(said.said),
            _ => reader.leave(&said.said, "LoKr is predicted with factors that are near to each other (-1)"),
        }
    }
    reader.refuse(&["decompose_both"], "LoKr is predicted with one whole matrix");
    reader.pass(|name| OF_TUNERS.contains(&name));
}

/// What of tuners' settings changes no memory.
const OF_TUNERS: &[&str] = &[
    "init_ia3_weights",
    "projection_prng_key",
    "save_projection",
    "d_initial",
    "init_weights",
    "alpha",
    "rank_dropout_scale",
    "use_effective_conv2d",
    "eps",
];

/// `BitsAndBytesConfig`'s arguments of 4-bit weights, as others name them too.
const OF_4_BITS: [&str; 4] =
    ["bnb_4bit_quant_type", "bnb_4bit_use_double_quant", "use_bnb_nested_quant", "bnb_4bit_compute_dtype"];

fn four_bit(reader: &mut Reader, parts: Parts) {
    if let Some(said) = reader.take(&["bnb_4bit_quant_type"]) {
        reader.set("weight-format", "nf4", &said.said);
    } else {
        reader.quietly("weight-format", "nf4");
    }
    let names = ["bnb_4bit_use_double_quant", "use_bnb_nested_quant"];
    match (reader.take(&names), parts.unsloth) {
        (Some(said), _) => reader.set("double-quant", &said.text(), &said.said),
        (None, true) => reader.assume("double-quant", "on", "Unsloth's own quantisation"),
        (None, false) => reader.assume("double-quant", "off", "BitsAndBytesConfig's default"),
    }
    if parts.command && reader.scenario.precision != Precision::AmpBf16Weights {
        reader.leave(
            "dtype",
            "trl's command computes 4-bit products in the type of the weights: predicted in bfloat16",
        );
    } else if let Some(said) = reader.take(&["bnb_4bit_compute_dtype"]) {
        match element_type(&said.text()) {
            Some(Element::Fp32) => reader.leave(&said.said, "4-bit products are predicted in 16 bits"),
            Some(Element::Bf16 | Element::Fp16 | Element::Published) => reader.idle.push(said.said),
            None => reader.keep("precision", &said.said, "this is no element type"),
        }
    } else if parts.loads && !parts.unsloth {
        reader.leave(
            "bnb_4bit_compute_dtype",
            "BitsAndBytesConfig computes in float32 where nothing is said; predicted in 16 bits",
        );
    }
}
