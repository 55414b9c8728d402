//! A model as torchtune's builders make it, and what they and its recipes do not take.

use crate::issue::{Field, Issue};
use crate::job::{Batch, Member};
use crate::model::Architecture;
use crate::model::blocks::{FeedForward, Linear, Mixer, Mlp, Projection};
use crate::scenario::{AttentionKernel, Method, Precision, WeightFormat};
use crate::step::forward::adapters;
use crate::step::forward::stacks::common::not_compared;

/// transformers' blocks as torchtune builds them.
pub(in crate::step::forward::stacks) fn architecture(
    architecture: &Architecture,
    member: &Member,
    batch: Batch,
) -> Result<Architecture, Issue> {
    settings(member, batch)?;
    let model_type = &architecture.model_type;
    let refuse = |what: &str| {
        let message = format!("torchtune's {model_type} is not modelled: {what}");
        Err(not_compared(message, Some("transformers"), |stacks| stacks.torchtune.is_some()))
    };
    let Some(family) = super::positions::family(architecture) else {
        return refuse("version 0.6.1 does not have it, or it was not compared");
    };
    let mut own = architecture.clone();
    for block in &mut own.blocks {
        let Mixer::Attention(attention) = &mut block.mixer else {
            return refuse("layers without attention");
        };
        let wide = |heads: u64| heads.saturating_mul(attention.head_dim);
        if wide(attention.heads) != architecture.hidden && !family.takes_head_dim {
            return refuse("its heads are together as wide as the model");
        }
        if attention.rotary.width(attention.head_dim) != Some(attention.head_dim) {
            return refuse("its rotary embedding rotates whole heads");
        }
        if let Projection::Fused(joint) = &attention.projection {
            let part = |name, heads| Linear::new(name, joint.input, wide(heads));
            attention.projection = Projection::Separate {
                q: part("self_attn.q_proj", attention.heads),
                k: part("self_attn.k_proj", attention.kv_heads),
                v: part("self_attn.v_proj", attention.kv_heads),
            };
        }
        if let FeedForward::Dense(Mlp::GatedFused { gate_up, down, act }) = &block.ffn {
            let half = |name| Linear::new(name, gate_up.input, gate_up.output / 2);
            let (gate, up) = (half("mlp.gate_proj"), half("mlp.up_proj"));
            block.ffn = FeedForward::Dense(Mlp::Gated { gate, up, down: down.clone(), act: *act });
        }
        // its models have no windows
        attention.window = None;
        if let Projection::Separate { q, .. } = &attention.projection
            && q.bias != family.biases
        {
            let biases = if family.biases { "has" } else { "has no" };
            return refuse(&format!("it {biases} biases on queries, keys and values"));
        }
    }
    if !family.ties_head && architecture.head.tied {
        return refuse("its head is a matrix of its own");
    }
    if let Some((checkpoints, known)) = family.positions
        && member.model.name().starts_with(checkpoints)
    {
        own.max_positions = own.max_positions.map(|most| most.min(known));
    }
    if let Some(most) = own.max_positions.filter(|most| batch.length > *most) {
        let message = format!("torchtune refuses sequences longer than the model's {most} positions");
        return Err(Issue::error(Field::Sequence, message).with_fix(format!("use at most {most}")));
    }
    let adapted_head = adapters::adapts_head(member, architecture.head.linear.name);
    if adapted_head && architecture.head.tied {
        let message = "torchtune cannot adapt an output head that is tied to the embedding";
        return Err(Issue::error(Field::LoraTargets, message).with_fix("choose all-linear"));
    }
    if member.method == Method::Qlora && !family.qlora {
        let message = format!("torchtune has no QLoRA of {model_type}");
        return Err(Issue::error(Field::Method, message).with_fix("choose LoRA"));
    }
    Ok(own)
}

/// Refuses what its recipes do not take.
fn settings(member: &Member, batch: Batch) -> Result<(), Issue> {
    match member.precision {
        Precision::Fp32 | Precision::Bf16 => {}
        Precision::Fp16
        | Precision::AmpBf16
        | Precision::AmpBf16Weights
        | Precision::AmpFp16
        | Precision::AmpFp16Weights => {
            let message = "torchtune computes in the element type of the weights, without autocast";
            return Err(Issue::error(Field::Precision, message).with_fix("choose bf16 (pure) or fp32"));
        }
    }
    if member.attention == AttentionKernel::Eager {
        let message = "torchtune's attention is scaled_dot_product_attention";
        return Err(Issue::error(Field::Attention, message).with_fix("choose one of the others"));
    }
    if member.checkpointing.is_reentrant() {
        let message = "torchtune's checkpointing is the one with use_reentrant=False";
        return Err(Issue::error(Field::Checkpointing, message).with_fix("choose \"On\""));
    }
    if batch.mask.is_packed() {
        let message = "torchtune runs packed samples through compiled flex attention, which is not modelled";
        return Err(Issue::error(Field::Mask, message).with_fix("choose texts that are not packed"));
    }
    if member.method == Method::Qlora && member.quantization.format == WeightFormat::Nf4Early {
        let message = "torchtune's 4-bit weights are torchao's, not those of an early bitsandbytes";
        return Err(Issue::error(Field::WeightFormat, message).with_fix("choose NF4"));
    }
    Ok(())
}
