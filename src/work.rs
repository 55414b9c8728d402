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
    /// Bytes of weights, keys and values that products and attention's kernels read: where they are given few tokens, that takes
    /// longer than multiplying.
    pub read: u64,
    /// Operations that write anything.
    pub operations: u64,
    /// Bytes that the GPU sends to others.
    pub sent: Sent,
}

/// Bytes that a GPU sends to others, and is sent as many, by whom they go around among. An all-gather or a reduce-scatter among n
/// of them sends (n - 1)/n of the whole, an all-reduce twice that: the least that it takes, and what rings reach (Patarasuk and
/// Yuan 2009, "Bandwidth optimal all-reduce algorithms"; NVIDIA/nccl-tests, doc/PERFORMANCE.md).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Sent {
    /// Those that train the same weights, whole or in shards, on other sequences.
    pub data: u64,
    /// Those that keep the same shard, where the model is there several times.
    pub replicas: u64,
    /// Those that each layer is divided among.
    pub tensor: u64,
    /// The stages before and behind in a pipeline.
    pub stages: u64,
}

/// Whom bytes go to: a field of [`Sent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// [`Sent::data`].
    Data,
    /// [`Sent::replicas`].
    Replicas,
    /// [`Sent::tensor`].
    Tensor,
    /// [`Sent::stages`].
    Stages,
}

impl Sent {
    /// So much to one group.
    pub fn to(group: Group, bytes: u64) -> Sent {
        let mut sent = Sent::default();
        match group {
            Group::Data => sent.data = bytes,
            Group::Replicas => sent.replicas = bytes,
            Group::Tensor => sent.tensor = bytes,
            Group::Stages => sent.stages = bytes,
        }
        sent
    }

    /// All of it.
    pub const fn total(&self) -> u64 {
        self.data.saturating_add(self.replicas).saturating_add(self.tensor).saturating_add(self.stages)
    }

    /// This and that.
    pub fn and(self, other: Sent) -> Sent {
        self.each(other, u64::saturating_add)
    }

    fn each(self, other: Sent, join: fn(u64, u64) -> u64) -> Sent {
        Sent {
            data: join(self.data, other.data),
            replicas: join(self.replicas, other.replicas),
            tensor: join(self.tensor, other.tensor),
            stages: join(self.stages, other.stages),
        }
    }
}

impl Work {
    /// Floating-point operations of both kinds.
    pub const fn flops(&self) -> u64 {
        self.products.saturating_add(self.attention)
    }

    /// This and that.
    pub fn and(self, other: Work) -> Work {
        self.each(other, u64::saturating_add)
    }

    /// As often as that.
    pub fn times(self, times: u64) -> Work {
        self.each(Work::all(times), u64::saturating_mul)
    }

    /// Where `run` runs, all alike, did this, what `times` of them do.
    pub fn of_more(self, run: u64, times: u64) -> Work {
        self.each(Work::all(run.max(1)), |whole, run| whole / run).times(times)
    }

    /// What was done since it was as `before`.
    pub fn since(self, before: Work) -> Work {
        self.each(before, u64::saturating_sub)
    }

    /// That number of everything.
    fn all(number: u64) -> Work {
        let sent = Sent { data: number, replicas: number, tensor: number, stages: number };
        Work { products: number, attention: number, written: number, read: number, operations: number, sent }
    }

    fn each(self, other: Work, join: fn(u64, u64) -> u64) -> Work {
        Work {
            products: join(self.products, other.products),
            attention: join(self.attention, other.attention),
            written: join(self.written, other.written),
            read: join(self.read, other.read),
            operations: join(self.operations, other.operations),
            sent: self.sent.each(other.sent, join),
        }
    }
}
