//! A box to type a few words into and a list of what they may mean (the WAI-ARIA combobox with a list).

use leptos::ev::{Event, FocusEvent, KeyboardEvent, MouseEvent, PointerEvent};
use leptos::html;
use leptos::prelude::*;

use super::messages::Messages;
use super::name::Name;
use crate::issue::{Field, Issue, Severity};
use crate::ui::browser;

/// One thing that can be picked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// What identifies it.
    pub key: String,
    /// Its name.
    pub label: String,
    /// What stands beside the name.
    pub detail: String,
}

/// What a few words may mean.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Best first.
    pub items: Vec<Item>,
    /// What is good to know of them, or what to do where there are none; mostly empty.
    pub note: String,
}

/// How far Page Up and Page Down go.
const PAGE: usize = 8;
/// The place of the active item where none is: what is chosen is not among the items, and nothing was typed.
const NONE: usize = usize::MAX;

/// A combobox while it is used.
#[derive(Clone, Copy)]
struct List {
    id: &'static str,
    input: NodeRef<html::Input>,
    open: RwSignal<bool>,
    typed: RwSignal<String>,
    active: RwSignal<usize>,
    /// The words that were left without meaning anything, until others are typed; none where the box was left empty.
    missed: RwSignal<Option<String>>,
    chosen: Signal<String>,
    find: fn(&str) -> Found,
    pick: Callback<String>,
}

impl List {
    fn found(self) -> Found {
        if !self.open.get() {
            return Found::default();
        }
        let typed = self.typed.get();
        // Untouched, the box still says what is chosen: then everything is listed.
        if typed == self.chosen.get_untracked() { (self.find)("") } else { (self.find)(&typed) }
    }

    fn items(self) -> Vec<Item> {
        self.found().items
    }

    /// Whether there is anything to choose from.
    fn offers(self) -> bool {
        !self.items().is_empty()
    }

    fn option_id(self, index: usize) -> String {
        format!("{}-option-{index}", self.id)
    }

    /// Shows an option within the list, once it is there.
    fn reveal(self, index: usize) {
        self.active.set(index);
        request_animation_frame(move || browser::reveal(&self.option_id(index)));
    }

    fn select_text(self) {
        if let Some(input) = self.input.get_untracked() {
            input.select();
        }
    }

    fn show(self) {
        if !self.open.get_untracked() {
            let now = self.chosen.get_untracked();
            self.typed.set(now.clone());
            self.missed.set(None);
            self.open.set(true);
            self.reveal(untrack(|| self.items()).iter().position(|item| item.label == now).unwrap_or(NONE));
        }
    }

    /// Closes the list; the box says again what is chosen.
    fn close(self) {
        self.open.set(false);
        request_animation_frame(move || self.select_text());
    }

    /// The focus went; what was typed and means nothing is not dropped without a word.
    fn leave(self) {
        if self.open.get_untracked() && (self.is_emptied() || !untrack(|| self.offers())) {
            self.miss();
        }
        self.open.set(false);
    }

    fn is_emptied(self) -> bool {
        self.typed.with_untracked(|typed| typed.trim().is_empty())
    }

    fn miss(self) {
        self.missed.set(Some(self.typed.get_untracked().trim().to_owned()));
    }

    /// What is said of words that were left without meaning anything.
    fn complaint(self) -> Option<Issue> {
        let message = complaint(&self.missed.get()?);
        Some(Issue::error(Field::Link, message).with_fix(format!("still {}", self.chosen.get())))
    }

    fn write(self, typed: String) {
        self.typed.set(typed);
        self.missed.set(None);
        self.open.set(true);
        // a box that was emptied asks for nothing yet: Enter leaves what was chosen
        self.reveal(if self.is_emptied() { NONE } else { 0 });
    }

    fn choose(self, index: usize) {
        let item = untrack(|| self.items()).into_iter().nth(index);
        if item.is_none() && self.is_emptied() {
            self.miss();
        }
        if item.is_some() || index == NONE {
            self.close();
        }
        if let Some(item) = item {
            self.pick.run(item.key);
        }
    }

    fn press(self, event: &KeyboardEvent) {
        let open = self.open.get_untracked();
        let at = self.active.get_untracked();
        let last = untrack(|| self.items()).len().saturating_sub(1);
        match event.key().as_str() {
            "ArrowDown" | "ArrowUp" if !open => self.show(),
            "ArrowDown" => self.reveal(if at >= last { 0 } else { at + 1 }),
            "ArrowUp" => self.reveal(if at == 0 || at == NONE { last } else { at - 1 }),
            "PageDown" if open => self.reveal(at.saturating_add(PAGE).min(last)),
            "PageUp" if open => self.reveal(at.min(last).saturating_sub(PAGE)),
            "Enter" if open => self.choose(at),
            "Escape" if open => self.close(),
            _ => return,
        }
        event.prevent_default();
    }

    fn option(self, index: usize, item: Item) -> impl IntoView {
        let chosen = item.label == self.chosen.get_untracked();
        view! {
            <li
                id=self.option_id(index)
                role="option"
                class:active=Signal::derive(move || self.active.get() == index)
                aria-selected=chosen.to_string()
                on:pointerenter=move |_: PointerEvent| self.active.set(index)
                on:click=move |_: MouseEvent| self.choose(index)
            >
                <span class="option-name">{item.label}</span>
                <span class="option-detail">{item.detail}</span>
            </li>
        }
    }
}

/// What is said of words that mean nothing.
fn complaint(missed: &str) -> String {
    if missed.is_empty() {
        "nothing was written".to_owned()
    } else {
        format!("nothing is called “{missed}”")
    }
}

/// A labelled box with a searchable list.
#[component]
pub fn Combobox(
    /// The id of the box.
    id: &'static str,
    /// Its accessible name.
    label: &'static str,
    /// A sentence on it.
    #[prop(into)]
    help: String,
    /// The name of what is chosen.
    chosen: Signal<String>,
    /// What a few words may mean, best first; everything for none.
    find: fn(&str) -> Found,
    /// Picks an item by its key.
    pick: Callback<String>,
    /// What is wrong with the choice.
    messages: Signal<Vec<Issue>>,
) -> impl IntoView {
    let list = List {
        id,
        input: NodeRef::new(),
        open: RwSignal::new(false),
        typed: RwSignal::new(String::new()),
        active: RwSignal::new(0),
        missed: RwSignal::new(None),
        chosen,
        find,
        pick,
    };
    let is_open = move || list.open.get();
    let options = move || {
        let items = list.items().into_iter().enumerate();
        items.map(|(index, item)| list.option(index, item)).collect::<Vec<_>>()
    };
    let shown = move || if is_open() { list.typed.get() } else { chosen.get() };
    let results = move || match (is_open(), list.items().len()) {
        (false, _) | (true, 0) => String::new(),
        (true, 1) => "1 result".to_owned(),
        (true, count) => format!("{count} results"),
    };
    let active = move || match list.active.get() {
        index if index < list.items().len() => list.option_id(index),
        _ => String::new(),
    };
    let note = move || list.found().note;
    let said = Signal::derive(move || list.complaint().into_iter().chain(messages.get()).collect::<Vec<_>>());
    let messages_id = format!("{id}-messages");
    view! {
        <div class="field wide">
            <Name id=id label=label help=help />
            <div class="combobox">
                <input
                    node_ref=list.input
                    type="text"
                    id=id
                    role="combobox"
                    autocomplete="off"
                    spellcheck="false"
                    aria-autocomplete="list"
                    aria-expanded=move || list.offers().to_string()
                    aria-controls=format!("{id}-list")
                    aria-activedescendant=Signal::derive(active)
                    aria-describedby=messages_id.clone()
                    aria-invalid=Signal::derive(move || said.get().iter().any(|issue| issue.severity == Severity::Error).to_string())
                    value=untrack(shown)
                    prop:value=Signal::derive(shown)
                    on:focus=move |_: FocusEvent| list.select_text()
                    on:click=move |_: MouseEvent| list.show()
                    on:blur=move |_: FocusEvent| list.leave()
                    on:input=move |event: Event| list.write(event_target_value(&event))
                    on:keydown=move |event: KeyboardEvent| list.press(&event)
                />
                <div
                    class="popup"
                    class:open=Signal::derive(is_open)
                    // A press inside must not take the focus from the box, which would close it.
                    on:pointerdown=|event: PointerEvent| event.prevent_default()
                    on:mousedown=|event: MouseEvent| event.prevent_default()
                >
                    <p class="popup-note" aria-live="polite">{Signal::derive(note)}</p>
                    <ul
                        id=format!("{id}-list")
                        role="listbox"
                        aria-label="Suggestions"
                        hidden=Signal::derive(move || !list.offers())
                    >
                        {options}
                    </ul>
                </div>
            </div>
            <span class="unseen" aria-live="polite">{Signal::derive(results)}</span>
            <div
                class="field-messages"
                id=messages_id
            >
                <Messages issues=said />
            </div>
        </div>
    }
}
