//! Norms of queries' and keys' heads.
//!
//! Source: megatron/core/transformer/attention.py of Megatron-core 0.16.1. Compared with the allocator's trace of that code.

use crate::model::blocks::Attention;
use crate::step::forward::{BoundLayer, Pass};
use crate::step::ops::norm::NormLayer;
use crate::step::tensor::Tensor;
use crate::step::what::roles;

impl<'a> Pass<'_, 'a> {
    /// `q_layernorm` and `k_layernorm` of Qwen3's attention, before positions. Heads lie between others and are copied for the kernel, except
    /// queries that were `copied`.
    pub(super) fn heads_normed(
        &self,
        layer: &BoundLayer<'a>,
        attention: &Attention,
        [query, key]: [Tensor<'a>; 2],
        copied: bool,
    ) -> [Tensor<'a>; 2] {
        let Some(norms) = &attention.qk_norm else { return [query, key] };
        let normed = |x: Tensor<'a>, norm: &NormLayer, between: bool| {
            self.machine.within(norm.name, &roles::NORM, || {
                if !self.has_transformer_engine() {
                    return x.fused_root_mean_square(norm, between);
                }
                let x = if between { x.dense_copy() } else { x };
                x.te_normed(norm)
            })
        };
        let query = normed(query, &layer.norm(&norms.q), !copied);
        [query, normed(key, &layer.norm(&norms.k), true)]
    }
}
