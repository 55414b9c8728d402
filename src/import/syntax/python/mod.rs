//! The calls of a Python text: what is called with which arguments. No program is run; what is no literal stays text, and so
//! does what differs from case to case.

mod arithmetic;
mod branches;
mod tokens;

use std::collections::HashMap;

use serde_json::{Map, Value};

use arithmetic::Part;
use branches::Branches;
use tokens::{Kind, Token, tokens};

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

/// Reads a text. What is not Python is passed over. `holds` says of a condition whether it holds, where that is known.
pub(in crate::import) fn read(text: &str, holds: &dyn Fn(&str) -> Option<bool>) -> Script {
    let tokens = tokens(text);
    let mut reader = Reader {
        text,
        tokens: &tokens,
        at: 0,
        names: HashMap::new(),
        copied: 0,
        branches: Branches::default(),
        holds,
        script: Script::default(),
    };
    while reader.at < tokens.len() {
        let before = reader.at;
        reader.statement();
        if reader.at == before {
            reader.at += 1;
        }
    }
    reader.script
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
    /// The branches that the statement lies in.
    branches: Branches,
    /// Whether a condition holds.
    holds: &'t dyn Fn(&str) -> Option<bool>,
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
        let (calls, given) = (self.script.calls.len(), self.script.given.len());
        if let Some(column) = self.column() {
            self.branch(column);
        }
        self.assignment();
        if self.branches.are_passed_over() {
            self.script.calls.truncate(calls);
            self.script.given.truncate(given);
        }
    }

    /// How far a statement is from the beginning of its line; nothing where it is not the first of it.
    fn column(&self) -> Option<usize> {
        let is_first = self.at.checked_sub(1).is_none_or(|before| self.tokens[before].kind == Kind::End);
        let token = self.tokens.get(self.at).filter(|token| is_first && token.kind != Kind::End)?;
        let line = self.text.get(..token.from)?;
        Some(line.len() - line.rfind('\n').map_or(0, |end| end + 1))
    }

    /// Enters the branch of an `if` that begins here, and leaves those that end.
    fn branch(&mut self, column: usize) {
        let word = self.word();
        self.branches.leave(column, ["elif", "else"].contains(&word));
        if !["if", "elif", "else"].contains(&word) {
            return;
        }
        self.at += 1;
        let from = self.at;
        self.expression(0);
        let condition = self.source(from);
        let holds = if word == "else" { Some(true) } else { (self.holds)(condition) };
        if word == "if" {
            self.branches.enter(column, holds)
        } else {
            self.branches.next(column, holds)
        }
        self.at += usize::from(self.is(':'));
    }

    /// The name that stands here.
    fn word(&self) -> &'t str {
        let name = self.tokens.get(self.at).filter(|token| token.kind == Kind::Name);
        name.and_then(|token| self.text.get(token.from..token.to)).unwrap_or_default()
    }

    fn assignment(&mut self) {
        let from = self.at;
        self.expression(0);
        // `name: type = value`
        if self.is(':') {
            self.at += 1;
            self.expression(0);
        }
        let mut targets = vec![self.source(from).split(':').next().unwrap_or_default().trim().to_owned()];
        // `first, second = values`
        while self.is(',') {
            self.at += 1;
            let from = self.at;
            self.expression(0);
            targets.push(self.source(from).trim().to_owned());
        }
        if !self.is('=') {
            return;
        }
        let mut values = Vec::new();
        while self.is(if values.is_empty() { '=' } else { ',' }) {
            self.at += 1;
            values.push(self.expression(0));
        }
        if targets.len() != values.len() {
            return;
        }
        for (target, value) in targets.into_iter().zip(values) {
            if !target.contains(['(', '\n']) {
                self.name(&target, &value);
                self.script.given.push((target, value));
            }
        }
    }

    /// Gives a name a value. Where that happens in one case and not in the other, the name stands for itself with a word on that.
    fn name(&mut self, target: &str, value: &Value) {
        if self.branches.are_passed_over() || size(value) > LARGEST_NAMED {
            return;
        }
        let differs = self.names.get(target).is_some_and(|before| before != value);
        let value = match differs && self.branches.are_open() {
            true => format!("{target}, which differs from case to case").into(),
            false => value.clone(),
        };
        match self.member(target) {
            Some(member) => *member = value,
            None => drop(self.names.insert(target.to_owned(), value)),
        }
    }

    /// The place of `table["member"]` in the table of that name.
    fn member(&mut self, target: &str) -> Option<&mut Value> {
        let (table, member) = target.strip_suffix(']')?.split_once('[')?;
        let member = member.trim_matches(['"', '\'']);
        let table = self.names.get_mut(table)?.as_object_mut()?;
        (table.len() < LARGEST_NAMED).then(|| table.entry(member).or_insert(Value::Null))
    }

    /// An expression up to what ends it: its value where it is a literal, a name that was given one, or a table.
    fn expression(&mut self, depth: usize) -> Value {
        let from = self.at;
        let mut value = None;
        let mut parts = 0_usize;
        // as long as it is a sum or a product of numbers
        let (mut sum, mut is_sum) = (Vec::new(), true);
        loop {
            match self.kind() {
                Kind::End => break,
                Kind::Mark(',' | ')' | ']' | '}' | '=' | ':' | ';') => break,
                Kind::Name if parts > 0 && self.word() == "else" => break,
                Kind::Name if parts > 0 && self.word() == "if" && depth < DEEPEST => {
                    let first = value.take().filter(|_| parts == 1);
                    value = self.either(first, depth);
                    (parts, is_sum) = (1, false);
                    break;
                }
                Kind::Mark('-') if parts == 0 => {
                    self.at += 1;
                    if let Kind::Number(number) = self.kind() {
                        self.at += 1;
                        value = number.as_f64().map(|number| Value::from(-number));
                        sum.push(Part::Mark('-'));
                        sum.extend(number.as_f64().map(Part::Number));
                        parts += 1;
                        continue;
                    }
                    (parts, is_sum) = (parts + 1, false);
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
                    match value.as_ref().and_then(Value::as_f64) {
                        Some(number) => sum.push(Part::Number(number)),
                        None => is_sum = false,
                    }
                    parts += 1;
                }
                Kind::Mark(mark @ ('+' | '-' | '*' | '/')) => {
                    sum.push(Part::Mark(*mark));
                    self.at += 1;
                    parts += 1;
                }
                Kind::Stars => {
                    sum.push(Part::Mark('^'));
                    self.at += 1;
                    parts += 1;
                }
                Kind::Mark(_) | Kind::Operator | Kind::Formatted => {
                    self.at += 1;
                    (parts, is_sum) = (parts + 1, false);
                }
            }
        }
        match value {
            Some(value) if parts == 1 => value,
            _ if is_sum => arithmetic::value(&sum).unwrap_or_else(|| self.source(from).into()),
            _ => Value::String(self.source(from).to_owned()),
        }
    }

    /// `first if condition else second`: the one that is taken, where that is known.
    fn either(&mut self, first: Option<Value>, depth: usize) -> Option<Value> {
        self.at += 1;
        let from = self.at;
        self.expression(depth + 1);
        let holds = (self.holds)(self.source(from));
        let second = (self.word() == "else").then(|| {
            self.at += 1;
            self.expression(depth + 1)
        });
        if holds? { first } else { second }
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
            Kind::Stars | Kind::Operator | Kind::Formatted | Kind::End => None,
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
mod tests;
