//! Rows of tokens on their way to the GPUs that have their experts and back: all-to-all among these, a gather among those that share each
//! expert, and an order by expert. Of padded chunks the order is a transposed copy, of others a kernel puts each row where a map says.
//!
//! Source: `MoEAlltoAllTokenDispatcher` of megatron/core/transformer/moe/token_dispatcher.py of Megatron-core 0.16.1;
//! `_moe_chunk_sort` of transformer_engine/pytorch/permutation.py of Transformer Engine 2.11.

use crate::dtype::Dtype;
use crate::step::autograd::{Grad, Results, fresh, like, only};
use crate::step::machine::State;
use crate::step::parallel::TunedKernel;
use crate::step::tensor::{Layout, Tensor, Value};
use crate::step::what::{Source, What};
use crate::work::Group;

const DISPATCHER: Source = Source::At("Megatron-core, megatron/core/transformer/moe/token_dispatcher.py");
pub(super) const PERMUTATION: Source =
    Source::At("Transformer Engine, transformer_engine/pytorch/permutation.py");

static EXCHANGED: What =
    What::own("all-to-all", "rows that went to the GPUs that have their experts, or came back", DISPATCHER);
static SORTED: What = What::own(
    "sorted by expert",
    "the rows of all GPUs, expert after expert, as the products read them; or GPU after GPU again",
    DISPATCHER,
);
static PLACES: What =
    What::own("places of rows", "where each row goes in the order by expert, or back", PERMUTATION);
static GATHERED: What = What::own(
    "all-gather",
    "the rows of all GPUs that share each expert, which multiply their columns of it",
    DISPATCHER,
);
static SCATTERED: What = What::own(
    "reduce-scatter",
    "this GPU's rows of the sums over the GPUs that share each expert",
    DISPATCHER,
);

/// How tokens go to experts and come back.
#[derive(Clone, Copy)]
pub(super) struct Chunks {
    /// Rows that a GPU sends: a token for each expert that it goes to.
    pub sent: u64,
    /// Rows that come to a GPU's experts from all of them.
    pub came: u64,
    /// Experts of a GPU.
    pub experts: u64,
    /// GPUs that have the others.
    pub gpus: u64,
    /// GPUs that share each expert, and have some of the tokens each.
    pub sharing: u64,
    /// Whether each expert is given as many.
    pub padded: bool,
}

impl<'m> Tensor<'m> {
    /// `all_to_all`, by which a GPU comes to so many rows.
    pub(super) fn exchanged(&self, chunks: Chunks, rows: u64) -> Tensor<'m> {
        let (size, given) = (chunks.gpus, chunks.sent.saturating_add(chunks.came).saturating_sub(rows));
        if size <= 1 {
            return self.clone();
        }
        self.apply(|state, x| {
            let node = state.node([x], move |state, node, grad| {
                state.heap.send_around(Group::Data, grad.numel.saturating_mul(grad.dtype.bytes()), size);
                only(fresh(state, grad, (node.inputs[0].numel, Layout::Tokens), &EXCHANGED))
            });
            state.heap.send_around(Group::Data, x.bytes(), size);
            state.with_rows(x, (given, rows), &EXCHANGED).at(node.output(0))
        })
    }

    /// `dispatch_postprocess` of rows and how much each counts.
    pub(super) fn given_to_experts(&self, chances: &Tensor<'m>, chunks: Chunks) -> [Tensor<'m>; 2] {
        let gathered = self.rows_gathered(chunks.sharing);
        let all = chances.rows_gathered(chunks.sharing);
        if chunks.experts <= 1 {
            return [gathered, all];
        }
        if chunks.padded {
            return [gathered.transposed_by(chunks.gpus), all.transposed_by(chunks.gpus)];
        }
        gathered.sorted_with(&all)
    }

    /// `combine_preprocess`: the same backwards.
    pub(super) fn given_back(self, chunks: Chunks) -> Tensor<'m> {
        let ordered = match (chunks.experts, chunks.padded) {
            (0..=1, _) => self.clone(),
            (_, true) => self.transposed_by(chunks.gpus),
            (_, false) => self.sorted_alone(chunks.came.saturating_mul(chunks.sharing)),
        };
        let scattered = ordered.rows_scattered(chunks.sharing);
        drop(ordered);
        drop(self);
        scattered
    }

    /// `.transpose(0, 1).contiguous()` of what came of so many GPUs for several experts: as it is where there is one of either.
    fn transposed_by(&self, gpus: u64) -> Tensor<'m> {
        if gpus <= 1 {
            return self.clone();
        }
        self.apply(|state, x| {
            let node = state.node([x], |state, _, grad| only(like(state, grad, &SORTED)));
            state.new_like(x, x.dtype, &SORTED, node.output(0))
        })
    }

    /// `moe_sort_chunks_by_index_with_probs`: keeps where each row went.
    fn sorted_with(&self, chances: &Tensor<'m>) -> [Tensor<'m>; 2] {
        let (x, all) = (self.value, chances.value);
        self.machine.tensors(|state| {
            let node = state.split_node(2, [&x, &all], |state, node, grads| {
                let mut results: Results = Default::default();
                for ((result, grad), input) in results.iter_mut().zip(grads).zip(node.inputs) {
                    *result = grad.map(|grad| fresh(state, &grad, (input.numel, Layout::Tokens), &SORTED));
                }
                results
            });
            let places = state.alloc_for(x.storage, all.numel, Dtype::I32, &PLACES);
            state.save(node, places);
            let made = [
                state.new_like(&x, x.dtype, &SORTED, node.output(0)),
                state.new_like(&all, all.dtype, &SORTED, node.output(1)),
            ];
            state.tune(TunedKernel::SortWithChances, 0);
            state.release(places);
            made
        })
    }

    /// `moe_sort_chunks_by_index` of so many rows.
    fn sorted_alone(&self, rows: u64) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], |state, _, grad| only(like(state, grad, &SORTED)));
            let places = state.alloc_for(x.storage, rows, Dtype::I32, &PLACES);
            state.save(node, places);
            let made = state.new_like(x, x.dtype, &SORTED, node.output(0));
            state.tune(TunedKernel::Sort, 0);
            state.release(places);
            made
        })
    }

    /// `gather_from_sequence_parallel_region` among the GPUs that share each expert.
    fn rows_gathered(&self, gpus: u64) -> Tensor<'m> {
        if gpus <= 1 {
            return self.clone();
        }
        self.apply(|state, x| {
            let node = state.node([x], move |state, _, grad| {
                only(state.among_sharing(grad, grad.numel / gpus, &SCATTERED))
            });
            let all = x.numel.saturating_mul(gpus);
            let bytes = all.saturating_mul(x.dtype.bytes());
            state.gather_tokens(bytes);
            state.with_rows(x, (1, gpus), &GATHERED).at(node.output(0))
        })
    }

    /// `reduce_scatter_to_sequence_parallel_region` among them.
    fn rows_scattered(&self, gpus: u64) -> Tensor<'m> {
        if gpus <= 1 {
            return self.clone();
        }
        self.apply(|state, x| {
            let node = state.node([x], move |state, _, grad| {
                only(state.among_sharing(grad, grad.numel.saturating_mul(gpus), &GATHERED))
            });
            state.gather_tokens(x.bytes());
            state.with_rows(x, (gpus, 1), &SCATTERED).at(node.output(0))
        })
    }
}

impl State {
    /// A tensor with rows as wide as another's, which has the first number of them: the second.
    fn with_rows(&mut self, x: &Value, (given, rows): (u64, u64), what: &'static What) -> Value {
        let numel = (x.numel / given.max(1)).saturating_mul(rows);
        let storage = self.alloc_for(x.storage, numel, x.dtype, what);
        Value::plain(storage, numel, x.dtype)
    }

    /// A gradient that the GPUs that share each expert gather or sum up.
    fn among_sharing(&mut self, grad: &Grad, numel: u64, what: &'static What) -> Grad {
        self.gather_tokens(grad.numel.max(numel).saturating_mul(grad.dtype.bytes()));
        fresh(self, grad, (numel, Layout::Tokens), what)
    }
}
