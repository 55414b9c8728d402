//! A model that `fully_shard` divides: what is whole on the GPU until its shards are made; and one that only scores beside it.

use std::ops::Range;

use super::{Fsdp2, Unit, Wrapper};
use crate::dtype::Dtype;
use crate::step::heap::record::Event;
use crate::step::heap::{Heap, StorageId};
use crate::step::parallel::offload::pinned;
use crate::step::params::{ParamId, Parameter, Params};

/// Notes an event, where they are noted.
fn push(heap: &mut Heap, event: Event) {
    heap.record.iter_mut().for_each(|record| record.events.push(event));
}

/// The parameter that an event makes, and its unit.
fn owner_of(owners: &[Option<(usize, ParamId)>], event: Event) -> Option<(usize, ParamId)> {
    match event {
        Event::Alloc(storage) => owners.get(storage as usize).copied().flatten(),
        Event::Free(_) | Event::Becomes(..) | Event::Mark(_) | Event::EmptyCache => None,
    }
}

impl Fsdp2 {
    /// The unit of a model that only scores, where there is one.
    pub fn reference(&self) -> Option<usize> {
        self.has_reference.then(|| self.root() + 1)
    }

    /// The unit of which a model's forward pass is the outermost one: the root of the one that is trained, or that of one that only
    /// scores, whose layers are no units.
    pub fn outermost(&self, has_units: bool) -> Option<usize> {
        if has_units { Some(self.root()) } else { self.reference() }
    }

    /// A forward pass begins: the unit that is gathered for all of it.
    pub fn begin_pass(&mut self, has_units: bool) -> Option<usize> {
        self.passes += u64::from(has_units);
        self.outermost(has_units)
    }

    /// `fully_shard` on a model that only scores, and on none of its layers: all of it is one unit. It was sharded before the
    /// model that is trained was moved to the GPU. Source: trl 1.16 models/utils.py `prepare_fsdp`.
    pub fn wrap_reference(&mut self, heap: &mut Heap, params: &Params, own: Range<usize>) {
        if self.wrapper != Wrapper::Accelerate || self.units.is_empty() || self.has_reference {
            return;
        }
        let unit = self.units.len();
        let ids: Vec<ParamId> = own.map(|id| id as ParamId).collect();
        ids.iter().for_each(|id| self.owners[*id as usize] = unit as u32);
        let times = ids.iter().map(|id| params.get(*id).times).collect();
        self.units.push(Unit { times, ..Unit::of(params, ids) });
        self.has_reference = true;
        let Some(record) = &mut heap.record else { return };
        let recorded = std::mem::take(&mut record.events);
        let owners = self.by_storage(heap, params);
        let is_own = |event: &Event| matches!(owner_of(&owners, *event), Some((own, _)) if own == unit);
        let (first, later): (Vec<Event>, Vec<Event>) = recorded.into_iter().partition(is_own);
        self.move_unit(heap, params, &owners, &first);
        // the training begins (`accelerator.free_memory()`)
        push(heap, Event::EmptyCache);
        later.into_iter().for_each(|event| push(heap, event));
    }

    /// `_move_states_to_device` and `_init_sharded_param` of a model in the CPU's memory: a unit's parameters come whole and
    /// go when its shards were made, the layers' first, the root's last. Puts what was recorded of the loading in that order.
    pub fn move_in(&self, heap: &mut Heap, params: &Params) {
        if self.offloads {
            return self.pass_through(heap, params);
        }
        let Some(record) = &mut heap.record else { return };
        let recorded = std::mem::take(&mut record.events);
        let owners = self.by_storage(heap, params);
        let (root, layers) = (self.root(), self.root() - self.ends.len());
        let (mut late, mut open) = (vec![Vec::new(); root + 1 - layers], (root, Vec::new()));
        for event in recorded {
            match owner_of(&owners, event) {
                // what belongs to none of its parameters: scales of 4-bit weights
                None if open.1.is_empty() => push(heap, event),
                None => open.1.push(event),
                Some((unit, _)) => {
                    if unit != open.0 {
                        self.move_unit(heap, params, &owners, &std::mem::take(&mut open.1));
                        open.0 = unit;
                    }
                    if unit >= layers {
                        late[unit - layers].push(event);
                    } else {
                        open.1.push(event);
                    }
                }
            }
        }
        self.move_unit(heap, params, &owners, &open.1);
        // accelerate's function has variables for the weights of embedding and head (`input_weight`, `output_weight`), whole as they are
        let load = |events: &Vec<Event>| self.load_unit(heap, params, &owners, events);
        let held: Vec<StorageId> = late.iter().flat_map(load).collect();
        held.into_iter().for_each(|storage| heap.release(storage));
    }

    /// `load_from_full_model_state_dict`: tables of positions and adapters were made first; every other parameter comes whole, then its
    /// shard is cut out of it, in the order of the model's. Puts what was recorded of the loading in that order. Of shards that go back to
    /// the CPU nothing stays, and the recipe empties the cache before it trains.
    pub fn load_shards(&self, heap: &mut Heap, params: &Params) {
        let Some(record) = heap.record.as_mut().filter(|_| !self.offloads) else { return };
        let recorded = std::mem::take(&mut record.events);
        let owners = self.by_storage(heap, params);
        let adapts = self.units.iter().flat_map(|unit| &unit.params).any(|id| !params.get(*id).trainable);
        // what of a 4-bit weight is whole was noted with it
        let is_read = |param: &Parameter| !(adapts && param.trainable) && param.kept.dtype != Dtype::U8;
        let mut read = Vec::new();
        for event in recorded {
            match owner_of(&owners, event) {
                Some((_, id)) if is_read(params.get(id)) => read.push((id, event)),
                Some(_) | None => push(heap, event),
            }
        }
        for (id, event) in read {
            let param = params.get(id);
            let whole = heap.while_loading(param.numel, param.kept.dtype);
            push(heap, event);
            heap.release(whole);
        }
    }

    /// `fsdp2_load_full_state_dict` of a model on the meta device, on the process that has it in the CPU's memory: every parameter comes
    /// whole, then this rank's shard of it. A head that is tied to the embedding comes once more, and goes when all is loaded. Buffers come
    /// last. Nobody empties the cache before training. Source: axolotl 0.19 monkeypatch/accelerate/fsdp2.py.
    pub fn distribute(&self, heap: &mut Heap, params: &Params) {
        let Some(record) = &mut heap.record else { return };
        let recorded = std::mem::take(&mut record.events);
        let owners = self.by_storage(heap, params);
        if self.offloads {
            for param in &params.list {
                let whole = heap.while_loading(param.numel, param.kept.dtype);
                let shard = heap.while_loading(param.kept.numel, param.kept.dtype);
                heap.release(whole);
                heap.release(shard);
            }
        }
        let (own, others): (Vec<Event>, Vec<Event>) =
            recorded.into_iter().partition(|event| owner_of(&owners, *event).is_some());
        for event in own {
            let Some((_, id)) = owner_of(&owners, event) else { continue };
            let param = params.get(id);
            let whole = heap.while_loading(param.numel, param.kept.dtype);
            push(heap, event);
            heap.release(whole);
        }
        others.into_iter().for_each(|event| push(heap, event));
    }

    /// What was recorded of a unit, in order, after which what was whole of it goes.
    fn move_unit(
        &self,
        heap: &mut Heap,
        params: &Params,
        owners: &[Option<(usize, ParamId)>],
        events: &[Event],
    ) {
        let whole = self.load_unit(heap, params, owners, events);
        whole.into_iter().for_each(|storage| heap.release(storage));
    }

    /// The same: its parameters come whole, each after what its weight needs to be read, then the shards are made. Returns what
    /// was whole.
    fn load_unit(
        &self,
        heap: &mut Heap,
        params: &Params,
        owners: &[Option<(usize, ParamId)>],
        events: &[Event],
    ) -> Vec<StorageId> {
        let (mut whole, mut shards, mut next) = (Vec::new(), Vec::new(), None);
        let mut load = |heap: &mut Heap, id: Option<ParamId>| {
            whole.extend(id.map(|id| heap.while_loading(params.get(id).numel, params.get(id).kept.dtype)));
        };
        for event in events {
            match owner_of(owners, *event) {
                None => push(heap, *event),
                Some((_, id)) => {
                    load(heap, next.replace(id));
                    shards.push(*event);
                }
            }
        }
        load(heap, next);
        shards.into_iter().for_each(|event| push(heap, event));
        whole
    }

    /// The parameter in each storage, and its unit.
    fn by_storage(&self, heap: &Heap, params: &Params) -> Vec<Option<(usize, ParamId)>> {
        let mut owners = vec![None; heap.storages.len()];
        for (index, unit) in self.units.iter().enumerate() {
            for id in &unit.params {
                owners[params.get(*id).storage as usize] = Some((index, *id));
            }
        }
        owners
    }

    /// Bytes of the CPU's memory that this rank has: shards and their gradients, which are pinned, and the states of AdamW.
    pub fn on_host(&self, params: &Params) -> u64 {
        let own = params.list.iter().filter(|_| self.offloads).map(|param| {
            let bytes = param.kept.numel.saturating_mul(param.kept.dtype.bytes());
            let pinned = pinned(bytes);
            let trained = if param.trainable { pinned.saturating_add(bytes.saturating_mul(2)) } else { 0 };
            pinned.saturating_add(trained).saturating_mul(u64::from(param.times))
        });
        own.fold(0, u64::saturating_add)
    }

    /// The same where shards go back to the CPU.
    fn pass_through(&self, heap: &mut Heap, params: &Params) {
        let (root, layers) = (self.root(), self.root() - self.ends.len());
        let mut held = Vec::new();
        for unit in 0..self.units.len() {
            let own = || self.units[unit].params.iter().map(|id| params.get(*id));
            let loaded: Vec<StorageId> =
                own().map(|param| heap.while_loading(param.numel, param.kept.dtype)).collect();
            for kept in own().map(|param| param.kept) {
                let shard = heap.while_loading(kept.numel, kept.dtype);
                heap.release(shard);
            }
            if self.wrapper == Wrapper::Accelerate && (layers..=root).contains(&unit) {
                held.extend(loaded);
            } else {
                loaded.into_iter().for_each(|storage| heap.release(storage));
            }
        }
        held.into_iter().for_each(|storage| heap.release(storage));
    }
}
