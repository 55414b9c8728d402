//! transformers' `generate`: the prompt at once, then token after token, with a cache of keys and values or without.
//!
//! Source: transformers 5.17 generation/utils.py `generate`, `_prefill`, `_sample`, and cache_utils.py.

use std::cell::RefCell;
use std::collections::VecDeque;

use super::self_attention::Heads;
use super::{Model, Pass};
use crate::dtype::Dtype;
use crate::job::Batch;
use crate::memory::Category;
use crate::scenario::software::Trainer;
use crate::scenario::{CacheKind, Generation, Pictures, Sampling};
use crate::step::machine::State;
use crate::step::tensor::{Tensor, Value};
use crate::step::what::{Source, What, roles, torch};

static KEYS_AND_VALUES: What = What::own(
    "KV cache",
    "keys or values of all earlier tokens of a layer, which the next token attends to",
    Source::At("transformers, cache_utils.py"),
);
static STATE: What = What::own(
    "recurrent state",
    "what linear attention of a layer knows of all earlier tokens, which each further one changes",
    Source::At("transformers, cache_utils.py, LinearAttentionLayer"),
);
static SPECIAL: What = What::own("special token", "the number of a special token", Source::At(LOOP));
static SEQUENCES: What = What::own(
    "sequences",
    "token ids, positions or mask of all tokens up to now: generate makes them longer by one with every token",
    Source::At(LOOP),
);
static NEXT: What =
    What::own("next token", "of each sequence its next token, or whether it goes on", Source::At(LOOP));
static SCORES: What = What::own(
    "scores of the next token",
    "float32 numbers by which the next token is chosen, one per sequence and vocabulary entry",
    Source::At(LOOP),
);
static GENERATED: What = What::own(
    "scores of the answers",
    "float32 numbers by which every token of some answers was chosen, one per token and vocabulary entry",
    Source::At("trl, experimental/ppo/ppo_trainer.py, generate"),
);
static RANKED: What = What::own(
    "ranked vocabulary",
    "the vocabulary in the order of its scores, of which sampling cuts off the end (top-p)",
    Source::At("transformers, generation/logits_process.py, TopPLogitsWarper"),
);

static PROBABILITIES: What = What::own(
    "probabilities of the next token",
    "float32 numbers that the next token is drawn by, one per sequence and vocabulary entry",
    Source::At(LOOP),
);
static SORT_SCRATCH: What = What::own(
    "sort (scratch)",
    "scratch space of the sort of the vocabulary by its scores",
    Source::At("PyTorch, aten/src/ATen/native/cuda/Sort.cpp"),
);

const LOOP: &str = "transformers, generation/utils.py, _sample";

/// A forward pass of `generate`.
#[derive(Clone, Copy)]
pub(super) struct Generating<'p, 'a> {
    kind: CacheKind,
    /// Whether the prompt is through.
    decodes: bool,
    /// Tokens of a sequence that the cache holds.
    past: u64,
    /// Tokens of a sequence that a static cache has room for.
    room: u64,
    /// Whether attention is written out in Python, which looks at all of a static cache from the beginning.
    eager: bool,
    /// Keys, then values, of each layer in the order in which they run.
    cache: &'p RefCell<VecDeque<Tensor<'a>>>,
}

impl Generating<'_, '_> {
    /// Whether anything of earlier tokens is kept.
    pub(super) fn remembers(&self) -> bool {
        self.kind != CacheKind::Off
    }

    /// Keys that a layer with such a window looks at in a pass over so many tokens.
    fn keys(&self, window: Option<u64>, length: u64) -> u64 {
        match self.kind {
            CacheKind::Off => length,
            CacheKind::Dynamic => {
                let held = window.map_or(self.past, |window| self.past.min(window.saturating_sub(1)));
                held.saturating_add(length)
            }
            CacheKind::Static if self.past == 0 && !self.eager => length,
            CacheKind::Static => self.room,
        }
    }
}

impl<'a> Generating<'_, 'a> {
    /// `past_key_values.update(…)`: a dynamic cache is joined anew with each token, old and new one side by side.
    pub(super) fn update(&self, pass: &Pass<'_, 'a>, heads: &mut Heads<'a>, window: Option<u64>) {
        let length = pass.batch.length.max(1);
        let keys = match self.kind {
            CacheKind::Off => return,
            CacheKind::Dynamic => self.keys(window, length),
            CacheKind::Static => self.room,
        };
        let mut shorter = Vec::new();
        // its layers are of the keys' element type, which autocast makes another than the values' (`lazy_initialization`)
        let dtype = heads.k.value.dtype;
        // what was given is let go of when both are there
        let [k, v] = [&heads.k, &heads.v].map(|new| {
            let before = if self.past == 0 { None } else { self.cache.borrow_mut().pop_front() };
            let held = match (self.kind, before) {
                (CacheKind::Static, Some(held)) => held,
                (CacheKind::Static | CacheKind::Dynamic | CacheKind::Off, before) => {
                    let joined = new.cached((new.value.numel / length).saturating_mul(keys), dtype);
                    // of a window both are joined before either is let go of
                    if window.is_some() {
                        shorter.extend(before);
                    }
                    joined
                }
            };
            self.cache.borrow_mut().push_back(held.clone());
            // while a static cache is filled only what is in it is looked at
            let seen = (new.value.numel / length).saturating_mul(self.keys(window, length));
            held.slice(seen)
        });
        drop(shorter);
        heads.k = k;
        heads.v = v;
    }
}

impl<'a> Pass<'_, 'a> {
    /// Whether a layer's states are those that earlier tokens left.
    pub(super) fn continues(&self) -> bool {
        self.generating.is_some_and(|own| own.remembers() && own.past > 0)
    }

    /// `update_conv_state` and `update_recurrent_state`: a state of so many elements, which is copied into and stays where it is; none
    /// where nothing is cached.
    pub(super) fn held_state(&self, numel: u64, dtype: Dtype) -> Option<Tensor<'a>> {
        let generating = self.generating.filter(|own| own.remembers())?;
        let mut cache = generating.cache.borrow_mut();
        let before = if generating.past == 0 { None } else { cache.pop_front() };
        let held = before.unwrap_or_else(|| {
            self.machine.as_category(Category::KvCache, &roles::SCAN, || self.constant(numel, dtype, &STATE))
        });
        cache.push_back(held.clone());
        Some(held)
    }
}

impl<'m> Tensor<'m> {
    /// A tensor of the cache, of so many elements of a type, laid out as its shape says.
    fn cached(&self, numel: u64, dtype: Dtype) -> Tensor<'m> {
        self.machine.as_category(Category::KvCache, &roles::ATTENTION, || {
            self.machine.tensor(|state| {
                let value = &self.value;
                let whole = Value { numel, layout: value.shape, ..*value };
                state.new_like(&whole, dtype, &KEYS_AND_VALUES, crate::step::autograd::Edge::None)
            })
        })
    }
}

impl<'a> Pass<'_, 'a> {
    /// Tokens of a sequence that attention with such a window looks at.
    pub(super) fn keys(&self, window: Option<u64>) -> u64 {
        let length = self.batch.length;
        match &self.generating {
            Some(generating) => generating.keys(window, length),
            None => length.saturating_add(self.prefix()),
        }
    }

    /// Tokens of a sequence up to now, those of this pass with them.
    pub(super) fn seen(&self) -> u64 {
        let past = self.generating.map_or(self.prefix(), |generating| generating.past);
        past.saturating_add(self.batch.length)
    }

    /// Whether a mask is built although nothing is hidden: of a static cache it hides what is not filled yet.
    pub(super) fn always_masks(&self) -> bool {
        self.generating.is_some_and(|own| own.kind == CacheKind::Static && own.past > 0)
    }

    /// Whether experts are computed by one matrix for each row (`_optimize_model_for_decode`).
    pub(super) fn copies_experts(&self) -> bool {
        self.generating.is_some_and(|own| own.decodes)
    }

    /// Whether positions are those of every sequence, and not of one for all.
    pub(super) fn has_own_positions(&self) -> bool {
        self.batch.mask.is_packed()
            || self.generating.is_some()
            || self.member.returns_states
            || self.in_contexts()
    }

    /// Whether GPUs share each sequence, whose positions and labels come with the batch then.
    pub(super) fn in_contexts(&self) -> bool {
        self.machine.with(|state| state.parallel.contexts()) > 1
    }
}

/// What `_sample` has in its variables from token to token.
struct Kept<'a> {
    /// Token ids of all sequences, their mask and positions.
    ids: Tensor<'a>,
    mask: Tensor<'a>,
    positions: Tensor<'a>,
    /// Which sequences go on.
    unfinished: Tensor<'a>,
    /// The scores of the last token.
    scores: Vec<Tensor<'a>>,
    /// What the last forward pass was given.
    inputs: Vec<Tensor<'a>>,
}

impl<'a> Model<'a> {
    /// A tensor of integers for every token of prompts.
    pub fn prompts(&self, batch: Batch) -> Tensor<'a> {
        let bytes = batch.tokens().saturating_mul(Dtype::I64.bytes());
        self.machine.tensor(|state| {
            let storage = state.alloc_as(Category::Batch, bytes, Dtype::I64, &SEQUENCES);
            Value::plain(storage, batch.tokens(), Dtype::I64)
        })
    }

    /// `model.generate(input_ids, attention_mask, max_new_tokens=…)`. Of the passes after the prompt's those run that are given
    /// by the tokens before them; `prefilled` is called before the first. Where the model's trainer keeps the scores of every token
    /// (`output_scores=True`), these are returned side by side.
    pub fn generate(
        &self,
        batch: Batch,
        how: Generation,
        passes: &[u64],
        prefilled: impl FnOnce(),
    ) -> Option<Tensor<'a>> {
        let scores: Option<RefCell<Vec<Tensor<'a>>>> = self.member.returns_states.then(RefCell::default);
        self.evaluating(|| {
            let whole = self.machine.with(|state| state.category);
            let cache = RefCell::default();
            let room = batch.length.saturating_add(how.new_tokens).saturating_sub(1);
            let pass = |past: u64| {
                let generating = Generating {
                    kind: how.cache,
                    decodes: past > 0,
                    past,
                    room,
                    eager: self.is_eager(),
                    cache: &cache,
                };
                let text = Batch { pictures: Pictures::NONE, ..batch };
                let batch = match how.cache {
                    _ if past == 0 => batch,
                    CacheKind::Off => Batch { length: past.saturating_add(1), ..batch },
                    // what was made of pictures is there already
                    CacheKind::Dynamic | CacheKind::Static => Batch { length: 1, ..text },
                };
                let past = if how.cache == CacheKind::Off { 0 } else { past };
                Pass {
                    trains: false,
                    // accelerate wraps the forward of peft's model, and `generate` calls the one inside
                    autocast: self.autocast.or(self.member.generates_under).filter(|_| !self.member.adapts),
                    generating: Some(Generating { past, ..generating }),
                    ..self.pass(batch)
                }
            };
            let tensor = |numel: u64, dtype: Dtype, what: &'static What| {
                self.machine.tensor(|state: &mut State| {
                    Value::plain(
                        state.alloc_as(Category::Batch, numel.saturating_mul(dtype.bytes()), dtype, what),
                        numel,
                        dtype,
                    )
                })
            };
            let integers = |numel: u64, what: &'static What| tensor(numel, Dtype::I64, what);
            let rows = batch.sequences;
            let of_all = |length: u64| integers(rows.saturating_mul(length), &SEQUENCES);
            // a position in the text, and those in time, rows and columns
            let each = if self.architecture.places_in_grids() { 4 } else { 1 };
            let places = |length: u64| of_all(length.saturating_mul(each));
            let _special = [(); 3].map(|()| integers(1, &SPECIAL));
            // the script's own ids and mask are there already
            let first = {
                let summed = of_all(batch.length);
                let less = of_all(batch.length);
                drop(summed);
                let _padding = tensor(batch.tokens(), Dtype::Bool, &SEQUENCES);
                let positions = of_all(batch.length);
                drop(less);
                if each == 1 {
                    positions
                } else {
                    let _deltas = integers(rows, &SEQUENCES);
                    let all = places(batch.length);
                    drop(positions);
                    all
                }
            };
            let mut kept: Option<Kept<'a>> = None;
            let unfinished = integers(rows, &NEXT);
            let mut unfinished = Some(unfinished);
            let mut prefilled = Some(prefilled);
            // tokens of a sequence up to the last one that ran
            let mut ran = batch.length;
            for (index, past) in [0].iter().chain(passes).enumerate() {
                let length = if index == 0 { batch.length } else { past.saturating_add(1) };
                let pass = pass(if index == 0 { 0 } else { *past });
                if index == 1
                    && let Some(prefilled) = prefilled.take()
                {
                    prefilled();
                }
                let inputs = {
                    let ids = of_all(pass.batch.length);
                    let positions = (index > 0 && how.cache != CacheKind::Off).then(|| places(1));
                    [Some(ids), positions].into_iter().flatten().collect::<Vec<_>>()
                };
                if let Some(kept) = &mut kept {
                    kept.inputs = Vec::new();
                }
                let hidden = pass.hidden();
                let logits = pass.last_logits(hidden);
                // those of the prompt are no variable of the loop
                let mut inputs = if index == 0 { Vec::new() } else { inputs };
                let mut variables = (None, Vec::new(), None);
                if let Some(Kept { ids, mask, positions, unfinished: still, scores, inputs: _ }) = kept.take()
                {
                    unfinished = Some(still);
                    inputs.push(mask);
                    variables = (Some(ids), scores, Some(positions));
                }
                let (ids_before, scores_before, positions_before) = variables;
                let positions = {
                    let _next = [integers(1, &NEXT), integers(rows.saturating_mul(each), &NEXT)];
                    places(length.saturating_add(1))
                };
                let mask = of_all(length.saturating_add(1));
                drop(positions_before);
                if let Some(all) = &scores {
                    let not_run = if index == 0 { 0 } else { past.saturating_sub(ran) };
                    all.borrow_mut().extend(pass.scores_of_others(&logits, not_run));
                    ran = length;
                }
                let scores = pass.next_scores(&logits, how.sampling, scores_before, scores.as_ref());
                let next = integers(rows, &NEXT);
                let ids = of_all(length.saturating_add(1));
                drop((next, ids_before, logits));
                let unfinished = unfinished.take().unwrap_or_else(|| integers(rows, &NEXT));
                kept = Some(Kept { ids, mask, positions, unfinished, scores, inputs });
            }
            drop(kept);
            // torch.stack(output.scores, 1)
            let joined = scores.map(|scores| {
                let numel = rows.saturating_mul(how.new_tokens).saturating_mul(self.architecture.vocab);
                self.machine.as_category(Category::Logits, &roles::LOGITS, || {
                    let joined = self.pass(batch).constant(numel, Dtype::F32, &GENERATED);
                    drop(scores);
                    joined
                })
            });
            drop(first);
            cache.borrow_mut().clear();
            self.machine.with(|state| state.category = whole);
            joined
        })
    }
}

impl<'a> Pass<'_, 'a> {
    /// The head of the last token (`logits_to_keep=1`).
    fn last_logits(&self, hidden: super::Hidden<'a>) -> Tensor<'a> {
        let super::Hidden { states, given: _, ids, encoded } = hidden;
        let logits = self.machine.as_category(Category::Logits, &roles::HEAD, || {
            let width = states.value.numel / self.batch.tokens().max(1);
            let last = states.slice(width.saturating_mul(self.batch.sequences));
            self.logits(&last)
        });
        drop((states, ids, encoded));
        self.leave_autocast();
        // accelerate's `convert_outputs_to_fp32`
        if self.autocast.is_some() { logits.to(Dtype::F32) } else { logits }
    }

    /// `outputs.logits[:, -1].to(copy=True, dtype=torch.float32)` and what the processors make of it: a temperature, the 50
    /// likeliest, the top 90 % of probability. Each variable of the last token goes where this one's takes its place.
    fn next_scores(
        &self,
        logits: &Tensor<'a>,
        sampling: Sampling,
        before: Vec<Tensor<'a>>,
        all: Option<&RefCell<Vec<Tensor<'a>>>>,
    ) -> Vec<Tensor<'a>> {
        self.machine.as_category(Category::Logits, &roles::LOGITS, || {
            let numel = logits.value.numel;
            let fresh = |what: &'static What| logits.fresh(numel, Dtype::F32, what);
            let mut before = before.into_iter();
            let raw = fresh(&SCORES);
            drop(before.next());
            match sampling {
                Sampling::Greedy => return vec![raw],
                Sampling::Drawn => {
                    if let Some(all) = all {
                        // by a temperature
                        all.borrow_mut().push(fresh(&SCORES));
                    }
                    let scores = self.suppresses().then(|| {
                        // generation/logits_process.py `SuppressTokensLogitsProcessor`: torch.arange, torch.isin, torch.where
                        let vocabulary = numel / self.batch.sequences.max(1);
                        let _tokens = logits.fresh(vocabulary, Dtype::I64, &SEQUENCES);
                        let _mask = logits.fresh(vocabulary, Dtype::Bool, &torch::MASKED);
                        drop([(); 2].map(|()| logits.fresh(vocabulary, Dtype::Bool, &torch::MASKED)));
                        fresh(&SCORES)
                    });
                    if scores.is_some() {
                        drop(before.next());
                    }
                    let probabilities = fresh(&PROBABILITIES);
                    drop(before.next());
                    // torch.multinomial
                    drop(fresh(&PROBABILITIES));
                    return [Some(raw), scores, Some(probabilities)].into_iter().flatten().collect();
                }
                Sampling::Sampled => {}
            }
            let warm = fresh(&SCORES);
            let likeliest = {
                let _masked = logits.fresh(numel, Dtype::Bool, &torch::MASKED);
                fresh(&SCORES)
            };
            drop(warm);
            let ranked = self.ranked(logits);
            let cumulated = {
                let _probabilities = fresh(&PROBABILITIES);
                fresh(&PROBABILITIES)
            };
            let removed = [(); 2].map(|()| logits.fresh(numel, Dtype::Bool, &torch::MASKED));
            let scores = fresh(&SCORES);
            drop((ranked, cumulated, removed));
            drop(likeliest);
            drop(before.next());
            let probabilities = fresh(&PROBABILITIES);
            drop(before.next());
            // torch.multinomial
            drop(fresh(&PROBABILITIES));
            vec![raw, scores, probabilities]
        })
    }

    /// Whether a picture's placeholder is never drawn: trl's trainers say so where they are given a processor (trainer/grpo_trainer.py and
    /// trainer/rloo_trainer.py `suppress_tokens`).
    fn suppresses(&self) -> bool {
        self.tower.is_some() && self.member.software().trainer == Trainer::Trl
    }

    /// The scores of so many tokens that are not run.
    fn scores_of_others(&self, logits: &Tensor<'a>, tokens: u64) -> Option<Tensor<'a>> {
        let tokens = u32::try_from(tokens).unwrap_or(u32::MAX);
        let Value { numel, .. } = logits.value;
        (tokens > 0).then(|| {
            self.machine.tensor(|state| {
                let bytes = numel.saturating_mul(Dtype::F32.bytes());
                let storage = state.persistent(bytes, Dtype::F32, tokens, Category::Logits, &SCORES);
                Value::plain(storage, numel, Dtype::F32)
            })
        })
    }

    /// `torch.sort(scores)`: the scores in order, and the indices of that order.
    ///
    /// Source: aten/src/ATen/native/cuda/Sort.cpp; the scratch space of cub's radix sort as it was measured.
    fn ranked(&self, logits: &Tensor<'a>) -> [Tensor<'a>; 2] {
        let (numel, rows) = (logits.value.numel, self.batch.sequences);
        let scores = logits.fresh(numel, Dtype::F32, &RANKED);
        let order = logits.fresh(numel, Dtype::I64, &RANKED);
        let pairs = logits.fresh(numel, Dtype::I64, &SORT_SCRATCH);
        if rows < SEGMENTS && rows > 1 {
            let _segments = logits.fresh(numel, Dtype::I64, &SORT_SCRATCH);
            let _sorted = logits.fresh(numel, Dtype::F32, &SORT_SCRATCH);
            self.sort_scratch(numel);
        } else if rows == 1 {
            self.sort_scratch(numel);
        } else {
            let bytes = numel.saturating_mul(SORTED_PAIR);
            self.machine.with(|state| state.scratch(bytes, &SORT_SCRATCH));
        }
        drop(pairs);
        [scores, order]
    }

    fn sort_scratch(&self, numel: u64) {
        let tile = match self.device.capability {
            ..80 => 2816,
            80..90 => 3072,
            90.. => 5376,
        };
        let tiles = numel.div_ceil(tile).saturating_mul(1024);
        let bytes = numel.saturating_mul(SORTED_PAIR).saturating_add(tiles).saturating_add(8703);
        self.machine.with(|state| state.scratch(bytes, &SORT_SCRATCH));
    }
}

/// Rows from which each is sorted by itself (Sort.cpp `segmented_sort_pairs_by_full_sort`).
const SEGMENTS: u64 = 128;

/// Bytes of a number and its index as cub's radix sort keeps a second copy of them.
const SORTED_PAIR: u64 = 12;
