//! The largest model that can be trained on a card, by each method.

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};

use super::cell::{FitCell, Measure, held, holds};
use super::on_card::less_doubt;
use super::table::{of_method, on_card};
use crate::hardware::Gpu;
use crate::model::catalogue;
use crate::scenario::{Method, ModelChoice, Scenario, Task};
use crate::units::{Bytes, grouped};

/// A model and the most of it that fits.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct HeldModel {
    /// What it is called: the Hub id of a model of the catalogue.
    pub model: String,
    /// The most of it that fits, as [`super::row`] finds it.
    pub cell: FitCell,
}

/// The largest models that fit by one method.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct LargestModel {
    /// Among how many models it was looked for.
    pub among: usize,
    /// The largest that fits beyond doubt.
    pub sure: Option<HeldModel>,
    /// A larger one that fits closely: with less to spare than the estimate may be off by.
    pub close: Option<HeldModel>,
    /// Whether a model that was looked at has an answer by this method.
    pub answered: bool,
}

/// The largest of some scenarios' models that fits into an amount of memory by a method: the rest is the scenario's, as in a
/// [`super::row`] of the table. All are looked at from the largest down, with the least of what is measured, until one fits.
///
/// ```
/// use headroom::plan::{Measure, largest_model, of_catalogue};
/// use headroom::scenario::{Method, Scenario};
/// use headroom::units::Bytes;
///
/// let all = of_catalogue("", &Scenario::default());
/// let found = largest_model(&all, Bytes::gib(24.), Measure::Batch, Method::Qlora);
/// let largest = found.sure.expect("24 GiB hold one").model;
/// assert!(headroom::model::catalogue::find(&largest).unwrap().parameters > 20_000_000_000);
/// ```
pub fn largest_model(models: &[Scenario], memory: Bytes, measure: Measure, method: Method) -> LargestModel {
    let mut found = LargestModel { among: models.len(), sure: None, close: None, answered: false };
    let sized = |scenario: &Scenario| match &scenario.model {
        ModelChoice::Catalogue(id) => catalogue::find(id).map(|entry| entry.parameters),
        ModelChoice::Size(_) | ModelChoice::Custom(_) => {
            scenario.architecture().ok().map(|architecture| architecture.parameters())
        }
    };
    let mut models: Vec<_> = models.iter().map(|scenario| (sized(scenario), scenario)).collect();
    // of as many parameters the one that is used most, which the catalogue has first
    models.sort_by_key(|(parameters, _)| Reverse(*parameters));
    for (_, base) in models {
        let base = on_card(base, memory);
        let (Ok(architecture), Ok(gpu)) = (base.architecture(), base.gpu()) else { continue };
        let Ok(scenario) = of_method(&base, method) else { continue };
        let least = measure.least(&scenario);
        let runs = |gpu: &Gpu| holds(&architecture, gpu, &least, measure);
        let most = || HeldModel {
            model: base.model_name(),
            cell: held(&architecture, &gpu, scenario.clone(), measure),
        };
        let fits = runs(&gpu);
        found.answered |= fits.is_ok();
        if fits != Ok(true) {
            continue;
        }
        if runs(&less_doubt(&architecture, &least, gpu.clone())) == Ok(true) {
            found.sure = Some(most());
            break;
        }
        if found.close.is_none() {
            found.close = Some(most());
        }
    }
    found
}

/// The scenario with each model of the catalogue that words mean, and with every model where there are none.
pub fn of_catalogue(words: &str, base: &Scenario) -> Vec<Scenario> {
    let with = |id: &str| Scenario { model: ModelChoice::Catalogue(id.to_owned()), ..base.clone() };
    match words.trim() {
        "" => catalogue::entries().iter().map(|entry| with(entry.id)).collect(),
        words => catalogue::among(words).into_iter().map(|found| with(found.id)).collect(),
    }
}

/// Which models are the largest, by each of some methods, in a sentence or two.
pub fn largest_in_words(found: &[(Method, LargestModel)], task: Task) -> String {
    let listed = |of: fn(&LargestModel) -> Option<&HeldModel>| {
        let named = |(method, largest): &(Method, LargestModel)| {
            let name = of(largest)?.model.rsplit('/').next()?;
            Some(format!("{name} by {}", task.method_label(*method)))
        };
        found.iter().filter_map(named).collect::<Vec<_>>().join(", ")
    };
    let (sure, close) = (listed(|largest| largest.sure.as_ref()), listed(|largest| largest.close.as_ref()));
    let models = grouped(found.first().map_or(0, |(_, largest)| largest.among) as u64);
    let mut said = match sure.is_empty() {
        true if found.iter().all(|(_, largest)| !largest.answered) => {
            "There is no answer for any of them.".to_owned()
        }
        true => format!("None of {models} models surely fits."),
        false => format!("Of {models} models the largest that surely fit: {sure}."),
    };
    if !close.is_empty() {
        said = format!("{said} Closely, with less to spare than the estimate may be off by: {close}.");
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{each, row};
    use crate::scenario::Cluster;

    fn size(id: &str) -> u64 {
        catalogue::find(id).expect("it is in the catalogue").parameters
    }

    /// The search and the whole table say the same.
    #[test]
    fn no_larger_model_of_the_table_surely_fits() {
        for (link, words, memory) in [
            ("", "qwen", 12.),
            ("st=trl", "llama", 24.),
            ("task=generate", "gemma", 16.),
            ("gpus=2&shard=fsdp2", "mistral", 24.),
        ] {
            let base = crate::share::decode(link).scenarios.remove(0);
            let models = of_catalogue(words, &base);
            let memory = Bytes::gib(memory);
            let rows = each(&models, |scenario| row(scenario, memory, Measure::Batch));
            for method in base.task.methods() {
                let column = Method::ALL.iter().position(|other| other == method).expect("a column");
                let largest = |is: fn(&FitCell) -> bool| {
                    rows.iter().filter(|row| is(&row.cells[column])).filter_map(|row| row.parameters).max()
                };
                let found = largest_model(&models, memory, Measure::Batch, *method);
                let sure = found.sure.as_ref().map(|held| size(&held.model));
                assert_eq!(sure, largest(FitCell::is_sure), "{link} {method:?}");
                let close = largest(FitCell::is_close).filter(|close| Some(*close) > sure);
                assert_eq!(found.close.map(|held| size(&held.model)), close, "{link} {method:?}");
                assert!(found.sure.is_none_or(|held| held.cell.is_sure()), "{link} {method:?}");
            }
        }
    }

    /// Lengths have room for pictures, and ranks are adapters'.
    #[test]
    fn other_measures_find_the_largest_too() {
        let memory = Bytes::gib(48.);
        for (link, words, measure, method) in [
            ("img=1&st=trl&p=amp-bf16-weights&mask=padded", "qwen2.5-vl", Measure::Length, Method::Lora),
            ("", "qwen2.5", Measure::Length, Method::Lora),
            ("", "qwen2.5", Measure::Rank, Method::Qlora),
        ] {
            let base = crate::share::decode(link).scenarios.remove(0);
            let models = of_catalogue(words, &base);
            let rows = each(&models, |scenario| row(scenario, memory, measure));
            let column = Method::ALL.iter().position(|other| *other == method).expect("a column");
            let largest =
                rows.iter().filter(|row| row.cells[column].is_sure()).filter_map(|row| row.parameters).max();
            let found = largest_model(&models, memory, measure, method);
            assert_eq!(found.sure.map(|held| size(&held.model)), largest, "{link} {words} {measure:?}");
            assert!(found.answered && largest.is_some(), "{link} {words} {measure:?}");
        }
    }

    #[test]
    fn several_gpus_hold_a_larger_one() {
        let on = |gpus| {
            let mut base = Scenario::default();
            base.change(|scenario| scenario.cluster = Cluster { gpus, ..scenario.cluster });
            let found =
                largest_model(&of_catalogue("", &base), Bytes::gib(24.), Measure::Batch, Method::Qlora);
            size(&found.sure.expect("one fits").model)
        };
        assert!(on(4) > on(1));
    }

    #[test]
    fn sentences_name_what_was_looked_at() {
        let base = Scenario { method: Method::Full, ..Scenario::default() };
        let found = |words: &str, gib| {
            let models = of_catalogue(words, &base);
            let of =
                |method: &Method| (*method, largest_model(&models, Bytes::gib(gib), Measure::Batch, *method));
            largest_in_words(&Method::ALL.iter().map(of).collect::<Vec<_>>(), base.task)
        };
        let said = found("", 24.);
        let all = catalogue::entries().len();
        assert!(said.starts_with(&format!("Of {all} models the largest that surely fit: ")), "{said}");
        assert_eq!(found("llama 70b", 0.5).split_once(" models").expect("a sentence").1, " surely fits.");
    }
}
