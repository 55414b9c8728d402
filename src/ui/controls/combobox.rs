//! A box to type a few words into and a list of what they may mean (the WAI-ARIA combobox with a list).

use leptos::ev::KeyboardEvent;
use leptos::html;
use leptos::prelude::*;

use super::field::{Field, Messages};
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

/// How far Page Up and Page Down go.
const PAGE: usize = 8;

/// A labelled box with a searchable list.
#[component]
pub fn Combobox(
    /// The id of the box.
    id: &'static str,
    /// Its accessible name.
    label: &'static str,
    /// One sentence on it.
    help: &'static str,
    /// The name of what is chosen.
    chosen: Signal<String>,
    /// What a few words may mean, best first; everything for none.
    find: fn(&str) -> Vec<Item>,
    /// Picks an item by its key.
    pick: Callback<String>,
    /// What is wrong with the choice.
    messages: Messages,
) -> impl IntoView {
    let input = NodeRef::<html::Input>::new();
    // What is being typed, while the list is open; `None` while it is closed.
    let typed = RwSignal::new(None::<String>);
    let active = RwSignal::new(0_usize);
    let open = Memo::new(move |_| typed.with(Option::is_some));
    let items = Memo::new(move |_| match typed.get() {
        None => Vec::new(),
        // Untouched, the box still says what is chosen: then everything is listed.
        Some(text) if text == chosen.get_untracked() => find(""),
        Some(text) => find(&text),
    });
    let option_id = move |index: usize| format!("{id}-option-{index}");

    let select_text = move || {
        if let Some(input) = input.get_untracked() {
            input.select();
        }
    };
    let show = move || {
        if open.get_untracked() {
            return;
        }
        let now = chosen.get_untracked();
        typed.set(Some(now.clone()));
        let at = items.with_untracked(|items| items.iter().position(|item| item.label == now));
        active.set(at.unwrap_or(0));
        if let Some(at) = at {
            request_animation_frame(move || browser::reveal(&option_id(at)));
        }
    };
    let close = move || typed.set(None);
    let choose = move |key: String| {
        close();
        pick.run(key);
    };
    let move_to = move |index: usize| {
        let last = items.with_untracked(Vec::len).saturating_sub(1);
        active.set(index.min(last));
        browser::reveal(&option_id(index.min(last)));
    };
    let press = move |event: KeyboardEvent| {
        let (at, last) = (active.get_untracked(), items.with_untracked(Vec::len).saturating_sub(1));
        let is_open = open.get_untracked();
        match event.key().as_str() {
            "ArrowDown" | "ArrowUp" if !is_open => show(),
            "ArrowDown" => move_to(if at == last { 0 } else { at + 1 }),
            "ArrowUp" => move_to(if at == 0 { last } else { at - 1 }),
            "PageDown" if is_open => move_to(at + PAGE),
            "PageUp" if is_open => move_to(at.saturating_sub(PAGE)),
            "Enter" if is_open => {
                if let Some(item) = items.with_untracked(|items| items.get(at).cloned()) {
                    choose(item.key);
                    request_animation_frame(select_text);
                }
            }
            "Escape" if is_open => {
                close();
                request_animation_frame(select_text);
            }
            _ => return,
        }
        event.prevent_default();
    };
    let list = move || {
        let chosen = chosen.get_untracked();
        let rows = items.get().into_iter().enumerate();
        let rows = rows.map(|(index, item)| {
            let Item { key, label, detail } = item;
            let selected = (label == chosen).to_string();
            view! {
                <li
                    id=option_id(index)
                    role="option"
                    class:active=move || active.get() == index
                    aria-selected=selected
                    on:pointermove=move |_| {
                        if active.get_untracked() != index {
                            active.set(index);
                        }
                    }
                    on:click=move |_| choose(key.clone())
                >
                    <span class="option-name">{label}</span>
                    <span class="option-detail">{detail}</span>
                </li>
            }
        });
        rows.collect_view()
    };
    view! {
        <Field id=id label=label help=vec![("", help)] messages=messages wide=true>
            <div class="combobox">
                <input
                    node_ref=input
                    type="text"
                    id=id
                    role="combobox"
                    autocomplete="off"
                    spellcheck="false"
                    aria-autocomplete="list"
                    aria-expanded=move || open.get().to_string()
                    aria-controls=format!("{id}-list")
                    aria-activedescendant=move || open.get().then(|| option_id(active.get()))
                    aria-describedby=format!("{id}-messages")
                    prop:value=move || typed.get().unwrap_or_else(|| chosen.get())
                    on:focus=move |_| select_text()
                    on:click=move |_| show()
                    on:blur=move |_| close()
                    on:input=move |event| {
                        typed.set(Some(event_target_value(&event)));
                        active.set(0);
                        request_animation_frame(move || browser::reveal(&option_id(0)));
                    }
                    on:keydown=press
                />
                <ul
                    id=format!("{id}-list")
                    role="listbox"
                    aria-label="Suggestions"
                    class:open=move || open.get()
                    // A press inside the list must not take the focus from the box, which would close the list.
                    on:pointerdown=|event| event.prevent_default()
                    on:mousedown=|event| event.prevent_default()
                >
                    {list}
                </ul>
            </div>
            <span class="unseen" aria-live="polite">
                {move || open.get().then(|| match items.with(Vec::len) {
                    1 => "1 result".to_owned(),
                    count => format!("{count} results"),
                })}
            </span>
        </Field>
    }
    .into_any()
}
