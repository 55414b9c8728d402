//! What the page asks of its worker, and what it is answered: all that may take longer than a frame.

use serde::{Deserialize, Serialize};

use super::detail::Detail;
use crate::plan::{self, FitRow, Levers};
use crate::scenario::Scenario;
use crate::units::Bytes;

/// A question.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub enum Question {
    /// A close look at a scenario.
    Detail(Box<Scenario>),
    /// What to change in a scenario.
    Levers(Box<Scenario>),
    /// The largest micro-batches of a scenario's model on a card with so much memory.
    Row(Box<Scenario>, Bytes),
}

/// What is answered.
#[derive(Debug, Deserialize, Serialize)]
pub enum Answer {
    /// What the close look showed; nothing for a scenario that has no answer.
    Detail(Option<Box<Detail>>),
    /// What saves memory; nothing for a scenario that has no answer.
    Levers(Option<Box<Levers>>),
    /// One micro-batch per method.
    Row(FitRow),
}

impl Answer {
    /// What a close look showed.
    pub fn detail(self) -> Option<Box<Detail>> {
        match self {
            Answer::Detail(detail) => detail,
            Answer::Levers(_) | Answer::Row(_) => None,
        }
    }

    /// A row of the table.
    pub fn row(self) -> Option<FitRow> {
        match self {
            Answer::Row(row) => Some(row),
            Answer::Detail(_) | Answer::Levers(_) => None,
        }
    }

    /// What to change.
    pub fn levers(self) -> Option<Box<Levers>> {
        match self {
            Answer::Levers(levers) => levers,
            Answer::Detail(_) | Answer::Row(_) => None,
        }
    }
}

/// Answers a question that was written as JSON, in JSON; with an empty text what is no question.
pub fn answer(question: &str) -> String {
    let answer = serde_json::from_str(question).map(|question: Question| question.answer());
    answer.and_then(|answer| serde_json::to_string(&answer)).unwrap_or_default()
}

impl Question {
    /// Answers it.
    pub fn answer(&self) -> Answer {
        match self {
            Question::Detail(scenario) => Answer::Detail(Detail::of(scenario).map(Box::new)),
            Question::Levers(scenario) => Answer::Levers(plan::levers(scenario).ok().map(Box::new)),
            Question::Row(scenario, memory) => Answer::Row(plan::set_row(scenario, *memory)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_survives_the_way_to_the_page() {
        let scenario = Scenario::default();
        for question in [
            Question::Detail(scenario.clone().into()),
            Question::Levers(scenario.clone().into()),
            Question::Row(scenario.into(), Bytes::gib(24.)),
        ] {
            let asked = serde_json::to_string(&question).expect("questions can be written");
            assert_eq!(serde_json::from_str::<Question>(&asked).expect("and read"), question);
            let answer = question.answer();
            let told = serde_json::to_string(&answer).expect("answers can be written");
            let heard: Answer = serde_json::from_str(&told).expect("and read");
            assert_eq!(format!("{heard:?}"), format!("{answer:?}"));
        }
    }
}
