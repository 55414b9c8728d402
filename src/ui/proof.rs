//! Measured runs beside their predictions: which of them are looked at, and what they say together.

use crate::accuracy::{self, Band, Evidence, TENSOR_PARALLEL};
use crate::check::{Confusion, Errors, Figure, Metric, Run};
use crate::scenario::{AttentionKernel, LossKernel, Method, Precision, Scenario, Sharding, Stack, Task};

/// The file of the runs, beside the page.
pub const FILE: &str = "measured.tsv";

/// Which runs are looked at; an empty text takes all.
#[derive(Clone, Debug, PartialEq)]
pub struct Filter {
    /// Which of their figures.
    pub metric: Metric,
    /// What they ran on, as [`Run::ran_on`] says.
    pub device: String,
    /// The file of measurements.
    pub file: String,
    /// The training library, loss and engine.
    pub software: String,
    /// The method.
    pub method: String,
    /// The family of models.
    pub family: String,
    /// Whether misses alone are.
    pub misses: bool,
    /// The kind of an answer, where the runs behind its measured error alone are.
    pub kind: Option<Kind>,
}

/// Of which kind an answer is, and how close the runs are that its measured error rests on.
#[derive(Clone, Debug, PartialEq)]
pub struct Kind {
    /// Its software, family and settings.
    own: [String; 3],
    evidence: Evidence,
}

impl Kind {
    /// That of an answer with that band.
    pub fn of(scenario: &Scenario, band: &Band) -> Option<Kind> {
        let family = scenario.architecture().ok()?.model_type.clone();
        let own = [accuracy::software(scenario), family, accuracy::key(scenario)];
        Some(Kind { own, evidence: band.evidence })
    }

    fn includes(&self, run: &Run) -> bool {
        self.evidence
            .includes(self.own.each_ref().map(String::as_str), [&run.software, &run.family, &run.settings])
    }
}

impl Default for Filter {
    fn default() -> Filter {
        let all = String::new();
        Filter {
            metric: Metric::Allocated,
            device: all.clone(),
            file: all.clone(),
            software: all.clone(),
            method: all.clone(),
            family: all,
            misses: false,
            kind: None,
        }
    }
}

impl Filter {
    /// The figures that are looked at, each with the place of its run among all, those furthest off first.
    pub fn figures(&self, runs: &[Run]) -> Vec<(usize, Figure)> {
        let is_own = |wanted: &str, own: &str| wanted.is_empty() || wanted == own;
        let own = runs.iter().enumerate().filter(|(_, run)| {
            self.kind.as_ref().is_none_or(|kind| kind.includes(run))
                && is_own(&self.device, run.ran_on())
                && is_own(&self.file, &run.file)
                && is_own(&self.software, &run.software)
                && is_own(&self.method, run.method())
                && is_own(&self.family, &run.family)
        });
        let figures = own.filter_map(|(place, run)| Some((place, run.figure(self.metric)?)));
        let mut figures: Vec<_> = figures.filter(|(_, figure)| !self.misses || figure.is_miss()).collect();
        let off = |figure: &Figure| figure.error_pct().abs();
        figures.sort_by(|(_, one), (_, other)| off(other).total_cmp(&off(one)));
        figures
    }
}

/// What is measured, in words.
pub fn metric(metric: Metric) -> &'static str {
    match metric {
        Metric::Allocated => "Allocated peak",
        Metric::Reserved => "Reserved peak",
        Metric::Driver => "What nvidia-smi showed",
    }
}

/// How far the figures are off.
pub fn errors(figures: &[(usize, Figure)]) -> Errors {
    Errors::of(figures.iter().map(|(_, figure)| figure.error_pct()))
}

/// The verdicts on the runs of these figures.
pub fn verdicts(runs: &[Run], figures: &[(usize, Figure)]) -> Confusion {
    let mut all = Confusion::default();
    for run in figures.iter().filter_map(|(place, _)| runs.get(*place)) {
        all.add(&run.verdicts);
    }
    all
}

/// Where the histogram's bars meet, in percent.
pub const EDGES: [f64; 10] = [-10., -5., -2., -1., -0.1, 0.1, 1., 2., 5., 10.];

/// How many figures are off by how much: below the first edge, between each two, and above the last.
pub fn histogram(figures: &[(usize, Figure)]) -> [usize; EDGES.len() + 1] {
    let mut bars = [0; EDGES.len() + 1];
    for (_, figure) in figures {
        let error = figure.error_pct();
        bars[EDGES.partition_point(|edge| *edge < error)] += 1;
    }
    bars
}

/// An error with its sign: `+0.31 %`, `−4.7 %`, `0.00 %`.
pub fn signed(percent: f64) -> String {
    let sign = match percent {
        _ if percent.abs() < 0.005 => "",
        _ if percent < 0. => "−",
        _ => "+",
    };
    format!("{sign}{:.2} %", percent.abs())
}

/// The different values of something that runs have, in alphabetical order.
pub fn values<'a>(runs: &'a [Run], of: impl Fn(&'a Run) -> &'a str) -> Vec<&'a str> {
    let mut values: Vec<&str> = Vec::new();
    for run in runs {
        let value = of(run);
        if let Err(place) = values.binary_search(&value) {
            values.insert(place, value);
        }
    }
    values
}

/// Settings as [`crate::accuracy::key`] writes them, in words: `QLoRA · bf16 mixed (bf16 weights) · checkpointing · SDPA (PyTorch chooses)`.
pub fn settings(slugs: &str) -> String {
    let word = |slug: &str| {
        let label = Method::from_slug(slug).map(Method::label);
        let label = label.or_else(|| Task::from_slug(slug).map(Task::label));
        let label = label.or_else(|| Precision::from_slug(slug).map(Precision::label));
        let label = label.or_else(|| AttentionKernel::from_slug(slug).map(AttentionKernel::label));
        match slug {
            "kept" => "no checkpointing".to_owned(),
            "recomputed" => "checkpointing".to_owned(),
            "recomputed-offloaded" => "checkpointing, offloaded to the CPU".to_owned(),
            "packed" => "packed sequences".to_owned(),
            "offloaded" => "activations offloaded".to_owned(),
            "in-backward" => "optimizer in backward".to_owned(),
            other => label.unwrap_or(other).to_owned(),
        }
    };
    slugs.split(' ').map(word).collect::<Vec<_>>().join(" · ")
}

/// The name of a library, of the loss where it is not the usual one, and of the engine where there are several GPUs.
pub fn software(slug: &str) -> String {
    let mut parts = slug.split('+');
    let stack = parts.next().unwrap_or_default();
    let name = Stack::from_slug(stack).map_or(stack, |stack| stack.label());
    let word = |part: &str| {
        let engine = Sharding::from_slug(part).map(|engine| format!("under {}", engine.label()));
        let loss = LossKernel::from_slug(part).map(|loss| format!("loss {}", loss.label()));
        let shared = (part == TENSOR_PARALLEL).then(|| "tensor parallel".to_owned());
        format!(", {}", engine.or(loss).or(shared).unwrap_or_else(|| part.to_owned()))
    };
    parts.map(word).fold(name.to_owned(), |name, word| name + &word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::check_runs;

    fn some() -> Vec<Run> {
        let row = |id: &str, batch: u64, bytes: u64| {
            format!(
                r#"{{"id": "{id}", "reading": {{"scenario": {{"model": "gpt2", "method": "full", "precision": "bf16",
                "batch-size": {batch}, "seq-length": 256}}, "metric": "allocated", "bytes": {bytes}}}}}"#
            )
        };
        let exact = |batch| {
            let (_, runs) =
                check_runs("exact", &format!("[{}]", row("a", batch, 1))).expect("it is an array");
            runs[0].figure(Metric::Allocated).expect("a figure").predicted.0
        };
        let rows =
            [row("near", 1, exact(1)), row("far", 2, exact(2) / 2), row("below", 3, exact(3) * 100 / 97)];
        check_runs("some", &format!("[{}]", rows.join(","))).expect("it is an array").1
    }

    #[test]
    fn the_furthest_off_come_first() {
        let runs = some();
        let names = |filter: &Filter| -> Vec<String> {
            filter.figures(&runs).iter().map(|(place, _)| runs[*place].id.clone()).collect()
        };
        assert_eq!(names(&Filter::default()), ["far", "below", "near"]);
        assert_eq!(names(&Filter { misses: true, ..Filter::default() }), ["far", "below"]);
        for other in [
            Filter { metric: Metric::Reserved, ..Filter::default() },
            Filter { file: "other".to_owned(), ..Filter::default() },
            Filter { method: "lora".to_owned(), ..Filter::default() },
            Filter { family: "llama".to_owned(), ..Filter::default() },
            Filter { software: "trl".to_owned(), ..Filter::default() },
        ] {
            assert!(names(&other).is_empty(), "{other:?}");
        }
        let figures = Filter { family: "gpt2".to_owned(), ..Filter::default() }.figures(&runs);
        assert_eq!(histogram(&figures), [0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 1]);
        assert_eq!(errors(&figures).count, 3);
    }

    #[test]
    fn errors_have_a_sign() {
        for (percent, text) in [(0.31, "+0.31 %"), (-4.7, "−4.70 %"), (-0.001, "0.00 %"), (0., "0.00 %")] {
            assert_eq!(signed(percent), text);
        }
    }

    #[test]
    fn values_are_told_once_and_in_order() {
        assert_eq!(values(&some(), |run| &run.id), ["below", "far", "near"]);
        assert_eq!(values(&some(), Run::method), ["full"]);
    }

    #[test]
    fn slugs_become_words() {
        let words = software("trl+liger+ddp");
        assert_eq!(words, format!("{}, loss Liger fused, under DDP", Stack::Trl.label()));
        let raw =
            ["kept", "recomputed", "recomputed-offloaded", "in-backward", "sdpa", "amp-bf16", "amp-fp16"];
        let raw: Vec<&str> =
            raw.into_iter().chain(Sharding::ALL.iter().map(|engine| engine.slug())).collect();
        for kind in crate::accuracy::kinds() {
            let told = format!("{} · {}", settings(&kind.settings), software(&kind.software));
            let is_raw = |word: &&str| raw.contains(word) || word.contains("amp-bf16");
            assert_eq!(told.split([' ', ',', '·']).find(is_raw), None, "{told}");
        }
    }
}
