//! A mixture of experts: tokens that go to the GPUs that have their experts and come back, grouped products, shared experts.
//!
//! Source: megatron/core/transformer/moe/{moe_layer,token_dispatcher,experts,shared_experts}.py of Megatron-core 0.16.1;
//! transformer_engine/pytorch/{permutation.py,triton/permutation.py,module/grouped_linear.py} of Transformer Engine 2.11.

use super::chunks::{Chunks, PERMUTATION};
use super::router::{Routed, capacity};
use super::{GATED, GATED_GRADIENT};
use crate::dtype::Dtype;
use crate::model::blocks::{Mlp, Moe};
use crate::step::autograd::{Grad, Results, fresh, only};
use crate::step::forward::{BoundLayer, Pass};
use crate::step::heap::{NOTHING, StorageId};
use crate::step::machine::State;
use crate::step::ops::experts::Expert;
use crate::step::parallel::{Parallel, TunedKernel};
use crate::step::tensor::{Layout, Tensor, Value};
use crate::step::what::{Source, What, roles, torch};

const GROUPED: Source = Source::At("Transformer Engine, transformer_engine/pytorch/module/grouped_linear.py");

static ROWS: What = What::own(
    "row map",
    "for each token which rows of the experts' input are its own, and of which experts: two numbers per token and expert",
    PERMUTATION,
);
static ROW_ZEROS: What = What::own(
    "zeros",
    "the gradient of the row map, which autograd makes though nobody reads it",
    PERMUTATION,
);
static PERMUTED: What = What::own(
    "permuted tokens",
    "a row for each token and expert that it goes to, expert after expert; or its gradient",
    PERMUTATION,
);
static UNPERMUTED: What =
    What::own("unpermuted tokens", "the sums of each token's rows, or their gradient", PERMUTATION);
static CHANCES: What =
    What::own("permuted probabilities", "how much each row of the experts' input counts", PERMUTATION);
static GROUPED_PRODUCT: What =
    What::own("grouped product", "the products of each expert's rows with its matrix", GROUPED);

/// What the token dispatcher has as an attribute, among [`Held::dispatched`](crate::step::parallel::Held::dispatched).
#[derive(Clone, Copy)]
enum Attribute {
    Probabilities,
    RoutingMap,
    RowMap,
}

impl<'a> Pass<'_, 'a> {
    /// `MoELayer.forward`.
    pub(super) fn te_experts(&self, layer: &BoundLayer<'a>, moe: &Moe, x: &Tensor<'a>) -> Tensor<'a> {
        let shared = moe.shared.as_ref().map(|shared| self.te_shared_expert(layer, shared, x));
        let Routed { probabilities, map } =
            self.within("router", &roles::ROUTER, || self.te_routed(layer, moe, x));
        self.within("experts", &roles::EXPERTS, || {
            self.hold(layer.number, Attribute::Probabilities, &probabilities);
            self.hold(layer.number, Attribute::RoutingMap, &map);
            let tokens = x.value.numel / moe.hidden.max(1);
            let chunks = self.chunks(moe, tokens);
            if !self.fills_up() {
                drop(self.tokens_of_experts(moe, &map));
            }
            drop(map);
            let all = moe.router.output;
            let rows =
                x.beside(tokens.saturating_mul(all.saturating_mul(2).saturating_add(1)), Dtype::I32, &ROWS);
            let [permuted, chances] =
                x.viewed().permuted_by(&probabilities, &rows, (chunks.sent, moe.hidden));
            drop(probabilities);
            self.hold(layer.number, Attribute::RowMap, &rows);
            let sent = permuted.exchanged(chunks, chunks.came);
            let sent_chances = chances.exchanged(chunks, chunks.came);
            drop(chances);
            let combined = {
                let ordered = self.te_routed_experts(layer, (&sent, &sent_chances), chunks);
                ordered.exchanged(chunks, chunks.sent)
            };
            let unpermuted = combined.unpermuted_by(&rows, x.value.numel);
            let output = match &shared {
                Some(shared) => unpermuted.add(shared),
                None => unpermuted.clone(),
            };
            drop(unpermuted);
            drop(combined);
            drop(permuted);
            drop(shared);
            drop(sent_chances);
            drop(sent);
            output
        })
    }

    /// How many rows come to a GPU's experts of so many tokens.
    fn chunks(&self, moe: &Moe, tokens: u64) -> Chunks {
        let (all, gpus) = (moe.router.output.max(1), self.expert_parallel());
        let padded = self.fills_up();
        let sent = match padded {
            true => capacity(tokens, moe).saturating_mul(all),
            false => tokens.saturating_mul(moe.top_k),
        };
        // as many each, of which the first have one more where they do not divide: the first GPU's
        let own = (sent / all).saturating_mul(moe.experts).saturating_add((sent % all).min(moe.experts));
        let came = own.saturating_mul(gpus);
        Chunks { sent, came, experts: moe.experts, gpus, sharing: self.sharing().tensor.max(1), padded }
    }

    /// `MoELayer.routed_experts_compute` of what came for this GPU's experts: sorted by expert, `TEGroupedMLP.forward`, and as it came.
    fn te_routed_experts(
        &self,
        layer: &BoundLayer<'a>,
        (sent, chances): (&Tensor<'a>, &Tensor<'a>),
        chunks: Chunks,
    ) -> Tensor<'a> {
        let half = layer.experts.len() / 2;
        let (Some(first), Some(second)) = (layer.experts.first(), layer.experts.get(half)) else {
            return sent.unmodelled("experts without two layers");
        };
        let [given, weights] = sent.given_to_experts(chances, chunks);
        let made = {
            let joint = given.grouped_through(first);
            let product = joint.te_weighted(&weights);
            product.grouped_through(second)
        };
        drop(given);
        drop(weights);
        made.given_back(chunks)
    }

    /// `SharedExpertMLP.forward`.
    fn te_shared_expert(&self, layer: &BoundLayer<'a>, shared: &Mlp, x: &Tensor<'a>) -> Tensor<'a> {
        let Mlp::GatedFused { gate_up, down, .. } = shared else {
            return x.unmodelled("a shared expert that Megatron-core has nowhere");
        };
        let sharing = self.sharing();
        let product = {
            let joint = x.te_through(&layer.linear(gate_up), sharing);
            joint.te_gated()
        };
        product.te_through(&layer.linear(down), sharing)
    }

    /// Among how many GPUs experts are divided.
    fn expert_parallel(&self) -> u64 {
        self.machine.with(|state| match &state.parallel {
            Parallel::Megatron(engine) => engine.layout.experts.max(1),
            _ => 1,
        })
    }

    /// An attribute of the layer's token dispatcher is given something else: what it was goes, and with probabilities their graph.
    fn hold(&self, layer: usize, attribute: Attribute, value: &Tensor<'a>) {
        self.machine.with(|state| {
            let recomputing = state.recomputing;
            state.retain(value.value.storage);
            let (mut old, mut leaf) = (value.value.storage, [NOTHING; 2]);
            if let Parallel::Megatron(engine) = &mut state.parallel {
                let held = engine.held(layer);
                std::mem::swap(&mut held.dispatched[attribute as usize], &mut old);
                held.is_recomputed = recomputing;
                if let Attribute::Probabilities = attribute {
                    std::mem::swap(&mut held.leaf, &mut leaf);
                }
            }
            state.release(old);
            leaf.into_iter().for_each(|storage| state.release(storage));
        });
    }
}

impl<'m> Tensor<'m> {
    /// `_moe_permute_mask_map`: so many rows of such a width, and a probability for each.
    fn permuted_by(
        &self,
        probabilities: &Tensor<'m>,
        rows: &Tensor<'m>,
        (count, width): (u64, u64),
    ) -> [Tensor<'m>; 2] {
        let (x, all) = (self.value, probabilities.value);
        let map = (rows.value.storage, rows.value.numel);
        self.machine.tensors(|state| {
            let node = state.split_node(2, [&x, &all], move |state, node, grads| {
                unpermuted_gradients(state, node.inputs.map(|input| input.numel), grads, map.1)
            });
            state.save(node, map.0);
            let mut make = |numel: u64, dtype, what, output| {
                let storage = state.alloc_for(x.storage, numel, dtype, what);
                state.take_rows(storage, x.storage, count);
                Value::plain(storage, numel, dtype).at(node.output(output))
            };
            let made = [
                make(count.saturating_mul(width), x.dtype, &PERMUTED, 0),
                make(count, all.dtype, &CHANCES, 1),
            ];
            state.tune(TunedKernel::Permute, 0);
            made
        })
    }

    /// `_moe_unpermute_mask_map` to so many elements.
    fn unpermuted_by(&self, rows: &Tensor<'m>, numel: u64) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], |state, node, grad| {
                let rows = fresh(state, grad, (node.inputs[0].numel, Layout::Tokens), &PERMUTED);
                state.tune(TunedKernel::UnpermuteBackward, 0);
                only(rows)
            });
            state.save(node, rows.value.storage);
            let storage = state.alloc_for(x.storage, numel, x.dtype, &UNPERMUTED);
            state.tune(TunedKernel::Unpermute, 0);
            let dims = state.by_tokens();
            state.note_dims(storage, dims);
            Value::plain(storage, numel, x.dtype).at(node.output(0))
        })
    }

    /// `GroupedLinear`, whose products add the weights' gradients to the gradient buffer.
    fn grouped_through(&self, expert: &Expert) -> Tensor<'m> {
        let (input, output) = (expert.input.max(1), expert.output);
        self.apply(|state, x| {
            state.keep_grouped_workspaces();
            let numel = (x.numel / input).saturating_mul(output);
            let node = state.node([x], move |state, node, grad| {
                let given = node.inputs[0].numel;
                state.multiply(given, output);
                let storage = state.alloc_for(grad.storage, given, grad.dtype, &torch::INPUT_GRADIENT);
                // the weights' gradients, all experts' together
                state.multiply(grad.numel, input);
                only(Grad { view: true, ..Grad::new(storage, given, grad.dtype, Layout::Tokens) })
            });
            state.save_view(node, x);
            state.multiply(numel, input);
            let storage = state.alloc_for(x.storage, numel, x.dtype, &GROUPED_PRODUCT);
            state.take_rows(storage, x.storage, x.numel / input);
            Value::plain(storage, numel, x.dtype).at(node.output(0))
        })
    }

    /// `WeightedSwiGLUFunction`: keeps its input and the probabilities.
    fn te_weighted(&self, weights: &Tensor<'m>) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x, &weights.value], |state, node, grad| {
                let [all, weights, _] = node.inputs;
                let mut results: Results = only(fresh(state, grad, (all.numel, all.layout), &GATED_GRADIENT));
                results[1] = Some(fresh(state, grad, (weights.numel, weights.layout), &CHANCES));
                results
            });
            state.save_view(node, x);
            state.save(node, weights.value.storage);
            let half = Value { numel: x.numel / 2, ..*x };
            state.new_like(&half, x.dtype, &GATED, node.output(0))
        })
    }
}

impl State {
    /// The workspaces that Transformer Engine gives cuBLAS for the products of experts.
    fn keep_grouped_workspaces(&mut self) {
        let State { heap, parallel, .. } = self;
        if let Parallel::Megatron(engine) = parallel {
            engine.keep_grouped_workspaces(heap);
        }
    }
}

/// The gradients of tokens and of probabilities; that of the row map is made first, as an output of the function.
fn unpermuted_gradients(state: &mut State, [tokens, all, _]: [u64; 3], grads: &Results, map: u64) -> Results {
    let mut results: Results = Default::default();
    let Some(grad) = grads.iter().flatten().next().copied() else { return results };
    let zeros: StorageId = state.alloc(map, Dtype::I32, &ROW_ZEROS);
    results[0] = Some(fresh(state, &grad, (tokens, Layout::Tokens), &UNPERMUTED));
    results[1] = Some(fresh(state, &grad, (all, Layout::Tokens), &CHANCES));
    state.tune(TunedKernel::PermuteBackward, 0);
    state.release(zeros);
    results
}
