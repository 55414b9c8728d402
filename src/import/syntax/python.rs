//! The calls of a Python text: what is called with which arguments. No program is run; what is no literal stays text.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::setting::number;

/// How deep brackets may lie in each other.
const DEEPEST: usize = 40;

/// The most that a name stands for, in values and characters.
const LARGEST_NAMED: usize = 2_000;

/// The most that all names of a text stand for together; names behind that stay names.
const MOST_COPIED: usize = 1_000_000;

/// A call.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::import) struct Call {
    /// What is called, as it is written: `FastLanguageModel.from_pretrained`.
    pub path: String,
    /// The arguments without a name.
    pub values: Vec<Value>,
    /// The others.
    pub named: Vec<(String, Value)>,
}

impl Call {
    /// The last part of the path.
    pub fn name(&self) -> &str {
        self.path.rsplit('.').next().unwrap_or_default()
    }
}

/// What a Python text does that a configuration is made of.
#[derive(Debug, Default)]
pub(in crate::import) struct Script {
    /// The calls, in the order in which they end.
    pub calls: Vec<Call>,
    /// What is given to names and to places: `os.environ["A"]`.
    pub given: Vec<(String, Value)>,
}

/// Reads a text. What is not Python is passed over.
pub(in crate::import) fn read(text: &str) -> Script {
    let tokens = tokens(text);
    let mut reader =
        Reader { text, tokens: &tokens, at: 0, names: HashMap::new(), copied: 0, script: Script::default() };
    while reader.at < tokens.len() {
        let before = reader.at;
        reader.statement();
        if reader.at == before {
            reader.at += 1;
        }
    }
    reader.script
}

#[derive(Clone, Debug, PartialEq)]
enum Kind {
    /// A name, with what it is a part of: `torch.bfloat16`.
    Name,
    /// A string, without its quotes.
    Text(String),
    Number(Value),
    Mark(char),
    /// `**`
    Stars,
    /// An operator of two characters: `==`, `->`.
    Operator,
    End,
}

struct Token {
    kind: Kind,
    from: usize,
    to: usize,
}

/// A text in tokens. Lines end where no bracket is open.
fn tokens(text: &str) -> Vec<Token> {
    let bytes = text.as_bytes();
    let mut tokens = Vec::new();
    let (mut at, mut depth) = (0, 0_usize);
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
                tokens.push(Token { kind: Kind::Text(content), from, to: at });
                continue;
            }
            byte if is_name(byte) && !byte.is_ascii_digit() => {
                at = end_of(bytes, at, |byte| is_name(byte) || byte == b'.');
                // a prefix of a string: r"", f""
                if at - from <= 2 && matches!(bytes.get(at), Some(b'"' | b'\'')) {
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

/// What a copy of a value takes, in values and characters.
fn size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 1,
        Value::String(text) => 1 + text.len(),
        Value::Array(values) => 1 + values.iter().map(size).sum::<usize>(),
        Value::Object(members) => {
            1 + members.iter().map(|(name, value)| name.len() + size(value)).sum::<usize>()
        }
    }
}

struct Reader<'t> {
    text: &'t str,
    tokens: &'t [Token],
    at: usize,
    /// What names stand for: lists of lists of themselves would grow without end, so each is small.
    names: HashMap<String, Value>,
    /// What has been put in the place of names.
    copied: usize,
    script: Script,
}

impl<'t> Reader<'t> {
    fn kind(&self) -> &'t Kind {
        self.tokens.get(self.at).map_or(&Kind::End, |token| &token.kind)
    }

    fn is(&self, mark: char) -> bool {
        *self.kind() == Kind::Mark(mark)
    }

    fn source(&self, from: usize) -> &'t str {
        let start = self.tokens.get(from).map_or(self.text.len(), |token| token.from);
        let end =
            self.at.checked_sub(1).and_then(|last| self.tokens.get(last)).map_or(start, |token| token.to);
        self.text.get(start..end.max(start)).unwrap_or_default()
    }

    fn statement(&mut self) {
        let from = self.at;
        self.expression(0);
        // `name: type = value`
        if self.is(':') {
            self.at += 1;
            self.expression(0);
        }
        let target = self.source(from).split(':').next().unwrap_or_default().trim().to_owned();
        if self.is('=') {
            self.at += 1;
            let value = self.expression(0);
            if !target.contains(['(', '\n']) {
                if size(&value) <= LARGEST_NAMED {
                    self.names.insert(target.clone(), value.clone());
                }
                self.script.given.push((target, value));
            }
        }
    }

    /// An expression up to what ends it: its value where it is a literal, a name that was given one, or a table.
    fn expression(&mut self, depth: usize) -> Value {
        let from = self.at;
        let mut value = None;
        let mut parts = 0_usize;
        loop {
            match self.kind() {
                Kind::End => break,
                Kind::Mark(',' | ')' | ']' | '}' | '=' | ':' | ';') => break,
                Kind::Mark('-') if parts == 0 => {
                    self.at += 1;
                    if let Kind::Number(number) = self.kind() {
                        self.at += 1;
                        value = number.as_f64().map(|number| Value::from(-number));
                        parts += 1;
                        continue;
                    }
                    parts += 1;
                }
                Kind::Name | Kind::Text(_) | Kind::Number(_) | Kind::Mark('(' | '[' | '{') => {
                    let part = self.part(depth);
                    // strings that follow each other are one
                    value = match (value, part) {
                        (Some(Value::String(before)), Some(Value::String(after)))
                            if parts > 0 && self.follows_a_string() =>
                        {
                            parts -= 1;
                            Some(Value::String(before + &after))
                        }
                        (_, part) => part,
                    };
                    parts += 1;
                }
                Kind::Mark(_) | Kind::Stars | Kind::Operator => {
                    self.at += 1;
                    parts += 1;
                }
            }
        }
        match value {
            Some(value) if parts == 1 => value,
            _ => Value::String(self.source(from).to_owned()),
        }
    }

    /// What a name stands for.
    fn named(&mut self, name: &str) -> Option<Value> {
        let value = self.names.get(name)?;
        self.copied = self.copied.saturating_add(size(value));
        (self.copied <= MOST_COPIED).then(|| value.clone())
    }

    fn follows_a_string(&self) -> bool {
        let two = self.at.checked_sub(2).and_then(|first| self.tokens.get(first..self.at));
        two.is_some_and(|two| two.iter().all(|token| matches!(token.kind, Kind::Text(_))))
    }

    /// A literal, a name, a call, or something in brackets; with what is called of it and taken out of it.
    fn part(&mut self, depth: usize) -> Option<Value> {
        let from = self.at;
        let mut path = String::new();
        // whether the whole is more than a value that could be read
        let mut is_text = false;
        let mut value = match self.kind() {
            Kind::Text(text) => {
                self.at += 1;
                Some(Value::String(text.clone()))
            }
            Kind::Number(number) => {
                self.at += 1;
                Some(number.clone())
            }
            Kind::Name => {
                self.at += 1;
                path = self.source(from).to_owned();
                Some(match path.as_str() {
                    "None" => Value::Null,
                    "True" => Value::Bool(true),
                    "False" => Value::Bool(false),
                    name => self.named(name).unwrap_or_else(|| name.into()),
                })
            }
            Kind::Mark(open) => {
                let open = *open;
                self.bracket(open, depth)
            }
            Kind::Stars | Kind::Operator | Kind::End => None,
        };
        loop {
            match self.kind() {
                Kind::Mark('(') if depth < DEEPEST => {
                    let call = self.call(std::mem::take(&mut path), depth + 1);
                    value = (call.path == "dict").then(|| self.table(&call.named)).flatten();
                    is_text = value.is_none();
                    self.script.calls.push(call);
                }
                Kind::Mark('[') if depth < DEEPEST && !path.is_empty() => {
                    self.bracket('[', depth);
                    is_text = true;
                }
                Kind::Mark('.') => {
                    self.at += 1;
                    if *self.kind() == Kind::Name {
                        let start = self.at;
                        self.at += 1;
                        path = self.source(start).to_owned();
                    }
                    is_text = true;
                }
                _ if is_text => return Some(self.source(from).into()),
                _ => return value,
            }
        }
    }

    /// The table that `dict()` makes of its arguments; tables of tables are copied again at each depth.
    fn table(&mut self, members: &[(String, Value)]) -> Option<Value> {
        let taken = members.iter().map(|(name, value)| name.len() + size(value)).sum();
        self.copied = self.copied.saturating_add(taken);
        (self.copied <= MOST_COPIED).then(|| Value::Object(members.iter().cloned().collect()))
    }

    /// What is in a bracket: a table, a list, or one value in parentheses.
    fn bracket(&mut self, open: char, depth: usize) -> Option<Value> {
        let from = self.at;
        self.at += 1;
        if depth >= DEEPEST {
            return None;
        }
        let close = match open {
            '(' => ')',
            '[' => ']',
            _ => '}',
        };
        let (mut values, mut members, mut commas) = (Vec::new(), Map::new(), 0_usize);
        while self.at < self.tokens.len() && !self.is(close) {
            let before = self.at;
            let value = self.expression(depth + 1);
            if self.is(':') && open == '{' {
                self.at += 1;
                let member = self.expression(depth + 1);
                members.insert(super::setting::text(&value), member);
            } else if self.at > before {
                values.push(value);
            }
            if self.is(',') {
                commas += 1;
                self.at += 1;
            }
            if self.at == before {
                self.at += 1;
            }
        }
        self.at += usize::from(self.is(close));
        match open {
            '{' if values.is_empty() => Some(Value::Object(members)),
            '(' if commas == 0 && values.len() == 1 => values.pop(),
            '(' | '[' => Some(Value::Array(values)),
            _ => Some(self.source(from).into()),
        }
    }

    fn call(&mut self, path: String, depth: usize) -> Call {
        let mut call = Call { path, values: Vec::new(), named: Vec::new() };
        self.at += 1;
        while self.at < self.tokens.len() && !self.is(')') {
            let before = self.at;
            let unpacked = *self.kind() == Kind::Stars;
            self.at += usize::from(unpacked);
            let start = self.at;
            let value = self.expression(depth);
            match value {
                Value::Object(members) if unpacked => call.named.extend(members),
                _ if self.is('=') => {
                    let name = self.source(start).to_owned();
                    self.at += 1;
                    let value = self.expression(depth);
                    call.named.push((name, value));
                }
                value if self.at > start => call.values.push(value),
                _ => {}
            }
            self.at += usize::from(self.is(','));
            if self.at == before {
                self.at += 1;
            }
        }
        self.at += usize::from(self.is(')'));
        call
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn calls(text: &str, expected: &[(&str, Value, Value)]) {
        let script = read(text);
        let found: Vec<_> = script
            .calls
            .into_iter()
            .map(|call| {
                let named: Map<String, Value> = call.named.into_iter().collect();
                (call.path, Value::Array(call.values), Value::Object(named))
            })
            .collect();
        let expected: Vec<_> = expected
            .iter()
            .map(|(path, values, named)| (path.to_string(), values.clone(), named.clone()))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn calls_with_their_arguments() {
        calls(
            "max_seq_length = 2048 # any\nargs = SFTConfig(\n    max_length = max_seq_length,\n    lr=2e-4, w = -1,\n    kw={\"use_reentrant\": False},\n    bf16 = not torch.cuda.is_bf16_supported(),\n)",
            &[
                ("torch.cuda.is_bf16_supported", json!([]), json!({})),
                (
                    "SFTConfig",
                    json!([]),
                    json!({"max_length": 2048, "lr": 2e-4, "w": -1.0, "kw": {"use_reentrant": false}, "bf16": "not torch.cuda.is_bf16_supported()"}),
                ),
            ],
        );
        calls(
            "model, tok = F.from_pretrained('a' 'b', dtype=torch.bfloat16, m=['q', 'v',], q=B(x=(1)), **dict(z=3)).to(0)",
            &[
                ("B", json!([]), json!({"x": 1})),
                ("dict", json!([]), json!({"z": 3})),
                (
                    "F.from_pretrained",
                    json!(["ab"]),
                    json!({"dtype": "torch.bfloat16", "m": ["q", "v"], "q": "B(x=(1))", "z": 3}),
                ),
                ("to", json!([0]), json!({})),
            ],
        );
    }

    #[test]
    fn places_are_given_values() {
        let script =
            read("import os\nos.environ[\"A\"] = 'b:True'\nmodel.config.use_cache = False\nN: int = 1_000\n");
        let given: Vec<_> =
            script.given.iter().map(|(place, value)| (place.as_str(), value.clone())).collect();
        assert_eq!(
            given,
            [
                ("os.environ[\"A\"]", json!("b:True")),
                ("model.config.use_cache", json!(false)),
                ("N", json!(1000))
            ]
        );
    }

    /// Names that stand for much, and stand in many places, do not fill the memory.
    #[test]
    fn nothing_makes_it_grow_without_end() {
        let text = format!("a = '{}'\nb = f([{}])\n", "x".repeat(1_900), "a, ".repeat(20_000));
        let script = read(&text);
        assert!(script.calls.iter().flat_map(|call| &call.values).map(size).sum::<usize>() < 2 * MOST_COPIED);
    }

    #[test]
    fn anything_ends() {
        for text in [
            "(", ")", "f(", "f(((", "{:", "'", "\"\"\"a", "f(**", "=\n=", "a[", "\\", "f(a=)", "x = ", ".",
            "-",
        ] {
            read(text);
        }
        read(&"f(".repeat(50_000));
        read(&"[".repeat(50_000));
        read(&"a.b(c)".repeat(5_000));
    }
}
