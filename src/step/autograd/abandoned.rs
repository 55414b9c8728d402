//! Parts of the graph that nothing holds any more: they go before there is a backward pass.

use std::ops::Range;

use super::Edge;
use crate::step::machine::State;

impl State {
    /// Frees what these nodes save, as PyTorch does when the last tensor goes that they lead to. No gradient comes to them.
    pub fn abandon(&mut self, nodes: Range<u32>) {
        for index in nodes.rev() {
            let Some(node) = self.graph.nodes.get(index as usize).copied() else { continue };
            let by_itself = node.frame != 0 && self.graph.reentrant;
            for input in node.inputs {
                let Edge::Param(param) = input.edge else { continue };
                if !by_itself || self.params.is_leaf(param) {
                    let expected = &mut self.params.list[param as usize].expected;
                    *expected = expected.saturating_sub(1);
                }
            }
            self.release_saved(&node, true);
            self.release_saved(&node, false);
            self.leave_frame(&node);
            let left = &mut self.graph.nodes[index as usize];
            left.saved.1 = left.saved.0;
            left.frame = 0;
        }
    }
}
