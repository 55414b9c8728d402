//! Calls of torchao's that have a model's layers multiply in 8-bit floats.

use serde_json::Value;

use super::reader::Reader;
use super::syntax::python::Call;
use super::syntax::setting;
use crate::scenario::{Float8, Float8Layers};
use crate::text::short;

/// What the conversions of a script say, where it has one; without a recipe it is the tensorwise one.
pub(super) fn of_calls(calls: &[Call], reader: &mut Reader) {
    let Some(conversion) = calls.iter().rev().find(|call| layers(call).is_some()) else { return };
    let said = short(&format!("{}(…)", conversion.path));
    let recipe = calls.iter().find(|call| call.path.ends_with("Float8LinearConfig.from_recipe_name"));
    let name = recipe.and_then(|call| call.values.first()).map_or("tensorwise".to_owned(), setting::text);
    let Some(known) = Float8::of_recipe(&name) else {
        return reader.leave(
            &format!("from_recipe_name({name})"),
            "of FP8's recipes tensorwise, rowwise and rowwise_with_gw_hp are predicted",
        );
    };
    reader.set("float8", known.slug(), &said);
    match layers(conversion) {
        Some(Some(chosen)) => reader.set("float8-layers", chosen.slug(), &said),
        _ => reader.assume(
            "float8-layers",
            Float8Layers::Body.slug(),
            "a filter of one's own: all layers but the head",
        ),
    }
    for (key, argument) in
        [("float8-padding", "pad_inner_dim"), ("float8-gather", "enable_fsdp_float8_all_gather")]
    {
        let of_config = |call: &&Call| ["Float8LinearConfig", "replace"].contains(&call.name());
        let given = calls.iter().filter(of_config).filter_map(|call| named(call, argument)).next_back();
        let on = given == Some(&Value::Bool(true));
        reader.set(key, if on { "on" } else { "off" }, &said);
    }
}

fn named<'c>(call: &'c Call, argument: &str) -> Option<&'c Value> {
    call.named.iter().find(|(name, _)| name == argument).map(|(_, value)| value)
}

/// Which layers a call converts, if it converts any; none where a filter of one's own says it.
fn layers(call: &Call) -> Option<Option<Float8Layers>> {
    match call.name() {
        "convert_model_to_fp8_ao" => Some(match named(call, "module_filter_func") {
            None | Some(Value::Null) => Some(Float8Layers::Inner),
            Some(_) => None,
        }),
        "convert_to_float8_training" => Some(match named(call, "module_filter_fn") {
            None | Some(Value::Null) => Some(Float8Layers::All),
            Some(filter) if setting::text(filter).contains("_auto_filter_for_recipe") => {
                Some(Float8Layers::Large)
            }
            Some(_) => None,
        }),
        _ => None,
    }
}
