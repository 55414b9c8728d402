//! Checks of a scenario that need no execution.

mod cluster;
mod tasks;

use super::{LossKernel, colocated, kernels, pictures, quantised, recurrent, savings};
use crate::hardware::Vendor;
use crate::model::Architecture;
use crate::model::blocks::{Block, FeedForward};
use crate::units::{Bytes, grouped};

use tasks::{answered_elsewhere, of_another_task, of_policy, text_alone, without_answer};

use super::count::Count;
use super::{
    Allocator, AttentionKernel, Checkpointing, Field, Issue, Lengths, LoraTargets, Mask, Method, Modules,
    Precision, Scenario, Severity, Stack, Task, Tuner,
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
    let mut issues = Vec::new();
    let (cluster, deepspeed) = (scenario.cluster, scenario.cluster.deepspeed);
    let (reserve, data) = (scenario.reserve, scenario.data);
    let rank = scenario.lora.tuner.own_size().map_or("LoRA rank", |(name, _)| name);
    for (field, name, value, count) in [
        (Field::Batch, "micro-batch size", scenario.batch, Count::Sequences),
        (Field::Sequence, "sequence length", scenario.sequence, Count::Tokens),
        (Field::Prompt, "prompt length", scenario.answers.prompt, Count::Tokens),
        (Field::RolloutBatch, "number of answers at a time", scenario.policy.rollout, Count::Sequences),
        (Field::MiniBatches, "number of mini-batches", scenario.policy.parts, Count::Passes),
        (Field::PpoEpochs, "number of epochs", scenario.policy.epochs, Count::Passes),
        (Field::Texts, "number of texts", scenario.embedding.texts, Count::Texts),
        (Field::GradCache, "number of texts at a time", scenario.embedding.cached, Count::SequencesOrNone),
        (Field::EvalBatch, "evaluation batch size", scenario.evaluation.batch, Count::Sequences),
        (
            Field::EvalAccumulation,
            "evaluation accumulation",
            scenario.evaluation.accumulation,
            Count::PassesOrNone,
        ),
        (Field::EvalBatches, "number of evaluation batches", scenario.evaluation.batches, Count::Passes),
        (Field::NewTokens, "new tokens", scenario.generation.new_tokens, Count::Tokens),
        (Field::Pictures, "number of pictures", scenario.pictures.count, Count::PicturesOrNone),
        (Field::PictureHeight, "height of a picture", scenario.pictures.height, Count::Pixels),
        (Field::PictureWidth, "width of a picture", scenario.pictures.width, Count::Pixels),
        (Field::Frames, "number of frames", scenario.pictures.frames, Count::Frames),
        (Field::Accumulation, "gradient accumulation", scenario.accumulation, Count::Passes),
        (Field::LoraRank, rank, scenario.lora.rank, Count::Rank),
        (Field::Gpus, "number of GPUs", cluster.gpus, Count::Gpus),
        (Field::Replicas, "number of replicas", cluster.replicas, Count::Gpus),
        (Field::ReduceBucket, "reduce bucket", deepspeed.reduce_bucket, Count::Elements),
        (Field::PrefetchBucket, "prefetch bucket", deepspeed.prefetch_bucket, Count::ElementsOrNone),
        (Field::Persistence, "persistence threshold", deepspeed.persistence, Count::ElementsOrNone),
        (Field::TensorParallel, "tensor parallel size", cluster.layout.tensor, Count::Gpus),
        (Field::PipelineParallel, "pipeline parallel size", cluster.layout.pipeline, Count::Gpus),
        (
            Field::Interleaved,
            "number of layers run at a time",
            cluster.layout.interleaved,
            Count::LayersOrNone,
        ),
        (
            Field::FirstStage,
            "number of layers of the first stage",
            cluster.layout.split.first,
            Count::LayersOrNone,
        ),
        (
            Field::LastStage,
            "number of layers of the last stage",
            cluster.layout.split.last,
            Count::LayersOrNone,
        ),
        (Field::ContextParallel, "context parallel size", cluster.layout.context, Count::Gpus),
        (Field::ExpertParallel, "expert parallel size", cluster.layout.experts, Count::Gpus),
        (Field::PipelineStage, "pipeline stage", cluster.layout.stage, Count::StageOrNone),
        (Field::LiveParameters, "number of live parameters", deepspeed.live, Count::ElementsOrNone),
        (Field::Used, "memory in use", reserve.used, Count::Mebibytes),
        (Field::Margin, "safety margin", reserve.margin, Count::Mebibytes),
        (Field::Context, "CUDA context", reserve.context, Count::Mebibytes),
        (Field::Workspace, "cuBLAS workspace", reserve.workspace, Count::Kibibytes),
        (Field::VllmPercent, "share of vLLM", reserve.vllm, Count::Percent),
        (Field::DatasetTokens, "data set", data.tokens, Count::DatasetTokens),
        (Field::Epochs, "number of epochs", data.epochs, Count::Epochs),
        (Field::Price, "price of a GPU-hour", data.cents, Count::Cents),
    ] {
        if !(count.least()..=count.most()).contains(&value) {
            let issue = Issue::error(field, format!("the {name} is {}", grouped(value)));
            issues.push(issue.with_fix(format!("use {}", count.range())));
        }
    }
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
    if scenario.checkpointing != Checkpointing::Off {
        let message = format!(
            "layers run one operation at a time (UNSLOTH_COMPILE_DISABLE=1); compiled ones, the default of {}, took 2 to 8 % \
             more at the peak",
            Stack::Unsloth.label()
        );
        issues.push(Issue::new(Severity::Note, Field::Stack, message));
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

/// KTO scores an answer against another one's prompt of the same batch, which a single one has not (trl 1.16, trainer/kto_trainer.py);
/// LLaMA-Factory's trainer does not ask.
fn lone_answer(scenario: &Scenario) -> Option<Issue> {
    let stops = scenario.task == Task::Kto
        && scenario.batch == 1
        && scenario.stack == Stack::Trl
        && scenario.savings.loss != LossKernel::LogSoftmax;
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

/// Whether the run takes more positions than the model has.
fn exceeds(scenario: &Scenario, most: u64) -> bool {
    let own = scenario.sequence.saturating_add(scenario.positions_after());
    own.saturating_add(scenario.virtual_tokens()) > most
}

/// Whether the run takes positions that the model has no embedding for: PyTorch's lookup fails there.
fn lacks_positions(architecture: &Architecture, scenario: &Scenario) -> bool {
    let embedded = architecture.embeddings.positions.is_some();
    embedded && architecture.max_positions.is_some_and(|most| exceeds(scenario, most))
}

/// What a run of more positions than the model knows comes to.
fn beyond_positions(architecture: &Architecture, scenario: &Scenario) -> Option<Issue> {
    let most = architecture.max_positions.filter(|most| exceeds(scenario, *most))?;
    Some(too_long(scenario, most, lacks_positions(architecture, scenario)))
}

/// Layers by name that get no adapter: names that the model lacks beside some that it has, of which peft says nothing,
/// and the embedding, of which adapters are not modelled.
fn passed_over(architecture: &Architecture, scenario: &Scenario) -> Option<Issue> {
    let adapts = scenario.method != Method::Full && scenario.task.trains();
    if !adapts || !scenario.lora.tuner.adapts_layers() || scenario.lora.targets != LoraTargets::Named {
        return None;
    }
    let (asked, own) = (scenario.lora.modules, Modules::of(architecture));
    let embedding = architecture.embeddings.tokens.name;
    if asked.adapts(embedding) {
        let message = format!("adapters on {embedding} are not modelled");
        let fix = "leave it out, or have embedding and head trained whole by train-embeddings";
        return Some(Issue::error(Field::LoraTargets, message).with_fix(fix));
    }
    let missing = asked.beside(own);
    // where no layer is left the step says so; experts are layers by names that no parameter has
    let has_experts = |block: &Block| matches!(block.ffn, FeedForward::Moe(_));
    if missing.is_empty() || missing == asked || architecture.blocks.iter().any(has_experts) {
        return None;
    }
    let message = format!(
        "no layer of {} is called {}: peft passes over what it does not find",
        architecture.model_type,
        missing.list()
    );
    Some(Issue::warning(Field::LoraTargets, message).with_fix(format!("its layers are {}", own.list())))
}

/// Adapters of a rank above the model's width hold more than the weights that they adapt, and no rank near it was ever measured.
fn wider(architecture: &Architecture, scenario: &Scenario) -> Option<Issue> {
    // others have vectors of the rank, blocks of the width, or factors that stop growing
    let grows = match scenario.lora.tuner {
        Tuner::Lora | Tuner::Dora | Tuner::Loha => true,
        Tuner::Ia3
        | Tuner::Vera
        | Tuner::Lokr
        | Tuner::Oft
        | Tuner::Prompt
        | Tuner::PTuning
        | Tuner::Prefix
        | Tuner::PrefixProjected => false,
    };
    let adapts = scenario.method.has_adapters() && scenario.task.trains() && grows;
    let (rank, width) = (scenario.lora.rank, architecture.hidden);
    if !adapts || rank <= width {
        return None;
    }
    let message = format!(
        "rank {} is above the model's width of {}: its adapters are larger than the weights that they adapt",
        grouped(rank),
        grouped(width)
    );
    Some(Issue::warning(Field::LoraRank, message).with_fix(format!("use at most {}", grouped(width))))
}

fn too_long(scenario: &Scenario, most: u64, embedded: bool) -> Issue {
    let known = grouped(most);
    let message = match embedded {
        true => {
            format!("the model has an embedding for each of {known} positions: PyTorch fails beyond them")
        }
        false => format!(
            "the model was made for {known} positions: it runs beyond them, but how well is another question"
        ),
    };
    let (field, fix) = if scenario.task.trains() {
        match most.saturating_sub(scenario.virtual_tokens()) {
            0 => (Field::LoraRank, format!("use fewer virtual tokens than {known}")),
            room => (Field::Sequence, format!("use at most {}", grouped(room))),
        }
    } else {
        // the last token is written and never read
        let together = grouped(most.saturating_add(1));
        let field = if scenario.sequence > most { Field::Sequence } else { Field::NewTokens };
        (field, format!("use at most {together} for the prompt and the new tokens together"))
    };
    Issue::warning(field, message).with_fix(fix)
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

    #[test]
    fn a_rank_above_the_width_is_told() {
        let told = |rank, method| {
            let mut scenario = Scenario { method, ..Scenario::default() };
            scenario.lora.rank = rank;
            scenario.validate().iter().filter(|issue| issue.field == Field::LoraRank).count()
        };
        let (lora, full) = (Method::Lora, Method::Full);
        assert_eq!([told(4096, lora), told(4097, lora), told(999_999, full)], [0, 1, 0]);
    }

    #[test]
    fn the_size_of_ofts_blocks_is_called_so() {
        let mut scenario = Scenario { method: Method::Lora, ..Scenario::default() };
        let key = crate::scenario::keys::Key::find("lora-rank").unwrap();
        assert_eq!((key.label_for(&scenario), key.help_for(&scenario)), (key.label, key.help));
        let lora = scenario.clone();
        (scenario.lora.tuner, scenario.lora.rank) = (Tuner::Oft, 0);
        assert_eq!(key.label_for(&scenario), "OFT block size");
        assert!(key.help_for(&scenario).contains("oft_block_size"));
        let told = scenario.validate();
        assert!(told.iter().any(|issue| issue.message == "the OFT block size is 0"), "{told:?}");
        // where others have a rank it is one beside them, and full fine-tuning has neither
        let full = Scenario { method: Method::Full, ..lora.clone() };
        assert_eq!(key.label_among([&scenario, &full]), "OFT block size");
        assert_eq!(key.label_among([&scenario, &lora]), "LoRA rank");
    }

    #[test]
    fn new_tokens_take_positions_too() {
        let generating = |model: &str, sequence, new_tokens| {
            let mut scenario = Scenario {
                task: Task::Generate,
                model: ModelChoice::Catalogue(model.to_owned()),
                method: Method::Full,
                precision: Precision::Bf16,
                sequence,
                ..Scenario::default()
            };
            scenario.generation.new_tokens = new_tokens;
            scenario
        };
        let told = |scenario: &Scenario| {
            let issues = scenario.validate().into_iter().filter(|issue| issue.message.contains("positions"));
            issues.map(|issue| (issue.field, issue.fix.unwrap_or_default())).collect::<Vec<_>>()
        };
        // 1,024 positions: the last token needs none
        let gpt2 = |sequence, new_tokens| generating("openai-community/gpt2", sequence, new_tokens);
        for (sequence, new_tokens, stops) in [
            (1_000, 25, false),
            (1_000, 26, true),
            (1_024, 1, false),
            (1_025, 1, true),
            (u64::MAX, u64::MAX, true),
        ] {
            let scenario = gpt2(sequence, new_tokens);
            assert_eq!((scenario.stops(), told(&scenario).len()), (stops, usize::from(stops)), "{sequence}");
        }
        let fix = "use at most 1,025 for the prompt and the new tokens together".to_owned();
        assert_eq!(told(&gpt2(1_000, 512)), [(Field::NewTokens, fix.clone())]);
        assert_eq!(told(&gpt2(2_000, 512)), [(Field::Sequence, fix)]);
        // positions that are computed have no end
        let llama = generating("meta-llama/Llama-3.1-8B", 131_072, 2);
        assert_eq!((llama.stops(), told(&llama).len()), (false, 1));
        // what is trained has no new tokens
        let trained = Scenario { task: Task::Sft, ..gpt2(1_024, 4_000) };
        assert_eq!((trained.stops(), told(&trained)), (false, Vec::new()));
        // by default there is room for them
        assert_eq!((gpt2(1, 512).defaults().sequence, gpt2(1, 1).defaults().sequence), (513, 1_024));
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
