//! Finding a model or a card by a few typed words.

/// How well a name answers a query; smaller is better, `None` where a word of the query is not in the name.
///
/// Every word of the query must start a word of the name, or be inside one. `llama 3 8b` finds `Meta-Llama-3-8B`
/// before `Llama-3.1-8B`.
///
/// ```
/// use headroom::ui::search::rank;
/// let exact = rank("llama 3 8b", "meta-llama/Meta-Llama-3-8B");
/// let near = rank("llama 3 8b", "meta-llama/Llama-3.1-8B");
/// assert!(exact < near);
/// assert_eq!(rank("llama 3 8b", "mistralai/Mistral-7B-v0.1"), None);
/// ```
pub fn rank(query: &str, name: &str) -> Option<u32> {
    let query = query.to_ascii_lowercase();
    let name = name.to_ascii_lowercase();
    let mut total = 0;
    for word in words(&query) {
        total += best_of_word(word, &name)?;
    }
    Some(total)
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| c.is_ascii() && !c.is_ascii_alphanumeric() && c != '.')
        .filter(|word| !word.is_empty())
}

fn best_of_word(word: &str, name: &str) -> Option<u32> {
    let mut best = if name.contains(word) { Some(8) } else { None };
    for candidate in words(name) {
        let cost = if candidate == word {
            0
        } else if let Some(rest) = candidate.strip_prefix(word) {
            // `3` starts `3.1` and `30b`: a version is nearer than another number.
            if rest.starts_with('.') { 1 } else { 2 }
        } else if letters_then(candidate, word) {
            3
        } else {
            continue;
        };
        best = Some(best.map_or(cost, |old| old.min(cost)));
    }
    best
}

/// Whether the word stands right after the letters that a candidate starts with: `3` in `llama3`, `4090` in `rtx4090`.
fn letters_then(candidate: &str, word: &str) -> bool {
    candidate.trim_start_matches(|c: char| c.is_ascii_alphabetic()).starts_with(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first<'a>(query: &str, names: &[&'a str]) -> Option<&'a str> {
        let ranked = names.iter().filter_map(|name| Some((rank(query, name)?, name.len(), *name)));
        ranked.min().map(|(.., name)| name)
    }

    #[test]
    fn finds_what_is_meant() {
        let models = [
            "meta-llama/Llama-3.1-8B",
            "meta-llama/Meta-Llama-3-8B",
            "meta-llama/Llama-3.2-11B-Vision",
            "deepseek-ai/DeepSeek-R1-Distill-Llama-8B",
            "Qwen/Qwen2.5-7B-Instruct",
            "mistralai/Mistral-7B-v0.1",
            "openai-community/gpt2",
            "openai-community/gpt2-xl",
        ];
        for (query, name) in [
            ("llama 3 8b", "meta-llama/Meta-Llama-3-8B"),
            ("llama 3.1", "meta-llama/Llama-3.1-8B"),
            ("LLAMA-3.1-8b", "meta-llama/Llama-3.1-8B"),
            ("qwen 7b", "Qwen/Qwen2.5-7B-Instruct"),
            ("gpt2", "openai-community/gpt2"),
            ("gpt2 xl", "openai-community/gpt2-xl"),
            ("7b mistral", "mistralai/Mistral-7B-v0.1"),
            ("meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-8B"),
        ] {
            assert_eq!(first(query, &models), Some(name), "{query}");
        }
        assert_eq!(first("no such model", &models), None);
        assert!(first("", &models).is_some());
        assert!(rank("é—3", "Llama-3").is_none());
    }
}
