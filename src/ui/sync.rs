//! Keeps the address in step with the scenarios, in both directions.

use std::cell::RefCell;
use std::rc::Rc;

use leptos::prelude::*;

use super::browser::{self, History, Later};
use super::state::State;
use super::summary;
use crate::share;

/// Where the unit is stored.
pub const UNIT: &str = "headroom.unit";

/// Browsers refuse more than about three writes a second.
const PAUSE: u32 = 250;

/// What the address says and should say.
#[derive(Default)]
struct Link {
    wanted: String,
    written: String,
    visit: u32,
}

/// A handle to the address.
#[derive(Clone, Default)]
struct Writer {
    link: Rc<RefCell<Link>>,
    later: Later,
}

impl Writer {
    /// Writes what is wanted now.
    fn flush(&self) {
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
    fn want(&self, query: String, visit: u32) {
        if self.link.borrow().visit != visit {
            // What was seen before the act must be in the entry that back leads to.
            self.flush();
            let mut link = self.link.borrow_mut();
            link.visit = visit;
            link.wanted = query;
            drop(link);
            self.write(History::Push);
        } else {
            self.link.borrow_mut().wanted = query;
            let writer = self.clone();
            self.later.run(PAUSE, move || writer.write(History::Replace));
        }
    }

    /// Takes over what the visitor travelled to.
    fn arrive(&self, query: String) {
        self.later.cancel();
        let mut link = self.link.borrow_mut();
        link.wanted.clone_from(&query);
        link.written = query;
    }
}

/// Writes every change of the scenarios to the address, and follows the visitor who goes back.
pub fn follow(state: State) {
    let writer = Writer::default();
    writer.arrive(browser::query());
    let travelled = writer.clone();
    browser::on_travel(move || {
        let query = browser::query();
        let shared = share::decode(&query);
        travelled.arrive(query);
        state.arrive(shared.scenarios, shared.notices);
    });
    let hidden = writer.clone();
    browser::on_hide(move || hidden.flush());
    let flusher = StoredValue::new_local(writer.clone());
    provide_context(Flush(Callback::new(move |()| flusher.with_value(Writer::flush))));
    let written = StoredValue::new_local(writer);
    Effect::new(move |_| {
        let query = share::encode(&state.scenarios());
        let visit = state.visits.get();
        written.with_value(|writer| writer.want(query, visit));
    });
    let naming = StoredValue::new_local(Later::default());
    Effect::new(move |_| {
        let name = page_name(state);
        naming.with_value(|naming| naming.run(PAUSE, move || document().set_title(&name)));
    });
    Effect::new(move |_| browser::store(UNIT, Some(state.unit.get().label())));
}

/// What tabs, bookmarks and the history show.
fn page_name(state: State) -> String {
    let slot = state.current();
    let needed = slot.estimate.with(|estimate| estimate.memory.as_ref().map(|memory| memory.needed()));
    let amount = needed.map(|needed| format!("{} · ", state.unit.get().amount(needed))).unwrap_or_default();
    format!("{amount}{} · Headroom", slot.scenario.with(summary::title))
}

/// Brings the address up to date at once, before it is copied.
#[derive(Clone, Copy)]
pub struct Flush(pub Callback<()>);
