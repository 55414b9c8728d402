//! Puts a whole model on the machine, layer by layer or one layer on behalf of all that are like it.

use std::cell::RefCell;
use std::ops::Range;

use super::adapters::{Part, adapts, adapts_head};
use super::buffers;
use super::classification::is_saved;
use super::families::{self, gemma4};
use super::layer_groups::{Apart, layer_groups, layer_groups_but_last, reduced_alike};
use super::load_layer::{load_block, load_submodule};
use super::loader::{Loader, weights_dtype};
use super::stacks::liger;
use super::stacks::megatron::{self, Share};
use super::stacks::torchtune::positions::Positions;
use super::stacks::trl::balance::balanced;
use super::tuners::{Shared, Widest};
use super::virtual_tokens;
use super::vision;
use super::{BoundEncoder, BoundLayer, BoundOutside, LayerGroup, Model};
use crate::dtype::Dtype;
use crate::hardware::Device;
use crate::job::{Batch, HeadKind, Member};
use crate::model::Architecture;
use crate::model::HeadTransform;
use crate::model::blocks::{Block, LinearClass, Mixer, Rotary, Wiring};
use crate::model::modeling::{Code, Modeling, PositionIds};
use crate::model::vision::Vision;
use crate::scenario::software::{InputGrads, ModelCode, Quantiser};
use crate::scenario::tuners::scaled;
use crate::scenario::{Checkpointing, Compile, Float8Layers, Method, Optimizer, Precision, Tuner};
use crate::step::machine::{Machine, State};
use crate::step::ops::linear::{self, Shape, Weight};

/// The element type of autocast, where it is used.
pub(super) fn autocast_dtype(precision: Precision) -> Option<Dtype> {
    match precision {
        Precision::Fp32 | Precision::Bf16 | Precision::Fp16 => None,
        Precision::AmpBf16 | Precision::AmpBf16Weights => Some(Dtype::Bf16),
        Precision::AmpFp16 | Precision::AmpFp16Weights => Some(Dtype::F16),
    }
}

/// Whether the first layer casts the embedding's output itself, which autocast's cache then holds.
fn casts_embeddings(architecture: &Architecture, member: &Member) -> bool {
    let normed = |block: &Block| !matches!(block.wiring, Wiring::PostNorm { .. } | Wiring::OutputNorm { .. });
    autocast_dtype(member.precision).is_some() && !architecture.blocks.first().is_none_or(normed)
}

/// Whether some layers multiply complex numbers for their positions and others have none.
fn turns_in_part(architecture: &Architecture) -> bool {
    let attentions = || architecture.blocks.iter().filter_map(|block| block.mixer.attention());
    let turns = |rotary| attentions().any(|attention| attention.rotary == rotary);
    turns(Rotary::Complex) && turns(Rotary::None)
}

/// Layers by the numbers of their kinds, and how often each row of them runs.
type Kinds = Vec<(Vec<u16>, u32)>;

/// Puts layers on the machine, the last of which has the parameter `last`; returns them as groups.
fn load_layers<'a>(
    loader: &mut Loader<'_>,
    blocks: &'a [Block],
    kinds: Kinds,
    (layers, mut last): (&mut Vec<BoundLayer<'a>>, Option<String>),
) -> Vec<LayerGroup> {
    let mut result = Vec::with_capacity(kinds.len());
    let count = kinds.len();
    for (kinds, times) in kinds {
        loader.times = times;
        loader.last = if result.len() + 1 == count { last.take() } else { None };
        loader.state.params.body += 1;
        loader.state.params.in_layer = true;
        let mut indices = Vec::with_capacity(kinds.len());
        for kind in kinds {
            let Some(block) = blocks.get(usize::from(kind)) else { continue };
            let number = layers.len();
            indices.push(number);
            let first = loader.state.params.next();
            loader.state.layer = number as u32 + 1;
            let layer = load_block(loader, block);
            loader.state.layer = 0;
            layers.push(BoundLayer { own: first..loader.state.params.next(), number, ..layer });
        }
        result.push(LayerGroup { layers: indices, times });
    }
    loader.times = 1;
    loader.last = None;
    loader.state.params.body += 1;
    loader.state.params.in_layer = false;
    result
}

impl<'a> Model<'a> {
    /// Puts the model on the machine; layer by layer those that are `apart`, otherwise one of each kind on behalf of all.
    /// `batch` is the largest that it will be given.
    pub fn load(
        machine: &'a Machine,
        architecture: &'a Architecture,
        modeling: Modeling,
        (member, batch, part): (&'a Member, Batch, Option<Share>),
        device: Device,
        apart: Apart,
    ) -> Model<'a> {
        let loads = Loads { architecture, modeling, member, batch, part, device, apart };
        let widest = loads.widest_adapted();
        machine.with(|state| loads.load(machine, state, widest))
    }
}

/// What is put on a machine, and what it will be given there.
#[derive(Clone, Copy)]
struct Loads<'a> {
    architecture: &'a Architecture,
    modeling: Modeling,
    member: &'a Member,
    batch: Batch,
    part: Option<Share>,
    device: Device,
    apart: Apart,
}

impl<'a> Loads<'a> {
    /// The widest adapted layer, where what all layers share is as wide: found by loading the model beside.
    fn widest_adapted(self) -> Option<Widest> {
        let shares = self.member.adapts && self.member.lora.tuner == Tuner::Vera;
        shares.then(|| {
            let beside = Machine::new(self.device, None);
            beside.with(|state| self.load(&beside, state, None).widest_adapted)
        })
    }

    /// Puts the model on the machine; `widest` is the widest adapted layer where it is known.
    fn load(self, machine: &'a Machine, state: &mut State, widest: Option<Widest>) -> Model<'a> {
        let Loads { architecture, modeling, member, batch, part, device, apart } = self;
        let base = weights_dtype(member);
        let software = member.software();
        let prepared = member.method == Method::Qlora
            && (member.quantization.makes_rest_float32() && software.prepares_for_4_bit
                || member.trainer_prepares);
        // accelerate has its optimizer step float32 shards under mixed precision
        let upcast = autocast_dtype(member.precision).is_some()
            && member.method == Method::Full
            && state.parallel.has_units_by_accelerate()
            && member.training.is_some();
        let dtype = if prepared || upcast { Dtype::F32 } else { base };
        let checkpoints = member.checkpointing != Checkpointing::Off;
        let first = state.params.list.len();
        let inputs_require_grad = match software.input_grads {
            InputGrads::None => false,
            // transformers 5.17 `gradient_checkpointing_enable` sees to it, whoever else does
            // and axolotl beside adapters (loaders/adapter.py `load_adapter`)
            InputGrads::Checkpointed => checkpoints || state.parallel.has_units_of_adapters(),
            InputGrads::Always => true,
        } && !self.trains_embeddings()
            && member.adapts;
        let code = modeling.code;
        let mut loader = Loader {
            member,
            batch,
            parts: part.map_or(1, |part| part.times),
            liger: liger::patched(member, architecture),
            modeling,
            state,
            dtype,
            times: 1,
            positions: match software.model {
                ModelCode::Torchtune => Positions::of(architecture, member),
                ModelCode::Transformers
                | ModelCode::Torchtitan
                | ModelCode::Unsloth
                | ModelCode::Litgpt
                | ModelCode::Megatron => None,
            },
            has_quantised: false,
            mergeable: Vec::new(),
            cut_when_saved: Vec::new(),
            adapted: false,
            projects: false,
            largest_rank: 0,
            last: None,
            scaled: scaled(architecture),
            shared: Shared { known: widest, ..Shared::default() },
        };
        let unquantised = (!architecture.towers.is_empty()).then(|| architecture.last_outside()).flatten();
        // only what is trained is made float32
        let stored = upcast.then_some(base);
        let (tower, idle) =
            vision::towers(&mut loader, (architecture, batch), unquantised.as_deref(), stored);
        let mut outside = self.before_layers(&mut loader);
        let first_apart = self.first_is_apart(&loader, inputs_require_grad);
        let whole = apart == Apart::All;
        // llama4's layers take turns with and without positions; beside adapters in 16 bits one period on behalf of all counts one hidden
        // state too few, which was not explained
        if member.adapts && base.bytes() == 2 && turns_in_part(architecture) {
            loader.state.heap.alike = false;
        }
        let mut layers = Vec::new();
        let encoder = architecture.encoder.as_ref().map(|encoder| {
            let apart = layer_groups_but_last(&encoder.order, whole, 1);
            let layer_groups = load_layers(&mut loader, &encoder.blocks, apart, (&mut layers, None));
            let final_norm = encoder.final_norm.as_ref().map(|norm| loader.norm(norm));
            let positions = encoder.positions.as_ref().map(|table| loader.table(table));
            if modeling.positions == PositionIds::FixedSines {
                // sines, which are not trained
                let tables = [positions, outside.positions];
                tables.into_iter().flatten().for_each(|id| loader.freeze(id));
            }
            let norm = encoder.norm.as_ref().map(|norm| loader.norm(norm));
            BoundEncoder { layers: layers.len(), layer_groups, positions, norm, final_norm }
        });
        let whole = whole || self.keeps_layers_apart();
        let last = match (software.quantiser, member.method) {
            (Quantiser::Transformers, Method::Qlora) => architecture.last_of_layers(),
            (Quantiser::Transformers, Method::Full | Method::Lora)
            | (Quantiser::Unsloth | Quantiser::Fabric | Quantiser::Torchao, _) => None,
        };
        let has_units = loader.state.parallel.has_units();
        let (kinds, part_groups) = self.groups(whole, first_apart, last.is_some(), has_units);
        let bound_groups = load_layers(&mut loader, &architecture.blocks, kinds, (&mut layers, last));
        if code == Code::Gemma4 {
            gemma4::note_last_kinds(&mut layers);
        }
        if let Some(norm) = &architecture.final_norm {
            let norm = loader.norm(norm);
            outside.norms.push(norm);
        }
        for submodule in &architecture.extra {
            load_submodule(
                &mut loader,
                submodule,
                (&mut outside.linears, &mut outside.norms, &mut outside.params),
            );
        }
        self.transform(&mut loader, &mut outside);
        let head = self.head(&mut loader, &mut outside);
        outside.linears.push(head);
        let prompt = loader.prompt_encoder(architecture);
        loader.state.module = "";
        buffers::buffers(&mut loader, architecture);
        // one that only scores is no more than one unit
        let (widest_adapted, largest_rank) = (loader.shared.widest, loader.largest_rank);
        let projects = loader.projects;
        let (adapted, shards) =
            (loader.adapted, loader.state.parallel.has_units() && member.training.is_some());
        let engine = &loader.state.parallel;
        let autocasts = !engine.has_own_type() || shards && engine.has_units_under_autocast();
        let quantised = loader.has_quantised && loader.loads_in_parts();
        if let Some(record) = &mut loader.state.record {
            record.end_loading(quantised);
        }
        let params = first..loader.state.params.list.len();
        if member.training.is_some_and(|training| training.optimizer == Optimizer::AdamMini) {
            loader.state.divide_for_mini(&params, architecture);
        }
        let (mergeable, cut_when_saved) = (loader.mergeable, loader.cut_when_saved);
        Model {
            machine,
            params,
            // Unsloth asks for the reentrant kind whatever is chosen
            // and Megatron-core's own function is of that kind
            reentrant: member.checkpointing.is_reentrant()
                || software.model == ModelCode::Unsloth
                || software.model == ModelCode::Megatron && checkpoints,
            architecture,
            member,
            modeling,
            has_sinks: layers.iter().any(|layer| layer.sinks.is_some()),
            layers,
            device,
            encoder,
            tower,
            idle,
            layer_groups: bound_groups,
            outside,
            inputs_require_grad,
            apart,
            adapted,
            mergeable,
            cut_when_saved,
            projects,
            largest_rank,
            prompt,
            widest_adapted,
            autocast: autocast_dtype(member.precision).filter(|_| autocasts),
            shards,
            fills_cache: families::fills_cache(modeling, architecture, member),
            part,
            part_groups,
            compiled_code: RefCell::default(),
        }
    }

    /// Embeddings and what stands between them and the layers.
    fn before_layers(self, loader: &mut Loader<'_>) -> BoundOutside {
        let embeddings = &self.architecture.embeddings;
        loader.narrow_ends(true);
        loader.state.params.divided = self.architecture.shares_table();
        let tokens = loader.table(&embeddings.tokens);
        loader.state.params.divided = false;
        let positions = embeddings.positions.as_ref().map(|table| loader.table(table));
        loader.narrow_ends(false);
        let token_types = embeddings.token_types.as_ref().map(|table| loader.table(table));
        let mut outside = BoundOutside {
            tokens,
            positions,
            token_types,
            linears: Vec::new(),
            norms: Vec::new(),
            params: Vec::new(),
        };
        if let Some(norm) = &embeddings.norm {
            let norm = loader.norm(norm);
            outside.norms.push(norm);
        }
        if let Some(linear) = &embeddings.project_in {
            let adapted = adapts(loader, linear, Part::Head);
            let linear = loader.linear(linear, adapted, true);
            outside.linears.push(linear);
        }
        outside
    }

    /// Whether the first layer runs by itself.
    fn first_is_apart(self, loader: &Loader<'_>, inputs_require_grad: bool) -> bool {
        // the first layer is given what needs no gradient, what the outputs or another pass of the graph hold, what is there while the
        // embedding is gathered in backward, or what is of another element type
        let keeps_leaf = self.member.keeps_inputs() || loader.state.parallel.has_units_by_accelerate();
        self.member.method != Method::Full && (!inputs_require_grad || keeps_leaf)
            || families::single::has_wide_residual(self.architecture)
            || families::keeps_weights(self.modeling.code)
            || inputs_require_grad && casts_embeddings(self.architecture, self.member)
            || virtual_tokens::lengthens_by(self.member) > 0
            // the first linear layer of all does not multiply in 8 bits
            || self.member.float8.is_on() && self.member.float8.layers == Float8Layers::Inner
            || self.apart == Apart::First
    }

    /// Whether each layer runs by itself, as all have something of their own.
    fn keeps_layers_apart(self) -> bool {
        // layers hand on what they chose
        self.modeling.shares_indexer_choice
            // each layer has keys and values of its own part of a prefix
            || virtual_tokens::prefix(self.member) > 0
            // their routers' logits wait for the loss
            || balanced(self.architecture, self.member).is_some()
            // all of them are in one graph
            || self.member.compile == Compile::Model
            // their modules hold something from one micro-batch of Megatron-core's to the next
            || self.part.is_some() && megatron::holds(self.architecture)
    }

    /// The layers as groups of those that run on behalf of others, and which groups each part of a stage has. `whole`: each by itself;
    /// `has_last`: the last one has the module that is not quantised; `has_units`: layers are gathered when they run.
    fn groups(
        self,
        whole: bool,
        first_apart: bool,
        has_last: bool,
        has_units: bool,
    ) -> (Kinds, Vec<Range<usize>>) {
        let mut part_groups = Vec::new();
        // what the first layers return is changed before the next one is given it
        let seen = vision::looks(self.architecture, self.batch).map(|(_, vision)| vision);
        let ahead = seen.map_or(0, Vision::layers_apart);
        // the first layer that attends to pictures keeps what all others share, the last one makes its gradient
        let order = &self.architecture.order;
        let crosses = |kind: &u16| {
            let block = self.architecture.blocks.get(usize::from(*kind));
            block.is_some_and(|block| matches!(block.mixer, Mixer::Cross(_)))
        };
        let crossed = seen.filter(|vision| vision.crossed.is_some());
        let crossed =
            crossed.and_then(|_| order.iter().position(crosses).zip(order.iter().rposition(crosses)));
        let ahead = ahead.max(crossed.map_or(0, |(first, _)| first + 1));
        let (ahead, order) = order.split_at(ahead.min(order.len()));
        let mut kinds: Kinds = ahead.iter().map(|kind| (vec![*kind], 1)).collect();
        kinds.extend(match self.architecture.encoder {
            None if let Some(part) = self.part => {
                let mut groups = Vec::new();
                let mut rest = order;
                for number in 0..part.times {
                    // none where the embedding or the head is a part by itself
                    let (layers, further) = rest.split_at(part.layers(number).min(rest.len()));
                    rest = further;
                    let first = groups.len();
                    // the last layer's gradient may come from another stage, whose schedule holds it
                    groups.extend(if part.is_whole() {
                        layer_groups(layers, whole, false)
                    } else {
                        layer_groups_but_last(layers, whole, 1)
                    });
                    part_groups.push(first..groups.len());
                }
                groups
            }
            None if let Some((_, last)) = crossed => {
                let apart = self.architecture.order.len().saturating_sub(last).min(order.len());
                layer_groups_but_last(order, whole, apart)
            }
            None if has_last => layer_groups_but_last(order, whole, 1),
            Some(_) => layer_groups_but_last(order, whole, 1),
            None if self.modeling.code == Code::Deberta => layer_groups_but_last(order, whole, 1),
            None if self.modeling.code == Code::Gemma4 => {
                layer_groups_but_last(order, whole, gemma4::last_kinds(self.architecture))
            }
            // the first unit has none before it to gather ahead, the last one none whose gradients were reduced
            None if has_units => reduced_alike(order, whole, &self.architecture.blocks),
            None if self.member.checkpointing == Checkpointing::Offloaded => {
                layer_groups_but_last(order, whole, 1)
            }
            None => layer_groups(order, whole, first_apart),
        });
        (kinds, part_groups)
    }

    /// What stands between the last layer and the output head.
    fn transform(self, loader: &mut Loader<'_>, outside: &mut BoundOutside) {
        match &self.architecture.head.transform {
            None | Some(HeadTransform::Pooler) => {}
            Some(HeadTransform::Project(linear)) => {
                let adapted = adapts(loader, linear, Part::Head);
                let linear = loader.linear(linear, adapted, true);
                outside.linears.push(linear);
            }
            Some(HeadTransform::Dense { dense, norm, .. }) => {
                let adapted = adapts(loader, dense, Part::Head);
                let dense = loader.linear(dense, adapted, true);
                outside.linears.push(dense);
                let norm = loader.norm(norm);
                outside.norms.push(norm);
            }
            Some(HeadTransform::Classifier(classifier)) => {
                let saved = self.member.adapts && is_saved(&classifier.dense);
                let adapted = !saved && adapts(loader, &classifier.dense, Part::Head);
                let mut dense = loader.linear(&classifier.dense, adapted, true);
                if saved {
                    loader.train_whole(&mut dense);
                }
                outside.linears.push(dense);
                if let Some(norm) = &classifier.norm {
                    let norm = loader.norm(norm);
                    outside.norms.push(norm);
                }
            }
        }
    }

    /// The output head; where the embeddings are trained, their copy and its own.
    fn head(self, loader: &mut Loader<'_>, outside: &mut BoundOutside) -> linear::Layer {
        let head = &self.architecture.head;
        let adapts_head = match head.transform {
            // to peft a pooler is a layer like any other
            Some(HeadTransform::Pooler) => adapts(loader, &head.linear, Part::Head),
            _ => adapts_head(self.member, head.linear.name),
        };
        loader.narrow_ends(true);
        let mut head = if head.tied {
            loader.state.divide_tied(outside.tokens);
            let bias = head.linear.bias.then(|| loader.parameter((1, head.linear.output)));
            let (adapter, tuned) = if adapts_head { loader.beside(&head.linear, None) } else { (None, None) };
            linear::Layer {
                name: head.linear.name,
                shape: Shape { input: head.linear.input, output: head.linear.output },
                weight: Weight::Plain(outside.tokens),
                bias,
                class: LinearClass::Linear,
                divided: head.linear.divided,
                adapter,
                tuned,
            }
        } else {
            let layer = loader.linear(
                &head.linear,
                adapts_head,
                self.member.software().quantiser == Quantiser::Fabric,
            );
            loader.project_head(&layer);
            layer
        };
        loader.narrow_ends(false);
        if matches!(self.member.head, HeadKind::Numbers(_)) && self.member.adapts {
            // peft trains the head of a task of `SEQ_CLS` whole, beside the one that was loaded
            loader.train_whole(&mut head);
        }
        if self.trains_embeddings() {
            outside.tokens = loader.trained_copy(outside.tokens);
            loader.widen_state(outside.tokens);
            loader.train_whole(&mut head);
        }
        head
    }

    fn trains_embeddings(self) -> bool {
        self.member.adapts && self.member.lora.trains_embeddings
    }
}
