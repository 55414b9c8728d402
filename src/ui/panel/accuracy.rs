//! How right the answer is: what was measured that is like it, and how far off the worst of that was.

use leptos::prelude::*;

use crate::accuracy::{self, RunKind};
use crate::scenario::{AttentionKernel, LossKernel, Method, Precision, Scenario, Sharding, Stack};
use crate::ui::controls::{Cell, Row, Table, columns};
use crate::ui::state::State;
use crate::ui::verdict;
use crate::units::grouped;

/// How many kinds of runs are listed before all are asked for.
const LISTED: usize = 10;

/// The band of the answer, and the measured runs behind it.
#[component]
pub fn Accuracy() -> impl IntoView {
    let state = State::of_page();
    let told = move || {
        let band = state.current().close_look().map(|detail| detail.band);
        let sentences = verdict::known(band.as_ref());
        sentences.into_iter().map(|sentence| view! { <p>{sentence}</p> }).collect::<Vec<_>>()
    };
    let all_like = Memo::new(move |_| state.current().scenario.with(|scenario| like(scenario).len()));
    let open = RwSignal::new(false);
    let like = Signal::derive(move || {
        let mut rows = state.current().scenario.with(like);
        rows.truncate(if open.get() { usize::MAX } else { LISTED });
        rows
    });
    let none = Signal::derive(move || all_like.get() == 0);
    view! {
        <div class="panels">
            <section class="panel prose">
                <h2>"How we know"</h2>
                {told}
            </section>
            <section class="panel" hidden=none>
                <h2>"Measured runs of this family"</h2>
                <Table
                    caption="Measured runs of this family"
                    class="measured"
                    columns=Signal::stored(columns(["Settings", "Runs", "Worst error, allocated", "Worst error, reserved"]))
                    rows=like
                />
                <button
                    type="button"
                    class="explain"
                    hidden=Signal::derive(move || all_like.get() <= LISTED)
                    on:click=move |_| open.update(|open| *open = !*open)
                >
                    {move || {
                        if open.get() {
                            "The closest alone".to_owned()
                        } else {
                            format!("All {} kinds of runs of this family", all_like.get())
                        }
                    }}
                </button>
            </section>
            <section class="panel">
                <h2>"All measured runs"</h2>
                <p class="remark">
                    "Each kind of run (family, method, precision, checkpointing, attention) counts by its worst measured run."
                </p>
                <Table
                    caption="All measured runs by training library"
                    class="measured"
                    columns=Signal::stored(
                        columns(["Training library and loss", "Runs", "Kinds", "Off by 0.1% at most", "Off by 1% at most", "Worst"]),
                    )
                    rows=Signal::stored(all())
                />
            </section>
        </div>
    }
}

fn off(percent: f64) -> String {
    format!("{percent:.2}%")
}

/// Settings as [`accuracy::key`] writes them, in words: `QLoRA · bf16 mixed (bf16 weights) · checkpointing · SDPA (PyTorch chooses)`.
fn settings(slugs: &str) -> String {
    let word = |slug: &str| {
        let label = Method::from_slug(slug).map(Method::label);
        let label = label.or_else(|| Precision::from_slug(slug).map(Precision::label));
        let label = label.or_else(|| AttentionKernel::from_slug(slug).map(AttentionKernel::label));
        match slug {
            "kept" => "no checkpointing".to_owned(),
            "recomputed" => "checkpointing".to_owned(),
            "recomputed-offloaded" => "checkpointing, offloaded to the CPU".to_owned(),
            "packed" => "packed sequences".to_owned(),
            "offloaded" => "activations offloaded".to_owned(),
            "in-backward" => "optimizer in backward".to_owned(),
            other => label.unwrap_or(other).to_owned(),
        }
    };
    slugs.split(' ').map(word).collect::<Vec<_>>().join(" · ")
}

/// The kinds of the scenario's family under its software, its own first, then those of its method.
fn like(scenario: &Scenario) -> Vec<Row> {
    let Ok(architecture) = scenario.architecture() else { return Vec::new() };
    let (own, software) = (accuracy::key(scenario), accuracy::software(scenario));
    let is_like = |kind: &&RunKind| kind.family == architecture.model_type && kind.software == software;
    let mut kinds: Vec<&RunKind> = accuracy::kinds().iter().filter(is_like).collect();
    let method = scenario.method.slug();
    kinds.sort_by_key(|kind| (kind.settings != own, kind.settings.split(' ').next() != Some(method)));
    let row = |kind: &RunKind| Row {
        class: if kind.settings == own { "own" } else { "" },
        head: Cell {
            small: if kind.settings == own { "as here".to_owned() } else { String::new() },
            ..Cell::of(settings(&kind.settings))
        },
        cells: vec![
            Cell::of(grouped(kind.rows)),
            Cell::of(off(kind.worst_percent)),
            Cell::of(kind.worst_reserved_percent.map_or_else(|| "–".to_owned(), off)),
        ],
        ..Row::default()
    };
    kinds.into_iter().map(row).collect()
}

/// Every kind, summed up by software.
fn all() -> Vec<Row> {
    let row = |kinds: &[RunKind]| {
        let within = |most: f64| {
            let count = kinds.iter().filter(|kind| kind.worst_percent <= most).count();
            Cell::of(format!("{:.0}%", count as f64 / kinds.len() as f64 * 100.))
        };
        let worst = kinds.iter().map(|kind| kind.worst_percent).fold(0., f64::max);
        Row {
            head: Cell::of(software(&kinds[0].software)),
            cells: vec![
                Cell::of(grouped(kinds.iter().map(|kind| kind.rows).sum())),
                Cell::of(grouped(kinds.len() as u64)),
                within(0.1),
                within(1.),
                Cell::of(off(worst)),
            ],
            ..Row::default()
        }
    };
    accuracy::kinds().chunk_by(|one, other| one.software == other.software).map(row).collect()
}

/// The name of a library, of the loss where it is not the usual one, and of the engine where there are several GPUs.
fn software(slug: &str) -> String {
    let mut parts = slug.split('+');
    let stack = parts.next().unwrap_or_default();
    let name = Stack::from_slug(stack).map_or(stack, |stack| stack.label());
    let word = |part: &str| {
        let engine = Sharding::from_slug(part).map(|engine| format!("several GPUs under {}", engine.label()));
        let loss = LossKernel::from_slug(part).map(|loss| format!("loss {}", loss.label()));
        format!(", {}", engine.or(loss).unwrap_or_else(|| part.to_owned()))
    };
    parts.map(word).fold(name.to_owned(), |name, word| name + &word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_like_the_scenario_come_first() {
        let rows = like(&Scenario::default());
        assert_eq!(rows[0].head.small, "as here");
        assert_eq!(
            rows[0].head.text,
            "QLoRA · bf16 mixed (bf16 weights) · checkpointing · SDPA (PyTorch chooses)"
        );
        assert!(rows.len() > 5 && rows[1].head.small.is_empty() && rows[1].head.text.starts_with("QLoRA"));
        let words = software("trl+liger+ddp");
        assert_eq!(words, format!("{}, loss Liger fused, several GPUs under DDP", Stack::Trl.label()));
        // slugs become words
        let raw =
            ["kept", "recomputed", "recomputed-offloaded", "in-backward", "sdpa", "amp-bf16", "amp-fp16"];
        let raw: Vec<&str> =
            raw.into_iter().chain(Sharding::ALL.iter().map(|engine| engine.slug())).collect();
        for kind in accuracy::kinds() {
            let told = format!("{} · {}", settings(&kind.settings), software(&kind.software));
            let is_raw = |word: &&str| raw.contains(word) || word.contains("amp-bf16");
            assert_eq!(told.split([' ', ',', '·']).find(is_raw), None, "{told}");
        }
        let rows = all();
        assert!(rows.len() > 5 && rows.iter().any(|row| row.head.text.contains("transformers")));
    }
}
