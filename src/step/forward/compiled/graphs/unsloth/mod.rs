//! The graphs of a layer of llama's that Unsloth has compiled as one region: its own functions' calls one by one, with little fused
//! between them.
//!
//! Source: unsloth 2026.10.9 models/_block_compile.py, over the functions of `stacks/unsloth`; read off the scheduler of PyTorch 2.11.
//! Sequences and their length are symbols there: a graph is for any number of tokens.

mod backward;
mod forward;

pub(in super::super) use backward::backward;
pub(in super::super) use forward::{answered, forward};

use super::super::draft::{Draft, GATE, KEY, OUTPUT, QUERY, Sizes, UP, VALUE};
use crate::dtype::Dtype;
use crate::step::inductor::{Call, Origin};
use crate::step::ops::attention::Kernel;

/// What the graphs of a layer are made from beside its sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Own {
    /// Whether weights are dequantised within the graph.
    pub is_quantised: bool,
    /// The tables of sines and cosines: their elements, and the type of these.
    pub rotary: (u64, Dtype),
    /// Attention's kernel, and how it is given queries, keys and values.
    pub kernel: Kernel,
    pub attends: Attends,
}

/// How attention's kernel is given queries, keys and values (unsloth utils/attention_dispatch.py `run_attention`, `_training_sdpa`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Attends {
    /// As they are, heads of keys for several of queries: flash.
    Grouped,
    /// Copies of them, as many heads of keys as of queries.
    Copied,
    /// The same where these were fewer, each repeated for its queries, as no kernel takes them grouped.
    Repeated,
    /// Copies of more tokens, so many in all: cuDNN.
    Padded(u64),
}

impl Attends {
    /// How a kernel is given them, of which heads of keys are `shared` by several of queries; cuDNN's is given so many tokens.
    pub fn of(kernel: Kernel, shared: bool, padded: u64) -> Attends {
        match (kernel, shared) {
            (Kernel::Cudnn, _) => Attends::Padded(padded),
            (Kernel::Flash, true) => Attends::Grouped,
            (_, true) => Attends::Repeated,
            (_, false) => Attends::Copied,
        }
    }
}

/// A graph being written, of those sizes.
struct Layer<'s> {
    draft: Draft,
    sizes: &'s Sizes,
    own: Own,
    rank: u64,
    /// A weight, a matrix of an adapter or the rotary embedding: not the graph's to write over.
    argument: usize,
}

impl<'s> Layer<'s> {
    fn new(sizes: &'s Sizes, own: Own) -> Layer<'s> {
        let mut draft = Draft::empty();
        let argument = draft.argument("primals_1");
        Layer { draft, sizes, own, rank: sizes.adapters.map_or(0, |adapters| adapters.rank), argument }
    }

    /// Inputs and outputs of a linear layer.
    fn features(&self, linear: usize) -> [u64; 2] {
        let Sizes { hidden, queries, keys, width, .. } = self.sizes;
        match linear {
            QUERY => [*hidden, queries.features],
            KEY | VALUE => [*hidden, keys.features],
            OUTPUT => [queries.features, *hidden],
            GATE | UP => [*hidden, *width],
            // the last, down
            _ => [*width, *hidden],
        }
    }

    /// So many numbers for each token.
    fn rows(&self, features: u64) -> (u64, Dtype) {
        (self.sizes.tokens.saturating_mul(features), self.sizes.dtype)
    }

    /// So many numbers, however many tokens there are.
    fn numbers(&self, numel: u64) -> (u64, Dtype) {
        (numel, self.sizes.dtype)
    }

    /// The sizes that attention's kernel has.
    fn of_kernel(&self) -> Sizes {
        match self.own.attends {
            Attends::Grouped | Attends::Copied => *self.sizes,
            Attends::Repeated => Sizes { keys: self.sizes.queries, ..*self.sizes },
            Attends::Padded(tokens) => Sizes { tokens, ..*self.sizes },
        }
    }

    /// Whether what a kernel makes of copies lies head after head, so that it is copied token after token; the memory-efficient kernel's
    /// does not.
    fn lies_by_heads(&self) -> bool {
        self.own.attends != Attends::Grouped && self.own.kernel != Kernel::Efficient
    }

    /// A copy of heads, or of a sum of them, that lies in another way and is written over nothing therefore.
    fn copied(&mut self, of: &[usize], size: (u64, Dtype), returned: bool) -> usize {
        let made = self.draft.made(size, Origin::Made, returned);
        self.draft.simple(Call::Kernel, made, of);
        self.of_tokens(made)
    }

    /// Notes that a buffer's size is one of tokens.
    fn of_tokens(&mut self, buffer: usize) -> usize {
        self.draft.graph.buffers[buffer].of_any_tokens = true;
        buffer
    }

    fn blank_rows(&mut self, features: u64, returned: bool) -> usize {
        let made = self.draft.blank(self.rows(features), returned);
        self.of_tokens(made)
    }

    /// A product with so many numbers for each token.
    fn product(&mut self, features: u64, inner: u64, returned: bool, reads: &[usize]) -> usize {
        let made = self.draft.product(inner, self.rows(features), returned, reads);
        self.of_tokens(made)
    }

    /// A product that is added to a buffer; the call has a result of its own that is nothing.
    fn add(&mut self, to: usize, inner: u64, reads: &[usize; 2]) -> usize {
        self.draft.skip();
        let [sum] = self.draft.over(Call::AddedProduct(inner), [to], reads);
        sum
    }

    /// A matrix of an adapter in the type of the products.
    fn cast(&mut self, numel: u64, returned: bool) -> usize {
        let made = self.draft.made(self.numbers(numel), Origin::Made, returned);
        self.draft.simple(Call::Kernel, made, &[self.argument]);
        made
    }

    /// A linear layer's weight, dequantised where it has to be.
    fn weight(&mut self, linear: usize) -> usize {
        if !self.own.is_quantised {
            return self.argument;
        }
        let [input, output] = self.features(linear);
        let made = self.draft.blank(self.numbers(input.saturating_mul(output)), false);
        let [weight] = self.draft.over(Call::Kernel, [made], &[]);
        weight
    }

    /// Queries or keys turned by their positions, or back.
    fn rotated(&mut self, of: usize, features: u64, returned: bool) -> usize {
        let over = self.rotation(features, returned);
        let [rotated, _] = self.draft.over(Call::Kernel, over, &[of]);
        rotated
    }

    /// Memory for these, and the number that stands for keys where queries are turned by themselves.
    fn rotation(&mut self, features: u64, returned: bool) -> [usize; 2] {
        [self.blank_rows(features, returned), self.draft.blank(self.numbers(1), false)]
    }
}

#[cfg(test)]
mod tests;
