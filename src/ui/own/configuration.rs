//! A configuration of another project: pasted, chosen or dropped, and what was understood of it.

use std::sync::Arc;

use leptos::ev::ClipboardEvent;
use leptos::prelude::*;

use super::file;
use crate::import::{self, Understood};
use crate::issue::{Field, Issue};
use crate::oom;
use crate::share::page::TOOK;
use crate::ui::browser;
use crate::ui::controls::{ChooseFile, Messages};
use crate::ui::markup::capitalised;
use crate::ui::recorded::Recorded;
use crate::ui::state::State;
use crate::ui::view::View;
use crate::ui::way::Way;

/// More is not taken of the clipboard: a box takes seconds to show it.
const LONGEST: u64 = 1 << 20;

/// Whether so much text can be pasted.
///
/// # Errors
/// An [`Issue`] with the other way.
pub fn check_pasted(bytes: u64) -> Result<(), Issue> {
    match bytes > LONGEST {
        true => {
            Err(Issue::error(Field::Link, "this is more than 1 MB of text").with_fix("drop it as a file"))
        }
        false => Ok(()),
    }
}

/// Puts what a text says in the active scenario, and shows what that was.
///
/// # Errors
/// An [`Issue`] where the text is no configuration that is known; the scenario stays as it was.
pub fn apply(state: State, text: &str) -> Result<(), Issue> {
    let base = untrack(|| state.current().scenario.get());
    let understood = match import::read(text, &base) {
        Ok(understood) => understood,
        Err(_) if oom::is_message(text) => {
            show_message(state, text);
            return Ok(());
        }
        Err(error) => return Err(Issue::error(Field::Link, error.to_string())),
    };
    let told = format!("Read {}: {} applied", understood.format.label(), settings(understood.taken.len()));
    state.open(understood.scenario.clone(), &told);
    if let Some(took) = &understood.took {
        let link = format!("{TOOK}={took}");
        state.took.set(Recorded::of(&link, std::slice::from_ref(&understood.scenario)));
    }
    state.own.problem.set(Vec::new());
    state.own.read.set(Some(Arc::new(understood)));
    state.own.show(Some(Way::Configuration));
    Ok(())
}

/// Hands an out-of-memory message to where it is read.
fn show_message(state: State, text: &str) {
    state.own.problem.set(Vec::new());
    state.own.open.set(false);
    state.view.set(View::Fit);
    state.pasted.set(text.to_owned());
    request_animation_frame(|| browser::focus("oom-text"));
}

fn settings(count: usize) -> String {
    if count == 1 { "1 setting".to_owned() } else { format!("{count} settings") }
}

/// The part of the dialog with the text, and with what was understood.
pub fn draw(state: State) -> impl IntoView {
    let own = state.own;
    let text = StoredValue::new(String::new());
    let use_it = move |_| {
        own.read.set(None);
        if let Err(issue) = text.with_value(|text| apply(state, text)) {
            own.complain(&issue);
        }
    };
    let paste = move |event: ClipboardEvent| {
        browser::refuse_long(&event, |bytes| {
            check_pasted(bytes).map_err(|issue| own.complain(&issue)).is_ok()
        });
    };
    let undo = move |_| {
        own.read.set(None);
        state.undo();
        browser::focus(Way::Configuration.first_control());
    };
    let report = move || {
        own.read.get().map(|understood| {
            view! {
                <div class="own-read">
                    {said(&understood)}
                    <p class="own-ways-out">
                        <button type="button" class="tool strong" on:click=move |_| own.open.set(false)>
                            "Show the answer"
                        </button>
                        <button type="button" class="tool" on:click=undo>
                            "Take it back"
                        </button>
                    </p>
                </div>
            }
        })
    };
    view! {
        <div class="own-part">
            <label for="own-settings">"A configuration, a script’s arguments, or a command"</label>
            <textarea
                id="own-settings"
                rows="7"
                spellcheck="false"
                autocomplete="off"
                autocapitalize="none"
                on:input=move |event| text.set_value(event_target_value(&event))
                on:paste=paste
            ></textarea>
            <div role="alert">
                <Messages issues=own.problem />
            </div>
            <p class="own-ways-out">
                <button type="button" class="tool strong" on:click=use_it>
                    "Read it"
                </button>
                <ChooseFile label="Choose a file" take=Callback::new(move |file| file::take(state, file)) />
                <span class="remark">"or drop one anywhere on the page"</span>
            </p>
            <p class="remark">
                "TRL and transformers (Python, YAML, JSON, a command), Unsloth’s cells and notebooks, axolotl, LLaMA-Factory, torchtune, torchtitan, \
                 Megatron-LM’s arguments, accelerate, DeepSpeed, headroom-record.json. Several files add up. It is read here and sent nowhere."
            </p>
            <div aria-live="polite">{report}</div>
        </div>
    }
}

/// What was understood, and what it leaves as it was, in up to five lists.
fn said(understood: &Understood) -> impl IntoView + use<> {
    let Understood { format, taken, assumed, idle, left, took: _, scenario: _ } = understood;
    let applied = taken.iter().map(|one| (one.label.to_owned(), one.value.clone(), one.said.clone()));
    let by_default = assumed.iter().map(|one| (one.label.to_owned(), one.value.clone(), one.why.clone()));
    let kept = understood.kept().into_iter().map(|(label, value)| (label.to_owned(), value, String::new()));
    let not = left.iter().map(|one| (one.said.clone(), String::new(), one.why.clone()));
    let without = (!idle.is_empty()).then(|| {
        view! {
            <details>
                <summary>{format!("Without effect on memory ({})", idle.len())}</summary>
                <p>{idle.join(", ")}</p>
            </details>
        }
    });
    view! {
        <h3>{capitalised(format.label())}</h3>
        {list("Not applied", not.collect())}
        {list("Applied", applied.collect())}
        {list("Assumed, as nothing is said", by_default.collect())}
        {list("Kept from before, as nothing is said", kept.collect())}
        {without}
    }
}

fn list(title: &'static str, rows: Vec<(String, String, String)>) -> Option<impl IntoView> {
    let row = |(name, value, why): (String, String, String)| {
        view! {
            <li>
                <b>{name}</b>
                {if value.is_empty() { ": ".to_owned() } else { format!(" {value} ") }}
                <small>{why}</small>
            </li>
        }
    };
    (!rows.is_empty()).then(|| {
        view! {
            <h4>{format!("{title} ({})", rows.len())}</h4>
            <ul>{rows.into_iter().map(row).collect::<Vec<_>>()}</ul>
        }
    })
}
