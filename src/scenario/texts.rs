//! How long the texts of a data set are.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::lengths::Random;
use crate::text::short;

/// How long the texts of a data set are, in tokens: so many of each length.
///
/// ```
/// use headroom::scenario::Texts;
/// let texts: Texts = "[512, 512, 2048]\n1024x97".parse()?;
/// assert_eq!((texts.count(), texts.longest(), texts.longer_than(1024)), (100, 2048, 1));
/// // of micro-batches of eight, padded to their longest text
/// assert_eq!(texts.of_batches(0.5, 8), 1024);
/// assert_eq!("12 words".parse::<Texts>().unwrap_err().to_string().split(':').next(), Some("\"words\" is no length"));
/// # Ok::<(), headroom::scenario::ParseTextsError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Texts {
    /// Lengths and how many texts have each, the shortest first; never empty.
    by_length: Vec<(u64, u64)>,
}

/// No text is longer.
const LONGEST: u64 = 1 << 24;
/// No data set has more texts.
const MOST: u64 = 1 << 40;

impl Texts {
    /// How many there are.
    pub fn count(&self) -> u64 {
        self.by_length.iter().map(|(_, count)| count).sum()
    }

    /// The longest.
    pub fn longest(&self) -> u64 {
        self.by_length.last().map_or(0, |(length, _)| *length)
    }

    /// How many are longer than that.
    pub fn longer_than(&self, length: u64) -> u64 {
        self.by_length.iter().filter(|(own, _)| *own > length).map(|(_, count)| count).sum()
    }

    /// The mean length and the standard deviation.
    pub fn spread(&self) -> (f64, f64) {
        let count = self.count() as f64;
        let sum = |each: &dyn Fn(f64) -> f64| -> f64 {
            self.by_length.iter().map(|(length, count)| each(*length as f64) * *count as f64).sum()
        };
        let mean = sum(&|length| length) / count;
        (mean, (sum(&|length| (length - mean).powi(2)) / count).sqrt())
    }

    /// The same with longer texts cut.
    pub fn cut(&self, longest: u64) -> Texts {
        let mut by_length: BTreeMap<u64, u64> = BTreeMap::new();
        for (length, count) in &self.by_length {
            *by_length.entry((*length).min(longest.max(1))).or_default() += count;
        }
        Texts { by_length: by_length.into_iter().collect() }
    }

    /// The part of the micro-batches of so many texts, padded to their longest, that are no longer than that.
    pub fn share_within(&self, length: u64, batch: u64) -> f64 {
        let within = 1.0 - self.longer_than(length) as f64 / self.count() as f64;
        within.powf(batch as f64)
    }

    /// The length that so large a part of the micro-batches do not exceed.
    pub fn of_batches(&self, share: f64, batch: u64) -> u64 {
        let mut within = 0;
        let total = self.count() as f64;
        let found = self.by_length.iter().find(|(_, count)| {
            within += count;
            (within as f64 / total).powf(batch as f64) >= share
        });
        found.map_or(self.longest(), |(length, _)| *length)
    }

    /// The lengths of `count` micro-batches of so many texts each, padded to their longest, in an order of that number.
    pub fn draw(&self, batch: u64, count: usize, order: u64) -> Vec<u64> {
        let mut random = Random::of(order);
        // the longest of so many texts: the length within which that part of micro-batches lies
        (0..count).map(|_| self.of_batches(random.uniform(), batch)).collect()
    }
}

/// What is no length of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseTextsError(Option<String>);

impl fmt::Display for ParseTextsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(word) => write!(f, "\"{}\" is no length", short(word))?,
            None => f.write_str("no length was found")?,
        }
        write!(
            f,
            ": write whole numbers of tokens up to {LONGEST} with spaces, commas or line breaks between them, 512x30 for thirty texts \
             of 512"
        )
    }
}

impl std::error::Error for ParseTextsError {}

impl FromStr for Texts {
    type Err = ParseTextsError;

    fn from_str(text: &str) -> Result<Texts, ParseTextsError> {
        let words = text.split(|c: char| c.is_whitespace() || ",;[]".contains(c));
        let mut by_length: BTreeMap<u64, u64> = BTreeMap::new();
        let mut all = 0_u64;
        for word in words.filter(|word| !word.is_empty()) {
            let (length, count) = word.split_once(['x', '×', '*']).unwrap_or((word, "1"));
            let read =
                |number: &str, most: u64| number.parse().ok().filter(|number| (1..=most).contains(number));
            let read = read(length, LONGEST).zip(read(count, MOST));
            let (length, count) = read.ok_or_else(|| ParseTextsError(Some(word.to_owned())))?;
            all = all.saturating_add(count);
            if all > MOST {
                return Err(ParseTextsError(Some(word.to_owned())));
            }
            *by_length.entry(length).or_default() += count;
        }
        if by_length.is_empty() {
            return Err(ParseTextsError(None));
        }
        Ok(Texts { by_length: by_length.into_iter().collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Texts {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn lists_columns_and_histograms_are_read() {
        for text in ["1 2 2 3", "[1, 2, 2, 3]", "1\n2\r\n2\n3\n", "1;2x2;3", "1×1 2*2 3"] {
            assert_eq!(texts(text), texts("1,2,2,3"), "{text}");
        }
        for text in
            ["", " ,, ", "0", "-4", "1.5", "12x", "x3", "99999999999", "1 two", "5x0", "1x1099511627776 2"]
        {
            assert!(text.parse::<Texts>().is_err(), "{text}");
        }
    }

    #[test]
    fn micro_batches_are_as_long_as_their_longest_text() {
        let texts = texts("100x90 1000x10");
        assert_eq!(texts.of_batches(0.5, 1), 100);
        assert_eq!(texts.of_batches(0.5, 16), 1000);
        assert!((texts.share_within(100, 2) - 0.81).abs() < 1e-9);
        let drawn = texts.draw(2, 10_000, 3);
        let short = drawn.iter().filter(|length| **length == 100).count() as f64 / 10_000.0;
        assert!((short - 0.81).abs() < 0.02, "{short}");
        assert_ne!(drawn, texts.draw(2, 10_000, 4), "another order");
        let (mean, deviation) = texts.spread();
        assert!((mean - 190.0).abs() < 1e-9 && (deviation - 270.0).abs() < 1e-9, "{mean} {deviation}");
        assert_eq!((texts.cut(500).longest(), texts.cut(500).count()), (500, 100));
    }
}
