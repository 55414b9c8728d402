"""Quantisation-aware training for the null-device harness (measure.py): importing this module adds it to its cases, as more_switches.py does.

  qat          what torchao's `QATConfig(base, step="prepare")` fakes in the linear layers, all but the head: "int4"
               (Int4WeightOnlyConfig), "int8-int4" (Int8DynamicActivationIntxWeightConfig with 4-bit weights), "fp8" (Float8DynamicActivationFloat8WeightConfig), "fp8-int4"
               (Float8DynamicActivationInt4WeightConfig), or what axolotl 0.19 makes of a `weight_dtype`, with an
               `activation_dtype` or none (utils/quantization.py `_make_qat_config`): "int4-axolotl", "int8-int4-axolotl",
               "fp8-axolotl".
  qat_group    weights of a row that share a scale, 128 where it is left out ("int4", "int8-int4").
  qat_layers   "body", the default: without the output head; "all": with it, as `quantize_` does without a filter.

torchao comes from a folder of its own, as torchao_switches.py says.
"""
import measure

measure.DEFAULTS.update(qat=None, qat_group=None, qat_layers="body")


def base_config(case):
    import torch
    from torchao import quantization
    from torchao.quantization.granularity import PerGroup
    group = case["qat_group"] or 128
    return {"int4": lambda: quantization.Int4WeightOnlyConfig(group_size=group),
            "int8-int4": lambda: quantization.Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=PerGroup(group)),
            "fp8": lambda: quantization.Float8DynamicActivationFloat8WeightConfig(),
            "fp8-int4": lambda: quantization.Float8DynamicActivationInt4WeightConfig()}[case["qat"]]()


def qat_config(case):
    import torch
    from torchao.quantization.qat import QATConfig
    from torchao.quantization.qat.fake_quantize_config import Float8FakeQuantizeConfig, Int4WeightFakeQuantizeConfig, IntxFakeQuantizeConfig
    group = case["qat_group"] or 128
    of_axolotl = {
        "int4-axolotl": lambda: dict(weight_config=Int4WeightFakeQuantizeConfig(group_size=group)),
        "int8-int4-axolotl": lambda: dict(weight_config=Int4WeightFakeQuantizeConfig(group_size=group, activation_dtype=torch.bfloat16),
                                          activation_config=IntxFakeQuantizeConfig(dtype=torch.int8, granularity="per_token", is_symmetric=False)),
        "fp8-axolotl": lambda: dict(weight_config=Float8FakeQuantizeConfig(dtype=torch.float8_e4m3fn),
                                    activation_config=Float8FakeQuantizeConfig(dtype=torch.float8_e4m3fn))}
    if case["qat"] in of_axolotl:
        return QATConfig(**of_axolotl[case["qat"]](), step="prepare")
    return QATConfig(base_config(case), step="prepare")


def build_model(case, device, build=measure.build_model):
    model = build(case, device)
    if case["qat"]:
        import torch
        from torchao.quantization import quantize_
        takes = lambda module, name: isinstance(module, torch.nn.Linear) and (case["qat_layers"] == "all" or not name.endswith("lm_head"))
        quantize_(model, qat_config(case), filter_fn=takes)
    return model


measure.build_model = build_model
