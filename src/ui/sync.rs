//! Keeps the address in step with the scenarios, in both directions.

use std::cell::RefCell;
use std::rc::Rc;

use leptos::prelude::*;

use super::asked::said;
use super::browser::{self, History, Later};
use super::format::Unit;
use super::recorded::Recorded;
use super::state::{State, letter};
use super::summary;
use super::view::View;
use crate::issue::Issue;
use crate::scenario::Scenario;
use crate::share;
use crate::share::page::{EMBED, SELECTED, VIEW};

/// Where the unit is stored.
const UNIT: &str = "headroom.unit";

/// Browsers refuse more than about three writes a second.
const PAUSE: u32 = 250;

/// A browser that refused a write is asked again so many milliseconds later.
const LATER: u32 = 1_000;

/// What has a place of its own in the browser's history: how many visits and steps there were, and the view.
type Place = (usize, usize, View);

/// What the address says and should say.
#[derive(Default)]
struct Link {
    /// What is to be written, once there is time for that: the scenarios, and what is shown of them.
    wanted: Option<(Vec<Scenario>, String)>,
    /// Whether that is to have an entry of its own.
    is_step: bool,
    written: String,
    place: Place,
}

impl Link {
    /// What is to be written now, and how; nothing where the address says it already.
    fn due(&mut self) -> Option<(String, History)> {
        let (scenarios, shown) = self.wanted.as_ref()?;
        let said = share::encode(scenarios) + shown;
        if said == self.written {
            // a step that led back to where it began
            self.is_step = false;
            return None;
        }
        Some((said, if self.is_step { History::Push } else { History::Replace }))
    }

    /// It was written.
    fn done(&mut self, said: String) {
        (self.written, self.is_step) = (said, false);
    }

    /// Follows what is shown.
    fn follow(&mut self, wanted: (Vec<Scenario>, String), place: Place) {
        self.is_step |= self.place != place;
        (self.wanted, self.place) = (Some(wanted), place);
    }
}

/// The address of the page.
#[derive(Clone, Default)]
pub struct Address {
    link: Rc<RefCell<Link>>,
    later: Later,
}

impl Address {
    /// Writes what is wanted now.
    pub fn flush(&self) {
        self.later.cancel();
        self.write();
    }

    fn write(&self) {
        let Some((said, history)) = self.link.borrow_mut().due() else { return };
        if browser::write_link(&said, history) {
            self.link.borrow_mut().done(said);
        } else {
            self.write_after(LATER);
        }
    }

    fn write_after(&self, milliseconds: u32) {
        let address = self.clone();
        self.later.run(milliseconds, move || address.write());
    }

    /// Follows a change: a new visit, a step of Undo or another view gets an entry of its own in the history, so that Back undoes what
    /// was changed last; what else is shown, and what a change that goes on comes to, is written over the entry a little later. Steps
    /// wait as well: many that are undone in a row are one entry, and what was typed and is refused is none.
    fn want(&self, scenarios: Vec<Scenario>, shown: String, place: Place) {
        let was = self.link.borrow().place;
        let is_act = (was.0, was.2) != (place.0, place.2);
        let is_later_step = self.link.borrow().is_step;
        if is_act || (was != place && !is_later_step) {
            // What was seen before must be in the entry that back leads to.
            self.flush();
        }
        self.link.borrow_mut().follow((scenarios, shown), place);
        if is_act {
            self.flush();
        } else {
            self.write_after(PAUSE);
        }
    }

    /// Takes over what the visitor travelled to.
    fn arrive(&self, said: &str) {
        self.later.cancel();
        let mut link = self.link.borrow_mut();
        (link.wanted, link.is_step) = (None, false);
        link.place.2 = View::of(said);
        said.clone_into(&mut link.written);
    }
}

/// Writes every change of the scenarios to the address and the title, and follows the visitor who goes back; `opened` is
/// what the address said at first.
pub fn follow_address(state: State, opened: &str) -> Address {
    let address = Address::default();
    address.arrive(opened);
    let watched = address.clone();
    Effect::new(move || {
        let travelled = watched.clone();
        browser::on_travel(move || {
            let said = browser::link();
            let shared = share::decode(&said);
            travelled.arrive(&said);
            state.arrive(shared.scenarios, shared.notices);
            open_view(state, &said);
        });
        let hidden = watched.clone();
        browser::on_hide(move || hidden.flush());
        if browser::has_query() {
            // A link of the first versions: its scenario moves behind `#` before the page is loaded once more.
            let said = untrack(|| share::encode(&state.scenarios()) + &shown(state));
            browser::write_link(&said, History::Replace);
        }
    });
    let written = address.clone();
    Effect::new(move || {
        written.want(
            state.scenarios(),
            shown(state),
            (state.visits.get(), state.steps.get(), state.view.get()),
        )
    });
    let later = Later::default();
    Effect::new(move || {
        state.decimal.track();
        let slot = state.current();
        slot.scenario.track();
        slot.detail.track();
        later.run(PAUSE, move || browser::name_page(&untrack(|| page_name(state))));
    });
    address
}

/// Shows what a link says beside its scenarios.
pub fn open_view(state: State, link: &str) {
    state.view.set(View::of(link));
    state.active.set(selected(link, state.count.get_untracked()));
    state.notices.update(|notices| notices.extend(in_vain(link, state.count.get_untracked())));
    state.notices.update(|notices| notices.extend(not_known(&untrack(|| state.scenarios()))));
    state.embedded.set(share::said(link, EMBED).is_some_and(|said| said == "1"));
    let scenarios = untrack(|| state.scenarios());
    state.took.set(Recorded::of(link, &scenarios));
    state.notices.update(|notices| notices.extend(Recorded::complaint(link, &scenarios)));
    let scenario = untrack(|| state.current().scenario.get());
    let told = [state.asked.read(link, &scenario), state.looked.read(link, &scenario)];
    state.notices.update(|notices| notices.extend(told.into_iter().flatten()));
}

/// What a link of so many scenarios says in vain, of names that it does not know and of what it opens.
fn in_vain(link: &str, count: usize) -> Vec<Issue> {
    let mut told = share::unknown(link);
    let views: Vec<&str> = View::ALL.iter().map(|view| view.slug()).collect();
    let usable = format!("write one of {}", views.join(", "));
    said(link, VIEW, &usable, &mut told, View::from_slug);
    let letters: Vec<&str> = (0..count).map(letter).collect();
    let usable = format!("write one of {}", letters.join(", "));
    said(link, SELECTED, &usable, &mut told, |said| letters.contains(&said).then_some(()));
    told
}

/// The cards of scenarios that nothing is called; a model that is not known here may be on the Hub.
fn not_known(scenarios: &[Scenario]) -> Vec<Issue> {
    let mut told: Vec<Issue> = Vec::new();
    for issue in scenarios.iter().filter_map(|scenario| scenario.gpu().err()) {
        if !told.contains(&issue) {
            told.push(issue);
        }
    }
    told
}

/// The position of the scenario that a link of so many selects.
fn selected(link: &str, count: usize) -> usize {
    let said = share::said(link, SELECTED);
    (0..count).find(|position| said.as_deref() == Some(letter(*position))).unwrap_or_default()
}

/// What a link says beside its scenarios.
fn shown(state: State) -> String {
    let view = state.view.get();
    let asked = state.current().scenario.with(|scenario| {
        let looked = if view == View::Timeline { state.looked.written(scenario) } else { String::new() };
        state.asked.written(scenario) + &looked
    });
    let embedded = if state.embedded.get() { format!("&{EMBED}=1") } else { String::new() };
    let took = state.recorded().map(|took| took.written()).unwrap_or_default();
    let selected = match state.active.get() {
        0 => String::new(),
        active => format!("&{SELECTED}={}", letter(active)),
    };
    view.written() + &selected + &asked + &took + &embedded
}

/// The address that shows the same within another page, and the whole page that it leads to.
pub fn embedding(address: &str) -> (String, String) {
    let said = format!("&{EMBED}=1");
    let whole = address.replace(&said, "");
    let start = if whole.contains('#') { "" } else { "#v=1" };
    (format!("{whole}{start}{said}"), whole)
}

/// What tabs, bookmarks and the history show.
fn page_name(state: State) -> String {
    let slot = state.current();
    let unit = state.unit();
    let amount =
        slot.answer(|_, memory, _| format!("{} · ", unit.amount(memory.needed()))).unwrap_or_default();
    format!("{amount}{} · Headroom", slot.scenario.with(summary::title))
}

/// Whether the unit that was chosen before is a decimal one.
pub fn stored_unit_is_decimal() -> bool {
    browser::stored(UNIT).is_some_and(|label| label == Unit::Decimal.label())
}

/// Remembers the unit that is chosen.
pub fn remember_unit(state: State) {
    Effect::new(move || browser::store(UNIT, Some(state.unit().label())));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_has_an_entry_of_its_own_and_what_goes_on_is_written_over_it() {
        let mut link = Link { written: "v=1".to_owned(), ..Link::default() };
        let of = |batch| vec![Scenario { batch, ..Scenario::default() }];
        let mut follow = |batch, steps, write| {
            link.follow((of(batch), String::new()), (0, steps, View::default()));
            let due = link.due();
            if let Some((said, _)) = due.clone().filter(|_| write) {
                link.done(said);
            }
            due.map(|(said, history)| (said, history == History::Push))
        };
        assert_eq!(follow(1, 0, true), None);
        // a browser that refused the entry is asked for it again, with what it is by then
        assert_eq!(follow(2, 1, false), Some(("v=1&b=2".to_owned(), true)));
        assert_eq!(follow(3, 1, true), Some(("v=1&b=3".to_owned(), true)));
        // the slider goes on
        assert_eq!(follow(4, 1, true), Some(("v=1&b=4".to_owned(), false)));
        // the next step; one that led nowhere is none
        assert_eq!(follow(5, 2, true), Some(("v=1&b=5".to_owned(), true)));
        assert_eq!(follow(5, 3, true), None);
        assert_eq!(follow(6, 3, true), Some(("v=1&b=6".to_owned(), false)));
    }

    #[test]
    fn the_scenario_that_is_selected_is_one_of_those_there_are() {
        for (link, position) in [("v=1&selected=B", 1), ("v=1", 0), ("v=1&selected=D", 0), ("selected=b", 0)]
        {
            assert_eq!(selected(link, 3), position, "{link}");
        }
    }

    #[test]
    fn what_a_link_says_in_vain_is_told() {
        let told = |link: &str| -> Vec<String> { in_vain(link, 2).iter().map(ToString::to_string).collect() };
        assert_eq!(told("v=1&b=4&2.b=8&selected=B&view=plan&utm_source=chat&fbclid=x&budget=9"), [""; 0]);
        assert_eq!(
            told("v=1&sequence=9&selected=D&view=plans"),
            [
                "sequence=9 in the link is not known and left out",
                "view=plans is not understood and left out (write one of fit, timeline, plan, compare, accuracy)",
                "selected=D is not understood and left out (write one of A, B)",
            ]
        );
        let many: String = (0..20).map(|number| format!("&x{number}=1")).collect();
        let told = told(&format!("v=1{many}"));
        assert_eq!((told.len(), told[8].as_str()), (9, "12 more names in the link are not known"));
    }

    #[test]
    fn a_card_that_nothing_is_called_is_told_once() {
        let told = |link: &str| -> Vec<String> {
            not_known(&share::decode(link).scenarios).iter().map(ToString::to_string).collect()
        };
        assert_eq!(told("v=1&b=4&m=someone/own"), [""; 0]);
        let foo = told("v=1&gpu=foo&b=abc&2.b=8");
        assert_eq!(foo.len(), 1, "{foo:?}");
        assert!(foo[0].starts_with("no card is called \"foo\""), "{foo:?}");
    }

    #[test]
    fn what_is_embedded_leads_to_the_whole_page() {
        let (embedded, whole) = embedding("https://example.org/#v=1&b=4&view=plan");
        assert_eq!(embedded, "https://example.org/#v=1&b=4&view=plan&embed=1");
        assert_eq!(whole, "https://example.org/#v=1&b=4&view=plan");
        assert_eq!(embedding(&embedded), (embedded.clone(), whole));
        assert_eq!(embedding("https://example.org/").0, "https://example.org/#v=1&embed=1");
    }
}
