//! The table that every export is written from.

use super::pace::duration;
use super::{Answer, Counts, needed_in_stages, whose};
use crate::accuracy;
use crate::hardware::{Class, Vendor};
use crate::memory::{Category, Iteration, Memory, Phase, in_order};
use crate::plan::{Level, Margin, OnCard, Outcome, Verdict};
use crate::scenario::Scenario;
use crate::scenario::keys::{Count, Group, Key, ValueKind, keys};
use crate::text::one_line;
use crate::units::{Bytes, grouped};

/// One figure or word of a [`Sheet`].
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Nothing: the answer has no such figure.
    Empty,
    /// Words.
    Text(String),
    /// A number of things.
    Count(u64),
    /// An amount of memory.
    Amount(Bytes),
    /// An amount of memory that a run had come to when it failed.
    UpToFailure(Bytes),
    /// A part of the whole.
    Share {
        /// The part.
        part: Bytes,
        /// The whole.
        whole: Bytes,
    },
    /// The verdict, and what is left of the card or missing.
    Margin(Verdict, Margin),
}

impl Cell {
    /// With units, rounded: for reading.
    pub fn for_people(&self) -> String {
        match self {
            Cell::Empty => String::new(),
            Cell::Text(text) => text.clone(),
            Cell::Count(n) => grouped(*n),
            Cell::Amount(bytes) => bytes.to_string(),
            Cell::UpToFailure(bytes) => format!("{bytes} up to the failure"),
            Cell::Share { part, whole } => format!("{part} ({:.1} %)", part.percent_of(*whole)),
            Cell::Margin(verdict, margin) => {
                let words = verdict.margin(*margin, |bytes| bytes.to_string());
                match (verdict, margin) {
                    (Verdict::WouldNotRun, _) => format!("would not run: {words}"),
                    (_, Margin::Overshoot(bytes)) => format!("too large by {bytes}"),
                    (Verdict::Fits, _) => format!("fits, {words}"),
                    (Verdict::Close, _) => format!("close: {words}"),
                    (Verdict::Tight, _) => format!("tight: {words}; runs with --allocator expandable"),
                    (Verdict::Over, _) => format!("does not fit: {words}"),
                    (Verdict::NotFollowed, _) => format!("not followed on this card: {words}"),
                }
            }
        }
    }

    /// Bytes and counts to the last digit, without units: for computing. What is missing is negative.
    pub fn exact(&self) -> String {
        match self {
            Cell::Empty => String::new(),
            Cell::Text(text) => text.clone(),
            Cell::Count(n) => n.to_string(),
            Cell::Amount(bytes)
            | Cell::UpToFailure(bytes)
            | Cell::Share { part: bytes, .. }
            | Cell::Margin(_, Margin::Headroom(bytes)) => bytes.0.to_string(),
            Cell::Margin(_, Margin::Overshoot(bytes)) => format!("-{}", bytes.0),
        }
    }
}

/// One line: a label and a cell per answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// What it says.
    pub label: String,
    /// One cell per answer.
    pub cells: Vec<Cell>,
}

/// Choices, verdict, parts at the peak, peaks by phase and parameter counts, with one column per answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Sheet {
    /// Groups of lines that belong together.
    pub sections: Vec<Vec<Line>>,
    /// How many answers there are.
    pub columns: usize,
}

impl Sheet {
    /// The sheet of some answers.
    pub fn of(answers: &[Answer]) -> Sheet {
        let builder = Builder { answers };
        let mut sections = vec![
            builder.choices(),
            builder.verdict(),
            builder.stages(),
            builder.parts(),
            builder.phases(),
            builder.parameters(),
        ];
        // Where there is no estimate at all, lines without a figure say nothing.
        for section in &mut sections {
            section.retain(|line| line.cells.iter().any(|cell| *cell != Cell::Empty));
        }
        sections.retain(|section| !section.is_empty());
        Sheet { sections, columns: answers.len() }
    }

    /// All lines in order.
    pub fn lines(&self) -> impl Iterator<Item = &Line> {
        self.sections.iter().flatten()
    }
}

struct Builder<'a> {
    answers: &'a [Answer],
}

impl Builder<'_> {
    fn choice(&self, label: &str, cell: impl Fn(&Scenario) -> Cell) -> Line {
        Line {
            label: label.to_owned(),
            cells: self.answers.iter().map(|answer| cell(&answer.scenario)).collect(),
        }
    }

    fn figure(&self, label: &str, cell: impl Fn(&Scenario, &Memory) -> Cell) -> Line {
        let of = |answer: &Answer| Some(cell(&answer.scenario, answer.estimate.memory.as_ref()?));
        self.said(label, of)
    }

    fn said(&self, label: &str, cell: impl Fn(&Answer) -> Option<Cell>) -> Line {
        let cells = self.answers.iter().map(|answer| cell(answer).unwrap_or(Cell::Empty));
        Line { label: label.to_owned(), cells: cells.collect() }
    }

    fn on_card(&self, label: &str, amount: fn(&OnCard) -> Bytes) -> Line {
        self.said(label, |answer| {
            // on others than NVIDIA's the allocator that was replayed is not the card's
            if answer.scenario.gpu().is_ok_and(|gpu| gpu.vendor != Vendor::Nvidia) {
                return None;
            }
            let on_card = answer.on_card.as_ref()?;
            Some(match on_card.outcome {
                Outcome::Runs | Outcome::RunsExpandable => Cell::Amount(amount(on_card)),
                Outcome::Fails(_) => Cell::UpToFailure(amount(on_card)),
            })
        })
    }

    /// Every input that is always shown or not at its default somewhere, group by group, and how many others there are.
    fn choices(&self) -> Vec<Line> {
        let defaults: Vec<_> = self.answers.iter().map(|answer| answer.scenario.defaults()).collect();
        let (shown, rest): (Vec<&Key>, Vec<&Key>) = Group::ALL
            .into_iter()
            .flat_map(|group| keys().filter(move |key| key.group == group))
            .partition(|key| {
                self.answers.iter().zip(&defaults).any(|(Answer { scenario, .. }, defaults)| {
                    key.matters(scenario) && (key.place.is_always_said() || !key.is_same(scenario, defaults))
                })
            });
        let named = |key: &Key| key.label_among(self.answers.iter().map(|answer| &answer.scenario));
        let mut lines: Vec<_> =
            shown.into_iter().map(|key| self.choice(named(key), |scenario| input(key, scenario))).collect();
        lines.push(self.choice("Other settings, at their default", |scenario| {
            Cell::Count(rest.iter().filter(|key| key.matters(scenario)).count() as u64)
        }));
        lines
    }

    fn verdict(&self) -> Vec<Line> {
        vec![
            self.figure("Figures are those", |scenario, memory| {
                whose(scenario, memory).map_or(Cell::Empty, Cell::Text)
            }),
            self.figure("Needed", |_, memory| Cell::Amount(memory.needed())),
            self.figure("vLLM's share, in what is needed", |scenario, _| {
                scenario.vllm_beside().map_or(Cell::Empty, |share| Cell::Amount(share.bytes()))
            }),
            self.choice("The card has", |scenario| {
                scenario.gpu().map_or(Cell::Empty, |gpu| Cell::Amount(gpu.memory))
            }),
            self.choice("Of the card's memory", |scenario| {
                let note = scenario.gpu().ok().and_then(|gpu| gpu.note());
                note.map_or(Cell::Empty, |note| Cell::Text(note.to_owned()))
            }),
            self.said("Verdict", |answer| Some(Cell::Margin(answer.verdict()?, answer.fit()?.margin))),
            self.said("Use of the card", |answer| {
                let fit = answer.fit().filter(|_| answer.verdict() != Some(Verdict::WouldNotRun))?;
                if fit.capacity == Bytes::ZERO {
                    let words =
                        "nothing of it is left: others have all that it has, or the margin is as large";
                    return Some(Cell::Text(words.to_owned()));
                }
                let level = Level::of(&fit);
                let words = match answer.verdict() {
                    // what would do is not known of such a card, nor where it may get through
                    Some(Verdict::NotFollowed | Verdict::Close) => level.label().to_owned(),
                    _ => format!("{}: {}", level.label(), level.advice()),
                };
                Some(Cell::Text(format!("{:.0} %, {words}", fit.percent())))
            }),
            self.said("A step takes, roughly", |answer| {
                let pace = answer.pace().filter(|_| answer.runs() != Some(false))?;
                Some(Cell::Text(duration(pace.step)))
            }),
            self.said("Measured error", |answer| {
                if let Some(reason) = accuracy::unmeasured(&answer.scenario) {
                    return Some(Cell::Text(format!("not known: {reason}")));
                }
                let band = answer.band()?;
                Some(Cell::Text(format!("{} of what is allocated: {}", band.in_words(), band.rests_on())))
            }),
            self.on_card("PyTorch reserves", |on_card| on_card.reserved),
            self.on_card(
                if self.answers.iter().all(is_unified) {
                    // nvidia-smi says nothing of the memory of a processor
                    "PyTorch and the driver take"
                } else if self.answers.iter().any(|answer| answer.scenario.cluster.is_many()) {
                    "nvidia-smi shows, without NCCL"
                } else {
                    "nvidia-smi shows"
                },
                |on_card| on_card.shown,
            ),
            self.said("nvidia-smi shows, with NCCL", |answer| {
                let own = &answer.scenario;
                let gpu = own.gpu().ok()?;
                let is_nvidia = gpu.vendor == Vendor::Nvidia && !is_unified(answer);
                // up to its failure a run has come to less
                let on_card = answer.on_card.filter(|_| own.cluster.is_many() && is_nvidia)?;
                let runs = !matches!(on_card.outcome, Outcome::Fails(_));
                let on_card = runs.then_some(on_card)?;
                Some(Cell::Text(on_card.with(own.nccl(), &gpu).to_string()))
            }),
            self.figure("Peak in the", |_, memory| Cell::Text(memory.peak().0.label().to_owned())),
        ]
    }

    /// What each stage of a pipeline needs, where the answer is that of the one that needs most.
    fn stages(&self) -> Vec<Line> {
        let needed: Vec<Vec<Bytes>> = self.answers.iter().map(needed_in_stages).collect();
        let most = needed.iter().map(Vec::len).max().unwrap_or(0);
        let line = |stage: usize| {
            let cells = needed
                .iter()
                .map(|needed| needed.get(stage).map_or(Cell::Empty, |bytes| Cell::Amount(*bytes)));
            Line { label: format!("Needed in stage {}", grouped(stage as u64 + 1)), cells: cells.collect() }
        };
        (0..most).map(line).collect()
    }

    fn parts(&self) -> Vec<Line> {
        let present = |category: &Category| {
            let memories = self.answers.iter().filter_map(|answer| answer.estimate.memory.as_ref());
            memories.into_iter().any(|memory| memory.peak().1.parts.get(*category) > Bytes::ZERO)
        };
        let mut lines: Vec<_> = Category::ALL
            .into_iter()
            .filter(present)
            .map(|category| {
                self.figure(category.label(), |_, memory| Cell::Share {
                    part: memory.peak().1.parts.get(category),
                    whole: memory.needed(),
                })
            })
            .collect();
        lines.push(self.figure("Driver context", |_, memory| Cell::Share {
            part: memory.context,
            whole: memory.needed(),
        }));
        lines
    }

    fn phases(&self) -> Vec<Line> {
        let memories = self.answers.iter().filter_map(|answer| answer.estimate.memory.as_ref());
        // whose act it is differs from task to task: alike are those of one name
        let mut phases =
            in_order(memories.clone().flat_map(|memory| &memory.steady.phases).map(|(phase, _)| *phase));
        let mut stages = Vec::new();
        phases.retain(|phase| {
            let is_new = !stages.contains(&phase.stage);
            stages.push(phase.stage);
            is_new
        });
        let peaks = |iteration: fn(&Memory) -> &Iteration, when: &'static str| {
            let of = |memory: &Memory, phase: &Phase| {
                let own = iteration(memory).phases.iter().find(|(own, _)| own.stage == phase.stage);
                own.map(|(_, peak)| peak.bytes).filter(|bytes| *bytes > Bytes::ZERO)
            };
            let peak = |phase: &Phase| {
                self.figure(&format!("Peak in the {}, {when}", phase.label()), |_, memory| {
                    // as what is needed, and as the page shows it
                    of(memory, phase).map_or(Cell::Empty, |bytes| Cell::Amount(bytes + memory.context))
                })
            };
            // what comes after the last step is in no other iteration
            let runs = |phase: &&Phase| memories.clone().any(|memory| of(memory, phase).is_some());
            phases.iter().filter(runs).map(peak).collect::<Vec<_>>()
        };
        [peaks(|memory| &memory.first, "first step"), peaks(|memory| &memory.steady, "later steps")].concat()
    }

    fn parameters(&self) -> Vec<Line> {
        vec![
            self.figure("Parameters", |scenario, memory| {
                Cell::Count(Counts::of(scenario, memory).whole.total)
            }),
            self.figure("Trained parameters", |scenario, memory| {
                Cell::Count(Counts::of(scenario, memory).whole.trainable)
            }),
            self.figure("Parameters on each of these GPUs", |scenario, memory| {
                Counts::of(scenario, memory).part.map_or(Cell::Empty, Cell::Count)
            }),
        ]
    }
}

/// The value of an input; nothing where it makes no difference.
fn input(key: &Key, scenario: &Scenario) -> Cell {
    if !key.matters(scenario) {
        return Cell::Empty;
    }
    let text = || Cell::Text(one_line(&key.words(scenario)));
    match key.kind() {
        // a number alone would not say of what
        ValueKind::Count(Count::Mebibytes | Count::Kibibytes | Count::Percent) => text(),
        ValueKind::Count(_) => key.write(scenario).parse().map_or_else(|_| text(), Cell::Count),
        ValueKind::Model
        | ValueKind::Teacher
        | ValueKind::Choice(_)
        | ValueKind::Targets
        | ValueKind::Switch
        | ValueKind::Lengths
        | ValueKind::Dropout
        | ValueKind::Gpu => text(),
    }
}

/// Whether the memory is a processor's own.
fn is_unified(answer: &Answer) -> bool {
    answer.scenario.gpu().is_ok_and(|gpu| gpu.class == Some(Class::Unified))
}
