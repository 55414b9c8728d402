//! The model's forward pass, written as transformers' modeling code is: same operations, same order, same lifetimes.

mod attention;
mod layer;
mod load;
mod mlp;

use super::attention::Kernel;
use super::kernels::Device;
use super::linear;
use super::loss;
use super::machine::{Machine, State};
use super::norm::NormLayer;
use super::params::ParamId;
use super::tensor::{Layout, Tensor, Value};
use crate::dtype::Dtype;
use crate::estimate::Category;
use crate::model::blocks::Block;
use crate::model::{Architecture, HeadTransform, Objective};
use crate::scenario::{AttentionKernel, Checkpointing, Mask, Scenario};

/// A layer on the machine: its description and its parameters.
pub(super) struct BoundLayer<'a> {
    pub block: &'a Block,
    pub linears: Vec<linear::Layer>,
    pub norms: Vec<NormLayer>,
    pub experts: Vec<ParamId>,
}

impl BoundLayer<'_> {
    /// The linear layer of that description.
    pub fn linear(&self, spec: &crate::model::blocks::Linear) -> linear::Layer {
        find(&self.linears, |layer| layer.name == spec.name)
    }

    /// The norm of that description.
    pub fn norm(&self, spec: &crate::model::blocks::Norm) -> NormLayer {
        find(&self.norms, |norm| norm.name == spec.name)
    }
}

/// The element that a description's own parameters were bound to: loading binds every linear layer and norm of a block.
fn find<T: Copy>(list: &[T], is: impl Fn(&T) -> bool) -> T {
    match list.iter().find(|item| is(item)) {
        Some(item) => *item,
        None => unreachable!("loading binds every module of a block"),
    }
}

/// Layers that run as one body `times` times.
pub(super) struct Stretch {
    /// Indices into [`Model::layers`].
    pub layers: Vec<usize>,
    /// How often.
    pub times: u32,
}

/// A model on a machine.
pub(super) struct Model<'a> {
    pub machine: &'a Machine,
    pub architecture: &'a Architecture,
    pub scenario: &'a Scenario,
    pub device: Device,
    pub layers: Vec<BoundLayer<'a>>,
    pub stretches: Vec<Stretch>,
    pub outside: BoundOutside,
    /// Whether the embedding's output is made to require a gradient (`enable_input_require_grads`).
    pub inputs_require_grad: bool,
    /// Whether every layer runs, or one of each kind on behalf of all.
    pub whole: bool,
    pub autocast: Option<Dtype>,
}

/// The parameters outside the layers.
pub(super) struct BoundOutside {
    pub tokens: ParamId,
    pub positions: Option<ParamId>,
    pub token_types: Option<ParamId>,
    pub linears: Vec<linear::Layer>,
    pub norms: Vec<NormLayer>,
}

/// What every layer is given beside the hidden state.
pub(super) struct Shared<'m> {
    pub rotary: Option<(Tensor<'m>, Tensor<'m>)>,
    /// The mask of full attention, where one is built.
    pub full: Option<Tensor<'m>>,
    /// The mask of sliding-window attention, where one is built.
    pub sliding: Option<Tensor<'m>>,
}

/// What a forward pass leaves alive.
pub(super) struct Output<'m> {
    pub loss: Tensor<'m>,
    pub logits: Tensor<'m>,
    /// What the layers were given, where backward needs it still.
    pub shared: Option<Shared<'m>>,
}

impl<'a> Model<'a> {
    fn within<R>(&self, module: &'static str, body: impl FnOnce() -> R) -> R {
        self.machine.within(module, body)
    }

    /// `model(input_ids, labels=labels)`.
    pub fn forward(&self) -> Output<'a> {
        self.machine.state.borrow_mut().autocast = self.autocast;
        let (hidden, shared) = self.decoder();
        let output = self.machine.as_category(Category::Logits, || self.head(hidden, shared));
        let mut state = self.machine.state.borrow_mut();
        state.autocast = None;
        state.clear_cast_cache();
        drop(state);
        output
    }

    fn decoder(&self) -> (Tensor<'a>, Option<Shared<'a>>) {
        let (locals, embedded) = self.embed();
        let shared = self.shared(&embedded);
        // The caller's handle of the embedding keeps it alive beside the first layer's. Where one layer runs on behalf of
        // many, that layer is given an input of its own, as all but the first have.
        let mut hidden = if self.whole { embedded.clone() } else { embedded.twin() };
        for stretch in &self.stretches {
            hidden = self.machine.repeat(stretch.times, || {
                let mut hidden = hidden;
                for index in &stretch.layers {
                    hidden = self.layer_or_checkpoint(*index, &hidden, &shared);
                }
                hidden
            });
        }
        if let Some(norm) = &self.architecture.final_norm {
            hidden = hidden.normed(&find(&self.outside.norms, |bound| bound.name == norm.name));
        }
        drop(locals);
        drop(embedded);
        let shared = match self.scenario.checkpointing {
            Checkpointing::NonReentrant | Checkpointing::Reentrant => Some(shared),
            // masks are not saved; rotary embeddings are, by every layer
            Checkpointing::Off if !self.whole => Some(Shared { full: None, sliding: None, ..shared }),
            Checkpointing::Off => None,
        };
        (hidden, shared)
    }

    fn layer_or_checkpoint(&self, index: usize, hidden: &Tensor<'a>, shared: &Shared<'a>) -> Tensor<'a> {
        let layer = &self.layers[index];
        match self.scenario.checkpointing {
            Checkpointing::Off => self.layer(layer, hidden, shared),
            Checkpointing::NonReentrant | Checkpointing::Reentrant => {
                self.machine.checkpointed(index, hidden, || self.layer(layer, hidden, shared))
            }
        }
    }

    /// Runs a checkpointed layer's forward again.
    pub fn recompute(&self, index: usize, hidden: Tensor<'a>, shared: Option<&Shared<'a>>) {
        let Some(shared) = shared else { return };
        self.machine.state.borrow_mut().autocast = self.autocast;
        let output = self.layer(&self.layers[index], &hidden, shared);
        drop(output);
        let mut state = self.machine.state.borrow_mut();
        state.autocast = None;
        state.clear_cast_cache();
    }

    /// The first hidden state, and what the model's forward keeps in local variables meanwhile.
    fn embed(&self) -> (Vec<Tensor<'a>>, Tensor<'a>) {
        let embeddings = &self.architecture.embeddings;
        let tokens = self.scenario.tokens();
        let mut hidden = self.within(embeddings.tokens.name, || {
            let looked_up = self.lookup(self.outside.tokens, None, tokens, embeddings.tokens.width);
            if embeddings.scaled { looked_up.scale() } else { looked_up }
        });
        let positions = {
            let range = self.constant(self.scenario.sequence, Dtype::I64, "positions");
            let shifted = self.constant(self.scenario.sequence, Dtype::I64, "position ids");
            drop(range);
            shifted
        };
        let mut locals = vec![positions];
        if let (Some(table), Some(param)) = (&embeddings.positions, self.outside.positions) {
            let ids = &locals[0];
            let rows = self
                .within(table.name, || self.lookup(param, Some(ids), self.scenario.sequence, table.width));
            let sum = hidden.add_row(&rows);
            locals.push(std::mem::replace(&mut hidden, sum));
            locals.push(rows);
        }
        if let Some(norm) = &embeddings.norm {
            hidden = hidden.normed(&find(&self.outside.norms, |bound| bound.name == norm.name));
        }
        hidden = hidden.dropout(self.dropout(embeddings.dropout));
        if self.inputs_require_grad && !hidden.value.requires_grad() {
            hidden = self.require_grad(hidden);
        }
        (locals, hidden)
    }

    /// `output.requires_grad_(True)` on a leaf: its gradient is made and kept like a parameter's.
    fn require_grad(&self, hidden: Tensor<'a>) -> Tensor<'a> {
        let id = self.machine.state.borrow_mut().leaf(&hidden.value);
        hidden.with(|value| value.edge = super::autograd::Edge::Param(id))
    }

    /// `F.embedding(ids, table)`; the batch's own ids are there anyway.
    fn lookup(&self, table: ParamId, ids: Option<&Tensor<'a>>, rows: u64, width: u64) -> Tensor<'a> {
        let ids = ids.map_or(super::machine::NOTHING, |ids| ids.value.storage);
        let value = self.machine.state.borrow_mut().embedding(table, ids, rows, width);
        Tensor { machine: self.machine, value }
    }

    /// A tensor without gradient.
    fn constant(&self, numel: u64, dtype: Dtype, operation: &'static str) -> Tensor<'a> {
        let storage = self.machine.state.borrow_mut().alloc(numel, dtype, operation);
        let value = Value {
            storage,
            numel,
            dtype,
            edge: super::autograd::Edge::None,
            layout: Layout::Tokens,
            shape: Layout::Tokens,
        };
        Tensor { machine: self.machine, value }
    }

    /// Whether a dropout of the config draws masks under this scenario.
    fn dropout(&self, own: crate::model::blocks::Dropout) -> bool {
        self.scenario.dropout.map_or(own.is_active(), |dropout| dropout > 0)
    }

    /// Masks and rotary embeddings.
    fn shared(&self, hidden: &Tensor<'a>) -> Shared<'a> {
        let mut windows = self.attentions().map(|attention| attention.window);
        let sliding = self.attentions().find_map(|attention| attention.window);
        let any_full = windows.any(|window| window.is_none());
        let full = any_full.then(|| self.mask(None, hidden.value.dtype)).flatten();
        let sliding = sliding.and_then(|window| self.mask(Some(window), hidden.value.dtype));
        let rotary = self.attentions().find_map(|attention| attention.rotary.width(attention.head_dim));
        let rotary = rotary.map(|dim| self.within("rotary_emb", || self.rotary(dim, hidden.value.dtype)));
        Shared { rotary, full, sliding }
    }

    fn attentions(&self) -> impl Iterator<Item = &'a crate::model::blocks::Attention> {
        self.architecture.blocks.iter().filter_map(|block| block.mixer.attention())
    }

    /// `create_causal_mask`: None where the kernel's own causal flag does; a boolean one for SDPA, an additive one for
    /// eager (transformers masking_utils.py).
    fn mask(&self, window: Option<u64>, dtype: Dtype) -> Option<Tensor<'a>> {
        let (batch, sequence) = (self.scenario.batch, self.scenario.sequence);
        let square = sequence.saturating_mul(sequence);
        let padded = self.scenario.mask == Mask::Padded;
        let windowed = window.is_some_and(|window| sequence >= window);
        let eager = self.scenario.attention == AttentionKernel::Eager;
        if !eager && !padded && !windowed {
            return None;
        }
        // one row of masks per sequence only where they differ
        let per_batch = if padded { batch } else { 1 };
        let causal = self.constant(square, Dtype::Bool, "mask");
        let causal = if windowed {
            let window = self.constant(square, Dtype::Bool, "window");
            let both = self.constant(square, Dtype::Bool, "mask");
            drop(window);
            drop(causal);
            both
        } else {
            causal
        };
        let mask = if padded {
            let both = self.constant(square.saturating_mul(per_batch), Dtype::Bool, "mask");
            drop(causal);
            both
        } else {
            causal
        };
        if !eager {
            return Some(mask);
        }
        // `torch.where(mask, 0, min)` over the batch
        let additive = self.constant(square.saturating_mul(batch), dtype, "additive mask");
        drop(mask);
        Some(additive)
    }

    /// `rotary_emb(x, position_ids)`: cos and sin of `[1, sequence, dim]`.
    fn rotary(&self, dim: u64, dtype: Dtype) -> (Tensor<'a>, Tensor<'a>) {
        let sequence = self.scenario.sequence;
        let numel = sequence.saturating_mul(dim);
        let positions = self.constant(sequence, Dtype::F32, "positions");
        let freqs = self.constant(numel / 2, Dtype::F32, "freqs");
        let emb = self.constant(numel, Dtype::F32, "emb");
        let make = || {
            let raw = self.constant(numel, Dtype::F32, "cos");
            raw.scale()
        };
        let (cos, sin) = (make(), make());
        let result = (cos.to(dtype), sin.to(dtype));
        drop((positions, freqs, emb));
        result
    }

    /// The head and the loss.
    fn head(&self, hidden: Tensor<'a>, shared: Option<Shared<'a>>) -> Output<'a> {
        let head = &self.architecture.head;
        let bound = |name: &'static str| find(&self.outside.linears, |layer| layer.name == name);
        let transformed = match &head.transform {
            None => hidden.clone(),
            Some(HeadTransform::Project(linear)) => hidden.through(&bound(linear.name)),
            Some(HeadTransform::Dense { dense, norm }) => {
                let projected = hidden.through(&bound(dense.name));
                let active = projected.keeping_input("gelu");
                drop(projected);
                active.normed(&find(&self.outside.norms, |bound| bound.name == norm.name))
            }
        };
        let mut logits = transformed.through(&bound(head.linear.name));
        drop(transformed);
        if head.scaled {
            logits = logits.scale();
        }
        if head.softcap {
            logits = logits.scale();
            logits = logits.keeping_output("tanh");
            logits = logits.scale();
        }
        let (batch, sequence) = (self.scenario.batch, self.scenario.sequence);
        let loss = match head.objective {
            Objective::CausalLm => {
                let float = logits.to(Dtype::F32);
                let (padded, labels) = loss::shifted_labels(self.machine, batch, sequence);
                let loss = float.cross_entropy(&labels);
                drop(float);
                drop(padded);
                loss
            }
            Objective::MaskedLm => {
                let labels = self.labels();
                logits.cross_entropy(&labels)
            }
        };
        drop(hidden);
        Output { loss, logits, shared }
    }

    /// The batch's labels: on the machine already.
    fn labels(&self) -> Tensor<'a> {
        let value = Value {
            storage: super::machine::NOTHING,
            numel: self.scenario.tokens(),
            dtype: Dtype::I64,
            edge: super::autograd::Edge::None,
            layout: Layout::Tokens,
            shape: Layout::Tokens,
        };
        Tensor { machine: self.machine, value }
    }

    /// Whether any linear layer adds a bias.
    pub fn has_bias(&self) -> bool {
        let layers = self.layers.iter().flat_map(|layer| &layer.linears);
        layers.chain(&self.outside.linears).any(|linear| linear.bias.is_some())
    }

    /// Whether attention is written out in Python.
    fn is_eager(&self) -> bool {
        matches!(self.scenario.attention, AttentionKernel::Eager)
    }

    /// The kernel that runs for such attention.
    fn kernel(&self, dtype: Dtype, masked: bool, grouped: bool, head_dim: u64) -> Kernel {
        super::attention::Choice {
            wanted: self.scenario.attention,
            dtype,
            device: self.device,
            masked,
            grouped,
            head_dim,
        }
        .kernel()
    }
}

impl State {
    /// `F.embedding`.
    fn embedding(&mut self, table: ParamId, ids: super::machine::StorageId, rows: u64, width: u64) -> Value {
        use super::autograd::{Edge, Input};
        let param = self.params.list[table as usize];
        let edge = if param.trainable && self.graph.enabled { Edge::Param(table) } else { Edge::None };
        let input = Input {
            edge,
            numel: param.numel,
            dtype: param.dtype,
            layout: Layout::Tokens,
            shape: Layout::Tokens,
        };
        let node = self.node(super::backward::Op::Embedding { rows }, [input, Input::NONE, Input::NONE]);
        self.save(node, ids);
        let numel = rows.saturating_mul(width);
        let storage = self.alloc(numel, param.dtype, "embedding");
        Value {
            storage,
            numel,
            dtype: param.dtype,
            edge: node.output(0),
            layout: Layout::Tokens,
            shape: Layout::Tokens,
        }
    }
}
