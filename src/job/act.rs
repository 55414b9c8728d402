//! What is done with a model in a round, and what a model is trained towards.

use super::batch::Batch;
use crate::scenario::{Divergence, Evaluation, Generation, VllmShare};

/// Something that is done with a model; members are named by their place in [`Job::members`](super::Job::members).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Act {
    /// Forward and backward passes: the micro-batches of one step.
    Train {
        /// Who is trained.
        member: usize,
        /// What each pass is given.
        batch: Batch,
        /// What it is trained towards.
        loss: Loss,
        /// How many micro-batches (gradient accumulation).
        times: u64,
    },
    /// Clipping, the optimizer's step, `zero_grad`.
    Update {
        /// Whose parameters step.
        member: usize,
    },
    /// Forward passes without gradients and without a loss. trl's fused head makes log-probabilities, which wait until the end
    /// of the round; other code makes logits, which go at once.
    Score {
        /// Who scores.
        member: usize,
        /// Whether with its adapters on.
        adapted: bool,
        /// What each pass is given.
        batch: Batch,
        /// Tokens at the beginning of each sequence that are not scored.
        prompt: u64,
        /// How many batches.
        times: u64,
    },
    /// `batch_generation` of trl's `PPOTrainer`: answers to some of a round's prompts at a time, of which the scores of every token
    /// are kept until the next round's have been generated.
    Rollout {
        /// Who generates.
        member: usize,
        /// The prompts of a time.
        batch: Batch,
        /// How.
        how: Generation,
        /// How many times.
        times: u64,
    },
    /// The trainer's evaluation: forward passes without gradients up to the loss, and the logits that are kept of them.
    Evaluate {
        /// Who is evaluated.
        member: usize,
        /// What each pass is given.
        batch: Batch,
        /// What is kept of how many of them.
        how: Evaluation,
    },
    /// The trainer's checkpoint after a step: `save_pretrained` of the weights or adapters, and the optimizer's state.
    Save {
        /// Whose.
        member: usize,
        /// Whether weights that are divided become whole for it, one after the other.
        gathers: bool,
    },
    /// peft's `merge_and_unload` after the last round: adapters are merged into the weights.
    Merge {
        /// Whose adapters.
        member: usize,
    },
    /// vLLM wakes that slept while the model was trained, is given its weights, generates the answers, and sleeps again (trl 1.16
    /// generation/vllm_generation.py). The allocator's cache is emptied before and behind it.
    Wake {
        /// Whose weights it is given.
        member: usize,
        /// What it has of the card.
        share: VllmShare,
    },
    /// transformers' `generate`: a forward pass over the prompts, then one for every new token.
    Generate {
        /// Who generates.
        member: usize,
        /// The prompts.
        batch: Batch,
        /// How.
        how: Generation,
    },
}

/// Who scores a batch that a model is trained on, for the model to be held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scorer {
    /// Another member.
    Member(usize),
    /// The trained model with its adapters off.
    WithoutAdapters,
    /// Nobody: a number for each sequence comes with the batch (`precompute_ref_log_probs`).
    Precomputed,
}

/// What a model is trained towards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Loss {
    /// The labels of the batch: cross entropy.
    Labels,
    /// Answers that are preferred to others (DPO): the batch holds the chosen ones, then as many rejected ones. The
    /// reference scores it while the trained model's graph waits for backward, as trl's `DPOTrainer` has it.
    Preference {
        /// Who scores the batch beside.
        reference: Scorer,
        /// Tokens at the beginning of each sequence that are not scored.
        prompt: u64,
    },
    /// Answers each of which is good or bad (KTO), as trl's `KTOTrainer` has it: the model scores answers to other prompts
    /// first, without gradients, and the reference both those and the batch while the model's graph waits for backward.
    Desirability {
        /// Who scores beside.
        reference: Scorer,
        /// Tokens at the beginning of each sequence that are not scored.
        prompt: u64,
    },
    /// Answers that are preferred to others, without a reference (ORPO, CPO, SimPO): the batch holds the chosen ones, then as
    /// many rejected ones, and all their logits are there, as trl's `ORPOTrainer` and `CPOTrainer` have it.
    Odds {
        /// What of the chosen ones is learned as in fine-tuning.
        likelihood: Likelihood,
        /// Tokens at the beginning of each sequence that are not scored.
        prompt: u64,
    },
    /// The classes of whole texts, or one number for each: cross entropy, or what a number is off.
    Classes,
    /// Texts whose embeddings shall lie near that of what they belong to and far from all others of the batch, as
    /// sentence-transformers' `MultipleNegativesRankingLoss` has it: the batch holds the anchors, beside which as many texts of each
    /// other column are embedded.
    Contrast {
        /// Texts of each example, the anchor among them.
        texts: u64,
        /// Texts that run at a time, where the gradients by their embeddings are cached; 0 where all run at once.
        cached: u64,
    },
    /// Texts that are better than others, by one number for each (a reward model): the batch holds the better ones, then as
    /// many worse ones, as trl's `RewardTrainer` has it.
    Comparison,
    /// Answers that were generated and rewarded (GRPO, RLOO): each token, or each answer, by how much likelier it has become, as
    /// trl's `GRPOTrainer` and `RLOOTrainer` have it. What it was scored with before comes from the round's [`Act::Score`].
    Reward {
        /// Tokens at the beginning of each sequence that are not scored.
        prompt: u64,
        /// Whether a reference's scores are held against the model's token by token (`beta` is not 0).
        referred: bool,
        /// Whether an answer has one number rather than one for each token.
        whole: bool,
        /// Whether each token counts by how likely the model that is trained finds it beside who generated it
        /// (`vllm_importance_sampling_correction`).
        corrected: bool,
    },
    /// Answers that the model generated, by how much better each token turned out than a value model thought it would (PPO), as
    /// trl's `PPOTrainer` has it: policy and value model run one after the other and go backward as one graph.
    Advantage {
        /// The value model: another member, which is trained beside.
        value: usize,
        /// Tokens at the beginning of each sequence that are not scored.
        prompt: u64,
        /// Micro-batches up to which what the last one left is in variables of the script (those of a mini-batch).
        each: u64,
        /// How often the round's answers are learned from, one update each.
        epochs: u64,
    },
    /// Answers of which each token shall have the probabilities that a teacher gives it, as trl's `DistillationTrainer` and `GKDTrainer` have it.
    /// The teacher runs over the batch while the student's graph waits for backward.
    Divergence {
        /// The teacher: another member.
        teacher: usize,
        /// Tokens at the beginning of each sequence that are not learned.
        prompt: u64,
        /// How both models' probabilities are compared.
        divergence: Divergence,
    },
}

/// What of the better answers is learned by cross entropy beside a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Likelihood {
    /// Nothing (`cpo_alpha=0`).
    Nothing,
    /// The answer (`CPOTrainer`).
    Answer,
    /// The prompt and the answer (`ORPOTrainer`).
    Text,
}

impl Loss {
    /// Whether trl adds to it how unevenly a mixture's experts were chosen (`router_aux_loss_coef`). ORPO and CPO do so where a model's
    /// configuration asks for its routers' logits, rewards of texts and distillation never.
    pub(crate) fn balances(self) -> bool {
        match self {
            Loss::Labels | Loss::Preference { .. } | Loss::Desirability { .. } | Loss::Reward { .. } => true,
            Loss::Odds { .. }
            | Loss::Classes
            | Loss::Contrast { .. }
            | Loss::Comparison
            | Loss::Advantage { .. }
            | Loss::Divergence { .. } => false,
        }
    }
}

impl Act {
    /// Whether it belongs to fine-tuning or classification, or to what their trainers do beside: evaluations, checkpoints, merged adapters.
    pub(crate) fn is_of_fine_tuning(&self) -> bool {
        matches!(
            self,
            Act::Train { loss: Loss::Labels | Loss::Classes, .. }
                | Act::Update { .. }
                | Act::Evaluate { .. }
                | Act::Save { .. }
                | Act::Merge { .. }
        )
    }

    /// A pass over one batch, of whose every token the next one is scored, by a member as it is.
    pub fn score(member: usize, batch: Batch) -> Act {
        Act::Score { member, adapted: true, batch, prompt: 1, times: 1 }
    }

    /// The batch that it is given.
    pub fn batch(&self) -> Option<Batch> {
        match self {
            Act::Train { batch, .. }
            | Act::Score { batch, .. }
            | Act::Rollout { batch, .. }
            | Act::Evaluate { batch, .. }
            | Act::Generate { batch, .. } => Some(*batch),
            Act::Update { .. } | Act::Save { .. } | Act::Merge { .. } | Act::Wake { .. } => None,
        }
    }

    /// The same with another batch, where it is given one.
    pub fn map_batch(self, change: impl FnOnce(Batch) -> Batch) -> Act {
        match self {
            Act::Train { member, batch, loss, times } => {
                Act::Train { member, batch: change(batch), loss, times }
            }
            Act::Score { member, adapted, batch, prompt, times } => {
                Act::Score { member, adapted, batch: change(batch), prompt, times }
            }
            Act::Rollout { member, batch, how, times } => {
                Act::Rollout { member, batch: change(batch), how, times }
            }
            Act::Evaluate { member, batch, how } => Act::Evaluate { member, batch: change(batch), how },
            Act::Generate { member, batch, how } => Act::Generate { member, batch: change(batch), how },
            Act::Update { member } => Act::Update { member },
            Act::Save { member, gathers } => Act::Save { member, gathers },
            Act::Merge { member } => Act::Merge { member },
            Act::Wake { .. } => self,
        }
    }

    /// How many batches it is given in a round (gradient accumulation).
    pub fn times(&self) -> u64 {
        match *self {
            Act::Train { times, .. } | Act::Score { times, .. } | Act::Rollout { times, .. } => times,
            Act::Update { .. }
            | Act::Evaluate { .. }
            | Act::Save { .. }
            | Act::Merge { .. }
            | Act::Wake { .. }
            | Act::Generate { .. } => 1,
        }
    }

    /// Whose act it is.
    pub fn member(&self) -> usize {
        match *self {
            Act::Train { member, .. }
            | Act::Update { member }
            | Act::Score { member, .. }
            | Act::Rollout { member, .. }
            | Act::Evaluate { member, .. }
            | Act::Save { member, .. }
            | Act::Merge { member }
            | Act::Wake { member, .. }
            | Act::Generate { member, .. } => member,
        }
    }

    /// The members that it runs: whose act it is, and a reference or a value model.
    pub fn members(&self) -> impl Iterator<Item = usize> + use<> {
        let reference = match *self {
            Act::Train {
                loss:
                    Loss::Preference { reference: Scorer::Member(reference), .. }
                    | Loss::Desirability { reference: Scorer::Member(reference), .. }
                    | Loss::Divergence { teacher: reference, .. }
                    | Loss::Advantage { value: reference, .. },
                ..
            } => Some(reference),
            Act::Train { .. }
            | Act::Update { .. }
            | Act::Score { .. }
            | Act::Rollout { .. }
            | Act::Evaluate { .. }
            | Act::Save { .. }
            | Act::Merge { .. }
            | Act::Wake { .. }
            | Act::Generate { .. } => None,
        };
        [self.member()].into_iter().chain(reference)
    }
}
