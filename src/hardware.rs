//! Cards: how much memory PyTorch sees, and which kernels run on them.

use std::sync::Arc;

use crate::scenario::{Field, Issue};
use crate::units::Bytes;

/// A CUDA compute capability, such as 8.0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ComputeCapability {
    /// 8 of 8.6.
    pub major: u8,
    /// 6 of 8.6.
    pub minor: u8,
}

/// A card.
#[derive(Clone, Debug, PartialEq)]
pub struct Gpu {
    /// Name in links: `rtx-4090`.
    pub slug: Arc<str>,
    /// Name for people: `GeForce RTX 4090`.
    pub name: Arc<str>,
    /// What a program can have of it.
    pub memory: Bytes,
    /// What its kernels are chosen by; absent for cards that are not NVIDIA's.
    pub capability: Option<ComputeCapability>,
    /// What a CUDA context takes before the first tensor.
    pub context: Bytes,
}

impl Gpu {
    /// A card of that much memory with nothing else known: kernels as on an A100.
    pub fn custom(memory: Bytes) -> Gpu {
        Gpu {
            slug: "custom".into(),
            name: "custom card".into(),
            memory,
            capability: Some(ComputeCapability { major: 8, minor: 0 }),
            context: Bytes::mib(500),
        }
    }
}

/// The card of that slug.
///
/// # Errors
/// An [`Issue`] where there is none.
pub fn gpu(slug: &str) -> Result<Gpu, Issue> {
    match slug {
        "rtx-4090" => {
            Ok(Gpu { slug: slug.into(), name: "GeForce RTX 4090".into(), ..Gpu::custom(Bytes::mib(24_564)) })
        }
        _ => Err(Issue::error(Field::Gpu, format!("no card is called {slug:?}"))),
    }
}
