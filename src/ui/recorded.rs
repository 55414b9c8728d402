//! What somebody's own run took: the link and the file of `packages/record/headroom_record.py` say it beside the scenario.

use super::proof::metric;
use crate::check::Metric;
use crate::issue::{Field, Issue};
use crate::memory::Memory;
use crate::plan::OnCard;
use crate::scenario::Scenario;
use crate::share;
use crate::share::page::TOOK;
use crate::text::short;
use crate::units::Bytes;

/// A figure that was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Allocated,
    Reserved,
    Driver,
}

impl Kind {
    fn of(slug: &str) -> Option<Kind> {
        match slug {
            "allocated" => Some(Kind::Allocated),
            "reserved" => Some(Kind::Reserved),
            "driver" => Some(Kind::Driver),
            _ => None,
        }
    }

    const fn slug(self) -> &'static str {
        match self {
            Kind::Allocated => "allocated",
            Kind::Reserved => "reserved",
            Kind::Driver => "driver",
        }
    }

    /// Its name for people.
    fn label(self) -> &'static str {
        match self {
            Kind::Allocated => metric(Metric::Allocated),
            Kind::Reserved => metric(Metric::Reserved),
            Kind::Driver => "In use on the card, by all processes",
        }
    }
}

/// A run of somebody's own.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    /// What ran: of another scenario the figures say nothing.
    of: Scenario,
    figures: Vec<(Kind, Bytes)>,
}

impl Recorded {
    /// What a link says that its only scenario took.
    pub fn of(link: &str, scenarios: &[Scenario]) -> Option<Recorded> {
        let [of] = scenarios else { return None };
        let figure = |pair: &str| {
            let (slug, bytes) = pair.split_once(':')?;
            let bytes = bytes.parse().ok().filter(|bytes| *bytes > 0)?;
            Some((Kind::of(slug)?, Bytes(bytes)))
        };
        let figures: Vec<_> = share::said(link, TOOK)?.split(',').filter_map(figure).take(3).collect();
        (!figures.is_empty()).then(|| Recorded { of: of.clone(), figures })
    }

    /// What is wrong with what a link says of one; nothing where it says nothing.
    pub fn complaint(link: &str, scenarios: &[Scenario]) -> Option<Issue> {
        let said = share::said(link, TOOK)?;
        let read = Recorded::of(link, scenarios).map_or(0, |recorded| recorded.figures.len());
        (read != said.split(',').count()).then(|| {
            let message = format!(
                "{TOOK}={} is not read whole: what a run took stands beside one scenario",
                short(&said)
            );
            Issue::warning(Field::Link, message)
                .with_fix("write allocated:BYTES,reserved:BYTES,driver:BYTES, any of them")
        })
    }

    /// Whether it is this scenario's.
    pub fn is_of(&self, scenario: &Scenario) -> bool {
        self.of == *scenario
    }

    /// What a link says of it.
    pub fn written(&self) -> String {
        let figures: Vec<_> =
            self.figures.iter().map(|(kind, bytes)| format!("{}:{}", kind.slug(), bytes.0)).collect();
        format!("&{TOOK}={}", figures.join(","))
    }

    /// Each figure: its name, what was measured, what is predicted where that is known.
    pub fn beside(
        &self,
        memory: &Memory,
        on_card: Option<&OnCard>,
    ) -> Vec<(&'static str, Bytes, Option<Bytes>)> {
        let predicted = |kind: Kind| match kind {
            Kind::Allocated => Some(memory.peak().1.bytes),
            Kind::Reserved => on_card.map(|on_card| on_card.reserved),
            Kind::Driver => on_card.map(|on_card| on_card.shown),
        };
        self.figures.iter().map(|(kind, bytes)| (kind.label(), *bytes, predicted(*kind))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate;

    #[test]
    fn a_recorded_link_says_what_its_scenario_took() {
        let link = "v=1&b=4&took=allocated:3000000000,driver:4000000000,other:5,reserved:many";
        let shared = share::decode(link);
        assert!(shared.notices.is_empty());
        let recorded = Recorded::of(link, &shared.scenarios).expect("two figures");
        assert_eq!(recorded.written(), "&took=allocated:3000000000,driver:4000000000");
        assert!(recorded.is_of(&shared.scenarios[0]) && !recorded.is_of(&Scenario::default()));
        let memory = estimate(&shared.scenarios[0]).memory.expect("an answer");
        let rows = recorded.beside(&memory, None);
        assert_eq!((rows[0].1, rows[0].2), (Bytes(3_000_000_000), Some(memory.peak().1.bytes)));
        assert_eq!(rows[1].2, None);
    }

    #[test]
    fn anything_else_is_no_recorded_run() {
        for link in ["v=1&b=4", "took=", "took=allocated:-3", "took=allocated:0", "took=99"] {
            let scenarios = share::decode(link).scenarios;
            assert_eq!(Recorded::of(link, &scenarios), None, "{link}");
            assert_eq!(Recorded::complaint(link, &scenarios).is_some(), link.contains(TOOK), "{link}");
        }
        let whole = "took=allocated:3,driver:4";
        assert_eq!(Recorded::complaint(whole, &share::decode(whole).scenarios), None);
        let two = "took=allocated:3&2.b=4";
        assert_eq!(Recorded::of(two, &share::decode(two).scenarios), None);
    }
}
