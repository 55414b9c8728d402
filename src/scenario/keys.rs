//! One table of a scenario's inputs: [`KEYS`] drives share links, JSON, TOML, the command's flags, the page's controls,
//! comparisons, exports and the kinds of the error bands. Whoever adds an input adds a row; a row without a label, a
//! group or a control does not compile.

mod table;
mod values;
mod words;

use super::validate::LARGEST;
use super::{Choice, Field, Issue, LoraTargets, Scenario};
use crate::model::dimensions::SIZES;
use crate::units::grouped;

pub use table::KEYS;

/// What values a key takes, and so which control the page has for it.
#[derive(Clone, Copy, Debug)]
pub enum ValueKind {
    /// A Hub id, a size such as `7b`, or a model of the user's own.
    Model,
    /// One of a closed set.
    Choice(&'static [Choice]),
    /// A group of layers or a list of layer names.
    Targets,
    /// A whole number from 1.
    Count(Count),
    /// On or off.
    Switch,
    /// `equal`, `uniform`, or a mean and a standard deviation such as `3234~2547`.
    Lengths,
    /// A probability, or `config` for what the config says.
    Dropout,
    /// A card's slug, or an amount of memory such as `24GB`.
    Gpu,
}

/// What a whole number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// Dimensions of an adapter.
    Rank,
    /// Sequences.
    Sequences,
    /// Tokens.
    Tokens,
    /// Forward and backward passes.
    Passes,
    /// Graphics cards.
    Gpus,
}

/// Inputs that stand together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// What is trained, and on what.
    Model,
    /// Which weights are trained, by whose code.
    Training,
    /// Element types and the optimizer.
    Precision,
    /// The data of one step.
    Batch,
    /// What trades time for memory.
    Savings,
    /// The training loop's habits.
    Loop,
}

impl Group {
    /// Every group, in the order in which they are shown.
    pub const ALL: [Group; 6] =
        [Group::Model, Group::Training, Group::Precision, Group::Batch, Group::Savings, Group::Loop];

    /// The name shown to people.
    pub const fn label(self) -> &'static str {
        match self {
            Group::Model => "Model and card",
            Group::Training => "Training",
            Group::Precision => "Precision and optimizer",
            Group::Batch => "Batch",
            Group::Savings => "Save memory",
            Group::Loop => "Training loop",
        }
    }
}

/// Where an input is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Always, and at the top of the page's form: what a beginner chooses.
    Surface,
    /// Always in an export; under "All settings" in the page's form.
    Front,
    /// Rarely changed: in an export where it is not at its default.
    Folded,
}

/// How a value is read, written and said.
pub struct Value {
    kind: ValueKind,
    get: fn(&Scenario) -> String,
    set: fn(&mut Scenario, &str) -> Result<(), String>,
    words: fn(&Scenario) -> String,
}

/// One input of a scenario.
///
/// A key has two names: the short one is frozen into links, the long one is what people write in files and on the
/// command line. Both are read everywhere.
pub struct Key {
    /// Name in links. Frozen: links that carry it must work for ever.
    pub link: &'static str,
    /// Name in JSON and TOML and, after `--`, on the command line. Frozen too.
    pub name: &'static str,
    /// The name shown to people.
    pub label: &'static str,
    /// One sentence on what it is, without a full stop.
    pub help: &'static str,
    /// The field that issues about this input name.
    pub field: Field,
    /// The inputs that it is shown with.
    pub group: Group,
    /// Where it is shown.
    pub place: Place,
    value: Value,
    matters: fn(&Scenario) -> bool,
    band: fn(&Scenario) -> &'static str,
}

impl Key {
    /// The key of that name, long or short.
    pub fn find(name: &str) -> Option<&'static Key> {
        KEYS.iter().find(|key| key.name == name || key.link == name)
    }

    /// The key whose issues name that field; none for the link.
    pub fn of(field: Field) -> Option<&'static Key> {
        KEYS.iter().find(|key| key.field == field)
    }

    /// What values it takes.
    pub fn kind(&self) -> ValueKind {
        self.value.kind
    }

    /// The scenario's value as text: equal texts are equal values.
    pub fn write(&self, scenario: &Scenario) -> String {
        (self.value.get)(scenario)
    }

    /// The scenario's value for people.
    pub fn words(&self, scenario: &Scenario) -> String {
        (self.value.words)(scenario)
    }

    /// Whether the value makes a difference under the scenario's other choices: the rank of adapters does not where there
    /// are none.
    pub fn matters(&self, scenario: &Scenario) -> bool {
        (self.matters)(scenario)
    }

    /// Whether both scenarios have the same value.
    pub fn is_same(&self, scenario: &Scenario, other: &Scenario) -> bool {
        self.write(scenario) == self.write(other)
    }

    /// Whether the value makes a difference and is another than by default.
    pub fn is_changed(&self, scenario: &Scenario, defaults: &Scenario) -> bool {
        self.matters(scenario) && !self.is_same(scenario, defaults)
    }

    /// Sets the value that another scenario has.
    pub fn copy(&self, scenario: &mut Scenario, from: &Scenario) {
        // What a key writes it reads.
        let _ = (self.value.set)(scenario, &self.write(from));
    }

    /// What the value adds to the kind of run that errors were measured for; nothing where runs of one kind may differ in it.
    pub fn band(&self, scenario: &Scenario) -> &'static str {
        (self.band)(scenario)
    }

    /// Sets the value that the text says.
    ///
    /// # Errors
    /// An [`Issue`] where the text is no such value; the scenario then has the value it had, or the choice whose name is
    /// nearly that.
    pub fn read(&self, scenario: &mut Scenario, text: &str) -> Result<(), Issue> {
        (self.value.set)(scenario, text.trim()).map_err(|message| {
            Issue::error(self.field, format!("{}: {message}", self.name))
                .with_fix(format!("use {}", self.valid()))
        })
    }

    /// What would be right, after "use".
    pub fn valid(&self) -> String {
        match self.value.kind {
            ValueKind::Model => {
                let (least, most) = (SIZES.start(), SIZES.end());
                format!("a Hub id such as meta-llama/Llama-3.1-8B or a size from {least}b to {most}b")
            }
            ValueKind::Choice(choices) => one_of(&slugs(choices)),
            ValueKind::Targets => {
                let groups: Vec<_> = LoraTargets::ALL.iter().map(|choice| choice.slug()).collect();
                format!("{} or names such as q_proj,v_proj", groups.join(", "))
            }
            ValueKind::Count(_) => format!("a whole number from 1 to {}", grouped(LARGEST)),
            ValueKind::Switch => "on or off".to_owned(),
            ValueKind::Lengths => "equal, uniform, or a mean and a deviation such as 3234~2547".to_owned(),
            ValueKind::Dropout => "a probability from 0 to 1, or config for the config's own".to_owned(),
            ValueKind::Gpu => "a card such as rtx-4090 or an amount such as 24GB".to_owned(),
        }
    }
}

/// The slugs of some choices.
pub(crate) fn slugs(choices: &[Choice]) -> Vec<&'static str> {
    choices.iter().map(|choice| choice.slug).collect()
}

fn one_of(slugs: &[&str]) -> String {
    match slugs {
        [head @ .., last] if !head.is_empty() => format!("{} or {last}", head.join(", ")),
        _ => slugs.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn reads(name: &str, text: &str, written: &str) {
        let mut scenario = Scenario::default();
        let key = Key::find(name).unwrap();
        assert_eq!(key.read(&mut scenario, text), Ok(()));
        assert_eq!(key.write(&scenario), written);
    }

    #[track_caller]
    fn misreads(name: &str, text: &str, written: &str, message: &str) {
        let mut scenario = Scenario::default();
        let key = Key::find(name).unwrap();
        assert_eq!(key.read(&mut scenario, text).unwrap_err().to_string(), message);
        assert_eq!(key.write(&scenario), written);
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = KEYS.iter().flat_map(|key| [key.link, key.name]).collect();
        names.sort_unstable();
        names.dedup();
        let same = KEYS.iter().filter(|key| key.link == key.name).count();
        assert_eq!(names.len(), KEYS.len() * 2 - same);
    }

    #[test]
    fn every_key_has_a_field_and_a_label_of_its_own() {
        for (index, key) in KEYS.iter().enumerate() {
            for other in &KEYS[..index] {
                assert!(key.field != other.field && key.label != other.label, "{} {}", key.name, other.name);
            }
            assert!(Key::of(key.field).is_some_and(|own| own.name == key.name));
            let is_sentence = key.help.starts_with(char::is_uppercase) && !key.help.ends_with('.');
            assert!(is_sentence, "{}", key.help);
        }
        assert!(Key::of(Field::Link).is_none());
    }

    #[test]
    fn what_people_write() {
        reads("model", "7B", "7b");
        reads("model", "0.5b", "0.5b");
        reads("model", "gpt2", "gpt2");
        reads("precision", "amp_bf16", "amp-bf16");
        reads("gradient-checkpointing", "true", "on");
        reads("lora-dropout", "0.05", "on");
        reads("lora-targets", "v_proj,q_proj", "q_proj,v_proj");
        reads("dropout", "0.1", "0.1");
        reads("seq-length", "8,192", "8192");
        reads("lengths", "3234 ± 2547", "3234~2547");
        reads("weight-format", "nf4_early", "nf4-early");
        reads("gpu", "24GB", "24GB");
        reads("gpu", "24 GiB", "24GiB");
        reads("gpu", "24.5GB", "24500000000B");
        reads("gpu", "RTX-3090", "rtx-3090");
    }

    #[test]
    fn what_is_wrong_says_what_would_be_right() {
        let count = "use a whole number from 1 to 16,777,216";
        for (name, text, written, message) in [
            ("batch-size", "0", "1", "0 is out of range or not whole"),
            ("batch-size", "1.5", "1", "1.5 is out of range or not whole"),
            ("batch-size", "1,5", "1", "\"1,5\" is not a number: a comma separates thousands"),
            ("seq-length", "1e30", "2048", "1e30 is out of range or not whole"),
            ("seq-length", "8,19", "2048", "\"8,19\" is not a number: a comma separates thousands"),
            ("seq-length", "NaN", "2048", "\"NaN\" is not a number"),
        ] {
            misreads(name, text, written, &format!("{name}: {message} ({count})"));
        }
        misreads(
            "dropout",
            "7",
            "config",
            "dropout: 7 is not within 0 and 1 (use a probability from 0 to 1, or config for the config's own)",
        );
        misreads(
            "lengths",
            "long",
            "equal",
            "lengths: \"long\" says nothing about lengths (use equal, uniform, or a mean and a deviation such as 3234~2547)",
        );
        misreads("method", "qlorra", "qlora", "method: there is no \"qlorra\" (use full, lora or qlora)");
        misreads("method", "dora", "lora", "method: there is no \"dora\" (use full, lora or qlora)");
        let card = "use a card such as rtx-4090 or an amount such as 24GB";
        for (text, message) in [
            (
                "24 parsecs",
                "could not read \"24 parsecs\" as an amount of memory (write 24GB, 22.5GiB, 800MB or 24576MiB)",
            ),
            ("24", "\"24\" is without a unit (write 24GB or 24GiB)"),
            (
                "24,5GB",
                "could not read \"24,5GB\" as an amount of memory: a comma separates thousands (write 24.5GB)",
            ),
            ("0GB", "a card has more memory than none"),
        ] {
            misreads("gpu", text, "rtx-4090", &format!("gpu: {message} ({card})"));
        }
    }

    /// Amounts that are no whole MiB were written so until 2026-11.
    #[test]
    fn links_with_bare_bytes_keep_their_meaning() {
        reads("gpu", "23944442675", "23944442675B");
        reads("gpu", "23944442675B", "23944442675B");
        reads("gpu", "536870912", "512MiB");
    }
}
