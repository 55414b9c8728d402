use super::*;
use crate::hardware::Device;
use crate::hardware::Gpu;

/// The bytes that each reduction lays out in one tensor, of two ranks and two parameters.
fn flattened(numels: [u64; 2], bucket_size: u64, waiting: &[u32]) -> Vec<u64> {
    let mut cluster = Cluster { gpus: 2, sharding: Sharding::Zero2, ..Cluster::ONE };
    cluster.deepspeed.reduce_bucket = bucket_size;
    let [first, second] = numels;
    let trained = |id, numel, offset| Trained { id, numel, group: 0, offset, arrived: true };
    let zero = Zero {
        trained: vec![trained(0, first, 0), trained(1, second, first)],
        partitions: vec![(first + second) / 2],
        elements: waiting.iter().map(|place| numels[*place as usize]).sum(),
        waiting: waiting.to_vec(),
        ..Zero::of(cluster, Dtype::Bf16, false, Bytes::gib(80.))
    };
    let mut heap = Heap::new(Device::of(&Gpu::custom(Bytes::gib(24.0))), None);
    let before = heap.storages.len();
    zero.average(&mut heap);
    heap.storages[before..].iter().map(|storage| storage.requested).collect()
}

#[test]
fn what_falls_to_one_rank_is_reduced_where_it_is() {
    assert_eq!(flattened([512, 512], 1000, &[0]), [0; 0]);
    assert_eq!(flattened([512, 512], 2000, &[0, 1]), [2048]);
    // it lies across both ranks
    assert_eq!(flattened([24, 1000], 2000, &[1]), [2000]);
}

#[test]
fn a_gradient_beyond_the_bucket_is_reduced_piece_by_piece() {
    // 488 elements of the first rank, then 512 of the second: neither fills the bucket alone
    assert_eq!(flattened([24, 1000], 600, &[1]), [2000]);
    // the first is more than a bucket: a slice by itself, twice
    assert_eq!(flattened([24, 1000], 100, &[1]), [0; 0]);
}
