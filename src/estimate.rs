//! The answer: [`estimate`] executes one training step of a [`Scenario`] and says what it needs.

use crate::hardware::Gpu;
use crate::issue::{Field, Issue, Severity};
use crate::memory::{HostSpikes, Memory, WholeExperts};
use crate::model::Architecture;
use crate::model::blocks::{Block, FeedForward};
use crate::model::modeling::quantised_experts_before_5;
use crate::scenario::software::Quantiser;
use crate::scenario::{
    Evaluation, HostNeed, LossKernel, Merges, Quantization, Scenario, Stack, Task, Tuner, WeightFormat,
};
use crate::step;
use crate::units::{Bytes, grouped};

/// The answer to a [`Scenario`]: always one, even to a scenario that cannot be estimated.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Estimate {
    /// What is wrong, doubtful or assumed.
    pub issues: Vec<Issue>,
    /// What the step needs; absent exactly where an issue is an error.
    pub memory: Option<Memory>,
}

impl Estimate {
    /// What stands in the way of an answer.
    pub fn errors(&self) -> impl Iterator<Item = &Issue> {
        self.issues.iter().filter(|issue| issue.severity == Severity::Error)
    }
}

/// Executes one training step of the scenario without data and says what it needs.
///
/// Total: any scenario gets an answer, at worst one whose [`Estimate::issues`] say why there is no figure.
///
/// ```
/// use headroom::scenario::{Method, Optimizer, Precision, Scenario};
/// use headroom::{estimate, memory::Category, units::Bytes};
///
/// let scenario = Scenario {
///     method: Method::Full,
///     precision: Precision::Bf16,
///     optimizer: Optimizer::AdamWFused,
///     ..Scenario::default()
/// };
/// let memory = estimate(&scenario).memory.expect("nothing stands in the way");
/// // two moments of 2 bytes for each of Llama-3.1-8B's 8,030,261,248 parameters, and the steps' counters
/// let state = memory.peak().1.parts.get(Category::Optimizer);
/// assert!((Bytes(32_121_044_992)..Bytes(32_121_500_000)).contains(&state), "{}", state.0);
/// ```
pub fn estimate(scenario: &Scenario) -> Estimate {
    estimate_within(scenario, Bytes(u64::MAX)).unwrap_or(Estimate { issues: Vec::new(), memory: None })
}

/// The same on a card that has so much: how much stays from step to step at least, where that alone has no room.
pub(crate) fn estimate_within(scenario: &Scenario, room: Bytes) -> Result<Estimate, Bytes> {
    let architecture = scenario.architecture();
    let mut issues = scenario.validate_with(architecture.as_deref().ok());
    let failed = |issues: &[Issue]| issues.iter().any(|issue| issue.severity == Severity::Error);
    let mut memory = None;
    match (architecture, scenario.gpu()) {
        (Ok(architecture), Ok(gpu)) => {
            if !failed(&issues) {
                match step::run_within(&architecture, scenario, &gpu, room) {
                    Ok(Err(rests)) => return Err(rests),
                    Ok(Ok(answer)) => {
                        issues.extend(in_cpu_memory(scenario, &answer, architecture.parameters()));
                        issues.extend(of_older_trl(scenario, &architecture, &gpu));
                        issues.extend(whole_experts(scenario, &architecture.model_type, answer.experts));
                        memory = Some(answer);
                    }
                    Err(issue) => issues.push(issue),
                }
            }
        }
        (architecture, gpu) => issues.extend([architecture.err(), gpu.err()].into_iter().flatten()),
    }
    Ok(Estimate { issues, memory })
}

/// What a run of a model with so many parameters has of the CPU's memory, a note for each cause.
pub(crate) fn in_cpu_memory(scenario: &Scenario, memory: &Memory, parameters: u64) -> Vec<Issue> {
    let mut notes = Vec::from_iter(offloaded(memory.offloaded));
    notes.extend(on_host(memory.on_host, scenario));
    notes.extend(paged(memory.paged));
    notes.extend(spikes(scenario, memory, parameters));
    notes.extend(read_by_each(scenario, parameters));
    notes.extend(on_a_machine(scenario, scenario.host(memory, parameters)));
    notes
}

/// What waits in the CPU's memory, which must have room for it.
fn offloaded(bytes: Bytes) -> Option<Issue> {
    if bytes == Bytes::ZERO {
        return None;
    }
    let message = format!("up to {bytes} of activations wait in the CPU's memory");
    Some(Issue::new(Severity::Note, Field::Offloading, message))
}

/// What a paged optimizer keeps outside PyTorch's allocator, where it is worth a word.
fn paged(bytes: Bytes) -> Option<Issue> {
    if bytes < HostNeed::LEAST_PAGED {
        return None;
    }
    let message = format!(
        "{bytes} of the optimizer's states are in unified memory: on the card as far as it has room beside the rest, in the CPU's memory \
         otherwise"
    );
    Some(Issue::new(Severity::Note, Field::Optimizer, message))
}

/// That a trl that many still have takes more (docs/versions.md).
fn of_older_trl(scenario: &Scenario, architecture: &Architecture, gpu: &Gpu) -> Option<Issue> {
    if scenario.stack != Stack::Trl
        || scenario.task != Task::Sft
        || scenario.savings.loss != LossKernel::Standard
    {
        return None;
    }
    let mut earlier = scenario.clone();
    earlier.savings.loss = LossKernel::Full;
    let message = "this is what trl 1.16 does: up to 1.6 SFTTrainer made all logits, which takes more";
    step::is_supported(architecture, &earlier, gpu).then(|| {
        Issue::new(Severity::Note, Field::Loss, message)
            .with_fix("where pip show trl says 1.6 or less, choose Full logits")
    })
}

/// Experts that are not quantised where all else is, and what of it earlier versions did.
fn whole_experts(scenario: &Scenario, family: &str, experts: WholeExperts) -> Option<Issue> {
    let WholeExperts { elements, bytes } = experts;
    if elements == 0 || scenario.software().quantiser != Quantiser::Transformers {
        return None;
    }
    let half = Bytes(elements.saturating_mul(2));
    let prepared = bytes > half && scenario.quantization.makes_rest_float32();
    let mut message = format!(
        "experts are three-dimensional parameters in transformers 5 and no linear layers: quantisation leaves their weights whole, {bytes}"
    );
    if prepared {
        message += &format!(", which k-bit preparation makes float32 ({half} in 16 bits)");
    }
    if quantised_experts_before_5(family) {
        let quantised = quantised(scenario.quantization, elements);
        message += &format!("; transformers 4.57 had them as linear layers and quantised them: {quantised}");
    }
    let field = if prepared { Field::KbitPrepare } else { Field::WeightFormat };
    let note = Issue::new(Severity::Note, field, message);
    Some(match scenario.can_have_expert_layers() {
        true => note.with_fix("with an older transformers, choose experts as layers of their own"),
        false => note,
    })
}

/// What so many weights of linear layers take as bitsandbytes stores them.
fn quantised(quantization: Quantization, elements: u64) -> Bytes {
    let scales = elements.div_ceil(64);
    match (quantization.format, quantization.double_quant) {
        // a number for each row of a matrix is little beside it
        (WeightFormat::Int8 | WeightFormat::TorchaoInt8 | WeightFormat::Gptq8, _) => Bytes(elements),
        (WeightFormat::Gptq4 | WeightFormat::Awq4 | WeightFormat::Awq4Cuda, _) => Bytes(elements / 2),
        (WeightFormat::Nf4 | WeightFormat::Nf4Early, true) => {
            Bytes(elements / 2 + scales + scales.div_ceil(256) * 4)
        }
        (WeightFormat::Nf4 | WeightFormat::Nf4Early, false) => Bytes(elements / 2 + scales * 4),
    }
}

/// What saving, merging and an evaluation take of the CPU's memory.
fn spikes(scenario: &Scenario, memory: &Memory, parameters: u64) -> Vec<Issue> {
    let host = memory.host;
    let note = |field, message| Issue::new(Severity::Note, field, message);
    let mut notes = Vec::new();
    let evaluated = scenario.evaluated_on_host(memory);
    if evaluated > Bytes::ZERO {
        let Evaluation { batches, accumulation, .. } = scenario.evaluation;
        let when = match accumulation {
            0 => "in the end",
            every if every < batches => "in parts, each joined to all before it,",
            _ => "at once",
        };
        let message = format!(
            "the logits of the evaluation's {} batches go to the CPU's memory {when} and wait there for the metrics: up to {}",
            grouped(batches),
            evaluated
        );
        let note = note(Field::EvalAccumulation, message);
        notes.push(
            note.with_fix("preprocess_logits_for_metrics with an argmax leaves a number for each token"),
        );
    }
    if scenario.saves() {
        notes.push(note(Field::Saving, saving(scenario, host)));
    }
    if scenario.merges() == Merges::Cpu && !is_merged_as_compared(scenario) {
        let message = "what merging on the CPU takes was compared of LoRA in transformers' models that are trained on one GPU, and is not known of this";
        notes.push(Issue::warning(Field::Merging, message));
    } else if scenario.merges() == Merges::Cpu {
        let file = Bytes(parameters.saturating_mul(2));
        let message = format!(
            "merging on the CPU takes up to {} of its memory, and the pages of the base's 16-bit files beside that, {file}, which the system takes back when it needs room",
            host.merging
        );
        notes.push(note(Field::Merging, message));
    }
    notes
}

/// What a checkpoint takes of the CPU's memory, in words.
fn saving(scenario: &Scenario, host: HostSpikes) -> String {
    let (first, each) = (host.saving, host.saving_each);
    if scenario.gathers_saved() && !scenario.cluster.is_fsdp2() {
        return format!(
            "while a checkpoint is saved the first GPU's process has the 16-bit weights that were gathered in the CPU's memory, of adapters these alone: {first}"
        );
    }
    if scenario.gathers_saved() {
        return format!(
            "while a checkpoint is saved the first GPU's process has up to {first} of the CPU's memory: the weights that were gathered, and after them the optimizer's states"
        );
    }
    if each > Bytes::ZERO {
        return format!(
            "while a checkpoint is saved every process has a copy of the weights in the CPU's memory, {each} each: accelerate has DeepSpeed's made on all of them"
        );
    }
    if scenario.cluster.shards() {
        return "every process writes its own shards, of which a tensor at a time is in the CPU's memory; transformers cannot load them as they are: with whole weights the first GPU writes a model".to_owned();
    }
    format!(
        "while a checkpoint is saved {first} of it lie in the CPU's memory: all of a file of weights before it is written, of the optimizer's state a tensor at a time"
    )
}

/// Whether adapters are such that merging them in the CPU's memory was compared.
fn is_merged_as_compared(scenario: &Scenario) -> bool {
    let software = scenario.software();
    let mixes = |block: &Block| matches!(block.ffn, FeedForward::Moe(_));
    let is_plain = |architecture: &Architecture| {
        !architecture.blocks.iter().any(mixes)
            && architecture.towers.is_empty()
            && architecture.encoder.is_none()
    };
    scenario.lora.tuner == Tuner::Lora
        && !scenario.lora.trains_embeddings
        && software.peft
        && software.runs_transformers()
        && !scenario.cluster.has_engine()
        && scenario.architecture().is_ok_and(|architecture| is_plain(&architecture))
}

/// What loading takes of the CPU's memory where shards are made of a whole model in every process.
fn read_by_each(scenario: &Scenario, parameters: u64) -> Option<Issue> {
    let each = scenario.loaded_by_each(parameters)?;
    let gpus = scenario.cluster.gpus;
    let unless = match scenario.may_load_once() {
        true => {
            ", unless cpu_ram_efficient_loading has the first alone read it (accelerate launch does, fsdp_config of TrainingArguments does not by \
             default)"
        }
        false => "",
    };
    let message = format!(
        "before it is sharded every process reads the whole model into the CPU's memory: {each} for each of {}{unless}",
        grouped(gpus)
    );
    Some(Issue::new(Severity::Note, Field::Sharding, message))
}

/// In what a run takes of the CPU's memory after it was loaded.
fn stages_on_host(scenario: &Scenario) -> &'static str {
    match (scenario.saves(), scenario.merges() == Merges::Cpu) {
        (false, false) => "trains",
        (true, false) => "trains or saves",
        (false, true) => "trains or merges",
        (true, true) => "trains, saves or merges",
    }
}

/// What the processes of a machine have of its RAM together, beside that of the known machine that has most with as many of the card: of
/// one process where that is not enough alone.
fn on_a_machine(scenario: &Scenario, need: HostNeed) -> Option<Issue> {
    let known = scenario.known_host();
    let is_short = known.is_some_and(|host| need.least() > host.ram);
    if need.processes < 2 && !is_short || need.machine() + need.loading == Bytes::ZERO {
        return None;
    }
    let loading = match need.loads_once {
        true => format!(
            "{} while the first process reads the model ({} if all do)",
            need.loading,
            need.machine_loading()
        ),
        false => format!("{} while all its processes read the model", need.machine_loading()),
    };
    let parts = [
        (need.loading > Bytes::ZERO).then_some(loading),
        (need.machine() > Bytes::ZERO)
            .then(|| format!("{} while it {}", need.machine(), stages_on_host(scenario))),
    ];
    let parts = Vec::from_iter(parts.into_iter().flatten()).join(" and ");
    let such = |gpus: u64| if gpus == 1 { "1 such GPU".to_owned() } else { format!("{gpus} such GPUs") };
    let mut message = format!("of the RAM of a machine with {} the run takes {parts}", such(need.processes));
    if let Some(host) = known {
        let than = if is_short { ", too little" } else { "" };
        message += &format!(
            "; of known machines with {} {} has most: {}{than}",
            such(host.gpus),
            host.name,
            host.ram
        );
    }
    let field = if need.machine() > Bytes::ZERO { Field::CpuOffload } else { Field::Sharding };
    let severity = if is_short { Severity::Warning } else { Severity::Note };
    Some(Issue::new(severity, field, message))
}

/// What the CPU's memory has of each rank's shards. A machine has all of its GPUs' in one.
fn on_host(bytes: Bytes, scenario: &Scenario) -> Option<Issue> {
    let gpus = scenario.cluster.gpus;
    let field = if scenario.optimizer.is_on_cpu() { Field::Optimizer } else { Field::CpuOffload };
    if bytes == Bytes::ZERO {
        return None;
    }
    let together = Bytes(bytes.0.saturating_mul(gpus));
    let whose = match gpus {
        1 => format!("{bytes} of what is offloaded lie in the CPU's memory"),
        _ => format!("for each GPU {bytes} of what is offloaded lie in the CPU's memory, {together} for all"),
    };
    let message = format!("{whose}; what is copied is pinned, for which PyTorch takes the next power of two");
    Some(Issue::new(Severity::Note, field, message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Evaluates, Method, ModelChoice, Precision, Sharding};

    /// `Trainer` has the logits of 100 batches of 8 texts in the CPU's memory, twice while those of the last batches are joined to them.
    #[test]
    fn logits_of_an_evaluation_are_told() {
        let scenario = |accumulation| Scenario {
            evaluation: Evaluation { keeps: Evaluates::Metrics, batch: 8, accumulation, batches: 100 },
            ..Scenario::default()
        };
        let told = |accumulation| {
            let answer = estimate(&scenario(accumulation));
            let evaluation = answer.memory.expect("nothing stands in the way").host.evaluation;
            let note = answer.issues.into_iter().find(|issue| issue.field == Field::EvalAccumulation);
            (evaluation, note.expect("it is told").message)
        };
        let tokens = 100 * 8 * scenario(0).sequence;
        let once = tokens * (128_256 * 4 + 8);
        assert_eq!(told(0).0, Bytes(once));
        let (twice, message) = told(4);
        assert_eq!(twice, Bytes(2 * once));
        assert!(message.contains("100 batches") && message.contains(&twice.to_string()), "{message}");
        let plain = estimate(&Scenario::default());
        assert!(plain.memory.is_some_and(|memory| memory.host.evaluation == Bytes::ZERO));
    }

    /// What a card has no room for from the start is told without a step, what it has by the whole of one.
    #[test]
    fn a_step_is_run_where_what_rests_has_room() {
        for sharding in [Sharding::Ddp, Sharding::Fsdp2, Sharding::Zero3] {
            let mut scenario = Scenario::default();
            scenario.change(|scenario| scenario.method = Method::Full);
            scenario.change(|scenario| {
                scenario.cluster.set_gpus(8);
                scenario.cluster.sharding = sharding;
            });
            let whole = estimate(&scenario);
            let memory = whole.memory.as_ref().unwrap_or_else(|| panic!("{sharding:?}: {:?}", whole.issues));
            let (rests, needed) = (memory.resting.total(), memory.needed());
            for room in [needed, needed + Bytes(1)] {
                assert_eq!(estimate_within(&scenario, room).as_ref(), Ok(&whole), "{sharding:?}");
            }
            for room in [Bytes(0), Bytes(rests.0 / 8)] {
                let least = estimate_within(&scenario, room).expect_err("it has no room");
                assert!(room < least && least <= needed, "{sharding:?}: {least}");
            }
        }
        let refused = Scenario { sequence: 0, ..Scenario::default() };
        let refused = estimate_within(&refused, Bytes(0)).expect("what is refused has no size");
        assert!(refused.errors().next().is_some());
    }

    #[test]
    fn an_older_trl_that_makes_all_logits_is_named() {
        let told = |link: &str| {
            let issues = estimate(&crate::share::decode(link).scenarios[0]).issues;
            issues.into_iter().any(|issue| issue.field == Field::Loss && issue.message.contains("up to 1.6"))
        };
        assert!(told("v=1&method=lora&st=trl"));
        // where all logits are not followed there is nothing to choose
        let seeing = "v=1&method=lora&st=trl&m=Qwen/Qwen2.5-VL-3B-Instruct";
        let others =
            ["v=1&method=lora", "v=1&method=lora&st=trl&loss=full", "v=1&task=dpo&method=lora&st=trl"];
        for other in others.into_iter().chain([seeing]) {
            assert!(!told(other), "{other}");
        }
    }

    fn told(model: &str, change: impl FnOnce(&mut Scenario)) -> Option<Issue> {
        let model = ModelChoice::Catalogue(model.to_owned());
        let mut scenario = Scenario { model, method: Method::Qlora, ..Scenario::default() };
        change(&mut scenario);
        let mut issues = estimate(&scenario).issues.into_iter();
        issues.find(|issue| issue.message.contains("three-dimensional"))
    }

    /// Qwen3-30B-A3B has 48 layers of 128 experts of three matrices of 2,048 by 768.
    #[test]
    fn experts_that_are_not_quantised_are_told() {
        let prepared = told("Qwen/Qwen3-30B-A3B", |_| ()).expect("a mixture in 4 bits");
        assert_eq!((prepared.severity, prepared.field), (Severity::Note, Field::KbitPrepare));
        let whole = Bytes(48 * 128 * 3 * 2048 * 768 * 4);
        for words in [format!("whole, {whole}"), format!("({} in 16 bits)", Bytes(whole.0 / 2))] {
            assert!(prepared.message.contains(&words), "{words}: {}", prepared.message);
        }
        assert!(prepared.message.ends_with("quantised them: 13.9 GiB"), "{}", prepared.message);
        let plain = told("Qwen/Qwen3-30B-A3B", |scenario| scenario.quantization.prepare = false);
        let plain = plain.expect("a mixture in 4 bits");
        assert_eq!(plain.field, Field::WeightFormat);
        assert!(plain.message.contains("whole, 54.0 GiB; transformers 4.57"), "{}", plain.message);
        // experts that were one tensor before
        let gpt_oss = told("openai/gpt-oss-20b", |_| ()).expect("a mixture in 4 bits");
        assert!(!gpt_oss.message.contains("4.57"), "{}", gpt_oss.message);
        assert_eq!(told("Qwen/Qwen3-0.6B", |_| ()), None);
        let lora = |scenario: &mut Scenario| {
            (scenario.method, scenario.precision) = (Method::Lora, Precision::Bf16);
        };
        assert_eq!(told("Qwen/Qwen3-30B-A3B", lora), None);
    }
}
