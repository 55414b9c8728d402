//! Which choice a misspelt word means.

use super::invalid::InvalidValue;
use crate::text::short;

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
    fn edit_distance() {
        for (a, b, distance) in
            [("adamw", "adamw", 0), ("adamw", "adam", 1), ("lion", "loin", 2), ("", "abc", 3)]
        {
            assert_eq!(edits(a, b), distance, "{a} {b}");
        }
    }
}
