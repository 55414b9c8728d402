//! The backward graph of a layer with adapters.

use super::super::super::draft::{
    ARGUMENTS, Adapters, COS, DOWN, Draft, FIRST_NORM, GATE, HIDDEN, KEY, OUTPUT, QUERY, SECOND_NORM, SIN,
    Sizes, UP, VALUE, lora_a, lora_b, op,
};
use super::super::{Backward, attention_backward, backward_of};
use super::{Adapted, given, keeps_product};
use crate::dtype::Dtype;
use crate::step::inductor::{Call, Op, Origin};

/// The gradients of a linear layer: of its adapter's two parameters, and of its input, as a sum.
#[derive(Clone, Default)]
struct Gradients {
    a: Option<usize>,
    b: Option<usize>,
    inputs: Vec<usize>,
}

/// What a gradient of a linear layer's output is made by, so that it may be made in each of the types that are needed.
struct From<'r> {
    reads: &'r [usize],
    over: &'r [usize],
}

impl Adapted<'_> {
    /// A linear layer's backward: the operations that make its gradients are added to `wide` in float32 and to `plain` in the layer's type.
    /// `saved` is what its adapter read and its first product.
    fn linear_backward(
        &self,
        draft: &mut Draft,
        (linear, saved, wants_input): (usize, Option<[usize; 2]>, bool),
        from: From<'_>,
        [wide, plain]: [&mut Vec<Op>; 2],
    ) -> Gradients {
        let (input, output) = self.features(linear);
        let tokens = self.sizes.tokens;
        let mut gradients = Gradients::default();
        if let Some([x, inner]) = saved {
            let made = draft.own(self.rows(output, Dtype::F32));
            wide.push(op(made, from.reads, from.over));
            let size = |of: u64| (of.saturating_mul(self.rank), Dtype::F32);
            gradients.b = Some(draft.product(tokens, size(output), true, &[made, inner]));
            let narrow = self.rows(self.rank, Dtype::F32);
            let narrow = draft.product(output, narrow, false, &[made, lora_b(linear)]);
            gradients.a = Some(draft.product(tokens, size(input), true, &[narrow, x]));
            if wants_input {
                let size = self.rows(input, Dtype::F32);
                gradients.inputs.push(draft.product(self.rank, size, false, &[narrow, lora_a(linear)]));
            }
        }
        if wants_input {
            let made = draft.own(self.rows(output, self.sizes.dtype));
            plain.push(op(made, from.reads, from.over));
            let size = self.rows(input, self.sizes.dtype);
            gradients.inputs.push(draft.product(output, size, false, &[made, linear]));
        }
        gradients
    }

    /// The operations of a kernel that writes gradients in both types.
    fn both(&self, wide: Vec<Op>, plain: Vec<Op>) -> Vec<Op> {
        let [first, then] = if self.sizes.sequences > 1 { [plain, wide] } else { [wide, plain] };
        first.into_iter().chain(then).collect()
    }
}

/// What backward is given of what forward saved.
struct Saved {
    first_scale: Option<usize>,
    /// By linear layer: what its adapter read, and its first product.
    adapters: [Option<[usize; 2]>; ARGUMENTS],
    attention: [usize; 3],
    attended: usize,
    random: [usize; 3],
    /// The sum that enters the second half, as itself or as what is added to the layer's input.
    sum: usize,
    second_scale: usize,
    gate: usize,
    up: usize,
}

impl Adapted<'_> {
    /// All of it, under the names of the operations that made it in the graph that torch.compile traced, where those of a kind are numbered.
    fn saved(&self, draft: &mut Draft) -> Saved {
        let Sizes { tokens, hidden, queries, keys, width, .. } = *self.sizes;
        let dtype = self.sizes.dtype;
        let number = (tokens, Dtype::F32);
        let adapts = |linear: usize| u64::from(self.targets.adapt(linear));
        let of_attention = [QUERY, KEY, VALUE].map(adapts);
        let count: u64 = of_attention.iter().sum();
        let first_scale = self.input.then(|| draft.saved("rsqrt", number));
        let mut adapters = [None; ARGUMENTS];
        let mut products = 0;
        let mut product = |draft: &mut Draft,
                           of: usize,
                           adapters: &mut [Option<[usize; 2]>; ARGUMENTS],
                           view: &mut Option<usize>,
                           name: &str| {
            let (input, _) = self.features(of);
            let own = products;
            products += 1;
            if self.targets.adapt(of) {
                let x = *view.get_or_insert_with(|| draft.saved(name, self.rows(input, Dtype::F32)));
                let inner = draft.saved(&format!("mm_{products}"), self.rows(self.rank, Dtype::F32));
                adapters[of] = Some([x, inner]);
                products += 2;
            }
            own
        };
        let mut view = None;
        for of in [QUERY, KEY, VALUE] {
            product(draft, of, &mut adapters, &mut view, "view_2");
        }
        let values = draft.saved(&format!("permute_{}", 5 + 2 * count), self.rows(keys.features, dtype));
        let added = 1 + count;
        let query = draft.saved(&format!("add_{added}"), self.rows(queries.features, dtype));
        let key = draft.saved(&format!("add_{}", added + 1), self.rows(keys.features, dtype));
        let attended = draft.saved("getitem", self.rows(queries.features, dtype));
        let random = [
            draft.saved("getitem_1", (self.sizes.log_sums, Dtype::F32)),
            draft.saved("getitem_6", (self.sizes.seeds[0], Dtype::I64)),
            draft.saved("getitem_7", (self.sizes.seeds[1], Dtype::I64)),
        ];
        let own = product(draft, OUTPUT, &mut adapters, &mut None, "view_24");
        let sum = if keeps_product(self.targets, self.input) {
            format!("mm_{own}")
        } else {
            format!("add_{}", added + 2 + adapts(OUTPUT))
        };
        let sum = draft.saved(&sum, self.rows(hidden, dtype));
        let second_scale = draft.saved("rsqrt_1", number);
        let mut view = None;
        let [gate, up] =
            [(GATE, "convert_element_type_23"), (UP, "convert_element_type_29")].map(|(of, added)| {
                let own = product(draft, of, &mut adapters, &mut view, "view_30");
                let name = if self.targets.adapt(of) { added.to_owned() } else { format!("mm_{own}") };
                draft.saved(&name, self.rows(width, dtype))
            });
        product(draft, DOWN, &mut adapters, &mut None, "view_42");
        Saved {
            first_scale,
            adapters,
            attention: [query, key, values],
            attended,
            random,
            sum,
            second_scale,
            gate,
            up,
        }
    }
}

/// The graph of the layer's backward.
pub(in super::super) fn backward(sizes: &Sizes, adapters: Adapters) -> Backward {
    let Adapters { rank, targets, input } = adapters;
    let layer = Adapted { sizes, rank, targets, input };
    let Sizes { hidden, queries, keys, dtype, .. } = *sizes;
    let mut draft = Draft::new(&given(targets), |_| false);
    let rows = |of: u64| layer.rows(of, dtype);
    let saved = layer.saved(&mut draft);
    let gradient = draft.buffer("tangents_1", rows(hidden), Origin::Argument, false);
    let mut gradients = [None; ARGUMENTS];
    let mut note = |linear: usize, of: &Gradients| {
        gradients[lora_a(linear)] = of.a;
        gradients[lora_b(linear)] = of.b;
    };

    let of_down = if targets.adapt(DOWN) {
        let [mut wide, mut plain] = [Vec::new(), Vec::new()];
        let from = From { reads: &[gradient], over: &[] };
        let of = (DOWN, saved.adapters[DOWN], true);
        let made = layer.linear_backward(&mut draft, of, from, [&mut wide, &mut plain]);
        draft.node(Call::Kernel, [wide, plain].concat());
        made
    } else {
        let made = draft.product(hidden, rows(sizes.width), false, &[gradient, DOWN]);
        Gradients { inputs: vec![made], ..Gradients::default() }
    };
    note(DOWN, &of_down);

    let mut kernel = Vec::new();
    let [of_up, of_gate] =
        [(UP, vec![saved.gate]), (GATE, vec![saved.up, saved.gate])].map(|(linear, factors)| {
            let [mut wide, mut plain] = [Vec::new(), Vec::new()];
            let reads = [&of_down.inputs[..], &factors].concat();
            let from = From { reads: &reads, over: &reads };
            let of = (linear, saved.adapters[linear], true);
            let made = layer.linear_backward(&mut draft, of, from, [&mut wide, &mut plain]);
            kernel.extend([wide, plain].concat());
            made
        });
    draft.node(Call::Kernel, kernel);
    note(UP, &of_up);
    note(GATE, &of_gate);

    let inputs = [&of_up.inputs[..], &of_gate.inputs].concat();
    let parts = if keeps_product(targets, input) { vec![HIDDEN, saved.sum] } else { vec![saved.sum] };
    let mut norm = Norm { layer: &layer, weight: SECOND_NORM, scale: saved.second_scale, parts: &parts };
    // it is rounded only where the layer's input has a gradient to be added to it, or a product needs it
    let wide_sum = !input && targets.adapt(OUTPUT);
    let (between, mut ops) = norm.backward(&mut draft, &inputs, gradient, false, wide_sum);
    let attended = if targets.adapt(OUTPUT) {
        let [mut wide, mut plain] = [Vec::new(), Vec::new()];
        let from = From { reads: &[between], over: &[between] };
        let of = (OUTPUT, saved.adapters[OUTPUT], true);
        let made = layer.linear_backward(&mut draft, of, from, [&mut wide, &mut plain]);
        ops.extend(layer.both(wide, plain));
        draft.node(Call::Kernel, ops);
        note(OUTPUT, &made);
        let sum = draft.own(rows(queries.features));
        draft.node(Call::Kernel, vec![op(sum, &made.inputs, &made.inputs)]);
        sum
    } else {
        draft.node(Call::Kernel, ops);
        draft.product(hidden, rows(queries.features), false, &[between, OUTPUT])
    };
    let [query, key, value] = saved.attention;
    let [log_sums, seed, offset] = saved.random;
    let given = [attended, query, key, value, saved.attended, log_sums, seed, offset];
    // without an adapter and a gradient of the layer's input nothing asks for the keys'
    let wanted = [QUERY, KEY, VALUE].map(|linear| input || targets.adapt(linear));
    let parts = attention_backward(&mut draft, sizes, &given, wanted);

    let [mut wide, mut plain] = [Vec::new(), Vec::new()];
    let from = From { reads: &[parts[2]], over: &[parts[2]] };
    let of_values = layer.linear_backward(
        &mut draft,
        (VALUE, saved.adapters[VALUE], input),
        from,
        [&mut wide, &mut plain],
    );
    if !(wide.is_empty() && plain.is_empty()) {
        draft.node(Call::Kernel, [wide, plain].concat());
    }
    note(VALUE, &of_values);
    let mut turned = [(KEY, parts[1], keys), (QUERY, parts[0], queries)].map(|(linear, part, of)| {
        let [mut wide, mut plain] = [Vec::new(), Vec::new()];
        let mut turn = Vec::new();
        let own = [part, SIN, COS];
        let both = targets.adapt(linear) && input;
        let rotated = if both {
            let rotated = draft.made(layer.rows(of.features, Dtype::F32), Origin::Removed, false);
            turn.push(op(rotated, &own, &[]));
            Some([rotated])
        } else {
            None
        };
        let from = match &rotated {
            Some(rotated) => From { reads: rotated, over: rotated },
            None => From { reads: &own, over: &[] },
        };
        let of = (linear, saved.adapters[linear], input);
        let made = layer.linear_backward(&mut draft, of, from, [&mut wide, &mut plain]);
        note(linear, &made);
        (made, [turn, wide, plain])
    });
    let [(of_keys, keys_ops), (of_queries, queries_ops)] = &mut turned;
    let alike = targets.adapt(KEY) == targets.adapt(QUERY);
    if queries.heads == keys.heads && alike {
        let [turn_keys, wide_keys, plain_keys] = keys_ops.clone();
        let [turn_queries, wide_queries, plain_queries] = queries_ops.clone();
        let all = if sizes.sequences > 1 && input {
            [turn_keys, plain_keys, turn_queries, plain_queries, wide_queries, wide_keys]
        } else {
            [turn_keys, turn_queries, wide_keys, wide_queries, plain_keys, plain_queries]
        };
        draft.node(Call::Kernel, all.concat());
    } else {
        for ops in [keys_ops, queries_ops] {
            let [turn, wide, plain] = ops.clone();
            let ops = [turn, layer.both(wide, plain)].concat();
            if !ops.is_empty() {
                draft.node(Call::Kernel, ops);
            }
        }
    }
    if let Some(scale) = saved.first_scale {
        let inputs = [&of_values.inputs[..], &of_keys.inputs, &of_queries.inputs].concat();
        norm = Norm { layer: &layer, weight: FIRST_NORM, scale, parts: &[HIDDEN] };
        let (sum, ops) = norm.backward(&mut draft, &inputs, between, true, false);
        draft.node(Call::Kernel, ops);
        gradients[HIDDEN] = Some(sum);
    }
    backward_of(draft, gradient, gradients)
}

/// A frozen norm's backward.
struct Norm<'n, 's> {
    layer: &'n Adapted<'s>,
    weight: usize,
    scale: usize,
    /// What it normed, as a sum.
    parts: &'n [usize],
}

/// Buffers that a sum may be computed from without being one itself (torch/_inductor/config.py `realize_reads_threshold`).
const READS_OF_A_SUM: usize = 4;

impl Norm<'_, '_> {
    /// The gradient of what it normed, added to that which went past it, and the operations that make it.
    fn backward(
        &self,
        draft: &mut Draft,
        inputs: &[usize],
        past: usize,
        returned: bool,
        wide: bool,
    ) -> (usize, Vec<Op>) {
        let Adapted { sizes, .. } = *self.layer;
        let own: Vec<usize> = self.parts.iter().copied().filter(|part| *part != HIDDEN).collect();
        let mut ops = Vec::new();
        // a sum of so many is a buffer of its own
        let mut sum = inputs.to_vec();
        let mut weights = vec![self.weight];
        if inputs.len() >= READS_OF_A_SUM {
            let made = draft.own(self.layer.rows(sizes.hidden, Dtype::F32));
            ops.push(op(made, &[inputs, &weights[..]].concat(), inputs));
            sum = vec![made];
            weights.clear();
        }
        let mean = draft.made((sizes.tokens, Dtype::F32), Origin::Removed, false);
        ops.push(op(mean, &[&sum[..], &weights, self.parts].concat(), &[]));
        let dtype = if wide { Dtype::F32 } else { sizes.dtype };
        // in float32 nothing beyond the kernel reads it: it is there only where it lies over a buffer that is
        let is_local = wide && inputs.len() < READS_OF_A_SUM;
        let origin = if is_local { Origin::Removed } else { Origin::Made };
        let made = draft.made(self.layer.rows(sizes.hidden, dtype), origin, returned);
        let reads = [&[past][..], &sum, &weights, &[self.scale, mean], self.parts].concat();
        let over = [&[past][..], &sum, &own].concat();
        ops.push(op(made, &reads, &over));
        (made, ops)
    }
}
