//! The areas of the page, one a file.

mod answer;
mod breakdown;
mod card;
mod compare;
mod configure;
mod explain;
mod fit;
mod footer;
mod header;
mod phases;
mod timeline;
mod verdict;

pub use answer::Answer;
pub use compare::Tabs;
pub use configure::Configure;
pub use footer::Footer;
pub use header::Header;
pub use verdict::Verdict;
