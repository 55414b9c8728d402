//! The inputs that memory is drawn against.

use super::scale::{self, Scale};
use crate::plan::on_gpus;
use crate::scenario::Scenario;
use crate::scenario::keys::Key;

/// More GPUs than that are drawn only where the scenario has them.
const MOST_GPUS: u64 = 64;

/// An input that memory is drawn against.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Axis {
    /// The sequence length.
    #[default]
    Sequence,
    /// The micro-batch size.
    Batch,
    /// The rank of adapters.
    Rank,
    /// The number of GPUs.
    Gpus,
}

impl Axis {
    /// All of them.
    pub const ALL: [Axis; 4] = [Axis::Sequence, Axis::Batch, Axis::Rank, Axis::Gpus];

    /// The name of its key, and what links call it.
    pub const fn key(self) -> &'static str {
        match self {
            Axis::Sequence => "seq-length",
            Axis::Batch => "batch-size",
            Axis::Rank => "lora-rank",
            Axis::Gpus => "gpus",
        }
    }

    /// What it is called under a scenario's other choices.
    pub fn label(self, scenario: &Scenario) -> &'static str {
        Key::find(self.key()).map_or("", |key| key.label_for(scenario))
    }

    /// Its scale.
    pub fn scale(self) -> &'static Scale {
        match self {
            Axis::Sequence => &scale::SEQUENCE,
            Axis::Batch => &scale::BATCH,
            Axis::Rank => &scale::RANK,
            Axis::Gpus => &scale::GPUS,
        }
    }

    /// Its value in a scenario.
    pub fn get(self, scenario: &Scenario) -> u64 {
        match self {
            Axis::Sequence => scenario.sequence,
            Axis::Batch => scenario.batch,
            Axis::Rank => scenario.lora.rank,
            Axis::Gpus => scenario.cluster.gpus,
        }
    }

    /// Gives a scenario another value.
    pub fn set(self, scenario: &mut Scenario, value: u64) {
        match self {
            Axis::Sequence => scenario.sequence = value,
            Axis::Batch => scenario.batch = value,
            Axis::Rank => scenario.lora.rank = value,
            Axis::Gpus => *scenario = on_gpus(scenario, value),
        }
    }

    /// The values at which a scenario is asked about: no sequence longer than the model's positions.
    pub fn stops(self, scenario: &Scenario) -> Vec<u64> {
        let most = match self {
            Axis::Sequence => scenario.positions().unwrap_or(u64::MAX).max(scenario.sequence),
            Axis::Batch | Axis::Rank => u64::MAX,
            Axis::Gpus => MOST_GPUS.max(scenario.cluster.gpus),
        };
        let stops = self.scale().stops.iter().map(|stop| *stop as u64);
        let within: Vec<u64> = stops.filter(|stop| *stop <= most).collect();
        if within.is_empty() { vec![most] } else { within }
    }

    /// The scenario at a stop. What does not follow from the value is the same for all values.
    pub fn at(self, scenario: &Scenario, value: u64) -> Scenario {
        let mut other = scenario.clone();
        other.change(|scenario| self.set(scenario, value));
        other
    }
}
