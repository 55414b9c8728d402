"""Weights of GPTQ for the null-device harness (measure.py): importing this module adds them to its cases, as more_switches.py does.

  base         "gptq-4" or "gptq-8": with method "qlora", the frozen weights are what from_pretrained(quantization_config=
               GPTQConfig(bits=4, backend="auto_trainable")) ends with over a checkpoint of GPTQ's.
  group_size   weights of a column that share a scale, 128 where it is left out; -1: all of them.

gptqmodel and optimum are not among requirements.txt: PYTHONPATH names a folder of their own that `pip install --target` fills.
gptqmodel asks the allocator for expandable segments where the environment says nothing; here it says what PyTorch does by default.
"""
import gc
import os
import sys

import measure
import torchao_switches  # noqa: F401 adds the switch "base"

measure.DEFAULTS["group_size"] = None

before = measure.build_4bit


def build_gptq(case, config, dtype, keywords, device):
    if not case["base"].startswith("gptq-"):
        return before(case, config, dtype, keywords, device)
    os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:False")
    import torch
    from gptqmodel.nn_modules.qlinear import BaseQuantLinear
    from transformers import GPTQConfig
    from transformers.quantizers.auto import AutoHfQuantizer
    # the kernels to choose from are looked for on a device that has none of its own
    wanted = GPTQConfig(bits=int(case["base"].removeprefix("gptq-")), group_size=case["group_size"] or 128, sym=True, desc_act=False,
                        backend="auto_trainable")
    quantizer = AutoHfQuantizer.from_config(wanted)
    with torch.device("meta"):
        model = measure.model_class(case).from_config(config, dtype=dtype, **keywords)
    quantizer._process_model_before_weight_loading(model, device_map={"": 0})
    for module, own in measure.by_module(model):
        for key, parameter in own:
            if parameter.is_meta:
                whole = torch.empty(parameter.shape, dtype=parameter.dtype, device=device).normal_(0, 0.02)
                setattr(module, key, torch.nn.Parameter(whole, requires_grad=True))
                del whole
        buffers = list(module.named_buffers(recurse=False))
        for key, buffer in buffers:
            if buffer.is_meta or isinstance(module, BaseQuantLinear):
                module._buffers[key] = torch.zeros(buffer.shape, dtype=buffer.dtype, device=device)
        if buffers and not isinstance(module, BaseQuantLinear):
            with torch.no_grad():
                model._init_weights(module)
    model.tie_weights()
    quantizer._process_model_after_weight_loading(model)
    model.is_quantized = True
    model.hf_quantizer, model.config.quantization_config = quantizer, wanted
    model.quantization_method = wanted.quant_method
    gc.collect()
    torch.cuda.empty_cache()
    return model


def versions(known=measure.versions):
    found = known()
    for package in ("gptqmodel", "optimum"):
        if package in sys.modules:
            from importlib.metadata import version
            found[package] = version(package)
    return found


measure.build_4bit, measure.versions = build_gptq, versions
