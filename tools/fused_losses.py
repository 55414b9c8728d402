"""Losses that read the output head's weight themselves, put in the place of a model's own forward pass before the harness builds it.

Keys of a case: "loss" "liger" (liger-kernel's, alone or beside its other kernels), "cut" (axolotl's fork of cut-cross-entropy, which patches
transformers' models and axolotl's plugin asks for: its folder is on PYTHONPATH) or "full" (all logits, beside Liger's other kernels), and "liger": Liger's
kernels in the place of transformers' modules, with its loss unless another is named.
"""
import importlib.metadata
import inspect

import liger_reads

KERNELS = ("rope", "rms_norm", "swiglu", "geglu", "layer_norm")
# what axolotl's plugin names (integrations/cut_cross_entropy/__init__.py), which has no version
FORK = "axolotl-ai-cloud/ml-cross-entropy@5f0c7a7"


def put(case):
    """Puts what the case names there, as the plugins of axolotl do (integrations/liger/plugin.py, integrations/cut_cross_entropy)."""
    import measure
    loss, kernels = case.get("loss", "standard"), bool(case.get("liger"))
    kind = measure.build_config(dict(measure.DEFAULTS, preset=case.get("preset"), config=case.get("config"))).model_type
    if kernels or loss == "liger":
        from liger_kernel.transformers import monkey_patch
        apply = monkey_patch.MODEL_TYPE_TO_APPLY_LIGER_FN[kind]
        known = inspect.signature(apply).parameters
        liger_reads.answer()
        # what a patch leaves out by itself stays out (glm4's rotary positions)
        wanted = {name: kernels and known[name].default for name in KERNELS if name in known}
        wanted.update(cross_entropy=False, fused_linear_cross_entropy=loss in ("standard", "liger"))
        apply(**{name: on for name, on in wanted.items() if name in known})
    if loss == "cut":
        from cut_cross_entropy.transformers.patch import cce_patch
        cce_patch(kind)
        answer_as_data_would()


def answer_as_data_would():
    """How many tokens have a label is read off the device: all of them."""
    import cut_cross_entropy.cce as cce
    import torch
    build, nonzero = cce._build_flat_valids, torch.Tensor.nonzero

    def every(mask):
        nonzero(mask)
        return torch.empty((mask.numel(), mask.dim()), dtype=torch.int64, device=mask.device)

    def built(*own):
        torch.Tensor.nonzero = every
        try:
            return build(*own)
        finally:
            torch.Tensor.nonzero = nonzero

    cce._build_flat_valids = built


def versions(case):
    """Of what a case has beside the harness."""
    loss, found = case.get("loss", "standard"), {}
    if case.get("liger") or loss == "liger":
        found["liger-kernel"] = importlib.metadata.version("liger-kernel")
    if loss == "cut":
        found["cut-cross-entropy"] = FORK
    return found
