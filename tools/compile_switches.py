"""Layers that are compiled one by one, for the null-device harness (measure.py): importing this module adds them to its cases.

  compile      "layers": `layer.compile()` for each decoder layer, all else as it is written.
               "model": `model.compile()`: the whole model is one graph.
               "regions": accelerate's `compile_regions`, which compiles the embedding, the last norm and the head too, each alone.

The Triton kernels that inductor generates are launched and do nothing, as all others. TRITON_LIBCUDA_PATH names nullcuda's folder.
The modules within a compiled layer get no labels in a trace: a hook would be compiled with them.
"""
import measure

measure.DEFAULTS.update(compile=None)
COMPILED = []


def decoder_layers(model):
    import torch
    return next(m for m in model.modules() if isinstance(m, torch.nn.ModuleList) and len(m) and all(isinstance(x, type(m[0])) for x in m))


def patch_value_reads(case, null, patch=measure.patch_value_reads):
    """While a model is traced nobody can look at its positions: transformers takes them for those of packed sequences, as on a card."""
    from transformers import masking_utils
    packed = masking_utils.find_packed_sequence_indices
    patch(case, null)
    if null and case["compile"] == "model":
        masking_utils.find_packed_sequence_indices = lambda positions: packed(positions) if masking_utils.is_tracing(positions) else None


def build_model(case, device, build=measure.build_model):
    model = build(case, device)
    COMPILED.clear()
    if case["compile"]:
        layers = decoder_layers(model)
        COMPILED.extend(m for layer in layers for m in layer.modules())
        measure.record_sdpa = lambda: lambda: None
        if case["compile"] == "layers":
            for layer in layers:
                layer.compile()
        elif case["compile"] == "model":
            COMPILED[:] = model.modules()
            model.compile()
        else:
            from accelerate.utils import compile_regions
            model = compile_regions(model)
    return model


class Labels(measure.Labels):
    def __init__(self, model):
        class Outside:
            def named_modules(self):
                inside = {id(m) for m in COMPILED}
                return [(n, m) for n, m in model.named_modules() if id(m) not in inside]
        super().__init__(Outside())


measure.patch_value_reads, measure.build_model, measure.Labels = patch_value_reads, build_model, Labels
