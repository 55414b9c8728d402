//! A linear layer under OFT, as peft 0.21 runs it: its input is rotated, block by block.

use super::linear::Layer;
use super::pointwise::sub_backward;
use super::shape::OUTPUT;
use super::tuned::Oft;
use crate::step::autograd::{Grad, fresh, like, only, share, share_view};
use crate::step::machine::State;
use crate::step::tensor::{Layout, Tensor, Value};
use crate::step::what::{Source, What, torch};

const OFT: Source = Source::At("peft, tuners/oft/layer.py");
static INPUT: What = What::own(
    "cast",
    "the layer's input in the element type of OFT's rotations, kept for the gradient of these",
    OFT,
);
static SKEW: What = What::own("sub", "OFT's parameter as skew-symmetric blocks", OFT);
static EYE: What = What::own("eye", "an identity matrix of the size of a block", OFT);
static ROTATION: What = What::own("repeat", "OFT's rotation, a matrix for each block", OFT);
static POWER: What =
    What::own("bmm", "a power of OFT's skew-symmetric blocks, of which its rotation is a sum", OFT);
static POWER_GRADIENT: What = What::own("bmm", "the gradient of a power of OFT's blocks", OFT);
static ROTATED: What = What::own("bmm", "the layer's input after OFT's rotation, block after block", OFT);
static JOINED: What = What::own("reshape", "the layer's input after OFT's rotation, token after token", OFT);

impl<'m> Tensor<'m> {
    /// `Linear.forward`.
    pub(super) fn rotated_first(&self, layer: &Layer, tuned: Oft) -> Tensor<'m> {
        let dtype = self.value.dtype;
        let wide = self.to_as(self.machine.weight(tuned.weight).value.dtype, &INPUT);
        let rotated = wide.rotated_by(tuned);
        drop(wide);
        let narrow = rotated.to_as(dtype, &OUTPUT);
        let result = narrow.base(layer);
        drop((narrow, rotated));
        result.to_as(dtype, &OUTPUT)
    }

    /// `OFTRotationModule.forward`.
    fn rotated_by(&self, tuned: Oft) -> Tensor<'m> {
        let rotation = self.rotation(tuned);
        let blocks = self.apply(|state, x| {
            // a view forward; of what comes back the blocks lie apart, and are copied token after token
            let node = state.node([x], |state, node, grad| {
                only(fresh(state, grad, (node.inputs[0].numel, Layout::Tokens), &torch::CLONE))
            });
            state.retain(x.storage);
            x.at(node.output(0))
        });
        let product = blocks.multiplied(&rotation, (tuned.size, true), &ROTATED);
        let joined = product.apply(|state, x| {
            let node = state.node([x], |state, _, grad| only(share_view(state, grad)));
            state.new_like(x, x.dtype, &JOINED, node.output(0))
        });
        let wide = joined.to_as(self.value.dtype, &OUTPUT);
        drop((rotation, blocks, product, joined));
        wide
    }

    /// `_cayley_batch` with five terms of Neumann's series.
    fn rotation(&self, tuned: Oft) -> Tensor<'m> {
        let machine = self.machine;
        let numel = tuned.blocks.saturating_mul(tuned.size).saturating_mul(tuned.size);
        let skew = machine.tensor(|state| state.skew_symmetric(tuned, numel));
        let rotation = machine.tensor(|state| {
            let dtype = skew.value.dtype;
            let eye = state.alloc(tuned.size.saturating_mul(tuned.size), dtype, &EYE);
            let storage = state.alloc(numel, dtype, &ROTATION);
            state.release(eye);
            Value::plain(storage, numel, dtype)
        });
        let rotation = rotation.with_added_in_place(&skew, true);
        let squared = skew.multiplied(&skew, (tuned.size, false), &POWER);
        let rotation = rotation.with_added_in_place(&squared, true);
        let cubed = squared.multiplied(&skew, (tuned.size, false), &POWER);
        let rotation = rotation.with_added_in_place(&cubed, true);
        let fourth = cubed.multiplied(&skew, (tuned.size, false), &POWER);
        let sum = rotation.with_added_in_place(&fourth, false);
        drop((cubed, skew, squared, fourth));
        sum
    }

    /// `x.add_(other, alpha=2.0)`, or without a factor.
    fn with_added_in_place(&self, other: &Tensor<'m>, doubled: bool) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x, &other.value], move |state, node, grad| {
                let [own, other, _] = node.inputs;
                let own = own.wants().then(|| share(state, grad));
                let other = other
                    .wants()
                    .then(|| if doubled { like(state, grad, &torch::MUL) } else { share(state, grad) });
                [own, other, None]
            });
            state.retain(x.storage);
            x.at(node.output(0))
        })
    }

    /// `torch.bmm(x, other)`: a matrix for each block, so wide. autocast casts its arguments from the last to the first, where
    /// `einsum` calls it the other way round.
    fn multiplied(
        &self,
        other: &Tensor<'m>,
        (width, forwards): (u64, bool),
        what: &'static What,
    ) -> Tensor<'m> {
        self.apply(|state, x| {
            let target = |state: &State, value: &Value| state.operand_dtype(value.dtype);
            let types = [x, &other.value].map(|value| target(state, value));
            let (x, other) = if forwards {
                let x = state.cast(x, types[0]);
                (x, state.cast(&other.value, types[1]))
            } else {
                let other = state.cast(&other.value, types[1]);
                (state.cast(x, types[0]), other)
            };
            let node = state.node([&x, &other], move |state, node, grad| {
                let [x, other, _] = node.inputs;
                let second = other.wants().then(|| {
                    let inner = x.numel / (other.numel / width.max(1)).max(1);
                    let storage = state.alloc_product(other.numel, inner, grad.dtype, &POWER_GRADIENT);
                    Grad::new(storage, other.numel, grad.dtype, Layout::Tokens)
                });
                let first = x.wants().then(|| {
                    let storage = state.alloc_product(x.numel, width, grad.dtype, &POWER_GRADIENT);
                    Grad::new(storage, x.numel, grad.dtype, Layout::Tokens)
                });
                [first, second, None]
            });
            if x.requires_grad() {
                state.save_view(node, &other);
            }
            if other.requires_grad() {
                state.save_view(node, &x);
            }
            let storage = state.alloc_product(x.numel, width, x.dtype, what);
            let product = Value { edge: node.output(0), ..Value::plain(storage, x.numel, x.dtype) };
            state.release(x.storage);
            state.release(other.storage);
            product
        })
    }
}

impl State {
    /// `_pytorch_skew_symmetric`: the parameter written into zeros, and what is left when that is transposed.
    fn skew_symmetric(&mut self, tuned: Oft, numel: u64) -> Value {
        let weight = self.weight(tuned.weight);
        let node = self.node([&weight], |state, node, grad| {
            only(fresh(state, grad, (node.inputs[0].numel, Layout::Tokens), &torch::SLICE))
        });
        let storage = self.alloc(numel, weight.dtype, &torch::ZEROS);
        let matrix = Value { edge: node.output(0), ..Value::plain(storage, numel, weight.dtype) };
        let node = self.node([&matrix, &matrix], sub_backward);
        let skew = self.new_like(&matrix, weight.dtype, &SKEW, node.output(0));
        self.release(matrix.storage);
        skew
    }
}
