//! The keys that do something anywhere on the page, and the sheet that lists them. Those of one letter can be switched
//! off: voices and tremors press them by chance.

use leptos::html;
use leptos::prelude::*;

use super::browser::{self, Stroke};
use super::panel::show;
use super::state::State;
use super::view::View;

/// A key and what it does, as the sheet says them.
const KEYS: [(&str, &str); 11] = [
    ("/", "Search a model"),
    ("g", "Search a card"),
    ("s", "Open or close all settings"),
    ("1 to 5", "Fit, Timeline, Plan, Compare, Accuracy"),
    ("d", "Duplicate this scenario, to compare"),
    ("t", "Turn the theme"),
    ("Ctrl Z", "Undo"),
    ("Ctrl Shift Z", "Redo"),
    ("Ctrl V", "Read what was copied: a link, a configuration, a command, an error"),
    ("← →", "On the timeline: the moment before, the moment after"),
    ("?", "This sheet"),
];

/// Where it is stored that single keys are off.
const STORED: &str = "headroom.keys";

/// What a stroke asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Model,
    Card,
    Settings,
    View(View),
    Duplicate,
    Theme,
    Undo,
    Redo,
    Sheet,
}

impl Wish {
    fn of(stroke: &Stroke) -> Option<Wish> {
        let key = stroke.key.to_lowercase();
        if stroke.in_dialog {
            return None;
        }
        if stroke.control {
            return match (key.as_str(), stroke.shift) {
                ("z", false) => Some(Wish::Undo),
                ("z", true) | ("y", false) => Some(Wish::Redo),
                _ => None,
            };
        }
        if stroke.in_text {
            return None;
        }
        match key.as_str() {
            "/" => Some(Wish::Model),
            "g" => Some(Wish::Card),
            "s" => Some(Wish::Settings),
            "d" => Some(Wish::Duplicate),
            "t" => Some(Wish::Theme),
            "?" => Some(Wish::Sheet),
            number => {
                let place = number.parse::<usize>().ok()?.checked_sub(1)?;
                View::ALL.get(place).copied().map(Wish::View)
            }
        }
    }

    /// Whether it takes more than one key, or is the way to the switch of the others.
    fn is_always_heard(self) -> bool {
        match self {
            Wish::Undo | Wish::Redo | Wish::Sheet => true,
            Wish::Model | Wish::Card | Wish::Settings | Wish::View(_) | Wish::Duplicate | Wish::Theme => {
                false
            }
        }
    }
}

/// Listens for the keys, and shows the sheet when it is asked for.
#[component]
pub fn Keyboard(
    /// Turns the theme.
    turn: Callback<()>,
) -> impl IntoView {
    let state = State::of_page();
    let sheet = NodeRef::<html::Dialog>::new();
    let drawn = RwSignal::new(false);
    let single = RwSignal::new(true);
    Effect::new(move || {
        if !state.keys.get() {
            return;
        }
        drawn.set(true);
        if let Some(sheet) = sheet.get_untracked() {
            // It is open already where this fails.
            drop(sheet.show_modal());
            drop(sheet.set_attribute("closedby", "any"));
        }
    });
    Effect::new(move || {
        single.set(browser::stored(STORED).is_none());
        browser::on_stroke(move |stroke| {
            let is_heard = |wish: &Wish| single.get_untracked() || wish.is_always_heard();
            let wish = Wish::of(stroke).filter(is_heard);
            match wish {
                Some(Wish::Model) => browser::edit("model"),
                Some(Wish::Card) => browser::edit("gpu"),
                Some(Wish::Settings) => state.unfolded.update(|open| *open = !*open),
                Some(Wish::View(view)) => show(state, view),
                Some(Wish::Duplicate) => state.duplicate(),
                Some(Wish::Theme) => turn.run(()),
                Some(Wish::Undo) => state.undo(),
                Some(Wish::Redo) => state.redo(),
                Some(Wish::Sheet) => state.keys.set(true),
                None => {}
            }
            wish.is_some()
        });
    });
    let row = |(keys, does): (&'static str, &'static str)| {
        view! {
            <dt>{keys.split(' ').map(|key| view! { <kbd>{key}</kbd> " " }).collect::<Vec<_>>()}</dt>
            <dd>{does}</dd>
        }
    };
    let list = move || drawn.get().then(|| KEYS.map(row));
    let turn_single = move |event| {
        let on = event_target_checked(&event);
        single.set(on);
        browser::store(STORED, (!on).then_some("off"));
    };
    view! {
        <dialog
            class="own-dialog sheet"
            node_ref=sheet
            aria-labelledby="sheet-title"
            on:close=move |_| state.keys.set(false)
        >
            <div class="own-head">
                <h2 id="sheet-title">"Keys"</h2>
                <button
                    type="button"
                    class="remove"
                    aria-label="Close"
                    on:click=move |_| {
                        if let Some(sheet) = sheet.get_untracked() {
                            sheet.close();
                        }
                    }
                >
                    "×"
                </button>
            </div>
            <dl class="keys">{list}</dl>
            <label class="single-keys">
                <input
                    type="checkbox"
                    role="switch"
                    class="switch"
                    prop:checked=single
                    on:change=turn_single
                />
                "Keys of one letter"
            </label>
        </dialog>
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strokes_are_told_apart() {
        let stroke = |key: &str| Stroke { key: key.to_owned(), ..Stroke::default() };
        let of = |stroke: Stroke| Wish::of(&stroke);
        assert_eq!(of(stroke("/")), Some(Wish::Model));
        assert_eq!(of(Stroke { in_text: true, ..stroke("/") }), None);
        assert_eq!(of(Stroke { control: true, in_text: true, ..stroke("z") }), Some(Wish::Undo));
        assert_eq!(of(Stroke { control: true, shift: true, ..stroke("Z") }), Some(Wish::Redo));
        assert_eq!(of(Stroke { control: true, ..stroke("d") }), None);
        assert_eq!(of(Stroke { in_dialog: true, ..stroke("?") }), None);
        assert_eq!(of(stroke("3")), Some(Wish::View(View::Plan)));
        for nothing in ["x", "0", "6", "Tab"] {
            assert_eq!(of(stroke(nothing)), None);
        }
    }
}
