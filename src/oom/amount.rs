//! Amounts of memory in a text.

use serde::{Deserialize, Serialize};

use crate::units::{BYTES_PER_GIB, BYTES_PER_KIB, BYTES_PER_MIB, Bytes};

/// An amount as a text writes it, with so many decimals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Amount {
    /// The bytes that are written.
    pub bytes: Bytes,
    /// By how much the real ones may differ, as the text rounds.
    pub off: Bytes,
}

impl Amount {
    /// The least that it may stand for.
    pub fn least(self) -> u64 {
        self.bytes.saturating_sub(self.off).0
    }

    /// The most that it may stand for.
    pub fn most(self) -> u64 {
        (self.bytes + self.off).0
    }
}

/// An amount and the words on both sides of it.
pub(super) struct Found<'a> {
    pub amount: Amount,
    pub unit: &'static str,
    pub before: &'a str,
    pub after: &'a str,
}

/// The units, longest first where one begins another.
const UNITS: [(&str, u64); 10] = [
    ("GiB", BYTES_PER_GIB),
    ("MiB", BYTES_PER_MIB),
    ("KiB", BYTES_PER_KIB),
    ("TiB", BYTES_PER_GIB << 10),
    ("bytes", 1),
    ("GB", 0),
    ("MB", BYTES_PER_MIB),
    ("KB", BYTES_PER_KIB),
    ("kB", BYTES_PER_KIB),
    ("B", 1),
];

/// Every number with a unit of memory.
pub(super) fn amounts(text: &str, step_of_gb: u64) -> Vec<Found<'_>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(start) = text[at..].find(|c: char| c.is_ascii_digit()).map(|offset| at + offset) {
        let is_number = |c: char| c.is_ascii_digit() || c == '.';
        let end = text[start..].find(|c| !is_number(c)).map_or(text.len(), |length| start + length);
        at = end;
        let starts_word = !text[..start].ends_with(|c: char| c.is_alphanumeric() || c == '.' || c == '-');
        let number = &text[start..end];
        let rest = text[end..].trim_start();
        let unit = UNITS.iter().find(|(unit, _)| {
            rest.strip_prefix(unit).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
        });
        let (Some((unit, step)), Ok(value), true) = (unit, number.parse::<f64>(), starts_word) else {
            continue;
        };
        let step = if *step == 0 { step_of_gb } else { *step } as f64;
        let decimals = number.split_once('.').map_or(0, |(_, decimals)| decimals.len());
        let half = 0.5 * 10f64.powi(-(decimals.min(20) as i32));
        found.push(Found {
            amount: Amount {
                bytes: Bytes((value * step).round() as u64),
                // whole bytes are exact
                off: Bytes(if step == 1.0 { 0 } else { (half * step).ceil() as u64 }),
            },
            unit,
            before: text[..start].trim_end(),
            after: rest[unit.len()..].trim_start(),
        });
    }
    found
}
