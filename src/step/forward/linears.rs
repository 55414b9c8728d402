//! The linear layers of a model, as a library finds them that puts others in their place.

use super::Model;
use crate::model::blocks::{FeedForward, LinearClass};
use crate::step::ops::linear::{Layer, Shape};
use crate::step::params::ParamId;

/// A module that is an `nn.Linear`.
#[derive(Clone, Copy)]
pub(super) struct Found {
    pub name: &'static str,
    pub weight: ParamId,
    pub shape: Shape,
    pub place: Place,
    pub is_adapter: bool,
}

/// Where a layer lies, or what its adapter adapts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Inside,
    /// Of an expert, which is given as many tokens as the router sends it.
    Expert,
    Head,
}

impl Found {
    /// A layer and its adapter, as peft puts them: the layer itself, A, B.
    fn of(layer: &Layer, place: Place) -> Vec<Found> {
        let found = |weight, shape, is_adapter| Found { name: layer.name, weight, shape, place, is_adapter };
        let own = (layer.class == LinearClass::Linear).then(|| found(layer.weight.id(), layer.shape, false));
        let beside = layer.adapter.iter().flat_map(|adapter| {
            let [down, up] = adapter.shapes(layer);
            [found(adapter.a, down, true), found(adapter.b, up, true)]
        });
        own.into_iter().chain(beside).collect()
    }
}

impl Model<'_> {
    /// Its linear layers and those of its adapters, in the order of the modules.
    pub(super) fn found_linears(&self) -> Vec<Found> {
        let all = |layers: &[Layer], place| {
            layers.iter().flat_map(|layer| Found::of(layer, place)).collect::<Vec<_>>()
        };
        let (head, others) = match self.outside.linears.split_last() {
            Some((head, others)) => (all(&[*head], Place::Head), others),
            None => (Vec::new(), &[][..]),
        };
        let mut found = Vec::with_capacity(64);
        for layer in &self.layers {
            // a router of experts in one tensor is a parameter of a module of its own
            let router = match &layer.block.ffn {
                FeedForward::Moe(moe) if !moe.router_is_linear => Some(moe.router.name),
                FeedForward::Moe(_) | FeedForward::Dense(_) | FeedForward::None => None,
            };
            let own = layer.linears.iter().filter(|linear| router != Some(linear.name));
            found.extend(own.flat_map(|linear| Found::of(linear, Place::Inside)));
            found.extend(all(&layer.expert_layers, Place::Expert));
        }
        found.extend(all(others, Place::Inside));
        found.extend(head);
        found
    }
}
