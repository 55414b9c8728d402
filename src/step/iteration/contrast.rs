//! A micro-batch of texts whose embeddings are compared: several forward passes before one backward, or every text twice.
//!
//! Source: sentence-transformers 6.2 base/losses/merged_forward.py `embed_columns`, base/losses/gradcache.py,
//! sentence_transformer/losses/{,cached_}multiple_negatives_ranking.py; compared with the allocator's trace.

use super::Rounds;
use crate::dtype::Dtype;
use crate::job::Batch;
use crate::memory::{Category, Phase, Stage};
use crate::model::modeling::gives_token_types;
use crate::scenario::Stack;
use crate::step::autograd::Edge;
use crate::step::forward::embedding::Embedded;
use crate::step::heap::BLOCK;
use crate::step::tensor::{Tensor, Value};
use crate::step::what::{Source, What, roles, torch};

static EMBEDDINGS: What = What::own("embeddings", "a vector for each text", Source::Loss);
static MERGED: What =
    What::own("candidates", "the columns after the anchors as one batch: ids, mask and types", Source::Loss);

/// The micro-batch: which texts an example has, and how many of a column run at a time.
#[derive(Clone, Copy)]
pub(super) struct Columns {
    pub batch: Batch,
    pub texts: u64,
    pub cached: u64,
}

impl<'a> Rounds<'a> {
    /// Puts every column of a batch on the machine: ids, mask, and types of tokens where the family's tokenizer gives them.
    pub(super) fn bring_columns(
        &mut self,
        member: usize,
        batch: Batch,
        stack: Stack,
        (texts, times): (u64, u64),
    ) {
        let tensors = self.tensors_of_texts(member);
        self.bring(batch, stack, times.saturating_mul(texts), Some(tensors));
    }

    fn tensors_of_texts(&self, member: usize) -> u64 {
        let typed = gives_token_types(&self.members[member].model.architecture.model_type);
        2 + u64::from(typed)
    }

    /// Forward and backward of a micro-batch.
    pub(super) fn contrast(&self, act: u16, member: usize, columns: Columns, is_last: bool) {
        let [forward, backward] = [Stage::Forward, Stage::Backward].map(|stage| Phase { act, stage });
        self.notes.begin(forward);
        self.begin_training(member, is_last);
        let between = || {
            self.notes.end(forward);
            self.notes.begin(backward);
        };
        match columns.cached {
            0 => self.contrast_at_once(member, columns, between),
            _ => self.contrast_cached(member, columns, between),
        }
        self.notes.end(backward);
    }

    /// `MultipleNegativesRankingLoss`: the anchors by themselves, then all other columns as one batch.
    fn contrast_at_once(&self, member: usize, columns: Columns, between: impl FnOnce()) {
        let Columns { batch, texts, .. } = columns;
        let model = &self.members[member].model;
        let others = Batch { sequences: batch.sequences.saturating_mul(texts - 1), ..batch };
        let first = model.pass(batch);
        let anchors = first.embedding();
        let mut merged = Vec::new();
        if texts > 2 {
            let tensors = 0..self.tensors_of_texts(member);
            self.machine.as_category(Category::Batch, &roles::HEAD, || {
                merged.extend(tensors.map(|_| self.made(others.tokens(), Dtype::I64, &MERGED)));
            });
        }
        let passes = [first, model.pass_after(1, others, merged.first().map(|ids| ids.value))];
        let candidates = passes[1].embedding();
        let given = [anchors.shared, candidates.shared];
        // the dictionary of a merged batch goes with it, those of the batch stay until the loss is there
        let features = merged.is_empty().then_some(candidates.features);
        drop(merged);
        passes[0].enter();
        let loss = passes[0].contrast(&anchors.vectors, &candidates.vectors, texts);
        drop((features, candidates.vectors, anchors.features, anchors.vectors));
        passes[1].enter();
        between();
        self.machine.with(|state| state.category = Category::Temporaries);
        self.machine.backward(loss, &|checkpoint, input| {
            let (pass, layer) = model.pass_and_layer(checkpoint);
            if let (Some(pass), Some(given)) = (passes.get(pass), given.get(pass)) {
                pass.recompute(layer, input, given);
            }
        });
        self.free_graph();
    }

    /// `CachedMultipleNegativesRankingLoss`: every text is embedded without a graph, the loss goes backward as far as the
    /// embeddings, and every text is embedded once more, to go on with their gradients.
    fn contrast_cached(&self, member: usize, columns: Columns, between: impl FnOnce()) {
        let Columns { batch, texts, cached } = columns;
        let model = &self.members[member].model;
        let (whole, rest) = (batch.sequences / cached, batch.sequences % cached);
        let parts: Vec<(u64, u64)> = [(cached, whole), (rest, u64::from(rest > 0))]
            .into_iter()
            .filter(|(rows, times)| rows * times > 0)
            .collect();
        let few = |rows| Batch { sequences: rows, ..batch };
        let columns = self.different(texts);
        let hidden = model.architecture.hidden;
        let of_column = batch.sequences.saturating_mul(hidden);
        let of_column_run: Vec<u64> =
            parts.iter().flat_map(|(rows, times)| (0..self.different(*times)).map(|_| *rows)).collect();
        let run = of_column_run.iter().sum::<u64>().saturating_mul(hidden).saturating_mul(columns);
        let not_run = of_column.saturating_mul(texts).saturating_sub(run);
        // what was not run is there before the last run of as many rows as there can be
        let largest = of_column_run.first().copied().unwrap_or(0);
        let last = of_column_run.iter().filter(|rows| **rows == largest).count().saturating_sub(1);
        let mut embeddings: Vec<Tensor<'a>> = Vec::new();
        for column in 1..=columns {
            for (run, rows) in of_column_run.iter().enumerate() {
                if let (true, Some(first)) = (column == columns && run == last, embeddings.first()) {
                    embeddings.push(self.embeddings(not_run, first.value.dtype));
                }
                embeddings.push(model.foreseeing(few(*rows), |pass| pass.embedding().vectors));
            }
        }
        let dtype = embeddings.first().map_or(Dtype::F32, |first| first.value.dtype);
        let anchors = self.leaf_of(of_column, dtype);
        let numel = anchors.value.numel.saturating_mul(texts - 1);
        let candidates = self.leaf_of(numel, dtype);
        let mut losses = Vec::new();
        let all = parts.iter().map(|(_, times)| times).sum::<u64>();
        for (run, rows) in of_column_run.iter().enumerate() {
            if run == last {
                let not_run = all.saturating_sub(of_column_run.len() as u64);
                losses.push(self.embeddings(not_run.saturating_mul(BLOCK / 4), Dtype::F32));
            }
            let pass = model.pass(few(*rows));
            pass.enter();
            let [loss, detached] = pass.contrast_rows(&anchors, &candidates);
            self.machine.backward(loss, &|_, _| {});
            losses.push(detached);
        }
        drop((anchors, candidates, losses, embeddings));
        let gradients = self.machine.with(|state| state.take_leaves());
        between();
        for _ in 0..columns {
            for rows in &of_column_run {
                self.machine.with(|state| state.category = Category::Activations);
                let pass = model.pass(few(*rows));
                let Embedded { vectors, features, shared } = pass.embedding();
                let loss = vectors.with_gradients();
                drop((features, vectors));
                self.machine.with(|state| state.category = Category::Temporaries);
                self.machine.backward(loss, &|layer, input| pass.recompute(layer, input, &shared));
                self.free_graph();
            }
        }
        self.free(gradients);
    }

    /// Embeddings of which those of a batch are like the last ones that were made.
    fn embeddings(&self, numel: u64, dtype: Dtype) -> Tensor<'a> {
        self.machine.as_category(Category::Logits, &roles::HEAD, || self.made(numel, dtype, &EMBEDDINGS))
    }

    /// Joined embeddings, whose gradients stay.
    fn leaf_of(&self, numel: u64, dtype: Dtype) -> Tensor<'a> {
        let joined =
            self.machine.as_category(Category::Logits, &roles::HEAD, || self.made(numel, dtype, &torch::CAT));
        let leaf = self.machine.with(|state| state.leaf(&joined.value, false));
        joined.with(|value| value.edge = Edge::Param(leaf))
    }

    /// A tensor without a gradient.
    fn made(&self, numel: u64, dtype: Dtype, what: &'static What) -> Tensor<'a> {
        let machine = self.machine;
        let storage = machine.with(|state| state.alloc(numel, dtype, what));
        Tensor { machine, value: Value::plain(storage, numel, dtype) }
    }

    /// What the graph that went backward held, and its leaves.
    fn free_graph(&self) {
        let mut held = self.machine.with(|state| state.graph.take_held());
        held.extend(self.machine.with(|state| state.take_leaves()));
        self.free(held);
    }
}
