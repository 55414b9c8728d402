//! What can be trained on a card: models × methods, each with the largest micro-batch.

use serde::{Deserialize, Serialize};

use super::solve::{Largest, Most, most_batch};
use crate::hardware::Gpu;
use crate::issue::{Issue, Severity};
use crate::model::Architecture;
use crate::scenario::{GpuChoice, Method, ModelChoice, Scenario};
use crate::units::Bytes;

/// One cell of the table.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub enum FitCell {
    /// It runs.
    Fits {
        /// The largest micro-batch.
        batch: u64,
        /// The scenario with that batch, and with expandable segments if it takes them: what a click opens.
        scenario: Box<Scenario>,
    },
    /// Not even one sequence fits.
    TooLarge {
        /// What one sequence needs.
        needed: Bytes,
    },
    /// There is no answer, and why.
    Unknown(Issue),
}

/// One model of the table.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct FitRow {
    /// What it is called: the Hub id of a model of the catalogue.
    pub model: String,
    /// One cell per method, in the order of [`Method::ALL`].
    pub cells: Vec<FitCell>,
}

/// The table for an amount of memory. Sequence length, checkpointing and all that is no matter of the method are the
/// base's; so is the card where its memory is just that.
pub fn table(models: &[&str], base: &Scenario, memory: Bytes) -> Vec<FitRow> {
    let named = |model: &&str| {
        row(&Scenario { model: ModelChoice::Catalogue((*model).to_owned()), ..base.clone() }, memory)
    };
    models.iter().map(named).collect()
}

/// The row of that table for the base's own model.
pub fn row(base: &Scenario, memory: Bytes) -> FitRow {
    let own = base.gpu().is_ok_and(|gpu| gpu.memory == memory);
    let gpu = if own { base.gpu.clone() } else { GpuChoice::Custom(memory) };
    let base = Scenario { gpu, batch: 1, ..base.clone() };
    let found = base.architecture().and_then(|architecture| Ok((architecture, base.gpu()?)));
    let cell = |method: &Method| match &found {
        Ok((architecture, gpu)) => {
            cell(architecture, gpu, with_method(&base, *method)).unwrap_or_else(FitCell::Unknown)
        }
        Err(issue) => FitCell::Unknown(issue.clone()),
    };
    FitRow { model: base.model_name(), cells: Method::ALL.iter().map(cell).collect() }
}

fn cell(architecture: &Architecture, gpu: &Gpu, mut scenario: Scenario) -> Result<FitCell, Issue> {
    if let Some(issue) = scenario.validate().into_iter().find(|issue| issue.severity == Severity::Error) {
        return Err(issue);
    }
    Ok(match most_batch(architecture, &scenario, gpu)? {
        Most::Runs(Largest { number: batch, allocator }) => {
            scenario.batch = batch;
            scenario.allocator = allocator;
            FitCell::Fits { batch, scenario: Box::new(scenario) }
        }
        Most::TooLarge { needed } => FitCell::TooLarge { needed },
    })
}

/// The scenario with another method, and the precision and optimizer that people use with it in this stack; as it is
/// where the method is its own.
pub fn with_method(scenario: &Scenario, method: Method) -> Scenario {
    if scenario.method == method {
        return scenario.clone();
    }
    let Scenario { precision, optimizer, .. } = Scenario::default();
    Scenario { method, precision, optimizer, ..scenario.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Optimizer, Precision};

    #[test]
    fn a_method_brings_its_precision() {
        let base = Scenario {
            method: Method::Full,
            precision: Precision::Fp32,
            optimizer: Optimizer::Sgd,
            sequence: 512,
            ..Scenario::default()
        };
        assert_eq!(with_method(&base, Method::Full), base);
        let lora = with_method(&base, Method::Lora);
        assert_eq!(lora.precision, Precision::AmpBf16Weights);
        assert_eq!((lora.optimizer, lora.sequence), (Optimizer::AdamWFused, 512));
    }

    #[test]
    fn an_unknown_model_is_a_row_that_says_so() {
        let rows = table(&["nobody/nothing"], &Scenario::default(), Bytes::mib(24_576));
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].cells.len(), Method::ALL.len());
        assert!(rows[0].cells.iter().all(|cell| matches!(cell, FitCell::Unknown(_))));
    }
}
