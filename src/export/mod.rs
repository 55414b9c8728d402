//! Answers to take away: Markdown for an issue, CSV for a spreadsheet, JSON for a script, plain text, and
//! a run's blocks for PyTorch's memory_viz.
//!
//! Text, Markdown and CSV are written from the same [`Sheet`]: one column per scenario, one line per choice, verdict,
//! part and phase.

mod answers;
mod configuration;
mod deepspeed;
mod fsdp;
mod levers;
mod memory_viz;
mod pace;
mod projected;
mod rate;
mod read;
mod script;
mod sheet;
mod taken;

use std::fmt::Write;

use serde_json::{Map, Value, json};

use crate::issue::Severity;
use crate::memory::{Iteration, Memory, Parameters, Parts};
use crate::plan::{Level, Margin, Outcome};
use crate::scenario::Scenario;
use crate::share;
use crate::text::one_line;
use crate::units::{Between, Bytes, grouped};

pub use crate::plan::Answer;
pub use configuration::{Configuration, Written, configuration};
pub use levers::{fewest_gpus_json, levers_json};
pub use memory_viz::memory_viz;
pub use pace::{cheapest_run, dollars, duration, pace_json, pace_lines, tokens_per_second};
pub use read::understood_json;
pub use script::{NAME as SCRIPT_NAME, script};
pub use sheet::{Cell, Line, Sheet};

/// The lines of a [`Sheet`] that everybody looks for, of which Markdown is made; all others are folded beneath them.
const FIRST: [&str; 10] = [
    "Model",
    "Method",
    "Training library",
    "GPU",
    "GPUs",
    "Sequence length",
    "Micro-batch size",
    "Needed",
    "Verdict",
    "Measured error",
];

/// A Markdown table that pastes well into an issue, with a link that opens the scenarios on the page at `address`: the ten lines
/// that everybody looks for, and all others folded beneath them.
pub fn markdown(answers: &[Answer], address: &str) -> String {
    let sheet = Sheet::of(answers);
    let mut out = format!("{}\n\n", in_markdown(&title(answers)));
    let (first, others): (Vec<&Line>, Vec<&Line>) =
        sheet.lines().partition(|line| FIRST.contains(&line.label.as_str()));
    out.push_str(&table_in_markdown(&first, sheet.columns));
    if !others.is_empty() {
        let table = table_in_markdown(&others, sheet.columns);
        // GitHub reads a table within HTML where an empty line stands before and behind it.
        let _ =
            write!(out, "\n<details>\n<summary>All settings and parts</summary>\n\n{table}\n</details>\n");
    }
    for remark in remarks(answers) {
        let _ = write!(out, "\n{}\n", in_markdown(&remark));
    }
    let link = share::encode(&answers.iter().map(|answer| answer.scenario.clone()).collect::<Vec<_>>());
    let _ = write!(out, "\n[Open in Headroom]({address}#{link})\n");
    out
}

fn table_in_markdown(lines: &[&Line], columns: usize) -> String {
    let mut out = String::new();
    let mut row = |label: &str, cells: &mut dyn Iterator<Item = String>| {
        let cells: Vec<_> =
            std::iter::once(label.to_owned()).chain(cells).map(|cell| in_markdown(&cell)).collect();
        // Writing to a `String` cannot fail.
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    };
    let head = |n: usize| if columns == 1 { "Answer".to_owned() } else { n.to_string() };
    row("Question", &mut (1..=columns).map(head));
    row("---", &mut (0..columns).map(|_| "---:".to_owned()));
    for line in lines {
        row(&line.label, &mut line.cells.iter().map(Cell::for_people));
    }
    out
}

/// What the table is of: `**GPU memory of Qwen/Qwen3-8B: 13.2 GiB, fits**`.
fn title(answers: &[Answer]) -> String {
    let models: Vec<String> = answers.iter().map(|answer| answer.scenario.model_name()).collect();
    let mut named: Vec<&str> = Vec::new();
    for model in &models {
        if !named.contains(&model.as_str()) {
            named.push(model);
        }
    }
    let found = match answers {
        [answer] => answer.fit().zip(answer.verdict()),
        _ => None,
    };
    let found = found.map(|(fit, verdict)| format!(": {}, {}", fit.needed, verdict.label().to_lowercase()));
    one_line(&format!("**GPU memory of {}{}**", named.join(" and "), found.unwrap_or_default()))
}

/// Text in a table or between: it neither ends a cell nor begins a tag, a link or an image.
fn in_markdown(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "\\<").replace('[', "\\[")
}

/// The answers as comma-separated values: bytes and counts to the last digit, what is missing on the card negative.
pub fn csv(answers: &[Answer]) -> String {
    let mut out = String::new();
    let mut put = |label: &str, cells: &[Cell], write: fn(&Cell) -> String| {
        out.push_str(&comma_separated(std::iter::once(label.to_owned()).chain(cells.iter().map(write))));
    };
    for line in Sheet::of(answers).lines() {
        if line.cells.iter().any(|cell| matches!(cell, Cell::Margin(..))) {
            put(&line.label, &line.cells, verdict);
            put("Left of the card", &line.cells, in_csv);
        } else {
            put(&line.label, &line.cells, in_csv);
        }
    }
    out
}

/// The verdict alone, of a cell that says what is left too.
fn verdict(cell: &Cell) -> String {
    match cell {
        Cell::Margin(verdict, _) => verdict.label().to_owned(),
        Cell::Empty | Cell::Text(_) | Cell::Count(_) | Cell::Amount(_) => in_csv(cell),
        Cell::UpToFailure(_) | Cell::Share { .. } => in_csv(cell),
    }
}

/// A line of comma-separated values, with its end.
pub(crate) fn comma_separated(cells: impl IntoIterator<Item = String>) -> String {
    let quoted: Vec<_> = cells.into_iter().map(|cell| quote(&cell)).collect();
    quoted.join(",") + "\r\n"
}

/// The cell to the last digit; words that a spreadsheet would compute stay words.
fn in_csv(cell: &Cell) -> String {
    match cell {
        Cell::Text(text) => no_formula(text),
        Cell::Empty | Cell::Count(_) | Cell::Amount(_) | Cell::UpToFailure(_) => cell.exact(),
        Cell::Share { .. } | Cell::Margin(..) => cell.exact(),
    }
}

/// Words that a spreadsheet does not take for a formula.
pub(crate) fn no_formula(text: &str) -> String {
    if text.starts_with(['=', '+', '-', '@']) { format!("'{text}") } else { text.to_owned() }
}

fn quote(cell: &str) -> String {
    if cell.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}

/// The answers in aligned columns: figures of several answers to the right, so that they compare; one answer to the left.
pub fn text(answers: &[Answer]) -> String {
    let sheet = Sheet::of(answers);
    let label = sheet.lines().map(|line| line.label.chars().count()).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = sheet.lines().filter_map(|line| line.cells.get(column));
        cells.map(|cell| cell.for_people().chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..sheet.columns).map(width).collect();
    let mut out = String::new();
    for (index, section) in sheet.sections.iter().enumerate() {
        if index > 0 {
            out.push('\n');
        }
        for line in section {
            let mut row = format!("{:label$}", line.label);
            for (cell, width) in line.cells.iter().zip(&widths) {
                let cell = cell.for_people();
                let _ = match sheet.columns {
                    1 => write!(row, "  {cell}"),
                    _ => write!(row, "  {cell:>width$}"),
                };
            }
            let _ = writeln!(out, "{}", row.trim_end());
        }
    }
    let remarks = remarks(answers);
    if !remarks.is_empty() {
        let _ = writeln!(out, "\n{}", remarks.join("\n"));
    }
    out
}

/// What is wrong, doubtful or assumed; with the number of the scenario where there are several.
fn remarks(answers: &[Answer]) -> Vec<String> {
    let mut remarks = Vec::new();
    for (index, Answer { estimate, .. }) in answers.iter().enumerate() {
        let which = if answers.len() > 1 { format!(" ({})", index + 1) } else { String::new() };
        remarks.extend(estimate.issues.iter().map(|issue| {
            let severity = match issue.severity {
                Severity::Note => "Note",
                Severity::Warning => "Warning",
                Severity::Error => "Error",
            };
            one_line(&format!("{severity}{which}: {issue}"))
        }));
    }
    remarks
}

/// What [`fn@json`] writes is of this form; one that readers of it would stumble over has another number.
pub const SCHEMA: &str = "headroom-estimate/1";

/// One answer as JSON; all amounts in bytes, and where there are several GPUs those on each of them, without NCCL's buffers but where these
/// are named (`nccl`, `nvidia_smi_with_nccl`).
/// Figures are left out where there is no estimate. Where `up_to_failure` is true the run ends for want of memory, and
/// `reserved` and `nvidia_smi` are what it had come to by then.
pub fn json(answer: &Answer) -> Value {
    let Answer { scenario, estimate, on_card } = answer;
    let mut out = Map::new();
    let mut put = |key: &str, value: Value| out.insert(key.to_owned(), value);
    put("schema", json!(SCHEMA));
    put("scenario", json!(scenario));
    put("changed", json!(scenario.changed().iter().map(|key| key.name).collect::<Vec<_>>()));
    put("link", json!(share::encode(std::slice::from_ref(scenario))));
    put("issues", json!(estimate.issues));
    if let Ok(gpu) = scenario.gpu() {
        put("gpu", json!({ "slug": *gpu.slug, "name": *gpu.name, "memory": gpu.memory }));
    }
    if scenario.cluster.is_many() {
        let alike = estimate.memory.as_ref().map_or(scenario.cluster.gpus, |memory| alike(scenario, memory));
        put("on_each_of_gpus", json!(alike));
        put("nccl", nccl(scenario));
    }
    if let Some(rank) = estimate.memory.as_ref().and_then(|memory| memory.rank) {
        put("stage", json!({ "number": rank.stage, "of": rank.stages, "holds": rank.words() }));
        let needed = needed_in_stages(answer);
        if !needed.is_empty() {
            put("needed_in_stages", json!(needed));
        }
    }
    if let (Some(fit), Some(verdict)) = (answer.fit(), answer.verdict()) {
        let left = match fit.margin {
            Margin::Headroom(bytes) => json!(bytes),
            Margin::Overshoot(bytes) => json!(-i64::try_from(bytes.0).unwrap_or(i64::MAX)),
        };
        put("fits", json!(answer.runs()));
        put("verdict", json!(verdict.slug()));
        put("left", left);
        put("level", json!(Level::of(&fit)));
    }
    if let Some(on_card) = on_card {
        put("reserved", json!(on_card.reserved));
        put("nvidia_smi", json!(on_card.shown));
        if let Some(gpu) = scenario.gpu().ok().filter(|_| scenario.cluster.is_many()) {
            put("nvidia_smi_with_nccl", json!(on_card.with(scenario.nccl(), &gpu)));
        }
        put("up_to_failure", json!(matches!(on_card.outcome, Outcome::Fails(_))));
    }
    if let Some(memory) = &estimate.memory {
        let (phase, peak) = memory.peak();
        put("needed", json!(memory.needed()));
        put("context", json!(memory.context));
        put("peak", json!({ "phase": phase.slug(), "bytes": peak.bytes, "parts": parts(&peak.parts) }));
        put("phases", json!({ "first": phases(&memory.first), "steady": phases(&memory.steady) }));
        put("resting", parts(&memory.resting));
        put("parameters", parameters(scenario, memory));
        put("host", host(scenario, memory));
        if let Some(band) = answer.band() {
            let error = json!({
                "percent": band.percent,
                "more_percent": band.more_percent,
                "reserved_percent": band.reserved_percent,
                "rests_on": band.rests_on(),
                "runs": band.rows,
                "on_real_gpus": band.on_cards,
            });
            put("measured_error", error);
        }
        if let Some(pace) = answer.pace() {
            put("time", pace_json(scenario, &pace));
        }
    }
    Value::Object(out)
}

/// What a GPU of each stage of a pipeline needs, where the answer is that of the one that needs most; else nothing.
fn needed_in_stages(answer: &Answer) -> Vec<Bytes> {
    let rank = answer.estimate.memory.as_ref().and_then(|memory| memory.rank);
    let Some(rank) = rank.filter(|_| answer.scenario.cluster.layout.stage == 0) else { return Vec::new() };
    let needed = |stage| {
        let mut scenario = answer.scenario.clone();
        scenario.cluster.layout.stage = stage;
        Some(Answer::of(scenario).estimate.memory?.needed())
    };
    (1..=rank.stages).map(needed).collect::<Option<Vec<Bytes>>>().unwrap_or_default()
}

/// NCCL's communicators of a GPU, and what they take of it.
fn nccl(scenario: &Scenario) -> Value {
    let named = scenario.communicators().into_iter().map(|own| json!({ "of": own.of, "gpus": own.gpus }));
    let Between { least, most } = scenario.nccl();
    json!({
        "communicators": named.collect::<Vec<_>>(),
        "least": least,
        "most": most,
        "source": scenario.nccl_source(),
    })
}

/// What processes have of the CPU's memory, each and all of a machine, and the known machine that has most RAM with as many of the card.
fn host(scenario: &Scenario, memory: &Memory) -> Value {
    let parameters = scenario.architecture().map_or(memory.parameters.total, |model| model.parameters());
    let need = scenario.host(memory, parameters);
    json!({
        "read_by_each": need.loading,
        "may_be_read_once": need.loads_once,
        "offloaded_of_each": need.offloaded,
        "of_first": need.first,
        "of_each": need.each,
        "gpus_per_machine": need.processes,
        "read_by_machine": need.machine_loading(),
        "of_machine": need.machine(),
        "roomiest_known_machine": scenario.known_host().map(|host| {
            json!({ "name": host.name, "gpus": host.gpus, "ram": host.ram, "has_enough": need.least() <= host.ram })
        }),
    })
}

fn parts(parts: &Parts) -> Value {
    parts
        .iter()
        .map(|(category, bytes)| (category.slug().to_owned(), json!(bytes)))
        .collect::<Map<_, _>>()
        .into()
}

fn phases(iteration: &Iteration) -> Value {
    let peaks = iteration.phases.iter().map(|(phase, peak)| {
        (phase.slug().to_owned(), json!({ "bytes": peak.bytes, "parts": parts(&peak.parts) }))
    });
    Map::from_iter(peaks).into()
}

fn parameters(scenario: &Scenario, memory: &Memory) -> Value {
    let Counts { whole, part } = Counts::of(scenario, memory);
    let mut counts = json!({ "total": whole.total, "trainable": whole.trainable });
    if let (Some(part), Value::Object(counts)) = (part, &mut counts) {
        counts.insert("on_each_gpu".to_owned(), json!(part));
    }
    counts
}

/// On how many GPUs the figures are the same: on all of them, or on those of the stage that needs most.
fn alike(scenario: &Scenario, memory: &Memory) -> u64 {
    scenario.cluster.gpus / memory.rank.map_or(1, |rank| rank.stages.max(1))
}

/// Whose the figures are where there are several GPUs: `on each of 32 GPUs of stage 2 of 16, which holds 8 layers … (ranks 32 to 63)`.
pub fn whose(scenario: &Scenario, memory: &Memory) -> Option<String> {
    let each = alike(scenario, memory);
    let of =
        memory.rank.map_or_else(String::new, |rank| format!(" of {} ({})", rank.words(), rank.ranks(each)));
    scenario.cluster.is_many().then(|| match each {
        1 => format!("on the one GPU{of}"),
        _ => format!("on each of {} GPUs{of}", grouped(each)),
    })
}

/// How many parameters there are.
struct Counts {
    /// All of them.
    whole: Parameters,
    /// This GPU's, where a GPU has a part of the model's modules and no shards of all.
    part: Option<u64>,
}

impl Counts {
    fn of(scenario: &Scenario, memory: &Memory) -> Counts {
        let own = memory.parameters;
        let layout = scenario.divided();
        let total = match scenario.architecture() {
            Ok(model) if layout.parts() > 1 || layout.experts > 1 => model.parameters(),
            _ => return Counts { whole: own, part: None },
        };
        // what is divided so is trained as a whole, or not at all
        let trainable = if own.trainable == own.total { total } else { own.trainable };
        Counts { whole: Parameters { total, trainable }, part: Some(own.total) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::Estimate;
    use crate::issue::{Field, Issue};
    use crate::memory::{Counted, Peak, Phase, Stage, WholeExperts};
    use crate::scenario::{Method, ModelChoice};

    /// 600 weights, 300 activations and 100 of context on the default card; an answer made by hand.
    fn answer() -> Answer {
        let mut parts = Parts::default();
        parts.0[0] = 600;
        parts.0[6] = 300;
        let peak = Peak { bytes: Bytes(900), parts };
        let stages = [(0, Stage::Forward), (0, Stage::Backward), (1, Stage::Step)];
        let phases = stages.map(|(act, stage)| (Phase { act, stage }, peak));
        let iteration = Iteration { phases: phases.to_vec() };
        let memory = Memory {
            counted: Counted::Tensors,
            parameters: Parameters { total: 1_234, trainable: 12 },
            first: iteration.clone(),
            steady: iteration,
            resting: parts,
            context: Bytes(100),
            offloaded: Bytes::ZERO,
            paged: Bytes::ZERO,
            host: crate::memory::HostSpikes::default(),
            rank: None,
            on_host: Bytes::ZERO,
            experts: WholeExperts::default(),
            work: Vec::new(),
        };
        let scenario = Scenario { method: Method::Full, ..Scenario::default() };
        Answer { scenario, estimate: Estimate { issues: vec![], memory: Some(memory) }, on_card: None }
    }

    /// No model, and so no figure.
    fn unanswered() -> Answer {
        let scenario =
            Scenario { model: ModelChoice::Catalogue("a|b, \"c\"".to_owned()), ..Scenario::default() };
        let issues = vec![Issue::error(Field::Model, "no model is called that").with_fix("use another")];
        Answer { scenario, estimate: Estimate { issues, memory: None }, on_card: None }
    }

    #[test]
    fn markdown_escapes_and_links() {
        let text = markdown(&[answer(), unanswered()], "https://example.org/");
        for part in [
            "**GPU memory of meta-llama/Llama-3.1-8B and a\\|b, \"c\"**\n\n| Question | 1 | 2 |\n| --- | ---: | ---: |\n| Model | meta-llama/Llama-3.1-8B | a\\|b, \"c\" |\n",
            "| Needed | 1,000 B |  |\n",
            "| Weights | 600 B (60.0 %) |  |\n",
            // with the driver's part, as the page has it
            "| Peak in the forward pass, first step | 1,000 B |  |\n",
            "\nError (2): no model is called that (use another)\n",
            "\n[Open in Headroom](https://example.org/#v=1&method=full&2.m=a%7Cb~,%20%22c%22&2.method=qlora)\n",
        ] {
            assert!(text.contains(part), "{part}{text}");
        }
    }

    #[test]
    fn what_is_not_at_its_default_has_a_row() {
        let mut other = answer();
        let alone = markdown(&[answer()], "");
        assert!(alone.contains("| Training library | transformers 5.17 + PEFT 0.21 |"), "{alone}");
        assert!(!alone.contains("Optimizer step") && !alone.contains("Double quantisation"), "{alone}");
        // FP8, QAT, torch.compile, padding, lengths, evaluation, checkpoints, step, dropout, three habits of the loop, CPU offload, and seven of card and data; all else is LoRA's, QLoRA's and that of several GPUs
        assert!(alone.contains("| Other settings, at their default | 20 |"), "{alone}");
        other.scenario.method = Method::Qlora;
        other.scenario.quantization.double_quant = false;
        other.scenario.training_loop.keeps_outputs = true;
        let text = markdown(&[answer(), other.clone()], "");
        // full fine-tuning quantises nothing
        assert!(text.contains("| Double quantisation |  | Off |"), "{text}");
        assert!(text.contains("| Outputs kept | Off | On |"), "{text}");
        assert_eq!(json(&other)["changed"], json!(["double-quant", "keep-outputs"]));
    }

    #[test]
    fn csv_quotes() {
        let text = csv(&[answer(), unanswered()]);
        for line in [
            "Model,meta-llama/Llama-3.1-8B,\"a|b, \"\"c\"\"\"",
            "Weights,600,",
            "Parameters,1234,",
            "Verdict,Fits,",
        ] {
            assert!(text.split("\r\n").any(|own| own == line), "{line}\n{text}");
        }
    }

    #[test]
    fn json_leaves_out_what_is_not_known() {
        let known = json(&answer());
        assert_eq!(known["needed"], 1_000);
        assert_eq!(known["peak"]["parts"], json!({ "weights": 600, "activations": 300 }));
        let error = &known["measured_error"];
        assert!(error["percent"].as_f64() > Some(0.) && error["runs"].as_u64() > Some(0), "{error}");
        let unknown = json(&unanswered());
        assert_eq!((unknown.get("needed"), unknown.get("measured_error")), (None, None));
        assert_eq!(unknown["issues"][0]["severity"], "error");
        assert_eq!(unknown["issues"][0]["field"], "model");
    }

    #[test]
    fn text_says_nothing_where_there_is_nothing() {
        let text = text(&[unanswered()]);
        assert!(!text.contains("Needed"), "{text}");
        assert!(text.ends_with("\nError: no model is called that (use another)\n"), "{text}");
    }
}
