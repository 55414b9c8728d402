"""Quantisation-aware training for the null-device harness (measure.py): importing this module adds it to its cases, as more_switches.py does.

  qat          what torchao's `QATConfig(base, step="prepare")` fakes in the linear layers, all but the head: "int4"
               (Int4WeightOnlyConfig), "int8-int4" (Int8DynamicActivationIntxWeightConfig with 4-bit weights, as axolotl has it for
               `activation_dtype: int8, weight_dtype: int4`), "fp8" (Float8DynamicActivationFloat8WeightConfig), "fp8-int4"
               (Float8DynamicActivationInt4WeightConfig).
  qat_group    weights of a row that share a scale, 128 where it is left out ("int4", "int8-int4").

torchao comes from a folder of its own, as torchao_switches.py says.
"""
import measure

measure.DEFAULTS.update(qat=None, qat_group=None)


def base_config(case):
    import torch
    from torchao import quantization
    from torchao.quantization.granularity import PerGroup
    group = case["qat_group"] or 128
    return {"int4": lambda: quantization.Int4WeightOnlyConfig(group_size=group),
            "int8-int4": lambda: quantization.Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=PerGroup(group)),
            "fp8": lambda: quantization.Float8DynamicActivationFloat8WeightConfig(),
            "fp8-int4": lambda: quantization.Float8DynamicActivationInt4WeightConfig()}[case["qat"]]()


def build_model(case, device, build=measure.build_model):
    model = build(case, device)
    if case["qat"]:
        import torch
        from torchao.quantization import quantize_
        from torchao.quantization.qat import QATConfig
        quantize_(model, QATConfig(base_config(case), step="prepare"),
                  filter_fn=lambda module, name: isinstance(module, torch.nn.Linear) and not name.endswith("lm_head"))
    return model


measure.build_model = build_model
