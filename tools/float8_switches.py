"""Training in 8-bit floats for the null-device harness (measure.py): importing this module adds it to its cases, as more_switches.py does.

  float8          a recipe of torchao's: "tensorwise", "rowwise" or "rowwise_with_gw_hp". Layers become Float8Linear as
                  `torchao.float8.convert_to_float8_training` makes them.
  float8_filter   which layers: "accelerate" (the default of accelerate's AORecipeKwargs: all but the first and the last linear layer and
                  those with a dimension that 16 does not divide), "head" (all but the head, as torchtune and torchtitan have it), "none"
                  (all), "auto" (torchao's own choice by shape, `_auto_filter_for_recipe`, with the head left out).
  float8_pad      true: `pad_inner_dim`.
  float8_gather   true: `enable_fsdp_float8_all_gather`, which wraps the weights. It and float8_pad are accelerate's defaults where
                  AORecipeKwargs is given no config.
  float8_emulate  true: `emulate`.

torchao is not among requirements.txt: PYTHONPATH names the folder that `pip install --target FOLDER --no-deps torchao` fills.
`torch.exp2` is compiled at run time by NVRTC, which the null device does not do: `torch.exp` stands for it, a result of the same size.
The layers are converted when the tuner's are in place, as Trainer does it, and before the optimizer is made.
"""
from functools import partial

import measure
import torchao_switches

measure.DEFAULTS.update(float8=None, float8_filter="accelerate", float8_pad=False, float8_gather=False, float8_emulate=False)


def round_down(scale):
    import torch
    return torch.exp(torch.floor(torch.log2(scale)))


def settings(case):
    """The recipe with the case's own settings."""
    from dataclasses import replace

    from torchao.float8 import Float8LinearConfig
    recipe = Float8LinearConfig.from_recipe_name(case["float8"])
    return replace(recipe, pad_inner_dim=case["float8_pad"], enable_fsdp_float8_all_gather=case["float8_gather"],
                   emulate=case["float8_emulate"])


def chosen(case, model):
    """The function that says of a layer whether it is converted; None: accelerate's."""
    from torchao.float8 import float8_linear_utils
    if case["float8_filter"] == "auto":
        return float8_linear_utils._auto_filter_for_recipe(case["float8"], ["lm_head"])
    return {"accelerate": None, "none": lambda module, name: True,
            "head": lambda module, name: not name.endswith("lm_head")}[case["float8_filter"]]


def convert(case, model):
    from accelerate.utils.ao import convert_model_to_fp8_ao
    from torchao.float8 import float8_utils
    float8_utils._round_scale_down_to_power_of_2 = round_down
    convert_model_to_fp8_ao(model, config=settings(case), module_filter_func=chosen(case, model))


def build_model(case, device, build=measure.build_model):
    model = build(case, device)
    if case["float8"]:
        convert(case, model)
    return model


def parts(tensor):
    """A wrapped weight has no storage of its own."""
    return [tensor._tensor] if type(tensor).__name__ == "WeightWithDynamicFloat8CastTensor" else [tensor]


def storages(tensors, known=measure.storages):
    return known([part for tensor in tensors if tensor is not None for part in parts(tensor)])


measure.build_model, measure.storages = build_model, storages
