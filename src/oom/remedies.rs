//! What helps after a message.

use super::Decoded;
use super::card::is_shared;
use super::finding::Finding;
use super::joining::Joining;
use super::suspect::recorded;
use crate::hardware::Vendor;
use crate::issue::Issue;
use crate::plan::{self, Answer, Change, Cost, Lever, Verdict, levers};
use crate::scenario::Allocator;

/// What helps: letting the allocator join its pieces, where the memory was there in pieces, last where that is not enough; the
/// changes with which a decoded scenario fits, where it does not; then those after which none of its tensors asks for as much as
/// the message says. Nothing helps a scenario that fits and is another run. Where the message is of another card, that card is one
/// of the changes.
///
/// # Errors
/// As [`levers`].
pub fn remedies(decoded: &Decoded) -> Result<Vec<Lever>, Issue> {
    if !decoded.message.is_of_step() && !is_shared(&decoded.message, &decoded.scenario) {
        return Ok(Vec::new());
    }
    let found = levers(&decoded.scenario)?;
    let joined = joined(decoded).filter(|_| decoded.is_of_the_run());
    let is_full = decoded.findings.iter().any(is_in_few_pieces) && joined.is_some();
    if found.verdict.holds() && !is_full {
        // what fits as it is and is another run needs no help
        return Ok(joined.into_iter().collect());
    }
    // what the scenario does not ask for cannot be removed from it
    let asked = decoded.message.sought().filter(|_| !decoded.suspects.is_empty());
    let asks_for_less = |lever: &Lever| {
        let largest = || recorded(&lever.scenario).map(|recording| recording.largest_request().0);
        asked.as_ref().is_some_and(|asked| largest().is_ok_and(|largest| largest < *asked.start()))
    };
    let all = found.single.into_iter().chain(found.together);
    let (mut fitting, others): (Vec<Lever>, Vec<Lever>) = all.partition(Lever::holds);
    fitting.extend(others.into_iter().filter(asks_for_less));
    if let Some(joined) = joined {
        fitting.retain(|lever| lever.scenario != joined.scenario);
        let at = if joined.verdict == Verdict::Over || is_full { fitting.len() } else { 0 };
        fitting.insert(at, joined);
    }
    if decoded.findings.iter().any(is_of_windows) {
        fitting.retain(|lever| lever.scenario.allocator != Allocator::Expandable);
    }
    fitting.iter_mut().for_each(|lever| lever.changes.extend(decoded.card.iter().cloned()));
    Ok(fitting)
}

/// Whether it is of Windows, where no allocator joins pieces.
fn is_of_windows(finding: &Finding) -> bool {
    matches!(
        finding,
        Finding::LentByWindows
            | Finding::Fragmented { joining: Joining::Absent, .. }
            | Finding::Pieces { joining: Joining::Absent, .. }
            | Finding::Unused { joining: Joining::Absent, .. }
    )
}

/// Whether it says that the memory was there in pieces which the allocator can join and does not.
pub(super) fn is_in_pieces(finding: &Finding) -> bool {
    matches!(finding, Finding::Fragmented { joining: Joining::Off, .. })
}

/// The same of pieces that are not the cause.
fn is_in_few_pieces(finding: &Finding) -> bool {
    matches!(finding, Finding::Pieces { joining: Joining::Off, .. })
}

/// The scenario with an allocator that joins its pieces, where the message says that they would have been enough.
fn joined(decoded: &Decoded) -> Option<Lever> {
    let is_cudas = decoded.scenario.gpu().is_ok_and(|gpu| gpu.vendor == Vendor::Nvidia);
    let are_pieces = |finding: &Finding| is_in_pieces(finding) || is_in_few_pieces(finding);
    (is_cudas && decoded.findings.iter().any(are_pieces)).then_some(())?;
    let scenario = plan::joined(&decoded.scenario);
    let answer = Answer::of(scenario.clone());
    Some(Lever {
        changes: Change::between(&decoded.scenario, &scenario, "allocator"),
        cost: Cost::Nothing,
        slower: None,
        needed: answer.fit()?.needed,
        on_host: answer.on_host(),
        verdict: answer.verdict()?,
        scenario: scenario.into(),
    })
}
