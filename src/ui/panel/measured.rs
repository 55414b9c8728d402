//! The measured runs, fetched where they are first asked for, and the one that is most like a scenario.

use std::sync::Arc;

use leptos::prelude::*;
use leptos::task::spawn_local;

use crate::accuracy::software;
use crate::check::{Metric, Run, nearest, read_runs};
use crate::scenario::Scenario;
use crate::ui::browser::{self, NoText};
use crate::ui::proof::FILE;
use crate::ui::state::{Measured, State};

/// Fetches the runs, unless they are here or on their way.
pub fn fetch(state: State) {
    if matches!(state.measured.get_untracked(), Measured::Awaited | Measured::Here(_)) {
        return;
    }
    state.measured.set(Measured::Awaited);
    spawn_local(async move {
        let answer = browser::fetch(FILE).await.map(|text| read_runs(&text));
        state.measured.set(match answer {
            Ok(runs) if !runs.is_empty() => Measured::Here(Arc::new(runs)),
            Ok(_) | Err(NoText::Status { .. } | NoText::TooLong(_)) => {
                Measured::Failed("The file with the measured runs is not where this page lies.")
            }
            Err(NoText::Offline) => {
                Measured::Failed("This browser is offline, and the measured runs were not kept.")
            }
            Err(NoText::Unreached | NoText::Late) => Measured::Failed("The measured runs did not come."),
        });
    });
}

/// The measured run that is most like a scenario, where the runs are here: of those by the same software one whose allocated peak was
/// measured, which is what the measured error is of.
pub fn nearest_to(measured: &Measured, scenario: &Scenario) -> Option<Run> {
    let Measured::Here(runs) = measured else { return None };
    let architecture = scenario.architecture().ok()?;
    let software = software(scenario);
    let is_alike = |run: &&Run| {
        run.software == software && run.task() == scenario.task && run.figure(Metric::Allocated).is_some()
    };
    let alike: Vec<Run> = runs.iter().filter(is_alike).cloned().collect();
    let among = if alike.is_empty() { runs.as_slice() } else { alike.as_slice() };
    nearest(among, &architecture, scenario).cloned()
}
