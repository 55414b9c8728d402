//! trl's trainer of reward models: one number for each text, that of its last token.
//!
//! Source: transformers 5.17 modeling_layers.py `GenericForSequenceClassification`, trl 1.16 trainer/reward_trainer.py
//! `compute_loss`; compared with the allocator's trace.

use crate::dtype::Dtype;
use crate::issue::{Field, Issue};
use crate::memory::Category;
use crate::model::blocks::Linear;
use crate::model::modeling::rewards_generically;
use crate::model::{Architecture, Head, Objective};
use crate::step::forward::{Hidden, Output, Pass, find};
use crate::step::what::{Source, What, roles, torch};

static NOT_PADDING: What =
    What::own("no padding", "which tokens are no padding, of which the last one counts", Source::Loss);

/// The same model with a head of one number in place of its vocabulary.
///
/// # Errors
/// Where the family has code of its own for that.
pub(super) fn architecture(architecture: &Architecture) -> Result<Architecture, Issue> {
    if !rewards_generically(&architecture.model_type) {
        let message = format!(
            "a reward model of {} is not modelled: its classification has code of its own",
            architecture.model_type
        );
        let fix = "choose a model of another family, such as Llama 3, Qwen 3, Mistral or Gemma 2";
        return Err(Issue::error(Field::Model, message).with_fix(fix));
    }
    let mut own = architecture.clone();
    own.head = Head {
        linear: Linear::new("score", architecture.hidden, 1),
        tied: false,
        transform: None,
        softcap: false,
        scaled: false,
        objective: Objective::CausalLm,
    };
    Ok(own)
}

impl<'a> Pass<'_, 'a> {
    /// `outputs = model(**inputs)` of a model that rewards, and `-logsigmoid(chosen - rejected).mean()`. The metrics that are
    /// logged on the way are gone before backward and are not followed.
    pub fn comparison_loss(&self, replace: &dyn Fn()) -> Output<'a> {
        let Hidden { states, given, ids: _, encoded: _ } = self.hidden();
        let (tokens, sequences) = (self.batch.tokens(), self.batch.sequences);
        let half = sequences / 2;
        let loss = self.machine.as_category(Category::Logits, &roles::HEAD, || {
            let name = self.architecture.head.linear.name;
            let states = self.machine.leave_tail(states);
            let scores = states.through(&find(&self.outside.linears, |layer| layer.name == name));
            let real = self.of_tokens(tokens, Dtype::Bool, &NOT_PADDING);
            let numbers = self.of_tokens(tokens, Dtype::I32, &NOT_PADDING);
            drop(real);
            let positions = self.of_positions(self.batch.length, Dtype::I32, &torch::RANGE);
            let products = self.of_tokens(tokens, Dtype::I32, &torch::MUL);
            let last = self.constant(sequences, Dtype::I64, &torch::MAX_INDICES);
            drop(products);
            let rows = self.constant(sequences, Dtype::I64, &torch::RANGE);
            let reward = scores.rows_at(&last, sequences, 1);
            drop((states, scores, numbers, positions, rows, last));
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
