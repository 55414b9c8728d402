//! mllama's tower (Llama 3.2 Vision): tiles of pictures whose rows, a class token's among them, go through layers and then through
//! gated ones; and the layers of the text that attend to what it makes.
//!
//! Source: transformers 5.17 models/mllama/modeling_mllama.py; traced on the null device.

use std::ops::Range;

use super::bound::{BoundTower, GatedTable, Projector};
use super::layer::TOWER;
use super::looked::Looked;
use crate::dtype::Dtype;
use crate::model::blocks::{Attention, Projection, Wiring};
use crate::model::vision::Crossed;
use crate::step::autograd::{Edge, fresh, like, only, share};
use crate::step::forward::inputs::Shared;
use crate::step::forward::self_attention::Heads;
use crate::step::forward::{BoundLayer, Pass};
use crate::step::ops::pointwise::promoted;
use crate::step::params::ParamId;
use crate::step::tensor::{Layout, Tensor, Value};
use crate::step::what::{Source, What, roles, torch};

static TILES_THERE: What =
    What::own("aspect_ratio_mask", "which rows of a picture's tiles are there", Source::Modeling);
static TILES_APART: What = What::own(
    "_prepare_aspect_ratio_attention_mask",
    "which rows of a picture's tiles see each other: a number for every pair",
    Source::Modeling,
);
static PADDED: What =
    What::own("pad", "each tile's rows, and padding up to a multiple of 8", Source::Modeling);
static SEEN: What = What::own(
    "_prepare_cross_attention_mask",
    "which rows of the pictures each token sees",
    Source::Modeling,
);
static SEEN_AT_ALL: What =
    What::own("full_text_row_masked_out_mask", "which tokens see a picture", Source::Modeling);

/// What the text's layers are given of pictures.
pub(in crate::step::forward) struct Crossing<'m> {
    /// A row for each patch, class token and tile of every picture.
    pub states: Tensor<'m>,
    /// Which of them each token sees.
    pub mask: Tensor<'m>,
    /// Which tokens see any.
    pub sees: Tensor<'m>,
    /// What the model's forward holds beside.
    pub locals: Vec<Tensor<'m>>,
}

impl<'a> Pass<'_, 'a> {
    /// `MllamaModel.forward` before its text's, where the batch has pictures.
    pub(in crate::step::forward) fn crossing(&self) -> Option<Crossing<'a>> {
        let tower = self.tower.as_ref()?;
        let looked = self.looked(self.batch)?;
        let crossed = tower.vision.crossed.as_ref()?;
        let Projector::Mllama { product, .. } = &tower.projector else { return None };
        let seen = self.machine.within("vision_model", &TOWER, || self.mllama_tower(tower, looked, crossed));
        let states = seen.through(product).unflattened();
        let (mask, sees, positions) = self.crossing_masks(tower, looked);
        Some(Crossing { states, mask, sees, locals: vec![seen, positions] })
    }

    /// `MllamaVisionModel.forward`.
    fn mllama_tower(&self, tower: &BoundTower<'a>, looked: Looked<'_>, crossed: &Crossed) -> Tensor<'a> {
        let unmodelled = |what| self.machine.unassigned().unmodelled(what);
        let (Projector::Mllama { tiles: [before, of_rows, between], gate, between: norm, .. }, Some(first)) =
            (&tower.projector, &tower.first)
        else {
            return unmodelled("a projector that mllama does not have");
        };
        let (Some(class), Some(positions)) = (tower.class, tower.positions) else {
            return unmodelled("a tower without a class token or positions");
        };
        let width = looked.vision.hidden;
        let rows = looked.grid.patches().saturating_add(1).saturating_mul(looked.count);
        // a variable has them until the tower is through
        let patches = {
            let patches = self.pixels(tower, looked).patched(tower, looked.patches());
            self.patches_require_grad(patches)
        };
        let mut hidden = self.with_tiles(&patches, *before, looked);
        hidden = hidden.behind_class(class, (looked.count, false));
        hidden = {
            let of_positions = {
                let less = {
                    let open = self.parameter(*gate).keeping_output(&torch::TANH);
                    open.scale()
                };
                self.parameter(positions).times_number(&less)
            };
            let sum = hidden.add_row(&of_positions);
            let tiles = self.looked_up(of_rows.table, looked.pictures, rows.saturating_mul(width));
            let open = self.parameter(of_rows.gate).keeping_output(&torch::TANH);
            let of_tiles = tiles.times_number(&open);
            let both = sum.add(&of_tiles);
            drop(sum);
            drop((of_positions, tiles));
            drop((of_tiles, open));
            both
        };
        hidden = hidden.normed(first);
        let padded = looked.of_all_tiles();
        let numel = padded.length.saturating_mul(padded.count).saturating_mul(width);
        hidden = hidden.tiles_padded(numel);
        let mask = self.mask_of_tiles(looked, hidden.value.dtype);
        let shared = Shared { full: Some(mask), ..Shared::none() };
        self.machine.with(|state| shared.all().for_each(|tensor| state.share(tensor.value.storage)));
        let local = tower.blocks.len().saturating_sub(crossed.gated as usize);
        let (mut states, of_local) = self.mllama_layers(tower, (0..local, looked), hidden, &shared);
        hidden = of_local.normed(norm);
        drop(of_local);
        hidden = self.with_tiles(&hidden, *between, looked);
        let (mut gated, of_gated) =
            self.mllama_layers(tower, (local..tower.blocks.len(), looked), hidden, &shared);
        hidden = of_gated;
        self.tower_given.replace(Some(shared.map(|tensor| tensor.value)));
        let mut beside: Vec<Tensor<'a>> =
            crossed.beside.iter().filter_map(|layer| states.get(*layer as usize).cloned()).collect();
        let count = crossed.beside.len() as u64;
        let stacked = self.machine.stacked(&beside, numel.saturating_mul(count)).in_token_order();
        let unpadded = rows.saturating_mul(width);
        let last = hidden.flattened().slice(unpadded);
        let others = stacked.slice(unpadded.saturating_mul(count));
        let joined = last.cat(&others).with(|value| value.flat = false);
        drop((last, others));
        drop(patches);
        drop(hidden);
        drop(shared);
        // Python's lists and tuples let go of the last first, and a variable that a list is made of goes after all others
        let let_go = |list: &mut Vec<Tensor<'a>>| while list.pop().is_some() {};
        let_go(&mut gated);
        let_go(&mut beside);
        drop(stacked);
        let_go(&mut states);
        joined
    }

    /// `MllamaVisionEncoder.forward`: what every layer returned, which stays until the tower is through, and the last once more. A variable
    /// has what the first was given.
    fn mllama_layers(
        &self,
        tower: &BoundTower<'a>,
        (layers, looked): (Range<usize>, Looked<'_>),
        given: Tensor<'a>,
        shared: &Shared<Tensor<'a>>,
    ) -> (Vec<Tensor<'a>>, Tensor<'a>) {
        let mut states = Vec::with_capacity(layers.len());
        let mut hidden = given.clone();
        for number in layers {
            hidden = self.tower_block_or_checkpoint(tower, (number, looked), &hidden, shared);
            states.push(hidden.clone());
        }
        drop(given);
        (states, hidden)
    }

    /// A parameter, as it is.
    fn parameter(&self, id: ParamId) -> Tensor<'a> {
        self.machine.tensor(|state| state.weight(id))
    }

    /// `embedding(aspect_ratio_ids)`: a row for each picture, of so many numbers in all.
    fn looked_up(&self, table: ParamId, pictures: u64, numel: u64) -> Tensor<'a> {
        self.lookup(table, None, pictures, numel / pictures.max(1))
    }

    /// `MllamaPrecomputedAspectRatioEmbedding.forward`: a row for each tile is added to all of its own.
    fn with_tiles(&self, hidden: &Tensor<'a>, tiles: GatedTable, looked: Looked<'_>) -> Tensor<'a> {
        let numel = looked.count.saturating_mul(looked.vision.hidden);
        let rows = self.looked_up(tiles.table, looked.pictures, numel);
        let opened = {
            let open = self.parameter(tiles.gate).keeping_output(&torch::TANH);
            rows.mul(&open)
        };
        drop(rows);
        hidden.above_tiles(&opened)
    }

    /// `_prepare_aspect_ratio_attention_mask`.
    fn mask_of_tiles(&self, looked: Looked<'_>, dtype: Dtype) -> Tensor<'a> {
        let pieces = looked.of_all_tiles();
        let there = {
            let tiles = self.constant(looked.count, dtype, &TILES_THERE);
            let repeated = self.constant(pieces.length.saturating_mul(pieces.count), dtype, &TILES_THERE);
            drop(tiles);
            self.constant(repeated.value.numel, dtype, &TILES_THERE)
        };
        let pairs = there.value.numel.saturating_mul(pieces.length);
        // autocast casts both factors
        let dtype = self.autocast.unwrap_or(dtype);
        let cast = [(); 2].map(|()| (dtype != there.value.dtype).then(|| there.to(dtype)));
        let product = self
            .machine
            .tensor(|state| Value::plain(state.alloc_product(pairs, 1, dtype, &TILES_APART), pairs, dtype));
        let [first, second] = cast;
        drop(second);
        drop(first);
        let mask = self.constant(pairs, dtype, &TILES_APART);
        drop(product);
        drop(there);
        mask
    }

    /// `_prepare_cross_attention_mask`, and both masks at the positions of the batch.
    fn crossing_masks(
        &self,
        tower: &BoundTower<'a>,
        looked: Looked<'_>,
    ) -> (Tensor<'a>, Tensor<'a>, Tensor<'a>) {
        let dtype = self.machine.with(|state| state.params.get(tower.patch).dtype);
        let tokens = self.batch.tokens();
        let pairs = tokens.saturating_mul(self.rows_of_pictures(looked));
        let of_pairs = |dtype| self.of_tokens(pairs, dtype, &SEEN);
        let of_tokens = |dtype| self.of_tokens(tokens, dtype, &SEEN_AT_ALL);
        let repeated = of_pairs(Dtype::I64);
        let inverted = {
            let inverted = of_pairs(Dtype::F32);
            inverted.to(dtype)
        };
        let hidden = of_pairs(Dtype::Bool);
        let mask = of_pairs(dtype);
        drop(hidden);
        drop(repeated);
        let sees = {
            let any = {
                let differs = of_pairs(Dtype::Bool);
                let any = of_tokens(Dtype::Bool);
                drop(differs);
                any
            };
            any.to(dtype)
        };
        drop(inverted);
        let positions = {
            let range = self.of_positions(self.batch.length, Dtype::I64, &torch::RANGE);
            range.fresh(self.batch.length, Dtype::I64, &torch::POSITIONS)
        };
        let chosen = of_pairs(dtype);
        drop(mask);
        let chosen_sees = of_tokens(dtype);
        drop(sees);
        (chosen, chosen_sees, positions)
    }

    /// Rows of one text's pictures, to which each of its tokens attends.
    fn rows_of_pictures(&self, looked: Looked<'_>) -> u64 {
        let tiles = looked.count / self.batch.sequences.max(1);
        looked.grid.patches().saturating_add(1).saturating_mul(tiles)
    }

    /// `MllamaCrossAttentionDecoderLayer.forward`.
    pub(in crate::step::forward) fn crossing_layer(
        &self,
        layer: &BoundLayer<'a>,
        attention: &Attention,
        hidden: &Tensor<'a>,
        shared: &Shared<Tensor<'a>>,
    ) -> Tensor<'a> {
        let unmodelled = |what| hidden.unmodelled(what);
        let Wiring::PreNorm { attention: first, mlp } = &layer.block.wiring else {
            return unmodelled("norms that mllama does not have");
        };
        let (Some(states), [(_, attention_gate), (_, mlp_gate)]) = (&shared.encoded, &layer.params[..])
        else {
            return unmodelled("a layer without pictures or gates");
        };
        let mixed = {
            let normed = hidden.normed(&layer.norm(first));
            self.within("cross_attn", &roles::ATTENTION, || {
                self.crossing_attention(layer, attention, (&normed, states), shared)
            })
        };
        let sum = {
            let opened = mixed.behind_gate(*attention_gate);
            hidden.add(&opened)
        };
        drop(mixed);
        let mut mixed = sum.normed(&layer.norm(mlp));
        mixed = self.feed_forward(layer, &mixed);
        if let Some(sees) = &shared.sees {
            mixed = mixed.mul_constant(sees);
        }
        let opened = mixed.behind_gate(*mlp_gate);
        sum.add(&opened)
    }

    /// `MllamaTextCrossAttention.forward`.
    fn crossing_attention(
        &self,
        layer: &BoundLayer<'a>,
        attention: &Attention,
        (x, states): (&Tensor<'a>, &Tensor<'a>),
        shared: &Shared<Tensor<'a>>,
    ) -> Tensor<'a> {
        let (Projection::Separate { q, k, v }, Some(norms)) = (&attention.projection, &attention.qk_norm)
        else {
            return x.unmodelled("projections that mllama does not have");
        };
        let q = {
            let q = x.through(&layer.linear(q)).to_heads();
            q.normed(&layer.norm(&norms.q))
        };
        let (mut k, mut v) = (states.through(&layer.linear(k)), states.through(&layer.linear(v)));
        (k, v) = (k.to_heads(), v.to_heads());
        k = k.normed(&layer.norm(&norms.k));
        let mut heads = Heads { q, k, v };
        self.remember(&mut heads, None);
        let keys = self.looked(self.batch).map_or(0, |looked| self.rows_of_pictures(looked));
        let output = self.sdpa_of(attention, &heads, (shared.cross_mask.as_ref(), keys));
        output.through(&layer.linear(&attention.output))
    }
}

impl<'m> Tensor<'m> {
    /// `gate.tanh() * x` of one number that is trained.
    pub(in crate::step::forward) fn behind_gate(&self, gate: ParamId) -> Tensor<'m> {
        let open = self.machine.tensor(|state| state.weight(gate)).keeping_output(&torch::TANH);
        self.times_number(&open)
    }

    /// `x + tiles`, a row for all rows of a tile. A leaf copies what is no whole tensor: patches lie between class tokens.
    fn above_tiles(&self, tiles: &Tensor<'m>) -> Tensor<'m> {
        self.apply(|state, x| {
            let y = &tiles.value;
            let node = state.node([x, y], |state, node, grad| {
                let [rows, tiles, _] = node.inputs;
                let own = rows.wants().then(|| match rows.edge {
                    Edge::Param(_) => like(state, grad, &torch::CONTIGUOUS),
                    Edge::Node { .. } | Edge::Frozen(_) | Edge::None => share(state, grad),
                });
                [own, tiles.wants().then(|| share(state, grad)), None]
            });
            state.new_like(x, promoted(x.dtype, y.dtype), &torch::ADD, node.output(0))
        })
    }

    /// `F.pad(x, …)` with zeros at the end of each tile.
    fn tiles_padded(&self, numel: u64) -> Tensor<'m> {
        if numel == self.value.numel {
            return self.clone();
        }
        self.apply(|state, x| {
            let own = x.numel;
            let node = state
                .node([x], move |state, _, grad| only(fresh(state, grad, (own, Layout::Tokens), &PADDED)));
            let padded = Value { numel, layout: Layout::Tokens, shape: Layout::Tokens, flat: false, ..*x };
            state.new_like(&padded, x.dtype, &PADDED, node.output(0))
        })
    }
}
