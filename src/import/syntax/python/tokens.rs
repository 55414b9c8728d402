//! A Python text in tokens.

use serde_json::Value;

use super::super::setting::number;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    /// A name, with what it is a part of: `torch.bfloat16`.
    Name,
    /// A string, without its quotes.
    Text(String),
    /// A string that a program fills in: `f"{name}"`.
    Formatted,
    Number(Value),
    Mark(char),
    /// `**`
    Stars,
    /// An operator of two characters: `==`, `->`.
    Operator,
    End,
}

pub(super) struct Token {
    pub kind: Kind,
    pub from: usize,
    pub to: usize,
}

/// A text in tokens. Lines end where no bracket is open.
pub(super) fn tokens(text: &str) -> Vec<Token> {
    let bytes = text.as_bytes();
    let mut tokens = Vec::new();
    let (mut at, mut depth, mut prefix) = (0, 0_usize, 0_usize);
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80;
    while let Some(byte) = bytes.get(at).copied() {
        let from = at;
        let kind = match byte {
            b'#' => {
                at += text[at..].find('\n').unwrap_or(text.len() - at);
                continue;
            }
            b'\n' if depth == 0 => Kind::End,
            b'\\' | b'\n' | b'\r' | b' ' | b'\t' | 0x0c => {
                // a backslash takes the end of the line with it
                at += if byte == b'\\' { 1 + usize::from(bytes.get(at + 1) == Some(&b'\n')) } else { 1 };
                continue;
            }
            b'"' | b'\'' => {
                let (content, end) = string(text, at);
                at = end;
                let prefix = std::mem::take(&mut prefix);
                let is_formatted = text[from - prefix..from].contains(['f', 'F']) && content.contains('{');
                let kind = if is_formatted { Kind::Formatted } else { Kind::Text(content) };
                tokens.push(Token { kind, from: from - prefix, to: at });
                continue;
            }
            byte if is_name(byte) && !byte.is_ascii_digit() => {
                at = end_of(bytes, at, |byte| is_name(byte) || byte == b'.');
                // a prefix of a string: r"", f""
                if at - from <= 2 && matches!(bytes.get(at), Some(b'"' | b'\'')) {
                    prefix = at - from;
                    continue;
                }
                tokens.push(Token { kind: Kind::Name, from, to: at });
                continue;
            }
            byte if byte.is_ascii_digit()
                || (byte == b'.' && bytes.get(at + 1).is_some_and(u8::is_ascii_digit)) =>
            {
                at = end_of(bytes, at, |byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_'));
                // 2e-5
                if text[from..at].ends_with(['e', 'E']) && matches!(bytes.get(at), Some(b'-' | b'+')) {
                    at = end_of(bytes, at + 1, |byte| byte.is_ascii_digit());
                }
                let value = number(&text[from..at]).unwrap_or_else(|| text[from..at].into());
                tokens.push(Token { kind: Kind::Number(value), from, to: at });
                continue;
            }
            b'*' if bytes.get(at + 1) == Some(&b'*') => {
                at += 1;
                Kind::Stars
            }
            b'=' | b'!' | b'<' | b'>' | b'+' | b'-' | b'*' | b'/' | b':'
                if matches!(bytes.get(at + 1), Some(b'=' | b'>')) =>
            {
                at += 1;
                Kind::Operator
            }
            byte => {
                match byte {
                    b'(' | b'[' | b'{' => depth += 1,
                    b')' | b']' | b'}' => depth = depth.saturating_sub(1),
                    _ => {}
                }
                Kind::Mark(char::from(byte))
            }
        };
        at += 1;
        tokens.push(Token { kind, from, to: at });
    }
    tokens
}

fn end_of(bytes: &[u8], at: usize, belongs: impl Fn(u8) -> bool) -> usize {
    at + bytes[at..].iter().take_while(|byte| belongs(**byte)).count()
}

/// The content of the string that begins here, and where it ends.
fn string(text: &str, at: usize) -> (String, usize) {
    let quote = &text[at..=at];
    let triple = quote.repeat(3);
    let mark = if text[at..].starts_with(&triple) { triple.as_str() } else { quote };
    let start = at + mark.len();
    let mut content = String::new();
    let mut characters = text[start..].char_indices();
    while let Some((offset, character)) = characters.next() {
        if text[start + offset..].starts_with(mark) {
            return (content, start + offset + mark.len());
        }
        match character {
            '\\' => match characters.next() {
                Some((_, 'n')) => content.push('\n'),
                Some((_, 't')) => content.push('\t'),
                Some((_, '\n')) | None => {}
                Some((_, other)) => content.push(other),
            },
            // a string that was not closed ends with its line
            '\n' if mark.len() == 1 => return (content, start + offset),
            other => content.push(other),
        }
    }
    (content, text.len())
}
