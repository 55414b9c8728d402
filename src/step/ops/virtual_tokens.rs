//! What peft does with the rows that a prompt encoder makes: repeats them for each sequence, or cuts them into keys and values.

use super::views::cat_backward;
use crate::step::autograd::{Edge, Grad, fresh, like, only, share_view};
use crate::step::tensor::{Layout, Tensor, Value};
use crate::step::what::{ENGINE, Source, What, torch};

const GET_PROMPT: Source = Source::At("peft, peft_model.py, get_prompt");
static REPEATED: What = What::own("repeat", "the virtual tokens, once for each sequence", GET_PROMPT);
static PREFIX: What =
    What::own("cat", "keys or values of the prefix: what a layer's cache begins with", GET_PROMPT);
static PREFIX_GRADIENT: What =
    What::own("gradient of the prefix", "the gradient of the prefix's keys and values", GET_PROMPT);

static LEAF_GRADIENT: What =
    What::own("gradient of the embeddings", "the gradient of the text's embeddings, by itself", ENGINE);

impl<'m> Tensor<'m> {
    /// `x.repeat(times, 1, 1)`: a copy also where it is repeated once.
    pub fn repeated_rows(&self, times: u64) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], move |state, node, grad| {
                let narrow = node.inputs[0];
                only(match times {
                    0 | 1 => share_view(state, grad),
                    _ => fresh(state, grad, (narrow.numel, Layout::Tokens), &torch::SUM),
                })
            });
            let whole = Value { numel: x.numel.saturating_mul(times), ..*x };
            state.new_like(&whole, x.dtype, &REPEATED, node.output(0))
        })
    }

    /// `torch.cat((x, text), dim=1)`. The text's part of the gradient is cut out of every sequence, which a leaf is given a copy of
    /// where there is more than one.
    pub fn followed_by(&self, text: &Tensor<'m>, sequences: u64) -> Tensor<'m> {
        self.apply(|state, x| {
            let y = &text.value;
            let node = state.node([x, y], move |state, node, grad| {
                let mut results = cat_backward(state, node, grad);
                if let (Some(part), Edge::Param(_), 2..) = (results[1], node.inputs[1].edge, sequences) {
                    let copy = state.alloc_for(part.storage, part.numel, part.dtype, &LEAF_GRADIENT);
                    results[1] = Some(Grad::new(copy, part.numel, part.dtype, Layout::Tokens));
                    state.release(part.storage);
                }
                results
            });
            let whole = Value { numel: x.numel.saturating_add(y.numel), ..*x };
            state.new_like(&whole, x.dtype, &torch::CAT, node.output(0))
        })
    }

    /// `x.view(…).permute([2, 0, 3, 1, 4])`, heads before tokens: a view, whose gradient is brought into the order that it had.
    pub fn heads_of_layers(&self) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], |state, _, grad| only(like(state, grad, &PREFIX_GRADIENT)));
            state.retain(x.storage);
            Value { edge: node.output(0), ..*x }
        })
    }

    /// `keys, values = x[:2]` of a layer's part, each of which begins a cache that has nothing yet.
    pub fn cached_pair(&self) -> [Tensor<'m>; 2] {
        // the slice's gradient is the whole's, the pair's is a stack
        let sliced = self.apply(|state, x| {
            let node = state.node([x], |state, _, grad| only(like(state, grad, &PREFIX_GRADIENT)));
            state.retain(x.storage);
            Value { edge: node.output(0), ..*x }
        });
        let node = self.machine.with(|state| {
            state.split_node(2, [&sliced.value], |state, node, grads| {
                let whole = node.inputs[0];
                let Some(grad) = grads.iter().flatten().next() else { return [None; 3] };
                only(fresh(state, grad, (whole.numel, Layout::Heads), &PREFIX_GRADIENT))
            })
        });
        [0, 1].map(|output| {
            let one = sliced.with(|value| {
                value.numel /= 2;
                value.edge = node.output(output);
            });
            one.apply(|state, x| {
                let node = state.node([x], |state, _, grad| only(share_view(state, grad)));
                let whole = Value { layout: Layout::Heads, shape: Layout::Heads, ..*x };
                state.new_like(&whole, x.dtype, &PREFIX, node.output(0))
            })
        })
    }
}
