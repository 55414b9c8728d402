//! A button that lets a file of the visitor's be chosen.

use leptos::ev::Event;
use leptos::prelude::*;
use wasm_bindgen::JsCast;
use web_sys::{File, HtmlInputElement};

/// The button; what is chosen is handed over and stays in the browser.
#[component]
pub fn ChooseFile(
    /// Its words.
    label: &'static str,
    /// The endings and types that are offered first; any where nothing is said.
    #[prop(optional)]
    accept: &'static str,
    /// Takes the file.
    take: Callback<File>,
) -> impl IntoView {
    let choose = move |event: Event| {
        let Some(input) = event.target().and_then(|target| target.dyn_into::<HtmlInputElement>().ok()) else {
            return;
        };
        if let Some(file) = input.files().and_then(|files| files.get(0)) {
            take.run(file);
        }
        // chosen once more, the same file is read once more
        input.set_value("");
    };
    view! {
        <label class="tool">
            {label} <input type="file" class="unseen" accept=accept on:change=choose />
        </label>
    }
}
