//! The forward pass of one micro-batch up to its loss, and what is scored beside it: loss by loss, as transformers' `Trainer` and
//! trl's trainers have it.

use super::Rounds;
use crate::job::{Batch, Loss, Scorer};
use crate::memory::{Phase, Stage};
use crate::step::forward::stacks::trl::all_logits::Halves;
use crate::step::forward::stacks::trl::log_probs::Asked;
use crate::step::forward::{Output, Pass};

impl<'a> Rounds<'a> {
    /// Runs a pass up to its loss. `replace` runs when the script's variable of the output lets go of what it held.
    pub(super) fn forward(
        &self,
        act: u16,
        member: usize,
        pass: &Pass<'_, 'a>,
        loss: Loss,
        replace: &dyn Fn(),
    ) -> Output<'a> {
        let batch = pass.batch;
        match loss {
            Loss::Labels => pass.labelled(replace),
            Loss::Preference { reference, prompt } => {
                let labels = pass.answer_labels();
                let batch_again = pass.cloned_batch();
                let (scores, shared) = pass.label_log_probs(pass.hidden(), prompt, Asked::OF_PREFERENCES);
                drop(batch_again);
                replace();
                let others = self.scored_beside(
                    act,
                    member,
                    reference,
                    |asked, pass| {
                        let _again = pass.cloned_batch();
                        pass.label_log_probs(pass.hidden(), prompt, asked.unwrap_or(Asked::OF_PREFERENCES)).0
                    },
                    batch,
                );
                pass.enter();
                let loss = scores.balanced(pass.preference_loss(&scores, others.as_ref()));
                pass.log_of_all(&scores, prompt, Halves::Joined);
                drop((labels, scores, others));
                Output { loss, outputs: Vec::new(), shared }
            }
            Loss::Desirability { reference, prompt } => {
                let asked_of = |asked: Option<Asked>| asked.unwrap_or(Asked::OF_DESIRABILITY);
                // `_compute_kl_logps`: as many answers, each to another prompt
                let divergence = |asked, pass: &Pass<'_, 'a>| pass.answer_scores(prompt, asked_of(asked));
                let own = self.scored_beside(act, member, Scorer::Member(member), divergence, batch);
                let labels = pass.answer_labels();
                let (scores, shared) = pass.label_log_probs(pass.hidden(), prompt, Asked::OF_DESIRABILITY);
                replace();
                let others = self.scored_beside(
                    act,
                    member,
                    reference,
                    |asked, pass| {
                        let divergence = divergence(asked, pass);
                        (divergence, pass.label_log_probs(pass.hidden(), prompt, asked_of(asked)).0)
                    },
                    batch,
                );
                pass.enter();
                let loss = pass.desirability_loss(&scores, own.as_ref(), others.as_ref());
                let loss = scores.balanced(loss);
                pass.log_of_all(&scores, prompt, Halves::Labelled);
                drop((labels, scores, others, own));
                Output { loss, outputs: Vec::new(), shared }
            }
            Loss::Odds { likelihood, .. } => pass.odds_loss(likelihood, replace),
            Loss::Classes => pass.classes_loss(replace),
            Loss::Comparison => pass.comparison_loss(replace),
            // they have several passes of their own (`Rounds::contrast`, `Rounds::advance`)
            Loss::Contrast { .. } | Loss::Advantage { .. } => {
                let output = pass.loss(pass.hidden(), replace);
                Output { loss: output.loss.unmodelled("several passes as one"), ..output }
            }
            Loss::Divergence { teacher, prompt, divergence } if divergence.makes_all_logits() => {
                let (student, shared) = pass.all_of_model(pass.hidden(), replace);
                let taught = |_, pass: &Pass<'_, 'a>| pass.all_of_model(pass.hidden(), &|| {}).0;
                let taught = self.scored_beside(act, member, Scorer::Member(teacher), taught, batch);
                pass.enter();
                let loss = pass.divergence_of_all(student, taught, (divergence, prompt));
                Output { loss, outputs: Vec::new(), shared }
            }
            Loss::Divergence { teacher, prompt, .. } => {
                let inputs = pass.divergence_inputs();
                let (student, shared) = pass.answer_states(pass.hidden(), prompt);
                replace();
                let taught = |_, pass: &Pass<'_, 'a>| {
                    let (states, _) = pass.answer_states(pass.hidden(), prompt);
                    (states, pass.divergence_head())
                };
                let taught = self.scored_beside(act, member, Scorer::Member(teacher), taught, batch);
                pass.enter();
                let loss = pass.divergence_loss(&student, taught.as_ref());
                drop((inputs, student, taught));
                Output { loss, outputs: Vec::new(), shared }
            }
            Loss::Reward { prompt, .. } if pass.member.returns_last_state => {
                let first = self.members[member].is_verified.replace(true);
                let (loss, shared) = pass.unsloth_reward(prompt, !first);
                Output { loss, outputs: Vec::new(), shared }
            }
            Loss::Reward { prompt, referred, whole, corrected } => {
                let labels = pass.reward_labels();
                let (scores, shared) = pass.label_log_probs(pass.hidden(), prompt, Asked::OF_REWARDS);
                replace();
                let loss = if whole {
                    pass.whole_reward_loss(&scores, prompt)
                } else {
                    pass.reward_loss(&scores, prompt, [referred, corrected])
                };
                let loss = scores.balanced(loss);
                drop((labels, scores));
                Output { loss, outputs: Vec::new(), shared }
            }
        }
    }

    /// A pass without gradients of who scores beside the trained member, as a phase of its own; nothing where nobody does. `run`
    /// is told what a model that is never trained is asked, and nothing where it is the trained one.
    fn scored_beside<R>(
        &self,
        act: u16,
        trained: usize,
        scorer: Scorer,
        run: impl FnOnce(Option<Asked>, &Pass<'_, 'a>) -> R,
        batch: Batch,
    ) -> Option<R> {
        let (member, asked) = match scorer {
            Scorer::Member(other) if other != trained => (other, Some(Asked::NOTHING)),
            Scorer::Member(_) | Scorer::WithoutAdapters => (trained, None),
            Scorer::Precomputed => return None,
        };
        let [forward, scoring] = [Stage::Forward, Stage::Score].map(|stage| Phase { act, stage });
        self.notes.end(forward);
        self.notes.begin(scoring);
        let adapts = scorer != Scorer::WithoutAdapters || self.members[member].model.member.copies_adapters;
        self.machine.with(|state| state.params.adapts = adapts);
        let result = self.members[member].model.scoring(batch, |pass| run(asked, pass));
        self.machine.with(|state| state.params.adapts = true);
        self.notes.end(scoring);
        self.notes.begin(forward);
        Some(result)
    }
}
