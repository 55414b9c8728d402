//! Autograd's engine: walks the graph of [`super`] backwards.
//!
//! Source of the order of events: torch/csrc/autograd/engine.cpp. Nodes run by descending sequence number (each node's
//! consumers are younger, so the youngest unprocessed node is always ready); a node's gradient is freed after its
//! function returns, its saved variables after that; an incoming gradient is added in place only where the one that
//! waits is its storage's sole owner and no view; a parameter steals the first gradient that it is given.

use std::ops::Range;

use super::derivative::{Derivative, validate};
use super::saved::Saved;
use super::{Edge, Frame, Grad, INPUTS, Node, Repeated};
use crate::memory::Category;
use crate::step::heap::{NOTHING, Repeat, StorageId};
use crate::step::machine::{Machine, State};
use crate::step::tensor::{Layout, Tensor, Value};
use crate::step::what::{ENGINE, What, roles, torch};

static GRADIENT_SUM: What =
    What::own("gradient sum", "the sum of two gradients of one tensor, made beside both", ENGINE);

impl State {
    /// Hands a gradient to an edge; takes over its reference.
    pub fn give(&mut self, edge: Edge, grad: Grad) {
        match edge {
            Edge::None | Edge::Frozen(_) => self.release(grad.storage),
            Edge::Param(param) => {
                // a tied weight's gradients are summed before the parameter gets them
                let index = param as usize;
                if self.params.list[index].trainable {
                    let dims = self.params.list[index].dims();
                    self.note_dims(grad.storage, dims);
                }
                let sum = match self.params.list[index].waiting.take() {
                    None => grad,
                    // those of a DTensor are added beside both, whoever owns them
                    Some(waiting) if self.parallel.has_dtensors() => {
                        self.sum(Grad { view: true, ..waiting }, grad, Category::Temporaries)
                    }
                    Some(waiting) => self.sum(waiting, grad, Category::Temporaries),
                };
                let parameter = &mut self.params.list[index];
                parameter.expected = parameter.expected.saturating_sub(1);
                if parameter.expected > 0 {
                    parameter.waiting = Some(sum);
                } else {
                    self.accumulate(param, sum);
                }
            }
            Edge::Node { node, output } => {
                let Node { category, pending, beside, .. } = self.graph.nodes[node as usize];
                let index = pending as usize + usize::from(output);
                let sum = match self.graph.pending[index] {
                    None => grad,
                    Some(waiting) => {
                        let waiting = Grad { view: waiting.view || beside, ..waiting };
                        self.sum(waiting, grad, category)
                    }
                };
                // the hidden state's gradient leaves the head
                self.leave_loss(sum.storage, category);
                self.graph.pending[index] = Some(sum);
            }
        }
    }

    /// torch/csrc/autograd/input_buffer.cpp `accumulate`.
    fn sum(&mut self, old: Grad, grad: Grad, category: Category) -> Grad {
        if self.references(old.storage) == 1 && !old.view {
            self.release(grad.storage);
            return old;
        }
        let bytes = old.numel.saturating_mul(old.dtype.bytes());
        let storage = self.alloc_as(category, bytes, old.dtype, &GRADIENT_SUM);
        self.take_dims(storage, old.storage);
        self.release(old.storage);
        self.release(grad.storage);
        Grad { storage, view: false, ..old }
    }

    /// torch/csrc/autograd/functions/accumulate_grad.cpp `apply`: the first gradient is stolen, later ones are added in place
    /// and go once the hooks have run.
    fn accumulate(&mut self, param: u32, grad: Grad) {
        let parameter = &mut self.params.list[param as usize];
        let trainable = parameter.trainable;
        let is_first = parameter.grad == NOTHING;
        if is_first {
            parameter.grad = grad.storage;
        }
        // the gradient of a leaf that is no parameter stays what the layers pass on to each other
        if trainable {
            if is_first {
                self.recategorise(grad.storage, Category::Gradients);
            }
            self.deliver(param);
        }
        if !is_first {
            self.release(grad.storage);
        }
    }

    /// Runs the backward of a node, the youngest of those that did not run. The function that runs a layer again returns
    /// once its last node has passed on what it gives.
    fn run(&mut self, index: u32) {
        self.run_node(index);
        if self.graph.reentrant {
            let node = self.graph.nodes[index as usize];
            self.leave_frame(&node);
        }
    }

    /// Runs the nodes of `left`, from the youngest on, up to one that wants variables of a layer that has to run again first:
    /// the frame of that layer. `running` are the bodies that run on behalf of others.
    fn run_up_to_frame(
        &mut self,
        left: &mut Range<u32>,
        running: &mut Vec<(Repeated, Repeat)>,
    ) -> Option<usize> {
        while let Some(index) = left.clone().next_back() {
            while let Some(repeated) = self.graph.repeats.pop_if(|repeat| repeat.end == index + 1) {
                running.push((repeated, self.begin_repeat(repeated.times)));
            }
            let frame = self.frame_wanted(index);
            if frame.is_some() {
                return frame;
            }
            self.run(index);
            while let Some((repeated, repeat)) = running.pop_if(|(repeated, _)| repeated.first == index) {
                self.end_repeat(repeat, (Category::Temporaries, 0));
                self.pass_on(repeated.first);
            }
            left.end = index;
        }
        None
    }

    /// The frame of the layer that has to run again before a node does.
    fn frame_wanted(&self, index: u32) -> Option<usize> {
        let node = &self.graph.nodes[index as usize];
        let number = (node.frame as usize).checked_sub(1)?;
        let frame = &self.graph.frames[number];
        // the reentrant one is a function of its own, which comes before the layer's
        let wanted = node.saved.0 < node.saved.1 || self.graph.reentrant && frame.nodes > 0;
        (wanted && !frame.done).then_some(number)
    }

    fn run_node(&mut self, index: u32) {
        let range = self.graph.pending_of(index);
        let mut node = self.graph.nodes[index as usize];
        let derivative = match self.graph.derivatives.pop() {
            None => return,
            Some(Derivative::Join) => return self.join_chunks(&node, range),
            Some(Derivative::Fan(edges)) => return self.fan_out(&node, edges),
            Some(Derivative::Own(derivative)) => derivative,
        };
        let mut grads = [None; INPUTS];
        for (grad, pending) in grads.iter_mut().zip(&mut self.graph.pending[range]) {
            *grad = pending.take();
        }
        if grads.iter().any(Option::is_some) {
            let hooked = self.graph.offload.is_some();
            if hooked {
                self.unpack_saved(&mut node);
            }
            let outer = std::mem::replace(&mut self.category, node.category);
            (self.module, self.layer, self.role) = (node.module, node.layer, node.role);
            let weights = self.weights_of(&node);
            let mut results = derivative.run(self, &node, &mut grads);
            weights.iter().for_each(|weight| self.release(*weight));
            // a variable that hooks give is a local of the function: it goes before the function's arguments do
            let reentrant = self.graph.reentrant;
            let saves = node.saved.0 < node.saved.1;
            if saves && (hooked || node.frame != 0 && !reentrant) {
                self.release_saved(&node, true);
            }
            validate(self, &node, &mut results);
            (self.module, self.layer, self.role) = ("", 0, &roles::RESIDUAL);
            self.category = outer;
            if hooked {
                self.after_node();
            }
            for grad in grads.iter().flatten() {
                self.release(grad.storage);
            }
            if saves && (node.frame == 0 || reentrant) {
                self.release_saved(&node, false);
            }
            if !reentrant {
                self.leave_frame(&node);
            }
            for (input, result) in node.inputs.iter().zip(&results) {
                if let Some(grad) = result {
                    self.give(input.edge, *grad);
                }
            }
            for (edge, grad) in std::mem::take(&mut self.graph.beyond) {
                self.give(edge, grad);
            }
        } else {
            self.release_saved(&node, true);
            self.release_saved(&node, false);
            if !self.graph.reentrant {
                self.leave_frame(&node);
            }
        }
    }

    /// The parameters among a node's inputs, which its derivative reads: they come through the door for weights, as they do
    /// in the forward pass.
    fn weights_of(&mut self, node: &Node) -> [StorageId; INPUTS] {
        let mut weights = [NOTHING; INPUTS];
        for (weight, input) in weights.iter_mut().zip(&node.inputs) {
            *weight = match input.edge {
                Edge::Param(id) | Edge::Frozen(id) if !self.params.is_leaf(id) => self.weight(id).storage,
                Edge::Param(_) | Edge::Frozen(_) | Edge::Node { .. } | Edge::None => NOTHING,
            };
        }
        weights
    }

    /// SplitBackward: the gradients of all chunks are joined into the whole's.
    fn join_chunks(&mut self, node: &Node, range: Range<usize>) {
        let grads: Vec<Grad> = self.graph.pending[range].iter_mut().filter_map(Option::take).collect();
        let Some(first) = grads.first() else { return };
        let whole = node.inputs[0];
        let bytes = whole.numel.saturating_mul(first.dtype.bytes());
        let storage = self.alloc_as(node.category, bytes, first.dtype, &torch::CAT);
        self.take_dims(storage, first.storage);
        let joined = Grad::new(storage, whole.numel, first.dtype, whole.shape);
        grads.into_iter().for_each(|grad| self.release(grad.storage));
        self.give(whole.edge, joined);
    }

    /// StackBackward: each chunk is given a view of the gradient.
    fn fan_out(&mut self, node: &Node, edges: Vec<(Edge, u64)>) {
        let Some(grad) = self.graph.pending.get_mut(node.pending as usize).and_then(Option::take) else {
            return;
        };
        for (edge, numel) in edges {
            self.retain(grad.storage);
            self.give(edge, Grad { numel, view: true, ..grad });
        }
        self.release(grad.storage);
    }

    /// Lets go of what a node saved: of the locals that hooks gave it, from the last to the first, or of its own variables.
    pub(super) fn release_saved(&mut self, node: &Node, locals: bool) {
        let count = node.saved.1 - node.saved.0;
        for index in 0..count {
            let index = if locals { count - 1 - index } else { index };
            let is_local = match self.graph.saved[(node.saved.0 + index) as usize] {
                Saved::Storage(_) => false,
                Saved::Slot(_) => !self.graph.reentrant,
                Saved::Packed(_) | Saved::Tracked(_) => true,
            };
            if is_local == locals {
                let storage = self.saved(node, index);
                self.release(storage);
            }
        }
    }

    /// Keeps the gradients that a checkpointed layer is given until its backward is through.
    fn keep_gradients(&mut self, frame: usize, node: u32) {
        let range = self.graph.pending_of(node);
        for storage in self.graph.pending[range].iter().flatten().map(|grad| grad.storage).collect::<Vec<_>>()
        {
            self.retain(storage);
            self.graph.frames[frame].kept.push(storage);
        }
    }

    /// The function's arguments hold the gradients of outputs beside the layer's result. That of an output that nobody used
    /// is a tensor of zeros (`materialize_grads` of torch.autograd.Function).
    fn keep_returned(&mut self, frame: usize) {
        for value in std::mem::take(&mut self.graph.frames[frame].returned) {
            let storage = match self.waiting(value.edge) {
                Some(waiting) => {
                    self.retain(waiting.storage);
                    waiting.storage
                }
                None => {
                    let zeros = self.alloc_for(value.storage, value.numel, value.dtype, &torch::ZEROS);
                    self.retain(zeros);
                    self.expect_gradient(Some(value));
                    self.give(value.edge, Grad::new(zeros, value.numel, value.dtype, value.layout));
                    zeros
                }
            };
            self.graph.frames[frame].kept.push(storage);
        }
    }

    /// The gradient that waits at an edge.
    fn waiting(&self, edge: Edge) -> Option<Grad> {
        match edge {
            Edge::None | Edge::Frozen(_) => None,
            Edge::Param(param) => self.params.list[param as usize].waiting,
            Edge::Node { node, output } => {
                self.graph.pending[self.graph.pending_of(node).start + usize::from(output)]
            }
        }
    }

    /// The last node of a frame that saved anything, where checkpointing is reentrant the last of all, lets go of what the
    /// frame holds.
    pub(super) fn leave_frame(&mut self, node: &Node) {
        if node.frame != 0 && (self.graph.reentrant || node.saved.0 < node.saved.1) {
            self.count_down(node.frame);
        }
    }

    /// One node fewer is left of those that need a frame, by its number.
    fn count_down(&mut self, number: u32) {
        let frame = &mut self.graph.frames[number as usize - 1];
        frame.nodes -= 1;
        if frame.nodes == 0 {
            let (held, kept) = (std::mem::take(&mut frame.held), std::mem::take(&mut frame.kept));
            let leaves = std::mem::take(&mut frame.leaves);
            let (layer, input) = (frame.layer, frame.input);
            if self.graph.reentrant {
                let gradient = self.waiting(input.edge).map_or(NOTHING, |grad| grad.storage);
                self.hold_leaf(layer, [input.storage, gradient]);
            }
            let frame = &mut self.graph.frames[number as usize - 1];
            // masks, positions, then cosines and sines
            self.graph.held.extend(frame.named.drain(..).rev());
            kept.into_iter().chain(held).for_each(|storage| self.release(storage));
            for leaf in leaves {
                let grad = std::mem::replace(&mut self.params.list[leaf as usize].grad, NOTHING);
                self.release(grad);
            }
            // a tower's layers may come before the text's first
            if self.graph.frames[number as usize - 1].layer == 0 {
                if self.graph.reentrant {
                    // its function has what layers left for later ones as long as the graph is there
                    let left = std::mem::take(&mut self.graph.left);
                    self.graph.held.extend(left.into_iter().flatten());
                } else {
                    self.drop_left();
                }
            }
        }
    }

    /// Gradients that wait for nodes older than `first`, or came to the leaf that all layers begin with, leave a repeated
    /// body: they count once.
    fn pass_on(&mut self, first: u32) {
        let end = self.graph.nodes.get(first as usize).map_or(0, |node| node.pending as usize);
        let waiting = self.graph.pending[..end].iter().flatten();
        let at_leaves = self.params.leaves().iter().flat_map(|leaf| {
            let waiting = leaf.waiting.map_or(NOTHING, |grad| grad.storage);
            [leaf.grad, waiting]
        });
        for storage in waiting.map(|grad| grad.storage).chain(at_leaves).chain(self.parallel.carried()) {
            self.heap.counts_once(storage);
        }
    }
}

impl Machine {
    /// Walks the graph backwards from `loss`. Where a checkpointed layer is reached, `recompute` runs its forward once
    /// more: it is given the layer and its input.
    pub fn backward<'m>(&'m self, loss: Tensor<'m>, recompute: &dyn Fn(usize, Tensor<'m>)) {
        self.backward_from(&loss, None, recompute);
        drop(loss);
    }

    /// The same from any tensor; from one that is no loss its gradient is given.
    pub fn backward_from<'m>(
        &'m self,
        from: &Tensor<'m>,
        given: Option<&Tensor<'m>>,
        recompute: &dyn Fn(usize, Tensor<'m>),
    ) {
        let Edge::Node { node: last, output } = from.value.edge else { return };
        self.with(|state| {
            state.in_backward = true;
            state.graph.derivatives.truncate(last as usize + 1);
            let Value { numel, dtype, .. } = from.value;
            let storage = match given {
                Some(given) => {
                    state.retain(given.value.storage);
                    given.value.storage
                }
                None => state.alloc_as(Category::Temporaries, from.value.bytes(), dtype, &torch::ONES),
            };
            let seed = Grad::new(storage, numel, dtype, Layout::Tokens);
            state.give(Edge::Node { node: last, output }, seed);
        });
        let (mut left, mut running) = (0..last + 1, Vec::new());
        while let Some(frame) = self.with(|state| state.run_up_to_frame(&mut left, &mut running)) {
            self.recompute(frame, left.end - 1, recompute);
        }
        self.with(|state| {
            if state.graph.offload.is_some() {
                state.end_offload();
            }
            state.leave_backward();
            state.graph.clear();
            state.in_backward = false;
        });
    }

    fn recompute<'m>(&'m self, frame: usize, node: u32, recompute: &dyn Fn(usize, Tensor<'m>)) {
        let (outer, layer, value) = self.with(|state| {
            if state.graph.reentrant {
                for param in std::mem::take(&mut state.graph.frames[frame].expects) {
                    state.params.list[param as usize].expected += 1;
                }
                state.keep_gradients(frame, node);
                state.keep_returned(frame);
            }
            state.graph.recomputing = frame as u32 + 1;
            state.recomputing = true;
            state.graph.frames[frame].done = true;
            let Frame { layer, input: mut value, packed, .. } = state.graph.frames[frame];
            match packed {
                Some(index) => value.storage = state.unpack(index),
                None => state.retain(value.storage),
            }
            (std::mem::replace(&mut state.category, Category::Temporaries), layer, value)
        });
        recompute(layer, Tensor { machine: self, value });
        self.with(|state| {
            state.graph.recomputing = 0;
            state.recomputing = false;
            state.stopped = false;
            state.category = outer;
        });
    }
}
