//! What a script hands over as its adapters: `peft_config=`, the second argument of `get_peft_model`, a class of peft's settings. Whatever
//! of it is not read is told, since a script that names adapters trains no weights but theirs.

use serde_json::Value;

use super::syntax::python::Call;
use super::syntax::setting::{self, Setting};
use crate::scenario::Tuner;
use crate::text::short;

/// peft's classes of settings that are not followed (0.21, `__init__.py`), and the one that an earlier version had.
const NOT_FOLLOWED: &[&str] = &[
    "AdaLoraConfig",
    "AdamssConfig",
    "AdaptionPromptConfig",
    "BOFTConfig",
    "BeftConfig",
    "BoneConfig",
    "C3AConfig",
    "CPTConfig",
    "CartridgeConfig",
    "DeftConfig",
    "DeloraConfig",
    "FourierFTConfig",
    "FrodConfig",
    "GloraConfig",
    "GraloraConfig",
    "HRAConfig",
    "HiraConfig",
    "LNTuningConfig",
    "LilyConfig",
    "MissConfig",
    "MultitaskPromptTuningConfig",
    "OSFConfig",
    "PeanutConfig",
    "PeftConfig",
    "PolyConfig",
    "PsoftConfig",
    "PveraConfig",
    "RandLoraConfig",
    "RoadConfig",
    "ShadowConfig",
    "ShiraConfig",
    "SupertuningConfig",
    "TinyLoraConfig",
    "TrainableTokensConfig",
    "UniLoraConfig",
    "VBLoRAConfig",
    "VeloraConfig",
    "WaveFTConfig",
    "XLoraConfig",
];

/// The setting that says what is named and not read.
pub(super) const UNREAD: &str = "unread_adapters";

/// trl's function that makes them of its command's arguments, or none.
pub(super) const OF_COMMAND: &str = "get_peft_config(";

/// Whether a class of peft's has settings of a tuner that is not followed.
pub(super) fn is_not_followed(class: &str) -> bool {
    NOT_FOLLOWED.contains(&class)
}

/// What a script hands over, as it comes.
#[derive(Debug, Default)]
pub(super) struct Named {
    /// Classes that are not followed, as they are called.
    classes: Vec<String>,
    /// What is handed to a trainer or to `get_peft_model`, as it is said, and its value.
    given: Vec<(String, String)>,
}

impl Named {
    /// Notes a class that is not followed.
    pub fn class(&mut self, call: &Call) {
        let values = call.values.iter().map(setting::text);
        let named = call.named.iter().map(|(name, value)| format!("{name}={}", setting::text(value)));
        let all: Vec<String> = values.chain(named).collect();
        self.classes.push(format!("{}({})", call.name(), short(&all.join(", "))));
    }

    /// Notes what is handed over; `None` is no adapters.
    pub fn given(&mut self, to: &str, name: &str, value: &Value) {
        if *value == Value::Null {
            return;
        }
        let text = Value::from(setting::text(value));
        let said = Setting { of: to.to_owned(), name: name.to_owned(), value: text }.said();
        self.given.push((said, setting::text(value)));
    }

    /// Adds what is not read to the settings; `tuner` is one whose settings the script has. Whether anything is added, and what stands
    /// under a condition that is not known.
    pub fn finish(self, tuner: Option<Tuner>, settings: &mut Vec<Setting>) -> (bool, Vec<String>) {
        let mut unread = self.classes;
        let mut open = Vec::new();
        for (said, value) in self.given {
            let class = value.split('(').next().unwrap_or_default().rsplit('.').next().unwrap_or_default();
            let is_class = value.contains('(') && class.ends_with("Config");
            let differs = value.ends_with("which differs from case to case") || value.contains(" else ");
            match (is_class && !differs, tuner) {
                // said as a call of its own
                (true, _) if is_not_followed(class) => {}
                (true, _) if Tuner::of_class(class).is_some() => {}
                (false, Some(_)) if differs => open.push(said),
                // a name of what the script makes
                (false, Some(_)) if !value.contains(OF_COMMAND) => {}
                (true | false, _) => unread.push(said),
            }
        }
        unread.dedup();
        let any = !unread.is_empty();
        for said in unread {
            settings.push(Setting { of: String::new(), name: UNREAD.to_owned(), value: said.into() });
        }
        (any, open)
    }
}
