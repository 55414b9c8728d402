//! A whole model that torch.compile has made one graph of: `model.compile()` or `torch.compile(model)` in a loop of one's own.
//!
//! It is one node of autograd's graph, from the tokens to the loss. The logits are another output of it, whose gradient nobody computes:
//! autograd makes one of zeros and holds it until backward is through (torch/csrc/autograd/python_function.cpp `PyNode::apply`).

use std::rc::Rc;

use super::draft::Beside;
use super::graphs::whole::{self, Whole, WholeBackward, WholeForward};
use super::handed_over::all_handed_over;
use super::running::Running;
use crate::dtype::Dtype;
use crate::memory::Category;
use crate::model::blocks::{FeedForward, Mixer, Mlp, Projection, Wiring};
use crate::scenario::Checkpointing;
use crate::step::autograd::{DISCARDED_LEAF, Edge, Grad, Results};
use crate::step::forward::inputs::Shared;
use crate::step::forward::{BoundLayer, Given, Output, Pass, find};
use crate::step::heap::{NOTHING, StorageId};
use crate::step::inductor::{Call, Line};
use crate::step::machine::State;
use crate::step::ops::attention::{Kernel, Scores, alone, alone_backward};
use crate::step::params::ParamId;
use crate::step::tensor::{Layout, Value};
use crate::step::what::{Source, What, roles};

/// The code of a whole model.
pub(in crate::step::forward) struct Code {
    whole: Whole,
    forward: (WholeForward, Vec<Line>),
    backward: (WholeBackward, Vec<Line>),
}

impl Code {
    fn new(whole: Whole) -> Code {
        let (forward, backward) = (whole::forward(&whole), whole::backward(&whole));
        let [first, second] = [forward.graph.lines(), backward.graph.lines()];
        Code { whole, forward: (forward, first), backward: (backward, second) }
    }
}

static NO_GRADIENT: What = What::own(
    "gradient of the logits (compiled)",
    "zeros: the logits are an output of the compiled function, and nobody computes their gradient",
    Source::At("PyTorch, torch/csrc/autograd/python_function.cpp"),
);

impl<'a> Pass<'_, 'a> {
    /// A compiled `LlamaForCausalLM.__call__` with labels.
    pub(in crate::step::forward) fn compiled_model(&self, replace: &dyn Fn()) -> Output<'a> {
        self.enter();
        self.machine.with(|state| {
            state.enter_forward(self.shards);
            state.enter_model(self.wrappers());
            state.autocast = self.autocast;
        });
        let made = self.whole();
        let [loss, logits] = match made {
            Some((code, scores, parameters)) => {
                let role = &roles::HEAD;
                self.machine.within("", role, || {
                    let logits = std::cell::Cell::new(Value::plain(NOTHING, 0, Dtype::Bf16));
                    let loss = self.machine.tensor(|state| {
                        let [loss, other] = state.compiled_model(&code, scores, parameters);
                        logits.set(other);
                        loss
                    });
                    [loss, self.machine.tensor(|_| logits.get())]
                })
            }
            None => {
                let nothing = self.machine.tensor(|_| Value::plain(NOTHING, 1, Dtype::F32));
                [nothing.unmodelled("a compiled model that was never compared"), nothing]
            }
        };
        let logits = logits.named_logits();
        replace();
        self.leave_autocast();
        let loss = self.leave_forward(loss);
        Output { loss, outputs: vec![logits], shared: Given { layers: Shared::none(), encoder: None } }
    }

    /// What its graphs are made from, and its parameters in the order in which it takes them.
    fn whole(&self) -> Option<(Rc<Code>, Scores, Vec<ParamId>)> {
        let tokens = self.batch.sequences.saturating_mul(self.batch.length);
        let hidden = tokens.saturating_mul(self.architecture.hidden);
        let first = self.layers.first()?;
        let dtype = self.machine.with(|state| state.params.get(self.outside.tokens).dtype);
        let given = Value::plain(NOTHING, hidden, dtype);
        let scores = self.compiled_scores(first, self.compiled_dtype(given), true)?;
        let layer = self.sizes(first, given, (Beside::Nothing, None), scores)?;
        let mut parameters = vec![self.outside.tokens];
        for layer in &self.layers {
            parameters.extend(weights(layer)?);
        }
        let norm = self.architecture.final_norm.as_ref()?;
        parameters.push(find(&self.outside.norms, |bound| bound.name == norm.name).weight?);
        let head = self.bound_head();
        let tied = head.weight.id() == self.outside.tokens;
        if !tied {
            parameters.push(head.weight.id());
        }
        let whole = Whole {
            layer,
            layers: self.layers.len(),
            vocabulary: head.shape.output,
            length: self.batch.length,
            tied,
            checkpoints: self.checkpointing() != Checkpointing::Off,
            masked: self.batch.mask.is_given(),
            cudnn: scores.kernel == Kernel::Cudnn,
        };
        Some((self.code(whole), scores, parameters))
    }

    /// Its code, which is generated once for batches of a shape.
    fn code(&self, whole: Whole) -> Rc<Code> {
        let mut known = self.compiled_code.borrow_mut();
        if let Some(code) = known.iter().find(|code| code.whole == whole) {
            return Rc::clone(code);
        }
        let code = Rc::new(Code::new(whole));
        known.push(Rc::clone(&code));
        code
    }
}

/// A layer's parameters, in the order in which a graph takes them.
fn weights(layer: &BoundLayer<'_>) -> Option<[ParamId; 9]> {
    let Mixer::Attention(attention) = &layer.block.mixer else { return None };
    let Wiring::PreNorm { attention: first, mlp: second } = &layer.block.wiring else { return None };
    let Projection::Separate { q, k, v } = &attention.projection else { return None };
    let FeedForward::Dense(Mlp::Gated { gate, up, down, .. }) = &layer.block.ffn else { return None };
    let of = |spec| layer.linear(spec).weight.id();
    let [first, second] = [layer.norm(first).weight?, layer.norm(second).weight?];
    Some([first, of(q), of(k), of(v), of(&attention.output), second, of(gate), of(up), of(down)])
}

impl State {
    /// Runs its forward: the loss and the logits.
    fn compiled_model(&mut self, code: &Rc<Code>, scores: Scores, parameters: Vec<ParamId>) -> [Value; 2] {
        let (forward, lines) = &code.forward;
        let own = code.whole;
        let again = Rc::clone(code);
        let weights: Vec<Value> = parameters.iter().map(|id| self.weight(*id)).collect();
        weights.iter().for_each(|weight| self.read_operand(weight.bytes()));
        let saved = forward.kept.len() as u32;
        let Some(first) = weights.first().copied() else {
            return [Value::plain(NOTHING, 1, Dtype::F32); 2];
        };
        let node = self.node([&first], move |state, node, grad| {
            let zeros = state.zeros_for_logits(&own);
            let given: Vec<StorageId> = (0..saved).map(|index| state.saved(node, index)).collect();
            // what the function saved is its code's alone
            for (index, storage) in given.iter().enumerate() {
                state.retain(*storage);
                state.clear_saved(node, index as u32);
            }
            state.compiled_model_backward(&again, scores, &parameters, [grad.storage, zeros], &given);
            state.release(zeros);
            Results::default()
        });
        for weight in weights {
            if weight.edge != first.edge {
                self.expect_gradient(Some(weight));
            }
        }
        let mut running = Running::with_logits(&forward.graph, vec![forward.logits]);
        let dtype = own.layer.dtype;
        running.run_lines(lines, self, &move |state, _| alone(state, scores, (NOTHING, dtype)));
        for kept in &forward.kept {
            self.save(node, running.held[*kept]);
        }
        let [loss, logits] = [forward.output, forward.logits].map(|output| running.returned(output));
        running.end(self);
        let numel = own.layer.tokens.saturating_mul(own.vocabulary);
        let logits = Value::plain(logits, numel, dtype).at(DISCARDED_LEAF);
        [Value::plain(loss, 1, Dtype::F32).at(node.output(0)), logits]
    }

    fn zeros_for_logits(&mut self, whole: &Whole) -> StorageId {
        let numel = whole.layer.tokens.saturating_mul(whole.vocabulary);
        let bytes = numel.saturating_mul(whole.layer.dtype.bytes());
        self.alloc_as(Category::Logits, bytes, whole.layer.dtype, &NO_GRADIENT)
    }

    fn compiled_model_backward(
        &mut self,
        code: &Code,
        scores: Scores,
        parameters: &[ParamId],
        gradients: [StorageId; 2],
        given: &[StorageId],
    ) {
        let (backward, lines) = &code.backward;
        let mut running = Running::with_logits(&backward.graph, vec![backward.logits]);
        for (place, storage) in backward.kept.iter().zip(given) {
            running.held[*place] = *storage;
        }
        for (place, storage) in backward.given.into_iter().zip(gradients) {
            self.retain(storage);
            running.held[place] = storage;
        }
        let sizes = code.whole.layer;
        let numel = sizes.tokens.saturating_mul(sizes.queries.features);
        let input = Value { shape: Layout::Heads, ..Value::plain(NOTHING, numel, sizes.dtype) };
        let inputs = [input.at(DISCARDED_LEAF); 3];
        running.run_lines(lines, self, &move |state, call| match call {
            Call::Attention => alone(state, scores, (NOTHING, sizes.dtype)),
            _ => alone_backward(state, scores, inputs),
        });
        for place in all_handed_over(0..backward.gradients.len(), None) {
            let made = backward.gradients[place];
            let storage = running.returned(made);
            let buffer = &backward.graph.buffers[made];
            let grad = Grad::new(storage, buffer.numel, buffer.dtype, Layout::Tokens);
            self.graph.beyond.push((Edge::Param(parameters[place]), grad));
        }
        running.end(self);
    }
}
