//! The door through which a parameter's gradient leaves autograd.

use std::rc::Rc;

use super::machine::State;
use super::params::ParamId;

/// What a script does with a parameter whose gradient is there.
pub(super) type Hook = dyn Fn(&mut State, ParamId);

/// What happens to the gradient of a parameter as soon as it is there.
#[derive(Clone, Default)]
pub(super) enum OnGrad {
    /// It stays in `.grad` until the optimizer's step.
    #[default]
    Keep,
    /// A hook is given the parameter (`register_post_accumulate_grad_hook`).
    Hook(Rc<Hook>),
}

impl State {
    /// A parameter's gradient is in its `.grad`: the hooks after AccumulateGrad run.
    pub fn deliver(&mut self, param: ParamId) {
        self.note_arrival(param);
        if let OnGrad::Hook(hook) = self.on_grad.clone() {
            hook(self, param);
        }
    }
}
