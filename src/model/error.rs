//! What is wrong with a model.

use std::fmt;

/// What is wrong with a model: with its name, its `config.json` or its dimensions.
///
/// ```
/// let config = r#"{"model_type": "llama", "hidden_size": "wide"}"#;
/// let error = headroom::model::read::parse(config).unwrap_err();
/// assert_eq!(error.place(), Some("hidden_size"));
/// assert_eq!(error.to_string(), "hidden_size is the text \"wide\" where a whole number of a sensible size belongs");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelError {
    place: Option<String>,
    problem: String,
    fix: Option<String>,
}

impl ModelError {
    /// A clause on the model as a whole.
    pub(crate) fn new(problem: impl Into<String>) -> ModelError {
        ModelError { place: None, problem: problem.into(), fix: None }
    }

    /// A clause whose subject is one key of the config.
    pub(crate) fn at(place: impl Into<String>, problem: impl Into<String>) -> ModelError {
        ModelError { place: Some(place.into()), ..ModelError::new(problem) }
    }

    /// The error with what would be right.
    pub(crate) fn with_fix(self, fix: impl Into<String>) -> ModelError {
        ModelError { fix: Some(fix.into()), ..self }
    }

    /// The key of the config that is wrong, with the path to it: `text_config.hidden_size`. None where the model as a whole
    /// is.
    pub fn place(&self) -> Option<&str> {
        self.place.as_deref()
    }

    /// What is wrong: one clause that begins with the key, where one key is wrong.
    pub fn message(&self) -> String {
        match &self.place {
            Some(place) => format!("{place} {}", self.problem),
            None => self.problem.clone(),
        }
    }

    /// What would be right, where one can say.
    pub fn fix(&self) -> Option<&str> {
        self.fix.as_deref()
    }
}

impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message())?;
        match &self.fix {
            Some(fix) => write!(f, " ({fix})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for ModelError {}
