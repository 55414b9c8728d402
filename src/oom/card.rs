//! The card that a message is of.

use super::message::Message;
use crate::hardware::{Basis, Class, Gpu, Vendor, gpus};
use crate::scenario::{GpuChoice, Scenario};
use crate::units::Bytes;

/// A card has the memory that a message says where it differs by no more than this part: nvidia-smi shows up to 3 % more than
/// a program can have (`data/gpus.csv`: of a T4 15,360 MiB and 14,912).
const SAME_CARD: f64 = 0.04;

/// A message's card is one of the catalogue where no other has as much, and the two differ by no more than this part: cards of one kind differ by as much
/// from driver to driver (`data/gpus.csv`: of an RTX 4090 23.494 to 23.650 GiB).
const NEAREST_CARD: f64 = 0.007;

/// Where no card is as near as that: a T4 has 14.56 GiB by its driver, and 14.75 in messages from Colab.
const NEAR_CARD: f64 = 0.015;

/// The scenario on the card that the text names, or on one with the memory that the message says; and what its own card and that have,
/// where they differ.
pub(super) fn on_card_of(
    message: &Message,
    text: &str,
    scenario: &Scenario,
) -> (Scenario, Option<[Bytes; 2]>) {
    let capacity = message.capacity.map(|amount| amount.bytes);
    // all of it, whoever has a part
    let card = scenario.card().ok();
    let own = card.as_ref().map_or(Bytes::ZERO, |gpu| gpu.memory);
    let is_near = |one: Bytes, other: Bytes| one.0.abs_diff(other.0) as f64 <= other.0 as f64 * SAME_CARD;
    let named = named_in(text, |gpu| capacity.is_none_or(|capacity| is_near(gpu.memory, capacity)));
    if let Some(gpu) = named {
        let there = gpu.memory;
        let gpu = GpuChoice::Catalogue(gpu.slug.to_string());
        return (Scenario { gpu, ..scenario.clone() }, (!is_near(own, there)).then_some([own, there]));
    }
    let Some(capacity) = capacity else { return (scenario.clone(), None) };
    let vendor = message.vendor();
    if vendor == Some(Vendor::Apple) {
        return (on_mac(capacity, scenario), None);
    }
    let is_theirs = vendor.is_none_or(|vendor| card.is_some_and(|gpu| gpu.vendor == vendor));
    if is_theirs && is_near(own, capacity) {
        return (scenario.clone(), None);
    }
    let vendor = vendor.unwrap_or(Vendor::Nvidia);
    let gpu = nearest(capacity, vendor)
        .map_or(GpuChoice::Custom(capacity), |gpu| GpuChoice::Catalogue(gpu.slug.to_string()));
    (Scenario { gpu, ..scenario.clone() }, Some([own, capacity]))
}

/// What PyTorch lets a process have of what Metal recommends, where nothing is said (`default_high_watermark_ratio` in
/// `ATen/mps/MPSAllocator.h`).
const OF_RECOMMENDED: f64 = 1.7;

/// The scenario on a Mac on which a process has that limit: its own, or else the first of the smallest with as much.
fn on_mac(limit: Bytes, scenario: &Scenario) -> Scenario {
    let limit = limit.0 as f64;
    let limit_of = |gpu: &Gpu| gpu.memory.0 as f64 * OF_RECOMMENDED;
    let is_it = |gpu: Gpu| gpu.vendor == Vendor::Apple && (limit_of(&gpu) - limit).abs() <= limit * SAME_CARD;
    if scenario.card().is_ok_and(is_it) {
        return scenario.clone();
    }
    let macs = gpus().filter(|gpu| gpu.vendor == Vendor::Apple);
    let with_as_much = macs.filter(|gpu| limit_of(gpu) >= limit * (1.0 - SAME_CARD));
    let gpu = with_as_much.min_by_key(|gpu| gpu.memory).map(|gpu| GpuChoice::Catalogue(gpu.slug.to_string()));
    Scenario { gpu: gpu.unwrap_or_else(|| scenario.gpu.clone()), ..scenario.clone() }
}

/// The card that a text names as nvidia-smi does, `NVIDIA GeForce RTX 3090` or `Tesla T4`, of those that it may be; nothing where it names
/// several.
fn named_in(text: &str, may_be: impl Fn(&Gpu) -> bool) -> Option<&'static Gpu> {
    /// Words behind a name that make it another card's.
    const OTHERS: [&str; 5] = ["laptop", "ti", "super", "max", "mobile"];
    fn words(text: &str) -> Vec<String> {
        let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
        words.map(str::to_ascii_lowercase).collect()
    }
    let said = words(text);
    let is_said = |name: &[String]| {
        let makers = said.iter().enumerate().filter(|(_, word)| ["nvidia", "tesla"].contains(&word.as_str()));
        makers.map(|(at, _)| &said[at + 1..]).any(|rest| {
            rest.starts_with(name) && rest.get(name.len()).is_none_or(|next| !OTHERS.contains(&next.as_str()))
        })
    };
    let mut named = gpus().filter(|gpu| may_be(gpu)).filter(|gpu| is_said(&words(&gpu.name)));
    named.next().filter(|_| named.next().is_none())
}

/// The card of the catalogue that has as much as a message says: of NVIDIA's the first where all that have are of one compute capability, of
/// those that people train on (Volta and newer) and whose memory a program or its driver told, if there are some; of others' the nearest, as only
/// their tensors are followed.
fn nearest(capacity: Bytes, vendor: Vendor) -> Option<&'static Gpu> {
    let off = |gpu: &Gpu| gpu.memory.0.abs_diff(capacity.0);
    let within = |part: f64| {
        gpus().filter(move |gpu| off(gpu) as f64 <= capacity.0 as f64 * part && gpu.vendor == vendor)
    };
    if vendor != Vendor::Nvidia {
        return within(SAME_CARD).min_by_key(|gpu| off(gpu));
    }
    let is_old = |gpu: &&Gpu| gpu.capability.is_some_and(|capability| capability.major < 7);
    let found = [NEAREST_CARD, NEAR_CARD].into_iter().find_map(|part| {
        let (old, new): (Vec<_>, Vec<_>) = within(part).partition(is_old);
        let (told, sold): (Vec<_>, Vec<_>) = new.into_iter().partition(|gpu| gpu.basis != Basis::Marketed);
        [told, sold, old].into_iter().find(|near| !near.is_empty())
    })?;
    let first = found.first().copied()?;
    found.iter().all(|gpu| gpu.capability == first.capability).then_some(first)
}

/// Whether the computer's memory ran out, and is the card's too: on a Mac, an APU, a DGX Spark.
pub(super) fn is_shared(message: &Message, scenario: &Scenario) -> bool {
    message.host.is_some() && scenario.gpu().is_ok_and(|gpu| gpu.class == Some(Class::Unified))
}
