//! An out-of-memory message, decoded: which tensor asked for the memory, where the card's memory was, whether it was there in
//! pieces, and which change removes the request. The message's figures are looked for in the run of a scenario.

mod amount;
mod bare;
mod beside;
mod candidates;
mod finding;
mod guess;
mod host;
mod joining;
mod likely;
mod message;
mod offer;
mod place;
mod pool;
mod processes;
mod smi;
mod suspect;
mod vllm;
mod words;

use serde::{Deserialize, Serialize};

use crate::accuracy;
use crate::estimate::in_cpu_memory;
use crate::hardware::{Class, Gpu, Vendor, gpus};
use crate::issue::Issue;
use crate::plan::{Answer, Change, Cost, Lever, Verdict, levers};
use crate::scenario::{Allocator, GpuChoice, Scenario};
use crate::units::Bytes;
pub use amount::Amount;
pub use bare::Bitsandbytes;
use beside::beside;
use candidates::guesses;
use finding::findings;
pub use finding::{Figure, Finding};
use guess::nearest_first;
pub use guess::{Guess, Kind};
pub use host::Host;
pub use joining::Joining;
pub use likely::Likely;
use likely::{likely, nearest_run};
pub use message::{Message, NoMessage};
pub use offer::Offer;
use offer::offers;
pub use place::Place;
use place::places;
use processes::processes;
pub use processes::{Process, Processes};
pub use suspect::Suspect;
use suspect::{recorded, suspects};
pub use vllm::{Cache, Share};

/// What a message means beside a scenario.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[non_exhaustive]
pub struct Decoded {
    /// Its figures.
    pub message: Message,
    /// The scenario in whose run they were looked for, on the card of the message.
    pub scenario: Box<Scenario>,
    /// The change of card that this is, where the scenario had another.
    pub card: Vec<Change>,
    /// Where the card's memory was.
    pub account: Vec<(Holder, Bytes)>,
    /// The tensors of that run that ask for as much as the message says, the likeliest first.
    pub suspects: Vec<Suspect>,
    /// The runs near the scenario that it may have been instead: where no suspect agrees with the message.
    pub likely: Vec<Likely>,
    /// What else of that size there is, in models of the catalogue: where there is no such run either.
    pub guesses: Vec<Guess>,
    /// What the figures say.
    pub findings: Vec<Finding>,
    /// The changes of the scenario that the text itself names.
    pub offers: Vec<Offer>,
    /// The verdict on the scenario.
    pub verdict: Option<Verdict>,
}

impl Decoded {
    /// What was asked for and could not be had; nothing where the text does not say it.
    pub fn headline(&self, amount: impl Fn(Bytes) -> String) -> Option<String> {
        let Message { requested, host, vllm, cache, .. } = self.message;
        let of_card = requested.map(|asked| asked.bytes);
        let of_host = host.and_then(Host::asked);
        match (of_card, of_host, vllm) {
            (Some(asked), _, _) => {
                Some(format!("PyTorch asked for {}, and the card had no room for it.", amount(asked)))
            }
            (None, Some(asked), _) => Some(format!(
                "{} of the computer's memory (RAM) were asked for, and it had no room for them.",
                amount(asked)
            )),
            (None, None, Some(Share { asked, free, .. })) => Some(format!(
                "vLLM asked for {} of the card, and {} were free.",
                amount(asked.bytes),
                amount(free.bytes)
            )),
            (None, None, None) => cache.map(|cache| cache.headline(amount)),
        }
    }

    /// Whether a tensor of the scenario's run is asked for as the message says: nothing contradicts that the scenario is that run.
    pub fn is_of_the_run(&self) -> bool {
        is_of_the_run(&self.suspects)
    }
}

fn is_of_the_run(suspects: &[Suspect]) -> bool {
    suspects.iter().any(|suspect| !suspect.contradicts())
}

/// Who had a part of the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Holder {
    /// PyTorch's tensors: `memory_allocated()`.
    Tensors,
    /// The free blocks of PyTorch's allocator.
    FreeBlocks,
    /// What the process has beside PyTorch's allocator.
    Outside,
    /// Other processes.
    Others,
    /// What the process has of Metal beside PyTorch's allocator.
    BesideMetal,
    /// One of these, which the message does not tell apart.
    OutsideAndOthers,
    /// One of these or nobody, where the message does not say what was free.
    OutsideOthersAndNobody,
    /// All but tensors, where the message does not say what the allocator keeps.
    AllButTensors,
    /// The process that trains, all of it.
    Process,
    /// This process and all others, as nvidia-smi alone shows them.
    Everybody,
    /// Nobody.
    Nobody,
}

impl Holder {
    /// The name shown to people.
    pub const fn label(self) -> &'static str {
        match self {
            Holder::Tensors => "Tensors (allocated)",
            Holder::FreeBlocks => "PyTorch's free blocks (reserved, not allocated)",
            Holder::Outside => "This process beside PyTorch: the driver's context, kernels, NCCL",
            Holder::Others => "Other processes",
            Holder::BesideMetal => "This process beside PyTorch's allocator (other allocations)",
            Holder::OutsideAndOthers => "The driver's context, and other processes if there are any",
            Holder::OutsideOthersAndNobody => {
                "The driver's context, other processes and what was free: the message does not say how much"
            }
            Holder::AllButTensors => "The allocator's free blocks, the driver's context, other processes",
            Holder::Process => "The process that trains",
            Holder::Everybody => "All processes",
            Holder::Nobody => "Free",
        }
    }
}

/// A card has the memory that a message says where it differs by no more than this part: nvidia-smi shows up to 3 % more than
/// a program can have (`data/gpus.csv`: of a T4 15,360 MiB and 14,912).
const SAME_CARD: f64 = 0.04;

/// A message's card is one of the catalogue where no other has as much, and the two differ by no more than this part: cards of one kind differ by as much
/// from driver to driver (`data/gpus.csv`: of an RTX 4090 23.494 to 23.650 GiB).
const NEAREST_CARD: f64 = 0.007;

/// Whether a text is an out-of-memory message that is read.
pub fn is_message(text: &str) -> bool {
    text.parse::<Message>().is_ok()
}

/// Decodes a text beside a scenario.
///
/// # Errors
/// [`NoMessage`] where no figure is found in the text. A scenario without an answer is none: what the message says by itself
/// is said.
///
/// ```
/// use headroom::{oom, share};
/// let scenario = &share::decode("m=Qwen/Qwen2.5-0.5B&method=full&p=amp-bf16&b=8&s=512&gpu=rtx-4090").scenarios[0];
/// let text = "CUDA out of memory. Tried to allocate 2.32 GiB. GPU 0 has a total capacity of 10.00 GiB of which 2.25 GiB is free. \
///             Of the allocated memory 7.10 GiB is allocated by PyTorch, and 657.89 MiB is reserved by PyTorch but unallocated.";
/// let decoded = oom::decode(text, scenario)?;
/// assert_eq!(decoded.suspects[0].line.formula, "4,096 tokens × 151,936 × 4 bytes (float32)");
/// # Ok::<(), oom::NoMessage>(())
/// ```
pub fn decode(text: &str, scenario: &Scenario) -> Result<Decoded, NoMessage> {
    let message: Message = text.parse()?;
    let asked = scenario;
    let (scenario, cards) = on_card_of(&message, text, asked);
    let answer = Answer::of(scenario.clone());
    let places = places(text);
    let (suspects, unanswered) = match suspects(&message, &places, &scenario) {
        Ok(suspects) => (suspects, None),
        Err(issue) => (Vec::new(), Some(issue)),
    };
    let agrees = is_of_the_run(&suspects);
    let likely = if agrees { Vec::new() } else { likely(&message, &places, &scenario) };
    let mut guesses =
        if agrees || !likely.is_empty() { Vec::new() } else { guesses(&message, &places, &scenario) };
    guesses.retain_mut(|guess| {
        let Some((run, suspect)) = nearest_run(&message, &places, &guess.scenario) else {
            // what no run of the model asks for, it was not
            return message.allocated.is_none() && message.in_use().is_none() && !guess.scenario.stops();
        };
        (*guess.scenario, guess.allocated) = (run, Some(suspect.allocated));
        // the scenario itself was looked at
        if Change::between(&scenario, &guess.scenario, "").is_empty() {
            return false;
        }
        message.capacity.is_none_or(|capacity| suspect.allocated <= capacity.bytes)
    });
    nearest_first(&mut guesses, &message);
    let vendor = message.vendor().or(scenario.gpu().ok().map(|gpu| gpu.vendor)).unwrap_or(Vendor::Nvidia);
    let joining = Joining::of(vendor, scenario.allocator);
    let listed = processes(text).filter(|_| message.requested.is_none());
    let mut findings = findings(&message, listed.clone(), cards, &suspects, unanswered, joining);
    let mac = scenario.card().ok().filter(|gpu| message.is_of_metal && gpu.vendor == Vendor::Apple);
    findings.extend(mac.map(|gpu| Finding::OnMac { name: gpu.name.to_string(), recommended: gpu.memory }));
    let is_sought = message.sought().is_some() && answer.estimate.memory.is_some();
    let innermost =
        places.first().filter(|_| is_sought && suspects.first().is_none_or(|first| first.place.is_none()));
    findings.extend(innermost.map(|place| Finding::NotThere { place: *place }));
    findings.extend(beside(&message, &answer));
    findings.extend(message.host.and_then(|_| on_host(&answer)));
    // where the scenario is that run, this is the first of what helps
    let in_pieces = !agrees && findings.iter().any(is_in_pieces);
    let offers = offers(&message, listed.as_ref(), asked, &scenario, in_pieces);
    if is_shared(&message, &scenario) {
        for finding in findings.iter_mut().filter(|finding| matches!(finding, Finding::OutOfHost(_))) {
            *finding = Finding::OutOfShared;
        }
    }
    let of_other_run = findings.iter().any(Finding::is_other_run);
    findings.extend(more_than_run(&message, &answer).filter(|_| !of_other_run));
    findings.extend(match guesses.first().map(|guess| guess.kind) {
        Some(Kind::Logits) => Some(Finding::LikelyLogits),
        Some(Kind::Scores) => Some(Finding::LikelyScores),
        Some(_) => None,
        None => (is_sought && !agrees && likely.is_empty()).then_some(Finding::NotKnown),
    });
    Ok(Decoded {
        account: account(&message),
        card: Change::between(asked, &scenario, "gpu"),
        findings,
        offers,
        verdict: answer.verdict(),
        suspects,
        likely,
        guesses,
        message,
        scenario: scenario.into(),
    })
}

/// Whether the computer's memory ran out, and is the card's too: on a Mac, an APU, a DGX Spark.
fn is_shared(message: &Message, scenario: &Scenario) -> bool {
    message.host.is_some() && scenario.gpu().is_ok_and(|gpu| gpu.class == Some(Class::Unified))
}

/// What the scenario's run has of the computer's memory, where it has an answer.
fn on_host(answer: &Answer) -> Option<Finding> {
    let memory = answer.estimate.memory.as_ref()?;
    let parameters = answer.scenario.architecture().ok()?.parameters();
    let notes = in_cpu_memory(&answer.scenario, memory, parameters);
    Some(Finding::OnHost { notes: notes.into_iter().map(|note| note.message).collect() })
}

/// Whether more was allocated than the scenario's run ever has, by more than its estimate may be off.
fn more_than_run(message: &Message, answer: &Answer) -> Option<Finding> {
    let said = message.allocated?;
    let most = answer.estimate.memory.as_ref()?.peak().1.bytes;
    let percent = accuracy::band(&*answer.scenario.architecture().ok()?, &answer.scenario).percent;
    let least = said.bytes.saturating_sub(said.off);
    (least.0 as f64 > most.0 as f64 * (1.0 + percent / 100.0))
        .then_some(Finding::MoreThanRun { said: said.bytes, most })
}

/// What helps, nothing where the scenario fits and is another run: where the memory was there in pieces, letting the allocator join them, last where that is not enough; the changes
/// with which a decoded scenario fits, where it does not, then those after which none of its tensors asks for as much as the
/// message says any more.
/// Where the message is of another card, that is one of the changes.
///
/// # Errors
/// As [`levers`].
pub fn remedies(decoded: &Decoded) -> Result<Vec<Lever>, Issue> {
    if !decoded.message.is_of_step() && !is_shared(&decoded.message, &decoded.scenario) {
        return Ok(Vec::new());
    }
    let found = levers(&decoded.scenario)?;
    let joined = joined(decoded).filter(|_| decoded.is_of_the_run());
    if found.verdict.holds() {
        // what fits as it is and is another run needs no help
        return Ok(joined.into_iter().collect());
    }
    // what the scenario does not ask for cannot be removed from it
    let asked = decoded.message.sought().filter(|_| !decoded.suspects.is_empty());
    let asks_for_less = |lever: &Lever| {
        let largest = || recorded(&lever.scenario).map(|recording| recording.largest_request().0);
        asked.as_ref().is_some_and(|asked| largest().is_ok_and(|largest| largest < *asked.start()))
    };
    let all = found.single.into_iter().chain(found.together);
    let (mut fitting, others): (Vec<Lever>, Vec<Lever>) = all.partition(Lever::holds);
    fitting.extend(others.into_iter().filter(asks_for_less));
    if let Some(joined) = joined {
        fitting.retain(|lever| lever.scenario != joined.scenario);
        let at = if joined.verdict == Verdict::Over { fitting.len() } else { 0 };
        fitting.insert(at, joined);
    }
    fitting.iter_mut().for_each(|lever| lever.changes.extend(decoded.card.iter().cloned()));
    Ok(fitting)
}

/// Whether it says that the memory was there in pieces which the allocator can join and does not.
fn is_in_pieces(finding: &Finding) -> bool {
    matches!(finding, Finding::Fragmented { joining: Joining::Off, .. })
}

/// The scenario with an allocator that joins its pieces, where the message says that they would have been enough.
fn joined(decoded: &Decoded) -> Option<Lever> {
    let is_cudas = decoded.scenario.gpu().is_ok_and(|gpu| gpu.vendor == Vendor::Nvidia);
    (is_cudas && decoded.findings.iter().any(is_in_pieces)).then_some(())?;
    let scenario = Scenario { allocator: Allocator::Expandable, ..(*decoded.scenario).clone() };
    let answer = Answer::of(scenario.clone());
    Some(Lever {
        changes: Change::between(&decoded.scenario, &scenario, "allocator"),
        cost: Cost::Nothing,
        slower: None,
        needed: answer.fit()?.needed,
        on_host: answer.on_host(),
        verdict: answer.verdict()?,
        scenario: scenario.into(),
    })
}

/// The scenario on the card that the text names, or on one with the memory that the message says; and what its own card and that have,
/// where they differ.
fn on_card_of(message: &Message, text: &str, scenario: &Scenario) -> (Scenario, Option<[Bytes; 2]>) {
    let capacity = message.capacity.map(|amount| amount.bytes);
    // all of it, whoever has a part
    let card = scenario.card().ok();
    let own = card.as_ref().map_or(Bytes::ZERO, |gpu| gpu.memory);
    let is_near = |one: Bytes, other: Bytes| one.0.abs_diff(other.0) as f64 <= other.0 as f64 * SAME_CARD;
    let named = named_in(text, |gpu| capacity.is_none_or(|capacity| is_near(gpu.memory, capacity)));
    if let Some(gpu) = named {
        let there = gpu.memory;
        let gpu = GpuChoice::Catalogue(gpu.slug.to_string());
        return (Scenario { gpu, ..scenario.clone() }, (!is_near(own, there)).then_some([own, there]));
    }
    let Some(capacity) = capacity else { return (scenario.clone(), None) };
    let vendor = message.vendor();
    if vendor == Some(Vendor::Apple) {
        return (on_mac(capacity, scenario), None);
    }
    let is_theirs = vendor.is_none_or(|vendor| card.is_some_and(|gpu| gpu.vendor == vendor));
    if is_theirs && is_near(own, capacity) {
        return (scenario.clone(), None);
    }
    let vendor = vendor.unwrap_or(Vendor::Nvidia);
    let gpu = nearest(capacity, vendor)
        .map_or(GpuChoice::Custom(capacity), |gpu| GpuChoice::Catalogue(gpu.slug.to_string()));
    (Scenario { gpu, ..scenario.clone() }, Some([own, capacity]))
}

/// What PyTorch lets a process have of what Metal recommends, where nothing is said (`default_high_watermark_ratio` in
/// `ATen/mps/MPSAllocator.h`).
const OF_RECOMMENDED: f64 = 1.7;

/// The scenario on a Mac on which a process has that limit: its own, or else the first of the smallest with as much.
fn on_mac(limit: Bytes, scenario: &Scenario) -> Scenario {
    let limit = limit.0 as f64;
    let limit_of = |gpu: &Gpu| gpu.memory.0 as f64 * OF_RECOMMENDED;
    let is_it = |gpu: Gpu| gpu.vendor == Vendor::Apple && (limit_of(&gpu) - limit).abs() <= limit * SAME_CARD;
    if scenario.card().is_ok_and(is_it) {
        return scenario.clone();
    }
    let macs = gpus().filter(|gpu| gpu.vendor == Vendor::Apple);
    let with_as_much = macs.filter(|gpu| limit_of(gpu) >= limit * (1.0 - SAME_CARD));
    let gpu = with_as_much.min_by_key(|gpu| gpu.memory).map(|gpu| GpuChoice::Catalogue(gpu.slug.to_string()));
    Scenario { gpu: gpu.unwrap_or_else(|| scenario.gpu.clone()), ..scenario.clone() }
}

/// The card that a text names as nvidia-smi does, `NVIDIA GeForce RTX 3090` or `Tesla T4`, of those that it may be; nothing where it names
/// several.
fn named_in(text: &str, may_be: impl Fn(&Gpu) -> bool) -> Option<&'static Gpu> {
    /// Words behind a name that make it another card's.
    const OTHERS: [&str; 5] = ["laptop", "ti", "super", "max", "mobile"];
    fn words(text: &str) -> Vec<String> {
        let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
        words.map(str::to_ascii_lowercase).collect()
    }
    let said = words(text);
    let is_said = |name: &[String]| {
        let makers = said.iter().enumerate().filter(|(_, word)| ["nvidia", "tesla"].contains(&word.as_str()));
        makers.map(|(at, _)| &said[at + 1..]).any(|rest| {
            rest.starts_with(name) && rest.get(name.len()).is_none_or(|next| !OTHERS.contains(&next.as_str()))
        })
    };
    let mut named = gpus().filter(|gpu| may_be(gpu)).filter(|gpu| is_said(&words(&gpu.name)));
    named.next().filter(|_| named.next().is_none())
}

/// The card of the catalogue that has as much as a message says: of NVIDIA's where one alone has, of those that people train on (Volta and
/// newer), if there are some; of others' the nearest, as only their tensors are followed.
fn nearest(capacity: Bytes, vendor: Vendor) -> Option<&'static Gpu> {
    let off = |gpu: &Gpu| gpu.memory.0.abs_diff(capacity.0);
    let part = if vendor == Vendor::Nvidia { NEAREST_CARD } else { SAME_CARD };
    let is_near = |gpu: &&Gpu| off(gpu) as f64 <= capacity.0 as f64 * part && gpu.vendor == vendor;
    if vendor != Vendor::Nvidia {
        return gpus().filter(is_near).min_by_key(|gpu| off(gpu));
    }
    let is_old = |gpu: &&Gpu| gpu.capability.is_some_and(|capability| capability.major < 7);
    let (old, new): (Vec<_>, Vec<_>) = gpus().filter(is_near).partition(is_old);
    match if new.is_empty() { &old[..] } else { &new[..] } {
        [one] => Some(one),
        _ => None,
    }
}

/// Where the card's memory was, as far as the message says.
fn account(message: &Message) -> Vec<(Holder, Bytes)> {
    let bytes = |amount: Option<Amount>| amount.map(|amount| amount.bytes);
    let Message { capacity, free, process, others, allocated, unallocated, reserved, shown, .. } = *message;
    let beside = |all: Option<Amount>, parts: [Option<Amount>; 3]| {
        let parts: Bytes = parts.into_iter().flatten().map(|amount| amount.bytes).sum();
        bytes(all).map(|all| all.saturating_sub(parts))
    };
    let outside = match (process, reserved) {
        (Some(process), None) if allocated.is_none() => (Holder::Process, Some(process.bytes)),
        (Some(_), _) => (Holder::Outside, beside(process, [reserved, None, None])),
        (None, Some(_)) if free.is_none() => {
            (Holder::OutsideOthersAndNobody, beside(capacity, [reserved, others, None]))
        }
        (None, Some(_)) => (Holder::OutsideAndOthers, beside(capacity, [reserved, free, others])),
        (None, None) if message.is_of_metal => (Holder::BesideMetal, bytes(message.beside)),
        (None, None) if allocated.is_some() && free.is_some() => {
            (Holder::AllButTensors, beside(capacity, [allocated, free, others]))
        }
        (None, None) => (Holder::Everybody, bytes(shown).or_else(|| message.in_use())),
    };
    // what is left of a Mac's limit
    let left = message.beside.and_then(|other| beside(capacity, [allocated, Some(other), None]));
    let holders = [
        (Holder::Tensors, bytes(allocated)),
        (Holder::FreeBlocks, bytes(unallocated)),
        outside,
        (Holder::Others, bytes(others)),
        (Holder::Nobody, bytes(free).or(left)),
    ];
    holders.into_iter().filter_map(|(holder, bytes)| Some((holder, bytes?))).collect()
}
