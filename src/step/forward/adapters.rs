//! LoRA's adapters: which linear layers its targets name, and the matrices that stand beside them.

use super::loader::{Loader, weights_dtype};
use crate::dtype::Dtype;
use crate::job::Member;
use crate::memory::Category;
use crate::model::blocks::{Linear, LinearClass};
use crate::model::modeling::Code;
use crate::scenario::modules::is_called;
use crate::scenario::software::Trainer;
use crate::scenario::{LoraTargets, LossKernel, Method, Tuner};
use crate::step::heap::{Loading, NOTHING};
use crate::step::ops::four_bit::QUANT_BLOCK;
use crate::step::ops::linear::{self, Adapter, Weight};
use crate::step::ops::pointwise::promoted;
use crate::step::params::ParamId;
use crate::step::what::{Rank, Source, What};

static LORA: What = What::own(
    "parameter",
    "LoRA's trained matrices A and B, of which one side is the rank",
    Source::Adapters,
);
static MAGNITUDE: What = What::own(
    "parameter",
    "DoRA's trained magnitudes, the length of each row of the adapted weight",
    Source::Adapters,
);
static SAVED_MODULE: What = What::own(
    "parameter",
    "a copy that is trained whole beside the frozen original (modules_to_save)",
    Source::At("peft, utils/other.py"),
);

static REFERENCE: What = What::own(
    "reference adapter",
    "a frozen copy of an adapter's matrix as it was at first, which the reference scores with",
    Source::At("trl, trainer/dpo_trainer.py"),
);

/// What a linear layer is to LoRA's targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    QueryOrValue,
    Key,
    Output,
    Mlp,
    Router,
    /// In front of the head itself, which is never adapted.
    Head,
    /// Of a state space or linear attention, or beside mixer and feed-forward network: no list of attention's or the
    /// feed-forward network's layers names it.
    Other,
}

/// Whether what is trained stands beside layers.
fn adapts_layers(member: &Member) -> bool {
    member.adapts && member.lora.tuner.adapts_layers()
}

/// Whether peft adapts such a layer.
pub(super) fn adapts(loader: &Loader<'_>, spec: &Linear, part: Part) -> bool {
    adapts_layers(loader.member) && is_target(loader, spec, part)
}

/// Whether the targets name such a layer (peft 0.21, utils/constants.py for its defaults: phi's name the feed-forward layers too).
fn is_target(loader: &Loader<'_>, spec: &Linear, part: Part) -> bool {
    let (member, code) = (loader.member, loader.modeling.code);
    match member.lora.targets {
        // where the experts are adapted, the names that their layers once had stand for them alone
        LoraTargets::AllLinear | LoraTargets::AllLinearAndHead => {
            match (part, loader.modeling.peft.experts) {
                (Part::Other, _) if spec.leaf() == "out_proj" => !loader.modeling.peft.refuses_out_proj,
                (Part::Mlp, true) => !matches!(spec.leaf(), "gate_proj" | "up_proj" | "down_proj"),
                (Part::Router, converted) => converted,
                _ => true,
            }
        }
        LoraTargets::Qv if member.lora.tuner == Tuner::Ia3 => {
            loader.scaled.is_some_and(|own| own.targets.iter().any(|name| is_called(spec.name, name)))
        }
        LoraTargets::Qv => {
            let phi = loader.software().peft && code == Code::Phi && member.lora.tuner != Tuner::Vera;
            part == Part::QueryOrValue || (part == Part::Mlp && phi)
        }
        LoraTargets::Attention => matches!(part, Part::QueryOrValue | Part::Key | Part::Output),
        LoraTargets::Mlp => part == Part::Mlp,
        LoraTargets::Named => member.lora.modules.adapts(spec.name),
    }
}

/// Whether the output head gets an adapter.
pub(super) fn adapts_head(member: &Member, name: &str) -> bool {
    adapts_layers(member) && head_is_target(member, name)
}

fn head_is_target(member: &Member, name: &str) -> bool {
    match member.lora.targets {
        LoraTargets::AllLinearAndHead => true,
        LoraTargets::Named => member.lora.modules.adapts(name),
        LoraTargets::AllLinear | LoraTargets::Qv | LoraTargets::Attention | LoraTargets::Mlp => false,
    }
}

impl Loader<'_> {
    /// A linear layer of the model's layers, with what its targets ask for.
    pub fn targeted(&mut self, spec: &Linear, part: Part, quantisable: bool) -> linear::Layer {
        let adapted = adapts(self, spec, part);
        let layer = self.linear(spec, adapted, quantisable);
        if is_target(self, spec, part) {
            self.project(&layer);
        }
        layer
    }

    /// The output head, which is a layer of its own.
    pub fn project_head(&mut self, head: &linear::Layer) {
        if head_is_target(self.member, head.name) {
            self.project(head);
        }
    }

    /// Notes that the optimizer projects the gradient of a layer's weight, if it is one that does.
    fn project(&mut self, layer: &linear::Layer) {
        let projects = self.member.projects() && layer.class != LinearClass::Conv1d;
        if let (true, Weight::Plain(weight)) = (projects, &layer.weight)
            && let Some(param) = self.state.params.list.get_mut(*weight as usize)
        {
            param.projection_rank = Some(self.member.lora.rank);
            self.projects = true;
        }
    }

    /// The adapter of a linear layer, with the element type that its 4-bit product is computed in.
    pub fn adapter(&mut self, spec: &Linear, quantised: Option<Dtype>) -> Adapter {
        let rank = self.member.lora.rank;
        let adapter = self.adapter_of((rank, spec.input), (spec.output, rank), quantised);
        match self.member.lora.tuner {
            Tuner::Dora => Adapter { magnitude: Some(self.magnitude(spec, quantised)), ..adapter },
            Tuner::Lora
            | Tuner::Ia3
            | Tuner::Vera
            | Tuner::Loha
            | Tuner::Lokr
            | Tuner::Oft
            | Tuner::Prompt
            | Tuner::PTuning
            | Tuner::Prefix
            | Tuner::PrefixProjected => adapter,
        }
    }

    /// An adapter whose two weights have these rows and columns.
    pub fn adapter_of(&mut self, down: (u64, u64), up: (u64, u64), quantised: Option<Dtype>) -> Adapter {
        self.adapted = true;
        // what is added is a product, whose rank is no higher than the adapted matrix's smaller side
        self.largest_rank = self.largest_rank.max(down.1.min(up.0));
        let lora = self.member.lora;
        let rank = u32::try_from(lora.rank).unwrap_or(u32::MAX);
        let dtypes = self.adapter_dtypes(quantised);
        let [a, b] = [(down, Rank::Rows(rank)), (up, Rank::Columns(rank))]
            .map(|(shape, rank)| self.adapter_parameter(&LORA, (shape, rank), dtypes));
        let peft = self.software().peft;
        Adapter { a, b, magnitude: None, rank: lora.rank, dropout: lora.dropout, peft }
    }

    /// DoRA's magnitudes, measured of the weight, or of what a copy of a 4-bit layer opens to, with the product of A and B (peft
    /// 0.21, tuners/lora/dora.py `update_layer`). The product is the process's first.
    fn magnitude(&mut self, spec: &Linear, quantised: Option<Dtype>) -> ParamId {
        let numel = spec.weight_numel();
        let (made, dtype) = self.adapter_dtypes(quantised);
        let weight = if quantised.is_some() { weights_dtype(self.member) } else { self.dtype };
        let measured = promoted(weight, made);
        let double = self.member.quantization.double_quant;
        let mut held = Vec::with_capacity(6);
        self.load_in(Loading::Adapters, |own| {
            let state = &mut *own.state;
            if quantised.is_some() {
                let scales = numel.div_ceil(QUANT_BLOCK);
                let kept = if double { Dtype::U8 } else { Dtype::F32 };
                for (count, dtype) in [(scales, kept), (numel / 2, Dtype::U8), (scales, kept)] {
                    held.push(state.while_loading(count, dtype));
                }
                let opened = if double { state.while_loading(scales, Dtype::F32) } else { NOTHING };
                held.push(state.while_loading(numel, weight));
                state.release(opened);
            }
            held.push(state.while_loading(numel, made));
            state.multiply_while_loading();
            let scaled = state.while_loading(numel, made);
            held.push(state.while_loading(numel, measured));
            state.release(scaled);
        });
        let trained = if dtype == made { measured } else { dtype };
        let id = self.adapter_parameter(&MAGNITUDE, ((1, spec.output), Rank::None), (measured, trained));
        self.load_in(Loading::Adapters, |own| {
            held.into_iter().for_each(|storage| own.state.release(storage));
        });
        id
    }

    /// The element types that an adapter's parameters are made in and trained in.
    pub(super) fn adapter_dtypes(&self, quantised: Option<Dtype>) -> (Dtype, Dtype) {
        let peft = self.software().peft;
        // peft makes half-precision adapters float32 unless told otherwise (`autocast_adapter_dtype`)
        let dtype = match (self.trained_dtype(), quantised) {
            (Some(dtype), _) => dtype,
            (None, _) if peft && self.member.lora.fp32_adapters => Dtype::F32,
            (None, Some(compute)) if peft => compute,
            (None, _) => self.dtype,
        };
        // it makes them of the base layer's element type (`_move_adapter_to_device_of_base_layer`)
        let made = if self.loads_in_parts() { quantised.unwrap_or(self.dtype) } else { dtype };
        (made, dtype)
    }

    /// A parameter that is made in one element type and trained in another, or in the same.
    pub(super) fn adapter_parameter(
        &mut self,
        what: &'static What,
        (shape, rank): ((u64, u64), Rank),
        (made, dtype): (Dtype, Dtype),
    ) -> ParamId {
        let add = |own: &mut Self| {
            if own.member.copies_adapters {
                let bytes = shape.0.saturating_mul(shape.1).saturating_mul(dtype.bytes());
                own.state.persistent(bytes, dtype, own.times, Category::Adapters, &REFERENCE);
            }
            own.state.add_trained(what, shape, rank, dtype, own.times)
        };
        if made == dtype {
            return self.load_in(Loading::Adapters, add);
        }
        let numel = shape.0.saturating_mul(shape.1);
        let half = self.load_in(Loading::Adapters, |own| own.state.while_loading(numel, made));
        self.load_in(Loading::AdapterCasts, |own| {
            let id = add(own);
            own.state.release(half);
            id
        })
    }

    /// peft's `ModulesToSaveWrapper`: a copy that is trained beside the frozen original.
    pub fn trained_copy(&mut self, id: ParamId) -> ParamId {
        let Some(original) = self.state.params.list.get(id as usize).copied() else { return id };
        let shape = (original.rows, original.numel / original.rows.max(1));
        self.state.module = original.module;
        let dtype = self.trained_dtype().unwrap_or(original.dtype);
        self.load_in(Loading::Adapters, |own| {
            own.state.add_trained(&SAVED_MODULE, shape, Rank::None, dtype, original.times)
        })
    }

    /// Puts trained copies in the place of a layer's own weight and bias.
    pub fn train_whole(&mut self, layer: &mut linear::Layer) {
        if let Weight::Plain(weight) = layer.weight {
            layer.weight = Weight::Plain(self.trained_copy(weight));
        }
        layer.bias = layer.bias.map(|bias| self.trained_copy(bias));
    }

    /// The element type that the trainer gives to whatever is trained, where it does: trl's make it bfloat16 beside 4-bit
    /// weights (trainer/sft_trainer.py), LLaMA-Factory leaves it float32.
    fn trained_dtype(&self) -> Option<Dtype> {
        (self.software().trainer == Trainer::Trl
            && self.member.loss != LossKernel::LogSoftmax
            && self.member.method == Method::Qlora
            && !self.member.trainer_prepares
            && !self.member.returns_states)
            .then_some(Dtype::Bf16)
    }
}
