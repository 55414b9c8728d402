//! Other calculators over the same published figures.

use std::sync::Arc;

use leptos::prelude::*;

use crate::check::Run;
use crate::ui::controls::{Cell, Row, Table};
use crate::ui::proof::{Peer, fields, peers};

/// Headroom beside other calculators, over the same sources.
#[component]
pub fn Peers(
    /// All runs.
    runs: StoredValue<Arc<Vec<Run>>>,
) -> impl IntoView {
    let names =
        ["Published figures", "Headroom"].into_iter().chain(peers().into_iter().map(|peer| peer.name));
    let columns: Vec<String> = names.map(str::to_owned).collect();
    let rows = runs.with_value(|runs| {
        fields()
            .iter()
            .map(|field| {
                let own = field.own(runs);
                let of = |median: &Option<f64>| {
                    Cell::of(median.map_or("–".to_owned(), |median| format!("{median:.1}%")))
                };
                let ours = match own.count {
                    0 => Cell { small: "none is expressed".to_owned(), class: "own", ..Cell::of("–") },
                    count => Cell {
                        small: format!("{count} rows"),
                        class: "own",
                        ..Cell::of(format!("{:.1}%", own.median_pct))
                    },
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
    let link = |peer: Peer| view! { <a href=peer.code target="_blank" rel="noreferrer">{peer.name}</a> " " };
    view! {
        <section class="panel wide">
            <h2>"Beside other calculators"</h2>
            <p class="remark">
                "Median error over what other projects published, of one GPU and of the families whose dimensions the others were given. Theirs are quoted: their \
                 formulas were run once, and which rows they were run over was not kept. Headroom’s is computed over the rows of the same source, method, figure and families that say \
                 enough to be run again, so the two sets are not the same: compare the numbers of rows. fitcheck was fitted to most of its own rows. A dash: it cannot be asked."
            </p>
            <Table
                caption="Median error by calculator"
                class="measured peers"
                columns=Signal::stored(columns)
                rows=Signal::stored(rows)
            />
            <p class="remark peers-code">"Their code: " {peers().into_iter().map(link).collect::<Vec<_>>()}</p>
        </section>
    }
}
