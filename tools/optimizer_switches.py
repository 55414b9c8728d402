"""Optimizers that transformers' Trainer makes with the whole model in hand, for cases of the null-device harness: importing this
module adds them (more_switches.py does).

  optimizer   "galore_adamw", "galore_adamw_8bit", "galore_adafactor" (galore-torch 1.0), "apollo_adamw" (apollo-torch 1.0.3): made by
              transformers' own trainer_optimizer.py, with "in_backward" its `_layerwise` ones. The rank and the layers that are
              projected are those of "lora". Every step makes the projections anew, as every `update_proj_gap`-th does.
              "adam_mini" (adam-mini 1.1.1): of the model's named parameters, with its hidden size and heads as LLaMA-Factory gives them.
              "lomo", "adalomo" (lomo-optim 0.1.1): step in hooks of backward, which accelerate's `lomo_backward` runs.

The device computes no singular values: nullcuda.c answers cuSOLVER's handle and `cusolverDnSgesvdj` (tools/null_device), and how large the
workspace has to be the library says itself. That the iteration converged is what a device of zeros says by itself.
"""
from types import SimpleNamespace

import measure

MODEL = []


def targets(case, model):
    """Names as `optim_target_modules` takes them."""
    import torch
    names = [name for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)]
    head = [name for name, module in model.named_modules() if module is model.get_output_embeddings()]
    wanted = case["lora"]["targets"]
    if wanted == "all-linear":
        return [name for name in names if name not in head]
    return [name for name in names if name.rsplit(".", 1)[-1] in wanted]


def low_rank(case, model):
    from transformers import trainer_optimizer as own
    optim_args = {"rank": str(case["lora"]["r"]), "update_proj_gap": "1"}
    name = case["optimizer"] + ("_layerwise" if case["in_backward"] else "")
    args = SimpleNamespace(optim=name, optim_target_modules=targets(case, model), parallel_mode=None,
                           gradient_accumulation_steps=case["grad_accumulation"])
    make = own._get_apollo_optimizer if name.startswith("apollo") else own._get_galore_optimizer
    adam = {"betas": (0.9, 0.999), "eps": 1e-8}
    optimizer, given = make(own.OptimizerContext(args, model, {"lr": 1e-5}, adam, optim_args))
    return optimizer(**given)


class Fused:
    """What the harness takes for an optimizer: one that steps in backward, of which no more is asked."""

    def __init__(self, optimizer):
        import torch
        self.optimizer, self.state, backward = optimizer, {}, torch.Tensor.backward

        def fused(loss, *args, **kwargs):
            torch.Tensor.backward = backward
            optimizer.fused_backward(loss, 1e-5)
            torch.Tensor.backward = fused
        torch.Tensor.backward = fused

    def step(self):
        pass

    def zero_grad(self, set_to_none=True):
        pass


def fused(case, model):
    import lomo_optim
    return Fused({"lomo": lomo_optim.Lomo, "adalomo": lomo_optim.AdaLomo}[case["optimizer"]](model, lr=1e-5))


def mini(case, model):
    from adam_mini import Adam_mini
    config = model.config
    return Adam_mini(model.named_parameters(), lr=1e-5, dim=config.hidden_size, n_heads=config.num_attention_heads,
                     n_kv_heads=getattr(config, "num_key_value_heads", None), verbose=False)


OWN = {"adam_mini": mini, "galore_adamw": low_rank, "galore_adamw_8bit": low_rank, "galore_adafactor": low_rank, "apollo_adamw": low_rank,
       "lomo": fused, "adalomo": fused}


def build_model(case, device, build=measure.build_model):
    MODEL[:] = [build(case, device)]
    return MODEL[0]


def build_optimizer(case, params, build=measure.build_optimizer):
    return OWN[case["optimizer"]](case, MODEL[0]) if case["optimizer"] in OWN else build(case, params)


measure.build_model, measure.build_optimizer = build_model, build_optimizer
