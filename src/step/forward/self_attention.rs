//! Attention modules: projections, positions, the kernel, the output projection.

use super::inputs::Seen;
use super::layer::Mixed;
use super::{BoundLayer, Pass, Shared};
use crate::model::blocks::{Attention, Linear, Norm, Projection, QkNorm, QueryScale, Rotary};
use crate::model::modeling::{Code, HeadNorms};
use crate::scenario::AttentionKernel;
use crate::step::ops::attention::{Arguments, Choice, Kernel, Scores, scaled_dot_product};
use crate::step::ops::matmul::{Product, Second};
use crate::step::params::ParamId;
use crate::step::tensor::Tensor;
use crate::step::what::{roles, torch};

/// Queries, keys and values shaped by heads.
pub(super) struct Heads<'m> {
    pub q: Tensor<'m>,
    pub k: Tensor<'m>,
    pub v: Tensor<'m>,
}

impl<'a> Pass<'_, 'a> {
    pub(super) fn attention(
        &self,
        layer: &BoundLayer<'a>,
        attention: &Attention,
        x: &Tensor<'a>,
        shared: &Shared<Tensor<'a>>,
    ) -> Mixed<'a> {
        match self.modeling.code {
            Code::Falcon => {
                if let Projection::Fused(qkv) = &attention.projection {
                    return self.falcon_attention(layer, (attention, qkv), x, shared);
                }
            }
            Code::GptNeo => return self.neo_attention(layer, attention, x, shared),
            Code::GptJ => return self.gptj_attention(layer, attention, x, shared),
            Code::Deberta => return self.deberta_attention(layer, attention, x, shared),
            Code::OpenAiGpt => {
                if let Projection::Fused(qkv) = &attention.projection {
                    return self.openai_gpt_attention(layer, (attention, qkv), x, shared);
                }
            }
            Code::BioGpt => {
                let (output, weights) =
                    self.bart_attention(layer, attention, (x, None), shared.full.as_ref());
                return Mixed { output, weights };
            }
            Code::Gemma4 => return self.gemma4_attention(layer, attention, x, shared),
            Code::Mpt => {
                if let Projection::Fused(qkv) = &attention.projection {
                    return self.mpt_attention(layer, (attention, qkv), x, shared);
                }
            }
            Code::Llama
            | Code::StableLm
            | Code::Gpt2
            | Code::GptBigCode
            | Code::GptNeox
            | Code::Opt
            | Code::Bloom
            | Code::Phi
            | Code::Bert
            | Code::Qwen
            | Code::Bart
            | Code::DeepseekSparse
            | Code::ModernBert => {}
        }
        let (mut heads, gate) = if attention.gated {
            self.projected_with_gate(layer, attention, x)
        } else {
            (self.projected(layer, attention, x), None)
        };
        let mut passed = None;
        if let Some((cos, sin)) = shared.rotary(Seen::by_attention(attention)) {
            passed =
                self.machine.serving(&roles::ROTATION, || self.position(attention, &mut heads, cos, sin));
        }
        if attention.query_scale == QueryScale::Plain {
            heads.q = self.machine.serving(&roles::ROTATION, || heads.q.scale());
        }
        if let (HeadNorms::AfterRotary, Some(norms)) = (self.modeling.head_norms, &attention.qk_norm) {
            heads.q = heads.q.normed(&layer.norm(&norms.q));
            heads.k = heads.k.normed(&layer.norm(&norms.k));
        }
        let mut temperatures = None;
        if attention.query_scale == QueryScale::Float {
            let scales = self.temperatures();
            heads.q = self.machine.serving(&roles::ROTATION, || {
                let scaled = heads.q.mul_constant(&scales);
                scaled.to(heads.q.value.dtype)
            });
            temperatures = Some(scales);
        }
        // a variable of the module keeps what a fused projection made, of which keys and values were views
        let fused =
            matches!(attention.projection, Projection::Fused(_)) && !matches!(self.modeling.code, Code::Gpt2);
        let whole = fused.then(|| heads.v.clone());
        self.remember(&mut heads, attention.window);
        let mask = shared.mask(Seen::by_attention(attention));
        let Mixed { mut output, weights } = self.attend(attention, &heads, mask, layer.sinks);
        if self.modeling.code == Code::Bert {
            // the output projection belongs to the module around it
            return Mixed { output, weights };
        }
        if let Some(gate) = &gate {
            output = {
                let open = gate.keeping_output(&torch::SIGMOID);
                output.mul(&open)
            };
        }
        let out = layer.linear(&attention.output);
        output = if self.fuses_adapters(&[out]) { output.fused_out(out) } else { output.through(&out) };
        if matches!(self.modeling.code, Code::Gpt2 | Code::GptBigCode)
            || self.modeling.code == Code::Llama && !self.drops_in_layer(attention)
        {
            output = output.dropout(self.residual_dropout(layer));
        }
        drop(heads);
        drop(temperatures);
        drop(passed);
        drop(whole);
        Mixed { output, weights }
    }

    /// Whether the layer drops elements of what attention returns, when the module is left: phi3's, whose projection is fused; that of
    /// starcoder2 does so itself.
    pub(super) fn drops_in_layer(&self, attention: &Attention) -> bool {
        self.modeling.code == Code::Llama && matches!(attention.projection, Projection::Fused(_))
    }

    pub(super) fn projected(
        &self,
        layer: &BoundLayer<'a>,
        attention: &Attention,
        x: &Tensor<'a>,
    ) -> Heads<'a> {
        let Heads { q, k, v } = self.projections(layer, attention, x);
        let (heads, kv_heads) = (attention.heads, attention.kv_heads);
        Heads { q: q.of_heads(heads), k: k.of_heads(kv_heads), v: v.of_heads(kv_heads) }
    }

    fn projections(&self, layer: &BoundLayer<'a>, attention: &Attention, x: &Tensor<'a>) -> Heads<'a> {
        let norms = attention.qk_norm.as_ref();
        match &attention.projection {
            Projection::Separate { q, k, v } => {
                let make = |spec, norm: Option<&Norm>| {
                    let projected = x.through(&layer.linear(spec));
                    match norm {
                        None => projected.to_heads(),
                        Some(norm) => self.head_normed(layer, norm, &projected.split_heads()).heads_first(),
                    }
                };
                if self.modeling.code == Code::Opt {
                    let q = {
                        let projected = x.through(&layer.linear(q));
                        projected.scale()
                    };
                    let q = q.to_heads();
                    let (k, v) = (x.through(&layer.linear(k)), x.through(&layer.linear(v)));
                    return Heads { q, k: k.to_heads(), v: v.to_heads() };
                }
                if self.fused_adapters() {
                    return self.projections_by_axolotl(layer, norms, [q, k, v], x);
                }
                if attention.clipped {
                    let all = [q, k, v].map(|spec| x.through(&layer.linear(spec)));
                    let limited = all.map(|projected| projected.limited_in_place());
                    let [q, k, v] = limited.map(|limited| limited.to_heads());
                    return Heads { q, k, v };
                }
                if self.modeling.projects_first {
                    let [q, k, v] = [q, k, v].map(|spec| x.through(&layer.linear(spec)));
                    return Heads { q: q.to_heads(), k: k.to_heads(), v: v.to_heads() };
                }
                if self.modeling.head_norms == HeadNorms::AfterRotary {
                    return Heads { q: make(q, None), k: make(k, None), v: make(v, None) };
                }
                if self.modeling.head_norms == HeadNorms::Last {
                    let (mut q, mut k, v) = (make(q, None), make(k, None), make(v, None));
                    if let Some(norms) = norms {
                        q = q.normed(&layer.norm(&norms.q));
                        k = k.normed(&layer.norm(&norms.k));
                    }
                    return Heads { q, k, v };
                }
                let q = make(q, norms.map(|norms| &norms.q));
                let k = make(k, norms.map(|norms| &norms.k));
                let v = make(v, None);
                Heads { q, k, v }
            }
            Projection::KeysAreValues { q, .. } | Projection::QueriesOnly(q) => {
                let x = x.unmodelled("keys and values that are no projections of their own");
                let q = x.through(&layer.linear(q)).to_heads();
                Heads { k: q.clone(), v: q.clone(), q }
            }
            Projection::Fused(linear) => {
                let whole = x.through(&layer.linear(linear));
                let tokens = self.batch.tokens();
                let q = tokens.saturating_mul(attention.heads).saturating_mul(attention.head_dim);
                let kv = tokens.saturating_mul(attention.kv_heads).saturating_mul(attention.head_dim);
                match (self.modeling.code, attention.rotary) {
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

    /// The same where axolotl put its `apply_qkv` in: all three are made before any of them is normed.
    fn projections_by_axolotl(
        &self,
        layer: &BoundLayer<'a>,
        norms: Option<&QkNorm>,
        specs: [&Linear; 3],
        x: &Tensor<'a>,
    ) -> Heads<'a> {
        let layers = specs.map(|spec| layer.linear(spec));
        let [q, k, v] = if self.fuses_adapters(&layers) {
            x.fused_qkv(layers)
        } else {
            layers.map(|layer| x.through(&layer))
        };
        let shaped = |projected: Tensor<'a>, norm: Option<&Norm>| match norm {
            Some(norm) if self.modeling.head_norms != HeadNorms::Last => {
                self.head_normed(layer, norm, &projected.split_heads()).heads_first()
            }
            Some(norm) => projected.to_heads().normed(&layer.norm(norm)),
            None => projected.to_heads(),
        };
        let q = shaped(q, norms.map(|norms| &norms.q));
        let k = shaped(k, norms.map(|norms| &norms.k));
        Heads { q, k, v: v.to_heads() }
    }

    /// The norm of each head; where GPUs have heads each the plan puts a hook on it ("replicated_with_grad_allreduce").
    fn head_normed(&self, layer: &BoundLayer<'a>, norm: &Norm, heads: &Tensor<'a>) -> Tensor<'a> {
        let norm = layer.norm(norm);
        if self.machine.with(|state| state.parallel.parts()) > 1 {
            return heads.through_hooked(|heads| heads.normed(&norm));
        }
        heads.normed(&norm)
    }

    /// `past_key_values.update(…)` on an empty cache: keys and values are copied, and the copies outlive the layer. Models
    /// switch the cache off under gradient checkpointing.
    pub(super) fn remember(&self, heads: &mut Heads<'a>, window: Option<u64>) {
        if let Some(generating) = &self.generating {
            return generating.update(self, heads, window);
        }
        if self.prefix() > 0 {
            return self.join_prefix(heads);
        }
        if !self.fills_cache || !self.caches {
            return;
        }
        // both begin with nothing, of the keys' type
        let nothing = heads.k.slice(0).detach();
        let [k, v] = [&heads.k, &heads.v].map(|new| new.cat(&nothing));
        drop(nothing);
        self.cache.borrow_mut().extend([k.clone(), v.clone()]);
        heads.k = k;
        heads.v = v;
    }

    /// Runs `body`, which makes attention's probabilities.
    pub(super) fn probabilities<R>(&self, body: impl FnOnce() -> R) -> R {
        self.machine.serving(&roles::PROBABILITIES, body)
    }

    pub(super) fn scores(&self, attention: &Attention, kernel: Kernel, kv_heads: u64) -> Scores {
        Scores {
            kernel,
            batch: self.batch.sequences,
            heads: attention.heads,
            kv_heads,
            sequence: self.batch.length,
            keys: self.keys(attention.window),
            head_dim: attention.head_dim,
            value_dim: attention.head_dim,
            enable_gqa: self.modeling.code != Code::Falcon,
            texts: 0,
            dropout: false,
            calls: 1,
            ranks: self.machine.with(|state| state.parallel.contexts()),
            bias: None,
        }
    }

    /// The attention interface: SDPA, or the models' `eager_attention_forward`.
    pub(super) fn attend(
        &self,
        attention: &Attention,
        heads: &Heads<'a>,
        mask: Option<&Tensor<'a>>,
        sinks: Option<ParamId>,
    ) -> Mixed<'a> {
        if self.is_eager() {
            self.eager(attention, heads, mask, sinks)
        } else if self.is_flash_attn() {
            Mixed { output: self.flash_attn(attention, heads), weights: None }
        } else {
            Mixed { output: self.sdpa(attention, heads, mask), weights: None }
        }
    }

    /// integrations/sdpa_attention.py: grouped heads are repeated where a mask (or a large head) rules `enable_gqa` out.
    fn sdpa(&self, attention: &Attention, heads: &Heads<'a>, mask: Option<&Tensor<'a>>) -> Tensor<'a> {
        self.sdpa_of(attention, heads, (mask, self.keys(attention.window)))
    }

    /// The same of so many keys.
    pub(super) fn sdpa_of(
        &self,
        attention: &Attention,
        heads: &Heads<'a>,
        (mask, keys): (Option<&Tensor<'a>>, u64),
    ) -> Tensor<'a> {
        let groups = attention.heads / attention.kv_heads.max(1);
        let repeats = groups > 1 && (mask.is_some() || attention.head_dim > 256);
        let (k, v, kv_heads) = if repeats {
            (repeat_kv(attention, &heads.k), repeat_kv(attention, &heads.v), attention.heads)
        } else {
            (heads.k.clone(), heads.v.clone(), attention.kv_heads)
        };
        let heads = Heads { q: heads.q.clone(), k, v };
        let scores = Scores { keys, ..self.scores(attention, Kernel::Eager, kv_heads) };
        self.kernel_output(scores, &heads, mask, attention.causal, self.attention_dropout(attention.dropout))
    }

    /// `scaled_dot_product_attention` with the kernel that PyTorch picks.
    pub(super) fn kernel_output(
        &self,
        scores: Scores,
        heads: &Heads<'a>,
        mask: Option<&Tensor<'a>>,
        causal: bool,
        dropout: bool,
    ) -> Tensor<'a> {
        let Heads { q, k, v } = heads;
        self.scaled_dot_product(scores, &Arguments { q, k, v, mask, causal, dropout }).to_tokens()
    }

    /// The same before its heads are joined.
    pub(super) fn scaled_dot_product(&self, scores: Scores, given: &Arguments<'_, 'a>) -> Tensor<'a> {
        let kernel = self.kernel(scores, given);
        scaled_dot_product(Scores { kernel, ..scores }, given)
    }

    /// The same interface for latent attention.
    pub(super) fn attend_latent(
        &self,
        scores: Scores,
        heads: &Heads<'a>,
        mask: Option<&Tensor<'a>>,
        dropout: bool,
    ) -> Mixed<'a> {
        if !self.is_eager() {
            let output = self.kernel_output(scores, heads, mask, true, dropout);
            return Mixed { output, weights: None };
        }
        let Heads { q, k, v } = heads;
        let batch = scores.batch;
        let shape = Product { numel: scores.numel(), batch, groups: 1, second: Second::Keys };
        let mut weights = self.machine.serving(&roles::SCORES, || {
            let mut weights = {
                let product = self.machine.product(q, k, shape, self.autocast);
                product.scale()
            };
            if let Some(mask) = mask {
                weights = weights.add_row(mask);
            }
            weights
        });
        weights = self.probabilities(|| {
            weights = {
                let float = weights.softmax_float();
                float.to(q.value.dtype)
            };
            weights.dropout(dropout)
        });
        let shape = Product { numel: v.value.numel, second: Second::Plain, ..shape };
        let output = self.machine.product(&weights, v, shape, self.autocast);
        Mixed { output: output.to_tokens(), weights: Some(weights) }
    }

    /// The models' `eager_attention_forward`.
    fn eager(
        &self,
        attention: &Attention,
        heads: &Heads<'a>,
        mask: Option<&Tensor<'a>>,
        sinks: Option<ParamId>,
    ) -> Mixed<'a> {
        let machine = self.machine;
        let batch = self.batch.sequences;
        let scores = self.scores(attention, Kernel::Eager, attention.kv_heads);
        let q = &heads.q;
        let k = repeat_kv(attention, &heads.k);
        let v = repeat_kv(attention, &heads.v);
        let mut weights = machine.serving(&roles::SCORES, || {
            let mut weights = {
                let shape = Product { numel: scores.numel(), batch, groups: 1, second: Second::Keys };
                let product = machine.product(q, &k, shape, self.autocast);
                product.scale()
            };
            if attention.softcap {
                weights = weights.scale();
                weights = weights.keeping_output(&torch::TANH);
                weights = weights.scale();
            }
            if let Some(mask) = mask {
                weights = weights.add_row(mask);
            }
            weights
        });
        if let Some(sinks) = sinks {
            return self.eager_with_sinks(
                weights,
                sinks,
                [q, &k, &v],
                self.attention_dropout(attention.dropout),
            );
        }
        weights = self.probabilities(|| match self.modeling.code {
            Code::Bert => weights.softmax(),
            Code::Gpt2 => {
                weights = weights.softmax();
                weights.to(v.value.dtype)
            }
            Code::Llama
            | Code::StableLm
            | Code::GptBigCode
            | Code::GptNeo
            | Code::GptNeox
            | Code::GptJ
            | Code::Opt
            | Code::Bloom
            | Code::Falcon
            | Code::Phi
            | Code::ModernBert
            | Code::Qwen
            | Code::Gemma4
            | Code::DeepseekSparse
            | Code::OpenAiGpt
            | Code::BioGpt
            | Code::Deberta
            | Code::Bart
            | Code::Mpt => {
                let float = weights.softmax_float();
                float.to(q.value.dtype)
            }
        });
        weights = self.probabilities(|| weights.dropout(self.attention_dropout(attention.dropout)));
        let shape = Product { numel: q.value.numel, batch, groups: 1, second: Second::Plain };
        let output = {
            let output = machine.product(&weights, &v, shape, self.autocast);
            output.to_tokens()
        };
        drop(k);
        drop(v);
        Mixed { output, weights: Some(weights) }
    }

    /// The kernel that runs for such attention.
    pub(super) fn kernel(&self, scores: Scores, given: &Arguments<'_, 'a>) -> Kernel {
        self.wanted_kernel(self.member.attention, scores, given)
    }

    /// The same where that one is asked for.
    pub(super) fn wanted_kernel(
        &self,
        wanted: AttentionKernel,
        scores: Scores,
        given: &Arguments<'_, 'a>,
    ) -> Kernel {
        let Arguments { q, k, v, mask, dropout, .. } = *given;
        Choice {
            wanted,
            dtype: self.autocast.unwrap_or(q.value.dtype),
            device: self.device,
            masked: mask.is_some(),
            // t5's bias lies token after token
            strided_mask: mask.is_some_and(|mask| mask.value.shape != mask.value.layout),
            grouped: scores.kv_heads != scores.heads,
            enable_gqa: scores.enable_gqa,
            head_dim: scores.head_dim,
            value_dim: scores.value_dim,
            sequence: scores.sequence,
            keys: scores.keys,
            dropout,
            recorded: self.machine.with(|state| state.graph.is_recorded())
                && [q, k, v].into_iter().any(|tensor| tensor.value.requires_grad()),
        }
        .kernel()
    }
}

/// `repeat_kv`: of one head for all it is a view.
fn repeat_kv<'m>(attention: &Attention, x: &Tensor<'m>) -> Tensor<'m> {
    let groups = attention.heads / attention.kv_heads.max(1);
    if attention.kv_heads == 1 && groups > 1 { x.expanded_heads(groups) } else { x.repeat_heads(groups) }
}
