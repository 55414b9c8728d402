//! Weights under autocast: copies in its element type, and the cache that holds them.

use super::casts::cast_backward;
use crate::dtype::Dtype;
use crate::memory::Category;
use crate::step::autograd::Edge;
use crate::step::heap::NOTHING;
use crate::step::machine::State;
use crate::step::params::ParamId;
use crate::step::tensor::Value;
use crate::step::what::{Source, What};

static WEIGHT_COPY: What = What::own(
    "weight copy",
    "autocast's half-precision copy of a weight in another element type, saved for the gradient of its input",
    Source::At("PyTorch, aten/src/ATen/autocast_mode.cpp"),
);

impl State {
    /// The element type in which an operation that autocast casts for reads what it is given (aten/src/ATen/autocast_mode.h
    /// `is_eligible`: whatever is floating point).
    pub fn operand_dtype(&self, own: Dtype) -> Dtype {
        match own {
            Dtype::F32 | Dtype::F16 | Dtype::Bf16 => self.autocast.unwrap_or(own),
            _ => own,
        }
    }

    /// A parameter as an operation reads it under the running autocast.
    ///
    /// aten/src/ATen/autocast_mode.cpp `cached_cast`: float32 leaves that need a gradient are cast once and cached until
    /// autocast ends; frozen ones, and those of another 16-bit type, are cast at every use.
    pub fn cast_weight(&mut self, id: ParamId, caches: bool) -> Value {
        let param = *self.params.get(id);
        let target = self.operand_dtype(param.dtype);
        if target == param.dtype {
            return self.weight(id);
        }
        if let Some((storage, edge)) = param.cached {
            self.retain(storage);
            return Value::plain(storage, param.numel, target).at(edge);
        }
        let weight = self.weight(id);
        let node = self.node([&weight], cast_backward);
        let bytes = param.numel.saturating_mul(target.bytes());
        let category = if self.recomputing { Category::Temporaries } else { Category::WeightCopies };
        let storage = self.alloc_as(category, bytes, target, &WEIGHT_COPY);
        self.note_dims(storage, param.dims());
        self.release(weight.storage);
        let edge = node.output(0);
        if caches && param.trainable && param.dtype == Dtype::F32 && storage != NOTHING {
            self.retain(storage);
            self.params.list[id as usize].cached = Some((storage, edge));
            self.cast_cache.push(id);
        }
        Value::plain(storage, param.numel, target).at(edge)
    }

    /// What a product is given besides weights, cast to `target`. A float32 leaf that needs a gradient is cast once, as a
    /// weight is: the embedding's output that is made to need one, and what the function that runs a layer again was given.
    pub fn cast_argument(&mut self, x: &Value, target: Dtype, what: &'static What) -> Value {
        // a flattened view is no leaf
        let leaf = x.dtype != target && x.dtype == Dtype::F32 && !x.flat && x.requires_grad();
        let of_function = leaf && self.graph.gives_leaf(x.storage);
        if !(of_function || leaf && matches!(x.edge, Edge::Param(_))) {
            return self.cast_as(x, target, what);
        }
        // that function's first pass is given what is no leaf yet
        let caches = !of_function || self.recomputing;
        let known = self.cast_leaves.iter().find(|(of, _)| (of.storage, of.edge) == (x.storage, x.edge));
        match known.map(|(_, cast)| *cast) {
            Some(cast) if caches => {
                self.retain(cast.storage);
                cast
            }
            Some(cast) => self.new_like(x, target, what, cast.edge),
            None => {
                let cast = self.cast_as(x, target, what);
                let kept = if caches { cast.storage } else { NOTHING };
                self.retain(kept);
                self.cast_leaves.push((*x, Value { storage: kept, ..cast }));
                cast
            }
        }
    }

    /// Leaves autocast: its cache is dropped.
    pub fn clear_cast_cache(&mut self) {
        for (_, cast) in std::mem::take(&mut self.cast_leaves) {
            self.release(cast.storage);
        }
        for id in std::mem::take(&mut self.cast_cache) {
            if let Some((storage, _)) = self.params.list[id as usize].cached.take() {
                self.release(storage);
            }
        }
    }
}
