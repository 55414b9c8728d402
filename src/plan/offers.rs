//! What the data set takes, and costs, on the machines that can be rented with a card.

use super::need::{Held, NeedRow};
use super::time::Span;
use crate::hardware::{Machine, machines};

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
}

impl Offer {
    /// US dollars for an hour of the machines, cards that do not train among them.
    pub fn per_hour(&self) -> f64 {
        self.machine.per_hour * self.machines as f64
    }

    /// US dollars for the data set.
    pub fn dollars(&self) -> Option<Span> {
        self.hours.map(|hours| hours.times(self.per_hour()))
    }
}

impl NeedRow {
    /// The machines that can be rented with as many of the cards as hold the run by its own method, the cheapest hour first: where none
    /// has so many, several of those with the most.
    pub fn offers(&self) -> Vec<Offer> {
        let Some(Held { cards, hours }) = self.held else { return Vec::new() };
        let all = machines(&self.gpu);
        let most = all.iter().map(|machine| u64::from(machine.gpus)).max().unwrap_or(0);
        let enough = all.into_iter().filter(|machine| u64::from(machine.gpus) >= cards.min(most));
        let offer = |machine: &'static Machine| {
            let machines = cards.div_ceil(u64::from(machine.gpus.max(1)));
            Offer { machine, machines, cards, hours }
        };
        enough.map(offer).collect()
    }
}

/// The offer of all rows on which the data set costs least, with its card's name.
pub fn cheapest_run(rows: &[NeedRow]) -> Option<(&str, Offer)> {
    let typical = |offer: &Offer| offer.dollars().map(|dollars| dollars.typical);
    let all = rows.iter().flat_map(|row| row.offers().into_iter().map(|offer| (row.name.as_str(), offer)));
    let priced = all.filter_map(|(name, offer)| Some((typical(&offer)?, name, offer)));
    priced.min_by(|(one, ..), (other, ..)| one.total_cmp(other)).map(|(_, name, offer)| (name, offer))
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
        // the cheapest run is not of the cheapest hour where a faster card is worth its price
        let (name, best) = cheapest_run(&rows).expect("cards with prices hold it");
        let hour =
            rows.iter().flat_map(NeedRow::offers).map(|offer| offer.per_hour()).fold(f64::MAX, f64::min);
        assert!(best.per_hour() >= hour, "{name}");
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
