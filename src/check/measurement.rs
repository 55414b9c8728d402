//! Measurements: what was measured, of what, and what was predicted of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::CheckError;
use crate::scenario::Scenario;
use crate::step::Milestone;
use crate::units::Bytes;

/// What a measurement is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Metric {
    /// `torch.cuda.max_memory_allocated`.
    Allocated,
    /// `torch.cuda.max_memory_reserved`.
    Reserved,
    /// What the driver reports, as `nvidia-smi` shows it.
    Driver,
}

impl Metric {
    /// Every metric, in the order of summaries.
    pub const ALL: [Metric; 3] = [Metric::Allocated, Metric::Reserved, Metric::Driver];

    /// The name in files and reports.
    pub const fn slug(self) -> &'static str {
        match self {
            Metric::Allocated => "allocated",
            Metric::Reserved => "reserved",
            Metric::Driver => "driver",
        }
    }
}

/// One measured figure beside the predicted one.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Row {
    /// The measurement's name.
    pub id: String,
    /// Which of PyTorch's figures was measured.
    pub metric: Metric,
    /// Measured bytes.
    pub measured: Bytes,
    /// Predicted bytes.
    pub predicted: Bytes,
    /// Predicted over measured less one, in percent; negative where too little was predicted.
    pub error_pct: f64,
}

/// A measurement, read: what ran and what was measured of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// What ran.
    pub scenario: Scenario,
    /// Whether the run had the memory of the scenario's card and no more, as a real one has.
    pub bounded: bool,
    /// The figures.
    pub measured: Vec<Measured>,
}

/// A measured figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// What it is of.
    pub metric: Metric,
    /// When it was read: peaks are those up to then.
    pub milestone: Milestone,
    /// The figure.
    pub bytes: Bytes,
}

/// A format of measurements.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// Reads a row.
    pub read: fn(&Value) -> Result<Case, CheckError>,
    /// Which settings of a row it inferred rather than read, by their names in a scenario file, and from what.
    pub inferred: fn(&Value) -> BTreeMap<&'static str, String>,
}

/// Predicted over measured less one, in percent. Of nothing measured: 0 where nothing was predicted, else 100.
pub(super) fn error_pct(measured: Bytes, predicted: Bytes) -> f64 {
    match (measured.0, predicted.0) {
        (0, 0) => 0.0,
        (0, _) => 100.0,
        (measured, predicted) => (predicted as f64 / measured as f64 - 1.0) * 100.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_a_sign_and_no_infinity() {
        for (measured, predicted, error) in
            [(200, 210, 5.0), (200, 150, -25.0), (0, 0, 0.0), (0, 7, 100.0), (7, 0, -100.0)]
        {
            assert!(
                (error_pct(Bytes(measured), Bytes(predicted)) - error).abs() < 1e-9,
                "{measured} {predicted}"
            );
        }
    }
}
