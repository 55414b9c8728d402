//! Whether an allocator can join its free pieces.

use serde::{Deserialize, Serialize};

use crate::hardware::Vendor;
use crate::scenario::Allocator;

/// Whether the allocator can join its pieces: its setting `expandable_segments`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Joining {
    /// It can and does not yet.
    Off,
    /// It already does.
    On,
    /// On AMD's cards: the setting is there, and a build may lack what it needs (`expandable_segments` in
    /// `c10/cuda/CUDAAllocatorConfig.h` warns then and is off).
    Doubtful,
    /// Nothing is known of such a setting for this maker's cards.
    Unknown,
}

impl Joining {
    /// That of a maker's cards, and whether the scenario has it.
    pub(super) const fn of(vendor: Vendor, allocator: Allocator) -> Joining {
        match (vendor, allocator) {
            (Vendor::Nvidia, Allocator::Expandable) => Joining::On,
            (Vendor::Nvidia, Allocator::Native) => Joining::Off,
            (Vendor::Amd, _) => Joining::Doubtful,
            (Vendor::Intel | Vendor::Apple | Vendor::Google, _) => Joining::Unknown,
        }
    }
}
