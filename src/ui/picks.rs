//! What can be picked from the two searchable lists, and what their typed words mean.

use super::controls::Item;
use super::format::{number, parameters};
use super::scale::decimal;
use super::search::rank;
use crate::hardware::gpus;
use crate::model::catalogue::{self, aliases, entries};
use crate::scenario::{GpuChoice, ModelChoice};
use crate::units::Bytes;

/// The key of an item that is a model of some size.
const SIZE: &str = "size:";
/// The key of an item that is a card of some memory.
const MEMORY: &str = "memory:";
/// The size that is offered where the words name none.
const USUAL_BILLIONS: f64 = 7.;
/// The memory that is offered where the words name none.
const USUAL_GIB: f64 = 24.;

/// The cards that most people have or rent; they head the list.
const USUAL_CARDS: [&str; 14] = [
    "rtx-4090",
    "rtx-3090",
    "rtx-5090",
    "rtx-4070-ti-super",
    "rtx-3060-12gb",
    "t4",
    "l4",
    "a10g",
    "l40s",
    "a100-sxm-40gb",
    "a100-sxm-80gb",
    "h100-sxm-80gb",
    "h200-sxm",
    "b200",
];

/// The models that a few words may mean.
pub fn find_models(words: &str) -> Vec<Item> {
    let models = entries().iter().map(|entry| (entry.id, entry.parameters));
    // Repositories of the same shape are found by their names, but only where one looks for them.
    let same_shape = aliases().filter(|_| !words.trim().is_empty());
    let same_shape = same_shape.filter_map(|(alias, id)| Some((alias, catalogue::find(id)?.parameters)));
    let item = |(id, count): (&str, u64)| Item {
        key: id.to_owned(),
        label: id.to_owned(),
        detail: parameters(count),
    };
    let items = models.map(move |model| (false, item(model)));
    let items = items.chain(same_shape.map(move |model| (true, item(model))));
    with_free_choice(words, items, |n| {
        let billions = n.unwrap_or(USUAL_BILLIONS);
        let label = model_label(&ModelChoice::Size(billions));
        Item { key: format!("{SIZE}{billions}"), label, detail: "any size".to_owned() }
    })
}

/// The cards that a few words may mean.
pub fn find_gpus(words: &str) -> Vec<Item> {
    let usual = USUAL_CARDS.iter().filter_map(|slug| gpus().iter().find(|gpu| *gpu.slug == **slug));
    let others = gpus().iter().filter(|gpu| !USUAL_CARDS.contains(&&*gpu.slug));
    let items = usual.chain(others).map(|gpu| {
        let detail = gpu.marketed_gb.map(|gb| format!("{gb} GB")).unwrap_or_default();
        (false, Item { key: gpu.slug.to_string(), label: gpu.name.to_string(), detail })
    });
    with_free_choice(words, items, |n| {
        let gib = n.unwrap_or(USUAL_GIB);
        let label = gpu_label(&GpuChoice::Custom(Bytes::gib(gib)));
        Item { key: format!("{MEMORY}{gib}"), label, detail: "any card".to_owned() }
    })
}

/// The known items that answer, best first and second names after first names that answer as well, with the item of a
/// free size: before them where there are no words or a number that is no name, else after them.
fn with_free_choice(
    words: &str,
    items: impl Iterator<Item = (bool, Item)>,
    free: impl Fn(Option<f64>) -> Item,
) -> Vec<Item> {
    let mut ranked: Vec<(u32, u32, Item)> = Vec::new();
    for (second, item) in items {
        let Some(cost) = rank(words, &item.label) else { continue };
        // Of equally good names the shorter one says less that was not asked for.
        let tie =
            if words.trim().is_empty() { 0 } else { u32::from(second) * 1000 + item.label.len() as u32 };
        let at = ranked.partition_point(|(other, its_tie, _)| (*other, *its_tie) <= (cost, tie));
        ranked.insert(at, (cost, tie, item));
    }
    // `4090` is rather the card of that name than a card with 4090 GiB.
    let named = ranked.first().is_some_and(|(cost, ..)| *cost == 0);
    let mut found: Vec<Item> = ranked.into_iter().map(|(.., item)| item).collect();
    match amount(words) {
        Some((size, unit)) if unit || !named => found.insert(0, free(Some(size))),
        Some((size, _)) => found.push(free(Some(size))),
        None if words.trim().is_empty() => found.insert(0, free(None)),
        None => found.push(free(None)),
    }
    found
}

/// The number in words that are nothing but a number and perhaps its unit, and whether there is one: `13b`, `24 GB`.
fn amount(words: &str) -> Option<(f64, bool)> {
    let words = words.trim().to_ascii_lowercase();
    let digits = words.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = &words[digits.len()..];
    let known = ["", "b", "billion", "g", "gb", "gib"].contains(&unit);
    let value = decimal(digits.trim())?;
    (known && value > 0.).then_some((value, !unit.is_empty()))
}

/// The model that an item stands for.
pub fn model_of(key: &str) -> ModelChoice {
    match key.strip_prefix(SIZE).and_then(decimal) {
        Some(billions) => ModelChoice::Size(billions),
        None => ModelChoice::Catalogue(key.to_owned()),
    }
}

/// The card that an item stands for.
pub fn gpu_of(key: &str) -> GpuChoice {
    match key.strip_prefix(MEMORY).and_then(decimal) {
        Some(gib) => GpuChoice::Custom(Bytes::gib(gib)),
        None => GpuChoice::Catalogue(key.to_owned()),
    }
}

/// What the box of the model says.
pub fn model_label(model: &ModelChoice) -> String {
    match model {
        ModelChoice::Catalogue(id) => id.clone(),
        ModelChoice::Size(billions) => format!("A model of {} billion parameters", number(*billions)),
        ModelChoice::Custom(model) => model.name.clone(),
    }
}

/// What the box of the card says.
pub fn gpu_label(gpu: &GpuChoice) -> String {
    match gpu {
        GpuChoice::Catalogue(slug) => {
            crate::hardware::gpu(slug).map_or_else(|_| slug.clone(), |gpu| gpu.name.to_string())
        }
        GpuChoice::Custom(memory) => format!("A card with {} GiB", number(memory.as_gib())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_size_offers_a_model_of_that_size_first() {
        let found = find_models("13b");
        assert_eq!(found[0].label, "A model of 13 billion parameters");
        assert_eq!(model_of(&found[0].key), ModelChoice::Size(13.));
        let found = find_gpus(" 40 GB");
        assert_eq!(gpu_of(&found[0].key), GpuChoice::Custom(Bytes::gib(40.)));
        assert_eq!(found[0].label, gpu_label(&gpu_of(&found[0].key)));
    }

    #[test]
    fn the_usual_cards_are_known() {
        for slug in USUAL_CARDS {
            assert!(crate::hardware::gpu(slug).is_ok(), "{slug}");
        }
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
            assert!(find_models(words)[0].key.starts_with(id), "{words}: {:?}", find_models(words)[0]);
        }
        assert!(find_gpus("h100")[0].key.starts_with("h100"));
        assert!(find_gpus("4090")[0].key == "rtx-4090");
    }

    #[test]
    fn what_cannot_be_found_still_offers_a_size() {
        let found = find_models("no such thing");
        assert_eq!(found.len(), 1);
        assert_eq!(model_of(&found[0].key), ModelChoice::Size(USUAL_BILLIONS));
    }

    #[test]
    fn labels_are_those_of_the_choices() {
        for item in find_models("") {
            assert_eq!(model_label(&model_of(&item.key)), item.label);
        }
        for item in find_gpus("") {
            assert_eq!(gpu_label(&gpu_of(&item.key)), item.label);
        }
    }
}
