//! axolotl's fused adapters: autograd functions over a layer's projections and their adapters, which it puts into transformers' own
//! attention and feed-forward modules (`lora_qkv_kernel`, `lora_o_kernel`, `lora_mlp_kernel`, on by default for LoRA and QLoRA).
//!
//! Source: axolotl 0.19, kernels/lora.py (`LoRA_QKV`, `LoRA_O`, `LoRA_MLP`, `matmul_lora`), kernels/quantize.py,
//! kernels/swiglu.py, kernels/geglu.py; monkeypatch/lora_kernels.py puts them in. Compared with the allocator's trace of that code.

use super::adapted::{ADAPTER, GATE_OR_UP, PRODUCT_GRADIENT, factors, rank};
use crate::dtype::Dtype;
use crate::model::blocks::{Activation, Block, FeedForward, Linear, Mlp, Projection};
use crate::step::autograd::{Grad, INPUTS, Input, Node, NodeRef, Results};
use crate::step::forward::{Model, Pass};
use crate::step::heap::StorageId;
use crate::step::machine::State;
use crate::step::ops::four_bit::{DEQUANTISED, QUANT_BLOCK, SCALES};
use crate::step::ops::linear::{Layer, Weight};
use crate::step::params::ParamId;
use crate::step::tensor::{Layout, Tensor, Value};
use crate::step::what::{Source, What, torch};

static DROPPED_GRADIENT: What = What::own(
    "gradient of the dropout",
    "the gradient of what dropout leaves of an adapted input",
    Source::At("axolotl, src/axolotl/kernels/lora.py"),
);

/// Whether there is a function for a feed-forward network of that activation (monkeypatch/lora_kernels.py `SUPPORTED_ACTIVATIONS`).
fn has_kernel(act: Activation) -> bool {
    matches!(act, Activation::Silu | Activation::GeluTanh | Activation::Gelu)
}

/// The linear layers of a layer that one function takes, where all of them have adapters.
fn functions(block: &Block) -> Vec<Vec<&Linear>> {
    let attention = block.mixer.attention();
    let qkv = attention.and_then(|attention| match &attention.projection {
        Projection::Separate { q, k, v } => Some(vec![q, k, v]),
        Projection::KeysAreValues { .. } | Projection::QueriesOnly(_) | Projection::Fused(_) => None,
    });
    let mlp = match &block.ffn {
        FeedForward::Dense(Mlp::Gated { gate, up, down, act }) if has_kernel(*act) => {
            Some(vec![gate, up, down])
        }
        FeedForward::Dense(_) | FeedForward::Moe(_) | FeedForward::None => None,
    };
    [qkv, attention.map(|attention| vec![&attention.output]), mlp].into_iter().flatten().collect()
}

impl Model<'_> {
    /// The adapters' matrices that the functions read, whose own modules nobody calls then, in order.
    pub(in crate::step::forward) fn read_by_functions(&self) -> Vec<ParamId> {
        if !self.member.adapts || !self.member.lora.fused {
            return Vec::new();
        }
        let mut read = Vec::new();
        for layer in &self.layers {
            for function in functions(layer.block) {
                let layers: Vec<Layer> = function.into_iter().map(|spec| layer.linear(spec)).collect();
                if layers.iter().all(|layer| layer.adapter.is_some()) {
                    read.extend(factors(&layers));
                }
            }
        }
        read.sort_unstable();
        read
    }
}

impl<'a> Pass<'_, 'a> {
    /// Whether axolotl's functions are in the place of the modules' own code.
    pub(in crate::step::forward) fn fused_adapters(&self) -> bool {
        self.member.adapts && self.member.lora.fused
    }

    /// Whether axolotl's function runs these layers: each has an adapter.
    pub(in crate::step::forward) fn fuses_adapters(&self, layers: &[Layer]) -> bool {
        self.fused_adapters() && layers.iter().all(|layer| self.machine.active(layer.adapter).is_some())
    }

    /// Whether its function runs a feed-forward network of these layers.
    pub(in crate::step::forward) fn fuses_adapted_mlp(&self, layers: &[Layer], act: Activation) -> bool {
        self.fuses_adapters(layers) && has_kernel(act)
    }
}

impl<'m> Tensor<'m> {
    /// `apply_lora_qkv`.
    pub(in crate::step::forward) fn fused_qkv(&self, layers: [Layer; 3]) -> [Tensor<'m>; 3] {
        self.machine.with(|state| state.read_adapted(&layers));
        let dropped = self.dropped_once(&layers[0]);
        let (x, of) = (&self.value, dropped.as_ref().map(|dropped| &dropped.value));
        self.machine.tensors(|state| {
            let rows = x.numel / layers[0].shape.input.max(1);
            let products =
                layers.map(|layer| state.adapted_linear((x, of.unwrap_or(x)), rows, &layer, &torch::LINEAR));
            let node =
                state.adapted_node(3, [x, of.unwrap_or(&Input::NONE)], &layers, move |state, node, _| {
                    qkv_backward(state, &layers, node)
                });
            let copies = state.adapter_copies(&layers, x.dtype);
            state.save_inputs(node, [x, of.unwrap_or(x)]);
            state.save_all(node, copies);
            std::array::from_fn(|index| {
                let numel = rows.saturating_mul(layers[index].shape.output);
                Value::plain(products[index], numel, x.dtype).at(node.output(index as u8))
            })
        })
    }

    /// `apply_lora_o`.
    pub(in crate::step::forward) fn fused_out(&self, layer: Layer) -> Tensor<'m> {
        self.machine.with(|state| state.read_adapted(&[layer]));
        let dropped = self.dropped_once(&layer);
        let (x, of) = (&self.value, dropped.as_ref().map(|dropped| &dropped.value));
        self.machine.tensor(|state| {
            let rows = x.numel / layer.shape.input.max(1);
            let output = state.adapted_linear((x, of.unwrap_or(x)), rows, &layer, &torch::LINEAR);
            let node =
                state.adapted_node(1, [x, of.unwrap_or(&Input::NONE)], &[layer], move |state, node, _| {
                    out_backward(state, &layer, node)
                });
            let copies = state.adapter_copies(&[layer], x.dtype);
            state.save_all(node, copies);
            state.save_inputs(node, [x, of.unwrap_or(x)]);
            Value::plain(output, rows.saturating_mul(layer.shape.output), x.dtype).at(node.output(0))
        })
    }

    /// `apply_lora_mlp_swiglu` and `apply_lora_mlp_geglu`.
    pub(in crate::step::forward) fn fused_mlp(&self, layers: [Layer; 3]) -> Tensor<'m> {
        self.machine.with(|state| state.read_adapted(&layers));
        let dropped = self.dropped_once(&layers[0]);
        let (x, of) = (&self.value, dropped.as_ref().map(|dropped| &dropped.value));
        self.machine.tensor(|state| {
            let [gate, up, down] = layers;
            let rows = x.numel / gate.shape.input.max(1);
            let inner = rows.saturating_mul(gate.shape.output);
            let [e, g] =
                [gate, up].map(|layer| state.adapted_linear((x, of.unwrap_or(x)), rows, &layer, &GATE_OR_UP));
            let h = state.alloc_for(x.storage, inner, x.dtype, &torch::GATED_PRODUCT);
            let hidden = Value::plain(h, inner, x.dtype);
            let output = state.adapted_linear((&hidden, &hidden), rows, &down, &torch::LINEAR);
            let node =
                state.adapted_node(1, [x, of.unwrap_or(&Input::NONE)], &layers, move |state, node, _| {
                    mlp_backward(state, &layers, node)
                });
            let copies = state.adapter_copies(&layers, x.dtype);
            state.release(h);
            state.save_inputs(node, [x, of.unwrap_or(x)]);
            state.save_all(node, [e, g].into_iter().chain(copies));
            Value::plain(output, x.numel, x.dtype).at(node.output(0))
        })
    }

    /// `_apply_dropout`: one mask for all layers of a function, outside of it; none without dropout.
    fn dropped_once(&self, layer: &Layer) -> Option<Tensor<'m>> {
        layer.adapter.filter(|adapter| adapter.dropout).map(|_| self.dropout(true))
    }
}

impl State {
    /// Saves the input and that after dropout, which others have as well.
    fn save_inputs(&mut self, node: NodeRef, inputs: [&Value; 2]) {
        inputs.into_iter().for_each(|input| self.save(node, input.storage));
    }

    /// Saves tensors that nobody else has, and then lets go of them; without a graph the tuple that holds them goes from its end.
    fn save_all(&mut self, node: NodeRef, saved: impl IntoIterator<Item = StorageId>) {
        let mut saved: Vec<StorageId> = saved.into_iter().collect();
        saved.iter().for_each(|storage| self.save(node, *storage));
        if !self.graph.is_recorded() {
            saved.reverse();
        }
        saved.into_iter().for_each(|storage| self.release(storage));
    }

    /// `matmul_lora`: a product with the weight, to which that with the adapter of another input is added in place.
    fn adapted_linear(
        &mut self,
        (x, of): (&Value, &Value),
        rows: u64,
        layer: &Layer,
        what: &'static What,
    ) -> StorageId {
        let weight = self.dequantised_first(layer);
        let numel = rows.saturating_mul(layer.shape.output);
        let output = self.alloc_product_for(x.storage, (numel, layer.shape.input), x.dtype, what);
        self.release(weight);
        if let Some(adapter) = layer.adapter {
            let copies = [adapter.a, adapter.b].map(|id| self.adapter_copy(id, x.dtype));
            let low = (rows.saturating_mul(adapter.rank), layer.shape.input);
            let low = self.alloc_product_for(of.storage, low, x.dtype, &ADAPTER);
            self.multiply(numel, adapter.rank);
            self.release(low);
            copies.into_iter().for_each(|copy| self.release(copy));
        }
        output
    }

    /// `dequantize`: the weight first, then the scales that making it takes.
    fn dequantised_first(&mut self, layer: &Layer) -> StorageId {
        let weight = self.weight(layer.weight.id());
        let Weight::Quantised(quantised) = layer.weight else { return weight.storage };
        let numel = layer.shape.weights();
        let opened = self.alloc(numel, quantised.origin, &DEQUANTISED);
        self.note_dims(opened, layer.shape.dims());
        if quantised.double {
            let scales = self.alloc(numel.div_ceil(QUANT_BLOCK), Dtype::F32, &SCALES);
            self.release(scales);
        }
        self.release(weight.storage);
        opened
    }

    /// A product with a layer's weight in backward, on behalf of the input's gradient.
    fn through_weight(&mut self, of: &Value, layer: &Layer, numel: u64, what: &'static What) -> StorageId {
        let weight = self.dequantised_first(layer);
        let product = self.alloc_product_for(of.storage, (numel, 0), of.dtype, what);
        self.release(weight);
        product
    }

    /// What backward makes for a layer's adapter: its output's gradient through the second matrix, which stays, and the gradients
    /// of both matrices.
    fn adapter_backward(&mut self, x: &Value, rows: u64, layer: &Layer) -> Lowered {
        self.multiply_backward(rows, layer);
        let low = rows.saturating_mul(rank(layer));
        let lowered = self.alloc_product_for(x.storage, (low, 0), x.dtype, &ADAPTER);
        let grads = self.adapter_gradients(std::slice::from_ref(layer), x.dtype);
        self.scratch(low.saturating_mul(x.dtype.bytes()), &ADAPTER);
        Lowered { lowered, grads }
    }

    /// The gradient of the input after dropout, to which the adapters' products are added; none without dropout.
    fn dropped_gradient(&mut self, dropped: &Input, layer: &Layer) -> Option<Grad> {
        layer.adapter.filter(|adapter| adapter.dropout).map(|_| {
            let storage = self.alloc_for(dropped.storage, dropped.numel, dropped.dtype, &DROPPED_GRADIENT);
            viewed(storage, dropped)
        })
    }
}

/// What backward makes for one adapter.
struct Lowered {
    lowered: StorageId,
    grads: Vec<(ParamId, StorageId)>,
}

/// A gradient that is a view of what was computed.
fn viewed(storage: StorageId, of: &Input) -> Grad {
    Grad { view: true, ..Grad::new(storage, of.numel, of.dtype, Layout::Tokens) }
}

/// `LoRA_QKV.backward`: the input's gradient is computed whether anybody wants it or not.
fn qkv_backward(state: &mut State, layers: &[Layer; 3], node: &Node) -> Results {
    let [x, dropped, _] = node.inputs;
    let rows = x.numel / layers[0].shape.input.max(1);
    let lowered = layers.each_ref().map(|layer| state.adapter_backward(&x, rows, layer));
    let own = state.through_weight(&x, &layers[0], x.numel, &torch::MATMUL);
    for layer in &layers[1..] {
        let weight = state.dequantised_first(layer);
        state.release(weight);
    }
    let of_dropped = state.dropped_gradient(&dropped, &layers[0]);
    // the last view of what dropout left is made after the copies
    state.clear_locals(node, [0].into_iter().chain(2..8).chain([1]));
    lowered.iter().for_each(|own| state.release(own.lowered));
    lowered.into_iter().for_each(|own| state.give_adapters(own.grads, x.dtype));
    [Some(viewed(own, &x)), of_dropped, None]
}

/// `LoRA_O.backward`: so is it here, and the gradient of what was dropped is made in two steps.
fn out_backward(state: &mut State, layer: &Layer, node: &Node) -> Results {
    let [x, dropped, _] = node.inputs;
    let rows = x.numel / layer.shape.input.max(1);
    let lowered = state.adapter_backward(&x, rows, layer);
    let own = state.through_weight(&x, layer, x.numel, &torch::MATMUL);
    let of_dropped = layer.adapter.filter(|adapter| adapter.dropout).map(|_| {
        let product = state.alloc_product_for(x.storage, (x.numel, 0), x.dtype, &DROPPED_GRADIENT);
        let scaled = state.alloc_for(x.storage, x.numel, x.dtype, &DROPPED_GRADIENT);
        state.release(product);
        viewed(scaled, &dropped)
    });
    state.clear_locals(node, 0..3);
    state.release(lowered.lowered);
    state.clear_locals(node, [3]);
    state.give_adapters(lowered.grads, x.dtype);
    [Some(viewed(own, &x)), of_dropped, None]
}

/// `LoRA_MLP.backward`: the product's gradient is one more tensor of the inner width, over which the product itself is written; those of
/// gate and up are written over gate and up.
fn mlp_backward(state: &mut State, layers: &[Layer; 3], node: &Node) -> Results {
    let [x, dropped, _] = node.inputs;
    let [gate, up, down] = layers;
    let rows = x.numel / gate.shape.input.max(1);
    let inner = rows.saturating_mul(down.shape.input);
    let product = state.through_weight(&x, down, inner, &PRODUCT_GRADIENT);
    state.scratch(rows.saturating_mul(rank(down)).saturating_mul(x.dtype.bytes()), &ADAPTER);
    let [of_down, of_up, of_gate] = [down, up, gate].map(|layer| state.adapter_backward(&x, rows, layer));
    let mut results: Results = [None; INPUTS];
    if x.wants() {
        let own = state.through_weight(&x, up, x.numel, &torch::MATMUL);
        let weight = state.dequantised_first(gate);
        state.release(weight);
        results = [Some(viewed(own, &x)), state.dropped_gradient(&dropped, gate), None];
    }
    state.clear_locals(node, [0, 1].into_iter().chain(4..10));
    state.release(product);
    state.clear_locals(node, [2, 3]);
    [&of_up, &of_gate, &of_down].into_iter().for_each(|own| state.release(own.lowered));
    [of_gate, of_up, of_down].into_iter().for_each(|own| state.give_adapters(own.grads, x.dtype));
    results
}
