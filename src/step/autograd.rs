//! Autograd without data: the graph that forward leaves, with what its nodes save. [`engine`] walks it backwards.
//!
//! Sources: torch/csrc/autograd/{function.h,saved_variable.cpp}.

mod abandoned;
mod checkpoint;
mod derivative;
mod engine;
mod offload;
mod saved;

pub(super) use checkpoint::HELD;
pub(super) use derivative::{
    Results, chain, fresh, like, only, saved_gradient, saved_gradients, share, share_view,
};
pub(super) use offload::Offload;

use std::ops::Range;

use super::heap::{NOTHING, StorageId};
use super::machine::State;
use super::params::ParamId;
use super::tensor::{Layout, Value};
use super::what::Role;
use crate::dtype::Dtype;
use crate::memory::Category;
use checkpoint::Frame;
use derivative::{Derivative, Function};
use saved::Saved;

/// Where a gradient flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Edge {
    /// Nowhere.
    None,
    /// To output `output` of a node.
    Node {
        /// Index in the graph.
        node: u32,
        /// Which of its outputs.
        output: u8,
    },
    /// To a parameter's `.grad`.
    Param(u32),
    /// Nowhere, from a parameter that is not trained.
    Frozen(u32),
}

/// Stands for a node of the graph that a recomputation builds and throws away.
const DISCARDED: u32 = u32::MAX;

/// The edge of a leaf that a recomputation makes and throws away.
pub(super) const DISCARDED_LEAF: Edge = Edge::Node { node: DISCARDED, output: 0 };

/// A gradient on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grad {
    pub storage: StorageId,
    pub numel: u64,
    pub dtype: Dtype,
    pub layout: Layout,
    /// Whether it went through a view operation: then another tensor holds its storage too and nothing is added to it
    /// in place.
    pub view: bool,
}

impl Grad {
    /// A gradient that owns its storage.
    pub fn new(storage: StorageId, numel: u64, dtype: Dtype, layout: Layout) -> Grad {
        Grad { storage, numel, dtype, layout, view: false }
    }
}

/// The most inputs that a node has.
pub(super) const INPUTS: usize = 3;

/// What a node knows of an input: where its gradient goes, and of what size it is. It has no hold on its storage.
pub(super) type Input = Value;

impl Input {
    /// No input.
    pub const NONE: Input = Input {
        storage: NOTHING,
        edge: Edge::None,
        numel: 0,
        dtype: Dtype::U8,
        layout: Layout::Tokens,
        shape: Layout::Tokens,
        flat: false,
    };

    /// Whether a gradient is wanted.
    pub fn wants(&self) -> bool {
        self.requires_grad()
    }
}

/// What an operation broadcasts over its other operand: its gradient is a sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broadcast {
    /// A number for each row.
    Numbers,
    /// A row for all rows.
    Row,
    /// The same with an element for each head: of a gradient that lies head after head it is summed over stretches of memory.
    RowOfHeads,
}

/// A node of the graph.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub inputs: [Input; INPUTS],
    /// Range in [`Graph::saved`].
    saved: (u32, u32),
    /// First of its outputs in [`Graph::pending`].
    pending: u32,
    pub outputs: u8,
    /// Category of the gradients that it makes.
    pub category: Category,
    /// The module whose operation it is the backward of.
    module: &'static str,
    /// The layer that this is in, as [`Heap`](crate::step::heap::Heap) counts them.
    layer: u32,
    /// What that was run for.
    role: &'static Role,
    /// The checkpointed layer that it belongs to, counted from 1.
    frame: u32,
    /// What is broadcast in its operation.
    broadcast: Broadcast,
    /// Whether hooks brought back what it saved from the CPU, as dense as the shapes of its inputs are.
    pub brought_back: bool,
    /// Whether gradients of its output are added beside both, whoever owns them, as those of a DTensor are.
    beside: bool,
}

/// Nodes `first..end` stand for `times` identical runs.
#[derive(Clone, Copy, Debug)]
struct Repeated {
    first: u32,
    end: u32,
    times: u32,
}

/// The graph and the state of recording it.
pub(super) struct Graph {
    nodes: Vec<Node>,
    /// What each of those that did not run yet does in backward.
    derivatives: Vec<Derivative>,
    saved: Vec<Saved>,
    pending: Vec<Option<Grad>>,
    frames: Vec<Frame>,
    /// Whether an attention ran as PyTorch's reference implementation.
    pub math: bool,
    repeats: Vec<Repeated>,
    /// Grad mode.
    pub enabled: bool,
    /// The frame whose forward runs, counted from 1.
    recording: u32,
    /// The frame that is being recomputed, counted from 1.
    recomputing: u32,
    /// Whether checkpointed layers run without a graph at first (use_reentrant=True).
    pub reentrant: bool,
    /// Whether checkpointed layers run again to their end (`early_stop=False`), past the last variable that is missing.
    pub runs_whole: bool,
    /// Storages that nodes hold as attributes of their own: saved variables in name only, they are freed with the graph.
    held: Vec<StorageId>,
    /// The hooks that move saved variables to the CPU, where there are such.
    pub offload: Option<Box<Offload>>,
    /// What layers leave for later ones in a dictionary that all of them are given, by its key.
    pub left: [Vec<StorageId>; 2],
    /// Gradients of inputs beyond those that a node has, of a function that is about to return.
    pub beyond: Vec<(Edge, Grad)>,
    /// The gradient of the tensor that it begins with, where that came from elsewhere.
    entered: StorageId,
}

/// A graph whose backward comes after that of others.
pub(super) struct Aside {
    graph: Graph,
    /// By parameter: its uses in the graph.
    expected: Vec<u32>,
}

impl Default for Graph {
    fn default() -> Graph {
        Graph {
            nodes: Vec::with_capacity(256),
            derivatives: Vec::with_capacity(256),
            saved: Vec::with_capacity(256),
            pending: Vec::with_capacity(256),
            frames: Vec::new(),
            math: false,
            repeats: Vec::new(),
            enabled: true,
            recording: 0,
            recomputing: 0,
            reentrant: false,
            runs_whole: false,
            held: Vec::new(),
            offload: None,
            left: Default::default(),
            beyond: Vec::new(),
            entered: NOTHING,
        }
    }
}

impl Graph {
    /// Nodes so far.
    pub fn len(&self) -> u32 {
        self.nodes.len() as u32
    }

    /// Notes that the nodes since `first` stand for `times` identical runs.
    pub fn note_repeat(&mut self, first: u32, times: u32) {
        let end = self.len();
        if first < end {
            self.repeats.push(Repeated { first, end, times });
        }
    }

    /// How much its nodes hold beside their saved variables.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// What its nodes hold beside their saved variables; the caller frees it when the graph dies.
    pub fn take_held(&mut self) -> Vec<StorageId> {
        std::mem::take(&mut self.held)
    }

    /// The gradient of the tensor that it began with; the caller frees it.
    pub fn take_entered(&mut self) -> StorageId {
        std::mem::replace(&mut self.entered, NOTHING)
    }

    /// Where the gradients of a node's outputs wait.
    fn pending_of(&self, node: u32) -> std::ops::Range<usize> {
        let Node { pending, outputs, .. } = self.nodes[node as usize];
        pending as usize..pending as usize + usize::from(outputs)
    }

    fn clear(&mut self) {
        self.nodes.clear();
        self.derivatives.clear();
        self.saved.clear();
        self.pending.clear();
        self.frames.clear();
        self.repeats.clear();
    }
}

/// A node being made; `NONE` where no gradient flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeRef(u32);

impl NodeRef {
    const NONE: NodeRef = NodeRef(DISCARDED - 1);

    /// Whether it is in the graph.
    fn is_kept(self) -> bool {
        self.0 < DISCARDED - 1
    }

    /// The edge to output `output` of the node.
    pub fn output(self, output: u8) -> Edge {
        if self == NodeRef::NONE { Edge::None } else { Edge::Node { node: self.0, output } }
    }
}

impl Graph {
    /// Whether what a node saves right now stays as long as the node: checkpointing drops what the first pass of a layer saves.
    pub fn keeps(&self) -> bool {
        self.enabled && (self.recording == 0 || self.recomputing != 0)
    }

    /// Whether PyTorch records a graph right now: not in the first pass of a reentrant checkpoint, whose nodes are noted here
    /// for the second.
    pub fn is_recorded(&self) -> bool {
        self.enabled && !(self.reentrant && self.recording != 0 && self.recomputing == 0)
    }
}

impl State {
    /// Has gradients of a node's output added beside both, as those of a DTensor are.
    pub fn sum_beside(&mut self, node: NodeRef) {
        if let Some(node) = self.graph.nodes.get_mut(node.0 as usize) {
            node.beside = true;
        }
    }

    /// Starts a node if a gradient flows to any input; its derivative is given the gradient of its output.
    pub fn node<const N: usize>(
        &mut self,
        inputs: [&Input; N],
        derivative: impl FnOnce(&mut State, &Node, &mut Grad) -> Results + 'static,
    ) -> NodeRef {
        self.node_of(1, inputs, derivative)
    }

    /// The same of an operation in which what is broadcast is a row for all rows: its gradient is a sum of columns.
    pub fn row_node<const N: usize>(
        &mut self,
        inputs: [&Input; N],
        derivative: impl FnOnce(&mut State, &Node, &mut Grad) -> Results + 'static,
    ) -> NodeRef {
        self.broadcasting(Broadcast::Row, inputs, derivative)
    }

    /// The same of a row with an element for each head.
    pub fn row_of_heads_node<const N: usize>(
        &mut self,
        inputs: [&Input; N],
        derivative: impl FnOnce(&mut State, &Node, &mut Grad) -> Results + 'static,
    ) -> NodeRef {
        self.broadcasting(Broadcast::RowOfHeads, inputs, derivative)
    }

    fn broadcasting<const N: usize>(
        &mut self,
        broadcast: Broadcast,
        inputs: [&Input; N],
        derivative: impl FnOnce(&mut State, &Node, &mut Grad) -> Results + 'static,
    ) -> NodeRef {
        let node = self.node(inputs, derivative);
        if node.is_kept() {
            self.graph.nodes[node.0 as usize].broadcast = broadcast;
        }
        node
    }

    /// The same with several outputs, of which the first always has a gradient where any has.
    pub fn node_of<const N: usize>(
        &mut self,
        outputs: u8,
        inputs: [&Input; N],
        derivative: impl FnOnce(&mut State, &Node, &mut Grad) -> Results + 'static,
    ) -> NodeRef {
        let node = self.start_node(inputs, outputs);
        if node.is_kept() {
            self.graph.derivatives.push(Derivative::Own(Function::OfFirst(Box::new(derivative))));
        }
        node
    }

    /// The same with several outputs, whose derivative is given what gradients there are.
    pub fn split_node<const N: usize>(
        &mut self,
        outputs: u8,
        inputs: [&Input; N],
        derivative: impl FnOnce(&mut State, &Node, &Results) -> Results + 'static,
    ) -> NodeRef {
        let node = self.start_node(inputs, outputs);
        if node.is_kept() {
            self.graph.derivatives.push(Derivative::Own(Function::OfAll(Box::new(derivative))));
        }
        node
    }

    /// Starts the node of a split into any number of chunks, whose gradients are joined.
    pub fn chunks_node(&mut self, outputs: u8, whole: &Value) -> NodeRef {
        let node = self.start_node([whole], outputs);
        if node.is_kept() {
            self.graph.derivatives.push(Derivative::Join);
        }
        node
    }

    /// Starts the node of a stack of chunks like `chunk`, which lead to those edges and are of so many elements.
    pub fn fan(&mut self, edges: Vec<(Edge, u64)>, chunk: &Value) -> NodeRef {
        let node = self.start_node([chunk], 1);
        if node.is_kept() {
            self.graph.derivatives.push(Derivative::Fan(edges));
        }
        node
    }

    /// The edge of a tensor from elsewhere that the graph begins with: its gradient is kept.
    pub fn entry(&mut self) -> Edge {
        let graph = &mut self.graph;
        let (saved, pending) = (graph.saved.len() as u32, graph.pending.len() as u32);
        graph.pending.push(None);
        graph.nodes.push(Node {
            inputs: [Input::NONE; INPUTS],
            saved: (saved, saved),
            pending,
            outputs: 1,
            category: Category::Temporaries,
            module: "",
            layer: 0,
            role: self.heap.role,
            frame: 0,
            broadcast: Broadcast::Numbers,
            brought_back: false,
            beside: false,
        });
        graph.derivatives.push(Derivative::Own(Function::OfFirst(Box::new(|state, _, grad| {
            state.retain(grad.storage);
            state.graph.entered = grad.storage;
            [None; INPUTS]
        }))));
        Edge::Node { node: graph.nodes.len() as u32 - 1, output: 0 }
    }

    /// Leaves the graph of a forward pass for later; another one begins.
    pub fn put_aside(&mut self, own: &Range<usize>) -> Aside {
        let expected =
            self.params.list[own.clone()].iter_mut().map(|param| std::mem::take(&mut param.expected));
        let expected = expected.collect();
        Aside { graph: std::mem::take(&mut self.graph), expected }
    }

    /// Goes on with a graph that was left.
    pub fn take_up(&mut self, aside: Aside, own: &Range<usize>) {
        self.graph = aside.graph;
        for (param, expected) in self.params.list[own.clone()].iter_mut().zip(aside.expected) {
            param.expected = expected;
        }
    }

    /// Notes that the running graph, or the frame of a reentrant checkpoint in it, gives a parameter one more gradient.
    pub fn expect_in_graph(&mut self, param: ParamId) {
        match self.graph.expects_in_frame().filter(|_| !self.params.is_leaf(param)) {
            Some(expects) => expects.push(param),
            None => self.params.list[param as usize].expected += 1,
        }
    }

    fn start_node<const N: usize>(&mut self, given: [&Input; N], outputs: u8) -> NodeRef {
        let graph = &self.graph;
        if !graph.enabled || given.iter().all(|input| !input.wants()) {
            return NodeRef::NONE;
        }
        if graph.recomputing != 0 {
            return NodeRef(DISCARDED);
        }
        let mut inputs = [Input::NONE; INPUTS];
        for (input, given) in inputs.iter_mut().zip(given) {
            *input = *given;
            if let Edge::Param(param) = given.edge {
                self.expect_in_graph(param);
            }
        }
        let graph = &mut self.graph;
        let (saved, pending) = (graph.saved.len() as u32, graph.pending.len() as u32);
        graph.pending.resize(graph.pending.len() + usize::from(outputs), None);
        let frame = graph.recording;
        if let Some(running) = graph.reentrant_frame() {
            running.nodes += 1;
        }
        let category =
            if self.heap.category == Category::Logits { Category::Logits } else { Category::Temporaries };
        let (module, layer, role) = (self.heap.module, self.heap.layer, self.heap.role);
        graph.nodes.push(Node {
            inputs,
            saved: (saved, saved),
            pending,
            outputs,
            category,
            module,
            layer,
            role,
            frame,
            broadcast: Broadcast::Numbers,
            brought_back: false,
            beside: false,
        });
        NodeRef(graph.nodes.len() as u32 - 1)
    }
}
