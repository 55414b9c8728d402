//! What the generated code allocates, writes over and frees, line by line.
//!
//! Sources: torch/_inductor/scheduler.py `decide_inplace_update`, `free_buffers`; codegen/wrapper.py `AllocateLine`,
//! `FreeIfNotReusedLine`, `EfficientPeakEstimate`.

use super::graph::{Call, Graph, Op, Origin};
use super::order::Plan;

/// A line of the generated code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::step) enum Line {
    /// A buffer is allocated.
    Make(usize),
    /// A buffer has the memory of another, which is gone.
    Take { made: usize, from: usize },
    /// A node runs.
    Run(usize),
    /// The code lets go of a buffer.
    Free(usize),
    /// A buffer gets its place in a pool.
    Place(usize),
}

/// A line with the step at which it stands.
#[derive(Clone, Copy)]
pub(super) struct At {
    pub line: Line,
    step: usize,
}

/// The code of a graph whose nodes run in that order.
pub(super) fn lines(graph: &Graph, order: &[usize]) -> Vec<Line> {
    reused(graph, order, written(graph, order))
}

/// The same before buffers are given the memory of others that were let go of.
pub(super) fn written(graph: &Graph, order: &[usize]) -> Vec<At> {
    let mut writer = Writer {
        graph,
        taken: vec![false; graph.buffers.len()],
        done: vec![false; order.len()],
        lines: Vec::new(),
    };
    let ends = ends(graph, order);
    for (step, node) in order.iter().enumerate() {
        writer.node(step, *node);
        let mut freed: Vec<usize> = ends[step].clone();
        freed.retain(|buffer| {
            let has_memory = !matches!(graph.buffers[*buffer].origin, Origin::Removed | Origin::Written(_));
            has_memory && !writer.taken[*buffer]
        });
        freed.sort_by(|a, b| graph.buffers[*a].name.cmp(&graph.buffers[*b].name));
        writer.lines.extend(freed.into_iter().map(|buffer| At { line: Line::Free(buffer), step }));
    }
    writer.lines
}

/// By step: the buffers that no later one uses.
fn ends(graph: &Graph, order: &[usize]) -> Vec<Vec<usize>> {
    let mut used: Vec<bool> = graph.buffers.iter().map(|buffer| buffer.returned).collect();
    let mut ends = vec![Vec::new(); order.len()];
    for (step, node) in order.iter().enumerate().rev() {
        let all = graph.reads(*node).into_iter().chain(graph.makes(*node));
        let all = all.map(|buffer| graph.real(buffer));
        ends[step] = all.filter(|buffer| !std::mem::replace(&mut used[*buffer], true)).collect();
    }
    ends
}

struct Writer<'g> {
    graph: &'g Graph,
    /// By buffer: whether another has its memory.
    taken: Vec<bool>,
    /// By node: whether it ran.
    done: Vec<bool>,
    lines: Vec<At>,
}

impl Writer<'_> {
    fn node(&mut self, step: usize, node: usize) {
        let graph = self.graph;
        for (place, op) in graph.nodes[node].ops.iter().enumerate() {
            let made =
                graph.buffers[op.makes].origin == Origin::Made && graph.nodes[node].call != Call::Nothing;
            if made {
                let line = match self.over(node, place, op) {
                    Some(from) => {
                        self.taken[from] = true;
                        Line::Take { made: op.makes, from }
                    }
                    None => Line::Make(op.makes),
                };
                self.lines.push(At { line, step });
            }
        }
        let workspace = match graph.nodes[node].call {
            Call::MixOrderReductions { workspace, .. } => Some(workspace),
            Call::Product(_)
            | Call::AddedProduct(_)
            | Call::Kernel
            | Call::Empty
            | Call::Attention
            | Call::AttentionBackward
            | Call::MultiOutput(_)
            | Call::Nothing => None,
        };
        let run = (graph.nodes[node].call != Call::Empty).then_some(Line::Run(node));
        let made = workspace.map(Line::Make);
        let freed = workspace.map(Line::Free);
        let lines = made.into_iter().chain(run).chain(freed);
        self.lines.extend(lines.map(|line| At { line, step }));
        self.done[node] = true;
    }

    /// `decide_inplace_update`: the first buffer that the operation reads, may be written over, and is the last to use.
    fn over(&self, node: usize, place: usize, op: &Op) -> Option<usize> {
        let made = &self.graph.buffers[op.makes];
        op.reads.iter().copied().find(|read| {
            let buffer = &self.graph.buffers[*read];
            let own = matches!(buffer.origin, Origin::Saved | Origin::Made | Origin::MultiOutput);
            own && op.over.contains(read)
                && !buffer.returned
                && !self.taken[*read]
                && buffer.dtype == made.dtype
                && buffer.of_any_tokens == made.of_any_tokens
                && made.storage_size <= buffer.storage_size
                && made.storage_size.saturating_mul(20) >= buffer.storage_size.saturating_mul(19)
                && !self.is_needed(*read, node, place)
        })
    }

    /// Whether an operation beside that of a node is to read a buffer.
    fn is_needed(&self, buffer: usize, node: usize, place: usize) -> bool {
        let nodes = self.graph.nodes.iter().enumerate();
        nodes.filter(|(other, _)| !self.done[*other]).any(|(other, each)| {
            let before = if other == node { ancestors(&each.ops, place) } else { Vec::new() };
            let reading = each.ops.iter().enumerate().filter(|(_, op)| op.reads.contains(&buffer));
            reading.map(|(at, _)| at).any(|at| !(other == node && (at == place || before.contains(&at))))
        })
    }
}

/// Which operations of a node one of them is computed from.
fn ancestors(ops: &[Op], place: usize) -> Vec<usize> {
    let mut all: Vec<usize> = Vec::new();
    let mut left = vec![place];
    while let Some(at) = left.pop() {
        let makes = |before: &usize| ops[at].reads.contains(&ops[*before].makes);
        for before in (0..ops.len()).filter(makes) {
            if before != at && !all.contains(&before) {
                all.push(before);
                left.push(before);
            }
        }
    }
    all
}

/// The second pass: a buffer is given the memory of one of its size that was let go of, unless that would raise the peak.
fn reused(graph: &Graph, order: &[usize], mut lines: Vec<At>) -> Vec<Line> {
    let (highest, mut steps) = Plan::of(graph).estimate(order);
    let mut pool: Vec<usize> = Vec::new();
    let mut gone = vec![false; lines.len()];
    for index in 0..lines.len() {
        let At { line, step } = lines[index];
        match line {
            Line::Free(buffer) => {
                if matches!(
                    graph.buffers[buffer].origin,
                    Origin::Made | Origin::MultiOutput | Origin::Workspace
                ) {
                    pool.push(index);
                }
            }
            Line::Make(made) => {
                let wanted = &graph.buffers[made];
                let fits = |at: &usize| match lines[*at].line {
                    Line::Free(buffer) => graph.buffers[buffer].is_like(wanted),
                    Line::Make(_) | Line::Take { .. } | Line::Run(_) | Line::Place(_) => false,
                };
                let Some(place) = pool.iter().rposition(fits) else { continue };
                let At { line: Line::Free(from), step: freed } = lines[pool[place]] else { continue };
                let between = freed + 1..step;
                // what the graph returns counts as freed before it is made, so that estimates may be negative; the tree of them starts at 0
                let peak = steps[between.clone()].iter().copied().max().unwrap_or(0).max(0);
                if between.is_empty() || wanted.bytes() + peak <= highest {
                    steps[between].iter_mut().for_each(|size| *size += wanted.bytes());
                    gone[pool.remove(place)] = true;
                    lines[index].line = Line::Take { made, from };
                }
            }
            Line::Take { .. } | Line::Run(_) | Line::Place(_) => {}
        }
    }
    lines.into_iter().zip(gone).filter(|(_, gone)| !gone).map(|(at, _)| at.line).collect()
}
