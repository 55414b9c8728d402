"""Switches of a training step that the null-device harness (measure.py) lacks: importing this module adds them to its cases.

  in_backward  true: an optimizer for each parameter that steps in a hook as soon as its gradient is there, as
               torch's tutorial "How to save memory by fusing the optimizer step into the backward pass" has it, and
               torchtune's `optimizer_in_bwd`. Takes "clip": false.
"""
import measure

measure.DEFAULTS["in_backward"] = False


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

if __name__ == "__main__":
    measure.main()
