//! `--sort` and `--csv`: what every table of the command takes.

use super::{fails, headroom, headroom_with};

const SCENARIO: &str = "m=Qwen/Qwen2.5-0.5B&method=lora&p=amp-bf16&b=8&gpu=rtx-3060-12gb";
const GENERATES: &str = "task=generate&m=Qwen/Qwen2.5-0.5B&method=full&p=bf16&gpu=rtx-4090";

/// The rows of a table in CSV, the names of its columns first.
#[track_caller]
fn rows(arguments: &[&str]) -> Vec<Vec<String>> {
    let run = headroom_with(&[arguments, &["--csv"]].concat(), "512x30 1000 2000");
    assert!(
        run.out.ends_with("\r\n") && run.out.lines().count() > 1,
        "{arguments:?}: {} {}",
        run.out,
        run.err
    );
    run.out.lines().map(fields).collect()
}

/// The fields of a line: no table of these has a line break in a field.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    let mut rest = line.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '"' if quoted && rest.peek() == Some(&'"') => {
                fields.last_mut().unwrap().push('"');
                rest.next();
            }
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            c => fields.last_mut().unwrap().push(c),
        }
    }
    fields
}

#[test]
fn every_table_is_csv_of_plain_numbers() {
    for arguments in [
        &["levers", SCENARIO][..],
        &["batch", SCENARIO],
        &["need", SCENARIO],
        &["settings", SCENARIO],
        &["layouts", SCENARIO, "--gpus", "2", "--all"],
        &["fit", "--models", "qwen2.5", "--memory", "16GB"],
        &["lengths", SCENARIO],
        &["rules", SCENARIO],
        &["contexts", GENERATES],
        &["serving", GENERATES],
        &["serving", GENERATES, "--batches"],
    ] {
        let rows = rows(arguments);
        for row in &rows {
            assert_eq!(row.len(), rows[0].len(), "{arguments:?}: {row:?}");
        }
        let bytes: Vec<usize> =
            (0..rows[0].len()).filter(|column| rows[0][*column].ends_with("(bytes)")).collect();
        assert!(!bytes.is_empty(), "{arguments:?}: {:?}", rows[0]);
        let values = || rows[1..].iter().flat_map(|row| bytes.iter().map(|column| row[*column].as_str()));
        assert!(values().any(|value| value.len() > 6), "{arguments:?}");
        for value in values().filter(|value| !value.is_empty()) {
            assert!(value.parse::<i128>().is_ok(), "{arguments:?}: {value}");
        }
    }
}

#[test]
fn a_table_is_sorted_by_the_column_that_is_named() {
    let needs = |asked: &str| -> Vec<u64> {
        let rows = rows(&["levers", SCENARIO, "--sort", asked]);
        let column = rows[0].iter().position(|name| name == "Needs (bytes)").unwrap();
        rows[1..].iter().map(|row| row[column].parse().unwrap()).collect()
    };
    let mut falling = needs("needs.down");
    assert!(falling.len() > 3 && needs("Needs").is_sorted());
    falling.reverse();
    assert!(falling.is_sorted());
    // in words too, and before the first of many layouts are cut off
    let text = headroom(&["batch", SCENARIO, "--sort", "memory.down"]).out;
    let cards: Vec<&str> = text.lines().skip(3).collect();
    assert!(cards[0].starts_with("B200") && cards.last().unwrap().starts_with("GeForce RTX 3060"), "{text}");
}

#[test]
fn a_column_that_is_not_there_is_told_with_those_that_are() {
    fails(
        &["batch", SCENARIO, "--sort", "colour"],
        "error: no column is called \"colour\": --sort takes one of Card, Memory, Largest micro-batch, Micro-batch, \
         Accumulation, Effective batch, Verdict\n",
    );
    for other in ["--sort=card", "--csv"] {
        let both = headroom(&["batch", SCENARIO, other, "--json"]);
        assert!(both.status == Some(2) && both.err.contains("cannot be used with '--json'"), "{}", both.err);
    }
}
