//! Weights that are made small while a model is loaded, each format as its library stores it.

use super::{Loader, weights_dtype};
use crate::dtype::Dtype;
use crate::memory::Category;
use crate::model::blocks::{Linear, LinearClass};
use crate::scenario::software::Quantiser;
use crate::scenario::{Precision, WeightFormat};
use crate::step::heap::{NOTHING, StorageId};
use crate::step::machine::State;
use crate::step::ops::four_bit::{
    CODE_BOOK, DOUBLE_QUANT_BLOCK, Format, PACKED_WEIGHT, QUANT_BLOCK, Quantised, SCALES, SCALES_8BIT,
    SCALES_OF_SCALES,
};
use crate::step::ops::{eight_bit, gptq, packed, weight_only};
use crate::step::what::{Dims, What, torch};

impl Loader<'_> {
    /// bitsandbytes' NF4: half a byte per weight, a scale per 64 weights, under double quantisation one byte per scale
    /// and a scale per 256 of those; code books of 16 and 256 floats (functional.py `quantize_4bit`).
    pub(super) fn quantised_weight(&mut self, spec: &Linear) -> Quantised {
        let double = self.member.quantization.double_quant;
        self.has_quantised = true;
        let numel = spec.weight_numel();
        let scales = numel.div_ceil(QUANT_BLOCK);
        let times = self.times;
        let first = self.state.storages.len();
        // none where it is not known how the weight is opened
        let opened = |count: u64| if self.loads_in_parts() { count } else { 0 };
        let (whole, absolute) = (opened(numel), opened(scales));
        let whole = self.state.while_loading(whole, weights_dtype(self.member));
        let store = |state: &mut State, bytes: u64, dtype: Dtype, what: &'static What| {
            state.persistent(bytes, dtype, times, Category::QuantState, what)
        };
        let state = &mut *self.state;
        let mut meanwhile = NOTHING;
        if double {
            meanwhile = state.while_loading(absolute, Dtype::F32);
        } else {
            store(state, scales.saturating_mul(4), Dtype::F32, &SCALES);
        }
        let packed = state.store_packed(numel, times, &PACKED_WEIGHT);
        store(state, 16 * 4, Dtype::F32, &CODE_BOOK);
        if double {
            store(state, 4, Dtype::F32, &torch::OFFSET);
            let centred = state.while_loading(absolute, Dtype::F32);
            store(state, scales.div_ceil(DOUBLE_QUANT_BLOCK) * 4, Dtype::F32, &SCALES_OF_SCALES);
            store(state, scales, Dtype::U8, &SCALES_8BIT);
            store(state, 256 * 4, Dtype::F32, &CODE_BOOK);
            state.release(centred);
        }
        state.release(meanwhile);
        state.release(whole);
        state.note_dims_since(first, Dims::matrix(spec.output, spec.input));
        let weight = state.list_packed(packed, (spec.output, spec.input), times);
        let compute = match self.member.precision {
            Precision::AmpFp16 | Precision::AmpFp16Weights | Precision::Fp16 => Dtype::F16,
            Precision::Fp32 | Precision::Bf16 | Precision::AmpBf16 | Precision::AmpBf16Weights => Dtype::Bf16,
        };
        let early = self.member.quantization.format == WeightFormat::Nf4Early;
        let quantiser = self.software().quantiser;
        let origin = match quantiser {
            Quantiser::Transformers => weights_dtype(self.member),
            // torchao's are another affair
            Quantiser::Torchao | Quantiser::Unsloth => compute,
            Quantiser::Fabric => Dtype::F16,
        };
        let opened = match quantiser {
            Quantiser::Fabric => origin,
            Quantiser::Transformers | Quantiser::Torchao | Quantiser::Unsloth if early => origin,
            Quantiser::Transformers | Quantiser::Torchao | Quantiser::Unsloth => compute,
        };
        let format = if early { Format::BitsandbytesEarly } else { Format::Bitsandbytes };
        Quantised { weight, format, compute, origin, opened, double }
    }

    /// bitsandbytes' LLM.int8: a byte per weight and a scale per row, made of float16 numbers (nn/modules.py `Int8Params`), and which
    /// columns of its last input stuck out.
    pub(super) fn weight_8bit(&mut self, spec: &Linear) -> Quantised {
        self.has_quantised = true;
        let (times, numel) = (self.times, spec.weight_numel());
        let whole = self.state.while_loading(numel, weights_dtype(self.member));
        let half = self.state.while_loading(numel, Dtype::F16);
        let first = self.state.storages.len();
        let mut store = |bytes: u64, dtype: Dtype, what: &'static What| {
            self.state.persistent(bytes, dtype, times, Category::QuantState, what)
        };
        store(spec.output.saturating_mul(4), Dtype::F32, &eight_bit::ROW_SCALES);
        self.state.note_dims_since(first, Dims::matrix(spec.output, 1));
        let weight = self.state.add_8bit(&eight_bit::WEIGHT, (spec.output, spec.input), times);
        let outliers = eight_bit::OUTLIER_COLUMNS.min(spec.input).saturating_mul(8);
        self.state.persistent(outliers, Dtype::I64, times, Category::QuantState, &eight_bit::OUTLIERS);
        self.state.release(half);
        self.state.release(whole);
        let [compute, origin, opened] = [self.dtype; 3];
        Quantised { weight, format: Format::Int8, compute, origin, opened, double: false }
    }

    /// torchao's `Int8Tensor`: a byte per weight, a float32 scale and an 8-bit zero per row (`choose_qparams_affine`, `quantize_affine`).
    pub(super) fn weight_only(&mut self, spec: &Linear) -> Quantised {
        self.has_quantised = true;
        let (times, numel) = (self.times, spec.weight_numel());
        let whole = self.state.while_loading(numel, weights_dtype(self.member));
        let first = self.state.storages.len();
        let mut store = |bytes: u64, dtype: Dtype, what: &'static What| {
            self.state.persistent(bytes, dtype, times, Category::QuantState, what)
        };
        store(spec.output.saturating_mul(4), Dtype::F32, &eight_bit::ROW_SCALES);
        store(spec.output, Dtype::U8, &weight_only::ZERO_POINTS);
        self.state.note_dims_since(first, Dims::matrix(spec.output, 1));
        // divided by the scales, rounded; with zeros, clamped: each of the one before
        let divided = self.state.while_loading(numel, Dtype::F32);
        let rounded = self.state.while_loading(numel, Dtype::F32);
        self.state.release(divided);
        let with_zeros = self.state.while_loading(numel, Dtype::F32);
        self.state.release(rounded);
        let clamped = self.state.while_loading(numel, Dtype::F32);
        self.state.release(with_zeros);
        let weight = self.state.add_8bit(&eight_bit::WEIGHT, (spec.output, spec.input), times);
        self.state.release(clamped);
        self.state.release(whole);
        let [compute, origin, opened] = [self.dtype; 3];
        Quantised { weight, format: Format::TorchaoInt8, compute, origin, opened, double: false }
    }

    /// gptqmodel's `TritonV2Linear` and `AwqGEMMTritonLinear`, as a checkpoint fills their buffers (nn_modules/qlinear/__init__.py
    /// `_register_gptq_buffers` and `AWQuantLinear`): what is floating point is float16, whatever the model is.
    pub(super) fn packed(&mut self, spec: &Linear, format: Format) -> Quantised {
        self.has_quantised = true;
        let (times, numel) = (self.times, spec.weight_numel());
        let quantization = self.member.quantization;
        let bits = quantization.format.bits();
        let groups = quantization.group.groups(spec.input);
        let shape = (spec.input, spec.output);
        let weight = match bits {
            8 => self.state.add_8bit(&packed::WEIGHT, shape, times),
            _ => {
                let packed = self.state.store_packed(numel, times, &packed::WEIGHT);
                self.state.note_dims(packed, Dims::matrix(spec.input, spec.output));
                self.state.list_packed(packed, shape, times)
            }
        };
        let mut store = |bytes: u64, dtype: Dtype, what: &'static What| {
            self.state.persistent(bytes, dtype, times, Category::QuantState, what)
        };
        let scales = groups.saturating_mul(spec.output);
        store(scales.saturating_mul(bits) / 8, Dtype::I32, &packed::ZEROS);
        store(scales.saturating_mul(2), Dtype::F16, &packed::SCALES);
        if format == Format::Gptq {
            store(spec.input.saturating_mul(4), Dtype::I32, &gptq::GROUPS);
            store(32 / bits * 4, Dtype::I32, &gptq::SHIFTS);
        }
        let compute = Dtype::F16;
        Quantised { weight, format, compute, origin: compute, opened: compute, double: false }
    }

    /// Whether loading converts layers of that class: bitsandbytes and GPTQ what is exactly `nn.Linear` or gpt2's, torchao and AWQ whatever
    /// is an `nn.Linear`; what only derives from that is refused of all but bitsandbytes.
    pub(super) fn converts(&self, class: LinearClass) -> bool {
        match class {
            LinearClass::Linear => true,
            LinearClass::Conv1d => {
                self.member.quantization.format != WeightFormat::TorchaoInt8 && !self.member.is_of_awq()
            }
            LinearClass::Subclass => false,
        }
    }

    /// torchao's `NF4Tensor`, and the weight that it was made of, which is there until the layer is.
    pub(super) fn torchao_weight(&mut self, spec: &Linear) -> (Quantised, StorageId) {
        let dtype = self.dtype;
        let first = self.state.storages.len();
        let times = self.times;
        let (packed, original) = self.state.store_nf4(spec.weight_numel(), dtype, times);
        self.state.note_dims_since(first, Dims::matrix(spec.output, spec.input));
        let weight = self.state.list_packed(packed, (spec.output, spec.input), times);
        let [compute, origin, opened] = [dtype; 3];
        (Quantised { weight, format: Format::Nf4Tensor, compute, origin, opened, double: true }, original)
    }
}
