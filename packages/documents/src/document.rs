//! A document as a page's content.

use std::collections::HashMap;
use std::path::Path;
use std::{fs, io};

use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd, html};

/// Where the figures of `data/` come from: a document beside those of `docs/`.
pub const SOURCES: &str = "data/SOURCES.md";

/// The files of `data/` that lie beside the documents.
pub const DATA: [&str; 4] = ["gpus.csv", "instances.csv", "models.csv", "vllm.tsv"];

/// One document.
pub struct Document {
    /// The name of its page without the ending.
    pub name: String,
    /// Its first heading.
    pub title: String,
    /// What it says.
    pub html: String,
}

impl Document {
    /// Reads a file of Markdown.
    pub fn read(path: &Path) -> io::Result<Document> {
        let name = match path.file_stem().and_then(|name| name.to_str()).unwrap_or_default() {
            "README" => "index".to_owned(),
            name => name.to_owned(),
        };
        let (title, html) = rendered(&fs::read_to_string(path)?);
        Ok(Document { name, title, html })
    }
}

/// The first heading of a text, and the text as HTML.
fn rendered(markdown: &str) -> (String, String) {
    let mut events: Vec<Event> = Parser::new_ext(markdown, Options::ENABLE_TABLES).collect();
    let title = anchor_headings(&mut events);
    let events = unlink_what_is_elsewhere(events).into_iter().map(linked).flat_map(scrolled);
    let mut page = String::new();
    html::push_html(&mut page, events);
    // the page's policy takes no inline styles
    (title, page.replace("style=\"text-align: right\"", "class=\"right\""))
}

/// Gives each heading its anchor, and returns what the first one says.
fn anchor_headings(events: &mut [Event]) -> String {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut title = String::new();
    for start in 0..events.len() {
        if !matches!(events[start], Event::Start(Tag::Heading { .. })) {
            continue;
        }
        let text: String = events[start..]
            .iter()
            .take_while(|event| !matches!(event, Event::End(TagEnd::Heading(_))))
            .filter_map(|event| match event {
                Event::Text(text) | Event::Code(text) => Some(&**text),
                _ => None,
            })
            .collect();
        let anchor = anchor(&text);
        let times = seen.entry(anchor.clone()).or_default();
        let anchor = if *times == 0 { anchor } else { format!("{anchor}-{times}") };
        *times += 1;
        if let Event::Start(Tag::Heading { level, id, .. }) = &mut events[start] {
            *id = Some(anchor.into());
            if *level == HeadingLevel::H1 && title.is_empty() {
                title = text;
            }
        }
    }
    title
}

/// GitHub's anchor of a heading: in small letters, with hyphens for spaces, without punctuation.
fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase();
    let kept = kept.chars().filter(|sign| sign.is_alphanumeric() || [' ', '-', '_'].contains(sign));
    kept.map(|sign| if sign == ' ' { '-' } else { sign }).collect()
}

/// Leaves the words alone of links to files of the repository that are no documents: they are not beside the page.
fn unlink_what_is_elsewhere(mut events: Vec<Event>) -> Vec<Event> {
    let mut elsewhere = false;
    events.retain(|event| match event {
        Event::Start(Tag::Link { dest_url, .. }) => {
            elsewhere = dest_url.starts_with("../") && beside(dest_url).is_none();
            !elsewhere
        }
        Event::End(TagEnd::Link) => !std::mem::take(&mut elsewhere),
        _ => true,
    });
    events
}

/// Where a file of the repository lies beside the documents, if it does.
fn beside(link: &str) -> Option<String> {
    let path = link.strip_prefix("../")?;
    if path == SOURCES {
        return Some("sources.html".to_owned());
    }
    if let Some((name, rest)) = path.strip_prefix("docs/").and_then(|document| document.split_once(".md")) {
        return Some(format!("{name}.html{rest}"));
    }
    let file = path.strip_prefix("data/")?;
    DATA.contains(&file).then(|| path.to_owned())
}

/// A link to a document leads to its page.
fn linked(event: Event) -> Event {
    match event {
        Event::Start(Tag::Link { link_type, dest_url, title, id }) => {
            let dest_url = match (beside(&dest_url), dest_url.split_once(".md")) {
                (Some(beside), _) => beside.into(),
                (None, Some((name, rest))) if !dest_url.contains(':') => format!("{name}.html{rest}").into(),
                (None, _) => dest_url,
            };
            Event::Start(Tag::Link { link_type, dest_url, title, id })
        }
        event => event,
    }
}

/// A table that is wider than the page scrolls by itself, with the keyboard too.
fn scrolled(event: Event) -> Vec<Event> {
    match event {
        Event::Start(Tag::Table(_)) => {
            vec![Event::Html("<div class=\"scrolls\" tabindex=\"0\">".into()), event]
        }
        Event::End(TagEnd::Table) => vec![event, Event::Html("</div>\n".into())],
        event => vec![event],
    }
}

/// A text as it can stand in HTML.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_have_the_anchors_that_links_name() {
        let (title, html) = rendered("# Every term: `a`, b\n\n## 8-bit weights\n\n## 8-bit weights\n");
        assert_eq!(title, "Every term: a, b");
        for anchor in ["every-term-a-b", "8-bit-weights", "8-bit-weights-1"] {
            assert!(html.contains(&format!("id=\"{anchor}\"")), "{html}");
        }
    }

    #[test]
    fn links_lead_to_pages_or_nowhere() {
        let (_, html) =
            rendered("[a](parallel.md#ddp) [b](../README.md) [c](https://example.org/x.md) <b>&</b>");
        assert!(
            html.contains("<a href=\"parallel.html#ddp\">a</a> b <a href=\"https://example.org/x.md\">c</a>"),
            "{html}"
        );
    }

    #[test]
    fn data_lies_beside_the_documents() {
        let (_, html) = rendered(
            "[a](../data/SOURCES.md) [b](../data/gpus.csv) [c](../data/other.csv) [d](../docs/time.md#a)",
        );
        let wanted =
            "<a href=\"sources.html\">a</a> <a href=\"data/gpus.csv\">b</a> c <a href=\"time.html#a\">d</a>";
        assert!(html.contains(wanted), "{html}");
    }

    #[test]
    fn a_wide_table_scrolls() {
        let (_, html) = rendered("| a |\n|--:|\n| b |\n");
        assert!(html.contains("<td class=\"right\">b</td>"), "{html}");
        assert!(
            html.starts_with("<div class=\"scrolls\" tabindex=\"0\"><table>")
                && html.ends_with("</table>\n</div>\n"),
            "{html}"
        );
    }
}
