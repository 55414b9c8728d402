//! What takes milliseconds to find out about a scenario: every event of its step, and what they make of a card.

use serde::{Deserialize, Serialize};

use crate::accuracy::{Band, REAL_GPU_PERCENT, band};
use crate::estimate::estimate;
use crate::explain::{Line, explain};
use crate::issue::Issue;
use crate::memory::Memory;
use crate::plan::{Fit, OnCard, Replayed, Verdict};
use crate::scenario::Scenario;
use crate::step::Moment;

/// How finely the timeline is drawn.
const MOMENTS: usize = 400;

/// A scenario, looked at closely.
#[derive(Debug, Deserialize, Serialize)]
pub struct Detail {
    /// Which scenario.
    pub scenario: Scenario,
    /// What every tensor at the peak is and why it is there.
    pub lines: Vec<Line>,
    /// The step from its beginning to its end.
    pub moments: Vec<Moment>,
    /// What it needs: as the allocator counts it where the run could be replayed, else its tensors.
    pub memory: Memory,
    /// What the allocator of the card makes of it, or why that is not known; then there are no lines and no moments.
    pub on_card: Result<OnCard, Issue>,
    /// How far to trust it.
    pub band: Band,
}

impl Detail {
    /// Runs the step event by event; `None` for a scenario that has no answer.
    pub fn of(scenario: &Scenario) -> Option<Detail> {
        let (architecture, gpu) = (scenario.architecture().ok()?, scenario.gpu().ok()?);
        let tensors = estimate(scenario).memory?;
        let band = band(&architecture, scenario);
        let scenario = scenario.clone();
        Some(match Replayed::of(&architecture, &scenario, &gpu, &tensors) {
            Ok(Replayed { recording, on_card, memory }) => Detail {
                lines: explain(&recording.tensors_at_peak(on_card.settings), &scenario),
                moments: recording.timeline(MOMENTS, on_card.settings),
                memory,
                on_card: Ok(on_card),
                band,
                scenario,
            },
            Err(issue) => Detail {
                lines: Vec::new(),
                moments: Vec::new(),
                memory: tensors,
                on_card: Err(issue),
                band,
                scenario,
            },
        })
    }

    /// Whether this is the scenario that was looked at.
    pub fn is_of(&self, scenario: &Scenario) -> bool {
        self.scenario == *scenario
    }

    /// The verdict on a scenario, by what a close look at it said, if there was one.
    pub fn verdict(detail: Option<&Detail>, scenario: &Scenario, fit: &Fit) -> Verdict {
        let detail = detail.filter(|detail| detail.is_of(scenario));
        match detail.map(|detail| (&detail.on_card, detail.band.percent)) {
            Some((Ok(on_card), _)) => Verdict::of(on_card),
            Some((Err(_), percent)) => Verdict::of_tensors(fit, percent),
            None => Verdict::of_tensors(fit, REAL_GPU_PERCENT),
        }
    }
}
