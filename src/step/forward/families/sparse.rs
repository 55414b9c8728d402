//! models/deepseek_v32/modeling_deepseek_v32.py and models/glm_moe_dsa/modeling_glm_moe_dsa.py: latent attention to the
//! tokens that an indexer chooses. With PyTorch's kernels the choice is a mask.

use crate::dtype::Dtype;
use crate::model::blocks::{Indexer, Latent, LatentQuery, Rotary};
use crate::step::forward::inputs::{Embedded, MaskCall, Seen, Shared};
use crate::step::forward::latent::rotated;
use crate::step::forward::layer::Mixed;
use crate::step::forward::self_attention::Heads;
use crate::step::forward::{BoundLayer, Pass};
use crate::step::heap::NOTHING;
use crate::step::ops::attention::{Kernel, Scores};
use crate::step::tensor::{Tensor, Value};
use crate::step::what::{Source, What, roles, torch};

static INDEX_MASK: What =
    What::own("index mask", "which keys the indexer chose for each query", Source::Modeling);

impl<'a> Pass<'_, 'a> {
    /// Positions, and a mask that is always made: the indexer reads it.
    pub(in crate::step::forward) fn sparse_inputs(&self) -> (Embedded<'a>, Shared<Tensor<'a>>) {
        let hidden = self.embed_tokens();
        let positions = Some(self.range());
        let embedded = Embedded { hidden, kept: true, positions, locals: Vec::new() };
        let masks = self.masks(&embedded, MaskCall { may_skip: false, ..self.mask_call() });
        let shared = self.with_rotary(masks, &embedded);
        (embedded, shared)
    }

    /// `DeepseekV32Attention`, `GlmMoeDsaAttention`.
    pub(in crate::step::forward) fn sparse_attention(
        &self,
        layer: &BoundLayer<'a>,
        latent: &Latent,
        x: &Tensor<'a>,
        shared: &Shared<Tensor<'a>>,
    ) -> Mixed<'a> {
        let tokens = self.batch.tokens();
        let per_head = |width: u64| tokens.saturating_mul(latent.heads).saturating_mul(width);
        let (residual, projected) = match &latent.query {
            LatentQuery::Full(q) => (x.clone(), x.through(&layer.linear(q))),
            LatentQuery::LowRank { a, norm, b } => {
                let residual = {
                    let low = x.through(&layer.linear(a));
                    low.normed(&layer.norm(norm))
                };
                let projected = residual.through(&layer.linear(b));
                (residual, projected)
            }
        };
        let q = projected.to_heads();
        drop(projected);
        let [q_pass, mut q_rotated] = q.split([per_head(latent.nope_dim), per_head(latent.rope_dim)]);
        let compressed = x.through(&layer.linear(&latent.kv_a));
        let [low, mut k_rotated] =
            compressed.split([tokens.saturating_mul(latent.kv_rank), tokens.saturating_mul(latent.rope_dim)]);
        let low = low.normed(&layer.norm(&latent.kv_norm));
        if let Some((cos, sin)) = shared.rotary(Seen::All) {
            let interleaved = Rotary::Interleaved { dim: latent.rope_dim };
            [q_rotated, k_rotated] = rotated(interleaved, [&q_rotated, &k_rotated], cos, sin);
        }
        let query = q_pass.cat(&q_rotated);
        let (key, value) = {
            let both = low.through(&layer.linear(&latent.kv_b)).to_heads();
            let [k_pass, value] = both.split([per_head(latent.nope_dim), per_head(latent.value_dim)]);
            let width = latent.nope_dim.saturating_add(latent.rope_dim);
            let k_all = k_rotated.expanded_heads(latent.heads);
            let key = both.empty_like(per_head(width));
            (key.slice_filled(&k_pass).slice_filled(&k_all), value)
        };
        let mut heads = Heads { q: query, k: key, v: value };
        self.remember(&mut heads, None);
        let chosen = self.chosen_tokens(layer, latent, (x, &residual), shared);
        let (index_mask, mask) = self.mask_of_chosen(shared.full.as_ref(), &chosen);
        let scores = Scores {
            kernel: Kernel::Eager,
            batch: self.batch.sequences,
            heads: latent.heads,
            kv_heads: latent.heads,
            sequence: self.batch.length,
            keys: self.keys(None),
            head_dim: latent.nope_dim.saturating_add(latent.rope_dim),
            value_dim: latent.value_dim,
            enable_gqa: true,
            texts: 0,
            dropout: false,
            calls: 1,
            // refused beside it
            ranks: 1,
            bias: None,
        };
        let Mixed { mut output, weights } =
            self.attend_latent(scores, &heads, Some(&mask), self.attention_dropout(latent.dropout));
        output = output.through(&layer.linear(&latent.output));
        drop(mask);
        drop((residual, q, q_pass, q_rotated));
        drop((compressed, low, k_rotated));
        drop((heads, index_mask));
        if self.shares_choice() && !self.machine.with(|state| state.recomputing) {
            drop(self.outputs.replace(Some(chosen)));
        }
        Mixed { output, weights }
    }

    /// Whether layers without an indexer use the choice of the last one that has one.
    fn shares_choice(&self) -> bool {
        self.modeling.shares_indexer_choice
    }

    /// The indices that the layer's indexer chooses, or an earlier layer's.
    fn chosen_tokens(
        &self,
        layer: &BoundLayer<'a>,
        latent: &Latent,
        inputs: (&Tensor<'a>, &Tensor<'a>),
        shared: &Shared<Tensor<'a>>,
    ) -> Tensor<'a> {
        let Some(indexer) = &latent.indexer else {
            let earlier = self.outputs.borrow().as_ref().map(Tensor::clone);
            let numel = self.batch.tokens().saturating_mul(latent.chosen.min(self.batch.length));
            return earlier.unwrap_or_else(|| Tensor {
                machine: self.machine,
                value: Value::plain(NOTHING, numel, Dtype::I32),
            });
        };
        let outer = self.machine.with(|state| std::mem::replace(&mut state.graph.enabled, false));
        let chosen = self
            .machine
            .within("indexer", &roles::INDEXER, || self.indexed(layer, latent, indexer, inputs, shared));
        self.machine.with(|state| state.graph.enabled = outer);
        chosen
    }

    /// `DeepseekV32Indexer`, without a graph.
    fn indexed(
        &self,
        layer: &BoundLayer<'a>,
        latent: &Latent,
        indexer: &Indexer,
        (x, residual): (&Tensor<'a>, &Tensor<'a>),
        shared: &Shared<Tensor<'a>>,
    ) -> Tensor<'a> {
        let tokens = self.batch.tokens();
        let (batch, sequence) = (self.batch.sequences, self.batch.length);
        let heads = indexer.weights.output;
        let q = residual.through(&layer.linear(&indexer.q));
        let k = {
            let k = x.through(&layer.linear(&indexer.k));
            k.normed(&layer.norm(&indexer.norm))
        };
        let rope = tokens.saturating_mul(latent.rope_dim);
        let cut = |x: &Tensor<'a>, front: u64| [front, x.value.numel.saturating_sub(front)];
        let [q_front, q_rest] = q.split(cut(&q, rope.saturating_mul(heads)));
        let [k_front, k_rest] = k.split(cut(&k, rope));
        let [q_rotated, k_rotated] = match shared.rotary(Seen::All) {
            None => [q_front.clone(), k_front.clone()],
            Some((cos, sin)) => {
                let rotary = match self.shares_choice() {
                    true => Rotary::Interleaved { dim: latent.rope_dim },
                    false => Rotary::Full,
                };
                rotated(rotary, [&q_front, &k_front], cos, sin)
            }
        };
        drop((q_front, k_front));
        let (old_q, old_k) = (q, k);
        let q = q_rotated.cat(&q_rest);
        let k = k_rotated.cat(&k_rest);
        drop((old_q, old_k));
        let k = if self.fills_cache {
            let kept = k.cat(&k.slice(0));
            self.cache.borrow_mut().push(kept.clone());
            kept
        } else {
            k
        };
        let product = self.autocast.unwrap_or(Dtype::F32);
        let all = tokens.saturating_mul(heads).saturating_mul(sequence);
        let mut scores = {
            let (q_float, k_float) = (q.to(Dtype::F32), k.to(Dtype::F32));
            let products = {
                let (k_cast, q_cast) = (k_float.to(product), q_float.to(product));
                // of several sequences the keys are copied for each token
                let _copies = (batch > 1).then(|| {
                    self.constant(k.value.numel.saturating_mul(sequence), product, &torch::CONTIGUOUS)
                });
                let products = self.constant(all, product, &torch::MATMUL);
                drop((k_cast, q_cast));
                products
            };
            drop((q_float, k_float));
            products.scale()
        };
        scores = scores.keeping_output(&torch::RELU);
        let weights = {
            let float = x.through(&layer.linear(&indexer.weights)).to(Dtype::F32);
            float.scale()
        };
        let each = tokens.saturating_mul(sequence);
        let mut index_scores = {
            let _weights = weights.to(product);
            self.constant(each, product, &torch::MATMUL)
        };
        if let Some(mask) = &shared.full {
            index_scores = if mask.value.dtype == Dtype::Bool {
                let _others = self.constant(each, Dtype::Bool, &torch::OTHERS);
                self.constant(each, product, &torch::MASKED_FILL)
            } else {
                let dtype =
                    if mask.value.dtype.bytes() > product.bytes() { mask.value.dtype } else { product };
                self.constant(each, dtype, &torch::ADD)
            };
        }
        let numel = tokens.saturating_mul(latent.chosen.min(sequence));
        let indices = {
            let values = self.constant(numel, index_scores.value.dtype, &torch::TOPK);
            let indices = self.constant(numel, Dtype::I64, &torch::TOPK_INDICES);
            let short = self.constant(numel, Dtype::I32, &torch::INDICES);
            drop((values, indices));
            short
        };
        drop((q, q_rotated, q_rest, k, k_rotated, k_rest));
        drop((scores, weights, index_scores));
        indices
    }

    /// The mask of what was not chosen, and with it the mask that attention is given.
    fn mask_of_chosen(&self, given: Option<&Tensor<'a>>, chosen: &Tensor<'a>) -> (Tensor<'a>, Tensor<'a>) {
        let each = self.batch.tokens().saturating_mul(self.batch.length);
        let bools = |name| self.constant(each, Dtype::Bool, name);
        let index_mask = {
            let _ones = bools(&torch::ONES);
            let _long = self.constant(chosen.value.numel, Dtype::I64, &torch::INDICES);
            bools(&INDEX_MASK)
        };
        let mask = match given.map(|mask| mask.value.dtype) {
            None | Some(Dtype::Bool) => {
                let _others = bools(&torch::OTHERS);
                bools(&torch::MASK)
            }
            Some(dtype) => self.constant(each, dtype, &torch::MASKED_FILL),
        };
        (index_mask, mask)
    }
}
