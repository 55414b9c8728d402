//! The part of a model that a rank holds: the layers of its stage, part after part.

use crate::issue::{Field, Issue};
use crate::model::Architecture;
use crate::scenario::{Cluster, Division, Layout};
use crate::units::grouped;

/// The most stages, with virtual ones, that a micro-batch goes through: more than the deepest models have layers.
const MOST_STAGES: u64 = 1024;

/// The part of a model that one rank holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::step) struct Share {
    /// Its stage, counted from 0.
    pub stage: u64,
    /// Which layers that has.
    division: Division,
    /// In how many parts it runs them, one at a time: 1 where stages are not interleaved.
    pub times: usize,
    pub is_first: bool,
    pub is_last: bool,
    /// Whether the embedding is the head too, of which the first and the last stage have a copy each.
    pub shares_embedding: bool,
}

impl Share {
    /// All of a model.
    pub const WHOLE: Share = Share {
        stage: 0,
        division: Division::WHOLE,
        times: 1,
        is_first: true,
        is_last: true,
        shares_embedding: false,
    };

    /// Whether it is all of a model's layers, run at a time.
    pub fn is_whole(&self) -> bool {
        self.is_first && self.is_last && self.times == 1
    }

    /// That of a stage.
    ///
    /// # Errors
    /// Where layers cannot be divided so.
    pub fn of(cluster: Cluster, model: &Architecture) -> Result<Share, Issue> {
        let layout = cluster.layout;
        let stage = layout.stage.clamp(1, layout.pipeline.max(1)) - 1;
        let division = layout.division(model.order.len() as u64)?;
        Ok(Share {
            stage,
            division,
            times: usize::try_from(division.parts()).unwrap_or(usize::MAX),
            is_first: stage == 0,
            is_last: stage + 1 == layout.pipeline.max(1),
            shares_embedding: model.head.tied && layout.pipeline > 1,
        })
    }

    /// How many layers a stage has, counted from 0.
    pub fn layers_of(&self, stage: u64) -> u64 {
        self.division.of_stage(stage)
    }

    /// How many layers it runs in a part.
    pub fn layers(&self, part: usize) -> usize {
        usize::try_from(self.division.layers(self.stage, part as u64)).unwrap_or(usize::MAX)
    }
}

/// The part of a model that a stage has; refuses what Megatron-core stops at, and stages that are not run on behalf of others that have
/// other layers.
pub(super) fn stages(architecture: &Architecture, cluster: Cluster) -> Result<Share, Issue> {
    let layout = cluster.layout;
    let share = Share::of(cluster, architecture)?;
    if layout.stage > layout.pipeline {
        let message = format!("there is no stage {} of {}", grouped(layout.stage), grouped(layout.pipeline));
        return Err(Issue::error(Field::PipelineStage, message)
            .with_fix(format!("choose one up to {}", grouped(layout.pipeline))));
    }
    let visited = layout.pipeline.max(1).saturating_mul(share.times as u64);
    if visited > MOST_STAGES {
        let message =
            format!("a pipeline of {} stages, virtual ones counted, is not followed", grouped(visited));
        return Err(Issue::error(Field::PipelineParallel, message)
            .with_fix(format!("use at most {}", grouped(MOST_STAGES))));
    }
    if !is_alike(&architecture.order, layout, share.division) {
        let message = "layers that differ are modelled over several stages where only the first and the last one have others";
        return Err(Issue::error(Field::PipelineParallel, message)
            .with_fix(stages_that_are_alike(architecture, cluster)));
    }
    Ok(share)
}

/// With how many stages the layers that differ are all in the first: as many as there are, without interleaving, or fewer.
fn stages_that_are_alike(architecture: &Architecture, cluster: Cluster) -> String {
    let is_enough = |stages: &u64| {
        let layout = Layout { pipeline: *stages, interleaved: 0, ..cluster.layout };
        let division = layout.division(architecture.order.len() as u64);
        division.is_ok_and(|division| is_alike(&architecture.order, layout, division))
    };
    match (1..=cluster.layout.pipeline).rev().find(is_enough).unwrap_or(1) {
        1 => "use one stage".to_owned(),
        stages if stages == cluster.layout.pipeline => "run the layers of a stage at once".to_owned(),
        stages => format!("use {stages} stages, whose layers run at once"),
    }
}

/// Whether the stages that stand for all have what those do that are not run: the first, the second and the last are
/// (`run::stages`). The parts of interleaved ones come from the whole depth, and then are all alike.
fn is_alike(order: &[u16], layout: Layout, division: Division) -> bool {
    if order.windows(2).all(|pair| pair[0] == pair[1]) {
        return true;
    }
    let stages = layout.pipeline;
    if division.parts() > 1 {
        let first = of_stage(order, division, 0);
        return (1..stages).all(|stage| of_stage(order, division, stage) == first);
    }
    let second = of_stage(order, division, 1);
    (2..stages.saturating_sub(1)).all(|stage| of_stage(order, division, stage) == second)
}

/// The layers of a stage, part after part: interleaved stages have some of every round.
fn of_stage(order: &[u16], division: Division, stage: u64) -> Vec<u16> {
    let index = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let layers = |part: u64| {
        let own = order.iter().skip(index(division.before(stage, part)));
        own.take(index(division.layers(stage, part))).copied()
    };
    (0..division.parts()).flat_map(layers).collect()
}

/// The layers of a rank.
pub(super) fn of_rank(order: &[u16], share: Share) -> Vec<u16> {
    of_stage(order, share.division, share.stage)
}

/// Refuses numbers of micro-batches at which Megatron's interleaved schedule stops.
pub(in crate::step) fn micro_batches(cluster: Cluster, times: u64) -> Result<(), Issue> {
    let layout = cluster.layout;
    if layout.pipeline <= 1 || layout.interleaved == 0 || times.is_multiple_of(layout.pipeline) && times > 0 {
        return Ok(());
    }
    let message = format!(
        "interleaved stages take micro-batches in groups of {}, and a step has {}",
        grouped(layout.pipeline),
        grouped(times)
    );
    let next = times.div_ceil(layout.pipeline).max(1).saturating_mul(layout.pipeline);
    Err(Issue::error(Field::Accumulation, message).with_fix(format!("use {}", grouped(next))))
}
