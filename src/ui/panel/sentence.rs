//! The scenario as a sentence, always in sight: each part of it leads to its control.

use leptos::prelude::*;

use super::configure::count_changed;
use crate::scenario::keys::{Key, Place};
use crate::scenario::{Method, Precision, Scenario};
use crate::ui::browser;
use crate::ui::format::Unit;
use crate::ui::markup::unbroken;
use crate::ui::state::State;
use crate::ui::summary;
use crate::units::grouped;

/// A part of the sentence: what stands before it, the control that it leads to, what it is for those who only hear it, and
/// its words; none where it is not asked.
type Piece = (&'static str, &'static str, &'static str, fn(&Scenario, Unit) -> String);

const PIECES: [Piece; 10] = [
    ("", "task", "Task", |scenario, _| summary::task(scenario).to_owned()),
    ("", "model", "Model", |scenario, _| summary::model(scenario)),
    ("with", "method", "Method", |scenario, _| method(scenario)),
    ("·", "precision", "Precision", |scenario, _| weights(scenario).to_owned()),
    ("in", "stack", "Training library", |scenario, _| summary::library(scenario)),
    ("·", "rollouts", "Answers come from", |scenario, _| summary::rollouts(scenario).to_owned()),
    ("on", "gpus", "GPUs", |scenario, _| format!("{} ×", grouped(scenario.cluster.gpus))),
    ("", "gpu", "GPU", summary::card),
    ("·", "seq-length", "Sequence length", |scenario, _| format!("{} tokens", grouped(scenario.sequence))),
    ("·", "batch-size", "Micro-batch size", |scenario, _| summary::batch(scenario)),
];

/// `QLoRA, rank 16`, `OFT, blocks of 32`.
fn method(scenario: &Scenario) -> String {
    if !scenario.task.trains() {
        return match scenario.method {
            Method::Qlora => format!("weights in {}", scenario.quantization.format.label()),
            Method::Full | Method::Lora => format!("weights in {}", scenario.precision.label()),
        };
    }
    let tuner = scenario.lora.tuner;
    if scenario.method == Method::Full {
        return "full fine-tuning".to_owned();
    }
    let name = tuner.of_method(scenario.method);
    if !tuner.has_rank() {
        return name;
    }
    format!("{name}, {}", tuner.sized(scenario.lora.rank))
}

/// That the weights are float32, which may come with a training library or several GPUs and is most of what is needed.
fn weights(scenario: &Scenario) -> &'static str {
    let is_float32 = matches!(scenario.precision, Precision::Fp32 | Precision::AmpBf16 | Precision::AmpFp16);
    if is_float32 && scenario.task.trains() && scenario.method != Method::Qlora {
        "float32 weights"
    } else {
        ""
    }
}

/// So many characters are as wide as a window of 1,400 pixels, 8.3 of them each beside its edges; in a narrower one there are two lines.
const ONE_LINE_AT_1400: usize = 162;
/// The space within and beside each part, in characters.
const AROUND: usize = 3;

/// How long the sentence is, in characters.
fn length(scenario: &Scenario, unit: Unit, rest: &str) -> usize {
    let pieces = PIECES.iter().map(|(before, _, _, words)| (before, words(scenario, unit)));
    let told = pieces.filter(|(_, words)| !words.is_empty());
    let length = |words: &str| words.chars().count();
    let all: usize = told.map(|(before, words)| length(before) + length(&words) + AROUND).sum();
    all + length("· ") + length(rest)
}

/// The sentence.
#[component]
pub fn Sentence() -> impl IntoView {
    let state = State::of_page();
    let piece = move |(before, id, name, words): Piece| {
        let said = Memo::new(move |_| {
            let unit = state.unit();
            state.current().scenario.with(|scenario| unbroken(&words(scenario, unit)))
        });
        let edit = move |_| {
            if Key::find(id).is_some_and(|key| key.place != Place::Surface) {
                state.unfolded.set(true);
            }
            // a control among all settings is there once these are drawn
            request_animation_frame(move || browser::edit(id));
        };
        // where it takes two lines the second is what it runs on
        let fold = (id == "gpus").then(|| view! { <span class="fold" aria-hidden="true"></span> });
        view! {
            {fold}
            <span class="piece" hidden=Signal::derive(move || said.with(String::is_empty))>
                <span class="joint" class:dot=before == "·">{before}</span>
                " "
                <button
                    type="button"
                    aria-label=Signal::derive(move || format!("{name}: {}. Change it", said.get()))
                    on:click=edit
                >
                    {said}
                </button>
                " "
            </span>
        }
    };
    let changed = Memo::new(move |_| match state.current().scenario.with(count_changed) {
        none if none.is_empty() => "All settings".to_owned(),
        changed => format!("All settings, {changed}"),
    });
    let length = Memo::new(move |_| {
        let unit = state.unit();
        state.current().scenario.with(|scenario| changed.with(|rest| length(scenario, unit, rest)))
    });
    let is_over = Memo::new(move |_| length.get() > ONE_LINE_AT_1400);
    let unfold = move |_| {
        state.unfolded.set(true);
        browser::edit("all-settings");
    };
    view! {
        <div
            class="sentence-bar"
            id="sentence"
            class=("over-1400", is_over)
            role="group"
            aria-label="The scenario in a sentence"
        >
            <p>
                {PIECES.map(piece)} <span class="joint dot">"·"</span> " "
                <button type="button" class="rest" on:click=unfold>
                    {changed}
                </button>
            </p>
        </div>
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Stack;

    #[test]
    fn every_part_leads_to_a_control_of_that_name() {
        for (_, id, name, _) in PIECES {
            assert_eq!(Key::find(id).map(|key| key.label), Some(name));
        }
    }

    #[test]
    fn what_is_wider_than_a_window_takes_two_lines() {
        let length =
            |link: &str, rest: &str| length(&crate::share::decode(link).scenarios[0], Unit::Binary, rest);
        // one setting changed: a window of 1,440 pixels still has it in one line
        assert!(length("v=1", "All settings, 1 changed") <= ONE_LINE_AT_1400);
        let grpo =
            "task=grpo&m=Qwen/Qwen2.5-7B-Instruct&method=lora&st=trl&gpu=a100-sxm-80gb&gpus=2&s=1536&b=8";
        assert!(length(grpo, "All settings, 1 changed") > ONE_LINE_AT_1400);
    }

    /// trl loads weights in float32 unless it is told otherwise.
    #[test]
    fn weights_in_float32_are_said_whoever_chose_them() {
        let said = |library: Stack| {
            let mut scenario = Scenario::default();
            scenario.change(|scenario| scenario.method = Method::Lora);
            scenario.change(|scenario| scenario.stack = library);
            weights(&scenario)
        };
        assert_eq!((said(Stack::Transformers), said(Stack::Trl)), ("", "float32 weights"));
        assert_eq!(
            weights(&Scenario { precision: Precision::AmpBf16, ..Scenario::default() }),
            "",
            "in 4 bits"
        );
    }

    #[test]
    fn the_first_answer_is_a_sentence() {
        let words: Vec<_> = PIECES
            .iter()
            .map(|(before, _, _, words)| (before, words(&Scenario::default(), Unit::Binary)))
            .filter(|(_, words)| !words.is_empty())
            .map(|(before, words)| format!("{before} {words}").trim_start().to_owned())
            .collect();
        assert_eq!(
            words.join(" "),
            "Fine-tune Llama-3.1-8B with QLoRA, rank 16 in transformers + PEFT on 1 × GeForce RTX 4090 · 2,048 tokens · batch 1"
        );
    }
}
