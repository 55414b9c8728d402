//! Kernels written in CUDA or Triton, and the cards that do not run them: those of others than NVIDIA, and of Triton those before Volta.
//!
//! Source: torch 2.11 _inductor/scheduler.py and _inductor/exc.py `GPUTooOldForTriton`: "Triton only supports devices of CUDA
//! Capability >= 7.0".

use super::{
    AttentionKernel, Compile, Field, Issue, LossKernel, Method, Optimizer, Scenario, Stack, Task,
    WeightFormat,
};
use crate::hardware::{ComputeCapability, Gpu, Vendor};

/// The first cards that Triton compiles for.
const VOLTA: ComputeCapability = ComputeCapability { major: 7, minor: 0 };

/// Whether Triton compiles for a card. Of cards that are not NVIDIA's nothing else is known.
pub(crate) fn runs_on(gpu: &Gpu) -> bool {
    gpu.capability.is_none_or(|capability| capability >= VOLTA)
}

impl Scenario {
    /// What of a run that trains is written in Triton, or compiled to it, and the input that asks for it.
    pub(crate) fn asks_for_triton(&self) -> Option<(Field, &'static str)> {
        if !self.task.trains() {
            return None;
        }
        match self.stack {
            Stack::Liger => return Some((Field::Stack, "Liger's kernels")),
            Stack::Unsloth => return Some((Field::Stack, "Unsloth's kernels")),
            Stack::Transformers
            | Stack::Trl
            | Stack::Torchtune
            | Stack::Torchtitan
            | Stack::Litgpt
            | Stack::Megatron => {}
        }
        if self.runs_liger_layers() {
            return Some((Field::LigerLayers, "Liger's kernels"));
        }
        let loss = match self.software().loss(self.savings.loss) {
            LossKernel::Liger => Some("Liger's fused loss"),
            LossKernel::Axolotl => Some("axolotl's kernels over all logits"),
            LossKernel::Cut => Some("cut cross-entropy"),
            LossKernel::TransformerEngine => Some("Transformer Engine's cross-entropy"),
            LossKernel::MegatronFused => Some("Megatron-core's fused cross-entropy"),
            LossKernel::Standard
                if self.stack == Stack::Trl && !matches!(self.task, Task::Reward | Task::Ppo) =>
            {
                Some("trl's head, fused with the log-probabilities,")
            }
            LossKernel::Standard
            | LossKernel::Full
            | LossKernel::LogSoftmax
            | LossKernel::FloatLogits
            | LossKernel::VocabularyChunks
            | LossKernel::Chunked => None,
        };
        let compiled = (self.compile != Compile::Off).then_some((Field::Compile, "what torch.compile makes"));
        let optimizer = match self.optimizer {
            Optimizer::AdamW8bitTorchao | Optimizer::AdamW4bitTorchao => {
                Some("torchao's optimizer, which is compiled,")
            }
            // optimi asks whether the card has bfloat16, which PyTorch emulates
            Optimizer::StableAdamW => Some("optimi's optimizer"),
            _ => None,
        };
        loss.map(|what| (Field::Loss, what)).or(compiled).or(optimizer.map(|what| (Field::Optimizer, what)))
    }
}

/// That the run stops, as its card is older than what it asks of it.
pub(super) fn too_old(scenario: &Scenario) -> Option<Issue> {
    let gpu = scenario.gpu().ok()?;
    let capability = gpu.capability.filter(|_| !runs_on(&gpu))?;
    let (field, what) = scenario.asks_for_triton()?;
    let message = format!(
        "{what} needs Triton, which runs on cards of compute capability 7.0 and newer; the {} has {capability}",
        gpu.name
    );
    Some(Issue::warning(field, message).with_fix("choose what is PyTorch's own"))
}

/// Whether 4-bit weights run by Metal: bitsandbytes 0.50 has them there, and neither 8-bit nor paged optimizers
/// (backends/mps/ops.py, backends/default/ops.py).
fn runs_nf4_by_metal(scenario: &Scenario) -> bool {
    let is_apples = scenario.gpu().is_ok_and(|gpu| gpu.vendor == Vendor::Apple);
    let loads_by_it = matches!(scenario.stack, Stack::Transformers | Stack::Trl);
    is_apples && loads_by_it && scenario.quantization.format == WeightFormat::Nf4
}

/// That trl's fused head stops in its first backward pass: it adds products of bfloat16 to float32 (trl 1.16, kernels/chunked_logprob.py
/// `_addmm_fp32`), which PyTorch has from compute capability 8.0 alone (torch 2.11, aten/src/ATen/cuda/CUDABlas.cpp): it was run.
pub(super) fn adds_bfloat16_to_float(scenario: &Scenario) -> Option<Issue> {
    let fused = match scenario.task {
        Task::Sft | Task::Dpo | Task::Kto | Task::Grpo | Task::Rloo | Task::Distil => true,
        Task::Classify
        | Task::Embed
        | Task::Reward
        | Task::Orpo
        | Task::Cpo
        | Task::Simpo
        | Task::Ppo
        | Task::Generate => false,
    };
    let stops = fused
        && scenario.stack == Stack::Trl
        && scenario.savings.loss == LossKernel::Standard
        && scenario.emulates_bfloat16();
    let message = "trl's fused head adds products of bfloat16 to float32: PyTorch stops in the first step on a card that does not compute in \
                   bfloat16 itself (\"gemm input type at::BFloat16 and output type float is only supported for CUDA devices with compute \
                   capability 8.0 or higher\")";
    let fix = match scenario.method {
        Method::Qlora => "choose another training library, or LoRA over 16-bit weights in fp16 mixed",
        Method::Full | Method::Lora => "choose fp16 mixed",
    };
    stops.then(|| Issue::warning(Field::Precision, message).with_fix(fix))
}

/// What of a run is written in CUDA or Triton, each by itself.
pub(crate) const OF_CUDA: [fn(&Scenario) -> bool; 5] = [
    |scenario| scenario.method == Method::Qlora && !runs_nf4_by_metal(scenario),
    |scenario| scenario.optimizer.is_of_bitsandbytes(),
    |scenario| scenario.attention == AttentionKernel::FlashAttn,
    |scenario| scenario.stack == Stack::Megatron,
    |scenario| scenario.asks_for_triton().is_some(),
];

/// That a card which runs neither CUDA nor Triton has no kernels for a run that asks for some.
pub(crate) fn without_kernels(scenario: &Scenario) -> Option<Issue> {
    let gpu = scenario.gpu().ok()?;
    let asks = scenario.task.trains() && OF_CUDA.into_iter().any(|of_cuda| of_cuda(scenario));
    let lacks = matches!(gpu.vendor, Vendor::Google | Vendor::Apple) && asks;
    let message = format!("this needs kernels of CUDA or Triton, which the {} does not run", gpu.name);
    lacks.then(|| {
        Issue::warning(Field::Method, message)
            .with_fix("take LoRA over 16-bit weights, with optimizer and loss of PyTorch's own")
    })
}

#[cfg(test)]
mod tests {
    use crate::share;

    #[test]
    fn what_is_written_in_triton_stops_on_pascal_and_is_not_offered_there() {
        let of = |link: &str| share::decode(link).scenarios.remove(0);
        for asks in ["loss=liger", "loss=cut", "st=liger&p=amp-fp16", "o=stable-adamw"] {
            let stop = of(&format!("gpu=titan-xp&p=amp-fp16&{asks}")).stop().expect(asks);
            let told =
                "needs Triton, which runs on cards of compute capability 7.0 and newer; the TITAN Xp has 6.1";
            assert!(stop.message.contains(told), "{stop}");
            assert!(!of(&format!("gpu=t4&p=amp-fp16&{asks}")).stops(), "{asks}");
        }
        let plain = of("gpu=titan-xp&p=amp-fp16");
        assert!(!plain.stops());
        let levers = crate::plan::levers(&plain).expect("levers");
        assert!(!levers.single.is_empty());
        for lever in levers.single.iter().chain(&levers.together) {
            assert_eq!(lever.scenario.asks_for_triton(), None, "{:?}", lever.changes);
        }
    }

    #[test]
    fn trls_fused_head_stops_in_bfloat16_on_turing() {
        let of = |link: &str| share::decode(link).scenarios.remove(0);
        for task in ["sft", "dpo", "kto", "grpo", "rloo"] {
            for method in ["full", "lora", "qlora"] {
                let link =
                    |precision| format!("gpu=t4&st=trl&task={task}&method={method}&p={precision}&vllm=0");
                let stop = of(&link("amp-bf16")).stop().expect(task);
                assert!(stop.message.contains("gemm input type at::BFloat16"), "{stop}");
                // what it is told to choose instead runs
                assert_eq!(of(&link("amp-fp16")).stops(), method == "qlora", "{task} {method}");
                assert!(!of(&link("amp-bf16").replace("t4", "a10")).stops(), "{task} {method}");
            }
        }
        for runs in ["task=reward", "task=orpo", "loss=full", "st=transformers", "gpu=rx-7900-xtx"] {
            assert!(!of(&format!("gpu=t4&st=trl&method=lora&p=amp-bf16&{runs}")).stops(), "{runs}");
        }
    }

    #[test]
    fn a_gaudi_is_offered_nothing_of_tritons() {
        let gaudi = share::decode("m=meta-llama/Llama-3.1-8B&gpu=gaudi3&method=lora").scenarios.remove(0);
        let levers = crate::plan::levers(&gaudi).expect("levers");
        assert!(!levers.single.is_empty());
        for lever in levers.single.iter().chain(&levers.together) {
            assert_eq!(lever.scenario.asks_for_triton(), None, "{:?}", lever.changes);
        }
        let arc = share::decode("m=meta-llama/Llama-3.1-8B&gpu=arc-b570&method=lora").scenarios.remove(0);
        let levers = crate::plan::levers(&arc).expect("levers");
        assert!(levers.single.iter().any(|lever| lever.scenario.asks_for_triton().is_some()));
    }

    #[test]
    fn a_mac_is_told_that_it_has_no_kernels_and_offered_none() {
        use super::OF_CUDA;
        let of = |link: &str| share::decode(link).scenarios.remove(0);
        let told = |link: &str| {
            of(link).validate().iter().any(|issue| issue.message.contains("needs kernels of CUDA"))
        };
        let mac = of("m=meta-llama/Llama-3.1-8B&gpu=apple-m2-16gb");
        assert!(told("gpu=apple-m2-16gb&q=gptq") && told("gpu=apple-m2-16gb&method=lora&o=adamw-8bit"));
        assert!(told("gpu=tpu-v5e") && told("gpu=apple-m2-16gb&st=torchtune"));
        assert!(
            !told("gpu=apple-m2-16gb")
                && !told("gpu=apple-m2-16gb&method=lora")
                && !told("gpu=rtx-4090")
                && !told("gpu=apple-m2-16gb&task=generate")
        );
        let levers = crate::plan::levers(&mac).expect("levers");
        assert!(!levers.single.is_empty());
        for lever in levers.single.iter().chain(&levers.together) {
            let news = OF_CUDA.into_iter().filter(|of_cuda| of_cuda(&lever.scenario) && !of_cuda(&mac));
            assert_eq!(news.count(), 0, "{:?}", lever.changes);
        }
    }
}
