"""Weights of AWQ for the null-device harness (measure.py): importing this module adds them to its cases, as more_switches.py does.

  base         "awq-4", "awq-4-cuda" for the compiled kernel: with method "qlora", the frozen weights are what from_pretrained(quantization_config=
               AwqConfig(backend="auto_trainable")) ends with over a checkpoint of AWQ's (version "gemm"). transformers makes bfloat16
               float16 there, as the dtype of the model; so does this.
  group_size   weights of a column that share a scale, 128 where it is left out; -1: all of them.
  awq_backend  what AwqConfig is given instead of "auto_trainable", e.g. "torch_awq".

What "auto_trainable" takes depends on the machine: where nvcc compiles gptqmodel's extension it is AwqGEMMLinear, elsewhere
AwqGEMMTritonLinear. peft's prepare_model_for_kbit_training does not turn gradient checkpointing on for AWQ: it is turned on here
when the adapters are in place, as Trainer does it, and for the reentrant kind the embeddings are told to have gradients, as trl does it.
Where it took the other one than the case says, measuring stops. gptqmodel comes from a folder of its own, as gptq_switches.py says.
"""
import gc
import os

import gptq_switches  # noqa: F401 adds "group_size" and the versions
import measure

measure.DEFAULTS["awq_backend"] = None

KERNELS = {"awq-4": "AwqGEMMTritonLinear", "awq-4-cuda": "AwqGEMMLinear"}

before = measure.build_4bit


def build_awq(case, config, dtype, keywords, device):
    if case["base"] not in KERNELS:
        return before(case, config, dtype, keywords, device)
    os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:False")
    import torch
    from gptqmodel.nn_modules.qlinear import BaseQuantLinear
    from transformers import AwqConfig
    from transformers.quantizers.auto import AutoHfQuantizer
    wanted = AwqConfig(bits=4, group_size=case["group_size"] or 128, zero_point=True, backend=case["awq_backend"] or "auto_trainable")
    quantizer = AutoHfQuantizer.from_config(wanted)
    dtype = quantizer.update_dtype(dtype)
    with torch.device("meta"):
        model = measure.model_class(case).from_config(config, dtype=dtype, **keywords)
    quantizer._process_model_before_weight_loading(model, device_map={"": 0})
    kinds = set()
    for module, own in measure.by_module(model):
        for key, parameter in own:
            if parameter.is_meta:
                whole = torch.empty(parameter.shape, dtype=parameter.dtype, device=device)
                if whole.is_floating_point():
                    whole.normal_(0, 0.02)
                setattr(module, key, torch.nn.Parameter(whole, requires_grad=whole.is_floating_point()))
                del whole
        quantised = isinstance(module, BaseQuantLinear)
        kinds.update({type(module).__name__} if quantised else ())
        buffers = list(module.named_buffers(recurse=False))
        for key, buffer in buffers:
            if buffer.is_meta or quantised:
                module._buffers[key] = torch.zeros(buffer.shape, dtype=buffer.dtype, device=device)
        if buffers and not quantised:
            with torch.no_grad():
                model._init_weights(module)
    if case["awq_backend"] is None and kinds != {KERNELS[case["base"]]}:
        raise RuntimeError("AWQ runs as %s, not as %s" % (", ".join(sorted(kinds)), KERNELS[case["base"]]))
    model.tie_weights()
    quantizer._process_model_after_weight_loading(model)
    model.is_quantized = True
    model.hf_quantizer, model.config.quantization_config = quantizer, wanted
    model.quantization_method = wanted.quant_method
    gc.collect()
    torch.cuda.empty_cache()
    return model


def build_model(case, device, build=measure.build_model):
    model = build(case, device)
    kind = case["gradient_checkpointing"]
    if case["method"] == "qlora" and case["base"] in KERNELS and kind != "none":
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": kind == "reentrant"})
        if kind == "reentrant":
            model.enable_input_require_grads()
    return model


measure.build_4bit, measure.build_model = build_awq, build_model
