//! The batch that an optimizer step is to see: the micro-batch that a card holds and the accumulation that reaches it.

use serde::{Deserialize, Serialize};

use super::answer::Answer;
use super::on_card::less_doubt;
use super::solve::{Largest, largest_batch};
use super::verdict::Verdict;
use crate::hardware::Gpu;
use crate::issue::Issue;
use crate::scenario::{GpuChoice, Scenario};
use crate::units::{Bytes, grouped};

/// How a card reaches an effective batch.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[non_exhaustive]
pub struct Reached {
    /// The most sequences of a forward pass that run.
    pub largest: u64,
    /// The micro-batch: the largest that divides what each GPU has to see; where that asks for far more passes than are needed, the
    /// smallest with which the fewest do.
    pub batch: u64,
    /// Passes per optimizer step.
    pub accumulation: u64,
    /// Sequences that a step then sees on all GPUs: the effective batch, or a little more.
    pub effective: u64,
    /// Whether the micro-batch gets through with its accumulation: where not even one sequence does, it does not.
    pub verdict: Verdict,
    /// The scenario.
    pub scenario: Box<Scenario>,
}

/// A card, and how it reaches an effective batch.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[non_exhaustive]
pub struct BatchRow {
    /// The card's slug.
    pub gpu: String,
    /// Its name.
    pub name: String,
    /// What a program can have of it.
    pub memory: Bytes,
    /// How it does; nothing where not even one sequence runs.
    pub reached: Result<Option<Reached>, Issue>,
}

/// The largest micro-batch on the scenario's card and the accumulation with which a step sees `target` sequences on all GPUs;
/// `None` where not even one sequence runs.
///
/// # Errors
/// As [`largest_batch`], and where the run would stop whatever the memory.
///
/// ```
/// use headroom::plan::reach;
/// use headroom::scenario::Scenario;
/// let reached = reach(&Scenario::default(), 32)?.expect("one sequence runs");
/// assert_eq!((reached.batch * reached.accumulation, reached.effective), (32, 32));
/// assert!(reached.batch <= reached.largest);
/// # Ok::<(), headroom::scenario::Issue>(())
/// ```
pub fn reach(scenario: &Scenario, target: u64) -> Result<Option<Reached>, Issue> {
    if let Some(issue) = scenario.stop() {
        return Err(issue);
    }
    let Some(largest) = largest_batch(&*scenario.architecture()?, scenario, &scenario.gpu()?)? else {
        return Ok(None);
    };
    let each = target.max(1).div_ceil(copies(scenario));
    let mut reached = in_passes(scenario, each, &largest);
    // fewer at a time take passes, and while the next one runs the gradients of those before it are there
    let passes = Scenario { accumulation: reached.accumulation.max(2), ..scenario.clone() };
    if !reached.verdict.holds() {
        let (architecture, gpu) = (scenario.architecture()?, scenario.gpu()?);
        let on = |gpu: &Gpu| largest_batch(&architecture, &passes, gpu);
        let fewer = match on(&less_doubt(&architecture, scenario, gpu.clone()))? {
            None => on(&gpu)?,
            sure => sure,
        };
        let fewer = fewer.map(|fewer| in_passes(scenario, each, &fewer));
        if let Some(fewer) = fewer.filter(|fewer| fewer.verdict.holds() || reached.accumulation > 1) {
            reached = fewer;
        }
    }
    Ok(Some(Reached { largest: largest.number, ..reached }))
}

/// How many micro-batches its GPUs run at a time: those that share a model share one.
fn copies(scenario: &Scenario) -> u64 {
    (scenario.cluster.gpus / scenario.divided().gpus().max(1)).max(1)
}

/// An effective batch is reached exactly where that takes no more than so many times the passes that the fewest are: 7 in seven of one
/// sequence where 4 and 3 would do, and not 97 in 97 of one where five of twenty see 100.
const PASSES_FOR_EXACT: u64 = 4;

/// The micro-batch of at most `most` sequences with which `each` are seen in all.
fn micro_batch(each: u64, most: u64) -> u64 {
    let each = each.max(1);
    let most = most.clamp(1, each);
    let fewest = each.div_ceil(most);
    let least = each.div_ceil(fewest.saturating_mul(PASSES_FOR_EXACT)).max(1);
    let divides = (least..=most).rev().find(|batch| each.is_multiple_of(*batch));
    divides.unwrap_or_else(|| each.div_ceil(fewest))
}

/// `each` sequences on each GPU in micro-batches of at most `largest`.
fn in_passes(scenario: &Scenario, each: u64, largest: &Largest) -> Reached {
    let batch = micro_batch(each, largest.number).max(scenario.least_batch());
    let accumulation = each.div_ceil(batch);
    let scenario = Scenario { batch, accumulation, allocator: largest.allocator, ..scenario.clone() };
    let verdict = Answer::of(scenario.clone()).verdict().unwrap_or(Verdict::Close);
    Reached {
        largest: largest.number,
        batch,
        accumulation,
        effective: batch.saturating_mul(accumulation).saturating_mul(copies(&scenario)),
        verdict,
        scenario: Box::new(scenario),
    }
}

/// The micro-batch and how many are run before a step, in one order everywhere: `4 a pass × 8 passes`.
///
/// ```
/// use headroom::{plan::passes_in_words, scenario::Scenario};
/// let scenario = Scenario { batch: 1, accumulation: 8, ..Scenario::default() };
/// assert_eq!(passes_in_words(&scenario), "1 a pass × 8 passes");
/// ```
pub fn passes_in_words(scenario: &Scenario) -> String {
    let passes = if scenario.accumulation == 1 { "pass" } else { "passes" };
    format!("{} a pass × {} {passes}", grouped(scenario.batch), grouped(scenario.accumulation))
}

/// What a run takes whatever its micro-batch, and what sequences add to that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[non_exhaustive]
pub struct PerSequence {
    /// What it takes whatever the batch.
    pub fixed: Bytes,
    /// What each sequence adds, from `from` on.
    pub each: Bytes,
    /// The micro-batch from which on it does. It is more than one where something else is the peak of smaller batches: the optimizer
    /// step, which sequences add nothing to.
    pub from: u64,
    /// Whether a batch is counted in pairs of an answer that is preferred and one that is not.
    pub pairs: bool,
}

impl PerSequence {
    /// Of these micro-batches the step from the one to the other says what a sequence adds: so many that nothing else is the peak.
    const MANY: [u64; 2] = [256, 512];

    /// That of a scenario; none where there is no answer to it.
    pub fn of(scenario: &Scenario) -> Option<PerSequence> {
        let needed = |batch| {
            let answer = Answer::of_tensors(Scenario { batch, ..scenario.clone() });
            Some(answer.estimate.memory.as_ref()?.needed())
        };
        let [few, many] = PerSequence::MANY;
        let (one, most) = (needed(1)?, needed(many)?);
        let each = Bytes(most.saturating_sub(needed(few)?).0 / (many - few));
        let line = most.saturating_sub(Bytes(each.0.saturating_mul(many)));
        // where the line of large batches meets what one sequence takes
        let from = one.saturating_sub(line).0.checked_div(each.0)?.max(1);
        let pairs = scenario.task.has_pairs();
        Some(PerSequence { fixed: if from > 1 { one } else { line }, each, from, pairs })
    }

    /// Both in words, behind what takes them: `60.4 GiB whatever the batch, and about 1.2 GiB for each sequence`.
    pub fn in_words(&self, amount: impl Fn(Bytes) -> String) -> String {
        let (fixed, each) = (amount(self.fixed), amount(self.each));
        let one = if self.pairs { "pair of sequences" } else { "sequence" };
        match self.from {
            1 => format!("{fixed} whatever the batch, and about {each} for each {one}"),
            from => format!(
                "{fixed} up to a micro-batch of about {}, and about {each} for each {one} beyond",
                grouped(from)
            ),
        }
    }
}

/// Cards of all sizes that people buy or rent, for a table of batches.
const CARDS: [&str; 9] = [
    "rtx-3060-12gb",
    "rtx-4060-ti-16gb",
    "rtx-4090",
    "rtx-5090",
    "a100-sxm-40gb",
    "l40s",
    "h100-sxm-80gb",
    "h200-sxm",
    "b200",
];

/// The scenario on its own card, then on some usual ones.
pub fn on_usual_cards(scenario: &Scenario) -> Vec<Scenario> {
    let on = |slug: &str| {
        let mut other = scenario.clone();
        other.change(|other| other.gpu = GpuChoice::Catalogue(slug.to_owned()));
        other
    };
    let own = scenario.gpu().map(|gpu| gpu.slug);
    let others = CARDS.into_iter().filter(|slug| !own.as_ref().is_ok_and(|own| own.as_ref() == *slug));
    std::iter::once(scenario.clone()).chain(others.map(on)).collect()
}

/// How the scenario's card reaches an effective batch of `target` sequences.
///
/// # Errors
/// An [`Issue`] where the scenario names no card that is known.
pub fn batch_row(scenario: &Scenario, target: u64) -> Result<BatchRow, Issue> {
    let gpu = scenario.gpu()?;
    Ok(BatchRow {
        gpu: gpu.slug.to_string(),
        name: gpu.name.to_string(),
        memory: gpu.memory,
        reached: reach(scenario, target),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::gpu;
    use crate::scenario::ModelChoice;

    #[test]
    fn every_card_of_the_table_is_in_the_catalogue() {
        for slug in CARDS {
            assert!(gpu(slug).is_ok(), "{slug}");
        }
    }

    #[test]
    fn gradients_that_wait_for_the_next_pass_are_counted() {
        let reached = |link: &str, target| {
            let scenario = crate::share::decode(link).scenarios.remove(0);
            let reached = reach(&scenario, target).unwrap().expect("one sequence runs");
            assert!(reached.accumulation > 1 && reached.effective >= target, "{link}");
            (reached.batch, reached.verdict)
        };
        for (link, target) in [("method=full", 32), ("method=full&s=512", 80)] {
            let (batch, verdict) = reached(&format!("{link}&gpu=h100-sxm-80gb"), target);
            assert!(verdict.holds() && batch > 1, "{link}");
        }
        // two sequences at a time would not, and one does where the allocator joins its pieces
        let link = "m=Qwen/Qwen3-30B-A3B&method=lora&gpu=h100-sxm-80gb";
        assert_eq!(reached(link, 64), (1, Verdict::Fits));
    }

    #[test]
    fn what_is_close_at_once_is_reached_otherwise() {
        let link = "m=Qwen/Qwen2.5-7B&method=lora&gpu=a100-sxm-80gb";
        let scenario = crate::share::decode(link).scenarios.remove(0);
        let at_once = Answer::of(Scenario { batch: 16, ..scenario.clone() });
        assert_eq!(at_once.verdict(), Some(Verdict::Close));
        let reached = reach(&scenario, 16).unwrap().expect("one sequence runs");
        assert!(reached.verdict.holds() && reached.effective == 16, "{reached:?}");
    }

    #[test]
    fn a_prime_batch_is_reached_with_a_little_more_or_exactly() {
        let scenario = Scenario::default();
        for target in [1, 2, 3, 7, 64, 97] {
            let reached = reach(&scenario, target).unwrap().expect("one sequence runs");
            assert!(reached.batch <= reached.largest && reached.batch <= target, "{reached:?}");
            assert!((target..target + reached.batch).contains(&reached.effective), "{target}: {reached:?}");
        }
    }

    #[test]
    fn an_effective_batch_is_reached_exactly_where_few_passes_do() {
        let passes = |each, most| {
            let batch = micro_batch(each, most);
            (batch, each.div_ceil(batch))
        };
        for (each, most, expected) in [
            (7, 3, (1, 7)),
            (7, 5, (1, 7)),
            (7, 7, (7, 1)),
            (10, 4, (2, 5)),
            (12, 5, (4, 3)),
            (64, 24, (16, 4)),
            (64, 100, (64, 1)),
            (97, 24, (20, 5)),
            (13, 12, (7, 2)),
            (1, 1, (1, 1)),
            (0, 3, (1, 0)),
        ] {
            assert_eq!(passes(each, most), expected, "{each} in at most {most}");
        }
        let scenario = crate::share::decode("m=Qwen/Qwen2.5-0.5B&gpu=rtx-4090").scenarios.remove(0);
        let reached = reach(&scenario, 7).unwrap().expect("one sequence runs");
        assert_eq!((reached.effective, reached.batch * reached.accumulation), (7, 7), "{reached:?}");
    }

    #[test]
    fn the_own_card_comes_first_and_once() {
        let scenario = Scenario { gpu: GpuChoice::Catalogue("rtx-4090".to_owned()), ..Scenario::default() };
        let rows: Vec<_> = on_usual_cards(&scenario).iter().map(|it| batch_row(it, 8).unwrap()).collect();
        assert_eq!((rows.len(), rows[0].gpu.as_str()), (CARDS.len(), "rtx-4090"));
        assert_eq!(rows.iter().filter(|row| row.gpu == "rtx-4090").count(), 1);
        let largest = |row: &BatchRow| row.reached.as_ref().unwrap().as_ref().map(|reached| reached.largest);
        assert!(largest(&rows[0]) > largest(&rows[1]) && largest(&rows[CARDS.len() - 1]) > largest(&rows[0]));
    }

    #[test]
    fn a_run_that_stops_reaches_nothing() {
        let model = ModelChoice::Catalogue("openai-community/gpt2".to_owned());
        assert!(reach(&Scenario { model, sequence: 4096, ..Scenario::default() }, 8).is_err());
    }

    #[test]
    fn a_margin_leaves_less_for_sequences() {
        let largest = |margin: u64| {
            let mut scenario = Scenario::default();
            scenario.reserve.margin = margin;
            reach(&scenario, 1_000).unwrap().map_or(0, |reached| reached.largest)
        };
        assert!(largest(0) > largest(4_000) && largest(4_000) > 0);
        assert_eq!(largest(20_000), 0);
    }

    #[test]
    fn what_is_fixed_and_what_a_sequence_adds_are_what_one_takes() {
        let needed = |scenario: &Scenario, batch| {
            let answer = Answer::of_tensors(Scenario { batch, ..scenario.clone() });
            answer.estimate.memory.expect("an answer").needed().0 as f64
        };
        let scenario = Scenario::default();
        let PerSequence { fixed, each, from, .. } = PerSequence::of(&scenario).expect("an answer");
        assert!(fixed > Bytes::gib(6.0) && each > Bytes::gib(1.0) && from == 1);
        assert!(((fixed + each).0 as f64 / needed(&scenario, 1) - 1.0).abs() < 0.01, "{fixed} and {each}");
        assert!(
            PerSequence { fixed, each, from, pairs: true }
                .in_words(|_| String::new())
                .ends_with("each pair of sequences")
        );
        let dpo = crate::share::decode("task=dpo&m=Qwen/Qwen2.5-0.5B&st=trl&mask=padded").scenarios.remove(0);
        assert!(PerSequence::of(&dpo).is_some_and(|split| split.pairs));
        // all weights: up to some sequences the optimizer step is the peak
        let link = "m=meta-llama/Llama-3.1-8B&method=full&p=bf16&gpu=h100-sxm-80gb";
        let scenario = crate::share::decode(link).scenarios.remove(0);
        let PerSequence { fixed, each, from, .. } = PerSequence::of(&scenario).expect("an answer");
        assert_eq!(fixed.0 as f64, needed(&scenario, 1));
        assert!((4..7).contains(&from), "{from}");
        let nine = fixed.0 as f64 + each.0 as f64 * (9 - from) as f64;
        assert!((nine / needed(&scenario, 9) - 1.0).abs() < 0.05, "{nine} and {}", needed(&scenario, 9));
    }
}
