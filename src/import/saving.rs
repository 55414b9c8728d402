//! Whether trainers over transformers' `Trainer` make checkpoints, and whether weights that are divided are gathered for them.

use super::reader::{Reader, Said};
use crate::scenario::{Saves, Sharding, Task};

/// What gathers whole weights: FULL_STATE_DICT of FSDP, and a switch of ZeRO-3, in files and as options of accelerate's launcher.
const GATHERS: &[&str] = &[
    "fsdp_config.fsdp_state_dict_type",
    "fsdp_config.state_dict_type",
    "fsdp_state_dict_type",
    "zero_optimization.stage3_gather_16bit_weights_on_model_save",
    "zero_optimization.gather_16bit_weights_on_model_save",
    "zero_optimization.stage3_gather_fp16_weights_on_model_save",
    "deepspeed_config.zero3_save_16bit_model",
    "zero3_save_16bit_model",
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
    /// FSDP is asked for by an argument of the trainer, which gathers by default (transformers 5.17, training_args.py
    /// `_process_fsdp_args`); accelerate's own default does not (utils/dataclasses.py `set_state_dict_type`). A list is axolotl's.
    shards_by_argument: bool,
}

impl Saving {
    pub fn taken(reader: &mut Reader) -> Saving {
        let is_argument = |said: &Said| !said.value.is_array() && said.switch() != Some(false);
        Saving {
            strategy: reader.take(&["save_strategy"]),
            often: reader.take(&["save_steps", "saves_per_epoch"]),
            weights_only: reader.take(&["save_only_model"]),
            gathers: GATHERS.iter().filter_map(|name| reader.take(&[name])).collect(),
            shards_by_argument: reader.named(&["fsdp"]).iter().any(is_argument),
        }
    }

    pub fn follow(self, reader: &mut Reader) {
        let Saving { mut strategy, often, weights_only, gathers, shards_by_argument } = self;
        if let Some(said) = strategy.take_if(|said| by_strategy(said).is_none()) {
            reader.misread(&said.said, "of strategies no, steps, epoch and best are known");
        }
        let decided = match (&strategy, &often) {
            (Some(said), _) => by_strategy(said),
            (None, Some(said)) => Some(said.switch() != Some(false)),
            (None, None) => None,
        };
        let is_followed = matches!(reader.scenario.task, Task::Sft | Task::Classify);
        let asked = decided == Some(true) && !is_followed;
        let decided = decided.filter(|_| is_followed);
        // what gathers may stand in a file of its own
        let on = decided.unwrap_or(reader.scenario.saves() && !gathers.is_empty());
        let by_default =
            gathers.is_empty() && shards_by_argument && reader.scenario.cluster.sharding == Sharding::Fsdp2;
        let saves = match (on, by_default || gathers.iter().any(gathers_whole)) {
            (false, _) => Saves::Off,
            (true, true) => Saves::Full,
            (true, false) => Saves::On,
        };
        let said: Vec<String> =
            strategy.into_iter().chain(often).chain(gathers).map(|said| said.said).collect();
        if asked && takes_memory(reader) {
            return reader.leave(&said.join(", "), "what the checkpoints of this task take is not predicted");
        }
        if !on && decided.is_none() {
            return reader.idle.extend(said.into_iter().chain(weights_only.map(|said| said.said)));
        }
        let default =
            if on && by_default { "; fsdp of TrainingArguments is FULL_STATE_DICT by default" } else { "" };
        let said = format!("{}{default}", said.join(", "));
        match reader.objection("saving", saves.slug()) {
            Some(why) => reader.leave(&said, &why),
            None => reader.set("saving", saves.slug(), &said),
        }
        match weights_only {
            Some(said) if on && said.switch() == Some(true) => {
                reader.leave(&said.said, "checkpoints are predicted with the optimizer's state");
            }
            said => reader.idle.extend(said.map(|said| said.said)),
        }
    }
}

/// Whether a checkpoint may take memory of the card: weights that are divided are gathered for it, and those of a mixture's experts are
/// written as they were published.
fn takes_memory(reader: &Reader) -> bool {
    let has_experts =
        reader.scenario.architecture().is_ok_and(|model| model.active_parameters() < model.parameters());
    reader.scenario.cluster.shards() || has_experts && !reader.scenario.method.has_adapters()
}

/// Whether there are checkpoints by a strategy, which may be a member of `SaveStrategy` (transformers 5.17, trainer_utils.py); none
/// where it is no strategy.
fn by_strategy(said: &Said) -> Option<bool> {
    let word = said.text().to_ascii_lowercase();
    match word.trim_matches(['"', '\'']).rsplit('.').next() {
        // YAML reads the word so
        Some("no" | "false") => Some(false),
        Some("steps" | "epoch" | "best") => Some(true),
        _ => None,
    }
}

fn gathers_whole(said: &Said) -> bool {
    said.switch() == Some(true) || said.text().contains("FULL_STATE_DICT")
}
