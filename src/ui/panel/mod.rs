//! The areas of the page, one a file.

mod accuracy;
mod answer;
mod breakdown;
mod chart;
mod compare;
mod configure;
mod control;
mod curves;
mod fit;
mod footer;
mod header;
mod layouts;
mod levers;
mod need;
mod oom;
mod overlay;
mod panels;
mod plan;
mod proof;
mod ranks;
mod readout;
mod rows;
mod sentence;
mod take;
mod thumb;
mod time;
mod timeline;
mod verdict;
mod views;

pub use compare::Tabs;
pub use configure::Configure;
pub use footer::Footer;
pub use header::Header;
pub use panels::Panels;
pub use sentence::Sentence;
pub use verdict::Verdict;
