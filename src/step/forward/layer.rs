//! One layer: norms, residuals, the token mixer and the feed-forward part.

use super::{BoundLayer, Model, Shared};
use crate::model::blocks::{AttentionCode, FeedForward, Mixer, Wiring};
use crate::step::tensor::Tensor;

impl<'a> Model<'a> {
    /// A decoder layer's `forward(hidden_states)`.
    pub(super) fn layer(
        &self,
        layer: &BoundLayer<'a>,
        hidden: &Tensor<'a>,
        shared: &Shared<'a>,
    ) -> Tensor<'a> {
        match &layer.block.wiring {
            Wiring::PreNorm { attention, mlp } => {
                let residual = hidden;
                let mut hidden = hidden.normed(&layer.norm(attention));
                let mixed = self.mixer(layer, &hidden, shared);
                hidden = residual.add(&mixed);
                // gpt2 names its attention's output and so keeps it to the end of the layer
                let _mixed = self.is_gpt2(layer).then(|| mixed.clone());
                drop(mixed);
                let residual = hidden.clone();
                hidden = hidden.normed(&layer.norm(mlp));
                hidden = self.feed_forward(layer, &hidden);
                residual.add(&hidden)
            }
            Wiring::Sandwich { attention, attention_post, mlp, mlp_post } => {
                let residual = hidden;
                let mut hidden = hidden.normed(&layer.norm(attention));
                hidden = self.mixer(layer, &hidden, shared);
                hidden = hidden.normed(&layer.norm(attention_post));
                hidden = residual.add(&hidden);
                let residual = hidden.clone();
                hidden = hidden.normed(&layer.norm(mlp));
                hidden = self.feed_forward(layer, &hidden);
                hidden = hidden.normed(&layer.norm(mlp_post));
                residual.add(&hidden)
            }
            Wiring::PostNorm { attention, mlp } => {
                let mixed = self.mixer(layer, hidden, shared);
                let mut hidden = hidden.add(&mixed);
                drop(mixed);
                hidden = hidden.normed(&layer.norm(attention));
                let mut fed = self.feed_forward(layer, &hidden);
                fed = hidden.add(&fed);
                fed.normed(&layer.norm(mlp))
            }
            Wiring::OutputNorm { attention, mlp } => {
                let residual = hidden;
                let mut hidden = self.mixer(layer, hidden, shared);
                hidden = hidden.normed(&layer.norm(attention));
                hidden = residual.add(&hidden);
                let residual = hidden.clone();
                hidden = self.feed_forward(layer, &hidden);
                hidden = hidden.normed(&layer.norm(mlp));
                residual.add(&hidden)
            }
            Wiring::Parallel { attention, mlp } => {
                let residual = hidden;
                let normed = hidden.normed(&layer.norm(attention));
                let mixed = self.mixer(layer, &normed, shared);
                let fed = match mlp {
                    None => self.feed_forward(layer, &normed),
                    Some(norm) => {
                        let own = hidden.normed(&layer.norm(norm));
                        self.feed_forward(layer, &own)
                    }
                };
                let sum = mixed.add(&fed);
                sum.add(residual)
            }
            Wiring::Single(norm) => {
                let mixed = self.mixer(layer, &hidden.normed(&layer.norm(norm)), shared);
                hidden.add(&self.feed_forward(layer, &mixed))
            }
        }
    }

    fn is_gpt2(&self, layer: &BoundLayer<'a>) -> bool {
        layer.block.mixer.attention().is_some_and(|attention| attention.code == AttentionCode::Gpt2)
    }

    fn mixer(&self, layer: &BoundLayer<'a>, hidden: &Tensor<'a>, shared: &Shared<'a>) -> Tensor<'a> {
        match &layer.block.mixer {
            // refused by `support`
            Mixer::Latent(_)
            | Mixer::Cross(_)
            | Mixer::StateSpace(_)
            | Mixer::DeltaNet(_)
            | Mixer::ShortConv(_)
            | Mixer::Module(_)
            | Mixer::None => hidden.clone(),
            Mixer::Attention(attention) => {
                self.machine.within("self_attn", || self.attention(layer, attention, hidden, shared))
            }
        }
    }

    fn feed_forward(&self, layer: &BoundLayer<'a>, hidden: &Tensor<'a>) -> Tensor<'a> {
        self.machine.within("mlp", || match &layer.block.ffn {
            FeedForward::Dense(mlp) => self.mlp(layer, mlp, hidden),
            FeedForward::Moe(moe) => self.experts(layer, moe, hidden),
            FeedForward::None => hidden.clone(),
        })
    }
}
