//! The controls: everything that a scenario consists of.

use leptos::ev::{MouseEvent, SubmitEvent};
use leptos::prelude::*;

use crate::issue::Field;
use crate::scenario::{
    Allocator, AttentionKernel, Checkpointing, GpuChoice, LoraTargets, LossKernel, Mask, Method, ModelChoice,
    Modules, Offloading, Optimizer, Precision, Scenario, Stack, StepTime,
};
use crate::ui::controls::{Choice, Combobox, Messages, Select, Slider, TextBox};
use crate::ui::live::{on, switch, text};
use crate::ui::own::OwnModel;
use crate::ui::scale::{self, Scale};
use crate::ui::state::State;
use crate::ui::{markup, picks, presets, summary};
use crate::units::Bytes;

/// The control that shows the issues of a field; none for those that stand above all controls.
const fn control(field: Field) -> &'static str {
    match field {
        Field::Model => "model",
        Field::Gpu => "gpu",
        Field::Method => "method",
        Field::LoraRank => "rank",
        Field::LoraTargets => "targets",
        Field::Precision => "precision",
        Field::Optimizer => "optimizer",
        Field::Batch => "batch",
        Field::Sequence => "sequence",
        Field::Accumulation => "accumulation",
        Field::Checkpointing => "checkpointing",
        Field::Attention => "attention",
        Field::Mask => "mask",
        Field::Stack => "stack",
        Field::Loss => "loss",
        Field::Step => "step",
        Field::Offloading => "offloading",
        Field::Allocator => "allocator",
        Field::Link => "",
    }
}

/// The issues of the active scenario that belong to a control.
fn messages(state: State, id: &'static str) -> Messages {
    Signal::derive(move || {
        state.current().estimate.with(|estimate| {
            markup::issues(estimate.issues.iter().filter(|issue| control(issue.field) == id))
        })
    })
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

/// The setter of a field that is an enum of the core, by position.
macro_rules! set_choice {
    ($name:ident, $($path:ident).+) => {
        |scenario: &mut Scenario, index: usize| {
            if let Some(choice) = $name::ALL.get(index) {
                scenario.$($path).+ = *choice;
            }
        }
    };
}

/// A control for an enum of the core.
fn choice(
    (id, label): (&'static str, &'static str),
    choices: Vec<Choice>,
    get: fn(&Scenario) -> usize,
    set: fn(&mut Scenario, usize),
) -> impl IntoView {
    let state = State::of_page();
    let lens = state.lens(get, set);
    view! {
        <Select id=id label=label choices=choices value=lens.value set=lens.set messages=messages(state, id) />
    }
}

/// A control for a number of a scenario.
fn amount(
    (id, label, help, unit): (&'static str, &'static str, &'static str, &'static str),
    scale: &'static Scale,
    get: fn(&Scenario) -> f64,
    set: fn(&mut Scenario, f64),
) -> impl IntoView {
    let state = State::of_page();
    let lens = state.lens(get, set);
    view! {
        <Slider
            id=id
            label=label
            help=help
            scale=scale
            value=lens.value
            set=lens.set
            messages=messages(state, id)
            unit=unit
        />
    }
}

/// All controls of the active scenario.
#[component]
pub fn Configure() -> impl IntoView {
    let state = State::of_page();
    let elsewhere = messages(state, "");
    view! {
        <form class="configure" aria-label="Scenario" on:submit=on(|event: SubmitEvent| event.prevent_default())>
            <Presets />
            <div inner_html=text(move || elsewhere.get())></div>
            <fieldset>
                <legend>"Model and card"</legend>
                <ModelAndCard />
            </fieldset>
            <fieldset>
                <legend>"Training"</legend>
                {choice(
                    ("method", "Method"),
                    choices!(Method),
                    |scenario| scenario.method.index(),
                    set_choice!(Method, method),
                )}
                <Adapters />
                {choice(
                    ("precision", "Precision"),
                    choices!(Precision),
                    |scenario| scenario.precision.index(),
                    set_choice!(Precision, precision),
                )}
                {choice(
                    ("optimizer", "Optimizer"),
                    choices!(Optimizer),
                    |scenario| scenario.optimizer.index(),
                    set_choice!(Optimizer, optimizer),
                )}
                {choice(
                    ("stack", "Software"),
                    choices!(Stack),
                    |scenario| scenario.stack.index(),
                    set_choice!(Stack, stack),
                )}
            </fieldset>
            <fieldset>
                <legend>"Batch"</legend>
                {amount(
                    (
                        "batch",
                        "Micro-batch size",
                        "Sequences in one forward pass. Activations and logits grow with it.",
                        "",
                    ),
                    &scale::BATCH,
                    |scenario| scenario.batch as f64,
                    |scenario, value| scenario.batch = value as u64,
                )}
                {amount(
                    ("sequence", "Sequence length", "Tokens per sequence, padding included.", ""),
                    &scale::SEQUENCE,
                    |scenario| scenario.sequence as f64,
                    |scenario, value| scenario.sequence = value as u64,
                )}
                {amount(
                    (
                        "accumulation",
                        "Gradient accumulation",
                        "Forward and backward passes per optimizer step. The batch that the optimizer sees is this \
                         many micro-batches; the gradients live on between them.",
                        "",
                    ),
                    &scale::ACCUMULATION,
                    |scenario| scenario.accumulation as f64,
                    |scenario, value| scenario.accumulation = value as u64,
                )}
                {choice(
                    ("mask", "Mask and packing"),
                    choices!(Mask),
                    |scenario| scenario.mask.index(),
                    set_choice!(Mask, mask),
                )}
            </fieldset>
            <fieldset>
                <legend>"Memory savers"</legend>
                {choice(
                    ("checkpointing", "Gradient checkpointing"),
                    choices!(Checkpointing),
                    |scenario| scenario.checkpointing.index(),
                    set_choice!(Checkpointing, checkpointing),
                )}
                {choice(
                    ("attention", "Attention"),
                    choices!(AttentionKernel),
                    |scenario| scenario.attention.index(),
                    set_choice!(AttentionKernel, attention),
                )}
                {choice(
                    ("loss", "Head and loss"),
                    choices!(LossKernel),
                    |scenario| scenario.savings.loss.index(),
                    set_choice!(LossKernel, savings.loss),
                )}
                {choice(
                    ("offloading", "Activation offloading"),
                    choices!(Offloading),
                    |scenario| scenario.savings.offloading.index(),
                    set_choice!(Offloading, savings.offloading),
                )}
                {choice(
                    ("step", "Optimizer step"),
                    choices!(StepTime),
                    |scenario| scenario.savings.step.index(),
                    set_choice!(StepTime, savings.step),
                )}
                {choice(
                    ("allocator", "Allocator"),
                    choices!(Allocator),
                    |scenario| scenario.allocator.index(),
                    set_choice!(Allocator, allocator),
                )}
            </fieldset>
        </form>
    }
}

/// The size of a model that is no real one.
fn size(scenario: &Scenario) -> Option<f64> {
    match scenario.model {
        ModelChoice::Size(billions) => Some(billions),
        ModelChoice::Catalogue(_) | ModelChoice::Custom(_) => None,
    }
}

/// The memory of a card that is no real one.
fn memory(scenario: &Scenario) -> Option<Bytes> {
    match scenario.gpu {
        GpuChoice::Custom(memory) => Some(memory),
        GpuChoice::Catalogue(_) => None,
    }
}

/// The model and the card, with a number each where they are no real ones.
#[component]
fn ModelAndCard() -> impl IntoView {
    let state = State::of_page();
    let is = move |look: fn(&Scenario) -> bool| switch(move || state.current().scenario.with(look));
    let gpu = state.lens(
        |scenario| picks::gpu_label(&scenario.gpu),
        |scenario, key: String| scenario.gpu = picks::gpu_of(&key),
    );
    let pick = move |key: String| match picks::hub_id(&key) {
        Some(id) => state.own.show_id(id),
        None => state.change(|scenario| scenario.model = picks::model_of(&key)),
    };
    view! {
        <div class="model">
        <Combobox
            id="model"
            label="Model"
            help="Any model of the catalogue: type a few words of its name. Or type a size such as 13b for a Llama-shaped \
             model of that many parameters, or the id of any other model on the Hub."
            chosen=Signal::derive(move || {
                state.current().scenario.with(|scenario| picks::model_label(&scenario.model))
            })
            find=picks::find_models
            pick=Callback::new(pick)
            messages=messages(state, "model")
        />
        <OwnModel />
        </div>
        <div hidden=is(|scenario| size(scenario).is_none())>
            {amount(
                (
                    "billions",
                    "Model size",
                    "Billions of parameters. The shape is between those of real Llama-like models of nearby sizes.",
                    "B",
                ),
                &scale::BILLIONS,
                |scenario| size(scenario).unwrap_or(1.),
                |scenario, billions| scenario.model = ModelChoice::Size(billions),
            )}
        </div>
        <Combobox
            id="gpu"
            label="GPU"
            help="The card that the run is to fit on. Type a name, or an amount such as 24 for any card with that memory."
            chosen=gpu.value
            find=picks::find_gpus
            pick=gpu.set
            messages=messages(state, "gpu")
        />
        <div hidden=is(|scenario| memory(scenario).is_none())>
            {amount(
                (
                    "memory",
                    "GPU memory",
                    "What a program can have of the card, in GiB: what nvidia-smi shows as total.",
                    "GiB",
                ),
                &scale::CARD,
                |scenario| memory(scenario).unwrap_or_default().as_gib(),
                |scenario, gib| scenario.gpu = GpuChoice::Custom(Bytes::gib(gib)),
            )}
        </div>
    }
}

/// What only LoRA and QLoRA have.
#[component]
fn Adapters() -> impl IntoView {
    let state = State::of_page();
    let is = move |look: fn(&Scenario) -> bool| switch(move || state.current().scenario.with(look));
    let names = state.lens(|scenario| scenario.lora.modules.to_string(), |_, _| {});
    let read = move |text: String| match text.parse::<Modules>() {
        Ok(modules) => {
            state.change(|scenario| scenario.lora.modules = modules);
            Ok(())
        }
        Err(unknown) => {
            Err(format!("no layer is called {unknown}; write names such as q_proj, v_proj, down_proj"))
        }
    };
    view! {
        <div class="adapters" hidden=is(|scenario| !summary::adapts(scenario.method))>
            {amount(
                ("rank", "LoRA rank", "The inner size of the adapters: r in peft's LoraConfig.", ""),
                &scale::RANK,
                |scenario| scenario.lora.rank as f64,
                |scenario, value| scenario.lora.rank = value as u64,
            )}
            {choice(
                ("targets", "Target modules"),
                choices!(LoraTargets),
                |scenario| scenario.lora.targets.index(),
                set_targets,
            )}
            <div hidden=is(|scenario| scenario.lora.targets != LoraTargets::Named)>
                <TextBox
                    id="modules"
                    label="Layer names"
                    help="As in peft's target_modules, with commas between them."
                    value=names.value
                    set=Callback::new(read)
                    messages=Signal::stored(String::new())
                />
            </div>
        </div>
    }
}

/// Names of layers are kept only where they are read; the first ones are peft's for most families.
fn set_targets(scenario: &mut Scenario, index: usize) {
    if let Some(targets) = LoraTargets::ALL.get(index) {
        scenario.lora.targets = *targets;
        scenario.lora.modules = match targets {
            LoraTargets::Named => "q_proj,v_proj".parse().unwrap_or_default(),
            LoraTargets::AllLinear
            | LoraTargets::Qv
            | LoraTargets::Attention
            | LoraTargets::Mlp
            | LoraTargets::AllLinearAndHead => Modules::NONE,
        };
    }
}

/// Well-chosen examples, and the way back to the first.
#[component]
fn Presets() -> impl IntoView {
    let state = State::of_page();
    let button = |preset: &'static presets::Preset| {
        let open =
            move |_: MouseEvent| state.open((preset.scenario)(), &format!("Opened “{}”", preset.label));
        view! {
            <button type="button" class="chip" title=preset.help on:click=on(open)>
                {preset.label}
            </button>
        }
    };
    view! {
        <div class="presets" role="group" aria-label="Examples">
            <span aria-hidden="true">"Examples"</span>
            {presets::PRESETS.iter().map(button).collect::<Vec<_>>()}
            <button type="button" class="chip quiet" on:click=on(move |_: MouseEvent| state.reset())>
                "Reset"
            </button>
        </div>
    }
}
