//! inductor's choices about the memory of a compiled graph, of which everything is known but the order: which of its kernels runs
//! when, which buffer is written over another, which is freed where, which have places in one allocation.
//!
//! A graph here is what inductor's scheduler has once it has fused what it fuses: nodes, each of them a kernel or a call, over
//! buffers. What fuses is the caller's to know; [`order`] and [`code`] do with it what PyTorch 2.11 does.

mod code;
mod graph;
mod order;
mod pools;

pub(in crate::step) use code::Line;
pub(in crate::step) use graph::{Buffer, Call, Graph, Node, Op, Origin};

impl Graph {
    /// The lines of its code.
    pub fn lines(&self) -> Vec<Line> {
        let order = order::best(self);
        code::lines(self, &order)
    }

    /// The lines of its code where it needs no gradients and memory is planned (`config.memory_planning`): its buffers have places in
    /// pools, which become buffers of the graph. What it returns has a pool of its own.
    pub fn pooled_lines(&mut self) -> Vec<Line> {
        let order = order::best(self);
        let lines = code::written(self, &order);
        pools::planned(self, lines.into_iter().map(|at| at.line).collect())
    }
}
