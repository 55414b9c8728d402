//! trl's trainer of reward models: one number for each text, that of its last token.
//!
//! Source: transformers 5.17 modeling_layers.py `GenericForSequenceClassification`, trl 1.16 trainer/reward_trainer.py
//! `compute_loss`; compared with the allocator's trace.

use crate::dtype::Dtype;
use crate::memory::Category;
use crate::step::forward::{Hidden, Output, Pass};
use crate::step::what::{roles, torch};

impl<'a> Pass<'_, 'a> {
    /// `outputs = model(**inputs)` of a model that rewards, and `-logsigmoid(chosen - rejected).mean()`. The metrics that are
    /// logged on the way are gone before backward and are not followed.
    pub fn comparison_loss(&self, replace: &dyn Fn()) -> Output<'a> {
        let Hidden { states, given, ids: _, encoded: _ } = self.hidden();
        let half = self.batch.sequences / 2;
        let loss = self.machine.as_category(Category::Logits, &roles::HEAD, || {
            let reward = self.last_numbers(self.machine.leave_tail(states));
            self.leave_autocast();
            replace();
            // accelerate makes float32 of what a model returns whose forward it put under autocast
            let reward = if self.outputs_float() { reward.to(Dtype::F32) } else { reward };
            let reward = self.leave_forward(reward);
            let [chosen, rejected] = reward.split([half, half]);
            chosen.minus(&rejected).keeping_input(&torch::LOG_SIGMOID).negate().sum_rows(half)
        });
        Output { loss, outputs: Vec::new(), shared: given }
    }
}
