//! The buffers of parameters and gradients, in buckets, and what a GPU steps of each.

use super::{Megatron, PartParam, keep};
use crate::dtype::Dtype;
use crate::memory::Category;
use crate::step::heap::{Heap, NOTHING};
use crate::step::params::Params;
use crate::step::what::{Source, What};

const BUFFERS: Source = Source::At("Megatron-core, megatron/core/distributed/param_and_grad_buffer.py");

static PARAMETERS: What = What::own(
    "parameter buffer",
    "all parameters of the model, or of a part of it that runs at a time, one behind the other",
    BUFFERS,
);
pub(super) static GRADIENTS: What = What::own(
    "gradient buffer",
    "the sums of all parameters' gradients over the micro-batches, one behind the other: there from load to end",
    BUFFERS,
);

/// Elements that a parameter of the buffer begins at a multiple of, and a bucket ends at (`_pad_start_of_param_if_needed`,
/// `_pad_end_of_bucket_if_needed`), under the distributed optimizer.
const PARAMETER_ALIGNMENT: u64 = 64;
const BUCKET_ALIGNMENT: u64 = 128;

/// What the GPUs with the same parameters have of them: those of experts have fewer copies than the rest of the model, and
/// buffers and an optimizer of their own.
#[derive(Default)]
pub(super) struct Copied {
    /// GPUs that hold them.
    pub copies: u64,
    /// Bytes of the gradients' buffers, and of their parameters.
    pub buffers: (u64, u64),
    /// Elements of each master, in the order in which they are stepped: matrices, then vectors, which have no weight decay.
    pub masters: [Vec<u64>; 2],
}

impl Copied {
    pub fn by(copies: u64) -> Copied {
        Copied { copies: copies.max(1), ..Copied::default() }
    }

    /// What the first of the GPUs that hold the same part steps of a bucket's parameters.
    fn share(&mut self, own: &mut Vec<(u64, u64, bool)>, bucket: u64) {
        let end = bucket / self.copies.max(1);
        for (start, numel, is_matrix) in own.drain(..) {
            let stepped = end.saturating_sub(start).min(numel);
            if stepped > 0 {
                self.masters[usize::from(!is_matrix)].push(stepped);
            }
        }
    }
}

fn multiple(number: u64, of: u64) -> u64 {
    number.div_ceil(of.max(1)).saturating_mul(of.max(1))
}

/// The smallest multiple of both.
fn common_multiple(a: u64, b: u64) -> u64 {
    let (mut x, mut y) = (a, b);
    while y > 0 {
        (x, y) = (y, x % y);
    }
    (a / x.max(1)).saturating_mul(b)
}

impl Megatron {
    /// `_ParamAndGradBuffer`: parameters from the last to the first. The distributed optimizer moves them into a buffer too, and
    /// gives a matrix that two stages share a bucket of its own.
    pub(super) fn make_buffers(
        &mut self,
        heap: &mut Heap,
        params: &mut Params,
        part: &[PartParam],
        kind: usize,
    ) {
        if part.is_empty() {
            return;
        }
        let copied = &mut self.copied[kind];
        let bucket_alignment = common_multiple(copied.copies, BUCKET_ALIGNMENT);
        let (mut end, mut bucket) = (0u64, 0u64);
        // parameters of the running bucket: where each lies in it
        let mut own: Vec<(u64, u64, bool)> = Vec::with_capacity(part.len());
        for PartParam { id, shared, .. } in part.iter().rev() {
            let param = &params.list[*id as usize];
            let (numel, is_matrix) = (param.numel, param.rows > 1);
            if numel == 0 {
                continue;
            }
            if !self.distributed {
                end = end.saturating_add(numel);
                continue;
            }
            end = multiple(end, PARAMETER_ALIGNMENT);
            if *shared && !own.is_empty() {
                end = bucket.saturating_add(multiple(end - bucket, bucket_alignment));
                copied.share(&mut own, end - bucket);
                bucket = end;
            }
            own.push((end - bucket, numel, is_matrix));
            end = end.saturating_add(numel);
            if *shared {
                end = bucket.saturating_add(multiple(end - bucket, bucket_alignment));
                copied.share(&mut own, end - bucket);
                bucket = end;
            }
        }
        if self.distributed {
            end = bucket.saturating_add(multiple(end - bucket, bucket_alignment));
            copied.share(&mut own, end - bucket);
            keep(heap, end, Dtype::Bf16, Category::Weights, &PARAMETERS);
        } else {
            for PartParam { id, .. } in part {
                let param = &params.list[*id as usize];
                if param.numel > 0 {
                    copied.masters[usize::from(param.rows <= 1)].push(param.numel);
                }
            }
        }
        keep(heap, end, self.reduces, Category::Gradients, &GRADIENTS);
        let (gradients, parameters) = &mut copied.buffers;
        *gradients = gradients.saturating_add(end.saturating_mul(self.reduces.bytes()));
        *parameters = parameters.saturating_add(end.saturating_mul(Dtype::Bf16.bytes()));
        if self.distributed {
            for PartParam { id, .. } in part.iter().rev() {
                let storage = std::mem::replace(&mut params.list[*id as usize].storage, NOTHING);
                heap.release(storage);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `_pad_end_of_bucket_if_needed`: `math.lcm(data_parallel_world_size, 128)`.
    #[test]
    fn buckets_end_where_every_copys_share_does() {
        for (copies, alignment) in
            [(1, 128), (3, 384), (63, 8064), (64, 128), (96, 384), (1000, 16_000), (1008, 8064)]
        {
            assert_eq!(common_multiple(copies, BUCKET_ALIGNMENT), alignment, "{copies}");
        }
    }

    /// `_build_model_gbuf_param_range_map` of distrib_optimizer.py: the first rank's part of a bucket of 1,024 elements, in which a matrix, a vector
    /// and a matrix lie, each at a multiple of 64.
    #[test]
    fn a_rank_steps_what_lies_in_its_part_of_a_bucket() {
        for (copies, matrices, vectors) in [
            (1, vec![300, 100], vec![500]),
            (2, vec![300], vec![192]),
            (4, vec![256], vec![]),
            (3, vec![300], vec![21]),
            (16, vec![64], vec![]),
        ] {
            let mut copied = Copied::by(copies);
            let mut own = vec![(0, 300, true), (320, 500, false), (832, 100, true)];
            copied.share(&mut own, 1024);
            assert_eq!(copied.masters, [matrices, vectors], "{copies}");
            assert!(own.is_empty());
        }
    }
}
