//! The page's state: the scenarios, one estimate for each, and the commands that change them.

use std::sync::Arc;

use leptos::prelude::*;

use super::asked::Asked;
use super::browser::{self, File};
use super::desk::Desk;
use super::detail::Detail;
use super::format::Unit;
use super::history::{History, Snapshot};
use super::looked::Looked;
use super::recorded::Recorded;
use super::summary;
use super::view::View;
use super::way::Own;
use crate::check::Run;
use crate::estimate::{Estimate, estimate};
use crate::hardware::Gpu;
use crate::memory::Memory;
use crate::plan::{Fit, Levers, Use, Verdict, fits};
use crate::scenario::{Issue, Scenario};
use crate::share::MOST_SCENARIOS;

/// A place for a scenario and its answer. Places are made once and reused, so that nothing that still looks at one is
/// ever left with a disposed signal.
#[derive(Clone, Copy)]
pub struct Slot {
    /// What was chosen.
    pub scenario: RwSignal<Scenario>,
    /// The answer: the only place where the page estimates this scenario.
    pub estimate: Memo<Estimate>,
    /// The scenario looked at closely; a moment behind it.
    pub detail: RwSignal<Option<Arc<Detail>>>,
    /// The same, as long as it is of just this scenario.
    look: Memo<Option<Arc<Detail>>>,
    gpu: Memo<Option<Gpu>>,
}

impl Slot {
    fn new() -> Slot {
        let scenario = RwSignal::new(Scenario::default());
        let detail = RwSignal::new(None::<Arc<Detail>>);
        Slot {
            scenario,
            estimate: Memo::new(move |_| scenario.with(estimate)),
            detail,
            look: Memo::new(move |_| {
                let detail = detail.get();
                scenario.with(|scenario| detail.filter(|detail| detail.is_of(scenario)))
            }),
            gpu: Memo::new(move |_| scenario.with(|scenario| scenario.gpu().ok())),
        }
    }

    /// The close look at the scenario, as soon as there is one of just this scenario.
    pub fn close_look(self) -> Option<Arc<Detail>> {
        self.look.get()
    }

    /// Looks at the scenario and its figures: those of the close look as soon as there are any, the tensors' until then.
    /// `None` where there are none.
    pub fn answer<T>(self, look: impl FnOnce(&Scenario, &Memory, &Gpu) -> T) -> Option<T> {
        let detail = self.close_look();
        self.gpu.with(|gpu| {
            let gpu = gpu.as_ref()?;
            self.scenario.with(|scenario| match detail {
                Some(detail) => Some(look(scenario, &detail.memory, gpu)),
                None => self.estimate.with(|estimate| Some(look(scenario, estimate.memory.as_ref()?, gpu))),
            })
        })
    }

    /// Whether a close look at the scenario is still to come.
    pub fn is_awaited(self) -> bool {
        self.estimate.with(|estimate| estimate.memory.is_some()) && self.close_look().is_none()
    }

    /// Whether it fits, and the verdict on that.
    pub fn fit(self) -> Option<(Fit, Verdict)> {
        let detail = self.close_look();
        self.answer(|scenario, memory, gpu| {
            let fit = fits(memory, gpu);
            (fit, Detail::verdict(detail.as_deref(), scenario, &fit))
        })
    }
}

/// Everything that the page shows hangs on this. Copied freely: it holds handles only.
#[derive(Clone, Copy)]
pub struct State {
    /// All places; the first [`State::count`] of them are on the page.
    pub slots: [Slot; MOST_SCENARIOS],
    /// How many scenarios stand side by side, at least one.
    pub count: RwSignal<usize>,
    /// The position of the scenario that the controls change.
    pub active: RwSignal<usize>,
    /// Whether amounts are shown in decimal units.
    pub decimal: RwSignal<bool>,
    /// What was done last, while it is told; otherwise empty.
    pub toast: RwSignal<String>,
    /// Whether that can be undone.
    pub undoable: RwSignal<bool>,
    /// The heading of the view Accuracy that was asked for, until what stands above it is there.
    pub sought: RwSignal<Option<&'static str>>,
    /// The out-of-memory message that was pasted; mostly nothing.
    pub pasted: RwSignal<String>,
    /// The lengths of a data set's texts, as they were pasted; mostly nothing.
    pub texts: RwSignal<String>,
    /// What was wrong with the link that the page was opened with.
    pub notices: RwSignal<Vec<Issue>>,
    /// The dialog for a model of one's own.
    pub own: Own,
    /// Where questions are asked whose answers take longer.
    pub desk: StoredValue<Desk, LocalStorage>,
    /// Rises by one where the tables that were stopped are to be answered after all.
    pub again: RwSignal<usize>,
    /// Whether the last of them found nobody who could answer.
    pub troubled: RwSignal<bool>,
    /// Rises by one at each change that deserves its own place in the history.
    pub visits: RwSignal<usize>,
    /// Rises by one at each change that begins a step of Undo, and where one is taken back: what it comes to has a place in the history.
    pub steps: RwSignal<usize>,
    /// What tells the scenarios apart, in order.
    pub names: Memo<Vec<String>>,
    /// What stands under the answer.
    pub view: RwSignal<View>,
    /// Whether the page stands in another one: the answer alone.
    pub embedded: RwSignal<bool>,
    /// What the table of models is asked about.
    pub asked: Asked,
    /// What the timeline shows.
    pub looked: Looked,
    /// What to change in the active scenario; a moment behind it.
    pub levers: RwSignal<Known<Levers>>,
    /// What the room of the active scenario is good for, where it gets through; likewise.
    pub uses: RwSignal<Known<Vec<Use>>>,
    /// Whether no worker could try them.
    pub untried: RwSignal<bool>,
    /// Whether all settings are in sight, and not only those that most people choose.
    pub unfolded: RwSignal<bool>,
    /// Whether the sheet of keys is open.
    pub keys: RwSignal<bool>,
    /// Whether something can be undone.
    pub can_undo: RwSignal<bool>,
    /// Whether something can be done again.
    pub can_redo: RwSignal<bool>,
    /// The memory snapshot that lies over the timeline; mostly nothing.
    pub trace: RwSignal<Option<TraceFile>, LocalStorage>,
    /// The measured runs, from the first time that they are asked for.
    pub measured: RwSignal<Measured>,
    /// What a run of somebody's own took, as the link or the recorder's file said.
    pub took: RwSignal<Option<Recorded>>,
    history: StoredValue<History>,
}

/// A memory snapshot of the visitor's.
#[derive(Clone)]
pub struct TraceFile {
    /// What its file is called.
    pub name: String,
    /// The file.
    pub file: File,
}

/// The measured runs, which the page fetches where they are looked at.
#[derive(Clone, Default)]
pub enum Measured {
    /// Nobody asked yet.
    #[default]
    Unasked,
    /// They are on their way.
    Awaited,
    /// They are here.
    Here(Arc<Vec<Run>>),
    /// They did not come.
    Failed(&'static str),
}

/// What was found, and for which scenario.
pub type Known<T> = Option<Arc<(Scenario, T)>>;

/// One field of the active scenario: what it is, and how to change it.
pub struct Lens<T: Send + Sync + 'static> {
    /// Its value.
    pub value: Signal<T>,
    /// Changes it.
    pub set: Callback<T>,
}

impl State {
    /// The state for a list of scenarios; an empty list gives the default one.
    pub fn new(scenarios: Vec<Scenario>, desk: Desk) -> State {
        let slots: [Slot; MOST_SCENARIOS] = std::array::from_fn(|_| Slot::new());
        let count = RwSignal::new(1);
        let names = Memo::new(move |_| {
            let shown: Vec<_> = slots.into_iter().take(count.get()).map(|slot| slot.scenario.get()).collect();
            // Alone, a scenario has nothing to be told from.
            if shown.len() > 1 { summary::names(&shown) } else { Vec::new() }
        });
        let state = State {
            slots,
            count,
            names,
            active: RwSignal::new(0),
            decimal: RwSignal::new(false),
            toast: RwSignal::new(String::new()),
            undoable: RwSignal::new(false),
            sought: RwSignal::new(None),
            pasted: RwSignal::new(String::new()),
            texts: RwSignal::new(String::new()),
            notices: RwSignal::new(Vec::new()),
            own: Own::new(),
            desk: StoredValue::new_local(desk),
            again: RwSignal::new(0),
            troubled: RwSignal::new(false),
            visits: RwSignal::new(0),
            steps: RwSignal::new(0),
            view: RwSignal::new(View::default()),
            embedded: RwSignal::new(false),
            asked: Asked::new(),
            looked: Looked::new(),
            levers: RwSignal::new(None),
            uses: RwSignal::new(None),
            untried: RwSignal::new(false),
            unfolded: RwSignal::new(false),
            keys: RwSignal::new(false),
            can_undo: RwSignal::new(false),
            can_redo: RwSignal::new(false),
            trace: RwSignal::new_local(None),
            measured: RwSignal::new(Measured::default()),
            took: RwSignal::new(None),
            history: StoredValue::new(History::default()),
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

    /// The slots on the page, in order.
    pub fn shown(self) -> impl Iterator<Item = Slot> {
        self.slots.into_iter().take(self.count.get())
    }

    /// Whether no scenario stands at a position.
    pub fn is_free(self, position: usize) -> bool {
        position >= self.count.get()
    }

    /// Whether there is one scenario only.
    pub fn alone(self) -> bool {
        self.count.get() == 1
    }

    /// The slot that the controls change.
    pub fn current(self) -> Slot {
        self.slots[self.active.get().min(MOST_SCENARIOS - 1)]
    }

    /// Every scenario on the page, in order.
    pub fn scenarios(self) -> Vec<Scenario> {
        self.shown().map(|slot| slot.scenario.get()).collect()
    }

    /// The unit that amounts are shown in.
    pub fn unit(self) -> Unit {
        if self.decimal.get() { Unit::Decimal } else { Unit::Binary }
    }

    /// Something about the active scenario; what hangs on it runs where it comes to be another.
    pub fn of_scenario<T: PartialEq + Send + Sync + 'static>(
        self,
        get: impl Fn(&Scenario) -> T + Send + Sync + 'static,
    ) -> Signal<T> {
        Memo::new(move |_| self.current().scenario.with(&get)).into()
    }

    /// What a run of just the scenario on the page took, where that is known.
    pub fn recorded(self) -> Option<Recorded> {
        let alone = self.alone();
        self.took.get().filter(|took| alone && self.current().scenario.with(|scenario| took.is_of(scenario)))
    }

    /// One field of the active scenario.
    pub fn lens<T: PartialEq + Send + Sync + 'static>(
        self,
        get: impl Fn(&Scenario) -> T + Copy + Send + Sync + 'static,
        set: impl Fn(&mut Scenario, T) + Send + Sync + 'static,
    ) -> Lens<T> {
        let value = self.of_scenario(get);
        let set = Callback::new(move |new: T| self.change(|scenario| set(scenario, new)));
        Lens { value, set }
    }

    /// Changes a choice of the active scenario; what was at its default stays at its default, and is told where that is another.
    pub fn change(self, change: impl FnOnce(&mut Scenario)) {
        let mut begins = false;
        self.history.update_value(|history| begins = history.change(browser::now(), || self.snapshot()));
        // what is told has been overtaken: its undo would take back this change
        if self.undoable.get_untracked() {
            self.undoable.set(false);
        }
        let scenario = untrack(|| self.current()).scenario;
        let before = scenario.get_untracked();
        let mut followed = Vec::new();
        scenario.update(|scenario| followed = scenario.change_and_tell(change));
        let now = self.snapshot();
        let mut is_step = true;
        self.history.update_value(|history| is_step = history.settle(&now));
        self.note_ways();
        if begins && is_step {
            self.steps.update(|count| *count += 1);
        }
        if let Some(told) = scenario.with_untracked(|after| summary::came_along(&before, after, &followed)) {
            self.say(&told, is_step);
        }
    }

    fn note_ways(self) {
        let (back, forth) = self.history.with_value(History::ways);
        self.can_undo.set(back);
        self.can_redo.set(forth);
    }

    fn snapshot(self) -> Snapshot {
        untrack(|| Snapshot { scenarios: self.scenarios(), active: self.active.get() })
    }

    fn show(self, snapshot: Snapshot) {
        let Snapshot { mut scenarios, active } = snapshot;
        if scenarios.is_empty() {
            scenarios.push(Scenario::default());
        }
        let count = scenarios.len().min(MOST_SCENARIOS);
        for (slot, scenario) in self.slots.iter().zip(scenarios) {
            slot.scenario.set(scenario);
        }
        self.count.set(count);
        self.active.set(active.min(count - 1));
    }

    fn say(self, text: &str, undoable: bool) {
        self.undoable.set(undoable);
        self.toast.set(text.to_owned());
    }

    /// Shows a message for a moment.
    pub fn tell(self, text: &str) {
        self.say(text, false);
    }

    /// Puts a text on the clipboard, and says that.
    pub fn copy(self, text: &str, told: &'static str) {
        browser::copy(text, move |copied| {
            self.tell(if copied {
                told
            } else {
                "The browser did not allow copying; the address bar holds the link"
            });
        });
    }

    /// Takes the message away.
    pub fn hush(self) {
        self.say("", false);
    }

    /// Takes back the last act or change.
    pub fn undo(self) {
        self.travel(History::undo, "Nothing to undo");
    }

    /// Does again what was taken back.
    pub fn redo(self) {
        self.travel(History::redo, "Nothing to redo");
    }

    fn travel(self, go: fn(&mut History, Snapshot) -> Option<Snapshot>, nothing: &str) {
        let now = self.snapshot();
        let found = self.history.try_update_value(|history| go(history, now)).flatten();
        self.note_ways();
        match found {
            Some(snapshot) => {
                self.hush();
                self.show(snapshot);
                self.steps.update(|count| *count += 1);
            }
            None => self.tell(nothing),
        }
    }

    /// Shows what a link says, as when the visitor goes back.
    pub fn arrive(self, scenarios: Vec<Scenario>, notices: Vec<Issue>) {
        let active = self.active.get_untracked();
        let (now, to) = (self.snapshot(), Snapshot { scenarios, active });
        self.history.update_value(|history| history.travel(now, &to));
        self.note_ways();
        self.hush();
        self.show(to);
        self.notices.set(notices);
    }

    /// Keeps what is there, to be undone.
    fn remember(self) {
        let before = self.snapshot();
        self.history.update_value(|history| history.act(before));
        self.note_ways();
    }

    /// Does something that can be undone and has its own place in the browser's history.
    fn act(self, text: &str, act: impl FnOnce()) {
        self.remember();
        self.visits.update(|count| *count += 1);
        act();
        self.say(text, true);
    }

    /// Replaces the active scenario by another.
    pub fn open(self, scenario: Scenario, text: &str) {
        self.act(text, || untrack(|| self.current()).scenario.set(scenario));
    }

    /// Back to the first answer.
    pub fn reset(self) {
        self.act("Reset", || self.show(Snapshot { scenarios: Vec::new(), active: 0 }));
    }

    /// Pins the active scenario and puts a copy beside it, which the controls change from now on.
    pub fn duplicate(self) {
        self.put_beside(untrack(|| self.current().scenario.get()));
    }

    /// Puts another scenario beside the active one, which the controls change from now on.
    pub fn put_beside(self, scenario: Scenario) {
        let Snapshot { mut scenarios, active } = self.snapshot();
        if scenarios.len() < MOST_SCENARIOS {
            scenarios.insert(active + 1, scenario);
            self.remember();
            self.visits.update(|count| *count += 1);
            self.show(Snapshot { scenarios, active: active + 1 });
            self.view.set(View::Compare);
        }
    }

    /// Puts a scenario in the place of the first, which the others are compared with, and that one in its place.
    pub fn swap(self, position: usize) {
        let Snapshot { mut scenarios, active } = self.snapshot();
        if (1..scenarios.len()).contains(&position) {
            scenarios.swap(0, position);
            let active = match active {
                0 => position,
                now if now == position => 0,
                other => other,
            };
            self.act(&format!("A and {} swapped", letter(position)), || {
                self.show(Snapshot { scenarios, active })
            });
        }
    }

    /// Takes a scenario off the page.
    pub fn remove(self, position: usize) {
        let Snapshot { mut scenarios, active } = self.snapshot();
        if scenarios.len() > 1 && position < scenarios.len() {
            scenarios.remove(position);
            let active = if active > position { active - 1 } else { active };
            self.act(&format!("Removed {}", letter(position)), || self.show(Snapshot { scenarios, active }));
        }
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
