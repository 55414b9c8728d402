//! What the page asks of its worker, and what it is answered: all that may take longer than a frame.

use std::cell::RefCell;

use serde::{Deserialize, Serialize};

use super::detail::{Beside, Detail, Glance, opened, stretch};
use crate::explain::Level;
use crate::export;
use crate::hardware::{Gpu, gpu};
use crate::issue::Issue;
use crate::memory::Category;
use crate::oom::{Decoded, decode, remedies};
use crate::plan::{
    self, BatchRow, ContextRow, FitRow, FormatRow, LargestModel, Lever, Levers, Looks, Measure, NeedRow,
    Order, Outlook, Replayed, ServingRow, Use, Verdict, Way,
};
use crate::scenario::{Method, Scenario, Texts};
use crate::step::Moment;
use crate::trace::Trace;
use crate::units::Bytes;

/// A question.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub enum Question {
    /// A close look at a scenario.
    Detail(Box<Scenario>),
    /// What a search for changes of a scenario will look at.
    Ahead(Box<Scenario>),
    /// What runs of scenarios come to.
    Looks(Vec<Scenario>),
    /// What to change in a scenario, with what is known of such runs.
    Levers(Box<Scenario>, Looks),
    /// The use of that number of a scenario's room.
    Use(Box<Scenario>, usize),
    /// What happens at a moment of its step, by the number of the event.
    Glance(Box<Scenario>, usize),
    /// A part of what is alive at such a moment, or at the peak, level by level.
    Zoom(Box<Scenario>, Option<usize>, Category),
    /// What a scenario needs.
    Point(Box<Scenario>),
    /// What a scenario's model needs on the cards of these slugs.
    Cards(Box<Scenario>, Vec<String>),
    /// The first iteration of a scenario or the one that is shown, or some of its events.
    Stretch(Box<Scenario>, bool, Option<(usize, usize)>),
    /// Ways to use several GPUs.
    Ways(Vec<Scenario>),
    /// The weights of a scenario's model in every format, and what is beside them.
    Serving(Box<Scenario>),
    /// The same by sequences at once.
    ByBatch(Box<Scenario>),
    /// What generating needs by sequences at once and their length.
    Contexts(Box<Scenario>),
    /// How a scenario's card reaches an effective batch of so many sequences.
    Batch(Box<Scenario>, u64),
    /// The largest micro-batches of a scenario's model on a card with so much memory.
    Row(Box<Scenario>, Bytes, Measure),
    /// The largest model that fits there, of those that words mean, by the method of that position.
    Largest(Box<Scenario>, String, Bytes, Measure, usize),
    /// What an out-of-memory message means beside a scenario.
    Oom(String, Box<Scenario>),
    /// What texts of different lengths need.
    Texts(Box<Scenario>, Texts),
    /// What an order of them does.
    TextOrder(Box<Scenario>, Texts, u64),
    /// A memory snapshot, whose bytes come beside the question, over a scenario's step.
    Snapshot(Box<Scenario>),
    /// A scenario's step as a file for PyTorch's memory_viz.
    MemoryViz(Box<Scenario>),
    /// Scenarios and their answers as a text, for the page at an address.
    Export(Vec<Scenario>, Form, String),
}

/// What a text is written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum Form {
    /// A table that pastes well into an issue.
    Markdown,
    /// Bytes for a spreadsheet.
    Csv,
    /// Everything, for a script.
    Json,
}

/// What is answered.
#[derive(Debug, Deserialize, Serialize)]
pub enum Answer {
    /// What the close look showed; nothing for a scenario that has no answer.
    Detail(Option<Box<Detail>>),
    /// What will be looked at.
    Ahead(Vec<Scenario>),
    /// What they come to.
    Looks(Looks),
    /// What saves memory; nothing for a scenario that has no answer.
    Levers(Option<Box<Levers>>),
    /// A use of the room; nothing where that is none.
    Use(Option<Box<Use>>),
    /// What happens at a moment; nothing for a step that cannot be followed.
    Glance(Option<Glance>),
    /// The part's modules; nothing for a step that cannot be followed.
    Zoom(Option<Vec<Level>>),
    /// What it needs of its card and whether it gets through; nothing for a scenario that has no answer.
    Point(Option<(Bytes, Verdict)>),
    /// What is drawn of it.
    Stretch(Vec<Moment>),
    /// A row for each card.
    Cards(Vec<NeedRow>),
    /// What comes of each.
    Ways(Vec<Way>),
    /// A row for each format, or why there are none.
    Serving(Result<Vec<ServingRow>, Issue>),
    /// See [`Question::ByBatch`].
    ByBatch(Result<Vec<FormatRow>, Issue>),
    /// A row for each length, or why there are none.
    Contexts(Result<Vec<ContextRow>, Issue>),
    /// How it does, or why that is not known.
    Batch(Result<BatchRow, Issue>),
    /// One micro-batch per method.
    Row(FitRow),
    /// The model; nothing for a position without a method.
    Largest(Option<Box<LargestModel>>),
    /// What it means and what removes it, or why it means nothing.
    Oom(Result<Box<(Decoded, Vec<Lever>)>, String>),
    /// What they need, or why that is not known.
    Texts(Result<Box<Outlook>, Issue>),
    /// What the order does; nothing where that is not known.
    TextOrder(Option<Order>),
    /// The stretch of the snapshot that is most like the step, or why there is none.
    Snapshot(Result<Beside, String>),
    /// The text.
    Text(String),
    /// The file; nothing for a step that cannot be followed.
    File(Option<Vec<u8>>),
}

/// Answers a [written](Question::written) question, with bytes that [`Answer::read`] reads; with none what is no question. `file` are the
/// bytes that came beside it.
pub fn answer(question: &[u8], file: &[u8]) -> Vec<u8> {
    let answer = postcard::from_bytes(question).map(|question: Question| question.answer(file));
    answer.and_then(|answer| postcard::to_allocvec(&answer)).unwrap_or_default()
}

impl Answer {
    /// Reads what the worker said; nothing where that is no answer.
    pub fn read(bytes: &[u8]) -> Option<Answer> {
        postcard::from_bytes(bytes).ok()
    }
}

thread_local! {
    /// The run that was looked at last: its moments are asked about one after the other.
    static LAST: RefCell<Option<(Scenario, Replayed)>> = const { RefCell::new(None) };
}

impl Question {
    /// The question as the worker is told it. Page and worker are one module: the format is nobody else's, and compact.
    pub fn written(&self) -> Vec<u8> {
        postcard::to_allocvec(self).unwrap_or_default()
    }

    /// Answers it, with the bytes that came beside it.
    pub fn answer(&self, file: &[u8]) -> Answer {
        match self {
            Question::Detail(scenario) => Answer::Detail(look(scenario).map(Box::new)),
            Question::Glance(scenario, at) => {
                Answer::Glance(followed(scenario, |replayed| Glance::of(replayed, scenario, *at)))
            }
            Question::Zoom(scenario, at, part) => {
                Answer::Zoom(followed(scenario, |replayed| opened(replayed, scenario, *at, *part)))
            }
            Question::Ahead(scenario) => Answer::Ahead(plan::ahead(scenario)),
            Question::Looks(scenarios) => Answer::Looks(plan::look(scenarios)),
            Question::Levers(scenario, looks) => {
                Answer::Levers(plan::changes(scenario, looks.clone()).ok().map(Box::new))
            }
            Question::Use(scenario, number) => Answer::Use(plan::use_of(scenario, *number).map(Box::new)),
            Question::Stretch(scenario, of_first, within) => {
                let moments = followed(scenario, |replayed| stretch(replayed, *of_first, *within));
                Answer::Stretch(moments.unwrap_or_default())
            }
            Question::Point(scenario) => Answer::Point(point(scenario)),
            Question::Cards(scenario, slugs) => Answer::Cards(cards(scenario, slugs)),
            Question::Ways(ways) => Answer::Ways(ways.iter().map(plan::tried).collect()),
            Question::Serving(scenario) => Answer::Serving(plan::serving(scenario)),
            Question::ByBatch(scenario) => Answer::ByBatch(plan::by_batch(scenario)),
            Question::Contexts(scenario) => Answer::Contexts(plan::contexts(scenario)),
            Question::Batch(scenario, effective) => Answer::Batch(plan::batch_row(scenario, *effective)),
            Question::Row(scenario, memory, measure) => Answer::Row(plan::row(scenario, *memory, *measure)),
            Question::Largest(scenario, words, memory, measure, at) => {
                let models = plan::of_catalogue(words, scenario);
                let largest = |method: &Method| plan::largest_model(&models, *memory, *measure, *method);
                Answer::Largest(Method::ALL.get(*at).map(largest).map(Box::new))
            }
            Question::Oom(text, scenario) => Answer::Oom(decoded(text, scenario)),
            Question::Texts(scenario, texts) => Answer::Texts(plan::outlook(scenario, texts).map(Box::new)),
            Question::TextOrder(scenario, texts, number) => {
                Answer::TextOrder(plan::order(scenario, texts, *number).ok())
            }
            Question::Snapshot(scenario) => Answer::Snapshot(beside(scenario, file)),
            Question::MemoryViz(scenario) => Answer::File(followed(scenario, memory_viz)),
            Question::Export(scenarios, form, page) => Answer::Text(written(scenarios, *form, page)),
        }
    }
}

/// A close look, whose run is kept.
fn look(scenario: &Scenario) -> Option<Detail> {
    let (detail, replayed) = Detail::look(scenario)?;
    LAST.replace(replayed.map(|replayed| (scenario.clone(), replayed)));
    Some(detail)
}

/// Looks at a scenario's run, which is the last one more often than not; nothing where it cannot be followed.
fn followed<T>(scenario: &Scenario, see: impl FnOnce(&Replayed) -> T) -> Option<T> {
    let is_last = LAST.with_borrow(|last| last.as_ref().is_some_and(|(of, _)| of == scenario));
    if !is_last {
        look(scenario)?;
    }
    LAST.with_borrow(|last| last.as_ref().map(|(_, replayed)| see(replayed)))
}

/// A snapshot over a step.
fn beside(scenario: &Scenario, file: &[u8]) -> Result<Beside, String> {
    let trace = Trace::read(file).map_err(|error| error.to_string())?;
    let found = followed(scenario, |replayed| Beside::of(&trace, replayed));
    found.ok_or_else(|| {
        "the step on screen cannot be followed, so there is nothing to compare with".to_owned()
    })
}

fn memory_viz(replayed: &Replayed) -> Vec<u8> {
    export::memory_viz(&replayed.recording.snapshot(replayed.on_card.settings))
}

fn point(scenario: &Scenario) -> Option<(Bytes, Verdict)> {
    let answer = plan::Answer::of(scenario.clone());
    Some((answer.fit()?.needed, answer.verdict()?))
}

fn decoded(text: &str, scenario: &Scenario) -> Result<Box<(Decoded, Vec<Lever>)>, String> {
    let decoded = decode(text, scenario).map_err(|error| error.to_string())?;
    // a scenario without an answer has no changes that help either; what the message says stands
    let remedies = remedies(&decoded).unwrap_or_default();
    Ok(Box::new((decoded, remedies)))
}

fn cards(scenario: &Scenario, slugs: &[String]) -> Vec<NeedRow> {
    let cards: Vec<Gpu> = slugs.iter().filter_map(|slug| gpu(slug).ok()).collect();
    plan::need_of_each(scenario, &cards.iter().collect::<Vec<_>>())
}

fn written(scenarios: &[Scenario], form: Form, page: &str) -> String {
    let answers: Vec<_> = scenarios.iter().cloned().map(export::Answer::of).collect();
    match form {
        Form::Markdown => export::markdown(&answers, page),
        Form::Csv => export::csv(&answers),
        Form::Json => {
            let mut written: Vec<_> = answers.iter().map(export::json).collect();
            match (written.pop(), written.is_empty()) {
                (Some(only), true) => only.to_string(),
                (last, _) => {
                    written.extend(last);
                    serde_json::Value::Array(written).to_string()
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_survives_the_way_to_the_page() {
        let scenario = Scenario::default();
        let at = Detail::of(&scenario).expect("an answer").moments[0].at;
        for question in [
            Question::Detail(scenario.clone().into()),
            Question::Glance(scenario.clone().into(), at),
            Question::Zoom(scenario.clone().into(), Some(at), Category::Weights),
            Question::Ahead(scenario.clone().into()),
            Question::Looks(vec![scenario.clone()]),
            Question::Levers(scenario.clone().into(), plan::look(std::slice::from_ref(&scenario))),
            Question::Use(scenario.clone().into(), 2),
            Question::Stretch(scenario.clone().into(), true, Some((0, usize::MAX))),
            Question::Row(scenario.clone().into(), Bytes::gib(24.), Measure::Length),
            Question::Largest(
                scenario.clone().into(),
                "qwen3".to_owned(),
                Bytes::gib(24.),
                Measure::Batch,
                1,
            ),
            Question::Point(scenario.clone().into()),
            Question::Cards(scenario.clone().into(), vec!["rtx-3090".to_owned(), "a40".to_owned()]),
            Question::Batch(scenario.clone().into(), 32),
            Question::Ways(plan::ways(&scenario, 2)),
            Question::MemoryViz(scenario.clone().into()),
            Question::Snapshot(scenario.clone().into()),
            Question::Oom("Tried to allocate 1.96 GiB".to_owned(), scenario.clone().into()),
            Question::Export(vec![scenario], Form::Markdown, "https://example.org/".to_owned()),
        ] {
            let asked = question.written();
            assert_eq!(postcard::from_bytes::<Question>(&asked).expect("questions are read"), question);
            let heard = Answer::read(&answer(&asked, &[])).expect("answers are read");
            assert_eq!(format!("{heard:?}"), format!("{:?}", question.answer(&[])));
        }
    }

    #[test]
    fn a_snapshot_of_what_is_predicted_lies_on_it() {
        let scenario = Scenario::default();
        let file = followed(&scenario, memory_viz).expect("a step");
        let beside = beside(&scenario, &file).expect("a snapshot");
        let predicted = Detail::of(&scenario).expect("an answer").memory.steady.highest().1.bytes;
        // the file says what was asked for, the prediction counts blocks
        let off = (predicted.0 as f64 / beside.peak.0 as f64 - 1.) * 100.;
        assert!((0. ..1.).contains(&off), "{off}");
        let moments = Detail::of(&scenario).expect("an answer").moments;
        let highest = beside.line.iter().max_by_key(|(_, bytes)| *bytes).expect("a line");
        assert_eq!((highest.1, moments[highest.0.round() as usize].parts.total()), (beside.peak, predicted));
        assert!(super::beside(&scenario, b"no").is_err());
    }

    #[test]
    fn every_form_is_written() {
        let two = [Scenario::default(), Scenario { batch: 2, ..Scenario::default() }];
        let markdown = written(&two[..1], Form::Markdown, "https://example.org/");
        assert!(markdown.contains("[Open in Headroom](https://example.org/#v="), "{markdown}");
        assert!(written(&two, Form::Csv, "").lines().count() > 20);
        let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("it is JSON");
        assert_eq!(read(&written(&two, Form::Json, "")).as_array().map(Vec::len), Some(2));
        assert!(read(&written(&two[..1], Form::Json, "")).is_object());
    }

    #[test]
    fn a_moment_is_looked_at_in_the_run_that_is_asked_about() {
        let small = Scenario { sequence: 128, ..Scenario::default() };
        let of = |scenario: &Scenario| {
            let moments = Detail::of(scenario).expect("an answer").moments;
            let highest =
                moments.iter().max_by_key(|moment| moment.parts.total()).expect("there are moments");
            let glance = |replayed: &Replayed| Glance::of(replayed, scenario, highest.at);
            followed(scenario, glance).expect("a moment").lines[0].bytes
        };
        let (first, other) = (of(&Scenario::default()), of(&small));
        assert_ne!(first, Bytes::ZERO);
        assert_eq!(of(&Scenario::default()), first);
        assert!(other <= first);
    }
}
