//! Megatron-core's modules, as `get_gpt_layer_local_spec` puts them together: one projection for queries, keys and values,
//! attention written out with its scores in a buffer beside, one projection for gate and up, linear layers that make the
//! gradient of their input before their weight's.
//!
//! Source: megatron/core/transformer/{transformer_layer,attention,dot_product_attention,mlp}.py,
//! megatron/core/tensor_parallel/layers.py, megatron/core/models/gpt/gpt_model.py and
//! megatron/core/models/common/embeddings of Megatron-core 0.16.1. Compared with the allocator's trace of that code.

mod build;
mod experts;
mod functions;
mod gpt;
mod heads;
mod loss;
mod parts;
mod refused;
mod share;
mod te;

use std::cell::RefCell;

use crate::dtype::Dtype;
use crate::memory::Category;
use crate::model::blocks::{
    Activation, Attention, Block, FeedForward, Latent, Mixer, Mlp, Projection, Wiring,
};
use crate::scenario::{Checkpointing, ContextComm};
use crate::step::forward::{BoundLayer, Pass};
use crate::step::heap::{NOTHING, StorageId};
use crate::step::machine::State;
use crate::step::ops::matmul::bmm_backward;
use crate::step::parallel::Parallel;
use crate::step::repeat::Alike;
use crate::step::tensor::{Layout, Tensor, Value};
use crate::step::what::{Source, What, roles, torch};
pub(super) use build::architecture;
use functions::Sharing;
pub(in crate::step::forward) use parts::holds;
pub(in crate::step) use share::{Share, micro_batches};

const MEMORY_BUFFER: Source = Source::At("Megatron-core, megatron/core/utils.py, GlobalMemoryBuffer");

static SCORES_BUFFER: What = What::own(
    "scores buffer",
    "what attention's product of queries and keys is given to add to and does not: made once, as large as the scores",
    MEMORY_BUFFER,
);
static ROTARY_TABLE: What = What::own(
    "rotary embedding",
    "the angles of all positions, kept from the first forward pass on",
    Source::At("Megatron-core, megatron/core/models/common/embeddings/rotary_pos_embedding.py"),
);
static OUTSIDE_VOCABULARY: What =
    What::own("outside of the vocabulary's part", "which tokens other GPUs look up", Source::Modeling);

/// What the parts of a pass share, and what running a part again is given.
pub(in crate::step) struct Shared {
    /// The mask, which graphs hold.
    mask: Value,
    /// Keys and values of each attention that is recomputed by itself.
    attended: RefCell<Vec<[Value; 2]>>,
}

/// What a part of the model made.
pub(in crate::step) struct Made<'a> {
    /// The loss, or the hidden states that the next stage is given.
    pub output: Tensor<'a>,
    pub shared: Shared,
}

impl<'a> Pass<'_, 'a> {
    /// The harness' forward step over the part of that number: the batch, then `GPTModel.forward`. `given` is what the stage
    /// before made.
    pub fn megatron(&self, number: usize, given: Option<&Tensor<'a>>) -> Made<'a> {
        self.enter();
        let part = self.part();
        let (tokens, length) = (self.batch.tokens(), self.batch.length);
        let ids = self.of_tokens(tokens, Dtype::I64, &torch::IDS);
        let positions = {
            let range = self.of_positions(length, Dtype::I64, &torch::RANGE);
            if self.batch.sequences > 1 {
                self.of_tokens(tokens, Dtype::I64, &torch::POSITIONS)
            } else {
                range
            }
        };
        let masks = build::is_gpt(self.architecture).then(|| self.gpt_masks());
        // Transformer Engine's kernels know that the mask is causal
        let mask = if self.has_transformer_engine() {
            self.machine.unassigned()
        } else {
            let mask = self.constant(length.saturating_mul(length), Dtype::Bool, &torch::MASK);
            // one for all layers
            self.machine.with(|state| state.share(mask.value.storage));
            mask
        };
        let shared = Shared { mask: mask.value, attended: RefCell::default() };
        let mut hidden = match given {
            Some(given) => given.clone(),
            None => self.machine.as_category(Category::Activations, &roles::EMBEDDING, || {
                self.megatron_embedding(&ids, &positions)
            }),
        };
        self.keep_rotary(number);
        let is_last = part.is_last && number + 1 == part.times;
        // an embedding alone multiplies nothing
        if is_last || part.layers(number) > 0 {
            self.keep_workspace();
        }
        let groups = self.part_groups.get(number).cloned().unwrap_or_default();
        for group in self.layer_groups.get(groups).unwrap_or_default() {
            if group.times > 1 && !self.has_transformer_engine() {
                self.keep_scores();
            }
            let mut variables = [hidden];
            let alike = Alike::All { held: &mut None, given: None };
            self.machine.repeat(group.times.into(), alike, &mut variables, &mut |[hidden], _| {
                for index in &group.layers {
                    *hidden = self.megatron_layer_or_checkpoint(*index, hidden, &shared);
                }
            });
            [hidden] = variables;
        }
        let output = if is_last { self.megatron_head(hidden, &ids) } else { hidden };
        drop(ids);
        drop(positions);
        drop(mask);
        drop(masks);
        let output = if is_last { output.mean_of_all() } else { output };
        Made { output, shared }
    }

    /// The part of the model that the rank holds.
    pub fn part(&self) -> Share {
        self.model.part.unwrap_or(Share::WHOLE)
    }

    /// `LanguageModelEmbedding.forward`: with others each GPU looks up its rows of the vocabulary.
    fn megatron_embedding(&self, ids: &Tensor<'a>, positions: &Tensor<'a>) -> Tensor<'a> {
        let table = &self.architecture.embeddings.tokens;
        let tokens = self.batch.tokens();
        let (divided, sharing) = (self.is_divided(), self.sharing());
        let hidden = self.within(table.name, &roles::EMBEDDING, || {
            let looked_up = |ids: StorageId| {
                let embed =
                    |state: &mut State| state.embedding(self.outside.tokens, ids, tokens, table.width);
                self.machine.tensor(embed)
            };
            if !divided {
                return looked_up(ids.value.storage);
            }
            let outside = {
                let below = self.of_tokens(tokens, Dtype::Bool, &OUTSIDE_VOCABULARY);
                let above = self.of_tokens(tokens, Dtype::Bool, &OUTSIDE_VOCABULARY);
                let outside = self.of_tokens(tokens, Dtype::Bool, &OUTSIDE_VOCABULARY);
                drop(below);
                drop(above);
                outside
            };
            let masked = {
                let copy = self.of_tokens(tokens, Dtype::I64, &torch::CLONE);
                let masked = self.of_tokens(tokens, Dtype::I64, &torch::IDS);
                drop(copy);
                masked
            };
            let own = looked_up(masked.value.storage).masked_fill_in_place(&outside);
            // where positions are added to what was looked up each GPU has all tokens until then
            if !sharing.sequence || self.outside.positions.is_some() {
                self.machine.with(|state| state.all_reduce(own.value.bytes()));
            }
            own
        });
        let looked_up = self.architecture.embeddings.positions.as_ref();
        let (hidden, parts) = match (looked_up, self.outside.positions) {
            (Some(table), Some(id)) => {
                let positions = self.within(table.name, &roles::EMBEDDING, || {
                    let at = positions.value.storage;
                    self.machine.tensor(|state| state.embedding(id, at, tokens, table.width))
                });
                (hidden.add(&positions), Some((hidden, positions)))
            }
            _ => (hidden, None),
        };
        // sequences first
        let first = if self.batch.sequences > 1 && self.batch.length > 1 {
            hidden.sequence_first()
        } else {
            hidden.viewed()
        };
        drop(hidden);
        let own = if sharing.sequence {
            let scattered = match looked_up {
                Some(_) => first.tokens_sliced(sharing),
                None => first.tokens_scattered(sharing),
            };
            drop(first);
            // `clone_scatter_output_in_embedding`, so that what was scattered can go
            scattered.dense_copy()
        } else {
            first
        };
        let dropped = own.dropout(self.dropout(self.architecture.embeddings.dropout));
        drop(own);
        drop(parts);
        dropped
    }

    /// Whether other GPUs have parts of every layer.
    fn is_divided(&self) -> bool {
        self.machine
            .with(|state| matches!(&state.parallel, Parallel::Megatron(engine) if engine.is_divided()))
    }

    /// Whether layers are Transformer Engine's.
    fn has_transformer_engine(&self) -> bool {
        self.machine.with(
            |state| matches!(&state.parallel, Parallel::Megatron(engine) if engine.layout.has_transformer_engine()),
        )
    }

    /// How GPUs share a layer.
    fn sharing(&self) -> Sharing {
        self.machine.with(|state| match &state.parallel {
            Parallel::Megatron(engine) => {
                let tensor = engine.layout.tensor.max(1);
                let sequence = engine.layout.sequence && tensor > 1;
                let rings = engine.layout.context_comm == ContextComm::P2p;
                Sharing { tensor, sequence, context: engine.layout.context.max(1), rings }
            }
            _ => Sharing { tensor: 1, sequence: false, context: 1, rings: false },
        })
    }

    /// Transformer Engine's workspace, which its first product makes.
    fn keep_workspace(&self) {
        self.machine.with(|state| {
            let State { heap, parallel, .. } = state;
            if let Parallel::Megatron(engine) = parallel
                && engine.layout.has_transformer_engine()
            {
                engine.keep_workspace(heap);
            }
        });
    }

    fn keep_rotary(&self, number: usize) {
        // latent attention has tables of its own
        let Some(width) = self.attentions().find_map(|attention| attention.rotary.width(attention.head_dim))
        else {
            return;
        };
        let bytes = self.batch.length.saturating_mul(width).saturating_mul(Dtype::F32.bytes());
        self.machine.with(|state| {
            let known = match &state.parallel {
                Parallel::Megatron(engine) => engine.rotary.len() > number,
                _ => true,
            };
            if !known {
                let table = state.persistent(bytes, Dtype::F32, 1, Category::Activations, &ROTARY_TABLE);
                if let Parallel::Megatron(engine) = &mut state.parallel {
                    engine.rotary.push(table);
                }
            }
        });
    }

    /// The latent attentions of the model.
    fn latents(&self) -> impl Iterator<Item = &'a Latent> {
        let latent = |block: &'a Block| match &block.mixer {
            Mixer::Latent(latent) => Some(latent),
            _ => None,
        };
        self.architecture.blocks.iter().filter_map(latent)
    }

    /// `GlobalMemoryBuffer.get_tensor` of attention's scores.
    fn keep_scores(&self) {
        let scores = |attention: &Attention| self.batch.tokens().saturating_mul(attention.heads);
        let rows = self.attentions().map(scores).max().unwrap_or(0);
        let bytes = rows.saturating_mul(self.batch.length).saturating_mul(Dtype::Bf16.bytes());
        self.machine.with(|state| {
            let known = match &state.parallel {
                Parallel::Megatron(engine) => engine.scores != NOTHING,
                _ => true,
            };
            if !known {
                let buffer = state.persistent(bytes, Dtype::Bf16, 1, Category::Activations, &SCORES_BUFFER);
                if let Parallel::Megatron(engine) = &mut state.parallel {
                    engine.scores = buffer;
                }
            }
        });
    }

    fn megatron_layer_or_checkpoint(&self, index: usize, hidden: &Tensor<'a>, shared: &Shared) -> Tensor<'a> {
        match self.checkpointing() {
            Checkpointing::Off | Checkpointing::Selective => self.either_layer(index, hidden, shared),
            Checkpointing::NonReentrant
            | Checkpointing::Reentrant
            | Checkpointing::Alternate
            | Checkpointing::Operations
            | Checkpointing::Offloaded => {
                let arguments = [shared.mask.storage, NOTHING, NOTHING, NOTHING, NOTHING];
                self.machine
                    .checkpointed(index, hidden, arguments, || self.either_layer(index, hidden, shared))
            }
        }
    }

    /// A layer of Transformer Engine's or of Megatron's own.
    fn either_layer(&self, index: usize, hidden: &Tensor<'a>, shared: &Shared) -> Tensor<'a> {
        self.machine.enter_layer(index);
        let output = if self.has_transformer_engine() {
            self.te_layer(&self.layers[index], hidden, shared)
        } else {
            self.megatron_layer(&self.layers[index], hidden, shared)
        };
        self.machine.leave_layer();
        output
    }

    /// Runs what was checkpointed again: a layer, or an attention alone.
    pub fn megatron_again(&self, number: usize, input: Tensor<'a>, shared: &Shared) {
        let output = if self.checkpointing() == Checkpointing::Selective {
            let [key, value] = shared.attended.borrow()[number].map(|value| {
                self.machine.with(|state| state.retain(value.storage));
                Tensor { machine: self.machine, value }
            });
            // every layer's attention has the same heads
            let latent =
                self.latents().next().map(|latent| self.te_latent_core(latent, &input, [&key, &value]));
            let attended = || {
                let attention = self.attentions().next();
                attention.map(|attention| match self.has_transformer_engine() {
                    true => self.te_core(attention, &input, &key, &value),
                    false => self.megatron_core(attention, &input, key.clone(), value.clone(), shared),
                })
            };
            latent.or_else(attended)
        } else {
            Some(self.either_layer(number, &input, shared))
        };
        let kept = output.as_ref().map_or(NOTHING, |output| output.value.storage);
        self.machine.with(|state| state.keep_output(kept));
        drop(output);
    }

    /// `TransformerLayer.forward`.
    fn megatron_layer(&self, layer: &BoundLayer<'a>, hidden: &Tensor<'a>, shared: &Shared) -> Tensor<'a> {
        let (Wiring::PreNorm { attention, mlp }, Some(mixer)) =
            (&layer.block.wiring, layer.block.mixer.attention())
        else {
            return hidden.unmodelled("a layer that Megatron-core has nowhere");
        };
        let attended = {
            let normed = hidden.megatron_normed(layer, attention.name);
            let attended = self.within("self_attention", &roles::ATTENTION, || {
                self.megatron_attention(layer, mixer, &normed, shared)
            });
            let sum = hidden.add(&attended);
            drop(attended);
            drop(normed);
            sum
        };
        let normed = attended.megatron_normed(layer, mlp.name);
        let fed = self.within("mlp", &roles::FEED_FORWARD, || self.megatron_mlp(layer, &normed));
        let output = attended.add(&fed);
        drop(fed);
        drop(normed);
        output
    }

    /// `SelfAttention.forward`.
    fn megatron_attention(
        &self,
        layer: &BoundLayer<'a>,
        attention: &Attention,
        x: &Tensor<'a>,
        shared: &Shared,
    ) -> Tensor<'a> {
        let (Projection::Fused(joint), tokens) = (&attention.projection, self.batch.tokens()) else {
            return x.unmodelled("projections that Megatron-core has as one");
        };
        let numel = |heads: u64| tokens.saturating_mul(heads).saturating_mul(attention.head_dim);
        let (queries, keys) = (numel(attention.heads), numel(attention.kv_heads));
        let mixed = x.megatron_through(&layer.linear(joint));
        let [query, key, value] = mixed.split([queries, keys, keys]);
        // heads lie in groups, each with its keys and values: a reshape of several copies the queries
        let grouped = attention.kv_heads > 1 && attention.heads > attention.kv_heads;
        let query = if grouped { query.dense_copy() } else { query };
        let [query, key] = self.heads_normed(layer, attention, [query, key], grouped);
        let roped = query.megatron_roped(attention.head_dim, self.batch.length);
        let key_roped = key.megatron_roped(attention.head_dim, self.batch.length);
        let context = if self.checkpointing() == Checkpointing::Selective {
            let number = {
                let mut attended = shared.attended.borrow_mut();
                attended.push([key_roped.value, value.value]);
                attended.len() - 1
            };
            let held = [key_roped.value.storage, value.value.storage, shared.mask.storage, NOTHING, NOTHING];
            self.machine.checkpointed(number, &roped, held, || {
                self.megatron_core(attention, &roped, key_roped.clone(), value.clone(), shared)
            })
        } else {
            self.megatron_core(attention, &roped, key_roped.clone(), value.clone(), shared)
        };
        let output = context.megatron_through(&layer.linear(&attention.output));
        drop(context);
        // the last of what the projection made goes first
        drop(key);
        drop(query);
        drop(roped);
        drop(key_roped);
        drop(value);
        drop(mixed);
        output
    }

    /// `DotProductAttention.forward`.
    fn megatron_core(
        &self,
        attention: &Attention,
        query: &Tensor<'a>,
        mut key: Tensor<'a>,
        mut value: Tensor<'a>,
        shared: &Shared,
    ) -> Tensor<'a> {
        let groups = attention.heads / attention.kv_heads.max(1);
        if groups > 1 {
            key = key.repeat_heads(groups);
            value = value.repeat_heads(groups);
        }
        if self.machine.with(|state| state.repeating == 1) {
            self.keep_scores();
        }
        let heads = self.batch.sequences.saturating_mul(attention.heads);
        let numel = heads.saturating_mul(self.batch.length).saturating_mul(self.batch.length);
        let scores = self
            .machine
            .serving(&roles::SCORES, || self.machine.biased_product(None, query, &key, numel).flat_heads());
        let probabilities = self.machine.serving(&roles::PROBABILITIES, || {
            let float = scores.to(Dtype::F32);
            let masked = float.with_mask(shared.mask.storage);
            let softmax = masked.softmax();
            let probabilities = softmax.to(Dtype::Bf16);
            drop(softmax);
            drop(masked);
            drop(float);
            probabilities
        });
        let length = self.batch.length;
        let context = self.machine.tensor(|state| {
            let (a, b) = (&probabilities.value, &value.value);
            let multiplied = query.value.numel.saturating_mul(length);
            let node = state.node([a, b], move |state, node, grad| {
                bmm_backward(state, node, grad, (Layout::Tokens, multiplied))
            });
            if a.requires_grad() {
                state.save_view(node, b);
            }
            if b.requires_grad() {
                state.save_view(node, a);
            }
            let storage = state.alloc_product(query.value.numel, length, a.dtype, &torch::MATMUL);
            state.take_dims(storage, query.value.storage);
            Value::plain(storage, query.value.numel, a.dtype).at(node.output(0))
        });
        if heads > 1 && self.batch.length > 1 {
            let copy = context.dense_copy();
            drop(context);
            copy
        } else {
            context.viewed()
        }
    }

    /// `MLP.forward`.
    fn megatron_mlp(&self, layer: &BoundLayer<'a>, x: &Tensor<'a>) -> Tensor<'a> {
        let FeedForward::Dense(Mlp::GatedFused { gate_up, down, .. }) = &layer.block.ffn else {
            return x.unmodelled("a feed-forward network that Megatron-core has nowhere");
        };
        let product = {
            let joint = x.megatron_through(&layer.linear(gate_up));
            let half = joint.value.numel / 2;
            let [gate, up] = joint.split([half, half]);
            let product = {
                let active = gate.activated(Activation::Silu, &layer.params);
                let shifted = up.add_number();
                let product = active.mul(&shifted);
                drop(active);
                drop(shifted);
                product
            };
            drop((gate, up));
            product
        };
        product.megatron_through(&layer.linear(down))
    }
}
