//! An out-of-memory message that somebody pastes: which tensor it was, where the memory was, what removes it.

use std::cell::RefCell;
use std::sync::Arc;

use leptos::ev::Event;
use leptos::prelude::*;

use super::document::Grounds;
use super::levers::change_button;
use super::zoom::cited;
use crate::oom::{Decoded, Suspect};
use crate::plan::{Change, Lever};
use crate::ui::behind::Behind;
use crate::ui::browser::Later;
use crate::ui::controls::{Cell, Row, Table, columns};
use crate::ui::desk::Place;
use crate::ui::format::Unit;
use crate::ui::markup::{capitalised, unbroken};
use crate::ui::question::{Answer, Question};
use crate::ui::state::State;

/// How long, in milliseconds, the keys must rest before the text is read.
const REST: u32 = 200;
const SILENT: &str = "That could not be looked for: the worker beside the page did not answer";
/// So many changes are buttons.
const BUTTONS: usize = 3;

/// What a text means beside the active scenario, or why it means nothing.
type Read = Result<Arc<(Decoded, Vec<Lever>)>, String>;

/// The box for the message, and what it means.
#[component]
pub fn OutOfMemory() -> impl IntoView {
    let state = State::of_page();
    let text = state.pasted;
    let open = RwSignal::new(text.with_untracked(|text| !text.is_empty()));
    let read = RwSignal::new(None::<Read>);
    let looks = RwSignal::new(false);
    let later = Later::default();
    let last = RefCell::new(String::new());
    Effect::new(move || {
        later.cancel();
        state.desk.with_value(|desk| desk.forget(Place::Oom));
        let text = text.get();
        // what was said of another text is gone with it
        if text != *last.borrow() {
            read.set(None);
            if !text.is_empty() {
                open.set(true);
            }
            last.replace(text.clone());
        }
        looks.set(!text.trim().is_empty());
        if text.trim().is_empty() {
            return;
        }
        let scenario = state.current().scenario.get();
        later.run(REST, move || {
            state.desk.with_value(|desk| {
                desk.ask(Place::Oom, Question::Oom(text, Box::new(scenario)), move |answer| {
                    looks.set(false);
                    read.set(Some(match answer {
                        Some(Answer::Oom(answer)) => answer.map(|found| Arc::new(*found)),
                        _ => Err(SILENT.to_owned()),
                    }));
                });
            });
        });
    });
    let write = move |event: Event| text.set(event_target_value(&event));
    let shown = move || {
        let unit = state.unit();
        match read.get() {
            Some(Ok(found)) => Some(decoded(state, &found.0, &found.1, unit)),
            Some(Err(problem)) => {
                Some(view! { <p class="message warning">{capitalised(&problem)}"."</p> }.into_any())
            }
            None => None,
        }
    };
    let busy = move || looks.get().to_string();
    view! {
        <section class="panel oom pasting" aria-labelledby="oom-title">
            <details prop:open=move || open.get()>
                <summary>
                    <h2 id="oom-title">"Did it run out of memory? Paste the error"</h2>
                </summary>
                <label for="oom-text" class="remark">
                    "The line with “Tried to allocate …”, the table of torch.cuda.memory_summary(), what nvidia-smi shows, what vLLM says as it starts, or \
                     “Killed”. Ctrl V anywhere on the page does, too. It is read here and sent nowhere, and looked for in the run of the scenario above."
                </label>
                <textarea
                    id="oom-text"
                    rows="4"
                    spellcheck="false"
                    autocomplete="off"
                    autocapitalize="none"
                    prop:value=move || text.get()
                    on:input=write
                ></textarea>
                <p class="remark" hidden=move || !looks.get()>
                    "Looking for it in the run of this scenario …"
                </p>
                <div class="found" aria-live="polite" aria-busy=busy>{shown}</div>
                <Grounds of=Behind::OutOfMemory />
            </details>
        </section>
    }
}

/// What it was and what helps first, then what that follows from.
fn decoded(state: State, decoded: &Decoded, remedies: &[Lever], unit: Unit) -> AnyView {
    let Decoded { account, suspects, likely, guesses, findings, offers, .. } = decoded;
    let rows: Vec<Row> = account
        .iter()
        .map(|(holder, bytes)| Row {
            head: Cell::of(holder.label()),
            cells: vec![Cell::of(unit.amount(*bytes))],
            ..Row::default()
        })
        .collect();
    let table = (!rows.is_empty()).then(|| {
        view! {
            <Table
                caption="Where the card's memory was"
                class="oom-account"
                columns=Signal::stored(columns(["Where the card's memory was", "Memory"]))
                rows=Signal::stored(rows)
            />
        }
    });
    let (of_the_run, of_others): (Vec<_>, Vec<_>) =
        suspects.iter().partition(|suspect| suspect.agrees != Some(false));
    let tensor = of_the_run.first().map(|suspect| of_suspect(suspect, unit));
    let others = (tensor.is_none() && !of_others.is_empty()).then(|| {
        view! {
            <details open>
                <summary>"What else has that size"</summary>
                {of_others.into_iter().map(|suspect| of_suspect(suspect, unit)).collect::<Vec<_>>()}
            </details>
        }
    });
    let findings = findings.iter().map(|finding| view! { <li>{finding.to_string()}</li> });
    let helps = remedies.iter().take(BUTTONS).map(|lever| {
        let effect =
            format!("needs {} · {}", unit.amount(lever.needed), lever.verdict.label().to_lowercase());
        change_button(state, &lever.changes, effect, &lever.scenario)
    });
    let runs = likely.iter().map(|likely| {
        let Suspect { line, phase, .. } = &likely.suspect;
        let effect = format!("there {} is {} in the {phase}", unit.amount(line.bytes), line.what);
        change_button(state, &likely.changes, effect, &likely.scenario)
    });
    let others_of_size = guesses.iter().map(|guess| {
        let changes = Change::between(&decoded.scenario, &guess.scenario, "model");
        let effect = format!("{}: {}", guess.kind, guess.in_words(|bytes| unit.amount(bytes)));
        change_button(state, &changes, effect, &guess.scenario)
    });
    let offered =
        offers.iter().map(|offer| change_button(state, &offer.changes, offer.why.clone(), &offer.scenario));
    // the card alone, before anything that changes the run with it
    let mut there = untrack(|| state.current().scenario.get());
    there.change(|scenario| scenario.gpu = decoded.scenario.gpu.clone());
    let card = decoded.card.first().map(|card| {
        let words = format!("Use that card: {}", card.to);
        let (told, there) = (words.clone(), there.clone());
        view! {
            <button type="button" class="tool" on:click=move |_| state.open(there.clone(), &told)>
                {words}
            </button>
        }
    });
    let headline = decoded.headline(|bytes| unit.amount(bytes));
    let asked = headline.map(|headline| view! { <p><b>{headline}</b></p> });
    let helped = if decoded.is_of_the_run() { "What helps" } else { "What helps the scenario above" };
    view! {
        {card}
        {asked}
        {tensor}
        <ul>{findings.collect::<Vec<_>>()}</ul>
        {choice("Change the scenario", offered.collect())}
        {choice("Was it this run?", runs.collect())}
        {choice("Was it one of these?", others_of_size.collect())}
        {choice(helped, helps.collect())}
        {table}
        {others}
    }
    .into_any()
}

/// Buttons under a heading, where there are any.
fn choice<B: IntoView + 'static>(title: &'static str, buttons: Vec<B>) -> Option<impl IntoView + use<B>> {
    (!buttons.is_empty()).then(|| {
        view! {
            <h3>{title}</h3>
            <div class="lever-buttons">{buttons}</div>
        }
    })
}

fn of_suspect(suspect: &Suspect, unit: Unit) -> impl IntoView + use<> {
    let Suspect { line, phase, allocated, agrees, place } = suspect;
    // where the message says the size alone, that is no proof
    let (could_be, said) = match agrees {
        Some(true) => ("", " in this scenario, about as much as in the message"),
        Some(false) => ("", " in this scenario, which is not as in the message"),
        None => ("Could be ", " in this scenario"),
    };
    let place = place.map(|place| format!(" The traceback stands {place}."));
    view! {
        <p>
            <b>{format!("{could_be}{} in the {phase}", line.what)}</b>
            {unbroken(&format!(": {}, {}. ", unit.amount(line.bytes), line.formula))}
            {format!("{}. {} were allocated before it{said}.", capitalised(&line.why), unit.amount(*allocated))}
            {place}
            " " <small>{cited(&line.source)}</small>
        </p>
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oom::{decode, remedies};
    use crate::share;
    use crate::ui::desk::Desk;
    use crate::ui::markup::plain;

    /// What is shown of a text beside a scenario.
    fn shown(text: &str, link: &str) -> String {
        let scenario = share::decode(link).scenarios.remove(0);
        let found = decode(text, &scenario).expect("a message");
        let changes = remedies(&found).expect("changes");
        Owner::new().with(|| {
            let state = State::new(vec![scenario], Desk::default());
            plain(&decoded(state, &found, &changes, Unit::Binary).to_html())
        })
    }

    #[test]
    fn what_a_text_offers_to_change_is_a_button() {
        let taken = "Free memory on device cuda:0 (3.21/23.64 GiB) on startup is less than desired GPU memory utilization (0.9, 21.28 GiB).";
        let refused = "DefaultCPUAllocator: not enough memory: you tried to allocate 68719476736 bytes.";
        let managed = "Error out of memory at line 380 in file /git/bitsandbytes/csrc/pythonInterface.c";
        // github.com/lm-sys/FastChat/issues/2701
        let scores = "CUDA out of memory. Tried to allocate 1.25 GiB (GPU 1; 79.10 GiB total capacity; 76.13 GiB already allocated; 290.12 MiB free; \
                      77.47 GiB reserved in total by PyTorch)";
        for (text, link, words) in [
            (managed, "o=paged-adamw-8bit", ["managed memory", "Optimizer: AdamW 8-bit"]),
            (
                scores,
                "",
                ["Was it one of these?", "attention's scores: 4,096 tokens × 4,096 keys × 40 heads"],
            ),
            (taken, "gpu=rtx-4090", ["vLLM asked for 21.3 GiB of the card", "Memory in use: 20,921 MiB"]),
            (
                refused,
                "st=trl&offload=on",
                ["64.0 GiB of the computer's memory", "Activation offloading: Off"],
            ),
        ] {
            let html = shown(text, link).replace("&#x27;", "'");
            let buttons: Vec<&str> = html.split("<button").skip(1).collect();
            assert!(html.contains(words[0]), "{} is missing in {html}", words[0]);
            assert!(
                buttons.iter().any(|button| button.contains(words[1])),
                "{} is missing in {html}",
                words[1]
            );
        }
    }

    #[test]
    fn the_card_of_the_message_is_one_button() {
        let text = "CUDA out of memory. Tried to allocate 1002.00 MiB. GPU 0 has a total capacity of 11.76 GiB of which 301.00 MiB is free.";
        let html = shown(text, "");
        let first = html.split("<button").nth(1).expect("a button");
        assert!(first.contains(">Use that card: "), "{html}");
        assert!(!shown(text, "gpu=rtx-3060-12gb").contains("Use that card"));
    }

    #[test]
    fn the_tensor_and_what_removes_it_are_shown() {
        let link = "m=Qwen/Qwen2.5-0.5B&method=full&p=amp-bf16&b=8&s=512&gpu=rtx-4090";
        let text = "CUDA out of memory. Tried to allocate 2.32 GiB. GPU 0 has a total capacity of 10.00 GiB of which 2.25 GiB is free. \
                    Of the allocated memory 7.10 GiB is allocated by PyTorch, and 657.89 MiB is reserved by PyTorch but unallocated.";
        let html = shown(text, link);
        for words in [
            "PyTorch asked for 2.32 GiB, and",
            "log_softmax",
            "4,096 tokens × 151,936 × 4 bytes",
            "658 MiB that PyTorch had reserved lay unallocated, in pieces.",
            "Loss kernel: Liger fused",
        ] {
            assert!(html.contains(words), "{words} is missing in {html}");
        }
    }
}
