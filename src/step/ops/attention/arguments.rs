//! What attention's kernels are given: queries, keys, values, a mask, and the shape of the scores.

use crate::dtype::Dtype;
use crate::step::autograd::Input;
use crate::step::heap::StorageId;
use crate::step::machine::{Machine, State};
use crate::step::tensor::{Tensor, Value};
use crate::step::what::torch;

/// The kernels of `scaled_dot_product_attention`, and the Python that it replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::step) enum Kernel {
    Eager,
    Flash,
    Efficient,
    Cudnn,
    Math,
    /// The package flash-attn.
    Package,
}

/// The shape of an attention's scores, as its kernels need it.
#[derive(Clone, Copy, Debug)]
pub(in crate::step) struct Scores {
    pub kernel: Kernel,
    pub batch: u64,
    pub heads: u64,
    pub kv_heads: u64,
    /// Tokens of a sequence that ask.
    pub sequence: u64,
    /// Tokens of a sequence that are looked at: more than ask where a cache holds earlier ones.
    pub keys: u64,
    pub head_dim: u64,
    /// Elements of a head's value.
    pub value_dim: u64,
    /// Whether the caller passes `enable_gqa`, where there are fewer heads of keys than of queries.
    pub enable_gqa: bool,
    /// How many texts share the row, where the kernel is told where each begins; otherwise 0.
    pub texts: u64,
    /// Whether probabilities are dropped out.
    pub dropout: bool,
    /// Into how many calls of the kernel its batch is divided, one after the other: what a call needs is there once.
    pub calls: u64,
    /// How many GPUs share each sequence, each with as many of its queries, keys and values (PyTorch's context parallelism).
    pub ranks: u64,
    /// The mask, where it gets a gradient of the kernel (t5's zeros under checkpointing).
    pub bias: Option<Input>,
}

impl Scores {
    /// Floating-point operations of a kernel that makes the scores and the output from them; those above a `causal` diagonal
    /// are left out, and those between texts of a row.
    pub fn flops(&self, causal: bool) -> u64 {
        let dims = self.head_dim.saturating_add(self.value_dim);
        let all = self.numel().saturating_mul(dims).saturating_mul(2) / self.texts.max(1);
        if causal { all / 2 } else { all }
    }

    /// What one of its calls is given.
    pub fn one_call(self) -> Scores {
        let calls = self.calls.max(1);
        Scores { batch: self.batch / calls, calls: 1, ..self }
    }

    /// Elements of the output.
    pub fn outputs(&self) -> u64 {
        self.rows().saturating_mul(self.value_dim)
    }

    /// Elements of the score matrix.
    pub fn numel(&self) -> u64 {
        self.rows().saturating_mul(self.keys)
    }

    /// Rows of the score matrix: one per query and head.
    pub fn rows(&self) -> u64 {
        self.batch.saturating_mul(self.heads).saturating_mul(self.sequence)
    }

    /// Numbers that it keeps of them: the memory-efficient kernel has room for a multiple of 32 queries.
    pub fn sums(&self) -> u64 {
        match self.kernel {
            Kernel::Efficient => {
                let padded = self.sequence.div_ceil(32).saturating_mul(32);
                self.batch.saturating_mul(self.heads).saturating_mul(padded)
            }
            Kernel::Flash | Kernel::Package | Kernel::Cudnn | Kernel::Math | Kernel::Eager => self.rows(),
        }
    }
}

/// Attention's arguments: queries, keys and values shaped by heads.
pub(in crate::step) struct Arguments<'t, 'm> {
    pub q: &'t Tensor<'m>,
    pub k: &'t Tensor<'m>,
    pub v: &'t Tensor<'m>,
    /// The mask, shared by all heads.
    pub mask: Option<&'t Tensor<'m>>,
    pub causal: bool,
    pub dropout: bool,
}

/// The mask as autocast hands it over: cast where it is one of numbers.
pub(super) fn float_mask<'m>(
    mask: Option<&Tensor<'m>>,
    cast: impl Fn(&Tensor<'m>) -> Tensor<'m>,
) -> Option<Tensor<'m>> {
    mask.map(|mask| if mask.value.dtype == Dtype::Bool { mask.clone() } else { cast(mask) })
}

/// `convert_boolean_attn_mask`: a boolean mask becomes an additive one of the queries' element type, one per sequence of
/// the batch (the boolean one is expanded over the batch without a copy).
pub(super) fn additive_mask<'m>(
    machine: &'m Machine,
    mask: &Tensor<'m>,
    scores: Scores,
    dtype: Dtype,
) -> Tensor<'m> {
    if mask.value.dtype != Dtype::Bool {
        return mask.clone();
    }
    let square = scores.sequence.saturating_mul(scores.keys);
    let whole = Value { numel: square.saturating_mul(scores.batch), ..mask.value };
    machine.tensor(|state| {
        let storage = state.additive(whole.numel, dtype);
        Value { storage, dtype, ..whole }
    })
}

impl State {
    /// `at::where(mask, 0, -inf)` of `convert_boolean_attn_mask`.
    pub(super) fn additive(&mut self, numel: u64, dtype: Dtype) -> StorageId {
        let scalars = [&torch::ZERO, &torch::LOWEST].map(|name| self.alloc(1, dtype, name));
        let storage = self.alloc(numel, dtype, &torch::ADDITIVE_MASK);
        // a tower's has nothing to do with the text's queries
        let all = self.sequences.saturating_mul(self.length).saturating_mul(self.keys).max(1);
        if numel.is_multiple_of(all) {
            let dims = self.by_queries();
            self.note_dims(storage, dims);
        }
        scalars.into_iter().rev().for_each(|scalar| self.release(scalar));
        storage
    }
}
