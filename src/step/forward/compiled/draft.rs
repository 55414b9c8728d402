//! The sizes of a compiled layer, its arguments, and a graph of it being written.

use crate::dtype::Dtype;
use crate::step::inductor::{Buffer, Call, Graph, Node, Op, Origin};

/// The sizes of a layer, in elements.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub tokens: u64,
    pub hidden: u64,
    pub queries: u64,
    pub keys: u64,
    pub width: u64,
    /// Room for a float32 number of each token.
    pub numbers: u64,
    /// One number for every query and head.
    pub log_sums: u64,
    /// Elements of the two tensors that attention's kernel leaves for its random numbers.
    pub seeds: [u64; 2],
    pub dtype: Dtype,
    pub sums: Sums,
}

/// How the gradients of the norms' weights, sums over all tokens, are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sums {
    /// By one kernel.
    Whole,
    /// By two, the first of which leaves so many rows.
    Split(u64),
    /// By the kernel that reduces rows too, which leaves so many rows for PyTorch's own sum; with the rows that they would have been
    /// split into otherwise, if they would.
    Mixed { rows: u64, split: Option<u64> },
}

impl Sums {
    /// Into how many rows the sums are split before kernels are fused.
    pub fn split(self) -> Option<u64> {
        match self {
            Sums::Whole => None,
            Sums::Split(rows) => Some(rows),
            Sums::Mixed { split, .. } => split,
        }
    }

    /// Over how many rows PyTorch's own kernel sums.
    pub fn mixed(self) -> Option<u64> {
        match self {
            Sums::Whole | Sums::Split(_) => None,
            Sums::Mixed { rows, .. } => Some(rows),
        }
    }
}

/// The parameters of a layer by their place among the graph's arguments, from 1, and what else it is given.
pub(super) const HIDDEN: usize = 0;
pub(super) const FIRST_NORM: usize = 1;
pub(super) const QUERY: usize = 2;
pub(super) const KEY: usize = 3;
pub(super) const VALUE: usize = 4;
pub(super) const COS: usize = 5;
pub(super) const SIN: usize = 6;
pub(super) const OUTPUT: usize = 7;
pub(super) const SECOND_NORM: usize = 8;
pub(super) const GATE: usize = 9;
pub(super) const UP: usize = 10;
pub(super) const DOWN: usize = 11;
/// So many arguments there are.
pub(super) const ARGUMENTS: usize = 12;

/// A graph being written.
pub(super) struct Draft {
    pub graph: Graph,
    /// The number of the next buffer that it makes.
    pub next: usize,
}

impl Draft {
    /// One with the layer's arguments, which forward returns.
    pub fn new(sizes: &Sizes, returned: bool) -> Draft {
        let mut draft = Draft { graph: Graph::default(), next: 0 };
        let Sizes { tokens, hidden, queries, keys, width, .. } = *sizes;
        let product = u64::saturating_mul;
        let numels = [
            product(tokens, hidden),
            hidden,
            product(queries, hidden),
            product(keys, hidden),
            product(keys, hidden),
            tokens,
            tokens,
            product(queries, hidden),
            hidden,
            product(width, hidden),
            product(width, hidden),
            product(width, hidden),
        ];
        for (index, numel) in numels.into_iter().enumerate() {
            draft.buffer(&format!("primals_{}", index + 1), (numel, sizes.dtype), Origin::Argument, returned);
        }
        draft
    }

    pub fn buffer(
        &mut self,
        name: &str,
        (numel, dtype): (u64, Dtype),
        origin: Origin,
        returned: bool,
    ) -> usize {
        self.graph.buffers.push(Buffer {
            name: name.to_owned(),
            numel,
            room: numel,
            dtype,
            origin,
            returned,
        });
        self.graph.buffers.len() - 1
    }

    /// The next buffer that the graph makes.
    pub fn made(&mut self, size: (u64, Dtype), origin: Origin, returned: bool) -> usize {
        self.next += 1;
        self.buffer(&format!("buf{}", self.next - 1), size, origin, returned)
    }

    pub fn node(&mut self, call: Call, ops: Vec<Op>) {
        self.graph.nodes.push(Node { ops, call });
    }

    /// A node of one operation that is written over nothing.
    pub fn simple(&mut self, call: Call, makes: usize, reads: &[usize]) {
        self.node(call, vec![op(makes, reads, &[])]);
    }
}

/// An operation that may be written over some of what it reads.
pub(super) fn op(makes: usize, reads: &[usize], over: &[usize]) -> Op {
    Op { makes, reads: reads.to_vec(), over: over.to_vec() }
}
