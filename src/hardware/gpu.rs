//! A card, or an amount of memory.

use std::sync::Arc;

use super::kinds::{Basis, Class, ComputeCapability, Vendor};
use super::memory;
use crate::units::{Bytes, ParseBytesError};

/// A card.
#[derive(Clone, Debug, PartialEq)]
pub struct Gpu {
    /// Name in links: `rtx-4090`.
    pub slug: Arc<str>,
    /// Name for people: `GeForce RTX 4090`.
    pub name: Arc<str>,
    /// Who makes it.
    pub vendor: Vendor,
    /// Where it is found; absent for an amount of memory without a card.
    pub class: Option<Class>,
    /// The size in GB that it is sold with; absent for an amount of memory without a card.
    pub marketed_gb: Option<u16>,
    /// What a program can have of it.
    pub memory: Bytes,
    /// What that figure rests on.
    pub basis: Basis,
    /// What its kernels are chosen by; absent for cards that are not NVIDIA's.
    pub capability: Option<ComputeCapability>,
    /// What its tensor cores multiply in 16 bits, summed in 32, by its data sheet: TFLOP/s without sparsity.
    pub tflops: Option<f64>,
    /// What its memory moves by its data sheet: GB/s.
    pub bandwidth: Option<f64>,
    /// What it sends others of its machine over NVLink, one way: GB/s. Absent where not all are linked: bridges join two.
    pub nvlink: Option<f64>,
    /// What it sends over PCIe, one way: GB/s.
    pub pcie: Option<f64>,
    /// What a CUDA context takes before the first tensor.
    pub context: Bytes,
    /// What it takes at most: with every kernel loaded, and with NCCL's buffers where there are several GPUs.
    pub context_most: Bytes,
    /// A cuBLAS workspace, where it is another than PyTorch asks for (`CUBLAS_WORKSPACE_CONFIG`).
    pub workspace: Option<Bytes>,
    /// What it tells a program that asks how much it has, where less of it is to be used: a search for what surely fits looks at a smaller
    /// card, and the run is still one on this card.
    pub told: Option<Bytes>,
}

/// The memory of a card that is sold with an amount: what is sold in GB is GiB, less what the driver keeps.
///
/// ```
/// use headroom::hardware::sold_with;
/// use headroom::units::Bytes;
/// assert_eq!(sold_with("12 GB"), Ok(Bytes::gib(12.0)));
/// assert_eq!(sold_with("11.5GiB"), Ok(Bytes::gib(11.5)));
/// ```
///
/// # Errors
/// Where the text is no amount of memory.
pub fn sold_with(amount: &str) -> Result<Bytes, ParseBytesError> {
    let lower = amount.trim().to_ascii_lowercase();
    let binary = lower.strip_suffix("gb").and_then(|number| format!("{number}GiB").parse().ok());
    binary.map_or_else(|| amount.parse(), Ok)
}

impl Gpu {
    /// What is to know of its memory where a program shares it with the system.
    pub const fn note(&self) -> Option<&'static str> {
        match (self.class, self.vendor) {
            (Some(Class::Unified), Vendor::Amd) => {
                Some("Linux lets graphics have half of the RAM; ttm.pages_limit allows more")
            }
            (Some(Class::Unified), Vendor::Apple) => {
                Some("Metal lets programs use this much of the RAM; the system needs some of it, too")
            }
            (Some(Class::Unified), Vendor::Nvidia) => {
                Some("the system, its files in memory among them, takes of the same RAM")
            }
            (Some(Class::Unified), Vendor::Intel | Vendor::Google)
            | (
                None | Some(Class::Consumer | Class::Workstation | Class::Datacenter | Class::Laptop),
                Vendor::Nvidia | Vendor::Amd | Vendor::Apple | Vendor::Intel | Vendor::Google,
            ) => None,
        }
    }

    /// The commands that watch its memory while a program runs; none where there is none to name.
    ///
    /// nvidia-smi says "Not Supported" of a processor's unified memory (a DGX Spark, `data/gpus.csv`). What is left of that Linux knows:
    /// a change to llama.cpp (github.com/ggml-org/llama.cpp/pull/17368) reads these lines there.
    pub fn watch(&self) -> &'static [&'static str] {
        match (self.class, self.vendor) {
            (Some(Class::Unified), Vendor::Nvidia) => {
                &["watch -n 1 \"grep -E 'MemTotal|MemAvailable|SwapFree' /proc/meminfo\""]
            }
            // what a program has there is GTT's, beside the part that the BIOS sets aside
            (Some(Class::Unified), Vendor::Amd) => {
                &["watch -n 1 'rocm-smi --showuse --showmeminfo vram gtt'"]
            }
            // Gaudi's own, by whose output its memory is known (`data/gpus.csv`)
            (_, Vendor::Intel) if self.is_gaudi() => &["watch -n 1 hl-smi"],
            (_, vendor) => vendor.watch(),
        }
    }

    /// Whether it is Intel's Gaudi, whose software is another than that of Intel's graphics cards: there is no Triton for it.
    pub(crate) fn is_gaudi(&self) -> bool {
        self.slug.starts_with("gaudi")
    }

    /// A card of that much memory with nothing else known: kernels as on an A100.
    pub fn custom(memory: Bytes) -> Gpu {
        Gpu {
            slug: "custom".into(),
            name: "custom card".into(),
            vendor: Vendor::Nvidia,
            class: None,
            marketed_gb: None,
            memory,
            basis: Basis::User,
            capability: Some(ComputeCapability { major: 8, minor: 0 }),
            tflops: None,
            bandwidth: None,
            nvlink: None,
            pcie: None,
            context: memory::TYPICAL_CONTEXT,
            context_most: memory::FULL_CONTEXT,
            workspace: None,
            told: None,
        }
    }

    /// How much memory a program is told that it has.
    pub(crate) fn tells(&self) -> Bytes {
        self.told.unwrap_or(self.memory)
    }
}
