//! Batched matrix products of tensors that are shaped by heads.

use super::pointwise::pass_backward;
use super::views::expand_backward;
use crate::dtype::Dtype;
use crate::step::autograd::{Grad, Input, Node, Results, like, only, share_view};
use crate::step::machine::{Machine, State};
use crate::step::tensor::{Layout, Tensor, Value};
use crate::step::what::{What, torch};

static BADDBMM: What = What::step("baddbmm", "scores with a bias by distance, one per query, key and head");
static SCORES: What = What::step("matmul", "scores, one per query, key and head");

impl Machine {
    /// `torch.matmul(a, b)` under the running autocast.
    pub fn product<'m>(
        &'m self,
        a: &Tensor<'m>,
        b: &Tensor<'m>,
        product: Product,
        autocast: Option<Dtype>,
    ) -> Tensor<'m> {
        let b = b.to(autocast.unwrap_or(b.value.dtype));
        let a = a.to(autocast.unwrap_or(a.value.dtype));
        self.tensor(|state| state.matmul(&a.value, &b.value, product))
    }

    /// `bias.baddbmm(a, b)` of heads that lie one after the other, under the running autocast.
    pub fn biased_product<'m>(
        &'m self,
        bias: Option<&Tensor<'m>>,
        a: &Tensor<'m>,
        b: &Tensor<'m>,
        numel: u64,
    ) -> Tensor<'m> {
        let target = self.with(|state| state.autocast);
        let cast = |tensor: &Tensor<'m>| tensor.to(target.unwrap_or(tensor.value.dtype));
        let (b, a) = (cast(b), cast(a));
        let bias = bias.map(cast);
        let product = self.tensor(|state| {
            // queries by keys
            let inner = inner_of(a.value.numel, state.length, numel);
            let node = state.node([&Input::NONE, &a.value, &b.value], move |state, node, grad| {
                baddbmm_backward(state, node, grad, numel.saturating_mul(inner))
            });
            if b.value.requires_grad() {
                state.save_view(node, &a.value);
            }
            if a.value.requires_grad() {
                state.save_view(node, &b.value);
            }
            let storage = state.alloc_product(numel, inner, a.value.dtype, &BADDBMM);
            let dims = state.by_queries();
            state.note_dims(storage, dims);
            let layout = if a.value.layout == Layout::Either { Layout::Either } else { Layout::Heads };
            let heads = Value { layout, shape: Layout::Heads, ..a.value };
            Value { storage, numel, edge: node.output(0), ..heads }
        });
        drop(bias);
        product
    }
}

/// The shape of a batched product.
#[derive(Clone, Copy, Debug)]
pub(in crate::step) struct Product {
    /// Elements of the result.
    pub numel: u64,
    /// Sequences of the batch.
    pub batch: u64,
    /// Heads of the first operand for each of the second.
    pub groups: u64,
    /// What the second operand is.
    pub second: Second,
}

/// The second operand of a batched product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::step) enum Second {
    /// A tensor as it is.
    Plain,
    /// A transposed view.
    Transposed,
    /// A transposed view of keys: the product with queries is the scores.
    Keys,
}

impl State {
    /// Heads as a batch of matrices: operands that lie token after token are copied (unless the batch is one sequence,
    /// where the view needs no copy).
    pub fn dense(&mut self, value: &Value, batch: u64) -> Value {
        if matches!(value.layout, Layout::Heads | Layout::Either) || batch <= 1 {
            self.retain(value.storage);
            return *value;
        }
        let node = self.node([value], pass_backward);
        let like = Value { layout: Layout::Heads, ..*value };
        self.new_like(&like, value.dtype, &torch::CONTIGUOUS, node.output(0))
    }

    /// `torch.matmul` of four-dimensional tensors: a batched product over `batch · heads` matrices.
    pub fn matmul(&mut self, a: &Value, b: &Value, product: Product) -> Value {
        let Product { numel, batch, groups, second } = product;
        let transposed = second != Second::Plain;
        let a = self.dense(a, batch);
        let b = if groups > 1 {
            let node = self.node([b], expand_backward);
            let whole = Value { numel: b.numel.saturating_mul(groups), layout: Layout::Heads, ..*b };
            if batch > 1 {
                self.new_like(&whole, b.dtype, &torch::CONTIGUOUS, node.output(0))
            } else {
                // one sequence's one head for all: a view will do
                self.retain(b.storage);
                whole.at(node.output(0))
            }
        } else {
            self.dense(b, batch)
        };
        let layout = match (transposed, batch > 1) {
            (false, _) => Layout::Heads,
            (true, false) => Layout::Tokens,
            (true, true) => Layout::Columns,
        };
        let inner = match second {
            Second::Plain => self.length,
            Second::Transposed | Second::Keys => inner_of(a.numel, self.length, numel),
        };
        let multiplied = numel.saturating_mul(inner);
        let node = self
            .node([&a, &b], move |state, node, grad| bmm_backward(state, node, grad, (layout, multiplied)));
        if a.requires_grad() {
            let layout = if transposed { Layout::Columns } else { b.layout };
            self.save_view(node, &Value { layout, ..b });
        }
        if b.requires_grad() {
            self.save_view(node, &a);
        }
        self.read_operand(b.bytes());
        let storage = if second == Second::Keys {
            let storage = self.alloc_product(numel, inner, a.dtype, &SCORES);
            let dims = self.by_queries();
            self.note_dims(storage, dims);
            storage
        } else {
            let storage = self.alloc_product(numel, inner, a.dtype, &torch::MATMUL);
            self.take_product(storage, a.storage);
            storage
        };
        let (dtype, shape) = (a.dtype, Layout::Heads);
        let layout = if a.layout == Layout::Either { Layout::Either } else { shape };
        let product = Value { layout, shape, ..Value::plain(storage, numel, dtype) }.at(node.output(0));
        // one head lies as its tokens do
        let batch = if layout == Layout::Either { 1 } else { batch };
        let view = self.node([&product], move |state, _, grad| unbatched_backward(state, grad, batch));
        self.release(b.storage);
        self.release(a.storage);
        product.at(view.output(0))
    }
}

/// How many numbers a product multiplies that has three matrices of so many elements: each of the three dimensions is one of
/// two of them.
pub(in crate::step) fn multiplications([one, other, product]: [u64; 3]) -> u64 {
    (one as f64 * other as f64 * product as f64).sqrt().round() as u64
}

/// Over how many products each element of a result of `numel` elements is a sum, where the first operand has `operand` elements
/// and the result is so many wide.
fn inner_of(operand: u64, width: u64, numel: u64) -> u64 {
    operand.saturating_mul(width) / numel.max(1)
}

/// The gradient of an operand, where it wants one: of as many multiplications as the product itself.
pub(in crate::step) fn product_backward(
    state: &mut State,
    operand: &Input,
    grad: &Grad,
    multiplied: u64,
) -> Option<Grad> {
    operand.wants().then(|| {
        let product = (operand.numel, multiplied / operand.numel.max(1));
        let storage = state.alloc_product_for(operand.storage, product, grad.dtype, &torch::MATMUL);
        Grad::new(storage, operand.numel, grad.dtype, Layout::Heads)
    })
}

/// A batched product of views of tensors with more dimensions; `layout` is how the second operand's gradient lies, beside how
/// many numbers are `multiplied`.
pub(in crate::step) fn bmm_backward(
    state: &mut State,
    node: &Node,
    grad: &Grad,
    (layout, multiplied): (Layout, u64),
) -> Results {
    let [first, second, _] = node.inputs;
    let of = |input: Input, layout: Layout| {
        let one_head = input.layout == Layout::Either && layout == Layout::Heads;
        if one_head { Layout::Either } else { layout }
    };
    let other = product_backward(state, &second, grad, multiplied);
    let other = other.map(|other| Grad { layout: of(second, layout), view: true, ..other });
    let own = product_backward(state, &first, grad, multiplied);
    let own = own.map(|own| Grad { layout: of(first, Layout::Heads), view: true, ..own });
    [own, other, None]
}

/// A batch of matrices as heads of a batch of sequences: a view. A gradient that lies token after token is copied unless there
/// is one sequence only.
pub(in crate::step) fn unbatched_backward(state: &mut State, grad: &Grad, batch: u64) -> Results {
    let result = if grad.layout == Layout::Tokens && batch > 1 {
        like(state, grad, &torch::CONTIGUOUS)
    } else {
        share_view(state, grad)
    };
    only(Grad { layout: Layout::Heads, ..result })
}

/// A product of two matrices.
pub(in crate::step) fn mm_backward(state: &mut State, node: &Node, grad: &mut Grad) -> Results {
    let [first, second, _] = node.inputs;
    let multiplied = multiplications([first.numel, second.numel, grad.numel]);
    let other = product_backward(state, &second, grad, multiplied);
    let own = product_backward(state, &first, grad, multiplied);
    [own, other, None]
}

/// The factor of `baddbmm` scales the gradients of both operands.
fn baddbmm_backward(state: &mut State, node: &Node, grad: &Grad, multiplied: u64) -> Results {
    let [_, second, third] = node.inputs;
    let mut scaled = |operand: &Input| {
        let raw = product_backward(state, operand, grad, multiplied)?;
        let result = like(state, &raw, &torch::MUL);
        state.release(raw.storage);
        Some(result)
    };
    [None, scaled(&second), scaled(&third)]
}
