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

/// The space at which no line ends.
pub const NO_BREAK: char = '\u{a0}';

/// The same text with spaces at which lines may end, for what is no part of the page.
pub fn plain(text: &str) -> String {
    text.replace(NO_BREAK, " ")
}

/// What stays on the line of the number before it.
const UNITS: [&str; 11] = ["%", "×", "B", "KiB", "MiB", "GiB", "TiB", "kB", "MB", "GB", "TB"];

/// A text whose units stay on their numbers' lines.
///
/// ```
/// use headroom::ui::markup::unbroken;
/// assert_eq!(unbroken("8 × 5.00 GiB, 2 %"), "8\u{a0}× 5.00\u{a0}GiB, 2\u{a0}%");
/// ```
pub fn unbroken(text: &str) -> String {
    let mut words = text.split(' ');
    let mut out = words.next().unwrap_or_default().to_owned();
    for word in words {
        let is_letter = |c: char| c.is_ascii_alphabetic() || c == '%' || c == '×';
        let unit = word.split(|c| !is_letter(c)).next().unwrap_or_default();
        let joined = out.ends_with(|c: char| c.is_ascii_digit()) && UNITS.contains(&unit);
        out.push(if joined { NO_BREAK } else { ' ' });
        out.push_str(word);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_stays_beside_its_number() {
        for (text, shown) in [
            ("1.0 % of 5 GiB, 2 %", "1.0~% of 5~GiB, 2~%"),
            ("each is over by 578.9 GiB.", "each is over by 578.9~GiB."),
            ("on 8 × H100, 31.9 GB/s (512 B)", "on 8~× H100, 31.9~GB/s (512~B)"),
            ("4,096 tokens × 151,936 × 4 bytes", "4,096 tokens × 151,936~× 4 bytes"),
            ("Phi 3 Best, 2 % ", "Phi 3 Best, 2~% "),
        ] {
            assert_eq!(unbroken(text), shown.replace('~', "\u{a0}"), "{text}");
        }
        let whole = "5 Gib, a % of it, a × b";
        assert_eq!(unbroken(whole), whole);
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
