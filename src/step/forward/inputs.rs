//! What the layers are given: the first hidden state, positions, rotary embeddings, masks.

use super::{Code, Model, find};
use crate::dtype::Dtype;
use crate::model::blocks::Attention;
use crate::scenario::{Mask, Stack};
use crate::step::autograd::{Edge, HELD, Input};
use crate::step::backward::Op;
use crate::step::machine::{NOTHING, State, StorageId};
use crate::step::params::ParamId;
use crate::step::tensor::{Tensor, Value};

/// What every layer is given beside the hidden state.
#[derive(Clone, Copy)]
pub(in crate::step) struct Shared<T> {
    /// Position ids.
    pub positions: Option<T>,
    /// Cosines and sines of the rotary embedding.
    pub rotary: Option<(T, T)>,
    /// The mask of full attention, where one is built.
    pub full: Option<T>,
    /// The mask of sliding-window attention, where one is built.
    pub sliding: Option<T>,
    /// Alibi's bias.
    pub alibi: Option<T>,
}

impl<T> Shared<T> {
    fn all(&self) -> [Option<&T>; 6] {
        let rotary = self.rotary.as_ref();
        let (full, sliding) = (self.full.as_ref(), self.sliding.as_ref());
        let (cos, sin) = (rotary.map(|pair| &pair.0), rotary.map(|pair| &pair.1));
        [full, sliding, cos, sin, self.positions.as_ref(), self.alibi.as_ref()]
    }

    /// The same of another kind of handle.
    pub fn map<U>(&self, each: impl Fn(&T) -> U) -> Shared<U> {
        Shared {
            positions: self.positions.as_ref().map(&each),
            rotary: self.rotary.as_ref().map(|(cos, sin)| (each(cos), each(sin))),
            full: self.full.as_ref().map(&each),
            sliding: self.sliding.as_ref().map(&each),
            alibi: self.alibi.as_ref().map(&each),
        }
    }
}

impl Shared<Value> {
    /// What a layer of such attention is given: the other layers' mask may be gone already.
    pub fn of(&self, attention: Option<&Attention>) -> Shared<Value> {
        let windowed = attention.is_some_and(|attention| attention.window.is_some());
        let (full, sliding) = if windowed { (None, self.sliding) } else { (self.full, None) };
        Shared { full, sliding, ..*self }
    }
}

impl<'m> Shared<Tensor<'m>> {
    /// The mask of such attention.
    pub fn mask(&self, attention: &Attention) -> Option<&Tensor<'m>> {
        if attention.window.is_some() { self.sliding.as_ref() } else { self.full.as_ref() }
    }

    /// The storages that a checkpointed layer keeps as its arguments.
    pub fn arguments(&self, attention: Option<&Attention>) -> [StorageId; HELD - 1] {
        let storage = |tensor: Option<&Tensor<'m>>| tensor.map_or(NOTHING, |tensor| tensor.value.storage);
        let rotary = self.rotary.as_ref();
        [
            storage(rotary.map(|rotary| &rotary.1)),
            storage(rotary.map(|rotary| &rotary.0)),
            storage(self.positions.as_ref()),
            storage(attention.and_then(|attention| self.mask(attention))),
            storage(self.alibi.as_ref()),
        ]
    }
}

/// How a model's forward asks for its masks.
#[derive(Clone, Copy, Debug)]
pub(super) struct MaskCall {
    /// Whether it gives a two-dimensional mask of the batch.
    pub given: bool,
    /// Whether no mask will do where the kernel's causal flag does.
    pub may_skip: bool,
    /// Whether the family writes its attention out whatever is asked for.
    pub eager: bool,
}

/// The first hidden state, and what the model's forward holds in local variables until it returns.
pub(super) struct Embedded<'m> {
    pub hidden: Tensor<'m>,
    /// Whether a variable of the model's forward keeps it.
    pub kept: bool,
    pub positions: Option<Tensor<'m>>,
    /// In the order in which they are freed.
    pub locals: Vec<Tensor<'m>>,
}

impl<'a> Model<'a> {
    /// What the model's forward does before its layers.
    pub(super) fn prepare(&self) -> (Embedded<'a>, Shared<Tensor<'a>>) {
        let (embedded, shared) = match self.code {
            _ if self.scenario.stack == Stack::Litgpt => self.litgpt_inputs(),
            Code::Bert => self.bert_inputs(),
            Code::Qwen => self.qwen_inputs(),
            Code::Bloom => self.bloom_inputs(),
            Code::Falcon => self.falcon_inputs(),
            Code::Opt => self.opt_inputs(),
            Code::Gpt2 => {
                let mut embedded = self.gpt2_embed();
                let shared = self.shared(&embedded, self.mask_call());
                embedded.hidden = embedded.hidden.dropout(self.dropout(self.architecture.embeddings.dropout));
                (embedded, shared)
            }
            Code::Llama | Code::GptNeox | Code::Phi => {
                let hidden = self.embed_tokens();
                let positions = Some(self.range());
                let embedded = Embedded { hidden, kept: true, positions, locals: Vec::new() };
                let shared = self.shared(&embedded, self.mask_call());
                (self.drop_out(embedded), shared)
            }
        };
        let mut state = self.machine.state.borrow_mut();
        shared.all().into_iter().flatten().for_each(|tensor| state.share(tensor.value.storage));
        drop(state);
        (embedded, shared)
    }

    /// `embed_tokens(input_ids)`.
    pub(super) fn embed_tokens(&self) -> Tensor<'a> {
        let table = &self.architecture.embeddings.tokens;
        let hidden = self.within(table.name, || {
            let rows = self.lookup(self.outside.tokens, None, self.scenario.tokens(), table.width);
            if self.architecture.embeddings.scaled { rows.scale() } else { rows }
        });
        if self.inputs_require_grad && !hidden.value.requires_grad() {
            self.require_grad(hidden)
        } else {
            hidden
        }
    }

    /// The norm of the embeddings, where there is one.
    pub(super) fn embedding_norm(&self, x: &Tensor<'a>) -> Tensor<'a> {
        match &self.architecture.embeddings.norm {
            None => x.clone(),
            Some(norm) => x.normed(&find(&self.outside.norms, |bound| bound.name == norm.name)),
        }
    }

    /// Dropout on the embedding: gpt_neox gives its result a new name, phi does not.
    fn drop_out(&self, embedded: Embedded<'a>) -> Embedded<'a> {
        if !self.dropout(self.architecture.embeddings.dropout) {
            return embedded;
        }
        let Embedded { hidden, positions, mut locals, .. } = embedded;
        let dropped = hidden.dropout(true);
        let kept = self.code == Code::Phi;
        if !kept {
            locals.push(hidden);
        }
        Embedded { hidden: dropped, kept, positions, locals }
    }

    /// models/gpt2: token and position embeddings.
    fn gpt2_embed(&self) -> Embedded<'a> {
        let embeddings = &self.architecture.embeddings;
        let tokens = self.embed_tokens();
        let positions = self.range();
        let mut locals = Vec::with_capacity(2);
        let mut hidden = tokens.clone();
        if let (Some(table), Some(param)) = (&embeddings.positions, self.outside.positions) {
            let rows = self.within(table.name, || {
                self.lookup(param, Some(&positions), self.scenario.sequence, table.width)
            });
            hidden = tokens.add_row(&rows);
            locals.push(tokens);
            locals.push(rows);
        }
        Embedded { hidden, kept: false, positions: Some(positions), locals }
    }

    /// The call that most models make.
    pub(super) fn mask_call(&self) -> MaskCall {
        MaskCall { given: self.scenario.mask != Mask::None, may_skip: true, eager: false }
    }

    /// `output.requires_grad_(True)` on a leaf: its gradient is made and kept like a parameter's.
    pub(super) fn require_grad(&self, hidden: Tensor<'a>) -> Tensor<'a> {
        // one layer on behalf of many consumes its input, the leaf of all of them
        let id = self.machine.state.borrow_mut().leaf(&hidden.value, self.whole);
        hidden.with(|value| value.edge = Edge::Param(id))
    }

    /// `F.embedding(ids, table)`; the batch's own ids are there anyway.
    pub(super) fn lookup(
        &self,
        table: ParamId,
        ids: Option<&Tensor<'a>>,
        rows: u64,
        width: u64,
    ) -> Tensor<'a> {
        let ids = ids.map_or(NOTHING, |ids| ids.value.storage);
        let value = self.machine.state.borrow_mut().embedding(table, ids, rows, width);
        Tensor { machine: self.machine, value }
    }

    /// A tensor without gradient.
    pub(super) fn constant(&self, numel: u64, dtype: Dtype, operation: &'static str) -> Tensor<'a> {
        let storage = self.machine.state.borrow_mut().alloc(numel, dtype, operation);
        Tensor { machine: self.machine, value: Value::plain(storage, numel, dtype) }
    }

    /// Masks and rotary embeddings.
    pub(super) fn shared(&self, embedded: &Embedded<'a>, call: MaskCall) -> Shared<Tensor<'a>> {
        let dtype = embedded.hidden.value.dtype;
        let mut windows = self.attentions().map(|attention| attention.window);
        let sliding = self.attentions().find_map(|attention| attention.window);
        let any_full = windows.any(|window| window.is_none());
        let full = any_full.then(|| self.mask(None, dtype, call)).flatten();
        let sliding = sliding.and_then(|window| self.mask(Some(window), dtype, call));
        let rotary = self.attentions().find_map(|attention| attention.rotary.width(attention.head_dim));
        let rotary = rotary.map(|dim| self.within("rotary_emb", || self.rotary(dim, dtype)));
        Shared { positions: embedded.positions.clone(), rotary, full, sliding, alibi: None }
    }

    pub(super) fn attentions(&self) -> impl Iterator<Item = &'a Attention> {
        self.architecture.blocks.iter().filter_map(|block| block.mixer.attention())
    }
}

impl<'a> Model<'a> {
    /// `create_causal_mask` and `create_sliding_window_causal_mask` of transformers' masking_utils.py: none where the
    /// kernel's own causal flag does, a boolean one for SDPA, an additive one for eager.
    pub(super) fn mask(&self, window: Option<u64>, dtype: Dtype, asked: MaskCall) -> Option<Tensor<'a>> {
        let (batch, sequence) = (self.scenario.batch, self.scenario.sequence);
        let square = sequence.saturating_mul(sequence);
        let tokens = self.scenario.tokens();
        let padding = asked.given.then(|| self.constant(tokens, Dtype::Bool, "padding mask"));
        let eager = self.is_eager() || asked.eager;
        let windowed = window.is_some_and(|window| sequence >= window);
        let padded = self.scenario.mask == Mask::Padded;
        if asked.may_skip && !eager && !padded && !windowed {
            return None;
        }
        let bools = |numel: u64, name: &'static str| self.constant(numel, Dtype::Bool, name);
        let indices = |numel: u64| self.constant(numel, Dtype::I64, "indices");
        let ranges = [indices(batch), indices(1), self.range(), self.range()];
        let mut mask = if window.is_none() {
            bools(square, "causal mask")
        } else {
            let ones = bools(1, "ones");
            let window = {
                let _edge = indices(sequence);
                bools(square, "window")
            };
            let windowed = bools(square, "mask");
            drop(window);
            drop(ones);
            let causal = bools(square, "causal mask");
            let both = bools(square, "mask");
            drop(causal);
            drop(windowed);
            both
        };
        if asked.given {
            mask = self.padded(mask);
        }
        ranges.into_iter().for_each(drop);
        if eager {
            mask = self.additive(mask, dtype);
        }
        drop(padding);
        Some(mask)
    }

    /// `create_bidirectional_mask`: none without padding.
    pub(super) fn bidirectional_mask(&self, dtype: Dtype) -> Option<Tensor<'a>> {
        let (batch, sequence) = (self.scenario.batch, self.scenario.sequence);
        let given = self.scenario.mask != Mask::None;
        let padding = given.then(|| self.constant(self.scenario.tokens(), Dtype::Bool, "padding mask"));
        if self.scenario.mask != Mask::Padded {
            return None;
        }
        let ranges = [self.constant(batch, Dtype::I64, "indices"), self.constant(1, Dtype::I64, "indices")];
        let more = [self.range(), self.range()];
        let everywhere = self.constant(sequence, Dtype::Bool, "mask");
        let mut mask = self.padded(everywhere);
        drop(ranges);
        drop(more);
        if self.is_eager() {
            mask = self.additive(mask, dtype);
        }
        drop(padding);
        Some(mask)
    }

    /// `and_masks(mask, padding_mask_function(padding))`: one mask for each sequence.
    fn padded(&self, mask: Tensor<'a>) -> Tensor<'a> {
        let (batch, sequence) = (self.scenario.batch, self.scenario.sequence);
        let tokens = self.scenario.tokens();
        let bools = |numel: u64, name: &'static str| self.constant(numel, Dtype::Bool, name);
        let ones = bools(1, "ones");
        let result = bools(mask.value.numel, "mask");
        drop(mask);
        drop(ones);
        let row = {
            let _index = [(); 2].map(|()| self.constant(tokens, Dtype::I64, "indices"));
            bools(tokens, "padding")
        };
        let mask = bools(batch.saturating_mul(sequence).saturating_mul(sequence), "mask");
        drop(row);
        drop(result);
        mask
    }

    /// `torch.where(mask, 0, lowest)`, expanded over the batch.
    fn additive(&self, mask: Tensor<'a>, dtype: Dtype) -> Tensor<'a> {
        let scalars = [self.constant(1, dtype, "zero"), self.constant(1, dtype, "lowest")];
        let square = self.scenario.sequence.saturating_mul(self.scenario.sequence);
        let additive = self.constant(square.saturating_mul(self.scenario.batch), dtype, "additive mask");
        drop(scalars);
        drop(mask);
        additive
    }

    /// `torch.arange(sequence) + offset`.
    pub(super) fn range(&self) -> Tensor<'a> {
        let range = self.constant(self.scenario.sequence, Dtype::I64, "range");
        let shifted = self.constant(self.scenario.sequence, Dtype::I64, "range");
        drop(range);
        shifted
    }

    /// `rotary_emb(x, position_ids)`: cos and sin of `[1, sequence, dim]`.
    pub(super) fn rotary(&self, dim: u64, dtype: Dtype) -> (Tensor<'a>, Tensor<'a>) {
        let sequence = self.scenario.sequence;
        let numel = sequence.saturating_mul(dim);
        let positions = self.constant(sequence, Dtype::F32, "positions");
        let freqs = self.constant(numel / 2, Dtype::F32, "freqs");
        let emb = self.constant(numel, Dtype::F32, "emb");
        let make = || {
            let raw = self.constant(numel, Dtype::F32, "cos");
            raw.scale()
        };
        let (cos, sin) = (make(), make());
        let result = (cos.to(dtype), sin.to(dtype));
        drop((positions, freqs, emb));
        result
    }
}

impl State {
    /// `F.embedding`.
    fn embedding(&mut self, table: ParamId, ids: StorageId, rows: u64, width: u64) -> Value {
        let input = self.parameter_input(table);
        let node = self.node(Op::Embedding { rows }, [input, Input::NONE, Input::NONE]);
        self.save(node, ids);
        let numel = rows.saturating_mul(width);
        let storage = self.alloc(numel, input.dtype, "embedding");
        Value::plain(storage, numel, input.dtype).at(node.output(0))
    }
}
