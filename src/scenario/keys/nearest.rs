//! Which choice a misspelt word means.

use super::invalid::InvalidValue;
use crate::text::short;

/// What people call a choice that has another name here, because it is one of its kinds, or takes what it takes.
const MEANT: [(&str, &str); 21] = [
    ("gspo", "grpo"),
    ("dapo", "grpo"),
    ("dr-grpo", "grpo"),
    ("gmpo", "grpo"),
    ("ipo", "dpo"),
    ("rerank", "classify"),
    ("reranker", "classify"),
    ("cross-encoder", "classify"),
    ("classification", "classify"),
    ("regression", "classify"),
    ("embedding", "embed"),
    ("embeddings", "embed"),
    ("gkd", "distil"),
    ("distill", "distil"),
    ("distillation", "distil"),
    ("finetune", "sft"),
    ("fine-tune", "sft"),
    ("reward-model", "reward"),
    ("inference", "generate"),
    ("serve", "generate"),
    ("rlhf", "ppo"),
];

/// The slug that was meant: its index, and whether it was written exactly.
pub(super) fn nearest(slugs: &[&str], text: &str) -> Result<(usize, Result<(), InvalidValue>), InvalidValue> {
    let plain = text.to_ascii_lowercase().replace('_', "-");
    if let Some(index) = slugs.iter().position(|slug| *slug == plain) {
        return Ok((index, Ok(())));
    }
    // A switch's words for the choices that are on or off.
    let word = match plain.as_str() {
        "true" | "yes" | "1" => "on",
        "false" | "no" | "0" => "off",
        _ => "",
    };
    if let Some(index) = slugs.iter().position(|slug| *slug == word) {
        return Ok((index, Ok(())));
    }
    if let Some((word, slug)) = MEANT.iter().find(|(word, slug)| *word == plain && slugs.contains(slug)) {
        let index = slugs.iter().position(|own| own == slug).unwrap_or_default();
        let clause = format!("there is no {word:?} of its own: it is {slug}");
        return Ok((index, Err(InvalidValue::new(clause))));
    }
    let unknown = InvalidValue::new(format!("there is no {:?}", short(text)));
    let closest = slugs.iter().map(|slug| edits(slug, &plain)).enumerate().min_by_key(|(_, edits)| *edits);
    match closest {
        Some((index, 1..=2)) if plain.len() > 3 => Ok((index, Err(unknown))),
        _ => Err(unknown),
    }
}

/// Edit distance (Levenshtein), of the first 32 bytes.
fn edits(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let (a, b) = (a.get(..32).unwrap_or(a), b.get(..32).unwrap_or(b));
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut left = i + 1;
        let mut next = vec![left];
        for (y, above) in b.iter().zip(row.windows(2)) {
            if let [diagonal, up] = above {
                left = (diagonal + usize::from(x != y)).min(left + 1).min(up + 1);
                next.push(left);
            }
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_words_for_a_choice_name_the_right_one() {
        let tasks = ["sft", "dpo", "grpo", "classify", "distil"];
        for (word, slug) in
            [("gspo", "grpo"), ("DAPO", "grpo"), ("ipo", "dpo"), ("reranker", "classify"), ("gkd", "distil")]
        {
            let Ok((index, Err(why))) = nearest(&tasks, word) else { panic!("{word}") };
            assert_eq!(tasks[index], slug);
            assert!(why.to_string().ends_with(&format!("it is {slug}")), "{why}");
        }
        assert!(nearest(&["adamw", "lion"], "gspo").is_err());
    }

    /// No choice of any key is meant by a word that is another one's own.
    #[test]
    fn no_such_word_is_a_choice_itself() {
        use crate::scenario::Task;
        for (word, slug) in MEANT {
            assert!(!Task::SLUGS.contains(&word) && Task::SLUGS.contains(&slug), "{word}");
        }
    }

    #[test]
    fn edit_distance() {
        for (a, b, distance) in
            [("adamw", "adamw", 0), ("adamw", "adam", 1), ("lion", "loin", 2), ("", "abc", 3)]
        {
            assert_eq!(edits(a, b), distance, "{a} {b}");
        }
    }
}
