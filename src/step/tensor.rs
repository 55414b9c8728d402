//! Tensor handles: a size, an element type, a place in the autograd graph; no data.

use super::autograd::Edge;
use super::heap::{NOTHING, StorageId};
use super::machine::Machine;
use crate::dtype::Dtype;

/// The order of a tensor's elements in memory. Shapes with heads are `[batch, heads, sequence, head]`; whether such a
/// tensor lies in memory in that order or token after token decides where PyTorch has to copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// Token after token: `[batch, sequence, …]`.
    Tokens,
    /// Head after head: `[batch, heads, sequence, …]`.
    Heads,
    /// Head after head, each transposed: `[batch, heads, …, sequence]`. Heads can be joined in place, and with that cut
    /// out of a projection of their own or not.
    Columns,
    /// One element for many: an expanded view.
    Expanded,
    /// Token after token and head after head at once: there is one head.
    Either,
}

/// What a tensor is, without the ownership of a [`Tensor`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Value {
    pub storage: StorageId,
    pub numel: u64,
    pub dtype: Dtype,
    /// Where its gradient goes.
    pub edge: Edge,
    /// Order in memory.
    pub layout: Layout,
    /// Order of its shape.
    pub shape: Layout,
    /// Whether it has two dimensions: rows of all sequences.
    pub flat: bool,
}

impl Value {
    /// A tensor without gradient that lies token after token.
    pub fn plain(storage: StorageId, numel: u64, dtype: Dtype) -> Value {
        Value {
            storage,
            numel,
            dtype,
            edge: Edge::None,
            layout: Layout::Tokens,
            shape: Layout::Tokens,
            flat: false,
        }
    }

    /// The same with a place in the graph.
    pub fn at(self, edge: Edge) -> Value {
        Value { edge, ..self }
    }

    /// How a dense tensor of its shape lies.
    pub fn dense_layout(&self) -> Layout {
        if self.layout == Layout::Either { Layout::Either } else { self.shape }
    }

    /// A transposed view of it.
    pub fn transposed(self) -> Value {
        Value { layout: Layout::Columns, shape: Layout::Tokens, ..self }
    }

    /// Whether the code that is given one of the two does the same as with the other.
    pub fn is_like(&self, other: &Value) -> bool {
        let properties = |value: &Value| {
            (value.numel, value.dtype, value.layout, value.shape, value.flat, value.requires_grad())
        };
        properties(self) == properties(other)
    }

    /// Bytes of its elements.
    pub fn bytes(&self) -> u64 {
        self.numel.saturating_mul(self.dtype.bytes())
    }

    /// Whether a gradient flows to it.
    pub fn requires_grad(&self) -> bool {
        match self.edge {
            Edge::None | Edge::Frozen(_) => false,
            Edge::Node { .. } | Edge::Param(_) => true,
        }
    }
}

/// A handle that keeps its storage alive.
pub(super) struct Tensor<'m> {
    pub machine: &'m Machine,
    pub value: Value,
}

impl Tensor<'_> {
    /// A further handle of the same storage with other properties: a view.
    pub fn with(&self, change: impl FnOnce(&mut Value)) -> Self {
        let mut value = self.value;
        change(&mut value);
        self.machine.hold(value.storage);
        Tensor { machine: self.machine, value }
    }

    /// What the code goes on with where it came across something that it has no way to run: itself, in a run that has no
    /// figure any more.
    pub fn unmodelled(&self, what: &'static str) -> Self {
        self.machine.with(|state| state.meet_unmodelled(what));
        self.clone()
    }

    /// The same tensor outside the graph.
    pub fn detach(&self) -> Self {
        self.with(|value| value.edge = Edge::None)
    }
}

impl Clone for Tensor<'_> {
    fn clone(&self) -> Self {
        self.with(|_| {})
    }
}

impl Drop for Tensor<'_> {
    fn drop(&mut self) {
        if self.value.storage != NOTHING {
            self.machine.let_go(self.value.storage);
        }
    }
}
