//! What the tables of models and of batches are asked about beside the scenario on the page, and how a link says it.

use leptos::prelude::*;

use super::format::number;
use crate::model::catalogue;
use crate::scenario::{GpuChoice, LARGEST, ModelChoice, Scenario, Stack};
use crate::share;
use crate::units::Bytes;

/// The memory in links: frozen.
const MEMORY: &str = "budget";
/// The library in links: frozen.
const LIBRARY: &str = "table-stack";
/// The words in links: frozen.
const WORDS: &str = "table-models";
/// The effective batch in links: frozen.
const EFFECTIVE: &str = "effective";
/// The effective batch that is asked about where the scenario sees one sequence in a step.
const USUAL_EFFECTIVE: u64 = 32;
/// No more models than these answer words.
pub const MOST_MODELS: usize = 20;
/// No name is longer.
const LONGEST: usize = 100;

/// What the table of models is asked about, where it is not what the scenario says.
#[derive(Clone, Copy)]
pub struct Asked {
    memory: RwSignal<Option<(GpuChoice, Bytes)>>,
    library: RwSignal<Option<Stack>>,
    effective: RwSignal<Option<u64>>,
    /// A part of the models' names; the usual models where it is empty.
    pub words: RwSignal<String>,
}

impl Asked {
    /// What the scenario says, about the usual models.
    pub fn new() -> Asked {
        Asked {
            memory: RwSignal::new(None),
            library: RwSignal::new(None),
            effective: RwSignal::new(None),
            words: RwSignal::new(String::new()),
        }
    }

    /// The memory, where it is not that of the scenario's card.
    pub fn memory(self, scenario: &Scenario) -> Option<Bytes> {
        self.memory
            .with(|said| said.as_ref().filter(|(card, _)| *card == scenario.gpu).map(|(_, memory)| *memory))
    }

    /// Asks about that much memory until the scenario has another card.
    pub fn set_memory(self, scenario: &Scenario, memory: Bytes) {
        self.memory.set(Some((scenario.gpu.clone(), memory)));
    }

    /// The training library.
    pub fn library(self, scenario: &Scenario) -> Stack {
        self.library.get().unwrap_or(scenario.stack)
    }

    /// Asks about that library; about the scenario's own whichever it is, where it is that.
    pub fn set_library(self, scenario: &Scenario, library: Stack) {
        self.library.set((library != scenario.stack).then_some(library));
    }

    /// The sequences that an optimizer step is to see: the scenario's own where nobody says otherwise.
    pub fn effective(self, scenario: &Scenario) -> u64 {
        let own =
            scenario.batch.saturating_mul(scenario.accumulation).saturating_mul(scenario.cluster.gpus.max(1));
        self.effective.get().unwrap_or(if own > 1 { own } else { USUAL_EFFECTIVE })
    }

    /// Asks about so many sequences.
    pub fn set_effective(self, sequences: u64) {
        self.effective.set(Some(sequences));
    }

    /// The scenario in that library, with what is usual in it.
    pub fn in_library(self, scenario: &Scenario) -> Scenario {
        let mut other = scenario.clone();
        let library = self.library(scenario);
        other.change(|scenario| scenario.stack = library);
        other
    }

    /// The models that the words mean; none where there are no words.
    pub fn models(self) -> Option<Vec<ModelChoice>> {
        self.words.with(|words| {
            let models = || {
                let mut found = catalogue::search(words);
                // qwen3 as it is written rather than what is a letter away from it
                let parts: Vec<String> = words.split_whitespace().map(str::to_lowercase).collect();
                let is_written =
                    |id: &str| parts.iter().all(|part| id.to_lowercase().contains(part.as_str()));
                if found.iter().any(|found| is_written(found.id)) {
                    found.retain(|found| is_written(found.id));
                }
                found.truncate(MOST_MODELS);
                found.sort_by_key(|found| found.entry.parameters);
                found.into_iter().map(|found| ModelChoice::Catalogue(found.id.to_owned())).collect()
            };
            (!words.trim().is_empty()).then(models)
        })
    }

    /// Takes over what a link says.
    pub fn read(self, link: &str, scenario: &Scenario) {
        let gib = share::said(link, MEMORY).and_then(|gib| gib.parse::<f64>().ok());
        let memory = gib.filter(|gib| gib.is_finite() && *gib > 0.).map(Bytes::gib);
        self.memory.set(memory.map(|memory| (scenario.gpu.clone(), memory)));
        self.library.set(share::said(link, LIBRARY).and_then(|slug| Stack::from_slug(&slug)));
        let effective = share::said(link, EFFECTIVE).and_then(|text| text.parse().ok());
        self.effective.set(effective.filter(|effective| (1..=LARGEST).contains(effective)));
        let words = share::said(link, WORDS).unwrap_or_default();
        self.words.set(words.chars().take(LONGEST).collect());
    }

    /// What a link says of it, to be put behind the scenarios.
    pub fn written(self, scenario: &Scenario) -> String {
        let memory = self.memory(scenario).map(|memory| (MEMORY, number(memory.as_gib())));
        let library = self.library.get().map(|library| (LIBRARY, library.slug().to_owned()));
        let words = self.words.get();
        let words = (!words.trim().is_empty()).then(|| (WORDS, words.trim().to_owned()));
        let effective = self.effective.get().map(|effective| (EFFECTIVE, effective.to_string()));
        let said: Vec<_> = [memory, library, effective, words].into_iter().flatten().collect();
        said.into_iter().map(|(name, value)| format!("&{}", share::pair(name, &value))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_says_what_the_table_is_asked_about() {
        let scenario = Scenario::default();
        Owner::new().with(|| {
            let asked = Asked::new();
            assert_eq!((asked.written(&scenario), asked.models()), (String::new(), None));
            asked.set_memory(&scenario, Bytes::gib(16.));
            asked.set_library(&scenario, Stack::Unsloth);
            asked.words.set("qwen3 & <b>".to_owned());
            let said = asked.written(&scenario);
            assert_eq!(said, "&budget=16&table-stack=unsloth&table-models=qwen3%20%26%20%3Cb%3E");
            let read = Asked::new();
            read.read(&format!("v=1{said}"), &scenario);
            assert_eq!(read.written(&scenario), said);
            assert_eq!(read.in_library(&scenario).stack, Stack::Unsloth);
            // the scenario's own library is nothing to say
            read.set_library(&scenario, scenario.stack);
            read.words.set(" llama-3.1".to_owned());
            assert_eq!(read.written(&scenario), "&budget=16&table-models=llama-3.1");
            let models = read.models().expect("words");
            assert!(!models.is_empty() && models.len() <= MOST_MODELS);
            read.words.set("qwen3".to_owned());
            let named = |model: &ModelChoice| match model {
                ModelChoice::Catalogue(id) => id.to_lowercase().contains("qwen3"),
                ModelChoice::Size(_) | ModelChoice::Custom(_) => false,
            };
            assert!(read.models().is_some_and(|models| models.len() > 3 && models.iter().all(named)));
            read.read("v=1&budget=-3&table-stack=nothing", &scenario);
            assert_eq!(read.written(&scenario), "");
        });
    }
}
