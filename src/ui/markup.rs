//! Text that is written as HTML.

use std::fmt::{self, Write};

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

/// A sentence with a capital letter and without its full stop; a name at its head stays as it is written: `vLLM`, `max_length`.
pub fn capitalised(text: &str) -> String {
    let mut sentence = text.strip_suffix('.').unwrap_or(text).to_owned();
    let is_code = |word: &str| word.contains(['_', '/', '.']) || word[1..].contains(char::is_uppercase);
    let is_name = sentence.split(' ').next().is_some_and(|word| word.is_char_boundary(1) && is_code(word));
    if is_name {
        return sentence;
    }
    if let Some(first) = sentence.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    sentence
}

/// A text whose percents stay on their number's line.
pub fn unbroken(text: &str) -> String {
    text.replace(" %", "\u{a0}%")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percent_stays_beside_its_number() {
        assert_eq!(unbroken("1.0 % of 5 GiB, 2 %"), "1.0\u{a0}% of 5 GiB, 2\u{a0}%");
    }

    #[test]
    fn sentences_start_with_a_capital() {
        for (text, sentence) in [
            ("the rank is 0", "The rank is 0"),
            ("é.", "é"),
            ("", ""),
            ("hidden_size is 0", "hidden_size is 0"),
            ("big.json: too long", "big.json: too long"),
            ("vLLM stops.", "vLLM stops"),
        ] {
            assert_eq!(capitalised(text), sentence);
        }
    }

    #[test]
    fn what_is_escaped_is_no_markup() {
        assert_eq!(Escaped("a<b> & \"c\"").to_string(), "a&lt;b&gt; &amp; &quot;c&quot;");
    }
}
