//! What the timeline shows of the step, and how a link says it.

use leptos::prelude::*;

use super::asked::said;
use crate::issue::Issue;
use crate::scenario::Scenario;
use crate::share;
use crate::share::page::{DRAWN, MOMENT, STEP, STRETCH};

/// What a link says of the first step.
const FIRST: &str = "first";
/// What it says where that which is there at every moment is left out.
const CHANGES: &str = "changes";

/// What is drawn of the step, and which moment of it is chosen. Moments are told by the numbers of their events.
#[derive(Clone, Copy)]
pub struct Looked {
    /// Whether it is the first step.
    pub first: RwSignal<bool>,
    /// The stretches that were zoomed into, one within the other.
    pub zooms: RwSignal<Vec<(usize, usize)>>,
    /// The moment that was clicked, or reached with the keyboard.
    pub pinned: RwSignal<Option<usize>>,
    /// Whether what is there at every drawn moment is left out.
    pub changing: RwSignal<bool>,
    /// The scenario whose moments and stretches these are.
    of: RwSignal<Option<Scenario>>,
}

impl Looked {
    /// The peak of a later step.
    pub fn new() -> Looked {
        Looked {
            first: RwSignal::new(false),
            zooms: RwSignal::new(Vec::new()),
            pinned: RwSignal::new(None),
            changing: RwSignal::new(false),
            of: RwSignal::new(None),
        }
    }

    /// Looks at the step of a scenario: moments and stretches of another are forgotten. Whether it is another.
    pub fn at(self, scenario: &Scenario) -> bool {
        let is_other = self.of.with_untracked(|of| of.as_ref() != Some(scenario));
        if is_other {
            self.zooms.set(Vec::new());
            self.pinned.set(None);
            self.of.set(Some(scenario.clone()));
        }
        is_other
    }

    /// Shows the first step, or a later one, from its beginning to its end and at its peak.
    pub fn show(self, first: bool) {
        if self.first.get_untracked() != first {
            self.pinned.set(None);
        }
        self.zooms.update(Vec::clear);
        self.first.set(first);
    }

    /// Takes over what a link says of a scenario's step; what it says in vain is told.
    pub fn read(self, link: &str, scenario: &Scenario) -> Vec<Issue> {
        let mut issues = Vec::new();
        let first = said(link, STEP, "write step=first", &mut issues, |text| (text == FIRST).then_some(true));
        self.first.set(first.unwrap_or_default());
        let changing =
            said(link, DRAWN, "write drawn=changes", &mut issues, |text| (text == CHANGES).then_some(true));
        self.changing.set(changing.unwrap_or_default());
        let usable = "write two numbers of events, as stretch=120-480";
        let stretch = said(link, STRETCH, usable, &mut issues, |text| {
            let (from, to) = text.split_once('-')?;
            let (from, to) = (from.parse().ok()?, to.parse().ok()?);
            (from < to).then_some((from, to))
        });
        self.zooms.set(stretch.into_iter().collect());
        self.pinned
            .set(said(link, MOMENT, "write the number of an event", &mut issues, |text| text.parse().ok()));
        self.of.set(Some(scenario.clone()));
        issues
    }

    /// What a link says of it, to be put behind the scenarios.
    pub fn written(self, scenario: &Scenario) -> String {
        let is_its_own = self.of.with(|of| of.as_ref() == Some(scenario));
        let stretch =
            self.zooms.with(|zooms| zooms.last().map(|(from, to)| (STRETCH, format!("{from}-{to}"))));
        let moment = self.pinned.get().map(|at| (MOMENT, at.to_string()));
        let of_events = [stretch, moment].map(|said| said.filter(|_| is_its_own));
        let step = self.first.get().then(|| (STEP, FIRST.to_owned()));
        let drawn = self.changing.get().then(|| (DRAWN, CHANGES.to_owned()));
        let all = [step, drawn].into_iter().chain(of_events).flatten();
        all.map(|(name, value)| format!("&{}", share::pair(name, &value))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_says_which_moment_is_looked_at() {
        let scenario = Scenario::default();
        Owner::new().with(|| {
            let looked = Looked::new();
            assert_eq!(looked.written(&scenario), "");
            assert!(looked.at(&scenario));
            looked.first.set(true);
            looked.zooms.set(vec![(0, 900), (100, 400)]);
            looked.pinned.set(Some(250));
            looked.changing.set(true);
            let said = looked.written(&scenario);
            assert_eq!(said, "&step=first&drawn=changes&stretch=100-400&moment=250");
            let read = Looked::new();
            assert!(read.read(&format!("v=1{said}"), &scenario).is_empty());
            assert_eq!(read.written(&scenario), said);
            // the close look arrives: what the link said stays
            assert!(!read.at(&scenario));
            assert_eq!(read.written(&scenario), said);
            // another scenario has other events
            let other = Scenario { batch: 2, ..scenario.clone() };
            assert_eq!(read.written(&other), "&step=first&drawn=changes");
            assert!(read.at(&other));
            assert_eq!((read.pinned.get(), read.zooms.get().len()), (None, 0));
        });
    }

    #[test]
    fn what_cannot_be_looked_at_is_told() {
        let scenario = Scenario::default();
        Owner::new().with(|| {
            let looked = Looked::new();
            let told = looked.read("v=1&step=second&drawn=x&stretch=9-9&moment=-3", &scenario);
            assert_eq!((told.len(), looked.written(&scenario)), (4, String::new()), "{told:?}");
            for stretch in ["9", "5-3", "a-b", "1-99999999999999999999999"] {
                assert_eq!(looked.read(&format!("v=1&stretch={stretch}"), &scenario).len(), 1, "{stretch}");
            }
        });
    }
}
