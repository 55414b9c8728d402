//! An out-of-memory message, decoded: which tensor asked for the memory, where the card's memory was, whether it was there in
//! pieces, and which change removes the request. The message's figures are looked for in the run of a scenario.

mod account;
mod amount;
mod bare;
mod beside;
mod candidates;
mod card;
mod engine;
mod finding;
mod guess;
mod host;
mod joining;
mod likely;
mod message;
mod offer;
mod others;
mod place;
mod pool;
mod processes;
mod ranks;
mod remedies;
mod served;
mod smi;
mod suspect;
mod traceback;
mod vllm;
mod words;

use serde::{Deserialize, Serialize};

use crate::accuracy;
use crate::estimate::in_cpu_memory;
use crate::hardware::Vendor;
use crate::plan::{Answer, Change, Verdict};
use crate::scenario::{Merges, Scenario};
use crate::units::Bytes;
pub use account::Holder;
use account::account;
pub use amount::Amount;
pub use bare::Bitsandbytes;
use beside::beside;
use candidates::{all_weights, guesses};
use card::{is_shared, on_card_of};
pub use engine::{At, Engine, Serving};
use finding::findings;
pub use finding::{Figure, Finding, OfServing};
use guess::nearest_first;
pub use guess::{Guess, Kind};
pub use host::Host;
pub use joining::Joining;
pub use likely::Likely;
use likely::{likely, nearest_run};
pub use message::{Message, NoMessage};
pub use offer::Offer;
use offer::offers;
pub use others::of_another;
pub use place::Place;
use place::places;
use processes::processes;
pub use processes::{Process, Processes};
use remedies::is_in_pieces;
pub use remedies::remedies;
pub use suspect::Suspect;
use suspect::suspects;
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
    /// Whether something that the message says is of another run than the scenario's.
    pub fn is_of_another_run(&self) -> bool {
        !self.is_of_the_run() && self.findings.iter().any(Finding::is_other_run)
    }

    /// What was asked for and could not be had; nothing where the text does not say it.
    pub fn headline(&self, amount: impl Fn(Bytes) -> String) -> Option<String> {
        let Message { requested, host, vllm, cache, .. } = self.message;
        let of_card = requested.map(|asked| asked.bytes);
        let of_host = host.and_then(Host::asked);
        match (of_card, of_host, vllm) {
            (Some(asked), _, _) => {
                let who =
                    self.message.serving.map_or("PyTorch".to_owned(), |serving| serving.engine.to_string());
                Some(format!("{who} asked for {}, and the card had no room for it.", amount(asked)))
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
    if let Some(serving) = message.serving {
        let tensors = served::tensors(&message, serving, asked);
        let size = (!tensors.is_empty()).then_some(Finding::SizeOfServing(tensors));
        let found = std::iter::once(Finding::InServing(serving)).chain(size).collect();
        // the card is the engine's, and no training is offered on it
        let decoded = without_a_run(text, message, found, asked, (asked.clone(), None));
        return Ok(Decoded { offers: Vec::new(), ..decoded });
    }
    let (scenario, cards) = on_card_of(&message, text, asked);
    let places = places(text);
    if places.first() == Some(&Place::WarmUp) {
        let found = vec![Finding::WarmUp { of: all_weights(&message, &scenario) }];
        return Ok(without_a_run(text, message, found, asked, (scenario, cards)));
    }
    let is_in = |place| places.contains(&place);
    let outside = [
        (is_in(Place::Evaluation) && !scenario.evaluates(), Finding::InEvaluation),
        (is_in(Place::Merging) && scenario.merges() == Merges::Off, Finding::InMerging),
    ];
    if let Some((_, found)) = outside.into_iter().find(|(is_so, _)| *is_so) {
        return Ok(without_a_run(text, message, vec![found], asked, (scenario, cards)));
    }
    let answer = Answer::of(scenario.clone());
    let (suspects, unanswered) = match suspects(&message, &places, &scenario) {
        Ok(suspects) => (suspects, None),
        Err(issue) => (Vec::new(), Some(issue)),
    };
    let agrees = is_of_the_run(&suspects);
    // a rank with a number proves others beside it, among which any engine may have divided the model
    let gpus = ranks::gpus(text);
    let on_as_many = ranks::on_as_many(&scenario, gpus);
    let by_any = on_as_many.cluster.gpus > scenario.cluster.gpus;
    let mut likely = if agrees { Vec::new() } else { likely(&message, &places, &on_as_many) };
    for run in &mut likely {
        run.changes = Change::between(&scenario, &run.scenario, "");
    }
    let mut guesses =
        if agrees || !likely.is_empty() { Vec::new() } else { guesses(&message, &places, &on_as_many) };
    let of_size = size_of_logits(&guesses, &scenario).or_else(|| size_of_partition(&guesses));
    // a size that a power of two explains is of no odd batch
    let is_explained = guesses.iter().any(Guess::is_round);
    guesses.retain(|guess| !(is_explained && guess.is_odd()));
    guesses.retain_mut(|guess| {
        let Some((run, suspect)) = nearest_run(&message, &places, &guess.scenario, by_any) else {
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
    let joining = Joining::of(text, vendor, scenario.allocator);
    let listed = processes(text).filter(|_| message.requested.is_none());
    let mut findings = findings(&message, listed.clone(), cards, &suspects, unanswered, joining);
    let is_lent = joining == Joining::Absent
        && message.allocated.zip(message.capacity).is_some_and(|(had, has)| had.bytes > has.bytes);
    findings.extend(is_lent.then_some(Finding::LentByWindows));
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
    if let Some(of_size) = of_size.filter(|_| guesses.is_empty() && is_sought && !agrees && likely.is_empty())
    {
        findings.insert(0, of_size);
    }
    findings.extend(match guesses.first().map(|guess| guess.kind) {
        Some(Kind::Logits) => vec![Finding::LikelyLogits],
        Some(Kind::Scores) => vec![Finding::LikelyScores],
        None if is_sought && !agrees && likely.is_empty() => vec![Finding::NotKnown],
        Some(_) | None => Vec::new(),
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

/// A message that no run of a scenario explains, with what is found of it: an engine's that serves models, or one of before any tensor.
fn without_a_run(
    text: &str,
    message: Message,
    found: Vec<Finding>,
    asked: &Scenario,
    (scenario, cards): (Scenario, Option<[Bytes; 2]>),
) -> Decoded {
    let vendor = message.vendor().or(scenario.gpu().ok().map(|gpu| gpu.vendor)).unwrap_or(Vendor::Nvidia);
    let joining = Joining::of(text, vendor, scenario.allocator);
    let listed = processes(text).filter(|_| message.requested.is_none());
    let of_figures = findings(&message, listed.clone(), cards, &[], None, joining);
    let of_figures = of_figures.into_iter().filter(|finding| !finding.is_other_run());
    Decoded {
        account: account(&message),
        card: Change::between(asked, &scenario, "gpu"),
        offers: offers(&message, listed.as_ref(), asked, &scenario, false),
        findings: found.into_iter().chain(of_figures).collect(),
        verdict: None,
        suspects: Vec::new(),
        likely: Vec::new(),
        guesses: Vec::new(),
        message,
        scenario: scenario.into(),
    }
}

/// The part of all parameters that a size alone is of.
fn size_of_partition(guesses: &[Guess]) -> Option<Finding> {
    let guess = guesses.iter().find(|guess| guess.kind == Kind::Partition)?;
    Some(Finding::SizeOfPartition { formula: guess.formula.clone(), models: guess.models.clone() })
}

/// What logits a size alone is of, whatever else the message says: those of the scenario's own vocabulary, or of another where that is of as
/// many tokens as people choose.
fn size_of_logits(guesses: &[Guess], scenario: &Scenario) -> Option<Finding> {
    let own = scenario.architecture().ok().map(|architecture| architecture.vocab);
    let is_own = |guess: &&Guess| guess.vocabulary.is_some() && guess.vocabulary == own;
    let is_round = |guess: &&Guess| guess.vocabulary.is_some() && guess.is_round();
    let of_own = guesses.iter().find(is_own).map(|guess| (guess, Vec::new()));
    let of_other = || guesses.iter().find(is_round).map(|guess| (guess, guess.models.clone()));
    let (guess, models) = of_own.or_else(of_other)?;
    Some(Finding::SizeOfLogits { formula: guess.formula.clone(), models })
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
