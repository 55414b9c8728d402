//! Puts the parameters of a model one by one on the machine: element types, adapters, 4-bit weights.

mod quantised;

use super::stacks::liger;
use super::stacks::torchtune::positions::Positions;
use super::tuners::Shared;
use crate::dtype::Dtype;
use crate::job::{Batch, Member};
use crate::model::blocks::{
    BareParam, Conv, Divided, ExpertLayout, Linear, LinearClass, Moe, Norm, NormKind, Table,
};
use crate::model::modeling::{Liger, Modeling};
use crate::scenario::software::{ModelCode, Quantiser, Software, Trainer};
use crate::scenario::tuners::Scaled;
use crate::scenario::{LoraTargets, Method, Precision, VisionTower, WeightFormat};
use crate::step::heap::{Loading, NOTHING};
use crate::step::machine::State;
use crate::step::ops::experts::Expert;
use crate::step::ops::four_bit::{AwqKernel, Format, Quantised};
use crate::step::ops::linear::{self, Adapter, Shape, Weight};
use crate::step::ops::merged::Mergeable;
use crate::step::ops::norm::NormLayer;
use crate::step::params::ParamId;
use crate::step::what::Rank;

/// The element type that weights are loaded in.
pub(super) fn weights_dtype(member: &Member) -> Dtype {
    match member.precision {
        Precision::Fp32 | Precision::AmpBf16 | Precision::AmpFp16 => Dtype::F32,
        // transformers 5.17 quantizers/quantizer_awq.py `update_dtype`
        Precision::Bf16 | Precision::AmpBf16Weights if member.is_of_awq() => Dtype::F16,
        Precision::Bf16 | Precision::AmpBf16Weights => Dtype::Bf16,
        Precision::Fp16 | Precision::AmpFp16Weights => Dtype::F16,
    }
}

/// How parameters are stored under a member.
pub(super) struct Loader<'a> {
    pub member: &'a Member,
    /// The largest batch that it will be given.
    pub batch: Batch,
    /// How many parts of the model there are that run by themselves.
    pub parts: usize,
    pub modeling: Modeling,
    /// What of it Liger patches.
    pub liger: Option<Liger>,
    pub state: &'a mut State,
    /// Of the weights that are not 4-bit.
    pub dtype: Dtype,
    pub times: u32,
    /// torchtune's table of sines and cosines.
    pub positions: Option<Positions>,
    /// Whether there is a 4-bit weight.
    pub has_quantised: bool,
    /// The linear layers that have adapters.
    pub mergeable: Vec<Mergeable>,
    /// Weights that a checkpoint has in two.
    pub cut_when_saved: Vec<ParamId>,
    /// Whether any layer has an adapter.
    pub adapted: bool,
    /// Whether the optimizer projects the gradient of any layer.
    pub projects: bool,
    /// Above which rank none of its adapters gains anything.
    pub largest_rank: u64,
    /// The parameter of the running layer that is the model's last.
    pub last: Option<String>,
    /// What (IA)³ scales of the model.
    pub scaled: Option<Scaled>,
    /// What all layers under VeRA share.
    pub shared: Shared,
}

impl Loader<'_> {
    /// Embedding and output head are next, or no longer: where the trainer prepares 4-bit weights itself under bfloat16 autocast
    /// they are bfloat16 among what it made float32.
    pub fn narrow_ends(&mut self, narrow: bool) {
        let bf16 = matches!(self.member.precision, Precision::AmpBf16 | Precision::AmpBf16Weights);
        if self.member.trainer_prepares && self.member.method == Method::Qlora && bf16 {
            self.dtype = if narrow { Dtype::Bf16 } else { Dtype::F32 };
        }
    }

    /// What the stack answers.
    pub fn software(&self) -> &'static Software {
        self.member.software()
    }

    /// Whether the model's own parameters need a gradient. trl leaves those of a reference as they were loaded.
    fn trains_base(&self) -> bool {
        let frozen = self.member.training.is_none() && self.software().trainer != Trainer::Trl;
        self.member.method == Method::Full && !frozen
    }

    pub fn parameter(&mut self, shape: (u64, u64)) -> ParamId {
        self.parameter_of((shape, Rank::None))
    }

    /// The same of a tensor whose first dimension is 1.
    pub fn parameter_of_one_row(&mut self, numel: u64) -> ParamId {
        self.parameter_of(((1, numel), Rank::OneRow))
    }

    fn parameter_of(&mut self, shape: ((u64, u64), Rank)) -> ParamId {
        let (dtype, trainable, times) = (self.dtype, self.trains_base(), self.times);
        let opened = weights_dtype(self.member);
        if dtype == opened || self.is_on_cpu() {
            return self.state.add_parameter(shape, dtype, trainable, times);
        }
        let ((rows, columns), _) = shape;
        let half = self.state.while_loading(rows.saturating_mul(columns), opened);
        self.load_in(Loading::Upcasts, |own| {
            let id = own.state.add_parameter(shape, dtype, trainable, times);
            own.state.release(half);
            id
        })
    }

    /// Whether the library builds the model first, quantises it then and has peft add adapters at last. The others make
    /// adapters with their layers; where that happens in the CPU's memory the card sees none of it.
    pub fn loads_in_parts(&self) -> bool {
        self.software().runs_transformers() && !self.is_on_cpu()
    }

    /// Whether the model is put together in the CPU's memory.
    fn is_on_cpu(&self) -> bool {
        self.state.parallel.shards_from_cpu(self.member)
    }

    /// Runs `body`, which happens in that part of the loading.
    pub fn load_in<R>(&mut self, part: Loading, body: impl FnOnce(&mut Self) -> R) -> R {
        if !self.loads_in_parts() {
            return body(self);
        }
        let before = self.state.load_in(part);
        let result = body(self);
        self.state.load_in(before);
        result
    }

    /// A linear layer; `adapted` where LoRA's targets name it, `quantisable` where 4-bit loading converts it.
    pub fn linear(&mut self, spec: &Linear, adapted: bool, quantisable: bool) -> linear::Layer {
        self.state.module = spec.name;
        self.state.params.divided = spec.divided != Divided::Whole;
        let shape = Shape { input: spec.input, output: spec.output };
        // transformers leaves what `_keep_in_fp32_modules` names as it is, and the module that is registered last
        let last = self.last.as_deref().and_then(|last| last.strip_suffix(".weight"));
        let kept = self.modeling.kept_in_float32.is_some_and(|end| spec.name.ends_with(end))
            || last == Some(spec.name);
        let quantised =
            self.member.method == Method::Qlora && quantisable && !kept && self.converts(spec.class);
        let mut original = NOTHING;
        let first = self.state.storages.len();
        let weight = match (quantised, self.software().quantiser) {
            (false, _) => Weight::Plain(match spec.class {
                LinearClass::Linear | LinearClass::Subclass if spec.output == 1 => {
                    self.parameter_of_one_row(spec.input)
                }
                LinearClass::Linear | LinearClass::Subclass => self.parameter((spec.output, spec.input)),
                LinearClass::Conv1d => self.parameter((spec.input, spec.output)),
            }),
            (true, Quantiser::Torchao) => {
                let quantised;
                (quantised, original) = self.torchao_weight(spec);
                Weight::Quantised(quantised)
            }
            (true, Quantiser::Transformers | Quantiser::Fabric | Quantiser::Unsloth) => {
                Weight::Quantised(match self.member.quantization.format {
                    WeightFormat::Nf4 | WeightFormat::Nf4Early => self.quantised_weight(spec),
                    WeightFormat::Int8 => self.weight_8bit(spec),
                    WeightFormat::TorchaoInt8 => self.weight_only(spec),
                    WeightFormat::Gptq4 | WeightFormat::Gptq8 => self.packed(spec, Format::Gptq),
                    WeightFormat::Awq4 => self.packed(spec, Format::Awq(AwqKernel::Triton)),
                    WeightFormat::Awq4Cuda => self.packed(spec, Format::Awq(AwqKernel::Cuda)),
                })
            }
        };
        let stored = first..self.state.storages.len();
        let bias = spec.bias.then(|| match weight {
            // the first forward pass casts the bias to the type of the computation, for good; of an 8-bit layer to its input's
            Weight::Quantised(Quantised { format: Format::TorchaoInt8, .. }) => {
                self.parameter((1, spec.output))
            }
            // a buffer of gptqmodel's
            Weight::Quantised(Quantised { compute, .. }) => {
                self.state.add_parameter(((1, spec.output), Rank::None), compute, false, self.times)
            }
            Weight::Plain(_) => self.parameter((1, spec.output)),
        });
        let compute = match weight {
            // peft leaves adapters of a layer whose weights are integers as they were made
            Weight::Quantised(Quantised { format: Format::Int8 | Format::Awq(_), .. }) => Some(Dtype::F32),
            Weight::Plain(_) | Weight::Quantised(Quantised { format: Format::TorchaoInt8, .. }) => None,
            Weight::Quantised(quantised) => Some(quantised.compute),
        };
        let (adapter, tuned) = if adapted { self.beside(spec, compute) } else { (None, None) };
        self.mergeable.extend(adapter.map(|adapter| Mergeable {
            name: spec.name,
            layer: self.state.layer,
            shape,
            weight,
            adapter,
            stored,
            times: self.times,
        }));
        self.state.release(original);
        self.state.params.divided = false;
        linear::Layer {
            name: spec.name,
            shape,
            weight,
            bias,
            class: spec.class,
            divided: spec.divided,
            adapter,
            tuned,
        }
    }

    /// The two expert tensors. peft adapts them as parameters: the first with the rank of two layers, because it is two
    /// in one (peft 0.21 utils/transformers_weight_conversion.py).
    pub fn experts(&mut self, moe: &Moe) -> Vec<Expert> {
        let first = if moe.gated { moe.expert_width.saturating_mul(2) } else { moe.expert_width };
        let lora = self.member.lora;
        let adapted = self.member.adapts
            && matches!(lora.targets, LoraTargets::AllLinear | LoraTargets::AllLinearAndHead)
            && self.modeling.peft.experts;
        self.state.module = "mlp.experts";
        if self.software().model == ModelCode::Megatron {
            return self.experts_apart(moe, first);
        }
        // a tensor of three dimensions
        let in_layer = std::mem::replace(&mut self.state.params.in_layer, false);
        // FSDP2 cuts it along the first of them: between experts
        let by_expert = self.state.parallel.has_units();
        let as_stored = moe.names.layout == ExpertLayout::InOut;
        let lays =
            [(moe.hidden, first, lora.rank.saturating_mul(2)), (moe.expert_width, moe.hidden, lora.rank)];
        let mut make = |(input, output, _): (u64, u64, u64)| {
            let shape = match by_expert {
                true => (moe.experts, output.saturating_mul(input)),
                false => (moe.experts.saturating_mul(output), input),
            };
            let weight = self.parameter(shape);
            let bias = moe.expert_bias.then(|| self.parameter((moe.experts, output)));
            Expert { weight, bias, experts: moe.experts, input, output, as_stored, adapter: None }
        };
        let mut experts = Vec::from(lays.map(&mut make));
        // its wrappers lie around the module that both are of
        for (expert, (input, output, rank)) in experts.iter_mut().zip(lays).filter(|_| adapted) {
            let rank = rank.saturating_mul(moe.experts);
            let made = self.adapter_of((rank, input), (output, rank), None);
            expert.adapter = Some(Adapter { rank, dropout: false, ..made });
        }
        self.state.params.in_layer = in_layer;
        self.cut_when_saved.extend(experts.first().filter(|_| moe.gated).map(|first| first.weight));
        if self.member.method == Method::Qlora {
            let each =
                |expert: &Expert| expert.experts.saturating_mul(expert.input.saturating_mul(expert.output));
            let weights = experts.iter().map(each).fold(0, u64::saturating_add);
            self.state.experts.add(weights.saturating_mul(u64::from(self.times)), self.dtype);
        }
        experts
    }

    /// Megatron-core's: each expert's matrix is a parameter of its own, those of all first products before those of the second.
    fn experts_apart(&mut self, moe: &Moe, first: u64) -> Vec<Expert> {
        let shapes = [(moe.hidden, first), (moe.expert_width, moe.hidden)];
        let each = shapes.iter().flat_map(|shape| (0..moe.experts).map(move |_| *shape));
        each.map(|(input, output)| {
            let weight = self.parameter((output, input));
            Expert { weight, bias: None, experts: 1, input, output, as_stored: false, adapter: None }
        })
        .collect()
    }

    pub fn norm(&mut self, spec: &Norm) -> NormLayer {
        self.state.module = spec.name;
        let (weight, bias) = spec.kind.parameters();
        let apart = matches!(spec.kind, NormKind::LayerNorm { .. });
        let heads = if apart { spec.rows.max(1) } else { 1 };
        let weight = weight.then(|| self.parameter((if apart { 1 } else { spec.rows }, spec.width)));
        for _ in 1..heads {
            self.parameter((1, spec.width));
        }
        let bias = bias.then(|| self.parameter((1, spec.width)));
        let kernel = liger::norm(self.liger, spec.kind);
        NormLayer { name: spec.name, width: spec.width, kind: spec.kind, weight, bias, heads, kernel }
    }

    /// A depthwise convolution.
    pub fn conv(&mut self, conv: &Conv) -> (ParamId, Option<ParamId>) {
        self.state.module = conv.name;
        // a tensor of three dimensions
        let in_layer = std::mem::replace(&mut self.state.params.in_layer, false);
        let weight = self.parameter((conv.channels, conv.kernel));
        self.state.params.in_layer = in_layer;
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

    /// Whether a linear layer of a tower gets an adapter, by its path.
    pub fn adapts_tower(&self, path: &str) -> bool {
        !self.is_tower_frozen() && self.member.adapts_beside(path)
    }

    /// Whether what looks at pictures stays as it is.
    pub fn is_tower_frozen(&self) -> bool {
        self.batch.pictures.tower == VisionTower::Frozen
    }

    pub fn freeze(&mut self, id: ParamId) {
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
    pub fn widen_state(&mut self, table: ParamId) {
        let wide = self.member.is_by_trainer();
        if let Some(param) = self.state.params.list.get_mut(table as usize) {
            param.wide_state = wide;
        }
    }
}
