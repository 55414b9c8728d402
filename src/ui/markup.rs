//! Text that is written as HTML.

use std::fmt::{self, Write};

use crate::issue::{Issue, Severity};

/// A text in which nothing is markup.
pub struct Escaped<'a>(pub &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                other => f.write_char(other)?,
            }
        }
        Ok(())
    }
}

/// Issues as paragraphs.
pub fn issues<'a>(issues: impl IntoIterator<Item = &'a Issue>) -> String {
    let mut html = String::new();
    for issue in issues {
        let (class, prefix) = match issue.severity {
            Severity::Note => ("note", "Note"),
            Severity::Warning => ("warning", "Warning"),
            Severity::Error => ("error", "Error"),
        };
        // Writing to a string cannot fail.
        let _ = write!(
            html,
            "<p class=\"message {class}\"><span class=\"unseen\">{prefix}: </span>{}.",
            Escaped(&capitalised(&issue.message))
        );
        if let Some(fix) = &issue.fix {
            let _ = write!(html, " {}.", Escaped(&capitalised(fix)));
        }
        html.push_str("</p>");
    }
    html
}

/// A sentence with a capital letter and without its full stop; a name of code at its head stays as it is written.
pub fn capitalised(text: &str) -> String {
    let mut sentence = text.strip_suffix('.').unwrap_or(text).to_owned();
    let is_name = sentence.split(' ').next().is_some_and(|word| word.contains(['_', '/']));
    if is_name {
        return sentence;
    }
    if let Some(first) = sentence.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    sentence
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::issue::Field;

    #[test]
    fn sentences_start_with_a_capital() {
        for (text, sentence) in [
            ("the rank is 0", "The rank is 0"),
            ("é.", "é"),
            ("", ""),
            ("hidden_size is 0", "hidden_size is 0"),
        ] {
            assert_eq!(capitalised(text), sentence);
        }
    }

    #[test]
    fn what_users_write_is_no_markup() {
        let issue = Issue::error(Field::Model, "no model is called <b>").with_fix("use \"a & b\"");
        assert_eq!(
            issues([&issue]),
            "<p class=\"message error\"><span class=\"unseen\">Error: </span>No model is called &lt;b&gt;. \
             Use &quot;a &amp; b&quot;.</p>"
        );
    }
}
