//! The parameters of a rank as its modules have them, in whose order buffers and optimizers lie.

use std::ops::Range;

use super::{build, experts};
use crate::model::Architecture;
use crate::model::blocks::{Block, FeedForward, Mixer};
use crate::step::forward::{BoundLayer, Model};
use crate::step::parallel::{ParamKind, PartParam};
use crate::step::params::ParamId;

impl Model<'_> {
    /// The parameters of each part that runs at a time, as its modules have them: an embedding, layers, a norm and a head.
    pub(in crate::step::forward) fn megatron_parts(&self) -> Vec<Vec<PartParam>> {
        let Some(part) = self.part else { return Vec::new() };
        let tied = self.architecture.head.tied;
        let shares = part.shares_embedding;
        let of = |(number, groups): (usize, &Range<usize>)| {
            let mut own = Vec::new();
            if part.is_first && number == 0 {
                // a head that is the same matrix multiplies by it
                let kind = if tied && part.is_last { ParamKind::Multiplied } else { ParamKind::LookedUp };
                own.push(PartParam { id: self.outside.tokens, shared: shares, kind });
                own.extend(self.outside.positions.map(of_layer(ParamKind::LookedUp)));
            }
            for group in self.layer_groups.get(groups.clone()).unwrap_or_default() {
                let layers = || group.layers.iter().filter_map(|layer| self.layers.get(*layer));
                let each: Vec<PartParam> = layers().flat_map(in_order).collect();
                for _ in 0..group.times {
                    own.extend(each.iter().copied());
                }
            }
            if part.is_last && number + 1 == part.times {
                let norms = self.outside.norms.iter().flat_map(|norm| [norm.weight, norm.bias]).flatten();
                own.extend(norms.map(of_layer(ParamKind::Multiplied)));
                let head = self.outside.linears.iter().filter(|_| !tied).map(|head| head.weight.id());
                own.extend(head.map(|id| PartParam { id, shared: shares, kind: ParamKind::Multiplied }));
            }
            own
        };
        self.part_groups.iter().enumerate().map(of).collect()
    }
}

/// Whether modules of a model hold something from one micro-batch to the next: tables of positions, what the token dispatcher
/// has as attributes.
pub(in crate::step::forward) fn holds(architecture: &Architecture) -> bool {
    let is_so =
        |block: &Block| matches!(block.mixer, Mixer::Latent(_)) || matches!(block.ffn, FeedForward::Moe(_));
    architecture.blocks.iter().any(is_so)
}

/// A parameter that no other stage has.
fn of_layer(kind: ParamKind) -> impl Fn(ParamId) -> PartParam {
    move |id| PartParam { id, shared: false, kind }
}

/// A layer's parameters in the order of its modules.
fn in_order(layer: &BoundLayer<'_>) -> Vec<PartParam> {
    let of_norm = |name: &str| layer.norms.iter().find(|norm| norm.name == name);
    let norm = |name: &str| of_norm(name).and_then(|norm| norm.weight);
    let shift = |name: &str| of_norm(name).and_then(|norm| norm.bias);
    let bias =
        |name: &str| layer.linears.iter().find(|linear| linear.name == name).and_then(|linear| linear.bias);
    let linear =
        |name: &str| layer.linears.iter().find(|linear| linear.name == name).map(|linear| linear.weight.id());
    let multiplied = |ids: Vec<Option<ParamId>>| {
        ids.into_iter().flatten().map(of_layer(ParamKind::Multiplied)).collect::<Vec<PartParam>>()
    };
    let mut own = multiplied(vec![
        norm(build::INPUT_NORM),
        shift(build::INPUT_NORM),
        linear(build::PROJECTION),
        bias(build::PROJECTION),
        linear(build::QKV),
        bias(build::QKV),
        norm(build::QUERY_NORM),
        norm(build::KEY_NORM),
        linear(experts::QUERY),
        linear(experts::QUERY_DOWN),
        norm(experts::QUERY_NORM),
        linear(experts::QUERY_UP),
        linear(experts::KEY_DOWN),
        norm(experts::KEY_NORM),
        linear(experts::KEY_UP),
        norm(build::MLP_NORM),
        shift(build::MLP_NORM),
        linear(build::FC1),
        bias(build::FC1),
        linear(build::FC2),
        bias(build::FC2),
    ]);
    own.extend(linear(experts::ROUTER).map(of_layer(ParamKind::Router)));
    own.extend(layer.experts.iter().map(|expert| of_layer(ParamKind::Expert)(expert.weight)));
    own.extend(multiplied(vec![linear(experts::SHARED_FC1), linear(experts::SHARED_FC2)]));
    own
}
