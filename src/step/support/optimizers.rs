//! Where optimizers are followed that reach into the model: those that project gradients, and those that step in backward by
//! themselves.

use crate::issue::{Field, Issue};
use crate::job::{HeadKind, Member, Training};
use crate::model::Architecture;
use crate::model::blocks::{FeedForward, LinearClass};
use crate::scenario::{LoraTargets, Optimizer, StepTime};
use crate::step::forward::Model;

/// What stands in the way of such an optimizer.
pub(super) fn optimizer(architecture: &Architecture, member: &Member) -> Result<(), Issue> {
    let Some(training) = member.training else { return Ok(()) };
    let optimizer = training.optimizer;
    let reads_names = optimizer == Optimizer::AdamMini;
    if !optimizer.is_of_whole_model() && !reads_names {
        return Ok(());
    }
    let refuse = |field, message: String, fix: &str| Err(Issue::error(field, message).with_fix(fix));
    let name = optimizer.label();
    if member.adapts {
        let message = format!("{name} is modelled where all weights are trained, not beside adapters");
        return refuse(Field::Optimizer, message, "choose full fine-tuning, or AdamW");
    }
    if reads_names && training.step == StepTime::InBackward {
        let message = format!("{name} is given all parameters with their names: it steps after backward");
        return refuse(Field::Step, message, "let the optimizer step after backward");
    }
    if optimizer.projects() && member.lora.targets == LoraTargets::Qv {
        let message = format!("{name} has no default layers: transformers wants their names");
        return refuse(Field::LoraTargets, message, "choose all linear layers, or name some");
    }
    let software = member.software();
    if !software.runs_transformers() || !matches!(member.head, HeadKind::Language) {
        let message = format!(
            "{name} is modelled as transformers makes it, for language models in its own stack or trl's"
        );
        let fix = if software.runs_transformers() { "choose AdamW" } else { "choose AdamW, or transformers" };
        return refuse(Field::Optimizer, message, fix);
    }
    let has_experts = architecture.blocks.iter().any(|block| matches!(block.ffn, FeedForward::Moe(_)));
    if architecture.encoder.is_some() || !architecture.towers.is_empty() || has_experts {
        let message = format!(
            "{name} was not compared on {}: it has experts, an encoder or a tower",
            architecture.model_type
        );
        return refuse(Field::Optimizer, message, "choose AdamW");
    }
    if member.precision.is_scaled() && optimizer.steps_in_backward() {
        let message = format!("{name} steps before a gradient scaler has seen the gradients");
        return refuse(Field::Precision, message, "train in bfloat16");
    }
    layerwise_adafactor(member, training)?;
    low_rank_gradients(training)
}

/// What stands in the way of torchao's optimizer in the CPU's memory (torchao/optim/cpu_offload.py), with so many micro-batches.
pub(super) fn on_cpu(member: &Member, times: u64) -> Result<(), Issue> {
    let Some(training) = member.training.filter(|training| training.optimizer.is_on_cpu()) else {
        return Ok(());
    };
    let refuse = |field, message: &str, fix: &str| Err(Issue::error(field, message).with_fix(fix));
    if training.optimizer == Optimizer::AdamWCpuOffloadGradients && times > 1 {
        let message = "a gradient that left for the CPU's memory is written over by the next micro-batch's: torchao's offload_gradients is \
                       \"not compatible with gradient accumulation\"";
        return refuse(Field::Accumulation, message, "choose one micro-batch, or keep gradients on the GPU");
    }
    if !training.grads_to_none {
        let message = "torchao's optimizer in the CPU's memory stops at zero_grad(set_to_none=False)";
        return refuse(Field::SetToNone, message, "let zero_grad free the gradients");
    }
    if training.step == StepTime::InBackward {
        let message = "torchao's optimizer in the CPU's memory steps after backward";
        return refuse(Field::Step, message, "let the optimizer step after backward");
    }
    if member.precision.is_scaled() {
        let message = "torchao's optimizer in the CPU's memory is not followed beside a gradient scaler, which looks for gradients there";
        return refuse(Field::Precision, message, "train in bfloat16");
    }
    Ok(())
}

/// What transformers' `Trainer` stops at.
fn layerwise_adafactor(member: &Member, training: Training) -> Result<(), Issue> {
    let is_layerwise =
        training.optimizer == Optimizer::GaLoreAdafactor && training.step == StepTime::InBackward;
    if !is_layerwise || !member.is_by_trainer() {
        return Ok(());
    }
    Err(Issue::error(Field::Step, Optimizer::STOPS_LAYERWISE)
        .with_fix("let the optimizer step after backward"))
}

/// A model of which the targets name no layer that an optimizer could project.
pub(super) fn projected(model: &Model<'_>) -> Result<(), Issue> {
    if !model.member.projects() || model.projects {
        return Ok(());
    }
    let (architecture, targets) = (model.architecture, model.member.lora);
    let names_head =
        targets.targets == LoraTargets::Named && targets.modules.adapts(architecture.head.linear.name);
    let message = if names_head && architecture.head.tied {
        "the output head's weight is the embedding's, whose gradient is not projected: none is".to_owned()
    } else {
        let family = &architecture.model_type;
        let mut linears = model.layers.iter().flat_map(|layer| &layer.linears);
        let has_conv1d = linears.any(|layer| layer.class == LinearClass::Conv1d);
        let why = if has_conv1d { ": only nn.Linear is, which Conv1D is not" } else { "" };
        format!("transformers finds no layer of {family} to project (\"No target modules found\"){why}")
    };
    Err(Issue::error(Field::LoraTargets, message).with_fix("name other layers, or choose AdamW"))
}

/// What Adam-mini stops at: a parameter that its name says is a matrix, or has heads, and is none, or has no whole ones.
pub(super) fn mini(model: &Model<'_>) -> Result<(), Issue> {
    let is_mini = |training: Training| training.optimizer == Optimizer::AdamMini;
    if !model.member.training.is_some_and(is_mini) {
        return Ok(());
    }
    let stopped = model.machine.with(|state| {
        let mut params = state.params.of(&model.params).iter();
        params.find(|param| param.trainable && param.blocks.is_none()).map(|param| param.module)
    });
    let heads = heads_of_mini(model.architecture.hidden, model.architecture.heads());
    let why = match (stopped, heads) {
        (None, Ok(()) | Err(Uneven::Square)) => return Ok(()),
        (Some(_), Err(Uneven::Square)) => "its hidden size squared is no multiple of its heads".to_owned(),
        (_, Err(Uneven::Keys)) => "its heads are no multiple of those of keys and values".to_owned(),
        (Some(module), Ok(())) => format!("{module} by its name is divided otherwise than it can be"),
    };
    let message = format!("Adam-mini stops at {}: {why}", model.architecture.model_type);
    Err(Issue::error(Field::Optimizer, message).with_fix("choose AdamW"))
}

/// What Adam-mini asserts of a model.
#[derive(Debug, PartialEq, Eq)]
enum Uneven {
    /// `dim * dim % n_heads`, where a parameter has a name of queries or keys (`count_block`).
    Square,
    /// `n_heads % n_kv_heads` (`__init__`).
    Keys,
}

/// Whether the heads of a model are what Adam-mini asserts, of queries and of keys.
fn heads_of_mini(hidden: u64, heads: Option<(u64, u64)>) -> Result<(), Uneven> {
    let Some((heads, of_keys)) = heads else { return Ok(()) };
    if !heads.is_multiple_of(of_keys) {
        return Err(Uneven::Keys);
    }
    if !hidden.saturating_mul(hidden).is_multiple_of(heads) {
        return Err(Uneven::Square);
    }
    Ok(())
}

/// What PyTorch stops at after galore-torch's 8-bit step.
fn low_rank_gradients(training: Training) -> Result<(), Issue> {
    if training.optimizer != Optimizer::GaLoreAdamW8bit || training.grads_to_none {
        return Ok(());
    }
    let message = "GaLore's 8-bit step leaves projected gradients, to which PyTorch adds no whole ones";
    Err(Issue::error(Field::SetToNone, message).with_fix("let zero_grad free the gradients"))
}

#[cfg(test)]
mod tests {
    use super::{Uneven, heads_of_mini};
    use crate::issue::{Field, Issue};
    use crate::memory::Category;
    use crate::scenario::Scenario;
    use crate::scenario::keys::Key;
    use crate::{estimate, share};

    fn linked(more: &str) -> Scenario {
        share::decode(&format!("v=1&m=meta-llama/Llama-3.2-1B&method=full&{more}")).scenarios.remove(0)
    }

    #[test]
    fn what_is_not_followed_names_what_to_change() {
        for (link, field, words) in [
            ("p=bf16&o=galore-adamw&t=qv", Field::LoraTargets, "no default layers"),
            (
                "p=bf16&o=galore-adamw&m=openai-community/gpt2&s=512",
                Field::LoraTargets,
                "which Conv1D is not",
            ),
            ("p=bf16&o=galore-adamw&t=lm_head", Field::LoraTargets, "the embedding's"),
            ("p=bf16&o=galore-adamw&t=fc1", Field::LoraTargets, "(\"No target modules found\")"),
            ("p=bf16&o=galore-adamw-8bit&set-to-none=off", Field::SetToNone, "no whole ones"),
            ("p=amp-fp16&o=lomo", Field::Precision, "gradient scaler"),
            ("p=bf16&o=lomo&st=litgpt", Field::Optimizer, "modelled as transformers makes it"),
            ("p=bf16&o=lomo&gpus=2", Field::Optimizer, "on several GPUs"),
            ("p=bf16&o=galore-adamw&step=in-backward&gpus=2", Field::Optimizer, "on several GPUs"),
            ("p=bf16&o=galore-adafactor&st=trl&step=in-backward", Field::Step, "galore_adafactor_layerwise"),
            ("p=bf16&o=adafactor&st=trl&step=in-backward", Field::Step, "after backward"),
            ("p=bf16&o=adamw-cpu-offload-gradients&ga=2", Field::Accumulation, "not compatible"),
            ("p=bf16&o=adamw-cpu-offload&set-to-none=off", Field::SetToNone, "set_to_none=False"),
            ("p=bf16&o=adamw-cpu-offload&step=in-backward", Field::Step, "after backward"),
            ("p=amp-fp16&o=adamw-cpu-offload", Field::Precision, "gradient scaler"),
            ("p=bf16&o=adamw-cpu-offload&gpus=2", Field::Optimizer, "on several GPUs"),
            ("p=bf16&o=adam-mini&gpus=2", Field::Optimizer, "on several GPUs"),
            ("p=bf16&o=adamw-4bit-torchao&gpus=4&shard=fsdp2", Field::Optimizer, "not compared under FSDP2"),
            ("p=bf16&o=adamw-4bit-torchao&gpus=4&shard=zero2", Field::Optimizer, "not compared under"),
            ("p=bf16&o=adam-mini&step=in-backward", Field::Step, "after backward"),
            ("p=bf16&o=adam-mini&m=EleutherAI/pythia-410m", Field::Optimizer, "final_layer_norm by its name"),
            ("method=lora&o=adam-mini", Field::Optimizer, "beside adapters"),
            ("method=lora&o=galore-adamw", Field::Optimizer, "beside adapters"),
        ] {
            let answer = estimate(&linked(link));
            let issue = answer.errors().next().unwrap_or_else(|| panic!("{link} has an answer"));
            assert_eq!(issue.field, field, "{link}: {issue}");
            assert!(issue.message.contains(words), "{link}: {issue}");
        }
    }

    /// What torchao keeps in the CPU's memory: of a parameter of 4,096 elements or more two pinned copies and two moments.
    #[test]
    fn what_is_in_the_cpus_memory_is_told() {
        let memory = |link: &str| estimate(&linked(link)).memory.expect("an answer");
        let [usual, on_cpu, leaving] = ["adamw-fused", "adamw-cpu-offload", "adamw-cpu-offload-gradients"]
            .map(|optimizer| memory(&format!("p=bf16&o={optimizer}")));
        assert_eq!(usual.on_host.0, 0);
        let parameters = usual.parameters.total;
        // vectors of 2,048 elements, of which there are 33, stay: two moments and a count each
        let small = 33 * 2 * 2048 * 2 + 33 * 512;
        assert_eq!(on_cpu.resting.get(Category::Optimizer).0, small);
        // weights and gradients take the next powers of two, moments what they are
        let moments = 4 * (parameters - 33 * 2048);
        assert!(on_cpu.on_host.0 > 2 * moments && on_cpu.on_host.0 < 3 * moments);
        assert_eq!(on_cpu.on_host, leaving.on_host);
        assert!(leaving.peak().1.bytes < on_cpu.peak().1.bytes);
        let waits = |link: &str| {
            let issues = estimate(&linked(link)).issues;
            issues
                .iter()
                .any(|issue| issue.field == Field::Optimizer && issue.message.contains("record_stream"))
        };
        let told =
            ["adamw-cpu-offload-gradients", "adamw-cpu-offload"].map(|o| waits(&format!("p=bf16&o={o}")));
        assert_eq!(told, [true, false]);
        let answer = estimate(&linked("p=bf16&o=adamw-cpu-offload"));
        let told = |issue: &Issue| issue.field == Field::Optimizer && issue.message.contains("pinned");
        assert!(answer.issues.iter().any(told), "{:?}", answer.issues);
    }

    #[test]
    fn adam_mini_wants_even_heads() {
        for (hidden, heads, wanted) in [
            (896, Some((14, 2)), Ok(())),
            (64, None, Ok(())),
            (896, Some((14, 4)), Err(Uneven::Keys)),
            (1000, Some((24, 8)), Err(Uneven::Square)),
        ] {
            assert_eq!(heads_of_mini(hidden, heads), wanted, "{hidden} {heads:?}");
        }
    }

    #[test]
    fn what_steps_in_backward_runs_under_trl() {
        for link in
            ["o=lomo", "o=adalomo&ga=2", "o=galore-adamw&step=in-backward", "o=apollo-adamw&step=in-backward"]
        {
            let answer = estimate(&linked(&format!("p=bf16&st=trl&{link}")));
            assert!(answer.memory.is_some(), "{link}: {:?}", answer.issues);
        }
        // a loop of one's own gives Adafactor its learning rate
        assert!(estimate(&linked("p=bf16&o=galore-adafactor&step=in-backward")).memory.is_some());
    }

    #[test]
    fn lomo_steps_when_it_likes_and_clips_nothing() {
        let step = Key::find("optimizer-step").unwrap();
        let (own, asked) = (linked("p=bf16&o=lomo"), linked("p=bf16&o=lomo&step=in-backward&ga=2"));
        assert!(!step.matters(&own) && step.matters(&linked("o=adamw")));
        let answer = estimate(&asked);
        assert!(answer.memory.is_some(), "{:?}", answer.issues);
        let told = |scenario: &Scenario| {
            scenario.validate().iter().filter(|issue| issue.field == Field::ClipGradients).count()
        };
        assert_eq!((told(&own), told(&linked("p=bf16&o=lomo&clip-gradients=off"))), (1, 0));
    }

    #[test]
    fn a_tied_head_is_told() {
        let told = |link: &str| {
            let issues = linked(link).validate();
            issues.iter().any(|issue| issue.message.contains("the embedding's"))
        };
        assert!(told("o=galore-adamw&t=all-linear-and-head"));
        assert!(!told("o=galore-adamw&t=all-linear-and-head&m=meta-llama/Llama-3.1-8B"));
    }
}
