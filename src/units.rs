//! Bytes: the only unit the estimator computes in.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign};

use serde::{Deserialize, Serialize};

use crate::text::short;

/// Bytes in a KiB (2^10).
pub const BYTES_PER_KIB: u64 = 1 << 10;
/// Bytes in a MiB (2^20).
pub const BYTES_PER_MIB: u64 = 1 << 20;
/// Bytes in a GiB (2^30), the unit of `torch.cuda` summaries.
pub const BYTES_PER_GIB: u64 = 1 << 30;
/// Bytes in a GB (10^9), the unit of data sheets.
pub const BYTES_PER_GB: u64 = 1_000_000_000;

/// An amount of memory in bytes. Arithmetic saturates: an absurd scenario gives an absurdly large answer, never a
/// panic or a wrapped one.
///
/// ```
/// use headroom::units::Bytes;
/// assert_eq!(Bytes(1 << 30).to_string(), "1.00 GiB");
/// assert_eq!("24GB".parse::<Bytes>().unwrap(), Bytes(24_000_000_000));
/// assert_eq!(Bytes(u64::MAX) + Bytes(1), Bytes(u64::MAX));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

/// A range of bytes, from the least to the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Between {
    /// The least.
    pub least: Bytes,
    /// The most.
    pub most: Bytes,
}

impl fmt::Display for Between {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Between { least, most } = self;
        match (least.to_string(), most.to_string()) {
            (one, other) if one == other => f.write_str(&one),
            (one, other) => write!(f, "{one} to {other}"),
        }
    }
}

impl Bytes {
    /// No memory.
    pub const ZERO: Bytes = Bytes(0);

    /// `n` KiB.
    pub const fn kib(n: u64) -> Bytes {
        Bytes(n.saturating_mul(BYTES_PER_KIB))
    }

    /// `n` MiB.
    pub const fn mib(n: u64) -> Bytes {
        Bytes(n.saturating_mul(BYTES_PER_MIB))
    }

    /// `n` GiB, rounded down to whole bytes; not a number and negative amounts are 0.
    pub fn gib(n: f64) -> Bytes {
        Bytes((n * BYTES_PER_GIB as f64) as u64)
    }

    /// The amount in GiB (2^30).
    pub fn as_gib(self) -> f64 {
        self.0 as f64 / BYTES_PER_GIB as f64
    }

    /// The amount in GB (10^9).
    pub fn as_gb(self) -> f64 {
        self.0 as f64 / BYTES_PER_GB as f64
    }

    /// `self - other`, at least 0.
    pub fn saturating_sub(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_sub(other.0))
    }

    /// The share of `whole` in percent; 0 of a whole of 0.
    pub fn percent_of(self, whole: Bytes) -> f64 {
        if whole.0 == 0 { 0.0 } else { self.0 as f64 / whole.0 as f64 * 100.0 }
    }

    /// The amount with the unit that suits its size: `12.3 GiB`, `512 MiB`, `2.00 KiB`, `17 B`.
    pub fn in_binary_unit(self) -> String {
        scaled(self.0, 1024.0, ["B", "KiB", "MiB", "GiB"])
    }

    /// The same in decimal units: `12.3 GB`.
    pub fn in_decimal_unit(self) -> String {
        scaled(self.0, 1000.0, ["B", "kB", "MB", "GB"])
    }
}

fn scaled(bytes: u64, step: f64, units: [&str; 4]) -> String {
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= step && unit < units.len() - 1 {
        value /= step;
        unit += 1;
    }
    let decimals = match (unit, value) {
        (0, _) => 0,
        (_, v) if v < 10.0 => 2,
        (_, v) if v < 100.0 => 1,
        _ => 0,
    };
    // Large GiB amounts keep one decimal: the difference between 24.0 and 24.4 decides.
    let decimals = if unit == 3 && value < 1000.0 { decimals.max(1) } else { decimals };
    format!("{} {}", group(&format!("{value:.decimals$}")), units[unit])
}

/// Writes an integer with thousands separators: `8,030,261,248`.
pub fn grouped(n: u64) -> String {
    group(&n.to_string())
}

fn group(number: &str) -> String {
    let (whole, fraction) = number.split_once('.').map_or((number, None), |(w, f)| (w, Some(f)));
    let mut out = String::with_capacity(number.len() + number.len() / 3);
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if let Some(fraction) = fraction {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.in_binary_unit())
    }
}

impl Add for Bytes {
    type Output = Bytes;
    fn add(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Bytes) {
        *self = *self + other;
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Bytes>>(iter: I) -> Bytes {
        iter.fold(Bytes::ZERO, Add::add)
    }
}

/// The number without the separators of its thousands: `16,777,216` and `16_777_216`. `None` where they stand elsewhere,
/// as a comma before decimals does.
pub fn ungrouped(number: &str) -> Option<String> {
    let whole = number.split_once('.').map_or(number, |(whole, _)| whole);
    for separator in [',', '_'] {
        let mut groups = whole.split(separator);
        let first = groups.next().unwrap_or_default().trim_start_matches(['-', '+']);
        let is_group = |group: &str, lengths: std::ops::RangeInclusive<usize>| {
            lengths.contains(&group.len()) && group.bytes().all(|digit| digit.is_ascii_digit())
        };
        if whole.contains(separator) && is_group(first, 1..=3) && groups.all(|group| is_group(group, 3..=3)) {
            let plain = format!("{}{}", whole.replace(separator, ""), &number[whole.len()..]);
            return (!plain.contains([',', '_'])).then_some(plain);
        }
    }
    (!number.contains([',', '_'])).then(|| number.to_owned())
}

/// Why a text is no amount of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseBytesError {
    /// What was written, or its beginning.
    text: String,
    problem: Problem,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Problem {
    Unreadable,
    NoUnit,
    /// It would be an amount with a point in place of the comma.
    Comma,
}

impl fmt::Display for ParseBytesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = &self.text;
        match self.problem {
            Problem::Unreadable => write!(
                f,
                "could not read {text:?} as an amount of memory (write 24GB, 22.5GiB, 800MB or 24576MiB)"
            ),
            Problem::NoUnit => write!(f, "{text:?} is without a unit (write {text}GB or {text}GiB)"),
            Problem::Comma => {
                let unit = if text.ends_with(|c: char| c.is_ascii_digit()) { "GB" } else { "" };
                let meant = text.replace(',', ".");
                write!(
                    f,
                    "could not read {text:?} as an amount of memory: a comma separates thousands (write {meant}{unit})"
                )
            }
        }
    }
}

impl std::error::Error for ParseBytesError {}

impl std::str::FromStr for Bytes {
    type Err = ParseBytesError;

    /// Reads `24GB`, `22.5 GiB`, `800MB`, `24,576 MiB`, `512B`. Units are case-insensitive and never left out; a bare `G`
    /// or `M` is binary, as in the tools of this field.
    fn from_str(text: &str) -> Result<Bytes, ParseBytesError> {
        let trimmed = text.trim();
        let error = |problem| ParseBytesError { text: short(trimmed), problem };
        let split = trimmed.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(split);
        let factor = match unit.to_ascii_lowercase().as_str() {
            "" => None,
            "b" => Some(1),
            "k" | "kib" => Some(BYTES_PER_KIB),
            "kb" => Some(1_000),
            "m" | "mib" => Some(BYTES_PER_MIB),
            "mb" => Some(1_000_000),
            "g" | "gib" => Some(BYTES_PER_GIB),
            "gb" => Some(BYTES_PER_GB),
            "t" | "tib" => Some(BYTES_PER_GIB * 1024),
            "tb" => Some(BYTES_PER_GB * 1000),
            _ => return Err(error(Problem::Unreadable)),
        };
        let read = |number: &str| number.parse::<f64>().ok().filter(|number| *number >= 0.0);
        let number = number.trim();
        let plain = ungrouped(number);
        let Some(value) = plain.as_deref().and_then(read) else {
            let comma = read(&number.replacen(',', ".", 1)).is_some();
            return Err(error(if comma { Problem::Comma } else { Problem::Unreadable }));
        };
        let factor = factor.ok_or_else(|| error(Problem::NoUnit))?;
        // a float has not every whole number from 2^53 on
        if let Some(whole) = plain.and_then(|plain| plain.parse::<u64>().ok()) {
            return Ok(Bytes(whole.saturating_mul(factor)));
        }
        let bytes = value * factor as f64;
        if bytes.is_finite() { Ok(Bytes(bytes as u64)) } else { Err(error(Problem::Unreadable)) }
    }
}

/// Reads `12`, `0.5`, `.5`: digits with at most one point.
pub fn decimal(text: &str) -> Option<f64> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if is_plain { text.parse().ok() } else { None }
}

/// What a letter behind a number stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Letters {
    /// None is read.
    None,
    /// `k` is 1,024, as sequences are counted.
    Binary,
    /// `k`, `M` and `B` are thousands, millions and billions, and `10k x 512` is a product, as data sets are counted.
    Decimal,
    /// Percent: `40%`, and a share below 1 of them, as vLLM's `gpu_memory_utilization` is written: 0.4 is 40.
    Percent,
}

impl Letters {
    /// Reads `2048`, `2,048`, `0.5`, `1e3`; with letters `8k`, `5M` and `10k x 512`; percent as `40%` and 0.4.
    ///
    /// ```
    /// use headroom::units::Letters;
    /// assert_eq!(Letters::Binary.read("8k"), Some(8192.0));
    /// assert_eq!(Letters::Decimal.read("10k x 512"), Some(5_120_000.0));
    /// assert_eq!(Letters::None.read("8k"), None);
    /// assert_eq!(Letters::Binary.read("1e3"), Some(1000.0));
    /// assert_eq!(["40", "40%", "0.4"].map(|text| Letters::Percent.read(text)), [Some(40.0); 3]);
    /// ```
    pub fn read(self, text: &str) -> Option<f64> {
        match self {
            Letters::Percent => {
                let value = self.one(text.trim_end().trim_end_matches('%'))?;
                // a hundredth times a hundred is not always whole
                Some(if value < 1.0 { (value * 1e4).round() / 1e2 } else { value })
            }
            Letters::Decimal => match text.split_once(['x', 'X', '×', '*']) {
                Some((examples, tokens)) => Some(self.one(examples)? * self.one(tokens)?),
                None => self.one(text),
            },
            Letters::None | Letters::Binary => self.one(text),
        }
    }

    /// A number with the letter behind it.
    fn one(self, text: &str) -> Option<f64> {
        let text = text.trim();
        if let Some((digits, power)) = text.split_once(['e', 'E']) {
            decimal(digits).and(decimal(power))?;
            return text.parse().ok();
        }
        let factors: &[(char, f64)] = match self {
            Letters::None | Letters::Percent => &[],
            Letters::Binary => &[('k', 1024.0)],
            Letters::Decimal => &[('k', 1e3), ('m', 1e6), ('b', 1e9)],
        };
        let last = text.chars().last()?.to_ascii_lowercase();
        let (digits, factor) = match factors.iter().find(|(letter, _)| *letter == last) {
            Some((_, factor)) => (&text[..text.len() - 1], *factor),
            None => (text, 1.0),
        };
        Some(decimal(&ungrouped(digits)?)? * factor)
    }
}

/// Writes a number with at most so many decimals, and none that is needless: `7`, `0.5`, `13.25`.
pub fn shortest(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_the_unit_that_suits() {
        for (bytes, text) in [
            (0, "0 B"),
            (17, "17 B"),
            (2048, "2.00 KiB"),
            (512 << 20, "512 MiB"),
            (1 << 30, "1.00 GiB"),
            (24 << 30, "24.0 GiB"),
            (2000 << 30, "2,000 GiB"),
        ] {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
        assert_eq!(Bytes(24_000_000_000).in_decimal_unit(), "24.0 GB");
    }

    #[test]
    fn reads_what_people_write() {
        for (text, bytes) in [
            ("24GB", 24_000_000_000),
            (" 22.5 GiB ", 24_159_191_040),
            ("1g", 1 << 30),
            ("512B", 512),
            ("24,576 MiB", 24 << 30),
            ("1,024.5kB", 1_024_500),
        ] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
        let long = format!("{}GB", "9".repeat(5_000));
        for text in [
            "",
            "GB",
            "-1GB",
            "24 parsecs",
            "NaN",
            "inf GB",
            "1e999",
            "2,4576MiB",
            ",5GB",
            "1,000,0GB",
            &long,
        ] {
            let error = text.parse::<Bytes>().unwrap_err().to_string();
            assert!(error.starts_with("could not read ") && error.len() < 200, "{error}");
        }
    }

    #[test]
    fn what_may_mean_two_things_says_what_would_be_right() {
        for (text, message) in [
            ("24", "\"24\" is without a unit (write 24GB or 24GiB)"),
            (
                "24,5",
                "could not read \"24,5\" as an amount of memory: a comma separates thousands (write 24.5GB)",
            ),
            (
                "24,5GB",
                "could not read \"24,5GB\" as an amount of memory: a comma separates thousands (write 24.5GB)",
            ),
        ] {
            assert_eq!(text.parse::<Bytes>().unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn separators_stand_between_thousands_only() {
        for (text, plain) in
            [("16,777,216", "16777216"), ("-1_000", "-1000"), ("1,000.25", "1000.25"), ("7", "7"), ("", "")]
        {
            assert_eq!(ungrouped(text).as_deref(), Some(plain), "{text}");
        }
        for text in ["1,5", "1,0000", ",100", "1,", "1000,000", "1,000_000", "1.000,5", "1,_00", "a,bcd"] {
            assert_eq!(ungrouped(text), None, "{text}");
        }
    }

    #[test]
    fn groups_digits() {
        assert_eq!(grouped(8_030_261_248), "8,030,261,248");
        assert_eq!(grouped(7), "7");
    }
}
