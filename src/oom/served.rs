//! Which tensor of an engine that serves models has the size of a message.

use std::collections::BTreeMap;

use super::candidates::{known, of};
use super::engine::{At, Serving};
use super::finding::OfServing;
use super::message::Message;
use crate::allocator::segment_for;
use crate::dtype::Dtype;
use crate::model::Architecture;
use crate::model::blocks::Param;
use crate::scenario::Scenario;
use crate::units::grouped;

/// So many models are named of a sum, and so many sums where several have the size.
const NAMED: usize = 3;
const SUMS: usize = 2;
/// Sequences at once, those that vLLM has by default first: 1,024 on cards of 70 GiB and more, else 256 (`engine/arg_utils.py`
/// `get_batch_defaults`).
const SEQUENCES: [u64; 8] = [1024, 256, 512, 128, 64, 2048, 32, 4096];
/// Cards among which engines divide matrices.
const DIVIDED: [u64; 4] = [1, 2, 4, 8];

/// A sum that has the size, behind what it is ranked by: of logits how usual as many sequences are, of a matrix what the model's weights take of a
/// card, which are the likelier the less of them is still to come.
type Sum = (u64, String);

/// What of an engine's tensors has the size of a message, of the scenario's model or, where none of its has, of the catalogue's: logits of so
/// many sequences; the matrices as an engine loads them, in 16 bits, where so much of the model may have been there. None where nothing has it or
/// what it was at makes others.
pub(super) fn tensors(message: &Message, serving: Serving, scenario: &Scenario) -> Vec<OfServing> {
    if message.sought().is_none() {
        return Vec::new();
    }
    let sums = |architecture: &Architecture, parameters: u64| match serving.at {
        Some(At::Weights) => matrices(message, architecture, parameters),
        _ if serving.may_be_logits() => logits(message, serving, architecture),
        _ => Vec::new(),
    };
    let own = scenario.architecture().ok();
    let of_own = own.and_then(|own| sums(&own, own.parameters()).into_iter().min());
    if let Some((_, formula)) = of_own {
        return vec![OfServing { formula, models: vec![scenario.model_name()] }];
    }
    let mut found: BTreeMap<String, (u64, Vec<String>)> = BTreeMap::new();
    for (entry, architecture) in known() {
        for (rank, formula) in sums(&architecture, entry.parameters) {
            let (least, models) = found.entry(formula).or_insert((rank, Vec::new()));
            *least = rank.min(*least);
            models.push(entry.name.to_string());
        }
    }
    let mut found: Vec<(String, (u64, Vec<String>))> = found.into_iter().collect();
    found.sort_by_key(|(_, (rank, models))| (*rank, std::cmp::Reverse(models.len())));
    let named = |(formula, (_, mut models)): (String, (u64, Vec<String>))| {
        models.truncate(NAMED);
        OfServing { formula, models }
    };
    found.into_iter().map(named).take(SUMS).collect()
}

/// `logits: 1,024 sequences × 201,088 × 4 bytes (float32)`.
fn logits(message: &Message, serving: Serving, architecture: &Architecture) -> Vec<Sum> {
    let counts: Vec<u64> = serving.sequences.map_or(SEQUENCES.to_vec(), |sequences| vec![sequences]);
    let sizes = [Dtype::F32, Dtype::Bf16]
        .into_iter()
        .flat_map(|dtype| counts.iter().map(move |count| (dtype, *count)));
    let of_size = |(rank, (dtype, count)): (u64, (Dtype, u64))| {
        let bytes = count.saturating_mul(architecture.vocab).saturating_mul(dtype.bytes());
        let [sequences, vocabulary] = [count, architecture.vocab].map(grouped);
        let formula = format!("logits: {sequences} sequences × {vocabulary} × {}", of(dtype));
        message.sought()?.contains(&segment_for(bytes)).then_some((rank, formula))
    };
    (0..).zip(sizes).filter_map(of_size).collect()
}

/// `gate_up_proj: 28,672 × 4,096 × 2 bytes (bfloat16)`, and its like that have the size.
fn matrices(message: &Message, architecture: &Architecture, parameters: u64) -> Vec<Sum> {
    let Some(sought) = message.sought() else { return Vec::new() };
    let bytes = Dtype::Bf16.bytes();
    let there = message.allocated.map_or(0, |amount| amount.least());
    let mut found = Vec::new();
    for cards in DIVIDED {
        let of_card = parameters.saturating_mul(bytes) / cards;
        if of_card < there {
            continue;
        }
        for (name, shape) in loaded(architecture) {
            let numel = shape.iter().fold(1, |product: u64, length| product.saturating_mul(*length));
            let is_whole = numel.is_multiple_of(cards);
            if is_whole && sought.contains(&segment_for((numel / cards).saturating_mul(bytes))) {
                let lengths: Vec<String> = shape.iter().map(|length| grouped(*length)).collect();
                let among = if cards == 1 { String::new() } else { format!(" / {cards} GPUs") };
                found
                    .push((of_card, format!("{name}: {}{among} × {}", lengths.join(" × "), of(Dtype::Bf16))));
            }
        }
    }
    found
}

/// The larger matrices of a model as engines load them, each once: queries, keys and values in one, and both halves of a gated network.
fn loaded(architecture: &Architecture) -> Vec<(String, Vec<u64>)> {
    const JOINED: [(&str, &[&str]); 2] =
        [("qkv_proj", &["q_proj", "k_proj", "v_proj"]), ("gate_up_proj", &["gate_proj", "up_proj"])];
    let mut found: Vec<(String, Vec<u64>)> = Vec::new();
    let mut add = |name: String, shape: Vec<u64>| {
        if shape.len() > 1 && !found.iter().any(|(_, known)| *known == shape) {
            found.push((name, shape));
        }
    };
    let short = |param: &Param| {
        let name = param.name.strip_suffix(".weight").unwrap_or(&param.name);
        name.rsplit('.').next().unwrap_or_default().to_owned()
    };
    let mut outside = Vec::new();
    architecture.visit_outside(&mut |param: Param| outside.push((short(&param), param.shape)));
    let mut groups = vec![outside];
    for (block, _) in architecture.block_counts() {
        let mut inside = Vec::new();
        block.visit(&mut |param: Param| inside.push((short(&param), param.shape)));
        groups.push(inside);
    }
    for params in groups {
        for (joined, parts) in JOINED {
            let shapes: Vec<&Vec<u64>> = parts
                .iter()
                .filter_map(|part| params.iter().find(|(name, shape)| name == part && shape.len() == 2))
                .map(|(_, shape)| shape)
                .collect();
            if let (Some(&&[_, columns]), true) =
                (shapes.first().map(|shape| shape.as_slice()).as_ref(), shapes.len() == parts.len())
            {
                add(joined.to_owned(), vec![shapes.iter().filter_map(|shape| shape.first()).sum(), columns]);
            }
        }
        params.into_iter().for_each(|(name, shape)| add(name, shape));
    }
    found
}
