//! Lengths in a table: lines of JSON, and CSV whose first line names its columns.

use serde_json::{Map, Value};

/// Columns that say how long a text is, the first that a table has.
const LENGTHS: [&str; 14] = [
    "tokens",
    "length",
    "lengths",
    "num_tokens",
    "n_tokens",
    "token_count",
    "token_length",
    "total_tokens",
    "input_length",
    "seq_length",
    "seq_len",
    "sequence_length",
    "len",
    "input_ids",
];
/// Columns that say how many texts are that long.
const COUNTS: [&str; 3] = ["count", "texts", "frequency"];

/// Why a table says no lengths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NoLengths {
    /// None of its columns does.
    Column,
    /// This line of JSON does not, the first being 1.
    Line(usize),
}

/// A length and how many texts have it, as they stand there.
pub(super) type Said = (String, String);

/// The lengths of a table, row by row; nothing where the text is none.
pub(super) fn rows(text: &str) -> Option<Result<Vec<Said>, NoLengths>> {
    let text = text.trim_start_matches('\u{feff}').trim();
    if text.starts_with('{') {
        return Some(of_lines(text));
    }
    let is_list = text.strip_prefix('[').is_some_and(|rest| rest.trim_start().starts_with('{'));
    if is_list {
        return Some(of_list(text));
    }
    let header = text.lines().next()?;
    // numbers begin with a digit, and a name with a letter
    let names_columns = header.starts_with(|c: char| c.is_alphabetic() || c == '"' || c == '_');
    (names_columns && text.contains('\n')).then(|| of_columns(text, header))
}

/// `{"tokens": 512}`, one on each line.
fn of_lines(text: &str) -> Result<Vec<Said>, NoLengths> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let read = |(index, line): (usize, &str)| {
        let members: Option<Map<String, Value>> = serde_json::from_str(line).ok();
        members.as_ref().and_then(of_members).ok_or(NoLengths::Line(index + 1))
    };
    lines.map(read).collect()
}

/// `[{"tokens": 512}, …]`.
fn of_list(text: &str) -> Result<Vec<Said>, NoLengths> {
    let all: Vec<Map<String, Value>> = serde_json::from_str(text).map_err(|_| NoLengths::Column)?;
    all.iter().map(|members| of_members(members).ok_or(NoLengths::Column)).collect()
}

fn of_members(members: &Map<String, Value>) -> Option<Said> {
    let member = |names: &[&str]| names.iter().find_map(|name| members.get(*name));
    let count = member(&COUNTS).map_or_else(|| Some("1".to_owned()), number)?;
    Some((number(member(&LENGTHS)?)?, count))
}

/// A number, also in quotes; how many tokens there are of a list of them.
fn number(value: &Value) -> Option<String> {
    match value {
        Value::Number(number) => Some(number.to_string()),
        Value::String(text) => Some(text.trim().to_owned()),
        Value::Array(tokens) => Some(tokens.len().to_string()),
        Value::Null | Value::Bool(_) | Value::Object(_) => None,
    }
}

/// The rows of a table whose columns stand between commas, semicolons or tabs.
fn of_columns(text: &str, header: &str) -> Result<Vec<Said>, NoLengths> {
    let separator = [',', ';', '\t'].into_iter().find(|separator| header.contains(*separator)).unwrap_or(',');
    let mut records = records(text, separator).into_iter();
    let header: Vec<String> =
        records.next().unwrap_or_default().iter().map(|name| name.trim().to_lowercase()).collect();
    let column =
        |names: &[&str]| names.iter().find_map(|name| header.iter().position(|column| column == name));
    let only = (header.len() == 1).then_some(0);
    let length = column(&LENGTHS).or(only).ok_or(NoLengths::Column)?;
    let count = column(&COUNTS).filter(|count| *count != length);
    let cell = |record: &[String], column: usize| {
        record.get(column).map(|cell| cell.trim().to_owned()).unwrap_or_default()
    };
    let has_words = |record: &Vec<String>| record.iter().any(|cell| !cell.trim().is_empty());
    let said = |record: Vec<String>| {
        (cell(&record, length), count.map_or_else(|| "1".to_owned(), |count| cell(&record, count)))
    };
    Ok(records.filter(has_words).map(said).collect())
}

/// The records of CSV; a field in quotes may hold separators, line breaks and doubled quotes.
fn records(text: &str, separator: char) -> Vec<Vec<String>> {
    let mut records = vec![vec![String::new()]];
    let mut quoted = false;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let Some(record) = records.last_mut() else { break };
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                record.last_mut().into_iter().for_each(|field| field.push('"'));
            }
            '"' => quoted = !quoted,
            '\n' if !quoted => records.push(vec![String::new()]),
            c if c == separator && !quoted => record.push(String::new()),
            c => record.last_mut().into_iter().for_each(|field| field.push(c)),
        }
    }
    records
}
