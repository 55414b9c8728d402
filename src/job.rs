//! What runs on a card: models with everything that belongs to them, and what is done with them round after round.
//!
//! A [`Scenario`] is a job of its one model: training, then the optimizer's step. Direct preference optimisation (DPO) of all
//! weights is two models, of which one is trained and the other, the model as it was, scores the same batch:
//!
//! ```
//! use headroom::job::Job;
//! use headroom::scenario::{Method, ModelChoice, Precision, Scenario, Stack, Task};
//! use headroom::{memory::Stage, step};
//!
//! let scenario = Scenario {
//!     task: Task::Dpo,
//!     model: ModelChoice::Catalogue("Qwen/Qwen3-0.6B".into()),
//!     stack: Stack::Trl,
//!     method: Method::Full,
//!     precision: Precision::AmpBf16,
//!     batch: 1, // a pair: a chosen and a rejected answer
//!     sequence: 1024,
//!     ..Scenario::default()
//! };
//! let job = Job::from(&scenario);
//! assert_eq!(job.members.len(), 2);
//! let memory = step::run_job(&job, &scenario.gpu()?)?;
//! let stages: Vec<Stage> = memory.steady.phases.iter().map(|(phase, _)| phase.stage).collect();
//! assert_eq!(stages, [Stage::Forward, Stage::Score, Stage::Backward, Stage::Step]);
//! # Ok::<(), headroom::issue::Issue>(())
//! ```

mod batch;
mod member;

use std::sync::Arc;

use crate::issue::{Field, Issue};
use crate::model::Architecture;
use crate::scenario::{
    CacheKind, Cluster, Embedding, Evaluation, Generation, Lengths, Mask, Merges, Method, ModelChoice,
    Reference, Sampling, Scenario, Task, VllmShare,
};

pub use batch::Batch;
pub use member::{HeadKind, Member, Training};

/// Models on one card, and what is done with them in every round (iteration).
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// The models.
    pub members: Vec<Member>,
    /// What is done, in order.
    pub round: Vec<Act>,
    /// The cards that do it together: each does the same, with a batch of its own.
    pub cluster: Cluster,
    /// What a vLLM has of the card all the while.
    pub vllm: Option<VllmShare>,
}

/// Something that is done with a model; members are named by their place in [`Job::members`].
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
    /// Answers of which each token shall have the probabilities that a teacher gives it, as trl's `DistillationTrainer` has it.
    /// The teacher runs over the batch while the student's graph waits for backward.
    Divergence {
        /// The teacher: another member.
        teacher: usize,
        /// Tokens at the beginning of each sequence that are not learned.
        prompt: u64,
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

    /// Who answers on this card, if anybody does: the member that is trained, or vLLM that sleeps meanwhile.
    fn answered(scenario: &Scenario, batch: Batch, prompt: u64) -> Option<Act> {
        if scenario.generates_itself() {
            return Some(Act::rollouts(scenario, batch, prompt));
        }
        scenario.waking().map(|share| Act::Wake { member: 0, share })
    }

    /// The answers of all micro-batches of a step at once, generated by the member that is trained (`_generate_single_turn` of
    /// `GRPOTrainer`, `RLOOTrainer` and `DistillationTrainer` with `use_vllm=False`).
    fn rollouts(scenario: &Scenario, batch: Batch, prompt: u64) -> Act {
        let sequences = batch.sequences.saturating_mul(scenario.accumulation);
        let new_tokens = batch.length.saturating_sub(prompt);
        let how = Generation { new_tokens, cache: CacheKind::Dynamic, sampling: Sampling::Drawn };
        Act::Generate { member: 0, batch: Batch { sequences, length: prompt, ..batch }, how }
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

impl Job {
    /// The architectures of its members, in their order.
    ///
    /// # Errors
    /// An [`Issue`] where the catalogue has no such model or its config cannot be understood.
    pub fn architectures(&self) -> Result<Vec<Arc<Architecture>>, Issue> {
        self.members.iter().map(|member| member.model.architecture()).collect()
    }

    /// The architectures of those members that are of another model than the first, each in its place.
    ///
    /// # Errors
    /// An [`Issue`] on the teacher where the catalogue has no such model or its config cannot be understood.
    pub(crate) fn others(&self) -> Result<Vec<Option<Arc<Architecture>>>, Issue> {
        let first = self.members.first().map(|first| &first.model);
        let other = |member: &Member| {
            let named = Some(&member.model).filter(|model| Some(*model) != first);
            named.map(ModelChoice::architecture).transpose()
        };
        let of_teacher = |issue: Issue| Issue { field: Field::Teacher, ..issue };
        self.members.iter().map(|member| other(member).map_err(of_teacher)).collect()
    }
}

impl Job {
    /// One call of `generate` with a prompt as long as the scenario's sequence.
    fn generating(scenario: &Scenario) -> Job {
        // a tokenizer gives a mask with the prompts
        let mask = if scenario.mask == Mask::Padded { Mask::Padded } else { Mask::Ones };
        let batch = Batch { mask, lengths: Lengths::Equal, ..Batch::from(scenario) };
        let members = vec![Member::from(scenario).generating()];
        let generates = Act::Generate { member: 0, batch, how: scenario.generation };
        Job { members, round: vec![generates], cluster: scenario.cluster, vllm: None }
    }
}

impl Job {
    /// trl's `PPOTrainer`: answers and what the other models make of them, a few at a time, then as many updates as there are epochs.
    fn of_policy(scenario: &Scenario, prompt: u64) -> Job {
        let batch = Batch::from(scenario);
        let Scenario { batch: sequences, accumulation, policy, .. } = *scenario;
        let answers = sequences.saturating_mul(accumulation).max(1);
        let rollout = policy.rollout.clamp(1, answers);
        let times = answers.div_ceil(rollout);
        let answered = Batch { sequences: rollout, ..batch };
        let prompts = Batch { length: prompt, ..answered };
        let learner = Member::from(scenario);
        let value = learner.valuing();
        let mut members = vec![learner, value.clone(), value.rewarding()];
        let reference = match scenario.method {
            Method::Full => {
                members.push(members[0].reference());
                (3, true)
            }
            Method::Lora | Method::Qlora => (0, false),
        };
        let score = |(member, adapted)| Act::Score { member, adapted, batch: answered, prompt, times };
        let new_tokens = batch.length.saturating_sub(prompt);
        let how = Generation { new_tokens, cache: CacheKind::Dynamic, sampling: Sampling::Drawn };
        let each = accumulation.max(1).div_ceil(policy.parts.max(1));
        let loss = Loss::Advantage { value: 1, prompt, each, epochs: policy.epochs.max(1) };
        let round = vec![
            Act::Rollout { member: 0, batch: prompts, how, times },
            score(reference),
            score((1, true)),
            score((2, true)),
            Act::Train { member: 0, batch, loss, times: accumulation },
            Act::Update { member: 0 },
        ];
        Job { members, round, cluster: scenario.cluster, vllm: None }
    }
}

/// The job of a scenario: all its members are of the scenario's model but a teacher.
impl From<&Scenario> for Job {
    fn from(scenario: &Scenario) -> Job {
        let (batch, times) = (Batch::from(scenario), scenario.accumulation);
        let mut members = vec![Member::from(scenario)];
        // of a sequence without an answer nothing is left to score
        let prompt = scenario.answers.prompt.min(scenario.sequence.saturating_sub(1));
        let reference = match (scenario.answers.reference, scenario.method) {
            // its job has one of its own
            _ if scenario.task == Task::Ppo => Scorer::Precomputed,
            _ if !scenario.task.has_reference() => Scorer::Precomputed,
            (Reference::Precomputed | Reference::None, _) => Scorer::Precomputed,
            (Reference::Scored, Method::Lora | Method::Qlora) => Scorer::WithoutAdapters,
            (Reference::Scored, Method::Full) => {
                members.push(members[0].reference());
                Scorer::Member(1)
            }
        };
        let mut round = Vec::with_capacity(4);
        let loss = match scenario.task {
            Task::Generate => return Job::generating(scenario),
            Task::Ppo => return Job::of_policy(scenario, prompt),
            Task::Sft => Loss::Labels,
            Task::Dpo => Loss::Preference { reference, prompt },
            Task::Kto => Loss::Desirability { reference, prompt },
            Task::Orpo => Loss::Odds { likelihood: Likelihood::Text, prompt },
            Task::Cpo => Loss::Odds { likelihood: Likelihood::Answer, prompt },
            Task::Simpo => Loss::Odds { likelihood: Likelihood::Nothing, prompt },
            Task::Classify => Loss::Classes,
            Task::Embed => {
                let Embedding { texts, cached, .. } = scenario.embedding;
                Loss::Contrast { texts: texts.max(2), cached }
            }
            Task::Reward => Loss::Comparison,
            Task::Distil => {
                members.push(Member::teacher(scenario));
                round.extend(Act::answered(scenario, batch, prompt));
                Loss::Divergence { teacher: 1, prompt }
            }
            Task::Grpo | Task::Rloo => {
                let score = |member, adapted| Act::Score { member, adapted, batch, prompt, times };
                let (whole, itself) = (scenario.task == Task::Rloo, scenario.generates_itself());
                round.extend(Act::answered(scenario, batch, prompt));
                // what was sampled elsewhere is held against the model that is trained (`vllm_importance_sampling_correction`);
                // RLOO always asks it
                if whole || !itself {
                    round.push(score(0, true));
                }
                let referring = match reference {
                    Scorer::Member(member) => Some(score(member, true)),
                    Scorer::WithoutAdapters => Some(score(0, false)),
                    Scorer::Precomputed => None,
                };
                round.extend(referring);
                // RLOO makes the reference part of the reward
                Loss::Reward {
                    prompt,
                    referred: referring.is_some() && !whole,
                    whole,
                    corrected: !whole && !itself,
                }
            }
        };
        round.extend([Act::Train { member: 0, batch, loss, times }, Act::Update { member: 0 }]);
        if scenario.evaluates() {
            let how = scenario.evaluation;
            round.push(Act::Evaluate { member: 0, batch: Batch { sequences: how.batch, ..batch }, how });
        }
        if scenario.saves() {
            round.push(Act::Save { member: 0, gathers: scenario.gathers_saved() });
        }
        if scenario.merges() == Merges::Gpu {
            round.push(Act::Merge { member: 0 });
        }
        Job { members, round, cluster: scenario.cluster, vllm: scenario.vllm_beside() }
    }
}
