//! GaLore and APOLLO in others' files: transformers' `optim_target_modules` and `optim_args`, LLaMA-Factory's own switches.

use super::reader::{Reader, Said};
use crate::scenario::{LoraTargets, Method, Modules, Optimizer};

/// What transformers is told of an optimizer that projects gradients (5.17, trainer_optimizer.py).
pub(super) fn settings(reader: &mut Reader) {
    if reader.scenario.method != Method::Full {
        return;
    }
    let (whole, rank) = (reader.take(&["optim_args"]), reader.take(&["optim_args.rank"]));
    let arguments = whole.as_ref().map(Said::text).unwrap_or_default();
    match (rank, argument(&arguments, "rank"), &whole) {
        (Some(said), ..) => reader.set("lora-rank", &said.text(), &said.said),
        (None, Some(rank), Some(said)) => reader.set("lora-rank", rank, &said.said),
        (None, ..) => reader.assume("lora-rank", "128", "transformers' default for GaLore and APOLLO"),
    }
    for (name, followed) in [("proj_type", "std"), ("proj", "random")] {
        let apart = reader.take(&[&format!("optim_args.{name}")]).map(|said| said.text());
        let other = apart.as_deref().or(argument(&arguments, name)).filter(|given| *given != followed);
        if let Some(other) = other {
            let why = format!("of its projections {followed} is predicted");
            reader.leave(&format!("{name}={other}"), &why);
        }
    }
    reader.pass(|name| name.contains("optim_args."));
    match reader.take(&["optim_target_modules"]) {
        Some(said) => targets(reader, &said),
        None => {
            let why = "optim_target_modules is not given, without which transformers stops";
            reader.assume("lora-targets", LoraTargets::AllLinear.slug(), why);
        }
    }
}

/// An argument of `rank=64, update_proj_gap=100`.
fn argument<'t>(arguments: &'t str, name: &str) -> Option<&'t str> {
    let pairs = arguments.split(',').filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (key.trim(), value.trim())).find(|(key, _)| *key == name).map(|(_, value)| value)
}

/// `optim_target_modules`: pieces of the layers' paths, expressions of `.*` around them, or all linear layers, an output head of its
/// own among them; LLaMA-Factory's `all` leaves that out.
fn targets(reader: &mut Reader, said: &Said) {
    let words = said.words();
    let Ok(architecture) = reader.scenario.architecture() else { return reader.targets(said) };
    if let [word] = &words[..]
        && word.replace('_', "-") == "all-linear"
    {
        let all = if architecture.head.tied { LoraTargets::AllLinear } else { LoraTargets::AllLinearAndHead };
        return reader.set("lora-targets", all.slug(), &said.said);
    }
    if words == ["all"] {
        return reader.set("lora-targets", LoraTargets::AllLinear.slug(), &said.said);
    }
    let pieces: Vec<&str> = words.iter().map(|word| piece(word)).collect();
    if let Some(unknown) = pieces.iter().find(|piece| !is_plain(piece)) {
        return reader.leave(&said.said, &format!("{unknown:?} is an expression that is not read"));
    }
    // transformers looks for each of them anywhere in a module's name
    let called = |path: &str| pieces.iter().any(|piece| !piece.is_empty() && path.contains(piece));
    let found = Modules::of_paths(&architecture, called);
    // a tied head is no parameter of its own
    let embedding = Modules::NONE.with("embed_tokens").unwrap_or_default();
    let found = found.beside(embedding);
    if found.is_empty() {
        return reader.leave(&said.said, "no linear layer of the model is called so");
    }
    match found.group(&architecture) {
        Some(group) => reader.set("lora-targets", group.slug(), &said.said),
        None => reader.set("lora-targets", &found.to_string(), &said.said),
    }
}

/// What stands between `.*` and `.*`, or all of it.
fn piece(word: &str) -> &str {
    let rest = word.strip_prefix(".*").unwrap_or(word);
    let rest = rest.strip_suffix(".*").unwrap_or(rest);
    rest.trim_matches(|c| c == '.' || c == '\\')
}

fn is_plain(piece: &str) -> bool {
    piece.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.'))
}

/// LLaMA-Factory's own arguments (hparams/finetuning_args.py), which make the optimizer that `optim` names another one.
pub(super) fn of_llama_factory(reader: &mut Reader) {
    const WHY: &str = "LLaMA-Factory's default";
    for (switch, name) in [("use_galore", "galore"), ("use_apollo", "apollo")] {
        let Some((true, said)) = reader.switch(&[switch]) else { continue };
        let optimizer = match (name, reader.scenario.optimizer) {
            ("apollo", _) => Optimizer::ApolloAdamW,
            (_, Optimizer::AdamW8bit | Optimizer::PagedAdamW8bit) => Optimizer::GaLoreAdamW8bit,
            (_, Optimizer::Adafactor) => Optimizer::GaLoreAdafactor,
            _ => Optimizer::GaLoreAdamW,
        };
        reader.set("optimizer", optimizer.slug(), &said);
        reader.or_assume("lora-rank", &[&format!("{name}_rank")], "16", WHY);
        match reader.take(&[&format!("{name}_target")]) {
            Some(said) => targets(reader, &said),
            None => reader.assume("lora-targets", LoraTargets::AllLinear.slug(), WHY),
        }
        if let Some((true, said)) = reader.switch(&[&format!("{name}_layerwise")]) {
            reader.set("optimizer-step", "in-backward", &said);
        }
    }
}
