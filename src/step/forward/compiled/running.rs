//! The code of a graph while it runs.

use crate::dtype::Dtype;
use crate::memory::Category;
use crate::step::heap::{NOTHING, StorageId};
use crate::step::inductor::{Call, Graph, Line, Origin};
use crate::step::kernels;
use crate::step::machine::State;
use crate::step::what::{Source, What, torch};

const INDUCTOR: Source = Source::At("PyTorch, torch/_inductor/scheduler.py");

static PRODUCT: What = What::own(
    "mm (compiled)",
    "a matrix product of a compiled graph, saved where backward needs it",
    INDUCTOR,
);
static FUSED: What = What::own(
    "fused kernel (compiled)",
    "what a generated kernel writes: several operations in one, without what is between them",
    INDUCTOR,
);
static WORKSPACE: What = What::own(
    "workspace (compiled)",
    "partial sums over tokens that a generated kernel leaves for the gradients of norms' weights",
    INDUCTOR,
);

static POOL: What = What::own(
    "pool (compiled)",
    "several buffers of a compiled graph, which have places in one allocation where no gradients are wanted",
    Source::At("PyTorch, torch/_inductor/codegen/memory_planning.py"),
);

/// The call of attention's kernel, or of its backward, and what it returns.
pub(super) type Attend<'c> = &'c dyn Fn(&mut State, Call) -> Vec<StorageId>;

/// A graph that runs.
pub(super) struct Running<'g> {
    graph: &'g Graph,
    /// By buffer: its storage, while the code has it.
    pub held: Vec<StorageId>,
    /// By buffer: what a call returned in a tuple.
    tuples: Vec<Vec<StorageId>>,
    /// The buffers that hold logits.
    logits: Vec<usize>,
    /// By buffer: the product that makes it, as a sum of so many.
    products: Vec<Option<u64>>,
}

impl<'g> Running<'g> {
    pub fn new(graph: &'g Graph) -> Running<'g> {
        let mut products = vec![None; graph.buffers.len()];
        for node in &graph.nodes {
            if let (Call::Product(inner), [op]) = (node.call, &node.ops[..]) {
                products[op.makes] = Some(inner);
            }
        }
        let buffers = graph.buffers.len();
        Running {
            graph,
            held: vec![NOTHING; buffers],
            tuples: vec![Vec::new(); buffers],
            products,
            logits: Vec::new(),
        }
    }

    /// The same of one some of whose buffers hold logits.
    pub fn with_logits(graph: &'g Graph, logits: Vec<usize>) -> Running<'g> {
        Running { logits, ..Running::new(graph) }
    }

    /// Runs its code; `attention` is the call of attention's kernel, or of its backward.
    pub fn run(&mut self, state: &mut State, attention: Attend) {
        self.run_lines(&self.graph.lines(), state, attention);
    }

    /// The same of code that is there already.
    pub fn run_lines(&mut self, lines: &[Line], state: &mut State, attention: Attend) {
        for line in lines {
            match *line {
                Line::Make(made) => {
                    let buffer = &self.graph.buffers[made];
                    let category = state.category;
                    if self.logits.contains(&made) {
                        state.category = Category::Logits;
                    }
                    self.held[made] = match self.products[made] {
                        Some(inner) => {
                            state.alloc_product(buffer.storage_size, inner, buffer.dtype, &PRODUCT)
                        }
                        None if buffer.origin == Origin::Workspace => {
                            state.alloc(buffer.storage_size, buffer.dtype, &WORKSPACE)
                        }
                        None if buffer.origin == Origin::Pool => {
                            state.alloc(buffer.storage_size, buffer.dtype, &POOL)
                        }
                        None => state.alloc(buffer.storage_size, buffer.dtype, &FUSED),
                    };
                    state.category = category;
                }
                Line::Take { made, from } => {
                    self.held[made] = std::mem::replace(&mut self.held[from], NOTHING);
                    self.write_over(state, made);
                }
                Line::Place(made) => self.write_over(state, made),
                Line::Run(node) => self.call(state, node, attention),
                Line::Free(gone) => {
                    self.tuples[gone].drain(..).for_each(|part| state.release(part));
                    state.release(std::mem::replace(&mut self.held[gone], NOTHING));
                }
            }
        }
        self.tuples.iter_mut().flat_map(|tuple| tuple.drain(..)).for_each(|part| state.release(part));
    }

    /// Fills a buffer whose memory is there.
    fn write_over(&self, state: &mut State, made: usize) {
        let buffer = &self.graph.buffers[made];
        match self.products[made] {
            Some(inner) => state.multiply_into(buffer.numel, inner),
            None => state.write(buffer.numel.saturating_mul(buffer.dtype.bytes())),
        }
    }

    fn call(&mut self, state: &mut State, node: usize, attention: Attend) {
        match self.graph.nodes[node].call {
            Call::Product(_) | Call::Kernel | Call::Empty | Call::Nothing => {}
            Call::AddedProduct(inner) => {
                for op in &self.graph.nodes[node].ops {
                    state.multiply_into(self.graph.buffers[op.makes].numel, inner);
                }
            }
            call @ (Call::Attention | Call::AttentionBackward) => {
                let returned = attention(state, call);
                if let [op] = &self.graph.nodes[node].ops[..] {
                    self.tuples[op.makes] = returned;
                }
            }
            Call::MultiOutput(index) => {
                for op in &self.graph.nodes[node].ops {
                    let tuple = op.reads.first().map(|tuple| &self.tuples[*tuple]);
                    let part = tuple.and_then(|tuple| tuple.get(index)).copied().unwrap_or(NOTHING);
                    state.retain(part);
                    self.held[op.makes] = part;
                }
            }
            Call::MixOrderReductions { workspace, sums } => self.sum_columns(state, workspace, sums),
        }
    }

    /// Sums of columns for norms' weights: each part of the workspace is summed in float32, and cast where the weight is of another type.
    fn sum_columns(&mut self, state: &mut State, workspace: usize, sums: [Option<usize>; 3]) {
        let columns: u64 = sums.iter().flatten().map(|made| self.graph.buffers[*made].numel).sum();
        let rows = self.graph.buffers[workspace].numel / columns.max(1);
        for made in sums.into_iter().flatten() {
            let buffer = &self.graph.buffers[made];
            let mut sum = state.alloc(buffer.numel, Dtype::F32, &torch::SUM);
            kernels::column_sum_scratch(state, rows, buffer.numel, Dtype::F32);
            if buffer.dtype != Dtype::F32 {
                let cast = state.alloc(buffer.numel, buffer.dtype, &torch::CAST);
                state.release(std::mem::replace(&mut sum, cast));
            }
            state.release(std::mem::replace(&mut self.held[made], sum));
        }
    }

    /// Takes what the code returns out of its hands.
    pub fn returned(&mut self, buffer: usize) -> StorageId {
        std::mem::replace(&mut self.held[buffer], NOTHING)
    }

    /// Everything that the code still has goes when its function returns.
    pub fn end(self, state: &mut State) {
        self.held.into_iter().for_each(|storage| state.release(storage));
    }
}
