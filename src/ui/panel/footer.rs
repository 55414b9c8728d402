//! The bottom of the page.

use leptos::prelude::*;

/// What one should know about the page.
#[component]
pub fn Footer() -> impl IntoView {
    view! {
        <footer class="page-footer">
            <p>
                <strong>"Runs entirely in your browser; nothing is sent."</strong>
                " The estimate executes one training step symbolically, tensor by tensor, without data."
            </p>
            <p>
                "It assumes one GPU and PyTorch with transformers, peft and bitsandbytes. A figure is what the \
                 allocator hands out plus the CUDA context; fragmentation comes on top."
            </p>
        </footer>
    }
    .into_any()
}
