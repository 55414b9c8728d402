//! A table of texts, some of which are buttons: the twin of a chart, and whatever else is rows and columns.

use leptos::either::Either;
use leptos::prelude::*;

use crate::export::{comma_separated, no_formula};
use crate::ui::browser;

/// What a cell says and does.
#[derive(Clone, Default)]
pub struct Cell {
    /// What it says.
    pub text: String,
    /// What it says more quietly.
    pub small: String,
    /// What only those hear who do not see it, or who rest on it with a pointer.
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

/// A column's name, and its number where the rows can be sorted by it.
pub type Column = (String, Option<usize>);

/// Columns by which nothing is sorted.
pub fn columns<const N: usize>(names: [&str; N]) -> Vec<Column> {
    names.into_iter().map(|name| (name.to_owned(), None)).collect()
}

/// The table as comma-separated values, as it is shown.
fn csv(columns: &[Column], rows: &[Row]) -> String {
    let line = |row: &Row| comma_separated(std::iter::once(&row.head).chain(&row.cells).map(Cell::in_csv));
    let names = comma_separated(columns.iter().map(|(name, _)| name.clone()));
    names + &rows.iter().map(line).collect::<String>()
}

/// The table, in a box that scrolls by itself where it is too wide.
#[component]
pub fn Table(
    /// What it is, for those who do not see what stands around it.
    caption: &'static str,
    /// Its class in the style sheet.
    class: &'static str,
    /// The columns.
    columns: Signal<Vec<Column>>,
    /// By which of them it is sorted.
    #[prop(optional)]
    sorted: Option<RwSignal<usize>>,
    /// The rows.
    rows: Signal<Vec<Row>>,
    /// Whether some are still to come.
    #[prop(optional, into)]
    busy: Signal<bool>,
    /// The name of the file that it is offered as; without one it is not.
    #[prop(optional)]
    file: &'static str,
) -> impl IntoView {
    let column = move |(name, number): Column| {
        let by = sorted.zip(number);
        let order = by.map(|(sorted, number)| if sorted.get() == number { "ascending" } else { "none" });
        let name = match by {
            None => Either::Left(name),
            Some((sorted, number)) => Either::Right(view! {
                <button type="button" class="sort" on:click=move |_| sorted.set(number)>
                    {name}
                </button>
            }),
        };
        view! {
            <th scope="col" aria-sort=order>
                {name}
            </th>
        }
    };
    let row = |Row { class, fit, head, cells }: Row| {
        view! {
            <tr class=class data-fit=fit>
                <th scope="row">{content(head, "change")}</th>
                {cells.into_iter().map(cell).collect::<Vec<_>>()}
            </tr>
        }
    };
    let save = move |_| {
        let text = untrack(|| columns.with(|columns| rows.with(|rows| csv(columns, rows))));
        browser::save(file, "text/csv", &text);
    };
    let offered = (!file.is_empty()).then(|| {
        view! {
            <button type="button" class="explain" disabled=busy on:click=save>
                "Download CSV"
                <span class="unseen">{format!(" of {caption}")}</span>
            </button>
        }
    });
    view! {
        <div class="table-box">
            <table class=class aria-busy=Signal::derive(move || busy.get().to_string())>
                <caption class="unseen">{caption}</caption>
                <thead>
                    <tr>{move || columns.get().into_iter().map(column).collect::<Vec<_>>()}</tr>
                </thead>
                <tbody>{move || rows.get().into_iter().map(row).collect::<Vec<_>>()}</tbody>
            </table>
        </div>
        {offered}
    }
}

fn cell(cell: Cell) -> impl IntoView {
    let class = cell.class;
    view! { <td class=class>{content(cell, "cell")}</td> }
}

fn content(cell: Cell, button: &'static str) -> impl IntoView {
    let Cell { text, small, hint, act, href, .. } = cell;
    let away = (!href.is_empty()).then(|| {
        view! {
            " "
            <a href=href target="_blank" rel="noreferrer">
                "source"
            </a>
        }
    });
    let small = (!small.is_empty()).then(|| view! { " " <small>{small}</small> });
    let title = (!hint.is_empty()).then(|| hint.clone());
    let hint = (!hint.is_empty()).then(|| view! { <span class="unseen">{hint}</span> });
    match act {
        None => Either::Left(view! { <span title=title>{text}</span> {small} {hint} {away} }),
        Some(act) => Either::Right(view! {
            <button type="button" class=button title=title on:click=move |_| act.run(())>
                {text}
                {small}
                {hint}
            </button>
        }),
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
