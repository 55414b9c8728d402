//! Measured runs beside what is predicted of them, one a line: `data/measured.tsv`, which a test writes and holds equal to
//! what `headroom check` finds, and which the page shows.

use serde_json::Value;

use super::measurement::{Case, Metric, Row};
use super::verdicts::Confusion;
use crate::accuracy::{key, software};
use crate::model::Architecture;
use crate::scenario::{ModelChoice, Scenario, Task};
use crate::share;
use crate::units::Bytes;

/// From how many percent on a figure is called a miss.
pub const MISS_PERCENT: f64 = 1.0;

/// The columns of the file, in order.
const COLUMNS: [&str; 21] = [
    "run",
    "file",
    "source",
    "measured on",
    "model",
    "software",
    "family",
    "settings",
    "parameters",
    "GPUs",
    "micro-batch",
    "sequence",
    "allocated",
    "allocated predicted",
    "reserved",
    "reserved predicted",
    "nvidia-smi",
    "nvidia-smi predicted",
    "verdicts",
    "reason",
    "link",
];

/// A measured figure and the predicted one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figure {
    /// What was measured.
    pub measured: Bytes,
    /// What is predicted of it.
    pub predicted: Bytes,
}

impl Figure {
    /// Predicted over measured less one, in percent.
    pub fn error_pct(self) -> f64 {
        super::measurement::error_pct(self.measured, self.predicted)
    }

    /// Whether the prediction is off by [`MISS_PERCENT`] or more.
    pub fn is_miss(self) -> bool {
        self.error_pct().abs() >= MISS_PERCENT
    }
}

/// A measured run.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Its name in the file of measurements.
    pub id: String,
    /// Which file of `data/measurements/`, without its ending.
    pub file: String,
    /// Where it was published; empty where the project measured it.
    pub source: String,
    /// The card, or the null device with its compute capability, and the version of PyTorch.
    pub device: String,
    /// The model's name.
    pub model: String,
    /// As [`software`] writes it.
    pub software: String,
    /// `model_type` of the config.
    pub family: String,
    /// As [`key`] writes them.
    pub settings: String,
    /// Of the model.
    pub parameters: u64,
    /// How many GPUs.
    pub gpus: u64,
    /// Sequences of a micro-batch.
    pub batch: u64,
    /// Tokens of a sequence.
    pub sequence: u64,
    /// Its figures, in the order of [`Metric::ALL`].
    pub figures: [Option<Figure>; Metric::ALL.len()],
    /// The verdicts on cards around what it took.
    pub verdicts: Confusion,
    /// Why a figure of it is missed, where that was found out.
    pub reason: String,
    /// The scenario, as a link holds it.
    pub link: String,
}

/// How the device of a run begins whose kernels compute nothing.
const NULL_DEVICE: &str = "null device";

impl Run {
    /// Whether it ran over the null device, not on a card.
    pub fn is_over_null_device(&self) -> bool {
        self.device.starts_with(NULL_DEVICE)
    }

    /// What it ran on: `card`, or `null` for the null device.
    pub fn ran_on(&self) -> &'static str {
        if self.is_over_null_device() { "null" } else { "card" }
    }

    /// A row of a file, read and predicted.
    pub(super) fn of(
        file: &str,
        id: &str,
        row: &Value,
        case: &Case,
        rows: &[Row],
        verdicts: Confusion,
    ) -> Run {
        let scenario = &case.scenario;
        let architecture = scenario.architecture();
        let figures = Metric::ALL.map(|metric| {
            let row = rows.iter().find(|row| row.metric == metric)?;
            Some(Figure { measured: row.measured, predicted: row.predicted })
        });
        let run = Run {
            id: id.to_owned(),
            file: file.to_owned(),
            source: source(row),
            device: device(row),
            model: match &scenario.model {
                ModelChoice::Catalogue(id) => id.clone(),
                ModelChoice::Size(billions) => format!("{billions}B"),
                ModelChoice::Custom(model) => model.name.clone(),
            },
            software: software(scenario),
            family: architecture.as_ref().map(|found| found.model_type.clone()).unwrap_or_default(),
            settings: key(scenario),
            parameters: architecture.as_ref().map(|found| found.parameters()).unwrap_or_default(),
            gpus: gpus(scenario),
            batch: scenario.batch,
            sequence: scenario.sequence,
            figures,
            verdicts,
            reason: String::new(),
            link: share::encode(std::slice::from_ref(scenario)),
        };
        Run { reason: reason(&run).to_owned(), ..run }
    }

    /// Whether it is said of the run that the cause of its miss was not found.
    pub fn has_no_cause(&self) -> bool {
        ["Not found", "not found"].iter().any(|words| self.reason.contains(words))
    }

    /// A figure of the run, where it was measured.
    pub fn figure(&self, metric: Metric) -> Option<Figure> {
        self.figures[metric as usize]
    }

    /// The scenario that ran.
    pub fn scenario(&self) -> Option<Scenario> {
        Run::linked(&self.link)
    }

    /// The scenario of a run's link.
    pub fn linked(link: &str) -> Option<Scenario> {
        share::decode(link).scenarios.into_iter().next()
    }

    /// What was done with the model: what its settings begin with, where it is not fine-tuning on texts.
    pub fn task(&self) -> Task {
        self.settings.split(' ').next().and_then(Task::from_slug).unwrap_or(Task::Sft)
    }

    /// The method: full, lora or qlora.
    pub fn method(&self) -> &str {
        let mut words = self.settings.split(' ').skip_while(|word| Task::from_slug(word).is_some());
        words.next().unwrap_or_default()
    }

    /// The training library: what comes first in its software.
    pub fn stack(&self) -> &str {
        self.software.split('+').next().unwrap_or_default()
    }

    /// The run as a line.
    fn written(&self) -> String {
        let figure = |figure: &Option<Figure>| match figure {
            Some(Figure { measured, predicted }) => format!("{}\t{}", measured.0, predicted.0),
            None => "\t".to_owned(),
        };
        let Run { id, file, source, device, model, software, family, settings, .. } = self;
        let texts = [id, file, source, device, model, software, family, settings].map(|text| flat(text));
        let counts = [self.parameters, self.gpus, self.batch, self.sequence].map(|count| count.to_string());
        let figures = self.figures.each_ref().map(figure);
        let verdicts = self.verdicts.counts().map(|count| count.to_string()).join(" ");
        let rest = [verdicts, flat(&self.reason), self.link.clone()];
        [texts.as_slice(), &counts, &figures, &rest].concat().join("\t")
    }

    /// The run of a line; nothing where it is no such line.
    fn read(line: &str) -> Option<Run> {
        let fields: Vec<&str> = line.split('\t').collect();
        let fields: [&str; COLUMNS.len()] = fields.try_into().ok()?;
        let text = |index: usize| fields[index].to_owned();
        let count = |index: usize| fields[index].parse().unwrap_or(0_u64);
        let figure = |index: usize| {
            let bytes = |text: &str| text.parse().map(Bytes);
            let measured = bytes(fields[index]).ok()?;
            Some(Figure { measured, predicted: bytes(fields[index + 1]).ok()? })
        };
        Some(Run {
            id: text(0),
            file: text(1),
            source: text(2),
            device: text(3),
            model: text(4),
            software: text(5),
            family: text(6),
            settings: text(7),
            parameters: count(8),
            gpus: count(9),
            batch: count(10),
            sequence: count(11),
            figures: [12, 14, 16].map(figure),
            verdicts: Confusion::of_counts(fields[18].split(' ').filter_map(|count| count.parse().ok())),
            reason: text(19),
            link: text(20),
        })
    }
}

/// All runs as a file with a line for each below the names of its columns.
pub fn write_runs(runs: &[Run]) -> String {
    let lines = runs.iter().map(Run::written);
    [COLUMNS.join("\t")].into_iter().chain(lines).map(|line| line + "\n").collect()
}

/// The runs of such a file. What is no line of it is left out.
pub fn read_runs(text: &str) -> Vec<Run> {
    text.lines().skip(1).filter_map(Run::read).collect()
}

/// The measured run that is most like a scenario: of its task, without which there is none; of its software, its family and
/// its settings where there is one, and of about its size.
///
/// ```
/// let rows = r#"[{"id": "mine", "reading": {
///     "scenario": {"model": "gpt2", "method": "full", "precision": "bf16", "batch-size": 4, "seq-length": 1024},
///     "metric": "allocated", "bytes": 3000000000}}]"#;
/// let (_, runs) = headroom::check::check_runs("mine", rows).unwrap();
/// let scenario = headroom::scenario::Scenario::default();
/// let nearest = headroom::check::nearest(&runs, &scenario.architecture().unwrap(), &scenario);
/// assert_eq!(nearest.map(|run| run.id.as_str()), Some("mine"));
/// ```
pub fn nearest<'a>(runs: &'a [Run], architecture: &Architecture, scenario: &Scenario) -> Option<&'a Run> {
    let (software, settings) = (software(scenario), key(scenario));
    let parameters = architecture.parameters();
    let distance = |run: &Run| {
        let words = |one: &str, other: &str| {
            one.split(' ').filter(|word| !other.split(' ').any(|own| own == *word)).count()
        };
        let settings = words(&run.settings, &settings) + words(&settings, &run.settings);
        let other = |differs: bool, weight: f64| if differs { weight } else { 0. };
        other(run.software != software, 300.)
            + other(run.family != architecture.model_type, 100.)
            + other(run.method() != scenario.method.slug(), 50.)
            + 10. * settings as f64
            + apart(run.parameters, parameters)
            + apart(run.sequence, scenario.sequence)
            + apart(run.batch, scenario.batch)
            + apart(run.gpus, gpus(scenario))
    };
    // what another task takes says nothing of this one
    let of_task = runs.iter().filter(|run| run.task() == scenario.task);
    let distances = of_task.map(|run| (distance(run), run));
    distances.min_by(|one, other| one.0.total_cmp(&other.0)).map(|(_, run)| run)
}

/// How far two sizes are apart: 1 where one is e times the other.
fn apart(one: u64, other: u64) -> f64 {
    (one.max(1) as f64 / other.max(1) as f64).ln().abs()
}

fn gpus(scenario: &Scenario) -> u64 {
    if scenario.cluster.is_many() { scenario.cluster.gpus } else { 1 }
}

/// A text that breaks no line and no field.
fn flat(text: &str) -> String {
    text.replace(['\t', '\n', '\r'], " ")
}

/// Where a row was published, as an address; its `source` is `organisation/name:path` of GitHub, or an object with `repo`, `commit` and
/// `path`.
fn source(row: &Value) -> String {
    let text = |pointer| row.pointer(pointer).and_then(Value::as_str);
    let in_words = text("/source").and_then(|source| source.split_once(':'));
    let (project, commit, path) = match (in_words, text("/source/repo"), text("/source/path")) {
        (Some((project, path)), ..) => (project, text("/source_commit"), path),
        (None, Some(project), Some(path)) => (project, text("/source/commit"), path),
        (None, ..) => return String::new(),
    };
    format!("https://github.com/{project}/blob/{}/{path}", commit.unwrap_or("HEAD"))
}

fn device(row: &Value) -> String {
    let text = |pointer| row.pointer(pointer).and_then(Value::as_str);
    match (text("/gpu_model"), text("/device/cc")) {
        (Some(card), _) => card.to_owned(),
        (None, Some(capability)) => {
            let torch =
                text("/versions/torch").map(|version| format!(", PyTorch {version}")).unwrap_or_default();
            format!("{NULL_DEVICE} as of compute capability {capability}{torch}")
        }
        (None, None) => String::new(),
    }
}

/// Why runs are missed: the file, the metric, a part of the run's name, the reason.
const MISSES: &str = include_str!("../../data/misses.tsv");

/// Why a figure of the run is missed, where it is and that was found out.
fn reason(run: &Run) -> &'static str {
    let said = MISSES.lines().filter_map(|line| {
        let mut fields = line.splitn(4, '\t');
        Some((fields.next()?, fields.next()?, fields.next()?, fields.next()?))
    });
    let is_missed = |slug: &str| {
        let metric = Metric::ALL.into_iter().find(|metric| metric.slug() == slug);
        metric.and_then(|metric| run.figure(metric)).is_some_and(Figure::is_miss)
    };
    let mut own =
        said.filter(|(file, metric, id, _)| *file == run.file && run.id.contains(id) && is_missed(metric));
    own.next().map_or("", |(_, _, _, reason)| reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(id: &str, scenario: &Scenario) -> Run {
        let case = Case { scenario: scenario.clone(), bounded: false, measured: Vec::new() };
        let row = |metric, measured, predicted| Row {
            id: id.to_owned(),
            metric,
            measured: Bytes(measured),
            predicted: Bytes(predicted),
            error_pct: 0.,
        };
        let rows = [row(Metric::Allocated, 1000, 1001), row(Metric::Driver, 2000, 1900)];
        let value = serde_json::json!({"source": "a/b:c/d.md", "gpu_model": "T4\tx"});
        Run::of("some", id, &value, &case, &rows, Confusion::of_counts(1..=12))
    }

    #[test]
    fn what_is_written_is_read() {
        let runs =
            [run("one", &Scenario::default()), run("two\t2", &Scenario { batch: 3, ..Scenario::default() })];
        let read = read_runs(&write_runs(&runs));
        assert_eq!(read[0], Run { device: "T4 x".to_owned(), ..runs[0].clone() });
        assert_eq!((read.len(), read[1].id.as_str(), read[1].batch), (2, "two 2", 3));
        assert_eq!(read[0].source, "https://github.com/a/b/blob/HEAD/c/d.md");
        assert_eq!(read[1].scenario().map(|scenario| scenario.batch), Some(3));
        let errors =
            Metric::ALL.map(|metric| read[0].figure(metric).map(|figure| figure.error_pct().round()));
        assert_eq!(errors, [Some(0.), None, Some(-5.)]);
        assert_eq!((read[0].method(), read[0].stack()), ("qlora", "transformers"));
    }

    #[test]
    fn anything_can_be_read() {
        for text in ["", "\n", "a\tb\nc", &"\t".repeat(20), &format!("x\n{}", "\t".repeat(19)), "x\n\u{0}"] {
            assert_eq!(read_runs(text), [], "{text:?}");
        }
        let line = format!("x\n{}", "\t".repeat(20));
        assert_eq!(read_runs(&line).len(), 1);
    }

    #[test]
    fn the_nearest_is_of_its_kind_first_and_then_of_its_size() {
        use crate::scenario::{Method, Stack};
        let base = Scenario::default();
        let far = Scenario { sequence: 64 * base.sequence, batch: 64, ..base.clone() };
        let near = Scenario { batch: 2, ..base.clone() };
        let lora = Scenario { method: Method::Lora, ..base.clone() };
        let other = Scenario { stack: Stack::Unsloth, ..base.clone() };
        let runs = [run("other", &other), run("lora", &lora), run("far", &far), run("near", &near)];
        let of = |runs: &[Run]| nearest(runs, &base.architecture().unwrap(), &base).unwrap().id.clone();
        assert_eq!(of(&runs), "near");
        assert_eq!(of(&runs[..3]), "far");
        assert_eq!(of(&runs[..2]), "lora");
        assert_eq!(of(&runs[..1]), "other");
        assert_eq!(nearest(&[], &base.architecture().unwrap(), &base), None);
    }

    /// Every task has measured runs, and the nearest to a scenario of it is one of them, of its method where there is one.
    #[test]
    fn the_nearest_is_of_the_same_task() {
        let runs = read_runs(include_str!("../../data/measured.tsv"));
        for task in Task::ALL {
            for method in task.methods() {
                let mut scenario = Scenario::default();
                scenario.change(|scenario| scenario.task = *task);
                scenario.change(|scenario| scenario.method = *method);
                let run = nearest(&runs, &scenario.architecture().unwrap(), &scenario);
                let run = run.unwrap_or_else(|| panic!("no run of {} was measured", task.slug()));
                let own = run.scenario().unwrap_or_else(|| panic!("{}: its link is read", run.id));
                assert_eq!((own.task, run.task()), (*task, *task), "{}", run.id);
                assert_eq!(run.method(), own.method.slug(), "{}", run.id);
                let family = &scenario.architecture().unwrap().model_type;
                let is_measured = runs.iter().any(|run| {
                    (run.task(), run.software.as_str(), &run.family, run.method())
                        == (*task, software(&scenario).as_str(), family, method.slug())
                });
                assert!(
                    !is_measured || own.method == *method,
                    "{} {}: {}",
                    task.slug(),
                    method.slug(),
                    run.id
                );
            }
        }
        let fine_tuned: Vec<Run> = runs.into_iter().filter(|run| run.task() == Task::Sft).collect();
        let generates = Scenario { task: Task::Generate, ..Scenario::default() };
        assert_eq!(nearest(&fine_tuned, &generates.architecture().unwrap(), &generates), None);
    }
}
