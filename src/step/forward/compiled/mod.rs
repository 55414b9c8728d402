//! What torch.compile has made a graph of: layers one by one (`for layer in model.model.layers: layer.compile()`), which this file
//! runs, or the whole model (`whole.rs`).
//!
//! Of layers one by one all outside runs as it is written, and so does a checkpoint, which lies around the compiled layer
//! (transformers' `GradientCheckpointingLayer.__call__`). A compiled layer is one node of autograd's graph
//! (torch/_functorch/_aot_autograd/runtime_wrappers.py): what it saves is what the partitioner kept, and backward owns it.

mod draft;
mod graphs;
mod handed_over;
mod rules;
mod running;
mod unsloth;
mod whole;

pub(super) use whole::Code;

use draft::{
    ARGUMENTS, Adapters, Beside, COS, DOWN, FIRST_NORM, GATE, HIDDEN, KEY, KEY_NORM, OUTPUT, Projected,
    QUERY, QUERY_NORM, SECOND_NORM, SIN, Sizes, Targets, UP, VALUE, bias, lora_a, lora_b,
};

use handed_over::handed_over;
use running::Running;

use super::inputs::Seen;
use super::load::autocast_dtype;
use super::{BoundLayer, Pass, Shared};
use crate::dtype::Dtype;
use crate::model::blocks::{FeedForward, Mixer, Mlp, Projection, Wiring};
use crate::step::autograd::{DISCARDED_LEAF, Edge, Grad, Results, only};
use crate::step::heap::StorageId;
use crate::step::machine::State;
use crate::step::ops::attention::{Choice, Kernel, Scores, alone, alone_backward};
use crate::step::params::ParamId;
use crate::step::tensor::{Layout, Tensor, Value};

/// By argument of the graph: the parameter that it is.
type Parameters = [Option<ParamId>; ARGUMENTS];

impl<'a> Pass<'_, 'a> {
    /// A compiled `LlamaDecoderLayer.__call__`.
    pub(super) fn compiled_layer(
        &self,
        layer: &BoundLayer<'a>,
        hidden: &Tensor<'a>,
        shared: &Shared<Tensor<'a>>,
    ) -> Tensor<'a> {
        let masked =
            layer.block.mixer.attention().is_some_and(|own| shared.mask(Seen::by_attention(own)).is_some());
        let Some((sizes, scores, parameters)) = self.compiled(layer, hidden.value).filter(|_| !masked) else {
            return hidden.unmodelled("a compiled layer that was never compared");
        };
        let Some((cos, sin)) =
            layer.block.mixer.attention().and_then(|own| shared.rotary(Seen::by_attention(own)))
        else {
            return hidden.unmodelled("a compiled layer without a rotary embedding");
        };
        let given = [hidden.value, cos.value, sin.value];
        hidden.machine.tensor(|state| state.compiled_layer(&sizes, scores, parameters, given))
    }

    /// What the graphs of a layer are made from.
    fn compiled(&self, layer: &BoundLayer<'a>, hidden: Value) -> Option<(Sizes, Scores, Parameters)> {
        let scores = self.compiled_scores(layer, self.compiled_dtype(hidden), false)?;
        let (sizes, parameters) = self.given(layer, hidden, scores)?;
        Some((sizes, scores, parameters))
    }

    /// The same of a call of attention's kernel.
    fn given(&self, layer: &BoundLayer<'a>, hidden: Value, scores: Scores) -> Option<(Sizes, Parameters)> {
        let block = layer.block;
        let Mixer::Attention(attention) = &block.mixer else { return None };
        let Wiring::PreNorm { attention: first, mlp: second } = &block.wiring else { return None };
        let Projection::Separate { q, k, v } = &attention.projection else { return None };
        let FeedForward::Dense(Mlp::Gated { gate, up, down, .. }) = &block.ffn else { return None };
        let mut parameters = [None; ARGUMENTS];
        let mut rank = 0;
        let linears = [
            (QUERY, q),
            (KEY, k),
            (VALUE, v),
            (OUTPUT, &attention.output),
            (GATE, gate),
            (UP, up),
            (DOWN, down),
        ];
        for (place, spec) in linears {
            let linear = layer.linear(spec);
            parameters[place] = Some(linear.weight.id());
            parameters[bias(place)] = linear.bias;
            if let Some(adapter) = linear.adapter {
                rank = adapter.rank;
                parameters[lora_a(place)] = Some(adapter.a);
                parameters[lora_b(place)] = Some(adapter.b);
            }
        }
        let adapters = match adapted(&parameters) {
            Adapted::None => None,
            Adapted::As(targets) => Some(Adapters { rank, targets, input: hidden.requires_grad() }),
            Adapted::Otherwise => return None,
        };
        parameters[FIRST_NORM] = layer.norm(first).weight;
        parameters[SECOND_NORM] = layer.norm(second).weight;
        if let Some(norms) = &attention.qk_norm {
            parameters[QUERY_NORM] = layer.norm(&norms.q).weight;
            parameters[KEY_NORM] = layer.norm(&norms.k).weight;
        }
        let beside = match (parameters[bias(QUERY)], parameters[QUERY_NORM]) {
            (None, None) => Beside::Nothing,
            (Some(_), None) => Beside::Biases,
            (None, Some(_)) => Beside::HeadNorms,
            (Some(_), Some(_)) => return None,
        };
        Some((self.sizes(layer, hidden, (beside, adapters), scores)?, parameters))
    }

    /// The type that products are computed in.
    fn compiled_dtype(&self, hidden: Value) -> Dtype {
        autocast_dtype(self.member.precision).unwrap_or(hidden.dtype)
    }

    /// The call of attention's kernel in a layer's graphs: over a mask where there is one, with keys and values for every head of queries.
    fn compiled_scores(&self, layer: &BoundLayer<'a>, dtype: Dtype, masked: bool) -> Option<Scores> {
        let Mixer::Attention(attention) = &layer.block.mixer else { return None };
        let kv_heads = if masked { attention.heads } else { attention.kv_heads };
        let given = self.scores(attention, Kernel::Flash, kv_heads);
        let kernel = self.compiled_kernel(given, dtype, masked);
        let is_compared = matches!(
            (kernel, masked),
            (Kernel::Flash, false) | (Kernel::Cudnn, _) | (Kernel::Efficient, true)
        );
        is_compared.then_some(Scores { kernel, ..given })
    }

    /// The sizes of a layer's graphs.
    fn sizes(
        &self,
        layer: &BoundLayer<'a>,
        hidden: Value,
        (beside, adapters): (Beside, Option<Adapters>),
        scores: Scores,
    ) -> Option<Sizes> {
        let Mixer::Attention(attention) = &layer.block.mixer else { return None };
        let FeedForward::Dense(Mlp::Gated { gate, .. }) = &layer.block.ffn else { return None };
        let device = self.device;
        let tokens = self.batch.sequences.saturating_mul(self.batch.length);
        let width = hidden.numel / tokens.max(1);
        // flash's seed is a pair of numbers
        let seeds = if scores.kernel == Kernel::Flash { [2, 1] } else { [1, 1] };
        let projected = |heads: u64| {
            let features = heads.saturating_mul(attention.head_dim);
            Projected {
                features,
                heads,
                numbers: rules::padded(self.batch.sequences, self.batch.length.saturating_mul(heads)),
                sums: match beside {
                    Beside::Nothing | Beside::Biases => rules::bias_sums(device, tokens, features),
                    Beside::HeadNorms => {
                        rules::norm_sums(device, tokens.saturating_mul(heads), attention.head_dim)
                    }
                },
            }
        };
        Some(Sizes {
            sequences: self.batch.sequences,
            tokens,
            hidden: width,
            queries: projected(attention.heads),
            keys: projected(attention.kv_heads),
            width: layer.linear(gate).shape.output,
            numbers: rules::padded(self.batch.sequences, self.batch.length),
            log_sums: scores.sums(),
            seeds,
            dtype: self.compiled_dtype(hidden),
            sums: rules::norm_sums(device, tokens, width),
            beside,
            adapters,
            autocast: autocast_dtype(self.member.precision).is_some(),
        })
    }

    /// The kernel that a compiled layer calls: the choice is made while it is traced, of queries that want gradients.
    fn compiled_kernel(&self, scores: Scores, dtype: Dtype, masked: bool) -> Kernel {
        Choice {
            wanted: self.member.attention,
            dtype,
            device: self.device,
            masked,
            strided_mask: false,
            grouped: scores.kv_heads != scores.heads,
            enable_gqa: true,
            head_dim: scores.head_dim,
            value_dim: scores.value_dim,
            sequence: scores.sequence,
            keys: scores.keys,
            dropout: false,
            recorded: true,
        }
        .kernel()
    }
}

/// Which linear layers of a layer have adapters.
enum Adapted {
    None,
    As(Targets),
    /// As no layer that was compared.
    Otherwise,
}

fn adapted(parameters: &Parameters) -> Adapted {
    let linears = draft::LINEARS;
    let are = |targets: Targets| {
        linears.into_iter().all(|linear| targets.adapt(linear) == parameters[lora_a(linear)].is_some())
    };
    if linears.into_iter().all(|linear| parameters[lora_a(linear)].is_none()) {
        return Adapted::None;
    }
    let mut known = [Targets::All, Targets::Attention, Targets::QueriesAndValues].into_iter();
    known.find(|targets| are(*targets)).map_or(Adapted::Otherwise, Adapted::As)
}

impl State {
    fn compiled_layer(
        &mut self,
        sizes: &Sizes,
        scores: Scores,
        parameters: Parameters,
        [hidden, cos, sin]: [Value; 3],
    ) -> Value {
        let forward = graphs::forward(sizes);
        let own = *sizes;
        // of what it is given a graph saves what backward needs
        let saves = |argument: usize| forward.graph.buffers[argument].returned;
        let arguments: Vec<(usize, Value)> = [(HIDDEN, hidden), (COS, cos), (SIN, sin)]
            .into_iter()
            .filter(|(argument, _)| saves(*argument))
            .collect();
        let weights = parameters.map(|id| id.map(|id| self.weight(id)));
        for weight in weights.iter().flatten() {
            self.read_operand(weight.bytes());
        }
        let places: Vec<usize> = arguments.iter().map(|(argument, _)| *argument).collect();
        let saved = places.len() + forward.kept.len();
        // where the layer's input wants no gradient, a parameter does
        let wanted = weights.iter().flatten().find(|weight| weight.wants()).copied();
        let reaches = if hidden.wants() { None } else { wanted };
        let input = reaches.unwrap_or(hidden);
        let node = self.node([&input], move |state, node, grad| {
            let given: Vec<StorageId> = (0..saved as u32).map(|index| state.saved(node, index)).collect();
            // what the function saved is its code's alone
            for (index, storage) in given.iter().enumerate() {
                state.retain(*storage);
                state.clear_saved(node, index as u32);
            }
            state.drop_arguments(node);
            state.compiled_backward(&own, scores, parameters, (hidden, *grad), (&places, &given))
        });
        for weight in weights.into_iter().flatten() {
            if reaches.is_none_or(|input| input.edge != weight.edge) {
                self.expect_gradient(Some(weight));
            }
        }
        let mut running = Running::new(&forward.graph);
        let of = hidden.storage;
        let dtype = own.dtype;
        running.run(self, &move |state, _| alone(state, scores, (of, dtype)));
        for (_, value) in arguments {
            self.save(node, value.storage);
        }
        for kept in forward.kept {
            self.save(node, running.held[kept]);
        }
        let storage = running.returned(forward.output);
        running.end(self);
        Value { storage, ..hidden }.at(node.output(0))
    }

    fn compiled_backward(
        &mut self,
        sizes: &Sizes,
        scores: Scores,
        parameters: Parameters,
        (hidden, gradient): (Value, Grad),
        (arguments, given): (&[usize], &[StorageId]),
    ) -> Results {
        let backward = graphs::backward(sizes);
        let mut running = Running::new(&backward.graph);
        let places = arguments.iter().chain(&backward.kept).copied();
        for (place, storage) in places.zip(given) {
            running.held[place] = *storage;
        }
        self.retain(gradient.storage);
        running.held[backward.gradient] = gradient.storage;
        let dtype = sizes.dtype;
        let inputs = [sizes.queries, sizes.keys, sizes.keys].map(|of| {
            let numel = sizes.tokens.saturating_mul(of.features);
            Value { shape: Layout::Heads, ..Value::plain(hidden.storage, numel, dtype) }.at(DISCARDED_LEAF)
        });
        running.run(self, &move |state, _| alone_backward(state, scores, inputs));
        for place in handed_over(&backward.gradients) {
            let (Some(made), Some(id)) = (backward.gradients[place], parameters[place]) else { continue };
            let storage = running.returned(made);
            let buffer = &backward.graph.buffers[made];
            let grad = Grad::new(storage, buffer.numel, buffer.dtype, Layout::Tokens);
            self.graph.beyond.push((Edge::Param(id), grad));
        }
        let made = backward.gradients[HIDDEN].map(|made| running.returned(made));
        running.end(self);
        made.map_or(Results::default(), |made| {
            only(Grad::new(made, hidden.numel, hidden.dtype, hidden.layout))
        })
    }
}
