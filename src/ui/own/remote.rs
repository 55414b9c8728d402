//! A model from the Hub: asked for on a click, and not before.

use leptos::ev::{MouseEvent, SubmitEvent};
use leptos::prelude::*;
use leptos::task::spawn_local;

use super::bring::bring;
use crate::issue::{Field, Issue};
use crate::ui::browser;
use crate::ui::controls::{Messages, TextBox};
use crate::ui::hub;
use crate::ui::state::State;

/// The part of the dialog with the id.
pub fn draw(state: State) -> impl IntoView {
    let own = state.own;
    let busy = RwSignal::new(false);
    let ask = move |event: SubmitEvent| {
        event.prevent_default();
        if busy.get_untracked() {
            return;
        }
        let Some(id) = own.id.with_untracked(|typed| hub::id(typed)) else {
            let wanted = Issue::error(Field::Model, "this is no id of a model on the Hub");
            return own.complain(&wanted.with_fix("write it as org/name, or paste the address of its page"));
        };
        busy.set(true);
        own.problem.set(Vec::new());
        spawn_local(async move {
            let answer = browser::fetch(&hub::file(&browser::hub(), &id)).await;
            busy.set(false);
            // Who closed the dialog meanwhile has changed their mind.
            if !own.open.get_untracked() {
                return;
            }
            let taken = match answer {
                Ok(config) => bring(state, &id, &config).map_err(|issue| hub::unreadable(&id, &issue)),
                Err(why) => Err(hub::problem(&id, &why)),
            };
            if let Err(issue) = taken {
                own.complain(&issue);
            }
        });
    };
    let write = move |typed: String| {
        own.id.set(typed);
        Ok(())
    };
    let fine = move || own.problem.with(Vec::is_empty);
    let page = move || {
        let id = own.id.with(|typed| hub::id(typed));
        id.map_or_else(browser::hub, |id| hub::page(&browser::hub(), &id))
    };
    let label = move || if busy.get() { "Asking …" } else { "Fetch" }.to_owned();
    view! {
        <form class="own-part" on:submit=ask>
            <div class="own-finish">
                <TextBox
                    id="own-id"
                    label="Id or address on the Hub"
                    help="As org/name, or the address of the model's page."
                    value=own.id.into()
                    set=Callback::new(write)
                    messages=Signal::stored(Vec::new())
                />
                <button type="submit" class="tool strong">
                    {Signal::derive(label)}
                </button>
            </div>
            <div role="alert">
                <Messages issues=own.problem />
            </div>
            <p class="own-ways-out" hidden=Signal::derive(fine)>
                <button type="button" class="tool" on:click=move |_: MouseEvent| own.paste_instead()>
                    "Paste it instead"
                </button>
                <a class="tool" target="_blank" rel="noreferrer" href=Signal::derive(page)>
                    "Open the file on the Hub"
                </a>
            </p>
            <p class="remark">
                "Fetch asks the Hub for this model’s config.json, without cookies. Nothing else ever leaves the browser."
            </p>
        </form>
    }
}
