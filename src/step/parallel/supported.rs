//! What of a job on many GPUs is modelled: what was compared with the engines' own code.

use super::Wrapper;
use super::contexts;
use super::ddp::all_learn;
use super::trainers::{by_accelerate, by_axolotl, by_torchtitan};
use crate::issue::{Field, Issue};
use crate::job::{Act, Job, Loss, Member, Scorer};
use crate::model::Architecture;
use crate::model::blocks::{Block, FeedForward, Mixer};
use crate::model::modeling::{Code, Modeling, gathers_adapted_experts};
use crate::scenario::software::Trainer;
use crate::scenario::{
    Checkpointing, Cluster, CpuOffload, LoraTargets, LossKernel, Method, Offloading, Optimizer, Precision,
    ShardedLayers, Sharding, Stack, StepTime, Tuner,
};

/// That a way to divide a model among GPUs is not followed of a library, which may have it.
fn not_followed(what: &str, stack: Stack) -> String {
    format!("{what} alone, not of {}: a limit of Headroom, not of the run", stack.label())
}

/// An issue where several GPUs do what was not compared.
pub(in crate::step) fn supported(
    job: &Job,
    member: &Member,
    architecture: &Architecture,
    modeling: Modeling,
) -> Result<(), Issue> {
    // what else it refuses lies with its modules
    if member.software().trainer == Trainer::Megatron {
        let trains = |act: &Act| matches!(act, Act::Train { loss: Loss::Labels, .. } | Act::Update { .. });
        return if job.members.len() > 1 || !job.round.iter().all(trains) {
            let message = "Megatron-core is followed where it trains one model on labels";
            Err(Issue::error(Field::Task, message).with_fix("choose fine-tuning"))
        } else if job.cluster.cpu != CpuOffload::Off {
            let message = "weights and optimizers in the CPU's memory are not modelled of Megatron-core";
            Err(Issue::error(Field::CpuOffload, message).with_fix("keep all on the GPUs"))
        } else {
            Ok(())
        };
    }
    let layout = job.cluster.layout;
    // what of it is refused lies with the plan, and with the sequences
    let (planned, shared) = match member.stack {
        Stack::Transformers => (layout.tensor.max(1), contexts::followed(job.cluster)),
        Stack::Torchtitan => (layout.tensor.max(1), 1),
        _ => (1, 1),
    };
    if layout.context > shared {
        return Err(contexts::unfollowed(job.cluster, member));
    }
    if layout.parts() > planned {
        let (field, what) = match layout {
            _ if layout.pipeline > 1 => {
                (Field::PipelineParallel, "stages of layers on other GPUs each are followed of Megatron-core")
            }
            _ => (
                Field::TensorParallel,
                "layers divided among GPUs are followed of transformers, torchtitan and Megatron-core",
            ),
        };
        let message = not_followed(what, member.stack);
        return Err(Issue::error(field, message).with_fix("choose Megatron-core, or a size of 1"));
    }
    if layout.experts > 1 {
        let message =
            not_followed("whole experts divided among GPUs are followed of Megatron-core", member.stack);
        return Err(
            Issue::error(Field::ExpertParallel, message).with_fix("choose Megatron-core, or a size of 1")
        );
    }
    if !job.cluster.has_engine() {
        return Ok(());
    }
    let engine = job.cluster.sharding.label();
    let here = job.cluster.place_in_words();
    let refuse = |field, what: String, fix: &str| {
        Err(Issue::error(field, format!("{what} {here} is not modelled")).with_fix(fix))
    };
    let sees = job.round.iter().filter_map(Act::batch).any(|batch| batch.pictures.count > 0);
    if job.cluster.is_fsdp2() && !job.cluster.is_many() {
        on_one(job.cluster, member)?;
    }
    // of what is not followed first what the run cannot do without
    if (job.cluster.is_fsdp2() || job.cluster.is_zero()) && member.training.is_some() {
        followed(job.cluster, architecture, modeling)?;
    }
    match member.stack {
        Stack::Transformers | Stack::Liger if job.members.len() > 1 => {
            return refuse(Field::Gpus, "a job that does more than train one model".into(), "use one GPU");
        }
        Stack::Transformers | Stack::Liger => match Wrapper::of(job.cluster, Trainer::Loop) {
            Wrapper::Axolotl => by_axolotl(job.cluster, member, architecture)?,
            Wrapper::Accelerate => by_accelerate(job, member, architecture)?,
            Wrapper::Loop | Wrapper::Torchtune | Wrapper::Torchtitan => {}
        },
        Stack::Trl => match job.cluster.sharding {
            Sharding::Ddp | Sharding::Zero1 | Sharding::Zero2 => {}
            Sharding::Fsdp2 => by_accelerate(job, member, architecture)?,
            Sharding::Zero3 => by_trl_in_parts(job)?,
            Sharding::Distributed => {
                let what = format!("what trl does under {engine}");
                return refuse(Field::Sharding, what, "choose DDP, FSDP2 or one of DeepSpeed's stages");
            }
        },
        Stack::Torchtune => by_recipe(job, member, architecture)?,
        Stack::Torchtitan => by_torchtitan(job)?,
        Stack::Litgpt | Stack::Unsloth | Stack::Megatron => {
            let what = format!("what {} does", member.stack.label());
            return refuse(Field::Stack, what, "choose transformers, trl, Liger, torchtune or torchtitan");
        }
    }
    // what of trl's is refused lies with the pictures
    if sees && member.stack != Stack::Trl {
        return refuse(Field::Pictures, "a step with pictures".into(), "use one GPU, or text alone");
    }
    if layout.context > 1 {
        contexts::supported(job, member, architecture, modeling)?;
    }
    // what is held against a model that is trained is whole on every GPU, and only scores
    let Some(training) = member.training else { return Ok(()) };
    let format = member.quantization.format;
    // what DDP reduces are the gradients of what is trained, whatever lies beside it
    let divides = job.cluster.sharding != Sharding::Ddp;
    let is_checkpoint = format.checkpoint().is_some();
    if member.method == Method::Qlora && (is_checkpoint || divides && format.bits() == 8) {
        let what = if is_checkpoint { format.label() } else { "8 bits" };
        let fix = if is_checkpoint { "choose NF4" } else { "choose NF4, or DDP" };
        return refuse(Field::WeightFormat, format!("training beside weights in {what}"), fix);
    }
    if member.loss == LossKernel::Cut && job.cluster.sharding == Sharding::Zero3 {
        // axolotl's fork of cut-cross-entropy, cce.py `LinearCrossEntropyFunction.backward`; DeepSpeed 0.19.8 partition_parameters.py `free_param`
        let message = "cut cross-entropy gathers the output head's weight once more in backward and lets go of it there (GatheredParameters), while the \
                       model still has it for its own backward: DeepSpeed stops (\"Cannot free a ZeRO-3 parameter while it is still active in submodules\")";
        let fix = "choose Liger's fused loss, FSDP2 or ZeRO-2";
        return Err(Issue::error(Field::Loss, message).with_fix(fix));
    }
    if training.optimizer.is_of_one_gpu() {
        let fix = if job.cluster.is_many() { "choose AdamW, or one GPU" } else { "choose AdamW" };
        return refuse(Field::Optimizer, training.optimizer.label().into(), fix);
    }
    if training.step == StepTime::InBackward {
        let fix = "let the optimizer step after backward";
        return refuse(Field::Step, "an optimizer's step in backward".into(), fix);
    }
    if member.offloading == Offloading::On && member.software().runs_loop() {
        let fix = "choose trl or torchtune, or keep activations on the GPU";
        return refuse(Field::Offloading, "activation offloading in a loop of one's own".into(), fix);
    }
    let is_measured = match member.lora.tuner {
        Tuner::Lora => true,
        Tuner::Dora | Tuner::Ia3 | Tuner::Loha | Tuner::Lokr | Tuner::Oft | Tuner::Prompt => !divides,
        Tuner::Vera | Tuner::PTuning | Tuner::Prefix | Tuner::PrefixProjected => false,
    };
    if member.adapts && !is_measured {
        let fix = "choose LoRA, or DDP with DoRA, IA³, LoHa, LoKr, OFT or prompt tuning";
        return refuse(Field::Adapter, member.lora.tuner.label().into(), fix);
    }
    match member.checkpointing {
        Checkpointing::Off | Checkpointing::NonReentrant | Checkpointing::Reentrant => {}
        // of which other stacks have none
        Checkpointing::Alternate | Checkpointing::Operations => {}
        Checkpointing::Offloaded | Checkpointing::Selective => {
            let fix = "choose checkpointing with use_reentrant=False";
            return refuse(Field::Checkpointing, "this kind of checkpointing".into(), fix);
        }
    }
    if !training.grads_to_none {
        return refuse(
            Field::SetToNone,
            "keeping gradients after the step".into(),
            "let zero_grad free them",
        );
    }
    if member.method == Method::Qlora && job.cluster.sharding == Sharding::Zero3 && !job.cluster.is_many() {
        // measured: 2.5 % less than is followed, as backward makes no 16-bit weights there
        let message = "4-bit weights under ZeRO-3 on a single GPU are not modelled";
        return Err(
            Issue::error(Field::CpuOffload, message).with_fix("offload the optimizer alone, under ZeRO-2")
        );
    }
    match (job.cluster.sharding, job.cluster.cpu) {
        (Sharding::Ddp | Sharding::Distributed, _) | (Sharding::Fsdp2, CpuOffload::Off | CpuOffload::All) => {
        }
        (Sharding::Fsdp2, CpuOffload::Optimizer) => {
            let what = "FSDP2's CPUOffloadPolicy with weights on the GPU, which it has no word for,";
            return refuse(Field::CpuOffload, what.into(), "offload weights and optimizer, or nothing");
        }
        (Sharding::Zero1 | Sharding::Zero2, CpuOffload::Off | CpuOffload::Optimizer)
        | (Sharding::Zero3, _) => {}
        (Sharding::Zero1 | Sharding::Zero2, CpuOffload::All) => {
            let message =
                "DeepSpeed lays parameters into the CPU's memory under ZeRO-3 alone (offload_param)";
            let fix = "offload the optimizer, or choose ZeRO-3";
            return Err(Issue::error(Field::CpuOffload, message).with_fix(fix));
        }
    }
    match job.cluster.sharding {
        Sharding::Ddp => all_learn(job, member, architecture),
        Sharding::Distributed => refuse(
            Field::Sharding,
            "Megatron's distributed optimizer under another library".into(),
            "choose ZeRO-1",
        ),
        Sharding::Fsdp2 | Sharding::Zero1 | Sharding::Zero2 | Sharding::Zero3 => {
            steps(job.cluster, training.optimizer)?;
            sharded(job.cluster, member, architecture, modeling)
                .map_err(|(field, what, fix)| unfollowed(job.cluster, field, &what, fix))
        }
    }
}

/// What of FSDP2 on a single GPU was not compared: it was run in a loop of one's own and as accelerate wraps a model.
fn on_one(cluster: Cluster, member: &Member) -> Result<(), Issue> {
    let wrapper = Wrapper::of(cluster, member.software().trainer);
    let (field, message, fix) = if !matches!(wrapper, Wrapper::Loop | Wrapper::Accelerate) {
        let message =
            "FSDP2 on a single GPU is followed in a loop of one's own and as accelerate wraps a model";
        (Field::ShardsAlone, message, "switch FSDP2 on one GPU off, or choose transformers or trl")
    } else if cluster.cpu != CpuOffload::Off {
        let message = "FSDP2's shards in the CPU's memory on a single GPU were not compared";
        (Field::CpuOffload, message, "keep all on the GPU, or choose ZeRO-3")
    } else if member.float8.is_on() {
        (Field::Float8, "FP8 training under FSDP2 on a single GPU was not compared", "switch float8 off")
    } else {
        return Ok(());
    };
    Err(Issue::error(field, message).with_fix(fix))
}

/// What of torchtune's distributed recipes was not compared.
fn by_recipe(job: &Job, member: &Member, architecture: &Architecture) -> Result<(), Issue> {
    let Cluster { sharding, replicas, sharded, .. } = job.cluster;
    if !architecture.towers.is_empty() {
        let message =
            format!("torchtune's recipes of {} on several GPUs are not modelled", architecture.model_type);
        return Err(Issue::error(Field::Stack, message).with_fix("choose transformers or trl"));
    }
    if sharding != Sharding::Fsdp2 {
        let message = format!("torchtune's recipes shard by FSDP2: they have no {}", sharding.label());
        return Err(Issue::error(Field::Sharding, message).with_fix("choose FSDP2"));
    }
    if replicas > 1 {
        let message = "torchtune 0.6.1 has no hybrid sharding: its mesh is of shards and of tensors";
        return Err(Issue::error(Field::Replicas, message).with_fix("choose one replica"));
    }
    if sharded != ShardedLayers::Layers && architecture.head.tied {
        // `TiedLinear` reads the embedding's weight when that is in shards again
        let message = "an output head that is tied to an embedding sharded by itself finds shards: PyTorch stops (\"got mixed \
                       torch.Tensor and DTensor\")";
        return Err(Issue::error(Field::ShardedLayers, message).with_fix("shard the layers alone"));
    }
    if member.method == Method::Qlora && job.cluster.cpu != CpuOffload::Off {
        let message = "torchao's 4-bit weights in the CPU's memory were not compared";
        return Err(Issue::error(Field::CpuOffload, message).with_fix("choose LoRA, or keep all on the GPUs"));
    }
    Ok(())
}

/// What of trl's trainers under ZeRO-3 was not compared.
fn by_trl_in_parts(job: &Job) -> Result<(), Issue> {
    let refuse = |field, what: &str, fix: &str| {
        Err(Issue::error(field, format!("{what} under ZeRO-3 is not modelled")).with_fix(fix))
    };
    for act in &job.round {
        match act {
            Act::Train {
                loss: Loss::Preference { reference, .. } | Loss::Desirability { reference, .. },
                ..
            } if *reference == Scorer::Precomputed => {
                // the model has an engine of its own for it, whose hooks stay beside the other's
                let what = "a reference that scores the data beforehand";
                return refuse(Field::Reference, what, "let the reference score in every step");
            }
            Act::Train {
                loss:
                    Loss::Labels
                    | Loss::Preference { .. }
                    | Loss::Desirability { .. }
                    | Loss::Odds { .. }
                    | Loss::Comparison
                    | Loss::Reward { .. },
                ..
            }
            | Act::Score { .. }
            | Act::Evaluate { .. }
            | Act::Save { .. }
            | Act::Merge { .. }
            | Act::Wake { .. }
            | Act::Update { .. } => {}
            Act::Train { .. } | Act::Rollout { .. } | Act::Generate { .. } => {
                let what = "a model that generates, which gathers all of it, or learns from a teacher,";
                return refuse(Field::Sharding, what, "choose DDP, ZeRO-1 or ZeRO-2");
            }
        }
    }
    Ok(())
}

/// Whether an optimizer steps shards: FSDP2's, which are DTensors, or the flat float32 partition of DeepSpeed, which is a tensor as any
/// other.
fn steps(cluster: Cluster, optimizer: Optimizer) -> Result<(), Issue> {
    let refuse = |message: String, fix: &str| Err(Issue::error(Field::Optimizer, message).with_fix(fix));
    let stops = |why: &str| {
        let who = optimizer.label();
        let fix =
            "choose AdamW 8-bit (torchao), whose states are as small, or AdamW; ZeRO steps plain tensors";
        refuse(format!("{who} does not run over FSDP2's shards, which are DTensors: {why}"), fix)
    };
    if cluster.is_zero() && cluster.cpu != CpuOffload::Off && !is_adam(optimizer) {
        let message = format!(
            "{} over gradients and masters in the CPU's memory is not modelled: DeepSpeed takes AdamW there (DeepSpeedCPUAdam)",
            optimizer.label()
        );
        return refuse(message, "choose AdamW, or keep the optimizer on the GPUs");
    }
    match optimizer {
        Optimizer::AdamW
        | Optimizer::AdamWFused
        | Optimizer::AdamWForLoop
        | Optimizer::AdamW8bitTorchao
        | Optimizer::AmsGrad
        | Optimizer::Adam
        | Optimizer::NAdam
        | Optimizer::Sgd
        | Optimizer::SgdMomentum
        | Optimizer::Nesterov
        | Optimizer::RmsProp => Ok(()),
        Optimizer::Adagrad if cluster.is_zero() => {
            let message = "Adagrad makes its sums of the whole model before DeepSpeed is given it, which stay beside those of the partition: \
                           that is not modelled";
            refuse(message.to_owned(), "choose RMSprop, or AdamW 8-bit")
        }
        Optimizer::Adagrad => Ok(()),
        // no run of several GPUs was compared, and ZeRO's partition is one tensor
        Optimizer::AdamW4bitTorchao => {
            let (who, engine) = (optimizer.label(), cluster.sharding.label());
            let message = format!(
                "{who} was not compared under {engine}: its step makes 24 bytes of each element of what it steps at a time"
            );
            refuse(message, "choose AdamW 8-bit (torchao), or AdamW")
        }
        Optimizer::Adafactor | Optimizer::AdafactorTorch if cluster.is_zero() => Ok(()),
        _ if cluster.is_zero() && !optimizer.projects() && optimizer.is_of_bitsandbytes() => Ok(()),
        Optimizer::AdamW8bit
        | Optimizer::PagedAdamW8bit
        | Optimizer::Lion8bit
        | Optimizer::AdEmaMix8bit
        | Optimizer::PagedAdEmaMix8bit
        | Optimizer::Adafactor => stops("PyTorch stops (\"got mixed torch.Tensor and DTensor\")"),
        Optimizer::PagedAdamW
        | Optimizer::Lamb
        | Optimizer::Lion
        | Optimizer::AdEmaMix
        | Optimizer::PagedAdEmaMix => {
            stops("bitsandbytes' operator \"does not have a sharding strategy registered\"")
        }
        Optimizer::AdafactorTorch => {
            stops("\"in-place operations that require placement changes are not supported\"")
        }
        Optimizer::AdamWEarly => {
            refuse("neither engine is followed under PyTorch 2.0".to_owned(), "choose AdamW")
        }
        Optimizer::Muon
        | Optimizer::ScheduleFreeAdamW
        | Optimizer::StableAdamW
        | Optimizer::GaLoreAdamW
        | Optimizer::GaLoreAdamW8bit
        | Optimizer::GaLoreAdafactor
        | Optimizer::ApolloAdamW
        | Optimizer::AdamMini
        | Optimizer::AdamWCpuOffload
        | Optimizer::AdamWCpuOffloadGradients
        | Optimizer::Lomo
        | Optimizer::AdaLomo
        | Optimizer::SparseAdam
        | Optimizer::Shampoo
        | Optimizer::AdaBelief => {
            let engine = cluster.sharding.label();
            refuse(format!("{} is not modelled under {engine}", optimizer.label()), "choose AdamW")
        }
    }
}

/// Whether it is what DeepSpeed's Adam of the CPU stands for.
fn is_adam(optimizer: Optimizer) -> bool {
    matches!(optimizer, Optimizer::AdamW | Optimizer::AdamWFused | Optimizer::AdamWForLoop | Optimizer::Adam)
}

/// What an engine does and Headroom does not follow.
fn unfollowed(cluster: Cluster, field: Field, what: &str, fix: &str) -> Issue {
    let engine = cluster.sharding.label();
    let message = format!("{what} is not modelled under {engine}: a limit of Headroom, not of the run");
    Issue::error(field, message).with_fix(fix)
}

/// Whether the hooks of FSDP2 and ZeRO are followed around the modules of a model.
fn followed(cluster: Cluster, architecture: &Architecture, modeling: Modeling) -> Result<(), Issue> {
    let family = &architecture.model_type;
    let refuse = |what: &str| {
        let fix = "choose DDP, or a text decoder such as llama, qwen3 or gemma2";
        Err(unfollowed(cluster, Field::Model, what, fix))
    };
    let attends = |block: &Block| {
        let mixer = &block.mixer;
        matches!(mixer, Mixer::Attention(_) | Mixer::Latent(_) | Mixer::DeltaNet(_) | Mixer::ShortConv(_))
    };
    let is_compared = matches!(modeling.code, Code::Llama | Code::Phi | Code::StableLm | Code::Gemma4);
    if !is_compared || !architecture.blocks.iter().all(attends) {
        return refuse(&format!("the code of {family}"));
    }
    if architecture.encoder.is_some() || !architecture.extra.is_empty() {
        return refuse(&format!("what {family} has beside the layers of its decoder"));
    }
    if !architecture.towers.is_empty() && architecture.vision().is_none() {
        return refuse(&format!("what {family} sees with"));
    }
    Ok(())
}

/// What of a training is not modelled under FSDP2 and ZeRO: the field, what it is and what would be.
fn sharded(
    cluster: Cluster,
    member: &Member,
    architecture: &Architecture,
    modeling: Modeling,
) -> Result<(), (Field, String, &'static str)> {
    if member.method.has_adapters() && member.lora.trains_embeddings {
        let what = "training the embedding beside adapters".to_owned();
        return Err((Field::TrainEmbeddings, what, "switch train-embeddings off"));
    }
    let software = member.software();
    match member.precision {
        Precision::AmpBf16 | Precision::Bf16 | Precision::AmpFp16 => {}
        Precision::AmpBf16Weights if Wrapper::of(cluster, software.trainer).is_under_trainer() => {}
        // the recipes have no policy: shards are gathered as they are
        Precision::Fp32 if member.stack == Stack::Torchtune => {}
        // its engines make parameters bfloat16 or float16, whatever they were
        Precision::AmpBf16Weights | Precision::Fp16 if cluster.is_zero() => {}
        Precision::Fp32 | Precision::Fp16 | Precision::AmpBf16Weights | Precision::AmpFp16Weights => {
            let fix = if cluster.is_zero() {
                "choose bf16 or fp16: what is followed are DeepSpeed's 16-bit engines (bf16: {enabled: true}, or fp16)"
            } else {
                "choose bf16 or fp16 mixed over fp32 weights, pure bf16, or accelerate as what wraps the model"
            };
            return Err((Field::Precision, member.precision.label().to_owned(), fix));
        }
    }
    if member.precision.is_float16() && member.trainer_prepares && member.method == Method::Qlora {
        let what = "fp16 with QLoRA under trl's ORPO, CPO and SimPO".to_owned();
        return Err((Field::Precision, what, "choose bf16 mixed, or LoRA"));
    }
    let followed = match member.stack {
        Stack::Torchtune => member.loss == LossKernel::Full,
        Stack::Trl => member.loss.replaces_fused_head(),
        // what of prime-rl's is followed, the stack's own code says
        Stack::Transformers | Stack::Liger => {
            member.loss.is_of_prime_rl()
                || matches!(member.loss, LossKernel::Full | LossKernel::Liger | LossKernel::Cut)
        }
        _ => false,
    };
    if member.loss == LossKernel::Axolotl && cluster.is_fsdp2() {
        // its own function wraps the model there
        let what = "what axolotl does with preferences".to_owned();
        return Err((Field::Loss, what, "choose DDP or one of DeepSpeed's stages"));
    }
    if member.loss != LossKernel::Standard && !followed {
        let what = format!("the loss {}", member.loss.label());
        return Err((Field::Loss, what, "choose the standard one"));
    }
    let has_experts = architecture.blocks.iter().any(|block| matches!(block.ffn, FeedForward::Moe(_)))
        && modeling.peft.experts;
    let everywhere = matches!(member.lora.targets, LoraTargets::AllLinear | LoraTargets::AllLinearAndHead);
    if cluster.sharding == Sharding::Zero3
        && member.adapts
        && everywhere
        && has_experts
        && !gathers_adapted_experts(&architecture.model_type)
    {
        let what = format!("an adapter on experts of {}", architecture.model_type);
        return Err((Field::LoraTargets, what, "choose attention's layers, or FSDP2"));
    }
    Ok(())
}
