//! The machine that a step runs on: its memory, the graph that forward leaves, the model's parameters.
//!
//! Tensors are handles with Python's lifetime rules: a clone holds the storage, dropping the last handle frees it. The
//! model code in [`super::forward`] therefore frees a tensor exactly where the Python code that it mirrors does.

use std::cell::{Cell, RefCell};
use std::ops::{Deref, DerefMut};

use super::autograd::Graph;
use super::gradient::OnGrad;
use super::heap::{Heap, StorageId};
use super::parallel::Parallel;
use super::params::{ParamId, Params};
use super::tensor::{Tensor, Value};
use super::what::{Dims, Role, Rows};
use crate::dtype::Dtype;
use crate::hardware::Device;
use crate::memory::{Category, WholeExperts};

/// The state of a run; reached through [`Machine`]. What operations do most, allocate and free, they ask of the state as of
/// its heap.
pub(super) struct State {
    pub heap: Heap,
    pub graph: Graph,
    pub params: Params,
    /// Sequences of the running pass's batch.
    pub sequences: u64,
    /// Tokens of each of them.
    pub length: u64,
    /// Tokens that each of them can look at: more where a cache holds earlier ones.
    pub keys: u64,
    /// The autocast element type, inside autocast.
    pub autocast: Option<Dtype>,
    /// Parameters whose copies autocast's cache holds.
    pub cast_cache: Vec<ParamId>,
    /// Leaves that are no parameters, each with its copy in autocast's cache.
    pub cast_leaves: Vec<(Value, Value)>,
    /// What the process has to do with those on other GPUs.
    pub parallel: Parallel,
    /// Whether the micro-batch that runs is the last before the optimizer steps.
    pub is_last: bool,
    /// What happens to a gradient of the member that is trained as soon as it is there.
    pub on_grad: OnGrad,
    /// The parameter whose gradient waits in `.grad` for the next one's to come: LOMO steps it then.
    pub waits_for_step: Option<ParamId>,
    /// Experts of models whose other weights are quantised.
    pub experts: WholeExperts,
    /// What the run came across and has no code for: it has no figure.
    pub unmodelled: Option<&'static str>,
}

impl State {
    /// Poisons the run: what it came across is not modelled, and whatever it goes on with is no answer. The first is named.
    pub fn meet_unmodelled(&mut self, what: &'static str) {
        self.unmodelled.get_or_insert(what);
    }

    /// A row for each token of the running pass.
    pub fn by_tokens(&self) -> Dims {
        Dims::Rows(Rows::Tokens, self.sequences.saturating_mul(self.length))
    }

    /// A number for each query and key of the running pass, in each head.
    pub fn by_queries(&self) -> Dims {
        Dims::Scores(Rows::Tokens, self.sequences.saturating_mul(self.length), self.keys)
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

/// A change of a storage's references that waits until the state is free.
#[derive(Clone, Copy)]
enum Noted {
    /// A tensor was cloned.
    Retain(StorageId),
    /// A tensor went.
    Release(StorageId),
}

/// The machine: shared by every tensor handle of a run.
pub(super) struct Machine {
    state: RefCell<State>,
    /// What happened to tensors while the state was in use, in that order.
    noted: RefCell<Vec<Noted>>,
    /// Whether anything did: asked whenever the state was lent.
    any_noted: Cell<bool>,
}

impl Machine {
    /// A machine without tensors; with a record of what happens where one is wanted, of about so many events.
    pub fn new(device: Device, recorded: Option<usize>) -> Machine {
        Machine {
            state: RefCell::new(State {
                heap: Heap::new(device, recorded),
                graph: Graph::default(),
                params: Params::default(),
                sequences: 1,
                length: 1,
                keys: 1,
                autocast: None,
                cast_cache: Vec::new(),
                cast_leaves: Vec::new(),
                parallel: Parallel::Alone,
                is_last: true,
                on_grad: OnGrad::Keep,
                waits_for_step: None,
                experts: WholeExperts::default(),
                unmodelled: None,
            }),
            noted: RefCell::default(),
            any_noted: Cell::new(false),
        }
    }

    /// Gives `body` the state. A tensor that goes meanwhile gives back its reference when `body` has run, and a clone takes
    /// its own then; one that Python lets go of earlier has to go before. `body` makes no tensors: it hands on values.
    pub fn with<R>(&self, body: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.state.borrow_mut();
        let result = body(&mut state);
        if self.any_noted.get() {
            self.any_noted.set(false);
            self.noted.take().into_iter().for_each(|noted| match noted {
                Noted::Retain(storage) => state.retain(storage),
                Noted::Release(storage) => state.release(storage),
            });
        }
        result
    }

    /// The tensor of the value that `body` makes.
    pub fn tensor(&self, body: impl FnOnce(&mut State) -> Value) -> Tensor<'_> {
        Tensor { value: self.with(body), machine: self }
    }

    /// The tensors of several.
    pub fn tensors<const N: usize>(&self, body: impl FnOnce(&mut State) -> [Value; N]) -> [Tensor<'_>; N] {
        self.with(body).map(|value| Tensor { machine: self, value })
    }

    /// Takes a further reference for the clone of a tensor, at once unless the state is in use. Until then the tensor's own
    /// holds the storage, even if it goes meanwhile: that is noted after this.
    pub fn hold(&self, storage: StorageId) {
        match self.state.try_borrow_mut() {
            Ok(mut state) => state.retain(storage),
            Err(_) => self.note(Noted::Retain(storage)),
        }
    }

    /// Gives back a tensor's reference, at once unless the state is in use.
    pub fn let_go(&self, storage: StorageId) {
        match self.state.try_borrow_mut() {
            Ok(mut state) => state.release(storage),
            Err(_) => self.note(Noted::Release(storage)),
        }
    }

    fn note(&self, noted: Noted) {
        self.any_noted.set(true);
        self.noted.borrow_mut().push(noted);
    }

    /// What remains when all tensors are gone.
    pub fn into_state(self) -> State {
        self.state.into_inner()
    }

    /// Runs `body` as that module's, whose allocations have that role.
    pub fn within<R>(&self, module: &'static str, role: &'static Role, body: impl FnOnce() -> R) -> R {
        let outer = self.with(|state| {
            let outer = (state.module, state.role);
            (state.module, state.role) = (module, role);
            outer
        });
        let result = body();
        self.with(|state| (state.module, state.role) = outer);
        result
    }

    /// What runs from now on is that layer's, counted from 0; [`Machine::leave_layer`] ends it.
    pub fn enter_layer(&self, number: usize) {
        self.with(|state| state.layer = number as u32 + 1);
    }

    /// What runs from now on is no layer's.
    pub fn leave_layer(&self) {
        self.with(|state| state.layer = 0);
    }

    /// Runs `body` with allocations of that role, in the module that is running.
    pub fn serving<R>(&self, role: &'static Role, body: impl FnOnce() -> R) -> R {
        let outer = self.with(|state| std::mem::replace(&mut state.role, role));
        let result = body();
        self.with(|state| state.role = outer);
        result
    }

    /// Runs `body` with allocations of that category and that role.
    pub fn as_category<R>(&self, category: Category, role: &'static Role, body: impl FnOnce() -> R) -> R {
        self.in_category(category, || self.serving(role, body))
    }

    /// Runs `body` with allocations of that category.
    pub fn in_category<R>(&self, category: Category, body: impl FnOnce() -> R) -> R {
        let outer = self.with(|state| std::mem::replace(&mut state.category, category));
        let result = body();
        self.with(|state| state.category = outer);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::Gpu;
    use crate::step::heap::record::Event;
    use crate::step::what::torch;
    use crate::units::Bytes;

    #[test]
    fn a_tensor_may_go_while_the_state_is_in_use() {
        let machine = Machine::new(Device::of(&Gpu::custom(Bytes::gib(24.0))), Some(0));
        let tensor = machine
            .tensor(|state| Value::plain(state.alloc(1024, Dtype::F32, &torch::ONES), 1024, Dtype::F32));
        let id = tensor.value.storage;
        let other = machine.with(|state| {
            drop(tensor);
            assert_eq!(state.references(id), 1, "its reference is given back at the end");
            state.alloc(1024, Dtype::F32, &torch::ZEROS)
        });
        let state = machine.into_state();
        let record = state.heap.record.expect("it is wanted");
        assert_eq!(record.events, [Event::Alloc(id), Event::Alloc(other), Event::Free(id)]);
    }

    #[test]
    fn a_tensor_may_be_cloned_while_the_state_is_in_use() {
        let machine = Machine::new(Device::of(&Gpu::custom(Bytes::gib(24.0))), Some(0));
        let tensor = machine
            .tensor(|state| Value::plain(state.alloc(1024, Dtype::F32, &torch::ONES), 1024, Dtype::F32));
        let id = tensor.value.storage;
        let clone = machine.with(|state| {
            let clone = tensor.clone();
            drop(clone.clone());
            drop(tensor);
            assert_eq!(state.references(id), 1, "the clone's reference is taken at the end");
            clone
        });
        assert_eq!(machine.with(|state| state.references(id)), 1, "the clone alone holds it");
        drop(clone);
        let record = machine.into_state().heap.record.expect("it is wanted");
        assert_eq!(record.events, [Event::Alloc(id), Event::Free(id)]);
    }
}
