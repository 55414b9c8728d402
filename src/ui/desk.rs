//! Hands questions to the workers, to each one at a time, and drops those that nobody wants answered any more.

use std::cell::RefCell;
use std::rc::Rc;

use leptos::prelude::*;

use super::browser::{Colleague, File, Heard, Later, processors};
use super::question::{Answer, Question};

/// How long, in milliseconds, a worker of tables stays that has nothing to do: its memory is the visitor's.
const REST: u32 = 60_000;

/// How long, in milliseconds, a worker may go on with a question that nobody wants answered any more: starting it anew
/// costs about as much.
const PATIENCE: u32 = 100;

/// What an answer is for. A newer question for the same place takes the place of the older one; those for scenarios go
/// before all others, those for tables and curves behind them, what takes little time before what takes much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// The scenario at a position.
    Scenario(usize),
    /// What the room of the active one is good for, which is asked only where it fits.
    Use(usize),
    /// What to change in it.
    Levers,
    /// Some of the runs that this needs.
    Look(usize),
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
    /// What sequences at once need in the formats of a scenario.
    ByBatch(usize),
    /// Sequences at once by their length.
    Contexts,
    /// How a card reaches an effective batch.
    Batch(usize),
    /// Some combinations of settings.
    Setting(usize),
    /// A point of a curve.
    Point(usize),
    /// Some ways to use several GPUs.
    Layout(usize),
    /// A row of the table of what can be trained.
    Row(usize),
    /// The largest model by a method.
    Largest(usize),
    /// What texts of different lengths need.
    Texts,
    /// What an order of them does.
    TextOrder(usize),
    /// Some rows of the table of cards.
    Cards(usize),
}

impl Place {
    /// Whether it is one of a view that answers a question of its own, and not part of the answer.
    fn is_of_a_table(self) -> bool {
        self >= Place::Serving
    }

    /// Whether a seat's worker answers it: the first looks at the run on screen, which it keeps, and is never kept by a table or by what to
    /// change.
    fn is_for(self, seat: usize) -> bool {
        match self {
            Place::Oom => true,
            Place::Levers | Place::Look(_) | Place::Use(_) => seat > 0,
            place if place.is_of_a_table() => seat > 0,
            _ => seat == 0,
        }
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

/// A worker's place, and what it is at.
#[derive(Default)]
struct Seat {
    worker: Option<Colleague>,
    /// Whether it has said that it is there.
    ready: bool,
    /// Whether it could not be had; the next question tries again.
    failed: bool,
    /// Whether something was asked since it was called.
    asked_since: bool,
    running: Option<Task>,
    /// Whether somebody still wants the answer to what is running.
    wanted: bool,
    /// Ends the worker in a while.
    ending: Later,
}

impl Seat {
    /// What is running, if somebody wants to know.
    fn asked(&self) -> Option<&Task> {
        self.running.as_ref().filter(|_| self.wanted)
    }

    /// The worker is gone; what it was at is handed back if somebody wants to know. One that never came is called again for what was asked
    /// after it was.
    fn lose(&mut self) -> Option<Task> {
        self.failed |= !self.ready && !self.asked_since;
        self.dismiss()
    }

    /// Sends the worker away; what it was at is handed back if somebody wants to know.
    fn dismiss(&mut self) -> Option<Task> {
        self.ending.cancel();
        self.worker = None;
        self.ready = false;
        self.running.take().filter(|_| self.wanted)
    }
}

#[derive(Default)]
struct Inner {
    /// The first answers about what is on screen, the others what to change and tables; none before the first question.
    seats: Vec<Seat>,
    waiting: Vec<Task>,
    /// A place of the table that is looked at.
    looked_at: Option<Place>,
}

/// The page's side of the workers. Copies are the same desk.
#[derive(Clone, Default)]
pub struct Desk {
    inner: Rc<RefCell<Inner>>,
    /// How many questions for tables and curves are not answered yet.
    left: ArcRwSignal<usize>,
}

impl Inner {
    /// What comes first: the answer, then the table that is looked at, then the others.
    fn order(&self, place: Place) -> (bool, bool, Place) {
        let is_later = place.is_of_a_table();
        (is_later, is_later && !self.looked_at.is_some_and(|table| table.is_beside(place)), place)
    }

    /// Whether a seat without a worker needs one: more is waiting for the like of it than workers are coming or have time.
    fn calls_for(&self, number: usize) -> bool {
        if self.seats[number].worker.is_some() || self.seats[number].failed {
            return false;
        }
        let waiting = self.waiting.iter().filter(|task| task.place.is_for(number)).count();
        let alike = self.seats.iter().enumerate().filter(|(other, _)| (*other > 0) == (number > 0));
        waiting > alike.filter(|(_, seat)| seat.worker.is_some() && seat.running.is_none()).count()
    }

    /// Takes out what only workers would answer that cannot be had.
    fn without_hope(&mut self) -> Vec<Task> {
        let seats = &self.seats;
        let has_hope = |task: &Task| {
            seats.iter().enumerate().any(|(number, seat)| !seat.failed && task.place.is_for(number))
        };
        let (kept, lost) = std::mem::take(&mut self.waiting).into_iter().partition(has_hope);
        self.waiting = kept;
        lost
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
            for seat in &mut inner.seats {
                (seat.failed, seat.asked_since) = (false, true);
            }
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
        let stopped = {
            let mut inner = self.inner.borrow_mut();
            let at_tables = |seat: &&mut Seat| seat.asked().is_some_and(|task| task.place.is_of_a_table());
            let running: Vec<_> =
                inner.seats.iter_mut().filter(at_tables).filter_map(Seat::dismiss).collect();
            let (waiting, others): (Vec<_>, _) =
                std::mem::take(&mut inner.waiting).into_iter().partition(|task| task.place.is_of_a_table());
            inner.waiting = others;
            running.into_iter().chain(waiting)
        };
        self.answer_none(stopped);
    }

    fn count(&self) {
        let inner = self.inner.borrow();
        let running = inner.seats.iter().filter_map(Seat::asked);
        let left = inner.waiting.iter().chain(running).filter(|task| task.place.is_of_a_table()).count();
        drop(inner);
        if self.left.get_untracked() != left {
            self.left.set(left);
        }
    }

    /// Drops what was asked for a place.
    pub fn forget(&self, place: Place) {
        self.forget_where(|other| other == place);
    }

    /// Drops what was asked for some places.
    pub fn forget_where(&self, is_one: impl Fn(Place) -> bool) {
        let mut inner = self.inner.borrow_mut();
        inner.waiting.retain(|task| !is_one(task.place));
        for (number, seat) in inner.seats.iter_mut().enumerate() {
            if let Some(place) = seat.asked().map(|task| task.place).filter(|place| is_one(*place)) {
                seat.wanted = false;
                // A new worker would have to run the whole step again before it could answer about another moment.
                if !matches!(place, Place::Glance | Place::Stretch) {
                    let desk = self.clone();
                    seat.ending.run(PATIENCE, move || desk.give_up(number));
                }
            }
        }
        drop(inner);
        self.count();
    }

    /// Hands over the next questions, to new workers where there are none.
    fn go_on(&self) {
        let seats = {
            let seats = &mut self.inner.borrow_mut().seats;
            if seats.is_empty() {
                // what to change and what the room is good for are many runs; by four they are done in a moment
                let for_tables = processors().saturating_sub(2).clamp(2, 4);
                seats.resize_with(1 + for_tables, Seat::default);
            }
            seats.len()
        };
        // the first comes last: what others can answer would keep it
        (1..seats).chain([0]).for_each(|number| self.go_on_at(number));
    }

    fn go_on_at(&self, number: usize) {
        let mut inner = self.inner.borrow_mut();
        if inner.calls_for(number) {
            let desk = self.clone();
            inner.seats[number].asked_since = false;
            let worker = Colleague::call(move |heard| desk.hear(number, heard));
            if worker.is_none() {
                drop(inner);
                return self.fail(number);
            }
            inner.seats[number].worker = worker;
        }
        let Inner { seats, waiting, .. } = &mut *inner;
        let seat = &mut seats[number];
        let next = waiting.iter().position(|task| task.place.is_for(number));
        let (Some(next), Some(worker), true, None) = (next, &seat.worker, seat.ready, &seat.running) else {
            return;
        };
        let task = waiting.remove(next);
        seat.ending.cancel();
        worker.tell(&task.question.written(), task.file.as_ref());
        seat.running = Some(task);
        seat.wanted = true;
    }

    fn hear(&self, number: usize, heard: Heard) {
        match heard {
            Heard::Ready => {
                self.inner.borrow_mut().seats[number].ready = true;
                self.go_on();
                self.rest(number);
            }
            Heard::Said(bytes) => {
                let (task, wanted) = {
                    let seat = &mut self.inner.borrow_mut().seats[number];
                    seat.ending.cancel();
                    (seat.running.take(), seat.wanted)
                };
                if let Some(task) = task.filter(|_| wanted) {
                    (task.then)(Answer::read(&bytes));
                }
                self.go_on();
                self.rest(number);
                self.count();
            }
            Heard::Failed => self.fail(number),
        }
    }

    /// Ends a worker of tables that has nothing to do in a while.
    fn rest(&self, number: usize) {
        let seat = &self.inner.borrow().seats[number];
        if number > 0 && seat.running.is_none() {
            let desk = self.clone();
            seat.ending.run(REST, move || desk.give_up(number));
        }
    }

    /// Ends a worker in the middle of a question that nobody wants answered any more.
    fn give_up(&self, number: usize) {
        drop(self.inner.borrow_mut().seats[number].dismiss());
        self.go_on();
    }

    /// A worker is gone: of what it was at there is no answer, and where it never came there is none of what waits for no other.
    fn fail(&self, number: usize) {
        let failed = {
            let mut inner = self.inner.borrow_mut();
            let running = inner.seats[number].lose();
            let waiting = inner.without_hope();
            running.into_iter().chain(waiting)
        };
        self.answer_none(failed);
    }

    /// Tells who asked that there is no answer, and goes on.
    fn answer_none(&self, tasks: impl Iterator<Item = Task>) {
        for task in tasks {
            (task.then)(None);
        }
        self.go_on();
        self.count();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(places: &[Place]) -> Inner {
        let task = |place: &Place| Task {
            place: *place,
            question: Question::Point(Box::default()),
            file: None,
            then: Box::new(|_| ()),
        };
        let mut inner = Inner { waiting: places.iter().map(task).collect(), ..Inner::default() };
        inner.seats.resize_with(3, Seat::default);
        inner
    }

    #[test]
    fn a_table_never_keeps_the_answer() {
        for table in [Place::Row(0), Place::Cards(3), Place::Point(1), Place::Serving] {
            assert!(!table.is_for(0) && table.is_for(1) && table.is_for(2), "{table:?}");
        }
        for near in [Place::Scenario(1), Place::Glance, Place::Zoom(2), Place::Export] {
            assert!(near.is_for(0) && !near.is_for(1), "{near:?}");
        }
        assert!(Place::Oom.is_for(0) && !Place::Levers.is_for(0) && Place::Levers.is_for(2));
    }

    #[test]
    fn a_worker_is_called_where_something_waits_for_it() {
        let called = |inner: &Inner| [0, 1, 2].map(|seat| inner.calls_for(seat));
        assert_eq!(called(&waiting(&[])), [false; 3]);
        assert_eq!(called(&waiting(&[Place::Scenario(0)])), [true, false, false]);
        assert_eq!(called(&waiting(&[Place::Row(0), Place::Row(1)])), [false, true, true]);
    }

    #[test]
    fn a_worker_that_never_came_is_called_again_for_what_was_asked_meanwhile() {
        let mut inner = waiting(&[Place::Scenario(0)]);
        inner.seats[0].asked_since = true;
        assert!(inner.seats[0].lose().is_none() && inner.without_hope().is_empty() && inner.calls_for(0));
        inner.seats[0].asked_since = false;
        assert!(inner.seats[0].lose().is_none() && !inner.calls_for(0));
        assert_eq!(inner.without_hope().len(), 1);
    }

    #[test]
    fn what_another_worker_can_answer_is_not_given_up() {
        let mut inner = waiting(&[Place::Scenario(0), Place::Levers, Place::Row(0)]);
        inner.seats[1].failed = true;
        assert!(inner.without_hope().is_empty() && !inner.calls_for(1) && inner.calls_for(2));
        inner.seats[2].failed = true;
        let lost: Vec<_> = inner.without_hope().into_iter().map(|task| task.place).collect();
        assert_eq!(lost, [Place::Levers, Place::Row(0)]);
        inner.seats[0].failed = true;
        assert_eq!(inner.without_hope().len(), 1);
    }

    #[test]
    fn the_answer_comes_before_the_table_that_is_looked_at() {
        let inner = Inner { looked_at: Some(Place::Row(9)), ..Inner::default() };
        let mut places =
            [Place::Cards(0), Place::Row(1), Place::Levers, Place::Use(0), Place::Row(0), Place::Scenario(0)];
        places.sort_by_key(|place| inner.order(*place));
        assert_eq!(
            places,
            [Place::Scenario(0), Place::Use(0), Place::Levers, Place::Row(0), Place::Row(1), Place::Cards(0)]
        );
    }
}
