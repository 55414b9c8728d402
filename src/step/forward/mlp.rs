//! Feed-forward networks.

use super::stacks::liger;
use super::{BoundLayer, Pass};
use crate::model::blocks::{Activation, FeedForward, Mlp};
use crate::step::ops::linear::Layer;
use crate::step::params::ParamId;
use crate::step::tensor::Tensor;

impl<'a> Pass<'_, 'a> {
    pub(super) fn mlp(&self, layer: &BoundLayer<'a>, mlp: &Mlp, x: &Tensor<'a>) -> Tensor<'a> {
        match mlp {
            Mlp::Gated { gate, up, down, act }
                if self.fuses_adapted_mlp(&[gate, up, down].map(|spec| layer.linear(spec)), *act) =>
            {
                x.fused_mlp([gate, up, down].map(|spec| layer.linear(spec)))
            }
            Mlp::Gated { gate, up, down, act } if self.fuses(*act) => {
                let product = {
                    let gate = x.through(&layer.linear(gate));
                    let up = x.through(&layer.linear(up));
                    gate.liger_gated(&up)
                };
                product.through(&layer.linear(down))
            }
            Mlp::GatedFused { gate_up, down, act } if self.fuses(*act) => {
                let both = x.through(&layer.linear(gate_up));
                let half = both.value.numel / 2;
                let [gate, up] = both.split([half, half]);
                drop(both);
                // the kernel wants each of them contiguous; what they were cut out of has a variable to the end
                let product = gate.copied().liger_gated(&up.copied());
                let output = product.through(&layer.linear(down));
                drop(product);
                drop((gate, up));
                output
            }
            Mlp::Gated { gate, up, down, act } => {
                let layers = [gate, up, down].map(|spec| layer.linear(spec));
                self.gated(x, layers.each_ref(), *act, &layer.params)
            }
            Mlp::GatedFused { gate_up, down, act } => {
                let both = x.through(&layer.linear(gate_up));
                let half = both.value.numel / 2;
                let [gate, up] = both.split([half, half]);
                drop(both);
                let product = {
                    let active = gate.activated(*act, &layer.params);
                    up.mul(&active)
                };
                drop(up);
                product.through(&layer.linear(down))
            }
            Mlp::Plain { up, down, act } => {
                let mut hidden = x.through(&layer.linear(up));
                hidden = hidden.activated(*act, &layer.params);
                hidden.through(&layer.linear(down))
            }
        }
    }

    /// `down_proj(act_fn(gate_proj(x)) * up_proj(x))`.
    pub(super) fn gated(
        &self,
        x: &Tensor<'a>,
        [gate, up, down]: [&Layer; 3],
        act: Activation,
        params: &[(&'static str, ParamId)],
    ) -> Tensor<'a> {
        let product = {
            let active = {
                let gated = x.through(gate);
                gated.activated(act, params)
            };
            let up = x.through(up);
            active.into_product(up)
        };
        product.through(down)
    }

    fn fuses(&self, act: Activation) -> bool {
        liger::patched(self.member, self.architecture).is_some_and(|patched| patched.gates)
            && liger::fuses(act)
    }

    /// `x = fc1(x)`, `x = activation(x)`, `x = fc2(x)` in the layer's own code: each result replaces its argument.
    pub(super) fn mlp_in_place(&self, layer: &BoundLayer<'a>, x: Tensor<'a>) -> Tensor<'a> {
        match &layer.block.ffn {
            FeedForward::Dense(Mlp::Plain { up, down, act }) => {
                let mut hidden = x.through(&layer.linear(up));
                drop(x);
                hidden = hidden.activated(*act, &layer.params);
                hidden.through(&layer.linear(down))
            }
            FeedForward::Dense(_) | FeedForward::Moe(_) | FeedForward::None => self.feed_forward(layer, &x),
        }
    }

    /// The same where the caller keeps the activation until it is done with what comes of it (bert, bloom): the
    /// activation and the result.
    pub(super) fn mlp_kept(
        &self,
        layer: &BoundLayer<'a>,
        x: &Tensor<'a>,
    ) -> (Option<Tensor<'a>>, Tensor<'a>) {
        match &layer.block.ffn {
            FeedForward::Dense(Mlp::Plain { up, down, act }) => {
                let active = {
                    let hidden = x.through(&layer.linear(up));
                    hidden.activated(*act, &layer.params)
                };
                let output = active.through(&layer.linear(down));
                (Some(active), output)
            }
            FeedForward::Dense(_) | FeedForward::Moe(_) | FeedForward::None => {
                (None, self.feed_forward(layer, x))
            }
        }
    }
}
