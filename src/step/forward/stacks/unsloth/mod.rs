//! Unsloth's own forward passes for LoRA and QLoRA: autograd functions written by hand over a layer's projections and their
//! adapters, norms and rotary positions as one kernel each, a loss that never holds all logits, and checkpoints that wait in
//! CPU memory.
//!
//! Source: unsloth 2026.10.9 models/llama.py, models/mistral.py, models/qwen3.py, models/gemma.py and
//! utils/attention_dispatch.py; unsloth_zoo 2026.10.9 gradient_checkpointing.py and fused_losses/fused_linear.py. Compared
//! with the allocator's trace of that code, run operation by operation (`UNSLOTH_COMPILE_DISABLE=1`).

mod buffers;
pub(in crate::step) mod functions;
mod log_probs;
mod loss;
mod rewards;

use super::common::{not_compared, texts};
use crate::dtype::Dtype;
use crate::issue::{Field, Issue};
use crate::job::{Batch, Member};
use crate::model::Architecture;
use crate::model::blocks::{Attention, FeedForward, Mixer, Mlp, NormKind, Projection, Wiring};
use crate::scenario::{
    AttentionKernel, Checkpointing, Compile, LoraTargets, LossKernel, Method, Offloading, Precision,
    StepTime, WeightFormat,
};
use crate::step::autograd::HELD;
use crate::step::forward::inputs::{Embedded, Shared};
use crate::step::forward::{BoundLayer, Pass};
use crate::step::heap::NOTHING;
use crate::step::ops::attention::{Arguments, Kernel, Scores, scaled_dot_product};
use crate::step::ops::linear;
use crate::step::ops::norm::NormLayer;
use crate::step::tensor::{Tensor, Value};
use crate::step::what::roles;

/// Bytes of a layer's input above which it is moved to CPU memory (gradient_checkpointing.py `MINIMUM_SIZE`).
const SMALLEST_OFFLOADED: u64 = 2 << 20;

/// What sequences are padded to a multiple of for cuDNN's kernel (utils/attention_dispatch.py `_CUDNN_LENGTH_BUCKET`).
const BUCKET: u64 = 128;

/// The model as Unsloth runs it.
///
/// # Errors
/// An [`Issue`] where Unsloth refuses the settings, runs other code for them, or they were not compared.
pub(super) fn architecture(
    architecture: &Architecture,
    member: &Member,
    batch: Batch,
) -> Result<Architecture, Issue> {
    let Some(family) = architecture.family.and_then(|family| family.stacks.unsloth) else {
        let message = format!("Unsloth's {} is not modelled", architecture.model_type);
        let library = if member.by_trl_alone { "trl" } else { "transformers" };
        return Err(not_compared(message, Some(library), |stacks| stacks.unsloth.is_some()));
    };
    settings(member, batch)?;
    let mut own = architecture.clone();
    for block in &mut own.blocks {
        let Mixer::Attention(attention) = &mut block.mixer else { continue };
        match attention.window {
            Some(window) if family.looks_at_window && batch.length > window => {
                let message = "Unsloth's attention to a window of the sequence is not modelled";
                return Err(Issue::error(Field::Sequence, message)
                    .with_fix(format!("use at most {window} tokens, or choose transformers")));
            }
            _ => attention.window = None,
        }
    }
    Ok(own)
}

/// Refuses settings under which Unsloth would run other code than this.
fn settings(member: &Member, batch: Batch) -> Result<(), Issue> {
    let lora = &member.lora;
    let head = match lora.targets {
        LoraTargets::AllLinearAndHead => true,
        LoraTargets::Named => lora.modules.adapts("lm_head"),
        LoraTargets::AllLinear | LoraTargets::Qv | LoraTargets::Attention | LoraTargets::Mlp => false,
    };
    let half = match member.precision {
        Precision::Bf16 | Precision::Fp16 | Precision::AmpBf16Weights => true,
        Precision::Fp32 | Precision::AmpBf16 | Precision::AmpFp16 | Precision::AmpFp16Weights => false,
    };
    let early = member.method == Method::Qlora && member.quantization.format == WeightFormat::Nf4Early;
    let kernel = matches!(member.attention, AttentionKernel::Sdpa | AttentionKernel::Flash);
    let refusals = [
        (
            member.method == Method::Full,
            Field::Method,
            "Unsloth trains all weights with other code, which is not modelled",
            "choose LoRA or QLoRA, or transformers",
        ),
        (
            !half,
            Field::Precision,
            "Unsloth's own functions take 16-bit weights",
            "choose bf16 autocast over bf16 weights, or fp16 (pure) for a card without bfloat16",
        ),
        (
            !lora.fp32_adapters,
            Field::Fp32Adapters,
            "Unsloth's adapters are float32",
            "switch fp32-adapters on",
        ),
        (lora.dropout, Field::LoraDropout, "Unsloth with LoRA dropout is not modelled", "switch dropout off"),
        (early, Field::WeightFormat, "Unsloth needs a bitsandbytes after 0.43.1", "choose nf4"),
        (
            head,
            Field::LoraTargets,
            "an adapter on the output head makes Unsloth return logits, which is not modelled",
            "leave lm_head out",
        ),
        (
            member.loss != LossKernel::Standard,
            Field::Loss,
            "Unsloth brings a loss of its own",
            "choose the standard loss",
        ),
        (
            !kernel,
            Field::Attention,
            "Unsloth chooses the kernel of attention itself",
            "choose SDPA, or flash where flash-attn or xformers is installed",
        ),
        (
            batch.mask.is_packed() && batch.sequences > 1,
            Field::Mask,
            "Unsloth makes one row of packed sequences",
            "choose padding-free",
        ),
        (
            member.step_time() != StepTime::AfterBackward,
            Field::Step,
            "Unsloth's loop steps after backward",
            "choose the step after backward",
        ),
        (
            member.offloading == Offloading::On,
            Field::Offloading,
            "Unsloth moves layers' inputs by itself, and no other activations",
            "choose checkpoints in CPU memory",
        ),
    ];
    match refusals.into_iter().find(|(refused, ..)| *refused) {
        None => Ok(()),
        Some((_, field, message, fix)) => Err(Issue::error(field, message).with_fix(fix)),
    }
}

/// Whether layers are compiled: under checkpoints, and not where texts share a row.
fn compiles(member: &Member, batch: Batch) -> bool {
    let is_checkpointed = member.checkpointing != Checkpointing::Off;
    member.compile == Compile::Layers && is_checkpointed && !batch.mask.is_packed()
}

/// Whether a layer's input of this size waits in CPU memory.
pub(in crate::step::forward) fn offloads(member: &Member, bytes: u64) -> bool {
    member.checkpointing == Checkpointing::Offloaded && bytes > SMALLEST_OFFLOADED
}

/// Whether a function of Unsloth's runs these layers: each has an adapter and none a bias.
fn fuses(layers: &[linear::Layer]) -> bool {
    layers.iter().all(|layer| layer.adapter.is_some() && layer.bias.is_none())
}

impl<'a> Pass<'_, 'a> {
    /// `inputs_embeds` stays a variable of the model's forward.
    pub(in crate::step::forward) fn unsloth_inputs(&self) -> (Embedded<'a>, Shared<Tensor<'a>>) {
        let hidden = self.embed_tokens();
        (Embedded { hidden, kept: true, positions: None, locals: Vec::new() }, Shared::none())
    }

    /// `UnslothCheckpointFunction`: the layer's input waits in CPU memory and comes back into a buffer that stays, but for the
    /// last layer's and for small ones. Which is the last one is counted in the first step (`LAST_GC_INDEX`), a reference's first layer too,
    /// so that beside one no layer is the last.
    pub(in crate::step::forward) fn offloaded(
        &self,
        index: usize,
        hidden: &Tensor<'a>,
        shared: &Shared<Tensor<'a>>,
    ) -> Tensor<'a> {
        let layer = &self.layers[index];
        let last = index + 1 == self.layers.len() && !self.member.is_scored_first;
        let stays = last || !offloads(self.member, hidden.value.bytes());
        let storage = if stays { hidden.value.storage } else { NOTHING };
        let input = Value { storage, ..hidden.value };
        let arguments = [NOTHING; HELD - 1];
        self.machine.checkpointed_from(index, input, arguments, || self.layer(layer, hidden, shared))
    }

    /// The norm behind the last layer, whose gradient is written over the one that came where nobody else has what it returned
    /// (`_unsloth_head_reads_final_norm`).
    pub(in crate::step::forward) fn unsloth_last_normed(
        &self,
        hidden: &Tensor<'a>,
        norm: &NormLayer,
    ) -> Tensor<'a> {
        let in_place = norm.kind != NormKind::RmsPlusOne && !self.member.returns_last_state;
        self.machine.within(norm.name, &roles::NORM, || hidden.unsloth_norm(norm.width, in_place))
    }

    /// `LlamaDecoderLayer_fast_forward`, `GemmaDecoderLayer_fast_forward`.
    pub(in crate::step::forward) fn unsloth_layer(
        &self,
        layer: &BoundLayer<'a>,
        input: &Tensor<'a>,
    ) -> Tensor<'a> {
        if compiles(self.member, self.batch) {
            return self.unsloth_compiled_layer(layer, input);
        }
        // the other wirings are of families that `architecture` refuses
        let Wiring::PreNorm { attention, mlp } = &layer.block.wiring else {
            return input.unmodelled("norms that Unsloth has nowhere");
        };
        let mut hidden = input.unsloth_normed(&layer.norm(attention));
        hidden = self.within("self_attn", &roles::ATTENTION, || self.unsloth_attention(layer, &hidden));
        hidden = input.add(&hidden);
        let residual = hidden.clone();
        hidden = residual.unsloth_normed(&layer.norm(mlp));
        hidden = self.within("mlp", &roles::FEED_FORWARD, || self.unsloth_mlp(layer, &hidden));
        hidden = residual.add(&hidden);
        drop(residual);
        hidden
    }

    /// `LlamaAttention_fast_forward`, `Qwen3Attention_fast_forward`.
    fn unsloth_attention(&self, layer: &BoundLayer<'a>, x: &Tensor<'a>) -> Tensor<'a> {
        let Some(attention) = layer.block.mixer.attention() else {
            return x.unmodelled("layers without attention");
        };
        let Projection::Separate { q, k, v } = &attention.projection else {
            return x.unmodelled("projections that Unsloth keeps apart");
        };
        let layers = [q, k, v].map(|spec| layer.linear(spec));
        let [mut q, mut k, mut v] =
            if fuses(&layers) { x.unsloth_qkv(layers) } else { layers.map(|layer| x.through(&layer)) };
        v = v.to_heads();
        (q, k) = match &attention.qk_norm {
            None if self.batch.mask.is_packed() => functions::rotated_anew(&q.to_heads(), &k.to_heads()),
            None => functions::rotated(&q.to_heads(), &k.to_heads()),
            Some(_) => {
                let (q, k) =
                    functions::normed_and_rotated(&q.split_heads(), &k.split_heads(), attention.head_dim);
                (q.heads_first(), k.heads_first())
            }
        };
        let heads = if self.batch.mask.is_packed() {
            self.unsloth_texts(attention, [&q, &k, &v])
        } else {
            self.unsloth_attend(attention, [&q, &k, &v])
        };
        let attended = heads.to_tokens();
        let output = layer.linear(&attention.output);
        let output = if fuses(&[output]) { attended.unsloth_out(output) } else { attended.through(&output) };
        drop((q, k, v));
        drop(heads);
        drop(attended);
        output
    }

    /// `run_attention` where neither flash-attn nor xformers is installed: grouped heads are repeated, and all of them copied
    /// one after the other, where no kernel takes them grouped or they are not.
    fn unsloth_attend(&self, attention: &Attention, [q, k, v]: [&Tensor<'a>; 3]) -> Tensor<'a> {
        let groups = attention.heads / attention.kv_heads.max(1);
        let grouped = self.unsloth_kernel(attention, q, groups > 1);
        if groups > 1 && grouped != Kernel::Math {
            return self.unsloth_product((attention, grouped, attention.kv_heads), [q, k, v]);
        }
        let kernel = self.unsloth_kernel(attention, q, false);
        let output = {
            let (k, v) = (k.repeat_heads(groups), v.repeat_heads(groups));
            let heads = [q, &k, &v].map(functions::contiguous);
            self.unsloth_product((attention, kernel, attention.heads), heads.each_ref())
        };
        output.to_tokens()
    }

    /// `_sdpa_packed_segments`: every text of the row by itself, their results one behind the other.
    fn unsloth_texts(&self, attention: &Attention, heads: [&Tensor<'a>; 3]) -> Tensor<'a> {
        let [q, ..] = heads;
        let groups = attention.heads / attention.kv_heads.max(1);
        let kernel = self.unsloth_kernel(attention, q, groups > 1);
        let grouped = groups > 1 && kernel != Kernel::Math;
        let kernel = if grouped { kernel } else { self.unsloth_kernel(attention, q, false) };
        let (kv_heads, repeats) = if grouped { (attention.kv_heads, 1) } else { (attention.heads, groups) };
        let output = {
            let query = functions::text(q);
            let [k, v] = [heads[1], heads[2]].map(|x| functions::text(&x.repeat_heads(repeats)));
            self.unsloth_product((attention, kernel, kv_heads), [&query, &k, &v]).to_tokens()
        };
        output.copied()
    }

    /// The kernel of queries that are so.
    fn unsloth_kernel(&self, attention: &Attention, q: &Tensor<'a>, grouped: bool) -> Kernel {
        let kv_heads = if grouped { attention.kv_heads } else { attention.heads };
        let given = Arguments { q, k: q, v: q, mask: None, causal: true, dropout: false };
        without_cudnn(
            self.kernel(self.scores(attention, Kernel::Eager, kv_heads), &given),
            self.device.capability,
        )
    }

    /// `_training_sdpa`: for cuDNN's kernel sequences are padded.
    fn unsloth_product(
        &self,
        (attention, kernel, kv_heads): (&Attention, Kernel, u64),
        heads: [&Tensor<'a>; 3],
    ) -> Tensor<'a> {
        let run = |scores: Scores, [q, k, v]: [&Tensor<'a>; 3]| {
            scaled_dot_product(scores, &Arguments { q, k, v, mask: None, causal: true, dropout: false })
        };
        let (batch, sequence) = texts(self.batch);
        let scores = Scores { batch, sequence, keys: sequence, ..self.scores(attention, kernel, kv_heads) };
        if kernel != Kernel::Cudnn {
            return run(scores, heads);
        }
        let sequence = bucketed(scores.sequence);
        let [q, ..] = heads;
        let output = {
            let padded = heads.map(|x| functions::padded(x, (scores.sequence, sequence)));
            run(Scores { sequence, keys: sequence, ..scores }, padded.each_ref())
        };
        output.slice(q.value.numel)
    }

    fn unsloth_mlp(&self, layer: &BoundLayer<'a>, x: &Tensor<'a>) -> Tensor<'a> {
        match &layer.block.ffn {
            FeedForward::Dense(mlp @ Mlp::Gated { gate, up, down, .. }) => {
                let layers = [gate, up, down].map(|spec| layer.linear(spec));
                if fuses(&layers) { x.unsloth_mlp(layers) } else { self.mlp(layer, mlp, x) }
            }
            FeedForward::Dense(_) | FeedForward::Moe(_) | FeedForward::None => {
                x.unmodelled("a feed-forward network that Unsloth has nowhere")
            }
        }
    }
}

impl<'m> Tensor<'m> {
    /// `fast_rms_layernorm`: gemma's gradient has a tensor of its own, the others' is written over the one that came.
    pub(in crate::step::forward) fn unsloth_normed(&self, norm: &NormLayer) -> Tensor<'m> {
        let in_place = norm.kind != NormKind::RmsPlusOne;
        self.machine.within(norm.name, &roles::NORM, || self.unsloth_norm(norm.width, in_place))
    }
}

/// PyTorch's choice, but for cuDNN's kernel on compute capability 10, which Unsloth keeps out of training.
pub(in crate::step::forward) fn without_cudnn(kernel: Kernel, capability: u32) -> Kernel {
    match kernel {
        Kernel::Cudnn if capability >= 100 => Kernel::Flash,
        kernel => kernel,
    }
}

/// The tokens of a sequence as cuDNN's kernel is given it: the next multiple of 128, one more where it is one (utils/attention_dispatch.py
/// `_cudnn_length_bucketed_sdpa`).
pub(in crate::step::forward) fn bucketed(sequence: u64) -> u64 {
    sequence.saturating_add(BUCKET - sequence % BUCKET)
}

/// The element type that products are made in.
fn compute_dtype(autocast: Option<Dtype>, weight: Dtype) -> Dtype {
    autocast.unwrap_or(weight)
}

#[cfg(test)]
mod tests {
    use crate::share;
    use crate::step::Recording;
    use crate::step::heap::record::Event;

    /// How many tensors of so many bytes come in the forward pass of Llama 3.2 1B: 16 layers of 32 heads of 64 elements, and 8 of keys and values.
    fn come(gpu: &str, length: u64, bytes: [u64; 2]) -> [usize; 2] {
        let link = format!(
            "v=1&m=meta-llama/Llama-3.2-1B&method=qlora&p=amp-bf16-weights&st=unsloth&gc=off&b=1&s={length}&gpu={gpu}"
        );
        let shared = share::decode(&link);
        assert!(shared.notices.is_empty(), "{:?}", shared.notices);
        let scenario = &shared.scenarios[0];
        let (architecture, gpu) =
            (scenario.architecture().expect("a model"), scenario.gpu().expect("a card"));
        let recording = Recording::of(&architecture, scenario, &gpu).expect("it is modelled");
        let marks = |at: &usize| matches!(recording.event(*at), Some(Event::Mark(_)));
        let first = recording.first().find(marks).expect("it has phases");
        let forward = (first + 1..recording.first().end).take_while(|at| !marks(at));
        let come: Vec<u64> = forward
            .filter_map(|at| recording.happening(at))
            .filter(|own| own.comes)
            .map(|own| own.bytes.0)
            .collect();
        bytes.map(|bytes| come.iter().filter(|own| **own == bytes).count())
    }

    /// utils/attention_dispatch.py `_cudnn_length_bucketed_sdpa`: where cuDNN's kernel runs queries, keys and values are padded to the next
    /// multiple of 128 tokens, by 128 where they are one, and so is the output. On compute capability 10 it is kept out of training
    /// (`_NO_CUDNN_TRAINING`).
    #[test]
    fn sequences_are_padded_for_cudnn_on_hopper_alone() {
        let heads = |tokens: u64| [32, 8].map(|heads| heads * tokens * 64 * 2);
        // others of that size come on every card
        let more = |gpu: &str, length: u64, tokens: u64| {
            let [own, usual] = [gpu, "a100-sxm-80gb"].map(|gpu| come(gpu, length, heads(tokens)));
            [0, 1].map(|index| own[index] - usual[index])
        };
        assert_eq!(more("h100-sxm-80gb", 256, 384), [2 * 16, 2 * 16]);
        assert_eq!(more("h100-sxm-80gb", 255, 256), [2 * 16, 2 * 16]);
        assert_eq!(more("b200", 256, 384), [0, 0]);
    }
}
