"""LLM.int8 for the null-device harness (measure.py): importing this module adds it to its cases, as more_switches.py does.

  base         "int8": with method "qlora", the frozen weights are what from_pretrained(quantization_config=
               BitsAndBytesConfig(load_in_8bit=True)) ends with. "nf4" where it is left out.

What its code reads off the device is whether a layer's input has numbers above 6.0, and in which columns. The answer is that of
real data: it has, in 7 columns, the most that Dettmers et al. (2022, LLM.int8(), section 4) saw in models of up to 13 billion
parameters. The search is made all the same.
"""
import gc
import sys

import measure

measure.DEFAULTS["base"] = "nf4"

COLUMNS = 7


class Answering:
    """The module torch for a file whose search for columns has an answer."""

    def __init__(self, torch):
        self.torch = torch

    def __getattr__(self, name):
        return getattr(self.torch, name)

    def argwhere(self, mask):
        self.torch.argwhere(mask)
        return self.torch.zeros(min(COLUMNS, mask.numel()), 1, dtype=self.torch.int64, device=mask.device)


def see_outliers():
    import bitsandbytes.backends.cuda.ops as ops
    import torch
    if isinstance(ops.torch, Answering):
        return
    ops.torch = Answering(torch)
    asks = torch.Tensor.__bool__
    torch.Tensor.__bool__ = lambda self: asks(self) or sys._getframe(1).f_code.co_filename == ops.__file__


def build_quantised(case, config, dtype, keywords, device, build=measure.build_4bit):
    if case["base"] == "nf4":
        return build(case, config, dtype, keywords, device)
    import bitsandbytes as bnb
    import torch
    from transformers import BitsAndBytesConfig
    from transformers.integrations import replace_with_bnb_linear
    from transformers.quantizers.auto import AutoHfQuantizer
    see_outliers()
    wanted = BitsAndBytesConfig(load_in_8bit=True)
    quantizer = AutoHfQuantizer.from_config(wanted)
    with torch.device("meta"):
        model = measure.model_class(case).from_config(config, dtype=dtype, **keywords)
    skipped = quantizer.get_modules_to_not_convert(model, wanted.llm_int8_skip_modules, model._keep_in_fp32_modules)
    replace_with_bnb_linear(model, modules_to_not_convert=skipped, quantization_config=wanted)
    for module, own in measure.by_module(model):
        if isinstance(module, bnb.nn.Linear8bitLt):
            whole = torch.empty(module.weight.shape, dtype=dtype, device=device).normal_(0, 0.02)
            kept = {key: value for key, value in module.weight.__dict__.items() if key != "SCB"}
            # Bnb8bitQuantize of transformers/integrations/bitsandbytes.py
            module.weight = bnb.nn.Int8Params(whole.to("cpu"), requires_grad=False, **kept).to(device)
            if module.bias is not None:
                zeros = torch.zeros(module.bias.shape, dtype=dtype, device=device)
                module.bias = torch.nn.Parameter(zeros, requires_grad=False)
            del whole
            continue
        for name, parameter in own:
            if parameter.is_meta:
                new = torch.empty(parameter.shape, dtype=parameter.dtype, device=device).normal_(0, 0.02)
                setattr(module, name, torch.nn.Parameter(new, requires_grad=True))
        buffers = list(module.named_buffers(recurse=False))
        for name, buffer in buffers:
            if buffer.is_meta:
                module._buffers[name] = torch.zeros(buffer.shape, dtype=buffer.dtype, device=device)
        if buffers:
            with torch.no_grad():
                model._init_weights(module)
    model.tie_weights()
    model.is_loaded_in_8bit = model.is_quantized = True
    model.hf_quantizer, quantizer.quantization_config = quantizer, wanted
    model.config.quantization_config, model.quantization_method = wanted, "bitsandbytes"
    gc.collect()
    torch.cuda.empty_cache()
    return model


measure.build_4bit = build_quantised
