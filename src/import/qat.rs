//! Calls of torchao's that prepare a model's layers for quantisation-aware training.

use serde_json::Value;

use super::reader::Reader;
use super::syntax::python::Call;
use super::syntax::setting;
use crate::scenario::{Qat, QatGroup, QatLayers};
use crate::text::short;

/// What the preparation of a script says, where it has one: `quantize_` with a `QATConfig`.
pub(super) fn of_calls(calls: &[Call], reader: &mut Reader) {
    if let Some(other) = calls.iter().find(|call| OTHERS.contains(&call.name())) {
        return reader.leave(&short(&format!("{}(…)", other.path)), NOT_FOLLOWED);
    }
    let is_preparation = |call: &Call| call.name() == "QATConfig" && !is_conversion(call);
    let Some(index) = calls.iter().rposition(is_preparation) else { return };
    let (before, from) = calls.split_at(index);
    let preparation = &from[0];
    let said = short(&format!("{}(…)", preparation.path));
    let Some((scheme, group, default)) = scheme(&Preparation::of(preparation, before)) else {
        return reader.leave(&said, NOT_FOLLOWED);
    };
    reader.set("qat", scheme.slug(), &said);
    match group {
        Some(group) => reader.set("qat-group", &group, &said),
        None if scheme.has_groups() => reader.assume("qat-group", default.slug(), "torchao's default"),
        None => {}
    }
    let quantizes = from.iter().find(|call| call.name() == "quantize_");
    let filter = quantizes
        .and_then(|call| call.values.get(2).or_else(|| named(call, "filter_fn")))
        .filter(|filter| !filter.is_null());
    match filter {
        None => reader.set("qat-layers", QatLayers::All.slug(), &said),
        Some(_) => reader.assume(
            "qat-layers",
            QatLayers::Body.slug(),
            "a filter of one's own: all layers but the head",
        ),
    }
}

/// What else of torchao's prepares a model so.
const OTHERS: [&str; 4] = [
    "IntXQuantizationAwareTrainingConfig",
    "Int8DynActInt4WeightQATQuantizer",
    "Int4WeightOnlyQATQuantizer",
    "Float8ActInt4WeightQATQuantizer",
];
const NOT_FOLLOWED: &str = "of quantisation-aware training torchao's QATConfig is predicted with 4-bit weights that have a scale for a group, and with 8-bit floats";

/// A `QATConfig` with the configurations that it is given.
struct Preparation<'c> {
    /// Its arguments, as they are written.
    text: String,
    rounds_inputs: bool,
    before: &'c [Call],
}

impl<'c> Preparation<'c> {
    fn of(call: &Call, before: &'c [Call]) -> Preparation<'c> {
        let arguments = call.values.iter().chain(call.named.iter().map(|(_, value)| value));
        let text = arguments.map(setting::text).collect::<Vec<_>>().join(", ");
        let rounds_inputs = named(call, "activation_config").is_some_and(|inputs| !inputs.is_null());
        Preparation { text, rounds_inputs, before }
    }

    /// The configuration of that name among its arguments.
    fn has(&self, name: &str) -> Option<&'c Call> {
        let last = self.before.iter().rev().find(|call| call.name() == name);
        last.filter(|_| self.text.contains(&format!("{name}(")))
    }
}

/// The scheme that its configurations make, with its group as it is written and by default.
fn scheme(preparation: &Preparation<'_>) -> Option<(Qat, Option<String>, QatGroup)> {
    let has = |name| preparation.has(name);
    let group = |call: &Call| named(call, "group_size").or_else(|| call.values.first()).map(setting::text);
    let inputs = preparation.rounds_inputs;
    let floats = has("Float8FakeQuantizeConfig").is_some();
    if let Some(weights) = has("Int4WeightFakeQuantizeConfig") {
        // its default are inputs in 8-bit floats
        let sixteen =
            named(weights, "activation_dtype").map(setting::text).is_some_and(|of| of.contains("bfloat16"));
        let integers = has("IntxFakeQuantizeConfig").is_some();
        let scheme = match (inputs, integers, floats, sixteen) {
            (true, true, false, true) => Qat::Int8Int4Axolotl,
            (true, false, true, false) if has("PerTensor").is_none() => Qat::Float8Int4,
            (false, false, false, true) => Qat::Int4,
            (false, false, false, false) => Qat::Int4Axolotl,
            _ => return None,
        };
        return Some((scheme, group(weights), QatGroup::Of128));
    }
    let of_floats =
        |by_row| Some((if by_row { Qat::Float8Axolotl } else { Qat::Float8 }, None, QatGroup::Of128));
    if floats {
        // a weight alone is another scheme
        return if inputs { of_floats(has("PerTensor").is_none()) } else { None };
    }
    if has("Int8DynamicActivationIntxWeightConfig").is_some() && has("PerAxis").is_none() {
        return Some((Qat::Int8Int4, has("PerGroup").and_then(group), QatGroup::Of32));
    }
    if let Some(weights) = has("Int4WeightOnlyConfig") {
        return Some((Qat::Int4, group(weights), QatGroup::Of128));
    }
    if has("Float8DynamicActivationFloat8WeightConfig").is_some() {
        return of_floats(has("PerRow").is_some());
    }
    has("Float8DynamicActivationInt4WeightConfig").map(|_| (Qat::Float8Int4, None, QatGroup::Of128))
}

/// Whether it makes plain layers of those that round, after the training.
fn is_conversion(call: &Call) -> bool {
    named(call, "step").map(setting::text).as_deref() == Some("convert")
}

fn named<'c>(call: &'c Call, argument: &str) -> Option<&'c Value> {
    call.named.iter().find(|(name, _)| name == argument).map(|(_, value)| value)
}
