//! What the view Plan is asked about beside the scenario on the page, how its tables are sorted, and how a link says it.

use leptos::prelude::*;

use super::axis::Axis;
use super::controls::{Listing, Order};
use super::format::number;
use crate::issue::{Field, Issue};
use crate::model::catalogue;
use crate::plan::{GPU_COUNTS, Measure};
use crate::scenario::{GpuChoice, LARGEST, ModelChoice, Scenario, Stack};
use crate::share;
use crate::share::page::{AXIS, CELLS, EFFECTIVE, GPUS, LIBRARY, MEMORY, SORTED, WORDS};
use crate::text::short;
use crate::units::Bytes;

/// The effective batch that is asked about where the scenario sees one sequence in a step.
const USUAL_EFFECTIVE: u64 = 32;
/// Layouts are asked about up to so many GPUs.
const MOST_GPUS: u64 = 512;
/// No more models than these answer words.
pub const MOST_MODELS: usize = 20;
/// No name is longer.
const LONGEST: usize = 100;

/// A table that can be sorted and taken along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each names the question that it answers")]
pub enum Listed {
    Models,
    Cards,
    Batches,
    Layouts,
    Settings,
    Changes,
    Formats,
    ByBatch,
    Contexts,
    Curve,
    Machines,
    Uses,
}

impl Listed {
    const ALL: [Listed; 12] = [
        Listed::Models,
        Listed::Cards,
        Listed::Batches,
        Listed::Layouts,
        Listed::Settings,
        Listed::Changes,
        Listed::Formats,
        Listed::ByBatch,
        Listed::Contexts,
        Listed::Curve,
        Listed::Machines,
        Listed::Uses,
    ];

    /// What links and files call it: frozen.
    const fn name(self) -> &'static str {
        match self {
            Listed::Models => "what-fits",
            Listed::Cards => "cards",
            Listed::Batches => "batches",
            Listed::Layouts => "layouts",
            Listed::Settings => "settings",
            Listed::Changes => "changes",
            Listed::Formats => "formats",
            Listed::ByBatch => "formats-by-batch",
            Listed::Contexts => "contexts",
            Listed::Curve => "curve",
            Listed::Machines => "machines",
            Listed::Uses => "uses",
        }
    }
}

/// What the view Plan is asked about, where it is not what the scenario says.
#[derive(Clone, Copy)]
pub struct Asked {
    memory: RwSignal<Option<(GpuChoice, Bytes)>>,
    library: RwSignal<Option<Stack>>,
    effective: RwSignal<Option<u64>>,
    /// What the cells of the table of models say.
    pub measure: RwSignal<Measure>,
    /// A part of the models' names; the usual models where it is empty.
    pub words: RwSignal<String>,
    /// As many GPUs are to hold the scenario; as it has, or the fewest that do, where nobody says.
    pub gpus: RwSignal<Option<u64>>,
    /// What memory is drawn against.
    pub axis: RwSignal<Axis>,
    /// The questions that somebody opened or folded away, by their headings.
    pub turned: RwSignal<Vec<(&'static str, bool)>>,
    orders: [RwSignal<Option<Order>>; Listed::ALL.len()],
}

impl Asked {
    /// What the scenario says, about the usual models.
    pub fn new() -> Asked {
        Asked {
            memory: RwSignal::new(None),
            library: RwSignal::new(None),
            effective: RwSignal::new(None),
            measure: RwSignal::new(Measure::default()),
            words: RwSignal::new(String::new()),
            gpus: RwSignal::new(None),
            axis: RwSignal::new(Axis::default()),
            turned: RwSignal::new(Vec::new()),
            orders: Listed::ALL.map(|_| RwSignal::new(None)),
        }
    }

    /// Whether something is said of a table, as in a link.
    pub fn is_about(self, table: Listed) -> bool {
        let is_said = match table {
            Listed::Layouts => self.gpus.get().is_some(),
            Listed::Batches => self.effective.get().is_some(),
            Listed::Curve => self.axis.get() != Axis::default(),
            Listed::Models => {
                self.measure.get() != Measure::default() || self.words.with(|words| !words.is_empty())
            }
            _ => false,
        };
        is_said || self.listing(table).order.get().is_some()
    }

    /// What a table is called, and how it is sorted.
    pub fn listing(self, table: Listed) -> Listing {
        Listing { name: table.name(), order: self.orders[table as usize] }
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

    /// Has a question answered, by its heading, or not.
    pub fn turn(self, question: &'static str, open: bool) {
        self.turned.update(|turned| {
            turned.retain(|(id, _)| *id != question);
            turned.push((question, open));
        });
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
                let mut found = catalogue::among(words);
                found.truncate(MOST_MODELS);
                found.sort_by_key(|found| found.entry.parameters);
                found.into_iter().map(|found| ModelChoice::Catalogue(found.id.to_owned())).collect()
            };
            (!words.trim().is_empty()).then(models)
        })
    }

    /// How many models the words mean, where these are more than are listed.
    pub fn more_models(self) -> Option<usize> {
        let meant = self.words.with(|words| catalogue::among(words).len());
        (meant > MOST_MODELS).then_some(meant)
    }

    /// Takes over what a link says; what it says in vain is told.
    pub fn read(self, link: &str, scenario: &Scenario) -> Vec<Issue> {
        let mut issues = Vec::new();
        let memory = said(link, MEMORY, "write the GiB of a card, as budget=24", &mut issues, |gib| {
            let gib = gib.parse::<f64>().ok().filter(|gib| gib.is_finite() && *gib > 0.)?;
            Some((scenario.gpu.clone(), Bytes::gib(gib)))
        });
        self.memory.set(memory);
        self.library.set(said(
            link,
            LIBRARY,
            "write a training library as st= does",
            &mut issues,
            Stack::from_slug,
        ));
        self.effective.set(said(link, EFFECTIVE, "write a number of sequences", &mut issues, |text| {
            text.parse().ok().filter(|effective| (1..=LARGEST).contains(effective))
        }));
        let measure = said(link, CELLS, "write batch, length or rank", &mut issues, Measure::from_slug);
        self.measure.set(measure.unwrap_or_default());
        let words = share::said(link, WORDS).unwrap_or_default();
        self.words.set(words.chars().take(LONGEST).collect());
        self.gpus.set(said(link, GPUS, "write 2, 4, 8, 16 and so on up to 512", &mut issues, |text| {
            text.parse().ok().filter(|gpus| layout_gpus().any(|count| count == *gpus))
        }));
        let names = Axis::ALL.map(Axis::key).join(", ");
        let axis = said(link, AXIS, &format!("write one of {names}"), &mut issues, |text| {
            Axis::ALL.into_iter().find(|axis| axis.key() == text)
        });
        self.axis.set(axis.unwrap_or_default());
        let orders =
            said(link, SORTED, "write a table and a column, as cards.2 or cards.2.down", &mut issues, orders);
        let orders = orders.unwrap_or_default();
        for table in Listed::ALL {
            let order = orders.iter().find(|(other, _)| *other == table).map(|(_, order)| *order);
            self.listing(table).order.set(order);
        }
        issues
    }

    /// What a link says of it, to be put behind the scenarios.
    pub fn written(self, scenario: &Scenario) -> String {
        let memory = self.memory(scenario).map(|memory| (MEMORY, number(memory.as_gib())));
        let library = self.library.get().map(|library| (LIBRARY, library.slug().to_owned()));
        let words = self.words.get();
        let words = (!words.trim().is_empty()).then(|| (WORDS, words.trim().to_owned()));
        let measure = self.measure.get();
        let measure = (measure != Measure::default())
            .then(|| (CELLS, Measure::CHOICES[measure as usize].slug.to_owned()));
        let effective = self.effective.get().map(|effective| (EFFECTIVE, effective.to_string()));
        let gpus = self.gpus.get().map(|gpus| (GPUS, gpus.to_string()));
        let axis = self.axis.get();
        let axis = (axis != Axis::default()).then(|| (AXIS, axis.key().to_owned()));
        let order = |table: Listed| Some(format!("{}.{}", table.name(), self.listing(table).order.get()?));
        let orders: Vec<_> = Listed::ALL.into_iter().filter_map(order).collect();
        let orders = (!orders.is_empty()).then(|| (SORTED, orders.join(",")));
        [memory, library, measure, effective, words, gpus, axis, orders]
            .into_iter()
            .flatten()
            .map(|(name, value)| format!("&{}", share::pair(name, &value)))
            .collect()
    }
}

/// The numbers of GPUs that ways to use them are asked about.
pub fn layout_gpus() -> impl Iterator<Item = u64> {
    GPU_COUNTS.into_iter().filter(|count| (2..=MOST_GPUS).contains(count))
}

/// What a link says of something; where that cannot be used, it is told with what could.
pub(super) fn said<T>(
    link: &str,
    name: &str,
    usable: &str,
    issues: &mut Vec<Issue>,
    read: impl FnOnce(&str) -> Option<T>,
) -> Option<T> {
    let text = share::said(link, name)?;
    let found = read(&text);
    if found.is_none() {
        issues.push(in_vain(name, &text, usable));
    }
    found
}

fn in_vain(name: &str, text: &str, usable: &str) -> Issue {
    let message = format!("{name}={} is not understood and left out", short(text));
    Issue::warning(Field::Link, message).with_fix(usable)
}

/// How tables are sorted: all of it or nothing.
fn orders(said: &str) -> Option<Vec<(Listed, Order)>> {
    let one = |part: &str| {
        let (name, order) = part.split_once('.')?;
        let table = Listed::ALL.into_iter().find(|table| table.name() == name)?;
        Some((table, order.parse().ok()?))
    };
    said.split(',').map(one).collect()
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
            asked.measure.set(Measure::Length);
            asked.words.set("qwen3 & <b>".to_owned());
            let said = asked.written(&scenario);
            assert_eq!(
                said,
                "&budget=16&table-stack=unsloth&table-cells=length&table-models=qwen3%20%26%20%3Cb%3E"
            );
            let read = Asked::new();
            assert!(read.read(&format!("v=1{said}"), &scenario).is_empty());
            assert_eq!(read.written(&scenario), said);
            assert_eq!(read.in_library(&scenario).stack, Stack::Unsloth);
            // the scenario's own library is nothing to say
            read.set_library(&scenario, scenario.stack);
            read.measure.set(Measure::Batch);
            read.words.set(" llama-3.1".to_owned());
            assert_eq!(read.written(&scenario), "&budget=16&table-models=llama-3.1");
            let models = read.models().expect("words");
            assert!(!models.is_empty() && models.len() <= MOST_MODELS);
            let sizes = |words: &str| {
                read.words.set(words.to_owned());
                read.models().expect("words").len()
            };
            assert!(sizes("<1b") > 3 && sizes("%%%") == 0);
            read.words.set("qwen3".to_owned());
            let named = |model: &ModelChoice| match model {
                ModelChoice::Catalogue(id) => id.to_lowercase().contains("qwen3"),
                ModelChoice::Size(_) | ModelChoice::Custom(_) => false,
            };
            assert!(read.models().is_some_and(|models| models.len() > 3 && models.iter().all(named)));
            let vain =
                "v=1&budget=-3&table-stack=nothing&table-cells=all&effective=x&layout-gpus=3&against=time&sorted=cards.2,x.1";
            let told = read.read(vain, &scenario);
            assert_eq!((read.written(&scenario), told.len()), (String::new(), 7), "{told:?}");
            assert!(read.read("v=1", &scenario).is_empty());
        });
    }

    #[test]
    fn a_link_says_how_tables_are_sorted_and_what_curves_are_drawn_against() {
        let scenario = Scenario::default();
        Owner::new().with(|| {
            let asked = Asked::new();
            let order = |column, falling| Some(Order { column, falling });
            asked.listing(Listed::Changes).order.set(order(3, true));
            asked.listing(Listed::Cards).order.set(order(2, false));
            asked.axis.set(Axis::Batch);
            asked.gpus.set(Some(16));
            let said = asked.written(&scenario);
            assert_eq!(said, "&layout-gpus=16&against=batch-size&sorted=cards.2,changes.3.down");
            let read = Asked::new();
            assert!(read.read(&said, &scenario).is_empty());
            assert_eq!(read.written(&scenario), said);
            let places: Vec<usize> = Listed::ALL.iter().map(|table| *table as usize).collect();
            assert_eq!(places, (0..Listed::ALL.len()).collect::<Vec<_>>());
        });
    }
}
