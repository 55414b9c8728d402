//! Other projects' code for the same models: the same tape, other operations.
//!
//! A stack is two things: the modules as that project writes them (its description of a block, derived here from
//! transformers' own, and its forward pass) and its way from the last hidden state to the loss.

mod litgpt;

use std::borrow::Cow;

use super::families::Code;
use super::load;
use crate::model::{Architecture, Objective};
use crate::scenario::{Field, Issue, LossKernel, Scenario, Stack};

/// The architecture as the scenario's stack builds it.
///
/// # Errors
/// An [`Issue`] where the stack has no such model, or no such loss for it.
pub(in crate::step) fn architecture<'a>(
    architecture: &'a Architecture,
    scenario: &Scenario,
) -> Result<Cow<'a, Architecture>, Issue> {
    loss(architecture, scenario)?;
    match scenario.stack {
        Stack::Transformers => Ok(Cow::Borrowed(architecture)),
        Stack::Litgpt => litgpt::architecture(architecture).map(Cow::Owned),
    }
}

/// Refuses a loss that the stack's code for that model cannot be given.
fn loss(architecture: &Architecture, scenario: &Scenario) -> Result<(), Issue> {
    let kernel = scenario.savings.loss;
    let head = architecture.head.linear.name;
    let without = match (scenario.stack, Code::of(&architecture.model_type), kernel) {
        (_, _, LossKernel::Standard) => return Ok(()),
        (Stack::Litgpt, _, _) => "litgpt, whose own loss runs in pieces of 128 tokens".to_owned(),
        (Stack::Transformers, Code::Qwen, _) => "the code of its own that this model brings".to_owned(),
        (Stack::Transformers, _, _) if architecture.head.objective != Objective::CausalLm => {
            "a masked language model".to_owned()
        }
        (Stack::Transformers, _, LossKernel::Liger | LossKernel::Cut)
            if load::adapts_head(scenario, head) =>
        {
            "an adapter on the output head, which it would leave out".to_owned()
        }
        (Stack::Transformers, _, LossKernel::Liger | LossKernel::Cut | LossKernel::Chunked) => return Ok(()),
    };
    let message = format!("the loss {:?} does not go with {without}", kernel.label());
    Err(Issue::error(Field::Loss, message).with_fix("choose the standard loss"))
}
