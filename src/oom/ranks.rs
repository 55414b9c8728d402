//! On how many GPUs a text's run was at least, by the numbers that its processes have.

use crate::scenario::Scenario;

/// How many GPUs there are at least where a process of that number failed: `[rank3]:` of torchrun. A card's number proves none beside it: one
/// process may have been put on the last card of a machine.
pub(super) fn gpus(text: &str) -> Option<u64> {
    let ranks = text.match_indices("[rank").filter_map(|(at, word)| {
        let (rank, rest) = number(&text[at + word.len()..])?;
        rest.starts_with(']').then_some(rank)
    });
    // people start a run on a power of two
    ranks.max().filter(|last| *last > 0).map(|last| (last + 1).next_power_of_two())
}

/// A number that a text begins with, and what stands behind it: a run has at most some thousands of ranks.
fn number(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    digits.parse::<u16>().ok().map(|number| (u64::from(number), rest))
}

/// The scenario on so many GPUs, where it is on fewer.
pub(super) fn on_as_many(scenario: &Scenario, gpus: Option<u64>) -> Scenario {
    let mut other = scenario.clone();
    if let Some(gpus) = gpus.filter(|gpus| *gpus > scenario.cluster.gpus && scenario.task.trains()) {
        other.change(|other| other.cluster.set_gpus(gpus));
    }
    other
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_rank_that_is_named_counts() {
        for (text, number) in [
            (
                "[rank3]: torch.OutOfMemoryError: CUDA out of memory. GPU 3 has a total capacity of 79.15 GiB",
                Some(4),
            ),
            ("[rank0]: x\n[rank5]: x", Some(8)),
            ("(GPU 1; 14.76 GiB total capacity;", None),
            ("GPU 3 has a total capacity of 79.15 GiB", None),
            ("(GPU 0; 14.76 GiB total capacity;", None),
            ("[rank0]: GPU 0 has a total capacity", None),
            ("GPU 24 GiB, [rank], [rankx]", None),
            ("[rank99999999999]", None),
        ] {
            assert_eq!(gpus(text), number, "{text}");
        }
    }
}
