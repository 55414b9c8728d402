//! `data/gpus.csv` without the columns that the program does not read: one line per card, fields separated by tabs.

use std::fs;
use std::path::Path;

use crate::write;

const SOURCE: &str = "data/gpus.csv";

/// What is kept, in this order; `src/hardware/catalogue.rs` reads it in the same.
const COLUMNS: [&str; 9] = [
    "slug",
    "vendor",
    "name",
    "class",
    "memory_gb",
    "driver_mib",
    "torch_visible_mib",
    "memory_type",
    "compute_capability",
];

/// Writes `gpus.tsv` into the folder.
pub fn pack(out: &Path) {
    println!("cargo::rerun-if-changed={SOURCE}");
    let text = fs::read_to_string(SOURCE).unwrap_or_else(|error| panic!("{SOURCE}: {error}"));
    let mut lines = text.lines();
    let header = fields(lines.next().unwrap_or_default());
    let places = COLUMNS.map(|column| {
        header
            .iter()
            .position(|name| name == column)
            .unwrap_or_else(|| panic!("{SOURCE} has no column {column}"))
    });
    let mut packed = String::new();
    for (number, line) in lines.enumerate() {
        let row = fields(line);
        assert_eq!(row.len(), header.len(), "{SOURCE}, row {}: {line}", number + 1);
        packed += &places.map(|place| row[place].as_str()).join("\t");
        packed.push('\n');
    }
    write(out, "gpus.tsv", &packed);
}

/// The fields of a line of CSV; a field in quotes may hold commas and doubled quotes.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                fields.last_mut().expect("there is one from the start").push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            c => fields.last_mut().expect("there is one from the start").push(c),
        }
    }
    fields
}
