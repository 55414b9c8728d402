//! Runs that were recorded, for several questions about them.

use std::cell::RefCell;
use std::rc::Rc;

use super::on_card::Replays;
use crate::hardware::{Gpu, run_alike};
use crate::issue::Issue;
use crate::model::Architecture;
use crate::scenario::{Allocator, GpuChoice, Scenario};
use crate::step::Recording;
use crate::units::Bytes;

/// How many are kept: as many as there are usual numbers of GPUs, and a few between them. A recording may be a hundred megabytes.
const MOST: usize = 16;

/// A recording and its replays.
type Run = Rc<(Recording, Replays)>;

/// What was recorded so far: a scenario has the same events on all cards that run it alike, and under either allocator.
#[derive(Default)]
pub(super) struct Recorded(RefCell<Vec<(Scenario, Gpu, Run)>>);

impl Recorded {
    /// The recording of a scenario on a card, made where it is not there yet.
    pub fn of(&self, architecture: &Architecture, scenario: &Scenario, gpu: &Gpu) -> Result<Run, Issue> {
        let own = Scenario {
            // what vLLM wakes up to is a share of the card
            gpu: match scenario.waking() {
                Some(_) => scenario.gpu.clone(),
                None => GpuChoice::Custom(Bytes::ZERO),
            },
            allocator: Allocator::Native,
            ..scenario.clone()
        };
        let known = |(known, card, _): &&(Scenario, Gpu, _)| *known == own && run_alike(card, gpu);
        let found = self.0.borrow().iter().find(known).map(|(.., recording)| Rc::clone(recording));
        if let Some(recording) = found {
            return Ok(recording);
        }
        let recording = Rc::new((Recording::of(architecture, scenario, gpu)?, Replays::default()));
        let mut kept = self.0.borrow_mut();
        if kept.len() >= MOST {
            kept.remove(0);
        }
        kept.push((own, gpu.clone(), Rc::clone(&recording)));
        Ok(recording)
    }
}
