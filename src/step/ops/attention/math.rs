//! The reference implementation, operation by operation, which runs where no kernel can.

use super::arguments::{Arguments, Kernel, Scores, additive_mask, float_mask};
use crate::dtype::Dtype;
use crate::step::machine::Machine;
use crate::step::ops::matmul::{Product, Second};
use crate::step::tensor::{Tensor, Value};
use crate::step::what::{ATTENTION, What, roles, torch};

static MASKED_ROWS: What = What::own("masked rows", "which queries see nothing at all", ATTENTION);

/// ATen/native/transformers/attention.cpp `_scaled_dot_product_attention_math`. autocast casts its arguments and is off inside.
pub(super) fn attention<'m>(scores: Scores, given: &Arguments<'_, 'm>) -> Tensor<'m> {
    let machine = given.q.machine;
    machine.with(|state| state.graph.math |= scores.kernel == Kernel::Math);
    let target = machine.with(|state| state.autocast.take());
    let cast = |tensor: &Tensor<'m>| tensor.to(target.unwrap_or(tensor.value.dtype));
    let mask = float_mask(given.mask, cast);
    let (v, k) = (cast(given.v), cast(given.k));
    let q = cast(given.q);
    let given = Arguments { mask: mask.as_ref(), ..*given };
    let output = computed(scores, &given, [&q, &k, &v]);
    machine.with(|state| state.autocast = target);
    output
}

fn computed<'m>(scores: Scores, given: &Arguments<'_, 'm>, [q, k, v]: [&Tensor<'m>; 3]) -> Tensor<'m> {
    let machine = q.machine;
    let origin = q.value.dtype;
    let mut additive = given.mask.map(|mask| additive_mask(machine, mask, scores, origin));
    // half precision is computed in float32 (`allowFP16BF16ReductionMathSDP` is off)
    let up = |tensor: &Tensor<'m>| tensor.to(Dtype::F32);
    let (q, k, v) = (up(q), up(k), up(v));
    let scaled = q.scale();
    if additive.is_none() && given.causal {
        additive = Some(causal_mask(machine, scores.sequence.saturating_mul(scores.keys)));
    }
    // `enable_gqa` repeats keys and values, otherwise the products broadcast them
    let groups = scores.heads / scores.kv_heads.max(1);
    let (repeats, broadcasts) = if scores.enable_gqa { (groups, 1) } else { (1, groups) };
    let product = Product { numel: 0, batch: scores.batch, groups: broadcasts, second: Second::Plain };
    let k_all = k.repeat_heads(repeats);
    let v_all = v.repeat_heads(repeats);
    let products = {
        let k_scaled = k_all.scale();
        let product = Product { numel: scores.numel(), second: Second::Keys, ..product };
        machine.tensor(|state| state.matmul(&scaled.value, &k_scaled.value, product))
    };
    // the mask is added in place
    let products = match &additive {
        Some(bias) if bias.value.requires_grad() => {
            let biased = products.biased_in_place(bias);
            drop(products);
            biased
        }
        _ => products,
    };
    let mut weights = machine.serving(&roles::PROBABILITIES, || products.softmax());
    // `_safe_softmax` looks for rows that are masked throughout
    machine.with(|state| {
        let masked = state.alloc_for(products.value.storage, scores.numel(), Dtype::Bool, &torch::MASKED);
        let rows = state.alloc(scores.rows(), Dtype::Bool, &MASKED_ROWS);
        state.scratch(weights.value.dtype.bytes(), &torch::ZERO);
        state.release(rows);
        state.release(masked);
    });
    drop(products);
    weights = machine.serving(&roles::PROBABILITIES, || weights.dropout(given.dropout));
    // both are returned in the arguments' type, the weights first
    let returned = machine.serving(&roles::PROBABILITIES, || weights.to(origin));
    let result = {
        let product = Product { numel: scores.outputs(), ..product };
        machine.tensor(|state| state.matmul(&weights.value, &v_all.value, product)).to(origin)
    };
    drop(weights);
    drop((k_all, v_all));
    drop(scaled);
    let given = additive.filter(|_| given.mask.is_some());
    drop((v, k, q));
    drop(returned);
    // the caller's
    drop(given);
    result
}

/// The causal mask that `is_causal` makes: ones, tril, then an additive one of float32.
fn causal_mask(machine: &Machine, numel: u64) -> Tensor<'_> {
    machine.tensor(|state| {
        let ones = state.alloc(numel, Dtype::Bool, &torch::ONES);
        let lower = state.alloc(numel, Dtype::Bool, &torch::TRIL);
        state.release(ones);
        let storage = state.additive(numel, Dtype::F32);
        state.release(lower);
        Value::plain(storage, numel, Dtype::F32)
    })
}
