//! models/t5/modeling_t5.py: an encoder, and a decoder that attends to it.

use std::cell::RefCell;

use crate::dtype::Dtype;
use crate::model::blocks::{Attention, FeedForward, Mlp, Norm, Projection, Wiring};
use crate::scenario::Checkpointing;
use crate::step::autograd::DISCARDED_LEAF;
use crate::step::forward::inputs::{MaskCall, Shared};
use crate::step::forward::self_attention::Heads;
use crate::step::forward::{BoundEncoder, BoundLayer, Given, Hidden, LayerGroup, Pass};
use crate::step::ops::attention::Kernel;
use crate::step::ops::linear::{Layer, Weight};
use crate::step::ops::matmul::{Product, Second};
use crate::step::ops::norm::NormLayer;
use crate::step::repeat::Alike;
use crate::step::tensor::{Tensor, Value};
use crate::step::what::{Source, What, roles, torch};

static ISINF: What = What::step("isinf", "whether elements are infinite, one byte each");
static MAGNITUDES: What = What::step("isinf (magnitudes)", "magnitudes, to see whether they are infinite");
static DECODER_IDS: What = What::own(
    "decoder ids",
    "the labels shifted by one: what the decoder is given, held by the model's forward until it ends",
    Source::Modeling,
);
static IGNORED: What = What::own("ignored", "which labels do not count, one byte each", Source::Modeling);

/// What a layer takes as the bias of its scores.
#[derive(Clone, Copy)]
enum Bias<'t, 'm> {
    /// An earlier layer's.
    Given(&'t Tensor<'m>),
    /// Its own: by distance in self-attention, zeros in attention to the encoder.
    Own,
}

/// What a layer makes beside its output.
struct Biases<'m> {
    own: Tensor<'m>,
    cross: Option<Tensor<'m>>,
}

impl<'m> Biases<'m> {
    fn all(&self) -> impl Iterator<Item = &Tensor<'m>> {
        [&self.own].into_iter().chain(&self.cross)
    }
}

impl<'a> Pass<'_, 'a> {
    /// `T5ForConditionalGeneration.forward`.
    pub(in crate::step::forward) fn t5(&self, encoder: &BoundEncoder) -> Hidden<'a> {
        let (encoded, given) = self.t5_stack(&encoder.layer_groups, None, None, encoder.final_norm.as_ref());
        let ids = self.shifted_right();
        let norm = self.architecture.final_norm.as_ref();
        let norm = norm.and_then(|norm| self.outside.norms.iter().find(|bound| bound.name == norm.name));
        let (mut states, own) = self.t5_stack(&self.layer_groups, Some(&ids), Some(&encoded), norm);
        drop(ids);
        if self.architecture.head.tied {
            states = states.scale();
        }
        let given = Given { layers: own, encoder: Some(given) };
        Hidden { states, given, ids: None, encoded: Some(encoded) }
    }

    /// `_shift_right`: the decoder's input.
    pub(super) fn shifted_right(&self) -> Tensor<'a> {
        let tokens = self.batch.tokens();
        let ids = self.of_tokens(tokens, Dtype::I64, &DECODER_IDS);
        drop(self.constant(tokens.saturating_sub(self.batch.sequences), Dtype::I64, &torch::CLONE));
        drop(self.of_tokens(tokens, Dtype::Bool, &IGNORED));
        ids
    }

    /// `T5Stack.forward`: the encoder, or the decoder where there is something `encoded`.
    fn t5_stack(
        &self,
        layer_groups: &[LayerGroup],
        ids: Option<&Tensor<'a>>,
        encoded: Option<&Tensor<'a>>,
        norm: Option<&NormLayer>,
    ) -> (Tensor<'a>, Shared<Value>) {
        let table = &self.architecture.embeddings.tokens;
        let looked_up = self.within(table.name, &roles::EMBEDDING, || {
            let rows = self.lookup(self.outside.tokens, ids, self.batch.tokens(), table.width);
            if self.inputs_require_grad && !rows.value.requires_grad() {
                self.require_grad(rows)
            } else {
                rows
            }
        });
        let dtype = looked_up.value.dtype;
        let mut given = Shared::none();
        if encoded.is_some() {
            given.full = self.mask(None, dtype, MaskCall { given: false, padded: false, ..self.mask_call() });
            given.cross_mask = self.bidirectional_mask(dtype);
            given.encoded = encoded.cloned();
        } else {
            given.full = self.bidirectional_mask(dtype);
        }
        let drops = self.dropout(self.architecture.embeddings.dropout);
        let mut variables = [looked_up.dropout(drops)];
        let given = RefCell::new(given);
        for group in layer_groups {
            self.machine
                .with(|state| given.borrow().all().for_each(|tensor| state.share(tensor.value.storage)));
            // what was looked up stays beside all runs
            let alike = Alike::All { held: &mut None, given: None };
            self.machine.repeat(group.times.into(), alike, &mut variables, &mut |[hidden], _| {
                for index in &group.layers {
                    *hidden = self.t5_layer_or_checkpoint(*index, hidden, &given);
                }
            });
        }
        let [mut hidden] = variables;
        if let Some(norm) = norm {
            hidden = hidden.normed(norm);
        }
        hidden = hidden.dropout(drops);
        drop(looked_up);
        let given = given.into_inner();
        let values = given.map(|tensor| tensor.value);
        (hidden, values)
    }

    fn t5_layer_or_checkpoint(
        &self,
        index: usize,
        hidden: &Tensor<'a>,
        given: &RefCell<Shared<Tensor<'a>>>,
    ) -> Tensor<'a> {
        let layer = &self.layers[index];
        let run = || {
            let shared = given.borrow().map(Tensor::clone);
            let (output, made) = self.t5_layer(layer, hidden, &shared);
            drop(shared);
            (output, made)
        };
        let note = |made: Biases<'a>| {
            let mut given = given.borrow_mut();
            given.alibi = Some(made.own);
            given.cross_bias = made.cross.or(given.cross_bias.take());
        };
        match self.checkpointing() {
            Checkpointing::Off | Checkpointing::Selective => {
                let (output, made) = run();
                note(made);
                output
            }
            Checkpointing::NonReentrant
            | Checkpointing::Reentrant
            | Checkpointing::Alternate
            | Checkpointing::Operations
            | Checkpointing::Offloaded => {
                let made = RefCell::new(None);
                let arguments = {
                    let given = given.borrow();
                    let storage =
                        |tensor: &Option<Tensor<'a>>| tensor.as_ref().map_or(0, |own| own.value.storage);
                    [&given.alibi, &given.full, &given.encoded, &given.cross_mask, &given.cross_bias]
                        .map(storage)
                };
                let output = self.machine.checkpointed(index, hidden, arguments, || {
                    let (output, own) = run();
                    self.machine.with(|state| own.all().for_each(|bias| state.note_returned(&bias.value)));
                    drop(made.replace(Some(own)));
                    output
                });
                if let Some(made) = made.into_inner() {
                    note(made);
                }
                output
            }
        }
    }

    /// Runs a checkpointed layer's forward again.
    pub(in crate::step::forward) fn recompute_t5(
        &self,
        index: usize,
        hidden: &Tensor<'a>,
        given: &Given<Shared<Value>>,
    ) {
        let layer = &self.layers[index];
        let encodes = self.encoder.as_ref().is_some_and(|encoder| index < encoder.layers);
        let mut values = match (encodes, &given.encoder) {
            (true, Some(values)) => *values,
            _ => given.layers,
        };
        if layer.bias.is_some() {
            // the layer that makes the biases was given none
            values = Shared { alibi: None, cross_bias: None, ..values };
        }
        let shared = values.map(|value| {
            self.machine.with(|state| state.retain(value.storage));
            Tensor { machine: self.machine, value: *value }
        });
        self.machine.with(|state| state.autocast = self.autocast);
        let (output, made) = self.t5_layer(layer, hidden, &shared);
        self.machine.with(|state| {
            let returned = [&output].into_iter().chain(made.all());
            returned.for_each(|tensor| state.keep_output(tensor.value.storage));
        });
        drop((output, made));
        drop(shared);
        self.leave_autocast();
    }

    /// `T5Block.forward`.
    fn t5_layer(
        &self,
        layer: &BoundLayer<'a>,
        hidden: &Tensor<'a>,
        shared: &Shared<Tensor<'a>>,
    ) -> (Tensor<'a>, Biases<'a>) {
        let (Wiring::PreNorm { attention: first, mlp: last }, Some(attention)) =
            (&layer.block.wiring, layer.block.mixer.attention())
        else {
            unreachable!("t5's layers are of that kind")
        };
        let bias = shared.alibi.as_ref().filter(|_| layer.bias.is_none()).map_or(Bias::Own, Bias::Given);
        self.machine.enter_layer(layer.number);
        let (mut hidden, own, mut _weights) =
            self.t5_half(layer, (first, attention), hidden, None, shared.full.as_ref(), bias);
        hidden = self.clamped(hidden);
        let mut made = None;
        if let (Some(cross), Some(encoded)) = (&layer.block.cross, &shared.encoded) {
            let bias = shared.cross_bias.as_ref().filter(|_| layer.bias.is_none());
            let bias = bias.map_or(Bias::Own, Bias::Given);
            let parts = (&cross.norm, &cross.attention);
            let mask = shared.cross_mask.as_ref();
            let (sum, cross_bias, weights) = self.t5_half(layer, parts, &hidden, Some(encoded), mask, bias);
            hidden = self.clamped(sum);
            made = Some(cross_bias);
            _weights = weights;
        }
        let drops = self.residual_dropout(layer);
        hidden = {
            let fed = {
                let normed = hidden.normed(&layer.norm(last));
                self.machine.within("mlp", &roles::FEED_FORWARD, || self.t5_mlp(layer, &normed, drops))
            };
            let dropped = fed.dropout(drops);
            hidden.add(&dropped)
        };
        hidden = self.clamped(hidden);
        self.machine.leave_layer();
        (hidden, Biases { own, cross: made })
    }

    /// float16 is clamped after each half.
    fn clamped(&self, hidden: Tensor<'a>) -> Tensor<'a> {
        if hidden.value.dtype != Dtype::F16 {
            return hidden;
        }
        {
            // `torch.isinf`: the magnitudes, then where they are infinite
            let magnitudes = self.constant(hidden.value.numel, Dtype::F16, &MAGNITUDES);
            let _infinite = self.constant(hidden.value.numel, Dtype::Bool, &ISINF);
            drop(magnitudes);
        }
        hidden.keeping_input(&torch::CLAMP)
    }

    /// `T5LayerSelfAttention`, or `T5LayerCrossAttention` with a `source` of keys and values.
    fn t5_half(
        &self,
        layer: &BoundLayer<'a>,
        (norm, attention): (&Norm, &Attention),
        hidden: &Tensor<'a>,
        source: Option<&Tensor<'a>>,
        mask: Option<&Tensor<'a>>,
        bias: Bias<'_, 'a>,
    ) -> (Tensor<'a>, Tensor<'a>, Option<Tensor<'a>>) {
        let normed = hidden.normed(&layer.norm(norm));
        let (attended, bias, weights) = self.machine.within("self_attn", &roles::ATTENTION, || {
            self.t5_attention(layer, attention, (&normed, source), mask, bias)
        });
        let sum = {
            let dropped = attended.dropout(self.residual_dropout(layer));
            hidden.add(&dropped)
        };
        // of its own the sum takes the attention's variable, that over a source has one of its own
        if source.is_none() {
            drop(attended);
            drop(normed);
        } else {
            drop(normed);
            drop(attended);
        }
        (sum, bias, weights)
    }

    /// `T5Attention`.
    fn t5_attention(
        &self,
        layer: &BoundLayer<'a>,
        attention: &Attention,
        (x, source): (&Tensor<'a>, Option<&Tensor<'a>>),
        mask: Option<&Tensor<'a>>,
        bias: Bias<'_, 'a>,
    ) -> (Tensor<'a>, Tensor<'a>, Option<Tensor<'a>>) {
        let Projection::Separate { q, k, v } = &attention.projection else {
            unreachable!("t5's projections are apart")
        };
        let project = |spec, x: &Tensor<'a>| x.through(&layer.linear(spec)).to_heads();
        let from = source.unwrap_or(x);
        let mut heads = Heads { q: project(q, x), k: project(k, from), v: project(v, from) };
        if attention.causal || source.is_some() {
            self.remember(&mut heads, None);
        }
        let scores = self.scores(attention, Kernel::Eager, attention.kv_heads);
        let mut returned = None;
        let bias = match (bias, layer.bias.filter(|_| source.is_none())) {
            (Bias::Given(bias), _) => bias.clone(),
            (Bias::Own, Some(table)) => {
                let bias = self.distance_bias(table, attention.heads, attention.causal);
                if self.checkpointing().is_reentrant() && !bias.value.requires_grad() {
                    // whatever the function that checkpoints returns needs a gradient, the bias of a frozen table too
                    returned = Some(bias.apply(|state, bias| {
                        let node = state.node([&x.value], |_, _, _| Default::default());
                        state.retain(bias.storage);
                        bias.at(node.output(0))
                    }));
                }
                bias
            }
            (Bias::Own, None) => {
                let numel = scores.numel() / self.batch.sequences.max(1);
                let zeros = self.of_queries(numel, heads.q.value.dtype, &torch::ZEROS);
                // under checkpointing transformers makes them require a gradient
                let recomputing = self.machine.with(|state| state.recomputing);
                match (self.checkpointing(), recomputing) {
                    (Checkpointing::Off, _) => zeros,
                    (_, true) => zeros.with(|value| value.edge = DISCARDED_LEAF),
                    (_, false) => self.require_grad(zeros),
                }
            }
        };
        let drops = self.dropout(attention.dropout);
        let (mut output, weights) = if self.is_eager() {
            let Heads { q, k, v } = &heads;
            let batch = self.batch.sequences;
            let shape = Product { numel: scores.numel(), batch, groups: 1, second: Second::Keys };
            let mut weights = {
                let product = self.machine.product(q, k, shape, self.autocast);
                product.scale()
            };
            weights = weights.biased(&bias);
            if let Some(mask) = mask {
                weights = weights.add_row(mask);
            }
            weights = self.probabilities(|| weights.softmax());
            weights = self.probabilities(|| weights.dropout(drops));
            let shape = Product { numel: q.value.numel, second: Second::Plain, ..shape };
            let product = self.machine.product(&weights, v, shape, self.autocast);
            (product.to_tokens(), Some(weights))
        } else {
            let mask = self.bias_as_mask(&bias, mask, attention.causal);
            (self.kernel_output(scores, &heads, Some(&mask), false, drops), None)
        };
        output = output.through(&layer.linear(&attention.output));
        drop(heads);
        (output, returned.unwrap_or(bias), weights)
    }

    /// `wo` is given its input in its weight's element type, which autocast changes again.
    fn as_weight(&self, x: Tensor<'a>, layer: &Layer) -> Tensor<'a> {
        match layer.weight {
            Weight::Plain(id) => {
                let dtype = self.machine.with(|state| state.params.get(id).dtype);
                x.to(dtype)
            }
            Weight::Quantised(_) => x,
        }
    }

    /// `T5DenseActDense` and `T5DenseGatedActDense`.
    fn t5_mlp(&self, layer: &BoundLayer<'a>, x: &Tensor<'a>, drops: bool) -> Tensor<'a> {
        match &layer.block.ffn {
            FeedForward::Dense(Mlp::Plain { up, down, act }) => {
                let mut hidden = x.through(&layer.linear(up));
                hidden = hidden.activated(*act, &layer.params);
                hidden = self.as_weight(hidden.dropout(drops), &layer.linear(down));
                hidden.through(&layer.linear(down))
            }
            FeedForward::Dense(Mlp::Gated { gate, up, down, act }) => {
                let active = {
                    let gated = x.through(&layer.linear(gate));
                    gated.activated(*act, &layer.params)
                };
                let up = x.through(&layer.linear(up));
                let mut hidden = active.mul(&up);
                hidden = self.as_weight(hidden.dropout(drops), &layer.linear(down));
                let output = hidden.through(&layer.linear(down));
                drop((active, up));
                output
            }
            FeedForward::Dense(Mlp::GatedFused { .. }) | FeedForward::Moe(_) | FeedForward::None => {
                self.feed_forward(layer, x)
            }
        }
    }
}
