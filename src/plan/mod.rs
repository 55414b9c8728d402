//! Planning: does it fit, and what is the most that does.

mod answer;
mod batches;
mod bracket;
mod cards;
mod cell;
mod contexts;
mod counts;
mod each;
mod exchange;
mod fit;
mod generation;
mod gpus;
mod largest;
mod layouts;
mod level;
mod levers;
mod need;
mod offers;
mod on_card;
mod recorded;
mod repairs;
mod serving;
mod settings;
mod solve;
mod speeds;
mod table;
mod texts;
mod time;
mod verdict;

pub use crate::units::Between;
pub use crate::vllm::{Room, Share, Start};
pub use answer::Answer;
pub(crate) use answer::joined;
pub use batches::{BatchRow, PerSequence, Reached, batch_row, on_usual_cards, passes_in_words, reach};
pub use cell::{FitCell, Measure};
pub use contexts::{BATCHES, CONTEXTS, ContextCell, ContextRow, contexts};
pub use counts::GPU_COUNTS;
pub(crate) use each::each;
pub use exchange::Exchange;
pub use fit::{Fit, Margin, fits, within};
pub use gpus::{Layout, fewest_gpus, on_gpus};
pub use largest::{HeldModel, LargestModel, largest_in_words, largest_model, of_catalogue};
pub use layouts::{Way, WayOrder, WayOutcome, fewest_layouts, layouts, rank_ways, refusals, tried, ways};
pub use level::Level;
pub use levers::{
    Change, Cost, Gain, LargerCard, Lever, Levers, Looks, USES, Use, ahead, beyond_in_words, changes, levers,
    look, use_of,
};
pub use need::{Held, MOST_TOGETHER, NeedCell, NeedRow, Several, alike, need, need_of_each, usual_cards};
pub use offers::{Offer, cheapest_first, cheapest_run};
pub use on_card::{OnCard, Outcome, Replayed};
pub use repairs::{Repair, instead, repairs};
pub use serving::{
    Chosen, FormatRow, Needed, SEQUENCES, ServingRow, UTILISATION, among, by_batch, chosen, kernels,
    least_room, refused_alike, serving, told, unanswered,
};
pub use settings::{setting_name, settings, tried_settings};
pub use solve::{Largest, largest_batch, largest_rank, longest_sequence};
pub use speeds::{Near, Speed};
pub use table::{FitRow, conditions, on_one, row, table, with_method};
pub use texts::{Limit, MicroBatch, Order, Outlook, order, outlook};
pub use time::{Pace, Span, pace};
pub use verdict::Verdict;
