//! Tensors of the catalogue's models that have the size of a message, as far as its traceback lets them be it.

use std::collections::BTreeMap;

use super::guess::{Guess, Kind};
use super::likely::{BATCHES, SEQUENCES, scores};
use super::message::Message;
use super::place::Place;
use crate::allocator::segment_for;
use crate::dtype::Dtype;
use crate::model::Architecture;
use crate::model::blocks::Param;
use crate::model::catalogue::{self, Entry};
use crate::scenario::{AttentionKernel, Method, ModelChoice, Optimizer, Precision, Scenario, Sharding};
use crate::units::grouped;

/// Tensors smaller than this are not told from others, nor states of a weight where the traceback says that it is one: the allocator's segments
/// of up to 20 MiB are of many tensors.
const LEAST: u64 = 64 << 20;
const LEAST_OF_PARAMETERS: u64 = 22 << 20;
/// Batches are made of so many tokens or a multiple, where people choose round numbers.
const ROUND: u64 = 512;
/// No batch has more.
const MOST_TOKENS: u64 = 1 << 24;
/// So many guesses of a kind, and so many models of each, are named.
const NAMED: usize = 3;

/// What tensors of the catalogue's models have the size that a message says: logits and attention's scores where the traceback, if there is one,
/// stands where they may be made; what is as large as a weight where it says that it is one.
pub fn guesses(message: &Message, places: &[Place], scenario: &Scenario) -> Vec<Guess> {
    let place = places.first().copied();
    let least = if place.is_some_and(Place::is_of_parameters) { LEAST_OF_PARAMETERS } else { LEAST };
    let asked = message.sought().filter(|sought| *sought.end() >= least);
    if asked.is_none() || message.segment().is_some() {
        return Vec::new();
    }
    let mut found = Vec::new();
    if place.is_none_or(Place::may_be_of_logits) {
        found.extend(logits(message, scenario));
    }
    // of a size alone that no traceback supports logits are most likely
    let is_supported = message.allocated.is_some() || place.is_some();
    if is_supported && place.is_none_or(Place::may_be_of_scores) {
        found.extend(written_out(message, scenario));
    }
    if place == Some(Place::Flat) {
        found.extend(partitions(message, scenario));
    }
    if let Some(place) = place.filter(|place| place.is_of_parameters()) {
        found.extend(parameters(message, place, scenario));
    }
    found
}

/// Logits: those of the scenario's vocabulary first, then the roundest number of tokens.
fn logits(message: &Message, scenario: &Scenario) -> Vec<Guess> {
    let own = scenario.architecture().ok().map(|architecture| architecture.vocab);
    let Some(sought) = message.sought() else { return Vec::new() };
    let mut models: BTreeMap<u64, Vec<(&Entry, Option<u64>)>> = BTreeMap::new();
    for (entry, architecture) in known() {
        models.entry(architecture.vocab).or_default().push((entry, architecture.max_positions));
    }
    let sizes = models
        .iter()
        .flat_map(|(vocab, models)| [Dtype::F32, Dtype::Bf16].map(|dtype| (*vocab, models, dtype)));
    let mut found: Vec<(u64, u64, Guess)> = sizes
        .filter_map(|(vocabulary, models, dtype)| {
            let row = vocabulary.saturating_mul(dtype.bytes()).max(1);
            let tokens = sought.end().checked_div(row)? / ROUND * ROUND;
            let bytes = segment_for(tokens.saturating_mul(row));
            let fits = (1..=MOST_TOKENS).contains(&tokens) && sought.contains(&bytes);
            let batch = in_sequences(tokens, scenario.sequence);
            let knows_as_many = |most: Option<u64>| most.is_none_or(|most| batch.1 <= most);
            let models: Vec<&Entry> =
                models.iter().filter(|(_, most)| knows_as_many(*most)).map(|(entry, _)| *entry).collect();
            models.first().filter(|_| fits)?;
            let formula = format!("{} tokens × {} × {}", grouped(tokens), grouped(vocabulary), of(dtype));
            let guess = Guess {
                tokens: Some(tokens),
                vocabulary: Some(vocabulary),
                ..guess(Kind::Logits, formula, &models, |first| with_batch(scenario, first, batch))?
            };
            Some((vocabulary, tokens, guess))
        })
        .collect();
    // half the bytes are twice the tokens: float32, in which losses are computed, comes first
    found.dedup_by_key(|(vocabulary, _, _)| *vocabulary);
    found.sort_by_key(|(vocabulary, tokens, _)| {
        (Some(*vocabulary) != own, std::cmp::Reverse(tokens.trailing_zeros()))
    });
    found.into_iter().map(|(_, _, guess)| guess).take(NAMED).collect()
}

/// The scores of eager attention: those of as many heads as the scenario's model has first, then the fewest sequences, then those as long as
/// a model knows, on which people train.
fn written_out(message: &Message, scenario: &Scenario) -> Vec<Guess> {
    let own = scenario.architecture().ok().and_then(|architecture| architecture.heads());
    let Some(sought) = message.sought() else { return Vec::new() };
    let mut models: BTreeMap<u64, Vec<(&Entry, Option<u64>)>> = BTreeMap::new();
    for (entry, architecture) in known() {
        if let Some((heads, _)) = architecture.heads() {
            models.entry(heads).or_default().push((entry, architecture.max_positions));
        }
    }
    let mut found: Vec<((bool, u64, bool), Guess)> = Vec::new();
    for (heads, models) in &models {
        let batches = BATCHES.into_iter().flat_map(|batch| SEQUENCES.map(|sequence| (batch, sequence)));
        for (batch, sequence) in batches {
            let fits = |(_, bytes): &(u64, u64)| sought.contains(&segment_for(*bytes));
            let Some((bytes, _)) = scores(*heads, batch, sequence).find(fits) else { continue };
            let mut able: Vec<_> =
                models.iter().filter(|(_, most)| most.is_none_or(|most| sequence <= most)).collect();
            able.sort_by_key(|(_, most)| *most != Some(sequence));
            let knows_more = able.first().is_none_or(|(_, most)| *most != Some(sequence));
            let able: Vec<&Entry> = able.into_iter().map(|(entry, _)| *entry).collect();
            let tokens = [grouped(batch * sequence), grouped(sequence), grouped(*heads)];
            let formula =
                format!("{} tokens × {} keys × {} heads × {bytes} bytes", tokens[0], tokens[1], tokens[2]);
            let written_out = |first: &str| Scenario {
                attention: AttentionKernel::Eager,
                ..with_batch(scenario, first, (batch, sequence))
            };
            if let Some(guess) = guess(Kind::Scores, formula, &able, written_out) {
                let is_other = own.is_none_or(|(own, _)| own != *heads);
                found
                    .push(((is_other, batch, knows_more), Guess { tokens: Some(batch * sequence), ..guess }));
            }
        }
    }
    found.sort_by_key(|(key, _)| *key);
    found.into_iter().map(|(_, guess)| guess).take(NAMED).collect()
}

/// What is as large as a weight: the weight where a model is loaded, what an optimizer remembers of it in its step. Of the models with such a weight
/// those that may have as much of it as the message says was allocated.
fn parameters(message: &Message, place: Place, scenario: &Scenario) -> Vec<Guess> {
    let (Some(sought), Some(said)) = (message.sought(), message.allocated) else { return Vec::new() };
    let is_loading = place == Place::Loading;
    let mut found: Vec<Guess> = Vec::new();
    for dtype in [Dtype::F32, Dtype::Bf16] {
        let mut models: BTreeMap<Vec<u64>, Vec<&Entry>> = BTreeMap::new();
        for (entry, architecture) in known() {
            let all = entry.parameters.saturating_mul(dtype.bytes());
            // before the step weights and gradients are there, after it two states more
            let may_have = if is_loading { 0..=all } else { all.saturating_mul(2)..=all.saturating_mul(4) };
            if !may_have.contains(&said.bytes.0) {
                continue;
            }
            for shape in shapes(&architecture) {
                let numel = shape.iter().fold(1, |product: u64, length| product.saturating_mul(*length));
                if sought.contains(&segment_for(numel.saturating_mul(dtype.bytes()))) {
                    models.entry(shape).or_default().push(entry);
                }
            }
        }
        let precision = match (dtype, is_loading) {
            (Dtype::F32, true) => Precision::Fp32,
            (Dtype::F32, false) => Precision::AmpBf16,
            _ => Precision::Bf16,
        };
        let kind = if is_loading { Kind::Weights } else { Kind::OptimizerState };
        for (shape, models) in models {
            let lengths: Vec<String> = shape.iter().map(|length| grouped(*length)).collect();
            let formula = format!("{} × {}", lengths.join(" × "), of(dtype));
            found.extend(guess(kind, formula, &models, |first| {
                let mut other = with_batch(scenario, first, (scenario.batch, scenario.sequence));
                other.change(|other| other.method = Method::Full);
                Scenario { precision, optimizer: Optimizer::AdamW, ..other }
            }));
        }
    }
    found.truncate(NAMED);
    found
}

/// GPUs among which all parameters are divided.
const DIVIDED: [u64; 7] = [8, 4, 2, 16, 32, 64, 1];

/// A rank's part of all parameters in one tensor: those of the scenario's model first, then among as many GPUs as it has, then of most models.
fn partitions(message: &Message, scenario: &Scenario) -> Vec<Guess> {
    let Some(sought) = message.sought() else { return Vec::new() };
    let own = scenario.architecture().ok().map(|architecture| architecture.parameters());
    let mut models: BTreeMap<u64, Vec<&Entry>> = BTreeMap::new();
    for (entry, architecture) in known() {
        models.entry(architecture.parameters()).or_default().push(entry);
    }
    type Order = (bool, bool, usize, std::cmp::Reverse<usize>);
    let mut found: Vec<(Order, Guess)> = Vec::new();
    for (parameters, models) in &models {
        for (order, dtype) in [Dtype::F32, Dtype::Bf16].into_iter().enumerate() {
            for gpus in DIVIDED {
                let bytes = parameters.div_ceil(gpus).saturating_mul(dtype.bytes());
                if !sought.contains(&segment_for(bytes)) {
                    continue;
                }
                let among = if gpus == 1 { String::new() } else { format!(" / {gpus} GPUs") };
                let formula = format!("{} parameters{among} × {}", grouped(*parameters), of(dtype));
                let sharded = |first: &str| {
                    let mut other = with_batch(scenario, first, (scenario.batch, scenario.sequence));
                    other.change(|other| {
                        other.method = Method::Full;
                        other.cluster.set_gpus(gpus);
                    });
                    other.change(|other| other.cluster.sharding = Sharding::Zero2);
                    other
                };
                let is_other = own != Some(*parameters);
                let key = (is_other, gpus != scenario.cluster.gpus, order, std::cmp::Reverse(models.len()));
                found.extend(guess(Kind::Partition, formula, models, sharded).map(|guess| (key, guess)));
            }
        }
    }
    found.sort_by_key(|(key, _)| *key);
    found.into_iter().map(|(_, guess)| guess).take(NAMED).collect()
}

/// All weights of a model at once, as transformers asks for room for them: the sum, and models that have it. Those of the scenario's come
/// first; half of what 16 bits take is asked for where they are quantised as they are loaded.
pub(super) fn all_weights(message: &Message, scenario: &Scenario) -> Option<(String, Vec<String>)> {
    let sought = message.sought()?;
    let sum = |parameters: u64| {
        let sizes = [(Dtype::Bf16, 1), (Dtype::F32, 1), (Dtype::Bf16, 2)];
        let has_size = |(dtype, part): &(Dtype, u64)| {
            sought.contains(&segment_for(parameters.saturating_mul(dtype.bytes()) / part))
        };
        let (dtype, part) = sizes.into_iter().find(has_size)?;
        let halved = if part == 1 { "" } else { " / 2, as they are quantised" };
        Some((part, format!("{} parameters × {}{halved}", grouped(parameters), of(dtype))))
    };
    let own = scenario.architecture().ok().and_then(|architecture| sum(architecture.parameters()));
    if let Some((_, formula)) = own {
        return Some((formula, vec![scenario.model_name()]));
    }
    let mut found: BTreeMap<(u64, String), Vec<String>> = BTreeMap::new();
    for (entry, architecture) in known() {
        if let Some(sum) = sum(architecture.parameters()) {
            found.entry(sum).or_default().push(entry.name.to_string());
        }
    }
    let first = found.into_iter().min_by_key(|((part, _), models)| (*part, std::cmp::Reverse(models.len())));
    first.map(|((_, formula), mut models)| {
        models.truncate(NAMED);
        (formula, models)
    })
}

/// The models of the catalogue with what they are made of.
pub(super) fn known() -> impl Iterator<Item = (&'static Entry, std::sync::Arc<Architecture>)> {
    catalogue::entries().iter().filter_map(|entry| Some((entry, entry.architecture().ok()?)))
}

/// The shapes of a model's larger parameters, each once; a matrix's longer side first.
fn shapes(architecture: &Architecture) -> Vec<Vec<u64>> {
    let mut shapes = Vec::new();
    let mut add = |param: Param| {
        let mut shape = param.shape;
        shape.sort_unstable_by(|a, b| b.cmp(a));
        if shape.len() > 1 && !shapes.contains(&shape) {
            shapes.push(shape);
        }
    };
    architecture.visit_outside(&mut add);
    architecture.block_counts().for_each(|(block, _)| block.visit(&mut add));
    shapes
}

/// `4 bytes (float32)`.
pub(super) fn of(dtype: Dtype) -> String {
    format!("{} bytes ({})", dtype.bytes(), dtype.name())
}

/// A guess of a tensor that these models have, with the scenario of the first; nothing where there are none.
fn guess(
    kind: Kind,
    formula: String,
    models: &[&Entry],
    scenario: impl Fn(&str) -> Scenario,
) -> Option<Guess> {
    Some(Guess {
        kind,
        formula,
        tokens: None,
        vocabulary: None,
        models: models.iter().take(NAMED).map(|entry| entry.name.to_string()).collect(),
        scenario: Box::new(scenario(models.first()?.id)),
        allocated: None,
        said: None,
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    fn of_kind(text: &str, places: &[Place], scenario: &Scenario) -> Vec<(Kind, String)> {
        let message: Message = text.parse().expect("a message");
        let found = guesses(&message, places, scenario);
        found.into_iter().map(|guess| (guess.kind, guess.formula)).collect()
    }

    #[test]
    fn a_size_gives_the_vocabulary_away() {
        let message: Message = "Tried to allocate 37.09 GiB".parse().expect("a message");
        let scenario = Scenario { model: ModelChoice::Size(7.0), ..Scenario::default() };
        let guess = &guesses(&message, &[], &scenario)[0];
        assert_eq!((guess.scenario.batch, guess.scenario.sequence), (32, 2048));
        assert_eq!(guess.formula, "65,536 tokens × 151,936 × 4 bytes (float32)");
        assert!(guess.models.iter().any(|model| model.contains("Qwen")), "{:?}", guess.models);
        assert_eq!(of_kind("Tried to allocate 20.00 MiB", &[], &scenario), []);
        let own = &of_kind("Tried to allocate 3.91 GiB", &[], &Scenario::default())[0];
        assert_eq!(own.1, "8,192 tokens × 128,256 × 4 bytes (float32)");
    }

    #[test]
    fn the_place_of_the_traceback_says_what_it_may_be() {
        let text = "Tried to allocate 1.25 GiB (GPU 0; 79.10 GiB total capacity; 76.13 GiB already allocated; 290.12 MiB free; 77.47 GiB reserved in \
                    total by PyTorch)";
        let kinds = |places: &[Place]| {
            let mut kinds: Vec<Kind> =
                of_kind(text, places, &Scenario::default()).into_iter().map(|(kind, _)| kind).collect();
            kinds.dedup();
            kinds
        };
        assert_eq!(kinds(&[]), [Kind::Logits, Kind::Scores]);
        assert_eq!(kinds(&[Place::Backward]), [Kind::Logits, Kind::Scores]);
        assert_eq!(kinds(&[Place::Loss]), [Kind::Logits]);
        assert_eq!(kinds(&[Place::Attention, Place::Backward]), [Kind::Scores]);
        assert_eq!(kinds(&[Place::Mlp]), []);
        let step = text.replace("1.25 GiB (", "224.00 MiB (");
        let found = of_kind(&step, &[Place::Step], &Scenario::default());
        assert!(
            found.contains(&(Kind::OptimizerState, "14,336 × 4,096 × 4 bytes (float32)".to_owned())),
            "{found:?}"
        );
        let loading = step.replace("76.13 GiB already", "10.13 GiB already");
        let found = of_kind(&loading, &[Place::Loading], &Scenario::default());
        assert!(!found.is_empty() && found.iter().all(|(kind, _)| *kind == Kind::Weights), "{found:?}");
    }
}
