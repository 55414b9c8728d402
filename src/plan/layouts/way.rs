//! A way to use GPUs, and what comes of it.

use serde::{Deserialize, Serialize};

use crate::hardware::Host;
use crate::issue::{Field, Issue};
use crate::plan::time::Span;
use crate::plan::verdict::Verdict;
use crate::scenario::keys::{Group, Key, keys};
use crate::scenario::software::Trainer;
use crate::scenario::{Cluster, ContextComm, CpuOffload, Scenario, Sharding, Split};
use crate::units::{Bytes, grouped};

/// A way to use GPUs, and what comes of it.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Way {
    /// The scenario, in the micro-batch that was chosen.
    pub scenario: Box<Scenario>,
    /// What comes of it.
    pub outcome: WayOutcome,
}

/// What comes of a way to use GPUs.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub enum WayOutcome {
    /// It has an answer.
    Answered {
        /// What each GPU needs.
        needed: Bytes,
        /// Whether that gets through.
        verdict: Verdict,
        /// Tokens per second on all GPUs, where runs near it were measured.
        speed: Option<Span>,
        /// What each takes of the CPU's memory for weights, gradients and optimizer.
        on_host: Bytes,
        /// What each process reads there before it has shards of it.
        loading: Bytes,
    },
    /// Weights, gradients and states alone are larger than the card: what each GPU needs is not followed further.
    TooLarge {
        /// What each GPU needs at least.
        least: Bytes,
    },
    /// It cannot be combined, or is not modelled, and why.
    Refused(Issue),
}

impl Way {
    /// Whether it gets through beyond doubt, or by its tensors on a card that is not followed, and some known machine has the RAM, if any is
    /// known.
    pub fn fits(&self) -> bool {
        self.verdict().is_some_and(Verdict::holds) && self.short_of_ram().is_none()
    }

    /// The known machine with most RAM, where that is too little for what it keeps there.
    pub fn short_of_ram(&self) -> Option<&'static Host> {
        self.scenario.short_of_ram(self.on_host())
    }

    /// What each process reads into the CPU's memory before it has shards of it.
    pub fn loading(&self) -> Bytes {
        match self.outcome {
            WayOutcome::Answered { loading, .. } => loading,
            WayOutcome::TooLarge { .. } | WayOutcome::Refused(_) => Bytes::ZERO,
        }
    }

    /// The verdict, where it has an answer.
    pub fn verdict(&self) -> Option<Verdict> {
        match self.outcome {
            WayOutcome::Answered { verdict, .. } => Some(verdict),
            WayOutcome::TooLarge { .. } => Some(Verdict::Over),
            WayOutcome::Refused(_) => None,
        }
    }

    /// What each GPU needs, where it has an answer: at least, where it is much too large ([`is_followed`](Self::is_followed)).
    pub fn needed(&self) -> Option<Bytes> {
        match self.outcome {
            WayOutcome::Answered { needed, .. } => Some(needed),
            WayOutcome::TooLarge { least } => Some(least),
            WayOutcome::Refused(_) => None,
        }
    }

    /// Whether it is known what each GPU needs, to the byte.
    pub fn is_followed(&self) -> bool {
        matches!(self.outcome, WayOutcome::Answered { .. })
    }

    /// Tokens per second on all GPUs, where it is known.
    pub fn speed(&self) -> Option<Span> {
        match self.outcome {
            WayOutcome::Answered { speed, .. } => speed,
            WayOutcome::TooLarge { .. } | WayOutcome::Refused(_) => None,
        }
    }

    /// What each takes of the CPU's memory for weights, gradients and optimizer.
    pub fn on_host(&self) -> Bytes {
        match self.outcome {
            WayOutcome::Answered { on_host, .. } => on_host,
            WayOutcome::TooLarge { .. } | WayOutcome::Refused(_) => Bytes::ZERO,
        }
    }

    /// The element types, the optimizer and the loss that it brings where they are others than were asked for, those that its engine is usually
    /// run with: `mixed bfloat16`.
    pub fn brings(&self, asked: &Scenario) -> Option<String> {
        let differs = |key: &&Key| {
            (key.group == Group::Precision || key.field == Field::Loss)
                && key.matters(&self.scenario)
                && !key.is_same(asked, &self.scenario)
        };
        let brought: Vec<String> = keys().filter(differs).map(|key| key.words(&self.scenario)).collect();
        (!brought.is_empty()).then(|| brought.join(", "))
    }

    /// The engine and how the model is divided: `FSDP2, 2 replicas`, `Megatron-core, tensor 8 × pipeline 4 × data 2`.
    pub fn name(&self) -> String {
        name(&self.scenario)
    }
}

/// The engine and how the model is divided, in words.
pub(in crate::plan) fn name(scenario: &Scenario) -> String {
    let Cluster { gpus, sharding, layout, reshards, replicas, cpu, .. } = scenario.cluster;
    if is_megatron(scenario) {
        let data = gpus / layout.gpus().max(1);
        let context = match layout.context_comm {
            ContextComm::AllToAll => "context",
            ContextComm::P2p => "context p2p",
        };
        let sizes = [
            ("tensor", layout.tensor),
            ("pipeline", layout.pipeline),
            (context, layout.context),
            ("data", data),
        ];
        let sizes = sizes.iter().filter(|(_, size)| *size > 1).map(|(name, size)| format!("{name} {size}"));
        let sizes: Vec<String> = sizes.collect();
        let parts = match layout.interleaved {
            0 => String::new(),
            layers => format!(", {} at a time", counted(layers, "layer")),
        };
        let sizes = sizes.join(" × ");
        // those that share experts are among those that hold the same part
        let experts = match layout.experts {
            0 | 1 => String::new(),
            experts => format!(", experts among {}", grouped(experts)),
        };
        return format!("Megatron-core, {sizes}{experts}{}{parts}", of_stages(scenario).unwrap_or_default());
    }
    if gpus <= 1 {
        return "one GPU".to_owned();
    }
    let is_fsdp2 = sharding == Sharding::Fsdp2;
    let parts = scenario.divided().tensor;
    if parts == gpus {
        return format!("tensor {parts}");
    }
    let further = [
        (parts > 1).then(|| format!("tensor {parts}")),
        (scenario.contexts() > 1).then(|| format!("context {}", scenario.contexts())),
        (is_fsdp2 && !reshards).then(|| "kept after forward".to_owned()),
        (is_fsdp2 && replicas > 1).then(|| counted(replicas, "replica")),
        match cpu {
            CpuOffload::Off => None,
            CpuOffload::Optimizer => Some("optimizer in the CPU's memory".to_owned()),
            CpuOffload::All => Some("in the CPU's memory".to_owned()),
        },
    ];
    [Some(sharding.label().to_owned())].into_iter().chain(further).flatten().collect::<Vec<_>>().join(", ")
}

/// Whose code divides the model.
pub(super) fn engine(scenario: &Scenario) -> &'static str {
    match scenario.divided().tensor {
        _ if is_megatron(scenario) => "Megatron-core",
        0 | 1 => scenario.cluster.sharding.label(),
        _ => "tensor",
    }
}

/// The layers of Megatron's stages where these have not as many each: `, stages of 7, 8 and 7 layers`.
fn of_stages(scenario: &Scenario) -> Option<String> {
    let layout = scenario.cluster.layout;
    if layout.split == Split::EVEN || layout.pipeline <= 1 {
        return None;
    }
    let division = layout.division(scenario.architecture().ok()?.order.len() as u64).ok()?;
    let of = |stage| division.of_stage(stage);
    let (first, last) = (of(0), of(layout.pipeline - 1));
    Some(match layout.pipeline {
        2 => format!(", stages of {} and {} layers", grouped(first), grouped(last)),
        _ => format!(", stages of {}, {} and {} layers", grouped(first), grouped(of(1)), grouped(last)),
    })
}

fn counted(number: u64, what: &str) -> String {
    format!("{} {what}{}", grouped(number), if number == 1 { "" } else { "s" })
}

pub(super) fn is_megatron(scenario: &Scenario) -> bool {
    scenario.software().trainer == Trainer::Megatron
}
