//! A model by its dimensions, starting from those of the model on the screen.

use leptos::either::Either;
use leptos::prelude::*;

use super::bring::{bring, finish};
use crate::model::dimensions::{Decoder, Dimensions};
use crate::scenario::{Choice, ModelChoice};
use crate::ui::controls::message;
use crate::ui::controls::{Select, TextBox};
use crate::ui::scale::Scale;
use crate::ui::state::State;
use crate::ui::summary;
use crate::units::Letters;

/// What a dimension can be.
static SIZE: Scale = Scale {
    stops: &[],
    least: 1.,
    most: (1_u64 << 30) as f64,
    whole: true,
    letters: Letters::Binary,
    one: "",
    many: "",
};

/// A number of a model: the id of its box, its name, what it is, and where it stands.
type Number = (&'static str, &'static str, &'static str, fn(&mut Dimensions) -> &mut u64);

const NUMBERS: [Number; 7] = [
    ("own-hidden", "Hidden size", "Elements of a token's state: hidden_size.", |model| &mut model.hidden),
    ("own-layers", "Layers", "num_hidden_layers.", |model| &mut model.layers),
    ("own-heads", "Heads", "Query heads of a layer: num_attention_heads.", |model| &mut model.heads),
    (
        "own-kv-heads",
        "KV heads",
        "Key and value heads, which groups of query heads share: num_key_value_heads.",
        |model| &mut model.kv_heads,
    ),
    ("own-width", "MLP width", "Elements inside the feed-forward network: intermediate_size.", |model| {
        &mut model.intermediate
    }),
    ("own-vocabulary", "Vocabulary", "Rows of the embedding: vocab_size.", |model| &mut model.vocab),
    (
        "own-positions",
        "Positions",
        "The longest sequence: max_position_embeddings. gpt2 has a row for each.",
        |model| &mut model.positions,
    ),
];

static SHAPES: [Choice; 2] = [
    Choice {
        slug: "llama",
        label: "Llama",
        help: "RMSNorm, rotary positions, gated feed-forward network, no biases.",
    },
    Choice {
        slug: "gpt2",
        label: "GPT-2",
        help: "LayerNorm, learned positions, plain feed-forward network, biases; all heads have keys and values.",
    },
];

static TIES: [Choice; 2] = [
    Choice { slug: "no", label: "No", help: "The output layer has weights of its own." },
    Choice { slug: "yes", label: "Yes", help: "The output layer is the embedding: tie_word_embeddings." },
];

/// The part of the dialog with the dimensions.
pub fn draw(state: State) -> impl IntoView {
    let own = state.own;
    let model = RwSignal::new(Dimensions::default());
    let mut seen: Option<ModelChoice> = None;
    Effect::new(move || {
        let now = state.current().scenario.with(|scenario| scenario.model.clone());
        if seen.as_ref() != Some(&now) {
            if let Ok(architecture) = untrack(|| state.current().scenario.with(|s| s.architecture())) {
                model.set(Dimensions::like(&architecture));
            }
            seen = Some(now);
        }
    });
    let number = move |(id, label, help, place): Number| {
        let read = move |text: String| {
            let size = SIZE.read(&text)?;
            model.update(|model| *place(model) = size as u64);
            Ok(())
        };
        view! {
            <TextBox
                id=id
                label=label
                help=help
                value=Signal::derive(move || place(&mut model.get()).to_string())
                set=Callback::new(read)
                messages=Signal::stored(Vec::new())
            />
        }
    };
    let choice = move |id,
                       label,
                       help: &'static str,
                       choices: &'static [Choice],
                       get: fn(&Dimensions) -> usize,
                       set: fn(&mut Dimensions, usize)| {
        view! {
            <Select
                id=id
                label=label
                help=help
                choices=choices
                value=Signal::derive(move || get(&model.get()))
                set=Callback::new(move |index: usize| model.update(|model| set(model, index)))
                messages=Signal::stored(Vec::new())
            />
        }
    };
    let said = move || match model.get().architecture() {
        Ok(architecture) => Either::Left(summary::counted(&architecture)),
        Err(error) => Either::Right(message(&error.into())),
    };
    let use_it = move || {
        let now = model.get_untracked();
        let name = own.name.get_untracked();
        // What is wrong with them is on the screen already.
        if now.architecture().is_ok() {
            drop(bring(state, &name, &now.config()));
        }
    };
    view! {
        <div class="own-part">
            <p class="remark">"Starts from the current model. Only these dimensions are used."</p>
            <div class="own-numbers">
                {NUMBERS.map(number)}
                {choice(
                    "own-shape",
                    "Decoder",
                    "What its layers are built of.",
                    &SHAPES,
                    |model| model.decoder as usize,
                    |model, index| model.decoder = if index == 0 { Decoder::Llama } else { Decoder::Gpt2 },
                )}
                {choice(
                    "own-tied",
                    "Tied embeddings",
                    "Whether the output layer has weights of its own.",
                    &TIES,
                    |model| usize::from(model.tied),
                    |model, index| model.tied = index == 1,
                )}
            </div>
            <div role="status">{said}</div>
            {finish(own, "own-dimensions-name", use_it)}
        </div>
    }
}
