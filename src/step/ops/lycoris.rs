//! A linear layer under LoHa or LoKr, as peft 0.21 runs them: what is added to the weight is made as large as the weight.

use super::linear::Layer;
use super::pointwise::promoted;
use super::shape::{OUTPUT, Shape};
use super::tuned::{Loha, Lokr, Second};
use crate::step::autograd::{Edge, Grad, Input, Node, Results, like, only};
use crate::step::kernels;
use crate::step::machine::{Machine, State};
use crate::step::params::ParamId;
use crate::step::tensor::{Layout, Tensor, Value};
use crate::step::what::{Source, What, torch};

const LOHA: Source = Source::At("peft, tuners/loha/layer.py");
const LOKR: Source = Source::At("peft, tuners/lokr/layer.py");
static INPUT: What = What::own(
    "cast",
    "the layer's input in the element type of what is added to its weight, kept for its gradient",
    LOHA,
);
static ADAPTED: What = What::own("add", "the layer's output with what its adapter adds", LOHA);
static FACTORS: What =
    What::own("matmul", "one of LoHa's two matrices, as large as the layer's weight", LOHA);
static HADAMARD: What = What::own("mul", "what LoHa adds to the layer's weight, as large as that", LOHA);
static FACTOR_GRADIENT: What = What::own("matmul", "the gradient of one of LoHa's factors", LOHA);
static SECOND: What = What::own("matmul", "the second matrix of LoKr's product", LOKR);
static KRONECKER: What = What::own("kron", "what LoKr adds to the layer's weight, as large as that", LOKR);

impl<'m> Tensor<'m> {
    /// `Linear.forward` of tuners/loha/layer.py.
    pub(super) fn by_hadamard_product(&self, layer: &Layer, tuned: Loha) -> Tensor<'m> {
        self.with_added(layer, |machine| machine.tensor(|state| state.hadamard_product(layer.shape, tuned)))
    }

    /// `Linear.forward` of tuners/lokr/layer.py.
    pub(super) fn by_kronecker_product(&self, layer: &Layer, tuned: Lokr) -> Tensor<'m> {
        self.with_added(layer, |machine| {
            let [whole, second] = machine.tensors(|state| state.kronecker_product(layer.shape, tuned));
            let scaled = whole.scale();
            drop((whole, second));
            scaled
        })
    }

    /// `result + F.linear(x, delta)`, in the input's element type.
    fn with_added(&self, layer: &Layer, delta: impl FnOnce(&'m Machine) -> Tensor<'m>) -> Tensor<'m> {
        let base = self.base(layer);
        let added = {
            let delta = delta(self.machine);
            let x = self.to_as(delta.value.dtype, &INPUT);
            let added = x.apply(|state, x| state.linear_with(x, layer.shape, &delta.value, None));
            drop((x, delta));
            added
        };
        let sum = base.add_as(&added, &ADAPTED);
        drop((added, base));
        sum.to_as(self.value.dtype, &OUTPUT)
    }
}

impl State {
    /// `HadaWeight.apply`: a function of its own, which saves its factors and computes without recording.
    fn hadamard_product(&mut self, shape: Shape, tuned: Loha) -> Value {
        let numel = shape.weights();
        let inputs = tuned.factors.map(|id| self.weight(id));
        let node =
            self.node([&inputs[0]], move |state, _, grad| hadamard_backward(state, shape, tuned, grad));
        for input in &inputs[1..] {
            self.expect_gradient(Some(*input));
        }
        let recorded = std::mem::replace(&mut self.graph.enabled, false);
        let [first, second] = [[0, 1], [2, 3]].map(|[a, b]| {
            let b = self.cast_weight(tuned.factors[b], true);
            let a = self.cast_weight(tuned.factors[a], true);
            let product = self.alloc_product(numel, tuned.rank, a.dtype, &FACTORS);
            self.note_dims(product, shape.dims());
            self.release(a.storage);
            self.release(b.storage);
            Value::plain(product, numel, a.dtype)
        });
        self.graph.enabled = recorded;
        let product = self.new_like(&first, first.dtype, &HADAMARD, Edge::None);
        self.release(second.storage);
        self.release(first.storage);
        let scaled = self.new_like(&product, product.dtype, &HADAMARD, node.output(0));
        self.release(product.storage);
        scaled
    }

    /// `torch.kron(w1, w2)`, and w2.
    fn kronecker_product(&mut self, shape: Shape, tuned: Lokr) -> [Value; 2] {
        let first = self.weight(tuned.first);
        let second = match tuned.second {
            Second::Whole(id) => self.weight(id),
            Second::Factors(ids, dims, rank) => self.product_of_parameters(ids, dims, rank),
        };
        let node = self.node([&first, &second], kronecker_backward);
        if first.requires_grad() {
            self.save_view(node, &second);
        }
        if second.requires_grad() {
            self.save_view(node, &first);
        }
        let (numel, dtype) = (shape.weights(), promoted(first.dtype, second.dtype));
        let storage = self.alloc(numel, dtype, &KRONECKER);
        self.note_dims(storage, shape.dims());
        [Value::plain(storage, numel, dtype).at(node.output(0)), second]
    }

    /// `a @ b` of two parameters.
    fn product_of_parameters(&mut self, [a, b]: [ParamId; 2], [rows, columns]: [u64; 2], rank: u64) -> Value {
        let b = self.cast_weight(b, true);
        let a = self.cast_weight(a, true);
        let node = self.node([&a, &b], move |state, node, grad| {
            let [a, b, _] = node.inputs;
            let mut product = |wanted: &Input, inner| {
                wanted.wants().then(|| {
                    let storage = state.alloc_product(wanted.numel, inner, grad.dtype, &FACTOR_GRADIENT);
                    Grad::new(storage, wanted.numel, grad.dtype, Layout::Tokens)
                })
            };
            let second = product(&b, rows);
            [product(&a, columns), second, None]
        });
        if a.requires_grad() {
            self.save_view(node, &b);
        }
        if b.requires_grad() {
            self.save_view(node, &a);
        }
        let numel = rows.saturating_mul(columns);
        let storage = self.alloc_product(numel, rank, a.dtype, &SECOND);
        self.release(a.storage);
        self.release(b.storage);
        Value::plain(storage, numel, a.dtype).at(node.output(0))
    }
}

/// The gradient times the other matrix, as large as the layer's weight, and the sum of what became of each element: of the
/// second matrix that is a sum of columns, where those of a row are apart.
fn kronecker_backward(state: &mut State, node: &Node, grad: &mut Grad) -> Results {
    let [first, second, _] = node.inputs;
    let whole = [&second, &first].map(|input| input.wants().then(|| like(state, grad, &torch::MUL)));
    let [of_second, of_first] = whole;
    let mut sum = |input: &Input, whole: Grad, columns: bool| {
        let storage = state.alloc_for(input.storage, input.numel, whole.dtype, &torch::SUM);
        if columns {
            kernels::column_sum_scratch(state, whole.numel / input.numel.max(1), input.numel, whole.dtype);
        }
        state.release(whole.storage);
        Grad::new(storage, input.numel, whole.dtype, Layout::Tokens)
    };
    let own = of_first.map(|whole| sum(&first, whole, false));
    [own, of_second.map(|whole| sum(&second, whole, true)), None]
}

/// `HadaWeight.backward`.
fn hadamard_backward(state: &mut State, shape: Shape, tuned: Loha, grad: &mut Grad) -> Results {
    let scaled = like(state, grad, &torch::MUL);
    let [w1a, w1b, w2a, w2b] = tuned.factors;
    let dtype = state.params.get(w1a).dtype;
    let mut given: Vec<(ParamId, Grad)> = Vec::with_capacity(4);
    let mut before = None;
    for [a, b] in [[w1a, w1b], [w2a, w2b]] {
        let other = state.alloc_product(shape.weights(), tuned.rank, dtype, &FACTORS);
        state.note_dims(other, shape.dims());
        let part = Grad { dtype: promoted(grad.dtype, dtype), ..scaled };
        let part = like(state, &part, &torch::MUL);
        state.release(other);
        if let Some(before) = before.replace(part.storage) {
            state.release(before);
        }
        for (id, inner) in [(a, shape.input), (b, shape.output)] {
            let numel = state.params.get(id).numel;
            let storage = state.alloc_product(numel, inner, part.dtype, &FACTOR_GRADIENT);
            given.push((id, Grad::new(storage, numel, part.dtype, Layout::Tokens)));
        }
    }
    if let Some(last) = before {
        state.release(last);
    }
    state.release(scaled.storage);
    let mut given = given.into_iter();
    let own = given.next().map(|(_, grad)| grad);
    for (id, grad) in given {
        state.give(Edge::Param(id), grad);
    }
    own.map_or([None; 3], only)
}
