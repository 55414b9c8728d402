//! What the catalogue knows of each model, and its names.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, LazyLock, OnceLock};

use serde_json::Value;

use crate::dtype::Dtype;
use crate::model::architecture::Architecture;
use crate::model::error::ModelError;
use crate::model::read;

/// A model of the catalogue.
#[derive(Debug)]
pub struct Entry {
    /// Hub id: `meta-llama/Llama-3.1-8B`.
    pub id: &'static str,
    /// Name for people: `Llama 3.1 8B`.
    pub name: Cow<'static, str>,
    /// Family: `Llama`; empty where not known.
    pub family: &'static str,
    /// Licence tag; empty where not known.
    pub licence: &'static str,
    /// Whether the Hub asks to accept terms before it hands out the weights; false where not known.
    pub gated: bool,
    /// Month of publication, `2024-07`; empty where not known.
    pub release: &'static str,
    /// The longest context that is documented, in tokens.
    pub context: Option<u64>,
    /// Exact number of parameters; tied weights count once, vision towers count.
    pub parameters: u64,
    config: &'static str,
    architecture: OnceLock<Result<Arc<Architecture>, ModelError>>,
}

impl Entry {
    /// Who published it: `meta-llama`.
    pub fn organisation(&self) -> &'static str {
        self.id.split_once('/').map_or("", |(organisation, _)| organisation)
    }

    /// The architecture, read once.
    ///
    /// # Errors
    /// A [`ModelError`] where the config cannot be understood; the tests leave no such entry.
    pub fn architecture(&self) -> Result<Arc<Architecture>, ModelError> {
        self.architecture.get_or_init(|| read::parse(self.config).map(Arc::new)).clone()
    }

    /// The element type of its published weights, where its config says (`dtype`, `torch_dtype` before transformers 5).
    pub fn dtype(&self) -> Option<Dtype> {
        let config: Value = serde_json::from_str(self.config).ok()?;
        let of = |config: &Value| match config.get("dtype").or_else(|| config.get("torch_dtype"))?.as_str()? {
            "float32" => Some(Dtype::F32),
            "bfloat16" => Some(Dtype::Bf16),
            "float16" => Some(Dtype::F16),
            _ => None,
        };
        of(&config).or_else(|| of(config.get("text_config")?))
    }

    /// Parameters that a token meets, where they are fewer than all.
    pub fn active_parameters(&self) -> Option<u64> {
        let active = self.architecture().ok()?.active_parameters();
        (active < self.parameters).then_some(active)
    }
}

static ALL: LazyLock<Vec<Entry>> = LazyLock::new(|| {
    include_str!(concat!(env!("OUT_DIR"), "/catalogue.txt")).lines().filter_map(entry).collect()
});

fn entry(line: &'static str) -> Option<Entry> {
    let mut fields = line.split('\t');
    let mut next = || fields.next();
    let id = next()?;
    let name = match next()? {
        "" => id.rsplit('/').next().unwrap_or(id).replace(['-', '_'], " ").into(),
        name => name.into(),
    };
    let (family, licence, gated, release) = (next()?, next()?, next()?, next()?);
    let (context, parameters, config) = (next()?, next()?, next()?);
    // A file without a row in the table is counted here.
    let counted = || read::parse(config).map_or(0, |architecture| architecture.parameters());
    Some(Entry {
        id,
        name,
        family,
        licence,
        gated: gated == "yes",
        release,
        context: context.parse().ok(),
        parameters: parameters.parse().unwrap_or_else(|_| counted()),
        config,
        architecture: OnceLock::new(),
    })
}

/// Ids in lower case with the index of their entry: those of the catalogue, those of the same shape, and the short names
/// of the first version of this page.
static IDS: LazyLock<HashMap<String, usize>> = LazyLock::new(|| {
    let own = entries().iter().enumerate().map(|(index, entry)| (entry.id.to_ascii_lowercase(), index));
    let mut ids: HashMap<String, usize> = own.collect();
    let short = [
        ("llama3-8b", "meta-llama/Meta-Llama-3-8B"),
        ("llama3-70b", "meta-llama/Meta-Llama-3-70B-Instruct"),
        ("llama2-7b", "meta-llama/Llama-2-7b-hf"),
        ("llama2-13b", "meta-llama/Llama-2-13b-hf"),
    ];
    for (alias, id) in aliases().chain(short) {
        if let Some(index) = ids.get(&id.to_ascii_lowercase()).copied() {
            ids.entry(alias.to_ascii_lowercase()).or_insert(index);
        }
    }
    ids
});

/// [`bare`] names with the index of their entry: of several with one name, the most popular; then those of the same shape, whatever
/// organisation has them.
static BARE: LazyLock<HashMap<String, usize>> = LazyLock::new(|| {
    let mut names = HashMap::new();
    for (index, entry) in entries().iter().enumerate() {
        for name in [bare(entry.id), bare(last_part(entry.id))] {
            names.entry(name).or_insert(index);
        }
    }
    for (alias, id) in aliases() {
        if let Some(index) = IDS.get(&id.to_ascii_lowercase()) {
            names.entry(bare(last_part(alias))).or_insert(*index);
        }
    }
    names
});

fn last_part(id: &str) -> &str {
    id.rsplit('/').next().unwrap_or(id)
}

/// What tells a base model from its chat version in a name: both have the same shape.
const VERSIONS: [&str; 8] = ["instruct", "base", "chat", "it", "pt", "hf", "bf16", "fp16"];

/// A name without what tells a base model from its chat version: `mistral-7b-v0.3` of Mistral-7B-Instruct-v0.3. Within a name these are
/// words of a model's version where its size is said, else the size itself: `bert-base-uncased`.
fn bare(id: &str) -> String {
    let id = id.to_ascii_lowercase();
    let mut words: Vec<&str> = id.split('-').collect();
    while words.len() > 1 && words.last().is_some_and(|word| VERSIONS.contains(word)) {
        words.pop();
    }
    let is_size = |word: &&str| word.strip_suffix('b').is_some_and(|number| number.parse::<f64>().is_ok());
    if words.iter().any(is_size) {
        words.retain(|word| !VERSIONS.contains(word));
    }
    words.join("-")
}

/// Every model, the most popular first.
pub fn entries() -> &'static [Entry] {
    &ALL
}

/// Repositories of the same shape as a model: the alias and the id of that model.
pub fn aliases() -> impl Iterator<Item = (&'static str, &'static str)> {
    alias_lines().map(|(alias, id, _)| (alias, id))
}

/// The same, each with its own longest context where that is known.
fn alias_lines() -> impl Iterator<Item = (&'static str, &'static str, Option<u64>)> {
    let line = |line: &'static str| {
        let mut fields = line.split('\t');
        Some((fields.next()?, fields.next()?, fields.next().and_then(|context| context.parse().ok())))
    };
    include_str!(concat!(env!("OUT_DIR"), "/aliases.txt")).lines().filter_map(line)
}

/// What a repository of the same shape as a model has of its own.
struct Alias {
    /// The longest context, in tokens.
    context: u64,
    /// The model's architecture, with as many positions.
    architecture: OnceLock<Result<Arc<Architecture>, ModelError>>,
}

/// Repositories, in lower case, whose context is longer or shorter than that of the model whose shape they have; without the organisation
/// too, where no model of the catalogue is called so.
static OTHER_CONTEXTS: LazyLock<HashMap<String, Alias>> = LazyLock::new(|| {
    let entries: HashSet<String> =
        entries().iter().map(|entry| last_part(entry.id).to_ascii_lowercase()).collect();
    let mut other = HashMap::new();
    for (alias, id, context) in alias_lines() {
        let (Some(context), Some(entry)) = (context, find(id)) else { continue };
        let own = || Alias { context, architecture: OnceLock::new() };
        if entry.context != Some(context) {
            let id = alias.to_ascii_lowercase();
            let name = last_part(&id).to_owned();
            if !entries.contains(&name) {
                other.entry(name).or_insert_with(own);
            }
            other.insert(id, own());
        }
    }
    other
});

/// What is known of a repository whose context is not that of the model whose shape it has.
fn of_other_context(id: &str) -> Option<&'static Alias> {
    OTHER_CONTEXTS.get(&id.trim().to_ascii_lowercase())
}

/// The longest context that is documented of a Hub id, in tokens: its own, or that of the model whose shape it has.
pub fn context(id: &str) -> Option<u64> {
    of_other_context(id).map(|alias| alias.context).or_else(|| find(id)?.context)
}

/// The architecture of a Hub id, read once: that of its entry, with as many positions as the id has itself.
pub(super) fn architecture_of(id: &str) -> Option<Result<Arc<Architecture>, ModelError>> {
    let entry = find(id)?;
    let Some(alias) = of_other_context(id) else { return Some(entry.architecture()) };
    let reached = || {
        let mut architecture = Architecture::clone(&*entry.architecture()?);
        // a table of learned positions is as long as the model's own
        if architecture.max_positions.is_some() && architecture.embeddings.positions.is_none() {
            architecture.max_positions = Some(alias.context);
        }
        Ok(Arc::new(architecture))
    };
    Some(alias.architecture.get_or_init(reached).clone())
}

/// The entry of a Hub id, of a repository of the same shape, of a base or chat version, or of a short name; upper and
/// lower case are alike, and the organisation may be left out.
pub fn find(id: &str) -> Option<&'static Entry> {
    let id = id.trim();
    let index = IDS.get(&id.to_ascii_lowercase()).or_else(|| BARE.get(&bare(id)))?;
    entries().get(*index)
}

/// The published id of a copy's name: `Qwen/Qwen3-8B` of `somebody/Qwen3-8B`, which is of that entry. A base model or a chat version of it is
/// called so where the entry is; of other names those that are known, else the entry's own.
pub(crate) fn published(name: &str, entry: &'static Entry) -> String {
    let name = last_part(name);
    let aliased =
        aliases().filter(|(alias, id)| alias.contains('/') && *id == entry.id).map(|(alias, _)| alias);
    let ids: Vec<&str> = std::iter::once(entry.id).chain(aliased).collect();
    let organisation = |id: &str| id.split('/').next() == Some(entry.organisation());
    let called_so = ids.iter().filter(|id| last_part(id).eq_ignore_ascii_case(name));
    // what says how weights are stored is no version
    let is_stored_so = ["-hf", "-bf16", "-fp16"].iter().any(|end| name.to_ascii_lowercase().ends_with(end));
    match called_so.max_by_key(|id| organisation(id)) {
        Some(id) => (*id).to_owned(),
        None if bare(name) == bare(last_part(entry.id)) && !is_stored_so => {
            format!("{}/{name}", entry.organisation())
        }
        None => entry.id.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_has_a_context_of_its_own() {
        let positions = |id: &str| {
            let architecture = architecture_of(id).expect("a model").expect("an architecture");
            (context(id), architecture.max_positions)
        };
        for (id, tokens) in [
            ("unsloth/llama-3-8b-Instruct", 8_192),
            ("NousResearch/Llama-2-7b-hf", 4_096),
            ("HuggingFaceTB/SmolLM2-1.7B-Instruct", 8_192),
            ("smollm2-1.7b-instruct", 8_192),
            ("Qwen/Qwen3-Coder-30B-A3B-Instruct", 262_144),
            ("Qwen/Qwen2.5-0.5B-Instruct", 32_768),
            ("ibm-granite/granite-3.1-1b-a400m-base", 131_072),
        ] {
            assert_eq!(positions(id), (Some(tokens), Some(tokens)), "{id}");
        }
        // of the model whose shape it has nothing else changes
        let [one, other] = ["meta-llama/Llama-3.1-8B", "unsloth/llama-3-8b-Instruct"]
            .map(|id| architecture_of(id).expect("a model").expect("it is read"));
        assert_eq!(Architecture { max_positions: one.max_positions, ..Architecture::clone(&other) }, *one);
        for (alias, _, context) in alias_lines() {
            let learned =
                architecture_of(alias).expect("a model").expect("it is read").embeddings.positions.is_some();
            assert!(learned || context.is_none() || positions(alias).0 == context, "{alias}");
        }
    }

    #[test]
    fn a_base_model_and_its_chat_version_are_one_shape_wherever_the_name_says_so() {
        for (asked, id) in [
            ("mistralai/Mistral-7B-v0.3", "mistralai/Mistral-7B-Instruct-v0.3"),
            ("mistralai/Mistral-Small-24B-Base-2501", "mistralai/Mistral-Small-24B-Instruct-2501"),
            ("meta-llama/Llama-3.2-1B", "meta-llama/Llama-3.2-1B-Instruct"),
        ] {
            assert_eq!(find(asked).map(|entry| entry.id), Some(id), "{asked}");
        }
        for (alias, id) in aliases() {
            let parameters =
                |id: &str| find(id).and_then(|entry| entry.architecture().ok()).map(|one| one.parameters());
            assert_eq!(parameters(last_part(alias)), parameters(id), "{alias}");
        }
        assert!(find("mistralai/Mistral-7B-v0.9").is_none());
        assert!(find("google-bert/bert-cased").is_none(), "a base encoder is one of that size");
        for entry in entries() {
            let first = &entries()[BARE[&bare(entry.id)]];
            let parameters = |entry: &Entry| entry.architecture().map(|one| one.parameters()).ok();
            assert_eq!(parameters(entry), parameters(first), "{} and {}", entry.id, first.id);
        }
    }
}
