//! Layers of a checkpoint of AWQ's, as the two kernels of gptqmodel run them that training can ask for
//! (`AwqConfig(backend="auto_trainable")`): which of them it gets depends on whether the machine has a CUDA compiler.
//!
//! Many rows open the whole weight for the product, few are multiplied by it as it is packed; backward opens it in any case. Autograd is
//! given the packed weight alone: nothing that was opened outlives its product.
//!
//! Source: gptqmodel 7.7 nn_modules/qlinear/gemm_awq_triton.py and gemm_awq.py, quantization/awq/modules/triton/gemm.py and scheduler.py;
//! what the compiled kernel allocates was traced.

use super::four_bit::AwqKernel;
use super::linear::dense_gradient;
use super::pointwise::promoted;
use super::shape::{INPUT, OUTPUT, Shape};
use crate::dtype::Dtype;
use crate::step::autograd::{Grad, Node, Results, only};
use crate::step::machine::State;
use crate::step::params::ParamId;
use crate::step::tensor::{Layout, Value};
use crate::step::what::{Source, What, torch};

static OPENED: What =
    What::own("dequantised weight", "the whole weight of a layer of AWQ's, opened for one product", SOURCE);
static OPENED_CAST: What = What::own(
    "dequantised weight, cast",
    "the opened weight of a layer of AWQ's in the element type of its product",
    SOURCE,
);
static PARTIAL_SUMS: What = What::own(
    "partial sums",
    "float32 sums of parts of a product with packed weights, which are added up",
    SOURCE,
);
static BIASED: What = What::own("add", "the output of a layer of AWQ's with its bias", SOURCE);

const SOURCE: Source = Source::At("gptqmodel, nn_modules/qlinear/gemm_awq_triton.py and gemm_awq.py");

impl AwqKernel {
    /// The most rows that are multiplied by packed weights (scheduler.py `legacy_plan`; gemm_awq.py `FULL_DEQUANT_MATMUL_THRESHOLD`).
    fn most_packed_rows(self) -> u64 {
        match self {
            AwqKernel::Triton => 128,
            AwqKernel::Cuda => 1024,
        }
    }

    /// How many sums of a packed product lie side by side: Triton's kernel adds all of them to zeros.
    fn partial_sums(self) -> u64 {
        match self {
            AwqKernel::Triton => 1,
            AwqKernel::Cuda => 8,
        }
    }

    /// The element type that it computes in and opens weights into: of an input of 16 bits its own in the compiled one, whose scales
    /// and bias are cast to it for good.
    fn compute(self, input: Dtype) -> Dtype {
        match self {
            AwqKernel::Cuda if input == Dtype::Bf16 => Dtype::Bf16,
            AwqKernel::Triton | AwqKernel::Cuda => Dtype::F16,
        }
    }

    /// The element type of what a layer returns, given that of its input and of the function's output: Triton's leaves what was made of
    /// float16 as autocast and the bias left it.
    fn returns(self, input: Dtype, output: Dtype) -> Dtype {
        match self {
            AwqKernel::Triton if input == Dtype::F16 => output,
            AwqKernel::Triton | AwqKernel::Cuda => input,
        }
    }
}

impl State {
    /// The forward of either.
    pub(super) fn linear_awq(
        &mut self,
        x: &Value,
        shape: Shape,
        (weight, bias): (ParamId, Option<ParamId>),
        kernel: AwqKernel,
    ) -> Value {
        let compute = kernel.compute(x.dtype);
        let narrow = self.cast_as(x, compute, &INPUT);
        let packed = self.weight(weight);
        let node = self
            .node([&narrow, &packed], move |state, node, grad| backward(state, node, grad, (shape, compute)));
        let rows = x.numel / shape.input.max(1);
        let product = match rows > kernel.most_packed_rows() {
            true => self.product_with_opened(&narrow, shape, rows),
            false => self.product_with_packed(&narrow, shape, (rows, kernel.partial_sums())),
        };
        let biased = if bias.is_some() { self.plus_bias(product, compute) } else { product };
        let output = Value { flat: x.flat, ..biased }.at(node.output(0));
        let result = self.cast_as(&output, kernel.returns(x.dtype, output.dtype), &OUTPUT);
        [output, packed, narrow].into_iter().for_each(|local| self.release(local.storage));
        result
    }

    /// `torch.matmul(x_2d, awq_dequantize(…))`: autocast casts both, from the last to the first, and caches neither.
    fn product_with_opened(&mut self, x: &Value, shape: Shape, rows: u64) -> Value {
        let opened = self.opened(shape, x.dtype, &OPENED);
        let dtype = self.operand_dtype(x.dtype);
        let arguments = (dtype != x.dtype).then(|| {
            let weight = self.alloc_for(opened.storage, opened.numel, dtype, &OPENED_CAST);
            [self.alloc_for(x.storage, x.numel, dtype, &INPUT), weight]
        });
        self.read_operand(opened.bytes());
        let numel = rows.saturating_mul(shape.output);
        let storage = self.alloc_product_for(x.storage, (numel, shape.input), dtype, &torch::LINEAR);
        arguments.into_iter().flatten().for_each(|copy| self.release(copy));
        self.release(opened.storage);
        Value::plain(storage, numel, dtype)
    }

    /// `awq_gemm`: parts of the product are added up in float32.
    fn product_with_packed(&mut self, x: &Value, shape: Shape, (rows, parts): (u64, u64)) -> Value {
        let numel = rows.saturating_mul(shape.output);
        self.multiply(numel, shape.input);
        self.read_operand(shape.weights() / 2);
        let sums = self.alloc_for(x.storage, numel.saturating_mul(parts), Dtype::F32, &PARTIAL_SUMS);
        let storage = self.alloc_for(x.storage, numel, x.dtype, &torch::LINEAR);
        self.release(sums);
        Value::plain(storage, numel, x.dtype)
    }

    /// `out + bias` with a buffer.
    fn plus_bias(&mut self, product: Value, bias: Dtype) -> Value {
        let dtype = promoted(product.dtype, bias);
        let storage = self.alloc_for(product.storage, product.numel, dtype, &BIASED);
        self.release(product.storage);
        Value::plain(storage, product.numel, dtype)
    }
}

/// `AwqGemmTritonFn.backward` and `AwqGemmFn.backward`.
fn backward(state: &mut State, node: &Node, grad: &mut Grad, (shape, compute): (Shape, Dtype)) -> Results {
    let x = node.inputs[0];
    let opened = state.opened(shape, compute, &OPENED);
    let mut weight = opened.storage;
    if grad.dtype != compute {
        weight = state.alloc_for(opened.storage, opened.numel, grad.dtype, &OPENED_CAST);
        state.release(opened.storage);
    }
    // `grad_output.reshape(-1, …)`, beside which the gradient itself stays
    state.retain(grad.storage);
    let rows = dense_gradient(state, *grad);
    state.read_operand(shape.weights().saturating_mul(grad.dtype.bytes()));
    let product = (x.numel, shape.output);
    let storage = state.alloc_product_for(x.storage, product, grad.dtype, &torch::INPUT_GRADIENT);
    state.release(weight);
    state.release(rows.storage);
    only(Grad::new(storage, x.numel, grad.dtype, Layout::Tokens))
}
