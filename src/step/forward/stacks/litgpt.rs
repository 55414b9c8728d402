//! litgpt's modules: one projection for queries, keys and values; an untied head; logits in chunks, in float32.
//!
//! Source: litgpt 0.5.13 model.py, lora.py, finetune/lora.py and finetune/full.py, utils.py `chunked_cross_entropy`; the
//! conversion of the model's outputs is Fabric's (lightning 2.6 fabric/wrappers.py). Compared with the allocator's trace
//! of that code.

use crate::dtype::Dtype;
use crate::issue::{Field, Issue};
use crate::job::Member;
use crate::model::Architecture;
use crate::model::blocks::{
    Activation, Attention, FeedForward, Linear, Mixer, Mlp, NormKind, Projection, Wiring,
};
use crate::scenario::{LoraTargets, Method};
use crate::step::autograd::{Grad, Node, Results, like};
use crate::step::forward::inputs::{Embedded, Shared};
use crate::step::forward::loader::Loader;
use crate::step::forward::{BoundLayer, Pass, find};
use crate::step::heap::NOTHING;
use crate::step::machine::State;
use crate::step::ops::adapted::ADAPTED;
use crate::step::ops::attention::{Arguments, Kernel};
use crate::step::ops::indexing::index_copy_backward;
use crate::step::ops::linear::{self, Adapter};
use crate::step::ops::loss;
use crate::step::ops::matmul::{multiplications, product_backward};
use crate::step::ops::norm::NormLayer;
use crate::step::params::ParamId;
use crate::step::tensor::{Layout, Tensor, Value};
use crate::step::what::{Source, What, roles, torch};

static CONV1D: What =
    What::own("conv1d", "what an adapter adds, for one of queries, keys and values", Source::Adapters);

/// Tokens of a chunk of the head and of the cross entropy (`lm_head_chunk_size=128`, `chunk_size=128`).
const CHUNK: u64 = 128;

/// Name of the joint projection.
const QKV: &str = "self_attn.qkv";

/// transformers' blocks as litgpt builds them.
pub(super) fn architecture(architecture: &Architecture) -> Result<Architecture, Issue> {
    let refuse = |what: &str| {
        let message = format!("litgpt's {} is not modelled: {what}", architecture.model_type);
        Err(Issue::error(Field::Stack, message).with_fix("choose transformers"))
    };
    if architecture.encoder.is_some() {
        return refuse("an encoder beside its decoder");
    }
    let mut own = architecture.clone();
    for block in &mut own.blocks {
        let Mixer::Attention(attention) = &mut block.mixer else {
            return refuse("layers without softmax attention");
        };
        if attention.rotary.width(attention.head_dim).is_none() {
            return refuse("no rotary positions");
        }
        if attention.softcap || attention.qk_norm.is_some() {
            return refuse("attention with a cap or with norms");
        }
        // the library's mask of a window is a later addition: every published figure is older
        attention.window = None;
        if let Projection::Separate { q, k, v } = &attention.projection {
            let output = q.output.saturating_add(k.output).saturating_add(v.output);
            attention.projection = Projection::Fused(Linear::new(QKV, q.input, output).with_bias(q.bias));
        }
        let FeedForward::Dense(mlp) = &mut block.ffn else { return refuse("experts") };
        if let Mlp::Plain { act: act @ Activation::GeluNew, .. } = mlp {
            *act = Activation::GeluTanh;
        }
        if let Mlp::GatedFused { gate_up, down, act } = mlp {
            let half = |name| Linear::new(name, gate_up.input, gate_up.output / 2).with_bias(gate_up.bias);
            let (gate, up) = (half("mlp.gate_proj"), half("mlp.up_proj"));
            *mlp = Mlp::Gated { gate, up, down: down.clone(), act: *act };
        }
        if !matches!(block.wiring, Wiring::PreNorm { .. } | Wiring::Parallel { .. }) {
            return refuse("norms behind its halves");
        }
    }
    own.head.tied = false;
    Ok(own)
}

/// Which of queries, keys and values get adapters.
fn adapted(member: &Member) -> [bool; 3] {
    let modules = member.lora.modules;
    let named = |names: [&str; 2]| names.into_iter().any(|name| modules.adapts(name));
    match (member.method, member.lora.targets) {
        (Method::Full, _) | (_, LoraTargets::Mlp) => [false; 3],
        (_, LoraTargets::AllLinear | LoraTargets::AllLinearAndHead | LoraTargets::Attention) => [true; 3],
        (_, LoraTargets::Qv) => [true, false, true],
        (_, LoraTargets::Named) => [["q_proj", "query"], ["k_proj", "key"], ["v_proj", "value"]].map(named),
    }
}

/// Columns of each adapted part of the joint projection.
fn adapted_widths(attention: &Attention, member: &Member) -> impl Iterator<Item = u64> {
    let heads = [attention.heads, attention.kv_heads, attention.kv_heads];
    let width = attention.head_dim;
    adapted(member)
        .into_iter()
        .zip(heads)
        .filter(|(on, _)| *on)
        .map(move |(_, heads)| heads.saturating_mul(width))
}

impl Loader<'_> {
    /// The joint projection with its adapters one under the other (`LoRAQKVLinear`).
    pub(in crate::step::forward) fn litgpt_qkv(
        &mut self,
        attention: &Attention,
        spec: &Linear,
    ) -> linear::Layer {
        let mut layer = self.linear(spec, false, true);
        let (count, width) = adapted_widths(attention, self.member)
            .fold((0, 0), |(count, sum): (u64, u64), width| (count + 1, sum.saturating_add(width)));
        if count > 0 {
            let rank = self.member.lora.rank;
            layer.adapter =
                Some(self.adapter_of((rank.saturating_mul(count), spec.input), (width, rank), None));
        }
        layer
    }
}

impl<'a> Pass<'_, 'a> {
    /// The embedding; cosines and sines are buffers.
    pub(in crate::step::forward) fn litgpt_inputs(&self) -> (Embedded<'a>, Shared<Tensor<'a>>) {
        let hidden = self.embed_tokens();
        let width = self.attentions().find_map(|attention| attention.rotary.width(attention.head_dim));
        let buffer =
            |numel| Tensor { machine: self.machine, value: Value::plain(NOTHING, numel, Dtype::F32) };
        let rotary = width.map(|width| {
            let numel = self.batch.length.saturating_mul(width);
            (buffer(numel), buffer(numel))
        });
        let embedded = Embedded { hidden, kept: false, positions: None, locals: Vec::new() };
        (embedded, Shared { rotary, ..Shared::none() })
    }

    /// `Block.forward`.
    pub(in crate::step::forward) fn litgpt_layer(
        &self,
        layer: &BoundLayer<'a>,
        hidden: &Tensor<'a>,
        shared: &Shared<Tensor<'a>>,
    ) -> Tensor<'a> {
        let (first, second, parallel) = match &layer.block.wiring {
            Wiring::Parallel { attention, mlp } => (attention, mlp.as_ref(), true),
            Wiring::PreNorm { attention, mlp } => (attention, Some(mlp), false),
            Wiring::Sandwich { .. }
            | Wiring::PostNorm { .. }
            | Wiring::OutputNorm { .. }
            | Wiring::Single { .. } => return hidden.unmodelled("norms that litgpt has nowhere"),
        };
        let second = second.map(|norm| layer.norm(norm));
        let mut normed = hidden.litgpt_normed(&layer.norm(first));
        let attended =
            self.within("self_attn", &roles::ATTENTION, || self.litgpt_attention(layer, &normed, shared));
        if let Some(norm) = second.filter(|_| parallel) {
            normed = hidden.litgpt_normed(&norm);
        }
        let sum = attended.add(hidden);
        if let Some(norm) = second.filter(|_| !parallel) {
            normed = sum.litgpt_normed(&norm);
        }
        let output = {
            let fed = self.within("mlp", &roles::FEED_FORWARD, || self.litgpt_mlp(layer, &normed));
            fed.add(&sum)
        };
        drop(sum);
        drop(normed);
        drop(attended);
        output
    }

    /// `CausalSelfAttention.forward`.
    fn litgpt_attention(
        &self,
        layer: &BoundLayer<'a>,
        x: &Tensor<'a>,
        shared: &Shared<Tensor<'a>>,
    ) -> Tensor<'a> {
        let Some(attention) = layer.block.mixer.attention() else {
            return x.unmodelled("layers without attention");
        };
        let Projection::Fused(spec) = &attention.projection else {
            return x.unmodelled("projections that litgpt has as one");
        };
        let tokens = self.batch.tokens();
        let numel = |heads: u64| tokens.saturating_mul(heads).saturating_mul(attention.head_dim);
        let (queries, keys) = (numel(attention.heads), numel(attention.kv_heads));
        let joint = x.litgpt_joint(&layer.linear(spec), adapted_widths(attention, self.member), tokens);
        let [mut q, mut k, mut v] = joint.split([queries, keys, keys]).map(|part| part.to_heads());
        let mut roped = None;
        if let Some((cos, sin)) = &shared.rotary {
            let width = attention.rotary.width(attention.head_dim).unwrap_or(0);
            let turn = |x: &Tensor<'a>| {
                let front = x.slice(x.value.numel / attention.head_dim.max(1) * width);
                front.litgpt_roped(cos, sin)
            };
            let (q_roped, k_roped) = (turn(&q), turn(&k));
            let join = |roped: &Tensor<'a>, x: &Tensor<'a>| {
                roped.cat(&x.slice(x.value.numel.saturating_sub(roped.value.numel)))
            };
            q = join(&q_roped, &q);
            k = join(&k_roped, &k);
            roped = Some((q_roped, k_roped));
        }
        let groups = attention.heads / attention.kv_heads.max(1);
        k = k.repeat_heads(groups);
        v = v.repeat_heads(groups);
        let attended = {
            let scores = self.scores(attention, Kernel::Eager, attention.heads);
            let causal = attention.causal;
            self.scaled_dot_product(
                scores,
                &Arguments { q: &q, k: &k, v: &v, mask: None, causal, dropout: false },
            )
        };
        let attended = attended.to_tokens();
        let output = attended.through(&layer.linear(&attention.output));
        drop(joint);
        drop((q, k, v));
        drop(roped);
        output
    }

    /// `LLaMAMLP.forward`, `GemmaMLP.forward`, `GptNeoxMLP.forward`.
    fn litgpt_mlp(&self, layer: &BoundLayer<'a>, x: &Tensor<'a>) -> Tensor<'a> {
        match &layer.block.ffn {
            FeedForward::Dense(Mlp::Gated { gate, up, down, act }) => {
                let gated = x.through(&layer.linear(gate));
                let up = x.through(&layer.linear(up));
                let product = {
                    let active = gated.activated(*act, &layer.params);
                    active.mul(&up)
                };
                product.through(&layer.linear(down))
            }
            FeedForward::Dense(Mlp::Plain { up, down, act }) => {
                let mut hidden = x.through(&layer.linear(up));
                hidden = hidden.activated(*act, &layer.params);
                hidden.through(&layer.linear(down))
            }
            FeedForward::Dense(Mlp::GatedFused { .. }) | FeedForward::Moe(_) | FeedForward::None => {
                x.unmodelled("a feed-forward network that litgpt has nowhere")
            }
        }
    }

    /// The head and the loss: with adapters both in chunks of the sequence, without them the loss in chunks of the rows.
    /// Returns the loss and what the script's variable `logits` holds.
    pub(in crate::step::forward) fn litgpt_head(
        &self,
        hidden: Tensor<'a>,
        replace: &dyn Fn(),
    ) -> (Tensor<'a>, Vec<Tensor<'a>>) {
        let head = find(&self.outside.linears, |layer| layer.name == self.architecture.head.linear.name);
        let (batch, sequence) = (self.batch.sequences, self.batch.length);
        let in_chunks = self.member.method != Method::Full;
        let lengths = if in_chunks { loss::chunks(sequence, CHUNK) } else { vec![sequence] };
        let logits: Vec<Tensor<'a>> = if in_chunks {
            let width = batch.saturating_mul(head.shape.input);
            let numels: Vec<u64> = lengths.iter().map(|length| length.saturating_mul(width)).collect();
            hidden.chunks(&numels).iter().map(|chunk| chunk.through(&head).named_logits()).collect()
        } else {
            vec![hidden.through(&head).named_logits()]
        };
        drop(hidden);
        // Fabric's `convert_output`
        let mut floats: Vec<Tensor<'a>> = logits.iter().map(|chunk| chunk.to(Dtype::F32)).collect();
        drop(logits);
        replace();
        // `logits[..., :-1, :]`: of the last chunk, or of all
        let row = batch.saturating_mul(head.shape.output);
        let last = floats.pop().map(|last| last.slice(last.value.numel.saturating_sub(row)));
        floats.extend(last);
        let flat: Vec<Tensor<'a>> = floats
            .iter()
            .enumerate()
            .map(|(index, chunk)| {
                if index + 1 == floats.len() && batch > 1 {
                    chunk.copied_rows(head.shape.output)
                } else {
                    chunk.clone()
                }
            })
            .collect();
        let labels = self.of_tokens(self.batch.tokens(), Dtype::I64, &torch::LABELS);
        let losses = if in_chunks {
            flat.iter()
                .map(|chunk| chunk.cross_entropies(&labels, chunk.value.numel / head.shape.output.max(1)))
                .collect()
        } else {
            let rows = batch.saturating_mul(sequence.saturating_sub(1)).max(1);
            let rows = loss::chunks(rows, CHUNK);
            let numels: Vec<u64> = rows.iter().map(|rows| rows.saturating_mul(head.shape.output)).collect();
            let whole = flat.first().map_or_else(Vec::new, |flat| flat.chunks(&numels));
            whole.iter().zip(rows).map(|(chunk, rows)| chunk.cross_entropies(&labels, rows)).collect()
        };
        let loss = Tensor::total(losses).unwrap_or_else(|| labels.clone());
        (loss, floats)
    }
}

impl<'m> Tensor<'m> {
    /// A norm: torch's LayerNorm, or `RMSNorm.forward` of litgpt's own.
    pub(in crate::step::forward) fn litgpt_normed(&self, norm: &NormLayer) -> Tensor<'m> {
        match norm.kind {
            NormKind::LayerNorm { .. }
            | NormKind::LayerNormPlain
            | NormKind::LayerNormBare
            | NormKind::LayerNormPlusOne
            | NormKind::LayerNormPython
            | NormKind::Identity => self.normed(norm),
            NormKind::Rms
            | NormKind::RmsPlusOne
            | NormKind::RmsTyped
            | NormKind::RmsCastLast
            | NormKind::RmsFloat
            | NormKind::RmsPower
            | NormKind::RmsPlain
            | NormKind::RmsLate => {
                self.machine.within(norm.name, &roles::NORM, || self.litgpt_root_mean_square(norm))
            }
        }
    }

    fn litgpt_root_mean_square(&self, norm: &NormLayer) -> Tensor<'m> {
        let x = self.to(Dtype::F32);
        let mean = {
            let squares = x.mul(&x);
            squares.mean_rows(norm.width)
        };
        let inverse = {
            let shifted = mean.add_number();
            shifted.rsqrt()
        };
        let normed = x.mul_rows(&inverse);
        drop(inverse);
        let weighted = match norm.weight {
            None => normed.clone(),
            Some(weight) => normed.times_float_weight(weight, norm.kind == NormKind::RmsPlusOne),
        };
        let output = weighted.to(self.value.dtype);
        drop(weighted);
        drop(normed);
        drop(mean);
        drop(x);
        output
    }

    /// `LoRAQKVLinear.forward`.
    fn litgpt_joint(
        &self,
        layer: &linear::Layer,
        widths: impl Iterator<Item = u64>,
        tokens: u64,
    ) -> Tensor<'m> {
        let machine = self.machine;
        let Some(Adapter { a, b, rank, dropout, .. }) = layer.adapter else { return self.through(layer) };
        let plain = linear::Layer { adapter: None, ..*layer };
        let base = self.through(&plain);
        machine.within(layer.name, &roles::PROJECTION, || {
            let widths: Vec<u64> = widths.collect();
            let columns = widths.iter().fold(0, |sum: u64, width| sum.saturating_add(*width));
            let low = {
                let dropped = self.dropout(dropout);
                let down = linear::Shape {
                    input: layer.shape.input,
                    output: rank.saturating_mul(widths.len() as u64),
                };
                dropped.parameter_product(down, a)
            };
            let numels: Vec<u64> = widths.iter().map(|width| tokens.saturating_mul(*width)).collect();
            let high = low.convolved(b, &numels);
            let whole = tokens.saturating_mul(layer.shape.output);
            let scaled = if columns == layer.shape.output {
                high.scale()
            } else {
                let padded = high.scattered(whole, columns);
                padded.scale()
            };
            base.add_as(&scaled, &ADAPTED)
        })
    }

    /// `LoRAQKVLinear.conv1d`: one convolution over single tokens where all parts are as wide, else one for each part and a
    /// `cat`. A convolution copies its transposed input and returns its result channels first.
    fn convolved(&self, weight: ParamId, numels: &[u64]) -> Tensor<'m> {
        let whole = numels.iter().fold(0, |sum: u64, numel| sum.saturating_add(*numel));
        let joint = numels.iter().all(|numel| Some(numel) == numels.first());
        self.apply(|state, x| {
            let parameter = state.weight(weight);
            let node = state.node([x, &parameter], convolution_backward);
            state.save(node, x.storage);
            let (parts, shared) = if joint { (&[whole][..], 1) } else { (numels, numels.len() as u64) };
            let mut outputs = Vec::with_capacity(parts.len());
            for numel in parts {
                let copy = state.alloc(x.numel / shared.max(1), x.dtype, &torch::CONTIGUOUS);
                outputs.push(state.alloc(*numel, x.dtype, &CONV1D));
                state.release(copy);
            }
            let storage = match outputs[..] {
                [one] => one,
                _ => {
                    let storage = state.alloc(whole, x.dtype, &torch::CAT);
                    outputs.into_iter().rev().for_each(|output| state.release(output));
                    storage
                }
            };
            state.release(parameter.storage);
            Value { layout: Layout::Heads, ..Value::plain(storage, whole, x.dtype) }.at(node.output(0))
        })
    }

    /// `new_zeros(…).index_copy_(-1, index, x)`: the columns of x among zeros; saves both for their shapes.
    fn scattered(&self, numel: u64, columns: u64) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], index_copy_backward);
            state.save(node, x.storage);
            let storage = state.alloc(numel, x.dtype, &torch::ZEROS);
            let index = state.alloc(columns, Dtype::I64, &torch::INDEX);
            state.save(node, index);
            state.release(index);
            Value::plain(storage, numel, x.dtype).at(node.output(0))
        })
    }

    /// `apply_rope`: cos and sin are float32, so is the arithmetic.
    fn litgpt_roped(&self, cos: &Tensor<'m>, sin: &Tensor<'m>) -> Tensor<'m> {
        let half = self.value.numel / 2;
        let (first, second) = (self.slice(half), self.slice(half));
        let rotated = {
            let negative = second.negate();
            negative.cat(&first)
        };
        let roped = {
            let straight = self.mul_constant(cos);
            let crossed = rotated.mul_constant(sin);
            straight.add(&crossed)
        };
        let output = roped.to(self.value.dtype);
        drop(rotated);
        drop(roped);
        output
    }
}

/// A convolution over single tokens: its input and its gradient are copied.
fn convolution_backward(state: &mut State, node: &Node, grad: &mut Grad) -> Results {
    let [own, other, _] = node.inputs;
    let copies = [
        state.alloc_for(own.storage, own.numel, grad.dtype, &torch::CONTIGUOUS),
        like(state, grad, &torch::CONTIGUOUS).storage,
    ];
    let multiplied = multiplications([own.numel, other.numel, grad.numel]);
    let results = [&own, &other].map(|operand| product_backward(state, operand, grad, multiplied));
    let results = [results[0], results[1], None];
    copies.into_iter().for_each(|storage| state.release(storage));
    results
}
