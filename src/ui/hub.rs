//! A model by its id on the Hub: what is asked for, and what the answers mean.

use crate::issue::{Field, Issue};
use crate::ui::browser::NoText;

/// What a part of an id is made of.
fn is_part(part: &str) -> bool {
    let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    (1..=96).contains(&part.len()) && part.chars().all(known) && !part.starts_with('.')
}

/// The `org/name` in what somebody typed: the id alone, or any address of that model's page.
///
/// ```
/// use headroom::ui::hub::id;
/// let address = "https://huggingface.co/Qwen/Qwen3-8B/blob/main/config.json";
/// assert_eq!(id(address).as_deref(), Some("Qwen/Qwen3-8B"));
/// assert_eq!(id("llama 3"), None);
/// ```
pub fn id(text: &str) -> Option<String> {
    let text = text.trim();
    let address = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let path = match address {
        Some(address) => address.split_once('/')?.1,
        None => ["huggingface.co/", "www.huggingface.co/", "hf.co/"]
            .iter()
            .find_map(|host| text.strip_prefix(host))
            .unwrap_or(text),
    };
    let mut parts = path.split(['?', '#']).next()?.split('/').filter(|part| !part.is_empty());
    let (organisation, name) = (parts.next()?, parts.next()?);
    // Without an address there is nothing behind the name.
    let whole = path.len() < text.len() || parts.next().is_none();
    (whole && is_part(organisation) && is_part(name)).then(|| format!("{organisation}/{name}"))
}

/// Where the file of a model lies.
pub fn file(base: &str, id: &str) -> String {
    format!("{base}/{id}/resolve/main/config.json")
}

/// Where a person can look at it, signed in.
pub fn page(base: &str, id: &str) -> String {
    format!("{base}/{id}/blob/main/config.json")
}

/// Why there is no config, and the way out. The codes are the Hub's `X-Error-Code`, as `huggingface_hub` reads them; the
/// Hub answers 401 for a model that does not exist, too.
pub fn problem(id: &str, why: &NoText) -> Issue {
    let (message, fix) = match why {
        NoText::Offline => ("this browser is offline".to_owned(), "connect, or paste the config.json"),
        NoText::Unreached => (
            "the Hub could not be reached".to_owned(),
            "look whether something blocks it, or paste the config.json",
        ),
        NoText::Late => ("the Hub did not answer in time".to_owned(), "try again, or paste the config.json"),
        NoText::TooLong(error) => return error.clone().into(),
        NoText::Status { status, code } => match (status, code.as_str()) {
            (_, "GatedRepo") | (403, _) => (
                format!("access to {id} is gated: the Hub asks to accept its terms first"),
                "open the file there, signed in, and paste it",
            ),
            (_, "EntryNotFound") => (
                format!("there is no config.json in {id}"),
                "an adapter or a quantised file has its base model's: take that one",
            ),
            (401 | 404, "RepoNotFound") => (
                format!("the Hub has no public model {id}"),
                "check the spelling; of a private model, paste the config.json",
            ),
            (401, _) => (
                format!("the Hub does not show {id}: it is gated, private or not there"),
                "check the spelling, or open the file there, signed in, and paste it",
            ),
            (404 | 410, _) => {
                (format!("the Hub has no config.json of {id}"), "check the spelling, or paste the file")
            }
            (429, _) => (
                "the Hub has had too many requests from this network".to_owned(),
                "wait some minutes, or paste the config.json",
            ),
            (status, _) => {
                (format!("the Hub answered {status}"), "try again later, or paste the config.json")
            }
        },
    };
    Issue::error(Field::Model, message).with_fix(fix)
}

/// What came instead of a config: a page to sign in, or some other file of that name.
pub fn unreadable(id: &str, issue: &Issue) -> Issue {
    let message = format!("what the Hub sent for {id} was not understood: {}", issue.message);
    Issue { message, ..issue.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_addresses_are_read() {
        for (text, wanted) in [
            ("Qwen/Qwen3-8B", Some("Qwen/Qwen3-8B")),
            (" meta-llama/Llama-3.1-8B ", Some("meta-llama/Llama-3.1-8B")),
            ("https://huggingface.co/a/b", Some("a/b")),
            ("https://huggingface.co/a/b/tree/main?x=1#y", Some("a/b")),
            ("http://hf.co/a/b/", Some("a/b")),
            ("huggingface.co/a/b/blob/main/config.json", Some("a/b")),
            ("https://mirror.example.org/a/b", Some("a/b")),
            ("llama3-8b", None),
            ("llama 3 / 8b", None),
            ("a/b/c", None),
            ("/", None),
            ("a/", None),
            ("../..", None),
            ("https://huggingface.co", None),
            ("https://huggingface.co/a", None),
            ("größe/modell", None),
            ("", None),
        ] {
            assert_eq!(id(text).as_deref(), wanted, "{text}");
        }
        assert_eq!(
            file("https://huggingface.co", "a/b"),
            "https://huggingface.co/a/b/resolve/main/config.json"
        );
    }

    #[test]
    fn failures_are_told_apart() {
        let status = |status, code: &str| problem("a/b", &NoText::Status { status, code: code.to_owned() });
        let mut told: Vec<String> = [
            status(401, ""),
            status(401, "GatedRepo"),
            status(401, "RepoNotFound"),
            status(404, ""),
            status(404, "EntryNotFound"),
            status(429, ""),
            status(503, ""),
            problem("a/b", &NoText::Offline),
            problem("a/b", &NoText::Unreached),
            problem("a/b", &NoText::Late),
        ]
        .iter()
        .map(|issue| issue.message.clone())
        .collect();
        let all = told.len();
        told.sort();
        told.dedup();
        assert_eq!(told.len(), all, "{told:?}");
        assert_eq!(status(403, ""), status(401, "GatedRepo"));
    }
}
