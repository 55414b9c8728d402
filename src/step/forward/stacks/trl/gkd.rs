//! trl's `GKDTrainer`: all logits of student and teacher side by side, and of both every number that the divergence is made of.
//!
//! Source: trl 1.16 experimental/gkd/gkd_trainer.py `compute_loss` and `generalized_jsd_loss`, PyTorch's
//! aten/src/ATen/native/Loss.cpp `kl_div` and ReduceOps.cpp `logsumexp`; compared with the allocator's trace.

use super::LABEL_MASK;
use crate::dtype::Dtype;
use crate::memory::Category;
use crate::scenario::Divergence;
use crate::step::autograd::{Grad, Node, Results, only};
use crate::step::forward::inputs::Shared;
use crate::step::forward::{Given, Hidden, Pass};
use crate::step::machine::State;
use crate::step::tensor::{Tensor, Value};
use crate::step::what::{Source, What, roles, torch};

static LOG_PROBS: What = What::own(
    "log-probabilities",
    "one number per token and vocabulary entry, the student's or the teacher's; the student's are kept for backward",
    GKD,
);
static BETA: What = What::own("beta", "how much either side of the mixture counts", GKD);
static PROBABILITIES: What =
    What::own("exp", "the probabilities that the divergence is weighed by, kept for backward", KL);
static MAXIMUM: What = What::own("amax", "the larger of both models' log-probabilities of every entry", SUM);
static ABSOLUTE: What =
    What::own("abs", "the size of the larger ones, of which is asked whether it is infinite", SUM);
static INFINITE: What = What::own("isinf", "which of them are infinite", SUM);
static SHIFTED: What = What::own("exp", "both models' log-probabilities, shifted and exponentiated", SUM);
static MIXTURE: What =
    What::own("logsumexp", "the logarithm of both models' probabilities, mixed, kept for backward", SUM);
const GKD: Source = Source::At("trl, experimental/gkd/gkd_trainer.py, generalized_jsd_loss");
const KL: Source = Source::At("PyTorch, aten/src/ATen/native/Loss.cpp, kl_div");
const SUM: Source = Source::At("PyTorch, aten/src/ATen/native/ReduceOps.cpp, logsumexp");

/// What a model returns: its logits and, of a teacher, its cache of keys and values.
pub(in crate::step) struct Returned<'m> {
    logits: Tensor<'m>,
    cache: Vec<Tensor<'m>>,
}

impl<'a> Pass<'_, 'a> {
    /// `model(input_ids=…, attention_mask=…)`.
    pub fn all_of_model(
        &self,
        hidden: Hidden<'a>,
        replace: &dyn Fn(),
    ) -> (Returned<'a>, Given<Shared<Value>>) {
        let Hidden { states, given, ids: _, encoded: _ } = hidden;
        let logits =
            self.machine.as_category(Category::Logits, &roles::HEAD, || self.all_logits(states, replace));
        (Returned { logits, cache: self.cache.take() }, given)
    }

    /// `generalized_jsd_loss`, and the cache that the trainer empties behind it.
    pub fn divergence_of_all(
        &self,
        student: Returned<'a>,
        teacher: Option<Returned<'a>>,
        (divergence, prompt): (Divergence, u64),
    ) -> Tensor<'a> {
        let Some(teacher) = teacher else {
            return student.logits.unmodelled("a divergence without a teacher");
        };
        let loss = self.machine.as_category(Category::Logits, &roles::HEAD, || {
            self.generalized_jsd([&student.logits, &teacher.logits], divergence, prompt)
        });
        self.machine.with(|state| state.heap.empty_cache());
        drop(student);
        drop(teacher.logits);
        drop(teacher.cache);
        loss
    }

    fn generalized_jsd(&self, logits: [&Tensor<'a>; 2], divergence: Divergence, prompt: u64) -> Tensor<'a> {
        let tokens = self.batch.tokens();
        let positions = tokens.saturating_sub(self.batch.sequences);
        let answers = self.batch.length.saturating_sub(prompt.max(1)).saturating_mul(self.batch.sequences);
        let vocabulary = logits[0].value.numel / tokens.max(1);
        // `logits[:, :-1, :] / temperature`
        let divided = logits.map(|logits| logits.slice(positions.saturating_mul(vocabulary)).scale());
        let [student, teacher] = divided.each_ref().map(|logits| logits.keeping_output(&LOG_PROBS));
        let (each, parts) = match divergence {
            Divergence::GkdReverse => (student.divergence_from(&teacher), Vec::new()),
            Divergence::Gkd => self.jensen_shannon(&student, &teacher),
            Divergence::GkdForward | Divergence::Tiles => (teacher.divergence_from(&student), Vec::new()),
        };
        let mask = self.constant(positions, Dtype::Bool, &LABEL_MASK);
        let picked = each.rows_where(&mask, answers, vocabulary);
        drop(each);
        let sum = picked.sum_rows(picked.value.numel);
        let loss = sum.scale();
        drop(divided);
        drop((student, teacher, picked, parts, mask, sum));
        loss
    }

    /// `beta * kl_teacher + (1 - beta) * kl_student`, and what else its variables hold.
    fn jensen_shannon(&self, student: &Tensor<'a>, teacher: &Tensor<'a>) -> (Tensor<'a>, Vec<Tensor<'a>>) {
        let number = || self.constant(1, student.value.dtype, &BETA);
        let beta = number();
        let mixture = {
            let own = student.add_number();
            let other = teacher.add_number();
            let both = [own, other];
            let stacked = self.machine.stacked(&both, student.value.numel.saturating_mul(2));
            let [own, other] = both;
            drop(other);
            drop(own);
            stacked.log_sum_exp_of_two()
        };
        let from_teacher = teacher.divergence_from(&mixture);
        let from_student = student.divergence_from(&mixture);
        let first = from_teacher.times_number(&beta);
        let rest = number();
        let second = from_student.times_number(&rest);
        drop(rest);
        (first.into_sum(second), vec![beta, mixture, from_teacher, from_student])
    }
}

impl<'m> Tensor<'m> {
    /// `kl_div(input, x, reduction="none", log_target=True)`: `exp(x) * (x - input)`, of whose factors the second is made first.
    fn divergence_from(&self, input: &Tensor<'m>) -> Tensor<'m> {
        let difference = self.minus(input);
        let probabilities = self.keeping_output(&PROBABILITIES);
        let product = probabilities.mul(&difference);
        drop(difference);
        drop(probabilities);
        product
    }

    /// `torch.logsumexp(x, dim=0)` of two that are stacked.
    fn log_sum_exp_of_two(&self) -> Tensor<'m> {
        self.apply(|state, x| {
            let node = state.node([x], log_sum_exp_backward);
            state.save_view(node, x);
            let half = Value { numel: x.numel / 2, ..*x };
            let of_each =
                |state: &mut State, dtype, what| state.alloc_for(x.storage, half.numel, dtype, what);
            let maximum = of_each(state, x.dtype, &MAXIMUM);
            let absolute = of_each(state, x.dtype, &ABSOLUTE);
            let infinite = of_each(state, Dtype::Bool, &INFINITE);
            state.release(infinite);
            state.release(absolute);
            let shifted = state.alloc_for(x.storage, x.numel, x.dtype, &SHIFTED);
            let result = state.new_like(&half, x.dtype, &MIXTURE, node.output(0));
            state.release(shifted);
            state.release(maximum);
            state.save_view(node, &result);
            result
        })
    }
}

/// logsumexp_backward: `grad * (self - result).exp()`.
fn log_sum_exp_backward(state: &mut State, node: &Node, grad: &mut Grad) -> Results {
    let whole = node.inputs[0];
    let [minus, exp, product] = [&torch::SUB, &torch::EXP, &torch::MUL]
        .map(|what| state.alloc_for(grad.storage, whole.numel, grad.dtype, what));
    state.release(exp);
    state.release(minus);
    only(Grad::new(product, whole.numel, grad.dtype, whole.layout))
}
