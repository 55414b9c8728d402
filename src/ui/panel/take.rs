//! What can be taken along: the link, the answer as a text or a file, the chart as a picture, the page on paper.

use leptos::ev::KeyboardEvent;
use leptos::prelude::*;

use super::answer;
use super::levers::{FILES, MENU};
use crate::export::{Configuration, Written, configuration};
use crate::issue::Issue;
use crate::plan::Verdict;
use crate::scenario::Scenario;
use crate::scenario::kernels::without_kernels;
use crate::ui::browser;
use crate::ui::desk::Place;
use crate::ui::question::{Answer, Form, Question};
use crate::ui::state::{State, letter};
use crate::ui::sync::{self, Address};

/// How wide a picture is, in CSS pixels.
const WIDTH: u32 = 960;

/// The button and its menu.
#[component]
pub fn Take(
    /// What the address says.
    address: Address,
) -> impl IntoView {
    let state = State::of_page();
    let link = {
        let address = address.clone();
        move || {
            address.flush();
            state.copy(&browser::address(), "Link copied: it opens these configurations in this view");
        }
    };
    let copied = link.clone();
    let frame = move || {
        address.flush();
        let (embedded, _) = sync::embedding(&browser::address());
        let embedded = embedded.replace('&', "&amp;");
        let code =
            format!("<iframe src=\"{embedded}\" title=\"Headroom\" width=\"720\" height=\"640\"></iframe>");
        state.copy(&code, "Code copied: it shows this view within another page");
    };
    let items = vec![
        item("Copy link", "", link),
        item("Copy as Markdown", "", move || export(state, Form::Markdown)),
        item("Copy code to embed", "", frame),
        item("Download CSV", "", move || export(state, Form::Csv)),
        item("Download JSON", "", move || export(state, Form::Json)),
        item("Step for memory_viz", "", move || step_file(state)),
        item("Chart as SVG", "", move || picture(state, false)),
        item("Chart as PNG", "", move || picture(state, true)),
        item("Print", "", browser::print),
    ];
    // written when the menu is first opened, and from then on with every change
    let opened = RwSignal::new(false);
    let written = Memo::new(move |_| {
        let of = |scenario: &Scenario| match without_kernels(scenario) {
            Some(_) => Vec::new(),
            None => Configuration::ALL.map(|which| configuration(scenario, which)).to_vec(),
        };
        if opened.get() { state.current().scenario.with(of) } else { Vec::new() }
    });
    let files = move || {
        let written = Configuration::ALL.into_iter().zip(written.get());
        written.map(|(which, written)| runs_it(state, which, written)).collect::<Vec<_>>()
    };
    let title = move || {
        let what = if state.alone() { "it" } else { letter(state.active.get()) };
        if state.current().scenario.with(without_kernels).is_some() {
            return format!("No file runs {what} on this card");
        }
        let Some((fit, verdict)) = state.current().fit() else { return format!("Files that run {what}") };
        written.with(|written| {
            let written = Configuration::ALL.into_iter().zip(written);
            let there = written.filter_map(|(which, written)| Some((which.file(), written.as_ref().ok()?)));
            // a file that runs the same does as it does
            let holds = |written: &Written| match written.differs.is_empty() {
                true => verdict != Verdict::Over,
                false => written.needed <= fit.capacity,
            };
            heading(what, &there.map(|(name, written)| (name, holds(written))).collect::<Vec<_>>())
        })
    };
    view! {
        <button
            type="button"
            class="tool"
            popovertarget=MENU
            aria-haspopup="true"
            on:keydown=|event| {
                if event.key() == "ArrowDown" {
                    event.prevent_default();
                    browser::show(MENU);
                    browser::focus_within(MENU, |_, _| 0);
                }
            }
        >
            "Export"
            <span class="caret" aria-hidden="true"></span>
        </button>
        <ul
            class="menu"
            id=MENU
            popover="auto"
            aria-label="Export"
            on:toggle=move |_| opened.set(true)
            on:keydown=pressed
        >
            {items}
            <li class="menu-title" id=FILES tabindex="-1">
                {title}
            </li>
            {files}
        </ul>
        <button type="button" class="tool strong roomy" on:click=move |_| copied()>
            "Copy link"
        </button>
    }
}

/// From line to line by the arrow keys, from the last to the first; Home and End.
fn pressed(event: KeyboardEvent) {
    let to: fn(usize, usize) -> usize = match event.key().as_str() {
        "ArrowDown" => |now, count| (now + 1) % count,
        "ArrowUp" => |now, count| (now.min(count) + count - 1) % count,
        "Home" => |_, _| 0,
        "End" => |_, count| count - 1,
        _ => return,
    };
    event.prevent_default();
    browser::focus_within(MENU, to);
}

/// What stands over the files, of which each fits its card or does not.
fn heading(what: &str, files: &[(&str, bool)]) -> String {
    let fitting: Vec<&str> = files.iter().filter(|(_, fits)| *fits).map(|(name, _)| *name).collect();
    let told = match fitting.as_slice() {
        all if all.len() == files.len() => String::new(),
        [] => ", though none fits its card".to_owned(),
        some => format!(". On its card, by their tensors: {}", some.join(", ")),
    };
    format!("Files that run {what}{told}")
}

/// A line of the menu, with a word on it.
fn item(label: &'static str, note: &str, act: impl Fn() + 'static) -> AnyView {
    let note = (!note.is_empty()).then(|| view! { <small>{note.to_owned()}</small> });
    view! {
        <li>
            <button type="button" popovertarget=MENU popovertargetaction="hide" on:click=move |_| act()>
                {label}
                " "
                {note}
            </button>
        </li>
    }
    .into_any()
}

/// The file that runs the scenario on screen, or why there is none.
fn runs_it(state: State, which: Configuration, written: Result<Written, Issue>) -> AnyView {
    let label = which.choice().label;
    match written {
        Ok(written) => {
            let needs = state.unit().amount(written.needed);
            let mut note = which.file().to_owned();
            if !written.differs.is_empty() {
                note.push_str(&format!(
                    ", needs {needs}; differs from this scenario: {}",
                    written.differs.join("; ")
                ));
            }
            if !written.absent.is_empty() {
                note.push_str(&format!("; not in it: {}", written.absent.join("; ")));
            }
            item(label, &note, move || file(state, which, &written))
        }
        Err(issue) => view! {
            <li class="menu-refused">
                {label}
                " "
                <small>{issue.to_string()}</small>
            </li>
        }
        .into_any(),
    }
}

/// Hands a file over, and says what it does otherwise.
fn file(state: State, which: Configuration, written: &Written) {
    browser::save(which.file(), which.mime(), &written.text);
    let differs = match written.differs.is_empty() {
        true => String::new(),
        false => {
            let needs = state.unit().amount(written.needed);
            format!(
                ". What it runs differs from what is shown, and needs {needs}: {}",
                written.differs.join("; ")
            )
        }
    };
    let beside: Vec<&str> = which.beside(&written.text).filter_map(|other| saved_too(state, other)).collect();
    let with = match beside.as_slice() {
        [] => String::new(),
        names => format!(", and {}, which it is run with", names.join(" and ")),
    };
    state.tell(&format!("{} saved{with}{differs}", which.file()));
}

/// Hands a file over that another is run with, where it can be written.
fn saved_too(state: State, other: Configuration) -> Option<&'static str> {
    let written =
        untrack(|| state.current().scenario.with(|scenario| configuration(scenario, other))).ok()?;
    browser::save(other.file(), other.mime(), &written.text);
    Some(other.file())
}

const NO_WORKER: &str = "That could not be written: the worker beside the page did not answer";

/// Has the step of the scenario on screen written for PyTorch's memory_viz, and hands it over.
fn step_file(state: State) {
    let scenario = untrack(|| state.current().scenario.get());
    state.desk.with_value(|desk| {
        desk.ask(Place::Export, Question::MemoryViz(Box::new(scenario)), move |answer| match answer {
            Some(Answer::File(Some(file))) => browser::save_bytes("headroom.pickle", &file),
            Some(Answer::File(None)) => state.tell("This step cannot be followed event by event"),
            _ => state.tell(NO_WORKER),
        });
    });
}

/// Has the answer written beside the page, and hands it over.
fn export(state: State, form: Form) {
    let scenarios = untrack(|| state.scenarios());
    let page = browser::address();
    let page = page.split('#').next().unwrap_or_default().to_owned();
    let question = Question::Export(scenarios, form, page);
    state.desk.with_value(|desk| {
        desk.ask(Place::Export, question, move |answer| {
            let Some(Answer::Text(text)) = answer else {
                return state.tell(NO_WORKER);
            };
            match form {
                Form::Markdown => state.copy(&text, "Markdown copied: paste it into an issue or a chat"),
                Form::Csv => browser::save("headroom.csv", "text/csv", &text),
                Form::Json => browser::save("headroom.json", "application/json", &text),
            }
        });
    });
}

/// Draws the chart by itself, with what it is of and its legend, and hands it over.
fn picture(state: State, in_pixels: bool) {
    let (svg, size) = untrack(|| answer::card(state, WIDTH));
    let Some(svg) = browser::styled(&svg) else { return state.tell("This browser cannot draw the picture") };
    if in_pixels {
        browser::save_picture("headroom.png", &svg, size, move |saved| {
            if !saved {
                state.tell("This browser cannot draw the picture");
            }
        });
    } else {
        browser::save("headroom.svg", "image/svg+xml", &svg);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_over_the_files_says_which_fit() {
        let files = ["train.py", "trl.yaml", "axolotl.yaml"];
        let with = |fits: [bool; 3]| heading("it", &files.into_iter().zip(fits).collect::<Vec<_>>());
        assert_eq!(with([true; 3]), "Files that run it");
        assert_eq!(with([false; 3]), "Files that run it, though none fits its card");
        assert_eq!(
            with([false, true, true]),
            "Files that run it. On its card, by their tensors: trl.yaml, axolotl.yaml"
        );
        assert_eq!(heading("B", &[]), "Files that run B");
    }
}
