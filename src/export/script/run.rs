//! What a file is written of, and what every file begins with.

use std::sync::Arc;

use super::python::string;
use crate::export::taken::taken;
use crate::hardware::Vendor;
use crate::model::Architecture;
use crate::scenario::{Method, ModelChoice, Scenario, Task};

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
            ModelChoice::Catalogue(id) => match self.checkpoint() {
                Some(method) => format!("{}  # name a checkpoint of {method}'s of this model", string(id)),
                None => string(id),
            },
            ModelChoice::Custom(model) => format!("{}  # a folder or a name of the Hub", string(&model.name)),
            ModelChoice::Size(_) => string(""),
        }
    }

    /// By what a checkpoint was quantised whose weights are loaded as they are.
    pub fn checkpoint(&self) -> Option<&'static str> {
        let format = self.scenario.quantization.format;
        format.checkpoint().filter(|_| self.scenario.method == Method::Qlora)
    }

    /// What PyTorch calls the card where it is not CUDA's, which files are written for and were run on; ROCm's is called so too.
    fn device(&self) -> String {
        let device = match self.scenario.gpu().map(|gpu| gpu.vendor) {
            Ok(Vendor::Apple) => "mps",
            Ok(Vendor::Intel) => "xpu",
            // of TPUs no file is written
            Ok(Vendor::Nvidia | Vendor::Amd | Vendor::Google) | Err(_) => return String::new(),
        };
        format!(
            "# It is written for CUDA: on this card PyTorch's device is \"{device}\" in place of \"cuda\", torch.cuda and device 0, and kernels made for CUDA\n\
             # (bitsandbytes, flash-attn, Liger, NCCL) may not run there. No such file was run on it.\n"
        )
    }

    /// The beginning of the file: what it is, what it needs installed, and how to ask what it takes.
    pub fn header(&self, packages: &[&str]) -> String {
        let Run { scenario, .. } = self;
        let launch = self.command().map(|command| format!("# It runs by: {command}\n")).unwrap_or_default();
        let what = if scenario.task.trains() {
            scenario.lora.tuner.of_method(scenario.method)
        } else {
            "Text".to_owned()
        };
        let device = self.device();
        format!(
            "# {}{} of {} with {}, written by Headroom.\n# It needs: pip install {}\n{launch}{device}{}",
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
                Task::Ppo => " (PPO)",
                Task::Distil => " (distillation)",
                Task::Generate => "",
            },
            crate::text::one_line(&scenario.model_name()),
            scenario.library(),
            packages.iter().map(|package| format!("'{package}'")).collect::<Vec<_>>().join(" "),
            taken(scenario),
        )
    }
}
