//! The figures in the documents are those of `data/measured.tsv`, which `tests/accuracy/` holds equal to what is predicted.
//! `HEADROOM_BLESS=1 cargo test --test figures` writes them anew (after `--test accuracy` has written the data).
//!
//! What a sentence says of measured runs stands in `sentences.rs` as it is in the document, with a name in braces for each figure:
//! `{families reserved worst}`, or the bytes of a link's scenario: `{=m=gpt2&b=4}`. How the lines are broken makes no difference.
#![cfg(not(target_arch = "wasm32"))]

mod sentences;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::OnceLock;

use headroom::check::{
    Confusion, Errors, Figure, Metric, Run, TimeErrors, TimeReport, Use, Verdicts, check_time, read_runs,
};
use headroom::plan::Answer;
use headroom::share;
use headroom::units::grouped;
use sentences::SENTENCES;

/// Files with a table of their own in docs/accuracy.md, behind the first mention of the file.
const TABLES: [&str; 8] =
    ["null-device", "families", "drawn", "random", "switches", "megatron", "packed", "trl"];

const TABLE: &str = "| allocated peak | {F rows} | {F allocated median} % | {F allocated mean} % | {F allocated p95} % | {F allocated worst} % |
| reserved peak | {F reserved rows} | {F reserved median} % | {F reserved mean} % | {F reserved p95} % | {F reserved worst} % |";

fn runs() -> &'static [Run] {
    static RUNS: OnceLock<Vec<Run>> = OnceLock::new();
    RUNS.get_or_init(|| read_runs(include_str!("../../data/measured.tsv")))
}

/// The runs of a name: a file, then which of its runs, each part behind a sign: `@` the project that published them, `:` a part of
/// their names, `~` their method, `#` a word of their settings, `+` the stack, `+!` any other stack.
fn selected(name: &str) -> Vec<&'static Run> {
    let starts = |c: char| "@:~#+".contains(c);
    let end = name.find(starts).unwrap_or(name.len());
    let mut found: Vec<&Run> = runs().iter().filter(|run| run.file == name[..end]).collect();
    let mut rest = &name[end..];
    while let Some(sign) = rest.chars().next() {
        let end = rest[1..].find(starts).map_or(rest.len(), |end| end + 1);
        let what = &rest[1..end];
        found.retain(|run| match (sign, what.strip_prefix('!')) {
            ('@', _) => run.source.contains(&format!("/{what}/")),
            (':', _) => run.id.contains(what),
            ('~', _) => run.method() == what,
            ('#', _) => run.settings.split(' ').any(|word| word == what),
            (_, Some(other)) => run.stack() != other,
            (_, None) => run.stack() == what,
        });
        rest = &rest[end..];
    }
    assert!(!found.is_empty(), "no run is {name}");
    found
}

/// The errors of a metric, or of all that were measured.
fn errors(runs: &[&Run], metric: &str) -> Errors {
    let of = |wanted: Metric| runs.iter().filter_map(move |run| run.figure(wanted)).map(Figure::error_pct);
    match Metric::ALL.into_iter().find(|known| known.slug() == metric) {
        Some(metric) => Errors::of(of(metric)),
        None => Errors::of(Metric::ALL.into_iter().flat_map(of)),
    }
}

/// Speeds that others published, beside what is predicted.
fn speeds() -> &'static TimeReport {
    static SPEEDS: OnceLock<TimeReport> = OnceLock::new();
    SPEEDS.get_or_init(|| check_time(include_str!("../../data/measurements/time.json")).expect("rows"))
}

/// What a name in braces stands for.
fn value(name: &str) -> String {
    if let Some(link) = name.strip_prefix('=') {
        let shared = share::decode(&format!("v=1&{link}"));
        assert!(shared.notices.is_empty(), "{link}: {:?}", shared.notices);
        let answer = Answer::of(shared.scenarios[0].clone());
        return grouped(answer.estimate.memory.expect("an answer").peak().1.bytes.0);
    }
    let words: Vec<&str> = name.split(' ').collect();
    let count = |count: usize| grouped(count as u64);
    if let ["verdicts", known, rest @ ..] = &words[..] {
        let mut all = Confusion::default();
        runs().iter().for_each(|run| all.add(&run.verdicts));
        let verdicts: Verdicts = if *known == "runs" { all.runs } else { all.fails };
        return count(match rest {
            [] => verdicts.total(),
            ["fits"] => verdicts.fits,
            ["close"] => verdicts.close,
            ["tight"] => verdicts.tight,
            ["over"] => verdicts.over,
            _ => panic!("{name}"),
        });
    }
    if let ["speeds", what] = words[..] {
        let kept = speeds().rows.iter().filter(|row| row.purpose == Use::Check && !row.generates);
        let errors = TimeErrors::of(kept);
        return match what {
            "rows" => count(errors.count),
            "median" => format!("{:.1}", errors.median_pct),
            "covered" => format!("{:.0}", errors.covered_pct),
            _ => panic!("{name}"),
        };
    }
    let (found, metric, what) = match words[..] {
        [found, "rows"] => (found, "allocated", "rows"),
        [found, metric, what] => (found, metric, what),
        _ => panic!("{name}"),
    };
    let errors = errors(&selected(found), metric);
    let percent = |percent: f64| format!("{percent:.2}");
    match what {
        "rows" => count(errors.count),
        "median" => percent(errors.median_pct),
        "mean" => percent(errors.mean_pct),
        "p95" => percent(errors.p95_pct),
        "worst" => percent(errors.worst_pct),
        "row" => format!(
            "{} | {:.2} % | {:.2} % | {:.2} %",
            count(errors.count),
            errors.median_pct,
            errors.mean_pct,
            errors.worst_pct
        ),
        _ => panic!("{name}"),
    }
}

/// Where a template stands in a text from there on: each figure's place, and its name.
fn places<'t>(text: &str, from: usize, template: &'t str) -> Option<Vec<(Range<usize>, &'t str)>> {
    let starts = text[from..].char_indices().map(|(index, _)| from + index);
    starts.into_iter().find_map(|start| matched(text, start, template))
}

fn matched<'t>(text: &str, start: usize, template: &'t str) -> Option<Vec<(Range<usize>, &'t str)>> {
    let (mut at, mut rest, mut found) = (start, template, Vec::new());
    while let Some(c) = rest.chars().next() {
        let here = &text[at..];
        if let Some((name, after)) = rest.strip_prefix('{').and_then(|rest| rest.split_once('}')) {
            let is_row = name.ends_with(" row");
            let of = |c: char| c.is_ascii_digit() || ".,".contains(c) || is_row && " |%".contains(c);
            let end = here.find(|c| !of(c)).unwrap_or(here.len());
            // what ends a sentence is none of a figure
            let trimmed = here[..end].trim_end_matches(['.', ',', ' ', '|']);
            if trimmed.is_empty() {
                return None;
            }
            found.push((at..at + trimmed.len(), name));
            at += trimmed.len();
            rest = after;
        } else if c.is_whitespace() {
            let blanks = here.len() - here.trim_start().len();
            if blanks == 0 {
                return None;
            }
            at += blanks;
            rest = rest.trim_start();
        } else {
            if !here.starts_with(c) {
                return None;
            }
            at += c.len_utf8();
            rest = &rest[c.len_utf8()..];
        }
    }
    Some(found)
}

#[test]
fn the_documents_say_what_was_measured() {
    let mut documents: BTreeMap<&str, String> = BTreeMap::new();
    let path = |name: &str| format!("{}/{name}", env!("CARGO_MANIFEST_DIR"));
    let tables = TABLES.map(|file| {
        (
            "docs/accuracy.md",
            format!("`data/measurements/{file}.json`"),
            TABLE.replace("{F ", &format!("{{{file} ")),
        )
    });
    let sentences =
        SENTENCES.iter().map(|(document, sentence)| (*document, String::new(), (*sentence).to_owned()));
    let mut stale = Vec::new();
    for (document, behind, template) in tables.into_iter().chain(sentences) {
        let text = documents
            .entry(document)
            .or_insert_with(|| std::fs::read_to_string(path(document)).expect("the document is there"));
        let from = text.find(&behind).unwrap_or_else(|| panic!("{document} does not mention {behind}"));
        let Some(found) = places(text, from, &template) else {
            stale.push(format!("{document} does not say: {template}"));
            continue;
        };
        for (place, name) in found.into_iter().rev() {
            let value = value(name);
            if text[place.clone()] != value {
                stale.push(format!("{document}: {name} is {value} and not {}", &text[place.clone()]));
                text.replace_range(place, &value);
            }
        }
    }
    if std::env::var_os("HEADROOM_BLESS").is_some() {
        documents.iter().for_each(|(name, text)| std::fs::write(path(name), text).expect("it is written"));
        stale.retain(|line| line.contains("does not say"));
    }
    assert!(stale.is_empty(), "HEADROOM_BLESS=1 cargo test --test figures writes them: {stale:#?}");
}

/// A reason that is given for misses is one of misses that there are.
#[test]
fn every_reason_is_one_of_a_miss() {
    for line in include_str!("../../data/misses.tsv").lines() {
        let [file, metric, name, _] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let metric = Metric::ALL.into_iter().find(|known| known.slug() == metric).expect("a metric");
        let is_missed = |run: &Run| {
            run.file == file && run.id.contains(name) && run.figure(metric).is_some_and(Figure::is_miss)
        };
        assert!(
            runs().iter().any(is_missed),
            "no run is missed any more of which data/misses.tsv says: {line}"
        );
    }
}

#[test]
fn a_figure_is_found_wherever_lines_are_broken() {
    let text = "one. Over 1,043\nsteps: 0.06 %\nand 3.";
    let found = places(text, 0, "Over {rows} steps: {worst} % and {last}.").expect("it is there");
    let values: Vec<&str> = found.iter().map(|(place, _)| &text[place.clone()]).collect();
    assert_eq!(values, ["1,043", "0.06", "3"]);
    assert_eq!(places(text, 0, "Over {rows} runs"), None);
}
