//! What backward has of forward.

use super::super::super::draft::Draft;
use super::Whole;
use crate::dtype::Dtype;
use crate::step::inductor::{Op, Origin};

/// What backward needs of a layer's forward: saved, or computed again.
pub(super) struct Kept {
    /// What its norms normed, in parts whose sum nobody kept.
    pub entering: usize,
    pub between: Vec<usize>,
    /// The numbers that scale them, or the means that these are computed from.
    pub first_scale: usize,
    pub second_scale: usize,
    /// The norms' results.
    pub first: usize,
    pub second: usize,
    pub values: usize,
    pub queries: usize,
    pub keys: usize,
    pub attended: usize,
    pub log_sums: usize,
    pub seeds: [usize; 2],
    pub mask: usize,
    pub gate: usize,
    pub up: usize,
    pub activated: usize,
    /// The operation that makes the product of both, where the kernel does it that makes their gradients.
    pub activates: Option<Op>,
}

/// What it needs besides.
pub(super) struct Outside {
    pub angles: usize,
    /// What was normed last, in parts whose sum nobody kept.
    pub last: Vec<usize>,
    pub last_scale: usize,
    pub last_normed: usize,
    pub logits: usize,
    pub labels: usize,
    pub highest: usize,
    pub logarithm: usize,
    pub count: usize,
}

/// What forward saved.
pub(super) struct Saved {
    /// What entered each layer: the tokens' vectors first.
    pub entering: Vec<usize>,
    /// The positions of packed texts, where the mask is made again.
    pub packed: Option<usize>,
    /// All of the layers, where nothing is computed again.
    pub layers: Vec<Kept>,
    pub outside: Outside,
}

pub(super) fn numbered(kind: &str, number: usize) -> String {
    match number {
        0 => kind.to_owned(),
        number => format!("{kind}_{number}"),
    }
}

impl Saved {
    pub fn new(draft: &mut Draft, whole: &Whole) -> Saved {
        let hidden = whole.rows(whole.layer.hidden);
        let number = whole.number();
        // operations of a kind are numbered in the graph that torch.compile traced
        let views = if whole.group() > 1 { 20 } else { 18 };
        let mut entering = vec![draft.saved("embedding", hidden)];
        let again = whole.checkpoints;
        let counted = again && !whole.masked;
        let packed = counted.then(|| draft.saved("cumsum", (whole.layer.tokens, Dtype::I64)));
        let angles = draft.saved("mm_default", whole.angles());
        let mut layers = Vec::new();
        let mut mask = None;
        for index in 0..whole.layers {
            let given = entering[index];
            if !again {
                layers.push(saved_layer(draft, whole, (index, views), given, &mut mask));
            }
            if !again || index + 1 < whole.layers {
                entering.push(draft.saved(&format!("add_{}", 7 * index + 9), hidden));
            }
        }
        let last_scale = draft.saved(&format!("rsqrt_{}", 2 * whole.layers), number);
        let last_normed = draft.saved(&format!("view_{}", views * whole.layers + 4), hidden);
        let name = format!("view_{}", views * whole.layers + 5);
        // the caller has them too
        let logits = draft.buffer(&name, whole.logits(), Origin::Shared, false);
        let labels = draft.saved("constant_pad_nd", whole.labels());
        let highest = draft.saved("amax", number);
        let logarithm = draft.saved("log", number);
        let name = format!("convert_element_type_{}", 20 * whole.layers + if whole.masked { 9 } else { 8 });
        let count = draft.saved(&name, (1, Dtype::F32));
        let last = if again { Vec::new() } else { entering.pop().into_iter().collect() };
        let outside =
            Outside { angles, last, last_scale, last_normed, logits, labels, highest, logarithm, count };
        Saved { entering, packed, layers, outside }
    }
}

/// What it saved of a layer where nothing is computed again.
pub(super) fn saved_layer(
    draft: &mut Draft,
    whole: &Whole,
    (index, views): (usize, usize),
    entering: usize,
    shared: &mut Option<usize>,
) -> Kept {
    let sizes = whole.layer;
    let (hidden, width, queries) =
        (whole.rows(sizes.hidden), whole.rows(sizes.width), whole.rows(sizes.queries.features));
    let number = whole.number();
    let repeats = whole.group() > 1;
    let view = |number: usize| format!("view_{}", views * index + number);
    let add = |number: usize| format!("add_{}", 7 * index + number);
    let mm = |number: usize| format!("mm_{}", 7 * index + number);
    // cuDNN's call returns more
    let returned = if whole.cudnn { [0, 1, 6, 7] } else { [0, 1, 2, 3] };
    let calls = if whole.cudnn { 9 } else { 4 };
    let item = |place: usize| numbered("getitem", calls * index + returned[place]);
    let first_scale = draft.saved(&numbered("rsqrt", 2 * index), number);
    let first = draft.saved(&view(4), hidden);
    let values = (!repeats).then(|| draft.saved(&format!("permute_{}", 11 * index + 6), queries));
    let turned = draft.saved(&add(4), queries);
    let keys = draft.saved(&if repeats { view(13) } else { add(5) }, queries);
    let values = values.unwrap_or_else(|| draft.saved(&view(14), queries));
    let mask = *shared.get_or_insert_with(|| draft.saved("where", whole.mask()));
    let attended = draft.saved(&item(0), queries);
    let log_sums = draft.saved(&item(1), (sizes.log_sums, Dtype::F32));
    let seeds = [0, 1].map(|seed| draft.saved(&item(2 + seed), (sizes.seeds[seed], Dtype::I64)));
    let between = draft.saved(&if index == 0 { mm(3) } else { add(6) }, hidden);
    let second_scale = draft.saved(&format!("rsqrt_{}", 2 * index + 1), number);
    let second = draft.saved(&view(views - 2), hidden);
    let gate = draft.saved(&mm(4), width);
    let up = draft.saved(&mm(5), width);
    let activated = draft.saved(&view(views + 2), width);
    Kept {
        entering,
        between: if index == 0 { vec![entering, between] } else { vec![between] },
        first_scale,
        second_scale,
        first,
        second,
        values,
        queries: turned,
        keys,
        attended,
        log_sums,
        seeds,
        mask,
        gate,
        up,
        activated,
        activates: None,
    }
}
