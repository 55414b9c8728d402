//! What Megatron-core's modules run: functions with derivatives of their own, and copies in the orders that they need.
//!
//! Source: megatron/core/tensor_parallel/layers.py, megatron/core/models/common/embeddings/rope_utils.py of Megatron-core
//! 0.16.1.

use super::build::is_row_parallel;
use crate::dtype::Dtype;
use crate::step::autograd::{Grad, INPUTS, Node, Results, only, share};
use crate::step::forward::{BoundLayer, find};
use crate::step::heap::{NOTHING, StorageId};
use crate::step::kernels;
use crate::step::machine::State;
use crate::step::ops::linear::Layer;
use crate::step::ops::matmul::multiplications;
use crate::step::ops::pointwise::pass_backward;
use crate::step::tensor::{Layout, Tensor, Value};
use crate::step::what::{Source, What, roles, torch};

const LAYERS: Source = Source::At("Megatron-core, megatron/core/tensor_parallel/layers.py");

static WEIGHT_GRADIENT: What = What::own(
    "linear (weight gradient)",
    "a weight's gradient before it is added to the gradient buffer",
    LAYERS,
);
static BIAS_GRADIENT: What =
    What::own("bias (gradient)", "a bias's gradient: the sum over all tokens", LAYERS);

impl<'m> Tensor<'m> {
    /// `torch.nn.RMSNorm.forward` of the layer's norm of that name.
    pub(super) fn megatron_normed(&self, layer: &BoundLayer<'_>, name: &str) -> Tensor<'m> {
        let norm = find(&layer.norms, |norm| norm.name == name);
        self.machine.within(norm.name, &roles::NORM, || self.fused_root_mean_square(&norm, false))
    }

    /// A copy in another order, whose gradient is handed on as it is.
    pub(super) fn dense_copy(&self) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], pass_backward);
            state.new_like(x, x.dtype, &torch::CONTIGUOUS, node.output(0))
        })
    }

    /// `x.transpose(0, 1).contiguous()`: the gradient lies as the copy does.
    pub(super) fn sequence_first(&self) -> Tensor<'m> {
        self.apply(|state, x| {
            let node =
                state.node([x], |state, _, grad| only(Grad { layout: Layout::Heads, ..share(state, grad) }));
            state.new_like(x, x.dtype, &torch::CONTIGUOUS, node.output(0))
        })
    }

    /// The same tensor as one that lies token after token.
    pub(super) fn flat_heads(self) -> Tensor<'m> {
        let mut own = self;
        (own.value.layout, own.value.shape) = (Layout::Tokens, Layout::Tokens);
        own
    }

    /// `attention_mask_func`: in place.
    pub(super) fn with_mask(&self, mask: StorageId) -> Tensor<'m> {
        let mask =
            Tensor { machine: self.machine, value: Value::plain(NOTHING, 0, Dtype::Bool) }.with_storage(mask);
        self.masked_fill_in_place(&mask)
    }

    pub(super) fn with_storage(self, storage: StorageId) -> Tensor<'m> {
        self.machine.hold(storage);
        let mut own = self;
        own.value.storage = storage;
        own
    }

    /// `LinearWithGradAccumulationAndAsyncCommunication`: keeps its input, whoever trains what.
    pub(super) fn megatron_through(&self, layer: &Layer) -> Tensor<'m> {
        self.machine.within(layer.name, &roles::PROJECTION, || {
            self.apply(|state, x| {
                let weight = state.weight(layer.weight.id());
                let bias = state.weight_if(layer.bias);
                let derivative = if is_row_parallel(layer.name) { linear_backward } else { column_backward };
                let node = state.node([x, &weight, &bias], derivative);
                state.save_view(node, x);
                state.save(node, NOTHING);
                let rows = x.numel / layer.shape.input.max(1);
                let numel = rows.saturating_mul(layer.shape.output);
                let product = state.alloc_product(numel, layer.shape.input, x.dtype, &torch::LINEAR);
                let storage = match layer.bias {
                    Some(_) => state.alloc_for(product, numel, x.dtype, &torch::ADD),
                    None => product,
                };
                if storage != product {
                    state.release(product);
                }
                state.release(bias.storage);
                state.take_rows(storage, x.storage, rows);
                state.release(weight.storage);
                if is_row_parallel(layer.name) {
                    state.all_reduce(numel.saturating_mul(x.dtype.bytes()));
                }
                Value::plain(storage, numel, x.dtype).at(node.output(0))
            })
        })
    }

    /// `_apply_rotary_pos_emb_bshd`: cosines and sines are made anew, and what passes by is joined though there is none.
    pub(super) fn megatron_roped(&self, width: u64, length: u64) -> Tensor<'m> {
        self.machine.serving(&roles::ROTATION, || {
            let table = |what: &'static What| {
                let numel = length.saturating_mul(width);
                let of = |dtype: Dtype, what: &'static What| {
                    let make =
                        |state: &mut State| Value::plain(state.alloc(numel, dtype, what), numel, dtype);
                    self.machine.tensor(make)
                };
                let raw = of(Dtype::F32, what);
                let scaled = of(Dtype::F32, &torch::MUL);
                drop(raw);
                let table = of(self.value.dtype, what);
                drop(scaled);
                table
            };
            let turning = self.viewed();
            let passing = self.slice(0);
            let (cos, sin) = (table(&torch::COS), table(&torch::SIN));
            let first = turning.mul_constant(&cos);
            let second = {
                let turned = {
                    let half = turning.value.numel / 2;
                    let [front, back] = turning.split([half, half]);
                    let negative = back.negate();
                    negative.cat(&front)
                };
                turned.mul_constant(&sin)
            };
            let sum = first.add(&second);
            drop(first);
            drop(second);
            let roped = sum.cat(&passing);
            drop(sum);
            roped
        })
    }
}

/// How GPUs share a layer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sharing {
    /// Among how many GPUs it is divided.
    pub tensor: u64,
    /// Whether each has its own tokens between the products.
    pub sequence: bool,
    /// How many GPUs share a sequence.
    pub context: u64,
    /// Whether keys and values go round among them.
    pub rings: bool,
}

impl Sharing {
    /// How many GPUs' tokens a product reads.
    pub fn parts(self) -> u64 {
        if self.sequence { self.tensor } else { 1 }
    }
}

/// `ColumnParallelLinear`: the gradient of the input is added up.
fn column_backward(state: &mut State, node: &Node, grad: &mut Grad) -> Results {
    let results = linear_backward(state, node, grad);
    if let Some(gradient) = &results[0] {
        state.all_reduce(gradient.numel.saturating_mul(gradient.dtype.bytes()));
    }
    results
}

/// The gradient of the input, then the weight's and the bias's.
fn linear_backward(state: &mut State, node: &Node, grad: &mut Grad) -> Results {
    let [x, weight, bias] = node.inputs;
    let rows = multiplications([x.numel, weight.numel, grad.numel]) / weight.numel.max(1);
    let mut results: Results = [None; INPUTS];
    if x.wants() {
        let product = (x.numel, grad.numel / rows.max(1));
        let storage = state.alloc_product_for(x.storage, product, grad.dtype, &torch::INPUT_GRADIENT);
        results[0] = Some(Grad::new(storage, x.numel, grad.dtype, Layout::Tokens));
    }
    if weight.wants() {
        let storage = state.alloc_product(weight.numel, rows, grad.dtype, &WEIGHT_GRADIENT);
        results[1] = Some(Grad::new(storage, weight.numel, grad.dtype, Layout::Tokens));
    }
    if bias.wants() {
        let storage = state.alloc(bias.numel, grad.dtype, &BIAS_GRADIENT);
        kernels::column_sum_scratch(state, rows, bias.numel, grad.dtype);
        results[2] = Some(Grad::new(storage, bias.numel, grad.dtype, Layout::Tokens));
    }
    results
}
