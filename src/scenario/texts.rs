//! How long the texts of a data set are.

mod table;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use self::table::NoLengths;
use super::lengths::{Lengths, Random};
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

    /// The mean length and the standard deviation, in tokens.
    pub fn spread(&self) -> (f64, f64) {
        let count = self.count() as f64;
        let sum = |each: &dyn Fn(f64) -> f64| -> f64 {
            self.by_length.iter().map(|(length, count)| each(*length as f64) * *count as f64).sum()
        };
        let mean = sum(&|length| length) / count;
        (mean, (sum(&|length| (length - mean).powi(2)) / count).sqrt())
    }

    /// Lengths of that mean and deviation, to the token.
    pub fn varying(&self) -> Lengths {
        let (mean, deviation) = self.spread();
        Lengths::Spread { mean: mean.round() as u64, deviation: deviation.round() as u64 }
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

/// Why a text says no lengths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseTextsError(Problem);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Problem {
    Nothing,
    Word(String),
    Table(NoLengths),
}

impl fmt::Display for ParseTextsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Problem::Word(word) => write!(f, "\"{}\" is no length", short(word))?,
            Problem::Nothing => f.write_str("no length was found")?,
            Problem::Table(NoLengths::Column) => {
                return f.write_str(
                    "no column of this table says how long the texts are: call one tokens or length",
                );
            }
            Problem::Table(NoLengths::Line(line)) => {
                return write!(
                    f,
                    "line {line} says no length: write one of {LONGEST} tokens at most on each, as in {{\"tokens\": 512}}"
                );
            }
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

    /// Reads numbers with anything usual between them, lines of JSON, and CSV whose first line names a column `tokens` or
    /// `length`.
    fn from_str(text: &str) -> Result<Texts, ParseTextsError> {
        let mut by_length: BTreeMap<u64, u64> = BTreeMap::new();
        let mut all = 0_u64;
        let mut add = |length: &str, count: &str| {
            let read =
                |number: &str, most: u64| number.parse().ok().filter(|number| (1..=most).contains(number));
            let wrong = || {
                let word = if count == "1" { length.to_owned() } else { format!("{length}x{count}") };
                ParseTextsError(Problem::Word(word))
            };
            let (length, count): (u64, u64) =
                read(length, LONGEST).zip(read(count, MOST)).ok_or_else(wrong)?;
            all = all.saturating_add(count);
            if all > MOST {
                return Err(ParseTextsError(Problem::Word(format!("{length}x{count}"))));
            }
            *by_length.entry(length).or_default() += count;
            Ok(())
        };
        match table::rows(text) {
            Some(rows) => {
                let rows = rows.map_err(|problem| ParseTextsError(Problem::Table(problem)))?;
                rows.iter().try_for_each(|(length, count)| add(length, count))?;
            }
            // counted as they come: a text may have millions
            None => words(&joined(text)).try_for_each(|(length, count)| add(length, count))?,
        }
        if by_length.is_empty() {
            return Err(ParseTextsError(Problem::Nothing));
        }
        Ok(Texts { by_length: by_length.into_iter().collect() })
    }
}

/// What stands between a number and how often it is meant.
const TIMES: [char; 3] = ['x', '×', '*'];

/// A list in which `512 x 30` is one word.
fn joined(text: &str) -> String {
    let mut joined = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        if !TIMES.contains(&c) {
            joined.push(c);
            continue;
        }
        joined.truncate(joined.trim_end_matches([' ', '\t']).len());
        joined.push(c);
        while rest.next_if(|c| [' ', '\t'].contains(c)).is_some() {}
    }
    joined
}

/// The numbers of a list, each with how often it is meant.
fn words(list: &str) -> impl Iterator<Item = (&str, &str)> {
    let words = list.split(|c: char| c.is_whitespace() || ",;[]".contains(c));
    words.filter(|word| !word.is_empty()).map(|word| word.split_once(TIMES).unwrap_or((word, "1")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Texts {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn lists_columns_and_histograms_are_read() {
        for text in [
            "1 2 2 3",
            "[1, 2, 2, 3]",
            "1\n2\r\n2\n3\n",
            "1;2x2;3",
            "1×1 2*2 3",
            "1 2 x 2 3",
            "1\n2x 2\n3 x1",
        ] {
            assert_eq!(texts(text), texts("1,2,2,3"), "{text}");
        }
        for text in
            ["", " ,, ", "0", "-4", "1.5", "12x", "x3", "99999999999", "1 two", "5x0", "1x1099511627776 2"]
        {
            assert!(text.parse::<Texts>().is_err(), "{text}");
        }
    }

    #[test]
    fn tables_that_people_have_are_read() {
        for text in [
            "tokens\n1\n2\n2\n3\n",
            "id,tokens\r\na,1\r\nb,2\r\nc,2\r\nd,3\r\n",
            "\"text\";\"Length\"\n\"one; \"\"two\"\"\nthree\";1\nx;2\ny;2\n\nz;3",
            "length\tcount\n1\t1\n2\t2\n3\t1",
            "{\"length\": 1}\n{\"length\": 2, \"text\": \"x\"}\n\n{\"length\": \"2\"}\n{\"length\": 3}\n",
            "{\"input_ids\": [7]}\n{\"input_ids\": [7, 7], \"count\": 2}\n{\"input_ids\": [7, 7, 7]}",
            "[{\"tokens\": 1}, {\"tokens\": 2, \"count\": 2}, {\"tokens\": 3}]",
        ] {
            assert_eq!(texts(text), texts("1,2,2,3"), "{text}");
        }
        for (text, problem) in [
            ("id,text\n1,one\n", "no column of this table says"),
            ("id,tokens\n1,many\n", "\"many\" is no length"),
            ("{\"tokens\": 5}\n{\"text\": \"one\"}\n", "line 2 says no length"),
            ("{\"tokens\": 5.5}\n", "\"5.5\" is no length"),
            ("[{\"text\": \"one\"}]", "no column of this table says"),
            ("tokens\n", "\"tokens\" is no length"),
        ] {
            let error = text.parse::<Texts>().unwrap_err().to_string();
            assert!(error.starts_with(problem), "{text}: {error}");
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
