//! What a program can have of a card, and what its context takes. `data/SOURCES.md` names where each figure is from.

use super::kinds::{Basis, Class, ComputeCapability, Vendor};
use crate::units::{Between, Bytes};

/// A CUDA context with lazily loaded kernels, where nothing closer is known: 300 to 900 MiB were seen.
pub(super) const TYPICAL_CONTEXT: Bytes = Bytes::mib(500);

/// A CUDA context with every kernel loaded: an A100 under torch 2.1.1. A training step loads some of them, so that its context
/// lies between the lazy one and this.
pub(super) const FULL_CONTEXT: Bytes = Bytes::mib(942);

/// What NCCL took on each of two GPUs when torch.distributed made its first communicator: the process went from 0.55 to 2.00 GiB
/// (stas00/ml-engineering@744d01e, debug). What it takes grows with channels and communicators (NVIDIA/nccl#864, #1450; `docs/parallel.md`).
const NCCL_OF_ONE: Bytes = Bytes::mib(1_485);

/// The least that was seen of one: tensor-parallel inference on 2 GPUs (ai-dynamo/aiconfigurator, `nccl_mem`).
const NCCL_LEAST: Bytes = Bytes(342_000_000);

/// The most that was published of any number: "multiple NCCL communicators (>=3)" (NVIDIA/nccl#864).
const NCCL_MOST: Bytes = Bytes(6_000_000_000);

/// What so many of NCCL's communicators take of a GPU. No formula is published: one takes what one was seen to, two twice that, as each has
/// buffers of its own (NVIDIA/nccl#986), three and more what these were seen to.
pub(crate) fn nccl(communicators: usize) -> Between {
    match communicators {
        0 => Between { least: Bytes::ZERO, most: Bytes::ZERO },
        1 => Between { least: NCCL_LEAST, most: NCCL_OF_ONE },
        2 => Between { least: NCCL_LEAST, most: NCCL_OF_ONE + NCCL_OF_ONE },
        _ => Between { least: NCCL_LEAST, most: NCCL_MOST },
    }
}

/// What the catalogue says of a card's memory, in MiB but for the marketed GB.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figures {
    pub vendor: Vendor,
    pub class: Class,
    pub marketed_gb: Option<u16>,
    pub driver_mib: Option<u64>,
    pub torch_mib: Option<u64>,
    /// Graphics memory that loses capacity to error correction; HBM carries the extra bits beside the data.
    pub gddr: bool,
}

/// What a program can have, and what that rests on; `None` where the catalogue has no figure at all.
pub(super) fn usable(figures: Figures) -> Option<(Bytes, Basis)> {
    if let Some(mib) = figures.torch_mib {
        return Some((Bytes::mib(mib), Basis::Torch));
    }
    if let Some(mib) = figures.driver_mib {
        let basis = if figures.vendor == Vendor::Apple { Basis::WorkingSet } else { Basis::Driver };
        return Some((Bytes::mib(mib - kept_by_driver(figures.vendor, mib).min(mib)), basis));
    }
    // Cards sold with N GB have N GiB on board.
    let total = u64::from(figures.marketed_gb?) * 1024;
    let total = match (figures.vendor, figures.class) {
        // Metal lets programs have at least 3/4 of 36 GB and more.
        (Vendor::Apple, _) => return Some((Bytes::mib(total / 4 * 3), Basis::WorkingSet)),
        // Linux lets the graphics part of a processor have half of the RAM (drivers/gpu/drm/ttm/ttm_device.c).
        (Vendor::Amd, Class::Unified) => return Some((Bytes::mib(total / 2), Basis::Shared)),
        // Error correction is on by default in data centres and takes 6.25 % of graphics memory.
        (Vendor::Nvidia, Class::Datacenter) if figures.gddr => total / 16 * 15,
        _ => total,
    };
    Some((Bytes::mib(total - kept_by_driver(figures.vendor, total).min(total)), Basis::Marketed))
}

/// MiB that the driver reports but PyTorch does not see. Of NVIDIA's desktop and data-centre cards with both figures:
/// 92 to 251 up to 12 GiB, 115 to 601 up to 48 GiB, 616 to 882 above. On ROCm the two are equal.
fn kept_by_driver(vendor: Vendor, total_mib: u64) -> u64 {
    match vendor {
        Vendor::Nvidia | Vendor::Intel => match total_mib {
            ..=12_288 => 250,
            12_289..=65_536 => 500,
            _ => 900,
        },
        Vendor::Amd | Vendor::Google | Vendor::Apple => 0,
    }
}

/// What a process takes of the card before its first tensor, by generation.
pub(super) fn context(vendor: Vendor, capability: Option<ComputeCapability>) -> Bytes {
    match (vendor, capability.map(|capability| (capability.major, capability.minor))) {
        // A T4 under torch 2.10 to 2.14.
        (Vendor::Nvidia, Some((7, 5))) => Bytes::mib(141),
        // An A100 under torch 2.1 with lazy loading.
        (Vendor::Nvidia, Some((8, _))) => Bytes::mib(481),
        // "Observed" on all of NVIDIA's data-centre cards: 551 MB.
        (Vendor::Nvidia, Some((9, _))) => Bytes::mib(525),
        // A B200 at the first call.
        (Vendor::Nvidia, Some((10.., _))) => Bytes::mib(612),
        (Vendor::Nvidia | Vendor::Amd | Vendor::Intel, _) => TYPICAL_CONTEXT,
        // The working set and the TPU's memory are counted without the process's own.
        (Vendor::Apple | Vendor::Google, _) => Bytes::ZERO,
    }
}

/// What it takes at most.
pub(super) fn full_context(vendor: Vendor) -> Bytes {
    match vendor {
        Vendor::Nvidia | Vendor::Amd | Vendor::Intel => FULL_CONTEXT,
        Vendor::Apple | Vendor::Google => Bytes::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T4: Figures = Figures {
        vendor: Vendor::Nvidia,
        class: Class::Datacenter,
        marketed_gb: Some(16),
        driver_mib: Some(15_360),
        torch_mib: Some(14_912),
        gddr: true,
    };

    #[test]
    fn the_closest_figure_wins() {
        assert_eq!(usable(T4), Some((Bytes::mib(14_912), Basis::Torch)));
        let without = Figures { torch_mib: None, ..T4 };
        assert_eq!(usable(without), Some((Bytes::mib(14_860), Basis::Driver)));
        // 16 GiB less error correction is the driver's 15,360 MiB.
        let marketed = Figures { driver_mib: None, ..without };
        assert_eq!(usable(marketed), Some((Bytes::mib(14_860), Basis::Marketed)));
        assert_eq!(usable(Figures { marketed_gb: None, ..marketed }), None);
    }

    #[test]
    fn unified_memory_is_shared() {
        let apple = Figures { vendor: Vendor::Apple, class: Class::Unified, gddr: false, ..T4 };
        let m3_ultra = Figures { marketed_gb: Some(256), driver_mib: None, torch_mib: None, ..apple };
        assert_eq!(usable(m3_ultra), Some((Bytes::mib(192 * 1024), Basis::WorkingSet)));
        let strix_halo = Figures { vendor: Vendor::Amd, marketed_gb: Some(64), ..m3_ultra };
        assert_eq!(usable(strix_halo), Some((Bytes::mib(32 * 1024), Basis::Shared)));
    }
}
