//! The table that every export is written from.

use super::Answer;
use crate::memory::{Category, Iteration, Memory, Phase};
use crate::plan::{Margin, Verdict};
use crate::scenario::{LoraTargets, Method, Scenario};
use crate::units::{Bytes, grouped};

/// What a scenario's choice is called.
type Label = fn(&Scenario) -> &'static str;

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
            Cell::Share { part, whole } => format!("{part} ({:.1} %)", part.percent_of(*whole)),
            Cell::Margin(Verdict::Fits, Margin::Headroom(bytes)) => format!("fits, {bytes} to spare"),
            Cell::Margin(Verdict::Close, Margin::Headroom(bytes)) => {
                format!("close: {bytes} to spare, less than the estimate may be off by")
            }
            Cell::Margin(Verdict::Tight, Margin::Headroom(bytes)) => format!(
                "tight: its tensors leave {bytes}, the holes between them take more; runs with --allocator expandable"
            ),
            Cell::Margin(Verdict::Over, Margin::Headroom(bytes)) => {
                format!("does not fit: its tensors leave {bytes}, the holes between them take more")
            }
            Cell::Margin(_, Margin::Overshoot(bytes)) => format!("too large by {bytes}"),
        }
    }

    /// Bytes and counts to the last digit, without units: for computing. What is missing is negative.
    pub fn exact(&self) -> String {
        match self {
            Cell::Empty => String::new(),
            Cell::Text(text) => text.clone(),
            Cell::Count(n) => n.to_string(),
            Cell::Amount(bytes)
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

    fn choices(&self) -> Vec<Line> {
        let text = |text: &str| Cell::Text(text.to_owned());
        let mut lines = vec![
            self.choice("Model", |scenario| Cell::Text(scenario.model_name())),
            self.choice("Method", |scenario| Cell::Text(method(scenario))),
            self.choice("Precision", |scenario| text(scenario.precision.label())),
            self.choice("Optimizer", |scenario| text(scenario.optimizer.label())),
            self.choice("Micro-batch size", |scenario| Cell::Count(scenario.batch)),
            self.choice("Sequence length", |scenario| Cell::Count(scenario.sequence)),
            self.choice("Gradient accumulation", |scenario| Cell::Count(scenario.accumulation)),
            self.choice("Gradient checkpointing", |scenario| text(scenario.checkpointing.label())),
            self.choice("Attention", |scenario| text(scenario.attention.label())),
        ];
        // what nearly all scenarios leave as it is
        let usual = Scenario::default();
        let rare: [(&'static str, Label); 6] = [
            ("Mask", |scenario| scenario.mask.label()),
            ("Software", |scenario| scenario.stack.label()),
            ("Head and loss", |scenario| scenario.savings.loss.label()),
            ("Activation offloading", |scenario| scenario.savings.offloading.label()),
            ("Optimizer step", |scenario| scenario.savings.step.label()),
            ("Allocator", |scenario| scenario.allocator.label()),
        ];
        for (name, label) in rare {
            if self.answers.iter().any(|answer| label(&answer.scenario) != label(&usual)) {
                lines.push(self.choice(name, |scenario| text(label(scenario))));
            }
        }
        lines.push(self.choice("GPU", |scenario| match scenario.gpu() {
            Ok(gpu) => text(&gpu.name),
            Err(_) => Cell::Empty,
        }));
        lines
    }

    fn verdict(&self) -> Vec<Line> {
        vec![
            self.figure("Needed", |_, memory| Cell::Amount(memory.needed())),
            self.choice("The card has", |scenario| {
                scenario.gpu().map_or(Cell::Empty, |gpu| Cell::Amount(gpu.memory))
            }),
            self.said("Verdict", |answer| Some(Cell::Margin(answer.verdict()?, answer.fit()?.margin))),
            self.said("PyTorch reserves", |answer| Some(Cell::Amount(answer.on_card?.reserved))),
            self.said("nvidia-smi shows", |answer| Some(Cell::Amount(answer.on_card?.shown))),
            self.figure("Peak in the", |_, memory| Cell::Text(memory.peak().0.label().to_owned())),
        ]
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
        lines.push(self.figure("CUDA context", |_, memory| Cell::Share {
            part: memory.context,
            whole: memory.needed(),
        }));
        lines
    }

    fn phases(&self) -> Vec<Line> {
        let peaks = |iteration: fn(&Memory) -> Iteration, when: &'static str| {
            Phase::ALL.map(|phase| {
                self.figure(&format!("Peak in the {}, {when}", phase.label()), |_, memory| {
                    Cell::Amount(iteration(memory).phase(phase).bytes)
                })
            })
        };
        [peaks(|memory| memory.first, "first iteration"), peaks(|memory| memory.steady, "later ones")]
            .concat()
    }

    fn parameters(&self) -> Vec<Line> {
        vec![
            self.figure("Parameters", |_, memory| Cell::Count(memory.parameters.total)),
            self.figure("Trained parameters", |_, memory| Cell::Count(memory.parameters.trainable)),
        ]
    }
}

fn method(scenario: &Scenario) -> String {
    let label = scenario.method.label();
    let targets = match scenario.lora.targets {
        LoraTargets::Named => scenario.lora.modules.to_string(),
        group => group.label().to_ascii_lowercase(),
    };
    match scenario.method {
        Method::Full => label.to_owned(),
        Method::Lora | Method::Qlora => format!("{label}, rank {} on {targets}", scenario.lora.rank),
    }
}
