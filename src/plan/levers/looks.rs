//! What runs came to that a search looked at.

use std::cell::RefCell;

use serde::{Deserialize, Serialize};

use crate::plan::answer::{Answer, has_holes, helps, joined};
use crate::plan::recorded::Recorded;
use crate::plan::verdict::Verdict;
use crate::scenario::Scenario;
use crate::units::Bytes;

/// What a run needs and what becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub(super) struct Outlook {
    pub needed: Bytes,
    pub on_host: Bytes,
    pub verdict: Verdict,
    /// Seconds per token, typically, where runs near it were measured.
    pub per_token: Option<f64>,
    /// Whether the GPU waits for operations to be started.
    pub waits: bool,
}

impl Outlook {
    /// Of its tensors alone.
    pub fn of_tensors(scenario: &Scenario) -> Option<Outlook> {
        Outlook::read(&Answer::of_tensors(scenario.clone()))
    }

    pub fn read(answer: &Answer) -> Option<Outlook> {
        let pace = answer.pace();
        let per_token = pace.as_ref().map(|pace| pace.step.typical / pace.tokens.max(1) as f64);
        let waits = pace.is_some_and(|pace| pace.spent.waiting > 0.0);
        let (needed, on_host) = (answer.fit()?.needed, answer.on_host());
        Some(Outlook { needed, on_host, verdict: answer.verdict()?, per_token, waits })
    }

    pub fn fits(self) -> bool {
        self.verdict.holds()
    }

    /// Whether it gets through, and some known machine has the RAM, if any is known.
    pub fn holds(self, scenario: &Scenario) -> bool {
        self.fits() && self.has_ram(scenario)
    }

    /// Whether some known machine has the RAM, if any is known.
    pub fn has_ram(self, scenario: &Scenario) -> bool {
        let each = Bytes(self.on_host.0 / scenario.cluster.gpus.max(1));
        scenario.short_of_ram(each).is_none()
    }
}

/// What was looked at so far: a run with every event takes a while, and several ways lead to the same scenario.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Looks(RefCell<Vec<(Scenario, Option<Outlook>)>>);

/// Runs scenarios, for a search that needs what comes of them.
pub fn look(scenarios: &[Scenario]) -> Looks {
    let looks = Looks::default();
    for scenario in scenarios {
        looks.at(scenario);
    }
    looks
}

impl Looks {
    /// Adds others.
    pub fn extend(&mut self, others: Looks) {
        self.0.get_mut().extend(others.0.into_inner());
    }

    /// The outlook of a scenario with every event.
    pub(super) fn at(&self, scenario: &Scenario) -> Option<Outlook> {
        let known = self.0.borrow().iter().find(|(known, _)| known == scenario).map(|(_, outlook)| *outlook);
        known.unwrap_or_else(|| {
            let (own, joined) = Answer::of_tensors(scenario.clone()).both_ways(&Recorded::default());
            let outlook = Outlook::read(&own);
            let mut at = self.0.borrow_mut();
            at.extend(joined.map(|joined| (joined.scenario.clone(), Outlook::read(&joined))));
            at.push((own.scenario, outlook));
            outlook
        })
    }

    /// The scenario of [`Answer::without_holes`].
    pub(super) fn without_holes(&self, scenario: Scenario) -> Scenario {
        let verdict = |scenario: &Scenario| Some(self.at(scenario)?.verdict);
        let own = verdict(&scenario);
        if !has_holes(&scenario, own) {
            return scenario;
        }
        let joined = joined(&scenario);
        if helps(own, verdict(&joined)) { joined } else { scenario }
    }
}
