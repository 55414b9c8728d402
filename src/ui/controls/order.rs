//! By which column a table is sorted, and what the table is called in links and files.

use std::fmt;
use std::str::FromStr;

use leptos::prelude::*;

use super::table::{Cell, Row};

/// A table that is sorted by its columns, told in links and offered as a file.
#[derive(Clone, Copy)]
pub struct Listing {
    /// What links and files call it.
    pub name: &'static str,
    /// How it is sorted; as it was found where nobody sorts it.
    pub order: RwSignal<Option<Order>>,
}

/// A column, counted from zero, and its direction. In links `2` or `2.down`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// The column.
    pub column: usize,
    /// Whether what is most comes first.
    pub falling: bool,
}

impl Order {
    /// The order after a click on a column: what is looked for first, then the other way round, then as it was found. `most_first` says
    /// that the most is looked for.
    pub fn clicked(now: Option<Order>, column: usize, most_first: bool) -> Option<Order> {
        match now {
            Some(Order { column: own, falling }) if own == column => {
                (falling == most_first).then_some(Order { column, falling: !falling })
            }
            _ => Some(Order { column, falling: most_first }),
        }
    }

    /// Whether the most of a column is looked for.
    pub fn starts_falling(rows: &[Row], column: usize) -> bool {
        let order = Order { column, falling: false };
        rows.iter().any(|row| order.cell(row).is_some_and(|cell| cell.most_first))
    }

    /// What `aria-sort` says of a column.
    pub fn spoken(now: Option<Order>, column: usize) -> &'static str {
        match now {
            Some(Order { column: own, falling }) if own == column => {
                if falling {
                    "descending"
                } else {
                    "ascending"
                }
            }
            _ => "none",
        }
    }

    /// Sorts by the column's amounts, by its words where it has none. Cells without an amount come last either way.
    pub fn sort(self, rows: &mut [Row]) {
        let amount = |row: &Row| self.cell(row).and_then(|cell| cell.sorted_as);
        let words = |row: &Row| self.cell(row).map(|cell| cell.text.to_lowercase());
        let has_amounts = rows.iter().any(|row| amount(row).is_some());
        rows.sort_by(|one, other| {
            let order = match (amount(one), amount(other)) {
                (Some(one), Some(other)) => one.total_cmp(&other),
                (one, other) if has_amounts => return other.is_some().cmp(&one.is_some()),
                _ => words(one).cmp(&words(other)),
            };
            if self.falling { order.reverse() } else { order }
        });
    }

    fn cell(self, row: &Row) -> Option<&Cell> {
        std::iter::once(&row.head).chain(&row.cells).nth(self.column)
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}{}", self.column, if self.falling { ".down" } else { "" })
    }
}

impl FromStr for Order {
    type Err = ();

    fn from_str(said: &str) -> Result<Order, ()> {
        let (column, falling) = match said.strip_suffix(".down") {
            Some(column) => (column, true),
            None => (said, false),
        };
        Ok(Order { column: column.parse().map_err(|_| ())?, falling })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(order: &str) -> String {
        let row = |name: &str, amount: Option<f64>| Row {
            head: Cell::of(name),
            cells: vec![Cell { sorted_as: amount, ..Cell::default() }],
            ..Row::default()
        };
        let mut rows = [row("b", Some(10.)), row("C", None), row("a", Some(9.)), row("d", Some(-1.))];
        order.parse::<Order>().expect("an order").sort(&mut rows);
        rows.iter().map(|row| row.head.text.as_str()).collect()
    }

    #[test]
    fn rows_are_sorted_by_amounts_or_words_and_those_without_come_last() {
        assert_eq!(["1", "1.down", "0", "0.down"].map(sorted), ["dabC", "badC", "abCd", "dCba"]);
        // a column that is not there changes nothing
        assert_eq!(sorted("7"), "bCad");
    }

    #[test]
    fn three_clicks_lead_back() {
        let clicks = |most_first| {
            let mut now = None;
            [(); 3].map(|()| {
                now = Order::clicked(now, 2, most_first);
                (now.map(|order| order.to_string()), Order::spoken(now, 2), Order::spoken(now, 1))
            })
        };
        let said = |order: &str| Some(order.to_owned());
        let (up, down) = ((said("2"), "ascending", "none"), (said("2.down"), "descending", "none"));
        let none = (None, "none", "none");
        assert_eq!(clicks(false), [up.clone(), down.clone(), none.clone()]);
        assert_eq!(clicks(true), [down, up, none]);
        let other = Some(Order { column: 1, falling: true });
        assert_eq!(Order::clicked(other, 2, false), "2".parse().ok());
        assert!(["", "x", "-1", "1.up", ".down"].iter().all(|said| said.parse::<Order>().is_err()));
    }

    #[test]
    fn the_most_comes_first_where_more_is_better() {
        let row = |cells: Vec<Cell>| Row { head: Cell::of("a"), cells, ..Row::default() };
        let rows = [
            row(vec![Cell::amount("9 GiB", 9.), Cell::of("–")]),
            row(vec![Cell::amount("8 GiB", 8.), Cell::gain("batch 4", 4.)]),
        ];
        assert_eq!(
            [0, 1, 2, 3].map(|column| Order::starts_falling(&rows, column)),
            [false, false, true, false]
        );
    }
}
