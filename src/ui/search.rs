//! What to change in a scenario and what its room is good for: searches whose runs several workers make at once.

use std::cell::RefCell;
use std::rc::Rc;

use super::desk::{Desk, Place};
use super::question::{Answer, Question};
use crate::plan::{Levers, Looks, USES, Use};
use crate::scenario::Scenario;

/// How many runs a worker is asked for at once: a worker that is to stop ends what it is at first.
const TOGETHER: usize = 2;

/// Finds what to change; `then` is given nothing where there is no answer.
pub fn changes(desk: &Desk, scenario: Scenario, then: impl FnOnce(Option<Levers>) + 'static) {
    let own = desk.clone();
    let question = Question::Ahead(Box::new(scenario.clone()));
    desk.ask(Place::Levers, question, move |answer| {
        let Some(Answer::Ahead(ahead)) = answer.filter(has_some) else { return then(None) };
        let runs = ahead.chunks(TOGETHER).map(|some| Question::Looks(some.to_vec()));
        let questions = runs.enumerate().map(|(number, run)| (Place::Look(number), run)).collect();
        let desk = own.clone();
        ask_all(&own, questions, move |answers| {
            let mut looks = Looks::default();
            for answer in answers {
                // a run that could not be made beside the others is made among the rest
                if let Some(Answer::Looks(some)) = answer {
                    looks.extend(some);
                }
            }
            desk.ask(Place::Levers, Question::Levers(Box::new(scenario), looks), |answer| {
                let Some(Answer::Levers(found)) = answer else { return then(None) };
                then(found.map(|found| *found));
            });
        });
    });
}

/// Finds what the room of a scenario is good for that gets through; `then` is given nothing where that could not be found.
pub fn uses(desk: &Desk, scenario: &Scenario, then: impl FnOnce(Option<Vec<Use>>) + 'static) {
    let question = |number| (Place::Use(number), Question::Use(Box::new(scenario.clone()), number));
    ask_all(desk, (0..USES).map(question).collect(), |answers| {
        let found = |answer| match answer {
            Some(Answer::Use(found)) => Some(found.map(|found| *found)),
            _ => None,
        };
        let found: Option<Vec<Option<Use>>> = answers.into_iter().map(found).collect();
        then(found.map(|found| found.into_iter().flatten().collect()));
    });
}

/// Whether there is anything to look at: there is nothing in a scenario without an answer.
fn has_some(answer: &Answer) -> bool {
    matches!(answer, Answer::Ahead(ahead) if !ahead.is_empty())
}

/// Nobody wants to know any more.
pub fn forget(desk: &Desk) {
    desk.forget_where(|place| matches!(place, Place::Levers | Place::Look(_) | Place::Use(_)));
}

/// The answers that several questions have so far.
struct Gathered<Then> {
    left: usize,
    answers: Vec<Option<Answer>>,
    then: Option<Then>,
}

impl<Then> Gathered<Then> {
    /// Takes one; with the last, all of them and who waits for them.
    fn take(&mut self, number: usize, answer: Option<Answer>) -> Option<(Then, Vec<Option<Answer>>)> {
        self.answers[number] = answer;
        self.left -= 1;
        if self.left > 0 {
            return None;
        }
        self.then.take().map(|then| (then, std::mem::take(&mut self.answers)))
    }
}

/// Asks several questions; `then` is given the answers, in that order, once all are there.
fn ask_all(desk: &Desk, questions: Vec<(Place, Question)>, then: impl FnOnce(Vec<Option<Answer>>) + 'static) {
    let left = questions.len();
    let answers = std::iter::repeat_with(|| None).take(left).collect();
    let gathered = Rc::new(RefCell::new(Gathered { left, answers, then: Some(then) }));
    for (number, (place, question)) in questions.into_iter().enumerate() {
        let gathered = Rc::clone(&gathered);
        desk.ask(place, question, move |answer| {
            let done = gathered.borrow_mut().take(number, answer);
            if let Some((then, answers)) = done {
                then(answers);
            }
        });
    }
}
