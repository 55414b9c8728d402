//! A batch of an evaluation: the loss without gradients, by a model in its evaluation mode, and the logits that are handed on.
//!
//! Source: transformers 5.17 trainer.py `prediction_step`; trl 1.16 trainer/sft_trainer.py `prediction_step`, `compute_loss`; accelerate
//! utils/operations.py `convert_outputs_to_fp32`; compared with the allocator's trace.

use super::{Hidden, Model, Output, Pass};
use crate::dtype::Dtype;
use crate::job::{Batch, HeadKind, Loss};
use crate::memory::Category;
use crate::scenario::software::HeadCode;
use crate::step::tensor::{Tensor, Value};
use crate::step::what::{Source, What, roles};

static NUMBERS: What =
    What::own("numbers of each text", "what an evaluation keeps for its metrics", Source::Loss);

impl<'a> Model<'a> {
    /// `prediction_step`: a batch up to its loss, and its logits where they are asked for.
    pub fn predicted(&self, batch: Batch, keeps: bool) -> Option<Tensor<'a>> {
        let pass = Pass { trains: false, ..self.pass_towards(Loss::Labels, batch) };
        self.evaluating(|| match (self.member.head, self.member.software().head) {
            (HeadKind::Numbers(labels), _) => {
                drop(pass.classes_loss(&|| {}));
                keeps.then(|| pass.returned_numbers(labels))
            }
            (HeadKind::Language | HeadKind::Embedding(_), HeadCode::Trl) => {
                // what the fused head returned is a variable of `compute_loss`
                let Output { loss, outputs: scored, .. } = pass.loss(pass.hidden(), &|| {});
                drop(loss);
                // there are no logits in it: the model runs once more
                let logits = keeps.then(|| self.pass_without_loss(batch));
                drop(scored);
                logits
            }
            (HeadKind::Language | HeadKind::Embedding(_), _) if keeps => {
                Some(pass.converted(pass.logits_beside_loss()))
            }
            (HeadKind::Language | HeadKind::Embedding(_), _) => {
                // a fused loss has none: the trainer asks Liger's code for the loss alone then (`skip_logits`)
                let Output { loss, outputs, .. } = pass.loss(pass.hidden(), &|| {});
                let converted = outputs.into_iter().next().map(|logits| pass.converted(logits));
                drop((loss, converted));
                None
            }
        })
    }

    /// `model(**inputs).logits` without labels.
    fn pass_without_loss(&self, batch: Batch) -> Tensor<'a> {
        let pass = Pass { trains: false, ..self.pass_towards(Loss::Labels, batch) };
        let Hidden { states, given: _, ids, encoded } = pass.hidden();
        let logits =
            self.machine.as_category(Category::Logits, &roles::HEAD, || pass.logits_by_unit(&states));
        drop((states, ids, encoded, pass.cache.take()));
        pass.leave_autocast();
        pass.converted(pass.leave_forward(logits))
    }
}

impl<'a> Pass<'_, 'a> {
    /// The logits of a forward pass with labels, whose loss is made of them: by a fused head too where they are asked for.
    fn logits_beside_loss(&self) -> Tensor<'a> {
        let Hidden { states, given: _, ids, encoded } = self.hidden();
        let (loss, logits) = self.machine.as_category(Category::Logits, &roles::HEAD, || {
            let logits = self.logits_by_unit(&states);
            (self.labels_loss(&logits), logits)
        });
        drop((states, ids, encoded, self.cache.take()));
        self.leave_peft();
        self.leave_autocast();
        drop(loss);
        self.leave_forward(logits)
    }

    /// Those of all tokens, by a head that may be a unit of its own.
    fn logits_by_unit(&self, states: &Tensor<'a>) -> Tensor<'a> {
        self.machine.head_unit(states, |states| self.logits(states))
    }

    /// What a model returns whose forward accelerate has put under autocast: float32, but under FSDP2.
    fn converted(&self, logits: Tensor<'a>) -> Tensor<'a> {
        if !self.outputs_float() {
            return logits;
        }
        self.machine.as_category(Category::Logits, &roles::LOGITS, || logits.to(Dtype::F32))
    }

    /// The numbers of each text as they are returned.
    fn returned_numbers(&self, labels: u64) -> Tensor<'a> {
        let numel = self.batch.sequences.saturating_mul(labels);
        self.machine.tensor(|state| {
            let bytes = numel.saturating_mul(Dtype::F32.bytes());
            Value::plain(state.alloc_as(Category::Logits, bytes, Dtype::F32, &NUMBERS), numel, Dtype::F32)
        })
    }
}
