//! Layers in words, and what stands where.

use crate::units::grouped;

/// What it is and where: one of them at least.
pub(super) fn named(what: String, at: String) -> String {
    match (what.is_empty(), at.is_empty()) {
        (true, true) => "outside the layers".to_owned(),
        (true, false) => at,
        (false, true) => what,
        (false, false) => what + ", " + &at,
    }
}

/// How many stretches of layers are told.
const STRETCHES: usize = 4;

/// Layers as PyTorch numbers them: `layers 0 to 30`; nothing for what is in none.
pub(super) fn numbers(layers: &[u32]) -> String {
    let own: Vec<u64> =
        layers.iter().filter(|layer| **layer > 0).map(|layer| u64::from(*layer) - 1).collect();
    let stretch = |stretch: &[u64]| match stretch {
        [] => String::new(),
        [one] => grouped(*one),
        [one, other] => format!("{}, {}", grouped(*one), grouped(*other)),
        [first, .., last] => format!("{} to {}", grouped(*first), grouped(*last)),
    };
    let mut stretches: Vec<String> = own.chunk_by(|one, next| one + 1 == *next).map(stretch).collect();
    let left = stretches.len() > STRETCHES;
    stretches.truncate(STRETCHES);
    let told = stretches.join(", ");
    match (own.len(), left) {
        (0, _) => told,
        (1, _) => format!("layer {told}"),
        (_, false) => format!("layers {told}"),
        (count, true) => format!("{count} layers: {told}, …"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_told_by_their_numbers() {
        for (layers, told) in [
            (&[0][..], ""),
            (&[1], "layer 0"),
            (&[1, 2], "layers 0, 1"),
            (&[1, 2, 3, 4, 32], "layers 0 to 3, 31"),
            (&[1, 3, 5, 7, 9, 11], "6 layers: 0, 2, 4, 6, …"),
        ] {
            assert_eq!(numbers(layers), told);
        }
    }
}
