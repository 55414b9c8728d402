//! Why a measurement is left out.

use std::fmt;

use crate::issue::Issue;

/// Why a measurement cannot be read or predicted: one clause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckError(String);

impl From<String> for CheckError {
    fn from(reason: String) -> CheckError {
        CheckError(reason)
    }
}

impl From<&str> for CheckError {
    fn from(reason: &str) -> CheckError {
        CheckError(reason.to_owned())
    }
}

impl From<Issue> for CheckError {
    fn from(issue: Issue) -> CheckError {
        CheckError(issue.to_string())
    }
}

impl fmt::Display for CheckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CheckError {}
