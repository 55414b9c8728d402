//! What a step computes and moves, counted by its operations as they run.

use serde::{Deserialize, Serialize};

/// What operations do, beside the memory that they take: recomputation, weights without a gradient and experts that are not
/// chosen are in it, or not in it, because their operations ran, or did not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Work {
    /// Floating-point operations of matrix products, two for a multiplication and its addition.
    pub products: u64,
    /// The same of attention's fused kernels, whose scores nobody writes down. A causal mask halves them.
    pub attention: u64,
    /// Bytes that operations write: their results and what they need meanwhile.
    pub written: u64,
    /// Operations that write anything.
    pub operations: u64,
}

impl Work {
    /// Floating-point operations of both kinds.
    pub const fn flops(&self) -> u64 {
        self.products.saturating_add(self.attention)
    }

    /// This and that.
    pub const fn and(self, other: Work) -> Work {
        Work {
            products: self.products.saturating_add(other.products),
            attention: self.attention.saturating_add(other.attention),
            written: self.written.saturating_add(other.written),
            operations: self.operations.saturating_add(other.operations),
        }
    }

    /// As often as that.
    pub const fn times(self, times: u64) -> Work {
        Work {
            products: self.products.saturating_mul(times),
            attention: self.attention.saturating_mul(times),
            written: self.written.saturating_mul(times),
            operations: self.operations.saturating_mul(times),
        }
    }

    /// What was done since it was as `before`.
    pub const fn since(self, before: Work) -> Work {
        Work {
            products: self.products.saturating_sub(before.products),
            attention: self.attention.saturating_sub(before.attention),
            written: self.written.saturating_sub(before.written),
            operations: self.operations.saturating_sub(before.operations),
        }
    }
}
