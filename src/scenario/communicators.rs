//! NCCL's communicators: which a run has on each GPU by its engines' code, and what these take outside of PyTorch's allocator.
//!
//! A group of one GPU has none, and what is made lazily counts where something is sent in it (`docs/parallel.md#nccl`).

use super::software::Trainer;
use super::{Cluster, Layout, Scenario, Sharding, Task};
use crate::hardware;
use crate::model::blocks::FeedForward;
use crate::units::{Between, grouped};

/// A communicator that a GPU is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Communicator {
    /// What its GPUs share.
    pub of: &'static str,
    /// How many they are.
    pub gpus: u64,
}

impl Scenario {
    /// The communicators of a GPU; of a pipeline's stages those of the one that is in most.
    pub fn communicators(&self) -> Vec<Communicator> {
        let Cluster { gpus, sharding, replicas, .. } = self.cluster;
        if !self.cluster.is_many() {
            return Vec::new();
        }
        let trainer = self.software().trainer;
        let tensor = self.divided().tensor.max(1);
        let all = ("all GPUs", gpus);
        // transformers' Trainer gathers losses from all GPUs, torchtune's recipes and torchtitan count their tokens
        let has_trainer = self.is_under_trainer() || matches!(self.task, Task::Classify | Task::Embed);
        let gathers = has_trainer || matches!(trainer, Trainer::Torchtune | Trainer::Torchtitan);
        let world = gathers.then_some(all);
        let found: Vec<(&str, u64)> = match sharding {
            _ if trainer == Trainer::Megatron => self.of_megatron(),
            // a mesh of two dimensions has a group for each, one of a single dimension is the default group
            Sharding::Fsdp2 if tensor > 1 && tensor < gpus => {
                let dimensions = [("tensor", tensor), ("shards", gpus / tensor)];
                dimensions.into_iter().chain(world).collect()
            }
            // accelerate's mesh has a group for each dimension, one for its shards, which lie across those that share a sequence, and one for its losses
            Sharding::Fsdp2 if self.contexts() > 1 && self.contexts() < gpus => {
                let dimensions = [
                    ("sequences", self.contexts()),
                    ("shards", gpus / replicas.max(1)),
                    ("replicas", replicas),
                ];
                dimensions.into_iter().chain(world).collect()
            }
            Sharding::Fsdp2 if replicas > 1 => {
                let dimensions = [("shards", gpus / replicas), ("replicas", replicas)];
                dimensions.into_iter().chain(world).collect()
            }
            // DeepSpeed reduces in a copy of the default group (`_clone_world_group`); its third stage has barriers in the default one
            Sharding::Zero1 | Sharding::Zero2 => {
                [("DeepSpeed's data", gpus)].into_iter().chain(world).collect()
            }
            Sharding::Zero3 => vec![("DeepSpeed's data", gpus), all],
            Sharding::Ddp | Sharding::Fsdp2 | Sharding::Distributed => vec![all],
        };
        let of_several = found.into_iter().filter(|(_, gpus)| *gpus > 1);
        of_several.map(|(of, gpus)| Communicator { of, gpus }).collect()
    }

    /// The groups of Megatron-core in which Megatron-LM's loop sends something, each with its GPUs (megatron-core 0.16.1
    /// `parallel_state.initialize_model_parallel`).
    fn of_megatron(&self) -> Vec<(&'static str, u64)> {
        let Cluster { gpus, sharding, layout, .. } = self.cluster;
        let Layout { tensor, pipeline, context, experts, stage, .. } = layout;
        let among = |parts: u64| gpus / parts.max(1);
        let architecture = self.architecture().ok();
        let is_tied = architecture.as_ref().is_some_and(|architecture| architecture.head.tied);
        let mut found = vec![
            // barriers, and when the run began (megatron/training/initialize.py, training.py)
            ("all GPUs", gpus),
            ("data", among(layout.parts())),
            ("tensor", tensor),
            ("pipeline", pipeline),
            ("context", context),
            // whether the step was done (megatron/training/utils.py `logical_and_across_model_parallel_group`)
            ("tensor × pipeline", layout.parts()),
        ];
        if sharding == Sharding::Distributed && self.training_loop.clips {
            // a group of its own of all ranks (`intra_dist_opt`)
            found.push(("the optimizer's norm", gpus));
        }
        if is_tied && pipeline > 1 && (stage <= 1 || stage == pipeline) {
            found.push(("the embedding's stages", 2));
        }
        let mut blocks = architecture.iter().flat_map(|architecture| &architecture.blocks);
        if blocks.any(|block| matches!(block.ffn, FeedForward::Moe(_))) {
            found.extend([
                // how many tokens each expert was given, for the loss that balances, which logging averages over copies
                ("tensor × context", tensor.saturating_mul(context)),
                ("data without context", among(layout.gpus())),
                // the token dispatcher's
                ("experts", experts),
                ("tensor × experts", tensor.saturating_mul(experts)),
                ("experts' tensor", tensor),
            ]);
            if experts > 1 {
                found.push(("experts' data", among(layout.parts().saturating_mul(experts))));
                if sharding != Sharding::Distributed && self.training_loop.clips {
                    found.push(("experts' norm", layout.parts().saturating_mul(experts)));
                }
            }
        }
        found
    }

    /// What its communicators take of each GPU: by what was seen of as many.
    pub fn nccl(&self) -> Between {
        hardware::nccl(self.communicators().len())
    }

    /// What that rests on.
    pub(crate) fn nccl_source(&self) -> &'static str {
        match self.communicators().len() {
            0 | 1 => "seen of one: ai-dynamo/aiconfigurator, nccl_mem; stas00/ml-engineering@744d01e, debug",
            2 => {
                "no formula is published: the least and twice the most that was seen of one, as each has buffers of its own, NVIDIA/nccl#986"
            }
            _ => {
                "no formula is published: the least that was seen of one, and the most of three and more, NVIDIA/nccl#864"
            }
        }
    }

    /// The communicators in words: `2 communicators (shards 4, replicas 2)`.
    pub(crate) fn communicators_in_words(&self) -> String {
        let own = self.communicators();
        let named: Vec<String> = own.iter().map(|own| format!("{} {}", own.of, grouped(own.gpus))).collect();
        let number = own.len() as u64;
        let plural = if number == 1 { "" } else { "s" };
        format!("{} communicator{plural} ({})", grouped(number), named.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Bytes;

    /// The groups of a link's scenario.
    fn of(link: &str) -> Vec<(&'static str, u64)> {
        let scenario = crate::share::decode(link).scenarios.remove(0);
        scenario.communicators().iter().map(|own| (own.of, own.gpus)).collect()
    }

    #[test]
    fn engines_of_pytorch_and_deepspeed_have_one_or_two() {
        assert_eq!(of("v=1&method=lora"), []);
        assert_eq!(of("v=1&method=lora&gpus=2&shard=ddp"), [("all GPUs", 2)]);
        assert_eq!(of("v=1&method=full&gpus=8&shard=fsdp2"), [("all GPUs", 8)]);
        let mesh = [("shards", 4), ("replicas", 2)];
        assert_eq!(of("v=1&method=full&gpus=8&shard=fsdp2&replicas=2"), mesh);
        let by_accelerate = of("v=1&method=full&gpus=8&shard=fsdp2&replicas=2&st=trl");
        assert_eq!(by_accelerate, [mesh[0], mesh[1], ("all GPUs", 8)]);
        assert_eq!(of("v=1&method=full&gpus=8&shard=ddp&tp=8"), [("all GPUs", 8)]);
        assert_eq!(of("v=1&method=full&gpus=8&shard=fsdp2&tp=2"), [("tensor", 2), ("shards", 4)]);
        let data = ("DeepSpeed's data", 8);
        assert_eq!(of("v=1&method=full&gpus=8&shard=zero2"), [data]);
        assert_eq!(of("v=1&method=full&gpus=8&shard=zero2&st=trl"), [data, ("all GPUs", 8)]);
        assert_eq!(of("v=1&method=full&gpus=8&shard=zero3"), [data, ("all GPUs", 8)]);
    }

    #[test]
    fn megatron_has_one_for_each_group_that_something_is_sent_in() {
        let megatron = "v=1&method=full&st=megatron";
        let copies = [("all GPUs", 8), ("data", 8)];
        assert_eq!(of(&format!("{megatron}&gpus=8&shard=ddp")), copies);
        let norm = ("the optimizer's norm", 8);
        assert_eq!(of(&format!("{megatron}&gpus=8&shard=dist-opt")), [copies[0], copies[1], norm]);
        let divided = "gpus=64&shard=dist-opt&tp=8&pp=4";
        let named = [
            ("all GPUs", 64),
            ("data", 2),
            ("tensor", 8),
            ("pipeline", 4),
            ("tensor × pipeline", 32),
            ("the optimizer's norm", 64),
        ];
        assert_eq!(of(&format!("{megatron}&m=meta-llama/Llama-3.1-70B&{divided}")), named);
        // its head is the embedding, which the first stage and the last have
        let tied = of(&format!("{megatron}&m=meta-llama/Llama-3.2-1B&{divided}"));
        assert_eq!(tied.last(), Some(&("the embedding's stages", 2)));
        let between = of(&format!("{megatron}&m=meta-llama/Llama-3.2-1B&{divided}&stage=2"));
        assert_eq!(between, named);
    }

    #[test]
    fn experts_have_groups_of_their_own() {
        let megatron = "v=1&method=full&st=megatron&timpl=transformer-engine&m=Qwen/Qwen3-235B-A22B";
        let found = of(&format!("{megatron}&gpus=64&shard=dist-opt&tp=2&pp=8&xp=4"));
        for own in [
            ("data without context", 4),
            ("tensor × context", 2),
            ("experts", 4),
            ("tensor × experts", 8),
            ("experts' tensor", 2),
        ] {
            assert!(found.contains(&own), "{own:?}: {found:?}");
        }
        // four GPUs hold the same part, and each has other experts
        assert!(!found.iter().any(|(of, _)| *of == "experts' data"), "{found:?}");
        let whole = of(&format!("{megatron}&gpus=64&shard=dist-opt&tp=2&pp=8"));
        assert!(!whole.iter().any(|(of, _)| *of == "experts"), "{whole:?}");
    }

    /// What one takes is what it was before communicators were counted.
    #[test]
    fn more_take_no_less_and_one_what_it_took() {
        let most = |number| hardware::nccl(number).most;
        assert_eq!((most(0), most(1)), (Bytes::ZERO, Bytes::mib(1_485)));
        assert!((0..12).all(|number| most(number) <= most(number + 1)));
        assert_eq!((most(3), most(12)), (Bytes(6_000_000_000), Bytes(6_000_000_000)));
    }
}
