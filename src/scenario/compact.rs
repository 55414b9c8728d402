//! JSON without quotes, for links: `Name(hidden_size:4096,layer_types:!(!r15(full,sliding)),tie:!t)`.
//!
//! Readable, made of characters that a query string may carry as they are, and as short as deflate and base64 on real
//! configs (358 against 327 characters in the median of 250), without a decompressor that a hostile link could blow up.
//!
//! An object is `(key:value,…)`, a list `!(item,…)`; `!t`, `!f`, `!n` are true, false and null; `!rN(item,…)` stands
//! for its items N times over; anything else is a number where it reads as one and a text otherwise. `~` takes the
//! next character literally, and `!.` begins a text that would read as something else.

use serde_json::{Map, Number, Value};

/// Lists longer than this when written out, all together, are refused.
const MOST_ITEMS: usize = 1 << 14;
/// Deeper nesting than this is refused.
const DEEPEST: usize = 16;
/// The longest pattern that [`write_list`] looks for: Qwen3.5's layers repeat every 4, Gemma's every 6.
const LONGEST_PATTERN: usize = 8;

/// Writes a name and, for a model of the user's own, its config.
pub(super) fn write(name: &str, config: Option<&Value>) -> String {
    let mut out = String::new();
    write_text(name, &mut out);
    if let Some(config) = config {
        write_value(config, &mut out);
    }
    out
}

/// Reads what [`write`] wrote.
///
/// # Errors
/// A clause that says what is wrong.
pub(super) fn read(text: &str) -> Result<(String, Option<Value>), &'static str> {
    let mut reader = Reader { rest: text, items: 0 };
    let (name, _) = reader.text();
    if reader.rest.is_empty() {
        return Ok((name, None));
    }
    let config = reader.value(0)?;
    if !reader.rest.is_empty() || !config.is_object() {
        return Err("its config is not of the form (key:value,…)");
    }
    Ok((name, Some(config)))
}

const SPECIAL: [char; 6] = ['(', ')', ',', ':', '!', '~'];

fn write_text(text: &str, out: &mut String) {
    for c in text.chars() {
        if SPECIAL.contains(&c) {
            out.push('~');
        }
        out.push(c);
    }
}

fn write_value(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("!n"),
        Value::Bool(true) => out.push_str("!t"),
        Value::Bool(false) => out.push_str("!f"),
        Value::Number(number) => out.push_str(&number.to_string()),
        Value::String(text) => {
            if text.is_empty() || number(text).is_some() {
                out.push_str("!.");
            }
            write_text(text, out);
        }
        Value::Array(items) => write_list(items, out),
        Value::Object(map) => {
            out.push('(');
            for (i, (key, value)) in map.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write_text(key, out);
                out.push(':');
                write_value(value, out);
            }
            out.push(')');
        }
    }
}

fn write_list(items: &[Value], out: &mut String) {
    out.push_str("!(");
    let mut rest = items;
    while !rest.is_empty() {
        if rest.len() < items.len() {
            out.push(',');
        }
        let (pattern, times) = repetition(rest);
        if times > 1 {
            out.push_str(&format!("!r{times}("));
        }
        for (i, item) in pattern.iter().enumerate() {
            if i > 0 {
                out.push(',');
            }
            write_value(item, out);
        }
        if times > 1 {
            out.push(')');
        }
        rest = rest.get(pattern.len() * times..).unwrap_or_default();
    }
    out.push(')');
}

/// The shortest pattern whose repetition covers most of the head of the list, and how often it repeats.
fn repetition(items: &[Value]) -> (&[Value], usize) {
    let mut best = (items.get(..1).unwrap_or_default(), 1);
    for length in 1..=LONGEST_PATTERN.min(items.len()) {
        let pattern = items.get(..length).unwrap_or_default();
        let times = items.chunks_exact(length).take_while(|chunk| *chunk == pattern).count();
        if times > 1 && times * length > best.0.len() * best.1 {
            best = (pattern, times);
        }
    }
    best
}

fn number(text: &str) -> Option<Number> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let number: Number = serde_json::from_str(text).ok()?;
    if number.is_f64() { Number::from_f64(text.parse().ok()?) } else { Some(number) }
}

struct Reader<'a> {
    rest: &'a str,
    items: usize,
}

impl Reader<'_> {
    fn take(&mut self, prefix: &str) -> bool {
        match self.rest.strip_prefix(prefix) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn count(&mut self, items: usize) -> Result<(), &'static str> {
        self.items = self.items.saturating_add(items);
        if self.items > MOST_ITEMS { Err("its config is too large") } else { Ok(()) }
    }

    /// A text up to the next special character, and whether it held an escape.
    fn text(&mut self) -> (String, bool) {
        let (mut out, mut escaped) = (String::new(), false);
        let mut chars = self.rest.chars();
        loop {
            self.rest = chars.as_str();
            match chars.next() {
                Some('~') => {
                    escaped = true;
                    out.extend(chars.next());
                }
                Some(c) if !SPECIAL.contains(&c) => out.push(c),
                _ => return (out, escaped),
            }
        }
    }

    fn value(&mut self, depth: usize) -> Result<Value, &'static str> {
        self.count(1)?;
        if depth > DEEPEST {
            return Err("its config is nested too deeply");
        }
        if self.take("!t") {
            Ok(Value::Bool(true))
        } else if self.take("!f") {
            Ok(Value::Bool(false))
        } else if self.take("!n") {
            Ok(Value::Null)
        } else if self.take("!.") {
            Ok(Value::String(self.text().0))
        } else if self.take("!(") {
            Ok(Value::Array(self.items(depth)?))
        } else if self.take("(") {
            self.object(depth)
        } else if self.rest.starts_with('!') {
            Err("its config has a '!' that means nothing")
        } else {
            let (text, escaped) = self.text();
            match number(&text) {
                Some(number) if !escaped => Ok(Value::Number(number)),
                _ => Ok(Value::String(text)),
            }
        }
    }

    /// The items of a list after its opening parenthesis, up to and with the closing one.
    fn items(&mut self, depth: usize) -> Result<Vec<Value>, &'static str> {
        let mut out = Vec::new();
        if depth > DEEPEST {
            return Err("its config is nested too deeply");
        }
        if self.take(")") {
            return Ok(out);
        }
        loop {
            if self.take("!r") {
                let digits = self.rest.find('(').unwrap_or(0);
                let (times, rest) = self.rest.split_at(digits);
                let times: usize =
                    times.parse().map_err(|_| "its config has a repetition without a count")?;
                self.rest = rest.strip_prefix('(').unwrap_or(rest);
                let before = self.items;
                let pattern = self.items(depth + 1)?;
                let size = self.items.saturating_sub(before).max(1);
                self.count(size.saturating_mul(times))?;
                (0..times).for_each(|_| out.extend_from_slice(&pattern));
            } else {
                out.push(self.value(depth + 1)?);
            }
            if self.take(")") {
                return Ok(out);
            }
            if !self.take(",") {
                return Err("its config has a list that does not end");
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<Value, &'static str> {
        let mut map = Map::new();
        if self.take(")") {
            return Ok(Value::Object(map));
        }
        loop {
            let (key, _) = self.text();
            if !self.take(":") {
                return Err("its config has a key without a value");
            }
            map.insert(key, self.value(depth + 1)?);
            if self.take(")") {
                return Ok(Value::Object(map));
            }
            if !self.take(",") {
                return Err("its config does not end");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn round_trips(json: &str, compact: &str) {
        let value: Value = serde_json::from_str(json).unwrap();
        let text = write("My model", Some(&value));
        assert_eq!(text, format!("My model{compact}"));
        assert_eq!(read(&text), Ok(("My model".to_owned(), Some(value))));
    }

    #[test]
    fn every_kind_of_value() {
        round_trips(
            r#"{"a":1,"b":-2.5,"c":"x y","d":true,"e":false,"f":null,"g":{},"h":[]}"#,
            "(a:1,b:-2.5,c:x y,d:!t,e:!f,f:!n,g:(),h:!())",
        );
        round_trips(
            r#"{"a":"1","b":"","c":"M-(*)!:~","d":"true","e":"-"}"#,
            "(a:!.1,b:!.,c:M-~(*~)~!~:~~,d:true,e:-)",
        );
        round_trips(r#"{"t":["a","a","a","b","a","a","a","b","c"]}"#, "(t:!(!r2(a,a,a,b),c))");
        round_trips(r#"{"t":[[1,2],[1,2],3]}"#, "(t:!(!r2(!(1,2)),3))");
    }

    #[test]
    fn a_name_alone() {
        assert_eq!(read("meta-llama/Llama-3.1-8B"), Ok(("meta-llama/Llama-3.1-8B".to_owned(), None)));
        assert_eq!(write("a(b)", None), "a~(b~)");
        assert_eq!(read("a~(b~)"), Ok(("a(b)".to_owned(), None)));
    }

    #[test]
    fn hostile_texts_are_refused() {
        let deep = format!("x{}", "(a:".repeat(10_000));
        for text in [
            "x(",
            "x(a",
            "x(a:",
            "x(a:1",
            "x(a:1,",
            "x(a:1)b",
            "x)",
            "x!t",
            "x(a:!(",
            "x(a:!q)",
            "x(a:!(!r(1)))",
            &deep,
        ] {
            assert!(read(text).is_err(), "{text}");
        }
        for bomb in [
            "x(a:!(!r99999999999(1)))",
            "x(a:!(!r999(!r999(!r999(1)))))",
            "x(a:!(!r99999999999()))",
            "x(a:!(!r99(!(!r99(!(!r99(!(1))))))))",
        ] {
            assert!(read(bomb).is_err(), "{bomb}");
        }
    }
}
