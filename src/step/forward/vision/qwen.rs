//! The towers of the Qwen family, and what takes their features on to the text's layers.
//!
//! Sources: transformers 5.17 models/qwen2_vl, qwen2_5_vl, qwen3_vl (modeling files); traced on the null device.

use super::bound::{BoundTower, Merger, Projector};
use super::looked::Looked;
use crate::dtype::Dtype;
use crate::model::blocks::Activation;
use crate::step::forward::Pass;
use crate::step::params::ParamId;
use crate::step::tensor::Tensor;
use crate::step::what::{Source, What, roles};

static GRID: What = What::own("position_ids", "row and column of each patch", Source::Modeling);
static TAPS: What = What::own(
    "interp_indices",
    "the four learned positions that surround each patch's own",
    Source::Modeling,
);
static WEIGHTS: What =
    What::own("interp_weights", "how near each of the four learned positions is", Source::Modeling);

/// Learned positions that surround a patch's own.
const NEIGHBOURS: u64 = 4;

/// What a tower made of the pictures of a batch.
pub(super) struct Features<'m> {
    /// Their tokens' embeddings, picture after picture.
    pub joined: Tensor<'m>,
    /// What is added to the text's first layers.
    pub deep: Vec<Tensor<'m>>,
    /// What the variable of the tower's output holds beside.
    pub output: Vec<Tensor<'m>>,
}

/// What is added to the hidden states of the text's first layers (deepstack), and to which tokens.
pub(in crate::step::forward) struct Deep<'m> {
    pub(super) mask: Tensor<'m>,
    pub(super) features: Vec<Tensor<'m>>,
}

impl<'a> Pass<'_, 'a> {
    /// The tower over all pictures at once, and their tokens' embeddings joined.
    pub(super) fn qwen_features(
        &self,
        tower: &BoundTower<'a>,
        looked: Looked<'_>,
        embedded: &Tensor<'a>,
    ) -> Features<'a> {
        let vision = looked.vision;
        let Projector::Qwen { merger, deep: mergers } = &tower.projector else {
            let joined = embedded.unmodelled("a projector that no model of the Qwen family has");
            return Features { joined, deep: Vec::new(), output: Vec::new() };
        };
        let pixels = self.pixels(tower, looked);
        let mut deep = Vec::with_capacity(mergers.len());
        let mut output = Vec::new();
        let tokens = {
            let taps = tower.positions.map(|table| (table, self.taps(looked)));
            let ids = self.constant(looked.patches().saturating_mul(2), Dtype::I64, &GRID);
            let mut hidden = pixels.patched(tower, looked.patches());
            if vision.names_patches() {
                hidden = self.patches_require_grad(hidden);
            }
            let placed = taps.as_ref().map(|(table, taps)| self.placed(*table, taps, looked));
            if let Some(placed) = &placed {
                let near = placed.to(hidden.value.dtype);
                hidden = hidden.add(&near);
            }
            let windowed = vision.window > 0;
            let unit = vision.merge.saturating_mul(vision.merge);
            let rows = looked.patches() / unit.max(1);
            if windowed {
                hidden = hidden.reordered(rows);
            }
            let shared = self.tower_rotary(vision, looked, windowed.then_some(rows));
            self.machine.with(|state| shared.all().for_each(|tensor| state.share(tensor.value.storage)));
            for number in 0..tower.blocks.len() {
                hidden = self.tower_block_or_checkpoint(tower, (number, looked), &hidden, &shared);
                let merger = vision.deep.iter().zip(mergers).find(|(layer, _)| **layer == number as u64);
                deep.extend(merger.map(|(_, merger)| hidden.merged(merger)));
            }
            self.tower_given.replace(Some(shared.map(|tensor| tensor.value)));
            drop(shared);
            let mut merged = hidden.merged(merger);
            if windowed {
                merged = merged.reordered(rows);
            }
            drop(taps);
            drop(ids);
            drop(placed);
            if tower.positions.is_some() {
                output.push(hidden);
            }
            merged
        };
        drop(pixels);
        // `torch.split` by picture, then `torch.cat`
        let whole = tokens.value.numel;
        let parts = tokens.chunks(&[whole]);
        if tower.positions.is_some() {
            output.push(tokens);
        }
        let joined = self.machine.stacked(&parts, whole).in_token_order();
        drop(parts);
        Features { joined: joined.to(embedded.value.dtype), deep, output }
    }

    /// Which of the learned positions surround each patch's own, and how near they are.
    fn taps(&self, looked: Looked<'_>) -> [Tensor<'a>; 2] {
        let numel = looked.patches().saturating_mul(NEIGHBOURS);
        [self.constant(numel, Dtype::I64, &TAPS), self.constant(numel, Dtype::F32, &WEIGHTS)]
    }

    /// `(self.pos_embed(interp_indices) * interp_weights[:, :, None]).sum(1)`.
    fn placed(&self, table: ParamId, [taps, weights]: &[Tensor<'a>; 2], looked: Looked<'_>) -> Tensor<'a> {
        let rows = looked.patches().saturating_mul(NEIGHBOURS);
        let weighted = {
            let near = self.within("visual.pos_embed", &roles::EMBEDDING, || {
                self.lookup(table, Some(taps), rows, looked.vision.hidden)
            });
            near.mul_constant(weights)
        };
        weighted.sum_groups(NEIGHBOURS)
    }

    /// `_deepstack_process` after one of the text's first layers: what its tokens of pictures get.
    pub(in crate::step::forward) fn deepened(&self, layer: usize, hidden: &Tensor<'a>) -> Option<Tensor<'a>> {
        let deep = self.deep.borrow();
        let deep = deep.as_ref()?;
        let features = deep.features.get(layer)?.to(hidden.value.dtype);
        let copy = hidden.copied();
        let width = hidden.value.numel / deep.mask.value.numel.max(1);
        let local = {
            let picked = copy.rows_where(&deep.mask, features.value.numel / width.max(1), width);
            picked.add(&features)
        };
        Some(copy.rows_put(&deep.mask, &local))
    }
}

impl<'m> Tensor<'m> {
    /// A merger's forward.
    fn merged(&self, merger: &Merger) -> Tensor<'m> {
        let normed = self.normed(&merger.norm);
        let [first, second] = &merger.linears;
        let inner = {
            let wide = normed.through(first);
            wide.activated(Activation::Gelu, &[])
        };
        inner.through(second)
    }
}
