//! The page: signals over the core, and nothing that the core could do itself.
//!
//! What is plain Rust (formats, stops of sliders, search, summaries, charts) is tested without a browser; only
//! `browser` touches `window`.

mod app;
mod asked;
mod axis;
pub mod behind;
mod browser;
pub mod chart;
mod controls;
mod desk;
pub mod detail;
pub mod figures;
pub mod format;
mod history;
pub mod hub;
mod keyboard;
pub mod known;
mod looked;
pub mod markup;
mod own;
mod panel;
pub mod part;
mod picks;
#[cfg(not(target_arch = "wasm32"))]
mod prerender;
mod presets;
pub mod proof;
pub mod question;
pub mod recorded;
pub mod scale;
mod search;
mod state;
pub mod summary;
mod sync;
mod theme;
pub mod verdict;
pub mod view;
mod way;

pub use app::start;
#[cfg(not(target_arch = "wasm32"))]
pub use prerender::first_answer;
