//! The machine that a step runs on: its memory, the graph that forward leaves, the model's parameters.
//!
//! Tensors are handles with Python's lifetime rules: a clone holds the storage, dropping the last handle frees it. The
//! model code in [`super::forward`] therefore frees a tensor exactly where the Python code that it mirrors does.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

use super::autograd::Graph;
use super::device::Device;
use super::gradient::OnGrad;
use super::heap::Heap;
use super::params::{ParamId, Params};
use crate::dtype::Dtype;
use crate::memory::Category;

/// The state of a run; reached through [`Machine`]. What operations do most, allocate and free, they ask of the state as of
/// its heap.
pub(super) struct State {
    pub heap: Heap,
    pub graph: Graph,
    pub params: Params,
    /// Sequences of the batch.
    pub sequences: u64,
    /// The autocast element type, inside autocast.
    pub autocast: Option<Dtype>,
    /// Parameters whose copies autocast's cache holds.
    pub cast_cache: Vec<ParamId>,
    /// What happens to a gradient as soon as it is there.
    pub on_grad: OnGrad,
    /// What the run came across and has no code for: it has no figure.
    pub unmodelled: Option<&'static str>,
}

impl State {
    /// Poisons the run: what it came across is not modelled, and whatever it goes on with is no answer. The first is named.
    pub fn meet_unmodelled(&mut self, what: &'static str) {
        self.unmodelled.get_or_insert(what);
    }
}

impl Deref for State {
    type Target = Heap;

    fn deref(&self) -> &Heap {
        &self.heap
    }
}

impl DerefMut for State {
    fn deref_mut(&mut self) -> &mut Heap {
        &mut self.heap
    }
}

/// The machine: shared by every tensor handle of a run.
pub(super) struct Machine {
    pub state: RefCell<State>,
}

impl Machine {
    /// A machine without tensors; with a record of what happens if `recording`.
    pub fn new(device: Device, recording: bool) -> Machine {
        Machine {
            state: RefCell::new(State {
                heap: Heap::new(device, recording),
                graph: Graph::default(),
                params: Params::default(),
                sequences: 1,
                autocast: None,
                cast_cache: Vec::new(),
                on_grad: OnGrad::Keep,
                unmodelled: None,
            }),
        }
    }

    /// Runs `body` with allocations labelled by `module`.
    pub fn within<R>(&self, module: &'static str, body: impl FnOnce() -> R) -> R {
        let outer = std::mem::replace(&mut self.state.borrow_mut().module, module);
        let result = body();
        self.state.borrow_mut().module = outer;
        result
    }

    /// Runs `body` with allocations of that category.
    pub fn as_category<R>(&self, category: Category, body: impl FnOnce() -> R) -> R {
        let outer = std::mem::replace(&mut self.state.borrow_mut().category, category);
        let result = body();
        self.state.borrow_mut().category = outer;
        result
    }
}
