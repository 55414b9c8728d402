"""Weights of torchao for the null-device harness (measure.py): importing this module adds them to its cases, as more_switches.py does.

  base         "torchao-int8": with method "qlora", the frozen weights are what from_pretrained(quantization_config=
               TorchAoConfig(Int8WeightOnlyConfig())) ends with.

torchao is not among requirements.txt: PYTHONPATH names the folder that `pip install --target FOLDER --no-deps torchao` fills.
"""
import gc
import sys

import eight_bit_switches  # noqa: F401 adds the switch "base"
import measure

before = measure.build_4bit


def build_torchao(case, config, dtype, keywords, device):
    if case["base"] != "torchao-int8":
        return before(case, config, dtype, keywords, device)
    import torch
    from torchao.quantization import Int8WeightOnlyConfig, quantize_
    from transformers import TorchAoConfig
    from transformers.quantizers.auto import AutoHfQuantizer
    wanted = TorchAoConfig(Int8WeightOnlyConfig())
    quantizer = AutoHfQuantizer.from_config(wanted)
    with torch.device("meta"):
        model = measure.model_class(case).from_config(config, dtype=dtype, **keywords)
    quantizer._process_model_before_weight_loading(model)
    names = {module: name for name, module in model.named_modules()}
    for module, own in measure.by_module(model):
        for key, parameter in own:
            if not parameter.is_meta:
                continue
            whole = torch.empty(parameter.shape, dtype=parameter.dtype, device=device).normal_(0, 0.02)
            full = f"{names[module]}.{key}" if names[module] else key
            quantised = quantizer.param_needs_quantization(model, full)
            setattr(module, key, torch.nn.Parameter(whole, requires_grad=True))
            del whole
            if quantised:
                # TorchAoQuantize of transformers/integrations/torchao.py
                quantize_(module, wanted.get_apply_tensor_subclass())
        buffers = list(module.named_buffers(recurse=False))
        for key, buffer in buffers:
            if buffer.is_meta:
                module._buffers[key] = torch.zeros(buffer.shape, dtype=buffer.dtype, device=device)
        if buffers:
            with torch.no_grad():
                model._init_weights(module)
    model.tie_weights()
    model.is_quantized = True
    model.hf_quantizer, model.config.quantization_config = quantizer, wanted
    model.quantization_method = wanted.quant_method
    gc.collect()
    torch.cuda.empty_cache()
    return model


def parts(tensor):
    """torchao's tensors have no storage of their own: their parts have, those of its optimizers' states too."""
    if hasattr(tensor, "tensor_attrs"):
        return [getattr(tensor, name) for name in tensor.tensor_attrs]
    if not hasattr(tensor, "tensor_data_names"):
        return [tensor]
    return [getattr(tensor, name) for name in tensor.tensor_data_names + tensor.optional_tensor_data_names]


def storages(tensors, known=measure.storages):
    return known([part for tensor in tensors for part in parts(tensor)])


def versions(known=measure.versions):
    found = known()
    if "torchao" in sys.modules:
        found["torchao"] = sys.modules["torchao"].__version__
    return found


measure.build_4bit, measure.storages, measure.versions = build_torchao, storages, versions
