//! What a node does in backward, and what derivatives are made of.
//!
//! Every operation brings its own, written where its forward is. Source of them all: the formulas of
//! tools/autograd/derivatives.yaml and torch/csrc/autograd/FunctionsManual.cpp of PyTorch 2.11; the order of events was
//! compared with the allocator's trace of the same operation.

use super::{Broadcast, Edge, Grad, INPUTS, Input, Node};
use crate::step::kernels;
use crate::step::machine::State;
use crate::step::tensor::Layout;
use crate::step::what::What;
use crate::step::what::torch;

/// The gradients of a node's inputs.
pub(in crate::step) type Results = [Option<Grad>; INPUTS];

/// What a node does with the gradients of its outputs.
pub(super) enum Derivative {
    /// The operation's own.
    Own(Function),
    /// Any number of gradients joined into one: the engine's.
    Join,
    /// Views of the gradient for any number of inputs, of so many elements each: the engine's.
    Fan(Vec<(Edge, u64)>),
}

type OfFirst = dyn FnOnce(&mut State, &Node, &mut Grad) -> Results;
type OfAll = dyn FnOnce(&mut State, &Node, &Results) -> Results;

/// A function that an operation brings. One that captures nothing takes no memory of its own.
pub(super) enum Function {
    /// Of the gradient of the first output, which is its own to replace: it runs where there is that.
    OfFirst(Box<OfFirst>),
    /// Of the gradients of all outputs, of which some may be missing.
    OfAll(Box<OfAll>),
}

impl Function {
    /// Runs it on the gradients of the node's outputs, which stay the caller's.
    pub(super) fn run(self, state: &mut State, node: &Node, grads: &mut Results) -> Results {
        match (self, &mut grads[0]) {
            (Function::OfFirst(function), Some(grad)) => function(state, node, grad),
            (Function::OfFirst(_), None) => [None; INPUTS],
            (Function::OfAll(function), _) => function(state, node, grads),
        }
    }
}

/// The engine's validate_outputs: a gradient is summed to its input's size, then cast to its element type.
pub(super) fn validate(state: &mut State, node: &Node, results: &mut Results) {
    for (input, result) in node.inputs.iter().zip(results) {
        let Some(grad) = result else { continue };
        if grad.numel > input.numel {
            let storage = state.alloc_for(input.storage, input.numel, grad.dtype, &torch::SUM);
            let by_columns = match node.broadcast {
                Broadcast::Numbers => false,
                Broadcast::Row => true,
                Broadcast::RowOfHeads => grad.layout != Layout::Heads,
            };
            if by_columns {
                let rows = grad.numel / input.numel.max(1);
                kernels::column_sum_scratch(state, rows, input.numel, grad.dtype);
            } else if input.numel == 1 {
                kernels::sum_scratch(state, grad.numel, grad.dtype);
            }
            state.release(grad.storage);
            // a sum over leading dimensions is a view without them
            let view = node.broadcast != Broadcast::Numbers;
            *grad = Grad { view, ..Grad::new(storage, input.numel, grad.dtype, grad.layout) };
        }
        if grad.dtype != input.dtype {
            let storage = state.alloc_for(grad.storage, grad.numel, input.dtype, &torch::GRADIENT_CAST);
            state.release(grad.storage);
            let layout = dense(grad.layout);
            *grad = Grad { storage, dtype: input.dtype, view: false, layout, ..*grad };
        }
    }
}

/// The results of an operation that has one input.
pub(in crate::step) fn only(grad: Grad) -> Results {
    [Some(grad), None, None]
}

/// A further reference to a gradient.
pub(in crate::step) fn share(state: &mut State, grad: &Grad) -> Grad {
    state.retain(grad.storage);
    *grad
}

/// The same of a view operation.
pub(in crate::step) fn share_view(state: &mut State, grad: &Grad) -> Grad {
    Grad { view: true, ..share(state, grad) }
}

/// A new gradient of the same shape and, unless it is an expanded view, layout as another.
pub(in crate::step) fn like(state: &mut State, grad: &Grad, operation: &'static What) -> Grad {
    let storage = state.alloc_for(grad.storage, grad.numel, grad.dtype, operation);
    Grad { storage, view: false, layout: dense(grad.layout), ..*grad }
}

/// A new gradient of so many elements, laid out like that.
pub(in crate::step) fn fresh(
    state: &mut State,
    grad: &Grad,
    (numel, layout): (u64, Layout),
    operation: &'static What,
) -> Grad {
    let storage = state.alloc_for(grad.storage, numel, grad.dtype, operation);
    Grad::new(storage, numel, grad.dtype, layout)
}

/// The result of operations each of which is given that of the one before; all others go at the end, the last first.
pub(in crate::step) fn chain(state: &mut State, grad: &Grad, operations: &[&'static What]) -> Grad {
    let mut made: Vec<Grad> = operations.iter().map(|operation| like(state, grad, operation)).collect();
    let result = made.pop();
    made.into_iter().rev().for_each(|temporary| state.release(temporary.storage));
    result.unwrap_or(*grad)
}

/// The gradients of all inputs that the node saved in their place, or that are written over what it saved.
pub(in crate::step) fn saved_gradients(state: &mut State, node: &Node) -> Results {
    let mut results: Results = [None; INPUTS];
    for (index, (input, result)) in node.inputs.iter().zip(&mut results).enumerate() {
        *result = input.wants().then(|| saved_gradient(state, node, (input, index as u32)));
    }
    results
}

/// The gradient of an input that is written over what the node saved under that number.
pub(in crate::step) fn saved_gradient(state: &mut State, node: &Node, (input, index): (&Input, u32)) -> Grad {
    let storage = state.saved(node, index);
    state.retain(storage);
    Grad::new(storage, input.numel, input.dtype, input.layout)
}

fn dense(layout: Layout) -> Layout {
    if layout == Layout::Expanded { Layout::Tokens } else { layout }
}
