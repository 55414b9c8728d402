//! Mixtures of experts: router, sorting, the experts' products, shared experts.
//!
//! Source: transformers 5.17 integrations/moe.py `grouped_mm_experts_forward` and the routers of models/mixtral,
//! models/qwen3_moe and those written after them.

use super::router::{Asked, Routed};
use super::stacks::liger;
use super::{BoundLayer, Pass};
use crate::dtype::Dtype;
use crate::model::blocks::{FeedForward, Mlp, Moe};
use crate::model::modeling::Router;
use crate::step::ops::experts::{Delta, Expert};
use crate::step::ops::linear::Weight;
use crate::step::parallel::{Container, Module};
use crate::step::params::ParamId;
use crate::step::tensor::Tensor;
use crate::step::what::{Dims, EXPERTS, What, roles, torch};

static CUMSUM_STORAGE: What =
    What::own("cumsum (temporary storage)", "temporary storage of a running sum", EXPERTS);
static TOKEN_OF_ROW: What = What::own("order // k", "which token each row of the experts is of", EXPERTS);
static TOKENS_PER_EXPERT: What =
    What::own("tokens per expert", "how many tokens each expert is given", EXPERTS);
static OFFSETS: What = What::own("offsets", "where the rows of each expert begin", EXPERTS);
static SENTINELS: What = What::own("sentinels", "which rows no expert is to compute, one byte each", EXPERTS);
static EXPERTS_OF_ROWS: What = What::own(
    "matrices of the rows",
    "a copy of its expert's matrix for each token and expert, which generate multiplies after the prompt (batched_mm)",
    EXPERTS,
);
static INVERSE_ORDER: What =
    What::own("inverse order", "the order in which rows of experts become rows of tokens again", EXPERTS);

impl<'a> Pass<'_, 'a> {
    /// A sparse feed-forward block.
    pub(super) fn experts(&self, layer: &BoundLayer<'a>, moe: &Moe, x: &Tensor<'a>) -> Tensor<'a> {
        if let Some(expert) = &moe.layers {
            return self.expert_layers(layer, (moe, expert), x);
        }
        if self.modeling.router == Router::Every {
            return self.every_expert(layer, moe, x);
        }
        let whole = x;
        let x = &x.flattened();
        let first = self.modeling.router.shared_first();
        let shared =
            moe.shared.as_ref().filter(|_| first).map(|shared| self.shared_experts(layer, shared, x));
        let Routed { logits, weights, indices } =
            self.within("router", &roles::ROUTER, || self.routed(layer, moe, x));
        self.note_gate(&logits);
        let narrow = moe.latent.as_ref().map(|[down, _]| x.through(&layer.linear(down)));
        let given = narrow.as_ref().unwrap_or(x);
        let mut chosen = self.within("experts", &roles::EXPERTS, || {
            let [first, last] = layer.experts[..] else {
                return given.unmodelled("experts without two layers");
            };
            let module = Module::Own([Some(first.weight), first.bias, Some(last.weight), last.bias]);
            self.through_wrappers([&first, &last], given, |given, deltas| {
                self.machine.module(module, given, |given| {
                    self.chosen_experts(layer, moe, given, (&weights, indices.clone()), deltas)
                })
            })
        });
        drop(narrow);
        if let Some([_, up]) = &moe.latent {
            chosen = chosen.through(&layer.linear(up));
        }
        let within = !first && !self.modeling.router.shared_beside();
        if let (Some(shared), true) = (&moe.shared, within) {
            // models/deepseek_v3: the shared experts are given the states as they came
            let sum = {
                let chosen = chosen.unflattened();
                chosen.add(&self.shared_experts(layer, shared, whole))
            };
            drop(chosen);
            drop((logits, weights, indices));
            return sum;
        }
        let output = match shared {
            None => chosen,
            Some(mut shared) => {
                if let Some(gate) = &moe.shared_gate {
                    let gate = {
                        let open = x.through(&layer.linear(gate));
                        open.keeping_output(&torch::SIGMOID)
                    };
                    shared = shared.mul_rows(&gate);
                }
                let sum = chosen.add(&shared);
                drop(chosen);
                sum
            }
        };
        drop(logits);
        drop(weights);
        drop(indices);
        output.unflattened()
    }

    pub(super) fn shared_experts(&self, layer: &BoundLayer<'a>, shared: &Mlp, x: &Tensor<'a>) -> Tensor<'a> {
        let module = Module::Container(Container::SharedExperts, layer.number as u32);
        self.machine.module(module, x, |x| self.mlp(layer, shared, x))
    }

    /// `moe_hidden_states + self.shared_mlp(hidden_states)` where the layer adds them; with what the layer's variable holds to its end.
    pub(super) fn with_shared(
        &self,
        layer: &BoundLayer<'a>,
        chosen: Tensor<'a>,
        x: &Tensor<'a>,
    ) -> (Tensor<'a>, Option<Tensor<'a>>) {
        let FeedForward::Moe(moe) = &layer.block.ffn else { return (chosen, None) };
        let Some(shared) = moe.shared.as_ref().filter(|_| self.modeling.router.shared_beside()) else {
            return (chosen, None);
        };
        let sum = self
            .machine
            .within("mlp", &roles::FEED_FORWARD, || chosen.add(&self.shared_experts(layer, shared, x)));
        (sum, Some(chosen))
    }

    /// Runs the experts inside peft's wrappers of their matrices, which wrap the last ones first.
    pub(super) fn through_wrappers(
        &self,
        [first, last]: [&Expert; 2],
        x: &Tensor<'a>,
        body: impl FnOnce(&Tensor<'a>, [Option<&Delta<'a>>; 2]) -> Tensor<'a>,
    ) -> Tensor<'a> {
        // what these make of the matrices knows of no adapter
        let plain = self.copies_experts()
            || liger::patched(self.member, self.architecture).is_some_and(|patched| patched.experts);
        if plain {
            return body(x, [None; 2]);
        }
        Delta::wrapped(self.machine, x, last, |x, last| {
            Delta::wrapped(self.machine, x, first, |x, first| body(x, [first, last]))
        })
    }

    /// A router's matrix as a parameter, which peft adapts where LoRA's targets name it.
    pub(super) fn router_matrix(&self, layer: &BoundLayer<'a>, moe: &Moe) -> Option<Expert> {
        let bound = layer.linear(&moe.router);
        let (input, output) = (bound.shape.input, bound.shape.output);
        match (bound.adapter, bound.weight) {
            (Some(_), Weight::Plain(weight)) => Some(Expert {
                weight,
                bias: None,
                experts: 1,
                input,
                output,
                as_stored: false,
                adapter: bound.adapter,
            }),
            _ => None,
        }
    }

    /// `F.linear(hidden_states, self.weight)`, in float32 where that is asked for, the weight with what an adapter adds, which lives
    /// as long as the router runs.
    pub(super) fn router_logits(
        &self,
        Asked { layer, moe, x, delta }: Asked<'_, 'a>,
        float: bool,
    ) -> (Tensor<'a>, Option<Tensor<'a>>) {
        let bound = layer.linear(&moe.router);
        let (Some(delta), Some(expert)) = (delta, self.router_matrix(layer, moe)) else {
            let logits = if float {
                x.to(Dtype::F32).through_float(&bound)
            } else if moe.router_is_linear {
                x.flattened().through(&bound)
            } else {
                x.flattened().through_own(&bound)
            };
            return (logits, None);
        };
        let x = x.flattened();
        let x = if float { x.to(Dtype::F32) } else { x };
        let adapted = delta.adapted(self.machine, &expert);
        let weight = adapted.to(if float { Dtype::F32 } else { adapted.value.dtype });
        let output = x.apply(|state, x| state.linear_with(x, bound.shape, &weight.value, None));
        (output, Some(adapted))
    }

    /// `grouped_mm_experts_forward`: rows sorted by expert, two grouped products, rows put back and summed.
    pub(super) fn chosen_experts(
        &self,
        layer: &BoundLayer<'a>,
        moe: &Moe,
        x: &Tensor<'a>,
        (weights, indices): (&Tensor<'a>, Tensor<'a>),
        [first_delta, last_delta]: [Option<&Delta<'a>>; 2],
    ) -> Tensor<'a> {
        let [first, last] = layer.experts[..] else { return x.unmodelled("experts without two layers") };
        if self.copies_experts() {
            return self.batched_experts(moe, (x, weights, &indices), [&first, &last], &layer.params);
        }
        if liger::patched(self.member, self.architecture).is_some_and(|patched| patched.experts) {
            return x.liger_experts(moe, [weights, &indices], [&first, &last]);
        }
        let rows = indices.value.numel;
        let [ids, order] = indices.sorted();
        let mut selected = {
            let tokens = order.fresh(rows, Dtype::I64, &TOKEN_OF_ROW);
            let selected = x.rows_at(&tokens, rows, moe.hidden);
            let dims = Dims::Chosen(self.batch.tokens(), moe.top_k);
            self.machine.with(|state| state.note_dims(selected.value.storage, dims));
            selected
        };
        let row_weights = weights.rows_at(&order, rows, 1);
        let short = ids.fresh(rows, Dtype::I32, &torch::IDS);
        let counts = ids.fresh(moe.experts, Dtype::I32, &TOKENS_PER_EXPERT);
        let offsets = ids.fresh(moe.experts, Dtype::I32, &OFFSETS);
        self.machine.with(|state| state.scratch(1023, &CUMSUM_STORAGE));
        let padding = ids.fresh(rows, Dtype::Bool, &SENTINELS);
        // what an adapter makes of them stays until its module is left
        let first_matrices = self.matrices(&first, first_delta);
        let mut biases = first.bias.map(|bias| self.biases_of(bias, &ids, &first));
        selected = selected.masked_fill_in_place(&padding);
        let mut output = selected.grouped(&first_matrices, &offsets, &first);
        if let Some(biases) = &biases {
            output = output.add_in_place(biases);
        }
        output = output.masked_fill(&padding);
        output = if self.modeling.router == Router::BestFirstInPlace {
            output.clamped_gate()
        } else if !moe.gated {
            output.activated(moe.act, &layer.params)
        } else {
            let half = output.value.numel / 2;
            let [gate, up] = output.split([half, half]);
            let active = gate.activated(moe.act, &layer.params);
            active.mul(&up)
        };
        let last_matrices = self.matrices(&last, last_delta);
        biases = last.bias.map(|bias| self.biases_of(bias, &ids, &last));
        output = output.grouped(&last_matrices, &offsets, &last);
        if let Some(biases) = &biases {
            output = output.add_in_place(biases);
        }
        output = output.masked_fill(&padding);
        let mut weighted = output.mul_rows(&row_weights);
        let inverse = order.fresh(rows, Dtype::I64, &INVERSE_ORDER);
        drop(order.fresh(rows, Dtype::I64, &torch::RANGE));
        weighted = weighted.rows_at(&inverse, rows, moe.hidden);
        let sum = weighted.split_heads().sum_groups(moe.top_k);
        let result = sum.to(x.value.dtype);
        drop(biases);
        drop((ids, order, selected, row_weights));
        drop((short, counts, offsets, padding));
        drop((output, weighted, inverse, sum));
        drop((first_matrices, last_matrices));
        result
    }

    /// `batched_mm_experts_forward`, which `generate` switches to after the prompt: each row has a copy of its expert's matrices.
    fn batched_experts(
        &self,
        moe: &Moe,
        (x, weights, indices): (&Tensor<'a>, &Tensor<'a>, &Tensor<'a>),
        [first, last]: [&Expert; 2],
        params: &[(&'static str, ParamId)],
    ) -> Tensor<'a> {
        let rows = indices.value.numel;
        let dims = Dims::Chosen(self.batch.tokens(), moe.top_k);
        let of_rows = |numel: u64, what: &'static What| {
            let tensor = x.fresh(rows.saturating_mul(numel), x.value.dtype, what);
            self.machine.with(|state| state.note_dims(tensor.value.storage, dims));
            tensor
        };
        let matrices = |expert: &Expert| {
            let table = self.machine.weight(expert.weight);
            let numel = rows.saturating_mul(expert.input).saturating_mul(expert.output);
            table.fresh(numel, table.value.dtype, &EXPERTS_OF_ROWS)
        };
        let selected = of_rows(moe.hidden, &torch::REPEAT_INTERLEAVE);
        let ids = indices.fresh(rows, Dtype::I64, &torch::CLAMP);
        let mut chosen = matrices(first);
        let mut biases = first.bias.map(|bias| self.biases_of(bias, &ids, first));
        let mut output = of_rows(first.output, &torch::MATMUL);
        output = if self.modeling.router == Router::BestFirstInPlace {
            output.clamped_gate()
        } else if !moe.gated {
            output.activated(moe.act, params)
        } else {
            let half = output.value.numel / 2;
            let [gate, up] = output.split([half, half]);
            let active = gate.activated(moe.act, params);
            active.mul(&up)
        };
        chosen = {
            let next = matrices(last);
            drop(chosen);
            next
        };
        biases = {
            let next = last.bias.map(|bias| self.biases_of(bias, &ids, last));
            drop(biases);
            next
        };
        output = {
            let next = of_rows(last.output, &torch::MATMUL);
            drop(output);
            next
        };
        let weighted = output.mul_rows(weights);
        let sum = weighted.split_heads().sum_groups(moe.top_k);
        let result = sum.to(x.value.dtype);
        drop((selected, ids, chosen, biases));
        drop((output, weighted, sum));
        result
    }

    /// `bias[expert_ids]`: the bias of each row's expert.
    fn biases_of(&self, bias: ParamId, ids: &Tensor<'a>, expert: &Expert) -> Tensor<'a> {
        let table = self.machine.weight(bias);
        table.rows_at(ids, ids.value.numel, expert.output)
    }

    /// The matrices with what an adapter adds to them.
    fn matrices(&self, expert: &Expert, delta: Option<&Delta<'a>>) -> Tensor<'a> {
        match delta {
            Some(delta) => delta.adapted(self.machine, expert),
            None => self.machine.weight(expert.weight),
        }
    }
}

impl<'m> Tensor<'m> {
    /// models/gpt_oss `_apply_gate`: clamped gate and up, interleaved in one tensor.
    fn clamped_gate(&self) -> Tensor<'m> {
        let half = self.value.numel / 2;
        let (mut gate, mut up) = (self.slice(half), self.slice(half));
        gate = gate.keeping_input(&torch::CLAMP);
        up = up.keeping_input(&torch::CLAMP);
        let active = {
            let open = {
                let scaled = gate.scale();
                scaled.keeping_output(&torch::SIGMOID)
            };
            gate.mul(&open)
        };
        up.add_number().mul(&active)
    }
}
