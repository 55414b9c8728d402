//! Gemma 4's tower: every picture is as many patches, those that it lacks are padding under a mask; their averages are taken by a
//! matrix product, and what is padding of them is left out.
//!
//! Source: transformers 5.17 models/gemma4/modeling_gemma4.py; traced on the null device.

use super::attention::bare;
use super::bound::{BoundTower, Projector};
use super::layer::TOWER;
use super::looked::Looked;
use super::ops::PIXELS;
use crate::dtype::Dtype;
use crate::step::forward::Pass;
use crate::step::forward::inputs::Shared;
use crate::step::ops::linear::Layer;
use crate::step::tensor::{Tensor, Value};
use crate::step::what::{Source, What, roles, torch};

static SCALED_PIXELS: What =
    What::own("pixel_values", "the pictures' patches, shifted and scaled in float32", Source::Modeling);
static PLACES: What = What::own("pixel_position_ids", "column and row of each patch", Source::Modeling);
static ANGLES: What = What::own("freqs", "angles of each patch's column and row", Source::Modeling);
static PADDING: What =
    What::own("padding_positions", "which patches are padding, one byte each", Source::Modeling);
static APART: What = What::own(
    "attention_mask",
    "which patches of its picture a patch sees: a byte for every pair",
    Source::Modeling,
);
static ONE_HOT: What =
    What::own("one_hot", "which token each patch belongs to, a number for every token", Source::Modeling);
static KERNELS: What = What::own("kernel_idxs", "which token each patch belongs to", Source::Modeling);
static STANDARDS: What =
    What::own("std_scale", "numbers that bring tokens to one scale, in float32", Source::Modeling);

impl<'a> Pass<'_, 'a> {
    /// `Gemma4Model.forward` from its embeddings to those with the pictures' among them.
    pub(in crate::step::forward) fn gemma4_sighted(
        &self,
        embedded: &Tensor<'a>,
        placeholders: &Tensor<'a>,
    ) -> Option<Tensor<'a>> {
        let tower = self.tower.as_ref()?;
        let looked = self.looked(self.batch)?;
        let features =
            self.machine.within("vision_tower", &TOWER, || self.gemma4_features(tower, looked, embedded));
        embedded.looked_through(features.value.numel);
        let hidden = embedded.with_scattered(placeholders, &features);
        // the output has them (`image_hidden_states`)
        self.cache.borrow_mut().push(features);
        Some(hidden)
    }

    /// `get_image_features`, joined.
    fn gemma4_features(
        &self,
        tower: &BoundTower<'a>,
        looked: Looked<'_>,
        embedded: &Tensor<'a>,
    ) -> Tensor<'a> {
        let Projector::Gemma4 { patches, product } = &tower.projector else {
            return embedded.unmodelled("a projector that gemma4 does not have");
        };
        let seen = self.gemma4_tower(tower, looked, patches);
        let projected = {
            let width = looked.vision.hidden;
            let normed = seen.normed(&bare("embed_vision.embedding_pre_projection_norm", width));
            normed.through(product)
        };
        drop(seen);
        // `torch.split` by picture, then `torch.cat`
        let whole = projected.value.numel;
        let parts = projected.chunks(&[whole]);
        drop(projected);
        let joined = self.machine.stacked(&parts, whole).in_token_order();
        drop(parts);
        joined.to(embedded.value.dtype)
    }

    /// `Gemma4VisionModel.forward`.
    fn gemma4_tower(&self, tower: &BoundTower<'a>, looked: Looked<'_>, patches: &Layer) -> Tensor<'a> {
        let padding = {
            let _of_each = self.constant(looked.lies().saturating_mul(2), Dtype::Bool, &PADDING);
            self.constant(looked.lies(), Dtype::Bool, &PADDING)
        };
        let first = self.gemma4_patches(tower, looked, (patches, &padding));
        let dtype = first.value.dtype;
        let shared = self.gemma4_shared(looked, dtype);
        self.machine.with(|state| shared.all().for_each(|tensor| state.share(tensor.value.storage)));
        let mut hidden = first.clone();
        for number in 0..tower.blocks.len() {
            hidden = self.tower_block_or_checkpoint(tower, (number, looked), &hidden, &shared);
        }
        self.tower_given.replace(Some(shared.map(|tensor| tensor.value)));
        drop(shared);
        let (pooled, real) = self.gemma4_pooled(looked, &hidden, &padding);
        let rows = looked.vision.tokens_of(looked.grid).saturating_mul(looked.count);
        let mut tokens = pooled.rows_where(&real, rows, looked.vision.hidden);
        drop(pooled);
        if looked.vision.standardizes {
            let numbers = || self.constant(looked.vision.hidden, Dtype::F32, &STANDARDS);
            tokens = {
                let shifted = {
                    let bias = numbers();
                    tokens.minus(&bias)
                };
                shifted.mul_constant(&numbers())
            };
        }
        tokens.to(dtype)
    }

    /// `Gemma4VisionPatchEmbedder.forward`.
    fn gemma4_patches(
        &self,
        tower: &BoundTower<'a>,
        looked: Looked<'_>,
        (patches, padding): (&Layer, &Tensor<'a>),
    ) -> Tensor<'a> {
        let vision = looked.vision;
        let numbers = looked.lies().saturating_mul(vision.patch_numbers);
        let weight = self.machine.with(|state| state.params.get(patches.weight.id()).dtype);
        let pixels = {
            let scaled = {
                let _shifted = self.constant(numbers, Dtype::F32, &SCALED_PIXELS);
                self.constant(numbers, Dtype::F32, &SCALED_PIXELS)
            };
            // a packed weight's numbers are no floating-point ones
            if weight.is_half() { self.constant(numbers, weight, &PIXELS) } else { scaled }
        };
        let embedded = pixels.through(patches);
        let Some(table) = tower.positions else {
            return embedded.unmodelled("a tower without positions");
        };
        let places = {
            let ids = self.constant(looked.lies().saturating_mul(2), Dtype::I64, &PLACES);
            let name = "vision_tower.patch_embedder.position_embedding_table";
            let looked_up = || {
                self.within(name, &roles::EMBEDDING, || {
                    self.machine.tensor(|state| {
                        state.embedding_of_part((table, 2), ids.value.storage, looked.lies(), vision.hidden)
                    })
                })
            };
            let (columns, rows) = (looked_up(), looked_up());
            let sum = columns.add(&rows);
            sum.masked_fill(padding)
        };
        embedded.add(&places)
    }

    /// What every layer is given: cosines and sines of columns and rows, and a mask where there is padding.
    fn gemma4_shared(&self, looked: Looked<'_>, dtype: Dtype) -> Shared<Tensor<'a>> {
        let vision = looked.vision;
        let each = vision.lies(looked.grid);
        let padded = looked.grid.patches() < each;
        let _valid = self.constant(looked.lies(), Dtype::Bool, &PADDING);
        let full = padded.then(|| self.constant(looked.lies().saturating_mul(each), Dtype::Bool, &APART));
        let whole = looked.lies().saturating_mul(vision.hidden / vision.heads.max(1));
        let make = |numel: u64, what| self.constant(numel, Dtype::F32, what);
        let positions = make(looked.lies().saturating_mul(2), &torch::POSITIONS);
        let angles = self.machine.tensor(|state| {
            Value::plain(state.alloc_product(whole / 2, 1, Dtype::F32, &ANGLES), whole / 2, Dtype::F32)
        });
        let scaled = || {
            let raw = make(whole / 2, &torch::COS);
            raw.scale()
        };
        let (cos, sin) = (scaled(), scaled());
        let joined = |raw: Tensor<'a>| {
            let joined = make(whole, &torch::CAT);
            drop(raw);
            joined
        };
        let cos = joined(cos);
        let sin = joined(sin);
        let rotary = (cos.to(dtype), sin.to(dtype));
        drop((positions, angles));
        drop((cos, sin));
        Shared { rotary: Some(rotary), full, ..Shared::none() }
    }

    /// `Gemma4VisionPooler.forward`: averages in float32, and which of them are of a picture.
    fn gemma4_pooled(
        &self,
        looked: Looked<'_>,
        hidden: &Tensor<'a>,
        padding: &Tensor<'a>,
    ) -> (Tensor<'a>, Tensor<'a>) {
        let vision = looked.vision;
        let each = vision.merge.saturating_mul(vision.merge).max(1);
        let (rows, most) = (looked.lies(), vision.lies(looked.grid) / each);
        let (pairs, tokens) = (rows.saturating_mul(most), most.saturating_mul(looked.count));
        let (averages, real) = {
            let filled = hidden.masked_fill(padding);
            let places = || self.constant(rows.saturating_mul(2), Dtype::I64, &PLACES);
            let kernels = || self.constant(rows, Dtype::I64, &KERNELS);
            let clamped = places();
            let index = {
                let _divided = places();
                let _along = kernels();
                kernels()
            };
            let weights = {
                let float = {
                    let _whole = self.constant(pairs, Dtype::I64, &ONE_HOT);
                    self.constant(pairs, Dtype::F32, &ONE_HOT)
                };
                float.scale()
            };
            let product = {
                let float = filled.to(Dtype::F32);
                let [narrow, float] = [&weights, &float].map(|x| x.to(self.autocast.unwrap_or(Dtype::F32)));
                float.pooled_by(&narrow, rows, tokens)
            };
            let real = {
                let _without = {
                    let _zero = self.constant(pairs, Dtype::Bool, &torch::EQ);
                    self.constant(tokens, Dtype::Bool, &PADDING)
                };
                self.constant(tokens, Dtype::Bool, &PADDING)
            };
            let averages = product.to(filled.value.dtype);
            drop((clamped, index));
            (averages, real)
        };
        let float = averages.to(Dtype::F32);
        let scaled = float.scale();
        drop(float);
        (scaled, real)
    }
}
