//! What the layers are given: the first hidden state, positions, rotary embeddings, masks.

use super::vision::{Crossing, Sighted};
use super::{Apart, Pass, find};
use crate::dtype::Dtype;
use crate::model::blocks::{Attention, Mixer};
use crate::model::modeling::{Code, Router};
use crate::scenario::software::ModelCode;
use crate::scenario::{Checkpointing, Mask};
use crate::step::autograd::{Edge, HELD};
use crate::step::heap::{NOTHING, StorageId};
use crate::step::parallel::Module;
use crate::step::params::ParamId;
use crate::step::tensor::{Tensor, Value};
use crate::step::what::{Dims, Rows, What, roles};

/// What every layer is given beside the hidden state.
#[derive(Clone, Copy)]
pub(in crate::step) struct Shared<T> {
    /// Position ids.
    pub positions: Option<T>,
    /// Cosines and sines of the rotary embedding.
    pub rotary: Option<(T, T)>,
    /// Those of the layers that see a window only, where they have their own.
    pub local_rotary: Option<(T, T)>,
    /// The mask of full attention, where one is built.
    pub full: Option<T>,
    /// The mask of sliding-window attention, where one is built.
    pub sliding: Option<T>,
    /// Alibi's bias.
    pub alibi: Option<T>,
    /// What an encoder made of its tokens, or mllama's tower of pictures, and the bias of the attention to it (t5).
    pub encoded: Option<T>,
    /// See [`Shared::encoded`].
    pub cross_bias: Option<T>,
    /// The mask of the attention to an encoder, or to pictures.
    pub cross_mask: Option<T>,
    /// Which tokens see a picture, a number for each (mllama).
    pub sees: Option<T>,
}

impl<T> Shared<T> {
    pub fn all(&self) -> impl Iterator<Item = &T> {
        let pairs = [&self.rotary, &self.local_rotary].into_iter().flatten();
        let others = [
            &self.full,
            &self.sliding,
            &self.positions,
            &self.alibi,
            &self.encoded,
            &self.cross_bias,
            &self.cross_mask,
            &self.sees,
        ];
        let others = others.into_iter().flatten();
        others.chain(pairs.flat_map(|(cos, sin)| [cos, sin]))
    }

    /// Nothing at all.
    pub fn none() -> Shared<T> {
        Shared {
            positions: None,
            rotary: None,
            local_rotary: None,
            full: None,
            sliding: None,
            alibi: None,
            encoded: None,
            cross_bias: None,
            cross_mask: None,
            sees: None,
        }
    }

    /// The same of another kind of handle.
    pub fn map<U>(&self, each: impl Fn(&T) -> U) -> Shared<U> {
        Shared {
            positions: self.positions.as_ref().map(&each),
            rotary: self.rotary.as_ref().map(|(cos, sin)| (each(cos), each(sin))),
            local_rotary: self.local_rotary.as_ref().map(|(cos, sin)| (each(cos), each(sin))),
            full: self.full.as_ref().map(&each),
            sliding: self.sliding.as_ref().map(&each),
            alibi: self.alibi.as_ref().map(&each),
            encoded: self.encoded.as_ref().map(&each),
            cross_bias: self.cross_bias.as_ref().map(&each),
            cross_mask: self.cross_mask.as_ref().map(&each),
            sees: self.sees.as_ref().map(&each),
        }
    }
}

/// What a layer's mixer looks at, and so which mask and positions it is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::step) enum Seen {
    /// Every token, or all earlier ones.
    All,
    /// A window of them.
    Window,
    /// It is no attention.
    Nothing,
}

impl Seen {
    /// What such a mixer looks at.
    pub fn by(mixer: &Mixer) -> Seen {
        match mixer {
            Mixer::Attention(attention) => Seen::by_attention(attention),
            Mixer::Latent(_) => Seen::All,
            Mixer::Cross(_)
            | Mixer::StateSpace(_)
            | Mixer::DeltaNet(_)
            | Mixer::ShortConv(_)
            | Mixer::Module(_)
            | Mixer::None => Seen::Nothing,
        }
    }

    /// What such attention looks at.
    pub fn by_attention(attention: &Attention) -> Seen {
        if attention.window.is_some() { Seen::Window } else { Seen::All }
    }
}

impl<T> Shared<T> {
    /// The mask of a mixer that looks at that.
    pub fn mask(&self, seen: Seen) -> Option<&T> {
        match seen {
            Seen::All => self.full.as_ref(),
            Seen::Window => self.sliding.as_ref(),
            Seen::Nothing => None,
        }
    }

    /// Cosines and sines for a mixer that looks at that.
    pub fn rotary(&self, seen: Seen) -> Option<&(T, T)> {
        self.local_rotary.as_ref().filter(|_| seen == Seen::Window).or(self.rotary.as_ref())
    }
}

impl Shared<Value> {
    /// What a layer is given: the other layers' mask may be gone already.
    pub fn of(&self, seen: Seen) -> Shared<Value> {
        let full = self.full.filter(|_| seen == Seen::All);
        let sliding = self.sliding.filter(|_| seen == Seen::Window);
        Shared { full, sliding, rotary: self.rotary(seen).copied(), local_rotary: None, ..*self }
    }
}

/// The place of the mask in [`Shared::arguments`].
pub(in crate::step) const MASK: usize = 3;

impl<'m> Shared<Tensor<'m>> {
    /// The storages that a checkpointed layer keeps as its arguments.
    pub fn arguments(&self, seen: Seen) -> [StorageId; HELD - 1] {
        let storage = |tensor: Option<&Tensor<'m>>| tensor.map_or(NOTHING, |tensor| tensor.value.storage);
        let rotary = self.rotary(seen);
        if self.encoded.is_some() {
            // every layer of a text that attends to pictures is given them
            return [
                storage(self.encoded.as_ref()),
                storage(self.cross_mask.as_ref()),
                storage(self.sees.as_ref()),
                storage(rotary.map(|rotary| &rotary.1)),
                storage(rotary.map(|rotary| &rotary.0)),
            ];
        }
        [
            storage(rotary.map(|rotary| &rotary.1)),
            storage(rotary.map(|rotary| &rotary.0)),
            storage(self.positions.as_ref()),
            storage(self.mask(seen)),
            storage(self.alibi.as_ref()),
        ]
    }
}

/// How a model's forward asks for its masks.
#[derive(Clone, Copy, Debug)]
pub(super) struct MaskCall {
    /// Whether it gives a two-dimensional mask of the batch.
    pub given: bool,
    /// Whether its batch is padded, as far as the model sees.
    pub padded: bool,
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

impl<'a> Pass<'_, 'a> {
    /// What the model's forward does before its layers.
    pub(super) fn prepare(&self) -> (Embedded<'a>, Shared<Tensor<'a>>) {
        match self.member.software().model {
            ModelCode::Transformers => self.transformers_inputs(),
            ModelCode::Litgpt => self.litgpt_inputs(),
            ModelCode::Torchtune => self.tokens_alone(),
            ModelCode::Torchtitan => self.torchtitan_inputs(),
            ModelCode::Unsloth => self.unsloth_inputs(),
            // its schedule runs it
            ModelCode::Megatron => {
                let hidden = self.machine.unassigned().unmodelled("Megatron-core outside of its schedules");
                (Embedded { hidden, kept: false, positions: None, locals: Vec::new() }, Shared::none())
            }
        }
    }

    fn transformers_inputs(&self) -> (Embedded<'a>, Shared<Tensor<'a>>) {
        let (embedded, shared) = match self.modeling.code {
            Code::Bert => self.bert_inputs(),
            Code::Qwen => self.qwen_inputs(),
            Code::Bloom => self.bloom_inputs(),
            Code::Falcon => self.falcon_inputs(),
            Code::Opt => self.opt_inputs(),
            Code::GptBigCode => self.positions_after_mask(self.mask_call()),
            Code::GptJ => {
                let hidden = self.embed_tokens();
                let positions = Some(self.range());
                let embedded = Embedded { hidden, kept: true, positions, locals: Vec::new() };
                let shared = self.masks(&embedded, MaskCall { eager: true, ..self.mask_call() });
                (self.drop_out(embedded), shared)
            }
            Code::GptNeo => self.positions_after_mask(MaskCall { eager: true, ..self.mask_call() }),
            Code::Mpt => self.mpt_inputs(),
            Code::ModernBert => self.modernbert_inputs(),
            Code::Gemma4 => self.gemma4_inputs(),
            Code::DeepseekSparse => self.sparse_inputs(),
            Code::OpenAiGpt => self.openai_gpt_inputs(),
            Code::BioGpt => self.biogpt_inputs(),
            Code::Deberta => self.deberta_inputs(),
            Code::Gpt2 => {
                let mut embedded = self.gpt2_embed();
                let shared = self.shared(&embedded, self.mask_call());
                embedded.hidden = embedded.hidden.dropout(self.embedding_dropout());
                (embedded, shared)
            }
            Code::Llama | Code::StableLm | Code::GptNeox | Code::Phi | Code::Bart => {
                let crossing = self.crossing();
                let hidden = self.embed_tokens();
                let mut embedded = match self.sighted(&hidden) {
                    Some(Sighted { hidden, locals }) => {
                        let positions = self.counts_beside_pictures().then(|| self.range());
                        Embedded { hidden, kept: true, positions, locals }
                    }
                    None => {
                        // those of texts that share a sequence come with the batch
                        let given =
                            self.batch.mask.is_packed() || self.generating.is_some() || self.in_contexts();
                        let positions = (!given).then(|| self.range());
                        Embedded { hidden: hidden.clone(), kept: true, positions, locals: Vec::new() }
                    }
                };
                drop(hidden);
                let masks = if self.sees_whole_pictures() {
                    self.picture_masks(&mut embedded)
                } else {
                    self.masks(&embedded, self.mask_call())
                };
                let embedded = self.drop_out(embedded);
                let shared = self.with_rotary(masks, &embedded);
                let mut embedded = self.normed_first(embedded);
                match crossing {
                    None => (embedded, shared),
                    Some(Crossing { states, mask, sees, locals }) => {
                        embedded.locals.extend(locals);
                        let (encoded, cross_mask, sees) = (Some(states), Some(mask), Some(sees));
                        // its layers read no positions, which checkpoints do not keep therefore
                        (embedded, Shared { encoded, cross_mask, sees, positions: None, ..shared })
                    }
                }
            }
        };
        self.machine.with(|state| shared.all().for_each(|tensor| state.share(tensor.value.storage)));
        (embedded, shared)
    }

    /// `embed_tokens(input_ids)`.
    pub(super) fn embed_tokens(&self) -> Tensor<'a> {
        let ids = self.ids.map(|value| {
            self.machine.with(|state| state.retain(value.storage));
            Tensor { machine: self.machine, value }
        });
        self.embed_ids(ids.as_ref())
    }

    /// The same of ids that the model's code made itself.
    pub(super) fn embed_ids(&self, ids: Option<&Tensor<'a>>) -> Tensor<'a> {
        let table = &self.architecture.embeddings.tokens;
        let scaled = self.architecture.embeddings.scaled;
        if self.modeling.router == Router::Every {
            // models/llama4 `self.embed_tokens(input_ids.to(self.embed_tokens.weight.device))`
            self.machine.with(|state| state.read_outside(self.outside.tokens));
        }
        let module = Module::of([Some(self.outside.tokens), None]);
        let look_up = || {
            let hidden = self.within(table.name, &roles::EMBEDDING, || {
                self.machine.with(|state| state.enter_module(module, false));
                let length = self.batch.length.saturating_sub(self.lengthens_by());
                let own = self.batch.sequences.saturating_mul(length);
                let rows = self.lookup(self.outside.tokens, ids, own, table.width);
                if scaled && self.modeling.scale_buffer { rows.scale() } else { rows }
            });
            if self.trains && self.inputs_require_grad && !hidden.value.requires_grad() {
                self.require_grad(hidden)
            } else {
                hidden
            }
        };
        let mut hidden = if self.shards { self.machine.token_unit(look_up) } else { look_up() };
        hidden = self.machine.leave_module(module, hidden);
        hidden = self.behind_virtual_tokens(hidden);
        // granite scales what the module returned, after the hook that makes it require a gradient
        if scaled && !self.modeling.scale_buffer { hidden.scale() } else { hidden }
    }

    /// The norm of the embeddings, where there is one.
    pub(super) fn embedding_norm(&self, x: &Tensor<'a>) -> Tensor<'a> {
        match &self.architecture.embeddings.norm {
            None => x.clone(),
            Some(norm) => x.normed(&find(&self.outside.norms, |bound| bound.name == norm.name)),
        }
    }

    /// Dropout on the embedding: gpt_neox gives its result a new name, phi does not.
    pub(super) fn drop_out(&self, embedded: Embedded<'a>) -> Embedded<'a> {
        if !self.embedding_dropout() {
            return embedded;
        }
        let Embedded { hidden, positions, mut locals, .. } = embedded;
        let dropped = hidden.dropout(true);
        let kept = self.modeling.code == Code::Phi;
        if !kept {
            locals.push(hidden);
        }
        Embedded { hidden: dropped, kept, positions, locals }
    }

    /// nanochat runs its last norm before its layers too.
    fn normed_first(&self, mut embedded: Embedded<'a>) -> Embedded<'a> {
        let last = self.architecture.final_norm.as_ref().filter(|_| self.modeling.norms_first);
        if let Some(norm) = last {
            let norm = find(&self.outside.norms, |bound| bound.name == norm.name);
            let normed = embedded.hidden.normed(&norm);
            embedded.locals.push(std::mem::replace(&mut embedded.hidden, normed));
            embedded.kept = false;
        }
        embedded
    }

    /// gpt_bigcode, gpt_neo: the mask is made before the positions are looked up.
    fn positions_after_mask(&self, call: MaskCall) -> (Embedded<'a>, Shared<Tensor<'a>>) {
        let embeddings = &self.architecture.embeddings;
        let tokens = self.embed_tokens();
        let positions = self.generating.is_none().then(|| self.range());
        let mut embedded = Embedded { hidden: tokens, kept: false, positions, locals: Vec::new() };
        let full = self.mask(None, embedded.hidden.value.dtype, call);
        let shared = Shared { full, ..self.no_masks(&embedded) };
        if let (Some(table), Some(param)) = (&embeddings.positions, self.outside.positions) {
            let rows = self.within(table.name, &roles::EMBEDDING, || {
                let count = if self.has_own_positions() { self.batch.tokens() } else { self.batch.length };
                self.lookup(param, embedded.positions.as_ref(), count, table.width)
            });
            let sum = embedded.hidden.add_row(&rows);
            embedded.locals.push(std::mem::replace(&mut embedded.hidden, sum));
            embedded.locals.push(rows);
        }
        embedded.hidden = embedded.hidden.dropout(self.embedding_dropout());
        (embedded, shared)
    }

    /// models/gpt2: token and position embeddings.
    fn gpt2_embed(&self) -> Embedded<'a> {
        let embeddings = &self.architecture.embeddings;
        let tokens = self.embed_tokens();
        let positions = self.range();
        let mut locals = Vec::with_capacity(2);
        let mut hidden = tokens.clone();
        if let (Some(table), Some(param)) = (&embeddings.positions, self.outside.positions) {
            let rows = self.within(table.name, &roles::EMBEDDING, || {
                let count = if self.has_own_positions() { self.batch.tokens() } else { self.batch.length };
                self.lookup(param, Some(&positions), count, table.width)
            });
            hidden = tokens.add_row(&rows);
            locals.push(tokens);
            locals.push(rows);
        }
        Embedded { hidden, kept: false, positions: Some(positions), locals }
    }

    /// The call that most models make.
    pub(super) fn mask_call(&self) -> MaskCall {
        let mask = self.batch.mask;
        MaskCall { given: mask.is_given(), padded: mask == Mask::Padded, may_skip: true, eager: false }
    }

    /// `output.requires_grad_(True)` on a leaf: its gradient is made and kept like a parameter's.
    pub(super) fn require_grad(&self, hidden: Tensor<'a>) -> Tensor<'a> {
        // one layer on behalf of many consumes its input, the leaf of all of them, unless something comes between
        let embeddings = &self.architecture.embeddings;
        let between = embeddings.positions.is_some()
            || embeddings.scaled && !self.modeling.scale_buffer
            || embeddings.norm.is_some()
            || self.encoder.is_some()
            || self.tower.is_some()
            || self.lengthens_by() > 0
            || self.member.keeps_inputs()
            || self.shards && self.machine.with(|state| state.parallel.has_units_by_accelerate())
            || self.member.checkpointing == Checkpointing::Offloaded
            || self.embedding_dropout();
        let id = self.machine.with(|state| state.leaf(&hidden.value, self.apart != Apart::Few || between));
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
        if self.architecture.shares_table() {
            return self.machine.tensor(|state| state.embedding_in_parts(table, rows, width));
        }
        self.machine.tensor(|state| state.embedding(table, ids, rows, width))
    }

    /// A tensor without gradient.
    pub(super) fn constant(&self, numel: u64, dtype: Dtype, operation: &'static What) -> Tensor<'a> {
        self.constant_of(Dims::Elements, numel, dtype, operation)
    }

    /// The same with a row for each token.
    pub(super) fn of_tokens(&self, numel: u64, dtype: Dtype, operation: &'static What) -> Tensor<'a> {
        self.constant_of(Dims::Rows(Rows::Tokens, self.batch.tokens()), numel, dtype, operation)
    }

    /// The same with a row for each position, which are those of one sequence unless texts share one.
    pub(super) fn of_positions(&self, numel: u64, dtype: Dtype, operation: &'static What) -> Tensor<'a> {
        self.constant_of(self.position_dims(), numel, dtype, operation)
    }

    /// A row for each position.
    pub(super) fn position_dims(&self) -> Dims {
        if self.has_own_positions() {
            Dims::Rows(Rows::Tokens, self.batch.tokens())
        } else {
            Dims::Rows(Rows::Positions, self.batch.length)
        }
    }

    /// The same with a number for each query and key, of every sequence or one for all.
    pub(super) fn of_queries(&self, numel: u64, dtype: Dtype, operation: &'static What) -> Tensor<'a> {
        let (tokens, length, keys) = (self.batch.tokens(), self.batch.length, self.keys(None));
        let own = numel.is_multiple_of(tokens.saturating_mul(keys).max(1));
        let (rows, of) = if own { (tokens, Rows::Tokens) } else { (length, Rows::Positions) };
        self.constant_of(Dims::Scores(of, rows, keys), numel, dtype, operation)
    }

    fn constant_of(&self, dims: Dims, numel: u64, dtype: Dtype, operation: &'static What) -> Tensor<'a> {
        let storage = self.machine.with(|state| {
            let storage = state.alloc(numel, dtype, operation);
            state.note_dims(storage, dims);
            storage
        });
        Tensor { machine: self.machine, value: Value::plain(storage, numel, dtype) }
    }

    /// Masks and rotary embeddings.
    pub(super) fn shared(&self, embedded: &Embedded<'a>, call: MaskCall) -> Shared<Tensor<'a>> {
        self.with_rotary(self.masks(embedded, call), embedded)
    }

    /// Positions and masks.
    pub(super) fn masks(&self, embedded: &Embedded<'a>, call: MaskCall) -> Shared<Tensor<'a>> {
        let dtype = embedded.hidden.value.dtype;
        let mut seen = self.architecture.blocks.iter().map(|block| Seen::by(&block.mixer));
        let sliding = self.attentions().find_map(|attention| attention.window);
        let any_full = seen.any(|seen| seen == Seen::All);
        let full = any_full.then(|| self.mask(None, dtype, call)).flatten();
        self.looked_for_recurrent_padding(call);
        let sliding = sliding.and_then(|window| self.mask(Some(window), dtype, call));
        Shared { full, sliding, ..self.no_masks(embedded) }
    }

    /// Positions alone.
    pub(super) fn no_masks(&self, embedded: &Embedded<'a>) -> Shared<Tensor<'a>> {
        let positions = embedded.positions.clone();
        Shared { positions, ..Shared::none() }
    }

    pub(super) fn attentions(&self) -> impl Iterator<Item = &'a Attention> {
        self.architecture.blocks.iter().filter_map(|block| block.mixer.attention())
    }
}
