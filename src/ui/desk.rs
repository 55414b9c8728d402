//! Hands questions to the worker, one at a time, and drops those that nobody wants answered any more.

use std::cell::RefCell;
use std::rc::Rc;

use leptos::prelude::*;

use super::browser::{Colleague, File, Heard, Later};
use super::question::{Answer, Question};

/// How long, in milliseconds, the worker may go on with a question that nobody wants answered any more: starting it anew
/// costs about as much.
const PATIENCE: u32 = 100;

/// What an answer is for. A newer question for the same place takes the place of the older one; those for scenarios go
/// before all others, those for tables and curves behind them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// The scenario at a position.
    Scenario(usize),
    /// What to change in the active one.
    Levers,
    /// What the timeline draws where that is not all of the step that is shown.
    Stretch,
    /// A memory snapshot over the timeline.
    Snapshot,
    /// A moment of the timeline.
    Glance,
    /// A part that is open, by its number.
    Zoom(usize),
    /// A text to take along.
    Export,
    /// What an out-of-memory message means.
    Oom,
    /// The weights in every format.
    Serving,
    /// Sequences at once by their length.
    Contexts,
    /// A point of a curve.
    Point(usize),
    /// Some ways to use several GPUs.
    Layout(usize),
    /// What texts of different lengths need.
    Texts,
    /// What an order of them does.
    TextOrder(usize),
    /// Some rows of the table of cards.
    Cards(usize),
    /// Some combinations of settings.
    Setting(usize),
    /// How a card reaches an effective batch.
    Batch(usize),
    /// A row of the table of what can be trained.
    Row(usize),
}

impl Place {
    /// Whether it is one of a view that answers a question of its own, and not part of the answer.
    fn is_of_a_table(self) -> bool {
        self >= Place::Serving
    }

    /// Whether both are of one table.
    fn is_beside(self, other: Place) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }
}

struct Task {
    place: Place,
    question: Question,
    /// What goes beside the question.
    file: Option<File>,
    /// Takes the answer; nothing where the worker could not give one.
    then: Box<dyn FnOnce(Option<Answer>)>,
}

#[derive(Default)]
struct Inner {
    worker: Option<Colleague>,
    /// Whether it has said that it is there.
    ready: bool,
    waiting: Vec<Task>,
    /// A place of the table that is looked at.
    looked_at: Option<Place>,
    running: Option<Task>,
    /// Whether somebody still wants the answer to what is running.
    wanted: bool,
}

/// The page's side of the worker. Copies are the same desk.
#[derive(Clone, Default)]
pub struct Desk {
    inner: Rc<RefCell<Inner>>,
    patience: Later,
    /// How many questions for tables and curves are not answered yet.
    left: ArcRwSignal<usize>,
}

impl Inner {
    /// What comes first: the answer, then the table that is looked at, then the others.
    fn order(&self, place: Place) -> (bool, bool, Place) {
        let is_later = place.is_of_a_table();
        (is_later, is_later && !self.looked_at.is_some_and(|table| table.is_beside(place)), place)
    }
}

impl Desk {
    /// Asks a question; the older one for that place is dropped. `then` is given nothing where the worker cannot be had or
    /// failed at the question.
    pub fn ask(&self, place: Place, question: Question, then: impl FnOnce(Option<Answer>) + 'static) {
        self.ask_with(place, question, None, then);
    }

    /// The same with a file that the question is about.
    pub fn ask_with(
        &self,
        place: Place,
        question: Question,
        file: Option<File>,
        then: impl FnOnce(Option<Answer>) + 'static,
    ) {
        self.forget(place);
        {
            let mut inner = self.inner.borrow_mut();
            let order = inner.order(place);
            let behind = inner.waiting.partition_point(|task| inner.order(task.place) <= order);
            inner.waiting.insert(behind, Task { place, question, file, then: Box::new(then) });
        }
        self.go_on();
        self.count();
    }

    /// The table of that place is looked at: its questions go before those for other tables.
    pub fn look_at(&self, table: Option<Place>) {
        let mut inner = self.inner.borrow_mut();
        inner.looked_at = table;
        let mut waiting = std::mem::take(&mut inner.waiting);
        waiting.sort_by_key(|task| inner.order(task.place));
        inner.waiting = waiting;
    }

    /// How many questions for tables and curves are not answered yet.
    pub fn left(&self) -> usize {
        self.left.get()
    }

    /// Gives up all questions for tables and curves: who asked is told that there is no answer.
    pub fn stop(&self) {
        let is_running = {
            let inner = self.inner.borrow();
            inner.wanted && inner.running.as_ref().is_some_and(|task| task.place.is_of_a_table())
        };
        let running = if is_running { self.dismiss() } else { None };
        let waiting = {
            let mut inner = self.inner.borrow_mut();
            let (stopped, others) = std::mem::take(&mut inner.waiting)
                .into_iter()
                .partition(|task: &Task| task.place.is_of_a_table());
            inner.waiting = others;
            stopped
        };
        for task in running.into_iter().chain::<Vec<Task>>(waiting) {
            (task.then)(None);
        }
        self.go_on();
        self.count();
    }

    fn count(&self) {
        let inner = self.inner.borrow();
        let running = inner.running.as_ref().filter(|_| inner.wanted);
        let left = inner.waiting.iter().chain(running).filter(|task| task.place.is_of_a_table()).count();
        drop(inner);
        if self.left.get_untracked() != left {
            self.left.set(left);
        }
    }

    /// Drops what was asked for a place.
    pub fn forget(&self, place: Place) {
        let mut inner = self.inner.borrow_mut();
        inner.waiting.retain(|task| task.place != place);
        if inner.wanted && inner.running.as_ref().is_some_and(|task| task.place == place) {
            inner.wanted = false;
            // A new worker would have to run the whole step again before it could answer about another moment.
            if !matches!(place, Place::Glance | Place::Stretch) {
                let desk = self.clone();
                self.patience.run(PATIENCE, move || desk.give_up());
            }
        }
        drop(inner);
        self.count();
    }

    /// Hands over the next question, to a new worker where there is none.
    fn go_on(&self) {
        let mut inner = self.inner.borrow_mut();
        if inner.waiting.is_empty() || inner.running.is_some() {
            return;
        }
        if inner.worker.is_none() {
            let desk = self.clone();
            inner.worker = Colleague::call(move |heard| desk.hear(heard));
            if inner.worker.is_none() {
                drop(inner);
                return self.fail();
            }
        }
        if !inner.ready {
            return;
        }
        let task = inner.waiting.remove(0);
        if let Some(worker) = &inner.worker {
            worker.tell(&task.question.written(), task.file.as_ref());
        }
        inner.running = Some(task);
        inner.wanted = true;
    }

    fn hear(&self, heard: Heard) {
        match heard {
            Heard::Ready => {
                self.inner.borrow_mut().ready = true;
                self.go_on();
            }
            Heard::Said(bytes) => {
                self.patience.cancel();
                let (task, wanted) = {
                    let mut inner = self.inner.borrow_mut();
                    (inner.running.take(), inner.wanted)
                };
                if let Some(task) = task.filter(|_| wanted) {
                    (task.then)(Answer::read(&bytes));
                }
                self.go_on();
                self.count();
            }
            Heard::Failed => self.fail(),
        }
    }

    /// Ends the worker in the middle of a question that nobody wants answered any more.
    fn give_up(&self) {
        self.dismiss();
        self.go_on();
    }

    fn dismiss(&self) -> Option<Task> {
        self.patience.cancel();
        let mut inner = self.inner.borrow_mut();
        inner.worker = None;
        inner.ready = false;
        inner.running.take().filter(|_| inner.wanted)
    }

    /// The worker is gone: of what it was at there is no answer, and where it never came there is none of anything.
    fn fail(&self) {
        let came = self.inner.borrow().ready;
        let mut failed: Vec<Task> = self.dismiss().into_iter().collect();
        if !came {
            failed.append(&mut self.inner.borrow_mut().waiting);
        }
        for task in failed {
            (task.then)(None);
        }
        self.go_on();
        self.count();
    }
}
