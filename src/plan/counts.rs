//! The numbers of GPUs that are looked at.

/// The numbers in which GPUs are bought and rented most: parts of a machine of eight, and several such machines.
pub const GPU_COUNTS: [u64; 11] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];

/// The numbers in which GPUs are had most where a machine has so many: the usual ones of a machine, then twice, four times as many machines.
pub(super) fn usual(per_node: u64) -> impl Iterator<Item = u64> {
    let per_node = per_node.max(1);
    let most = GPU_COUNTS[GPU_COUNTS.len() - 1];
    let machines = std::iter::successors(Some(per_node), |gpus| gpus.checked_mul(2));
    let of_one = GPU_COUNTS.into_iter().take_while(move |gpus| *gpus < per_node);
    of_one.chain(machines.take_while(move |gpus| *gpus <= most))
}

/// The numbers of GPUs between two of these: each of one machine, whole machines beyond, in steps of an eighth where they are many.
pub(super) fn between(fewer: u64, more: u64, per_node: u64) -> impl Iterator<Item = u64> {
    let per_node = per_node.max(1);
    let stride = if more <= per_node { 1 } else { ((more - fewer) / 8 / per_node).max(1) * per_node };
    (fewer..more).step_by(stride as usize).skip(1)
}

/// Every number of GPUs that is looked at, the fewest first: the usual ones and those between them.
pub(super) fn ascending(per_node: u64) -> impl Iterator<Item = u64> {
    let fewer = std::iter::once(0).chain(usual(per_node));
    fewer.zip(usual(per_node)).flat_map(move |(fewer, more)| between(fewer, more, per_node).chain([more]))
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
        let first = |per_node: u64, most: u64| {
            ascending(per_node).take_while(|gpus| *gpus <= most).collect::<Vec<_>>()
        };
        assert_eq!(first(4, 32), [1, 2, 3, 4, 8, 12, 16, 20, 24, 28, 32]);
        assert_eq!(first(6, 48), [1, 2, 3, 4, 5, 6, 12, 18, 24, 30, 36, 42, 48]);
        assert_eq!(first(3, 12), [1, 2, 3, 6, 9, 12]);
        assert_eq!(first(12, 36), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 24, 36]);
        assert_eq!(first(0, 5), [1, 2, 3, 4, 5]);
        for per_node in [0, 1, 3, 6, 7, 8, 12, 72, 1000, 4096, u64::MAX] {
            let all: Vec<u64> = ascending(per_node).collect();
            assert!(all.is_sorted_by(|one, other| one < other), "{per_node}");
            let whole = |gpus: &u64| *gpus <= per_node || gpus.is_multiple_of(per_node.max(1));
            assert!(all.iter().all(whole) && all.last() <= Some(&1024), "{per_node}: {all:?}");
        }
    }
}
