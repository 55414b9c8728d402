//! Formats that transformers' own code computes from: what generating needs with each, by sequences at once.

use serde::{Deserialize, Serialize};

use crate::issue::Issue;
use crate::model::stored::Stored;
use crate::plan::answer::Answer;
use crate::plan::contexts::{ContextCell, cell_of, generating};
use crate::scenario::{Method, Precision, Scenario, WeightFormat};
use crate::units::Bytes;

/// Sequences at once: the columns.
pub const SEQUENCES: [u64; 3] = [1, 8, 32];

/// A format of a model's weights and what every number of sequences needs with it.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct FormatRow {
    /// Which model.
    pub model: String,
    /// Tokens of each prompt: as many as the model has positions for beside the new ones, where these are fewer than was asked.
    pub sequence: u64,
    /// The format.
    pub stored: Stored,
    /// Of the weights.
    pub weights: Bytes,
    /// One cell per number, in the order of [`SEQUENCES`], or why there is none.
    pub cells: Vec<Result<ContextCell, Issue>>,
}

/// The scenario with weights of a format that transformers' own code computes from.
pub(super) fn followed(base: &Scenario, stored: Stored) -> Answer {
    let mut scenario = base.clone();
    scenario.method = match stored {
        Stored::Int8 | Stored::Nf4 => Method::Qlora,
        Stored::Fp32
        | Stored::Half
        | Stored::Fp8
        | Stored::Q8
        | Stored::Q6
        | Stored::Q5
        | Stored::Q4
        | Stored::Gptq
        | Stored::Awq
        | Stored::Nvfp4
        | Stored::Mxfp4 => Method::Full,
    };
    let half = if base.precision == Precision::Fp16 || !base.has_bfloat16() {
        Precision::Fp16
    } else {
        Precision::Bf16
    };
    scenario.precision = if stored == Stored::Fp32 { Precision::Fp32 } else { half };
    scenario.quantization.format =
        if stored == Stored::Int8 { WeightFormat::Int8 } else { WeightFormat::Nf4 };
    Answer::of_tensors(scenario)
}

/// What transformers' `generate` needs of a scenario's model in every format that its own code computes from. A scenario that trains is
/// asked as what it would be if it generated.
///
/// # Errors
/// An [`Issue`] where the model is not known.
pub fn by_batch(base: &Scenario) -> Result<Vec<FormatRow>, Issue> {
    let base = generating(base);
    let architecture = base.architecture()?;
    let row = |stored: Stored| {
        let cell = |batch| cell_of(followed(&Scenario { batch, ..base.clone() }, stored));
        FormatRow {
            model: base.model_name(),
            sequence: base.sequence,
            stored,
            weights: stored.bytes(&architecture),
            cells: SEQUENCES.map(cell).into(),
        }
    };
    Ok(Stored::ALL.into_iter().filter(|stored| stored.is_followed()).map(row).collect())
}
