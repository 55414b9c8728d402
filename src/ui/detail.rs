//! What takes milliseconds to find out about a scenario: every event of its step, and what they make of a card.

use serde::{Deserialize, Serialize};

use crate::accuracy::{Band, Doubt, REAL_GPU_PERCENT, band, unmeasured};
use crate::estimate::estimate;
use crate::explain::{Level, Line, Note, event, largest, notes, zoom};
use crate::hardware::Vendor;
use crate::issue::Issue;
use crate::memory::{Category, Memory};
use crate::plan::{Fit, OnCard, Replayed, Verdict};
use crate::scenario::Scenario;
use crate::step::Moment;
use crate::trace::Trace;
use crate::units::Bytes;

/// How finely the timeline is drawn.
const MOMENTS: usize = 400;

/// Some of a run's events, drawn as finely as all of them.
pub fn stretch(replayed: &Replayed, of_first: bool, within: Option<(usize, usize)>) -> Vec<Moment> {
    let Replayed { recording, on_card, .. } = replayed;
    let all = if of_first { recording.first() } else { recording.shown() };
    let events = within.map(|(from, to)| from.max(all.start)..to.min(all.end));
    // a link may have been made for a longer step
    let events = events.filter(|events| !events.is_empty()).unwrap_or(all);
    recording.timeline(events, MOMENTS, on_card.settings)
}

/// How many tensors of a moment are told.
const LARGEST: usize = 5;

/// A moment of a step, looked at closely.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Glance {
    /// Which event it comes after.
    pub at: usize,
    /// What that does, if a tensor comes or goes.
    pub event: Option<String>,
    /// The largest tensors that are alive.
    pub lines: Vec<Line>,
}

impl Glance {
    /// The moment after the event of that number.
    pub fn of(replayed: &Replayed, scenario: &Scenario, at: usize) -> Glance {
        let Replayed { recording, on_card, .. } = replayed;
        let tensors = recording.tensors_by_layer(at, on_card.settings);
        Glance {
            at,
            event: recording.happening(at).map(|happening| event(&happening)),
            lines: largest(&tensors, scenario, LARGEST),
        }
    }
}

/// A measured step over the predicted one, and the peaks of its whole file.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Beside {
    /// What was allocated: where among the moments that are drawn of the step, and how much.
    pub line: Vec<(f64, Bytes)>,
    /// The most that was allocated.
    pub peak: Bytes,
    /// The most that was reserved.
    pub reserved_peak: Bytes,
}

impl Beside {
    /// The stretch of a snapshot that is most like a step, over the moments that are drawn of it.
    pub fn of(trace: &Trace, replayed: &Replayed) -> Beside {
        let settings = replayed.on_card.settings;
        let heights = replayed.recording.heights(settings);
        let moments: Vec<usize> = stretch(replayed, false, None).iter().map(|moment| moment.at).collect();
        let own = trace.most_like(&heights.iter().map(|(_, bytes)| *bytes).collect::<Vec<_>>());
        let place = |at: usize| {
            let after = moments.partition_point(|moment| *moment < at).min(moments.len().saturating_sub(1));
            let before = after.saturating_sub(1);
            let (from, to) = (moments[before], moments[after]);
            if to > from {
                before as f64 + at.saturating_sub(from) as f64 / (to - from) as f64
            } else {
                after as f64
            }
        };
        let measured: Vec<(usize, Bytes)> =
            heights.iter().zip(&trace.allocated[own]).map(|((at, _), bytes)| (*at, *bytes)).collect();
        let part = measured.len().div_ceil(MOMENTS / 2).max(1);
        let line = measured.chunks(part).flat_map(|part| {
            let low = part.iter().min_by_key(|(_, bytes)| *bytes);
            let high = part.iter().max_by_key(|(_, bytes)| *bytes);
            let mut ends: Vec<_> = [low, high].into_iter().flatten().copied().collect();
            ends.sort_unstable();
            ends.dedup();
            ends
        });
        let line = line.map(|(at, bytes)| (place(at).min(moments.len() as f64), bytes)).collect();
        let reserved_peak = trace.reserved.iter().copied().max().unwrap_or_default();
        Beside { line, peak: trace.peak(), reserved_peak }
    }
}

/// A part at the moment after the event of that number, or at the peak where none is given: level by level.
pub fn opened(replayed: &Replayed, scenario: &Scenario, at: Option<usize>, part: Category) -> Vec<Level> {
    let Replayed { recording, on_card, peak, .. } = replayed;
    zoom(&recording.tensors_by_layer(at.unwrap_or(*peak), on_card.settings), part, scenario)
}

/// A scenario, looked at closely.
#[derive(Debug, PartialEq, Deserialize, Serialize)]
pub struct Detail {
    /// Which scenario.
    pub scenario: Scenario,
    /// The largest tensors at the peak.
    pub lines: Vec<Line>,
    /// What happens at the peak, where the run could be replayed: `makes log_softmax, 1002 MiB`.
    pub event: Option<String>,
    /// What of it stands out, and what changes that.
    pub notes: Vec<Note>,
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
        Some(Detail::look(scenario)?.0)
    }

    /// The same with the run, where it could be replayed.
    pub fn look(scenario: &Scenario) -> Option<(Detail, Option<Replayed>)> {
        let (architecture, gpu) = (scenario.architecture().ok()?, scenario.gpu().ok()?);
        let tensors = estimate(scenario).memory?;
        let band = band(&architecture, scenario);
        let replayed = Replayed::of(&architecture, scenario, &gpu, &tensors);
        let scenario = scenario.clone();
        Some(match replayed {
            Ok(replayed) => {
                let Replayed { recording, on_card, memory, peak } = &replayed;
                let tensors = recording.tensors_at(*peak, on_card.settings);
                let detail = Detail {
                    lines: largest(&recording.tensors_by_layer(*peak, on_card.settings), &scenario, LARGEST),
                    event: recording.happening(*peak).map(|happening| event(&happening)),
                    notes: notes(&tensors, &scenario),
                    moments: recording.timeline(recording.shown(), MOMENTS, on_card.settings),
                    memory: memory.clone(),
                    on_card: Ok(*on_card),
                    band,
                    scenario,
                };
                (detail, Some(replayed))
            }
            Err(issue) => {
                let detail = Detail {
                    lines: Vec::new(),
                    event: None,
                    notes: Vec::new(),
                    moments: Vec::new(),
                    memory: tensors,
                    on_card: Err(issue),
                    band,
                    scenario,
                };
                (detail, None)
            }
        })
    }

    /// The error that was measured of runs of its kind: none on cards of others than NVIDIA, on which no run was measured, and where
    /// part of what is counted was never run.
    pub fn measured_error(&self) -> Option<Band> {
        let is_nvidia = self.scenario.gpu().is_ok_and(|gpu| gpu.vendor == Vendor::Nvidia);
        (is_nvidia && unmeasured(&self.scenario).is_none()).then_some(self.band)
    }

    /// Whether this is the scenario that was looked at.
    pub fn is_of(&self, scenario: &Scenario) -> bool {
        self.scenario == *scenario
    }

    /// The verdict on a scenario, by what a close look at it said, if there was one.
    pub fn verdict(detail: Option<&Detail>, scenario: &Scenario, fit: &Fit) -> Verdict {
        let detail = detail.filter(|detail| detail.is_of(scenario));
        let doubt = detail.map_or(Doubt::either_way(REAL_GPU_PERCENT), |detail| detail.band.doubt());
        let on_card = detail.and_then(|detail| detail.on_card.as_ref().ok());
        Verdict::on(scenario, fit, on_card, doubt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_that_the_step_has_not_is_the_whole_step() {
        let (_, replayed) = Detail::look(&Scenario::default()).expect("an answer");
        let replayed = replayed.expect("a step");
        for of_first in [false, true] {
            let whole = stretch(&replayed, of_first, None);
            let (first, last) = (whole[0].at, whole[whole.len() - 1].at);
            for beyond in [(last + 10, last + 20), (9, 9), (9, 3), (usize::MAX - 1, usize::MAX)] {
                assert_eq!(stretch(&replayed, of_first, Some(beyond)), whole, "{beyond:?}");
            }
            let half = stretch(&replayed, of_first, Some((first, first + (last - first) / 2)));
            assert!(half.last().is_some_and(|moment| moment.at < last));
        }
    }
}
