//! Rules of thumb for the memory of training and of generating: what guides and calculators multiply and add, kept beside the answer
//! so that one sees where each goes wrong.
//!
//! Each that has a worked example of its own source reproduces it (the tests below); of those for generating that is the one with keys and
//! values. What they call GB is 10⁹ bytes for some and 2³⁰ for
//! others; here all are bytes.

use crate::estimate::estimate;
use crate::memory::Memory;
use crate::model::Architecture;
use crate::model::blocks::{FeedForward, Mlp};
use crate::scenario::{CacheKind, Checkpointing, Cluster, Method, Optimizer, Precision, Scenario};
use crate::units::{BYTES_PER_GIB, Bytes};

/// What rules of thumb read of a scenario.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// Parameters of the model.
    pub parameters: f64,
    /// Hidden size.
    pub hidden: f64,
    /// Width of the feed-forward networks.
    pub inner: f64,
    /// Layers.
    pub layers: f64,
    /// Rows of the vocabulary.
    pub vocab: f64,
    /// Tokens of a micro-batch; where it generates, all that there are at the end.
    pub tokens: f64,
    /// Sequences of a micro-batch.
    pub sequences: f64,
    /// Bytes of a parameter.
    pub width: f64,
    /// Tensors of the model's size that the optimizer keeps.
    pub states: f64,
    /// Whether activations are recomputed.
    pub recomputed: bool,
    /// Bytes of a weight as it is stored, where nothing is trained.
    pub stored: f64,
    /// Whether keys and values of earlier tokens are kept.
    pub cached: bool,
}

impl Figures {
    /// Those of a scenario.
    pub fn of(scenario: &Scenario, architecture: &Architecture) -> Figures {
        let inner = architecture.blocks.first().and_then(|block| match &block.ffn {
            FeedForward::Dense(
                Mlp::Gated { down, .. } | Mlp::GatedFused { down, .. } | Mlp::Plain { down, .. },
            ) => Some(down.input as f64),
            FeedForward::Moe(_) | FeedForward::None => None,
        });
        let hidden = architecture.hidden as f64;
        let trains = scenario.task.trains();
        let written = if trains { 0.0 } else { scenario.generation.new_tokens as f64 };
        Figures {
            parameters: architecture.parameters() as f64,
            hidden,
            inner: inner.unwrap_or(4.0 * hidden),
            layers: architecture.depth() as f64,
            vocab: architecture.vocab as f64,
            tokens: scenario.batch as f64 * (scenario.sequence as f64 + written),
            sequences: scenario.batch as f64,
            width: width(scenario.precision),
            states: states(scenario.optimizer),
            recomputed: scenario.checkpointing != Checkpointing::Off,
            stored: match (scenario.method, scenario.quantization.format) {
                (Method::Full | Method::Lora, _) => width(scenario.precision),
                (Method::Qlora, format) => format.bits() as f64 / 8.0,
            },
            cached: scenario.generation.cache != CacheKind::Off,
        }
    }

    /// The activations that the calculator by constants adds up for training.
    fn activations(&self) -> f64 {
        self.tokens * (5.0 * self.hidden + self.inner) * self.layers * self.width
    }

    /// Keys and values as wide as the model.
    fn cache(&self) -> f64 {
        if self.cached { 2.0 * self.layers * self.hidden * self.tokens * self.width } else { 0.0 }
    }
}

/// Bytes of a parameter, as the rules take it.
const fn width(precision: Precision) -> f64 {
    match precision {
        Precision::Fp32 | Precision::AmpBf16 | Precision::AmpFp16 => 4.0,
        Precision::Bf16 | Precision::Fp16 | Precision::AmpBf16Weights | Precision::AmpFp16Weights => 2.0,
    }
}

/// Tensors of the model's size that an optimizer keeps, as calculators list them, in the model's own element type. They list neither LOMO
/// nor what projects gradients: no state, and Adafactor's, stand for theirs.
const fn states(optimizer: Optimizer) -> f64 {
    match optimizer {
        // states in the CPU's memory are none of the card's
        Optimizer::Sgd
        | Optimizer::Lomo
        | Optimizer::AdamWCpuOffload
        | Optimizer::AdamWCpuOffloadGradients => 0.0,
        Optimizer::Adafactor
        | Optimizer::AdafactorTorch
        | Optimizer::AdaLomo
        | Optimizer::GaLoreAdamW
        | Optimizer::GaLoreAdamW8bit
        | Optimizer::GaLoreAdafactor
        | Optimizer::ApolloAdamW => 0.5,
        Optimizer::SgdMomentum
        | Optimizer::Nesterov
        | Optimizer::Adagrad
        | Optimizer::RmsProp
        | Optimizer::Muon
        | Optimizer::AdamMini
        | Optimizer::Lion
        | Optimizer::Lion8bit => 1.0,
        Optimizer::AdamW
        | Optimizer::AdamWFused
        | Optimizer::AdamWForLoop
        | Optimizer::AdamWEarly
        | Optimizer::AdamW8bit
        | Optimizer::AdamW8bitTorchao
        | Optimizer::AdamW4bitTorchao
        | Optimizer::PagedAdamW8bit
        | Optimizer::PagedAdamW
        | Optimizer::Adam
        | Optimizer::Lamb
        | Optimizer::NAdam
        | Optimizer::AmsGrad
        | Optimizer::SparseAdam
        | Optimizer::ScheduleFreeAdamW
        | Optimizer::StableAdamW
        | Optimizer::AdaBelief => 2.0,
        Optimizer::AdEmaMix
        | Optimizer::AdEmaMix8bit
        | Optimizer::PagedAdEmaMix
        | Optimizer::PagedAdEmaMix8bit
        | Optimizer::Shampoo => 3.0,
    }
}

/// A rule of thumb.
#[derive(Debug)]
#[non_exhaustive]
pub struct Rule {
    /// Its name for programs.
    pub slug: &'static str,
    /// Its name for people.
    pub name: &'static str,
    /// The formula.
    pub formula: &'static str,
    /// Where it goes wrong, in a sentence.
    pub wrong: &'static str,
    /// Where it is from.
    pub source: &'static str,
    sum: fn(&Figures) -> Vec<(&'static str, f64)>,
}

impl Rule {
    /// What the rule adds up, in bytes.
    pub fn terms(&self, figures: &Figures) -> Vec<(&'static str, Bytes)> {
        (self.sum)(figures).into_iter().map(|(name, bytes)| (name, Bytes(bytes as u64))).collect()
    }

    /// What the rule says that a run takes.
    pub fn total(&self, figures: &Figures) -> Bytes {
        Bytes((self.sum)(figures).iter().map(|(_, bytes)| bytes).sum::<f64>() as u64)
    }
}

const GB: f64 = 1e9;

/// The rules for what a scenario does.
pub fn rules(scenario: &Scenario) -> &'static [Rule] {
    if scenario.task.trains() { TRAINING } else { GENERATING }
}

/// Those for training every weight.
pub static TRAINING: &[Rule] = &[
    Rule {
        slug: "float32-states",
        name: "Weights, gradients, Adam in 32 bits",
        formula: "P·w + P·w + P·8 + tokens·hidden·layers·w",
        wrong: "One activation per layer is counted of the dozen or two that are kept, no logits and no float32 copy of them, and Adam's \
                states have 32 bits only where the weights have.",
        source: "memory requirements guide of StateSet Agents: Llama-2-7B, 84.5 GB",
        sum: |f| {
            vec![
                ("weights", f.parameters * f.width),
                ("optimizer", f.parameters * 8.0),
                ("gradients", f.parameters * f.width),
                ("activations", f.tokens * f.hidden * f.layers * f.width),
            ]
        },
    },
    Rule {
        slug: "calculator",
        name: "Calculator by constants",
        formula: "P·w·(2 + states) + tokens·(5·hidden + inner)·layers·w (× 0.3 where recomputed) + vocab·hidden·w + tokens·hidden·w",
        wrong: "The embedding is counted twice and the logits, a vocabulary wide and often the largest tensors of all, not once; \
                recomputation leaves a layer's input and not 30 %.",
        source: "gpu_memory_calculator.py: phi-2, batch 4 of 2,048, 32.24 GB",
        sum: |f| {
            let kept = if f.recomputed { 0.3 } else { 1.0 };
            vec![
                ("weights", f.parameters * f.width),
                ("gradients", f.parameters * f.width),
                ("optimizer", f.parameters * f.width * f.states),
                ("activations", f.activations() * kept),
                ("embeddings", f.vocab * f.hidden * f.width),
                ("input", f.tokens * f.hidden * f.width),
            ]
        },
    },
    Rule {
        slug: "fixed-and-samples",
        name: "Four times the weights, and 1 GB a sequence",
        formula: "P·w·4 + 2 GB overhead + 2 GB margin + sequences · 1 GB",
        wrong: "A sequence counts the same at 256 tokens and at 8,192; its own 14 GB for 8.03 billion parameters of 2 bytes are 16.",
        source: "memory-safe training guide of LatentWire: Llama-3.1-8B, 60 GB fixed",
        sum: |f| {
            let weights = f.parameters * f.width;
            vec![
                ("weights", weights),
                ("optimizer", 2.0 * weights),
                ("gradients", weights),
                ("overhead", 2.0 * GB),
                ("margin", 2.0 * GB),
                ("samples", f.sequences * GB),
            ]
        },
    },
    Rule {
        slug: "forgets-training",
        name: "The common wrong sum",
        formula: "P·w + 4 GB",
        wrong: "It is what loading a model takes: gradients and the optimizer's states come on top when training begins.",
        source: "memory-safe training guide of LatentWire, \"common mistakes\": 80 − 14 − 4 = 62 GB left where 20 are",
        sum: |f| vec![("weights", f.parameters * f.width), ("margin", 4.0 * GB)],
    },
    Rule {
        slug: "gpt2-trainer",
        name: "GPT-2 trainer's estimate",
        formula: "P·w·4 + tokens·hidden·layers·3 + tokens·hidden·2",
        wrong: "Activations are counted in numbers and added as if each were one byte; attention's scores and the logits are left out.",
        source: "memory estimation guide of AGI2: 30.12M parameters, 0.31 GB in 16 bits, 0.54 GB in 32",
        sum: |f| {
            vec![
                ("weights", f.parameters * f.width),
                ("optimizer", f.parameters * f.width * 2.0),
                ("gradients", f.parameters * f.width),
                ("activations", f.tokens * f.hidden * f.layers * 3.0),
                ("input and output", f.tokens * f.hidden * 2.0),
            ]
        },
    },
];

/// Those for generating.
pub static GENERATING: &[Rule] = &[
    Rule {
        slug: "weights-and-a-fifth",
        name: "Weights and a fifth",
        formula: "P·w · 1.2",
        wrong: "Keys and values grow with every sequence and every token, and the logits of a batch with its sequences: many or long \
                ones take several times the weights, and a short one not a fifth.",
        source: "Transformer Math 101 of EleutherAI: 1.2 × the model's memory",
        sum: |f| {
            let weights = f.parameters * f.stored;
            vec![("weights", weights), ("overhead", weights * 0.2)]
        },
    },
    Rule {
        slug: "weights-and-cache",
        name: "Weights, keys and values",
        formula: "P·w + 2·layers·hidden·tokens·w",
        wrong: "Keys and values are as wide as the model only without grouped heads (of Llama-3.1-8B they are a quarter), and shorter \
                behind sliding windows; logits and what a layer makes of the prompt are left out. Its own table has 18 GB for 8 \
                sequences of 7B where the formula gives 22.6.",
        source: "memory requirements guide of StateSet Agents: 8 sequences of 2,048 tokens, 8.6 GB of keys and values",
        sum: |f| vec![("weights", f.parameters * f.stored), ("KV cache", f.cache())],
    },
    Rule {
        slug: "calculator-inference",
        name: "Calculator by constants, for inference",
        formula: "P·w + 2·layers·hidden·tokens·w + vocab·hidden·w + tokens·hidden·w + 0.1·tokens·(5·hidden + inner)·layers·w",
        wrong: "The embedding is counted twice, keys and values as if heads were never grouped, and a tenth of what training keeps of \
                all layers stands for the one layer that is alive at a time.",
        source: "gpu_memory_calculator.py, mode inference: phi-2 in 16 bits, weights 5.18 GB and embeddings 0.24 GB as in training",
        sum: |f| {
            vec![
                ("weights", f.parameters * f.stored),
                ("KV cache", f.cache()),
                ("embeddings", f.vocab * f.hidden * f.width),
                ("input", f.tokens * f.hidden * f.width),
                ("activations", 0.1 * f.activations()),
            ]
        },
    },
];

/// What keeps the rules from being about a run at all: those of training are for training every weight.
pub fn about(scenario: &Scenario) -> Option<&'static str> {
    if !scenario.task.trains() {
        return (scenario.method == Method::Qlora)
            .then_some("The weights are quantised here, to 4 bits unless another format is chosen: the rules count them so too.");
    }
    match scenario.method {
        Method::Full => None,
        Method::Lora => Some(
            "They are rules for training every weight: with LoRA gradients and the optimizer's states are those of the adapters alone.",
        ),
        Method::Qlora => Some(
            "They are rules for training every weight: with QLoRA gradients and the optimizer's states are those of the adapters alone, and the weights are stored in fewer bits.",
        ),
    }
}

/// What the rules are to be held against, which know a single GPU: what a run needs, or would if one GPU held all of it; nothing where
/// it could not run so.
pub fn held_against(scenario: &Scenario, needed: Bytes) -> Option<Bytes> {
    if !scenario.cluster.is_many() {
        return Some(needed);
    }
    let alone = Scenario { cluster: Cluster::ONE, ..scenario.clone() };
    estimate(&alone).memory.as_ref().map(Memory::needed)
}

/// What the rules are held against where the run has several GPUs, in words.
pub fn of_one_gpu(scenario: &Scenario, alone: &str) -> Option<String> {
    scenario.cluster.is_many().then(|| {
        format!(
            "They are rules for a single GPU: on one the run would need {alone}, which they are held against."
        )
    })
}

/// How demanding a run is, as the guide of AGI2 has it by what is needed.
pub fn level(needed: Bytes) -> &'static str {
    let gib = needed.0 as f64 / BYTES_PER_GIB as f64;
    match gib {
        under if under < 4.0 => "reasonable: any card of the last years has that",
        under if under < 8.0 => "moderate: watch the memory on an 8 GB card",
        under if under < 12.0 => "high: a 12 GB card at least, or a smaller batch",
        _ => "very high: a large card or several",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Sharding;

    const NOTHING: Figures = Figures {
        parameters: 0.0,
        hidden: 0.0,
        inner: 0.0,
        layers: 0.0,
        vocab: 0.0,
        tokens: 0.0,
        sequences: 0.0,
        width: 2.0,
        states: 2.0,
        recomputed: false,
        stored: 2.0,
        cached: true,
    };

    #[test]
    fn rules_of_one_gpu_are_held_against_one_gpu() {
        let scenario =
            Scenario { method: Method::Full, precision: Precision::AmpBf16, ..Scenario::default() };
        let needed = |scenario: &Scenario| estimate(scenario).memory.as_ref().map(Memory::needed);
        let alone = needed(&scenario).expect("an answer");
        assert_eq!(held_against(&scenario, alone), Some(alone));
        let cluster = Cluster { gpus: 8, sharding: Sharding::Fsdp2, ..Cluster::ONE };
        let sharded = Scenario { cluster, ..scenario };
        let of_each = needed(&sharded).expect("an answer");
        assert!(of_each < alone);
        assert_eq!(held_against(&sharded, of_each), Some(alone));
    }

    #[test]
    fn states_in_the_cpus_memory_are_not_counted() {
        let figures = |optimizer| {
            let scenario = Scenario { method: Method::Full, optimizer, ..Scenario::default() };
            Figures::of(&scenario, &scenario.architecture().expect("a model"))
        };
        let [usual, on_cpu, leaving] =
            [Optimizer::AdamW, Optimizer::AdamWCpuOffload, Optimizer::AdamWCpuOffloadGradients].map(figures);
        assert_eq!((usual.states, on_cpu.states, leaving.states), (2.0, 0.0, 0.0));
    }

    #[track_caller]
    fn rule(slug: &str) -> &'static Rule {
        TRAINING.iter().chain(GENERATING).find(|rule| rule.slug == slug).expect("a rule")
    }

    /// A total as a guide prints it, in units of so many bytes.
    #[track_caller]
    fn assert_prints(slug: &str, figures: Figures, unit: f64, decimals: usize, printed: &str) {
        let total = rule(slug).total(&figures).0 as f64 / unit;
        assert_eq!(format!("{total:.decimals$}"), printed, "{slug}");
    }

    const GIB: f64 = BYTES_PER_GIB as f64;

    #[test]
    fn llama_2_7b_is_84_5_gb() {
        let figures = Figures { parameters: 7e9, hidden: 4096.0, layers: 32.0, tokens: 2048.0, ..NOTHING };
        assert_prints("float32-states", figures, GB, 1, "84.5");
    }

    #[test]
    fn phi_2_is_32_24_gb() {
        let figures = Figures {
            parameters: 2_779_683_840.0,
            hidden: 2560.0,
            inner: 10_240.0,
            layers: 32.0,
            vocab: 51_200.0,
            tokens: 4.0 * 2048.0,
            ..NOTHING
        };
        assert_prints("calculator", figures, GIB, 2, "32.24");
        let terms = rule("calculator").terms(&figures);
        let printed: Vec<String> =
            terms.iter().map(|(_, bytes)| format!("{:.2}", bytes.0 as f64 / GIB)).collect();
        assert_eq!(printed, ["5.18", "5.18", "10.36", "11.25", "0.24", "0.04"]);
    }

    #[test]
    fn eight_sequences_of_7b_keep_8_6_gb_of_keys_and_values() {
        let figures =
            Figures { parameters: 7e9, hidden: 4096.0, layers: 32.0, tokens: 8.0 * 2048.0, ..NOTHING };
        let terms = rule("weights-and-cache").terms(&figures);
        let printed: Vec<String> =
            terms.iter().map(|(_, bytes)| format!("{:.1}", bytes.0 as f64 / GB)).collect();
        assert_eq!(printed, ["14.0", "8.6"]);
        // the guide's table says 18 GB
        assert_prints("weights-and-cache", figures, GB, 1, "22.6");
        assert_prints("weights-and-cache", Figures { cached: false, ..figures }, GB, 0, "14");
        // "7B 4-bit", one sequence: "4.5 GB"
        let one = Figures { tokens: 2048.0, stored: 0.5, ..figures };
        assert_prints("weights-and-cache", one, GB, 1, "4.6");
        assert_prints("weights-and-a-fifth", figures, GB, 1, "16.8");
    }

    #[test]
    fn phi_2_has_the_same_weights_and_embeddings_where_it_generates() {
        let figures = Figures {
            parameters: 2_779_683_840.0,
            hidden: 2560.0,
            inner: 10_240.0,
            layers: 32.0,
            vocab: 51_200.0,
            tokens: 4.0 * 2048.0,
            ..NOTHING
        };
        let terms = rule("calculator-inference").terms(&figures);
        let printed: Vec<String> =
            terms.iter().map(|(_, bytes)| format!("{:.2}", bytes.0 as f64 / GIB)).collect();
        // training's 5.18, 0.24 and 0.04, and a tenth of its 11.25
        assert_eq!(printed, ["5.18", "2.50", "0.24", "0.04", "1.12"]);
    }

    #[test]
    fn llama_3_1_8b_is_60_gb_fixed_and_a_h100_has_20_left() {
        // "14 GB"
        let figures = Figures { parameters: 7e9, ..NOTHING };
        assert_prints("fixed-and-samples", figures, GB, 0, "60");
        assert_prints("fixed-and-samples", Figures { sequences: 20.0, ..figures }, GB, 0, "80");
        let left = 80.0 - rule("forgets-training").total(&figures).0 as f64 / GB;
        assert_eq!(left, 62.0);
    }

    #[test]
    fn a_gpt_2_of_30_million_is_0_31_gb() {
        let of = |hidden: f64, layers: f64, batch: f64, width: f64| Figures {
            parameters: 50_257.0 * hidden + 512.0 * hidden + layers * (12.0 * hidden * hidden + 2.0 * hidden),
            hidden,
            layers,
            tokens: batch * 512.0,
            width,
            ..NOTHING
        };
        let small = of(384.0, 6.0, 24.0, 2.0);
        assert_eq!(format!("{:.2}", small.parameters / 1e6), "30.12");
        assert_prints("gpt2-trainer", small, GIB, 2, "0.31");
        assert_prints("gpt2-trainer", Figures { width: 4.0, ..small }, GIB, 2, "0.54");
        assert_prints("gpt2-trainer", of(768.0, 12.0, 8.0, 2.0), GIB, 2, "1.03");
        // the guide prints 442.37M parameters and 3.67 GB for these dimensions; its own formula counts 354.03M
        let large = of(1024.0, 24.0, 4.0, 2.0);
        assert_eq!(format!("{:.2}", large.parameters / 1e6), "354.03");
        assert_prints("gpt2-trainer", large, GIB, 2, "2.78");
    }

    #[test]
    fn levels_are_those_of_the_guide() {
        let words = |gib: f64| level(Bytes::gib(gib)).split(':').next().unwrap_or_default();
        assert_eq!([0.31, 4.5, 8.0, 60.0].map(words), ["reasonable", "moderate", "high", "very high"]);
    }

    #[test]
    fn rules_are_said_to_be_for_training_every_weight() {
        let of = |link: &str| about(&crate::share::decode(link).scenarios[0]);
        assert_eq!(of("method=full"), None);
        assert_eq!(of("task=generate&method=full"), None);
        assert!(of("task=generate&method=qlora").is_some_and(|words| words.contains("quantised")));
        for link in ["method=lora", "method=qlora"] {
            assert!(of(link).is_some_and(|words| words.contains("every weight")), "{link}");
        }
    }

    #[test]
    fn every_rule_answers_every_scenario() {
        for link in ["v=1", "v=1&task=generate&b=4&s=1000&new=24&p=bf16"] {
            let scenario = crate::share::decode(link).scenarios.remove(0);
            let figures = Figures::of(&scenario, &scenario.architecture().expect("a model"));
            assert_eq!((figures.inner, figures.layers), (14_336.0, 32.0));
            for rule in rules(&scenario) {
                let sum = rule.terms(&figures).iter().map(|(_, bytes)| bytes.0).sum::<u64>();
                assert!(rule.total(&figures).0.abs_diff(sum) <= 10, "{}", rule.slug);
            }
            if !scenario.task.trains() {
                // 4-bit weights, and what was written has keys and values too
                assert_eq!((figures.stored, figures.tokens, figures.cached), (0.5, 4.0 * 1024.0, true));
            }
        }
    }
}
