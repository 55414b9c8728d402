//! What to do about it: what to change, which card, what else the card is good for.

use leptos::prelude::*;

use super::batches::Batches;
use super::curves::Curves;
use super::fit::Models;
use super::layouts::Layouts;
use super::lengths::TextLengths;
use super::levers::Changes;
use super::need::Cards;
use super::serving::Inference;
use super::settings::Settings;
use super::thumb::Thumb;
use super::time::Time;

/// The questions that a plan answers.
#[component]
pub fn Plan() -> impl IntoView {
    view! {
        <div class="panels">
            <div class="column">
                <Inference />
                <Curves />
                <Batches />
                <Settings />
                <Layouts />
                <Time />
                <TextLengths />
                <Changes />
            </div>
            <div class="column">
                <Cards />
                <Models />
                <Thumb />
            </div>
        </div>
    }
}
