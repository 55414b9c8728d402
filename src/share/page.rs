//! What the page adds to a link beside its scenarios: names that are frozen, and what the command takes of them.

/// Which view is shown.
pub const VIEW: &str = "view";
/// That the page stands in another one.
pub const EMBED: &str = "embed";
/// Which of several scenarios the controls change, the first where it is not said.
pub const SELECTED: &str = "selected";
/// What a run of somebody's own took.
pub const TOOK: &str = "took";
/// The memory, in GiB, that the table of models is asked about.
pub const MEMORY: &str = "budget";
/// The library of the tables.
pub const LIBRARY: &str = "table-stack";
/// What the cells of the table of models say.
pub const CELLS: &str = "table-cells";
/// The words that mean its models.
pub const WORDS: &str = "table-models";
/// The effective batch.
pub const EFFECTIVE: &str = "effective";
/// The GPUs that layouts are asked about.
pub const GPUS: &str = "layout-gpus";
/// What the curves are drawn against.
pub const AXIS: &str = "against";
/// How tables are sorted, `cards.2,changes.3.down`.
pub const SORTED: &str = "sorted";

/// Which step the timeline shows, where it is the first.
pub const STEP: &str = "step";
/// The part of the step that the timeline shows, by the numbers of its first event and the one behind it.
pub const STRETCH: &str = "stretch";
/// The moment of it, by the number of its event.
pub const MOMENT: &str = "moment";
/// What of it is drawn, where that is not all.
pub const DRAWN: &str = "drawn";

/// All of them.
pub(super) const NAMES: [&str; 16] = [
    VIEW, EMBED, SELECTED, TOOK, MEMORY, LIBRARY, CELLS, WORDS, EFFECTIVE, GPUS, AXIS, SORTED, STEP, STRETCH,
    MOMENT, DRAWN,
];
