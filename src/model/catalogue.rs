//! The models that Headroom knows by name: a folder of real `config.json` files.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, OnceLock};

use super::{Architecture, config};
use crate::scenario::{Field, Issue};

/// A model of the catalogue.
#[derive(Debug)]
pub struct Entry {
    /// Hub id: `meta-llama/Llama-3.1-8B`.
    pub id: &'static str,
    /// Name for people: `Llama 3.1 8B`.
    pub name: &'static str,
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
    architecture: OnceLock<Result<Arc<Architecture>, Issue>>,
}

impl Entry {
    /// Who published it: `meta-llama`.
    pub fn organisation(&self) -> &'static str {
        self.id.split_once('/').map_or("", |(organisation, _)| organisation)
    }

    /// The architecture, read once.
    ///
    /// # Errors
    /// An [`Issue`] where the config cannot be understood; the tests leave no such entry.
    pub fn architecture(&self) -> Result<Arc<Architecture>, Issue> {
        self.architecture.get_or_init(|| config::parse(self.config).map(Arc::new)).clone()
    }
}

static ENTRIES: LazyLock<Vec<Entry>> = LazyLock::new(|| {
    include_str!(concat!(env!("OUT_DIR"), "/catalogue.txt")).lines().filter_map(entry).collect()
});

/// Other names: repositories of the same shape, and the short names of the first version of this page.
static ALIASES: LazyLock<HashMap<String, &'static str>> = LazyLock::new(|| {
    let short = [
        ("llama3-8b", "meta-llama/Meta-Llama-3-8B"),
        ("llama3-70b", "meta-llama/Meta-Llama-3-70B"),
        ("llama2-7b", "meta-llama/Llama-2-7b-hf"),
        ("llama2-13b", "meta-llama/Llama-2-13b-hf"),
    ];
    aliases().chain(short).map(|(alias, id)| (alias.to_lowercase(), id)).collect()
});

fn entry(line: &'static str) -> Option<Entry> {
    let mut fields = line.split('\t');
    let mut next = || fields.next();
    Some(Entry {
        id: next()?,
        name: next()?,
        family: next()?,
        licence: next()?,
        gated: next()? == "yes",
        release: next()?,
        context: next()?.parse().ok(),
        parameters: next()?.parse().unwrap_or(0),
        config: next()?,
        architecture: OnceLock::new(),
    })
}

/// Every model, the most popular first.
pub fn entries() -> &'static [Entry] {
    &ENTRIES
}

/// Repositories of the same shape as a model: the alias and the id of that model.
pub fn aliases() -> impl Iterator<Item = (&'static str, &'static str)> {
    let lines = include_str!(concat!(env!("OUT_DIR"), "/aliases.txt")).lines();
    lines.filter_map(|line| line.split_once('\t'))
}

/// The entry of a Hub id, of a repository of the same shape, or of a short name; upper and lower case are alike.
pub fn find(id: &str) -> Option<&'static Entry> {
    let id = id.trim().to_lowercase();
    let id = ALIASES.get(&id).map_or(id, |known| known.to_lowercase());
    ENTRIES.iter().find(|entry| entry.id.to_lowercase() == id)
}

/// The architecture of a model of the catalogue.
///
/// # Errors
/// An [`Issue`] where there is no such model.
pub fn architecture(id: &str) -> Result<Arc<Architecture>, Issue> {
    match find(id) {
        Some(entry) => entry.architecture(),
        None => Err(Issue::error(Field::Model, format!("no model is called {id:?}")).with_fix(similar(id))),
    }
}

/// What may have been meant.
fn similar(id: &str) -> String {
    let plain = |text: &str| text.to_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "");
    let wanted = plain(id);
    let found: Vec<_> =
        entries().iter().map(|entry| entry.id).filter(|id| plain(id).contains(&wanted)).take(3).collect();
    match found.is_empty() || wanted.is_empty() {
        true => {
            "use a Hub id such as meta-llama/Llama-3.1-8B, a size such as 7b, or a config.json".to_owned()
        }
        false => format!("perhaps {}", found.join(", ")),
    }
}

/// A llama-shaped architecture of about that many billion parameters.
///
/// # Errors
/// An [`Issue`] where the size is not a positive number that a shape can be found for.
pub fn architecture_of_size(billions: f64) -> Result<Arc<Architecture>, Issue> {
    Err(Issue::error(Field::Model, format!("no shape for {billions} billion parameters")))
}
