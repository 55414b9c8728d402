//! JSON as Python writes it. The build script shares this file.

use std::borrow::Cow;

/// Replaces the words `NaN`, `Infinity` and `-Infinity` outside strings with `null`.
pub fn without_python_numbers(text: &str) -> Cow<'_, str> {
    if !text.contains("NaN") && !text.contains("Infinity") {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut in_string = false;
    while let Some(c) = rest.chars().next() {
        let word =
            ["-Infinity", "Infinity", "NaN"].into_iter().find(|word| !in_string && rest.starts_with(word));
        let step = match (word, c) {
            (Some(word), _) => {
                out.push_str("null");
                rest = rest.get(word.len()..).unwrap_or("");
                continue;
            }
            (None, '\\') if in_string => 1 + rest.chars().nth(1).map_or(0, char::len_utf8),
            (None, _) => c.len_utf8(),
        };
        in_string ^= c == '"';
        out.push_str(rest.get(..step).unwrap_or(rest));
        rest = rest.get(step..).unwrap_or("");
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn python_numbers_become_null_outside_strings() {
        for (text, clean) in [
            ("[0.0, Infinity]", "[0.0, null]"),
            ("[-Infinity,NaN]", "[null,null]"),
            (r#"{"NaN": "Infinity", "a": NaN}"#, r#"{"NaN": "Infinity", "a": null}"#),
            (r#"{"a\"NaN": NaN}"#, r#"{"a\"NaN": null}"#),
            (r#""\"#, r#""\"#),
        ] {
            assert_eq!(without_python_numbers(text), clean);
        }
    }
}
