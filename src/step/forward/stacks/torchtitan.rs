//! torchtitan's Llama 3: rotary positions as complex numbers from a table, cuDNN's attention before flash, one kernel for a norm,
//! and a loss that is summed over the float32 copy of all logits.
//!
//! Source: torchtitan 0.2.2 models/llama3/model/model.py, models/attention.py, components/loss.py, train.py. Compared with the
//! allocator's trace of that code.

mod parts;

use crate::dtype::Dtype;
use crate::issue::{Field, Issue};
use crate::job::{Batch, HeadKind, Member};
use crate::memory::Category;
use crate::model::blocks::{Activation, Attention, FeedForward, Mixer, Mlp, NormKind, Projection, Wiring};
use crate::model::modeling::is_torchtitans;
use crate::model::{Architecture, Objective};
use crate::scenario::{
    AttentionKernel, Checkpointing, Cluster, CpuOffload, Lengths, LossKernel, Mask, Method, Offloading,
    Optimizer, Precision, Sharding, StepTime,
};
use crate::step::autograd::{like, only};
use crate::step::forward::loader::Loader;
use crate::step::forward::{BoundLayer, Pass, find};
use crate::step::heap::NOTHING;
use crate::step::ops::attention::{Arguments, Kernel, Scores, scaled_dot_product};
use crate::step::ops::norm::NormLayer;
use crate::step::tensor::{Tensor, Value};
use crate::step::what::{Source, What, roles, torch};

static TABLE: What = What::own(
    "freqs_cis",
    "complex numbers by which queries and keys are rotated, of all positions of a sequence: a tensor of the model that is not trained",
    Source::Modeling,
);
static CONJUGATE: What =
    What::step("conj", "the table's conjugates, by which the gradient of queries or keys is rotated");

/// transformers' blocks as torchtitan builds them.
///
/// # Errors
/// Where torchtitan has no such model, or a setting was not compared.
pub(super) fn architecture(
    architecture: &Architecture,
    member: &Member,
    batch: Batch,
    cluster: Cluster,
) -> Result<Architecture, Issue> {
    settings(member, batch, cluster)?;
    let refuse = |what: &str| {
        let message = format!("{} under torchtitan is not modelled: {what}", architecture.model_type);
        Err(Issue::error(Field::Stack, message)
            .with_fix("choose a model of Llama 3's architecture, or transformers"))
    };
    if !is_torchtitans(&architecture.model_type)
        || architecture.head.objective != Objective::CausalLm
        || !architecture.towers.is_empty()
    {
        return refuse("its models/llama3 is what was compared");
    }
    if architecture.head.tied {
        return refuse("its head is a matrix of its own");
    }
    for block in &architecture.blocks {
        let Mixer::Attention(attention) = &block.mixer else { return refuse("layers without attention") };
        let wide = attention.heads.saturating_mul(attention.head_dim);
        let Projection::Separate { q, .. } = &attention.projection else {
            return refuse("its projections");
        };
        if wide != architecture.hidden || q.bias || attention.window.is_some() {
            return refuse("its heads are together as wide as the model, without biases and windows");
        }
        let FeedForward::Dense(Mlp::Gated { gate, act, .. }) = &block.ffn else {
            return refuse("its feed-forward networks");
        };
        if *act != Activation::Silu {
            return refuse("its feed-forward networks have silu");
        }
        if gate.bias {
            return refuse("its feed-forward networks have no biases");
        }
    }
    let mut own = architecture.clone();
    if member.checkpointing == Checkpointing::Alternate {
        // those that run again are layers of another kind
        let kinds = own.blocks.len() as u16;
        own.blocks.extend_from_within(..);
        own.order.iter_mut().skip(1).step_by(2).for_each(|kind| *kind += kinds);
    }
    let parts = cluster.layout.tensor.max(1);
    if parts > 1 {
        parts::divide(&mut own, parts, batch.length)?;
    }
    // the table has as many positions as a sequence has tokens (`update_from_config`)
    own.max_positions = Some(own.max_positions.unwrap_or(0).max(batch.length));
    Ok(own)
}

/// Refuses what was not compared with its code.
fn settings(member: &Member, batch: Batch, cluster: Cluster) -> Result<(), Issue> {
    let refuse = |field, message: &str, fix: &str| Err(Issue::error(field, message).with_fix(fix));
    if member.head != HeadKind::Language {
        let message = "torchtitan trains language models: another head is not modelled";
        return refuse(Field::Task, message, "choose fine-tuning");
    }
    if member.method != Method::Full {
        return refuse(Field::Method, "torchtitan 0.2.2 trains all weights", "choose full fine-tuning");
    }
    if cluster.sharding != Sharding::Fsdp2
        || cluster.gpus / cluster.replicas.max(1) / cluster.layout.tensor.max(1) < 2
    {
        let message = "torchtitan is followed where several GPUs have the model in shards (data_parallel_shard_degree): on a single one, \
                       and with whole copies, it runs without shards, which was not compared";
        return refuse(Field::Sharding, message, "choose FSDP2 on two GPUs or more");
    }
    if cluster.layout.tensor > 1
        && (cluster.replicas > 1 || !cluster.gpus.is_multiple_of(cluster.layout.tensor))
    {
        let message = "torchtitan's tensor parallelism is followed beside FSDP2 without replicas, of GPUs that it divides";
        return refuse(
            Field::TensorParallel,
            message,
            "choose one replica, and a size that divides the GPUs",
        );
    }
    if cluster.cpu != CpuOffload::Off || member.offloading == Offloading::On {
        let field = if cluster.cpu == CpuOffload::Off { Field::Offloading } else { Field::CpuOffload };
        let message = "what torchtitan lays into the CPU's memory (enable_cpu_offload) was not compared";
        return refuse(field, message, "keep all on the GPUs");
    }
    match member.precision {
        Precision::AmpBf16 | Precision::Bf16 => {}
        Precision::Fp32
        | Precision::Fp16
        | Precision::AmpBf16Weights
        | Precision::AmpFp16
        | Precision::AmpFp16Weights => {
            let message = "torchtitan is followed where FSDP2 computes in bfloat16 (mixed_precision_param)";
            return refuse(Field::Precision, message, "choose bf16 mixed, or pure bf16");
        }
    }
    if member.attention != AttentionKernel::Sdpa {
        let message = "torchtitan's attention takes cuDNN's kernel, else flash, by itself; flex and varlen attention, which are compiled, \
                       are not modelled";
        return refuse(Field::Attention, message, "choose SDPA");
    }
    if batch.mask != Mask::None {
        let message = "torchtitan's batches are rows of one text without end: neither padded nor masked";
        return refuse(Field::Mask, message, "choose batches without padding");
    }
    if batch.lengths != Lengths::Equal {
        let message = "torchtitan's batches are rows of one text without end, all of one length";
        return refuse(Field::Lengths, message, "choose one length for all batches");
    }
    if member.loss != LossKernel::Standard {
        let message = "torchtitan's loss is cross-entropy over the float32 copy of all logits";
        return refuse(Field::Loss, message, "choose the standard loss");
    }
    match member.checkpointing {
        Checkpointing::Off
        | Checkpointing::NonReentrant
        | Checkpointing::Alternate
        | Checkpointing::Operations => {}
        Checkpointing::Reentrant | Checkpointing::Offloaded | Checkpointing::Selective => {
            let message =
                "torchtitan's checkpointing is of whole layers, of every second one or by operation";
            return refuse(Field::Checkpointing, message, "choose \"On\", or none");
        }
    }
    let Some(training) = member.training else { return Ok(()) };
    if training.step == StepTime::InBackward {
        let message =
            "torchtitan's optimizer that steps in backward (early_step_in_backward) was not compared";
        return refuse(Field::Step, message, "let the optimizer step after backward");
    }
    match training.optimizer {
        Optimizer::AdamW | Optimizer::AdamWFused | Optimizer::AdamWForLoop | Optimizer::Adam => Ok(()),
        _ => refuse(Field::Optimizer, "torchtitan 0.2.2 has Adam and AdamW", "choose AdamW"),
    }
}

impl Loader<'_> {
    /// `_precompute_freqs_cis` once the model has memory: the table that was there until then goes last.
    pub(in crate::step::forward) fn torchtitan_buffer(&mut self, dim: u64) {
        let (rows, state) = (self.batch.length, &mut *self.state);
        let angles = rows.saturating_mul(dim / 2);
        let earlier = state.while_loading(angles.saturating_mul(2), Dtype::F32);
        let positions = state.while_loading(rows, Dtype::I64);
        let [outer, ones] = [(); 2].map(|()| state.while_loading(angles, Dtype::F32));
        state.persistent(angles.saturating_mul(8), Dtype::F32, 1, Category::Buffers, &TABLE);
        [ones, outer, positions, earlier].into_iter().for_each(|local| state.release(local));
    }
}

impl<'a> Pass<'_, 'a> {
    /// `TransformerBlock.forward`.
    pub(in crate::step::forward) fn torchtitan_layer(
        &self,
        layer: &BoundLayer<'a>,
        x: &Tensor<'a>,
    ) -> Tensor<'a> {
        let Wiring::PreNorm { attention, mlp } = &layer.block.wiring else {
            return x.unmodelled("norms that torchtitan has nowhere");
        };
        let h = {
            let attended = {
                let normed = x.torchtitan_normed(&layer.norm(attention));
                self.within("self_attn", &roles::ATTENTION, || {
                    self.torchtitan_attention(layer, &normed.of_all_tokens())
                })
            };
            x.add(&attended)
        };
        let fed = {
            let normed = h.torchtitan_normed(&layer.norm(mlp));
            self.within("mlp", &roles::FEED_FORWARD, || self.torchtitan_mlp(layer, &normed.of_all_tokens()))
        };
        h.add(&fed)
    }

    /// `Attention.forward`.
    fn torchtitan_attention(&self, layer: &BoundLayer<'a>, x: &Tensor<'a>) -> Tensor<'a> {
        let Some(attention) = layer.block.mixer.attention() else {
            return x.unmodelled("layers without attention");
        };
        let Projection::Separate { q, k, v } = &attention.projection else {
            return x.unmodelled("projections that torchtitan keeps apart");
        };
        let mut queries = self.kept(|| x.through(&layer.linear(q))).split_heads();
        let mut keys = x.through(&layer.linear(k)).split_heads();
        let values = self.kept(|| x.through(&layer.linear(v))).split_heads();
        let rotated =
            self.machine.serving(&roles::ROTATION, || self.torchtitan_rotated(attention, [&queries, &keys]));
        [queries, keys] = rotated;
        let [q, k, v] = [&queries, &keys, &values].map(Tensor::heads_first);
        drop((queries, keys, values));
        let output = {
            let given = Arguments { q: &q, k: &k, v: &v, mask: None, causal: true, dropout: false };
            let scores = self.torchtitan_scores(attention, &given);
            if scores.kernel == Kernel::Math {
                return x.unmodelled("attention without cuDNN's kernel and flash's");
            }
            self.kept(|| scaled_dot_product(scores, &given)).to_tokens()
        };
        let result = output.through(&layer.linear(&attention.output)).of_own_tokens(self.keeps_operations());
        drop((q, k, v));
        result
    }

    /// Runs an operation whose output is kept where checkpointing is by operation (`_op_sac_save_list`, of matrix products the first, the
    /// third and so on).
    fn kept(&self, operation: impl FnOnce() -> Tensor<'a>) -> Tensor<'a> {
        if self.keeps_operations() { self.machine.kept_operation(operation) } else { operation() }
    }

    /// Whether checkpointing is by operation.
    fn keeps_operations(&self) -> bool {
        self.checkpointing() == Checkpointing::Operations
    }

    /// `ScaledDotProductAttentionWrapper`: cuDNN's kernel, then flash, then PyTorch's reference, whatever PyTorch would prefer on that card.
    fn torchtitan_scores(&self, attention: &Attention, given: &Arguments<'_, 'a>) -> Scores {
        let scores = self.scores(attention, Kernel::Eager, attention.kv_heads);
        let wanted = [AttentionKernel::Cudnn, AttentionKernel::Flash];
        let kernels = wanted.map(|wanted| self.wanted_kernel(wanted, scores, given));
        let kernel = kernels.into_iter().find(|kernel| *kernel != Kernel::Math).unwrap_or(Kernel::Math);
        Scores { kernel, ..scores }
    }

    /// `apply_rotary_emb`: pairs of neighbours as complex numbers, in float32.
    fn torchtitan_rotated(&self, attention: &Attention, heads: [&Tensor<'a>; 2]) -> [Tensor<'a>; 2] {
        let entries = self.batch.length.saturating_mul(attention.head_dim);
        let floats = heads.map(|x| x.to(Dtype::F32));
        let products = floats.each_ref().map(|x| x.torchtitan_turned(entries));
        let [q, k] = &products;
        let rotated = [q.to(heads[0].value.dtype), k.to(heads[1].value.dtype)];
        drop(floats);
        drop(products);
        rotated
    }

    /// `FeedForward.forward`.
    fn torchtitan_mlp(&self, layer: &BoundLayer<'a>, x: &Tensor<'a>) -> Tensor<'a> {
        let FeedForward::Dense(Mlp::Gated { gate, up, down, act }) = &layer.block.ffn else {
            return x.unmodelled("a feed-forward network that torchtitan has nowhere");
        };
        let product = {
            let active = {
                let gated = self.kept(|| x.through(&layer.linear(gate)));
                gated.activated(*act, &layer.params)
            };
            let up = x.through(&layer.linear(up));
            let product = active.mul(&up);
            // the left operand goes first
            drop(active);
            product
        };
        self.kept(|| product.through(&layer.linear(down))).of_own_tokens(self.keeps_operations())
    }

    /// `output = self.output(h)`, and the trainer's `forward_backward_step` up to backward, before which it lets go of the logits.
    pub(in crate::step::forward) fn torchtitan_head(
        &self,
        hidden: Tensor<'a>,
        replace: &dyn Fn(),
    ) -> (Tensor<'a>, Vec<Tensor<'a>>) {
        let head = find(&self.outside.linears, |layer| layer.name == self.architecture.head.linear.name);
        let logits = self.machine.head_unit(&hidden, |hidden| {
            let whole = hidden.of_all_tokens();
            whole.through(&head).named_logits()
        });
        drop(hidden);
        let logits = self.leave_forward(logits);
        replace();
        let labels = Value::plain(NOTHING, self.batch.tokens(), Dtype::I64);
        let labels = Tensor { machine: self.machine, value: labels };
        let sum = {
            let float = self.machine.serving(&roles::LOGITS, || logits.to(Dtype::F32));
            let parts = self.machine.with(|state| state.parallel.parts());
            if parts > 1 {
                float.cross_entropy_in_parts(self.batch.tokens())
            } else {
                float.cross_entropy(&labels)
            }
        };
        let loss = sum.scale();
        drop(sum);
        drop(logits);
        (loss, Vec::new())
    }
}

impl<'m> Tensor<'m> {
    /// `nn.RMSNorm`: one kernel, whose input and weight have the same element type.
    pub(in crate::step::forward) fn torchtitan_normed(&self, norm: &NormLayer) -> Tensor<'m> {
        debug_assert!(matches!(norm.kind, NormKind::Rms), "of Llama's architecture");
        self.machine.within(norm.name, &roles::NORM, || self.fused_root_mean_square(norm, false))
    }

    /// `xq_ * freqs_cis`, whose gradient is a product with the table's conjugates: those are written out.
    fn torchtitan_turned(&self, entries: u64) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], move |state, _, grad| {
                let conjugate = state.alloc(entries, Dtype::F32, &CONJUGATE);
                let rotated = like(state, grad, &torch::MUL);
                state.release(conjugate);
                only(rotated)
            });
            state.save(node, NOTHING);
            state.new_like(x, x.dtype, &torch::MUL, node.output(0))
        })
    }
}
