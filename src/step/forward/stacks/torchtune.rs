//! torchtune's modules as its recipes run them: norms and rotary positions in float32, heads of keys and values
//! copied for every group, logits in chunks of the sequence.
//!
//! Source: torchtune 0.6.1 modules/{transformer,attention,feed_forward,rms_norm,position_embeddings,tied_linear}.py,
//! modules/peft/lora.py, models/qwen2/_positional_embeddings.py, the `_component_builders.py` of its models, and
//! recipes/{full,lora}_finetune_{single_device,distributed}.py. Compared with the allocator's trace of that code.

mod build;
pub(in crate::step::forward) mod positions;

use crate::dtype::Dtype;
use crate::memory::Category;
use crate::model::blocks::{Attention, FeedForward, Mlp, NormKind, Projection, Wiring};
use crate::model::modeling::TorchtuneRotary;
use crate::scenario::LossKernel;
use crate::step::forward::inputs::{Embedded, Shared};
use crate::step::forward::loader::Loader;
use crate::step::forward::{BoundLayer, Pass, find};
use crate::step::heap::NOTHING;
use crate::step::ops::adapted::ADAPTED;
use crate::step::ops::attention::{Arguments, Kernel};
use crate::step::ops::linear::{Adapter, Layer, Shape};
use crate::step::ops::loss;
use crate::step::ops::norm::NormLayer;
use crate::step::ops::pointwise::mul_backward;
use crate::step::params::ParamId;
use crate::step::tensor::{Tensor, Value};
use crate::step::what::{Source, What, roles, torch};

pub(super) use build::architecture;
use positions::{Positions, family};

static CACHE: What = What::own(
    "cache",
    "cosines and sines of the longest sequence: a tensor of the model that is not trained",
    Source::Modeling,
);
static THETA: What = What::own(
    "theta",
    "frequencies of the rotary embedding: a tensor of the model that is not trained",
    Source::Modeling,
);

/// Chunks that the sequence is cut into for the head and the loss (`CEWithChunkedOutputLoss(num_output_chunks=8)`).
const CHUNKS: u64 = 8;

impl Loader<'_> {
    /// `build_rope_cache`.
    pub(in crate::step::forward) fn position_table(&mut self, table: Positions) {
        let Positions { rows, width, doubled, .. } = table;
        let (state, times) = (&mut *self.state, self.times);
        state.module = "pos_embeddings";
        state.persistent(width / 2 * 4, Dtype::F32, times, Category::Buffers, &THETA);
        let angles = rows.saturating_mul(width / 2);
        let entries = if doubled { angles.saturating_mul(2) } else { angles };
        let scratch = [rows, angles, if doubled { entries } else { 0 }, entries, entries];
        let scratch = scratch.map(|count| state.while_loading(count, Dtype::F32));
        let bytes = entries.saturating_mul(8);
        state.persistent(bytes, Dtype::F32, times, Category::Buffers, &CACHE);
        let [index, angles, doubled, cosines, sines] = scratch;
        [sines, cosines, index, angles, doubled].into_iter().for_each(|local| state.release(local));
    }
}

impl<'a> Pass<'_, 'a> {
    /// The embedding alone: torchtune's attention makes its own masks and positions, torchtitan's reads a table.
    pub(in crate::step::forward) fn tokens_alone(&self) -> (Embedded<'a>, Shared<Tensor<'a>>) {
        let hidden = self.embed_tokens();
        (Embedded { hidden, kept: false, positions: None, locals: Vec::new() }, Shared::none())
    }

    /// `TransformerSelfAttentionLayer.forward`.
    pub(in crate::step::forward) fn torchtune_layer(
        &self,
        layer: &BoundLayer<'a>,
        hidden: &Tensor<'a>,
    ) -> Tensor<'a> {
        let Wiring::PreNorm { attention, mlp } = &layer.block.wiring else {
            return hidden.unmodelled("norms that torchtune has nowhere");
        };
        let mut h = hidden.torchtune_normed(&layer.norm(attention));
        let attended = self.within("self_attn", &roles::ATTENTION, || self.torchtune_attention(layer, &h));
        h = attended.add(hidden);
        let fed = {
            let normed = h.torchtune_normed(&layer.norm(mlp));
            self.within("mlp", &roles::FEED_FORWARD, || self.torchtune_mlp(layer, &normed))
        };
        let output = h.add(&fed);
        drop(h);
        drop(attended);
        drop(fed);
        output
    }

    /// `MultiHeadAttention.forward`.
    fn torchtune_attention(&self, layer: &BoundLayer<'a>, x: &Tensor<'a>) -> Tensor<'a> {
        let Some(attention) = layer.block.mixer.attention() else {
            return x.unmodelled("layers without attention");
        };
        let Projection::Separate { q, k, v } = &attention.projection else {
            return x.unmodelled("projections that torchtune keeps apart");
        };
        let mut queries = x.torchtune_through(&layer.linear(q)).split_heads();
        queries = self.torchtune_rotated(attention, &queries);
        queries = queries.heads_first();
        let mut keys = x.torchtune_through(&layer.linear(k));
        let mut values = x.torchtune_through(&layer.linear(v));
        keys = keys.split_heads();
        values = values.split_heads();
        keys = self.torchtune_rotated(attention, &keys);
        let single = attention.kv_heads == 1;
        if !single {
            keys = keys.heads_first();
            values = values.heads_first();
        }
        let groups = attention.heads / attention.kv_heads.max(1);
        // a single head lies the same before and after the tokens, and is expanded in a view
        let expanded =
            |x: &Tensor<'a>| if single { x.expanded_heads(groups) } else { x.repeat_heads(groups) };
        keys = expanded(&keys);
        values = expanded(&values);
        let mut attended = {
            let arguments =
                Arguments { q: &queries, k: &keys, v: &values, mask: None, causal: true, dropout: false };
            self.scaled_dot_product(self.scores(attention, Kernel::Eager, attention.heads), &arguments)
        };
        attended = attended.to_tokens();
        let output = attended.torchtune_through(&layer.linear(&attention.output));
        drop(queries);
        drop(keys);
        drop(values);
        output
    }

    /// The rotary embedding of the model's family.
    fn torchtune_rotated(&self, attention: &Attention, x: &Tensor<'a>) -> Tensor<'a> {
        let Some(family) = family(self.architecture) else {
            return x.unmodelled("a family that torchtune has not");
        };
        self.within("pos_embeddings", &roles::ROTATION, || match family.rotary {
            TorchtuneRotary::Pairs => x.torchtune_rotated_pairs(),
            TorchtuneRotary::Halves => self.torchtune_rotated_halves(attention, x, x.value.dtype),
            TorchtuneRotary::Float32Halves => self.torchtune_rotated_halves(attention, x, Dtype::F32),
        })
    }

    /// `Qwen2RotaryPositionalEmbeddings.forward`: in the input's element type, whose sines and cosines every call makes; or
    /// `Phi3RotaryPositionalEmbeddings.forward`: by the table's float32.
    fn torchtune_rotated_halves(&self, attention: &Attention, x: &Tensor<'a>, dtype: Dtype) -> Tensor<'a> {
        let table = self.batch.length.saturating_mul(attention.head_dim);
        let buffer = || Tensor { machine: self.machine, value: Value::plain(NOTHING, table, Dtype::F32) };
        let cos = buffer().to(dtype);
        let sin = buffer().to(dtype);
        let half = x.value.numel / 2;
        let (first, second) = (x.slice(half), x.slice(half));
        let rotated = {
            let negative = second.negate();
            negative.cat(&first)
        };
        let straight = x.mul_constant(&cos);
        let crossed = rotated.mul_constant(&sin);
        let sum = straight.add(&crossed);
        drop(crossed);
        drop(straight);
        let output = sum.to(x.value.dtype);
        drop(cos);
        drop(sin);
        drop(rotated);
        drop(sum);
        output
    }

    /// `FeedForward.forward`.
    fn torchtune_mlp(&self, layer: &BoundLayer<'a>, x: &Tensor<'a>) -> Tensor<'a> {
        let FeedForward::Dense(Mlp::Gated { gate, up, down, act }) = &layer.block.ffn else {
            return x.unmodelled("a feed-forward network that torchtune has nowhere");
        };
        let mut h = {
            let gated = x.torchtune_through(&layer.linear(gate));
            gated.activated(*act, &layer.params)
        };
        h = {
            let up = x.torchtune_through(&layer.linear(up));
            h.mul(&up)
        };
        h.torchtune_through(&layer.linear(down))
    }

    /// `TransformerDecoder.unembed` and the recipe's `_loss_step`. Returns the loss and the logits, for a loop that keeps
    /// them as those before `_loss_step` did.
    pub(in crate::step::forward) fn torchtune_head(
        &self,
        hidden: Tensor<'a>,
        replace: &dyn Fn(),
    ) -> (Tensor<'a>, Vec<Tensor<'a>>) {
        let name = self.architecture.head.linear.name;
        let head = find(&self.outside.linears, |layer| layer.name == name);
        let normed = self.machine.as_category(Category::Activations, &roles::RESIDUAL, || {
            let norm = self.architecture.final_norm.as_ref();
            norm.map_or_else(
                || hidden.clone(),
                |norm| hidden.torchtune_normed(&find(&self.outside.norms, |bound| bound.name == norm.name)),
            )
        });
        // the hooks that offload are around the model's forward, and not around its head
        self.keep_on_device(true);
        let output = match super::common::loss_kernel(self.member) {
            LossKernel::Full => {
                let logits = {
                    let called = |normed: &Tensor<'a>| normed.torchtune_through(&head).named_logits();
                    let logits = self.machine.chunk_unit(&normed, called);
                    self.leave_forward(logits.to(Dtype::F32))
                };
                drop(normed);
                drop(hidden);
                replace();
                let labels = self.of_tokens(self.batch.tokens(), Dtype::I64, &torch::SHIFTED_LABELS);
                (logits.cross_entropy(&labels), vec![logits])
            }
            // the others are refused by `loss`
            LossKernel::Standard
            | LossKernel::Axolotl
            | LossKernel::LogSoftmax
            | LossKernel::FloatLogits
            | LossKernel::VocabularyChunks
            | LossKernel::Liger
            | LossKernel::Cut
            | LossKernel::TransformerEngine
            | LossKernel::MegatronFused
            | LossKernel::Chunked => self.torchtune_chunks(hidden, normed, &head, replace),
        };
        self.keep_on_device(false);
        output
    }

    /// `CEWithChunkedOutputLoss` over the chunks of `chunked_output`.
    fn torchtune_chunks(
        &self,
        hidden: Tensor<'a>,
        normed: Tensor<'a>,
        head: &Layer,
        replace: &dyn Fn(),
    ) -> (Tensor<'a>, Vec<Tensor<'a>>) {
        let (batch, sequence) = (self.batch.sequences, self.batch.length);
        let lengths = loss::chunks(sequence, sequence.div_ceil(CHUNKS));
        let rows: Vec<u64> = lengths.iter().map(|length| length.saturating_mul(batch)).collect();
        let mut logits: Vec<Tensor<'a>> = {
            let numels: Vec<u64> = rows.iter().map(|rows| rows.saturating_mul(head.shape.input)).collect();
            let chunks = normed.chunks(&numels);
            // of several sequences a chunk is not contiguous: a product with a trained matrix copies it, one with a
            // frozen matrix does not (aten/src/ATen/native/LinearAlgebra.cpp `should_fold`)
            let strided = batch > 1;
            let trained = self.machine.with(|state| state.trains(head));
            let whole = |chunk: &Tensor<'a>| if strided && trained { chunk.copied() } else { chunk.clone() };
            let called = |chunk: &Tensor<'a>| whole(chunk).torchtune_beside(head, strided);
            chunks.iter().map(|chunk| self.machine.chunk_unit(chunk, called)).collect()
        };
        self.machine.leave_chunks(&mut logits);
        drop(normed);
        drop(hidden);
        replace();
        let labels = self.of_tokens(self.batch.tokens(), Dtype::I64, &torch::SHIFTED_LABELS);
        let own: Vec<Tensor<'a>> =
            rows.iter()
                .map(|rows| {
                    if batch > 1 { self.constant(*rows, Dtype::I64, &torch::LABELS) } else { labels.clone() }
                })
                .collect();
        let losses =
            logits.iter().zip(&own).map(|(chunk, labels)| chunk.to(Dtype::F32).cross_entropy(labels));
        let loss = Tensor::total(losses.collect());
        drop(own);
        // a list lets go of its last element first
        logits.reverse();
        (loss.unwrap_or(labels), logits)
    }
}

impl<'m> Tensor<'m> {
    /// `RMSNorm.forward`: `F.rms_norm` of a float32 copy. With a float32 weight it is one kernel; a weight of another
    /// element type sends it through its parts (aten/src/ATen/native/layer_norm.cpp `rms_norm_symint`).
    pub(in crate::step::forward) fn torchtune_normed(&self, norm: &NormLayer) -> Tensor<'m> {
        self.machine.within(norm.name, &roles::NORM, || {
            if let (NormKind::RmsPlusOne, Some(weight)) = (norm.kind, norm.weight) {
                return self.torchtune_gemma_normed(norm.width, weight);
            }
            let x = self.to(Dtype::F32);
            let float = norm
                .weight
                .is_none_or(|weight| self.machine.with(|state| state.params.get(weight).dtype) == Dtype::F32);
            let output = if float {
                x.fused_root_mean_square(norm, false)
            } else {
                x.torchtune_root_mean_square(norm)
            };
            drop(x);
            output.to(self.value.dtype)
        })
    }

    /// `GemmaRMSNorm.forward`: transformers', but for the order of the product's factors.
    fn torchtune_gemma_normed(&self, width: u64, weight: ParamId) -> Tensor<'m> {
        let mut output = self.root_mean_square(width, false).0;
        output = {
            let factor = {
                let float = self.machine.weight(weight).to(Dtype::F32);
                float.add_number()
            };
            output.apply(|state, x| {
                let node = state.row_node([x, &factor.value], mul_backward);
                if x.requires_grad() {
                    state.save(node, factor.value.storage);
                }
                if factor.value.requires_grad() {
                    state.save_view(node, x);
                }
                state.new_like(x, x.dtype, &torch::MUL, node.output(0))
            })
        };
        output.to(self.value.dtype)
    }

    fn torchtune_root_mean_square(&self, norm: &NormLayer) -> Tensor<'m> {
        let inverse = {
            let squares = self.power();
            let mean = squares.mean_rows(norm.width);
            let shifted = mean.add_number_in_place();
            drop(mean);
            let inverse = shifted.rsqrt();
            drop(shifted);
            drop(squares);
            inverse
        };
        let normed = self.mul_rows(&inverse);
        let weighted = match norm.weight {
            None => normed.clone(),
            Some(weight) => normed.apply(|state, x| {
                let weight = state.weight(weight);
                let node = state.row_node([x, &weight], mul_backward);
                if x.requires_grad() {
                    state.save(node, NOTHING);
                }
                if weight.wants() {
                    state.save_view(node, x);
                }
                let product = state.new_like(x, x.dtype, &torch::MUL, node.output(0));
                state.release(weight.storage);
                product
            }),
        };
        drop(normed);
        drop(inverse);
        weighted
    }

    /// `RotaryPositionalEmbeddings.forward` and `Llama3ScaledRoPE.forward`: pairs of neighbours, in float32.
    fn torchtune_rotated_pairs(&self) -> Tensor<'m> {
        let x = self.to(Dtype::F32).viewed();
        let half = x.value.numel / 2;
        let table = Tensor { machine: self.machine, value: Value::plain(NOTHING, half, Dtype::F32) };
        let part = || x.slice(half).mul_constant(&table);
        let first = {
            let (cosine, sine) = (part(), part());
            cosine.minus(&sine)
        };
        let second = {
            let (cosine, sine) = (part(), part());
            cosine.add(&sine)
        };
        let rotated = first.cat(&second);
        drop(second);
        drop(first);
        let rotated = rotated.viewed();
        let output = rotated.to(self.value.dtype);
        drop(x);
        drop(rotated);
        output
    }

    /// `nn.Linear.forward`, `FrozenNF4Linear.forward` or `LoRALinear.forward`.
    pub(in crate::step::forward) fn torchtune_through(&self, layer: &Layer) -> Tensor<'m> {
        self.torchtune_beside(layer, false)
    }

    /// The same; the adapter copies an input that is not contiguous.
    fn torchtune_beside(&self, layer: &Layer, strided: bool) -> Tensor<'m> {
        self.machine.within(layer.name, &roles::PROJECTION, || {
            let base = self.base(layer);
            let Some(Adapter { a, b, rank, dropout, .. }) = layer.adapter else { return base };
            let mut low = {
                let dropped = if strided && !dropout { self.copied() } else { self.dropout(dropout) };
                dropped.parameter_product(Shape { input: layer.shape.input, output: rank }, a)
            };
            low = {
                let high = low.parameter_product(Shape { input: rank, output: layer.shape.output }, b);
                high.scale()
            };
            let sum = base.add_as(&low, &ADAPTED);
            drop(base);
            drop(low);
            sum
        })
    }
}
