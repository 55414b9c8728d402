//! A table of texts, some of which are buttons: the twin of a chart, and whatever else is rows and columns.

use leptos::either::Either;
use leptos::prelude::*;

use super::order::{Listing, Order};
use super::term::meaning;
use crate::export::{comma_separated, no_formula};
use crate::ui::browser;
use crate::units::grouped;

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

    /// What a spreadsheet is given of it.
    fn in_csv(&self) -> String {
        let small = if self.small.is_empty() { String::new() } else { format!(" ({})", self.small) };
        no_formula(&format!("{}{small}", self.text))
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

/// The table as comma-separated values, as it is shown.
fn csv(columns: &[String], rows: &[Row]) -> String {
    let line = |row: &Row| comma_separated(std::iter::once(&row.head).chain(&row.cells).map(Cell::in_csv));
    let names = comma_separated(columns.iter().cloned());
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
            <button type="button" class="explain" disabled=busy on:click=save>
                "Download CSV"
                <span class="unseen">{format!(" of {caption}")}</span>
            </button>
        }
    });
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
                <tbody>{move || shown().into_iter().enumerate().map(row).collect::<Vec<_>>()}</tbody>
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
    fn a_table_is_a_file_of_what_it_shows() {
        let needs = Cell { small: "close, \"no\"".to_owned(), ..Cell::of("23.4 GiB") };
        let row = Row { head: Cell::of("=RTX 4090"), cells: vec![needs, Cell::of("–")], ..Row::default() };
        assert_eq!(
            csv(&columns(["Card", "LoRA", "QLoRA"]), &[row]),
            "Card,LoRA,QLoRA\r\n'=RTX 4090,\"23.4 GiB (close, \"\"no\"\")\",–\r\n"
        );
    }
}
