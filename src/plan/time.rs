//! How long a run takes and what it costs: rougher than its memory, and a range.
//!
//! The step counts what it computes as it runs ([`crate::work`]): recomputation, the weight gradients that LoRA does not make
//! and attention's quadratic part are in it, or not, by construction. What a card reaches of its data sheet is measured
//! ([`super::speeds`]); where no measured row is near there is no answer.

use serde::{Deserialize, Serialize};

use super::exchange::{Exchange, exchange};
use super::generation::{Starts, Stretches, new_tokens};
use super::speeds::{LAUNCH, Near, OTHERS, READS, Speed, speed_of};
use crate::estimate::estimate;
use crate::hardware::{Gpu, Machine, cheapest};
use crate::issue::{Field, Issue, Severity};
use crate::job::Batch;
use crate::memory::{Memory, Phase};
use crate::model::Architecture;
use crate::model::blocks::FeedForward;
use crate::scenario::{
    Compile, CpuOffload, Lengths, Optimizer, Precision, Scenario, Split, Task, TeacherWeights,
};
use crate::units::{Bytes, grouped};
use crate::work::Work;

/// A figure that is known roughly.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub struct Span {
    /// The least that measured runs let expect.
    pub least: f64,
    /// What is most likely.
    pub typical: f64,
    /// The most.
    pub most: f64,
}

impl Span {
    /// All three times that.
    pub fn times(self, factor: f64) -> Span {
        Span { least: self.least * factor, typical: self.typical * factor, most: self.most * factor }
    }

    /// So much divided by each.
    pub fn of(self, whole: f64) -> Span {
        Span { least: whole / self.most, typical: whole / self.typical, most: whole / self.least }
    }
}

/// What a step spends its time with: seconds of each, typically.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Spent {
    /// Matrix products.
    pub products: f64,
    /// Attention's kernels.
    pub attention: f64,
    /// What writes and reads memory.
    pub memory: f64,
    /// Python and the driver starting operations, while the GPU waits: nothing where it has enough to do.
    pub waiting: f64,
    /// Waiting for what other GPUs send, as far as that takes longer than what is computed meanwhile.
    pub exchange: f64,
    /// Waiting for what goes to the CPU's memory and comes back, as far as that takes longer than what is computed meanwhile.
    pub travel: f64,
    /// Waiting for the first micro-batch of a pipeline, and after its last.
    pub idle: f64,
}

impl Spent {
    /// What a GPU is busy with by itself, or waits for.
    fn own(&self) -> f64 {
        self.busy() + self.waiting
    }

    /// What it is busy with.
    fn busy(&self) -> f64 {
        self.products + self.attention + self.memory
    }

    /// This, and so often that.
    fn and(self, other: Spent, times: f64) -> Spent {
        Spent {
            products: self.products + other.products * times,
            attention: self.attention + other.attention * times,
            memory: self.memory + other.memory * times,
            waiting: self.waiting + other.waiting * times,
            exchange: self.exchange + other.exchange * times,
            travel: self.travel + other.travel * times,
            idle: self.idle + other.idle * times,
        }
    }
}

/// How fast a run is.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Pace {
    /// Seconds of an optimizer step, or of a call of `generate`.
    pub step: Span,
    /// Tokens of a step, padding left out, on all GPUs; of a call of `generate` the new ones.
    pub tokens: u64,
    /// Seconds until the first of the new tokens is there, where some are generated.
    pub prompts: Option<Span>,
    /// Seconds of a further one, of all sequences at once.
    pub per_token: Option<Span>,
    /// What the time goes to.
    pub spent: Spent,
    /// What the figures rest on.
    pub speed: &'static Speed,
    /// Whether that is the card itself, one like it, or others.
    pub near: Near,
    /// What sets the run apart from all that these rest on.
    pub unlike: Option<&'static str>,
    /// In whose runs it was measured how fast operations start, where tokens are generated.
    pub starts: Option<&'static str>,
    /// What the figures leave out.
    pub without: Option<&'static str>,
    /// The machine with such cards that costs least, where a price is known.
    pub machine: Option<&'static Machine>,
    /// US dollars that an hour of one GPU costs, where the scenario says it.
    pub price: Option<f64>,
    /// How many GPUs train.
    pub gpus: u64,
    /// How many of them a machine has.
    pub of_a_machine: u64,
    /// Bytes that each of them sends to others in a step, and how long that takes.
    pub sent: (Bytes, Exchange),
}

impl Pace {
    /// Tokens per second on all GPUs.
    pub fn tokens_per_second(&self) -> Span {
        self.step.of(self.tokens as f64)
    }

    /// Hours for so many tokens.
    pub fn hours(&self, tokens: u64) -> Span {
        self.step.times(tokens as f64 / self.tokens.max(1) as f64 / 3600.0)
    }

    /// US dollars for so many tokens, where a price is known: the scenario's own for each GPU, or that of whole machines, which are rented with
    /// the cards that do not train.
    pub fn dollars(&self, tokens: u64) -> Option<Span> {
        let of_gpus = self.price.map(|price| price * self.gpus as f64);
        let of_machines = |machine: &Machine| machine.per_hour * self.machines(machine) as f64;
        let per_hour = of_gpus.or_else(|| self.machine.map(of_machines))?;
        Some(self.hours(tokens).times(per_hour))
    }

    /// US dollars that an hour of each GPU that trains costs, where a price is known: of the scenario's own, or its part of whole machines.
    pub fn dollars_per_gpu_hour(&self) -> Option<f64> {
        let part =
            |machine: &Machine| machine.per_hour * self.machines(machine) as f64 / self.gpus.max(1) as f64;
        self.price.or_else(|| self.machine.map(part))
    }

    /// How many of such machines have as many cards as train.
    fn machines(&self, machine: &Machine) -> u64 {
        self.gpus.div_ceil(u64::from(machine.gpus).min(self.of_a_machine).max(1))
    }

    /// The machine whose price is taken: `aws p5en.48xlarge, of whose 8 cards 1 trains`, `2 × aws p5.48xlarge`.
    pub fn rented(&self) -> Option<String> {
        let machine = self.machine?;
        let machines = self.machines(machine);
        let many = if machines > 1 { format!("{} × ", grouped(machines)) } else { String::new() };
        let cards = machines * u64::from(machine.gpus);
        let idle = match cards == self.gpus {
            true => String::new(),
            false => format!(
                ", of whose {} cards {} {}",
                grouped(cards),
                grouped(self.gpus),
                if self.gpus == 1 { "trains" } else { "train" }
            ),
        };
        Some(format!("{many}{} {}{idle}", machine.provider, machine.name))
    }

    /// What the figures rest on, in words.
    pub fn rests_on(&self) -> String {
        let Speed { card, rows, sources, .. } = self.speed;
        let name = crate::hardware::gpu(card).map_or_else(|_| (*card).to_owned(), |gpu| gpu.name.to_string());
        let runs = match self.near {
            Near::Card => format!("{rows} measured runs on the {name} ({sources})"),
            Near::Generation => {
                format!("{rows} measured runs on the {name} ({sources}), a card of the same generation")
            }
            Near::Others => format!(
                "{rows} measured runs on six other cards ({sources}), none of them near this one: the range is as wide as those cards are \
                 apart"
            ),
        };
        let runs = match self.unlike {
            Some(unlike) => format!("{runs}; none of them {unlike}"),
            None => runs,
        };
        match self.starts {
            Some(whose) => format!("{runs}; operations of generate start as fast as in {whose}"),
            None => runs,
        }
    }
}

/// How fast a scenario is on its card, whose estimate is `memory`.
///
/// # Errors
/// An [`Issue`] that says why there is no answer: a card or a kind of run of which nothing near was measured.
///
/// ```
/// use headroom::plan::pace;
/// use headroom::{estimate, scenario::{GpuChoice, Scenario}};
///
/// let scenario = Scenario { gpu: GpuChoice::Catalogue("a100-sxm-80gb".into()), ..Scenario::default() };
/// let memory = estimate(&scenario).memory.expect("an answer");
/// let speed = pace(&scenario, &memory).unwrap().tokens_per_second();
/// assert!((2_000.0..4_000.0).contains(&speed.typical), "{speed:?}");
///
/// let scenario = Scenario { gpu: GpuChoice::Catalogue("mi300x".into()), ..scenario };
/// assert!(pace(&scenario, &memory).unwrap_err().to_string().starts_with("no measured run is near"));
/// ```
pub fn pace(scenario: &Scenario, memory: &Memory) -> Result<Pace, Issue> {
    let (architecture, gpu) = (scenario.architecture()?, scenario.gpu()?);
    followed(scenario, &architecture)?;
    let unknown = || {
        let message = format!("no measured run is near the {}: how long a step takes is not said", gpu.name);
        Issue::new(Severity::Note, Field::Gpu, message)
    };
    let (speed, near) = speed_of(&gpu).ok_or_else(unknown)?;
    let (flops, bytes) = gpu.tflops.zip(gpu.bandwidth).ok_or_else(unknown)?;
    let (phases, tokens) = worked(scenario, memory)?;
    let stretches = Stretches::of(scenario, &phases);
    let peaks = (flops * 1e12, bytes * 1e9);
    // another card may differ in clocks and limits of power; of the others' range that is part
    let further = if near == Near::Generation { 1.15 } else { 1.0 };
    let range = (speed.range.0 / further, speed.range.1 * further);
    let timed = |work: Work, range, starts: Starts| {
        let started = work.operations as f64 * starts.seconds;
        Timed::of(spent(work, speed, peaks, started), range, (started, starts.range))
    };
    let training = Starts { seconds: LAUNCH, range, whose: "" };
    let (work, mut own) = slowest(scenario, stretches.trains, |work| timed(work, range, training));
    let starts = Starts::of(&gpu);
    let prompts = timed(stretches.prompts, range, starts);
    // no run was measured whose tokens wait for weights, keys and values: as wide as where no card is near
    let wider = (range.0, range.1.max(OTHERS.range.1));
    let further = stretches.passes.iter().map(|work| timed(*work, wider, starts));
    let further = further.fold(Timed::default(), |sum, pass| sum.and(pass, stretches.each));
    let passes = stretches.each * stretches.passes.len() as f64;
    let generates = stretches.prompts.operations > 0;
    own = own.and(prompts, 1.0).and(further, 1.0);
    if own.typical() == 0.0 {
        return Err(unknown());
    }
    let travel = travel(memory, &gpu, own.typical());
    let exchanged = exchange(work.sent, scenario, &gpu)?;
    let Exchange { beside, apart } = exchanged;
    let mut spent = own.spent;
    spent.exchange = (beside - own.typical()).max(0.0) + apart;
    let idle = idle(scenario);
    spent.travel = (travel - own.typical() - spent.exchange).max(0.0);
    spent.idle = (own.typical() + spent.exchange + spent.travel) * idle;
    let least = (beside - own.least).max(0.0) + apart;
    let step = |computed: f64, waited: f64| (computed + waited) * (1.0 + idle);
    let gpus = scenario.cluster.gpus.max(1);
    Ok(Pace {
        step: Span {
            least: step(own.least, least + (travel - own.least - least).max(0.0)),
            typical: step(own.typical(), spent.exchange + spent.travel),
            most: step(own.most, beside + apart + travel),
        },
        tokens: tokens.saturating_mul(accumulated(scenario)).saturating_mul(copies(scenario)),
        prompts: generates.then(|| prompts.span()),
        per_token: (passes > 0.0).then(|| further.span().times(1.0 / passes)),
        spent,
        speed,
        near,
        unlike: unlike(scenario, &architecture),
        starts: generates.then_some(starts.whose),
        without: without(scenario),
        machine: cheapest(&gpu.slug, scenario.cluster.of_a_machine()),
        of_a_machine: scenario.cluster.of_a_machine(),
        sent: (Bytes(work.sent.total()), exchanged),
        price: scenario.data.price(),
        gpus,
    })
}

/// The time of a stretch of a run, and between what it lies.
#[derive(Clone, Copy, Debug, Default)]
struct Timed {
    spent: Spent,
    least: f64,
    most: f64,
}

impl Timed {
    /// Where what the GPU is busy with lies between such multiples, and the seconds in which all operations start between those
    /// others: it takes the longer of both.
    fn of(spent: Spent, range: (f64, f64), (started, others): (f64, (f64, f64))) -> Timed {
        let longer = |busy: f64, start: f64| (spent.busy() * busy).max(started * start);
        Timed { spent, least: longer(range.0, others.0), most: longer(range.1, others.1) }
    }

    fn typical(&self) -> f64 {
        self.spent.own()
    }

    fn span(&self) -> Span {
        Span { least: self.least, typical: self.typical(), most: self.most }
    }

    /// This, and so often that.
    fn and(self, other: Timed, times: f64) -> Timed {
        Timed {
            spent: self.spent.and(other.spent, times),
            least: self.least + other.least * times,
            most: self.most + other.most * times,
        }
    }
}

/// How many micro-batches a step has; a call of `generate` is one.
fn accumulated(scenario: &Scenario) -> u64 {
    if scenario.task.trains() { scenario.accumulation.max(1) } else { 1 }
}

/// What of a step is not in the figures.
fn without(scenario: &Scenario) -> Option<&'static str> {
    scenario.asks_a_generator().then_some(
        "the answers' generation by vLLM, of which no speed was measured that carries over to batches: this is what the training's \
         own passes take",
    )
}

/// Seconds that offloaded activations are on the way to the CPU's memory and back at the wire's rate, where that is longer than the GPU
/// computes meanwhile: measured runs show them to cost little as long as there is time for it.
fn travel(memory: &Memory, gpu: &Gpu, computes: f64) -> f64 {
    /// Bytes per second of PCIe 4.0 with 16 lanes, one way (PCI-SIG: 16 GT/s a lane, 128 of 130 bits), for cards whose wire is not known.
    const PCIE: f64 = 31.5e9;
    let rate = gpu.pcie.map_or(PCIE, |gigabytes| gigabytes * 1e9);
    let seconds = 2.0 * memory.offloaded.0 as f64 / rate;
    if seconds <= computes { 0.0 } else { seconds }
}

fn refused(field: Field, message: String) -> Issue {
    Issue::new(Severity::Note, field, message)
}

/// Kinds of runs of which no row was measured.
fn followed(scenario: &Scenario, architecture: &Architecture) -> Result<(), Issue> {
    let none = |field, what: &str| {
        Err(refused(field, format!("no run {what} was measured: how long a step takes is not said")))
    };
    match scenario.task {
        Task::Sft
        | Task::Classify
        | Task::Embed
        | Task::Dpo
        | Task::Kto
        | Task::Orpo
        | Task::Cpo
        | Task::Simpo
        | Task::Reward
        | Task::Grpo
        | Task::Rloo
        | Task::Ppo
        | Task::Generate => {}
        Task::Distil if scenario.learns_by_gkd() => {
            return none(Field::Divergence, "whose divergence is made of all logits");
        }
        Task::Distil => {
            // its trainer calls past autocast, and loads a teacher in 32 bits unless it is told otherwise
            let halves = match scenario.precision {
                Precision::Bf16 | Precision::AmpBf16Weights | Precision::AmpFp16Weights => true,
                Precision::Fp32 | Precision::Fp16 | Precision::AmpBf16 | Precision::AmpFp16 => false,
            };
            if !halves || scenario.teacher.weights == TeacherWeights::Fp32 {
                return none(Field::Task, "whose student or teacher computes in 32 bits");
            }
        }
    }
    if scenario.trains_in_float8() {
        return none(Field::Float8, "whose products are in 8-bit floats");
    }
    if scenario.trains_quantization_aware() {
        return none(Field::Qat, "whose layers round their weights");
    }
    if scenario.compile != Compile::Off {
        return none(Field::Compile, "that is compiled");
    }
    if scenario.cluster.has_engine() && scenario.cluster.cpu != CpuOffload::Off {
        return none(Field::CpuOffload, "whose weights or optimizer lie in the CPU's memory");
    }
    if scenario.precision == Precision::Fp32 {
        return none(Field::Precision, "in 32 bits");
    }
    if scenario.emulates_bfloat16() {
        return none(Field::Precision, "whose bfloat16 the card emulates");
    }
    // the states of adapters are a few MB
    if scenario.optimizer.is_paged() && !scenario.method.has_adapters() {
        return none(Field::Optimizer, "whose optimizer states travel between CPU and GPU");
    }
    if scenario.projects() {
        return none(Field::Optimizer, "that projects gradients");
    }
    if scenario.optimizer == Optimizer::Shampoo {
        return none(Field::Optimizer, "that takes roots of matrices");
    }
    if architecture.blocks.iter().any(|block| block.mixer.is_recurrent()) {
        return none(Field::Model, "of state spaces or linear attention");
    }
    Ok(())
}

/// What of a run no row has that the cards' figures rest on. Its operations are those of other runs, and counted as theirs are.
fn unlike(scenario: &Scenario, architecture: &Architecture) -> Option<&'static str> {
    let has_experts = |ffn: &FeedForward| match ffn {
        FeedForward::Moe(_) => true,
        FeedForward::Dense(_) | FeedForward::None => false,
    };
    let mixes = architecture.blocks.iter().any(|block| has_experts(&block.ffn));
    if scenario.task == Task::Generate {
        // Qwen's rows have a prompt of one token and 2,048 new ones
        let length = scenario.sequence.saturating_add(scenario.generation.new_tokens);
        return Some(if length > 2_049 {
            "of this task; of texts as long as these only older code was measured, which was up to five times slower"
        } else {
            "of this task"
        });
    }
    let is_fused = scenario.optimizer.steps_in_backward();
    match (scenario.task != Task::Sft, mixes) {
        (true, false) if is_fused => Some("of this task, nor of this optimizer"),
        (false, false) if is_fused => Some("of this optimizer"),
        (true, true) => Some("of this task, nor of a mixture of experts"),
        (true, false) => Some("of this task"),
        (false, true) => Some("of a mixture of experts"),
        (false, false) => None,
    }
}

/// How many micro-batches go through the model at a time: one for each GPU, or for each group that holds the model once.
fn copies(scenario: &Scenario) -> u64 {
    (scenario.cluster.gpus / scenario.divided().gpus().max(1)).max(1)
}

/// What the stage of a pipeline that takes longest does, for which the others wait: the first, one between, the last, which has the
/// head, or the one that is answered for.
fn slowest(scenario: &Scenario, work: Work, timed: impl Fn(Work) -> Timed) -> (Work, Timed) {
    let layout = scenario.divided();
    let mut slowest = (work, timed(work));
    if layout.pipeline > 1 {
        // those between do as much as the first where layers divide evenly, and it has the embedding too
        let stages = if layout.split == Split::EVEN { vec![1] } else { vec![1, 2] };
        for stage in stages.into_iter().chain([layout.pipeline]) {
            let mut other = scenario.clone();
            other.cluster.layout.stage = stage;
            let Some(memory) = estimate(&other).memory else { continue };
            let own = timed(memory.work());
            if own.typical() > slowest.1.typical() {
                slowest = (memory.work(), own);
            }
        }
    }
    slowest
}

/// How long a stage has nothing to do, as a share of the time that it has: its pipeline fills and empties once a step (Narayanan et
/// al. 2021, arXiv 2104.04473, section 2.2).
fn idle(scenario: &Scenario) -> f64 {
    let layout = scenario.divided();
    if layout.pipeline <= 1 {
        return 0.0;
    }
    let layers = scenario.architecture().map_or(0, |architecture| architecture.order.len() as u64);
    let parts = layout.division(layers).map_or(1, |division| division.parts());
    (layout.pipeline - 1) as f64 / scenario.accumulation.max(1).saturating_mul(parts) as f64
}

/// What the phases of a step of typical batches compute, and the tokens of a micro-batch that are no padding, or are generated.
fn worked(scenario: &Scenario, memory: &Memory) -> Result<(Vec<(Phase, Work)>, u64), Issue> {
    /// Batches that stand for all.
    const DRAWN: usize = 1_000;
    let Scenario { batch, sequence, lengths, .. } = *scenario;
    if scenario.task == Task::Generate {
        return Ok((memory.work.clone(), batch.saturating_mul(new_tokens(scenario))));
    }
    if lengths == Lengths::Equal || scenario.mask.is_packed() {
        let texts = if scenario.task == Task::Embed { scenario.embedding.texts.max(2) } else { 1 };
        let sequences = Batch::from(scenario).sequences.saturating_mul(texts);
        return Ok((memory.work.clone(), sequences.saturating_mul(sequence)));
    }
    let mean =
        |drawn: Vec<u64>| drawn.iter().fold(0u64, |sum, length| sum.saturating_add(*length)) / DRAWN as u64;
    let padded = mean(lengths.draw(batch, sequence, DRAWN)).max(1);
    let tokens = mean(lengths.draw_sums(batch, sequence, DRAWN)).max(1);
    let typical = Scenario { sequence: padded, lengths: Lengths::Equal, ..scenario.clone() };
    let estimate = estimate(&typical);
    match &estimate.memory {
        Some(memory) => Ok((memory.work.clone(), tokens)),
        None => Err(estimate.errors().next().cloned().unwrap_or_else(|| {
            refused(Field::Lengths, "batches of their mean length have no estimate".to_owned())
        })),
    }
}

/// Seconds of each part, on a card with so many FLOP/s and bytes per second, where all operations start in so many.
fn spent(work: Work, speed: &Speed, (flops, bytes): (f64, f64), started: f64) -> Spent {
    // weights are read once, however few tokens they are given
    let read = work.read as f64 / (bytes * READS);
    let products = (work.products as f64 / (flops * speed.products)).max(read);
    let attention = work.attention as f64 / (flops * speed.attention);
    let memory = work.written as f64 / (bytes * speed.memory);
    let busy = products + attention + memory;
    let waiting = (started - busy).max(0.0);
    Spent { products, attention, memory, waiting, exchange: 0.0, travel: 0.0, idle: 0.0 }
}
