//! Pixtral's tower, and the projectors of Mistral 3 and of LLaVA behind it: the patches of all pictures are one sequence, in which a mask keeps
//! the pictures apart.
//!
//! Sources: transformers 5.17 models/pixtral/modeling_pixtral.py, models/mistral3/modeling_mistral3.py, models/llava/modeling_llava.py; traced
//! on the null device.

use super::bound::{BoundTower, Projector};
use super::layer::by_picture;
use super::looked::{Looked, MOST_APART};
use crate::dtype::Dtype;
use crate::model::blocks::Activation;
use crate::step::forward::Pass;
use crate::step::forward::inputs::Shared;
use crate::step::tensor::{Tensor, Value};
use crate::step::what::{Source, What, torch};

static PLACES: What = What::own("position_ids", "row and column of each patch", Source::Modeling);
static ANGLES: What = What::own("freqs", "angles of each patch's row and column", Source::Modeling);
static APART: What = What::own(
    "generate_block_attention_mask",
    "which patches are of one picture: a number for every pair of patches of the batch",
    Source::Modeling,
);

/// How many pieces the pictures are gone through in: one for each, or all at once where there are very many.
fn one_by_one(looked: Looked<'_>) -> u64 {
    if looked.count <= MOST_APART { looked.count.max(1) } else { 1 }
}

impl<'a> Pass<'_, 'a> {
    /// `get_image_features`, joined.
    pub(super) fn mistral3_features(
        &self,
        tower: &BoundTower<'a>,
        looked: Looked<'_>,
        embedded: &Tensor<'a>,
    ) -> Tensor<'a> {
        let Projector::Mistral3 { norm, merging, linears: [first, second] } = &tower.projector else {
            return embedded.unmodelled("a projector that mistral3 does not have");
        };
        let projected = {
            // `output_hidden_states=True`: what every layer was given and returned stays until there are tokens
            let states = self.pixtral(tower, looked);
            let Some(last) = states.last() else {
                return embedded.unmodelled("a tower without layers");
            };
            let merged = {
                let normed = last.flattened().normed(norm);
                let whole = normed.value.numel;
                let pieces = one_by_one(looked);
                let apart = vec![whole / pieces; pieces as usize];
                let pictures = normed.chunks(&apart);
                let each = looked.count / pieces;
                let unfolded: Vec<Tensor<'a>> =
                    pictures.iter().map(|pictures| pictures.unfolded(each)).collect();
                let joined = self.machine.stacked(&unfolded, whole).in_token_order();
                joined.through(merging)
            };
            let active = {
                let inner = merged.through(first);
                inner.activated(Activation::Gelu, &[])
            };
            active.through(second)
        };
        self.joined_pictures(by_picture(projected), embedded)
    }

    /// `LlavaModel.get_image_features` of a tower that is Pixtral's, joined: each patch is a token.
    pub(super) fn pixtral_features(
        &self,
        tower: &BoundTower<'a>,
        looked: Looked<'_>,
        embedded: &Tensor<'a>,
    ) -> Tensor<'a> {
        let Projector::Pixtral { linears: [first, second] } = &tower.projector else {
            return embedded.unmodelled("a projector that pixtral does not have");
        };
        let projected = {
            // `output_hidden_states=True`, as of mistral3
            let states = self.pixtral(tower, looked);
            let Some(last) = states.last() else {
                return embedded.unmodelled("a tower without layers");
            };
            let active = {
                let inner = last.through(first);
                inner.activated(Activation::Gelu, &[])
            };
            active.through(second)
        };
        self.joined_pictures(by_picture(projected), embedded)
    }

    /// `PixtralVisionModel.forward`: what its layers were given, and what the last one returned.
    fn pixtral(&self, tower: &BoundTower<'a>, looked: Looked<'_>) -> Vec<Tensor<'a>> {
        let patches = {
            let pixels = self.pixels(tower, looked);
            let patches = pixels.patched(tower, looked.patches());
            self.patches_require_grad(patches)
        };
        let mut hidden = patches.in_one_sequence();
        if let Some(norm) = &tower.first {
            hidden = hidden.normed(norm);
        }
        let shared = self.pixtral_shared(looked, hidden.value.dtype);
        self.machine.with(|state| shared.all().for_each(|tensor| state.share(tensor.value.storage)));
        let mut states = vec![hidden.clone()];
        for number in 0..tower.blocks.len() {
            hidden = self.tower_block_or_checkpoint(tower, (number, looked), &hidden, &shared);
            states.push(hidden.clone());
        }
        self.tower_given.replace(Some(shared.map(|tensor| tensor.value)));
        drop(shared);
        // a variable has its pictures one by one
        drop(patches);
        states
    }

    /// What every layer is given: positions, their cosines and sines, the mask.
    fn pixtral_shared(&self, looked: Looked<'_>, dtype: Dtype) -> Shared<Tensor<'a>> {
        let patches = looked.patches();
        let pairs = patches.saturating_mul(2);
        let positions = {
            let pieces = one_by_one(looked);
            let of_one = |_| {
                let _rows_and_columns =
                    [(); 2].map(|()| self.constant(patches / pieces, Dtype::I64, &PLACES));
                self.constant(pairs / pieces, Dtype::I64, &PLACES)
            };
            let of_each: Vec<Tensor<'a>> = (0..pieces).map(of_one).collect();
            let positions = self.constant(pairs, Dtype::I64, &PLACES);
            drop(of_each);
            positions
        };
        let rotary = self.pixtral_rotary(looked, dtype);
        let mask = self.constant(patches.saturating_mul(patches), dtype, &APART);
        Shared { positions: Some(positions), rotary: Some(rotary), full: Some(mask), ..Shared::none() }
    }

    /// `PixtralVisionRotaryEmbedding.forward`.
    fn pixtral_rotary(&self, looked: Looked<'_>, dtype: Dtype) -> (Tensor<'a>, Tensor<'a>) {
        let vision = looked.vision;
        let whole = looked.patches().saturating_mul(vision.hidden / vision.heads.max(1));
        let make = |numel: u64, what| self.constant(numel, Dtype::F32, what);
        let positions = make(looked.patches().saturating_mul(2), &torch::POSITIONS);
        let angles = self.machine.tensor(|state| {
            Value::plain(state.alloc_product(whole, 1, Dtype::F32, &ANGLES), whole, Dtype::F32)
        });
        let scaled = || {
            let raw = make(whole, &torch::COS);
            raw.scale()
        };
        let (cos, sin) = (scaled(), scaled());
        let joined = |raw: Tensor<'a>| {
            let half = make(whole / 2, &torch::CAT);
            let joined = make(whole, &torch::CAT);
            drop(half);
            drop(raw);
            joined
        };
        let cos = joined(cos);
        let sin = joined(sin);
        let result = (cos.to(dtype), sin.to(dtype));
        drop((positions, angles));
        drop((cos, sin));
        result
    }
}
