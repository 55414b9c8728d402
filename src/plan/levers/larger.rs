//! What money changes: a larger card that can be rented, on which the run fits as it is.

use serde::{Deserialize, Serialize};

use super::{Change, Looked, Outlook};
use crate::hardware::{Gpu, Machine, cheapest};
use crate::plan::need::usual_cards;
use crate::plan::verdict::Verdict;
use crate::scenario::{GpuChoice, Scenario};
use crate::units::Bytes;

/// The larger card that costs least to rent.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct LargerCard {
    /// The card, and what follows from it.
    pub changes: Vec<Change>,
    /// What the run needs there.
    pub needed: Bytes,
    /// Whether it gets through.
    pub verdict: Verdict,
    /// The machine that has it, and its price.
    pub machine: Machine,
    /// The scenario on that card.
    pub scenario: Box<Scenario>,
}

impl LargerCard {
    /// `$0.80 an hour (gcp g2-standard-4)`.
    pub fn price_in_words(&self) -> String {
        let Machine { per_hour, provider, name, .. } = &self.machine;
        format!("${per_hour:.2} an hour ({provider} {name})")
    }
}

/// Cards with more memory whose machines have a price, on which the tensors of a run fit: what costs least an hour first.
pub(super) fn cards(scenario: &Scenario) -> Vec<(Scenario, &'static Machine)> {
    let Ok(own) = scenario.gpu() else { return Vec::new() };
    if scenario.cluster.is_many() {
        return Vec::new();
    }
    let priced = |card: &'static Gpu| Some((card, cheapest(&card.slug, 1)?));
    let larger = usual_cards().into_iter().filter(|card| card.memory > own.memory);
    let mut larger: Vec<(&Gpu, &Machine)> = larger.filter_map(priced).collect();
    larger.sort_by(|(_, one), (_, other)| one.per_hour.total_cmp(&other.per_hour));
    let on = |card: &Gpu| {
        let mut on = scenario.clone();
        on.change(|on| on.gpu = GpuChoice::Catalogue(card.slug.to_string()));
        on
    };
    let runs = larger.into_iter().map(|(card, machine)| (on(card), machine));
    runs.filter(|(on, _)| Outlook::of_tensors(on).is_some_and(Outlook::fits)).collect()
}

/// The first of them on which every event of the run fits.
pub(super) fn larger(scenario: &Scenario, looked: &Looked) -> Option<LargerCard> {
    cards(scenario).into_iter().find_map(|(on, machine)| {
        let Outlook { needed, verdict, .. } = looked.looks.at(&on).filter(|outlook| outlook.fits())?;
        let changes = Change::between(scenario, &on, "gpu");
        Some(LargerCard { changes, needed, verdict, machine: machine.clone(), scenario: on.into() })
    })
}
