//! trl's trainers, one row each: their classes, their commands, and what is said of their defaults.

use super::super::names::TRAINING_ARGUMENTS;
use crate::scenario::Task;

/// What is said of a default of fine-tuning's.
pub(super) const TRL: &str = "SFTConfig's default in trl 1.16";

/// Which of trl's trainers a text is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::import) enum Trainer {
    /// Fine-tuning on texts, as transformers' own trainer does too.
    #[default]
    Sft,
    /// transformers' own of a model that is loaded for sequence classification.
    Classify,
    /// sentence-transformers' own of embeddings.
    Embed,
    /// sentence-transformers' own of rerankers.
    Rerank,
    /// `DPOConfig` and `DPOTrainer`.
    Dpo,
    /// `KTOConfig` and `KTOTrainer`.
    Kto,
    /// `ORPOConfig` and `ORPOTrainer`.
    Orpo,
    /// `CPOConfig` and `CPOTrainer`, for SimPO too.
    Cpo,
    /// `RewardConfig` and `RewardTrainer`.
    Reward,
    /// `GRPOConfig` and `GRPOTrainer`.
    Grpo,
    /// `RLOOConfig` and `RLOOTrainer`.
    Rloo,
    /// `PPOConfig` and `PPOTrainer`, of trl up to 1.12.
    Ppo,
    /// `DistillationConfig` and `DistillationTrainer`.
    Distil,
    /// `GKDConfig` and `GKDTrainer`, whose loss is another one.
    Gkd,
    /// One that is not read.
    Other,
}

/// What a trainer is called, its classes, and its configuration's word for a default.
type Names = [&'static str; 3];

/// A trainer of trl's that is read.
struct Row {
    trainer: Trainer,
    task: Task,
    /// What trl calls it, before `Config` and `Trainer`.
    name: &'static str,
    /// The word of it in a command, `trl dpo`, and in a script's name, `dpo.py`.
    word: &'static str,
    names: Names,
    /// The setting of the model whose name it is given.
    model: &'static str,
}

/// A row, by the trainer's name in trl, its word and the version of trl that was read.
macro_rules! row {
    ($trainer:ident, $task:ident, $name:literal, $word:literal, $version:literal) => {
        Row {
            trainer: Trainer::$trainer,
            task: Task::$task,
            name: $name,
            word: $word,
            names: [
                concat!($name, "Trainer"),
                concat!($name, "Config, ", $name, "Trainer"),
                concat!($name, "Config's default in trl ", $version),
            ],
            model: concat!($name, "Trainer.model"),
        }
    };
}

/// Where a script's name has several of their words, the first of these decides.
static ROWS: [Row; 11] = [
    row!(Grpo, Grpo, "GRPO", "grpo", "1.16"),
    row!(Rloo, Rloo, "RLOO", "rloo", "1.16"),
    row!(Ppo, Ppo, "PPO", "ppo", "1.12"),
    row!(Kto, Kto, "KTO", "kto", "1.16"),
    row!(Orpo, Orpo, "ORPO", "orpo", "1.16"),
    row!(Cpo, Cpo, "CPO", "cpo", "1.16"),
    row!(Dpo, Dpo, "DPO", "dpo", "1.16"),
    row!(Reward, Reward, "Reward", "reward", "1.16"),
    row!(Distil, Distil, "Distillation", "distillation", "1.16"),
    row!(Gkd, Distil, "GKD", "gkd", "1.16"),
    row!(Sft, Sft, "SFT", "sft", "1.16"),
];

/// Trainers of trl's that are not read: what it calls them, and the word by which a command or a script is known for theirs. Those
/// without a word are known by their classes alone.
const UNREAD: [(&str, Option<&str>); 20] = [
    ("OnlineDPO", Some("online")),
    ("NashMD", Some("nash")),
    ("XPO", Some("xpo")),
    ("GOLD", Some("gold")),
    ("PRM", Some("prm")),
    ("AsyncGRPO", Some("async")),
    ("AsyncDistillation", Some("async")),
    ("ServerDistillation", Some("server")),
    ("BCO", Some("bco")),
    ("SDFT", Some("sdft")),
    ("SDPO", Some("sdpo")),
    ("SSD", Some("ssd")),
    ("TPO", Some("tpo")),
    ("A2PO", Some("a2po")),
    ("GMPO", Some("gmpo")),
    ("IWOPD", Some("opd")),
    ("MiniLLM", Some("minillm")),
    ("PAPO", Some("papo")),
    ("GRPOWithReplayBuffer", Some("replay")),
    ("DiffusionGemmaSFT", Some("diffusion")),
];

/// Words of scripts whose trainer is one that is read: examples/scripts/mpo_vlm.py gives `DPOTrainer` several losses at once, gspo.py
/// gives `GRPOTrainer` another weight of each token.
const BY_ANOTHER_NAME: [(&str, Trainer); 2] = [("mpo", Trainer::Dpo), ("gspo", Trainer::Grpo)];

impl Trainer {
    /// The trainer of trl that a class is of: `DPOConfig`, `DPOTrainer`.
    pub fn of_class(class: &str) -> Option<Trainer> {
        let name = class.strip_suffix("Config").or_else(|| class.strip_suffix("Trainer"))?;
        // Unsloth's is trl's for fine-tuning
        let is_its = |row: &&Row| row.name == name || row.trainer == Trainer::Sft && name == "Unsloth";
        let is_unread = UNREAD.iter().any(|(unread, _)| *unread == name);
        ROWS.iter().find(is_its).map(|row| row.trainer).or(is_unread.then_some(Trainer::Other))
    }

    /// The trainer of trl that a command or a script is for, by the words of its name in lower case.
    pub fn of_words(words: &[String]) -> Option<Trainer> {
        let has = |name: &str| words.iter().any(|word| word == name);
        if UNREAD.iter().filter_map(|(_, word)| *word).any(has) {
            return Some(Trainer::Other);
        }
        let other = || BY_ANOTHER_NAME.iter().find(|(word, _)| has(word)).map(|(_, trainer)| *trainer);
        ROWS.iter().find(|row| has(row.word)).map(|row| row.trainer).or_else(other)
    }

    /// The settings of the model whose name a trainer of trl's is given: `DPOTrainer.model`.
    pub fn models() -> impl Iterator<Item = &'static str> {
        ROWS.iter().map(|row| row.model)
    }

    /// The task, and what the trainer is called; none where the text names one that is not read.
    pub fn is_for(self) -> Option<(Task, Names)> {
        match self {
            Trainer::Classify => {
                let names = ["AutoModelForSequenceClassification", "Trainer", TRAINING_ARGUMENTS];
                Some((Task::Classify, names))
            }
            Trainer::Rerank => {
                let name = "CrossEncoderTrainer";
                Some((Task::Classify, [name, name, TRAINING_ARGUMENTS]))
            }
            Trainer::Embed => {
                let name = "SentenceTransformerTrainer";
                Some((Task::Embed, [name, name, TRAINING_ARGUMENTS]))
            }
            own => ROWS.iter().find(|row| row.trainer == own).map(|row| (row.task, row.names)),
        }
    }

    /// What of its configuration's defaults is said.
    pub fn default(self) -> &'static str {
        self.is_for().map_or(TRL, |(_, [_, _, default])| default)
    }
}
