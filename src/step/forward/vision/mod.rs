//! The tower that looks at pictures, what makes tokens of its patches, and how these come among those of the text.
//!
//! Sources: transformers 5.17 models/qwen2_5_vl/modeling_qwen2_5_vl.py, vision_utils.py; traced on the null device.

mod attention;
mod bound;
mod layer;
mod looked;
mod ops;
mod rotary;

use super::Pass;
use crate::dtype::Dtype;
use crate::step::autograd::Edge;
use crate::step::heap::NOTHING;
use crate::step::tensor::{Tensor, Value};
use crate::step::what::{Source, What};

pub(super) use bound::{BoundTower, load, looks};
use layer::TOWER;
use looked::Looked;
use ops::PIXELS;

static GRID: What = What::own("position_ids", "row and column of each patch", Source::Modeling);

static IMAGE_MASK: What = What::own("image_mask", "which tokens are a picture's", Source::Modeling);

static GRIDS: What =
    What::own("position_ids", "three positions for each token: time, row and column", Source::Modeling);

/// The text's embeddings with the pictures' among them, and what the model's forward holds beside.
pub(super) struct Sighted<'m> {
    pub hidden: Tensor<'m>,
    /// In the order in which they are freed.
    pub locals: Vec<Tensor<'m>>,
}

impl<'a> Pass<'_, 'a> {
    /// `get_image_features` and `masked_scatter`, where the batch has pictures.
    pub(super) fn sighted(&self, embedded: &Tensor<'a>) -> Option<Sighted<'a>> {
        let tower = self.tower.as_ref()?;
        let looked = self.looked(self.batch)?;
        let features = self.machine.within("visual", &TOWER, || self.image_features(tower, looked, embedded));
        let tokens = self.batch.tokens();
        let mask = self.of_tokens(tokens, Dtype::Bool, &IMAGE_MASK);
        let hidden = embedded.with_scattered(&mask, &features);
        let positions = self.of_tokens(tokens.saturating_mul(3), Dtype::I64, &GRIDS);
        Some(Sighted { hidden, locals: vec![features, mask, positions] })
    }

    /// The tower over all pictures at once, and their tokens' embeddings joined.
    fn image_features(
        &self,
        tower: &BoundTower<'a>,
        looked: Looked<'_>,
        embedded: &Tensor<'a>,
    ) -> Tensor<'a> {
        let vision = looked.vision;
        let dtype = self.machine.with(|state| state.params.get(tower.patch).dtype);
        let pixels = looked.patches().saturating_mul(vision.patch_numbers);
        // the batch's own are float32
        let pixels = if dtype == Dtype::F32 {
            Tensor { machine: self.machine, value: Value::plain(NOTHING, pixels, dtype) }
        } else {
            self.constant(pixels, dtype, &PIXELS)
        };
        let tokens = {
            let ids = self.constant(looked.patches().saturating_mul(2), Dtype::I64, &GRID);
            let mut hidden = pixels.patched(tower, looked.patches());
            if self.trains && self.inputs_require_grad && !hidden.value.requires_grad() {
                let id = self.machine.with(|state| state.leaf(&hidden.value, true));
                hidden = hidden.with(|value| value.edge = Edge::Param(id));
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
            }
            self.tower_given.replace(Some(shared.map(|tensor| tensor.value)));
            drop(shared);
            let mut merged = {
                let normed = hidden.normed(&tower.norm);
                let [first, second] = &tower.merger;
                let inner = {
                    let wide = normed.through(first);
                    wide.activated(crate::model::blocks::Activation::Gelu, &[])
                };
                inner.through(second)
            };
            if windowed {
                merged = merged.reordered(rows);
            }
            drop(ids);
            drop(hidden);
            merged
        };
        drop(pixels);
        // `torch.split` by picture, then `torch.cat`
        let whole = tokens.value.numel;
        let parts = tokens.chunks(&[whole]);
        drop(tokens);
        let joined = self.machine.stacked(&parts, whole).in_token_order();
        drop(parts);
        joined.to(embedded.value.dtype)
    }
}
