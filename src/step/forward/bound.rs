//! What a description is bound to: the parameters on the machine of a layer, an encoder, and all that is outside the layers.

use std::ops::Range;

use super::LayerGroup;
use crate::model::blocks::{Block, Linear, Moe, Norm};
use crate::step::ops::experts::Expert;
use crate::step::ops::linear;
use crate::step::ops::norm::NormLayer;
use crate::step::params::ParamId;

/// A layer on the machine: its description and its parameters.
pub(in crate::step) struct BoundLayer<'a> {
    pub block: &'a Block,
    pub linears: Vec<linear::Layer>,
    pub norms: Vec<NormLayer>,
    pub experts: Vec<Expert>,
    /// The layers of its experts, three for each, where they are no tensors.
    pub expert_layers: Vec<linear::Layer>,
    /// Which parameters on the machine are its own.
    pub own: Range<ParamId>,
    /// Its number among [`Model::layers`](super::Model::layers).
    pub number: usize,
    /// Learned attention sinks.
    pub sinks: Option<ParamId>,
    /// A learned bias of the scores by distance.
    pub bias: Option<ParamId>,
    /// The weight and the bias of a short convolution.
    pub conv: Option<(ParamId, Option<ParamId>)>,
    /// What a state space or linear attention has beside its layers, in the order of its description.
    pub bare: Vec<ParamId>,
    /// Whether it is the last of its kind, which leaves its keys and values to those after it (gemma4).
    pub leaves_keys: bool,
    /// Parameters that belong to no module of a kind, by name.
    pub params: Vec<(&'static str, ParamId)>,
}

impl BoundLayer<'_> {
    /// The linear layer of that description.
    pub fn linear(&self, spec: &Linear) -> linear::Layer {
        find(&self.linears, |layer| layer.name == spec.name)
    }

    /// The first and the last parameter of its mixture of experts.
    pub fn of_experts(&self, moe: &Moe) -> [ParamId; 2] {
        let mut own: Vec<ParamId> = Vec::new();
        let mut names: Vec<String> = Vec::new();
        moe.visit(&mut |param| names.push(param.name.to_string()));
        for layer in self.linears.iter().chain(&self.expert_layers) {
            if names.iter().any(|name| name.strip_prefix(layer.name).is_some_and(|rest| rest == ".weight")) {
                own.extend([Some(layer.weight.id()), layer.bias].into_iter().flatten());
                own.extend(layer.adapter.iter().flat_map(|adapter| [adapter.a, adapter.b]));
            }
        }
        for expert in &self.experts {
            own.extend([Some(expert.weight), expert.bias].into_iter().flatten());
            own.extend(expert.adapter.iter().flat_map(|adapter| [adapter.a, adapter.b]));
        }
        [own.iter().min(), own.iter().max()].map(|end| end.copied().unwrap_or_default())
    }

    /// The norm of that description.
    pub fn norm(&self, spec: &Norm) -> NormLayer {
        find(&self.norms, |norm| norm.name == spec.name)
    }

    /// The norm of that name beside those of the wiring.
    pub fn norm_named(&self, name: &str) -> Option<NormLayer> {
        self.norms.iter().find(|norm| norm.name == name).copied()
    }

    /// The parameter of that name.
    pub fn param_named(&self, name: &str) -> Option<ParamId> {
        self.params.iter().find(|param| param.0 == name).map(|param| param.1)
    }
}

/// The element that a description's own parameters were bound to: loading binds every linear layer and norm of a block.
pub(super) fn find<T: Copy>(list: &[T], is: impl Fn(&T) -> bool) -> T {
    match list.iter().find(|item| is(item)) {
        Some(item) => *item,
        None => unreachable!("loading binds every module of a block"),
    }
}

/// An encoder beside its decoder, on the machine.
pub(in crate::step) struct BoundEncoder {
    /// Its layers are the first so many of [`Model::layers`](super::Model::layers).
    pub layers: usize,
    pub layer_groups: Vec<LayerGroup>,
    pub positions: Option<ParamId>,
    /// The norm on its embeddings.
    pub norm: Option<NormLayer>,
    pub final_norm: Option<NormLayer>,
}

/// The parameters outside the layers.
pub(in crate::step) struct BoundOutside {
    pub tokens: ParamId,
    pub positions: Option<ParamId>,
    pub token_types: Option<ParamId>,
    pub linears: Vec<linear::Layer>,
    pub norms: Vec<NormLayer>,
    /// Parameters that belong to no module of a kind, by name.
    pub params: Vec<(&'static str, ParamId)>,
}
