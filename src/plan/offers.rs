//! What the data set takes, and costs, on the machines that can be rented with a card.

use super::need::{Held, NeedRow, machines_with};
use super::time::Span;
use crate::hardware::{Machine, host};
use crate::scenario::HostNeed;
use crate::units::{Bytes, grouped};

/// Machines that hold the run, and what the data set costs there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Offer {
    /// The machine.
    pub machine: &'static Machine,
    /// How many of it.
    pub machines: u64,
    /// How many of their cards train.
    pub cards: u64,
    /// Hours for the data set.
    pub hours: Option<Span>,
    /// What the run has of the CPU's memory in each of them.
    pub host: HostNeed,
}

impl Offer {
    /// The RAM of each machine, where that is known and less than the run takes of it: it stops there while it loads, or as it trains.
    pub fn short_of_ram(&self) -> Option<Bytes> {
        let known = host(&format!("{} {}", self.machine.provider, self.machine.name))?;
        (self.host.least() > known.ram).then_some(known.ram)
    }

    /// `2,048 GiB of RAM, the run takes 2,103 GiB`, where that is too little.
    pub fn ram_in_words(&self) -> Option<String> {
        let ram = self.short_of_ram()?;
        Some(format!("{ram} of RAM, the run takes {}", self.host.least()))
    }

    /// US dollars for an hour of the machines, cards that do not train among them.
    pub fn per_hour(&self) -> f64 {
        self.machine.per_hour * self.machines as f64
    }

    /// The machine by name: `2 × aws p5.48xlarge`.
    pub fn name(&self) -> String {
        let many = if self.machines > 1 { format!("{} × ", grouped(self.machines)) } else { String::new() };
        format!("{many}{} {}", self.machine.provider, self.machine.name)
    }

    /// How many cards train, of how many that are rented: `1 of 8`.
    pub fn cards_in_words(&self) -> String {
        let rented = self.machines * u64::from(self.machine.gpus);
        if rented == self.cards {
            grouped(rented)
        } else {
            format!("{} of {}", grouped(self.cards), grouped(rented))
        }
    }

    /// US dollars for the data set.
    pub fn dollars(&self) -> Option<Span> {
        self.hours.map(|hours| hours.times(self.per_hour()))
    }
}

impl NeedRow {
    /// The machines that can be rented with as many of the cards as hold the run by its own method, the cheapest hour first. All of their
    /// cards train, where they hold it too.
    pub fn offers(&self) -> Vec<Offer> {
        let Some(fewest) = self.held else { return Vec::new() };
        let offer = |(machine, machines, cards)| {
            let whole = self.rented.iter().find(|held| held.cards == cards);
            let Held { cards, hours, host } = whole.copied().unwrap_or(fewest);
            Offer { machine, machines, cards, hours, host: host.within(u64::from(machine.gpus)) }
        };
        machines_with(&self.gpu, fewest.cards).into_iter().map(offer).collect()
    }
}

/// The offers of all rows with their cards' names: those on which the data set costs least first, those whose time is not known behind
/// them, and machines with too little RAM last.
pub fn cheapest_first(rows: &[NeedRow]) -> Vec<(&str, Offer)> {
    let mut all: Vec<(&str, Offer)> = Vec::new();
    for row in rows {
        all.extend(row.offers().into_iter().map(|offer| (row.name.as_str(), offer)));
    }
    let typical = |offer: &Offer| offer.dollars().map_or(f64::INFINITY, |dollars| dollars.typical);
    all.sort_by(|(_, one), (_, other)| {
        let short = |offer: &Offer| offer.short_of_ram().is_some();
        short(one).cmp(&short(other)).then(typical(one).total_cmp(&typical(other)))
    });
    all
}

/// The offer of all rows on which the data set costs least, with its card's name.
pub fn cheapest_run(rows: &[NeedRow]) -> Option<(&str, Offer)> {
    cheapest_first(rows).into_iter().next().filter(|(_, offer)| offer.hours.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{need_of_each, usual_cards};
    use crate::scenario::Scenario;

    #[test]
    fn an_offer_costs_what_its_hours_do() {
        let scenario = Scenario::default();
        let rows = need_of_each(&scenario, &usual_cards());
        let mut offers = 0;
        for row in &rows {
            for offer in row.offers() {
                offers += 1;
                assert!(offer.machines * u64::from(offer.machine.gpus) >= offer.cards, "{offer:?}");
                let (Some(hours), Some(dollars)) = (offer.hours, offer.dollars()) else { continue };
                let rate = offer.machine.per_hour * offer.machines as f64;
                assert!((dollars.typical - hours.typical * rate).abs() < 1e-9, "{offer:?}");
                assert!(dollars.least <= dollars.typical && dollars.typical <= dollars.most);
            }
        }
        assert!(offers > 10, "{offers}");
        // the cheapest run is not of the cheapest hour: a faster card is worth its price here
        let (name, best) = cheapest_run(&rows).expect("cards with prices hold it");
        let all = || rows.iter().flat_map(NeedRow::offers);
        let hour = all().map(|offer| offer.per_hour()).fold(f64::MAX, f64::min);
        assert!(best.per_hour() > hour, "{name}");
        let costs = all().filter_map(|offer| offer.dollars()).map(|dollars| dollars.typical);
        assert_eq!(best.dollars().map(|dollars| dollars.typical), costs.reduce(f64::min), "{name}");
        // who rents a machine of eight trains on eight
        let of_eight = all().filter(|offer| offer.machine.gpus == 8 && offer.hours.is_some());
        assert!(
            of_eight.clone().count() > 2 && of_eight.clone().all(|offer| offer.cards == 8 * offer.machines)
        );
        let row = rows.iter().find(|row| row.held.is_some() && row.rented.iter().any(|held| held.cards == 8));
        let row = row.expect("a card of which machines have one and eight");
        let hours = |held: &Held| held.hours.map(|hours| hours.typical);
        let eight = row.rented.iter().find(|held| held.cards == 8).and_then(hours);
        let fewest = row.held.as_ref().and_then(hours);
        assert!(eight.zip(fewest).is_some_and(|(eight, fewest)| eight < fewest / 4.0), "{row:?}");
        // twice the data takes twice as long
        let mut twice = scenario.clone();
        twice.data.tokens *= 2;
        let again = need_of_each(&twice, &usual_cards());
        let of = |rows: &[NeedRow]| {
            cheapest_run(rows).and_then(|(_, offer)| offer.dollars()).map(|dollars| dollars.typical)
        };
        let (one, two) = (of(&rows).expect("a price"), of(&again).expect("a price"));
        assert!((two - 2.0 * one).abs() < 1e-6, "{one} {two}");
    }
}
