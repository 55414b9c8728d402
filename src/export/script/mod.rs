//! The file that runs a scenario: what one would write by hand for the training library that was chosen, setting by setting.
//!
//! Every line says something of the scenario, so that running the file takes what the estimate says; `tools/run_script.py`
//! runs written files and holds what they took against it. What a file has no line for is an [`Issue`], not a file that runs
//! something else: each library's file names the inputs that it says.

mod classifier;
mod cluster;
mod embedder;
mod evaluation;
mod float8;
mod generate;
mod parts;
pub(super) mod pictures;
mod policy;
mod python;
mod qat;
mod run;
mod saving;
mod taught;
mod transformers;
mod trl;
mod unsloth;

use crate::estimate::estimate;
use crate::hardware::Vendor;
use crate::issue::{Field, Issue};
use crate::model::Objective;
use crate::scenario::{ModelChoice, Scenario, Stack, Task};
use run::Run;

pub use run::NAME;

/// The scenario as a Python file.
///
/// ```
/// use headroom::export::script;
/// use headroom::scenario::Scenario;
///
/// let text = script(&Scenario::default())?;
/// assert!(text.contains("load_in_4bit=True"), "{text}");
/// # Ok::<(), headroom::issue::Issue>(())
/// ```
///
/// # Errors
/// An [`Issue`] where the scenario has a setting that such a file cannot say, or a model that no file can name.
pub fn script(scenario: &Scenario) -> Result<String, Issue> {
    if let Some(issue) = estimate(scenario).errors().next() {
        return Err(issue.clone());
    }
    // a run that stops, however much memory there is
    if let Some(issue) = scenario.stop() {
        return Err(issue);
    }
    if scenario.gpu()?.vendor == Vendor::Google {
        let issue = Issue::error(
            Field::Gpu,
            "no file is written for TPUs, which PyTorch has no device for without torch_xla",
        );
        return Err(issue.with_fix("choose a GPU"));
    }
    let architecture = scenario.architecture()?;
    if let ModelChoice::Size(_) = scenario.model {
        let issue = Issue::error(Field::Model, "a model of a size is no model that could be loaded");
        return Err(issue.with_fix("choose a model by name, or bring its config.json"));
    }
    let (classifies, embeds) = (scenario.task == Task::Classify, scenario.task == Task::Embed);
    if architecture.head.objective != Objective::CausalLm && !classifies && !embeds {
        return Err(Issue::error(Field::Model, "files are written for decoders only")
            .with_fix("choose a causal language model"));
    }
    let run = Run { scenario, architecture };
    run.refuse_pictures()?;
    let (said, write): (_, Writer) = match scenario.stack {
        Stack::Transformers if embeds => (embedder::SAID, embedder::script),
        Stack::Transformers if classifies => (classifier::SAID, classifier::script),
        Stack::Transformers if !scenario.task.trains() => (generate::SAID, generate::script),
        Stack::Transformers | Stack::Liger => (transformers::SAID, transformers::script),
        Stack::Trl if scenario.task == Task::Ppo => (policy::SAID, policy::script),
        Stack::Trl => (trl::SAID, trl::script),
        Stack::Unsloth => (unsloth::SAID, unsloth::script),
        Stack::Torchtune | Stack::Torchtitan | Stack::Litgpt | Stack::Megatron => {
            let message =
                format!("no file is written for {}, which has files of its own", scenario.library());
            let issue = Issue::error(Field::Stack, message);
            return Err(issue.with_fix("choose transformers, trl, Liger or Unsloth"));
        }
    };
    let shares = if scenario.task.trains() { cluster::SAID } else { &[] };
    let evaluates = scenario.stack == Stack::Trl || classifies;
    let (evaluation, saving) = if evaluates { (evaluation::SAID, saving::SAID) } else { (&[][..], &[][..]) };
    let looks = if matches!(scenario.stack, Stack::Transformers | Stack::Trl) { pictures::SAID } else { &[] };
    let says =
        |name| [ALWAYS, said, shares, evaluation, saving, looks].iter().any(|names| names.contains(&name));
    match scenario.changed().into_iter().find(|key| !says(key.name)) {
        None => write(&run),
        Some(key) => {
            let message = format!(
                "a file for {} has no line for this setting: {}",
                scenario.library(),
                key.label_for(scenario)
            );
            Err(Issue::error(key.field, message).with_fix("leave it at its default"))
        }
    }
}

/// What writes a file for a library.
type Writer = fn(&Run<'_>) -> Result<String, Issue>;

/// The inputs that every file says, or that are no affair of a file: the card and what others have of it, how long the texts are and how many,
/// which is the data's, and what an hour costs.
const ALWAYS: &[&str] = &[
    "model",
    "method",
    "stack",
    "lora-rank",
    "group-size",
    "lora-targets",
    "batch-size",
    "seq-length",
    "lengths",
    "gradient-accumulation",
    "gradient-checkpointing",
    "optimizer",
    "precision",
    "mask",
    "clip-gradients",
    "allocator",
    "gpu",
    "used-mib",
    "margin-mib",
    "context-mib",
    "dataset-tokens",
    "epochs",
    "gpu-hour-cents",
];
