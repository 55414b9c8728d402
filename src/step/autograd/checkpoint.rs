//! Checkpointed layers: what their nodes would have saved is dropped, and comes back when they run again.
//!
//! Source: torch/utils/checkpoint.py.

use std::collections::VecDeque;

use super::{Graph, Node};
use crate::step::heap::{NOTHING, StorageId};
use crate::step::machine::{Machine, State};
use crate::step::params::ParamId;
use crate::step::tensor::{Tensor, Value};

/// The most arguments of a checkpointed layer.
pub(in crate::step) const HELD: usize = 6;

/// A checkpointed layer (torch.utils.checkpoint's `_CheckpointFrame`).
#[derive(Debug)]
pub(in crate::step) struct Frame {
    /// Saved variables that its forward would have kept.
    pub(super) slots: u32,
    /// The recomputed ones.
    pub(super) recomputed: Vec<StorageId>,
    /// Whether it was recomputed.
    pub(super) done: bool,
    /// Nodes that have not released their slots yet; where checkpointing is reentrant, those that have not run.
    pub(super) nodes: u32,
    /// The layer's input.
    pub(super) input: Value,
    /// The layer's arguments, kept until the last of those nodes is through: `input` and what all layers share.
    pub(super) held: [StorageId; HELD],
    /// Which layer it is.
    pub(super) layer: usize,
    /// The input's number where it waits in the CPU's memory.
    pub(super) packed: Option<u32>,
    /// Where checkpointing is by operation: what each operation made that is not run again, in their order.
    pub(super) made: VecDeque<Vec<StorageId>>,
    /// Where checkpointing is reentrant: what the recomputation returned and the gradients that it was given, variables of
    /// the function that runs both.
    pub(super) kept: Vec<StorageId>,
    /// Where checkpointing is reentrant: outputs beside the layer's result. The function that runs the layer again holds their
    /// gradients too, which autograd makes of zeros where nobody used the output.
    pub(super) returned: Vec<Value>,
    /// Where checkpointing is reentrant: arguments that the layer is given by name. They are attributes of the function that
    /// runs it again, which stay as long as the graph does.
    pub(super) named: Vec<StorageId>,
    /// Where checkpointing is reentrant: parameters as often as the layer uses them. The function that runs it again goes backward
    /// by itself, so that they get their gradients at its end, whoever else uses them.
    pub(super) expects: Vec<ParamId>,
    /// Where checkpointing is reentrant: leaves that the layer made, which go with the function that ran it again.
    pub(super) leaves: Vec<ParamId>,
}

impl Graph {
    /// The layer whose first pass runs, where checkpointing is reentrant.
    pub(super) fn reentrant_frame(&mut self) -> Option<&mut Frame> {
        let frame = (self.recording as usize).checked_sub(1).filter(|_| self.reentrant)?;
        self.frames.get_mut(frame)
    }

    /// Whether what runs is kept by nobody: the first pass of a layer whose checkpoint is reentrant, or one without gradients.
    pub fn keeps_nothing(&self) -> bool {
        !self.enabled || self.recording != 0 && self.reentrant
    }

    /// Where the parameters are noted whose gradients the running layer's own function gives them.
    pub(super) fn expects_in_frame(&mut self) -> Option<&mut Vec<ParamId>> {
        self.reentrant_frame().map(|frame| &mut frame.expects)
    }

    /// Whether the function of a reentrant checkpoint that runs was given that storage, which it detaches before it runs the
    /// layer again: a leaf.
    pub fn gives_leaf(&self, storage: StorageId) -> bool {
        let running = if self.recomputing != 0 { self.recomputing } else { self.recording };
        let frame = (running as usize).checked_sub(1).filter(|_| self.reentrant);
        frame.and_then(|frame| self.frames.get(frame)).is_some_and(|frame| frame.held.contains(&storage))
    }

    /// Notes which of the running layer's arguments beside its input it is given by name, by their place among them.
    pub fn note_named(&mut self, by_name: impl Fn(usize) -> bool) {
        let Some(frame) = self.reentrant_frame() else { return };
        let [shared @ .., _] = &mut frame.held;
        for (_, argument) in shared.iter_mut().enumerate().filter(|(place, _)| by_name(*place)) {
            frame.named.push(std::mem::replace(argument, NOTHING));
        }
    }

    /// Notes a leaf that the running layer makes; whether it goes with that layer's frame.
    pub fn note_leaf(&mut self, leaf: ParamId) -> bool {
        let frame = self.reentrant_frame();
        let belongs = frame.is_some();
        if let Some(frame) = frame {
            frame.leaves.push(leaf);
        }
        belongs
    }
}

impl State {
    /// Notes what the running checkpointed layer returns beside its result.
    pub fn note_returned(&mut self, value: &Value) {
        let frame = self.graph.reentrant_frame().filter(|_| value.requires_grad());
        if let Some(frame) = frame {
            frame.returned.push(*value);
        }
    }

    /// Keeps what the running recomputation returned until the layer's backward is through, where checkpointing is reentrant.
    pub fn keep_output(&mut self, storage: StorageId) {
        let frame = (self.graph.recomputing as usize).checked_sub(1).filter(|_| self.graph.reentrant);
        if let Some(frame) = frame {
            self.retain(storage);
            self.graph.frames[frame].kept.push(storage);
        }
    }

    /// Lets go of the arguments of the checkpointed layer that a node belongs to: the node has taken all that the layer saved.
    pub fn drop_arguments(&mut self, node: &Node) {
        let Some(frame) = (node.frame as usize).checked_sub(1) else { return };
        let held = std::mem::replace(&mut self.graph.frames[frame].held, [NOTHING; HELD]);
        held.into_iter().for_each(|storage| self.release(storage));
    }

    /// Variables that the running recomputation has saved so far: none outside of one whose graph stays.
    pub fn recomputed(&self) -> &[StorageId] {
        let frame = (self.graph.recomputing as usize).checked_sub(1).filter(|_| !self.graph.reentrant);
        frame.and_then(|frame| self.graph.frames.get(frame)).map_or(&[], |frame| &frame.recomputed)
    }
}

impl State {
    /// An operation begins whose results a checkpointed layer keeps.
    pub fn begin_kept(&mut self) {
        match (self.graph.recording, self.graph.recomputing) {
            (_, again @ 1..) => {
                let made = self.graph.frames[again as usize - 1].made.pop_front();
                self.heap.handed = Some(made.unwrap_or_default().into());
            }
            (1.., _) => self.heap.noted = Some(Vec::new()),
            (0, 0) => {}
        }
    }

    /// It is over.
    pub fn end_kept(&mut self) {
        self.heap.handed = None;
        let Some(mut made) = self.heap.noted.take() else { return };
        // its scratch is gone by now
        for (storage, is_saved) in &mut made {
            match self.heap.storages[*storage as usize].references {
                0 => *storage = NOTHING,
                _ if *is_saved => {}
                _ => self.heap.retain(*storage),
            }
        }
        let made = made.into_iter().map(|(storage, _)| storage).collect();
        let frame = self.graph.recording as usize - 1;
        self.graph.frames[frame].made.push_back(made);
    }
}

impl Machine {
    /// Runs `body`, the forward of layer `layer`, checkpointed (use_reentrant=False): what it saves is dropped and comes
    /// back through [`Machine::backward`]'s `recompute`.
    pub fn checkpointed<'m>(
        &'m self,
        layer: usize,
        input: &Tensor<'m>,
        shared: [StorageId; HELD - 1],
        body: impl FnOnce() -> Tensor<'m>,
    ) -> Tensor<'m> {
        self.checkpointed_from(layer, input.value, shared, body)
    }

    /// Runs an operation that a checkpointed layer does not run again (`create_selective_checkpoint_contexts`): what it makes stays until the
    /// layer runs again, which is handed it.
    pub fn kept_operation<R>(&self, operation: impl FnOnce() -> R) -> R {
        self.with(State::begin_kept);
        let result = operation();
        self.with(State::end_kept);
        result
    }

    /// The same with what will be the layer's input when it is recomputed.
    pub fn checkpointed_from<'m>(
        &'m self,
        layer: usize,
        input: Value,
        shared: [StorageId; HELD - 1],
        body: impl FnOnce() -> Tensor<'m>,
    ) -> Tensor<'m> {
        self.with(|state| {
            let mut held = [input.storage; HELD];
            held[..HELD - 1].copy_from_slice(&shared);
            let packed = if state.graph.offload.is_some() { state.pack_input(&input) } else { None };
            if packed.is_some() {
                held[HELD - 1] = NOTHING;
            }
            held.into_iter().for_each(|storage| state.retain(storage));
            let frame = Frame {
                slots: 0,
                recomputed: Vec::new(),
                done: false,
                nodes: 0,
                input,
                held,
                layer,
                packed,
                made: VecDeque::new(),
                kept: Vec::new(),
                returned: Vec::new(),
                named: Vec::new(),
                expects: Vec::new(),
                leaves: Vec::new(),
            };
            state.graph.frames.push(frame);
            state.graph.recording = state.graph.frames.len() as u32;
        });
        let output = body();
        self.with(|state| {
            let index = std::mem::replace(&mut state.graph.recording, 0) as usize - 1;
            // A layer through which no gradient flows saves nothing, not even its arguments.
            if state.graph.frames[index].nodes == 0 {
                let frame = &mut state.graph.frames[index];
                let (held, named) = (std::mem::take(&mut frame.held), std::mem::take(&mut frame.named));
                held.into_iter().chain(named).for_each(|storage| state.release(storage));
            }
        });
        output
    }
}
