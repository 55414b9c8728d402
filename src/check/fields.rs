//! The members of a measured row, each read as what it must be.

use serde_json::Value;

use super::error::CheckError;
use crate::scenario::choices::Slug;
use crate::text::short;
use crate::units::Bytes;

/// A measured figure; `None` where it is null or left out.
pub(super) fn bytes(row: &Value, pointer: &str) -> Result<Option<Bytes>, CheckError> {
    match row.pointer(pointer).filter(|value| !value.is_null()) {
        None => Ok(None),
        Some(value) => match value.as_u64() {
            Some(0) | None => {
                let key = pointer.replace('/', ".");
                Err(format!("{} is {value} where a number of bytes belongs", &key[1..]).into())
            }
            Some(bytes) => Ok(Some(Bytes(bytes))),
        },
    }
}

/// The keys of a case, and which of them were read.
pub(super) struct Fields<'a> {
    case: &'a Value,
    seen: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    /// Those of a case, but for keys that are passed over.
    pub fn of(case: &'a Value, passed_over: &[&'static str]) -> Fields<'a> {
        Fields { case, seen: passed_over.to_vec() }
    }

    /// The value of a key; `None` where it is null or left out.
    pub fn get(&mut self, key: &'static str) -> Option<&'a Value> {
        self.seen.push(key);
        self.case.get(key).filter(|value| !value.is_null())
    }

    pub fn text(&mut self, key: &'static str) -> Result<Option<&'a str>, CheckError> {
        self.typed(key, "a text", Value::as_str)
    }

    pub fn text_or(&mut self, key: &'static str, default: &'static str) -> Result<&'a str, CheckError> {
        Ok(self.text(key)?.unwrap_or(default))
    }

    /// The choice that a text names; the usual one where nothing is said.
    pub fn choice<T: Slug>(&mut self, key: &'static str, usual: T) -> Result<T, CheckError> {
        match self.text(key)? {
            None => Ok(usual),
            Some(slug) => T::from_slug(slug).ok_or_else(|| unknown(key, slug)),
        }
    }

    pub fn switch(&mut self, key: &'static str, default: bool) -> Result<bool, CheckError> {
        Ok(self.typed(key, "true or false", Value::as_bool)?.unwrap_or(default))
    }

    pub fn count(&mut self, key: &'static str, default: u64) -> Result<u64, CheckError> {
        Ok(self.typed(key, "a whole number", Value::as_u64)?.unwrap_or(default))
    }

    pub fn probability(&mut self, key: &'static str) -> Result<Option<f64>, CheckError> {
        let probability = |value: &Value| value.as_f64().filter(|p| (0.0..=1.0).contains(p));
        self.typed(key, "a probability", probability)
    }

    /// The value of a key as one of its type.
    pub fn typed<T>(
        &mut self,
        key: &'static str,
        what: &str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, CheckError> {
        let wrong = |value: &Value| {
            CheckError::from(format!("{key} is {} where {what} belongs", short(&value.to_string())))
        };
        self.get(key).map(|value| read(value).ok_or_else(|| wrong(value))).transpose()
    }

    /// An issue where a key was not read.
    pub fn nothing_is_left(&self) -> Result<(), CheckError> {
        let keys = self.case.as_object().into_iter().flat_map(|map| map.iter());
        match keys.filter(|(_, value)| !value.is_null()).find(|(key, _)| !self.seen.contains(&key.as_str())) {
            Some((key, _)) => Err(format!("the key {key:?} is unknown").into()),
            None => Ok(()),
        }
    }
}

/// The issue of a value that a scenario has no word for.
pub(super) fn unknown(key: &str, value: impl std::fmt::Display) -> CheckError {
    format!("{key} {value} is not modelled").into()
}
