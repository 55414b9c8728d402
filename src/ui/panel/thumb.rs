//! What rules of thumb say, beside what the run takes.

use leptos::prelude::*;

use super::document::Grounds;
use crate::rules::{Figures, about, held_against, level, of_one_gpu, rules};
use crate::ui::behind::Behind;
use crate::ui::controls::meaning;
use crate::ui::state::State;

/// Each rule with what it says of the scenario and where it goes wrong.
#[component]
pub fn Thumb() -> impl IntoView {
    let state = State::of_page();
    let told = move || {
        let unit = state.unit();
        state.current().answer(|scenario, memory, gpu| {
            let figures = Figures::of(scenario, &*scenario.architecture().ok()?);
            let needed = memory.needed();
            let against = held_against(scenario, needed);
            let line = |(number, rule): (usize, &'static crate::rules::Rule)| {
                let total = rule.total(&figures);
                let share = against.map_or_else(String::new, |needed| {
                    format!("{:.0} % of what is needed. ", total.percent_of(needed))
                });
                view! {
                    <div>
                        <dt>{meaning(format!("rule-{number}"), rule.name, rule.formula, None)}</dt>
                        " "
                        <dd>
                            <b>{unit.amount(total)}</b>
                            {format!(", {share}{}", rule.wrong)}
                            " "
                            <small>{rule.source}</small>
                        </dd>
                    </div>
                }
            };
            let commands =
                gpu.watch().iter().map(|command| view! { <li><code>{*command}</code></li> });
            let watch = (!gpu.watch().is_empty()).then(|| {
                view! {
                    <p class="remark">"Watch the real memory while it runs:"</p>
                    <ul>{commands.collect::<Vec<_>>()}</ul>
                }
            });
            let lines = rules(scenario).iter().enumerate().map(line).collect::<Vec<_>>();
            let about = about(scenario).map(|words| view! { <p class="remark">{words}</p> });
            let alone = against.and_then(|alone| of_one_gpu(scenario, &unit.amount(alone)));
            let alone = alone.map(|words| view! { <p class="remark">{words}</p> });
            Some(view! {
                {about}
                {alone}
                <p class="remark">{format!("By a guide that was written for cards of 12 GB (AGI2’s), the {} that are needed are {}.", unit.amount(needed), level(needed))}</p>
                <dl class="pace">{lines}</dl>
                {watch}
            })
        })
    };
    view! {
        {told}
        <Grounds of=Behind::Rules />
    }
}
