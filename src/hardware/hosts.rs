//! How much RAM machines with cards have: `data/instances.csv`, packed by `build/hardware.rs`.

use std::sync::LazyLock;

use crate::units::Bytes;

/// GPUs of a machine of the usual size.
pub(crate) const GPUS_OF_A_MACHINE: u64 = 8;

/// On how many machines so many GPUs are, each with `most` of them at most: on whole machines where that is what they are, else on as few as
/// have no more each and are alike, up to [`MOST_MACHINES`] of them, else on one.
pub(crate) fn machines_of(gpus: u64, most: u64) -> u64 {
    /// Numbers of GPUs that take more are asked for as one machine: nobody has eleven machines of one.
    const MOST_MACHINES: u64 = 4;
    let most = most.max(1);
    if gpus.is_multiple_of(most) {
        return (gpus / most).max(1);
    }
    let alike = |machines: &u64| gpus.is_multiple_of(*machines) && gpus / *machines <= most;
    (1..=MOST_MACHINES).find(|machines| alike(machines) && gpus / *machines > 1).unwrap_or(1)
}

/// A machine whose RAM is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Whose it is and what it is called there: `aws p5.48xlarge`.
    pub name: String,
    /// How many of the card it has.
    pub gpus: u64,
    /// Its RAM.
    pub ram: Bytes,
}

/// Each with the slug of its card.
static ALL: LazyLock<Vec<(&str, Host)>> =
    LazyLock::new(|| include_str!(concat!(env!("OUT_DIR"), "/hosts.tsv")).lines().filter_map(read).collect());

/// The machine with most RAM of those that have as many cards of that slug as are wanted, or the next larger number; where none has so
/// many, of those that have most. None where no such machine's RAM is known.
///
/// ```
/// use headroom::hardware::roomiest;
/// use headroom::units::Bytes;
/// let of = |cards| roomiest("h100-sxm-80gb", cards).map(|host| (host.name.as_str(), host.ram));
/// assert_eq!(of(1), Some(("aws p5.4xlarge", Bytes::gib(256.0))));
/// assert_eq!(of(2), Some(("lambda gpu_2x_h100_sxm5", Bytes::gib(450.0))));
/// assert_eq!(of(4), Some(("aws p5.48xlarge", Bytes::gib(2048.0))));
/// assert_eq!(of(64), of(8));
/// assert_eq!(roomiest("rtx-4090", 1), None);
/// ```
pub fn roomiest(gpu: &str, cards: u64) -> Option<&'static Host> {
    let hosts = || ALL.iter().filter(|(slug, _)| *slug == gpu).map(|(_, host)| host);
    let enough = hosts().map(|host| host.gpus).filter(|gpus| *gpus >= cards).min();
    let size = enough.or_else(|| hosts().map(|host| host.gpus).max())?;
    // of equal ones the first of the list
    hosts()
        .filter(|host| host.gpus == size)
        .reduce(|best, host| if host.ram > best.ram { host } else { best })
}

/// The machine of that name, `aws p5.48xlarge`; none where its RAM is not known.
pub fn host(name: &str) -> Option<&'static Host> {
    ALL.iter().map(|(_, host)| host).find(|host| host.name == name)
}

fn read(line: &'static str) -> Option<(&'static str, Host)> {
    let mut fields = line.split('\t');
    let (provider, name, slug) = (fields.next()?, fields.next()?, fields.next()?);
    // a slice of a card is not the card
    let gpus = fields.next()?.parse().ok()?;
    let ram = Bytes::gib(fields.next()?.parse().ok()?);
    Some((slug, Host { name: format!("{provider} {name}"), gpus, ram }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::gpu;

    #[test]
    fn every_host_has_a_known_card_and_ram() {
        assert!(ALL.len() > 50, "{}", ALL.len());
        for (slug, host) in ALL.iter() {
            assert!(gpu(slug).is_ok(), "{slug}");
            assert!(host.gpus >= 1 && host.ram >= Bytes::gib(4.0), "{host:?}");
        }
    }
}
