//! The amounts of an answer that people mix up, and what each is.

use super::behind::Behind;
use super::detail::Detail;
use super::format::Unit;
use crate::export;
use crate::hardware::{Class, Gpu, Vendor};
use crate::memory::{Counted, Memory};
use crate::plan::{OnCard, Outcome, Verdict, pace};
use crate::scenario::Scenario;
use crate::units::Bytes;

/// A figure of the answer: its name, its amount, what it consists of.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// What it is called.
    pub name: &'static str,
    /// The amount; a dash where it is not known, dots while it is computed.
    pub amount: String,
    /// What it is made of.
    pub note: String,
    /// What the name means.
    pub help: &'static str,
    /// What stands behind it.
    pub behind: Behind,
}

pub(super) const NEEDS: &str = "“Needs” is the highest torch.cuda.max_memory_allocated() of the run, and the memory that the driver takes for the \
                     process (300 to 900 MiB were seen). A card with less cannot run it.";
pub(super) const RESERVES: &str = "“PyTorch reserves” is torch.cuda.max_memory_reserved(): what the allocator has taken from the driver, with \
                        the holes between tensors and what it keeps for later.";
const UNIFIED: &str =
    "What PyTorch reserves and the driver’s share. nvidia-smi shows no memory of a processor.";
pub(super) const SHOWS: &str = "“nvidia-smi shows” is what PyTorch reserves and the driver’s share, and beside other GPUs the range of what NCCL was seen to take. It may be more than is needed: PyTorch gives cached memory \
                     back before it fails.";

/// A card of which nvidia-smi shows so many percent is full.
const FULL: f64 = 97.;
const RAM: &str = "What the engine lays into the CPU’s memory: optimizer state, gradients, weights; or the logits that an evaluation leaves there. By its code; it was not measured.";

/// The three amounts that people mix up: what the tensors and the driver need, what PyTorch reserves, and what nvidia-smi
/// shows; on a card that is not NVIDIA's the first only. Beside them the machine's memory, where something lies in it.
pub fn figures(
    memory: &Memory,
    (gpu, scenario): (&Gpu, &Scenario),
    detail: Option<&Detail>,
    unit: Unit,
) -> Vec<Figure> {
    let cluster = scenario.cluster;
    let peak = unit.amount(memory.peak().1.bytes);
    let context = unit.amount(memory.context);
    let tensors = match memory.counted {
        Counted::Blocks => format!("{peak} allocated"),
        Counted::Tensors => format!("{peak} of tensors"),
    };
    let is_nvidia = gpu.vendor == Vendor::Nvidia;
    let has_context = memory.context > Bytes::ZERO;
    let mut note = if has_context { format!("{tensors} + {context} driver") } else { tensors };
    if let Some(share) = scenario.vllm_beside() {
        note.push_str(&format!(", vLLM’s {} among it", unit.amount(share.bytes())));
    }
    let name = if cluster.is_many() { "Each GPU needs" } else { "Needs" };
    let needs =
        Figure { name, amount: unit.amount(memory.needed()), note, help: NEEDS, behind: Behind::Needs };
    if !is_nvidia {
        return vec![needs];
    }
    let on_card = detail.map(|detail| &detail.on_card);
    let amount = |pick: fn(&OnCard) -> Bytes| match on_card {
        Some(Ok(on_card)) => unit.amount(pick(on_card)),
        Some(Err(_)) => "–".to_owned(),
        None => "…".to_owned(),
    };
    let fails = matches!(on_card, Some(Ok(OnCard { outcome: Outcome::Fails(_), .. })));
    let cached = |on_card: &OnCard| on_card.reserved.saturating_sub(memory.peak().1.bytes);
    let is_full = |on_card: &OnCard| {
        on_card.shown.percent_of(gpu.memory) > FULL && cached(on_card).percent_of(gpu.memory) > 100. - FULL
    };
    let reserved = match on_card {
        _ if fails => "until it fails",
        Some(Ok(OnCard { outcome: Outcome::RunsExpandable, .. })) => {
            "with expandable segments, as it then runs"
        }
        Some(Ok(on_card)) if is_full(on_card) => {
            "nearly all that there is: what is cached goes back when it is needed"
        }
        Some(_) | None => "with the holes between tensors",
    };
    let on_each = scenario.kept_on_host(memory);
    let on_host = Bytes(on_each.0.saturating_mul(cluster.gpus));
    let evaluated = scenario.evaluated_on_host(memory);
    let ram = (on_host.max(evaluated) > Bytes::ZERO).then(|| Figure {
        name: "RAM",
        amount: unit.amount(on_host.max(evaluated)),
        note: match cluster.is_many() {
            _ if scenario.short_of_ram(on_each).is_some() => "more than known machines with this card have",
            true => "for all GPUs together",
            false if evaluated > on_host => "for the evaluation's logits",
            false => "beside the card",
        }
        .to_owned(),
        help: RAM,
        behind: Behind::Host,
    });
    let is_unified = gpu.class == Some(Class::Unified);
    let amounts = [
        needs,
        Figure {
            name: "PyTorch reserves",
            amount: amount(|on_card| on_card.reserved),
            note: reserved.to_owned(),
            help: RESERVES,
            behind: Behind::Reserves,
        },
        Figure {
            name: if is_unified { "With the driver" } else { "nvidia-smi shows" },
            amount: match on_card {
                Some(Ok(on_card)) if cluster.is_many() && !fails => {
                    unit.between(on_card.with(scenario.nccl(), gpu))
                }
                Some(_) | None => amount(|on_card| on_card.shown),
            },
            note: match (cluster.is_many(), scenario.communicators().len()) {
                (true, 1) => "with the driver and one NCCL communicator".to_owned(),
                (true, own) => format!("with the driver and {own} NCCL communicators"),
                (false, _) => "that and the driver".to_owned(),
            },
            help: if is_unified { UNIFIED } else { SHOWS },
            behind: Behind::Shows,
        },
    ];
    amounts.into_iter().chain(ram).collect()
}

/// How fast it is, where runs near it were measured and it gets through.
pub fn speed(scenario: &Scenario, memory: &Memory, verdict: Verdict) -> Option<Figure> {
    if matches!(verdict, Verdict::Over | Verdict::WouldNotRun) {
        return None;
    }
    let pace = pace(scenario, memory).ok()?;
    let [amount, note] = export::tokens_per_second(pace.tokens_per_second());
    Some(Figure {
        name: match scenario.cluster.is_many() {
            // who generates the answers takes time of its own
            _ if scenario.asks_a_generator() => "Speed of training alone, roughly",
            true => "Speed of all GPUs, roughly",
            false => "Speed, roughly",
        },
        amount,
        note,
        help: "Tokens per second from what the step computes and what such cards were measured to reach. The view Plan says what \
               it rests on, the view Accuracy how far off published speeds were.",
        behind: Behind::Speed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate;
    use crate::scenario::GpuChoice;

    #[test]
    fn three_figures_are_told_apart() {
        let names = |scenario: &Scenario, detail: Option<&Detail>| {
            let memory = estimate(scenario).memory.expect("an answer");
            let memory = detail.map_or(memory, |detail| detail.memory.clone());
            let figures =
                figures(&memory, (&scenario.gpu().expect("a card"), scenario), detail, Unit::Binary);
            figures.into_iter().map(|figure| format!("{} {}", figure.name, figure.amount)).collect::<Vec<_>>()
        };
        let scenario = Scenario::default();
        let detail = Detail::of(&scenario).expect("an answer");
        let told = names(&scenario, Some(&detail));
        assert!(
            told[1].starts_with("PyTorch reserves 1") && told[2].starts_with("nvidia-smi shows 1"),
            "{told:?}"
        );
        assert_eq!(names(&scenario, None)[1..], ["PyTorch reserves …", "nvidia-smi shows …"]);
        let mac = Scenario { gpu: GpuChoice::Catalogue("apple-m3-max-36gb".into()), ..scenario };
        assert_eq!(names(&mac, None).len(), 1);
        let link = "m=meta-llama/Llama-3.1-8B&method=full&gpus=2&shard=zero2&cpu=optimizer";
        let offloaded = crate::share::decode(link).scenarios.remove(0);
        let on_each = estimate(&offloaded).memory.expect("an answer").on_host;
        assert!(on_each > Bytes::gib(40.0), "{on_each}");
        assert_eq!(names(&offloaded, None)[3], format!("RAM {}", Unit::Binary.amount(on_each + on_each)));
    }
}
