//! Attention modules: projections, positions, the kernel, the output projection.

use super::layer::Mixed;
use super::{BoundLayer, Code, Model, Shared};
use crate::model::Objective;
use crate::model::blocks::{Attention, Norm, Projection, Rotary};
use crate::scenario::{Checkpointing, Stack};
use crate::step::attention::{Arguments, Kernel, Product, Scores, scaled_dot_product};
use crate::step::tensor::Tensor;

/// Queries, keys and values shaped by heads.
pub(super) struct Heads<'m> {
    pub q: Tensor<'m>,
    pub k: Tensor<'m>,
    pub v: Tensor<'m>,
}

impl<'a> Model<'a> {
    pub(super) fn attention(
        &self,
        layer: &BoundLayer<'a>,
        attention: &Attention,
        x: &Tensor<'a>,
        shared: &Shared<Tensor<'a>>,
    ) -> Mixed<'a> {
        match self.code {
            Code::Falcon => {
                if let Projection::Fused(qkv) = &attention.projection {
                    return self.falcon_attention(layer, (attention, qkv), x, shared);
                }
            }
            Code::Llama
            | Code::Gpt2
            | Code::GptNeox
            | Code::Opt
            | Code::Bloom
            | Code::Phi
            | Code::Bert
            | Code::Qwen => {}
        }
        let mut heads = self.projected(layer, attention, x);
        let mut _passed = None;
        if let Some((cos, sin)) = &shared.rotary {
            _passed = self.position(attention, &mut heads, cos, sin);
        }
        self.remember(&mut heads);
        let Mixed { mut output, weights } = self.attend(attention, &heads, shared.mask(attention));
        if self.code == Code::Bert {
            // the output projection belongs to the module around it
            return Mixed { output, weights };
        }
        output = output.through(&layer.linear(&attention.output));
        if self.code == Code::Gpt2 {
            output = output.dropout(self.dropout(layer.block.residual_dropout));
        }
        Mixed { output, weights }
    }

    fn projected(&self, layer: &BoundLayer<'a>, attention: &Attention, x: &Tensor<'a>) -> Heads<'a> {
        let norms = attention.qk_norm.as_ref();
        match &attention.projection {
            Projection::Separate { q, k, v } => {
                let make = |spec, norm: Option<&Norm>| {
                    let projected = x.through(&layer.linear(spec));
                    match norm {
                        None => projected.to_heads(),
                        Some(norm) => projected.split_heads().normed(&layer.norm(norm)).heads_first(),
                    }
                };
                if self.code == Code::Opt {
                    let q = {
                        let projected = x.through(&layer.linear(q));
                        projected.scale()
                    };
                    let q = q.to_heads();
                    let (k, v) = (x.through(&layer.linear(k)), x.through(&layer.linear(v)));
                    return Heads { q, k: k.to_heads(), v: v.to_heads() };
                }
                let q = make(q, norms.map(|norms| &norms.q));
                let k = make(k, norms.map(|norms| &norms.k));
                let v = make(v, None);
                Heads { q, k, v }
            }
            // refused by `support`
            Projection::KeysAreValues { q, .. } | Projection::QueriesOnly(q) => {
                let q = x.through(&layer.linear(q)).to_heads();
                Heads { k: q.clone(), v: q.clone(), q }
            }
            Projection::Fused(linear) => {
                let whole = x.through(&layer.linear(linear));
                let tokens = self.scenario.tokens();
                let q = tokens.saturating_mul(attention.heads).saturating_mul(attention.head_dim);
                let kv = tokens.saturating_mul(attention.kv_heads).saturating_mul(attention.head_dim);
                match (self.code, attention.rotary) {
                    (Code::GptNeox, _) => {
                        let whole = whole.to_heads();
                        let [q, k, v] = whole.split([q, kv, kv]);
                        Heads { q, k, v }
                    }
                    (_, Rotary::Partial { .. }) => {
                        let [q, k, v] = [q, kv, kv].map(|numel| whole.slice(numel));
                        Heads { q: q.to_heads(), k: k.to_heads(), v: v.to_heads() }
                    }
                    _ => {
                        let [q, k, v] = whole.split([q, kv, kv]);
                        let (k, v) = (k.to_heads(), v.to_heads());
                        Heads { q: q.to_heads(), k, v }
                    }
                }
            }
        }
    }

    /// `past_key_values.update(…)` on an empty cache: keys and values are copied, and the copies outlive the layer. Models
    /// switch the cache off under gradient checkpointing.
    pub(super) fn remember(&self, heads: &mut Heads<'a>) {
        let fills = self.scenario.training_loop.fills_cache
            && self.scenario.checkpointing == Checkpointing::Off
            && self.architecture.head.objective == Objective::CausalLm;
        if !fills {
            return;
        }
        let [k, v] = [&heads.k, &heads.v].map(|new| new.cat(&new.slice(0).detach()));
        self.cache.borrow_mut().extend([k.clone(), v.clone()]);
        heads.k = k;
        heads.v = v;
    }

    pub(super) fn scores(&self, attention: &Attention, kernel: Kernel, kv_heads: u64) -> Scores {
        Scores {
            kernel,
            batch: self.scenario.batch,
            heads: attention.heads,
            kv_heads,
            sequence: self.scenario.sequence,
            head_dim: attention.head_dim,
            enable_gqa: self.code != Code::Falcon,
        }
    }

    /// The attention interface: SDPA, or the models' `eager_attention_forward`.
    fn attend(&self, attention: &Attention, heads: &Heads<'a>, mask: Option<&Tensor<'a>>) -> Mixed<'a> {
        if self.is_eager() {
            self.eager(attention, heads, mask)
        } else {
            Mixed { output: self.sdpa(attention, heads, mask), weights: None }
        }
    }

    /// integrations/sdpa_attention.py: grouped heads are repeated where a mask (or a large head) rules `enable_gqa` out.
    fn sdpa(&self, attention: &Attention, heads: &Heads<'a>, mask: Option<&Tensor<'a>>) -> Tensor<'a> {
        let groups = attention.heads / attention.kv_heads.max(1);
        let repeats = groups > 1 && (mask.is_some() || attention.head_dim > 256);
        let (k, v, kv_heads) = if repeats {
            (heads.k.repeat_heads(groups), heads.v.repeat_heads(groups), attention.heads)
        } else {
            (heads.k.clone(), heads.v.clone(), attention.kv_heads)
        };
        let q = &heads.q;
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
    fn eager(&self, attention: &Attention, heads: &Heads<'a>, mask: Option<&Tensor<'a>>) -> Mixed<'a> {
        let machine = self.machine;
        let batch = self.scenario.batch;
        let groups = attention.heads / attention.kv_heads.max(1);
        let scores = self.scores(attention, Kernel::Eager, attention.kv_heads);
        let q = &heads.q;
        let k = heads.k.repeat_heads(groups);
        let v = heads.v.repeat_heads(groups);
        let mut weights = {
            let shape = Product { numel: scores.numel(), batch, groups: 1, transposed: true };
            let product = machine.product(q, &k, shape, self.autocast);
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
        weights = match self.code {
            Code::Bert => weights.softmax(),
            Code::Gpt2 => {
                weights = weights.softmax();
                weights.to(v.value.dtype)
            }
            Code::Llama | Code::GptNeox | Code::Opt | Code::Bloom | Code::Falcon | Code::Phi | Code::Qwen => {
                let float = weights.softmax_float();
                float.to(q.value.dtype)
            }
        };
        weights = weights.dropout(self.dropout(attention.dropout));
        let shape = Product { numel: q.value.numel, batch, groups: 1, transposed: false };
        let output = machine.product(&weights, &v, shape, self.autocast);
        Mixed { output: output.to_tokens(), weights: Some(weights) }
    }

    /// Puts positions into queries and keys; returns what the code keeps of the old ones until it returns.
    fn position(
        &self,
        attention: &Attention,
        heads: &mut Heads<'a>,
        cos: &Tensor<'a>,
        sin: &Tensor<'a>,
    ) -> Option<[Tensor<'a>; 4]> {
        let each = |turn: &dyn Fn(&Tensor<'a>) -> Tensor<'a>, heads: &mut Heads<'a>| {
            let (q, k) = (turn(&heads.q), turn(&heads.k));
            heads.q = q;
            heads.k = k;
        };
        match attention.rotary {
            Rotary::None | Rotary::Alibi => {}
            Rotary::Full | Rotary::Partial { .. } if self.scenario.stack == Stack::Liger => {
                // the kernel wants queries and keys in one piece
                let fused = matches!(attention.projection, Projection::Fused(_));
                each(&|x| if fused { x.copied() } else { x.clone() }.liger_turned(cos, sin), heads);
            }
            Rotary::Full => each(&|x| x.rotated(cos, sin), heads),
            Rotary::Partial { dim } => {
                // `x[..., :dim]` and `x[..., dim:]` of both first
                let [q, k] = [&heads.q, &heads.k].map(|x| {
                    let front = x.value.numel / attention.head_dim.max(1) * dim;
                    [x.slice(front), x.slice(x.value.numel.saturating_sub(front))]
                });
                let ([q_front, q_rest], [k_front, k_rest]) = (q, k);
                match self.code {
                    Code::Phi => {
                        let (q_turned, k_turned) = (q_front.rotated(cos, sin), k_front.rotated(cos, sin));
                        drop((q_front, k_front));
                        heads.q = q_turned.cat(&q_rest);
                        heads.k = k_turned.cat(&k_rest);
                        return Some([q_turned, q_rest, k_turned, k_rest]);
                    }
                    Code::GptNeox => {
                        let (q_turned, k_turned) = (q_front.rotated(cos, sin), k_front.rotated(cos, sin));
                        heads.q = q_turned.cat(&q_rest);
                        drop(q_turned);
                        heads.k = k_turned.cat(&k_rest);
                    }
                    Code::Llama
                    | Code::Gpt2
                    | Code::Opt
                    | Code::Bloom
                    | Code::Falcon
                    | Code::Bert
                    | Code::Qwen => {
                        let whole = {
                            let turned = q_front.rotated(cos, sin);
                            turned.cat(&q_rest)
                        };
                        heads.k = {
                            let turned = k_front.rotated(cos, sin);
                            turned.cat(&k_rest)
                        };
                        heads.q = whole;
                    }
                }
            }
            Rotary::Interleaved { dim } => {
                each(&|x| x.partly_rotated(x.value.numel / attention.head_dim.max(1) * dim, cos, sin), heads)
            }
            Rotary::Float32 => each(
                &|x| {
                    let float = x.to(crate::dtype::Dtype::F32);
                    float.rotated(cos, sin).to(x.value.dtype)
                },
                heads,
            ),
            Rotary::Complex => each(
                &|x| {
                    let float = x.to(crate::dtype::Dtype::F32);
                    float.mul_constant(cos).to(x.value.dtype)
                },
                heads,
            ),
            Rotary::Halves => each(&|x| x.rotated_by_halves(cos, sin), heads),
        }
        None
    }
}

impl<'m> Tensor<'m> {
    /// `cat(a * cos - b * sin, b * cos + a * sin)` of the two halves.
    fn rotated_by_halves(&self, cos: &Tensor<'m>, sin: &Tensor<'m>) -> Tensor<'m> {
        let half = self.value.numel / 2;
        let [a, b] = self.split([half, half]);
        let first = a.mul_constant(cos).add(&b.mul_constant(sin));
        let second = b.mul_constant(cos).add(&a.mul_constant(sin));
        first.cat(&second)
    }

    /// `x * cos + rotate_half(x) * sin`.
    pub(super) fn rotated(&self, cos: &Tensor<'m>, sin: &Tensor<'m>) -> Tensor<'m> {
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
