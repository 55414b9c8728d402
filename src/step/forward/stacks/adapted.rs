//! What autograd functions over several projections and their adapters have in common: Unsloth's, and axolotl's, which are derived from
//! them.
//!
//! Source: unsloth 2026.10.9 kernels/fast_lora.py; axolotl kernels/lora.py.

use crate::dtype::Dtype;
use crate::step::autograd::{Edge, Grad, Input, Node, NodeRef, Results};
use crate::step::heap::StorageId;
use crate::step::machine::State;
use crate::step::ops::linear::Layer;
use crate::step::params::ParamId;
use crate::step::tensor::{Layout, Value};
use crate::step::what::{Source, What, torch};

const FUNCTIONS: Source =
    Source::At("unsloth, unsloth/kernels/fast_lora.py; axolotl, src/axolotl/kernels/lora.py");

pub(super) static GATE_OR_UP: What = What::own(
    "linear",
    "the gate or the other projection's output, over which backward writes their gradients",
    FUNCTIONS,
);
pub(super) static ADAPTER: What =
    What::own("adapter", "what an adapter's first matrix makes of the input", FUNCTIONS);
pub(super) static ADAPTER_GRADIENT: What =
    What::own("adapter's gradient", "the gradient of an adapter's matrix", FUNCTIONS);
pub(super) static PRODUCT_GRADIENT: What =
    What::own("gradient of the product", "the gradient of the gated product", FUNCTIONS);
static ADAPTER_COPY: What =
    What::own("adapter's copy", "an adapter's matrix in the element type of the product", FUNCTIONS);

/// The matrices of the layers' adapters, from the first layer to the last.
pub(super) fn factors(layers: &[Layer]) -> impl Iterator<Item = ParamId> {
    layers.iter().filter_map(|layer| layer.adapter).flat_map(|adapter| [adapter.a, adapter.b])
}

/// The rank of a layer's adapter.
pub(super) fn rank(layer: &Layer) -> u64 {
    layer.adapter.map_or(0, |adapter| adapter.rank)
}

impl State {
    /// Starts the node of a function over these layers: the gradients of its inputs are its results, those of the adapters, which are
    /// trained whatever the inputs are, are given to them by the function's backward ([`State::give_adapters`]).
    pub(super) fn adapted_node(
        &mut self,
        outputs: u8,
        inputs: [&Value; 2],
        layers: &[Layer],
        derivative: impl FnOnce(&mut State, &Node, &mut Grad) -> Results + 'static,
    ) -> NodeRef {
        let nodes = self.graph.len();
        let mut factors = factors(layers);
        let first = factors.next().map_or(Input::NONE, |id| self.weight(id));
        let node = self.node_of(outputs, [inputs[0], inputs[1], &first], derivative);
        if self.graph.len() > nodes {
            factors.for_each(|id| self.expect_in_graph(id));
        }
        node
    }

    /// A function reads the parameters of layers whose modules nobody calls (`get_lora_parameters`), and makes both matrices of each adapter
    /// whole where they are sharded by themselves.
    pub(super) fn read_adapted(&mut self, layers: &[Layer]) {
        for layer in layers {
            let own = [Some(layer.weight.id()), layer.bias];
            own.into_iter().flatten().chain(factors(&[*layer])).for_each(|id| self.read_outside(id));
        }
        if let Some(fsdp) = self.parallel.units() {
            factors(layers).for_each(|id| fsdp.unshard_by_hand(&mut self.heap, &self.params, id));
        }
    }

    /// `A.to(dtype)`.
    pub(super) fn adapter_copy(&mut self, id: ParamId, dtype: Dtype) -> StorageId {
        let weight = self.weight(id);
        if weight.dtype == dtype {
            return weight.storage;
        }
        let copy = self.alloc_for(weight.storage, weight.numel, dtype, &ADAPTER_COPY);
        self.release(weight.storage);
        copy
    }

    /// Both matrices of each adapter in that element type.
    pub(super) fn adapter_copies(&mut self, layers: &[Layer], dtype: Dtype) -> Vec<StorageId> {
        factors(layers).map(|id| self.adapter_copy(id, dtype)).collect()
    }

    /// The gradients of a function's adapters, still without values, from the first layer to the last.
    pub(super) fn adapter_gradients(&mut self, layers: &[Layer], dtype: Dtype) -> Vec<(ParamId, StorageId)> {
        factors(layers)
            .map(|id| {
                let numel = self.params.get(id).numel;
                (id, self.alloc(numel, dtype, &ADAPTER_GRADIENT))
            })
            .collect()
    }

    /// Hands them to the adapters, cast to their element type.
    pub(super) fn give_adapters(&mut self, grads: Vec<(ParamId, StorageId)>, dtype: Dtype) {
        for (id, mut storage) in grads {
            let param = *self.params.get(id);
            if param.dtype != dtype {
                let cast = self.alloc_for(param.storage, param.numel, param.dtype, &torch::GRADIENT_CAST);
                self.release(storage);
                storage = cast;
            }
            let grad = Grad::new(storage, param.numel, param.dtype, Layout::Tokens);
            self.give(Edge::Param(id), grad);
        }
    }

    /// Counts the products of a layer's backward: its input's gradient through the weight and through the adapter, and those of
    /// the adapter's factors.
    pub(super) fn multiply_backward(&mut self, rows: u64, layer: &Layer) {
        let (input, output) = (layer.shape.input, layer.shape.output);
        self.multiply(rows.saturating_mul(input), output);
        self.multiply(rows.saturating_mul(rank(layer)), input.saturating_add(output).saturating_mul(2));
    }
}
