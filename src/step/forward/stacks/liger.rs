//! transformers with Liger's kernels (`use_liger_kernel=True`): RMS norms, rotary positions and gated products as one kernel
//! each, and the head with its loss ([`crate::step::forward::stacks::fused_loss`]).
//!
//! Source: liger-kernel 0.8.5 ops/rms_norm.py, ops/rope.py, ops/swiglu.py, ops/geglu.py and transformers/monkey_patch.py.
//! Compared with the allocator's trace of that code.

use crate::dtype::Dtype;
use crate::issue::{Field, Issue};
use crate::job::Member;
use crate::model::Architecture;
use crate::model::blocks::{Activation, FeedForward, NormKind};
use crate::model::modeling::{Liger, has_norms_that_trainer_leaves};
use crate::scenario::LoraTargets;
use crate::scenario::software::Trainer;
use crate::step::autograd::{Edge, Grad, Node, Results, saved_gradients, share};
use crate::step::heap::NOTHING;
use crate::step::machine::State;
use crate::step::ops::norm::{NormKernel, NormLayer};
use crate::step::tensor::{Layout, Tensor, Value};
use crate::step::what::{Source, What, torch};

static DW: What = What::own("dW", "partial sums of the gradient of a norm's weight", Source::FusedLoss);

/// Refuses what Liger has no kernels for, or what was not compared.
pub(super) fn check(architecture: &Architecture, member: &Member) -> Result<(), Issue> {
    if let Some(patched) = patch(architecture) {
        let experts = architecture.blocks.iter().any(|block| matches!(block.ffn, FeedForward::Moe(_)));
        let all = matches!(member.lora.targets, LoraTargets::AllLinear | LoraTargets::AllLinearAndHead);
        if patched.experts && experts && member.adapts && all {
            let message = "adapters on the experts that Liger runs as one function were not compared";
            return Err(Issue::error(Field::LoraTargets, message)
                .with_fix("adapt attention alone, or choose transformers"));
        }
        let is_patched_later = member.software().trainer == Trainer::Trl;
        if is_patched_later && has_norms_that_trainer_leaves(&architecture.model_type) {
            let message = format!(
                "transformers' Trainer leaves some norms of {} without Liger's kernel, which is not followed under trl",
                architecture.model_type
            );
            return Err(Issue::error(Field::LigerLayers, message).with_fix("switch liger-layers off"));
        }
        return Ok(());
    }
    let message = format!("{} with Liger's kernels is not modelled", architecture.model_type);
    let issue = super::common::not_compared(message, Some("transformers"), |stacks| stacks.liger.is_some());
    Err(match member.software().trainer {
        Trainer::Trl => Issue { field: Field::LigerLayers, ..issue }.with_fix("switch liger-layers off"),
        _ => issue,
    })
}

/// What is patched of that family.
fn patch(architecture: &Architecture) -> Option<Liger> {
    architecture.family.and_then(|family| family.stacks.liger)
}

/// What is patched of the model that a member runs. transformers' `Trainer` patches the modules of the model that it trains (trainer.py
/// `train`): of one that scores beside it, as trl's trainers have them, the functions alone that all models of its class call.
pub(in crate::step::forward) fn patched(member: &Member, architecture: &Architecture) -> Option<Liger> {
    let patched = patch(architecture).filter(|_| member.software().liger_kernels)?;
    let is_beside = member.software().trainer == Trainer::Trl && member.training.is_none();
    Some(match is_beside {
        true => Liger { norms: false, gates: false, experts: false, ..patched },
        false => patched,
    })
}

/// How many times as many logits as hidden states the fused loss of that family makes at once.
pub(in crate::step::forward) fn logits_at_once(architecture: &Architecture) -> u64 {
    patch(architecture).map_or(1, |patched| patched.logits)
}

/// Liger's kernel of a norm, where it has one. Its gradient replaces the one that it was given, where nothing else needs that.
pub(in crate::step::forward) fn norm(patched: Option<Liger>, kind: NormKind) -> Option<NormKernel> {
    let patched = patched.filter(|patched| patched.norms)?;
    match kind {
        NormKind::Rms | NormKind::RmsPlusOne | NormKind::RmsCastLast if patched.norms_in_place => {
            Some(|x, norm| x.liger_normed(norm, true))
        }
        NormKind::Rms | NormKind::RmsPlusOne | NormKind::RmsCastLast => {
            Some(|x, norm| x.liger_normed(norm, false))
        }
        NormKind::LayerNorm { .. }
        | NormKind::LayerNormPlain
        | NormKind::LayerNormBare
        | NormKind::RmsTyped
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
            let lies = x.dense_layout();
            let node = state.node([x, &weight], move |state, node, grad| {
                norm_backward(state, node, grad, (width, in_place, lies))
            });
            let x = state.lying(x, lies);
            let result = state.new_like(&x, x.dtype, &torch::RMS_NORM, node.output(0));
            let rows = x.numel / norm.width.max(1);
            let inverse = state.alloc(rows, Dtype::F32, &torch::RMS_NORM_ROOT);
            for storage in [x.storage, NOTHING, inverse] {
                state.save(node, storage);
            }
            state.release(inverse);
            state.release(weight.storage);
            state.release(x.storage);
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

    /// `LigerRopeFunction` of queries and keys: rotated in place, forward and backward, where they lie token after token, else in a
    /// copy. `cut` are those that are parts of one projection, `turned` cosines and sines that lie column after column (gpt_oss).
    pub(in crate::step::forward) fn liger_rotated(
        [q, k]: [&Tensor<'m>; 2],
        tables: [&Tensor<'m>; 2],
        (cut, turned): (bool, bool),
    ) -> [Tensor<'m>; 2] {
        q.machine.tensors(|state| {
            let node = state.split_node(2, [&q.value, &k.value], rotated_backward);
            let rotated = [q, k].map(|x| {
                let x = &x.value;
                let dense =
                    if cut { state.copy_lying(x, Layout::Tokens) } else { state.lying(x, Layout::Tokens) };
                Value { shape: x.shape, ..dense }
            });
            let tables = tables.map(|table| {
                let table = &table.value;
                if turned { state.copy_lying(table, table.layout) } else { state.lying(table, table.layout) }
            });
            for table in tables {
                state.save(node, table.storage);
                state.release(table.storage);
            }
            std::array::from_fn(|index| Value { edge: node.output(index as u8), ..rotated[index] })
        })
    }
}

impl State {
    /// `x.contiguous()` inside of a function, for a kernel that wants it to lie so: itself where it does.
    fn lying(&mut self, x: &Value, layout: Layout) -> Value {
        if x.layout == layout || x.layout == Layout::Either {
            self.retain(x.storage);
            return *x;
        }
        self.copy_lying(x, layout)
    }

    fn copy_lying(&mut self, x: &Value, layout: Layout) -> Value {
        Value { layout, ..self.new_like(x, x.dtype, &torch::CLONE, Edge::None) }
    }
}

/// `rope_backward`: the gradients are turned in place, each a copy where it does not lie token after token.
fn rotated_backward(state: &mut State, _: &Node, grads: &Results) -> Results {
    grads.map(|grad| grad.map(|grad| lying_gradient(state, &grad, Layout::Tokens)))
}

/// `grad.contiguous()`.
fn lying_gradient(state: &mut State, grad: &Grad, layout: Layout) -> Grad {
    if grad.layout == layout || grad.layout == Layout::Either {
        return share(state, grad);
    }
    let storage = state.alloc_for(grad.storage, grad.numel, grad.dtype, &torch::CLONE);
    Grad::new(storage, grad.numel, grad.dtype, layout)
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
fn norm_backward(
    state: &mut State,
    node: &Node,
    grad: &Grad,
    (width, in_place, lies): (u64, bool, Layout),
) -> Results {
    let [input, weight, _] = node.inputs;
    let dense = lying_gradient(state, grad, lies);
    let rows = state.device.multiprocessors;
    let parts =
        if weight.wants() { state.alloc(rows.saturating_mul(width), Dtype::F32, &DW) } else { NOTHING };
    let own = if in_place {
        // the loss made the first of them
        state.leave_loss(dense.storage, node.category);
        share(state, &dense)
    } else {
        let storage = state.alloc_for(dense.storage, dense.numel, dense.dtype, &torch::RMS_NORM);
        Grad { storage, view: false, ..dense }
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
    state.release(dense.storage);
    let own = if input.wants() {
        Some(own)
    } else {
        state.release(own.storage);
        None
    };
    [own, other, None]
}
