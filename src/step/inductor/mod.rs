//! inductor's choices about the memory of a compiled graph, of which everything is known but the order: which of its kernels runs
//! when, which buffer is written over another, which is freed where.
//!
//! A graph here is what inductor's scheduler has once it has fused what it fuses: nodes, each of them a kernel or a call, over
//! buffers. What fuses is the caller's to know; [`order`] and [`code`] do with it what PyTorch 2.11 does.

mod code;
mod graph;
mod order;

pub(in crate::step) use code::Line;
pub(in crate::step) use graph::{Buffer, Call, Graph, Node, Op, Origin};

impl Graph {
    /// The lines of its code.
    pub fn lines(&self) -> Vec<Line> {
        let order = order::best(self);
        code::lines(self, &order)
    }
}
