//! Examples worth looking at.

use crate::scenario::{
    Answers, Checkpointing, Cluster, CpuOffload, Divergence, Embedding, GpuChoice, Mask, Method, ModelChoice,
    Optimizer, Pictures, PolicyBatches, Pooling, Precision, Quantization, Reference, Reserve, Rollouts,
    Scenario, Sharding, Stack, Task, Teacher, TeacherWeights, WrappedBy,
};

/// A scenario with a name.
pub struct Preset {
    /// What its button says.
    pub label: &'static str,
    /// Why one would look at it.
    pub help: &'static str,
    /// The scenario.
    pub scenario: fn() -> Scenario,
}

/// Every example: the first are of several kinds, of the others small cards come first.
pub static PRESETS: &[Preset] = &[
    Preset {
        label: "1B full, 12 GB",
        help: "Every weight of a small model on a laptop's card",
        scenario: || Scenario {
            gpu: GpuChoice::Catalogue("rtx-3060-12gb".into()),
            optimizer: Optimizer::PagedAdamW8bit,
            sequence: 1024,
            ..full("meta-llama/Llama-3.2-1B-Instruct")
        },
    },
    Preset {
        label: "7B QLoRA, free T4",
        help: "What a free notebook's 16 GB card carries",
        scenario: || Scenario {
            model: ModelChoice::Catalogue("Qwen/Qwen2.5-7B-Instruct".into()),
            precision: Precision::AmpFp16,
            sequence: 1024,
            gpu: GpuChoice::Catalogue("t4".into()),
            ..Scenario::default()
        },
    },
    Preset {
        label: "8B full, 8 × 80 GB",
        help: "Every weight of a model of the usual size, in shards on a machine of eight",
        scenario: || Scenario {
            precision: Precision::AmpBf16,
            cluster: EIGHT,
            gpu: GpuChoice::Catalogue("h100-sxm-80gb".into()),
            ..full("meta-llama/Llama-3.1-8B")
        },
    },
    Preset {
        label: "8B chat, 24 GB",
        help: "Generation on a gaming card: four prompts at once, with the keys and values of all their tokens",
        scenario: || Scenario {
            task: Task::Generate,
            method: Method::Full,
            precision: Precision::Bf16,
            batch: 4,
            sequence: 4096,
            ..Scenario::default()
        },
    },
    Preset {
        label: "8B DPO, QLoRA, 24 GB",
        help: "Preferences on one card: the model with its adapters off is its own reference",
        scenario: || preference(Task::Dpo),
    },
    Preset {
        label: "8B ORPO, QLoRA, 24 GB",
        help: "Preferences without a reference: all logits of both answers are there",
        scenario: || preference(Task::Orpo),
    },
    Preset {
        label: "8B CPO, QLoRA, 24 GB",
        help: "Preferences without a reference: the answer that is preferred is learned from as well",
        scenario: || preference(Task::Cpo),
    },
    Preset {
        label: "8B SimPO, QLoRA, 24 GB",
        help: "Preferences without a reference, by how likely each token of an answer is on average",
        scenario: || preference(Task::Simpo),
    },
    Preset {
        label: "8B KTO, QLoRA, 24 GB",
        help: "Answers that are good or bad, in no pairs: the model scores answers to other prompts, too",
        scenario: || Scenario { batch: 4, ..preference(Task::Kto) },
    },
    Preset {
        label: "8B reward model, LoRA, 24 GB",
        help: "A head of one number in place of the vocabulary: pairs of whole texts",
        scenario: || Scenario { method: Method::Lora, ..preference(Task::Reward) },
    },
    Preset {
        label: "Embeddings, 16 GB",
        help: "In-batch negatives: 1,024 questions and their answers, whose gradients are cached 32 at a time",
        scenario: || Scenario {
            task: Task::Embed,
            embedding: Embedding { texts: 2, cached: 32, pooling: Pooling::First },
            mask: Mask::Padded,
            batch: 1024,
            sequence: 256,
            gpu: GpuChoice::Catalogue("t4".into()),
            precision: Precision::AmpFp16,
            ..full("FacebookAI/xlm-roberta-large")
        },
    },
    Preset {
        label: "Reranker, 16 GB",
        help: "A score for a question and a text together: an encoder with a head of one number",
        scenario: || Scenario {
            task: Task::Classify,
            answers: Answers { labels: 1, ..Scenario::default().answers },
            mask: Mask::Padded,
            batch: 16,
            sequence: 512,
            gpu: GpuChoice::Catalogue("t4".into()),
            precision: Precision::AmpFp16,
            ..full("FacebookAI/xlm-roberta-large")
        },
    },
    Preset {
        label: "7B GRPO, LoRA, 80 GB",
        help: "Reinforcement on one card: eight answers to a prompt, which a server elsewhere generates",
        scenario: || Scenario { task: Task::Grpo, ..reinforcement(Reference::None) },
    },
    Preset {
        label: "7B GRPO, vLLM beside it, 80 GB",
        help: "The same with a vLLM on the card, which has 30 % of it all the while",
        scenario: || Scenario {
            task: Task::Grpo,
            reserve: Reserve { vllm: 30, ..Reserve::NONE },
            ..reinforcement(Reference::None)
        },
    },
    Preset {
        label: "7B RLOO, LoRA, 80 GB",
        help: "Reinforcement that is held near the model as it was: with its adapters off it is its own reference",
        scenario: || Scenario { task: Task::Rloo, ..reinforcement(Reference::Scored) },
    },
    Preset {
        label: "1.5B PPO, 80 GB",
        help: "Reinforcement with a value model: a policy, what values its answers, what rewards them, and the policy as it was, all on one card",
        scenario: || Scenario {
            task: Task::Ppo,
            answers: Answers {
                prompt: 256,
                reference: Reference::Scored,
                rollouts: Rollouts::Server,
                labels: 2,
            },
            policy: PolicyBatches { rollout: 16, parts: 1, epochs: 4 },
            precision: Precision::Bf16,
            stack: Stack::Trl,
            mask: Mask::Padded,
            checkpointing: Checkpointing::Off,
            batch: 4,
            accumulation: 4,
            sequence: 384,
            gpu: GpuChoice::Catalogue("a100-sxm-80gb".into()),
            ..full("Qwen/Qwen2.5-1.5B-Instruct")
        },
    },
    Preset {
        label: "1B from 8B, 40 GB",
        help: "Distillation: a small model learns all its weights anew from a larger one, which lies beside it on the card",
        scenario: || Scenario {
            task: Task::Distil,
            answers: Answers {
                prompt: 256,
                reference: Reference::Scored,
                rollouts: Rollouts::Server,
                labels: 2,
            },
            teacher: Teacher {
                model: Some(ModelChoice::Catalogue("meta-llama/Llama-3.1-8B".into())),
                weights: TeacherWeights::Bf16,
                divergence: Divergence::Tiles,
            },
            stack: Stack::Trl,
            mask: Mask::Padded,
            sequence: 1024,
            gpu: GpuChoice::Catalogue("a100-sxm-40gb".into()),
            ..full("meta-llama/Llama-3.2-1B-Instruct")
        },
    },
    Preset {
        label: "7B pictures, QLoRA, 24 GB",
        help: "A vision-language model with a picture in every text, its tower adapted too",
        scenario: || Scenario {
            model: ModelChoice::Catalogue("Qwen/Qwen2.5-VL-7B-Instruct".into()),
            pictures: Pictures { count: 1, height: 1024, width: 1024, ..Pictures::NONE },
            ..Scenario::default()
        },
    },
    Preset {
        label: "8B full, 80 GB",
        help: "Every weight of a model of the usual size on one card of a data centre",
        scenario: || Scenario {
            optimizer: Optimizer::AdamW8bit,
            gpu: GpuChoice::Catalogue("a100-sxm-80gb".into()),
            ..full("meta-llama/Llama-3.1-8B")
        },
    },
    Preset {
        label: "70B QLoRA, 80 GB",
        help: "A large model on one card, its weights in 4 bits",
        scenario: || Scenario {
            model: ModelChoice::Catalogue("meta-llama/Llama-3.3-70B-Instruct".into()),
            optimizer: Optimizer::PagedAdamW8bit,
            gpu: GpuChoice::Catalogue("h100-sxm-80gb".into()),
            ..Scenario::default()
        },
    },
    Preset {
        label: "70B QLoRA, 2 × 24 GB",
        help: "A large model on two gaming cards: 4-bit weights in shards that wait in the CPU's memory",
        scenario: || Scenario {
            model: ModelChoice::Catalogue("meta-llama/Llama-3.3-70B-Instruct".into()),
            precision: Precision::Bf16,
            quantization: Quantization { prepare: false, ..Scenario::default().quantization },
            cluster: Cluster { gpus: 2, cpu: CpuOffload::All, ..EIGHT },
            gpu: GpuChoice::Catalogue("rtx-4090".into()),
            ..Scenario::default()
        },
    },
    Preset {
        label: "70B LoRA, 8 × 80 GB",
        help: "A large model with its weights in 16 bits, in shards on a machine of eight",
        scenario: || Scenario {
            model: ModelChoice::Catalogue("meta-llama/Llama-3.3-70B-Instruct".into()),
            method: Method::Lora,
            precision: Precision::Bf16,
            cluster: EIGHT,
            gpu: GpuChoice::Catalogue("h100-sxm-80gb".into()),
            ..Scenario::default()
        },
    },
    Preset {
        label: "70B full, 64 × 80 GB",
        help: "Every weight of a large model, in shards on eight machines of eight",
        scenario: || Scenario {
            precision: Precision::AmpBf16,
            cluster: Cluster { gpus: 64, wrapped_by: WrappedBy::Accelerate, ..EIGHT },
            gpu: GpuChoice::Catalogue("h100-sxm-80gb".into()),
            ..full("meta-llama/Llama-3.1-70B")
        },
    },
];

const EIGHT: Cluster = Cluster { gpus: 8, sharding: Sharding::Fsdp2, ..Cluster::ONE };

/// QLoRA of the usual model by trl, on pairs of answers or on one at a time.
fn preference(task: Task) -> Scenario {
    Scenario { task, stack: Stack::Trl, mask: Mask::Padded, sequence: 1024, ..Scenario::default() }
}

/// LoRA by trl, on eight answers to a prompt that something else generates.
fn reinforcement(reference: Reference) -> Scenario {
    Scenario {
        answers: Answers { prompt: 256, reference, rollouts: Rollouts::Server, labels: 2 },
        model: ModelChoice::Catalogue("Qwen/Qwen2.5-7B-Instruct".into()),
        method: Method::Lora,
        stack: Stack::Trl,
        mask: Mask::Padded,
        batch: 8,
        sequence: 1280,
        gpu: GpuChoice::Catalogue("a100-sxm-80gb".into()),
        ..Scenario::default()
    }
}

fn full(model: &str) -> Scenario {
    Scenario {
        model: ModelChoice::Catalogue(model.into()),
        method: Method::Full,
        precision: Precision::Bf16,
        checkpointing: Checkpointing::NonReentrant,
        ..Scenario::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Answer, Verdict};

    #[test]
    fn every_example_is_answered_and_fits() {
        for preset in PRESETS {
            let answer = Answer::of((preset.scenario)());
            assert_eq!(
                answer.verdict(),
                Some(Verdict::Fits),
                "{}: {:?}",
                preset.label,
                answer.estimate.issues
            );
        }
    }
}
