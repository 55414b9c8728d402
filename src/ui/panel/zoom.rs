//! A part opened level by level, at the peak or at a moment of the timeline: its modules, their layers, the tensors of one. Asked
//! of the worker where it is opened, drawn where it is looked at.

use std::sync::Arc;

use leptos::prelude::*;

use crate::explain::{Level, read_at};
use crate::memory::Category;
use crate::ui::browser::Later;
use crate::ui::desk::Place;
use crate::ui::detail::Detail;
use crate::ui::format::{Unit, exact};
use crate::ui::markup::{capitalised, unbroken};
use crate::ui::question::{Answer, Question};
use crate::ui::state::State;
use crate::units::{Bytes, grouped};

/// How long, in milliseconds, a moment must be shown before it is asked about.
const REST: u32 = 30;

/// How many amounts of a sum are told.
const SUMMANDS: usize = 3;

/// What was heard of a part, and which of its levels are open, by the names on the way to each.
#[derive(Default)]
struct Known {
    levels: Vec<Level>,
    open: Vec<String>,
}

/// What a part is made of.
#[component]
pub(super) fn Zoom(
    /// The close look at the step.
    detail: Signal<Option<Arc<Detail>>>,
    /// The number of the moment's event; the peak where there is none.
    at: Signal<Option<usize>>,
    /// The part.
    category: Category,
    /// Where it is asked for.
    place: Place,
) -> impl IntoView {
    let state = State::of_page();
    // what was opened stays open at the next moment
    let known = StoredValue::new(Known::default());
    let heard = RwSignal::new(0_usize);
    let later = StoredValue::new_local(Later::default());
    Effect::new(move || {
        let at = at.get();
        // what was heard stays until there is something newer: the page moves once
        let Some(detail) = detail.get() else { return };
        let ask = move || {
            let question = Question::Zoom(Box::new(detail.scenario.clone()), at, category);
            let take = move |answer: Option<Answer>| {
                let Some(Answer::Zoom(levels)) = answer else { return };
                known.update_value(|known| known.levels = levels.unwrap_or_default());
                heard.update(|times| *times += 1);
            };
            state.desk.with_value(|desk| desk.ask(place, question, take));
        };
        later.with_value(|later| later.run(REST, ask));
    });
    on_cleanup(move || {
        later.with_value(Later::cancel);
        state.desk.with_value(|desk| desk.forget(place));
    });
    move || {
        heard.track();
        let unit = state.unit();
        known.with_value(|of| {
            let whole = of.levels.iter().map(|level| level.line.bytes).sum();
            list(&of.levels, "", &of.open, known, (unit, Scale { whole, times: 1 }))
        })
    }
}

/// What a level's stretch is measured by: all of the part, and how many layers the level stands for.
#[derive(Clone, Copy)]
struct Scale {
    whole: Bytes,
    times: u64,
}

impl Scale {
    /// The share of the part that so many bytes in each of these layers are.
    fn of(self, bytes: Bytes) -> f64 {
        Bytes(bytes.0.saturating_mul(self.times)).percent_of(self.whole)
    }

    /// What is inside of a level.
    fn inside(self, level: &Level) -> Scale {
        Scale { times: self.times.saturating_mul(level.times), ..self }
    }
}

fn list(
    levels: &[Level],
    way: &str,
    open: &[String],
    known: StoredValue<Known>,
    scale: (Unit, Scale),
) -> AnyView {
    let rows = levels.iter().zip(ways(levels, way));
    let rows: Vec<_> = rows.map(|(level, way)| row(level, way, open, known, scale)).collect();
    view! { <ul class="zoom">{rows}</ul> }.into_any()
}

/// The way to each of them: its name, and which of that name it is.
fn ways(levels: &[Level], way: &str) -> Vec<String> {
    let names: Vec<&str> = levels.iter().map(name).collect();
    let before = |at: usize| names[..at].iter().filter(|other| **other == names[at]).count();
    (0..names.len()).map(|at| format!("{way}/{} {}", names[at], before(at))).collect()
}

/// What a level is, without the numbers of its layers, which are others at another moment: `mlp` of `mlp, layers 0 to 31`, nothing of
/// `layers 0, 1`.
fn name(level: &Level) -> &str {
    let what = level.line.what.as_str();
    let (name, last) = what
        .rsplit_once(", layer")
        .map_or(("", what.strip_prefix("layer")), |(name, last)| (name, Some(last)));
    let numbers = last.map(|last| last.trim_start_matches('s').trim_start());
    if numbers.is_some_and(|numbers| numbers.starts_with(|first: char| first.is_ascii_digit())) {
        name
    } else {
        what
    }
}

/// A level, and what it opens: what is inside, or why it is there.
fn row(
    level: &Level,
    way: String,
    opened: &[String],
    known: StoredValue<Known>,
    (unit, scale): (Unit, Scale),
) -> AnyView {
    let width = format!("{:.2}%", scale.of(level.line.bytes));
    let open = RwSignal::new(opened.contains(&way));
    let (name, sum, amount) = (level.line.what.clone(), sum(level, unit), unit.amount(level.line.bytes));
    let level = level.clone();
    let own = way.clone();
    let inside = move || {
        open.get().then(|| {
            let opened = known.with_value(|known| known.open.clone());
            content(&level, &own, &opened, known, (unit, scale))
        })
    };
    let turn = move |_| {
        let now = !open.get_untracked();
        open.set(now);
        known.update_value(|known| match now {
            true => known.open.push(way.clone()),
            false => known.open.retain(|other| *other != way),
        });
    };
    view! {
        <li>
            <button type="button" aria-expanded=Signal::derive(move || open.get().to_string()) on:click=turn>
                <b>{name}</b>
                <span class="made-of">{sum}</span>
                <span>{amount}</span>
                <svg aria-hidden="true">
                    <rect width=width height="100%" rx="1" />
                </svg>
            </button>
            {inside}
        </li>
    }
    .into_any()
}

fn content(
    level: &Level,
    way: &str,
    open: &[String],
    known: StoredValue<Known>,
    (unit, scale): (Unit, Scale),
) -> AnyView {
    let inside = (unit, scale.inside(level));
    let all = (!level.inside.is_empty()).then(|| list(&level.inside, way, open, known, inside));
    let why = (!level.line.why.is_empty()).then(|| format!("{}. ", capitalised(&level.line.why)));
    let one = if level.times > 1 { "In each of these layers. " } else { "" };
    view! {
        {all}
        <p>{why} {one} {exact(level.line.bytes)} ". " {cited(&level.line.source)}</p>
    }
    .into_any()
}

/// Sources, each with the file that it names.
pub(super) fn cited(sources: &str) -> AnyView {
    let one = |(source, address): (&str, Option<String>)| {
        let source = source.to_owned();
        match address {
            Some(address) => {
                view! { <a href=address target="_blank" rel="noreferrer">{source}</a> }.into_any()
            }
            None => source.into_any(),
        }
    };
    let cited = read_at(sources).enumerate().map(|(index, source)| {
        let between = if index > 0 { "; " } else { "" };
        view! { {between} {one(source)} }
    });
    view! { <i>{cited.collect::<Vec<_>>()}</i> }.into_any()
}

/// The sum in numbers: a tensor's own, so many layers, or the amounts of what is inside.
fn sum(level: &Level, unit: Unit) -> String {
    unbroken(&summed(level, unit))
}

fn summed(level: &Level, unit: Unit) -> String {
    if !level.line.formula.is_empty() {
        return level.line.formula.clone();
    }
    let mut told: Vec<_> =
        level.inside.iter().take(SUMMANDS).map(|inside| unit.amount(inside.line.bytes)).collect();
    let left = level.inside.len().saturating_sub(SUMMANDS);
    if left > 0 {
        told.push(format!("{left} more"));
    }
    let told = told.join(" + ");
    match level.times {
        1 => told,
        times => format!("{} × ({told})", grouped(times)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::Line;
    use crate::scenario::Scenario;
    use crate::ui::detail::opened;
    use crate::ui::part::Part;

    #[test]
    fn every_part_of_an_answer_opens_into_sums_that_are_the_part() {
        let scenario = Scenario::default();
        let (detail, replayed) = Detail::look(&scenario).expect("an answer");
        let replayed = replayed.expect("a step");
        for category in Category::ALL {
            let levels = opened(&replayed, &scenario, None, category);
            let part = Part::Tensors(category).at_peak(&detail.memory);
            assert_eq!(levels.iter().map(|level| level.line.bytes).sum::<Bytes>(), part, "{category:?}");
            let html = Owner::new().with(|| {
                let ways = ways(&levels, "");
                let known = StoredValue::new(Known { levels: Vec::new(), open: ways.clone() });
                let scale = Scale { whole: part, times: 1 };
                list(&levels, "", &ways, known, (Unit::Binary, scale)).to_html()
            });
            let inside: usize = levels.iter().map(|level| level.inside.len()).sum();
            assert_eq!(html.matches("aria-expanded").count(), levels.len() + inside, "{html}");
        }
    }

    /// Down to the last level the stretches of what is inside are together as long as that of what they are in.
    #[test]
    fn shares_of_a_level_add_up_to_its_own() {
        fn check(level: &Level, scale: Scale) {
            if level.inside.is_empty() {
                return;
            }
            let inside = scale.inside(level);
            let sum: f64 = level.inside.iter().map(|level| inside.of(level.line.bytes)).sum();
            assert!((sum - scale.of(level.line.bytes)).abs() < 1e-6, "{sum}: {level:?}");
            level.inside.iter().for_each(|level| check(level, inside));
        }
        let scenario = Scenario::default();
        let (_, replayed) = Detail::look(&scenario).expect("an answer");
        let replayed = replayed.expect("a step");
        for category in Category::ALL {
            let levels = opened(&replayed, &scenario, None, category);
            let scale = Scale { whole: levels.iter().map(|level| level.line.bytes).sum(), times: 1 };
            levels.iter().for_each(|level| check(level, scale));
        }
    }

    #[test]
    fn a_sum_is_told_in_numbers() {
        let leaf = |name: &str, mib: u64| Level {
            line: Line {
                category: Category::Weights,
                what: name.to_owned(),
                formula: "2 × 3".to_owned(),
                bytes: Bytes::mib(mib),
                why: String::new(),
                source: String::new(),
            },
            times: 1,
            inside: Vec::new(),
        };
        let of = |inside: Vec<Level>| {
            let mut level = Level { times: 32, inside, ..leaf("mlp", 1) };
            level.line.formula.clear();
            level
        };
        assert_eq!(sum(&leaf("linear", 1), Unit::Binary), unbroken("2 × 3"));
        assert_eq!(
            sum(&of(vec![leaf("a", 2), leaf("b", 1)]), Unit::Binary),
            unbroken("32 × (2.00 MiB + 1.00 MiB)")
        );
        let many = ["a", "b", "c", "d", "e"].map(|name| leaf(name, 1)).to_vec();
        assert_eq!(sum(&of(many), Unit::Binary), unbroken("32 × (1.00 MiB + 1.00 MiB + 1.00 MiB + 2 more)"));
        // what was open stays so where there are more layers, or fewer
        let at = |layers: [&str; 3]| ways(&layers.map(|layers| leaf(layers, 1)), "");
        let [one, other] = [
            ["mlp.down_proj, layers 0 to 31", "layer norm, layers 0 to 31", "layers 0, 1"],
            ["mlp.down_proj, layers 0 to 20", "layer norm, layer 5", "layer 7"],
        ];
        assert_eq!(at(one), ["/mlp.down_proj 0", "/layer norm 0", "/ 0"]);
        assert_eq!(at(one), at(other));
        assert_eq!(
            at(["mlp.gate, layer 1", "mlp, layers 2, 9", "mlp, layer 1"]),
            ["/mlp.gate 0", "/mlp 0", "/mlp 1"]
        );
        assert_eq!(
            at(["layer input", "layer norm", "layer norm"]),
            ["/layer input 0", "/layer norm 0", "/layer norm 1"]
        );
    }
}
