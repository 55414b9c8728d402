//! models/bert/modeling_bert.py.

use crate::dtype::Dtype;
use crate::model::modeling::PositionIds;
use crate::step::forward::inputs::{Embedded, Shared};
use crate::step::forward::{Pass, find};
use crate::step::tensor::Tensor;
use crate::step::what::{What, roles, torch};

static CUMSUM_CAST: What = What::step("cumsum (cast)", "what is to be summed up, as whole numbers");

impl<'a> Pass<'_, 'a> {
    /// `BertEmbeddings` and the masks of `BertModel.forward`.
    pub(in crate::step::forward) fn bert_inputs(&self) -> (Embedded<'a>, Shared<Tensor<'a>>) {
        let embeddings = &self.architecture.embeddings;
        let tokens = self.batch.tokens();
        let counted = self.counts_positions();
        let hidden = {
            let positions = counted.then(|| self.counted_positions());
            let given = self.gives_types();
            let types = if embeddings.token_types.is_some() && !given {
                let numel = if counted { tokens } else { self.batch.length };
                Some(self.constant(numel, Dtype::I64, &torch::TOKEN_TYPES))
            } else {
                None
            };
            let mut hidden = self.embed_tokens();
            let looked_up = hidden.clone();
            let mut kept = Vec::with_capacity(2);
            if let (Some(table), Some(param)) = (&embeddings.token_types, self.outside.token_types) {
                // one row of types for all sequences is copied for the lookup
                let shared = !counted && !given && self.batch.sequences > 1;
                let dense = shared.then(|| self.of_tokens(tokens, Dtype::I64, &torch::TOKEN_TYPES));
                let rows = self.within(table.name, &roles::EMBEDDING, || {
                    self.lookup(param, types.as_ref(), tokens, table.width)
                });
                drop(dense);
                hidden = hidden.add(&rows);
                kept.push(rows);
            }
            if let (Some(table), Some(param)) = (&embeddings.positions, self.outside.positions) {
                let rows = if counted { tokens } else { self.batch.length };
                let rows = self.within(table.name, &roles::EMBEDDING, || {
                    self.lookup(param, positions.as_ref(), rows, table.width)
                });
                hidden = if counted { hidden.add(&rows) } else { hidden.add_row(&rows) };
                kept.push(rows);
            }
            hidden = self.embedding_norm(&hidden);
            hidden = hidden.dropout(self.dropout(embeddings.dropout));
            drop(types);
            drop(looked_up);
            drop(kept);
            hidden
        };
        let full = self.bidirectional_mask(hidden.value.dtype);
        let hidden = match &embeddings.project_in {
            Some(project) => hidden.through(&find(&self.outside.linears, |layer| layer.name == project.name)),
            None => hidden,
        };
        let shared = Shared { full, ..Shared::none() };
        (Embedded { hidden, kept: true, positions: None, locals: Vec::new() }, shared)
    }

    /// Whether positions are counted from the token ids, because padding has none (roberta and those made like it).
    fn counts_positions(&self) -> bool {
        self.modeling.positions == PositionIds::Counted
    }

    /// models/roberta `create_position_ids_from_input_ids`.
    pub(super) fn counted_positions(&self) -> Tensor<'a> {
        let tokens = self.batch.tokens();
        let ints = |name| self.of_tokens(tokens, Dtype::I32, name);
        let longs = |name| self.of_tokens(tokens, Dtype::I64, name);
        let mask = {
            let _differs = self.of_tokens(tokens, Dtype::Bool, &torch::PADDING_MASK);
            ints(&torch::PADDING_MASK)
        };
        let positions = {
            let counted = {
                let counted = longs(&torch::POSITIONS);
                drop(longs(&CUMSUM_CAST));
                ints(&torch::POSITIONS).replacing(counted)
            };
            let shifted = ints(&torch::POSITIONS).replacing(counted);
            ints(&torch::POSITIONS).replacing(shifted)
        };
        let result = {
            let long = longs(&torch::POSITIONS);
            longs(&torch::POSITIONS).replacing(long)
        };
        drop(mask);
        drop(positions);
        result
    }
}

impl<'m> Tensor<'m> {
    /// The tensor itself, once the one that it was made of is gone.
    fn replacing(self, old: Tensor<'m>) -> Tensor<'m> {
        drop(old);
        self
    }
}
