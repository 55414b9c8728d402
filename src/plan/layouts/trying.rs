//! A way tried: in the micro-batch with which it is fastest of those that fit.

use super::way::{Way, WayOutcome, is_megatron};
use crate::estimate::estimate_within;
use crate::plan::answer::Answer;
use crate::plan::time::Pace;
use crate::plan::verdict::Verdict;
use crate::scenario::Scenario;
use crate::units::Bytes;

/// Tries a way: in the micro-batch with which it is fastest of those that fit, or in the smallest.
///
/// ```
/// use headroom::plan::{tried, ways};
/// use headroom::scenario::{GpuChoice, Method, Scenario};
/// let mut scenario = Scenario { gpu: GpuChoice::Catalogue("a100-sxm-40gb".into()), ..Scenario::default() };
/// scenario.change(|scenario| scenario.method = Method::Full);
/// let ways: Vec<_> = ways(&scenario, 4).iter().map(tried).collect();
/// assert!(ways.iter().any(|way| way.fits()) && ways.iter().any(|way| !way.fits()));
/// ```
pub fn tried(way: &Scenario) -> Way {
    let speed = |answer: &Answer| answer.pace().map_or(0.0, |pace| pace.tokens_per_second().typical);
    let room = room(way);
    let mut answers: Vec<(f64, Answer)> = Vec::new();
    let mut least = None;
    for scenario in micro_batches(way) {
        match estimate_within(&scenario, room) {
            Ok(estimate) => {
                let answer = Answer { scenario, estimate, on_card: None };
                answers.push((speed(&answer), answer));
            }
            Err(bytes) => least = Some((scenario, bytes)),
        }
    }
    if let (true, Some((scenario, least))) = (answers.is_empty(), least) {
        return Way { scenario: Box::new(scenario), outcome: WayOutcome::TooLarge { least } };
    }
    let mut best: Option<Way> = None;
    // where no speed is known the largest comes first
    while let Some(fastest) = fastest(&answers) {
        let way = of(answers.remove(fastest).1);
        // fewer sequences at a time leave the CPU's memory as it is
        if way.verdict().is_some_and(Verdict::holds) {
            return way;
        }
        if best.as_ref().is_none_or(|best| place(&way) <= place(best)) {
            best = Some(way);
        }
    }
    best.unwrap_or_else(|| of(Answer::of_tensors(way.clone())))
}

/// What a way's weights, gradients and states may take for its step to be run: of Megatron-core's, which are many and of many passes, no
/// more than the card has.
fn room(way: &Scenario) -> Bytes {
    let card = way.gpu().ok().filter(|_| is_megatron(way));
    card.map_or(Bytes(u64::MAX), |gpu| gpu.memory)
}

/// The same with its step run, where that was not worth it for itself.
pub(super) fn followed(way: &Way) -> Way {
    of(Answer::of_tensors((*way.scenario).clone()))
}

/// The place of the first that is as fast as any.
fn fastest(answers: &[(f64, Answer)]) -> Option<usize> {
    let places = 0..answers.len();
    places.rev().max_by(|one, other| answers[*one].0.total_cmp(&answers[*other].0))
}

/// The scenario with its micro-batch halved again and again, and as many more of them.
fn micro_batches(way: &Scenario) -> impl Iterator<Item = Scenario> {
    let sequences = way.batch.saturating_mul(way.accumulation);
    let halved = |batch: &u64| match *batch {
        0 | 1 => None,
        batch if batch.is_multiple_of(2) => Some(batch / 2),
        _ => Some(1),
    };
    let taken = move |batch: &u64| *batch >= way.least_batch();
    std::iter::successors(Some(way.batch), halved).take_while(taken).map(move |batch| Scenario {
        batch,
        accumulation: sequences / batch.max(1),
        ..way.clone()
    })
}

/// An answer by tensors, replayed where these fit.
pub(super) fn of(mut answer: Answer) -> Way {
    if answer.fit().is_some_and(|fit| fit.fits()) {
        answer = answer.without_holes();
    }
    let outcome = match (answer.fit(), answer.verdict()) {
        (Some(fit), Some(verdict)) => {
            let speed = answer.pace().as_ref().map(Pace::tokens_per_second);
            let on_host = answer.on_host_of_each();
            let parameters = answer.scenario.architecture().map_or(0, |model| model.parameters());
            let loading = answer.scenario.loaded_by_each(parameters).unwrap_or_default();
            WayOutcome::Answered { needed: fit.needed, verdict, speed, on_host, loading }
        }
        _ => WayOutcome::Refused(answer.refusal()),
    };
    Way { scenario: Box::new(answer.scenario), outcome }
}

/// What comes first: what fits, what might, what does not, what has no answer.
pub(super) fn place(way: &Way) -> u8 {
    match way.verdict() {
        Some(Verdict::Fits | Verdict::NotFollowed) if way.short_of_ram().is_none() => 0,
        Some(Verdict::Fits | Verdict::NotFollowed | Verdict::Close | Verdict::Tight) => 1,
        Some(Verdict::Over | Verdict::WouldNotRun) => 2,
        None => 3,
    }
}
