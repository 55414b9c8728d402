//! What can be taken along: the link, the answer as a text or a file, the chart as a picture, the page on paper.

use leptos::prelude::*;

use super::answer;
use crate::export::{Configuration, configuration};
use crate::ui::browser;
use crate::ui::desk::Place;
use crate::ui::question::{Answer, Form, Question};
use crate::ui::state::State;
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
            copy(state, &browser::address(), "Link copied: it opens exactly what you see");
        }
    };
    let copied = link.clone();
    let frame = move || {
        address.flush();
        let (embedded, _) = sync::embedding(&browser::address());
        let embedded = embedded.replace('&', "&amp;");
        let code =
            format!("<iframe src=\"{embedded}\" title=\"Headroom\" width=\"720\" height=\"640\"></iframe>");
        copy(state, &code, "Code copied: it shows this view within another page");
    };
    let item = |label: &'static str, act: Box<dyn Fn()>| {
        view! {
            <li>
                <button
                    type="button"
                    popovertarget="take"
                    popovertargetaction="hide"
                    on:click=move |_| act()
                >
                    {label}
                </button>
            </li>
        }
    };
    let items = vec![
        item("Copy link", Box::new(link)),
        item("Copy as Markdown", Box::new(move || export(state, Form::Markdown))),
        item("Copy code to embed", Box::new(frame)),
        item("Download CSV", Box::new(move || export(state, Form::Csv))),
        item("Download JSON", Box::new(move || export(state, Form::Json))),
        item("Step for memory_viz", Box::new(move || export(state, Form::MemoryViz))),
        item("Chart as SVG", Box::new(move || picture(state, false))),
        item("Chart as PNG", Box::new(move || picture(state, true))),
        item("Print", Box::new(browser::print)),
    ];
    let files =
        Configuration::ALL.map(|which| item(which.choice().label, Box::new(move || file(state, which))));
    view! {
        <button type="button" class="tool" popovertarget="take" aria-haspopup="true">
            "Export"
            <span class="caret" aria-hidden="true"></span>
        </button>
        <ul class="menu" id="take" popover="auto" aria-label="Export">
            {items}
            <li class="menu-title">"Files that run it"</li>
            {files}
        </ul>
        <button type="button" class="tool strong roomy" on:click=move |_| copied()>
            "Copy link"
        </button>
    }
}

fn copy(state: State, text: &str, told: &'static str) {
    browser::copy(text, move |copied| {
        state.tell(if copied {
            told
        } else {
            "The browser did not allow copying; the address bar holds the link"
        });
    });
}

/// The file that runs the scenario on screen, with what it does otherwise, or why there is none.
fn file(state: State, which: Configuration) {
    let scenario = untrack(|| state.current().scenario.get());
    match configuration(&scenario, which) {
        Ok(written) => {
            browser::save(which.file(), which.mime(), &written.text);
            if !written.differs.is_empty() {
                state.tell(&format!("{}: otherwise than here: {}", which.file(), written.differs.join("; ")));
            }
        }
        Err(issue) => state.tell(&format!("No file: {issue}")),
    }
}

/// Has the answer written beside the page, and hands it over.
fn export(state: State, form: Form) {
    let scenarios = untrack(|| match form {
        Form::MemoryViz => vec![state.current().scenario.get()],
        Form::Markdown | Form::Csv | Form::Json => state.scenarios(),
    });
    let page = browser::address();
    let page = page.split('#').next().unwrap_or_default().to_owned();
    let question = Question::Export(scenarios, form, page);
    state.desk.with_value(|desk| {
        desk.ask(Place::Export, question, move |answer| {
            let Some(Answer::Text(text)) = answer else {
                return state.tell("That could not be written: the worker beside the page did not answer");
            };
            match form {
                Form::Markdown => copy(state, &text, "Markdown copied: paste it into an issue or a chat"),
                Form::Csv => browser::save("headroom.csv", "text/csv", &text),
                Form::MemoryViz => browser::save_bytes("headroom.pickle", &text),
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
