//! The door through which a parameter's gradient leaves autograd.

use super::machine::State;
use super::optimizer::Stepper;
use super::params::ParamId;

/// What happens to the gradient of a parameter as soon as it is there.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum OnGrad {
    /// It stays in `.grad` until the optimizer's step.
    #[default]
    Keep,
    /// Its parameter steps by itself, and the gradient goes (`register_post_accumulate_grad_hook`).
    Step(Stepper),
}

impl State {
    /// A parameter's gradient is in its `.grad`: the hooks after AccumulateGrad run.
    pub fn deliver(&mut self, param: ParamId) {
        match self.on_grad {
            OnGrad::Keep => {}
            OnGrad::Step(stepper) => self.step_in_backward(stepper, param),
        }
    }
}
