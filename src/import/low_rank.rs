//! GaLore and APOLLO in others' files: transformers' `optim_target_modules` and `optim_args`, LLaMA-Factory's own switches.

use super::reader::{Reader, Said, among};
use crate::model::Architecture;
use crate::scenario::{LoraTargets, Method, Modules, Optimizer, StepTime};

/// What transformers is told of an optimizer that projects gradients (5.17, trainer_optimizer.py).
pub(super) fn settings(reader: &mut Reader) {
    if reader.scenario.method != Method::Full {
        return;
    }
    // what is said of it and is no rank leaves it so
    reader.assume("lora-rank", "128", "transformers' default for GaLore and APOLLO");
    let (whole, rank) = (reader.take(&["optim_args"]), reader.take(&["optim_args.rank"]));
    let arguments = whole.as_ref().map(Said::text).unwrap_or_default();
    match (rank, argument(&arguments, "rank"), &whole) {
        (Some(said), ..) => reader.set("lora-rank", &said.text(), &said.said),
        (None, Some(rank), Some(said)) => reader.set("lora-rank", rank, &said.said),
        (None, ..) => {}
    }
    for (name, followed) in FOLLOWED {
        let apart = reader.take(&[&format!("optim_args.{name}")]).map(|said| said.text());
        if let Some(given) = apart.as_deref().or(argument(&arguments, name)) {
            leaves_other(reader, (name, followed), given, &format!("{name}={given}"));
        }
    }
    reader.pass(|name| name.contains("optim_args."));
    match reader.take(&["optim_target_modules"]) {
        Some(said) => named_by_transformers(reader, &said),
        None => {
            let why = "optim_target_modules is not given, without which transformers stops";
            reader.assume("lora-targets", LoraTargets::AllLinear.slug(), why);
        }
    }
}

/// An optimizer's name that ends in `_layerwise`, or why it is not followed.
pub(super) fn layerwise(optimizer: Optimizer) -> Result<StepTime, &'static str> {
    match optimizer {
        Optimizer::GaLoreAdafactor => Err(Optimizer::STOPS_LAYERWISE),
        other if other.projects() => Ok(StepTime::InBackward),
        _ => Err("transformers has no such optimizer"),
    }
}

/// What is predicted of settings that change what is computed.
const FOLLOWED: [(&str, &str); 3] = [("proj_type", "std"), ("proj", "random"), ("scale_type", "channel")];

/// Leaves what a setting says that is not what is predicted.
fn leaves_other(reader: &mut Reader, (name, followed): (&str, &str), given: &str, said: &str) {
    if given != followed {
        reader.leave(said, &format!("of {name} {followed} is predicted"));
    }
}

/// An argument of `rank=64, update_proj_gap=100`.
fn argument<'t>(arguments: &'t str, name: &str) -> Option<&'t str> {
    let pairs = arguments.split(',').filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (key.trim(), value.trim())).find(|(key, _)| *key == name).map(|(_, value)| value)
}

/// What a layer's path has somewhere in it: characters, any one where it is none.
type Piece = Vec<Option<char>>;

/// `optim_target_modules` (5.17, trainer_utils.py `check_target_module_exists`): a text of its own is an expression of a module's whole
/// path, or all linear layers with an output head of its own; an item of a list is a piece of the path, or such an expression.
fn named_by_transformers(reader: &mut Reader, said: &Said) {
    let (words, is_list) = (said.words(), said.value.is_array());
    if !is_list
        && let [word] = &words[..]
        && word.replace('_', "-") == "all-linear"
    {
        let is_tied = reader.scenario.architecture().is_ok_and(|architecture| architecture.head.tied);
        let all = if is_tied { LoraTargets::AllLinear } else { LoraTargets::AllLinearAndHead };
        return reader.set("lora-targets", all.slug(), &said.said);
    }
    let read = |word: &String| match word.strip_prefix(".*").and_then(|rest| rest.strip_suffix(".*")) {
        Some(inner) => expression(inner),
        None if is_list => literal(word),
        None => None,
    };
    targets(reader, said, words.iter().map(read).collect());
}

/// LLaMA-Factory's `galore_target` and `apollo_target`: pieces of the path, or all linear layers without the output head
/// (train/trainer_utils.py).
fn named_by_llama_factory(reader: &mut Reader, said: &Said) {
    let words = said.words();
    if words == ["all"] {
        return reader.set("lora-targets", LoraTargets::AllLinear.slug(), &said.said);
    }
    targets(reader, said, words.iter().map(|word| literal(word)).collect());
}

/// Where transformers' decoders have their layers.
const ABOVE: [&str; 5] =
    ["model.layers.", "transformer.h.", "gpt_neox.layers.", "model.decoder.layers.", "transformer.blocks."];

/// The layers in whose paths one of these pieces is.
fn targets(reader: &mut Reader, said: &Said, pieces: Option<Vec<Piece>>) {
    let Ok(architecture) = reader.scenario.architecture() else { return reader.targets(said) };
    let Some(pieces) = pieces else {
        return reader.keep("lora-targets", &said.said, "an expression other than .*NAME.* is not read");
    };
    let is_above = |piece: &Piece| {
        let is_number = |part: &[Option<char>]| part.iter().all(|c| c.is_some_and(|c| c.is_ascii_digit()));
        let mut parts = piece.split(|c| c.is_none_or(|c| c == '.'));
        ABOVE.iter().any(|above| occurs(piece, above))
            || parts.any(|part| !part.is_empty() && is_number(part))
    };
    if pieces.iter().any(is_above) {
        let why = "single layers, and what lies above the layers, are not followed";
        return reader.keep("lora-targets", &said.said, why);
    }
    let found = found(&architecture, &pieces);
    if found.is_empty() {
        let why = "no linear layer of the model is called so, at which the run stops";
        return reader.keep("lora-targets", &said.said, why);
    }
    match found.group(&architecture) {
        Some(group) => reader.set("lora-targets", group.slug(), &said.said),
        None => reader.set("lora-targets", &found.to_string(), &said.said),
    }
}

/// Names of the layers in whose paths one of these pieces is, and of no others.
fn found(architecture: &Architecture, pieces: &[Piece]) -> Modules {
    let called = |path: &str| {
        // all but the output head lie within something
        let is_head = path == architecture.head.linear.name;
        let path = if is_head { path.to_owned() } else { format!(".{path}") };
        pieces.iter().any(|piece| occurs(piece, &path))
    };
    // a tied head is no parameter of its own
    let embedding = Modules::NONE.with("embed_tokens").unwrap_or_default();
    let others = Modules::of_paths(architecture, |path| !called(path));
    Modules::of_paths(architecture, called).beside(others).beside(embedding)
}

/// A piece that is written as it is.
fn literal(word: &str) -> Option<Piece> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
    (!word.is_empty() && word.chars().all(is_plain)).then(|| word.chars().map(Some).collect())
}

/// A piece in the words of an expression: a dot is any character, but behind a backslash.
fn expression(text: &str) -> Option<Piece> {
    let mut piece = Piece::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        piece.push(match c {
            '\\' => Some(chars.next().filter(|c| *c == '.')?),
            '.' => None,
            c if c.is_ascii_alphanumeric() || c == '_' => Some(c),
            _ => return None,
        });
    }
    Some(piece)
}

/// Whether a piece is somewhere in a text.
fn occurs(piece: &[Option<char>], text: &str) -> bool {
    let text: Vec<char> = text.chars().collect();
    let is_there =
        |window: &[char]| piece.iter().zip(window).all(|(want, c)| want.is_none_or(|want| want == *c));
    piece.is_empty() || text.windows(piece.len()).any(is_there)
}

/// LLaMA-Factory's own arguments (0.9.5, hparams/finetuning_args.py), which make the optimizer that `optim` names another one.
pub(super) fn of_llama_factory(reader: &mut Reader) {
    let galore = reader.switch(&["use_galore"]).filter(|(on, _)| *on);
    let apollo = reader.switch(&["use_apollo"]).filter(|(on, _)| *on);
    match (galore, apollo) {
        (Some((_, galore)), Some((_, apollo))) => {
            reader.leave(&galore, "LLaMA-Factory stops where GaLore and APOLLO are both on");
            reader.leave(&apollo, "LLaMA-Factory stops where GaLore and APOLLO are both on");
        }
        (Some((_, said)), None) => of_switch(reader, "galore", &said),
        (None, Some((_, said))) => of_switch(reader, "apollo", &said),
        (None, None) => {}
    }
    reader.pass(|name| among(&["galore_*", "apollo_*"], name));
}

/// What it makes of `optim` (train/trainer_utils.py): of others than these nothing, at which it stops.
fn made_of(name: &str, optimizer: Optimizer) -> Option<Optimizer> {
    match (name, optimizer) {
        ("apollo", Optimizer::AdamW) => Some(Optimizer::ApolloAdamW),
        ("galore", Optimizer::AdamW) => Some(Optimizer::GaLoreAdamW),
        ("galore", Optimizer::AdamW8bit | Optimizer::PagedAdamW8bit) => Some(Optimizer::GaLoreAdamW8bit),
        ("galore", Optimizer::Adafactor) => Some(Optimizer::GaLoreAdafactor),
        _ => None,
    }
}

fn of_switch(reader: &mut Reader, name: &str, switch: &str) {
    const WHY: &str = "LLaMA-Factory's default";
    let own = reader.has_taken("optimizer").then_some(reader.scenario.optimizer);
    let Some(optimizer) = own.and_then(|own| made_of(name, own)) else {
        let of = if name == "galore" { "adamw_torch, an 8-bit AdamW or adafactor" } else { "adamw_torch" };
        return reader
            .leave(switch, &format!("LLaMA-Factory makes it of optim: {of} alone, and stops elsewhere"));
    };
    reader.set("optimizer", optimizer.slug(), switch);
    // what is said of it and is no rank leaves it so
    reader.assume("lora-rank", "16", WHY);
    reader.or_assume("lora-rank", &[&format!("{name}_rank")], "16", WHY);
    for (setting, followed) in FOLLOWED {
        if let Some(said) = reader.take(&[&format!("{name}_{setting}")]) {
            leaves_other(reader, (setting, followed), &said.text(), &said.said);
        }
    }
    match reader.take(&[&format!("{name}_target")]) {
        Some(said) => named_by_llama_factory(reader, &said),
        None => reader.assume("lora-targets", LoraTargets::AllLinear.slug(), WHY),
    }
    if let Some((true, said)) = reader.switch(&[&format!("{name}_layerwise")]) {
        reader.set("optimizer-step", "in-backward", &said);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_found_anywhere() {
        for (text, path, is_there) in [
            ("attn", ".self_attn.q_proj", true),
            ("\\.q_proj", ".self_attn.q_proj", true),
            ("self.attn", ".self_attn.q_proj", true),
            ("self\\.attn", ".self_attn.q_proj", false),
            ("", "lm_head", true),
            ("lm_head_of_another", "lm_head", false),
        ] {
            let piece = expression(text).unwrap();
            assert_eq!(occurs(&piece, path), is_there, "{text} in {path}");
        }
        for other in ["(q|k)_proj", "q_proj$", "attn.*proj", "a\\d", "a\\"] {
            assert_eq!(expression(other), None, "{other}");
        }
        assert_eq!((literal(""), literal("[a]")), (None, None));
    }
}
