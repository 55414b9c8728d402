//! What an amount may be where the scenario is not known: logits, whose size gives a vocabulary away.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::message::Message;
use crate::allocator::segment_for;
use crate::dtype::Dtype;
use crate::model::catalogue::{self, Entry};
use crate::scenario::{ModelChoice, Scenario};
use crate::units::{Bytes, grouped};

/// Logits of that size.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Guess {
    /// The sum: `65,536 tokens × 151,936 × 4 bytes (float32)`.
    pub formula: String,
    /// Tokens of the batch.
    pub tokens: u64,
    /// Rows of the vocabulary.
    pub vocabulary: u64,
    /// Models of the catalogue with that vocabulary, a few of them.
    pub models: Vec<String>,
    /// The scenario with the first of them and as many tokens at a time, in sequences of its own length where they are a multiple of it;
    /// with the method and the checkpointing under which it is nearest to the message, where that says what was allocated.
    pub scenario: Box<Scenario>,
    /// What is allocated there when a tensor of that size is asked for.
    pub allocated: Option<Bytes>,
    /// What the message says was allocated, where that is another amount.
    pub said: Option<Bytes>,
}

/// Logits smaller than this are not told from other tensors.
const LEAST: u64 = 64 << 20;
/// Batches are made of so many tokens or a multiple, where people choose round numbers.
const ROUND: u64 = 512;
/// No batch has more.
const MOST_TOKENS: u64 = 1 << 24;
/// So many guesses, and so many models of each, are named.
const NAMED: usize = 3;

/// What logits of the catalogue's models have the size that a message says: those of the scenario's vocabulary first, then the roundest
/// number of tokens.
pub fn guesses(message: &Message, scenario: &Scenario) -> Vec<Guess> {
    let own = scenario.architecture().ok().map(|architecture| architecture.vocab);
    let Some(asked) = message.requested.filter(|asked| asked.bytes.0 >= LEAST) else { return Vec::new() };
    let mut models: BTreeMap<u64, Vec<(&Entry, Option<u64>)>> = BTreeMap::new();
    for entry in catalogue::entries() {
        if let Ok(architecture) = entry.architecture() {
            models.entry(architecture.vocab).or_default().push((entry, architecture.max_positions));
        }
    }
    let sizes = models
        .iter()
        .flat_map(|(vocab, models)| [Dtype::F32, Dtype::Bf16].map(|dtype| (*vocab, models, dtype)));
    let mut found: Vec<Guess> = sizes
        .filter_map(|(vocabulary, models, dtype)| {
            let row = vocabulary.saturating_mul(dtype.bytes()).max(1);
            let tokens = asked.most().checked_div(row)? / ROUND * ROUND;
            let bytes = segment_for(tokens.saturating_mul(row));
            let fits = (1..=MOST_TOKENS).contains(&tokens) && (asked.least()..=asked.most()).contains(&bytes);
            let (batch, sequence) = in_sequences(tokens, scenario.sequence);
            let knows_as_many = |most: Option<u64>| most.is_none_or(|most| sequence <= most);
            let models: Vec<&Entry> =
                models.iter().filter(|(_, most)| knows_as_many(*most)).map(|(entry, _)| *entry).collect();
            let first = models.first().filter(|_| fits)?.id;
            Some(Guess {
                formula: format!(
                    "{} tokens × {} × {} bytes ({})",
                    grouped(tokens),
                    grouped(vocabulary),
                    dtype.bytes(),
                    dtype.name()
                ),
                tokens,
                vocabulary,
                models: models.iter().take(NAMED).map(|entry| entry.name.to_string()).collect(),
                scenario: Box::new(with_batch(scenario, first, (batch, sequence))),
                allocated: None,
                said: None,
            })
        })
        .collect();
    // half the bytes are twice the tokens: float32, in which losses are computed, comes first
    found.dedup_by_key(|guess| guess.vocabulary);
    found.sort_by_key(|guess| {
        (Some(guess.vocabulary) != own, std::cmp::Reverse(guess.tokens.trailing_zeros()))
    });
    found.truncate(NAMED);
    found
}

/// What is allocated in a guess's run is not what a message says where they differ by more than so many percent: its optimizer and element
/// types are the scenario's, which nobody said are the message's.
const OTHER: f64 = 10.0;

/// Of guesses that were looked at those whose run has what the message says was allocated; where there are none all of them, the nearest
/// first, with what it says.
pub(super) fn nearest_first(guesses: &mut Vec<Guess>, message: &Message) {
    let Some(said) = message.allocated.map(|amount| amount.bytes) else { return };
    let off = |guess: &Guess| Bytes(guess.allocated.map_or(0, |bytes| bytes.0.abs_diff(said.0)));
    let is_other = |guess: &Guess| off(guess).percent_of(said) > OTHER;
    if !guesses.iter().all(is_other) {
        return guesses.retain(|guess| !is_other(guess));
    }
    guesses.sort_by_key(off);
    guesses.iter_mut().for_each(|guess| guess.said = Some(said));
}

/// So many tokens as sequences of that length where they are a multiple of it, else as one sequence.
fn in_sequences(tokens: u64, length: u64) -> (u64, u64) {
    let length = length.max(1);
    if tokens.is_multiple_of(length) { (tokens / length, length) } else { (1, tokens) }
}

/// The scenario with a model and a batch.
fn with_batch(scenario: &Scenario, model: &str, (batch, sequence): (u64, u64)) -> Scenario {
    let mut other = scenario.clone();
    other.change(|other| {
        other.model = ModelChoice::Catalogue(model.to_owned());
        (other.batch, other.sequence) = (batch, sequence);
    });
    other
}

impl Guess {
    /// In words: `65,536 tokens × 151,936 × 4 bytes (float32), as of Qwen3 8B; there 56.1 GiB are allocated before it`.
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
    fn a_size_gives_the_vocabulary_away() {
        let message: Message = "Tried to allocate 37.09 GiB".parse().expect("a message");
        let scenario = Scenario { model: ModelChoice::Size(7.0), ..Scenario::default() };
        let guess = &guesses(&message, &scenario)[0];
        assert_eq!((guess.scenario.batch, guess.scenario.sequence), (32, 2048));
        assert_eq!(guess.formula, "65,536 tokens × 151,936 × 4 bytes (float32)");
        assert!(guess.models.iter().any(|model| model.contains("Qwen")), "{:?}", guess.models);
        let small: Message = "Tried to allocate 20.00 MiB".parse().expect("a message");
        assert_eq!(guesses(&small, &scenario), []);
        let message: Message = "Tried to allocate 3.91 GiB".parse().expect("a message");
        let own = &guesses(&message, &Scenario::default())[0];
        assert_eq!(own.formula, "8,192 tokens × 128,256 × 4 bytes (float32)");
    }
}
