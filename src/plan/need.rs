//! Which card a scenario needs: cards × methods, each with what is needed and whether it gets through.

use serde::{Deserialize, Serialize};

use super::answer::Answer;
use super::each;
use super::gpus::{Layout, fewest_between, held, on_gpus};
use super::recorded::Recorded;
use super::table::{alone, with_method, within_positions};
use super::time::{Span, pace};
use super::verdict::Verdict;
use crate::estimate::estimate;
use crate::hardware::{Class, Gpu, Machine, Vendor, cheapest, gpus, machines, rent, run_alike};
use crate::issue::Issue;
use crate::scenario::{GpuChoice, HostNeed, Method, Scenario};
use crate::units::Bytes;

/// More cards than that are no answer for who asks which one to take.
pub const MOST_TOGETHER: u64 = 64;

/// One method on a card.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub enum NeedCell {
    /// What it needs there.
    Needs {
        /// Of the card.
        needed: Bytes,
        /// Whether it gets through.
        verdict: Verdict,
        /// The scenario.
        scenario: Box<Scenario>,
        /// Where one card does not hold a training run: the fewest that do together, if any number does.
        several: Option<Box<Several>>,
    },
    /// There is no answer, and why.
    Unknown(Issue),
}

/// The fewest cards of a kind that hold a run together.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Several {
    /// How many, and what each needs.
    pub layout: Layout,
    /// US dollars for an hour of the machines that have them, where a price is known.
    pub per_hour: Option<f64>,
}

impl NeedCell {
    /// Whether it gets through beyond doubt, or by its tensors on a card that is not followed.
    pub fn fits(&self) -> bool {
        matches!(self, NeedCell::Needs { verdict, .. } if verdict.holds())
    }

    /// The fewest cards that hold it, and the scenario on them; nothing where no number does.
    fn fewest(&self) -> Option<(u64, &Scenario)> {
        match self {
            NeedCell::Needs { scenario, .. } if self.fits() => Some((1, scenario)),
            NeedCell::Needs { several: Some(several), .. } => {
                Some((several.layout.gpus, &several.layout.scenario))
            }
            NeedCell::Needs { .. } | NeedCell::Unknown(_) => None,
        }
    }

    /// Several cards that hold it together, where one does not.
    pub fn several(&self) -> Option<&Several> {
        match self {
            NeedCell::Needs { several, .. } => several.as_deref(),
            NeedCell::Unknown(_) => None,
        }
    }
}

/// A card and what it is good for.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct NeedRow {
    /// The card's slug.
    pub gpu: String,
    /// Its name.
    pub name: String,
    /// What a program can have of it.
    pub memory: Bytes,
    /// The machine with such a card that costs least, where a price is known.
    pub machine: Option<Machine>,
    /// One cell per method, in the order of [`Method::ALL`].
    pub cells: Vec<NeedCell>,
    /// How many of the card hold the scenario by its own method, if any number does.
    pub held: Option<Held>,
    /// The same with all cards of machines that have more of them: who rents eight trains on eight.
    pub rented: Vec<Held>,
}

/// How many of a card hold the scenario by its own method, and how long they take.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub struct Held {
    /// Cards.
    pub cards: u64,
    /// Hours for the data set; nothing where no measured run is near.
    pub hours: Option<Span>,
    /// What its processes have of the CPU's memory.
    pub host: HostNeed,
}

impl Held {
    /// Of a cell of the scenario's own method; nothing where no number of such cards holds it.
    fn of(cell: &NeedCell) -> Option<Held> {
        let (cards, scenario) = cell.fewest()?;
        Held::on(cards, scenario)
    }

    /// Of a run that so many cards hold.
    fn on(cards: u64, scenario: &Scenario) -> Option<Held> {
        let memory = estimate(scenario).memory?;
        let pace = pace(scenario, &memory).ok();
        let host = scenario.host(&memory, memory.parameters.total);
        Some(Held { cards, hours: pace.map(|pace| pace.hours(scenario.data.trained())), host })
    }

    /// Of a cell on all cards of the machines that have more of that card than hold it: each with a copy of the model, or with a shard where
    /// copies do not fit, and with a micro-batch of its own; `recorded` are runs that cards like its own share.
    fn on_whole_machines(gpu: &str, cell: &NeedCell, recorded: &Recorded) -> Vec<Held> {
        let Some((fewest, scenario)) = cell.fewest() else { return Vec::new() };
        let rented = machines_with(gpu, fewest);
        let mut counts: Vec<u64> = rented.into_iter().map(|(_, _, cards)| cards).collect();
        counts.sort_unstable();
        counts.dedup();
        let on = |cards: u64| {
            let mut copied = scenario.clone();
            copied.change(|copied| copied.cluster.set_gpus(cards));
            let ways = [copied, on_gpus(scenario, cards)];
            let layout = ways.into_iter().find_map(|way| held(way, recorded).ok().flatten())?;
            Held::on(cards, &layout.scenario)
        };
        counts.into_iter().filter(|cards| *cards > fewest).filter_map(on).collect()
    }
}

/// The machines that can be rented with as many of a card, the cheapest hour first, each with how many of it that takes and how many
/// cards those have: where none has so many, several of those with the most.
pub(super) fn machines_with(gpu: &str, cards: u64) -> Vec<(&'static Machine, u64, u64)> {
    let all = machines(gpu);
    let most = all.iter().map(|machine| u64::from(machine.gpus)).max().unwrap_or(0);
    let enough = all.into_iter().filter(|machine| u64::from(machine.gpus) >= cards.min(most));
    let many = |machine: &'static Machine| {
        let each = u64::from(machine.gpus.max(1));
        let many = cards.div_ceil(each);
        (machine, many, many.saturating_mul(each))
    };
    enough.map(many).collect()
}

impl NeedRow {
    /// The fewest such cards that hold the run by any method; nothing where no number does.
    pub fn fewest(&self) -> Option<u64> {
        match self.cells.iter().any(NeedCell::fits) {
            true => Some(1),
            false => self.cells.iter().filter_map(NeedCell::several).map(|several| several.layout.gpus).min(),
        }
    }

    /// US dollars for an hour of the machines with one such card, or with those that hold the run together where one does not; nothing
    /// where no price is known.
    pub fn per_hour(&self) -> Option<f64> {
        match self.fewest() {
            Some(1) => self.machine.as_ref().map(|machine| machine.per_hour),
            Some(_) | None => {
                let prices = self.cells.iter().filter_map(|cell| cell.several()?.per_hour);
                prices.min_by(f64::total_cmp)
            }
        }
    }
}

/// The cards that people buy or rent for training: NVIDIA's but laptops' and those before Volta, which are slow at it; the
/// smallest first, and of one size those that cost less to rent, those without a price last.
pub fn usual_cards() -> Vec<&'static Gpu> {
    let usual = |gpu: &&Gpu| {
        gpu.vendor == Vendor::Nvidia
            && gpu.class != Some(Class::Laptop)
            && gpu.capability.is_some_and(|capability| capability.major >= 7)
    };
    let mut cards: Vec<_> = gpus().filter(usual).collect();
    cards.sort_by(|one, other| {
        let price = |gpu: &Gpu| cheapest(&gpu.slug, 1).map_or(f64::INFINITY, |machine| machine.per_hour);
        one.memory.cmp(&other.memory).then(price(one).total_cmp(&price(other)))
    });
    cards
}

/// What the scenario, with each method, needs of a card, and whether it gets through. The other methods have the precision
/// and optimizer that its training library is usually run with ([`with_method`]), and what is at its default is so on the card
/// too ([`Scenario::change`]): fp16 where it has no bfloat16. It is asked for a single GPU, also where the scenario has several
/// ([`super::on_one`]): a machine's price is that of the run.
///
/// ```
/// use headroom::plan::{need, usual_cards};
/// use headroom::scenario::Scenario;
/// let smallest = usual_cards().into_iter().find(|card| need(&Scenario::default(), card).cells[2].fits());
/// assert_eq!(smallest.map(|card| card.marketed_gb), Some(Some(16)));
/// ```
pub fn need(base: &Scenario, card: &Gpu) -> NeedRow {
    need_of_each(base, &[card]).remove(0)
}

/// The same of several cards, a row for each in their order: those that run a step alike ([`alike`]) share what it comes to.
pub fn need_of_each(base: &Scenario, cards: &[&Gpu]) -> Vec<NeedRow> {
    let groups = alike(cards, usize::MAX);
    let row = |card: &&Gpu| NeedRow {
        gpu: card.slug.to_string(),
        name: card.name.to_string(),
        memory: card.memory,
        machine: cheapest(&card.slug, 1).cloned(),
        cells: Vec::with_capacity(Method::ALL.len()),
        held: None,
        rented: Vec::new(),
    };
    let mut rows: Vec<NeedRow> = groups.iter().flatten().map(row).collect();
    // what generates has no adapters: LoRA is as full there
    let is_as_full = |method: Method| method == Method::Lora && !base.task.trains();
    let own = if is_as_full(base.method) { Method::Full } else { base.method };
    for method in Method::ALL {
        if is_as_full(*method) {
            rows.iter_mut().for_each(|row| row.cells.extend_from_within(..1));
            continue;
        }
        let found = each(&groups, |group| cells(base, (*method, *method == own), group));
        for (row, found) in rows.iter_mut().zip(found.into_iter().flatten()) {
            if *method == own {
                (row.held, row.rented) = (found.held, found.rented);
            }
            row.cells.push(found.cell);
        }
    }
    rows.sort_by_key(|row| cards.iter().position(|card| *card.slug == *row.gpu));
    rows
}

/// A method on a card, and of the scenario's own how many hold it.
struct Found {
    cell: NeedCell,
    held: Option<Held>,
    rented: Vec<Held>,
}

/// One method, which may be the scenario's own, on cards that run every step alike.
fn cells(base: &Scenario, (method, is_own): (Method, bool), cards: &[&Gpu]) -> Vec<Found> {
    let recorded = Recorded::default();
    let on = |card: &&Gpu| {
        let mut on = alone(base);
        on.change(|on| on.gpu = GpuChoice::Catalogue(card.slug.to_string()));
        let cell = cell(card, within_positions(&with_method(&on, method)), &recorded);
        match is_own {
            true => Found {
                held: Held::of(&cell),
                rented: Held::on_whole_machines(&card.slug, &cell, &recorded),
                cell,
            },
            false => Found { cell, held: None, rented: Vec::new() },
        }
    };
    cards.iter().map(on).collect()
}

/// The cards in groups that run every step alike, at most so many in each: what is recorded for one of them serves all.
pub fn alike<'a>(cards: &[&'a Gpu], most: usize) -> Vec<Vec<&'a Gpu>> {
    let mut groups: Vec<Vec<&Gpu>> = Vec::new();
    for card in cards {
        let own = groups
            .iter_mut()
            .find(|group| group.len() < most && group.iter().all(|other| run_alike(other, card)));
        match own {
            Some(group) => group.push(card),
            None => groups.push(vec![card]),
        }
    }
    groups
}

fn cell(card: &Gpu, scenario: Scenario, recorded: &Recorded) -> NeedCell {
    let mut answer = Answer::of_tensors(scenario);
    // tensors that do not fit need no replay
    if answer.fit().is_some_and(|fit| fit.fits()) {
        answer = answer.replayed_from(recorded);
    }
    match (answer.fit(), answer.verdict()) {
        (Some(fit), Some(verdict)) => {
            let several =
                (verdict == Verdict::Over).then(|| several(card, &answer.scenario, recorded)).flatten();
            let scenario = Box::new(answer.scenario);
            NeedCell::Needs { needed: fit.needed, verdict, scenario, several: several.map(Box::new) }
        }
        _ => NeedCell::Unknown(answer.refusal()),
    }
}

/// The fewest cards that train it, each with a micro-batch of its own ([`super::fewest_gpus`]).
fn several(card: &Gpu, scenario: &Scenario, recorded: &Recorded) -> Option<Several> {
    if !scenario.task.trains() {
        return None;
    }
    let layout = fewest_between(scenario, 2..=MOST_TOGETHER, recorded).ok()??;
    let per_hour = rent(&card.slug, layout.gpus, layout.scenario.cluster.per_node);
    Some(Several { layout, per_hour })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::gpu;
    use crate::plan::fewest_gpus;
    use crate::scenario::{Cluster, Field, Mask, ModelChoice, Reference, Stack, Task};

    #[test]
    fn a_larger_card_of_a_generation_is_never_refused_for_a_smaller_one() {
        let base = Scenario::default();
        for slugs in [
            ["rtx-4060-ti-8gb", "rtx-4060-ti-16gb", "rtx-4090"],
            ["a100-sxm-40gb", "a100-sxm-80gb", "a100-pcie-80gb"],
        ] {
            let fitting = slugs.map(|slug| {
                let row = need(&base, &gpu(slug).unwrap());
                row.cells.iter().filter(|cell| cell.fits()).count()
            });
            assert!(fitting.is_sorted(), "{slugs:?}: {fitting:?}");
        }
    }

    #[test]
    fn a_cell_is_the_answer_of_its_scenario() {
        let row = need(&Scenario::default(), &gpu("rtx-3090").unwrap());
        assert_eq!((row.gpu.as_str(), row.cells.len()), ("rtx-3090", 3));
        for (cell, method) in row.cells.iter().zip(Method::ALL) {
            let NeedCell::Needs { needed, verdict, scenario, .. } = cell else { panic!("{cell:?}") };
            assert_eq!(
                (scenario.method, scenario.gpu.clone()),
                (*method, GpuChoice::Catalogue("rtx-3090".into()))
            );
            assert_eq!(*needed <= row.memory, *verdict != Verdict::Over);
        }
        assert!(row.cells[2].fits() && !row.cells[0].fits());
    }

    #[test]
    fn what_one_card_does_not_hold_several_do() {
        let row = need(&Scenario::default(), &gpu("a100-sxm-40gb").unwrap());
        let full = row.cells[0].several().expect("some number holds it");
        assert_eq!((full.layout.gpus, full.layout.verdict), (3, Verdict::Fits));
        // three of a machine of eight
        let of_eight = cheapest("a100-sxm-40gb", 3).expect("a price");
        assert_eq!(full.per_hour, Some(of_eight.per_hour * (3.0 / f64::from(of_eight.gpus)).ceil()));
        assert!(row.cells[2].fits() && row.cells[2].several().is_none());
        let generates = Scenario { task: Task::Generate, ..Scenario::default() };
        let small = need(&generates, &gpu("rtx-3060-12gb").unwrap());
        assert!(!small.cells[0].fits() && small.cells[0].several().is_none());
    }

    #[test]
    fn as_many_are_named_as_among_the_changes() {
        for (model, method, stack, slug) in [
            ("meta-llama/Llama-3.1-8B", Method::Full, Stack::Transformers, "rtx-4090"),
            ("meta-llama/Llama-3.1-70B", Method::Full, Stack::Transformers, "h100-sxm-80gb"),
            ("meta-llama/Llama-3.1-70B", Method::Lora, Stack::Transformers, "l40s"),
            ("meta-llama/Llama-3.1-8B", Method::Full, Stack::Trl, "rtx-4090"),
        ] {
            let mut scenario = Scenario {
                model: ModelChoice::Catalogue(model.into()),
                gpu: GpuChoice::Catalogue(slug.into()),
                ..Scenario::default()
            };
            scenario.change(|scenario| scenario.stack = stack);
            scenario.change(|scenario| scenario.method = method);
            let row = need(&scenario, &gpu(slug).unwrap());
            let own = Method::ALL.iter().position(|other| *other == method).unwrap();
            let several = row.cells[own].several().map(|several| &several.layout);
            let fewest = fewest_gpus(&scenario).unwrap().expect("some number holds it");
            assert_eq!(several, Some(&fewest), "{model} {method:?} {slug}");
            assert_eq!(row.held.map(|held| held.cards), Some(fewest.gpus), "{model} {method:?} {slug}");
        }
    }

    #[test]
    fn cards_that_are_asked_about_together_answer_as_alone() {
        let slugs = ["rtx-3060-12gb", "a40", "rtx-3090", "rtx-4090", "l40s", "v100-sxm-16gb"];
        let cards: Vec<Gpu> = slugs.iter().filter_map(|slug| gpu(slug).ok()).collect();
        let cards: Vec<&Gpu> = cards.iter().collect();
        assert!(cards.len() > 4, "{}", cards.len());
        let base = Scenario::default();
        let alone: Vec<NeedRow> = cards.iter().map(|card| need(&base, card)).collect();
        assert_eq!(need_of_each(&base, &cards), alone);
        let groups = alike(&cards, 2);
        assert!(groups.iter().all(|group| group.len() <= 2 && run_alike(group[0], group[group.len() - 1])));
        assert_eq!(groups.iter().flatten().count(), cards.len());
        assert!(groups.len() < cards.len());
    }

    #[test]
    fn what_was_chosen_stays() {
        let mut base = Scenario { task: Task::Grpo, method: Method::Lora, ..Scenario::default() };
        base = base.filled(|key| matches!(key.field, Field::Task | Field::Method));
        // values that fine-tuning has by default, and GRPO does not
        (base.answers.reference, base.batch, base.mask) = (Reference::Scored, 1, Mask::None);
        base.reserve.vllm = 0;
        for slug in ["rtx-5090", "t4"] {
            base.change(|base| base.gpu = GpuChoice::Catalogue(slug.into()));
            let row = need(&base, &gpu(slug).unwrap());
            let NeedCell::Needs { needed, verdict, scenario, .. } = &row.cells[1] else { panic!("{row:?}") };
            assert_eq!(**scenario, base, "{slug}");
            let answer = Answer::of(base.clone());
            assert_eq!(
                (Some(*needed), Some(*verdict)),
                (answer.fit().map(|fit| fit.needed), answer.verdict()),
                "{slug}"
            );
            // another method has the same reference, batch and mask
            let NeedCell::Needs { scenario, .. } = &row.cells[2] else { panic!("{row:?}") };
            assert_eq!((scenario.answers.reference, scenario.batch), (Reference::Scored, 1));
        }
    }

    #[test]
    fn a_card_is_asked_about_alone() {
        let one = Scenario::default();
        let many = Scenario { cluster: Cluster { gpus: 8, ..Cluster::ONE }, ..one.clone() };
        let card = gpu("rtx-3090").unwrap();
        assert_eq!(need(&many, &card), need(&one, &card));
    }

    #[test]
    fn a_model_without_an_answer_says_why() {
        let base = Scenario { model: ModelChoice::Catalogue("nobody/nothing".into()), ..Scenario::default() };
        let row = need(&base, &gpu("rtx-3090").unwrap());
        assert!(row.cells.iter().all(|cell| matches!(cell, NeedCell::Unknown(_))));
    }
}
