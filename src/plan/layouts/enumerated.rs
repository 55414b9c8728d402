//! Every way to use so many GPUs, not yet tried.

use super::way::is_megatron;
use crate::model::blocks::{FeedForward, Mixer};
use crate::plan::counts::GPU_COUNTS;
use crate::scenario::{
    Checkpointing, Cluster, ContextComm, CpuOffload, Layout, LossKernel, Mask, Method, Scenario, Sharding,
    Split, Stack,
};

/// GPUs that a layer is divided among at most: those of a machine.
const MOST_TENSOR: u64 = 8;

/// Tokens of a sequence that each of the GPUs that share it has at least: context parallelism is for 8,192 and more (Megatron Core's
/// Parallelism Strategies Guide: "Long sequences (8K+ tokens)").
const LEAST_OF_SEQUENCE: u64 = 4_096;

/// Every way to use so many GPUs, not yet tried: under the engines of PyTorch and DeepSpeed and under Megatron-core where the scenario's
/// library is one of these; under its own where it is another. A step sees as many sequences as with whole copies of the scenario on each
/// GPU, in micro-batches that are as large as can be.
pub fn ways(scenario: &Scenario, gpus: u64) -> Vec<Scenario> {
    let gpus = gpus.max(1);
    let mut base = undivided(scenario);
    // what a GPU's part of a step is: GPUs that share a model share its micro-batches
    let together = scenario.divided().gpus().max(1);
    base.batch =
        scenario.batch.saturating_mul(scenario.accumulation).div_ceil(together).max(scenario.least_batch());
    base.accumulation = 1;
    let on = |stack| {
        let mut other = base.clone();
        other.change(|other| other.stack = stack);
        // what it trains is no matter of the library, which may usually train something else
        other.change(|other| other.method = base.method);
        other
    };
    if gpus == 1 {
        let own = |checkpointing| Scenario { checkpointing, ..base.clone() };
        return recomputed(&base).into_iter().map(own).collect();
    }
    match scenario.stack {
        Stack::Transformers | Stack::Megatron => {
            let own = on(Stack::Transformers);
            let megatron = on(Stack::Megatron);
            let kinds = recomputed(&own);
            [
                with_engines(&own, gpus, &kinds),
                in_contexts(&own, gpus, &kinds),
                planned(&own, gpus, &kinds),
                divided(&megatron, gpus, &recomputed(&megatron)),
            ]
            .concat()
        }
        Stack::Torchtitan => {
            let kinds = recomputed(&base);
            [with_engines(&base, gpus, &kinds), planned(&base, gpus, &kinds)].concat()
        }
        Stack::Trl | Stack::Liger | Stack::Torchtune | Stack::Unsloth | Stack::Litgpt => {
            with_engines(&base, gpus, &recomputed(&base))
        }
    }
}

/// Sequences that GPUs share under accelerate, which wraps the model for FSDP2, where it is what wraps it.
fn in_contexts(base: &Scenario, gpus: u64, kinds: &[Checkpointing]) -> Vec<Scenario> {
    let fsdp2 = Cluster { gpus, sharding: Sharding::Fsdp2, ..base.cluster };
    let is_by_accelerate = on(base, fsdp2, base.checkpointing).can_share_sequences();
    if !is_by_accelerate || base.mask != Mask::Ones {
        return Vec::new();
    }
    let sizes = divisors(gpus).filter(|size| size.is_power_of_two());
    let sizes = sizes.filter(|size| (2..=base.sequence / LEAST_OF_SEQUENCE).contains(size));
    let of = |context| {
        let layout = Layout { context, ..Layout::WHOLE };
        let sequences = Scenario { accumulation: base.accumulation.saturating_mul(context), ..base.clone() };
        under(&sequences, Cluster { layout, ..fsdp2 }, kinds)
    };
    sizes.flat_map(of).collect()
}

/// The scenario on one GPU, from which all others begin.
fn undivided(scenario: &Scenario) -> Scenario {
    let mut base = scenario.clone();
    // what follows from the GPUs that it has follows from others then
    base.change(|base| {
        let Cluster { deepspeed, bucket_views, reduce, sharded, wrapped_by, layout, .. } = scenario.cluster;
        let layout = Layout { layers: layout.layers, ..Layout::WHOLE };
        base.cluster =
            Cluster { deepspeed, bucket_views, reduce, sharded, wrapped_by, layout, ..Cluster::ONE };
    });
    base
}

/// The ways of the scenario's own library to divide it among any number of GPUs: with its recomputation and micro-batch, and without the
/// CPU's memory. ZeRO-1 and DDP keep no less than ZeRO-2, interleaved stages no less than whole ones.
pub(in crate::plan) struct Divisions(Scenario);

impl Divisions {
    /// Of a scenario, however many GPUs it has; none of one whose GPUs share layers already, or that keeps something in the CPU's memory.
    pub fn of(scenario: &Scenario) -> Option<Divisions> {
        let is_plain = scenario.divided().gpus() <= 1 && scenario.cluster.cpu == CpuOffload::Off;
        (is_plain && scenario.task.trains()).then(|| Divisions(undivided(scenario)))
    }

    /// The engines that have all layers on every GPU.
    pub fn engines(&self) -> &'static [Sharding] {
        match self.0.stack {
            Stack::Transformers | Stack::Trl | Stack::Liger => {
                &[Sharding::Fsdp2, Sharding::Zero3, Sharding::Zero2]
            }
            Stack::Megatron | Stack::Torchtune | Stack::Torchtitan | Stack::Unsloth | Stack::Litgpt => &[],
        }
    }

    /// Under one of these.
    pub fn by(&self, sharding: Sharding, gpus: u64) -> Scenario {
        on(&self.0, Cluster { gpus, sharding, ..self.0.cluster }, self.0.checkpointing)
    }

    /// With layers that GPUs share.
    pub fn of_layers(&self, gpus: u64) -> Vec<Scenario> {
        let kinds = [self.0.checkpointing];
        match self.0.stack {
            Stack::Transformers | Stack::Torchtitan => planned(&self.0, gpus, &kinds),
            Stack::Megatron => {
                let mut found = divided(&self.0, gpus, &kinds);
                found.retain(|way| way.cluster.layout.interleaved == 0);
                found
            }
            Stack::Trl | Stack::Liger | Stack::Torchtune | Stack::Unsloth | Stack::Litgpt => Vec::new(),
        }
    }

    /// Every one of so many GPUs.
    pub fn all(&self, gpus: u64) -> Vec<Scenario> {
        let engines = self.engines().iter().map(|sharding| self.by(*sharding, gpus));
        engines.chain(self.of_layers(gpus)).collect()
    }
}

/// Ways to recompute that keep the rest as it is.
fn recomputed(scenario: &Scenario) -> Vec<Checkpointing> {
    match (scenario.task.trains(), is_megatron(scenario)) {
        (false, _) => vec![scenario.checkpointing],
        (true, true) => vec![Checkpointing::Off, Checkpointing::Selective, Checkpointing::NonReentrant],
        (true, false) => vec![Checkpointing::Off, Checkpointing::NonReentrant],
    }
}

/// Under each engine that has all layers on every GPU.
fn with_engines(base: &Scenario, gpus: u64, kinds: &[Checkpointing]) -> Vec<Scenario> {
    let of = |sharding| Cluster { gpus, sharding, ..base.cluster };
    let fsdp2 = of(Sharding::Fsdp2);
    let groups = divisors(gpus).filter(|groups| (2..=gpus / 2).contains(groups));
    let replicated = groups.map(|replicas| Cluster { replicas, ..fsdp2 });
    let clusters = [of(Sharding::Ddp), of(Sharding::Zero1), of(Sharding::Zero2), of(Sharding::Zero3)]
        .into_iter()
        .chain([fsdp2, Cluster { reshards: false, ..fsdp2 }])
        .chain([
            Cluster { cpu: CpuOffload::All, ..fsdp2 },
            Cluster { cpu: CpuOffload::Optimizer, ..of(Sharding::Zero2) },
            Cluster { cpu: CpuOffload::Optimizer, ..of(Sharding::Zero3) },
            Cluster { cpu: CpuOffload::All, ..of(Sharding::Zero3) },
        ])
        .chain(replicated.filter(Cluster::has_whole_replicas));
    let of = |cluster: Cluster| {
        let mut found = under(base, cluster, kinds);
        for way in found.iter_mut().filter(|way| way.cluster.cpu == CpuOffload::All) {
            if way.offloads_by_an_older_trl() {
                way.savings.loss = LossKernel::Full;
            }
        }
        found
    };
    // FSDP2's shards are usually float32: the same weights in the 16 bits that they have
    let mut pure = Scenario { cluster: fsdp2, ..base.clone() };
    pure.compute_in_its_weights();
    let pure = if pure.precision == base.precision {
        Vec::new()
    } else {
        under(&Scenario { cluster: base.cluster, ..pure }, fsdp2, kinds)
    };
    clusters.flat_map(of).chain(pure).collect()
}

/// Divided by transformers' own plan, or torchtitan's: all GPUs share the layers, or those that do share shards with others.
fn planned(base: &Scenario, gpus: u64, kinds: &[Checkpointing]) -> Vec<Scenario> {
    if base.method != Method::Full {
        return Vec::new();
    }
    let sizes = divisors(gpus).filter(|tensor| (2..=MOST_TENSOR).contains(tensor));
    let of = |tensor| {
        let sharding = if tensor == gpus { Sharding::Ddp } else { Sharding::Fsdp2 };
        let layout = Layout::of_tensors(tensor);
        let sequences = Scenario { accumulation: base.accumulation.saturating_mul(tensor), ..base.clone() };
        under(&sequences, Cluster { gpus, sharding, layout, ..base.cluster }, kinds)
    };
    sizes.flat_map(of).collect()
}

/// Divided by Megatron-core: tensor × pipeline × context × data and experts, each stage whole, in two parts or layer by layer, the first and
/// the last with fewer layers where they do not divide evenly. Its distributed optimizer is taken where there are copies: with it they keep
/// less and send less.
fn divided(base: &Scenario, gpus: u64, kinds: &[Checkpointing]) -> Vec<Scenario> {
    let divided = Divided::of(base);
    let mut found = Vec::new();
    for tensor in divisors(gpus).filter(|tensor| *tensor <= MOST_TENSOR) {
        for pipeline in divisors(gpus / tensor) {
            let copies = gpus / tensor.saturating_mul(pipeline).max(1);
            let split = Split::usual(divided.layers, pipeline);
            for interleaved in divided.parts(pipeline, split) {
                for (context, experts) in divided.shared(tensor, copies) {
                    let context_comm = divided.context_comm(tensor, context);
                    // each layer's tokens are divided too where that is followed: it keeps less and sends as much
                    let sequence = base.cluster.layout.has_transformer_engine() && tensor > 1;
                    let layout = Layout {
                        tensor,
                        pipeline,
                        interleaved,
                        split,
                        sequence,
                        context,
                        context_comm,
                        experts,
                        ..base.cluster.layout
                    };
                    // GPUs that share sequences are copies of the model
                    let sharding = if copies > 1 { Sharding::Distributed } else { Sharding::Ddp };
                    let accumulation = base.accumulation.saturating_mul(layout.gpus());
                    let sequences = Scenario { accumulation, ..base.clone() };
                    found.extend(under(
                        &sequences,
                        Cluster { gpus, sharding, layout, ..base.cluster },
                        kinds,
                    ));
                }
            }
        }
    }
    found
}

/// What of a run decides how Megatron-core may divide it.
struct Divided {
    /// Layers of the model.
    layers: u64,
    /// Experts of a layer; 1 where there are none to choose from.
    experts: u64,
    /// Among how many GPUs a sequence is divided at most.
    context: u64,
    /// Heads of queries, and of keys and values, of each kind of softmax attention.
    heads: Vec<u64>,
    /// Whether some attention is latent, beside which neither tensors nor sequences are divided.
    latent: bool,
}

impl Divided {
    fn of(base: &Scenario) -> Divided {
        let architecture = base.architecture().ok();
        let blocks = architecture.iter().flat_map(|architecture| &architecture.blocks);
        let experts = blocks.clone().find_map(|block| match &block.ffn {
            FeedForward::Moe(moe) => Some(moe.experts),
            FeedForward::Dense(_) | FeedForward::None => None,
        });
        let softmax = blocks.clone().filter_map(|block| block.mixer.attention());
        let heads = softmax.flat_map(|attention| [attention.heads, attention.kv_heads]).collect();
        let latent = blocks.clone().any(|block| matches!(block.mixer, Mixer::Latent(_)));
        // neither is followed with Megatron's local layers
        let divides = base.cluster.layout.has_transformer_engine();
        let of = |most: u64| if divides { most.max(1) } else { 1 };
        Divided {
            layers: architecture.as_ref().map_or(0, |architecture| architecture.order.len() as u64),
            experts: of(experts.unwrap_or(1)),
            context: of(base.sequence / LEAST_OF_SEQUENCE),
            heads,
            latent,
        }
    }

    /// How many layers of a stage are run at a time, 0 where all are.
    fn parts(&self, pipeline: u64, split: Split) -> Vec<u64> {
        // what counts as a layer is divided with the others; stages that are given a number of layers run them at once
        let own = match split.names_stages() {
            true => 0,
            false => self.layers.div_ceil(pipeline.max(1)),
        };
        let mut parts = vec![0];
        // of two stages Megatron-LM's checks allow it only where what is sent overlaps what is computed, which is not followed
        if pipeline > 2 {
            let divides = |layers: &u64| *layers > 0 && *layers < own && own.is_multiple_of(*layers);
            parts.extend([own / 2, 1].into_iter().filter(divides));
            parts.dedup();
        }
        parts
    }

    /// Among how many of the copies each sequence is divided, and among how many the experts: where sequences are, as many as can be share
    /// experts, or none. Beside latent attention only one of tensors, sequences and experts is divided.
    fn shared(&self, tensor: u64, copies: u64) -> Vec<(u64, u64)> {
        let sizes = |most: u64| divisors(copies).filter(move |size| (2..=most).contains(size));
        let alone = !self.latent || tensor == 1;
        let experts: Vec<u64> = sizes(if alone { self.experts } else { 1 })
            .filter(|size| self.experts.is_multiple_of(*size))
            .collect();
        let most = experts.last().copied().filter(|_| !self.latent);
        let beside = move |context| [Some(1), most].into_iter().flatten().map(move |size| (context, size));
        let contexts = sizes(self.context).filter(|size| size.is_power_of_two()).flat_map(beside);
        [(1, 1)].into_iter().chain(contexts).chain(experts.iter().map(|experts| (1, *experts))).collect()
    }

    /// How GPUs that share a sequence give each other keys and values: by all-to-all, which divides the heads of a GPU once more, and in a
    /// ring where these are too few.
    fn context_comm(&self, tensor: u64, context: u64) -> ContextComm {
        let all = tensor.saturating_mul(context);
        match context > 1 && self.heads.iter().any(|heads| !heads.is_multiple_of(all)) {
            true => ContextComm::P2p,
            false => ContextComm::AllToAll,
        }
    }
}

fn divisors(number: u64) -> impl Iterator<Item = u64> {
    (1..=number.min(GPU_COUNTS[GPU_COUNTS.len() - 1])).filter(move |size| number.is_multiple_of(*size))
}

/// On such a cluster, with each of these kinds of recomputation.
fn under(base: &Scenario, cluster: Cluster, kinds: &[Checkpointing]) -> Vec<Scenario> {
    kinds.iter().map(|checkpointing| on(base, cluster, *checkpointing)).collect()
}

/// The same with one of them.
fn on(base: &Scenario, cluster: Cluster, checkpointing: Checkpointing) -> Scenario {
    let mut other = base.clone();
    // several GPUs bring an engine, which is chosen then
    other.change(|other| other.cluster.gpus = cluster.gpus);
    other.change(|other| other.cluster = cluster);
    Scenario { checkpointing, ..other }
}
