//! Closures of one type for views. Every closure that stands in a view by itself is compiled into an effect of its own,
//! about three kilobytes; handed over behind a pointer, all of them share one.

use std::sync::{Arc, Mutex};

use leptos::prelude::*;
use leptos::tachys::reactive_graph::SharedReactiveFunction;

/// Text of the page that follows signals.
pub type Text = SharedReactiveFunction<String>;
/// A switch of the page that follows signals: a class, `hidden`.
pub type Switch = SharedReactiveFunction<bool>;

/// Text that follows the signals read in it.
pub fn text(read: impl FnMut() -> String + Send + 'static) -> Text {
    Arc::new(Mutex::new(read))
}

/// A switch that follows the signals read in it.
pub fn switch(read: impl FnMut() -> bool + Send + 'static) -> Switch {
    Arc::new(Mutex::new(read))
}

/// `true` or `false`, as ARIA's attributes want it.
pub fn state(mut read: impl FnMut() -> bool + Send + 'static) -> Text {
    text(move || if read() { "true".to_owned() } else { "false".to_owned() })
}

/// What is done at an event.
pub fn on<E: 'static>(act: impl FnMut(E) + 'static) -> Box<dyn FnMut(E)> {
    Box::new(act)
}

/// Does something now and whenever the signals read in it change.
pub fn follow(act: impl FnMut() + 'static) {
    let act: Box<dyn FnMut()> = Box::new(act);
    Effect::new(act);
}
