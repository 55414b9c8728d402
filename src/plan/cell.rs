//! A cell of the table of what can be trained: the most that fits of one model by one method, under which engine.

use serde::{Deserialize, Serialize};

use super::answer::Answer;
use super::layouts::{Divisions, name};
use super::on_card::less_doubt;
use super::solve::{Largest, Most, grain_of_length, most_batch, most_length, most_rank, runs, shortest};
use super::verdict::Verdict;
use crate::hardware::Gpu;
use crate::issue::{Field, Issue, Severity};
use crate::model::Architecture;
use crate::scenario::choices::Choice;
use crate::scenario::{Cluster, CpuOffload, Method, Scenario, Sharding, Stack, Task};
use crate::step;
use crate::units::Bytes;

/// What a cell says of what fits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
pub enum Measure {
    /// The largest micro-batch of sequences as long as the scenario's.
    #[default]
    Batch,
    /// The longest sequence, one at a time.
    Length,
    /// The largest rank of adapters, with one sequence at a time.
    Rank,
}

/// One cell of the table.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub enum FitCell {
    /// It runs.
    Fits {
        /// Sequences at once: the largest micro-batch, or the least that the trainer takes where something else is asked for.
        batch: u64,
        /// The verdict on it: it fits, or closely.
        verdict: Verdict,
        /// What it needs.
        needed: Bytes,
        /// The scenario with that batch, that length and that rank, and with expandable segments if it takes them: what a click opens.
        scenario: Box<Scenario>,
    },
    /// Not even one sequence fits.
    TooLarge {
        /// What one sequence needs.
        needed: Bytes,
    },
    /// There is no answer, and why.
    Unknown(Issue),
}

impl FitCell {
    /// How several GPUs share the run that fits, in words: `FSDP2`, `tensor 8`.
    pub fn layout(&self) -> Option<String> {
        let FitCell::Fits { scenario, .. } = self else { return None };
        scenario.cluster.is_many().then(|| name(scenario))
    }

    /// Whether it fits closely, with less to spare than the estimate may be off by: then nothing fits beyond doubt.
    pub fn is_close(&self) -> bool {
        matches!(self, FitCell::Fits { verdict, .. } if !verdict.holds())
    }

    /// Whether it fits beyond doubt.
    pub fn is_sure(&self) -> bool {
        matches!(self, FitCell::Fits { verdict, .. } if verdict.holds())
    }

    /// The least that would be more than what fits beyond doubt, of what another engine divides evenly.
    fn more(&self, measure: Measure, engine: &Scenario) -> u64 {
        let more = match self {
            FitCell::Fits { scenario, .. } if self.is_sure() => measure.number(scenario).saturating_add(1),
            FitCell::Fits { .. } | FitCell::TooLarge { .. } | FitCell::Unknown(_) => {
                return measure.number(&measure.least(engine));
            }
        };
        match measure {
            Measure::Length => more.next_multiple_of(grain_of_length(engine)),
            Measure::Batch | Measure::Rank => more,
        }
    }

    /// This one, or another engine's, which holds more.
    fn or(self, other: FitCell, measure: Measure) -> FitCell {
        let held = |cell: &FitCell| match cell {
            FitCell::Fits { scenario, .. } => Some((cell.is_sure(), measure.number(scenario))),
            FitCell::TooLarge { .. } | FitCell::Unknown(_) => None,
        };
        match (self, other) {
            (own, other) if held(&other) > held(&own) => other,
            (FitCell::TooLarge { needed: own }, FitCell::TooLarge { needed }) => {
                FitCell::TooLarge { needed: own.min(needed) }
            }
            // what another engine needs is no answer for one that has none
            (own, _) => own,
        }
    }
}

impl Measure {
    /// All, in the order in which they are offered.
    pub const ALL: [Measure; 3] = [Measure::Batch, Measure::Length, Measure::Rank];

    /// What they are called, in the same order.
    pub const CHOICES: [Choice; 3] = [
        Choice {
            slug: "batch",
            label: "Largest micro-batch",
            help: "Of sequences as long as the scenario's.",
        },
        Choice {
            slug: "length",
            label: "Longest sequence",
            help: "In a micro-batch of 1, up to as many tokens as the model has positions.",
        },
        Choice {
            slug: "rank",
            label: "Largest rank",
            help: "Of adapters, in a micro-batch of 1, up to where more adds nothing.",
        },
    ];

    /// The scenario with so much of it.
    fn of(self, scenario: &Scenario, number: u64) -> Scenario {
        let mut other = scenario.clone();
        match self {
            Measure::Batch => other.batch = number,
            Measure::Length => other.sequence = number,
            Measure::Rank => other.lora.rank = number,
        }
        other
    }

    /// How much of it a scenario has.
    fn number(self, scenario: &Scenario) -> u64 {
        match self {
            Measure::Batch => scenario.batch,
            Measure::Length => scenario.sequence,
            Measure::Rank => scenario.lora.rank,
        }
    }

    /// The scenario with as little of it as there can be.
    pub(super) fn least(self, scenario: &Scenario) -> Scenario {
        let number = match self {
            Measure::Batch => scenario.least_batch(),
            Measure::Length => shortest(scenario),
            Measure::Rank => 1,
        };
        self.of(scenario, number)
    }

    /// The methods of a task that it can be asked of.
    pub fn methods(self, task: Task) -> impl Iterator<Item = Method> {
        let asked = move |method: &Method| self != Measure::Rank || method.has_adapters();
        task.methods().iter().copied().filter(asked)
    }

    /// The one that links call so.
    pub fn from_slug(slug: &str) -> Option<Measure> {
        let at = Measure::CHOICES.iter().position(|choice| choice.slug == slug)?;
        Measure::ALL.get(at).copied()
    }
}

/// The cell of a scenario under its engine, or on several GPUs under another that holds more.
pub(super) fn held(architecture: &Architecture, gpu: &Gpu, scenario: Scenario, measure: Measure) -> FitCell {
    let under = |scenario| cell(architecture, gpu, scenario, measure).unwrap_or_else(FitCell::Unknown);
    let mut best = under(scenario.clone());
    if !scenario.cluster.is_many() {
        return best;
    }
    // most are dismissed by their tensors
    let with = |other: &Scenario, number: u64| Answer::of_tensors(measure.of(other, number)).fit();
    let others = other_engines(&scenario).into_iter().filter(|other| stopped(other).is_none());
    let mut others: Vec<_> =
        others.filter_map(|other| Some((with(&other, best.more(measure, &other))?.needed, other))).collect();
    // what needs least holds most: it is tried first
    others.sort_by_key(|(needed, _)| *needed);
    for (_, other) in others {
        let more = best.more(measure, &other);
        // as many as it has positions or directions are all that is looked for
        let directions = || step::largest_rank(architecture, &scenario, gpu);
        let has_all = measure == Measure::Rank && directions().is_ok_and(|most| more > most);
        if more > 1 && (has_all || stopped(&measure.of(&other, more)).is_some()) {
            continue;
        }
        let Some(fit) = with(&other, more) else { continue };
        let found = if fit.fits() { under(other) } else { FitCell::TooLarge { needed: fit.needed } };
        best = best.or(found, measure);
    }
    best
}

/// Whether a scenario runs on a card as it is, or on several GPUs under another engine, of which it may need another least.
///
/// # Errors
/// Why it has no answer, where no engine has one.
pub(super) fn holds(
    architecture: &Architecture,
    gpu: &Gpu,
    scenario: &Scenario,
    measure: Measure,
) -> Result<bool, Issue> {
    let holds = |engine: &Scenario| match stopped(engine) {
        Some(issue) => Err(issue),
        None => runs(architecture, engine, gpu).map(|largest| largest.is_some()),
    };
    let mut found = holds(scenario);
    if scenario.cluster.is_many() {
        for other in other_engines(scenario) {
            if found == Ok(true) {
                break;
            }
            found = holds(&measure.least(&other)).or(found);
        }
    }
    found
}

/// The scenario under other engines of its GPUs: whole copies, which need the most and send the least, then others.
fn other_engines(scenario: &Scenario) -> Vec<Scenario> {
    let mut copies = scenario.clone();
    let whole = Cluster { sharding: Sharding::Ddp, cpu: CpuOffload::Off, ..scenario.cluster };
    copies.change(|copies| copies.cluster = whole);
    let has_copies = scenario.stack != Stack::Megatron && scenario.divided().gpus() <= 1;
    let divisions = Divisions::of(scenario).filter(|_| scenario.cluster.is_many());
    let others = divisions.map_or_else(Vec::new, |divisions| divisions.all(scenario.cluster.gpus));
    let all = Some(copies).filter(|_| has_copies).into_iter().chain(others);
    all.filter(|other| other.cluster != scenario.cluster).collect()
}

/// Why a scenario has no answer, before anything of it is run.
fn stopped(scenario: &Scenario) -> Option<Issue> {
    let error = scenario.validate().into_iter().find(|issue| issue.severity == Severity::Error);
    error.or_else(|| scenario.stop())
}

/// The most that fits beyond doubt, or where nothing does the most that fits closely.
fn cell(
    architecture: &Architecture,
    gpu: &Gpu,
    scenario: Scenario,
    measure: Measure,
) -> Result<FitCell, Issue> {
    if let Some(issue) = stopped(&scenario) {
        return Err(issue);
    }
    let most = |gpu: &Gpu| match measure {
        Measure::Batch => most_batch(architecture, &scenario, gpu),
        Measure::Length => most_length(architecture, &scenario, gpu),
        Measure::Rank => match step::largest_rank(architecture, &scenario, gpu)? {
            0 => Err(Issue::error(Field::LoraRank, "there are no adapters that have a rank")),
            cap => most_rank(architecture, &scenario, gpu, cap, 1),
        },
    };
    let surely = most(&less_doubt(architecture, &scenario, gpu.clone()))?;
    let found = if let Most::TooLarge { .. } = surely { most(gpu)? } else { surely };
    Ok(match found {
        Most::Runs(Largest { number, allocator }) => {
            let answer = Answer::of(Scenario { allocator, ..measure.of(&scenario, number) });
            let verdict = answer.verdict().unwrap_or(Verdict::Close);
            let needed = answer.fit().map_or(gpu.memory, |fit| fit.needed);
            FitCell::Fits { batch: answer.scenario.batch, verdict, needed, scenario: answer.scenario.into() }
        }
        Most::TooLarge { needed } => FitCell::TooLarge { needed },
    })
}
