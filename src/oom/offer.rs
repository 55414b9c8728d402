//! Changes of the scenario that a text itself names, whatever run it is of: its card, what other processes have, the allocator; and where the
//! computer's memory ran out, what keeps tensors there.

use serde::{Deserialize, Serialize};

use super::bare::Bitsandbytes;
use super::message::Message;
use super::processes::Processes;
use super::vllm::Share;
use crate::plan::{Answer, Change};
use crate::scenario::{
    Allocator, Checkpointing, CpuOffload, Evaluates, GpuChoice, Offloading, Optimizer, Scenario,
};
use crate::units::{BYTES_PER_MIB, Bytes};

/// A change of the scenario.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Offer {
    /// What changes.
    pub changes: Vec<Change>,
    /// Why, in a few words.
    pub why: String,
    /// The changed scenario.
    pub scenario: Box<Scenario>,
}

/// What a text offers beside the scenario that somebody has; `on_card` is that on the text's card, and `in_pieces` says whether an allocator that
/// joins its pieces would have had room.
pub(super) fn offers(
    message: &Message,
    listed: Option<&Processes>,
    scenario: &Scenario,
    on_card: &Scenario,
    in_pieces: bool,
) -> Vec<Offer> {
    let offer = |why: String, change: &dyn Fn(&mut Scenario)| {
        let mut other = scenario.clone();
        other.change(change);
        let changes = Change::between(scenario, &other, "");
        (!changes.is_empty()).then(|| Offer { changes, why, scenario: other.into() })
    };
    let gpu = match &on_card.gpu {
        GpuChoice::Catalogue(_) => {
            let why = match message.is_of_metal {
                true => "a Mac with that limit; its chip the text does not name",
                false => "the card that the text names, or whose memory it says",
            };
            offer(why.to_owned(), &|other| other.gpu = on_card.gpu.clone())
        }
        GpuChoice::Custom(_) => None,
    };
    let others = message.others.map(|amount| amount.bytes).zip(Some(match listed {
        Some(listed) => format!("what other processes have of it: {}", listed.others_in_words()),
        None => "what other processes had of it".to_owned(),
    }));
    let before_vllm = message.vllm.filter(|_| !scenario.asks_a_generator());
    let before_vllm =
        before_vllm.map(|share| (share.held(), "what was in use before vLLM started".to_owned()));
    let capacity = on_card.card().map_or(Bytes::ZERO, |card| card.memory);
    let used = others.or(before_vllm).filter(|(bytes, _)| (Bytes(1)..capacity).contains(bytes));
    let used = used
        .and_then(|(bytes, why)| offer(why, &|other| other.reserve.used = bytes.0.div_ceil(BYTES_PER_MIB)));
    let share = message.vllm.and_then(|share| of_vllm(share, scenario)).and_then(|percent| {
        offer("as much of the card as was free".to_owned(), &|other| other.reserve.vllm = percent)
    });
    let started = message.cache.and_then(|_| of_cache(scenario)).and_then(|percent| {
        offer("the least of the card with which it starts".to_owned(), &|other| other.reserve.vllm = percent)
    });
    let is_managed = message.bitsandbytes == Some(Bitsandbytes::Managed);
    let unpaged = unpaged(scenario.optimizer).filter(|_| is_managed).and_then(|optimizer| {
        offer("the same states in the card's own memory".to_owned(), &|other| other.optimizer = optimizer)
    });
    let joined = in_pieces.then(|| {
        offer("the allocator joins its pieces".to_owned(), &|other| other.allocator = Allocator::Expandable)
    });
    let from_host = if message.host.is_some() { out_of_cpu_memory(scenario) } else { Vec::new() };
    [gpu, used, share, started, unpaged, joined.flatten()].into_iter().flatten().chain(from_host).collect()
}

/// The share of the card that was free, where the scenario has a vLLM that might do with it.
fn of_vllm(share: Share, scenario: &Scenario) -> Option<u64> {
    let has_one = scenario.asks_a_generator() && scenario.reserve.vllm > 0;
    let least = scenario.least_vllm_share().unwrap_or(1);
    (has_one && least <= share.most() && share.most() < scenario.reserve.vllm).then(|| share.most())
}

/// The least share of the card with which the scenario's vLLM starts, where it has less.
fn of_cache(scenario: &Scenario) -> Option<u64> {
    let least = scenario.asks_a_generator().then(|| scenario.least_vllm_share())??;
    (scenario.reserve.vllm < least).then_some(least)
}

/// The optimizer whose states are paged, without that.
const fn unpaged(optimizer: Optimizer) -> Option<Optimizer> {
    match optimizer {
        Optimizer::PagedAdamW8bit => Some(Optimizer::AdamW8bit),
        Optimizer::PagedAdamW => Some(Optimizer::AdamW),
        Optimizer::PagedAdEmaMix => Some(Optimizer::AdEmaMix),
        Optimizer::PagedAdEmaMix8bit => Some(Optimizer::AdEmaMix8bit),
        _ => None,
    }
}

/// The scenario with each of the settings undone that keep tensors in the computer's memory.
fn out_of_cpu_memory(scenario: &Scenario) -> Vec<Offer> {
    let undone: [&dyn Fn(&mut Scenario); 5] = [
        &|other| other.cluster.cpu = CpuOffload::Off,
        &|other| {
            if other.optimizer.is_on_cpu() {
                other.optimizer = Optimizer::AdamW;
            }
        },
        &|other| other.savings.offloading = Offloading::Off,
        &|other| {
            if other.checkpointing == Checkpointing::Offloaded {
                other.checkpointing = Checkpointing::NonReentrant;
            }
        },
        &|other| {
            if other.evaluation.keeps == Evaluates::Metrics {
                other.evaluation.keeps = Evaluates::Loss;
            }
        },
    ];
    let offer = |undo: &&dyn Fn(&mut Scenario)| {
        let mut other = scenario.clone();
        other.change(undo);
        let changes = Change::between(scenario, &other, "");
        (!changes.is_empty()).then(|| {
            let answer = Answer::of(other);
            let verdict = answer.verdict().map(|verdict| verdict.label().to_lowercase());
            let why = verdict.map_or_else(
                || "out of the computer's memory; it has no answer".to_owned(),
                |verdict| format!("out of the computer's memory; on the card: {verdict}"),
            );
            Offer { changes, why, scenario: answer.scenario.into() }
        })
    };
    undone.iter().filter_map(offer).collect()
}
