//! transformers with Liger's kernels (`use_liger_kernel=True`): RMS norms, rotary positions and gated products as one kernel
//! each, and the head with its loss ([`crate::step::forward::stacks::fused_loss`]).
//!
//! Source: liger-kernel 0.8.5 ops/rms_norm.py, ops/rope.py, ops/swiglu.py, ops/geglu.py and transformers/monkey_patch.py.
//! Compared with the allocator's trace of that code.

use crate::dtype::Dtype;
use crate::issue::Issue;
use crate::job::Member;
use crate::model::Architecture;
use crate::model::blocks::{Activation, NormKind};
use crate::step::autograd::{Grad, Node, Results, saved_gradients, share};
use crate::step::heap::NOTHING;
use crate::step::machine::State;
use crate::step::ops::norm::{NormKernel, NormLayer};
use crate::step::ops::pointwise::pass_backward;
use crate::step::tensor::{Layout, Tensor};
use crate::step::what::{Source, What, torch};

static DW: What = What::own("dW", "partial sums of the gradient of a norm's weight", Source::FusedLoss);

/// Refuses what Liger has no kernels for, or what was not compared.
pub(super) fn check(architecture: &Architecture) -> Result<(), Issue> {
    if architecture.family.is_some_and(|family| family.stacks.liger) {
        return Ok(());
    }
    let message = format!("{} with Liger's kernels is not modelled", architecture.model_type);
    Err(super::common::not_compared(message, Some("transformers"), |stacks| stacks.liger))
}

/// Liger's kernel of a norm, where it has one. Its gradient replaces the one that it was given, but where norms follow each other
/// with a residual between them.
pub(in crate::step::forward) fn norm(member: &Member, kind: NormKind, sandwich: bool) -> Option<NormKernel> {
    match kind {
        NormKind::Rms | NormKind::RmsPlusOne if !member.software().liger_kernels => None,
        NormKind::Rms | NormKind::RmsPlusOne if sandwich => Some(|x, norm| x.liger_normed(norm, false)),
        NormKind::Rms | NormKind::RmsPlusOne => Some(|x, norm| x.liger_normed(norm, true)),
        NormKind::LayerNorm { .. }
        | NormKind::LayerNormPlain
        | NormKind::LayerNormBare
        | NormKind::RmsTyped
        | NormKind::RmsCastLast
        | NormKind::RmsFloat
        | NormKind::RmsPower
        | NormKind::LayerNormPython
        | NormKind::RmsPlain
        | NormKind::LayerNormPlusOne
        | NormKind::RmsLate
        | NormKind::Identity => None,
    }
}

impl<'m> Tensor<'m> {
    /// `LigerRMSNormFunction`.
    fn liger_normed(&self, norm: &NormLayer, in_place: bool) -> Tensor<'m> {
        self.apply(|state, x| {
            let weight = state.weight_if(norm.weight);
            let width = norm.width;
            let node = state.node([x, &weight], move |state, node, grad| {
                norm_backward(state, node, grad, (width, in_place))
            });
            let result = state.new_like(x, x.dtype, &torch::RMS_NORM, node.output(0));
            let rows = x.numel / norm.width.max(1);
            let inverse = state.alloc(rows, Dtype::F32, &torch::RMS_NORM_ROOT);
            for storage in [x.storage, NOTHING, inverse] {
                state.save(node, storage);
            }
            state.release(inverse);
            state.release(weight.storage);
            result
        })
    }

    /// `LigerSiLUMulFunction` or `LigerGELUMulFunction` of a gate and what it lets through.
    pub(in crate::step::forward) fn liger_gated(&self, up: &Tensor<'m>) -> Tensor<'m> {
        self.apply(|state, gate| {
            // swiglu_backward: the gradients are written over what was saved
            let node = state.node([gate, &up.value], |state, node, _| saved_gradients(state, node));
            let result = state.new_like(gate, gate.dtype, &torch::GATED_PRODUCT, node.output(0));
            state.save(node, gate.storage);
            state.save(node, up.value.storage);
            result
        })
    }

    /// `LigerRopeFunction`: rotated in place, forward and backward.
    pub(in crate::step::forward) fn liger_rotated(&self, cos: &Tensor<'m>, sin: &Tensor<'m>) -> Tensor<'m> {
        let node = self.machine.with(|state| {
            let node = state.node([&self.value], pass_backward);
            state.save(node, cos.value.storage);
            state.save(node, sin.value.storage);
            node
        });
        self.with(|value| value.edge = node.output(0))
    }
}

/// Whether there is a kernel for a gated product.
pub(in crate::step::forward) fn fuses(act: Activation) -> bool {
    match act {
        Activation::Silu | Activation::Gelu | Activation::GeluTanh => true,
        Activation::GeluNew
        | Activation::GeluFast
        | Activation::GeluPython
        | Activation::GeluClipped
        | Activation::QuickGelu
        | Activation::Hardswish
        | Activation::Laplace
        | Activation::LeakyRelu
        | Activation::Linear
        | Activation::Mish
        | Activation::Relu
        | Activation::Relu2
        | Activation::Relu6
        | Activation::Sigmoid
        | Activation::SqrtSoftplus
        | Activation::Tanh
        | Activation::Xielu
        | Activation::BloomGelu => false,
    }
}

/// `rms_norm_backward`.
fn norm_backward(state: &mut State, node: &Node, grad: &Grad, (width, in_place): (u64, bool)) -> Results {
    let [input, weight, _] = node.inputs;
    let rows = state.device.multiprocessors;
    let parts =
        if weight.wants() { state.alloc(rows.saturating_mul(width), Dtype::F32, &DW) } else { NOTHING };
    let own = if in_place {
        // the loss made the first of them
        state.leave_loss(grad.storage, node.category);
        share(state, grad)
    } else {
        let storage = state.alloc_for(grad.storage, grad.numel, grad.dtype, &torch::RMS_NORM);
        Grad { storage, view: false, ..*grad }
    };
    let other = weight.wants().then(|| {
        let mut sum = state.alloc(width, Dtype::F32, &torch::SUM);
        if weight.dtype != Dtype::F32 {
            let cast = state.alloc(width, weight.dtype, &torch::CAST);
            state.release(sum);
            sum = cast;
        }
        Grad::new(sum, width, weight.dtype, Layout::Tokens)
    });
    state.release(parts);
    let own = if input.wants() {
        Some(own)
    } else {
        state.release(own.storage);
        None
    };
    [own, other, None]
}
