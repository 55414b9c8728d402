//! Transformer Engine's layers, as `get_gpt_layer_with_transformer_engine_spec` puts them together: a norm and the projection
//! behind it as one, cuDNN's attention, a gated product and rotary positions as one kernel each. What a weight's gradient comes to
//! is added to the gradient buffer by the product itself. Under sequence parallelism each GPU keeps its tokens of what lies between the
//! products, and gathers all of them before each, forward and backward.
//!
//! Source: transformer_engine/pytorch/module/{layernorm_linear,linear}.py, transformer_engine/pytorch/attention,
//! transformer_engine/pytorch/ops/basic/rmsnorm.py and transformer_engine/pytorch/cross_entropy.py of Transformer Engine 2.11;
//! megatron/core/extensions/transformer_engine.py, megatron/core/transformer/{transformer_layer,attention,mlp}.py and
//! megatron/core/fusions of Megatron-core 0.16.1. Compared with the allocator's trace of that code.

mod attention;
mod chunks;
mod experts;
mod gpt;
mod head;
mod latent;
mod norm;
mod ring;
mod router;

use super::Shared;
use super::build::QKV;
use super::functions::Sharing;
use crate::dtype::Dtype;
use crate::model::blocks::{Attention, FeedForward, Mixer, Mlp, Projection, Wiring};
use crate::scenario::Checkpointing;
use crate::step::autograd::{Grad, Input, Node, Results, fresh, only};
use crate::step::forward::{BoundLayer, Pass};
use crate::step::heap::{NOTHING, StorageId};
use crate::step::machine::State;
use crate::step::ops::linear::Layer;
use crate::step::ops::norm::NormLayer;
use crate::step::parallel::Parallel;
use crate::step::tensor::{Layout, Tensor, Value};
use crate::step::what::{Source, What, roles, torch};
use norm::norm_gradients;

const MODULES: Source = Source::At("Transformer Engine, transformer_engine/pytorch/module");
const ATTENTION: Source = Source::At("Transformer Engine, transformer_engine/pytorch/attention");

static NORMED: What =
    What::own("norm (output)", "a norm's output, of which the weight's gradient is made", MODULES);
static ROOTS: What =
    What::own("norm (reciprocal root)", "a number for each token, kept for the norm's backward", MODULES);
static MEANS: What =
    What::own("norm (mean)", "a number for each token, kept for LayerNorm's backward", MODULES);
static WEIGHT_GRADIENT: What = What::own(
    "linear (weight gradient)",
    "a weight's gradient before it is added to the gradient buffer",
    MODULES,
);
static BIAS_GRADIENT: What =
    What::own("bias (gradient)", "a bias's gradient: the sum over all tokens", MODULES);
static WORKSPACE: What = What::own("norm (workspace)", "a byte that LayerNorm's kernel is given", MODULES);
static GATHERED: What = What::own(
    "all-gather",
    "the tokens of all GPUs that share the layer, for as long as a product reads them",
    Source::At("Transformer Engine, transformer_engine/pytorch/distributed.py, gather_along_first_dim"),
);
static SCATTERED: What = What::own(
    "reduce-scatter",
    "this GPU's tokens of the sums over the GPUs that share the layer",
    Source::At(
        "Transformer Engine, transformer_engine/pytorch/distributed.py, reduce_scatter_along_first_dim",
    ),
);
static ROTATED: What =
    What::own("rotary positions", "queries or keys, turned by their positions in one kernel", ATTENTION);
static GATED: What = What::own(
    "gated product",
    "SiLU of the gate times the rest, as one compiled kernel that keeps its input",
    Source::At("Megatron-core, megatron/core/fusions/fused_bias_swiglu.py"),
);
static GATED_GRADIENT: What = What::own(
    "gated product (gradient)",
    "the gradient of gate and rest",
    Source::At("Megatron-core, megatron/core/fusions/fused_bias_swiglu.py"),
);

/// Which of its saved variables a norm with a projection clears before its backward is through.
const NORM_OUTPUT: u32 = 1;
const NORM_ROOTS: u32 = 2;
const NORM_MEANS: u32 = 3;

impl<'a> Pass<'_, 'a> {
    /// `TransformerLayer.forward`.
    pub(super) fn te_layer(
        &self,
        layer: &BoundLayer<'a>,
        hidden: &Tensor<'a>,
        shared: &Shared,
    ) -> Tensor<'a> {
        if matches!(layer.block.ffn, FeedForward::Dense(Mlp::Plain { .. })) {
            return self.te_gpt_layer(layer, hidden);
        }
        let Wiring::PreNorm { attention: first, mlp: second } = &layer.block.wiring else {
            return hidden.unmodelled("a layer that Megatron-core has nowhere");
        };
        let attended = {
            let norm = layer.norm(first);
            let attended = match &layer.block.mixer {
                Mixer::Attention(attention) => self.within("self_attention", &roles::ATTENTION, || {
                    self.te_attention(layer, (attention, &norm), hidden, shared)
                }),
                Mixer::Latent(latent) => {
                    let normed = self.machine.within(norm.name, &roles::NORM, || hidden.te_normed(&norm));
                    self.within("self_attention", &roles::ATTENTION, || {
                        self.te_latent(layer, latent, &normed, shared)
                    })
                }
                _ => hidden.unmodelled("a layer that Megatron-core has nowhere"),
            };
            let sum = hidden.add(&attended);
            drop(attended);
            sum
        };
        let norm = layer.norm(second);
        let fed = match &layer.block.ffn {
            FeedForward::Moe(moe) => {
                let normed = self.machine.within(norm.name, &roles::NORM, || attended.te_normed(&norm));
                self.within("mlp", &roles::FEED_FORWARD, || self.te_experts(layer, moe, &normed))
            }
            FeedForward::Dense(_) | FeedForward::None => {
                self.within("mlp", &roles::FEED_FORWARD, || self.te_mlp(layer, &norm, &attended))
            }
        };
        let output = attended.add(&fed);
        drop(fed);
        output
    }

    /// `SelfAttention.forward`.
    fn te_attention(
        &self,
        layer: &BoundLayer<'a>,
        (attention, norm): (&Attention, &NormLayer),
        x: &Tensor<'a>,
        shared: &Shared,
    ) -> Tensor<'a> {
        let Projection::Fused(joint) = &attention.projection else {
            return x.unmodelled("projections that Megatron-core has as one");
        };
        let sharing = self.sharing();
        let width = |heads: u64| self.batch.tokens().saturating_mul(heads).saturating_mul(attention.head_dim);
        let (queries, keys) = (width(attention.heads), width(attention.kv_heads));
        let mixed = x.te_normed_through(norm, &layer.linear(joint), sharing);
        let [query, key, value] = mixed.split([queries, keys, keys]);
        // heads lie in groups, each with its keys and values: a reshape of several copies the queries
        let grouped = attention.kv_heads > 1 && attention.heads > attention.kv_heads;
        let query = if grouped { query.dense_copy() } else { query };
        let [query, key] = self.heads_normed(layer, attention, [query, key], grouped);
        let roped = query.te_roped();
        let key_roped = key.te_roped();
        let context = if self.checkpointing() == Checkpointing::Selective {
            let number = {
                let mut attended = shared.attended.borrow_mut();
                attended.push([key_roped.value, value.value]);
                attended.len() - 1
            };
            let held = [key_roped.value.storage, value.value.storage, NOTHING, NOTHING, NOTHING];
            self.machine
                .checkpointed(number, &roped, held, || self.te_core(attention, &roped, &key_roped, &value))
        } else {
            self.te_core(attention, &roped, &key_roped, &value)
        };
        let output = context.te_through(&layer.linear(&attention.output), sharing);
        // the last of what the projection made goes first
        drop(key);
        drop(query);
        drop(roped);
        drop(key_roped);
        drop(value);
        drop(mixed);
        drop(context);
        output
    }

    /// `MLP.forward`.
    fn te_mlp(&self, layer: &BoundLayer<'a>, norm: &NormLayer, x: &Tensor<'a>) -> Tensor<'a> {
        let FeedForward::Dense(Mlp::GatedFused { gate_up, down, .. }) = &layer.block.ffn else {
            return x.unmodelled("a feed-forward network that Megatron-core has nowhere");
        };
        let sharing = self.sharing();
        let product = {
            let joint = x.te_normed_through(norm, &layer.linear(gate_up), sharing);
            joint.te_gated()
        };
        product.te_through(&layer.linear(down), sharing)
    }
}

impl<'m> Tensor<'m> {
    /// `LayerNormLinear`: keeps its input, the norm's output and the reciprocal roots.
    fn te_normed_through(&self, norm: &NormLayer, layer: &Layer, sharing: Sharing) -> Tensor<'m> {
        self.machine.within(layer.name, &roles::PROJECTION, || {
            self.apply(|state, x| {
                let (width, shape) = (norm.width.max(1), layer.shape);
                let gain = state.weight_if(norm.weight);
                let weight = state.weight_that_is_summed_up(layer);
                let biases = [
                    norm.bias.map(|_| norm.width),
                    layer.bias.filter(|_| !is_added_later(layer)).map(|_| shape.output),
                ];
                let rows = x.numel / width;
                let all = rows.saturating_mul(sharing.parts());
                let node = state.node([x, &gain, &weight], move |state, node, grad| {
                    normed_linear_backward(state, node, grad, (all, shape.weights(), sharing), biases)
                });
                let means = state.means(norm, x);
                let roots = state.alloc_for(x.storage, rows, Dtype::F32, &ROOTS);
                let normed = state.alloc_for(x.storage, x.numel, x.dtype, &NORMED);
                if means != NOTHING {
                    state.scratch(1, &WORKSPACE);
                }
                let input = state.all_tokens(normed, x.numel, sharing);
                let numel = all.saturating_mul(shape.output);
                let storage = state.te_product(x.storage, (numel, shape.input), x.dtype, &torch::LINEAR);
                state.take_rows(storage, x.storage, all);
                state.release(input);
                for saved in [x.storage, normed, roots, means] {
                    state.save(node, saved);
                }
                state.release(normed);
                state.release(roots);
                state.release(means);
                state.release(gain.storage);
                state.release(weight.storage);
                Value::plain(storage, numel, x.dtype).at(node.output(0))
            })
        })
    }

    /// `Linear`: one whose inputs are divided, which sums over the GPUs, or one that each GPU has whole. Its gradient is a view, for
    /// those whose input others read too.
    fn te_through(&self, layer: &Layer, sharing: Sharing) -> Tensor<'m> {
        self.machine.within(layer.name, &roles::PROJECTION, || {
            self.apply(|state, x| {
                let shape = layer.shape;
                let rows = x.numel / shape.input.max(1);
                let weight = state.weight_that_is_summed_up(layer);
                let node = state.node([x, &weight], move |state, node, grad| {
                    let gathered = state.all_tokens(grad.storage, grad.numel, sharing);
                    let all = node.inputs[0].numel;
                    let product = state.te_product(
                        grad.storage,
                        (all, shape.output),
                        grad.dtype,
                        &torch::INPUT_GRADIENT,
                    );
                    let weight = state.weight_gradient(&node.inputs[1], (shape.weights(), rows));
                    state.release(gathered);
                    let own = Grad { view: true, ..Grad::new(product, all, grad.dtype, Layout::Tokens) };
                    [Some(own), weight, None]
                });
                state.save_view(node, x);
                state.release(weight.storage);
                let numel = rows.saturating_mul(shape.output);
                let product = state.te_product(x.storage, (numel, shape.input), x.dtype, &torch::LINEAR);
                state.take_rows(product, x.storage, rows);
                let (storage, numel) = state.summed(product, (numel, x.dtype), sharing);
                Value::plain(storage, numel, x.dtype).at(node.output(0))
            })
        })
    }

    /// `FusedRoPEFunc`: keeps nothing but the angles.
    fn te_roped(&self) -> Tensor<'m> {
        self.machine.serving(&roles::ROTATION, || {
            self.apply(|state, x| {
                let node = state.node([x], |state, node, grad| {
                    let all = node.inputs[0];
                    only(fresh(state, grad, (all.numel, all.layout), &ROTATED))
                });
                state.save(node, NOTHING);
                state.new_like(x, x.dtype, &ROTATED, node.output(0))
            })
        })
    }

    /// `reduce_scatter_to_sequence_parallel_region`.
    pub(super) fn tokens_scattered(&self, sharing: Sharing) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], move |state, _, grad| {
                let gathered = state.all_tokens(grad.storage, grad.numel, sharing);
                only(Grad::new(
                    gathered,
                    grad.numel.saturating_mul(sharing.parts()),
                    grad.dtype,
                    Layout::Tokens,
                ))
            });
            state.retain(x.storage);
            let (storage, numel) = state.summed(x.storage, (x.numel, x.dtype), sharing);
            Value::plain(storage, numel, x.dtype).at(node.output(0))
        })
    }

    /// `SwiGLUFunction`.
    fn te_gated(&self) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], |state, node, grad| {
                let all = node.inputs[0];
                only(fresh(state, grad, (all.numel, all.layout), &GATED_GRADIENT))
            });
            state.save_view(node, x);
            let half = Value { numel: x.numel / 2, ..*x };
            state.new_like(&half, x.dtype, &GATED, node.output(0))
        })
    }
}

impl State {
    /// A layer's weight as an input of its product: none where the product itself adds its gradient to the buffer
    /// (`gradient_accumulation_fusion`).
    fn weight_that_is_summed_up(&mut self, layer: &Layer) -> Value {
        let fuses = match &self.parallel {
            Parallel::Megatron(engine) => engine.layout.fuses_gradients,
            _ => true,
        };
        if fuses { Input::NONE } else { self.weight(layer.weight.id()) }
    }

    /// The product that is a weight's gradient: a tensor of its own where it is an input of the node.
    fn weight_gradient(&mut self, weight: &Value, (numel, rows): (u64, u64)) -> Option<Grad> {
        if !weight.wants() {
            self.multiply(numel, rows);
            return None;
        }
        let storage = self.alloc(weight.numel, weight.dtype, &WEIGHT_GRADIENT);
        self.multiply(numel, rows);
        Some(Grad::new(storage, weight.numel, weight.dtype, Layout::Tokens))
    }

    /// The type of what a product that adds to the gradient buffer makes beside: the buffer's, which a bias's gradient has then too.
    fn sums_gradients_in(&self, own: Dtype) -> Dtype {
        match &self.parallel {
            Parallel::Megatron(engine) if engine.layout.fuses_gradients => engine.reduces,
            _ => own,
        }
    }

    /// The mean of each token, which LayerNorm keeps beside the root.
    pub(super) fn means(&mut self, norm: &NormLayer, x: &Value) -> StorageId {
        match norm.bias {
            Some(_) => self.alloc_for(x.storage, x.numel / norm.width.max(1), Dtype::F32, &MEANS),
            None => NOTHING,
        }
    }

    /// The tokens of all GPUs that share a layer, of a tensor with so many elements on each: another reference to it where it has
    /// them already.
    pub(super) fn all_tokens(&mut self, storage: StorageId, numel: u64, sharing: Sharing) -> StorageId {
        if !sharing.sequence {
            self.retain(storage);
            return storage;
        }
        let all = numel.saturating_mul(sharing.tensor);
        let gathered = self.alloc_for(storage, all, Dtype::Bf16, &GATHERED);
        self.gather_tokens(all.saturating_mul(Dtype::Bf16.bytes()));
        gathered
    }

    /// The result of a product of Transformer Engine's, which has a workspace of its own (`Megatron::keep_workspace`).
    fn te_product(
        &mut self,
        of: StorageId,
        (numel, inner): (u64, u64),
        dtype: Dtype,
        what: &'static What,
    ) -> StorageId {
        self.multiply(numel, inner);
        self.alloc_for(of, numel, dtype, what)
    }

    /// What a product with divided inputs comes to on this GPU: sums of all its tokens, or of its own.
    pub(super) fn summed(
        &mut self,
        product: StorageId,
        (numel, dtype): (u64, Dtype),
        sharing: Sharing,
    ) -> (StorageId, u64) {
        let bytes = numel.saturating_mul(dtype.bytes());
        if !sharing.sequence {
            self.all_reduce(bytes);
            return (product, numel);
        }
        let own = numel / sharing.tensor.max(1);
        let scattered = self.alloc_for(product, own, dtype, &SCATTERED);
        self.gather_tokens(bytes);
        self.release(product);
        (scattered, own)
    }
}

/// The gradient of the projection's input, whose tokens are gathered for the weight's; then the norm's.
fn normed_linear_backward(
    state: &mut State,
    node: &Node,
    grad: &Grad,
    (rows, weights, sharing): (u64, u64, Sharing),
    [norm_bias, bias]: [Option<u64>; 2],
) -> Results {
    let normed = state.saved(node, NORM_OUTPUT);
    let own = node.inputs[0].numel;
    let gathered = state.all_tokens(normed, own, sharing);
    let all = own.saturating_mul(sharing.parts());
    let product =
        state.te_product(grad.storage, (all, grad.numel / rows.max(1)), grad.dtype, &torch::INPUT_GRADIENT);
    state.retain(product);
    let (gradient, _) = state.summed(product, (all, grad.dtype), sharing);
    let weight = state.weight_gradient(&node.inputs[2], (weights, rows));
    let summed_in = state.sums_gradients_in(grad.dtype);
    let bias = bias.map(|numel| (state.alloc(numel, summed_in, &BIAS_GRADIENT), numel));
    state.clear_saved(node, NORM_OUTPUT);
    state.release(gathered);
    let mut results = norm_gradients(state, node, grad, norm_bias);
    results[2] = weight;
    if norm_bias.is_some() {
        state.clear_saved(node, NORM_MEANS);
    }
    if sharing.sequence {
        state.release(gradient);
    }
    state.clear_saved(node, NORM_ROOTS);
    if !sharing.sequence {
        state.release(gradient);
    }
    state.release(product);
    if let Some((storage, numel)) = bias {
        // autograd hands the bias a gradient of its own type
        let own =
            if summed_in == grad.dtype { NOTHING } else { state.alloc(numel, grad.dtype, &BIAS_GRADIENT) };
        state.release(storage);
        state.release(own);
    }
    results
}

/// Whether the kernel behind the product adds its bias (`skip_bias_add`): of all but the projection to queries, keys and values.
fn is_added_later(layer: &Layer) -> bool {
    layer.name != QKV
}
