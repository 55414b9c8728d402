//! The head and the loss.

use super::{Model, find};
use crate::dtype::Dtype;
use crate::model::{HeadTransform, Objective};
use crate::step::loss;
use crate::step::machine::NOTHING;
use crate::step::tensor::{Tensor, Value};

impl<'a> Model<'a> {
    /// The head and the loss.
    pub(super) fn head(&self, hidden: Tensor<'a>) -> (Tensor<'a>, Tensor<'a>) {
        let head = &self.architecture.head;
        let bound = |name: &'static str| find(&self.outside.linears, |layer| layer.name == name);
        let transformed = match &head.transform {
            None => hidden.clone(),
            Some(HeadTransform::Project(linear)) => hidden.through(&bound(linear.name)),
            Some(HeadTransform::Dense { dense, norm }) => {
                let projected = hidden.through(&bound(dense.name));
                let active = projected.keeping_input("gelu");
                drop(projected);
                active.normed(&find(&self.outside.norms, |bound| bound.name == norm.name))
            }
        };
        let mut logits = transformed.through(&bound(head.linear.name));
        drop(transformed);
        if head.scaled {
            logits = logits.scale();
        }
        if head.softcap {
            logits = logits.scale();
            logits = logits.keeping_output("tanh");
            logits = logits.scale();
        }
        let (batch, sequence) = (self.scenario.batch, self.scenario.sequence);
        let loss = match head.objective {
            Objective::CausalLm => {
                let float = logits.to(Dtype::F32);
                let (padded, labels) = loss::shifted_labels(self.machine, batch, sequence);
                let loss = float.cross_entropy(&labels);
                drop(float);
                drop(padded);
                loss
            }
            Objective::MaskedLm | Objective::Seq2Seq => {
                let labels = self.labels();
                // `ForMaskedLMLoss` casts; what calls `CrossEntropyLoss` itself does not
                let casts = matches!(self.architecture.model_type.as_str(), "modernbert" | "eurobert");
                let float = if casts { logits.to(Dtype::F32) } else { logits.clone() };
                float.cross_entropy(&labels)
            }
        };
        drop(hidden);
        (loss, logits)
    }

    /// The batch's labels: on the machine already.
    fn labels(&self) -> Tensor<'a> {
        let value = Value::plain(NOTHING, self.scenario.tokens(), Dtype::I64);
        Tensor { machine: self.machine, value }
    }
}
