//! The tensors of a scenario's run that may be the one of a message.

use serde::{Deserialize, Serialize};

use super::message::Message;
use super::place::Place;
use crate::accuracy;
use crate::allocator::Settings;
use crate::explain::{Line, explain};
use crate::issue::Issue;
use crate::scenario::{Allocator, Scenario};
use crate::step::{Recording, Request, TensorGroup};
use crate::units::Bytes;

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
    /// does not say it.
    pub agrees: Option<bool>,
    /// The place of the traceback in which it is made; none where there is no traceback, or it names none of those.
    pub place: Option<Place>,
}

/// At most so many suspects are named.
const SUSPECTS: usize = 3;

/// The tensors of a scenario's run that ask for as much as the message says: those that are made where its traceback stands first, the
/// innermost place before those around it, then the one whose moment is nearest to it; none where the message says a segment of small tensors.
///
/// # Errors
/// An [`Issue`] where the scenario cannot be run.
pub fn suspects(message: &Message, places: &[Place], scenario: &Scenario) -> Result<Vec<Suspect>, Issue> {
    let Some(asked) = message.requested.filter(|_| message.segment().is_none()) else {
        return Ok(Vec::new());
    };
    let recording = recorded(scenario)?;
    let percent = accuracy::band(&*scenario.architecture()?, scenario).percent;
    let expandable_segments = scenario.allocator == Allocator::Expandable;
    let settings = Settings { expandable_segments, ..Settings::default() };
    let allocated = message.allocated.map_or(Bytes(u64::MAX), |amount| amount.bytes);
    let requests = recording.requests(asked.least()..=asked.most(), allocated, settings);
    let suspect = |request: Request| {
        let agrees = message.allocated.map(|said| {
            let off = request.allocated.0.abs_diff(said.bytes.0);
            off <= said.off.0 || off as f64 <= said.bytes.0 as f64 * percent / 100.0
        });
        let one = TensorGroup { count: 1, ..request.tensors };
        let line = explain(&[one], scenario).into_iter().next()?;
        let phase = request.phase.map_or("loading", |phase| phase.label()).to_owned();
        let place = places.iter().copied().find(|place| place.makes(&line, &phase));
        Some(Suspect { line, phase, allocated: request.allocated, agrees, place })
    };
    let mut found: Vec<Suspect> = requests.into_iter().filter_map(suspect).collect();
    let depth = |place: Option<Place>| places.iter().position(|named| Some(*named) == place);
    found.sort_by_key(|suspect| depth(suspect.place).unwrap_or(places.len()));
    found.truncate(SUSPECTS);
    Ok(found)
}

/// All events of a scenario's run.
pub(super) fn recorded(scenario: &Scenario) -> Result<Recording, Issue> {
    Recording::of(&*scenario.architecture()?, scenario, &scenario.gpu()?)
}
