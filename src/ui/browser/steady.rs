//! What the reader pressed stays where it is on the screen while what stands above it grows or shrinks; and how high what sticks there is.

use std::cell::RefCell;
use std::rc::Rc;

use gloo::events::EventListener;
use leptos::prelude::{document, request_animation_frame, window};
use wasm_bindgen::JsCast;
use web_sys::{Element, Event};

use super::{set_style, watch_page};

/// What sticks to the top of the screen, and the property of the page that says how high it is: what sticks beneath it asks for that.
const STICKING: [(&str, &str); 3] =
    [("sentence", "--said"), ("answer", "--gist"), ("contents", "--contents")];

/// Keeps these properties, until the component is gone.
pub fn measure_what_sticks() {
    let known = Rc::new(RefCell::new([0.0; STICKING.len()]));
    watch_page(move || {
        let known = Rc::clone(&known);
        // what that changes of the page's size is told in the next frame
        request_animation_frame(move || {
            let root = document().document_element().and_then(|root| root.dyn_into().ok());
            let Some(root) = root else { return };
            for ((id, name), known) in STICKING.into_iter().zip(known.borrow_mut().iter_mut()) {
                let element = document().get_element_by_id(id);
                let high = element.map_or(0.0, |element| element.get_bounding_client_rect().height());
                if *known != high {
                    *known = high;
                    set_style(&root, name, &format!("{high}px"));
                }
            }
        });
    });
}

/// A section of the page, and how far below the top of the screen it begins.
struct Held {
    section: Element,
    top: f64,
}

impl Held {
    /// The section, of those that a selector names, in which something happened.
    fn of(event: &Event, sections: &str) -> Option<Held> {
        let section = event.target()?.dyn_into::<Element>().ok()?.closest(sections).ok()??;
        let top = section.get_bounding_client_rect().top();
        Some(Held { section, top })
    }

    /// How far it has moved down, unless it is gone or hidden.
    fn moved(&self) -> Option<f64> {
        let place = self.section.get_bounding_client_rect();
        (place.height() > 0.0).then(|| place.top() - self.top)
    }
}

/// Keeps the sections that a selector names so, until the component is gone. Browsers that do it by themselves lose their hold where
/// what stands at the top of the screen is drawn anew.
pub fn keep_steady(sections: &'static str) {
    let held = Rc::new(RefCell::new(None::<Held>));
    let on = |names: &[&'static str], change: fn(Option<Held>, &Event, &str) -> Option<Held>| {
        for name in names {
            let held = Rc::clone(&held);
            let listen = move |event: &Event| {
                held.replace_with(|held| change(held.take(), event, sections));
            };
            EventListener::new(&window(), *name, listen).forget();
        }
    };
    on(&["pointerdown", "keydown"], |_, event, sections| Held::of(event, sections));
    on(&["wheel", "pointercancel"], |_, _, _| None);
    on(&["scroll"], |held, _, _| {
        held.map(|held| Held { top: held.top + held.moved().unwrap_or_default(), ..held })
    });
    watch_page(move || {
        if let Some(moved) = held.borrow().as_ref().and_then(Held::moved) {
            window().scroll_by_with_x_and_y(0.0, moved);
        }
    });
}
