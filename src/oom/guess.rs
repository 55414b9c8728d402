//! What an amount may be where the scenario is not known: a tensor of a model of the catalogue.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::message::Message;
use crate::scenario::Scenario;
use crate::units::Bytes;

/// What kind of tensor it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Kind {
    /// Logits, whose size gives a vocabulary away.
    Logits,
    /// Attention's scores, written out: sequence × sequence for each head.
    Scores,
    /// What an optimizer remembers of a weight.
    OptimizerState,
    /// A weight.
    Weights,
    /// A rank's part of all parameters in one tensor, as DeepSpeed has them.
    Partition,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Logits => "logits",
            Kind::Scores => "attention's scores",
            Kind::OptimizerState => "optimizer state",
            Kind::Weights => "weights",
            Kind::Partition => "a rank's part of all parameters",
        })
    }
}

/// A tensor of that size.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[non_exhaustive]
pub struct Guess {
    /// What it would be.
    pub kind: Kind,
    /// The sum: `65,536 tokens × 151,936 × 4 bytes (float32)`.
    pub formula: String,
    /// Tokens of the batch, where its size hangs on them.
    pub tokens: Option<u64>,
    /// Rows of the vocabulary, of logits.
    pub vocabulary: Option<u64>,
    /// Models of the catalogue that have such a tensor, a few of them.
    pub models: Vec<String>,
    /// The scenario with the first of them and such a batch; with the method and the checkpointing under which it is nearest to the message, where
    /// that says what was allocated.
    pub scenario: Box<Scenario>,
    /// What is allocated there when a tensor of that size is asked for.
    pub allocated: Option<Bytes>,
    /// What the message says was allocated, where that is another amount.
    pub said: Option<Bytes>,
}

/// What is allocated in a guess's run is not what a message says where they differ by more than so many percent: its optimizer and element
/// types are the scenario's, which nobody said are the message's.
const OTHER: f64 = 10.0;

/// It is the same amount where they differ by no more.
const SAME: f64 = 1.0;

/// So many are named.
const NAMED: usize = 3;

/// Of guesses that were looked at those whose run has about what the message says was allocated; round batches first, then those with the same amount as
/// they come, then the nearest, each with what the message says where that is another amount.
pub(super) fn nearest_first(guesses: &mut Vec<Guess>, message: &Message) {
    let Some(said) = message.allocated.map(|amount| amount.bytes) else { return guesses.truncate(NAMED) };
    let off = |guess: &Guess| Bytes(guess.allocated.map_or(0, |bytes| bytes.0.abs_diff(said.0)));
    guesses.retain(|guess| off(guess).percent_of(said) <= OTHER);
    // people choose powers of two
    let is_odd = |guess: &Guess| guess.tokens.is_some_and(|tokens| !tokens.is_power_of_two());
    let is_same = |guess: &Guess| off(guess).percent_of(said) <= SAME;
    guesses.sort_by_key(|guess| (is_odd(guess), if is_same(guess) { Bytes::ZERO } else { off(guess) }));
    guesses.truncate(NAMED);
    for guess in guesses.iter_mut().filter(|guess| !is_same(guess)) {
        guess.said = Some(said);
    }
}

impl Guess {
    /// Whether it is of a batch that people choose, where it is of one: a power of two of tokens.
    pub(super) fn is_round(&self) -> bool {
        self.tokens.is_some_and(u64::is_power_of_two)
    }

    /// Whether it is of a batch that hardly anybody chooses, such as 47 sequences of 2,048 tokens.
    pub(super) fn is_odd(&self) -> bool {
        /// Three and five times a power of two are chosen, too.
        const CHOSEN: u64 = 15;
        self.tokens.is_some_and(|tokens| tokens >> tokens.trailing_zeros().min(63) > CHOSEN)
    }

    /// In words, behind its kind: `65,536 tokens × 151,936 × 4 bytes (float32), as of Qwen3 8B; there 56.1 GiB are allocated before it`.
    pub fn in_words(&self, amount: impl Fn(Bytes) -> String) -> String {
        let before = self.allocated.map(|bytes| format!("; there {} are allocated before it", amount(bytes)));
        let said = self.said.map(|bytes| format!(", and the message says {}", amount(bytes)));
        let [before, said] = [before, said].map(Option::unwrap_or_default);
        format!("{}, as of {}{before}{said}", self.formula, self.models.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guess_says_where_the_message_says_another_amount() {
        let text = "Tried to allocate 37.09 GiB. GPU 0 has a total capacity of 139.81 GiB of which 10.00 GiB is free. Of the allocated memory \
                    100.00 GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but unallocated.";
        let message: Message = text.parse().expect("a message");
        let guess = Guess {
            kind: Kind::Logits,
            formula: String::new(),
            tokens: None,
            vocabulary: None,
            models: Vec::new(),
            scenario: Box::default(),
            allocated: None,
            said: None,
        };
        let with = |gib: f64| Guess { allocated: Some(Bytes::gib(gib)), ..guess.clone() };
        let told = |amounts: &[f64]| {
            let mut guesses: Vec<Guess> = amounts.iter().map(|gib| with(*gib)).collect();
            nearest_first(&mut guesses, &message);
            let told = guesses.into_iter().map(|guess| (guess.allocated, guess.said.is_some()));
            told.collect::<Vec<_>>()
        };
        let [same, near] = [99.8, 92.0].map(|gib| Some(Bytes::gib(gib)));
        assert_eq!(told(&[40.0, 92.0, 99.8]), [(same, false), (near, true)]);
        // and is none where its run has tens of percent less
        assert_eq!(told(&[40.0, 81.0]), []);
    }
}
