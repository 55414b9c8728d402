//! Text for people.

/// The text, or its beginning, on one line.
pub(crate) fn short(text: &str) -> String {
    const LONGEST: usize = 60;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", one_line(text.get(..end).unwrap_or_default())),
        None => one_line(text),
    }
}

/// The text on one line: line breaks become spaces, what else would steer a terminal the replacement character.
pub(crate) fn one_line(text: &str) -> String {
    let shown = |c: char| match c {
        '\n' | '\r' | '\t' => ' ',
        c if c.is_control() => char::REPLACEMENT_CHARACTER,
        c => c,
    };
    text.chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_breaks_the_line_or_steers_the_terminal() {
        assert_eq!(one_line("a\r\nb\tc"), "a  b c");
        assert_eq!(short("\u{1b}]0;x\u{7}\u{9b}2J"), "\u{fffd}]0;x\u{fffd}\u{fffd}2J");
        assert_eq!(short(&"ü\n".repeat(31)).chars().count(), 61);
    }
}
