//! Charts: plotters computes where things go, `backend` writes SVG that the page's style sheet colours.

mod backend;
pub mod card;
pub mod curve;
pub mod pen;
pub mod scatter;
pub mod stack;
mod ticks;
pub mod timeline;
