//! bitsandbytes' 8-bit layers (LLM.int8): the input is quantised row by row, what sticks out of it is multiplied in 16 bits.
//!
//! Source: bitsandbytes 0.50 nn/modules.py `Linear8bitLt.forward`, autograd/_functions.py `MatMul8bitLt`,
//! backends/cuda/ops.py and backends/default/ops.py.

use super::linear::dense_gradient;
use super::shape::{INPUT, Shape};
use crate::dtype::Dtype;
use crate::step::autograd::{Grad, Node, Results, only};
use crate::step::heap::StorageId;
use crate::step::kernels;
use crate::step::machine::State;
use crate::step::params::ParamId;
use crate::step::tensor::{Layout, Value};
use crate::step::what::{Source, What, torch};

pub(in crate::step) static WEIGHT: What =
    What::own("8-bit weight", "the frozen weights, a byte each: there from load to end", Source::FourBit);
pub(in crate::step) static ROW_SCALES: What =
    What::own("scales", "scales by which 8-bit weights are dequantised, one for each row", Source::FourBit);
pub(in crate::step) static OUTLIERS: What = What::own(
    "outlier columns",
    "which columns of its last input an 8-bit layer multiplied in 16 bits",
    Source::FourBit,
);
static INPUT_SCALES: What =
    What::own("scales of the input", "the largest number of each row of an 8-bit layer's input", SOURCE);
static INPUT_8BIT: What = What::own("input (8-bit)", "an 8-bit layer's input, quantised", SOURCE);
static MAGNITUDES: What =
    What::own("magnitudes", "an 8-bit layer's input without signs, in which outliers are looked for", SOURCE);
static IS_OUTLIER: What =
    What::own("outliers", "which numbers of an 8-bit layer's input are above the threshold", SOURCE);
static OUTLIER_INPUT: What =
    What::own("outliers of the input", "columns of an 8-bit layer's input that stay as they are", SOURCE);
static OUTLIER_WEIGHT: What = What::own(
    "outliers' weights",
    "columns of an 8-bit weight, dequantised for the input's outliers",
    SOURCE,
);
static PRODUCT: What = What::own("8-bit product", "an 8-bit layer's product, in 32-bit integers", SOURCE);
static SCALED: What = What::own("8-bit product, scaled", "an 8-bit layer's product as numbers again", SOURCE);
static LINEAR: What = What::own("linear (8-bit)", "the output of an 8-bit layer, outliers added", SOURCE);
static DEQUANTISED: What =
    What::own("dequantised weight", "an 8-bit weight dequantised for the gradient of its input", SOURCE);

const SOURCE: Source = Source::At("bitsandbytes, autograd/_functions.py and backends");

/// Columns of a layer's input with a number above `llm_int8_threshold` (6.0): data decides, and this many are taken, the most
/// that were seen in models of up to 13 billion parameters (Dettmers et al. 2022, LLM.int8()).
pub(in crate::step) const OUTLIER_COLUMNS: u64 = 7;

impl State {
    /// `Linear8bitLt.forward`.
    pub(super) fn linear_8bit(&mut self, x: &Value, shape: Shape, weight: ParamId) -> Value {
        let rows = x.numel / shape.input.max(1);
        let numel = rows.saturating_mul(shape.output);
        let columns = OUTLIER_COLUMNS.min(shape.input);
        let packed = self.weight(weight);
        let node = self.node([x, &packed], move |state, node, grad| backward_8bit(state, node, grad, shape));
        let [quantised, scales] = self.quantised_input(x, rows, shape.input);
        let outliers = self.alloc(rows.saturating_mul(columns), x.dtype, &OUTLIER_INPUT);
        let outlier_weight = self.outlier_weight(shape.output.saturating_mul(columns), x.dtype);
        // bitsandbytes' own handle of cuBLASLt, which has no workspace of PyTorch's
        self.multiply(numel, shape.input);
        self.read_operand(packed.bytes());
        let integers = self.alloc_for(x.storage, numel, Dtype::I32, &PRODUCT);
        let mut scaled = self.alloc_for(x.storage, numel, Dtype::F16, &SCALED);
        if x.dtype != Dtype::F16 {
            let cast = self.alloc_for(x.storage, numel, x.dtype, &torch::CAST);
            self.release(scaled);
            scaled = cast;
        }
        self.release(integers);
        // `output.addmm(subA, subB)`, whose arguments autocast casts from the last to the first
        let dtype = self.autocast.unwrap_or(x.dtype);
        let mut casts = Vec::new();
        if dtype != x.dtype {
            let (own, theirs) = (rows.saturating_mul(columns), shape.output.saturating_mul(columns));
            casts.push(self.alloc(theirs, dtype, &torch::CAST));
            casts.push(self.alloc(own, dtype, &torch::CAST));
            casts.push(self.alloc_for(x.storage, numel, dtype, &torch::CAST));
        }
        let storage = self.alloc_product_for(x.storage, (numel, columns), dtype, &LINEAR);
        casts.into_iter().rev().for_each(|cast| self.release(cast));
        if x.requires_grad() {
            // `ctx.tensors = (CAt, subA, A)`: the context's own, which no hook of checkpointing sees
            self.hold(node, outliers);
            self.hold(node, x.storage);
        }
        [scaled, outlier_weight, quantised, scales, outliers]
            .into_iter()
            .for_each(|local| self.release(local));
        self.release(packed.storage);
        Value { flat: x.flat, ..Value::plain(storage, numel, dtype) }.at(node.output(0))
    }

    /// `int8_vectorwise_quant`: the input in 8 bits and the scale of each row; where outliers are is looked for meanwhile.
    fn quantised_input(&mut self, x: &Value, rows: u64, width: u64) -> [StorageId; 2] {
        let half = (x.dtype != Dtype::F16).then(|| self.alloc_for(x.storage, x.numel, Dtype::F16, &INPUT));
        let scales = self.alloc_for(x.storage, rows, Dtype::F32, &INPUT_SCALES);
        let quantised = self.alloc_for(x.storage, x.numel, Dtype::U8, &INPUT_8BIT);
        let magnitudes = self.alloc_for(x.storage, x.numel, Dtype::F16, &MAGNITUDES);
        let above = self.alloc_for(x.storage, x.numel, Dtype::Bool, &IS_OUTLIER);
        self.release(magnitudes);
        let any = self.alloc(width, Dtype::Bool, &OUTLIERS);
        kernels::column_sum_scratch(self, rows, width, Dtype::Bool);
        self.release(any);
        self.release(above);
        half.into_iter().for_each(|half| self.release(half));
        [quantised, scales]
    }

    /// The columns of the weight that outliers are multiplied by.
    fn outlier_weight(&mut self, numel: u64, dtype: Dtype) -> StorageId {
        let integers = self.alloc(numel, Dtype::U8, &OUTLIER_WEIGHT);
        let product = self.alloc(numel, Dtype::F32, &OUTLIER_WEIGHT);
        let mut numbers = self.alloc(numel, Dtype::F32, &OUTLIER_WEIGHT);
        self.release(product);
        self.release(integers);
        if dtype != Dtype::F32 {
            let cast = self.alloc(numel, dtype, &OUTLIER_WEIGHT);
            self.release(numbers);
            numbers = cast;
        }
        numbers
    }
}

/// MatMul8bitLt's backward: the weight in the input's element type.
fn backward_8bit(state: &mut State, node: &Node, grad: &mut Grad, shape: Shape) -> Results {
    let x = node.inputs[0];
    *grad = dense_gradient(state, *grad);
    let weight = state.alloc(shape.weights(), x.dtype, &DEQUANTISED);
    state.note_dims(weight, shape.dims());
    let scales = state.alloc(shape.output, Dtype::F32, &ROW_SCALES);
    state.release(scales);
    let cast = (grad.dtype != x.dtype)
        .then(|| state.alloc_for(grad.storage, grad.numel, x.dtype, &torch::GRADIENT_CAST));
    let storage =
        state.alloc_product_for(x.storage, (x.numel, shape.output), x.dtype, &torch::INPUT_GRADIENT);
    cast.into_iter().for_each(|cast| state.release(cast));
    state.release(weight);
    only(Grad::new(storage, x.numel, x.dtype, Layout::Tokens))
}
