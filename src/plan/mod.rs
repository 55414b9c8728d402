//! Planning: does it fit, and what is the most that does.

mod answer;
mod batches;
mod contexts;
mod exchange;
mod fit;
mod gpus;
mod layouts;
mod levers;
mod need;
mod on_card;
mod serving;
mod settings;
mod solve;
mod speeds;
mod table;
mod texts;
mod time;
mod verdict;

pub use answer::Answer;
pub use batches::{BatchRow, Reached, batch_row, fixed_and_per_sequence, on_usual_cards, reach};
pub use contexts::{BATCHES, CONTEXTS, ContextCell, ContextRow, contexts};
pub use fit::{Fit, Margin, fits, within};
pub use gpus::{GPU_COUNTS, Layout, fewest_gpus, on_gpus};
pub use layouts::{Way, WayOrder, WayOutcome, fewest_layouts, layouts, rank_ways, refusals, tried, ways};
pub use levers::{Change, Cost, Gain, Lever, Levers, Use, levers};
pub use need::{NeedCell, NeedRow, Several, need, usual_cards};
pub use on_card::{OnCard, Outcome, Replayed};
pub use serving::{Between, Needed, Room, ServingRow, Share, serving};
pub use settings::{setting_name, settings, tried_settings};
pub use solve::{Largest, largest_batch, longest_sequence};
pub use speeds::Speed;
pub use table::{FitCell, FitRow, Measure, conditions, on_one, row, table, with_method};
pub use texts::{Limit, MicroBatch, Order, Outlook, order, outlook};
pub use time::{Pace, Span, pace};
pub use verdict::Verdict;
