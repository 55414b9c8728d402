//! The lookup of an embedding table.

use super::views::slice_backward;
use crate::step::autograd::{Grad, Node, Results, only};
use crate::step::heap::{NOTHING, StorageId};
use crate::step::kernels;
use crate::step::machine::State;
use crate::step::params::ParamId;
use crate::step::tensor::{Layout, Value};
use crate::step::what::{Dims, ENGINE, Rows, Source, What, torch};

static TABLE_GRADIENT: What =
    What::own("embedding", "the gradient of the table before it is handed to its parameter", ENGINE);
static EMBEDDING: What = What::own(
    "embedding",
    "rows looked up in a table: the hidden state that enters a layer; all that checkpointing keeps of it",
    Source::Modeling,
);

impl State {
    /// `F.embedding`.
    pub fn embedding(&mut self, table: ParamId, ids: StorageId, rows: u64, width: u64) -> Value {
        let table = self.weight(table);
        let node = self.node([&table], move |state, node, grad| embedding_backward(state, node, grad, rows));
        // the batch's own are there anyway, but for hooks that move what is saved
        let batch = self.graph.offload.as_ref().map_or(NOTHING, |offload| offload.ids);
        self.save(node, if ids == NOTHING { batch } else { ids });
        let numel = rows.saturating_mul(width);
        let storage = self.alloc(numel, table.dtype, &EMBEDDING);
        let by_tokens = self.by_tokens();
        self.note_dims(
            storage,
            if by_tokens == Dims::Rows(Rows::Tokens, rows) {
                by_tokens
            } else {
                Dims::Rows(Rows::Positions, rows)
            },
        );
        self.release(table.storage);
        Value::plain(storage, numel, table.dtype).at(node.output(0))
    }
}

impl State {
    /// `F.embedding(ids, table[part])` of a table of so many parts. The ids are kept.
    pub fn embedding_of_part(
        &mut self,
        (table, parts): (ParamId, u64),
        ids: StorageId,
        rows: u64,
        width: u64,
    ) -> Value {
        let table = self.weight(table);
        let node = self.node([&table], slice_backward);
        let part = Value { numel: table.numel / parts.max(1), ..table }.at(node.output(0));
        let node = self.node([&part], move |state, node, grad| embedding_backward(state, node, grad, rows));
        self.save(node, ids);
        let numel = rows.saturating_mul(width);
        let storage = self.alloc(numel, table.dtype, &EMBEDDING);
        self.release(table.storage);
        Value::plain(storage, numel, table.dtype).at(node.output(0))
    }
}

/// The table's gradient: the ids are sorted, then rows are summed.
fn embedding_backward(state: &mut State, node: &Node, grad: &Grad, rows: u64) -> Results {
    let table = node.inputs[0];
    let storage = look_up_backward(state, grad, rows, (table.storage, table.numel));
    only(Grad::new(storage, table.numel, grad.dtype, Layout::Tokens))
}

/// The same where the gradient has so many elements: its storage.
pub(in crate::step) fn look_up_backward(
    state: &mut State,
    grad: &Grad,
    rows: u64,
    (table, numel): (StorageId, u64),
) -> StorageId {
    let dense = if grad.layout == Layout::Heads {
        state.alloc_for(grad.storage, grad.numel, grad.dtype, &torch::CONTIGUOUS)
    } else {
        NOTHING
    };
    let sorted = kernels::embedding_order(state, rows);
    let storage = state.alloc_for(table, numel, grad.dtype, &TABLE_GRADIENT);
    let width = grad.numel / rows.max(1);
    kernels::embedding_scratch(state, rows, width, numel / width.max(1));
    sorted.into_iter().for_each(|storage| state.release(storage));
    state.release(dense);
    storage
}
