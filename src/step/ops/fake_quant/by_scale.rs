//! Inputs and weights that are rounded by a scale and a zero point each (`IntxFakeQuantizer`): an input by token, a weight by group.

use super::{PRIMITIVES, QAT};
use crate::dtype::Dtype;
use crate::memory::Category;
use crate::step::fake_quant::Scales;
use crate::step::heap::{NOTHING, StorageId};
use crate::step::machine::State;
use crate::step::params::ParamId;
use crate::step::tensor::{Tensor, Value};
use crate::step::what::{What, torch};

static EXTREME: What =
    What::own("amin or amax", "the smallest or largest of what shares a scale", PRIMITIVES);
static BOUND: What = What::own("minimum or maximum", "the same where it lies beyond zero", PRIMITIVES);
static SCALE: What = What::own(
    "scale",
    "the scales of a layer's last pass, which its fake quantizer keeps until the next",
    QAT,
);
static ZERO_POINT: What = What::own(
    "zero point",
    "the zero points of a layer's last pass, which its fake quantizer keeps until the next",
    QAT,
);
static STEP: What =
    What::own("div", "what is made of the extremes on the way to scales and zero points", PRIMITIVES);

/// Which of a layer's tensors.
#[derive(Clone, Copy)]
enum Which {
    Input,
    Weight,
}

impl<'m> Tensor<'m> {
    /// `IntxFakeQuantizer._per_token_forward` of the input of the layer with that weight.
    pub(super) fn rounded_by_token(&self, width: u64, (weight, scales): (ParamId, Scales)) -> Tensor<'m> {
        self.rounded_by_scale(width, weight, (Which::Input, scales))
    }

    /// `IntxFakeQuantizer._per_channel_or_group_forward` of a weight.
    pub(super) fn rounded_by_group(&self, group: u64, weight: ParamId) -> Tensor<'m> {
        self.rounded_by_scale(group, weight, (Which::Weight, Scales::AsRounded))
    }

    /// `choose_qparams_affine`, then `_fake_quantize_affine`.
    fn rounded_by_scale(&self, width: u64, weight: ParamId, (which, type_of): (Which, Scales)) -> Tensor<'m> {
        let machine = self.machine;
        let dtype = self.value.dtype;
        let scales = self.value.numel / width.max(1);
        let of_scales = match type_of {
            Scales::AsRounded => dtype,
            Scales::Wide => Dtype::F32,
        };
        let kept = machine.tensor(|state| {
            let scale = state.renew_scales(weight, which, (scales, dtype, of_scales));
            state.retain(scale);
            Value::plain(scale, scales, of_scales)
        });
        self.rounded_by(&kept, true)
    }
}

impl State {
    /// Computes scales and zero points of a pass and keeps them in the place of the last pass's. Returns the scales.
    fn renew_scales(
        &mut self,
        weight: ParamId,
        which: Which,
        (count, dtype, of_scales): (u64, Dtype, Dtype),
    ) -> StorageId {
        let made = match which {
            Which::Input => self.asymmetric_scales(count, dtype, of_scales),
            Which::Weight => self.symmetric_scales(count, dtype),
        };
        let Some(fake) = &mut self.params.list[weight as usize].fake else { return made[0] };
        let old = std::mem::replace(&mut fake.kept[which as usize], made);
        old.into_iter().for_each(|old| self.release(old));
        if let Which::Weight = which {
            let integers = self.alloc_as(Category::Buffers, count.saturating_mul(4), Dtype::I32, &ZERO_POINT);
            self.release(made[1]);
            if let Some(fake) = &mut self.params.list[weight as usize].fake {
                fake.kept[which as usize][1] = integers;
            }
        }
        made[0]
    }

    /// Scales and zero points of what may lie on any side of zero (`MappingType.ASYMMETRIC`).
    fn asymmetric_scales(&mut self, count: u64, dtype: Dtype, of_scales: Dtype) -> [StorageId; 2] {
        let [least, most, below, above] = self.extremes(count, dtype);
        let range = self.alloc(count, dtype, &STEP);
        let raw = self.alloc(count, dtype, &STEP);
        self.release(range);
        let keep = |state: &mut State, dtype: Dtype, what| {
            state.alloc_as(Category::Buffers, count.saturating_mul(dtype.bytes()), dtype, what)
        };
        let scale = keep(self, dtype, &SCALE);
        self.release(raw);
        // divided, rounded, subtracted from the least integer, and limited
        let mut point = self.alloc(count, dtype, &STEP);
        for _ in 0..3 {
            let next = self.alloc(count, dtype, &STEP);
            self.release(point);
            point = next;
        }
        let (kept, narrow) =
            if of_scales == dtype { (scale, NOTHING) } else { (keep(self, of_scales, &SCALE), scale) };
        let integers = keep(self, Dtype::I32, &ZERO_POINT);
        [least, most, below, above, narrow, point].into_iter().for_each(|made| self.release(made));
        [kept, integers]
    }

    /// Scales and zero points of what is alike on both sides of zero (`MappingType.SYMMETRIC`).
    fn symmetric_scales(&mut self, count: u64, dtype: Dtype) -> [StorageId; 2] {
        let bytes = count.saturating_mul(dtype.bytes());
        let [least, most, below, above] = self.extremes(count, dtype);
        let negative = self.alloc(count, dtype, &STEP);
        let larger = self.alloc(count, dtype, &BOUND);
        [negative, above].into_iter().for_each(|made| self.release(made));
        let raw = self.alloc(count, dtype, &STEP);
        let point = self.alloc_as(Category::Buffers, bytes, dtype, &ZERO_POINT);
        let scale = self.alloc_as(Category::Buffers, bytes, dtype, &SCALE);
        [raw, least, most, below, larger].into_iter().for_each(|made| self.release(made));
        [scale, point]
    }

    /// The smallest and the largest of what shares a scale, and the same held against zero.
    fn extremes(&mut self, count: u64, dtype: Dtype) -> [StorageId; 4] {
        let least = self.alloc(count, dtype, &EXTREME);
        let most = self.alloc(count, dtype, &EXTREME);
        let [below, above] = [(); 2].map(|()| {
            let zeros = self.alloc(count, dtype, &torch::ZEROS);
            let bound = self.alloc(count, dtype, &BOUND);
            self.release(zeros);
            bound
        });
        [least, most, below, above]
    }
}
