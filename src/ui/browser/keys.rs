//! Keys pressed and text pasted anywhere on the page, and the way to a control.

use gloo::events::{EventListener, EventListenerOptions};
use leptos::prelude::{document, window};
use wasm_bindgen::JsCast;

/// A key pressed anywhere on the page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stroke {
    /// Its name, as the browser says it.
    pub key: String,
    /// With Ctrl, on a Mac with Command.
    pub control: bool,
    /// With Shift.
    pub shift: bool,
    /// Where letters are text or choose something.
    pub in_text: bool,
    /// While a dialog is open.
    pub in_dialog: bool,
}

/// Runs at each key; where it says that it took one the browser does nothing with it.
pub fn on_stroke(mut take: impl FnMut(&Stroke) -> bool + 'static) {
    let options = EventListenerOptions::enable_prevent_default();
    EventListener::new_with_options(&window(), "keydown", options, move |event| {
        let Some(pressed) = event.dyn_ref::<web_sys::KeyboardEvent>() else { return };
        // An input method, or a stroke that something else has taken.
        if pressed.is_composing() || pressed.alt_key() || event.default_prevented() {
            return;
        }
        let target = event.target().and_then(|target| target.dyn_into::<web_sys::Element>().ok());
        let is_text = |target: &web_sys::Element| {
            matches!(target.local_name().as_str(), "textarea" | "select")
                || target.local_name() == "input" && target.matches("[type=text]").unwrap_or(true)
        };
        let stroke = Stroke {
            key: pressed.key(),
            control: pressed.ctrl_key() || pressed.meta_key(),
            shift: pressed.shift_key(),
            in_text: target.as_ref().is_some_and(is_text),
            in_dialog: document().query_selector("dialog[open]").ok().flatten().is_some(),
        };
        if take(&stroke) {
            event.prevent_default();
        }
    })
    .forget();
}

/// The text that is pasted.
fn pasted(event: &web_sys::Event) -> Option<String> {
    event.dyn_ref::<web_sys::ClipboardEvent>()?.clipboard_data()?.get_data("text").ok()
}

/// Keeps a text out of a box that is too long: browsers take seconds to show many megabytes.
pub fn refuse_long(event: &web_sys::Event, is_short: impl Fn(u64) -> bool) {
    if pasted(event).is_some_and(|text| !is_short(text.len() as u64)) {
        event.prevent_default();
    }
}

/// Takes text that is pasted anywhere but in a box.
pub fn on_paste(take: impl Fn(String) + 'static) {
    let options = EventListenerOptions::enable_prevent_default();
    EventListener::new_with_options(&window(), "paste", options, move |event| {
        let target = event.target().and_then(|target| target.dyn_into::<web_sys::Element>().ok());
        if target.is_some_and(|target| matches!(target.local_name().as_str(), "textarea" | "input")) {
            return;
        }
        if let Some(text) = pasted(event).filter(|text| !text.trim().is_empty()) {
            event.prevent_default();
            take(text);
        }
    })
    .forget();
}

/// Brings a control into view and opens it: its list where it has one, its text marked where it is a box.
pub fn edit(id: &str) {
    let found = document().get_element_by_id(id);
    let Some(element) = found.and_then(|element| element.dyn_into::<web_sys::HtmlElement>().ok()) else {
        return;
    };
    drop(element.focus());
    let options = web_sys::ScrollIntoViewOptions::new();
    options.set_block(web_sys::ScrollLogicalPosition::Nearest);
    element.scroll_into_view_with_scroll_into_view_options(&options);
    if let Some(list) = element.dyn_ref::<web_sys::HtmlSelectElement>() {
        // Older browsers lack it, and it is refused where the visitor has done nothing: the list then has the focus, which
        // is enough.
        let show = js_sys::Reflect::get(list, &"showPicker".into()).map(JsCast::dyn_into::<js_sys::Function>);
        if let Ok(Ok(show)) = show {
            drop(show.call0(list));
        }
    } else if element.get_attribute("role").as_deref() == Some("combobox") {
        element.click();
    } else if let Some(input) = element.dyn_ref::<web_sys::HtmlInputElement>() {
        input.select();
    }
}
