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
    /// Windows has none: PyTorch warns there ("expandable_segments not supported on this platform") and goes on without.
    Absent,
}

impl Joining {
    /// That of a maker's cards under the system that a text is of, and whether the scenario has it.
    pub(super) fn of(text: &str, vendor: Vendor, allocator: Allocator) -> Joining {
        match (vendor, allocator) {
            _ if is_of_windows(text) => Joining::Absent,
            (Vendor::Nvidia, Allocator::Expandable) => Joining::On,
            (Vendor::Nvidia, Allocator::Native) => Joining::Off,
            (Vendor::Amd, _) => Joining::Doubtful,
            (Vendor::Intel | Vendor::Apple | Vendor::Google, _) => Joining::Unknown,
        }
    }
}

/// Whether a text names a file as Windows does: `File "C:\Users\me\train.py"`.
fn is_of_windows(text: &str) -> bool {
    let names_a_drive = |rest: &str| {
        let mut letters = rest.chars();
        letters.next().is_some_and(|drive| drive.is_ascii_alphabetic()) && letters.as_str().starts_with(":\\")
    };
    text.split("File \"").skip(1).any(names_a_drive)
}
