//! Attention modules: projections, positions, the kernel, the output projection.

use super::{BoundLayer, Model, Shared};
use crate::dtype::Dtype;
use crate::model::blocks::{Attention, AttentionCode, Projection, Rotary};
use crate::step::attention::{Arguments, Kernel, Scores, scaled_dot_product};
use crate::step::tensor::Tensor;

impl<'a> Model<'a> {
    pub(super) fn attention(
        &self,
        layer: &BoundLayer<'a>,
        attention: &Attention,
        x: &Tensor<'a>,
        shared: &Shared<'a>,
    ) -> Tensor<'a> {
        let (q, k, v) = self.projected(layer, attention, x);
        let (q, k) = match &shared.rotary {
            None => (q, k),
            Some((cos, sin)) => {
                let rotate = |tensor: &Tensor<'a>| tensor.positioned(attention, cos, sin);
                let rotated = (rotate(&q), rotate(&k));
                drop((q, k));
                rotated
            }
        };
        let mask = if attention.window.is_some() { &shared.sliding } else { &shared.full };
        let output = if self.is_eager() {
            self.eager(attention, &q, &k, &v, mask.as_ref())
        } else {
            self.sdpa(attention, &q, &k, &v, mask.as_ref())
        };
        let output = output.through(&layer.linear(&attention.output));
        drop((q, k, v));
        output.dropout(self.dropout(layer.block.residual_dropout))
    }

    fn projected(
        &self,
        layer: &BoundLayer<'a>,
        attention: &Attention,
        x: &Tensor<'a>,
    ) -> (Tensor<'a>, Tensor<'a>, Tensor<'a>) {
        match &attention.projection {
            Projection::Separate { q, k, v } => {
                let make = |spec, norm: Option<&crate::model::blocks::Norm>| {
                    let projected = x.through(&layer.linear(spec));
                    match norm {
                        None => projected.to_heads(),
                        Some(norm) => projected.split_heads().normed(&layer.norm(norm)).heads_first(),
                    }
                };
                let norms = attention.qk_norm.as_ref();
                let q = make(q, norms.map(|norms| &norms.q));
                let k = make(k, norms.map(|norms| &norms.k));
                let v = make(v, None);
                (q, k, v)
            }
            // refused by `support`
            Projection::KeysAreValues { q, .. } | Projection::QueriesOnly(q) => {
                let q = x.through(&layer.linear(q)).to_heads();
                (q.clone(), q.clone(), q)
            }
            Projection::Fused(linear) => {
                let whole = x.through(&layer.linear(linear));
                let tokens = self.scenario.tokens();
                let q = tokens.saturating_mul(attention.heads).saturating_mul(attention.head_dim);
                let kv = tokens.saturating_mul(attention.kv_heads).saturating_mul(attention.head_dim);
                if matches!(attention.rotary, Rotary::Partial { .. }) {
                    let [q, k, v] = [q, kv, kv].map(|numel| whole.slice(numel));
                    (q.to_heads(), k.to_heads(), v.to_heads())
                } else {
                    let [q, k, v] = whole.split([q, kv, kv]);
                    (q.to_heads(), k.to_heads(), v.to_heads())
                }
            }
        }
    }

    fn scores(&self, attention: &Attention, kernel: Kernel, kv_heads: u64) -> Scores {
        Scores {
            kernel,
            batch: self.scenario.batch,
            heads: attention.heads,
            kv_heads,
            sequence: self.scenario.sequence,
            head_dim: attention.head_dim,
        }
    }

    /// integrations/sdpa_attention.py: grouped heads are repeated where a mask (or a large head) rules `enable_gqa` out.
    fn sdpa(
        &self,
        attention: &Attention,
        q: &Tensor<'a>,
        k: &Tensor<'a>,
        v: &Tensor<'a>,
        mask: Option<&Tensor<'a>>,
    ) -> Tensor<'a> {
        let groups = attention.heads / attention.kv_heads.max(1);
        let repeats = groups > 1 && (mask.is_some() || attention.head_dim > 256);
        let (k, v, kv_heads) = if repeats {
            (k.repeat_heads(groups), v.repeat_heads(groups), attention.heads)
        } else {
            (k.clone(), v.clone(), attention.kv_heads)
        };
        let dtype = self.autocast.unwrap_or(q.value.dtype);
        let grouped = kv_heads != attention.heads;
        let kernel = self.kernel(dtype, mask.is_some(), grouped, attention.head_dim);
        let arguments = Arguments {
            q,
            k: &k,
            v: &v,
            mask,
            causal: attention.causal,
            dropout: self.dropout(attention.dropout),
        };
        let output = scaled_dot_product(self.scores(attention, kernel, kv_heads), &arguments);
        output.to_tokens()
    }

    /// The models' `eager_attention_forward`.
    fn eager(
        &self,
        attention: &Attention,
        q: &Tensor<'a>,
        k: &Tensor<'a>,
        v: &Tensor<'a>,
        mask: Option<&Tensor<'a>>,
    ) -> Tensor<'a> {
        let machine = self.machine;
        let batch = self.scenario.batch;
        let groups = attention.heads / attention.kv_heads.max(1);
        let scores = self.scores(attention, Kernel::Eager, attention.kv_heads);
        let k = k.repeat_heads(groups);
        let v = v.repeat_heads(groups);
        let mut weights = {
            let product = machine.product(q, &k, scores.numel(), batch, self.autocast);
            product.scale()
        };
        if attention.softcap {
            weights = weights.scale();
            weights = weights.keeping_output("tanh");
            weights = weights.scale();
        }
        if let Some(mask) = mask {
            weights = weights.add_row(mask);
        }
        weights = {
            let float = match attention.code {
                AttentionCode::Gpt2 => weights.softmax(),
                _ => weights.softmax_float(),
            };
            float.to(q.value.dtype)
        };
        weights = weights.dropout(self.dropout(attention.dropout));
        let output = machine.product(&weights, &v, q.value.numel, batch, self.autocast);
        output.to_tokens()
    }
}

impl<'m> Tensor<'m> {
    /// Queries or keys with their positions.
    fn positioned(&self, attention: &Attention, cos: &Tensor<'m>, sin: &Tensor<'m>) -> Tensor<'m> {
        match attention.rotary {
            Rotary::None | Rotary::Alibi => self.clone(),
            Rotary::Full => self.rotated(cos, sin),
            Rotary::Partial { dim } | Rotary::Interleaved { dim } => {
                let turned = self.value.numel / attention.head_dim.max(1) * dim;
                self.partly_rotated(turned, cos, sin)
            }
            Rotary::Float32 => {
                let float = self.to(Dtype::F32);
                float.rotated(cos, sin).to(self.value.dtype)
            }
            Rotary::Complex => {
                let float = self.to(Dtype::F32);
                float.mul_constant(cos).to(self.value.dtype)
            }
            Rotary::Halves => self.rotated_by_halves(cos, sin),
        }
    }

    /// `cat(a * cos - b * sin, b * cos + a * sin)` of the two halves.
    fn rotated_by_halves(&self, cos: &Tensor<'m>, sin: &Tensor<'m>) -> Tensor<'m> {
        let half = self.value.numel / 2;
        let [a, b] = self.split([half, half]);
        let first = a.mul_constant(cos).add(&b.mul_constant(sin));
        let second = b.mul_constant(cos).add(&a.mul_constant(sin));
        first.cat(&second)
    }

    /// `x * cos + rotate_half(x) * sin`.
    fn rotated(&self, cos: &Tensor<'m>, sin: &Tensor<'m>) -> Tensor<'m> {
        let straight = self.mul_constant(cos);
        let turned = {
            let half = self.value.numel / 2;
            let rotated = {
                let first = self.slice(half);
                let second = self.slice(half);
                let negative = second.negate();
                negative.cat(&first)
            };
            rotated.mul_constant(sin)
        };
        straight.add(&turned)
    }

    /// The same over the first `turned` elements, the rest joined with `cat`.
    fn partly_rotated(&self, turned: u64, cos: &Tensor<'m>, sin: &Tensor<'m>) -> Tensor<'m> {
        let rest = self.value.numel.saturating_sub(turned);
        let (front, back) = (self.slice(turned), self.slice(rest));
        let rotated = front.rotated(cos, sin);
        rotated.cat(&back)
    }
}
