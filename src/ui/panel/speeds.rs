//! Every published speed beside the predicted one, fetched where the view is opened.

use std::sync::Arc;

use leptos::prelude::*;
use leptos::task::spawn_local;

use super::document::{Document, SPEEDS};
use crate::check::{Speed, read_speeds};
use crate::export::tokens_per_second;
use crate::scenario::Scenario;
use crate::ui::browser;
use crate::ui::controls::{Cell, Row, Table, columns, explained};
use crate::ui::proof::signed;
use crate::ui::state::State;
use crate::units::grouped;

/// The file of the speeds, beside the page.
const FILE: &str = "speeds.tsv";

/// How many rows are listed before all are asked for.
const LISTED: usize = 10;

/// The speeds as soon as they are here: those on the scenario's card first, and those that are furthest off.
#[component]
pub fn Speeds() -> impl IntoView {
    let state = State::of_page();
    let known = RwSignal::new(None::<Result<Arc<Vec<Speed>>, ()>>);
    spawn_local(async move {
        let found = browser::fetch(FILE).await.map(|text| Arc::new(read_speeds(&text)));
        // the view may be gone by now
        known.try_set(Some(found.map_err(drop)));
    });
    let told = move || match known.get() {
        None => "Fetching the speeds …".to_owned(),
        Some(Err(())) => "The file with the speeds did not come.".to_owned(),
        Some(Ok(speeds)) => gist(&speeds),
    };
    let card = Memo::new(move |_| {
        let slug = |scenario: &Scenario| scenario.gpu().map(|gpu| gpu.slug.to_string()).unwrap_or_default();
        state.current().scenario.with(slug)
    });
    let listed = Signal::derive(move || match known.get() {
        Some(Ok(speeds)) => rows(&speeds, &card.get()),
        None | Some(Err(())) => Vec::new(),
    });
    view! {
        <section class="panel wide" aria-labelledby=SPEEDS>
            <h2 id=SPEEDS>"Every published speed"</h2>
            <p class="remark">{move || explained("speeds", &told())}</p>
            <div hidden=move || listed.with(Vec::is_empty)>
                <Table
                    caption="Published speeds, those on this card first, then those furthest off"
                    class="measured runs"
                    columns=Signal::stored(columns(["Run", "Measured", "Predicted", "Time off by", "Where"]))
                    rows=listed
                    first=(LISTED, "speeds")
                />
                <p class="tools-row">
                    <Document at="time.html#how-right-it-is" text="What speeds rest on, and how right they are" />
                    <a class="explain" href=FILE download="headroom-speeds.tsv">
                        "Download the speeds (tab-separated)"
                    </a>
                </p>
            </div>
        </section>
    }
}

/// How far off those are that nothing was derived from.
fn gist(speeds: &[Speed]) -> String {
    let errors = Speed::errors(speeds);
    format!(
        "Of {} published speeds of training that nothing was derived from, the time of a step is off by {:.1} % in the median and at most {:.0} % for \
         nine of ten; {:.0} % lie in the range that is said.",
        grouped(errors.count as u64),
        errors.median_pct,
        errors.p90_pct,
        errors.covered_pct
    )
}

/// Those on that card first, and those that are furthest off.
fn rows(speeds: &[Speed], card: &str) -> Vec<Row> {
    let mut speeds: Vec<&Speed> = speeds.iter().collect();
    speeds.sort_by(|one, other| other.error_pct().abs().total_cmp(&one.error_pct().abs()));
    speeds.sort_by_key(|speed| speed.gpu != card);
    speeds.into_iter().map(row).collect()
}

fn row(speed: &Speed) -> Row {
    let [typical, between] = tokens_per_second(speed.predicted);
    let used = if speed.kept { "kept for checking" } else { "cards’ figures rest on it" };
    let compiled = if speed.compiled { ", compiled" } else { "" };
    let beside = if speed.is_covered() { "in the range" } else { "outside the range" };
    Row {
        head: Cell { small: format!("{used}{compiled}"), ..Cell::of(&speed.id) },
        cells: vec![
            Cell::of(format!("{} tokens/s", grouped(speed.measured.round() as u64))),
            Cell { small: between, ..Cell::of(typical) },
            Cell {
                small: beside.to_owned(),
                class: if speed.is_covered() { "" } else { "miss" },
                ..Cell::of(signed(speed.error_pct()))
            },
            Cell { class: "origin", href: speed.source.clone(), ..Cell::of(&speed.gpu) },
        ],
        ..Row::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_speeds_that_are_shown_begin_with_the_worst() {
        let speeds = read_speeds(include_str!("../../../data/speeds.tsv"));
        let on_a100 = rows(&speeds, "a100-sxm-80gb");
        assert_eq!(on_a100[0].cells[3].text, "a100-sxm-80gb");
        let rows = rows(&speeds, "");
        let worst = speeds.iter().map(|speed| speed.error_pct().abs()).fold(0., f64::max);
        assert!(rows[0].cells[2].text.ends_with(&format!("{worst:.2} %")), "{}", rows[0].cells[2].text);
        assert!(rows.iter().all(|row| row.cells[3].href.starts_with("https://github.com/")));
        let kept = speeds.iter().filter(|speed| speed.kept && !speed.generates).count();
        assert!(gist(&speeds).starts_with(&format!("Of {kept} published speeds")), "{}", gist(&speeds));
    }
}
