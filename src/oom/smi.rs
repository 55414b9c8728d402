//! What nvidia-smi prints of the memory of cards: its table, and the rows of `--query-gpu=… --format=csv` with or without their header
//! (`noheader`) and their units (`nounits`).

use super::amount::{Amount, amounts};
use crate::units::{BYTES_PER_GB, BYTES_PER_MIB, Bytes};

/// A card at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    /// What all processes have of it.
    pub used: Amount,
    /// What it has.
    pub total: Option<Amount>,
    /// What nobody has.
    pub free: Option<Amount>,
}

/// The cards of a text, and the moments where it was printed again and again.
pub(super) fn rows(text: &str) -> Vec<Row> {
    let mut rows = of_table(text);
    let mut header: Vec<&str> = Vec::new();
    for line in text.lines() {
        let cells: Vec<&str> = line.split(',').map(str::trim).collect();
        let names: Vec<&str> = cells.iter().map(|cell| name(cell)).collect();
        if names.contains(&"memory.used") {
            header = names;
        } else if header.len() == cells.len() {
            rows.extend(of_header(&header, &cells));
        } else if header.is_empty() {
            rows.extend(without_header(&cells));
        }
    }
    rows
}

/// Of the table: `22100MiB / 24564MiB`.
fn of_table(text: &str) -> Vec<Row> {
    let found = amounts(text, BYTES_PER_GB);
    let pairs = found.windows(2).filter(|pair| {
        pair.iter().all(|found| found.unit == "MiB")
            && pair[0].after.starts_with("/ ")
            && pair[1].before.ends_with('/')
    });
    pairs.map(|pair| Row { used: pair[0].amount, total: Some(pair[1].amount), free: None }).collect()
}

/// `memory.used` of `memory.used [MiB]`.
fn name(cell: &str) -> &str {
    cell.split_whitespace().next().unwrap_or(cell)
}

/// A row below a header, whatever its columns and their order.
fn of_header(header: &[&str], cells: &[&str]) -> Option<Row> {
    let of = |name: &str| {
        let at = header.iter().position(|named| *named == name)?;
        mebibytes(cells[at].strip_suffix("MiB").unwrap_or(cells[at]))
    };
    Some(Row { used: of("memory.used")?, total: of("memory.total"), free: of("memory.free") })
}

/// A row without a header: of its amounts the largest is what the card has, the first of the others what is used, as in the command
/// that Headroom names. Numbers without a unit are amounts only where there are three and two sum up to nearly the third.
fn without_header(cells: &[&str]) -> Option<Row> {
    let with_units = cells.iter().filter_map(|cell| cell.strip_suffix("MiB")).map(mebibytes);
    let with_units = with_units.collect::<Option<Vec<_>>>()?;
    let mut found = match (with_units.len(), cells) {
        (2 | 3, _) => with_units,
        (0, [_, _, _]) => cells.iter().map(|cell| mebibytes(cell)).collect::<Option<Vec<_>>>()?,
        _ => return None,
    };
    let largest = (0..found.len()).max_by_key(|at| found[*at].bytes)?;
    let total = found.remove(largest);
    let parts: Bytes = found.iter().map(|amount| amount.bytes).sum();
    let is_whole = (LEAST_OF_WHOLE..=100.0).contains(&parts.percent_of(total.bytes));
    match found[..] {
        [used] => Some(Row { used, total: Some(total), free: None }),
        [used, free] if is_whole && total.bytes >= Bytes::gib(1.0) => {
            Some(Row { used, total: Some(total), free: Some(free) })
        }
        _ => None,
    }
}

/// What is used and what is free are at least so many percent of what a card has: the driver keeps the rest.
const LEAST_OF_WHOLE: f64 = 90.0;

/// A whole number of MiB, which nvidia-smi rounds.
fn mebibytes(number: &str) -> Option<Amount> {
    let number: u64 = number.trim().parse().ok()?;
    Some(Amount { bytes: Bytes(number.saturating_mul(BYTES_PER_MIB)), off: Bytes(BYTES_PER_MIB / 2) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Used, total and free of each row in MiB; 0 where it is not said.
    fn read(text: &str) -> Vec<[u64; 3]> {
        let mib = |amount: Option<Amount>| amount.map_or(0, |amount| amount.bytes.0 / BYTES_PER_MIB);
        rows(text).iter().map(|row| [mib(Some(row.used)), mib(row.total), mib(row.free)]).collect()
    }

    #[test]
    fn rows_are_read_with_and_without_header_and_units() {
        for text in [
            "memory.used [MiB], memory.total [MiB], memory.free [MiB]\n23012 MiB, 24564 MiB, 1100 MiB\n",
            "memory.used [MiB], memory.total [MiB], memory.free [MiB]\r\n23012, 24564, 1100\r\n",
            "23012 MiB, 24564 MiB, 1100 MiB",
            "23012, 24564, 1100\n",
            "index, name, memory.free [MiB], memory.total [MiB], memory.used [MiB]\n\
             0, NVIDIA GeForce RTX 4090, 1100 MiB, 24564 MiB, 23012 MiB",
            "0, NVIDIA GeForce RTX 4090, 23012 MiB, 24564 MiB, 1100 MiB",
        ] {
            assert_eq!(read(text), [[23_012, 24_564, 1100]], "{text}");
        }
        assert_eq!(
            read("memory.used [MiB], memory.total [MiB]\n23012 MiB, 24564 MiB"),
            [[23_012, 24_564, 0]]
        );
        assert_eq!(read("|  22100MiB /  24564MiB |"), [[22_100, 24_564, 0]]);
        assert_eq!(read("1 MiB, 15360 MiB, 14911 MiB\n14000 MiB, 15360 MiB, 912 MiB").len(), 2);
    }

    #[test]
    fn what_says_no_memory_is_no_row() {
        for text in [
            "memory.used [MiB], memory.total [MiB], memory.free [MiB]\n[N/A], [N/A], [N/A]",
            "memory.used [MiB]",
            "1, 2, 3",
            "5000, 4096, 128",
            "200 MiB, 300 MiB, 9000 MiB",
            "20 MiB",
            "18446744073709551616 MiB, 1 MiB, 1 MiB",
            ",,",
        ] {
            assert_eq!(rows(text), [], "{text}");
        }
    }
}
