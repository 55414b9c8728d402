//! Machines with cards that can be rented by the hour: `data/instances.csv`, packed by `build/hardware.rs`.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

/// A machine of a cloud provider, at its price on demand.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Machine {
    /// Who rents it out: `aws`.
    pub provider: String,
    /// What it is called there: `g5.xlarge`.
    pub name: String,
    /// How many of the card it has.
    pub gpus: u32,
    /// US dollars for an hour of the whole machine.
    pub per_hour: f64,
    /// The day of that price: `2026-07-20`.
    pub dated: String,
}

/// Whose price table each provider's prices are from, at its commit (`data/SOURCES.md`).
const PRICES: [(&str, &str); 3] = [
    ("aws", "aws/karpenter-provider-aws/tree/1d92708"),
    ("azure", "Azure/karpenter-provider-azure/tree/352646f"),
    ("gcp", "cloudpilot-ai/karpenter-provider-gcp/tree/417f047b"),
];

impl Machine {
    /// Where its price was read, as an address.
    pub fn price_source(&self) -> Option<String> {
        let (_, table) = PRICES.iter().find(|(provider, _)| *provider == self.provider)?;
        Some(format!("https://github.com/{table}"))
    }
}

/// Each with the slug of its card.
static ALL: LazyLock<Vec<(&str, Machine)>> = LazyLock::new(|| {
    include_str!(concat!(env!("OUT_DIR"), "/machines.tsv")).lines().filter_map(read).collect()
});

/// The machine that costs least of those that hold so many whole cards of that slug, or, where none does, as many of them as any:
/// cards in several machines are not linked. None where no price is known.
///
/// ```
/// let machine = headroom::hardware::cheapest("a10g", 1).unwrap();
/// assert_eq!((machine.provider.as_str(), machine.gpus), ("aws", 1));
/// assert_eq!(headroom::hardware::cheapest("h100-sxm-80gb", 8).unwrap().gpus, 8);
/// assert!(headroom::hardware::cheapest("rtx-2060", 1).is_none());
/// ```
pub fn cheapest(gpu: &str, cards: u64) -> Option<&'static Machine> {
    let held = |machine: &Machine| u64::from(machine.gpus).min(cards);
    let machines = machines(gpu);
    let most = machines.iter().map(|machine| held(machine)).max()?;
    machines.into_iter().find(|machine| held(machine) == most)
}

/// US dollars for an hour of so many cards, of which a machine has so many at most, in as many of the machines of [`cheapest`] as hold them;
/// none where no price is known.
///
/// ```
/// use headroom::hardware::{cheapest, rent};
/// let of_eight = cheapest("h100-sxm-80gb", 8).unwrap();
/// assert_eq!(rent("h100-sxm-80gb", 16, 8), Some(2.0 * of_eight.per_hour));
/// let of_four = cheapest("h100-sxm-80gb", 4).unwrap();
/// assert_eq!(rent("h100-sxm-80gb", 16, 4), Some(4.0 * of_four.per_hour));
/// ```
pub fn rent(gpu: &str, cards: u64, of_a_machine: u64) -> Option<f64> {
    let machine = cheapest(gpu, cards.min(of_a_machine))?;
    let each = u64::from(machine.gpus).min(of_a_machine).max(1);
    Some(machine.per_hour * cards.div_ceil(each) as f64)
}

/// Every machine with whole cards of that slug whose price is known, the cheapest first.
///
/// ```
/// let machines = headroom::hardware::machines("l4");
/// assert!(machines.len() > 5 && machines[0].per_hour < 1.0, "{machines:?}");
/// ```
pub fn machines(gpu: &str) -> Vec<&'static Machine> {
    let mut machines: Vec<_> =
        ALL.iter().filter(|(slug, _)| *slug == gpu).map(|(_, machine)| machine).collect();
    machines.sort_by(|one, other| one.per_hour.total_cmp(&other.per_hour));
    machines
}

fn read(line: &'static str) -> Option<(&'static str, Machine)> {
    let mut fields = line.split('\t');
    let (provider, name, slug) = (fields.next()?, fields.next()?, fields.next()?);
    // a slice of a card is not the card
    let gpus = fields.next()?.parse().ok()?;
    let per_hour = fields.next()?.parse().ok()?;
    let dated = fields.next()?.to_owned();
    Some((slug, Machine { provider: provider.to_owned(), name: name.to_owned(), gpus, per_hour, dated }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::gpu;

    #[test]
    fn every_machine_has_a_known_card_and_a_price() {
        assert!(ALL.len() > 90, "{}", ALL.len());
        for (slug, machine) in ALL.iter() {
            assert!(gpu(slug).is_ok(), "{slug}");
            assert!(machine.gpus >= 1 && machine.per_hour > 0.1 && machine.per_hour < 500.0, "{machine:?}");
            assert!(machine.dated.starts_with("2026-"), "{machine:?}");
            assert!(machine.price_source().is_some(), "{machine:?}");
        }
    }
}
