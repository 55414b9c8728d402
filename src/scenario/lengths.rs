//! How long the sequences of a run are.

use std::fmt;
use std::str::FromStr;

use crate::text::short;

/// The lengths of the batches. Where they vary, so do the sizes of all activations, and what PyTorch's allocator cached
/// for one batch does not fit the next: reserved memory grows far above what is ever allocated. Where texts are packed
/// ([`Mask::Packed`](super::Mask)) sequences are as good as full, and this is how long the texts in them are.
///
/// ```
/// use headroom::scenario::Lengths;
/// let lengths: Lengths = "3234~2547".parse().unwrap();
/// assert_eq!(lengths, Lengths::Spread { mean: 3234, deviation: 2547 });
/// assert_eq!("3234±2547".parse(), Ok(lengths));
/// assert_eq!("long".parse::<Lengths>().unwrap_err().to_string(), "\"long\" says nothing about lengths");
/// assert!(lengths.draw(1, 2048, 100).iter().all(|length| (1..=2048).contains(length)));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Lengths {
    /// Every batch has the sequence length: packed, truncated or padded to it.
    #[default]
    Equal,
    /// Batches are padded to their longest sequence, of which any length up to the sequence length is as likely.
    Uniform,
    /// Batches are padded to their longest sequence; lengths have that mean and standard deviation, and sequences longer
    /// than the sequence length are left out.
    Spread {
        /// Mean length in tokens.
        mean: u64,
        /// Standard deviation in tokens.
        deviation: u64,
    },
}

impl Lengths {
    /// The lengths of `count` batches of so many sequences each, none longer than `longest`: the same ones every time.
    pub fn draw(self, batch: u64, longest: u64, count: usize) -> Vec<u64> {
        let mut random = Random::of(0);
        let mut one = || self.one(longest, &mut random);
        // of a hundred sequences one is as long as it gets
        (0..count).map(|_| (0..batch.clamp(1, 100)).map(|_| one()).max().unwrap_or(longest)).collect()
    }

    /// The tokens of `count` batches of so many sequences each, where none is padded.
    pub fn draw_sums(self, batch: u64, longest: u64, count: usize) -> Vec<u64> {
        let mut random = Random::of(0);
        // the sum of a hundred stands for that of more
        let drawn = batch.clamp(1, 100);
        let mut sum = || (0..drawn).map(|_| self.one(longest, &mut random)).fold(0, u64::saturating_add);
        (0..count).map(|_| sum().saturating_mul(batch) / drawn).collect()
    }

    fn one(self, longest: u64, random: &mut Random) -> u64 {
        match self {
            Lengths::Equal => longest,
            Lengths::Uniform => (random.uniform() * longest as f64) as u64 + 1,
            Lengths::Spread { mean, deviation } => {
                // too few sequences are that short for the draw to be worth repeating for ever
                const ATTEMPTS: usize = 64;
                let draws = (0..ATTEMPTS).map(|_| random.gamma(mean as f64, deviation as f64) as u64);
                draws.into_iter().find(|length| (1..=longest).contains(length)).unwrap_or(longest)
            }
        }
        .clamp(1, longest.max(1))
    }
}

impl fmt::Display for Lengths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lengths::Equal => f.write_str("equal"),
            Lengths::Uniform => f.write_str("uniform"),
            Lengths::Spread { mean, deviation } => write!(f, "{mean}~{deviation}"),
        }
    }
}

/// A text that says nothing about lengths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseLengthsError {
    /// What was written, or its beginning.
    text: String,
}

impl fmt::Display for ParseLengthsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} says nothing about lengths", self.text)
    }
}

impl std::error::Error for ParseLengthsError {}

impl FromStr for Lengths {
    type Err = ParseLengthsError;

    /// Reads what `Display` writes; people may write `±` or `+-` for the `~`.
    fn from_str(text: &str) -> Result<Lengths, ParseLengthsError> {
        let spread = || {
            let (mean, deviation) = ["~", "±", "+-"].iter().find_map(|sign| text.split_once(sign))?;
            let number = |text: &str| text.trim().parse().ok();
            Some(Lengths::Spread { mean: number(mean)?, deviation: number(deviation)? })
        };
        match text {
            "equal" => Ok(Lengths::Equal),
            "uniform" => Ok(Lengths::Uniform),
            _ => spread().ok_or_else(|| ParseLengthsError { text: short(text) }),
        }
    }
}

/// A generator of random numbers (splitmix64).
pub(super) struct Random(u64);

impl Random {
    /// The numbers of a series.
    pub fn of(series: u64) -> Random {
        Random(0x9e37_79b9_7f4a_7c15 ^ series.wrapping_mul(0xd134_2543_de82_ef95))
    }

    /// A number from 0 to 1.
    pub fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// Gamma-distributed with that mean and deviation, after Wilson and Hilferty: the cube of a normal variable.
    fn gamma(&mut self, mean: f64, deviation: f64) -> f64 {
        if mean <= 0.0 || deviation <= 0.0 {
            return mean;
        }
        let shape = (mean / deviation).powi(2);
        let root = 1.0 - 1.0 / (9.0 * shape) + self.normal() / (3.0 * shape.sqrt());
        mean * root.powi(3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_has_its_moments() {
        let lengths = Lengths::Spread { mean: 3234, deviation: 2547 }.draw(1, 1 << 20, 20_000);
        let mean = lengths.iter().sum::<u64>() as f64 / lengths.len() as f64;
        let variance = lengths.iter().map(|n| (*n as f64 - mean).powi(2)).sum::<f64>() / lengths.len() as f64;
        assert!((mean / 3234.0 - 1.0).abs() < 0.03, "{mean}");
        assert!((variance.sqrt() / 2547.0 - 1.0).abs() < 0.05, "{}", variance.sqrt());
    }

    #[test]
    fn what_is_written_is_read() {
        for lengths in [Lengths::Equal, Lengths::Uniform, Lengths::Spread { mean: 5, deviation: 0 }] {
            assert_eq!(lengths.to_string().parse(), Ok(lengths));
        }
        for text in ["", "±", "a±b", "5", "-5±3"] {
            assert_eq!(text.parse::<Lengths>(), Err(ParseLengthsError { text: text.to_owned() }), "{text}");
        }
        assert_eq!("5+-3".parse(), Ok(Lengths::Spread { mean: 5, deviation: 3 }));
    }

    #[test]
    fn hostile_spreads_end() {
        for (mean, deviation) in [(0, 0), (u64::MAX, 1), (1, u64::MAX), (u64::MAX, u64::MAX)] {
            let lengths = Lengths::Spread { mean, deviation }.draw(u64::MAX, 7, 3);
            assert!(lengths.iter().all(|length| (1..=7).contains(length)), "{lengths:?}");
        }
    }
}
