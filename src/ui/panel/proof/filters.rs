//! Which measured runs are looked at.

use std::sync::Arc;

use leptos::ev::Event;
use leptos::prelude::*;

use crate::check::{MISS_PERCENT, Metric, Run};
use crate::ui::proof::{Filter, Kind, metric, settings, software, values};
use crate::ui::state::State;
use crate::units::grouped;

/// A change of the filter.
pub(super) type Change = Box<dyn FnOnce(&mut Filter) + Send>;

/// What is looked at.
#[component]
pub(super) fn Filters(
    /// All runs.
    runs: StoredValue<Arc<Vec<Run>>>,
    /// The filter.
    filter: RwSignal<Filter>,
    /// Changes it.
    change: Callback<Change>,
) -> impl IntoView {
    let list = move |first: &str, of: fn(&Run) -> &str, words: fn(&str) -> String| {
        let all = [(String::new(), first.to_owned())];
        let found = runs.with_value(|runs| {
            values(runs, of).into_iter().map(|value| (value.to_owned(), words(value))).collect::<Vec<_>>()
        });
        all.into_iter().chain(found).collect::<Vec<_>>()
    };
    let metrics = Metric::ALL.map(|one| (one.slug().to_owned(), metric(one).to_owned())).into();
    let devices = list("All devices", Run::ran_on, device);
    let files = list("All files", |run| &run.file, |file| format!("{file}.json"));
    let stacks = list("All libraries", |run| &run.software, software);
    let methods = list("All methods", Run::method, settings);
    let families = list("All families", |run| &run.family, str::to_owned);
    let field = move |id, label, choices, set: fn(&mut Filter, String)| {
        drop_down(
            id,
            label,
            choices,
            Callback::new(move |value| change.run(Box::new(move |filter| set(filter, value)))),
        )
    };
    let state = State::of_page();
    // while an answer is awaited that of before stands
    let kind = Memo::new(move |before: Option<&Option<(Kind, u64)>>| {
        let Some(detail) = state.current().close_look() else { return before.cloned().flatten() };
        let band = detail.measured_error()?;
        Some((Kind::of(&detail.scenario, &band)?, band.rows))
    });
    let only_kind = RwSignal::new(false);
    // of another answer the runs are others
    Effect::new(move || {
        let chosen = kind.get().filter(|_| only_kind.get()).map(|(kind, _)| kind);
        if filter.with_untracked(|filter| filter.kind != chosen) {
            change.run(Box::new(move |filter| filter.kind = chosen));
        }
    });
    view! {
        <div class="filters" role="group" aria-label="Which runs">
            {field("proof-metric", "What was measured", metrics, |filter, slug| {
                filter.metric = Metric::ALL.into_iter().find(|metric| metric.slug() == slug).unwrap_or(filter.metric);
            })}
            {field("proof-device", "Measured on", devices, |filter, slug| filter.device = slug)}
            {field("proof-file", "File", files, |filter, file| filter.file = file)}
            {field("proof-software", "Training library", stacks, |filter, slug| filter.software = slug)}
            {field("proof-method", "Method of the run", methods, |filter, slug| filter.method = slug)}
            {field("proof-family", "Family", families, |filter, family| filter.family = family)}
            <label class="only-misses" hidden=Signal::derive(move || kind.with(Option::is_none))>
                <input
                    type="checkbox"
                    prop:checked=only_kind
                    on:change=move |event: Event| only_kind.set(event_target_checked(&event))
                />
                {move || {
                    let runs = kind.with(|kind| kind.as_ref().map_or(0, |(_, runs)| *runs));
                    format!("Only those behind this answer’s error: {} runs", grouped(runs))
                }}
            </label>
            <label class="only-misses">
                <input
                    type="checkbox"
                    prop:checked=Signal::derive(move || filter.with(|filter| filter.misses))
                    on:change=move |event: Event| {
                        let misses = event_target_checked(&event);
                        change.run(Box::new(move |filter| filter.misses = misses));
                    }
                />
                {format!("Only misses: off by {MISS_PERCENT} % or more")}
            </label>
        </div>
    }
}

/// What runs ran on, in words.
fn device(slug: &str) -> String {
    if slug == "card" { "Real GPUs" } else { "The null device" }.to_owned()
}

/// A labelled list to choose from: values and words. The first is chosen.
fn drop_down(
    id: &'static str,
    label: &'static str,
    choices: Vec<(String, String)>,
    choose: Callback<String>,
) -> AnyView {
    let option = |(value, words): (String, String)| view! { <option value=value>{words}</option> };
    let options: Vec<_> = choices.into_iter().map(option).collect();
    view! {
        <div>
            <label for=id>{label}</label>
            <select id=id on:change=move |event: Event| choose.run(event_target_value(&event))>
                {options}
            </select>
        </div>
    }
    .into_any()
}
