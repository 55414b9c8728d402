//! What an engine of several GPUs wraps of a model.

use super::Model;
use super::bound::find;
use crate::job::HeadKind;
use crate::step::parallel::{Gathered, Wrapped, is_by_accelerate, is_loaded_on_cpu};
use crate::step::params::ParamId;

impl Model<'_> {
    /// What an engine of several GPUs wraps of it.
    pub fn wrapped(&self) -> Wrapped {
        let repeated = self.layer_groups.iter().filter(|group| group.times > 1);
        Wrapped {
            params: self.params.clone(),
            layers: self.layers.iter().map(|layer| layer.own.clone()).collect(),
            repeated: repeated
                .filter_map(|group| Some((*group.layers.first()?, *group.layers.last()?)))
                .collect(),
            parts: self.megatron_parts(),
            on_cpu: self.shards && is_loaded_on_cpu(self.member),
            ends: self.ends(),
        }
    }

    /// What accelerate makes units of beside the layers: the embedding, and the last norm with the output head, or where the
    /// two share their weight all of it. Of peft's models it does not find the norm, and a head of one number is none to it.
    /// Source: accelerate 1.15 utils/fsdp_utils.py `fsdp2_prepare_model`, `_find_final_norm`.
    fn ends(&self) -> Vec<(Gathered, Vec<ParamId>)> {
        if !(self.shards && is_by_accelerate(self.member)) {
            return Vec::new();
        }
        let norm = self.architecture.final_norm.as_ref().filter(|_| !self.member.adapts);
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
        let tail = if self.member.adapts { Gathered::ForHead } else { Gathered::FromNorm };
        vec![tokens, (tail, norm.chain(head).collect())]
    }
}
