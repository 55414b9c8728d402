//! Whose the figures are where ranks differ: a stage of a pipeline.

use serde::{Deserialize, Serialize};

use crate::units::grouped;

/// A stage of a pipeline, of which every one holds other layers and other micro-batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Rank {
    /// Which, counted from 1.
    pub stage: u64,
    /// How many there are.
    pub stages: u64,
    /// How many of the model's layers it has.
    pub layers: u64,
    /// How many the first stage has.
    pub of_first: u64,
    /// The most micro-batches whose backward waits at a time.
    pub in_flight: u64,
    /// Whether stages are interleaved: then those are passes of a micro-batch through a part of the stage's layers.
    pub interleaved: bool,
}

impl Rank {
    /// The numbers of the processes of its stage, where each has so many: Megatron-core counts through the stages last
    /// (`RankGenerator`, order "tp-cp-ep-dp-pp").
    pub fn ranks(&self, each: u64) -> String {
        let first = self.stage.saturating_sub(1).saturating_mul(each);
        match each {
            0 | 1 => format!("rank {}", grouped(first)),
            _ => format!("ranks {} to {}", grouped(first), grouped(first.saturating_add(each - 1))),
        }
    }

    /// Which it is, and what it holds that others do not: `stage 1 of 4, which holds the embedding, 8 layers and 4 micro-batches in
    /// flight at most`.
    ///
    /// ```
    /// use headroom::memory::Rank;
    /// let rank = Rank { stage: 4, stages: 4, layers: 8, of_first: 8, in_flight: 1, interleaved: false };
    /// assert_eq!(rank.words(), "stage 4 of 4, which holds the head with the loss, 8 layers and 1 micro-batch in flight at most");
    /// ```
    pub fn words(&self) -> String {
        let Rank { stage, stages, layers, of_first, in_flight, interleaved } = *self;
        let part = match stage {
            1 => "the embedding, ",
            _ if stage == stages => "the head with the loss, ",
            _ => "",
        };
        let one = if layers == 1 { "layer" } else { "layers" };
        let others = match layers == of_first {
            true => String::new(),
            false => format!(", where the first stage has {},", grouped(of_first)),
        };
        let batches = match (interleaved, in_flight) {
            (true, _) => "passes through a virtual stage",
            (false, 1) => "micro-batch",
            (false, _) => "micro-batches",
        };
        format!(
            "stage {} of {}, which holds {part}{} {one}{others} and {} {batches} in flight at most",
            grouped(stage),
            grouped(stages),
            grouped(layers),
            grouped(in_flight)
        )
    }
}
