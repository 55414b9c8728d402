//! Finding a model of the catalogue by a few words.

use std::sync::LazyLock;

use super::catalogue::{Entry, aliases, entries};

/// What an entry is found by.
struct Words {
    /// Its id, name, family, organisation and size.
    own: Vec<String>,
    /// The ids of repositories of the same shape.
    others: Vec<String>,
}

static INDEX: LazyLock<Vec<Words>> = LazyLock::new(|| {
    let same_shape: Vec<_> = aliases().collect();
    let index = |entry: &Entry| {
        let mut own = words(entry.id);
        own.extend(words(entry.family));
        own.extend(sizes(entry.parameters));
        let others = same_shape.iter().filter(|(_, id)| *id == entry.id).flat_map(|(alias, _)| words(alias));
        Words { own, others: others.collect() }
    };
    entries().iter().map(index).collect()
});

/// A text in lower case, cut where it changes kind: `Qwen2.5-7B` is `qwen`, `2.5`, `7b`.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut last = ' ';
    for c in text.to_ascii_lowercase().chars() {
        let point = c == '.' && last.is_ascii_digit();
        let joins = match (last, c) {
            (a, b) if a.is_alphabetic() && b.is_alphabetic() => true,
            // A number keeps its unit and its fraction.
            (a, b) if (a.is_ascii_digit() || a == '.') && (b.is_alphanumeric() || point) => true,
            _ => false,
        };
        match words.last_mut() {
            Some(word) if joins => word.push(c),
            _ if c.is_alphanumeric() => words.push(c.to_string()),
            _ => {}
        }
        last = if c.is_alphanumeric() || point { c } else { ' ' };
    }
    words.iter_mut().for_each(|word| word.truncate(word.trim_end_matches('.').len()));
    words
}

/// How people write a number of parameters: `8b`, `8.0b`, `494m`.
fn sizes(parameters: u64) -> Vec<String> {
    let (billions, millions) = (parameters as f64 / 1e9, parameters as f64 / 1e6);
    if billions >= 1.0 {
        vec![format!("{billions:.0}b"), format!("{billions:.1}b")]
    } else {
        vec![format!("{millions:.0}m"), format!("{billions:.1}b")]
    }
}

/// How well a word of the query is met: 0 not at all, 5 exactly.
fn met(word: &str, known: &[String]) -> u32 {
    known.iter().map(|other| closeness(word, other)).max().unwrap_or(0)
}

fn closeness(word: &str, other: &str) -> u32 {
    if word == other {
        5
    } else if other.starts_with(word) {
        3
    } else if word.len() > 1 && other.contains(word) {
        2
    } else if is_slip(word, other) {
        1
    } else {
        0
    }
}

/// Whether a word is another with a slip or two: letters only, for numbers differ on purpose.
fn is_slip(word: &str, other: &str) -> bool {
    let allowed = match word.chars().count() {
        0..=3 => return false,
        4..=6 => 1,
        _ => 2,
    };
    let letters = |text: &str| text.chars().all(char::is_alphabetic);
    letters(word) && letters(other) && distance(word, other) <= allowed
}

/// Letters to change, add, leave out or swap with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    if a.len().abs_diff(b.len()) > 2 || a.len() > 40 || b.len() > 40 {
        return usize::MAX;
    }
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, left) in a.iter().enumerate() {
        let mut next = vec![i + 1];
        for (j, right) in b.iter().enumerate() {
            let at = |row: &[usize], index: usize| row.get(index).copied().unwrap_or(usize::MAX / 2);
            let change = at(&row, j) + usize::from(left != right);
            let mut best = change.min(at(&row, j + 1) + 1).min(at(&next, j) + 1);
            let swapped = i > 0 && j > 0 && a.get(i - 1) == Some(right) && b.get(j - 1) == Some(left);
            if swapped {
                best = best.min(at(&before, j - 1) + 1);
            }
            next.push(best);
        }
        before = std::mem::replace(&mut row, next);
    }
    row.last().copied().unwrap_or(usize::MAX)
}

/// The entries that answer every word of a query, best first, the more popular before the less. All of them where the
/// query has no words.
///
/// ```
/// use headroom::model::catalogue::search;
/// assert_eq!(search("llama 3 8b")[0].id, "meta-llama/Meta-Llama-3-8B");
/// assert_eq!(search("mistrl 7b")[0].family, "Mistral");
/// ```
pub fn search(query: &str) -> Vec<&'static Entry> {
    let query: Vec<String> = words(query).into_iter().take(12).collect();
    let score = |known: &Words| {
        query.iter().try_fold(0, |sum, word| {
            // A name of the same shape counts less than the model's own.
            let score = (2 * met(word, &known.own)).max(met(word, &known.others));
            (score > 0).then_some(sum + score)
        })
    };
    let mut found: Vec<(u32, &Entry)> = entries()
        .iter()
        .zip(INDEX.iter())
        .filter_map(|(entry, known)| Some((score(known)?, entry)))
        .collect();
    found.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
    found.into_iter().map(|(_, entry)| entry).collect()
}

/// The entries that answer most words of a query, best first; none where none is answered.
pub(super) fn nearest(query: &str) -> Vec<&'static Entry> {
    let query = words(query);
    let score = |known: &Words| query.iter().map(|word| met(word, &known.own)).sum::<u32>();
    let mut found: Vec<(u32, &Entry)> = entries()
        .iter()
        .zip(INDEX.iter())
        .map(|(entry, known)| (score(known), entry))
        .filter(|(score, _)| *score > 0)
        .collect();
    found.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
    found.into_iter().map(|(_, entry)| entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_where_kinds_change() {
        for (text, cut) in [
            ("Qwen2.5-7B", "qwen 2.5 7b"),
            ("llama3-8b", "llama 3 8b"),
            ("bert-base-uncased", "bert base uncased"),
            ("v0.1. x", "v 0.1 x"),
            ("Qwen3-30B-A3B", "qwen 3 30b a 3b"),
            ("  ", ""),
        ] {
            assert_eq!(words(text).join(" "), cut, "{text}");
        }
    }

    #[test]
    fn counts_slips() {
        for (a, b, slips) in
            [("mistrl", "mistral", 1), ("lamma", "llama", 2), ("llmaa", "llama", 1), ("a", "a", 0)]
        {
            assert_eq!(distance(a, b), slips, "{a} {b}");
        }
    }

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
            assert_eq!(search(query).first().map(|entry| entry.id), Some(id), "{query}");
        }
        assert!(search("xyzzy").is_empty());
        assert_eq!(search("").len(), entries().len());
    }
}
