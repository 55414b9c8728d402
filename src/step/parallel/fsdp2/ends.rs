//! What accelerate, torchtune or torchtitan cuts off the root: the units at a model's ends, and when each of them is gathered.

use super::Fsdp2;

/// When a unit at the model's ends is gathered, which accelerate, torchtune or torchtitan cuts off the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::step) enum Gathered {
    /// Around the look-up of the tokens, as a layer is.
    ForTokens,
    /// From there on until backward is over. trl's fused head does not call the output head, which is one of its modules, so that
    /// nothing tells when its forward is over (`_register_group_forward_hooks`).
    FromTokens,
    /// From the last norm on until the norm's backward is over. Where the output head is not called, nothing tells that its forward is
    /// over.
    FromNorm,
    /// The same, of the norm alone: accelerate takes no head that rewards for an output head.
    ForNorm,
    /// From the output head's product on, which is alone in it; never where the head is not called.
    ForHead,
    /// Around each call of the output head, as a layer is: torchtune's, which is called for one chunk of the logits after the other.
    ForChunks,
}

impl Fsdp2 {
    /// The unit at the model's ends that is gathered at that time.
    fn end(&self, gathered: Gathered) -> Option<usize> {
        let place = self.ends.iter().position(|own| *own == gathered)?;
        Some(self.root() - self.ends.len() + place)
    }

    /// The unit that the look-up of the tokens needs, and whether it is over with that.
    pub fn of_tokens(&self) -> Option<(usize, bool)> {
        let for_tokens = self.end(Gathered::ForTokens).map(|unit| (unit, true));
        for_tokens.or_else(|| self.end(Gathered::FromTokens).map(|unit| (unit, false)))
    }

    /// The unit that the last norm is in, where that is not the root. In a further pass before backward nothing happens to it: its hooks
    /// wait for the output head to be called (`_register_group_forward_hooks`).
    pub fn of_norm(&self) -> Option<usize> {
        self.end(Gathered::FromNorm).filter(|_| self.passes <= 1).or_else(|| self.end(Gathered::ForNorm))
    }

    /// The unit that the output head alone is in.
    pub fn of_head(&self) -> Option<usize> {
        self.end(Gathered::ForHead)
    }

    /// The unit of an output head that is called for one chunk of the logits after the other.
    pub fn of_chunks(&self) -> Option<usize> {
        self.end(Gathered::ForChunks)
    }

    /// The unit that is never resharded after its forward pass, with what comes last in it: the head, or the norm of a model that
    /// rewards.
    fn tail(&self) -> Option<usize> {
        let tail = |gathered: &Gathered| !matches!(gathered, Gathered::ForTokens | Gathered::ForChunks);
        let place = self.ends.iter().position(tail)?;
        Some(self.root() - self.ends.len() + place)
    }

    pub(super) fn is_tail(&self, unit: usize) -> bool {
        self.tail() == Some(unit)
    }

    /// All modules of the tail were called: which unit that is. It takes its place behind the last layer in the order in which units
    /// are gathered ahead in backward, the root's behind it.
    pub fn call_tail(&mut self) -> Option<usize> {
        let (tail, root) = (self.tail()?, self.root());
        self.units[tail].before = self.last_layer;
        self.units[root].before = Some(tail);
        Some(tail)
    }
}
