//! The rounds of a job: forward, backward, clip, step and zero_grad, and whatever else is done in between.

mod batches;
mod contexts;
mod contrast;
mod evaluation;
mod losses;
mod notes;
mod pictures;
mod policy;
mod spikes;
mod training;
mod workspaces;

use std::cell::{Cell, RefCell};
use std::ops::Range;

use super::forward::stacks::megatron::Share;
use super::forward::stacks::trl::log_probs::Asked;
use super::forward::{Apart, Model, Pass};
use super::gradient::OnGrad;
use super::heap::{NOTHING, StorageId};
use super::line::{Input, Line};
use super::machine::Machine;
use super::optimizer::{Stepper, leaving};
use super::ready::Ready;
use super::tensor::{Tensor, Value};
use crate::job::{Act, Batch, HeadKind, Loss, Member, Training};
use crate::memory::{Category, Iteration, Phase, Rank, Stage};
use crate::scenario::Generation;
use crate::scenario::software::Trainer;
use crate::scenario::{Cluster, Optimizer, StepTime, VllmShare};
use crate::step::what::What;
use crate::units::Bytes;
use crate::work::Work;
use notes::{Notes, highest};

static SCORED: What = What::step("log-probabilities", "those of further batches of the same round");

/// Bytes of cuBLASLt's workspace for `addmm` with a bias: 1 MiB (measured on compute capability 7.5, 8.0 and 9.0).
const CUBLASLT_WORKSPACE: u64 = 1 << 20;

/// Micro-batches of a step whose tensors differ: the first finds no gradients, and every one after the second repeats the
/// second.
pub(super) const DIFFERENT: u64 = 2;

/// A job on a machine, round after round.
pub(super) struct Rounds<'a> {
    machine: &'a Machine,
    round: &'a [Act],
    members: Vec<Running<'a>>,
    /// Log-probabilities that wait for the end of the round.
    scored: Vec<Tensor<'a>>,
    notes: Notes<'a>,
    /// The scores of a round's answers, which wait for the next round's.
    rolled_out: Option<Tensor<'a>>,
    /// What a policy's last micro-batch left in variables.
    left: Option<policy::Left<'a>>,
    /// The pictures of a round whose answers are scored before they are learned from.
    buffered: pictures::Buffered<'a>,
    /// What the micro-batches of the running step keep of how they were divided among GPUs.
    divided: Vec<Tensor<'a>>,
    /// The batch's token ids.
    ids: StorageId,
    /// Events up to the end of the last step.
    stepped: usize,
    /// Micro-batches of a step whose tensors differ: [`DIFFERENT`], and one more where the second is the first that gathers ahead what
    /// the third finds.
    fewest: u64,
    /// The most micro-batches of a step that are run.
    most: u64,
    /// The most passes of `generate` after the prompt's that are run.
    most_passes: u64,
    /// The GPUs that do it together.
    cluster: Cluster,
    /// What a vLLM has of the card all the while.
    vllm: Option<VllmShare>,
    /// Whether the round that runs is the last: what comes after the training comes then.
    pub is_last: bool,
    /// The most that an evaluation's logits and labels take of the CPU's memory.
    pub evaluated_on_host: Bytes,
    /// What the parts of a pipeline's stage were given last.
    pub last_inputs: Vec<Input<'a>>,
}

/// A member in the course of a job.
struct Running<'a> {
    model: Model<'a>,
    /// The output that the script keeps alive, and what the graph behind it holds.
    kept: (Vec<Tensor<'a>>, Vec<StorageId>),
    /// Whether its optimizer has made its state.
    has_state: bool,
    /// Whether a packed row of it was held against its texts by themselves (Unsloth).
    is_verified: Cell<bool>,
    /// The same of a pass without gradients.
    is_verified_scoring: Cell<bool>,
}

impl Running<'_> {
    /// Whether it is what is trained to write.
    fn is_policy(&self) -> bool {
        self.model.member.training.is_some() && self.model.member.head == HeadKind::Language
    }

    /// What happens to its gradients.
    fn on_grad(&self) -> OnGrad {
        match self.model.member.training {
            Some(Training { optimizer, step: StepTime::InBackward, .. }) => {
                Stepper { optimizer, has_state: self.has_state }.hook()
            }
            Some(Training { optimizer: Optimizer::AdamWCpuOffloadGradients, .. }) => leaving(),
            Some(Training { step: StepTime::AfterBackward, .. }) | None => OnGrad::Keep,
        }
    }
}

impl<'a> Rounds<'a> {
    /// A job before its first round.
    pub fn new(machine: &'a Machine, ready: &'a Ready<'_>, models: Vec<Model<'a>>) -> Rounds<'a> {
        let running = |model| Running {
            model,
            kept: Default::default(),
            has_state: false,
            is_verified: Cell::default(),
            is_verified_scoring: Cell::default(),
        };
        let fewest = DIFFERENT + u64::from(machine.with(|state| state.parallel.gathers_ahead()));
        Rounds {
            machine,
            round: &ready.round,
            members: models.into_iter().map(running).collect(),
            scored: Vec::new(),
            rolled_out: None,
            left: None,
            notes: Notes {
                machine,
                peaks: RefCell::new(Vec::with_capacity(8)),
                work: RefCell::new(Vec::with_capacity(3)),
                before: Cell::default(),
            },
            buffered: Default::default(),
            divided: Vec::new(),
            ids: NOTHING,
            stepped: 0,
            fewest,
            most: fewest,
            most_passes: DIFFERENT,
            cluster: ready.cluster,
            vllm: ready.vllm,
            is_last: false,
            evaluated_on_host: Bytes::ZERO,
            last_inputs: Vec::new(),
        }
    }

    /// Runs up to so many micro-batches of a step, and passes of `generate`, where it matters what each leaves in the allocator's
    /// cache.
    pub fn run_up_to(&mut self, most: u64, passes: u64) {
        self.most = most.max(self.fewest);
        self.most_passes = passes;
    }

    /// How many of a step's micro-batches are run. A block that one leaves is often what the next one takes and gives back
    /// elsewhere: of many an even number stands for an even one and an odd number for an odd one.
    fn different(&self, times: u64) -> u64 {
        let run = times.clamp(1, self.most);
        let other_parity = (times.max(1) - run) % 2 == 1;
        if other_parity && run > self.fewest { run - 1 } else { run }
    }

    /// One round. Where lengths vary, the micro-batches of its training are those that were `drawn`.
    pub fn round(&mut self, drawn: &[Batch]) -> Iteration {
        self.notes.peaks.borrow_mut().clear();
        self.buffered.are_divided = false;
        for act in 0..self.round.len() {
            self.act(act, drawn);
            if let Act::Update { member } = self.round[act] {
                self.forget_gradients(member);
                self.after_step(u16::try_from(act).unwrap_or(u16::MAX));
            }
        }
        self.scored.clear();
        highest(&self.notes.peaks.borrow())
    }

    /// The first round and a later one.
    ///
    /// Where nothing but the optimizer's state and the workspaces come to stay, forward and backward of the later one are
    /// the first one's above these.
    pub fn first_and_later(&mut self) -> [Iteration; 2] {
        let keeps_scales = self.members.iter().any(|own| own.model.keeps_scales());
        let alters = |training: Training| {
            keeps_scales
                || training.step == StepTime::InBackward
                || training.keeps_outputs
                || !training.grads_to_none
        };
        let member = match self.round {
            [Act::Train { member, loss: Loss::Labels, .. }, Act::Update { member: updated }]
                if member == updated =>
            {
                *member
            }
            _ => {
                let first = self.round(&[]);
                // what engines that take turns gather ahead is settled in the third iteration
                if self.members.len() > 1 && self.machine.with(|state| state.parallel.gathers_ahead()) {
                    self.round(&[]);
                }
                self.is_last = true;
                return [first, self.round(&[])];
            }
        };
        let model = &self.members[member].model;
        let simple = self
            .machine
            .with(|state| state.parallel.repeats_itself() && state.parallel.partition().is_none());
        if model.apart == Apart::All || !simple || model.member.training.is_none_or(alters) {
            return [self.round(&[]), self.round(&[])];
        }
        self.act(0, &[]);
        self.act(1, &[]);
        let first = highest(&self.notes.peaks.borrow());
        self.notes.peaks.borrow_mut().retain(|(phase, _)| phase.stage != Stage::Step);
        let resting = self.machine.with(|state| state.ledger.parts);
        for (_, peak) in self.notes.peaks.borrow_mut().iter_mut() {
            for category in [Category::Optimizer, Category::Workspace] {
                let more = resting.get(category).saturating_sub(peak.parts.get(category));
                *peak = peak.with(category, more.0);
            }
        }
        // the gradients are there still, as the next iteration's will be
        self.act(1, &[]);
        self.forget_gradients(member);
        [first, highest(&self.notes.peaks.borrow())]
    }

    /// One act of the round, by its number.
    fn act(&mut self, index: usize, drawn: &[Batch]) {
        let act = u16::try_from(index).unwrap_or(u16::MAX);
        self.notes.forget_work(act);
        if let Act::Train { loss: Loss::Reward { whole: true, .. }, .. } = self.round[index] {
            // one number for each answer was made of them
            self.scored.clear();
        }
        match self.round[index] {
            Act::Train { member, batch, times, .. } if self.is_scheduled(member) => {
                let times = if drawn.is_empty() { times } else { 1 };
                let run = self.schedule(act, member, batch, times);
                self.notes.extend_work(act, run, times);
            }
            Act::Train { member, batch, loss: Loss::Advantage { value, prompt, each, .. }, times } => {
                self.learn(act, (member, value), (batch, prompt), [each, times]);
            }
            Act::Train { member, batch, loss, times } if drawn.is_empty() => {
                let run = self.different(times);
                for number in 1..=run {
                    self.notes.forget_work(act);
                    self.train(act, member, batch, loss, number == run);
                }
                self.notes.repeat_work(act, times);
            }
            Act::Train { member, loss, .. } => {
                for (number, batch) in drawn.iter().enumerate() {
                    self.train(act, member, *batch, loss, number + 1 == drawn.len());
                }
            }
            Act::Update { member } => {
                self.update(act, member);
                self.notes.repeat_work(act, self.updates());
            }
            Act::Generate { member, batch, how } => self.generate(act, member, batch, how),
            Act::Rollout { member, batch, how, times } => self.roll_out(act, member, (batch, how), times),
            Act::Evaluate { member, batch, how } => self.evaluate(act, member, batch, how),
            Act::Save { member, gathers } => self.save(act, member, gathers),
            Act::Merge { member } => self.merge(act, member),
            Act::Wake { share, .. } => self.wake(act, share),
            Act::Score { member, adapted, batch, prompt, times } => {
                let run = self.different(times);
                for number in 1..=run {
                    self.notes.forget_work(act);
                    let stage = self.scores_as(member, adapted);
                    self.score(Phase { act, stage }, (member, adapted), (batch, prompt));
                    if number == 1 {
                        self.count_as_scored(times.saturating_sub(run));
                    }
                }
                self.notes.repeat_work(act, times);
            }
        }
    }

    /// What a member's passes without gradients are called: a number for each token is what a policy's answers are worth, or their
    /// reward. Who scores is named where the policy does.
    fn scores_as(&self, member: usize, adapted: bool) -> Stage {
        let by_policy = |member: usize, adapted: bool| adapted && self.members[member].is_policy();
        let is_by_policy =
            |act: &Act| matches!(*act, Act::Score { member, adapted, .. } if by_policy(member, adapted));
        match self.members[member].model.member {
            Member { head: HeadKind::Numbers(_), returns_states: true, training: Some(_), .. } => {
                Stage::Value
            }
            Member { head: HeadKind::Numbers(_), returns_states: true, training: None, .. } => Stage::Reward,
            _ if by_policy(member, adapted) => Stage::Policy,
            _ if self.round.iter().any(is_by_policy) => Stage::Reference,
            _ => Stage::Score,
        }
    }

    /// Scores a batch; whether with the member's adapters.
    fn score(&mut self, phase: Phase, (member, adapted): (usize, bool), (batch, prompt): (Batch, u64)) {
        self.notes.begin(phase);
        self.turn_pictures(false);
        self.machine.with(|state| state.params.adapts = adapted);
        let Running { model, is_verified_scoring, .. } = &self.members[member];
        if model.member.returns_last_state {
            let first = is_verified_scoring.replace(true);
            self.scored.push(model.foreseeing(batch, |pass| pass.unsloth_scores(prompt, !first)));
            self.machine.with(|state| state.params.adapts = true);
            self.notes.end(phase);
            return;
        }
        let asked = if model.member.training.is_some() { Asked::OF_REWARDS } else { Asked::NOTHING };
        self.scored.extend(model.score(batch, prompt, asked));
        self.machine.with(|state| state.params.adapts = true);
        self.notes.end(phase);
    }

    /// The log-probabilities of so many batches that are not run wait with the last one's, whose size they have.
    fn count_as_scored(&mut self, more: u64) {
        let Some(last) = self.scored.last().filter(|_| more > 0) else { return };
        let Value { storage, numel, dtype, .. } = last.value;
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        let others = self.machine.with(|state| {
            let category = state.category_of(storage);
            state.persistent(numel.saturating_mul(dtype.bytes()), dtype, more, category, &SCORED)
        });
        let machine = self.machine;
        self.scored.push(Tensor { machine, value: Value::plain(others, numel, dtype) });
    }

    /// Whether Megatron-core's schedules train it.
    fn is_scheduled(&self, member: usize) -> bool {
        self.members[member].model.member.software().trainer == Trainer::Megatron
    }

    /// A forward pass of a member's model over a batch, before it begins.
    pub fn pass(&self, member: usize, batch: Batch) -> Pass<'_, 'a> {
        self.members[member].model.pass(batch)
    }

    /// Which parameters on the machine are a member's.
    pub fn params(&self, member: usize) -> Range<usize> {
        self.members[member].model.params.clone()
    }

    /// The width of a member's hidden states.
    pub fn hidden(&self, member: usize) -> u64 {
        self.members[member].model.architecture.hidden
    }

    /// Where the rank stands in the pipeline of a member.
    pub fn line(&self, member: usize) -> Line {
        let model = &self.members[member].model;
        Line::of(self.cluster, model.part.unwrap_or(Share::WHOLE))
    }

    /// Which rank it is, where ranks differ.
    pub fn rank(&self) -> Option<Rank> {
        let trained = self.round.iter().find(|act| act.batch().is_some())?;
        self.line(trained.member()).rank(trained.times())
    }

    /// The machine that it runs on.
    pub fn machine(&self) -> &'a Machine {
        self.machine
    }

    /// A phase begins.
    pub fn begin(&self, phase: Phase) {
        self.notes.begin(phase);
    }

    /// It ends.
    pub fn end(&self, phase: Phase) {
        self.notes.end(phase);
    }

    /// `generate`. Of the passes after the prompt's no more are run than where it matters what each leaves in the allocator's
    /// cache, the first and the last two always: a longer cache takes the place of a shorter one in every pass, and the last
    /// one's decides.
    fn generate(&mut self, act: u16, member: usize, batch: Batch, how: Generation) {
        let [prefill, decode] = [Stage::Prefill, Stage::Decode].map(|stage| Phase { act, stage });
        self.notes.begin(prefill);
        let passes = passes(batch.length, how.new_tokens, self.most_passes);
        let makes = self.makes_prompts(&Act::Generate { member, batch, how });
        // ids and their mask
        let prompts = makes.then(|| [(); 2].map(|()| self.members[member].model.prompts(batch)));
        let pictures = makes.then(|| self.pictures_of(batch, 1));
        self.members[member].model.generate(batch, how, &passes, || {
            self.notes.end(prefill);
            self.notes.begin(decode);
        });
        drop((prompts, pictures));
        self.notes.end(if passes.is_empty() { prefill } else { decode });
    }

    /// What the last round computed, by phase.
    pub fn work(&self) -> Vec<(Phase, Work)> {
        let mut work = self.notes.work.borrow().clone();
        work.sort_by_key(|(phase, _)| *phase);
        work
    }

    /// Events up to the end of the last step, where they are recorded.
    pub fn stepped(&self) -> usize {
        self.stepped
    }

    fn free(&self, storages: Vec<StorageId>) {
        self.machine.with(|state| storages.into_iter().for_each(|storage| state.release(storage)));
    }
}

/// Tokens before each of the passes after the prompt's that are run: at most so many, evenly spread from the first on, in which
/// a layer with a window lets go of the prompt, and the last two.
fn passes(prompt: u64, new_tokens: u64, most: u64) -> Vec<u64> {
    let all = new_tokens.saturating_sub(1);
    let run = all.min(most.max(1 + DIFFERENT));
    let spread = run.saturating_sub(DIFFERENT);
    let before = all.saturating_sub(DIFFERENT);
    let early = (0..spread).map(|index| (u128::from(index) * u128::from(before) / u128::from(spread)) as u64);
    let last = all.saturating_sub(run.min(DIFFERENT))..all;
    early.chain(last).map(|index| prompt.saturating_add(index)).collect()
}
