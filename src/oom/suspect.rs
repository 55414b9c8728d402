//! The tensors of a scenario's run that may be the one of a message.

use serde::{Deserialize, Serialize};

use super::message::Message;
use super::place::{LOADING, Place};
use crate::accuracy;
use crate::allocator::Settings;
use crate::explain::{Line, explain};
use crate::issue::Issue;
use crate::scenario::{Allocator, Scenario};
use crate::step::{Recording, Request, TensorGroup};
use crate::units::{BYTES_PER_MIB, Bytes};

/// A tensor that may be the one.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Suspect {
    /// What it is, its sum and why it is made.
    pub line: Line,
    /// What is running: `backward pass`, `loading`.
    pub phase: String,
    /// What is allocated right before it in the scenario's run.
    pub allocated: Bytes,
    /// Whether that is what the message says, as nearly as runs like this one were measured to be predicted; none where the message
    /// does not say it. Where it says only what was in use of the card, that may contradict and cannot confirm; where it says nothing of
    /// the card, so may the room that the scenario's card had at every such moment.
    pub agrees: Option<bool>,
    /// The place of the traceback in which it is made; none where there is no traceback, or it names none of those.
    pub place: Option<Place>,
}

impl Suspect {
    /// Whether the message says that it was not this one.
    pub(super) fn contradicts(&self) -> bool {
        self.agrees == Some(false)
    }
}

/// How far a run on a real card may be from its prediction where none like it was measured on one, in percent: what published runs are
/// off by on average (docs/accuracy.md). Other versions of the libraries and another card move that much.
const ON_CARDS: f64 = 5.0;

/// At most so many suspects are named.
const SUSPECTS: usize = 3;

/// The tensors of a scenario's run that ask for as much as the message says: those that are made where its traceback stands first, the
/// innermost place before those around it, then what nothing contradicts, then the one whose moment is nearest to it; none where the message says a segment of small tensors.
///
/// # Errors
/// An [`Issue`] where the scenario cannot be run.
pub fn suspects(message: &Message, places: &[Place], scenario: &Scenario) -> Result<Vec<Suspect>, Issue> {
    let Some(sought) = message.sought() else { return Ok(Vec::new()) };
    let recording = recorded(scenario)?;
    if !recording.asks_for(&sought) {
        return Ok(Vec::new());
    }
    let band = accuracy::band(&*scenario.architecture()?, scenario);
    let percent = if band.on_cards == 0 { band.percent.max(ON_CARDS) } else { band.percent };
    let expandable_segments = scenario.allocator == Allocator::Expandable;
    let settings = Settings { expandable_segments, ..Settings::default() };
    let said = message.allocated.or_else(|| message.held());
    let allocated = said.map_or(Bytes(u64::MAX), |amount| amount.bytes);
    let (card, beside) = (scenario.card()?.memory, beside_the_allocator(scenario)?);
    let requests = recording.requests(sought.clone(), allocated, settings);
    let suspect = |request: Request| {
        let agrees = match message.allocated {
            Some(said) => {
                let off = request.allocated.0.abs_diff(said.bytes.0);
                Some(off <= said.off.0 || off as f64 <= said.bytes.0 as f64 * percent / 100.0)
            }
            None => {
                let part = percent / 100.0;
                let least = request.allocated.0 as f64 * (1.0 - part);
                let most = request.reserved.0 as f64 * (1.0 + part) + beside.0 as f64;
                let may_be = match message.held() {
                    Some(held) => least <= held.most() as f64 && held.least() as f64 <= most,
                    None => most + *sought.end() as f64 > card.0 as f64,
                };
                (!may_be).then_some(false)
            }
        };
        let one = TensorGroup { count: 1, ..request.tensors };
        let line = explain(&[one], scenario).into_iter().next()?;
        let phase = request.phase.map_or(LOADING, |phase| phase.label()).to_owned();
        let place = places.iter().copied().find(|place| place.makes(&line, &phase));
        Some(Suspect { line, phase, allocated: request.allocated, agrees, place })
    };
    let mut found: Vec<Suspect> = requests.into_iter().filter_map(suspect).collect();
    let depth = |place: Option<Place>| places.iter().position(|named| Some(*named) == place);
    // what is made at one place may be made there while a model is loaded, and again in every step
    let others =
        |suspect: &Suspect| places.iter().filter(|place| !place.makes(&suspect.line, &suspect.phase)).count();
    found.sort_by_key(|suspect| {
        (depth(suspect.place).unwrap_or(places.len()), others(suspect), suspect.contradicts())
    });
    found.truncate(SUSPECTS);
    Ok(found)
}

/// The most that a run has of its card beside PyTorch's allocator: the driver's context, NCCL, and what others have.
fn beside_the_allocator(scenario: &Scenario) -> Result<Bytes, Issue> {
    let others = scenario.reserve.used.saturating_mul(BYTES_PER_MIB);
    Ok(scenario.gpu()?.context_most + Bytes(others))
}

/// All events of a scenario's run.
pub(super) fn recorded(scenario: &Scenario) -> Result<Recording, Issue> {
    Recording::of(&*scenario.architecture()?, scenario, &scenario.gpu()?)
}
