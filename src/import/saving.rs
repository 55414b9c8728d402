//! Whether trainers over transformers' `Trainer` make checkpoints, and whether weights that are divided are gathered for them.

use super::reader::{Reader, Said};
use crate::estimate::estimate;
use crate::issue::Field;
use crate::scenario::{Saves, Task};

/// What gathers whole weights: FULL_STATE_DICT of FSDP, and a switch of ZeRO-3, as its JSON and as accelerate's plugin have it.
const GATHERS: &[&str] = &[
    "fsdp_config.fsdp_state_dict_type",
    "fsdp_config.state_dict_type",
    "zero_optimization.stage3_gather_16bit_weights_on_model_save",
    "zero_optimization.stage3_gather_fp16_weights_on_model_save",
    "deepspeed_config.zero3_save_16bit_model",
];

/// What a text says of checkpoints. It is taken first, as other readers pass over all that is saved, and followed last, as what the
/// run is decides that.
#[derive(Debug, Default)]
pub(super) struct Saving {
    strategy: Option<Said>,
    /// How often: a strategy of its own where none is said.
    often: Option<Said>,
    weights_only: Option<Said>,
    gathers: Vec<Said>,
}

impl Saving {
    pub fn taken(reader: &mut Reader) -> Saving {
        Saving {
            strategy: reader.take(&["save_strategy"]),
            often: reader.take(&["save_steps", "saves_per_epoch"]),
            weights_only: reader.take(&["save_only_model"]),
            gathers: GATHERS.iter().filter_map(|name| reader.take(&[name])).collect(),
        }
    }

    pub fn follow(self, reader: &mut Reader) {
        let Saving { strategy, often, weights_only, gathers } = self;
        let is_trainers = matches!(reader.scenario.task, Task::Sft | Task::Classify);
        let named = strategy.as_ref().or(often.as_ref()).filter(|_| is_trainers);
        let on = named.map_or(reader.scenario.saves(), |said| !never(said));
        let whole = gathers.iter().find(|said| gathers_whole(said));
        let saves = match (on, whole) {
            (false, _) => Saves::Off,
            (true, Some(_)) => Saves::Full,
            (true, None) => Saves::On,
        };
        let decides = named.or_else(|| gathers.first().filter(|_| on));
        let all: Vec<Said> =
            [&strategy, &often].into_iter().flatten().cloned().chain(gathers.iter().cloned()).collect();
        let Some(decides) = decides else {
            return reader.idle.extend(all.into_iter().chain(weights_only).map(|said| said.said));
        };
        if let Some(issue) = refused(reader, saves) {
            return reader.leave(&decides.said, &issue);
        }
        let said: Vec<&str> = all.iter().map(|said| said.said.as_str()).collect();
        reader.set("saving", saves.slug(), &said.join(", "));
        match weights_only {
            Some(said) if on && said.switch() == Some(true) => {
                reader.leave(&said.said, "checkpoints are predicted with the optimizer's state");
            }
            said => reader.idle.extend(said.map(|said| said.said)),
        }
    }
}

/// Whether a strategy, or how often there is a checkpoint, says that there is none.
fn never(said: &Said) -> bool {
    let word = said.text().to_ascii_lowercase();
    said.switch() == Some(false) || word.trim_end_matches(['"', '\'']).ends_with("no")
}

fn gathers_whole(said: &Said) -> bool {
    said.switch() == Some(true) || said.text().contains("FULL_STATE_DICT")
}

/// Why such checkpoints are not followed.
fn refused(reader: &Reader, saves: Saves) -> Option<String> {
    let mut scenario = reader.scenario.clone();
    scenario.spikes.saving = saves;
    let answer = estimate(&scenario);
    answer.errors().find(|issue| issue.field == Field::Saving).map(|issue| issue.message.clone())
}
