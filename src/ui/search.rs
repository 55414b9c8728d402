//! What is asked of the workers in several questions at once: close looks at scenarios, what to change in one, and what its room is good
//! for.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use super::desk::{Desk, Place};
use super::detail::Detail;
use super::question::{Answer, Question};
use crate::plan::{Levers, Looks, USES, Use};
use crate::scenario::Scenario;

/// Looks at scenarios closely; nothing for one that has no answer, or where the worker failed.
pub fn details(desk: &Desk, scenarios: Vec<Scenario>, then: impl FnOnce(Vec<Option<Arc<Detail>>>) + 'static) {
    let look = |(position, scenario): (usize, &Scenario)| {
        (Place::Scenario(position), Question::Detail(Box::new(scenario.clone())))
    };
    let questions = scenarios.iter().enumerate().map(look).collect();
    ask_all(desk, questions, move |answers| {
        let detail = |(answer, scenario)| match answer {
            Some(Answer::Detail(detail)) => detail.map(|detail| Arc::new(Detail { scenario, ..*detail })),
            _ => None,
        };
        then(answers.into_iter().zip(scenarios).map(detail).collect());
    });
}

/// How many runs a worker is asked for at once: few, so that all workers end at about the same time.
const TOGETHER: usize = 2;

/// Finds what to change; `then` is given nothing where there is no answer.
pub fn changes(desk: &Desk, scenario: Scenario, then: impl FnOnce(Option<Levers>) + 'static) {
    let own = desk.clone();
    let question = Question::Ahead(Box::new(scenario.clone()));
    desk.ask(Place::Levers, question, move |answer| {
        let Some(Answer::Ahead(ahead)) = answer else { return then(None) };
        // there is nothing in a scenario without an answer
        if ahead.is_empty() {
            return then(None);
        }
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

/// Finds what the room of a scenario is good for that gets through; where a worker failed, what the others found, and nothing where
/// all did.
pub fn uses(desk: &Desk, scenario: &Scenario, then: impl FnOnce(Option<Vec<Use>>) + 'static) {
    let question = |number| (Place::Use(number), Question::Use(Box::new(scenario.clone()), number));
    ask_all(desk, (0..USES).map(question).collect(), |answers| {
        let tried = answers.into_iter().filter_map(|answer| match answer {
            Some(Answer::Use(found)) => Some(found.map(|found| *found)),
            _ => None,
        });
        let tried: Vec<_> = tried.collect();
        then((!tried.is_empty()).then(|| tried.into_iter().flatten().collect()));
    });
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_answers_come_at_once_in_their_order() {
        let mut gathered = Gathered { left: 3, answers: vec![None, None, None], then: Some("then") };
        let ahead = |count| Some(Answer::Ahead(vec![Scenario::default(); count]));
        assert!(gathered.take(2, ahead(2)).is_none() && gathered.take(0, ahead(0)).is_none());
        let (then, answers) = gathered.take(1, None).expect("that was the last");
        let counts = answers.iter().map(|answer| match answer {
            Some(Answer::Ahead(ahead)) => Some(ahead.len()),
            _ => None,
        });
        assert_eq!((then, counts.collect::<Vec<_>>()), ("then", vec![Some(0), None, Some(2)]));
    }
}
