//! Runs that were recorded, for several questions about them.

use std::cell::RefCell;
use std::rc::Rc;

use super::on_card::Replays;
use crate::estimate::{Estimate, estimate_within};
use crate::hardware::{Gpu, run_alike};
use crate::issue::Issue;
use crate::model::Architecture;
use crate::scenario::{Allocator, GpuChoice, Scenario, Sharding};
use crate::step::Recording;
use crate::units::Bytes;

/// How many are kept: as many as there are usual numbers of GPUs, and a few between them. A recording may be a hundred megabytes.
const MOST: usize = 16;

/// A recording and its replays.
type Run = Rc<(Recording, Replays)>;

/// What is known of scenarios, each on a card.
type Known<T> = RefCell<Vec<(Scenario, Gpu, T)>>;

/// What a scenario's tensors take at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Tensors {
    /// So much.
    Take(Bytes),
    /// More than so much.
    Exceed(Bytes),
    /// There is no estimate.
    Unknown,
}

/// What was recorded so far: a scenario has the same events on all cards that run it alike, and under either allocator.
#[derive(Default)]
pub(super) struct Recorded {
    /// Of at most [`MOST`] scenarios.
    runs: Known<Run>,
    /// A number for each that was asked about: of a table a few hundred.
    tensors: Known<Tensors>,
}

/// A scenario as it is the same on all cards that run it alike.
fn on_any(scenario: &Scenario) -> Scenario {
    Scenario {
        // what vLLM has is a share of the card
        gpu: match scenario.vllm_on_card() {
            Some(_) => scenario.gpu.clone(),
            None => GpuChoice::Custom(Bytes::ZERO),
        },
        // of a pipeline the stage is recorded that does worst with it
        allocator: if scenario.cluster.layout.pipeline > 1 { scenario.allocator } else { Allocator::Native },
        ..scenario.clone()
    }
}

/// Where it is among those that are known. ZeRO-1 and ZeRO-2 flatten parameters where the card has room for it, and of a pipeline the stage is
/// recorded that does worst on the card.
fn place<T>(known: &[(Scenario, Gpu, T)], own: &Scenario, gpu: &Gpu) -> Option<usize> {
    let by_room =
        matches!(own.cluster.sharding, Sharding::Zero1 | Sharding::Zero2) || own.cluster.layout.pipeline > 1;
    let is_same = |card: &Gpu| (card.memory, card.tells()) == (gpu.memory, gpu.tells());
    let alike = |card: &Gpu| run_alike(card, gpu) && (!by_room || is_same(card));
    known.iter().position(|(known, card, _)| known == own && alike(card))
}

impl Recorded {
    /// The most that a scenario's tensors take at once on a card, as its estimate has it, as far as the card has room.
    pub fn tensors(&self, scenario: &Scenario, gpu: &Gpu) -> Tensors {
        let own = on_any(scenario);
        let mut known = self.tensors.borrow_mut();
        let before = place(&known, &own, gpu);
        if let Some((.., tensors)) = before.and_then(|at| known.get(at))
            && !matches!(tensors, Tensors::Exceed(room) if *room < gpu.memory.saturating_sub(gpu.context))
        {
            return *tensors;
        }
        let tensors = match estimate_within(scenario, gpu.memory) {
            Err(_) => Tensors::Exceed(gpu.memory.saturating_sub(gpu.context)),
            Ok(Estimate { memory: Some(memory), .. }) => Tensors::Take(memory.peak().1.bytes),
            Ok(Estimate { memory: None, .. }) => Tensors::Unknown,
        };
        match before {
            Some(at) => known[at].2 = tensors,
            None => known.push((own, gpu.clone(), tensors)),
        }
        tensors
    }

    /// The recording of a scenario on a card, made where it is not there yet.
    pub fn of(&self, architecture: &Architecture, scenario: &Scenario, gpu: &Gpu) -> Result<Run, Issue> {
        let own = on_any(scenario);
        let mut kept = self.runs.borrow_mut();
        if let Some(at) = place(&kept, &own, gpu) {
            // what was asked for last is kept longest
            kept[at..].rotate_left(1);
            return Ok(Rc::clone(&kept[kept.len() - 1].2));
        }
        let recording = Rc::new((Recording::of(architecture, scenario, gpu)?, Replays::default()));
        if kept.len() >= MOST {
            kept.remove(0);
        }
        kept.push((own, gpu.clone(), Rc::clone(&recording)));
        Ok(recording)
    }
}
