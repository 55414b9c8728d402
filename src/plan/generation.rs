//! What a run computes while it generates: the prompts at once, then a pass for every further token, which waits for the one before.

use crate::estimate::estimate;
use crate::hardware::Gpu;
use crate::memory::{Phase, Stage};
use crate::scenario::{Scenario, Task};
use crate::work::Work;

/// Passes that stand for all after the prompt's, evenly spread: each has longer keys and values than the one before.
const PASSES: u64 = 16;

/// How fast a program starts the operations of `generate`, which is what a GPU waits for where few sequences are generated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Starts {
    /// Seconds of an operation.
    pub seconds: f64,
    /// Between which multiples of that it lies.
    pub range: (f64, f64),
    /// Whose runs that was measured in.
    pub whose: &'static str,
}

/// Servers of the A100: Qwen2.5-0.5B and 7B with a prompt of one token.
const AMPERE: Starts =
    Starts { seconds: 19.4e-6, range: (0.75, 1.25), whose: "2 runs of generate on an A100 (Qwen2.5)" };

/// Servers of Hopper's cards, whose processors are newer: Qwen3-0.6B and 8B with a prompt of one token.
const HOPPER: Starts =
    Starts { seconds: 10.4e-6, range: (0.75, 1.25), whose: "2 runs of generate on an H20 (Qwen3)" };

impl Starts {
    /// Those of a machine with such cards.
    pub fn of(gpu: &Gpu) -> Starts {
        match gpu.capability.map(|capability| (capability.major, capability.minor)) {
            Some((8, 0)) => AMPERE,
            Some((9, 0)) => HOPPER,
            Some(_) | None => Starts::between(HOPPER, AMPERE),
        }
    }

    /// Any other machine: the middle of both, and from the faster to the slower, each with its own range.
    fn between(faster: Starts, slower: Starts) -> Starts {
        let seconds = (faster.seconds * slower.seconds).sqrt();
        Starts {
            seconds,
            range: (faster.seconds * faster.range.0 / seconds, slower.seconds * slower.range.1 / seconds),
            whose: "4 runs of generate on an A100 and an H20 (Qwen2.5 and Qwen3), between which this machine may lie",
        }
    }
}

/// What a run computes, in stretches that follow each other.
#[derive(Debug, Default)]
pub(super) struct Stretches {
    /// All but what generates.
    pub trains: Work,
    /// The prompts.
    pub prompts: Work,
    /// Passes after the prompts', each on behalf of as many.
    pub passes: Vec<Work>,
    /// Of how many.
    pub each: f64,
}

impl Stretches {
    /// Those of a scenario whose phases computed so much.
    pub fn of(scenario: &Scenario, phases: &[(Phase, Work)]) -> Stretches {
        let mut stretches = Stretches::default();
        let mut last = Work::default();
        for (phase, work) in phases {
            match phase.stage {
                Stage::Prefill => stretches.prompts = stretches.prompts.and(*work),
                Stage::Decode => last = last.and(*work),
                _ => stretches.trains = stretches.trains.and(*work),
            }
        }
        // the last of the new tokens is not read
        let passes = new_tokens(scenario).saturating_sub(1);
        if last != Work::default() && passes > 0 {
            let (first, last) = ends(scenario, last, passes);
            let between = |place: u64| {
                let place = 2 * place + 1;
                first.times(2 * PASSES - place).and(last.times(place)).of_more(2 * PASSES, 1)
            };
            stretches.passes = (0..PASSES).map(between).collect();
            stretches.each = passes as f64 / PASSES as f64;
        }
        stretches
    }
}

/// How many tokens each sequence is given by `generate`.
pub(super) fn new_tokens(scenario: &Scenario) -> u64 {
    let prompt = scenario.answers.prompt.min(scenario.sequence.saturating_sub(1));
    match scenario.task {
        Task::Generate => scenario.generation.new_tokens,
        _ if scenario.generates_itself() => scenario.sequence.saturating_sub(prompt),
        _ => 0,
    }
}

/// The first and the last of the passes after the prompt's, of which the step ran the first and the last two, or all of fewer.
fn ends(scenario: &Scenario, run: Work, passes: u64) -> (Work, Work) {
    let mean = run.of_more(passes.min(3), 1);
    if passes < 3 {
        return (mean, mean);
    }
    let mut short = scenario.clone();
    short.generation.new_tokens = 2;
    if scenario.task != Task::Generate {
        short.sequence = scenario.answers.prompt.min(scenario.sequence.saturating_sub(1)).saturating_add(2);
    }
    let decodes = |(phase, work): &(Phase, Work)| (phase.stage == Stage::Decode).then_some(*work);
    let first = estimate(&short).memory.and_then(|memory| memory.work.iter().find_map(decodes));
    first.map_or((mean, mean), |first| (first, run.since(first).of_more(2, 1)))
}
