//! What texts of different lengths need: how long micro-batches are, which of them run out of memory, and how far reserved memory
//! grows in one order of the texts or another.

use serde::{Deserialize, Serialize};

use super::answer::Answer;
use super::batches::{Reached, reach};
use super::on_card::{OnCard, Outcome};
use super::solve::longest_sequence;
use super::verdict::Verdict;
use crate::accuracy;
use crate::issue::{Field, Issue};
use crate::scenario::{Lengths, Scenario, Texts};
use crate::step::Recording;
use crate::units::{Bytes, grouped};

/// What comes of the texts of a data set.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Outlook {
    /// Texts that are cut to the sequence length.
    pub cut: u64,
    /// The part of all tokens that pads, where each micro-batch is padded to its longest text.
    pub padding: f64,
    /// Micro-batches from the usual to the longest, each of another length.
    pub micro_batches: Vec<MicroBatch>,
    /// Where memory ends; none where the longest micro-batch runs.
    pub limit: Option<Limit>,
}

/// A micro-batch by its length.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct MicroBatch {
    /// The part of all micro-batches that are no longer.
    pub share: f64,
    /// Its length in tokens.
    pub length: u64,
    /// What a run of nothing but such ones needs.
    pub needed: Bytes,
    /// The verdict on it.
    pub verdict: Verdict,
}

/// The length beyond which a micro-batch runs out of memory.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Limit {
    /// The longest that runs; 0 where none does.
    pub longest: u64,
    /// Texts that are longer.
    pub texts: u64,
    /// The part of the micro-batches that are longer.
    pub per_batch: f64,
    /// The micro-batch by which half of all runs have met one.
    pub half: u64,
    /// The scenario with texts cut to that length, and with expandable segments if it takes them.
    pub scenario: Box<Scenario>,
    /// The scenario in smaller micro-batches, in which every text runs, and as many more of them; none where not even one does.
    pub smaller: Option<Box<Scenario>>,
}

impl Outlook {
    /// What follows, in sentences.
    pub fn sentences(&self, scenario: &Scenario) -> Vec<String> {
        let Some(limit) = &self.limit else {
            return vec![
                "The longest micro-batch runs: no order of the texts needs more tensors.".to_owned(),
            ];
        };
        let Limit { longest, texts, per_batch, half, .. } = limit;
        let mut said = Vec::new();
        if *longest == 0 {
            said.push("Not even the shortest micro-batch runs.".to_owned());
        } else {
            let length = grouped(*longest);
            said.push(format!(
                "A micro-batch of more than {length} tokens a sequence runs out of memory: {:.2} % of them, for {} of the texts. Half of all \
                 runs have met one by micro-batch {}.",
                per_batch * 100.0,
                grouped(*texts),
                grouped(*half)
            ));
            said.push(format!(
                "Cut to {length} tokens in place of {}, every text runs.",
                grouped(scenario.sequence)
            ));
        }
        if let Some(smaller) = &limit.smaller {
            let Scenario { batch, accumulation, .. } = **smaller;
            let (batch, passes) = (grouped(batch), grouped(accumulation));
            said.push(format!(
                "In micro-batches of {batch} with {passes} passes a step, every text runs as it is."
            ));
        }
        said
    }
}

impl Order {
    /// What several orders come to; none of none.
    pub fn sentence(orders: &[Order]) -> Option<String> {
        let reserved = || orders.iter().map(|order| order.reserved);
        let (least, most) = reserved().min().zip(reserved().max())?;
        let failing = orders.iter().filter(|order| order.outcome != Outcome::Runs).count();
        let batches = grouped(orders.iter().map(|order| order.micro_batches).min().unwrap_or_default());
        let of = orders.len();
        let fate = match failing {
            0 => format!("{of} of {of} orders of the texts get through their first {batches} micro-batches"),
            _ => format!(
                "{failing} of {of} orders of the texts run out of memory in their first {batches} micro-batches"
            ),
        };
        let reserved = if least == most { most.to_string() } else { format!("{least} to {most}") };
        Some(format!("{fate}; PyTorch reserves {reserved}."))
    }
}

/// What one order of the texts does to the allocator.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub struct Order {
    /// Micro-batches that were run.
    pub micro_batches: u64,
    /// Whether it gets through.
    pub outcome: Outcome,
    /// The highest `memory_reserved()`; up to the failure where it fails.
    pub reserved: Bytes,
}

/// Parts of the micro-batches that are looked at.
const SHARES: [f64; 4] = [0.5, 0.9, 0.99, 1.0];
/// The longest run that is thought of.
const MOST_BATCHES: f64 = 1e15;

/// What texts of those lengths need, each micro-batch padded to its longest and none longer than the sequence length.
///
/// # Errors
/// An [`Issue`] where the scenario has no answer, or lengths make no difference to it.
pub fn outlook(scenario: &Scenario, texts: &Texts) -> Result<Outlook, Issue> {
    let asked = scenario;
    let scenario = equal(asked)?;
    let batch = scenario.batch;
    let kept = texts.cut(scenario.sequence);
    let look = |share: f64| {
        let length = kept.of_batches(share, batch);
        let answer = Answer::of(Scenario { sequence: length, ..scenario.clone() });
        match (answer.fit(), answer.verdict()) {
            (Some(fit), Some(verdict)) => Ok(MicroBatch { share, length, needed: fit.needed, verdict }),
            _ => Err(answer.refusal()),
        }
    };
    let mut micro_batches: Vec<MicroBatch> = Vec::new();
    for share in SHARES {
        match micro_batches.last_mut() {
            Some(before) if before.length == kept.of_batches(share, batch) => before.share = share,
            Some(_) | None => micro_batches.push(look(share)?),
        }
    }
    let found = longest_sequence(&*scenario.architecture()?, &scenario, &scenario.gpu()?)?;
    let (longest, allocator) = found.map_or((0, scenario.allocator), |found| (found.number, found.allocator));
    let is_short = longest < kept.longest();
    let smaller = if is_short { in_smaller(asked, &scenario, kept.longest())? } else { None };
    let limit = is_short.then(|| {
        let per_batch = 1.0 - kept.share_within(longest, batch);
        let half = (0.5_f64.ln() / (1.0 - per_batch).max(f64::MIN_POSITIVE).ln()).ceil();
        Limit {
            longest,
            texts: kept.longer_than(longest),
            per_batch,
            half: half.clamp(1.0, MOST_BATCHES) as u64,
            scenario: Box::new(Scenario { sequence: longest.max(1), allocator, ..asked.clone() }),
            smaller,
        }
    });
    let (mean, _) = kept.spread();
    Ok(Outlook {
        cut: texts.longer_than(scenario.sequence),
        padding: (1.0 - mean / mean_of_batches(&kept, batch)).max(0.0),
        micro_batches,
        limit,
    })
}

/// What was asked in the largest micro-batch, below its own, in which texts of that length run.
fn in_smaller(asked: &Scenario, equal: &Scenario, longest: u64) -> Result<Option<Box<Scenario>>, Issue> {
    let whole = Scenario { sequence: longest, ..equal.clone() };
    let sequences = equal.batch.saturating_mul(equal.accumulation);
    let reached = reach(&whole, sequences)?.filter(|reached| reached.batch < equal.batch);
    Ok(reached.map(|Reached { batch, accumulation, scenario, .. }| {
        let allocator = scenario.allocator;
        Box::new(Scenario { batch, accumulation, allocator, ..asked.clone() })
    }))
}

/// How far reserved memory grows, and whether the run gets through, in an order of that number.
///
/// # Errors
/// As [`outlook`].
pub fn order(scenario: &Scenario, texts: &Texts, number: u64) -> Result<Order, Issue> {
    let scenario = equal(scenario)?;
    let kept = texts.cut(scenario.sequence);
    let varying = kept.varying();
    let scenario = Scenario { lengths: varying, sequence: kept.longest(), ..scenario };
    let (architecture, gpu) = (scenario.architecture()?, scenario.gpu()?);
    let drawn = std::cell::Cell::new(0);
    let draw = |count: usize| {
        drawn.set(count as u64);
        kept.draw(scenario.batch, count, number)
    };
    let recording = Recording::of_lengths(&architecture, &scenario, &gpu, &draw)?;
    let doubt = accuracy::band(&architecture, &scenario).doubt();
    let on_card = OnCard::of(&recording, scenario.allocator, &gpu, doubt);
    Ok(Order { micro_batches: drawn.get(), outcome: on_card.outcome, reserved: on_card.reserved })
}

/// The scenario with micro-batches of one length, where lengths make a difference.
fn equal(scenario: &Scenario) -> Result<Scenario, Issue> {
    if scenario.mask.is_packed()
        || !scenario.task.trains()
        || scenario.task.has_answers()
        || scenario.task.has_pairs()
    {
        let message = "the lengths of texts are followed of fine-tuning with a text in each row";
        let fix = "choose fine-tuning, and a mask that is not packed";
        return Err(Issue::error(Field::Lengths, message).with_fix(fix));
    }
    if scenario.cluster.has_engine() {
        let message = "the lengths of texts are followed on one GPU, without DeepSpeed";
        return Err(Issue::error(Field::Gpus, message).with_fix("choose one GPU"));
    }
    Ok(Scenario { lengths: Lengths::Equal, ..scenario.clone() })
}

/// The mean length of micro-batches.
fn mean_of_batches(texts: &Texts, batch: u64) -> f64 {
    // over as many equally large parts of them
    const PARTS: u64 = 256;
    let part = |number: u64| texts.of_batches((number as f64 + 0.5) / PARTS as f64, batch) as f64;
    (0..PARTS).map(part).sum::<f64>() / PARTS as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{GpuChoice, Mask};

    fn texts(text: &str) -> Texts {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn the_rare_long_text_is_what_runs_out() {
        let scenario = Scenario { batch: 4, sequence: 4096, ..Scenario::default() };
        let texts = texts("400x9990 9000x10");
        let found = outlook(&scenario, &texts).expect("an answer");
        assert_eq!(found.cut, 10);
        let lengths: Vec<u64> = found.micro_batches.iter().map(|batch| batch.length).collect();
        assert_eq!(lengths, [400, 4096]);
        assert_eq!(found.micro_batches[0].share, 0.99);
        assert_eq!(found.micro_batches[0].verdict, Verdict::Fits);
        assert_eq!(found.micro_batches[1].verdict, Verdict::Over);
        let limit = found.limit.expect("the longest does not fit");
        assert!((400..4096).contains(&limit.longest) && limit.texts == 10, "{limit:?}");
        assert!((limit.per_batch - (1.0 - 0.999_f64.powi(4))).abs() < 1e-12, "{}", limit.per_batch);
        assert_eq!(limit.half, 174);
        let cut = Answer::of(*limit.scenario);
        assert_eq!(cut.runs(), Some(true), "cut to what runs");
        let smaller = *limit.smaller.expect("one text of the longest runs");
        assert!(smaller.batch < 4 && smaller.batch * smaller.accumulation >= 4, "{smaller:?}");
        let whole = Answer::of(Scenario { sequence: 4096, ..smaller });
        assert_eq!(whole.runs(), Some(true), "in micro-batches that run");
    }

    #[test]
    fn orders_differ_and_equal_texts_do_not() {
        let model = crate::scenario::ModelChoice::Catalogue("HuggingFaceTB/SmolLM-135M".into());
        let scenario = Scenario { batch: 2, sequence: 2048, model, ..Scenario::default() };
        let varied = texts("100x30 300x30 700x20 1500x10 2048x5");
        let reserved = |texts: &Texts, number| order(&scenario, texts, number).expect("an answer").reserved;
        assert_ne!(reserved(&varied, 0), reserved(&varied, 1));
        let same = texts("512x10");
        assert_eq!(reserved(&same, 0), reserved(&same, 1));
        let equal = Answer::of(Scenario { sequence: 512, ..scenario.clone() });
        let on_card = equal.on_card.expect("it is replayed");
        assert_eq!(reserved(&same, 0), on_card.reserved, "as texts of one length");
    }

    /// No sequence is shorter than its pictures: of 448 × 448 pixels Qwen2.5-VL makes 256 tokens with two around them.
    #[test]
    fn texts_with_pictures_are_no_shorter_than_these() {
        let mut scenario = Scenario {
            model: crate::scenario::ModelChoice::Catalogue("Qwen/Qwen2.5-VL-7B-Instruct".into()),
            method: crate::scenario::Method::Lora,
            precision: crate::scenario::Precision::Bf16,
            gpu: GpuChoice::Catalogue("a100-sxm-80gb".into()),
            sequence: 8192,
            batch: 8,
            ..Scenario::default()
        };
        scenario.pictures.count = 1;
        let found = outlook(&scenario, &texts("500x90 8192x10")).expect("an answer");
        let limit = found.limit.expect("eight of the longest do not fit");
        assert!((258..8192).contains(&limit.longest), "{limit:?}");
        scenario.gpu = GpuChoice::Custom(Bytes::gib(17.5));
        let found = outlook(&scenario, &texts("500x90 8192x10")).expect("an answer");
        assert_eq!(found.limit.map(|limit| limit.longest), Some(0));
    }

    #[test]
    fn where_lengths_make_no_difference_that_is_said() {
        let packed = Scenario { mask: Mask::Packed, ..Scenario::default() };
        assert!(outlook(&packed, &texts("5")).is_err_and(|issue| issue.field == Field::Lengths));
        let nowhere = Scenario { gpu: GpuChoice::Catalogue("none".into()), ..Scenario::default() };
        assert!(outlook(&nowhere, &texts("5")).is_err() && order(&nowhere, &texts("5"), 0).is_err());
    }
}
