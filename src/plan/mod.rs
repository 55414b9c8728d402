//! Planning: does it fit, and what is the most that does.

mod fit;
mod solve;
mod table;

pub use fit::{Fit, Margin, fits, within};
pub use solve::{largest_batch, longest_sequence};
pub use table::{FitCell, FitRow, table, with_method};
