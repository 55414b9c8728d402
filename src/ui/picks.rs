//! What can be picked from the two searchable lists, and what their typed words mean.

use super::controls::Item;
use super::format::{number, parameters};
use super::search::rank;
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

/// The models that a few words may mean.
pub fn find_models(words: &str) -> Vec<Item> {
    let known = std::iter::once(("meta-llama/Llama-3.1-8B", 8_030_261_248_u64));
    let items =
        known.map(|(id, count)| Item { key: id.to_owned(), label: id.to_owned(), detail: parameters(count) });
    with_free_choice(words, items, |n| {
        let billions = n.unwrap_or(USUAL_BILLIONS);
        let label = model_label(&ModelChoice::Size(billions));
        Item { key: format!("{SIZE}{billions}"), label, detail: "any size".to_owned() }
    })
}

/// The cards that a few words may mean.
pub fn find_gpus(words: &str) -> Vec<Item> {
    let known = std::iter::once(("rtx-4090", "GeForce RTX 4090", Bytes::mib(24_564)));
    let items = known.map(|(slug, name, memory)| Item {
        key: slug.to_owned(),
        label: name.to_owned(),
        detail: memory.in_binary_unit(),
    });
    with_free_choice(words, items, |n| {
        let gib = n.unwrap_or(USUAL_GIB);
        let label = format!("A card with {} GiB", number(gib));
        Item { key: format!("{MEMORY}{gib}"), label, detail: "any memory".to_owned() }
    })
}

/// The known items that answer, best first, with the item of a free size: before them where the words are a number
/// and a unit, else after them.
fn with_free_choice(
    words: &str,
    items: impl Iterator<Item = Item>,
    free: impl Fn(Option<f64>) -> Item,
) -> Vec<Item> {
    let mut ranked: Vec<(u32, Item)> = items
        .filter_map(|item| Some((rank(words, &format!("{} {}", item.label, item.detail))?, item)))
        .collect();
    if !words.trim().is_empty() {
        ranked.sort_by_key(|(cost, _)| *cost);
    }
    let mut found: Vec<Item> = ranked.into_iter().map(|(_, item)| item).collect();
    match amount(words) {
        Some(size) => found.insert(0, free(Some(size))),
        None => found.push(free(None)),
    }
    found
}

/// The number in words that are nothing but a number and perhaps its unit: `13b`, `24 GB`, `0.5`.
fn amount(words: &str) -> Option<f64> {
    let words = words.trim().to_lowercase();
    let digits = words.trim_end_matches(char::is_alphabetic);
    let unit = &words[digits.len()..];
    let known = ["", "b", "billion", "g", "gb", "gib"].contains(&unit);
    let value: f64 = digits.trim().parse().ok()?;
    (known && value.is_finite() && value > 0.).then_some(value)
}

/// The model that an item stands for.
pub fn model_of(key: &str) -> ModelChoice {
    match key.strip_prefix(SIZE).and_then(|size| size.parse().ok()) {
        Some(billions) => ModelChoice::Size(billions),
        None => ModelChoice::Catalogue(key.to_owned()),
    }
}

/// The card that an item stands for.
pub fn gpu_of(key: &str) -> GpuChoice {
    match key.strip_prefix(MEMORY).and_then(|size| size.parse().ok()) {
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
