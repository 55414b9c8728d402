//! LOMO and AdaLomo, which step each parameter in backward: a hook that is given a parameter's gradient first steps the parameters
//! whose gradient is in `.grad`, which is the one before it. Source: lomo_optim 0.1.1, lomo.py and adalomo.py `fuse_update`.

use std::rc::Rc;

use super::trained::{Trained, trained_one};
use crate::dtype::Dtype;
use crate::memory::Category;
use crate::scenario::Optimizer;
use crate::step::gradient::OnGrad;
use crate::step::heap::{NOTHING, StorageId};
use crate::step::machine::State;
use crate::step::what::{Source, What};

static FUSED_STEP: What = What::own(
    "step in float32",
    "a parameter's gradient, update or weight in float32, in which it steps while backward goes on",
    Source::At("lomo_optim, lomo.py, adalomo.py"),
);

/// The hook that steps the parameter whose gradient came before.
pub(super) fn hook(optimizer: Optimizer) -> OnGrad {
    OnGrad::Hook(Rc::new(move |state: &mut State, param| {
        let before = state.waits_for_step.replace(param);
        state.step_fused(optimizer, before);
    }))
}

impl State {
    /// Backward has ended: the last parameter steps (`self.grad_func(0)`).
    pub fn end_fused(&mut self, optimizer: Optimizer) {
        if optimizer.steps_in_backward() {
            let last = self.waits_for_step.take();
            self.step_fused(optimizer, last);
        }
    }

    fn step_fused(&mut self, optimizer: Optimizer, param: Option<u32>) {
        let Some(param) = param.and_then(|id| trained_one(self, id)) else { return };
        let outer = (self.module, self.layer);
        (self.module, self.layer) = (param.module, param.layer);
        let own = std::mem::replace(&mut self.params.list[param.id as usize].grad, NOTHING);
        let is_float = param.dtype == Dtype::F32;
        let gradient = if is_float { own } else { self.in_float32(&param) };
        if !is_float {
            self.release(own);
        }
        let mut update = NOTHING;
        if optimizer == Optimizer::AdaLomo {
            let matrix = (param.rows > 1).then_some((param.rows, param.columns()));
            self.factored_update(param.numel, matrix, &mut update);
        }
        let weight = if is_float { NOTHING } else { self.in_float32(&param) };
        [gradient, update, weight].into_iter().for_each(|storage| self.release(storage));
        (self.module, self.layer) = outer;
    }

    fn in_float32(&mut self, param: &Trained) -> StorageId {
        self.alloc_as(Category::Temporaries, param.numel.saturating_mul(4), Dtype::F32, &FUSED_STEP)
    }
}
