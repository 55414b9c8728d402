//! What a file is written of, and what every file begins with.

use std::sync::Arc;

use super::python::string;
use crate::export::taken::taken;
use crate::hardware::Vendor;
use crate::model::Architecture;
use crate::scenario::{Method, ModelChoice, Scenario, Task};

/// What the file is called.
pub const NAME: &str = "train.py";

/// A kind of cards, as PyTorch knows them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Device {
    /// NVIDIA's and AMD's: what files were run on.
    Cuda,
    /// Apple's.
    Mps,
    /// Intel's.
    Xpu,
}

impl Device {
    /// Its name: the device, and the module of `torch` for it.
    pub const fn name(self) -> &'static str {
        match self {
            Device::Cuda => "cuda",
            Device::Mps => "mps",
            Device::Xpu => "xpu",
        }
    }

    /// `device_map` of one that has the whole model.
    pub const fn map(self) -> &'static str {
        match self {
            Device::Cuda => "{\"\": 0}",
            Device::Mps => "{\"\": \"mps\"}",
            Device::Xpu => "{\"\": \"xpu:0\"}",
        }
    }

    /// What processes talk to each other by.
    pub const fn backend(self) -> &'static str {
        match self {
            Device::Cuda => "nccl",
            // several Macs have none, and are refused
            Device::Mps => "gloo",
            Device::Xpu => "xccl",
        }
    }

    /// What says how many bytes were allocated, and what these are.
    pub const fn allocated(self) -> [&'static str; 2] {
        match self {
            Device::Cuda => ["torch.cuda.max_memory_allocated", "allocated at most"],
            // Metal's driver keeps no peak
            Device::Mps => ["torch.mps.driver_allocated_memory", "held by Metal's driver"],
            Device::Xpu => ["torch.xpu.max_memory_allocated", "allocated at most"],
        }
    }

    /// A line for the head of a file that was not run on such a card.
    const fn untried(self) -> &'static str {
        match self {
            Device::Cuda => "",
            Device::Mps => {
                "# It is written for PyTorch's device \"mps\"; no such file was run on a Mac. Kernels made for CUDA do not run there.\n"
            }
            Device::Xpu => {
                "# It is written for PyTorch's device \"xpu\"; no such file was run on such a card. Kernels made for CUDA do not run there.\n"
            }
        }
    }
}

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

    /// What PyTorch calls the card's kind; ROCm's is called as CUDA's.
    pub fn device(&self) -> Device {
        match self.scenario.gpu().map(|gpu| gpu.vendor) {
            Ok(Vendor::Apple) => Device::Mps,
            Ok(Vendor::Intel) => Device::Xpu,
            // of TPUs no file is written
            Ok(Vendor::Nvidia | Vendor::Amd | Vendor::Google) | Err(_) => Device::Cuda,
        }
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
        let device = self.device().untried();
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
