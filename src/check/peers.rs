//! What other calculators say of published runs, by their own code (`data/peers.tsv`, which `tools/peers` writes), beside what is predicted
//! of the same runs.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::measurement::{Metric, error_pct};
use super::proof::{Figure, Run};
use super::summary::Errors;
use crate::units::Bytes;

/// Whose rows fitcheck's constants were fitted to.
const FITTED: &str = "Anassbzdd/fitcheck";

/// Another calculator.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Calculator {
    /// What it is called, with its version or commit.
    pub name: String,
    /// Its code, as it was run.
    pub code: String,
}

/// What a calculator says of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// What the run takes.
    Takes(Bytes),
    /// Nothing, as it has no input for this.
    Lacks(String),
}

/// The calculators, and what they say of which run.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Others {
    /// The calculators, in the order of the answers.
    pub calculators: Vec<Calculator>,
    /// Their answers by the run's name.
    answers: HashMap<String, Vec<Answer>>,
}

impl Others {
    /// Reads the file. What is no line of it is left out.
    pub fn read(text: &str) -> Others {
        let mut others = Others::default();
        let mut reasons: HashMap<&str, &str> = HashMap::new();
        let mut is_row = false;
        for line in text.lines() {
            match line.split('\t').collect::<Vec<_>>()[..] {
                ["row", ..] => is_row = true,
                ["peer", _, name, code] if !is_row => {
                    others.calculators.push(Calculator { name: name.to_owned(), code: code.to_owned() });
                }
                ["reason", key, words] if !is_row => {
                    reasons.insert(key, words);
                }
                [id, ref cells @ ..] if is_row && cells.len() == others.calculators.len() => {
                    let answer = |cell: &&str| match cell.parse() {
                        Ok(bytes) => Answer::Takes(Bytes(bytes)),
                        Err(_) => Answer::Lacks(reasons.get(cell).copied().unwrap_or_default().to_owned()),
                    };
                    others.answers.insert(id.to_owned(), cells.iter().map(answer).collect());
                }
                _ => {}
            }
        }
        others
    }

    /// The names of the runs that they were asked about.
    pub fn asked(&self) -> impl Iterator<Item = &str> {
        self.answers.keys().map(String::as_str)
    }

    /// What they say of a run, in the order of the calculators, if they were asked about it.
    pub fn of(&self, run: &Run) -> Option<&[Answer]> {
        if run.source.is_empty() {
            return None;
        }
        self.answers.get(&run.id).map(Vec::as_slice)
    }

    /// The figures that they were asked about, by source, quantity and whether all parameters were trained: in the order of the runs.
    pub fn groups<'a>(&'a self, runs: &'a [Run]) -> Vec<Group<'a>> {
        let mut groups: Vec<Group<'a>> = Vec::new();
        for asked in self.figures(runs) {
            let kind = (asked.project(), asked.metric, asked.run.method() == "full");
            match groups.iter_mut().find(|group| (group.project, group.metric, group.is_full) == kind) {
                Some(group) => group.asked.push(asked),
                None => groups.push(Group {
                    project: kind.0,
                    metric: kind.1,
                    is_full: kind.2,
                    asked: vec![asked],
                }),
            }
        }
        groups
    }

    /// What a calculator says of all figures, or of those alone that fitcheck was not fitted to.
    pub fn compared(&self, runs: &[Run], calculator: usize, with_fitted: bool) -> Compared {
        let asked = self.figures(runs).filter(|asked| with_fitted || asked.project() != FITTED);
        Compared::of(&asked.collect::<Vec<_>>(), calculator)
    }

    fn figures<'a>(&'a self, runs: &'a [Run]) -> impl Iterator<Item = Asked<'a>> {
        runs.iter().filter_map(|run| {
            let answers = self.of(run)?;
            let of = |metric| Some(Asked { run, metric, figure: run.figure(metric)?, answers });
            Metric::ALL.into_iter().find_map(of)
        })
    }
}

/// A figure that the others were asked about.
#[derive(Clone, Copy, Debug)]
struct Asked<'a> {
    run: &'a Run,
    metric: Metric,
    figure: Figure,
    answers: &'a [Answer],
}

impl<'a> Asked<'a> {
    /// The project that published it, as `organisation/name`.
    fn project(&self) -> &'a str {
        let path = self.run.source.trim_start_matches("https://github.com/");
        let ends = path.match_indices('/').nth(1).map_or(path.len(), |(place, _)| place);
        path.get(..ends).unwrap_or_default()
    }

    /// How far off a calculator is, in percent, where it says something.
    fn error_pct(&self, calculator: usize) -> Option<f64> {
        match self.answers.get(calculator)? {
            Answer::Takes(bytes) => Some(error_pct(self.figure.measured, *bytes)),
            Answer::Lacks(_) => None,
        }
    }
}

/// Figures of one source, quantity and kind of training.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Group<'a> {
    /// The project that published them, as `organisation/name`.
    pub project: &'a str,
    /// What was measured.
    pub metric: Metric,
    /// Whether all parameters were trained; adapters were otherwise.
    pub is_full: bool,
    asked: Vec<Asked<'a>>,
}

impl Group<'_> {
    /// How far off Headroom is over all of them.
    pub fn own(&self) -> Errors {
        Errors::of(self.asked.iter().map(|asked| asked.figure.error_pct()))
    }

    /// How far off a calculator is over those that it says something of.
    pub fn compared(&self, calculator: usize) -> Compared {
        Compared::of(&self.asked, calculator)
    }
}

/// A calculator and Headroom over the same figures: those that the calculator says something of.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Compared {
    /// How far off the calculator is.
    pub theirs: Errors,
    /// How far off Headroom is over the same.
    pub own: Errors,
    /// Of how many figures the calculator is nearer than Headroom.
    pub nearer: usize,
    /// How many figures it says nothing of, by what it has no input for.
    pub lacks: Vec<(String, usize)>,
}

impl Compared {
    fn of(asked: &[Asked], calculator: usize) -> Compared {
        let both = asked
            .iter()
            .filter_map(|asked| Some((asked.error_pct(calculator)?.abs(), asked.figure.error_pct().abs())));
        let both: Vec<(f64, f64)> = both.collect();
        let mut lacks: Vec<(String, usize)> = Vec::new();
        for answer in asked.iter().filter_map(|asked| asked.answers.get(calculator)) {
            let Answer::Lacks(what) = answer else { continue };
            match lacks.iter_mut().find(|(other, _)| other == what) {
                Some((_, count)) => *count += 1,
                None => lacks.push((what.clone(), 1)),
            }
        }
        lacks.sort_by_key(|(_, count)| Reverse(*count));
        Compared {
            theirs: Errors::of(both.iter().map(|(theirs, _)| *theirs)),
            own: Errors::of(both.iter().map(|(_, own)| *own)),
            nearer: both.iter().filter(|(theirs, own)| theirs < own).count(),
            lacks,
        }
    }

    /// Whether the calculator's median error is the smaller one.
    pub fn is_nearer(&self) -> bool {
        self.theirs.count > 0 && self.theirs.median_pct < self.own.median_pct
    }
}
