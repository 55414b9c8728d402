//! Keeps the address in step with the scenarios, in both directions.

use std::cell::RefCell;
use std::rc::Rc;

use leptos::prelude::*;

use super::browser::{self, History, Later};
use super::format::Unit;
use super::state::State;
use super::summary;
use crate::scenario::Scenario;
use crate::share;

/// Where the unit is stored.
const UNIT: &str = "headroom.unit";

/// Browsers refuse more than about three writes a second.
const PAUSE: u32 = 250;

/// What the address says and should say.
#[derive(Default)]
struct Link {
    /// What is to be written, once there is time for that.
    wanted: Vec<Scenario>,
    written: String,
    visit: usize,
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
        self.write(History::Replace);
    }

    fn write(&self, history: History) {
        let mut link = self.link.borrow_mut();
        if link.wanted.is_empty() {
            return;
        }
        let said = share::encode(&link.wanted);
        if said != link.written {
            browser::write_link(&said, history);
            link.written = said;
        }
    }

    /// Follows a change: a new visit gets a place of its own in the history, anything else is written a little later.
    fn want(&self, scenarios: Vec<Scenario>, visit: usize) {
        let is_new = self.link.borrow().visit != visit;
        if is_new {
            // What was seen before the act must be in the entry that back leads to.
            self.flush();
        }
        {
            let mut link = self.link.borrow_mut();
            link.visit = visit;
            link.wanted = scenarios;
        }
        if is_new {
            self.write(History::Push);
        } else {
            let address = self.clone();
            self.later.run(PAUSE, move || address.write(History::Replace));
        }
    }

    /// Takes over what the visitor travelled to.
    fn arrive(&self, said: &str) {
        self.later.cancel();
        let mut link = self.link.borrow_mut();
        link.wanted.clear();
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
        });
        let hidden = watched.clone();
        browser::on_hide(move || hidden.flush());
        if browser::has_query() {
            // A link of the first versions: its scenario moves behind `#` before the page is loaded once more.
            browser::write_link(&share::encode(&untrack(|| state.scenarios())), History::Replace);
        }
    });
    let written = address.clone();
    Effect::new(move || written.want(state.scenarios(), state.visits.get()));
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
