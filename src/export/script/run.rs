//! What a file is written of, and what every file begins with.

use std::sync::Arc;

use super::python::string;
use crate::model::Architecture;
use crate::scenario::{ModelChoice, Scenario, Task};
use crate::share;

/// What the file is called.
pub const NAME: &str = "train.py";

/// What a file is written of.
pub(super) struct Run<'s> {
    pub scenario: &'s Scenario,
    pub architecture: Arc<Architecture>,
}

impl Run<'_> {
    /// What the model is loaded by: a name of the Hub, or a folder to be filled in.
    pub fn model(&self) -> String {
        match &self.scenario.model {
            ModelChoice::Catalogue(id) => string(id),
            ModelChoice::Custom(model) => format!("{}  # a folder or a name of the Hub", string(&model.name)),
            ModelChoice::Size(_) => string(""),
        }
    }

    /// The beginning of the file: what it is, what it needs installed, and how to ask what it takes.
    pub fn header(&self, packages: &[&str]) -> String {
        let Run { scenario, .. } = self;
        let link = share::encode(std::slice::from_ref(scenario));
        // a link has no quotes, line breaks or backslashes: they are escaped in it
        let launch = self.command().map(|command| format!("# It runs by: {command}\n")).unwrap_or_default();
        let what = if scenario.task.trains() {
            scenario.lora.tuner.of_method(scenario.method)
        } else {
            "Text".to_owned()
        };
        format!(
            "# {}{} of {} with {}, written by Headroom.\n# It needs: pip install {}\n{launch}# What it takes of a GPU: headroom estimate '{link}'\n",
            what,
            match scenario.task {
                Task::Sft => "",
                Task::Classify => " (classification)",
                Task::Embed => " (embeddings)",
                Task::Dpo => " (DPO)",
                Task::Kto => " (KTO)",
                Task::Orpo => " (ORPO)",
                Task::Cpo => " (CPO)",
                Task::Simpo => " (SimPO)",
                Task::Reward => " (reward model)",
                Task::Grpo => " (GRPO)",
                Task::Rloo => " (RLOO)",
                Task::Distil => " (distillation)",
                Task::Generate => "",
            },
            crate::text::one_line(&scenario.model_name()),
            scenario.stack.label(),
            packages.iter().map(|package| format!("'{package}'")).collect::<Vec<_>>().join(" "),
        )
    }
}
