//! Cards: how much memory a program can have of them, and which kernels run on them.

mod catalogue;
mod memory;
mod rent;

use std::fmt;
use std::sync::Arc;

use crate::issue::{Field, Issue};
use crate::units::Bytes;

pub use catalogue::{gpus, search};
pub use rent::{Machine, cheapest};

/// A CUDA compute capability, such as 8.0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ComputeCapability {
    /// 8 of 8.6.
    pub major: u8,
    /// 6 of 8.6.
    pub minor: u8,
}

impl fmt::Display for ComputeCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl std::str::FromStr for ComputeCapability {
    /// The text that is no capability.
    type Err = String;

    fn from_str(text: &str) -> Result<ComputeCapability, String> {
        let parse = || {
            let (major, minor) = text.split_once('.')?;
            Some(ComputeCapability { major: major.parse().ok()?, minor: minor.parse().ok()? })
        };
        parse().ok_or_else(|| text.to_owned())
    }
}

/// Who makes a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Vendor {
    /// NVIDIA.
    Nvidia,
    /// AMD.
    Amd,
    /// Intel.
    Intel,
    /// Google: TPUs.
    Google,
    /// Apple: memory shared with the processor.
    Apple,
}

impl Vendor {
    /// Every vendor, in the order of the catalogue.
    pub const ALL: [Vendor; 5] = [Vendor::Nvidia, Vendor::Amd, Vendor::Intel, Vendor::Google, Vendor::Apple];

    /// The name shown to people.
    pub const fn label(self) -> &'static str {
        match self {
            Vendor::Nvidia => "NVIDIA",
            Vendor::Amd => "AMD",
            Vendor::Intel => "Intel",
            Vendor::Google => "Google",
            Vendor::Apple => "Apple",
        }
    }
}

/// Where a card is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Desktops.
    Consumer,
    /// Workstations.
    Workstation,
    /// Data centres.
    Datacenter,
    /// Laptops.
    Laptop,
    /// A processor that shares its memory with the graphics part.
    Unified,
}

impl Class {
    /// The name shown to people.
    pub const fn label(self) -> &'static str {
        match self {
            Class::Consumer => "desktop",
            Class::Workstation => "workstation",
            Class::Datacenter => "data centre",
            Class::Laptop => "laptop",
            Class::Unified => "unified memory",
        }
    }
}

/// What the figure [`Gpu::memory`] rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Basis {
    /// PyTorch's own report of the card's total.
    Torch,
    /// The driver's total, less what it keeps from programs.
    Driver,
    /// The size that the card is sold with, less what driver and error correction take of such cards.
    Marketed,
    /// The share of a unified memory that the system lets the graphics part have.
    WorkingSet,
    /// What the user said.
    User,
}

impl Basis {
    /// One sentence on it.
    pub const fn help(self) -> &'static str {
        match self {
            Basis::Torch => "The total that PyTorch reports on this card.",
            Basis::Driver => {
                "The total that the driver reports, less what it keeps from programs on such cards."
            }
            Basis::Marketed => {
                "No report was found: the size that it is sold with, less what such cards lose."
            }
            Basis::WorkingSet => "The working set that Metal recommends; the rest belongs to the system.",
            Basis::User => "The amount that you gave.",
        }
    }
}

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
    /// What a CUDA context takes before the first tensor.
    pub context: Bytes,
    /// What it takes at most: with every kernel loaded.
    pub context_most: Bytes,
}

impl Gpu {
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
            context: memory::TYPICAL_CONTEXT,
            context_most: memory::FULL_CONTEXT,
        }
    }

    /// The first card of the catalogue with that capability.
    pub fn with_capability(capability: ComputeCapability) -> Option<&'static Gpu> {
        gpus().find(|gpu| gpu.capability == Some(capability))
    }
}

/// The card of that slug.
///
/// # Errors
/// An [`Issue`] where there is none.
///
/// ```
/// let gpu = headroom::hardware::gpu("rtx-4090").unwrap();
/// assert_eq!(gpu.memory, headroom::units::Bytes::mib(24_058));
/// ```
pub fn gpu(slug: &str) -> Result<Gpu, Issue> {
    if let Some(gpu) = catalogue::by_slug(slug) {
        return Ok(gpu.clone());
    }
    let similar: Vec<_> = search(slug).into_iter().take(4).map(|gpu| &*gpu.slug).collect();
    let fix = match similar.is_empty() {
        true => "use a card such as rtx-4090 or an amount such as 24GB".to_owned(),
        false => format!("perhaps {}", similar.join(", ")),
    };
    Err(Issue::error(Field::Gpu, format!("no card is called {slug:?}")).with_fix(fix))
}
