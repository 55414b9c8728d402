//! The answer to a scenario: what it needs, what it does on its card, and the verdict on both.

use super::fit::{Fit, fits};
use super::on_card::{OnCard, Outcome, of_recorded, replayed};
use super::recorded::Recorded;
use super::time::{Pace, pace};
use super::verdict::Verdict;
use crate::accuracy::{self, Band};
use crate::estimate::{Estimate, estimate};
use crate::hardware::{Host, Vendor};
use crate::issue::{Field, Issue, Severity};
use crate::scenario::{Allocator, Scenario};
use crate::units::Bytes;

/// A scenario and all that is said of it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Answer {
    /// The question.
    pub scenario: Scenario,
    /// What it needs: as the allocator counts it where the run could be replayed, else its tensors.
    pub estimate: Estimate,
    /// What it does on its card; none where it could not be replayed.
    pub on_card: Option<OnCard>,
}

/// The same run with expandable segments.
pub(crate) fn joined(scenario: &Scenario) -> Scenario {
    Scenario { allocator: Allocator::Expandable, ..scenario.clone() }
}

/// Whether holes between the tensors of a run of that verdict may be in its way.
pub(super) fn has_holes(scenario: &Scenario, verdict: Option<Verdict>) -> bool {
    scenario.allocator == Allocator::Native && matches!(verdict, Some(Verdict::Tight | Verdict::Close))
}

/// Whether expandable segments help a run of that verdict: holes alone are in its way, or leave it in doubt.
pub(super) fn helps(verdict: Option<Verdict>, joined: Option<Verdict>) -> bool {
    match joined {
        Some(Verdict::Fits) => true,
        Some(Verdict::Close) => verdict == Some(Verdict::Tight),
        Some(Verdict::Tight | Verdict::Over | Verdict::WouldNotRun | Verdict::NotFollowed) | None => false,
    }
}

impl Answer {
    /// Answers a scenario: the estimate, and the run replayed on the scenario's card.
    pub fn of(scenario: Scenario) -> Answer {
        Answer::of_tensors(scenario).replayed()
    }

    /// The estimate alone: what the tensors need, known in microseconds.
    pub fn of_tensors(scenario: Scenario) -> Answer {
        Answer { estimate: estimate(&scenario), on_card: None, scenario }
    }

    /// The same with the run replayed on the scenario's card, where there is an estimate.
    pub fn replayed(self) -> Answer {
        self.replayed_from(&Recorded::default())
    }

    /// The same of a run that may have been recorded already.
    pub(super) fn replayed_from(mut self, recorded: &Recorded) -> Answer {
        let Some(memory) = &self.estimate.memory else { return self };
        let Answer { scenario, .. } = &self;
        let replay = || {
            let (architecture, gpu) = (scenario.architecture()?, scenario.gpu()?);
            let run = recorded.of(&architecture, scenario, &gpu)?;
            let (on_card, replay) = replayed(&architecture, scenario, &gpu, (&run.0, &run.1));
            let memory = of_recorded(&architecture, scenario, &gpu, (memory, &run.0))?;
            Ok((on_card, memory.replayed(replay)))
        };
        match replay() {
            Ok((on_card, memory)) => {
                self.estimate.memory = Some(memory);
                self.on_card = Some(on_card);
            }
            Err(issue) => self.estimate.issues.push(Issue { severity: Severity::Warning, ..issue }),
        }
        self
    }

    /// The estimate with the run replayed, and where holes between its tensors may be in its way, as it is tight or close, the answer
    /// with expandable segments too.
    pub(super) fn both_ways(self, recorded: &Recorded) -> (Answer, Option<Answer>) {
        let own = self.replayed_from(recorded);
        let joined = has_holes(&own.scenario, own.verdict())
            .then(|| Answer::of_tensors(joined(&own.scenario)).replayed_from(recorded));
        (own, joined)
    }

    /// The estimate with the run replayed, with expandable segments, which cost nothing, where only the holes between its tensors are in
    /// its way or leave it in doubt; as it is where these do not help.
    pub fn without_holes(self) -> Answer {
        self.without_holes_from(&Recorded::default())
    }

    /// The same of a run that may have been recorded already.
    pub(super) fn without_holes_from(self, recorded: &Recorded) -> Answer {
        let (own, joined) = self.both_ways(recorded);
        let verdict = own.verdict();
        joined.filter(|joined| helps(verdict, joined.verdict())).unwrap_or(own)
    }

    /// Why there is no figure, where there is none.
    pub fn refusal(&self) -> Issue {
        let first = self.estimate.errors().next().cloned();
        first.unwrap_or_else(|| Issue::error(Field::Model, "there is no answer"))
    }

    /// What is needed against what the card has; none where there is no estimate.
    pub fn fit(&self) -> Option<Fit> {
        Some(fits(self.estimate.memory.as_ref()?, &self.scenario.gpu().ok()?))
    }

    /// What all its GPUs together keep in the CPU's memory; what is read there before it is sharded goes again.
    pub fn on_host(&self) -> Bytes {
        Bytes(self.on_host_of_each().0.saturating_mul(self.scenario.cluster.gpus))
    }

    /// What the process of each GPU keeps there.
    pub(super) fn on_host_of_each(&self) -> Bytes {
        let memory = self.estimate.memory.as_ref();
        memory.map_or(Bytes::ZERO, |memory| self.scenario.kept_on_host(memory))
    }

    /// The known machine with most RAM, where that is too little for what is kept in the CPU's memory.
    pub fn short_of_ram(&self) -> Option<&'static Host> {
        self.scenario.short_of_ram(self.on_host_of_each())
    }

    /// How far what is allocated may be off, by the runs of its kind that were measured: none on cards of others than NVIDIA, and none where
    /// part of what is counted was never run ([`accuracy::unmeasured`]).
    pub fn band(&self) -> Option<Band> {
        self.estimate.memory.as_ref()?;
        let is_nvidia = self.scenario.gpu().ok()?.vendor == Vendor::Nvidia;
        let architecture = self.scenario.architecture().ok()?;
        let is_measured = is_nvidia && accuracy::unmeasured(&self.scenario).is_none();
        is_measured.then(|| accuracy::band(&architecture, &self.scenario))
    }

    /// The verdict on that.
    pub fn verdict(&self) -> Option<Verdict> {
        let band = accuracy::band(&*self.scenario.architecture().ok()?, &self.scenario);
        Some(Verdict::on(&self.scenario, &self.fit()?, self.on_card.as_ref(), band.doubt()))
    }

    /// How fast it is, where runs near it were measured.
    pub fn pace(&self) -> Option<Pace> {
        pace(&self.scenario, self.estimate.memory.as_ref()?).ok()
    }

    /// Whether the run gets through, as far as that can be said.
    pub fn runs(&self) -> Option<bool> {
        match self.verdict()? {
            Verdict::WouldNotRun => Some(false),
            Verdict::NotFollowed => None,
            Verdict::Fits | Verdict::Close | Verdict::Tight | Verdict::Over => match &self.on_card {
                Some(on_card) => Some(on_card.outcome == Outcome::Runs),
                None => Some(self.fit()?.fits()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::GpuChoice;

    #[test]
    fn a_recording_serves_both_allocators() {
        let on = |tenths: u64| Scenario {
            gpu: GpuChoice::Custom(Bytes::gib(tenths as f64 / 10.0)),
            ..Scenario::default()
        };
        let mut both = 0;
        for scenario in (125..155).map(on) {
            let (own, other) = Answer::of_tensors(scenario.clone()).both_ways(&Recorded::default());
            let said = |answer: &Answer| (answer.on_card, answer.verdict(), answer.fit());
            assert_eq!(said(&own), said(&Answer::of(scenario.clone())));
            if let Some(other) = other {
                assert_eq!(said(&other), said(&Answer::of(joined(&scenario))));
                both += 1;
            }
        }
        assert!(both > 2, "{both}");
    }
}
