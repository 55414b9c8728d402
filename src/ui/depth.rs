//! What takes longer than a frame: the replay of the active scenario, layer by layer and through the allocator, made once
//! the figures rest.

use std::sync::Arc;

use leptos::prelude::*;

use super::browser::Later;
use super::state::State;
use crate::accuracy::{Band, band};
use crate::explain::{Line, explain};
use crate::plan::{OnCard, on_card};
use crate::scenario::{Issue, Scenario};
use crate::step::{Moment, Recording};
use crate::units::Bytes;

/// How long the figures must rest, in milliseconds: a slider in motion is followed by the summarised path alone.
const REST: u32 = 120;
/// Moments of the timeline: about two per three pixels of its usual width.
const MOMENTS: usize = 240;

/// What the replay of one scenario says.
#[derive(Clone, Debug, PartialEq)]
pub struct Depth {
    /// What the run does on the card.
    pub on_card: OnCard,
    /// What the card has.
    pub capacity: Bytes,
    /// What lies outside the allocator.
    pub context: Bytes,
    /// How far the allocated peak may be off.
    pub band: Band,
    /// The tensors at the peak.
    pub lines: Vec<Line>,
    /// The last iteration.
    pub timeline: Vec<Moment>,
}

impl Depth {
    /// Replays a scenario.
    ///
    /// # Errors
    /// The [`Issue`] for which there is no answer at all.
    pub fn of(scenario: &Scenario) -> Result<Depth, Issue> {
        let (architecture, gpu) = (scenario.architecture()?, scenario.gpu()?);
        let recording = Recording::of(&architecture, scenario, &gpu)?;
        Ok(Depth {
            on_card: on_card(&recording, &gpu),
            capacity: gpu.memory,
            context: gpu.context,
            band: band(&architecture, scenario),
            lines: explain(&recording.tensors_at_peak(), scenario),
            timeline: recording.timeline(MOMENTS),
        })
    }
}

/// The depth of the active scenario; absent while its figures change, and where there is no answer.
#[derive(Clone, Copy)]
pub struct Shown(RwSignal<Option<Arc<Depth>>>);

impl Shown {
    /// Follows the active scenario and hands the depth to everything on the page.
    pub fn provide(state: State) {
        let shown = Shown(RwSignal::new(None));
        provide_context(shown);
        let later = StoredValue::new_local(Later::default());
        Effect::new(move |_| {
            let slot = state.current();
            let answered = slot.estimate.with(|estimate| estimate.memory.is_some());
            let scenario = slot.scenario.get();
            if !answered {
                later.with_value(Later::cancel);
                shown.0.set(None);
                return;
            }
            later.with_value(|later| {
                later.run(REST, move || shown.0.set(Depth::of(&scenario).ok().map(Arc::new)));
            });
        });
    }

    /// The depth that a component shows.
    pub fn of_page() -> Shown {
        expect_context::<Shown>()
    }

    /// Something of it.
    pub fn read<T>(self, get: impl FnOnce(&Depth) -> T) -> Option<T> {
        self.0.with(|depth| depth.as_deref().map(get))
    }

    /// All of it.
    pub fn get(self) -> Option<Arc<Depth>> {
        self.0.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Outcome;

    #[test]
    fn the_first_answer_has_depth() {
        let depth = Depth::of(&Scenario::default()).unwrap_or_else(|issue| panic!("{issue}"));
        assert_eq!(depth.on_card.outcome, Outcome::Runs);
        assert!(depth.timeline.len() <= MOMENTS + 8, "{}", depth.timeline.len());
        assert!(depth.lines.iter().any(|line| line.what.contains("lm_head")), "{:?}", depth.lines);
    }
}
