//! Levers: what to change so that a run fits, what each change saves and what it costs.
//!
//! Every figure is that of the changed scenario, run like any other: what a lever saves is the difference of two answers.

mod larger;
mod looks;
mod room;
mod rules;
mod together;

use serde::{Deserialize, Serialize};

use super::answer::{Answer, helps};
use super::cards;
use super::counts::GPU_COUNTS;
use super::each;
use super::gpus::{Layout, fewest_gpus, on_gpus};
use super::verdict::Verdict;
use crate::hardware::{Host, Vendor};
use crate::issue::{Field, Issue};
use crate::scenario::keys::{Key, keys};
use crate::scenario::{CpuOffload, Scenario};
use crate::units::{Bytes, grouped};
pub use larger::LargerCard;
use looks::Outlook;
pub use looks::{Looks, look};
pub use room::{Gain, USES, Use, use_of};
use rules::{RULES, Rule};
use together::{from_the_strongest, together};

/// What is paid for a change, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Cost {
    /// The same training, no slower.
    Nothing,
    /// The same training of the same weights: what is added up between layers is coarser.
    Rounding,
    /// Another library, as it is usually run: what comes with it is named beside it.
    Software,
    /// The same training, slower.
    Time,
    /// The same training in coarser numbers.
    Precision,
    /// Maybe the quality of what is trained: fewer tokens at once, fewer parameters, another optimizer.
    Training,
}

impl Cost {
    /// Every cost, the least first.
    pub const ALL: [Cost; 6] =
        [Cost::Nothing, Cost::Rounding, Cost::Software, Cost::Time, Cost::Precision, Cost::Training];

    /// The word shown to people.
    pub const fn label(self) -> &'static str {
        match self {
            Cost::Nothing => "nothing",
            Cost::Rounding => "a little precision",
            Cost::Software => "another library",
            Cost::Time => "time",
            Cost::Precision => "precision",
            Cost::Training => "maybe quality",
        }
    }
}

/// One input that a lever changes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Change {
    /// The input's label.
    pub label: String,
    /// Its value before, in words.
    pub from: String,
    /// Its value after.
    pub to: String,
}

impl Change {
    /// The inputs in which a scenario differs from the one before and that matter to it, that of a key first.
    pub(crate) fn between(before: &Scenario, after: &Scenario, first: &str) -> Vec<Change> {
        // a rank that nothing had before comes with what has it now
        let is_new = |key: &Key| key.field == Field::LoraRank && !key.matters(before);
        let differs = |key: &&Key| key.matters(after) && !key.is_same(before, after) && !is_new(key);
        let mut keys: Vec<&Key> = keys().filter(differs).collect();
        keys.sort_by_key(|key| key.name != first);
        let change = |key: &Key| Change {
            label: key.label_for(after).to_owned(),
            from: key.words(before),
            to: key.words(after),
        };
        keys.into_iter().map(change).collect()
    }
}

/// A change of a scenario and what comes of it.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Lever {
    /// The inputs that change: first the one that it is about, then what comes with it.
    pub changes: Vec<Change>,
    /// What is paid for it: of all that changes the dearest.
    pub cost: Cost,
    /// How much longer the same tokens take, in percent, where runs near it were measured: less than nothing where it is faster.
    pub slower: Option<f64>,
    /// What the changed run needs of the card.
    pub needed: Bytes,
    /// What all its GPUs together need of the CPU's memory.
    pub on_host: Bytes,
    /// Whether it gets through.
    pub verdict: Verdict,
    /// The changed scenario.
    pub scenario: Box<Scenario>,
}

impl Lever {
    /// What it needs: of each card, and of the CPU's memory where it needs some of that.
    pub fn needed_in_words(&self, amount: impl Fn(Bytes) -> String) -> String {
        let short = if self.short_of_ram().is_some() { ", more than known machines have" } else { "" };
        match self.ram_in_words(&amount) {
            None => amount(self.needed),
            Some(ram) if self.scenario.cluster.is_many() => {
                format!("{} on each and {ram}{short}", amount(self.needed))
            }
            Some(ram) => format!("{} and {ram}{short}", amount(self.needed)),
        }
    }

    /// What it needs of the CPU's memory: `1,112 GiB of RAM for all 8`; none where it needs none of that.
    pub fn ram_in_words(&self, amount: impl Fn(Bytes) -> String) -> Option<String> {
        let all = match self.scenario.cluster.is_many() {
            true => format!(" for all {}", grouped(self.scenario.cluster.gpus)),
            false => String::new(),
        };
        (self.on_host > Bytes::ZERO).then(|| format!("{} of RAM{all}", amount(self.on_host)))
    }

    /// The known machine with most RAM, where that is too little for it.
    pub fn short_of_ram(&self) -> Option<&'static Host> {
        self.scenario.short_of_ram(Bytes(self.on_host.0 / self.scenario.cluster.gpus.max(1)))
    }

    /// Whether it gets through, and some known machine has the RAM, if any is known.
    pub fn holds(&self) -> bool {
        self.verdict.holds() && self.short_of_ram().is_none()
    }

    /// Whether it is a cheaper change that is enough by itself and another which saves nothing beside it, as far as that is worth a line
    /// of a run that needs so much.
    fn adds_nothing_to(&self, cheaper: &Lever, needed: Bytes) -> bool {
        cheaper.cost < self.cost
            && cheaper.holds()
            && cheaper.needed.0 <= self.needed.0.saturating_add(needed.0 / LEAST_SHARE)
            && cheaper.changes.iter().all(|change| self.changes.contains(change))
    }

    /// `+24 %`, `under 1 %` to either side, a dash where it is not known.
    pub fn slower_in_words(&self) -> String {
        self.slower.map_or_else(
            || "–".to_owned(),
            |percent| match percent.round() as i64 {
                0 => "under 1 %".to_owned(),
                percent => format!("{percent:+} %").replace('-', "−"),
            },
        )
    }
}

/// What can be done about a scenario.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Levers {
    /// What the run needs as it is.
    pub needed: Bytes,
    /// Whether it gets through as it is.
    pub verdict: Verdict,
    /// Single changes that save enough to be worth a line: first those with which it fits, then the others; within both the
    /// cheapest first, and of equal cost what saves most.
    pub single: Vec<Lever>,
    /// Changes that are enough together, as cheap as was found, where no single change is or each that is costs more or takes the CPU's
    /// memory, which these leave alone.
    pub together: Option<Lever>,
    /// Where it fits: what the room that is left is good for.
    pub uses: Vec<Use>,
    /// The fewest GPUs of its kind that hold it, none where no number does, or why that is not known.
    pub fewest: Result<Option<Layout>, Issue>,
    /// Where that takes several: fewer of them, with shards, gradients and optimizer in the CPU's memory.
    pub offloaded: Option<Lever>,
    /// Where it does not fit: the larger card that costs least to rent, on which it fits as it is.
    pub larger: Option<LargerCard>,
}

impl Levers {
    /// Whether the run fits as it is, or some way was found on cards of its kind.
    pub fn can_fit(&self) -> bool {
        let others = self.together.iter().chain(&self.offloaded);
        self.verdict.holds() || self.single.iter().chain(others).any(Lever::holds)
    }

    /// The fewest GPUs that hold it, where these are more than it has, and what changes with their number.
    pub fn more_gpus(&self, scenario: &Scenario) -> Option<(&Layout, Vec<Change>)> {
        let layout = self.fewest.as_ref().ok()?.as_ref()?;
        let changes = Change::between(scenario, &layout.scenario, "gpus");
        (layout.gpus > scenario.cluster.gpus).then_some((layout, changes))
    }
}

/// What would hold a run that no change makes fit, in words.
pub fn beyond_in_words(scenario: &Scenario) -> &'static str {
    match scenario.gpu().map(|gpu| gpu.vendor) {
        // PyTorch has no collectives for Apple's GPUs
        Ok(Vendor::Apple) => "a Mac with more memory or a smaller model",
        _ => "a larger card, several or a smaller model",
    }
}

/// Changes that save less than this part of what is needed are left out.
const LEAST_SHARE: u64 = 200;

/// What can be changed so that the scenario needs less.
///
/// # Errors
/// The first [`Issue`] for which the scenario itself has no answer.
///
/// ```
/// use headroom::plan::{Cost, Verdict, levers};
/// use headroom::scenario::{GpuChoice, Scenario};
/// let scenario = Scenario { gpu: GpuChoice::Catalogue("rtx-3060-12gb".into()), ..Scenario::default() };
/// let levers = levers(&scenario)?;
/// assert_eq!(levers.verdict, Verdict::Over);
/// let first = &levers.single[0];
/// assert_eq!((first.verdict, first.cost), (Verdict::Fits, Cost::Nothing));
/// assert_eq!(first.changes[0].label, "Loss kernel");
/// # Ok::<(), headroom::scenario::Issue>(())
/// ```
pub fn levers(scenario: &Scenario) -> Result<Levers, Issue> {
    let mut looks = Looks::default();
    for found in each(&ahead(scenario), |scenario| look(std::slice::from_ref(scenario))) {
        looks.extend(found);
    }
    let looked = Looked::of(scenario, looks)?;
    let found = changes_of(scenario, &looked);
    let uses = if looked.base.fits() { room::uses(scenario) } else { Vec::new() };
    Ok(Levers { uses, ..found })
}

/// The same without what the room is good for, of which [`use_of`] finds each: for who can ask several questions at once. `looks` are
/// runs of the scenarios [`ahead`], as many of them as were made.
///
/// # Errors
/// As [`levers`].
pub fn changes(scenario: &Scenario, looks: Looks) -> Result<Levers, Issue> {
    Ok(changes_of(scenario, &Looked::of(scenario, looks)?))
}

fn changes_of(scenario: &Scenario, looked: &Looked) -> Levers {
    let base = &looked.base;
    let mut single: Vec<Lever> = RULES
        .iter()
        .filter_map(|rule| {
            let changed = pulled(rule, scenario, looked)?;
            // of a run that fits, or of which only tensors are followed, what saves no tensor is no help
            if base.fits() && !looked.saves_tensors(&changed) {
                return None;
            }
            let is_tight = base.verdict == Verdict::Tight;
            // a scenario that was so before has expandable segments as a change of their own
            let changed = if is_tight { changed } else { looked.looks.without_holes(changed) };
            lever(scenario, changed, rule.key, rule.cost, looked)
        })
        .collect();
    // two ways that change the same, as far as it matters to the run, are one lever: the cheaper
    let mut seen: Vec<Vec<Change>> = Vec::new();
    single.sort_by_key(|lever| lever.cost);
    single.retain(|lever| {
        let new = !seen.contains(&lever.changes);
        seen.push(lever.changes.clone());
        new
    });
    let all = single.clone();
    single.retain(|lever| !all.iter().any(|other| lever.adds_nothing_to(other, base.needed)));
    single.sort_by_key(|lever| (!lever.holds(), lever.cost, lever.needed));
    let fits = base.fits();
    // what takes the CPU's memory is one way, not the cheapest: that memory may not be there
    let is_enough = |lever: &&Lever| lever.holds() && lever.on_host == Bytes::ZERO;
    let cheapest = single.iter().find(is_enough).map(|lever| lever.cost);
    let cheaper = |cost: &Cost| cheapest.is_none_or(|cheapest| *cost < cheapest);
    let costs: Vec<Cost> = Cost::ALL.into_iter().filter(cheaper).collect();
    let offloads = single.iter().any(|lever| lever.holds() && lever.on_host > Bytes::ZERO);
    let (on_cpu, on_gpus): (Vec<&Rule>, Vec<&Rule>) =
        RULES.iter().partition(|rule| ["cpu-offload", "activation-offloading"].contains(&rule.key));
    let together = (!fits).then(|| {
        let all = || [on_gpus.clone(), on_cpu.clone()].concat();
        let with_the_cpus = || (!offloads).then(|| together(scenario, looked, &costs, &all()))?;
        // what is asked where nothing else is a way: it takes several searches
        let again = || {
            single.iter().all(|lever| !lever.holds()).then(|| {
                from_the_strongest(scenario, looked, &costs, &on_gpus)
                    .or_else(|| from_the_strongest(scenario, looked, &costs, &all()))
            })?
        };
        together(scenario, looked, &costs, &on_gpus).or_else(with_the_cpus).or_else(again)
    });
    // where all but one were taken back, it is one of the single changes
    let is_single = |found: &Lever| single.iter().any(|lever| lever.scenario == found.scenario);
    let together = together.flatten().filter(|found| !is_single(found));
    let fewest = fewest_gpus(scenario);
    let offloaded = if fits { None } else { offloaded(scenario, looked, &fewest) };
    // with as many GPUs as it has that is one of the single changes
    let offloaded = offloaded.filter(|lever| single.iter().all(|other| other.scenario != lever.scenario));
    Levers {
        needed: base.needed,
        verdict: base.verdict,
        single,
        together,
        uses: Vec::new(),
        fewest,
        offloaded,
        larger: if fits { None } else { larger::larger(scenario, looked) },
    }
}

/// The fewest GPUs that hold the run with what they share in the CPU's memory, where these are fewer than hold it without.
fn offloaded(scenario: &Scenario, looked: &Looked, fewest: &Result<Option<Layout>, Issue>) -> Option<Lever> {
    let most = fewest.as_ref().ok()?.as_ref().map_or(u64::MAX, |layout| layout.gpus);
    let counts = GPU_COUNTS.into_iter().filter(|gpus| *gpus > 1 && *gpus < most);
    let on = |gpus| {
        let mut other = on_gpus(scenario, gpus);
        other.cluster.cpu = other.cluster.most_on_cpu();
        let is_new = other.cluster.cpu != CpuOffload::Off && scenario.cluster.cpu == CpuOffload::Off;
        (is_new && Outlook::of_tensors(&other)?.holds(&other) && looked.looks.at(&other)?.fits())
            .then_some(other)
    };
    let other = counts.into_iter().find_map(on)?;
    lever(scenario, other, "gpus", Cost::Time, looked)
}

/// What is looked for, and what was looked at so far.
struct Looked {
    /// The run as it is.
    base: Outlook,
    /// What its tensors alone need.
    tensors: Bytes,
    looks: Looks,
}

impl Looked {
    /// Looks at a run as it is.
    fn of(scenario: &Scenario, looks: Looks) -> Result<Looked, Issue> {
        let tensors = Answer::of_tensors(scenario.clone());
        let needed = tensors.fit().map(|fit| fit.needed).unwrap_or_default();
        let base = looks.at(scenario).ok_or_else(|| tensors.replayed().refusal())?;
        Ok(Looked { base, tensors: needed, looks })
    }

    /// Whether a change needs fewer bytes of tensors.
    fn saves_tensors(&self, changed: &Scenario) -> bool {
        Outlook::of_tensors(changed).is_some_and(|outlook| outlook.needed < self.tensors)
    }
}

/// The scenario after a change; nothing where there is nothing to change, or what comes out has no answer. Where the run does
/// not fit, a change that can be made again is made until it does, or once where it never does.
fn pulled(rule: &Rule, scenario: &Scenario, looked: &Looked) -> Option<Scenario> {
    let first = step(rule, scenario)?;
    if !rule.again || looked.base.fits() {
        return Some(first);
    }
    let mut last = first.clone();
    // tensors that do not fit need no replay
    while !Outlook::of_tensors(&last)?.fits() || !looked.looks.at(&last)?.fits() {
        let Some(next) = step(rule, &last) else { return Some(first) };
        last = next;
    }
    let runs = |longer: &Scenario| looked.looks.at(longer).is_some_and(Outlook::fits);
    let longest = match longer(scenario, &last, TOKENS, has_room) {
        Some(longer) if runs(&longer) => Some(longer),
        // what the allocator makes of them may not fit: a few lengths below are looked at
        Some(too_long) => {
            let step = (last.sequence / LOOKED_AT).next_multiple_of(TOKENS).max(TOKENS);
            longer(&too_long, &last, step, runs)
        }
        None => None,
    };
    Some(longest.unwrap_or(last))
}

/// A shorter sequence is as long as a multiple of so many tokens.
const TOKENS: u64 = 64;
/// Among how many lengths one is looked for, each with every event, where tensors fit and what the allocator makes of them does not.
const LOOKED_AT: u64 = 8;

/// Whether its tensors fit.
fn has_room(scenario: &Scenario) -> bool {
    Outlook::of_tensors(scenario).is_some_and(Outlook::fits)
}

/// Where sequences were halved until they fit: the longest of a multiple of `step` tokens, below the length that does not, that holds.
fn longer(
    scenario: &Scenario,
    fits: &Scenario,
    step: u64,
    holds: impl Fn(&Scenario) -> bool,
) -> Option<Scenario> {
    let with = |steps: u64| Scenario { sequence: steps * step, ..fits.clone() };
    let mut low = fits.sequence / step;
    let mut high = scenario.sequence.min(fits.sequence.saturating_mul(2)).div_ceil(step);
    while high.saturating_sub(low) > 1 {
        let middle = low.midpoint(high);
        *(if holds(&with(middle)) { &mut low } else { &mut high }) = middle;
    }
    (low.saturating_mul(step) > fits.sequence).then(|| with(low))
}

/// The scenarios that a search for [`changes`] most likely looks at: the one as it is, and with each change, made again until its tensors
/// fit.
pub fn ahead(scenario: &Scenario) -> Vec<Scenario> {
    let Some(base) = Outlook::of_tensors(scenario) else { return Vec::new() };
    let with = |rule: &Rule| {
        let first = step(rule, scenario)?;
        let again = |last: &Scenario| if rule.again && !base.fits() { step(rule, last) } else { None };
        let outlook = |changed: &Scenario| Outlook::of_tensors(changed);
        let mut ways = std::iter::successors(Some(first.clone()), again);
        let fits = ways.find(|changed| outlook(changed).is_some_and(Outlook::fits));
        let changed = fits.unwrap_or(first);
        let saves = outlook(&changed)?.needed < base.needed;
        let longer = if base.fits() { None } else { longer(scenario, &changed, TOKENS, has_room) };
        (saves || !base.fits()).then_some([Some(changed), longer])
    };
    let larger = if base.fits() { None } else { larger::cards(scenario).into_iter().next() };
    let mut found = vec![scenario.clone()];
    let changed = RULES.iter().filter_map(with).flatten().flatten();
    for changed in changed.chain(larger.map(|(on, _)| on)) {
        if !found.contains(&changed) {
            found.push(changed);
        }
    }
    found
}

/// The scenario with a change made once; nothing where there is nothing to change.
fn step(rule: &Rule, scenario: &Scenario) -> Option<Scenario> {
    let mut changed = scenario.clone();
    (rule.pull)(&mut changed);
    (changed != *scenario && cards::has_use_for(scenario, &changed)).then_some(changed)
}

/// The lever to a changed scenario; nothing where it is not worth a line.
fn lever(before: &Scenario, after: Scenario, key: &str, cost: Cost, looked: &Looked) -> Option<Lever> {
    let base = &looked.base;
    let Outlook { needed, on_host, verdict, per_token, waits } = looked.looks.at(&after)?;
    let cost = cost.max(brings(before, &after));
    // a tenth of a percent is more than is known of time
    let tenth = |percent: f64| (percent * 10.0).round() / 10.0 + 0.0;
    let slower = per_token.zip(base.per_token).map(|(after, before)| tenth((after / before - 1.0) * 100.0));
    // what a copy to the CPU and back takes is not counted: of a change that is paid for in time, nothing is no answer
    let slower = slower.filter(|percent| cost != Cost::Time || *percent > 0.0);
    // how long the functions of another library take to start was not measured, each of which starts kernels of its own
    let slower = slower.filter(|_| before.stack == after.stack || !(waits || base.waits));
    let saves = needed.0.saturating_add(base.needed.0 / LEAST_SHARE) < base.needed.0;
    // what closes the holes between tensors that fit takes no less, and may leave a doubt; what stopped goes on
    let helps = !base.fits() && (verdict.holds() || helps(Some(base.verdict), Some(verdict)))
        || base.verdict == Verdict::WouldNotRun;
    // a run that is close has the holes between its tensors counted already: what takes more is no way to more room
    let helps = helps && !(base.verdict == Verdict::Close && needed > base.needed);
    let changes = Change::between(before, &after, key);
    // what an engine lays into the CPU's memory for a single GPU would come back unsaid
    let comes_back = !before.cluster.is_many()
        && before.cluster.cpu != CpuOffload::Off
        && before.cluster.has_engine()
        && !after.cluster.has_engine();
    let runs = verdict != Verdict::WouldNotRun && !comes_back;
    (runs && !changes.is_empty() && (saves || helps)).then(|| Lever {
        changes,
        cost,
        slower,
        needed,
        on_host,
        verdict,
        scenario: Box::new(after),
    })
}

/// What is paid for all that a change brings along: of each input the least that a rule asks which sets it so. What no rule sets, such as
/// a finer precision or the checkpointing of a library of its own, is part of what that library costs.
fn brings(before: &Scenario, after: &Scenario) -> Cost {
    let of_key = |key: &Key| {
        let sets_it = |rule: &&Rule| {
            let mut changed = before.clone();
            (rule.pull)(&mut changed);
            key.is_same(&changed, after)
        };
        RULES.iter().filter(|rule| rule.key == key.name).filter(sets_it).map(|rule| rule.cost).min()
    };
    let changed = keys().filter(|key| key.matters(after) && !key.is_same(before, after));
    changed.filter_map(of_key).max().unwrap_or(Cost::Nothing)
}

#[cfg(test)]
mod tests;
