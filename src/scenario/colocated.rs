//! vLLM in the process that trains (trl's `vllm_mode="colocate"`): what it takes of the card, and what is left of that for keys and
//! values.
//!
//! Source: vLLM v1/worker/gpu_worker.py `determine_available_memory`, `load_model`, `initialize_from_config` and `sleep` (whose pool has
//! weights, keys and values alone), device_allocator/cumem.py and v1/core/kv_cache_utils.py; trl 1.16 generation/vllm_generation.py.

use super::software::{ModelCode, Software};
use super::{Field, Issue, Method, Rollouts, Scenario, Severity, WeightFormat};
use crate::dtype::Dtype;
use crate::model::Architecture;
use crate::model::stored::{Stored, is_published_in_mxfp4};
use crate::units::{Bytes, grouped};
use crate::vllm::{Asked, Budget, Cache, Room, Served, Share};

/// Percent of the card that it has where nothing is said (trl 1.16 `vllm_gpu_memory_utilization`).
pub(crate) const TRL_SHARE: u64 = 30;

/// The same of Unsloth's (unsloth 2026.10.9 models/loader.py `gpu_memory_utilization`).
pub(crate) const UNSLOTH_SHARE: u64 = 50;

/// No larger share is suggested, in percent: the rest is the training's.
const MOST: u64 = 90;

/// Tokens of vLLM's profiling run (trl 1.16 `max_num_batched_tokens`).
const BATCHED_TOKENS: u64 = 4096;

/// What a vLLM on the training's card has of it while it is awake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VllmShare {
    /// Its own copy of the weights.
    pub weights: Bytes,
    /// What that is kept in.
    pub stored: Dtype,
    /// What is left of its share to keys and values.
    pub cache: Bytes,
}

impl VllmShare {
    /// All of it.
    pub(crate) fn bytes(self) -> Bytes {
        self.weights + self.cache
    }
}

impl Scenario {
    /// Whether the model that is trained generates the answers that it learns from, by transformers.
    pub fn generates_itself(&self) -> bool {
        self.task.learns_from_own_answers() && self.answers.rollouts == Rollouts::Transformers
    }

    /// Whether vLLM generates the answers on a server of its own, whose cards are none of the scenario's.
    pub fn asks_a_server(&self) -> bool {
        self.asks_a_generator() && self.reserve.vllm == 0
    }

    /// Whether something else than the training generates the answers that are learned from.
    pub(crate) fn asks_a_generator(&self) -> bool {
        self.task.learns_from_own_answers() && !self.generates_itself() && !self.learns_by_gkd()
    }

    /// Whether trl's `GKDTrainer` trains it, whose answers are the data set's where the student does not write them.
    pub(crate) fn learns_by_gkd(&self) -> bool {
        self.task.has_teacher() && self.teacher.divergence.makes_all_logits()
    }

    /// What a vLLM has of the card that is awake all the while the model is trained, which is part of what the run needs; none where
    /// there is none.
    pub(crate) fn vllm_beside(&self) -> Option<VllmShare> {
        self.vllm_on_card().filter(|_| !self.reserve.sleeps)
    }

    /// What a vLLM has that sleeps while the model is trained, once it wakes; none where there is none.
    pub(crate) fn waking(&self) -> Option<VllmShare> {
        self.vllm_on_card().filter(|_| self.reserve.sleeps)
    }

    /// What a vLLM of the training's own card has while it is awake.
    pub(crate) fn vllm_on_card(&self) -> Option<VllmShare> {
        let share = self.vllm_share(self.card().ok()?.memory);
        if share == Bytes::ZERO {
            return None;
        }
        let own = self.architecture().ok().and_then(|architecture| weights(self, &architecture));
        let weights = own.unwrap_or(Bytes::ZERO).min(share);
        if self.lends_weights() {
            return Some(VllmShare {
                weights: Bytes::ZERO,
                stored: Dtype::Bf16,
                cache: share.saturating_sub(weights),
            });
        }
        let stored = if self.method == Method::Qlora { Dtype::U8 } else { Dtype::Bf16 };
        Some(VllmShare { weights, stored, cache: share.saturating_sub(weights) })
    }

    /// Whether the weights that vLLM loads are those that the training reads, as Unsloth makes its model of them (unsloth_zoo 2026.10.9
    /// vllm_utils.py `get_vllm_state_dict`, `convert_vllm_to_huggingface`): they are counted with the model, and stay while vLLM sleeps.
    fn lends_weights(&self) -> bool {
        Software::of(self.stack).model == ModelCode::Unsloth
    }

    /// vLLM's share of a card of so much memory: of all of it, whatever is there already.
    fn vllm_share(&self, memory: Bytes) -> Bytes {
        if !self.asks_a_generator() {
            return Bytes::ZERO;
        }
        let share = u128::from(memory.0) * u128::from(self.reserve.vllm.min(100)) / 100;
        Bytes(u64::try_from(share).unwrap_or(u64::MAX))
    }

    /// The smallest share of the card, in percent, that has room for the keys and values of one sequence, without which
    /// vLLM does not start; none where no vLLM is on the card, or where its budget was not followed.
    pub(crate) fn least_vllm_share(&self) -> Option<u64> {
        let memory = self.card().ok()?.memory;
        if self.vllm_share(memory) == Bytes::ZERO {
            return None;
        }
        let architecture = self.architecture().ok()?;
        let starts = |percent: &u64| {
            let budget = budget(&self.with_vllm_share(*percent), &architecture, self.sequence);
            budget.is_ok_and(|budget| budget.starts())
        };
        let shares: Vec<u64> = (1..=MOST).collect();
        shares.get(shares.partition_point(|percent| !starts(percent))).copied()
    }

    /// The share of each card that a vLLM beside the training usually has, in percent: the library's default, or as much as it needs to
    /// start; none where its budget is not followed, but under Unsloth, whose vLLM and training have the same weights.
    pub(super) fn usual_vllm_share(&self) -> u64 {
        let usual = if self.lends_weights() { UNSLOTH_SHARE } else { TRL_SHARE };
        let beside = self.with_vllm_share(usual);
        if !beside.asks_a_generator() {
            return 0;
        }
        let Ok(architecture) = beside.architecture() else { return 0 };
        match budget(&beside, &architecture, beside.sequence) {
            Ok(budget) if budget.starts() => usual,
            Ok(_) => beside.least_vllm_share().unwrap_or(usual),
            Err(_) if self.lends_weights() => usual,
            Err(_) => 0,
        }
    }

    /// The same with another share of the card for vLLM.
    fn with_vllm_share(&self, percent: u64) -> Scenario {
        let mut other = self.clone();
        other.reserve.vllm = percent;
        other
    }
}

/// What becomes of vLLM's share as trl starts it, for sequences of so many tokens.
///
/// # Errors
/// What vLLM refuses, or was not followed.
fn budget(scenario: &Scenario, architecture: &Architecture, length: u64) -> Result<Budget, String> {
    let card = scenario.card().map_err(|issue| issue.to_string())?;
    let (served, stored) = served(scenario, architecture, length)?;
    served.budget(stored, Cache::AsComputed, &card)
}

/// The model as trl's vLLM serves it, and how it has its weights.
fn served(scenario: &Scenario, architecture: &Architecture, length: u64) -> Result<(Served, Stored), String> {
    let card = scenario.card().map_err(|issue| issue.to_string())?;
    if scenario.lends_weights() {
        return Err("how many tokens and sequences Unsloth has it run at once is not followed".to_owned());
    }
    let share = Share {
        percent: scenario.reserve.vllm,
        bytes: scenario.vllm_share(card.memory),
        tokens: BATCHED_TOKENS,
        sequences: sequences(scenario),
        own_tokens: None,
        returns_processed: true,
    };
    let stored = stored(scenario).ok_or("how it loads a base of that format is not followed")?;
    Ok((Served::new(architecture, 1, share, &Asked { length, group: 0 }), stored))
}

/// Sequences that vLLM draws for at once: the answers of a step (trl 1.16 `max_num_seqs`, per_device_train_batch_size ×
/// steps_per_generation).
fn sequences(scenario: &Scenario) -> u64 {
    scenario.batch.saturating_mul(scenario.accumulation)
}

/// How vLLM loads the weights: in 16 bits, and where bitsandbytes quantised the model to 4 bits it does too
/// (`quantization="bitsandbytes"`); none where that was not followed.
fn stored(scenario: &Scenario) -> Option<Stored> {
    let is_nf4 = matches!(scenario.quantization.format, WeightFormat::Nf4 | WeightFormat::Nf4Early);
    match scenario.method {
        Method::Full | Method::Lora => Some(Stored::Half),
        Method::Qlora => is_nf4.then_some(Stored::Nf4),
    }
}

/// Bytes of vLLM's own copy of the weights.
fn weights(scenario: &Scenario, architecture: &Architecture) -> Option<Bytes> {
    stored(scenario).map(|stored| stored.bytes(architecture))
}

/// That vLLM does not start: a step has more answers than it draws for, or its share of the card does not hold its weights, or beside
/// them not one sequence.
pub(super) fn without_room(scenario: &Scenario, architecture: &Architecture) -> Option<Issue> {
    let share = scenario.vllm_share(scenario.card().ok()?.memory);
    if share == Bytes::ZERO {
        return None;
    }
    if sequences(scenario) > BATCHED_TOKENS {
        let message = format!(
            "vLLM stops: a step has {} answers, and it draws for {} at once at most",
            grouped(sequences(scenario)),
            grouped(BATCHED_TOKENS)
        );
        let issue = Issue::warning(Field::Accumulation, message);
        return Some(issue.with_fix("accumulate over fewer micro-batches"));
    }
    let weights = weights(scenario, architecture)?;
    let message = match budget(scenario, architecture, scenario.sequence) {
        _ if share <= weights => {
            format!("vLLM stops: its weights alone are {weights}, and its share of the card {share}")
        }
        Ok(budget) if budget.room() == Room::Stops => format!(
            "vLLM stops: beside its weights, {weights}, and its profiling run, {}, its share of the card, {share}, has no room for the keys \
             and values of one sequence of {} tokens",
            budget.beside,
            grouped(scenario.sequence)
        ),
        Ok(_) | Err(_) => return None,
    };
    Some(Issue::warning(Field::VllmPercent, message).with_fix(enough(scenario, architecture)))
}

/// What would be enough for vLLM.
fn enough(scenario: &Scenario, architecture: &Architecture) -> String {
    let own = match scenario.least_vllm_share() {
        Some(percent) => format!("give it {percent} % of the card"),
        None if budget(scenario, architecture, scenario.sequence).is_err() => {
            "give it more of the card".to_owned()
        }
        None => "take a larger card".to_owned(),
    };
    format!("{own}, or have a server elsewhere generate")
}

/// What is good to know of vLLM's share, and whether vLLM refuses it.
pub(super) fn issues(scenario: &Scenario, architecture: Option<&Architecture>, issues: &mut Vec<Issue>) {
    let Ok(card) = scenario.card() else { return };
    let share = scenario.vllm_share(card.memory);
    if share == Bytes::ZERO {
        return;
    }
    let percent = scenario.reserve.vllm;
    let note = |message: String| Issue::new(Severity::Note, Field::VllmPercent, message);
    issues.push(note(match scenario.reserve.sleeps {
        true if scenario.lends_weights() => format!(
            "vLLM takes {share} of the card ({percent} % of all of it) while it generates, the model's weights among them, and gives back its \
             keys and values while the model is trained (UNSLOTH_VLLM_STANDBY=1). What it has beside them stays: CUDA graphs and its libraries' \
             workspaces, which are not counted"
        ),
        false if scenario.lends_weights() => format!(
            "vLLM takes {share} of the card ({percent} % of all of it) all the while, the model's weights among them, which are there once: the \
             rest is beside the training and part of what is needed. CUDA graphs and its libraries' workspaces are not counted"
        ),
        true => format!(
            "vLLM takes {share} of the card ({percent} % of all of it) while it generates, and gives them back while the model is trained \
             (sleep level 2: weights, keys and values are discarded, the weights are copied from the model anew). What it has beside them \
             stays: CUDA graphs and its libraries' workspaces, which are not counted"
        ),
        false => format!(
            "vLLM takes {share} of the card ({percent} % of all of it) beside the training, all the while: that is part of what is needed. CUDA graphs and \
             its libraries' workspaces, which lie outside of its share, are not counted"
        ),
    }));
    let Some(architecture) = architecture else { return };
    if is_published_in_mxfp4(architecture) {
        let message = "vLLM loads the checkpoint by the model's name, whose experts are published in MXFP4 (trl 1.16 generation/vllm_generation.py \
                       asks for no other format), and the weights that trl hands it are in 16 bits: counted is a checkpoint in 16 bits";
        let issue = Issue::warning(Field::VllmPercent, message);
        issues.push(issue.with_fix("train from a copy of the model whose weights are published in 16 bits"));
    }
    if let Some(issue) = without_room(scenario, architecture) {
        issues.push(issue);
        return;
    }
    let own = match budget(scenario, architecture, scenario.sequence) {
        Ok(budget) => budget,
        Err(reason) => {
            issues.push(note(format!(
                "how vLLM divides its share, and so whether it starts, is not known: {reason}"
            )));
            return;
        }
    };
    if !own.starts() {
        let message = format!(
            "vLLM may stop: beside its weights, {}, and its profiling run, {}, its share of the card may have no room for the keys and values of one \
             sequence of {} tokens",
            own.weights,
            own.beside,
            grouped(scenario.sequence)
        );
        let issue = Issue::warning(Field::VllmPercent, message);
        issues.push(issue.with_fix(enough(scenario, architecture)));
        return;
    }
    let [tokens, sequences] = own.room().words();
    issues.push(note(format!(
        "of vLLM's share {} are weights, {} its profiling run of {} tokens with a table of positions, and {} keys and values: {tokens} tokens, \
         {sequences} sequences of {} tokens at once. What it expects of its CUDA graphs comes off that",
        own.weights,
        own.beside,
        grouped(BATCHED_TOKENS),
        own.left,
        grouped(scenario.sequence)
    )));
    let context = architecture.max_positions.filter(|context| *context > scenario.sequence);
    let starts = |context| budget(scenario, architecture, context).is_ok_and(|budget| budget.starts());
    if let Some(context) = context.filter(|context| !starts(*context)) {
        issues.push(note(format!(
            "vLLM starts where one sequence of its context has room, {} tokens unless it is told otherwise: set vllm_max_model_length to {}, as \
             the written script does",
            grouped(context),
            grouped(scenario.sequence)
        )));
    }
}

#[cfg(test)]
mod tests {
    use crate::scenario::{Field, GpuChoice, Method, ModelChoice, Scenario, Stack, Task};
    use crate::units::Bytes;

    fn grpo(model: &str, memory: Bytes, sequence: u64) -> Scenario {
        Scenario {
            task: Task::Grpo,
            model: ModelChoice::Catalogue(model.into()),
            method: Method::Lora,
            gpu: GpuChoice::Custom(memory),
            sequence,
            ..Scenario::default()
        }
    }

    #[test]
    fn a_model_that_is_published_in_mxfp4_is_loaded_so() {
        for (model, is_told) in [("openai/gpt-oss-20b", true), ("Qwen/Qwen3-30B-A3B", false)] {
            let mut scenario = grpo(model, Bytes(200 << 30), 1024);
            scenario.reserve.vllm = 40;
            let told = scenario.validate().iter().any(|issue| issue.message.contains("published in MXFP4"));
            assert_eq!(told, is_told, "{model}");
        }
    }

    #[test]
    fn a_share_of_the_card_is_vllms() {
        let mut scenario = grpo("Qwen/Qwen2.5-7B", Bytes(100 << 30), 2048);
        assert_eq!(scenario.gpu().unwrap().memory, Bytes(100 << 30));
        scenario.reserve.vllm = 30;
        // the card is whole, and the share part of what is needed
        assert_eq!(scenario.gpu().unwrap().memory, Bytes(100 << 30));
        assert_eq!(scenario.vllm_beside().unwrap().bytes(), Bytes(30 << 30));
        let told = |scenario: &Scenario| -> Vec<String> {
            let own = scenario.validate().into_iter().filter(|issue| issue.field == Field::VllmPercent);
            own.map(|issue| issue.message).collect()
        };
        // 7,615,616,512 parameters
        let said = "of vLLM's share 14.2 GiB are weights, ";
        assert!(told(&scenario).iter().any(|message| message.starts_with(said)), "{:?}", told(&scenario));
        scenario.reserve.vllm = 10;
        assert!(
            told(&scenario).iter().any(|message| message.starts_with("vLLM stops")),
            "{:?}",
            told(&scenario)
        );
        // who trains on texts has no answers generated
        scenario.task = Task::Sft;
        assert_eq!((scenario.vllm_beside(), told(&scenario).len()), (None, 0));
    }

    /// Unsloth makes its model of the weights that vLLM loaded: they are the model's, and stay while vLLM sleeps.
    #[test]
    fn weights_that_are_lent_are_counted_once() {
        let mut scenario = grpo("Qwen/Qwen2.5-7B", Bytes(100 << 30), 2048);
        scenario.reserve.vllm = 50;
        let own = scenario.vllm_beside().unwrap();
        scenario.stack = Stack::Unsloth;
        let lent = scenario.vllm_beside().unwrap();
        assert_eq!((lent.weights, lent.cache), (Bytes::ZERO, Bytes(50 << 30).saturating_sub(own.weights)));
        assert!(own.weights > Bytes(14 << 30));
        scenario.reserve.sleeps = true;
        assert_eq!((scenario.vllm_beside(), scenario.waking()), (None, Some(lent)));
        let said =
            scenario.validate().into_iter().any(|issue| issue.message.contains("UNSLOTH_VLLM_STANDBY"));
        assert!(said);
    }

    /// Of every model whose budget `headroom serving` knows, with windows among them; and what is enough is no more
    /// than what starts.
    #[test]
    fn the_least_share_starts_and_less_does_not() {
        for (model, memory) in
            [("Qwen/Qwen2.5-7B", 80), ("google/gemma-2-9b", 80), ("google/gemma-3-1b-it", 24)]
        {
            let mut scenario = grpo(model, Bytes(memory << 30), 4096);
            scenario.reserve.vllm = 50;
            let least = scenario.least_vllm_share().unwrap();
            let stops = |percent: u64| {
                let scenario = scenario.with_vllm_share(percent);
                super::without_room(&scenario, &scenario.architecture().unwrap()).is_some()
            };
            assert!(!stops(least) && stops(least / 2), "{model}: {least}");
        }
    }

    /// Beside the weights there must be room for the profiling run and one sequence.
    #[test]
    fn weights_that_fit_are_not_enough() {
        let mut scenario = grpo("Qwen/Qwen2.5-7B", Bytes::gib(48.0), 16384);
        // 14.4 GiB, of which 14.2 are weights
        scenario.reserve.vllm = 30;
        let issue = super::without_room(&scenario, &scenario.architecture().unwrap()).unwrap();
        assert!(issue.message.contains("one sequence of 16,384 tokens"), "{}", issue.message);
        assert!(issue.to_string().contains("give it 34 % of the card"), "{issue}");
    }

    /// A model that sees is shown its largest pictures before the text: 16 of 896 × 896 pixels by gemma3, whose tower takes 1.6 GiB of them where
    /// the text takes 0.4, beside 23.4 GiB of weights and positions in a share of 23.6.
    #[test]
    fn a_share_holds_the_largest_pictures_too() {
        let mut scenario = grpo("google/gemma-3-12b-it", Bytes::gib(78.77), 2048);
        let stops = |scenario: &Scenario| super::without_room(scenario, &scenario.architecture().unwrap());
        scenario.reserve.vllm = 30;
        assert!(stops(&scenario).is_some());
        scenario.reserve.vllm = 40;
        assert!(stops(&scenario).is_none());
        let issues = scenario.validate();
        assert!(issues.iter().any(|issue| issue.message.starts_with("of vLLM's share")), "{issues:?}");
    }

    /// More answers than vLLM computes tokens at a time are none that it draws for.
    #[test]
    fn a_step_has_no_more_answers_than_vllm_draws_for() {
        let mut scenario =
            Scenario { batch: 64, accumulation: 64, ..grpo("Qwen/Qwen2.5-0.5B", Bytes::gib(80.0), 512) };
        scenario.reserve.vllm = 50;
        let stops = |scenario: &Scenario| super::without_room(scenario, &scenario.architecture().unwrap());
        assert!(stops(&scenario).is_none());
        scenario.accumulation = 65;
        assert!(stops(&scenario).is_some_and(|issue| issue.message.contains("a step has 4,160 answers")));
    }

    /// Where the profiling run decides, it is said that it may stop, with what is enough.
    #[test]
    fn what_may_stop_is_no_note() {
        let mut scenario = grpo("Qwen/Qwen2.5-7B", Bytes::gib(80.0), 16384);
        let enough = {
            scenario.reserve.vllm = 50;
            scenario.least_vllm_share().unwrap()
        };
        let told = |percent| {
            let issues = scenario.with_vllm_share(percent).validate();
            issues.iter().any(|issue| issue.to_string().contains("vLLM may stop"))
        };
        assert!(told(enough - 1) && !told(enough), "{enough}");
    }
}
