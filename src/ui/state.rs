//! The page's state: the scenarios, one estimate for each, and the commands that change them.

use leptos::prelude::*;

use super::format::Unit;
use crate::estimate::{Estimate, estimate};
use crate::scenario::{Issue, Scenario};

/// How many scenarios can stand side by side.
pub const MOST: usize = 4;

/// A place for a scenario and its answer. Places are made once and reused, so that nothing that still looks at one is
/// ever left with a disposed signal.
#[derive(Clone, Copy)]
pub struct Slot {
    /// What was chosen.
    pub scenario: RwSignal<Scenario>,
    /// The answer: the only place where the page estimates this scenario.
    pub estimate: Memo<Estimate>,
}

/// What a moment of the page can be brought back to.
#[derive(Clone)]
pub struct Snapshot {
    scenarios: Vec<Scenario>,
    active: usize,
}

/// A message that goes away by itself.
#[derive(Clone)]
pub struct Toast {
    /// What happened.
    pub text: String,
    /// What the page looked like before, where it can be undone.
    pub undo: Option<Snapshot>,
    /// Tells one toast from the next.
    pub number: u32,
}

/// Everything that the page shows hangs on this. Copied freely: it holds handles only.
#[derive(Clone, Copy)]
pub struct State {
    slots: [Slot; MOST],
    /// The slots on the page, in order; never empty.
    pub order: RwSignal<Vec<usize>>,
    /// The position in `order` of the scenario that the controls change.
    pub active: RwSignal<usize>,
    /// The unit that amounts are shown in.
    pub unit: RwSignal<Unit>,
    /// The message that is shown, if any.
    pub toast: RwSignal<Option<Toast>>,
    /// What was wrong with the link that the page was opened with.
    pub notices: RwSignal<Vec<Issue>>,
    /// Rises by one at each change that deserves its own place in the history.
    pub visits: RwSignal<u32>,
}

/// One field of the active scenario: what it is, and how to change it.
pub struct Lens<T: Send + Sync + 'static> {
    /// Its value.
    pub value: Signal<T>,
    /// Changes it.
    pub set: Callback<T>,
}

impl<T: Send + Sync + 'static> Clone for Lens<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Send + Sync + 'static> Copy for Lens<T> {}

impl State {
    /// The state for a list of scenarios; an empty list gives the default one.
    pub fn new(scenarios: Vec<Scenario>, unit: Unit) -> State {
        let slots = std::array::from_fn(|_| {
            let scenario = RwSignal::new(Scenario::default());
            Slot { scenario, estimate: Memo::new(move |_| scenario.with(estimate)) }
        });
        let state = State {
            slots,
            order: RwSignal::new(vec![0]),
            active: RwSignal::new(0),
            unit: RwSignal::new(unit),
            toast: RwSignal::new(None),
            notices: RwSignal::new(Vec::new()),
            visits: RwSignal::new(0),
        };
        state.show(Snapshot { scenarios, active: 0 });
        state
    }

    /// The state of the page that a component stands on.
    ///
    /// Components are only mounted below the one that provides it.
    pub fn of_page() -> State {
        expect_context::<State>()
    }

    /// The slot of that number.
    pub fn slot(self, index: usize) -> Slot {
        self.slots[index.min(MOST - 1)]
    }

    /// The slots on the page, in order.
    pub fn shown(self) -> Vec<Slot> {
        self.order.with(|order| order.iter().map(|index| self.slot(*index)).collect())
    }

    /// The slot that the controls change.
    pub fn current(self) -> Slot {
        let active = self.active.get();
        self.slot(self.order.with(|order| order.get(active).or(order.first()).copied().unwrap_or(0)))
    }

    /// Every scenario on the page, in order; tracks each of them.
    pub fn scenarios(self) -> Vec<Scenario> {
        self.shown().into_iter().map(|slot| slot.scenario.get()).collect()
    }

    /// Something of the active scenario.
    pub fn read<T>(self, get: fn(&Scenario) -> T) -> Signal<T>
    where
        T: PartialEq + Clone + Send + Sync + 'static,
    {
        Memo::new(move |_| self.current().scenario.with(get)).into()
    }

    /// One field of the active scenario, and how to change it.
    pub fn lens<T>(self, get: fn(&Scenario) -> T, set: fn(&mut Scenario, T)) -> Lens<T>
    where
        T: PartialEq + Clone + Send + Sync + 'static,
    {
        let value = self.read(get);
        let set = Callback::new(move |new: T| {
            let slot = untrack(|| self.current());
            slot.scenario.update(|scenario| set(scenario, new));
        });
        Lens { value, set }
    }

    fn snapshot(self) -> Snapshot {
        untrack(|| Snapshot { scenarios: self.scenarios(), active: self.active.get() })
    }

    fn show(self, snapshot: Snapshot) {
        let Snapshot { mut scenarios, active } = snapshot;
        scenarios.truncate(MOST);
        if scenarios.is_empty() {
            scenarios.push(Scenario::default());
        }
        let count = scenarios.len();
        for (slot, scenario) in self.slots.iter().zip(scenarios) {
            if untrack(|| slot.scenario.with(|old| *old != scenario)) {
                slot.scenario.set(scenario);
            }
        }
        if untrack(|| self.order.with(|order| !order.iter().copied().eq(0..count))) {
            self.order.set((0..count).collect());
        }
        self.active.set(active.min(count - 1));
    }

    fn say(self, text: impl Into<String>, undo: Option<Snapshot>) {
        let number = untrack(|| self.toast.with(|old| old.as_ref().map_or(0, |toast| toast.number + 1)));
        self.toast.set(Some(Toast { text: text.into(), undo, number }));
    }

    /// Shows a message for a moment.
    pub fn tell(self, text: impl Into<String>) {
        self.say(text, None);
    }

    /// Goes back to what the toast's act changed.
    pub fn undo(self) {
        let toast = untrack(|| self.toast.get());
        self.toast.set(None);
        if let Some(snapshot) = toast.and_then(|toast| toast.undo) {
            self.show(snapshot);
        }
    }

    /// Shows what a link says, as when the visitor goes back.
    pub fn arrive(self, scenarios: Vec<Scenario>, notices: Vec<Issue>) {
        let active = untrack(|| self.active.get());
        self.toast.set(None);
        self.show(Snapshot { scenarios, active });
        self.notices.set(notices);
    }

    /// Replaces the active scenario by another, as an act of its own in the history.
    pub fn open(self, scenario: Scenario, text: impl Into<String>) {
        let before = self.snapshot();
        self.visits.update(|count| *count += 1);
        untrack(|| self.current()).scenario.set(scenario);
        self.say(text, Some(before));
    }

    /// Back to the first answer.
    pub fn reset(self) {
        let before = self.snapshot();
        self.visits.update(|count| *count += 1);
        self.show(Snapshot { scenarios: vec![Scenario::default()], active: 0 });
        self.say("Reset to the first example", Some(before));
    }

    /// Whether one more scenario can stand beside the others.
    pub fn has_room(self) -> bool {
        self.order.with(Vec::len) < MOST
    }

    /// Pins the active scenario and puts a copy beside it, which the controls change from now on.
    pub fn duplicate(self) {
        let Snapshot { mut scenarios, active } = self.snapshot();
        if scenarios.len() >= MOST {
            return;
        }
        let Some(copy) = scenarios.get(active).cloned() else { return };
        let first = scenarios.len() == 1;
        scenarios.insert(active + 1, copy);
        if first {
            self.visits.update(|count| *count += 1);
        }
        self.show(Snapshot { scenarios, active: active + 1 });
    }

    /// Takes a scenario off the page.
    pub fn remove(self, position: usize) {
        let before = self.snapshot();
        let mut scenarios = before.scenarios.clone();
        if scenarios.len() < 2 || position >= scenarios.len() {
            return;
        }
        scenarios.remove(position);
        let active = if before.active > position { before.active - 1 } else { before.active };
        self.show(Snapshot { scenarios, active });
        self.say(format!("Removed {}", letter(position)), Some(before));
    }
}

/// What a scenario is called by its position: A, B, C, D.
pub const fn letter(position: usize) -> &'static str {
    match position {
        0 => "A",
        1 => "B",
        2 => "C",
        _ => "D",
    }
}
