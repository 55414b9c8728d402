"""Switches of a training step that the null-device harness (measure.py) lacks: importing this module adds them to its cases.

  in_backward  true: an optimizer for each parameter that steps in a hook as soon as its gradient is there, as
               torch's tutorial "How to save memory by fusing the optimizer step into the backward pass" has it, and
               torchtune's `optimizer_in_bwd`. Takes "clip": false.
  packed       so many texts in every sequence: position ids that restart at each, and no attention mask.
"""
import measure

measure.DEFAULTS["in_backward"] = False
measure.DEFAULTS["packed"] = 0


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


def build_optimizer(case, params, build=measure.build_optimizer):
    return InBackward(build, case, params) if case["in_backward"] else build(case, params)


measure.build_optimizer = build_optimizer


def patch_value_reads(case, null, patch=measure.patch_value_reads):
    """The null device reads zeros, from which transformers would conclude nothing about packed sequences."""
    patch(case, null)
    if not case["packed"]:
        return
    import torch
    from transformers import masking_utils

    def find_packed_sequence_indices(position_ids):
        first = position_ids[:, :1] - 1
        diff = torch.diff(position_ids, prepend=first, dim=-1)
        return (diff != 1).cumsum(-1)
    if null:
        masking_utils.find_packed_sequence_indices = find_packed_sequence_indices


def build_model(case, device, build=measure.build_model):
    """The position ids are a tensor of the batch, which the harness makes itself: a hook adds them."""
    model = build(case, device)
    if case["packed"]:
        import torch
        texts, rest = divmod(case["seq"], case["packed"])
        lengths = [texts + (rest if i == 0 else 0) for i in range(case["packed"])]
        row = torch.cat([torch.arange(length) for length in lengths])
        ids = []

        def add(module, args, kwargs):
            if not ids:
                ids.append(row.expand(case["batch"], -1).contiguous().to(device))
            return args, dict(kwargs, position_ids=ids[0])
        model.register_forward_pre_hook(add, with_kwargs=True)
    return model


measure.patch_value_reads = patch_value_reads
measure.build_model = build_model

if __name__ == "__main__":
    measure.main()
