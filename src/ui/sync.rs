//! Keeps the address in step with the scenarios, in both directions.

use std::cell::RefCell;
use std::rc::Rc;

use leptos::prelude::*;

use super::browser::{self, History, Later};
use super::state::State;
use super::summary;
use crate::share;

/// Where the unit is stored.
const UNIT: &str = "headroom.unit";

/// Browsers refuse more than about three writes a second.
const PAUSE: u32 = 250;

/// What the address says and should say.
#[derive(Default)]
struct Link {
    wanted: String,
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
        if link.wanted != link.written {
            browser::write_query(&link.wanted, history);
            link.written = link.wanted.clone();
        }
    }

    /// Follows a change: a new visit gets a place of its own in the history, anything else is written a little later.
    fn want(&self, query: String, visit: usize) {
        let is_new = self.link.borrow().visit != visit;
        if is_new {
            // What was seen before the act must be in the entry that back leads to.
            self.flush();
        }
        {
            let mut link = self.link.borrow_mut();
            link.visit = visit;
            link.wanted = query;
        }
        if is_new {
            self.write(History::Push);
        } else {
            let address = self.clone();
            self.later.run(PAUSE, move || address.write(History::Replace));
        }
    }

    /// Takes over what the visitor travelled to.
    fn arrive(&self, query: &str) {
        self.later.cancel();
        let mut link = self.link.borrow_mut();
        query.clone_into(&mut link.wanted);
        query.clone_into(&mut link.written);
    }
}

/// Writes every change of the scenarios to the address and the title, and follows the visitor who goes back.
pub fn follow_address(state: State) -> Address {
    let address = Address::default();
    address.arrive(&browser::query());
    let travelled = address.clone();
    browser::on_travel(move || {
        let query = browser::query();
        let shared = share::decode(&query);
        travelled.arrive(&query);
        state.arrive(shared.scenarios, shared.notices);
    });
    let hidden = address.clone();
    browser::on_hide(move || hidden.flush());
    let written = address.clone();
    Effect::new(move || written.want(share::encode(&state.scenarios()), state.visits.get()));
    let later = Later::default();
    Effect::new(move || {
        let name = page_name(state);
        later.run(PAUSE, move || browser::name_page(&name));
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

/// Takes the unit that was chosen before, and remembers the one that is.
pub fn remember_unit(state: State) {
    let is_decimal = |label: &str| label == super::format::Unit::Decimal.label();
    state.decimal.set(browser::stored(UNIT).is_some_and(|label| is_decimal(&label)));
    Effect::new(move || browser::store(UNIT, Some(state.unit().label())));
}
