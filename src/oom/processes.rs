//! The processes that nvidia-smi lists: below its table, and as `--query-compute-apps=pid,process_name,used_memory --format=csv`
//! prints them, with or without its header.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::units::{BYTES_PER_MIB, Bytes};

/// A process and what it has of a card.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Process {
    /// The program's name without its folder.
    pub name: String,
    /// The number by which the system knows it.
    pub number: u64,
    /// What it has.
    pub bytes: Bytes,
}

/// The process that trains and those beside it on its card.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Processes {
    /// The one that trains: of those that run Python the largest.
    pub own: Process,
    /// What else has memory of its card, the largest first.
    pub others: Vec<Process>,
}

/// So many others are named.
const NAMED: usize = 3;

impl Processes {
    /// What the others have.
    pub fn of_others(&self) -> Bytes {
        self.others.iter().map(|process| process.bytes).sum()
    }

    /// The names of the others, each with what it has: `Xorg 435 MiB`.
    pub(super) fn others_in_words(&self) -> String {
        let each =
            self.others.iter().take(NAMED).map(|Process { name, bytes, .. }| format!("{name} {bytes}"));
        let mut words: Vec<String> = each.collect();
        let more = self.others.len().saturating_sub(NAMED);
        words.extend((more > 0).then(|| format!("{more} more")));
        words.join(", ")
    }
}

impl fmt::Display for Processes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Process { name, number, bytes } = &self.own;
        write!(f, "{name} (process {number}) has {bytes} of the card, ")?;
        match self.others.len() {
            0 => f.write_str("and no other process is listed beside it."),
            1 => write!(f, "and beside it {}.", self.others_in_words()),
            _ => write!(f, "and others beside it {}: {}.", self.of_others(), self.others_in_words()),
        }
    }
}

/// The processes that a text lists, as far as one of them can be the one that trains: of those that run Python, or where none does of
/// those that compute, the largest.
pub(super) fn processes(text: &str) -> Option<Processes> {
    // printed again and again, it is one process at its largest
    let mut by_number: BTreeMap<(String, u64), Listed> = BTreeMap::new();
    for found in text.lines().filter_map(|line| of_table(line).or_else(|| of_query(line))) {
        let key = (found.card.clone(), found.process.number);
        let is_more = |known: &Listed| known.process.bytes < found.process.bytes;
        if by_number.get(&key).is_none_or(is_more) {
            by_number.insert(key, found);
        }
    }
    let mut listed: Vec<Listed> = by_number.into_values().collect();
    let runs_python = |at: &usize| listed[*at].process.name.to_ascii_lowercase().starts_with("python");
    let computes = |at: &usize| listed[*at].computes;
    let largest = |is_meant: &dyn Fn(&usize) -> bool| {
        (0..listed.len()).filter(is_meant).max_by_key(|at| listed[*at].process.bytes)
    };
    let own = listed.swap_remove(largest(&runs_python).or_else(|| largest(&computes))?);
    // where no card is named, others that run Python may be the same run's on other cards
    let is_another_rank =
        |other: &Listed| own.card.is_empty() && other.process.name.to_ascii_lowercase().starts_with("python");
    let beside = listed.into_iter().filter(|other| other.card == own.card && !is_another_rank(other));
    let mut others: Vec<Process> = beside.map(|other| other.process).collect();
    others.sort_by_key(|other| std::cmp::Reverse(other.bytes));
    Some(Processes { own: own.process, others })
}

/// A process in a list.
struct Listed {
    /// The card as the list names it: nothing where it does not.
    card: String,
    /// Whether it computes, and does not draw alone.
    computes: bool,
    process: Process,
}

/// A line below the table: `|    0   N/A  N/A   23412   C   python   22520MiB |`, in older versions without the two `N/A`.
fn of_table(line: &str) -> Option<Listed> {
    let words: Vec<&str> = line.trim().strip_prefix('|')?.strip_suffix('|')?.split_whitespace().collect();
    let [card, between @ .., bytes] = &words[..] else { return None };
    let is_kind = |word: &&str| word.chars().all(|letter| "CGM+".contains(letter));
    let kind = between.iter().position(is_kind)?;
    let number = between[..kind].last()?.parse().ok()?;
    card.parse::<u32>().ok()?;
    Some(Listed {
        card: (*card).to_owned(),
        computes: between[kind].contains('C'),
        process: Process { name: base(&between[kind + 1..].join(" "))?, number, bytes: mebibytes(bytes)? },
    })
}

/// A row of the query: a number, a name and an amount, whatever stands around them: `23412, python, 22520 MiB`.
fn of_query(line: &str) -> Option<Listed> {
    let cells: Vec<&str> = line.split(',').map(str::trim).collect();
    let bytes = mebibytes(cells.last()?)?;
    let at = cells.iter().position(|cell| cell.parse::<u64>().is_ok())?;
    let [before @ .., _] = cells.get(..=at)? else { return None };
    let [name, _] = cells.get(at + 1..)? else { return None };
    // a card's row may have its number before its name
    let is_card = ["NVIDIA ", "Tesla ", "Quadro ", "GeForce ", "TITAN ", "RTX "]
        .iter()
        .any(|maker| name.starts_with(maker))
        || ["-SXM", "-PCIE"].iter().any(|form| name.contains(form));
    let is_name = name.chars().any(char::is_alphabetic) && mebibytes(name).is_none() && !is_card;
    Some(Listed {
        card: before.join(","),
        computes: true,
        process: Process { name: base(name).filter(|_| is_name)?, number: cells[at].parse().ok()?, bytes },
    })
}

/// A program's name without its folder: none where nothing is left.
fn base(path: &str) -> Option<String> {
    let name = path.rsplit(['/', '\\']).next()?.trim();
    (!name.is_empty()).then(|| name.to_owned())
}

/// `22520MiB`.
fn mebibytes(word: &str) -> Option<Bytes> {
    let number: u64 = word.strip_suffix("MiB")?.trim().parse().ok()?;
    Some(Bytes(number.saturating_mul(BYTES_PER_MIB)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The process that trains, what it has in MiB, and the others in words.
    fn read(text: &str) -> Option<(String, u64, String)> {
        let found = processes(text)?;
        let others = found.others_in_words();
        Some((found.own.name, found.own.bytes.0 / BYTES_PER_MIB, others))
    }

    #[test]
    fn the_one_that_trains_is_told_from_those_beside_it() {
        let table = "|    0   N/A  N/A            1822      G   /usr/lib/xorg/Xorg                      435MiB |\n\
                     |    0   N/A  N/A           23412      C   ...envs/train/bin/python3.11          22520MiB |\n\
                     |    1   N/A  N/A           23413      C   python                                22000MiB |";
        let expected = Some(("python3.11".to_owned(), 22_520, "Xorg 435 MiB".to_owned()));
        assert_eq!(read(table), expected);
        // drivers up to 440, and a list that was printed twice
        let older = "|    0      1822      G   /usr/lib/xorg/Xorg       435MiB |\n|    0     23412      C   python3.11     22520MiB |";
        assert_eq!(read(&format!("{older}\n{older}")), expected);
        // where nothing is called Python, what computes
        let named = "|    0   N/A  N/A   1822    C+G   kwin    4000MiB |\n|    0   N/A  N/A   9   C   VLLM::EngineCore  20000MiB |";
        assert_eq!(read(named), Some(("VLLM::EngineCore".to_owned(), 20_000, "kwin 3.91 GiB".to_owned())));
    }

    #[test]
    fn rows_of_the_query_are_read() {
        for text in [
            "pid, process_name, used_gpu_memory [MiB]\n23412, /opt/bin/python, 22520 MiB\n7, ollama, 900 MiB",
            "GPU-5a, 23412, python, 22520 MiB\nGPU-5a, 7, ollama, 900 MiB\nGPU-5b, 8, python, 800 MiB",
        ] {
            assert_eq!(
                read(text),
                Some(("python".to_owned(), 22_520, "ollama 900 MiB".to_owned())),
                "{text}"
            );
        }
    }

    #[test]
    fn what_lists_no_process_is_none() {
        for text in [
            "",
            "|   0  NVIDIA GeForce RTX 3090        Off |   00000000:01:00.0  On |   22987MiB /  24576MiB |    100%      Default |",
            "|  No running processes found                                                             |",
            "23012 MiB, 24564 MiB, 1100 MiB",
            "0, NVIDIA GeForce RTX 4090, 23012 MiB, 24564 MiB, 1100 MiB",
            "0, NVIDIA GeForce RTX 4090, 23012 MiB",
            "|    0   N/A  N/A            1822      G   /usr/lib/xorg/Xorg                      435MiB |",
            "| 1 C 2MiB |",
            "1, 2, 3 MiB",
        ] {
            assert_eq!(processes(text), None, "{text}");
        }
    }
}
