//! What trainers over transformers' `Trainer` have in common.

use super::low_rank;
use super::names::{CPU_OFFLOAD, MUON, component, has_no_sdpa, optimizer, other_class, whole_path};
use super::reader::{Reader, Said};
use crate::scenario::{Optimizer, Scenario, Sharding, Tuner};

/// What is said of settings of pictures.
pub(super) const PICTURES: &str = "pictures are not taken from the file, so that a run on text alone is answered: say how many a sequence has and \
                                   of what size (--images, --image-height, --image-width)";

/// Whether the model is one whose steps with pictures are followed, and nobody has said how many a text has.
pub(super) fn sees_unsaid(scenario: &Scenario) -> bool {
    scenario.sees() && scenario.task.trains() && scenario.pictures.count == 0
}

/// What every one of them does in its loop: nobody has to be told.
pub(super) fn usual_loop(reader: &mut Reader) {
    for (key, value) in [
        ("keep-outputs", "off"),
        ("set-to-none", "on"),
        ("use-cache", "off"),
        ("optimizer-step", "after-backward"),
        ("loss", "standard"),
        ("activation-offloading", "off"),
        // axolotl's alone
        ("fused-adapters", "off"),
        ("evaluation", "off"),
        ("saving", "off"),
        ("vision-tower", "trained"),
    ] {
        reader.quietly(key, value);
    }
}

/// The optimizer by its name in `OptimizerNames`, and whether gradients are clipped.
pub(super) fn optimization(reader: &mut Reader, names: &[&str], default: &str, why: &str) {
    match reader.take(names) {
        Some(said) => {
            let name = said.text().trim_start_matches("OptimizerNames.").to_ascii_lowercase();
            named(reader, &name, &said.said);
        }
        None => reader.assume("optimizer", default, why),
    }
    match reader.take(&["max_grad_norm"]) {
        Some(said) => clips(reader, &said),
        None => reader.assume("clip-gradients", "on", "max_grad_norm is 1.0 by default"),
    }
}

/// The optimizer of that name, which may be one that steps in backward.
fn named(reader: &mut Reader, name: &str, said: &str) {
    let plain = name.strip_suffix("_layerwise");
    let Some(found) = optimizer(plain.unwrap_or(name)) else {
        return reader.keep("optimizer", said, "this optimizer is not predicted");
    };
    let step = plain.map(|_| low_rank::layerwise(found)).transpose();
    let step = match step {
        Ok(step) => step,
        Err(why) => return reader.keep("optimizer", said, why),
    };
    reader.set("optimizer", found.slug(), said);
    if let Some(step) = step {
        reader.set("optimizer-step", step.slug(), said);
    }
    if found.projects() {
        low_rank::settings(reader);
    }
}

/// The optimizer by its class and the arguments that make it another one, as torchtune's recipes name it.
pub(super) fn optimizer_class(reader: &mut Reader) {
    let mut all = reader.take_each(&["optimizer._component_"]);
    // Muon is of matrices alone, beside another one for the rest
    let muon = all.iter().position(|said| other_class(&said.text()) == Some(Optimizer::Muon));
    if let Some(muon) = muon {
        let said = all.remove(muon);
        reader.idle.extend(all.into_iter().map(|other| other.said));
        let why = format!("{}{MUON}", said.said);
        return reader.set("optimizer", Optimizer::Muon.slug(), &why);
    }
    // whatever else is made of parameters is listed
    let is_known = |said: &Said| {
        let class = said.text();
        let by_name = |optimizer: &Optimizer| component(*optimizer).is_some_and(|(known, _)| known == class);
        Optimizer::ALL.iter().any(by_name) || other_class(&class).is_some()
    };
    let place = all.iter().rposition(is_known).or(all.len().checked_sub(1));
    let Some(said) = place.map(|place| all.remove(place)) else {
        return reader.leave("optimizer", "no optimizer is named");
    };
    let of: String = reader.take_each(&["optimizer.of"]).iter().map(Said::text).collect();
    for other in all.into_iter().filter(|other| other.value != said.value) {
        reader.leave(&other.said, &format!("{}, which is given too, says otherwise", said.said));
    }
    let class = said.text();
    let mut settings = Vec::new();
    let on_cpu = class == CPU_OFFLOAD;
    for name in ["fused", "momentum", "nesterov", "foreach", "amsgrad", "offload_gradients"] {
        if let Some(setting) = reader.take(&[&format!("optimizer.{name}")]) {
            let value = setting.switch().map(f64::from).or(setting.number()).unwrap_or_default();
            // of all switches this one alone is on where nothing is said
            let is_usual = name == "foreach" || name == "fused" && on_cpu;
            if (value != 0.0) != is_usual {
                settings.push((name, setting.said));
            }
        }
    }
    let found = Optimizer::ALL.iter().copied().find(|optimizer| {
        component(*optimizer).is_some_and(|(known, with)| {
            known == class
                && with.len() == settings.len()
                && with.iter().all(|(name, _)| settings.iter().any(|(own, _)| own == name))
        })
    });
    let stepped = if on_cpu { reader.take(&["optimizer.optimizer_class"]) } else { None };
    if let Some(other) =
        stepped.filter(|class| !matches!(whole_path(&class.text()).as_str(), "torch.optim.AdamW"))
    {
        return reader.keep(
            "optimizer",
            &other.said,
            "of what torchao steps in the CPU's memory AdamW is predicted",
        );
    }
    if let Some((other, why)) = found.and_then(|found| other_sizes(reader, found)) {
        let said = if other.is_empty() { said.said } else { other };
        return reader.keep("optimizer", &said, &why);
    }
    let more = settings.iter().map(|(_, said)| said.as_str());
    let all = std::iter::once(said.said.as_str()).chain(more).collect::<Vec<_>>().join(", ");
    match found.or(other_class(&class)) {
        Some(found) if found.projects() && of.contains("parameters()") => {
            let why = format!("{all} is given parameters without a rank, of which it projects none: AdamW");
            reader.set("optimizer", Optimizer::AdamWForLoop.slug(), &why);
        }
        Some(found) => {
            reader.set("optimizer", found.slug(), &all);
            if found.projects() {
                let why = "which layers it projects stands in its groups of parameters, which are not read: set them (--lora-targets), and \
                           the rank where the script has no number for it (--lora-rank)";
                reader.leave(&class, why);
                let rank = of.split_once("\"rank\":").map(|(_, rest)| rest);
                let rank = rank.and_then(|rest| rest.split([',', '}']).next()).map(str::trim);
                if let Some(rank) = rank.filter(|rank| rank.parse::<u64>().is_ok()) {
                    reader.set("lora-rank", rank, &format!("rank: {rank} of a group of parameters"));
                }
            }
        }
        None => reader.keep("optimizer", &all, "this optimizer is not predicted"),
    }
}

/// What an optimizer is told of sizes that its states are not predicted with, if it is: the setting, or nothing where it is one that is
/// missing, and why.
fn other_sizes(reader: &mut Reader, optimizer: Optimizer) -> Option<(String, String)> {
    let (name, usual) = match optimizer {
        Optimizer::AdamMini => return other_heads(reader),
        Optimizer::AdamW4bitTorchao => ("block_size", 128),
        Optimizer::AdamW8bitTorchao => ("block_size", 256),
        Optimizer::AdamWCpuOffload | Optimizer::AdamWCpuOffloadGradients => ("minimal_size", 4096),
        _ => return None,
    };
    let said = reader.take(&[&format!("optimizer.{name}")])?;
    if said.number() == Some(f64::from(usual)) {
        reader.idle.push(said.said);
        return None;
    }
    Some((said.said, format!("{name} other than {usual} is not predicted")))
}

/// Adam-mini's sizes where they are not the model's (adam_mini 1.1.1, adam_mini.py `__init__`). Of the heads of keys and values it asks
/// that they divide the others.
fn other_heads(reader: &mut Reader) -> Option<(String, String)> {
    let architecture = reader.scenario.architecture().ok()?;
    let (heads, _) = architecture.heads()?;
    let mut other = Vec::new();
    let mut are_others = false;
    let sizes = [
        ("dim", "2048", architecture.hidden, ["hidden_size", "n_embd"]),
        ("n_heads", "32", heads, ["num_attention_heads", "n_head"]),
    ];
    for (name, default, own, words) in sizes {
        let said = reader.take(&[&format!("optimizer.{name}")]);
        let value = said.as_ref().map_or_else(|| default.to_owned(), Said::text);
        let is_own =
            value == own.to_string() || words.iter().any(|word| value.ends_with(&format!(".{word}")));
        are_others |= !is_own;
        other.extend(said.map(|said| said.said));
    }
    let of_keys = reader.take(&["optimizer.n_kv_heads"]);
    let divides = |said: &Said| said.number().is_none_or(|count| (heads as f64 / count).fract() == 0.0);
    if let Some(said) = of_keys.filter(|said| !divides(said)) {
        return Some((said.said, "n_kv_heads does not divide n_heads, at which Adam_mini stops".to_owned()));
    }
    if are_others {
        let why = "dim and n_heads are not the model's: it would stop, or keep other states";
        return Some((other.join(", "), why.to_owned()));
    }
    reader.idle.extend(other);
    None
}

/// `attn_implementation`, also by an older name of a kernel.
pub(super) fn attention(reader: &mut Reader, said: &Said) {
    match said.text().as_str() {
        // there is no other
        "eager" if has_no_sdpa(&reader.scenario) => reader.set("attention", "sdpa", &said.said),
        word @ ("eager" | "sdpa") => reader.set("attention", word, &said.said),
        "flash_attention_2" | "flash" => reader.set("attention", "flash-attention-2", &said.said),
        _ => reader.keep(
            "attention",
            &said.said,
            "of attention implementations eager, sdpa and flash_attention_2 are predicted",
        ),
    }
}

/// fp16 where 16-bit weights are loaded: DeepSpeed's engine has a scaler of its own, and PyTorch's refuses float16 gradients.
pub(super) fn autocast_to_float16(reader: &mut Reader, said: &str) {
    if reader.scenario.cluster.is_zero() {
        return reader.set("precision", "fp16", said);
    }
    reader
        .leave(said, "autocast to float16 over float16 weights is not predicted: float32 weights are taken");
    reader.assume("precision", "amp-fp16", "fp16 over float32 weights");
}

/// peft's `modules_to_save`.
pub(super) fn saved(reader: &mut Reader, said: &Said) {
    let words = said.words();
    let known = ["embed_tokens", "lm_head", "wte", "embed_in", "embed_out", "word_embeddings"];
    if words.iter().all(|word| known.contains(&word.as_str())) {
        let both = words.len() >= 2 || reader.scenario.architecture().is_ok_and(|model| model.head.tied);
        if !both {
            reader.leave(&said.said, "the embedding and the head are copied together here");
        }
        reader.set("train-embeddings", "on", &said.said);
    } else {
        reader.leave(&said.said, "only the embedding and the head are copied here");
    }
}

/// Whether gradients are clipped.
pub(super) fn clips(reader: &mut Reader, said: &Said) {
    match said.number() {
        Some(norm) => reader.set("clip-gradients", if norm > 0.0 { "on" } else { "off" }, &said.said),
        None => reader.keep("clip-gradients", &said.said, "this is no number"),
    }
}

/// DoRA where one of these switches is on, LoRA elsewhere.
pub(super) fn decomposes(reader: &mut Reader, names: &[&str]) {
    match reader.switch(names) {
        Some((true, said)) => reader.set("adapter", Tuner::Dora.slug(), &said),
        Some((false, said)) => reader.set("adapter", Tuner::Lora.slug(), &said),
        None => reader.quietly("adapter", Tuner::Lora.slug()),
    }
}

/// On how many GPUs a text is answered that shares the work among GPUs and does not say among how many, which is often in the command that
/// starts it: what divides a model divides it at least in two.
pub(super) fn number_of_gpus(reader: &mut Reader) {
    const UNSAID: &str = "the number of GPUs";
    let is_said = reader.has_taken("gpus") || reader.assumed.iter().any(|assumed| assumed.key == "gpus");
    if !reader.has_taken("shard") || is_said {
        return;
    }
    let cluster = reader.scenario.cluster;
    let divides = cluster.sharding != Sharding::Ddp;
    let is_one = !cluster.is_many() && !cluster.has_engine();
    if !is_one {
        return reader.assume("gpus", &cluster.gpus.to_string(), "the text does not say how many: as it was");
    }
    if divides {
        reader.assume(
            "gpus",
            "2",
            "the fewest that a model is divided among: the text does not say how many",
        );
    }
    if reader.left.iter().any(|left| left.said == UNSAID) {
        return;
    }
    let number = if divides { "two" } else { "one" };
    let why = format!(
        "the command that starts the run says it (torchrun --nproc-per-node, accelerate's num_processes): answered for {number}"
    );
    reader.leave(UNSAID, &why);
}
