//! Solvers: the largest batch, the longest sequence and the largest rank that run.

use super::bracket::{Fitting, Sample, largest, last_that_runs};
use super::fit::fits;
use super::on_card::{Outcome, Replayed, Run};
use crate::allocator::Settings;
use crate::hardware::{Gpu, Vendor};
use crate::issue::Issue;
use crate::model::Architecture;
use crate::scenario::software::Trainer;
use crate::scenario::{Allocator, AttentionKernel, LARGEST, Mask, Scenario, Tuner};
use crate::step::{self, Recording};
use crate::units::Bytes;

/// The largest micro-batch with which the scenario runs on the card, and with which allocator; `None` where not even one
/// sequence does.
///
/// # Errors
/// As [`step::run`].
///
/// ```
/// use headroom::export::Answer;
/// use headroom::{plan, scenario::Scenario};
///
/// let scenario = Scenario::default();
/// let (model, gpu) = (scenario.architecture().unwrap(), scenario.gpu().unwrap());
/// let largest = plan::largest_batch(&model, &scenario, &gpu).unwrap().expect("one sequence runs");
/// let run = |batch| Answer::of(Scenario { batch, allocator: largest.allocator, ..scenario.clone() }).runs();
/// assert_eq!((run(largest.number), run(largest.number + 1)), (Some(true), Some(false)));
/// ```
pub fn largest_batch(
    architecture: &Architecture,
    scenario: &Scenario,
    gpu: &Gpu,
) -> Result<Option<Largest>, Issue> {
    Ok(most_batch(architecture, scenario, gpu)?.some())
}

/// The longest sequence, up to the longest that the model knows positions for, with which the scenario runs on the
/// card, and with which allocator; `None` where not even one token does. Where the scenario generates, its new tokens have
/// positions too. Where attention is given a mask it is the longest of a multiple of 8 tokens: lengths between need a copy of it.
///
/// # Errors
/// As [`step::run`].
pub fn longest_sequence(
    architecture: &Architecture,
    scenario: &Scenario,
    gpu: &Gpu,
) -> Result<Option<Largest>, Issue> {
    longest_of(architecture, scenario, gpu, grain_of_length(scenario))
}

/// [`longest_sequence`] among the multiples of a number of tokens.
pub(super) fn longest_of(
    architecture: &Architecture,
    scenario: &Scenario,
    gpu: &Gpu,
    grain: u64,
) -> Result<Option<Largest>, Issue> {
    match by_length(architecture, scenario, gpu, grain) {
        (_, 0) => Ok(None),
        (solver, cap) => Ok(solver.most(scenario, cap)?.some()),
    }
}

/// Into how many equal parts its GPUs divide a sequence.
pub(super) fn parts_of_sequence(scenario: &Scenario) -> u64 {
    let layout = scenario.cluster.layout;
    match scenario.software().trainer {
        Trainer::Megatron => layout.sequence_parts().max(1),
        // between the modules of a layer each of the GPUs that share it has a part
        Trainer::Torchtitan => layout.tensor.max(1),
        // each has a piece of either end
        Trainer::Loop if scenario.contexts() > 1 => layout.sequence_parts(),
        Trainer::Loop | Trainer::Trl | Trainer::Torchtune => 1,
    }
}

/// Rows of the mask that PyTorch's memory-efficient kernel is given begin at multiples of so many elements: those of another length are
/// copied into longer ones (ATen/native/transformers/attention.cpp `preprocess_mask`).
const OF_A_MASK: u64 = 8;

/// Of how many tokens a sequence is a multiple whose length is looked for: need grows with those, and not from each length to the next
/// where there is a mask; and each of the GPUs that divide it has as many.
pub(super) fn grain_of_length(scenario: &Scenario) -> u64 {
    let tells_texts_apart = matches!(scenario.mask, Mask::Padded | Mask::Packed | Mask::PaddingFree);
    let copies_mask =
        tells_texts_apart && matches!(scenario.attention, AttentionKernel::Sdpa | AttentionKernel::Efficient);
    let of_mask = if copies_mask { OF_A_MASK } else { 1 };
    of_mask.next_multiple_of(parts_of_sequence(scenario))
}

/// The shortest sequence that is looked for: one that has room for its pictures.
pub(super) fn shortest(scenario: &Scenario) -> u64 {
    let grain = grain_of_length(scenario);
    let pictures = scenario.picture_tokens().map_or(0, |tokens| tokens.room);
    pictures.max(1).next_multiple_of(grain)
}

/// What solves for the length of a sequence, which has room for its pictures, and up to which count.
fn by_length<'a>(
    architecture: &'a Architecture,
    scenario: &Scenario,
    gpu: &'a Gpu,
    grain: u64,
) -> (Solver<'a>, u64) {
    let set = |scenario: &mut Scenario, sequence| scenario.sequence = sequence;
    let grain = grain.next_multiple_of(parts_of_sequence(scenario));
    let pictures = scenario.picture_tokens().map_or(0, |tokens| tokens.room);
    let base = pictures.saturating_sub(1) / grain;
    let cap = (cap(architecture, scenario) / grain).saturating_sub(base);
    (Solver { architecture, gpu, set, grain, base }, cap)
}

/// The largest rank of its adapters, up to the one above which none of them gains anything ([`step::largest_rank`]), with which the
/// scenario runs on the card, and with which allocator; of OFT, whose blocks divide a layer's inputs, the largest block that
/// divides the widest layer's. `None` where not even 1 runs or no adapter has a rank.
///
/// # Errors
/// As [`step::run`].
pub fn largest_rank(
    architecture: &Architecture,
    scenario: &Scenario,
    gpu: &Gpu,
) -> Result<Option<Largest>, Issue> {
    rank_of(architecture, scenario, gpu, 1)
}

/// [`largest_rank`], of the multiples of a number where the largest of all does not run.
pub(super) fn rank_of(
    architecture: &Architecture,
    scenario: &Scenario,
    gpu: &Gpu,
    grain: u64,
) -> Result<Option<Largest>, Issue> {
    match step::largest_rank(architecture, scenario, gpu)? {
        0 => Ok(None),
        cap if cap < grain => Ok(most_rank(architecture, scenario, gpu, cap, 1)?.some()),
        cap => Ok(most_rank(architecture, scenario, gpu, cap, grain)?.some()),
    }
}

/// [`largest_rank`] up to so much, of the multiples of a number where the largest of all does not run, and what is needed where there is
/// none.
///
/// Every tensor of an adapter grows with its rank, but LoKr's second matrix: two factors of a rank that is half of its larger side
/// may be larger than the whole matrix that LoKr keeps from there on. So the largest rank is asked about first, which mostly is
/// the answer.
pub(super) fn most_rank(
    architecture: &Architecture,
    scenario: &Scenario,
    gpu: &Gpu,
    cap: u64,
    grain: u64,
) -> Result<Most, Issue> {
    let set = |scenario: &mut Scenario, rank| scenario.lora.rank = rank;
    let every = Solver { architecture, gpu, set, grain: 1, base: 0 };
    if let Some(largest) = every.one(scenario, cap)? {
        return Ok(Most::Runs(largest));
    }
    if scenario.lora.tuner != Tuner::Oft {
        return Solver { grain, ..every }.most(scenario, cap / grain);
    }
    let most = every.most(scenario, cap)?;
    let Most::Runs(Largest { number, .. }) = most else { return Ok(most) };
    let divisor = (1..=number).rev().find(|size| cap.is_multiple_of(*size)).unwrap_or(1);
    Ok(every.one(scenario, divisor)?.map_or(most, Most::Runs))
}

/// [`longest_sequence`], and what the shortest needs where there is none.
pub(super) fn most_length(
    architecture: &Architecture,
    scenario: &Scenario,
    gpu: &Gpu,
) -> Result<Most, Issue> {
    let (solver, cap) = by_length(architecture, scenario, gpu, grain_of_length(scenario));
    solver.most(scenario, cap)
}

/// Whether a scenario runs on the card as it is, and with which allocator.
///
/// # Errors
/// As [`step::run`].
pub(super) fn runs(
    architecture: &Architecture,
    scenario: &Scenario,
    gpu: &Gpu,
) -> Result<Option<Largest>, Issue> {
    // what is far too large is known long before the rest
    let Ok(memory) = step::run_within(architecture, scenario, gpu, gpu.memory)? else { return Ok(None) };
    if !Sample::new(&memory, gpu).fits() {
        return Ok(None);
    }
    let set = |scenario: &mut Scenario, batch| scenario.batch = batch;
    Solver { architecture, gpu, set, grain: scenario.batch, base: 0 }.replayed(&mut scenario.clone(), 1)
}

/// How many tokens the model knows positions for, but for those that come after.
fn cap(architecture: &Architecture, scenario: &Scenario) -> u64 {
    let most = architecture.max_positions.unwrap_or(LARGEST).min(LARGEST);
    most.saturating_sub(scenario.positions_after())
}

/// [`largest_batch`], and what is needed where there is none.
pub(super) fn most_batch(architecture: &Architecture, scenario: &Scenario, gpu: &Gpu) -> Result<Most, Issue> {
    let set = |scenario: &mut Scenario, batch| scenario.batch = batch;
    let base = scenario.least_batch().saturating_sub(1);
    Solver { architecture, gpu, set, grain: 1, base }.most(scenario, LARGEST.saturating_sub(base))
}

/// A number with which a scenario runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Largest {
    /// The number.
    pub number: u64,
    /// The scenario's own allocator, or [`Allocator::Expandable`] where it runs with that only.
    pub allocator: Allocator,
}

/// What a solver found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Most {
    /// The largest number that runs.
    Runs(Largest),
    /// Not even 1 fits.
    TooLarge {
        /// What 1 needs.
        needed: Bytes,
    },
}

impl Most {
    fn some(self) -> Option<Largest> {
        match self {
            Most::Runs(largest) => Some(largest),
            Most::TooLarge { .. } => None,
        }
    }
}

/// Solves for one number of a scenario.
struct Solver<'a> {
    architecture: &'a Architecture,
    gpu: &'a Gpu,
    /// Puts the number into the scenario.
    set: fn(&mut Scenario, u64),
    /// Only multiples of it are asked about: what a solver counts are those.
    grain: u64,
    /// How many of them no number may do without: counts begin above.
    base: u64,
}

impl Solver<'_> {
    fn put(&self, trial: &mut Scenario, count: u64) -> u64 {
        let number = self.base.saturating_add(count).saturating_mul(self.grain);
        (self.set)(trial, number);
        number
    }

    /// So many times the grain above the base, where that runs.
    fn one(&self, scenario: &Scenario, count: u64) -> Result<Option<Largest>, Issue> {
        let mut trial = scenario.clone();
        self.put(&mut trial, count);
        // what is refused for its number alone does not run
        let fits = step::run(self.architecture, &trial, self.gpu);
        if !fits.is_ok_and(|memory| Sample::new(&memory, self.gpu).fits()) {
            return Ok(None);
        }
        self.replayed(&mut trial, count)
    }

    /// A number whose tensors fit, where it runs on the card's allocator; where that is not known, by its blocks, as the verdict is.
    fn replayed(&self, trial: &mut Scenario, count: u64) -> Result<Option<Largest>, Issue> {
        let number = self.put(trial, count);
        if self.gpu.vendor != Vendor::Nvidia {
            let memory = step::run(self.architecture, trial, self.gpu)?;
            let Replayed { memory, .. } = Replayed::of(self.architecture, trial, self.gpu, &memory)?;
            let fits = fits(&memory, self.gpu).fits();
            return Ok(fits.then_some(Largest { number, allocator: trial.allocator }));
        }
        let recording = Recording::of(self.architecture, trial, self.gpu)?;
        let room = self.gpu.memory.saturating_sub(self.gpu.context);
        Ok(match (Run { recording: &recording, allocator: trial.allocator }).outcome(room) {
            Outcome::Runs => Some(Largest { number, allocator: trial.allocator }),
            Outcome::RunsExpandable => Some(Largest { number, allocator: Allocator::Expandable }),
            Outcome::Fails(_) => None,
        })
    }

    /// The largest number up to `cap` times the grain above the base that runs: what the summarised step says fits, confirmed by replaying it.
    fn most(&self, scenario: &Scenario, cap: u64) -> Result<Most, Issue> {
        let mut trial = scenario.clone();
        let fits = largest(cap, |count| {
            self.put(&mut trial, count);
            step::run(self.architecture, &trial, self.gpu).map(|memory| Sample::new(&memory, self.gpu))
        })?;
        let (most, needed) = match fits {
            Fitting::UpTo(most, needed) => (most, needed),
            Fitting::None(needed) => return Ok(Most::TooLarge { needed }),
        };
        match last_that_runs(most, |count| self.replayed(&mut trial, count))? {
            Some(largest) => Ok(Most::Runs(largest)),
            // its tensors fit, but not without any hole
            None => {
                self.put(&mut trial, 1);
                let recording = Recording::of(self.architecture, &trial, self.gpu)?;
                let unlimited = recording.allocate(Settings { expandable_segments: true, capacity: None });
                Ok(Most::TooLarge { needed: needed.max(unlimited.reserved_peak + self.gpu.context) })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Answer, Verdict};
    use crate::share;

    #[test]
    fn what_is_found_for_a_card_that_is_not_followed_is_not_over() {
        for gpu in ["rx-7900-xtx", "apple-m3-max-64gb", "mi300x", "arc-b580"] {
            for method in ["method=full&p=bf16", "method=lora&p=bf16"] {
                let link = format!("m=meta-llama/Llama-3.2-1B&{method}&gpu={gpu}&gc=on");
                let scenario = share::decode(&link).scenarios.remove(0);
                let (architecture, gpu) = (scenario.architecture().unwrap(), scenario.gpu().unwrap());
                let Some(Largest { number, .. }) = longest_sequence(&architecture, &scenario, &gpu).unwrap()
                else {
                    continue;
                };
                let found = Answer::of(Scenario { sequence: number, ..scenario });
                assert_eq!(found.verdict(), Some(Verdict::NotFollowed), "{link} with {number} tokens");
            }
        }
    }

    /// Rows of 16,001 scores are copied into rows of 16,008, and those of 16,008 are not.
    #[test]
    fn under_a_mask_lengths_are_looked_for_that_need_no_copy_of_it() {
        for (mask, multiple) in [("padded", 8), ("none", 1)] {
            let link =
                format!("v=1&task=distil&st=trl&m=Qwen/Qwen2.5-0.5B&method=lora&mask={mask}&gpu=6GiB&s=");
            let at = |length: u64| crate::share::decode(&format!("{link}{length}")).scenarios.remove(0);
            let base = at(64);
            let (model, gpu) = (base.architecture().unwrap(), base.gpu().unwrap());
            let needed = |length: u64| Answer::of(at(length)).fit().map(|fit| fit.needed);
            assert_eq!(needed(16_001) > needed(16_008), multiple > 1, "{mask}");
            let Largest { number, allocator } = longest_sequence(&model, &base, &gpu).unwrap().unwrap();
            let runs = |length| Answer::of(Scenario { allocator, ..at(length) }).runs();
            assert_eq!((number % multiple, runs(number)), (0, Some(true)), "{mask}: {number}");
            assert_eq!(runs(number + multiple), Some(false), "{mask}: {number}");
        }
    }

    #[test]
    fn the_search_begins_with_the_fewest_that_a_trainer_takes() {
        let link = "task=kto&st=trl&mask=padded&b=2&s=1024&m=";
        for (rest, runs) in [("Qwen/Qwen2.5-0.5B&gpu=24GiB", true), ("Qwen/Qwen2.5-7B&gpu=2GiB", false)] {
            let scenario = crate::share::decode(&format!("{link}{rest}")).scenarios.remove(0);
            let (model, gpu) = (scenario.architecture().unwrap(), scenario.gpu().unwrap());
            let most = most_batch(&model, &scenario, &gpu).unwrap();
            assert_eq!(matches!(most, Most::Runs(Largest { number: 2.., .. })), runs, "{most:?}");
            if let Most::TooLarge { needed } = most {
                assert_eq!(needed, step::run(&model, &scenario, &gpu).unwrap().needed());
            }
        }
    }

    #[test]
    fn a_prompt_leaves_positions_to_the_new_tokens() {
        let link = "task=generate&m=openai-community/gpt2&method=full&p=bf16&new=";
        let longest = |new: u64| {
            let scenario = crate::share::decode(&format!("{link}{new}")).scenarios.remove(0);
            assert_eq!(scenario.generation.new_tokens, new);
            let (model, gpu) = (scenario.architecture().unwrap(), scenario.gpu().unwrap());
            longest_sequence(&model, &scenario, &gpu).unwrap().map(|largest| largest.number)
        };
        assert_eq!([1, 500, 1_024, 1_025].map(longest), [Some(1_024), Some(525), Some(1), None]);
    }

    /// The largest rank of a link's adapters, and whether one above another ever needs less.
    #[track_caller]
    fn ranks(link: &str) -> (u64, bool) {
        let mut scenario = crate::share::decode(link).scenarios.remove(0);
        let (model, gpu) = (scenario.architecture().unwrap(), scenario.gpu().unwrap());
        let cap = step::largest_rank(&model, &scenario, &gpu).unwrap();
        let tried = (1..=cap).filter(|rank| *rank < 70 || rank % 37 == 0 || cap - rank < 3);
        let needed = tried.map(|rank| {
            scenario.lora.rank = rank;
            step::run(&model, &scenario, &gpu).unwrap().needed()
        });
        (cap, !needed.is_sorted())
    }

    #[test]
    fn a_higher_rank_needs_no_less_but_where_lokrs_second_matrix_is_whole() {
        for (tuner, smaller) in
            [("lora", 896), ("dora", 896), ("vera", 896), ("loha", 896), ("lokr", 38), ("oft", 4_864)]
        {
            for rest in ["p=amp-bf16&s=512", "p=bf16&s=8&gc=off"] {
                let link = format!("m=Qwen/Qwen2.5-0.5B&method=lora&ad={tuner}&{rest}");
                assert_eq!(ranks(&link), (smaller, tuner == "lokr"), "{link}");
            }
        }
        // 14 heads of 64 in two of keys and values: adapters of k_proj alone are no wider than those
        assert_eq!(ranks("m=Qwen/Qwen2.5-0.5B&method=lora&t=k_proj&p=bf16&s=8").0, 128);
        for none in ["method=full", "method=lora&ad=ia3"] {
            assert_eq!(ranks(&format!("m=Qwen/Qwen2.5-0.5B&p=bf16&{none}")).0, 0, "{none}");
        }
    }

    #[test]
    fn the_largest_rank_runs_and_no_higher_one_does() {
        let base = "m=Qwen/Qwen2.5-0.5B&method=lora&p=amp-bf16&s=512&gpu=";
        for (rest, found) in [
            ("4GiB", Some(false)),
            ("24GiB", Some(true)),
            ("2GiB", None),
            ("24GiB&ad=lokr", Some(true)),
            ("6GiB&ad=oft", Some(false)),
        ] {
            let scenario = crate::share::decode(&format!("{base}{rest}")).scenarios.remove(0);
            let (model, gpu) = (scenario.architecture().unwrap(), scenario.gpu().unwrap());
            let cap = step::largest_rank(&model, &scenario, &gpu).unwrap();
            let largest = largest_rank(&model, &scenario, &gpu).unwrap();
            assert_eq!(largest.map(|largest| largest.number == cap), found, "{rest}: {largest:?} of {cap}");
            let Some(Largest { number, allocator }) = largest else { continue };
            let runs = |rank| {
                let mut own = Scenario { allocator, ..scenario.clone() };
                own.lora.rank = rank;
                crate::plan::Answer::of(own).runs()
            };
            // blocks of OFT that divide the widest layer's 4,864 inputs
            let next = if rest.ends_with("oft") { number * 2 } else { number + 1 };
            assert_eq!(runs(number), Some(true), "{rest}");
            assert!(number == cap || runs(next) == Some(false), "{rest}: {number}");
        }
    }
}
