//! Puts a model's parameters on the machine: element types, 4-bit weights.

use super::adapters::{Part, adapts, adapts_head, adapts_idle, lora_is_on};
use super::buffers;
use super::families::{self, gemma4};
use super::load_layer::{load_block, load_piece};
use super::stacks::liger;
use super::stacks::torchtune::Positions;
use super::stretches::{Apart, stretches, stretches_but_last};
use super::{BoundEncoder, BoundLayer, BoundOutside, Model, Stretch};
use crate::dtype::Dtype;
use crate::job::{Batch, Member};
use crate::memory::Category;
use crate::model::Architecture;
use crate::model::HeadTransform;
use crate::model::blocks::Table;
use crate::model::blocks::{
    BareParam, Block, Conv, Linear, LinearClass, Moe, Norm, NormKind, Param, ParamRole, Wiring,
};
use crate::model::modeling::{Code, Modeling, PositionIds};
use crate::scenario::{Checkpointing, LoraTargets, Method, Precision, Stack, WeightFormat};
use crate::step::device::Device;
use crate::step::heap::{NOTHING, StorageId};
use crate::step::machine::{Machine, State};
use crate::step::ops::experts::Expert;
use crate::step::ops::four_bit::{DOUBLE_QUANT_BLOCK, Format, QUANT_BLOCK, Quantised};
use crate::step::ops::linear::{self, Adapter, Shape, Weight};
use crate::step::ops::norm::NormLayer;
use crate::step::params::ParamId;

/// The element type that weights are loaded in.
pub(super) fn weights_dtype(precision: Precision) -> Dtype {
    match precision {
        Precision::Fp32 | Precision::AmpBf16 | Precision::AmpFp16 => Dtype::F32,
        Precision::Bf16 | Precision::AmpBf16Weights => Dtype::Bf16,
        Precision::Fp16 => Dtype::F16,
    }
}

/// The element type of autocast, where it is used.
fn autocast_dtype(precision: Precision) -> Option<Dtype> {
    match precision {
        Precision::Fp32 | Precision::Bf16 | Precision::Fp16 => None,
        Precision::AmpBf16 | Precision::AmpBf16Weights => Some(Dtype::Bf16),
        Precision::AmpFp16 => Some(Dtype::F16),
    }
}

/// How parameters are stored under a member.
pub(super) struct Loader<'a> {
    pub member: &'a Member,
    /// The largest batch that it will be given.
    pub batch: Batch,
    pub modeling: Modeling,
    /// Whether norms stand before and behind the halves of its layers.
    sandwich: bool,
    pub state: &'a mut State,
    /// Of the weights that are not 4-bit.
    pub dtype: Dtype,
    pub(super) times: u32,
    /// torchtune's table of sines and cosines.
    pub(super) positions: Option<Positions>,
    /// Whether there is a 4-bit weight.
    pub(super) has_quantised: bool,
    /// Whether any layer has an adapter.
    pub(super) adapted: bool,
    /// The parameter of the running layer that is the model's last.
    last: Option<String>,
}

impl Loader<'_> {
    /// Whether the model's own parameters need a gradient. trl leaves those of a reference as they were loaded.
    fn trains_base(&self) -> bool {
        let frozen = self.member.training.is_none() && self.member.stack != Stack::Trl;
        self.member.method == Method::Full && !frozen
    }

    pub fn parameter(&mut self, shape: (u64, u64)) -> ParamId {
        let (dtype, trainable, times) = (self.dtype, self.trains_base(), self.times);
        self.state.add_parameter(shape, dtype, trainable, times, Category::Weights)
    }

    /// A linear layer; `adapted` where LoRA's targets name it, `quantisable` where 4-bit loading converts it.
    pub fn linear(&mut self, spec: &Linear, adapted: bool, quantisable: bool) -> linear::Layer {
        self.state.module = spec.name;
        let shape = Shape { input: spec.input, output: spec.output };
        // transformers leaves what `_keep_in_fp32_modules` names as it is, t5's wo, and the module that is registered last
        let last = self.last.as_deref().and_then(|last| last.strip_suffix(".weight"));
        let kept = spec.name.ends_with(".DenseReluDense.wo") || last == Some(spec.name);
        let quantised = self.member.method == Method::Qlora
            && quantisable
            && !kept
            && spec.class != LinearClass::Subclass;
        let mut original = NOTHING;
        let weight = match (quantised, self.member.stack) {
            (false, _) => Weight::Plain(self.parameter(match spec.class {
                LinearClass::Linear | LinearClass::Subclass => (spec.output, spec.input),
                LinearClass::Conv1d => (spec.input, spec.output),
            })),
            (true, Stack::Torchtune) => {
                let quantised;
                (quantised, original) = self.torchao_weight(spec);
                Weight::Quantised(quantised)
            }
            (true, Stack::Transformers | Stack::Trl | Stack::Liger | Stack::Litgpt | Stack::Unsloth) => {
                Weight::Quantised(self.quantised_weight(spec))
            }
        };
        let bias = spec.bias.then(|| match weight {
            // the first forward turns it into the type of the computation for good
            Weight::Quantised(Quantised { compute, .. }) => {
                self.state.add_parameter((1, spec.output), compute, false, self.times, Category::Weights)
            }
            Weight::Plain(_) => self.parameter((1, spec.output)),
        });
        let compute = match weight {
            Weight::Quantised(quantised) => Some(quantised.compute),
            Weight::Plain(_) => None,
        };
        let adapter = adapted.then(|| self.adapter(spec, compute));
        self.state.release(original);
        linear::Layer { name: spec.name, shape, weight, bias, class: spec.class, adapter }
    }

    /// bitsandbytes' NF4: half a byte per weight, a scale per 64 weights, under double quantisation one byte per scale
    /// and a scale per 256 of those; code books of 16 and 256 floats (functional.py `quantize_4bit`).
    fn quantised_weight(&mut self, spec: &Linear) -> Quantised {
        let double = self.member.quantization.double_quant;
        self.has_quantised = true;
        let numel = spec.weight_numel();
        let scales = numel.div_ceil(QUANT_BLOCK);
        let times = self.times;
        let first = self.state.storages.len();
        let mut store = |bytes: u64, dtype: Dtype, name: &'static str| {
            let category = if name == "4-bit weight" { Category::Weights } else { Category::QuantState };
            self.state.persistent(bytes, dtype, times, category, name);
        };
        store(numel.div_ceil(2), Dtype::U8, "4-bit weight");
        store(16 * 4, Dtype::F32, "code book");
        if double {
            store(scales, Dtype::U8, "scales (8-bit)");
            store(scales.div_ceil(DOUBLE_QUANT_BLOCK) * 4, Dtype::F32, "scales of scales");
            store(256 * 4, Dtype::F32, "code book");
            store(4, Dtype::F32, "offset");
        } else {
            store(scales.saturating_mul(4), Dtype::F32, "scales");
        }
        self.state.note_shapes(first, (spec.output, spec.input));
        let compute = match self.member.precision {
            Precision::AmpFp16 | Precision::Fp16 => Dtype::F16,
            Precision::Fp32 | Precision::Bf16 | Precision::AmpBf16 | Precision::AmpBf16Weights => Dtype::Bf16,
        };
        let early = self.member.quantization.format == WeightFormat::Nf4Early;
        let origin = match self.member.stack {
            Stack::Transformers | Stack::Trl | Stack::Liger => weights_dtype(self.member.precision),
            // torchao's are another affair
            Stack::Torchtune | Stack::Unsloth => compute,
            // Fabric quantises from float16 whatever the computation is in (lightning 2.6, fabric/plugins/precision)
            Stack::Litgpt => Dtype::F16,
        };
        let opened = match self.member.stack {
            Stack::Litgpt => origin,
            _ if early => origin,
            Stack::Transformers | Stack::Trl | Stack::Liger | Stack::Torchtune | Stack::Unsloth => compute,
        };
        let format = if early { Format::BitsandbytesEarly } else { Format::Bitsandbytes };
        Quantised { format, compute, origin, opened, double }
    }

    /// torchao's `NF4Tensor`, and the weight that it was made of, which is there until the layer is.
    fn torchao_weight(&mut self, spec: &Linear) -> (Quantised, StorageId) {
        let dtype = self.dtype;
        let first = self.state.storages.len();
        let times = self.times;
        let original = self.state.store_nf4(spec.weight_numel(), dtype, times);
        self.state.note_shapes(first, (spec.output, spec.input));
        let [compute, origin, opened] = [dtype; 3];
        (Quantised { format: Format::Nf4Tensor, compute, origin, opened, double: true }, original)
    }

    /// The two expert tensors. peft adapts them as parameters: the first with the rank of two layers, because it is two
    /// in one (peft 0.21 utils/transformers_weight_conversion.py).
    pub fn experts(&mut self, moe: &Moe) -> Vec<Expert> {
        let first = if moe.gated { moe.expert_width.saturating_mul(2) } else { moe.expert_width };
        let lora = self.member.lora;
        let adapted = lora_is_on(self.member)
            && matches!(lora.targets, LoraTargets::AllLinear | LoraTargets::AllLinearAndHead)
            && self.modeling.peft.experts;
        self.state.module = "mlp.experts";
        let mut make = |input: u64, output: u64, rank: u64| {
            let rows = moe.experts.saturating_mul(output);
            let weight = self.parameter((rows, input));
            let bias = moe.expert_bias.then(|| self.parameter((moe.experts, output)));
            let adapter = adapted.then(|| {
                let rank = rank.saturating_mul(moe.experts);
                Adapter { rank, dropout: false, ..self.adapter_of((rank, input), (output, rank), None) }
            });
            Expert { weight, bias, experts: moe.experts, input, output, adapter }
        };
        vec![
            make(moe.hidden, first, lora.rank.saturating_mul(2)),
            make(moe.expert_width, moe.hidden, lora.rank),
        ]
    }

    pub fn norm(&mut self, spec: &Norm) -> NormLayer {
        self.state.module = spec.name;
        let (weight, bias) = match spec.kind {
            NormKind::LayerNorm { bias } => (true, bias),
            NormKind::LayerNormPlusOne => (true, true),
            NormKind::LayerNormPlain | NormKind::LayerNormBare | NormKind::RmsPlain | NormKind::Identity => {
                (false, false)
            }
            NormKind::Rms
            | NormKind::RmsPlusOne
            | NormKind::RmsCastLast
            | NormKind::RmsPower
            | NormKind::RmsLate
            | NormKind::LayerNormPython => (true, false),
        };
        let apart = matches!(spec.kind, NormKind::LayerNorm { .. });
        let heads = if apart { spec.rows.max(1) } else { 1 };
        let weight = weight.then(|| self.parameter((if apart { 1 } else { spec.rows }, spec.width)));
        for _ in 1..heads {
            self.parameter((1, spec.width));
        }
        let bias = bias.then(|| self.parameter((1, spec.width)));
        let kernel = liger::norm(self.member, spec.kind, self.sandwich);
        NormLayer { name: spec.name, width: spec.width, kind: spec.kind, weight, bias, heads, kernel }
    }

    /// A depthwise convolution.
    pub fn conv(&mut self, conv: &Conv) -> (ParamId, Option<ParamId>) {
        self.state.module = conv.name;
        let weight = self.parameter((conv.channels, conv.kernel));
        (weight, conv.bias.then(|| self.parameter((1, conv.channels))))
    }

    /// A parameter of its own.
    pub fn bare(&mut self, bare: &BareParam) -> ParamId {
        self.state.module = bare.name;
        match bare.shape[..] {
            [rows, columns] => self.parameter((rows, columns)),
            _ => self.parameter((1, bare.shape.iter().fold(1, |all: u64, n| all.saturating_mul(*n)))),
        }
    }

    /// A parameter that no forward pass reads; 4-bit loading and LoRA treat its layer like any other.
    fn tower(&mut self, param: &Param, quantisable: bool) {
        match (param.role, &param.shape[..]) {
            (ParamRole::LinearWeight, [output, input]) => {
                let path = param.name.trim_end_matches(".weight");
                let adapted = adapts_idle(self.member, path);
                self.linear(&Linear::new("tower", *input, *output), adapted, quantisable);
            }
            _ => {
                self.parameter((1, param.numel()));
            }
        }
    }

    fn freeze(&mut self, id: ParamId) {
        if let Some(param) = self.state.params.list.get_mut(id as usize) {
            param.trainable = false;
        }
    }

    pub fn table(&mut self, table: &Table) -> ParamId {
        self.state.module = table.name;
        let id = self.parameter((table.rows, table.width));
        self.widen_state(id);
        id
    }

    /// transformers' Trainer asks bitsandbytes for 32-bit states of every `nn.Embedding` (trainer.py `create_optimizer`).
    fn widen_state(&mut self, table: ParamId) {
        if let Some(param) = self.state.params.list.get_mut(table as usize) {
            param.wide_state = self.member.stack == Stack::Trl;
        }
    }
}

/// The parameter that is registered last: 4-bit loading leaves its layer as it is (transformers 5.17
/// quantizers/base.py `get_keys_to_not_convert`).
fn last_parameter(architecture: &Architecture) -> Option<String> {
    let mut last = None;
    architecture.visit_outside(&mut |param: Param| last = Some(param.name));
    last
}

/// Puts layers on the machine, the last of which has the parameter `last`; returns them as stretches.
fn load_layers<'a>(
    loader: &mut Loader<'_>,
    blocks: &'a [Block],
    kinds: Vec<(Vec<u16>, u32)>,
    (layers, mut last): (&mut Vec<BoundLayer<'a>>, Option<String>),
) -> Vec<Stretch> {
    let mut result = Vec::with_capacity(kinds.len());
    let count = kinds.len();
    for (kinds, times) in kinds {
        loader.times = times;
        loader.last = if result.len() + 1 == count { last.take() } else { None };
        loader.state.params.body += 1;
        let mut indices = Vec::with_capacity(kinds.len());
        for kind in kinds {
            let Some(block) = blocks.get(usize::from(kind)) else { continue };
            indices.push(layers.len());
            layers.push(load_block(loader, block));
        }
        result.push(Stretch { layers: indices, times });
    }
    loader.times = 1;
    loader.last = None;
    loader.state.params.body += 1;
    result
}

impl<'a> Model<'a> {
    /// Puts the model on the machine; layer by layer those that are `apart`, otherwise one of each kind on behalf of all.
    /// `batch` is the largest that it will be given.
    pub fn load(
        machine: &'a Machine,
        architecture: &'a Architecture,
        modeling: Modeling,
        (member, batch): (&'a Member, Batch),
        device: Device,
        apart: Apart,
    ) -> Model<'a> {
        machine.with(|state| {
            Model::load_into((machine, state), architecture, modeling, (member, batch), device, apart)
        })
    }

    fn load_into(
        (machine, state): (&'a Machine, &mut State),
        architecture: &'a Architecture,
        modeling: Modeling,
        (member, batch): (&'a Member, Batch),
        device: Device,
        apart: Apart,
    ) -> Model<'a> {
        let base = weights_dtype(member.precision);
        // torchtune and trl prepare nothing, Unsloth in a way of its own, which leaves element types as they are
        let own = member.stack == Stack::Unsloth;
        let prepared = member.method == Method::Qlora
            && member.quantization.prepare
            && !matches!(member.stack, Stack::Unsloth | Stack::Torchtune | Stack::Trl);
        let dtype = if prepared { Dtype::F32 } else { base };
        let checkpoints = member.checkpointing != Checkpointing::Off;
        let first = state.params.list.len();
        let trains_embeddings = lora_is_on(member) && member.lora.trains_embeddings;
        let inputs_require_grad = !matches!(member.stack, Stack::Litgpt | Stack::Torchtune)
            && !trains_embeddings
            && match member.method {
                Method::Full => false,
                // transformers 5.17 `gradient_checkpointing_enable` sees to it, whoever else does
                Method::Lora | Method::Qlora => checkpoints || own,
            };
        let code = modeling.code;
        let sandwich =
            architecture.blocks.iter().any(|block| matches!(block.wiring, Wiring::Sandwich { .. }));
        let mut loader = Loader {
            member,
            batch,
            sandwich,
            modeling,
            state,
            dtype,
            times: 1,
            positions: match member.stack {
                Stack::Torchtune => Positions::of(architecture, member),
                Stack::Transformers | Stack::Trl | Stack::Liger | Stack::Unsloth | Stack::Litgpt => None,
            },
            has_quantised: false,
            adapted: false,
            last: None,
        };
        let embeddings = &architecture.embeddings;
        let tokens = loader.table(&embeddings.tokens);
        let positions = embeddings.positions.as_ref().map(|table| loader.table(table));
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
            let adapted = adapts(&loader, linear, Part::Head);
            let linear = loader.linear(linear, adapted, true);
            outside.linears.push(linear);
        }
        // the first layer is given what needs no gradient, what the outputs' graph holds, or what is of another element type
        let keeps_leaf = member.keeps_outputs();
        let first_apart = member.method != Method::Full && (!inputs_require_grad || keeps_leaf)
            || families::single::has_wide_residual(architecture)
            || families::keeps_weights(modeling.code)
            || apart == Apart::First;
        let whole = apart == Apart::All;
        let mut layers = Vec::new();
        let encoder = architecture.encoder.as_ref().map(|encoder| {
            let apart = stretches_but_last(&encoder.order, whole, 1);
            let stretches = load_layers(&mut loader, &encoder.blocks, apart, (&mut layers, None));
            let final_norm = encoder.final_norm.as_ref().map(|norm| loader.norm(norm));
            let positions = encoder.positions.as_ref().map(|table| loader.table(table));
            if modeling.positions == PositionIds::FixedSines {
                // sines, which are not trained
                let tables = [positions, outside.positions];
                tables.into_iter().flatten().for_each(|id| loader.freeze(id));
            }
            let norm = encoder.norm.as_ref().map(|norm| loader.norm(norm));
            BoundEncoder { layers: layers.len(), stretches, positions, norm, final_norm }
        });
        // layers that hand on what they chose are kept apart
        let whole = whole || modeling.shares_indexer_choice;
        // bitsandbytes' layers are put in by transformers, whose quantiser leaves the last one of all as it is
        let last = match member.stack {
            Stack::Transformers | Stack::Trl | Stack::Liger if member.method == Method::Qlora => {
                architecture.last_of_layers()
            }
            Stack::Transformers
            | Stack::Trl
            | Stack::Liger
            | Stack::Unsloth
            | Stack::Litgpt
            | Stack::Torchtune => None,
        };
        let kinds = match encoder {
            None if last.is_some() => stretches_but_last(&architecture.order, whole, 1),
            Some(_) => stretches_but_last(&architecture.order, whole, 1),
            None if code == Code::Deberta => stretches_but_last(&architecture.order, whole, 1),
            None if code == Code::Gemma4 => {
                stretches_but_last(&architecture.order, whole, gemma4::last_kinds(architecture))
            }
            None if member.checkpointing == Checkpointing::Offloaded => {
                stretches_but_last(&architecture.order, whole, 1)
            }
            None => stretches(&architecture.order, whole, first_apart),
        };
        let bound_stretches = load_layers(&mut loader, &architecture.blocks, kinds, (&mut layers, last));
        if code == Code::Gemma4 {
            gemma4::note_last_kinds(&mut layers);
        }
        if let Some(norm) = &architecture.final_norm {
            let norm = loader.norm(norm);
            outside.norms.push(norm);
        }
        for piece in &architecture.extra {
            load_piece(&mut loader, piece, (&mut outside.linears, &mut outside.norms, &mut outside.params));
        }
        match &architecture.head.transform {
            None => {}
            Some(HeadTransform::Project(linear)) => {
                let adapted = adapts(&loader, linear, Part::Head);
                let linear = loader.linear(linear, adapted, true);
                outside.linears.push(linear);
            }
            Some(HeadTransform::Dense { dense, norm, .. }) => {
                let adapted = adapts(&loader, dense, Part::Head);
                let dense = loader.linear(dense, adapted, true);
                outside.linears.push(dense);
                let norm = loader.norm(norm);
                outside.norms.push(norm);
            }
        }
        let head = &architecture.head;
        let adapts_head = adapts_head(member, head.linear.name);
        let mut head = if head.tied {
            let bias = head.linear.bias.then(|| loader.parameter((1, head.linear.output)));
            let adapter = adapts_head.then(|| loader.adapter(&head.linear, None));
            linear::Layer {
                name: head.linear.name,
                shape: Shape { input: head.linear.input, output: head.linear.output },
                weight: Weight::Plain(tokens),
                bias,
                class: LinearClass::Linear,
                adapter,
            }
        } else {
            loader.linear(&head.linear, adapts_head, member.stack == Stack::Litgpt)
        };
        if trains_embeddings {
            outside.tokens = loader.trained_copy(tokens);
            loader.widen_state(outside.tokens);
            if let Weight::Plain(weight) = head.weight {
                head.weight = Weight::Plain(loader.trained_copy(weight));
            }
            head.bias = head.bias.map(|bias| loader.trained_copy(bias));
        }
        outside.linears.push(head);
        let unquantised = (!architecture.towers.is_empty()).then(|| last_parameter(architecture)).flatten();
        for tower in &architecture.towers {
            for param in &tower.params {
                loader.tower(param, unquantised.as_ref() != Some(&param.name));
            }
        }
        loader.state.module = "";
        buffers::buffers(&mut loader, architecture);
        let adapted = loader.adapted;
        let params = first..loader.state.params.list.len();
        Model {
            machine,
            params,
            // Unsloth asks for the reentrant kind whatever is chosen
            reentrant: member.checkpointing.is_reentrant() || own,
            architecture,
            member,
            modeling,
            has_sinks: layers.iter().any(|layer| layer.sinks.is_some()),
            layers,
            device,
            encoder,
            stretches: bound_stretches,
            outside,
            inputs_require_grad,
            apart,
            adapted,
            autocast: autocast_dtype(member.precision),
            fills_cache: families::fills_cache(modeling, architecture, member),
        }
    }
}
