//! Why a part is larger than people expect: what the tensors at the peak show, in a sentence, and the input that changes it.

use serde::{Deserialize, Serialize};

use crate::dtype::Dtype;
use crate::estimate::estimate;
use crate::memory::Category;
use crate::scenario::keys::Key;
use crate::scenario::{
    AttentionKernel, Checkpointing, LossKernel, Method, Optimizer, Precision, Reference, Scenario, Sharding,
    StepTime, Task,
};
use crate::step::{Dims, TensorGroup, is_engines};
use crate::units::{Bytes, grouped};

/// What stands out in a part.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Note {
    /// The part.
    pub category: Category,
    /// Bytes of the tensors in question.
    pub bytes: Bytes,
    /// Why they are so many: a sentence without its full stop.
    pub words: String,
    /// What can be done about it, where that saves something.
    pub switch: Option<Switch>,
}

/// A change that a note suggests.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Switch {
    /// The input and its new value: `Loss kernel: Liger fused`.
    pub label: String,
    /// What the tensors need less at the peak.
    pub saves: Bytes,
    /// The changed scenario.
    pub scenario: Box<Scenario>,
}

/// What sets an input.
type Change = fn(&mut Scenario);

/// What is looked for in a part.
struct Rule {
    category: Category,
    /// The least share of all that is needed, in percent, at which it is worth a word.
    least: f64,
    /// Whether a tensor is one of those in question.
    is_meant: fn(&TensorGroup, &Scenario) -> bool,
    /// The sentence.
    words: fn(&[&TensorGroup], &Scenario) -> String,
    /// The input that changes it, by its name, and its new value; none where nothing does.
    switch: Option<(&'static str, Change)>,
}

const RULES: &[Rule] = &[
    Rule {
        category: Category::Weights,
        least: 10.,
        is_meant: |_, scenario| has_second_model(scenario),
        words: |_, _| {
            "The weights twice: the reference, the model as it was, has as many as the one that is trained"
                .to_owned()
        },
        switch: Some(("reference", |scenario| {
            scenario.answers.reference = match scenario.task {
                Task::Dpo | Task::Kto => Reference::Precomputed,
                Task::Sft
                | Task::Classify
                | Task::Embed
                | Task::Orpo
                | Task::Cpo
                | Task::Simpo
                | Task::Reward
                | Task::Grpo
                | Task::Rloo
                | Task::Ppo
                | Task::Distil
                | Task::Generate => Reference::None,
            }
        })),
    },
    Rule {
        category: Category::Weights,
        least: 3.,
        is_meant: |group, scenario| is_prepared(scenario) && group.dtype == Dtype::F32,
        words: |groups, scenario| {
            let why = match scenario.precision {
                Precision::Fp32 | Precision::AmpBf16 | Precision::AmpFp16 => {
                    "they are loaded so where the precision has float32 weights, and prepare_model_for_kbit_training would convert them"
                }
                Precision::Bf16 | Precision::Fp16 | Precision::AmpBf16Weights | Precision::AmpFp16Weights => {
                    "prepare_model_for_kbit_training converts every weight that is not in 4 bits"
                }
            };
            format!("{} in float32: {why}", modules(groups))
        },
        switch: Some(("kbit-prepare", |scenario| scenario.quantization.prepare = false)),
    },
    Rule {
        category: Category::Weights,
        least: 3.,
        is_meant: |group, scenario| {
            scenario.method == Method::Qlora && group.dtype.is_half() && group.module.contains("experts")
        },
        words: |_, _| {
            "The experts in 16 bits: quantisation is of Linear layers, and transformers keeps the experts of a \
             layer as one parameter, which is none"
                .to_owned()
        },
        switch: None,
    },
    Rule {
        category: Category::Weights,
        least: 20.,
        is_meant: |group, scenario| {
            matches!(scenario.precision, Precision::AmpBf16 | Precision::AmpFp16)
                && group.dtype == Dtype::F32
                && !scenario.cluster.shards()
                && !is_prepared(scenario)
        },
        words: |_, _| {
            "The weights in float32: autocast computes in 16 bits and leaves them as they were loaded"
                .to_owned()
        },
        switch: Some(("precision", to_bfloat16)),
    },
    Rule {
        category: Category::Adapters,
        least: 5.,
        is_meant: |group, _| group.what.words.ends_with("(modules_to_save)"),
        words: |groups, _| {
            format!(
                "A copy of {} that is trained whole beside the adapters, with a gradient and optimizer state for every entry of \
                 the vocabulary",
                modules(groups)
            )
        },
        switch: Some(("train-embeddings", |scenario| scenario.lora.trains_embeddings = false)),
    },
    Rule {
        category: Category::WeightCopies,
        least: 3.,
        is_meant: |group, scenario| is_prepared(scenario) && !is_engines(group.what),
        words: |groups, _| {
            format!(
                "A 16-bit copy of {}: autocast makes it because the weight is float32, and backward needs it again",
                modules(groups)
            )
        },
        switch: Some(("kbit-prepare", |scenario| scenario.quantization.prepare = false)),
    },
    Rule {
        category: Category::WeightCopies,
        least: 3.,
        is_meant: |group, scenario| !is_prepared(scenario) && !is_engines(group.what),
        words: |_, _| {
            "16-bit copies of float32 weights, which autocast makes for forward and keeps for backward"
                .to_owned()
        },
        switch: Some(("precision", to_bfloat16)),
    },
    Rule {
        category: Category::Logits,
        least: 5.,
        is_meant: |group, _| group.what.name == "logits of the evaluation",
        words: |_, scenario| {
            format!(
                "The logits of up to {} batches of the evaluation, twice while the next one's are joined to them: they wait on the GPU \
                 for compute_metrics",
                grouped(scenario.evaluation.joined())
            )
        },
        switch: Some(("eval-accumulation-steps", |scenario| scenario.evaluation.accumulation = 1)),
    },
    Rule {
        category: Category::Logits,
        least: 5.,
        is_meant: |_, scenario| scenario.savings.loss == LossKernel::Standard && !has_fused_loss(scenario),
        words: logits,
        switch: Some(("loss", |scenario| scenario.savings.loss = LossKernel::Liger)),
    },
    Rule {
        category: Category::Logits,
        least: 5.,
        is_meant: |_, scenario| scenario.savings.loss == LossKernel::MegatronFused,
        words: |_, _| {
            "The logits once more in float32 than Megatron-core’s plain loss has them: what its fused one changes in place is made anew \
             and copied back"
                .to_owned()
        },
        switch: Some(("loss", |scenario| scenario.savings.loss = LossKernel::Standard)),
    },
    Rule {
        category: Category::Logits,
        least: 5.,
        is_meant: |group, scenario| has_fused_loss(scenario) && matches!(group.dims, Dims::Parameter(..)),
        words: |_, _| {
            "The gradient of the head’s weight: the fused loss works it out in the forward pass, together with its input’s"
                .to_owned()
        },
        switch: Some(("train-embeddings", |scenario| scenario.lora.trains_embeddings = false)),
    },
    Rule {
        category: Category::Activations,
        least: 10.,
        is_meant: |group, scenario| {
            matches!(scenario.attention, AttentionKernel::Eager | AttentionKernel::Math)
                && matches!(group.module, "self_attn" | "attn")
        },
        words: |_, _| {
            "Attention’s scores, queries × keys for every head, are written out and kept for backward"
                .to_owned()
        },
        switch: Some(("attention", |scenario| scenario.attention = AttentionKernel::Sdpa)),
    },
    Rule {
        category: Category::Activations,
        least: 20.,
        is_meant: |_, scenario| scenario.checkpointing == Checkpointing::Off,
        words: |_, _| {
            "Every layer keeps what its backward needs, as gradient checkpointing is off".to_owned()
        },
        switch: Some(("gradient-checkpointing", |scenario| {
            scenario.checkpointing = Checkpointing::NonReentrant
        })),
    },
    Rule {
        category: Category::Activations,
        least: 20.,
        is_meant: |group, scenario| {
            scenario.checkpointing != Checkpointing::Off && grows_with_tokens(group, scenario)
        },
        words: at_once,
        switch: Some(("batch-size", in_halves)),
    },
    Rule {
        category: Category::Temporaries,
        least: 20.,
        is_meant: grows_with_tokens,
        words: at_once,
        switch: Some(("batch-size", in_halves)),
    },
    Rule {
        category: Category::Optimizer,
        least: 20.,
        is_meant: |group, scenario| {
            matches!(scenario.optimizer, Optimizer::AdamW | Optimizer::AdamWFused | Optimizer::AdamWForLoop)
                && group.count > 1
        },
        words: |groups, _| {
            let bytes =
                groups.iter().max_by_key(|group| group.total()).map_or(4, |group| group.dtype.bytes());
            format!("AdamW remembers two numbers of {bytes} bytes for every trained parameter")
        },
        switch: Some(("optimizer", |scenario| {
            let sharded = scenario.cluster.is_fsdp2();
            scenario.optimizer = if sharded { Optimizer::AdamW8bitTorchao } else { Optimizer::AdamW8bit };
        })),
    },
    Rule {
        category: Category::Gradients,
        least: 15.,
        is_meant: |group, scenario| {
            scenario.savings.step == StepTime::AfterBackward && !is_engines(group.what)
        },
        words: |_, _| {
            "One gradient for every trained parameter, all of them alive until the optimizer has stepped"
                .to_owned()
        },
        switch: Some(("optimizer-step", |scenario| scenario.savings.step = StepTime::InBackward)),
    },
    Rule {
        category: Category::Gradients,
        least: 10.,
        is_meant: |group, _| is_engines(group.what),
        words: |_, scenario| {
            match scenario.cluster.sharding {
            Sharding::Ddp => {
                "DDP’s buckets: a second copy of every gradient, in which the GPUs average them".to_owned()
            }
            Sharding::Fsdp2 => {
                "The gradients of this GPU’s shards, until the optimizer has stepped".to_owned()
            }
            Sharding::Distributed => {
                "Megatron’s gradient buffer: the sums of all gradients of this GPU’s part of the model".to_owned()
            }
            Sharding::Zero1 | Sharding::Zero2 | Sharding::Zero3 => {
                "DeepSpeed’s gradients: the reduce bucket, as large as it is configured, and those of this GPU’s partition"
                    .to_owned()
            }
        }
        },
        switch: None,
    },
    Rule {
        category: Category::WeightCopies,
        least: 3.,
        is_meant: |group, _| is_engines(group.what),
        words: |_, _| {
            "Layers gathered whole from all GPUs’ shards: the one that runs, and what is fetched or kept beside it".to_owned()
        },
        switch: None,
    },
];

/// Whether a tensor is of the tokens of a micro-batch that can be taken in two: embeddings are held against those of their own pass, and
/// KTO scores an answer against another one's prompt.
fn grows_with_tokens(group: &TensorGroup, scenario: &Scenario) -> bool {
    let least = match scenario.task {
        Task::Embed => return false,
        Task::Kto => 4,
        _ => 2,
    };
    let can_be_halved = scenario.batch >= least && scenario.batch.is_multiple_of(2);
    let is_of_tokens = matches!(group.dims, Dims::Rows(..) | Dims::Scores(..) | Dims::Chosen(..));
    scenario.task.trains() && can_be_halved && is_of_tokens
}

/// What a micro-batch is made of.
fn at_once(_: &[&TensorGroup], scenario: &Scenario) -> String {
    format!(
        "A layer computes with all of a micro-batch at once, {} × {} tokens: half of it in twice as many micro-batches is the same step",
        grouped(scenario.batch),
        grouped(scenario.sequence)
    )
}

/// The same step in twice as many micro-batches.
fn in_halves(scenario: &mut Scenario) {
    scenario.batch /= 2;
    scenario.accumulation = scenario.accumulation.saturating_mul(2);
}

/// Whether what is not in 4 bits was made float32.
fn is_prepared(scenario: &Scenario) -> bool {
    scenario.method == Method::Qlora && scenario.quantization.makes_rest_float32()
}

/// Whether the loss that runs never has all logits.
fn has_fused_loss(scenario: &Scenario) -> bool {
    let runs = scenario.software().loss(scenario.savings.loss);
    matches!(runs, LossKernel::Liger | LossKernel::Cut)
}

/// The modules of some tensors: `embed_tokens and lm_head`; those of layers without their names, that of a fused loss, which
/// calls none, as the head.
fn modules(groups: &[&TensorGroup]) -> String {
    let mut sorted: Vec<&TensorGroup> = groups.to_vec();
    sorted.sort_by_key(|group| std::cmp::Reverse(group.total()));
    let mut names: Vec<&str> = Vec::new();
    for group in sorted.into_iter().take(2) {
        let name = if group.module.is_empty() { "the output head" } else { group.module };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.join(" and ")
}

/// The largest of them, with its sum.
fn logits(groups: &[&TensorGroup], scenario: &Scenario) -> String {
    let vocab = scenario.architecture().map_or(0, |architecture| architecture.vocab);
    let largest = groups.iter().max_by_key(|group| group.bytes);
    let sum = largest.filter(|_| vocab > 0).map(|group| {
        let bytes = group.dtype.bytes().max(1);
        let rows = group.bytes.0 / bytes / vocab;
        format!(": {} tokens × {} entries × {bytes} bytes", grouped(rows), grouped(vocab))
    });
    let count: u64 = groups
        .iter()
        .filter(|group| Some(group.bytes) == largest.map(|group| group.bytes))
        .map(|group| group.count)
        .sum();
    let times = if count > 1 { format!(", {} times at once", grouped(count)) } else { String::new() };
    format!("The logits{}{times}; a fused loss never has them", sum.unwrap_or_default())
}

/// Weights and all else in bfloat16, where the card computes in it.
fn to_bfloat16(scenario: &mut Scenario) {
    if scenario.has_bfloat16() {
        scenario.precision = Precision::Bf16;
    }
}

/// Whether a reference stands beside the model, which then has no adapters to switch off.
fn has_second_model(scenario: &Scenario) -> bool {
    scenario.task.has_reference()
        && scenario.answers.reference == Reference::Scored
        && scenario.method == Method::Full
}

/// What stands out at the peak, the largest first.
///
/// ```
/// use headroom::explain::notes;
/// use headroom::{allocator::Settings, scenario::Scenario, step::Recording};
///
/// let scenario = Scenario::default();
/// let (model, gpu) = (scenario.architecture().unwrap(), scenario.gpu().unwrap());
/// let recording = Recording::of(&model, &scenario, &gpu).unwrap();
/// let notes = notes(&recording.tensors_at_peak(Settings::default()), &scenario);
/// assert!(notes[0].words.starts_with("embed_tokens and lm_head in float32: prepare_model_for_kbit_training"));
/// assert!(notes[1].words.contains("2,048 tokens × 128,256 entries × 4 bytes"), "{}", notes[1].words);
/// ```
pub fn notes(tensors: &[TensorGroup], scenario: &Scenario) -> Vec<Note> {
    let Some(needed) = estimate(scenario).memory.map(|memory| memory.needed()) else { return Vec::new() };
    let note = |rule: &Rule| {
        let is_meant =
            |group: &&TensorGroup| group.category == rule.category && (rule.is_meant)(group, scenario);
        let groups: Vec<&TensorGroup> = tensors.iter().filter(is_meant).collect();
        let bytes: Bytes = groups.iter().map(|group| group.total()).sum();
        (bytes.percent_of(needed) >= rule.least).then(|| Note {
            category: rule.category,
            bytes,
            words: (rule.words)(&groups, scenario),
            switch: rule.switch.and_then(|(name, pull)| switch(name, pull, scenario, needed)),
        })
    };
    let mut notes: Vec<Note> = RULES.iter().filter_map(note).collect();
    notes.sort_by_key(|note| std::cmp::Reverse(note.bytes));
    notes
}

/// The change, where it runs and saves something.
fn switch(name: &str, pull: fn(&mut Scenario), scenario: &Scenario, needed: Bytes) -> Option<Switch> {
    let mut changed = scenario.clone();
    changed.change(pull);
    let after = estimate(&changed);
    let saves = needed.saturating_sub(after.memory.as_ref()?.needed());
    let key = Key::find(name)?;
    let runs = saves > Bytes::ZERO && after.errors().next().is_none() && !key.is_same(scenario, &changed);
    let label = format!("{}: {}", key.label_for(&changed), key.words(&changed));
    runs.then(|| Switch { label, saves, scenario: Box::new(changed) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocator::Settings;
    use crate::share;
    use crate::step::Recording;

    #[track_caller]
    fn of(link: &str) -> Vec<Note> {
        let scenario = share::decode(link).scenarios.remove(0);
        let (model, gpu) = (scenario.architecture().unwrap(), scenario.gpu().unwrap());
        let recording = Recording::of(&model, &scenario, &gpu).unwrap();
        notes(&recording.tensors_at_peak(Settings::default()), &scenario)
    }

    #[track_caller]
    fn finds(link: &str, words: &str, switch: &str) {
        let notes = of(link);
        let note = notes.iter().find(|note| note.words.contains(words));
        let note = note.unwrap_or_else(|| panic!("{words} is not in {notes:#?}"));
        let label = note.switch.as_ref().map_or("", |switch| &switch.label);
        assert_eq!(label, switch);
        assert!(note.bytes > Bytes::mib(100));
    }

    #[test]
    fn what_surprises_is_told_with_its_switch() {
        finds(
            "task=grpo&m=Qwen/Qwen2.5-7B-Instruct&b=8&ref=none&mask=padded&st=trl",
            "all of a micro-batch at once, 8 × 2,048 tokens",
            "Micro-batch size (answers): 4",
        );
        finds(
            "task=dpo&m=meta-llama/Llama-3.2-1B&st=trl&method=full&prompt=128&s=256&p=amp-bf16-weights",
            "The weights twice",
            "Reference: Precomputed",
        );
        finds("", "embed_tokens and lm_head in float32", "k-bit preparation: Off");
        finds("", "A 16-bit copy of lm_head", "k-bit preparation: Off");
        finds("", "a fused loss never has them", "Loss kernel: Liger fused");
        finds(
            "emb=on",
            "A copy of embed_tokens and lm_head that is trained whole",
            "Train embeddings too: Off",
        );
        finds("gc=off&s=512", "Every layer keeps", "Gradient checkpointing: On");
        finds("method=full&gpu=h200-sxm", "AdamW remembers two numbers of", "Optimizer: AdamW 8-bit");
        finds("method=full&gpu=h200-sxm&p=amp-bf16", "The weights in float32", "Precision: bf16 (pure)");
        // a card that emulates bfloat16 is not sent there
        finds("method=full&gpu=t4&m=Qwen/Qwen3-0.6B&p=amp-fp16", "The weights in float32", "");
    }

    #[test]
    fn several_gpus_have_notes_of_their_own() {
        let base = "m=Qwen/Qwen2.5-0.5B&method=full&gpu=h200-sxm&s=128&gpus=8";
        let notes = of(&format!("{base}&shard=fsdp2&p=amp-bf16"));
        assert!(notes.iter().all(|note| !note.words.contains("autocast")), "{notes:?}");
        assert!(notes.iter().any(|note| note.words.contains("gathered whole")), "{notes:?}");
        let buckets = |notes: Vec<Note>| notes.iter().any(|note| note.words.contains("DDP’s buckets"));
        assert!(buckets(of(&format!("{base}&shard=ddp&p=bf16"))));
        assert!(!buckets(of(&format!("{base}&shard=fsdp2&p=bf16"))));
    }

    #[test]
    fn gradients_that_go_at_once_do_not_wait_for_the_step() {
        for note in of("m=Qwen/Qwen2.5-0.5B&method=full&gpu=h200-sxm&p=bf16&s=128&o=sgd&step=in-backward") {
            assert!(!note.words.contains("until the optimizer has stepped"), "{note:?}");
        }
    }

    /// Liger's stack fuses the loss without being asked; its copy of the head's weight is no module's.
    #[test]
    fn a_fused_loss_is_not_blamed_for_logits() {
        let trained = "m=Qwen/Qwen3-8B&t=attention&emb=on&b=4&s=4096&ga=4&attn=flash-attention-2&st=liger";
        finds(trained, "The gradient of the head’s weight", "Train embeddings too: Off");
        for note in of(trained) {
            assert!(!note.words.contains("logits") && !note.words.contains("of and"), "{note:?}");
        }
    }

    /// What was converted to float32 and was loaded so is one amount, and has one cause.
    #[test]
    fn an_amount_is_told_once() {
        for link in ["p=amp-fp16&gpu=t4", "p=amp-bf16", ""] {
            let mut told: Vec<_> = of(link).into_iter().map(|note| (note.category, note.bytes)).collect();
            let all = told.len();
            told.sort_by_key(|(category, bytes)| (format!("{category:?}"), *bytes));
            told.dedup();
            assert_eq!(told.len(), all, "{link}: {told:?}");
        }
        finds("p=amp-fp16&gpu=t4", "they are loaded so where the precision has float32 weights", "");
    }

    #[test]
    fn what_was_switched_is_not_told_again() {
        for note in of("prep=off&loss=liger") {
            assert!(!note.words.contains("prepare_model") && !note.words.contains("logits"), "{note:?}");
        }
    }
}
