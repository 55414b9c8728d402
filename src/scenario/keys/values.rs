//! How values of each kind are read and written.

use super::invalid::InvalidValue;
use crate::hardware::{several, spelled};
use crate::model::dimensions::SIZES;
use crate::scenario::count::Count;
use crate::scenario::{
    CustomModel, GpuChoice, LARGEST, LoraTargets, ModelChoice, Modules, Scenario, compact,
};
use crate::text::short;
use crate::units::{BYTES_PER_GB, BYTES_PER_GIB, BYTES_PER_MIB, Bytes, grouped, ungrouped};

/// The value of a closed choice.
macro_rules! choice {
    ($choice:ident, $($place:ident).+) => {
        Value {
            kind: ValueKind::Choice($choice::CHOICES),
            get: |scenario| scenario.$($place).+.slug().to_owned(),
            set: |scenario, text| {
                let (index, exact) = nearest($choice::SLUGS, text)?;
                if let Some(choice) = $choice::ALL.get(index) {
                    scenario.$($place).+ = *choice;
                }
                exact
            },
            words: |scenario| scenario.$($place).+.label().to_owned(),
            number: None,
        }
    };
}
pub(super) use choice;

/// The value of a whole number: what it counts, and what it is called in a sentence.
macro_rules! count {
    ($count:ident, $noun:literal, $($place:ident).+) => {
        Value {
            kind: ValueKind::Count(Count::$count),
            get: |scenario| scenario.$($place).+.to_string(),
            set: |scenario, text| set_count(&mut scenario.$($place).+, Count::$count, text),
            words: |scenario| Count::$count.in_words(scenario.$($place).+),
            number: Some($crate::scenario::keys::key::Number { noun: $noun, of: |scenario| scenario.$($place).+ }),
        }
    };
}
pub(super) use count;

/// The value of what is on or off.
macro_rules! switch {
    ($($place:ident).+) => {
        Value {
            kind: ValueKind::Switch,
            get: |scenario| if scenario.$($place).+ { "on" } else { "off" }.to_owned(),
            set: |scenario, text| set_switch(&mut scenario.$($place).+, text),
            words: |scenario| if scenario.$($place).+ { "On" } else { "Off" }.to_owned(),
            number: None,
        }
    };
}
pub(super) use switch;

pub(super) fn write_model(model: &ModelChoice) -> String {
    match model {
        ModelChoice::Catalogue(id) => compact::write(id, None),
        ModelChoice::Size(billions) => format!("{billions}b"),
        ModelChoice::Custom(custom) => match serde_json::from_str(&custom.config) {
            Ok(config) => compact::write(&custom.name, Some(&config)),
            // Unreachable for a `CustomModel` that was read; a name alone at least says which model was meant.
            Err(_) => compact::write(&custom.name, None),
        },
    }
}

pub(super) fn set_model(scenario: &mut Scenario, text: &str) -> Result<(), InvalidValue> {
    scenario.model = read_model(text)?;
    Ok(())
}

/// What a teacher is called that is the model that is trained.
const SAME: &str = "same";

pub(super) fn write_teacher(scenario: &Scenario) -> String {
    scenario.teacher.model.as_ref().map_or_else(|| SAME.to_owned(), write_model)
}

pub(super) fn set_teacher(scenario: &mut Scenario, text: &str) -> Result<(), InvalidValue> {
    let is_same = text.eq_ignore_ascii_case(SAME);
    scenario.teacher.model = if is_same { None } else { Some(read_model(text)?) };
    Ok(())
}

fn read_model(text: &str) -> Result<ModelChoice, InvalidValue> {
    let (name, config) = compact::read(text)
        .map_err(|problem| InvalidValue::new(format!("cannot read this model: {problem}")))?;
    // blanks behind an escape are those of a value, too: no key has any around it
    let name = if config.is_some() { name.trim_start() } else { name.trim() };
    Ok(match config {
        Some(config) => {
            let custom = CustomModel::read(name, &config.to_string())?;
            ModelChoice::Custom(custom.into())
        }
        None if name.is_empty() => return Err(InvalidValue::new("there is no model")),
        None => match size_in_billions(name) {
            Some(billions) if SIZES.contains(&billions) => ModelChoice::Size(billions),
            Some(_) => return Err(InvalidValue::new(format!("{} is out of range", short(name)))),
            None => ModelChoice::Catalogue(name.to_owned()),
        },
    })
}

/// `7b` and `0.5B` are sizes; `meta-llama/Llama-2-7b` and `gpt2` are names.
fn size_in_billions(name: &str) -> Option<f64> {
    let number = name.strip_suffix(['b', 'B'])?;
    number
        .starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '.')
        .then(|| number.parse().ok())
        .flatten()
}

pub(super) fn set_targets(scenario: &mut Scenario, text: &str) -> Result<(), InvalidValue> {
    if let Some(group) = LoraTargets::from_slug(text).filter(|group| *group != LoraTargets::Named) {
        (scenario.lora.targets, scenario.lora.modules) = (group, Modules::NONE);
        return Ok(());
    }
    (scenario.lora.targets, scenario.lora.modules) = (LoraTargets::Named, text.parse::<Modules>()?);
    Ok(())
}

pub(super) fn set_count(place: &mut u64, kind: Count, text: &str) -> Result<(), InvalidValue> {
    let plain = ungrouped(text).and_then(|plain| plain.parse::<f64>().ok());
    let plain = plain.filter(|value| !value.is_nan());
    let value = kind.letters().read(text).or(plain).ok_or_else(|| not_a_number(text))?;
    // The cast saturates.
    let count = value as u64;
    if count as f64 == value && (kind.least()..=kind.most()).contains(&count) {
        *place = count;
        return Ok(());
    }
    Err(InvalidValue::new(format!("{} is out of range or not whole", short(text))))
}

/// A number of GPUs, or of machines and of the GPUs of each: `2x4`.
pub(super) fn set_gpus(scenario: &mut Scenario, text: &str) -> Result<(), InvalidValue> {
    let cluster = &mut scenario.cluster;
    let Some((machines, each)) = text.split_once(['x', 'X', '×', '*']) else {
        return set_count(&mut cluster.gpus, Count::Gpus, text);
    };
    let (mut of, mut own) = (1, 1);
    set_count(&mut of, Count::Gpus, machines.trim())?;
    set_count(&mut own, Count::Gpus, each.trim())?;
    set_count(&mut cluster.gpus, Count::Gpus, &of.saturating_mul(own).to_string())?;
    if cluster.machines() != of {
        cluster.per_node = own;
    }
    Ok(())
}

fn not_a_number(text: &str) -> InvalidValue {
    let comma = if text.contains(',') { ": a comma separates thousands" } else { "" };
    InvalidValue::new(format!("{:?} is not a number{comma}", short(text)))
}

pub(super) fn set_lengths(scenario: &mut Scenario, text: &str) -> Result<(), InvalidValue> {
    scenario.lengths = text.parse()?;
    Ok(())
}

pub(super) fn set_switch(place: &mut bool, text: &str) -> Result<(), InvalidValue> {
    *place = match text.to_ascii_lowercase().as_str() {
        "on" | "true" | "yes" | "1" => true,
        "off" | "false" | "no" | "0" => false,
        other => match other.parse::<f64>() {
            // lora-dropout 0.05: only whether it is above 0 matters.
            Ok(number) if number >= 0.0 => number > 0.0,
            _ => return Err(InvalidValue::new(format!("{:?} is neither on nor off", short(text)))),
        },
    };
    Ok(())
}

pub(super) fn set_dropout(scenario: &mut Scenario, text: &str) -> Result<(), InvalidValue> {
    if text == "config" {
        scenario.dropout = None;
        return Ok(());
    }
    let p: f64 =
        text.parse().map_err(|_| InvalidValue::new(format!("{:?} is not a probability", short(text))))?;
    if !(0.0..=1.0).contains(&p) {
        return Err(InvalidValue::new(format!("{} is not within 0 and 1", short(text))));
    }
    scenario.dropout = Some((p * 10_000.0).round() as u16);
    Ok(())
}

/// From here on a bare number is bytes, as old links wrote what is no whole MiB; below it a unit was forgotten, for nobody has
/// a card of a million gigabytes.
const LEAST_BARE_BYTES: u64 = BYTES_PER_MIB;

/// The card, and how many of it where the text says so: `8xh100-sxm-80gb`.
pub(super) fn set_gpu(scenario: &mut Scenario, text: &str) -> Result<(), InvalidValue> {
    if let Some((count, one)) = several(text) {
        if count > LARGEST {
            return Err(InvalidValue::new(format!("{} are more cards than a scenario has", grouped(count))));
        }
        set_gpu(scenario, one)?;
        scenario.cluster.set_gpus(count);
    } else if text.starts_with(|c: char| c.is_ascii_digit() || c == '.' || c == '-') {
        let memory = match (text.parse::<u64>(), text.parse::<Bytes>()) {
            (Ok(bytes), _) if bytes >= LEAST_BARE_BYTES => Bytes(bytes),
            (_, Ok(memory)) => memory,
            // 4090, 1080ti
            (_, Err(why)) => {
                let gpu = spelled(text).ok_or(why)?;
                scenario.gpu = GpuChoice::Catalogue(gpu.slug.to_string());
                return Ok(());
            }
        };
        if memory == Bytes::ZERO {
            return Err(InvalidValue::new("a card has more memory than none"));
        }
        scenario.gpu = GpuChoice::Custom(memory);
    } else if text.is_empty() {
        return Err(InvalidValue::new("there is no card"));
    } else {
        let slug = text.to_ascii_lowercase();
        scenario.gpu = GpuChoice::Catalogue(spelled(&slug).map_or(slug, |gpu| gpu.slug.to_string()));
    }
    Ok(())
}

/// The amount in the largest unit that is exact.
pub(super) fn exact_amount(memory: Bytes) -> String {
    let units = [(BYTES_PER_GB, "GB"), (BYTES_PER_GIB, "GiB"), (BYTES_PER_MIB, "MiB")];
    match units.into_iter().find(|(unit, _)| memory.0 > 0 && memory.0.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{}{name}", memory.0 / unit),
        None => format!("{}B", memory.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_times_gpus_are_both() {
        let read = |text: &str| {
            let mut scenario = Scenario::default();
            set_gpus(&mut scenario, text).map(|()| (scenario.cluster.gpus, scenario.cluster.per_node))
        };
        assert_eq!(
            ["8", "2x4", "2 × 8", "1*16", "1,024"].map(|text| read(text).ok()),
            [Some((8, 8)), Some((8, 4)), Some((16, 8)), Some((16, 16)), Some((1024, 8)),]
        );
        for wrong in ["2x", "x4", "2x4x8", "0x4", "16777216x2", "two"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn several_cards_are_a_card_and_a_number() {
        let read = |text: &str| {
            let mut scenario = Scenario::default();
            set_gpu(&mut scenario, text).map(|()| (scenario.gpu, scenario.cluster.gpus))
        };
        assert_eq!(read("8xH100-SXM-80GB"), Ok((GpuChoice::Catalogue("h100-sxm-80gb".into()), 8)));
        assert_eq!(read("2 x 24GB").map(|(_, gpus)| gpus), Ok(2));
        assert!(read("99999999999x h100-sxm-80gb").is_err());
    }
}
