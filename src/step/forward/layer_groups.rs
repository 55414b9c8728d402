//! Equal layers in a row, found so that one runs on behalf of all.

use crate::model::blocks::Block;

/// Which layers are run one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::step) enum Apart {
    /// As few as the family and the settings allow: one runs on behalf of all that are alike.
    Few,
    /// The first of each stack too: what it is given differs from what it returns.
    First,
    /// All.
    All,
}

impl Apart {
    /// What to try where the layers turned out not to be alike.
    pub fn further(self) -> Apart {
        match self {
            Apart::Few => Apart::First,
            Apart::First | Apart::All => Apart::All,
        }
    }
}

/// The layers as groups: `whole` keeps every layer apart, otherwise repeated patterns become one body.
pub(super) fn layer_groups(order: &[u16], whole: bool, first_apart: bool) -> Vec<(Vec<u16>, u32)> {
    const LONGEST_PATTERN: usize = 12;
    let mut result = Vec::new();
    let mut at = 0;
    while at < order.len() {
        let rest = &order[at..];
        let mut best = (1, 1);
        if !(whole || first_apart && at == 0) {
            for period in 1..=LONGEST_PATTERN.min(rest.len() / 2) {
                let body = &rest[..period];
                let times = rest.chunks_exact(period).take_while(|chunk| *chunk == body).count();
                if times > 1 && period * times > best.0 * best.1 {
                    best = (period, times);
                }
                if period * times == rest.len() {
                    break;
                }
            }
        }
        let (period, times) = best;
        result.push((rest[..period].to_vec(), times as u32));
        at += period * times;
    }
    result
}

/// The same with the last layers apart, so many of them: what all layers share has no gradient before the last one's
/// backward, or the last ones leave something behind.
pub(super) fn layer_groups_but_last(order: &[u16], whole: bool, apart: usize) -> Vec<(Vec<u16>, u32)> {
    let (rest, last) = order.split_at(order.len().saturating_sub(apart));
    let mut result = layer_groups(rest, whole, true);
    result.extend(last.iter().map(|kind| (vec![*kind], 1)));
    result
}

/// The same with the last one apart where a unit's backward finds what the layer behind it left of its reduction: the last repetition of a body
/// is apart where that layer has other parameters than the body's first, which the other repetitions find.
pub(super) fn reduced_alike(order: &[u16], whole: bool, blocks: &[Block]) -> Vec<(Vec<u16>, u32)> {
    let parameters = |kind: Option<&u16>| {
        let mut all = Vec::new();
        if let Some(block) = kind.and_then(|kind| blocks.get(usize::from(*kind))) {
            block.visit(&mut |param| all.push((param.name, param.shape)));
        }
        all
    };
    let groups = layer_groups_but_last(order, whole, 1);
    let mut result = Vec::with_capacity(groups.len());
    for (index, (body, times)) in groups.iter().enumerate() {
        let behind = groups.get(index + 1).and_then(|(next, _)| next.first());
        if *times > 1 && behind.is_some() && parameters(behind) != parameters(body.first()) {
            result.push((body.clone(), times - 1));
            result.extend(body.iter().map(|kind| (vec![*kind], 1)));
        } else {
            result.push((body.clone(), *times));
        }
    }
    result
}
