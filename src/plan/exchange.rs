//! How long GPUs take to send each other what the step says that they send ([`crate::work::Sent`]), and what of it they wait for.
//!
//! Rates are those of the wire: NVLink or PCIe within a machine by the card's data sheet, and between machines a network adapter
//! for each GPU. What collectives really reach lies below that, which the upper end of the range leaves room for: there nothing is
//! hidden behind what is computed.

use crate::hardware::Gpu;
use crate::issue::{Field, Issue, Severity};
use crate::scenario::software::Trainer;
use crate::scenario::{Cluster, Scenario, Sharding};
use crate::units::grouped;
use crate::work::Sent;

/// Seconds that a step's exchange takes at the rates of the wires.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Exchange {
    /// While the GPU computes.
    pub beside: f64,
    /// While it waits.
    pub apart: f64,
}

/// What the bytes that a GPU sends in a step take.
///
/// # Errors
/// Where no rate is known.
pub(super) fn exchange(sent: Sent, scenario: &Scenario, gpu: &Gpu) -> Result<Exchange, Issue> {
    let cluster = scenario.cluster;
    if sent.total() == 0 {
        return Ok(Exchange::default());
    }
    let wires = Wires::of(gpu, &cluster)?;
    let seconds = |bytes: u64, rate: f64| bytes as f64 / rate;
    if scenario.software().trainer == Trainer::Megatron {
        // ranks lie by tensor, then copies, then stages (`order="tp-cp-ep-dp-pp"` of megatron/core/parallel_state.py)
        let layout = cluster.layout;
        // those that share sequences are among the copies
        let copies = cluster.gpus / layout.parts().max(1);
        let apart = seconds(sent.tensor, wires.around(layout.tensor, 1))
            + seconds(sent.data, wires.around(copies, layout.tensor))
            + seconds(sent.stages, wires.to_neighbour(layout.pipeline, layout.tensor.saturating_mul(copies)));
        return Ok(Exchange { beside: 0.0, apart });
    }
    // the last dimension of the mesh is that of layers: its GPUs are neighbours
    let parts = scenario.divided().tensor.max(1);
    let shards = cluster.gpus / cluster.replicas.max(1) / parts;
    let all = seconds(sent.data, wires.around(shards, parts))
        + seconds(sent.replicas, wires.around(cluster.replicas, shards));
    // so are those that share a sequence, which are among those that have the shards
    let within = seconds(sent.tensor, wires.around(parts.max(scenario.contexts()), 1));
    Ok(if is_hidden(cluster) {
        Exchange { beside: all, apart: within }
    } else {
        Exchange { beside: 0.0, apart: all + within }
    })
}

/// Whether an engine sends while it computes.
fn is_hidden(cluster: Cluster) -> bool {
    match cluster.sharding {
        Sharding::Ddp | Sharding::Fsdp2 => true,
        Sharding::Zero1 | Sharding::Zero2 | Sharding::Zero3 => cluster.overlaps(),
        Sharding::Distributed => false,
    }
}

/// Bytes per second that a GPU sends.
#[derive(Clone, Copy, Debug)]
struct Wires {
    /// To others of its machine.
    link: f64,
    /// To another machine, by its own adapter.
    adapter: f64,
    /// How many GPUs a machine has.
    of_a_machine: u64,
}

impl Wires {
    fn of(gpu: &Gpu, cluster: &Cluster) -> Result<Wires, Issue> {
        let of_a_machine = cluster.of_a_machine();
        let refused = |message| Issue::new(Severity::Note, Field::Gpus, message);
        let link = gpu.nvlink.or(gpu.pcie).map(|gigabytes| gigabytes * 1e9);
        let link = link.ok_or_else(|| {
            refused(format!(
                "how several {} are linked is not known: how long a step takes is not said",
                gpu.name
            ))
        })?;
        let adapter = match gpu.capability.filter(|_| gpu.nvlink.is_some()).map(|capability| capability.major)
        {
            // eight of 200 Gb/s in NVIDIA's DGX A100
            Some(8) => Some(25e9),
            // eight of 400 Gb/s in its DGX H100 and DGX B200
            Some(9 | 10) => Some(50e9),
            Some(_) | None => None,
        };
        match adapter {
            Some(adapter) => Ok(Wires { link, adapter, of_a_machine }),
            None if cluster.gpus <= of_a_machine => Ok(Wires { link, adapter: link, of_a_machine }),
            None => Err(refused(format!(
                "how long {} GPUs of several machines wait for each other is not said of the {}",
                grouped(cluster.gpus),
                gpu.name
            ))),
        }
    }

    /// Around so many GPUs, each so many ranks behind the last: a ring leaves a machine by the adapters of those of its GPUs that
    /// are in it.
    fn around(self, gpus: u64, stride: u64) -> f64 {
        let near = (self.of_a_machine / stride.max(1)).clamp(1, gpus.max(1));
        if gpus <= near { self.link } else { self.link.min(self.adapter * near as f64) }
    }

    /// To the next of so many stages, so many ranks behind.
    fn to_neighbour(self, stages: u64, stride: u64) -> f64 {
        if stages.saturating_mul(stride) <= self.of_a_machine {
            self.link
        } else {
            self.link.min(self.adapter)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::gpu;

    #[test]
    fn a_ring_is_as_fast_as_its_slowest_wire() {
        let within = |slug: &str, gpus, per_node| {
            Wires::of(&gpu(slug).expect("a card"), &Cluster { gpus, per_node, ..Cluster::ONE })
        };
        let wires = |slug: &str, gpus| within(slug, gpus, Cluster::ONE.per_node);
        let h100 = wires("h100-sxm-80gb", 64).expect("rates");
        // 900 GB/s both ways; eight adapters of 50 GB/s; of every eighth GPU one
        assert_eq!([h100.around(8, 1), h100.around(64, 1), h100.around(8, 8)], [450e9, 400e9, 50e9]);
        assert_eq!([h100.around(4, 2), h100.around(8, 2), h100.around(1, 1)], [450e9, 200e9, 450e9]);
        assert_eq!([h100.to_neighbour(2, 4), h100.to_neighbour(4, 4)], [450e9, 50e9]);
        let halves = within("h100-sxm-80gb", 8, 4).expect("rates");
        // four adapters of each machine; and neighbours no longer in one
        assert_eq!([halves.around(4, 1), halves.around(8, 1), halves.around(2, 4)], [450e9, 200e9, 50e9]);
        assert_eq!(halves.to_neighbour(2, 4), 50e9);
        assert!(within("rtx-4090", 2, 1).is_err() && wires("rtx-4090", 11).is_err());
        // no whole machines are several all the same
        assert_eq!(wires("h100-sxm-80gb", 100).expect("rates").around(100, 1), 400e9);
        let pcie = wires("rtx-4090", 8).expect("rates");
        assert!((31e9..32e9).contains(&pcie.around(8, 1)), "{pcie:?}");
        assert!(wires("rtx-4090", 16).is_err_and(|issue| issue.message.contains("several machines")));
        // a bridge joins two cards, where there is one
        assert_eq!(gpu("rtx-a6000").expect("a card").nvlink, None);
    }
}
