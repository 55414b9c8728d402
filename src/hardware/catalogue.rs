//! The cards that Headroom knows by name: `data/gpus.csv`, packed by `build/hardware.rs`.

use std::sync::OnceLock;

use super::memory::{Figures, context, usable};
use super::{Class, Gpu, Vendor};
use crate::search::{all_met, asked, best_first, words};

static PACKED: &str = include_str!(concat!(env!("OUT_DIR"), "/gpus.tsv"));

/// Every card whose memory is known, NVIDIA's first, old before new.
pub fn gpus() -> &'static [Gpu] {
    static GPUS: OnceLock<Vec<Gpu>> = OnceLock::new();
    GPUS.get_or_init(|| PACKED.lines().filter_map(read).collect())
}

/// The cards that most people have or rent: of what a search finds equally good they come first.
const USUAL: [&str; 14] = [
    "rtx-4090",
    "rtx-3090",
    "rtx-5090",
    "rtx-4070-ti-super",
    "rtx-3060-12gb",
    "t4",
    "l4",
    "a10g",
    "l40s",
    "a100-sxm-40gb",
    "a100-sxm-80gb",
    "h100-sxm-80gb",
    "h200-sxm",
    "b200",
];

/// The cards that answer every word of a query, best first, the usual before the others; all where the query has no
/// word.
///
/// ```
/// let found = headroom::hardware::search("a100 80");
/// assert_eq!(&*found[0].slug, "a100-sxm-80gb");
/// assert!(found.iter().all(|gpu| gpu.name.contains("A100") && gpu.name.contains("80")));
/// ```
pub fn search(query: &str) -> Vec<&'static Gpu> {
    let query = asked(query);
    let usual = USUAL.iter().filter_map(|slug| gpus().iter().find(|gpu| *gpu.slug == **slug));
    let others = gpus().iter().filter(|gpu| !USUAL.contains(&&*gpu.slug));
    best_first(usual.chain(others).filter_map(|gpu| {
        let known = words(&format!("{} {} {}", gpu.vendor.label(), gpu.name, gpu.slug));
        Some((all_met(&query, &known)?, gpu))
    }))
}

fn read(line: &str) -> Option<Gpu> {
    let mut fields = line.split('\t');
    let mut next = || fields.next();
    let slug = next()?;
    let vendor = match next()? {
        "nvidia" => Vendor::Nvidia,
        "amd" => Vendor::Amd,
        "intel" => Vendor::Intel,
        "google" => Vendor::Google,
        "apple" => Vendor::Apple,
        _ => return None,
    };
    let name = next()?;
    let class = match next()? {
        "consumer" => Class::Consumer,
        "workstation" => Class::Workstation,
        "datacenter" => Class::Datacenter,
        "laptop" => Class::Laptop,
        "unified" => Class::Unified,
        _ => return None,
    };
    let marketed_gb = next()?.parse().ok();
    let driver_mib = next()?.parse().ok();
    let torch_mib = next()?.parse().ok();
    let gddr = next()?.starts_with("GDDR");
    let capability = next()?.parse().ok();
    let (memory, basis) = usable(Figures { vendor, class, marketed_gb, driver_mib, torch_mib, gddr })?;
    Some(Gpu {
        slug: slug.into(),
        name: name.into(),
        vendor,
        class: Some(class),
        marketed_gb,
        memory,
        basis,
        capability,
        context: context(vendor, capability),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::{Basis, ComputeCapability, gpu};
    use crate::units::Bytes;

    #[test]
    fn every_card_with_a_figure_is_there() {
        // 243 rows less B100 and TPU v7x, whose memory is not known.
        assert_eq!(PACKED.lines().count(), 243);
        assert_eq!(gpus().len(), 241);
        for gpu in gpus() {
            let marketed = f64::from(gpu.marketed_gb.unwrap()) * 1024.0;
            let share = gpu.memory.0 as f64 / f64::from(1 << 20) / marketed;
            assert!((0.6..=1.03).contains(&share), "{}: {share}", gpu.slug);
            assert_eq!(gpu.capability.is_some(), gpu.vendor == Vendor::Nvidia, "{}", gpu.slug);
            assert!(!gpu.slug.starts_with(|c: char| c.is_ascii_digit()), "{} reads as an amount", gpu.slug);
        }
        let mut slugs: Vec<_> = gpus().iter().map(|gpu| &gpu.slug).collect();
        slugs.sort();
        slugs.dedup();
        assert_eq!(slugs.len(), gpus().len());
    }

    #[test]
    fn figures_of_some_cards() {
        let card = |slug: &str| gpu(slug).map(|gpu| (gpu.memory, gpu.basis)).unwrap();
        assert_eq!(card("rtx-4090"), (Bytes::mib(24_058), Basis::Torch));
        assert_eq!(card("h100-sxm-80gb"), (Bytes::mib(81_559 - 900), Basis::Driver));
        assert_eq!(card("l40"), (Bytes::mib(48 * 960 - 500), Basis::Marketed));
        assert_eq!(card("apple-m2-max-64gb"), (Bytes::mib(49_152), Basis::WorkingSet));
        assert_eq!(gpu("h200-sxm").unwrap().capability, Some(ComputeCapability { major: 9, minor: 0 }));
    }

    #[test]
    fn search_is_tolerant() {
        let slugs = |query| search(query).iter().map(|gpu| &*gpu.slug).collect::<Vec<_>>();
        assert_eq!(slugs("RTX4090 laptop"), ["rtx-4090-laptop"]);
        assert_eq!(slugs("geforc 4090")[0], "rtx-4090");
        assert_eq!(slugs("H100")[0], "h100-sxm-80gb");
        assert_eq!(slugs("nvidia h200 nvl"), ["h200-nvl"]);
        assert_eq!(slugs("quantum"), [""; 0]);
        assert_eq!(search("").len(), gpus().len());
        assert_eq!(slugs("")[..USUAL.len()], USUAL);
    }

    #[test]
    fn an_unknown_slug_names_its_neighbours() {
        assert_eq!(
            gpu("a100").unwrap_err().to_string(),
            "no card is called \"a100\" (perhaps a100-sxm-40gb, a100-sxm-80gb, a100-pcie-40gb, a100-pcie-80gb)"
        );
    }
}
