"""Switches of a training step that the null-device harness (measure.py) lacks: importing this module adds them to its cases.

  in_backward  true: an optimizer for each parameter that steps in a hook as soon as its gradient is there, as
               torch's tutorial "How to save memory by fusing the optimizer step into the backward pass" has it, and
               torchtune's `optimizer_in_bwd`. Takes "clip": false.
  offload      "trl": what backward needs waits in the CPU's memory, as trl's `activation_offloading` does it around
               forward and backward. TRL_OFFLOADING names its trl/models/activation_offloading.py.
  optimizer    "lamb", "ademamix", "ademamix_8bit", "paged_ademamix", "paged_ademamix_8bit": bitsandbytes' own.
  optimizer    "adamw_8bit_torchao", "adamw_4bit_torchao": torchao's, whose step is compiled; "nadam", "amsgrad", "nesterov": torch's.
               "adamw_cpu_offload", "adamw_cpu_offload_gradients": torchao's CPUOffloadOptimizer over torch.optim.AdamW, without and
               with `offload_gradients`.
               "schedule_free_adamw": schedulefree's AdamWScheduleFree; "stable_adamw": optimi's StableAdamW (torch-optimi).
               "muon": torch.optim.Muon for the matrices of the layers, torch.optim.AdamW for all else.
               "galore_adamw" and others that take the whole model: see optimizer_switches.py.
  adapter      another tuner of peft than LoRA, by its slug: see tuner_switches.py.
  base         "int8": see eight_bit_switches.py; "torchao-int8": see torchao_switches.py; "gptq-4": see gptq_switches.py;
               "awq-4", "awq-4-cuda": see awq_switches.py.
  float8       a recipe of torchao's Float8Linear: see float8_switches.py.
  qat          quantisation-aware training: see qat_switches.py.
  packed, attention "flash_attention_2": see packed_switches.py.
  images, image_size, tower: see picture_switches.py.
  experts      "layers": see expert_layer_switches.py.
  compile      "layers": see compile_switches.py.
  liger        true: Liger's kernels in the place of transformers' modules (liger-kernel 0.8.5).
  fused_adapters  true: axolotl's, see fused_adapter_switches.py.
"""
import importlib.util
import os
import re

import liger_reads
import measure

measure.DEFAULTS.update(in_backward=False, offload=None, adapter="lora", liger=False)


class InBackward:
    """What the harness takes for an optimizer: one for each parameter, which step by themselves."""

    def __init__(self, build, case, params):
        self.each = {p: build(case, [p]) for p in params}
        for p in params:
            p.register_post_accumulate_grad_hook(self.hook)

    def hook(self, param):
        self.each[param].step()
        self.each[param].zero_grad()

    def step(self):
        pass

    def zero_grad(self, set_to_none=True):
        pass

    @property
    def state(self):
        return {p: s for one in self.each.values() for p, s in one.state.items()}


def patch_value_reads(case, null, patch=measure.patch_value_reads):
    """The harness answers transformers' search for padding without running it: run it, which sums the mask."""
    from transformers import masking_utils
    real = getattr(masking_utils, "fast_all", None)
    patch(case, null)
    if real and masking_utils.fast_all is not real:
        answer = masking_utils.fast_all
        masking_utils.fast_all = lambda mask: (real(mask), answer(mask))[1]


BITSANDBYTES = {"lamb": "LAMB", "ademamix": "AdEMAMix", "ademamix_8bit": "AdEMAMix8bit", "paged_ademamix": "PagedAdEMAMix",
                "paged_ademamix_8bit": "PagedAdEMAMix8bit"}
TORCHAO = {"adamw_8bit_torchao": "AdamW8bit", "adamw_4bit_torchao": "AdamW4bit"}
OFFLOADED = ("adamw_cpu_offload", "adamw_cpu_offload_gradients")


class Both:
    """Several optimizers that step one after the other."""

    def __init__(self, *each):
        self.each = [one for one in each if one is not None]

    def step(self):
        for one in self.each:
            one.step()

    def zero_grad(self, set_to_none=True):
        for one in self.each:
            one.zero_grad(set_to_none=set_to_none)

    @property
    def param_groups(self):
        return [group for one in self.each for group in one.param_groups]

    @property
    def state(self):
        return {p: s for one in self.each for p, s in one.state.items()}


class Offloaded(Both):
    """torchao's, which has no `state` of its own: those of the optimizers that it steps."""

    def __init__(self, optimizer):
        self.optimizer, self.each = optimizer, [one for one in [optimizer.d_opt, *optimizer.optim_dict.values()] if one is not None]

    def step(self):
        self.optimizer.step()

    def zero_grad(self, set_to_none=True):
        self.optimizer.zero_grad()


IN_LAYERS = set()


def muon(params):
    import torch
    matrices = [p for p in params if p.ndim == 2 and id(p) in IN_LAYERS]
    rest = [p for p in params if p.ndim != 2 or id(p) not in IN_LAYERS]
    return Both(torch.optim.Muon(matrices) if matrices else None, torch.optim.AdamW(rest) if rest else None)


def one_optimizer(case, params, build=measure.build_optimizer):
    import torch
    own = {"nadam": lambda: torch.optim.NAdam(params, lr=1e-5), "amsgrad": lambda: torch.optim.AdamW(params, lr=1e-5, amsgrad=True),
           "nesterov": lambda: torch.optim.SGD(params, lr=1e-5, momentum=0.9, nesterov=True)}
    if case["optimizer"] == "muon":
        return muon(params)
    if case["optimizer"] in own:
        return own[case["optimizer"]]()
    if case["optimizer"] in TORCHAO:
        import torchao.optim
        return getattr(torchao.optim, TORCHAO[case["optimizer"]])(params, lr=1e-5)
    if case["optimizer"] in OFFLOADED:
        from torchao.optim import CPUOffloadOptimizer
        gradients = case["optimizer"] == OFFLOADED[1]
        return Offloaded(CPUOffloadOptimizer(params, torch.optim.AdamW, offload_gradients=gradients, lr=1e-5))
    if case["optimizer"] == "schedule_free_adamw":
        import schedulefree
        optimizer = schedulefree.AdamWScheduleFree(params, lr=1e-5)
        optimizer.train()
        return optimizer
    if case["optimizer"] == "stable_adamw":
        import optimi
        return optimi.StableAdamW(params, lr=1e-5, weight_decay=0.0)
    if case["optimizer"] not in BITSANDBYTES:
        return build(case, params)
    import bitsandbytes.optim
    return getattr(bitsandbytes.optim, BITSANDBYTES[case["optimizer"]])(params, lr=1e-5)


def build_optimizer(case, params):
    return InBackward(one_optimizer, case, params) if case["in_backward"] else one_optimizer(case, params)


def with_liger(case):
    """Puts Liger's kernels in the place of transformers' modules, before the harness builds any."""
    from liger_kernel.transformers import monkey_patch
    config = measure.build_config(dict(measure.DEFAULTS, preset=case.get("preset"), config=case.get("config")))
    liger_reads.answer()
    monkey_patch.MODEL_TYPE_TO_APPLY_LIGER_FN[config.model_type]()


def build_model(case, device, build=measure.build_model):
    if case["liger"]:
        with_liger(case)
    model = build(case, device)
    if case["offload"] == "trl":
        offload(model)
    IN_LAYERS.update(id(p) for name, p in model.named_parameters() if re.search(r"\.\d+\.", name))
    return model


def offload(model):
    """Enters trl's context with the model's forward pass and leaves it after `backward`."""
    import torch
    spec = importlib.util.spec_from_file_location("activation_offloading", os.environ["TRL_OFFLOADING"])
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    context = module.get_act_offloading_ctx_manager(model)
    forward, backward = model.forward, torch.Tensor.backward

    def entered(*args, **kwargs):
        context.__enter__()
        return forward(*args, **kwargs)

    def left(*args, **kwargs):
        backward(*args, **kwargs)
        context.__exit__(None, None, None)
    model.forward, torch.Tensor.backward = entered, left


measure.build_optimizer, measure.build_model = build_optimizer, build_model
measure.patch_value_reads = patch_value_reads

import awq_switches  # noqa: E402,F401
import float8_switches  # noqa: E402,F401
import qat_switches  # noqa: E402,F401
import optimizer_switches  # noqa: E402,F401
import tuner_switches  # noqa: E402,F401
import fused_adapter_switches  # noqa: E402,F401
import packed_switches  # noqa: E402,F401 after those above, which its own enclose
import picture_switches  # noqa: E402,F401
import expert_layer_switches  # noqa: E402,F401
import compile_switches  # noqa: E402,F401 last: the layers are compiled when all else is in place

if __name__ == "__main__":
    measure.main()
