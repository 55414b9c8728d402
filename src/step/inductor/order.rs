//! The order in which a graph's nodes run: of four, the first of those with the lowest estimated peak.
//!
//! Source: torch/_inductor/memory.py `reorder_for_peak_memory`.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use super::graph::{Graph, Origin};

/// What `prepare_planning_info` knows of a graph.
pub(super) struct Plan<'g> {
    graph: &'g Graph,
    /// By buffer: what making it allocates, and what its end frees.
    sizes: Vec<(i128, i128)>,
    /// By buffer: the nodes that read it and do not make it.
    readers: Vec<BTreeSet<usize>>,
    /// By node: what it makes is allocated.
    allocated: Vec<i128>,
    /// By node: those whose buffers it reads.
    before: Vec<BTreeSet<usize>>,
    /// By node: those that read its buffers.
    after: Vec<BTreeSet<usize>>,
    /// By node: the buffers that it reads and that may be freed.
    inputs: Vec<Vec<usize>>,
}

impl<'g> Plan<'g> {
    pub fn of(graph: &'g Graph) -> Plan<'g> {
        let (nodes, buffers) = (graph.nodes.len(), &graph.buffers);
        let makers = graph.makers();
        let mut plan = Plan {
            graph,
            sizes: buffers.iter().map(|buffer| own_sizes(buffer.origin, buffer.bytes())).collect(),
            readers: vec![BTreeSet::new(); buffers.len()],
            allocated: vec![0; nodes],
            before: vec![BTreeSet::new(); nodes],
            after: vec![BTreeSet::new(); nodes],
            inputs: vec![Vec::new(); nodes],
        };
        for node in 0..nodes {
            // who reads what was written over a buffer reads the buffer
            let mut reads = graph.reads(node);
            for at in 0..reads.len() {
                let real = graph.real(reads[at]);
                if !reads.contains(&real) {
                    reads.push(real);
                }
            }
            for read in reads {
                if let Some(maker) = makers[read] {
                    plan.before[node].insert(maker);
                    plan.after[maker].insert(node);
                }
                if buffers[read].origin != Origin::Argument {
                    plan.readers[read].insert(node);
                    plan.inputs[node].push(read);
                }
                // a tuple is as large as what is taken of it, which is freed one by one
                if buffers[read].origin == Origin::MultiOutputLayout {
                    let parts: i128 = graph.makes(node).map(|part| buffers[part].bytes()).sum();
                    plan.sizes[read].0 += parts;
                }
            }
        }
        for node in 0..nodes {
            plan.allocated[node] = graph.makes(node).map(|buffer| plan.sizes[buffer].0).sum();
        }
        plan
    }

    /// `estimate_peak_memory`: the peak of an order, and what is there at each of its steps. What the graph returns counts as freed
    /// before the first.
    pub fn estimate(&self, order: &[usize]) -> (i128, Vec<i128>) {
        let mut step_of = vec![0; order.len()];
        order.iter().enumerate().for_each(|(step, node)| step_of[*node] = step);
        let mut changes = vec![0; order.len() + 1];
        let makers = self.graph.makers();
        for (index, buffer) in self.graph.buffers.iter().enumerate() {
            let made = makers[index].map(|node| step_of[node]);
            if made.is_none() && matches!(buffer.origin, Origin::Argument | Origin::Workspace) {
                continue;
            }
            let start = made.unwrap_or(0);
            let last = self.readers[index].iter().map(|node| step_of[*node]).max();
            let end = if buffer.returned { 0 } else { last.unwrap_or(start) + 1 };
            changes[start] += self.sizes[index].0;
            changes[end] -= self.sizes[index].1;
        }
        let mut now = 0;
        let steps: Vec<i128> = changes
            .into_iter()
            .map(|change| {
                now += change;
                now
            })
            .collect();
        (steps.iter().copied().max().unwrap_or(0).max(0), steps)
    }

    /// `topological_sort_lpmf`: greedily the node that leaves least, among those that do not raise the peak where there are such.
    fn least_peak_first(&self) -> Vec<usize> {
        let buffers = &self.graph.buffers;
        let mut waiting: Vec<usize> = self.before.iter().map(BTreeSet::len).collect();
        let mut uses: Vec<usize> = (self.readers.iter().zip(buffers))
            .map(|(readers, buffer)| readers.len() + usize::from(buffer.returned))
            .collect();
        let made = self.graph.makers();
        let saved = |index: &usize| {
            made[*index].is_none() && matches!(buffers[*index].origin, Origin::Saved | Origin::Shared)
        };
        let mut live: i128 = (0..buffers.len()).filter(saved).map(|index| self.sizes[index].1).sum();
        let freeable = |index: &usize| made[*index].is_some() || saved(index);
        let returned: i128 = (0..buffers.len())
            .filter(|index| buffers[*index].returned && freeable(index))
            .map(|index| self.sizes[index].1)
            .sum();
        let mut highest = live.max(returned);
        let mut freed = vec![0; self.before.len()];
        for (node, freed) in freed.iter_mut().enumerate() {
            let last_used = self.inputs[node].iter().filter(|buffer| uses[**buffer] == 1).copied();
            let unused = self.graph.makes(node).filter(|buffer| uses[*buffer] == 0);
            *freed += last_used.chain(unused).map(|buffer| self.sizes[buffer].1).sum::<i128>();
        }
        let mut ready: BTreeSet<usize> = (0..waiting.len()).filter(|node| waiting[*node] == 0).collect();
        let mut order = Vec::with_capacity(waiting.len());
        loop {
            let gap = highest - live;
            let key = |node: &usize| {
                let size = self.allocated[*node];
                (if size > gap { size } else { 0 }, size - freed[*node], *node)
            };
            let Some(node) = ready.iter().copied().min_by_key(key) else { return order };
            ready.remove(&node);
            order.push(node);
            live += self.allocated[node];
            highest = highest.max(live);
            live -= freed[node];
            for next in &self.after[node] {
                waiting[*next] -= 1;
                if waiting[*next] == 0 {
                    ready.insert(*next);
                }
            }
            for buffer in &self.inputs[node] {
                uses[*buffer] -= 1;
                if uses[*buffer] == 1 {
                    self.readers[*buffer].iter().for_each(|reader| freed[*reader] += self.sizes[*buffer].1);
                }
            }
        }
    }

    /// `topological_sort_bfs`: first the node whose predecessors ran first.
    fn breadth_first(&self) -> Vec<usize> {
        let mut waiting: Vec<usize> = self.before.iter().map(BTreeSet::len).collect();
        let mut ran = vec![0; waiting.len()];
        let mut ready: BinaryHeap<Reverse<(Vec<usize>, usize)>> = (0..waiting.len())
            .filter(|node| waiting[*node] == 0)
            .map(|node| Reverse((Vec::new(), node)))
            .collect();
        let mut order = Vec::with_capacity(waiting.len());
        while let Some(Reverse((_, node))) = ready.pop() {
            ran[node] = order.len();
            order.push(node);
            for next in &self.after[node] {
                waiting[*next] -= 1;
                if waiting[*next] == 0 {
                    let mut orders: Vec<usize> = self.before[*next].iter().map(|node| ran[*node]).collect();
                    orders.sort_unstable();
                    ready.push(Reverse((orders, *next)));
                }
            }
        }
        order
    }

    /// `topological_sort_dfs`: from the node that reads and makes least, after those that it needs.
    fn depth_first(&self) -> Vec<usize> {
        let read = |node: usize| self.inputs[node].iter().map(|buffer| self.sizes[*buffer].1).sum::<i128>();
        let sizes: Vec<i128> = (0..self.before.len()).map(|node| self.allocated[node] + read(node)).collect();
        let mut seen = vec![false; sizes.len()];
        let mut order = Vec::with_capacity(sizes.len());
        let mut starts: Vec<usize> = (0..sizes.len()).collect();
        starts.sort_by_key(|node| (sizes[*node], *node));
        starts.into_iter().for_each(|node| self.visit(node, &sizes, &mut seen, &mut order));
        order
    }

    fn visit(&self, node: usize, sizes: &[i128], seen: &mut [bool], order: &mut Vec<usize>) {
        if std::mem::replace(&mut seen[node], true) {
            return;
        }
        let mut needed: Vec<usize> = self.before[node].iter().copied().collect();
        needed.sort_by_key(|node| (sizes[*node], *node));
        needed.into_iter().for_each(|node| self.visit(node, sizes, seen, order));
        order.push(node);
    }
}

/// `compute_size_for_scheduler_buffer`.
fn own_sizes(origin: Origin, bytes: i128) -> (i128, i128) {
    match origin {
        Origin::Argument
        | Origin::Workspace
        | Origin::MultiOutputLayout
        | Origin::Written(_)
        | Origin::Pool => (0, 0),
        Origin::MultiOutput => (0, bytes),
        Origin::Saved | Origin::Shared | Origin::Made | Origin::Removed => (bytes, bytes),
    }
}

/// `reorder_for_peak_memory`.
pub(super) fn best(graph: &Graph) -> Vec<usize> {
    let plan = Plan::of(graph);
    let first: Vec<usize> = (0..graph.nodes.len()).collect();
    let mut best = (plan.estimate(&first).0, first);
    for order in [plan.least_peak_first(), plan.breadth_first(), plan.depth_first()] {
        let peak = plan.estimate(&order).0;
        if peak < best.0 {
            best = (peak, order);
        }
    }
    best.1
}
