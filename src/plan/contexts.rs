//! How many sequences of what length a card generates for at once: batches × contexts.

use serde::{Deserialize, Serialize};

use super::answer::Answer;
use super::verdict::Verdict;
use crate::issue::Issue;
use crate::scenario::{Field, Scenario, Task};
use crate::units::{Bytes, grouped};

/// Sequences in parallel: the columns.
pub const BATCHES: [u64; 7] = [1, 2, 4, 8, 16, 32, 64];

/// Tokens of a sequence when its last token is there, those of the prompt and those that are new: the rows.
pub const CONTEXTS: [u64; 9] = [512, 1_024, 2_048, 4_096, 8_192, 16_384, 32_768, 65_536, 131_072];

/// What so many sequences of such a length need.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct ContextCell {
    /// Of the card.
    pub needed: Bytes,
    /// Whether it gets through, as far as its tensors say.
    pub verdict: Verdict,
    /// The scenario.
    pub scenario: Scenario,
}

/// A length and what every batch of it needs.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct ContextRow {
    /// Tokens of a sequence in the end.
    pub context: u64,
    /// One cell per batch, in the order of [`BATCHES`], or why there is none.
    pub cells: Vec<Result<ContextCell, Issue>>,
}

/// Generation of as many new tokens as the scenario asks for, after prompts that make up the rest of each length; no longer than
/// the model's positions. A scenario that trains is asked as what it would be if it generated.
///
/// # Errors
/// An [`Issue`] on [`Field::NewTokens`] where these are as many as the longest length has tokens; on [`Field::Model`] where the
/// model has no positions for the shortest; and where generation is refused whatever the number and length of its sequences, as on several
/// GPUs, what refuses it.
///
/// ```
/// use headroom::plan::{BATCHES, contexts};
/// use headroom::scenario::{Method, Precision, Scenario, Task};
///
/// let scenario =
///     Scenario { task: Task::Generate, method: Method::Full, precision: Precision::Bf16, ..Scenario::default() };
/// let rows = contexts(&scenario)?;
/// let needed = |row: usize, batch: usize| rows[row].cells[batch].as_ref().expect("it is modelled").needed;
/// assert_eq!(rows[0].cells.len(), BATCHES.len());
/// assert!(needed(0, 0) < needed(0, 6) && needed(0, 0) < needed(3, 0));
/// # Ok::<(), headroom::scenario::Issue>(())
/// ```
pub fn contexts(base: &Scenario) -> Result<Vec<ContextRow>, Issue> {
    let base = generating(base);
    let most = base.positions().unwrap_or(u64::MAX);
    let new = base.generation.new_tokens;
    let lengths = || CONTEXTS.into_iter().filter(|context| *context <= most);
    let with =
        |context: u64, batch| Scenario { batch, sequence: context.saturating_sub(new), ..base.clone() };
    let longer = || lengths().filter(|context| *context > new);
    // what is refused from the first to the last, whatever their number and length, is not looked at one by one
    if let (Some(first), Some(last)) = (longer().min(), longer().max())
        && let (Err(one), Err(other)) =
            (cell(with(first, BATCHES[0])), cell(with(last, BATCHES[BATCHES.len() - 1])))
        && one == other
    {
        return Err(one);
    }
    let rows = longer().map(|context| {
        let cells = BATCHES.map(|batch| cell(with(context, batch)));
        ContextRow { context, cells: cells.into() }
    });
    let rows: Vec<_> = rows.collect();
    if rows.is_empty() { Err(without_prompt(new, lengths().max())) } else { Ok(rows) }
}

/// Why no length has room for a prompt before so many new tokens; the longest length where there is one.
fn without_prompt(new: u64, longest: Option<u64>) -> Issue {
    match longest {
        Some(longest) => {
            let message = format!("{} new tokens leave nothing of any length to a prompt", grouped(new));
            Issue::error(Field::NewTokens, message).with_fix(format!("use fewer than {}", grouped(longest)))
        }
        None => Issue::error(Field::Model, "the model knows fewer positions than the shortest length has"),
    }
}

/// The scenario as one that generates, with what is usual for that where it trained.
pub(super) fn generating(base: &Scenario) -> Scenario {
    if base.task == Task::Generate {
        return base.clone();
    }
    let asked = Scenario { task: Task::Generate, ..base.clone() };
    let usual = asked.defaults();
    Scenario { stack: usual.stack, precision: usual.precision, ..asked }
}

fn cell(scenario: Scenario) -> Result<ContextCell, Issue> {
    cell_of(Answer::of_tensors(scenario))
}

/// What an answer says of what is needed, or why it has none.
pub(super) fn cell_of(answer: Answer) -> Result<ContextCell, Issue> {
    match (answer.fit(), answer.verdict()) {
        (Some(fit), Some(verdict)) => {
            Ok(ContextCell { needed: fit.needed, verdict, scenario: answer.scenario })
        }
        _ => Err(answer.refusal()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Needed, serving};
    use crate::share;

    /// One sentence in place of a table of it.
    #[test]
    fn what_is_refused_for_all_is_told_once() {
        let link = "task=generate&m=meta-llama/Llama-3.3-70B-Instruct&p=bf16&s=8192&gpu=rtx-6000-ada&gpus=2";
        let scenario = share::decode(link).scenarios.remove(0);
        let refused = contexts(&scenario).expect_err("generation on several GPUs is not modelled");
        assert_eq!(refused.field, Field::Gpus);
        let rows = serving(&scenario).expect("rows");
        assert_eq!(crate::plan::refused_alike(&rows), Some(&refused));
        let alone = Scenario { cluster: crate::scenario::Cluster::ONE, ..scenario };
        assert!(contexts(&alone).is_ok());
        let rows = serving(&alone).expect("rows");
        assert!(crate::plan::refused_alike(&rows).is_none());
        assert!(rows.iter().any(|row| matches!(row.needed, Needed::Followed(..))));
    }
}
