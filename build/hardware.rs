//! `data/gpus.csv` and `data/instances.csv` without what the program does not read: one line per card or machine, fields
//! separated by tabs.

use std::fs;
use std::path::Path;

use crate::write;

/// What is kept of the cards, in this order; `src/hardware/catalogue.rs` reads it in the same.
const OF_CARDS: [&str; 14] = [
    "slug",
    "vendor",
    "name",
    "class",
    "memory_gb",
    "driver_mib",
    "torch_visible_mib",
    "memory_type",
    "compute_capability",
    "fp16_dense_tflops",
    "bandwidth_gb_s",
    "interconnect",
    "interconnect_gb_s_bidir",
    "pcie",
];

/// What is kept of the machines that have a price, in this order; `src/hardware/rent.rs` reads it in the same.
const OF_MACHINES: [&str; 6] =
    ["provider", "instance", "gpu_slug", "gpu_count", "price_usd_per_hour", "price_date"];

/// What is kept of the machines whose RAM is known, in this order; `src/hardware/hosts.rs` reads it in the same.
const OF_HOSTS: [&str; 5] = ["provider", "instance", "gpu_slug", "gpu_count", "host_ram_gib"];

/// Writes `gpus.tsv`, `machines.tsv` and `hosts.tsv` into the folder.
pub fn pack(out: &Path) {
    write(out, "gpus.tsv", &columns("data/gpus.csv", OF_CARDS, |_| true));
    let has_price = |row: &[String; 6]| !row[4].is_empty();
    write(out, "machines.tsv", &columns("data/instances.csv", OF_MACHINES, has_price));
    let has_ram = |row: &[String; 5]| !row[4].is_empty();
    write(out, "hosts.tsv", &columns("data/instances.csv", OF_HOSTS, has_ram));
}

/// Some columns of the rows that are wanted.
fn columns<const N: usize>(source: &str, names: [&str; N], wanted: impl Fn(&[String; N]) -> bool) -> String {
    println!("cargo::rerun-if-changed={source}");
    let text = fs::read_to_string(source).unwrap_or_else(|error| panic!("{source}: {error}"));
    let mut lines = text.lines();
    let header = fields(lines.next().unwrap_or_default());
    let places = names.map(|column| {
        let place = header.iter().position(|name| name == column);
        place.unwrap_or_else(|| panic!("{source} has no column {column}"))
    });
    let mut packed = String::new();
    for (number, line) in lines.enumerate() {
        let row = fields(line);
        assert_eq!(row.len(), header.len(), "{source}, row {}: {line}", number + 1);
        let row = places.map(|place| row[place].clone());
        if wanted(&row) {
            packed += &row.join("\t");
            packed.push('\n');
        }
    }
    packed
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
