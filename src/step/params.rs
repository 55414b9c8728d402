//! The model's parameters on the machine.

use std::ops::Range;

use super::autograd::{Edge, Grad, Input};
use super::fake_quant::FakeQuantizer;
use super::float8::Recipe;
use super::heap::{NOTHING, StorageId};
use super::machine::{Machine, State};
use super::tensor::{Tensor, Value};
use crate::dtype::Dtype;
use crate::memory::Category;
use crate::step::what::{Dims, Rank, Source, What};

static PARAMETER: What =
    What::own("parameter", "the model's own weights: there from load to end", Source::Modeling);

/// Index of a parameter.
pub(super) type ParamId = u32;

/// Weights of one 4-bit scale (bitsandbytes' default block size, and torchao's).
pub(super) const QUANT_BLOCK: u64 = 64;
/// Scales of one second-level scale under double quantisation (bitsandbytes' `quantize_blockwise` block size, and torchao's).
pub(super) const DOUBLE_QUANT_BLOCK: u64 = 256;

/// The blocks of a parameter, as Adam-mini divides it, that have one number for their squares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::step) enum Blocks {
    /// Every element is one: AdamW.
    Elements,
    /// So many of it.
    Numbers(u64),
    /// All of it.
    Whole,
}

/// A parameter tensor, or `times` identical ones of repeated layers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parameter {
    /// The module that it belongs to.
    pub module: &'static str,
    /// The layer that this is in, as [`Heap`](super::heap::Heap) counts them.
    pub layer: u32,
    /// Its elements, as an operation reads it.
    pub numel: u64,
    /// Their type, as an operation reads them.
    pub dtype: Dtype,
    /// Its shape as rows and columns, for the optimizers that factor: a vector is one row.
    pub rows: u64,
    /// What this rank keeps of it: all of it, or its shard.
    pub kept: Kept,
    /// Which of them is LoRA's rank.
    pub rank: Rank,
    pub trainable: bool,
    /// Whether an 8-bit optimizer keeps its state in 32 bits all the same.
    pub wide_state: bool,
    /// Whether it is a matrix of a layer, which Muon steps.
    pub in_layer: bool,
    /// Whether other GPUs have other parts of it.
    pub divided: bool,
    /// Onto how many directions the optimizer projects its gradient, if it does.
    pub projection_rank: Option<u64>,
    /// How Adam-mini divides it, if that is the optimizer.
    pub blocks: Option<Blocks>,
    /// The projection, once there is one.
    pub projection: StorageId,
    pub times: u32,
    /// The repeated body that it is of, by number; those outside of any have one too.
    pub body: u32,
    /// How its layer multiplies in 8-bit floats, if it does.
    pub float8: Option<Recipe>,
    /// How its layer fakes quantisation, if it does.
    pub fake: Option<FakeQuantizer>,
    /// Its weight.
    pub storage: StorageId,
    /// Its gradient, or [`NOTHING`].
    pub grad: StorageId,
    /// Its copy in autocast's cache, with the edge of the copy.
    pub cached: Option<(StorageId, Edge)>,
    /// Uses in the graph whose gradient has not come yet.
    pub expected: u32,
    /// The sum of what has come.
    pub waiting: Option<Grad>,
}

/// What a rank keeps of a parameter: what its optimizer steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    pub numel: u64,
    pub rows: u64,
    pub dtype: Dtype,
}

/// All parameters.
#[derive(Debug)]
pub(super) struct Params {
    pub list: Vec<Parameter>,
    /// The number of the body whose parameters are being added.
    pub body: u32,
    /// Whether what is being added are matrices and vectors of a layer, not of more dimensions.
    pub in_layer: bool,
    /// Whether what is being added are parts of a layer that several GPUs share.
    pub divided: bool,
    /// How many of them, at the end, are leaves of the running graph and no parameters.
    leaves: usize,
    /// Whether adapters take part (`disable_adapter` of peft switches them off).
    pub adapts: bool,
    /// Whether the modules are in their evaluation mode (`model.eval()`).
    pub evaluates: bool,
}

impl Default for Params {
    fn default() -> Params {
        let [in_layer, divided, evaluates] = [false; 3];
        Params {
            list: Vec::with_capacity(64),
            body: 0,
            in_layer,
            divided,
            leaves: 0,
            adapts: true,
            evaluates,
        }
    }
}

impl Params {
    /// The parameters of one model.
    pub fn of(&self, own: &Range<usize>) -> &[Parameter] {
        self.list.get(own.clone()).unwrap_or_default()
    }

    /// Whether that is a leaf of the running graph and no parameter.
    pub fn is_leaf(&self, id: ParamId) -> bool {
        id as usize >= self.list.len() - self.leaves
    }

    /// The leaves of the running graph that are no parameters.
    pub fn leaves(&self) -> &[Parameter] {
        &self.list[self.list.len() - self.leaves..]
    }
}

impl Params {
    /// What the next parameter will be called.
    pub fn next(&self) -> ParamId {
        self.list.len() as ParamId
    }

    /// What is known of a parameter.
    pub fn get(&self, id: ParamId) -> &Parameter {
        &self.list[id as usize]
    }
}

impl Parameter {
    /// Its shape as rows and columns.
    pub fn dims(&self) -> Dims {
        Dims::Parameter(self.rows, self.numel / self.rows.max(1), self.rank)
    }
}

/// The door to weights: every operation that reads one comes by here, and gives back the reference that it is given when it
/// has read it. The engine comes by here too, before a derivative runs, for each parameter among the inputs of its node. A
/// whole weight is there whether it is read or not, so the reference is one to [`NOTHING`]. A sharded one was gathered when
/// its unit was entered and goes when that is left, whoever saved it: FSDP2 resizes the storage to nothing.
impl State {
    /// A parameter as an operation reads it.
    pub fn weight(&mut self, id: ParamId) -> Value {
        if !self.parallel.is_there(id) {
            self.meet_unmodelled("a weight that is read outside of its FSDP unit");
        }
        let param = self.params.get(id);
        let wanted = param.trainable && self.graph.enabled;
        let edge = if wanted { Edge::Param(id) } else { Edge::Frozen(id) };
        Value::plain(NOTHING, param.numel, param.dtype).at(edge)
    }

    /// A weight as a view of it is kept: what ZeRO-3 gathered stays for it, as the module that lets go of it only puts an empty tensor in
    /// its place (partition_parameters.py `free_param`).
    pub fn viewed(&self, weight: &Value) -> Value {
        match weight.edge {
            Edge::Param(id) | Edge::Frozen(id) => Value { storage: self.parallel.gathered(id), ..*weight },
            Edge::None | Edge::Node { .. } => *weight,
        }
    }

    /// The same of a parameter that a module may lack.
    pub fn weight_if(&mut self, id: Option<ParamId>) -> Value {
        id.map_or(Input::NONE, |id| self.weight(id))
    }
}

impl Machine {
    /// The adapter, or none while adapters are off.
    pub fn active<T>(&self, adapter: Option<T>) -> Option<T> {
        adapter.filter(|_| self.with(|state| state.params.adapts))
    }

    /// A parameter as a tensor, which gives back its reference when it goes.
    pub fn weight(&self, id: ParamId) -> Tensor<'_> {
        self.tensor(|state| state.weight(id))
    }
}

/// A parameter that is to be on the machine.
#[derive(Clone, Copy)]
struct New {
    /// Its rows and columns.
    shape: (u64, u64),
    rank: Rank,
    /// What it is read in.
    dtype: Dtype,
    trainable: bool,
    /// How many it stands for.
    times: u32,
}

impl New {
    /// A frozen one of bytes.
    fn frozen(shape: (u64, u64), times: u32) -> New {
        New { shape, rank: Rank::None, dtype: Dtype::U8, trainable: false, times }
    }
}

impl State {
    /// Puts a parameter of the model on the machine; it stays until the end.
    pub fn add_parameter(
        &mut self,
        shape: ((u64, u64), Rank),
        dtype: Dtype,
        trainable: bool,
        times: u32,
    ) -> ParamId {
        let (shape, rank) = shape;
        self.add_as(Category::Weights, &PARAMETER, New { shape, rank, dtype, trainable, times })
    }

    /// Puts something on the machine that is trained beside the model's parameters.
    pub fn add_trained(
        &mut self,
        what: &'static What,
        shape: (u64, u64),
        rank: Rank,
        dtype: Dtype,
        times: u32,
    ) -> ParamId {
        self.add_as(Category::Adapters, what, New { shape, rank, dtype, trainable: true, times })
    }

    fn add_as(&mut self, category: Category, what: &'static What, new: New) -> ParamId {
        let numel = new.shape.0.saturating_mul(new.shape.1);
        let beside = category == Category::Adapters;
        let (kept, read) = self.parallel.kept(new.shape, new.rank, new.dtype, beside);
        let storage = self.store((numel, kept), new.times, category, what);
        self.note_dims(storage, Dims::Parameter(kept.rows, kept.numel / kept.rows.max(1), new.rank));
        self.list_parameter(storage, New { dtype: read, ..new }, numel, kept)
    }

    /// Puts something frozen on the machine that stands beside the model's parameters.
    pub fn add_frozen_beside(&mut self, what: &'static What, shape: (u64, u64), dtype: Dtype) -> ParamId {
        self.add_as(Category::Adapters, what, New { dtype, ..New::frozen(shape, 1) })
    }

    /// Puts a frozen 8-bit weight on the machine.
    pub fn add_8bit(&mut self, what: &'static What, shape: (u64, u64), times: u32) -> ParamId {
        self.add_as(Category::Weights, what, New::frozen(shape, times))
    }

    /// Puts a packed 4-bit weight of so many elements on the machine, or what this rank keeps of it.
    pub fn store_packed(&mut self, numel: u64, times: u32, what: &'static What) -> StorageId {
        let (numel, kept) = self.parallel.kept_packed(numel);
        self.store((numel, kept), times, Category::Weights, what)
    }

    /// What of a parameter of so many elements lies on this rank's GPU.
    fn store(
        &mut self,
        (numel, kept): (u64, Kept),
        times: u32,
        category: Category,
        what: &'static What,
    ) -> StorageId {
        if self.parallel.keeps_on_host() {
            return NOTHING;
        }
        let loaded = if self.parallel.partitions_loaded() { numel } else { kept.numel };
        let bytes = loaded.saturating_mul(kept.dtype.bytes());
        let storage = self.persistent(bytes, kept.dtype, times, category, what);
        let Some(stays) = self.parallel.divides_read() else { return storage };
        let part = kept.numel.saturating_mul(kept.dtype.bytes());
        let part = if stays { self.persistent(part, kept.dtype, times, category, what) } else { NOTHING };
        self.release(storage);
        part
    }

    /// Where weights are divided as they are read, a head that is tied to an embedding comes by itself, and goes when it is tied (transformers
    /// modeling_utils.py `_finalize_model_loading`).
    pub fn divide_tied(&mut self, embedding: ParamId) {
        if self.parallel.divides_read().is_some() {
            let Parameter { numel, kept, .. } = *self.params.get(embedding);
            let own = self.store((numel, kept), 1, Category::Weights, &PARAMETER);
            self.release(own);
        }
    }

    /// Makes a frozen parameter of a packed 4-bit weight that is on the machine.
    pub fn list_packed(&mut self, storage: StorageId, shape: (u64, u64), times: u32) -> ParamId {
        let (numel, kept) = self.parallel.kept_packed(shape.0.saturating_mul(shape.1));
        self.list_parameter(storage, New { dtype: kept.dtype, ..New::frozen(shape, times) }, numel, kept)
    }

    /// Lists a parameter of so many elements that is on the machine, of which this rank keeps a part.
    fn list_parameter(&mut self, storage: StorageId, new: New, numel: u64, kept: Kept) -> ParamId {
        let New { shape: (rows, _), rank, dtype, trainable, times } = new;
        let (module, layer, body) = (self.module, self.layer, self.params.body);
        let in_layer = self.params.in_layer && rows > 1;
        self.params.list.push(Parameter {
            module,
            layer,
            numel,
            dtype,
            rows,
            kept,
            rank,
            trainable,
            wide_state: false,
            in_layer,
            divided: self.params.divided,
            projection_rank: None,
            blocks: None,
            projection: NOTHING,
            times,
            body,
            float8: None,
            fake: None,
            storage,
            grad: NOTHING,
            cached: None,
            expected: 0,
            waiting: None,
        });
        self.params.list.len() as ParamId - 1
    }
}

impl State {
    /// A leaf that is no parameter but gets a gradient all the same; see [`State::take_leaves`]. Its own storage is kept
    /// until then if it is `held`.
    pub fn leaf(&mut self, value: &Value, held: bool) -> ParamId {
        let id = self.params.list.len() as ParamId;
        let passing = self.graph.note_leaf(id);
        let held = (held || self.graph.offload.is_some()) && !passing;
        let storage = if held { value.storage } else { NOTHING };
        self.retain(storage);
        self.params.leaves += 1;
        let body = self.params.body;
        self.params.list.push(Parameter {
            module: self.module,
            layer: self.layer,
            numel: value.numel,
            dtype: value.dtype,
            rows: 1,
            kept: Kept { numel: value.numel, rows: 1, dtype: value.dtype },
            rank: Rank::None,
            trainable: false,
            wide_state: false,
            in_layer: false,
            divided: false,
            projection_rank: None,
            blocks: None,
            projection: NOTHING,
            times: 1,
            body,
            float8: None,
            fake: None,
            storage,
            grad: NOTHING,
            cached: None,
            expected: 0,
            waiting: None,
        });
        id
    }

    /// Notes that a node of the graph will give an input that is none of its own a gradient.
    pub fn expect_gradient(&mut self, input: Option<Input>) {
        let edge = input.filter(|_| self.graph.enabled && !self.recomputing).map(|input| input.edge);
        if let Some(Edge::Param(leaf)) = edge {
            self.params.list[leaf as usize].expected += 1;
        }
    }

    /// Forgets the leaves of the last graph; what they hold, with their gradients, is the caller's to free.
    pub fn take_leaves(&mut self) -> Vec<StorageId> {
        let first = self.params.list.len() - std::mem::take(&mut self.params.leaves);
        let leaves = self.params.list.drain(first..).rev();
        let held: Vec<StorageId> = leaves
            .flat_map(|leaf| [leaf.waiting.map_or(NOTHING, |grad| grad.storage), leaf.grad, leaf.storage])
            .collect();
        match &mut self.graph.offload {
            Some(offload) => {
                offload.reached.extend(held);
                Vec::new()
            }
            None => held,
        }
    }

    /// How many elements of a model's parameters need a gradient.
    pub fn trainable(&self, own: &Range<usize>) -> u64 {
        let trainable = self.params.of(own).iter().filter(|param| param.trainable);
        let numels = trainable.map(|param| param.numel.saturating_mul(u64::from(param.times)));
        numels.fold(0, u64::saturating_add)
    }

    /// `zero_grad(set_to_none=True)` of a model's parameters.
    pub fn drop_gradients(&mut self, own: &Range<usize>) {
        for index in own.clone() {
            let grad = std::mem::replace(&mut self.params.list[index].grad, NOTHING);
            self.release(grad);
        }
    }
}
