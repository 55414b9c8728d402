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
/// query has no words. A name that is written out, with its owner or without, comes before all others.
///
/// ```
/// use headroom::model::catalogue::search;
/// assert_eq!(search("qwen/qwen2.5-7b")[0].id, "Qwen/Qwen2.5-7B");
/// assert_eq!(search("qwen2.5-7b")[0].id, "Qwen/Qwen2.5-7B");
/// assert_eq!(search("llama 3 8b")[0].id, "meta-llama/Meta-Llama-3-8B");
/// assert_eq!(search("llama 3.1 8b instruct")[0].id, "meta-llama/Llama-3.1-8B-Instruct");
/// assert_eq!(search("mistrl 7b")[0].entry.family, "Mistral");
/// ```
pub fn search(query: &str) -> Vec<Found> {
    let written = query.trim();
    let query = asked(query);
    let found = entries().iter().zip(INDEX.iter()).filter_map(|(entry, known)| {
        // A name of the same shape counts less than the model's own.
        let own = all_met(&query, &known.own).map(|score| (2 * score, entry.id));
        let others = known.others.iter().filter_map(|(id, words)| Some((all_met(&query, words)?, *id)));
        let score = |(score, id): (u32, &'static str)| {
            let name = id.rsplit('/').next().unwrap_or_default();
            match (id.eq_ignore_ascii_case(written), name.eq_ignore_ascii_case(written)) {
                (true, _) => (u32::MAX, id),
                (false, true) => (u32::MAX - 1, id),
                (false, false) => (score, id),
            }
        };
        let (own, others) = (own.map(score), others.map(score));
        let best = others.chain(own).max_by_key(|(score, id)| (*score, std::cmp::Reverse(id.len())));
        best.map(|(score, id)| (score, Found { id, entry }))
    });
    best_first(found)
}

/// The models that words mean, parts of names and bounds of sizes among them, best first: `qwen3`, `coder 7b`, `llama <10b`. None where
/// the words hold neither a letter nor a digit.
///
/// ```
/// use headroom::model::catalogue::among;
/// let found = among("llama >60b <80b");
/// assert!(!found.is_empty() && found.iter().all(|found| (60e9..80e9).contains(&(found.entry.parameters as f64))));
/// ```
pub fn among(words: &str) -> Vec<Found> {
    let words = words.to_lowercase();
    if !words.contains(char::is_alphanumeric) {
        return Vec::new();
    }
    let (bounds, parts): (Vec<&str>, Vec<&str>) =
        words.split_whitespace().partition(|part| part.starts_with(['<', '>']));
    let mut found = search(&parts.join(" "));
    // qwen3 as it is written rather than what is a letter away from it
    let is_written = |id: &str| {
        let id = id.to_lowercase();
        parts.iter().all(|part| names(&id, part))
    };
    if parts.iter().any(|part| is_size(part)) || found.iter().any(|found| is_written(found.id)) {
        found.retain(|found| is_written(found.id));
    }
    found.retain(|found| bounds.iter().all(|bound| within(found.entry.parameters, bound)));
    found
}

/// Whether a model's name holds a part, both in small letters: one that begins with a digit where no longer number stands, `7b` of
/// `qwen2-7b` and not of `qwen3-1.7b`.
fn names(id: &str, part: &str) -> bool {
    let is_number = is_size(part);
    let begins_anew =
        |at: usize| !id[..at].ends_with(|before: char| before.is_ascii_digit() || before == '.');
    id.match_indices(part).any(|(at, _)| !is_number || begins_anew(at))
}

fn is_size(part: &str) -> bool {
    part.starts_with(|first: char| first.is_ascii_digit())
}

/// Whether so many parameters are within `<8b`, `<=8b`, `>1.5b` or `>=70b`; a bound that is none of these holds nothing.
fn within(parameters: u64, bound: &str) -> bool {
    let size = bound.trim_start_matches(['<', '>', '=']);
    let billions = size.trim_end_matches('b').parse::<f64>().map(|billions| billions * 1e9);
    let own = parameters as f64;
    billions.is_ok_and(|most| match bound.strip_suffix(size) {
        Some("<") => own < most,
        Some("<=") => own <= most,
        Some(">") => own > most,
        Some(">=") => own >= most,
        _ => false,
    })
}

/// Words with which names begin that say nothing of a model's family.
const UNTELLING: [&str; 8] = ["all", "base", "large", "mini", "multilingual", "paraphrase", "small", "tiny"];

/// The word of a name that says its family: the first of three letters and more, behind the owner. What is near has it too.
fn family(query: &str) -> Option<String> {
    let name = query.rsplit('/').next().unwrap_or(query);
    let tells = |word: &String| {
        word.len() > 2 && word.chars().all(char::is_alphabetic) && !UNTELLING.contains(&word.as_str())
    };
    asked(name).into_iter().find(tells)
}

/// The models of the family that a query names which answer most of its words, best first; none where none is answered.
pub(super) fn nearest(query: &str) -> Vec<Found> {
    let family = family(query);
    let query = asked(query);
    let found = entries().iter().zip(INDEX.iter()).filter_map(|(entry, known)| {
        if family.as_ref().is_some_and(|family| met(family, &known.own) == 0) {
            return None;
        }
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
            ("qwen2.5-7b", "Qwen/Qwen2.5-7B"),
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
        // what has the family's name is near, and nothing else
        for unknown in ["embeddinggemma-300m", "nomic-ai/nomic-embed-text-v1.5", "all-foonet-base-v2"] {
            assert!(nearest(unknown).is_empty(), "{unknown}: {:?}", nearest(unknown));
        }
        let near = nearest("microsoft/Phi-4-reasoning-plus");
        assert!(!near.is_empty() && near.iter().all(|found| found.id.to_lowercase().contains("phi")));
        for (own, id) in [
            ("sentence-transformers/all-mpnet-base-v2", "sentence-transformers/all-mpnet-base-v2"),
            ("llava-1.5-7b-hf", "llava-hf/llava-1.5-7b-hf"),
            ("Qwen3-Embedding-8B", "Qwen/Qwen3-Embedding-8B"),
            ("BAAI/bge-reranker-v2-m3", "BAAI/bge-reranker-v2-m3"),
        ] {
            assert_eq!(search(own)[0].id, id);
        }
        assert!(search("xyzzy").is_empty() && among("xyzzy").is_empty());
        assert!(among("%%%").is_empty() && among("llama <1k").is_empty());
        assert!(names("qwen2-7b", "7b") && !names("qwen3-1.7b", "7b"));
        assert_eq!(search("").len(), entries().len());
    }
}
