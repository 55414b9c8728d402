//! What operations compute and move, counted as they run.

use super::Heap;
use crate::work::{Group, Sent};

/// How many groups of a product ATen starts one after the other while Python starts one operation (1.13 µs against 8.05 µs on the
/// null device: `tools/started_groups.py`).
const GROUPS_OF_AN_OPERATION: u64 = 7;

impl Heap {
    /// Counts a product of so many elements, each the sum of `inner` products.
    pub fn multiply(&mut self, numel: u64, inner: u64) {
        if !self.stopped && self.handed.is_none() {
            let flops = numel.saturating_mul(inner).saturating_mul(2);
            let more = flops.saturating_mul(u64::from(self.repeating));
            self.work.products = self.work.products.saturating_add(more);
        }
    }

    /// Counts a product of rows with one of `groups` matrices each, which are `bytes` in all: one operation, or one for each.
    pub fn multiply_groups(&mut self, multiplied: u64, groups: u64, bytes: u64, is_fused: bool) {
        self.multiply(multiplied, 1);
        self.read_operand(bytes);
        if !self.stopped {
            let times = u64::from(self.repeating);
            let further = if is_fused { 0 } else { groups / GROUPS_OF_AN_OPERATION };
            self.work.operations = self.work.operations.saturating_add(further.saturating_mul(times));
        }
    }

    /// Counts so many bytes of a weight, of keys or values that a product reads.
    pub fn read_operand(&mut self, bytes: u64) {
        if !self.stopped {
            let more = bytes.saturating_mul(u64::from(self.repeating));
            self.work.read = self.work.read.saturating_add(more);
        }
    }

    /// Counts what a fused attention kernel multiplies.
    pub fn attend(&mut self, flops: u64) {
        if !self.stopped && self.handed.is_none() {
            let more = flops.saturating_mul(u64::from(self.repeating));
            self.work.attention = self.work.attention.saturating_add(more);
        }
    }

    /// Counts an operation that writes so much, where nothing is allocated for it.
    pub fn write(&mut self, bytes: u64) {
        if !self.stopped {
            let times = u64::from(self.repeating);
            self.work.written = self.work.written.saturating_add(bytes.saturating_mul(times));
            self.work.operations = self.work.operations.saturating_add(times);
        }
    }

    /// Counts a collective operation in which every of so many GPUs sends all but its own part of so much: an all-gather, a
    /// reduce-scatter, or half of an all-reduce.
    pub fn send_around(&mut self, group: Group, bytes: u64, gpus: u64) {
        self.send(group, bytes / gpus.max(1) * gpus.saturating_sub(1));
    }

    /// Counts bytes that go to another GPU.
    pub fn send(&mut self, group: Group, bytes: u64) {
        if !self.stopped {
            let bytes = bytes.saturating_mul(u64::from(self.repeating));
            self.work.sent = self.work.sent.and(Sent::to(group, bytes));
        }
    }
}
