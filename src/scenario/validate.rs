//! Checks of a scenario that need no execution.

mod adapters;
mod cluster;
mod positions;
mod tasks;

use super::{LossKernel, colocated, kernels, pictures, quantised, recurrent, savings};
use crate::hardware::Vendor;
use crate::model::Architecture;
use crate::units::Bytes;

use adapters::{passed_over, wider};
use positions::{beyond_positions, lacks_positions};
use tasks::{answered_elsewhere, of_another_task, of_policy, small_groups, text_alone, without_answer};

use super::keys::keys;
use super::{
    Allocator, AttentionKernel, Checkpointing, Field, Issue, Lengths, Mask, Method, Precision, Scenario,
    Severity, Stack, Task,
};

impl Scenario {
    /// What is wrong or doubtful with the choices, without running the step.
    pub fn validate(&self) -> Vec<Issue> {
        self.validate_with(self.architecture().as_deref().ok())
    }

    /// [`Scenario::validate`] for a model that was looked up before; none where it could not be.
    pub(crate) fn validate_with(&self, architecture: Option<&Architecture>) -> Vec<Issue> {
        validate(self, architecture)
    }

    /// Whether the run would stop with an error, however much memory there is.
    pub fn stops(&self) -> bool {
        self.stop().is_some()
    }

    /// The error with which the run would stop, however much memory there is.
    pub(crate) fn stop(&self) -> Option<Issue> {
        without_answer(self)
            .or_else(|| scaled_bfloat16(self))
            .or_else(|| lone_answer(self))
            .or_else(|| half_under_unsloth(self))
            .or_else(|| kernels::too_old(self))
            .or_else(|| kernels::adds_bfloat16_to_float(self))
            .or_else(|| {
                let architecture = self.architecture().ok()?;
                let positions = lacks_positions(&architecture, self)
                    .then(|| beyond_positions(&architecture, self))
                    .flatten();
                positions
                    .or_else(|| cluster::recomputed_otherwise(self, &architecture))
                    .or_else(|| shared_graph(&architecture, self))
                    .or_else(|| colocated::without_room(self, &architecture))
            })
    }
}

fn validate(scenario: &Scenario, architecture: Option<&Architecture>) -> Vec<Issue> {
    let reserve = scenario.reserve;
    let mut issues: Vec<Issue> = keys().filter_map(|key| key.out_of_range(scenario)).collect();
    if let Some(architecture) = architecture {
        issues.extend(architecture.notes.iter().map(|note| Issue::warning(Field::Model, note)));
    }
    if let Some(architecture) = architecture
        && architecture.blocks.iter().any(|block| block.mixer.is_recurrent())
    {
        issues.extend(recurrent::issues(scenario, architecture));
    }
    // what generates has neither a loss nor gradients
    if scenario.task.trains() {
        savings::issues(scenario, architecture, &mut issues);
    }
    cluster::issues(scenario, architecture, &mut issues);
    quantised::issues(scenario, &mut issues);
    issues.extend(without_answer(scenario));
    issues.extend(small_groups(scenario));
    issues.extend(scaled_bfloat16(scenario));
    issues.extend(lone_answer(scenario));
    issues.extend(kernels::too_old(scenario));
    issues.extend(kernels::adds_bfloat16_to_float(scenario));
    issues.extend(kernels::without_kernels(scenario));
    issues.extend(of_another_task(scenario));
    colocated::issues(scenario, architecture, &mut issues);
    if let Some(architecture) = architecture {
        issues.extend(beyond_positions(architecture, scenario));
        issues.extend(shared_graph(architecture, scenario));
        issues.extend(pictures::note(scenario, architecture));
        issues.extend(pictures::still(scenario, architecture));
        issues.extend(passed_over(architecture, scenario));
        issues.extend(wider(architecture, scenario));
    }
    if reserve.apart() > Bytes::ZERO {
        let message = format!("{} of the card are in use by others or stay free", reserve.apart());
        let field = if reserve.used > 0 { Field::Used } else { Field::Margin };
        issues.push(Issue::new(Severity::Note, field, message));
    }
    if let Ok(gpu) = scenario.gpu()
        && gpu.vendor != Vendor::Nvidia
    {
        issues.push(other_vendor());
    }
    if scenario.asks_a_server() {
        issues.push(answered_elsewhere());
    }
    if scenario.task == Task::Ppo {
        issues.extend(of_policy(scenario));
    }
    let sees = architecture.is_some_and(|architecture| architecture.vision().is_some());
    if sees && scenario.task.trains() && scenario.pictures.count == 0 {
        issues.push(text_alone());
    }
    if scenario.emulates_bfloat16() {
        issues.push(emulated());
    }
    let family = architecture.and_then(|architecture| architecture.family);
    if scenario.precision == Precision::Fp16
        && family.is_some_and(|family| family.modeling.kept_in_float32.is_some())
    {
        issues.push(halved());
    }
    if scenario.stack == Stack::Unsloth {
        unsloth(scenario, &mut issues);
    }
    if scenario.mask == Mask::Packed && scenario.attention == AttentionKernel::FlashAttn && scenario.batch > 1
    {
        issues.push(texts_see_each_other());
    }
    if scenario.lengths != Lengths::Equal && scenario.mask != Mask::Packed && scenario.task.trains() {
        issues.push(of_the_longest());
    }
    issues
}

fn other_vendor() -> Issue {
    let message = "the step is PyTorch's on CUDA; on this card the tensors are the same, but its kernels, its allocator and \
                   what it offers of bitsandbytes are not followed";
    Issue::warning(Field::Gpu, message)
}

fn emulated() -> Issue {
    let message = "the card does not compute in bfloat16 itself: PyTorch emulates it, slowly";
    Issue::new(Severity::Note, Field::Precision, message).with_fix("choose fp16")
}

fn halved() -> Issue {
    let message = "this is the model after model.half(): from_pretrained leaves wo in float32 beside float16 weights, and hidden \
                   states with it, which needs more";
    Issue::warning(Field::Precision, message).with_fix("choose bf16 or a mixed precision")
}

fn texts_see_each_other() -> Issue {
    let message = "transformers tells flash-attn of texts in a batch of one row only: in several rows they see each other";
    Issue::warning(Field::Mask, message).with_fix("choose padding-free, which is one row")
}

fn of_the_longest() -> Issue {
    let message = "sequences are of different lengths: the peak is that of a batch of the longest";
    Issue::new(Severity::Note, Field::Lengths, message)
}

/// What is good to know where Unsloth runs the model.
fn unsloth(scenario: &Scenario, issues: &mut Vec<Issue>) {
    if scenario.allocator == Allocator::Native {
        let message = "Unsloth switches expandable segments on where they are supported";
        let note = Issue::new(Severity::Note, Field::Allocator, message);
        issues.push(note.with_fix("choose expandable segments"));
    }
    let more = scenario.architecture().ok().and_then(|own| scenario.compiled_takes_more(&own));
    if let Some(more) = more {
        let message = format!(
            "layers run one operation at a time (UNSLOTH_COMPILE_DISABLE=1); compiled ones, the default of {}, need up to {} more \
             at the peak: three tensors of the feed-forward network's width",
            Stack::Unsloth.label(),
            more.in_binary_unit()
        );
        let note = Issue::new(Severity::Note, Field::Compile, message);
        let is_followed = scenario.compiles_as_unsloth();
        issues.push(if is_followed { note.with_fix("compile the layers one by one") } else { note });
    }
}

/// Adapters over quantised weights, which most of trl's trainers make bfloat16 (trl 1.16 trainer/sft_trainer.py), and whose gradients fp16's
/// scaler cannot divide: it was run.
fn scaled_bfloat16(scenario: &Scenario) -> Option<Issue> {
    let makes_bfloat16 = match scenario.task {
        Task::Sft | Task::Dpo | Task::Kto | Task::Reward | Task::Grpo | Task::Rloo | Task::Distil => true,
        Task::Classify | Task::Embed | Task::Orpo | Task::Cpo | Task::Simpo | Task::Ppo | Task::Generate => {
            false
        }
    };
    let stops = makes_bfloat16
        && scenario.stack == Stack::Trl
        // LLaMA-Factory leaves them float32
        && scenario.savings.loss != LossKernel::LogSoftmax
        && scenario.method == Method::Qlora
        && scenario.precision.is_scaled()
        // its engine makes adapters float16 again, and has a scaler of its own
        && !(scenario.cluster.is_zero() && scenario.cluster.has_engine());
    let message = "trl makes adapters over quantised weights bfloat16, whose gradients fp16's scaler cannot divide: PyTorch stops in the \
                   first step (\"_amp_foreach_non_finite_check_and_unscale_cuda\" not implemented for 'BFloat16')";
    let fix = match scenario.has_bfloat16() {
        true => "choose bf16 mixed",
        // in bfloat16 the head of most of them stops there
        false => "choose another training library, or LoRA over 16-bit weights",
    };
    stops.then(|| Issue::warning(Field::Precision, message).with_fix(fix))
}

/// What trl's KTO makes of a single answer ([`Scenario::least_batch`]).
fn lone_answer(scenario: &Scenario) -> Option<Issue> {
    let stops = scenario.batch < scenario.least_batch();
    let message = "trl's KTO compares the answers of a batch and stops where it has a single one (\"Actual (not effective) batch size must be > 1\")";
    stops.then(|| Issue::warning(Field::Batch, message).with_fix("take 2 sequences or more at a time"))
}

/// Unsloth loads in float16 on a card without bfloat16, whatever type it is asked for (`unsloth/models/llama.py`), and its trainers refuse
/// `bf16=True` then (`unsloth/models/rl.py`).
fn half_under_unsloth(scenario: &Scenario) -> Option<Issue> {
    let stops = scenario.stack == Stack::Unsloth
        && scenario.task.trains()
        && scenario.method.has_adapters()
        && scenario.emulates_bfloat16();
    let message = "Unsloth loads in float16 on a card without bfloat16 and stops where it is asked to train in bf16 (\"Model is in float16 precision but \
                   you want to use bfloat16 precision\")";
    stops.then(|| Issue::warning(Field::Precision, message).with_fix("choose fp16"))
}

/// Reentrant checkpoints of DeBERTa, each of which goes backward by itself through the norm of the relative positions, which all of its
/// layers share: it was run.
fn shared_graph(architecture: &Architecture, scenario: &Scenario) -> Option<Issue> {
    let stops = architecture.model_type == "deberta-v2"
        && scenario.checkpointing == Checkpointing::Reentrant
        && scenario.method == Method::Full
        && scenario.task.trains();
    let message = "with use_reentrant=True each layer goes backward by itself through the relative positions, which all layers share: PyTorch \
                   stops in the first step (\"Trying to backward through the graph a second time\")";
    stops.then(|| Issue::warning(Field::Checkpointing, message).with_fix("choose gradient checkpointing on"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{CustomModel, ModelChoice};

    #[test]
    fn what_was_assumed_of_an_own_model_is_said() {
        let config = r#"{"model_type": "nobody_knows", "hidden_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 256}"#;
        let model = ModelChoice::Custom(CustomModel::read("mine", config).unwrap().into());
        let scenario = Scenario { model, ..Scenario::default() };
        let issues = scenario.validate();
        assert_eq!(issues.len(), 1, "{issues:?}");
        assert!(issues[0].severity == Severity::Warning && issues[0].message.contains("nobody_knows"));
        // a count is a count, but no figure rests on a guess
        let answer = crate::estimate(&scenario);
        let errors: Vec<_> = answer.errors().map(ToString::to_string).collect();
        assert!(answer.memory.is_none() && errors.len() == 1, "{errors:?}");
        assert!(
            errors[0].contains("not guessed") && errors[0].contains("set model_type to llama"),
            "{errors:?}"
        );
    }

    /// What a scenario was given in code, past every reader.
    #[test]
    fn a_number_out_of_range_is_an_error_with_its_name() {
        let mut scenario = Scenario { batch: 0, ..Scenario::default() };
        (scenario.answers.labels, scenario.embedding.texts, scenario.reserve.vllm) = (0, 257, 101);
        let told: Vec<_> = scenario.validate().iter().map(ToString::to_string).collect();
        for issue in [
            "the micro-batch size is 0 (use a whole number from 1 to 16,777,216)",
            "the number of labels is 0 (use a whole number from 1 to 1,099,511,627,776)",
            "the number of texts is 257 (use a whole number from 2 to 256)",
            "the share of vLLM is 101 (use a whole number from 0 to 100, or a share such as 0.4)",
        ] {
            assert!(told.iter().any(|told| told == issue), "{issue}: {told:?}");
        }
    }

    #[test]
    fn fp16s_scaler_does_not_divide_what_trl_made_bfloat16() {
        let stops = |link: &str| crate::share::decode(link).scenarios[0].stops();
        assert!(stops("st=trl&p=amp-fp16") && stops("st=trl&p=amp-fp16&task=grpo"));
        for runs in [
            "p=amp-fp16",
            "st=trl&p=amp-fp16&task=cpo",
            "st=trl&p=amp-fp16&method=lora",
            "st=trl&p=amp-bf16",
            "st=trl&p=amp-fp16&gpus=2&shard=zero3",
        ] {
            assert!(!stops(runs), "{runs}");
        }
    }

    #[test]
    fn what_does_not_matter_to_a_task_is_not_complained_of() {
        let base = "m=Qwen/Qwen3-0.6B&p=bf16&method=lora&s=512";
        for name in ["optimizer-step", "lengths", "lora-targets"] {
            let link = crate::scenario::keys::Key::find(name).expect("it is a key").link;
            let value = match name {
                "lengths" => "500~200",
                "lora-targets" => "embed_tokens",
                _ => "in-backward",
            };
            let told = |task: &str| {
                let scenario =
                    crate::share::decode(&format!("{base}&{task}&{link}={value}")).scenarios.remove(0);
                scenario.validate().len()
            };
            assert!(told("task=sft") > 0, "{name}");
            assert_eq!(told("task=generate"), 0, "{name}");
        }
    }

    #[test]
    fn t5_in_float16_is_that_of_half() {
        let issues = |precision| {
            let model = ModelChoice::Catalogue("google-t5/t5-small".to_owned());
            Scenario { model, method: Method::Full, precision, sequence: 512, ..Scenario::default() }
                .validate()
        };
        assert!(issues(Precision::Fp16).iter().any(|issue| issue.message.contains("model.half()")));
        assert!(!issues(Precision::Bf16).iter().any(|issue| issue.message.contains("model.half()")));
    }

    #[test]
    fn what_was_assumed_of_a_model_of_the_catalogue_is_said_too() {
        let model = ModelChoice::Catalogue("openai/gpt-oss-20b".to_owned());
        let issues = Scenario { model, ..Scenario::default() }.validate();
        assert!(issues.iter().any(|issue| issue.message.contains("quantised checkpoint")), "{issues:?}");
    }
}
