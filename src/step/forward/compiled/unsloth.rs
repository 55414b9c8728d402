//! A layer that Unsloth has compiled as one region, under its checkpoints (unsloth 2026.10.9 models/_block_compile.py).
//!
//! Its first pass, which keeps nothing, has a graph of its own whose buffers have places in pools; the second has those of a step that
//! trains.

use super::Parameters;
use super::draft::{Adapters, Sizes, Targets, lora_a, lora_b};
use super::graphs::unsloth::{Attends, Own, answered, backward, forward};
use super::handed_over::handed_over;
use super::running::Running;
use crate::dtype::Dtype;
use crate::step::autograd::{DISCARDED_LEAF, Edge, Grad, Input, Results, only};
use crate::step::forward::stacks::unsloth::{bucketed, without_cudnn};
use crate::step::forward::{BoundLayer, Pass};
use crate::step::heap::StorageId;
use crate::step::machine::State;
use crate::step::ops::attention::{Kernel, Scores, alone, alone_backward};
use crate::step::ops::linear::Weight;
use crate::step::tensor::{Layout, Tensor, Value};

impl<'a> Pass<'_, 'a> {
    /// A compiled `LlamaDecoderLayer_fast_forward`.
    pub(in crate::step::forward) fn unsloth_compiled_layer(
        &self,
        layer: &BoundLayer<'a>,
        hidden: &Tensor<'a>,
    ) -> Tensor<'a> {
        let Some((sizes, own, scores, parameters)) = self.unsloth_compiled(layer, hidden.value) else {
            return hidden.unmodelled("a compiled layer that was never compared");
        };
        hidden
            .machine
            .tensor(|state| state.unsloth_compiled_layer(sizes, own, (scores, parameters), hidden.value))
    }
}

impl<'a> Pass<'_, 'a> {
    /// What the graphs of a layer are made from, and the call of attention's kernel in them.
    fn unsloth_compiled(
        &self,
        layer: &BoundLayer<'a>,
        hidden: Value,
    ) -> Option<(Sizes, Own, Scores, Parameters)> {
        let attention = layer.block.mixer.attention()?;
        let is_shared = attention.heads > attention.kv_heads;
        let dtype = self.compiled_dtype(hidden);
        let kernel_of = |kv_heads: u64| {
            let scores = self.scores(attention, Kernel::Flash, kv_heads);
            let kernel = without_cudnn(self.compiled_kernel(scores, dtype, false), self.device.capability);
            Scores { kernel, ..scores }
        };
        // where no kernel takes grouped heads they are repeated
        let grouped = kernel_of(attention.kv_heads);
        let scores = if grouped.kernel == Kernel::Math { kernel_of(attention.heads) } else { grouped };
        let padded = bucketed(scores.sequence);
        let attends = Attends::of(scores.kernel, is_shared, scores.batch.saturating_mul(padded));
        let scores = match attends {
            Attends::Padded(_) => Scores { sequence: padded, keys: padded, ..scores },
            Attends::Grouped | Attends::Copied | Attends::Repeated => scores,
        };
        let (sizes, parameters) = self.given(layer, hidden, scores)?;
        let is_followed = matches!(sizes.adapters, Some(Adapters { targets: Targets::All, .. }))
            && (sizes.autocast || sizes.dtype == Dtype::F16)
            && matches!(scores.kernel, Kernel::Flash | Kernel::Cudnn | Kernel::Efficient);
        let (query, rotary) = self.unsloth_rotary(layer).filter(|_| is_followed)?;
        let is_quantised = matches!(query, Weight::Quantised(_));
        Some((sizes, Own { is_quantised, rotary, kernel: scores.kernel, attends }, scores, parameters))
    }
}

impl State {
    fn unsloth_compiled_layer(
        &mut self,
        sizes: Sizes,
        own: Own,
        (scores, parameters): (Scores, Parameters),
        hidden: Value,
    ) -> Value {
        let linears = super::draft::LINEARS;
        let factors = linears.into_iter().flat_map(|linear| [lora_a(linear), lora_b(linear)]);
        let mut factors = factors.filter_map(|argument| parameters[argument]);
        for id in parameters.into_iter().flatten() {
            let weight = self.weight(id);
            self.read_operand(weight.bytes());
        }
        let nodes = self.graph.len();
        let first = factors.next().map_or(Input::NONE, |id| self.weight(id));
        let node = self.node_of(1, [&hidden, &Input::NONE, &first], move |state, node, grad| {
            let saved = backward(&sizes, own).kept.len() as u32 + 1;
            let given: Vec<StorageId> = (0..saved).map(|index| state.saved(node, index)).collect();
            // what the function saved is its code's alone
            for (index, storage) in given.iter().enumerate() {
                state.retain(*storage);
                state.clear_saved(node, index as u32);
            }
            state.unsloth_compiled_backward((&sizes, own), (scores, parameters), (hidden, *grad), &given)
        });
        if self.graph.len() > nodes {
            factors.for_each(|id| self.expect_in_graph(id));
        }
        let (of, dtype) = (hidden.storage, sizes.dtype);
        let forward = forward(&sizes, own);
        let storage = if self.graph.keeps_nothing() {
            let (mut graph, output) = answered(&sizes, own);
            let lines = graph.pooled_lines();
            let mut running = Running::new(&graph);
            running.run_lines(&lines, self, &move |state, _| alone(state, scores, (of, dtype)));
            // what it will save when it runs again
            for _ in 0..=forward.kept.len() {
                self.save(node, hidden.storage);
            }
            let storage = running.returned(output);
            running.end(self);
            storage
        } else {
            let mut running = Running::new(&forward.graph);
            running.run(self, &move |state, _| alone(state, scores, (of, dtype)));
            self.save(node, hidden.storage);
            for kept in forward.kept {
                self.save(node, running.held[kept]);
            }
            let storage = running.returned(forward.output);
            running.end(self);
            storage
        };
        Value { storage, ..hidden }.at(node.output(0))
    }

    fn unsloth_compiled_backward(
        &mut self,
        (sizes, own): (&Sizes, Own),
        (scores, parameters): (Scores, Parameters),
        (hidden, gradient): (Value, Grad),
        given: &[StorageId],
    ) -> Results {
        let backward = backward(sizes, own);
        let mut running = Running::new(&backward.graph);
        let input = backward.graph.buffers.iter().position(|buffer| buffer.name == "view");
        for (place, storage) in input.into_iter().chain(backward.kept).zip(given) {
            running.held[place] = *storage;
        }
        self.retain(gradient.storage);
        running.held[backward.gradient] = gradient.storage;
        let dtype = sizes.dtype;
        let keys = scores.kv_heads.saturating_mul(scores.head_dim);
        let tokens = scores.batch.saturating_mul(scores.sequence);
        let inputs = [sizes.queries.features, keys, keys].map(|features| {
            let numel = tokens.saturating_mul(features);
            Value { shape: Layout::Heads, ..Value::plain(hidden.storage, numel, dtype) }.at(DISCARDED_LEAF)
        });
        running.run(self, &move |state, _| alone_backward(state, scores, inputs));
        for place in handed_over(&backward.gradients) {
            let (Some(made), Some(id)) = (backward.gradients[place], parameters[place]) else { continue };
            let numel = backward.graph.buffers[made].numel;
            let grad = Grad::new(running.returned(made), numel, Dtype::F32, Layout::Tokens);
            self.graph.beyond.push((Edge::Param(id), grad));
        }
        let made = backward.gradients[super::HIDDEN].map(|made| running.returned(made));
        running.end(self);
        made.map_or(Results::default(), |made| {
            only(Grad::new(made, hidden.numel, hidden.dtype, hidden.layout))
        })
    }
}
