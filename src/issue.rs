//! What is wrong with a scenario, as data: the page shows it beside the control, the command prints it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How bad an [`Issue`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Good to know; the answer stands.
    Note,
    /// The answer stands but is rougher or rests on an assumption.
    Warning,
    /// There is no answer until it is changed.
    Error,
}

/// The setting that an [`Issue`] belongs to: each but the link has its row in the table of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "each names the field of `Scenario` of that name")]
#[non_exhaustive]
pub enum Field {
    Model,
    Method,
    Adapter,
    LoraRank,
    LoraTargets,
    LoraDropout,
    Fp32Adapters,
    /// axolotl's autograd functions over projections and their adapters.
    FusedAdapters,
    TrainEmbeddings,
    WeightFormat,
    GroupSize,
    DoubleQuant,
    KbitPrepare,
    Experts,
    /// Products in 8-bit floats.
    Float8,
    Float8Layers,
    Float8Padding,
    Float8Gather,
    /// Quantisation-aware training.
    Qat,
    QatGroup,
    QatLayers,
    Compile,
    Precision,
    Optimizer,
    Batch,
    Sequence,
    Lengths,
    Accumulation,
    Checkpointing,
    Attention,
    Mask,
    Dropout,
    KeepOutputs,
    SetToNone,
    ClipGradients,
    UseCache,
    Stack,
    Loss,
    Step,
    Offloading,
    /// Liger's kernels of layers under trl's trainers.
    LigerLayers,
    Allocator,
    Gpu,
    Gpus,
    /// How many of them a machine has.
    GpusPerNode,
    Sharding,
    ShardsAlone,
    BucketViews,
    Reshards,
    ReshardsRoot,
    ShardedLayers,
    /// Who wraps the model for FSDP2.
    WrappedBy,
    Replicas,
    ReduceDtype,
    CpuOffload,
    ReduceBucket,
    PrefetchBucket,
    Persistence,
    LiveParameters,
    ContiguousGradients,
    OverlapComm,
    TensorParallel,
    PipelineParallel,
    Interleaved,
    /// How many layers the first stage of a pipeline has.
    FirstStage,
    /// How many the last one has.
    LastStage,
    /// Whether the embedding counts as a layer of the first.
    CountsEmbedding,
    /// Whether the loss counts as one of the last.
    CountsLoss,
    PipelineStage,
    TransformerImpl,
    SequenceParallel,
    ContextParallel,
    ContextComm,
    ExpertParallel,
    /// Whether Megatron's products add gradients to their buffer.
    GradientFusion,
    Task,
    Prompt,
    /// How many classes texts have.
    Labels,
    /// Texts of each example that are embedded.
    Texts,
    /// Answers that are generated and scored at a time.
    RolloutBatch,
    /// Into how many parts a round's answers are divided.
    MiniBatches,
    /// How often a round's answers are learned from.
    PpoEpochs,
    /// Texts that are embedded at a time, where gradients are cached.
    GradCache,
    /// What the trainer evaluates after steps.
    Evaluation,
    /// Sequences of a batch of the evaluation.
    EvalBatch,
    /// Batches of an evaluation whose logits are on the GPU together.
    EvalAccumulation,
    /// Batches of an evaluation.
    EvalBatches,
    /// Whether checkpoints are made.
    Saving,
    /// Where adapters are merged.
    Merging,
    /// What of its hidden states becomes a text's embedding.
    Pooling,
    Reference,
    /// Who generates the answers of reinforcement.
    Rollouts,
    /// Whose probabilities a student learns.
    Teacher,
    TeacherWeights,
    /// How its probabilities are held against the student's.
    Divergence,
    NewTokens,
    KvCache,
    Sampling,
    /// How many pictures there are in a sequence.
    Pictures,
    PictureHeight,
    PictureWidth,
    /// Frames of each, where they are videos.
    Frames,
    VisionTower,
    Used,
    Margin,
    Context,
    Workspace,
    /// What vLLM has of the card.
    VllmPercent,
    /// Whether it sleeps while the model is trained.
    VllmSleep,
    /// Tokens that vLLM computes at a time where it serves.
    VllmBatchedTokens,
    /// Sequences that it runs at once.
    VllmSequences,
    /// What it keeps keys and values in.
    VllmCache,
    DatasetTokens,
    Epochs,
    Price,
    Link,
}

/// One thing that is wrong, doubtful or good to know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Issue {
    /// How bad.
    pub severity: Severity,
    /// Where.
    pub field: Field,
    /// What is wrong: one sentence without a full stop.
    pub message: String,
    /// What would be right, where one can say.
    pub fix: Option<String>,
}

impl Issue {
    /// An issue without a fix.
    pub fn new(severity: Severity, field: Field, message: impl Into<String>) -> Issue {
        Issue { severity, field, message: message.into(), fix: None }
    }

    /// An error.
    pub fn error(field: Field, message: impl Into<String>) -> Issue {
        Issue::new(Severity::Error, field, message)
    }

    /// A warning.
    pub fn warning(field: Field, message: impl Into<String>) -> Issue {
        Issue::new(Severity::Warning, field, message)
    }

    /// The same with what would be right.
    pub fn with_fix(self, fix: impl Into<String>) -> Issue {
        Issue { fix: Some(fix.into()), ..self }
    }
}

impl fmt::Display for Issue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.fix {
            Some(fix) => write!(f, " ({fix})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Issue {}
