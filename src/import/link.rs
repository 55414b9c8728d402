//! Headroom's own links, alone and in the first lines of the files that it writes.

use super::settings::taken;
use super::understood::{Format, Left, NotRead, Understood};
use crate::scenario::keys::keys;
use crate::share::{self, page::TOOK};

/// Whether a text is a share link, or the part of it that says the scenario.
pub(super) fn is_link(text: &str) -> bool {
    // what the page and the recorder write begins with a version, what is typed with the model
    let begins = |said: &str| ["m=", "v=1&"].iter().any(|start| said.starts_with(start));
    let one_word = !text.contains(char::is_whitespace);
    one_word && (begins(text) || text.split(['#', '?']).skip(1).any(begins))
}

/// The first scenario of a link.
pub(super) fn of_link(text: &str) -> Result<Understood, NotRead> {
    let shared = share::decode(text);
    let alone = shared.scenarios.len() == 1;
    let Some(scenario) = shared.scenarios.into_iter().next() else {
        return Err(NotRead("this link holds no scenario".to_owned()));
    };
    let taken = keys().filter(|key| share::names(text, key.name)).map(|key| taken(key, &scenario)).collect();
    let left = shared
        .notices
        .iter()
        .map(|notice| Left { is_misread: true, ..Left::new("the link", notice.to_string()) });
    Ok(Understood {
        left: left.collect(),
        took: share::said(text, TOOK).filter(|_| alone),
        ..Understood::of(Format::Headroom, scenario, taken)
    })
}

/// The link of a file that Headroom wrote, which says what is in none of its calls.
pub(super) fn written_by_headroom(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("headroom estimate '")?;
    rest.split('\'').next().filter(|link| link.contains('='))
}
