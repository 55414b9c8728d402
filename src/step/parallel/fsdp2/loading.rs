//! A model that `fully_shard` divides: what is whole on the GPU until its shards are made.

use super::Fsdp2;
use crate::step::heap::record::Event;
use crate::step::heap::{Heap, StorageId};
use crate::step::params::Params;

impl Fsdp2 {
    /// `_move_states_to_device` and `_init_sharded_param` of a model in the CPU's memory: a unit's parameters come whole and
    /// go when its shards were made, the layers' first, the root's last. Puts what was recorded of the loading in that order.
    pub fn move_in(&self, heap: &mut Heap, params: &Params) {
        if self.offloads {
            return self.pass_through(heap, params);
        }
        let Some(record) = &mut heap.record else { return };
        let recorded = std::mem::take(&mut record.events);
        let mut units = vec![None; heap.storages.len()];
        for (index, unit) in self.units.iter().enumerate() {
            for id in &unit.params {
                units[params.get(*id).storage as usize] = Some(index);
            }
        }
        let whole = |heap: &mut Heap, unit: usize| -> Vec<StorageId> {
            let own = self.units[unit].params.iter().map(|id| params.get(*id).kept);
            own.map(|kept| heap.while_loading(kept.numel.saturating_mul(self.world), kept.dtype)).collect()
        };
        let push =
            |heap: &mut Heap, event| heap.record.iter_mut().for_each(|record| record.events.push(event));
        let (root, layers) = (self.root(), self.root() - self.ends.len());
        let (mut late, mut open) = (vec![Vec::new(); root + 1 - layers], (root, Vec::new()));
        for event in recorded {
            let unit = match event {
                Event::Alloc(storage) => units.get(storage as usize).copied().flatten(),
                Event::Free(_) | Event::Becomes(..) | Event::Mark(_) | Event::EmptyCache => None,
            };
            match unit {
                None => push(heap, event),
                Some(unit) if unit >= layers => late[unit - layers].push(event),
                Some(unit) => {
                    if unit != open.0 {
                        open.1.drain(..).for_each(|storage| heap.release(storage));
                        open = (unit, whole(heap, unit));
                    }
                    push(heap, event);
                }
            }
        }
        open.1.drain(..).for_each(|storage| heap.release(storage));
        for (index, events) in late.into_iter().enumerate() {
            let own = whole(heap, layers + index);
            events.into_iter().for_each(|event| push(heap, event));
            own.into_iter().for_each(|storage| heap.release(storage));
        }
    }

    /// The same where shards go back to the CPU.
    fn pass_through(&self, heap: &mut Heap, params: &Params) {
        for unit in &self.units {
            let own = || unit.params.iter().map(|id| params.get(*id).kept);
            let mut loaded: Vec<StorageId> = own()
                .map(|kept| heap.while_loading(kept.numel.saturating_mul(self.world), kept.dtype))
                .collect();
            for kept in own() {
                let shard = heap.while_loading(kept.numel, kept.dtype);
                heap.release(shard);
            }
            loaded.drain(..).for_each(|storage| heap.release(storage));
        }
    }
}
