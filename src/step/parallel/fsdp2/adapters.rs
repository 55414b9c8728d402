//! Adapters that are units by themselves: axolotl calls `fully_shard` on each `lora_A` and `lora_B` before the layer that it is in, which
//! gathers it around its own product. Source: axolotl 0.19 monkeypatch/accelerate/fsdp2.py `_process_lora_module_for_fsdp`; PyTorch,
//! torch/distributed/fsdp/_fully_shard/_fsdp_state.py and _fsdp_param_group.py; compared with the allocator's trace.

use super::{Fsdp2, Unit};
use crate::dtype::Dtype;
use crate::step::heap::{Heap, NOTHING};
use crate::step::parallel::Wrapped;
use crate::step::params::{ParamId, Params};

/// What is known of the units that adapters are.
#[derive(Default)]
pub(super) struct Adapters {
    /// By layer: the first and the last of its adapters' units, in the order in which they run.
    of_layers: Vec<Option<(usize, usize)>>,
    /// By unit behind the root: whether backward has come to it.
    in_backward: Vec<bool>,
    /// The same: whether its own module is never called, so that no hook is around it.
    unhooked: Vec<bool>,
}

impl Fsdp2 {
    /// Makes units of what the layers' adapters are made of, each between the one that runs before it and the one behind it; a layer comes
    /// behind all of its own, as its forward pass ends then.
    pub(super) fn wrap_adapters(&mut self, params: &Params, model: &Wrapped) {
        for (layer, own) in model.adapters.iter().enumerate() {
            let mut hooked: Option<(usize, usize)> = None;
            for id in own {
                let unit = self.units.len();
                self.units[layer].leave_out(*id);
                self.owners[*id as usize] = unit as u32;
                let unhooked = model.unhooked.binary_search(id).is_ok();
                let before = hooked.map_or(self.units[layer].before, |(_, last)| Some(last));
                let before = before.filter(|_| !unhooked);
                self.units.push(Unit { before, ..Unit::of(params, vec![*id]) });
                self.adapters.unhooked.push(unhooked);
                if !unhooked {
                    hooked = Some((hooked.map_or(unit, |(first, _)| first), unit));
                }
            }
            self.adapters.of_layers.push(hooked);
            if let Some((_, last)) = hooked {
                self.units[layer].before = Some(last);
            }
        }
        self.adapters.in_backward = vec![false; self.units.len() - self.root - 1];
    }

    /// The unit of a layer that runs first of all: an adapter's, where it has one.
    pub(super) fn begins_with(&self, layer: usize) -> usize {
        let adapters = self.adapters.of_layers.get(layer).copied().flatten();
        adapters.map_or(layer, |(first, _)| first)
    }

    /// The unit that a parameter is alone in, as part of an adapter, and the element type that it computes in.
    pub fn of_adapter(&self, id: ParamId) -> Option<(usize, Dtype)> {
        let unit = *self.owners.get(id as usize)? as usize;
        self.place(unit).map(|_| (unit, self.compute))
    }

    /// The place of an adapter's unit among them.
    fn place(&self, unit: usize) -> Option<usize> {
        unit.checked_sub(self.root + 1).filter(|place| *place < self.adapters.in_backward.len())
    }

    /// Whether an adapter's unit has no hooks.
    pub(super) fn is_unhooked(&self, unit: usize) -> bool {
        self.place(unit).is_some_and(|place| self.adapters.unhooked[place])
    }

    /// `unshard` of an adapter's matrix whose module is not called (axolotl 0.19 kernels/lora.py `get_lora_parameters`), unless it is whole
    /// already. Nobody reshards it before backward is over, which has its gradient reduced then, too.
    pub fn unshard_by_hand(&mut self, heap: &mut Heap, params: &Params, id: ParamId) {
        let Some((unit, _)) = self.of_adapter(id).filter(|(unit, _)| self.units[*unit].gathered.is_empty())
        else {
            return;
        };
        let output = self.gather(heap, params, unit);
        self.copy_out(heap, params, unit);
        heap.release(output);
    }

    /// Whether backward has come to an adapter's unit, so that its hooks do nothing when the layer is recomputed.
    pub fn is_in_backward(&self, unit: usize) -> bool {
        self.place(unit).is_some_and(|place| self.adapters.in_backward[place])
    }

    /// An adapter's unit ran in a recomputation, whose parameters stay whole until its own backward is over (`post_forward` does nothing in
    /// backward). What they were gathered in goes at once where nothing is around it whose forward pass goes on (`iter_forward_root`).
    pub fn leave_again(&mut self, heap: &mut Heap) {
        heap.release(std::mem::replace(&mut self.kept, NOTHING));
    }

    /// Backward has come to a unit: the one to gather ahead, which ran before it in forward (`_backward_prefetch`).
    pub(super) fn comes_next(&mut self, unit: usize) -> Option<usize> {
        if let Some(place) = self.place(unit) {
            self.adapters.in_backward[place] = true;
        }
        self.units[unit].before.or_else(|| self.of_earlier_pass())
    }

    /// Whether a unit is an adapter's that was made whole to run again.
    pub(super) fn is_whole_again(&self, unit: usize) -> bool {
        self.place(unit).is_some() && !self.units[unit].gathered.is_empty()
    }

    /// Backward is over for all of them.
    pub(super) fn leave_adapters(&mut self, heap: &mut Heap, params: &mut Params, is_last: bool) {
        let adapters = self.adapters.in_backward.len();
        (0..adapters).for_each(|place| self.reduce(heap, params, self.root + 1 + place, is_last));
        self.adapters.in_backward.fill(false);
    }
}

impl Unit {
    /// A parameter is in a unit of its own.
    fn leave_out(&mut self, id: ParamId) {
        if let Some(place) = self.params.iter().position(|own| *own == id) {
            self.params.remove(place);
            self.shards.remove(place);
            self.times.remove(place);
        }
    }
}
