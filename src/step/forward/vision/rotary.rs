//! Positions of patches in a picture, and of tokens in time, rows and columns.

use super::looked::Looked;
use crate::dtype::Dtype;
use crate::model::vision::{Vision, VisionCode};
use crate::step::forward::Pass;
use crate::step::forward::inputs::Shared;
use crate::step::tensor::Tensor;
use crate::step::what::{Source, What, torch};

static ANGLES: What = What::own("freqs", "angles of each patch's row and column", Source::Modeling);

impl<'a> Pass<'_, 'a> {
    /// `rotary_pos_emb` of rows and columns, in the order of the windows where there are such.
    pub(super) fn tower_rotary(
        &self,
        vision: &Vision,
        looked: Looked<'_>,
        windows: Option<u64>,
    ) -> Shared<Tensor<'a>> {
        let patches = looked.patches();
        let dim = vision.hidden / vision.heads.max(1);
        let half = patches.saturating_mul(dim) / 2;
        let make = |numel: u64, what| self.constant(numel, Dtype::F32, what);
        let (cos, sin) = {
            let positions = make(patches.saturating_mul(2), &torch::POSITIONS);
            let angles = make(half, &ANGLES);
            let scaled = |what| {
                let raw = make(half, what);
                raw.scale()
            };
            let (cos, sin) = (scaled(&torch::COS), scaled(&torch::COS));
            let whole = |raw: Tensor<'a>| {
                let _both = make(half, &torch::CAT);
                let whole = make(half.saturating_mul(2), &torch::CAT);
                drop(raw);
                whole
            };
            let result = (whole(cos), whole(sin));
            drop((positions, angles));
            result
        };
        let rotary = match windows {
            None => (cos, sin),
            Some(rows) => (cos.reordered(rows), sin.reordered(rows)),
        };
        Shared { rotary: Some(rotary), ..Shared::none() }
    }

    /// `rotary_emb` of three positions for each token: time, row and column. qwen3_vl writes rows and columns over time, the
    /// others join them.
    pub(in crate::step::forward) fn rotary_sections(
        &self,
        dim: u64,
        dtype: Dtype,
    ) -> (Tensor<'a>, Tensor<'a>) {
        let tokens = self.batch.tokens();
        let (grids, half) =
            (tokens.saturating_mul(dim / 2).saturating_mul(3), tokens.saturating_mul(dim / 2));
        let make = |numel: u64, what| self.of_tokens(numel, Dtype::F32, what);
        let positions = make(tokens.saturating_mul(3), &torch::POSITIONS);
        let angles = make(grids, &ANGLES);
        let scaled = || {
            let raw = make(grids, &torch::COS);
            raw.scale()
        };
        let (cos, sin) = (scaled(), scaled());
        let joins = !self.architecture.vision().is_some_and(|(_, vision)| vision.code == VisionCode::Qwen3);
        let whole = |raw: Tensor<'a>| {
            let joined = joins.then(|| make(half, &torch::CAT));
            let whole = make(half.saturating_mul(2), &torch::CAT);
            drop(joined);
            drop(raw);
            whole
        };
        let (sin, cos) = (whole(sin), whole(cos));
        let result = (cos.to(dtype), sin.to(dtype));
        drop((positions, angles));
        drop(cos);
        drop(sin);
        result
    }
}
