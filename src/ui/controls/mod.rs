//! Accessible controls, one a file. They know labels, values and callbacks, not what a scenario is.

mod combobox;
mod name;
mod select;
mod slider;
mod switch;
mod text;
mod toast;

use leptos::prelude::*;

pub use combobox::{Combobox, Found, Item};
pub use select::Select;
pub use slider::Slider;
pub use switch::Switch;
pub use text::TextBox;
pub use toast::Toast;

/// What is wrong with a control's value, as HTML; mostly empty.
pub type Messages = Signal<String>;
