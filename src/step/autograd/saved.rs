//! What nodes save for their backward, and what they hold beside it.
//!
//! Sources: torch/csrc/autograd/{saved_variable.cpp,function.h}.

use super::{Node, NodeRef};
use crate::step::heap::{NOTHING, StorageId};
use crate::step::machine::State;
use crate::step::tensor::Value;

/// A saved variable.
#[derive(Clone, Copy, Debug)]
pub(super) enum Saved {
    /// Kept alive.
    Storage(StorageId),
    /// Dropped by checkpointing; comes back as this entry of [`Frame::recomputed`] of the node's frame.
    Slot(u32),
    /// Waits in the CPU's memory.
    Packed(u32),
    /// Stays where it is, known to the hooks that move others.
    Tracked(StorageId),
}

impl State {
    /// Saves a storage for the node's backward; [`NOTHING`] for something that is saved but takes no memory of its own
    /// (a parameter, a scalar), which counts where checkpointing counts saved variables.
    pub fn save(&mut self, node: NodeRef, storage: StorageId) {
        self.save_value(node, storage, None);
    }

    /// The same of a tensor that need not be all of its storage, nor dense.
    pub fn save_view(&mut self, node: NodeRef, value: &Value) {
        self.save_value(node, value.storage, Some(value));
    }

    fn save_value(&mut self, node: NodeRef, storage: StorageId, value: Option<&Value>) {
        if node == NodeRef::NONE || self.stopped {
            return;
        }
        if self.graph.recomputing != 0 {
            self.retain(storage);
            let graph = &mut self.graph;
            let frame = &mut graph.frames[graph.recomputing as usize - 1];
            frame.recomputed.push(storage);
            if frame.recomputed.len() as u32 == frame.slots && !graph.reentrant && !graph.runs_whole {
                self.heap.stopped = true;
            }
            return;
        }
        self.heap.keep_noted(storage);
        let graph = &mut self.graph;
        let first = {
            let saved = graph.nodes[node.0 as usize].saved;
            saved.0 == saved.1
        };
        let entry = if graph.recording != 0 {
            let frame = &mut graph.frames[graph.recording as usize - 1];
            frame.slots += 1;
            frame.nodes += u32::from(first && !graph.reentrant);
            Saved::Slot(frame.slots - 1)
        } else if graph.offload.is_some() {
            let whole = self.storages[storage as usize];
            let dense = Value::plain(storage, whole.requested / whole.dtype.bytes().max(1), whole.dtype);
            self.pack(value.unwrap_or(&dense))
        } else {
            self.retain(storage);
            Saved::Storage(storage)
        };
        let graph = &mut self.graph;
        graph.saved.push(entry);
        let last = &mut graph.nodes[node.0 as usize];
        last.saved.1 = graph.saved.len() as u32;
    }

    /// Keeps a storage as an attribute of the node (`ctx.tensors = …` instead of `ctx.save_for_backward`): neither
    /// checkpointing nor the end of the node's backward lets go of it.
    pub fn hold(&mut self, node: NodeRef, storage: StorageId) {
        let graph = &self.graph;
        let discarded = graph.recomputing != 0 || graph.recording != 0 && graph.reentrant;
        if node != NodeRef::NONE && !discarded && storage != NOTHING {
            self.retain(storage);
            self.graph.held.push(storage);
        }
    }

    /// Holds what so many `more` runs of a body were given, if a node of the one that ran holds what that one was given;
    /// it is there already. Returns what stands for it.
    pub fn hold_again(&mut self, since: usize, given: StorageId, more: u32) -> Option<StorageId> {
        if !self.graph.held.get(since..).is_some_and(|held| held.contains(&given)) {
            return None;
        }
        let theirs = self.stand_in_of_runs(given, more);
        self.graph.held.push(theirs);
        Some(theirs)
    }

    /// What stands for the storages of so many `more` runs of a body that are like one of the run that ran; they are there already.
    pub fn stand_in_of_runs(&mut self, own: StorageId, more: u32) -> StorageId {
        let times = self.repeating.saturating_mul(more);
        self.heap.stand_in(own, times)
    }

    /// Lets go of what a checkpoint gave a Python function for the tensors that it had saved: they are locals of its backward, which go
    /// with it, in the order of these entries. What autograd keeps itself stays until the node is through.
    pub fn clear_locals(&mut self, node: &Node, entries: impl IntoIterator<Item = u32>) {
        if node.frame != 0 && !self.graph.reentrant {
            for index in entries {
                self.clear_saved(node, index);
            }
        }
    }

    /// Lets go of entry `index` of what the node saved before its backward is through (`clear_tensor_data`).
    pub fn clear_saved(&mut self, node: &Node, index: u32) {
        let storage = self.saved(node, index);
        let graph = &mut self.graph;
        match graph.saved.get_mut((node.saved.0 + index) as usize) {
            Some(saved @ Saved::Storage(_)) => *saved = Saved::Storage(NOTHING),
            Some(Saved::Slot(slot)) => {
                let frame = &mut graph.frames[node.frame as usize - 1];
                if let Some(recomputed) = frame.recomputed.get_mut(*slot as usize) {
                    *recomputed = NOTHING;
                }
            }
            // what waits elsewhere goes when the backward is through
            Some(Saved::Packed(_) | Saved::Tracked(_)) | None => return,
        }
        self.release(storage);
    }

    /// The storage behind entry `index` of what the node saved.
    pub fn saved(&self, node: &Node, index: u32) -> StorageId {
        match self.graph.saved.get((node.saved.0 + index) as usize) {
            Some(Saved::Storage(storage) | Saved::Tracked(storage)) => *storage,
            Some(Saved::Packed(index)) => self.unpacked(*index),
            Some(Saved::Slot(slot)) => {
                let frame = &self.graph.frames[node.frame as usize - 1];
                frame.recomputed.get(*slot as usize).copied().unwrap_or(NOTHING)
            }
            None => NOTHING,
        }
    }
}
