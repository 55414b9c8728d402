//! Liger's experts: routing, both products and the weighted sum as one function, whose backward multiplies again in place of keeping
//! what the experts made.
//!
//! Source: liger-kernel 0.8.5 transformers/swiglu.py `LigerExperts`, ops/fused_moe.py and ops/fused_moe_kernels.py. Compared with the
//! allocator's trace of that code.

use crate::dtype::Dtype;
use crate::model::blocks::Moe;
use crate::step::autograd::{Grad, Node, Results};
use crate::step::heap::{NOTHING, StorageId};
use crate::step::machine::State;
use crate::step::ops::experts::Expert;
use crate::step::tensor::{Layout, Tensor, Value};
use crate::step::what::{Dims, Source, What, torch};

const FUNCTION: Source = Source::At("liger-kernel, ops/fused_moe.py");

static CHOSEN: What =
    What::own("chosen experts", "the numbers of the experts of each token, in 32 bits", FUNCTION);
static PRE_ACT: What = What::own(
    "gate and up",
    "gate and up of each token and expert before the activation, kept for backward",
    FUNCTION,
);
static POST_ACT: What = What::own("gated product", "the gated product of each token and expert", FUNCTION);
static ROWS: What = What::own("experts' outputs", "what its experts make of each token", FUNCTION);
static OUTPUT: What = What::own("weighted sum", "the weighted sum of what its experts made", FUNCTION);
static COUNTS: What = What::own("tokens of experts", "how many tokens each expert is given", FUNCTION);
static STARTS: What = What::own("starts of experts", "where the rows of each expert begin", FUNCTION);
static PLACES: What = What::own(
    "places of rows",
    "which token each row is of, and where it goes back to: kept for backward",
    FUNCTION,
);
static TILES: What =
    What::own("tiles", "which rows each tile of the kernels has, and of which expert", FUNCTION);
static GATE_UP_GRADIENT: What =
    What::own("gradient of gate and up", "the gradient of gate and up before the activation", FUNCTION);
static WEIGHTED_ACT: What =
    What::own("weighted product", "the gated product times the weight of its expert, made again", FUNCTION);
static WEIGHT_GRADIENT: What =
    What::own("gradients of weights", "the gradients of the experts' weights for each token", FUNCTION);
static MATRICES_GRADIENT: What = What::own(
    "gradient of the matrices",
    "the gradient of all experts' matrices, made whether they are trained or not",
    FUNCTION,
);
static EXPANDED: What =
    What::own("gradient of the rows", "the gradient of what each expert was given of a token", FUNCTION);

/// Rows of a tile (`BLOCK_M_TOKEN`), and how many choices a block of the router's kernels looks at.
const TILE: u64 = 64;
const CHOICES: u64 = 1024;

/// The sizes of a mixture and of what goes through it.
#[derive(Clone, Copy)]
struct Sizes {
    tokens: u64,
    chosen: u64,
    experts: u64,
    hidden: u64,
    width: u64,
}

impl Sizes {
    fn rows(self) -> u64 {
        self.tokens.saturating_mul(self.chosen)
    }
}

impl<'m> Tensor<'m> {
    /// `LigerExperts` of rows, the experts of each and their weights.
    pub(in crate::step::forward) fn liger_experts(
        &self,
        moe: &Moe,
        [weights, indices]: [&Tensor<'m>; 2],
        [first, last]: [&Expert; 2],
    ) -> Tensor<'m> {
        let sizes = Sizes {
            tokens: self.value.numel / moe.hidden.max(1),
            chosen: moe.top_k,
            experts: moe.experts,
            hidden: moe.hidden,
            width: moe.expert_width,
        };
        // `view(-1, …)` of all three
        let (x, weights) = (self.flattened(), weights.flattened());
        let chosen = indices.fresh(sizes.rows(), Dtype::I32, &CHOSEN);
        let output = x.apply(|state, x| state.liger_experts(x, &weights.value, [first, last], sizes));
        drop(chosen);
        output.flattened()
    }
}

impl State {
    fn liger_experts(
        &mut self,
        x: &Value,
        weights: &Value,
        [first, last]: [&Expert; 2],
        sizes: Sizes,
    ) -> Value {
        let rows = sizes.rows();
        let [gate_up, down] = [first, last].map(|expert| self.weight(expert.weight));
        let nodes = self.graph.len();
        let edge = down;
        let node = self.node([x, weights, &gate_up], move |state, node, grad| {
            experts_backward(state, node, grad, (edge, sizes))
        });
        if self.graph.len() > nodes && down.wants() {
            self.expect_in_graph(last.weight);
        }
        let numbers = |state: &mut State, numel: u64, what| state.alloc(numel, Dtype::I32, what);
        // compute_routing_metadata
        let blocks = sizes.tokens.div_ceil((CHOICES / sizes.chosen.max(1).next_power_of_two()).max(1));
        let partial = numbers(self, sizes.experts.saturating_mul(blocks), &COUNTS);
        let counts = numbers(self, sizes.experts, &COUNTS);
        let starts = numbers(self, sizes.experts + 1, &STARTS);
        let tile_offsets = numbers(self, sizes.experts + 1, &STARTS);
        // as many tokens for each expert
        let tiles = sizes.experts.saturating_mul(rows.div_ceil(sizes.experts.max(1)).div_ceil(TILE));
        let tile_rows = numbers(self, tiles, &TILES);
        let tile_experts = numbers(self, tiles, &TILES);
        let scatter = numbers(self, rows, &PLACES);
        let reverse = numbers(self, rows, &PLACES);
        let gather = numbers(self, rows, &PLACES);
        self.release(partial);
        self.release(tile_offsets);
        let pre = self.of_chosen(x, (sizes, sizes.width.saturating_mul(2)), x.dtype, &PRE_ACT);
        let post = self.of_chosen(x, (sizes, sizes.width), x.dtype, &POST_ACT);
        self.multiply(rows.saturating_mul(sizes.width).saturating_mul(2), sizes.hidden);
        self.try_settings("_fused_up_proj_swiglu_kernel");
        let outputs = self.of_chosen(x, (sizes, sizes.hidden), x.dtype, &ROWS);
        self.multiply(rows.saturating_mul(sizes.hidden), sizes.width);
        self.try_settings("_fused_down_proj_kernel");
        let output = self.new_like(x, x.dtype, &OUTPUT, node.output(0));
        self.try_settings("_token_gather_weighted_sum_kernel");
        for storage in [x.storage, NOTHING, NOTHING, pre, weights.storage] {
            self.save(node, storage);
        }
        for storage in [starts, gather, scatter, reverse, tile_rows, tile_experts] {
            self.save(node, storage);
        }
        for storage in [counts, post, outputs, pre, starts, gather, scatter, reverse, tile_rows, tile_experts]
        {
            self.release(storage);
        }
        self.release(gate_up.storage);
        self.release(down.storage);
        output
    }

    /// A row of that width for each token and expert.
    fn of_chosen(
        &mut self,
        x: &Value,
        (sizes, width): (Sizes, u64),
        dtype: Dtype,
        what: &'static What,
    ) -> StorageId {
        let storage = self.alloc_for(x.storage, sizes.rows().saturating_mul(width), dtype, what);
        self.note_dims(storage, Dims::Chosen(sizes.tokens, sizes.chosen));
        storage
    }
}

/// `LigerFusedMoEFunction.backward`; `down` are the last matrices, whose gradient goes by itself.
fn experts_backward(state: &mut State, node: &Node, grad: &Grad, (down, sizes): (Value, Sizes)) -> Results {
    let [x, weights, gate_up] = node.inputs;
    let rows = sizes.rows();
    let chosen = |state: &mut State, width: u64, what: &'static What| {
        let storage = state.alloc(rows.saturating_mul(width), grad.dtype, what);
        state.note_dims(storage, Dims::Chosen(sizes.tokens, sizes.chosen));
        storage
    };
    let pre = chosen(state, sizes.width.saturating_mul(2), &GATE_UP_GRADIENT);
    let weighted = chosen(state, sizes.width, &WEIGHTED_ACT);
    let mut of_weights = chosen(state, 1, &WEIGHT_GRADIENT);
    state.multiply(rows.saturating_mul(sizes.width), sizes.hidden);
    state.try_settings("_moe_bwd_down_proj_kernel");
    let of_down = state.alloc_for(down.storage, down.numel, down.dtype, &MATRICES_GRADIENT);
    state.multiply(rows.saturating_mul(sizes.width), sizes.hidden);
    state.try_settings("_moe_bwd_dW2_kernel");
    let expanded = chosen(state, sizes.hidden, &EXPANDED);
    state.multiply(rows.saturating_mul(sizes.hidden), sizes.width.saturating_mul(2));
    state.try_settings("_moe_bwd_dX_expanded_kernel");
    let own = state.alloc_for(grad.storage, x.numel, grad.dtype, &OUTPUT);
    state.try_settings("_token_gather_weighted_sum_kernel, without weights");
    let of_gate_up = state.alloc_for(gate_up.storage, gate_up.numel, gate_up.dtype, &MATRICES_GRADIENT);
    state.multiply(rows.saturating_mul(sizes.width).saturating_mul(2), sizes.hidden);
    state.try_settings("_moe_bwd_dW1_kernel");
    for storage in [pre, weighted, expanded] {
        state.release(storage);
    }
    if weights.wants() && weights.dtype != grad.dtype {
        let cast = state.alloc(rows, weights.dtype, &torch::GRADIENT_CAST);
        state.release(of_weights);
        of_weights = cast;
    }
    state.give(down.edge, Grad::new(of_down, down.numel, down.dtype, Layout::Tokens));
    let mut wanted = |input: &Value, storage: StorageId, dtype: Dtype| {
        if input.wants() {
            return Some(Grad::new(storage, input.numel, dtype, Layout::Tokens));
        }
        state.release(storage);
        None
    };
    [
        wanted(&x, own, grad.dtype),
        wanted(&weights, of_weights, weights.dtype),
        wanted(&gate_up, of_gate_up, gate_up.dtype),
    ]
}
