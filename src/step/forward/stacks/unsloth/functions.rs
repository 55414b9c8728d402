//! Unsloth's autograd functions over one or three projections with their adapters, its norm and its rotary positions.
//!
//! Source: unsloth 2026.10.9 kernels/fast_lora.py, kernels/utils.py (`matmul_lora`, `fast_dequantize`),
//! kernels/rms_layernorm.py, kernels/rope_embedding.py, kernels/qk_norm_rope.py.

use crate::dtype::Dtype;
use crate::step::autograd::{Grad, Input, Node, NodeRef, Results, only, saved_gradient, share, share_view};
use crate::step::forward::stacks::adapted::{ADAPTER, GATE_OR_UP, PRODUCT_GRADIENT, rank};
use crate::step::heap::{NOTHING, StorageId};
use crate::step::machine::State;
use crate::step::ops::four_bit::DEQUANTISED;
use crate::step::ops::linear::{Layer, Weight};
use crate::step::tensor::{Layout, Tensor, Value};
use crate::step::what::{Source, What, torch};

static ROTATION: What = What::own("rotation", "queries or keys turned by their positions", Source::Modeling);
static NORM_AND_ROTATION: What =
    What::own("norm and rotation", "queries or keys, normed and turned by their positions", Source::Modeling);
static HEADS: What =
    What::own("heads", "queries, keys or values in the order that the kernel needs", Source::Modeling);

/// Where `LoRA_MLP` saves its input: behind six weights.
const MLP_INPUT: u32 = 6;

impl<'m> Tensor<'m> {
    /// `LoRA_MLP.apply`: gate, up and down with their adapters.
    pub(super) fn unsloth_mlp(&self, layers: [Layer; 3]) -> Tensor<'m> {
        self.apply(|state, x| {
            let [gate, up, down] = layers;
            let rows = x.numel / gate.shape.input.max(1);
            let [e, g] = [gate, up].map(|layer| state.adapted_product(x, rows, &layer, &GATE_OR_UP));
            let h = state.alloc_for(
                x.storage,
                rows.saturating_mul(gate.shape.output),
                x.dtype,
                &torch::GATED_PRODUCT,
            );
            let output = state.adapted_product(x, rows, &down, &torch::LINEAR);
            let node = state.adapted_node(1, [x, &Input::NONE], &layers, move |state, node, _| {
                mlp_backward(state, &layers, node.inputs[0]);
                over_input(state, node, MLP_INPUT)
            });
            state.save_nothing(node, MLP_INPUT);
            for storage in [x.storage, e, g] {
                state.save(node, storage);
            }
            for storage in [h, g, e] {
                state.release(storage);
            }
            Value::plain(output, x.numel, x.dtype).at(node.output(0))
        })
    }

    /// `LoRA_QKV.apply`: queries, keys and values with their adapters.
    pub(super) fn unsloth_qkv(&self, layers: [Layer; 3]) -> [Tensor<'m>; 3] {
        let x = &self.value;
        self.machine.tensors(|state| {
            let [first, ..] = layers;
            let rows = x.numel / first.shape.input.max(1);
            let products = layers.map(|layer| state.adapted_product(x, rows, &layer, &torch::LINEAR));
            let node = state.adapted_node(3, [x, &Input::NONE], &layers, move |state, node, _| {
                qkv_backward(state, &layers, node.inputs[0]);
                over_input(state, node, 0)
            });
            state.save(node, x.storage);
            state.save_nothing(node, 6);
            std::array::from_fn(|index| {
                let numel = rows.saturating_mul(layers[index].shape.output);
                Value::plain(products[index], numel, x.dtype).at(node.output(index as u8))
            })
        })
    }

    /// `LoRA_W.apply`: one projection with its adapter.
    pub(super) fn unsloth_out(&self, layer: Layer) -> Tensor<'m> {
        self.apply(|state, x| {
            let rows = x.numel / layer.shape.input.max(1);
            let output = state.adapted_product(x, rows, &layer, &torch::LINEAR);
            let node = state.adapted_node(1, [x, &Input::NONE], &[layer], move |state, node, _| {
                only(out_backward(state, &layer, node.inputs[0]))
            });
            state.save_nothing(node, 2);
            state.save(node, x.storage);
            let numel = rows.saturating_mul(layer.shape.output);
            Value::plain(output, numel, x.dtype).at(node.output(0))
        })
    }

    /// `Fast_RMS_Layernorm.apply`.
    pub(super) fn unsloth_norm(&self, width: u64, in_place: bool) -> Tensor<'m> {
        self.apply(|state, x| {
            let node =
                state.node([x], move |state, node, grad| only(norm_backward(state, node, in_place, grad)));
            let result = state.new_like(x, x.dtype, &torch::RMS_NORM, node.output(0));
            let inverse =
                state.alloc_for(x.storage, x.numel / width.max(1), Dtype::F32, &torch::RMS_NORM_ROOT);
            for storage in [x.storage, NOTHING, inverse] {
                state.save(node, storage);
            }
            state.release(inverse);
            result
        })
    }
}

/// `fast_rope_embedding`: queries and keys are rotated in place.
pub(super) fn rotated<'m>(q: &Tensor<'m>, k: &Tensor<'m>) -> (Tensor<'m>, Tensor<'m>) {
    let node = q.machine.with(|state| {
        state
            .node_of(2, [&q.value, &k.value], |state, node, _| rotation_backward(state, node, Layout::Tokens))
    });
    (q.with(|value| value.edge = node.output(0)), k.with(|value| value.edge = node.output(1)))
}

/// `fast_rope_embedding` with position ids: queries and keys are rotated into new tensors.
pub(super) fn rotated_anew<'m>(q: &Tensor<'m>, k: &Tensor<'m>) -> (Tensor<'m>, Tensor<'m>) {
    let [q, k] = q.machine.tensors(|state| {
        let node = state
            .node_of(2, [&q.value, &k.value], |state, node, _| rotation_backward(state, node, Layout::Heads));
        [(q, 0), (k, 1)]
            .map(|(x, output)| state.new_like(&x.value, x.value.dtype, &ROTATION, node.output(output)))
    });
    (q, k)
}

/// `x[0, :, start:end]`, on behalf of all texts of the row.
pub(super) fn text<'m>(x: &Tensor<'m>) -> Tensor<'m> {
    x.apply(|state, x| {
        let node = state.node([x], slice_backward);
        state.retain(x.storage);
        x.at(node.output(0))
    })
}

/// `fast_qk_norm_rope`: queries and keys, heads of so many elements, are normed and rotated into new tensors.
pub(super) fn normed_and_rotated<'m>(q: &Tensor<'m>, k: &Tensor<'m>, head: u64) -> (Tensor<'m>, Tensor<'m>) {
    let [q, k] = q.machine.tensors(|state| {
        let node = state.node_of(2, [&q.value, &k.value], |state, node, _| {
            rotation_backward(state, node, Layout::Tokens)
        });
        let outputs = [(q, 0), (k, 1)].map(|(x, output)| {
            state.new_like(&x.value, x.value.dtype, &NORM_AND_ROTATION, node.output(output))
        });
        let inverses = [q, k].map(|x| {
            state.alloc_for(x.value.storage, x.value.numel / head.max(1), Dtype::F32, &torch::RMS_NORM_ROOT)
        });
        for storage in [q.value.storage, k.value.storage, NOTHING, NOTHING].into_iter().chain(inverses) {
            state.save(node, storage);
        }
        inverses.into_iter().rev().for_each(|storage| state.release(storage));
        outputs
    });
    (q, k)
}

/// `x.contiguous()` of heads: a copy where they lie token after token.
pub(super) fn contiguous<'m>(x: &Tensor<'m>) -> Tensor<'m> {
    if x.value.layout == Layout::Heads {
        return x.clone();
    }
    x.apply(|state, x| {
        let node =
            state.node([x], |state, _, grad| only(Grad { layout: Layout::Heads, ..share(state, grad) }));
        let heads = Value { layout: Layout::Heads, ..*x };
        state.new_like(&heads, x.dtype, &HEADS, node.output(0))
    })
}

/// `F.pad(x, (0, 0, 0, …))` of heads: sequences of the first length get the second.
pub(super) fn padded<'m>(x: &Tensor<'m>, (from, to): (u64, u64)) -> Tensor<'m> {
    x.apply(|state, x| {
        let node = state.node([x], slice_backward);
        let numel = (x.numel / from.max(1)).saturating_mul(to);
        let heads = Value { layout: Layout::Heads, numel, ..*x };
        state.new_like(&heads, x.dtype, &HEADS, node.output(0))
    })
}

impl State {
    /// Saves so many weights.
    fn save_nothing(&mut self, node: NodeRef, count: u32) {
        for _ in 0..count {
            self.save(node, NOTHING);
        }
    }

    /// `matmul_lora`: a product, to which that of the adapter is added in place. A 4-bit weight is dequantised into a buffer
    /// that stays.
    fn adapted_product(&mut self, x: &Value, rows: u64, layer: &Layer, what: &'static What) -> StorageId {
        let dtype = x.dtype;
        let weight = self.weight(layer.weight.id());
        let numel = rows.saturating_mul(layer.shape.output);
        let output = self.alloc_product_for(x.storage, (numel, layer.shape.input), dtype, what);
        self.release(weight.storage);
        if let Some(adapter) = layer.adapter.filter(|_| self.params.adapts) {
            let a = self.adapter_copy(adapter.a, dtype);
            let low = (rows.saturating_mul(adapter.rank), layer.shape.input);
            let low = self.alloc_product_for(x.storage, low, dtype, &ADAPTER);
            self.multiply(numel, adapter.rank);
            self.release(a);
            let b = self.adapter_copy(adapter.b, dtype);
            self.release(b);
            self.release(low);
        }
        output
    }

    /// `fast_dequantize` of a weight in backward: into a new tensor, where there is anything to dequantise, or as it is.
    fn dequantised_anew(&mut self, layer: &Layer, dtype: Dtype) -> StorageId {
        let weight = self.weight(layer.weight.id());
        match layer.weight {
            Weight::Plain(_) => weight.storage,
            Weight::Quantised(_) => {
                let dequantised = self.alloc(layer.shape.weights(), dtype, &DEQUANTISED);
                self.note_dims(dequantised, layer.shape.dims());
                self.release(weight.storage);
                dequantised
            }
        }
    }
}

/// The gradients of queries and keys from a rotation.
fn rotation_backward(state: &mut State, node: &Node, layout: Layout) -> Results {
    let [own, other, _] = node.inputs;
    let [own, other] = [own, other].map(|input| {
        let storage = state.alloc_for(input.storage, input.numel, input.dtype, &ROTATION);
        Some(Grad::new(storage, input.numel, input.dtype, layout))
    });
    [own, other, None]
}

/// The gradient of a part, or of what was padded: of the whole's size, or of the part's.
fn slice_backward(state: &mut State, node: &Node, _: &mut Grad) -> Results {
    let input = node.inputs[0];
    let storage = state.alloc_for(input.storage, input.numel, input.dtype, &torch::SLICE);
    only(Grad::new(storage, input.numel, input.dtype, Layout::Heads))
}

/// The gradient of a function's input, written over it.
fn over_input(state: &mut State, node: &Node, index: u32) -> Results {
    let input = node.inputs[0];
    let own = input.wants().then(|| saved_gradient(state, node, (&input, index)));
    [own.map(|own| Grad { view: true, ..own }), None, None]
}

/// `LoRA_MLP.backward`: the product's gradient is one more tensor of the inner width; those of gate and up are written over
/// gate and up.
fn mlp_backward(state: &mut State, layers: &[Layer; 3], input: Input) {
    let [gate, up, down] = layers;
    let dtype = input.dtype;
    let rows = input.numel / gate.shape.input.max(1);
    let low = |layer: &Layer| rows.saturating_mul(rank(layer)).saturating_mul(dtype.bytes());
    let copies = state.adapter_copies(layers, dtype);
    layers.iter().for_each(|layer| state.multiply_backward(rows, layer));
    let inner = (rows.saturating_mul(down.shape.input), 0);
    let inner = state.alloc_product_for(input.storage, inner, dtype, &PRODUCT_GRADIENT);
    state.scratch(low(down), &ADAPTER);
    let grads = [down, gate, up].map(|layer| state.adapter_gradients(std::slice::from_ref(layer), dtype));
    state.scratch(low(down), &ADAPTER);
    state.scratch(low(down), &ADAPTER);
    let lows = [up, gate]
        .map(|layer| state.alloc_for(input.storage, rows.saturating_mul(rank(layer)), dtype, &ADAPTER));
    state.scratch(low(up), &ADAPTER);
    state.scratch(low(gate), &ADAPTER);
    for layer in [up, gate] {
        let weight = state.dequantised_anew(layer, dtype);
        state.release(weight);
    }
    for storage in copies.into_iter().chain([inner]).chain(lows) {
        state.release(storage);
    }
    let [of_down, of_gate, of_up] = grads;
    for grads in [of_gate, of_up, of_down] {
        state.give_adapters(grads, dtype);
    }
}

/// `LoRA_QKV.backward`.
fn qkv_backward(state: &mut State, layers: &[Layer; 3], input: Input) {
    let dtype = input.dtype;
    let rows = input.numel / layers[0].shape.input.max(1);
    let copies = state.adapter_copies(layers, dtype);
    let grads = state.adapter_gradients(layers, dtype);
    let lows: Vec<StorageId> = layers
        .iter()
        .map(|layer| {
            state.multiply_backward(rows, layer);
            let low = (rows.saturating_mul(rank(layer)), 0);
            state.alloc_product_for(input.storage, low, dtype, &ADAPTER)
        })
        .collect();
    for layer in layers {
        state.scratch(rows.saturating_mul(rank(layer)).saturating_mul(dtype.bytes()), &ADAPTER);
    }
    for layer in layers {
        let weight = state.dequantised_anew(layer, dtype);
        state.release(weight);
    }
    for storage in copies.into_iter().chain(lows) {
        state.release(storage);
    }
    state.give_adapters(grads, dtype);
}

/// `LoRA_W.backward`: the input's gradient is a new tensor.
fn out_backward(state: &mut State, layer: &Layer, input: Input) -> Grad {
    let dtype = input.dtype;
    let rows = input.numel / layer.shape.input.max(1);
    let low = rows.saturating_mul(rank(layer));
    let layers = std::slice::from_ref(layer);
    let copies = state.adapter_copies(layers, dtype);
    let grads = state.adapter_gradients(layers, dtype);
    state.multiply_backward(rows, layer);
    let down = state.alloc_product(low, 0, dtype, &ADAPTER);
    state.scratch(low.saturating_mul(dtype.bytes()), &ADAPTER);
    let weight = state.dequantised_anew(layer, dtype);
    let own = state.alloc_product_for(input.storage, (input.numel, 0), dtype, &torch::MATMUL);
    state.release(weight);
    for storage in copies.into_iter().chain([down]) {
        state.release(storage);
    }
    state.give_adapters(grads, dtype);
    Grad { view: true, ..Grad::new(own, input.numel, dtype, input.layout) }
}

/// `Fast_RMS_Layernorm.backward`: its result is a view.
fn norm_backward(state: &mut State, node: &Node, in_place: bool, grad: &Grad) -> Grad {
    if in_place {
        // the loss made the first of them
        state.leave_loss(grad.storage, node.category);
        return share_view(state, grad);
    }
    let storage = state.alloc_for(grad.storage, grad.numel, grad.dtype, &torch::RMS_NORM);
    Grad { storage, view: true, ..*grad }
}
