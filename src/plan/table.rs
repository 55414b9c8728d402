//! What can be trained on a card: models × methods, each with the largest micro-batch.

use serde::{Deserialize, Serialize};

use super::solve::{Largest, Most, most_batch};
use crate::hardware::Gpu;
use crate::issue::{Issue, Severity};
use crate::model::Architecture;
use crate::scenario::{Checkpointing, Cluster, GpuChoice, Method, ModelChoice, Scenario};
use crate::units::{Bytes, grouped};

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

/// What holds for every cell of a table, in two sentences: the rule of [`set_row`] and [`with_method`]. Where the scenario has
/// several GPUs, [`on_one`] of them.
pub fn conditions(base: &Scenario) -> String {
    let checkpointing = match base.checkpointing {
        Checkpointing::Off => "without gradient checkpointing",
        Checkpointing::Selective => "with recomputed attention",
        Checkpointing::NonReentrant | Checkpointing::Reentrant | Checkpointing::Offloaded => {
            "with gradient checkpointing"
        }
    };
    let half = if base.has_bfloat16() { "" } else { ", without bfloat16, which the card does not have" };
    let one = on_one(base).map_or_else(String::new, |words| format!("{words} "));
    format!(
        "{one}Sequences of {} tokens, or as many as the model has positions, {checkpointing}; the rest as in the scenario. Methods \
         other than its own, and what it leaves open, have the precision and optimizer that {} is usually run with{half}.",
        grouped(base.sequence),
        base.stack.label(),
    )
}

/// The table for an amount of memory: a [`row`] for each model.
pub fn table(models: &[&str], base: &Scenario, memory: Bytes) -> Vec<FitRow> {
    let named = |model: &&str| {
        row(&Scenario { model: ModelChoice::Catalogue((*model).to_owned()), ..base.clone() }, memory)
    };
    models.iter().map(named).collect()
}

/// The row of a scenario that says only some of its settings: those that are as [`Scenario::default`] has them are taken to
/// be left open ([`Scenario::filled`]). Where it is known what was said, fill the rest and ask for [`set_row`].
///
/// ```
/// use headroom::plan::{FitCell, row};
/// use headroom::{scenario::Scenario, units::Bytes};
///
/// let row = row(&Scenario::default(), Bytes::gib(24.0));
/// let [full, _, qlora] = &row.cells[..] else { panic!("a cell per method") };
/// assert!(matches!(full, FitCell::TooLarge { needed } if *needed > Bytes::gib(55.0)));
/// assert!(matches!(qlora, FitCell::Fits { .. }), "{qlora:?}");
/// ```
pub fn row(base: &Scenario, memory: Bytes) -> FitRow {
    row_of(base, memory, asked)
}

/// The row of a scenario whose settings are all chosen. All that is no matter of the method is the scenario's; so is the card
/// where its memory is just that, and sequences are no longer than the model's positions.
pub fn set_row(base: &Scenario, memory: Bytes) -> FitRow {
    row_of(base, memory, within_positions)
}

fn row_of(base: &Scenario, memory: Bytes, finished: fn(&Scenario) -> Scenario) -> FitRow {
    let own = base.gpu().is_ok_and(|gpu| gpu.memory == memory);
    let gpu = if own { base.gpu.clone() } else { GpuChoice::Custom(memory) };
    let base = Scenario { gpu, batch: 1, ..alone(base) };
    let found = base.architecture().and_then(|architecture| Ok((architecture, base.gpu()?)));
    let cell = |method: &Method| match &found {
        Ok((architecture, gpu)) => {
            cell(architecture, gpu, finished(&with_method(&base, *method))).unwrap_or_else(FitCell::Unknown)
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

/// The scenario on a single GPU, as cards and their prices are asked about.
pub(super) fn alone(scenario: &Scenario) -> Scenario {
    Scenario { cluster: Cluster { gpus: 1, ..scenario.cluster }, ..scenario.clone() }
}

/// The sentence that a table of single GPUs needs where the scenario has several.
pub fn on_one(scenario: &Scenario) -> Option<String> {
    let gpus = grouped(scenario.cluster.gpus);
    scenario.cluster.is_many().then(|| format!("For a single GPU, not for the {gpus} of the scenario."))
}

/// The scenario with another method, and with the precision and the optimizer that the training library is usually run
/// with for it on that card; as it is where the method is its own.
pub fn with_method(scenario: &Scenario, method: Method) -> Scenario {
    let mut other = Scenario { method, ..scenario.clone() };
    if scenario.method != method {
        let usual = other.defaults();
        other.precision = usual.precision;
        other.optimizer = usual.optimizer;
        other.savings.step = usual.savings.step;
        other.cluster.sharding = usual.cluster.sharding;
    }
    other
}

/// The scenario of which only model, method and card are given: what is as [`Scenario::default`]
/// has it is taken to be left open.
pub fn asked(scenario: &Scenario) -> Scenario {
    let plain = Scenario::default();
    within_positions(&scenario.filled(|key| !key.is_same(scenario, &plain)))
}

/// The scenario with sequences no longer than the model's positions, beyond which it fails or was never trained.
fn within_positions(scenario: &Scenario) -> Scenario {
    let most = scenario.positions().unwrap_or(scenario.sequence);
    Scenario { sequence: scenario.sequence.min(most), ..scenario.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Optimizer, Precision, Sharding, Stack};

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
    fn every_method_is_answered_in_the_library_of_the_scenario() {
        for stack in [Stack::Torchtune, Stack::Litgpt, Stack::Liger] {
            let base = Scenario { stack, ..Scenario::default() };
            let row = row(&base, Bytes::gib(80.));
            let answered = row.cells.iter().all(|cell| !matches!(cell, FitCell::Unknown(_)));
            assert!(answered, "{stack}: {row:?}");
        }
        let base = Scenario { stack: Stack::Unsloth, ..Scenario::default() };
        let row = row(&base, Bytes::gib(24.));
        assert!(matches!(row.cells[..], [FitCell::Unknown(_), _, FitCell::Fits { .. }]), "{row:?}");
    }

    #[test]
    fn cells_are_scenarios_that_run_as_they_are_asked_for() {
        let base = Scenario {
            model: ModelChoice::Catalogue("openai-community/gpt2".into()),
            gpu: GpuChoice::Catalogue("t4".into()),
            ..Scenario::default()
        };
        let row = row(&base, base.gpu().unwrap().memory);
        for cell in &row.cells {
            let FitCell::Fits { scenario, .. } = cell else { panic!("{cell:?}") };
            assert_eq!((scenario.precision, scenario.sequence), (Precision::AmpFp16, 1024));
            assert!(scenario.validate().is_empty(), "{:?}", scenario.validate());
        }
        // what was chosen stays, if it is as a link has it by default too
        let unsloth = Scenario { stack: Stack::Unsloth, method: Method::Lora, ..Scenario::default() };
        let optimizer = |row: FitRow| match &row.cells[1] {
            FitCell::Fits { scenario, .. } => scenario.optimizer,
            other => panic!("{other:?}"),
        };
        assert_eq!(optimizer(super::row(&unsloth, Bytes::gib(80.))), Optimizer::AdamW8bit);
        assert_eq!(optimizer(set_row(&unsloth, Bytes::gib(80.))), Optimizer::AdamWFused);
        let chosen = Scenario { precision: Precision::Bf16, sequence: 512, ..base };
        assert_eq!(asked(&chosen), chosen);
    }

    #[test]
    fn the_rule_is_said() {
        let text = conditions(&Scenario::default());
        assert!(text.starts_with("Sequences of 2,048 tokens") && !text.contains("bfloat16"), "{text}");
        let old = Scenario { gpu: GpuChoice::Catalogue("t4".into()), ..Scenario::default() };
        assert!(conditions(&old).contains("without bfloat16, which the card does not have"));
        let many = Scenario { cluster: EIGHT, ..Scenario::default() };
        assert!(conditions(&many).starts_with("For a single GPU, not for the 8 of the scenario. Sequences"));
    }

    const EIGHT: Cluster = Cluster { gpus: 8, sharding: Sharding::Fsdp2, ..Cluster::ONE };

    #[test]
    fn the_table_is_of_single_gpus() {
        let model = ModelChoice::Catalogue("Qwen/Qwen2.5-0.5B".into());
        let one = Scenario { model, method: Method::Full, precision: Precision::Bf16, ..Scenario::default() };
        let many = Scenario { cluster: EIGHT, ..one.clone() };
        let batches = |base: &Scenario| {
            set_row(base, Bytes::gib(24.))
                .cells
                .into_iter()
                .map(|cell| match cell {
                    FitCell::Fits { batch, scenario } => (batch, scenario.cluster.gpus),
                    other => panic!("{other:?}"),
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(batches(&many), batches(&one));
        // another method on the same GPUs is sharded as it usually is
        assert_eq!(with_method(&many, Method::Qlora).cluster, Cluster { sharding: Sharding::Ddp, ..EIGHT });
        assert_eq!(with_method(&many, Method::Full), many);
    }

    #[test]
    fn an_unknown_model_is_a_row_that_says_so() {
        let rows = table(&["nobody/nothing"], &Scenario::default(), Bytes::mib(24_576));
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].cells.len(), Method::ALL.len());
        assert!(rows[0].cells.iter().all(|cell| matches!(cell, FitCell::Unknown(_))));
    }
}
