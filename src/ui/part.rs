//! What a bar of memory is made of: the categories inside PyTorch's allocator, and the driver's share outside it.

use crate::memory::{Category, Memory, Parts, Stage};
use crate::scenario::Scenario;
use crate::units::Bytes;

/// One part of what a card must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// Tensors of a category.
    Tensors(Category),
    /// The CUDA context.
    Context,
    /// A vLLM on the same card.
    Vllm,
}

/// What a vLLM has of the card while a phase runs: its copy of the weights, and its keys and values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Beside {
    weights: Bytes,
    cache: Bytes,
}

impl Beside {
    /// In a phase of a scenario's run: a vLLM that sleeps has nothing but while it is awake.
    pub fn of(scenario: &Scenario, stage: Stage) -> Beside {
        let waking = (stage == Stage::Wake).then(|| scenario.waking()).flatten();
        let share = scenario.vllm_beside().or(waking);
        share.map_or_else(Beside::default, |share| Beside { weights: share.weights, cache: share.cache })
    }
}

impl Part {
    /// Every part, in the order of charts and tables everywhere.
    pub fn all() -> impl Iterator<Item = Part> {
        Category::ALL.into_iter().map(Part::Tensors).chain([Part::Context, Part::Vllm])
    }

    /// Which of them it is, from 0.
    pub fn place(self) -> usize {
        Part::all().position(|other| other == self).unwrap_or_default()
    }

    /// The part that an element of these classes is of: `part part-weights faded`.
    pub fn of_class(classes: &str) -> Option<Part> {
        Part::all().find(|part| classes.split_ascii_whitespace().any(|class| class == part.class()))
    }

    /// The category whose tensors it is; the driver's share has none.
    pub const fn category(self) -> Option<Category> {
        match self {
            Part::Tensors(category) => Some(category),
            Part::Context | Part::Vllm => None,
        }
    }

    /// The class that colours it.
    pub fn class(self) -> String {
        format!("part-{}", self.slug())
    }

    /// Its name in classes and ids.
    pub const fn slug(self) -> &'static str {
        match self {
            Part::Tensors(category) => category.slug(),
            Part::Context => "context",
            Part::Vllm => "vllm",
        }
    }

    /// Its name for people.
    pub const fn label(self) -> &'static str {
        match self {
            Part::Tensors(category) => category.label(),
            Part::Context => "Driver context",
            Part::Vllm => "vLLM",
        }
    }

    /// Why it is there.
    pub const fn help(self) -> &'static str {
        match self {
            Part::Tensors(category) => category.help(),
            Part::Context => {
                "What the driver takes for the process before the first tensor, on NVIDIA's cards the CUDA context and the \
                 kernels. It lies outside PyTorch's allocator."
            }
            Part::Vllm => {
                "What the vLLM that writes the answers has of the same card: its own copy of the weights, and all the rest of its share for \
                 keys and values."
            }
        }
    }

    /// Its bytes at the peak.
    pub fn at_peak(self, scenario: &Scenario, memory: &Memory) -> Bytes {
        let (phase, peak) = memory.peak();
        self.among(&peak.parts, memory.context, Beside::of(scenario, phase.stage))
    }

    /// Its bytes at a moment.
    pub fn among(self, parts: &Parts, context: Bytes, beside: Beside) -> Bytes {
        match self {
            Part::Tensors(Category::Weights) => parts.get(Category::Weights).saturating_sub(beside.weights),
            Part::Tensors(Category::KvCache) => parts.get(Category::KvCache).saturating_sub(beside.cache),
            Part::Tensors(category) => parts.get(category),
            Part::Context => context,
            Part::Vllm => beside.weights + beside.cache,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate;
    use crate::share;

    /// The model that learns and the vLLM that writes for it are two things, though both have weights.
    #[test]
    fn a_vllm_on_the_same_card_is_a_part_of_its_own() {
        let link = "task=grpo&m=Qwen/Qwen2.5-3B&method=lora&p=amp-bf16&b=8&ref=none&mask=padded&st=trl&gpu=a100-sxm-80gb";
        let parts = |link: &str| {
            let scenario = share::decode(link).scenarios.remove(0);
            let memory = estimate(&scenario).memory.expect("an answer");
            let sum: Bytes = Part::all().map(|part| part.at_peak(&scenario, &memory)).sum();
            assert_eq!(sum, memory.needed(), "{link}");
            let wanted = [Part::Tensors(Category::Weights), Part::Tensors(Category::KvCache), Part::Vllm];
            wanted.map(|part| part.at_peak(&scenario, &memory))
        };
        let alone = parts(link);
        let beside = parts(&format!("{link}&vllm=30"));
        assert_eq!((alone[0], alone[2]), (beside[0], Bytes::ZERO));
        assert_eq!(beside[1], Bytes::ZERO);
        assert!(beside[2] > Bytes::gib(23.), "{beside:?}");
    }
}
