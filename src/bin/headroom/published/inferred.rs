//! Which settings of a row were inferred rather than stated, and from what.

use std::collections::BTreeMap;

use headroom::issue::Field;
use headroom::scenario::keys::Key;

use super::Row;
use super::sources::{COMMON, Habits};

/// The fields of a row that who collected it may have inferred, and the settings that they became.
const COLLECTED: [(&str, Field); 9] = [
    ("attention", Field::Attention),
    ("batch", Field::Batch),
    ("compute_policy", Field::Precision),
    ("gpu_model", Field::Gpu),
    ("grad_checkpointing", Field::Checkpointing),
    ("lora_rank", Field::LoraRank),
    ("lora_targets", Field::LoraTargets),
    ("optimizer", Field::Optimizer),
    ("weights_dtype", Field::Precision),
];

impl Row {
    /// The settings, by their names in a scenario file, each with what it was inferred from.
    pub fn inferred(&self) -> BTreeMap<&'static str, String> {
        let mut found = BTreeMap::new();
        let mut note = |field: Field, because: &str| {
            if let Some(key) = Key::of(field) {
                found.insert(key.name, because.to_owned());
            }
        };
        for (name, field) in COLLECTED {
            // "lora_targets (PEFT default)": the field, and how
            if let Some(words) = self.inferred.iter().find(|words| words.split(' ').next() == Some(name)) {
                let how = words.strip_prefix(name).map(|rest| rest.trim().trim_matches(['(', ')']));
                let how = how.filter(|how| !how.is_empty()).map(|how| format!(": {how}"));
                note(field, &format!("by who collected the row{}", how.unwrap_or_default()));
            }
        }
        let habits = Habits::of(self);
        let lora = self.method != "full";
        for (field, differs) in [
            (Field::Stack, habits.stack != COMMON.stack),
            (Field::LoraDropout, lora && habits.lora_dropout != COMMON.lora_dropout),
            (Field::WeightFormat, self.method == "qlora" && habits.format != COMMON.format),
            (Field::KeepOutputs, habits.keeps_outputs != COMMON.keeps_outputs),
            (Field::Precision, habits.autocast != COMMON.autocast),
            (Field::LoraTargets, lora && self.lora_targets.is_none()),
            (
                Field::Accumulation,
                self.accumulation().is_none() && habits.accumulation != COMMON.accumulation,
            ),
            (Field::Sequence, self.seq_len.is_none()),
            (Field::Loss, habits.loss != COMMON.loss),
        ] {
            if differs {
                note(field, habits.because);
            }
        }
        if !self.card_is_known() {
            note(
                Field::Gpu,
                "not stated: a card of the generation that most rows ran on, with no limit of memory",
            );
        }
        found
    }
}
