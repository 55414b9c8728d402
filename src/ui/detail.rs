//! What takes milliseconds to find out about a scenario: every event of its step, and what they make of a card.

use crate::accuracy::{Band, REAL_GPU_PERCENT, band};
use crate::explain::{Line, explain};
use crate::issue::Issue;
use crate::plan::{Fit, OnCard, Verdict, on_card};
use crate::scenario::Scenario;
use crate::step::{Moment, Recording, TensorGroup};

/// How finely the timeline is drawn.
const MOMENTS: usize = 400;

/// A scenario, looked at closely.
#[derive(Debug)]
pub struct Detail {
    /// Which scenario.
    pub scenario: Scenario,
    /// Every kind of tensor at the peak.
    pub tensors: Vec<TensorGroup>,
    /// The step from its beginning to its end.
    pub moments: Vec<Moment>,
    /// What the allocator of the card makes of it, or why that is not known; then there are no tensors and no moments.
    pub on_card: Result<OnCard, Issue>,
    /// How far to trust it.
    pub band: Band,
}

impl Detail {
    /// Runs the step event by event; `None` for a scenario that has no answer.
    pub fn of(scenario: &Scenario) -> Option<Detail> {
        let (architecture, gpu) = (scenario.architecture().ok()?, scenario.gpu().ok()?);
        let band = band(&architecture, scenario);
        let scenario = scenario.clone();
        Some(match Recording::of(&architecture, &scenario, &gpu) {
            Ok(recording) => Detail {
                tensors: recording.tensors_at_peak(),
                moments: recording.timeline(MOMENTS),
                on_card: Ok(on_card(&recording, scenario.allocator, &gpu)),
                band,
                scenario,
            },
            Err(issue) => {
                Detail { tensors: Vec::new(), moments: Vec::new(), on_card: Err(issue), band, scenario }
            }
        })
    }

    /// What every tensor at the peak is and why it is there: asked for when somebody opens a part, so that the first answer
    /// does without.
    pub fn lines(&self) -> Vec<Line> {
        explain(&self.tensors, &self.scenario)
    }

    /// Whether this is the scenario that was looked at.
    pub fn is_of(&self, scenario: &Scenario) -> bool {
        self.scenario == *scenario
    }

    /// The verdict on a scenario, by what a close look at it said, if there was one.
    pub fn verdict(detail: Option<&Detail>, scenario: &Scenario, fit: &Fit) -> Verdict {
        match detail.filter(|detail| detail.is_of(scenario)) {
            Some(detail) => Verdict::of(fit, detail.on_card.as_ref().ok(), detail.band.percent),
            None => Verdict::of(fit, None, REAL_GPU_PERCENT),
        }
    }
}
