//! What an engine of several GPUs wraps of a model.

use std::ops::Range;

use super::Model;
use super::bound::{BoundLayer, find};
use super::vision::BoundTower;
use crate::job::HeadKind;
use crate::scenario::{Cluster, ShardedLayers};
use crate::step::parallel::{Gathered, Loading, Wrapped, Wrapper, is_loaded_on_cpu};
use crate::step::params::ParamId;

impl Model<'_> {
    /// What an engine of so many GPUs wraps of it.
    pub fn wrapped(&self, cluster: Cluster) -> Wrapped {
        let wrapper = Wrapper::of(cluster, self.member.software().trainer);
        let repeated = self.layer_groups.iter().filter(|group| group.times > 1);
        Wrapped {
            params: self.params.clone(),
            layers: self.layers.iter().map(|layer| layer.own.clone()).collect(),
            tower: self.tower_units(wrapper),
            sees: self.tower.is_some(),
            adapters: if self.shards && wrapper == Wrapper::Axolotl { self.adapters() } else { Vec::new() },
            unhooked: self.read_by_functions(),
            repeated: repeated
                .filter_map(|group| Some((*group.layers.first()?, *group.layers.last()?)))
                .collect(),
            parts: self.megatron_parts(),
            loading: match wrapper {
                _ if !self.shards => Loading::InPlace,
                Wrapper::Torchtune => Loading::FromCheckpoint,
                Wrapper::Axolotl => Loading::FromFirst,
                Wrapper::Loop | Wrapper::Accelerate if is_loaded_on_cpu(cluster, self.member) => {
                    Loading::FromCpu
                }
                Wrapper::Loop | Wrapper::Accelerate | Wrapper::Torchtitan => Loading::InPlace,
            },
            ends: self.ends(wrapper, cluster.sharded),
        }
    }

    /// The layers of its towers, where each is a unit.
    fn tower_units(&self, wrapper: Wrapper) -> Vec<Range<ParamId>> {
        if !wrapper.finds_towers(self.architecture) {
            return Vec::new();
        }
        let seen = self.tower.iter().flat_map(BoundTower::layers);
        seen.chain(self.idle.iter().cloned()).collect()
    }

    /// By layer: both factors of each adapter in it.
    fn adapters(&self) -> Vec<Vec<ParamId>> {
        let of = |layer: &BoundLayer<'_>| {
            let adapters = layer.linears.iter().filter_map(|linear| linear.adapter);
            adapters.flat_map(|adapter| [adapter.a, adapter.b]).collect()
        };
        self.layers.iter().map(of).collect()
    }

    /// What is a unit of its own beside the layers and the root.
    fn ends(&self, wrapper: Wrapper, sharded: ShardedLayers) -> Vec<(Gathered, Vec<ParamId>)> {
        if !self.shards {
            return Vec::new();
        }
        match wrapper {
            // what torchtitan wraps is the same of a head of its own
            Wrapper::Accelerate | Wrapper::Torchtitan => self.ends_by_accelerate(),
            Wrapper::Torchtune => self.ends_by_torchtune(sharded),
            Wrapper::Loop | Wrapper::Axolotl => Vec::new(),
        }
    }

    /// What torchtune's recipe is told to shard by itself (`custom_sharded_layers`; torchtune/training/_distributed.py `shard_model`).
    fn ends_by_torchtune(&self, sharded: ShardedLayers) -> Vec<(Gathered, Vec<ParamId>)> {
        let tokens = (Gathered::ForTokens, vec![self.outside.tokens]);
        match sharded {
            ShardedLayers::Layers => Vec::new(),
            ShardedLayers::Embedding => vec![tokens],
            ShardedLayers::EmbeddingAndHead => vec![tokens, (Gathered::ForChunks, self.of_head())],
        }
    }

    /// The parameters of the output head, with its adapter's.
    fn of_head(&self) -> Vec<ParamId> {
        let head = find(&self.outside.linears, |layer| layer.name == self.architecture.head.linear.name);
        let adapter = head.adapter.map(|adapter| [adapter.a, adapter.b]);
        [Some(head.weight.id()), head.bias]
            .into_iter()
            .flatten()
            .chain(adapter.into_iter().flatten())
            .collect()
    }

    /// What accelerate makes units of beside the layers: the embedding, and the last norm with the output head, or where the
    /// two share their weight all of it. Of peft's models it does not find the norm, nor of models that see, whose text's model has it; a head
    /// of one number is none to it.
    /// Source: accelerate 1.15 utils/fsdp_utils.py `fsdp2_prepare_model`, `_find_final_norm`.
    fn ends_by_accelerate(&self) -> Vec<(Gathered, Vec<ParamId>)> {
        let is_found = !self.member.adapts && self.architecture.towers.is_empty();
        let norm = self.architecture.final_norm.as_ref().filter(|_| is_found);
        let norm = norm.map(|norm| find(&self.outside.norms, |bound| bound.name == norm.name));
        let norm = norm.iter().flat_map(|norm| [norm.weight, norm.bias]).flatten();
        let tokens = (Gathered::ForTokens, vec![self.outside.tokens]);
        if self.member.head != HeadKind::Language {
            let norm: Vec<ParamId> = norm.collect();
            return if norm.is_empty() { vec![tokens] } else { vec![tokens, (Gathered::ForNorm, norm)] };
        }
        let head = find(&self.outside.linears, |layer| layer.name == self.architecture.head.linear.name);
        let head = [Some(head.weight.id()), head.bias].into_iter().flatten();
        if self.architecture.head.tied {
            return vec![(Gathered::FromTokens, norm.chain(head).collect())];
        }
        let tail = if is_found { Gathered::FromNorm } else { Gathered::ForHead };
        vec![tokens, (tail, norm.chain(head).collect())]
    }
}
