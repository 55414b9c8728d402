//! Linear attention of qwen3_next and qwen3_5 as transformers runs it without flash-linear-attention and causal-conv1d.
//!
//! Source: models/qwen3_next `Qwen3NextGatedDeltaNet`, models/qwen3_5 `Qwen3_5GatedDeltaNet`, and their
//! `torch_chunk_gated_delta_rule` and `causal_conv1d_fn`.

use super::super::self_attention::Heads;
use super::super::{Apart, BoundLayer, Pass};
use crate::dtype::Dtype;
use crate::model::blocks::{Attention, Conv, DeltaNet, Projection};
use crate::scenario::{Lengths, Mask};
use crate::step::autograd::Edge;
use crate::step::ops::matmul::{Product, Second};
use crate::step::ops::norm::NormLayer;
use crate::step::ops::pointwise::promoted;
use crate::step::ops::pointwise::{add_backward, mul_backward};
use crate::step::ops::scan::DELTA_CHUNK;
use crate::step::ops::views::cat_backward;
use crate::step::parallel::Module;
use crate::step::params::ParamId;
use crate::step::repeat::{Alike, runs_apart};
use crate::step::tensor::{Tensor, Value};
use crate::step::what::{What, roles, torch};

static TRIU: What = What::step("triu", "the upper triangle");

impl<'a> Pass<'_, 'a> {
    /// `Qwen3_5GatedDeltaNet.forward`.
    pub(in crate::step::forward) fn delta_net(
        &self,
        layer: &BoundLayer<'a>,
        net: &DeltaNet,
        x: &Tensor<'a>,
    ) -> Tensor<'a> {
        let x = self.without_padding(x);
        let [qkv, z, b, a] = &net.inputs[..] else { return self.delta_net_fused(layer, net, &x) };
        let mut mixed = x.through(&layer.linear(qkv)).heads_first();
        let z = x.through(&layer.linear(z)).viewed();
        let b = x.through(&layer.linear(b));
        let a = x.through(&layer.linear(a));
        mixed = self.remembered_conv(layer, &net.conv, mixed);
        mixed = mixed.tokens_first();
        self.delta_attention(layer, net, Default::default(), [mixed, z, b, a])
    }

    /// `Qwen3NextGatedDeltaNet.forward`: two projections, whose outputs are ordered by heads of keys.
    fn delta_net_fused(&self, layer: &BoundLayer<'a>, net: &DeltaNet, x: &Tensor<'a>) -> Tensor<'a> {
        let [qkvz, ba] = &net.inputs[..] else {
            return x.unmodelled("linear attention's inputs in another number");
        };
        let tokens = self.batch.tokens();
        let keys = tokens.saturating_mul(net.key_heads).saturating_mul(net.key_dim);
        let values = tokens.saturating_mul(net.value_heads).saturating_mul(net.value_dim);
        let steps = tokens.saturating_mul(net.value_heads);
        let all = x.through(&layer.linear(qkvz));
        let both = x.through(&layer.linear(ba));
        // several heads of values to one of keys: what is split off is copied
        let apart = |part: &Tensor<'a>| {
            if net.value_heads > net.key_heads { part.copied_dense() } else { part.viewed() }
        };
        // the gradients of the gates lie head after head, and so does what they are joined into
        let (heads, gates) = (all.viewed(), both.permuted());
        let parts = heads.chunks(&[keys, keys, values, values]);
        let [q, k, v, z] = &parts[..] else {
            return x.unmodelled("linear attention's parts in another number");
        };
        let [mut b, mut a] = gates.split([steps, steps]);
        let (mut v, z) = (apart(v), apart(z));
        b = apart(&b);
        a = apart(&a);
        let [q, k] = [q, k].map(|part| part.copied_dense());
        v = if net.value_heads > net.key_heads { v.viewed() } else { v.copied_dense() };
        drop((parts, heads, gates));
        let mut mixed = self.joined([&q, &k, &v]).heads_first();
        mixed = self.remembered_conv(layer, &net.conv, mixed);
        mixed = mixed.tokens_first();
        self.delta_attention(layer, net, (vec![all, both], vec![q, k, v]), [mixed, z, b, a])
    }

    /// `torch.cat` of three.
    fn joined(&self, [q, k, v]: [&Tensor<'a>; 3]) -> Tensor<'a> {
        q.apply(|state, x| {
            let node = state.node([x, &k.value, &v.value], cat_backward);
            let numel = x.numel.saturating_add(k.value.numel).saturating_add(v.value.numel);
            let whole = Value { numel, ..*x };
            state.new_like(&whole, x.dtype, &torch::CAT, node.output(0))
        })
    }

    /// What both do with the convolved queries, keys and values `mixed`; variables hold `projected` until they return and
    /// what is `replaced` until there are new queries, keys and values.
    fn delta_attention(
        &self,
        layer: &BoundLayer<'a>,
        net: &DeltaNet,
        (projected, replaced): (Vec<Tensor<'a>>, Vec<Tensor<'a>>),
        [mixed, z, b, a]: [Tensor<'a>; 4],
    ) -> Tensor<'a> {
        let tokens = self.batch.tokens();
        let keys = tokens.saturating_mul(net.key_heads).saturating_mul(net.key_dim);
        let values = tokens.saturating_mul(net.value_heads).saturating_mul(net.value_dim);
        let [mut q, mut k, v] = mixed.split([keys, keys, values]).map(|part| part.split_heads());
        drop(replaced);
        let beta = b.keeping_output(&torch::SIGMOID);
        let Some((bias, log)) = layer.bare.first().zip(layer.bare.get(1)) else {
            return mixed.unmodelled("linear attention without its decay");
        };
        let g = {
            let decay = self.decay(*log);
            let steps = {
                let shifted = {
                    let float = a.to(Dtype::F32);
                    float.plus_parameter(*bias)
                };
                shifted.softplus()
            };
            decay.times_each(&steps)
        };
        let groups = net.value_heads / net.key_heads.max(1);
        if groups > 1 {
            q = q.repeat_heads(groups);
            k = k.repeat_heads(groups);
        }
        let given = [&q, &k, &v, &beta, &g];
        let state_numel = self
            .batch
            .sequences
            .saturating_mul(net.value_heads)
            .saturating_mul(net.key_dim)
            .saturating_mul(net.value_dim);
        let (mut core, last) = if self.continues() {
            self.delta_rule_of_one(net, given, state_numel)
        } else {
            self.delta_rule(net, given, state_numel)
        };
        self.held_state(state_numel, Dtype::F32);
        // two dimensions: what is transposed is copied
        core = if core.value.layout == core.value.shape { core.viewed() } else { core.copied_dense() };
        let gate = z.viewed();
        core = self.within("norm", &roles::NORM, || self.gated_norm(&layer.norm(&net.norm), &core, &gate));
        let output = core.viewed().through(&layer.linear(&net.output));
        drop(projected);
        if self.modeling.frees_queries_first {
            drop((q, k));
            drop((z, gate));
            drop((b, a));
        } else {
            drop((z, gate));
            drop((b, a));
            drop((q, k));
        }
        drop((v, mixed));
        drop((beta, g));
        drop(core);
        drop(last);
        output
    }

    /// `Qwen3NextAttention`: the projection of the queries makes a gate too.
    pub(in crate::step::forward) fn projected_with_gate(
        &self,
        layer: &BoundLayer<'a>,
        attention: &Attention,
        x: &Tensor<'a>,
    ) -> (Heads<'a>, Option<Tensor<'a>>) {
        let Projection::Separate { q, k, v } = &attention.projection else {
            return (self.projected(layer, attention, x), None);
        };
        let (q_norm, k_norm) = match &attention.qk_norm {
            Some(norms) => (Some(layer.norm(&norms.q)), Some(layer.norm(&norms.k))),
            None => (None, None),
        };
        let normed = |x: Tensor<'a>, norm: Option<NormLayer>| match norm {
            Some(norm) => x.normed(&norm),
            None => x,
        };
        let both = x.through(&layer.linear(q)).viewed();
        let half = both.value.numel / 2;
        let [mut q, mut gate] = both.split([half, half]);
        drop(both);
        gate = gate.copied_dense();
        q = normed(q.viewed(), q_norm).heads_first();
        let k = normed(x.through(&layer.linear(k)).split_heads(), k_norm).heads_first();
        let v = x.through(&layer.linear(v)).to_heads();
        (Heads { q, k, v }, Some(gate))
    }

    /// How many runs of a loop over the sequence are recorded by themselves, where the step is recorded.
    pub(in crate::step::forward) fn runs_apart(&self) -> Option<u32> {
        // of batches of many lengths some hundred are run
        let batches = if self.batch.lengths == Lengths::Equal { 1 } else { 64 };
        (self.apart == Apart::All).then(|| runs_apart((self.layers.len() as u64).saturating_mul(batches)))
    }

    /// `apply_mask_to_padding_states`: only a batch that is padded has a mask by then.
    pub(in crate::step::forward) fn without_padding(&self, x: &Tensor<'a>) -> Tensor<'a> {
        if self.batch.mask != Mask::Padded || self.batch.length == 1 {
            return x.clone();
        }
        x.mul_constant(&self.machine.unassigned().of_dtype(x.value.dtype))
    }

    /// `causal_conv1d_fn` in PyTorch: a convolution that is padded on both sides, cut, and activated.
    pub(in crate::step::forward) fn causal_conv(
        &self,
        layer: &BoundLayer<'a>,
        conv: &Conv,
        x: Tensor<'a>,
    ) -> Tensor<'a> {
        let Some((weight, bias)) = layer.conv else { return x.unmodelled("a convolution without a weight") };
        let padding = conv.kernel.saturating_sub(1);
        let more = self.batch.sequences.saturating_mul(conv.channels).saturating_mul(padding);
        let dtype = self.machine.with(|state| state.params.get(weight).dtype);
        let mut out = {
            let input = x.to(dtype);
            input.apply(|state, x| state.convolved(x, weight, bias, more)).slice(input.value.numel)
        };
        out = out.keeping_input(&torch::SILU);
        out.to(x.value.dtype)
    }

    /// `-A_log.float().exp()`.
    pub(in crate::step::forward) fn decay(&self, log: ParamId) -> Tensor<'a> {
        let grown = {
            let log = self.machine.weight(log).to(Dtype::F32);
            log.keeping_output(&torch::EXP)
        };
        grown.negate()
    }

    /// `Qwen3NextRMSNormGated`: the norm, then the gate.
    fn gated_norm(&self, norm: &NormLayer, x: &Tensor<'a>, gate: &Tensor<'a>) -> Tensor<'a> {
        let dtype = x.value.dtype;
        self.machine.module(Module::of([norm.weight, None]), x, |x| {
            let (mut hidden, variance) = x.root_mean_square(norm.width, true);
            hidden = {
                let cast = hidden.to(dtype);
                cast.weighted(norm)
            };
            hidden = {
                let open = {
                    let float = gate.to(Dtype::F32);
                    float.keeping_input(&torch::SILU)
                };
                hidden.mul(&open)
            };
            let result = hidden.to(dtype);
            drop(hidden);
            drop(variance);
            result
        })
    }

    /// `torch_chunk_gated_delta_rule` of queries, keys, values, betas and decays.
    fn delta_rule(
        &self,
        net: &DeltaNet,
        given: [&Tensor<'a>; 5],
        state_numel: u64,
    ) -> (Tensor<'a>, Option<Tensor<'a>>) {
        let machine = self.machine;
        let (batch, sequence) = (self.batch.sequences, self.batch.length);
        let chunks = sequence.div_ceil(DELTA_CHUNK);
        let heads = batch.saturating_mul(net.value_heads);
        let matrices = heads.saturating_mul(chunks);
        let length = chunks.saturating_mul(DELTA_CHUNK);
        let rows = heads.saturating_mul(length);
        let (keys, values) = (rows.saturating_mul(net.key_dim), rows.saturating_mul(net.value_dim));
        let dtype = given[0].value.dtype;
        let [mut query, mut key, mut value, mut beta, mut decay] =
            given.map(|x| x.heads_first().dense_float());
        query = query.unit_rows(net.key_dim);
        key = key.unit_rows(net.key_dim);
        query = query.scale();
        [query, key, value] =
            [(&query, keys), (&key, keys), (&value, values)].map(|(x, numel)| x.padded_to(numel));
        [beta, decay] = [&beta, &decay].map(|x| x.padded_to(rows));
        let mut v_beta = value.mul_rows(&beta.viewed());
        let mut k_beta = key.mul_rows(&beta.viewed());
        [query, key, k_beta, v_beta] =
            [&query, &key, &k_beta, &v_beta].map(|x| if chunks > 1 { x.chunked() } else { x.viewed() });
        decay = decay.viewed();
        let mask = {
            let ones = self.constant(DELTA_CHUNK * DELTA_CHUNK, Dtype::Bool, &torch::ONES);
            let mask = self.constant(DELTA_CHUNK * DELTA_CHUNK, Dtype::Bool, &TRIU);
            drop(ones);
            mask
        };
        let cumulated = decay.cumsum();
        let triangles = rows.saturating_mul(DELTA_CHUNK);
        let mut pairwise = {
            let (left, right) = (cumulated.viewed(), cumulated.viewed());
            left.minus_to(&right, triangles)
        };
        pairwise = pairwise.masked_fill(&mask);
        pairwise = pairwise.keeping_output(&torch::EXP);
        // chunks of a transposed tensor are copied whatever the batch
        let all = Product { numel: triangles, batch: batch.max(2), groups: 1, second: Second::Transposed };
        let system = machine.product(&k_beta, &key.viewed(), all, self.autocast).mul(&pairwise);
        let within = machine.product(&query, &key.viewed(), all, self.autocast).mul(&pairwise);
        let k_decayed = k_beta.mul_rows(&cumulated.keeping_output(&torch::EXP).viewed());
        let new_values = system.solved(&v_beta, matrices);
        let k_cumulated = system.solved(&k_decayed, matrices);
        let state = self.constant(state_numel, new_values.value.dtype, &torch::ZEROS).shaped_as(&new_values);
        let core = self.constant(values, new_values.value.dtype, &torch::ZEROS).shaped_as(&new_values);
        query = {
            let grown = cumulated.keeping_output(&torch::EXP).viewed();
            query.mul_rows(&grown)
        };
        key = {
            let rest = {
                let left = cumulated.selected(matrices).minus_to(&cumulated, rows);
                left.keeping_output(&torch::EXP)
            };
            key.mul_rows(&rest.viewed())
        };
        let chunk_decay = cumulated.selected(matrices).keeping_output(&torch::EXP).viewed();
        let per_chunk = |whole: u64| whole / chunks.max(1);
        let (chunk_keys, chunk_values) = (per_chunk(keys), per_chunk(values));
        let to_values = Product { numel: chunk_values, batch, groups: 1, second: Second::Plain };
        let to_state = Product { numel: state_numel, ..to_values };
        let mut variables = [machine.unassigned(), machine.unassigned(), core, state];
        machine.repeat(
            chunks,
            Alike::Inner { apart: self.runs_apart() },
            &mut variables,
            &mut |[v_new, inter, core, state], last| {
                *v_new = {
                    let new = new_values.selected(chunk_values);
                    let known = k_cumulated.selected(chunk_keys);
                    new.minus(&machine.product(&known, state, to_values, self.autocast))
                };
                *inter = machine.product(&query.selected(chunk_keys), state, to_values, self.autocast);
                let sum = {
                    let within = within.selected(per_chunk(triangles));
                    inter.add(&machine.product(&within, v_new, to_values, self.autocast))
                };
                *core = core.slice_filled(&sum);
                drop(sum);
                // nobody reads the last state
                let outer =
                    last.then(|| machine.with(|state| std::mem::replace(&mut state.graph.enabled, false)));
                *state = {
                    let kept = state.mul_rows(&chunk_decay.selected(heads));
                    let key = key.selected(chunk_keys).viewed();
                    let added = machine.product(&key, v_new, to_state, self.autocast);
                    let sum = kept.add(&added);
                    drop(kept);
                    sum
                };
                if let Some(outer) = outer {
                    machine.with(|state| state.graph.enabled = outer);
                }
            },
        );
        let [v_new, inter, mut core, state] = variables;
        // a cache is given it
        let state = Some(state).filter(|_| self.generating.is_some_and(|own| own.remembers()));
        core = if chunks > 1 { core.copied_dense() } else { core.viewed() };
        core = core.slice(heads.saturating_mul(sequence).saturating_mul(net.value_dim));
        let mut result = core.tokens_first().to(dtype);
        if dtype != Dtype::F32 {
            result.value.layout = result.value.shape;
        }
        drop(core);
        drop((query, key, value, beta));
        drop(decay);
        drop((v_beta, k_beta, mask, cumulated, pairwise, system, within, k_decayed, new_values, k_cumulated));
        drop((chunk_decay, v_new, inter));
        (result, state)
    }
}

impl<'m> Tensor<'m> {
    /// `x * rsqrt((x * x).sum(-1, keepdim=True) + eps)`.
    pub(super) fn unit_rows(&self, width: u64) -> Tensor<'m> {
        let inverse = {
            let shifted = {
                let sum = {
                    let square = self.mul(self);
                    square.sum_rows(width)
                };
                sum.add_number()
            };
            shifted.rsqrt()
        };
        self.mul_rows(&inverse)
    }

    /// `x + parameter`, a number for each element of a row.
    pub(in crate::step::forward) fn plus_parameter(&self, parameter: ParamId) -> Tensor<'m> {
        self.apply(|state, x| {
            let row = state.weight(parameter);
            let node = state.row_node([x, &row], add_backward);
            let sum = state.new_like(x, promoted(x.dtype, row.dtype), &torch::ADD, node.output(0));
            state.release(row.storage);
            sum
        })
    }

    /// `factor * x`, a number for each element of a row.
    pub(in crate::step::forward) fn times_each(&self, x: &Tensor<'m>) -> Tensor<'m> {
        x.apply(|state, x| {
            let factor = &self.value;
            let node = state.row_node([factor, x], mul_backward);
            if x.requires_grad() {
                state.save(node, factor.storage);
            }
            if factor.requires_grad() {
                state.save(node, x.storage);
            }
            state.new_like(x, promoted(x.dtype, factor.dtype), &torch::MUL, node.output(0))
        })
    }

    /// `x.reshape(…)` where that needs a copy, which lies in the order of its shape.
    pub(in crate::step::forward) fn copied_dense(&self) -> Tensor<'m> {
        let mut copy = self.copied();
        copy.value.layout = copy.value.shape;
        copy
    }

    /// The same tensor of another's shape and order.
    fn shaped_as(self, other: &Tensor<'m>) -> Tensor<'m> {
        let mut shaped = self;
        (shaped.value.layout, shaped.value.shape) = (other.value.layout, other.value.shape);
        shaped
    }

    /// The same with another element type: of a tensor that takes no memory.
    fn of_dtype(self, dtype: Dtype) -> Tensor<'m> {
        let mut other = self;
        other.value = Value { dtype, edge: Edge::None, ..other.value };
        other
    }
}
