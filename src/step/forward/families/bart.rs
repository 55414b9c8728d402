//! models/bart/modeling_bart.py and what was written after it (mbart, pegasus, blenderbot, marian, m2m_100): an
//! encoder, and a decoder that attends to it.

use crate::dtype::Dtype;
use crate::model::blocks::Table;
use crate::model::blocks::{Attention, FeedForward, Mlp, Norm, Projection, Wiring};
use crate::model::modeling::PositionIds;
use crate::scenario::Checkpointing;
use crate::step::forward::inputs::{MaskCall, Shared};
use crate::step::forward::loader::weights_dtype;
use crate::step::forward::self_attention::Heads;
use crate::step::forward::{BoundEncoder, BoundLayer, Given, Hidden, LayerGroup, Pass, find};
use crate::step::heap::NOTHING;
use crate::step::ops::attention::Kernel;
use crate::step::ops::matmul::{Product, Second};
use crate::step::ops::norm::NormLayer;
use crate::step::params::ParamId;
use crate::step::repeat::Alike;
use crate::step::tensor::{Tensor, Value};
use crate::step::what::{What, roles, torch};

static ISFINITE: What = What::step("isfinite", "whether elements are finite, one byte each");
static IS_NUMBER: What = What::step("isfinite (is a number)", "whether elements are numbers, one byte each");
static IS_BOUNDED: What = What::step("isfinite (is bounded)", "whether elements are bounded, one byte each");
static FINITE_SIZE: What = What::step("isfinite (size)", "magnitudes, to see whether they are finite");

/// A half of the model: what stands around its layers.
struct Half<'t, 'm> {
    layer_groups: &'t [LayerGroup],
    positions: Option<(&'t Table, ParamId)>,
    first_norm: Option<&'t NormLayer>,
    last_norm: Option<&'t NormLayer>,
    /// The decoder's ids and what the encoder made.
    decodes: Option<(&'t Tensor<'m>, &'t Tensor<'m>)>,
}

impl<'a> Pass<'_, 'a> {
    /// `BartForConditionalGeneration.forward`.
    pub(in crate::step::forward) fn bart(&self, encoder: &BoundEncoder) -> Hidden<'a> {
        let described = self.architecture.encoder.as_ref().and_then(|encoder| encoder.positions.as_ref());
        let ids = self.shifted_right();
        let (encoded, given) = self.bart_half(&Half {
            layer_groups: &encoder.layer_groups,
            positions: described.zip(encoder.positions),
            first_norm: encoder.norm.as_ref(),
            last_norm: encoder.final_norm.as_ref(),
            decodes: None,
        });
        let own = |norm: &Option<Norm>| {
            norm.as_ref().map(|norm| find(&self.outside.norms, |bound| bound.name == norm.name))
        };
        let embeddings = &self.architecture.embeddings;
        let (states, own) = self.bart_half(&Half {
            layer_groups: &self.layer_groups,
            positions: embeddings.positions.as_ref().zip(self.outside.positions),
            first_norm: own(&embeddings.norm).as_ref(),
            last_norm: own(&self.architecture.final_norm).as_ref(),
            decodes: Some((&ids, &encoded)),
        });
        let given = Given { layers: own, encoder: Some(given) };
        Hidden { states, given, ids: Some(ids), encoded: Some(encoded) }
    }

    /// `lm_logits + self.final_logits_bias`: a buffer.
    pub(in crate::step::forward) fn bart_logits(&self, logits: &Tensor<'a>) -> Tensor<'a> {
        if !self.modeling.logits_bias {
            return logits.clone();
        }
        let bias = Value::plain(NOTHING, self.architecture.vocab, weights_dtype(self.member));
        logits.add_row(&Tensor { machine: self.machine, value: bias })
    }

    /// `BartEncoder.forward`, or `BartDecoder.forward`.
    fn bart_half(&self, half: &Half<'_, 'a>) -> (Tensor<'a>, Shared<Value>) {
        let ids = half.decodes.map(|(ids, _)| ids);
        let table = &self.architecture.embeddings.tokens;
        let embedded = self.within(table.name, &roles::EMBEDDING, || {
            let rows = self.lookup(self.outside.tokens, ids, self.batch.tokens(), table.width);
            let rows = rows.scale();
            if self.trains && self.inputs_require_grad && !rows.value.requires_grad() {
                self.require_grad(rows)
            } else {
                rows
            }
        });
        let dtype = embedded.value.dtype;
        // m2m_100 counts the tokens that are no padding, and its sines are a buffer
        let counts = self.modeling.positions == PositionIds::CountedSines;
        let mut shared = Shared::none();
        let mut range = None;
        let mut ones = None;
        if let Some((_, encoded)) = half.decodes {
            range = (!counts).then(|| self.range());
            ones = Some(self.of_tokens(self.batch.tokens(), Dtype::F32, &torch::ATTENTION_MASK));
            let call = MaskCall { given: true, padded: false, ..self.mask_call() };
            shared.full = self.mask(None, dtype, call);
            shared.cross_mask = self.bidirectional_mask(dtype);
            shared.encoded = Some(encoded.clone());
        }
        // bart and mbart begin to count at 2; their encoder looks a row up for each token of the batch
        let shifted = self.modeling.positions == PositionIds::Shifted;
        let per_token = shifted && half.decodes.is_none();
        let sines = counts.then(|| {
            let _ids = self.counted_positions();
            let numel = self.batch.tokens().saturating_mul(self.architecture.hidden);
            self.constant(numel, weights_dtype(self.member), &torch::POSITIONS)
        });
        let positions = sines.or_else(|| {
            half.positions.map(|(table, param)| {
                let rows = if per_token { self.batch.tokens() } else { self.batch.length };
                self.within(table.name, &roles::EMBEDDING, || {
                    let counted = match &range {
                        Some(range) => range.clone(),
                        None => self.of_positions(self.batch.length, Dtype::I64, &torch::RANGE),
                    };
                    let ids = if shifted {
                        counted.fresh(rows, Dtype::I64, &torch::POSITIONS)
                    } else {
                        counted.clone()
                    };
                    self.lookup(param, Some(&ids), rows, table.width)
                })
            })
        });
        let mut hidden = match &positions {
            None => embedded.clone(),
            Some(rows) if per_token || counts => embedded.add(rows),
            Some(rows) => embedded.add_row(rows),
        };
        if let Some(norm) = half.first_norm {
            hidden = hidden.normed(norm);
        }
        hidden = hidden.dropout(self.dropout(self.architecture.embeddings.dropout));
        if half.decodes.is_none() {
            shared.full = self.bidirectional_mask(dtype);
        }
        self.machine.with(|state| shared.all().for_each(|tensor| state.share(tensor.value.storage)));
        let mut variables = [hidden];
        for group in half.layer_groups {
            let alike = Alike::All { held: &mut None, given: None };
            self.machine.repeat(group.times.into(), alike, &mut variables, &mut |[hidden], _| {
                for index in &group.layers {
                    *hidden = self.bart_layer_or_checkpoint(*index, hidden, &shared);
                }
            });
        }
        let [mut hidden] = variables;
        if let Some(norm) = half.last_norm {
            hidden = hidden.normed(norm);
        }
        drop((ones, embedded, range));
        drop(positions);
        (hidden, shared.map(|tensor| tensor.value))
    }

    fn bart_layer_or_checkpoint(
        &self,
        index: usize,
        hidden: &Tensor<'a>,
        shared: &Shared<Tensor<'a>>,
    ) -> Tensor<'a> {
        let layer = &self.layers[index];
        match self.checkpointing() {
            Checkpointing::Off | Checkpointing::Selective => self.bart_layer(layer, hidden, shared),
            Checkpointing::NonReentrant
            | Checkpointing::Reentrant
            | Checkpointing::Alternate
            | Checkpointing::Operations
            | Checkpointing::Offloaded => {
                let storage =
                    |tensor: &Option<Tensor<'a>>| tensor.as_ref().map_or(0, |own| own.value.storage);
                let [full, encoded, mask] = [&shared.full, &shared.encoded, &shared.cross_mask].map(storage);
                let arguments = [full, encoded, mask, NOTHING, NOTHING];
                self.machine.checkpointed(index, hidden, arguments, || self.bart_layer(layer, hidden, shared))
            }
        }
    }

    /// Runs a checkpointed layer's forward again.
    pub(in crate::step::forward) fn recompute_bart(
        &self,
        index: usize,
        hidden: &Tensor<'a>,
        given: &Given<Shared<Value>>,
    ) {
        let encodes = self.encoder.as_ref().is_some_and(|encoder| index < encoder.layers);
        let values = given.encoder.as_ref().filter(|_| encodes).unwrap_or(&given.layers);
        let shared = values.map(|value| {
            self.machine.with(|state| state.retain(value.storage));
            Tensor { machine: self.machine, value: *value }
        });
        self.machine.with(|state| state.autocast = self.autocast);
        drop(self.bart_layer(&self.layers[index], hidden, &shared));
        drop(shared);
        self.leave_autocast();
    }

    /// `BartEncoderLayer.forward`, `BartDecoderLayer.forward`: norms behind the parts (bart) or before them (mbart).
    fn bart_layer(
        &self,
        layer: &BoundLayer<'a>,
        hidden: &Tensor<'a>,
        shared: &Shared<Tensor<'a>>,
    ) -> Tensor<'a> {
        let (before, first, last) = match &layer.block.wiring {
            Wiring::PreNorm { attention, mlp } => (true, attention, mlp),
            Wiring::PostNorm { attention, mlp } => (false, attention, mlp),
            _ => unreachable!("bart's layers are of these kinds"),
        };
        let Some(attention) = layer.block.mixer.attention() else { unreachable!("bart's layers attend") };
        let drops = self.residual_dropout(layer);
        let mut _weights = None;
        self.machine.enter_layer(layer.number);
        let mut states = self.bart_part(layer, (first, before), hidden.clone(), |states| {
            let (output, weights) = self.machine.within("self_attn", &roles::ATTENTION, || {
                self.bart_attention(layer, attention, (&states, None), shared.full.as_ref())
            });
            _weights = weights;
            drop(states);
            output.dropout(drops)
        });
        if let (Some(cross), Some(encoded)) = (&layer.block.cross, &shared.encoded) {
            states = self.bart_part(layer, (&cross.norm, before), states, |states| {
                let (output, weights) = self.machine.within("encoder_attn", &roles::ATTENTION, || {
                    let mask = shared.cross_mask.as_ref();
                    self.bart_attention(layer, &cross.attention, (&states, Some(encoded)), mask)
                });
                _weights = weights;
                drop(states);
                output.dropout(drops)
            });
        }
        states = self.bart_part(layer, (last, before), states, |states| {
            let FeedForward::Dense(Mlp::Plain { up, down, act }) = &layer.block.ffn else {
                unreachable!("bart's networks are plain")
            };
            let mut inner = states.through(&layer.linear(up)).activated(*act, &layer.params);
            drop(states);
            inner = inner.dropout(self.dropout(self.architecture.inner_dropout));
            inner = inner.through(&layer.linear(down));
            inner.dropout(drops)
        });
        if layer.block.cross.is_none() && states.value.dtype == Dtype::F16 {
            states = self.bart_clamped(states, before);
        }
        self.machine.leave_layer();
        states
    }

    /// What the encoder does to float16: mbart clamps it, bart looks whether it has to (`torch.isfinite(…).all()`).
    fn bart_clamped(&self, states: Tensor<'a>, clamps: bool) -> Tensor<'a> {
        if clamps {
            return states.keeping_input(&torch::CLAMP);
        }
        let make = |dtype, name| states.fresh(states.value.numel, dtype, name);
        let size = make(Dtype::F16, &FINITE_SIZE);
        let bounded = make(Dtype::Bool, &IS_BOUNDED);
        drop(size);
        let itself = make(Dtype::Bool, &IS_NUMBER);
        drop(make(Dtype::Bool, &ISFINITE));
        drop((itself, bounded));
        states
    }

    /// A part of a layer with its residual and its norm.
    pub(super) fn bart_part(
        &self,
        layer: &BoundLayer<'a>,
        (norm, before): (&Norm, bool),
        residual: Tensor<'a>,
        run: impl FnOnce(Tensor<'a>) -> Tensor<'a>,
    ) -> Tensor<'a> {
        let norm = layer.norm(norm);
        let states = if before { residual.normed(&norm) } else { residual.clone() };
        let output = run(states);
        let sum = residual.add(&output);
        drop(output);
        if before { sum } else { sum.normed(&norm) }
    }

    /// `BartAttention`, over keys and values of a `source` where there is one.
    pub(in crate::step::forward) fn bart_attention(
        &self,
        layer: &BoundLayer<'a>,
        attention: &Attention,
        (x, source): (&Tensor<'a>, Option<&Tensor<'a>>),
        mask: Option<&Tensor<'a>>,
    ) -> (Tensor<'a>, Option<Tensor<'a>>) {
        let Projection::Separate { q, k, v } = &attention.projection else {
            unreachable!("bart's projections are apart")
        };
        let from = source.unwrap_or(x);
        let q = x.through(&layer.linear(q)).to_heads();
        let (k, v) = (from.through(&layer.linear(k)), from.through(&layer.linear(v)));
        let mut heads = Heads { q, k: k.to_heads(), v: v.to_heads() };
        drop((k, v));
        if source.is_none() {
            self.remember(&mut heads, None);
        }
        let scores = self.scores(attention, Kernel::Eager, attention.kv_heads);
        let drops = self.dropout(attention.dropout);
        let (mut output, weights) = if self.is_eager() {
            let Heads { q, k, v } = &heads;
            let shape = Product {
                numel: scores.numel(),
                batch: self.batch.sequences,
                groups: 1,
                second: Second::Keys,
            };
            let mut weights = {
                let product = self.machine.product(q, k, shape, self.autocast);
                product.scale()
            };
            if let Some(mask) = mask {
                weights = weights.add_row(mask);
            }
            weights = self.probabilities(|| weights.softmax());
            weights = self.probabilities(|| weights.dropout(drops));
            let shape = Product { numel: q.value.numel, second: Second::Plain, ..shape };
            let product = self.machine.product(&weights, v, shape, self.autocast);
            (product.to_tokens(), Some(weights))
        } else {
            (self.kernel_output(scores, &heads, mask, attention.causal, drops), None)
        };
        output = output.through(&layer.linear(&attention.output));
        drop(heads);
        (output, weights)
    }
}
