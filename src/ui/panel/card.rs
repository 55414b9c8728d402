//! What the run does on the card: what the allocator reserves, what `nvidia-smi` shows, and how sure that is.

use leptos::prelude::*;

use crate::accuracy::{Band, Basis};
use crate::plan::Outcome;
use crate::ui::depth::{Depth, Shown};
use crate::ui::format::{Unit, exact};
use crate::ui::state::State;

/// A line under the verdict; empty while the figures change.
#[component]
pub fn OnCard() -> impl IntoView {
    let state = State::of_page();
    let shown = Shown::of_page();
    let body = move || shown.read(|depth| told(depth, state.unit.get()));
    view! { <p class="on-card">{body}</p> }.into_any()
}

fn told(depth: &Depth, unit: Unit) -> impl IntoView + use<> {
    let on_card = depth.on_card;
    let reserved = unit.amount(on_card.reserved);
    let (class, outcome) = match on_card.outcome {
        Outcome::Runs => {
            ("runs", format!("PyTorch reserves {reserved}, nvidia-smi shows {}", unit.amount(on_card.shown)))
        }
        Outcome::RunsExpandable => (
            "tight",
            "Tight: the tensors fit, the holes between them do not. It runs with \
             PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
                .to_owned(),
        ),
        Outcome::Fails(failure) => (
            "fails",
            format!(
                "Out of memory in the {}: {} more is asked for with {reserved} reserved",
                failure.phase.map_or("loading of the model", |phase| phase.label()),
                unit.amount(failure.requested)
            ),
        ),
    };
    view! {
        <span class=class title=exact(on_card.reserved)>{outcome}</span>
        <span class="band" title=basis(depth.band)>{format!("±{:.1}% of what is allocated", depth.band.percent)}</span>
    }
}

/// What the band rests on, in a sentence.
fn basis(band: Band) -> String {
    let rows = band.rows;
    let kind = match band.basis {
        Basis::SameKind => "measured runs of this family, method, precision and attention",
        Basis::SameFamily => "measured runs of this family under other settings",
        Basis::OtherFamilies => "measured runs of other families: this one was not measured yet",
    };
    format!("The worst error over {rows} {kind}, and at least that of the measuring device against real GPUs")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_band_says_what_it_rests_on() {
        let band = Band { percent: 1.0, basis: Basis::SameFamily, rows: 7 };
        assert!(basis(band).starts_with("The worst error over 7 measured runs of this family under other"));
    }
}
