//! Accessible controls, one a file. They know labels, values and callbacks, not what a scenario is.

mod combobox;
mod field;
mod help;
mod select;
mod slider;
mod text;
mod toast;

pub use combobox::{Combobox, Item};
pub use field::{Messages, message};
pub use select::{Choice, Select};
pub use slider::Slider;
pub use text::TextBox;
pub use toast::Toasts;
