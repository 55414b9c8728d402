//! What was understood of a text.

use std::fmt;

use crate::scenario::Scenario;

/// Which project a text is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// Headroom's own link, TOML or JSON.
    Headroom,
    /// What Headroom's recorder wrote beside a run.
    Recorded,
    /// A model's `config.json`.
    Model,
    /// Arguments of transformers, trl, peft and bitsandbytes in Python.
    Python,
    /// Unsloth's calls in Python.
    Unsloth,
    /// What trl's command or a script with its classes is given: a command line, YAML or JSON.
    Trl,
    /// axolotl's YAML.
    Axolotl,
    /// LLaMA-Factory's YAML.
    LlamaFactory,
    /// torchtune's YAML.
    Torchtune,
    /// torchtitan's TOML.
    Torchtitan,
    /// Megatron-LM's arguments: a command, a script, or a file of one of its own tests.
    Megatron,
    /// accelerate's YAML.
    Accelerate,
    /// DeepSpeed's JSON.
    DeepSpeed,
    /// vLLM: the command that serves, its file, or its class in Python.
    Vllm,
    /// The TOML of a GPT-2-like trainer.
    TrainerToml,
    /// Settings of no project that is known, in words that most projects use.
    Usual,
}

impl Format {
    /// Whether such a text is of a trainer over transformers' `Trainer`, or of what shards for it.
    pub(super) const fn is_of_a_trainer(self) -> bool {
        match self {
            Format::Python
            | Format::Unsloth
            | Format::Trl
            | Format::Axolotl
            | Format::LlamaFactory
            | Format::Accelerate
            | Format::DeepSpeed => true,
            Format::Headroom
            | Format::Recorded
            | Format::Model
            | Format::Torchtune
            | Format::Torchtitan
            | Format::Megatron
            | Format::Vllm
            | Format::TrainerToml
            | Format::Usual => false,
        }
    }

    /// What it is called.
    pub const fn label(self) -> &'static str {
        match self {
            Format::Headroom => "Headroom",
            Format::Recorded => "a recorded run",
            Format::Model => "a model's config.json",
            Format::Python => "transformers, trl and peft in Python",
            Format::Unsloth => "Unsloth in Python",
            Format::Trl => "arguments of trl or transformers",
            Format::Axolotl => "axolotl",
            Format::LlamaFactory => "LLaMA-Factory",
            Format::Torchtune => "torchtune",
            Format::Torchtitan => "torchtitan",
            Format::Megatron => "Megatron-LM",
            Format::Accelerate => "accelerate",
            Format::DeepSpeed => "DeepSpeed",
            Format::Vllm => "vLLM",
            Format::TrainerToml => "a GPT-2-like trainer's settings",
            Format::Usual => "settings in usual words",
        }
    }
}

/// A key that was set to what the text says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The key's name in files and on the command line.
    pub key: &'static str,
    /// Its name for people.
    pub label: &'static str,
    /// Its value now, in words.
    pub value: String,
    /// What the text says.
    pub said: String,
}

/// A key that was set to what the project does where a text says nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assumed {
    /// The key's name in files and on the command line.
    pub key: &'static str,
    /// Its name for people.
    pub label: &'static str,
    /// Its value now, in words.
    pub value: String,
    /// Whose default it is.
    pub why: String,
}

/// What was not followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// What the text says.
    pub said: String,
    /// Why it changes nothing here.
    pub why: String,
    /// Whether it is a known setting whose value cannot be used: the scenario has another than the text says.
    pub is_misread: bool,
    /// The key that has another value for it, where that is one.
    pub key: Option<&'static str>,
}

impl Left {
    /// What is not followed, of which nothing more is known.
    pub(super) fn new(said: impl Into<String>, why: impl Into<String>) -> Left {
        Left { said: said.into(), why: why.into(), is_misread: false, key: None }
    }
}

/// What was understood of a text.
#[derive(Clone, Debug, PartialEq)]
pub struct Understood {
    /// Which project it is of.
    pub format: Format,
    /// The scenario with what it says.
    pub scenario: Scenario,
    /// What it says.
    pub taken: Vec<Taken>,
    /// What it leaves to the project's defaults.
    pub assumed: Vec<Assumed>,
    /// What memory does not depend on.
    pub idle: Vec<String>,
    /// What was not followed.
    pub left: Vec<Left>,
    /// What a run of the scenario took, as `took=` says it in a link: `allocated:BYTES,reserved:BYTES,driver:BYTES`.
    pub took: Option<String>,
}

impl Understood {
    /// What says these keys of a scenario, and nothing that is not followed.
    pub(super) fn of(format: Format, scenario: Scenario, taken: Vec<Taken>) -> Understood {
        let (assumed, idle, left) = (Vec::new(), Vec::new(), Vec::new());
        Understood { format, scenario, taken, assumed, idle, left, took: None }
    }

    /// What holds from before, of which the text says nothing: labels and values of settings that are not at their default.
    pub fn kept(&self) -> Vec<(&'static str, String)> {
        if matches!(self.format, Format::Headroom | Format::Recorded) {
            // a whole scenario
            return Vec::new();
        }
        let told = self.taken.iter().map(|one| one.key).chain(self.assumed.iter().map(|one| one.key));
        let told: Vec<&str> = told.collect();
        let kept = self.scenario.changed().into_iter().filter(|key| !told.contains(&key.name));
        kept.map(|key| (key.label_for(&self.scenario), key.words(&self.scenario))).collect()
    }
}

/// Why a text was not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotRead(pub(super) String);

impl fmt::Display for NotRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotRead {}
