//! The hooks of an engine around what runs: units of layers, or every module.

use super::Parallel;
use crate::dtype::Dtype;
use crate::step::autograd::{only, share};
use crate::step::machine::{Machine, State};
use crate::step::params::ParamId;
use crate::step::tensor::{Tensor, Value};
use crate::step::what::{Source, What};

static UNIT_INPUT: What = What::own(
    "cast",
    "a module's input in the element type that its unit computes in",
    Source::At("PyTorch, torch/distributed/fsdp/_fully_shard/_fsdp_state.py"),
);

/// A module, as an engine knows it that gathers every module's own parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::step) enum Module {
    /// One that has these parameters, without those of modules inside it: a head that is tied is the embedding, and all norms without
    /// weights are one.
    Own([Option<ParamId>; 4]),
    /// peft's wrapper of the layer with that weight: its code reads the element type of the adapter's A, which makes that a
    /// parameter of the wrapper too (`register_external_parameter`). In the very first pass it is gathered where it is read.
    Adapted { weight: ParamId, a: ParamId },
    /// peft's wrapper of that parameter (`ParamWrapper`): it has none of its own, and its code reads that one and the adapter's.
    ParamWrapper(ParamId),
    /// One that is gathered whole, from its first to its last parameter: modules inside it have no hooks (`z3_leaf_module`).
    Leaf([ParamId; 2]),
    /// One that has none of its own, and which of them.
    Container(Container, u32),
}

/// What a module without parameters is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::step) enum Container {
    /// The model itself, and what peft puts around it.
    Root,
    /// `model`, in which the layers are.
    Decoder,
    Layer,
    SelfAttention,
    Mlp,
    /// The experts of a mixture that every token visits.
    SharedExperts,
    Activation,
    RotaryEmbedding,
    /// The dropout of an adapter.
    Dropout,
}

impl Module {
    pub const DECODER: Module = Module::Container(Container::Decoder, 0);

    /// The model itself, or what peft puts around it.
    const fn root(number: u32) -> Module {
        Module::Container(Container::Root, number)
    }

    /// One of its own weight and bias, or of two weights.
    pub const fn of([first, second]: [Option<ParamId>; 2]) -> Module {
        Module::Own([first, second, None, None])
    }

    /// Its own parameters; of one that is gathered whole none.
    pub fn own(self) -> [Option<ParamId>; 4] {
        match self {
            Module::Own(own) => own,
            Module::Adapted { a, .. } => [Some(a), None, None, None],
            Module::ParamWrapper(_) | Module::Leaf(_) | Module::Container(..) => [None; 4],
        }
    }

    /// The first and the last parameter of one that is gathered whole.
    pub fn whole(self) -> Option<[ParamId; 2]> {
        match self {
            Module::Leaf(whole) => Some(whole),
            Module::Own(_) | Module::Adapted { .. } | Module::ParamWrapper(_) | Module::Container(..) => None,
        }
    }
}

impl State {
    /// A module is about to run, in forward or in backward.
    pub fn enter_module(&mut self, module: Module, backward: bool) {
        if let Parallel::Zero3(zero) = &mut self.parallel
            && !self.heap.stopped
        {
            if !backward {
                zero.enter_forward_of(module, self.graph.enabled);
            }
            zero.enter(&mut self.heap, module, backward);
        }
    }

    /// A module has run.
    fn leave_module(&mut self, module: Module, backward: bool) {
        if let Parallel::Zero3(zero) = &mut self.parallel
            && !self.heap.stopped
        {
            zero.leave(&mut self.heap, &mut self.params, module, backward.then_some(self.is_last));
        }
    }

    /// The code of the module that runs reads a parameter of another one.
    pub fn read_outside(&mut self, id: ParamId) {
        if let Parallel::Zero3(zero) = &mut self.parallel
            && !self.heap.stopped
        {
            zero.read(&mut self.heap, id);
        }
    }

    /// peft takes a parameter out of its module, which reads what is made of it instead (`register_parametrization`), and puts it
    /// back, also where a recomputation stops early.
    pub fn parametrize(&mut self, id: ParamId, begins: bool) {
        if let Parallel::Zero3(zero) = &mut self.parallel {
            zero.parametrize(id, begins);
        }
    }

    /// The element type of an adapter as its layer reads it: that of the shards where it is a unit by itself, which is not whole by then.
    pub fn adapter_dtype(&self, id: ParamId) -> Dtype {
        let param = self.params.get(id);
        if self.parallel.has_units_of_adapters() { param.kept.dtype } else { param.dtype }
    }

    /// The model's forward pass begins: those around it come first.
    pub fn enter_model(&mut self, wrappers: u32) {
        if self.parallel.hooks_modules() {
            (0..=wrappers).rev().for_each(|number| self.enter_module(Module::root(number), false));
            self.enter_module(Module::DECODER, false);
        }
    }

    /// A value that runs a hook when its gradient is there, which is passed on as it is.
    fn on_gradient(&mut self, value: &Value, hook: impl FnOnce(&mut State) + 'static) -> Value {
        let node = self.node([value], move |state, _, grad| {
            hook(state);
            only(share(state, grad))
        });
        value.at(node.output(0))
    }

    /// A module runs whose results need no gradient.
    pub fn pass_module(&mut self, module: Module) {
        self.enter_module(module, false);
        self.leave_module(module, false);
    }
}

impl Machine {
    /// Runs a unit of layers: hooks before and after its forward pass, and in backward when the gradient of its output and
    /// that of its input are there. A recomputation finds the unit as backward has it, or, of a reentrant checkpoint, calls for it.
    pub fn unit<'m>(
        &'m self,
        unit: usize,
        input: &Tensor<'m>,
        body: impl FnOnce(&Tensor<'m>) -> Tensor<'m>,
    ) -> Tensor<'m> {
        if self.with(|state| state.recomputing) {
            self.with(|state| {
                if let Some(fsdp) = state.parallel.units() {
                    fsdp.enter(&mut state.heap, &state.params, unit);
                }
            });
            return body(input);
        }
        let output = body(&self.enter_unit(unit, input));
        self.leave_unit(unit, output)
    }

    /// What a unit is given beside its input, in the element type that it computes in (`cast_forward_inputs`): as it is where the unit runs
    /// again, in which its hook does nothing (`_pre_forward`), and where there are no units.
    pub fn unit_input<'m>(&'m self, given: &Tensor<'m>) -> Tensor<'m> {
        let compute = self.with(|state| {
            let is_cast = given.value.dtype == Dtype::F32 && !state.recomputing;
            state.parallel.units().filter(|_| is_cast).map(|fsdp| fsdp.compute())
        });
        given.to_as(compute.unwrap_or(given.value.dtype), &UNIT_INPUT)
    }

    /// A unit's forward pass begins: whoever gives its input a gradient has its own reduced.
    fn enter_unit<'m>(&'m self, unit: usize, input: &Tensor<'m>) -> Tensor<'m> {
        let value = self.with(|state| {
            if let Some(fsdp) = state.parallel.units() {
                fsdp.enter(&mut state.heap, &state.params, unit);
            }
            // RegisterPostBackwardFunction
            state.on_gradient(&input.value, move |state| {
                if let Some(fsdp) = state.parallel.units() {
                    fsdp.reduce(&mut state.heap, &mut state.params, unit, state.is_last);
                }
            })
        });
        input.with(|own| *own = value)
    }

    /// One of the two products of an adapter runs, with the parameter that the engine may have made a unit of: its input comes in the
    /// element type that units compute in (`cast_forward_inputs`), and hooks are around it when its layer is recomputed too, unless
    /// backward has come to it by then.
    pub fn adapter_unit<'m>(
        &'m self,
        id: ParamId,
        input: &Tensor<'m>,
        body: impl FnOnce(&Tensor<'m>) -> Tensor<'m>,
    ) -> Tensor<'m> {
        let of_adapter = |state: &mut State| state.parallel.units()?.of_adapter(id);
        let Some((unit, compute)) = self.with(of_adapter) else { return body(input) };
        if !self.with(|state| state.recomputing) {
            let input = input.to_as(compute, &UNIT_INPUT);
            let output = body(&self.enter_unit(unit, &input));
            return self.leave_unit(unit, output);
        }
        let is_over = |state: &mut State| {
            state.heap.stopped || state.parallel.units().is_none_or(|fsdp| fsdp.is_in_backward(unit))
        };
        if self.with(is_over) {
            return body(input);
        }
        let input = input.to_as(compute, &UNIT_INPUT);
        self.with(|state| {
            if let Some(fsdp) = state.parallel.units() {
                fsdp.enter(&mut state.heap, &state.params, unit);
            }
        });
        let output = body(&input);
        self.with(|state| {
            // around it a reentrant checkpoint runs the layer
            if let Some(fsdp) = state.parallel.units().filter(|_| !state.graph.reentrant) {
                fsdp.leave_again(&mut state.heap);
            }
        });
        output
    }

    /// The tokens are looked up, for which accelerate makes a unit.
    pub fn token_unit<'m>(&'m self, body: impl FnOnce() -> Tensor<'m>) -> Tensor<'m> {
        let unit = self.with(|state| {
            let fsdp = state.parallel.units()?;
            let (unit, leaves) = fsdp.of_tokens()?;
            fsdp.enter(&mut state.heap, &state.params, unit);
            leaves.then_some(unit)
        });
        let output = body();
        match unit {
            None => output,
            Some(unit) => self.leave_unit(unit, output),
        }
    }

    /// The last norm runs, of which and the output head accelerate makes a unit. Nothing tells that its forward pass is over.
    pub fn norm_unit<'m>(
        &'m self,
        input: Tensor<'m>,
        body: impl FnOnce(&Tensor<'m>) -> Tensor<'m>,
    ) -> Tensor<'m> {
        match self.with(|state| state.parallel.units()?.of_norm()) {
            None => body(&input),
            Some(unit) => {
                let entered = self.enter_unit(unit, &input);
                drop(input);
                body(&entered)
            }
        }
    }

    /// The output head is called, as a module of the unit that it is in: that one's forward pass is over then.
    pub fn head_unit<'m>(
        &'m self,
        input: &Tensor<'m>,
        body: impl FnOnce(&Tensor<'m>) -> Tensor<'m>,
    ) -> Tensor<'m> {
        let output = match self.with(|state| state.parallel.units()?.of_head()) {
            None => body(input),
            Some(unit) => body(&self.enter_unit(unit, input)),
        };
        self.leave_tail(output)
    }

    /// The output head is called for one chunk of the logits, around which torchtune gathers it where it is sharded by itself.
    pub fn chunk_unit<'m>(
        &'m self,
        input: &Tensor<'m>,
        body: impl FnOnce(&Tensor<'m>) -> Tensor<'m>,
    ) -> Tensor<'m> {
        match self.with(|state| state.parallel.units()?.of_chunks()) {
            None => body(input),
            Some(unit) => self.unit(unit, input, body),
        }
    }

    /// The model's forward pass is over: its logits in chunks, of which the last one's gradient comes first in backward.
    pub fn leave_chunks<'m>(&'m self, chunks: &mut Vec<Tensor<'m>>) {
        let Some(last) = chunks.pop() else { return };
        let value = self.with(|state| {
            let Some(fsdp) = state.parallel.units() else { return last.value };
            let root = fsdp.root();
            fsdp.leave(&mut state.heap, root);
            state.on_gradient(&last.value, |state| {
                if let Some(fsdp) = state.parallel.units() {
                    fsdp.enter_backward_of_chunks(&mut state.heap, &state.params);
                }
            })
        });
        chunks.push(last.with(|own| *own = value));
    }

    /// All modules of the last unit but the root were called.
    pub fn leave_tail<'m>(&'m self, output: Tensor<'m>) -> Tensor<'m> {
        match self.with(|state| state.parallel.units()?.call_tail()) {
            None => output,
            Some(unit) => self.leave_unit(unit, output),
        }
    }

    /// A unit's forward pass is over: whoever gives its output a gradient calls for its parameters.
    fn leave_unit<'m>(&'m self, unit: usize, output: Tensor<'m>) -> Tensor<'m> {
        let value = self.with(|state| {
            if let Some(fsdp) = state.parallel.units() {
                fsdp.leave(&mut state.heap, unit);
            }
            state.on_gradient(&output.value, move |state| {
                if let Some(fsdp) = state.parallel.units() {
                    fsdp.enter_backward(&mut state.heap, &state.params, unit);
                }
            })
        });
        output.with(|own| *own = value)
    }

    /// The model's forward pass is over: its result, whose gradient begins the backward pass. So many modules are around it; whether
    /// its layers are units.
    pub fn leave_forward<'m>(&'m self, result: Tensor<'m>, wrappers: u32, has_units: bool) -> Tensor<'m> {
        match self.with(|state| state.parallel.units()?.outermost(has_units)) {
            None => {
                (0..=wrappers).fold(result, |result, number| self.leave_module(Module::root(number), result))
            }
            Some(unit) => self.leave_unit(unit, result),
        }
    }

    /// A further result of the model and of the modules around it, each of which has a hook on every one (`_pre_backward_module_hook`).
    pub fn further_result<'m>(&'m self, result: &Tensor<'m>, wrappers: u32) -> Tensor<'m> {
        let hooked = self.with(|state| {
            if !state.parallel.hooks_modules() || state.recomputing {
                return result.value;
            }
            (0..=wrappers).map(Module::root).fold(result.value, |value, root| {
                state.on_gradient(&value, move |state| state.enter_module(root, true))
            })
        });
        result.with(|own| *own = hooked)
    }

    /// Runs a module that is given its input by position: hooks before and after its forward pass, and in backward when the
    /// gradient of its output and that of its input are there. A recomputation has those of forward alone.
    pub fn module<'m>(
        &'m self,
        module: Module,
        input: &Tensor<'m>,
        body: impl FnOnce(&Tensor<'m>) -> Tensor<'m>,
    ) -> Tensor<'m> {
        if !self.with(|state| state.parallel.hooks_modules()) {
            return body(input);
        }
        let value = self.with(|state| {
            state.enter_module(module, false);
            if state.recomputing {
                return input.value;
            }
            // PostBackwardFunctionModule
            state.on_gradient(&input.value, move |state| state.leave_module(module, true))
        });
        let output = body(&input.with(|own| *own = value));
        self.leave_module(module, output)
    }

    /// The same of one that is gathered whole.
    pub fn leaf_module<'m>(
        &'m self,
        module: Module,
        input: &Tensor<'m>,
        body: impl FnOnce(&Tensor<'m>) -> Tensor<'m>,
    ) -> Tensor<'m> {
        self.module(module, input, |input| {
            self.with(|state| state.parallel.pass_leaf(true));
            let output = body(input);
            self.with(|state| state.parallel.pass_leaf(false));
            output
        })
    }

    /// The same of one that is given its input by name, or needs no gradient of it: nothing tells when its backward is over.
    pub fn module_by_name<'m>(&'m self, module: Module, body: impl FnOnce() -> Tensor<'m>) -> Tensor<'m> {
        self.with(|state| state.enter_module(module, false));
        let output = body();
        self.leave_module(module, output)
    }

    /// A module's forward pass is over: whoever gives its output a gradient calls for its parameters.
    pub fn leave_module<'m>(&'m self, module: Module, output: Tensor<'m>) -> Tensor<'m> {
        let value = self.with(|state| {
            if !state.parallel.hooks_modules() {
                return output.value;
            }
            state.leave_module(module, false);
            if state.recomputing {
                return output.value;
            }
            // PreBackwardFunctionForModule
            state.on_gradient(&output.value, move |state| state.enter_module(module, true))
        });
        output.with(|own| *own = value)
    }
}
