//! Levers: what to change so that a run fits, what each change saves and what it costs.
//!
//! Every figure is that of the changed scenario, run like any other: what a lever saves is the difference of two answers.

mod cards;
mod room;
mod rules;

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};

use super::answer::Answer;
use super::gpus::{GPU_COUNTS, Layout, fewest_gpus, on_gpus};
use super::verdict::Verdict;
use crate::issue::{Field, Issue};
use crate::scenario::keys::{Key, keys};
use crate::scenario::{CpuOffload, Scenario};
use crate::units::Bytes;
pub use room::{Gain, Use};
use rules::{RULES, Rule};

/// What is paid for a change, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Cost {
    /// The same training, no slower.
    Nothing,
    /// Another library, as it is usually run: what comes with it is named beside it.
    Software,
    /// The same training, slower.
    Time,
    /// The same training in coarser numbers.
    Precision,
    /// Another training: fewer tokens at once, fewer parameters, another optimizer.
    Training,
}

impl Cost {
    /// Every cost, the least first.
    pub const ALL: [Cost; 5] = [Cost::Nothing, Cost::Software, Cost::Time, Cost::Precision, Cost::Training];

    /// The word shown to people.
    pub const fn label(self) -> &'static str {
        match self {
            Cost::Nothing => "nothing",
            Cost::Software => "another library",
            Cost::Time => "time",
            Cost::Precision => "precision",
            Cost::Training => "another training",
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
        let differs = |key: &&Key| key.matters(after) && !key.is_same(before, after);
        let mut keys: Vec<&Key> = keys().filter(differs).collect();
        keys.sort_by_key(|key| key.name != first);
        let words = |key: &Key, scenario: &Scenario| match key.field {
            // what generates has no adapters, but weights that are quantised or not
            Field::Method => scenario.task.method_label(scenario.method).to_owned(),
            _ => key.words(scenario),
        };
        let change = |key: &Key| {
            let label =
                if key.field == Field::Method && !after.task.trains() { "Weights" } else { key.label };
            Change { label: label.to_owned(), from: words(key, before), to: words(key, after) }
        };
        keys.into_iter().map(change).collect()
    }
}

/// A change of a scenario and what comes of it.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Lever {
    /// The inputs that change: first the one that it is about, then what comes with it.
    pub changes: Vec<Change>,
    /// What is paid for it: of several changes the dearest.
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
        match self.on_host {
            Bytes::ZERO => amount(self.needed),
            on_host => format!("{} and {} of RAM", amount(self.needed), amount(on_host)),
        }
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
    /// Changes that are enough together, as cheap as was found, where no single change is or each that is costs more.
    pub together: Option<Lever>,
    /// Where it fits: what the room that is left is good for.
    pub uses: Vec<Use>,
    /// The fewest GPUs of its kind that hold it, none where no number does, or why that is not known.
    pub fewest: Result<Option<Layout>, Issue>,
    /// Where that takes several: fewer of them, with shards, gradients and optimizer in the CPU's memory.
    pub offloaded: Option<Lever>,
}

impl Levers {
    /// Whether the run fits as it is, or some way was found.
    pub fn can_fit(&self) -> bool {
        let single = self.single.iter().map(|lever| lever.verdict);
        let others = self.together.iter().chain(&self.offloaded).map(|lever| lever.verdict);
        [self.verdict].into_iter().chain(single).chain(others).any(Verdict::holds)
    }

    /// The fewest GPUs that hold it, where these are others than it has, and what changes with their number.
    pub fn other_gpus(&self, scenario: &Scenario) -> Option<(&Layout, Vec<Change>)> {
        let layout = self.fewest.as_ref().ok()?.as_ref()?;
        let changes = Change::between(scenario, &layout.scenario, "gpus");
        (layout.gpus != scenario.cluster.gpus).then_some((layout, changes))
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
    let answer = Answer::of(scenario.clone());
    let base = Outlook::read(&answer).ok_or_else(|| answer.refusal())?;
    let base = &base;
    let mut single: Vec<Lever> = RULES
        .iter()
        .filter_map(|rule| {
            let changed = pulled(rule, scenario, base)?;
            let is_tight = base.verdict == Verdict::Tight;
            // a scenario that was so before has expandable segments as a change of their own
            let changed = if is_tight { changed } else { Answer::of(changed).without_holes().scenario };
            lever(scenario, changed, rule.key, rule.cost, base)
        })
        .collect();
    // two ways to the same scenario are one lever: the cheaper
    let mut seen: Vec<Box<Scenario>> = Vec::new();
    single.sort_by_key(|lever| lever.cost);
    single.retain(|lever| {
        let new = !seen.contains(&lever.scenario);
        seen.push(lever.scenario.clone());
        new
    });
    single.sort_by_key(|lever| (!lever.verdict.holds(), lever.cost, lever.needed));
    let fits = base.fits();
    let cheapest = single.iter().find(|lever| lever.verdict.holds()).map(|lever| lever.cost);
    let cheaper = |cost: &Cost| cheapest.is_none_or(|cheapest| *cost < cheapest);
    let costs: Vec<Cost> = Cost::ALL.into_iter().filter(cheaper).collect();
    let together = if fits { None } else { together(scenario, base, &costs) };
    let uses = if fits { room::uses(scenario) } else { Vec::new() };
    let fewest = fewest_gpus(scenario);
    let offloaded = if fits { None } else { offloaded(scenario, base, &fewest) };
    // with as many GPUs as it has that is one of the single changes
    let offloaded = offloaded.filter(|lever| single.iter().all(|other| other.scenario != lever.scenario));
    Ok(Levers { needed: base.needed, verdict: base.verdict, single, together, uses, fewest, offloaded })
}

/// The fewest GPUs that hold the run with what they share in the CPU's memory, where these are fewer than hold it without.
fn offloaded(scenario: &Scenario, base: &Outlook, fewest: &Result<Option<Layout>, Issue>) -> Option<Lever> {
    let most = fewest.as_ref().ok()?.as_ref().map_or(u64::MAX, |layout| layout.gpus);
    let counts = GPU_COUNTS.into_iter().filter(|gpus| *gpus > 1 && *gpus < most);
    let on = |gpus| {
        let mut other = on_gpus(scenario, gpus);
        other.cluster.cpu = other.cluster.most_on_cpu();
        let is_new = other.cluster.cpu != CpuOffload::Off && scenario.cluster.cpu == CpuOffload::Off;
        (is_new && Outlook::of_tensors(&other)?.fits() && Outlook::of(&other)?.fits()).then_some(other)
    };
    let other = counts.into_iter().find_map(on)?;
    lever(scenario, other, "gpus", Cost::Time, base)
}

/// What a run needs and what becomes of it.
#[derive(Clone, Copy)]
struct Outlook {
    needed: Bytes,
    on_host: Bytes,
    verdict: Verdict,
    /// Seconds per token, typically, where runs near it were measured.
    per_token: Option<f64>,
}

impl Outlook {
    /// Of a scenario with every event.
    fn of(scenario: &Scenario) -> Option<Outlook> {
        Outlook::read(&Answer::of(scenario.clone()))
    }

    /// Of its tensors alone.
    fn of_tensors(scenario: &Scenario) -> Option<Outlook> {
        Outlook::read(&Answer::of_tensors(scenario.clone()))
    }

    fn read(answer: &Answer) -> Option<Outlook> {
        let per_token = answer.pace().map(|pace| pace.step.typical / pace.tokens.max(1) as f64);
        let (needed, on_host) = (answer.fit()?.needed, answer.on_host());
        Some(Outlook { needed, on_host, verdict: answer.verdict()?, per_token })
    }

    fn fits(self) -> bool {
        self.verdict.holds()
    }
}

/// The scenario after a change; nothing where there is nothing to change, or what comes out has no answer. Where the run does
/// not fit, a change that can be made again is made until it does, or once where it never does.
fn pulled(rule: &Rule, scenario: &Scenario, base: &Outlook) -> Option<Scenario> {
    let first = step(rule, scenario)?;
    if !rule.again || base.fits() {
        return Some(first);
    }
    let mut last = first.clone();
    while !Outlook::of(&last)?.fits() {
        let Some(next) = step(rule, &last) else { return Some(first) };
        last = next;
    }
    Some(last)
}

/// The scenario with a change made once; nothing where there is nothing to change.
fn step(rule: &Rule, scenario: &Scenario) -> Option<Scenario> {
    let mut changed = scenario.clone();
    (rule.pull)(&mut changed);
    (changed != *scenario && cards::has_use_for(scenario, &changed)).then_some(changed)
}

/// The lever to a changed scenario; nothing where it is not worth a line.
fn lever(before: &Scenario, after: Scenario, key: &str, cost: Cost, base: &Outlook) -> Option<Lever> {
    let Outlook { needed, on_host, verdict, per_token } = Outlook::of(&after)?;
    // a tenth of a percent is more than is known of time
    let tenth = |percent: f64| (percent * 10.0).round() / 10.0;
    let slower = per_token.zip(base.per_token).map(|(after, before)| tenth((after / before - 1.0) * 100.0));
    // what a copy to the CPU and back takes is not counted: of a change that is paid for in time, nothing is no answer
    let slower = slower.filter(|percent| cost != Cost::Time || *percent > 0.0);
    let saves = needed.0.saturating_add(base.needed.0 / LEAST_SHARE) < base.needed.0;
    let helps = verdict.holds() && !base.fits();
    let changes = Change::between(before, &after, key);
    let runs = verdict != Verdict::WouldNotRun;
    (runs && (saves || helps)).then(|| Lever {
        changes,
        cost,
        slower,
        needed,
        on_host,
        verdict,
        scenario: Box::new(after),
    })
}

/// Changes that together make a scenario fit: always of the cheapest kind that saves anything, and of that the one that saves most, until
/// it fits: what a dear change uncovers may go for nothing. Then those that turn out not to be needed are taken back, the dearest
/// first.
fn together(scenario: &Scenario, base: &Outlook, costs: &[Cost]) -> Option<Lever> {
    let mut pulls: Vec<&Rule> = Vec::new();
    while !fits_with(scenario, &pulls) {
        let changed = with(scenario, &pulls);
        pulls.push(costs.iter().find_map(|cost| most_saving(*cost, &changed))?);
    }
    let mut kept: Vec<Option<&Rule>> = pulls.into_iter().map(Some).collect();
    let mut dearest: Vec<usize> = (0..kept.len()).collect();
    dearest.sort_by_key(|index| Reverse((kept[*index].map(dearness), *index)));
    for index in dearest {
        let taken = kept[index].take();
        if !fits_with(scenario, &Vec::from_iter(kept.iter().flatten().copied())) {
            kept[index] = taken;
        }
    }
    let pulls: Vec<&Rule> = kept.into_iter().flatten().collect();
    let dearest = pulls.iter().copied().max_by_key(|rule| rule.cost)?;
    let after = Answer::of(with(scenario, &pulls)).without_holes().scenario;
    lever(scenario, after, dearest.key, dearest.cost, base)
}

/// What a change costs and, of another training, whether it is one of less: shorter texts and lower ranks come last.
fn dearness(rule: &Rule) -> (Cost, bool) {
    (rule.cost, rule.cost == Cost::Training && rule.again)
}

/// The scenario with some changes.
fn with(scenario: &Scenario, pulls: &[&Rule]) -> Scenario {
    let mut changed = scenario.clone();
    pulls.iter().for_each(|rule| (rule.pull)(&mut changed));
    changed
}

fn fits_with(scenario: &Scenario, pulls: &[&Rule]) -> bool {
    let changed = with(scenario, pulls);
    Outlook::of_tensors(&changed).is_some_and(Outlook::fits)
        && Outlook::read(&Answer::of(changed).without_holes()).is_some_and(Outlook::fits)
}

/// The change of that cost that saves most of what the tensors need, if it is worth a line.
fn most_saving(cost: Cost, scenario: &Scenario) -> Option<&'static Rule> {
    let before = Outlook::of_tensors(scenario)?.needed;
    let saving = |rule: &'static Rule| {
        let changed = step(rule, scenario)?;
        let needed = Outlook::of_tensors(&changed)?.needed;
        let worth = needed.0.saturating_add(before.0 / LEAST_SHARE) < before.0;
        worth.then_some((needed, rule))
    };
    let of_cost = RULES.iter().filter(|rule| rule.cost == cost);
    of_cost.filter_map(saving).min_by_key(|(needed, rule)| (dearness(rule), *needed)).map(|(_, rule)| rule)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{
        Allocator, CacheKind, GpuChoice, LossKernel, Mask, Method, ModelChoice, Reference, Sharding,
    };

    fn on(card: &str) -> Scenario {
        Scenario { gpu: GpuChoice::Catalogue(card.into()), ..Scenario::default() }
    }

    #[track_caller]
    fn found(scenario: &Scenario) -> Levers {
        levers(scenario).unwrap_or_else(|issue| panic!("{issue}"))
    }

    #[test]
    fn what_a_lever_saves_is_the_difference_of_two_answers() {
        let scenario = on("rtx-3060-12gb");
        let levers = found(&scenario);
        assert!(levers.single.len() > 5);
        for lever in &levers.single {
            let after = Outlook::of(&lever.scenario).unwrap();
            assert_eq!((after.needed, after.verdict), (lever.needed, lever.verdict));
            assert!(!lever.changes.is_empty() && *lever.scenario != scenario);
        }
    }

    #[test]
    fn what_fits_comes_first_and_of_that_the_cheapest() {
        for card in ["rtx-3060-12gb", "rtx-4090"] {
            let levers = found(&on(card));
            let rank = |lever: &Lever| (lever.verdict != Verdict::Fits, lever.cost, lever.needed);
            assert!(levers.single.is_sorted_by_key(rank), "{card}");
        }
    }

    #[test]
    fn several_changes_together_where_one_is_not_enough() {
        let scenario = Scenario { batch: 64, sequence: 8192, ..on("rtx-3060-12gb") };
        let levers = found(&scenario);
        assert!(levers.single.iter().all(|lever| lever.verdict != Verdict::Fits));
        let together = levers.together.expect("there is a way");
        assert_eq!(together.verdict, Verdict::Fits);
        let steps = |scenario: &Scenario| scenario.batch * scenario.accumulation;
        assert_eq!(steps(&together.scenario), 64, "as many sequences per step");
        // none of its changes can be left out
        for key in keys().filter(|key| !key.is_same(&scenario, &together.scenario)) {
            let mut without = (*together.scenario).clone();
            key.copy(&mut without, &scenario);
            let fits = Outlook::of(&without).is_some_and(Outlook::fits);
            assert!(!fits || key.name == "gradient-accumulation", "{}", key.name);
        }
    }

    #[test]
    fn what_a_dear_change_uncovers_is_had_for_nothing() {
        for (link, longest) in [
            ("method=full&gpu=rtx-3060-12gb", 2048),
            ("m=Qwen/Qwen3-14B&method=full&gpu=rtx-4070-ti-super", 2048),
        ] {
            let together = found(&crate::share::decode(link).scenarios[0]).together.expect("there is a way");
            assert_eq!((together.verdict, together.scenario.sequence), (Verdict::Fits, longest), "{link}");
        }
    }

    #[test]
    fn a_card_that_is_not_followed_is_answered_by_its_tensors() {
        let mac = Scenario { batch: 4, ..on("apple-m3-max-64gb") };
        let levers = found(&mac);
        assert!(levers.can_fit() && levers.verdict == Verdict::NotFollowed);
        let large = found(&Scenario { batch: 64, method: Method::Lora, ..on("apple-m3-max-36gb") });
        assert!(large.can_fit(), "{large:?}");
        for lever in large.single.iter().chain(&large.together) {
            let Scenario { stack, optimizer, savings, .. } = &*lever.scenario;
            assert!(!optimizer.is_of_bitsandbytes() && *stack == mac.stack, "{lever:?}");
            assert!(!matches!(savings.loss, LossKernel::Liger | LossKernel::Cut), "{lever:?}");
        }
    }

    #[test]
    fn several_cheap_changes_come_before_one_that_changes_the_training() {
        let levers = found(&Scenario { batch: 4, sequence: 8192, ..on("rtx-3060-12gb") });
        let cheapest = levers.single.iter().find(|lever| lever.verdict == Verdict::Fits);
        assert_eq!(cheapest.map(|lever| lever.cost), Some(Cost::Training));
        assert!(levers.together.is_some_and(|lever| lever.cost < Cost::Training));
    }

    /// Of a model of 14B on two cards: in 16 bits it runs where segments grow, and what two cards hold with the CPU is told once.
    #[test]
    fn what_only_holes_are_in_the_way_of_comes_with_expandable_segments() {
        let scenario = of_link("v=1&m=Qwen/Qwen3-14B&method=lora&gpu=rtx-4090&gpus=2&shard=fsdp2&p=amp-bf16");
        let levers = found(&scenario);
        let precision = levers.single.iter().find(|lever| lever.changes[0].label == "Precision");
        let precision = precision.unwrap_or_else(|| panic!("{:?}", levers.single));
        assert_eq!((precision.verdict, precision.changes.len()), (Verdict::Close, 2));
        assert_eq!(precision.scenario.allocator, Allocator::Expandable);
        assert!(levers.single.iter().any(|lever| lever.scenario.cluster.cpu == CpuOffload::All));
        assert_eq!(levers.offloaded, None);
    }

    /// A smaller batch of texts has fewer to be told from, in however many passes: cached gradients come first.
    #[test]
    fn embeddings_fit_with_cached_gradients() {
        let scenario = of_link(
            "v=1&task=embed&m=google-bert/bert-base-uncased&method=full&p=amp-fp16&b=512&s=256&mask=padded&gpu=t4",
        );
        let levers = found(&scenario);
        let first = &levers.single[0];
        assert_eq!((first.verdict, first.cost), (Verdict::Fits, Cost::Time), "{first:?}");
        assert_eq!((first.scenario.embedding.cached, first.scenario.batch), (32, 512));
        let smaller = levers.single.iter().filter(|lever| lever.scenario.batch < 512);
        assert!(smaller.clone().count() > 0 && smaller.clone().all(|lever| lever.cost == Cost::Training));
    }

    fn of_link(link: &str) -> Scenario {
        crate::share::decode(link).scenarios.remove(0)
    }

    #[test]
    fn what_is_slower_for_nothing_is_told_where_there_is_room() {
        let scenario = of_link("v=1&m=Qwen/Qwen2.5-0.5B&attn=eager&o=adamw-for-loop&gpu=rtx-4090");
        let uses = found(&scenario).uses;
        let about = |label: &str| uses.iter().find(|usage| usage.changes[0].label == label);
        for (label, to) in [("Attention", "SDPA (PyTorch chooses)"), ("Optimizer", "AdamW (fused)")] {
            let usage = about(label).unwrap_or_else(|| panic!("{label}: {uses:?}"));
            assert_eq!((usage.gain, usage.changes.len(), usage.changes[0].to.as_str()), (Gain::Speed, 1, to));
        }
        assert!(found(&on("rtx-4090")).uses.iter().all(|usage| usage.changes[0].label != "Optimizer"));
    }

    #[test]
    fn fewer_gpus_do_where_the_cpu_keeps_the_shards() {
        let scenario = of_link("v=1&m=meta-llama/Llama-3.3-70B-Instruct&s=512&gpu=rtx-4090");
        let levers = found(&scenario);
        let fewest = levers.fewest.as_ref().unwrap().as_ref().map(|layout| layout.gpus);
        let lever = levers.offloaded.as_ref().expect("there is a way");
        let (gpus, cpu) = (lever.scenario.cluster.gpus, lever.scenario.cluster.cpu);
        assert_eq!((fewest, gpus, cpu), (Some(4), 2, CpuOffload::All));
        assert!(lever.on_host > Bytes(30 << 30) && lever.verdict == Verdict::Fits && levers.can_fit());
        // nothing is moved where it fits
        assert_eq!(found(&on("rtx-4090")).offloaded, None);
    }

    #[test]
    fn copies_under_trl_are_offered_shards_of_both_engines_that_run_them() {
        use Sharding::{Ddp, Fsdp2, Zero2};
        let base =
            "m=meta-llama/Llama-3.1-8B&method=full&p=amp-bf16&st=trl&gpus=2&shard=ddp&gpu=a100-sxm-80gb";
        for (rest, offered) in [
            ("", vec![Fsdp2, Zero2]),
            ("&task=dpo", vec![Fsdp2, Zero2]),
            ("&task=orpo", vec![Fsdp2, Zero2]),
            // does not run under accelerate's FSDP2
            ("&o=adamw-8bit", vec![Zero2]),
        ] {
            let levers = found(&of_link(&format!("{base}{rest}")));
            assert_eq!(levers.verdict, Verdict::Over, "{rest}");
            let engines = levers.single.iter().map(|lever| lever.scenario.cluster.sharding);
            let mut engines: Vec<Sharding> = engines.filter(|engine| *engine != Ddp).collect();
            engines.sort_by_key(|engine| *engine != Fsdp2);
            assert_eq!(engines, offered, "{rest}");
        }
    }

    #[test]
    fn a_run_that_generates_is_not_told_to_train_otherwise() {
        let base = "task=generate&m=Qwen/Qwen3-4B&p=bf16&b=64&s=2048&new=512";
        for (rest, fits) in [("method=full&gpu=rtx-4090", false), ("method=qlora&gpu=h200-sxm", true)] {
            let scenario = of_link(&format!("{base}&{rest}"));
            let levers = found(&scenario);
            assert_eq!(levers.verdict == Verdict::Fits, fits, "{rest}");
            for lever in levers.single.iter().chain(&levers.together) {
                assert_ne!(lever.cost, Cost::Training, "{lever:?}");
                assert_eq!(lever.scenario.accumulation, 1, "{lever:?}");
            }
            for usage in &levers.uses {
                assert!(usage.scenario.method != Method::Lora && usage.gain != Gain::Method, "{usage:?}");
            }
            let finer = levers.uses.iter().any(|usage| usage.gain == Gain::Precision);
            assert_eq!(finer, fits, "{:?}", levers.uses);
        }
    }

    #[test]
    fn the_cache_the_reference_and_packing_are_levers() {
        #[track_caller]
        fn cost(link: &str, is: fn(&Scenario) -> bool) -> Option<Cost> {
            let levers = found(&of_link(link));
            levers.single.iter().find(|lever| is(&lever.scenario)).map(|lever| lever.cost)
        }
        let generate = "task=generate&m=Qwen/Qwen3-0.6B&method=full&p=bf16&b=64&s=2048";
        let is_off = |scenario: &Scenario| scenario.generation.cache == CacheKind::Off;
        assert_eq!(cost(&format!("{generate}&new=2048"), is_off), Some(Cost::Time));
        let grows = |scenario: &Scenario| scenario.generation.cache == CacheKind::Dynamic;
        let cache = Key::find("kv-cache").expect("it is a key").link;
        assert_eq!(cost(&format!("{generate}&new=2048&{cache}=static"), grows), Some(Cost::Nothing));
        let trl = "m=Qwen/Qwen3-0.6B&st=trl&p=amp-bf16&mask=padded&method=full";
        let is = |reference| format!("v=1&{trl}&task={reference}");
        let precomputed = |scenario: &Scenario| scenario.answers.reference == Reference::Precomputed;
        assert_eq!(cost(&is("dpo"), precomputed), Some(Cost::Nothing));
        let none = |scenario: &Scenario| scenario.answers.reference == Reference::None;
        assert_eq!(cost(&is("grpo"), none), Some(Cost::Training));
        let one_row = |scenario: &Scenario| scenario.mask == Mask::PaddingFree;
        let padded = "v=1&m=Qwen/Qwen3-0.6B&st=trl&p=amp-bf16&method=full&b=4";
        assert_eq!(cost(&format!("{padded}&mask=padded"), one_row), Some(Cost::Nothing));
        assert_eq!(cost(padded, one_row), None);
    }

    #[test]
    fn what_would_not_run_is_no_lever() {
        // half of the sequence is less than the prompt, and gpt2 has an embedding for each of 1,024 positions
        let dpo = "task=dpo&m=openai-community/gpt2&st=trl&p=amp-bf16&mask=padded&method=full&s=1024&prompt=700&b=64";
        let generate = "task=generate&m=openai-community/gpt2&method=full&p=bf16&s=200&new=500";
        let beyond = "m=openai-community/gpt2&method=full&p=bf16&s=4096&b=16";
        for link in [dpo, generate, beyond] {
            let levers = found(&of_link(link));
            let single = levers.single.iter().chain(&levers.together).map(|lever| &lever.scenario);
            let all: Vec<_> = single.chain(levers.uses.iter().map(|usage| &usage.scenario)).collect();
            assert!(!all.is_empty(), "{link}");
            for scenario in all {
                assert_eq!(scenario.stop(), None, "{link}");
            }
        }
    }

    #[test]
    fn where_nothing_helps_nothing_is_promised() {
        let model = ModelChoice::Catalogue("meta-llama/Llama-3.1-405B".into());
        let levers = found(&Scenario { model, ..on("rtx-3060-12gb") });
        assert_eq!((levers.together, levers.uses), (None, Vec::new()));
        assert!(levers.single.iter().all(|lever| lever.verdict == Verdict::Over));
    }

    #[test]
    fn room_is_put_to_use() {
        let levers = found(&on("rtx-4090"));
        let gains: Vec<_> = levers.uses.iter().map(|usage| usage.gain).collect();
        assert!(gains.contains(&Gain::Batch) && gains.contains(&Gain::Sequence), "{gains:?}");
        for usage in &levers.uses {
            assert_eq!(Outlook::of(&usage.scenario).unwrap().verdict, usage.verdict);
            assert_eq!(usage.verdict, Verdict::Fits, "{usage:?}");
        }
        let full = found(&Scenario { method: Method::Lora, ..on("h200-sxm") });
        assert!(full.uses.iter().any(|usage| usage.gain == Gain::Method));
    }

    #[test]
    fn a_scenario_without_an_answer_says_why() {
        assert!(levers(&on("no-such-card")).is_err_and(|issue| issue.field == Field::Gpu));
    }
}
