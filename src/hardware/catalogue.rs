//! The cards that Headroom knows by name: `data/gpus.csv`, packed by `build/hardware.rs`.

use std::fmt;
use std::sync::LazyLock;

use super::gpu::Gpu;
use super::kinds::{Class, ComputeCapability, Vendor};
use super::memory::{Figures, context, full_context, usable};
use crate::search::{all_met, asked, best_first, words};

static ALL: LazyLock<Vec<Gpu>> =
    LazyLock::new(|| include_str!(concat!(env!("OUT_DIR"), "/gpus.tsv")).lines().filter_map(read).collect());

/// Every card whose memory is known: those that most people have or rent, then NVIDIA's, old before new, then others.
pub fn gpus() -> impl Iterator<Item = &'static Gpu> {
    ALL.iter()
}

/// The card of exactly that slug.
pub(super) fn by_slug(slug: &str) -> Option<&'static Gpu> {
    gpus().find(|gpu| *gpu.slug == *slug)
}

/// The card of that slug or name, however it is spelled, or that a driver calls so: `RTX 4090`, `4090` and `NVIDIA GeForce RTX 4090`
/// are rtx-4090, and `h100 80gb` the first of those with 80 GB. None where several might be meant, as by `a100`.
pub(crate) fn spelled(text: &str) -> Option<&'static Gpu> {
    let asked = asked(text);
    let query = plain(asked.clone());
    // fewer digits alone are an amount without its unit
    let is_number = query.len() == 1 && query[0].parse::<u32>().is_ok();
    let is_letter = query.len() == 1 && query[0].len() == 1;
    if query.is_empty() || is_letter || is_number && query[0].len() < 4 {
        return by_slug(text);
    }
    let only = |is_it: &dyn Fn(&Gpu) -> bool| {
        let mut found = gpus().filter(|gpu| is_it(gpu));
        found.next().filter(|_| found.next().is_none())
    };
    let of_driver = || {
        let mut drivers = DRIVERS.iter().filter(|(name, _)| words(name) == query);
        drivers.next().and_then(|(_, slug)| by_slug(slug))
    };
    let is_called = |gpu: &Gpu| {
        let name = plain(words(&gpu.name));
        let whole = query.concat();
        // 4000 alone is no RTX A4000
        let begins = |name: &[String], from: usize| !is_number || from == 0 || name[from - 1].len() > 1;
        let ends = |name: &[String]| {
            (0..name.len()).any(|from| begins(name, from) && name[from..].concat() == whole)
        };
        ends(&name) || ends(without_memory(&name))
    };
    let has_all = |gpu: &Gpu| {
        let known = words(&format!("{} {}", gpu.name, gpu.slug));
        query.iter().all(|word| known.contains(word))
    };
    by_slug(text)
        .or_else(of_driver)
        .or_else(|| only(&|gpu| words(&gpu.slug) == asked || plain(words(&gpu.name)) == query))
        .or_else(|| only(&|gpu| without_memory(&plain(words(&gpu.name))) == query))
        // the Quadro RTX 6000 is not the only one: an RTX 6000 Ada is called so at its beginning
        .or_else(|| {
            only(&is_called).filter(|_| !gpus().any(|gpu| plain(words(&gpu.name)).starts_with(&query)))
        })
        .or_else(|| only(&has_all))
        .or_else(|| alike(&search(text)))
}

/// The first of some cards that are one to a step: of the same capability and as much memory, as H100s of 80 GB in either form.
fn alike(found: &[&'static Gpu]) -> Option<&'static Gpu> {
    let first = *found.first().filter(|gpu| gpu.capability.is_some())?;
    let is_same = |gpu: &&Gpu| (gpu.capability, gpu.marketed_gb) == (first.capability, first.marketed_gb);
    found.iter().all(is_same).then_some(first)
}

/// What drivers call cards, but for the maker, where the words of the catalogue's name do not tell: `nvidia-smi --query-gpu=name`. A
/// GH200's 480 GB are the processor's; torch sees 97.8 GB of its own.
const DRIVERS: [(&str, &str); 4] = [
    ("H100 80GB HBM3", "h100-sxm-80gb"),
    ("H200", "h200-sxm"),
    ("GH200 480GB", "gh200-96gb"),
    ("RTX 6000 Ada Generation", "rtx-6000-ada"),
];

/// A name's words but for its maker's and those that say that it is a graphics card.
fn plain(mut words: Vec<String>) -> Vec<String> {
    const NOISE: [&str; 10] =
        ["nvidia", "amd", "intel", "apple", "corporation", "gpu", "graphics", "edition", "r", "tm"];
    words.retain(|word| !NOISE.contains(&word.as_str()));
    words
}

/// So many cards may be asked for by nothing but a number before a name: no machine has more.
const MOST_SPACED: u64 = 72;

/// How many cards are asked for where words ask for several, and the words for one of them: `8x h100`, `2 × A100`, `h100 x8`, `8 h100`.
///
/// ```
/// use headroom::hardware::several;
/// assert_eq!(several("8xH100"), Some((8, "H100")));
/// assert_eq!(several("8 h100 80gb"), Some((8, "h100 80gb")));
/// assert_eq!(several("rtx 4090"), None);
/// ```
pub fn several(words: &str) -> Option<(u64, &str)> {
    const TIMES: [char; 4] = ['x', 'X', '×', '*'];
    let words = words.trim();
    let count = |text: &str| text.trim().parse::<u64>().ok().filter(|count| *count > 0);
    let before = words.split_once(TIMES).and_then(|(number, rest)| Some((count(number)?, rest.trim())));
    // the x of `rtx 4090` stands for nothing
    let after = words.rsplit_once(TIMES).filter(|(rest, _)| rest.ends_with(char::is_whitespace));
    // no card's name begins with so small a number and a space, but other words may: what follows is a card's
    let spaced = words.split_once(' ').and_then(|(number, rest)| Some((count(number)?, rest.trim())));
    let spaced = spaced.filter(|(count, rest)| {
        let begins = rest.starts_with(|first: char| first.is_ascii_alphabetic());
        *count <= MOST_SPACED
            && begins
            && rest.chars().any(|digit| digit.is_ascii_digit())
            && !search(rest).is_empty()
    });
    before.or(spaced).or_else(|| after.and_then(|(rest, number)| Some((count(number)?, rest.trim()))))
}

/// The card of that slug.
///
/// # Errors
/// Where there is none.
///
/// ```
/// let gpu = headroom::hardware::gpu("rtx-4090").unwrap();
/// assert_eq!(gpu.memory, headroom::units::Bytes::mib(24_058));
///
/// let error = headroom::hardware::gpu("rtx-4099").unwrap_err();
/// assert_eq!(error.to_string(), "no card is called \"rtx-4099\" (use a card such as rtx-4090 or an amount such as 24GB)");
/// ```
pub fn gpu(slug: &str) -> Result<Gpu, UnknownGpu> {
    by_slug(slug).cloned().ok_or_else(|| UnknownGpu { slug: slug.to_owned() })
}

/// A name that no card has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownGpu {
    slug: String,
}

impl UnknownGpu {
    /// What is wrong.
    pub fn message(&self) -> String {
        format!("no card is called {:?}", self.slug)
    }

    /// What would be right.
    pub fn fix(&self) -> String {
        // a card of one size, named with it: `t4-16gb`
        let named = self.slug.rsplit_once('-').filter(|(_, size)| size.ends_with("gb"));
        let named = named.and_then(|(name, _)| by_slug(name)).into_iter();
        let mut similar: Vec<_> = named.chain(search(&self.slug)).map(|gpu| &*gpu.slug).collect();
        similar.dedup();
        similar.truncate(4);
        match similar.is_empty() {
            true => "use a card such as rtx-4090 or an amount such as 24GB".to_owned(),
            false => format!("perhaps {}", similar.join(", ")),
        }
    }
}

impl fmt::Display for UnknownGpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message(), self.fix())
    }
}

impl std::error::Error for UnknownGpu {}

impl Gpu {
    /// The first card of the catalogue with that capability.
    pub fn with_capability(capability: ComputeCapability) -> Option<&'static Gpu> {
        gpus().find(|gpu| gpu.capability == Some(capability))
    }
}

/// The cards that answer every word of a query, best first: `4070` is the card of which that is the whole name rather than the
/// 4070 Ti SUPER, and `3060` the RTX 3060 12GB rather than the Ti. All where the query has no word.
///
/// ```
/// let found = headroom::hardware::search("a100 80");
/// assert_eq!(&*found[0].slug, "a100-sxm-80gb");
/// assert!(found.iter().all(|gpu| gpu.name.contains("A100") && gpu.name.contains("80")));
/// let found = headroom::hardware::search("12 GB");
/// assert!(found.len() > 3 && found.iter().all(|gpu| gpu.marketed_gb == Some(12)));
/// ```
pub fn search(query: &str) -> Vec<&'static Gpu> {
    let mut query = with_units(asked(query));
    // nvidia-smi prints the kind of memory behind the name: H100 80GB HBM3
    if let Some(kind) = query.iter().position(|word| word == "hbm") {
        query.drain(kind..query.len().min(kind + 2));
    }
    let found = best_first(gpus().filter_map(|gpu| {
        let called = format!("{} {} {} {}", gpu.vendor.label(), gpu.name, gpu.slug, also_called(gpu));
        let mut known = words(&called);
        known.extend(gpu.marketed_gb.map(|gb| format!("{gb}gb")));
        // 12 GB is no beginning of 128, and no end of 512
        if query.iter().any(|word| is_memory(word) && !known.contains(word)) {
            return None;
        }
        let name = words(&gpu.name);
        let is_named =
            !query.is_empty() && (name.ends_with(&query) || without_memory(&name).ends_with(&query));
        Some((all_met(&query, &known)? * 2 + u32::from(is_named), gpu))
    }));
    if !found.is_empty() {
        return found;
    }
    // words that were written as one: 1080ti
    let whole = query.concat();
    gpus().filter(|gpu| words(&gpu.name).concat().contains(&whole)).collect()
}

/// What people call a card beside its name: the computer that it is in, or the service that lends it to everybody (Colab's and Kaggle's
/// free notebooks have a T4).
fn also_called(gpu: &Gpu) -> &'static str {
    match (gpu.vendor, &*gpu.slug) {
        (Vendor::Apple, _) => "mac macbook",
        (_, "t4") => "colab kaggle",
        (_, "h100-sxm-80gb" | "h200-sxm" | "b200" | "b300" | "a100-sxm-80gb" | "a100-sxm-40gb") => "dgx",
        _ => "",
    }
}

/// The words of a query with a number and the unit behind it as one, as names have them: `12 GB` is `12gb`.
fn with_units(query: Vec<String>) -> Vec<String> {
    let mut joined: Vec<String> = Vec::new();
    for word in query {
        match joined.last_mut() {
            Some(number) if matches!(&*word, "gb" | "gib") && number.parse::<u32>().is_ok() => {
                number.push_str("gb");
            }
            _ => joined.push(word),
        }
    }
    joined
}

/// Whether a word says how much memory a card has: `24gb`.
fn is_memory(word: &str) -> bool {
    word.strip_suffix("gb").is_some_and(|gb| gb.parse::<u32>().is_ok())
}

/// The words of a name but for how much memory it says at its end.
fn without_memory(name: &[String]) -> &[String] {
    match name.split_last() {
        Some((last, rest)) if is_memory(last) => rest,
        _ => name,
    }
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
    let tflops = next()?.parse().ok();
    let bandwidth = next()?.parse().ok();
    let (links, both_ways) = (next()?, next()?.parse::<f64>().ok());
    let is_nvlink = links.starts_with("NVLink") && !links.contains("bridge");
    let nvlink = both_ways.filter(|_| is_nvlink).map(|both| both / 2.0);
    let pcie = pcie(next()?);
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
        tflops,
        bandwidth,
        nvlink,
        pcie,
        context: context(vendor, capability),
        context_most: full_context(vendor),
        workspace: None,
        told: None,
    })
}

/// GB/s of `PCIe 4.0 x16`: so many billion transfers a second on each lane, 128 of 130 bits of them data (PCI-SIG).
fn pcie(text: &str) -> Option<f64> {
    let (version, lanes) = text.strip_prefix("PCIe ")?.split_once(" x")?;
    let transfers = match version {
        "3.0" => 8.0,
        "4.0" => 16.0,
        "5.0" => 32.0,
        _ => return None,
    };
    Some(transfers * lanes.parse::<f64>().ok()? * 128.0 / 130.0 / 8.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::{Basis, ComputeCapability, gpu};
    use crate::units::Bytes;

    #[test]
    fn memory_is_watched_where_it_is() {
        for (slug, shows) in [
            ("rtx-4090", "nvidia-smi"),
            ("gb10", "/proc/meminfo"),
            ("mi300x", "--showmeminfo vram'"),
            ("strix-halo-128gb", "vram gtt"),
            ("gaudi3", "hl-smi"),
            ("arc-b580", "xpu-smi"),
        ] {
            let watch = gpu(slug).map(|gpu| gpu.watch().first().copied()).expect(slug);
            assert!(watch.is_some_and(|command| command.contains(shows)), "{slug}: {watch:?}");
        }
    }

    #[test]
    fn a_card_is_found_however_it_is_spelled() {
        for (text, slug) in [
            ("rtx 4090", Some("rtx-4090")),
            ("GeForce RTX 4090", Some("rtx-4090")),
            ("a100 sxm 80gb", Some("a100-sxm-80gb")),
            ("4090", Some("rtx-4090")),
            ("1080ti", Some("gtx-1080-ti")),
            ("RTX 3060", Some("rtx-3060-12gb")),
            ("DGX Spark", Some("gb10")),
            ("a100", None),
            ("h100", None),
            ("H100-80GB", Some("h100-sxm-80gb")),
            ("a100 80gb", Some("a100-sxm-80gb")),
            ("DGX H100", Some("h100-sxm-80gb")),
            ("16gb", None),
            ("rtx 6000", None),
            ("Apple M3 Max", None),
            ("90", None),
            ("16", None),
            ("750", None),
            ("4000", None),
            ("d", None),
            ("rtx", None),
            ("", None),
            ("GPU", None),
        ] {
            assert_eq!(spelled(text).map(|gpu| &*gpu.slug), slug, "{text}");
        }
    }

    /// As nvidia-smi, torch.cuda.get_device_name and rocm-smi print them.
    #[test]
    fn a_card_is_known_by_what_its_driver_reports() {
        for (text, slug) in [
            ("NVIDIA GeForce RTX 4090", Some("rtx-4090")),
            ("NVIDIA GeForce RTX 4090 D", Some("rtx-4090-d")),
            ("NVIDIA GeForce RTX 4090 Laptop GPU", Some("rtx-4090-laptop")),
            ("NVIDIA GeForce RTX 3060", Some("rtx-3060-12gb")),
            ("NVIDIA GeForce GTX 1080 Ti", Some("gtx-1080-ti")),
            ("Tesla T4", Some("t4")),
            ("Tesla V100-SXM2-16GB", Some("v100-sxm2-16gb")),
            ("NVIDIA A100-SXM4-80GB", Some("a100-sxm-80gb")),
            ("NVIDIA A100-SXM4-40GB", Some("a100-sxm-40gb")),
            ("NVIDIA A100 80GB PCIe", Some("a100-pcie-80gb")),
            ("NVIDIA A100-PCIE-40GB", Some("a100-pcie-40gb")),
            ("NVIDIA A10G", Some("a10g")),
            ("NVIDIA L4", Some("l4")),
            ("NVIDIA L40S", Some("l40s")),
            ("NVIDIA H100 80GB HBM3", Some("h100-sxm-80gb")),
            ("NVIDIA H100 PCIe", Some("h100-pcie-80gb")),
            ("NVIDIA H100 NVL", Some("h100-nvl-94gb")),
            ("NVIDIA H200", Some("h200-sxm")),
            ("NVIDIA GH200 480GB", Some("gh200-96gb")),
            ("NVIDIA B200", Some("b200")),
            ("NVIDIA RTX A6000", Some("rtx-a6000")),
            ("NVIDIA RTX 6000 Ada Generation", Some("rtx-6000-ada")),
            ("NVIDIA RTX PRO 6000 Blackwell Server Edition", Some("rtx-pro-6000-server")),
            ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", Some("rtx-pro-6000-ws")),
            ("Quadro RTX 8000", Some("quadro-rtx-8000")),
            ("NVIDIA GB10", Some("gb10")),
            ("AMD Instinct MI300X", Some("mi300x")),
            ("AMD Radeon RX 7900 XTX", Some("rx-7900-xtx")),
            ("Intel(R) Arc(TM) B580 Graphics", Some("arc-b580")),
            ("Intel(R) Data Center GPU Max 1550", Some("max-1550")),
        ] {
            assert_eq!(spelled(text).map(|gpu| &*gpu.slug), slug, "{text}");
        }
    }

    #[test]
    fn every_card_with_a_figure_is_there() {
        // 243 rows less B100 and TPU v7x, whose memory is not known.
        assert_eq!(gpus().count(), 241);
        for gpu in gpus() {
            let marketed = f64::from(gpu.marketed_gb.unwrap()) * 1024.0;
            let share = gpu.memory.0 as f64 / f64::from(1 << 20) / marketed;
            // half of what is shared with a processor of AMD's
            let least = if gpu.class == Some(Class::Unified) { 0.48 } else { 0.6 };
            assert!((least..=1.03).contains(&share), "{}: {share}", gpu.slug);
            assert_eq!(gpu.capability.is_some(), gpu.vendor == Vendor::Nvidia, "{}", gpu.slug);
            assert!(!gpu.slug.starts_with(|c: char| c.is_ascii_digit()), "{} reads as an amount", gpu.slug);
        }
        let mut slugs: Vec<_> = gpus().map(|gpu| &gpu.slug).collect();
        slugs.sort();
        slugs.dedup();
        assert_eq!(slugs.len(), gpus().count());
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

    /// A program sees each of two devices with its own memory, and of a processor's RAM the system's part is not its own.
    #[test]
    fn memory_is_what_one_program_can_have() {
        let gib = |slug: &str| gpu(slug).map(|gpu| gpu.memory.as_gib().round()).unwrap();
        for slug in ["mi250", "mi250x"] {
            assert_eq!(gpu(slug).unwrap().memory, Bytes::mib(65_520), "{slug}");
        }
        assert_eq!((gib("max-1550"), gib("strix-halo-128gb"), gib("strix-halo-64gb")), (64.0, 62.0, 32.0));
        for gpu in gpus() {
            assert_eq!(gpu.note().is_some(), gpu.class == Some(Class::Unified), "{}", gpu.slug);
        }
    }

    #[test]
    fn a_card_comes_before_those_that_are_named_after_it() {
        for (typed, name) in [
            ("4070", "GeForce RTX 4070"),
            ("rtx 4080", "GeForce RTX 4080"),
            ("3090", "GeForce RTX 3090"),
            ("3060", "GeForce RTX 3060 12GB"),
            ("3080", "GeForce RTX 3080 10GB"),
        ] {
            assert_eq!(&*search(typed)[0].name, name, "{typed}");
        }
    }

    #[test]
    fn search_is_tolerant() {
        let slugs = |query| search(query).iter().map(|gpu| &*gpu.slug).collect::<Vec<_>>();
        assert_eq!(slugs("RTX4090 laptop"), ["rtx-4090-laptop"]);
        assert_eq!(slugs("geforc 4090")[0], "rtx-4090");
        assert_eq!(slugs("H100")[0], "h100-sxm-80gb");
        assert_eq!(slugs("nvidia h200 nvl"), ["h200-nvl"]);
        assert_eq!(slugs("quantum"), [""; 0]);
        assert!(search("").into_iter().eq(gpus()));
    }

    #[test]
    fn cards_are_found_by_what_people_and_drivers_call_them() {
        let first = |query: &str| search(query).first().map(|gpu| gpu.slug.to_string()).unwrap_or_default();
        for (query, slug) in [
            ("NVIDIA H100 80GB HBM3", "h100-sxm-80gb"),
            ("1080ti", "gtx-1080-ti"),
            ("7900xtx", "rx-7900-xtx"),
            ("colab", "t4"),
            ("dgx h100", "h100-sxm-80gb"),
        ] {
            assert_eq!(first(query), slug, "{query}");
        }
        assert!(search("mac").iter().all(|gpu| gpu.vendor == Vendor::Apple) && !search("mac").is_empty());
    }

    #[test]
    fn an_unknown_slug_names_its_neighbours() {
        assert!(gpu("t4-16gb").unwrap_err().fix().starts_with("perhaps t4, "));
        assert_eq!(
            gpu("a100").unwrap_err().to_string(),
            "no card is called \"a100\" (perhaps a100-sxm-40gb, a100-sxm-80gb, a100-pcie-40gb, a100-pcie-80gb)"
        );
    }
}
