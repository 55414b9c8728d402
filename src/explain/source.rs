//! Where a source is read: the file that it names, at the version that was followed, or as it is today where versions have no tags.

/// The projects that sources name, and where the paths of each begin.
const PROJECTS: [(&str, &str); 16] = [
    ("PyTorch", "pytorch/pytorch/blob/v2.11.0/"),
    ("transformers", "huggingface/transformers/blob/v5.17.0/src/transformers/"),
    ("peft", "huggingface/peft/blob/v0.21.2/src/peft/"),
    ("trl", "huggingface/trl/blob/v1.16.0/trl/"),
    ("sentence-transformers", "huggingface/sentence-transformers/blob/v6.2.0/sentence_transformers/"),
    ("bitsandbytes", "bitsandbytes-foundation/bitsandbytes/blob/0.50.2/bitsandbytes/"),
    ("torchao", "pytorch/ao/blob/v0.10.0/"),
    ("torchtune", "pytorch/torchtune/blob/v0.6.1/"),
    ("litgpt", "Lightning-AI/litgpt/blob/v0.5.13/"),
    ("liger-kernel", "linkedin/Liger-Kernel/blob/v0.8.5/src/liger_kernel/"),
    ("DeepSpeed", "deepspeedai/DeepSpeed/blob/v0.19.8/"),
    ("Megatron-core", "NVIDIA/Megatron-LM/blob/core_v0.16.1/"),
    ("Transformer Engine", "NVIDIA/TransformerEngine/blob/v2.11/"),
    ("cudnn-frontend", "NVIDIA/cudnn-frontend/blob/main/include/cudnn_frontend/"),
    // its releases are packages of PyPI and have no tags
    ("unsloth", "unslothai/unsloth/blob/main/"),
    ("axolotl", "axolotl-ai-cloud/axolotl/blob/v0.19.0/"),
];

/// Sources one by one, each with the address of the file or folder that it names.
///
/// ```
/// let sources = "PyTorch, torch/optim/adam.py; compared with the allocator's trace";
/// let read: Vec<_> = headroom::explain::read_at(sources).collect();
/// let address = "https://github.com/pytorch/pytorch/blob/v2.11.0/torch/optim/adam.py";
/// assert_eq!(read[0], ("PyTorch, torch/optim/adam.py", Some(address.to_owned())));
/// assert_eq!(read[1], ("compared with the allocator's trace", None));
/// ```
pub fn read_at(sources: &str) -> impl Iterator<Item = (&str, Option<String>)> {
    sources.split("; ").map(|source| (source, address(source)))
}

fn address(source: &str) -> Option<String> {
    let (project, place) = source.split_once(", ")?;
    let (_, folder) = PROJECTS.iter().find(|(name, _)| *name == project)?;
    let path = place.split([' ', ',']).next()?;
    Some(format!("https://github.com/{folder}{path}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::explain;
    use crate::scenario::{Method, Scenario, Stack, Task};
    use crate::step::Recording;

    /// trl up to 1.6 had transformers make the loss of all logits.
    #[test]
    fn the_loss_of_an_earlier_trl_is_transformers() {
        let scenario = &crate::share::decode("v=1&st=trl&m=Qwen/Qwen3-0.6B&method=full&loss=full&mask=ones")
            .scenarios[0];
        let (model, gpu) = (scenario.architecture().expect("a model"), scenario.gpu().expect("a card"));
        let recording = Recording::of(&model, scenario, &gpu).expect("it is answered");
        let lines = explain(&recording.tensors_at_peak(crate::allocator::Settings::default()), scenario);
        assert!(lines.iter().any(|line| line.source.contains("loss/loss_utils.py")), "{lines:?}");
        assert!(lines.iter().all(|line| !line.source.contains("chunked_logprob.py")), "{lines:?}");
    }

    /// What others published of it, or what was compared, is no file.
    #[test]
    fn sources_of_every_stack_are_files_that_can_be_read() {
        for stack in Stack::ALL {
            for (method, task) in
                [(Method::Full, Task::Sft), (Method::Lora, Task::Dpo), (Method::Qlora, Task::Sft)]
            {
                let mut scenario = Scenario::default();
                scenario.change(|scenario| {
                    (scenario.task, scenario.method, scenario.stack) = (task, method, *stack);
                });
                let (model, gpu) =
                    (scenario.architecture().expect("a model"), scenario.gpu().expect("a card"));
                let Ok(recording) = Recording::of(&model, &scenario, &gpu) else { continue };
                for line in
                    explain(&recording.tensors_at_peak(crate::allocator::Settings::default()), &scenario)
                {
                    for (source, address) in read_at(&line.source) {
                        let is_file =
                            !source.starts_with("compared with") && !source.starts_with("unsloth_zoo");
                        assert_eq!(address.is_some(), is_file, "{}: {source}", line.what);
                    }
                }
            }
        }
    }
}
