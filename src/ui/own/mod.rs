//! Bringing a model of one's own: by its id on the Hub, its `config.json`, or its dimensions.
//!
//! The dialog is drawn when it is asked for the first time and stays from then on, so that nothing that was typed into it
//! is ever lost.

mod dialog;
mod dimensions;
mod file;
pub mod hub;
mod remote;

use leptos::prelude::*;

use super::browser;
use super::controls::TextBox;
use super::state::State;
use super::summary;
use crate::issue::Issue;
use crate::model::catalogue;
use crate::scenario::{CustomModel, ModelChoice};

/// Longer names are cut: they stand in every link.
const LONGEST_NAME: usize = 80;

/// How a model is brought.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// By its id on the Hub.
    Hub,
    /// By the text of its `config.json`.
    File,
    /// By its dimensions.
    Dimensions,
}

impl Way {
    /// All, in the order in which they are offered.
    const ALL: [Way; 3] = [Way::Hub, Way::File, Way::Dimensions];

    /// Its name.
    const fn label(self) -> &'static str {
        match self {
            Way::Hub => "From the Hub",
            Way::File => "config.json",
            Way::Dimensions => "Dimensions",
        }
    }

    /// The id of the control that its part begins with.
    const fn first_control(self) -> &'static str {
        match self {
            Way::Hub => "own-id",
            Way::File => "own-config",
            Way::Dimensions => "own-hidden",
        }
    }
}

/// The dialog as the rest of the page knows it.
#[derive(Clone, Copy)]
pub struct Own {
    /// Whether it is there at all.
    drawn: RwSignal<bool>,
    /// Whether it is open.
    open: RwSignal<bool>,
    /// Which of its parts is shown, by its place in [`Way::ALL`].
    way: RwSignal<usize>,
    /// The id on the Hub.
    id: RwSignal<String>,
    /// What the model is to be called; empty for a name by its kind.
    name: RwSignal<String>,
    /// What was wrong with a file that was handed over or an id that was asked for.
    problem: RwSignal<Vec<Issue>>,
}

impl Own {
    /// Not asked for yet.
    pub(super) fn new() -> Own {
        Own {
            drawn: RwSignal::new(false),
            open: RwSignal::new(false),
            way: RwSignal::new(0),
            id: RwSignal::new(String::new()),
            name: RwSignal::new(String::new()),
            problem: RwSignal::new(Vec::new()),
        }
    }

    /// Opens the dialog as it was left, or at some part of it.
    fn show(self, way: Option<Way>) {
        if let Some(way) = way {
            self.turn(way);
        }
        // Drawn again, it would have forgotten everything.
        if !self.drawn.get_untracked() {
            self.drawn.set(true);
        }
        self.open.set(true);
    }

    /// Shows one of the parts.
    fn turn(self, way: Way) {
        self.way.set(way as usize);
    }

    /// Goes on with the text of the file, under the name that was asked for.
    fn paste_instead(self) {
        if let Some(id) = self.id.with_untracked(|typed| hub::id(typed)) {
            self.name.set(id);
        }
        self.problem.set(Vec::new());
        self.turn(Way::File);
        request_animation_frame(|| browser::focus(Way::File.first_control()));
    }

    fn shows(self, way: Way) -> bool {
        self.way.get() == way as usize
    }

    /// Opens the dialog with an id, ready to be asked for.
    pub fn show_id(self, id: &str) {
        self.id.set(id.to_owned());
        self.problem.set(Vec::new());
        self.show(Some(Way::Hub));
    }

    fn complain(self, issue: &Issue) {
        self.problem.set(vec![issue.clone()]);
    }
}

/// Puts a model of the user's own in the place of the active scenario's.
///
/// # Errors
/// As [`CustomModel::read`]; the scenario stays as it was.
fn bring(state: State, name: &str, config: &str) -> Result<(), Issue> {
    let name: String = name.trim().chars().take(LONGEST_NAME).collect();
    let mut model = CustomModel::read(&name, config)?;
    if model.name.is_empty() {
        model.name = summary::unnamed(&model.architecture);
    }
    let told = format!("Opened {}", model.name);
    let mut scenario = untrack(|| state.current().scenario.get());
    scenario.change(|scenario| scenario.model = ModelChoice::Custom(model.into()));
    state.open(scenario, &told);
    state.own.open.set(false);
    // The next one is another.
    state.own.name.set(String::new());
    Ok(())
}

/// The end of a part whose model still wants a name.
fn finish(own: Own, id: &'static str, mut act: impl FnMut() + 'static) -> impl IntoView {
    let rename = move |name: String| {
        own.name.set(name);
        Ok(())
    };
    view! {
        <div class="own-finish">
            <TextBox
                id=id
                label="Name (optional)"
                help="What the page and its links call the model; by its kind and size where it has no name."
                value=own.name.into()
                set=Callback::new(rename)
                messages=Signal::stored(Vec::new())
            />
            <button type="button" class="tool strong" on:click=move |_| act()>
                "Use this model"
            </button>
        </div>
    }
}

/// Takes a `config.json` that is dropped anywhere on the page.
pub fn accept_drops(state: State) {
    Effect::new(move || browser::on_drop(move |dropped| file::take(state, dropped)));
}

/// The way into the dialog, and the dialog.
#[component]
pub fn OwnModel() -> impl IntoView {
    let state = State::of_page();
    // An id that the catalogue does not have, as in a link, is most likely one of the Hub.
    let unknown = move || {
        state.current().scenario.with(|scenario| match &scenario.model {
            ModelChoice::Catalogue(id) if catalogue::find(id).is_none() => hub::id(id),
            ModelChoice::Catalogue(_) | ModelChoice::Size(_) | ModelChoice::Custom(_) => None,
        })
    };
    let show = move |_| match untrack(unknown) {
        Some(id) => state.own.show_id(&id),
        None => state.own.show(None),
    };
    let dialog = move || state.own.drawn.get().then(|| dialog::draw(state));
    view! {
        <p class="model-facts">{move || state.current().scenario.with(summary::facts)}</p>
        <button
            type="button"
            class="own-button"
            aria-haspopup="dialog"
            on:click=show
        >
            "Use a config.json or Hub id"
        </button>
        {dialog}
    }
}
