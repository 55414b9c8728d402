//! Saved variables that wait in the CPU's memory.
//!
//! Source: trl 1.16, trl/models/activation_offloading.py, `OffloadActivations` with streams: hooks that every saved variable
//! goes through on its way into the graph and out of it. A copy of it goes to the CPU while the original stays for the next
//! few; it comes back, on the stream of the copies, when its node runs, and stays until the next node's are through.

use std::collections::VecDeque;

use super::super::heap::{NOTHING, StorageId};
use super::super::machine::State;
use super::super::tensor::{Layout, Value};
use super::Node;
use super::saved::Saved;
use crate::allocator::Stream;
use crate::dtype::Dtype;
use crate::memory::Category;
use crate::step::what::{OFFLOADING, What, torch};

static FROM_CPU: What = What::own(
    "copy from the CPU",
    "a saved variable that came back for its operation's backward, and the one before it",
    OFFLOADING,
);

/// Tensors of fewer bytes stay (`min_offload_size`).
const SMALLEST: u64 = 1024;
/// How many saved variables later the original goes (`max_fwd_stash_size`).
const STASHED: u32 = 5;

/// A variable in the CPU's memory.
#[derive(Clone, Copy, Debug)]
struct Packed {
    /// How many variables were saved before it, and it.
    number: u32,
    bytes: u64,
    dtype: Dtype,
    /// Where it was.
    from: StorageId,
    /// Where it is while its node runs.
    back: StorageId,
}

/// What the hooks know.
#[derive(Debug, Default)]
pub(in crate::step) struct Offload {
    /// Whether variables are saved as ever: the output head's are.
    pub exempt: bool,
    /// Whether a variable that is saved again goes again: torchtune 0.6.1's hooks, of which trl's were made, keep no record.
    pub forgetful: bool,
    /// The batch's token ids, which are saved like anything else.
    pub ids: StorageId,
    /// Bytes in the CPU's memory, and the most of them.
    pub bytes: (u64, u64),
    saved: u32,
    packed: Vec<Packed>,
    /// Originals whose copies may still be under way, with their numbers.
    stash: VecDeque<(u32, StorageId)>,
    /// What is known to be on its way, by storage and element type: further variables of it stay.
    tracked: Vec<((StorageId, Dtype), u32)>,
    /// What came back and is still there, the running node's last.
    back: Vec<StorageId>,
    /// What the last node that brought variables back leads to: the hooks remember that node (`curr_autograd_node`) until
    /// the next backward.
    pub reached: Vec<StorageId>,
    /// How many of [`Offload::back`] the nodes before the running one left; none where the running one brought nothing back.
    left: Option<usize>,
}

impl State {
    /// `pack_tensor`: what the graph saves for a variable, with a reference.
    pub(super) fn pack(&mut self, value: &Value) -> Saved {
        let Some(mut offload) = self.graph.offload.take() else {
            self.retain(value.storage);
            return Saved::Storage(value.storage);
        };
        let moves = !offload.exempt;
        let packed = if moves { self.pack_with(&mut offload, value) } else { None };
        self.graph.offload = Some(offload);
        match packed {
            Some(index) => Saved::Packed(index),
            None => {
                self.retain(value.storage);
                if moves { Saved::Tracked(value.storage) } else { Saved::Storage(value.storage) }
            }
        }
    }

    /// The same for the input of a checkpointed layer; its number where it goes to the CPU.
    pub(super) fn pack_input(&mut self, input: &Value) -> Option<u32> {
        // `_NoopSaveInputs` saves an empty tensor first
        self.pack(&Value::plain(NOTHING, 0, Dtype::F32));
        match self.pack(input) {
            Saved::Packed(index) => Some(index),
            Saved::Storage(storage) | Saved::Tracked(storage) => {
                self.release(storage);
                None
            }
            Saved::Slot(_) => None,
        }
    }

    fn pack_with(&mut self, offload: &mut Offload, value: &Value) -> Option<u32> {
        offload.saved += 1;
        let number = offload.saved;
        if value.storage == NOTHING {
            return None;
        }
        let broadcast = value.layout == Layout::Expanded;
        let whole = self.storages[value.storage as usize].requested;
        let bytes = if broadcast { whole } else { value.bytes() };
        // a slice has a key of its own
        let dense = bytes == whole;
        let key = (dense && !offload.forgetful).then_some((value.storage, value.dtype));
        if let Some(tracked) = offload.tracked.iter_mut().find(|(other, _)| key == Some(*other)) {
            tracked.1 = number;
            return None;
        }
        if value.bytes() < SMALLEST {
            return None;
        }
        // the copy to the CPU is made of dense memory
        let storage = if broadcast || value.layout == value.dense_layout() && dense {
            self.retain(value.storage);
            value.storage
        } else {
            self.alloc_for(value.storage, value.numel, value.dtype, &torch::CONTIGUOUS)
        };
        while let Some((old, storage)) =
            offload.stash.front().copied().filter(|(old, _)| *old + STASHED <= number)
        {
            offload.stash.pop_front();
            offload.tracked.retain(|(_, last)| *last != old);
            self.release(storage);
        }
        offload.stash.push_back((number, storage));
        offload.tracked.extend(key.map(|key| (key, number)));
        offload.bytes.0 = offload.bytes.0.saturating_add(bytes);
        offload.bytes.1 = offload.bytes.1.max(offload.bytes.0);
        offload.packed.push(Packed { number, bytes, dtype: value.dtype, from: value.storage, back: NOTHING });
        Some(offload.packed.len() as u32 - 1)
    }

    /// `unpack_tensor_with_streams`: brings a variable back; the caller has a reference to give back.
    pub(super) fn unpack(&mut self, index: u32) -> StorageId {
        let Some(mut offload) = self.graph.offload.take() else { return NOTHING };
        let mut storage = NOTHING;
        offload.reached.drain(..).for_each(|storage| self.release(storage));
        if let Some(packed) = offload.packed.get_mut(index as usize) {
            offload.left.get_or_insert(offload.back.len());
            let stashed = offload.stash.iter().find(|(number, _)| *number == packed.number);
            storage = match stashed {
                Some((_, storage)) => *storage,
                None => {
                    let (bytes, dtype) = (packed.bytes, packed.dtype);
                    let back = self.alloc_on(Stream::Copies, Category::Temporaries, bytes, dtype, &FROM_CPU);
                    self.take_dims(back, packed.from);
                    offload.back.push(back);
                    back
                }
            };
            self.retain(storage);
            packed.back = storage;
            offload.bytes.0 = offload.bytes.0.saturating_sub(packed.bytes);
        }
        self.graph.offload = Some(offload);
        storage
    }

    /// Brings back what a node saved.
    pub(super) fn unpack_saved(&mut self, node: &mut Node) {
        for entry in node.saved.0..node.saved.1 {
            if let Some(Saved::Packed(index)) = self.graph.saved.get(entry as usize).copied() {
                self.unpack(index);
                node.brought_back = true;
            }
        }
    }

    /// Where a variable is that came back.
    pub(super) fn unpacked(&self, index: u32) -> StorageId {
        let offload = self.graph.offload.as_ref();
        offload.and_then(|offload| offload.packed.get(index as usize)).map_or(NOTHING, |packed| packed.back)
    }

    /// The hook after a node that brought variables back: originals are let go of, and what earlier nodes left.
    pub(super) fn after_node(&mut self) {
        let Some(mut offload) = self.graph.offload.take() else { return };
        if let Some(left) = offload.left.take() {
            let own = offload.back.split_off(left.min(offload.back.len()));
            // what others hold too is left to them
            let (shared, own): (Vec<_>, Vec<_>) =
                own.into_iter().partition(|storage| self.references(*storage) > 1);
            shared.into_iter().for_each(|storage| self.release(storage));
            offload.stash.drain(..).for_each(|(_, storage)| self.release(storage));
            std::mem::replace(&mut offload.back, own).into_iter().for_each(|storage| self.release(storage));
        }
        self.graph.offload = Some(offload);
    }

    /// The end of backward, and of trl's context around the micro-batch.
    pub(super) fn end_offload(&mut self) {
        let Some(mut offload) = self.graph.offload.take() else { return };
        offload.back.drain(..).for_each(|storage| self.release(storage));
        offload.stash.drain(..).for_each(|(_, storage)| self.release(storage));
        let most = offload.bytes.1;
        self.graph.offload = Some(Box::new(Offload { bytes: (0, most), ..Offload::default() }));
    }
}
