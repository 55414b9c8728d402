//! What other calculators say of published runs (`data/peers.tsv`) is of runs that Headroom predicts, and docs/accuracy.md says what is
//! computed of both. `HEADROOM_BLESS=1 cargo test --test peers` writes its tables anew.
#![cfg(not(target_arch = "wasm32"))]

use std::collections::HashSet;
use std::path::Path;

use headroom::check::{Compared, Errors, Figure, Metric, Others, Run, read_runs};
use headroom::units::Bytes;

const PEERS: &str = include_str!("../data/peers.tsv");
/// Of runs of Megatron-LM on several GPUs, by calculators that know of several.
const MANY: &str = include_str!("../data/peers-many.tsv");
const MANY_FILES: [(&str, &str); 2] =
    [("clusters", "MooreThreads/SimuMax, 8 B200"), ("megatron-lm", "Megatron-LM’s own tests")];
const DOCUMENT: &str = "docs/accuracy.md";

fn runs() -> Vec<Run> {
    read_runs(include_str!("../data/measured.tsv"))
}

#[test]
fn every_answer_is_to_a_published_run_of_one_gpu_and_every_such_run_was_asked_about() {
    let (runs, others) = (runs(), Others::read(PEERS));
    let own = runs.iter().filter(|run| run.file == "published" && run.gpus == 1);
    let own: HashSet<&str> = own.map(|run| run.id.as_str()).collect();
    let asked: HashSet<&str> = others.asked().collect();
    assert_eq!(own, asked);
    // a name that another file has too would be answered twice
    let answered = runs.iter().filter(|run| others.of(run).is_some()).count();
    assert_eq!(answered, asked.len());
    assert_eq!(PEERS.lines().count(), asked.len() + 1 + others.calculators.len() + reasons(PEERS).len());
    let groups = others.groups(&runs);
    assert_eq!(groups.iter().map(|group| group.own().count).sum::<usize>(), asked.len());
}

#[test]
fn every_rank_of_megatron_lm_was_asked_about() {
    let (runs, others) = (runs(), Others::read(MANY));
    let is_one = |run: &&Run| MANY_FILES.iter().any(|(file, _)| *file == run.file);
    let own: HashSet<&str> = runs.iter().filter(is_one).map(|run| run.id.as_str()).collect();
    assert_eq!(own, others.asked().collect::<HashSet<&str>>());
    assert_eq!(runs.iter().filter(is_one).count(), own.len());
}

/// What stands for having no number.
fn reasons(text: &str) -> Vec<&str> {
    text.lines().filter_map(|line| line.strip_prefix("reason\t")?.split('\t').next()).collect()
}

#[test]
fn every_cell_is_a_number_or_a_reason() {
    for text in [PEERS, MANY] {
        let reasons = reasons(text);
        let rows = text.lines().skip_while(|line| !line.starts_with("row\t")).skip(1);
        for line in rows {
            for cell in line.split('\t').skip(1) {
                let is_plausible = cell.parse::<u64>().is_ok_and(|bytes| bytes > 100_000_000);
                assert!(is_plausible || reasons.contains(&cell), "{cell} in {line}");
            }
        }
    }
}

fn percent(errors: &Errors) -> String {
    format!("{:.2} %", errors.median_pct)
}

/// The table of all rows by calculator.
fn by_calculator(runs: &[Run], others: &Others) -> String {
    let mut lines = vec![
        "| calculator | rows | median, mean | Headroom on the same | nearer than Headroom | without fitcheck's own rows | Headroom on the same |"
            .to_owned(),
        "|---|---|---|---|---|---|---|".to_owned(),
    ];
    for (index, calculator) in others.calculators.iter().enumerate() {
        let [all, unfitted] = [true, false].map(|fitted| others.compared(runs, index, fitted));
        let both = |errors: &Errors| format!("{}, {:.1} %", percent(errors), errors.mean_pct);
        let Compared { theirs, own, nearer, .. } = &all;
        lines.push(format!(
            "| [{}]({}) | {} | {} | {} | {nearer} | {} of {} | {} |",
            calculator.name,
            calculator.code,
            theirs.count,
            both(theirs),
            both(own),
            both(&unfitted.theirs),
            unfitted.theirs.count,
            both(&unfitted.own),
        ));
    }
    lines.join("\n")
}

/// The table of the sources.
fn by_source(runs: &[Run], others: &Others) -> String {
    let names = others.calculators.iter().map(|one| one.name.split(' ').next().unwrap_or_default());
    let names = ["published figures", "rows", "Headroom"].into_iter().chain(names).collect::<Vec<_>>();
    let mut lines = vec![format!("| {} |", names.join(" | ")), format!("|{}", "---|".repeat(names.len()))];
    for group in others.groups(runs) {
        let own = group.own();
        let metric = match group.metric {
            Metric::Driver => "nvidia-smi",
            other => other.slug(),
        };
        let trained = if group.is_full { "full" } else { "LoRA, QLoRA" };
        let of = |index| {
            let Compared { theirs, own: beside, .. } = group.compared(index);
            match theirs.count {
                0 => "–".to_owned(),
                count if count == own.count => percent(&theirs),
                count => format!("{} of {count} ({})", percent(&theirs), percent(&beside)),
            }
        };
        let cells = (0..others.calculators.len()).map(of).collect::<Vec<_>>().join(" | ");
        let head = format!("{}, {trained}, {metric}", group.project);
        lines.push(format!("| {head} | {} | {} | {cells} |", own.count, percent(&own)));
    }
    lines.join("\n")
}

/// The table of several GPUs.
fn by_rank(runs: &[Run], text: &str) -> String {
    let others = Others::read(text);
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split('\t').collect()).collect();
    let names = others.calculators.iter().map(|one| one.name.split(' ').next().unwrap_or_default());
    let names = ["on several GPUs", "figures", "Headroom"].into_iter().chain(names).collect::<Vec<_>>();
    let mut lines = vec![format!("| {} |", names.join(" | ")), format!("|{}", "---|".repeat(names.len()))];
    for (file, name) in MANY_FILES {
        for metric in [Metric::Allocated, Metric::Reserved] {
            let own: Vec<(&Run, Figure)> = runs
                .iter()
                .filter(|run| run.file == file)
                .filter_map(|run| Some((run, run.figure(metric)?)))
                .collect();
            if own.is_empty() {
                continue;
            }
            let over = |index: usize| {
                let said = |run: &Run| {
                    let row = rows.iter().find(|row| row[0] == run.id)?;
                    row.get(index + 1)?.parse().ok().map(Bytes)
                };
                let both = own.iter().filter_map(|(run, figure)| {
                    let theirs = Figure { predicted: said(run)?, ..*figure };
                    Some((theirs.error_pct(), figure.error_pct()))
                });
                let (theirs, beside): (Vec<f64>, Vec<f64>) = both.unzip();
                let (theirs, beside) = (Errors::of(theirs), Errors::of(beside));
                match theirs.count {
                    0 => "–".to_owned(),
                    count if count == own.len() => percent(&theirs),
                    count => format!("{} of {count} ({})", percent(&theirs), percent(&beside)),
                }
            };
            let all = Errors::of(own.iter().map(|(_, figure)| figure.error_pct()));
            let cells = (0..others.calculators.len()).map(over).collect::<Vec<_>>().join(" | ");
            let slug = metric.slug();
            lines.push(format!("| {name}, {slug} | {} | {} | {cells} |", own.len(), percent(&all)));
        }
    }
    lines.join("\n")
}

/// The table of a document that begins as another one does.
fn table_like<'t>(document: &'t str, table: &str) -> Option<&'t str> {
    let start = document.find(table.lines().next()?)?;
    let rest = &document[start..];
    Some(rest.split("\n\n").next().unwrap_or(rest).trim_end())
}

#[test]
fn the_document_says_what_is_computed() {
    let (runs, others) = (runs(), Others::read(PEERS));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(DOCUMENT);
    let mut document = std::fs::read_to_string(&path).expect("the document");
    for table in [by_calculator(&runs, &others), by_source(&runs, &others), by_rank(&runs, MANY)] {
        let found = table_like(&document, &table).expect("a table with these columns").to_owned();
        if std::env::var_os("HEADROOM_BLESS").is_some() {
            document = document.replace(&found, &table);
            std::fs::write(&path, &document).expect("it can be written");
        } else {
            assert_eq!(found, table, "{DOCUMENT} differs; HEADROOM_BLESS=1 writes it");
        }
    }
    // each answer, and which calculators have an input, is in the figures
    let all = others.compared(&runs, 0, true);
    for lacks in &all.lacks {
        assert!(document.contains(&lacks.0), "{DOCUMENT} does not say that one lacks {}", lacks.0);
    }
}

#[test]
fn another_number_or_another_run_makes_another_table() {
    let runs = runs();
    let others = Others::read(PEERS);
    let table = by_source(&runs, &others);
    let line = PEERS.lines().find(|line| line.starts_with("qwen-readme-7B-lora-512\t")).expect("a row");
    let mut cells: Vec<&str> = line.split('\t').collect();
    cells[1] = "1000000000000";
    let changed = PEERS.replace(line, &cells.join("\t"));
    assert_ne!(by_source(&runs, &Others::read(&changed)), table);
    cells[1] = "model";
    let lacking = Others::read(&PEERS.replace(line, &cells.join("\t")));
    assert_eq!(
        lacking.compared(&runs, 0, true).theirs.count + 1,
        others.compared(&runs, 0, true).theirs.count
    );
    let several = by_rank(&runs, MANY);
    let last = MANY.lines().last().expect("a row");
    assert_ne!(by_rank(&runs, &MANY.replace(last, "")), several);
    let fewer: Vec<Run> = runs.into_iter().filter(|run| run.id != "qwen-readme-7B-lora-512").collect();
    assert_ne!(by_source(&fewer, &others), table);
}
