//! Why a text is no value of an input.

use std::fmt;

use crate::issue::Issue;
use crate::scenario::{ParseLengthsError, UnknownModule};
use crate::units::ParseBytesError;

/// Why a text is no value of an input: one clause, without the input's name and without what would be right, which
/// [`Key::read`](super::Key::read) adds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidValue(String);

impl InvalidValue {
    pub(super) fn new(clause: impl Into<String>) -> InvalidValue {
        InvalidValue(clause.into())
    }
}

impl fmt::Display for InvalidValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for InvalidValue {}

impl From<Issue> for InvalidValue {
    fn from(issue: Issue) -> InvalidValue {
        InvalidValue::new(issue.to_string())
    }
}

impl From<ParseBytesError> for InvalidValue {
    fn from(error: ParseBytesError) -> InvalidValue {
        InvalidValue::new(error.to_string())
    }
}

impl From<ParseLengthsError> for InvalidValue {
    fn from(error: ParseLengthsError) -> InvalidValue {
        InvalidValue::new(error.to_string())
    }
}

impl From<UnknownModule> for InvalidValue {
    fn from(error: UnknownModule) -> InvalidValue {
        InvalidValue::new(error.to_string())
    }
}
