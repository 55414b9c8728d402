//! A memory snapshot of one's own run, to be laid over the predicted step.

use leptos::prelude::*;
use leptos::task::spawn_local;

use crate::ui::browser::File;
use crate::ui::state::{State, TraceFile};
use crate::ui::view::View;
use crate::units::Bytes;

/// The largest file that is read.
const LONGEST: Bytes = Bytes(256 << 20);

/// Whether a file of that name is one: `_dump_snapshot` leaves the name to its caller, and its examples say pickle.
pub fn is_one(name: &str) -> bool {
    let ending = name.rsplit('.').next().unwrap_or_default();
    ["pickle", "pkl"].iter().any(|known| ending.eq_ignore_ascii_case(known))
}

/// Takes a file as the snapshot and shows it.
pub fn take(state: State, file: web_sys::File) {
    let name = file.name();
    let bytes = Bytes(file.size() as u64);
    if bytes > LONGEST {
        let most = LONGEST.in_binary_unit();
        return state.tell(&format!(
            "{name} has {}, and this page reads {most} at most: record fewer steps, or without stacks",
            bytes.in_binary_unit()
        ));
    }
    spawn_local(async move {
        match File::of(&file).await {
            Some(file) => {
                state.trace.set(Some(TraceFile { name, file }));
                state.view.set(View::Timeline);
            }
            None => state.tell(&format!("{name} could not be read: was it moved?")),
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_are_told_from_configs() {
        assert!(["snapshot.pickle", "a.b.PKL"].into_iter().all(is_one));
        assert!(!["config.json", "", "snapshot.pickle.json"].into_iter().any(is_one));
    }
}
