//! Calls of torchao's that prepare a model's layers for quantisation-aware training.

use serde_json::Value;

use super::reader::Reader;
use super::syntax::python::Call;
use super::syntax::setting;
use crate::scenario::{Qat, QatGroup, QatLayers};
use crate::text::short;

/// What the preparation of a script says, where it has one: `quantize_` with a `QATConfig`.
pub(super) fn of_calls(calls: &[Call], reader: &mut Reader) {
    let is_preparation = |call: &&Call| call.name() == "QATConfig" && !is_conversion(call);
    let Some(preparation) = calls.iter().rev().find(is_preparation) else { return };
    let said = short(&format!("{}(…)", preparation.path));
    let has = |name: &str| calls.iter().find(|call| call.name() == name);
    let Some((scheme, group, default)) = scheme(&has) else {
        return reader.leave(
            &said,
            "of quantisation-aware training torchao's 4-bit weights with a scale for a group, and 8-bit floats, are predicted",
        );
    };
    reader.set("qat", scheme.slug(), &said);
    match group {
        Some(group) => reader.set("qat-group", &group, &said),
        None => reader.assume("qat-group", default.slug(), "torchao's default"),
    }
    let quantizes = calls.iter().rev().find(|call| call.name() == "quantize_" && !call.values.is_empty());
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

/// The scheme that the configurations of a script make, with its group as it is written and by default.
fn scheme<'c>(has: &impl Fn(&str) -> Option<&'c Call>) -> Option<(Qat, Option<String>, QatGroup)> {
    let group = |call: &Call| named(call, "group_size").or_else(|| call.values.first()).map(setting::text);
    let floats = has("Float8FakeQuantizeConfig");
    if let Some(weights) = has("Int4WeightFakeQuantizeConfig") {
        // its default are inputs in 8-bit floats
        let sixteen =
            named(weights, "activation_dtype").map(setting::text).is_some_and(|of| of.contains("bfloat16"));
        let scheme = match (has("IntxFakeQuantizeConfig"), floats, sixteen) {
            (Some(_), None, true) => Qat::Int8Int4Axolotl,
            (None, Some(_), false) => Qat::Float8Int4,
            (None, None, true) => Qat::Int4,
            (None, None, false) => Qat::Int4Axolotl,
            _ => return None,
        };
        return Some((scheme, group(weights), QatGroup::Of128));
    }
    if floats.is_some() {
        return Some((Qat::Float8Axolotl, None, QatGroup::Of128));
    }
    if has("Int8DynamicActivationIntxWeightConfig").is_some() && has("PerAxis").is_none() {
        return Some((Qat::Int8Int4, has("PerGroup").and_then(group), QatGroup::Of32));
    }
    if let Some(weights) = has("Int4WeightOnlyConfig") {
        return Some((Qat::Int4, group(weights), QatGroup::Of128));
    }
    if has("Float8DynamicActivationFloat8WeightConfig").is_some() {
        return Some((Qat::Float8, None, QatGroup::Of128));
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
