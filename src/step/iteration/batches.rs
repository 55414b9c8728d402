//! What stands on the machine before the first round: batches, states, and the workspaces that are due.

use super::{Rounds, Running};
use crate::dtype::Dtype;
use crate::job::{Act, Batch, Loss};
use crate::memory::Category;
use crate::scenario::software::{Software, Trainer};
use crate::scenario::{Mask, Stack};
use crate::step::machine::State;
use crate::step::what::{Source, What};

static BATCH: What = What::own("batch", "token ids, labels and mask", Source::Modeling);

impl Rounds<'_> {
    /// A vLLM beside the training, optimizers that have a state from the beginning, the batches and the cuBLAS workspaces (one per thread: the script's
    /// and autograd's).
    pub fn prepare(&mut self) {
        if let Some(share) = self.vllm {
            // trl starts it with the trainer, before the training
            self.hold(share);
        }
        for Running { model, has_state, .. } in &mut self.members {
            if let Some(training) = model.member.training {
                *has_state = self.machine.with(|state| state.start(training.optimizer, &model.params));
            }
        }
        let mut brought: Vec<(Batch, Stack)> = Vec::with_capacity(1);
        for act in self.round {
            let Some(batch) = act.batch() else { continue };
            // those of an evaluation come and go
            if self.makes_prompts(act) || matches!(act, Act::Evaluate { .. }) {
                continue;
            }
            let member = self.members[act.member()].model.member;
            let stack = member.stack;
            if member.returns_states {
                // the prompts of all answers, of which the trainer makes everything else
                if let Act::Rollout { times, .. } = act {
                    self.bring(batch, stack, *times, Some(2));
                }
                continue;
            }
            // `get_batch_samples` brings all micro-batches of a step at once
            let times = if member.is_by_trainer() { act.times() } else { 1 };
            if !brought.contains(&(batch, stack)) {
                brought.push((batch, stack));
                let of_script = match act {
                    // ids and their mask
                    Act::Generate { .. }
                    | Act::Rollout { .. }
                    | Act::Train { loss: Loss::Classes | Loss::Comparison, .. } => Some(2),
                    Act::Train { loss: Loss::Divergence { divergence, .. }, .. } => {
                        // ids, mask, labels, and where each token lies in the text (`byte_offsets`)
                        Some(if divergence.makes_all_logits() { 5 } else { 2 })
                    }
                    // ids, mask and what of them is scored
                    Act::Train { loss: Loss::Preference { .. }, .. } => Some(3),
                    Act::Train { loss: Loss::Reward { .. }, .. } if member.returns_last_state => Some(2),
                    // the same, and that of answers to other prompts
                    Act::Train { loss: Loss::Desirability { .. }, .. } => Some(6),
                    Act::Train { .. }
                    | Act::Update { .. }
                    | Act::Score { .. }
                    | Act::Evaluate { .. }
                    | Act::Save { .. }
                    | Act::Wake { .. }
                    | Act::Merge { .. } => None,
                };
                if let Act::Train { loss: Loss::Odds { prompt, .. }, .. } = *act {
                    // ids and mask of the prompts by themselves
                    let prompts = Batch { sequences: batch.sequences / 2, length: prompt, ..batch };
                    self.bring(prompts, stack, times, Some(2));
                }
                if let Act::Train { loss: Loss::Divergence { prompt, divergence, .. }, .. } = *act
                    && divergence.makes_all_logits()
                {
                    // ids and mask of the prompts by themselves
                    self.bring(Batch { length: prompt, ..batch }, stack, times, Some(2));
                }
                if let Act::Train { loss: Loss::Classes, .. } = *act {
                    // a label for each text
                    self.bring(Batch { length: 1, ..batch }, stack, times, Some(1));
                }
                if let Act::Train { member, loss: Loss::Contrast { texts, .. }, .. } = *act {
                    self.bring_columns(member, batch, stack, (texts, times));
                    continue;
                }
                self.bring(batch, stack, times, of_script);
            }
        }
        // DeepSpeed's linear layer adds its bias after the product
        let plain = self.machine.with(|state| state.parallel.gathers_modules());
        let light = self.members.iter().filter(|_| !plain).map(|own| own.light_workspaces(self.round));
        let light = light.fold([0; 2], |[one, other], [a, b]| [one.max(a), other.max(b)]);
        self.machine.with(|state| {
            let workspace = state.device.workspace;
            state.due_workspaces = light.map(|light| [workspace, light]);
            if state.multiplied {
                state.due_workspaces[0][0] = 0;
            }
        });
    }

    /// Whether it is a generation whose prompts are made in the round: that of a model that is trained on the answers.
    pub(super) fn makes_prompts(&self, act: &Act) -> bool {
        let trains = self.members[act.member()].model.member.training.is_some();
        trains && matches!(act, Act::Generate { .. })
    }

    /// Puts a batch on the machine.
    pub(super) fn bring(&mut self, batch: Batch, stack: Stack, times: u64, of_script: Option<u64>) {
        // what is divided among GPUs lies whole on each, and is cut where it lies
        let contexts = self.machine.with(|state| state.parallel.contexts());
        let ids = batch.tokens().saturating_mul(contexts).saturating_mul(Dtype::I64.bytes());
        // ids, labels, and a mask or positions
        let trainer = Software::of(stack).trainer;
        let tensors: u64 = match (trainer, batch.mask) {
            // its labels are shifted into new ones, and no mask is made of padding
            (Trainer::Torchtune, _) => 1,
            // its forward step makes one for each micro-batch
            (Trainer::Megatron, _) => 0,
            (Trainer::Loop | Trainer::Trl, Mask::None) | (Trainer::Torchtitan, _) => 2,
            (Trainer::Loop | Trainer::Trl, Mask::Ones | Mask::Padded | Mask::Packed | Mask::PaddingFree) => 3,
        };
        let batches = u32::try_from(times).unwrap_or(u32::MAX);
        for _ in 0..of_script.unwrap_or(tensors) {
            let bring =
                |state: &mut State| state.persistent(ids, Dtype::I64, batches, Category::Batch, &BATCH);
            self.ids = self.machine.with(bring);
        }
        self.bring_pictures(batch, batches);
    }
}
