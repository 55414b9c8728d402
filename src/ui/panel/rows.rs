//! What is asked of the workers piece by piece: the rows of a table, the points of a curve.

use leptos::prelude::*;

use crate::ui::browser::Later;
use crate::ui::desk::Place;
use crate::ui::markup::unbroken;
use crate::ui::question::{Answer, Question};
use crate::ui::state::State;

/// How long, in milliseconds, the controls must rest before the pieces are asked for anew.
const REST: u32 = 200;

/// The pieces that were heard of so far.
pub struct Pieces<T: Send + Sync + 'static> {
    /// Each, once it is there.
    pub heard: RwSignal<Vec<Option<T>>>,
    /// Whether some are still to come.
    pub busy: RwSignal<bool>,
    /// Whether some will not come: a worker was stopped, or could not answer.
    pub stopped: RwSignal<bool>,
}

impl<T: Send + Sync + 'static> Pieces<T> {
    /// That they are looked for, and how many of a hundred are there: `Looking at every card … 40 %`.
    pub fn looking(self, what: &str) -> String {
        self.heard.with(|heard| match (heard.iter().flatten().count() * 100).checked_div(heard.len()) {
            None | Some(0) => format!("{what} …"),
            Some(percent) => unbroken(&format!("{what} … {percent} %")),
        })
    }
}

/// What is said of the pieces: that they are looked for, that not all came, or what they come to.
pub fn summed_up(
    busy: RwSignal<bool>,
    stopped: RwSignal<bool>,
    looking: &str,
    sum: impl FnOnce() -> String,
) -> String {
    match (busy.get(), stopped.get()) {
        (true, _) => looking.to_owned(),
        (false, true) => "Stopped before all of it was known.".to_owned(),
        (false, false) => sum(),
    }
}

impl<T: Send + Sync + 'static> Clone for Pieces<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Send + Sync + 'static> Copy for Pieces<T> {}

/// Asks so many questions about what is `wanted`, and anew whenever that changes; what was asked of something earlier, or for a view
/// that is gone, is dropped. Several workers answer, in any order.
pub fn pieces<K: PartialEq + Send + Sync + 'static, T: Clone + Send + Sync + 'static>(
    state: State,
    wanted: impl Fn() -> K + Send + Sync + 'static,
    questions: fn(&K) -> Vec<Question>,
    place: fn(usize) -> Place,
    read: fn(Answer) -> Option<T>,
) -> Pieces<T> {
    let pieces =
        Pieces { heard: RwSignal::new(Vec::new()), busy: RwSignal::new(true), stopped: RwSignal::new(false) };
    let wanted = Memo::new(move |_| (state.again.get(), wanted()));
    let forget = move |from: usize| {
        let count = pieces.heard.with_untracked(Vec::len);
        state.desk.with_value(|desk| (from..count).for_each(|index| desk.forget(place(index))));
    };
    let later = StoredValue::new_local(Later::default());
    Effect::new(move || {
        forget(0);
        wanted.track();
        pieces.busy.set(true);
        pieces.stopped.set(false);
        later.with_value(|later| {
            later.run(REST, move || {
                let questions = wanted.with_untracked(|(_, wanted)| questions(wanted));
                let left = StoredValue::new(questions.len());
                pieces.heard.set(vec![None; questions.len()]);
                for (index, question) in questions.into_iter().enumerate() {
                    let take = move |answer: Option<Answer>| {
                        if answer.is_none() {
                            pieces.stopped.set(true);
                        }
                        pieces.heard.update(|heard| heard[index] = answer.and_then(read));
                        left.update_value(|left| *left -= 1);
                        if left.get_value() == 0 {
                            pieces.busy.set(false);
                        }
                    };
                    state.desk.with_value(|desk| desk.ask(place(index), question, take));
                }
            });
        });
    });
    on_cleanup(move || {
        later.with_value(Later::cancel);
        forget(0);
    });
    pieces
}
