//! Layers of a checkpoint of GPTQ's, as gptqmodel's `TritonV2Linear` runs them: the kernel that training asks for
//! (`GPTQConfig(backend="auto_trainable")`).
//!
//! In training it is `TorchLinear.forward`: a compiled function opens the whole weight in float16, which is cast to the input's type and
//! multiplied like any other; autograd keeps what was multiplied until backward wherever the input has a gradient. A model in its
//! evaluation mode has a kernel that opens it in the input's type at once.
//!
//! Source: gptqmodel 7.7 nn_modules/qlinear/torch.py, nn_modules/qlinear/tritonv2.py and nn_modules/triton_utils/dequant.py.

use super::shape::{OUTPUT, Shape};
use crate::dtype::Dtype;
use crate::step::machine::State;
use crate::step::params::ParamId;
use crate::step::tensor::Value;
use crate::step::what::{Source, What};

pub(in crate::step) static GROUPS: What =
    What::own("g_idx", "which group each row of the weight belongs to", SOURCE);
pub(in crate::step) static SHIFTS: What =
    What::own("wf_unsqueeze", "by how many bits each weight of a packed integer is shifted", SOURCE);
static OPENED: What = What::own(
    "dequantised weight",
    "the whole weight of a layer of GPTQ's, opened for a product: in training autograd keeps it until the input has its gradient",
    SOURCE,
);
static BIAS: What =
    What::own("bias, cast", "the float16 bias of a layer of GPTQ's in the product's type", SOURCE);

const SOURCE: Source = Source::At("gptqmodel, nn_modules/qlinear/torch.py and tritonv2.py");

impl State {
    /// `TritonV2Linear.forward`. The bias is a float16 buffer that is added in place.
    pub(super) fn linear_gptq(
        &mut self,
        x: &Value,
        shape: Shape,
        weight: ParamId,
        bias: Option<ParamId>,
    ) -> Value {
        let packed = self.weight(weight);
        let evaluates = self.params.evaluates;
        let opens_in = if evaluates { x.dtype } else { Dtype::F16 };
        let opened = self.opened(shape, opens_in, &OPENED);
        // `weights.to(device=x.device, dtype=x.dtype)`
        let operand = self.cast_as(&opened, x.dtype, &OPENED);
        self.release(opened.storage);
        let product = self.linear_with(x, shape, &operand, None);
        self.release(operand.storage);
        self.release(packed.storage);
        if !evaluates {
            self.cast_bias(bias, product.dtype, shape);
            return product;
        }
        // `out.to(dtype=x.dtype)`
        let result = self.cast_as(&product, x.dtype, &OUTPUT);
        self.release(product.storage);
        Value { flat: x.flat, ..result }
    }

    /// `bias.to(device=out.device, dtype=out.dtype)`, which is gone once it is added.
    fn cast_bias(&mut self, bias: Option<ParamId>, dtype: Dtype, shape: Shape) {
        if bias.is_some() && dtype != Dtype::F16 {
            let cast = self.alloc(shape.output, dtype, &BIAS);
            self.release(cast);
        }
    }
}
