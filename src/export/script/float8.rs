//! torchao's conversion of a model's layers to products in 8-bit floats.

use super::python::{Call, boolean, string};
use crate::scenario::{Float8Layers, Float8Training, Scenario};

/// What the lines need.
pub(super) fn imports(scenario: &Scenario) -> Vec<&'static str> {
    if !scenario.trains_in_float8() {
        return Vec::new();
    }
    let filter = match scenario.float8.layers {
        Float8Layers::Inner => Some("from accelerate.utils.ao import convert_model_to_fp8_ao"),
        Float8Layers::Large => Some("from torchao.float8.float8_linear_utils import _auto_filter_for_recipe"),
        Float8Layers::Body | Float8Layers::All => None,
    };
    let modules = match scenario.float8.layers {
        Float8Layers::Inner => "from torchao.float8 import Float8LinearConfig",
        Float8Layers::Body | Float8Layers::Large | Float8Layers::All => {
            "from torchao.float8 import Float8LinearConfig, convert_to_float8_training"
        }
    };
    let changes = scenario.float8.pads;
    filter.into_iter().chain(changes.then_some("from dataclasses import replace")).chain([modules]).collect()
}

/// The lines; none where products are in the types that precision says. Weights that are wrapped for gathers are refused before.
pub(super) fn conversion(scenario: &Scenario) -> String {
    let Float8Training { recipe, layers, pads, .. } = scenario.float8;
    let Some(name) = recipe.recipe().filter(|_| scenario.trains_in_float8()) else { return String::new() };
    let mut lines = format!(
        "float8 = {}\n",
        Call::new("Float8LinearConfig.from_recipe_name").with(string(name)).written(0)
    );
    if pads {
        let changed = Call::new("replace").with("float8").keyword("pad_inner_dim", boolean(true));
        lines.push_str(&format!("float8 = {}\n", changed.written(0)));
    }
    let convert = |filter: Option<String>| {
        Call::new("convert_to_float8_training")
            .with("model")
            .keyword("config", "float8")
            .keyword_if("module_filter_fn", filter)
    };
    let call = match layers {
        // its own filter leaves the first and the last linear layer out, and those that 16 does not divide
        Float8Layers::Inner => Call::new("convert_model_to_fp8_ao").with("model").keyword("config", "float8"),
        Float8Layers::Body => convert(Some("lambda module, name: \"lm_head\" not in name".to_owned())),
        Float8Layers::Large => {
            convert(Some(format!("_auto_filter_for_recipe({}, [\"lm_head\"])", string(name))))
        }
        Float8Layers::All => convert(None),
    };
    lines.push_str(&format!("{}\n", call.written(0)));
    lines
}
