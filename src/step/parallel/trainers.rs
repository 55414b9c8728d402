//! What of transformers' Trainer over FSDP2 is modelled: as accelerate wraps a model, and as axolotl does.

use crate::issue::{Field, Issue};
use crate::job::{Act, Job, Loss, Member, Scorer};
use crate::model::Architecture;
use crate::model::vision::VisionCode;
use crate::scenario::software::Trainer;
use crate::scenario::{Cluster, CpuOffload, LoraTargets, LossKernel, Method, Precision};

/// What of transformers' Trainer and trl's trainers under accelerate's FSDP2 was not compared.
pub(super) fn by_accelerate(job: &Job, member: &Member, architecture: &Architecture) -> Result<(), Issue> {
    let refuse = |field, what: String, fix: &str| {
        let message = format!("{what} under FSDP2 as accelerate wraps it is not modelled");
        Err(Issue::error(field, message).with_fix(fix))
    };
    finds_layers(architecture, "accelerate")?;
    let other = "choose DDP, ZeRO-1 or ZeRO-2";
    let trainer = member.software().trainer;
    let trained = job.members.iter().filter(|member| member.training.is_some()).count();
    if trained > 1 || job.members.len() > 2 {
        return refuse(Field::Sharding, "a job of more models than one and its reference".into(), other);
    }
    for act in &job.round {
        match act {
            Act::Update { .. } | Act::Train { loss: Loss::Labels | Loss::Classes, .. } => {}
            Act::Train {
                loss: Loss::Preference { reference, .. } | Loss::Desirability { reference, .. },
                ..
            } => {
                if *reference == Scorer::Precomputed {
                    return refuse_precomputed(member);
                }
            }
            Act::Train { loss: Loss::Odds { .. }, .. } if member.method == Method::Qlora => {
                // hidden states and logits are float32 then
                let what = "ORPO, CPO and SimPO over 4-bit weights, beside which their trainers make all else float32 \
                            (prepare_model_for_kbit_training),";
                return refuse(Field::Method, what.into(), "choose LoRA, or DDP, ZeRO-1 or ZeRO-2");
            }
            Act::Train { loss: Loss::Odds { .. } | Loss::Comparison | Loss::Reward { .. }, .. }
            | Act::Score { .. }
            | Act::Evaluate { .. }
            | Act::Save { .. }
            | Act::Wake { .. }
            | Act::Merge { .. } => {}
            Act::Train { .. } | Act::Rollout { .. } | Act::Generate { .. } => {
                let what = "a model that generates, or learns from a teacher,";
                return refuse(Field::Sharding, what.into(), other);
            }
        }
    }
    if member.precision == Precision::Bf16 && member.adapts {
        // it has no policy then: float32 adapters are gathered as they are, among bfloat16 weights
        let what = "pure bf16 beside adapters".into();
        return refuse(
            Field::Precision,
            what,
            "choose bf16 mixed (bf16=True), over bf16 weights or fp32 ones",
        );
    }
    if trainer != Trainer::Trl {
        divided(job.cluster, member, "accelerate")?;
        whole_head(member, architecture)?;
    }
    if job.cluster.cpu != CpuOffload::Off && trainer == Trainer::Trl {
        offloaded_by_trl(job, member, architecture)?;
    }
    Ok(())
}

/// An issue where a fused loss finds shards: a head that accelerate makes a unit of by itself is gathered when it is called, and these read its
/// weight past its module (liger-kernel 0.8.5 ops/fused_linear_cross_entropy.py; axolotl's fork of cut-cross-entropy, transformers/utils.py
/// `apply_lce`, which takes it for a head that tensor parallelism divides).
fn whole_head(member: &Member, architecture: &Architecture) -> Result<(), Issue> {
    let loss = member.software().loss(member.loss);
    let stops = match loss {
        LossKernel::Liger => "got mixed torch.Tensor and DTensor",
        LossKernel::Cut => "No `mesh_dim_names` found",
        _ => return Ok(()),
    };
    let is_alone = !architecture.head.tied && (member.adapts || !architecture.towers.is_empty());
    if member.training.is_none() || !is_alone {
        return Ok(());
    }
    let message = format!(
        "the loss {} reads the output head's weight without calling the head, which accelerate makes a unit of by itself where there are adapters \
         and the embedding is not tied to it: it finds shards, and PyTorch stops (\"{stops}\")",
        loss.label()
    );
    let fix = "let all logits be made (loss standard, of Liger's kernels full), or have the layers and the model wrapped by a loop of one's own or by axolotl";
    Err(Issue::error(Field::Loss, message).with_fix(fix))
}

/// What of trl's trainers over shards in the CPU's memory was not compared, or stops. The fused head reads the head's weight where it lies: a
/// head that no unit gathers is a shard in the CPU's memory, where trl takes hidden states and labels to (trainer/utils.py `_fused_forward`) and
/// then has the counts of its metrics gathered.
fn offloaded_by_trl(job: &Job, member: &Member, architecture: &Architecture) -> Result<(), Issue> {
    let refuse = |message: &str, fix: &str| Err(Issue::error(Field::CpuOffload, message).with_fix(fix));
    let replaced = member.loss.replaces_fused_head();
    let mut is_fused = false;
    for act in &job.round {
        match act {
            Act::Train { loss: Loss::Labels, .. } => is_fused |= !replaced,
            Act::Train { loss: Loss::Preference { .. }, .. } if job.members.len() == 1 && !replaced => {
                is_fused = true;
            }
            Act::Train { loss: Loss::Odds { .. } | Loss::Comparison, .. } if !replaced => {}
            Act::Score { .. } | Act::Update { .. } | Act::Save { .. } => {}
            _ => {
                let message = "CPU offload under trl's FSDP2 is followed of SFT, ORPO, CPO, SimPO, reward models and DPO without a reference of its own";
                return refuse(message, "keep all on the GPUs");
            }
        }
    }
    let is_gathered = architecture.head.tied || !member.adapts && architecture.towers.is_empty();
    if is_fused && !is_gathered {
        let message = "trl from 1.15 on computes the loss in the CPU's memory there, as FSDP2 gathers no output head that is neither trained \
                       nor tied to the embedding, and NCCL stops at the counts it then gathers (\"Tensors must be CUDA and dense\")";
        let fix = if job.round.iter().any(|act| matches!(act, Act::Train { loss: Loss::Labels, .. })) {
            "choose transformers as the training library, with wrapped-by accelerate, or trl up to 1.6 (loss full)"
        } else {
            "keep all on the GPUs"
        };
        return refuse(message, fix);
    }
    Ok(())
}

/// What of axolotl's way to wrap a model for FSDP2 was not compared.
pub(super) fn by_axolotl(
    cluster: Cluster,
    member: &Member,
    architecture: &Architecture,
) -> Result<(), Issue> {
    if member.training.is_none() {
        return Ok(());
    }
    finds_layers(architecture, "axolotl")?;
    let refuse = |field, what: &str, fix: &str| {
        let message = format!("{what} under FSDP2 as axolotl wraps it is not modelled");
        Err(Issue::error(field, message).with_fix(fix))
    };
    match (member.method, member.precision) {
        (Method::Qlora, _) => {
            refuse(Field::Method, "4-bit weights", "choose LoRA, or fully_shard in a loop of one's own")
        }
        (Method::Lora | Method::Full, Precision::AmpBf16Weights) | (Method::Full, Precision::Bf16) => Ok(()),
        (_, precision) => {
            let what =
                format!("{} (axolotl loads weights in the type that it computes in)", precision.label());
            refuse(Field::Precision, &what, "choose bf16 mixed over bf16 weights")
        }
    }?;
    divided(cluster, member, "axolotl")
}

/// An issue where the layers that a model names are not all there, and it is not known which it would have to be told.
fn finds_layers(architecture: &Architecture, who: &str) -> Result<(), Issue> {
    let code = architecture.vision().map(|(_, vision)| vision.code);
    let Some(class) = code.filter(|code| code.told_layers().is_none()).and_then(VisionCode::missing_layers)
    else {
        return Ok(());
    };
    let message = format!(
        "{who} wraps the classes of layers that {} and its tower name, of which the model has no {class}: it stops (\"Could not find the transformer \
         layer class\") unless it is told which (transformer_layer_cls_to_wrap), which is not followed of this family",
        architecture.model_type
    );
    Err(Issue::error(Field::Sharding, message).with_fix("choose DDP"))
}

/// What neither was compared with.
fn divided(cluster: Cluster, member: &Member, who: &str) -> Result<(), Issue> {
    let refuse = |field, what: &str, fix: &str| {
        let message = format!("{what} under FSDP2 as {who} wraps it is not modelled");
        Err(Issue::error(field, message).with_fix(fix))
    };
    if member.adapts && member.lora.targets == LoraTargets::AllLinearAndHead {
        return refuse(Field::LoraTargets, "an adapter on the output head", "choose all-linear");
    }
    if cluster.layout.tensor > 1 {
        return refuse(Field::TensorParallel, "sharing layers", "choose a tensor-parallel size of 1");
    }
    Ok(())
}

/// An issue where a reference's scores come with the data: trl makes them before the model is sharded (trainer/dpo_trainer.py
/// `_precompute_ref_logps`).
fn refuse_precomputed(member: &Member) -> Result<(), Issue> {
    let message = if member.adapts {
        "trl scores the data with the model itself, which is in the CPU's memory until FSDP2 has shards of it: PyTorch stops \
         (\"Expected all tensors to be on the same device\")"
    } else {
        "a reference that scores the data beforehand under FSDP2, and goes then, is not modelled"
    };
    Err(Issue::error(Field::Reference, message).with_fix("let the reference score in every step"))
}

/// What of torchtitan's trainer was not compared; what it refuses beside lies with its modules.
pub(super) fn by_torchtitan(job: &Job) -> Result<(), Issue> {
    for act in &job.round {
        match act {
            Act::Update { .. } | Act::Train { loss: Loss::Labels, .. } => {}
            Act::Evaluate { .. } => {
                let message = "torchtitan's validation is not modelled";
                return Err(Issue::error(Field::Evaluation, message).with_fix("switch evaluation off"));
            }
            Act::Save { .. } => {
                let message = "torchtitan's checkpoints are not modelled";
                return Err(Issue::error(Field::Saving, message).with_fix("switch saving off"));
            }
            Act::Train { .. }
            | Act::Score { .. }
            | Act::Wake { .. }
            | Act::Merge { .. }
            | Act::Rollout { .. }
            | Act::Generate { .. } => {
                let message = "torchtitan is followed where it trains one model on labels";
                return Err(Issue::error(Field::Task, message).with_fix("choose fine-tuning"));
            }
        }
    }
    Ok(())
}
