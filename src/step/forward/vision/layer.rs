//! A tower's layers, checkpointed or not.

use super::bound::BoundTower;
use super::looked::Looked;
use super::ops::PIXELS;
use crate::dtype::Dtype;
use crate::model::vision::VisionCode;
use crate::scenario::Checkpointing;
use crate::step::autograd::Edge;
use crate::step::forward::inputs::{MASK, Shared};
use crate::step::forward::{Given, Model, Pass};
use crate::step::heap::NOTHING;
use crate::step::machine::State;
use crate::step::tensor::{Tensor, Value};
use crate::step::what::{Role, Source};

pub(super) static TOWER: Role =
    Role::new("the vision tower, which turns pictures into embeddings", Source::Modeling);

/// `torch.split` by picture: views, which are one here where nothing is done with each.
pub(super) fn by_picture(projected: Tensor<'_>) -> Vec<Tensor<'_>> {
    let whole = projected.value.numel;
    projected.chunks(&[whole])
}

impl Model<'_> {
    /// Whether checkpoints of a tower's layers are recomputed in backward: where one of them learns, or where its patches are made to
    /// need a gradient. With reentrant ones an adapter's learning does not count.
    pub(in crate::step::forward) fn records_tower(&self, tower: &BoundTower<'_>) -> bool {
        let learns = self.machine.with(|state| state.params.get(tower.patch).trainable);
        let adapted = tower.inside().any(|linear| linear.adapter.is_some());
        let by_adapters = adapted && self.member.checkpointing != Checkpointing::Reentrant;
        let reaches = match tower.vision.code {
            // its layers are no `GradientCheckpointingLayer`
            VisionCode::Mllama => false,
            // what they are given by name reentrant checkpoints do not look at
            VisionCode::Llama4 => self.member.checkpointing != Checkpointing::Reentrant,
            _ => true,
        };
        reaches && (tower.vision.names_patches() || learns || by_adapters)
    }
}

impl<'a> Pass<'_, 'a> {
    /// The pictures' numbers in the element type of the weight that embeds them; the batch's own are float32.
    pub(super) fn pixels(&self, tower: &BoundTower<'a>, looked: Looked<'_>) -> Tensor<'a> {
        if let Some(cast) = &*self.pixels.borrow() {
            return cast.clone();
        }
        let dtype = self.machine.with(|state| state.params.get(tower.patch).dtype);
        let numbers = looked.numbers();
        if dtype == Dtype::F32 {
            Tensor { machine: self.machine, value: Value::plain(NOTHING, numbers, dtype) }
        } else {
            self.constant(numbers, dtype, &PIXELS)
        }
    }

    /// The pictures' numbers as the root of a model whose units are sharded hands them on (`cast_forward_inputs`); they stay until its
    /// forward pass is over.
    pub(in crate::step::forward) fn cast_pixels(&self) {
        let Some(looked) = self.looked(self.batch).filter(|_| self.shards) else { return };
        let numbers = looked.lies().saturating_mul(looked.vision.patch_numbers);
        let given = Tensor { machine: self.machine, value: Value::plain(NOTHING, numbers, Dtype::F32) };
        self.pixels.replace(Some(self.machine.unit_input(&given)));
    }

    /// `torch.cat` of the tokens of all pictures, in the element type of the text's.
    pub(super) fn joined_pictures(&self, pictures: Vec<Tensor<'a>>, embedded: &Tensor<'a>) -> Tensor<'a> {
        let whole = pictures.iter().map(|picture| picture.value.numel).fold(0, u64::saturating_add);
        let joined = self.machine.stacked(&pictures, whole).in_token_order();
        drop(pictures);
        joined.to(embedded.value.dtype)
    }

    /// `output.requires_grad_(True)` on what embeds patches: `gradient_checkpointing_enable` sees to it, with adapters or without
    /// (modeling_utils.py).
    pub(super) fn patches_require_grad(&self, hidden: Tensor<'a>) -> Tensor<'a> {
        let asked = self.inputs_require_grad || self.checkpointing() != Checkpointing::Off;
        if !self.trains || !asked || hidden.value.requires_grad() {
            return hidden;
        }
        let id = self.machine.with(|state| state.leaf(&hidden.value, true));
        hidden.with(|value| value.edge = Edge::Param(id))
    }

    pub(super) fn tower_block_or_checkpoint(
        &self,
        tower: &BoundTower<'a>,
        (number, looked): (usize, Looked<'_>),
        hidden: &Tensor<'a>,
        shared: &Shared<Tensor<'a>>,
    ) -> Tensor<'a> {
        match self.checkpointing() {
            _ if tower.vision.code == VisionCode::Mllama => {
                self.tower_unit(tower, (number, looked), hidden, shared)
            }
            Checkpointing::Off | Checkpointing::Selective => {
                self.tower_unit(tower, (number, looked), hidden, shared)
            }
            // its function is given nothing that needs a gradient, and returns nothing that does: llama4's layers are given what they
            // read by its name, which reentrant checkpoints do not look at
            Checkpointing::Reentrant
                if !hidden.value.requires_grad() || tower.vision.code == VisionCode::Llama4 =>
            {
                self.without_gradients(|| self.tower_unit(tower, (number, looked), hidden, shared))
            }
            Checkpointing::NonReentrant
            | Checkpointing::Reentrant
            | Checkpointing::Alternate
            | Checkpointing::Operations
            | Checkpointing::Offloaded => {
                let storage = |index: usize| {
                    shared.rotary.as_ref().map_or(NOTHING, |(cos, sin)| [sin, cos][index].value.storage)
                };
                // pixtral's layers are given their mask by its place
                let by_position = tower.vision.in_one_sequence();
                let of =
                    |tensor: &Option<Tensor<'a>>| tensor.as_ref().map_or(NOTHING, |own| own.value.storage);
                let arguments = [storage(0), storage(1), of(&shared.positions), of(&shared.full), NOTHING];
                self.machine.checkpointed(self.layers.len() + number, hidden, arguments, || {
                    self.machine.with(|state| state.graph.note_named(|place| place != MASK || !by_position));
                    self.tower_unit(tower, (number, looked), hidden, shared)
                })
            }
        }
    }

    /// Runs a checkpointed block's forward again; whether that number is a block's.
    pub(in crate::step::forward) fn recompute_tower(
        &self,
        index: usize,
        hidden: &Tensor<'a>,
        given: &Given<Shared<Value>>,
    ) -> bool {
        let (Some(tower), Some(number)) = (&self.tower, index.checked_sub(self.layers.len())) else {
            return false;
        };
        let Some(shared) = &given.encoder else { return false };
        let Some(looked) = self.looked(self.batch) else { return false };
        let shared = shared.map(|value| {
            self.machine.with(|state| state.retain(value.storage));
            Tensor { machine: self.machine, value: *value }
        });
        self.machine.with(|state| state.autocast = self.autocast);
        let output = self
            .machine
            .within("visual", &TOWER, || self.tower_unit(tower, (number, looked), hidden, &shared));
        self.machine.with(|state| state.keep_output(output.value.storage));
        drop(output);
        self.leave_autocast();
        true
    }

    /// `layer(hidden_states, …)`: its forward, with the hooks of a unit whose parameters are sharded around it.
    fn tower_unit(
        &self,
        tower: &BoundTower<'a>,
        (number, looked): (usize, Looked<'_>),
        hidden: &Tensor<'a>,
        shared: &Shared<Tensor<'a>>,
    ) -> Tensor<'a> {
        let is_unit = |state: &mut State| state.parallel.units().is_none_or(|fsdp| fsdp.has_tower());
        if !self.shards || !self.machine.with(is_unit) {
            return self.tower_block(tower, (number, looked), hidden, shared);
        }
        let given = shared.map(|tensor| self.machine.unit_input(tensor));
        self.machine.unit(self.layers.len() + number, hidden, |hidden| {
            self.tower_block(tower, (number, looked), hidden, &given)
        })
    }

    /// `Qwen2_5_VLVisionBlock.forward`.
    fn tower_block(
        &self,
        tower: &BoundTower<'a>,
        (number, looked): (usize, Looked<'_>),
        hidden: &Tensor<'a>,
        shared: &Shared<Tensor<'a>>,
    ) -> Tensor<'a> {
        let Some(block) = tower.blocks.get(number) else {
            return hidden.unmodelled("a layer of the tower that is not there");
        };
        let [first, second] = &block.norms;
        // a variable of internvl's layer has what its attention made, scaled
        let mut kept = None;
        let sum = {
            let mut attended = {
                let normed = hidden.normed(first);
                self.tower_attention(tower.vision, block, &normed, (number, looked), shared)
            };
            if let Some([after, _]) = &block.after {
                attended = attended.normed(after);
            }
            if let Some([scale, _]) = block.scales {
                attended = attended.times_weight(scale);
                kept = Some(attended.clone());
            }
            if let Some([gate, _]) = block.gates {
                attended = attended.behind_gate(gate);
            }
            hidden.add(&attended)
        };
        let mut fed = {
            let normed = sum.normed(second);
            match &block.mlp[..] {
                [gate, up, down] => {
                    let product = {
                        let active = {
                            let gated = normed.through(gate);
                            gated.activated(tower.vision.act, &[])
                        };
                        let up = normed.through(up);
                        active.into_product(up)
                    };
                    product.through(down)
                }
                [up, down] => {
                    let active = {
                        let inner = normed.through(up);
                        inner.activated(tower.vision.act, &[])
                    };
                    active.through(down)
                }
                _ => normed.unmodelled("a feed-forward network that no tower has"),
            }
        };
        if let Some([_, after]) = &block.after {
            fed = fed.normed(after);
        }
        if let Some([_, scale]) = block.scales {
            fed = fed.times_weight(scale);
        }
        if let Some([_, gate]) = block.gates {
            fed = fed.behind_gate(gate);
        }
        let output = sum.add(&fed);
        drop(fed);
        drop(kept);
        output
    }
}
