//! Linear layers that multiply in 8-bit floats (torchao's `Float8Linear`), in eager mode: input, weight and gradient are cast for each
//! product and forgotten after it. Autograd keeps what a plain layer keeps, and under autocast no 16-bit copy of the weight.
//!
//! Source: torchao 0.18 float8/float8_linear.py (`matmul_with_hp_or_float8_args`), float8_utils.py, float8_scaling_utils.py and
//! float8_ops.py; the order of events was compared with the allocator's trace of a layer.

use super::float8_product::{Operand, Product};
use super::linear::{WEIGHT_GRADIENT, dense_gradient};
use super::pointwise::add_backward;
use super::shape::{INPUT, Shape};
use crate::allocator::Stream;
use crate::step::autograd::{Grad, INPUTS, Node, Results};
use crate::step::float8::casts::{Cast, Float8Tensor, Over, Whole};
use crate::step::float8::{Recipe, Scales};
use crate::step::machine::State;
use crate::step::params::ParamId;
use crate::step::tensor::{Layout, Value};
use crate::step::what::{DERIVATIVES, What, torch};

static BIASED: What = What::own("add", "the layer's output with its bias", DERIVATIVES);
static BIAS: What =
    What::own("bias, cast", "the bias of an 8-bit product in the type of its output", DERIVATIVES);

impl Recipe {
    /// Scales along the dimension that lies together, or the other one.
    fn over(self, by_row: Over) -> Over {
        if self.is_by_row() { by_row } else { Over::All { transposed: false } }
    }

    fn cast(self) -> Cast {
        Cast { rounds: self.is_by_row() }
    }

    /// The weight in 8 bits, cast for the product unless it was gathered so.
    fn weight(self, state: &mut State, (weight, shape): (&Value, Shape), over: Over) -> Float8Tensor {
        if self.gathers {
            return Float8Tensor::gathered(weight.numel);
        }
        let whole = Whole::weight(weight.numel, weight.dtype, shape.dims(), Stream::Compute);
        self.cast().of(state, whole, over)
    }

    fn product(self, is_fast: bool) -> Product {
        Product { is_fast, pads: self.pads }
    }
}

impl State {
    /// `Float8Linear.forward`.
    pub(super) fn linear_float8(
        &mut self,
        x: &Value,
        shape: Shape,
        (weight, recipe): (ParamId, Recipe),
        bias: Option<ParamId>,
    ) -> Value {
        let weight = self.weight(weight);
        // `input.to(autocast_dtype)`, a copy of the layer's own
        let x = self.cast_as(x, self.autocast.unwrap_or(x.dtype), &INPUT);
        let node =
            self.node([&x, &weight], move |state, node, grad| backward(state, node, grad, (shape, recipe)));
        let rows = x.numel / shape.input.max(1);
        let cast = recipe.cast();
        let input = cast.of(self, Whole::rows(&x), recipe.over(Over::Rows(rows)));
        let columns = Over::Rows(shape.output);
        let over = if recipe.is_by_row() { columns } else { Over::All { transposed: true } };
        let opened = recipe.weight(self, (&weight, shape), over);
        self.read_operand(weight.bytes());
        let dims = (rows, shape.input, shape.output);
        let operands = [Operand::of(&input, true), Operand::of(&opened, false)];
        let storage = recipe.product(true).of(self, operands, dims, (x.dtype, &torch::LINEAR));
        self.take_rows(storage, x.storage, rows);
        opened.release(self);
        input.release(self);
        self.save_view(node, &x);
        self.save_view(node, &weight.transposed());
        let output = Value::plain(storage, rows.saturating_mul(shape.output), x.dtype).at(node.output(0));
        self.release(x.storage);
        self.release(weight.storage);
        match bias {
            Some(bias) => self.biased_apart(&output, bias),
            None => output,
        }
    }

    /// `output + bias.to(output.dtype)`: an operation of its own.
    fn biased_apart(&mut self, output: &Value, bias: ParamId) -> Value {
        let own = self.weight(bias);
        let bias = self.cast_as(&own, output.dtype, &BIAS);
        let node = self.row_node([output, &bias], add_backward);
        let sum = self.new_like(output, output.dtype, &BIASED, node.output(0));
        self.release(output.storage);
        self.release(bias.storage);
        self.release(own.storage);
        sum
    }
}

/// Both products run whoever is trained: the function does not ask which gradients are wanted.
fn backward(state: &mut State, node: &Node, grad: &mut Grad, (shape, recipe): (Shape, Recipe)) -> Results {
    let [x, weight, _] = node.inputs;
    *grad = dense_gradient(state, *grad);
    let rows = x.numel / shape.input.max(1);
    let cast = recipe.cast();
    let gradient = Whole::rows(&Value::plain(grad.storage, grad.numel, grad.dtype));
    let given = Whole::rows(&Value { storage: state.saved(node, 0), ..x });
    let by_row = cast.of(state, gradient, recipe.over(Over::Rows(rows)));
    let over = match recipe.scales {
        Scales::Tensor | Scales::RowBesideWeightGradient => Over::All { transposed: true },
        Scales::Row => Over::Columns(shape.output, shape.input),
    };
    let opened = recipe.weight(state, (&weight, shape), over);
    state.read_operand(weight.bytes());
    let made = (grad.dtype, &torch::INPUT_GRADIENT);
    let dims = (rows, shape.output, shape.input);
    let inputs =
        recipe.product(false).of(state, [Operand::of(&by_row, true), Operand::of(&opened, true)], dims, made);
    state.take_rows(inputs, x.storage, rows);
    let by_column = (recipe.scales != Scales::RowBesideWeightGradient).then(|| {
        let gradient = cast.of(state, gradient, recipe.over(Over::Columns(rows, shape.output)));
        [gradient, cast.of(state, given, recipe.over(Over::Columns(rows, shape.input)))]
    });
    let weights = match &by_column {
        None => state.alloc_product(shape.weights(), rows, grad.dtype, &WEIGHT_GRADIENT),
        Some([gradient, input]) => {
            let (dims, made) = ((shape.output, rows, shape.input), (grad.dtype, &WEIGHT_GRADIENT));
            recipe.product(false).of(
                state,
                [Operand::of(gradient, false), Operand::of(input, true)],
                dims,
                made,
            )
        }
    };
    for cast in [by_row, opened].into_iter().chain(by_column.into_iter().flatten()) {
        cast.release(state);
    }
    let mut results: Results = [None; INPUTS];
    for (result, (input, storage)) in results.iter_mut().zip([(x, inputs), (weight, weights)]) {
        if input.wants() {
            let whole = Grad::new(storage, input.numel, grad.dtype, Layout::Tokens);
            // both went through a view: `reshape`, and the `weight.t()` that the function is given
            *result = Some(Grad { view: true, ..whole });
        } else {
            state.release(storage);
        }
    }
    results
}
