//! How much of a run is recorded.

use super::forward::{Apart, Model};
use super::iteration::{DIFFERENT, Rounds};
use super::machine::Machine;
use super::ready::{Built, Ready};
use crate::issue::{Field, Issue};
use crate::job::{Act, Batch};
use crate::scenario::{Lengths, Mask, Pictures};
use crate::units::grouped;

/// Iterations that the allocator is given at least: the first, in which the optimizer makes its state, one that finds what
/// that left in the allocator's cache, and one like every later.
const ITERATIONS: usize = 3;

/// Of those, the ones that are run where all lengths are equal and no engine changes after the first iteration: every later
/// one does what the second did.
const DIFFERENT_ITERATIONS: usize = 2;

/// Micro-batches of a step that are recorded where their lengths are equal: after these the blocks go round.
const RECORDED: usize = 4;

/// Forward passes of `generate` whose events are counted: the prompt's and three more.
const PASSES: usize = 4;

/// The most forward passes of `generate` that are recorded after the prompt's. Of more the allocator is given some, evenly
/// spread: every pass makes the cache's tensors longer and so asks for blocks of other sizes.
const MOST_PASSES: usize = 128;

/// The most batches of an evaluation whose logits are joined that are recorded: each time the joined ones ask for a larger block.
const MOST_EVALUATED: usize = 24;

/// Micro-batches that are run where their lengths vary: after some hundred of them the allocator has met most sizes.
const MICRO_BATCHES: usize = 256;

/// About the most events that are recorded.
///
/// An event takes some 40 bytes, and in a browser some 250 ns until the allocator's replica has seen it: this is 130 MB
/// and less than a second. Where all lengths are equal the deepest real models need a tenth of it. Where they vary, a
/// model of 32 layers still gets more than a hundred micro-batches and one of 80 layers some fifty: the rows of varying
/// lengths in `data/measurements/published.json` are predicted no worse than by 256 micro-batches each (all rows of the
/// file differ by 5.9 % in the mean instead of 6.2 %).
const MOST_EVENTS: usize = 3 << 20;

/// Room for the events of a step that runs as few layers as it can.
const EVENTS_OF_FEW: usize = 1 << 12;

/// The lengths of so many micro-batches.
pub(super) type Draw<'d> = &'d dyn Fn(usize) -> Vec<u64>;

/// What is run.
pub(super) struct Schedule {
    /// The micro-batches of varying lengths, the longest halfway; none where all are equal.
    batches: Vec<Batch>,
    /// How many of them are one iteration.
    per_iteration: usize,
    /// Tokens of a sequence of the longest.
    longest: u64,
    /// The most micro-batches of a step that are run where all lengths are equal.
    pub accumulated: u64,
    /// The most passes of `generate` after the prompt's that are run.
    pub passes: u64,
    /// How many iterations are run where all lengths are equal.
    run: usize,
    /// About how many events all of it has.
    pub events: usize,
}

impl Schedule {
    /// As much as there is room for. Where lengths vary, those of so many micro-batches are `drawn`, else as the batch says, its
    /// longest among them.
    ///
    /// # Errors
    /// An [`Issue`] where the model is so deep that not even the fewest iterations can be recorded.
    pub fn of(ready: &Ready<'_>, drawn: Option<Draw<'_>>) -> Result<Schedule, Issue> {
        let each = events(ready)?;
        let affordable = MOST_EVENTS / each.max(1);
        let accumulated = usize::try_from(ready.accumulation()).unwrap_or(usize::MAX).max(1);
        let fewest = ready.scheduled().unwrap_or(accumulated.min(DIFFERENT as usize));
        if affordable < ITERATIONS.saturating_mul(fewest) {
            return Err(too_deep(each));
        }
        let Some((given, whole)) = ready.varying() else {
            let most = (affordable / ITERATIONS).min(RECORDED);
            let passes = if ready.generates() {
                (affordable / DIFFERENT_ITERATIONS * PASSES).clamp(PASSES, MOST_PASSES)
            } else if ready.keeps_logits() {
                affordable.clamp(DIFFERENT as usize, MOST_EVALUATED)
            } else {
                0
            };
            let run = if ready.repeats_itself() { DIFFERENT_ITERATIONS } else { ITERATIONS };
            let times = accumulated.min(most).max(passes.div_ceil(PASSES));
            let events = each.saturating_mul(run * times);
            let (accumulated, passes) = (most as u64, passes as u64);
            return Ok(Schedule { accumulated, passes, events, ..Schedule::equal(run) });
        };
        let most = affordable.min(MICRO_BATCHES);
        let per_iteration = accumulated.min(most / ITERATIONS);
        let count = most / per_iteration * per_iteration;
        let lengths = match drawn {
            Some(draw) => draw(count),
            None => {
                let draw = if given.mask == Mask::PaddingFree { Lengths::draw_sums } else { Lengths::draw };
                let mut lengths = draw(given.lengths, given.sequences, given.length, count - 1);
                lengths.insert(count / 2, whole.length);
                lengths
            }
        };
        let longest = lengths.iter().copied().max().unwrap_or(whole.length);
        let texts = given.sequences.max(1);
        let batch = |length: u64| {
            let lengths = match given.mask {
                // so many texts in a row, however long it is
                Mask::PaddingFree => Lengths::Spread { mean: (length / texts).max(1), deviation: 0 },
                Mask::None | Mask::Ones | Mask::Padded | Mask::Packed => whole.lengths,
            };
            Batch { length, lengths, ..whole }
        };
        let batches = lengths.into_iter().map(batch).collect();
        let events = each.saturating_mul(count);
        Ok(Schedule { batches, per_iteration, longest, events, ..Schedule::equal(0) })
    }

    /// So many iterations of equal lengths.
    pub fn equal(run: usize) -> Schedule {
        Schedule {
            batches: Vec::new(),
            per_iteration: 1,
            longest: 0,
            accumulated: DIFFERENT,
            passes: DIFFERENT,
            run,
            events: 0,
        }
    }

    /// The same with every iteration run.
    pub fn in_full(&self) -> Schedule {
        let Schedule { accumulated, passes, events, .. } = *self;
        Schedule { accumulated, passes, events, ..Schedule::equal(ITERATIONS) }
    }

    /// Whether the last iteration that is run happens once more.
    pub fn repeats(&self) -> bool {
        self.batches.is_empty() && self.run < ITERATIONS
    }

    /// The micro-batches of each iteration that is run; none where they are those of the job.
    pub fn iterations(&self) -> Vec<&[Batch]> {
        if self.batches.is_empty() {
            return vec![&[]; self.run];
        }
        self.batches.chunks(self.per_iteration).collect()
    }

    /// Whether an iteration of those micro-batches is one to show: it has the longest.
    pub fn shows(&self, batches: &[Batch]) -> bool {
        batches.is_empty() || batches.iter().any(|batch| batch.length == self.longest)
    }
}

fn too_deep(events: usize) -> Issue {
    let message = format!(
        "this step has about {} events, too many to be followed one by one: what the allocator reserves is not known",
        grouped(events as u64)
    );
    Issue::error(Field::Model, message)
        .with_fix("the estimate needs none of them; for the rest use fewer layers")
}

/// About how many events an iteration of one micro-batch has: those of the layers that are run on behalf of others, as
/// often as there are others. A tower's layers all run by themselves, so that what pictures add is there once.
fn events(ready: &Ready<'_>) -> Result<usize, Issue> {
    let machine = Machine::new(ready.device, Some(EVENTS_OF_FEW));
    let models = ready.load(&machine, Apart::Few)?;
    let layers = |(built, model): (&Built<'_>, &Model<'_>)| {
        let encoder = built.architecture.encoder.as_ref().map_or(0, |encoder| encoder.order.len());
        (built.architecture.order.len() + encoder).div_ceil(model.layers.len().max(1))
    };
    let others = ready.models.iter().zip(&models).map(layers).max().unwrap_or(1);
    let mut rounds = Rounds::new(&machine, ready, models);
    rounds.prepare();
    rounds.is_last = true;
    let first = ready.round.first().and_then(Act::batch);
    let _ = rounds.round(first.as_slice());
    // what the loop still holds is freed after the run
    let count = || machine.with(|state| state.events());
    let events = count();
    let read_alone = match first.filter(|batch| batch.pictures.count > 0) {
        None => events,
        Some(batch) => {
            let _ = rounds.round(&[Batch { pictures: Pictures::NONE, ..batch }]);
            count() - events
        }
    };
    drop(rounds);
    Ok(events.saturating_add(read_alone.saturating_mul(others.saturating_sub(1))))
}
