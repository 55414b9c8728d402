//! The numbers of GPUs that are looked at.

/// The numbers in which GPUs are bought and rented most: parts of a machine of eight, and several such machines.
pub const GPU_COUNTS: [u64; 11] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];

/// The numbers of GPUs between two of [`GPU_COUNTS`]: each of one machine, which has so many at most, whole machines beyond, in steps of an
/// eighth where they are many.
pub(super) fn between(fewer: u64, more: u64, per_node: u64) -> impl Iterator<Item = u64> {
    let stride = if more <= per_node { 1 } else { per_node.max((more - fewer) / 8).max(1) };
    (fewer..more).step_by(stride as usize).skip(1)
}

/// Every number of GPUs that is looked at, the fewest first: the usual ones and those between them.
pub(super) fn ascending(per_node: u64) -> impl Iterator<Item = u64> {
    let fewer = [0].into_iter().chain(GPU_COUNTS);
    fewer.zip(GPU_COUNTS).flat_map(move |(fewer, usual)| between(fewer, usual, per_node).chain([usual]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_a_machine_and_whole_machines_are_tried() {
        let between = |fewer, more| between(fewer, more, 8).collect::<Vec<_>>();
        assert_eq!((between(0, 1), between(1, 2), between(4, 8)), (vec![], vec![], vec![5, 6, 7]));
        assert_eq!((between(8, 16), between(16, 64)), (vec![], vec![24, 32, 40, 48, 56]));
        assert_eq!(between(512, 1024), [576, 640, 704, 768, 832, 896, 960]);
        let all: Vec<u64> = ascending(8).collect();
        assert!(all.is_sorted_by(|one, other| one < other));
        assert!(GPU_COUNTS.iter().chain(&[3, 5, 6, 7, 24, 56, 960]).all(|gpus| all.contains(gpus)));
        let of_four: Vec<u64> = ascending(4).take_while(|gpus| *gpus <= 32).collect();
        assert_eq!(of_four, [1, 2, 3, 4, 8, 12, 16, 20, 24, 28, 32]);
        assert!(ascending(0).is_sorted_by(|one, other| one < other));
    }
}
