//! torchao's preparation of a model's layers for quantisation-aware training.

use super::python::{Call, string};
use crate::scenario::{Qat, QatLayers, Scenario};

/// What the lines need.
pub(super) fn imports(scenario: &Scenario) -> Vec<&'static str> {
    let of_scheme: &[&str] = match scenario.qat.scheme {
        Qat::Off => return Vec::new(),
        _ if !scenario.task.trains() => return Vec::new(),
        Qat::Int4 => &["from torchao.quantization import Int4WeightOnlyConfig, quantize_"],
        Qat::Int8Int4 => &[
            "from torchao.quantization import Int8DynamicActivationIntxWeightConfig, quantize_",
            "from torchao.quantization.granularity import PerGroup",
        ],
        Qat::Float8 => {
            &["from torchao.quantization import Float8DynamicActivationFloat8WeightConfig, quantize_"]
        }
        Qat::Int4Axolotl => &[
            "from torchao.quantization import quantize_",
            "from torchao.quantization.qat.fake_quantize_config import Int4WeightFakeQuantizeConfig",
        ],
        Qat::Int8Int4Axolotl => &[
            "from torchao.quantization import quantize_",
            "from torchao.quantization.qat.fake_quantize_config import Int4WeightFakeQuantizeConfig, IntxFakeQuantizeConfig",
        ],
        Qat::Float8Int4 => &[
            "from torchao.quantization import quantize_",
            "from torchao.quantization.qat.fake_quantize_config import Float8FakeQuantizeConfig, Int4WeightFakeQuantizeConfig",
        ],
        Qat::Float8Axolotl => &[
            "from torchao.quantization import quantize_",
            "from torchao.quantization.qat.fake_quantize_config import Float8FakeQuantizeConfig",
        ],
    };
    of_scheme.iter().copied().chain(["from torchao.quantization.qat import QATConfig"]).collect()
}

/// The line; none where layers compute with their weights as they are.
pub(super) fn preparation(scenario: &Scenario) -> String {
    if !scenario.trains_quantization_aware() {
        return String::new();
    }
    let group = scenario.qat.group.weights().to_string();
    let based = |base: Call| Call::new("QATConfig").with(base.written(0));
    // an input's fake quantizer and a weight's by themselves
    let named = |input: Option<&str>, weight: Call| {
        Call::new("QATConfig")
            .keyword_if("activation_config", input.map(str::to_owned))
            .keyword("weight_config", weight.written(0))
    };
    let int4 = || Call::new("Int4WeightFakeQuantizeConfig").keyword("group_size", group.clone());
    let config = match scenario.qat.scheme {
        Qat::Off => return String::new(),
        Qat::Int4 => based(Call::new("Int4WeightOnlyConfig").keyword("group_size", group.clone())),
        Qat::Int8Int4 => based(
            Call::new("Int8DynamicActivationIntxWeightConfig")
                .keyword("weight_dtype", "torch.int4")
                .keyword("weight_granularity", format!("PerGroup({group})")),
        ),
        Qat::Float8 => based(Call::new("Float8DynamicActivationFloat8WeightConfig")),
        Qat::Float8Int4 => named(Some("Float8FakeQuantizeConfig()"), int4()),
        Qat::Int4Axolotl => named(None, int4()),
        Qat::Int8Int4Axolotl => named(
            Some("IntxFakeQuantizeConfig(torch.int8, \"per_token\", is_symmetric=False)"),
            int4().keyword("activation_dtype", "torch.bfloat16"),
        ),
        Qat::Float8Axolotl => {
            named(Some("Float8FakeQuantizeConfig()"), Call::new("Float8FakeQuantizeConfig"))
        }
    };
    let filter = match scenario.qat.layers {
        QatLayers::All => None,
        QatLayers::Body => Some(
            "lambda module, name: isinstance(module, torch.nn.Linear) and \"lm_head\" not in name".to_owned(),
        ),
    };
    let call = Call::new("quantize_")
        .with("model")
        .with(config.keyword("step", string("prepare")).written(0))
        .keyword_if("filter_fn", filter);
    format!("{}\n", call.written(0))
}
