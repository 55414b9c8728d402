//! Mixtures of experts: products of consecutive rows with a matrix each.
//!
//! Source: transformers 5.17 integrations/moe.py `grouped_mm_experts_forward`; peft 0.21 tuners/lora/layer.py
//! `ParamWrapper` for adapters of parameters that are no layer's own.

use super::linear::Adapter;
use super::matmul::{bmm_backward, mm_backward, multiplications};
use super::scan::permute_backward;
use super::shape::INPUT;
use super::views::reshape_backward;
use crate::dtype::Dtype;
use crate::step::autograd::{Grad, INPUTS, Node, Results};
use crate::step::heap::NOTHING;
use crate::step::kernels;
use crate::step::machine::{Machine, State};
use crate::step::parallel::Module;
use crate::step::params::ParamId;
use crate::step::tensor::{Layout, Tensor, Value};
use crate::step::what::{Source, What, torch};

static GROUPED_MM: What = What::step("grouped_mm", "what the product with the experts' matrices makes");
static ADAPTED_WEIGHT: What = What::own(
    "adapted weight",
    "experts' weights with what their adapters add: peft adapts them as whole parameters, so that the sum is as large as they are",
    Source::Adapters,
);
static ADAPTED_FACTOR: What = What::own(
    "adapted weight (factor)",
    "a factor of what adapters add to experts' weights, in the order that the product needs",
    Source::Adapters,
);
static FACTOR: What = What::own(
    "factor",
    "the gradient of a factor of what adapters add to experts' weights",
    Source::Adapters,
);
static FACTOR_COPY: What = What::own(
    "factor (copy)",
    "a factor of what adapters add to experts' weights, in the order that the product needs",
    Source::Adapters,
);

/// The matrices of all experts, `[experts, output, input]` (or the last two the other way round), on the machine.
#[derive(Clone, Copy, Debug)]
pub(in crate::step) struct Expert {
    pub weight: ParamId,
    /// A bias for each expert.
    pub bias: Option<ParamId>,
    pub experts: u64,
    pub input: u64,
    pub output: u64,
    /// Whether the product takes them as they are stored, and no view of them (`is_transposed`).
    pub as_stored: bool,
    /// An adapter of the parameter itself.
    pub adapter: Option<Adapter>,
}

impl Expert {
    /// What a product keeps of the matrices: of a parameter itself nothing but the parameter, where no checkpoint runs again, which
    /// detaches all that is saved (torch/utils/checkpoint.py `_recomputation_hook`).
    fn kept(&self, state: &State, weight: &Value) -> Value {
        let detaches = state.recomputing && !state.graph.reentrant;
        if self.as_stored && !detaches { *weight } else { state.viewed(weight) }
    }
}

impl<'m> Tensor<'m> {
    /// `F.grouped_mm(x.to(weight.dtype), weight, offs=offsets)`: rows of `x`, sorted by expert.
    pub fn grouped(&self, weight: &Tensor<'m>, offsets: &Tensor<'m>, expert: &Expert) -> Tensor<'m> {
        let x = self.to(weight.value.dtype);
        if self.machine.with(|state| state.device.capability) < GROUPED_SINCE {
            return x.looped(weight, expert);
        }
        x.apply(|state, x| {
            let w = &weight.value;
            let numel = (x.numel / expert.input.max(1)).saturating_mul(expert.output);
            let product = Grouped::of(x, w, expert);
            let node =
                state.node([x, w], move |state, node, grad| grouped_backward(state, node, grad, product));
            if x.requires_grad() {
                state.save_view(node, &expert.kept(state, w).transposed());
            }
            state.save(node, offsets.value.storage);
            if w.requires_grad() {
                state.save(node, x.storage);
            }
            product.count(state, w.dtype, true);
            let storage = state.alloc_for(x.storage, numel, x.dtype, &GROUPED_MM);
            kernels::grouped_scratch(state, product.groups, x.dtype);
            Value::plain(storage, numel, x.dtype).at(node.output(0))
        })
    }
}

impl<'m> Tensor<'m> {
    /// `torch.bmm(x, weight)` under the running autocast: as many rows for each of the experts.
    pub fn batched(&self, expert: &Expert) -> Tensor<'m> {
        self.apply(|state, x| {
            let w = state.cast_weight(expert.weight, true);
            let x = state.cast_argument(x, state.operand_dtype(x.dtype), &INPUT);
            let multiplied = x.numel.saturating_mul(expert.output);
            let node = state.node([&x, &w], move |state, node, grad| {
                bmm_backward(state, node, grad, (Layout::Tokens, multiplied))
            });
            if x.requires_grad() {
                let kept = if w.storage == NOTHING { expert.kept(state, &w) } else { w };
                state.save_view(node, &kept);
            }
            if w.requires_grad() {
                state.save_view(node, &x);
            }
            state.read_operand(w.bytes());
            let numel = (x.numel / expert.input.max(1)).saturating_mul(expert.output);
            let storage = state.alloc_product(numel, expert.input, x.dtype, &torch::MATMUL);
            state.take_rows(storage, x.storage, x.numel / expert.input.max(1));
            let product = Value::plain(storage, numel, x.dtype).at(node.output(0));
            state.release(x.storage);
            state.release(w.storage);
            product
        })
    }
}

/// The least compute capability that has `F.grouped_mm` (integrations/moe.py `_can_use_grouped_mm`).
const GROUPED_SINCE: u32 = 80;

impl<'m> Tensor<'m> {
    /// integrations/moe.py `_grouped_mm_fallback`: a loop over the experts, whose operator saves both arguments whether
    /// they need a gradient or not.
    fn looped(&self, weight: &Tensor<'m>, expert: &Expert) -> Tensor<'m> {
        self.apply(|state, x| {
            let w = &weight.value;
            let numel = (x.numel / expert.input.max(1)).saturating_mul(expert.output);
            let product = Grouped::of(x, w, expert);
            let node =
                state.node([x, w], move |state, node, grad| looped_backward(state, node, grad, product));
            state.save(node, x.storage);
            state.save(node, expert.kept(state, w).storage);
            product.count(state, w.dtype, true);
            let storage = state.alloc_for(x.storage, numel, x.dtype, &GROUPED_MM);
            Value::plain(storage, numel, x.dtype).at(node.output(0))
        })
    }
}

/// A product of rows with a matrix each, or one of its derivatives.
#[derive(Clone, Copy)]
struct Grouped {
    groups: u64,
    /// Multiplications.
    multiplied: u64,
    /// Elements of the matrices that are read: each that is given a row is, and no more are than there are rows.
    read: u64,
}

impl Grouped {
    fn of(x: &Value, weight: &Value, expert: &Expert) -> Grouped {
        let rows = x.numel / expert.input.max(1);
        Grouped {
            groups: expert.experts,
            multiplied: x.numel.saturating_mul(expert.output),
            read: (weight.numel / expert.experts.max(1)).saturating_mul(rows.min(expert.experts)),
        }
    }

    /// Counts it; the matrices are read, or they are what is made.
    fn count(self, state: &mut State, dtype: Dtype, reads: bool) {
        let Grouped { groups, multiplied, read } = self;
        let bytes = if reads { read.saturating_mul(dtype.bytes()) } else { 0 };
        let is_fused = kernels::is_grouped_kernel(&state.device, dtype);
        state.multiply_groups(multiplied, groups, bytes, is_fused);
    }
}

/// `_grouped_mm_fallback_backward`: both gradients, wanted or not.
fn looped_backward(state: &mut State, node: &Node, grad: &Grad, product: Grouped) -> Results {
    let [x, weight, _] = node.inputs;
    let [own, other] = [(x, true), (weight, false)].map(|(input, reads)| {
        product.count(state, grad.dtype, reads);
        let storage = state.alloc_for(input.storage, input.numel, grad.dtype, &GROUPED_MM);
        Grad::new(storage, input.numel, grad.dtype, Layout::Tokens)
    });
    let mut results: Results = [None; INPUTS];
    for (index, (input, grad)) in [(x, own), (weight, other)].into_iter().enumerate() {
        if input.wants() {
            results[index] = Some(grad);
        } else {
            state.release(grad.storage);
        }
    }
    results
}

/// `_grouped_mm`'s backward: the weight's gradient first.
fn grouped_backward(state: &mut State, node: &Node, grad: &Grad, product: Grouped) -> Results {
    let [x, weight, _] = node.inputs;
    let mut results: Results = [None; INPUTS];
    for (input, reads, result) in [(weight, false, &mut 1), (x, true, &mut 0)] {
        if input.wants() {
            product.count(state, grad.dtype, reads);
            let storage = state.alloc_for(input.storage, input.numel, grad.dtype, &GROUPED_MM);
            kernels::grouped_scratch(state, product.groups, grad.dtype);
            results[*result] = Some(Grad::new(storage, input.numel, grad.dtype, Layout::Tokens));
        }
    }
    results
}

impl State {
    /// `a @ b` of two parameters under the running autocast.
    fn parameter_product(&mut self, [a, b]: [ParamId; 2], numel: u64) -> Value {
        let [right, left] = [b, a].map(|id| self.cast_weight(id, true));
        let (a, b, dtype) = (left.storage, right.storage, left.dtype);
        let node = self.node([&left, &right], mm_backward);
        if left.requires_grad() {
            self.save(node, b);
        }
        if right.requires_grad() {
            self.save(node, a);
        }
        let inner = multiplications([left.numel, right.numel, numel]) / numel.max(1);
        let storage = self.alloc_product(numel, inner, dtype, &torch::MATMUL);
        self.release(a);
        self.release(b);
        Value::plain(storage, numel, dtype).at(node.output(0))
    }
}

/// The low-rank factors that peft adds to a parameter while its module runs.
pub(in crate::step) enum Delta<'m> {
    /// `[experts, output, rank]` and `[experts, rank, input]`, folded in with one `baddbmm`.
    Factors([Tensor<'m>; 2]),
    /// Their product, where the parameter is one matrix.
    Whole(Tensor<'m>),
}

impl<'m> Delta<'m> {
    /// `ParamWrapper._activate_lora`: makes the factors, and the adapted parameter once to check it.
    fn activate(machine: &'m Machine, expert: &Expert, adapter: Adapter) -> Delta<'m> {
        let dtype = machine.with(|state| state.params.get(expert.weight).dtype);
        let factors = if expert.experts > 1 { [adapter.a, adapter.b] } else { [adapter.b, adapter.a] };
        machine.with(|state| {
            [expert.weight].into_iter().chain(factors).for_each(|id| state.read_outside(id));
        });
        let delta = if expert.experts > 1 {
            let [a, b] = [(adapter.a, false), (adapter.b, true)]
                .map(|(id, permuted)| machine.weight(id).factor(permuted));
            let left = b.to(dtype);
            let right = a.to(dtype);
            machine.with(|state| {
                for (factor, id) in [(&left, adapter.b), (&right, adapter.a)] {
                    let dims = state.params.get(id).dims();
                    state.note_dims(factor.value.storage, dims);
                }
            });
            Delta::Factors([left, right])
        } else {
            let scaled = {
                let numel = expert.input.saturating_mul(expert.output);
                machine.tensor(|state| state.parameter_product([adapter.b, adapter.a], numel)).scale()
            };
            Delta::Whole(scaled.to(dtype))
        };
        let outer = machine.with(|state| std::mem::replace(&mut state.graph.enabled, false));
        drop(delta.adapted(machine, expert));
        machine.with(|state| {
            state.graph.enabled = outer;
            state.parametrize(expert.weight, true);
        });
        delta
    }

    /// Runs a module whose parameter peft may wrap: inside the wrapper, which adds to it what an active adapter adds.
    pub fn wrapped(
        machine: &'m Machine,
        x: &Tensor<'m>,
        expert: &Expert,
        body: impl FnOnce(&Tensor<'m>, Option<&Delta<'m>>) -> Tensor<'m>,
    ) -> Tensor<'m> {
        if expert.adapter.is_none() {
            return body(x, None);
        }
        machine.module(Module::ParamWrapper(expert.weight), x, |x| {
            let Some(adapter) = machine.active(expert.adapter) else { return body(x, None) };
            let delta = Delta::activate(machine, expert, adapter);
            let output = body(x, Some(&delta));
            machine.with(|state| state.parametrize(expert.weight, false));
            output
        })
    }

    /// The parameter with what the adapter adds to it.
    pub fn adapted(&self, machine: &'m Machine, expert: &Expert) -> Tensor<'m> {
        let weight = machine.weight(expert.weight);
        let adapted = match self {
            Delta::Whole(delta) => weight.add(delta),
            Delta::Factors([left, right]) => {
                // the adapter's side has a rank for each expert
                let rank = expert.adapter.map_or(0, |adapter| adapter.rank / expert.experts);
                weight.folded(left, right, rank)
            }
        };
        machine.with(|state| {
            let dims = state.params.get(expert.weight).dims();
            state.note_dims(adapted.value.storage, dims);
        });
        adapted
    }
}

impl<'m> Tensor<'m> {
    /// A factor's matrix reshaped by experts: a view. B's is permuted, so its gradient is copied.
    fn factor(&self, permuted: bool) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], if permuted { permute_backward } else { reshape_backward });
            let view = state.viewed(x).at(node.output(0));
            state.retain(view.storage);
            view
        })
    }

    /// `torch.baddbmm(W, left, right, alpha=scaling)` outside autocast; the left factor is permuted, so cuBLAS is given a
    /// copy of it.
    fn folded(&self, left: &Tensor<'m>, right: &Tensor<'m>, rank: u64) -> Tensor<'m> {
        self.apply(|state, weight| {
            let (l, r) = (&left.value, &right.value);
            let node =
                state.node([weight, l, r], move |state, node, grad| fold_backward(state, node, grad, rank));
            if r.requires_grad() {
                state.save(node, l.storage);
            }
            if l.requires_grad() {
                state.save(node, r.storage);
            }
            // a product of the factors for each expert
            state.multiply(weight.numel, rank);
            let storage = state.alloc_for(weight.storage, weight.numel, weight.dtype, &ADAPTED_WEIGHT);
            state.scratch(l.numel.saturating_mul(l.dtype.bytes()), &ADAPTED_FACTOR);
            Value { storage, edge: node.output(0), ..*weight }
        })
    }
}

/// `baddbmm`'s backward: both factors, scaled; the left one is copied again.
fn fold_backward(state: &mut State, node: &Node, grad: &Grad, rank: u64) -> Results {
    let [_, left, right] = node.inputs;
    // both factors
    (0..2).for_each(|_| state.multiply(grad.numel, rank));
    let mut results: Results = [None; INPUTS];
    let make = |state: &mut State, numel: u64| state.alloc(numel, grad.dtype, &FACTOR);
    let left_raw = make(state, left.numel);
    let left_grad = make(state, left.numel);
    state.release(left_raw);
    let right_raw = make(state, right.numel);
    state.scratch(left.numel.saturating_mul(left.dtype.bytes()), &FACTOR_COPY);
    let right_grad = make(state, right.numel);
    state.release(right_raw);
    results[1] = Some(Grad::new(left_grad, left.numel, grad.dtype, Layout::Tokens));
    results[2] = Some(Grad::new(right_grad, right.numel, grad.dtype, Layout::Tokens));
    results
}
