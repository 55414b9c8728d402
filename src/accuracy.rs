//! How far to trust an answer: the errors that were measured for scenarios of its kind.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use crate::model::Architecture;
use crate::scenario::keys::keys;
use crate::scenario::{LossKernel, Method, Scenario, Stack, Task};

/// The worst difference between the null device, on which most rows were measured, and a real GPU: 48 published runs on
/// a T4 (37, worst 0.96 %) and an A10G (11, worst 0.35 %), replicated with their own code.
pub const REAL_GPU_PERCENT: f64 = 0.96;
/// How many runs that difference is of.
pub const REAL_GPU_RUNS: u64 = 48;

/// What Unsloth's layers took more at most where they are compiled, its default under gradient checkpointing, and the scenario says that they
/// are not: five runs of four models, none with more than 8,192 tokens, beside the same ones with `UNSLOTH_COMPILE_DISABLE=1`, which is what
/// is followed (docs/stacks.md).
pub const COMPILED_UNSLOTH_PERCENT: f64 = 8.2;

/// How much less and how much more than the estimate a run may need, in percent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Doubt {
    /// How much less.
    pub less: f64,
    /// How much more.
    pub more: f64,
}

impl Doubt {
    /// As much to either side.
    pub const fn either_way(percent: f64) -> Doubt {
        Doubt { less: percent, more: percent }
    }
}

/// What the band of an answer rests on, closest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub enum Evidence {
    /// The same family, method, precision, checkpointing and attention were measured.
    SameKind,
    /// The same family was measured under other settings.
    SameFamily,
    /// Only other families were measured with that software.
    OtherFamilies,
    /// Nothing was measured with that software.
    OtherSoftware,
}

impl Evidence {
    /// Whether a measured run is one of those that an answer's band rests on: their software, family and settings as [`software`] and
    /// [`key`] write them.
    pub fn includes(self, own: [&str; 3], run: [&str; 3]) -> bool {
        let alike = match self {
            Evidence::SameKind => 3,
            Evidence::SameFamily => 2,
            Evidence::OtherFamilies => 1,
            Evidence::OtherSoftware => 0,
        };
        own[..alike] == run[..alike]
    }
}

/// How far an answer may be off.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[non_exhaustive]
pub struct Band {
    /// The allocated peak: in percent, to either side.
    pub percent: f64,
    /// What it may need more in percent: as much, or what was measured of the same run as people usually have it, which is not followed.
    pub more_percent: f64,
    /// The reserved peak, likewise; none where it was not measured.
    pub reserved_percent: Option<f64>,
    /// What it rests on.
    pub evidence: Evidence,
    /// Measured rows behind it.
    pub rows: u64,
    /// How many of them ran on real cards, and not over the null device.
    pub on_cards: u64,
}

impl Band {
    /// How far the figures may be off: `±1.0 %`, `−1.0 to +8.2 %`.
    pub fn in_words(&self) -> String {
        let Band { percent, more_percent, .. } = self;
        if more_percent > percent {
            return format!("−{percent:.1} to +{more_percent:.1} %");
        }
        format!("±{percent:.1} %")
    }

    /// What that rests on, in a few words: `8 runs of this kind, 2 on real GPUs`.
    pub fn rests_on(&self) -> String {
        let runs = format!("{} run{}", self.rows, if self.rows == 1 { "" } else { "s" });
        let on_cards = match self.on_cards {
            0 => format!(
                ", on the null device; {REAL_GPU_RUNS} others, on a T4 and an A10G, came within {REAL_GPU_PERCENT} %"
            ),
            some => format!(", {some} on real GPUs"),
        };
        match self.evidence {
            Evidence::SameKind => format!("{runs} of this kind{on_cards}"),
            Evidence::SameFamily => format!("{runs} of this family{on_cards}"),
            Evidence::OtherFamilies => "runs of other families".to_owned(),
            Evidence::OtherSoftware => "runs of other software".to_owned(),
        }
    }

    /// How far the verdict may be off.
    pub fn doubt(&self) -> Doubt {
        Doubt { less: self.percent, more: self.more_percent }
    }
}

/// Measured rows of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct RunKind {
    /// The stack, the loss and the engine of many GPUs, as [`software`] writes them.
    pub software: String,
    /// `model_type` of the config.
    pub family: String,
    /// The method, precision, checkpointing, attention and packing, as [`key`] writes them.
    pub settings: String,
    /// How many rows.
    pub rows: u64,
    /// The worst absolute error of the allocated peak in percent.
    pub worst_percent: f64,
    /// The worst absolute error of the reserved peak in percent, where it was measured.
    pub worst_reserved_percent: Option<f64>,
    /// How many of the rows ran on real cards.
    pub on_cards: u64,
}

/// The settings that make two scenarios of one kind, in the order of [`keys`].
pub fn key(scenario: &Scenario) -> String {
    let bands = keys().map(|key| key.band(scenario)).filter(|band| !band.is_empty());
    bands.collect::<Vec<_>>().join(" ")
}

/// What [`software`] calls GPUs that share layers by transformers' own plan.
pub const TENSOR_PARALLEL: &str = "tp";

/// The stack and, behind a `+` each, the loss where it is not the standard one and the engine of many GPUs where there are
/// several: what was measured of one says nothing of another.
pub fn software(scenario: &Scenario) -> String {
    let loss = match scenario.savings.loss {
        LossKernel::Standard => None,
        loss => Some(loss.slug()),
    };
    let engine = scenario.cluster.has_engine().then(|| scenario.cluster.sharding.slug());
    let shares_layers = scenario.stack == Stack::Transformers && scenario.divided().tensor > 1;
    let parts = [Some(scenario.stack.slug()), loss, engine, shares_layers.then_some(TENSOR_PARALLEL)];
    parts.into_iter().flatten().collect::<Vec<_>>().join("+")
}

/// The kinds of `data/accuracy.tsv`, which a test writes and holds equal to what `headroom check` finds.
pub fn kinds() -> &'static [RunKind] {
    static KINDS: OnceLock<Vec<RunKind>> = OnceLock::new();
    KINDS.get_or_init(|| include_str!("../data/accuracy.tsv").lines().filter_map(kind).collect())
}

/// Those of one software.
fn kinds_of(software: &str) -> &'static [&'static RunKind] {
    static BY_SOFTWARE: OnceLock<BTreeMap<&str, Vec<&RunKind>>> = OnceLock::new();
    let by_software = BY_SOFTWARE.get_or_init(|| {
        let mut found: BTreeMap<&str, Vec<&RunKind>> = BTreeMap::new();
        kinds().iter().for_each(|kind| found.entry(&kind.software).or_default().push(kind));
        found
    });
    by_software.get(software).map_or(&[], Vec::as_slice)
}

fn kind(line: &str) -> Option<RunKind> {
    let mut fields = line.split('\t');
    Some(RunKind {
        software: fields.next()?.to_owned(),
        family: fields.next()?.to_owned(),
        settings: fields.next()?.to_owned(),
        rows: fields.next()?.parse().ok()?,
        worst_percent: fields.next()?.parse().ok()?,
        worst_reserved_percent: fields.next().and_then(|percent| percent.parse().ok()),
        on_cards: fields.next()?.parse().ok()?,
    })
}

/// Why no run that was measured says how far an answer may be off: part of what it counts was never run.
pub fn unmeasured(scenario: &Scenario) -> Option<&'static str> {
    if scenario.vllm_on_card().is_some() {
        return Some("no run with vLLM on the same card was measured");
    }
    let format = scenario.quantization.format;
    let is_packed = scenario.method == Method::Qlora && (format.is_of_gptq() || format.is_of_awq());
    (scenario.task == Task::Generate && is_packed).then_some(
        "no generation with these weights was measured, whose kernels are others than those that train",
    )
}

/// The band of an answer: the worst errors of the closest kind that was measured, and never less than the null device's
/// own distance from real GPUs.
///
/// ```
/// let scenario = headroom::scenario::Scenario::default();
/// let band = headroom::accuracy::band(&scenario.architecture().unwrap(), &scenario);
/// assert!(band.percent >= headroom::accuracy::REAL_GPU_PERCENT && band.rows > 0);
/// ```
pub fn band(architecture: &Architecture, scenario: &Scenario) -> Band {
    let (settings, own) = (key(scenario), kinds_of(&software(scenario)).iter().copied());
    let of_family = own.clone().filter(|kind| kind.family == architecture.model_type);
    let of_kind = of_family.clone().filter(|kind| kind.settings == settings);
    let found = worst(Evidence::SameKind, of_kind)
        .or_else(|| worst(Evidence::SameFamily, of_family))
        .or_else(|| worst(Evidence::OtherFamilies, own))
        .or_else(|| worst(Evidence::OtherSoftware, kinds().iter()))
        .unwrap_or(Band {
            percent: 100.0,
            more_percent: 100.0,
            reserved_percent: None,
            evidence: Evidence::OtherSoftware,
            rows: 0,
            on_cards: 0,
        });
    let more_percent = found.percent.max(compiled_percent(architecture, scenario).unwrap_or(0.0));
    Band { more_percent, ..found }
}

/// What layers that Unsloth compiles may need more where that is not followed, in percent of the least that the run needs: its weights, and
/// for each token twice as many numbers as come on top. No less than what was measured.
fn compiled_percent(architecture: &Architecture, scenario: &Scenario) -> Option<f64> {
    let more = scenario.compiled_takes_more(architecture)?.0 as f64;
    let of_a_weight = if scenario.method == Method::Qlora { 0.5 } else { 2.0 };
    let least = architecture.parameters() as f64 * of_a_weight + 2.0 * more;
    Some(COMPILED_UNSLOTH_PERCENT.max(100.0 * more / least))
}

/// The worst errors of some kinds, if there are any.
fn worst<'a>(evidence: Evidence, kinds: impl Iterator<Item = &'a RunKind>) -> Option<Band> {
    let none = Band {
        percent: REAL_GPU_PERCENT,
        more_percent: REAL_GPU_PERCENT,
        reserved_percent: None,
        evidence,
        rows: 0,
        on_cards: 0,
    };
    let band = kinds.fold(none, |band, kind| Band {
        percent: band.percent.max(kind.worst_percent),
        reserved_percent: match (band.reserved_percent, kind.worst_reserved_percent) {
            (Some(before), Some(worst)) => Some(before.max(worst)),
            (None, Some(worst)) => Some(worst.max(REAL_GPU_PERCENT)),
            (before, None) => before,
        },
        rows: band.rows + kind.rows,
        on_cards: band.on_cards + kind.on_cards,
        ..band
    });
    (band.rows > 0).then_some(band)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Checkpointing, Cluster, Mask, Offloading, Sharding, StepTime};

    #[test]
    fn a_kind_is_what_the_table_of_keys_says() {
        let mut scenario = Scenario::default();
        assert_eq!(key(&scenario), "qlora amp-bf16-weights recomputed sdpa");
        scenario.checkpointing = Checkpointing::Off;
        scenario.mask = Mask::Packed;
        scenario.savings.offloading = Offloading::On;
        scenario.savings.step = StepTime::InBackward;
        // data/accuracy.tsv has them in this order
        assert_eq!(key(&scenario), "qlora amp-bf16-weights kept sdpa packed offloaded in-backward");
    }

    #[test]
    fn compiled_layers_take_more_and_never_less() {
        let doubt = |checkpointing| {
            let scenario = Scenario { stack: Stack::Unsloth, checkpointing, ..Scenario::default() };
            band(&scenario.architecture().unwrap(), &scenario).doubt()
        };
        let Doubt { less, more } = doubt(Checkpointing::Offloaded);
        assert!(less < 2.0 && more == COMPILED_UNSLOTH_PERCENT, "{less} {more}");
        let kept = doubt(Checkpointing::Off);
        assert_eq!(kept.less, kept.more);
    }

    /// Three tensors of the feed-forward network's width for each token are more than was measured of few tokens.
    #[test]
    fn compiled_layers_take_the_more_the_more_tokens_there_are() {
        let more = |batch| {
            let scenario = Scenario {
                stack: Stack::Unsloth,
                checkpointing: Checkpointing::Offloaded,
                batch,
                ..Scenario::default()
            };
            band(&scenario.architecture().unwrap(), &scenario).more_percent
        };
        // of Qwen3-8B with 32 × 2,048 tokens they took 24.6 % more
        assert!(more(1) == COMPILED_UNSLOTH_PERCENT && more(32) > 24.6, "{} {}", more(1), more(32));
    }

    #[test]
    fn an_engine_of_many_gpus_is_other_software() {
        let mut scenario = Scenario::default();
        let settings = key(&scenario);
        scenario.cluster = Cluster { gpus: 8, sharding: Sharding::Fsdp2, ..Cluster::ONE };
        assert_eq!(software(&scenario), "transformers+fsdp2");
        assert_eq!(key(&scenario), settings);
        scenario.savings.loss = LossKernel::Liger;
        assert_eq!(software(&scenario), "transformers+liger+fsdp2");
        scenario.cluster.gpus = 1;
        assert_eq!(software(&scenario), "transformers+liger");
    }
}
