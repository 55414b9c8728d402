//! The table of a rotary embedding as torchtune's builders of a family size it.

use crate::job::Member;
use crate::model::Architecture;
use crate::model::modeling::Torchtune;

/// What torchtune's builders of the model's family do; none where [`super::architecture`] refuses it.
pub(super) fn family(architecture: &Architecture) -> Option<Torchtune> {
    architecture.family.and_then(|family| family.stacks.torchtune)
}

/// A table of the sines and cosines of all positions, float32.
#[derive(Clone, Copy)]
pub(in crate::step::forward) struct Positions {
    pub(super) rows: u64,
    pub(super) width: u64,
    /// Whether each entry stands there twice.
    pub(super) doubled: bool,
    /// Whether every layer makes its own.
    pub each_layer: bool,
}

impl Positions {
    /// The model's table; none where queries and keys are not rotated.
    pub fn of(architecture: &Architecture, member: &Member) -> Option<Positions> {
        let attention = architecture.blocks.iter().find_map(|block| block.mixer.attention())?;
        let family = family(architecture)?;
        let long = architecture.head.tied || architecture.max_positions.is_some_and(|most| most > 16_384);
        Some(Positions {
            rows: architecture.max_positions.unwrap_or(0),
            width: attention.rotary.width(attention.head_dim)?,
            doubled: family.rotary.is_doubled(),
            each_layer: member.adapts && !(family.shares_long_rotary && long),
        })
    }
}
