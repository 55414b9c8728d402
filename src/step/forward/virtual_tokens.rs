//! Virtual tokens of peft: prompt tuning and P-tuning put trained rows before the embeddings of a text, prefix tuning trained keys
//! and values before those of every layer.
//!
//! Source: peft 0.21 peft_model.py `PeftModelForCausalLM.forward` and `get_prompt`; tuners/prompt_tuning, p_tuning, prefix_tuning.

use super::loader::Loader;
use super::self_attention::Heads;
use super::{Model, Pass};
use crate::dtype::Dtype;
use crate::job::Member;
use crate::memory::Category;
use crate::model::Architecture;
use crate::model::blocks::LinearClass;
use crate::model::modeling::withholds_cache;
use crate::scenario::Tuner;
use crate::step::heap::Loading;
use crate::step::ops::linear::Shape;
use crate::step::params::ParamId;
use crate::step::tensor::{Layout, Tensor, Value};
use crate::step::what::{Dims, Rank, Rows, Source, What, roles, torch};

const PEFT: Source = Source::At("peft, peft_model.py, PeftModelForCausalLM.forward");
static ENCODER: What = What::own(
    "parameter",
    "what is trained of virtual tokens: a row for each, or the layers that make it",
    Source::At("peft, tuners/{prompt_tuning,p_tuning,prefix_tuning}/model.py"),
);
static IDS: What = What::own("virtual tokens", "their numbers, by which their rows are looked up", PEFT);
static LABELS: What =
    What::own("labels", "labels of the virtual tokens, which none is scored for, and of the text", PEFT);
static MASK: What =
    What::own("attention mask", "the mask with ones for the virtual tokens, in float32", PEFT);

/// What makes virtual tokens, on the machine.
pub(super) struct PromptEncoder {
    table: ParamId,
    /// Elements of a row.
    width: u64,
    /// The layers that a row goes through, each with its bias.
    layers: Vec<(Shape, ParamId, ParamId)>,
}

/// A variable of the forward of peft's model, in the order in which they go when it returns: its arguments first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Variable {
    Embeddings,
    Mask,
    Labels,
    Cache,
    NewMask,
    NewLabels,
    Prompts,
}

/// Elements of keys, or of values, of a token in one layer.
fn of_keys(architecture: &Architecture) -> u64 {
    let attention = architecture.blocks.iter().find_map(|block| block.mixer.attention());
    attention.map_or(0, |attention| attention.kv_heads.saturating_mul(attention.head_dim))
}

/// Virtual tokens that stand before those of a text, in every layer.
pub(super) fn lengthens_by(member: &Member) -> u64 {
    if member.adapts && member.lora.tuner.lengthens() { member.lora.rank } else { 0 }
}

/// Virtual tokens of which only keys and values are there.
pub(super) fn prefix(member: &Member) -> u64 {
    if member.adapts && member.lora.tuner.is_prefix() { member.lora.rank } else { 0 }
}

impl Loader<'_> {
    /// The prompt encoder, which is float32 whatever the model is: it is made in the CPU's memory and moved.
    pub(super) fn prompt_encoder(&mut self, architecture: &Architecture) -> Option<PromptEncoder> {
        let (member, hidden) = (self.member, architecture.hidden);
        if !member.adapts {
            return None;
        }
        let all_keys = of_keys(architecture).saturating_mul(2 * architecture.order.len() as u64);
        let keys = of_keys(architecture);
        // where nobody says how wide its layers are inside, they are as wide as a row
        let (width, layers) = match member.lora.tuner {
            Tuner::Prompt => (hidden, Vec::new()),
            Tuner::PTuning => (hidden, vec![(hidden, hidden); 3]),
            Tuner::Prefix => (all_keys, Vec::new()),
            Tuner::PrefixProjected => (keys, vec![(keys, keys), (keys, all_keys)]),
            Tuner::Lora | Tuner::Dora | Tuner::Ia3 | Tuner::Vera | Tuner::Loha | Tuner::Lokr | Tuner::Oft => {
                return None;
            }
        };
        self.adapted = true;
        // as many as the model has positions for beside the text
        let room = architecture.max_positions.unwrap_or(u64::MAX).saturating_sub(self.batch.length);
        self.largest_rank = self.largest_rank.max(room);
        self.state.module = "prompt_encoder";
        let mut add = |shape| {
            self.load_in(Loading::Adapters, |own| {
                own.state.add_trained(&ENCODER, shape, Rank::None, Dtype::F32, 1)
            })
        };
        let table = add((member.lora.rank, width));
        let layers = layers
            .into_iter()
            .map(|(input, output)| {
                let weight = add((output, input));
                (Shape { input, output }, weight, add((1, output)))
            })
            .collect();
        Some(PromptEncoder { table, width, layers })
    }
}

impl PromptEncoder {
    /// Whether it has layers that add a bias.
    pub(super) fn has_bias(&self) -> bool {
        !self.layers.is_empty()
    }
}

impl Model<'_> {
    /// Tokens of each sequence that the layers are given beside the batch's own.
    pub(super) fn lengthens_by(&self) -> u64 {
        lengthens_by(self.member)
    }

    /// Tokens of each sequence of which every layer has keys and values before it sees the first.
    pub(super) fn prefix(&self) -> u64 {
        prefix(self.member)
    }
}

impl<'a> Pass<'_, 'a> {
    /// A variable of peft's forward, which goes when that returns.
    fn keep_in_peft(&self, place: Variable, tensor: Tensor<'a>) {
        self.peft_variables.borrow_mut().push((place, tensor));
    }

    /// The same of so many numbers that are part of the batch.
    fn keep_numbers(&self, place: Variable, numel: u64, dtype: Dtype, what: &'static What) {
        let make = || self.constant(numel, dtype, what);
        self.keep_in_peft(place, self.machine.as_category(Category::Batch, &roles::EMBEDDING, make));
    }

    /// The text's embeddings behind those of the virtual tokens.
    pub(super) fn behind_virtual_tokens(&self, hidden: Tensor<'a>) -> Tensor<'a> {
        let (Some(encoder), count) = (&self.prompt, self.lengthens_by()) else { return hidden };
        if count == 0 {
            return hidden;
        }
        let rows = self.batch.sequences;
        self.keep_numbers(Variable::NewLabels, rows.saturating_mul(count), Dtype::I64, &LABELS);
        self.keep_numbers(Variable::Labels, self.batch.tokens(), Dtype::I64, &LABELS);
        let prompts = {
            let encoded = self.encoded(encoder, count);
            let repeated = encoded.repeated_rows(rows);
            drop(encoded);
            repeated.to(hidden.value.dtype)
        };
        let whole = prompts.followed_by(&hidden, rows);
        self.machine.with(|state| {
            let dims = Dims::Rows(Rows::Tokens, self.batch.tokens());
            state.note_dims(whole.value.storage, dims);
        });
        self.keep_in_peft(Variable::Embeddings, whole.clone());
        self.keep_in_peft(Variable::Prompts, prompts);
        whole
    }

    /// What the encoder makes of so many virtual tokens.
    fn encoded(&self, encoder: &PromptEncoder, rows: u64) -> Tensor<'a> {
        let ids = self.constant(rows, Dtype::I64, &IDS);
        let mut hidden = self.within("prompt_encoder", &roles::EMBEDDING, || {
            self.lookup_in(encoder.table, &ids, rows, encoder.width)
        });
        drop(ids);
        // a variable of the encoder's forward
        let looked_up = hidden.clone();
        let last = encoder.layers.len();
        for (index, (shape, weight, bias)) in encoder.layers.iter().enumerate() {
            hidden = self.within("prompt_encoder", &roles::PROJECTION, || {
                hidden.apply(|state, x| state.linear(x, *shape, *weight, Some(*bias), LinearClass::Linear))
            });
            if index + 1 < last {
                let activation =
                    if self.member.lora.tuner == Tuner::PTuning { &torch::RELU } else { &torch::TANH };
                hidden = hidden.keeping_output(activation);
            }
        }
        drop(looked_up);
        hidden
    }

    /// The cache that prefix tuning fills before the model runs: keys and values of every layer.
    pub(super) fn make_prefix(&self) {
        let (Some(encoder), count) = (&self.prompt, self.prefix()) else { return };
        if count == 0 {
            return;
        }
        let rows = self.batch.sequences.saturating_mul(count);
        let dtype = self.machine.with(|state| state.params.get(self.outside.tokens).dtype);
        let encoded = self.encoded(encoder, rows).to(dtype);
        let layers = self.architecture.order.len() as u64;
        let of_layer = encoded.value.numel / layers.max(1);
        let parts = encoded.heads_of_layers().chunks(&vec![of_layer; layers as usize]);
        drop(encoded);
        let pairs = parts.iter().flat_map(Tensor::cached_pair);
        self.cache_before.borrow_mut().extend(pairs);
    }

    /// `past_key_values.update(…)` behind the prefix.
    pub(super) fn join_prefix(&self, heads: &mut Heads<'a>) {
        let [k, v] = [&heads.k, &heads.v].map(|new| {
            let before = self.cache_before.borrow_mut().pop_front();
            let Some(before) = before else { return new.clone() };
            let mut joined = before.cat(new);
            // of a single head both orders are one
            if new.value.layout == Layout::Either {
                joined.value.layout = Layout::Either;
            }
            joined
        });
        self.cache.borrow_mut().extend([k.clone(), v.clone()]);
        heads.k = k;
        heads.v = v;
    }

    /// peft's forward returns: its variables go, and the cache with them where the model does not return it.
    pub(super) fn leave_peft(&self) {
        let mut variables = self.peft_variables.take();
        if self.prefix() > 0 {
            // a list goes from its end on, the keys of each layer before its values
            let mut cache = self.cache.take();
            cache.reverse();
            cache.chunks_exact_mut(2).for_each(|pair| pair.swap(0, 1));
            if withholds_cache(&self.architecture.model_type) && !self.fills_cache {
                variables.extend(cache.into_iter().map(|tensor| (Variable::Cache, tensor)));
            } else {
                drop(self.cache.replace(cache));
            }
        }
        variables.sort_by_key(|(place, _)| *place);
        variables.into_iter().for_each(drop);
    }

    /// `torch.cat((ones, attention_mask), dim=1)`: numbers, as ones are.
    pub(super) fn lengthen_mask(&self) {
        let virtual_tokens = self.lengthens_by().saturating_add(self.prefix());
        if virtual_tokens == 0 || !self.batch.mask.is_given() {
            return;
        }
        let rows = self.batch.sequences;
        self.keep_numbers(Variable::NewMask, rows.saturating_mul(virtual_tokens), Dtype::F32, &MASK);
        self.keep_numbers(Variable::Mask, rows.saturating_mul(self.seen()), Dtype::F32, &MASK);
    }

    /// `F.embedding` of a table that is no table of the model's.
    fn lookup_in(&self, table: ParamId, ids: &Tensor<'a>, rows: u64, width: u64) -> Tensor<'a> {
        self.machine.tensor(|state| {
            let value: Value = state.embedding(table, ids.value.storage, rows, width);
            state.note_dims(value.storage, Dims::Rows(Rows::Positions, rows));
            value
        })
    }
}
