//! What runs on a card: models with everything that belongs to them, and what is done with them round after round.
//!
//! A [`Scenario`] is a job of its one model: training, then the optimizer's step. Direct preference optimisation (DPO) of all
//! weights is two models, of which one is trained and the other, the model as it was, scores the same batch:
//!
//! ```
//! use headroom::job::Job;
//! use headroom::scenario::{Method, ModelChoice, Precision, Scenario, Stack, Task};
//! use headroom::{memory::Stage, step};
//!
//! let scenario = Scenario {
//!     task: Task::Dpo,
//!     model: ModelChoice::Catalogue("Qwen/Qwen3-0.6B".into()),
//!     stack: Stack::Trl,
//!     method: Method::Full,
//!     precision: Precision::AmpBf16,
//!     batch: 1, // a pair: a chosen and a rejected answer
//!     sequence: 1024,
//!     ..Scenario::default()
//! };
//! let job = Job::from(&scenario);
//! assert_eq!(job.members.len(), 2);
//! let memory = step::run_job(&job, &scenario.gpu()?)?;
//! let stages: Vec<Stage> = memory.steady.phases.iter().map(|(phase, _)| phase.stage).collect();
//! assert_eq!(stages, [Stage::Forward, Stage::Score, Stage::Backward, Stage::Step]);
//! # Ok::<(), headroom::issue::Issue>(())
//! ```
//!
//! [`Scenario`]: crate::scenario::Scenario

mod act;
mod batch;
mod member;
mod of_scenario;

use std::sync::Arc;

use crate::issue::{Field, Issue};
use crate::model::Architecture;
use crate::scenario::{Cluster, ModelChoice, VllmShare};

pub use act::{Act, Likelihood, Loss, Scorer};
pub use batch::Batch;
pub use member::{HeadKind, Member, Training};

/// Models on one card, and what is done with them in every round (iteration).
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// The models.
    pub members: Vec<Member>,
    /// What is done, in order.
    pub round: Vec<Act>,
    /// The cards that do it together: each does the same, with a batch of its own.
    pub cluster: Cluster,
    /// What a vLLM has of the card all the while.
    pub vllm: Option<VllmShare>,
}

impl Job {
    /// The architectures of its members, in their order.
    ///
    /// # Errors
    /// An [`Issue`] where the catalogue has no such model or its config cannot be understood.
    pub fn architectures(&self) -> Result<Vec<Arc<Architecture>>, Issue> {
        self.members.iter().map(|member| member.model.architecture()).collect()
    }

    /// The architectures of those members that are of another model than the first, each in its place.
    ///
    /// # Errors
    /// An [`Issue`] on the teacher where the catalogue has no such model or its config cannot be understood.
    pub(crate) fn others(&self) -> Result<Vec<Option<Arc<Architecture>>>, Issue> {
        let first = self.members.first().map(|first| &first.model);
        let other = |member: &Member| {
            let named = Some(&member.model).filter(|model| Some(*model) != first);
            named.map(ModelChoice::architecture).transpose()
        };
        let of_teacher = |issue: Issue| Issue { field: Field::Teacher, ..issue };
        self.members.iter().map(|member| other(member).map_err(of_teacher)).collect()
    }
}
