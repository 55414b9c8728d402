//! What was done on the page, to be undone and done again.

use crate::scenario::Scenario;

/// How many steps back are kept.
const MOST: usize = 100;
/// Changes that follow each other within so many milliseconds are one step: a slider's way, a word that is typed.
const PAUSE: f64 = 800.;

/// What a moment of the page can be brought back to.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// The scenarios on the page, in order.
    pub scenarios: Vec<Scenario>,
    /// Which of them the controls change.
    pub active: usize,
}

/// The one history of the page.
#[derive(Debug, Default)]
pub struct History {
    past: Vec<Snapshot>,
    future: Vec<Snapshot>,
    /// What could be done again before the last step was kept.
    gone: Vec<Snapshot>,
    /// When the last change was made that others may join.
    changed: Option<f64>,
}

impl History {
    /// Keeps what was there before an act.
    pub fn act(&mut self, before: Snapshot) {
        self.changed = None;
        self.push(before);
    }

    /// Keeps what was there before a change of a control, unless it goes on with the last one; whether it does not.
    pub fn change(&mut self, now: f64, before: impl FnOnce() -> Snapshot) -> bool {
        let goes_on = self.changed.is_some_and(|last| now - last < PAUSE);
        self.changed = Some(now);
        if !goes_on {
            self.push(before());
        }
        !goes_on
    }

    /// Where the visitor travelled to with the browser's Back and Forward. Each step has an entry there, so that Back is a way of undoing:
    /// to travel to what was there before, or was undone, is to go back or forth here as well, and no step of its own; what was there is
    /// kept on the other side. Anywhere else, as an address that was edited, is something new, which can be undone.
    pub fn travel(&mut self, now: Snapshot, to: &Snapshot) {
        let is_there = |step: &Snapshot| step.scenarios == to.scenarios;
        self.changed = None;
        if is_there(&now) {
            return;
        }
        if let Some(at) = self.past.iter().rposition(is_there) {
            let between = self.past.split_off(at);
            self.future.push(now);
            self.future.extend(between.into_iter().skip(1).rev());
        } else if let Some(at) = self.future.iter().rposition(is_there) {
            let between = self.future.split_off(at);
            self.past.push(now);
            self.past.extend(between.into_iter().skip(1).rev());
        } else {
            self.push(now);
        }
    }

    /// A change that left everything as it was, as what cannot be read does, is no step; whether it was one.
    pub fn settle(&mut self, now: &Snapshot) -> bool {
        let is_step = self.past.last() != Some(now);
        if !is_step {
            self.past.pop();
            self.changed = None;
            self.future = std::mem::take(&mut self.gone);
        }
        is_step
    }

    fn push(&mut self, before: Snapshot) {
        self.gone = std::mem::take(&mut self.future);
        if self.past.len() >= MOST {
            self.past.remove(0);
        }
        self.past.push(before);
    }

    /// One step back from what is there now.
    pub fn undo(&mut self, now: Snapshot) -> Option<Snapshot> {
        let before = self.past.pop()?;
        self.changed = None;
        self.future.push(now);
        Some(before)
    }

    /// One step forward again.
    pub fn redo(&mut self, now: Snapshot) -> Option<Snapshot> {
        let after = self.future.pop()?;
        self.changed = None;
        self.past.push(now);
        Some(after)
    }

    /// Whether there is a step back, and one forward.
    pub fn ways(&self) -> (bool, bool) {
        (!self.past.is_empty(), !self.future.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(batch: u64) -> Snapshot {
        Snapshot { scenarios: vec![Scenario { batch, ..Scenario::default() }], active: 0 }
    }

    #[test]
    fn every_step_can_be_undone_and_done_again() {
        let mut history = History::default();
        assert_eq!(history.undo(with(9)), None);
        history.act(with(1));
        history.act(with(2));
        assert_eq!(history.undo(with(3)), Some(with(2)));
        assert_eq!(history.undo(with(2)), Some(with(1)));
        assert_eq!(history.ways(), (false, true));
        assert_eq!(history.redo(with(1)), Some(with(2)));
        // something new is done: what was undone is gone
        history.act(with(2));
        assert_eq!(history.redo(with(7)), None);
    }

    #[test]
    fn the_way_of_a_slider_is_one_step() {
        let mut history = History::default();
        for (time, batch) in [(0., 1), (100., 2), (700., 3), (1400., 4)] {
            history.change(time, || with(batch));
        }
        history.change(5000., || with(5));
        assert_eq!(history.undo(with(6)), Some(with(5)));
        assert_eq!(history.undo(with(5)), Some(with(1)));
        assert_eq!(history.undo(with(1)), None);
    }

    #[test]
    fn what_changed_nothing_is_no_step() {
        let mut history = History::default();
        history.act(with(1));
        // a 3 that became 3x: refused, the 2 from before stands there again
        history.change(0., || with(2));
        history.change(100., || with(3));
        assert!(!history.settle(&with(2)));
        assert_eq!(history.past, [with(1)]);
        // what is written next is a step of its own
        history.change(200., || with(2));
        assert!(history.settle(&with(4)));
        assert_eq!(history.undo(with(4)), Some(with(2)));
        // nor does it take away what can be done again
        history.change(5000., || with(2));
        assert!(!history.settle(&with(2)));
        assert_eq!(history.redo(with(2)), Some(with(4)));
        assert_eq!(history.undo(with(4)), Some(with(2)));
        assert_eq!(history.undo(with(2)), Some(with(1)));
        assert_eq!(history.ways(), (false, true));
    }

    #[test]
    fn back_and_forward_bury_no_step() {
        let mut history = History::default();
        // 1, 2, 3, now 4
        (1..4).for_each(|batch| history.act(with(batch)));
        // back, forward, and back again by two
        history.travel(with(4), &with(3));
        history.travel(with(3), &with(4));
        history.travel(with(4), &with(2));
        assert_eq!(history.ways(), (true, true));
        assert_eq!(history.redo(with(2)), Some(with(3)));
        assert_eq!(history.undo(with(3)), Some(with(2)));
        assert_eq!(history.undo(with(2)), Some(with(1)));
        assert_eq!(history.undo(with(1)), None);
        // forward by three
        history.travel(with(1), &with(4));
        assert_eq!((history.ways(), &history.past[..]), ((true, false), &[with(1), with(2), with(3)][..]));
        // another view of the same is no step
        history.travel(with(4), &with(4));
        assert_eq!(history.past.len(), 3);
        // an address that was edited is one
        history.travel(with(4), &with(9));
        assert_eq!(history.undo(with(9)), Some(with(4)));
    }

    #[test]
    fn an_old_past_is_forgotten() {
        let mut history = History::default();
        (0..300).for_each(|batch| history.act(with(batch)));
        let mut steps = 0;
        while history.undo(with(0)).is_some() {
            steps += 1;
        }
        assert_eq!(steps, MOST);
    }
}
