//! vLLM in the process that trains (trl's `vllm_mode="colocate"`): what it takes of the card, and what is left of that for keys and
//! values.
//!
//! Source: vLLM v1/worker/gpu_worker.py `determine_available_memory`, `load_model`, `initialize_from_config` and `sleep` (whose pool has
//! weights, keys and values alone), device_allocator/cumem.py and v1/core/kv_cache_utils.py; trl 1.16 generation/vllm_generation.py.

use super::{Field, Issue, Method, Rollouts, Scenario, Severity};
use crate::dtype::Dtype;
use crate::model::Architecture;
use crate::model::blocks::Mixer;
use crate::units::{Bytes, grouped};

/// Percent of the card that it has where nothing is said (trl 1.16 `vllm_gpu_memory_utilization`).
pub(crate) const TRL_SHARE: u64 = 30;

/// A share is suggested in steps of so many percent.
const STEP: u64 = 10;
/// And is no larger: the rest is the training's.
const MOST: u64 = 90;

/// Tokens of a block of vLLM's KV cache (`block_size` on CUDA).
pub(crate) const BLOCK: u64 = 16;

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
        self.task.learns_from_own_answers() && !self.generates_itself()
    }

    /// What vLLM takes of a card of so much memory beside all of the training: its share, but where it sleeps meanwhile.
    pub(crate) fn colocated(&self, memory: Bytes) -> Bytes {
        if self.reserve.sleeps { Bytes::ZERO } else { self.vllm_share(memory) }
    }

    /// What a vLLM has that sleeps while the model is trained, once it wakes: its weights, and what is left of its share to keys and
    /// values; none where there is none.
    pub(crate) fn waking(&self) -> Option<[Bytes; 2]> {
        let share = self.vllm_share(self.card().ok()?.memory);
        if !self.reserve.sleeps || share == Bytes::ZERO {
            return None;
        }
        let own = self.architecture().ok().and_then(|architecture| weights(self, &architecture));
        let own = own.unwrap_or(Bytes::ZERO).min(share);
        Some([own, share.saturating_sub(own)])
    }

    /// vLLM's share of a card of so much memory: of all of it, whatever is there already.
    fn vllm_share(&self, memory: Bytes) -> Bytes {
        if !self.asks_a_generator() {
            return Bytes::ZERO;
        }
        let share = u128::from(memory.0) * u128::from(self.reserve.vllm.min(100)) / 100;
        Bytes(u64::try_from(share).unwrap_or(u64::MAX))
    }

    /// The smallest share of the card, in tens of percent, that holds vLLM's weights and the keys and values of one sequence, less than
    /// which it refuses; none where no vLLM is on the card, or where these are not known.
    pub(crate) fn least_vllm_share(&self) -> Option<u64> {
        let memory = self.card().ok()?.memory;
        if self.vllm_share(memory) == Bytes::ZERO {
            return None;
        }
        let architecture = self.architecture().ok()?;
        let kept = keys_and_values(&architecture)?.saturating_mul(self.sequence.next_multiple_of(BLOCK));
        let least = weights(self, &architecture)? + Bytes(kept);
        let share = |percent| self.with_vllm_share(percent).vllm_share(memory);
        (1..=MOST / STEP).map(|step| step * STEP).find(|percent| share(*percent) > least)
    }

    /// The same with another share of the card for vLLM.
    fn with_vllm_share(&self, percent: u64) -> Scenario {
        let mut other = self.clone();
        other.reserve.vllm = percent;
        other
    }
}

/// Bytes of the keys and values of one token in 16 bits, where every layer keeps those of all tokens.
pub(crate) fn keys_and_values(architecture: &Architecture) -> Option<u64> {
    let mut all = 0_u64;
    for kind in &architecture.order {
        let Mixer::Attention(attention) = &architecture.blocks.get(usize::from(*kind))?.mixer else {
            return None;
        };
        if attention.window.is_some() || architecture.encoder.is_some() {
            return None;
        }
        let layer =
            attention.kv_heads.saturating_mul(attention.head_dim).saturating_mul(2 * Dtype::Bf16.bytes());
        all = all.saturating_add(layer);
    }
    (all > 0).then_some(all)
}

/// Bytes of vLLM's own copy of the weights; those in 4 bits it loads in its own way.
fn weights(scenario: &Scenario, architecture: &Architecture) -> Option<Bytes> {
    let all = Bytes(architecture.parameters().saturating_mul(Dtype::Bf16.bytes()));
    (scenario.method != Method::Qlora).then_some(all)
}

/// That vLLM does not start: its share of the card does not hold its weights.
pub(super) fn without_room(scenario: &Scenario, architecture: &Architecture) -> Option<Issue> {
    let share = scenario.vllm_share(scenario.card().ok()?.memory);
    let weights = weights(scenario, architecture)?;
    (share > Bytes::ZERO && share <= weights).then(|| {
        let message = format!(
            "vLLM stops: its weights alone are {weights} in 16 bits, and its share of the card {share}"
        );
        let enough = scenario.least_vllm_share().map_or_else(
            || "take a larger card".to_owned(),
            |percent| format!("give it {percent} % of the card"),
        );
        Issue::warning(Field::VllmPercent, message)
            .with_fix(format!("{enough}, or have a server elsewhere generate"))
    })
}

/// What is good to know of vLLM's share, and whether vLLM refuses it.
pub(super) fn issues(scenario: &Scenario, architecture: Option<&Architecture>, issues: &mut Vec<Issue>) {
    let Ok(card) = scenario.card() else { return };
    let share = scenario.vllm_share(card.memory);
    if share == Bytes::ZERO {
        return;
    }
    let percent = scenario.reserve.vllm;
    let message = match scenario.reserve.sleeps {
        true => format!(
            "vLLM takes {share} of the card ({percent} % of all of it) while it generates, and gives them back while the model is trained \
             (sleep level 2: weights, keys and values are discarded, the weights are copied from the model anew). What it has beside them \
             stays: CUDA graphs and its libraries' workspaces, which are not counted"
        ),
        false => format!(
            "vLLM takes {share} of the card ({percent} % of all of it) beside the training, with its CUDA graphs in it as far as it foresees them"
        ),
    };
    issues.push(Issue::new(Severity::Note, Field::VllmPercent, message));
    let Some(architecture) = architecture else { return };
    if let Some(issue) = without_room(scenario, architecture) {
        issues.push(issue);
        return;
    }
    let Some(weights) = weights(scenario, architecture) else { return };
    let rest = share.saturating_sub(weights);
    if let Some(token) = keys_and_values(architecture) {
        let blocks = rest.0 / token.saturating_mul(BLOCK).max(1);
        let each = scenario.sequence.div_ceil(BLOCK).max(1);
        let message = format!(
            "of vLLM's share {weights} are weights in 16 bits, and at most {rest} are keys and values: {} blocks of {BLOCK} tokens, \
             {} sequences of {} tokens at once. What its profiling run of 4,096 tokens takes, which differs from version to version, comes \
             off that",
            grouped(blocks),
            grouped(blocks / each),
            grouped(scenario.sequence)
        );
        issues.push(Issue::new(Severity::Note, Field::VllmPercent, message));
        let room = blocks.saturating_mul(BLOCK);
        if let Some(context) = architecture.max_positions.filter(|context| *context > room) {
            let message = format!(
                "vLLM starts where one sequence of its context has room, {} tokens unless it is told otherwise: set vllm_max_model_length to {} \
                 to {}, as the written script does",
                grouped(context),
                grouped(scenario.sequence),
                grouped(room)
            );
            issues.push(Issue::new(Severity::Note, Field::VllmPercent, message));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::scenario::{Field, GpuChoice, Method, ModelChoice, Scenario, Task};
    use crate::units::Bytes;

    #[test]
    fn a_share_of_the_card_is_vllms() {
        let mut scenario = Scenario {
            task: Task::Grpo,
            model: ModelChoice::Catalogue("Qwen/Qwen2.5-7B".into()),
            method: Method::Lora,
            gpu: GpuChoice::Custom(Bytes(100 << 30)),
            sequence: 2048,
            ..Scenario::default()
        };
        assert_eq!(scenario.gpu().unwrap().memory, Bytes(100 << 30));
        scenario.reserve.vllm = 30;
        assert_eq!(scenario.gpu().unwrap().memory, Bytes(70 << 30));
        let told = |scenario: &Scenario| -> Vec<String> {
            let own = scenario.validate().into_iter().filter(|issue| issue.field == Field::VllmPercent);
            own.map(|issue| issue.message).collect()
        };
        // 7,615,616,512 parameters, 28 layers of 4 heads of 128: 57,344 bytes for each token
        let blocks = ((30_u64 << 30) - 2 * 7_615_616_512) / (57_344 * 16);
        let said =
            format!("{} blocks of 16 tokens, {} sequences", crate::units::grouped(blocks), blocks / 128);
        assert!(
            told(&scenario).iter().any(|message| message.contains(&said)),
            "{said}: {:?}",
            told(&scenario)
        );
        scenario.reserve.vllm = 10;
        assert!(
            told(&scenario).iter().any(|message| message.starts_with("vLLM stops")),
            "{:?}",
            told(&scenario)
        );
        // who trains on texts has no answers generated
        scenario.task = Task::Sft;
        assert_eq!((scenario.gpu().unwrap().memory, told(&scenario).len()), (Bytes(100 << 30), 0));
    }
}
