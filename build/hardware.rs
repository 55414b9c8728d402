//! `data/gpus.csv` without the columns that the program does not read: one line per card, fields separated by tabs.
//! Those of `data/usual_gpus.txt` are apart, in the order there: the page shows them first.

use std::fs;
use std::path::Path;

use crate::write;

const SOURCE: &str = "data/gpus.csv";
const USUAL: &str = "data/usual_gpus.txt";

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

/// Writes `front/gpus.tsv` and `rest/gpus.tsv` into the folder.
pub fn pack(out: &Path) {
    println!("cargo::rerun-if-changed={SOURCE}\ncargo::rerun-if-changed={USUAL}");
    let usual = fs::read_to_string(USUAL).unwrap_or_else(|error| panic!("{USUAL}: {error}"));
    let mut front = vec![None; usual.lines().count()];
    let text = fs::read_to_string(SOURCE).unwrap_or_else(|error| panic!("{SOURCE}: {error}"));
    let mut lines = text.lines();
    let header = fields(lines.next().unwrap_or_default());
    let places = COLUMNS.map(|column| {
        header
            .iter()
            .position(|name| name == column)
            .unwrap_or_else(|| panic!("{SOURCE} has no column {column}"))
    });
    let mut rest = String::new();
    for (number, line) in lines.enumerate() {
        let row = fields(line);
        assert_eq!(row.len(), header.len(), "{SOURCE}, row {}: {line}", number + 1);
        let packed = places.map(|place| row[place].as_str()).join("\t") + "\n";
        match usual.lines().position(|slug| slug == row[places[0]]) {
            Some(place) => front[place] = Some(packed),
            None => rest.push_str(&packed),
        }
    }
    let front: Option<String> = front.into_iter().collect();
    write(
        out,
        "front",
        "gpus.tsv",
        &front.unwrap_or_else(|| panic!("{USUAL} names a card that {SOURCE} has not")),
    );
    write(out, "rest", "gpus.tsv", &rest);
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
