//! Under which other choices an input makes a difference, and what it adds to the kind of a run.

use crate::model::vision::Resizing;
use crate::scenario::software::{Quantiser, Software, Trainer};
use crate::scenario::{
    AttentionKernel, Checkpointing, Compile, Evaluates, Experts, LossKernel, Merges, Method, Scenario,
    Sharding, Stack, Task, Tuner, WeightFormat,
};

/// The input makes a difference to every scenario.
pub(super) fn always(_: &Scenario) -> bool {
    true
}

/// The input makes a difference where something is trained.
pub(super) fn when_trained(scenario: &Scenario) -> bool {
    scenario.task.trains()
}

/// Whether the optimizer steps when the script asks for it.
pub(super) fn with_step_time(scenario: &Scenario) -> bool {
    when_trained(scenario) && !scenario.optimizer.steps_in_backward()
}

/// The input makes a difference where the model generates.
pub(super) fn with_generation(scenario: &Scenario) -> bool {
    !when_trained(scenario)
}

/// Whether the adapters' dropout runs: most of trl's trainers switch off what is a module (`disable_dropout`).
pub(super) fn with_lora_dropout(scenario: &Scenario) -> bool {
    with_adapters(scenario) && !scenario.task.disables_dropout() && scenario.lora.tuner.has_dropout()
}

/// Whether axolotl's functions over adapters are followed, or asked for: what is asked for can be switched off.
pub(super) fn with_fused_adapters(scenario: &Scenario) -> bool {
    let followed = scenario.task == Task::Sft
        && !scenario.cluster.has_engine()
        && scenario.lora.tuner == Tuner::Lora
        && matches!(scenario.stack, Stack::Transformers | Stack::Liger);
    with_adapters(scenario) && (scenario.lora.fused || followed)
}

/// Whether products in 8-bit floats are followed, or asked for: what is asked for can be switched off.
pub(super) fn with_float8(scenario: &Scenario) -> bool {
    let followed = scenario.task == Task::Sft
        && scenario.method != Method::Qlora
        && matches!(scenario.stack, Stack::Transformers | Stack::Liger);
    scenario.trains_in_float8() || followed
}

/// Whether one of trl's trainers has a say in whose kernels run the layers.
pub(super) fn with_liger_layers(scenario: &Scenario) -> bool {
    when_trained(scenario) && scenario.software().trainer == Trainer::Trl
}

/// Whether quantisation-aware training is followed, or asked for.
pub(super) fn with_qat(scenario: &Scenario) -> bool {
    let followed = scenario.task == Task::Sft
        && scenario.method == Method::Full
        && !scenario.cluster.has_engine()
        && scenario.stack == Stack::Transformers;
    scenario.trains_quantization_aware() || followed
}

/// Whether compiled layers are followed, or asked for: what is asked for can be switched off.
pub(super) fn with_compile(scenario: &Scenario) -> bool {
    let followed = scenario.task == Task::Sft
        && scenario.method == Method::Full
        && scenario.stack == Stack::Transformers;
    let by_unsloth = scenario.task == Task::Sft
        && scenario.stack == Stack::Unsloth
        && scenario.checkpointing != Checkpointing::Off;
    let followed = followed || by_unsloth;
    scenario.compile != Compile::Off || followed
}

/// Whether the adapters have a size, or gradients are projected.
pub(super) fn with_rank(scenario: &Scenario) -> bool {
    scenario.projects() || (with_adapters(scenario) && scenario.lora.tuner.has_rank())
}

/// Whether layers are named that get adapters, or whose gradients are projected.
pub(super) fn with_targets(scenario: &Scenario) -> bool {
    scenario.projects() || with_adapters(scenario) && scenario.lora.tuner.adapts_layers()
}

/// Whether a sequence begins with a prompt that is not scored.
pub(super) fn with_answers(scenario: &Scenario) -> bool {
    scenario.task.has_answers()
}

/// Whether texts are classified.
pub(super) fn with_labels(scenario: &Scenario) -> bool {
    scenario.task == Task::Classify
}

/// Whether texts are embedded.
pub(super) fn with_embeddings(scenario: &Scenario) -> bool {
    scenario.task == Task::Embed
}

/// Whether a policy learns beside a value model.
pub(super) fn with_policy(scenario: &Scenario) -> bool {
    scenario.task == Task::Ppo
}

/// Whether an evaluation is followed, or asked for: what is asked for can be switched off.
pub(super) fn with_evaluation(scenario: &Scenario) -> bool {
    let followed = matches!(scenario.task, Task::Sft | Task::Classify)
        && matches!(scenario.stack, Stack::Transformers | Stack::Trl | Stack::Liger)
        && (scenario.cluster.is_many() || !scenario.cluster.has_engine());
    scenario.evaluates() || followed
}

pub(super) fn when_evaluated(scenario: &Scenario) -> bool {
    scenario.evaluates()
}

/// Whether logits are kept that an evaluation makes.
pub(super) fn with_metrics(scenario: &Scenario) -> bool {
    scenario.evaluates() && scenario.evaluation.keeps == Evaluates::Metrics
}

/// Whether saving is followed, or asked for: what is asked for can be switched off.
pub(super) fn with_saving(scenario: &Scenario) -> bool {
    let followed = matches!(scenario.task, Task::Sft | Task::Classify)
        && matches!(scenario.stack, Stack::Transformers | Stack::Trl | Stack::Liger)
        && scenario.cluster.layout.tensor < 2;
    scenario.saves() || followed
}

/// Whether merging is followed, or asked for: what is asked for can be switched off.
pub(super) fn with_merging(scenario: &Scenario) -> bool {
    let followed = scenario.task == Task::Sft
        && scenario.lora.tuner == Tuner::Lora
        && matches!(scenario.stack, Stack::Transformers | Stack::Trl | Stack::Liger)
        && !scenario.cluster.has_engine();
    with_adapters(scenario) && (scenario.spikes.merging != Merges::Off || followed)
}

/// Whether answers are generated while it trains.
pub(super) fn with_rollouts(scenario: &Scenario) -> bool {
    scenario.task.learns_from_own_answers()
}

/// Whether the model has a tower of which a step with pictures is followed.
pub(super) fn with_eyes(scenario: &Scenario) -> bool {
    when_trained(scenario) && scenario.sees()
}

/// Whether the model has a tower, which may get adapters where texts alone are trained on, too.
pub(super) fn with_tower(scenario: &Scenario) -> bool {
    when_trained(scenario) && scenario.model.architecture().is_ok_and(|model| !model.towers.is_empty())
}

pub(super) fn with_pictures(scenario: &Scenario) -> bool {
    with_eyes(scenario) && scenario.pictures.count > 0
}

/// The same where they may be videos.
pub(super) fn with_videos(scenario: &Scenario) -> bool {
    let videos = scenario
        .model
        .architecture()
        .is_ok_and(|architecture| architecture.vision().is_some_and(|(_, vision)| vision.video.is_some()));
    with_pictures(scenario) && videos
}

/// The same where pictures stay of the size that they have, or nearly: some processors resize all to one.
pub(super) fn with_pictures_of_any_size(scenario: &Scenario) -> bool {
    let one_size = scenario.model.architecture().is_ok_and(|architecture| {
        architecture.vision().is_some_and(|(_, vision)| matches!(vision.resizing, Resizing::Square(_)))
    });
    with_pictures(scenario) && !one_size
}

/// Whether vLLM may have a share of the card: beside a training, or all that `headroom serving` gives it.
pub(super) fn with_vllm(scenario: &Scenario) -> bool {
    scenario.asks_a_generator() || with_generation(scenario)
}

/// Whether vLLM is asked to serve the model, as `headroom serving` has it.
pub(super) fn with_serving(scenario: &Scenario) -> bool {
    with_generation(scenario)
}

/// Whether vLLM has a share of the card beside a training.
pub(super) fn with_colocated_vllm(scenario: &Scenario) -> bool {
    scenario.asks_a_generator() && scenario.reserve.vllm > 0
}

/// Whether the model can be held against itself as it was.
pub(super) fn with_reference(scenario: &Scenario) -> bool {
    scenario.task.has_reference()
}

/// Whether it learns from another model.
pub(super) fn with_teacher(scenario: &Scenario) -> bool {
    scenario.task.has_teacher()
}

pub(super) fn with_adapters(scenario: &Scenario) -> bool {
    scenario.method.has_adapters() && when_trained(scenario)
}

pub(super) fn on_many(scenario: &Scenario) -> bool {
    scenario.cluster.is_many() || with_megatron(scenario)
}

/// Whether there are several, in machines.
pub(super) fn on_several(scenario: &Scenario) -> bool {
    scenario.cluster.is_many()
}

pub(super) fn with_megatron(scenario: &Scenario) -> bool {
    scenario.software().trainer == Trainer::Megatron
}

/// Whether GPUs can share layers: Megatron's, and those of transformers by its own plan.
pub(super) fn with_tensors(scenario: &Scenario) -> bool {
    let has_plan =
        matches!(scenario.stack, Stack::Transformers | Stack::Torchtitan) && when_trained(scenario);
    with_megatron(scenario) || has_plan && scenario.cluster.is_many()
}

pub(super) fn with_transformer_engine(scenario: &Scenario) -> bool {
    with_megatron(scenario) && scenario.cluster.layout.has_transformer_engine()
}

/// Whether GPUs can share sequences: Megatron's, and those whose model accelerate wraps.
pub(super) fn with_contexts(scenario: &Scenario) -> bool {
    with_transformer_engine(scenario) || scenario.can_share_sequences()
}

pub(super) fn in_tensors(scenario: &Scenario) -> bool {
    with_transformer_engine(scenario) && scenario.cluster.layout.tensor > 1
}

pub(super) fn in_contexts(scenario: &Scenario) -> bool {
    with_transformer_engine(scenario) && scenario.cluster.layout.context > 1
}

pub(super) fn in_stages(scenario: &Scenario) -> bool {
    with_megatron(scenario) && scenario.cluster.layout.pipeline > 1
}

/// Under accelerate everything is in the type of mixed precision.
pub(super) fn with_reduction(scenario: &Scenario) -> bool {
    // torchtitan knows float32 alone (`mixed_precision_reduce`)
    let is_told =
        !scenario.is_under_trainer() && !with_recipes(scenario) && scenario.stack != Stack::Torchtitan;
    with_fsdp2(scenario) && is_told || with_megatron(scenario)
}

pub(super) fn with_ddp(scenario: &Scenario) -> bool {
    let is_whole = scenario.cluster.is_many() && scenario.divided().gpus() <= 1;
    is_whole
        && scenario.cluster.sharding == Sharding::Ddp
        && scenario.task.trains()
        && !with_megatron(scenario)
}

/// Whether FSDP2 is chosen, and there is a single GPU, which it need not wrap.
pub(super) fn with_one_gpu(scenario: &Scenario) -> bool {
    !scenario.cluster.is_many() && scenario.cluster.sharding == Sharding::Fsdp2
}

pub(super) fn with_fsdp2(scenario: &Scenario) -> bool {
    scenario.cluster.is_fsdp2()
}

pub(super) fn with_resharding(scenario: &Scenario) -> bool {
    let by_titan = scenario.software().trainer == Trainer::Torchtitan;
    let says_nothing = !scenario.is_under_trainer() && !with_recipes(scenario) && !by_titan;
    with_fsdp2(scenario) && scenario.cluster.reshards && says_nothing
}

/// Whether it can be said who wraps the model: no trainer of its own does.
pub(super) fn with_wrapper(scenario: &Scenario) -> bool {
    with_fsdp2(scenario) && scenario.software().runs_loop()
}

/// Whether torchtune's recipes shard the model.
pub(super) fn with_recipes(scenario: &Scenario) -> bool {
    with_fsdp2(scenario) && scenario.software().trainer == Trainer::Torchtune
}

/// Whether an engine of several GPUs is chosen, or may be for a single one.
pub(super) fn with_engine(scenario: &Scenario) -> bool {
    on_many(scenario) || scenario.cluster.has_engine()
}

/// Whether something of it may lie in the CPU's memory: shards, or on a single GPU what DeepSpeed takes from it.
pub(super) fn with_offload(scenario: &Scenario) -> bool {
    scenario.cluster.is_fsdp2() || scenario.cluster.is_zero() || scenario.offloads_alone()
}

pub(super) fn with_zero(scenario: &Scenario) -> bool {
    scenario.cluster.is_zero()
}

pub(super) fn with_zero3(scenario: &Scenario) -> bool {
    scenario.cluster.is_zero() && scenario.cluster.shards()
}

pub(super) fn with_4_bit(scenario: &Scenario) -> bool {
    scenario.method == Method::Qlora
}

/// Whether experts can be layers of their own; where they are said to be, they can be made something else.
pub(super) fn with_expert_layers(scenario: &Scenario) -> bool {
    scenario.experts == Experts::Layers || scenario.can_have_expert_layers()
}

/// Whether torchao, which always quantises the scales of the 4-bit weights, has no say in it.
pub(super) fn with_bitsandbytes(scenario: &Scenario) -> bool {
    with_4_bit(scenario)
        && scenario.software().quantiser != Quantiser::Torchao
        && matches!(scenario.quantization.format, WeightFormat::Nf4 | WeightFormat::Nf4Early)
}

/// The scales of GPTQ's checkpoints and AWQ's belong to groups of weights.
pub(super) fn with_groups(scenario: &Scenario) -> bool {
    with_4_bit(scenario) && scenario.quantization.format.checkpoint().is_some()
}

pub(super) fn with_preparation(scenario: &Scenario) -> bool {
    with_4_bit(scenario)
        && when_trained(scenario)
        && scenario.software().prepares_for_4_bit
        && scenario.quantization.format.makes_rest_float32()
}

/// The adapters of torchtune and litgpt have the model's element type, those of trl beside 4-bit weights bfloat16, but where the trainer
/// prepares such weights itself or there is none that casts: CPO's, ORPO's and SimPO's, PPO's, LLaMA-Factory's.
pub(super) fn with_pefts_adapters(scenario: &Scenario) -> bool {
    let Software { peft, trainer, .. } = *scenario.software();
    let leaves_them = scenario.task.is_of_odds()
        || scenario.task == Task::Ppo
        || scenario.savings.loss == LossKernel::LogSoftmax;
    // virtual tokens are float32 whatever is chosen
    let adapts = with_adapters(scenario) && scenario.lora.tuner.adapts_layers();
    adapts && peft && !(trainer == Trainer::Trl && with_4_bit(scenario) && !leaves_them)
}

/// The input tells no kinds of runs apart: it adds nothing to their key.
pub(super) fn any(_: &Scenario) -> &'static str {
    ""
}

pub(super) fn checkpointing_band(scenario: &Scenario) -> &'static str {
    if !when_trained(scenario) {
        return "";
    }
    match scenario.checkpointing {
        Checkpointing::Off => "kept",
        Checkpointing::NonReentrant | Checkpointing::Reentrant => "recomputed",
        Checkpointing::Offloaded => "recomputed-offloaded",
        Checkpointing::Selective => "recomputed-attention",
        Checkpointing::Alternate => "recomputed-in-part",
        Checkpointing::Operations => "recomputed-operations",
    }
}

pub(super) fn attention_band(scenario: &Scenario) -> &'static str {
    match scenario.attention {
        AttentionKernel::Eager => "eager",
        AttentionKernel::FlashAttn => "flash-attn",
        AttentionKernel::Sdpa
        | AttentionKernel::Flash
        | AttentionKernel::Efficient
        | AttentionKernel::Math
        | AttentionKernel::Cudnn => "sdpa",
    }
}
