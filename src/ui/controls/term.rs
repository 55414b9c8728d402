//! Words of the glossary, and of others: they say what they mean when they are pointed at, pressed or touched.

use leptos::ev::PointerEvent;
use leptos::prelude::*;

use crate::glossary::{Term, pieces};
use crate::ui::browser;
use crate::ui::markup::{capitalised, unbroken};

/// A text whose words are explained; `id` begins the ids of the explanations.
pub fn explained(id: &str, text: &str) -> Vec<AnyView> {
    let piece = |(text, term): (&str, Option<&'static Term>)| match term {
        None => unbroken(text).into_any(),
        Some(term) => {
            let id = format!("{id}-{}", term.word.replace(' ', "-"));
            let heading = capitalised(term.word);
            view! { <Word id=id face=text.to_owned() heading=heading means=format!(": {}.", term.means) /> }
                .into_any()
        }
    };
    pieces(text).into_iter().map(piece).collect()
}

/// A word, a figure or a cell with what can be said of it, and what leads on from there: the same as a word of the glossary.
pub fn meaning(id: String, face: &str, means: &str, more: Option<ViewFn>) -> impl IntoView + use<> {
    let (face, means) = (face.to_owned(), means.to_owned());
    view! { <Word id=id face=face heading=String::new() means=means more=more.unwrap_or_default() /> }
}

/// A word with what it means. The browser shows what it means at a press and closes it at Escape or a press elsewhere; a pointer
/// shows it by resting on it and closes it by leaving. A press only ever shows: it would close what the same pointer, on its
/// way to the press, has opened.
#[component]
fn Word(
    /// The id of what it means.
    id: String,
    /// The word as it stands there.
    face: String,
    /// What stands before what it means, in bold.
    heading: String,
    /// What it means.
    means: String,
    /// What leads on from there.
    #[prop(optional)]
    more: ViewFn,
) -> impl IntoView {
    let drawn = RwSignal::new(false);
    let means = move || drawn.get().then(|| view! { {means.clone()} " " {more.run()} });
    let (shown, left) = (id.clone(), id.clone());
    view! {
        <span
            class="term"
            on:pointerenter=move |event| {
                if is_mouse(&event) {
                    drawn.set(true);
                    browser::show_at(&shown, &event);
                }
            }
            on:pointerleave=move |event| {
                if is_mouse(&event) {
                    browser::hide(&left);
                }
            }
        >
            <button type="button" popovertarget=id.clone() popovertargetaction="show" on:click=move |_| drawn.set(true)>
                {face}
            </button>
            <span class="help meaning" id=id popover="auto" role="note" tabindex="0">
                <b>{heading}</b>
                {means}
            </span>
        </span>
    }
}

/// Whether it is a pointer that can rest on something: a finger presses.
fn is_mouse(event: &PointerEvent) -> bool {
    event.pointer_type() == "mouse"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_stays_what_it_says() {
        let html = Owner::new().with(|| explained("x", "Peak: <b> in GiB").to_html()).replace("<!>", "");
        for part in [">Peak<", ": &lt;b&gt; in ", "popovertarget=\"x-peak\"", "id=\"x-GiB\""] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
    }
}
