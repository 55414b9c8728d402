//! Query strings: `name=value&name=value` with percent-encoding.

use std::fmt::Write;

/// Writes the pairs. Letters, digits and what RFC 3986 allows in a query without a meaning of its own stay as they are,
/// so that Hub ids and lists are readable.
pub(super) fn write(pairs: &[(String, String)]) -> String {
    let mut out = String::new();
    for (name, value) in pairs {
        if !out.is_empty() {
            out.push('&');
        }
        escape(name, &mut out);
        out.push('=');
        escape(value, &mut out);
    }
    out
}

fn escape(text: &str, out: &mut String) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/:,@!*()".contains(&byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a `String` cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
}

/// What some log-ins leave behind as a fragment, which says nothing.
const LEFT_BY_LOG_INS: &str = "_=_";

/// Reads the pairs of a query string or of a whole link: those of its fragment, else those of its query. Never fails:
/// what is no escape stays as it is, bytes that are no UTF-8 become replacement characters, a name without `=` has an
/// empty value.
pub(super) fn read(link: &str) -> Vec<(String, String)> {
    let (address, fragment) = link.split_once('#').unwrap_or((link, ""));
    let text = match address.split_once('?') {
        _ if fragment.contains('=') && fragment != LEFT_BY_LOG_INS => fragment,
        Some((before, query)) if !before.contains(['=', '&']) => query,
        _ => address,
    };
    let pairs = text.trim().split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(name, value)| (unescape(name), unescape(value)))
        .collect()
}

/// What stands behind the `#` of a link where no pair does, and none before it either.
pub(super) fn says_nothing(link: &str) -> Option<&str> {
    let (address, fragment) = link.split_once('#')?;
    let is_left_over = fragment.is_empty() || fragment == LEFT_BY_LOG_INS;
    (!is_left_over && !fragment.contains('=') && !address.contains(['=', '?'])).then_some(fragment)
}

fn unescape(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    loop {
        rest = match rest {
            [] => return String::from_utf8_lossy(&out).into_owned(),
            [b'%', high, low, rest @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                let digit = |byte: &u8| char::from(*byte).to_digit(16).unwrap_or_default() as u8;
                out.push(digit(high) << 4 | digit(low));
                rest
            }
            [b'+', rest @ ..] => {
                out.push(b' ');
                rest
            }
            [byte, rest @ ..] => {
                out.push(*byte);
                rest
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn round_trips(value: &str, written: &str) {
        let pairs = vec![("k".to_owned(), value.to_owned())];
        assert_eq!(write(&pairs), format!("k={written}"));
        assert_eq!(read(&write(&pairs)), pairs);
    }

    #[test]
    fn escapes() {
        round_trips("meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-8B");
        round_trips("a b+c&d=e%f#g?h", "a%20b%2Bc%26d%3De%25f%23g%3Fh");
        round_trips("größe 模型", "gr%C3%B6%C3%9Fe%20%E6%A8%A1%E5%9E%8B");
    }

    #[test]
    fn reads_what_is_left_of_a_link() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(read("https://example.org/x/?a=1&b#frag"), [pair("a", "1"), pair("b", "")]);
        assert_eq!(read("https://example.org/x/#a=1&b"), [pair("a", "1"), pair("b", "")]);
        assert_eq!(read("https://example.org/?z=9#a=1?"), [pair("a", "1?")]);
        assert_eq!(read("#a=1"), [pair("a", "1")]);
        assert_eq!(read("?a=x+y&&=&%zz=%4"), [pair("a", "x y"), pair("", ""), pair("%zz", "%4")]);
        assert_eq!(read("a=b?c"), [pair("a", "b?c")]);
        assert_eq!(read("a=%ff"), [pair("a", "\u{fffd}")]);
        assert_eq!(read("a=%4x%x4%41"), [pair("a", "%4x%x4A")]);
        assert_eq!(says_nothing("#%%%garbage"), Some("%%%garbage"));
        for link in ["#a=1", "#", "https://example.org/?a=1#part", "a=1#part", "?#_=_", "#_=_", "v"] {
            assert_eq!(says_nothing(link), None, "{link}");
        }
    }
}
