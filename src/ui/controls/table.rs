//! A table of texts, some of which are buttons: the twin of a chart, and whatever else is rows and columns.

use leptos::either::Either;
use leptos::prelude::*;

use super::order::{Listing, Order};
use super::term::meaning;
use crate::export::{comma_separated, no_formula};
use crate::ui::browser;
use crate::ui::format::Unit;
use crate::ui::markup::{self, unbroken};
use crate::units::{Bytes, grouped, ungrouped};

/// What a cell says and does.
#[derive(Clone, Default)]
pub struct Cell {
    /// What it says.
    pub text: String,
    /// What its column is sorted by where that is not what it says: bytes, dollars, tokens per second.
    pub sorted_as: Option<f64>,
    /// Whether who sorts by it looks for the most: sequences that fit, bytes saved.
    pub most_first: bool,
    /// What it says more quietly.
    pub small: String,
    /// What stands below it on a phone, and has a column of its own elsewhere.
    pub narrow: String,
    /// What is said of it where it is pointed at or pressed; of a button, what it does.
    pub hint: String,
    /// Its class in the style sheet.
    pub class: &'static str,
    /// What a click on it does.
    pub act: Option<Callback<()>>,
    /// The address of its source.
    pub href: String,
    /// What a spreadsheet is given of it, each in a column of its own: what follows the name of the cell's column in the heading, and
    /// the value. Where nothing is said, what the cell says.
    pub taken: Vec<(String, String)>,
}

impl Cell {
    /// A cell that says something.
    pub fn of(text: impl Into<String>) -> Cell {
        Cell { text: text.into(), ..Cell::default() }
    }

    /// A cell that says an amount, by which its column is sorted.
    pub fn amount(text: impl Into<String>, amount: f64) -> Cell {
        Cell { sorted_as: Some(amount), ..Cell::of(text) }
    }

    /// The same of an amount of which more is better: the first click on its column shows the most.
    pub fn gain(text: impl Into<String>, amount: f64) -> Cell {
        Cell { most_first: true, ..Cell::amount(text, amount) }
    }

    /// A cell that says bytes, by which its column is sorted and which a spreadsheet is given as a number.
    pub fn bytes(bytes: Bytes, unit: Unit) -> Cell {
        Cell::amount(unit.amount(bytes), bytes.0 as f64).taken_bytes("", bytes, unit)
    }

    /// Gives a spreadsheet a value of it.
    pub fn taken(mut self, ending: &str, value: impl ToString) -> Cell {
        self.take(ending, value.to_string());
        self
    }

    /// Many cells say it of many kinds of values: the page has the code once.
    #[inline(never)]
    fn take(&mut self, ending: &str, value: String) {
        self.taken.push((ending.to_owned(), value));
    }

    /// Gives it an amount as a number, with its unit in the heading.
    #[inline(never)]
    pub fn taken_bytes(self, ending: &str, bytes: Bytes, unit: Unit) -> Cell {
        self.taken(&format!("{ending} ({})", unit.label()), unit.plain(bytes))
    }

    /// Gives it a verdict.
    pub fn judged(self, verdict: &str) -> Cell {
        self.taken(": verdict", verdict)
    }

    /// What a spreadsheet is given of it, by what follows the name of its column.
    fn in_csv(&self) -> Vec<(String, String)> {
        if !self.taken.is_empty() {
            return self.taken.clone();
        }
        // what is not there, or not yet, is left empty
        let text = if matches!(&*self.text, "–" | "…") { "" } else { &self.text };
        let said = [("", text), (": note", &*self.small)];
        let said = said.into_iter().filter(|(_, value)| !value.is_empty());
        said.map(|(ending, value)| (ending.to_owned(), markup::plain(value))).collect()
    }
}

/// A value as a spreadsheet reads it: numbers bare, with an ASCII minus, and words that it does not compute.
fn plain(value: &str) -> String {
    let value = value.replace('−', "-");
    match ungrouped(&value).filter(|number| number.parse::<f64>().is_ok()) {
        Some(number) => number,
        None => no_formula(&value),
    }
}

/// A row: its name, and a cell for each further column.
#[derive(Clone, Default)]
pub struct Row {
    /// Its class in the style sheet.
    pub class: &'static str,
    /// The verdict that it is coloured by.
    pub fit: &'static str,
    /// What it is about.
    pub head: Cell,
    /// What it says of that.
    pub cells: Vec<Cell>,
}

/// The names of columns.
pub fn columns<const N: usize>(names: [&str; N]) -> Vec<String> {
    names.map(str::to_owned).into()
}

/// The table as comma-separated values, for a spreadsheet: amounts are numbers, with their units in the headings, and what a cell says
/// beside its amount, as a verdict, has a column of its own.
fn csv(columns: &[String], rows: &[Row]) -> String {
    let rows: Vec<Vec<_>> = rows
        .iter()
        .map(|row| std::iter::once(&row.head).chain(&row.cells).map(Cell::in_csv).collect())
        .collect();
    let parts: Vec<(usize, &str)> = (0..columns.len())
        .flat_map(|column| {
            let mut found: Vec<(usize, &str)> = Vec::new();
            for (ending, _) in rows.iter().filter_map(|row| row.get(column)).flatten() {
                if !found.contains(&(column, ending)) {
                    found.push((column, ending));
                }
            }
            if found.is_empty() { vec![(column, "")] } else { found }
        })
        .collect();
    let line = |row: &Vec<Vec<(String, String)>>| {
        comma_separated(parts.iter().map(|(column, ending)| {
            let value = row.get(*column).and_then(|cell| cell.iter().find(|(own, _)| own == ending));
            value.map(|(_, value)| plain(value)).unwrap_or_default()
        }))
    };
    let names = comma_separated(parts.iter().map(|(column, ending)| format!("{}{ending}", columns[*column])));
    names + &rows.iter().map(line).collect::<String>()
}

/// The table, in a box that scrolls by itself where it is too wide.
#[component]
pub fn Table(
    /// What it is, for those who do not see what stands around it.
    caption: &'static str,
    /// Its class in the style sheet.
    class: &'static str,
    /// The names of the columns.
    columns: Signal<Vec<String>>,
    /// The rows, in the order that they are found in.
    rows: Signal<Vec<Row>>,
    /// Whether some are still to come.
    #[prop(optional, into)]
    busy: Signal<bool>,
    /// Whether some will not come.
    #[prop(optional, into)]
    stopped: Signal<bool>,
    /// What it is called where it can be sorted and taken along.
    #[prop(optional)]
    listing: Option<Listing>,
    /// How many rows are shown before all are asked for, and what several of them are called.
    #[prop(optional)]
    first: Option<(usize, &'static str)>,
) -> impl IntoView {
    let sorted = Signal::derive(move || {
        let mut rows = rows.get();
        if let Some(order) = listing.and_then(|listing| listing.order.get()) {
            order.sort(&mut rows);
        }
        rows
    });
    let all = RwSignal::new(false);
    let shown = move || {
        let mut rows = sorted.get();
        if let Some((most, _)) = first.filter(|_| !all.get()) {
            rows.truncate(most);
        }
        rows
    };
    let column = move |(number, name): (usize, String)| match listing {
        None => Either::Left(view! { <th scope="col">{name}</th> }),
        Some(Listing { order, .. }) => {
            let click = move |_| {
                let most_first = rows.with_untracked(|rows| Order::starts_falling(rows, number));
                order.update(|order| *order = Order::clicked(*order, number, most_first));
            };
            Either::Right(view! {
                <th scope="col" aria-sort=move || Order::spoken(order.get(), number)>
                    <button type="button" class="sort" on:click=click>
                        {name}
                    </button>
                </th>
            })
        }
    };
    let row = move |(number, Row { class, fit, head, cells }): (usize, Row)| {
        let id = format!("{}-{number}", caption.replace(' ', "-"));
        view! {
            <tr class=class data-fit=fit>
                <th scope="row">{content(head, "change", &id)}</th>
                {cells.into_iter().enumerate().map(|place| cell(place, &id)).collect::<Vec<_>>()}
            </tr>
        }
    };
    let offered = listing.map(|Listing { name, .. }| {
        let save = move |_| {
            let text = untrack(|| columns.with(|columns| sorted.with(|rows| csv(columns, rows))));
            browser::save(&format!("headroom-{name}.csv"), "text/csv", &text);
        };
        view! {
            <button
                type="button"
                class="explain"
                disabled=Signal::derive(move || busy.get() || stopped.get())
                on:click=save
            >
                {move || if stopped.get() { "Download CSV, once all of it is known" } else { "Download CSV" }}
                <span class="unseen">{format!(" of {caption}")}</span>
            </button>
        }
    });
    // a heading with nothing under it would look like an answer
    let nothing_yet = move || {
        ((busy.get() || stopped.get()) && rows.with(Vec::is_empty)).then(|| {
            let width = columns.with(Vec::len).to_string();
            view! {
                <tr>
                    <td class="words" colspan=width>
                        "Nothing found yet"
                    </td>
                </tr>
            }
        })
    };
    let more = first.map(|(most, what)| {
        let left = Memo::new(move |_| rows.with(Vec::len).saturating_sub(most));
        let words = move || match all.get() {
            true => format!("Fewer {what}"),
            false => format!("{} more {what}", grouped(left.get() as u64)),
        };
        let click = move |_| all.update(|all| *all = !*all);
        view! {
            <button type="button" class="explain" hidden=move || left.get() == 0 on:click=click>
                {words}
            </button>
        }
    });
    // what scrolls can be reached by keyboard; where columns are sorted their buttons are
    let stop = listing.is_none().then_some(("0", "region", caption));
    view! {
        <div
            class="table-box"
            tabindex=stop.map(|stop| stop.0)
            role=stop.map(|stop| stop.1)
            aria-label=stop.map(|stop| stop.2)
        >
            <table class=class aria-busy=Signal::derive(move || busy.get().to_string())>
                <caption class="unseen">{caption}</caption>
                <thead>
                    <tr>{move || columns.get().into_iter().enumerate().map(column).collect::<Vec<_>>()}</tr>
                </thead>
                <tbody>
                    {move || shown().into_iter().enumerate().map(row).collect::<Vec<_>>()} {nothing_yet}
                </tbody>
            </table>
        </div>
        {more}
        {offered}
    }
}

fn cell((number, cell): (usize, Cell), row: &str) -> impl IntoView + use<> {
    let class = cell.class;
    view! { <td class=class>{content(cell, "cell", &format!("{row}-{number}"))}</td> }
}

/// `id` begins the ids of what is said of it.
fn content(cell: Cell, button: &'static str, id: &str) -> impl IntoView + use<> {
    let Cell { text, small, narrow, hint, act, href, .. } = cell;
    let [text, small, narrow] = [text, small, narrow].map(|said| unbroken(&said));
    let away = (!href.is_empty()).then(|| {
        view! {
            " "
            <a href=href target="_blank" rel="noreferrer">
                "source"
            </a>
        }
    });
    let small = (!small.is_empty()).then(|| view! { " " <small>{small}</small> });
    match act {
        None => {
            let said = match hint.is_empty() {
                true => view! { <span>{text}</span> }.into_any(),
                false => meaning(format!("{id}-means"), &text, &hint, None).into_any(),
            };
            let narrow = (!narrow.is_empty()).then(|| view! { " " <small class="narrow">{narrow}</small> });
            Either::Left(view! { {said} {small} {narrow} {away} })
        }
        Some(act) => {
            let title = (!hint.is_empty()).then(|| hint.clone());
            let hint = (!hint.is_empty()).then(|| view! { <span class="unseen">{hint}</span> });
            Either::Right(view! {
                <button type="button" class=button title=title on:click=move |_| act.run(())>
                    {text}
                    {small}
                    {hint}
                </button>
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_a_file_that_a_spreadsheet_computes_with() {
        let row = |card: &str, cells: Vec<Cell>| Row { head: Cell::of(card), cells, ..Row::default() };
        let needs = |gib: f64, verdict: &str| {
            let cell = Cell::bytes(Bytes::gib(gib), Unit::Binary).judged(verdict);
            Cell { small: verdict.to_owned(), ..cell }
        };
        let saves = Cell::of("−5.24 GiB").taken(" (GiB)", "-5.240");
        let noted = Cell { small: "close, \"no\"".to_owned(), ..Cell::of("−1,024") };
        let rows = [
            row("=RTX 4090", vec![needs(23.4, "fits"), saves, noted]),
            row("L4", vec![Cell::of("–"), Cell::of("…"), Cell::of("-x")]),
            row("T4", vec![needs(0.5, "tight")]),
        ];
        assert_eq!(
            csv(&columns(["Card", "LoRA", "Saves", "Batch"]), &rows),
            "Card,LoRA (GiB),LoRA: verdict,Saves (GiB),Batch,Batch: note\r\n\
             '=RTX 4090,23.400,fits,-5.240,-1024,\"close, \"\"no\"\"\"\r\n\
             L4,,,,'-x,\r\n\
             T4,0.500,tight,,,\r\n"
        );
    }
}
