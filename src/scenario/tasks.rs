//! What tasks work with beside the model and its training: answers, pictures, an evaluation, what stands before and after the steps.

use crate::model::vision::{Picture, Vision};

use super::choices::{
    CacheKind, Evaluates, Merges, Pooling, Reference, Rollouts, Sampling, Saves, ServedCache, VisionTower,
};

/// How a model generates; read for `Task::Generate`, whose prompt is as long as the scenario's sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generation {
    /// The most tokens that it writes (`max_new_tokens`).
    pub new_tokens: u64,
    /// What it keeps of earlier tokens.
    pub cache: CacheKind,
    /// How it chooses.
    pub sampling: Sampling,
}

/// How vLLM serves the model beside its share of the card (`Reserve::vllm`); read for `Task::Generate`, by what answers for vLLM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Serving {
    /// Tokens that it computes at a time (`max_num_batched_tokens`); 0 for its own choice.
    pub batched_tokens: u64,
    /// Sequences that it runs at once (`max_num_seqs`); 0 for its own choice.
    pub sequences: u64,
    /// What it keeps keys and values in (`kv_cache_dtype`).
    pub cache: ServedCache,
}

impl Serving {
    /// Where `vllm serve` is told nothing.
    pub const DEFAULT: Serving = Serving { batched_tokens: 0, sequences: 0, cache: ServedCache::Auto };
}

/// The pictures in each sequence; read where the model has a tower of which a step is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pictures {
    /// How many.
    pub count: u64,
    /// Rows of pixels of each, before the processor resizes it.
    pub height: u64,
    /// Columns of pixels.
    pub width: u64,
    /// Frames of each, as they are sampled, where they are videos; 1 is a picture.
    pub frames: u64,
    /// Whether the tower that looks at them is trained.
    pub tower: VisionTower,
}

impl Pictures {
    /// Text alone.
    pub const NONE: Pictures =
        Pictures { count: 0, height: 448, width: 448, frames: 1, tower: VisionTower::Trained };

    /// What they are called before that tower: frames make no difference where no video is followed.
    pub(crate) fn named(self, vision: &Vision) -> &'static str {
        if self.frames > 1 && vision.video.is_some() { "videos" } else { "pictures" }
    }

    /// One of them.
    pub fn each(self) -> Picture {
        Picture { height: self.height, width: self.width, frames: self.frames }
    }
}

/// What a task beyond fine-tuning works with; read where it is not `Task::Sft`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answers {
    /// Tokens at the beginning of each sequence that are the prompt: the rest is the answer.
    pub prompt: u64,
    /// Where the reference's scores come from.
    pub reference: Reference,
    /// Who generates the answers; read where they are generated while it trains.
    pub rollouts: Rollouts,
    /// Numbers for each text (`num_labels`); read where texts are classified.
    pub labels: u64,
}

/// What of which texts is embedded; read for `Task::Embed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Embedding {
    /// Texts of each example: an anchor, what belongs to it, and negatives.
    pub texts: u64,
    /// Texts that run at a time, where the gradients by their embeddings are cached (`CachedMultipleNegativesRankingLoss`,
    /// `mini_batch_size`; GradCache, Gao et al. 2021, arXiv:2101.06983); 0 where all run at once.
    pub cached: u64,
    /// What of their hidden states becomes the embedding.
    pub pooling: Pooling,
}

/// How trl's `PPOTrainer` goes through a batch of answers; read for `Task::Ppo`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyBatches {
    /// Answers that are generated and scored at a time (`local_rollout_forward_batch_size`).
    pub rollout: u64,
    /// Into how many parts a batch is divided, after each of which the cache is emptied (`num_mini_batches`).
    pub parts: u64,
    /// How often a batch is learned from (`num_ppo_epochs`).
    pub epochs: u64,
}

/// What the trainer evaluates after some of its steps (transformers' `Trainer.evaluate`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evaluation {
    /// Whether it does, and what of each batch it keeps.
    pub keeps: Evaluates,
    /// Sequences of a batch (`per_device_eval_batch_size`).
    pub batch: u64,
    /// Batches whose logits are joined on the GPU before they go to the CPU's memory (`eval_accumulation_steps`); 0 for all of them.
    pub accumulation: u64,
    /// Batches of the evaluation.
    pub batches: u64,
}

impl Evaluation {
    /// None, and what it is by default where there is one: transformers' own numbers, and so many batches as a first answer.
    pub const OFF: Evaluation = Evaluation { keeps: Evaluates::Off, batch: 8, accumulation: 0, batches: 16 };

    /// Batches whose logits are on the GPU together.
    pub fn joined(&self) -> u64 {
        if self.accumulation == 0 { self.batches } else { self.accumulation.min(self.batches) }.max(1)
    }
}

/// What happens outside the steps of a training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spikes {
    /// Whether the trainer makes a checkpoint after some of its steps (`save_strategy`), and what it has of weights that are divided.
    pub saving: Saves,
    /// Where adapters are merged into the weights in the end.
    pub merging: Merges,
}

impl Spikes {
    /// Nothing of it is looked at.
    pub const OFF: Spikes = Spikes { saving: Saves::Off, merging: Merges::Off };
}
