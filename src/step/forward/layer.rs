//! One layer: norms, residuals, the token mixer and the feed-forward part.

use super::{BoundLayer, Pass, Shared};
use crate::model::blocks::{FeedForward, Mixer, Norm, Wiring};
use crate::model::modeling::Code;
use crate::scenario::Compile;
use crate::scenario::software::ModelCode;
use crate::step::parallel::{Container, Module};
use crate::step::tensor::Tensor;
use crate::step::what::roles;

/// What a token mixer returns.
pub(super) struct Mixed<'m> {
    pub output: Tensor<'m>,
    /// The attention probabilities, where Python computes them: the layer's code keeps them in a variable.
    pub weights: Option<Tensor<'m>>,
}

impl<'m> From<Tensor<'m>> for Mixed<'m> {
    fn from(output: Tensor<'m>) -> Mixed<'m> {
        Mixed { output, weights: None }
    }
}

impl<'a> Pass<'_, 'a> {
    /// `layer(hidden_states)`: its forward, with the hooks of a unit whose parameters are sharded around it.
    pub(super) fn layer(
        &self,
        layer: &BoundLayer<'a>,
        hidden: &Tensor<'a>,
        shared: &Shared<Tensor<'a>>,
    ) -> Tensor<'a> {
        self.within_hooks(layer, hidden, |hidden| self.layer_forward(layer, hidden, shared))
    }

    /// What an engine's hooks around a layer are around.
    pub(super) fn within_hooks(
        &self,
        layer: &BoundLayer<'a>,
        hidden: &Tensor<'a>,
        body: impl FnOnce(&Tensor<'a>) -> Tensor<'a>,
    ) -> Tensor<'a> {
        self.machine.enter_layer(layer.number);
        let output = if self.shards {
            self.machine.unit(layer.number, hidden, body)
        } else {
            self.machine.module(Module::Container(Container::Layer, layer.number as u32), hidden, body)
        };
        self.machine.leave_layer();
        output
    }

    /// A decoder layer's `forward(hidden_states)`.
    pub(super) fn layer_forward(
        &self,
        layer: &BoundLayer<'a>,
        hidden: &Tensor<'a>,
        shared: &Shared<Tensor<'a>>,
    ) -> Tensor<'a> {
        match self.member.software().model {
            ModelCode::Transformers => self.transformers_layer(layer, hidden, shared),
            ModelCode::Litgpt => self.litgpt_layer(layer, hidden, shared),
            ModelCode::Torchtune => self.torchtune_layer(layer, hidden),
            ModelCode::Torchtitan => self.torchtitan_layer(layer, hidden),
            ModelCode::Unsloth => self.unsloth_layer(layer, hidden),
            ModelCode::Megatron => hidden.unmodelled("Megatron-core outside of its schedules"),
        }
    }

    fn transformers_layer(
        &self,
        layer: &BoundLayer<'a>,
        hidden: &Tensor<'a>,
        shared: &Shared<Tensor<'a>>,
    ) -> Tensor<'a> {
        if self.member.compile == Compile::Layers {
            return self.compiled_layer(layer, hidden, shared);
        }
        if let Mixer::Cross(attention) = &layer.block.mixer {
            return self.crossing_layer(layer, attention, hidden, shared);
        }
        match &layer.block.wiring {
            Wiring::PreNorm { attention, mlp } => match self.modeling.code {
                Code::Gpt2 | Code::GptBigCode | Code::GptNeo => {
                    self.gpt2_layer(layer, [attention, mlp], hidden, shared)
                }
                Code::Mpt => self.mpt_layer(layer, [attention, mlp], hidden, shared),
                Code::BioGpt => self.biogpt_layer(layer, [attention, mlp], hidden, shared),
                Code::GptNeox => self.neox_layer(layer, [attention, mlp], hidden, shared),
                Code::Bloom => self.bloom_layer(layer, [attention, mlp], hidden, shared),
                Code::Falcon => self.falcon_layer(layer, [attention, mlp], hidden, shared),
                Code::Qwen => self.qwen_layer(layer, hidden, shared),
                Code::StableLm => self.stablelm_layer(layer, [attention, mlp], hidden, shared),
                Code::Llama
                | Code::GptJ
                | Code::Opt
                | Code::Phi
                | Code::Bert
                | Code::ModernBert
                | Code::Bart
                | Code::DeepseekSparse
                | Code::OpenAiGpt
                | Code::Deberta
                | Code::Gemma4 => {
                    let normed = hidden.normed(&layer.norm(attention));
                    let (mut sum, held) = self.mixed_residual(layer, normed, hidden, shared);
                    if self.modeling.code == Code::Opt {
                        sum = sum.flattened();
                    }
                    let normed = sum.normed(&layer.norm(mlp));
                    let output = self.fed_residual(layer, normed, sum);
                    drop(held);
                    drop(self.routed.take());
                    if self.modeling.code == Code::Opt { output.unflattened() } else { output }
                }
            },
            Wiring::Sandwich { attention, attention_post, mlp, mlp_post } => {
                if self.modeling.code == Code::Gemma4 {
                    let norms = [attention, attention_post, mlp, mlp_post];
                    return self.gemma4_layer(layer, norms, hidden, shared);
                }
                let mut mixed = {
                    let normed = hidden.normed(&layer.norm(attention));
                    self.mixer(layer, &normed, shared)
                };
                let _weights = mixed.weights;
                mixed.output = mixed.output.normed(&layer.norm(attention_post));
                let sum = {
                    let scaled = self.branch(&mixed.output);
                    hidden.add(&scaled)
                };
                drop(mixed.output);
                let normed = sum.normed(&layer.norm(mlp));
                let mut fed = self.feed_forward(layer, &normed);
                drop(normed);
                fed = fed.normed(&layer.norm(mlp_post));
                let output = {
                    let scaled = self.branch(&fed);
                    sum.add(&scaled)
                };
                drop(fed);
                drop(sum);
                output
            }
            Wiring::OutputNorm { attention, mlp } => {
                let mut mixed = self.mixer(layer, hidden, shared);
                let _weights = mixed.weights;
                mixed.output = mixed.output.normed(&layer.norm(attention));
                let sum = hidden.add(&mixed.output);
                drop(mixed.output);
                let mut fed = self.feed_forward(layer, &sum);
                fed = fed.normed(&layer.norm(mlp));
                let output = sum.add(&fed);
                drop(fed);
                drop(sum);
                output
            }
            Wiring::Single { norm, wide } => self.single_layer(layer, (norm, *wide), hidden, shared),
            Wiring::PostNorm { attention, mlp } if self.modeling.code == Code::OpenAiGpt => {
                self.openai_gpt_layer(layer, [attention, mlp], hidden, shared)
            }
            Wiring::PostNorm { attention, mlp } => {
                self.post_norm_layer(layer, [attention, mlp], hidden, shared)
            }
            Wiring::Parallel { attention, mlp } => {
                self.parallel_layer(layer, attention, mlp.as_ref(), hidden, shared)
            }
        }
    }

    /// `hidden, _ = self_attn(normed)`, `hidden = residual + hidden`; with what the layer's variables hold to its end: the weights,
    /// and, where it has a variable of its own, the attention's output.
    fn mixed_residual(
        &self,
        layer: &BoundLayer<'a>,
        normed: Tensor<'a>,
        residual: &Tensor<'a>,
        shared: &Shared<Tensor<'a>>,
    ) -> (Tensor<'a>, [Option<Tensor<'a>>; 2]) {
        let Mixed { mut output, weights } = self.mixer(layer, &normed, shared);
        drop(normed);
        let drops = layer.block.mixer.attention().is_some_and(|attention| self.drops_in_layer(attention));
        if drops || self.modeling.code == Code::Opt {
            output = output.dropout(self.residual_dropout(layer));
        }
        let scaled = self.branch(&output);
        let sum = residual.add(&scaled);
        (sum, [weights, self.modeling.keeps_mixed.then_some(output)])
    }

    /// `hidden = mlp(normed)`, `hidden = residual + hidden`.
    fn fed_residual(&self, layer: &BoundLayer<'a>, normed: Tensor<'a>, residual: Tensor<'a>) -> Tensor<'a> {
        let (fed, _chosen) = match self.modeling.code {
            Code::Opt => {
                let fed = self.mlp_in_place(layer, normed);
                (fed.dropout(self.residual_dropout(layer)), None)
            }
            Code::Llama
            | Code::StableLm
            | Code::Gpt2
            | Code::GptBigCode
            | Code::GptNeo
            | Code::GptNeox
            | Code::GptJ
            | Code::Bloom
            | Code::Falcon
            | Code::Phi
            | Code::Mpt
            | Code::Gemma4
            | Code::DeepseekSparse
            | Code::OpenAiGpt
            | Code::BioGpt
            | Code::Deberta
            | Code::Bart
            | Code::ModernBert
            | Code::Bert
            | Code::Qwen => {
                let fed = self.feed_forward(layer, &normed);
                let (fed, chosen) = self.with_shared(layer, fed, &normed);
                let fed = fed.dropout(self.residual_dropout(layer));
                drop(normed);
                (fed, chosen)
            }
        };
        let output = {
            let scaled = self.branch(&fed);
            residual.add(&scaled)
        };
        drop(fed);
        drop(residual);
        output
    }

    /// What is added to the residual: granite and hyperclovax multiply it first.
    fn branch(&self, output: &Tensor<'a>) -> Tensor<'a> {
        if self.modeling.scales_branches { output.scale() } else { output.clone() }
    }

    /// models/gpt2 `GPT2Block`: the normed states live until the residual sum, the attention's output to the end.
    fn gpt2_layer(
        &self,
        layer: &BoundLayer<'a>,
        [first, second]: [&Norm; 2],
        hidden: &Tensor<'a>,
        shared: &Shared<Tensor<'a>>,
    ) -> Tensor<'a> {
        let normed = hidden.normed(&layer.norm(first));
        let mixed = self.mixer(layer, &normed, shared);
        let sum = mixed.output.add(hidden);
        drop(normed);
        let normed = sum.normed(&layer.norm(second));
        let mut fed = self.feed_forward(layer, &normed);
        fed = fed.dropout(self.residual_dropout(layer));
        let output = sum.add(&fed);
        drop(normed);
        drop(sum);
        let Mixed { output: attended, weights } = mixed;
        drop(attended);
        drop(fed);
        if self.modeling.code == Code::GptNeo {
            self.keep_weights(weights);
        }
        output
    }

    /// models/bert `BertLayer`, and opt-350m.
    fn post_norm_layer(
        &self,
        layer: &BoundLayer<'a>,
        [first, second]: [&Norm; 2],
        hidden: &Tensor<'a>,
        shared: &Shared<Tensor<'a>>,
    ) -> Tensor<'a> {
        let drops = self.residual_dropout(layer);
        if self.modeling.code == Code::Opt {
            let (sum, _held) = self.mixed_residual(layer, hidden.clone(), hidden, shared);
            let normed = {
                let normed = sum.normed(&layer.norm(first));
                drop(sum);
                normed.flattened()
            };
            let mut fed = self.mlp_in_place(layer, normed.clone());
            fed = fed.dropout(drops);
            let sum = {
                let sum = normed.add(&fed);
                drop(fed);
                sum.unflattened()
            };
            return sum.normed(&layer.norm(second));
        }
        let Mixed { output: context, weights: _weights } = self.mixer(layer, hidden, shared);
        let attended = {
            let mut projected = match layer.block.mixer.attention() {
                Some(attention) => context.through(&layer.linear(&attention.output)),
                None => context.clone(),
            };
            projected = projected.dropout(drops && self.modeling.attention_output_dropout);
            let sum = projected.add(hidden);
            let normed = sum.normed(&layer.norm(first));
            drop(sum);
            normed
        };
        drop(context);
        let (active, mut fed) =
            self.machine.within("mlp", &roles::FEED_FORWARD, || self.mlp_kept(layer, &attended));
        fed = fed.dropout(drops);
        // distilbert's own block has one variable for all of its feed-forward network
        let active = self.modeling.attention_output_dropout.then_some(active);
        let sum = fed.add(&attended);
        let output = sum.normed(&layer.norm(second));
        drop(sum);
        drop(fed);
        drop(active);
        output
    }

    fn parallel_layer(
        &self,
        layer: &BoundLayer<'a>,
        first: &Norm,
        second: Option<&Norm>,
        hidden: &Tensor<'a>,
        shared: &Shared<Tensor<'a>>,
    ) -> Tensor<'a> {
        let drops = self.residual_dropout(layer);
        let normed = hidden.normed(&layer.norm(first));
        match self.modeling.code {
            // models/gpt_neox: nobody but the attention holds its norm's output
            Code::GptNeox => {
                let Mixed { mut output, weights: _weights } = self.mixer(layer, &normed, shared);
                drop(normed);
                output = output.dropout(drops);
                let mut fed = {
                    let own = second.map(|norm| hidden.normed(&layer.norm(norm)));
                    self.feed_forward(layer, own.as_ref().unwrap_or(hidden))
                };
                fed = fed.dropout(drops);
                let sum = {
                    let both = fed.add(&output);
                    both.add(hidden)
                };
                drop(output);
                drop(fed);
                sum
            }
            // models/falcon: the attention's output is added in place
            Code::Falcon => {
                let own = second.map(|norm| hidden.normed(&layer.norm(norm)));
                let Mixed { output: mixed, weights } = self.mixer(layer, &normed, shared);
                let fed = self.feed_forward(layer, own.as_ref().unwrap_or(&normed));
                let fed = fed.add_in_place(&mixed);
                let output = fed.dropout_add(hidden, drops);
                drop(normed);
                drop(own);
                drop(mixed);
                drop(fed);
                self.keep_weights(weights);
                output
            }
            // models/gptj: dropout is in the halves
            Code::GptJ => {
                let Mixed { output: attended, weights } = self.mixer(layer, &normed, shared);
                let fed = {
                    let fed = self.feed_forward(layer, &normed);
                    fed.dropout(drops)
                };
                let output = {
                    let both = attended.add(&fed);
                    both.add(hidden)
                };
                drop(normed);
                drop((attended, fed));
                self.keep_weights(weights);
                output
            }
            // models/cohere, stablelm: the residual comes first, so that the sums are of its element type
            Code::Llama | Code::StableLm => {
                let Mixed { output: mixed, weights: _weights } = self.mixer(layer, &normed, shared);
                let fed = {
                    let fed = self.feed_forward(layer, &normed);
                    fed.dropout(drops)
                };
                let output = {
                    let both = hidden.add(&mixed);
                    both.add(&fed)
                };
                drop(normed);
                drop((mixed, fed));
                output
            }
            Code::Gpt2
            | Code::GptBigCode
            | Code::GptNeo
            | Code::Opt
            | Code::Bloom
            | Code::Phi
            | Code::Mpt
            | Code::Gemma4
            | Code::DeepseekSparse
            | Code::OpenAiGpt
            | Code::BioGpt
            | Code::Deberta
            | Code::Bart
            | Code::ModernBert
            | Code::Bert
            | Code::Qwen => {
                let Mixed { output: mut mixed, weights: _weights } = self.mixer(layer, &normed, shared);
                mixed = mixed.dropout(drops);
                let own = second.map(|norm| hidden.normed(&layer.norm(norm)));
                let fed = {
                    let fed = self.feed_forward(layer, own.as_ref().unwrap_or(&normed));
                    fed.dropout(drops)
                };
                let output = {
                    let both = mixed.add(&fed);
                    both.add(hidden)
                };
                drop(own);
                drop(normed);
                drop(mixed);
                drop(fed);
                output
            }
        }
    }

    pub(super) fn mixer(
        &self,
        layer: &BoundLayer<'a>,
        hidden: &Tensor<'a>,
        shared: &Shared<Tensor<'a>>,
    ) -> Mixed<'a> {
        match &layer.block.mixer {
            Mixer::Latent(latent) if self.modeling.code == Code::DeepseekSparse => {
                self.machine.within("self_attn", &roles::ATTENTION, || {
                    self.sparse_attention(layer, latent, hidden, shared)
                })
            }
            Mixer::Latent(latent) => self.machine.within("self_attn", &roles::ATTENTION, || {
                self.by_name(layer, || self.latent_attention(layer, latent, hidden, shared))
            }),
            Mixer::ShortConv(short) => self.machine.within("conv", &roles::CONVOLUTION, || {
                self.by_name(layer, || self.short_conv(layer, short, hidden).into())
            }),
            Mixer::DeltaNet(net) => self.machine.within("linear_attn", &roles::SCAN, || {
                self.by_name(layer, || self.delta_net(layer, net, hidden).into())
            }),
            Mixer::StateSpace(space) => {
                let output = self.machine.within("mixer", &roles::SCAN, || self.mamba(layer, space, hidden));
                Mixed { output, weights: None }
            }
            // layers that have a feed-forward network only
            Mixer::None => Mixed { output: hidden.clone(), weights: None },
            Mixer::Cross(_) | Mixer::Module(_) => {
                Mixed { output: hidden.unmodelled("a token mixer without code"), weights: None }
            }
            Mixer::Attention(attention) => self.machine.within("self_attn", &roles::ATTENTION, || {
                self.by_name(layer, || self.attention(layer, attention, hidden, shared))
            }),
        }
    }

    /// Runs a layer's mixer, a module that is given its input by name. Its own parameters are those of no module inside it.
    fn by_name(&self, layer: &BoundLayer<'a>, body: impl FnOnce() -> Mixed<'a>) -> Mixed<'a> {
        let own = [layer.sinks, layer.bare.first().copied(), layer.bare.get(1).copied(), None];
        let module = match own {
            [None, None, None, None] => Module::Container(Container::SelfAttention, layer.number as u32),
            [..] => Module::Own(own),
        };
        let mut weights = None;
        let output = self.machine.module_by_name(module, || {
            let mixed = body();
            weights = mixed.weights;
            mixed.output
        });
        Mixed { output, weights }
    }

    pub(super) fn feed_forward(&self, layer: &BoundLayer<'a>, hidden: &Tensor<'a>) -> Tensor<'a> {
        self.machine.within("mlp", &roles::FEED_FORWARD, || match &layer.block.ffn {
            FeedForward::Dense(mlp) => {
                let module = Module::Container(Container::Mlp, layer.number as u32);
                self.machine.module(module, hidden, |hidden| self.mlp(layer, mlp, hidden))
            }
            FeedForward::Moe(moe) if self.modeling.gathers_experts_whole => {
                let module = Module::Leaf(layer.of_experts(moe));
                self.machine.leaf_module(module, hidden, |hidden| self.experts(layer, moe, hidden))
            }
            FeedForward::Moe(moe) => {
                let module = Module::Container(Container::Mlp, layer.number as u32);
                self.machine.module(module, hidden, |hidden| self.experts(layer, moe, hidden))
            }
            FeedForward::None => hidden.clone(),
        })
    }
}

impl<'m> Tensor<'m> {
    /// bloom's and falcon's `dropout_add`.
    pub(super) fn dropout_add(&self, residual: &Tensor<'m>, drops: bool) -> Tensor<'m> {
        let dropped = self.dropout(drops);
        residual.add(&dropped)
    }
}
