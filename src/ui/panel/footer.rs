//! The bottom of the page.

use leptos::prelude::*;

use super::configure::changed;
use super::document::Document;
use crate::scenario::Scenario;
use crate::ui::browser;
use crate::ui::controls::explained;
use crate::ui::state::{State, letter};
use crate::ui::summary;

/// What is estimated.
const ESTIMATES: &str = "It estimates fine-tuning, classification, embeddings, training on preferences (DPO, KTO, ORPO, CPO, SimPO), of reward models and on rewards (GRPO, RLOO), distillation and generation, with PyTorch and the \
                         software that is chosen. Figures are per GPU: of one, or of several under DDP, FSDP2, ZeRO or Megatron-core. What a card needs is \
                         what the allocator hands out plus the CUDA context; memory PyTorch reserves beyond that is listed separately.";

/// What a sheet of paper needs that the screen shows otherwise: every scenario with the settings that are not at their default, and the
/// address that opens them. Written when it is printed.
#[component]
pub fn Paper() -> impl IntoView {
    let state = State::of_page();
    let printed = RwSignal::new(false);
    Effect::new(move || {
        for (event, now) in [("beforeprint", true), ("afterprint", false)] {
            let listener = window_event_listener_untyped(event, move |_| printed.set(now));
            on_cleanup(move || listener.remove());
        }
    });
    let one = move |(position, scenario): (usize, Scenario)| {
        let which = if state.alone() { String::new() } else { format!("{}: ", letter(position)) };
        view! { <p>{which} <b>{summary::caption(&scenario, state.unit())}</b> ". " {settings(&scenario)}</p> }
    };
    let sheet = move || {
        printed.get().then(|| {
            let scenarios =
                untrack(|| state.scenarios().into_iter().enumerate().map(one).collect::<Vec<_>>());
            view! {
                {scenarios}
                <p>{browser::address()}</p>
            }
        })
    };
    view! { <section class="on-paper" aria-label="On paper">{sheet}</section> }
}

/// Every setting that is not at its default: `Training library: trl 1.16; everything else at its default.`
fn settings(scenario: &Scenario) -> String {
    let own = changed(scenario).into_iter();
    let own = own.map(|key| format!("{}: {}", key.label_for(scenario), key.words(scenario)));
    own.chain(["everything else at its default.".to_owned()]).collect::<Vec<_>>().join("; ")
}

/// What one should know about the page.
#[component]
pub fn Footer() -> impl IntoView {
    let state = State::of_page();
    view! {
        <Paper />
        <footer class="page-footer">
            <p>
                <strong>"Runs entirely in your browser; nothing is sent."</strong>
                " One training step is executed symbolically, tensor by tensor, without data. What you choose stands in \
                 the address behind #, which browsers keep to themselves. A config.json is fetched from the Hub when you \
                 ask for it."
            </p>
            <p>
                {explained("footer", ESTIMATES)}
            </p>
            <p>
                <Document at="index.html" text="All documents" />
                " "
                <button type="button" class="explain" on:click=move |_| state.keys.set(true)>
                    "Keys"
                </button>
            </p>
        </footer>
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::share;

    #[test]
    fn a_sheet_says_what_is_not_at_its_default() {
        let of = |link: &str| settings(&share::decode(link).scenarios[0]);
        assert_eq!(of("v=1&b=4"), "everything else at its default.");
        let told = of("v=1&o=sgd");
        assert!(
            told.starts_with("Optimizer: SGD") && told.ends_with("; everything else at its default."),
            "{told}"
        );
    }
}
