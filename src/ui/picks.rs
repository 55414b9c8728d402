//! What can be picked from the two searchable lists, and what their typed words mean.

use super::controls::{Found, Item};
use super::format::{number, parameters};
use super::hub;
use crate::hardware::{Gpu, gpus, search, several};
use crate::model::catalogue;
use crate::model::dimensions::SIZES;
use crate::scenario::{GpuChoice, LARGEST, ModelChoice, Scenario};
use crate::units::{BYTES_PER_MIB, Bytes, grouped, ungrouped};

/// The key of an item that is a model of some size.
const SIZE: &str = "size:";
/// The key of an item that is a card of some memory.
const MEMORY: &str = "memory:";
/// A model that is called by a size has so much more or less than it, at most: Llama-2-13b 13.0, Qwen2.5-7B 7.6, Mixtral-8x7B 46.7.
const NEAR: f64 = 0.2;
/// The size that is offered where the words name none.
const USUAL_BILLIONS: f64 = 7.;
/// The memory that is offered where the words name none.
const USUAL_GIB: f64 = 24.;
/// No card has more: a larger number without a unit is the name of one, such as 4090.
const MOST_GIB: f64 = 300.;
/// Nor with a unit: a PiB.
const UNHEARD_GIB: f64 = 1_048_576.;
/// Between the number of cards and the key of one of them.
const TIMES: char = '*';
/// The key of the item that is the model itself, as its teacher.
const SAME: &str = "same";
/// The key of an item that is yet to be fetched from the Hub.
const HUB: &str = "hub:";

/// The models that a few words may mean, with a model of any size, and what the Hub may have under that id.
pub fn find_models(words: &str) -> Found {
    let id = hub::id(words);
    let item = |found: &catalogue::Found| Item {
        key: found.id.to_owned(),
        label: found.id.to_owned(),
        detail: parameters(found.entry.parameters),
    };
    // no model's name has these: what holds them is markup or a file, of which some letters would match
    let is_a_name = !words.contains(['<', '>', '{', '}', '"']) && !means_nothing(words);
    let found = match is_a_name {
        true => catalogue::search(id.as_deref().unwrap_or(words)),
        false => Vec::new(),
    };
    let size = amount(words).filter(|(billions, _)| SIZES.contains(billions));
    let billions = size.map_or(USUAL_BILLIONS, |(billions, _)| billions);
    let free = (words.trim().is_empty() || size.is_some()).then(|| Item {
        key: format!("{SIZE}{billions}"),
        label: model_label(&ModelChoice::Size(billions)),
        detail: "by size".to_owned(),
    });
    // models of that size stand before the one that is none of them, and those with these digits in their names after it; a bare number is
    // rather part of a name
    let is_near = |found: &catalogue::Found| match size {
        Some((billions, true)) => {
            let of_it = found.entry.parameters as f64 / (billions * 1e9);
            (1.0 - NEAR..1.0 + NEAR).contains(&of_it)
        }
        Some((_, false)) => true,
        None => !words.trim().is_empty(),
    };
    let (near, others): (Vec<_>, Vec<_>) = found.iter().partition(|found| is_near(found));
    let mut items: Vec<Item> =
        near.into_iter().map(item).chain(free).chain(others.into_iter().map(item)).collect();
    if let Some(id) = id.filter(|id| catalogue::find(id).is_none()) {
        // words of a known model may look like an id: it comes first where others of its owner are known
        let owner = id.split_once('/').map_or(String::new(), |(owner, _)| format!("{owner}/"));
        let at = match items.iter().any(|item| item.key.starts_with(&owner)) {
            true => 0,
            false => items.len(),
        };
        items.insert(at, Item { key: format!("{HUB}{id}"), label: id, detail: "from the Hub".to_owned() });
    }
    let note = match items.is_empty() {
        true => format!(
            "No model matches “{}”. Type a part of its name, a size such as 13b, or its id on the Hub: org/name.",
            words.trim()
        ),
        false => String::new(),
    };
    Found { items, note }
}

/// The teachers that a few words may mean: the model that is trained, and those of the catalogue.
pub fn find_teachers(words: &str) -> Found {
    let same = Item {
        key: SAME.to_owned(),
        label: teacher_label(None),
        detail: "learns from itself as it was".to_owned(),
    };
    let mut found = find_models(words);
    found.items.retain(|item| catalogue::find(&item.key).is_some());
    if found.items.is_empty() {
        found.note =
            format!("No model of the catalogue matches “{}”. Type a part of its name.", words.trim());
    }
    if words.trim().is_empty() || SAME.starts_with(words.trim()) {
        found.items.insert(0, same);
        found.note.clear();
    }
    found
}

/// The cards that a few words may mean, with a card of any memory; several of each where the words ask for so many.
pub fn find_gpus(words: &str) -> Found {
    // 7900xtx is a card, and not 7,900 of something
    let Some((count, one)) = several(words).filter(|(count, _)| *count < 1_000 || search(words).is_empty())
    else {
        return find_cards(words);
    };
    let mut found = find_cards(one);
    for item in &mut found.items {
        item.key = format!("{count}{TIMES}{}", item.key);
        item.label = format!("{} × {}", grouped(count), item.label);
    }
    found
}

fn find_cards(words: &str) -> Found {
    let item = |gpu: &Gpu| Item {
        key: gpu.slug.to_string(),
        label: gpu.name.to_string(),
        detail: gpu.marketed_gb.map(|gb| format!("{gb} GB")).unwrap_or_default(),
    };
    // less than a MiB is no card, nor is more than any could have
    let is_size = |(gib, unit): &(f64, bool)| {
        Bytes::gib(*gib) >= Bytes(BYTES_PER_MIB) && *gib <= if *unit { UNHEARD_GIB } else { MOST_GIB }
    };
    let size = amount(words).filter(is_size);
    let of_size = gpus().filter(|gpu| {
        size.is_some_and(|(gb, _)| gpu.marketed_gb.is_some_and(|marketed| f64::from(marketed) == gb))
    });
    let mut found: Vec<_> = of_size.map(item).collect();
    let named = if means_nothing(words) { Vec::new() } else { search(words) };
    for named in named.into_iter().map(item) {
        if found.iter().all(|other| other.key != named.key) {
            found.push(named);
        }
    }
    let gib = size.map_or(USUAL_GIB, |(gib, _)| gib);
    let free = (words.trim().is_empty() || size.is_some()).then(|| Item {
        key: format!("{MEMORY}{gib}"),
        label: gpu_label(&GpuChoice::Custom(Bytes::gib(gib))),
        detail: "all of it for programs; a card sold so has a little less".to_owned(),
    });
    // an amount alone is the card that the command takes for it: which of the real ones it is nobody said
    let items: Vec<Item> = free.into_iter().chain(found).collect();
    let note = match items.is_empty() {
        true => format!(
            "No card matches “{}”. Type a part of its name, or an amount such as 24 for any card with that memory.",
            words.trim()
        ),
        false => String::new(),
    };
    Found { items, note }
}

/// The number in words that are nothing but a number and perhaps its unit, and whether there is one: `13b`, `24 GB`. Numbers
/// are read as everywhere: a comma separates thousands.
fn amount(words: &str) -> Option<(f64, bool)> {
    let words = words.trim().to_ascii_lowercase();
    let digits = words.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = &words[digits.len()..];
    let known = ["", "b", "billion", "g", "gb", "gib"].contains(&unit);
    let value: f64 = ungrouped(digits.trim())?.parse().ok()?;
    (known && value > 0. && value.is_finite()).then_some((value, !unit.is_empty()))
}

/// Whether something was written that no name has a part of: no letter and no digit, or an amount that is none, as `0 GB` and `-12 GB`,
/// whose digits would be found in names.
fn means_nothing(words: &str) -> bool {
    let words = words.trim();
    let (is_negative, size) = match words.strip_prefix(['-', '−']) {
        Some(size) => (true, size),
        None => (false, words),
    };
    let is_zero = || {
        let digits = size.trim_end_matches(|c: char| c.is_ascii_alphabetic()).trim();
        !digits.is_empty() && digits.chars().all(|c| matches!(c, '0' | '.' | ','))
    };
    let is_amount = || amount(size).is_some();
    !words.is_empty() && (!words.contains(char::is_alphanumeric) || is_zero() || (is_negative && is_amount()))
}

/// The id that an item is yet to be fetched by.
pub fn hub_id(key: &str) -> Option<&str> {
    key.strip_prefix(HUB)
}

/// The model that an item stands for.
pub fn model_of(key: &str) -> ModelChoice {
    match key.strip_prefix(SIZE).and_then(|value| value.parse().ok()) {
        Some(billions) => ModelChoice::Size(billions),
        None => ModelChoice::Catalogue(key.to_owned()),
    }
}

/// Takes the card that an item stands for, and as many as it says.
pub fn take_gpus(scenario: &mut Scenario, key: &str) {
    let (count, card) = key.split_once(TIMES).unwrap_or(("", key));
    scenario.gpu = gpu_of(card);
    if let Ok(count) = count.parse::<u64>() {
        scenario.cluster.set_gpus(count.min(LARGEST));
    }
}

fn gpu_of(key: &str) -> GpuChoice {
    match key.strip_prefix(MEMORY).and_then(|value| value.parse().ok()) {
        Some(gib) => GpuChoice::Custom(Bytes::gib(gib)),
        None => GpuChoice::Catalogue(key.to_owned()),
    }
}

/// What the box of the model says.
pub fn model_label(model: &ModelChoice) -> String {
    match model {
        ModelChoice::Catalogue(id) => id.clone(),
        ModelChoice::Size(billions) => format!("Any {}B Llama-like model", number(*billions)),
        ModelChoice::Custom(model) => model.name.clone(),
    }
}

/// The teacher that an item stands for.
pub fn teacher_of(key: &str) -> Option<ModelChoice> {
    (key != SAME).then(|| model_of(key))
}

/// What the box of the teacher says.
pub fn teacher_label(teacher: Option<&ModelChoice>) -> String {
    teacher.map_or_else(|| "The model that is trained".to_owned(), model_label)
}

/// What the box of the card says.
pub fn gpu_label(gpu: &GpuChoice) -> String {
    match gpu {
        GpuChoice::Catalogue(slug) => {
            crate::hardware::gpu(slug).map_or_else(|_| slug.clone(), |gpu| gpu.name.to_string())
        }
        GpuChoice::Custom(memory) => format!("Any {} GiB card", number(memory.as_gib())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_size_offers_what_there_is_of_it_before_any_of_that_size() {
        let found = find_models("13b").items;
        let any =
            found.iter().position(|item| item.label == "Any 13B Llama-like model").expect("it is offered");
        assert_eq!(model_of(&found[any].key), ModelChoice::Size(13.));
        assert!(any > 0 && found[..any].iter().all(|item| item.detail.starts_with("1")), "{found:?}");
        // digits in another model's name are no size
        let odd = find_models("23b").items;
        assert_eq!(model_of(&odd[0].key), ModelChoice::Size(23.), "{odd:?}");
        let found = find_gpus(" 40 GB").items;
        assert_eq!(gpu_of(&found[0].key), GpuChoice::Custom(Bytes::gib(40.)));
        assert_eq!(found[0].label, gpu_label(&gpu_of(&found[0].key)));
        assert!(found.len() > 1 && found[1].detail == "40 GB", "{found:?}");
        assert_eq!(gpu_of(&find_gpus("22.5GiB").items[0].key), GpuChoice::Custom(Bytes::gib(22.5)));
    }

    #[test]
    fn a_name_that_is_written_out_comes_first() {
        let first = |words: &str| find_models(words).items.first().map(|item| item.label.clone());
        for known in ["Qwen/Qwen2.5-7B", "qwen/qwen2.5-7b", "https://huggingface.co/Qwen/Qwen2.5-7B"] {
            assert_eq!(first(known).as_deref(), Some("Qwen/Qwen2.5-7B"), "{known}");
        }
        let unknown = "mistralai/Mistral-7B-v0.0";
        assert_eq!(first(unknown).as_deref(), Some(unknown));
        // an owner of whom nothing is known comes behind what the words may mean
        assert!(first("llama/8b").is_some_and(|label| label.contains("8B")));
    }

    #[test]
    fn markup_is_no_name() {
        for words in ["<b>x</b>", "{\"a\": 1}"] {
            let found = find_models(words);
            assert!(found.items.is_empty() && found.note.contains("No model matches"), "{words}");
        }
    }

    #[test]
    fn what_is_no_amount_and_no_name_finds_nothing() {
        for words in ["-12 GB", "−12 GB", "-24", "0 GB", "0", "0.0gb", "🙂", " ? ", "8x -12 GB", "8x 0 GB"]
        {
            let found = find_gpus(words);
            assert!(
                found.items.is_empty() && found.note.starts_with("No card matches “"),
                "{words}: {found:?}"
            );
        }
        for words in ["-7b", "0b", "🙂", "--"] {
            let found = find_models(words);
            assert!(
                found.items.is_empty() && found.note.starts_with("No model matches “"),
                "{words}: {found:?}"
            );
        }
        assert!(!find_gpus("0.5 GB").items.is_empty() && !find_gpus("-a100").items.is_empty());
        // more than any card could have is none either
        assert!(find_gpus("1e99 GB").items.is_empty(), "{:?}", find_gpus("1e99 GB"));
    }

    #[test]
    fn an_amount_is_the_card_that_the_command_takes_for_it() {
        for words in ["12GB", "24 gb", "22.5GiB"] {
            let found = find_gpus(words).items;
            let chosen =
                gpu_of(&found.iter().find(|item| item.key.starts_with(MEMORY)).expect("it is offered").key);
            assert_eq!(Ok(chosen), crate::hardware::sold_with(words).map(GpuChoice::Custom), "{words}");
        }
    }

    #[test]
    fn an_amount_is_one_that_can_be_taken() {
        for words in ["0.0000000001", "0", "1e-9 GB", "24,5", "1,2,3 GB", "inf", "nan GB"] {
            assert!(find_gpus(words).items.iter().all(|item| !item.key.starts_with(MEMORY)), "{words}");
        }
        assert_eq!(gpu_of(&find_gpus("0.5 GB").items[0].key), GpuChoice::Custom(Bytes::mib(512)));
        assert!(find_models("0.001b").items.iter().all(|item| !item.key.starts_with(SIZE)));
    }

    #[test]
    fn a_teacher_is_the_model_itself_or_one_of_the_catalogue() {
        let all = find_teachers("").items;
        assert_eq!((teacher_of(&all[0].key), all[0].label.as_str()), (None, "The model that is trained"));
        assert!(all.len() > 10 && all[1..].iter().all(|item| catalogue::find(&item.key).is_some()));
        let named = find_teachers("llama-3.1-8b").items;
        assert!(
            named
                .iter()
                .any(|item| teacher_label(teacher_of(&item.key).as_ref()) == "meta-llama/Llama-3.1-8B")
        );
        assert!(find_teachers("nothing like this").note.contains("No model of the catalogue"));
    }

    #[test]
    fn the_examples_are_known() {
        for preset in crate::ui::presets::PRESETS {
            let scenario = (preset.scenario)();
            assert!(scenario.gpu().is_ok() && scenario.architecture().is_ok(), "{}", preset.label);
        }
    }

    #[test]
    fn names_find_what_they_mean() {
        for (words, id) in [
            ("llama 3 8b", "meta-llama/Meta-Llama-3-8B"),
            ("qwen2.5 7b", "Qwen/Qwen2.5-7B"),
            ("gpt2", "openai-community/gpt2"),
        ] {
            assert!(
                find_models(words).items[0].key.starts_with(id),
                "{words}: {:?}",
                find_models(words).items[0]
            );
        }
        assert!(find_gpus("h100").items[0].key.starts_with("h100"));
        assert_eq!(gpu_of(&find_gpus("6").items[0].key), GpuChoice::Custom(Bytes::gib(6.)));
        assert!(find_gpus("4090").items[0].key == "rtx-4090");
    }

    #[test]
    fn an_id_that_is_not_known_is_offered_from_the_hub() {
        let address = "https://huggingface.co/someone/tiny-llama-finetune/tree/main";
        for words in ["someone/tiny-llama-finetune", address] {
            let found = find_models(words).items;
            assert_eq!(hub_id(&found[0].key), Some("someone/tiny-llama-finetune"), "{found:?}");
        }
        let known = find_models("https://huggingface.co/openai-community/gpt2").items;
        assert_eq!(known[0].key, "openai-community/gpt2");
        assert!(known.iter().all(|item| hub_id(&item.key).is_none()));
        assert!(!find_models("meta/llama").items[0].key.starts_with(HUB));
    }

    #[test]
    fn several_cards_are_taken_at_once() {
        for words in ["8x h100", "8 × H100", "h100 x8", "8*H100", "8 h100", "8 h100 80gb"] {
            let found = find_gpus(words);
            let first = found.items.iter().find(|item| item.label.contains("H100")).expect("an H100");
            assert!(first.label.starts_with("8 × H100"), "{words}: {found:?}");
            let mut scenario = Scenario::default();
            take_gpus(&mut scenario, &first.key);
            let taken = scenario.gpu().map(|gpu| gpu.name.contains("H100"));
            assert_eq!((taken, scenario.cluster.gpus), (Ok(true), 8), "{words}");
        }
        for words in ["", "rtx 4090", "gtx", "0x h100", "24 gb", "80 GB h100", "4090 laptop", "3060 12gb"] {
            assert!(find_gpus(words).items.iter().all(|item| !item.key.contains(TIMES)), "{words}");
        }
        let mut scenario = Scenario::default();
        take_gpus(&mut scenario, &find_gpus("2 x 24").items[0].key);
        assert_eq!((&scenario.gpu, scenario.cluster.gpus), (&GpuChoice::Custom(Bytes::gib(24.)), 2));
        take_gpus(&mut scenario, "t4");
        assert_eq!(scenario.cluster.gpus, 2, "one card more is no question of how many");
        assert!(find_gpus("8x nothing").note.starts_with("No card matches “nothing”"));
        assert!(find_models("no such thing").note.starts_with("No model matches “no such thing”"));
    }

    #[test]
    fn an_amount_finds_the_cards_that_are_sold_with_it() {
        let found = find_gpus("12").items;
        assert_eq!(found[0].label, "Any 12 GiB card");
        assert!(found.iter().take(8).any(|item| item.key == "rtx-3060-12gb"), "{found:?}");
    }

    #[test]
    fn what_cannot_be_found_is_not_taken_for_something_else() {
        assert_eq!(find_models("no such thing").items, []);
        assert_eq!(find_gpus("no such thing").items, []);
        assert_eq!(model_of(&find_models("").items[0].key), ModelChoice::Size(USUAL_BILLIONS));
    }

    #[test]
    fn labels_are_those_of_the_choices() {
        for item in find_models("").items {
            assert_eq!(model_label(&model_of(&item.key)), item.label);
        }
        for item in find_gpus("").items {
            assert_eq!(gpu_label(&gpu_of(&item.key)), item.label);
        }
    }
}
