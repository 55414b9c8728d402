//! GPT-3's layers as Transformer Engine and Megatron-core run them: LayerNorm, biases that the product before them leaves to the
//! kernel behind it (GELU, or dropout and the residual), positions that are looked up.
//!
//! Source: megatron/core/fusions/{fused_bias_gelu,fused_bias_dropout,fused_softmax}.py and
//! megatron/core/models/common/embeddings/language_model_embedding.py of Megatron-core 0.16.1;
//! transformer_engine/pytorch/attention/dot_product_attention/backends.py of Transformer Engine 2.11. Compared with the allocator's
//! trace of that code.

use super::super::functions::Sharing;
use super::attention::Attended;
use crate::dtype::Dtype;
use crate::memory::Category;
use crate::model::blocks::{Attention, FeedForward, Mixer, Mlp, Projection, Wiring};
use crate::scenario::AttentionKernel;
use crate::step::autograd::{Grad, fresh, only, share};
use crate::step::forward::{BoundLayer, Pass};
use crate::step::kernels;
use crate::step::machine::State;
use crate::step::ops::matmul::bmm_backward;
use crate::step::params::ParamId;
use crate::step::tensor::{Layout, Tensor, Value};
use crate::step::what::{Source, What, roles, torch};

const FUSIONS: Source = Source::At("Megatron-core, megatron/core/fusions");
const BACKENDS: Source =
    Source::At("Transformer Engine, transformer_engine/pytorch/attention/dot_product_attention/backends.py");

static LOSS_MASK: What =
    What::own("loss mask", "which tokens' losses are added up", Source::At("Megatron-LM, pretrain_gpt.py"));
static ACTIVATED: What = What::own(
    "bias and GELU",
    "GELU of the product and its bias, as one compiled kernel that keeps its input",
    FUSIONS,
);
static ACTIVATED_GRADIENT: What =
    What::own("bias and GELU (gradient)", "the gradient of the product and its bias", FUSIONS);
static ADDED: What = What::own(
    "bias, dropout and residual",
    "what the half makes, with its bias and after dropout, on top of what it was given: one compiled kernel",
    FUSIONS,
);
static ADDED_GRADIENT: What =
    What::own("dropout (gradient)", "the gradient of what dropout was given", FUSIONS);
static KEPT: What =
    What::own("dropout mask", "which elements dropout kept, one byte each, for its backward", FUSIONS);
static SEED: What = What::own("seed", "what a compiled kernel draws random numbers by", FUSIONS);
static BIAS_GRADIENT: What =
    What::own("bias (gradient)", "a bias's gradient: the sum over all tokens", FUSIONS);
static PARTIAL_SUMS: What = What::own(
    "bias (partial sums)",
    "a row for each 128 tokens, of which a bias's gradient is made",
    FUSIONS,
);
static CAUSAL: What = What::own(
    "attention mask",
    "which keys a query may not see, made anew in every layer",
    Source::At(
        "Transformer Engine, transformer_engine/pytorch/attention/dot_product_attention/utils.py, get_full_mask",
    ),
);
static SOFTMAX: What = What::own(
    "attention probabilities",
    "softmax of the scores, over which their gradient is written",
    Source::At("Megatron-core, megatron/core/fusions/fused_softmax.py"),
);
static LAID_OUT: What = What::own(
    "contiguous",
    "queries, keys or values, sequence after sequence, as the kernel takes them",
    BACKENDS,
);
static ATTENDED: What = What::own(
    "attention",
    "attention's output, saved with queries, keys and values for its backward",
    BACKENDS,
);
static STATISTICS: What = What::own(
    "attention (softmax statistics)",
    "one number per query and head, of which backward makes the probabilities again",
    BACKENDS,
);
static SUMS: What = What::own(
    "attention (workspace)",
    "scratch space of attention's backward: the queries' gradient summed in float32, and a number per query and head",
    Source::At("flash-attn, csrc/flash_attn/flash_api.cpp"),
);
static ATTENTION_GRADIENT: What =
    What::own("attention (gradient)", "the gradient of queries, keys or values", BACKENDS);

/// Heads of all sequences of which Megatron's softmax takes multiples; others go through PyTorch's in float32
/// (`is_kernel_available`).
const ROWS_OF_KERNEL: u64 = 4;

/// Rows of which a compiled kernel makes one partial sum, as the traces have it (torch.compile of PyTorch 2.11).
const SUMMED_AT_ONCE: u64 = 128;

/// Bytes of a state of the random numbers, and of a compiled kernel's seed.
const RANDOM_STATE: u64 = 16;
const SEED_BYTES: u64 = 8;

impl<'a> Pass<'_, 'a> {
    /// What Megatron-LM's pretrain_gpt.py has in a batch beside the tokens: labels, which of them count, and for each sequence which
    /// tokens see which (`create_attention_mask_in_dataloader`).
    pub(in super::super) fn gpt_masks(&self) -> [Tensor<'a>; 3] {
        let (tokens, length) = (self.batch.tokens(), self.batch.length);
        let labels = self.of_tokens(tokens, Dtype::I64, &torch::LABELS);
        let counted = self.of_tokens(tokens, Dtype::F32, &LOSS_MASK);
        [labels, counted, self.constant(tokens.saturating_mul(length), Dtype::Bool, &torch::MASK)]
    }

    /// `TransformerLayer.forward`.
    pub(super) fn te_gpt_layer(&self, layer: &BoundLayer<'a>, hidden: &Tensor<'a>) -> Tensor<'a> {
        let (Wiring::PreNorm { attention: first, mlp: second }, Mixer::Attention(attention)) =
            (&layer.block.wiring, &layer.block.mixer)
        else {
            return hidden.unmodelled("a layer that Megatron-core has nowhere");
        };
        let FeedForward::Dense(Mlp::Plain { up, down, .. }) = &layer.block.ffn else {
            return hidden.unmodelled("a feed-forward network that Megatron-core has nowhere");
        };
        let Projection::Fused(joint) = &attention.projection else {
            return hidden.unmodelled("projections that Megatron-core has as one");
        };
        let (sharing, drops) = (self.sharing(), self.dropout(layer.block.residual_dropout));
        let attended = {
            let output = self.within("self_attention", &roles::ATTENTION, || {
                let mixed = hidden.te_normed_through(&layer.norm(first), &layer.linear(joint), sharing);
                let context = self.te_gpt_core(attention, &mixed);
                let output = context.te_through(&layer.linear(&attention.output), sharing);
                drop(mixed);
                drop(context);
                output
            });
            output.te_added_to(hidden, layer.linear(&attention.output).bias, drops)
        };
        let fed = self.within("mlp", &roles::FEED_FORWARD, || {
            let active = {
                let product = attended.te_normed_through(&layer.norm(second), &layer.linear(up), sharing);
                product.te_activated(layer.linear(up).bias)
            };
            active.te_through(&layer.linear(down), sharing)
        });
        fed.te_added_to(&attended, layer.linear(down).bias, drops)
    }

    /// `TEDotProductAttention.forward` without rotary positions: queries, keys and values still lie side by side.
    fn te_gpt_core(&self, attention: &Attention, mixed: &Tensor<'a>) -> Tensor<'a> {
        let heads = attention.heads.saturating_mul(self.batch.sequences);
        let rows = heads.saturating_mul(self.batch.length);
        let numel = rows.saturating_mul(attention.head_dim);
        let keys = numel / attention.heads.max(1) * attention.kv_heads;
        let [query, key, value] = mixed.split([numel, keys, keys]);
        // heads lie in groups, each with its keys and values: a reshape of several copies the queries, and what lies between others
        // is copied too (`get_qkv_layout`)
        let grouped = attention.heads > attention.kv_heads;
        let [query, key, value] = match grouped {
            true => [query, key, value].map(|x| x.dense_copy()),
            false => [query, key, value],
        };
        let several = self.batch.sequences > 1;
        let flops =
            rows.saturating_mul(self.batch.length).saturating_mul(attention.head_dim).saturating_mul(2);
        let attended = Attended { rows, flops, output: numel };
        match self.member.attention {
            AttentionKernel::Eager if grouped => {
                mixed.unmodelled("heads that share keys and values, with attention written out")
            }
            AttentionKernel::Eager => self.te_unfused(attention, [&query, &key, &value]),
            AttentionKernel::FlashAttn => {
                let is_laid_out = grouped && !several;
                let [q, k, v] = [query, key, value].map(|x| match is_laid_out {
                    true => x,
                    false => x.dense_copy_of(&LAID_OUT),
                });
                let output = q.te_flash_attended([&k, &v], attended);
                if several { output.dense_copy() } else { output }
            }
            _ => query.te_attended([&key, &value], attended),
        }
    }

    /// `UnfusedDotProductAttention.forward`.
    fn te_unfused(&self, attention: &Attention, [query, key, value]: [&Tensor<'a>; 3]) -> Tensor<'a> {
        let length = self.batch.length;
        let square = length.saturating_mul(length);
        let mask = {
            let places: Vec<Tensor<'a>> =
                (0..3).map(|_| self.constant(square, Dtype::I32, &CAUSAL)).collect();
            let mask = self.constant(square.saturating_mul(self.batch.sequences), Dtype::Bool, &CAUSAL);
            drop(places);
            mask
        };
        let rows = self.batch.sequences.saturating_mul(attention.heads);
        let numel = rows.saturating_mul(length).saturating_mul(length);
        let scores = self.machine.serving(&roles::SCORES, || {
            let given = self.constant(numel, Dtype::Bf16, &torch::MATMUL);
            let scores = self.machine.biased_product(None, query, key, numel).flat_heads();
            drop(given);
            scores
        });
        let probabilities = self.machine.serving(&roles::PROBABILITIES, || {
            let softmax = if rows.is_multiple_of(ROWS_OF_KERNEL) {
                scores.te_softmax()
            } else {
                let float = scores.to(Dtype::F32);
                let hidden = self.constant(square, Dtype::Bool, &CAUSAL);
                let softmax = float.with_mask(hidden.value.storage).softmax();
                drop(hidden);
                let softmax = softmax.to(Dtype::Bf16);
                drop(float);
                softmax
            };
            softmax.dropout(self.dropout(attention.dropout))
        });
        let context = self.machine.tensor(|state| {
            let (a, b) = (&probabilities.value, &value.value);
            let multiplied = query.value.numel.saturating_mul(length);
            let node = state.node([a, b], move |state, node, grad| {
                bmm_backward(state, node, grad, (Layout::Tokens, multiplied))
            });
            state.save_view(node, b);
            state.save_view(node, a);
            let storage = state.alloc_product(query.value.numel, length, a.dtype, &torch::MATMUL);
            Value::plain(storage, query.value.numel, a.dtype).at(node.output(0))
        });
        drop(probabilities);
        let copy = context.dense_copy();
        drop(context);
        drop(mask);
        drop(scores);
        copy
    }
}

impl<'m> Tensor<'m> {
    /// `bias_gelu_impl`: keeps its input; the bias's gradient is a sum of the product's.
    fn te_activated(&self, bias: Option<ParamId>) -> Tensor<'m> {
        self.apply(|state, x| {
            let bias = state.weight_if(bias);
            let node = state.node([x, &bias], |state, node, grad| {
                let [all, bias, _] = node.inputs;
                let mut results = only(fresh(state, grad, (all.numel, all.layout), &ACTIVATED_GRADIENT));
                results[1] = bias_gradient(state, &bias);
                kernels::column_sum_scratch(state, all.numel / bias.numel.max(1), bias.numel, bias.dtype);
                results
            });
            state.save_view(node, x);
            state.release(bias.storage);
            state.new_like(x, x.dtype, &ACTIVATED, node.output(0))
        })
    }

    /// `get_bias_dropout_add` of what a half made: keeps which elements dropout kept, and nothing without dropout.
    fn te_added_to(&self, residual: &Tensor<'m>, bias: Option<ParamId>, drops: bool) -> Tensor<'m> {
        self.apply(|state, x| {
            let bias = state.weight_if(bias);
            let node = state.node([x, &bias, &residual.value], move |state, node, grad| {
                let [all, bias, _] = node.inputs;
                let own = if drops {
                    let own = fresh(state, grad, (all.numel, all.layout), &ADDED_GRADIENT);
                    state.clear_saved(node, 0);
                    own
                } else {
                    share(state, grad)
                };
                let partial = (all.numel / bias.numel.max(1)).div_ceil(SUMMED_AT_ONCE);
                let bytes = partial.saturating_mul(bias.numel).saturating_mul(Dtype::F32.bytes());
                let sums = state.alloc_as(Category::Temporaries, bytes, Dtype::F32, &PARTIAL_SUMS);
                let bias = bias_gradient(state, &bias);
                state.release(sums);
                [Some(own), bias, Some(share(state, grad))]
            });
            let random = drops.then(|| state.alloc(SEED_BYTES, Dtype::U8, &SEED));
            let mask = drops.then(|| state.alloc_for(x.storage, x.numel, Dtype::Bool, &KEPT));
            let output = state.new_like(&residual.value, x.dtype, &ADDED, node.output(0));
            if let Some(seed) = random {
                state.release(seed);
            }
            if let Some(mask) = mask {
                state.save(node, mask);
                state.release(mask);
            }
            state.release(bias.storage);
            output
        })
    }

    /// `ScaledUpperTriangMaskedSoftmax`: its gradient is written over that of the probabilities.
    fn te_softmax(&self) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], |state, _, grad| only(share(state, grad)));
            let output = state.new_like(x, x.dtype, &SOFTMAX, node.output(0));
            state.save(node, output.storage);
            output
        })
    }

    /// `flash_attn_func`.
    fn te_flash_attended(&self, [key, value]: [&Tensor<'m>; 2], attended: Attended) -> Tensor<'m> {
        self.apply(|state, query| {
            state.attend(attended.flops);
            let node = state.node([query, &key.value, &value.value], move |state, node, grad| {
                state.attend(attended.flops.saturating_mul(5) / 2);
                let gradients = node.inputs.map(|input| {
                    let storage = state.alloc_for(grad.storage, input.numel, grad.dtype, &ATTENTION_GRADIENT);
                    Some(Grad::new(storage, input.numel, grad.dtype, input.layout))
                });
                let sums = node.inputs[0].numel.saturating_add(attended.rows);
                state.scratch(sums.saturating_mul(Dtype::F32.bytes()), &SUMS);
                gradients
            });
            let output = state.new_like(query, query.dtype, &ATTENDED, node.output(0));
            let statistics = state.alloc_for(query.storage, attended.rows, Dtype::F32, &STATISTICS);
            let random = state.alloc(RANDOM_STATE, Dtype::U8, &torch::RANGE);
            for saved in [query, &key.value, &value.value, &output] {
                state.save_view(node, saved);
            }
            for storage in [statistics, random] {
                state.save(node, storage);
                state.release(storage);
            }
            output
        })
    }

    /// `scatter_to_sequence_parallel_region`: a view of this GPU's tokens; backward gathers all of them.
    pub(in super::super) fn tokens_sliced(&self, sharing: Sharing) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], move |state, node, grad| {
                let gathered = state.all_tokens(grad.storage, grad.numel, sharing);
                only(Grad::new(gathered, node.inputs[0].numel, grad.dtype, Layout::Tokens))
            });
            state.retain(x.storage);
            Value { numel: x.numel / sharing.tensor.max(1), ..*x }.at(node.output(0))
        })
    }

    /// A copy in another order, said to be what it is.
    fn dense_copy_of(&self, what: &'static What) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], |state, _, grad| only(share(state, grad)));
            state.new_like(x, x.dtype, what, node.output(0))
        })
    }
}

/// A bias's gradient, where it is trained.
fn bias_gradient(state: &mut State, bias: &Value) -> Option<Grad> {
    bias.wants().then(|| {
        let storage = state.alloc(bias.numel, bias.dtype, &BIAS_GRADIENT);
        Grad::new(storage, bias.numel, bias.dtype, Layout::Tokens)
    })
}
