//! A decoder's layers, one after the other: as they are, checkpointed, or run again in backward.

use super::inputs::{Embedded, MASK, Seen, Shared};
use super::{Given, Hidden, Pass, find};
use crate::model::HeadTransform;
use crate::model::blocks::Mixer;
use crate::model::modeling::Code;
use crate::scenario::Checkpointing;
use crate::scenario::software::ModelCode;
use crate::step::parallel::Module;
use crate::step::repeat::Alike;
use crate::step::tensor::{Tensor, Value};

impl<'a> Pass<'_, 'a> {
    /// Everything between the tokens and the head, of a model that is one stack of layers.
    pub(super) fn decoder(&self) -> Hidden<'a> {
        let (embedded, mut shared) = self.prepare();
        let Embedded { hidden, kept, positions, mut locals } = embedded;
        // those of the forward around the text's go last
        let around_text = if shared.encoded.is_some() { std::mem::take(&mut locals) } else { Vec::new() };
        let mut kept = kept.then(|| hidden.clone());
        let mut variables = [hidden];
        // what a layer returned, where something is added to it afterwards
        let mut returned = None;
        for group in &self.layer_groups {
            let others = self.keeps_states().then_some(&self.states_of_others);
            let alike = Alike::All { held: &mut kept, given: others };
            self.machine.repeat(group.times.into(), alike, &mut variables, &mut |[hidden], _| {
                for index in &group.layers {
                    if self.keeps_states() {
                        self.states.borrow_mut().push(hidden.clone());
                    }
                    *hidden = self.layer_or_checkpoint(*index, hidden, &shared);
                    let deepened = self.deepened(*index, hidden);
                    returned = deepened.map(|deepened| std::mem::replace(hidden, deepened));
                }
            });
            self.machine.with(|state| state.parallel.carried().map(|carried| state.counts_once(carried)));
            if let Some(carried) = &*self.outputs.borrow() {
                self.machine.with(|state| state.counts_once(carried.value.storage));
            }
        }
        drop(returned);
        let [mut hidden] = variables;
        if let Some(norm) = &self.architecture.final_norm {
            let norm = find(&self.outside.norms, |bound| bound.name == norm.name);
            hidden = match self.member.software().model {
                ModelCode::Transformers if self.shards => {
                    self.machine.norm_unit(hidden, |hidden| hidden.normed(&norm))
                }
                ModelCode::Transformers => hidden.normed(&norm),
                ModelCode::Litgpt => hidden.litgpt_normed(&norm),
                // its variable lives on beside the normed one: the head's code does both
                ModelCode::Torchtune => hidden,
                ModelCode::Torchtitan => {
                    self.machine.norm_unit(hidden, |hidden| hidden.torchtitan_normed(&norm))
                }
                ModelCode::Unsloth => self.unsloth_last_normed(&hidden, &norm),
                ModelCode::Megatron => hidden,
            };
        }
        hidden = self.machine.leave_module(Module::DECODER, hidden);
        if self.keeps_states() {
            self.states.borrow_mut().push(hidden.clone());
        }
        if let Some(HeadTransform::Project(linear)) = &self.architecture.head.transform {
            hidden = hidden.through(&find(&self.outside.linears, |bound| bound.name == linear.name));
        }
        if self.architecture.head.transform == Some(HeadTransform::Pooler) {
            self.pool_for_nobody(&hidden);
        }
        if self.checkpointing() == Checkpointing::Off {
            self.machine.with(|state| state.drop_left());
        }
        // the forward's arguments go first, then its variables
        let values = shared.map(|tensor| tensor.value);
        let masks = (shared.full.take(), shared.sliding.take());
        // of a model with pictures that is given none they are variables of the forward around the text's
        let around = self.tower.is_none() && !self.architecture.towers.is_empty();
        let outer = if around { kept.take() } else { None };
        if self.modeling.mask_arguments {
            drop(masks);
            drop(kept);
            drop((positions, shared.positions.take()));
            drop(locals);
        } else {
            drop((positions, shared.positions.take()));
            drop(locals);
            drop(kept);
            drop(masks);
        }
        drop(shared.cross_mask.take());
        drop(shared);
        drop(around_text);
        drop(outer);
        drop(self.outputs.take());
        drop(self.deep.take());
        let given = Given { layers: values, encoder: self.tower_given.take() };
        Hidden { states: hidden, given, ids: None, encoded: None }
    }

    fn layer_or_checkpoint(
        &self,
        index: usize,
        hidden: &Tensor<'a>,
        shared: &Shared<Tensor<'a>>,
    ) -> Tensor<'a> {
        let layer = &self.layers[index];
        if matches!(layer.block.mixer, Mixer::Cross(_)) && shared.encoded.is_none() {
            // there are no pictures to attend to
            return hidden.clone();
        }
        match self.checkpointing() {
            Checkpointing::Off | Checkpointing::Selective => self.layer(layer, hidden, shared),
            // layers that are alike are run on behalf of an even number of them
            Checkpointing::Alternate if index.is_multiple_of(2) => self.layer(layer, hidden, shared),
            Checkpointing::NonReentrant
            | Checkpointing::Reentrant
            | Checkpointing::Alternate
            | Checkpointing::Operations => {
                let mut arguments = shared.arguments(Seen::by(&layer.block.mixer));
                if let (Code::DeepseekSparse, Some(chosen)) = (self.modeling.code, &*self.outputs.borrow()) {
                    arguments[arguments.len() - 1] = chosen.value.storage;
                }
                let is_reentrant = self.checkpointing() == Checkpointing::Reentrant;
                if !is_reentrant && !self.modeling.mask_by_position && shared.encoded.is_none() {
                    // the keyword arguments go in the order of the call: the mask, then the pair of sines and cosines
                    arguments[..=MASK].rotate_right(1);
                }
                let positional = self.modeling.mask_by_position.then_some(MASK);
                let layer_of_pass = self.number * self.layers.len() + index;
                // the `CheckpointWrapper` of torchtune and torchtitan is in the unit that they shard
                let inside =
                    matches!(self.member.software().model, ModelCode::Torchtune | ModelCode::Torchtitan);
                let run = |hidden: &Tensor<'a>| {
                    self.machine.checkpointed(layer_of_pass, hidden, arguments, || {
                        self.machine.with(|state| state.graph.note_named(|place| Some(place) != positional));
                        match inside {
                            true => self.layer_forward(layer, hidden, shared),
                            false => self.layer(layer, hidden, shared),
                        }
                    })
                };
                if inside { self.within_hooks(layer, hidden, run) } else { run(hidden) }
            }
            Checkpointing::Offloaded => self.offloaded(index, hidden, shared),
        }
    }

    /// Runs a checkpointed layer's forward again.
    pub fn recompute(&self, index: usize, hidden: Tensor<'a>, given: &Given<Shared<Value>>) {
        if self.encoder.is_some() {
            return match self.modeling.code {
                Code::Bart => self.recompute_bart(index, &hidden, given),
                _ => self.recompute_t5(index, &hidden, given),
            };
        }
        if self.recompute_tower(index, &hidden, given) {
            return;
        }
        let shared = &given.layers;
        let shared = shared.of(Seen::by(&self.layers[index].block.mixer)).map(|value| {
            self.machine.with(|state| state.retain(value.storage));
            Tensor { machine: self.machine, value: *value }
        });
        self.machine.with(|state| state.autocast = self.autocast);
        let output = self.layer(&self.layers[index], &hidden, &shared);
        self.machine.with(|state| state.keep_output(output.value.storage));
        drop(output);
        self.leave_autocast();
    }

    /// `outputs = block(…)` in bloom's and falcon's forward: the probabilities live until the next layer is through.
    pub(super) fn keep_weights(&self, weights: Option<Tensor<'a>>) {
        if let Some(weights) = &weights {
            self.machine.with(|state| {
                state.note_returned(&weights.value);
                state.keep_output(weights.value.storage);
            });
        }
        if !self.machine.with(|state| state.recomputing) {
            drop(self.outputs.replace(weights));
        }
    }
}
