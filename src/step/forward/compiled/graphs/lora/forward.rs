//! The forward graph of a layer with adapters.

use super::super::super::draft::{
    Adapters, COS, DOWN, Draft, FIRST_NORM, GATE, HIDDEN, KEY, OUTPUT, QUERY, SECOND_NORM, SIN, Sizes,
    Targets, UP, VALUE, lora_a, lora_b, op,
};
use super::super::{Forward, attention, forward_of};
use super::{Adapted, given, keeps_product};
use crate::dtype::Dtype;
use crate::step::inductor::{Call, Op, Origin};

/// What a linear layer gives in forward: its product, and its adapter's to be added to it.
#[derive(Clone, Copy)]
struct Results {
    product: usize,
    adapters: Option<usize>,
}

impl Results {
    fn all(self) -> impl Iterator<Item = usize> {
        [Some(self.product), self.adapters].into_iter().flatten()
    }
}

/// What linear layers read: in the layer's type, and in float32, which the first adapter that needs it makes.
struct Read {
    plain: usize,
    wide: Option<(usize, Op)>,
}

impl Adapted<'_> {
    fn linear(&self, draft: &mut Draft, read: &mut Read, linear: usize, returned: bool) -> Results {
        let (input, output) = self.features(linear);
        let size = self.rows(output, self.sizes.dtype);
        let is_adapted = self.targets.adapt(linear);
        let product = draft.product(input, size, returned && !is_adapted, &[read.plain, linear]);
        let adapters = is_adapted.then(|| {
            let wide = read.wide.get_or_insert_with(|| {
                let wide = draft.returned(self.rows(input, Dtype::F32));
                (wide, op(wide, &[read.plain], &[read.plain]))
            });
            let size = self.rows(self.rank, Dtype::F32);
            let inner = draft.product(input, size, true, &[wide.0, lora_a(linear)]);
            draft.product(self.rank, self.rows(output, Dtype::F32), false, &[inner, lora_b(linear)])
        });
        Results { product, adapters }
    }
}

/// The graph of the layer's forward.
pub(in super::super) fn forward(sizes: &Sizes, adapters: Adapters) -> Forward {
    let Adapters { rank, targets, input } = adapters;
    let layer = Adapted { sizes, rank, targets, input };
    let Sizes { tokens, hidden, queries, keys, width, dtype, .. } = *sizes;
    let needed = |argument| input || !is_only_for_input(argument, targets);
    let mut draft = Draft::new(&given(targets), needed);
    let rows = |of: u64| layer.rows(of, dtype);
    let number = (tokens, Dtype::F32);
    let mut scales = Vec::new();

    let mean = draft.made(number, Origin::Removed, false);
    let mut ops = vec![op(mean, &[HIDDEN], &[])];
    let mut scale = mean;
    if input {
        scale = draft.returned(number);
        scales.push(scale);
        ops.push(op(scale, &[mean], &[]));
    }
    let first = draft.own(rows(hidden));
    ops.push(op(first, &[FIRST_NORM, HIDDEN, scale], &[]));
    let mut read = Read { plain: first, wide: None };
    let of_queries = layer.linear(&mut draft, &mut read, QUERY, false);
    let of_keys = layer.linear(&mut draft, &mut read, KEY, false);
    let of_values = layer.linear(&mut draft, &mut read, VALUE, true);
    ops.extend(read.wide.map(|wide| wide.1));
    draft.node(Call::Kernel, ops);
    let values = match of_values.adapters {
        Some(added) => {
            let values = draft.returned(rows(keys.features));
            let both = [of_values.product, added];
            draft.node(Call::Kernel, vec![op(values, &both, &both)]);
            values
        }
        None => of_values.product,
    };
    let [query, key] = [queries, keys].map(|of| draft.returned(rows(of.features)));
    let turned = [(query, of_queries), (key, of_keys)].map(|(makes, of)| {
        let reads: Vec<usize> = of.all().chain([COS, SIN]).collect();
        op(makes, &reads, &[])
    });
    if queries.heads == keys.heads {
        draft.node(Call::Kernel, turned.to_vec());
    } else {
        turned.into_iter().for_each(|op| draft.node(Call::Kernel, vec![op]));
    }
    let [attended, ..] = attention(&mut draft, sizes, [query, key, values]);

    let mut read = Read { plain: attended, wide: None };
    let keeps_product = keeps_product(targets, input);
    let of_output = layer.linear(&mut draft, &mut read, OUTPUT, keeps_product);
    if let Some((_, wide)) = read.wide {
        draft.node(Call::Kernel, vec![wide]);
    }
    // the sum that enters the second half: kept, or computed again from what it is the sum of
    let mut ops = Vec::new();
    let parts: Vec<usize> = if keeps_product {
        vec![HIDDEN, of_output.product]
    } else {
        let sum = draft.returned(rows(hidden));
        let own: Vec<usize> = of_output.all().collect();
        ops.push(op(sum, &[&[HIDDEN], &own[..]].concat(), &own));
        vec![sum]
    };
    let over: Vec<usize> = parts.iter().copied().filter(|part| *part != HIDDEN).collect();
    let mean = draft.made(number, Origin::Removed, false);
    let scale = draft.returned(number);
    scales.push(scale);
    let second = draft.own(rows(hidden));
    ops.push(op(mean, &parts, &[]));
    ops.push(op(scale, &[mean], &[]));
    ops.push(op(second, &[&[SECOND_NORM], &parts[..], &[scale]].concat(), &over));
    let mut read = Read { plain: second, wide: None };
    let of_gate = layer.linear(&mut draft, &mut read, GATE, true);
    let mut activation = Vec::new();
    let mut whole = |draft: &mut Draft, of: Results| match of.adapters {
        Some(added) => {
            let whole = draft.returned(rows(width));
            activation.push(op(whole, &[of.product, added], &[of.product, added]));
            whole
        }
        None => of.product,
    };
    let gate = whole(&mut draft, of_gate);
    let of_up = layer.linear(&mut draft, &mut read, UP, true);
    let up = whole(&mut draft, of_up);
    ops.extend(read.wide.map(|wide| wide.1));
    draft.node(Call::Kernel, ops);
    let activated = draft.own(rows(width));
    activation.push(op(activated, &[gate, up], &[gate, up]));
    let mut read = Read { plain: activated, wide: None };
    let of_down = layer.linear(&mut draft, &mut read, DOWN, false);
    activation.extend(read.wide.map(|wide| wide.1));
    draft.node(Call::Kernel, activation);
    let output = draft.returned(rows(hidden));
    let reads: Vec<usize> = parts.into_iter().chain(of_down.all()).collect();
    let over: Vec<usize> = reads.iter().copied().filter(|read| *read != HIDDEN).collect();
    draft.node(Call::Kernel, vec![op(output, &reads, &over)]);
    for scale in scales {
        draft.graph.buffers[scale].storage_size = sizes.numbers;
    }
    forward_of(draft, output)
}

/// Whether backward needs an argument for the input's gradient alone.
fn is_only_for_input(argument: usize, targets: Targets) -> bool {
    let linears = [QUERY, KEY, VALUE];
    [HIDDEN, FIRST_NORM].contains(&argument)
        || linears
            .into_iter()
            .any(|linear| argument == linear || argument == lora_a(linear) && targets.adapt(linear))
}
