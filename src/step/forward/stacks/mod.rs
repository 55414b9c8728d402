//! Other projects' code for the same models: the same tape, other operations.
//!
//! A stack is two things: the modules as that project writes them (its description of a block, derived here from
//! transformers' own, and its forward pass) and its way from the last hidden state to the loss.

mod litgpt;

use std::borrow::Cow;

use crate::model::Architecture;
use crate::scenario::{Issue, Scenario, Stack};

/// The architecture as the scenario's stack builds it.
///
/// # Errors
/// An [`Issue`] where the stack has no such model.
pub(in crate::step) fn architecture<'a>(
    architecture: &'a Architecture,
    scenario: &Scenario,
) -> Result<Cow<'a, Architecture>, Issue> {
    match scenario.stack {
        Stack::Transformers => Ok(Cow::Borrowed(architecture)),
        Stack::Litgpt => litgpt::architecture(architecture).map(Cow::Owned),
    }
}
