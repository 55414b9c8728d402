//! A number: a slider for its usual values and a box for any other, in one control.

use leptos::ev::KeyboardEvent;
use leptos::prelude::*;

use super::field::{Field, Messages};
use crate::scenario::{Field as Place, Issue};
use crate::ui::format::number;
use crate::ui::scale::Scale;

/// A labelled number with slider and box.
///
/// What stands in the box is never overwritten while it has the focus; what it cannot read leaves the last good value
/// and says so.
#[component]
pub fn Slider(
    /// The id of the box.
    id: &'static str,
    /// The accessible name of both.
    label: &'static str,
    /// One sentence on it.
    help: &'static str,
    /// The values it can take.
    scale: &'static Scale,
    /// The value.
    value: Signal<f64>,
    /// Changes it.
    set: Callback<f64>,
    /// What is wrong with the value.
    messages: Messages,
    /// What stands behind the box: `GiB`.
    #[prop(optional)]
    unit: &'static str,
) -> impl IntoView {
    // What is being typed, while the box has the focus.
    let typed = RwSignal::new(None::<String>);
    let complaint = RwSignal::new(None::<String>);
    let nearest = Memo::new(move |_| scale.nearest(value.get()));
    let last = scale.stops.len().saturating_sub(1);

    let take = move |new: f64| {
        complaint.set(None);
        set.run(new);
    };
    let slide = move |event: leptos::ev::Event| {
        if let Ok(index) = event_target_value(&event).parse::<usize>() {
            take(scale.at(index));
        }
    };
    let write = move |event: leptos::ev::Event| {
        let text = event_target_value(&event);
        match scale.read(&text) {
            Ok(new) => take(new),
            Err(wanted) => complaint.set(Some(wanted)),
        }
        typed.set(Some(text));
    };
    let press = move |event: KeyboardEvent| {
        let up = match event.key().as_str() {
            "ArrowUp" => true,
            "ArrowDown" => false,
            "Enter" => return typed.set(Some(number(value.get_untracked()))),
            _ => return,
        };
        event.prevent_default();
        take(scale.step(value.get_untracked(), up));
        typed.set(Some(number(value.get_untracked())));
    };
    let shown = move || typed.get().unwrap_or_else(|| number(value.get()));
    let fill = move || format!("{}%", nearest.get() as f64 / last.max(1) as f64 * 100.);
    let problems = Signal::derive(move || {
        let kept = complaint.get().map(|wanted| {
            // Which field it is does not matter here: this control shows it.
            Issue::error(Place::Link, wanted)
                .with_fix(format!("still computing with {}", number(value.get())))
        });
        kept.into_iter().chain(messages.get()).collect::<Vec<_>>()
    });
    let spoken = move || scale.spoken(value.get());
    let suffix = (!unit.is_empty()).then(|| view! { <span class="unit" aria-hidden="true">{unit}</span> });
    view! {
        <Field id=id label=label help=vec![("", help)] messages=problems>
            <input
                type="range"
                aria-label=label
                min="0"
                max=last
                step="1"
                prop:value=move || nearest.get().to_string()
                aria-valuetext=spoken
                style:--fill=fill
                on:input=slide
            />
            <input
                type="text"
                id=id
                class="number"
                role="spinbutton"
                inputmode=if scale.whole { "numeric" } else { "decimal" }
                autocomplete="off"
                spellcheck="false"
                prop:value=shown
                aria-valuenow=move || number(value.get())
                aria-valuetext=spoken
                aria-valuemin=number(scale.least)
                aria-valuemax=number(scale.most)
                aria-invalid=move || complaint.with(Option::is_some).to_string()
                aria-describedby=format!("{id}-messages")
                on:focus=move |_| typed.set(Some(number(value.get_untracked())))
                on:blur=move |_| typed.set(None)
                on:input=write
                on:keydown=press
            />
            {suffix}
        </Field>
    }
    .into_any()
}
