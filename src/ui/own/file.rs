//! A model by the text of its `config.json`: pasted, or in a file.

use std::sync::Arc;

use leptos::either::Either;
use leptos::ev::{ClipboardEvent, Event};
use leptos::prelude::*;
use leptos::task::spawn_local;
use web_sys::File;

use super::bring::{bring, finish};
use super::configuration;
use crate::import;
use crate::issue::{Field, Issue};
use crate::model::Architecture;
use crate::model::read::check_length;
use crate::scenario::CustomModel;
use crate::ui::browser::{self, Later};
use crate::ui::controls::{ChooseFile, Messages, message};
use crate::ui::state::State;
use crate::ui::summary;
use crate::ui::way::Way;

/// How long the keys must rest before the text is read.
const REST: u32 = 200;

/// Takes a file, as the model where it is a `config.json`, else as a configuration; what is wrong with it is said in the dialog.
pub fn take(state: State, file: File) {
    spawn_local(async move {
        let name = file.name();
        match browser::read(&file).await {
            Ok(text) => take_text(state, &name, &text),
            Err(issue) => complain(state, Way::File, &name, issue),
        }
    });
}

/// Takes what stands in a file of that name, or was pasted and has none.
pub fn take_text(state: State, name: &str, text: &str) {
    // `config.json` is what all of them are called.
    let stem = name.strip_suffix(".json").filter(|stem| *stem != "config").unwrap_or_default();
    // a `.json` that is neither is most likely meant to be a model's
    let is_model = import::is_model(text) || name.starts_with("config") && name.ends_with(".json");
    let (way, taken) = match is_model {
        true => (Way::File, bring(state, stem, text)),
        false => (Way::Configuration, configuration::apply(state, text)),
    };
    if let Err(issue) = taken {
        complain(state, way, name, issue);
    }
}

/// Says in the dialog what is wrong with a file of that name, or with what was pasted.
pub fn complain(state: State, way: Way, name: &str, issue: Issue) {
    state.own.show(Some(way));
    let message = if name.is_empty() { issue.message } else { format!("{name}: {}", issue.message) };
    state.own.complain(&Issue { message, ..issue });
}

/// What a text says: the model, or what is wrong with it. Nothing of an empty one.
type Said = Option<Result<Arc<Architecture>, Issue>>;

fn said(config: &str) -> Said {
    let read = || CustomModel::read("", config).map(|model| model.architecture);
    (!config.trim().is_empty()).then(read)
}

/// The same on the page, with what had to be assumed.
fn shown(said: Result<Arc<Architecture>, Issue>) -> impl IntoView {
    match said {
        Ok(architecture) => {
            let assumed = architecture.notes.iter().map(|note| message(&Issue::warning(Field::Model, note)));
            Either::Left((summary::counted(&architecture), assumed.collect::<Vec<_>>()))
        }
        Err(issue) => Either::Right(message(&issue)),
    }
}

/// The part of the dialog with the text.
pub fn draw(state: State) -> impl IntoView {
    let own = state.own;
    let config = StoredValue::new(String::new());
    let said_of_it = RwSignal::new(Said::None);
    let later = Later::default();
    let write = move |event: Event| {
        own.problem.set(Vec::new());
        config.set_value(event_target_value(&event));
        later.run(REST, move || said_of_it.set(config.with_value(|config| said(config))));
    };
    let paste = move |event: ClipboardEvent| {
        browser::refuse_long(&event, |bytes| {
            check_length(bytes).map_err(|error| own.complain(&error.into())).is_ok()
        })
    };
    let use_it = move || {
        own.problem.set(Vec::new());
        let name = own.name.get_untracked();
        if let Err(issue) = config.with_value(|config| bring(state, &name, config)) {
            said_of_it.set(Some(Err(issue)));
        }
    };
    view! {
        <div class="own-part">
            <label for="own-config">"Text of config.json"</label>
            <textarea
                id="own-config"
                rows="9"
                spellcheck="false"
                autocomplete="off"
                autocapitalize="none"
                aria-describedby="own-config-messages"
                on:input=write
                on:paste=paste
            ></textarea>
            <div id="own-config-messages" role="alert">
                <Messages issues=own.problem />
                {move || said_of_it.get().map(shown)}
            </div>
            <p class="own-ways-out">
                <ChooseFile label="Choose a file" accept=".json,application/json" take=Callback::new(move |file| take(state, file)) />
                <span class="remark">"or drop one anywhere on the page"</span>
            </p>
            {finish(own, "own-file-name", use_it)}
        </div>
    }
}
