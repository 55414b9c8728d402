//! models/bert/modeling_bert.py.

use crate::dtype::Dtype;
use crate::step::forward::Model;
use crate::step::forward::inputs::{Embedded, Shared};
use crate::step::tensor::Tensor;

impl<'a> Model<'a> {
    /// `BertEmbeddings` and the masks of `BertModel.forward`.
    pub(in crate::step::forward) fn bert_inputs(&self) -> (Embedded<'a>, Shared<Tensor<'a>>) {
        let embeddings = &self.architecture.embeddings;
        let tokens = self.scenario.tokens();
        let hidden = {
            let types = self.constant(self.scenario.sequence, Dtype::I64, "token types");
            let mut hidden = self.embed_tokens();
            let looked_up = hidden.clone();
            let mut kept = Vec::with_capacity(2);
            if let (Some(table), Some(param)) = (&embeddings.token_types, self.outside.token_types) {
                let rows = self.within(table.name, || self.lookup(param, Some(&types), tokens, table.width));
                hidden = hidden.add(&rows);
                kept.push(rows);
            }
            if let (Some(table), Some(param)) = (&embeddings.positions, self.outside.positions) {
                let rows =
                    self.within(table.name, || self.lookup(param, None, self.scenario.sequence, table.width));
                hidden = hidden.add_row(&rows);
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
        let shared = Shared { positions: None, rotary: None, full, sliding: None, alibi: None };
        (Embedded { hidden, kept: true, positions: None, locals: Vec::new() }, shared)
    }
}
