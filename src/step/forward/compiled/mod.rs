//! Layers that torch.compile has made one graph each of: `for layer in model.model.layers: layer.compile()`.
//!
//! All outside of the layers runs as it is written, and so does a checkpoint, which lies around the compiled layer
//! (transformers' `GradientCheckpointingLayer.__call__`). A compiled layer is one node of autograd's graph
//! (torch/_functorch/_aot_autograd/runtime_wrappers.py): what it saves is what the partitioner kept, and backward owns it.

mod draft;
mod graphs;
mod rules;

use draft::{
    ARGUMENTS, COS, DOWN, FIRST_NORM, GATE, HIDDEN, KEY, OUTPUT, QUERY, SECOND_NORM, SIN, Sizes, UP, VALUE,
};

use super::inputs::Seen;
use super::{BoundLayer, Pass, Shared};
use crate::dtype::Dtype;
use crate::model::blocks::{FeedForward, Mixer, Mlp, Projection, Wiring};
use crate::step::autograd::{DISCARDED_LEAF, Edge, Grad, Results, only};
use crate::step::heap::{NOTHING, StorageId};
use crate::step::inductor::{Call, Graph, Line, Origin};
use crate::step::machine::State;
use crate::step::ops::attention::{Choice, Kernel, Scores, alone, alone_backward};
use crate::step::params::ParamId;
use crate::step::tensor::{Layout, Tensor, Value};
use crate::step::what::{Source, What, torch};

const INDUCTOR: Source = Source::At("PyTorch, torch/_inductor/scheduler.py");

static PRODUCT: What = What::own(
    "mm (compiled)",
    "a matrix product of a compiled layer, saved where backward needs it",
    INDUCTOR,
);
static FUSED: What = What::own(
    "fused kernel (compiled)",
    "what a generated kernel writes: several operations of the layer in one, without what is between them",
    INDUCTOR,
);
static WORKSPACE: What = What::own(
    "workspace (compiled)",
    "partial sums over tokens that a generated kernel leaves for the gradients of both norms' weights",
    INDUCTOR,
);

/// The order in which autograd's queue, a heap, hands its gradients to parameters, which all are as urgent (measured).
const HANDED_OVER: [usize; 9] = [FIRST_NORM, QUERY, SECOND_NORM, DOWN, UP, OUTPUT, KEY, GATE, VALUE];

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
        let block = layer.block;
        let Mixer::Attention(attention) = &block.mixer else { return None };
        let Wiring::PreNorm { attention: first, mlp: second } = &block.wiring else { return None };
        let Projection::Separate { q, k, v } = &attention.projection else { return None };
        let FeedForward::Dense(Mlp::Gated { gate, up, down, .. }) = &block.ffn else { return None };
        let mut parameters = [None; ARGUMENTS];
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
            parameters[place] = Some(layer.linear(spec).weight.id());
        }
        parameters[FIRST_NORM] = layer.norm(first).weight;
        parameters[SECOND_NORM] = layer.norm(second).weight;
        let device = self.device;
        let tokens = self.batch.sequences.saturating_mul(self.batch.length);
        let width = hidden.numel / tokens.max(1);
        let given = self.scores(attention, Kernel::Flash, attention.kv_heads);
        let kernel = self.compiled_kernel(given, hidden.dtype);
        if !matches!(kernel, Kernel::Flash | Kernel::Cudnn) {
            return None;
        }
        let scores = Scores { kernel, ..given };
        // flash's seed is a pair of numbers
        let seeds = if kernel == Kernel::Flash { [2, 1] } else { [1, 1] };
        let heads = |count: u64| count.saturating_mul(attention.head_dim);
        let sizes = Sizes {
            tokens,
            hidden: width,
            queries: heads(attention.heads),
            keys: heads(attention.kv_heads),
            width: layer.linear(gate).shape.output,
            numbers: rules::padded(self.batch.sequences, self.batch.length),
            log_sums: scores.rows(),
            seeds,
            dtype: hidden.dtype,
            sums: rules::sums(device, tokens, width),
        };
        Some((sizes, scores, parameters))
    }

    /// The kernel that a compiled layer calls: the choice is made while it is traced, of queries that want gradients.
    fn compiled_kernel(&self, scores: Scores, dtype: Dtype) -> Kernel {
        Choice {
            wanted: self.member.attention,
            dtype,
            device: self.device,
            masked: false,
            strided_mask: false,
            grouped: scores.kv_heads != scores.heads,
            enable_gqa: true,
            head_dim: scores.head_dim,
            value_dim: scores.value_dim,
            sequence: scores.sequence,
            dropout: false,
            recorded: true,
        }
        .kernel()
    }
}

/// A graph that runs.
struct Running<'g> {
    graph: &'g Graph,
    /// By buffer: its storage, while the code has it.
    held: Vec<StorageId>,
    /// What a call returned in a tuple.
    tuple: Vec<StorageId>,
    /// By buffer: the product that makes it, as a sum of so many.
    products: Vec<Option<u64>>,
}

impl<'g> Running<'g> {
    fn new(graph: &'g Graph) -> Running<'g> {
        let mut products = vec![None; graph.buffers.len()];
        for node in &graph.nodes {
            if let (Call::Product(inner), [op]) = (node.call, &node.ops[..]) {
                products[op.makes] = Some(inner);
            }
        }
        Running { graph, held: vec![NOTHING; graph.buffers.len()], tuple: Vec::new(), products }
    }

    /// Runs its code; `attention` is the call of attention's kernel.
    fn run(
        &mut self,
        state: &mut State,
        mixed: Option<u64>,
        attention: &dyn Fn(&mut State) -> Vec<StorageId>,
    ) {
        for line in self.graph.lines() {
            match line {
                Line::Make(made) => {
                    let buffer = &self.graph.buffers[made];
                    self.held[made] = match self.products[made] {
                        Some(inner) => state.alloc_product(buffer.room, inner, buffer.dtype, &PRODUCT),
                        None => state.alloc(buffer.room, buffer.dtype, &FUSED),
                    };
                }
                Line::Take { made, from } => {
                    let buffer = &self.graph.buffers[made];
                    self.held[made] = std::mem::replace(&mut self.held[from], NOTHING);
                    match self.products[made] {
                        Some(inner) => state.multiply(buffer.numel, inner),
                        None => state.write(buffer.numel.saturating_mul(buffer.dtype.bytes())),
                    }
                }
                Line::Run(node) => self.call(state, node, mixed, attention),
                Line::Free(gone) => {
                    if self.graph.buffers[gone].origin == Origin::Bundle {
                        self.tuple.drain(..).for_each(|part| state.release(part));
                    }
                    state.release(std::mem::replace(&mut self.held[gone], NOTHING));
                }
            }
        }
        self.tuple.drain(..).for_each(|part| state.release(part));
    }

    fn call(
        &mut self,
        state: &mut State,
        node: usize,
        mixed: Option<u64>,
        attention: &dyn Fn(&mut State) -> Vec<StorageId>,
    ) {
        match self.graph.nodes[node].call {
            Call::Product(_) | Call::Kernel | Call::Nothing => {}
            Call::Attention => self.tuple = attention(state),
            Call::Part(index) => {
                let part = self.tuple.get(index).copied().unwrap_or(NOTHING);
                state.retain(part);
                for op in &self.graph.nodes[node].ops {
                    self.held[op.makes] = part;
                }
            }
            Call::Mixed(sums) => self.mixed(state, sums, mixed.unwrap_or(0)),
        }
    }

    /// Both norms' sums of columns: each of the workspace's halves is summed in float32 and cast.
    fn mixed(&mut self, state: &mut State, sums: [usize; 2], rows: u64) {
        let columns = self.graph.buffers[sums[0]].numel;
        let partial = rows.saturating_mul(columns).saturating_mul(2);
        let workspace = state.alloc(partial, Dtype::F32, &WORKSPACE);
        for made in sums {
            let dtype = self.graph.buffers[made].dtype;
            let sum = state.alloc(columns, Dtype::F32, &torch::SUM);
            let cast = state.alloc(columns, dtype, &torch::CAST);
            state.release(sum);
            state.release(std::mem::replace(&mut self.held[made], cast));
        }
        state.release(workspace);
    }

    /// Takes what the code returns out of its hands.
    fn returned(&mut self, buffer: usize) -> StorageId {
        std::mem::replace(&mut self.held[buffer], NOTHING)
    }

    /// Everything that the code still has goes when its function returns.
    fn end(self, state: &mut State) {
        self.held.into_iter().for_each(|storage| state.release(storage));
    }
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
        let [states, cosines, sines] = [hidden, cos, sin].map(|value| value.storage);
        let weights = parameters.map(|id| id.map(|id| self.weight(id)));
        for weight in weights.iter().flatten() {
            self.read_operand(weight.bytes());
        }
        let saved = [HIDDEN, COS, SIN].into_iter().chain(forward.kept.all()).count();
        let node = self.node([&hidden], move |state, node, grad| {
            let given: Vec<StorageId> = (0..saved as u32).map(|index| state.saved(node, index)).collect();
            // what the function saved is its code's alone
            for (index, storage) in given.iter().enumerate() {
                state.retain(*storage);
                state.clear_saved(node, index as u32);
            }
            state.drop_arguments(node);
            state.compiled_backward(&own, scores, parameters, (hidden, *grad, &given))
        });
        for weight in weights.into_iter().flatten() {
            self.expect_gradient(Some(weight));
        }
        let mut running = Running::new(&forward.graph);
        let of = hidden.storage;
        let dtype = own.dtype;
        running.run(self, None, &move |state| alone(state, scores, (of, dtype)));
        for storage in [states, cosines, sines] {
            self.save(node, storage);
        }
        for kept in forward.kept.all() {
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
        (hidden, gradient, given): (Value, Grad, &[StorageId]),
    ) -> Results {
        let backward = graphs::backward(sizes);
        let mut running = Running::new(&backward.graph);
        let places = [HIDDEN, COS, SIN].into_iter().chain(backward.kept.all());
        for (place, storage) in places.zip(given) {
            running.held[place] = *storage;
        }
        self.retain(gradient.storage);
        running.held[backward.gradient] = gradient.storage;
        let dtype = sizes.dtype;
        let inputs = [sizes.queries, sizes.keys, sizes.keys].map(|width| {
            let numel = sizes.tokens.saturating_mul(width);
            Value { shape: Layout::Heads, ..Value::plain(hidden.storage, numel, dtype) }.at(DISCARDED_LEAF)
        });
        running.run(self, sizes.sums.mixed(), &move |state| alone_backward(state, scores, inputs));
        for place in HANDED_OVER {
            let (Some(made), Some(id)) = (backward.gradients[place], parameters[place]) else { continue };
            let storage = running.returned(made);
            let numel = backward.graph.buffers[made].numel;
            let grad = Grad::new(storage, numel, dtype, Layout::Tokens);
            self.graph.beyond.push((Edge::Param(id), grad));
        }
        let made = backward.gradients[HIDDEN].map_or(NOTHING, |made| running.returned(made));
        running.end(self);
        only(Grad::new(made, hidden.numel, dtype, hidden.layout))
    }
}
