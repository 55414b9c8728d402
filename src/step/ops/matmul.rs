//! Batched matrix products of tensors that are shaped by heads.

use crate::dtype::Dtype;
use crate::step::autograd::Input;
use crate::step::backward::Op;
use crate::step::machine::{Machine, State};
use crate::step::tensor::{Layout, Tensor, Value};

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
        let value = self.state.borrow_mut().matmul(&a.value, &b.value, product);
        Tensor { machine: self, value }
    }

    /// `bias.baddbmm(a, b)` of heads that lie one after the other, under the running autocast.
    pub fn biased_product<'m>(
        &'m self,
        bias: Option<&Tensor<'m>>,
        a: &Tensor<'m>,
        b: &Tensor<'m>,
        numel: u64,
    ) -> Tensor<'m> {
        let target = self.state.borrow().autocast;
        let cast = |tensor: &Tensor<'m>| tensor.to(target.unwrap_or(tensor.value.dtype));
        let (b, a) = (cast(b), cast(a));
        let bias = bias.map(cast);
        let mut state = self.state.borrow_mut();
        let node = state.node(Op::Baddbmm, [Input::NONE, (&a.value).into(), (&b.value).into()]);
        if b.value.requires_grad() {
            state.save_view(node, &a.value);
        }
        if a.value.requires_grad() {
            state.save_view(node, &b.value);
        }
        let storage = state.alloc_product(numel, a.value.dtype, "baddbmm");
        drop(state);
        drop(bias);
        let heads = Value { layout: Layout::Heads, shape: Layout::Heads, ..a.value };
        Tensor { machine: self, value: Value { storage, numel, edge: node.output(0), ..heads } }
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
    /// Whether the second is a transposed view, as keys are.
    pub transposed: bool,
}

impl State {
    /// Heads as a batch of matrices: operands that lie token after token are copied (unless the batch is one sequence,
    /// where the view needs no copy).
    pub fn dense(&mut self, value: &Value, batch: u64) -> Value {
        if value.layout == Layout::Heads || batch <= 1 {
            self.retain(value.storage);
            return *value;
        }
        let node = self.node(Op::Pass, [value.into(), Input::NONE, Input::NONE]);
        let like = Value { layout: Layout::Heads, ..*value };
        self.new_like(&like, value.dtype, "contiguous", node.output(0))
    }

    /// `torch.matmul` of four-dimensional tensors: a batched product over `batch · heads` matrices.
    pub fn matmul(&mut self, a: &Value, b: &Value, product: Product) -> Value {
        let Product { numel, batch, groups, transposed } = product;
        let a = self.dense(a, batch);
        let b = if groups > 1 {
            let node = self.node(Op::Expand, [b.into(), Input::NONE, Input::NONE]);
            let whole = Value { numel: b.numel.saturating_mul(groups), layout: Layout::Heads, ..*b };
            if batch > 1 {
                self.new_like(&whole, b.dtype, "contiguous", node.output(0))
            } else {
                // one sequence's one head for all: a view will do
                self.retain(b.storage);
                whole.at(node.output(0))
            }
        } else {
            self.dense(b, batch)
        };
        let second = match (transposed, batch > 1) {
            (false, _) => Layout::Heads,
            (true, false) => Layout::Tokens,
            (true, true) => Layout::Columns,
        };
        let node = self.node(Op::Bmm { second }, [(&a).into(), (&b).into(), Input::NONE]);
        if a.requires_grad() {
            let layout = if transposed { Layout::Columns } else { b.layout };
            self.save_view(node, &Value { layout, ..b });
        }
        if b.requires_grad() {
            self.save_view(node, &a);
        }
        let storage = self.alloc_product(numel, a.dtype, "matmul");
        let (dtype, layout, shape) = (a.dtype, Layout::Heads, Layout::Heads);
        let product = Value { layout, shape, ..Value::plain(storage, numel, dtype) }.at(node.output(0));
        let view = self.node(Op::Unbatched { batch }, [(&product).into(), Input::NONE, Input::NONE]);
        self.release(b.storage);
        self.release(a.storage);
        product.at(view.output(0))
    }
}
