//! One table of a scenario's inputs: [`keys`] drives share links, JSON, TOML, the command's flags, the page's controls,
//! comparisons, exports and the kinds of the error bands. Whoever adds an input adds a row; a row without a label, a
//! group or a control does not compile.

mod invalid;
mod key;
mod matters;
mod nearest;
mod table;
mod values;
mod words;

use serde_json::{Map, Value as Json};

use super::Field;

pub use crate::scenario::count::Count;
pub use invalid::InvalidValue;
#[cfg(feature = "cli")]
pub(crate) use key::slugs;
pub use key::{Group, Key, Place, Value, ValueKind};
pub use table::keys;

impl Key {
    /// The key of that name, long or short.
    pub fn find(name: &str) -> Option<&'static Key> {
        keys().find(|key| key.name == name || key.link == name)
    }

    /// The keys that a table has, by either name.
    pub(crate) fn given(table: &Map<String, Json>) -> impl Iterator<Item = &'static Key> {
        keys().filter(|key| table.contains_key(key.name) || table.contains_key(key.link))
    }

    /// The key whose issues name that field; none for the link.
    pub fn of(field: Field) -> Option<&'static Key> {
        keys().find(|key| key.field == field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

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

    /// GRPO's micro-batch counts completions, and what of the card a vLLM has stands with who generates them.
    #[test]
    fn what_grpo_is_asked_stands_together_and_says_what_it_counts() {
        let grpo = Scenario { task: crate::scenario::Task::Grpo, ..Scenario::default() };
        let batch = Key::find("batch-size").unwrap();
        assert_eq!(batch.label_for(&grpo), "Micro-batch size (answers)");
        assert_eq!(batch.label_for(&Scenario::default()), "Micro-batch size");
        let dpo = Scenario { task: crate::scenario::Task::Dpo, ..Scenario::default() };
        assert_eq!(batch.label_for(&dpo), "Micro-batch size (pairs)");
        let group = |name: &str| Key::find(name).unwrap().group;
        assert_eq!(group("vllm-percent"), group("rollouts"));
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = keys().flat_map(|key| [key.link, key.name]).collect();
        names.sort_unstable();
        names.dedup();
        let same = keys().filter(|key| key.link == key.name).count();
        assert_eq!(names.len(), keys().count() * 2 - same);
    }

    #[test]
    fn every_key_has_a_field_and_a_label_of_its_own() {
        for (index, key) in keys().enumerate() {
            for other in keys().take(index) {
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
