//! The bottom of the page.

use leptos::prelude::*;

use super::document::Document;
use crate::ui::controls::explained;
use crate::ui::state::State;

/// What is estimated.
const ESTIMATES: &str = "It estimates fine-tuning, classification, embeddings, training on preferences (DPO, KTO, ORPO, CPO, SimPO), of reward models and on rewards (GRPO, RLOO), distillation and generation, with PyTorch and the \
                         software that is chosen. Figures are per GPU: of one, or of several under DDP, FSDP2, ZeRO or Megatron-core. What a card needs is \
                         what the allocator hands out plus the CUDA context; memory PyTorch reserves beyond that is listed separately.";

/// What one should know about the page.
#[component]
pub fn Footer() -> impl IntoView {
    let state = State::of_page();
    view! {
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
