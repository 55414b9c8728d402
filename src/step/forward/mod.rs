//! A model's forward pass, written as transformers' modeling code is: same operations, same order, same lifetimes.
//!
//! - [`load`], [`load_layer`], [`adapters`], [`buffers`]: the parameters and buffers on the machine, [`bound`] to their
//!   descriptions;
//! - [`inputs`], [`masks`]: the first hidden state, positions, masks; [`vision`]: pictures; [`head`]: the loss;
//! - [`layer`], [`self_attention`], [`latent`], [`rotary`], [`mlp`], [`moe`], [`router`]: a layer and its parts.

mod adapters;
mod bound;
mod buffers;
mod classification;
mod compiled;
mod cut;
mod decoder;
mod dropout;
pub(super) mod embedding;
mod evaluation;
mod fake_quant;
mod families;
mod flash_attn;
mod float8;
mod generate;
mod head;
mod inputs;
mod latent;
mod layer;
mod layer_groups;
mod linears;
mod load;
mod load_layer;
mod loader;
mod masks;
mod mlp;
mod moe;
mod rotary;
mod router;
mod self_attention;
mod short_conv;
pub(super) mod stacks;
mod tuners;
mod virtual_tokens;
mod vision;
mod wrapped;

use crate::scenario::software::{HeadCode, Trainer};
use crate::step::what::roles;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::{Deref, Range};
use std::rc::Rc;

use self::stacks::trl::log_probs::Asked;
use super::machine::Machine;
use super::ops::four_bit::Format;
use super::ops::linear;
use super::ops::merged::Mergeable;
use super::params::ParamId;
use super::repeat::Kept;
use super::tensor::{Tensor, Value};
use super::what::Role;
use crate::dtype::Dtype;
use crate::hardware::Device;
use crate::job::{Batch, Loss, Member};
use crate::memory::Category;
use crate::model::Architecture;
use crate::model::blocks::LinearClass;
use crate::model::modeling::{Code, Modeling};
use crate::scenario::{AttentionKernel, Checkpointing, Compile, LossKernel};
use bound::find;
pub(super) use bound::{BoundEncoder, BoundLayer, BoundOutside};
pub(super) use families::fills_cache;
use generate::Generating;
use inputs::Shared;
pub(super) use layer_groups::Apart;
use stacks::megatron::Share;
use tuners::Widest;

/// Layers that run as one body `times` times.
pub(super) struct LayerGroup {
    /// Indices into [`Model::layers`].
    pub layers: Vec<usize>,
    /// How often.
    pub times: u32,
}

/// A model on a machine.
pub(super) struct Model<'a> {
    pub machine: &'a Machine,
    pub architecture: &'a Architecture,
    pub member: &'a Member,
    pub modeling: Modeling,
    /// Which parameters on the machine are its own.
    pub params: Range<usize>,
    /// Whether its checkpoints are of the reentrant kind.
    reentrant: bool,
    /// Whether any attention has sinks.
    pub has_sinks: bool,
    pub device: Device,
    /// Those of an encoder first.
    pub layers: Vec<BoundLayer<'a>>,
    pub layer_groups: Vec<LayerGroup>,
    pub encoder: Option<BoundEncoder>,
    /// What looks at pictures, where the batch has some.
    tower: Option<vision::BoundTower<'a>>,
    /// The layers of towers that lie idle, where the batch has none.
    idle: Vec<Range<ParamId>>,
    pub outside: BoundOutside,
    /// Whether the embedding's output is made to require a gradient (`enable_input_require_grads`).
    pub inputs_require_grad: bool,
    /// Whether any layer has an adapter.
    pub adapted: bool,
    /// The linear layers that have adapters, in the order in which they were made.
    pub mergeable: Vec<Mergeable>,
    /// Weights of experts that a checkpoint has in two.
    pub cut_when_saved: Vec<ParamId>,
    /// Whether its optimizer projects the gradient of any layer.
    pub projects: bool,
    /// Above which rank none of its adapters gains anything.
    pub largest_rank: u64,
    /// What makes virtual tokens.
    prompt: Option<virtual_tokens::PromptEncoder>,
    /// The widest layer of those that share what VeRA has.
    widest_adapted: Widest,
    /// Which layers run one by one.
    pub apart: Apart,
    pub autocast: Option<Dtype>,
    /// Whether its layers are units whose parameters are sharded.
    pub shards: bool,
    /// Whether the forward pass fills a cache of keys and values.
    pub fills_cache: bool,
    /// Which part of a model of Megatron-core it is.
    pub part: Option<Share>,
    /// The groups of layers of each time that it runs.
    pub part_groups: Vec<Range<usize>>,
    /// Its code for batches of a shape, where torch.compile compiles all of it.
    compiled_code: RefCell<Vec<Rc<compiled::Code>>>,
}

/// One forward pass of a model: what it is given, and what it holds while it runs.
pub(super) struct Pass<'p, 'a> {
    model: &'p Model<'a>,
    pub batch: Batch,
    /// Which of the passes it is whose graphs wait for one backward, counted from 0.
    number: usize,
    /// Its token ids, where they are not the batch's own.
    ids: Option<Value>,
    /// The element type of the autocast that it runs under: the model's, where its forward is what was wrapped.
    autocast: Option<Dtype>,
    /// Whether it is one of training: gradients are wanted, checkpoints made, dropout drawn.
    trains: bool,
    /// Whether dropout is drawn although it is none.
    draws: bool,
    /// Attention probabilities of the last layer, where the model's forward keeps its layers' outputs in a variable; or the
    /// tokens that it chose.
    outputs: RefCell<Option<Tensor<'a>>>,
    /// Keys and values of the layers that have run, where they are cached, and what else the output has beside logits.
    cache: RefCell<Vec<Tensor<'a>>>,
    /// Whether it fills a cache, where its model does.
    caches: bool,
    /// What each layer was given and the last hidden states, where the output has them, and what stands for that of layers that ran on
    /// behalf of others.
    states: RefCell<Vec<Tensor<'a>>>,
    states_of_others: RefCell<Vec<Kept>>,
    /// Keys and values of a prefix, of the layers that have not run.
    cache_before: RefCell<VecDeque<Tensor<'a>>>,
    /// Variables of the forward of peft's model.
    peft_variables: RefCell<Vec<(virtual_tokens::Variable, Tensor<'a>)>>,
    /// Whether its loss balances experts, where its model has some.
    balances: bool,
    /// Logits of the routers that have run, where a loss balances experts.
    gates: RefCell<Vec<Tensor<'a>>>,
    /// The same of the layer that runs, where a variable has them to its end (llama4).
    routed: RefCell<Option<Tensor<'a>>>,
    /// What the tower's layers were given.
    tower_given: RefCell<Option<Shared<Value>>>,
    /// The pictures' numbers, where a model's root was given them in another element type.
    pixels: RefCell<Option<Tensor<'a>>>,
    /// What is added to the first layers' hidden states.
    deep: RefCell<Option<vision::Deep<'a>>>,
    /// What it has beside its batch as one of `generate`.
    generating: Option<Generating<'p, 'a>>,
}

impl<'a> Deref for Pass<'_, 'a> {
    type Target = Model<'a>;

    /// The model that runs.
    fn deref(&self) -> &Model<'a> {
        self.model
    }
}

/// What the layers are given, and those of an encoder or a tower, where there is one.
#[derive(Clone, Copy)]
pub(super) struct Given<T> {
    pub layers: T,
    pub encoder: Option<T>,
}

/// What a model makes of a batch before its head.
pub(super) struct Hidden<'m> {
    /// The last hidden states.
    states: Tensor<'m>,
    /// What the layers were given.
    given: Given<Shared<Value>>,
    /// The decoder's ids beside an encoder, where a variable of the model's forward keeps them.
    ids: Option<Tensor<'m>>,
    /// What an encoder made, which is part of the output.
    encoded: Option<Tensor<'m>>,
}

/// What a forward pass leaves alive.
pub(super) struct Output<'m> {
    pub loss: Tensor<'m>,
    /// What the script's variable of the output holds: logits, and the cache of keys and values.
    pub outputs: Vec<Tensor<'m>>,
    /// What the layers were given: recomputation is given it again. Kept alive by the checkpointed layers.
    pub shared: Given<Shared<Value>>,
}

impl<'a> Model<'a> {
    /// A forward pass over a batch, before it begins.
    pub fn pass(&self, batch: Batch) -> Pass<'_, 'a> {
        let batch = Batch { length: batch.length.saturating_add(self.lengthens_by()), ..batch };
        Pass {
            model: self,
            batch,
            number: 0,
            ids: None,
            autocast: self.autocast,
            trains: true,
            draws: false,
            outputs: RefCell::default(),
            cache: RefCell::default(),
            caches: true,
            states: RefCell::default(),
            states_of_others: RefCell::default(),
            cache_before: RefCell::default(),
            peft_variables: RefCell::default(),
            balances: false,
            gates: RefCell::default(),
            routed: RefCell::default(),
            tower_given: RefCell::default(),
            pixels: RefCell::default(),
            deep: RefCell::default(),
            generating: None,
        }
    }

    /// The same of a pass that is trained towards a loss.
    pub fn pass_towards(&self, loss: Loss, batch: Batch) -> Pass<'_, 'a> {
        Pass { balances: loss.balances(), ..self.pass(batch) }
    }

    /// Another one after so many whose graphs wait for the same backward pass, with ids of its own where it is given some.
    pub fn pass_after(&self, number: usize, batch: Batch, ids: Option<Value>) -> Pass<'_, 'a> {
        Pass { number, ids, ..self.pass(batch) }
    }

    /// The pass and the layer of a checkpoint, where several passes wait for one backward.
    pub fn pass_and_layer(&self, checkpoint: usize) -> (usize, usize) {
        let layers = self.layers.len().max(1);
        (checkpoint / layers, checkpoint % layers)
    }

    /// `with torch.no_grad(): …` over a forward pass. A graph that waits for its backward is left as it is.
    pub fn scoring<R>(&self, batch: Batch, body: impl FnOnce(&Pass<'_, 'a>) -> R) -> R {
        self.evaluating(|| body(&Pass { trains: false, ..self.pass(batch) }))
    }

    /// `with torch.no_grad(): …` of a model in its evaluation mode.
    fn evaluating<R>(&self, body: impl FnOnce() -> R) -> R {
        self.machine.with(|state| state.params.evaluates = true);
        let result = self.without_gradients(body);
        self.machine.with(|state| state.params.evaluates = false);
        result
    }

    /// The same of a model in its training mode.
    pub fn foreseeing<R>(&self, batch: Batch, body: impl FnOnce(&Pass<'_, 'a>) -> R) -> R {
        self.without_gradients(|| body(&Pass { trains: false, draws: true, ..self.pass(batch) }))
    }

    /// `with torch.no_grad(): …`.
    fn without_gradients<R>(&self, body: impl FnOnce() -> R) -> R {
        let (category, left) = self.machine.with(|state| {
            state.graph.enabled = false;
            let category = std::mem::replace(&mut state.category, Category::Temporaries);
            (category, std::mem::take(&mut state.graph.left))
        });
        let result = body();
        self.machine.with(|state| {
            state.drop_left();
            state.graph.left = left;
            state.category = category;
            state.graph.enabled = true;
        });
        result
    }

    /// A forward pass without gradients and without a loss; returns the log-probabilities of what follows the prompts, where it
    /// is those that the code makes.
    pub fn score(&self, batch: Batch, prompt: u64, asked: Asked) -> Option<Tensor<'a>> {
        if self.member.returns_states {
            return Some(self.judged(batch, prompt));
        }
        self.scoring(batch, |pass| {
            let hidden = pass.hidden();
            match self.member.software().head {
                HeadCode::Trl => Some(pass.label_log_probs(hidden, prompt, asked).0.into_log_probs()),
                HeadCode::Transformers => {
                    pass.logits_alone(hidden);
                    None
                }
                // refused by `support`
                HeadCode::Litgpt
                | HeadCode::Torchtune
                | HeadCode::Torchtitan
                | HeadCode::Unsloth
                | HeadCode::Megatron => Some(hidden.states.unmodelled("a forward pass without a loss")),
            }
        })
    }

    fn within<R>(&self, module: &'static str, role: &'static Role, body: impl FnOnce() -> R) -> R {
        self.machine.within(module, role, body)
    }

    /// Whether any linear layer adds a bias, and whether one inside the layers does.
    pub fn has_bias(&self) -> (bool, bool) {
        // a state space adds the bias of its steps by itself
        let apart = |linear: &linear::Layer| {
            linear.class == LinearClass::Subclass
                || linear.name.ends_with(".dt_proj")
                || linear.adds_bias_apart()
                // which is added after it
                || self.machine.with(|state| state.params.get(linear.weight.id()).float8.is_some())
        };
        let own = |linear: &linear::Layer| linear.bias.is_some() && !apart(linear);
        let mut inside = self.layers.iter().flat_map(|layer| &layer.linears).any(own);
        let mut any = inside
            || self.outside.linears.iter().any(own)
            || self.prompt.as_ref().is_some_and(virtual_tokens::PromptEncoder::has_bias);
        if let Some(tower) = &self.tower {
            any |= tower.inside().chain(tower.outside()).any(own);
            inside |= self.records_tower(tower) && tower.inside().any(own);
        }
        (any, inside)
    }

    /// Whether it has 8-bit weights.
    pub fn has_8bit(&self) -> bool {
        self.layers.iter().flat_map(|layer| &layer.linears).any(|linear| linear.is_of(Format::Int8))
    }

    /// Whether attention is written out in Python: always with sinks, which no kernel of PyTorch's takes.
    fn is_eager(&self) -> bool {
        matches!(self.member.attention, AttentionKernel::Eager) || self.has_sinks
    }
}

impl<'a> Pass<'_, 'a> {
    /// Which checkpoints it makes.
    fn checkpointing(&self) -> Checkpointing {
        if self.trains { self.member.checkpointing } else { Checkpointing::Off }
    }

    /// Whether its output has the hidden states of all layers: `generate` does not ask for them.
    fn keeps_states(&self) -> bool {
        (self.member.returns_states || self.member.returns_last_state) && self.generating.is_none()
    }

    /// Modules that peft puts around the model: `PeftModelForCausalLM` and `LoraModel`.
    fn wrappers(&self) -> u32 {
        match self.member.adapts {
            true if self.prompt.is_some() => 1,
            true => 2,
            false => 0,
        }
    }

    /// Makes it the pass that runs: forward, or backward again after another one.
    pub fn enter(&self) {
        self.machine.with(|state| {
            state.sequences = self.batch.sequences;
            state.length = self.batch.length;
            state.keys = self.keys(None);
            state.graph.reentrant = self.reentrant;
            state.graph.runs_whole = self.member.software().trainer == Trainer::Torchtitan;
            state.run_model(self.params.start);
        });
    }

    /// The model up to its last hidden states. Autocast, where it is used, goes on for the head.
    pub fn hidden(&self) -> Hidden<'a> {
        self.enter();
        self.cast_pixels();
        self.machine.with(|state| {
            state.enter_forward(self.shards);
            state.enter_model(self.wrappers());
            state.autocast = self.autocast;
        });
        self.lengthen_mask();
        self.make_prefix();
        match &self.encoder {
            None => self.decoder(),
            Some(encoder) if self.modeling.code == Code::Bart => self.bart(encoder),
            Some(encoder) => self.t5(encoder),
        }
    }

    /// `outputs = model(input_ids, labels=labels)`.
    pub fn labelled(&self, replace: &dyn Fn()) -> Output<'a> {
        match self.member.compile {
            Compile::Off | Compile::Layers => self.loss(self.hidden(), replace),
            Compile::Model => self.compiled_model(replace),
        }
    }

    /// The head and the loss of the batch's labels: with [`Pass::hidden`] `outputs = model(input_ids, labels=labels)`.
    /// `replace` runs when the script's variable of the output lets go of what it held.
    pub fn loss(&self, hidden: Hidden<'a>, replace: &dyn Fn()) -> Output<'a> {
        let Hidden { states, given, ids, encoded } = hidden;
        let software = self.member.software();
        let (loss, mut outputs) = self.machine.as_category(Category::Logits, &roles::HEAD, || match software
            .head
        {
            HeadCode::Trl if self.member.has_all_logits_of_trl() => {
                (self.logged_loss(states, replace), Vec::new())
            }
            HeadCode::Trl => self.trl_head(states, replace),
            HeadCode::Transformers if self.member.loss == LossKernel::FloatLogits => {
                self.float_logits_loss(states, replace)
            }
            HeadCode::Transformers => {
                let output =
                    if self.modeling.code == Code::Qwen { self.qwen_head(states) } else { self.head(states) };
                self.leave_peft();
                if encoded.is_none() {
                    replace();
                }
                output
            }
            HeadCode::Litgpt => self.litgpt_head(states, replace),
            HeadCode::Torchtune => self.torchtune_head(states, replace),
            HeadCode::Torchtitan => self.torchtitan_head(states, replace),
            HeadCode::Unsloth => self.unsloth_head(states, replace),
            HeadCode::Megatron => (states.unmodelled("Megatron-core outside of its schedules"), Vec::new()),
        });
        drop(ids);
        outputs.append(&mut self.cache.borrow_mut());
        let encodes = encoded.is_some();
        outputs.extend(encoded);
        self.leave_autocast();
        if encodes {
            replace();
        }
        let loss = match software.head {
            // its model returns logits, of which its recipe makes the loss
            HeadCode::Torchtune | HeadCode::Torchtitan => loss,
            // its model returned before what is logged was made
            HeadCode::Trl if self.member.has_all_logits_of_trl() => loss,
            // its model returned logits
            HeadCode::Transformers if self.member.loss == LossKernel::FloatLogits => loss,
            HeadCode::Transformers
            | HeadCode::Trl
            | HeadCode::Litgpt
            | HeadCode::Unsloth
            | HeadCode::Megatron => self.leave_forward(loss),
        };
        Output { loss, outputs, shared: given }
    }

    /// The model's forward pass is over: what its code goes on with, whose gradient begins the backward pass.
    fn leave_forward(&self, result: Tensor<'a>) -> Tensor<'a> {
        drop(self.pixels.take());
        self.machine.leave_forward(result, self.wrappers(), self.shards)
    }

    /// What the model returns beside that, whose gradient begins the backward pass as well.
    fn further_result(&self, result: &Tensor<'a>) -> Tensor<'a> {
        self.machine.further_result(result, self.wrappers())
    }

    /// The head without a loss: `outputs = model(input_ids)`, which is dropped at once.
    fn logits_alone(&self, hidden: Hidden<'a>) {
        let Hidden { states, given: _, ids, encoded } = hidden;
        let logits = self.machine.as_category(Category::Logits, &roles::HEAD, || self.logits(&states));
        drop(states);
        drop(ids);
        let cache = self.cache.take();
        self.leave_autocast();
        drop(logits);
        drop(cache);
        drop(encoded);
    }

    /// The end of `with torch.autocast(…)`.
    fn leave_autocast(&self) {
        self.machine.with(|state| {
            state.autocast = None;
            state.clear_cast_cache();
        });
    }
}
