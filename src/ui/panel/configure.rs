//! The controls: everything that a scenario consists of.

use leptos::prelude::*;

use crate::scenario::{
    AttentionKernel, Checkpointing, Field, GpuChoice, Issue, LoraTargets, Mask, Method, ModelChoice, Modules,
    Optimizer, Precision, Scenario,
};
use crate::ui::controls::{Choice, Combobox, Messages, Select, Slider, TextBox, message};
use crate::ui::scale::{self, Scale};
use crate::ui::state::{Lens, State};
use crate::ui::{picks, presets, summary};
use crate::units::Bytes;

/// The control that shows the issues of a field; `None` for those that stand above all controls.
const fn control(field: Field) -> Option<&'static str> {
    match field {
        Field::Model => Some("model"),
        Field::Gpu => Some("gpu"),
        Field::Method => Some("method"),
        Field::LoraRank => Some("rank"),
        Field::LoraTargets => Some("targets"),
        Field::Precision => Some("precision"),
        Field::Optimizer => Some("optimizer"),
        Field::Batch => Some("batch"),
        Field::Sequence => Some("sequence"),
        Field::Accumulation => Some("accumulation"),
        Field::Checkpointing => Some("checkpointing"),
        Field::Attention => Some("attention"),
        Field::Mask => Some("mask"),
        Field::Link => None,
    }
}

/// The issues of the active scenario that belong to a control.
fn issues(state: State, id: Option<&'static str>) -> Messages {
    Memo::new(move |_| {
        state.current().estimate.with(|estimate| {
            estimate.issues.iter().filter(|issue| control(issue.field) == id).cloned().collect::<Vec<Issue>>()
        })
    })
    .into()
}

/// The choices of an enum of the core.
macro_rules! choices {
    ($name:ident) => {
        $name::ALL
            .iter()
            .map(|choice| Choice { slug: choice.slug(), label: choice.label(), help: choice.help() })
            .collect::<Vec<_>>()
    };
}

/// A control for an enum of the core.
macro_rules! select {
    ($state:ident, $name:ident, $id:literal, $label:literal, $($path:ident).+) => {{
        let lens = $state.lens(
            |scenario| scenario.$($path).+.index(),
            |scenario, index| {
                if let Some(choice) = $name::ALL.get(index) {
                    scenario.$($path).+ = *choice;
                }
            },
        );
        view! {
            <Select
                id=$id
                label=$label
                choices=choices!($name)
                value=lens.value
                set=lens.set
                messages=issues($state, Some($id))
            />
        }
    }};
}

/// A control for a whole number of a scenario.
fn whole(
    state: State,
    (id, label, help): (&'static str, &'static str, &'static str),
    scale: &'static Scale,
    get: fn(&Scenario) -> f64,
    set: fn(&mut Scenario, f64),
) -> impl IntoView {
    let Lens { value, set } = state.lens(get, set);
    view! { <Slider id=id label=label help=help scale=scale value=value set=set messages=issues(state, Some(id)) /> }
        .into_any()
}

/// All controls of the active scenario.
#[component]
pub fn Configure() -> impl IntoView {
    let state = State::of_page();
    let elsewhere = issues(state, None);
    view! {
        <form class="configure" aria-label="Scenario" on:submit=|event| event.prevent_default()>
            <Presets />
            {move || elsewhere.get().into_iter().map(message).collect_view()}
            <fieldset>
                <legend>"Model and card"</legend>
                <Model />
                <Gpu />
            </fieldset>
            <fieldset>
                <legend>"Training"</legend>
                {select!(state, Method, "method", "Method", method)}
                <Adapters />
                {select!(state, Precision, "precision", "Precision", precision)}
                {select!(state, Optimizer, "optimizer", "Optimizer", optimizer)}
            </fieldset>
            <fieldset>
                <legend>"Batch"</legend>
                {whole(
                    state,
                    ("batch", "Micro-batch size", "Sequences in one forward pass. Activations and logits grow with it."),
                    &scale::BATCH,
                    |scenario| scenario.batch as f64,
                    |scenario, value| scenario.batch = value as u64,
                )}
                {whole(
                    state,
                    ("sequence", "Sequence length", "Tokens per sequence, padding included."),
                    &scale::SEQUENCE,
                    |scenario| scenario.sequence as f64,
                    |scenario, value| scenario.sequence = value as u64,
                )}
                {whole(
                    state,
                    (
                        "accumulation",
                        "Gradient accumulation",
                        "Forward and backward passes per optimizer step. The batch that the optimizer sees is this \
                         many micro-batches; memory hardly grows.",
                    ),
                    &scale::ACCUMULATION,
                    |scenario| scenario.accumulation as f64,
                    |scenario, value| scenario.accumulation = value as u64,
                )}
                {select!(state, Mask, "mask", "Padding mask", mask)}
            </fieldset>
            <fieldset>
                <legend>"Memory savers"</legend>
                {select!(state, Checkpointing, "checkpointing", "Gradient checkpointing", checkpointing)}
                {select!(state, AttentionKernel, "attention", "Attention", attention)}
            </fieldset>
        </form>
    }
    .into_any()
}

/// The model, and its size where it is no real one.
#[component]
fn Model() -> impl IntoView {
    let state = State::of_page();
    let model = state.lens(|scenario| scenario.model.clone(), |scenario, model| scenario.model = model);
    let chosen = Signal::derive(move || model.value.with(picks::model_label));
    let size = state.lens(
        |scenario| match scenario.model {
            ModelChoice::Size(billions) => Some(billions),
            ModelChoice::Catalogue(_) | ModelChoice::Custom(_) => None,
        },
        |scenario, billions| {
            if let Some(billions) = billions {
                scenario.model = ModelChoice::Size(billions);
            }
        },
    );
    let by_size = Memo::new(move |_| size.value.get().is_some());
    view! {
        <Combobox
            id="model"
            label="Model"
            help="Any model of the catalogue: type a few words of its name. Or type a size such as 13b for a Llama-shaped model of that many parameters."
            chosen=chosen
            find=picks::find_models
            pick=Callback::new(move |key: String| model.set.run(picks::model_of(&key)))
            messages=issues(state, Some("model"))
        />
        {move || by_size.get().then(|| view! {
            <Slider
                id="billions"
                label="Model size"
                help="Billions of parameters. The shape is between those of real Llama-like models of nearby sizes."
                scale=&scale::BILLIONS
                value=Signal::derive(move || size.value.get().unwrap_or(1.))
                set=Callback::new(move |billions| size.set.run(Some(billions)))
                messages=Signal::stored(Vec::new())
                unit="B"
            />
        })}
    }
    .into_any()
}

/// The card, and its memory where it is no real one.
#[component]
fn Gpu() -> impl IntoView {
    let state = State::of_page();
    let gpu = state.lens(|scenario| scenario.gpu.clone(), |scenario, gpu| scenario.gpu = gpu);
    let chosen = Signal::derive(move || gpu.value.with(picks::gpu_label));
    let memory = state.lens(
        |scenario| match scenario.gpu {
            GpuChoice::Custom(memory) => Some(memory),
            GpuChoice::Catalogue(_) => None,
        },
        |scenario, memory| {
            if let Some(memory) = memory {
                scenario.gpu = GpuChoice::Custom(memory);
            }
        },
    );
    let custom = Memo::new(move |_| memory.value.get().is_some());
    view! {
        <Combobox
            id="gpu"
            label="GPU"
            help="The card that the run is to fit on. Type a name, or an amount such as 24 for any card with that memory."
            chosen=chosen
            find=picks::find_gpus
            pick=Callback::new(move |key: String| gpu.set.run(picks::gpu_of(&key)))
            messages=issues(state, Some("gpu"))
        />
        {move || custom.get().then(|| view! {
            <Slider
                id="memory"
                label="GPU memory"
                help="What a program can have of the card, in GiB: what nvidia-smi shows as total."
                scale=&scale::CARD
                value=Signal::derive(move || memory.value.get().unwrap_or_default().as_gib())
                set=Callback::new(move |gib| memory.set.run(Some(Bytes::gib(gib))))
                messages=Signal::stored(Vec::new())
                unit="GiB"
            />
        })}
    }
    .into_any()
}

/// What only LoRA and QLoRA have.
#[component]
fn Adapters() -> impl IntoView {
    let state = State::of_page();
    let adapted = state.read(|scenario| summary::adapts(scenario.method));
    let named = state.read(|scenario| scenario.lora.targets == LoraTargets::Named);
    let targets = state.lens(
        |scenario| scenario.lora.targets.index(),
        |scenario, index| {
            if let Some(targets) = LoraTargets::ALL.get(index) {
                scenario.lora.targets = *targets;
                // Names are kept only where they are read; the first ones are peft's for most families.
                scenario.lora.modules = match targets {
                    LoraTargets::Named => "q_proj,v_proj".parse().unwrap_or_default(),
                    LoraTargets::AllLinear | LoraTargets::Qv | LoraTargets::Attention | LoraTargets::Mlp => {
                        Modules::NONE
                    }
                };
            }
        },
    );
    let modules =
        state.lens(|scenario| scenario.lora.modules, |scenario, modules| scenario.lora.modules = modules);
    let read = move |text: String| match text.parse::<Modules>() {
        Ok(new) => {
            modules.set.run(new);
            Ok(())
        }
        Err(unknown) => {
            Err(format!("No layer is called {unknown:?}: write names such as q_proj, v_proj, down_proj"))
        }
    };
    move || {
        adapted.get().then(|| {
            view! {
                {whole(
                    state,
                    ("rank", "LoRA rank", "The inner size of the adapters: r in peft's LoraConfig."),
                    &scale::RANK,
                    |scenario| scenario.lora.rank as f64,
                    |scenario, value| scenario.lora.rank = value as u64,
                )}
                <Select
                    id="targets"
                    label="Target modules"
                    choices=choices!(LoraTargets)
                    value=targets.value
                    set=targets.set
                    messages=issues(state, Some("targets"))
                />
                {move || named.get().then(|| view! {
                    <TextBox
                        id="modules"
                        label="Layer names"
                        help="As in peft's target_modules, with commas between them."
                        value=Signal::derive(move || modules.value.get().to_string())
                        set=Callback::new(read)
                        messages=Signal::stored(Vec::new())
                    />
                })}
            }
        })
    }
}

/// Well-chosen examples, and the way back to the first.
#[component]
fn Presets() -> impl IntoView {
    let state = State::of_page();
    let buttons = presets::PRESETS.iter().map(|preset| {
        view! {
            <button
                type="button"
                class="chip"
                title=preset.help
                on:click=move |_| state.open((preset.scenario)(), format!("Opened the example “{}”", preset.label))
            >
                {preset.label}
            </button>
        }
    });
    view! {
        <div class="presets" role="group" aria-label="Examples">
            <span aria-hidden="true">"Examples"</span>
            {buttons.collect_view()}
            <button type="button" class="chip quiet" on:click=move |_| state.reset()>
                "Reset"
            </button>
        </div>
    }
    .into_any()
}
