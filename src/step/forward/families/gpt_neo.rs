//! models/gpt_neo/modeling_gpt_neo.py.

use crate::dtype::Dtype;
use crate::model::blocks::Attention;
use crate::step::forward::inputs::Shared;
use crate::step::forward::layer::Mixed;
use crate::step::forward::self_attention::Heads;
use crate::step::forward::{BoundLayer, Pass};
use crate::step::ops::matmul::{Product, Second};
use crate::step::tensor::Tensor;
use crate::step::what::torch;

impl<'a> Pass<'_, 'a> {
    /// `GPTNeoSelfAttention`: written out in float32, with a mask of its own under the model's.
    pub(in crate::step::forward) fn neo_attention(
        &self,
        layer: &BoundLayer<'a>,
        attention: &Attention,
        x: &Tensor<'a>,
        shared: &Shared<Tensor<'a>>,
    ) -> Mixed<'a> {
        let mut heads = self.projected(layer, attention, x);
        self.remember(&mut heads, attention.window);
        let Heads { q, k, v } = heads;
        let batch = self.batch.sequences;
        let scores = (q.value.numel / attention.head_dim.max(1)).saturating_mul(self.batch.length);
        let (context, weights) = {
            let (query, key) = (q.to(Dtype::F32), k.to(Dtype::F32));
            let shape = Product { numel: scores, batch, groups: 1, second: Second::Keys };
            let mut weights = self.machine.product(&query, &key, shape, self.autocast);
            weights = {
                let lowest = self.constant(1, weights.value.dtype, &torch::LOWEST);
                // the layer's own mask is a buffer
                let masked = weights.where_not();
                drop(lowest);
                masked
            };
            if let Some(mask) = &shared.full {
                weights = weights.add_row(mask);
            }
            weights = self.probabilities(|| weights.softmax());
            weights = self.probabilities(|| weights.to(v.value.dtype));
            weights = self.probabilities(|| weights.dropout(self.attention_dropout(attention.dropout)));
            let shape = Product { numel: q.value.numel, second: Second::Plain, ..shape };
            let context = self.machine.product(&weights, &v, shape, self.autocast);
            drop((query, key));
            (context, weights)
        };
        let mut output = context.to_tokens();
        drop(context);
        output = output.through(&layer.linear(&attention.output));
        output = output.dropout(self.residual_dropout(layer));
        drop((q, k, v));
        Mixed { output, weights: Some(weights) }
    }
}
