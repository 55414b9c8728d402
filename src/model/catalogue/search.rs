//! Finding a model of the catalogue by a few words.

use std::sync::LazyLock;

use super::entries::{Entry, aliases, entries};
use crate::search::{all_met, asked, best_first, met, words};

/// What an entry is found by.
struct Words {
    /// Its id, name, family, organisation and size.
    own: Vec<String>,
    /// The ids of repositories of the same shape, each with its words.
    others: Vec<(&'static str, Vec<String>)>,
}

static INDEX: LazyLock<Vec<Words>> = LazyLock::new(|| {
    let same_shape: Vec<_> = aliases().collect();
    let index = |entry: &Entry| {
        let mut own = words(entry.id);
        own.extend(words(entry.family));
        own.extend(sizes(entry.parameters));
        let others = same_shape.iter().filter(|(_, id)| *id == entry.id);
        Words { own, others: others.map(|(alias, _)| (*alias, words(alias))).collect() }
    };
    entries().iter().map(index).collect()
});

/// How people write a number of parameters: `8b`, `8.0b`, `494m`.
fn sizes(parameters: u64) -> Vec<String> {
    let (billions, millions) = (parameters as f64 / 1e9, parameters as f64 / 1e6);
    if billions >= 1.0 {
        vec![format!("{billions:.0}b"), format!("{billions:.1}b")]
    } else {
        vec![format!("{millions:.0}m"), format!("{billions:.1}b")]
    }
}

/// What a search found.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// The name that answers best: the model's own id, or that of a repository of the same shape.
    pub id: &'static str,
    /// The model.
    pub entry: &'static Entry,
}

/// The models that answer every word of a query, best first, the more popular before the less. All of them where the
/// query has no words.
///
/// ```
/// use headroom::model::catalogue::search;
/// assert_eq!(search("llama 3 8b")[0].id, "meta-llama/Meta-Llama-3-8B");
/// assert_eq!(search("mistrl 7b")[0].entry.family, "Mistral");
/// ```
pub fn search(query: &str) -> Vec<Found> {
    let query = asked(query);
    let found = entries().iter().zip(INDEX.iter()).filter_map(|(entry, known)| {
        // A name of the same shape counts less than the model's own.
        let own = all_met(&query, &known.own).map(|score| (2 * score, entry.id));
        let others = known.others.iter().filter_map(|(id, words)| Some((all_met(&query, words)?, *id)));
        let best = others.chain(own).max_by_key(|(score, id)| (*score, std::cmp::Reverse(id.len())));
        best.map(|(score, id)| (score, Found { id, entry }))
    });
    best_first(found)
}

/// The models that answer most words of a query, best first; none where none is answered.
pub(super) fn nearest(query: &str) -> Vec<Found> {
    let query = asked(query);
    let found = entries().iter().zip(INDEX.iter()).filter_map(|(entry, known)| {
        let score = query.iter().map(|word| met(word, &known.own)).sum::<u32>();
        (score > 0).then_some((score, Found { id: entry.id, entry }))
    });
    best_first(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_people_type() {
        for (query, id) in [
            ("llama 3 8b", "meta-llama/Meta-Llama-3-8B"),
            ("llama3-8b", "meta-llama/Meta-Llama-3-8B"),
            ("llama 3.1 8b", "meta-llama/Llama-3.1-8B"),
            ("qwen2.5-7b", "Qwen/Qwen2.5-7B-Instruct"),
            ("qwen 2.5 7b", "Qwen/Qwen2.5-7B-Instruct"),
            ("mistrl 7b", "mistralai/Mistral-7B-Instruct-v0.3"),
            ("gemma 2 9b", "google/gemma-2-9b"),
            ("gpt2", "openai-community/gpt2"),
            ("gpt-oss", "openai/gpt-oss-20b"),
            ("deepseek v3", "deepseek-ai/DeepSeek-V3"),
            ("bert", "google-bert/bert-base-uncased"),
            ("meta 70b", "meta-llama/Llama-3.3-70B-Instruct"),
            ("smollm 135m", "HuggingFaceTB/SmolLM2-135M"),
            ("", "meta-llama/Llama-3.1-8B"),
        ] {
            assert_eq!(search(query).first().map(|found| found.id), Some(id), "{query}");
        }
        assert!(search("xyzzy").is_empty());
        assert_eq!(search("").len(), entries().len());
    }
}
