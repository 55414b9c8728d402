//! Gemma 3's tower (SigLIP) and projector, and the masks with which the tokens of a picture see each other.
//!
//! Sources: transformers 5.17 models/siglip/modeling_siglip.py, models/gemma3/modeling_gemma3.py
//! (`create_masks_for_vision_model`), masking_utils.py; traced on the null device.

use super::bound::{BoundTower, Projector};
use super::looked::Looked;
use crate::dtype::Dtype;
use crate::step::forward::Pass;
use crate::step::forward::inputs::{Embedded, Shared};
use crate::step::tensor::Tensor;
use crate::step::what::{MASKS, What, roles, torch};

static BLOCKS: What =
    What::own("block_sequence_ids", "which of its sequence's pictures a token belongs to", MASKS);
static SAME_PICTURE: What =
    What::own("same picture", "which tokens are of one picture: a part of the attention mask", MASKS);

impl<'a> Pass<'_, 'a> {
    /// `get_image_features`.
    pub(super) fn gemma3_features(
        &self,
        tower: &BoundTower<'a>,
        looked: Looked<'_>,
        embedded: &Tensor<'a>,
    ) -> Tensor<'a> {
        let Projector::Gemma3 { last, norm, product } = &tower.projector else {
            return embedded.unmodelled("a projector that gemma3 does not have");
        };
        let seen = self.siglip(tower, looked).normed(last);
        let projected = {
            let channels = seen.channels_first();
            let pooled = channels.averaged(looked.vision.merge.saturating_mul(looked.vision.merge));
            let normed = pooled.normed(norm);
            let product = {
                let rows = normed.in_rows();
                rows.through(product)
            };
            product.to(seen.value.dtype)
        };
        drop(seen);
        projected.to(embedded.value.dtype)
    }

    /// `SiglipVisionModel.forward` up to its last norm.
    fn siglip(&self, tower: &BoundTower<'a>, looked: Looked<'_>) -> Tensor<'a> {
        let vision = looked.vision;
        let first = {
            let patches = {
                let pixels = self.pixels(tower, looked);
                pixels.patched(tower, looked.patches())
            };
            let patches = self.patches_require_grad(patches);
            let Some(table) = tower.positions else {
                return patches.unmodelled("a tower without positions");
            };
            let places = self.within("vision_tower.embeddings.position_embedding", &roles::EMBEDDING, || {
                self.lookup(table, None, looked.grid.patches(), vision.hidden)
            });
            patches.add_row(&places)
        };
        // variables of both forwards hold what came in
        let mut hidden = first.clone();
        let shared = Shared::none();
        for number in 0..tower.blocks.len() {
            hidden = self.tower_block_or_checkpoint(tower, (number, looked), &hidden, &shared);
        }
        self.tower_given.replace(Some(shared.map(|tensor: &Tensor<'a>| tensor.value)));
        drop(first);
        hidden
    }

    /// `create_masks_for_vision_model`: one for every sequence, in which a picture's tokens see each other.
    pub(in crate::step::forward) fn picture_masks(&self, embedded: &mut Embedded<'a>) -> Shared<Tensor<'a>> {
        let blocks = self.of_tokens(self.batch.tokens(), Dtype::I64, &BLOCKS);
        let full = self.picture_mask(false);
        let sliding = self.attentions().any(|attention| attention.window.is_some());
        let sliding = sliding.then(|| self.picture_mask(true));
        embedded.locals.push(blocks);
        embedded.positions = Some(self.range());
        Shared { full: Some(full), sliding, ..self.no_masks(embedded) }
    }

    /// The same of gemma4, in whose layers that see everything a picture's tokens do not see each other.
    pub(in crate::step::forward) fn windowed_picture_masks(
        &self,
        embedded: &mut Embedded<'a>,
    ) -> Shared<Tensor<'a>> {
        let blocks = self.of_tokens(self.batch.tokens(), Dtype::I64, &BLOCKS);
        let full = self.mask(None, embedded.hidden.value.dtype, self.mask_call());
        let sliding = Some(self.picture_mask(true));
        embedded.locals.push(blocks);
        Shared { full, sliding, ..self.no_masks(embedded) }
    }

    /// `create_causal_mask` with what is laid over it; the window comes last.
    fn picture_mask(&self, windowed: bool) -> Tensor<'a> {
        let (batch, sequence) = (self.batch.sequences, self.batch.length);
        let square = sequence.saturating_mul(sequence);
        let all = square.saturating_mul(batch);
        let bools = |numel: u64, what: &'static What| self.of_queries(numel, Dtype::Bool, what);
        let padding = self.batch.mask.is_given().then(|| bools(self.batch.tokens(), &torch::PADDING_MASK));
        let ranges = [self.range(), self.range()];
        let causal = {
            let _causal = bools(square, &torch::CAUSAL_MASK);
            bools(square, &torch::MASK)
        };
        let same = {
            let _same = bools(all, &SAME_PICTURE);
            bools(all, &torch::MASK)
        };
        let mut mask = bools(all, &torch::MASK);
        drop((same, causal));
        if windowed {
            let seen = bools(all, &torch::MASK);
            drop(mask);
            let window = bools(square, &torch::WINDOW);
            mask = bools(all, &torch::MASK);
            drop(window);
            drop(seen);
        }
        if padding.is_some() {
            mask = self.padded(mask, sequence);
        }
        drop(ranges);
        drop(padding);
        mask
    }
}
