//! The part of a model that a rank holds: the layers of its stage, part after part.

use crate::issue::{Field, Issue};
use crate::model::Architecture;
use crate::scenario::{Cluster, Layout};
use crate::units::grouped;

/// The most stages, with virtual ones, that a micro-batch goes through: more than the deepest models have layers.
const MOST_STAGES: u64 = 1024;

/// The part of a model that one rank holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::step) struct Share {
    /// Its stage, counted from 0.
    pub stage: u64,
    /// Layers that it runs at a time.
    pub layers: usize,
    /// How often it does so: 1 where stages are not interleaved.
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
        layers: usize::MAX,
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
    pub fn of(cluster: Cluster, model: &Architecture) -> Share {
        let (layout, layers) = (cluster.layout, model.order.len());
        let stage = layout.stage.clamp(1, layout.pipeline.max(1)) - 1;
        let each = layers / usize::try_from(layout.pipeline).unwrap_or(usize::MAX).max(1);
        let at_a_time = match usize::try_from(layout.interleaved).unwrap_or(usize::MAX) {
            0 => each,
            own => own.min(each),
        };
        Share {
            stage,
            layers: at_a_time,
            times: (each / at_a_time.max(1)).max(1),
            is_first: stage == 0,
            is_last: stage + 1 == layout.pipeline,
            shares_embedding: model.head.tied && layout.pipeline > 1,
        }
    }
}

/// Refuses stages of which one would have other layers than the others.
pub(super) fn stages(architecture: &Architecture, cluster: Cluster) -> Result<(), Issue> {
    let layout = cluster.layout;
    let (layers, stages) = (architecture.order.len() as u64, layout.pipeline.max(1));
    if stages > layers.max(1) || !layers.is_multiple_of(stages) {
        let message =
            format!("{} stages cannot have as many each of the {} layers", grouped(stages), grouped(layers));
        let fix = (1..=stages.min(layers)).rev().find(|stages| layers.is_multiple_of(*stages));
        return Err(Issue::error(Field::PipelineParallel, message)
            .with_fix(format!("use {} stages", fix.unwrap_or(1))));
    }
    if layout.stage > layout.pipeline {
        let message = format!("there is no stage {} of {}", grouped(layout.stage), grouped(layout.pipeline));
        return Err(Issue::error(Field::PipelineStage, message)
            .with_fix(format!("choose one up to {}", grouped(layout.pipeline))));
    }
    let each = layers / stages;
    if layout.interleaved > 0 && layout.pipeline > 1 && !each.is_multiple_of(layout.interleaved) {
        let message = format!(
            "the {} layers of a stage cannot be run {} at a time",
            grouped(each),
            grouped(layout.interleaved)
        );
        let fix = (1..=layout.interleaved.min(each)).rev().find(|layers| each.is_multiple_of(*layers));
        return Err(Issue::error(Field::Interleaved, message).with_fix(format!("use {}", fix.unwrap_or(1))));
    }
    let share = Share::of(cluster, architecture);
    let visited = stages.saturating_mul(share.times as u64);
    if visited > MOST_STAGES {
        let message =
            format!("a pipeline of {} stages, virtual ones counted, is not followed", grouped(visited));
        return Err(Issue::error(Field::PipelineParallel, message)
            .with_fix(format!("use at most {}", grouped(MOST_STAGES))));
    }
    if !is_alike(&architecture.order, each, share) {
        let message =
            "layers that differ are modelled over several stages where the first stage alone has others";
        return Err(Issue::error(Field::PipelineParallel, message)
            .with_fix(stages_that_are_alike(architecture, cluster)));
    }
    Ok(())
}

/// With how many stages the layers that differ are all in the first: as many as there are, without interleaving, or fewer.
fn stages_that_are_alike(architecture: &Architecture, cluster: Cluster) -> String {
    let layers = architecture.order.len() as u64;
    let is_enough = |stages: &u64| {
        let layout = Layout { pipeline: *stages, interleaved: 0, ..cluster.layout };
        let share = Share::of(Cluster { layout, ..cluster }, architecture);
        layers.is_multiple_of(*stages) && is_alike(&architecture.order, layers / stages, share)
    };
    match (1..=cluster.layout.pipeline).rev().find(is_enough).unwrap_or(1) {
        1 => "use one stage".to_owned(),
        stages if stages == cluster.layout.pipeline => "run the layers of a stage at once".to_owned(),
        stages => format!("use {stages} stages, whose layers run at once"),
    }
}

/// Whether the stages that stand for all have what those do that are not run: the first, the second and the last are
/// (`run::stages`). Interleaved ones have parts of the whole depth, which then are all alike.
fn is_alike(order: &[u16], each: u64, share: Share) -> bool {
    let mut parts = order.chunks(usize::try_from(each).unwrap_or(usize::MAX).max(1));
    let first = parts.next();
    let next = if share.times > 1 { first } else { parts.next() };
    parts.all(|part| Some(part) == next)
}

/// The layers of a rank, part after part: interleaved stages have every so many'th.
pub(super) fn of_rank(order: &[u16], part: Share, stages: u64) -> Vec<u16> {
    let stages = usize::try_from(stages).unwrap_or(usize::MAX);
    let stage = usize::try_from(part.stage).unwrap_or(usize::MAX);
    let first = |time: usize| time.saturating_mul(stages).saturating_add(stage).saturating_mul(part.layers);
    let layers = |time: usize| order.iter().skip(first(time)).take(part.layers).copied();
    (0..part.times).flat_map(layers).collect()
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
