//! The sizes of a compiled layer, its arguments, and a graph of it being written.

use crate::dtype::Dtype;
use crate::step::inductor::{Buffer, Call, Graph, Node, Op, Origin};

/// The sizes of a layer, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    pub sequences: u64,
    pub tokens: u64,
    pub hidden: u64,
    pub queries: Projected,
    pub keys: Projected,
    pub width: u64,
    /// Room for a float32 number of each token.
    pub numbers: u64,
    /// One number for every query and head.
    pub log_sums: u64,
    /// Elements of the two tensors that attention's kernel leaves for its random numbers.
    pub seeds: [u64; 2],
    /// The type that products are computed in.
    pub dtype: Dtype,
    /// How the gradients of the norms' weights are summed.
    pub sums: Sums,
    pub beside: Beside,
    /// Adapters, where the layer's own weights are frozen.
    pub adapters: Option<Adapters>,
    /// Whether autocast makes `dtype` of float32 weights.
    pub autocast: bool,
}

/// LoRA's adapters of a layer whose weights are frozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Adapters {
    pub rank: u64,
    pub targets: Targets,
    /// Whether the layer's input wants a gradient.
    pub input: bool,
}

/// Which linear layers have them: what was compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Targets {
    All,
    /// Those of attention.
    Attention,
    QueriesAndValues,
}

impl Targets {
    /// Whether a linear layer has one.
    pub fn adapt(self, linear: usize) -> bool {
        match self {
            Targets::All => true,
            Targets::Attention => [QUERY, KEY, VALUE, OUTPUT].contains(&linear),
            Targets::QueriesAndValues => [QUERY, VALUE].contains(&linear),
        }
    }
}

/// Queries or keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Projected {
    /// Features of all heads.
    pub features: u64,
    pub heads: u64,
    /// Room for a float32 number of each token and head.
    pub numbers: u64,
    /// How the gradient of the bias, or of the heads' norm, is summed.
    pub sums: Sums,
}

/// What a layer has beside what llama's has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beside {
    Nothing,
    /// Biases of queries, keys and values.
    Biases,
    /// Norms of the heads of queries and keys.
    HeadNorms,
}

/// How a gradient that is a sum over all tokens is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sums {
    /// By one kernel.
    Whole,
    /// By two, the first of which leaves so many rows.
    Split(u64),
    /// By the kernel that reduces rows too, which leaves so many rows for PyTorch's own sum; with the rows that they would have been
    /// split into otherwise, if they would.
    MixOrder { rows: u64, split: Option<u64> },
}

impl Sums {
    /// Into how many rows the sums are split before kernels are fused.
    pub fn split(self) -> Option<u64> {
        match self {
            Sums::Whole => None,
            Sums::Split(rows) => Some(rows),
            Sums::MixOrder { split, .. } => split,
        }
    }

    /// Over how many rows PyTorch's own kernel sums, if it does.
    pub fn mix_order(self) -> Option<u64> {
        match self {
            Sums::Whole | Sums::Split(_) => None,
            Sums::MixOrder { rows, .. } => Some(rows),
        }
    }
}

/// What a layer is given: its input, its parameters and the rotary embedding, in the order in which a graph takes them. A linear layer's
/// weight is followed by [`bias`], [`lora_a`] and [`lora_b`].
pub(super) const HIDDEN: usize = 0;
pub(super) const FIRST_NORM: usize = 1;
pub(super) const QUERY: usize = 2;
pub(super) const QUERY_NORM: usize = 6;
pub(super) const KEY: usize = 7;
pub(super) const KEY_NORM: usize = 11;
pub(super) const VALUE: usize = 12;
pub(super) const COS: usize = 16;
pub(super) const SIN: usize = 17;
pub(super) const OUTPUT: usize = 18;
pub(super) const SECOND_NORM: usize = 22;
pub(super) const GATE: usize = 23;
pub(super) const UP: usize = 27;
pub(super) const DOWN: usize = 31;
/// The linear layers, in the order in which a graph takes them.
pub(super) const LINEARS: [usize; 7] = [QUERY, KEY, VALUE, OUTPUT, GATE, UP, DOWN];
/// So many there may be.
pub(super) const ARGUMENTS: usize = 35;

/// The bias of a linear layer.
pub(super) const fn bias(linear: usize) -> usize {
    linear + 1
}

/// The first matrix of its adapter.
pub(super) const fn lora_a(linear: usize) -> usize {
    linear + 2
}

/// The second.
pub(super) const fn lora_b(linear: usize) -> usize {
    linear + 3
}

/// The arguments that are there, in a graph's order; without what it does not need of them.
pub(super) type Arguments = [bool; ARGUMENTS];

/// A graph being written.
pub(super) struct Draft {
    pub graph: Graph,
    /// The number of the next buffer that it makes.
    next: usize,
}

impl Draft {
    /// One that is given a layer's arguments; those that it returns outlive it.
    pub fn new(given: &Arguments, is_returned: impl Fn(usize) -> bool) -> Draft {
        let mut draft = Draft::empty();
        let mut number = 0;
        for (argument, given) in given.iter().enumerate() {
            number += usize::from(*given);
            // neither its size nor its type matters: it is not the graph's to write over
            let name = format!("primals_{number}");
            draft.buffer(&name, (0, Dtype::Bf16), Origin::Argument, is_returned(argument));
        }
        draft
    }

    /// One that is given nothing yet.
    pub fn empty() -> Draft {
        Draft { graph: Graph::default(), next: 0 }
    }

    /// An argument that is not the graph's to write over, and whose size therefore does not matter.
    pub fn argument(&mut self, name: &str) -> usize {
        self.buffer(name, (0, Dtype::Bf16), Origin::Argument, false)
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
            storage_size: numel,
            dtype,
            origin,
            returned,
            of_any_tokens: false,
        });
        self.graph.buffers.len() - 1
    }

    /// What forward saved under a name.
    pub fn saved(&mut self, name: &str, size: (u64, Dtype)) -> usize {
        self.buffer(name, size, Origin::Saved, false)
    }

    /// The next buffer that the graph makes.
    pub fn made(&mut self, size: (u64, Dtype), origin: Origin, returned: bool) -> usize {
        self.next += 1;
        self.buffer(&format!("buf{}", self.next - 1), size, origin, returned)
    }

    /// One of the graph's own.
    pub fn own(&mut self, size: (u64, Dtype)) -> usize {
        self.made(size, Origin::Made, false)
    }

    /// One that it returns.
    pub fn returned(&mut self, size: (u64, Dtype)) -> usize {
        self.made(size, Origin::Made, true)
    }

    /// A number that no buffer has.
    pub fn skip(&mut self) {
        self.next += 1;
    }

    pub fn node(&mut self, call: Call, ops: Vec<Op>) {
        self.graph.nodes.push(Node { ops, call });
    }

    /// A node of one operation that is written over nothing.
    pub fn simple(&mut self, call: Call, makes: usize, reads: &[usize]) {
        self.node(call, vec![op(makes, reads, &[])]);
    }

    /// A node of one operation that may be written over all that it reads.
    pub fn simple_over(&mut self, call: Call, makes: usize, reads: &[usize]) {
        self.node(call, vec![op(makes, reads, reads)]);
    }

    /// A kernel that reduces rows and columns, and leaves so many rows for each of these sums of columns.
    pub fn mix_orders(&mut self, rows: u64, of: &[usize], ops: Vec<Op>) {
        let sums = [0, 1, 2].map(|place| of.get(place).copied());
        let columns: u64 = sums.iter().flatten().map(|sum| self.graph.buffers[*sum].numel).sum();
        let size = (rows.saturating_mul(columns), Dtype::F32);
        let workspace = self.buffer("workspace", size, Origin::Workspace, false);
        self.node(Call::MixOrderReductions { workspace, sums }, ops);
    }

    /// Memory that a call to come writes to.
    pub fn blank(&mut self, size: (u64, Dtype), returned: bool) -> usize {
        let made = self.made(size, Origin::Made, returned);
        self.simple(Call::Empty, made, &[]);
        made
    }

    /// A call that writes over buffers, and reads others: what they hold then.
    pub fn over<const N: usize>(&mut self, call: Call, over: [usize; N], reads: &[usize]) -> [usize; N] {
        let written = over.map(|of| {
            let real = self.graph.real(of);
            let buffer = &self.graph.buffers[real];
            let size = (buffer.numel, buffer.dtype);
            self.made(size, Origin::Written(real), false)
        });
        let reads = [&over[..], reads].concat();
        self.node(call, written.iter().map(|made| op(*made, &reads, &[])).collect());
        written
    }

    /// A product that is a buffer of its own.
    pub fn product(&mut self, inner: u64, size: (u64, Dtype), returned: bool, reads: &[usize]) -> usize {
        let made = self.made(size, Origin::Made, returned);
        self.simple(Call::Product(inner), made, reads);
        made
    }

    /// The graph, its nodes in the scheduler's order.
    pub fn done(mut self) -> Graph {
        self.graph.sort();
        self.graph
    }
}

/// An operation that may be written over some of what it reads.
pub(super) fn op(makes: usize, reads: &[usize], over: &[usize]) -> Op {
    Op { makes, reads: reads.to_vec(), over: over.to_vec() }
}
