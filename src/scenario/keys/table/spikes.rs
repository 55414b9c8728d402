//! What happens outside the steps.

use super::super::key::{Group, Key, Place, Value, ValueKind};
use super::super::matters::{with_merging, with_saving};
use super::super::nearest::nearest;
use super::super::values::choice;
use crate::scenario::{Field, Merges, Saves};

pub(super) const KEYS: &[Key] = &[
    Key {
        link: "save",
        name: "saving",
        label: "Checkpoints",
        help: "Whether the trainer saves a checkpoint after some of its steps (save_strategy), weights or adapters and the optimizer's state, and whether weights that are divided are gathered for it",
        field: Field::Saving,
        group: Group::Spikes,
        place: Place::Folded,
        value: choice!(Saves, spikes.saving),
        matters: with_saving,
        band: |scenario| if scenario.saves() { "saved" } else { "" },
    },
    Key {
        link: "merge",
        name: "merging",
        label: "Merging",
        help: "Where adapters are merged into the weights when the training is over (peft's merge_and_unload)",
        field: Field::Merging,
        group: Group::Spikes,
        place: Place::Folded,
        value: choice!(Merges, spikes.merging),
        matters: with_merging,
        band: |scenario| if scenario.merges() == Merges::Gpu { "merged" } else { "" },
    },
];
