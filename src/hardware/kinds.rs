//! What cards differ in: compute capability, maker, where they are found, and what the figure of their memory rests on.

use std::fmt;

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
    type Err = NotACapability;

    fn from_str(text: &str) -> Result<ComputeCapability, NotACapability> {
        let parse = || {
            let (major, minor) = text.split_once('.')?;
            Some(ComputeCapability { major: major.parse().ok()?, minor: minor.parse().ok()? })
        };
        parse().ok_or_else(|| NotACapability(text.to_owned()))
    }
}

/// A text that is no compute capability.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotACapability(String);

impl fmt::Display for NotACapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no compute capability (use one such as 8.6)", self.0)
    }
}

impl std::error::Error for NotACapability {}

/// Who makes a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
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

    /// The commands that watch the memory of such a card while a program runs; none where there is none to name. Of a card's own
    /// [`Gpu::watch`](super::Gpu::watch) asks.
    pub(super) const fn watch(self) -> &'static [&'static str] {
        match self {
            Vendor::Nvidia => &[
                "nvidia-smi -l 1",
                "nvidia-smi -l 1 --query-gpu=memory.used,memory.total,memory.free --format=csv",
            ],
            Vendor::Amd => &["watch -n 1 'rocm-smi --showuse --showmeminfo vram'"],
            Vendor::Intel => &["xpu-smi dump -d 0 -m 18"],
            Vendor::Apple => &["while true; do vm_stat | grep 'Pages active'; sleep 5; done"],
            Vendor::Google => &[],
        }
    }
}

/// Where a card is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
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

/// What the figure [`Gpu::memory`](super::Gpu::memory) rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Basis {
    /// PyTorch's own report of the card's total.
    Torch,
    /// The driver's total, less what it keeps from programs.
    Driver,
    /// The size that the card is sold with, less what driver and error correction take of such cards.
    Marketed,
    /// The share of a unified memory that the system lets the graphics part have.
    WorkingSet,
    /// The half of the system's memory that Linux lets a graphics part have.
    Shared,
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
            Basis::Shared => {
                "The half of the memory that Linux lets the graphics part have unless told otherwise."
            }
            Basis::User => "The amount that you gave.",
        }
    }
}
