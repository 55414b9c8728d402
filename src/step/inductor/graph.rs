//! A graph as inductor's scheduler has it.

use crate::dtype::Dtype;

/// Where a buffer comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::step) enum Origin {
    /// An argument that the caller holds as well: a parameter, the layer's input, the gradient of its output.
    Argument,
    /// What forward saved for backward: nobody else has it (`DonatedBuffer`).
    Saved,
    /// What forward saved and somebody else has as well: it counts as freed after its last use, and nothing is written over it.
    Shared,
    /// What a call returns in one tuple with others.
    MultiOutput,
    /// That tuple.
    MultiOutputLayout,
    /// The graph's own.
    Made,
    /// A kernel's workspace, of which the scheduler knows nothing (`WorkspaceArg`).
    Workspace,
    /// Stays within one kernel and is never allocated (`removed_buffers`); the scheduler counts it all the same.
    Removed,
    /// What another buffer holds once a call has written over it (`mutation_real_name`): a name without memory of its own.
    Written(usize),
    /// Memory that several buffers have in turns or beside each other (`AllocationPool`).
    Pool,
}

/// A buffer of a graph.
#[derive(Clone, Debug)]
pub(in crate::step) struct Buffer {
    /// Its name in the generated code: what goes at once goes in the order of the names.
    pub name: String,
    pub numel: u64,
    /// Elements that its memory has room for (`get_allocation_storage_size`): more than it has where its rows are padded.
    pub storage_size: u64,
    pub dtype: Dtype,
    pub origin: Origin,
    /// Whether the graph returns it.
    pub returned: bool,
    /// Whether its size is one for any number of tokens: the graph was compiled for all of them, and equal sizes of this and of
    /// another kind are not known to be equal (`sympy_str` of sizes).
    pub of_any_tokens: bool,
}

impl Buffer {
    pub(super) fn bytes(&self) -> i128 {
        i128::from(self.numel) * i128::from(self.dtype.bytes())
    }

    /// Whether one that is let go of may be given to the other (`buffer_reuse_key`).
    pub(super) fn is_like(&self, other: &Buffer) -> bool {
        let key = |of: &Buffer| (of.storage_size, of.dtype, of.of_any_tokens);
        key(self) == key(other)
    }
}

/// An operation of the graph's, as it was before operations were fused.
#[derive(Clone, Debug)]
pub(in crate::step) struct Op {
    pub makes: usize,
    /// The buffers that it reads, in its order.
    pub reads: Vec<usize>,
    /// Those among them that it may be written over.
    pub over: Vec<usize>,
}

/// A kernel or a call.
#[derive(Clone, Debug)]
pub(in crate::step) struct Node {
    pub ops: Vec<Op>,
    pub call: Call,
}

/// What runs when a node does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::step) enum Call {
    /// A matrix product each of whose elements is the sum of so many.
    Product(u64),
    /// A matrix product that is added to what it is written over.
    AddedProduct(u64),
    /// A generated kernel.
    Kernel,
    /// Memory for a call to come (`NopKernelSchedulerNode`).
    Empty,
    /// A generated kernel that reduces rows and columns at once, and leaves partial sums of columns in a workspace for PyTorch's own
    /// kernels, which sum them into these buffers (`FusedMixOrderReductions`).
    MixOrderReductions { workspace: usize, sums: [Option<usize>; 3] },
    /// Attention.
    Attention,
    /// Its backward.
    AttentionBackward,
    /// An element of a tuple.
    MultiOutput(usize),
    /// Nothing: another node has done it.
    Nothing,
}

/// A graph whose operations were fused, in the scheduler's first order.
#[derive(Clone, Debug, Default)]
pub(in crate::step) struct Graph {
    pub buffers: Vec<Buffer>,
    pub nodes: Vec<Node>,
}

impl Graph {
    /// Puts the nodes in the order in which the scheduler first has them (scheduler.py `fuse_nodes_once`,
    /// `topological_sort_schedule`): by what they make first, each after those whose buffers it reads, these by the buffers' names.
    pub fn sort(&mut self) {
        let nodes = std::mem::take(&mut self.nodes);
        let mut left: Vec<Option<Node>> = nodes.into_iter().map(Some).collect();
        left.sort_by_key(|node| node.iter().flat_map(|node| &node.ops).map(|op| op.makes).min());
        let mut makers = vec![None; self.buffers.len()];
        for (place, node) in left.iter().enumerate() {
            node.iter().flat_map(|node| &node.ops).for_each(|op| makers[op.makes] = Some(place));
        }
        for place in 0..left.len() {
            self.put(place, &makers, &mut left);
        }
    }

    fn put(&mut self, place: usize, makers: &[Option<usize>], left: &mut [Option<Node>]) {
        let Some(node) = left[place].take() else { return };
        let mut reads: Vec<usize> = node.ops.iter().flat_map(|op| op.reads.iter().copied()).collect();
        reads.sort_by(|a, b| self.buffers[*a].name.cmp(&self.buffers[*b].name));
        reads.into_iter().filter_map(|read| makers[read]).for_each(|maker| self.put(maker, makers, left));
        self.nodes.push(node);
    }

    /// The buffer whose memory one has.
    pub fn real(&self, buffer: usize) -> usize {
        match self.buffers[buffer].origin {
            Origin::Written(real) => real,
            _ => buffer,
        }
    }

    pub(super) fn makes(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
        self.nodes[node].ops.iter().map(|op| op.makes)
    }

    /// The buffers that a node reads and does not make itself.
    pub(super) fn reads(&self, node: usize) -> Vec<usize> {
        let own: Vec<usize> = self.makes(node).collect();
        let mut reads = Vec::new();
        for read in self.nodes[node].ops.iter().flat_map(|op| &op.reads) {
            if !own.contains(read) && !reads.contains(read) {
                reads.push(*read);
            }
        }
        reads
    }

    /// The node that makes each buffer, if one does.
    pub(super) fn makers(&self) -> Vec<Option<usize>> {
        let mut makers = vec![None; self.buffers.len()];
        for node in 0..self.nodes.len() {
            self.makes(node).for_each(|buffer| makers[buffer] = Some(node));
        }
        makers
    }
}
