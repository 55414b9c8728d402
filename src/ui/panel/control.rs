//! The control of one input, as its row in the table of keys asks for.

use leptos::prelude::*;

use crate::estimate::Estimate;
use crate::hardware::{Device, Vendor};
use crate::issue::{Field, Issue};
use crate::plan::pace;
use crate::scenario::colocated::TRL_SHARE;
use crate::scenario::keys::{Count, Key, ValueKind};
use crate::scenario::{
    Choice, Data, GpuChoice, LoraTargets, ModelChoice, Modules, Rollouts, Scenario, Sharding,
};
use crate::ui::controls::{Combobox, Select, Slider, Switch, TextBox};
use crate::ui::own::OwnModel;
use crate::ui::picks;
use crate::ui::scale::{self, Scale};
use crate::ui::state::State;
use crate::ui::summary;
use crate::units::{BYTES_PER_KIB, BYTES_PER_MIB, Bytes, grouped};

/// The issues of the active scenario that name one of some fields.
pub fn issues(state: State, is_of: impl Fn(Field) -> bool + Send + Sync + 'static) -> Signal<Vec<Issue>> {
    let issues = Memo::new(move |_| {
        let issues = |estimate: &Estimate| {
            estimate.issues.iter().filter(|issue| is_of(issue.field)).cloned().collect::<Vec<_>>()
        };
        state.current().estimate.with(issues)
    });
    issues.into()
}

/// Whether an input can be chosen: it makes a difference, or is FSDP2 on a single GPU, which comes by nothing but this control.
pub fn is_offered(key: &Key, scenario: &Scenario) -> bool {
    let alone = || {
        !scenario.cluster.has_engine() && scenario.task.trains() && scenario.software().runs_transformers()
    };
    key.matters(scenario) || key.field == Field::ShardsAlone && alone()
}

/// The control of an input; hidden where the input makes no difference.
#[component]
pub fn Control(
    /// Which input.
    key: &'static Key,
) -> impl IntoView {
    let state = State::of_page();
    let idle = state.of_scenario(|scenario| !is_offered(key, scenario));
    let control = match key.kind() {
        ValueKind::Model => view! { <Model key=key /> }.into_any(),
        ValueKind::Gpu => view! { <Card key=key /> }.into_any(),
        ValueKind::Choice(choices) if key.field == Field::Method => {
            view! { <Method key=key choices=choices /> }.into_any()
        }
        ValueKind::Choice(_) if key.field == Field::Rollouts => who_answers(key).into_any(),
        ValueKind::Choice(choices) => choice(key, (key.label, help(key)), choices).into_any(),
        ValueKind::Targets => view! { <Targets key=key /> }.into_any(),
        ValueKind::Count(Count::Cents) => dollars(key).into_any(),
        ValueKind::Count(count) => {
            let named = Memo::new(move |_| {
                state.current().scenario.with(|scenario| (key.label_for(scenario), key.help_for(scenario)))
            });
            (move || number(key, named.get(), count)).into_any()
        }
        ValueKind::Switch => toggle(key).into_any(),
        ValueKind::Teacher => teacher(key).into_any(),
        ValueKind::Lengths | ValueKind::Dropout => text(key).into_any(),
    };
    view! { <div class="control" hidden=idle>{control}</div> }
}

/// The sentence on an input.
fn help(key: &Key) -> String {
    format!("{}.", key.help)
}

/// Sets an input to what a control wrote, which is always a value of it.
fn put(key: &Key, scenario: &mut Scenario, text: &str) {
    // What a control offers the key reads.
    let _ = key.read(scenario, text);
}

/// What is offered in place of methods where nothing is trained.
static WEIGHTS: [Choice; 2] = [
    Choice {
        slug: "full",
        label: "Not quantised",
        help: "In the precision that is chosen: bf16, fp16 or fp32.",
    },
    Choice { slug: "qlora", label: "Quantised", help: "NF4 in 4 bits, LLM.int8, or int8 of torchao." },
];

/// The method; where nothing is trained whether weights are quantised.
#[component]
fn Method(key: &'static Key, choices: &'static [Choice]) -> impl IntoView {
    let trains = State::of_page().of_scenario(|scenario| scenario.task.trains());
    move || match trains.get() {
        true => choice(key, (key.label, help(key)), choices).into_any(),
        false => {
            choice(key, ("Weights", "Whether the weights are quantised.".to_owned()), &WEIGHTS).into_any()
        }
    }
}

fn choice(
    key: &'static Key,
    (label, help): (&'static str, String),
    choices: &'static [Choice],
) -> impl IntoView {
    let state = State::of_page();
    let get = move |scenario: &Scenario| {
        let slug = key.write(scenario);
        choices.iter().position(|choice| choice.slug == slug).unwrap_or_default()
    };
    let set = move |scenario: &mut Scenario, index: usize| {
        if let Some(choice) = choices.get(index) {
            put(key, scenario, choice.slug);
        }
    };
    let lens = state.lens(get, set);
    view! {
        <Select
            id=key.name
            label=label
            help=help
            choices=choices
            value=lens.value
            set=lens.set
            messages=issues(state, move |field| field == key.field)
        />
    }
}

/// Who generates answers: on the page vLLM on the same card is a choice of its own, where the scenario has its share of the card.
static ANSWERS_FROM: [Choice; 3] = [
    Choice {
        slug: "server",
        label: "vLLM elsewhere",
        help: "A server with GPUs of its own (vllm_mode=\"server\").",
    },
    Choice {
        slug: "colocated",
        label: "vLLM on the same card",
        help: "In the process that trains (vllm_mode=\"colocate\"), with a share of the card.",
    },
    Choice {
        slug: "transformers",
        label: "transformers",
        help: "The model that is trained, between its steps.",
    },
];

fn who_answers(key: &'static Key) -> impl IntoView {
    let state = State::of_page();
    let get = |scenario: &Scenario| match (scenario.generates_itself(), scenario.reserve.vllm) {
        (true, _) => 2,
        (false, 0) => 0,
        (false, _) => 1,
    };
    let set = |scenario: &mut Scenario, index: usize| {
        scenario.answers.rollouts = if index == 2 { Rollouts::Transformers } else { Rollouts::Server };
        match (index, scenario.reserve.vllm) {
            (0, _) => scenario.reserve.vllm = 0,
            (1, 0) => scenario.reserve.vllm = TRL_SHARE,
            _ => (),
        }
    };
    let lens = state.lens(get, set);
    view! {
        <Select
            id=key.name
            label=key.label
            help=help(key)
            choices=&ANSWERS_FROM
            value=lens.value
            set=lens.set
            messages=issues(state, move |field| field == key.field)
        />
    }
}

/// The numbers that a slider stops at.
const fn scale(count: Count) -> &'static Scale {
    match count {
        Count::Rank => &scale::RANK,
        Count::Sequences => &scale::BATCH,
        Count::SequencesOrNone => &scale::SEQUENCES_OR_NONE,
        Count::Texts => &scale::TEXTS,
        Count::Tokens => &scale::SEQUENCE,
        Count::Passes => &scale::ACCUMULATION,
        Count::Gpus => &scale::GPUS,
        Count::Elements => &scale::ELEMENTS,
        Count::ElementsOrNone => &scale::ELEMENTS_OR_NONE,
        Count::Mebibytes => &scale::MEBIBYTES,
        Count::Kibibytes => &scale::KIBIBYTES,
        Count::Percent => &scale::PERCENT,
        Count::DatasetTokens => &scale::DATASET,
        Count::Epochs => &scale::EPOCHS,
        Count::Cents => &scale::DOLLARS,
        Count::Pixels => &scale::PIXELS,
        Count::Frames => &scale::FRAMES,
        Count::LayersOrNone
        | Count::PicturesOrNone
        | Count::StageOrNone
        | Count::PassesOrNone
        | Count::TokensOrNone => &scale::OR_NONE,
    }
}

/// What a constant is on the scenario's card where it is left to that, in the unit of its box: `auto (481)`; nothing where the card has no CUDA.
fn automatic(field: Field, scenario: &Scenario) -> Option<String> {
    let gpu = scenario.gpu().ok().filter(|gpu| gpu.vendor == Vendor::Nvidia)?;
    let (taken, unit) = match field {
        Field::Context => (gpu.context, BYTES_PER_MIB),
        Field::Workspace => (Bytes(Device::of(&gpu).workspace), BYTES_PER_KIB),
        _ => return None,
    };
    Some(format!("auto ({})", grouped(taken.0.div_ceil(unit))))
}

/// What a number counts, behind its box.
const fn unit(count: Count) -> &'static str {
    match count {
        Count::Mebibytes => "MiB",
        Count::Kibibytes => "KiB",
        Count::Percent => "%",
        _ => "",
    }
}

/// Called by its label and the sentence on it under the scenario's other choices.
fn number(key: &'static Key, (label, help): (&'static str, &'static str), count: Count) -> impl IntoView {
    let state = State::of_page();
    // of GPUs the key reads machines of them, too
    let otherwise = move |text: String| {
        let is_read = untrack(|| {
            state
                .current()
                .scenario
                .with(|scenario| key.field == Field::Gpus && key.read(&mut scenario.clone(), &text).is_ok())
        });
        if is_read {
            state.change(|scenario| put(key, scenario, &text));
        }
        is_read
    };
    let lens = state.lens(
        move |scenario| key.write(scenario).parse().unwrap_or(1.),
        move |scenario, value: f64| put(key, scenario, &(value as u64).to_string()),
    );
    view! {
        <Slider
            id=key.name
            label=label
            help=format!("{help}.")
            scale=scale(count)
            value=lens.value
            set=lens.set
            messages=issues(state, move |field| field == key.field)
            unit=unit(count)
            automatic=state.of_scenario(move |scenario| automatic(key.field, scenario))
            otherwise=Callback::new(otherwise)
        />
    }
}

/// A price, in dollars where the scenario keeps cents.
fn dollars(key: &'static Key) -> impl IntoView {
    let state = State::of_page();
    let lens = state.lens(
        move |scenario| key.write(scenario).parse().unwrap_or(0.) / scale::CENTS,
        move |scenario, value: f64| put(key, scenario, &((value * scale::CENTS).round() as u64).to_string()),
    );
    // what is reckoned with where the box is empty
    let usual = move || {
        let listed = state.current().answer(|scenario, memory, _| {
            let scenario = Scenario { data: Data { cents: 0, ..scenario.data }, ..scenario.clone() };
            pace(&scenario, memory).ok()?.dollars_per_gpu_hour()
        });
        Some(match listed.flatten() {
            Some(dollars) => format!("auto ({dollars:.2}, as listed)"),
            None => "not on record".to_owned(),
        })
    };
    view! {
        <Slider
            id=key.name
            label=summary::PRICE
            help="What an hour of one GPU costs you, as in 2.50. Left empty, it is that of the cheapest machine on record with the card."
            scale=&scale::DOLLARS
            value=lens.value
            set=lens.set
            messages=issues(state, move |field| field == key.field)
            unit="$"
            automatic=Signal::derive(usual)
        />
    }
}

fn toggle(key: &'static Key) -> impl IntoView {
    let state = State::of_page();
    let lens = state.lens(
        // the engine of a single GPU is on where it is chosen, too
        move |scenario| {
            key.write(scenario) == "on" && (key.field != Field::ShardsAlone || scenario.cluster.is_fsdp2())
        },
        move |scenario, on: bool| {
            put(key, scenario, if on { "on" } else { "off" });
            if on && key.field == Field::ShardsAlone {
                scenario.cluster.sharding = Sharding::Fsdp2;
            }
        },
    );
    view! {
        <Switch
            id=key.name
            label=key.label
            help=help(key)
            value=lens.value
            set=lens.set
            messages=issues(state, move |field| field == key.field)
        />
    }
}

fn text(key: &'static Key) -> impl IntoView {
    let state = State::of_page();
    let read = move |text: String| {
        let mut trial = untrack(|| state.current().scenario.get());
        key.read(&mut trial, &text).map_err(|_| format!("use {}", key.valid()))?;
        state.change(|scenario| key.copy(scenario, &trial));
        Ok(())
    };
    view! {
        <TextBox
            id=key.name
            label=key.label
            help=format!("{}: {}.", key.help, key.valid())
            value=state.of_scenario(|scenario| key.write(scenario))
            set=Callback::new(read)
            messages=issues(state, move |field| field == key.field)
            usual=match key.kind() {
                ValueKind::Dropout => ("config", "auto (as in its config)"),
                _ => ("equal", "auto (all equal)"),
            }
        />
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

/// The model, with its size where it is no real one.
#[component]
fn Model(key: &'static Key) -> impl IntoView {
    let state = State::of_page();
    let is_real = state.of_scenario(|scenario| size(scenario).is_none());
    let pick = move |picked: String| match picks::hub_id(&picked) {
        Some(id) => state.own.show_id(id),
        None => state.change(|scenario| scenario.model = picks::model_of(&picked)),
    };
    let billions = state.lens(
        |scenario| size(scenario).unwrap_or(1.),
        |scenario, billions| scenario.model = ModelChoice::Size(billions),
    );
    view! {
        <div class="model">
            <Combobox
                id=key.name
                label=key.label
                help="Any model of the catalogue: type a few words of its name. Or type a size such as 13b for models of it and \
                      a Llama-shaped one of just so many parameters, or the id of any other model on the Hub."
                chosen=state.of_scenario(|scenario| picks::model_label(&scenario.model))
                find=picks::find_models
                pick=Callback::new(pick)
                messages=issues(state, move |field| field == key.field)
            />
            <OwnModel />
        </div>
        <div hidden=is_real>
            <Slider
                id="billions"
                label="Model size"
                help="Billions of parameters. The shape is between those of real Llama-like models of nearby sizes."
                scale=&scale::BILLIONS
                value=billions.value
                set=billions.set
                messages=Signal::stored(Vec::new())
                unit="B"
            />
        </div>
    }
}

/// The model that is learned from.
fn teacher(key: &'static Key) -> impl IntoView {
    let state = State::of_page();
    let lens = state.lens(
        |scenario| picks::teacher_label(scenario.teacher.model.as_ref()),
        |scenario, picked: String| scenario.teacher.model = picks::teacher_of(&picked),
    );
    view! {
        <Combobox
            id=key.name
            label=key.label
            help="The model that is learned from, which lies on the card beside the one that is trained. Its vocabulary has to be as large."
            chosen=lens.value
            find=picks::find_teachers
            pick=lens.set
            messages=issues(state, move |field| field == key.field)
        />
    }
}

/// The card, with its memory where it is no real one.
#[component]
fn Card(key: &'static Key) -> impl IntoView {
    let state = State::of_page();
    let is_real = state.of_scenario(|scenario| memory(scenario).is_none());
    let gpu = state.lens(
        |scenario| picks::gpu_label(&scenario.gpu),
        |scenario, picked: String| picks::take_gpus(scenario, &picked),
    );
    let gib = state.lens(
        |scenario| memory(scenario).unwrap_or_default().as_gib(),
        |scenario, gib| scenario.gpu = GpuChoice::Custom(Bytes::gib(gib)),
    );
    view! {
        <Combobox
            id=key.name
            label=key.label
            help="The card that the run is to fit on, each of them where there are several. Type a name, several such as 8x H100, or an amount \
                  such as 24 for the cards with that memory, and one that has all of it."
            chosen=gpu.value
            find=picks::find_gpus
            pick=gpu.set
            messages=issues(state, move |field| field == key.field)
        />
        <div hidden=is_real>
            <Slider
                id="memory"
                label="GPU memory"
                help="What a program can have of the card, in GiB: what nvidia-smi shows as total."
                scale=&scale::CARD
                value=gib.value
                set=gib.set
                messages=Signal::stored(Vec::new())
                unit="GiB"
            />
        </div>
    }
}

/// The layers with adapters: a group, or their names.
#[component]
fn Targets(key: &'static Key) -> impl IntoView {
    let state = State::of_page();
    let is_group = state.of_scenario(|scenario| scenario.lora.targets != LoraTargets::Named);
    let group = state.lens(|scenario| scenario.lora.targets.index(), set_targets);
    let names = state.of_scenario(|scenario| scenario.lora.modules.to_string());
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
        <div class="targets">
            <Select
                id=key.name
                label=key.label
                help=help(key)
                choices=LoraTargets::CHOICES
                value=group.value
                set=group.set
                messages=issues(state, move |field| field == key.field)
            />
            <div hidden=is_group>
                <TextBox
                    id="modules"
                    label="Layer names"
                    help="As in peft's target_modules, with commas between them."
                    value=names
                    set=Callback::new(read)
                    messages=Signal::stored(Vec::new())
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
