"""Adds a value to the cases of more_switches.py: experts as transformers 4 has them. Needs its version 4.57.1 in front of the harness's own:
`pip install --target FOLDER --no-deps transformers==4.57.1 "tokenizers<=0.23" "huggingface_hub<1"`, and FOLDER in PYTHONPATH.

  experts "layers"   each expert is three `nn.Linear`, which run one after the other over the tokens that were sent to them

Which tokens go where is read off the device, which has no data: every expert is answered with as many as any other, the first with one
more where they do not divide. That is what routers are trained towards; where there are fewer rows than experts, the last have none.
"""
import measure

# the expert that was asked for last, and whose turn it is
ASKED, TURN = [0], [0]


def answer(case):
    import torch
    from torch import nn
    by_number = nn.ModuleList.__getitem__

    def expert(self, number):
        if not isinstance(number, torch.Tensor):
            ASKED[0] = number
            return by_number(self, number)
        ASKED[0], TURN[0] = TURN[0], TURN[0] + 1
        return by_number(self, ASKED[0])

    def nonzero(mask):
        count = min(experts(case), rows(case))
        if mask.dim() == 1:
            # which experts were chosen: the first is next
            TURN[0] = 0
        else:
            each, more = divmod(rows(case), experts(case))
            count = each + (ASKED[0] < more)
        # copied first as nonzero does it, so that nothing comes between what follows
        mask = mask.contiguous()
        # the kernel's count comes back from the address that the next small tensor gets: what was copied there last
        torch.empty(1, dtype=torch.int32, device=mask.device).copy_(torch.tensor([count], dtype=torch.int32))
        return torch.ops.aten.nonzero.out(mask, out=torch.empty(0, dtype=torch.long, device=mask.device))
    nn.ModuleList.__getitem__ = expert
    answers = torch.library.Library("aten", "IMPL")
    answers.impl("nonzero", nonzero, "CUDA")
    return answers


def experts(case):
    config = measure.build_config(case)
    return next(getattr(config, name) for name in ("num_experts", "num_local_experts", "n_routed_experts") if getattr(config, name, None))


def rows(case):
    return case["batch"] * case["seq"] * measure.build_config(case).num_experts_per_tok


ANSWERS = []


def build_model(case, device, build=measure.build_model):
    if case["experts"] != "layers":
        return build(case, device)
    model = build(dict(case, experts=None), device)
    ANSWERS.append(answer(case))
    return model


measure.build_model = build_model
