//! Finding what a few typed words mean, whatever their spelling.

use std::cmp::Reverse;

/// A text in lower case, cut where it changes kind: `Qwen2.5-7B` is `qwen`, `2.5`, `7b`.
pub(crate) fn words(text: &str) -> Vec<String> {
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

/// The words of a query that are looked for. No name has more characters than are read of it, or more words.
pub(crate) fn asked(query: &str) -> Vec<String> {
    const LONGEST: usize = 200;
    let end = query.char_indices().nth(LONGEST).map_or(query.len(), |(end, _)| end);
    let mut words = words(query.get(..end).unwrap_or_default());
    words.truncate(12);
    words
}

/// How well a word of the query is met: 0 not at all, 5 exactly.
pub(crate) fn met(word: &str, known: &[String]) -> u32 {
    known.iter().map(|other| closeness(word, other)).max().unwrap_or(0)
}

/// How well every word of a query is met, all together; `None` where one is not.
pub(crate) fn all_met(query: &[String], known: &[String]) -> Option<u32> {
    query.iter().try_fold(0, |sum, word| match met(word, known) {
        0 => None,
        score => Some(sum + score),
    })
}

/// What has a score, best first; of equal ones the first stays first.
pub(crate) fn best_first<T>(scored: impl Iterator<Item = (u32, T)>) -> Vec<T> {
    let mut scored: Vec<(u32, T)> = scored.collect();
    scored.sort_by_key(|(score, _)| Reverse(*score));
    scored.into_iter().map(|(_, thing)| thing).collect()
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

    /// One word of 32 kB once took ten seconds: every candidate was compared with all of it.
    #[test]
    fn of_a_long_word_only_the_beginning_is_looked_at() {
        let long = "ä".repeat(1 << 15);
        assert_eq!(asked(&long)[0].chars().count(), 200);
        let start = std::time::Instant::now();
        assert!(crate::model::catalogue::search(&long).is_empty());
        assert!(crate::hardware::search(&long).is_empty());
        assert!(
            crate::model::catalogue::architecture(&long).is_err() && crate::hardware::gpu(&long).is_err()
        );
        assert!(start.elapsed() < std::time::Duration::from_secs(1), "{:?}", start.elapsed());
    }

    #[test]
    fn every_word_must_be_met() {
        let known = words("Meta-Llama-3-8B");
        let score = |query| all_met(&asked(query), &known);
        assert_eq!(score(""), Some(0));
        assert!(score("llama 3 8b") > score("llama 8"));
        assert_eq!(score("llama 70b"), None);
        assert_eq!(best_first([(1, 'a'), (2, 'b'), (1, 'c')].into_iter()), ['b', 'a', 'c']);
    }
}
