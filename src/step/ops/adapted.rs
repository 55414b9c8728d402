//! Linear layers with an adapter of peft's: LoRA and DoRA.

use super::four_bit::{Format, Quantised};
use super::linear::{Adapter, Layer, Shape, Weight};
use super::pointwise::promoted;
use super::shape::{INPUT, OUTPUT};
use super::tuned::Tuned;
use crate::dtype::Dtype;
use crate::model::blocks::LinearClass;
use crate::step::kernels;
use crate::step::parallel::{Container, Module};
use crate::step::params::ParamId;
use crate::step::tensor::{Tensor, Value};
use crate::step::what::{Source, What, roles};

static ADAPTER_INPUT: What = What::own(
    "cast",
    "the layer's input in the element type of its adapter, kept for the gradient of LoRA's A",
    Source::Adapters,
);
pub(in crate::step) static ADAPTED: What =
    What::own("add", "the layer's output with what its adapter adds", Source::Adapters);
const DORA: Source = Source::At("peft, tuners/lora/dora.py");
static EYE: What = What::own(
    "eye",
    "an identity matrix as wide as the layer's input, from which DoRA has the product of A and B",
    DORA,
);
static DELTA: What =
    What::own("lora_weight", "the product of A and B, of the weight's own size, that DoRA measures", DORA);
static SCALED_DELTA: What = What::own("mul", "the product of A and B with its scale", DORA);
static ADAPTED_WEIGHT: What =
    What::own("add", "the weight with the product of A and B, whose rows DoRA measures", DORA);
static WEIGHT_IN_DTYPE: What =
    What::own("cast", "the frozen weight in the element type of its adapter's input", DORA);
static NORM: What = What::own("linalg_norm", "the length of each row of the adapted weight", DORA);
static BY_MAGNITUDE: What = What::own("mul", "an output times DoRA's magnitudes", DORA);

impl Adapter {
    /// The shapes of its two products.
    pub(in crate::step) fn shapes(&self, layer: &Layer) -> [Shape; 2] {
        let down = Shape { input: layer.shape.input, output: self.rank };
        [down, Shape { input: self.rank, output: layer.shape.output }]
    }
}

impl<'m> Tensor<'m> {
    /// Runs a linear layer with whatever it carries.
    pub fn through(&self, layer: &Layer) -> Tensor<'m> {
        let machine = self.machine;
        machine.within(layer.name, &roles::PROJECTION, || {
            match (machine.active(layer.adapter), machine.active(layer.tuned)) {
                (None, None) => match layer.adapter {
                    None => self.base(layer),
                    // switched off: peft's wrapper is called all the same
                    Some(adapter) => {
                        let module = Module::Adapted { weight: layer.weight.id(), a: adapter.a };
                        machine.module(module, self, |own| own.base(layer))
                    }
                },
                (None, Some(Tuned::Ia3(tuned))) => self.by_factors(layer, tuned),
                (None, Some(Tuned::Vera(tuned))) => self.by_shared_factors(layer, tuned),
                (None, Some(Tuned::Loha(tuned))) => self.by_hadamard_product(layer, tuned),
                (None, Some(Tuned::Oft(tuned))) => self.rotated_first(layer, tuned),
                (None, Some(Tuned::Lokr(tuned))) => self.by_kronecker_product(layer, tuned),
                (Some(adapter), _) => {
                    let module = Module::Adapted { weight: layer.weight.id(), a: adapter.a };
                    machine.module(module, self, |own| own.adapted(layer, adapter))
                }
            }
        })
    }

    /// peft 0.21 tuners/lora/layer.py `Linear.forward`, tuners/lora/bnb.py `Linear4bit.forward` and `Linear8bitLt.forward`, and
    /// tuners/lora/awq.py `AwqLoraLinear.forward`.
    fn adapted(&self, layer: &Layer, adapter: Adapter) -> Tensor<'m> {
        let machine = self.machine;
        let (autocast, adapter_dtype) =
            machine.with(|state| (state.autocast.is_some(), state.adapter_dtype(adapter.a)));
        let [down, up] = adapter.shapes(layer);
        let base = self.base(layer);
        match (layer.weight, adapter.peft) {
            // peft's layers over torchao's and GPTQ's weights do as those over plain ones (tuners/lora/torchao.py, tuners/lora/gptq.py)
            (Weight::Plain(_), _)
            | (Weight::Quantised(_), false)
            | (Weight::Quantised(Quantised { format: Format::TorchaoInt8 | Format::Gptq, .. }), _) => {
                let dtype = base.value.dtype;
                let x = self.to_as(adapter_dtype, &ADAPTER_INPUT);
                if let Some(magnitude) = adapter.magnitude {
                    let sum = x.decomposed(layer, adapter, magnitude, &base);
                    drop(base);
                    return sum.to_as(dtype, &OUTPUT);
                }
                let delta = {
                    let dropped = machine
                        .module(Module::Container(Container::Dropout, 0), &x, |x| x.dropout(adapter.dropout));
                    let low =
                        machine.adapter_unit(adapter.a, &dropped, |x| x.parameter_product(down, adapter.a));
                    drop(dropped);
                    let high =
                        machine.adapter_unit(adapter.b, &low, |low| low.parameter_product(up, adapter.b));
                    drop(low);
                    high.scale()
                };
                let sum = base.add_as(&delta, &ADAPTED);
                drop(delta);
                drop(base);
                sum.to_as(dtype, &OUTPUT)
            }
            (Weight::Quantised(quantised), true) => {
                let base = match quantised.format {
                    // "result = result.clone()" of tuners/lora/bnb.py
                    Format::Bitsandbytes | Format::BitsandbytesEarly | Format::Nf4Tensor => {
                        let copy = base.copied();
                        drop(base);
                        copy
                    }
                    Format::Int8 | Format::TorchaoInt8 | Format::Gptq | Format::Awq(_) => base,
                };
                let dtype = base.value.dtype;
                let x = if autocast { self.clone() } else { self.to_as(adapter_dtype, &ADAPTER_INPUT) };
                if let Some(magnitude) = adapter.magnitude {
                    let sum = x.decomposed(layer, adapter, magnitude, &base);
                    drop(base);
                    return if autocast { sum } else { sum.to_as(dtype, &OUTPUT) };
                }
                let high = {
                    let dropped = x.dropout(adapter.dropout);
                    let low = dropped.parameter_product(down, adapter.a);
                    drop(dropped);
                    low.parameter_product(up, adapter.b)
                };
                let scaled = |high: Tensor<'m>| high.scale();
                let cast = |high: Tensor<'m>| if autocast { high } else { high.to_as(dtype, &OUTPUT) };
                let delta = match quantised.format {
                    Format::Awq(_) => scaled(cast(high)),
                    Format::Bitsandbytes
                    | Format::BitsandbytesEarly
                    | Format::Nf4Tensor
                    | Format::Int8
                    | Format::TorchaoInt8
                    | Format::Gptq => cast(scaled(high)),
                };
                let sum = base.add_as(&delta, &ADAPTED);
                drop(base);
                drop(x);
                drop(delta);
                sum
            }
        }
    }

    /// `DoraLinearVariant.forward`: the layer's output and what DoRA adds to it, of an input that has its element type.
    fn decomposed(
        &self,
        layer: &Layer,
        adapter: Adapter,
        magnitude: ParamId,
        base: &Tensor<'m>,
    ) -> Tensor<'m> {
        let x = self.dropout(adapter.dropout);
        // without a dropout the layer's output is used again
        let result = (!adapter.dropout).then_some(base);
        let added = x.by_magnitude(layer, adapter, magnitude, result);
        base.add_as(&added, &ADAPTED)
    }

    /// `DoraLinearLayer.forward`.
    fn by_magnitude(
        &self,
        layer: &Layer,
        adapter: Adapter,
        magnitude: ParamId,
        result: Option<&Tensor<'m>>,
    ) -> Tensor<'m> {
        let machine = self.machine;
        let [down, up] = adapter.shapes(layer);
        let dtype = self.value.dtype;
        let (delta, kept) = self.product_of_factors(adapter, [down, up]);
        let weight = self.opened_weight(layer);
        let norm = {
            let added = {
                let scaled = delta.apply(|state, x| state.new_like(x, x.dtype, &SCALED_DELTA, x.edge));
                scaled.apply(|state, x| state.new_like(x, promoted(dtype, x.dtype), &ADAPTED_WEIGHT, x.edge))
            };
            let rows = Value { numel: layer.shape.output, ..added.value };
            let norm = machine.tensor(|state| {
                let float = if state.autocast.is_some() { Dtype::F32 } else { dtype };
                let norm = state.new_like(&rows, float, &NORM, rows.edge);
                // gpt2's weights lie transposed: what is measured are columns
                if layer.class == LinearClass::Conv1d {
                    kernels::column_sum_scratch(state, layer.shape.input, layer.shape.output, dtype);
                }
                norm
            });
            norm.to(dtype)
        };
        let scale = machine.weight(magnitude).divided_by_rows(&norm);
        let low = self.parameter_product(down, adapter.a).parameter_product(up, adapter.b);
        let result = match (result, layer.bias) {
            (Some(result), None) => result.clone(),
            (Some(result), Some(bias)) => result.minus(&machine.weight(bias)),
            (None, _) if layer.class == LinearClass::Conv1d => self.unmodelled(
                "gpt2's transposed layers under DoRA with dropout, which train a copy of their weight",
            ),
            (None, _) => self.apply(|state, x| state.linear_with(x, layer.shape, &weight.value, None)),
        };
        let first = scale.add_number().times_columns(&result, &BY_MAGNITUDE);
        let second = scale.times_columns(&low, &BY_MAGNITUDE).scale();
        let added = first.into_sum(second);
        drop((result, kept, delta, weight, norm, scale, low));
        added
    }

    /// `get_lora_weight`: `lora_B(lora_A(torch.eye(…))).T` in the input's element type. Its graph is never walked, but lives
    /// as long as it does, and with it what its two products saved.
    fn product_of_factors(
        &self,
        adapter: Adapter,
        [down, up]: [Shape; 2],
    ) -> (Tensor<'m>, [Option<Tensor<'m>>; 2]) {
        let machine = self.machine;
        let eye = machine.tensor(|state| {
            let (numel, dtype) = (down.input.saturating_mul(down.input), state.params.get(adapter.a).dtype);
            Value::plain(state.alloc(numel, dtype, &EYE), numel, dtype)
        });
        let keeps = machine.with(|state| state.graph.keeps());
        let [eye_read, low] = eye.read_by_factor(down, adapter.a);
        let eye_read = Some(eye_read).filter(|_| keeps);
        let [low_read, delta] = low.read_by_factor(up, adapter.b);
        drop(low);
        let low_read = Some(low_read).filter(|_| keeps);
        drop(eye);
        (delta.to_as(self.value.dtype, &DELTA), [low_read, eye_read])
    }

    /// What a product with a factor reads beside it, and the product.
    fn read_by_factor(&self, shape: Shape, factor: ParamId) -> [Tensor<'m>; 2] {
        self.machine.tensors(|state| {
            let factor = state.cast_weight(factor, true);
            let x = state.cast_as(&self.value, factor.dtype, &INPUT);
            let numel = (x.numel / shape.input.max(1)).saturating_mul(shape.output);
            let storage = state.alloc_product(numel, shape.input, x.dtype, &DELTA);
            state.release(factor.storage);
            [x, Value::plain(storage, numel, x.dtype)]
        })
    }

    /// `dequantize_module_weight(base_layer).to(x.dtype)`.
    fn opened_weight(&self, layer: &Layer) -> Tensor<'m> {
        let machine = self.machine;
        let weight = match layer.weight {
            Weight::Plain(id) => machine.weight(id),
            Weight::Quantised(quantised) => machine.tensor(|state| state.dequantise(layer.shape, quantised)),
        };
        weight.to_as(self.value.dtype, &WEIGHT_IN_DTYPE)
    }
}
