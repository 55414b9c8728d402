//! Tables: aligned columns for the terminal, sorted by any of them, or as comma-separated values.

use clap::Args;

use crate::export::{comma_separated, no_formula};
use crate::plan::Verdict;
use crate::text::{one_line, short};
use crate::units::{Bytes, grouped};

/// How a subcommand's table is wanted.
#[derive(Args)]
pub(super) struct Listing {
    /// Sort the table by the column of that name, what is least first; with .down behind it what is most
    #[arg(long, value_name = "COLUMN", conflicts_with = "json")]
    sort: Option<String>,
    /// Print the table alone, as comma-separated values: plain numbers, whose units are in the names of the columns
    #[arg(long, conflicts_with = "json")]
    csv: bool,
}

impl Listing {
    /// Whether the table stands alone, and has to hold what else is said beside it.
    pub fn is_csv(&self) -> bool {
        self.csv
    }

    /// The table as it is wanted: sorted, alone as comma-separated values, or with what `text` puts around it.
    ///
    /// # Errors
    /// A sentence that names the columns where none is called as the one to sort by.
    pub fn of(&self, mut table: Table, text: impl FnOnce(Table) -> String) -> Result<String, String> {
        if let Some(asked) = &self.sort {
            table.sort(asked)?;
        }
        Ok(if self.csv { table.csv() } else { text(table) })
    }
}

/// A column.
pub(super) struct Column {
    /// What it is sorted by, and its head where nothing else stands there.
    name: String,
    head: Option<String>,
    /// The names of the columns of plain values that it is in CSV.
    values: Vec<String>,
}

impl Column {
    /// A column of words.
    pub fn words(name: &str) -> Column {
        Column::of(name, &[""])
    }

    /// A column whose values in CSV are called by its name with these endings.
    pub fn of(name: &str, endings: &[&str]) -> Column {
        let values = endings.iter().map(|ending| format!("{name}{ending}")).collect();
        Column { name: name.to_owned(), head: None, values }
    }

    /// The same with other words above it.
    pub fn under(self, head: String) -> Column {
        Column { head: Some(head), ..self }
    }
}

/// A cell.
pub(super) struct Cell {
    text: String,
    /// What its column is sorted by where that is not what it says.
    amount: Option<f64>,
    /// As many plain values as its column has names for.
    values: Vec<String>,
}

impl Cell {
    /// Words.
    pub fn words(text: impl Into<String>) -> Cell {
        let text = text.into();
        Cell { values: vec![no_formula(&one_line(&text))], amount: None, text }
    }

    /// The same, sorted by an amount.
    pub fn by(self, amount: f64) -> Cell {
        Cell { amount: Some(amount), ..self }
    }

    /// A verdict, the best first; nothing where there is none.
    pub fn verdict(verdict: impl Into<Option<Verdict>>) -> Cell {
        match verdict.into() {
            Some(verdict) => Cell::words(verdict.label().to_lowercase()).by(f64::from(verdict as u8)),
            None => Cell::words(""),
        }
    }

    /// Nothing to say, as `text` puts it.
    pub fn none(text: &str) -> Cell {
        Cell { text: text.to_owned(), amount: None, values: Vec::new() }
    }

    /// A number of things.
    pub fn count(count: u64) -> Cell {
        Cell::amount(grouped(count), count as f64, [count.to_string()])
    }

    /// Bytes.
    pub fn bytes(bytes: Bytes) -> Cell {
        Cell::amount(bytes.to_string(), bytes.0 as f64, [bytes.0.to_string()])
    }

    /// What is sorted by an amount, with its plain values.
    pub fn amount(
        text: impl Into<String>,
        amount: impl Into<Option<f64>>,
        values: impl Into<Vec<String>>,
    ) -> Cell {
        Cell { text: text.into(), amount: amount.into(), values: values.into() }
    }
}

/// A row; lines of words alone may stand under it.
pub(super) struct Row {
    pub cells: Vec<Cell>,
    pub below: Vec<String>,
}

impl From<Vec<Cell>> for Row {
    fn from(cells: Vec<Cell>) -> Row {
        Row { cells, below: Vec::new() }
    }
}

/// Columns and rows.
pub(super) struct Table {
    columns: Vec<Column>,
    rows: Vec<Row>,
}

impl Table {
    /// A table of rows in the order that they were found in.
    pub fn new<R: Into<Row>>(
        columns: impl IntoIterator<Item = Column>,
        rows: impl IntoIterator<Item = R>,
    ) -> Table {
        Table { columns: columns.into_iter().collect(), rows: rows.into_iter().map(Into::into).collect() }
    }

    /// Whether it has no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Its first rows.
    pub fn first(mut self, most: usize) -> Table {
        self.rows.truncate(most);
        self
    }

    /// Sorts by a column; cells without an amount come last where others have one.
    fn sort(&mut self, asked: &str) -> Result<(), String> {
        let (name, falling) = match asked.strip_suffix(".down") {
            Some(name) => (name, true),
            None => (asked, false),
        };
        let wanted = name.trim().to_lowercase();
        let names = || self.columns.iter().map(|column| column.name.to_lowercase());
        let mut alike = names().enumerate().filter(|(_, own)| own.starts_with(&wanted));
        let exact = names().position(|own| own == wanted);
        let only = alike.next().filter(|_| !wanted.is_empty() && alike.next().is_none());
        let column = exact.or(only.map(|(column, _)| column)).ok_or_else(|| {
            let names: Vec<&str> = self.columns.iter().map(|column| column.name.as_str()).collect();
            format!("no column is called {:?}: --sort takes one of {}", short(name), names.join(", "))
        })?;
        let amount = |row: &Row| row.cells.get(column).and_then(|cell| cell.amount);
        let words = |row: &Row| row.cells.get(column).map(|cell| cell.text.to_lowercase());
        let has_amounts = self.rows.iter().any(|row| amount(row).is_some());
        self.rows.sort_by(|one, other| {
            let order = match (amount(one), amount(other)) {
                (Some(one), Some(other)) => one.total_cmp(&other),
                (one, other) if has_amounts => return other.is_some().cmp(&one.is_some()),
                _ => words(one).cmp(&words(other)),
            };
            if falling { order.reverse() } else { order }
        });
        Ok(())
    }

    /// The table as comma-separated values; what stands below a row is joined to its name.
    fn csv(&self) -> String {
        let names = self.columns.iter().flat_map(|column| column.values.iter().cloned());
        let line = |row: &Row| {
            let values = self.columns.iter().enumerate().flat_map(|(index, column)| {
                let own = row.cells.get(index).map(|cell| cell.values.clone()).unwrap_or_default();
                let mut own = own.into_iter();
                column.values.iter().map(move |_| own.next().unwrap_or_default()).collect::<Vec<_>>()
            });
            let mut values: Vec<String> = values.collect();
            if let Some(first) = values.first_mut() {
                row.below.iter().for_each(|below| first.push_str(&format!(", {}", one_line(below.trim()))));
            }
            comma_separated(values)
        };
        comma_separated(names) + &self.rows.iter().map(line).collect::<String>()
    }

    /// The table in aligned columns.
    pub fn text(&self) -> String {
        let heads = self.columns.iter().map(|column| column.head.as_ref().unwrap_or(&column.name).clone());
        let mut lines = vec![heads.collect::<Vec<String>>()];
        for row in &self.rows {
            lines.push(row.cells.iter().map(|cell| cell.text.clone()).collect());
            lines.extend(row.below.iter().map(|below| vec![below.clone()]));
        }
        aligned(&lines)
    }
}

/// Writes rows in columns that are two spaces apart: the first to the left, the others to the right. A row is one line.
pub(super) fn aligned(rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(|cell| one_line(cell)).collect()).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..columns).map(width).collect();
    let mut out = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| match column {
            0 => format!("{cell:width$}"),
            _ => format!("  {cell:>width$}"),
        });
        out.push_str(cells.collect::<String>().trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [vec!["model".to_owned(), "full".to_owned()], vec!["a".to_owned(), "12".to_owned()]];
        assert_eq!(aligned(&rows), "model  full\na        12\n");
        assert_eq!(aligned(&[]), "");
    }

    fn table() -> Table {
        let row = |name: &str, needed: Cell| Row::from(vec![Cell::words(name), needed]);
        let with =
            Row { below: vec!["  with c, \"d\"".to_owned()], ..row("=b", Cell::bytes(Bytes::gib(10.))) };
        let columns =
            [Column::words("Change").under("Change of 24 GB".to_owned()), Column::of("Needs", &[" (bytes)"])];
        let rows = [with, row("C", Cell::none("no answer")), row("a", Cell::bytes(Bytes::gib(9.)))];
        Table::new(columns, rows)
    }

    #[test]
    fn what_stands_under_a_row_goes_with_it() {
        let text = "Change of 24 GB      Needs\n=b                10.0 GiB\n  with c, \"d\"\nC                no answer\na                 9.00 GiB\n";
        assert_eq!(table().text(), text);
        assert_eq!(
            table().csv(),
            "Change,Needs (bytes)\r\n\"'=b, with c, \"\"d\"\"\",10737418240\r\nC,\r\na,9663676416\r\n"
        );
    }

    #[test]
    fn rows_are_sorted_by_amounts_or_words_and_those_without_come_last() {
        let sorted = |asked: &str| {
            let mut table = table();
            table.sort(asked).map(|()| {
                table.rows.iter().map(|row| row.cells[0].text.as_str()).collect::<Vec<_>>().join(" ")
            })
        };
        for (asked, rows) in
            [("Needs", "a =b C"), ("needs.down", "=b a C"), ("change", "=b a C"), ("CH.down", "C a =b")]
        {
            assert_eq!(sorted(asked).as_deref(), Ok(rows), "{asked}");
        }
        for unknown in ["", ".down", "verdict", "2"] {
            let told = sorted(unknown).unwrap_err();
            assert!(told.ends_with("--sort takes one of Change, Needs"), "{unknown}: {told}");
        }
    }
}
