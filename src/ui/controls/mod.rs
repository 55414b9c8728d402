//! Accessible controls, one a file. They know labels, values and callbacks, not what a scenario is.

mod combobox;
mod file;
mod messages;
mod name;
mod order;
mod select;
mod slider;
mod switch;
mod table;
mod term;
mod text;

pub use combobox::{Combobox, Found, Item};
pub use file::ChooseFile;
pub use messages::{Messages, message};
pub use name::Explained;
pub use order::{Listing, Order};
pub use select::Select;
pub use slider::Slider;
pub use switch::Switch;
pub use table::{Cell, Row, Table, columns};
pub use term::{explained, meaning};
pub use text::{Acts, TextBox};
