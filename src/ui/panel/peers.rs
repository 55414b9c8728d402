//! Other calculators over the same published figures.

use std::sync::Arc;

use leptos::prelude::*;

use crate::check::Run;
use crate::ui::controls::{Cell, Row, Table};
use crate::ui::proof::{FIELDS, PEERS, Peer};

/// Headroom beside other calculators, over the same sources.
#[component]
pub fn Peers(
    /// All runs.
    runs: StoredValue<Arc<Vec<Run>>>,
) -> impl IntoView {
    let names = ["Published figures", "Headroom"].into_iter().chain(PEERS.iter().map(|peer| peer.name));
    let columns: Vec<String> = names.map(str::to_owned).collect();
    let rows = runs.with_value(|runs| {
        FIELDS
            .iter()
            .map(|field| {
                let own = field.own(runs);
                let of = |median: &Option<f64>| {
                    Cell::of(median.map_or("–".to_owned(), |median| format!("{median:.1}%")))
                };
                let ours = Cell {
                    small: format!("{} rows", own.count),
                    class: "own",
                    ..Cell::of(format!("{:.1}%", own.median_pct))
                };
                Row {
                    head: Cell {
                        small: format!("{} rows", field.rows),
                        href: field.address(),
                        ..Cell::of(field.name)
                    },
                    cells: [ours].into_iter().chain(field.medians.iter().map(of)).collect(),
                    ..Row::default()
                }
            })
            .collect::<Vec<_>>()
    });
    let link = |peer: &'static Peer| view! { <a href=peer.code target="_blank" rel="noreferrer">{peer.name}</a> " " };
    view! {
        <section class="panel wide">
            <h2>"Beside other calculators"</h2>
            <p class="remark">
                "Median error over what other projects published. The formulas of the others were run over the rows that they can be asked, Headroom \
                 over those that say enough to be run again: of some sources these are more. fitcheck was fitted to most of its own rows. A dash: it cannot be asked."
            </p>
            <Table
                caption="Median error by calculator"
                class="measured peers"
                columns=Signal::stored(columns)
                rows=Signal::stored(rows)
            />
            <p class="remark peers-code">"Their code: " {PEERS.iter().map(link).collect::<Vec<_>>()}</p>
        </section>
    }
}
