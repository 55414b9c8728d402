//! Python's pickles, as far as they are made of numbers, texts, lists, tuples and dictionaries.
//!
//! Nothing that a pickle names is looked up or run. Values lie in one place and name each other by number: what a pickle
//! says a thousand times takes the room of one, and one that contains itself is no loop.

use super::TraceError;

/// A value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value<'a> {
    /// A whole number.
    Int(i64),
    /// A text.
    Text(&'a [u8]),
    /// A list or a tuple, by its number.
    List(usize),
    /// A dictionary, by its number.
    Dict(usize),
    /// Anything else that can be read: nothing, a truth value, a fraction.
    Other,
}

/// The most values that a pickle may have: some hundred MB of them.
const MOST: usize = 40_000_000;

/// What was read.
#[derive(Debug, Default)]
pub(super) struct Pickle<'a> {
    lists: Vec<Vec<Value<'a>>>,
    dicts: Vec<Vec<(Value<'a>, Value<'a>)>>,
}

impl<'a> Pickle<'a> {
    /// The items of a list; none of anything else.
    pub fn items(&self, value: Value<'a>) -> &[Value<'a>] {
        match value {
            Value::List(number) => self.lists.get(number).map_or(&[], Vec::as_slice),
            Value::Int(_) | Value::Text(_) | Value::Dict(_) | Value::Other => &[],
        }
    }

    /// What a dictionary says of a key.
    pub fn get(&self, value: Value<'a>, key: &str) -> Option<Value<'a>> {
        let Value::Dict(number) = value else { return None };
        let mut pairs = self.dicts.get(number)?.iter().rev();
        pairs.find(|(own, _)| *own == Value::Text(key.as_bytes())).map(|(_, value)| *value)
    }

    /// A number that a dictionary has; 0 where it has none.
    pub fn number(&self, value: Value<'a>, key: &str) -> u64 {
        match self.get(value, key) {
            Some(Value::Int(number)) => u64::try_from(number).unwrap_or_default(),
            Some(Value::Text(_) | Value::List(_) | Value::Dict(_) | Value::Other) | None => 0,
        }
    }

    /// Whether a dictionary says that text of a key.
    pub fn says(&self, value: Value<'a>, key: &str, text: &str) -> bool {
        self.get(value, key) == Some(Value::Text(text.as_bytes()))
    }
}

/// What reads a pickle: a machine with a stack.
struct Machine<'a> {
    rest: &'a [u8],
    stack: Vec<Value<'a>>,
    marks: Vec<usize>,
    memo: Vec<Value<'a>>,
    values: usize,
    pickle: Pickle<'a>,
}

/// Reads a pickle: its values, and the one that it is.
pub(super) fn read(bytes: &[u8]) -> Result<(Pickle<'_>, Value<'_>), TraceError> {
    let mut machine = Machine {
        rest: bytes,
        stack: Vec::new(),
        marks: Vec::new(),
        memo: Vec::new(),
        values: 0,
        pickle: Pickle::default(),
    };
    loop {
        match machine.step() {
            Some(true) => {}
            Some(false) => break,
            None if machine.rest.is_empty() => return Err(TraceError::EndsEarly),
            None => return Err(TraceError::NotUnderstood(bytes.len() - machine.rest.len())),
        }
        if machine.values > MOST {
            return Err(TraceError::TooLarge);
        }
    }
    let value = machine.stack.pop().ok_or(TraceError::EndsEarly)?;
    Ok((machine.pickle, value))
}

impl<'a> Machine<'a> {
    /// Obeys one instruction; `Some(false)` at the last one, nothing where it is not understood. The instructions are those
    /// of Lib/pickletools.py.
    fn step(&mut self) -> Option<bool> {
        let [code] = self.array()?;
        match code {
            // PROTO, FRAME: nothing to do but to skip what they say
            0x80 => drop(self.array::<1>()?),
            0x95 => drop(self.array::<8>()?),
            // MARK, STOP, POP, POP_MARK
            b'(' => self.marks.push(self.stack.len()),
            b'.' => return Some(false),
            b'0' => drop(self.stack.pop()?),
            b'1' => drop(self.since_mark()?),
            // NONE, NEWTRUE, NEWFALSE, BINFLOAT
            b'N' | 0x88 | 0x89 => self.push(Value::Other),
            b'G' => {
                self.array::<8>()?;
                self.push(Value::Other);
            }
            // BININT, BININT1, BININT2, LONG1
            b'J' => {
                let number = i32::from_le_bytes(self.array()?);
                self.push(Value::Int(number.into()));
            }
            b'K' => {
                let [number] = self.array()?;
                self.push(Value::Int(number.into()));
            }
            b'M' => {
                let number = u16::from_le_bytes(self.array()?);
                self.push(Value::Int(number.into()));
            }
            0x8a => {
                let [length] = self.array()?;
                let number = self.take(length.into())?;
                self.push(long(number));
            }
            // SHORT_BINUNICODE, BINUNICODE, BINUNICODE8, SHORT_BINBYTES, BINBYTES
            0x8c | b'C' => {
                let [length] = self.array()?;
                self.text(length.into())?;
            }
            b'X' | b'B' => {
                let length = u32::from_le_bytes(self.array()?);
                self.text(length as usize)?;
            }
            0x8d => {
                let length = u64::from_le_bytes(self.array()?);
                self.text(usize::try_from(length).ok()?)?;
            }
            // EMPTY_LIST, EMPTY_TUPLE, EMPTY_DICT
            b']' | b')' => self.list(Vec::new()),
            b'}' => {
                self.pickle.dicts.push(Vec::new());
                self.push(Value::Dict(self.pickle.dicts.len() - 1));
            }
            // TUPLE1, TUPLE2, TUPLE3, TUPLE, LIST
            0x85..=0x87 => {
                let from = self.stack.len().checked_sub(usize::from(code) - 0x84)?;
                let items = self.stack.split_off(from);
                self.list(items);
            }
            b't' | b'l' => {
                let items = self.since_mark()?;
                self.list(items);
            }
            // APPEND, APPENDS, SETITEM, SETITEMS, DICT
            b'a' => {
                let item = self.stack.pop()?;
                self.extend(&[item])?;
            }
            b'e' => {
                let items = self.since_mark()?;
                self.extend(&items)?;
            }
            b's' => {
                let from = self.stack.len().checked_sub(2)?;
                let pair = self.stack.split_off(from);
                self.set(&pair)?;
            }
            b'u' => {
                let pairs = self.since_mark()?;
                self.set(&pairs)?;
            }
            b'd' => {
                let pairs = self.since_mark()?;
                self.pickle.dicts.push(Vec::new());
                self.push(Value::Dict(self.pickle.dicts.len() - 1));
                self.set(&pairs)?;
            }
            // MEMOIZE, BINPUT, LONG_BINPUT
            0x94 => self.keep(self.memo.len())?,
            b'q' => {
                let [place] = self.array()?;
                self.keep(place.into())?;
            }
            b'r' => {
                let place = u32::from_le_bytes(self.array()?);
                self.keep(place as usize)?;
            }
            // BINGET, LONG_BINGET
            b'h' => {
                let [place] = self.array()?;
                self.push(*self.memo.get(usize::from(place))?);
            }
            b'j' => {
                let place = u32::from_le_bytes(self.array()?);
                self.push(*self.memo.get(place as usize)?);
            }
            _ => return None,
        }
        Some(true)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*array)
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(taken)
    }

    fn push(&mut self, value: Value<'a>) {
        self.values += 1;
        self.stack.push(value);
    }

    fn text(&mut self, length: usize) -> Option<()> {
        let text = self.take(length)?;
        self.push(Value::Text(text));
        Some(())
    }

    fn list(&mut self, items: Vec<Value<'a>>) {
        self.pickle.lists.push(items);
        self.push(Value::List(self.pickle.lists.len() - 1));
    }

    fn since_mark(&mut self) -> Option<Vec<Value<'a>>> {
        let from = self.marks.pop().filter(|from| *from <= self.stack.len())?;
        Some(self.stack.split_off(from))
    }

    fn extend(&mut self, items: &[Value<'a>]) -> Option<()> {
        let Value::List(number) = *self.stack.last()? else { return None };
        self.pickle.lists.get_mut(number)?.extend(items);
        Some(())
    }

    fn set(&mut self, pairs: &[Value<'a>]) -> Option<()> {
        let Value::Dict(number) = *self.stack.last()? else { return None };
        let dict = self.pickle.dicts.get_mut(number)?;
        dict.extend(pairs.chunks_exact(2).map(|pair| (pair[0], pair[1])));
        Some(())
    }

    /// Keeps the last value under a number. They are given one after the other, though a hostile file may leave some out.
    fn keep(&mut self, place: usize) -> Option<()> {
        let value = *self.stack.last()?;
        if place == self.memo.len() {
            self.memo.push(value);
        } else {
            *self.memo.get_mut(place)? = value;
        }
        Some(())
    }
}

/// A long number, lowest byte first, with a sign; what is longer than 8 bytes is no size of anything.
fn long(bytes: &[u8]) -> Value<'static> {
    let fill = if bytes.last().is_some_and(|byte| *byte >= 0x80) { 0xff } else { 0 };
    let mut number = [fill; 8];
    for (place, byte) in bytes.iter().enumerate() {
        match number.get_mut(place) {
            Some(own) => *own = *byte,
            None if *byte == fill => {}
            None => return Value::Other,
        }
    }
    Value::Int(i64::from_le_bytes(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_python_writes_is_read() {
        // pickle.dumps({"a": [1, 300, -5, 2**40], "b": ("x", None, True, 0.5)}, protocol=4)
        let bytes = b"\x80\x04\x950\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x01a\x94]\x94(K\x01M,\x01J\xfb\xff\xff\xff\x8a\x06\x00\x00\x00\x00\x00\x01e\x8c\x01b\x94(\x8c\x01x\x94N\x88G?\xe0\x00\x00\x00\x00\x00\x00t\x94u.";
        let (pickle, root) = read(bytes).unwrap();
        let list = pickle.get(root, "a").unwrap();
        assert_eq!(pickle.items(list), [1, 300, -5, 1 << 40].map(Value::Int));
        let tuple = pickle.get(root, "b").unwrap();
        assert_eq!(pickle.items(tuple), [Value::Text(b"x"), Value::Other, Value::Other, Value::Other]);
        assert_eq!(pickle.number(root, "b"), 0);
    }

    #[test]
    fn hostile_pickles_end() {
        for (bytes, error) in [
            (&b""[..], TraceError::EndsEarly),
            (b"\x80\x04", TraceError::EndsEarly),
            (b".", TraceError::EndsEarly),
            (b"cos\nsystem\n", TraceError::NotUnderstood(1)),
            (b"a", TraceError::EndsEarly),
            (b"Ke", TraceError::EndsEarly),
            (b"]h\x09.", TraceError::NotUnderstood(3)),
            (b"]r\xff\xff\xff\xff.", TraceError::NotUnderstood(6)),
            (b"X\xff\xff\xff\xffabc", TraceError::NotUnderstood(5)),
        ] {
            assert_eq!(read(bytes).map(|(_, value)| value), Err(error), "{bytes:?}");
        }
        // a list that holds itself, and one a million deep
        assert!(read(b"]q\x00h\x00a.").is_ok());
        let deep = [vec![b']'; 1_000_000], vec![b'a'; 999_999], vec![b'.']].concat();
        assert!(read(&deep).is_ok());
    }
}
