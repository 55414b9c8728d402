//! Where all ways of bringing a model end.

use leptos::prelude::*;

use crate::issue::Issue;
use crate::scenario::{CustomModel, ModelChoice};
use crate::ui::controls::TextBox;
use crate::ui::state::State;
use crate::ui::summary;
use crate::ui::way::Own;

/// Longer names are cut: they stand in every link.
const LONGEST_NAME: usize = 80;

/// Puts a model of the user's own in the place of the active scenario's.
///
/// # Errors
/// As [`CustomModel::read`]; the scenario stays as it was.
pub fn bring(state: State, name: &str, config: &str) -> Result<(), Issue> {
    let name: String = name.trim().chars().take(LONGEST_NAME).collect();
    let mut model = CustomModel::read(&name, config)?;
    if model.name.is_empty() {
        model.name = summary::unnamed(&model.architecture);
    }
    let told = format!("Opened {}", model.name);
    let mut scenario = untrack(|| state.current().scenario.get());
    scenario.change(|scenario| scenario.model = ModelChoice::Custom(model.into()));
    state.open(scenario, &told);
    state.own.open.set(false);
    // The next one is another.
    state.own.name.set(String::new());
    Ok(())
}

/// The end of a part whose model still wants a name.
pub fn finish(own: Own, id: &'static str, mut act: impl FnMut() + 'static) -> impl IntoView {
    let rename = move |name: String| {
        own.name.set(name);
        Ok(())
    };
    view! {
        <div class="own-finish">
            <TextBox
                id=id
                label="Name (optional)"
                help="What the page and its links call the model; by its kind and size where it has no name."
                value=own.name.into()
                set=Callback::new(rename)
                messages=Signal::stored(Vec::new())
            />
            <button type="button" class="tool strong" on:click=move |_| act()>
                "Use this model"
            </button>
        </div>
    }
}
