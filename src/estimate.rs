//! The answer: [`estimate`] executes one training step of a [`Scenario`] and says what it needs.

use crate::issue::{Field, Issue, Severity};
use crate::memory::Memory;
use crate::scenario::Scenario;
use crate::step;
use crate::units::Bytes;

/// The answer to a [`Scenario`]: always one, even to a scenario that cannot be estimated.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Estimate {
    /// What is wrong, doubtful or assumed.
    pub issues: Vec<Issue>,
    /// What the step needs; absent exactly where an issue is an error.
    pub memory: Option<Memory>,
}

impl Estimate {
    /// What stands in the way of an answer.
    pub fn errors(&self) -> impl Iterator<Item = &Issue> {
        self.issues.iter().filter(|issue| issue.severity == Severity::Error)
    }
}

/// Executes one training step of the scenario without data and says what it needs.
///
/// Total: any scenario gets an answer, at worst one whose [`Estimate::issues`] say why there is no figure.
///
/// ```
/// use headroom::scenario::{Method, Optimizer, Precision, Scenario};
/// use headroom::{estimate, memory::Category, units::Bytes};
///
/// let scenario = Scenario {
///     method: Method::Full,
///     precision: Precision::Bf16,
///     optimizer: Optimizer::AdamWFused,
///     ..Scenario::default()
/// };
/// let memory = estimate(&scenario).memory.expect("nothing stands in the way");
/// // two moments of 2 bytes for each of Llama-3.1-8B's 8,030,261,248 parameters, and the steps' counters
/// let state = memory.peak().1.parts.get(Category::Optimizer);
/// assert!((Bytes(32_121_044_992)..Bytes(32_121_500_000)).contains(&state), "{}", state.0);
/// ```
pub fn estimate(scenario: &Scenario) -> Estimate {
    let architecture = scenario.architecture();
    let mut issues = scenario.validate_with(architecture.as_deref().ok());
    let failed = |issues: &[Issue]| issues.iter().any(|issue| issue.severity == Severity::Error);
    let mut memory = None;
    match (architecture, scenario.gpu()) {
        (Ok(architecture), Ok(gpu)) => {
            if !failed(&issues) {
                match step::run(&architecture, scenario, &gpu) {
                    Ok(answer) => {
                        issues.extend(offloaded(answer.offloaded));
                        issues.extend(on_host(answer.on_host, scenario.cluster.gpus));
                        issues.extend(read_by_each(scenario, answer.parameters.total));
                        memory = Some(answer);
                    }
                    Err(issue) => issues.push(issue),
                }
            }
        }
        (architecture, gpu) => issues.extend([architecture.err(), gpu.err()].into_iter().flatten()),
    }
    Estimate { issues, memory }
}

/// What waits in the CPU's memory, which must have room for it.
fn offloaded(bytes: Bytes) -> Option<Issue> {
    if bytes == Bytes::ZERO {
        return None;
    }
    let message = format!("up to {bytes} of activations wait in the CPU's memory");
    Some(Issue::new(Severity::Note, Field::Offloading, message))
}

/// What loading takes of the CPU's memory where shards are made of a whole model in every process.
fn read_by_each(scenario: &Scenario, parameters: u64) -> Option<Issue> {
    let each = scenario.loaded_by_each(parameters)?;
    let gpus = scenario.cluster.gpus;
    let message = format!(
        "before it is sharded every process reads the whole model into the CPU's memory: {each} for each of {}",
        crate::units::grouped(gpus)
    );
    Some(Issue::new(Severity::Note, Field::Sharding, message))
}

/// What the CPU's memory has of each rank's shards. A machine has all of its GPUs' in one.
fn on_host(bytes: Bytes, gpus: u64) -> Option<Issue> {
    if bytes == Bytes::ZERO {
        return None;
    }
    let together = Bytes(bytes.0.saturating_mul(gpus));
    let message = format!(
        "for each GPU {bytes} of what is offloaded lie in the CPU's memory, {together} for all; what is copied is pinned, for which \
         PyTorch takes the next power of two"
    );
    Some(Issue::new(Severity::Note, Field::CpuOffload, message))
}
