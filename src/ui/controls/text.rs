//! A line of text that means something.

use leptos::ev::{Event, FocusEvent};
use leptos::prelude::*;

use super::messages::Messages;
use super::name::Name;
use crate::issue::{Field, Issue};
use crate::units::grouped;

/// How often all that stands on the page was replaced, by a reset, an example, a change that was clicked: what was wrong with what somebody
/// wrote before is no matter then. Given to the controls as a context.
#[derive(Clone, Copy)]
pub struct Acts(pub Signal<usize>);

/// What stands in a box while it is written in, and what is wrong with it.
#[derive(Clone, Copy)]
pub struct Draft {
    typing: RwSignal<bool>,
    typed: RwSignal<String>,
    /// The value that came of it: once it is another, as after an undo, that one is shown.
    left: RwSignal<String>,
    /// The value from before anything was written.
    before: RwSignal<String>,
    complaint: RwSignal<String>,
}

impl Draft {
    /// Nothing is being written.
    pub fn new() -> Draft {
        let draft = Draft {
            typing: RwSignal::new(false),
            typed: RwSignal::new(String::new()),
            left: RwSignal::new(String::new()),
            before: RwSignal::new(String::new()),
            complaint: RwSignal::new(String::new()),
        };
        if let Some(Acts(acts)) = use_context::<Acts>() {
            Effect::new(move || {
                acts.track();
                draft.settle();
            });
        }
        draft
    }

    /// What the box shows: what is being written, else the value.
    pub fn shown(self, value: impl FnOnce() -> String) -> String {
        let value = value();
        let is_written = self.typing.get() && self.left.with(|left| *left == value);
        if is_written { self.typed.get() } else { value }
    }

    /// The focus came: from now on the box is not overwritten. What is wrong stands there as it was left.
    pub fn begin(self, value: String) {
        if self.is_wrong(|| value.clone()) {
            return;
        }
        self.settle();
        self.typed.set(value.clone());
        self.before.set(value.clone());
        self.left.set(value);
        self.typing.set(true);
    }

    /// What stood there before anything was written: what cannot be read leaves that, not what its first characters say.
    pub fn before(self) -> String {
        self.before.get_untracked()
    }

    /// The focus went: the box shows the value again, but what is wrong stays there, beside what is wrong with it, to be mended.
    pub fn end(self, value: String) {
        if !self.is_wrong(|| value) {
            self.typing.set(false);
        }
    }

    /// Somebody wrote, which left that value; what was wrong with it, or nothing.
    pub fn wrote(self, typed: String, left: String, complaint: Result<(), String>) {
        self.left.set(left);
        self.typing.set(true);
        self.typed.set(typed);
        self.complaint.set(complaint.err().unwrap_or_default());
    }

    /// The value came from elsewhere: it is shown, and there is nothing to complain about any more.
    pub fn settle(self) {
        self.complaint.set(String::new());
        self.typing.set(false);
    }

    /// Whether what stands in the box is wrong, and has not given way to another value.
    pub fn is_wrong(self, value: impl FnOnce() -> String) -> bool {
        let value = value();
        self.complaint.with(|complaint| !complaint.is_empty()) && self.left.with(|left| *left == value)
    }

    /// What is wrong with what was written, then what is wrong with the value.
    pub fn messages(self, kept: impl FnOnce() -> String, messages: Signal<Vec<Issue>>) -> Vec<Issue> {
        let kept = kept();
        // Which field it belongs to does not matter: it is shown right here.
        let own = self.is_wrong(|| kept.clone()).then(|| {
            let complaint = Issue::error(Field::Link, self.complaint.get());
            // as amounts are written, and not as in a box
            let kept = kept.parse::<u64>().map_or(kept, grouped);
            if kept.is_empty() {
                complaint
            } else {
                complaint.with_fix(format!("still computing with {kept}"))
            }
        });
        own.into_iter().chain(messages.get()).collect()
    }
}

/// A labelled box for a line of text. What it cannot read leaves the last good value and says so.
#[component]
pub fn TextBox(
    /// The id of the box.
    id: &'static str,
    /// Its accessible name.
    label: &'static str,
    /// A sentence on it.
    #[prop(into)]
    help: String,
    /// The value as text.
    value: Signal<String>,
    /// Takes a new text, or says what would be right: a sentence that stands under the box, which nothing else reads.
    set: Callback<String, Result<(), String>>,
    /// What is wrong with the value.
    messages: Signal<Vec<Issue>>,
    /// The value that an empty box stands for, and how the box says it.
    #[prop(optional)]
    usual: (&'static str, &'static str),
) -> impl IntoView {
    let draft = Draft::new();
    let (left_out, placeholder) = usual;
    let value =
        Signal::derive(move || Some(value.get()).filter(|value| value != left_out).unwrap_or_default());
    let write = move |event: Event| {
        let text = event_target_value(&event);
        let done = set.run(if text.trim().is_empty() { left_out.to_owned() } else { text.clone() });
        draft.wrote(text, value.get_untracked(), done);
    };
    let messages_id = format!("{id}-messages");
    view! {
        <div class="field wide">
            <Name id=id label=label help=help />
            <input
                type="text"
                id=id
                autocomplete="off"
                spellcheck="false"
                placeholder=placeholder
                value=value.get_untracked()
                prop:value=Signal::derive(move || draft.shown(|| value.get()))
                aria-invalid=move || draft.is_wrong(|| value.get()).to_string()
                aria-describedby=messages_id.clone()
                on:focus=move |_: FocusEvent| draft.begin(value.get_untracked())
                on:blur=move |_: FocusEvent| draft.end(value.get_untracked())
                on:input=write
            />
            <div
                class="field-messages"
                id=messages_id
            >
                <Messages issues=Signal::derive(move || draft.messages(|| value.get(), messages)) />
            </div>
        </div>
    }
}
