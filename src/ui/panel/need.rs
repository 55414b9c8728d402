//! Which card the scenario needs: cards by methods, and what a machine with each costs to rent.

use leptos::prelude::*;

use super::document::Grounds;
use super::rows::{pieces, summed_up};
use crate::export;
use crate::hardware::{Gpu, Machine};
use crate::plan::{
    NeedCell, NeedRow, Offer, Several, Span, Verdict, alike, cheapest_first, cheapest_run, usual_cards,
};
use crate::scenario::{Method, Scenario};
use crate::ui::asked::Listed;
use crate::ui::behind::Behind;
use crate::ui::browser;
use crate::ui::controls::{self, Cell, Row, Table};
use crate::ui::desk::Place;
use crate::ui::format::Unit;
use crate::ui::question::{Answer, Question};
use crate::ui::state::State;
use crate::ui::summary;
use crate::units::grouped;

/// How many cards that run a step alike are asked about at once: they share what it comes to, and a worker is free again in between.
const AT_ONCE: usize = 6;

/// How many cards are listed before all are asked for.
const LISTED: usize = 12;

/// How many machines, likewise.
const MACHINES: usize = 6;

/// The table of cards.
#[component]
pub fn Cards() -> impl IntoView {
    let state = State::of_page();
    let scenario = move || state.current().scenario.get();
    let found = pieces(
        state,
        scenario,
        |scenario| {
            let slugs = |group: &Vec<&Gpu>| group.iter().map(|card| card.slug.to_string()).collect();
            let ask = |group| Question::Cards(Box::new(scenario.clone()), slugs(group));
            alike(&usual_cards(), AT_ONCE).iter().map(ask).collect()
        },
        Place::Cards,
        |answer| {
            let Answer::Cards(rows) = answer else { return None };
            Some(rows)
        },
    );
    // Cards on which nothing fits are left out.
    let fitting = Memo::new(move |_| {
        let mut rows: Vec<NeedRow> =
            found.heard.with(|heard| heard.iter().flatten().flatten().cloned().collect());
        rows.retain(|row| row.fewest().is_some());
        // those that hold it alone come first, then those of which the fewest are needed; of these the smallest
        let cards = usual_cards();
        rows.sort_by_key(|row| (row.fewest(), cards.iter().position(|card| *card.slug == *row.gpu)));
        rows
    });
    let rows = Signal::derive(move || {
        let unit = state.unit();
        fitting.with(|rows| rows.iter().map(|row| in_words(state, row, unit)).collect::<Vec<_>>())
    });
    let columns = Signal::derive(move || {
        let task = state.current().scenario.with(|scenario| scenario.task);
        let methods = task.methods().iter().map(|method| task.method_label(*method));
        ["Card", "Memory", "Rented from"].into_iter().chain(methods).map(str::to_owned).collect::<Vec<_>>()
    });
    let rented = Signal::derive(move || {
        fitting.with(|rows| {
            cheapest_first(rows).into_iter().map(|(card, offer)| of_machine(card, offer)).collect::<Vec<_>>()
        })
    });
    let cheapest = move || {
        let scenario = scenario();
        fitting.with(|rows| {
            let so_far = if found.busy.get() { "Of the cards so far: " } else { "" };
            cheapest_run(rows)
                .map(|(card, offer)| format!("{so_far}{}", export::cheapest_run(&scenario, card, &offer)))
        })
    };
    let told = move || {
        let method = state.current().scenario.with(|scenario| scenario.method);
        let words = fitting.with(|rows| gist(rows, method));
        summed_up(found.busy, found.stopped, &found.looking("Looking at every card"), || {
            let none =
                "Nothing fits any card that is listed here: several cards are needed, or a smaller model.";
            words.unwrap_or_else(|| none.to_owned())
        })
    };
    view! {
        <p class="remark">{told}</p>
        <Table
            caption="Cards by method"
            class="fits cards"
            columns=columns
            rows=rows
            busy=found.busy
            stopped=found.stopped
            listing=state.asked.listing(Listed::Cards)
            first=(LISTED, "cards")
        />
        <p class="remark">
            {move || scenario().cluster.is_many().then_some("How many of each card it takes is asked anew, whatever number the scenario has. ")}
            "What one card needs, or each of the fewest that hold the run together, 64 at most. FSDP2 keeps float32 shards, unless you chose a \
             precision; the other methods run as your library usually runs them. Prices are on demand, for an hour of the cheapest machine with \
             that card, on the day shown."
        </p>
        <h3>"On which rented card, how long, for how much?"</h3>
        <p class="remark">
            {cheapest}
            " For the data set under “How long?”. You pay for the whole machine, and all of its cards train, so that a step has as many times \
             the sequences. The range is that of the speeds that were measured."
        </p>
        <Table
            caption="Machines to rent with the cards that hold it"
            class="measured machines"
            columns=Signal::stored(controls::columns(["Machine", "Costs", "Takes", "Cards", "An hour", "On"]))
            rows=rented
            busy=found.busy
            stopped=found.stopped
            listing=state.asked.listing(Listed::Machines)
            first=(MACHINES, "machines")
        />
        <Grounds of=Behind::Cards />
    }
}

fn of_machine(card: &str, offer: Offer) -> Row {
    let rent: &Machine = offer.machine;
    let roughly = |span: Option<Span>, unit: &str, words: &dyn Fn(Span) -> String| match span {
        Some(span) => [(unit, span.typical), (": at least", span.least), (": at most", span.most)]
            .into_iter()
            .fold(Cell::amount(words(span), span.typical), |cell, (ending, figure)| {
                cell.taken(ending, format!("{figure:.2}"))
            }),
        None => Cell::of("–"),
    };
    let cells = vec![
        roughly(offer.dollars(), " ($)", &export::dollars),
        roughly(offer.hours, " (h)", &|hours| export::duration(hours.times(3_600.0))),
        Cell::amount(format!("{} × {card}", offer.cards_in_words()), offer.cards as f64)
            .taken("", offer.cards)
            .taken(": card", card),
        Cell::amount(format!("${:.2}", offer.per_hour()), offer.per_hour())
            .taken(" ($)", format!("{:.3}", offer.per_hour())),
        Cell { href: rent.price_source().unwrap_or_default(), ..Cell::of(&rent.dated) },
    ];
    let head = Cell { small: offer.ram_in_words().unwrap_or_default(), ..Cell::of(offer.name()) };
    Row { head, cells, ..Row::default() }
}

/// The smallest card that the scenario's own method fits, or the fewest that hold it together, and what costs least to rent, one card or
/// several.
fn gist(rows: &[NeedRow], method: Method) -> Option<String> {
    let own = Method::ALL.iter().position(|other| *other == method)?;
    let fits = |row: &&NeedRow| row.cells.get(own).is_some_and(NeedCell::fits);
    let rent = rent(rows, own).unwrap_or_default();
    let Some(smallest) = rows.iter().filter(fits).min_by_key(|row| row.memory) else {
        let (row, fewest) =
            together(rows, own).min_by_key(|(row, several)| (several.layout.gpus, row.memory))?;
        return Some(format!(
            "As it is, no single card holds it; the fewest that do together are {}.{rent}",
            named(row, fewest)
        ));
    };
    Some(format!(
        "As it is, it fits {} of {} cards; the smallest is the {}.{rent}",
        rows.iter().filter(fits).count(),
        usual_cards().len(),
        smallest.name,
    ))
}

/// The cards of which several hold it together, by the method of that position.
fn together(rows: &[NeedRow], method: usize) -> impl Iterator<Item = (&NeedRow, &Several)> {
    rows.iter().filter_map(move |row| Some((row, row.cells.get(method)?.several()?)))
}

fn named(row: &NeedRow, several: &Several) -> String {
    format!("{} × {}", grouped(several.layout.gpus), row.name)
}

/// What costs least to rent, with its price.
fn rent(rows: &[NeedRow], method: usize) -> Option<String> {
    let alone =
        rows.iter().filter(|row| row.cells.get(method).is_some_and(NeedCell::fits)).filter_map(|row| {
            let machine = row.machine.as_ref()?;
            // a card is not let by itself where a machine has several
            let cards = if machine.gpus == 1 {
                String::new()
            } else {
                format!(" of a machine with {}", machine.gpus)
            };
            Some((machine.per_hour, format!("is one {}{cards}", row.name)))
        });
    let several = together(rows, method)
        .filter_map(|(row, several)| Some((several.per_hour?, format!("are {}", named(row, several)))));
    let (per_hour, named) = alone.chain(several).min_by(|(one, _), (other, _)| one.total_cmp(other))?;
    Some(format!(" The cheapest to rent {named}, ${per_hour:.2} an hour."))
}

fn in_words(state: State, row: &NeedRow, unit: Unit) -> Row {
    let rent = match &row.machine {
        None => Cell::of("–"),
        Some(machine) => {
            let cards = if machine.gpus == 1 { String::new() } else { format!(", {} cards", machine.gpus) };
            Cell {
                small: format!("{} {}{cards}, {}", machine.provider, machine.name, machine.dated),
                sorted_as: row.per_hour(),
                ..Cell::of(format!("${:.2}/h", machine.per_hour))
                    .taken("", format!("{} {}", machine.provider, machine.name))
                    .taken(" ($/h)", format!("{:.3}", machine.per_hour))
                    .taken(": cards", machine.gpus)
                    .taken(": dated", &machine.dated)
            }
        }
    };
    let task = state.current().scenario.with(|scenario| scenario.task);
    let cells = Method::ALL.iter().zip(&row.cells).filter(|(method, _)| task.methods().contains(method));
    let methods = cells.map(|(_, cell)| match cell {
        NeedCell::Needs { several: Some(several), .. } => {
            let Several { layout, per_hour } = &**several;
            let (gpus, opened) = (grouped(layout.gpus), layout.scenario.clone());
            let told = format!("Opened {} on {gpus} × {}", summary::title(&opened), row.name);
            Cell {
                hint: format!(
                    "{}: open {} on {gpus} of them",
                    layout.verdict.label(),
                    summary::title(&opened)
                ),
                small: per_hour.map(|per_hour| format!("${per_hour:.2}/h")).unwrap_or_default(),
                act: Some(Callback::new(move |()| open(state, &opened, &told))),
                class: layout.verdict.slug(),
                ..Cell::amount(
                    format!("{gpus} × {}", unit.amount(layout.needed)),
                    layout.gpus as f64 * layout.needed.0 as f64,
                )
                .taken_bytes(" needs", layout.needed, unit)
                .judged(layout.verdict.slug())
                .taken(": GPUs", layout.gpus)
                .taken(
                    ": together ($/h)",
                    per_hour.map(|per_hour| format!("{per_hour:.2}")).unwrap_or_default(),
                )
            }
        }
        NeedCell::Needs { needed, verdict, scenario, several: None } => {
            let opened = scenario.clone();
            let told = format!("Opened {} on the {}", summary::title(scenario), row.name);
            let act = move |()| open(state, &opened, &told);
            let fits = verdict.holds();
            let text = if *verdict == Verdict::WouldNotRun { "–".to_owned() } else { unit.amount(*needed) };
            Cell {
                hint: format!("{}: open {}", verdict.label(), summary::title(scenario)),
                small: match fits {
                    true if scenario.emulates_bfloat16() => "emulates bf16".to_owned(),
                    true => String::new(),
                    false => verdict.label().to_lowercase(),
                },
                act: (*verdict != Verdict::Over).then(|| Callback::new(act)),
                class: verdict.slug(),
                // a card that does not hold it is no answer to be ranked
                sorted_as: (!matches!(verdict, Verdict::Over | Verdict::WouldNotRun))
                    .then_some(needed.0 as f64),
                ..Cell::of(text)
                    .taken_bytes(" needs", *needed, unit)
                    .judged(verdict.slug())
                    .taken(": GPUs", 1)
            }
        }
        NeedCell::Unknown(issue) => Cell { hint: issue.to_string(), ..Cell::of("–") },
    });
    let cells = [Cell::bytes(row.memory, unit), rent].into_iter().chain(methods).collect();
    Row { head: Cell::of(&row.name), cells, ..Row::default() }
}

/// Opens what a cell of a table is about, which can be undone.
pub fn open(state: State, scenario: &Scenario, told: &str) {
    state.open(scenario.clone(), told);
    browser::scroll_to_top();
    request_animation_frame(|| browser::focus("answer"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::need;
    use crate::ui::desk::Desk;

    #[test]
    fn a_row_says_memory_price_and_methods() {
        let cards = usual_cards();
        let row = |slug: &str| {
            let card = cards.iter().find(|card| &*card.slug == slug).expect("a card of the catalogue");
            need(&Scenario::default(), card)
        };
        let rows = [row("l4"), row("rtx-3060-12gb"), row("rtx-4090")];
        let said = gist(&rows, Method::Qlora).expect("two fit");
        assert!(said.starts_with("As it is, it fits 2 of "), "{said}");
        assert!(said.contains(" cards; the smallest is the L4."), "{said}");
        assert!(said.contains("cheapest to rent is one L4, $0."), "{said}");
        let several = gist(&rows, Method::Full).expect("several hold it");
        assert!(
            several.starts_with("As it is, no single card holds it; the fewest that do together are "),
            "{several}"
        );
        let told =
            Owner::new().with(|| in_words(State::new(Vec::new(), Desk::default()), &rows[0], Unit::Binary));
        let [_, rent, full, _, qlora] = &told.cells[..] else { panic!("five cells") };
        assert!(
            rent.text.starts_with("$0.") && rent.small.contains(", 2026-"),
            "{} {}",
            rent.text,
            rent.small
        );
        assert!(full.act.is_some() && full.text.contains(" × "), "{}", full.text);
        assert!(qlora.act.is_some() && qlora.small.is_empty() && qlora.hint.starts_with("Fits: open "));
        // what holds it alone is sorted with what several hold together, what nothing holds comes last
        assert!(full.sorted_as > qlora.sorted_as && qlora.sorted_as.is_some(), "{:?}", full.sorted_as);
        let small =
            Owner::new().with(|| in_words(State::new(Vec::new(), Desk::default()), &rows[1], Unit::Binary));
        assert_eq!(small.cells[4].sorted_as.is_some(), rows[1].cells[2].several().is_some());
    }
}
